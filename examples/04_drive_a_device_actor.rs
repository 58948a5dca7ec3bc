//! Drives one device actor by messages, without the engine around it: what the Scheduler does for every partition.
//!
//! ```text
//! cargo run --release --example 04_drive_a_device_actor            # the host's processor
//! cargo run --release --example 04_drive_a_device_actor -- sim:1   # a simulated device
//! ```
//!
//! It proves that a secret number has a known cube, checks the proof, cancels a second partition, drains the device,
//! and exits non-zero if anything is not as it should be.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Arbiter, Context, Handler, System};
use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use cuzk::actors::gpu_device::{DeviceConfig, DevicePeers, DeviceSpawner, FactorySpawner};
use cuzk::backend::cpu::CpuFactory;
use cuzk::backend::sim::SimFleet;
use cuzk::backend::PartitionWork;
use cuzk::error::DeviceError;
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::{Blinding, PackedWitness, PreparedVerifyingKey, R1csShape, Scalar, Srs};
use cuzk::ids::{Attempt, CircuitId, JobId, PartitionIndex, WorkRef};
use cuzk::messages::device::{
    CancelFlag, LaneCredit, LaneFreed, LaneKind, PartitionFailed, PartitionProved, ProvePartition,
    StageFinished,
};
use cuzk::messages::events::EventSink;
use cuzk::messages::job::Priority;
use cuzk::messages::lifecycle::{DeviceLost, DeviceReady, Drain, Drained, ResidencyChanged};
use cuzk::messages::status::StatusBoard;
use rand::rngs::OsRng;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

/// `x · x · x = y` with `y` public.
struct Cube {
    x: Option<Scalar>,
}

impl Circuit<Scalar> for Cube {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let missing = || SynthesisError::AssignmentMissing;
        let x = cs.alloc(|| "x", || self.x.ok_or_else(missing))?;
        let square = cs.alloc(|| "x^2", || self.x.map(|x| x * x).ok_or_else(missing))?;
        let y = cs.alloc_input(|| "y", || self.x.map(|x| x * x * x).ok_or_else(missing))?;
        cs.enforce(|| "x * x = x^2", |lc| lc + x, |lc| lc + x, |lc| lc + square);
        cs.enforce(|| "x^2 * x = y", |lc| lc + square, |lc| lc + x, |lc| lc + y);
        Ok(())
    }
}

/// What a device says, as one stream.
enum Fact {
    Ready(DeviceReady),
    Proved(Box<PartitionProved>),
    Failed(PartitionFailed),
    Lost(DeviceLost),
    Drained(Drained),
}

/// The device's only peer: it stands for the Scheduler and the Supervisor.
struct Listener {
    facts: UnboundedSender<Fact>,
}

impl Actor for Listener {
    type Context = Context<Self>;
}

/// Passes a message on to `main`, which may have stopped listening.
macro_rules! listen {
    ($message:ty, $fact:expr) => {
        impl Handler<$message> for Listener {
            type Result = ();

            fn handle(&mut self, message: $message, _: &mut Context<Self>) {
                let _ = self.facts.send($fact(message));
            }
        }
    };
}

/// Prints a message.
macro_rules! print {
    ($message:ty, $show:expr) => {
        impl Handler<$message> for Listener {
            type Result = ();

            fn handle(&mut self, message: $message, _: &mut Context<Self>) {
                println!("  {}", $show(message));
            }
        }
    };
}

listen!(DeviceReady, Fact::Ready);
listen!(PartitionProved, |proved| Fact::Proved(Box::new(proved)));
listen!(PartitionFailed, Fact::Failed);
listen!(DeviceLost, Fact::Lost);
listen!(Drained, Fact::Drained);
print!(StageFinished, |done: StageFinished| format!("{}: {} took {:?}", done.at, done.stage, done.elapsed));
print!(LaneFreed, |freed: LaneFreed| format!("{}: a lane is free again", freed.device));
print!(ResidencyChanged, |change: ResidencyChanged| {
    let what = if change.resident { "is on the device" } else { "was evicted" };
    format!("{}: the key of `{}` {what}", change.device, change.circuit)
});

fn peers(listener: &Addr<Listener>) -> DevicePeers {
    DevicePeers {
        // This device's first actor; it is not rebuilt here.
        life: 1,
        proved: listener.clone().recipient(),
        failed: listener.clone().recipient(),
        stage_finished: listener.clone().recipient(),
        residency_changed: listener.clone().recipient(),
        ready: vec![listener.clone().recipient()],
        lost: vec![listener.clone().recipient()],
        drained: listener.clone().recipient(),
        board: StatusBoard::default(),
        events: EventSink::off(),
    }
}

