//! Values collected over the defaults: files and variables, with every mistake named by its key.
//!
//! A value of the wrong type is found by trying each key alone, so that the error can name it.

use serde::Deserialize;
use toml::{Table, Value};

use super::legacy::{is_legacy_section, legacy, Legacy};
use super::Config;
use crate::error::ConfigError;

/// Similarity (0 to 1) below which a known key is no suggestion for a misspelt one.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.55;

/// Values collected over the defaults, and the defaults themselves, which say what keys there are.
pub(super) struct Loader {
    defaults: Table,
    values: Table,
    /// See [`Config::warnings`].
    warnings: Vec<String>,
}

impl Loader {
    pub(super) fn new() -> Self {
        let defaults = Table::try_from(Config::default()).expect("the default configuration is plain TOML");
        Self { values: defaults.clone(), defaults, warnings: Vec::new() }
    }

    pub(super) fn apply_file(&mut self, text: &str, origin: &str) -> Result<(), ConfigError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Read {
            path: origin.to_owned(),
            what: error.to_string().trim_end().to_owned(),
        })?;
        for (section, value) in table {
            if !self.defaults.contains_key(&section) && !is_legacy_section(&section) {
                return Err(self.unknown(&section));
            }
            let Value::Table(entries) = value else {
                return Err(ConfigError::Value {
                    key: section.clone(),
                    what: format!("is a section: write `[{section}]`"),
                });
            };
            for (key, value) in entries {
                self.set(&section, &key, value)?;
            }
        }
        Ok(())
    }

    /// A variable of another program that happens to begin with `CUZK_` (an orchestrator makes
    /// `CUZK_SERVICE_HOST` for a service of that name) is none of ours; one that names a section is.
    pub(super) fn apply_variable(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(rest) = name.strip_prefix("CUZK_") else { return Ok(()) };
        let rest = rest.to_ascii_lowercase();
        let Some((section, key)) = rest.split_once('_') else { return Ok(()) };
        let Some(known) = self.defaults.get(section).and_then(Value::as_table) else { return Ok(()) };
        let value = match known.get(key) {
            Some(Value::String(_)) | None => Value::String(value.to_owned()),
            Some(_) => parse_value(value).unwrap_or_else(|| Value::String(value.to_owned())),
        };
        let (section, key) = (section.to_owned(), key.to_owned());
        self.set(&section, &key, value).map_err(|error| match error {
            ConfigError::Value { what, .. } => ConfigError::Value { key: name.to_owned(), what },
            other => other,
        })
    }

    fn set(&mut self, section: &str, key: &str, value: Value) -> Result<(), ConfigError> {
        let dotted = format!("{section}.{key}");
        let known = self.defaults.get(section).and_then(Value::as_table);
        let key = match legacy(section, key) {
            _ if known.is_some_and(|known| known.contains_key(key)) => key,
            Some(Legacy::Renamed(name)) => {
                self.warnings.push(format!("{dotted} is read as {section}.{name}"));
                name
            }
            Some(Legacy::Ignored(why)) => {
                self.warnings.push(format!("{dotted} has no effect: {why}"));
                return Ok(());
            }
            None => return Err(self.unknown(&dotted)),
        };
        let entries = self.values[section].as_table_mut().expect("every field of Config is a section");
        entries.insert(key.to_owned(), value);
        match Config::deserialize(self.values.clone()) {
            Ok(_) => Ok(()),
            Err(error) => Err(ConfigError::Value { key: dotted, what: error.message().to_owned() }),
        }
    }

    pub(super) fn finish(self) -> Result<Config, ConfigError> {
        let invalid = |error: toml::de::Error| ConfigError::Value {
            key: "configuration".to_owned(),
            what: error.message().to_owned(),
        };
        let config = Config::deserialize(self.values).map_err(invalid)?;
        Ok(Config { warnings: self.warnings, ..config })
    }

    fn unknown(&self, dotted: &str) -> ConfigError {
        let suggestion = suggest(dotted, &known_keys(&self.defaults));
        ConfigError::UnknownKey { key: dotted.to_owned(), suggestion }
    }
}

/// A number or a truth value as TOML writes it.
fn parse_value(text: &str) -> Option<Value> {
    format!("value = {text}").parse::<Table>().ok()?.remove("value")
}

/// Every section, and every key as `section.key`.
fn known_keys(defaults: &Table) -> Vec<String> {
    let mut keys: Vec<String> = defaults.keys().cloned().collect();
    for (section, value) in defaults {
        let entries = value.as_table().expect("every field of Config is a section");
        keys.extend(entries.keys().map(|key| format!("{section}.{key}")));
    }
    keys
}

/// The known key that `unknown` most likely stands for: compared as a whole, and by its last part alone, since a
/// key in the wrong section is a usual mistake too.
fn suggest(unknown: &str, known: &[String]) -> Option<String> {
    fn last(key: &str) -> &str {
        key.rsplit('.').next().unwrap_or(key)
    }
    let similarity = |candidate: &str| {
        let whole = strsim::normalized_damerau_levenshtein(unknown, candidate);
        let part = strsim::normalized_damerau_levenshtein(last(unknown), last(candidate));
        whole.max(part)
    };
    known
        .iter()
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SUGGESTION_SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate.clone())
}
