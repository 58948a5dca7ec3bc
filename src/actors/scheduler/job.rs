//! A job in the table, and the states of its partitions.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use blstrs::Scalar;
use ff::PrimeField;
use rand::rngs::OsRng;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, watch};

use super::durable::JobDurability;
use super::memory::{Holder, HostMemory};
use crate::backend::Stage;
use crate::circuits::Workload;
use crate::groth16::{Blinding, PackedWitness, Proof};
use crate::ids::{Attempt, CircuitId, DeviceId, JobId, PartitionIndex};
use crate::messages::device::CancelFlag;
use crate::messages::job::{job_name, BlindingSource, JobEvent, JobResult, JobTimings, Placement, Priority};
use crate::messages::synthesis::{MemoryLease, RowsCheck};
use crate::policy::admission::WorkIdentity;
use crate::policy::host_memory::HostPart;
use crate::policy::queue::Waiting;

/// Refusals (no lane, draining) that one partition takes before they count as a failure: a device that refuses is
/// left alone for a moment each time, so this is some seconds.
pub(super) const MAX_REFUSALS: u32 = 100;

/// A witness that waits for its proof to be verified.
#[derive(Clone)]
pub(super) struct Witness {
    pub values: Arc<PackedWitness>,
    pub public_inputs: Arc<[Scalar]>,
    pub rows: RowsCheck,
}

impl Witness {
    /// The values, if their constraints were not all checked.
    pub fn unchecked(&self) -> Option<Arc<PackedWitness>> {
        (self.rows == RowsCheck::ByDevice).then(|| Arc::clone(&self.values))
    }
}

/// Where a partition stands. It moves forward only, but for a failed attempt, which goes back to `Ready`.
pub(super) enum PartitionState {
    /// No witness yet.
    Waiting,
    Synthesizing {
        lease: MemoryLease,
        rows: RowsCheck,
    },
    /// Waits for a lane.
    Ready {
        witness: Witness,
    },
    Proving {
        attempt: Attempt,
        device: DeviceId,
        witness: Witness,
        since: Duration,
    },
    /// Waits for its verdict.
    Proved {
        attempt: Attempt,
        device: DeviceId,
        witness: Witness,
        proof: Proof,
        asked: bool,
    },
    /// Its proof does not verify; whether the device or the key is at fault is to be found out (see `blame.rs`).
    Suspect {
        attempt: Attempt,
        device: DeviceId,
        witness: Witness,
    },
    Done {
        device: DeviceId,
        proof: Proof,
    },
}

impl PartitionState {
    /// Who holds the memory of the witness, if there is one or one is being made.
    fn holders(&self) -> Vec<Holder> {
        match self {
            Self::Waiting | Self::Done { .. } => Vec::new(),
            Self::Synthesizing { lease, .. } => vec![lease.watch() as Holder],
            Self::Ready { witness }
            | Self::Proving { witness, .. }
            | Self::Proved { witness, .. }
            | Self::Suspect { witness, .. } => vec![Arc::downgrade(&witness.values) as Holder],
        }
    }
}

/// One proof of a job.
pub(super) struct Partition {
    pub state: PartitionState,
    /// The stage that it is in while a device proves it.
    pub stage: Stage,
    /// How often it was given to a device.
    pub attempts: u32,
    /// How often a device did not take it, although it had granted a lane.
    pub refusals: u32,
    /// Devices where it failed.
    pub avoid: BTreeSet<DeviceId>,
    /// Devices where it does not fit.
    pub never: BTreeSet<DeviceId>,
    /// Host memory reserved for the witness.
    pub witness_bytes: u64,
    /// The host has proved it itself, to tell a wrong key from a wrong device.
    pub host_checked: bool,
}

impl Partition {
    fn new() -> Self {
        Self {
            state: PartitionState::Waiting,
            stage: Stage::ALL[0],
            attempts: 0,
            refusals: 0,
            avoid: BTreeSet::new(),
            never: BTreeSet::new(),
            witness_bytes: 0,
            host_checked: false,
        }
    }

    /// Takes another state; the witness of the last one is let go, and its memory released once nobody else holds it
    /// either.
    pub fn let_go(&mut self, next: PartitionState, memory: &mut HostMemory) {
        let holders = std::mem::replace(&mut self.state, next).holders();
        memory.release_after(HostPart::Witnesses, std::mem::take(&mut self.witness_bytes), holders);
    }

    /// It has had all its attempts. Refusals by devices that were busy are none, up to a limit.
    pub fn is_exhausted(&self, max_attempts: u32) -> bool {
        self.attempts - self.refusals.min(MAX_REFUSALS) >= max_attempts
    }

    /// Is yet to be given to a device.
    pub fn needs_device(&self) -> bool {
        matches!(
            self.state,
            PartitionState::Waiting | PartitionState::Synthesizing { .. } | PartitionState::Ready { .. }
        )
    }

    /// The device that it is on, or whose proof of it is being verified.
    pub fn device(&self) -> Option<&DeviceId> {
        match &self.state {
            PartitionState::Proving { device, .. }
            | PartitionState::Proved { device, .. }
            | PartitionState::Suspect { device, .. } => Some(device),
            _ => None,
        }
    }

    /// On a device or being verified.
    pub fn is_in_progress(&self) -> bool {
        matches!(
            self.state,
            PartitionState::Proving { .. } | PartitionState::Proved { .. } | PartitionState::Suspect { .. }
        )
    }

