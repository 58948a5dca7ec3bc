//! A Scheduler with recording peers around it.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, Recipient};
use cuzk::actors::scheduler::{Scheduler, SchedulerConfig};
use cuzk::actors::Pace;
use cuzk::backend::{DeviceInfo, MemoryModel};
use cuzk::circuits::{CustomCircuit, SrsSource, Workload};
use cuzk::error::{DeviceError, EngineError, SrsError};
use cuzk::groth16::prover::prove;
use cuzk::groth16::{PreparedVerifyingKey, Proof, R1csShape, Srs};
use cuzk::ids::{CircuitId, DeviceId, JobId};
use cuzk::messages::device::{EvictSrs, PartitionFailed, PartitionProved, ProvePartition, StageTimings};
use cuzk::messages::events::EventSink;
use cuzk::messages::job::{
    BlindingSource, CancelJob, CancelOutcome, JobAccepted, JobResult, Placement, Priority, SubmitJob,
};
use cuzk::messages::lifecycle::{DeviceAddress, DeviceMemory, DeviceReady, Drained, StopActor};
use cuzk::messages::srs::{Eviction, PreloadCircuit, PreloadSrs, Residence, SrsPreloaded};
use cuzk::messages::status::{EngineDeviceStatus, EngineStatus, StatusBoard};
use cuzk::messages::synthesis::{
    CheckKey, CircuitFailed, CircuitMeasured, CircuitNeeds, CircuitPrepared, DecodeRequest, DecodedRequest,
    JobVerified, KeyChecked, KeyVerdict, MeasureCircuit, PartitionNeeds, PrepareCircuit, PreparedCircuit,
    ProofsVerified, SynthesizeWitness, SynthesizerAddress, SynthesizerReady, VerifyJob, VerifyProofs,
    WitnessSynthesized,
};
use cuzk::policy::batch::BatchPolicy;
use cuzk::policy::health::HealthPolicy;
use cuzk::policy::plan::{ShapeSummary, SrsSummary};
use cuzk::policy::queue::QueuePolicy;
use cuzk::policy::role::Role;
use tokio::sync::watch;

use crate::common::probe::{probe, probe_all, ProbeHandle};
use crate::common::stopped;
use crate::squares::{srs_of, Squares, NUM_SQUARINGS};

/// What the Scheduler asks of the Synthesizer and of the devices, in its order.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a test holds a few dozen of them")]
pub enum Asked {
    Measure(MeasureCircuit),
    Prepare(PrepareCircuit),
    Witness(SynthesizeWitness),
    Verify(VerifyProofs),
    CheckKey(CheckKey),
    VerifyJob(VerifyJob),
    Prove(ProvePartition),
    Preload(PreloadSrs),
}

macro_rules! asked_from {
    ($($variant:ident($message:ty)),* $(,)?) => {
        $(impl From<$message> for Asked {
            fn from(message: $message) -> Self {
                Asked::$variant(message)
            }
        })*
    };
}

asked_from! {
    Measure(MeasureCircuit),
    Prepare(PrepareCircuit),
    Witness(SynthesizeWitness),
    Verify(VerifyProofs),
    CheckKey(CheckKey),
    VerifyJob(VerifyJob),
    Prove(ProvePartition),
    Preload(PreloadSrs),
}

/// What is not a fact: it has an answer.
struct Answers {
    evictions: tokio::sync::mpsc::UnboundedSender<EvictSrs>,
}

impl Actor for Answers {
    type Context = Context<Self>;
}

impl Handler<DecodeRequest> for Answers {
    type Result = Result<DecodedRequest, EngineError>;

    fn handle(&mut self, _: DecodeRequest, _: &mut Context<Self>) -> Self::Result {
        unreachable!("the Scheduler decodes nothing")
    }
}

impl Handler<EvictSrs> for Answers {
    type Result = Result<Eviction, DeviceError>;

    fn handle(&mut self, evict: EvictSrs, _: &mut Context<Self>) -> Self::Result {
        // The test may be over.
        let _ = self.evictions.send(evict);
        Ok(Eviction::Freed { num_bytes: 7 })
    }
}

/// What a test may want to be different.
pub struct Settings {
    pub num_devices: u32,
    pub max_attempts: u32,
    pub max_queued_jobs: usize,
    pub idle_limit: Option<Duration>,
    pub host_budget_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            num_devices: 2,
            max_attempts: 3,
            max_queued_jobs: 16,
            idle_limit: None,
            host_budget_bytes: 1 << 30,
        }
    }
}

