//! Cases for the operations of `kernels/math/selftest_ops.cuh`, and the right answers: blstrs for the scalar
//! field and the curves, big integers for the base field (which blstrs keeps private). The host build of the
//! kernels' arithmetic (`kernels_host.rs`) and the GPU (`gpu_selftest.rs`) run the same cases.
//!
//! Values are the raw integers of the structs, little-endian: Montgomery form, Fp in `[0, 2p)`, Fr in `[0, r)`.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::sync::LazyLock;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use num_bigint::BigUint;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const FP_BYTES: usize = 48;
pub const FR_BYTES: usize = 32;

fn hex_number(digits: &str) -> BigUint {
    BigUint::parse_bytes(digits.as_bytes(), 16).unwrap()
}

pub static P: LazyLock<BigUint> = LazyLock::new(|| {
    hex_number(
        "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab",
    )
});
pub static R: LazyLock<BigUint> =
    LazyLock::new(|| hex_number("73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001"));
/// Montgomery's 2^384 mod p and its inverse, and 2^256 mod r.
static FP_MONTGOMERY: LazyLock<BigUint> = LazyLock::new(|| pow2(384) % &*P);
static FP_MONTGOMERY_INVERSE: LazyLock<BigUint> = LazyLock::new(|| fp_invert(&FP_MONTGOMERY));
pub static FR_MONTGOMERY: LazyLock<Scalar> = LazyLock::new(|| scalar(&(pow2(256) % &*R)));

fn pow2(exponent: u32) -> BigUint {
    BigUint::from(1u8) << exponent
}

fn fp_invert(a: &BigUint) -> BigUint {
    a.modpow(&(&*P - 2u8), &P)
}

pub fn scalar(a: &BigUint) -> Scalar {
    Scalar::from_bytes_le(&bytes(a, FR_BYTES).try_into().unwrap()).unwrap()
}

pub fn bytes(a: &BigUint, length: usize) -> Vec<u8> {
    let mut bytes = a.to_bytes_le();
    assert!(bytes.len() <= length);
    bytes.resize(length, 0);
    bytes
}

/// What a result must be.
enum Expected {
    /// Fp coordinates by their residues; each must lie in `[0, 2p)`.
    Residues(Vec<BigUint>),
    /// Exactly these integers, of this many bytes each.
    Integers(Vec<BigUint>, usize),
    /// An affine point (`None`: the identity, all zero); `canonical` demands coordinates below p.
    Affine { point: Option<[Fe; 2]>, canonical: bool },
    /// An XYZZ point, in any scaling.
    Xyzz(Option<[Fe; 2]>),
}

/// Whether a G1 XYZZ struct is this point, in any scaling.
pub fn check_g1_xyzz(result: &[u8], point: &G1Projective) -> Result<(), String> {
    Expected::Xyzz(point.coordinates()).accepts(result, 1)
}

/// A G1 point as the kernels' affine struct.
pub fn g1_affine_struct(point: &G1Projective, rng: &mut impl Rng) -> Vec<u8> {
    raw_affine(point, rng).iter().flat_map(|coordinate| bytes(coordinate, FP_BYTES)).collect()
}

/// All cases of one operation.
pub struct Suite {
    pub operation: &'static str,
    pub case_bytes: usize,
    pub result_bytes: usize,
    pub cases: Vec<u8>,
    expected: Vec<Expected>,
    /// Coordinates per curve coordinate: 1 for G1, 2 for G2.
    degree: usize,
}

impl Suite {
    fn new(
        operation: &'static str,
        case_elements: usize,
        result_elements: usize,
        element_bytes: usize,
    ) -> Self {
        let degree = if operation.starts_with("g2") || operation.starts_with("fp2") { 2 } else { 1 };
        Self {
            operation,
            case_bytes: case_elements * degree * element_bytes,
            result_bytes: result_elements * degree * element_bytes,
            cases: Vec::new(),
            expected: Vec::new(),
            degree,
        }
    }

