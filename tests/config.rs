//! The configuration and its template agree, and mistakes are named.

use std::path::Path;

use cuzk::config::{ByteSize, Config, DeviceChoice, LogFormat, MemoryBudget};
use cuzk::error::ConfigError;
use toml::{Table, Value};

/// The template with its keys uncommented: a comment that begins with a key and `=`, no space after the `#`.
fn uncommented_template() -> String {
    let is_key = |line: &str| {
        line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let template = include_str!("../config.example.toml");
    let lines: Vec<&str> =
        template.lines().map(|line| if is_key(line) { &line[1..] } else { line }).collect();
    lines.join("\n")
}

fn keys_of(table: &Table) -> Vec<String> {
    let section_keys = |(section, value): (&String, &Value)| {
        let entries = value.as_table().expect("sections only").clone();
        entries.keys().map(|key| format!("{section}.{key}")).collect::<Vec<_>>()
    };
    table.iter().flat_map(section_keys).collect()
}

#[test]
fn template_parses_as_it_is_and_changes_nothing() {
    let config = Config::from_toml(include_str!("../config.example.toml"), "template").unwrap();
    assert_eq!(config, Config::default());
}

#[test]
fn uncommented_template_has_no_unknown_key_and_equals_the_defaults() {
    let config = Config::from_toml(&uncommented_template(), "template").unwrap();
    assert_eq!(config, Config::default());
}

#[test]
fn template_lists_every_field() {
    let listed: Table = uncommented_template().parse().unwrap();
    let fields = Table::try_from(Config::default()).unwrap();
    assert_eq!(keys_of(&listed), keys_of(&fields));
}

/// Each key of the template with the comment above it.
fn explained_keys() -> Vec<(String, String)> {
    let (mut keys, mut comment) = (Vec::new(), String::new());
    for line in include_str!("../config.example.toml").lines() {
        match line.strip_prefix('#') {
            Some(text) if text.is_empty() || text.starts_with(' ') => comment += text,
            Some(key) => {
                let name = key.split(" =").next().unwrap().to_owned();
                keys.push((name, std::mem::take(&mut comment)));
            }
            None => comment.clear(),
        }
    }
    keys
}

/// Whether it says `1 to 16`.
fn has_range(comment: &str) -> bool {
    let words: Vec<&str> = comment.split_whitespace().collect();
    let is_number = |word: &str| word.trim_end_matches(['.', ',', ':', ';']).parse::<u64>().is_ok();
    words.windows(3).any(|three| is_number(three[0]) && three[1] == "to" && is_number(three[2]))
}

#[test]
fn every_key_of_the_template_is_explained() {
    let defaults: Table = uncommented_template().parse().unwrap();
    let value_of = |key: &str| defaults.values().find_map(|section| section.get(key)).unwrap();
    let keys = explained_keys();
    assert_eq!(keys.len(), keys_of(&defaults).len());
    for (key, comment) in keys {
        let is_size =
            ["budget", "_reserve", "_bytes", "_bytes_in_flight"].iter().any(|end| key.ends_with(end));
        let is_number = value_of(&key).is_integer();
        assert!(comment.len() > 60, "`{key}` needs its meaning");
        if is_number {
            assert!(has_range(&comment), "`{key}` needs its range, as in \"1 to 16\": {comment}");
        }
        if is_number || is_size {
            for consequence in ["Too low: ", "Too high: "] {
                assert!(
                    comment.contains(consequence),
                    "`{key}` needs what \"{consequence}…\" does: {comment}"
                );
            }
        }
    }
}

#[test]
fn b60_a_misspelt_key_is_an_error_with_a_suggestion() {
    let misspelt = [
        ("[gpus]\ngpu_worker_per_device = 2", "gpus.gpu_workers_per_device"),
        ("[gpus]\ndevice = \"cpu\"", "gpus.devices"),
        ("[scheduler]\nmax_queue_jobs = 3", "scheduler.max_queued_jobs"),
        ("[loging]\nlevel = \"info\"", "logging"),
        ("[gpus]\ncpu_fallbak = true", "gpus.cpu_fallback"),
        ("[memory]\nbudgets = \"1GiB\"", "memory.budget"),
    ];
    for (text, meant) in misspelt {
        match Config::from_toml(text, "test") {
            Err(ConfigError::UnknownKey { suggestion, .. }) => assert_eq!(suggestion.as_deref(), Some(meant)),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    match Config::from_toml("[gpus]\nxyzzy_plugh = 1", "test") {
        Err(ConfigError::UnknownKey { key, suggestion: None }) => assert_eq!(key, "gpus.xyzzy_plugh"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_types_and_values_name_their_key() {
    let wrong = [
        ("[synthesis]\nthreads = \"many\"", "synthesis.threads"),
        ("[synthesis]\nthreads = -1", "synthesis.threads"),
        ("[synthesis]\nthreads = 100000", "synthesis.threads"),
        ("[gpus]\nmax_restarts = 1001", "gpus.max_restarts"),
        ("[scheduler]\nmax_queued_jobs = 0", "scheduler.max_queued_jobs"),
        ("[memory]\nbudget = \"lots\"", "memory.budget"),
        ("[memory]\nbudget = \"1KiB\"", "memory.budget"),
        ("[memory]\nbudget = \"18446744073709551615GiB\"", "memory.budget"),
        ("[gpus]\ncpu_fallback = \"yes\"", "gpus.cpu_fallback"),
        ("[gpus]\ncritical_devices = \"sim-1\"", "gpus.critical_devices"),
        ("[scheduler]\nbatch_partitions = 0", "scheduler.batch_partitions"),
        ("[srs]\nwarmup = [\"porep-3k\"]", "srs.warmup"),
        ("[srs]\nwarmup = [\"winning-2k\", \"winning-2k\"]", "srs.warmup"),
        ("[gpus]\nmemory_budget = \"1GiB\"\ncritical_reserve = \"1GiB\"", "gpus.critical_reserve"),
        // What "auto" comes to is known of these devices.
        ("[gpus]\ndevices = \"sim:2;mem=1GiB\"\ncritical_reserve = \"1GiB\"", "gpus.critical_reserve"),
        ("[gpus]\ndevices = \"cpu\"\ncritical_reserve = \"1000000GiB\"", "gpus.critical_reserve"),
        ("[gpus]\ndevices = \"sim:0\"", "gpus.devices"),
        ("[gpus]\ndevices = \"gpu\"", "gpus.devices"),
        ("[journal]\nretention_count = 0", "journal.retention_count"),
        ("[journal]\nretention_age_s = 40000000", "journal.retention_age_s"),
        ("[journal]\npath = 3", "journal.path"),
        ("[logging]\nformat = \"xml\"", "logging.format"),
        ("[logging]\nlevel = \"verbose\"", "logging.level"),
        ("gpus = 3", "gpus"),
    ];
    for (text, named) in wrong {
        match Config::from_toml(text, "test") {
            Err(ConfigError::Value { key, .. }) => assert_eq!(key, named, "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    assert!(matches!(Config::from_toml("[gpus\n", "test"), Err(ConfigError::Read { .. })));
    Config::from_toml("[gpus]\nmemory_budget = \"1GiB\"\ncritical_reserve = \"1023MiB\"", "test").unwrap();
    let of_sim = "[gpus]\ndevices = \"sim:2;mem=1GiB\"\ncritical_reserve = \"512MiB\"";
    Config::from_toml(of_sim, "test").unwrap();
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn environment_wins_over_the_file_and_the_file_over_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cuzk.toml");
    std::fs::write(&file, "[logging]\nlevel = \"info\"\nformat = \"json\"\n[memory]\nbudget = \"2GiB\"\n")
        .unwrap();
    let environment = variables(&[
        ("CUZK_CONFIG", file.to_str().unwrap()),
        ("CUZK_LOGGING_LEVEL", "debug"),
        ("CUZK_SYNTHESIS_THREADS", "3"),
        ("CUZK_GPUS_DEVICES", "sim:2"),
    ]);
    let config = Config::load(None, environment).unwrap();
    assert_eq!(config.logging.level, "debug");
    assert_eq!(config.logging.format, LogFormat::Json);
    assert_eq!(config.memory.budget, MemoryBudget::Size(ByteSize(2 << 30)));
    assert_eq!(config.synthesis.threads, 3);
    assert_eq!(config.gpus.devices, DeviceChoice::Sim("sim:2".to_owned()));
    assert_eq!(config.scheduler, Config::default().scheduler);
}

#[test]
fn variables_of_other_programs_are_left_alone_and_misspelt_ones_are_not() {
    let foreign = variables(&[("CUZK_SERVICE_HOST", "10.0.0.1"), ("CUZK_PORT_9820_TCP", "x"), ("HOME", "/")]);
    assert_eq!(Config::load(None, foreign).unwrap(), Config::default());

    let misspelt = Config::load(None, variables(&[("CUZK_LOGGING_LEVLE", "info")])).unwrap_err();
    assert_eq!(misspelt.to_string(), "unknown key `logging.levle`, did you mean `logging.level`?");

    match Config::load(None, variables(&[("CUZK_SYNTHESIS_THREADS", "many")])) {
        Err(ConfigError::Value { key, .. }) => assert_eq!(key, "CUZK_SYNTHESIS_THREADS"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_file_is_named() {
    let missing = Path::new("/nonexistent/cuzk.toml");
    match Config::load(Some(missing), variables(&[])) {
        Err(ConfigError::Read { path, .. }) => assert_eq!(path, "/nonexistent/cuzk.toml"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sizes_and_devices_print_as_they_are_written() {
    for text in ["auto", "256MiB", "16GiB", "0B", "1023KiB", "7B"] {
        assert_eq!(text.parse::<MemoryBudget>().unwrap().to_string(), text);
    }
    for text in ["auto", "cpu", "cuda", "cuda:0,GPU-6fd2a1bc,0000:04:00.0", "sim:7", "sim:2;mem=8GiB"] {
        assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
    }
}

#[test]
fn a_byte_order_mark_before_the_file_is_skipped() {
    let config = Config::from_toml("\u{feff}[synthesis]\nthreads = 3\n", "test").unwrap();
    assert_eq!(config.synthesis.threads, 3);
}

#[test]
fn an_empty_variable_is_as_good_as_none() {
    assert_eq!(Config::load(None, variables(&[("CUZK_CONFIG", "")])).unwrap(), Config::default());
    let named = Config::load(None, variables(&[("CUZK_CONFIG", "/nonexistent/cuzk.toml")]));
    assert!(matches!(named, Err(ConfigError::Read { .. })), "{named:?}");
}
