//! The Synthesizer: commands in, facts out; every command is answered.

use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Addr};
use blstrs::Scalar;
use cuzk::actors::synthesizer::pool::WorkerPool;
use cuzk::actors::synthesizer::{Synthesizer, SynthesizerConfig};
use cuzk::circuits::{CustomCircuit, SrsSource, Undecoded, WorkKind, Workload};
use cuzk::error::{EngineError, SrsError, SynthesisError};
use cuzk::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs};
use cuzk::ids::{CircuitId, JobId, PartitionIndex, RequestDigest, WorkRef};
use cuzk::messages::device::CancelFlag;
use cuzk::messages::job::Priority;
use cuzk::messages::lifecycle::StopActor;
use cuzk::messages::synthesis::{
    CheckKey, CircuitError, CircuitFailed, CircuitMeasured, CircuitPrepared, CircuitProgress, DecodeRequest,
    JobVerified, KeyChecked, KeyVerdict, MeasureCircuit, MemoryLease, PrepareCircuit, PreparedCircuit,
    ProofsVerified, RowsCheck, SynthesisFailed, SynthesizeWitness, SynthesizerPeers, UnverifiedProof,
    VerifyProofs, WitnessSynthesized,
};
use cuzk::policy::plan::SrsSummary;
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};

use crate::common::probe::{probe_all, ProbeHandle};
use crate::common::wrapped::{wrapped, Wrapper};
use crate::common::{closed, on_arbiter, on_paused_arbiter, stopped};
use crate::rig::circuit_with;
use crate::squares::{srs, srs_of, Squares, NUM_SQUARINGS};

/// Everything a Synthesizer says, in its order.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a test holds a few of them")]
pub enum Said {
    Progress(#[allow(dead_code, reason = "it is only printed")] CircuitProgress),
    Measured(CircuitMeasured),
    Prepared(CircuitPrepared),
    CircuitFailed(CircuitFailed),
    Synthesized(WitnessSynthesized),
    SynthesisFailed(SynthesisFailed),
    Verified(ProofsVerified),
    KeyChecked(KeyChecked),
    JobVerified(JobVerified),
}

macro_rules! said_from {
    ($($variant:ident($message:ty)),* $(,)?) => {
        $(impl From<$message> for Said {
            fn from(message: $message) -> Self {
                Said::$variant(message)
            }
        })*
    };
}

said_from! {
    Progress(CircuitProgress),
    Measured(CircuitMeasured),
    Prepared(CircuitPrepared),
    CircuitFailed(CircuitFailed),
    Synthesized(WitnessSynthesized),
    SynthesisFailed(SynthesisFailed),
    Verified(ProofsVerified),
    KeyChecked(KeyChecked),
    JobVerified(JobVerified),
}

pub struct Subject {
    pub address: Addr<Synthesizer>,
    said: ProbeHandle<Said>,
}

impl Subject {
    /// Its tasks run inside it: virtual time then stands still meanwhile.
    pub fn start() -> Self {
        Self::start_with(WorkerPool::start(0).expect("no thread is needed").0)
    }

    fn start_with(pool: WorkerPool) -> Self {
        let (peer, said) = probe_all::<Said>();
        let config = SynthesizerConfig {
            params_dir: "params".into(),
            shape_cache_dir: None,
            verdict_dir: None,
            fold_limit_bytes: Some(u64::MAX),
            decoders: Vec::new(),
            max_waiting_decodes: 4,
        };
        let peers = SynthesizerPeers {
            progress: peer.clone().recipient(),
            measured: peer.clone().recipient(),
            prepared: peer.clone().recipient(),
            circuit_failed: peer.clone().recipient(),
            synthesized: peer.clone().recipient(),
            synthesis_failed: peer.clone().recipient(),
            verified: peer.clone().recipient(),
            key_checked: peer.clone().recipient(),
            job_verified: peer.recipient(),
        };
        Self { address: Synthesizer::new(config, pool, peers).start(), said }
    }

    /// The next fact that is no progress.
    pub async fn next(&mut self) -> Said {
        loop {
            match self.said.next().await {
                Said::Progress(_) => {}
                said => return said,
            }
        }
    }

    pub async fn prepare(
        &mut self,
        srs: &Arc<Srs>,
        cancel: CancelFlag,
    ) -> Result<Arc<PreparedCircuit>, CircuitError> {
        self.address.do_send(PrepareCircuit {
            circuit: CircuitId::new("squares"),
            source: SrsSource::Memory(Arc::clone(srs)),
            workload: circuit_with("squares", srs, &[2, 3]),
            priority: Priority::Normal,
            cancel,
            lease: MemoryLease::default(),
            span: tracing::Span::none(),
        });
        match self.next().await {
            Said::Prepared(prepared) => Ok(prepared.circuit),
            Said::CircuitFailed(failed) => Err(failed.error),
            other => panic!("expected the circuit, got {other:?}"),
        }
    }