    fn push(&mut self, elements: &[&BigUint], element_bytes: usize, expected: Expected) {
        assert_eq!(elements.len() * element_bytes, self.case_bytes, "{}", self.operation);
        for element in elements {
            self.cases.extend(bytes(element, element_bytes));
        }
        self.expected.push(expected);
    }

    pub fn num_cases(&self) -> usize {
        self.expected.len()
    }

    /// The first wrong result, if any, with operation, case and both values.
    pub fn check(&self, results: &[u8]) -> Result<(), String> {
        assert_eq!(
            results.len(),
            self.num_cases() * self.result_bytes,
            "{}: length of the results",
            self.operation
        );
        let cases = self.cases.chunks_exact(self.case_bytes);
        let results = results.chunks_exact(self.result_bytes);
        for (index, ((case, result), expected)) in cases.zip(results).zip(&self.expected).enumerate() {
            if let Err(why) = expected.accepts(result, self.degree) {
                let (case, result) = (hex::encode(case), hex::encode(result));
                let operation = self.operation;
                return Err(format!("{operation} case {index}: {why}\n  case   {case}\n  result {result}"));
            }
        }
        Ok(())
    }
}

impl Expected {
    fn accepts(&self, result: &[u8], degree: usize) -> Result<(), String> {
        let integers =
            |size: usize| result.chunks_exact(size).map(BigUint::from_bytes_le).collect::<Vec<_>>();
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let in_range = |values: &[BigUint], bound: BigUint| match values.iter().all(|value| *value < bound) {
            true => Ok(()),
            false => Err(format!("out of range, the bound is {bound:x}")),
        };
        let demand = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
        match self {
            Expected::Integers(expected, size) => {
                demand(integers(*size) == *expected, &format!("should be {expected:x?}"))
            }
            Expected::Residues(expected) => {
                let values = integers(FP_BYTES);
                in_range(&values, &*P * 2u8)?;
                let residues: Vec<_> = values.iter().map(|value| value % &*P).collect();
                demand(residues == *expected, &format!("should be {expected:x?}"))
            }
            Expected::Affine { point: None, .. } => demand(is_zero(result), "should be the identity"),
            Expected::Affine { point: Some([x, y]), canonical } => {
                let values = integers(FP_BYTES);
                in_range(&values, if *canonical { P.clone() } else { &*P * 2u8 })?;
                demand(Fe::from_raw(&values[..degree]) == *x, "wrong x")?;
                demand(Fe::from_raw(&values[degree..]) == *y, "wrong y")
            }
            Expected::Xyzz(None) => {
                let zz = &result[2 * degree * FP_BYTES..3 * degree * FP_BYTES];
                demand(is_zero(zz), "should be the identity, ZZ all zero")
            }
            Expected::Xyzz(Some([x, y])) => {
                let values = integers(FP_BYTES);
                in_range(&values, &*P * 2u8)?;
                let part = |index: usize| Fe::from_raw(&values[index * degree..(index + 1) * degree]);
                let (zz, zzz) = (part(2), part(3));
                demand(!zz.is_zero(), "ZZ is zero")?;
                demand(zz.mul(&zz).mul(&zz) == zzz.mul(&zzz), "ZZ^3 is not ZZZ^2")?;
                demand(part(0) == x.mul(&zz), "wrong X/ZZ")?;
                demand(part(1) == y.mul(&zzz), "wrong Y/ZZZ")
            }
        }
    }
}

/// An element of Fp (one coordinate) or Fp2 (two), not in Montgomery form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fe(Vec<BigUint>);

impl Fe {
    fn from_raw(raw: &[BigUint]) -> Self {
        Self(raw.iter().map(|value| value * &*FP_MONTGOMERY_INVERSE % &*P).collect())
    }

