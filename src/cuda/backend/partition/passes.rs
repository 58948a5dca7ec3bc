//! A partition that waits for others, and goes through its sums with them ([`super::super::pass`]).

use std::rc::Rc;
use std::sync::Arc;

use super::{Begun, Mark, Partition, Work};
use crate::backend::Stage;
use crate::cuda::backend::lane::Streams;
use crate::cuda::backend::sources::VariableIndices;
use crate::cuda::backend::sum::WindowSum;
use crate::cuda::Event;
use crate::groth16::{PackedWitness, R1csShape, Srs};
use crate::ids::CircuitId;
use crate::policy::plan::Query;

/// Where a partition stands towards a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    #[default]
    Alone,
    /// Its sums are the pass's; no stage of them is under way.
    Member,
    /// The pass is at this stage of it.
    At(Stage),
}

/// What a pass needs of a member.
#[derive(Clone)]
pub struct PassWork {
    pub circuit: CircuitId,
    pub shape: Arc<R1csShape>,
    pub srs: Arc<Srs>,
    pub indices: Arc<VariableIndices>,
    pub witness: Arc<PackedWitness>,
}

impl Partition {
    /// Frees its device memory: after the sum over `h` only the packed witness is left of it, which a pass copies anew.
    pub fn park(&mut self, streams: &mut Streams) {
        // The pass does not ask how many values are dense.
        self.give_replies_back(streams);
        self.witness = None;
        self.packed = None;
        debug_assert_eq!(self.used_bytes(), 0, "nothing else is left after the sum over h");
    }

    /// From now on its sums are a pass's.
    pub fn join_pass(&mut self) -> PassWork {
        self.standing = Standing::Member;
        let Work { circuit, shape, srs, indices, witness, .. } = &self.work;
        PassWork {
            circuit: circuit.clone(),
            shape: Arc::clone(shape),
            srs: Arc::clone(srs),
            indices: Arc::clone(indices),
            witness: Arc::clone(witness),
        }
    }

    pub fn is_in_pass(&self) -> bool {
        self.standing != Standing::Alone
    }

    /// The sum that it is ready for.
    pub fn next_in_pass(&self) -> Option<Stage> {
        let next = self.wanted.front().copied().filter(|stage| stage.is_of_pass());
        next.filter(|_| self.standing == Standing::Member)
    }

    /// The pass begins what [`Self::next_in_pass`] said.
    pub fn take_for_pass(&mut self) {
        if let Some(stage) = self.next_in_pass() {
            self.wanted.pop_front();
            self.standing = Standing::At(stage);
        }
    }

    /// The pass has put its sum into the stream, between these events. After the last one it is on its own.
    pub fn give_pass_sum(&mut self, query: Query, windows: WindowSum, begun: Rc<Event>, end: Rc<Event>) {
        self.keep_sum(query, windows);
        self.marks.push_back(Mark { stage: query.stage(), begun: Begun::Pass(begun), end });
        self.standing = if query == Query::BG2 { Standing::Alone } else { Standing::Member };
    }

    /// Whether the next of what is wanted has to wait for the pass.
    pub(super) fn waits_for_pass(&self) -> bool {
        match self.standing {
            Standing::Alone => false,
            Standing::Member => self.wanted.front().is_some_and(|stage| stage.is_of_pass()),
            Standing::At(_) => true,
        }
    }
}
