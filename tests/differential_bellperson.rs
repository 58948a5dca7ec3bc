//! The same witness, SRS, r and s give the same 192 bytes as bellperson's prover.

#[path = "common/bellperson_srs.rs"]
mod bellperson_srs;
#[path = "common/synthetic.rs"]
mod synthetic;

use std::path::Path;
use std::sync::Arc;

use bellpepper::gadgets::multipack::pack_into_inputs;
use bellpepper::gadgets::sha256::sha256;
use bellpepper_core::boolean::{AllocatedBit, Boolean};
use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};
use bellperson::groth16::{
    create_proof_batch, generate_random_parameters, prepare_verifying_key, verify_proof, Parameters,
};
use blstrs::{Bls12, G1Affine, G1Projective, Scalar};
use cuzk::error::{NotABit, SrsError, SynthesisError};
use cuzk::groth16::fold::{Fold, HostTransform, Watch};
use cuzk::groth16::generate::fold_from_secrets;
use cuzk::groth16::prover::{check_witness, prove, quotient_of, ProveError};
use cuzk::groth16::{Assignment, Blinding, PackedWitness, PreparedVerifyingKey, R1csShape, Srs};
use ff::Field;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use bellperson_srs::to_srs;
use synthetic::{Synthetic, Values, ALL_VALUES};

/// Proves `circuit` with both provers and compares the bytes; then both verifiers accept them.
fn assert_same_proof<C: Circuit<Scalar> + Clone + Send>(name: &str, circuit: C) {
    let mut rng = ChaCha20Rng::seed_from_u64(40);
    let params = generate_random_parameters::<Bls12, _, _>(circuit.clone(), &mut rng)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let srs = to_srs(&params);
    let shape = R1csShape::record(circuit.clone()).unwrap();
    let witness = PackedWitness::synthesize(circuit.clone(), &shape).unwrap();
    let assignment = Assignment::synthesize(circuit.clone(), 0, 0).unwrap();
    assert_eq!(witness.unpack(shape.classes()), assignment, "{name}");
    let public_inputs = &witness.inputs[1..];
    check_witness(&shape, &witness, public_inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
    let blinding = Blinding::random(&mut rng);
    let proof = prove(&srs, &shape, &witness, &blinding).unwrap();

    let theirs = create_proof_batch(vec![circuit], &params, vec![blinding.r], vec![blinding.s]).unwrap();
    let mut bytes = Vec::new();
    theirs[0].write(&mut bytes).unwrap();
    assert_eq!(hex::encode(proof.to_bytes()), hex::encode(bytes), "{name}");
    let prepared = prepare_verifying_key(&params.vk);
    assert!(verify_proof(&prepared, &theirs[0], public_inputs).unwrap(), "{name}");
    assert!(PreparedVerifyingKey::new(&srs.vk).verify(&proof, public_inputs), "{name}");

    let folded = folded(name, srs, &shape);
    assert_eq!(prove(&folded, &shape, &witness, &blinding).unwrap(), proof, "{name}, folded");
}

/// Largest domain that is transformed on the host here: seconds of all cores.
const MAX_TRANSFORMED_LOG2: u32 = 10;

/// The key folded by its secrets, which are those of `generate_random_parameters` above; small ones by transforms too, point
/// by point the same.
fn folded(name: &str, srs: Srs, shape: &R1csShape) -> Srs {
    let fold = fold_from_secrets(shape, &mut ChaCha20Rng::seed_from_u64(40)).unwrap();
    if shape.domain_log2() <= MAX_TRANSFORMED_LOG2 {
        let transformed = Fold::build(&srs, shape, &mut HostTransform, Watch::NONE).unwrap();
        assert!(transformed == fold, "{name}: folds differ");
    }
    fold.check(&srs, shape, Path::new(name), Watch::NONE).unwrap_or_else(|error| panic!("{name}: {error}"));
    let folded = fold.apply(srs);
    folded.check_fits(shape).unwrap();
    folded
}

#[test]
fn b35_tiny_and_odd_sizes_give_bellpersons_bytes() {
    for num_constraints in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129] {
        for values in ALL_VALUES {
            let name = format!("{num_constraints} constraints, {values:?}");
            assert_same_proof(&name, Synthetic::new(num_constraints, values));
        }
    }
}

