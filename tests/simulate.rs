//! The scenarios of the tree, through the real actors in virtual time: for a short while each, with their claims.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cuzk::policy::shared_pass::MAX_MEMBERS;
use cuzk::simulation::{simulate, Arrivals, Options, Report, Scenario, Simulated};
use cuzk::telemetry::event_log::read_events;
use cuzk::timeline::Timeline;

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name)
}

fn scenario(name: &str) -> Scenario {
    Scenario::read(&path_of(name)).unwrap()
}

fn run(name: &str, hours: f64) -> Report {
    let options = Options { hours: Some(hours), ..Options::default() };
    let report = simulate(&scenario(name), options).unwrap().report;
    println!("{report}");
    report
}

/// Every claim of the file holds, and something was proved at all.
fn holds(name: &str, hours: f64) -> Report {
    let report = run(name, hours);
    assert!(report.holds(), "{name}");
    assert!(report.kinds.values().map(|kind| kind.completed).sum::<u64>() > 0, "{name}");
    report
}

#[test]
fn one_20gb_card() {
    let report = holds("one-20gb-card.toml", 4.0);
    // It streams: nothing but work and a critical proof's is ever reserved.
    assert!(report.devices["sim-0"].peak_reserved_bytes < 20 << 30);
}

/// On a slow link, where copies are what counts, partitions that share passes are proved faster; whole jobs too.
#[test]
fn a_small_card_on_a_slow_link_proves_more_where_passes_are_shared() {
    let run = |batch_partitions| {
        let mut scenario = scenario("one-20gb-card.toml");
        scenario.engine.batch_partitions = batch_partitions;
        // PCIe 3.0 of eight lanes, before a card as fast as the one that was measured.
        (scenario.devices[0].link_gib_per_s, scenario.devices[0].speed) = (6.0, 1.0);
        scenario.host.workers = 64;
        scenario.streams.truncate(1);
        scenario.streams[0].arrivals = Arrivals::Backlog { jobs: 3 };
        let options = Options { hours: Some(3.0), ..Options::default() };
        let report = simulate(&scenario, options).unwrap().report;
        println!("{report}");
        assert!(report.holds());
        report
    };
    let (alone, shared) = (run(1), run(32));
    assert!(shared.devices["sim-0"].peak_reserved_bytes <= (20 << 30) / 10 * 9);
    let per_hour = |report: &Report| report.partitions_per_hour;
    assert!(per_hour(&shared) > 1.5 * per_hour(&alone), "{} {}", per_hour(&shared), per_hour(&alone));
}

#[test]
fn two_a6000() {
    let report = holds("two-a6000.toml", 3.0);
    let shares: Vec<u64> = report.devices.values().map(|device| device.partitions_verified).collect();
    assert!(shares[0].abs_diff(shares[1]) * 10 <= shares[0], "{shares:?}");
}

#[test]
fn eight_h200() {
    let report = holds("eight-h200.toml", 1.0);
    // It is the host's witnesses that decide: with half as many workers the cards wait for them.
    let mut starved = scenario("eight-h200.toml");
    starved.host.workers /= 2;
    let options = Options { hours: Some(1.0), ..Options::default() };
    let starved = simulate(&starved, options).unwrap().report;
    println!("{starved}");
    for (id, device) in &starved.devices {
        let (less, all) = (device.utilisation, report.devices[id].utilisation);
        assert!(less < 0.8 * all, "{id}: {less} with half the workers, {all} with all");
    }
}

#[test]
fn deadline_storm() {
    let report = holds("deadline-storm.toml", 2.5);
    let windows = &report.kinds[&cuzk::circuits::WorkKind::WindowPost];
    assert!(windows.completed >= 48, "{windows:?}");
}

#[test]
fn b33_one_device_that_corrupts_is_found_and_left_out() {
    let report = holds("one-device-corrupts.toml", 4.0);
    assert!(report.devices["sim-3"].invalid_proofs >= 2);
    let of_good = |id: &str| report.devices[id].invalid_proofs;
    assert_eq!([of_good("sim-0"), of_good("sim-1"), of_good("sim-2")], [0, 0, 0]);
}

#[test]
fn b45_rolling_hangs_lose_no_job() {
    let report = holds("rolling-hangs.toml", 12.0);
    let downs: u64 = report.devices.values().map(|device| device.times_down).sum();
    assert!(downs >= 3, "the faults did strike: {downs}");
    let put_aside: u64 = report.devices.values().map(|device| device.quarantines).sum();
    assert!(put_aside >= 1, "one that hangs often is put aside for a while");
}

#[test]
fn fleet_day() {
    holds("fleet-day.toml", 3.0);
}

#[test]
fn every_scenario_of_the_tree_reads() {
    let mut count = 0;
    for entry in std::fs::read_dir(path_of("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            Scenario::read(&path).unwrap();
            count += 1;
        }
    }
    assert!(count >= 7, "{count}");
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_does_not() {
    let report = |seed| {
        let options = Options { seed: Some(seed), hours: Some(1.0), ..Options::default() };
        serde_json::to_string(&simulate(&scenario("fleet-day.toml"), options).unwrap().report).unwrap()
    };
    assert_eq!(report(11), report(11));
    assert_ne!(report(11), report(12));
}

#[test]
fn events_tell_the_whole_story() {
    let dir = tempfile::tempdir().unwrap();
    let events = dir.path().join("events.jsonl");
    let options = Options {
        hours: Some(0.5),
        events: Some(events.clone()),
        keep: Some(Duration::ZERO..Duration::from_secs(600)),
        ..Options::default()
    };
    let Simulated { report, events: kept } = simulate(&scenario("two-a6000.toml"), options).unwrap();
    let all = read_events(&events).unwrap();
    assert_eq!(all.len() as u64, report.num_events);
    assert!(!kept.is_empty() && kept.len() < all.len());

    let summary = Timeline::new(&all).summary();
    for (id, device) in &report.devices {
        assert_eq!(summary.devices[id].partitions_verified, device.partitions_verified);
        assert_eq!(summary.devices[id].peak_reserved_bytes, device.peak_reserved_bytes);
        // A device of two lanes for everything and one for CRITICAL work, and of those in which partitions share passes.
        let num_lanes = summary.devices[id].lanes_busy.len();
        assert!((3..=3 + MAX_MEMBERS as usize).contains(&num_lanes), "{num_lanes}");
        assert_eq!(summary.devices[id].stage_mean_s.len(), 9);
    }
    for (kind, of) in &report.kinds {
        assert_eq!(summary.kinds[kind.as_str()].completed, of.completed);
    }
    assert!(Timeline::new(&kept).to_svg().contains("sim-1  RTX A6000"));
}

#[test]
fn a_claim_that_does_not_hold_is_said_to_be_broken() {
    let mut impossible = scenario("two-a6000.toml");
    impossible.expect.partitions_per_hour_min = Some(1e6);
    let options = Options { hours: Some(0.2), ..Options::default() };
    let report = simulate(&impossible, options).unwrap().report;
    assert!(!report.holds() && report.to_string().contains("DOES NOT HOLD: partitions per hour"));
}
