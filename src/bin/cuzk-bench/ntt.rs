//! Transforms in both directions, and the quotient.

use std::error::Error;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::cuda::{CudaError, DeviceBuffer, NttDomain, NttKernels, PassKernelInfo, Priority, Reservation};
use cuzk::cuda::{Stream, SyntheticKernels, SyntheticSource};
use cuzk::policy::ntt_plan::NttPlan;
use ff::Field;
use rayon::prelude::*;

use crate::check::{evaluate, expect_equal, interpolated_at, root_of_unity};
use crate::kernels::Bench;
use crate::report::{Row, Work};

const WIDE_FR_MUL: f64 = 116.0;
const SOURCE_A: SyntheticSource = SyntheticSource { seed: 0x006e_7474, bits_of_1024: 0 };
const SOURCE_B: SyntheticSource = SyntheticSource { seed: 0x7175_6f74, bits_of_1024: 512 };

/// Multiplications of one transform: half the levels per value, less those by one.
fn transform_multiplications(domain_log2: u32) -> f64 {
    f64::from(1 << domain_log2) * (f64::from(domain_log2) / 2.0 - 1.0)
}

/// Six transforms; a b twice, two shifts, and two scalings.
fn quotient_multiplications(domain_log2: u32) -> f64 {
    6.0 * transform_multiplications(domain_log2) + 6.0 * f64::from(1 << domain_log2)
}

/// Plans beside the one that is used: length, tile, levels of the passes, twiddles used as they are (all logarithms).
const OTHER_PLANS: [(u32, u32, &[u32], u32); 11] = [
    (19, 10, &[9, 10], 24),
    (20, 10, &[10, 10], 24),
    (22, 10, &[7, 9, 6], 24),
    (23, 10, &[8, 9, 6], 24),
    (24, 10, &[9, 9, 6], 24),
    (24, 9, &[8, 8, 8], 24),
    (26, 10, &[9, 9, 8], 25),
    (27, 10, &[9, 9, 9], 23),
    (27, 10, &[9, 9, 9], 25),
    (27, 10, &[9, 9, 9], 26),
    (27, 9, &[9, 9, 9], 24),
];

/// What other plans would give, beside the ones that are used.
pub fn measure_plans(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut last = 0;
    for (domain_log2, tile_log2, levels, low_log2) in OTHER_PLANS {
        if bench.is_quick && domain_log2 > 20 {
            continue;
        }
        if last != domain_log2 {
            rows.extend(measure_plan(bench, NttPlan::of(domain_log2))?);
            last = domain_log2;
        }
        rows.extend(measure_plan(bench, NttPlan::cut(domain_log2, tile_log2, levels, low_log2))?);
    }
    Ok(rows)
}

fn measure_plan(bench: &Bench, plan: NttPlan) -> Result<Vec<Row>, Box<dyn Error>> {
    let levels: Vec<String> = plan.passes.iter().map(|pass| pass.num_levels.to_string()).collect();
    let name = format!("{} tile {} table {}", levels.join(","), plan.tile_log2, plan.table.low_log2);
    let mut rows = measure_with(bench, plan)?;
    rows.iter_mut().zip([" to", " from", " quotient"]).for_each(|(row, what)| row.work = name.clone() + what);
    Ok(rows)
}

pub fn measure(bench: &Bench) -> Result<Vec<Row>, Box<dyn Error>> {
    let sizes: &[u32] = if bench.is_quick { &[12, 18] } else { &[19, 20, 22, 24, 27] };
    let rows: Result<Vec<_>, _> = sizes.iter().map(|log2| measure_with(bench, NttPlan::of(*log2))).collect();
    Ok(rows?.into_iter().flatten().collect())
}

fn measure_with(bench: &Bench, plan: NttPlan) -> Result<Vec<Row>, Box<dyn Error>> {
    let kernels = NttKernels::load(&bench.context)?;
    let synthetic = SyntheticKernels::load(&bench.context)?;
    let stream = Stream::new(&bench.context, Priority::Normal)?;
    let reservation = bench.reservation();
    let domain = kernels.domain_of(&stream, &reservation, plan)?;
    let ntt = Ntt { bench, kernels: &kernels, synthetic: &synthetic, stream: &stream, domain: &domain };
    let mut rows = ntt.transforms(&reservation)?;
    rows.push(ntt.quotient(&reservation)?);
    Ok(rows)
}

struct Ntt<'b> {
    bench: &'b Bench,
    kernels: &'b NttKernels,
    synthetic: &'b SyntheticKernels,
    stream: &'b Stream,
    domain: &'b NttDomain,
}

