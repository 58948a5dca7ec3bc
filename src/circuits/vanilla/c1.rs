//! The output of PoRep's commit phase 1 ("C1"): JSON, bare or in a caller's wrapper, written by Rust or by Go.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use rayon::prelude::*;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{check_count, check_node, refuse, MerklePath, Node, TreeForm};
use crate::circuits::catalogue::RegisteredProof;
use crate::circuits::request::json_text;
use crate::circuits::ProofKind;
use crate::error::RequestError;
use crate::loops;

/// `Go`'s `struct{SectorNum int64; Phase1Out []byte; SectorSize uint64}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapper {
    #[serde(rename = "SectorNum")]
    sector_num: i64,
    #[serde(rename = "Phase1Out")]
    phase1_out: String,
    #[serde(rename = "SectorSize")]
    sector_size: u64,
}

/// What a wrapper says beside the C1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::circuits) struct WrapperFacts {
    pub sector_number: u64,
    pub sector_size: u64,
}

/// Everything of a C1 but the proofs.
#[derive(Deserialize)]
struct Head {
    registered_proof: String,
    #[serde(rename = "vanilla_proofs")]
    _vanilla_proofs: IgnoredAny,
    comm_r: Node,
    comm_d: Node,
    replica_id: Node,
    seed: Node,
    ticket: Node,
}

#[derive(Deserialize)]
struct Body {
    vanilla_proofs: OneEntry<Vec<Vec<ChallengeProof>>>,
}

/// A C1 whose challenges are found and not read yet.
#[derive(Deserialize)]
struct Outline<'t> {
    registered_proof: String,
    #[serde(borrow)]
    vanilla_proofs: OneEntry<Vec<Vec<&'t RawValue>>>,
    comm_r: Node,
    comm_d: Node,
    replica_id: Node,
    seed: Node,
    ticket: Node,
    /// Of a wrapper, whatever else there is.
    #[serde(rename = "Phase1Out")]
    phase1_out: Option<IgnoredAny>,
}

/// Mirrors `storage_proofs_porep::stacked::Proof`. Of `labeling_proofs` circuits take only the challenge, and of
/// `encoding_proof` nothing (storage-proofs-porep `stacked/circuit/params.rs`): their parents' labels, most of the
/// JSON, are those of the columns again, so they are skipped and made anew from the columns.
#[derive(Deserialize)]
pub(in crate::circuits) struct ChallengeProof {
    pub comm_d_proofs: MerklePath,
    pub comm_r_last_proof: MerklePath,
    pub replica_column_proofs: ReplicaColumns,
    pub labeling_proofs: Vec<Labeling>,
}

#[derive(Deserialize)]
pub(in crate::circuits) struct ReplicaColumns {
    pub c_x: ColumnProof,
    pub drg_parents: Vec<ColumnProof>,
    pub exp_parents: Vec<ColumnProof>,
}

#[derive(Deserialize)]
pub(in crate::circuits) struct ColumnProof {
    pub column: Column,
    pub inclusion_proof: MerklePath,
}

#[derive(Deserialize)]
pub(in crate::circuits) struct Column {
    pub rows: Vec<Node>,
}

#[derive(Deserialize)]
pub(in crate::circuits) struct Labeling {
    pub node: u64,
}

/// The numbers that a C1's parts must have.
#[derive(Clone, Copy, Debug)]
pub(in crate::circuits) struct C1Form {
    pub partitions: usize,
    pub challenges: usize,
    pub layers: usize,
    pub drg_parents: usize,
    pub exp_parents: usize,
}

/// A C1 whose form was checked.
pub(in crate::circuits) struct C1 {
    pub comm_r: Node,
    pub comm_d: Node,
    pub replica_id: Node,
    pub seed: Node,
    pub ticket: Node,
    /// `[partition][challenge]`
    pub partitions: Vec<Vec<ChallengeProof>>,
}

/// A C1 as it was read from JSON, out of its wrapper, with its registered proof known and no other part looked at.
pub(in crate::circuits) struct C1Text {
    pub wrapper: Option<WrapperFacts>,
    pub registered: RegisteredProof,
    head: Head,
    body: Result<Body, RequestError>,
}

impl C1Text {
    /// Takes the wrapper off, if there is one, and reads it: some 40 MB of a job of 32 GiB.
    pub fn read(bytes: &[u8]) -> Result<Self, RequestError> {
        let text = json_text(bytes);
        if let Some((head, body)) = read_side_by_side(text) {
            return Self::new(None, head, Ok(body));
        }
        let (json, wrapper) = unwrap(text)?;
        if let Some((head, body)) = wrapper.and_then(|_| read_side_by_side(&json)) {
            return Self::new(wrapper, head, Ok(body));
        }
        // Something is wrong with it: in order, so that the error says where.
        Self::new(wrapper, from_json::<Head>("C1", &json)?, from_json::<Body>("C1", &json))
    }

