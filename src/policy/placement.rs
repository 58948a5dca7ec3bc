//! Which device a partition goes to.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::DeviceId;
use crate::messages::job::{Placement, Priority};
use crate::policy::health::Health;
use crate::policy::role::Role;

/// A device that is in service, as one partition sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceView {
    pub id: DeviceId,
    /// Credits left for any work.
    pub free_lanes: u32,
    /// Credits left for CRITICAL work only.
    pub free_critical_lanes: u32,
    pub num_lanes: u32,
    /// Partitions that are there without a credit: they wait for others to share a pass with, or are in one.
    pub num_beyond_credits: u32,
    pub health: Health,
    pub role: Role,
    /// The partition's SRS is resident there.
    pub resident: bool,
    /// The device is in the middle of a batch of this circuit ([`crate::policy::batch`]).
    pub in_batch: bool,
    /// Mean time of this circuit's partitions there, if any was proved.
    pub mean_time: Option<Duration>,
    /// When a lane is expected to become free there, from now. `None`: not known, or overdue.
    pub free_in: Option<Duration>,
}

impl DeviceView {
    fn has_credit(&self, priority: Priority) -> bool {
        self.free_lanes > 0 || (priority == Priority::Critical && self.free_critical_lanes > 0)
    }

    /// Under suspicion, a device gets one partition at a time.
    fn takes_more(&self) -> bool {
        let is_idle = self.free_lanes == self.num_lanes && self.num_beyond_credits == 0;
        self.health != Health::Probation || is_idle
    }

    fn can_take(&self, wish: &Wish<'_>) -> bool {
        self.has_credit(wish.priority) && self.takes_more()
    }

    fn is_allowed(&self, wish: &Wish<'_>) -> bool {
        let is_named = match wish.placement {
            Placement::Any => self.role != Role::Fallback || wish.needs_fallback,
            Placement::Device(id) => self.id == *id,
        };
        is_named && self.role.admits(wish.priority) && !wish.never.contains(&self.id)
    }
}

/// What a partition asks of a device.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    pub priority: Priority,
    pub placement: &'a Placement,
    /// Devices that failed this partition: taken again only where no other is in service.
    pub avoid: &'a BTreeSet<DeviceId>,
    /// Devices that can never run this partition (it does not fit).
    pub never: &'a BTreeSet<DeviceId>,
    /// No other device than a fallback is left for it.
    pub needs_fallback: bool,
    /// Partitions that wait for a device, this one included.
    pub num_waiting: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Device(DeviceId),
    /// A device will do once a lane is free.
    Wait,
    /// No device in service may run it.
    Nowhere,
}

/// Picks one device: allowed, not avoided if that can be, healthiest, kept free for such work, least busy, SRS resident
/// or in the middle of a batch of it, fastest. If a faster one that is busy would have it done sooner, it waits for that.
///
/// A quarantined device is left out while any other may do the work. It is the last resort, and safe as one: no
/// proof counts before it is verified.
pub fn place(wish: &Wish<'_>, devices: &[DeviceView]) -> Choice {
    let allowed: Vec<&DeviceView> = devices.iter().filter(|d| d.is_allowed(wish)).collect();
    if allowed.is_empty() {
        return Choice::Nowhere;
    }
    let preferred: [&dyn Fn(&DeviceView) -> bool; 4] = [
        &|d| d.health != Health::Quarantined && !wish.avoid.contains(&d.id),
        &|d| d.health != Health::Quarantined,
        &|d| !wish.avoid.contains(&d.id),
        &|_| true,
    ];
    let candidates = preferred
        .iter()
        .map(|keep| allowed.iter().copied().filter(|d| keep(d)).collect::<Vec<_>>())
        .find(|kept| !kept.is_empty())
        .unwrap_or_default();
    let best = candidates.iter().filter(|d| d.can_take(wish)).min_by_key(|d| {
        let busy = (d.num_lanes - d.free_lanes.min(d.num_lanes)) * 1000 / d.num_lanes.max(1);
        let is_kept_free = d.role == Role::ReservedForCritical;
        // One that gathers partitions has to do; one that is idle has not.
        let gathers = d.num_beyond_credits > 0;
        let has_key = d.resident || d.in_batch;
        let time = d.mean_time.unwrap_or(Duration::ZERO);
        (d.health, !is_kept_free, busy, gathers, !has_key, time, d.id.clone())
    });
    match best {
        Some(best) if !is_worth_waiting(wish, best, &candidates) => Choice::Device(best.id.clone()),
        _ => Choice::Wait,
    }
}

