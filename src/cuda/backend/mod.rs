//! The `cuda` backend: a whole proof on one GPU.
//!
//! Each lane has a stream for kernels and one for copies. A stage is either enqueued at once (all that it needs is on
//! the device) or *driven*: moved on by every poll, because host memory has to be copied piece by piece or the host
//! has to compute something. Nothing waits: events are queried, and host functions behind them wake the actor.
//!
//! ```text
//! stage      lane.rs                                              memory of the plan, by stage
//! upload     driven: resident queries and shape, witness          witness (+ packed) + 2 n
//! evaluate   enqueued (spmv.rs) if the shape is resident by plan,
//!            else driven: row values by the host                  witness (+ packed) + 2 n
//! quotient   enqueued (quotient.rs)                               witness + 3 n + tables
//! sum_x      driven in chunks (msm.rs): as they are copied, and as
//!            the stream has room for launches (ahead.rs)          witness (+ quotient) + buckets, entries, chunks
//! assemble   driven: window sums to a proof, on a host thread     -
//! ```
//!
//! Partitions that share a pass over streamed queries have the stages sum_l to sum_b_g2 together, in a stream of the pass's
//! own (`pass.rs`); before and after it each is in its lane.

mod ahead;
mod factory;
mod lane;
mod packed;
mod partition;
mod pass;
mod resident;
mod sources;
mod sum;

use std::rc::Rc;
use std::sync::Arc;

use crossbeam_channel::{unbounded, Receiver, Sender};

pub use factory::{select_devices, CudaFactory};

use self::lane::{Lane, Leftover};
use self::partition::Report;
use self::pass::{Pass, PassStreams};
use self::resident::Residents;
use super::msm::MsmKernels;
use super::ntt::NttKernels;
use super::spmv::SpmvKernels;
use super::staging::Stager;
use super::{Context, CudaError, Priority, Reservation, Stream};
use crate::backend::{
    BackendEvent, BackendWaker, DeviceBackend, DeviceInfo, FinishedProof, LaneIndex, LaneLayout, MemoryModel,
    PartitionWork, Stage,
};
use crate::error::{DeviceError, SynthesisError};
use crate::ids::{CircuitId, WorkRef};
use crate::policy::ntt_plan::MAX_DOMAIN_LOG2;
use crate::policy::plan::{ProvePlan, QuerySet};
use crate::policy::shared_pass::PassPlan;

/// One open GPU: a context of its own and everything in it. Lives and dies on its actor's thread.
pub struct CudaBackend {
    info: DeviceInfo,
    layout: LaneLayout,
    /// Those for parked partitions are made when they are first used: most cards never do.
    lanes: Vec<Lane>,
    num_parking_lanes: u32,
    passes: Vec<Pass>,
    pass_streams: Option<PassStreams>,
    reports: Receiver<Report>,
    shared: Shared,
    context: Context,
}

/// What all lanes of a device use.
struct Shared {
    stager: Stager,
    residents: Residents,
    msm: MsmKernels,
    ntt: NttKernels,
    spmv: SpmvKernels,
    reports: Sender<Report>,
    waker: BackendWaker,
    context: Context,
}

impl CudaBackend {
    /// Makes the context, loads the kernels and allocates the staging buffers: about half a second. Blocks.
    fn open(
        info: DeviceInfo,
        device: &super::DeviceInfo,
        (num_normal_lanes, num_parking_lanes): (u32, u32),
        waker: BackendWaker,
    ) -> Result<Self, CudaError> {
        let context = Context::new(device)?;
        let (free_bytes, _) = context.memory_info()?;
        let info = DeviceInfo { memory_total_bytes: free_bytes.min(info.memory_total_bytes), ..info };
        let layout = LaneLayout { normal: num_normal_lanes.max(1), critical: 1, critical_preempts: true };
        let (reports_in, reports) = unbounded();
        let lanes = (0..layout.normal + layout.critical)
            .map(|index| {
                let priority = if index < layout.normal { Priority::Normal } else { Priority::High };
                Lane::new(&context, LaneIndex(index), priority)
            })
            .collect::<Result<_, _>>()?;
        let stager = Stager::new(&context, Arc::clone(&waker))
            .map_err(|error| CudaError::Host(format!("the staging thread cannot be started: {error}")))?;
        let shared = Shared {
            stager,
            residents: Residents::new(&context)?,
            msm: MsmKernels::load(&context)?,
            ntt: NttKernels::load(&context)?,
            spmv: SpmvKernels::load(&context)?,
            reports: reports_in,
            waker,
            context: context.clone(),
        };
        Ok(Self {
            info,
            layout,
            lanes,
            num_parking_lanes,
            passes: Vec::new(),
            pass_streams: None,
            reports,
            shared,
            context,
        })
    }