    fn one(degree: usize) -> Self {
        let mut coordinates = vec![BigUint::ZERO; degree];
        coordinates[0] = BigUint::from(1u8);
        Self(coordinates)
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|coordinate| *coordinate == BigUint::ZERO)
    }

    fn mul(&self, other: &Self) -> Self {
        let product = |i: usize, j: usize| &self.0[i] * &other.0[j];
        Self(match self.0.len() {
            1 => vec![product(0, 0) % &*P],
            _ => {
                vec![(product(0, 0) + &*P * &*P - product(1, 1)) % &*P, (product(0, 1) + product(1, 0)) % &*P]
            }
        })
    }

    /// Raw integers of a kernel's struct: Montgomery form, and one or the other representative in `[0, 2p)`.
    fn to_raw(&self, rng: &mut impl Rng) -> Vec<BigUint> {
        let raw = |value: &BigUint| value * &*FP_MONTGOMERY % &*P;
        self.0.iter().map(|value| if rng.gen() { raw(value) + &*P } else { raw(value) }).collect()
    }
}

/// A group of blstrs, with what the cases need of it.
trait Curve381: Group<Scalar = Scalar> {
    const DEGREE: usize;
    /// Affine coordinates, `None` for the identity.
    fn coordinates(&self) -> Option<[Fe; 2]>;
}

/// Big-endian coordinates of an uncompressed point. The three highest bits are flags, zero but for the identity.
fn big_endian(uncompressed: &[u8]) -> Vec<BigUint> {
    uncompressed.chunks_exact(FP_BYTES).map(BigUint::from_bytes_be).collect()
}

impl Curve381 for G1Projective {
    const DEGREE: usize = 1;

    fn coordinates(&self) -> Option<[Fe; 2]> {
        let affine: G1Affine = self.to_affine();
        let [x, y] = big_endian(&affine.to_uncompressed()).try_into().unwrap();
        (!bool::from(affine.is_identity())).then(|| [Fe(vec![x]), Fe(vec![y])])
    }
}

impl Curve381 for G2Projective {
    const DEGREE: usize = 2;

    fn coordinates(&self) -> Option<[Fe; 2]> {
        let affine: G2Affine = self.to_affine();
        let [x1, x0, y1, y0] = big_endian(&affine.to_uncompressed()).try_into().unwrap();
        (!bool::from(affine.is_identity())).then(|| [Fe(vec![x0, x1]), Fe(vec![y0, y1])])
    }
}

/// Every operation's cases: all edge values, or all pairs of them, and `num_random` random ones (a hundredth of
/// that for points and inversions). The same seed gives the same cases.
pub fn suites(num_random: usize, seed: u64) -> Vec<Suite> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut suites = fp_suites(num_random, &mut rng);
    suites.extend(fr_suites(num_random, &mut rng));
    suites.extend(fp2_suites(num_random, &mut rng));
    let names = ["g1_add_affine", "g1_add", "g1_double", "g1_to_affine", "g1_affine_pair"];
    suites.extend(point_suites::<G1Projective>(names, num_random / 100, &mut rng));
    let names = ["g2_add_affine", "g2_add", "g2_double", "g2_to_affine", "g2_affine_pair"];
    suites.extend(point_suites::<G2Projective>(names, num_random / 100, &mut rng));
    suites
}

pub fn random_below(bound: &BigUint, rng: &mut impl Rng) -> BigUint {
    let mut wide = [0u8; 64];
    rng.fill(&mut wide[..]);
    BigUint::from_bytes_le(&wide) % bound
}

/// Values around every limb boundary and around the multiples and the half of the modulus, below `bound`.
fn edges(modulus: &BigUint, num_limbs: u32, bound: &BigUint) -> Vec<BigUint> {
    let small = |value: u8| BigUint::from(value);
    let mut values =
        vec![small(0), small(1), small(2), modulus - 2u8, modulus - 1u8, modulus.clone(), modulus + 1u8];
    values.extend([modulus >> 1, (modulus >> 1) + 1u8, modulus * 2u8 - 1u8, modulus * 2u8]);
    for limb in 1..=num_limbs {
        values.extend([pow2(32 * limb) - 1u8, pow2(32 * limb), pow2(32 * limb) + 1u8]);
    }
    let montgomery = pow2(32 * num_limbs);
    values.extend([
        &montgomery % modulus,
        &montgomery * &montgomery % modulus,
        (&montgomery - 1u8) % modulus,
    ]);
    values.extend([pow2(255) - 1u8, pow2(381) - 1u8]);
    values.retain(|value| value < bound);
    values.sort();
    values.dedup();
    values
}

