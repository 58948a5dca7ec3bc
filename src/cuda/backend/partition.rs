//! One partition on a device: its stages, in order, and what each needs and leaves.

mod passes;
mod rows;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};

pub use self::passes::PassWork;
use self::passes::Standing;
use super::lane::{Leftover, Streams};
use super::packed::PackedBuffers;
use super::sources::{ValueKind, Values, VariableIndices};
use super::sum::{DrivenSum, SumInputs, SumValues, WindowSum};
use super::{Shared, SharedBuffer};
use crate::backend::{BackendEvent, FinishedProof, LaneIndex, PartitionWork, Stage};
use crate::cuda::msm::WindowSums;
use crate::cuda::spmv::RowVerdict;
use crate::cuda::staging::Ticket;
use crate::cuda::witness::DenseCount;
use crate::cuda::{CudaError, DeviceBuffer, Event, Reservation};
use crate::error::{catch, SynthesisError};
use crate::groth16::prover::assemble;
use crate::groth16::srs::QuotientBasis;
use crate::groth16::{Blinding, PackedWitness, Proof, QuerySums, R1csShape, Srs};
use crate::ids::{CircuitId, WorkRef};
use crate::policy::plan::{ProvePlan, Query, SumPlan};

const SCALAR_BYTES: usize = size_of::<blst_fr>();

/// A partition between its first stage and its last.
pub struct Partition {
    work: Work,
    plan: ProvePlan,
    reservation: Reservation,
    /// Enqueued by the actor and not begun.
    wanted: VecDeque<Stage>,
    driven: Option<Driven>,
    /// Stages that are wholly in the stream.
    marks: VecDeque<Mark>,
    /// Of copies into buffers of this partition alone.
    tickets: Vec<Ticket>,
    /// A scalar for each variable. Where the device evaluates, only while they are read.
    witness: Option<SharedBuffer<blst_fr>>,
    /// Where the device evaluates, until the last scalars have been made of it.
    packed: Option<PackedBuffers>,
    /// Of the rows that the device has made.
    verdict: Option<RowVerdict>,
    /// Of rows, where the host makes them.
    host_verdict: Option<Result<(), SynthesisError>>,
    row_values: Option<[SharedBuffer<blst_fr>; 2]>,
    quotient: Option<DeviceBuffer<blst_fr>>,
    sums: Sums,
    /// How many values of the witness are not bits.
    dense_count: Option<Dense>,
    proof: Option<Box<Proof>>,
    standing: Standing,
    /// What a host thread said when it panicked.
    host_failed: Option<String>,
}

/// The partition, with what is copied from it shared.
struct Work {
    at: WorkRef,
    circuit: CircuitId,
    shape: Arc<R1csShape>,
    srs: Arc<Srs>,
    witness: Arc<PackedWitness>,
    blinding: Blinding,
    indices: Arc<VariableIndices>,
}

impl Work {
    fn values(&self, kind: ValueKind) -> Values {
        Values { shape: Arc::clone(&self.shape), witness: Arc::clone(&self.witness), kind }
    }
}

#[derive(Default)]
struct Sums {
    h: Option<WindowSums<blst_p1_affine>>,
    l: Option<WindowSums<blst_p1_affine>>,
    a: Option<WindowSums<blst_p1_affine>>,
    b_g1: Option<WindowSums<blst_p1_affine>>,
    b_g2: Option<WindowSums<blst_p2_affine>>,
}

/// A stage that is moved on by polls.
enum Driven {
    Upload {
        begun: Instant,
        tickets: Vec<Ticket>,
    },
    /// The row values are computed by the host as they are copied, while a thread looks at a sample of the constraints.
    Evaluate {
        begun: Instant,
        ticket: Ticket,
    },
    Sum {
        begun: Event,
        sum: Box<DrivenSum>,
    },
    Assemble {
        begun: Instant,
    },
}

enum Dense {
    Counting(DenseCount),
    Counted(u64),
}

/// The end of a stage in the stream.
struct Mark {
    stage: Stage,
    begun: Begun,
    end: Rc<Event>,
}

enum Begun {
    Host(Instant),
    Device(Event),
    /// Of all members of a pass.
    Pass(Rc<Event>),
}

