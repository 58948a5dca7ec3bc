//! Jobs that go no further than the test lets them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cuzk::circuits::Workload;
use cuzk::error::SynthesisError;
use cuzk::groth16::{PackedWitness, R1csShape};
use cuzk::ids::PartitionIndex;
use cuzk::messages::job::{Payload, ProofRequest};

use crate::wrapped::{wrapped, Wrapper};

/// Closed until it is opened or dropped. Declared after the engine, so that a test that fails opens it before the
/// engine joins the threads that wait at it.
#[derive(Debug, Default)]
pub struct Gate(Arc<Bar>);

#[derive(Debug, Default)]
struct Bar {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.0.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }

    /// The same work, whose witnesses are made once the gate is open.
    pub fn before(&self, request: ProofRequest) -> ProofRequest {
        let Payload::Workload(workload) = request.payload else { panic!("tests submit workloads") };
        let payload = Payload::Workload(wrapped(Gated { bar: Arc::clone(&self.0), workload }));
        ProofRequest { payload, ..request }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

#[derive(Debug)]
struct Gated {
    bar: Arc<Bar>,
    workload: Arc<dyn Workload>,
}

impl Wrapper for Gated {
    fn inner(&self) -> &dyn Workload {
        self.workload.as_ref()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        let closed = self.bar.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.bar.opened.wait_while(closed, |is_open| !*is_open));
        self.workload.synthesize(partition, shape)
    }
}