/// All pairs of edges, then random pairs.
fn pairs(edges: &[BigUint], bound: &BigUint, num_random: usize, rng: &mut impl Rng) -> Vec<[BigUint; 2]> {
    let mut pairs: Vec<_> = edges.iter().flat_map(|a| edges.iter().map(|b| [a.clone(), b.clone()])).collect();
    pairs.extend((0..num_random).map(|_| [random_below(bound, rng), random_below(bound, rng)]));
    pairs
}

/// a b / 2^384 mod p.
pub fn fp_montgomery_product(a: &BigUint, b: &BigUint) -> BigUint {
    a * b % &*P * &*FP_MONTGOMERY_INVERSE % &*P
}

fn fp_suites(num_random: usize, rng: &mut ChaCha8Rng) -> Vec<Suite> {
    let bound = &*P * 2u8;
    let edges = edges(&P, 12, &bound);
    let pairs = pairs(&edges, &bound, num_random, rng);
    let suite = |name, elements| Suite::new(name, elements, 1, FP_BYTES);
    let residue = |value: BigUint| Expected::Residues(vec![value % &*P]);
    let [mut add, mut sub, mut mul] = ["fp_add", "fp_sub", "fp_mul"].map(|name| suite(name, 2));
    let (mut sqr, mut dot) = (suite("fp_sqr", 1), suite("fp_dot", 4));
    let (mut canonical, mut inverse) = (suite("fp_canonical", 1), suite("fp_inverse", 1));
    for [a, b] in &pairs {
        add.push(&[a, b], FP_BYTES, residue(a + b));
        sub.push(&[a, b], FP_BYTES, residue(a + &*P * 2u8 - b));
        mul.push(&[a, b], FP_BYTES, residue(fp_montgomery_product(a, b)));
    }
    // Neighbouring pairs, so that the edges meet each other in all four places.
    for ([a, b], [c, d]) in pairs.iter().zip(pairs.iter().rev()) {
        let sum = fp_montgomery_product(a, b) + fp_montgomery_product(c, d);
        dot.push(&[a, b, c, d], FP_BYTES, residue(sum));
    }
    let largest = &bound - 1u8;
    let sum = fp_montgomery_product(&largest, &largest) * 2u8;
    dot.push(&[&largest; 4], FP_BYTES, residue(sum));
    for a in edges.iter().chain(pairs.iter().map(|[a, _]| a).rev().take(num_random)) {
        sqr.push(&[a], FP_BYTES, residue(fp_montgomery_product(a, a)));
        canonical.push(&[a], FP_BYTES, Expected::Integers(vec![a % &*P], FP_BYTES));
    }
    for a in edges.iter().chain(pairs.iter().map(|[a, _]| a).rev().take(num_random / 100)) {
        let inverted = fp_invert(&(a % &*P)) * &*FP_MONTGOMERY % &*P * &*FP_MONTGOMERY;
        inverse.push(&[a], FP_BYTES, residue(inverted));
    }
    vec![add, sub, mul, sqr, dot, canonical, inverse]
}

