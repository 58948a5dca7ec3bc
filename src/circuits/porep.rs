//! PoRep C2: the proofs that a sector was sealed, from the output of commit phase 1.

use filecoin_proofs::constants::{DefaultPieceHasher, SectorShapeBase};
use filecoin_proofs::parameters::setup_params;
use filecoin_proofs::PoRepConfig;
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_porep::stacked::{StackedCompound, StackedDrg};

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::{ProofKind, SectorSize};
use crate::error::SynthesisError;
use crate::groth16::R1csShape;

type Compound = StackedCompound<SectorShapeBase, DefaultPieceHasher>;
type Scheme = StackedDrg<'static, SectorShapeBase, DefaultPieceHasher>;
type PublicParams = compound_proof::PublicParams<'static, Scheme>;

/// Records the matrices from the blank circuit. They are the same for every version of a size.
pub(crate) fn record_shape(sector_size: SectorSize) -> Result<R1csShape, SynthesisError> {
    let proof =
        RegisteredProof { kind: ProofKind::PorepSealCommit, sector_size, version: ProofVersion::V1_1 };
    let params = public_params(&config(&proof))?;
    R1csShape::record(<Compound as CompoundProof<Scheme, _>>::blank_circuit(&params.vanilla_params))
}

fn config(proof: &RegisteredProof) -> PoRepConfig {
    proof.as_seal_proof().expect("the registered proof is a PoRep's").as_v1_config()
}

fn public_params(config: &PoRepConfig) -> Result<PublicParams, SynthesisError> {
    let setup = compound_proof::SetupParams {
        vanilla_params: setup_params(config).map_err(refused)?,
        partitions: Some(usize::from(config.partitions)),
        priority: false,
    };
    <Compound as CompoundProof<Scheme, _>>::setup(&setup).map_err(refused)
}

fn refused(error: impl std::fmt::Display) -> SynthesisError {
    SynthesisError::Circuit(error.to_string())
}
