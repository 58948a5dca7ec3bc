//! Partitions that share a pass over the queries that this card streams ([`crate::policy::shared_pass`]).
//!
//! Each member's packed witness is copied once. Then, query by query, each chunk of points is copied once and added to the
//! members' sums in turns; whose turn it is has its scalars expanded before, into the one buffer that there is for them:
//!
//! ```text
//! copies     chunk 0 | chunk 1 | chunk 2 | …                                        two buffers in turn, as for one partition
//! compute    expand A, add A0 | expand B, add B0 | add B1 | expand A, add A1 | add A2 | …      back and forth
//! ```
//!
//! All of it is in one stream, of passes alone: so buffers that members use in turns need no events, and what a member leaves
//! behind when it is aborted is freed in that stream's order. Memory is charged to the pass's reservation, to the byte as planned.
//!
//! No more is put into the stream than the driver queues ([`Ahead`]): the members of a chunk get their turns over
//! several polls, as the device gets on.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use blst::blst_fr;

use super::ahead::Ahead;
use super::lane::{Lane, Leftover};
use super::packed::PackedBuffers;
use super::partition::PassWork;
use super::resident::TargetMemory;
use super::sources::VariableIndices;
use super::sum::{Arrived, Chunks, OpenSum, SumInputs, SumPoints, SumValues, WindowSum};
use super::{new_target, Shared, SharedBuffer};
use crate::backend::{BackendWaker, LaneIndex, Stage};
use crate::cuda::msm::{launches_at_end, launches_per_chunk};
use crate::cuda::spmv::{DeviceShape, SpmvKernels};
use crate::cuda::staging::{Stager, Ticket};
use crate::cuda::{Context, CudaError, Event, Priority, Reservation, Stream};
use crate::groth16::Srs;
use crate::ids::CircuitId;
use crate::policy::plan::Query;
use crate::policy::shared_pass::PassPlan;

/// Of a member's turn besides its addition: two for its scalars, an event and a host function behind it.
const LAUNCHES_PER_TURN: u64 = 4;
/// Of a query's beginning: memory that members have in common, and chunks.
const LAUNCHES_TO_OPEN: u64 = 24;
/// Of a query's beginning or end for each member: its own memory, and an event.
const LAUNCHES_PER_MEMBER: u64 = 4;

/// The queues of passes.
#[derive(Clone)]
pub struct PassStreams {
    compute: Stream,
    copies: Stream,
    waker: BackendWaker,
    ahead: Rc<RefCell<Ahead>>,
}

impl PassStreams {
    pub fn new(context: &Context, waker: &BackendWaker) -> Result<Self, CudaError> {
        Ok(Self {
            compute: Stream::new(context, Priority::Normal)?,
            copies: Stream::new(context, Priority::Normal)?,
            waker: Arc::clone(waker),
            ahead: Rc::default(),
        })
    }

    /// As [`Ahead::mark`].
    fn mark(&self, num_launches: u64) -> Result<Rc<Event>, CudaError> {
        self.ahead.borrow_mut().mark(&self.compute, &self.waker, num_launches)
    }

    /// As [`Ahead::has_room`].
    fn have_room(&self, num_launches: u64) -> bool {
        self.ahead.borrow().has_room(num_launches)
    }

    /// The end of what was given to the stream; none if it cannot be marked, since then the context is lost.
    fn ends(&self) -> Vec<Rc<Event>> {
        self.mark(0).into_iter().collect()
    }
}

/// A pass, until its last sum is in the stream or nobody is left in it.
pub struct Pass {
    plan: PassPlan,
    reservation: Reservation,
    streams: PassStreams,
    circuit: CircuitId,
    srs: Arc<Srs>,
    indices: Arc<VariableIndices>,
    members: Members,
    current: Option<Current>,
    /// Of the copies of packed witnesses.
    uploads: Ticket,
    /// Of the copies into chunks.
    tickets: Vec<Ticket>,
    /// Of the current query, until all are.
    finished: Vec<(LaneIndex, WindowSum)>,
    /// Each lane has been given its last sum.
    is_done: bool,
}

/// Those whose sums are made, and what they use in turns.
struct Members {
    list: Vec<Member>,
    shape: DeviceShape,
    num_inputs: usize,
    /// Inputs, then aux, of `expanded`. `None` once the last sum is in the stream.
    values: Option<SharedBuffer<blst_fr>>,
    expanded: Option<LaneIndex>,
    /// Whether the next chunk is added from the first member to the last: who was last is first then, and is still expanded.
    goes_back: bool,
}

