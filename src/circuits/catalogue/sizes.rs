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
    /// Aux variables that the constraints do not make bits, where the shape was recorded.
    pub num_dense: Option<u64>,
    pub domain_log2: u32,
    /// Non-zero entries of A, B and C, where they were counted.
    pub num_nonzero: Option<[u64; 3]>,
    /// Exact size of the parameter file, where one was made or counted.
    pub params_bytes: Option<u64>,
    /// What the recorded shape takes in memory, where it was recorded.
    pub shape_bytes: Option<u64>,
    /// What a device keeps of it: [`crate::groth16::shape::ImageLayout::num_bytes`].
    pub image_bytes: Option<u64>,
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

/// What a PoRep circuit has beside its challenges' parts, at every sector size: 311 constraints of the hash of two roots
/// and one that it is comm_r, 256 of the replica id's bits, three of public inputs.
const POREP_FIXED_CONSTRAINTS: u64 = 571;
/// 311 variables of the hash, 255 bits, five numbers.
const POREP_FIXED_AUX: u64 = 571;
const POREP_FIXED_DENSE: u64 = 316;
/// The one, replica id, comm_d and comm_r.
const POREP_FIXED_INPUTS: u64 = 4;

impl CircuitSpec {
    /// The circuit's size; `None` if this circuit was never counted.
    ///
    /// Counted from Filecoin's blank circuits by `tests/circuits/counted.rs`, which holds the table against them: at every
    /// run those below a million constraints, in the nightly run all twenty. (`cuzk-bench shape` has recorded those of
    /// PoRep and SnapDeals whole; WindowPoSt from 32 GiB on was counted with one or two sectors, of which each adds the
    /// same, and not yet as a whole.)
    pub fn sizes(&self) -> Option<CircuitSizes> {
        if self.is_scaled() {
            return self.scaled_sizes();
        }
        let (constraints, num_inputs, num_aux, num_nonzero, params_bytes) = self.counted();
        let recorded = self.recorded();
        Some(CircuitSizes {
            constraints,
            num_inputs,
            num_aux,
            num_dense: recorded.map(|(num_dense, ..)| num_dense),
            domain_log2: u64::next_power_of_two(constraints + num_inputs).ilog2(),
            num_nonzero: Some(num_nonzero),
            params_bytes: Some(params_bytes),
            shape_bytes: recorded.map(|(_, shape_bytes, _)| shape_bytes),
            image_bytes: recorded.map(|(.., image_bytes)| image_bytes),
        })
    }

    /// Of a circuit of the network: constraints, inputs, aux variables, entries of A, B and C, bytes of the parameter file.
    fn counted(&self) -> (u64, u64, u64, [u64; 3], u64) {
        use ProofKind::{
            PorepSealCommit as Porep, SnapDealsUpdate as Snap, WindowPostPartition as Window,
            WinningPost as Winning,
        };
        use SectorSize::{Size2KiB, Size32GiB, Size512MiB, Size64GiB, Size8MiB};
        match (self.kind, self.sector_size) {
            (Porep, Size2KiB) => (2_687_921, 40, 2_685_673, [6_421_005, 2_689_006, 5_824_682], 1_114_707_768),
            (Porep, Size8MiB) => (3_844_929, 40, 3_842_449, [9_388_453, 3_847_886, 8_234_882], 1_429_027_896),
            (Porep, Size512MiB) => {
                (4_423_433, 40, 4_420_837, [10_872_177, 4_427_326, 9_439_982], 1_988_841_144)
            }
            (Porep, Size32GiB) => {
                (130_278_541, 328, 130_169_893, [309_405_051, 130_327_340, 282_656_500], 47_373_928_632)
            }
            (Porep, Size64GiB) => {
                (131_185_849, 328, 131_076_643, [311_892_525, 131_235_764, 284_512_534], 47_624_967_288)
            }
            (Snap, Size2KiB) => (1_705_039, 5, 1_703_569, [4_030_892, 1_706_537, 3_616_648], 655_789_464),
            (Snap, Size8MiB) => {
                (10_007_503, 5, 9_998_039, [23_284_278, 10_015_181, 21_302_734], 4_268_165_208)
            }
            (Snap, Size512MiB) => {
                (57_450_479, 5, 57_401_314, [135_362_852, 57_500_527, 121_971_144], 21_741_422_712)
            }
            (Snap, Size32GiB) => {
                (81_049_499, 5, 80_978_488, [190_374_912, 81_118_127, 172_187_492], 34_453_501_368)
            }
            (Snap, Size64GiB) => {
                (85_006_101, 5, 84_931_220, [199_699_032, 85_077_653, 180_585_650], 35_507_495_352)
            }
            (Window, Size2KiB) => (21_866, 23, 22_128, [150_285, 22_230, 27_456], 11_501_496),
            (Window, Size8MiB) => (64_266, 23, 65_088, [442_285, 65_350, 80_736], 30_859_704),
            (Window, Size512MiB) => (85_466, 23, 86_568, [588_285, 86_910, 107_376], 45_257_400),
            (Window, Size32GiB) => {
                (125_279_217, 25_840, 126_902_376, [862_416_559, 127_398_015, 157_401_792], 60_780_374_232)
            }
            (Window, Size64GiB) => {
                (129_887_900, 25_301, 131_500_200, [893_324_601, 132_008_500, 163_088_400], 62_556_733_560)
            }
            (Winning, Size2KiB) => (90_750, 133, 91_674, [621_985, 92_070, 113_652], 47_299_128),
            (Winning, Size8MiB) => (230_670, 133, 233_442, [1_585_585, 234_366, 289_476], 113_383_224),
            (Winning, Size512MiB) => (300_630, 133, 304_326, [2_067_385, 305_514, 377_388], 165_299_640),
            (Winning, Size32GiB) => (370_590, 133, 375_210, [2_549_185, 376_662, 465_300], 192_050_232),
            (Winning, Size64GiB) => (391_314, 133, 396_000, [2_689_501, 397_518, 491_040], 200_014_584),
        }
    }

