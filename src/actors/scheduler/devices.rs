//! The devices as the Scheduler knows them: credits, residency, health, speed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::outcome::is_allowed;
use crate::backend::{DeviceInfo, MemoryModel};
use crate::error::PlanError;
use crate::ids::{CircuitId, DeviceId};
use crate::messages::device::LaneKind;
use crate::messages::job::{Placement, Priority};
use crate::messages::lifecycle::{DeviceAddress, DeviceMemory, DeviceReady};
use crate::policy::batch::{BatchPolicy, BatchRecord};
use crate::policy::health::{Health, HealthPolicy, HealthRecord};
use crate::policy::placement::DeviceView;
use crate::policy::role::Role;

/// Whether work may go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Starting,
    Ready,
    /// Lost or dead; it is being rebuilt or will be tried again.
    Withdrawn {
        reason: String,
    },
    /// Given up for good.
    Gone {
        reason: String,
    },
}

pub(super) struct Device {
    pub role: Role,
    /// Of the actor that was heard of last; what an earlier one said or held is void.
    pub life: u64,
    pub info: Option<DeviceInfo>,
    pub address: Option<DeviceAddress>,
    pub service: Service,
    pub free_lanes: u32,
    pub free_critical_lanes: u32,
    pub num_lanes: u32,
    num_critical_lanes: u32,
    pub health: HealthRecord,
    pub resident: HashSet<CircuitId>,
    /// Moving average of a partition's time, per circuit.
    mean_times: HashMap<CircuitId, Duration>,
    batch: BatchRecord,
    /// Partitions that it was given and has not answered: more than lanes are taken where some wait there to share a pass.
    num_unanswered: u32,
    /// What it was given last, and when.
    last_given: Option<(CircuitId, Duration)>,
    /// It refused work, or is about to be lost; left alone until then.
    pub rests_until: Duration,
    pub num_proved: u64,
    pub num_failed: u64,
    pub num_invalid: u64,
    pub num_restarts: u64,
    /// Known once it has opened.
    pub memory: Option<DeviceMemory>,
    /// It looks at a sample of a witness's constraints itself.
    checks_rows: bool,
    /// Of the partition that took most: planned and measured.
    pub planned_bytes: u64,
    pub peak_bytes: u64,
    /// The health that was told last.
    pub told_health: Option<Health>,
}

impl Device {
    fn new(policy: HealthPolicy, role: Role) -> Self {
        Self {
            role,
            life: 0,
            info: None,
            address: None,
            service: Service::Starting,
            free_lanes: 0,
            free_critical_lanes: 0,
            num_lanes: 0,
            num_critical_lanes: 0,
            health: HealthRecord::new(policy),
            resident: HashSet::new(),
            mean_times: HashMap::new(),
            batch: BatchRecord::default(),
            num_unanswered: 0,
            last_given: None,
            rests_until: Duration::ZERO,
            num_proved: 0,
            num_failed: 0,
            num_invalid: 0,
            num_restarts: 0,
            memory: None,
            checks_rows: false,
            planned_bytes: 0,
            peak_bytes: 0,
            told_health: None,
        }
    }

    /// Whether what is said of its `life` still counts.
    pub fn is_current(&self, life: u64) -> bool {
        life >= self.life
    }

    /// It opened, and was not lost since: whoever says of this life that it did not open was overtaken.
    pub fn has_opened(&self, life: u64) -> bool {
        self.life == life && self.service == Service::Ready
    }

    /// A new life: everything its predecessor held has come back or is lost.
    pub fn ready(&mut self, ready: DeviceReady) {
        self.life = ready.life;
        self.num_restarts += u64::from(self.info.is_some());
        self.service = Service::Ready;
        self.free_lanes = ready.num_lanes;
        self.num_lanes = ready.num_lanes;
        self.free_critical_lanes = ready.num_critical_lanes;
        self.num_critical_lanes = ready.num_critical_lanes;
        self.memory = Some(ready.memory);
        self.checks_rows = ready.checks_rows;
        self.info = Some(ready.info);
        self.address = Some(ready.address);
        self.rests_until = Duration::ZERO;
        self.forget_what_it_held();
    }

    pub fn withdraw(&mut self, service: Service) {
        self.service = service;
        self.address = None;
        self.free_lanes = 0;
        self.free_critical_lanes = 0;
        self.forget_what_it_held();
    }

    fn forget_what_it_held(&mut self) {
        self.resident.clear();
        self.batch.clear();
        self.num_unanswered = 0;
        self.last_given = None;
    }

    /// A partition of `circuit` is on its way there.
    pub fn was_given(&mut self, circuit: &CircuitId, batches: BatchPolicy, now: Duration) {
        self.batch.began(circuit, batches, now);
        self.num_unanswered += 1;
        self.last_given = Some((circuit.clone(), now));
    }