    /// Loses the context to an illegal address. For tests of recovery.
    ///
    /// # Errors
    /// If it cannot be provoked.
    #[doc(hidden)]
    pub fn provoke_fault(&self) -> Result<(), CudaError> {
        let reservation = Reservation::new(&self.context, 0);
        super::selftest::SelfTest::new(&self.context, &reservation)?.provoke_fault()
    }

    fn lane(&mut self, lane: LaneIndex) -> &mut Lane {
        &mut self.lanes[lane.0 as usize]
    }

    fn make_lanes_up_to(&mut self, lane: LaneIndex) -> Result<(), CudaError> {
        while self.lanes.len() <= lane.0 as usize {
            let index = LaneIndex(self.lanes.len() as u32);
            self.lanes.push(Lane::new(&self.context, index, Priority::Normal)?);
        }
        Ok(())
    }

    fn open_pass(&mut self, lanes: &[LaneIndex], plan: &PassPlan) -> Result<Pass, (CudaError, Leftover)> {
        let works = lanes.iter().filter_map(|lane| Some((*lane, self.lanes[lane.0 as usize].join_pass()?)));
        let works = works.collect();
        let streams = match self.pass_streams.take() {
            Some(streams) => streams,
            None => PassStreams::new(&self.context, &self.shared.waker)
                .map_err(|error| (error, Leftover::default()))?,
        };
        let pass = Pass::begin(works, plan, &streams, &mut self.shared);
        self.pass_streams = Some(streams);
        pass
    }

    /// Moves passes on; what fails for one is a failure of each of its members.
    fn drive_passes(&mut self) {
        let Self { lanes, passes, shared, .. } = self;
        for pass in passes.iter_mut() {
            let Err((stage, error)) = pass.drive(lanes, shared) else { continue };
            let (members, left) = pass.dissolve(&mut shared.stager);
            for lane in members {
                lanes[lane.0 as usize].pass_failed(stage, &error, left.clone(), shared);
            }
        }
        passes.retain(|pass| !pass.is_gone());
    }

    /// A copy failed, and with it the context: every lane that runs is told, and there is nothing to wait for. Whatever the
    /// driver called it, even memory that it lacks itself: what waits for the copy would wait for ever.
    fn fail_all(&mut self, error: &CudaError, events: &mut Vec<BackendEvent>) {
        let error = CudaError::Host(format!("a copy to the device failed: {error}"));
        self.passes.clear();
        for lane in &mut self.lanes {
            lane.fail(&error, &mut self.shared, events);
        }
    }
}

impl DeviceBackend for CudaBackend {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn lanes(&self) -> LaneLayout {
        self.layout
    }

    fn parking_lanes(&self) -> u32 {
        self.num_parking_lanes
    }

    /// One, so that the device never waits for the actor between two stages.
    fn stages_ahead(&self) -> u32 {
        1
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::Dedicated
    }

    /// Whatever the plan: the device looks at a sample where it evaluates, and a thread of the host where the host does for
    /// want of memory.
    fn checks_rows(&self) -> bool {
        true
    }

    fn begin(&mut self, lane: LaneIndex, work: PartitionWork, plan: &ProvePlan) -> Result<(), DeviceError> {
        let domain_log2 = work.shape.domain_log2();
        if domain_log2 > MAX_DOMAIN_LOG2 {
            let what = format!("a domain of 2^{domain_log2}; this device computes up to 2^{MAX_DOMAIN_LOG2}");
            return Err(DeviceError::Unsupported { at: work.at, what });
        }
        if let Err(error) = self.make_lanes_up_to(lane) {
            return Err(device_error(&work.at, Stage::Upload, &error, &self.context));
        }
        let Self { lanes, shared, .. } = self;
        lanes[lane.0 as usize].begin(work, plan, shared)
    }

    fn enqueue(&mut self, lane: LaneIndex, stage: Stage) -> Result<(), DeviceError> {
        let Self { lanes, shared, .. } = self;
        lanes[lane.0 as usize].enqueue(stage, shared)?;
        // Its pass may have waited for this, or has to let it go.
        self.drive_passes();
        Ok(())
    }