    /// Dense aux variables, and the bytes of the shape in memory and of its image, of circuits whose shape was recorded:
    /// by `cuzk-bench shape`.
    fn recorded(&self) -> Option<(u64, u64, u64)> {
        use ProofKind::{
            PorepSealCommit as Porep, SnapDealsUpdate as Snap, WindowPostPartition as Window,
            WinningPost as Winning,
        };
        use SectorSize::{Size2KiB, Size32GiB, Size512MiB, Size64GiB, Size8MiB};
        match (self.kind, self.sector_size) {
            (Porep, Size2KiB) => Some((43_806, 5_278_194, 4_831_008)),
            (Porep, Size8MiB) => Some((111_998, 5_985_358, 5_298_752)),
            (Porep, Size512MiB) => Some((146_094, 6_338_934, 5_532_608)),
            (Porep, Size32GiB) => Some((1_699_102, 92_324_697, 65_695_008)),
            (Porep, Size64GiB) => Some((1_789_606, 92_873_661, 66_056_416)),
            (Snap, Size2KiB) => Some((25_896, 1_571_986, 1_242_816)),
            (Snap, Size8MiB) => Some((70_266, 7_288_994, 5_276_256)),
            (Snap, Size32GiB) => Some((965_038, 53_886_389, 37_652_960)),
            (Window, Size2KiB) => Some((21_928, 96_581, 96_384)),
            (Window, Size8MiB) => Some((64_488, 115_045, 105_920)),
            (Window, Size512MiB) => Some((85_768, 124_289, 110_688)),
            (Winning, Size2KiB) => Some((91_014, 126_022, 111_296)),
            (Winning, Size8MiB) => Some((231_462, 185_702, 141_504)),
            (Winning, Size512MiB) => Some((301_686, 215_566, 156_608)),
            (Winning, Size32GiB) => Some((371_910, 245_394, 171_776)),
            (Winning, Size64GiB) => Some((392_634, 257_184, 179_264)),
            _ => None,
        }
    }

    /// A PoRep circuit is its challenges' parts, all alike, and a fixed one of replica id and commitments.
    fn scaled_sizes(&self) -> Option<CircuitSizes> {
        let network = Self::new(self.kind, self.sector_size);
        let full = network.sizes()?;
        let (has, of) = (u64::from(self.num_challenges()), u64::from(network.num_challenges()));
        let scale = |full: u64, fixed: u64| fixed + (full - fixed) / of * has;
        let constraints = scale(full.constraints, POREP_FIXED_CONSTRAINTS);
        let num_inputs = scale(full.num_inputs, POREP_FIXED_INPUTS);
        Some(CircuitSizes {
            constraints,
            num_inputs,
            num_aux: scale(full.num_aux, POREP_FIXED_AUX),
            num_dense: full.num_dense.map(|dense| scale(dense, POREP_FIXED_DENSE)),
            domain_log2: (constraints + num_inputs).next_power_of_two().ilog2(),
            num_nonzero: None,
            params_bytes: None,
            shape_bytes: None,
            image_bytes: None,
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
            // Where nobody knows which variables are bits, none is taken for one.
            witness_bytes: 32 * (sizes.num_inputs + sizes.num_dense.unwrap_or(sizes.num_aux))
                + 8 * sizes.num_aux.div_ceil(64),
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
