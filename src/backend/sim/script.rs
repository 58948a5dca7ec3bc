//! What goes wrong on a simulated device, and when: a script of a few words.
//!
//! ```text
//! script    := fault ("," fault)*
//! fault     := "alloc_fail(" k ")"                     the k-th allocation of the device's life is refused
//!            | word [ "@" partitions [ "." stage ] ]
//! word      := "sticky"      the stage ends with a poisoned context: everything fails until it is opened anew
//!            | "hang"        the stage never ends
//!            | "lost"        the device is gone when the stage begins, and cannot be opened again
//!            | "corrupt"     the proof is wrong (takes no stage)
//!            | "panic"       the actor's handler panics when the stage ends
//!            | "delay(" ms "ms)"   the stage takes that much longer
//! partitions := k | k "+" | "*"    the k-th partition the device begins in its life; from it on; each   (default 1)
//! stage     := "upload" | "evaluate" | "quotient" | "sum_h" | …                              (default sum_h)
//! ```
//!
//! Counts go on when the device is opened anew: a fault for partition 1 strikes once. Self-tests are not counted.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::backend::Stage;
use crate::error::ConfigError;

/// One way in which a stage goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Sticky,
    Hang,
    Lost,
    Corrupt,
    Panic,
    Delay(Duration),
}

/// Which partitions of a device's life, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    Only(u64),
    From(u64),
}

impl Partitions {
    pub const ALL: Partitions = Partitions::From(1);

    fn contains(self, ordinal: u64) -> bool {
        match self {
            Partitions::Only(wanted) => ordinal == wanted,
            Partitions::From(first) => ordinal >= first,
        }
    }
}

/// A fault with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub partitions: Partitions,
    pub stage: Stage,
}

/// All faults of one device. Built by its methods or parsed from text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultScript {
    faults: Vec<Fault>,
    refused_allocations: Vec<u64>,
}

impl FaultScript {
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a fault.
    ///
    /// # Panics
    /// If partitions are counted from 0: they are counted from 1.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, partitions: Partitions, stage: Stage) -> Self {
        let (Partitions::Only(first) | Partitions::From(first)) = partitions;
        assert!(first > 0, "partitions are counted from 1");
        self.faults.push(Fault { kind, partitions, stage });
        self
    }

    /// Refuses the `ordinal`-th allocation of the device's life, counted from 1.
    #[must_use]
    pub fn with_alloc_fail(mut self, ordinal: u64) -> Self {
        self.refused_allocations.push(ordinal);
        self
    }

    pub(super) fn refuses_allocation(&self, ordinal: u64) -> bool {
        self.refused_allocations.contains(&ordinal)
    }

    /// Faults that strike this stage of this partition.
    pub(super) fn at(&self, ordinal: u64, stage: Stage) -> impl Iterator<Item = FaultKind> + '_ {
        self.faults
            .iter()
            .filter(move |fault| fault.stage == stage && fault.partitions.contains(ordinal))
            .map(|fault| fault.kind)
    }
}

impl FromStr for FaultScript {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut script = FaultScript::none();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            script = script.with_parsed(part).map_err(|what| bad_fault(part, &what))?;
        }
        Ok(script)
    }
}

fn bad_fault(part: &str, what: &str) -> ConfigError {
    ConfigError::Value { key: "sim".to_owned(), what: format!("fault `{part}`: {what}") }
}

impl FaultScript {
    fn with_parsed(self, part: &str) -> Result<Self, String> {
        let (head, address) = match part.split_once('@') {
            Some((head, address)) => (head, Some(address)),
            None => (part, None),
        };
        let (word, argument) = parse_call(head)?;
        if word == "alloc_fail" {
            if address.is_some() {
                return Err("`alloc_fail` counts allocations and takes no address".to_owned());
            }
            let ordinal = argument.ok_or("needs a number, as in `alloc_fail(3)`")?;
            return Ok(self.with_alloc_fail(parse_ordinal(ordinal)?));
        }
        let kind = parse_kind(word, argument)?;
        let (partitions, stage) = parse_address(address)?;
        if kind == FaultKind::Corrupt && stage.is_some() {
            return Err("`corrupt` concerns the proof and takes no stage".to_owned());
        }
        let default = if kind == FaultKind::Corrupt { Stage::Assemble } else { Stage::SumH };
        Ok(self.with(kind, partitions, stage.unwrap_or(default)))
    }
}

/// `word` or `word(argument)`.
fn parse_call(head: &str) -> Result<(&str, Option<&str>), String> {
    match head.split_once('(') {
        None => Ok((head.trim(), None)),
        Some((word, rest)) => {
            let argument = rest.trim().strip_suffix(')').ok_or("`(` without `)`")?;
            Ok((word.trim(), Some(argument.trim())))
        }
    }
}

