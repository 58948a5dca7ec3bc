//! How large each circuit is, and what memory its proofs take.

use serde::Serialize;

use super::{CircuitSpec, ProofKind, SectorSize};
use crate::groth16::domain::quotient_bytes;

/// The size of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CircuitSizes {
    /// Rows of the circuit itself, without the row per input that the prover adds.
    pub constraints: u64,
    /// The leading one included.
    pub num_inputs: u64,
    pub num_aux: u64,
    /// Aux variables that the constraints do not make bits.
    pub num_dense: u64,
    pub domain_log2: u32,
    /// Non-zero entries of A, B and C, where they were counted.
    pub num_nonzero: Option<[u64; 3]>,
    /// Exact size of the parameter file, where one was made or counted.
    pub params_bytes: Option<u64>,
    /// What the recorded shape takes in memory, where it was recorded.
    pub shape_bytes: Option<u64>,
}

/// Host memory that one proof of a circuit takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeeds {
    /// The proving key. Within 2 % where `CircuitSizes::params_bytes` is unknown.
    pub srs_bytes: u64,
    /// The constraint matrices, and which variables are bits. `None` where they were not recorded.
    pub shape_bytes: Option<u64>,
    /// One partition's witness.
    pub witness_bytes: u64,
    /// Two row vectors on the evaluation domain, and roots of unity.
    pub evaluation_bytes: u64,
}

impl MemoryNeeds {
    /// All of it, for one partition at a time.
    pub fn total_bytes(&self) -> u64 {
        self.srs_bytes + self.shape_bytes.unwrap_or(0) + self.witness_bytes + self.evaluation_bytes
    }
}

impl CircuitSpec {
    /// The circuit's size, where it is known.
    pub fn sizes(&self) -> Option<CircuitSizes> {
        use ProofKind::{PorepSealCommit as Porep, SnapDealsUpdate as Snap};
        if self.is_scaled() {
            return None;
        }
        match (self.kind, self.sector_size) {
            (ProofKind::WindowPostPartition | ProofKind::WinningPost, _) => self.post_sizes(),
            (Porep, SectorSize::Size2KiB) => Some(CircuitSizes {
                constraints: 2_687_921,
                num_inputs: 40,
                num_aux: 2_685_673,
                num_dense: 43_806,
                domain_log2: 22,
                num_nonzero: Some([6_421_005, 2_689_006, 5_824_682]),
                params_bytes: Some(1_114_707_768),
                shape_bytes: None,
            }),
            (Porep, SectorSize::Size8MiB) => Some(CircuitSizes {
                constraints: 3_844_929,
                num_inputs: 40,
                num_aux: 3_842_449,
                num_dense: 111_998,
                domain_log2: 22,
                num_nonzero: Some([9_388_453, 3_847_886, 8_234_882]),
                params_bytes: Some(1_429_027_896),
                shape_bytes: None,
            }),
            (Porep, SectorSize::Size512MiB) => Some(CircuitSizes {
                constraints: 4_423_433,
                num_inputs: 40,
                num_aux: 4_420_837,
                num_dense: 146_094,
                domain_log2: 23,
                num_nonzero: Some([10_872_177, 4_427_326, 9_439_982]),
                params_bytes: Some(1_988_841_144),
                shape_bytes: None,
            }),
            (Porep, SectorSize::Size32GiB) => Some(CircuitSizes {
                constraints: 130_278_869,
                num_inputs: 328,
                num_aux: 130_169_893,
                num_dense: 1_699_102,
                domain_log2: 27,
                num_nonzero: None,
                params_bytes: None,
                shape_bytes: None,
            }),
            (Snap, SectorSize::Size2KiB) => Some(CircuitSizes {
                constraints: 1_705_039,
                num_inputs: 5,
                num_aux: 1_703_569,
                num_dense: 25_896,
                domain_log2: 21,
                num_nonzero: Some([4_030_892, 1_706_537, 3_616_648]),
                params_bytes: Some(655_789_464),
                shape_bytes: None,
            }),
            (Snap, SectorSize::Size8MiB) => Some(CircuitSizes {
                constraints: 10_007_503,
                num_inputs: 5,
                num_aux: 9_998_039,
                num_dense: 70_266,
                domain_log2: 24,
                num_nonzero: Some([23_284_278, 10_015_181, 21_302_734]),
                params_bytes: Some(4_268_165_208),
                shape_bytes: None,
            }),
            (Porep | Snap, _) => None,
        }
    }

