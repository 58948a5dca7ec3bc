//! A proving key whose points' logarithms are known, made on the device in a moment.
//!
//! It is the key of no circuit, so its proofs do not verify. But every sum over it is known as a multiple of the
//! generator, from the witness in scalar arithmetic alone, and so is every byte of a proof.

use std::error::Error;

use blstrs::{G1Projective, G2Projective, Scalar};
use cuzk::cuda::{Priority, Stream, SyntheticKernels, SyntheticSource};
use cuzk::error::SynthesisError;
use cuzk::groth16::density::Density;
use cuzk::groth16::prover::quotient_of;
use cuzk::groth16::srs::QuotientBasis;
use cuzk::groth16::{Blinding, PackedWitness, Proof, R1csShape, Srs, VerifyingKey};
use ff::Field;
use group::{Curve, Group};
use rayon::prelude::*;

use crate::kernels::Bench;

/// Logarithms of a query's points. Seeds lie so far apart that no two queries share one.
const fn query(number: u64) -> SyntheticSource {
    SyntheticSource { seed: number << 40, bits_of_1024: 0 }
}

const H: SyntheticSource = query(1);
const L: SyntheticSource = query(2);
const A: SyntheticSource = query(3);
const B_G1: SyntheticSource = query(4);
const B_G2: SyntheticSource = query(5);
const ALPHA: u64 = 101;
const BETA: u64 = 103;
const GAMMA: u64 = 107;
const DELTA: u64 = 109;

/// A key with as many points as `shape` needs. Waits for the device.
///
/// # Errors
/// The device's failures.
pub fn make_key(bench: &Bench, shape: &R1csShape) -> Result<Srs, Box<dyn Error>> {
    let kernels = SyntheticKernels::load(&bench.context)?;
    let stream = Stream::new(&bench.context, Priority::Normal)?;
    let reservation = bench.reservation();
    let g1 = |source, count| kernels.g1_points(&reservation, &stream, source, count)?.read();
    let num_b = shape.b_input_density().count_ones() + shape.b_aux_density().count_ones();
    let srs = Srs {
        vk: verifying_key(shape.num_inputs()),
        basis: QuotientBasis::Coefficients,
        h: g1(H, (1 << shape.domain_log2()) - 1)?,
        l: g1(L, shape.num_aux())?,
        a: g1(A, shape.num_inputs() + shape.a_aux_density().count_ones())?,
        b_g1: g1(B_G1, num_b)?,
        b_g2: kernels.g2_points(&reservation, &stream, B_G2, num_b)?.read()?,
    };
    srs.check_fits(shape)?;
    // The memory that it was made in is the proofs' now.
    stream.record()?.wait()?;
    bench.context.trim(0)?;
    Ok(srs)
}

fn verifying_key(num_inputs: usize) -> VerifyingKey {
    let g1 = |logarithm: u64| (G1Projective::generator() * Scalar::from(logarithm)).to_affine();
    let g2 = |logarithm: u64| (G2Projective::generator() * Scalar::from(logarithm)).to_affine();
    VerifyingKey {
        alpha_g1: g1(ALPHA),
        beta_g1: g1(BETA),
        beta_g2: g2(BETA),
        gamma_g2: g2(GAMMA),
        delta_g1: g1(DELTA),
        delta_g2: g2(DELTA),
        ic: (0..num_inputs as u64).map(|index| g1(index + 1)).collect(),
    }
}

/// The proof that any right prover makes with [`make_key`]'s key: its elements' logarithms, by the formulas of
/// [`cuzk::groth16::prover::assemble`], and the host's quotient.
///
/// # Errors
/// If the witness is of another shape.
pub fn expected_proof(
    shape: &R1csShape,
    witness: &PackedWitness,
    blinding: &Blinding,
) -> Result<Proof, SynthesisError> {
    let coefficients = quotient_of(shape, witness)?;
    let assignment = witness.unpack(shape.classes());
    let (inputs, aux) = (&assignment.input_assignment, &assignment.aux_assignment);
    let all_inputs: Vec<usize> = (0..inputs.len()).collect();
    let a_aux = ones(shape.a_aux_density());
    let (b_inputs, b_aux) = (ones(shape.b_input_density()), ones(shape.b_aux_density()));
    let sum_b = |source| sum(source, 0, &b_inputs, inputs) + sum(source, b_inputs.len(), &b_aux, aux);
    let all_aux: Vec<usize> = (0..aux.len()).collect();
    let sum_l = sum(L, 0, &all_aux, aux);
    let sum_a = sum(A, 0, &all_inputs, inputs) + sum(A, inputs.len(), &a_aux, aux);
    let sum_h = sum(H, 0, &(0..coefficients.len()).collect::<Vec<_>>(), &coefficients);

    let [alpha, beta, delta] = [ALPHA, BETA, DELTA].map(Scalar::from);
    let Blinding { r, s } = *blinding;
    let a = alpha + sum_a + r * delta;
    let b_g1 = beta + sum_b(B_G1) + s * delta;
    let b_g2 = beta + sum_b(B_G2) + s * delta;
    let c = s * a + r * b_g1 - r * s * delta + sum_h + sum_l;
    Ok(Proof {
        a: (G1Projective::generator() * a).to_affine(),
        b: (G2Projective::generator() * b_g2).to_affine(),
        c: (G1Projective::generator() * c).to_affine(),
    })
}

fn ones(density: &Density) -> Vec<usize> {
    density.iter_ones().collect()
}

/// `Σ log(first_point + i) values[indices[i]]`.
fn sum(source: SyntheticSource, first_point: usize, indices: &[usize], values: &[Scalar]) -> Scalar {
    let term = |(point, &index): (usize, &usize)| {
        let value = values[index];
        if value == Scalar::ZERO {
            return value;
        }
        Scalar::from(source.logarithm(first_point + point)) * value
    };
    indices.par_iter().enumerate().map(term).reduce(|| Scalar::ZERO, |left, right| left + right)
}
