//! `cuzk-bench simulate`: a scenario through the real actors in virtual time.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::simulation::{simulate, Options, Scenario};
use cuzk::timeline::Timeline;

/// A machine under load in virtual time: the real actors on simulated devices, as a scenario file says
#[derive(Args)]
pub struct SimulateArgs {
    /// A scenario, such as one of the folder `scenarios`
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Instead of the scenario's: another seed gives other arrivals and faults
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Instead of the scenario's: how long jobs arrive
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// One JSON document instead of tables; the same bytes for the same scenario and seed
    #[arg(long)]
    json: bool,
    /// Draw a part of it as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Where the drawn part begins
    #[arg(long, value_name = "H", default_value_t = 0.0, requires = "svg")]
    from_hour: f64,
    /// How long the drawn part is
    #[arg(long, value_name = "H", default_value_t = 1.0, requires = "svg")]
    span_hours: f64,
    /// Write every event, as `cuzk-bench timeline` reads them: some hundred bytes each
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

/// Panics that the scenario asks for are part of it, and counted in the report.
fn quiet_scripted_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_scripted =
            info.payload().downcast_ref::<String>().is_some_and(|text| text.starts_with("scripted panic"));
        if !is_scripted {
            default(info);
        }
    }));
}

/// # Errors
/// If the scenario is wrong, a file cannot be written, or a claim does not hold.
pub fn run(args: &SimulateArgs) -> Result<(), Box<dyn std::error::Error>> {
    let scenario = Scenario::read(&args.scenario)?;
    let hours = |hours: f64| Duration::try_from_secs_f64(hours * 3600.0).map_err(|_| "hours need 0 at least");
    let keep = match &args.svg {
        Some(_) => Some(hours(args.from_hour)?..hours(args.from_hour + args.span_hours)?),
        None => None,
    };
    let options = Options { seed: args.seed, hours: args.hours, events: args.events.clone(), keep };
    quiet_scripted_panics();
    let begun = Instant::now();
    let simulated = simulate(&scenario, options)?;
    let report = &simulated.report;
    if args.json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        println!("{report}");
        let elapsed = begun.elapsed();
        println!(
            "simulated in {:.1} s, {:.0} times as fast as it would be",
            elapsed.as_secs_f64(),
            report.hours * 3600.0 / elapsed.as_secs_f64().max(1e-6)
        );
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, Timeline::new(&simulated.events).to_svg())
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if report.holds() {
        Ok(())
    } else {
        Err("a claim of the scenario does not hold".into())
    }
}
