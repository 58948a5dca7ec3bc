//! Values that are written as text: devices, sizes, log formats.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
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

/// When a log file is closed and another one begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogRotation {
    #[default]
    Never,
    Hourly,
    Daily,
}

/// Where a server listens or a client connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Unix(PathBuf),
    /// `host:port`; the host may be a name.
    Tcp(String),
}

impl ListenAddress {
    /// Whether only this machine can reach it. A name is looked up by nobody here: but for `localhost` it is not.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(text) => match text.parse::<SocketAddr>() {
                Ok(address) => address.ip().is_loopback(),
                Err(_) => text.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
            },
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address: write unix:///path or host:port");
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(wrong()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_host = !host.is_empty() && !host.contains('/');
        if !is_host || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Self::Tcp(text.to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// One address or several, written as a text or as a list of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddresses(pub Vec<ListenAddress>);

impl FromStr for ListenAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for ListenAddresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        serializer.serialize_str(&all.join(","))
    }
}

impl<'de> Deserialize<'de> for ListenAddresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts: Vec<String> = match OneOrMany::<String>::deserialize(deserializer)? {
            OneOrMany::One(text) => text.split(',').map(|one| one.trim().to_owned()).collect(),
            OneOrMany::Many(texts) => texts,
        };
        texts
            .iter()
            .map(|one| one.parse())
            .collect::<Result<_, String>>()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// Permissions of a socket file, written in octal: `0660`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(pub u32);

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 => Ok(Self(mode)),
            _ => Err(format!("`{text}` is no mode: write three octal digits, such as 0660")),
        }
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
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

impl Serialize for DeviceChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// By text, or as a list of numbers and names of CUDA devices, of which an empty one means `auto`.
impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Device {
            Number(u32),
            Name(String),
        }
        let text = match OneOrMany::<Device>::deserialize(deserializer)? {
            OneOrMany::One(Device::Name(text)) => text,
            OneOrMany::One(Device::Number(number)) => format!("cuda:{number}"),
            OneOrMany::Many(list) if list.is_empty() => return Ok(Self::Auto),
            OneOrMany::Many(list) => {
                let names = list.into_iter().map(|device| match device {
                    Device::Number(number) => number.to_string(),
                    Device::Name(name) => name,
                });
                format!("cuda:{}", names.collect::<Vec<_>>().join(","))
            }
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

serde_by_text!(SocketMode);
serde_by_text!(MemoryBudget);
serde_by_text!(ByteSize);