    fn new(
        wrapper: Option<WrapperFacts>,
        head: Head,
        body: Result<Body, RequestError>,
    ) -> Result<Self, RequestError> {
        let registered = RegisteredProof::from_name(ProofKind::PorepSealCommit, &head.registered_proof)
            .ok_or_else(|| RequestError::Unsupported {
                what: format!("C1 registered_proof {:?} is no known PoRep", head.registered_proof),
            })?;
        Ok(Self { wrapper, registered, head, body })
    }

    /// The proofs, their form checked.
    pub fn into_c1(self, form: C1Form) -> Result<C1, RequestError> {
        let Self { registered, head, body, .. } = self;
        let OneEntry { key, value: partitions } = body?.vanilla_proofs;
        check_key(&key, registered, &head)?;
        let Head { comm_r, comm_d, replica_id, seed, ticket, .. } = head;
        for (name, node) in [("comm_r", &comm_r), ("comm_d", &comm_d), ("replica_id", &replica_id)] {
            check_node("C1", name, node)?;
        }
        // As the library refuses them (filecoin-proofs `api/seal.rs`, `seal_commit_phase2_circuit_proofs`).
        for (name, node) in [("comm_r", &comm_r), ("comm_d", &comm_d), ("seed", &seed)] {
            if *node == [0; 32] {
                return refuse("C1", format_args!("{name} is all zeros"));
            }
        }
        check_count("C1", "partitions", form.partitions, partitions.len())?;
        for (number, partition) in partitions.iter().enumerate() {
            check_count(format_args!("partition {number}"), "challenges", form.challenges, partition.len())?;
            for (challenge, proof) in partition.iter().enumerate() {
                let at = format!("partition {number} challenge {challenge}");
                check_form(&at, proof, form, registered)?;
            }
        }
        Ok(C1 { comm_r, comm_d, replica_id, seed, ticket, partitions })
    }
}

/// One pass finds the challenges, then all threads read them. `None`: it is no C1, or a wrapped one.
fn read_side_by_side(json: &[u8]) -> Option<(Head, Body)> {
    let outline: Outline = serde_json::from_slice(json).ok()?;
    if outline.phase1_out.is_some() {
        return None;
    }
    let OneEntry { key, value: partitions } = outline.vanilla_proofs;
    let read = |challenges: Vec<&RawValue>| -> serde_json::Result<Vec<ChallengeProof>> {
        challenges.into_par_iter().map(|challenge| serde_json::from_str(challenge.get())).collect()
    };
    let value =
        loops::run(|| partitions.into_par_iter().map(read).collect::<serde_json::Result<_>>()).ok()?;
    let Outline { registered_proof, comm_r, comm_d, replica_id, seed, ticket, .. } = outline;
    let head =
        Head { registered_proof, _vanilla_proofs: IgnoredAny, comm_r, comm_d, replica_id, seed, ticket };
    Some((head, Body { vanilla_proofs: OneEntry { key, value } }))
}

/// The proofs' key is the name of the size's V1 proof, whatever the version.
fn check_key(key: &str, registered: RegisteredProof, head: &Head) -> Result<(), RequestError> {
    match RegisteredProof::from_name(ProofKind::PorepSealCommit, key) {
        Some(proof) if proof.sector_size == registered.sector_size => Ok(()),
        _ => Err(RequestError::Contradiction {
            left: "C1 registered_proof".into(),
            left_value: head.registered_proof.clone(),
            right: "the key in C1 vanilla_proofs".into(),
            right_value: key.into(),
        }),
    }
}

fn check_form(
    at: &str,
    proof: &ChallengeProof,
    form: C1Form,
    registered: RegisteredProof,
) -> Result<(), RequestError> {
    let replica = TreeForm::replica(registered.sector_size);
    proof
        .comm_d_proofs
        .check_form(format_args!("{at} comm_d path"), TreeForm::data(registered.sector_size))?;
    proof.comm_r_last_proof.check_form(format_args!("{at} comm_r_last path"), replica)?;
    let columns = &proof.replica_column_proofs;
    check_column(&format_args!("{at} column c_x"), &columns.c_x, form, replica)?;
    check_count(at, "drg_parents", form.drg_parents, columns.drg_parents.len())?;
    check_count(at, "exp_parents", form.exp_parents, columns.exp_parents.len())?;
    for (parent, column) in columns.drg_parents.iter().enumerate() {
        check_column(&format_args!("{at} column drg_parents[{parent}]"), column, form, replica)?;
    }
    for (parent, column) in columns.exp_parents.iter().enumerate() {
        check_column(&format_args!("{at} column exp_parents[{parent}]"), column, form, replica)?;
    }
    check_count(at, "labeling_proofs", form.layers, proof.labeling_proofs.len())
}

