//! The command line as a user and a script meet it: the built program, its output and its exit codes.

#[path = "cli/configuration.rs"]
mod configuration;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "common/done.rs"]
#[allow(dead_code, reason = "the clients' tests use the rest")]
mod done;
#[path = "cli/folders.rs"]
mod folders;
#[path = "cli/inputs.rs"]
mod inputs;
#[path = "cli/journal.rs"]
mod journal;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/synthetic.rs"]
mod synthetic;
#[path = "client/terminal.rs"]
#[allow(dead_code, reason = "the tests of `cuzk top` use the rest")]
mod terminal;
#[path = "cli/verify.rs"]
mod verify;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{json, Value};
use tempfile::TempDir;

use done::Done;

const WINDOW: &str = "tests/data/filecoin/window-2k/full-partition";
const POREP: &str = "tests/data/filecoin/porep-2k/sector-1";
const POREP_MINER: &str = "6413";

/// The program in an environment of its own: no configuration, caches and parameters in the build's folder.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuzk"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUZK_")) {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .env("FIL_PROOFS_PARAMETER_CACHE", "/nonexistent/parameters");
    command
}

fn cuzk(args: &[&str]) -> Done {
    Done::of(command(args).output().unwrap())
}

/// A folder with the test parameters of WindowPoSt 2 KiB: made once, kept with the build.
fn params() -> &'static str {
    static DIR: OnceLock<String> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("params").display().to_string();
        cuzk(&["params", "generate", "wpost-2k", "--params", &dir]).expect(0);
        dir
    })
}

fn wpost_params_file() -> PathBuf {
    let circuits = cuzk(&["circuits", "wpost-2k", "--json"]).expect(0).json_lines();
    Path::new(params()).join(circuits[0]["params_file"].as_str().unwrap())
}

fn params_file_name(circuit: &str) -> String {
    let circuits = cuzk(&["circuits", circuit, "--json"]).expect(0).json_lines();
    circuits[0]["params_file"].as_str().unwrap().to_owned()
}

