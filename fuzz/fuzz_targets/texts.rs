//! Text files of other hands and other programs. The first byte says which: `E`: an event log, `S`: a scenario of the
//! simulator, `P`: a network's list of parameter files. Every view of what is accepted answers.
#![no_main]

use cuzk::circuits::CircuitSpec;
use cuzk::params::Manifest;
use cuzk::simulation::scenario::Scenario;
use cuzk::telemetry::event_log::read_events;
use cuzk::timeline::Timeline;
use cuzk_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fn event_log(bytes: &[u8]) {
    let Ok(events) = with_file("events", bytes, read_events) else { return };
    let timeline = Timeline::new(&events);
    let _ = (timeline.span_us(), timeline.summary(), timeline.to_svg());
    timeline.write_chrome_trace(&mut std::io::sink()).expect("a sink takes everything");
}

fn scenario(bytes: &[u8]) {
    let Ok(scenario) = with_file("scenario", bytes, Scenario::read) else { return };
    scenario.validate().expect("an accepted scenario is valid");
    let _ = scenario.horizon();
}

fn parameters(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(manifest) = Manifest::from_json(text) else { return };
    for circuit in CircuitSpec::all() {
        for wanted in manifest.files_of(&circuit).into_iter().flatten() {
            let name = &wanted.file.name;
            assert!(!name.contains('/') && !name.starts_with('.'), "{name:?} leads out of its folder");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((b'E', bytes)) => event_log(bytes),
        Some((b'S', bytes)) => scenario(bytes),
        Some((b'P', bytes)) => parameters(bytes),
        _ => {}
    }
});
