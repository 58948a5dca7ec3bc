//! Many random lives of a device: whatever happens, each partition has one answer and everything comes back.

use std::collections::BTreeMap;

use cuzk::ids::CircuitId;
use cuzk::messages::device::LaneFreed;
use cuzk::policy::batch::BatchPolicy;
use rand::seq::SliceRandom;
use rand::Rng;
use rand_chacha::ChaCha20Rng;

use super::*;

const NUM_LIVES: usize = 150;
const NUM_STEPS: usize = 40;

/// One device, what it was sent, and what it said.
struct Life {
    rig: DeviceRig,
    fixtures: Vec<Fixture>,
    budget_bytes: u64,
    /// Credits in hand, per kind of lane.
    credits: BTreeMap<LaneKind, u32>,
    num_sent: u64,
    cancels: Vec<CancelFlag>,
    /// Answers per job.
    answers: BTreeMap<u64, u32>,
    num_lanes: u32,
    /// There were more partitions than lanes: some waited to share a pass, or were in one.
    has_shared: bool,
}

fn random_config(rng: &mut ChaCha20Rng) -> SimConfig {
    let mut config = sim("delay(35ms)@2.sum_l,delay(5ms)@3+.upload");
    for _ in 0..rng.gen_range(0..3) {
        config.faults = config.faults.with_alloc_fail(rng.gen_range(1..200));
    }
    config.layout = LaneLayout {
        normal: rng.gen_range(1..4),
        critical: rng.gen_range(0..2),
        critical_preempts: rng.gen(),
    };
    config.stages_ahead = rng.gen_range(0..3);
    config
}

impl Life {
    async fn begin(rng: &mut ChaCha20Rng, fixture: &Fixture) -> Self {
        let mut config = random_config(rng);
        let names = ["a", "b", "c"];
        let mut least = least_bytes(fixture);
        let mut budget_bytes = least * rng.gen_range(1..5) + rng.gen_range(0..least);
        if rng.gen_bool(0.5) {
            // Two of the circuits are so large that the card streams them, and partitions share passes.
            let large = super::passes::porep_32g(STAGE);
            least = least_budget_bytes(&large.shape, &large.srs);
            budget_bytes = least + rng.gen_range(0..3 * least);
            let circuits = names[1..].iter().map(|name| (CircuitId::new(*name), large.clone()));
            config.circuits = Arc::new(circuits.collect());
            config.memory_bytes = budget_bytes;
            config.parking_lanes = rng.gen_range(1..6);
            config.link_bytes_per_s = rng.gen_bool(0.5).then_some(1 << 40);
        }
        let batches = BatchPolicy {
            max_partitions: rng.gen_range(1..8),
            max_time: MS * [0, 20, 200, 10_000][rng.gen_range(0..4)],
        };
        let device = DeviceConfig {
            budget_bytes: Some(budget_bytes),
            critical_reserve_bytes: rng.gen_range(0..=budget_bytes - least),
            batches,
            ..DeviceConfig::default()
        };
        let credits = BTreeMap::from([
            (LaneKind::Normal, config.layout.normal),
            (LaneKind::Critical, config.layout.critical),
        ]);
        let num_lanes = credits.values().sum();
        Self {
            num_lanes,
            has_shared: false,
            rig: DeviceRig::ready(&spawner(config), device).await,
            fixtures: names.map(|name| fixture.renamed(name)).to_vec(),
            budget_bytes,
            credits,
            num_sent: 0,
            cancels: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    async fn step(&mut self, rng: &mut ChaCha20Rng) {
        match rng.gen_range(0..10) {
            0..=4 => self.send(rng),
            5 => {
                if let Some(cancel) = self.cancels.choose(rng) {
                    cancel.cancel();
                }
            }
            6 => {
                let circuit = self.fixtures.choose(rng).expect("there are three").circuit.clone();
                // Refused while in use, which is as good.
                let _ = self.rig.handle.address.evict.send(EvictSrs { circuit, when_idle: false }).await;
            }
            _ => tokio::time::sleep(MS * rng.gen_range(0..60)).await,
        }
        for fact in self.rig.facts.drain() {
            self.take_in(&fact);
        }
        let num_there = self.num_sent - self.answers.len() as u64;
        self.has_shared |=
            u64::from(self.credits.values().sum::<u32>()) + num_there > u64::from(self.num_lanes);
        let status = self.rig.status().await;
        assert!(status.reserved_bytes <= self.budget_bytes, "{status:?}");
        assert!(status.in_use_bytes <= status.reserved_bytes, "{status:?}");
    }

    fn send(&mut self, rng: &mut ChaCha20Rng) {
        let kind = if rng.gen_bool(0.25) { LaneKind::Critical } else { LaneKind::Normal };
        let credits = self.credits.get_mut(&kind).expect("both kinds are counted");
        if *credits == 0 {
            return;
        }
        *credits -= 1;
        self.num_sent += 1;
        let priority = match kind {
            LaneKind::Critical => Priority::Critical,
            LaneKind::Normal => Priority::Normal,
        };
        let work = self.fixtures.choose(rng).expect("there are three").work(self.num_sent, 0);
        self.cancels.push(self.rig.prove_as(work, priority, kind));
    }

    fn take_in(&mut self, fact: &Fact) {
        match fact {
            Fact::Proved(proved) => *self.answers.entry(proved.at.job.0).or_default() += 1,
            Fact::Failed(failed) => {
                let is_expected = matches!(
                    failed.error,
                    DeviceError::Cancelled { .. } | DeviceError::OutOfVram { .. } | DeviceError::Plan { .. }
                );
                assert!(is_expected, "{failed:?}");
                *self.answers.entry(failed.at.job.0).or_default() += 1;
            }
            Fact::Freed(LaneFreed { kind, .. }) => {
                *self.credits.get_mut(kind).expect("both kinds are counted") += 1;
            }
            Fact::Stage(_) | Fact::Residency(_) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Waits for the last answers, and looks for anything that is left.
    async fn end(mut self) {
        // Those that share a pass give their credits back before they are answered.
        while self.credits.values().sum::<u32>() < self.num_lanes
            || (self.answers.len() as u64) < self.num_sent
        {
            let fact = self.rig.facts.next().await;
            self.take_in(&fact);
        }
        assert_eq!(self.answers.len() as u64, self.num_sent, "every partition has an answer");
        assert!(self.answers.values().all(|&num_answers| num_answers == 1), "{:?}", self.answers);
        for fixture in &self.fixtures {
            let evict = EvictSrs { circuit: fixture.circuit.clone(), when_idle: false };
            assert!(
                matches!(self.rig.handle.address.evict.send(evict).await, Ok(Ok(_))),
                "nothing is in use"
            );
        }
        let status = self.rig.status().await;
        assert_eq!((status.lanes_busy, status.reserved_bytes, status.in_use_bytes), (0, 0, 0));
        self.rig.drain().await;
    }
}

#[test]
fn b06_whatever_happens_each_partition_has_one_answer_and_everything_comes_back() {
    let fixture = fixture();
    let mut rng = common::seeds::rng();
    let mut num_sharing = 0;
    for _ in 0..NUM_LIVES {
        on_paused_arbiter(async {
            let mut life = Life::begin(&mut rng, &fixture).await;
            for _ in 0..NUM_STEPS {
                life.step(&mut rng).await;
            }
            num_sharing += usize::from(life.has_shared);
            life.end().await;
        });
    }
    println!("in {num_sharing} lives partitions shared passes");
    assert!(num_sharing >= NUM_LIVES / 20, "{num_sharing} of {NUM_LIVES}");
}
