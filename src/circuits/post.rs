//! What WindowPoSt and WinningPoSt share: one circuit (`FallbackPoSt`), one form of vanilla proof.

use filecoin_proofs::constants::SectorShapeBase;
use filecoin_proofs::parameters::{window_post_setup_params, winning_post_setup_params};
use filecoin_proofs::{PoStConfig, PoStType};
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_post::fallback::{FallbackPoSt, FallbackPoStCompound};

use crate::circuits::catalogue::RegisteredProof;
use crate::error::SynthesisError;
use crate::groth16::R1csShape;

type Compound = FallbackPoStCompound<SectorShapeBase>;
type Scheme = FallbackPoSt<'static, SectorShapeBase>;
type PublicParams = compound_proof::PublicParams<'static, Scheme>;

/// Records the matrices from the blank circuit.
pub(super) fn record_shape(proof: &RegisteredProof) -> Result<R1csShape, SynthesisError> {
    let params = public_params(&config(proof))?;
    R1csShape::record(<Compound as CompoundProof<Scheme, _>>::blank_circuit(&params.vanilla_params))
}

pub(super) fn config(proof: &RegisteredProof) -> PoStConfig {
    proof.as_post_proof().expect("the registered proof is a PoSt's").as_v1_config()
}

/// One partition each: a WindowPoSt request is one partition of its deadline.
pub(super) fn public_params(config: &PoStConfig) -> Result<PublicParams, SynthesisError> {
    let vanilla_params = match config.typ {
        PoStType::Window => window_post_setup_params(config),
        PoStType::Winning => winning_post_setup_params(config).map_err(refused)?,
    };
    let setup = compound_proof::SetupParams { vanilla_params, partitions: None, priority: false };
    <Compound as CompoundProof<Scheme, _>>::setup(&setup).map_err(refused)
}

pub(super) fn refused(error: impl std::fmt::Display) -> SynthesisError {
    SynthesisError::Circuit(error.to_string())
}
