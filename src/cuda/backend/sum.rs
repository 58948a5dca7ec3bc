//! The sum over one query, from resident points or from points that are copied when it is their turn.

use std::rc::Rc;
use std::sync::Arc;

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};

use super::lane::Streams;
use super::resident::{num_points, Points, QueryBuffers, QueryRange, Route, TargetMemory};
use super::sources::VariableIndices;
use super::{Shared, SharedBuffer};
use crate::cuda::msm::{launches_at_end, launches_per_chunk, MsmKernels, MsmSum, Scalars, WindowSums};
use crate::cuda::staging::{Stager, Ticket};
use crate::cuda::{CudaError, DeviceBuffer, Event, Reservation, Stream};
use crate::groth16::srs::QuotientBasis;
use crate::groth16::Srs;
use crate::policy::plan::{Query, SumPlan};

/// What a sum is made of. It holds what it reads until it is in the stream.
pub struct SumInputs {
    pub query: Query,
    pub plan: SumPlan,
    pub srs: Arc<Srs>,
    pub indices: Arc<VariableIndices>,
    pub values: SumValues,
    pub num_inputs: usize,
    pub is_urgent: bool,
}

/// Where the scalars of a sum are.
pub enum SumValues {
    /// For [`Query::H`] alone.
    Quotient(DeviceBuffer<blst_fr>),
    /// Inputs, then aux.
    Witness(SharedBuffer<blst_fr>),
}

/// A sum that is wholly in the stream.
pub enum WindowSum {
    G1(WindowSums<blst_p1_affine>),
    G2(WindowSums<blst_p2_affine>),
}

/// A sum that takes points.
pub enum OpenSum {
    G1(MsmSum<blst_p1_affine>),
    G2(MsmSum<blst_p2_affine>),
}

impl SumInputs {
    pub fn num_points(&self) -> usize {
        num_points(&self.srs, self.query)
    }

    pub fn chunk_points(&self) -> usize {
        (self.plan.chunk_points as usize).max(1)
    }

    fn open(
        &self,
        streams: &Streams,
        reservation: &Reservation,
        msm: &MsmKernels,
    ) -> Result<OpenSum, CudaError> {
        let plan = self.plan.msm(self.query);
        Ok(match self.query {
            Query::BG2 => OpenSum::G2(msm.begin(&streams.compute, reservation, &plan)?),
            _ => OpenSum::G1(msm.begin(&streams.compute, reservation, &plan)?),
        })
    }

    /// Memory that the sums of several partitions over this query use in turns, and an open sum for each.
    pub fn open_together(
        &self,
        compute: &Stream,
        reservation: &Reservation,
        msm: &MsmKernels,
        num_sums: usize,
    ) -> Result<Vec<OpenSum>, CudaError> {
        let scratch = msm.scratch(compute, reservation, &self.plan.msm(self.query))?;
        let open = |_| {
            Ok(match self.query {
                Query::BG2 => OpenSum::G2(msm.begin_with(reservation, scratch.clone())?),
                _ => OpenSum::G1(msm.begin_with(reservation, scratch.clone())?),
            })
        };
        (0..num_sums).map(open).collect()
    }

    /// Adds points of the query to one sum.
    pub fn add(&self, sum: &mut OpenSum, arrived: &Arrived<'_>) -> Result<(), CudaError> {
        let &Arrived { buffers, offset, start, length } = arrived;
        let index = match &buffers.indices {
            Some(indices) => Some(indices.part(offset, length)?),
            None => None,
        };
        let values = match (self.query, &self.values) {
            (Query::H, SumValues::Quotient(quotient)) => quotient.part(start, length)?,
            (Query::L, SumValues::Witness(witness)) => match self.srs.basis {
                QuotientBasis::Coefficients => witness.part(self.num_inputs + start, length)?,
                QuotientBasis::Lagrange => witness.part(start, length)?,
            },
            (Query::A | Query::BG1 | Query::BG2, SumValues::Witness(witness)) => witness.all(),
            _ => return Err(CudaError::Host("scalars of another query".to_owned())),
        };
        let scalars = Scalars { values, index };
        match (sum, &buffers.points) {
            (OpenSum::G1(sum), Points::G1(points)) => sum.add(points.part(offset, length)?, scalars),
            (OpenSum::G2(sum), Points::G2(points)) => sum.add(points.part(offset, length)?, scalars),
            _ => unreachable!("the group follows from the query"),
        }
    }
}

