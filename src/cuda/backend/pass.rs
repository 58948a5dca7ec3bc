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
//! All of it is in one stream, of the pass's own: so buffers that members use in turns need no events, and what a member leaves
//! behind when it is aborted is freed in that stream's order. Memory is charged to the pass's reservation, to the byte as planned.

use std::rc::Rc;
use std::sync::Arc;

use blst::blst_fr;

use super::lane::{Lane, Leftover};
use super::partition::PassWork;
use super::resident::{QueryBuffers, TargetMemory};
use super::sources::{ValueKind, Values, VariableIndices};
use super::sum::{Chunks, OpenSum, SumInputs, SumValues, WindowSum};
use super::{new_target, Shared, SharedBuffer};
use crate::backend::{BackendWaker, LaneIndex, Stage};
use crate::cuda::memory::CopyTarget;
use crate::cuda::spmv::{DeviceShape, DeviceWitness, SpmvKernels};
use crate::cuda::staging::{Stager, Ticket, Transfer};
use crate::cuda::{Context, CudaError, Event, Priority, Reservation, Stream};
use crate::groth16::Srs;
use crate::ids::CircuitId;
use crate::policy::plan::Query;
use crate::policy::shared_pass::PassPlan;

/// The queues of passes.
#[derive(Clone)]
pub struct PassStreams {
    compute: Stream,
    copies: Stream,
}

