//! The points a sum is made of, and its result from the device's limbs.

use blst::{blst_fp, blst_fp2, blst_p1_affine, blst_p2_affine};
use blstrs::{G1Projective, G2Projective};
use group::Group as _;

use crate::cuda::DeviceData;
use crate::policy::msm_plan::Group;

/// Affine points as parameters hold them: Montgomery form, the identity all zero.
pub trait CurvePoint: DeviceData {
    const GROUP: Group;
    type Projective: group::Group;

    /// From the 64-bit limbs of Jacobian coordinates, canonical.
    #[doc(hidden)]
    fn from_jacobian(limbs: &[u64]) -> Self::Projective;
}

fn fp(limbs: &[u64]) -> blst_fp {
    blst_fp { l: limbs.try_into().expect("a coordinate has six limbs") }
}

impl CurvePoint for blst_p1_affine {
    const GROUP: Group = Group::G1;
    type Projective = G1Projective;

    fn from_jacobian(limbs: &[u64]) -> G1Projective {
        let mut point = G1Projective::identity();
        let raw = point.as_mut();
        (raw.x, raw.y, raw.z) = (fp(&limbs[..6]), fp(&limbs[6..12]), fp(&limbs[12..18]));
        point
    }
}

impl CurvePoint for blst_p2_affine {
    const GROUP: Group = Group::G2;
    type Projective = G2Projective;

    fn from_jacobian(limbs: &[u64]) -> G2Projective {
        let coordinate = |at: usize| blst_fp2 { fp: [fp(&limbs[at..at + 6]), fp(&limbs[at + 6..at + 12])] };
        let mut point = G2Projective::identity();
        let raw = point.as_mut();
        (raw.x, raw.y, raw.z) = (coordinate(0), coordinate(12), coordinate(24));
        point
    }
}