/// A copy of a folder of inputs, to be damaged.
fn copy_of(folder: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    for entry in fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

/// Proves what must be refused: exit 3, one JSON line that says where, and nothing written.
#[track_caller]
fn refused(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let out = path(&dir, "proof");
    let mut all = vec!["prove", "--json", "--out", &out, "--params", params()];
    all.extend(args);
    let run = cuzk(&all).expect(3);
    let lines = run.json_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let error = &lines[0]["error"];
    assert_eq!(error["class"], "caller", "{error}");
    assert!(!error["at"].as_str().unwrap().is_empty(), "{error}");
    assert!(!error["message"].as_str().unwrap().is_empty(), "{error}");
    assert_eq!(lines[0]["verified"], false);
    let fields = lines[0].as_object().unwrap();
    for field in ["file", "request", "circuit", "partitions", "proof", "replayed", "timings_ms", "devices"] {
        assert!(fields.contains_key(field), "{field}: {fields:?}");
    }
    assert!(lines[0]["peak_rss_bytes"].is_number(), "{fields:?}");
    assert_eq!(run.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{}", run.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something was written");
    error.clone()
}

#[test]
fn b52_informational_commands_need_no_driver_and_no_device() {
    let commands =
        ["demo", "prove", "verify", "inspect", "devices", "circuits", "params", "plan", "check-config"];
    for name in commands {
        let help = cuzk(&[name, "--help"]).expect(0);
        assert!(help.stdout.contains("Usage: cuzk"), "{name}: {}", help.stdout);
    }
    for args in [&["--help"][..], &["--version"], &["check-config"], &["circuits"], &["params", "list"]] {
        let run =
            Done::of(command(args).env("PATH", "").env("LD_LIBRARY_PATH", "").output().unwrap()).expect(0);
        assert!(!run.stdout.is_empty());
        assert_eq!(run.stderr, "");
    }
    for program in PROGRAMS {
        for arg in ["--version", "--help"] {
            // Nothing of the environment at all: no library, no program, no home, no configuration.
            let run = Done::of(Command::new(program).arg(arg).env_clear().output().unwrap()).expect(0);
            let name = Path::new(program).file_name().unwrap().to_str().unwrap();
            assert!(run.stdout.contains(name), "{program} {arg}: {}", run.stdout);
            assert_eq!(run.stderr, "");
        }
    }
}

/// All that are shipped.
const PROGRAMS: &[&str] = &[
    env!("CARGO_BIN_EXE_cuzk"),
    env!("CARGO_BIN_EXE_cuzk-bench"),
    #[cfg(feature = "daemon")]
    env!("CARGO_BIN_EXE_cuzk-daemon"),
];

#[test]
fn b05_a_build_says_what_it_can_drive() {
    let version = cuzk(&["--version"]).expect(0).stdout;
    assert_eq!(version.contains("backends: cpu, sim, cuda"), cfg!(feature = "cuda"), "{version}");
    assert_eq!(version.contains("not built: cuda"), !cfg!(feature = "cuda"), "{version}");
    let devices = cuzk(&["devices", "--device", "sim:1"]).expect(0).stdout;
    assert_eq!(devices.contains("not in this build: cuda"), !cfg!(feature = "cuda"), "{devices}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn b05_a_build_without_cuda_says_so() {
    let manifest = format!("{WINDOW}/manifest.json");
    for args in [&["prove", "--device", "cuda", &manifest][..], &["devices", "--device", "cuda"]] {
        let run = cuzk(args).expect(2);
        assert!(run.stderr.contains("built without CUDA"), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn b60_a_misspelt_key_ends_with_a_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "cuzk.toml");
    fs::write(&file, "[gpus]\ngpu_worker_per_device = 2\n").unwrap();
    for args in [&["check-config", &file][..], &["--config", &file, "circuits"]] {
        let run = cuzk(args).expect(2);
        assert!(run.stderr.contains("did you mean `gpus.gpu_workers_per_device`?"), "{}", run.stderr);
    }
    let run = Done::of(command(&["circuits"]).env("CUZK_LOGGING_LEVLE", "info").output().unwrap()).expect(2);
    assert!(run.stderr.contains("did you mean `logging.level`?"), "{}", run.stderr);
}

#[test]
fn wrong_use_ends_with_2_and_says_what_to_do() {
    let manifest = format!("{WINDOW}/manifest.json");
    let c1 = format!("{POREP}/c1.json");
    let wrapped = format!("{POREP}/c1-wrapped.json");
    let seed = "00".repeat(32);
    let cases: [(&[&str], &str); 12] = [
        (&[], "Usage"),
        (&["prov"], "prove"),
        (&["prove"], "<FILE>"),
        (&["prove", &manifest, "--device", "gpu"], "sim:N"),
        (&["prove", &manifest, "--seed", "00"], "32 bytes"),
        (&["prove", &manifest, "--replay", "--seed", &seed], "cannot be used with"),
        (&["prove", &manifest, "--out", "/nonexistent/proof"], "cannot write"),
        (&["prove", &manifest, "--out", "tests"], "is a folder"),
        (&["prove", &wrapped], "--miner"),
        (&["prove", &c1, "--miner", POREP_MINER], "--sector"),
        (&["prove", &wrapped, "--miner", POREP_MINER, "--replay"], "--replay needs a manifest"),
        (&["prove", &manifest, &wrapped, "--miner", POREP_MINER, "--out", "x"], "one by one"),
    ];
    for (args, hint) in cases {
        let run = cuzk(args).expect(2);
        assert!(run.stderr.contains(hint), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    assert!(cuzk(&["params", "generate", "porep-3k"]).expect(2).stderr.contains("unknown circuit"));
    assert!(cuzk(&["params", "fold", "porep-3k"]).expect(2).stderr.contains("unknown circuit"));
    assert!(cuzk(&["params", "fold", "some.params"]).expect(2).stderr.contains("of no circuit"));
    let missing = ["params", "fold", "wpost-2k", "--device", "cpu", "--params", "/nonexistent"];
    assert!(cuzk(&missing).expect(3).stderr.contains("wpost-2k"));
    assert!(cuzk(&["params", "generate", "porep-32g"]).expect(2).stderr.contains("32 GiB"));
    if !cfg!(feature = "cuda") {
        let dir = tempfile::tempdir().unwrap();
        let params = dir.path().to_str().unwrap();
        let by_gpu = ["params", "generate", "wpost-2k", "--device", "cuda", "--params", params];
        let refused = cuzk(&by_gpu).expect(2);
        assert!(refused.stderr.contains("--device cpu"), "{}", refused.stderr);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_replay_gives_the_recorded_bytes_and_they_verify() {
    let dir = tempfile::tempdir().unwrap();
    let out = path(&dir, "proof.bin");
    let manifest = format!("{WINDOW}/manifest.json");
    let run =
        cuzk(&["prove", &manifest, "--replay", "--json", "--out", &out, "--params", params()]).expect(0);
    let lines = run.json_lines();
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    let recorded = fs::read(format!("{WINDOW}/proof.bin")).unwrap();
    assert_eq!(line["proof"], hex::encode(&recorded));
    assert_eq!(fs::read(&out).unwrap(), recorded);
    let expected = json!({
        "file": manifest, "request": 0, "circuit": "wpost-2k", "partitions": 1, "verified": true,
        "replayed": true, "devices": ["cpu"],
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&line[field], value, "{field}");
    }
    for stage in ["queue_wait", "synthesis", "quotient", "sum_h", "verify", "total"] {
        assert!(line["timings_ms"][stage].is_number(), "{stage}: {}", line["timings_ms"]);
    }
    assert!(line["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);

    let verify = |proof: &str, more: &[&str]| {
        let mut args = vec!["verify", &manifest, proof, "--params", "tests/data/filecoin/params"];
        args.extend(more);
        cuzk(&args)
    };
    let verified = verify(&out, &[]).expect(0);
    assert!(verified.stdout.contains("by Filecoin's verifier"), "{}", verified.stdout);
    assert_eq!(verify(&out, &["--json"]).expect(0).json_lines()[0]["verified"], true);

    // Another valid proof's bytes are well formed, and hold for another statement.
    let other = "tests/data/filecoin/window-2k/padded-partition/proof.bin";
    assert!(verify(other, &[]).expect(1).stderr.contains("does not verify"));
    fs::write(&out, &recorded[..191]).unwrap();
    assert!(verify(&out, &[]).expect(3).stderr.contains("needs 192 B"));
    assert!(verify(&out, &["--request", "7"]).expect(2).stderr.contains("no such one"));
    let no_key = cuzk(&["verify", &manifest, other, "--params", "/nonexistent"]).expect(3);
    assert!(no_key.stderr.contains("verifying key not found"), "{}", no_key.stderr);
}

#[test]
fn several_files_are_proved_and_a_bad_one_spoils_none() {
    let bad = copy_of(WINDOW);
    fs::write(path(&bad, "vanilla-1.bin"), b"cut").unwrap();
    let files = [
        format!("{WINDOW}/manifest.json"),
        path(&bad, "manifest.json"),
        "tests/data/filecoin/window-2k/two-partitions/manifest.json".to_owned(),
        "/nonexistent/manifest.json".to_owned(),
    ];
    let mut args = vec!["prove", "--json", "--device", "sim:2", "--params", params()];
    args.extend(files.iter().map(String::as_str));
    let run = cuzk(&args).expect(3);
    let lines = run.json_lines();
    assert_eq!(lines.len(), 5, "the third file holds two requests");
    let of = |file: &str| lines.iter().filter(|line| line["file"] == file).collect::<Vec<_>>();
    for proved in [&files[0], &files[2]] {
        assert!(of(proved).iter().all(|line| line["verified"] == true), "{lines:?}");
    }
    let mut requests: Vec<u64> = of(&files[2]).iter().map(|line| line["request"].as_u64().unwrap()).collect();
    requests.sort_unstable();
    assert_eq!(requests, [0, 1]);
    for failed in [&files[1], &files[3]] {
        assert_eq!(of(failed)[0]["error"]["class"], "caller");
    }
    assert!(run.stderr.contains("2 of 5 jobs failed"), "{}", run.stderr);
}

#[test]
fn a_request_file_is_proved_and_a_seed_makes_it_repeatable() {
    let dir = copy_of(WINDOW);
    let manifest: Value = serde_json::from_slice(&fs::read(path(&dir, "manifest.json")).unwrap()).unwrap();
    let request = json!({
        "proof_kind": "WINDOW_POST_PARTITION",
        "registered_proof": manifest["registered_proof"]["number"],
        "miner_id": manifest["miner_id"],
        "randomness": manifest["randomness"],
        "vanilla": ["vanilla-0.bin", "vanilla-1.bin"],
    });
    let file = path(&dir, "request.json");
    fs::write(&file, request.to_string()).unwrap();
    let seed = "07".repeat(32);
    let prove = |seed: &str, device: &str| {
        let args = ["prove", &file, "--json", "--seed", seed, "--device", device, "--params", params()];
        let line = cuzk(&args).expect(0).json_lines().remove(0);
        line["proof"].as_str().unwrap().to_owned()
    };
    let proof = prove(&seed, "cpu");
    assert_eq!(proof, prove(&seed, "sim:1"), "every device gives the same bytes");
    assert_ne!(proof, prove(&"08".repeat(32), "cpu"));

    // What --json prints is a proof that `verify` takes.
    let text = path(&dir, "proof.hex");
    fs::write(&text, proof + "\n").unwrap();
    cuzk(&["verify", &path(&dir, "manifest.json"), &text, "--params", params()]).expect(0);
}

#[test]
fn bad_c1_files_are_refused_with_their_place() {
    let dir = copy_of(POREP);
    let (bare, wrapped) = (path(&dir, "c1.json"), path(&dir, "c1-wrapped.json"));
    let miner = ["--miner", POREP_MINER];
    let c1 = fs::read(&bare).unwrap();

    let cut = path(&dir, "cut.json");
    fs::write(&cut, &c1[..c1.len() / 2]).unwrap();
    refused(&[&cut, miner[0], miner[1], "--sector", "801282"]);

    let trailing = path(&dir, "trailing.json");
    fs::write(&trailing, [&c1[..], b"{}"].concat()).unwrap();
    refused(&[&trailing, miner[0], miner[1], "--sector", "801282"]);

    refused(&[&wrapped, "--miner", "6414"]);
    refused(&[&bare, miner[0], miner[1], "--sector", "801283"]);
    let contradiction = refused(&[&wrapped, miner[0], miner[1], "--sector", "801283"]);
    let message = contradiction["message"].as_str().unwrap();
    assert!(message.contains("801282") && message.contains("801283"), "{message}");

    let unknown = String::from_utf8(c1).unwrap().replace("StackedDrg2KiBV1_1", "StackedDrg4KiBV1_1");
    let unknown_file = path(&dir, "unknown.json");
    fs::write(&unknown_file, unknown).unwrap();
    let error = refused(&[&unknown_file, miner[0], miner[1], "--sector", "801282"]);
    assert!(error["message"].as_str().unwrap().contains("StackedDrg4KiBV1_1"), "{error}");
}

/// The manifest of a copied folder, changed and written back.
fn edit_manifest(dir: &TempDir, edit: impl FnOnce(&mut Value)) -> String {
    let file = path(dir, "manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(&file, manifest.to_string()).unwrap();
    file
}

#[test]
fn bad_vanilla_proofs_are_refused_with_their_place() {
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let dir = copy_of(WINDOW);
        let file = path(&dir, name);
        let mut bytes = fs::read(&file).unwrap();
        change(&mut bytes);
        fs::write(&file, bytes).unwrap();
        refused(&[&path(&dir, "manifest.json")])
    };
    damage("vanilla-0.bin", &|bytes| bytes.truncate(bytes.len() / 2));
    damage("vanilla-0.bin", &|bytes| bytes.push(0));
    damage("vanilla-0.bin", &|bytes| bytes.clear());
    // A bit of a leaf, and of a count that then promises more than memory holds.
    damage("vanilla-1.bin", &|bytes| bytes[56 + 4 + 32] ^= 1);
    damage("vanilla-1.bin", &|bytes| bytes[55] ^= 0x40);

    let edits: [&dyn Fn(&mut Value); 5] = [
        &|manifest| manifest["randomness"] = "00".repeat(31).into(),
        &|manifest| manifest["registered_proof"]["number"] = 99.into(),
        &|manifest| manifest["sector_size"] = 8_388_608.into(),
        &|manifest| manifest["requests"][0]["vanilla"] = json!(["vanilla-0.bin", "vanilla-0.bin"]),
        &|manifest| manifest["requests"][0]["vanilla"] = json!([]),
    ];
    for edit in edits {
        let dir = copy_of(WINDOW);
        refused(&[&edit_manifest(&dir, edit)]);
    }
}

#[test]
fn a_manifest_is_not_believed_over_its_input_files() {
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit); 5] = [
        ("requests[0].public_inputs[0][0]", |manifest| {
            manifest["requests"][0]["public_inputs"][0][0] = "00".repeat(32).into();
        }),
        ("requests[0].public_inputs[0]", |manifest| {
            manifest["requests"][0]["public_inputs"][0].as_array_mut().unwrap().pop();
        }),
        ("requests[0].public_inputs", |manifest| {
            manifest["requests"][0]["public_inputs"] = Value::Array(Vec::new());
        }),
        ("requests[0].sectors", |manifest| {
            manifest["requests"][0]["vanilla"].as_array_mut().unwrap().pop();
        }),
        ("prover_id", |manifest| manifest["miner_id"] = 1.into()),
    ];
    for (field, edit) in edits {
        let dir = copy_of(WINDOW);
        let manifest = edit_manifest(&dir, edit);
        let error = refused(&[&manifest]);
        assert!(error["message"].as_str().unwrap().contains(field), "{field}: {error}");
        let proof = path(&dir, "proof.bin");
        let run = cuzk(&["verify", "--params", params(), &manifest, &proof]).expect(3);
        assert!(run.stderr.contains(field), "{field}: {}", run.stderr);
    }
}

#[test]
fn a_result_goes_through_links_and_into_what_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    fs::write(&target, b"old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let manifest = format!("{WINDOW}/manifest.json");
    for out in [link.to_str().unwrap(), "/dev/null"] {
        cuzk(&["prove", "--params", params(), "--out", out, &manifest]).expect(0);
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&target).unwrap().len(), 192);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn bad_request_files_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "request.json");
    let texts = [
        "",
        "{}",
        "[]",
        r#"{"proof_kind": "NO_SUCH_KIND"}"#,
        r#"{"proof_kind": 3, "registered_proof": 99, "randomness": ""}"#,
        r#"{"proof_kind": 3, "registered_prof": 10}"#,
        r#"{"proof_kind": 3, "registered_proof": 13, "randomness": "00"}"#,
        r#"{"proof_kind": 3, "registered_proof": 10, "vanilla": ["missing.bin"]}"#,
    ];
    for text in texts {
        fs::write(&file, text).unwrap();
        refused(&[&file]);
    }
}

#[test]
fn what_is_no_file_of_an_inputs_size_is_refused_unread() {
    let dir = tempfile::tempdir().unwrap();
    let large = path(&dir, "request.json");
    fs::File::create(&large).unwrap().set_len((1 << 30) + 1).unwrap();
    let error = refused(&[&large]);
    assert!(error["message"].as_str().unwrap().contains("needs 1073741824 B at most"), "{error}");
    for special in ["/dev/zero", "tests"] {
        let error = refused(&[special]);
        assert!(error["message"].as_str().unwrap().contains("is no regular file"), "{error}");
    }
    assert!(cuzk(&["inspect", "/dev/zero"]).expect(3).stderr.contains("is no regular file"));
}

#[test]
fn b37_missing_empty_half_and_foreign_parameter_files_are_four_clear_errors() {
    let manifest = format!("{WINDOW}/manifest.json");
    let good = fs::read(wpost_params_file()).unwrap();
    let prove = |manifest: &str, name: &str, bytes: Option<&[u8]>| {
        let dir = tempfile::tempdir().unwrap();
        if let Some(bytes) = bytes {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let run =
            cuzk(&["prove", manifest, "--json", "--params", &dir.path().display().to_string()]).expect(3);
        let error = run.json_lines().remove(0)["error"].clone();
        assert_eq!(error["class"], "caller");
        assert!(!error["at"].as_str().unwrap().is_empty());
        error["message"].as_str().unwrap().to_owned()
    };
    let name = params_file_name("wpost-2k");
    let missing = prove(&manifest, &name, None);
    assert!(missing.contains("not found for circuit wpost-2k"), "{missing}");
    assert!(missing.contains("`cuzk params generate wpost-2k` makes a TEST key"), "{missing}");
    let empty = prove(&manifest, &name, Some(&[]));
    assert!(empty.contains("has 0 B"), "{empty}");
    let half = prove(&manifest, &name, Some(&good[..good.len() / 2]));
    assert!(half.contains("needs") && half.contains("has"), "{half}");
    let winning = "tests/data/filecoin/winning-2k/sector-1/manifest.json";
    let foreign = prove(winning, &params_file_name("winning-2k"), Some(&good));
    assert!(foreign.contains("does not fit"), "{foreign}");
}

#[test]
fn b59_every_line_obeys_format_and_filter() {
    let manifest = format!("{WINDOW}/manifest.json");
    let lines = |level: &str, file: &str, code: i32| {
        let args = ["prove", file, "--params", params(), "--log-format", "json", "--log-level", level];
        let run = cuzk(&args).expect(code);
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}"));
        run.stderr.lines().map(parse).collect::<Vec<_>>()
    };
    let debug = lines("debug", &manifest, 0);
    assert!(debug.iter().any(|line| line["level"] == "INFO"), "{debug:?}");
    for line in &debug {
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&line["level"].as_str().unwrap()), "{line}");
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
    }
    let filtered = lines("off,cuzk::progress=info", &manifest, 0);
    assert!(!filtered.is_empty());
    assert!(filtered.iter().all(|line| line["target"] == "cuzk::progress"), "{filtered:?}");
    assert_eq!(lines("off", &manifest, 0), Vec::<Value>::new());

    // The error itself is a line of the log then.
    let failed = lines("warn", "/nonexistent", 3);
    assert_eq!(failed.last().unwrap()["level"], "ERROR");

    // With a file, standard error is for people again.
    let dir = tempfile::tempdir().unwrap();
    let log = path(&dir, "cuzk.log");
    let run = command(&["prove", "/nonexistent", "--log-format", "json", "--log-level", "trace"])
        .env("CUZK_LOGGING_FILE", &log)
        .output()
        .unwrap();
    assert!(Done::of(run).expect(3).stderr.starts_with("error: "));
    for line in fs::read_to_string(&log).unwrap().lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn inspect_tells_every_format_by_its_content() {
    let params_file = wpost_params_file().display().to_string();
    let vk = fs::read_dir("tests/data/filecoin/params").unwrap().next().unwrap().unwrap();
    let vk = vk.path().display().to_string();
    let dir = tempfile::tempdir().unwrap();
    let request = path(&dir, "request.json");
    fs::write(&request, r#"{"proof_kind": "WINNING_POST", "vanilla": []}"#).unwrap();
    let window = |name: &str| format!("{WINDOW}/{name}");
    let cases = [
        (window("manifest.json"), "manifest"),
        (window("proof.bin"), "proof"),
        (window("vanilla-0.bin"), "vanilla proof of one sector (PoSt)"),
        (window("vanilla-request-0.json"), "list of vanilla proofs (base64)"),
        (
            "tests/data/filecoin/snap-2k/sector-1/vanilla-0.bin".into(),
            "vanilla proof of one partition (SnapDeals)",
        ),
        (format!("{POREP}/c1.json"), "C1 (output of PoRep's commit phase 1)"),
        (format!("{POREP}/c1-wrapped.json"), "C1 (output of PoRep's commit phase 1), wrapped by a caller"),
        (params_file, "parameter file"),
        (vk, "verifying key"),
        (request, "request"),
    ];
    for (file, kind) in &cases {
        let line = cuzk(&["inspect", "--json", file]).expect(0).json_lines().remove(0);
        assert_eq!(line["kind"], *kind, "{file}");
        assert_eq!(line["bytes"], fs::metadata(file).unwrap().len());
        assert_eq!(line["sha256"].as_str().unwrap().len(), 64);
        assert!(cuzk(&["inspect", file]).expect(0).stdout.contains(kind));
    }
    let c1 = cuzk(&["inspect", "--json", &cases[6].0]).expect(0).json_lines().remove(0);
    assert_eq!((&c1["sector_number"], &c1["partitions"]), (&json!(801_282), &json!(1)));
    assert_eq!(c1["replica_id"], "a167d9426e2b2bd5a8b3eb0aa770dcc9a331bc3c904fe7bb572307b49bd4da34");
    for bad in ["README.md", "tests", "/nonexistent"] {
        assert!(cuzk(&["inspect", bad]).expect(3).stderr.starts_with(&format!("error: {bad}")));
    }
}

#[test]
fn parameters_that_are_there_are_kept_unless_forced() {
    let again = cuzk(&["params", "generate", "wpost-2k", "--params", params()]).expect(0);
    assert!(again.stdout.contains("there already"), "{}", again.stdout);
    let checked = cuzk(&["params", "check", "wpost-2k", "--params", params()]).expect(0);
    let nothing = cuzk(&["params", "check", "--params", "/nonexistent"]).expect(2);
    assert!(nothing.stderr.contains("no parameter files there"), "{}", nothing.stderr);
    assert!(checked.stdout.contains("TEST parameters"), "{}", checked.stdout);
    let listed = cuzk(&["params", "list", "--json", "--params", params()]).expect(0).json_lines();
    let state =
        |circuit: &str| listed.iter().find(|line| line["circuit"] == circuit).unwrap()["state"].clone();
    assert_eq!((state("wpost-2k"), state("porep-32g")), (json!("present"), json!("missing")));

    let dir = tempfile::tempdir().unwrap();
    let dir_name = dir.path().display().to_string();
    let file = dir.path().join(params_file_name("wpost-2k"));
    fs::write(&file, b"somebody's own").unwrap();
    let kept = cuzk(&["params", "generate", "wpost-2k", "--params", &dir_name]).expect(3);
    assert!(kept.stderr.contains("--force"), "{}", kept.stderr);
    assert_eq!(fs::read(&file).unwrap(), b"somebody's own");
    assert!(cuzk(&["params", "check", "--params", &dir_name]).expect(3).stdout.contains("wpost-2k: BAD"));
    // What to do about one that is not there: a network's is fetched, and never made.
    let missing = |circuit| cuzk(&["params", "check", circuit, "--params", &dir_name]).expect(3).stderr;
    for circuit in ["porep-32g", "wpost-64g", "snap-512m"] {
        let text = missing(circuit);
        assert!(text.contains(&format!("`cuzk params fetch {circuit}` gets it")), "{text}");
        assert!(!text.contains("params generate"), "{text}");
    }
    let text = missing("winning-2k");
    assert!(text.contains("`cuzk params generate winning-2k` makes a TEST key"), "{text}");
    let forced = cuzk(&["params", "generate", "wpost-2k", "--force", "--params", &dir_name]).expect(0);
    assert!(forced.stderr.contains("WARNING: these are TEST parameters"), "{}", forced.stderr);
    assert_eq!(fs::read(&file).unwrap(), fs::read(wpost_params_file()).unwrap());
}

/// Waits for a line of standard error, then interrupts, and gives how the process ended.
#[cfg(unix)]
fn interrupt_after(args: &[&str], line: &str) -> i32 {
    let mut child = command(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(stderr.any(|text| text.unwrap().contains(line)), "`{line}` never came");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    stderr.for_each(drop);
    child.wait().unwrap().code().unwrap()
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let dir_name = dir.path().display().to_string();
    let generate = ["params", "generate", "winning-2k", "--params", &dir_name];
    assert_eq!(interrupt_after(&generate, "recording the circuit"), 130);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let out = path(&dir, "proof");
    let manifest = format!("{WINDOW}/manifest.json");
    let prove = ["prove", &manifest, "--out", &out, "--params", params(), "--device", "sim:1;stage=60s"];
    assert_eq!(interrupt_after(&prove, "witness made"), 130);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn circuits_and_devices_are_listed() {
    let circuits = cuzk(&["circuits", "--json"]).expect(0).json_lines();
    assert_eq!(circuits.len(), 20);
    let porep = circuits.iter().find(|line| line["circuit"] == "porep-2k").unwrap();
    assert_eq!((&porep["constraints"], &porep["domain_log2"]), (&json!(2_687_921), &json!(22)));
    assert!(cuzk(&["circuits", "porep-2k"]).expect(0).stdout.contains("2,687,921"));

    let devices = cuzk(&["devices", "--json", "--device", "sim:3"]).expect(0).json_lines();
    let ids: Vec<&str> = devices.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["sim-0", "sim-1", "sim-2"]);
    assert!(devices.iter().all(|line| line["state"] == "ready"), "{devices:?}");
    assert!(cuzk(&["devices"]).expect(0).stdout.contains("cpu"));
}