    fn ask_for_witness(
        &self,
        circuit: &Arc<PreparedCircuit>,
        partition: u32,
        cancel: CancelFlag,
    ) -> MemoryLease {
        let lease = MemoryLease::default();
        let workload = circuit_with("squares", &circuit.srs, &[2, 3]);
        let at = WorkRef::partition(JobId(1), PartitionIndex(partition));
        self.address.do_send(SynthesizeWitness {
            cancel,
            lease: lease.clone(),
            ..witness_of(at, workload, circuit)
        });
        lease
    }

    /// Of a circuit whose third constraint does not hold.
    fn ask_for_broken_witness(&self, circuit: &Arc<PreparedCircuit>, rows: RowsCheck) {
        let broken = Squares { broken_at: Some(3), ..Squares::of(2) };
        let inputs = broken.public_inputs();
        let (id, source) = (CircuitId::new("squares"), SrsSource::Memory(srs()));
        let workload = CustomCircuit::new(id, source, Squares::blank(NUM_SQUARINGS), vec![(broken, inputs)])
            .into_workload();
        let at = WorkRef::partition(JobId(1), PartitionIndex(0));
        self.address.do_send(SynthesizeWitness { rows, ..witness_of(at, workload, circuit) });
    }

    async fn witness(&mut self, circuit: &Arc<PreparedCircuit>, partition: u32) -> WitnessSynthesized {
        let lease = self.ask_for_witness(circuit, partition, CancelFlag::default());
        match self.next().await {
            Said::Synthesized(made) => {
                assert!(made.lease.is_same(&lease));
                made
            }
            other => panic!("expected the witness, got {other:?}"),
        }
    }

    async fn check_key(&mut self, circuit: &Arc<PreparedCircuit>, cancel: CancelFlag) -> KeyVerdict {
        let made = self.witness(circuit, 0).await;
        self.address.do_send(CheckKey {
            at: made.at.clone(),
            circuit: Arc::clone(circuit),
            witness: made.witness,
            public_inputs: made.public_inputs,
            blinding: Blinding::random(&mut rand::rngs::OsRng),
            priority: Priority::Normal,
            cancel,
            lease: MemoryLease::default(),
            span: tracing::Span::none(),
        });
        match self.next().await {
            Said::KeyChecked(checked) => {
                assert_eq!(checked.at, made.at);
                checked.verdict
            }
            other => panic!("expected the verdict, got {other:?}"),
        }
    }

    pub async fn end(self) {
        self.address.do_send(StopActor);
        stopped(&self.address.recipient::<StopActor>()).await;
    }
}

/// An ordinary command.
fn witness_of(at: WorkRef, workload: Arc<dyn Workload>, circuit: &Arc<PreparedCircuit>) -> SynthesizeWitness {
    SynthesizeWitness {
        at,
        workload,
        circuit: Arc::clone(circuit),
        rows: RowsCheck::All,
        priority: Priority::Normal,
        cancel: CancelFlag::default(),
        lease: MemoryLease::default(),
        span: tracing::Span::none(),
    }
}

/// A key whose counts are right, and by which nobody can prove: one query is of other secrets.
fn mixed_srs() -> Arc<Srs> {
    let mut other = crate::squares::srs_of_seed(NUM_SQUARINGS, 99);
    other.l.clone_from(&srs().l);
    Arc::new(other)
}

#[test]
fn a_circuit_is_measured_by_its_key_alone_and_then_prepared() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let key = srs();
        let (name, source) = (CircuitId::new("squares"), SrsSource::Memory(Arc::clone(&key)));
        subject.address.do_send(MeasureCircuit {
            circuit: name,
            source,
            priority: Priority::Normal,
            span: tracing::Span::none(),
        });
        let Said::Measured(measured) = subject.next().await else { panic!("it can be measured") };
        assert_eq!(measured.needs.srs, SrsSummary::of(&key));
        let prepared = subject.prepare(&key, CancelFlag::default()).await.unwrap();
        let shape = cuzk::policy::plan::ShapeSummary::of(&prepared.shape);
        assert_eq!(
            (measured.needs.shape.domain_log2, measured.needs.shape.num_inputs, measured.needs.shape.num_aux),
            (shape.domain_log2, shape.num_inputs, shape.num_aux)
        );
        assert!(measured.needs.shape.num_rows <= shape.num_rows);
        assert!(measured.needs.num_bytes > key.num_bytes());

