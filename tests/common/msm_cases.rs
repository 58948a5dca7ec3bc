//! Multi-exponentiations with known results, for the kernels on the host and on a GPU: bases are known multiples
//! `k_i` of a generator, so that the sum is `(Σ k_i s_i)` times it.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use blst::{blst_fr, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::{Curve, Group};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// The groups, with affine points as the SRS has them.
pub trait Curve12381: Group<Scalar = Scalar> + Curve {
    type Raw: Copy + cuzk_raw::Raw;
    fn raw(points: &[Self]) -> Vec<Self::Raw>;
}

pub mod cuzk_raw {
    use blst::{blst_p1_affine, blst_p2_affine};

    /// A point's 64-bit limbs.
    pub trait Raw {
        fn limbs(&self) -> Vec<u64>;
    }

    impl Raw for blst_p1_affine {
        fn limbs(&self) -> Vec<u64> {
            [self.x.l, self.y.l].concat()
        }
    }

    impl Raw for blst_p2_affine {
        fn limbs(&self) -> Vec<u64> {
            [self.x.fp[0].l, self.x.fp[1].l, self.y.fp[0].l, self.y.fp[1].l].concat()
        }
    }
}

impl Curve12381 for G1Projective {
    type Raw = blst_p1_affine;

    fn raw(points: &[Self]) -> Vec<blst_p1_affine> {
        let mut affine = vec![G1Affine::default(); points.len()];
        Self::batch_normalize(points, &mut affine);
        affine.iter().map(|point| *point.as_ref()).collect()
    }
}

impl Curve12381 for G2Projective {
    type Raw = blst_p2_affine;

    fn raw(points: &[Self]) -> Vec<blst_p2_affine> {
        let mut affine = vec![G2Affine::default(); points.len()];
        Self::batch_normalize(points, &mut affine);
        affine.iter().map(|point| *point.as_ref()).collect()
    }
}

pub fn scalar_of_log(log: i64) -> Scalar {
    let magnitude = Scalar::from(log.unsigned_abs());
    if log < 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// `logs[i]` times the generator; the logs are small.
pub fn bases<G: Curve12381>(logs: &[i64]) -> Vec<G::Raw> {
    let max = logs.iter().map(|log| log.unsigned_abs()).max().unwrap_or(0);
    let multiples: Vec<G> = std::iter::successors(Some(G::identity()), |point| Some(*point + G::generator()))
        .take(max as usize + 1)
        .collect();
    let point = |log: &i64| {
        let point = multiples[log.unsigned_abs() as usize];
        if *log < 0 {
            -point
        } else {
            point
        }
    };
    G::raw(&logs.iter().map(point).collect::<Vec<G>>())
}

pub fn expected<G: Curve12381>(logs: &[i64], scalars: &[Scalar]) -> G {
    G::generator() * logs.iter().zip(scalars).map(|(&log, s)| scalar_of_log(log) * s).sum::<Scalar>()
}

/// Montgomery form, as kernels take scalars.
pub fn raw_scalars(scalars: &[Scalar]) -> Vec<blst_fr> {
    scalars.iter().map(|&scalar| scalar.into()).collect()
}

/// The kinds of scalars a witness is made of, and those at the edges of the digits.
pub fn scalar_kinds(n: usize) -> Vec<(&'static str, Vec<Scalar>)> {
    let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
    let random = Scalar::random(&mut rng);
    let mut one_nonzero = vec![Scalar::ZERO; n];
    if let Some(last) = one_nonzero.last_mut() {
        *last = random;
    }
    let edges = edge_scalars();
    let mut sorted: Vec<Scalar> = (0..n).map(|_| Scalar::from(rng.next_u64() % 1000)).collect();
    sorted.sort();
    vec![
        ("uniform", (0..n).map(|_| Scalar::random(&mut rng)).collect()),
        ("bit-heavy", (0..n).map(|_| bit_heavy(&mut rng)).collect()),
        ("zeros", vec![Scalar::ZERO; n]),
        ("ones", vec![Scalar::ONE; n]),
        ("r - 1", vec![-Scalar::ONE; n]),
        ("all equal", vec![random; n]),
        ("one non-zero", one_nonzero),
        ("small, sorted", sorted),
        ("edges", (0..n).map(|i| edges[i % edges.len()]).collect()),
    ]
}

/// 90 % bits.
pub fn bit_heavy(rng: &mut impl RngCore) -> Scalar {
    match rng.next_u32() % 20 {
        0..9 => Scalar::ZERO,
        9..18 => Scalar::ONE,
        _ => Scalar::random(rng),
    }
}

/// Where digits change sign, carry through all windows, or are as large as they get.
pub fn edge_scalars() -> Vec<Scalar> {
    let half = -Scalar::ONE * Scalar::from(2).invert().unwrap(); // (r - 1)/2
    let mut edges = vec![Scalar::ONE, -Scalar::ONE, half, half + Scalar::ONE, half - Scalar::ONE];
    let two = Scalar::from(2);
    for exponent in 1..255u64 {
        let power = two.pow_vartime([exponent]);
        edges.extend([power, power - Scalar::ONE, power + Scalar::ONE, -power]);
    }
    edges
}

/// Bases on which incomplete addition formulas fail.
pub fn base_kinds(n: usize) -> Vec<(&'static str, Vec<i64>)> {
    let alternating = |even: i64, odd: i64| (0..n).map(|i| if i % 2 == 0 { even } else { odd }).collect();
    vec![
        ("distinct", (1..=n as i64).collect()),
        ("all equal", vec![77; n]),
        ("all the identity", vec![0; n]),
        ("P and -P", alternating(77, -77)),
        ("P and 2P", alternating(77, 154)),
        ("identity among others", (0..n as i64).map(|i| i % 3 * i).collect()),
    ]
}
