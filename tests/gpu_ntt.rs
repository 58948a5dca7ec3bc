//! Transforms and quotients on the first GPU against the CPU's. Needs a GPU and kernels: a missing one fails, it does
//! not skip. Domains above 2^20 are checked at random points, and only with `CUZK_GPU_LARGE=1`.

#[path = "common/ntt_cases.rs"]
mod ntt_cases;

use blst::blst_fr;
use blstrs::{G1Projective, G2Projective, Scalar};
use cuzk::cuda::{
    devices, Context, CudaError, DeviceBuffer, NttDomain, NttKernels, Priority, Reservation, Stream,
    SyntheticKernels, SyntheticSource,
};
use cuzk::groth16::srs::QuotientBasis;
use cuzk::policy::ntt_plan;
use ff::{Field, PrimeField};
use group::{Curve, Group};
use ntt_cases::{assert_same, bit_reversed, random_scalars, to_raw, transformed};
use rayon::prelude::*;

/// What every test needs.
struct Gpu {
    context: Context,
    stream: Stream,
    kernels: NttKernels,
}

impl Gpu {
    fn first() -> Self {
        let devices = devices().expect("this test needs a CUDA driver");
        let context = Context::new(devices.first().expect("this test needs a GPU")).unwrap();
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let kernels = NttKernels::load(&context).unwrap();
        Self { context, stream, kernels }
    }

    fn reservation(&self, limit_bytes: u64) -> Reservation {
        Reservation::new(&self.context, limit_bytes)
    }
}

fn vector_bytes(domain_log2: u32) -> u64 {
    32 << domain_log2
}

fn is_large_wanted() -> bool {
    std::env::var("CUZK_GPU_LARGE").is_ok_and(|value| value == "1")
}

fn read(buffer: &DeviceBuffer<blst_fr>) -> Vec<Scalar> {
    ntt_cases::from_raw(&buffer.read().unwrap())
}

#[test]
fn transforms_equal_the_cpus() {
    let gpu = Gpu::first();
    for domain_log2 in 0..=20 {
        // The planned bytes and no more.
        let reservation =
            gpu.reservation(ntt_plan::domain_table_bytes(domain_log2) + vector_bytes(domain_log2));
        let domain = gpu.kernels.domain(&gpu.stream, &reservation, domain_log2).unwrap();
        assert_eq!(reservation.used_bytes(), ntt_plan::domain_table_bytes(domain_log2));
        for (name, values) in ntt_cases::inputs(domain_log2) {
            let expected = transformed(&values);
            let mut buffer = DeviceBuffer::from_slice(&reservation, &gpu.stream, &to_raw(&values)).unwrap();
            gpu.kernels.to_bit_reversed(&domain, &mut buffer).unwrap();
            let what = format!("{name}, 2^{domain_log2}");
            assert_same(&format!("{what}, to bit-reversed"), &bit_reversed(&read(&buffer)), &expected);
            buffer.write(&to_raw(&bit_reversed(&values))).unwrap();
            gpu.kernels.from_bit_reversed(&domain, &mut buffer).unwrap();
            assert_same(&format!("{what}, from bit-reversed"), &read(&buffer), &expected);
        }
        drop(domain);
        assert_eq!(reservation.used_bytes(), 0);
    }
}

/// Uploads rows, the rest of the vectors being poison, and computes the quotient in this basis.
fn quotient(
    gpu: &Gpu,
    domain: &NttDomain,
    reservation: &Reservation,
    [a, b]: [&[Scalar]; 2],
    basis: QuotientBasis,
) -> Result<DeviceBuffer<blst_fr>, CudaError> {
    let upload = |rows| padded_with_poison(gpu, domain, reservation, rows);
    let (num_rows, a, b) = (a.len(), upload(a)?, upload(b)?);
    match basis {
        QuotientBasis::Coefficients => gpu.kernels.quotient(domain, a, b, num_rows, reservation),
        QuotientBasis::Lagrange => gpu.kernels.lagrange_quotient(domain, a, b, num_rows, reservation),
    }
}

fn padded_with_poison(
    gpu: &Gpu,
    domain: &NttDomain,
    reservation: &Reservation,
    rows: &[Scalar],
) -> Result<DeviceBuffer<blst_fr>, CudaError> {
    let mut padded = to_raw(rows);
    padded.resize(domain.len(), blst_fr { l: [0xa5a5_a5a5_a5a5_a5a5; 4] });
    DeviceBuffer::from_slice(reservation, &gpu.stream, &padded)
}