fn fr_suites(num_random: usize, rng: &mut ChaCha8Rng) -> Vec<Suite> {
    let edges_below_r = edges(&R, 8, &R);
    let pairs = pairs(&edges_below_r, &R, num_random, rng);
    let suite = |name, elements| Suite::new(name, elements, 1, FR_BYTES);
    let exactly =
        |value: Scalar| Expected::Integers(vec![BigUint::from_bytes_le(&value.to_bytes_le())], FR_BYTES);
    let [mut add, mut sub, mut mul] = ["fr_add", "fr_sub", "fr_mul"].map(|name| suite(name, 2));
    let (mut reduce, mut inverse) = (suite("fr_reduce", 1), suite("fr_inverse", 1));
    let montgomery_inverse = FR_MONTGOMERY.invert().unwrap();
    for [raw_a, raw_b] in &pairs {
        let (a, b) = (scalar(raw_a), scalar(raw_b));
        add.push(&[raw_a, raw_b], FR_BYTES, exactly(a + b));
        sub.push(&[raw_a, raw_b], FR_BYTES, exactly(a - b));
        mul.push(&[raw_a, raw_b], FR_BYTES, exactly(a * b * montgomery_inverse));
    }
    let any = pow2(256);
    let twofold = &*R * 2u8;
    let [mut add_2r, mut sub_2r, mut mul_2r] =
        ["fr_add_2r", "fr_sub_2r", "fr_mul_2r"].map(|name| suite(name, 2));
    for [raw_a, raw_b] in &self::pairs(&edges(&R, 8, &twofold), &twofold, num_random / 10, rng) {
        let (a, b) = (scalar(&(raw_a % &*R)), scalar(&(raw_b % &*R)));
        add_2r.push(&[raw_a, raw_b], FR_BYTES, exactly(a + b));
        sub_2r.push(&[raw_a, raw_b], FR_BYTES, exactly(a - b));
    }
    let second_factors = edges(&R, 8, &any).into_iter().chain((0..8).map(|_| random_below(&any, rng)));
    for raw_b in second_factors.collect::<Vec<_>>() {
        for raw_a in &edges_below_r {
            let product = scalar(raw_a) * scalar(&(&raw_b % &*R)) * montgomery_inverse;
            mul_2r.push(&[raw_a, &raw_b], FR_BYTES, exactly(product));
        }
    }
    let random: Vec<_> = (0..num_random / 10).map(|_| random_below(&any, rng)).collect();
    for a in edges(&R, 8, &any).iter().chain(&random) {
        reduce.push(&[a], FR_BYTES, Expected::Integers(vec![a % &*R], FR_BYTES));
    }
    for raw in edges_below_r.iter().chain(pairs.iter().map(|[a, _]| a).rev().take(num_random / 100)) {
        let inverted = scalar(raw).invert().unwrap_or(Scalar::ZERO);
        inverse.push(&[raw], FR_BYTES, exactly(inverted * FR_MONTGOMERY.square()));
    }
    vec![add, sub, mul, reduce, inverse, add_2r, sub_2r, mul_2r]
}

fn fp2_suites(num_random: usize, rng: &mut ChaCha8Rng) -> Vec<Suite> {
    let bound = &*P * 2u8;
    let edges = edges(&P, 12, &bound);
    let mut cases: Vec<[BigUint; 4]> = Vec::new();
    for (index, a) in edges.iter().enumerate() {
        for b in &edges {
            let next = &edges[(index + 1) % edges.len()];
            cases.push([a.clone(), b.clone(), next.clone(), a.clone()]);
        }
    }
    cases.extend((0..num_random / 10).map(|_| [0; 4].map(|_| random_below(&bound, rng))));
    let residues = |element: Fe| {
        Expected::Residues(element.0.iter().map(|value| value * &*FP_MONTGOMERY % &*P).collect())
    };
    let mut mul = Suite::new("fp2_mul", 2, 1, FP_BYTES);
    let mut sqr = Suite::new("fp2_sqr", 1, 1, FP_BYTES);
    let mut inverse = Suite::new("fp2_inverse", 1, 1, FP_BYTES);
    for (index, [a0, a1, b0, b1]) in cases.iter().enumerate() {
        let a = Fe::from_raw(&[a0.clone(), a1.clone()]);
        let b = Fe::from_raw(&[b0.clone(), b1.clone()]);
        mul.push(&[a0, a1, b0, b1], FP_BYTES, residues(a.mul(&b)));
        sqr.push(&[a0, a1], FP_BYTES, residues(a.mul(&a)));
        if index % 20 == 0 || a.is_zero() {
            let norm_inverse = fp_invert(&((&a.0[0] * &a.0[0] + &a.0[1] * &a.0[1]) % &*P));
            let conjugate = [a.0[0].clone(), &*P - &a.0[1]];
            let inverted = Fe(conjugate.iter().map(|value| value * &norm_inverse % &*P).collect());
            inverse.push(&[a0, a1], FP_BYTES, residues(inverted));
        }
    }
    vec![mul, sqr, inverse]
}