fn spawner(name: &str) -> Result<Arc<dyn DeviceSpawner>, Box<dyn Error>> {
    if name == "cpu" {
        return Ok(FactorySpawner::boxed(CpuFactory::default()));
    }
    let fleet: SimFleet = name.parse()?;
    let factory = fleet.factories().into_iter().next().ok_or("no device")?;
    Ok(FactorySpawner::boxed(factory))
}

/// Circuit, key and witness: what the Synthesizer and the host store would provide.
struct Material {
    shape: Arc<R1csShape>,
    srs: Arc<Srs>,
    witness: Arc<PackedWitness>,
}

impl Material {
    fn make() -> Result<Self, Box<dyn Error>> {
        let shape = R1csShape::record(Cube { x: None })?;
        // Whoever knows the generator's randomness can forge proofs: for a trial only.
        let srs = generate_srs(&shape, &mut OsRng)?;
        let secret = Scalar::from(3u64);
        let witness = PackedWitness::synthesize(Cube { x: Some(secret) }, &shape)?;
        Ok(Self { shape: Arc::new(shape), srs: Arc::new(srs), witness: Arc::new(witness) })
    }

    fn partition(&self, index: u32) -> PartitionWork {
        PartitionWork {
            at: WorkRef::partition(JobId(1), PartitionIndex(index)).with_attempt(Attempt(1)),
            circuit: CircuitId::new("cube"),
            shape: Arc::clone(&self.shape),
            srs: Arc::clone(&self.srs),
            witness: Arc::clone(&self.witness),
            blinding: Blinding::random(&mut OsRng),
        }
    }
}

async fn next(facts: &mut UnboundedReceiver<Fact>) -> Result<Fact, Box<dyn Error>> {
    let fact = tokio::time::timeout(Duration::from_secs(60), facts.recv()).await?;
    match fact.ok_or("the listener has gone")? {
        Fact::Lost(lost) => Err(lost.error.into()),
        fact => Ok(fact),
    }
}

async fn drive(name: &str) -> Result<(), Box<dyn Error>> {
    let material = Material::make()?;
    let (sender, mut facts) = unbounded_channel();
    let listener = Listener { facts: sender }.start();

    // A device has a thread of its own: its arbiter.
    let arbiter = Arbiter::new();
    let device = spawner(name)?.start(&arbiter.handle(), DeviceConfig::default(), peers(&listener));
    let Fact::Ready(ready) = next(&mut facts).await? else {
        return Err("expected the device to be ready".into());
    };
    println!("{} is ready: {}, {} lane(s)", ready.info.id, ready.info.name, ready.num_lanes);

    let send = |partition, cancel: CancelFlag| {
        ready.address.prove.do_send(ProvePartition {
            work: material.partition(partition),
            priority: Priority::Normal,
            cancel,
            // One credit per lane: the device has given it back when the lane is free.
            credit: LaneCredit::new(
                ready.info.id.clone(),
                ready.life,
                LaneKind::Normal,
                listener.clone().recipient(),
            ),
            span: tracing::Span::current(),
        });
    };

    send(0, CancelFlag::default());
    let Fact::Proved(proved) = next(&mut facts).await? else { return Err("expected a proof".into()) };
    let cube = Scalar::from(27u64);
    if !PreparedVerifyingKey::new(&material.srs.vk).verify(&proved.proof, &[cube]) {
        return Err("the proof does not verify".into());
    }
    println!("proved: somebody knows a cube root of 27; verified; {} B", proved.proof.to_bytes().len());

    let cancel = CancelFlag::default();
    cancel.cancel();
    send(1, cancel);
    match next(&mut facts).await? {
        Fact::Failed(PartitionFailed { error: DeviceError::Cancelled { at }, .. }) => {
            println!("cancelled: {at}")
        }
        _ => return Err("expected the second partition to be cancelled".into()),
    }

    device.drain.do_send(Drain);
    let Fact::Drained(drained) = next(&mut facts).await? else {
        return Err("expected the drain to end".into());
    };
    println!("drained: {}", drained.actor);
    arbiter.stop();
    arbiter.join().map_err(|_| "the device's thread panicked")?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".to_owned());
    System::new().block_on(drive(&name))
}
