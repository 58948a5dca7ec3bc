//! Multi-exponentiation that treats scalars 0 and 1 apart.
//!
//! Most values of a witness are bits. A zero contributes nothing, and ones are summed by additions alone; only what
//! is left goes through the windows of Pippenger's algorithm. Bases are read where they are and never copied as a
//! whole.

use blst::{blst_fp, blst_fp2, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};

pub use crate::groth16::density::Density;
use crate::groth16::pippenger::{Bases, Coordinates, Terms};

/// `sum bases[i] * scalars[i]`; identity bases allowed. `bases.len() == scalars.len()`.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g1(bases: &[blst_p1_affine], scalars: &[Scalar]) -> G1Projective {
    assert_eq!(bases.len(), scalars.len(), "as many bases as scalars");
    sum_g1(bases, scalars.iter())
}

/// As [`msm_g1`], in G2.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g2(bases: &[blst_p2_affine], scalars: &[Scalar]) -> G2Projective {
    assert_eq!(bases.len(), scalars.len(), "as many bases as scalars");
    sum_g2(bases, scalars.iter())
}

/// `sum bases[k] * scalars[i_k]` over the set bits `i_k` of `density`; `bases.len() == density.count_ones()`.
///
/// # Panics
/// If the lengths do not fit together.
pub fn msm_g1_dense(bases: &[blst_p1_affine], density: &Density, scalars: &[Scalar]) -> G1Projective {
    assert_dense(bases.len(), density, scalars);
    sum_g1(bases, density.iter_ones().map(|index| &scalars[index]))
}

/// As [`msm_g1_dense`], in G2.
///
/// # Panics
/// If the lengths do not fit together.
pub fn msm_g2_dense(bases: &[blst_p2_affine], density: &Density, scalars: &[Scalar]) -> G2Projective {
    assert_dense(bases.len(), density, scalars);
    sum_g2(bases, density.iter_ones().map(|index| &scalars[index]))
}

fn assert_dense(num_bases: usize, density: &Density, scalars: &[Scalar]) {
    assert_eq!(density.len(), scalars.len(), "a density bit for each scalar");
    assert_eq!(num_bases, density.count_ones(), "as many bases as set density bits");
}

/// As many scalars as bases; a part at a time, to bound the copies of scalars.
fn sum_g1<'s>(bases: &[blst_p1_affine], mut scalars: impl Iterator<Item = &'s Scalar>) -> G1Projective {
    let sum_of_part = |points: &[blst_p1_affine]| {
        let terms = Terms::new(scalars.by_ref(), points.len());
        let decode = |base: &blst_p1_affine| Coordinates { x: base.x.into(), y: base.y.into() };
        let encode = |point: Coordinates<_>| G1Affine::from_raw_unchecked(point.x, point.y, false);
        Bases { points, decode, encode, digest: digest_of_fp }.sum(&terms)
    };
    bases.chunks(Terms::MAX_LEN).map(sum_of_part).sum()
}

fn sum_g2<'s>(bases: &[blst_p2_affine], mut scalars: impl Iterator<Item = &'s Scalar>) -> G2Projective {
    let sum_of_part = |points: &[blst_p2_affine]| {
        let terms = Terms::new(scalars.by_ref(), points.len());
        let decode = |base: &blst_p2_affine| Coordinates { x: base.x.into(), y: base.y.into() };
        let encode = |point: Coordinates<_>| G2Affine::from_raw_unchecked(point.x, point.y, false);
        Bases { points, decode, encode, digest: digest_of_fp2 }.sum(&terms)
    };
    bases.chunks(Terms::MAX_LEN).map(sum_of_part).sum()
}

#[inline(always)]
fn digest_of_fp<F: Copy + Into<blst_fp>>(coordinate: &F) -> u64 {
    let limbs = (*coordinate).into().l;
    limbs[0] ^ limbs[5]
}

#[inline(always)]
fn digest_of_fp2<F: Copy + Into<blst_fp2>>(coordinate: &F) -> u64 {
    let [c0, c1] = (*coordinate).into().fp;
    c0.l[0] ^ c1.l[5]
}