fn parse_kind(word: &str, argument: Option<&str>) -> Result<FaultKind, String> {
    let kind = match word {
        "sticky" => FaultKind::Sticky,
        "hang" => FaultKind::Hang,
        "lost" => FaultKind::Lost,
        "corrupt" => FaultKind::Corrupt,
        "panic" => FaultKind::Panic,
        "delay" => {
            let argument = argument.ok_or("needs a time, as in `delay(250ms)`")?;
            return Ok(FaultKind::Delay(parse_duration(argument)?));
        }
        _ => {
            return Err(format!(
                "unknown word `{word}`: alloc_fail, sticky, hang, lost, corrupt, panic, delay are known"
            ))
        }
    };
    match argument {
        None => Ok(kind),
        Some(_) => Err(format!("`{word}` takes no argument")),
    }
}

fn parse_address(address: Option<&str>) -> Result<(Partitions, Option<Stage>), String> {
    let Some(address) = address else { return Ok((Partitions::Only(1), None)) };
    let (partitions, stage) = match address.split_once('.') {
        Some((partitions, stage)) => (partitions.trim(), Some(stage.trim())),
        None => (address.trim(), None),
    };
    let partitions = match (partitions, partitions.strip_suffix('+')) {
        ("*", _) => Partitions::ALL,
        (_, Some(first)) => Partitions::From(parse_ordinal(first)?),
        (only, None) => Partitions::Only(parse_ordinal(only)?),
    };
    let stage = match stage {
        None => None,
        Some(name) => Some(Stage::from_name(name).ok_or_else(|| {
            format!("unknown stage `{name}`: {} are known", Stage::ALL.map(Stage::as_str).join(", "))
        })?),
    };
    Ok((partitions, stage))
}

fn parse_ordinal(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("counts begin at 1".to_owned()),
        Ok(ordinal) => Ok(ordinal),
        Err(_) => Err(format!("`{text}` is no count")),
    }
}

/// `250ms` or `2s`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, to_duration): (&str, fn(u64) -> Duration) = if let Some(number) = text.strip_suffix("ms") {
        (number, Duration::from_millis)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, Duration::from_secs)
    } else {
        return Err(format!("`{text}` is no time: write `250ms` or `2s`"));
    };
    number.trim().parse().map(to_duration).map_err(|_| format!("`{text}` is no time: write `250ms` or `2s`"))
}

impl fmt::Display for FaultScript {
    /// As it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.iter().map(Fault::to_string);
        let refused = self.refused_allocations.iter().map(|ordinal| format!("alloc_fail({ordinal})"));
        f.write_str(&faults.chain(refused).collect::<Vec<_>>().join(","))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FaultKind::Sticky => f.write_str("sticky")?,
            FaultKind::Hang => f.write_str("hang")?,
            FaultKind::Lost => f.write_str("lost")?,
            FaultKind::Corrupt => f.write_str("corrupt")?,
            FaultKind::Panic => f.write_str("panic")?,
            FaultKind::Delay(delay) => write!(f, "delay({}ms)", delay.as_millis())?,
        }
        match self.partitions {
            Partitions::Only(ordinal) => write!(f, "@{ordinal}")?,
            Partitions::From(1) => f.write_str("@*")?,
            Partitions::From(first) => write!(f, "@{first}+")?,
        }
        match self.kind {
            FaultKind::Corrupt => Ok(()),
            _ => write!(f, ".{}", self.stage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_and_prints_again() {
        let text =
            "sticky@2.sum_l,hang@1.sum_h,lost@3+.quotient,corrupt@*,panic@1.upload,delay(250ms)@*.assemble,\
                    alloc_fail(3)";
        let script: FaultScript = text.parse().expect("all words are known");
        assert_eq!(script.to_string(), text);
        assert!(script.refuses_allocation(3) && !script.refuses_allocation(4));
        assert_eq!(script.at(2, Stage::SumL).collect::<Vec<_>>(), [FaultKind::Sticky]);
        assert_eq!(script.at(7, Stage::Quotient).collect::<Vec<_>>(), [FaultKind::Lost]);
        assert_eq!(script.at(2, Stage::Quotient).count(), 0);
        assert_eq!(
            script.at(9, Stage::Assemble).collect::<Vec<_>>(),
            [FaultKind::Corrupt, FaultKind::Delay(Duration::from_millis(250))]
        );
    }

    #[test]
    fn defaults_are_the_first_partition_and_sum_h() {
        let script: FaultScript = " hang , delay(2s)@4 ".parse().expect("spaces are allowed");
        assert_eq!(script.to_string(), "hang@1.sum_h,delay(2000ms)@4.sum_h");
        assert_eq!("".parse(), Ok(FaultScript::none()));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("hangs", "unknown word `hangs`"),
            ("alloc_fail", "needs a number"),
            ("alloc_fail(x)", "`x` is no count"),
            ("alloc_fail(0)", "counts begin at 1"),
            ("alloc_fail(1)@2", "takes no address"),
            ("hang(3)", "takes no argument"),
            ("hang@0", "counts begin at 1"),
            ("hang@1.sum_q", "unknown stage `sum_q`"),
            ("corrupt@1.sum_h", "takes no stage"),
            ("delay", "needs a time"),
            ("delay(3)", "is no time"),
            ("delay(3ms", "without `)`"),
        ] {
            let error = text.parse::<FaultScript>().expect_err(text).to_string();
            assert!(error.contains(word) && error.contains(text), "{text}: {error}");
        }
    }
}