#[test]
fn b35_larger_odd_sizes_give_bellpersons_bytes() {
    for num_constraints in [1023, 1024, 1025] {
        assert_same_proof("random", Synthetic::new(num_constraints, Values::Random));
    }
    // 4096 constraints and a few inputs: just above the domain of 2^12.
    for num_constraints in [4095, 4096] {
        let circuit = Synthetic { input_every: 1000, ..Synthetic::new(num_constraints, Values::Bits) };
        assert_same_proof("bits", circuit);
    }
}

#[test]
fn b35_rows_that_just_fill_the_domain_give_bellpersons_bytes() {
    for domain_log2 in [4, 6, 8] {
        // Inputs count as rows too: look for the sizes at and around the power of two.
        let num_rows = |num_constraints| {
            let circuit = Synthetic::new(num_constraints, Values::Random);
            R1csShape::record(circuit).unwrap().num_rows()
        };
        let full = (1..=1 << domain_log2).rev().find(|&n| num_rows(n) <= 1 << domain_log2).unwrap();
        for num_constraints in [full - 1, full, full + 1] {
            assert_same_proof("filled domain", Synthetic::new(num_constraints, Values::Random));
        }
    }
}

/// Where the variables of a [`Sparse`] circuit occur.
#[derive(Clone, Copy, Debug)]
enum Occurrence {
    /// `v · 0 = 0`: no variable in B.
    OnlyA,
    /// `1 · v = v`: no aux variable in A.
    NotA,
    /// `0 · 0 = v - w`: neither in A nor in B.
    OnlyC,
    /// `v · (1 - 1) = 0`: the coefficients in B are zero.
    ZeroInB,
}

#[derive(Clone)]
struct Sparse {
    num_constraints: usize,
    occurrence: Occurrence,
}

impl Circuit<Scalar> for Sparse {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        let value = Scalar::from(11);
        let input = cs.alloc_input(|| "", || Ok(value))?;
        for _ in 0..self.num_constraints {
            let v = cs.alloc(|| "", || Ok(value))?;
            match self.occurrence {
                Occurrence::OnlyA => cs.enforce(|| "", |lc| lc + v, |lc| lc, |lc| lc),
                Occurrence::NotA => cs.enforce(|| "", |lc| lc + CS::one(), |lc| lc + v, |lc| lc + input),
                Occurrence::OnlyC => cs.enforce(|| "", |lc| lc, |lc| lc, |lc| lc + v - input),
                Occurrence::ZeroInB => {
                    cs.enforce(|| "", |lc| lc + v, |lc| lc + CS::one() - CS::one(), |lc| lc)
                }
            }
        }
        Ok(())
    }
}

#[test]
fn empty_densities_give_bellpersons_bytes() {
    for occurrence in [Occurrence::OnlyA, Occurrence::NotA, Occurrence::OnlyC, Occurrence::ZeroInB] {
        for num_constraints in [1, 3, 40] {
            let name = format!("{occurrence:?}, {num_constraints} constraints");
            assert_same_proof(&name, Sparse { num_constraints, occurrence });
        }
    }
}

/// Puts identity points where they cannot count: before a zero scalar. bellperson skips them there, as it does not
/// elsewhere ("Encountered an identity element in the CRS").
fn with_identities_at_zeros(
    params: &Parameters<Bls12>,
    shape: &R1csShape,
    assignment: &Assignment,
) -> Parameters<Bls12> {
    let is_zero = |value: &Scalar| bool::from(value.is_zero());
    let (inputs, aux) = (&assignment.input_assignment, &assignment.aux_assignment);
    // The variables of a query, in its order: those that occur in the matrix.
    let of_matrix = |matrix: usize| {
        let mut occurs = vec![false; inputs.len() + aux.len()];
        shape.for_each_entry(matrix, &mut |_, column, _| occurs[column] = true);
        let values = inputs.iter().chain(aux).zip(occurs);
        values.filter(|(_, occurs)| *occurs).map(|(value, _)| is_zero(value)).collect::<Vec<bool>>()
    };
    let (a, b) = (of_matrix(0), of_matrix(1));
    let quotient = quotient_of(shape, &assignment.pack(shape).unwrap()).unwrap();
    Parameters {
        vk: params.vk.clone(),
        h: blanked(&params.h, quotient.iter().map(is_zero)),
        l: blanked(&params.l, aux.iter().map(is_zero)),
        a: blanked(&params.a, a),
        b_g1: blanked(&params.b_g1, b.iter().copied()),
        b_g2: blanked(&params.b_g2, b),
    }
}

fn blanked<P: PrimeCurveAffine>(
    points: &Arc<Vec<P>>,
    is_blanked: impl IntoIterator<Item = bool>,
) -> Arc<Vec<P>> {
    let pairs = points.iter().zip(is_blanked);
    Arc::new(pairs.map(|(point, is_blanked)| if is_blanked { P::identity() } else { *point }).collect())
}