/// The Scheduler under test, and everything it says.
pub struct Rig {
    pub scheduler: Addr<Scheduler>,
    pub asked: ProbeHandle<Asked>,
    pub evictions: tokio::sync::mpsc::UnboundedReceiver<EvictSrs>,
    pub drained: ProbeHandle<Drained>,
    status: watch::Receiver<Arc<EngineStatus>>,
    prove: Recipient<ProvePartition>,
    preload: Recipient<PreloadSrs>,
    answers: Addr<Answers>,
    synthesizer: SynthesizerAddress,
}

pub fn device(index: u32) -> DeviceId {
    DeviceId::new(format!("fake-{index}"))
}

/// A circuit with its key, named by the test.
pub fn circuit(name: &str, xs: &[u64]) -> Arc<dyn Workload> {
    let srs = Arc::new(srs_of(NUM_SQUARINGS));
    circuit_with(name, &srs, xs)
}

pub fn circuit_with(name: &str, srs: &Arc<Srs>, xs: &[u64]) -> Arc<dyn Workload> {
    let instances = xs.iter().map(|&x| (Squares::of(x), Squares::of(x).public_inputs())).collect();
    let blank = Squares::blank(NUM_SQUARINGS);
    CustomCircuit::new(CircuitId::new(name), SrsSource::Memory(Arc::clone(srs)), blank, instances)
        .into_workload()
}

impl Rig {
    /// With a Synthesizer, and without devices: they come by [`Rig::device_ready`].
    pub fn start(settings: Settings) -> Self {
        let (peers, asked) = probe_all::<Asked>();
        let (drained, drained_handle) = probe::<Drained>();
        let (status_sender, status) = watch::channel(Arc::new(EngineStatus::default()));
        let config = SchedulerConfig {
            devices: (0..settings.num_devices).map(|index| (device(index), Role::General)).collect(),
            max_queued_jobs: settings.max_queued_jobs,
            max_attempts: settings.max_attempts,
            retained_results: 4,
            host_memory_budget_bytes: settings.host_budget_bytes,
            max_synthesizing: 2,
            queue: QueuePolicy {
                aging_step: Duration::from_secs(300),
                affinity_limit: Duration::from_secs(30),
            },
            batches: BatchPolicy { max_partitions: 4, max_time: Duration::from_secs(30) },
            warmup: Vec::new(),
            idle_limit: settings.idle_limit,
            journal_limit: Duration::from_secs(30),
            health: HealthPolicy {
                window: Duration::from_secs(60),
                quarantine_points: 4,
                quarantine: Duration::from_secs(60),
            },
            pace: Pace::default(),
            events: EventSink::off(),
        };
        let scheduler = Scheduler::new(config, drained, status_sender, StatusBoard::default()).start();
        let (evictions_sender, evictions) = tokio::sync::mpsc::unbounded_channel();
        let answers = Answers { evictions: evictions_sender }.start();
        let synthesizer = SynthesizerAddress {
            decode: answers.clone().recipient(),
            measure: peers.clone().recipient(),
            prepare: peers.clone().recipient(),
            witness: peers.clone().recipient(),
            verify: peers.clone().recipient(),
            check_key: peers.clone().recipient(),
            verify_job: peers.clone().recipient(),
        };
        let (prove, preload) = (peers.clone().recipient(), peers.recipient());
        let rig = Self {
            scheduler,
            asked,
            evictions,
            drained: drained_handle,
            status,
            prove,
            preload,
            answers,
            synthesizer,
        };
        rig.synthesizer_ready();
        rig
    }

    pub fn synthesizer_ready(&self) {
        self.scheduler.do_send(SynthesizerReady { address: self.synthesizer.clone() });
    }

    pub fn ready_fact(&self, index: u32, life: u64) -> DeviceReady {
        DeviceReady {
            info: DeviceInfo {
                id: device(index),
                ordinal: index,
                name: "fake".to_owned(),
                backend: "fake",
                memory_total_bytes: 1 << 30,
            },
            life,
            num_lanes: 2,
            num_critical_lanes: 1,
            memory: DeviceMemory {
                normal_limit_bytes: 1 << 29,
                critical_limit_bytes: 1 << 30,
                model: MemoryModel::Dedicated,
            },
            checks_rows: false,
            address: DeviceAddress {
                prove: self.prove.clone(),
                evict: self.answers.clone().recipient(),
                preload: self.preload.clone(),
            },
        }
    }

    /// A device with two lanes and one critical lane.
    pub fn device_ready(&self, index: u32, life: u64) {
        self.scheduler.do_send(self.ready_fact(index, life));
    }

