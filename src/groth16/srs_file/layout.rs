//! Where the sections of a parameter file are.
//!
//! No header, no padding; counts are u32 big-endian; points are uncompressed, 96 B in G1 and 192 B in G2
//! (bellperson 0.27, `groth16/params.rs` and `verifying_key.rs`):
//!
//! ```text
//! alpha_g1 | beta_g1 | beta_g2 | gamma_g2 | delta_g1 | delta_g2     864 B
//! n | ic      n | h      n | l      n | a      n | b_g1             n * 96 B each
//! n | b_g2                                                          n * 192 B
//! ```
//!
//! A `.vk` file ends after `ic`.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::io_error;
use crate::error::SrsError;

pub(super) const G1_BYTES: u64 = 96;
pub(super) const G2_BYTES: u64 = 192;
pub(super) const COUNT_BYTES: u64 = 4;

/// The points before `ic`: names in error messages, and sizes.
pub(super) const HEAD: [(&str, u64); 6] = [
    ("vk.alpha_g1", G1_BYTES),
    ("vk.beta_g1", G1_BYTES),
    ("vk.beta_g2", G2_BYTES),
    ("vk.gamma_g2", G2_BYTES),
    ("vk.delta_g1", G1_BYTES),
    ("vk.delta_g2", G2_BYTES),
];
pub(super) const HEAD_BYTES: u64 = 864;

/// The counted sections in the order of the file. Of a `.vk` file the first.
pub(super) const SECTIONS: [(&str, u64); 6] = [
    ("vk.ic", G1_BYTES),
    ("h", G1_BYTES),
    ("l", G1_BYTES),
    ("a", G1_BYTES),
    ("b_g1", G1_BYTES),
    ("b_g2", G2_BYTES),
];

/// A counted section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub name: &'static str,
    pub point_bytes: u64,
    pub num_points: u32,
}

impl Section {
    pub fn num_bytes(&self) -> u64 {
        u64::from(self.num_points) * self.point_bytes
    }
}

/// Reads the counts of the first `num_sections` sections, seeking over the points, and holds them against
/// `file_bytes`: no count is believed, and nothing allocated for it, before its points were seen to be there.
pub(super) fn locate(
    file: &mut (impl Read + Seek),
    file_bytes: u64,
    num_sections: usize,
    path: &Path,
) -> Result<Vec<Section>, SrsError> {
    let needs = |section, needs_bytes| {
        if needs_bytes <= file_bytes {
            return Ok(());
        }
        Err(SrsError::Length { path: path.into(), section, needs_bytes, has_bytes: file_bytes })
    };
    let mut end = 0;
    for (name, bytes) in HEAD {
        end += bytes;
        needs(name, end)?;
    }
    let mut sections = Vec::with_capacity(num_sections);
    for (name, point_bytes) in &SECTIONS[..num_sections] {
        needs(name, end + COUNT_BYTES)?;
        let mut count = [0; COUNT_BYTES as usize];
        file.seek(SeekFrom::Start(end)).map_err(|error| io_error(path, error))?;
        file.read_exact(&mut count).map_err(|error| io_error(path, error))?;
        let section = Section { name, point_bytes: *point_bytes, num_points: u32::from_be_bytes(count) };
        end += COUNT_BYTES + section.num_bytes();
        needs(name, end)?;
        sections.push(section);
    }
    if end < file_bytes {
        let section = "whole file";
        return Err(SrsError::Length { path: path.into(), section, needs_bytes: end, has_bytes: file_bytes });
    }
    file.rewind().map_err(|error| io_error(path, error))?;
    Ok(sections)
}
