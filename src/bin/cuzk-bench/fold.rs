//! Folding a key on a device, and what it buys: quotients in both bases, and proofs with the plain and the folded key in one
//! run. Every result is checked.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::cuda::{CudaTransform, DeviceBuffer, NttKernels, Priority, Reservation, Stream};
use cuzk::cuda::{SyntheticKernels, SyntheticSource};
use cuzk::groth16::domain;
use cuzk::groth16::fold::{Fold, Watch};

use crate::check::expect_equal;
use crate::kernels::Bench;
use crate::proof::{Kind, ProofBench, ProofCase};
use crate::report::{Row, Work};

const SOURCE_A: SyntheticSource = SyntheticSource { seed: 0x006c_6167, bits_of_1024: 0 };
const SOURCE_B: SyntheticSource = SyntheticSource { seed: 0x7261_6e67, bits_of_1024: 512 };
/// Wide multiplications of a point's multiplication (kernels/math/fold.cuh), with the butterfly's two additions.
const WIDE_BUTTERFLY: f64 = 567_000.0;
const WIDE_FR_MUL: f64 = 116.0;
/// Largest domain whose fold is checked by the host's sums: beyond it, by the proofs it makes.
const MAX_CHECKED_LOG2: u32 = 20;
/// Largest domain whose quotient is compared with the host's.
const MAX_COMPARED_LOG2: u32 = 22;

pub fn measure(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let quotients: &[u32] = if bench.is_quick { &[12] } else { &[20, 22, 24, 27] };
    let proofs: &[(u32, Kind)] = if bench.is_quick {
        &[(12, Kind::Hash)]
    } else {
        &[(20, Kind::Hash), (22, Kind::Bits), (22, Kind::Hash), (22, Kind::Dense), (24, Kind::Hash)]
    };
    let mut rows = Vec::new();
    for &log2 in quotients {
        rows.extend(quotients_of(bench, log2)?);
    }
    for &(log2, kind) in proofs {
        rows.extend(proofs_of(bench, log2, kind)?);
    }
    Ok(rows)
}

/// In both bases, of the same rows; 97 % of the domain.
fn quotients_of(bench: &Bench, log2: u32) -> Result<Vec<Row>, Box<dyn Error>> {
    let kernels = NttKernels::load(&bench.context)?;
    let synthetic = SyntheticKernels::load(&bench.context)?;
    let stream = Stream::new(&bench.context, Priority::Normal)?;
    let reservation = bench.reservation();
    let domain = kernels.domain(&stream, &reservation, log2)?;
    let n = domain.len();
    let num_rows = n - n / 32;
    let rows = |source, reservation: &Reservation| synthetic.scalars(reservation, &stream, source, n);
    let mut times = [Vec::new(), Vec::new()];
    for repeat in 0..=bench.repeats {
        for (is_lagrange, times) in [false, true].into_iter().zip(&mut times) {
            let (a, b) = (rows(SOURCE_A, &reservation)?, rows(SOURCE_B, &reservation)?);
            let mut result = None;
            let milliseconds = bench.time(&stream, || {
                result = Some(match is_lagrange {
                    false => kernels.quotient(&domain, a, b, num_rows, &reservation)?,
                    true => kernels.lagrange_quotient(&domain, a, b, num_rows, &reservation)?,
                });
                Ok(())
            })?;
            // The first one grows the device's memory pool.
            match (repeat, result) {
                (0, Some(t)) if is_lagrange && log2 <= MAX_COMPARED_LOG2 => compare(&t, num_rows, log2)?,
                (0, _) => {}
                _ => times.push(milliseconds),
            }
        }
    }
    let transform = n as f64 * (f64::from(log2) / 2.0 - 1.0);
    let row = |name: &str, times: &[f32], multiplications: f64| {
        let work = Work { operations: multiplications, unit: "mul", wide_each: WIDE_FR_MUL };
        Row::new(name, format!("2^{log2}"), times, &work, bench.wide_per_second)
            .peak_vram_bytes(reservation.peak_bytes())
    };
    Ok(vec![
        row("quotient, six transforms", &times[0], 6.0 * transform + 6.0 * n as f64),
        row("quotient, Lagrange basis", &times[1], 4.0 * transform + 6.0 * n as f64),
    ])
}

fn compare(t: &DeviceBuffer<blst_fr>, num_rows: usize, log2: u32) -> Result<(), Box<dyn Error>> {
    let values =
        |source: SyntheticSource| (0..num_rows).map(|row| source.scalar(row)).collect::<Vec<Scalar>>();
    let expected = domain::lagrange_quotient(values(SOURCE_A), values(SOURCE_B), log2);
    let wrong = t.read()?.into_iter().zip(expected).position(|(value, wanted)| Scalar::from(value) != wanted);
    expect_equal(&format!("the first wrong value of a Lagrange quotient on 2^{log2}"), &wrong, &None)
}

/// The fold's making, and proofs before and after it.
fn proofs_of(bench: &Bench, log2: u32, kind: Kind) -> Result<Vec<Row>, Box<dyn Error>> {
    let case = ProofCase::new(bench, log2, kind)?;
    // The device's memory is the proofs' and the fold's in turn.
    let mut rows = ProofBench::open(bench)?.measure(bench, &case)?;
    let mut transform = CudaTransform::new(&bench.context)?;
    let begun = Instant::now();
    let fold = Fold::build(&case.srs, &case.shape, &mut transform, Watch::NONE)?;
    let elapsed_ms = begun.elapsed().as_secs_f32() * 1e3;
    eprintln!("fold of 2^{log2}: {elapsed_ms:.0} ms");
    if log2 <= MAX_CHECKED_LOG2 {
        fold.check(&case.srs, &case.shape, Path::new("the bench's key"), Watch::NONE)?;
        eprintln!("fold of 2^{log2}: checked");
    }
    drop(transform);
    bench.context.trim(0)?;
    let n = f64::from(log2).exp2();
    let work = Work {
        operations: n * f64::from(log2),
        unit: "mul",
        wide_each: WIDE_BUTTERFLY * (1.0 - 1.0 / f64::from(log2)),
    };
    rows.push(Row::new("fold of the key", format!("2^{log2}"), &[elapsed_ms], &work, bench.wide_per_second));
    let case = case.folded(fold)?;
    rows.extend(ProofBench::open(bench)?.measure(bench, &case)?);
    Ok(rows)
}