impl PassStreams {
    pub fn new(context: &Context) -> Result<Self, CudaError> {
        Ok(Self {
            compute: Stream::new(context, Priority::Normal)?,
            copies: Stream::new(context, Priority::Normal)?,
        })
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
    /// Each lane has been given its last sum.
    is_done: bool,
}

/// Those whose sums are made, and what they use in turns.
struct Members {
    list: Vec<Member>,
    compute: Stream,
    waker: BackendWaker,
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
    packed: Option<Packed>,
    /// Over the current query.
    sum: Option<OpenSum>,
}

/// A packed witness on the device.
struct Packed {
    bits: SharedBuffer<u64>,
    dense: SharedBuffer<blst_fr>,
    inputs: SharedBuffer<blst_fr>,
}

/// The query that is summed up now.
struct Current {
    inputs: SumInputs,
    points: PassPoints,
    begun: Rc<Event>,
}

enum PassPoints {
    Resident(QueryBuffers),
    Streamed(Chunks),
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
            (error, Leftover { ends: end_of(&streams.compute), tickets: vec![uploads] })
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
            let packed = Packed::new(&work, &reservation, compute)?;
            packed.upload(&work, streams, uploads, &mut shared.stager)?;
            list.push(Member { lane, packed: Some(packed), sum: None });
        }
        let members = Members {
            list,
            compute: compute.clone(),
            waker: Arc::clone(&shared.waker),
            shape: device_shape,
            num_inputs: shape.num_inputs(),
            values: Some(values),
            expanded: None,
            goes_back: false,
        };
        // The memory is there then, and copies into it may begin.
        members.wake_behind();
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
            is_done: false,
        })
    }

    pub fn used_bytes(&self) -> u64 {
        self.reservation.used_bytes()
    }

    pub fn has(&self, lane: LaneIndex) -> bool {
        self.members.list.iter().any(|member| member.lane == lane)
    }

    pub fn is_over(&self) -> bool {
        self.is_done || self.members.list.is_empty()
    }

    /// Moves on what can move. Sums that are in the stream are given to their lanes, which report when the device has passed
    /// them.
    ///
    /// # Errors
    /// Of all members; they have to [`dissolve`](Self::dissolve).
    pub fn drive(&mut self, lanes: &mut [Lane], shared: &mut Shared) -> PassResult<()> {
        // Who failed by itself has gone without a word.
        self.members.list.retain(|member| lanes[member.lane.0 as usize].is_in_pass());
        if !self.uploads.is_done() {
            return Ok(());
        }
        while !self.is_over() {
            let Some(mut current) = self.current.take() else {
                let Some(stage) = self.next_stage(lanes) else { return Ok(()) };
                let query = Query::of_stage(stage).ok_or_else(|| (stage, missing("a sum of the pass")))?;
                self.current = Some(self.open(query, lanes, shared).map_err(|error| (stage, error))?);
                continue;
            };
            let stage = current.inputs.query.stage();
            let is_added = self.add(&mut current, shared).map_err(|error| (stage, error))?;
            if !is_added {
                self.current = Some(current);
                return Ok(());
            }
            self.close(current, lanes).map_err(|error| (stage, error))?;
        }
        Ok(())
    }

    /// The stage that all members have next, if it is the same for all.
    fn next_stage(&self, lanes: &[Lane]) -> Option<Stage> {
        let mut stages = self.members.list.iter().map(|member| lanes[member.lane.0 as usize].next_in_pass());
        let first = stages.next()??;
        stages.all(|stage| stage == Some(first)).then_some(first)
    }

    fn open(&mut self, query: Query, lanes: &mut [Lane], shared: &mut Shared) -> Result<Current, CudaError> {
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
            PassPoints::Streamed(Chunks::begin(&inputs, &memory, &streams.copies, &mut shared.stager, track)?)
        } else {
            let resident = shared.residents.get(&self.circuit, query);
            PassPoints::Resident(resident.ok_or_else(|| missing("a query that is resident by plan"))?)
        };
        Ok(Current { inputs, points, begun })
    }

    /// Adds all points that have arrived; `true` when those are all.
    fn add(&mut self, current: &mut Current, shared: &mut Shared) -> Result<bool, CudaError> {
        let Self { streams, members, .. } = self;
        let Current { inputs, points, .. } = current;
        let inputs = &*inputs;
        let Shared { stager, spmv, .. } = shared;
        let spmv = &*spmv;
        match points {
            PassPoints::Streamed(chunks) => {
                let PassStreams { compute, copies } = streams;
                chunks.drive(inputs, compute, copies, stager, |buffers, start, length| {
                    members.add(inputs, spmv, buffers, (0, start, length))
                })
            }
            PassPoints::Resident(buffers) => {
                let (num_points, chunk_points) = (inputs.num_points(), inputs.chunk_points());
                for start in (0..num_points).step_by(chunk_points) {
                    let length = chunk_points.min(num_points - start);
                    members.add(inputs, spmv, buffers, (start, start, length))?;
                }
                Ok(true)
            }
        }
    }

    /// Puts the rest of the sums into the stream. What the stage had is freed before it ends there, and after the last one
    /// everything.
    fn close(&mut self, current: Current, lanes: &mut [Lane]) -> Result<(), CudaError> {
        let Current { inputs, points, begun } = current;
        let query = inputs.query;
        let mut windows: Vec<(LaneIndex, WindowSum)> = Vec::with_capacity(self.members.list.len());
        for member in &mut self.members.list {
            let sum = member.sum.take().ok_or_else(|| missing("a member's sum"))?;
            windows.push((member.lane, sum.finish()?));
        }
        drop((inputs, points));
        let is_last = query == Query::BG2;
        if is_last {
            self.members.values = None;
            self.members.list.iter_mut().for_each(|member| member.packed = None);
        }
        let compute = &self.streams.compute;
        for (lane, windows) in windows {
            let end = compute.record()?;
            lanes[lane.0 as usize].give_pass_sum(query, windows, Rc::clone(&begun), end);
        }
        self.members.wake_behind();
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
        Leftover { ends: end_of(&self.streams.compute), tickets: vec![self.uploads.clone()] }
    }

    /// Lets all members go.
    pub fn dissolve(&mut self, stager: &mut Stager) -> (Vec<LaneIndex>, Leftover) {
        let lanes = self.members.list.drain(..).map(|member| member.lane).collect();
        (lanes, self.let_go(stager))
    }

    fn let_go(&mut self, stager: &mut Stager) -> Leftover {
        self.current = None;
        self.members.values = None;
        let mut tickets = std::mem::take(&mut self.tickets);
        tickets.push(self.uploads.clone());
        for ticket in &tickets {
            stager.cancel(ticket);
        }
        Leftover { ends: end_of(&self.streams.compute), tickets }
    }
}