    pub async fn submit_as(
        &self,
        workload: &Arc<dyn Workload>,
        priority: Priority,
    ) -> Result<JobAccepted, EngineError> {
        let submit = SubmitJob {
            request_id: String::new(),
            workload: Arc::clone(workload),
            priority: Some(priority),
            deadline: None,
            blinding: BlindingSource::OsRandom,
            placement: Placement::Any,
            encoded: None,
            span: tracing::Span::none(),
        };
        self.scheduler.send(submit).await.expect("the Scheduler lives")
    }

    pub async fn submit(&self, workload: &Arc<dyn Workload>) -> JobAccepted {
        self.submit_as(workload, Priority::Normal).await.expect("it is admitted")
    }

    pub async fn cancel(&self, job: JobId) -> CancelOutcome {
        self.scheduler
            .send(CancelJob { job })
            .await
            .expect("the Scheduler lives")
            .expect("there is no journal")
    }

    /// Behind everything that was said to the Scheduler before.
    pub async fn status(&self) -> Arc<EngineStatus> {
        // A cancel of an unknown job changes nothing, and publishes.
        self.cancel(JobId(u64::MAX)).await;
        self.status.borrow().clone()
    }

    pub async fn device_status(&self, index: u32) -> EngineDeviceStatus {
        self.status().await.devices[index as usize].clone()
    }

    /// Nothing more is asked, however long one waits.
    pub async fn nothing_asked(&mut self) {
        self.asked.expect_silence(Duration::from_millis(200)).await;
    }

    pub async fn measure(&mut self) -> MeasureCircuit {
        match self.asked.next().await {
            Asked::Measure(command) => command,
            other => panic!("expected a circuit to be measured, got {other:?}"),
        }
    }

