//! How the daemon starts, and when it refuses to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use cuzk_wire::v1::{GetStatusRequest, ReloadRequest};
use rustix::process::Signal;
use tonic::Code;

use super::requests::window;
use super::rig::{clean, pause, wait_status, Setup};

/// Runs to the end: code, standard output, standard error.
fn run(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuzk-daemon"));
    clean(&mut command);
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn b07_one_daemon_per_socket_and_a_stale_one_is_replaced() {
    let mut first = Setup::new("sim:1").start().await;
    let mut second = Setup::new("sim:1");
    let address = format!("unix://{}", first.setup.socket().display());
    second.args = vec!["--listen".to_owned(), address];
    let mut second = second.spawn();
    assert_eq!(second.exit_code().await, 4, "{}", second.log_text());
    assert!(second.log_text().contains("another daemon serves there"), "{}", second.log_text());
    first.client().await.get_status(GetStatusRequest {}).await.expect("the first one still answers");
    first.signal(Signal::KILL);
    first.exit_code().await;
    assert!(first.setup.socket().exists(), "what is left behind is what this is about");
    let first = first.restart().await;
    first.client().await.get_status(GetStatusRequest {}).await.unwrap();
    // A file that is no socket is nobody's to replace.
    let setup = Setup::new("sim:1");
    fs::write(setup.socket(), "mine").unwrap();
    let mut daemon = setup.spawn();
    assert_eq!(daemon.exit_code().await, 2);
    assert_eq!(fs::read_to_string(daemon.setup.socket()).unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_journal_has_one_daemon() {
    let first = Setup::new("sim:1").start().await;
    let mut second = Setup::new("sim:1");
    second.sections = format!("[journal]\npath = \"{}\"\n", first.setup.dir.path().join("journal").display());
    let mut second = second.spawn();
    assert_eq!(second.exit_code().await, 4, "{}", second.log_text());
    assert!(second.log_text().contains("in use by another process"), "{}", second.log_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_file_has_the_mode_that_was_asked_for() {
    let mode_of = |setup: &Setup| fs::metadata(setup.socket()).unwrap().permissions().mode() & 0o777;
    let daemon = Setup::new("sim:1").start().await;
    assert_eq!(mode_of(&daemon.setup), 0o660);
    let mut setup = Setup::new("sim:1");
    setup.daemon = "socket_mode = \"0600\"".to_owned();
    assert_eq!(mode_of(&setup.start().await.setup), 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_what_others_can_reach_is_not_served_by_accident() {
    for args in [["--listen", "0.0.0.0:0"], ["-l", "[::]:0"]] {
        let (code, _, stderr) = run(&args);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("tls_cert") && stderr.contains("--insecure"), "{stderr}");
    }
    let mut setup = Setup::new("sim:1");
    let address = format!("unix://{},0.0.0.0:0", setup.socket().display());
    setup.args = vec!["--listen".into(), address, "--insecure".into()];
    let daemon = setup.start().await;
    assert!(daemon.log_text().contains("0.0.0.0:"), "{}", daemon.log_text());
}

#[test]
fn b60_a_misspelt_key_is_named_with_what_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cuzk.toml");
    fs::write(&file, "[gpus]\ngpu_worker_per_device = 2\n").unwrap();
    for extra in [&["--check-config"][..], &[]] {
        let mut args = vec!["-c", file.to_str().unwrap()];
        args.extend(extra);
        let (code, _, stderr) = run(&args);
        assert_eq!(code, 2);
        assert!(stderr.contains("did you mean `gpus.gpu_workers_per_device`"), "{stderr}");
    }
}

/// A file as the other engine with this interface has it.
#[test]
fn files_of_before_are_read_and_what_has_no_effect_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cuzk.toml");
    let text =
        "[daemon]\nlisten = \"unix:///run/curio/cuzk.sock\"\n[srs]\nparam_cache = \"/data/zk/params\"\n\
                [memory]\ntotal_budget = \"auto\"\nsafety_margin = \"5GiB\"\n[gpus]\ndevices = []\n\
                gpu_workers_per_device = 2\n[scheduler]\nmax_batch_size = 1\n[synthesis]\nthreads = 0\n\
                [pipeline]\nenabled = true\nsynthesis_lookahead = 1\n[logging]\nlevel = \"info\"\n";
    fs::write(&file, text).unwrap();
    let (code, stdout, stderr) = run(&["-c", file.to_str().unwrap(), "--check-config"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("can be used"));
    for key in ["memory.safety_margin", "scheduler.max_batch_size", "pipeline.enabled"] {
        assert!(stderr.contains(&format!("warning: {key} has no effect")), "{stderr}");
    }
    assert!(stderr.contains("srs.param_cache is read as srs.params_dir"), "{stderr}");
    fs::write(&file, "[pipeline]\nenabeld = true\n").unwrap();
    assert_eq!(run(&["-c", file.to_str().unwrap(), "--check-config"]).0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_configuration_counts_at_once_as_far_as_it_can() {
    let daemon = Setup::new("sim:1").start().await;
    let mut client = daemon.client().await;
    let nothing = client.reload(ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!((nothing.applied.len(), nothing.needs_restart.len()), (0, 0), "{nothing:?}");
    let text = fs::read_to_string(daemon.setup.config_file()).unwrap();
    let text = text.replace("level = \"info\"", "level = \"debug\"")
        + "[memory]\nbudget = \"512MiB\"\n[synthesis]\nthreads = 1\n[scheduler]\nmax_queued_jobs = 1\n";
    fs::write(daemon.setup.config_file(), &text).unwrap();
    let reloaded = client.reload(ReloadRequest {}).await.unwrap().into_inner();
    assert_eq!(reloaded.applied, ["logging.level", "memory.budget", "scheduler.max_queued_jobs"]);
    assert_eq!(reloaded.needs_restart, ["synthesis.threads"]);
    wait_status(&mut client, |status| status.host_memory_budget_bytes == 512 << 20).await;
    // By signal: the same. A file that cannot be used changes nothing.
    fs::write(daemon.setup.config_file(), "[gpus]\nnonsense = 1\n").unwrap();
    let error = client.reload(ReloadRequest {}).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    daemon.signal(Signal::HUP);
    while !daemon.log_text().contains("the configuration cannot be used") {
        pause().await;
    }
    client.submit_proof(window("still-serves")).await.unwrap();
}

/// Before anything is opened, each by the key that is to be changed.
#[test]
fn what_cannot_be_had_is_found_by_a_check_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cuzk.toml");
    let file = file.to_str().unwrap();
    for (text, key, word) in [
        ("[daemon]\nlisten = []", "daemon.listen", "is empty"),
        ("[daemon]\nlisten = \"9820\"", "daemon.listen", "host:port"),
        ("[daemon]\nsocket_group = \"no-such-group\"", "daemon.socket_group", "no group"),
        ("[daemon]\nstate_dir = \"/nonexistent/state\"", "daemon.state_dir", "/nonexistent/state"),
        ("[daemon]\ntoken_file = \"/nonexistent\"", "daemon.token_file", "/nonexistent"),
        ("[daemon]\ntls_cert = \"/dev/null\"\ntls_key = \"/dev/null\"", "daemon.tls_cert", "/dev/null"),
        ("[daemon]\nmax_bytes_per_connection = \"1MiB\"", "daemon.max_bytes_per_connection", "257MiB"),
        ("[logging]\nfile = \"/nonexistent/log\"", "logging.file", "/nonexistent"),
    ] {
        fs::write(file, text).unwrap();
        let (code, stdout, stderr) = run(&["-c", file, "--check-config"]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{text}: {stderr}");
        assert!(stderr.contains(key) && stderr.contains(word), "{text}: {stderr}");
        // The daemon itself ends in the same way.
        assert_eq!(run(&["-c", file]).0, 2, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let start = async |level_by_flag: Option<&str>| {
        let mut setup = Setup::new("sim:1");
        setup.sections = "[logging]\nlevel = \"error\"\nformat = \"json\"\n".to_owned();
        setup.env.push(("CUZK_LOGGING_LEVEL".to_owned(), "info".to_owned()));
        setup
            .args
            .extend(level_by_flag.into_iter().flat_map(|level| ["--log-level".to_owned(), level.to_owned()]));
        setup.start().await
    };
    start(None).await.log_with("serving gRPC").await;
    assert_eq!(start(Some("error")).await.log_text(), "");
}
