//! Rates of the field and curve arithmetic on every GPU of this machine: `cargo bench --features cuda --bench
//! gpu_field [REPEATS]`. Each result that a rate stands on is recomputed on the CPU for a sample of threads; a wrong
//! one ends the program. Device time from events, median of the repeats, one warm-up before.

#[path = "../tests/common/kernel_cases.rs"]
mod kernel_cases;

use std::process::ExitCode;

use blstrs::{G1Projective, Scalar};
use cuzk::cuda::selftest::{gathered_point, Chain, SelfTest, Timed, CHAIN_THREADS, GATHER_THREADS};
use cuzk::cuda::{devices, Context, CudaError, DeviceInfo, Reservation};
use ff::Field;
use group::Group;
use kernel_cases::{bytes, fp_montgomery_product, random_below, FP_BYTES, FR_MONTGOMERY, P, R};
use num_bigint::BigUint;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Wide multiplications (one IMAD.WIDE each, low halves counted as half) of one operation: kernels/math.
fn wide_multiplications(chain: Chain) -> f64 {
    match chain {
        Chain::FpMul => 294.0,
        Chain::FpSqr => 228.0,
        Chain::FpDot => 438.0,
        Chain::FrMul => 116.0,
    }
}
const WIDE_XYZZ_ADD_AFFINE: f64 = 6.0 * 294.0 + 2.0 * 228.0 + 438.0;
/// IMAD.WIDE of a multiprocessor per clock, measured on H200 (compute capability 9.0).
const WIDE_PER_CLOCK: f64 = 32.0;

fn main() -> ExitCode {
    let repeats = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(9);
    let all = match devices() {
        Ok(all) if !all.is_empty() => all,
        Ok(_) => return fail("no GPU"),
        Err(error) => return fail(error),
    };
    for device in &all {
        println!(
            "{} {} at {}, compute capability {}, {} multiprocessors, {} MHz, {} MiB, driver {}",
            device.id,
            device.name,
            device.pci_bus_id,
            device.compute_capability,
            device.num_multiprocessors,
            device.clock_khz / 1000,
            device.memory_bytes >> 20,
            device.driver_version
        );
        if let Err(error) = measure(device, repeats) {
            return fail(error);
        }
    }
    ExitCode::SUCCESS
}

fn fail(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("gpu_field: {why}");
    ExitCode::FAILURE
}

fn measure(device: &DeviceInfo, repeats: usize) -> Result<(), CudaError> {
    let context = Context::new(device)?;
    let reservation = Reservation::new(&context, 8 << 30);
    let selftest = SelfTest::new(&context, &reservation)?;
    let wall = f64::from(device.num_multiprocessors) * f64::from(device.clock_khz) * 1e3 * WIDE_PER_CLOCK;
    println!(
        "kernel               registers  local B  blocks/SM  median ms  min    max    G/s     of the wall"
    );
    for chain in Chain::ALL {
        let steps = 2000;
        // Eight blocks of 256 threads on each multiprocessor: a whole number of waves at any occupancy up to 8.
        let num_threads = device.num_multiprocessors as usize * 8 * CHAIN_THREADS;
        let seeds = chain_seeds(chain, num_threads + 1);
        let timed = selftest.time_chain(chain, &seeds, steps, repeats)?;
        check_chain(chain, &seeds, steps, &timed.results);
        let operations = num_threads as f64 * 2.0 * f64::from(steps);
        report(&format!("{chain:?}"), &timed, operations, wide_multiplications(chain), wall);
    }
    for table_log2 in [18, 25] {
        let (num_points, steps) = (4096, 512);
        let num_threads = device.num_multiprocessors as usize * 24 * GATHER_THREADS;
        let points = multiples_of_the_generator(num_points);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let structs: Vec<u8> =
            points.iter().flat_map(|point| kernel_cases::g1_affine_struct(point, &mut rng)).collect();
        let timed = selftest.time_gathered_sums(&structs, table_log2, num_threads, steps, repeats)?;
        check_gathered_sums(&points, table_log2, steps, &timed.results);
        let operations = num_threads as f64 * f64::from(steps);
        let name = format!("XYZZ+=affine 2^{table_log2}");
        report(&name, &timed, operations, WIDE_XYZZ_ADD_AFFINE, wall);
    }
    Ok(())
}