        let missing = SrsSource::File("/nowhere/squares.params".into());
        subject.address.do_send(MeasureCircuit {
            circuit: CircuitId::new("nowhere"),
            source: missing,
            priority: Priority::Normal,
            span: tracing::Span::none(),
        });
        let Said::CircuitFailed(failed) = subject.next().await else { panic!("there is no such file") };
        assert!(failed.error.to_string().contains("for circuit nowhere"), "{}", failed.error);
        subject.end().await;
    });
}

#[test]
fn b38_a_key_with_other_counts_fails_and_a_cancelled_one_is_not_loaded() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let longer = Arc::new(srs_of(NUM_SQUARINGS + 1));
        let error = subject.prepare(&longer, CancelFlag::default()).await.unwrap_err();
        assert!(matches!(error, CircuitError::Srs(SrsError::Mismatch { .. })), "{error}");
        let cancel = CancelFlag::default();
        cancel.cancel();
        let error = subject.prepare(&srs(), cancel).await.unwrap_err();
        assert!(matches!(error, CircuitError::Srs(SrsError::Stopped { .. })), "{error}");
        subject.end().await;
    });
}

#[test]
fn witnesses_are_made_and_proofs_judged_one_by_one() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let circuit = subject.prepare(&srs(), CancelFlag::default()).await.unwrap();
        let mut proofs = Vec::new();
        for partition in 0..2 {
            let made = subject.witness(&circuit, partition).await;
            let blinding = Blinding::random(&mut rand::rngs::OsRng);
            let proof: Proof =
                cuzk::groth16::prover::prove(&circuit.srs, &circuit.shape, &made.witness, &blinding).unwrap();
            proofs.push(UnverifiedProof {
                at: made.at,
                proof,
                public_inputs: made.public_inputs,
                unchecked: None,
            });
        }
        // The second proof is not of the first one's inputs.
        let wrong = UnverifiedProof {
            at: WorkRef::partition(JobId(1), PartitionIndex(2)),
            proof: proofs[1].proof.clone(),
            public_inputs: Arc::clone(&proofs[0].public_inputs),
            // Its witness is sound: it is not to blame.
            unchecked: Some(subject.witness(&circuit, 1).await.witness),
        };
        proofs.insert(1, wrong);
        subject.address.do_send(VerifyProofs {
            circuit: Arc::clone(&circuit),
            proofs,
            priority: Priority::Normal,
            span: tracing::Span::none(),
        });
        let Said::Verified(verified) = subject.next().await else { panic!("proofs are judged") };
        let holds: Vec<bool> = verified.verdicts.iter().map(|(_, holds)| *holds).collect();
        assert_eq!(holds, [true, false, true]);

        // Cancelled before it began: no answer, and the lease is let go.
        let cancel = CancelFlag::default();
        cancel.cancel();
        let lease = subject.ask_for_witness(&circuit, 0, cancel);
        subject.said.expect_silence(Duration::from_millis(50)).await;
        let watch = lease.watch();
        drop(lease);
        assert_eq!(watch.strong_count(), 0);
        subject.end().await;
    });
}

#[test]
fn b40_a_witness_that_does_not_satisfy_is_a_failure_naming_the_constraint() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let circuit = subject.prepare(&srs(), CancelFlag::default()).await.unwrap();
        subject.ask_for_broken_witness(&circuit, RowsCheck::All);
        let Said::SynthesisFailed(failed) = subject.next().await else { panic!("it is not satisfied") };
        assert!(matches!(failed.error, SynthesisError::Unsatisfied { index: 3, .. }), "{}", failed.error);
        subject.end().await;
    });
}

#[test]
fn b40_a_witness_that_nobody_checked_is_blamed_for_its_proof() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let circuit = subject.prepare(&srs(), CancelFlag::default()).await.unwrap();
        subject.ask_for_broken_witness(&circuit, RowsCheck::ByDevice);
        let Said::Synthesized(made) = subject.next().await else { panic!("no constraint is looked at yet") };
        let blinding = Blinding::random(&mut rand::rngs::OsRng);
        let proof =
            cuzk::groth16::prover::prove(&circuit.srs, &circuit.shape, &made.witness, &blinding).unwrap();
        subject.address.do_send(VerifyProofs {
            circuit,
            proofs: vec![UnverifiedProof {
                at: made.at,
                proof,
                public_inputs: made.public_inputs,
                unchecked: Some(made.witness),
            }],
            priority: Priority::Normal,
            span: tracing::Span::none(),
        });
        let Said::SynthesisFailed(failed) = subject.next().await else { panic!("its witness is broken") };
        assert!(matches!(failed.error, SynthesisError::Unsatisfied { index: 3, .. }), "{}", failed.error);
        let Said::Verified(verified) = subject.next().await else { panic!("proofs are judged") };
        assert!(!verified.verdicts[0].1);
        subject.end().await;
    });
}

