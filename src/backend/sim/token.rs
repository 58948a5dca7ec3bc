//! Proofs of simulations that are too many to be computed: points that stand for "the right proof of this partition of
//! this job", told from a wrong one by comparing them.

use std::sync::OnceLock;

use blstrs::{G1Affine, G1Projective, G2Affine};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};

use crate::groth16::Proof;
use crate::ids::{JobId, PartitionIndex};

/// Different points; jobs and partitions are told apart modulo this.
const NUM_POINTS: usize = 61;

fn points() -> &'static [G1Affine; NUM_POINTS] {
    static POINTS: OnceLock<[G1Affine; NUM_POINTS]> = OnceLock::new();
    POINTS.get_or_init(|| {
        let mut point = G1Projective::identity();
        std::array::from_fn(|_| {
            point += G1Projective::generator();
            point.to_affine()
        })
    })
}

/// The proof that counts as right for this partition. Takes no group operation.
pub fn token_proof(job: JobId, partition: PartitionIndex) -> Proof {
    let points = points();
    Proof {
        a: points[partition.0 as usize % NUM_POINTS],
        b: G2Affine::generator(),
        c: points[(job.0 % NUM_POINTS as u64) as usize],
    }
}

/// A wrong one in its place.
pub(super) fn corrupted_token(proof: Proof) -> Proof {
    Proof { c: -proof.c, ..proof }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_neighbours_apart_and_are_points_of_a_proof() {
        let token = |job, partition| token_proof(JobId(job), PartitionIndex(partition));
        assert_eq!(token(3, 4), token(3, 4));
        assert_ne!(token(3, 4), token(3, 5));
        assert_ne!(token(3, 4), token(4, 4));
        assert_ne!(token(3, 4), corrupted_token(token(3, 4)));
        assert_eq!(Proof::from_bytes(&token(3, 4).to_bytes()).unwrap(), token(3, 4));
    }
}