#[test]
fn b35_identity_points_in_the_srs_give_bellpersons_bytes() {
    let mut rng = ChaCha20Rng::seed_from_u64(41);
    for (num_constraints, values) in
        [(7, Values::Zeros), (31, Values::Bits), (33, Values::Bits), (1025, Values::Bits)]
    {
        let circuit = Synthetic::new(num_constraints, values);
        let params = generate_random_parameters::<Bls12, _, _>(circuit.clone(), &mut rng).unwrap();
        let shape = R1csShape::record(circuit.clone()).unwrap();
        let assignment = Assignment::synthesize(circuit.clone(), 0, 0).unwrap();
        let params = with_identities_at_zeros(&params, &shape, &assignment);
        let count =
            |points: &[G1Affine]| points.iter().filter(|point| bool::from(point.is_identity())).count();
        assert!(count(&params.l) > 0 && count(&params.a) > 0 && count(&params.b_g1) > 0, "{num_constraints}");
        assert_eq!(count(&params.h) > 0, values == Values::Zeros, "a quotient of zeros");
        let blinding = Blinding::random(&mut rng);
        let witness = assignment.pack(&shape).unwrap();
        let proof = prove(&to_srs(&params), &shape, &witness, &blinding).unwrap();
        let theirs = create_proof_batch(vec![circuit], &params, vec![blinding.r], vec![blinding.s]).unwrap();
        let mut bytes = Vec::new();
        theirs[0].write(&mut bytes).unwrap();
        assert_eq!(hex::encode(proof.to_bytes()), hex::encode(bytes), "{num_constraints} {values:?}");
    }
}

/// Where bellperson gives up, an identity point adds nothing to its sum, whatever its scalar.
#[test]
fn an_identity_point_in_the_srs_adds_nothing() {
    let mut rng = ChaCha20Rng::seed_from_u64(42);
    let circuit = Synthetic::new(40, Values::Random);
    let params = generate_random_parameters::<Bls12, _, _>(circuit.clone(), &mut rng).unwrap();
    let shape = R1csShape::record(circuit.clone()).unwrap();
    let assignment = Assignment::synthesize(circuit.clone(), 0, 0).unwrap();
    let blinding = Blinding::random(&mut rng);
    let witness = assignment.pack(&shape).unwrap();
    let proof_with =
        |params: &Parameters<Bls12>| prove(&to_srs(params), &shape, &witness, &blinding).unwrap();
    let quotient = quotient_of(&shape, &witness).unwrap();
    let whole = proof_with(&params);
    for index in [0, 1, params.l.len() - 1] {
        let at = |other: usize| other == index;
        let blank = |points: &Arc<Vec<G1Affine>>| blanked(points, (0..points.len()).map(at));
        let cases = [
            (
                Parameters { l: blank(&params.l), ..params.clone() },
                params.l[index] * assignment.aux_assignment[index],
            ),
            (Parameters { h: blank(&params.h), ..params.clone() }, params.h[index] * quotient[index]),
        ];
        for (blank, lost) in cases {
            let proof = proof_with(&blank);
            assert_eq!((proof.a, proof.b), (whole.a, whole.b));
            assert_eq!(G1Projective::from(proof.c), G1Projective::from(whole.c) - lost, "{index}");
            let theirs =
                create_proof_batch(vec![circuit.clone()], &blank, vec![blinding.r], vec![blinding.s]);
            assert!(theirs.is_err(), "bellperson takes identities now: compare bytes");
        }
    }
}

/// The digest of a secret message, as two public inputs.
#[derive(Clone)]
struct Sha256Preimage {
    message: Vec<u8>,
}

impl Circuit<Scalar> for Sha256Preimage {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        let mut bits = Vec::new();
        for (index, byte) in self.message.iter().enumerate() {
            for bit in (0..8).rev() {
                let name = format!("byte {index} bit {bit}");
                let value = Some(byte >> bit & 1 == 1);
                bits.push(Boolean::from(AllocatedBit::alloc(cs.namespace(|| name), value)?));
            }
        }
        let digest = sha256(cs.namespace(|| "digest"), &bits)?;
        pack_into_inputs(cs.namespace(|| "pack"), &digest)
    }
}

#[test]
fn a_sha256_gadget_gives_bellpersons_bytes() {
    assert_same_proof("sha256", Sha256Preimage { message: b"no such sector".to_vec() });
}