impl Members {
    /// Adds points of the query to all sums: of `(offset, start, length)`, those that lie in `buffers` from `offset` on.
    fn add(
        &mut self,
        inputs: &SumInputs,
        spmv: &SpmvKernels,
        buffers: &QueryBuffers,
        (offset, start, length): (usize, usize, usize),
    ) -> Result<(), CudaError> {
        let num_members = self.list.len();
        for turn in 0..num_members {
            let index = if self.goes_back { num_members - 1 - turn } else { turn };
            self.expand(index, spmv)?;
            let sum = self.list[index].sum.as_mut().ok_or_else(|| missing("a member's sum"))?;
            inputs.add(sum, buffers, offset, start, length)?;
        }
        self.goes_back = !self.goes_back;
        // The chunk may be filled again then.
        self.wake_behind();
        Ok(())
    }

    /// Has the actor woken when the device has passed what was given to the stream so far.
    fn wake_behind(&self) {
        let waker = Arc::clone(&self.waker);
        // Without it the next tick finds out.
        let _ = self.compute.notify(move || waker());
    }

    /// Makes the scalars those of this member. Additions that read another's are before it in the stream.
    fn expand(&mut self, index: usize, spmv: &SpmvKernels) -> Result<(), CudaError> {
        let Member { lane, packed, .. } = &self.list[index];
        if self.expanded == Some(*lane) {
            return Ok(());
        }
        let Packed { bits, dense, inputs } = packed.as_ref().ok_or_else(|| missing("a packed witness"))?;
        let values = self.values.as_ref().ok_or_else(|| missing("room for scalars"))?;
        values.copy_to_front(inputs)?;
        spmv.expand(&self.compute, &self.shape, &DeviceWitness { bits, values }, dense)?;
        self.expanded = Some(*lane);
        Ok(())
    }
}

impl Packed {
    fn new(work: &PassWork, reservation: &Reservation, compute: &Stream) -> Result<Self, CudaError> {
        Ok(Self {
            bits: new_target(reservation, compute, work.witness.bits.len())?,
            dense: new_target(reservation, compute, work.witness.dense.len())?,
            inputs: new_target(reservation, compute, work.shape.num_inputs())?,
        })
    }

    /// Starts copying the packed witness.
    fn upload(
        &self,
        work: &PassWork,
        streams: &PassStreams,
        ticket: &Ticket,
        stager: &mut Stager,
    ) -> Result<(), CudaError> {
        let parts: [(ValueKind, Rc<dyn CopyTarget>); 3] = [
            (ValueKind::Inputs, Rc::clone(&self.inputs) as Rc<dyn CopyTarget>),
            (ValueKind::Bits, Rc::clone(&self.bits) as Rc<dyn CopyTarget>),
            (ValueKind::Dense, Rc::clone(&self.dense) as Rc<dyn CopyTarget>),
        ];
        let after = Rc::new(streams.compute.record()?);
        for (kind, target) in parts {
            let (shape, witness) = (Arc::clone(&work.shape), Arc::clone(&work.witness));
            let transfer = Transfer {
                source: Arc::new(Values { shape, witness, kind }),
                source_offset: 0,
                bytes: target.size_bytes(),
                target,
                target_offset: 0,
                after: Rc::clone(&after),
            };
            stager.submit(transfer, &streams.copies, ticket, false)?;
        }
        Ok(())
    }
}

/// The end of what was given to a stream; none if it cannot be marked, since then the context is lost.
fn end_of(stream: &Stream) -> Vec<Rc<Event>> {
    stream.record().into_iter().map(Rc::new).collect()
}

fn missing(what: &str) -> CudaError {
    CudaError::Host(format!("{what} missing: a pass came out of order"))
}