#[test]
fn quotients_equal_the_cpus() {
    let gpu = Gpu::first();
    for domain_log2 in 0..=20 {
        let n = 1usize << domain_log2;
        let mut row_counts = vec![n, n / 2 + n / 5 + 1, 1];
        row_counts.dedup();
        for num_rows in row_counts.into_iter().filter(|rows| *rows <= n) {
            let planned_bytes = ntt_plan::domain_table_bytes(domain_log2) + 3 * vector_bytes(domain_log2);
            let reservation = gpu.reservation(planned_bytes);
            let domain = gpu.kernels.domain(&gpu.stream, &reservation, domain_log2).unwrap();
            let (a, b) = (random_scalars(num_rows, 31), random_scalars(num_rows, 32));
            let h = quotient(&gpu, &domain, &reservation, [&a, &b], QuotientBasis::Coefficients).unwrap();
            assert_eq!(reservation.peak_bytes(), planned_bytes, "2^{domain_log2}");
            let result = read(&h);
            let expected = ntt_cases::quotient(&a, &b, domain_log2);
            assert_same(&format!("{num_rows} rows on 2^{domain_log2}"), &result[..n - 1], &expected);
            assert_eq!(result[n - 1], Scalar::ZERO);
            drop(h);
            let t = quotient(&gpu, &domain, &reservation, [&a, &b], QuotientBasis::Lagrange).unwrap();
            assert_eq!(reservation.peak_bytes(), planned_bytes, "in the Lagrange basis, 2^{domain_log2}");
            let expected = cuzk::groth16::domain::lagrange_quotient(a, b, domain_log2);
            let what = format!("in the Lagrange basis, {num_rows} rows on 2^{domain_log2}");
            assert_same(&what, &read(&t), &expected);
        }
    }
}

#[test]
fn wrong_lengths_are_refused_before_any_launch() {
    let gpu = Gpu::first();
    let reservation = gpu.reservation(1 << 30);
    let domain = gpu.kernels.domain(&gpu.stream, &reservation, 4).unwrap();
    let vector = |length| DeviceBuffer::<blst_fr>::new(&reservation, &gpu.stream, length).unwrap();
    let refused = gpu.kernels.to_bit_reversed(&domain, &mut vector(15)).unwrap_err();
    assert!(matches!(refused, CudaError::Shape { needs: 16, has: 15, .. }), "{refused}");
    let refused = gpu.kernels.quotient(&domain, vector(16), vector(17), 3, &reservation).unwrap_err();
    assert!(matches!(refused, CudaError::Shape { needs: 16, has: 17, .. }), "{refused}");
    let refused = gpu.kernels.quotient(&domain, vector(16), vector(16), 17, &reservation).unwrap_err();
    assert!(matches!(refused, CudaError::Shape { needs: 16, has: 17, .. }), "{refused}");
    assert!(gpu.kernels.domain(&gpu.stream, &reservation, ntt_plan::MAX_DOMAIN_LOG2 + 1).is_err());
}

#[test]
fn vectors_of_another_stream_are_waited_for() {
    let gpu = Gpu::first();
    let reservation = gpu.reservation(1 << 30);
    let other = Stream::new(&gpu.context, Priority::High).unwrap();
    let domain = gpu.kernels.domain(&gpu.stream, &reservation, 16).unwrap();
    let (a, b) = (random_scalars(1 << 16, 41), random_scalars(1 << 16, 42));
    let upload = |rows: &[Scalar]| DeviceBuffer::from_slice(&reservation, &other, &to_raw(rows)).unwrap();
    let h = gpu.kernels.quotient(&domain, upload(&a), upload(&b), 1 << 16, &reservation).unwrap();
    assert_same("quotient", &read(&h)[..(1 << 16) - 1], &ntt_cases::quotient(&a, &b, 16));
}

