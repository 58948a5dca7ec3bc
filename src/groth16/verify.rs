//! Verification on the CPU: no proof counts before it.
//!
//! Groth16, section 3.2: `e(A, B) = e(alpha, beta) · e(IC, gamma) · e(C, delta)`, where
//! `IC = ic[0] + sum ic[1 + i] · public_inputs[i]`. The right-hand pairing of constants is made once per key, and
//! the points of G2 that never change are prepared with their sign turned, so that one multi-Miller loop and one
//! final exponentiation decide a proof.

use std::collections::HashMap;
use std::fmt;

use blstrs::{Bls12, G1Affine, G1Projective, G2Affine, G2Prepared, Gt, Scalar};
use ff::{Field, PrimeField};
use group::{Curve, Group};
use pairing::{Engine, MillerLoopResult, MultiMillerLoop};
use rand::rngs::OsRng;
use rand::RngCore;
use rayon::prelude::*;

use crate::groth16::{Proof, VerifyingKey};
use crate::loops;

/// A verifying key with its pairing precomputed.
pub struct PreparedVerifyingKey {
    vk: VerifyingKey,
    alpha_beta: Gt,
    beta: G2Prepared,
    neg_gamma: G2Prepared,
    neg_delta: G2Prepared,
}

impl fmt::Debug for PreparedVerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedVerifyingKey").field("num_inputs", &self.num_inputs()).finish_non_exhaustive()
    }
}

impl PreparedVerifyingKey {
    /// Costs one pairing and the lines of three points of G2, some 3 ms. `vk` must have at least the leading
    /// input, as every key that was read or generated has; with none, nothing verifies.
    pub fn new(vk: &VerifyingKey) -> Self {
        Self {
            vk: vk.clone(),
            alpha_beta: Bls12::pairing(&vk.alpha_g1, &vk.beta_g2),
            beta: vk.beta_g2.into(),
            neg_gamma: (-vk.gamma_g2).into(),
            neg_delta: (-vk.delta_g2).into(),
        }
    }

    /// Inputs, the leading one included.
    pub fn num_inputs(&self) -> usize {
        self.vk.ic.len()
    }

    /// Whether `proof` holds for `public_inputs` (without the leading one). A wrong number of public inputs is
    /// `false`, and so is a point off the curve or off the subgroup: a proof that faulty hardware made may have
    /// one, and the pairing's soundness ends there. Costs some 2 ms.
    pub fn verify(&self, proof: &Proof, public_inputs: &[Scalar]) -> bool {
        let Some(ic) = self.sum_ic(&[(Scalar::ONE, public_inputs)]) else { return false };
        if !has_valid_points(proof) {
            return false;
        }
        let b = G2Prepared::from(proof.b);
        let terms = [(&proof.a, &b), (&ic.to_affine(), &self.neg_gamma), (&proof.c, &self.neg_delta)];
        Bls12::multi_miller_loop(&terms).final_exponentiation() == self.alpha_beta
    }

    /// Whether all proofs hold, by one random linear combination (n + 3 Miller loops, one final exponentiation).
    /// A wrong proof passes with probability 2^-128: the weights are drawn from the operating system after the
    /// proofs are fixed. As [`PreparedVerifyingKey::verify`], `false` for a wrong number of public inputs or an
    /// invalid point in any proof; `true` for no proofs.
    ///
    /// # Panics
    /// If the operating system gives no random numbers.
    pub fn verify_batch(&self, proofs: &[(&Proof, &[Scalar])]) -> bool {
        // Nothing to be told apart, and the inputs stay as short as they are.
        if let [(proof, inputs)] = proofs {
            return self.verify(proof, inputs);
        }
        let weights: Vec<Scalar> = proofs.iter().map(|_| random_weight()).collect();
        let weighted_inputs: Vec<_> =
            weights.iter().zip(proofs).map(|(weight, (_, inputs))| (*weight, *inputs)).collect();
        let Some(ic) = self.sum_ic(&weighted_inputs) else { return false };
        if !loops::run(|| proofs.par_iter().all(|(proof, _)| has_valid_points(proof))) {
            return false;
        }
        let miller_loop = |((proof, _), weight): (&(&Proof, _), &Scalar)| {
            let weighted_a = (proof.a * weight).to_affine();
            Bls12::multi_miller_loop(&[(&weighted_a, &G2Prepared::from(proof.b))])
        };
        let a_b = loops::run(|| {
            let each = proofs.par_iter().zip(&weights).map(miller_loop);
            each.reduce(blstrs::MillerLoopResult::default, |left, right| left + right)
        });
        let weight_sum: Scalar = weights.iter().sum();
        let c: G1Projective = proofs.iter().zip(&weights).map(|((proof, _), weight)| proof.c * weight).sum();
        let neg_alpha = -(self.vk.alpha_g1 * weight_sum);
        let fixed = Bls12::multi_miller_loop(&[
            (&ic.to_affine(), &self.neg_gamma),
            (&c.to_affine(), &self.neg_delta),
            (&neg_alpha.to_affine(), &self.beta),
        ]);
        (a_b + fixed).final_exponentiation() == Gt::identity()
    }