#[test]
fn the_hosts_own_proof_tells_a_right_key_from_a_wrong_one() {
    on_paused_arbiter(async {
        let mut subject = Subject::start();
        let right = subject.prepare(&srs(), CancelFlag::default()).await.unwrap();
        assert_eq!(subject.check_key(&right, CancelFlag::default()).await, KeyVerdict::Right);
        let wrong = subject.prepare(&mixed_srs(), CancelFlag::default()).await.unwrap();
        assert_eq!(subject.check_key(&wrong, CancelFlag::default()).await, KeyVerdict::Wrong);
        let cancel = CancelFlag::default();
        cancel.cancel();
        assert_eq!(subject.check_key(&right, cancel).await, KeyVerdict::Unknown);
        subject.end().await;
    });
}

#[test]
fn a_request_that_cannot_be_decoded_is_answered() {
    on_paused_arbiter(async {
        let subject = Subject::start();
        let decode = DecodeRequest {
            request: Undecoded::Filecoin(Box::default()),
            priority: Priority::Critical,
            keep_bytes: false,
            caller: None,
        };
        let error = subject.address.send(decode).await.unwrap().unwrap_err();
        assert!(matches!(error, EngineError::Request(_)), "{error}");
        subject.end().await;
    });
}

#[test]
fn b26_a_request_whose_caller_has_vanished_is_not_decoded() {
    on_paused_arbiter(async {
        let subject = Subject::start();
        let (read, was_read) = channel();
        let decode = |caller: &Arc<()>| DecodeRequest {
            request: Undecoded::Stored(Box::new({
                let read = read.clone();
                move || {
                    read.send(()).expect("the test is there");
                    Ok(Undecoded::Filecoin(Box::default()))
                }
            })),
            priority: Priority::Normal,
            keep_bytes: false,
            caller: Some(Arc::downgrade(caller)),
        };
        let caller = Arc::new(());
        let here = decode(&caller);
        subject.address.send(here).await.unwrap().unwrap_err();
        was_read.try_recv().expect("its caller waits");
        let gone = decode(&caller);
        drop(caller);
        subject.address.send(gone).await.unwrap().unwrap_err();
        was_read.try_recv().expect_err("nobody waits for it");
        subject.end().await;
    });
}

/// A workload that belongs to a worker thread: it does not bear to be asked anything by another, and says where it ends.
#[derive(Debug)]
struct OfWorkers {
    inner: Arc<dyn Workload>,
    /// Told that its witness is begun, which then waits.
    began: UnboundedSender<()>,
    go_on: Mutex<Receiver<()>>,
    ended_on: Sender<String>,
}

fn this_thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

impl OfWorkers {
    fn inner(&self) -> &dyn Workload {
        assert!(this_thread().starts_with("cuzk-worker-"), "the host's code runs on {}", this_thread());
        self.inner.as_ref()
    }
}

impl Drop for OfWorkers {
    fn drop(&mut self) {
        self.ended_on.send(this_thread()).expect("the test is there");
        panic!("its end panics, on purpose");
    }
}

impl Workload for OfWorkers {
    fn kind(&self) -> WorkKind {
        self.inner().kind()
    }

    fn circuit(&self) -> &CircuitId {
        self.inner().circuit()
    }

    fn num_partitions(&self) -> u32 {
        self.inner().num_partitions()
    }

    fn digest(&self) -> RequestDigest {
        self.inner().digest()
    }

    fn srs(&self) -> SrsSource {
        self.inner().srs()
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.inner().record_shape()
    }

    fn synthesize(&self, at: PartitionIndex, shape: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        self.began.send(()).expect("the test is there");
        self.go_on.lock().unwrap().recv().expect("the test says so");
        self.inner().synthesize(at, shape)
    }

    fn public_inputs(&self, at: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        self.inner().public_inputs(at)
    }
}

