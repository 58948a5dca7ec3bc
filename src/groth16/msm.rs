//! Multi-exponentiation that treats scalars 0 and 1 apart.
//!
//! Most values of a witness are bits. A zero contributes nothing, and ones are summed by batched affine addition,
//! which costs a fraction of one window of Pippenger's algorithm; only what is left goes through the windows.

use blst::{blst_p1_affine, blst_p2_affine, MultiPoint};
use blstrs::{G1Projective, G2Projective, Scalar};
use ff::{Field, PrimeField};
use group::Group;
use rayon::prelude::*;

pub use crate::groth16::density::Density;

/// Points given to one call of Pippenger's algorithm at most: bounds the copies of scalars (32 B each) and bases. A
/// call's fixed cost, the summing of its buckets, is some percent at this size.
const CHUNK_LEN: usize = 1 << 21;
/// If at most one scalar in this many is 0 or 1, bases are not copied to leave those out.
const COPY_THRESHOLD: usize = 8;

/// `sum bases[i] * scalars[i]`; identity bases allowed. `bases.len() == scalars.len()`.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g1(bases: &[blst_p1_affine], scalars: &[Scalar]) -> G1Projective {
    msm(bases, scalars)
}

/// As [`msm_g1`], in G2.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g2(bases: &[blst_p2_affine], scalars: &[Scalar]) -> G2Projective {
    msm(bases, scalars)
}

/// `sum bases[k] * scalars[i_k]` over the set bits `i_k` of `density`; `bases.len() == density.count_ones()`.
///
/// # Panics
/// If the lengths do not fit together.
pub fn msm_g1_dense(bases: &[blst_p1_affine], density: &Density, scalars: &[Scalar]) -> G1Projective {
    msm_dense(bases, density, scalars)
}

/// As [`msm_g1_dense`], in G2.
///
/// # Panics
/// If the lengths do not fit together.
pub fn msm_g2_dense(bases: &[blst_p2_affine], density: &Density, scalars: &[Scalar]) -> G2Projective {
    msm_dense(bases, density, scalars)
}

/// An affine point of blst, with the group it belongs to.
trait Base: Copy + Send + Sync {
    type Sum: Group<Scalar = Scalar> + Send;

    /// Sum of `points`, which are not empty; equal, opposite and identity points allowed.
    fn add_all(points: &[Self]) -> Self::Sum;

    /// `sum points[i] * scalars[i]`, not empty; `scalars` are canonical, 32 B little-endian each.
    fn pippenger(points: &[Self], scalars: &[u8]) -> Self::Sum;
}

impl Base for blst_p1_affine {
    type Sum = G1Projective;

    fn add_all(points: &[Self]) -> G1Projective {
        let mut sum = G1Projective::identity();
        *sum.as_mut() = points.add();
        sum
    }

    fn pippenger(points: &[Self], scalars: &[u8]) -> G1Projective {
        let mut sum = G1Projective::identity();
        *sum.as_mut() = points.mult(scalars, Scalar::NUM_BITS as usize);
        sum
    }
}

impl Base for blst_p2_affine {
    type Sum = G2Projective;

    fn add_all(points: &[Self]) -> G2Projective {
        let mut sum = G2Projective::identity();
        *sum.as_mut() = points.add();
        sum
    }

    fn pippenger(points: &[Self], scalars: &[u8]) -> G2Projective {
        let mut sum = G2Projective::identity();
        *sum.as_mut() = points.mult(scalars, Scalar::NUM_BITS as usize);
        sum
    }
}

fn msm<B: Base>(bases: &[B], scalars: &[Scalar]) -> B::Sum {
    assert_eq!(bases.len(), scalars.len(), "as many bases as scalars");
    bases
        .chunks(CHUNK_LEN)
        .zip(scalars.chunks(CHUNK_LEN))
        .map(|(bases, scalars)| {
            let num_trivial = scalars.par_iter().filter(|scalar| is_trivial(scalar)).count();
            if num_trivial <= scalars.len() / COPY_THRESHOLD {
                general_sum(bases, scalars)
            } else {
                sum_by_kind(bases.iter().copied().zip(scalars.iter().copied()), scalars.len() - num_trivial)
            }
        })
        .sum()
}

fn msm_dense<B: Base>(bases: &[B], density: &Density, scalars: &[Scalar]) -> B::Sum {
    assert_eq!(density.len(), scalars.len(), "a density bit for each scalar");
    assert_eq!(bases.len(), density.count_ones(), "as many bases as set density bits");
    if bases.len() == scalars.len() {
        return msm(bases, scalars);
    }
    let mut selected = density.iter_ones().map(|index| scalars[index]);
    bases.chunks(CHUNK_LEN).map(|bases| sum_by_kind(bases.iter().copied().zip(selected.by_ref()), 0)).sum()
}

fn is_trivial(scalar: &Scalar) -> bool {
    *scalar == Scalar::ZERO || *scalar == Scalar::ONE
}

/// Sums the terms with scalar 1 by addition, the others by Pippenger's algorithm.
fn sum_by_kind<B: Base>(terms: impl Iterator<Item = (B, Scalar)>, num_general_hint: usize) -> B::Sum {
    let mut ones = Vec::new();
    let mut general_bases = Vec::with_capacity(num_general_hint);
    let mut general_scalars = Vec::with_capacity(num_general_hint);
    for (base, scalar) in terms {
        if scalar == Scalar::ONE {
            ones.push(base);
        } else if scalar != Scalar::ZERO {
            general_bases.push(base);
            general_scalars.push(scalar);
        }
    }
    let sum_of_ones = if ones.is_empty() { B::Sum::identity() } else { B::add_all(&ones) };
    drop(ones);
    sum_of_ones + general_sum(&general_bases, &general_scalars)
}

fn general_sum<B: Base>(bases: &[B], scalars: &[Scalar]) -> B::Sum {
    if bases.is_empty() {
        return B::Sum::identity();
    }
    let mut bytes = vec![0; 32 * scalars.len()];
    bytes
        .par_chunks_exact_mut(32)
        .zip(scalars)
        .with_min_len(1 << 10)
        .for_each(|(bytes, scalar)| bytes.copy_from_slice(&scalar.to_bytes_le()));
    B::pippenger(bases, &bytes)
}