    /// `sum weight_j · (ic[0] + sum ic[1 + i] · inputs_j[i])`: the weights go into the scalars, so that a batch
    /// costs one multiplication per input. `None` if a number of inputs is not the key's.
    fn sum_ic(&self, weighted_inputs: &[(Scalar, &[Scalar])]) -> Option<G1Projective> {
        let (ic_one, ic_inputs) = self.vk.ic.split_first()?;
        let mut one = Scalar::ZERO;
        let mut sums = vec![Scalar::ZERO; ic_inputs.len()];
        for (weight, inputs) in weighted_inputs {
            if inputs.len() != sums.len() {
                return None;
            }
            one += weight;
            sums.iter_mut().zip(*inputs).for_each(|(sum, input)| *sum += *input * weight);
        }
        // A PoRep of 32 GiB has 327 inputs, a WindowPoSt 25,839, which one thread would take long over.
        let inputs: G1Projective = loops::run(|| {
            let products =
                ic_inputs.par_chunks(MIN_PARALLEL_INPUTS).zip(sums.par_chunks(MIN_PARALLEL_INPUTS));
            products.map(|(points, sums)| sum_of_products(points, sums)).sum()
        });
        Some(inputs + ic_one * one)
    }
}

/// Inputs that one thread adds up; a job with no more is not spread.
const MIN_PARALLEL_INPUTS: usize = 512;

/// `sum points[i] · scalars[i]`, all scalars bit by bit along one chain of doublings, points with equal scalars as one. Public
/// inputs are mostly leaf indices, of a few bits, and commitments, of which a WinningPoSt has the same one 66 times.
fn sum_of_products(points: &[G1Affine], scalars: &[Scalar]) -> G1Projective {
    let mut by_scalar: HashMap<[u8; 32], G1Projective> = HashMap::new();
    for (point, scalar) in points.iter().zip(scalars) {
        *by_scalar.entry(scalar.to_repr()).or_insert(G1Projective::identity()) += point;
    }
    let (scalars, sums): (Vec<_>, Vec<_>) = by_scalar.into_iter().unzip();
    let mut points = vec![G1Affine::default(); sums.len()];
    G1Projective::batch_normalize(&sums, &mut points);
    let mut sum = G1Projective::identity();
    for bit in (0..Scalar::NUM_BITS as usize).rev() {
        sum = sum.double();
        for (scalar, point) in scalars.iter().zip(&points) {
            if scalar[bit / 8] >> (bit % 8) & 1 == 1 {
                sum += point;
            }
        }
    }
    sum
}

/// Weight of a proof in a batch: 128 random bits.
fn random_weight() -> Scalar {
    let mut bytes = [0; 32];
    OsRng.fill_bytes(&mut bytes[..16]);
    Scalar::from_bytes_le(&bytes).expect("2^128 is below the field's modulus")
}