impl Mark {
    /// `None`: the device has not passed it.
    fn elapsed(&self) -> Result<Option<Duration>, CudaError> {
        if !self.end.is_done()? {
            return Ok(None);
        }
        let since = |begun: &Event| -> Result<Duration, CudaError> {
            Ok(Duration::from_secs_f32(self.end.elapsed_ms(begun)?.max(0.0) / 1e3))
        };
        Ok(Some(match &self.begun {
            Begun::Host(begun) => begun.elapsed(),
            Begun::Device(begun) => since(begun)?,
            Begun::Pass(begun) => since(begun)?,
        }))
    }
}

/// A failure and the stage it belongs to.
type StageResult<T> = Result<T, (Stage, CudaError)>;

impl Partition {
    pub fn new(work: PartitionWork, plan: &ProvePlan, shared: &mut Shared) -> Self {
        let indices = shared.residents.indices(&work.circuit, &work.shape);
        let work = Work {
            at: work.at,
            circuit: work.circuit,
            shape: work.shape,
            srs: work.srs,
            witness: work.witness,
            blinding: work.blinding,
            indices,
        };
        Self {
            work,
            plan: plan.clone(),
            reservation: Reservation::new(&shared.context, plan.work_peak_bytes()),
            wanted: VecDeque::new(),
            driven: None,
            marks: VecDeque::new(),
            tickets: Vec::new(),
            witness: None,
            packed: None,
            verdict: None,
            host_verdict: None,
            row_values: None,
            quotient: None,
            sums: Sums::default(),
            dense_count: None,
            host_failed: None,
            standing: Standing::default(),
            proof: None,
        }
    }

    pub fn at(&self) -> &WorkRef {
        &self.work.at
    }

    pub fn used_bytes(&self) -> u64 {
        self.reservation.used_bytes()
    }

    /// The first stage that has not ended.
    pub fn current_stage(&self) -> Stage {
        let marked = self.marks.front().map(|mark| mark.stage);
        let in_pass = match self.standing {
            Standing::At(stage) => Some(stage),
            Standing::Alone | Standing::Member => None,
        };
        let driven = self.driven.as_ref().map(Driven::stage);
        marked.or(driven).or(in_pass).or(self.wanted.front().copied()).unwrap_or(Stage::Upload)
    }

    pub fn enqueue(
        &mut self,
        stage: Stage,
        streams: &mut Streams,
        host: HostSide,
        shared: &mut Shared,
    ) -> StageResult<()> {
        self.wanted.push_back(stage);
        self.advance(streams, host, shared)
    }

    pub fn take_report(&mut self, report: Report) {
        match report.made {
            Made::RowsVerdict(verdict) => self.host_verdict = Some(verdict),
            Made::Proof(proof) => self.proof = Some(proof),
            Made::Failed(what) => self.host_failed = Some(what),
        }
    }

    /// Moves on what can move and reports the stages that have ended; the proof, after the last.
    pub fn poll(
        &mut self,
        streams: &mut Streams,
        host: HostSide,
        shared: &mut Shared,
        events: &mut Vec<BackendEvent>,
    ) -> StageResult<Option<FinishedProof>> {
        let lane = host.lane;
        self.advance(streams, host, shared)?;
        while let Some(mark) = self.marks.front() {
            let stage = mark.stage;
            let Some(elapsed) = mark.elapsed().map_err(|error| (stage, error))? else { break };
            self.marks.pop_front();
            self.take_verdict(stage, streams).map_err(|error| (stage, error))?;
            events.push(BackendEvent::StageDone { lane, stage, elapsed });
        }
        // The last mark may be what the assembly waited for.
        self.advance(streams, host, shared)?;
        let (Some(Driven::Assemble { begun }), Some(_)) = (&self.driven, &self.proof) else {
            return Ok(None);
        };
        events.push(BackendEvent::StageDone { lane, stage: Stage::Assemble, elapsed: begun.elapsed() });
        let memory_peak_bytes = self.reservation.peak_bytes();
        Ok(self.proof.take().map(|proof| FinishedProof { proof: *proof, memory_peak_bytes }))
    }