/// `v · v = v` for each value.
#[derive(Clone)]
struct Bits {
    values: Vec<u64>,
}

impl Circuit<Scalar> for Bits {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        for value in self.values {
            let v = cs.alloc(|| "", || Ok(Scalar::from(value)))?;
            cs.enforce(|| "", |lc| lc + v, |lc| lc + v, |lc| lc + v);
        }
        Ok(())
    }
}

/// `v · v = w` for each pair of values.
#[derive(Clone)]
struct Squares {
    values: Vec<[u64; 2]>,
}

impl Circuit<Scalar> for Squares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
        for [v, w] in self.values {
            let v = cs.alloc(|| "", || Ok(Scalar::from(v)))?;
            let w = cs.alloc(|| "", || Ok(Scalar::from(w)))?;
            cs.enforce(|| "", |lc| lc + v, |lc| lc + v, |lc| lc + w);
        }
        Ok(())
    }
}

#[test]
fn b40_unsatisfied_witness_names_first_bad_constraint() {
    let num_constraints = 20_000;
    for bad in [vec![0], vec![5, 9], vec![12_345, 19_999], vec![19_999]] {
        let mut circuit = Squares { values: vec![[3, 9]; num_constraints] };
        bad.iter().for_each(|&index| circuit.values[index][1] = 10);
        let shape = R1csShape::record(circuit.clone()).unwrap();
        let witness = PackedWitness::synthesize(circuit, &shape).unwrap();
        let error = check_witness(&shape, &witness, &[]).unwrap_err();
        assert_eq!(error, SynthesisError::Unsatisfied { index: bad[0], num_constraints });
    }
}

#[test]
fn b40_a_variable_that_cannot_be_a_bit_is_named() {
    for bad in [vec![0], vec![5, 9], vec![12_345, 19_999], vec![19_999]] {
        let mut circuit = Bits { values: vec![1; 20_000] };
        bad.iter().for_each(|&index| circuit.values[index] = 2);
        let shape = R1csShape::record(circuit.clone()).unwrap();
        let error = PackedWitness::synthesize(circuit, &shape).unwrap_err();
        assert_eq!(error, SynthesisError::NotABit(NotABit { aux: bad[0] }));
    }
}

#[test]
fn b40_foreign_public_inputs_are_named_before_constraints() {
    let circuit = Synthetic::new(100, Values::Random);
    let shape = R1csShape::record(circuit.clone()).unwrap();
    let witness = PackedWitness::synthesize(circuit, &shape).unwrap();
    let mut public_inputs = witness.inputs[1..].to_vec();
    public_inputs[2] += Scalar::ONE;
    let error = check_witness(&shape, &witness, &public_inputs).unwrap_err();
    assert_eq!(error, SynthesisError::PublicInput { index: 2 });
    let (needs, has) = (public_inputs.len(), 1);
    let error = check_witness(&shape, &witness, &public_inputs[..1]).unwrap_err();
    assert_eq!(error, SynthesisError::ShapeMismatch { what: "public inputs of the verifier", needs, has });
}

#[test]
fn b40_witness_of_another_size_is_refused() {
    let shape = R1csShape::record(Bits { values: vec![1; 9] }).unwrap();
    let smaller = Bits { values: vec![1; 8] };
    let error = PackedWitness::synthesize(smaller.clone(), &shape).unwrap_err();
    assert_eq!(error, SynthesisError::ShapeMismatch { what: "aux variables", needs: 9, has: 8 });
    let of_smaller =
        PackedWitness::synthesize(smaller, &R1csShape::record(Squares { values: vec![[1, 1]; 4] }).unwrap());
    let error = check_witness(&shape, &of_smaller.unwrap(), &[]).unwrap_err();
    assert_eq!(error, SynthesisError::ShapeMismatch { what: "dense aux variables", needs: 0, has: 8 });
}

#[test]
fn b38_an_srs_of_another_circuit_is_refused() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let params =
        generate_random_parameters::<Bls12, _, _>(Synthetic::new(40, Values::Random), &mut rng).unwrap();
    let circuit = Synthetic::new(41, Values::Random);
    let shape = R1csShape::record(circuit.clone()).unwrap();
    let witness = PackedWitness::synthesize(circuit, &shape).unwrap();
    let blinding = Blinding::random(&mut rng);
    let error = prove(&to_srs(&params), &shape, &witness, &blinding).unwrap_err();
    assert!(matches!(error, ProveError::Srs(SrsError::Mismatch { .. })), "{error}");
}
