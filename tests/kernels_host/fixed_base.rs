//! The kernels of `fixed_base.cu`, run thread by thread, against plain multiplication and the library's encoding.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use blst::blst_fr;
use blstrs::{G1Projective, G2Projective, Scalar};
use ff::Field;
use group::{Group, UncompressedEncoding};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::harness;
use crate::msm_cases::cuzk_raw::Raw;
use crate::msm_cases::Curve12381;

static HARNESS: LazyLock<PathBuf> = LazyLock::new(|| harness::build("fixed_base_harness"));

const SCALAR_BITS: usize = 255;

fn bytes(limbs: impl IntoIterator<Item = u64>) -> Vec<u8> {
    limbs.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Multiples of `base` by addition alone, window after window; the number of windows, and the points.
fn table<C: Curve12381>(base: C, window_bits: usize) -> (usize, Vec<C>) {
    let num_windows = SCALAR_BITS.div_ceil(window_bits);
    let mut points = Vec::new();
    let mut window_base = base;
    for window in 0..num_windows {
        let is_last = window + 1 == num_windows;
        let bits = if is_last { SCALAR_BITS - window * window_bits } else { window_bits - 1 };
        let mut multiple = C::identity();
        for _ in 0..1 << bits {
            multiple += window_base;
            points.push(multiple);
        }
        (0..window_bits).for_each(|_| window_base = window_base.double());
    }
    (num_windows, points)
}

/// Zero, ends of the field, carries through all windows and none, single bits, and any.
fn scalars(num_random: usize) -> Vec<Scalar> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let two = Scalar::from(2);
    let mut scalars = vec![Scalar::ZERO, Scalar::ONE, -Scalar::ONE, two, -two, -two.invert().unwrap()];
    scalars.extend((0..255).step_by(17).flat_map(|log| {
        let power = two.pow_vartime([log]);
        [power, power - Scalar::ONE, -power]
    }));
    scalars.push(Scalar::ZERO);
    scalars.extend((0..num_random).map(|_| Scalar::random(&mut rng)));
    scalars
}

fn check<C>(group: &str, base: C, window_bits: usize, scalars: &[Scalar])
where
    C: Curve12381,
    C::AffineRepr: UncompressedEncoding,
{
    let (num_windows, points) = table(base, window_bits);
    let mut input = bytes(C::raw(&points).iter().flat_map(|point| point.limbs()));
    input.extend(bytes(scalars.iter().flat_map(|&scalar| blst_fr::from(scalar).l)));
    // A scalar for each thread, for some of them, and several for each.
    for num_blocks in [1, scalars.len().div_ceil(128), 3] {
        let numbers = [window_bits, num_windows, points.len(), scalars.len(), num_blocks];
        let mut child = Command::new(&*HARNESS)
            .arg(group)
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It reads all of its input before it writes, so this cannot deadlock.
        child.stdin.take().unwrap().write_all(&input).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{group} {numbers:?}: {}\n{errors}", output.status);

        let expected: Vec<C> = scalars.iter().map(|scalar| base * scalar).collect();
        let point_bytes = output.stdout.len() / scalars.len() / 2;
        let (made, encoded) = output.stdout.split_at(point_bytes * scalars.len());
        for (index, expected) in expected.iter().enumerate() {
            let at = index * point_bytes..(index + 1) * point_bytes;
            let raw = bytes(C::raw(&[*expected])[0].limbs());
            assert_eq!(made[at.clone()], raw, "{group}, scalar {index}, {numbers:?}");
            // Files hold no identity, and the kernel makes nothing of one but zeros.
            match bool::from(expected.is_identity()) {
                true => assert!(encoded[at].iter().all(|byte| *byte == 0)),
                false => {
                    let uncompressed = expected.to_affine().to_uncompressed();
                    assert_eq!(&encoded[at], uncompressed.as_ref(), "{group}, scalar {index}");
                }
            }
        }
    }
}

#[test]
fn multiples_in_g1_are_those_of_plain_multiplication() {
    let base = G1Projective::random(&mut ChaCha8Rng::seed_from_u64(1));
    // The last window of 1, 3, 7 and all its bits.
    for (window_bits, num_random) in [(2, 1), (4, 20), (8, 300), (5, 3)] {
        check("g1", base, window_bits, &scalars(num_random));
    }
}

#[test]
fn multiples_in_g2_are_those_of_plain_multiplication() {
    let base = G2Projective::random(&mut ChaCha8Rng::seed_from_u64(2));
    for (window_bits, num_random) in [(4, 5), (7, 30)] {
        check("g2", base, window_bits, &scalars(num_random));
    }
}

#[test]
fn one_scalar_alone_is_multiplied() {
    let base = G1Projective::random(&mut ChaCha8Rng::seed_from_u64(3));
    check("g1", base, 6, &[-Scalar::from(5)]);
}
