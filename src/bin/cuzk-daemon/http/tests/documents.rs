//! What is served, and what is said of it: `docs/observability.md`, the alerts, the dashboard.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::rig::{scenario, Rig};

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The rows of the table whose first column has this name.
fn table(first_column: &str) -> Vec<Vec<String>> {
    let text = read("docs/observability.md");
    let (_, rest) = text.split_once(&format!("\n| {first_column} |")).expect("the table is there");
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// A job of each kind has been through, one waits, one attempt failed and one proof was wrong: everything has a value.
pub fn rig_with_everything() -> Rig {
    let mut scenario = scenario();
    scenario.devices.swap(0, 2);
    scenario.devices.truncate(2);
    // One failure each: more would take a device out.
    scenario.devices[0].faults = "sticky@2.upload".into();
    scenario.devices[1].faults = "corrupt@3".into();
    for circuit in &mut scenario.circuits {
        circuit.witness_s /= 20.0;
        let stages = &mut circuit.stage_ms;
        let all = [
            &mut stages.upload,
            &mut stages.evaluate,
            &mut stages.quotient,
            &mut stages.sum_h,
            &mut stages.sum_l,
            &mut stages.sum_a,
            &mut stages.sum_b_g1,
            &mut stages.sum_b_g2,
        ];
        all.into_iter().for_each(|stage| *stage /= 20.0);
    }
    let rig = Rig::start(scenario);
    let jobs: Vec<_> = ["porep-32g", "snap-32g", "wpost-32g", "winning-32g"]
        .map(|circuit| rig.submit(circuit, circuit))
        .into_iter()
        .collect();
    jobs.iter().for_each(|job| drop(job.wait_blocking().unwrap()));
    rig
}

#[test]
fn b58_every_metric_is_documented_with_its_type_and_labels_and_every_documented_one_is_served() {
    let rig = rig_with_everything();
    let text = rig.get("/metrics").body;
    let mut served: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            family = name.to_owned();
            assert!(
                served.insert(family.clone(), (kind.to_owned(), BTreeSet::new())).is_none(),
                "{name} twice"
            );
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} is under {family}");
            let names = line.split_once('{').map_or("", |(_, rest)| rest);
            let labels = names.split("=\"").map(|part| part.rsplit([',', '"']).next().unwrap().to_owned());
            let mut labels: Vec<String> = labels.collect();
            labels.pop();
            served.get_mut(&family).unwrap().1.extend(labels.into_iter().filter(|label| label != "le"));
        }
    }
    let documented: BTreeMap<String, (String, BTreeSet<String>)> = table("metric")
        .into_iter()
        .map(|row| {
            let labels = row[2].split_whitespace().map(str::to_owned).collect();
            (row[0].trim_matches('`').to_owned(), (row[1].clone(), labels))
        })
        .collect();
    assert!(documented.len() > 50, "{}", documented.len());
    for (name, served) in &served {
        assert_eq!(Some(served), documented.get(name), "{name}: served, and documented");
    }
    for name in documented.keys() {
        assert!(served.contains_key(name), "{name} is documented and not served");
    }
}

/// Names and units as Prometheus' own guide has them.
#[test]
fn metrics_follow_the_conventions() {
    for row in table("metric") {
        let (name, kind) = (row[0].trim_matches('`'), row[1].as_str());
        assert!(name.starts_with("cuzk_") || name.starts_with("process_"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        assert_eq!(name.trim_end_matches("_total").ends_with("_seconds"), name.contains("seconds"), "{name}");
        assert!(kind != "histogram" || name.ends_with("_seconds"), "{name}");
        for unit in ["ms", "us", "percent", "mib", "gib", "kb", "mhz", "millis"] {
            assert!(name.split('_').all(|word| word != unit), "{name} is in no base unit");
        }
    }
}

/// Every path of a document, with `[]` for any element.
fn paths(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            paths(value, &at, into);
        }),
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), into)),
        _ => drop(into.insert(at.to_owned())),
    }
}

#[test]
fn b58_every_name_of_the_status_is_documented_and_every_documented_one_is_there() {
    let rig = rig_with_everything();
    // Something runs, something waits, and there is a reason for something.
    let jobs: Vec<_> = (0..4).map(|index| rig.submit("porep-32g", &format!("more-{index}"))).collect();
    let is_full = |status: &Value| {
        let any = |list: &str| status[list].as_array().is_some_and(|list| !list.is_empty());
        let mut devices = status["devices"].as_array().unwrap().iter();
        any("jobs")
            && any("incidents")
            && any("reasons")
            && devices.any(|device| !device["running"].as_array().unwrap().is_empty())
    };
    let status = rig.wait_status("something of everything", is_full);
    let mut served = BTreeSet::new();
    paths(&status, "", &mut served);
    let documented: BTreeSet<String> =
        table("name").iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    let undocumented: Vec<_> = served.difference(&documented).collect();
    assert!(undocumented.is_empty(), "served, not documented: {undocumented:?}");
    let unserved: Vec<_> = documented.difference(&served).collect();
    assert!(unserved.is_empty(), "documented, not served: {unserved:?}");
    assert_eq!(status["format"], 1);
    assert_eq!(status["stages"].as_array().unwrap().len(), 9);
    assert_eq!(status["rates"]["partitions"].as_array().unwrap().len(), 60);
    drop(jobs);
}

/// Words of an expression that are names of our metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("cuzk_") || word.starts_with("process_"));
    let family = |word: &str| {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix));
        stem.unwrap_or(word).to_owned()
    };
    ours.map(family).collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_that_are_there() {
    let documented: BTreeSet<String> =
        table("metric").iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<&str> = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() > 25);
    let alerts = read("packaging/prometheus/alerts.yml");
    for (what, text) in [("the dashboard", expressions.join("\n")), ("alerts.yml", alerts.clone())] {
        let used = metrics_in(&text);
        assert!(used.len() > 10, "{what}: {used:?}");
        let unknown: Vec<_> = used.difference(&documented).collect();
        assert!(unknown.is_empty(), "{what} uses {unknown:?}");
    }
    // What to do about each is said.
    let said = read("docs/observability.md");
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(said.contains(alert), "docs/observability.md does not say what to do about {alert}");
    }
}
