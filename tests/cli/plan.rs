//! `cuzk plan`, and how a process ends that has lost its devices.

use super::{command, cuzk, params, Done, WINDOW};

const PLAN: [&str; 9] =
    ["plan", "--gpus", "3", "--vram", "24GiB", "--ram", "128GiB", "--circuit", "porep-32g"];

#[test]
fn b20_what_do_i_need_has_an_answer() {
    let json = cuzk(&[&PLAN[..], &["--json"]].concat()).expect(0);
    let lines = json.json_lines();
    let [answer] = &lines[..] else { panic!("one object: {lines:?}") };
    assert_eq!(answer["fits"], true);
    let plan = &answer["plan"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("no number: {value}"));
    let concurrency = number(&plan["concurrency"]);
    assert!((1..=6).contains(&concurrency), "{plan}");
    let (device, host) = (&plan["device"], &plan["host"]);
    assert!(number(&device["peak_bytes"]) <= 24 << 30 && number(&host["peak_bytes"]) <= 128 << 30);
    assert!(number(&device["least_budget_bytes"]) <= number(&device["budget_bytes"]));
    assert_eq!(device["stages"].as_array().unwrap().len(), 9);
    assert!(plan["speed"]["partition_ms"].as_f64().unwrap() > 0.0);
    assert!(plan["speed"]["source"].as_str().unwrap().contains("H200"), "{plan}");

    let again = cuzk(&[&PLAN[..], &["--json"]].concat()).expect(0);
    assert_eq!(json.stdout, again.stdout, "the same every time");
    let text = cuzk(&PLAN).expect(0).stdout;
    assert!(text.contains(&format!("{concurrency} partition")) && text.contains("H200"), "{text}");
}

#[test]
fn b20_what_does_not_fit_ends_with_an_error() {
    let small = ["plan", "--gpus", "1", "--vram", "8GiB", "--ram", "128GiB", "--circuit", "porep-32g"];
    let run = cuzk(&[&small[..], &["--json"]].concat()).expect(1);
    let lines = run.json_lines();
    assert_eq!(lines[0]["fits"], false);
    assert!(lines[0]["reason"].as_str().unwrap().contains("of device memory at least"), "{lines:?}");
    assert!(run.stderr.contains("porep-32g does not fit"), "{}", run.stderr);
    let run = cuzk(&small).expect(1);
    assert_eq!(run.stdout, "");
    for (args, hint) in [
        (&["plan", "--gpus", "1", "--vram", "8", "--ram", "1GiB", "--circuit", "porep-2k"][..], "16GiB"),
        (
            &["plan", "--gpus", "1", "--vram", "8GiB", "--ram", "1GiB", "--circuit", "porep-3k"],
            "unknown circuit",
        ),
    ] {
        let run = cuzk(args).expect(2);
        assert!(run.stderr.contains(hint), "{}", run.stderr);
    }
}

/// One device, which is lost for good under its first partition; and little patience.
fn prove_on_a_lost_device(more: &[(&str, &str)]) -> Done {
    let manifest = format!("{WINDOW}/manifest.json");
    let args = ["prove", &manifest, "--json", "--params", params(), "--device", "sim:1;0:lost"];
    let mut command = command(&args);
    command.env("CUZK_GPUS_MAX_RESTARTS", "0").env("CUZK_GPUS_QUARANTINE_S", "1");
    command.envs(more.iter().copied());
    Done::of(command.output().unwrap())
}

#[test]
fn b43_the_only_device_lost_ends_with_an_error() {
    let run = prove_on_a_lost_device(&[]).expect(1);
    let error = &run.json_lines()[0]["error"];
    assert!(error["message"].as_str().unwrap().contains("no device is ready: sim-0"), "{error}");
}

#[test]
fn b54_the_cpu_steps_in_only_where_it_is_allowed() {
    let run = prove_on_a_lost_device(&[("CUZK_GPUS_CPU_FALLBACK", "true")]).expect(0);
    let lines = run.json_lines();
    assert_eq!(lines[0]["verified"], true, "{lines:?}");
    assert_eq!(lines[0]["devices"], serde_json::json!(["cpu"]), "{lines:?}");
}