fn has_valid_points(proof: &Proof) -> bool {
    let valid_g1 = |point: &G1Affine| bool::from(point.is_on_curve() & point.is_torsion_free());
    let valid_g2 = |point: &G2Affine| bool::from(point.is_on_curve() & point.is_torsion_free());
    valid_g1(&proof.a) && valid_g2(&proof.b) && valid_g1(&proof.c)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use group::prime::PrimeCurveAffine;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// A key and a proof made from known discrete logarithms: `A = a`, `B = b`, and C such that the equation holds.
    pub(crate) fn key_and_prover() -> (VerifyingKey, impl Fn(u64, u64, &[Scalar]) -> Proof) {
        let [alpha, beta, gamma, delta] = [3u64, 5, 7, 11].map(Scalar::from);
        let ic = [13u64, 17, 19].map(Scalar::from);
        let g1 = |scalar: Scalar| (G1Affine::generator() * scalar).to_affine();
        let g2 = |scalar: Scalar| (G2Affine::generator() * scalar).to_affine();
        let vk = VerifyingKey {
            alpha_g1: g1(alpha),
            beta_g1: g1(beta),
            beta_g2: g2(beta),
            gamma_g2: g2(gamma),
            delta_g1: g1(delta),
            delta_g2: g2(delta),
            ic: ic.map(g1).to_vec(),
        };
        let prove = move |a: u64, b: u64, inputs: &[Scalar]| {
            let [a, b] = [a, b].map(Scalar::from);
            let ic_sum = ic[0] + ic[1] * inputs[0] + ic[2] * inputs[1];
            let c = (a * b - alpha * beta - ic_sum * gamma) * delta.invert().expect("11 is not zero");
            Proof { a: g1(a), b: g2(b), c: g1(c) }
        };
        (vk, prove)
    }

    #[test]
    fn right_proofs_verify_alone_and_together() {
        let (vk, prove) = key_and_prover();
        let prepared = PreparedVerifyingKey::new(&vk);
        let inputs: Vec<_> = (0..5u64).map(|i| [Scalar::from(i), Scalar::from(40 + i)]).collect();
        let proofs: Vec<_> = inputs.iter().zip(20..).map(|(inputs, a)| prove(a, a + 1, inputs)).collect();
        assert!(proofs.iter().zip(&inputs).all(|(proof, inputs)| prepared.verify(proof, inputs)));
        let batch: Vec<_> =
            proofs.iter().zip(&inputs).map(|(proof, inputs)| (proof, inputs.as_slice())).collect();
        assert!(prepared.verify_batch(&batch));
        assert!(prepared.verify_batch(&[]));
    }

    #[test]
    fn one_wrong_proof_or_input_fails_the_batch_wherever_it_is() {
        let (vk, prove) = key_and_prover();
        let prepared = PreparedVerifyingKey::new(&vk);
        let inputs = [[Scalar::from(1), Scalar::from(2)], [Scalar::from(3), Scalar::from(4)]];
        let proofs = [prove(6, 7, &inputs[0]), prove(8, 9, &inputs[1])];
        // Two errors that cancel in a sum without weights.
        let mut cancelling = proofs.clone();
        cancelling[0].c = (proofs[0].c + G1Projective::from(G1Affine::generator())).to_affine();
        cancelling[1].c = (proofs[1].c - G1Projective::from(G1Affine::generator())).to_affine();
        let pairs = |proofs: &'_ [Proof; 2], inputs: &'_ [[Scalar; 2]; 2]| {
            prepared.verify_batch(&[(&proofs[0], &inputs[0]), (&proofs[1], &inputs[1])])
        };
        assert!(pairs(&proofs, &inputs));
        assert!(!pairs(&cancelling, &inputs));
        assert!(!pairs(&proofs, &[inputs[1], inputs[0]]));
        assert!(!prepared.verify(&proofs[0], &inputs[1]));
    }

    #[test]
    fn sums_of_products_are_those_of_single_ones() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let point = |i: u64| (G1Affine::generator() * Scalar::from(i * i + 1)).to_affine();
        let mut points: Vec<_> = (0..40).map(point).collect();
        points[3] = G1Affine::identity();
        let kinds =
            [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, Scalar::from(1 << 29), Scalar::random(&mut rng)];
        let scalars: Vec<_> = kinds.into_iter().cycle().take(30).collect();
        let scalars = [scalars, (0..10).map(|_| Scalar::random(&mut rng)).collect()].concat();
        let sum: G1Projective = points.iter().zip(&scalars).map(|(point, scalar)| point * scalar).sum();
        assert_eq!(sum_of_products(&points, &scalars), sum);
        assert_eq!(sum_of_products(&[], &[]), G1Projective::identity());
    }

    #[test]
    fn a_wrong_number_of_public_inputs_is_false() {
        let (vk, prove) = key_and_prover();
        let prepared = PreparedVerifyingKey::new(&vk);
        let inputs = [Scalar::from(1), Scalar::from(2)];
        let proof = prove(6, 7, &inputs);
        let longer = [inputs.as_slice(), &[Scalar::ZERO]].concat();
        assert!(!prepared.verify(&proof, &inputs[..1]) && !prepared.verify(&proof, &longer));
        assert!(!prepared.verify_batch(&[(&proof, &inputs), (&proof, &longer)]));
        assert!(!PreparedVerifyingKey::new(&VerifyingKey { ic: vec![], ..vk }).verify(&proof, &[]));
    }
}
