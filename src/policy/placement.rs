//! Which device a partition goes to.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::DeviceId;
use crate::messages::job::{Placement, Priority};
use crate::policy::health::Health;

/// A device that is in service, as one partition sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceView {
    pub id: DeviceId,
    /// Credits left for any work.
    pub free_lanes: u32,
    /// Credits left for CRITICAL work only.
    pub free_critical_lanes: u32,
    pub num_lanes: u32,
    pub health: Health,
    /// The partition's SRS is resident there.
    pub resident: bool,
    /// Mean time of this circuit's partitions there, if any was proved.
    pub mean_time: Option<Duration>,
}

impl DeviceView {
    fn has_credit(&self, priority: Priority) -> bool {
        self.free_lanes > 0 || (priority == Priority::Critical && self.free_critical_lanes > 0)
    }

    /// Under suspicion, a device gets one partition at a time.
    fn takes_more(&self) -> bool {
        self.health != Health::Probation || self.free_lanes == self.num_lanes
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

/// Picks one device: allowed, not avoided if that can be, healthiest, least busy, SRS resident, fastest.
///
/// A quarantined device is left out while any other may do the work. It is the last resort, and safe as one: no
/// proof counts before it is verified.
pub fn place(wish: &Wish<'_>, devices: &[DeviceView]) -> Choice {
    let allowed: Vec<&DeviceView> = devices
        .iter()
        .filter(|d| !wish.never.contains(&d.id))
        .filter(|d| match wish.placement {
            Placement::Any => true,
            Placement::Device(id) => d.id == *id,
        })
        .collect();
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
    candidates
        .into_iter()
        .filter(|d| d.has_credit(wish.priority) && d.takes_more())
        .min_by_key(|d| {
            let busy = (d.num_lanes - d.free_lanes.min(d.num_lanes)) * 1000 / d.num_lanes.max(1);
            (d.health, busy, !d.resident, d.mean_time.unwrap_or(Duration::ZERO), d.id.clone())
        })
        .map_or(Choice::Wait, |d| Choice::Device(d.id.clone()))
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
            health,
            resident: false,
            mean_time: None,
        }
    }

    fn place_any(devices: &[DeviceView], avoid: &[&str]) -> Choice {
        let avoid = avoid.iter().map(|name| DeviceId::new(*name)).collect();
        let wish = Wish {
            priority: Priority::Normal,
            placement: &Placement::Any,
            avoid: &avoid,
            never: &BTreeSet::new(),
        };
        place(&wish, devices)
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
    fn critical_lanes_are_for_critical_work() {
        let busy = DeviceView { free_critical_lanes: 1, ..device("a", 0, Health::Healthy) };
        assert_eq!(place_any(std::slice::from_ref(&busy), &[]), Choice::Wait);
        let none = BTreeSet::new();
        let wish =
            Wish { priority: Priority::Critical, placement: &Placement::Any, avoid: &none, never: &none };
        assert_eq!(place(&wish, &[busy]), on("a"));
    }

    proptest! {
        /// A device that is named has a lane, is allowed and is the wished one.
        #[test]
        fn never_over_credit(
            lanes in prop::collection::vec((0u32..3, 0u8..4, any::<bool>(), any::<bool>()), 0..6),
            fixed in prop::option::of(0usize..6),
        ) {
            let health = [Health::Healthy, Health::Degraded, Health::Probation, Health::Quarantined];
            let devices: Vec<DeviceView> = lanes
                .iter()
                .enumerate()
                .map(|(i, (free, h, _, _))| device(&format!("d{i}"), *free, health[*h as usize]))
                .collect();
            let pick = |on: fn(&(u32, u8, bool, bool)) -> bool| -> BTreeSet<DeviceId> {
                lanes.iter().zip(&devices).filter(|(l, _)| on(l)).map(|(_, d)| d.id.clone()).collect()
            };
            let (avoid, never) = (pick(|l| l.2), pick(|l| l.3));
            let placement = fixed.map_or(Placement::Any, |i| Placement::Device(DeviceId::new(format!("d{i}"))));
            let wish = Wish { priority: Priority::Normal, placement: &placement, avoid: &avoid, never: &never };
            if let Choice::Device(id) = place(&wish, &devices) {
                let chosen = devices.iter().find(|d| d.id == id).unwrap();
                prop_assert!(chosen.free_lanes > 0);
                prop_assert!(!never.contains(&id));
                if let Placement::Device(wanted) = &placement {
                    prop_assert_eq!(wanted, &id);
                }
            }
        }
    }
}