struct Member {
    lane: LaneIndex,
    /// `None` once the last sum is in the stream.
    packed: Option<PackedBuffers>,
    /// Over the current query.
    sum: Option<OpenSum>,
    /// The chunk whose turn it is was added to it.
    has_chunk: bool,
}

/// The query that is summed up now.
struct Current {
    inputs: SumInputs,
    points: SumPoints,
    begun: Rc<Event>,
}

/// A failure of all members, and the stage it belongs to.
type PassResult<T> = Result<T, (Stage, CudaError)>;

impl Pass {
    /// Allocates what is on the device for as long as the pass is, and starts copying it there.
    ///
    /// # Errors
    /// As [`crate::cuda::DeviceBuffer::new`]; if the shape is not resident, or there is no member. With what has begun.
    pub fn begin(
        works: Vec<(LaneIndex, PassWork)>,
        plan: &PassPlan,
        streams: &PassStreams,
        shared: &mut Shared,
    ) -> Result<Self, (CudaError, Leftover)> {
        let uploads = Ticket::default();
        let begun = Self::try_begin(works, plan, streams, &uploads, shared);
        begun.map_err(|error| {
            shared.stager.cancel(&uploads);
            (error, Leftover { ends: streams.ends(), tickets: vec![uploads], ..Leftover::default() })
        })
    }

    fn try_begin(
        works: Vec<(LaneIndex, PassWork)>,
        plan: &PassPlan,
        streams: &PassStreams,
        uploads: &Ticket,
        shared: &mut Shared,
    ) -> Result<Self, CudaError> {
        let (_, first) = works.first().ok_or_else(|| missing("a member of the pass"))?;
        let PassWork { circuit, shape, srs, indices, .. } = first.clone();
        let device_shape = shared
            .residents
            .shape(&circuit, &shape)
            .ok_or_else(|| missing("the shape that is resident by plan"))?;
        let reservation = Reservation::new(&shared.context, plan.peak_bytes());
        let compute = &streams.compute;
        let num_variables = shape.num_inputs() + shape.num_aux();
        let values = new_target(&reservation, compute, num_variables)?;
        let mut list = Vec::with_capacity(works.len());
        for (lane, work) in works {
            let packed = PackedBuffers::new(&work.shape, &work.witness, &reservation, compute)?;
            let source = (&work.shape, &work.witness);
            packed.upload(source, (compute, &streams.copies), (&mut shared.stager, uploads, false))?;
            list.push(Member { lane, packed: Some(packed), sum: None, has_chunk: false });
        }
        let members = Members {
            list,
            shape: device_shape,
            num_inputs: shape.num_inputs(),
            values: Some(values),
            expanded: None,
            goes_back: false,
        };
        Ok(Self {
            plan: plan.clone(),
            reservation,
            streams: streams.clone(),
            circuit,
            srs,
            indices,
            members,
            current: None,
            uploads: uploads.clone(),
            tickets: Vec::new(),
            finished: Vec::new(),
            is_done: false,
        })
    }

    pub fn used_bytes(&self) -> u64 {
        self.reservation.used_bytes()
    }

    pub fn has(&self, lane: LaneIndex) -> bool {
        self.members.list.iter().any(|member| member.lane == lane)
    }

    /// Nothing of it is to be launched any more.
    fn is_over(&self) -> bool {
        self.is_done || self.members.list.is_empty()
    }

    /// It is over, and has no memory any more: copies that were under way are done.
    pub fn is_gone(&self) -> bool {
        self.is_over() && self.uploads.is_done() && self.tickets.iter().all(Ticket::is_done)
    }

    /// Moves on what can move. Sums that are in the stream are given to their lanes, which report when the device has passed
    /// them.
    ///
    /// # Errors
    /// Of all members; they have to [`dissolve`](Self::dissolve).
    pub fn drive(&mut self, lanes: &mut [Lane], shared: &mut Shared) -> PassResult<()> {
        self.part_with_failed(lanes, &mut shared.stager);
        if self.is_over() || !self.uploads.is_done() {
            return Ok(());
        }
        self.streams.ahead.borrow_mut().strike_off_passed().map_err(|error| (self.stage(lanes), error))?;
        while !self.is_over() {
            let Some(mut current) = self.current.take() else {
                let Some(stage) = self.next_stage(lanes) else { return Ok(()) };
                self.current = self.open(stage, lanes, shared).map_err(|error| (stage, error))?;
                if self.current.is_none() {
                    return Ok(());
                }
                continue;
            };
            let stage = current.inputs.query.stage();
            let is_added = self.add(&mut current, shared).map_err(|error| (stage, error))?;
            let num_launches = self.launches_to_close(&current);
            if !is_added || !self.streams.have_room(num_launches) {
                self.current = Some(current);
                return Ok(());
            }
            self.close(current, num_launches, lanes).map_err(|error| (stage, error))?;
        }
        Ok(())
    }

