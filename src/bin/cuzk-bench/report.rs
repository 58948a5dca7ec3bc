//! What was measured, as a table and as JSON.

use std::fmt;

use serde::Serialize;

/// IMAD.WIDE instructions that a multiprocessor starts per clock and thread, measured on H200 (compute capability
/// 9.0): the floor of all arithmetic here.
const WIDE_PER_CLOCK: f64 = 32.0;

#[derive(Serialize)]
pub struct Report {
    pub device: String,
    pub compute_capability: String,
    pub num_multiprocessors: u32,
    pub clock_mhz: u32,
    pub driver_version: u32,
    pub rows: Vec<Row>,
}

impl Report {
    /// Wide multiplications per second of the whole device.
    pub fn wide_per_second(&self) -> f64 {
        f64::from(self.num_multiprocessors) * f64::from(self.clock_mhz) * 1e6 * WIDE_PER_CLOCK
    }
}

/// One measured piece of work.
#[derive(Serialize)]
pub struct Row {
    pub work: String,
    pub size: String,
    pub median_ms: f64,
    pub min_ms: f64,
    pub max_ms: f64,
    pub repeats: usize,
    /// Operations per second, in the unit's.
    pub giga_per_second: f64,
    /// `mul`, `add`, `row`, `value` or `proof`.
    pub unit: &'static str,
    /// Time that the multiplications alone take at the full rate of their pipe, or the bytes that must be moved at the
    /// memory's; 0 where nobody has counted them.
    pub floor_ms: f64,
    pub peak_vram_bytes: u64,
    pub num_registers: u32,
    pub local_bytes: u32,
}

/// How much work a row did.
pub struct Work {
    pub operations: f64,
    pub unit: &'static str,
    /// Wide multiplications of one operation.
    pub wide_each: f64,
}

impl Row {
    /// `milliseconds`: device times of the repeats, at least one.
    pub fn new(
        work: impl Into<String>,
        size: impl Into<String>,
        milliseconds: &[f32],
        amount: &Work,
        wide_per_second: f64,
    ) -> Self {
        let mut sorted: Vec<f64> = milliseconds.iter().copied().map(f64::from).collect();
        sorted.sort_by(f64::total_cmp);
        let median_ms = sorted[sorted.len() / 2];
        Self {
            work: work.into(),
            size: size.into(),
            median_ms,
            min_ms: sorted[0],
            max_ms: sorted[sorted.len() - 1],
            repeats: sorted.len(),
            giga_per_second: amount.operations / (median_ms * 1e6),
            unit: amount.unit,
            floor_ms: amount.operations * amount.wide_each / wide_per_second * 1e3,
            peak_vram_bytes: 0,
            num_registers: 0,
            local_bytes: 0,
        }
    }

    /// A floor by something else than multiplications.
    pub fn floor_ms(self, floor_ms: f64) -> Self {
        Self { floor_ms, ..self }
    }

    pub fn peak_vram_bytes(self, peak_vram_bytes: u64) -> Self {
        Self { peak_vram_bytes, ..self }
    }

    pub fn registers(self, num_registers: u32, local_bytes: u32) -> Self {
        Self { num_registers, local_bytes, ..self }
    }

    /// Half the distance between the fastest and the slowest repeat, in percent of the median.
    fn spread_percent(&self) -> f64 {
        (self.max_ms - self.min_ms) / 2.0 / self.median_ms * 100.0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, compute capability {}, {} multiprocessors, {} MHz, driver {}",
            self.device,
            self.compute_capability,
            self.num_multiprocessors,
            self.clock_mhz,
            self.driver_version
        )?;
        writeln!(
            f,
            "{:28} {:>8} {:>11} {:>8} {:>16} {:>10} {:>9} {:>10} {:>5} {:>6}",
            "work",
            "size",
            "median ms",
            "spread",
            "rate",
            "floor ms",
            "of floor",
            "peak MiB",
            "regs",
            "spill"
        )?;
        for row in &self.rows {
            // Work that is no count of one operation has neither rate nor floor.
            let (mut rate, mut floor, mut share) = (String::new(), String::new(), String::new());
            if row.floor_ms > 0.0 {
                rate = format!("{:.3} G{:<4}/s", row.giga_per_second, row.unit);
                floor = format!("{:.3}", row.floor_ms);
                share = format!("{:.1} %", row.floor_ms / row.median_ms * 100.0);
            }
            writeln!(
                f,
                "{:28} {:>8} {:>11.3} {:>6.1} % {rate:>16} {floor:>10} {share:>9} {:>10.1} {:>5} {:>6}",
                row.work,
                row.size,
                row.median_ms,
                row.spread_percent(),
                row.peak_vram_bytes as f64 / f64::from(1 << 20),
                row.num_registers,
                row.local_bytes
            )?;
        }
        Ok(())
    }
}