    /// Drops what has not been launched. What it returns is done when no copy for this partition is under way, and the device
    /// has passed its stages, also those in a pass's stream: dropping it then waits for nothing.
    pub fn let_go(&mut self, shared: &mut Shared) -> Leftover {
        for ticket in &self.tickets {
            shared.stager.cancel(ticket);
        }
        let ends = self.marks.drain(..).map(|mark| mark.end).collect();
        Leftover { ends, tickets: std::mem::take(&mut self.tickets), ..Leftover::default() }
    }

    /// Gives back what its lane counts and checks into, where the device has passed that: freeing it would wait for all of the
    /// device's work. What fails here fails for whoever uses the context next.
    pub fn give_replies_back(&mut self, streams: &mut Streams) {
        match self.dense_count.take() {
            Some(Dense::Counting(count)) if count.is_done() == Ok(true) => {
                let counted = streams.dense.take(count);
                self.dense_count = counted.ok().map(|num_dense| Dense::Counted(num_dense.into()));
            }
            other => self.dense_count = other,
        }
        if let Some(verdict) = self.verdict.take_if(|verdict| verdict.is_done() == Ok(true)) {
            let _ = streams.rows.take(verdict);
        }
    }

    /// Begins stages and moves the driven one on, as far as nothing has to be waited for.
    fn advance(&mut self, streams: &mut Streams, host: HostSide, shared: &mut Shared) -> StageResult<()> {
        if let Some(what) = self.host_failed.take() {
            return Err((self.current_stage(), CudaError::Host(what)));
        }
        loop {
            if let Some(driven) = self.driven.take() {
                let stage = driven.stage();
                self.driven = self.drive(driven, streams, shared).map_err(|error| (stage, error))?;
                if self.driven.is_some() {
                    return Ok(());
                }
            }
            let Some(&stage) = self.wanted.front() else { return Ok(()) };
            if self.waits_for_pass() {
                return Ok(());
            }
            if stage == Stage::Assemble && !self.marks.is_empty() {
                return Ok(()); // the sums are not there yet
            }
            self.wanted.pop_front();
            self.start(stage, streams, host, shared).map_err(|error| (stage, error))?;
        }
    }

    fn start(
        &mut self,
        stage: Stage,
        streams: &mut Streams,
        host: HostSide,
        shared: &mut Shared,
    ) -> Result<(), CudaError> {
        match stage {
            Stage::Upload => self.start_upload(streams, shared),
            Stage::Evaluate => self.start_evaluate(streams, host, shared),
            Stage::Quotient => self.launch_quotient(streams, shared),
            Stage::SumH => self.start_sum(Query::H, streams, shared),
            Stage::SumL => self.start_sum(Query::L, streams, shared),
            Stage::SumA => self.start_sum(Query::A, streams, shared),
            Stage::SumBG1 => self.start_sum(Query::BG1, streams, shared),
            Stage::SumBG2 => self.start_sum(Query::BG2, streams, shared),
            Stage::Assemble => self.start_assemble(host, shared),
        }
    }

    /// `None` when the stage is wholly in the stream (or, for `Assemble`, never).
    fn drive(
        &mut self,
        driven: Driven,
        streams: &mut Streams,
        shared: &mut Shared,
    ) -> Result<Option<Driven>, CudaError> {
        match driven {
            Driven::Upload { begun, tickets } if tickets.iter().all(Ticket::is_done) => {
                self.expand_witness(streams, shared)?;
                let witness = self.witness.as_ref().ok_or_else(|| missing("witness"))?;
                self.dense_count = Some(Dense::Counting(streams.dense.count(witness.all())?));
                self.mark(Stage::Upload, Begun::Host(begun), streams, shared)?;
                Ok(None)
            }
            Driven::Evaluate { begun, ticket } if ticket.is_done() => {
                let Some(verdict) = self.take_host_verdict() else {
                    return Ok(Some(Driven::Evaluate { begun, ticket }));
                };
                verdict?;
                self.mark(Stage::Evaluate, Begun::Host(begun), streams, shared)?;
                Ok(None)
            }
            Driven::Sum { begun, mut sum } => {
                if !sum.drive(streams, shared)? {
                    return Ok(Some(Driven::Sum { begun, sum }));
                }
                let (query, windows) = sum.finish()?;
                self.keep_sum(query, windows);
                self.mark(query.stage(), Begun::Device(begun), streams, shared)?;
                Ok(None)
            }
            waiting => Ok(Some(waiting)),
        }
    }