    /// Lets those go who failed by themselves.
    fn part_with_failed(&mut self, lanes: &mut [Lane], stager: &mut Stager) {
        if self.is_over() {
            return;
        }
        let of_members = self.members.list.iter().map(|member| member.lane);
        let failed: Vec<LaneIndex> = of_members.filter(|lane| !lanes[lane.0 as usize].is_in_pass()).collect();
        for lane in failed {
            let left = self.leave(lane, stager);
            lanes[lane.0 as usize].wait_also_for(left);
        }
    }

    /// The one that it is at.
    fn stage(&self, lanes: &[Lane]) -> Stage {
        let current = self.current.as_ref().map(|current| current.inputs.query.stage());
        current.or_else(|| self.next_stage(lanes)).unwrap_or(Stage::SumL)
    }

    /// The stage that all members have next, if it is the same for all.
    fn next_stage(&self, lanes: &[Lane]) -> Option<Stage> {
        let mut stages = self.members.list.iter().map(|member| lanes[member.lane.0 as usize].next_in_pass());
        let first = stages.next()??;
        stages.all(|stage| stage == Some(first)).then_some(first)
    }

    /// Begins a sum of all members; `None`: the stream has no room for that yet.
    fn open(
        &mut self,
        stage: Stage,
        lanes: &mut [Lane],
        shared: &mut Shared,
    ) -> Result<Option<Current>, CudaError> {
        let query = Query::of_stage(stage).ok_or_else(|| missing("a sum of the pass"))?;
        let num_launches = LAUNCHES_TO_OPEN + LAUNCHES_PER_MEMBER * self.members.list.len() as u64;
        if !self.streams.have_room(num_launches) {
            return Ok(None);
        }
        let begun = Rc::new(self.streams.compute.record()?);
        let values = self.members.values.as_ref().ok_or_else(|| missing("room for scalars"))?;
        let plan = *self.plan.sum(query);
        let inputs = SumInputs {
            query,
            plan,
            srs: Arc::clone(&self.srs),
            indices: Arc::clone(&self.indices),
            values: SumValues::Witness(Rc::clone(values)),
            num_inputs: self.members.num_inputs,
            is_urgent: false,
        };
        let Self { streams, reservation, members, tickets, .. } = self;
        let sums = inputs.open_together(&streams.compute, reservation, &shared.msm, members.list.len())?;
        for (member, sum) in members.list.iter_mut().zip(sums) {
            member.sum = Some(sum);
            lanes[member.lane.0 as usize].take_for_pass();
        }
        let points = if plan.streamed {
            let memory = TargetMemory { reservation, compute: &streams.compute };
            tickets.clear();
            let track = |ticket: &Ticket| tickets.push(ticket.clone());
            SumPoints::Streamed(Chunks::begin(&inputs, &memory, &streams.copies, &mut shared.stager, track)?)
        } else {
            let resident = shared.residents.get(&self.circuit, query);
            let buffers = resident.ok_or_else(|| missing("a query that is resident by plan"))?;
            SumPoints::Resident { buffers, num_added: 0 }
        };
        streams.mark(num_launches)?;
        Ok(Some(Current { inputs, points, begun }))
    }

    /// Adds points that have arrived, as far as the stream has room; `true` when those are all.
    fn add(&mut self, current: &mut Current, shared: &mut Shared) -> Result<bool, CudaError> {
        let Self { streams, members, .. } = self;
        let Current { inputs, points, .. } = current;
        let inputs = &*inputs;
        let Shared { stager, spmv, .. } = shared;
        let spmv = &*spmv;
        while let Some(arrived) = points.arrived(inputs) {
            if !members.add(inputs, spmv, streams, &arrived)? {
                return Ok(false);
            }
            points.pass_on(inputs, &streams.compute, &streams.copies, stager)?;
        }
        Ok(points.are_added(inputs))
    }

    fn launches_to_close(&self, current: &Current) -> u64 {
        let SumInputs { query, plan, .. } = &current.inputs;
        (launches_at_end(&plan.msm(*query)) + LAUNCHES_PER_MEMBER) * self.members.list.len() as u64
    }