    fn park(&mut self, lane: LaneIndex) {
        self.lane(lane).park();
    }

    fn begin_pass(&mut self, lanes: &[LaneIndex], plan: &PassPlan) {
        match self.open_pass(lanes, plan) {
            Ok(pass) => self.passes.push(pass),
            Err((error, left)) => {
                for lane in lanes {
                    let lane = &mut self.lanes[lane.0 as usize];
                    lane.pass_failed(Stage::SumL, &error, left.clone(), &mut self.shared);
                }
            }
        }
    }

    fn poll(&mut self) -> Vec<BackendEvent> {
        let mut events = Vec::new();
        for report in self.reports.try_iter() {
            self.lanes[report.lane.0 as usize].take_report(report);
        }
        if let Err(error) = self.shared.stager.pump() {
            self.fail_all(&error, &mut events);
            return events;
        }
        for lane in &mut self.lanes {
            lane.poll(&mut self.shared, &mut events);
        }
        self.drive_passes();
        // Lanes and passes that moved on may have new pieces to copy.
        if let Err(error) = self.shared.stager.pump() {
            self.fail_all(&error, &mut events);
        }
        events
    }

    fn take_proof(&mut self, lane: LaneIndex) -> Result<FinishedProof, DeviceError> {
        self.lane(lane).take_proof()
    }

    fn abort(&mut self, lane: LaneIndex) {
        let Self { lanes, passes, shared, .. } = self;
        let pass = passes.iter_mut().find(|pass| pass.has(lane));
        let left = pass.map_or_else(Leftover::default, |pass| pass.leave(lane, &mut shared.stager));
        lanes[lane.0 as usize].abort(left, shared);
        // The others may have waited for this one alone.
        self.drive_passes();
    }

    fn resident(&self, circuit: &CircuitId) -> QuerySet {
        self.shared.residents.loaded(circuit)
    }

    fn evict_srs(&mut self, circuit: &CircuitId) -> bool {
        let Shared { residents, stager, .. } = &mut self.shared;
        residents.evict(circuit, stager)
    }

    fn memory_in_use_bytes(&self) -> u64 {
        let in_lanes: u64 = self.lanes.iter().map(Lane::used_bytes).sum();
        let in_passes: u64 = self.passes.iter().map(Pass::used_bytes).sum();
        self.shared.residents.used_bytes() + in_lanes + in_passes
    }

    fn trim(&mut self) {
        if let Err(error) = self.context.trim(0) {
            tracing::warn!(device = %self.info.id, %error, "idle device memory could not be given back");
        }
    }
}

/// What a failed call means for the partition: memory refused, or the context lost, or a fault to rebuild after.
fn device_error(at: &WorkRef, stage: Stage, error: &CudaError, context: &Context) -> DeviceError {
    let (at, stage) = (at.clone(), stage.as_str());
    match error {
        CudaError::OverReservation { asked_bytes, left_bytes, .. } => {
            tracing::error!(%at, stage, %error, "a stage asked for more memory than its plan: planned too low");
            DeviceError::OutOfVram { at, asked_bytes: *asked_bytes, free_bytes: *left_bytes }
        }
        CudaError::Allocation { asked_bytes, .. } => {
            let free_bytes = context.memory_info().map_or(0, |(free_bytes, _)| free_bytes);
            DeviceError::OutOfVram { at, asked_bytes: *asked_bytes, free_bytes }
        }
        // A launch, or a small allocation of the driver's own.
        error if error.is_out_of_memory() => {
            let free_bytes = context.memory_info().map_or(0, |(free_bytes, _)| free_bytes);
            DeviceError::OutOfVram { at, asked_bytes: 0, free_bytes }
        }
        &CudaError::Unsatisfied { index, num_constraints } => {
            DeviceError::Witness { at, source: SynthesisError::Unsatisfied { index, num_constraints } }
        }
        _ => DeviceError::Fault { at, stage, what: error.to_string() },
    }
}

/// A stream's worth of device memory shared between the stager and its user.
type SharedBuffer<T> = Rc<super::DeviceBuffer<T>>;

/// New device memory in `compute`'s order. Copies into it must come after an event recorded there from now on.
fn new_target<T: super::DeviceData>(
    reservation: &Reservation,
    compute: &Stream,
    length: usize,
) -> Result<SharedBuffer<T>, CudaError> {
    Ok(Rc::new(super::DeviceBuffer::new(reservation, compute, length)?))
}
