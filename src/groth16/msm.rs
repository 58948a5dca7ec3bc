//! Multi-exponentiation that treats scalars 0 and 1 apart.

use blst::{blst_p1_affine, blst_p2_affine};
use blstrs::{G1Projective, G2Projective, Scalar};

pub use crate::groth16::density::Density;

/// `sum bases[i] * scalars[i]`; identity bases allowed. `bases.len() == scalars.len()`.
pub fn msm_g1(bases: &[blst_p1_affine], scalars: &[Scalar]) -> G1Projective {
    let _ = (bases, scalars);
    todo!()
}

/// As [`msm_g1`], in G2.
pub fn msm_g2(bases: &[blst_p2_affine], scalars: &[Scalar]) -> G2Projective {
    let _ = (bases, scalars);
    todo!()
}

/// `sum bases[k] * scalars[i_k]` over the set bits `i_k` of `density`; `bases.len() == density.count_ones()`.
pub fn msm_g1_dense(bases: &[blst_p1_affine], density: &Density, scalars: &[Scalar]) -> G1Projective {
    let _ = (bases, density, scalars);
    todo!()
}

/// As [`msm_g1_dense`], in G2.
pub fn msm_g2_dense(bases: &[blst_p2_affine], density: &Density, scalars: &[Scalar]) -> G2Projective {
    let _ = (bases, density, scalars);
    todo!()
}