    /// What is done with it now, if it is in progress: the device's stage, or `verify`.
    pub fn doing(&self) -> Option<&'static str> {
        match &self.state {
            PartitionState::Proving { .. } => Some(self.stage.as_str()),
            _ if self.is_in_progress() => Some("verify"),
            _ => None,
        }
    }

    /// On a device, or beyond.
    pub fn has_run(&self) -> bool {
        self.attempts > 0
    }

    /// Between being asked for and done.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.state, PartitionState::Waiting | PartitionState::Done { .. })
    }
}

/// What makes a job: the accepted request.
pub(super) struct JobSpec {
    pub id: JobId,
    pub request_id: String,
    /// See [`crate::messages::job::job_name`].
    pub name_marks: u8,
    pub identity: Option<WorkIdentity>,
    pub workload: Arc<dyn Workload>,
    pub priority: Priority,
    pub accepted_at: Duration,
    pub deadline: Option<Duration>,
    pub blinding: BlindingSource,
    pub placement: Placement,
    pub span: tracing::Span,
}

/// A job that has not ended.
pub(super) struct Job {
    pub spec: JobSpec,
    pub partitions: Vec<Partition>,
    pub cancel: CancelFlag,
    /// A batch of its proofs is being verified.
    pub verifying: bool,
    /// The library's check of the whole is running.
    pub library_check: bool,
    pub listeners: Vec<mpsc::UnboundedSender<JobEvent>>,
    pub result: watch::Sender<Option<JobResult>>,
    pub tickets: HashSet<u64>,
    /// Goes on although nobody waits.
    pub kept: bool,
    pub timings: JobTimings,
    pub retries: u32,
    pub began: bool,
    pub durable: JobDurability,
}

impl Job {
    pub fn new(spec: JobSpec) -> Self {
        let partitions = (0..spec.workload.num_partitions()).map(|_| Partition::new()).collect();
        Self {
            spec,
            partitions,
            cancel: CancelFlag::default(),
            verifying: false,
            library_check: false,
            listeners: Vec::new(),
            result: watch::channel(None).0,
            tickets: HashSet::new(),
            kept: false,
            timings: JobTimings::default(),
            retries: 0,
            began: false,
            durable: JobDurability::default(),
        }
    }

    pub fn name(&self) -> String {
        job_name(&self.spec.request_id, self.spec.name_marks, self.spec.id)
    }

    pub fn circuit(&self) -> &CircuitId {
        self.spec.workload.circuit()
    }

    pub fn partition(&mut self, index: PartitionIndex) -> &mut Partition {
        &mut self.partitions[index.0 as usize]
    }

    pub fn accepted_event(&self) -> JobEvent {
        JobEvent::Accepted {
            job: self.spec.id,
            kind: self.spec.workload.kind(),
            circuit: self.circuit().clone(),
            num_partitions: self.spec.workload.num_partitions(),
        }
    }

    /// Tells everybody who listens; who no longer does is forgotten.
    pub fn tell(&mut self, event: &JobEvent) {
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
    }

    pub fn num_done(&self) -> usize {
        self.partitions.iter().filter(|p| matches!(p.state, PartitionState::Done { .. })).count()
    }

    pub fn num_under_way(&self) -> u32 {
        self.partitions.iter().filter(|p| p.is_under_way()).count() as u32
    }

    pub fn as_waiting(&self, partition: PartitionIndex, job_under_way: u32) -> Waiting {
        Waiting {
            job: self.spec.id,
            partition,
            circuit: self.circuit().clone(),
            priority: self.spec.priority,
            since: self.spec.accepted_at,
            deadline: self.spec.deadline,
            job_under_way,
        }
    }

    /// The blinding values of one attempt at a partition. The same at every attempt, unless they are random.
    pub fn blinding(&self, partition: PartitionIndex) -> Blinding {
        match &self.spec.blinding {
            BlindingSource::OsRandom => Blinding::random(&mut OsRng),
            BlindingSource::Seeded(seed) => {
                let mut rng = ChaCha20Rng::from_seed(*seed);
                rng.set_stream(u64::from(partition.0));
                Blinding::random(&mut rng)
            }
            BlindingSource::Fixed(pairs) => pairs[partition.0 as usize],
        }
    }

    pub fn add_stage_times(&mut self, stages: &[(Stage, Duration)]) {
        for (stage, elapsed) in stages {
            match self.timings.stages.iter_mut().find(|(known, _)| known == stage) {
                Some((_, total)) => *total += *elapsed,
                None => self.timings.stages.push((*stage, *elapsed)),
            }
        }
    }
}

/// Digest of fixed blinding values, as part of a job's identity; `None` for random ones.
pub(super) fn blinding_identity(source: &BlindingSource) -> Option<[u8; 32]> {
    let mut hasher = Sha256::new();
    match source {
        BlindingSource::OsRandom => return None,
        BlindingSource::Seeded(seed) => {
            hasher.update(b"seed");
            hasher.update(seed);
        }
        BlindingSource::Fixed(pairs) => {
            hasher.update(b"fixed");
            for pair in pairs {
                hasher.update(pair.r.to_repr());
                hasher.update(pair.s.to_repr());
            }
        }
    }
    Some(hasher.finalize().into())
}