fn report(name: &str, timed: &Timed, operations: f64, wide_each: f64, wall: f64) {
    let mut sorted = timed.milliseconds.clone();
    sorted.sort_by(f32::total_cmp);
    let median = sorted[sorted.len() / 2];
    let rate = operations / (f64::from(median) * 1e-3);
    println!(
        "{name:20} {:9} {:8} {:10} {median:10.3} {:6.3} {:6.3} {:7.3} {:5.1} %",
        timed.num_registers,
        timed.local_bytes,
        timed.blocks_per_multiprocessor,
        sorted[0],
        sorted[sorted.len() - 1],
        rate * 1e-9,
        rate * wide_each / wall * 100.0
    );
}

fn chain_seeds(chain: Chain, count: usize) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(chain.element_bytes() as u64);
    let bound = if chain == Chain::FrMul { R.clone() } else { &*P * 2u8 };
    (0..count).flat_map(|_| bytes(&random_below(&bound, &mut rng), chain.element_bytes())).collect()
}

/// Recomputes the first and last threads and some between.
fn check_chain(chain: Chain, seeds: &[u8], steps: u32, results: &[u8]) {
    let size = chain.element_bytes();
    let element =
        |bytes: &[u8], index: usize| BigUint::from_bytes_le(&bytes[index * size..(index + 1) * size]);
    let num_threads = results.len() / size;
    for sample in 0..24 {
        let thread = sample * (num_threads - 1) / 23;
        let (x, y) = (element(seeds, thread), element(seeds, thread + 1));
        let (expected, modulus) = match chain {
            Chain::FrMul => (fr_chain(&x, &y, steps), &*R),
            _ => (fp_chain(chain, x, y, steps), &*P),
        };
        let result = element(results, thread);
        assert!(result < modulus * 2u8, "{chain:?} thread {thread}: out of range");
        assert_eq!(result % modulus, expected, "{chain:?} thread {thread}");
    }
}

fn fp_chain(chain: Chain, mut x: BigUint, mut y: BigUint, steps: u32) -> BigUint {
    let product = fp_montgomery_product;
    for _ in 0..steps {
        match chain {
            Chain::FpSqr => {
                x = product(&x, &x);
                y = product(&y, &y);
            }
            Chain::FpDot => {
                x = product(&x, &y) + product(&y, &y);
                y = product(&y, &x) + product(&x, &x);
            }
            _ => {
                x = product(&x, &y);
                y = product(&y, &x);
            }
        }
    }
    (x + y) % &*P
}

fn fr_chain(raw_x: &BigUint, raw_y: &BigUint, steps: u32) -> BigUint {
    let montgomery_inverse = FR_MONTGOMERY.invert().expect("R is not 0");
    let [mut x, mut y] = [raw_x, raw_y].map(kernel_cases::scalar);
    for _ in 0..steps {
        x *= y * montgomery_inverse;
        y *= x * montgomery_inverse;
    }
    let sum: Scalar = x + y;
    BigUint::from_bytes_le(&sum.to_bytes_le())
}

fn multiples_of_the_generator(count: usize) -> Vec<G1Projective> {
    let factor = Scalar::from(0x9e37_79b9_7f4a_7c15);
    let start = G1Projective::generator() * factor;
    std::iter::successors(Some(start), |point| Some(point + G1Projective::generator())).take(count).collect()
}

fn check_gathered_sums(points: &[G1Projective], table_log2: u32, steps: u32, results: &[u8]) {
    const XYZZ_BYTES: usize = 4 * FP_BYTES;
    let num_threads = results.len() / XYZZ_BYTES;
    for sample in 0..12 {
        let thread = sample * (num_threads - 1) / 11;
        let indices = gathered_points(thread as u32, steps, table_log2, points.len() as u32);
        let sum: G1Projective = indices.map(|index| points[index as usize]).sum();
        let result = &results[thread * XYZZ_BYTES..(thread + 1) * XYZZ_BYTES];
        kernel_cases::check_g1_xyzz(result, &sum).unwrap_or_else(|wrong| panic!("thread {thread}: {wrong}"));
    }
}

fn gathered_points(thread: u32, steps: u32, table_log2: u32, num_points: u32) -> impl Iterator<Item = u32> {
    (0..steps).map(move |step| gathered_point(thread, step, table_log2, num_points))
}