    /// Puts the rest of the sums into the stream. What the stage had is freed before it ends there, and after the last one
    /// everything.
    fn close(&mut self, current: Current, num_launches: u64, lanes: &mut [Lane]) -> Result<(), CudaError> {
        let Current { inputs, points, begun } = current;
        let query = inputs.query;
        for member in &mut self.members.list {
            let sum = member.sum.take().ok_or_else(|| missing("a member's sum"))?;
            self.finished.push((member.lane, sum.finish()?));
        }
        drop((inputs, points));
        let is_last = query == Query::BG2;
        if is_last {
            self.members.values = None;
            self.members.list.iter_mut().for_each(|member| member.packed = None);
        }
        let end = self.streams.mark(num_launches)?;
        for (lane, windows) in self.finished.drain(..) {
            lanes[lane.0 as usize].give_pass_sum(query, windows, Rc::clone(&begun), Rc::clone(&end));
        }
        self.is_done = is_last;
        Ok(())
    }

    /// Lets one member go. What it had is freed in the stream's order; its lane is empty when what is returned is done.
    pub fn leave(&mut self, lane: LaneIndex, stager: &mut Stager) -> Leftover {
        self.members.list.retain(|member| member.lane != lane);
        if self.members.expanded == Some(lane) {
            self.members.expanded = None;
        }
        if self.is_over() {
            return self.let_go(stager);
        }
        // Its witness may still be on its way, to memory of the pass.
        let tickets = vec![self.uploads.clone()];
        Leftover { ends: self.streams.ends(), tickets, ..Leftover::default() }
    }

    /// Lets all members go.
    pub fn dissolve(&mut self, stager: &mut Stager) -> (Vec<LaneIndex>, Leftover) {
        let lanes = self.members.list.drain(..).map(|member| member.lane).collect();
        (lanes, self.let_go(stager))
    }

    fn let_go(&mut self, stager: &mut Stager) -> Leftover {
        self.current = None;
        self.members.values = None;
        let mut tickets = self.tickets.clone();
        tickets.push(self.uploads.clone());
        for ticket in &tickets {
            stager.cancel(ticket);
        }
        let sums = self.finished.drain(..).map(|(_, windows)| Rc::new(windows)).collect();
        Leftover { ends: self.streams.ends(), tickets, sums }
    }
}

impl Members {
    /// Adds a chunk to the sums that do not have it yet. `false`: the stream has no room for the next member's turn yet.
    fn add(
        &mut self,
        inputs: &SumInputs,
        spmv: &SpmvKernels,
        streams: &PassStreams,
        arrived: &Arrived<'_>,
    ) -> Result<bool, CudaError> {
        let num_launches = LAUNCHES_PER_TURN + launches_per_chunk(&inputs.plan.msm(inputs.query));
        while let Some(index) = self.next_turn() {
            if !streams.have_room(num_launches) {
                return Ok(false);
            }
            self.expand(index, spmv, &streams.compute)?;
            let member = &mut self.list[index];
            let sum = member.sum.as_mut().ok_or_else(|| missing("a member's sum"))?;
            inputs.add(sum, arrived)?;
            member.has_chunk = true;
            streams.mark(num_launches)?;
        }
        self.list.iter_mut().for_each(|member| member.has_chunk = false);
        self.goes_back = !self.goes_back;
        Ok(true)
    }

    /// Who has the chunk added next. Some may have gone since the turn before.
    fn next_turn(&self) -> Option<usize> {
        let mut members = self.list.iter();
        if self.goes_back {
            members.rposition(|member| !member.has_chunk)
        } else {
            members.position(|member| !member.has_chunk)
        }
    }

    /// Makes the scalars those of this member. Additions that read another's are before it in the stream.
    fn expand(&mut self, index: usize, spmv: &SpmvKernels, compute: &Stream) -> Result<(), CudaError> {
        let Member { lane, packed, .. } = &self.list[index];
        if self.expanded == Some(*lane) {
            return Ok(());
        }
        let packed = packed.as_ref().ok_or_else(|| missing("a packed witness"))?;
        let values = self.values.as_ref().ok_or_else(|| missing("room for scalars"))?;
        packed.expand(values, compute, &self.shape, spmv)?;
        self.expanded = Some(*lane);
        Ok(())
    }
}

fn missing(what: &str) -> CudaError {
    CudaError::Host(format!("{what} missing: a pass came out of order"))
}
