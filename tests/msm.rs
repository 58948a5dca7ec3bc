//! Multi-exponentiation at the edges of the group and of the algorithm.
//!
//! Bases are known multiples `k_i` of a generator, so that the expected sum is `(Σ k_i s_i)` times it.

use blst::{blst_p1_affine, blst_p2_affine};
use blstrs::{G1Projective, G2Projective, Scalar};
use cuzk::groth16::msm::{
    msm_g1, msm_g1_packed, msm_g1_uniform, msm_g2, msm_g2_packed, Density, PackedScalars,
};
use cuzk::groth16::{Assignment, PackedWitness, VariableClasses};
use ff::Field;
use group::{Curve, Group};
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

const SIZES: [usize; 12] = [0, 1, 2, 3, 7, 31, 32, 33, 100, 500, 1000, 2500];

fn scalar(log: i64) -> Scalar {
    let magnitude = Scalar::from(log.unsigned_abs());
    if log < 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// `logs[i]` times the generator; the logs are small.
fn points<G: Group>(logs: &[i64]) -> Vec<G> {
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
    logs.iter().map(point).collect()
}

fn bases_g1(logs: &[i64]) -> Vec<blst_p1_affine> {
    points::<G1Projective>(logs).iter().map(|point| *point.to_affine().as_ref()).collect()
}

fn bases_g2(logs: &[i64]) -> Vec<blst_p2_affine> {
    points::<G2Projective>(logs).iter().map(|point| *point.to_affine().as_ref()).collect()
}

fn expected<G: Group<Scalar = Scalar>>(logs: &[i64], scalars: &[Scalar]) -> G {
    G::generator() * logs.iter().zip(scalars).map(|(&log, s)| scalar(log) * s).sum::<Scalar>()
}

/// The kinds of scalars a witness is made of.
fn scalar_kinds(n: usize) -> Vec<(&'static str, Vec<Scalar>)> {
    let mut rng = ChaCha20Rng::seed_from_u64(n as u64);
    let random = Scalar::random(&mut rng);
    let mut one_nonzero = vec![Scalar::ZERO; n];
    if let Some(last) = one_nonzero.last_mut() {
        *last = random;
    }
    vec![
        ("bit-heavy", (0..n).map(|_| bit_heavy(&mut rng)).collect()),
        ("zeros", vec![Scalar::ZERO; n]),
        ("ones", vec![Scalar::ONE; n]),
        ("r - 1", vec![-Scalar::ONE; n]),
        ("all equal", vec![random; n]),
        ("one non-zero", one_nonzero),
        ("small", (0..n).map(|i| Scalar::from(i as u64)).collect()),
        ("uniform", (0..n).map(|_| Scalar::random(&mut rng)).collect()),
    ]
}

fn bit_heavy(rng: &mut ChaCha20Rng) -> Scalar {
    match rng.next_u32() % 20 {
        0..10 => Scalar::ZERO,
        10..19 => Scalar::ONE,
        _ => Scalar::random(rng),
    }
}

/// Bases on which incomplete addition formulas fail.
fn base_kinds(n: usize) -> Vec<(&'static str, Vec<i64>)> {
    let alternating = |even: i64, odd: i64| (0..n).map(|i| if i % 2 == 0 { even } else { odd }).collect();
    vec![
        ("distinct", (1..=n as i64).collect()),
        ("all equal", vec![77; n]),
        ("all the identity", vec![0; n]),
        ("P and -P", alternating(77, -77)),
        ("P and 2P", alternating(77, 154)),
        ("P and the identity", alternating(77, 0)),
        ("identity among others", (0..n as i64).map(|i| i % 3 * i).collect()),
    ]
}

#[test]
fn any_bases_and_scalars_in_g1() {
    for n in SIZES {
        for (bases_kind, logs) in base_kinds(n) {
            let bases = bases_g1(&logs);
            for (kind, scalars) in scalar_kinds(n) {
                let sum = msm_g1(&bases, &scalars);
                assert_eq!(sum, expected(&logs, &scalars), "{n} points, {bases_kind}, {kind}");
                assert_eq!(msm_g1_uniform(&bases, scalars), sum, "{n} points, {bases_kind}, {kind}");
            }
        }
    }
}

#[test]
fn any_bases_and_scalars_in_g2() {
    for n in SIZES.into_iter().filter(|&n| n <= 1000) {
        for (bases_kind, logs) in base_kinds(n) {
            let bases = bases_g2(&logs);
            for (kind, scalars) in scalar_kinds(n) {
                let sum = msm_g2(&bases, &scalars);
                assert_eq!(sum, expected(&logs, &scalars), "{n} points, {bases_kind}, {kind}");
            }
        }
    }
}

/// More points than are sorted together.
#[test]
fn many_bases_in_g1() {
    let n = 70_000;
    let logs: Vec<i64> = (0..n as i64).collect();
    let bases = bases_g1(&logs);
    for (kind, scalars) in scalar_kinds(n) {
        assert_eq!(msm_g1(&bases, &scalars), expected(&logs, &scalars), "{kind}");
    }
}

#[test]
#[should_panic(expected = "as many bases as scalars")]
fn unequal_lengths_panic() {
    msm_g1(&bases_g1(&[1, 2]), &[Scalar::ONE]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn packed_sums_use_the_set_variables(
        flags in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..500),
        seed: u64,
    ) {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let scalars: Vec<Scalar> = flags.iter().map(|_| bit_heavy(&mut rng)).collect();
        let (mut density, mut dense) = (Density::new(flags.len()), Density::new(flags.len()));
        for (index, (is_set, is_dense)) in flags.iter().enumerate() {
            is_set.then(|| density.set(index));
            let is_bit = scalars[index] == Scalar::ZERO || scalars[index] == Scalar::ONE;
            (*is_dense || !is_bit).then(|| dense.set(index));
        }
        let classes = VariableClasses::from_dense(dense);
        let assignment = Assignment { input_assignment: vec![], aux_assignment: scalars.clone() };
        let witness = PackedWitness::pack(&assignment, &classes).unwrap();
        let all: Vec<usize> = (0..flags.len()).collect();
        let set: Vec<usize> = density.iter_ones().collect();
        for (density, variables) in [(None, all), (Some(&density), set)] {
            let selected: Vec<Scalar> = variables.iter().map(|&index| scalars[index]).collect();
            let logs: Vec<i64> = (1..=variables.len() as i64).collect();
            let packed = PackedScalars { density, classes: &classes, witness: &witness };
            prop_assert_eq!(msm_g1_packed(&bases_g1(&logs), packed), expected(&logs, &selected));
            prop_assert_eq!(msm_g2_packed(&bases_g2(&logs), packed), expected(&logs, &selected));
        }
    }
}
