use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rig::{ask, ask_with, metric, scenario, serve, Rig};
use crate::http::{router, source_of, PAGE};

/// One card that takes a whole minute for a stage, unless a test ends before.
fn slow() -> Rig {
    let mut scenario = scenario();
    scenario.devices.truncate(1);
    scenario.devices[0].count = 1;
    for circuit in &mut scenario.circuits {
        circuit.stage_ms.sum_h = 60_000.0;
    }
    Rig::start(scenario)
}

#[test]
fn b58_a_running_job_is_in_progress_and_its_key_is_hot_with_its_size() {
    let rig = slow();
    let before = rig.get("/metrics").body;
    let in_progress = r#"cuzk_partitions_in_progress{kind="window-post",priority="high"}"#;
    assert_eq!(metric(&before, in_progress), Some(0.0));
    let job = rig.submit("wpost-32g", "one");
    let status = rig.wait_status("the key", |status| {
        status["srs"].as_array().unwrap().iter().any(|key| key["tier"] == "hot")
    });

    let hot = status["srs"].as_array().unwrap().iter().find(|key| key["tier"] == "hot").unwrap();
    assert_eq!(
        (&hot["circuit"], &hot["device"], &hot["num_jobs"]),
        (&"wpost-32g".into(), &"sim-0".into(), &1.into())
    );
    let num_bytes = hot["num_bytes"].as_u64().unwrap();
    assert!(num_bytes > 1 << 30, "{hot}");
    let reserved = status["devices"][0]["memory"]["reserved_bytes"].as_u64().unwrap();
    assert!(reserved > num_bytes, "a partition's memory comes on top");
    let queue =
        status["queues"].as_array().unwrap().iter().find(|queue| queue["kind"] == "window-post").unwrap();
    assert_eq!(
        (&queue["in_progress"], &queue["pending"], &queue["num_jobs"]),
        (&1.into(), &0.into(), &1.into())
    );
    let metrics = rig.get("/metrics").body;
    assert_eq!(metric(&metrics, in_progress), Some(1.0));
    let hot = r#"cuzk_srs_bytes{circuit="wpost-32g",tier="hot",device="sim-0"}"#;
    assert_eq!(metric(&metrics, hot), Some(num_bytes as f64));
    let status = rig.wait_status("a stage", |status| status["devices"][0]["running"][0]["stage"] == "sum_h");
    let running = &status["devices"][0]["running"][0];
    assert_eq!(
        (&running["kind"], &running["partition"], &running["attempt"]),
        (&"window-post".into(), &0.into(), &1.into())
    );
    assert_eq!(status["jobs"][0]["partitions"][0]["phase"], "proving");
    drop(job);
}

#[test]
fn b58_paths_are_exact_and_every_answer_has_its_headers() {
    let rig = slow();
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/healthz", "application/json"),
        ("/readyz", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/status", "application/json"),
    ] {
        let (got, head) = (rig.get(path), rig.head(path));
        assert_eq!((got.code, head.code), (200, 200), "{path}");
        assert_eq!(got.headers["content-type"], content_type);
        assert_eq!(head.headers["content-type"], content_type);
        assert!(head.body.is_empty() && !got.body.is_empty());
    }
    for path in [
        "/metrics/",
        "/status.json",
        "/Status",
        "//",
        "/index.html",
        "/healthz?/x/y/..",
        "/%2e%2e/etc/passwd",
    ] {
        let expected = if path.contains('?') { 200 } else { 404 };
        let got = rig.get(path);
        assert_eq!(got.code, expected, "{path}");
        assert_eq!(got.headers["cache-control"], "no-store");
        assert_eq!(got.headers["x-content-type-options"], "nosniff");
        assert_eq!(got.headers["x-frame-options"], "DENY");
    }
    let posted = ask_post(&rig);
    assert_eq!(posted, 405);
}

fn ask_post(rig: &Rig) -> u16 {
    let address = rig.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    ask(address, "POST", "/status").code
}

