//! What of a new configuration counts at once, and what after a restart.

use cuzk::config::Config;
use cuzk::telemetry::LogFilter;
use toml::{Table, Value};

use crate::security::Tokens;

/// Which keys changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub applied: Vec<String>,
    pub needs_restart: Vec<String>,
}

/// Keys that are looked at whenever they are needed, or are handed to whoever uses them below.
const APPLIED: [&str; 13] = [
    "logging.level",
    "daemon.token_file",
    "daemon.drain_limit_s",
    "daemon.max_calls_per_s",
    "daemon.max_calls_per_s_per_connection",
    // Those of `Config::runtime_settings`.
    "scheduler.max_queued_jobs",
    "scheduler.max_attempts",
    "scheduler.retained_results",
    "scheduler.affinity_limit_s",
    "scheduler.batch_partitions",
    "scheduler.batch_limit_s",
    "srs.idle_limit_s",
    "memory.budget",
];

/// The configuration that is in use after this, and what changed. The token file is read again even if its name is the same.
///
/// # Errors
/// What cannot be used; nothing has changed then.
pub fn apply(
    current: &Config,
    new: Config,
    filter: Option<&LogFilter>,
    tokens: &Tokens,
) -> Result<(Config, Reloaded), String> {
    let mut reloaded = Reloaded::default();
    for key in changed(current, &new) {
        if APPLIED.contains(&key.as_str()) {
            reloaded.applied.push(key);
        } else {
            reloaded.needs_restart.push(key);
        }
    }
    let renewed = tokens.read(&new.daemon.token_file).map_err(|error| error.to_string())?;
    if let Some(filter) = filter {
        filter.set(&new.logging.level).map_err(|error| error.to_string())?;
    }
    if tokens.replace(renewed) && !reloaded.applied.iter().any(|key| key == "daemon.token_file") {
        reloaded.applied.push("daemon.token_file (its content)".to_owned());
    }
    let mut next = current.clone();
    next.logging.level = new.logging.level;
    next.daemon.token_file = new.daemon.token_file;
    next.daemon.drain_limit_s = new.daemon.drain_limit_s;
    next.daemon.max_calls_per_s = new.daemon.max_calls_per_s;
    next.daemon.max_calls_per_s_per_connection = new.daemon.max_calls_per_s_per_connection;
    let aging_step_s = current.scheduler.aging_step_s;
    next.scheduler = cuzk::config::SchedulerConfig { aging_step_s, ..new.scheduler };
    next.srs.idle_limit_s = new.srs.idle_limit_s;
    next.memory = new.memory;
    next.warnings = new.warnings;
    Ok((next, reloaded))
}

/// The keys whose values differ, as `section.key`.
fn changed(current: &Config, new: &Config) -> Vec<String> {
    let table = |config: &Config| Table::try_from(config).expect("a configuration is plain TOML");
    let (current, new) = (table(current), table(new));
    let mut keys = Vec::new();
    for (section, values) in &new {
        let Some(values) = values.as_table() else { continue };
        for (key, value) in values {
            let before = current.get(section).and_then(Value::as_table).and_then(|values| values.get(key));
            if before != Some(value) {
                keys.push(format!("{section}.{key}"));
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_at_once_is_told_from_what_needs_a_restart() {
        let old = Config::default();
        let mut new = old.clone();
        new.logging.level = "debug".to_owned();
        new.daemon.drain_limit_s = 7;
        new.memory.budget = "2GiB".parse().unwrap();
        new.gpus.quarantine_s = 5;
        new.scheduler.aging_step_s = 5;
        new.scheduler.max_queued_jobs = 5;
        let new_memory = new.memory.clone();
        let (next, reloaded) = apply(&old, new, None, &Tokens::default()).unwrap();
        assert_eq!(
            reloaded.applied,
            ["daemon.drain_limit_s", "logging.level", "memory.budget", "scheduler.max_queued_jobs"]
        );
        assert_eq!(reloaded.needs_restart, ["gpus.quarantine_s", "scheduler.aging_step_s"]);
        assert_eq!((next.daemon.drain_limit_s, next.logging.level.as_str()), (7, "debug"));
        // What needs a restart is still said the next time.
        assert_eq!((next.gpus, next.scheduler.aging_step_s), (old.gpus, old.scheduler.aging_step_s));
        assert_eq!((next.memory, next.scheduler.max_queued_jobs), (new_memory, 5));
    }
}
