//! Rates of field multiplications, from chains of dependent ones.

use std::error::Error;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::cuda::selftest::{Chain, SelfTest, Timed, CHAIN_THREADS};
use cuzk::cuda::SyntheticSource;

use crate::check::{expect_equal, montgomery_product, scalar_of, FpLimbs};
use crate::kernels::Bench;
use crate::report::{Row, Work};

const SOURCE: SyntheticSource = SyntheticSource { seed: 0x6669_656c, bits_of_1024: 0 };
/// Threads whose results are recomputed.
const NUM_SAMPLES: usize = 16;

/// Multiplications and squarings of the base field.
pub fn measure_fp(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    [(Chain::FpMul, "fp mul", 294.0), (Chain::FpSqr, "fp sqr", 228.0)]
        .into_iter()
        .map(|(chain, name, wide)| {
            // Six words each; below 2^376, hence below p.
            let element = |index: usize| {
                let [w0, w1, w2, w3] = words(index);
                [w0, w1, w2, w3, w0 ^ w2.rotate_left(17), w3 >> 8]
            };
            let bytes = |index| element(index).into_iter().flat_map(u64::to_le_bytes).collect();
            let (timed, steps) = run_chain(bench, chain, bytes)?;
            for thread in samples(timed.results.len() / 48) {
                let (mut x, mut y) = (element(thread), element(thread + 1));
                for _ in 0..steps {
                    if chain == Chain::FpSqr {
                        (x, y) = (montgomery_product(&x, &x), montgomery_product(&y, &y));
                    } else {
                        x = montgomery_product(&x, &y);
                        y = montgomery_product(&y, &x);
                    }
                }
                let result = FpLimbs::from_bytes(&timed.results[thread * 48..][..48]);
                expect_equal(name, &result.canonical(), &FpLimbs::sum(&x, &y).canonical())?;
            }
            Ok(row(bench, name, &timed, steps, 48, wide))
        })
        .collect()
}

/// Multiplications of the scalar field.
pub fn measure_fr(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let bytes = |index: usize| words(index).into_iter().flat_map(u64::to_le_bytes).collect();
    let (timed, steps) = run_chain(bench, Chain::FrMul, bytes)?;
    for thread in samples(timed.results.len() / 32) {
        let [mut x, mut y]: [Scalar; 2] = [SOURCE.scalar(thread), SOURCE.scalar(thread + 1)];
        for _ in 0..steps {
            x *= y;
            y *= x;
        }
        expect_equal("fr mul", &scalar_of(&timed.results[thread * 32..][..32]), &(x + y))?;
    }
    Ok(vec![row(bench, "fr mul", &timed, steps, 32, 116.0)])
}

fn words(index: usize) -> [u64; 4] {
    blst_fr::from(SOURCE.scalar(index)).l
}

fn run_chain(
    bench: &Bench,
    chain: Chain,
    element: impl Fn(usize) -> Vec<u8>,
) -> Result<(Timed, u32), Box<dyn Error>> {
    let steps = if bench.is_quick { 100 } else { 2000 };
    // Eight blocks on each multiprocessor: a whole number of waves at any occupancy up to 8.
    let num_threads = bench.context.device().num_multiprocessors as usize * 8 * CHAIN_THREADS;
    let seeds: Vec<u8> = (0..=num_threads).flat_map(element).collect();
    let selftest = SelfTest::new(&bench.context, &bench.reservation())?;
    Ok((selftest.time_chain(chain, &seeds, steps, bench.repeats)?, steps))
}

fn samples(num_threads: usize) -> impl Iterator<Item = usize> {
    (0..NUM_SAMPLES).map(move |sample| sample * (num_threads - 1) / (NUM_SAMPLES - 1))
}

fn row(bench: &Bench, name: &str, timed: &Timed, steps: u32, element_bytes: usize, wide_each: f64) -> Row {
    let num_threads = timed.results.len() / element_bytes;
    let work = Work { operations: num_threads as f64 * 2.0 * f64::from(steps), unit: "mul", wide_each };
    Row::new(name, "chains", &timed.milliseconds, &work, bench.wide_per_second)
        .peak_vram_bytes(((2 * num_threads + 1) * element_bytes) as u64)
        .registers(timed.num_registers, timed.local_bytes)
}
