//! Binary formats: proofs, verifying keys, parameter files, and vanilla proofs in bincode.
//!
//! Vanilla proofs are told by their structure alone: every count in them must lead to exactly the file's length
//! (`tests/data/filecoin/README.md` has the layouts). Whether they hold is the prover's business.

use std::path::Path;

use super::Finding;
use crate::circuits::request::read_input;
use crate::circuits::{CircuitSpec, SectorSize};
use crate::error::InspectError;
use crate::groth16::proof::PROOF_BYTES;
use crate::groth16::srs_file::{read_counts, read_vk, SrsCounts};
use crate::groth16::Proof;

/// Larger files are only taken for parameter files.
const SMALL_FILE_BYTES_MAX: u64 = 256 << 20;
/// A verifying key without its points for public inputs: three points of G1, three of G2.
const VK_HEAD_BYTES: usize = 3 * 96 + 3 * 192;

pub(super) fn recognise(path: &Path, head: &[u8], file_bytes: u64) -> Result<Option<Finding>, InspectError> {
    if let Some(finding) = verifying_key(path, head, file_bytes)? {
        return Ok(Some(finding));
    }
    if let Ok(counts) = read_counts(path) {
        return Ok(Some(parameter_file(&counts)));
    }
    if file_bytes > SMALL_FILE_BYTES_MAX {
        return Ok(None);
    }
    let bytes = read_input(path)?;
    Ok(proofs(&bytes).or_else(|| post_vanilla_proof(&bytes)).or_else(|| snap_vanilla_proof(&bytes)))
}

/// A verifying key says how many points follow its head, and nothing follows those.
fn verifying_key(path: &Path, head: &[u8], file_bytes: u64) -> Result<Option<Finding>, InspectError> {
    let Some(count) = head.get(VK_HEAD_BYTES..VK_HEAD_BYTES + 4) else { return Ok(None) };
    let count = u32::from_be_bytes(count.try_into().expect("four bytes"));
    if count == 0 || file_bytes != VK_HEAD_BYTES as u64 + 4 + 96 * u64::from(count) {
        return Ok(None);
    }
    let vk = read_vk(path)?;
    let finding = Finding::new("verifying key")
        .with("inputs with one", vk.ic.len() as u64)
        .with("circuit by file name", circuit_by_name(path));
    Ok(Some(finding))
}

fn circuit_by_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let specs = CircuitSpec::all();
    let spec = specs.iter().find(|spec| spec.vk_file() == name || spec.params_file() == name)?;
    Some(spec.to_string())
}

fn parameter_file(counts: &SrsCounts) -> Finding {
    let is_of = |spec: &CircuitSpec| {
        spec.sizes().is_some_and(|sizes| {
            sizes.num_inputs == u64::from(counts.ic) && sizes.num_aux == u64::from(counts.l)
        })
    };
    let circuit = CircuitSpec::all().into_iter().find(is_of).map(|spec| spec.to_string());
    Finding::new("parameter file")
        .with("circuit by its counts", circuit)
        .with("inputs with one", counts.ic)
        .with("domain", u64::from(counts.h) + 1)
        .with("h", counts.h)
        .with("l", counts.l)
        .with("a", counts.a)
        .with("b_g1", counts.b_g1)
        .with("b_g2", counts.b_g2)
        .with("points", "not checked: `cuzk params check` does")
}

fn proofs(bytes: &[u8]) -> Option<Finding> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(PROOF_BYTES) {
        return None;
    }
    let all_valid = bytes.chunks(PROOF_BYTES).all(|chunk| Proof::from_bytes(chunk).is_ok());
    all_valid.then(|| Finding::new("proof").with("partitions", (bytes.len() / PROOF_BYTES) as u64))
}

