//! SnapDeals: the proofs that new data was encoded into a sealed, empty sector.

use filecoin_proofs::constants::SectorShapeBase;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_update::{EmptySectorUpdate, EmptySectorUpdateCompound, PublicParams};

use crate::circuits::SectorSize;
use crate::error::SynthesisError;
use crate::groth16::R1csShape;

type Compound = EmptySectorUpdateCompound<SectorShapeBase>;
type Scheme = EmptySectorUpdate<SectorShapeBase>;

/// Records the matrices from the blank circuit.
pub(crate) fn record_shape(sector_size: SectorSize) -> Result<R1csShape, SynthesisError> {
    let params = PublicParams::from_sector_size(sector_size.bytes());
    R1csShape::record(<Compound as CompoundProof<Scheme, _>>::blank_circuit(&params))
}
