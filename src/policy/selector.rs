//! Which device an operator means.

use std::fmt;
use std::str::FromStr;

/// How a GPU is named in the configuration. A UUID or a PCI bus id means the same card after a reboot; an ordinal is
/// only its place among the devices that are visible now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSelector {
    /// `GPU-` and a UUID, or the beginning of one (8 hexadecimal digits at least), as `nvidia-smi -L` prints it.
    Uuid(String),
    /// `0000:04:00.0`: domain, bus, device, function.
    PciBusId(String),
    Ordinal(u32),
}

impl DeviceSelector {
    /// Whether it means the device of this UUID (`GPU-…`), PCI bus id and ordinal.
    pub fn matches(&self, uuid: &str, pci_bus_id: &str, ordinal: u32) -> bool {
        match self {
            Self::Uuid(prefix) => uuid.to_ascii_lowercase().starts_with(prefix),
            Self::PciBusId(id) => pci_bus_id.eq_ignore_ascii_case(id),
            Self::Ordinal(own) => *own == ordinal,
        }
    }
}

impl FromStr for DeviceSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(uuid) = lower.strip_prefix("gpu-") {
            let is_uuid = (8..=36).contains(&uuid.len())
                && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
                && uuid[..8].chars().all(|c| c.is_ascii_hexdigit());
            if is_uuid {
                return Ok(Self::Uuid(lower));
            }
        } else if is_pci_bus_id(&lower) {
            return Ok(Self::PciBusId(lower));
        } else if let Ok(ordinal) = lower.parse() {
            return Ok(Self::Ordinal(ordinal));
        }
        Err(format!(
            "`{text}` names no device: write GPU-<uuid>, a PCI bus id such as 0000:04:00.0, or a number"
        ))
    }
}

/// `dddd:bb:dd.f`, hexadecimal.
fn is_pci_bus_id(text: &str) -> bool {
    let (Some((domain, rest)), true) = (text.split_once(':'), text.is_ascii()) else { return false };
    let Some((bus, rest)) = rest.split_once(':') else { return false };
    let Some((device, function)) = rest.split_once('.') else { return false };
    let is_hex = |part: &str, len: usize| part.len() == len && part.chars().all(|c| c.is_ascii_hexdigit());
    (is_hex(domain, 4) || is_hex(domain, 8)) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1)
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => write!(f, "GPU{}", &uuid[3..]),
            Self::PciBusId(id) => f.write_str(id),
            Self::Ordinal(ordinal) => ordinal.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-6fd2a1bc-0000-1111-2222-333344445555";

    #[test]
    fn b04_selectors_parse_and_match() {
        for text in [UUID, "GPU-6fd2a1bc", "gpu-6FD2A1BC", "0000:04:00.0", "00000000:04:00.0", "0", "17"] {
            let selector: DeviceSelector = text.parse().unwrap();
            let again: DeviceSelector = selector.to_string().parse().unwrap();
            assert_eq!(selector, again);
        }
        let selects = |text: &str| text.parse::<DeviceSelector>().unwrap().matches(UUID, "0000:1B:00.0", 3);
        assert!(selects(UUID) && selects("gpu-6FD2A1BC") && selects("0000:1b:00.0") && selects("3"));
        assert!(!selects("GPU-6fd2a1bd") && !selects("0000:1b:00.1") && !selects("0"));
    }

    #[test]
    fn b04_anything_else_is_a_clear_error() {
        for text in [
            "",
            "GPU-",
            "GPU-xyz",
            "GPU-1234",
            "-1",
            "0000:04:00",
            "0000-04:00.0",
            "cuda:0",
            "1.5",
            "gpu-ääää",
        ] {
            let error = text.parse::<DeviceSelector>().unwrap_err();
            assert!(error.contains("names no device") && error.contains("GPU-<uuid>"), "{error}");
        }
    }
}
