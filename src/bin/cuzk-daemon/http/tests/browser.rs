//! The page in a real browser, and the metrics before a real `promtool`. `.ci/run page` installs both and runs these.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use axum::response::Html;
use axum::routing::get;
use axum::Router;

use super::documents::rig_with_everything;
use super::rig::{scenario, serve, Rig};
use crate::http::{router, PAGE};

/// Time of the page's own clock: several polls.
const PAGE_MS: u32 = 3500;

fn run(command: &mut Command, package: &str) -> Output {
    let name = command.get_program().to_owned();
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{name:?} cannot be started: {error}; apt-get install {package}"))
}

#[derive(Clone, Copy)]
enum Scheme {
    Dark,
    Light,
}

/// A browser that looks at one page.
struct Browser {
    profile: tempfile::TempDir,
    width: u32,
    height: u32,
    scheme: Scheme,
}

impl Browser {
    fn new(width: u32, height: u32, scheme: Scheme) -> Self {
        Self { profile: tempfile::tempdir().unwrap(), width, height, scheme }
    }

    fn look(&self, url: &str, wanted: &str) -> Output {
        let scheme = match self.scheme {
            Scheme::Dark => 0,
            Scheme::Light => 1,
        };
        let mut command = Command::new("chromium");
        command
            // The sandbox needs privileges that a container does not give; the page is ours.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", self.profile.path().display()))
            .arg(format!("--window-size={},{}", self.width, self.height))
            .arg(format!("--virtual-time-budget={PAGE_MS}"))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg(wanted)
            .arg(url);
        let output = run(&mut command, "chromium");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The document after some polls, and what the page said on its console.
    fn dom(&self, url: &str) -> (String, Vec<String>) {
        let output = self.look(url, "--dump-dom");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let console = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        (String::from_utf8(output.stdout).unwrap(), console)
    }

    fn screenshot(&self, url: &str, file: &Path) {
        self.look(url, &format!("--screenshot={}", file.display()));
        assert!(std::fs::metadata(file).unwrap().len() > 20_000, "{} is empty", file.display());
    }
}

const HOSTILE: &str = r#"<img src=x onerror=alert(1)>"'&</td><script>alert(2)</script>"#;

/// Four devices with work of all kinds for a while.
fn busy_rig() -> (Rig, Vec<cuzk::engine::JobHandle>) {
    let rig = Rig::start(scenario());
    let mut jobs = Vec::new();
    for round in 0..6 {
        jobs.push(rig.submit("porep-32g", &format!("f01234-porep-{}", 88_201 + round)));
        jobs.push(rig.submit("snap-32g", &format!("f01234-snap-{}", 4_417 + round)));
        jobs.push(rig.submit("wpost-32g", &format!("f01234-wdpost-d{}-p{round}", 11 + round)));
    }
    jobs.push(rig.submit("winning-32g", "f01234-win-4410233"));
    // Enough has happened to be looked at, and there is more to do.
    rig.wait_status("forty proofs", |status| {
        let devices = status["devices"].as_array().unwrap().iter();
        devices.map(|device| device["partitions_proved"].as_u64().unwrap()).sum::<u64>() >= 40
    });
    jobs.push(rig.submit("porep-32g", "f01234-porep-88204"));
    jobs.push(rig.submit("wpost-32g", "f01234-wdpost-d14-p0"));
    // Of sixteen partitions, the last in the queue: it is there as long as anybody looks.
    jobs.push(rig.submit("snap-32g", HOSTILE));
    (rig, jobs)
}

#[test]
#[ignore = "needs chromium: .ci/run page"]
fn b58_the_page_shows_everything_in_both_colour_schemes_and_says_nothing_on_the_console() {
    let (rig, jobs) = busy_rig();
    let url = rig.url();
    for (scheme, theme) in [(Scheme::Light, "light"), (Scheme::Dark, "dark")] {
        let (dom, console) = Browser::new(1400, 1900, scheme).dom(&url);
        assert!(console.is_empty(), "{console:?}");
        assert!(dom.contains(&format!("data-theme=\"{theme}\"")), "{theme}");
        for device in ["sim-0", "sim-1", "sim-2", "sim-3"] {
            assert!(dom.contains(&format!("aria-label=\"Device {device}\"")), "{device}");
        }
        for wanted in [
            "RTX A6000",
            "class=\"chip winning-post\"",
            "class=\"chip window-post\"",
            "f01234-porep-88204",
            "class=\"tier bad\">HOT",
            "class=\"tier warn\">WARM",
            "class=\"tier mute\">COLD",
            "aria-label=\"Timeline: sim-0",
            "critical",
            "heartbeats: scheduler",
            "attempt failed",
        ] {
            assert!(dom.contains(wanted), "{wanted} is not on the page: {dom}");
        }
        assert!(!dom.contains("body class=\"stale\""));
        // Shown as it is, and nothing of it is markup.
        assert!(dom.contains("&lt;img src=x onerror=alert(1)&gt;"), "the hostile id is not shown");
        assert!(!dom.contains("<img") && dom.matches("<script").count() == 1, "the hostile id became markup");
    }
    // Where whoever runs this wants to look at them.
    let images = std::env::var_os("CUZK_PAGE_IMAGES").map_or_else(std::env::temp_dir, PathBuf::from);
    Browser::new(1400, 1500, Scheme::Light).screenshot(&url, &images.join("page.png"));
    Browser::new(1400, 1500, Scheme::Dark).screenshot(&url, &images.join("page-dark.png"));
    Browser::new(500, 2600, Scheme::Light).screenshot(&url, &images.join("page-narrow.png"));
    drop(jobs);
}

#[test]
#[ignore = "needs chromium: .ci/run page"]
fn a_page_that_gets_no_answer_says_so_and_one_that_needs_a_token_asks_for_it() {
    let rig = rig_with_everything();
    let gone = Router::new().route("/", get(|| async { Html(PAGE) }));
    let (_runtime, address) = serve(gone);
    let (dom, _) = Browser::new(1400, 900, Scheme::Light).dom(&format!("http://{address}/"));
    assert!(dom.contains("connection lost") && dom.contains("the daemon answers 404"), "{dom}");
    assert!(dom.contains("body class=\"stale\""));
    let (_runtime, address) = serve(router(rig.state.clone(), Arc::new(|_| false)));
    let (dom, _) = Browser::new(1400, 900, Scheme::Light).dom(&format!("http://{address}/"));
    assert!(dom.contains("a token is needed") && dom.contains("id=\"login\" class=\"card row\">"), "{dom}");
}

#[test]
#[ignore = "needs promtool: .ci/run page"]
fn b58_promtool_accepts_metrics_and_alerts() {
    let rig = rig_with_everything();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("metrics.txt");
    std::fs::write(&file, rig.get("/metrics").body).unwrap();
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap());
    let output = run(&mut check, "prometheus");
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus");
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let output = run(Command::new("promtool").args(arguments).current_dir(&alerts), "prometheus");
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}
