//! Values that are written as text: devices, sizes, log formats.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::backend::sim::SimFleet;
use crate::error::ConfigError;
use crate::policy::selector::DeviceSelector;

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("unknown log format `{other}`: use text or json")),
        }
    }
}

/// Which devices an engine uses: `auto`, `cpu`, `cuda`, `cuda:0,GPU-…`, or simulated ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Every GPU this build can drive; without one, the CPU.
    #[default]
    Auto,
    Cpu,
    /// Those CUDA devices; all of them if the list is empty.
    Cuda(Vec<DeviceSelector>),
    /// Simulated devices, whose proofs the CPU prover makes: `sim:2`, or a longer text that [`SimFleet`] reads.
    Sim(String),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(Vec::new())),
            _ if text.starts_with("sim:") => match text.parse::<SimFleet>() {
                Ok(_) => Ok(Self::Sim(text.to_owned())),
                Err(ConfigError::Value { what, .. }) => Err(what),
                Err(error) => Err(error.to_string()),
            },
            _ => match text.strip_prefix("cuda:") {
                Some(list) => {
                    list.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>().map(Self::Cuda)
                }
                None => Err(format!(
                    "unknown device `{text}`: use auto, cpu, cuda, cuda:DEVICE (such as cuda:0) or sim:N (such as sim:2)"
                )),
            },
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(selectors) => {
                f.write_str("cuda")?;
                for (index, selector) in selectors.iter().enumerate() {
                    write!(f, "{}{selector}", if index == 0 { ':' } else { ',' })?;
                }
                Ok(())
            }
            Self::Sim(fleet) => f.write_str(fleet),
        }
    }
}

/// A size of memory, written as `512MiB`; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = SIZE_UNITS.iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit)?.trim_end();
            number.parse::<u64>().ok()?.checked_mul(*factor)
        });
        parsed.map(Self).ok_or_else(|| {
            format!("`{text}` is no size: write a whole number of B, KiB, MiB or GiB, such as 16GiB")
        })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZE_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// A budget of memory: `auto`, or a size such as `16GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBudget {
    /// From what there is.
    #[default]
    Auto,
    Size(ByteSize),
}

impl MemoryBudget {
    /// The size in bytes; `None` for [`MemoryBudget::Auto`].
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Size(size) => Some(size.0),
        }
    }
}

impl FromStr for MemoryBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let or_auto = |error| format!("{error}, or auto");
        text.parse().map(Self::Size).map_err(or_auto)
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Size(size) => size.fmt(f),
        }
    }
}

/// Serde by the type's text, so that file, environment and flags are written alike.
macro_rules! serde_by_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

serde_by_text!(DeviceChoice);
serde_by_text!(MemoryBudget);
serde_by_text!(ByteSize);