/// Reads counts and skips what they count; `None` once the bytes run out.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn skip(&mut self, count: u64, size: u64) -> Option<()> {
        let bytes = usize::try_from(count.checked_mul(size)?).ok()?;
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn u64(&mut self) -> Option<u64> {
        let value = u64::from_le_bytes(self.rest.get(..8)?.try_into().ok()?);
        self.skip(8, 1)?;
        Some(value)
    }

    fn node(&mut self) -> Option<String> {
        let node = hex::encode(self.rest.get(..32)?);
        self.skip(32, 1)?;
        Some(node)
    }

    /// Skips a Merkle path; gives log2 of its tree's leaves. `siblings`: at every level of the base tree.
    fn path(&mut self, siblings: u64) -> Option<u32> {
        let tag = u32::from_le_bytes(self.rest.get(..4)?.try_into().ok()?);
        self.skip(4, 1)?;
        // The siblings in the levels of each part: base, sub and top tree. Root and leaf come first where there is only
        // the base tree, else last.
        let parts: &[u64] = match tag {
            0 => &[siblings],
            1 => &[siblings, 7],
            2 => &[siblings, 7, 1],
            _ => return None,
        };
        if tag == 0 {
            self.skip(2, 32)?;
        }
        let leaves_log2 = parts.iter().map(|&siblings| self.levels(siblings)).sum::<Option<u32>>()?;
        if tag != 0 {
            self.skip(2, 32)?;
        }
        Some(leaves_log2)
    }

    /// Skips the levels of one part of a path; gives log2 of its tree's leaves.
    fn levels(&mut self, siblings: u64) -> Option<u32> {
        let levels = u32::try_from(self.u64()?).ok().filter(|levels| (1..=64).contains(levels))?;
        for _ in 0..levels {
            if self.u64()? != siblings {
                return None;
            }
            self.skip(siblings, 32)?;
            self.skip(8, 1)?;
        }
        Some(levels * (siblings + 1).ilog2())
    }
}

/// The size of the sector that has so many leaves.
fn sector_size(leaves_log2: u32) -> Option<u64> {
    let size = SectorSize::ALL.into_iter().find(|size| size.num_nodes().ilog2() == leaves_log2)?;
    Some(size.bytes())
}

fn post_vanilla_proof(bytes: &[u8]) -> Option<Finding> {
    let mut cursor = Cursor { rest: bytes };
    let sector = cursor.u64()?;
    let comm_r = cursor.node()?;
    if cursor.u64()? != 1 {
        return None;
    }
    let paths = cursor.u64()?;
    if !(1..=1024).contains(&paths) {
        return None;
    }
    let mut leaves_log2 = 0;
    for _ in 0..paths {
        leaves_log2 = cursor.path(7)?;
    }
    cursor.skip(2, 32)?;
    let kind = match paths {
        66 => "winning-post",
        10 => "window-post",
        _ => "unknown number of challenges",
    };
    let finding = Finding::new("vanilla proof of one sector (PoSt)")
        .with("proof kind", kind)
        .with("sector number", sector)
        .with("sector size", sector_size(leaves_log2))
        .with("comm_r", comm_r)
        .with("challenges", paths);
    Some(with_trailing(finding, &cursor))
}

fn snap_vanilla_proof(bytes: &[u8]) -> Option<Finding> {
    let mut cursor = Cursor { rest: bytes };
    let comm_c = cursor.node()?;
    let apex_leaves = cursor.u64()?;
    cursor.skip(apex_leaves, 32)?;
    let challenges = cursor.u64()?;
    if !(1..=4096).contains(&challenges) {
        return None;
    }
    let mut leaves_log2 = 0;
    for _ in 0..challenges {
        leaves_log2 = cursor.path(7)?;
        cursor.path(1)?;
        cursor.path(7)?;
    }
    let finding = Finding::new("vanilla proof of one partition (SnapDeals)")
        .with("proof kind", "snap-update")
        .with("sector size", sector_size(leaves_log2))
        .with("comm_c", comm_c)
        .with("apex leaves", apex_leaves)
        .with("challenges", challenges);
    Some(with_trailing(finding, &cursor))
}

/// Bytes after the end are said, since a reader may refuse them.
fn with_trailing(finding: Finding, cursor: &Cursor<'_>) -> Finding {
    match cursor.rest.len() {
        0 => finding,
        trailing => finding.with("trailing bytes", trailing as u64),
    }
}