/// Whether a busy device would be done with everything that waits before `slow` is done with this one alone. CRITICAL
/// work does not gamble on that.
fn is_worth_waiting(wish: &Wish<'_>, slow: &DeviceView, candidates: &[&DeviceView]) -> bool {
    let Some(slow_time) = slow.mean_time.filter(|_| wish.priority != Priority::Critical) else {
        return false;
    };
    candidates.iter().any(|fast| {
        let (Some(free_in), Some(time)) = (fast.free_in, fast.mean_time) else { return false };
        let num_rounds = wish.num_waiting.max(1).div_ceil(fast.num_lanes.max(1));
        let is_busy = !fast.can_take(wish) && fast.health <= slow.health;
        is_busy && free_in.saturating_add(time.saturating_mul(num_rounds)) < slow_time
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device(name: &str, free_lanes: u32, health: Health) -> DeviceView {
        DeviceView {
            id: DeviceId::new(name),
            free_lanes,
            free_critical_lanes: 0,
            num_lanes: 2,
            num_beyond_credits: 0,
            health,
            role: Role::General,
            resident: false,
            in_batch: false,
            mean_time: None,
            free_in: None,
        }
    }

    fn wish<'a>(
        priority: Priority,
        placement: &'a Placement,
        avoid: &'a BTreeSet<DeviceId>,
        never: &'a BTreeSet<DeviceId>,
    ) -> Wish<'a> {
        Wish { priority, placement, avoid, never, needs_fallback: false, num_waiting: 1 }
    }

    fn place_any(devices: &[DeviceView], avoid: &[&str]) -> Choice {
        let avoid = avoid.iter().map(|name| DeviceId::new(*name)).collect();
        place(&wish(Priority::Normal, &Placement::Any, &avoid, &BTreeSet::new()), devices)
    }

    fn on(name: &str) -> Choice {
        Choice::Device(DeviceId::new(name))
    }

    #[test]
    fn spreads_before_it_doubles_up() {
        let devices = [device("a", 1, Health::Healthy), device("b", 2, Health::Healthy)];
        assert_eq!(place_any(&devices, &[]), on("b"));
        assert_eq!(place_any(&[device("a", 0, Health::Healthy)], &[]), Choice::Wait);
        assert_eq!(place_any(&[], &[]), Choice::Nowhere);
    }

    #[test]
    fn a_failed_partition_moves_and_waits_for_the_other_device() {
        let devices = [device("a", 2, Health::Degraded), device("b", 0, Health::Healthy)];
        assert_eq!(place_any(&devices, &["a"]), Choice::Wait);
        assert_eq!(place_any(&devices[..1], &["a"]), on("a"));
    }

    #[test]
    fn quarantined_is_the_last_resort() {
        let devices = [device("a", 2, Health::Quarantined), device("b", 0, Health::Degraded)];
        assert_eq!(place_any(&devices, &[]), Choice::Wait);
        assert_eq!(place_any(&devices[..1], &["a"]), on("a"));
    }

    #[test]
    fn an_idle_device_goes_before_one_that_gathers_partitions() {
        let gathers = |health| DeviceView { num_beyond_credits: 3, in_batch: true, ..device("a", 2, health) };
        let devices = [gathers(Health::Healthy), device("b", 2, Health::Healthy)];
        assert_eq!(place_any(&devices, &[]), on("b"));
        assert_eq!(place_any(&devices[..1], &[]), on("a"));
        let one_lane_free = [gathers(Health::Healthy), device("b", 1, Health::Healthy)];
        assert_eq!(place_any(&one_lane_free, &[]), on("a"), "it computes nothing yet");
        assert_eq!(
            place_any(&[gathers(Health::Probation)], &[]),
            Choice::Wait,
            "one at a time under suspicion"
        );
    }

    #[test]
    fn critical_lanes_are_for_critical_work() {
        let busy = DeviceView { free_critical_lanes: 1, ..device("a", 0, Health::Healthy) };
        assert_eq!(place_any(std::slice::from_ref(&busy), &[]), Choice::Wait);
        let none = BTreeSet::new();
        let wish = wish(Priority::Critical, &Placement::Any, &none, &none);
        assert_eq!(place(&wish, &[busy]), on("a"));
    }

    #[test]
    fn b09_a_reserved_device_takes_critical_work_and_nothing_else() {
        let reserved = DeviceView { role: Role::ReservedForCritical, ..device("b", 2, Health::Healthy) };
        let devices = [device("a", 0, Health::Healthy), reserved.clone()];
        assert_eq!(place_any(&devices, &[]), Choice::Wait);
        assert_eq!(place_any(&devices, &["a"]), Choice::Wait, "not even for want of any other");
        assert_eq!(place_any(&devices[1..], &[]), Choice::Nowhere);
        let none = BTreeSet::new();
        let named = Placement::Device(DeviceId::new("b"));
        assert_eq!(place(&wish(Priority::High, &named, &none, &none), &devices), Choice::Nowhere);
        let both = [device("a", 2, Health::Healthy), reserved];
        let critical = wish(Priority::Critical, &Placement::Any, &none, &none);
        assert_eq!(place(&critical, &both), on("b"), "it is kept free for this");
    }

    #[test]
    fn b54_a_fallback_takes_only_what_needs_it() {
        let fallback = DeviceView { role: Role::Fallback, ..device("cpu", 2, Health::Healthy) };
        let devices = [device("a", 0, Health::Healthy), fallback];
        assert_eq!(place_any(&devices, &[]), Choice::Wait);
        assert_eq!(place_any(&devices[1..], &[]), Choice::Nowhere);
        let none = BTreeSet::new();
        let needs = Wish { needs_fallback: true, ..wish(Priority::Low, &Placement::Any, &none, &none) };
        assert_eq!(place(&needs, &devices), on("cpu"));
    }

    #[test]
    fn the_faster_one_goes_first_and_is_waited_for_while_that_is_sooner() {
        let secs = |secs| Some(Duration::from_secs(secs));
        let slow = DeviceView { mean_time: secs(60), ..device("a", 2, Health::Healthy) };
        let fast = DeviceView { mean_time: secs(5), ..device("b", 2, Health::Healthy) };
        assert_eq!(place_any(&[slow.clone(), fast.clone()], &[]), on("b"));
        let busy = DeviceView { free_lanes: 0, free_in: secs(4), ..fast };
        let devices = [slow, busy];
        assert_eq!(place_any(&devices, &[]), Choice::Wait);
        let none = BTreeSet::new();
        let of_many = |num_waiting, priority| {
            let wish = Wish { num_waiting, ..wish(priority, &Placement::Any, &none, &none) };
            place(&wish, &devices)
        };
        assert_eq!(of_many(22, Priority::Normal), Choice::Wait, "4 s and eleven rounds of 5 s");
        assert_eq!(of_many(23, Priority::Normal), on("a"));
        assert_eq!(of_many(1, Priority::Critical), on("a"));
        let overdue = [devices[0].clone(), DeviceView { free_in: None, ..devices[1].clone() }];
        assert_eq!(place_any(&overdue, &[]), on("a"), "nobody knows when it will be free");
    }

    proptest! {
        /// A device that is named has a lane, is allowed, is there for such work and is the wished one; and nobody waits
        /// where every device that may take the work is idle.
        #[test]
        fn never_over_credit_and_never_idle(
            lanes in prop::collection::vec(
                (0u32..3, 0usize..4, any::<bool>(), any::<bool>(), 0usize..3, prop::option::of((0u64..9, 0u64..9))),
                0..6,
            ),
            fixed in prop::option::of(0usize..6),
            is_critical: bool,
            needs_fallback: bool,
            num_waiting in 0u32..9,
        ) {
            let health = [Health::Healthy, Health::Degraded, Health::Probation, Health::Quarantined];
            let roles = [Role::General, Role::ReservedForCritical, Role::Fallback];
            let devices: Vec<DeviceView> = lanes
                .iter()
                .enumerate()
                .map(|(i, (free, h, _, _, role, times))| DeviceView {
                    role: roles[*role],
                    mean_time: times.map(|(mean, _)| Duration::from_secs(mean)),
                    free_in: times.map(|(_, free_in)| Duration::from_secs(free_in)),
                    ..device(&format!("d{i}"), *free, health[*h])
                })
                .collect();
            let pick = |is_in: Vec<bool>| -> BTreeSet<DeviceId> {
                is_in.iter().zip(&devices).filter(|(is_in, _)| **is_in).map(|(_, d)| d.id.clone()).collect()
            };
            let avoid = pick(lanes.iter().map(|l| l.2).collect());
            let never = pick(lanes.iter().map(|l| l.3).collect());
            let placement = fixed.map_or(Placement::Any, |i| Placement::Device(DeviceId::new(format!("d{i}"))));
            let priority = if is_critical { Priority::Critical } else { Priority::Normal };
            let wish = Wish { needs_fallback, num_waiting, ..wish(priority, &placement, &avoid, &never) };
            match place(&wish, &devices) {
                Choice::Device(id) => {
                    let chosen = devices.iter().find(|d| d.id == id).unwrap();
                    prop_assert!(chosen.free_lanes > 0 && !never.contains(&id));
                    prop_assert!(chosen.role.admits(priority));
                    match &placement {
                        Placement::Device(wanted) => prop_assert_eq!(wanted, &id),
                        Placement::Any => prop_assert!(chosen.role != Role::Fallback || needs_fallback),
                    }
                }
                Choice::Wait => {
                    let mut allowed = devices.iter().filter(|d| d.is_allowed(&wish));
                    prop_assert!(allowed.any(|d| !d.can_take(&wish)));
                }
                Choice::Nowhere => prop_assert!(!devices.iter().any(|d| d.is_allowed(&wish))),
            }
        }
    }
}