    /// When it should be done with what it was given last; `None` if nobody knows, or it should have been long since.
    fn free_in(&self, now: Duration) -> Option<Duration> {
        let (circuit, since) = self.last_given.as_ref()?;
        let mean_time = *self.mean_times.get(circuit)?;
        (now <= *since + mean_time * 2).then(|| (*since + mean_time).saturating_sub(now))
    }

    /// Spends a credit. A CRITICAL partition takes a normal lane only when its own are taken.
    ///
    /// # Panics
    /// If there is none: placement has looked before.
    pub fn spend(&mut self, priority: Priority) -> LaneKind {
        if priority == Priority::Critical && self.free_critical_lanes > 0 {
            self.free_critical_lanes -= 1;
            return LaneKind::Critical;
        }
        self.free_lanes =
            self.free_lanes.checked_sub(1).expect("placement names only devices with a free lane");
        LaneKind::Normal
    }

    /// A credit came back. Those of a withdrawn device are void, and those that an earlier life still held.
    pub fn freed(&mut self, life: u64, kind: LaneKind) {
        if self.service != Service::Ready || life != self.life {
            return;
        }
        match kind {
            LaneKind::Normal => self.free_lanes = (self.free_lanes + 1).min(self.num_lanes),
            LaneKind::Critical => {
                self.free_critical_lanes = (self.free_critical_lanes + 1).min(self.num_critical_lanes);
            }
        }
    }

    /// It answered a partition, whether or not anybody still waits for that.
    pub fn answered(&mut self) {
        self.num_unanswered = self.num_unanswered.saturating_sub(1);
    }

    /// What is there beyond the credits that are spent counts as far as there are lanes.
    pub fn lanes_busy(&self) -> u32 {
        self.num_spent().max(self.num_unanswered.min(self.num_lanes))
    }

    fn num_spent(&self) -> u32 {
        match self.service {
            Service::Ready => {
                self.num_lanes + self.num_critical_lanes - self.free_lanes - self.free_critical_lanes
            }
            _ => 0,
        }
    }

    /// Partitions that wait there, or are in a pass, without a credit.
    fn num_beyond_credits(&self) -> u32 {
        self.num_unanswered.saturating_sub(self.num_spent())
    }

    pub fn record_memory(&mut self, planned_bytes: u64, peak_bytes: u64) {
        if peak_bytes >= self.peak_bytes {
            (self.planned_bytes, self.peak_bytes) = (planned_bytes, peak_bytes);
        }
    }

    pub fn record_time(&mut self, circuit: &CircuitId, elapsed: Duration) {
        self.mean_times
            .entry(circuit.clone())
            // Weight 1/4 for the newest: follows a change within a few partitions, ignores one outlier.
            .and_modify(|mean| *mean = (*mean * 3 + elapsed) / 4)
            .or_insert(elapsed);
    }
}

/// All devices the engine was built with, by name.
pub(super) struct Devices(BTreeMap<DeviceId, Device>);

impl Devices {
    pub fn new(devices: impl IntoIterator<Item = (DeviceId, Role)>, policy: HealthPolicy) -> Self {
        Self(devices.into_iter().map(|(id, role)| (id, Device::new(policy, role))).collect())
    }

    pub fn get_mut(&mut self, id: &DeviceId) -> Option<&mut Device> {
        self.0.get_mut(id)
    }

    /// It will not come back: why.
    pub fn gone(&self, id: &DeviceId) -> Option<String> {
        match &self.0.get(id)?.service {
            Service::Gone { reason } => Some(format!("{id}: {reason}")),
            _ => None,
        }
    }

    pub fn get(&self, id: &DeviceId) -> Option<&Device> {
        self.0.get(id)
    }

    /// Whether it may take such work, by what was asked and what it is there for. (A fallback may, in the end.)
    pub fn is_allowed(&self, placement: &Placement, priority: Priority, id: &DeviceId) -> bool {
        is_allowed(placement, id) && self.0.get(id).is_some_and(|device| device.role.admits(priority))
    }

    /// Why no device will ever take such work: `None` if one may.
    pub fn none_for(&self, placement: &Placement, priority: Priority) -> Option<String> {
        if let Placement::Device(id) = placement {
            let Some(device) = self.0.get(id) else {
                return Some(format!("{id} is not one of this engine's"));
            };
            if !device.role.admits(priority) {
                return Some(format!("{id} is reserved for CRITICAL work"));
            }
            return self.gone(id);
        }
        let may_serve = self.may_serve(|id| self.is_allowed(placement, priority, id));
        (!may_serve).then(|| match self.all_gone() {
            Some(reason) => reason,
            None => "every device that is left is reserved for CRITICAL work".to_owned(),
        })
    }