/// `Σ coefficients_i x^i`.
fn evaluate(coefficients: &[Scalar], x: Scalar) -> Scalar {
    const CHUNK: usize = 1 << 14;
    let step = x.pow_vartime([CHUNK as u64]);
    let sums: Vec<Scalar> = coefficients
        .par_chunks(CHUNK)
        .map(|chunk| chunk.iter().rev().fold(Scalar::ZERO, |sum, coefficient| sum * x + coefficient))
        .collect();
    sums.iter().rev().fold(Scalar::ZERO, |sum, chunk| sum * step + chunk)
}

fn root_of_unity(log2: u32) -> Scalar {
    (log2..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square())
}

/// Values without pattern, quickly: 2^27 of them on few cores.
fn cheap_scalars(count: usize, seed: u64) -> Vec<Scalar> {
    let mix = |i: u64| {
        let x = (i ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let value = |i: usize| {
        let start = seed.wrapping_add(4 * i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = |k: u64| mix(start.wrapping_add(k));
        // Below 2^252, hence below r.
        Scalar::from(blst_fr { l: [word(0), word(1), word(2), word(3) >> 4] })
    };
    (0..count).into_par_iter().map(value).collect()
}

#[test]
fn synthetic_inputs_are_what_the_host_says() {
    let gpu = Gpu::first();
    let reservation = gpu.reservation(1 << 30);
    let kernels = SyntheticKernels::load(&gpu.context).unwrap();
    let source = SyntheticSource { seed: 77, bits_of_1024: 922 };
    let scalars = read(&kernels.scalars(&reservation, &gpu.stream, source, 10_000).unwrap());
    let expected: Vec<_> = (0..10_000).map(|index| source.scalar(index)).collect();
    assert_same("scalars", &scalars, &expected);
    let num_bits =
        expected.iter().filter(|scalar| **scalar == Scalar::ONE || **scalar == Scalar::ZERO).count();
    assert!((8_800..9_200).contains(&num_bits), "{num_bits} of 10,000 are bits");

    let g1 = kernels.g1_points(&reservation, &gpu.stream, source, 1000).unwrap().read().unwrap();
    let g2 = kernels.g2_points(&reservation, &gpu.stream, source, 1000).unwrap().read().unwrap();
    for index in 0..1000 {
        let logarithm = Scalar::from(source.logarithm(index));
        let point = (G1Projective::generator() * logarithm).to_affine();
        assert_eq!(g1[index], *point.as_ref(), "G1, {index}");
        let point = (G2Projective::generator() * logarithm).to_affine();
        assert_eq!(g2[index], *point.as_ref(), "G2, {index}");
    }
}

fn index_of_place(place: usize, log2: u32) -> usize {
    place.reverse_bits() >> (usize::BITS - log2)
}

#[test]
fn large_transforms_go_round_and_are_right_at_random_points() {
    if !is_large_wanted() {
        return println!("left out: CUZK_GPU_LARGE is not 1");
    }
    let gpu = Gpu::first();
    for domain_log2 in [21, 22, 23, 24, 25, 26, 27] {
        let n = 1usize << domain_log2;
        let planned_bytes = ntt_plan::domain_table_bytes(domain_log2) + vector_bytes(domain_log2);
        let reservation = gpu.reservation(planned_bytes);
        let domain = gpu.kernels.domain(&gpu.stream, &reservation, domain_log2).unwrap();
        let values = cheap_scalars(n, 51);
        let mut buffer = DeviceBuffer::from_slice(&reservation, &gpu.stream, &to_raw(&values)).unwrap();
        assert_eq!(reservation.peak_bytes(), planned_bytes);
        gpu.kernels.to_bit_reversed(&domain, &mut buffer).unwrap();
        let forward = buffer.read().unwrap();
        for place in [0, 1, 12345, n / 2, n - 1] {
            let x = root_of_unity(domain_log2).pow_vartime([index_of_place(place, domain_log2) as u64]);
            assert_eq!(Scalar::from(forward[place]), evaluate(&values, x), "2^{domain_log2}, place {place}");
        }
        gpu.kernels.from_bit_reversed(&domain, &mut buffer).unwrap();
        let back = buffer.read().unwrap();
        let scale = Scalar::TWO_INV.pow_vartime([u64::from(domain_log2)]);
        let wrong =
            (0..n).into_par_iter().find_any(|&i| Scalar::from(back[i]) * scale != values[(n - i) % n]);
        assert_eq!(wrong, None, "2^{domain_log2}: an element that did not come back");
        println!("2^{domain_log2}: transforms are right");
    }
}

/// `a(x) b(x) - c(x) = h(x) (x^n - 1)` at a random point, where `a`, `b` and `c` interpolate the rows:
/// `a(x) = (x^n - 1)/n Σ_j a_j ω^j / (x - ω^j)`.
#[test]
fn large_quotients_are_right_at_a_random_point() {
    if !is_large_wanted() {
        return println!("left out: CUZK_GPU_LARGE is not 1");
    }
    let gpu = Gpu::first();
    for domain_log2 in [22, 24, 25, 27] {
        let n = 1usize << domain_log2;
        let num_rows = n - n / 30;
        let planned_bytes = ntt_plan::domain_table_bytes(domain_log2) + 3 * vector_bytes(domain_log2);
        let reservation = gpu.reservation(planned_bytes);
        let domain = gpu.kernels.domain(&gpu.stream, &reservation, domain_log2).unwrap();
        let (a, b) = (cheap_scalars(num_rows, 61), cheap_scalars(num_rows, 62));
        let h = quotient(&gpu, &domain, &reservation, [&a, &b], QuotientBasis::Coefficients).unwrap();
        assert_eq!(reservation.peak_bytes(), planned_bytes);
        let h = {
            let buffer = h;
            read(&buffer)
        };
        assert_eq!(h[n - 1], Scalar::ZERO);
        let x = random_scalars(1, 63)[0];
        let [a_x, b_x, c_x] = interpolated_at(x, &a, &b, domain_log2);
        let vanishing = x.pow_vartime([n as u64]) - Scalar::ONE;
        assert_eq!(a_x * b_x - c_x, evaluate(&h[..n - 1], x) * vanishing, "2^{domain_log2}");
        println!("2^{domain_log2}: the quotient is right");
        check_lagrange(&gpu, &domain, &reservation, &a, &b);
    }
}

/// On 2^22 rows and more, against the host.
fn check_lagrange(gpu: &Gpu, domain: &NttDomain, reservation: &Reservation, a: &[Scalar], b: &[Scalar]) {
    let t = read(&quotient(gpu, domain, reservation, [a, b], QuotientBasis::Lagrange).unwrap());
    let log2 = domain.domain_log2();
    let expected = cuzk::groth16::domain::lagrange_quotient(a.to_vec(), b.to_vec(), log2);
    assert_same(&format!("in the Lagrange basis, 2^{log2}"), &t, &expected);
}

/// The polynomials through `a`, `b` and `a b` on the domain, at `x`.
fn interpolated_at(x: Scalar, a: &[Scalar], b: &[Scalar], domain_log2: u32) -> [Scalar; 3] {
    const CHUNK: usize = 1 << 12;
    let omega = root_of_unity(domain_log2);
    let sums =
        (a.par_chunks(CHUNK), b.par_chunks(CHUNK)).into_par_iter().enumerate().map(|(chunk, (a, b))| {
            let mut power = omega.pow_vartime([(chunk * CHUNK) as u64]);
            let powers: Vec<Scalar> = (0..a.len())
                .map(|_| {
                    let current = power;
                    power *= omega;
                    current
                })
                .collect();
            // One inversion for the chunk: running products, and back.
            let mut products = Vec::with_capacity(a.len());
            let total = powers.iter().fold(Scalar::ONE, |product, power| {
                products.push(product);
                product * (x - power)
            });
            let mut inverse = total.invert().expect("a random point is not on the domain");
            let mut sums = [Scalar::ZERO; 3];
            for j in (0..a.len()).rev() {
                let weight = powers[j] * inverse * products[j];
                inverse *= x - powers[j];
                let (a, b) = (a[j] * weight, b[j]);
                sums = [sums[0] + a, sums[1] + b * weight, sums[2] + a * b];
            }
            sums
        });
    let add = |left: [Scalar; 3], right: [Scalar; 3]| [0, 1, 2].map(|i| left[i] + right[i]);
    let sums = sums.reduce(|| [Scalar::ZERO; 3], add);
    let vanishing = x.pow_vartime([1u64 << domain_log2]) - Scalar::ONE;
    let scale = vanishing * Scalar::TWO_INV.pow_vartime([u64::from(domain_log2)]);
    sums.map(|sum| sum * scale)
}