    /// Ends a stage in the stream; the actor is woken when the device gets there.
    fn mark(
        &mut self,
        stage: Stage,
        begun: Begun,
        streams: &Streams,
        shared: &Shared,
    ) -> Result<(), CudaError> {
        let end = Rc::new(streams.compute.mark(&shared.waker)?);
        self.marks.push_back(Mark { stage, begun, end });
        Ok(())
    }

    fn start_upload(&mut self, streams: &Streams, shared: &mut Shared) -> Result<(), CudaError> {
        let begun = Instant::now();
        // The witness first: it is short, and another lane may be waiting for the same queries.
        let ticket = Ticket::default();
        self.tickets.push(ticket.clone());
        self.upload_witness(streams, &ticket, &mut shared.stager)?;
        let Work { circuit, srs, indices, .. } = &self.work;
        let Shared { residents, stager, .. } = shared;
        let mut tickets =
            residents.load(circuit, srs, indices, self.plan.resident, streams.is_urgent, stager)?;
        tickets.push(ticket);
        self.driven = Some(Driven::Upload { begun, tickets });
        Ok(())
    }

    fn launch_quotient(&mut self, streams: &Streams, shared: &Shared) -> Result<(), CudaError> {
        let begun = streams.compute.record()?;
        let rows = self.row_values.take().ok_or_else(|| missing("row values"))?;
        let [a, b] = rows.map(|buffer| Rc::try_unwrap(buffer).map_err(|_| missing("sole use of row values")));
        let domain_log2 = self.work.shape.domain_log2();
        let domain = shared.ntt.domain(&streams.compute, &self.reservation, domain_log2)?;
        let num_rows = self.work.shape.num_rows();
        let (ntt, reservation) = (&shared.ntt, &self.reservation);
        self.quotient = Some(match self.work.srs.basis {
            QuotientBasis::Coefficients => ntt.quotient(&domain, a?, b?, num_rows, reservation)?,
            QuotientBasis::Lagrange => ntt.lagrange_quotient(&domain, a?, b?, num_rows, reservation)?,
        });
        self.mark(Stage::Quotient, Begun::Device(begun), streams, shared)
    }

    /// The plan's sum, with windows for as many values as are not bits if that is known. Never more memory than planned.
    fn sum_plan(&mut self, query: Query, streams: &mut Streams) -> Result<SumPlan, CudaError> {
        let planned = *self.plan.sum(query);
        if query == Query::H {
            return Ok(planned);
        }
        let num_dense = match self.dense_count.take() {
            Some(Dense::Counting(count)) if count.is_done()? => Some(streams.dense.take(count)?.into()),
            Some(Dense::Counted(num_dense)) => Some(num_dense),
            other => {
                self.dense_count = other;
                None
            }
        };
        let Some(num_dense) = num_dense else { return Ok(planned) };
        self.dense_count = Some(Dense::Counted(num_dense));
        Ok(planned.for_dense_scalars(query, num_dense))
    }

    fn start_sum(
        &mut self,
        query: Query,
        streams: &mut Streams,
        shared: &mut Shared,
    ) -> Result<(), CudaError> {
        let begun = streams.compute.record()?;
        let plan = self.sum_plan(query, streams)?;
        let values = match query {
            Query::H => SumValues::Quotient(self.quotient.take().ok_or_else(|| missing("quotient"))?),
            _ => SumValues::Witness(self.scalars_for_sums(streams, shared)?),
        };
        let Work { circuit, srs, indices, shape, .. } = &self.work;
        let inputs = SumInputs {
            query,
            plan,
            srs: Arc::clone(srs),
            indices: Arc::clone(indices),
            values,
            num_inputs: shape.num_inputs(),
            is_urgent: streams.is_urgent,
        };
        if query == Query::BG2 {
            self.witness = None; // the last sum has it
        }
        let resident = if self.plan.sum(query).streamed {
            None
        } else {
            let buffers = shared.residents.get(circuit, query);
            Some(buffers.ok_or_else(|| missing("a query that is resident by plan"))?)
        };
        let track = |ticket: &Ticket| self.tickets.push(ticket.clone());
        let sum = DrivenSum::begin(inputs, resident, streams, &self.reservation, shared, track)?;
        self.driven = Some(Driven::Sum { begun, sum: Box::new(sum) });
        Ok(())
    }