    /// A PoSt circuit is its challenges' paths: 66 (WinningPoSt) or 10 a sector (WindowPoSt), each with one row of
    /// fixed cost per level of the tree. The costs are those of the 2 KiB and 8 MiB circuits, which are two and six
    /// levels high; 512 MiB and 32 GiB follow from them with eight and ten. The top tree of 64 GiB has another arity.
    fn post_sizes(&self) -> Option<CircuitSizes> {
        let levels: u64 = match self.sector_size {
            SectorSize::Size2KiB => 2,
            SectorSize::Size8MiB => 6,
            SectorSize::Size512MiB => 8,
            SectorSize::Size32GiB => 10,
            SectorSize::Size64GiB => return None,
        };
        let sectors = u64::from(self.max_sectors());
        // Each level of a path has as many bits as say which child it comes from.
        let bits_per_path = 10 + 5 * (levels - 2);
        let (constraints, num_aux, num_inputs) = match self.kind {
            ProofKind::WindowPostPartition => (
                sectors * (10_933 + 5_300 * (levels - 2)),
                sectors * (11_064 + 5_370 * (levels - 2)),
                1 + sectors * 11,
            ),
            _ => (66 * (1_375 + 530 * (levels - 2)), 66 * (1_389 + 537 * (levels - 2)), 133),
        };
        let (num_nonzero, params_bytes, shape_bytes) = match (self.kind, self.sector_size) {
            (ProofKind::WindowPostPartition, SectorSize::Size2KiB) => {
                (Some([150_285, 22_230, 27_456]), Some(11_501_496), None)
            }
            (ProofKind::WindowPostPartition, SectorSize::Size8MiB) => {
                (Some([442_285, 65_350, 80_736]), Some(30_859_704), None)
            }
            (ProofKind::WinningPost, SectorSize::Size2KiB) => {
                (Some([621_985, 92_070, 113_652]), Some(47_299_128), None)
            }
            (ProofKind::WinningPost, SectorSize::Size8MiB) => {
                (Some([1_585_585, 234_366, 289_476]), Some(113_383_224), None)
            }
            _ => (None, None, None),
        };
        let num_paths = match self.kind {
            ProofKind::WindowPostPartition => 10 * sectors,
            _ => 66,
        };
        Some(CircuitSizes {
            constraints,
            num_inputs,
            num_aux,
            num_dense: num_aux - num_paths * bits_per_path,
            domain_log2: (constraints + num_inputs).next_power_of_two().ilog2(),
            num_nonzero,
            params_bytes,
            shape_bytes,
        })
    }

    /// The size of the parameter file: exact where one was made or counted, else within 2 %. `None` where the circuit's
    /// size is not known.
    pub fn params_bytes(&self) -> Option<u64> {
        let sizes = self.sizes()?;
        Some(sizes.params_bytes.unwrap_or_else(|| self.estimate_srs_bytes(&sizes)))
    }

    /// What one proof of this circuit takes; `None` where its size is not known.
    pub fn memory(&self) -> Option<MemoryNeeds> {
        let sizes = self.sizes()?;
        Some(MemoryNeeds {
            srs_bytes: self.params_bytes()?,
            shape_bytes: sizes.shape_bytes,
            witness_bytes: 32 * (sizes.num_inputs + sizes.num_dense) + 8 * sizes.num_aux.div_ceil(64),
            evaluation_bytes: quotient_bytes(sizes.domain_log2),
        })
    }

    /// Nearly every variable occurs in A. How many occur in B depends on the gadgets, so on the kind alone: the
    /// shares are those of the parameter files that were counted.
    fn estimate_srs_bytes(&self, sizes: &CircuitSizes) -> u64 {
        let b_per_mille = match self.kind {
            ProofKind::PorepSealCommit => 254,
            ProofKind::SnapDealsUpdate => 260,
            ProofKind::WindowPostPartition | ProofKind::WinningPost => 646,
        };
        let b = sizes.num_aux * b_per_mille / 1000;
        let a = sizes.num_inputs + sizes.num_aux;
        96 * ((1 << sizes.domain_log2) + sizes.num_aux + a + b) + 192 * b
    }
}