    pub fn measured(&self, command: &MeasureCircuit, num_bytes: u64) {
        let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).expect("the circuit records");
        let SrsSource::Memory(srs) = &command.source else { panic!("keys are in memory") };
        let needs = CircuitNeeds { num_bytes, shape: ShapeSummary::of(&shape), srs: SrsSummary::of(srs) };
        let (circuit, source) = (command.circuit.clone(), command.source.clone());
        self.scheduler.do_send(CircuitMeasured { circuit, source, needs });
    }

    pub async fn prepare(&mut self) -> PrepareCircuit {
        match self.asked.next().await {
            Asked::Prepare(command) => command,
            other => panic!("expected a circuit to be prepared, got {other:?}"),
        }
    }

    /// As a worker does it: the command is gone afterwards.
    pub fn prepared(&self, command: PrepareCircuit, num_bytes: u64) {
        let source = command.source.clone();
        let SrsSource::Memory(srs) = &source else { panic!("keys are in memory") };
        let shape = command.workload.record_shape().expect("the circuit records");
        let circuit = PreparedCircuit {
            id: command.circuit.clone(),
            needs: PartitionNeeds::of(&shape),
            shape: Arc::new(shape),
            vk: PreparedVerifyingKey::new(&srs.vk),
            srs: Arc::clone(srs),
            source,
            num_bytes,
        };
        let (circuit, lease) = (Arc::new(circuit), command.lease);
        self.scheduler.do_send(CircuitPrepared { circuit, lease, elapsed: Duration::ZERO });
    }

    /// As a worker that finds that nobody wants the circuit any more.
    pub fn stopped(&self, command: &PrepareCircuit) {
        let (circuit, source) = (command.circuit.clone(), command.source.clone());
        let error = SrsError::Stopped { path: "<memory>".into() }.into();
        self.scheduler.do_send(CircuitFailed { circuit, source, error });
    }

    /// Measures and prepares the circuit that is asked for next.
    pub async fn load(&mut self, num_bytes: u64) {
        let command = self.measure().await;
        self.measured(&command, num_bytes);
        let command = self.prepare().await;
        self.prepared(command, num_bytes);
    }

    pub async fn witness(&mut self) -> SynthesizeWitness {
        match self.asked.next().await {
            Asked::Witness(command) => command,
            other => panic!("expected a witness to be asked for, got {other:?}"),
        }
    }

    /// As a worker does it.
    pub fn synthesized(&self, command: SynthesizeWitness) {
        let partition = command.at.partition.expect("a partition's");
        let shape = &command.circuit.shape;
        let witness = command.workload.synthesize(partition, shape).expect("there is a witness");
        self.scheduler.do_send(WitnessSynthesized {
            at: command.at,
            witness: Arc::new(witness),
            public_inputs: command.workload.public_inputs(partition).expect("there are inputs").into(),
            lease: command.lease,
            elapsed: Duration::ZERO,
        });
    }

    /// The answer comes when it is loaded.
    pub fn preload(
        &self,
        workload: &Arc<dyn Workload>,
        on_devices: bool,
    ) -> actix::dev::Request<Scheduler, PreloadCircuit> {
        self.scheduler.send(PreloadCircuit {
            workload: Arc::clone(workload),
            pinned: true,
            on_devices,
            priority: Priority::Normal,
            span: tracing::Span::none(),
        })
    }

    /// As a device of the first life that answers; its lane is free afterwards.
    pub fn preloaded(&self, command: PreloadSrs, residence: Residence) {
        let (device, circuit) = (command.credit.device().clone(), command.work.circuit.clone());
        let answer = command.answer.clone();
        drop(command);
        answer.do_send(SrsPreloaded { device, life: 1, circuit, residence });
    }

    pub async fn check_key(&mut self) -> CheckKey {
        match self.asked.next().await {
            Asked::CheckKey(command) => command,
            other => panic!("expected a key to be checked, got {other:?}"),
        }
    }

    pub fn key_checked(&self, command: CheckKey, verdict: KeyVerdict) {
        let (at, circuit) = (command.at.clone(), Arc::clone(&command.circuit));
        self.scheduler.do_send(KeyChecked { at, circuit, verdict, elapsed: Duration::ZERO });
    }

    /// Makes the witness that is asked for next, and gives the partition that is sent to a device then.
    pub async fn placed(&mut self) -> ProvePartition {
        let command = self.witness().await;
        self.synthesized(command);
        self.next_placed().await
    }

    pub async fn next_placed(&mut self) -> ProvePartition {
        match self.asked.next().await {
            Asked::Prove(command) => command,
            other => panic!("expected a partition to be placed, got {other:?}"),
        }
    }

    /// As its device: the lane is free afterwards.
    pub fn proved(&self, command: ProvePartition) {
        let proof = host_proof(&command);
        self.proved_by(&command, command.credit.device().clone(), proof);
    }

    pub fn proved_by(&self, command: &ProvePartition, device: DeviceId, proof: Proof) {
        self.scheduler.do_send(PartitionProved {
            waited_for_others: Duration::ZERO,
            at: command.work.at.clone(),
            device,
            proof,
            timings: StageTimings::default(),
            memory_peak_bytes: 70,
            memory_planned_bytes: 80,
        });
    }

    pub fn failed(&self, command: ProvePartition, error: DeviceError) {
        let (at, device) = (command.work.at.clone(), command.credit.device().clone());
        self.scheduler.do_send(PartitionFailed { at, device, error });
    }

    pub async fn verify(&mut self) -> VerifyProofs {
        match self.asked.next().await {
            Asked::Verify(command) => command,
            other => panic!("expected proofs to be verified, got {other:?}"),
        }
    }

    pub fn verdict(&self, command: VerifyProofs, holds: bool) {
        let verdicts = command.proofs.into_iter().map(|unverified| (unverified.at, holds)).collect();
        self.scheduler.do_send(ProofsVerified { verdicts, elapsed: Duration::ZERO });
    }

    /// Answers the check of the whole as a library does that accepts it, which ends the job.
    pub async fn agree(&mut self) {
        self.judge(Ok(())).await;
    }

    /// Answers the check of the whole, which ends the job.
    pub async fn judge(&mut self, result: Result<(), String>) {
        match self.asked.next().await {
            Asked::VerifyJob(VerifyJob { job, proof, .. }) => {
                let elapsed = Duration::ZERO;
                self.scheduler.do_send(JobVerified { job, proof, result, elapsed });
            }
            other => panic!("expected the whole to be checked, got {other:?}"),
        }
    }

    /// Stops the Scheduler and waits until it has.
    pub async fn end(self) {
        self.scheduler.do_send(StopActor);
        stopped(&self.scheduler.clone().recipient::<StopActor>()).await;
    }
}

/// The result of a job that has ended or will.
pub async fn result(accepted: &mut JobAccepted) -> JobResult {
    let ended = accepted.result.wait_for(Option::is_some).await.expect("the Scheduler lives");
    ended.clone().expect("waited until there is one")
}

/// What a device that proves rightly answers.
pub fn host_proof(command: &ProvePartition) -> Proof {
    let work = &command.work;
    prove(&work.srs, &work.shape, &work.witness, &work.blinding).expect("the key fits")
}

/// Bytes of one witness of the circuit, none of whose variables is a bit.
pub fn partition_bytes() -> u64 {
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).expect("the circuit records");
    32 * (shape.num_inputs() + shape.num_aux()) as u64 + 8 * shape.num_aux().div_ceil(64) as u64
}
