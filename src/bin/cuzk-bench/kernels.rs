//! Which kernels, in which order, on which device.

use std::error::Error;

use cuzk::cuda::{devices, Context, CudaError, Event, Reservation, Stream};

use crate::report::Report;
use crate::{field, fold, msm, ntt, proof, spmv, Kernel, KernelsArgs};

/// What each measurement needs.
pub struct Bench {
    pub context: Context,
    pub is_quick: bool,
    pub repeats: usize,
    pub wide_per_second: f64,
}

impl Bench {
    /// A reservation that refuses nothing; its peak is reported.
    pub fn reservation(&self) -> Reservation {
        Reservation::new(&self.context, u64::MAX)
    }

    /// Device time of `work`, once.
    pub fn time(
        &self,
        stream: &Stream,
        work: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<f32, CudaError> {
        let start: Event = stream.record()?;
        work()?;
        let end = stream.record()?;
        end.wait()?;
        end.elapsed_ms(&start)
    }
}

pub fn measure(args: &KernelsArgs) -> Result<Report, Box<dyn Error>> {
    let device = devices()?.into_iter().next().ok_or("no GPU is visible")?;
    let context = Context::new(&device)?;
    let mut report = Report {
        device: format!("{} {}", device.id, device.name),
        compute_capability: device.compute_capability.to_string(),
        num_multiprocessors: device.num_multiprocessors,
        clock_mhz: device.clock_khz / 1000,
        driver_version: device.driver_version,
        rows: Vec::new(),
    };
    let repeats = if args.quick { 3 } else { 9 };
    let wide_per_second = report.wide_per_second();
    let bench = Bench { context, is_quick: args.quick, repeats, wide_per_second };
    let is_wanted = |kernel| args.only.is_empty() || args.only.contains(&kernel);
    if is_wanted(Kernel::Fp) {
        report.rows.extend(field::measure_fp(&bench)?);
    }
    if is_wanted(Kernel::Fr) {
        report.rows.extend(field::measure_fr(&bench)?);
    }
    if is_wanted(Kernel::Ntt) {
        report.rows.extend(ntt::measure(&bench)?);
    }
    if args.only.contains(&Kernel::NttPlans) {
        report.rows.extend(ntt::measure_plans(&bench)?);
    }
    if is_wanted(Kernel::MsmG1) {
        report.rows.extend(msm::measure_g1(&bench)?);
    }
    if is_wanted(Kernel::MsmG2) {
        report.rows.extend(msm::measure_g2(&bench)?);
    }
    if args.only.contains(&Kernel::MsmPlans) {
        report.rows.extend(msm::measure_plans(&bench)?);
    }
    if args.only.contains(&Kernel::Spmv) {
        report.rows.extend(spmv::measure(&bench)?);
    }
    if is_wanted(Kernel::Proof) {
        report.rows.extend(proof::measure(&bench)?);
    }
    if args.only.contains(&Kernel::Fold) {
        report.rows.extend(fold::measure(&bench)?);
    }
    Ok(report)
}
