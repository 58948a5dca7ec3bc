//! Simulated devices by the dozen, from one line of text.

use std::str::FromStr;

use crate::backend::sim::script::parse_duration;
use crate::backend::sim::{SimConfig, SimFactory, SimProver};
use crate::backend::Stage;
use crate::error::ConfigError;

/// Most devices of one fleet.
const MAX_DEVICES: usize = 64;

/// The devices `sim-0`, `sim-1`, ….
///
/// ```text
/// sim:2                                       two devices that do nothing wrong and make real proofs
/// sim:2;mem=8GiB;stage=10ms;prover=fake       memory of each, time of each stage, placeholder proofs
/// sim:2;0:hang@1.sum_l,alloc_fail(3);1:corrupt@*    fault scripts of devices 0 and 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimFleet {
    devices: Vec<SimConfig>,
}

impl SimFleet {
    /// `num_devices` like `template`, apart from their names.
    pub fn of(num_devices: usize, template: &SimConfig) -> Self {
        let devices = (0..num_devices).map(|index| SimConfig { index: index as u32, ..template.clone() });
        Self { devices: devices.collect() }
    }

    pub fn devices(&self) -> &[SimConfig] {
        &self.devices
    }

    /// For scripts and other changes of one device.
    pub fn device_mut(&mut self, index: usize) -> Option<&mut SimConfig> {
        self.devices.get_mut(index)
    }

    pub fn factories(&self) -> Vec<SimFactory> {
        self.devices.iter().cloned().map(SimFactory::new).collect()
    }

    fn apply(&mut self, option: &str) -> Result<(), ConfigError> {
        if let Some((key, value)) = option.split_once('=') {
            for device in &mut self.devices {
                set(device, key.trim(), value.trim()).map_err(bad)?;
            }
            return Ok(());
        }
        let (index, script) = option
            .split_once(':')
            .ok_or_else(|| bad(format!("`{option}` is neither `key=value` nor `device:faults`")))?;
        let num_devices = self.devices.len();
        let device = index
            .trim()
            .parse::<usize>()
            .ok()
            .and_then(|index| self.devices.get_mut(index))
            .ok_or_else(|| bad(format!("no device `{index}`: there are 0 to {}", num_devices - 1)))?;
        device.faults = script.parse()?;
        Ok(())
    }
}

impl FromStr for SimFleet {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let rest =
            text.strip_prefix("sim:").ok_or_else(|| bad(format!("`{text}` does not begin with `sim:`")))?;
        let mut parts = rest.split(';');
        let count = parts.next().unwrap_or_default().trim();
        let num_devices = count
            .parse::<usize>()
            .ok()
            .filter(|count| (1..=MAX_DEVICES).contains(count))
            .ok_or_else(|| bad(format!("`{count}` devices: 1 to {MAX_DEVICES} are possible")))?;
        let mut fleet = SimFleet::of(num_devices, &SimConfig::default());
        for option in parts.map(str::trim).filter(|option| !option.is_empty()) {
            fleet.apply(option)?;
        }
        Ok(fleet)
    }
}

fn bad(what: String) -> ConfigError {
    ConfigError::Value { key: "sim".to_owned(), what }
}

fn set(device: &mut SimConfig, key: &str, value: &str) -> Result<(), String> {
    match (key, value) {
        ("mem", _) => device.memory_bytes = parse_bytes(value)?,
        ("stage", _) => device.stage_durations = [parse_duration(value)?; Stage::ALL.len()],
        ("lanes", _) => {
            device.layout.normal = match value.parse() {
                Ok(lanes @ 1..=16) => lanes,
                _ => return Err(format!("`{value}` lanes: 1 to 16 are possible")),
            }
        }
        ("prover", "real") => device.prover = SimProver::Real,
        ("prover", "fake") => device.prover = SimProver::Fake,
        ("prover", _) => return Err(format!("prover `{value}`: `real` or `fake`")),
        _ => return Err(format!("unknown key `{key}`: mem, stage, lanes, prover are known")),
    }
    Ok(())
}

/// `8GiB`, `512MiB`, `64KiB` or plain bytes.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, unit)))
        .unwrap_or((text, 1));
    number
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("`{text}` is no size: write `8GiB`, `512MiB` or bytes"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fleet_is_one_line() {
        let fleet: SimFleet = "sim:2;mem=8GiB;stage=10ms;prover=fake;1:hang@2,alloc_fail(3)"
            .parse()
            .expect("it is as documented");
        let [first, second] = fleet.devices() else { panic!("two devices: {fleet:?}") };
        assert_eq!((first.index, second.index), (0, 1));
        assert_eq!(first.memory_bytes, 8 << 30);
        assert_eq!(first.stage_durations[3], Duration::from_millis(10));
        assert_eq!(first.prover, SimProver::Fake);
        assert_eq!(first.faults.to_string(), "");
        assert_eq!(second.faults.to_string(), "hang@2.sum_h,alloc_fail(3)");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("cpu", "does not begin with `sim:`"),
            ("sim:", "`` devices"),
            ("sim:0", "`0` devices"),
            ("sim:65", "1 to 64"),
            ("sim:1;speed=2", "unknown key `speed`"),
            ("sim:1;mem=8GB", "is no size"),
            ("sim:1;prover=best", "`real` or `fake`"),
            ("sim:1;1:hang", "no device `1`"),
            ("sim:1;hang", "neither"),
            ("sim:1;0:hung", "unknown word `hung`"),
        ] {
            let error = text.parse::<SimFleet>().expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
