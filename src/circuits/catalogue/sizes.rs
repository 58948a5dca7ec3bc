//! How large each circuit is, and what memory its proofs take.

use serde::Serialize;

use super::{CircuitSpec, ProofKind, SectorSize};

/// The size of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CircuitSizes {
    /// Rows of the circuit itself, without the row per input that the prover adds.
    pub constraints: u64,
    /// The leading one included.
    pub num_inputs: u64,
    pub num_aux: u64,
    pub domain_log2: u32,
    /// Non-zero entries of A, B and C, where they were counted.
    pub num_nonzero: Option<[u64; 3]>,
    /// Exact size of the parameter file, where one was made or counted.
    pub params_bytes: Option<u64>,
}

/// Host memory that one proof of a circuit takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeeds {
    /// The proving key. Within 2 % where `CircuitSizes::params_bytes` is unknown.
    pub srs_bytes: u64,
    /// The constraint matrices: 6 bytes per entry, 4 per row and matrix. `None` where the entries were not counted.
    pub shape_bytes: Option<u64>,
    /// One partition's witness.
    pub witness_bytes: u64,
    /// The three row vectors on the evaluation domain.
    pub evaluation_bytes: u64,
}

impl MemoryNeeds {
    /// All of it, for one partition at a time.
    pub fn total_bytes(&self) -> u64 {
        self.srs_bytes + self.shape_bytes.unwrap_or(0) + self.witness_bytes + self.evaluation_bytes
    }
}

impl CircuitSpec {
    /// The circuit's size; `None` if this circuit was never counted.
    ///
    /// Counted from Filecoin's blank circuits by `tests/circuits/counted.rs`, which holds the table against them: at every
    /// run those below a million constraints, in the nightly run all twenty. (PoRep and WindowPoSt from 32 GiB on and
    /// SnapDeals from 512 MiB on were counted with one or two rounds of challenges or sectors, of which each adds the same,
    /// and not yet as a whole.)
    pub fn sizes(&self) -> Option<CircuitSizes> {
        use ProofKind::{
            PorepSealCommit as Porep, SnapDealsUpdate as Snap, WindowPostPartition as Window,
            WinningPost as Winning,
        };
        use SectorSize::{Size2KiB, Size32GiB, Size512MiB, Size64GiB, Size8MiB};
        // Constraints, inputs, aux variables, entries of A, B and C, bytes of the parameter file.
        let (constraints, num_inputs, num_aux, num_nonzero, params_bytes) =
            match (self.kind, self.sector_size) {
                (Porep, Size2KiB) => {
                    (2_687_921, 40, 2_685_673, [6_421_005, 2_689_006, 5_824_682], 1_114_707_768)
                }
                (Porep, Size8MiB) => {
                    (3_844_929, 40, 3_842_449, [9_388_453, 3_847_886, 8_234_882], 1_429_027_896)
                }
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
                (Window, Size32GiB) => (
                    125_279_217,
                    25_840,
                    126_902_376,
                    [862_416_559, 127_398_015, 157_401_792],
                    60_780_374_232,
                ),
                (Window, Size64GiB) => (
                    129_887_900,
                    25_301,
                    131_500_200,
                    [893_324_601, 132_008_500, 163_088_400],
                    62_556_733_560,
                ),
                (Winning, Size2KiB) => (90_750, 133, 91_674, [621_985, 92_070, 113_652], 47_299_128),
                (Winning, Size8MiB) => (230_670, 133, 233_442, [1_585_585, 234_366, 289_476], 113_383_224),
                (Winning, Size512MiB) => (300_630, 133, 304_326, [2_067_385, 305_514, 377_388], 165_299_640),
                (Winning, Size32GiB) => (370_590, 133, 375_210, [2_549_185, 376_662, 465_300], 192_050_232),
                (Winning, Size64GiB) => (391_314, 133, 396_000, [2_689_501, 397_518, 491_040], 200_014_584),
            };
        Some(CircuitSizes {
            constraints,
            num_inputs,
            num_aux,
            domain_log2: u64::next_power_of_two(constraints + num_inputs).ilog2(),
            num_nonzero: Some(num_nonzero),
            params_bytes: Some(params_bytes),
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
        let rows = sizes.constraints + sizes.num_inputs;
        Some(MemoryNeeds {
            srs_bytes: self.params_bytes()?,
            shape_bytes: sizes
                .num_nonzero
                .map(|entries| 6 * entries.iter().sum::<u64>() + 3 * 4 * (rows + 1)),
            witness_bytes: 32 * (sizes.num_inputs + sizes.num_aux),
            evaluation_bytes: (3 * 32) << sizes.domain_log2,
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
