//! The sum over one query, from resident points or from points that are copied when it is their turn.

use std::rc::Rc;
use std::sync::Arc;

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};

use super::lane::Streams;
use super::resident::{num_points, Points, QueryBuffers, QueryRange, Route, TargetMemory};
use super::sources::VariableIndices;
use super::{Shared, SharedBuffer};
use crate::cuda::msm::{MsmKernels, MsmSum, Scalars, WindowSums};
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

/// A sum that is in the stream.
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

    /// Adds points `start..start + length` of the query, which lie in `buffers` from `offset` on.
    pub fn add(
        &self,
        sum: &mut OpenSum,
        buffers: &QueryBuffers,
        offset: usize,
        start: usize,
        length: usize,
    ) -> Result<(), CudaError> {
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

/// Puts a whole sum into the stream. All its points are on the device.
pub fn launch_resident_sum(
    inputs: SumInputs,
    buffers: &QueryBuffers,
    streams: &Streams,
    reservation: &Reservation,
    msm: &MsmKernels,
) -> Result<WindowSum, CudaError> {
    let mut sum = inputs.open(streams, reservation, msm)?;
    let num_points = inputs.num_points();
    let chunk_points = inputs.chunk_points();
    for start in (0..num_points).step_by(chunk_points) {
        inputs.add(&mut sum, buffers, start, start, chunk_points.min(num_points - start))?;
    }
    sum.finish()
}

/// A sum whose points are copied chunk by chunk.
pub struct StreamedSum {
    inputs: SumInputs,
    sum: OpenSum,
    chunks: Chunks,
}

impl StreamedSum {
    /// Allocates the chunks and starts filling them. `track` is told of every ticket.
    pub fn begin(
        inputs: SumInputs,
        streams: &Streams,
        reservation: &Reservation,
        shared: &mut Shared,
        track: impl FnMut(&Ticket),
    ) -> Result<Self, CudaError> {
        let sum = inputs.open(streams, reservation, &shared.msm)?;
        let memory = TargetMemory { reservation, compute: &streams.compute };
        let chunks = Chunks::begin(&inputs, &memory, &streams.copies, &mut shared.stager, track)?;
        Ok(Self { inputs, sum, chunks })
    }

    pub fn query(&self) -> Query {
        self.inputs.query
    }

    /// Adds every chunk that has arrived and starts filling it again; `true` when all points are added.
    pub fn drive(&mut self, streams: &Streams, stager: &mut Stager) -> Result<bool, CudaError> {
        let Self { inputs, sum, chunks } = self;
        let Streams { compute, copies, .. } = streams;
        chunks.drive(inputs, compute, copies, stager, |buffers, start, length| {
            inputs.add(sum, buffers, 0, start, length)
        })
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
        let mut chunks = Self { chunks: Vec::new(), turn: 0, next_point: 0, num_added: 0 };
        while chunks.chunks.len() < 2 && chunks.next_point < num_points {
            let length = inputs.chunk_points().min(num_points - chunks.next_point);
            let buffers = QueryBuffers::new(inputs.query, length, memory)?;
            let mut chunk = Chunk { buffers, ticket: Ticket::default(), range: (0, 0) };
            track(&chunk.ticket);
            // The memory is there when the device gets to this point.
            let allocated = memory.compute.record()?;
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
        after: Event,
        copies: &Stream,
        stager: &mut Stager,
    ) -> Result<(), CudaError> {
        let SumInputs { srs, indices, query, is_urgent, .. } = inputs;
        let range = QueryRange { srs, indices, query: *query, start: self.next_point, length };
        let route = Route { copies, after: Rc::new(after), ticket: &chunk.ticket, is_urgent: *is_urgent };
        chunk.buffers.fill(&range, &route, stager)?;
        chunk.range = (self.next_point, length);
        self.next_point += length;
        Ok(())
    }

    /// Has every chunk that has arrived added by `add` (to `compute`, with its first point and their number) and starts filling
    /// it again; `true` when all points are added.
    pub fn drive(
        &mut self,
        inputs: &SumInputs,
        compute: &Stream,
        copies: &Stream,
        stager: &mut Stager,
        mut add: impl FnMut(&QueryBuffers, usize, usize) -> Result<(), CudaError>,
    ) -> Result<bool, CudaError> {
        let num_points = inputs.num_points();
        while self.num_added < num_points && self.chunks[self.turn].ticket.is_done() {
            let (start, length) = self.chunks[self.turn].range;
            add(&self.chunks[self.turn].buffers, start, length)?;
            self.num_added += length;
            let turn = self.turn;
            self.turn = (turn + 1) % self.chunks.len();
            let next_length = inputs.chunk_points().min(num_points - self.next_point);
            if next_length > 0 {
                // The next copies into this chunk come after the additions that read it.
                let added = compute.record()?;
                let mut chunk = self.chunks.remove(turn);
                self.fill(inputs, &mut chunk, next_length, added, copies, stager)?;
                self.chunks.insert(turn, chunk);
            }
        }
        Ok(self.num_added == num_points)
    }
}