#[test]
fn b47_what_a_host_has_written_runs_on_worker_threads_alone() {
    let (pool, threads) = WorkerPool::start(1).unwrap();
    let (ended_on, ends) = channel();
    let (began, mut begins) = unbounded_channel();
    let of_workers = || {
        let (go, go_on) = channel();
        let (inner, began) = (circuit_with("squares", &srs(), &[2, 3]), began.clone());
        (go, Arc::new(OfWorkers { inner, began, go_on: go_on.into(), ended_on: ended_on.clone() }))
    };
    on_arbiter(async {
        let mut subject = Subject::start_with(pool);
        let (_go, workload) = of_workers();
        subject.address.do_send(PrepareCircuit {
            circuit: CircuitId::new("squares"),
            source: SrsSource::Memory(srs()),
            workload,
            priority: Priority::Normal,
            cancel: CancelFlag::default(),
            lease: MemoryLease::default(),
            span: tracing::Span::none(),
        });
        let Said::Prepared(prepared) = subject.next().await else { panic!("it can be prepared") };
        let circuit = prepared.circuit;
        // One is being made, and another waits for the thread when the actor is stopped.
        let (go, workload) = of_workers();
        let at = |partition| WorkRef::partition(JobId(1), PartitionIndex(partition));
        subject.address.do_send(witness_of(at(0), workload, &circuit));
        let (_never, workload) = of_workers();
        subject.address.do_send(witness_of(at(1), workload, &circuit));
        begins.recv().await.unwrap();
        closed(&subject.address.clone().recipient::<StopActor>(), StopActor).await;
        go.send(()).unwrap();
        let Said::Synthesized(made) = subject.next().await else { panic!("what has begun is done") };
        assert_eq!(made.at, at(0));
    });
    threads.join();
    let ends: Vec<String> = ends.try_iter().collect();
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().all(|thread| thread.starts_with("cuzk-worker-")), "{ends:?}");
}

/// Work with a loop in its witness, each round of which says that it has begun, and then waits for the end of the sender.
#[derive(Debug)]
struct Looped {
    inner: Arc<dyn Workload>,
    began: UnboundedSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Wrapper for Looped {
    fn inner(&self) -> &dyn Workload {
        self.inner.as_ref()
    }

    fn synthesize(&self, at: PartitionIndex, shape: &R1csShape) -> Result<PackedWitness, SynthesisError> {
        cuzk::loops::run(|| {
            rayon::broadcast(|_| {
                self.began.send(()).expect("the test is there");
                let _ended = self.go_on.lock().unwrap().recv();
            })
        });
        self.inner.synthesize(at, shape)
    }
}

#[test]
fn b27_loops_of_critical_work_and_of_verification_do_not_wait_for_those_of_a_witness() {
    let (pool, threads) = WorkerPool::start(2).unwrap();
    on_arbiter(async {
        let mut subject = Subject::start_with(pool);
        let circuit = subject.prepare(&srs(), CancelFlag::default()).await.unwrap();
        let looped = || {
            let ((go, go_on), (began, begins)) = (channel(), unbounded_channel());
            let inner = circuit_with("squares", &circuit.srs, &[2, 3]);
            (go, begins, wrapped(Looped { inner, began, go_on: go_on.into() }))
        };
        let at = |partition| WorkRef::partition(JobId(1), PartitionIndex(partition));
        let made = subject.witness(&circuit, 0).await;
        let blinding = Blinding::random(&mut rand::rngs::OsRng);
        let proof =
            cuzk::groth16::prover::prove(&circuit.srs, &circuit.shape, &made.witness, &blinding).unwrap();

        let (go, mut begins, workload) = looped();
        subject.address.do_send(witness_of(at(1), workload, &circuit));
        // The first of rayon's threads waits for the gate, the others for the first.
        begins.recv().await.unwrap();
        let (pass, _begins, workload) = looped();
        drop(pass);
        let urgent =
            SynthesizeWitness { priority: Priority::Critical, ..witness_of(at(0), workload, &circuit) };
        subject.address.do_send(urgent);
        let Said::Synthesized(made) = subject.next().await else { panic!("a witness was asked for") };
        assert_eq!(made.at, at(0));
        let proofs = [0, 1].map(|partition| UnverifiedProof {
            at: at(partition),
            proof: proof.clone(),
            public_inputs: made.public_inputs.clone(),
            unchecked: None,
        });
        subject.address.do_send(VerifyProofs {
            circuit: Arc::clone(&circuit),
            proofs: proofs.into(),
            priority: Priority::Normal,
            span: tracing::Span::none(),
        });
        let Said::Verified(verified) = subject.next().await else { panic!("proofs are judged") };
        assert!(verified.verdicts.iter().all(|(_, holds)| *holds));

        drop(go);
        let Said::Synthesized(made) = subject.next().await else { panic!("what has begun is done") };
        assert_eq!(made.at, at(1));
        subject.end().await;
    });
    threads.join();
}
