//! The witness of a PoSt partition (storage-proofs-post `fallback/circuit.rs`), WindowPoSt and WinningPoSt alike.

use blstrs::Scalar;
use filecoin_hashers::poseidon::PoseidonHasher;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_post::fallback::SectorProof;

use super::merkle::{Path, Tree};
use super::writer::{fill, Writer};
use super::{poseidon, Misfit};
use crate::groth16::packed::{PackedWitness, VariableClasses};

/// A place of the circuit: a sector's commitment and its vanilla proof.
pub(in crate::circuits) struct Place<'p, P: MerkleProofTrait> {
    pub comm_r: Scalar,
    pub proof: &'p SectorProof<P>,
}

/// The witness of a partition whose places are `places`.
///
/// # Errors
/// If the circuit whose variables are `classes` is another.
pub(in crate::circuits) fn witness<P>(
    classes: &VariableClasses,
    places: &[Place<'_, P>],
) -> Result<PackedWitness, Misfit>
where
    P: MerkleProofTrait<Hasher = PoseidonHasher>,
{
    fill(classes, |_| (), places, write_place)
}

fn write_place<P>(writer: &mut Writer<'_>, place: &Place<'_, P>)
where
    P: MerkleProofTrait<Hasher = PoseidonHasher>,
{
    let (comm_c, comm_r_last): (Scalar, Scalar) = (place.proof.comm_c.into(), place.proof.comm_r_last.into());
    writer.nums(&[comm_r_last, comm_c, place.comm_r]);
    writer.input(place.comm_r);
    poseidon::hash(writer, &[comm_c, comm_r_last]);
    for path in &place.proof.inclusion_proofs {
        let path = Path::new(path);
        writer.num(path.leaf());
        Tree::Poseidon.include(writer, path.leaf(), &path);
    }
}