impl OpenSum {
    /// Puts the rest of it into the stream.
    pub fn finish(self) -> Result<WindowSum, CudaError> {
        Ok(match self {
            Self::G1(sum) => WindowSum::G1(sum.finish()?),
            Self::G2(sum) => WindowSum::G2(sum.finish()?),
        })
    }
}

/// Points that are on the device: so many from the query's `start`-th on, which lie in the buffers from `offset` on.
pub struct Arrived<'c> {
    pub buffers: &'c QueryBuffers,
    pub offset: usize,
    pub start: usize,
    pub length: usize,
}

/// Where the points of a sum are, and how many of them are added.
pub enum SumPoints {
    Resident { buffers: QueryBuffers, num_added: usize },
    Streamed(Chunks),
}

impl SumPoints {
    /// The chunk that is to be added next, if it is on the device.
    pub fn arrived(&self, inputs: &SumInputs) -> Option<Arrived<'_>> {
        match self {
            Self::Resident { buffers, num_added } => {
                let (offset, start) = (*num_added, *num_added);
                let length = inputs.chunk_points().min(inputs.num_points() - start);
                (length > 0).then_some(Arrived { buffers, offset, start, length })
            }
            Self::Streamed(chunks) => chunks.arrived(),
        }
    }

    /// What has [arrived](Self::arrived) is being added by launches in `compute`.
    pub fn pass_on(
        &mut self,
        inputs: &SumInputs,
        compute: &Stream,
        copies: &Stream,
        stager: &mut Stager,
    ) -> Result<(), CudaError> {
        match self {
            Self::Resident { num_added, .. } => {
                *num_added = inputs.num_points().min(*num_added + inputs.chunk_points());
                Ok(())
            }
            Self::Streamed(chunks) => chunks.pass_on(inputs, compute, copies, stager),
        }
    }

    /// Whether launches that add them are in the stream for all points.
    pub fn are_added(&self, inputs: &SumInputs) -> bool {
        match self {
            Self::Resident { num_added, .. } => *num_added == inputs.num_points(),
            Self::Streamed(chunks) => chunks.are_added(),
        }
    }
}

/// A partition's own sum: chunk by chunk, as its points arrive and the stream has room.
pub struct DrivenSum {
    inputs: SumInputs,
    sum: OpenSum,
    points: SumPoints,
}

/// Of a chunk besides its addition: two marks, each an event and a host function.
const LAUNCHES_PER_MARKS: u64 = 4;

impl DrivenSum {
    /// `resident`: the points, where they are on the device. Else allocates chunks and starts filling them; `track` is told
    /// of every ticket.
    pub fn begin(
        inputs: SumInputs,
        resident: Option<QueryBuffers>,
        streams: &Streams,
        reservation: &Reservation,
        shared: &mut Shared,
        track: impl FnMut(&Ticket),
    ) -> Result<Self, CudaError> {
        let sum = inputs.open(streams, reservation, &shared.msm)?;
        let memory = TargetMemory { reservation, compute: &streams.compute };
        let points = match resident {
            Some(buffers) => SumPoints::Resident { buffers, num_added: 0 },
            None => {
                let stager = &mut shared.stager;
                SumPoints::Streamed(Chunks::begin(&inputs, &memory, &streams.copies, stager, track)?)
            }
        };
        Ok(Self { inputs, sum, points })
    }

    pub fn query(&self) -> Query {
        self.inputs.query
    }

    /// Adds what has arrived, as far as the stream has room; `true` when all points are added, and the rest of the sum has
    /// room as well.
    pub fn drive(&mut self, streams: &mut Streams, shared: &mut Shared) -> Result<bool, CudaError> {
        let Self { inputs, sum, points } = self;
        let Streams { compute, copies, ahead, .. } = streams;
        let msm = inputs.plan.msm(inputs.query);
        let num_launches = LAUNCHES_PER_MARKS + launches_per_chunk(&msm);
        ahead.strike_off_passed()?;
        while let Some(arrived) = points.arrived(inputs) {
            if !ahead.has_room(num_launches) {
                return Ok(false);
            }
            inputs.add(sum, &arrived)?;
            points.pass_on(inputs, compute, copies, &mut shared.stager)?;
            // Behind the last chunk the end of the stage wakes the actor, and a sum of one chunk is not held up.
            if !points.are_added(inputs) {
                ahead.mark(compute, &shared.waker, num_launches)?;
            }
        }
        Ok(points.are_added(inputs) && ahead.has_room(launches_at_end(&msm)))
    }

