//! `cuzk-bench timeline`: an event log as figures, as a picture, and as a trace for other programs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use cuzk::telemetry::event_log::read_events;
use cuzk::timeline::Timeline;

/// What an event log says: figures on standard output, and pictures
#[derive(Args)]
pub struct TimelineArgs {
    /// An event log: of `cuzk prove --events`, of `[telemetry] event_log`, or of `simulate --events`
    #[arg(value_name = "EVENTS")]
    events: PathBuf,
    /// Draw it: lanes of each device, what waited, memory
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a trace for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    chrome: Option<PathBuf>,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// # Errors
/// If the log cannot be read, or a file not be written.
pub fn run(args: &TimelineArgs) -> Result<(), Box<dyn std::error::Error>> {
    let timeline = Timeline::new(&read_events(&args.events)?);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&timeline.summary())?);
    } else {
        print!("{}", timeline.summary());
    }
    if let Some(path) = &args.svg {
        write(path, |out| out.write_all(timeline.to_svg().as_bytes()))?;
    }
    if let Some(path) = &args.chrome {
        write(path, |out| timeline.write_chrome_trace(out))?;
    }
    Ok(())
}

fn write(path: &Path, what: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), String> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        what(&mut out)?;
        out.flush()
    });
    written.map_err(|error| format!("{}: {error}", path.display()))
}