impl Ntt<'_> {
    fn make(
        &self,
        reservation: &Reservation,
        source: SyntheticSource,
    ) -> Result<DeviceBuffer<blst_fr>, CudaError> {
        self.synthetic.scalars(reservation, self.stream, source, self.domain.len())
    }

    /// Both directions. The first run of the first is checked at some places, and the pair gives the input back.
    fn transforms(&self, reservation: &Reservation) -> Result<Vec<Row>, Box<dyn Error>> {
        let Self { bench, kernels, stream, domain, .. } = self;
        let (n, log2) = (domain.len(), domain.domain_log2());
        let mut values = self.make(reservation, SOURCE_A)?;
        kernels.to_bit_reversed(domain, &mut values)?;
        let result = values.read()?;
        for place in [0, 1, n / 2, n - 1, n / 3] {
            let index = place.reverse_bits() >> (usize::BITS - log2);
            let x = root_of_unity(log2).pow_vartime([index as u64]);
            let expected = evaluate(n, |i| SOURCE_A.scalar(i), x);
            expect_equal(&format!("transform of 2^{log2}"), &Scalar::from(result[place]), &expected)?;
        }
        kernels.from_bit_reversed(domain, &mut values)?;
        self.check_round_trip(&values.read()?)?;

        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..bench.repeats {
            times[0].push(bench.time(stream, || kernels.to_bit_reversed(domain, &mut values))?);
            times[1].push(bench.time(stream, || kernels.from_bit_reversed(domain, &mut values))?);
        }
        let work = Work { operations: transform_multiplications(log2), unit: "mul", wide_each: WIDE_FR_MUL };
        let names = ["ntt to bit-reversed", "ntt from bit-reversed"];
        let row = |(name, times): (&str, &Vec<f32>)| {
            let row = Row::new(name, format!("2^{log2}"), times, &work, bench.wide_per_second);
            let kernel = self.kernel(&name.replace([' ', '-'], "_"))?;
            Ok(row
                .peak_vram_bytes(reservation.peak_bytes())
                .registers(kernel.num_registers, kernel.local_bytes))
        };
        names.into_iter().zip(&times).map(row).collect()
    }

    fn kernel(&self, name: &str) -> Result<PassKernelInfo, Box<dyn Error>> {
        let kernels = self.kernels.pass_kernels()?;
        let found = kernels.into_iter().find(|kernel| kernel.name == name);
        Ok(found.ok_or_else(|| format!("no kernel {name}"))?)
    }

    /// Place i holds n times value -i.
    fn check_round_trip(&self, values: &[blst_fr]) -> Result<(), Box<dyn Error>> {
        let n = self.domain.len();
        let scale = Scalar::from(n as u64);
        let wrong = (0..n)
            .into_par_iter()
            .find_any(|&i| Scalar::from(values[i]) != SOURCE_A.scalar((n - i) % n) * scale);
        expect_equal(&format!("places that differ after both transforms of {n}"), &wrong, &None)
    }

    /// The quotient of 97 % rows; each repeat starts from new rows, since it consumes them.
    fn quotient(&self, reservation: &Reservation) -> Result<Row, Box<dyn Error>> {
        let Self { bench, kernels, stream, domain, .. } = self;
        let (n, log2) = (domain.len(), domain.domain_log2());
        let num_rows = n - n / 32;
        let mut times = Vec::new();
        // Timed from the second on: the first one grows the device's memory pool. Its rows, made of its result, are
        // as good as any.
        let mut a = self.make(reservation, SOURCE_A)?;
        for repeat in 0..=bench.repeats {
            let b = self.make(reservation, SOURCE_B)?;
            let mut h = None;
            let milliseconds = bench.time(stream, || {
                h = Some(kernels.quotient(domain, a, b, num_rows, reservation)?);
                Ok(())
            })?;
            let h = h.expect("set when it succeeded");
            if repeat == 0 {
                self.check_quotient(num_rows, &h.read()?)?;
            } else {
                times.push(milliseconds);
            }
            a = h;
        }
        let work = Work { operations: quotient_multiplications(log2), unit: "mul", wide_each: WIDE_FR_MUL };
        let kernel = self.kernel("quotient_turn_at_coefficients")?;
        Ok(Row::new("quotient", format!("2^{log2}"), &times, &work, bench.wide_per_second)
            .peak_vram_bytes(reservation.peak_bytes())
            .registers(kernel.num_registers, kernel.local_bytes))
    }

    /// `a(x) b(x) - c(x) = h(x) (x^n - 1)` at a point.
    fn check_quotient(&self, num_rows: usize, h: &[blst_fr]) -> Result<(), Box<dyn Error>> {
        let log2 = self.domain.domain_log2();
        let n = h.len();
        let x = SOURCE_A.scalar(usize::MAX >> 8);
        let rows = |index| (SOURCE_A.scalar(index), SOURCE_B.scalar(index));
        let [a, b, c] = interpolated_at(x, log2, num_rows, rows);
        let vanishing = x.pow_vartime([n as u64]) - Scalar::ONE;
        let right = evaluate(n, |i| Scalar::from(h[i]), x) * vanishing;
        expect_equal(&format!("quotient on 2^{log2}"), &(a * b - c), &right)
    }
}
