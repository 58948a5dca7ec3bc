//! The manifest: names, content ids and digests of Filecoin's parameter files.
//!
//! It is `parameters.json` of storage-proofs-core, which the crate embeds and which the tools of Filecoin's other
//! implementations read too (`fetch-params`). Another network's manifest in the same form can be given.

use std::collections::BTreeMap;
use std::fmt;

use blake2b_simd::Hash;
use serde::Deserialize;
use storage_proofs_core::parameter_cache::PARAMETERS;

use crate::circuits::CircuitSpec;
use crate::error::ParamsError;

/// Bytes of a BLAKE2b-512 digest that a manifest states.
const DIGEST_BYTES: usize = 16;

/// The first 16 bytes of a file's BLAKE2b-512.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublishedDigest([u8; DIGEST_BYTES]);

impl PublishedDigest {
    /// From 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        Some(Self(hex::decode(text).ok()?.try_into().ok()?))
    }

    /// Of a whole digest.
    pub fn of(hash: &Hash) -> Self {
        let (first, _) = hash.as_array().split_first_chunk().expect("64 bytes begin with 16");
        Self(*first)
    }
}

impl fmt::Display for PublishedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PublishedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One entry of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// The file's name, in the cache folder and on mirrors that have folders.
    pub name: String,
    /// Its content id, by which IPFS gateways have it.
    pub cid: String,
    pub digest: PublishedDigest,
}

/// A file that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The circuit that it belongs to.
    pub circuit: CircuitSpec,
    pub file: PublishedFile,
    /// Its length, where it is known before it is fetched. The digest decides what is right; this is for the space and
    /// the time that it will take, and a bound on what a mirror may send.
    pub expected_bytes: Option<u64>,
}

/// What is published.
#[derive(Clone, Debug)]
pub struct Manifest {
    files: BTreeMap<String, PublishedFile>,
    /// The network's own, of whose files the lengths are known.
    is_networks: bool,
}

/// An entry as `parameters.json` has it.
#[derive(Deserialize)]
struct Entry {
    cid: String,
    digest: String,
}

impl Manifest {
    /// Filecoin's own.
    ///
    /// # Panics
    /// Never: what the library embeds was read by a test.
    pub fn published() -> Self {
        let entries = PARAMETERS.iter().map(|(name, data)| {
            let entry = Entry { cid: data.cid.clone(), digest: data.digest.clone() };
            (name.clone(), entry)
        });
        Self::of_entries(entries, true).expect("the embedded manifest is well formed")
    }

    /// One in the same form.
    ///
    /// # Errors
    /// [`ParamsError::Manifest`] naming the entry.
    pub fn from_json(text: &str) -> Result<Self, ParamsError> {
        let entries: BTreeMap<String, Entry> =
            serde_json::from_str(text).map_err(|error| ParamsError::Manifest { what: error.to_string() })?;
        Self::of_entries(entries.into_iter(), false)
    }

    fn of_entries(
        entries: impl Iterator<Item = (String, Entry)>,
        is_networks: bool,
    ) -> Result<Self, ParamsError> {
        let mut files = BTreeMap::new();
        for (name, Entry { cid, digest }) in entries {
            let refused = |what: &str| ParamsError::Manifest { what: format!("{name:?}: {what}") };
            // Names become paths, ids become parts of addresses: neither may lead elsewhere.
            let is_plain = |text: &str| {
                let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                !text.is_empty() && !text.starts_with('.') && text.chars().all(is_allowed)
            };
            if !is_plain(&name) {
                return Err(refused("is no plain file name"));
            }
            if !is_plain(&cid) {
                return Err(refused("its cid is no content id"));
            }
            let digest = PublishedDigest::from_hex(&digest)
                .ok_or_else(|| refused("its digest needs 32 hexadecimal digits"))?;
            files.insert(name.clone(), PublishedFile { name, cid, digest });
        }
        Ok(Self { files, is_networks })
    }

    /// The entry of this name.
    pub fn get(&self, name: &str) -> Option<&PublishedFile> {
        self.files.get(name)
    }

    /// The two files of a circuit, the verifying key first: it is small, and of use alone.
    ///
    /// # Errors
    /// [`ParamsError::Unpublished`] if the manifest lacks one of them.
    pub fn files_of(&self, circuit: &CircuitSpec) -> Result<[Wanted; 2], ParamsError> {
        let vk_bytes = circuit.sizes().map(|sizes| vk_bytes(sizes.num_inputs));
        let wanted = |name: String, expected_bytes: Option<u64>| {
            let file = self.files.get(&name).cloned();
            let file = file.ok_or(ParamsError::Unpublished { circuit: circuit.to_string(), name })?;
            let expected_bytes = expected_bytes.filter(|_| self.is_networks);
            Ok(Wanted { circuit: circuit.clone(), file, expected_bytes })
        };
        Ok([wanted(circuit.vk_file(), vk_bytes)?, wanted(circuit.params_file(), circuit.params_bytes())?])
    }
}

/// Bytes of a verifying key's file: three points in G1 and three in G2, a count, and a point in G1 for each input
/// (bellperson `verifying_key.rs`).
fn vk_bytes(num_inputs: u64) -> u64 {
    3 * 96 + 3 * 192 + 4 + 96 * num_inputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_circuit_of_the_catalogue_is_published() {
        let manifest = Manifest::published();
        for spec in CircuitSpec::all() {
            let [vk, params] = manifest.files_of(&spec).unwrap_or_else(|error| panic!("{error}"));
            assert!(vk.file.name.ends_with(".vk") && params.file.name.ends_with(".params"));
            assert!(params.expected_bytes > vk.expected_bytes && vk.expected_bytes.is_some(), "{spec}");
            assert_ne!(vk.file.cid, params.file.cid);
        }
        let scaled = CircuitSpec::by_id("porep-32g-k1").unwrap();
        assert!(matches!(manifest.files_of(&scaled), Err(ParamsError::Unpublished { .. })));
    }

    #[test]
    fn porep_and_snap_of_32_gib_are_some_80_gb() {
        let manifest = Manifest::published();
        let bytes = |id: &str| {
            let files = manifest.files_of(&CircuitSpec::by_id(id).unwrap()).unwrap();
            files.iter().filter_map(|wanted| wanted.expected_bytes).sum::<u64>()
        };
        let total = bytes("porep-32g") + bytes("snap-32g");
        assert!((80_000_000_000..84_000_000_000).contains(&total), "{total}");
    }

    #[test]
    fn entries_that_lead_elsewhere_are_refused() {
        let entry = |name: &str, cid: &str, digest: &str| {
            format!(r#"{{"{name}": {{"cid": "{cid}", "digest": "{digest}", "sector_size": 2048}}}}"#)
        };
        let digest = "c3ad7bb549470b82ad52ed070aebb4f4";
        Manifest::from_json(&entry("v28-a.vk", "Qm1", digest)).unwrap();
        for (name, cid, digest) in [
            ("../v28-a.vk", "Qm1", digest),
            (".v28-a.vk", "Qm1", digest),
            ("", "Qm1", digest),
            ("a/b", "Qm1", digest),
            ("v28-a.vk", "Qm1/../x?y", digest),
            ("v28-a.vk", "Qm1", "c3ad"),
            ("v28-a.vk", "Qm1", "zzad7bb549470b82ad52ed070aebb4f4"),
        ] {
            let refused = Manifest::from_json(&entry(name, cid, digest)).unwrap_err().to_string();
            assert!(refused.contains(&format!("{name:?}")), "{refused}");
        }
        assert!(matches!(Manifest::from_json("[1]"), Err(ParamsError::Manifest { .. })));
    }
}