    /// Whether only a fallback is left for a partition.
    pub fn needs_fallback(&self, priority: Priority, never: &BTreeSet<DeviceId>) -> bool {
        let is_left = |(id, device): (&DeviceId, &Device)| {
            let may_take = device.role != Role::Fallback && device.role.admits(priority);
            may_take && !matches!(device.service, Service::Gone { .. }) && !never.contains(id)
        };
        self.0.values().any(|device| device.role == Role::Fallback) && !self.0.iter().any(is_left)
    }

    /// Whether no constraint of a witness need be checked on the host before, whichever device will prove it: each that is not
    /// gone, but for a fallback, does so itself.
    pub fn check_rows(&self) -> bool {
        let is_left = |device: &&Device| {
            device.role != Role::Fallback && !matches!(device.service, Service::Gone { .. })
        };
        let mut left = self.0.values().filter(is_left).peekable();
        left.peek().is_some() && left.all(|device| device.checks_rows)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, &Device)> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&DeviceId, &mut Device)> {
        self.0.iter_mut()
    }

    /// Somewhere there is a credit, for CRITICAL work at least.
    pub fn have_free_lane(&self) -> bool {
        self.0.values().any(|device| device.free_lanes + device.free_critical_lanes > 0)
    }

    /// Devices in service, as a partition of `circuit` sees them.
    pub fn views(&self, circuit: &CircuitId, batches: BatchPolicy, now: Duration) -> Vec<DeviceView> {
        self.0
            .iter()
            .filter(|(_, device)| device.service == Service::Ready)
            .map(|(id, device)| {
                // An actor that died of a panic tells nobody, and its credits come back before its death is noticed.
                let is_alive = device.address.as_ref().is_some_and(|address| address.prove.connected());
                let rests = !is_alive || now < device.rests_until;
                DeviceView {
                    id: id.clone(),
                    free_lanes: if rests { 0 } else { device.free_lanes },
                    free_critical_lanes: if rests { 0 } else { device.free_critical_lanes },
                    num_lanes: device.num_lanes,
                    num_beyond_credits: device.num_beyond_credits(),
                    health: device.health.health(now),
                    role: device.role,
                    resident: device.resident.contains(circuit),
                    in_batch: device.batch.is_open_for(circuit, batches, now),
                    mean_time: device.mean_times.get(circuit).copied(),
                    free_in: device.free_in(now),
                }
            })
            .collect()
    }

    /// A device with a free lane has the circuit's SRS, or is in the middle of a batch of it; and has not had its fill.
    pub fn is_at_hand(&self, circuit: &CircuitId, batches: BatchPolicy, now: Duration) -> bool {
        self.0.values().any(|device| {
            device.free_lanes > 0
                && !device.batch.is_full_of(circuit, batches, now)
                && (device.resident.contains(circuit) || device.batch.is_open_for(circuit, batches, now))
        })
    }

    /// Whether an allowed device is in service or may come back.
    pub fn may_serve(&self, mut allowed: impl FnMut(&DeviceId) -> bool) -> bool {
        self.0.iter().any(|(id, device)| !matches!(device.service, Service::Gone { .. }) && allowed(id))
    }

    /// How far the roomiest device that may take such work is from what it needs at least, if that is too far for
    /// every one of them. `None` while one of them has not opened yet: it may have the room.
    pub fn shortfall(
        &self,
        placement: &Placement,
        priority: Priority,
        needs_bytes: impl Fn(MemoryModel) -> u64,
    ) -> Option<PlanError> {
        let mut closest: Option<(u64, u64)> = None;
        let mut candidates = self.0.iter().filter(|(id, device)| {
            self.is_allowed(placement, priority, id) && !matches!(device.service, Service::Gone { .. })
        });
        let all_short = candidates.all(|(_, device)| {
            let Some(memory) = &device.memory else { return false };
            let has = if priority == Priority::Critical {
                memory.critical_limit_bytes
            } else {
                memory.normal_limit_bytes
            };
            let needs = needs_bytes(memory.model);
            if closest.is_none_or(|(_, most)| has > most) {
                closest = Some((needs, has));
            }
            needs > has
        });
        let (needs_bytes, has_bytes) = closest.filter(|_| all_short)?;
        Some(PlanError::InsufficientVram { needs_bytes, has_bytes })
    }

    /// Nothing will come back: why.
    pub fn all_gone(&self) -> Option<String> {
        let reasons: Vec<String> = self.0.keys().map(|id| self.gone(id)).collect::<Option<_>>()?;
        Some(if reasons.is_empty() { "none is configured".to_owned() } else { reasons.join("; ") })
    }
}
