//! Loading circuits before a job needs them, and letting them go.

use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use sha2::{Digest, Sha256};

use super::block::block_on;
use super::Engine;
use crate::circuits::{CircuitSpec, SrsSource, WorkKind, Workload};
use crate::error::{EngineError, SynthesisError};
use crate::groth16::{PackedWitness, R1csShape};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};
use crate::messages::job::Priority;
use crate::messages::srs::{CircuitEvicted, CircuitLoaded, EvictCircuit, PreloadCircuit};

/// What is to be loaded, and how far.
#[derive(Clone, Debug)]
pub struct Preload {
    /// Any job of the circuit, or [`circuit`]: only its key and its shape are used.
    pub workload: Arc<dyn Workload>,
    /// It stays on the host until it is evicted, and is loaded again on a device that was rebuilt.
    pub pinned: bool,
    /// Also on every device that keeps any of it. Another circuit may push it out there later.
    pub on_devices: bool,
}

impl Preload {
    /// On the host alone, and as long as its memory is not wanted for another.
    pub fn new(workload: Arc<dyn Workload>) -> Self {
        Self { workload, pinned: false, on_devices: false }
    }
}

impl Engine {
    /// Has a circuit loaded, and says where it is then and what it takes. It waits its turn for memory like a job of the
    /// circuit's kind would; dropping the future gives nothing up.
    ///
    /// # Errors
    /// At once if it can never fit: [`crate::error::ScheduleError::HostMemory`] on the host,
    /// [`crate::error::DeviceError::Plan`] on any device, each with what it needs and what there is.
    /// [`EngineError::Srs`] if its key cannot be used, [`EngineError::NoAnswer`] if it takes longer than
    /// [`super::Deadlines::preload`]; it is loaded all the same.
    pub async fn preload(&self, what: Preload) -> Result<CircuitLoaded, EngineError> {
        let Preload { workload, pinned, on_devices } = what;
        let span = tracing::info_span!("preload", circuit = %workload.circuit());
        let priority = Priority::of(workload.kind());
        let command = PreloadCircuit { workload, pinned, on_devices, priority, span };
        let limit = self.inner.deadlines.preload;
        self.ask("preload a circuit", &self.inner.links.preload, command, limit).await?
    }

    /// As [`Engine::preload`], blocking.
    ///
    /// # Errors
    /// As [`Engine::preload`].
    pub fn preload_blocking(&self, what: Preload) -> Result<CircuitLoaded, EngineError> {
        block_on(self.preload(what))
    }

    /// Lets a circuit go, on the host and on every device, and says what that gave back. Pinned ones go too.
    ///
    /// # Errors
    /// [`crate::error::ScheduleError::CircuitInUse`] while a job of it has not ended.
    pub async fn evict(&self, circuit: &CircuitId) -> Result<CircuitEvicted, EngineError> {
        let command = EvictCircuit { circuit: circuit.clone() };
        // It waits for the devices, each of which answers at once.
        self.ask_scheduler("evict a circuit", &self.inner.links.evict, command).await?
    }

    /// As [`Engine::evict`], blocking.
    ///
    /// # Errors
    /// As [`Engine::evict`].
    pub fn evict_blocking(&self, circuit: &CircuitId) -> Result<CircuitEvicted, EngineError> {
        block_on(self.evict(circuit))
    }
}

/// A Filecoin circuit as a preload or a warmup list names it: key and shape without any inputs.
pub fn circuit(spec: CircuitSpec, params_dir: &Path) -> Arc<dyn Workload> {
    let file = params_dir.join(spec.params_file());
    Arc::new(Blank { id: spec.id(), srs: SrsSource::File(file.into()), spec })
}

#[derive(Debug)]
struct Blank {
    id: CircuitId,
    spec: CircuitSpec,
    srs: SrsSource,
}

impl Workload for Blank {
    fn kind(&self) -> WorkKind {
        self.spec.kind.work_kind()
    }

    fn circuit(&self) -> &CircuitId {
        &self.id
    }

    fn num_partitions(&self) -> u32 {
        0
    }

    fn digest(&self) -> RequestDigest {
        RequestDigest(Sha256::digest(format!("blank/{}", self.id)).into())
    }

    fn srs(&self) -> SrsSource {
        self.srs.clone()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.spec.record_shape()
    }

    fn synthesize(&self, _: PartitionIndex, _: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        Err(SynthesisError::Circuit("a circuit without inputs has no witness".to_owned()))
    }

    fn public_inputs(&self, _: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        Err(SynthesisError::Circuit("a circuit without inputs has no public inputs".to_owned()))
    }
}
