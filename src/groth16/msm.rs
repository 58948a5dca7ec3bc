//! Multi-exponentiation that treats scalars 0 and 1 apart.
//!
//! Most values of a witness are bits, and packed as such. A zero contributes nothing, and ones are summed by additions
//! alone; only what is left goes through the windows of Pippenger's algorithm. Bases are read where they are and never
//! copied as a whole.

use std::ops::Range;

use blst::{blst_fp, blst_fp2, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Group;

pub use crate::groth16::density::Density;
use crate::groth16::packed::{PackedWitness, VariableClasses};
use crate::groth16::pippenger::{canonical_limbs, Bases, Coordinates, TermSlices, Terms};

/// `sum bases[i] * scalars[i]`; identity bases allowed. `bases.len() == scalars.len()`.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g1(bases: &[blst_p1_affine], scalars: &[Scalar]) -> G1Projective {
    parts(bases, scalars).map(|(bases, scalars)| sum_g1(bases, Terms::new(scalars).as_slices())).sum()
}

/// As [`msm_g1`], in G2.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g2(bases: &[blst_p2_affine], scalars: &[Scalar]) -> G2Projective {
    parts(bases, scalars).map(|(bases, scalars)| sum_g2(bases, Terms::new(scalars).as_slices())).sum()
}

/// As [`msm_g1`], for scalars of which hardly any is 0 or 1, and which are not needed any more: they are made canonical
/// where they are, so that there is no second copy of them.
///
/// # Panics
/// If the lengths differ.
pub fn msm_g1_uniform(bases: &[blst_p1_affine], scalars: Vec<Scalar>) -> G1Projective {
    // Both kinds are 32 bytes: the vector's memory is kept.
    let scalars: Vec<[u64; 4]> = scalars.into_iter().map(|scalar| canonical_limbs(&scalar)).collect();
    let numbers: Vec<u32> = (0..bases.len().min(Terms::MAX_LEN) as u32).collect();
    let sum_of_part = |(bases, scalars): (&[blst_p1_affine], &[[u64; 4]])| {
        sum_g1(bases, TermSlices { ones: &[], general: &numbers[..bases.len()], scalars })
    };
    parts(bases, &scalars).map(sum_of_part).sum()
}

/// The aux variables that a query has points for, with their values.
#[derive(Clone, Copy)]
pub struct PackedScalars<'a> {
    /// `None`: all of them.
    pub density: Option<&'a Density>,
    pub classes: &'a VariableClasses,
    /// Of the circuit of the classes.
    pub witness: &'a PackedWitness,
}

/// The sum of `bases` by the packed values: base `k` belongs to the `k`-th variable of the density.
///
/// # Panics
/// If the lengths do not fit together.
pub fn msm_g1_packed(bases: &[blst_p1_affine], scalars: PackedScalars<'_>) -> G1Projective {
    let mut sum = G1Projective::identity();
    scalars.for_each_part(bases.len(), |range, terms| sum += sum_g1(&bases[range], terms));
    sum
}

/// As [`msm_g1_packed`], in G2.
///
/// # Panics
/// If the lengths do not fit together.
pub fn msm_g2_packed(bases: &[blst_p2_affine], scalars: PackedScalars<'_>) -> G2Projective {
    let mut sum = G2Projective::identity();
    scalars.for_each_part(bases.len(), |range, terms| sum += sum_g2(&bases[range], terms));
    sum
}

impl PackedScalars<'_> {
    /// Calls `visit` with parts of the bases and their terms; to bound the terms' memory.
    fn for_each_part(&self, num_bases: usize, mut visit: impl FnMut(Range<usize>, TermSlices<'_>)) {
        let Self { density, classes, witness } = *self;
        assert!(witness.fits(classes), "a witness of the classes' circuit");
        let num_variables = density.map_or(classes.num_aux(), Density::count_ones);
        assert_eq!(num_bases, num_variables, "as many bases as variables");
        assert!(
            density.is_none_or(|density| density.len() == classes.num_aux()),
            "a density of all variables"
        );

        let mut terms = Terms::default();
        let mut part = 0..0;
        let mut num_dense = 0;
        for (index, (&bits, &dense)) in witness.bits.iter().zip(classes.dense().words()).enumerate() {
            let all = u64::MAX >> (64 * (index + 1)).saturating_sub(classes.num_aux());
            let wanted = density.map_or(all, |density| density.words()[index]);
            let base = |bit: u32| (part.len() as u32) + ones_below(wanted, bit);
            for_each_one(bits & wanted, |bit| terms.push_one(base(bit)));
            for_each_one(dense & wanted, |bit| {
                terms.push(base(bit), &witness.dense[num_dense + ones_below(dense, bit) as usize]);
            });
            num_dense += dense.count_ones() as usize;
            part.end += wanted.count_ones() as usize;
            if part.len() + 64 > Terms::MAX_LEN {
                visit(part.clone(), terms.as_slices());
                terms.clear();
                part.start = part.end;
            }
        }
        visit(part, terms.as_slices());
    }
}

/// Bits of `word` that are set below bit `bit`.
fn ones_below(word: u64, bit: u32) -> u32 {
    (word & ((1 << bit) - 1)).count_ones()
}

fn for_each_one(mut word: u64, mut visit: impl FnMut(u32)) {
    while word != 0 {
        visit(word.trailing_zeros());
        word &= word - 1;
    }
}

/// Bases and their scalars, a part at a time: to bound the terms' memory.
fn parts<'a, B, S>(bases: &'a [B], scalars: &'a [S]) -> impl Iterator<Item = (&'a [B], &'a [S])> {
    assert_eq!(bases.len(), scalars.len(), "as many bases as scalars");
    bases.chunks(Terms::MAX_LEN).zip(scalars.chunks(Terms::MAX_LEN))
}

fn sum_g1(points: &[blst_p1_affine], terms: TermSlices<'_>) -> G1Projective {
    let decode = |base: &blst_p1_affine| Coordinates { x: base.x.into(), y: base.y.into() };
    let encode = |point: Coordinates<_>| G1Affine::from_raw_unchecked(point.x, point.y, false);
    Bases { points, decode, encode, digest: digest_of_fp }.sum(terms)
}

fn sum_g2(points: &[blst_p2_affine], terms: TermSlices<'_>) -> G2Projective {
    let decode = |base: &blst_p2_affine| Coordinates { x: base.x.into(), y: base.y.into() };
    let encode = |point: Coordinates<_>| G2Affine::from_raw_unchecked(point.x, point.y, false);
    Bases { points, decode, encode, digest: digest_of_fp2 }.sum(terms)
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