#[test]
fn the_page_runs_its_own_script_and_loads_nothing() {
    let rig = slow();
    let policy = rig.get("/").headers["content-security-policy"].clone();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    for element in ["script", "style"] {
        assert!(policy.contains(&source_of(PAGE, element)), "{policy}");
        assert_eq!(PAGE.matches(&format!("<{element}>")).count(), 1, "one digest covers it");
    }
    // Two names of formats, and no addresses.
    let addresses: Vec<&str> =
        PAGE.split("http").skip(1).map(|rest| rest.split(['"', '\'']).next().unwrap()).collect();
    assert_eq!(addresses, ["://www.w3.org/2000/svg", "://www.w3.org/2000/svg"]);
    for markup in [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "new Function",
        " style=",
        " onclick=",
    ] {
        assert!(
            !PAGE.contains(markup),
            "{markup} would read what is shown as markup, or need a weaker policy"
        );
    }
}

#[test]
fn b42_a_dead_device_is_seen_within_two_seconds_and_the_probe_is_answered() {
    let mut scenario = scenario();
    scenario.devices.truncate(1);
    scenario.devices[0].count = 1;
    scenario.devices[0].faults = "panic@1.quotient".into();
    scenario.engine.max_restarts = 0;
    let rig = Rig::start(scenario);
    let ready = rig.get("/readyz");
    assert_eq!((ready.code, &ready.json()["reasons"]), (200, &serde_json::json!([])));
    let job = rig.submit("winning-32g", "one");
    let begun = Instant::now();
    let gone = loop {
        let answer = rig.get("/readyz");
        if answer.code == 503 {
            break answer.json();
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{}", answer.body);
    };
    assert_eq!(gone["ready"], false);
    let reasons = gone["reasons"].as_array().unwrap();
    assert!(
        reasons.iter().any(|reason| reason.as_str().unwrap().starts_with("sim-0 is out of service")),
        "{gone}"
    );
    // The process itself is well: its supervisor must not be told to end it.
    let health = rig.get("/healthz");
    assert_eq!((health.code, &health.json()["alive"]), (200, &true.into()));
    let beats = health.json()["heartbeats"].as_array().unwrap().clone();
    assert!(
        beats.iter().any(|beat| beat["actor"] == "scheduler" && beat["age_ms"].as_u64().unwrap() < 2000),
        "{beats:?}"
    );
    let metrics = rig.get("/metrics").body;
    assert_eq!(metric(&metrics, "cuzk_ready"), Some(0.0));
    assert_eq!(metric(&metrics, r#"cuzk_device_state{device="sim-0",state="withdrawn"}"#), Some(1.0));
    let status =
        rig.wait_status("the incident", |status| !status["incidents"].as_array().unwrap().is_empty());
    assert_eq!(status["incidents"][0]["device"], "sim-0");
    drop(job);
}

#[test]
fn heartbeats_of_idle_actors_go_on() {
    let rig = slow();
    let beat = |actor: &str| {
        let health = rig.get("/healthz").json();
        let beats = health["heartbeats"].as_array().unwrap().clone();
        beats.iter().find(|beat| beat["actor"] == actor).map(|beat| beat["age_ms"].as_u64().unwrap())
    };
    let begun = Instant::now();
    // Longer than any pulse may be apart.
    while begun.elapsed() < Duration::from_secs(3) {
        for actor in ["scheduler", "sim-0"] {
            if let Some(age_ms) = beat(actor) {
                assert!(age_ms < 2000, "{actor} was silent for {age_ms} ms");
            }
        }
    }
    assert!(beat("scheduler").is_some() && beat("sim-0").is_some());
}

#[test]
fn what_tells_anything_needs_the_token() {
    let rig = slow();
    let is_right = |given: Option<&[u8]>| given == Some(b"Bearer sesame-sesame-sesame");
    let (_runtime, address) = serve(router(rig.state.clone(), Arc::new(is_right)));
    let code = |path| ask(address, "GET", path).code;
    assert_eq!([code("/"), code("/healthz"), code("/nothing")], [200, 200, 404]);
    assert_eq!([code("/readyz"), code("/metrics"), code("/status")], [401, 401, 401]);
    let refused = ask(address, "GET", "/status");
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    assert_eq!(refused.headers["cache-control"], "no-store");
    assert!(!refused.body.contains("sim-0"));
    let with = |token: &str| ask_with(address, "GET", "/status", &format!("Authorization: {token}\r\n")).code;
    assert_eq!([with("Bearer sesame-sesame-sesame"), with("Bearer sesame")], [200, 401]);
}