fn check_column(
    at: &impl fmt::Display,
    column: &ColumnProof,
    form: C1Form,
    replica: TreeForm,
) -> Result<(), RequestError> {
    check_count(at, "rows", form.layers, column.column.rows.len())?;
    for row in &column.column.rows {
        check_node(at, "row", row)?;
    }
    column.inclusion_proof.check_form(format_args!("{at} path"), replica)
}

/// Takes the wrapper off, if the object has the key `Phase1Out`.
fn unwrap(bytes: &[u8]) -> Result<(std::borrow::Cow<'_, [u8]>, Option<WrapperFacts>), RequestError> {
    let HasPhase1Out(is_wrapped) = from_json("C1", bytes)?;
    if !is_wrapped {
        return Ok((bytes.into(), None));
    }
    let wrapper: Wrapper = from_json("C1 wrapper", bytes)?;
    let json = base64::engine::general_purpose::STANDARD
        .decode(&wrapper.phase1_out)
        .or_else(|error| refuse("C1 wrapper Phase1Out", format_args!("is no base64: {error}")))?;
    let sector_number = u64::try_from(wrapper.sector_num)
        .or_else(|_| refuse("C1 wrapper SectorNum", format_args!("{} is negative", wrapper.sector_num)))?;
    Ok((json.into(), Some(WrapperFacts { sector_number, sector_size: wrapper.sector_size })))
}

fn from_json<'de, T: Deserialize<'de>>(at: &str, bytes: &'de [u8]) -> Result<T, RequestError> {
    serde_json::from_slice(bytes)
        .or_else(|error| refuse(at, format_args!("is no valid JSON of its kind: {error}")))
}

/// Whether an object has the key `Phase1Out`; the values are skipped.
struct HasPhase1Out(bool);

impl<'de> Deserialize<'de> for HasPhase1Out {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = HasPhase1Out;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object: a C1, or a wrapper with SectorNum, Phase1Out, SectorSize")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HasPhase1Out, A::Error> {
                let mut found = false;
                while let Some((key, IgnoredAny)) = map.next_entry::<std::borrow::Cow<'de, str>, _>()? {
                    found |= key == "Phase1Out";
                }
                Ok(HasPhase1Out(found))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// An object with exactly one entry.
struct OneEntry<T> {
    key: String,
    value: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneEntry<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entry<T> {
            type Value = OneEntry<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one entry")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OneEntry<T>, A::Error> {
                let (key, value) =
                    map.next_entry()?.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                match map.next_entry::<IgnoredAny, IgnoredAny>()? {
                    None => Ok(OneEntry { key, value }),
                    Some(_) => Err(serde::de::Error::invalid_length(2, &self)),
                }
            }
        }
        deserializer.deserialize_map(Entry(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is right is read by all threads, in both forms; the rest is read in order.
    #[test]
    fn a_c1_that_is_right_is_read_side_by_side() {
        let file = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin/porep-2k");
            std::fs::read(path.join("sector-1").join(name)).expect("a fixture")
        };
        let (bare, wrapped) = (file("c1.json"), file("c1-wrapped.json"));
        let (head, body) = read_side_by_side(&bare).expect("a C1");
        let in_order = from_json::<Body>("C1", &bare).expect("a C1").vanilla_proofs;
        assert_eq!(head.comm_r, from_json::<Head>("C1", &bare).expect("a C1").comm_r);
        let nodes = |proofs: &OneEntry<Vec<Vec<ChallengeProof>>>| -> Vec<Vec<u64>> {
            let of = |proof: &ChallengeProof| proof.labeling_proofs.iter().map(|label| label.node).collect();
            proofs.value.iter().flatten().map(of).collect()
        };
        assert_eq!(nodes(&body.vanilla_proofs), nodes(&in_order));
        assert!(read_side_by_side(&wrapped).is_none(), "a wrapper comes off first");
        let (inner, _) = unwrap(&wrapped).expect("a wrapper");
        assert!(read_side_by_side(&inner).is_some());
        let text = String::from_utf8(bare).expect("JSON");
        assert!(read_side_by_side(text.replacen('{', r#"{"Phase1Out":"","#, 1).as_bytes()).is_none());
        assert!(read_side_by_side(text.replacen("index", "indez", 1).as_bytes()).is_none());
    }
}