/// Raw XYZZ coordinates of a point, with z = 1 or random. The identity has ZZ = 0 and anything in X and Y.
fn raw_xyzz<G: Curve381>(point: &G, z_is_one: bool, rng: &mut impl Rng) -> Vec<BigUint> {
    let one = Fe::one(G::DEGREE);
    let z = if z_is_one { one } else { Fe((0..G::DEGREE).map(|_| random_below(&P, rng)).collect()) };
    let zz = z.mul(&z);
    let zzz = zz.mul(&z);
    match point.coordinates() {
        Some([x, y]) => [x.mul(&zz), y.mul(&zzz), zz, zzz].iter().flat_map(|part| part.to_raw(rng)).collect(),
        None => {
            let mut parts = [zz.to_raw(rng), zzz.to_raw(rng)].concat();
            parts.resize(4 * G::DEGREE, BigUint::ZERO);
            parts
        }
    }
}

fn raw_affine<G: Curve381>(point: &G, rng: &mut impl Rng) -> Vec<BigUint> {
    match point.coordinates() {
        Some(coordinates) => coordinates.iter().flat_map(|part| part.to_raw(rng)).collect(),
        None => vec![BigUint::ZERO; 2 * G::DEGREE],
    }
}

fn point_suites<G: Curve381>(
    names: [&'static str; 5],
    num_random: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<Suite> {
    let [mut add_affine, mut add, mut double, mut to_affine, mut pair] = [
        Suite::new(names[0], 6, 4, FP_BYTES),
        Suite::new(names[1], 8, 4, FP_BYTES),
        Suite::new(names[2], 4, 4, FP_BYTES),
        Suite::new(names[3], 4, 2, FP_BYTES),
        Suite::new(names[4], 4, 2, FP_BYTES),
    ];
    // Each exceptional case twice in every round: with z = 1 and with another z.
    for round in 0..num_random.max(8) {
        let [p, q] = [0; 2].map(|_| G::generator() * Scalar::random(&mut *rng));
        let o = G::identity();
        for [a, b] in [[p, q], [p, p], [p, -p], [p, p.double()], [o, p], [p, o], [o, o]] {
            let z_is_one = round % 2 == 0;
            let raw_a = raw_xyzz(&a, z_is_one, rng);
            let raw_b = raw_xyzz(&b, round % 3 == 0, rng);
            let [affine_a, affine_b] = [a, b].map(|point| raw_affine(&point, rng));
            let sum = (a + b).coordinates();
            let join = |x: &[BigUint], y: &[BigUint]| [x, y].concat();
            push_all(&mut add_affine, &join(&raw_a, &affine_b), Expected::Xyzz(sum.clone()));
            push_all(&mut add, &join(&raw_a, &raw_b), Expected::Xyzz(sum.clone()));
            let affine_sum = Expected::Affine { point: sum, canonical: false };
            push_all(&mut pair, &join(&affine_a, &affine_b), affine_sum);
            push_all(&mut double, &raw_a, Expected::Xyzz(a.double().coordinates()));
            let affine = Expected::Affine { point: a.coordinates(), canonical: true };
            push_all(&mut to_affine, &raw_a, affine);
        }
    }
    vec![add_affine, add, double, to_affine, pair]
}

fn push_all(suite: &mut Suite, elements: &[BigUint], expected: Expected) {
    suite.push(&elements.iter().collect::<Vec<_>>(), FP_BYTES, expected);
}