    /// Puts the rest of the sum into the stream.
    pub fn finish(self) -> Result<(Query, WindowSum), CudaError> {
        Ok((self.inputs.query, self.sum.finish()?))
    }
}

/// The points of a query on their way to the device, into two buffers in turn.
pub struct Chunks {
    chunks: Vec<Chunk>,
    /// The chunk whose points are added next.
    turn: usize,
    /// Points before it are on their way or added.
    next_point: usize,
    num_added: usize,
    num_points: usize,
}

struct Chunk {
    buffers: QueryBuffers,
    ticket: Ticket,
    /// First point and number of points that it holds.
    range: (usize, usize),
}

impl Chunks {
    /// Allocates them in `memory` and starts filling them by `copies`. `track` is told of every ticket.
    pub fn begin(
        inputs: &SumInputs,
        memory: &TargetMemory<'_>,
        copies: &Stream,
        stager: &mut Stager,
        mut track: impl FnMut(&Ticket),
    ) -> Result<Self, CudaError> {
        let num_points = inputs.num_points();
        let mut chunks = Self { chunks: Vec::new(), turn: 0, next_point: 0, num_added: 0, num_points };
        while chunks.chunks.len() < 2 && chunks.next_point < num_points {
            let length = inputs.chunk_points().min(num_points - chunks.next_point);
            let buffers = QueryBuffers::new(inputs.query, length, memory)?;
            let mut chunk = Chunk { buffers, ticket: Ticket::default(), range: (0, 0) };
            track(&chunk.ticket);
            // The memory is there when the device gets to this point.
            let allocated = stager.mark(memory.compute)?;
            chunks.fill(inputs, &mut chunk, length, allocated, copies, stager)?;
            chunks.chunks.push(chunk);
        }
        Ok(chunks)
    }

    fn fill(
        &mut self,
        inputs: &SumInputs,
        chunk: &mut Chunk,
        length: usize,
        after: Rc<Event>,
        copies: &Stream,
        stager: &mut Stager,
    ) -> Result<(), CudaError> {
        let SumInputs { srs, indices, query, is_urgent, .. } = inputs;
        let range = QueryRange { srs, indices, query: *query, start: self.next_point, length };
        let route = Route { copies, after, ticket: &chunk.ticket, is_urgent: *is_urgent };
        chunk.buffers.fill(&range, &route, stager)?;
        chunk.range = (self.next_point, length);
        self.next_point += length;
        Ok(())
    }

    /// The chunk that is to be added next, if it has arrived.
    pub fn arrived(&self) -> Option<Arrived<'_>> {
        let chunk = self.chunks.get(self.turn).filter(|chunk| !self.are_added() && chunk.ticket.is_done())?;
        let (start, length) = chunk.range;
        Some(Arrived { buffers: &chunk.buffers, offset: 0, start, length })
    }

    /// What has [arrived](Self::arrived) is being added by launches in `compute`; its buffers are filled again behind them.
    pub fn pass_on(
        &mut self,
        inputs: &SumInputs,
        compute: &Stream,
        copies: &Stream,
        stager: &mut Stager,
    ) -> Result<(), CudaError> {
        let turn = self.turn;
        self.num_added += self.chunks[turn].range.1;
        self.turn = (turn + 1) % self.chunks.len();
        let next_length = inputs.chunk_points().min(self.num_points - self.next_point);
        if next_length > 0 {
            let added = stager.mark(compute)?;
            let mut chunk = self.chunks.remove(turn);
            self.fill(inputs, &mut chunk, next_length, added, copies, stager)?;
            self.chunks.insert(turn, chunk);
        }
        Ok(())
    }

    /// Whether launches that add them are in the stream for all points.
    pub fn are_added(&self) -> bool {
        self.num_added == self.num_points
    }
}