    fn keep_sum(&mut self, query: Query, windows: WindowSum) {
        let sums = &mut self.sums;
        match (query, windows) {
            (Query::H, WindowSum::G1(windows)) => sums.h = Some(windows),
            (Query::L, WindowSum::G1(windows)) => sums.l = Some(windows),
            (Query::A, WindowSum::G1(windows)) => sums.a = Some(windows),
            (Query::BG1, WindowSum::G1(windows)) => sums.b_g1 = Some(windows),
            (Query::BG2, WindowSum::G2(windows)) => sums.b_g2 = Some(windows),
            _ => unreachable!("the group follows from the query"),
        }
    }

    /// About a millisecond here for the windows; the rest on a host thread.
    fn start_assemble(&mut self, host: HostSide, shared: &Shared) -> Result<(), CudaError> {
        let begun = Instant::now();
        let sums = self.sums.take_totals()?;
        let (srs, blinding) = (Arc::clone(&self.work.srs), self.work.blinding);
        host.spawn(shared, move || Made::Proof(Box::new(assemble(&srs.vk, &sums, &blinding))))?;
        self.driven = Some(Driven::Assemble { begun });
        Ok(())
    }
}

impl Driven {
    fn stage(&self) -> Stage {
        match self {
            Self::Upload { .. } => Stage::Upload,
            Self::Evaluate { .. } => Stage::Evaluate,
            Self::Sum { sum, .. } => sum.query().stage(),
            Self::Assemble { .. } => Stage::Assemble,
        }
    }
}

impl Sums {
    fn take_totals(&mut self) -> Result<QuerySums, CudaError> {
        let sum = || missing("a query's sum");
        Ok(QuerySums {
            h: self.h.take().ok_or_else(sum)?.total()?,
            l: self.l.take().ok_or_else(sum)?.total()?,
            a: self.a.take().ok_or_else(sum)?.total()?,
            b_g1: self.b_g1.take().ok_or_else(sum)?.total()?,
            b_g2: self.b_g2.take().ok_or_else(sum)?.total()?,
        })
    }
}

fn missing(what: &str) -> CudaError {
    CudaError::Host(format!("{what} missing: stages came out of order"))
}

/// What a host thread has made for a lane.
pub struct Report {
    pub lane: LaneIndex,
    /// Which of the lane's partitions it is for: one that was aborted hears no more.
    pub run: u64,
    made: Made,
}

enum Made {
    RowsVerdict(Result<(), SynthesisError>),
    Proof(Box<Proof>),
    Failed(String),
}

/// Whom a host thread reports to.
#[derive(Clone, Copy)]
pub struct HostSide {
    pub lane: LaneIndex,
    pub run: u64,
}

impl HostSide {
    /// Runs `make` on a thread of its own, since pools may be full of syntheses.
    fn spawn(self, shared: &Shared, make: impl FnOnce() -> Made + Send + 'static) -> Result<(), CudaError> {
        let Self { lane, run } = self;
        let (reports, waker) = (shared.reports.clone(), Arc::clone(&shared.waker));
        let thread = std::thread::Builder::new().name(format!("cuzk-gpu-lane-{}", lane.0));
        let spawned = thread.spawn(move || {
            // The backend may have gone already; then nobody wants to know.
            let made = catch(make).unwrap_or_else(|what| Made::Failed(format!("the host panicked: {what}")));
            if reports.send(Report { lane, run, made }).is_ok() {
                waker();
            }
        });
        spawned.map(drop).map_err(|error| CudaError::Host(format!("no thread can be started: {error}")))
    }
}
