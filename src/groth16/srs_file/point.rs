//! Points as parameter files hold them: uncompressed, in the zcash form, and as blst holds them.

use std::ops::AddAssign;

use blst::{blst_p1_affine, blst_p2_affine, p1_affines, p2_affines, MultiPoint};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};

/// Slices up to this length are summed and normalised by blst on the calling thread; above it, blst starts threads of
/// a pool of its own, beside rayon's (its limits: 384 points for sums, 768 for normalising).
pub(crate) const BATCH_POINTS: usize = 383;

/// An affine point of G1 or G2 in blst's form.
pub(crate) trait RawPoint: Copy + Default + Send + Sync + 'static {
    /// The same point as `blstrs` wraps it.
    type Affine: PrimeCurveAffine<Curve = Self::Projective> + Send + Sync;
    type Projective: Curve<AffineRepr = Self::Affine>
        + AddAssign<Self::Projective>
        + for<'a> AddAssign<&'a Self::Affine>
        + Send
        + Sync;

    /// Bytes of an uncompressed point.
    const BYTES: usize;

    fn from_affine(affine: &Self::Affine) -> Self;

    fn to_affine(self) -> Self::Affine;

    /// `bytes: [BYTES]`. Canonical, on the curve and not the identity, or why not; the subgroup is not checked.
    fn decode(bytes: &[u8]) -> Result<Self, &'static str>;

    fn encode(&self, out: &mut Vec<u8>);

    fn is_in_subgroup(affine: &Self::Affine) -> bool;

    /// Sum of at most [`BATCH_POINTS`] points by batched affine additions: half the cost of mixed ones. Right for
    /// equal, opposite and non-subgroup points too.
    fn sum(points: &[Self]) -> Self::Projective;

    /// `sums[i] += addends[i]`, identities allowed on both sides, at 5 multiplications and a squaring in the base field
    /// per addition (a mixed addition in blst: 8 and 5) and one inversion for all.
    fn add_each(sums: &mut [Self::Affine], addends: &[Self::Affine]);

    /// At most [`BATCH_POINTS`] points in affine form by one inversion.
    fn normalize(points: &[Self::Projective]) -> Vec<Self>;
}

/// The bits of the first byte that say how a point is written; all are clear for an uncompressed, finite point.
fn check_flags(first_byte: u8) -> Result<(), &'static str> {
    match first_byte {
        byte if byte & 0x80 != 0 => Err("marked as compressed"),
        byte if byte & 0x40 != 0 => Err("the identity"),
        byte if byte & 0x20 != 0 => Err("marked with a sign, which only compressed points have"),
        _ => Ok(()),
    }
}

/// Why blst refused a point: its coordinates (big-endian, 48 B each) are not below the modulus, or fit no curve point.
fn refusal(bytes: &[u8]) -> &'static str {
    const MODULUS: [u8; 48] = [
        0x1a, 0x01, 0x11, 0xea, 0x39, 0x7f, 0xe6, 0x9a, 0x4b, 0x1b, 0xa7, 0xb6, 0x43, 0x4b, 0xac, 0xd7, 0x64,
        0x77, 0x4b, 0x84, 0xf3, 0x85, 0x12, 0xbf, 0x67, 0x30, 0xd2, 0xa0, 0xf6, 0xb0, 0xf6, 0x24, 0x1e, 0xab,
        0xff, 0xfe, 0xb1, 0x53, 0xff, 0xff, 0xb9, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xaa, 0xab,
    ];
    if bytes.chunks_exact(48).any(|coordinate| coordinate >= MODULUS.as_slice()) {
        "coordinate not below the field's modulus"
    } else {
        "not on the curve"
    }
}

/// Inverts what is not zero, by one inversion and three multiplications each (Montgomery's trick).
pub(crate) fn invert_each<F: Field>(values: &mut [F]) {
    let mut products = Vec::with_capacity(values.len());
    let mut product = F::ONE;
    for value in values.iter().filter(|value| !value.is_zero_vartime()) {
        products.push(product);
        product *= value;
    }
    let mut inverse = Option::<F>::from(product.invert()).expect("a product of what is not zero");
    for value in values.iter_mut().rev().filter(|value| !value.is_zero_vartime()) {
        let before = products.pop().expect("one product for each value that is not zero");
        (*value, inverse) = (inverse * before, inverse * *value);
    }
}

macro_rules! impl_raw_point {
    ($raw:ty, $affine:ty, $projective:ty, $affines:ident, $bytes:literal) => {
        impl RawPoint for $raw {
            type Affine = $affine;
            type Projective = $projective;

            const BYTES: usize = $bytes;

            fn from_affine(affine: &$affine) -> Self {
                *affine.as_ref()
            }

            fn to_affine(self) -> $affine {
                let mut affine = <$affine>::default();
                *affine.as_mut() = self;
                affine
            }

            fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
                let bytes: &[u8; $bytes] = bytes.try_into().expect("callers split at the size of a point");
                check_flags(bytes[0])?;
                // Despite its name this checks all but the subgroup: canonical coordinates and the curve's equation.
                Option::from(<$affine>::from_uncompressed_unchecked(bytes))
                    .map(|affine: $affine| Self::from_affine(&affine))
                    .ok_or_else(|| refusal(bytes))
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_affine().to_uncompressed());
            }

            fn is_in_subgroup(affine: &$affine) -> bool {
                affine.is_torsion_free().into()
            }

            fn sum(points: &[Self]) -> $projective {
                debug_assert!(points.len() <= BATCH_POINTS);
                let mut sum = <$projective as Group>::identity();
                if !points.is_empty() {
                    *sum.as_mut() = points.add();
                }
                sum
            }

            // blstrs does not export the coordinates' type, so that it has no name here.
            fn add_each(sums: &mut [$affine], addends: &[$affine]) {
                let mut inverses = Vec::with_capacity(sums.len());
                for (sum, addend) in sums.iter_mut().zip(addends) {
                    let mut difference = addend.x() - sum.x();
                    let special = bool::from(PrimeCurveAffine::is_identity(addend))
                        || bool::from(PrimeCurveAffine::is_identity(sum))
                        || difference.is_zero_vartime();
                    if special {
                        *sum = (<$projective>::from(*sum) + addend).to_affine();
                        difference -= difference;
                    }
                    inverses.push(difference);
                }
                invert_each(&mut inverses);
                for ((sum, addend), inverse) in sums.iter_mut().zip(addends).zip(inverses) {
                    if inverse.is_zero_vartime() {
                        continue;
                    }
                    let slope = (addend.y() - sum.y()) * inverse;
                    let x = slope.square() - sum.x() - addend.x();
                    let y = slope * (sum.x() - x) - sum.y();
                    *sum = <$affine>::from_raw_unchecked(x, y, false);
                }
            }

            fn normalize(points: &[$projective]) -> Vec<Self> {
                debug_assert!(points.len() <= BATCH_POINTS);
                if points.is_empty() {
                    return Vec::new();
                }
                let points: Vec<_> = points.iter().map(|point| *point.as_ref()).collect();
                $affines::from(&points).as_slice().to_vec()
            }
        }
    };
}

impl_raw_point!(blst_p1_affine, G1Affine, G1Projective, p1_affines, 96);
impl_raw_point!(blst_p2_affine, G2Affine, G2Projective, p2_affines, 192);
