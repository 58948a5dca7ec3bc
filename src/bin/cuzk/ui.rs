//! What people and scripts see: results on standard output, all else on standard error.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use cuzk::config::{LogFormat, LoggingConfig};

use crate::failure::{Failure, EXIT_CLOSED_PIPE};

/// How to speak on standard error.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    /// JSON log lines go to standard error: then nothing else may, or a line would not parse.
    json_lines: bool,
    /// Standard error is a terminal: progress may redraw.
    terminal: bool,
}

impl Ui {
    pub fn new(logging: &LoggingConfig) -> Self {
        let json_lines = logging.format == LogFormat::Json && logging.file.is_empty();
        Self { json_lines, terminal: std::io::stderr().is_terminal() && !json_lines }
    }

    /// Before logging is set up.
    pub fn plain() -> Self {
        Self { json_lines: false, terminal: false }
    }

    pub fn is_terminal(self) -> bool {
        self.terminal
    }

    /// One line about what is going on. With JSON logs it is an event of level `info`.
    pub fn note(self, line: &str) {
        if self.json_lines {
            tracing::info!(target: "cuzk::progress", "{line}");
        } else {
            // Nobody may be reading; the work goes on.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    /// Prints the error and gives the process's exit code. A reader that went away wants to hear nothing of it.
    pub fn fail(self, failure: &Failure) -> ExitCode {
        if failure.code != EXIT_CLOSED_PIPE {
            self.error(failure);
        }
        ExitCode::from(failure.code)
    }

    pub fn error(self, failure: &Failure) {
        if self.json_lines {
            tracing::error!(class = failure.class, at = failure.at, "{}", failure.message);
        } else {
            let _ = writeln!(std::io::stderr().lock(), "error: {}", failure.message);
        }
    }
}

/// Writes to standard output.
///
/// # Errors
/// [`Failure::stdout`]: the reader went away (`cuzk circuits | head -1`), or the result cannot be written (a full disk).
pub fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    write!(stdout, "{text}{newline}").and_then(|()| stdout.flush()).map_err(|error| Failure::stdout(&error))
}

/// Aligned columns under a header; columns of numbers to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let numeric: Vec<bool> = (0..header.len())
        .map(|column| {
            let is_number = |cell: &str| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit());
            rows.iter().all(|row| is_number(&row[column]))
        })
        .collect();
    let mut all = vec![header];
    all.extend_from_slice(rows);
    align(&all, &numeric)
}

/// Aligned columns without a header, all to the left.
pub fn columns(rows: &[Vec<String>]) -> String {
    let num_columns = rows.first().map_or(0, Vec::len);
    align(rows, &vec![false; num_columns])
}

fn align(rows: &[Vec<String>], to_the_right: &[bool]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..to_the_right.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let cell =
                if to_the_right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line += &cell;
            line += "  ";
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// `1,114,707,768`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 partition`, `13 partitions`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// `1.1 GiB`, `13.3 KiB`, `192 B`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `850 ms`, `4.2 s`, `2 min 05 s`.
pub fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    if ms < 1000 {
        format!("{ms} ms")
    } else if ms < 60_000 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        let seconds = time.as_secs();
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}
