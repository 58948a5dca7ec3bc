//! How far something has come: a bar that redraws on a terminal, a line now and then elsewhere.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::ui::Ui;

/// Off a terminal, a line is printed this often, and none for what takes less.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of one thing with a known end, reported from any thread.
pub struct Progress {
    ui: Ui,
    label: String,
    bar: Option<ProgressBar>,
    /// When the next line is due.
    next_line: Mutex<Instant>,
}

impl Progress {
    pub fn new(ui: Ui, label: impl Into<String>) -> Self {
        let label = label.into();
        let bar = ui.is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {elapsed} (eta {eta})")
                    .expect("the template is a constant")
                    .progress_chars("=> ");
            ProgressBar::new(0).with_prefix(label.clone()).with_style(style)
        });
        Self { ui, label, bar, next_line: Mutex::new(Instant::now() + LINE_INTERVAL) }
    }

    /// `done` of `total`, in any unit. A total of 0 is not reported.
    pub fn set(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            return;
        }
        // Whoever finds the lock taken leaves the line to the one that has it.
        let Ok(mut next_line) = self.next_line.try_lock() else { return };
        let now = Instant::now();
        if now < *next_line {
            return;
        }
        *next_line = now + LINE_INTERVAL;
        drop(next_line);
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        self.ui.note(&format!("{}: {percent} %", self.label));
    }

    /// Takes the bar off the terminal.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Several lines of status, one per job: redrawn on a terminal, printed one after the other elsewhere.
pub struct Board {
    ui: Ui,
    lines: MultiProgress,
}

impl Board {
    pub fn new(ui: Ui) -> Self {
        Self { ui, lines: MultiProgress::new() }
    }

    pub fn line(&self, label: impl Into<String>) -> BoardLine {
        let label = label.into();
        let spinner = self.ui.is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix}: {wide_msg} {elapsed}")
                .expect("the template is a constant");
            let spinner = self.lines.add(ProgressBar::new_spinner());
            spinner.set_style(style);
            spinner.set_prefix(label.clone());
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        BoardLine { ui: self.ui, label, spinner }
    }

    /// Prints without the lines in between.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        if self.ui.is_terminal() {
            self.lines.suspend(print)
        } else {
            print()
        }
    }
}

/// What one job is doing.
pub struct BoardLine {
    ui: Ui,
    label: String,
    spinner: Option<ProgressBar>,
}

impl BoardLine {
    /// A step worth a line of its own where nothing is redrawn.
    pub fn step(&self, what: &str) {
        match &self.spinner {
            Some(spinner) => spinner.set_message(what.to_owned()),
            None => self.ui.note(&format!("{}: {what}", self.label)),
        }
    }

    /// A step that is only shown where it can be redrawn.
    pub fn detail(&self, what: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(what.to_owned());
        }
    }
}

impl Drop for BoardLine {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
