//! What is said of a finished job: a summary for people, one JSON object for scripts.

use std::collections::BTreeMap;
use std::time::Duration;

use cuzk::circuits::CircuitSpec;
use cuzk::groth16::proof::PROOF_BYTES;
use cuzk::messages::job::{JobTimings, ProofOutcome};
use cuzk::telemetry::process::peak_resident_bytes;
use serde_json::{json, Map, Value};

use super::run::{Finished, Proved};
use crate::ui;

/// One line for scripts. Every line has every field: one that is not known (the circuit of an unreadable file, the
/// timings of a job that failed) is null.
pub fn json(finished: &Finished) -> Value {
    let (file, request) = (finished.file.display().to_string(), finished.request);
    match &finished.result {
        Ok(proved) => {
            let outcome = &proved.outcome;
            let devices: Vec<&str> = outcome.devices.iter().map(|device| device.as_str()).collect();
            json!({
                "file": file,
                "request": request,
                "circuit": outcome.circuit.as_str(),
                "partitions": num_partitions(outcome),
                "proof": hex::encode(&outcome.proof),
                "verified": true,
                "replayed": proved.replayed,
                "timings_ms": timings_ms(&outcome.timings),
                "devices": devices,
                "peak_rss_bytes": peak_resident_bytes(),
            })
        }
        Err(failure) => json!({
            "file": file,
            "request": request,
            "circuit": finished.circuit,
            "partitions": finished.partitions,
            "proof": null,
            "verified": false,
            "replayed": false,
            "timings_ms": null,
            "devices": null,
            "peak_rss_bytes": peak_resident_bytes(),
            "error": failure.as_json(),
        }),
    }
}

/// An engine returns no proof that it has not verified, both with its own verifier and with Filecoin's.
pub fn text(finished: &Finished, proved: &Proved) -> String {
    let outcome = &proved.outcome;
    let name = match finished.request {
        0 => finished.file.display().to_string(),
        request => format!("{}, request {request}", finished.file.display()),
    };
    let verified = if proved.replayed { "verified, and equal to the recorded proof" } else { "verified" };
    let mut rows = vec![
        row("circuit", &circuit(outcome)),
        row("proof", &format!("{}, {verified}", ui::bytes(outcome.proof.len() as u64))),
        row("devices", &devices(outcome)),
        row("time", &times(&outcome.timings)),
    ];
    if outcome.retries > 0 {
        rows.push(row("proved again", &ui::count(u64::from(outcome.retries), "partition")));
    }
    if let Some(bytes) = peak_resident_bytes() {
        rows.push(row("peak memory", &ui::bytes(bytes)));
    }
    for (partition, proof) in outcome.proof.chunks(PROOF_BYTES).enumerate() {
        let label =
            if num_partitions(outcome) == 1 { "bytes".to_owned() } else { format!("bytes {partition}") };
        rows.push(row(&label, &hex::encode(proof)));
    }
    format!("{name}: proved\n{}", ui::columns(&rows))
}

fn row(label: &str, value: &str) -> Vec<String> {
    vec![format!("  {label}"), value.to_owned()]
}

fn num_partitions(outcome: &ProofOutcome) -> usize {
    outcome.proof.len() / PROOF_BYTES
}

fn circuit(outcome: &ProofOutcome) -> String {
    let name = outcome.circuit.as_str();
    let partitions = ui::count(num_partitions(outcome) as u64, "partition");
    match CircuitSpec::by_id(name).and_then(|spec| spec.sizes()) {
        Some(sizes) => format!(
            "{name}, {partitions} of {} constraints (domain 2^{})",
            ui::grouped(sizes.constraints),
            sizes.domain_log2
        ),
        None => format!("{name}, {partitions}"),
    }
}

fn devices(outcome: &ProofOutcome) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for device in &outcome.devices {
        *counts.entry(device.as_str()).or_default() += 1;
    }
    let named: Vec<String> = counts
        .iter()
        .map(|(device, count)| format!("{device} ({})", ui::count(*count, "partition")))
        .collect();
    named.join(", ")
}

fn times(timings: &JobTimings) -> String {
    let parts: Vec<String> =
        parts(timings).into_iter().map(|(name, time)| format!("{name} {}", ui::duration(time))).collect();
    format!("{} ({})", ui::duration(timings.total), parts.join(", "))
}

/// All but the total, in the order in which they happen.
fn parts(timings: &JobTimings) -> Vec<(&'static str, Duration)> {
    let mut parts = vec![
        ("queue_wait", timings.queue_wait),
        ("circuit_load", timings.circuit_load),
        ("synthesis", timings.synthesis),
    ];
    parts.extend(timings.stages.iter().map(|(stage, time)| (stage.as_str(), *time)));
    parts.push(("verify", timings.verify));
    parts
}

fn timings_ms(timings: &JobTimings) -> Value {
    let ms = |time: Duration| Value::from(time.as_micros() as f64 / 1000.0);
    let mut object: Map<String, Value> =
        parts(timings).into_iter().map(|(name, time)| (name.to_owned(), ms(time))).collect();
    object.insert("total".to_owned(), ms(timings.total));
    Value::Object(object)
}
