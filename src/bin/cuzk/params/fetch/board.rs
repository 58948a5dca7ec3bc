//! How far the files have come: a bar for each on a terminal, a line now and then elsewhere.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cuzk::error::ParamsError;
use cuzk::params::fetch::{Fetched, Phase, Watcher};
use cuzk::params::Wanted;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::ui::{self, Ui};

/// Off a terminal, a line is printed this often.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub struct FetchBoard {
    ui: Ui,
    bars: MultiProgress,
    files: Vec<FileLine>,
    /// Off a terminal: what came so far, and when the next line is due.
    lines: Mutex<Lines>,
}

struct FileLine {
    name: String,
    bar: Option<ProgressBar>,
}

struct Lines {
    next: Instant,
    last: Instant,
    /// Bytes fetched at the last line.
    last_fetched: u64,
    files: Vec<FileCount>,
}

#[derive(Clone, Copy, Default)]
struct FileCount {
    done: u64,
    total: u64,
    /// What was there before this run's first byte of it.
    first: Option<u64>,
}

impl FetchBoard {
    pub fn new(wanted: &[Wanted], ui: Ui) -> Self {
        let bars = MultiProgress::new();
        let line = |wanted: &Wanted| {
            let kind = wanted.file.name.rsplit('.').next().unwrap_or_default();
            FileLine { name: format!("{} .{kind}", wanted.circuit), bar: None }
        };
        let mut files: Vec<FileLine> = wanted.iter().map(line).collect();
        if ui.is_terminal() {
            for file in &mut files {
                let style = ProgressStyle::with_template(
                    "{prefix:20} [{bar:24}] {bytes}/{total_bytes} {binary_bytes_per_sec} eta {eta} {msg}",
                )
                .expect("the template is a constant")
                .progress_chars("=> ");
                let bar = bars.add(ProgressBar::new(0));
                bar.set_style(style);
                bar.set_prefix(file.name.clone());
                file.bar = Some(bar);
            }
        }
        let now = Instant::now();
        let expected =
            |wanted: &Wanted| FileCount { total: wanted.expected_bytes.unwrap_or(0), ..FileCount::default() };
        let counts = wanted.iter().map(expected).collect();
        let lines = Lines { next: now + LINE_INTERVAL, last: now, last_fetched: 0, files: counts };
        Self { ui, bars, files, lines: Mutex::new(lines) }
    }

    /// Takes the bars off the terminal.
    pub fn clear(&self) {
        for bar in self.files.iter().filter_map(|file| file.bar.as_ref()) {
            bar.finish_and_clear();
        }
    }

    fn note(&self, line: &str) {
        if self.ui.is_terminal() {
            self.bars.suspend(|| self.ui.note(line));
        } else {
            self.ui.note(line);
        }
    }
}

impl Lines {
    /// The line that is due, if one is: `12 % of 76.2 GiB, 120.0 MiB/s, eta 9 min 30 s`; without a rate while nothing comes.
    fn line(&mut self, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        let done: u64 = self.files.iter().map(|file| file.done).sum();
        let total: u64 = self.files.iter().map(|file| file.total.max(file.done)).sum();
        let fetched: u64 =
            self.files.iter().filter_map(|file| Some(file.done.saturating_sub(file.first?))).sum();
        let seconds = now.duration_since(self.last).as_secs_f64();
        let rate = (fetched.saturating_sub(self.last_fetched) as f64 / seconds.max(f64::EPSILON)) as u64;
        (self.next, self.last, self.last_fetched) = (now + LINE_INTERVAL, now, fetched);
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        let eta = total.saturating_sub(done).checked_div(rate).map(Duration::from_secs);
        let pace =
            eta.map(|eta| format!(", {}/s, eta {}", ui::bytes(rate), ui::duration(eta))).unwrap_or_default();
        Some(format!("{percent} % of {}{pace}", ui::bytes(total)))
    }
}

impl Watcher for FetchBoard {
    fn progress(&self, index: usize, phase: Phase, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.files[index].bar {
            bar.set_message(if phase == Phase::Digesting { "checking what is there" } else { "" });
            bar.set_length(total.unwrap_or(0).max(done));
            bar.set_position(done);
            return;
        }
        let mut lines = self.lines.lock().expect("no thread panics with the lock");
        let file = &mut lines.files[index];
        file.done = done;
        file.total = total.unwrap_or(file.total);
        if phase == Phase::Fetching {
            file.first.get_or_insert(done);
        }
        let line = lines.line(Instant::now());
        drop(lines);
        if let Some(line) = line {
            let what = if phase == Phase::Digesting { "checking what is there" } else { "fetching" };
            self.note(&format!("{what}: {line}"));
        }
    }

    fn setback(&self, index: usize, reason: &str) {
        self.note(&format!("{}: {reason}", self.files[index].name));
    }

    fn ended(&self, index: usize, _: &Result<Fetched, ParamsError>) {
        if let Some(bar) = &self.files[index].bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_rate_and_time_left() {
        let start = Instant::now();
        let mib = 1 << 20;
        let file = |done, total, first| FileCount { done, total, first };
        // A file that goes on after 10 MiB, and one that has not begun.
        let files = vec![file(60 * mib, 100 * mib, Some(10 * mib)), file(0, 100 * mib, None)];
        let next = start + LINE_INTERVAL;
        let mut lines = Lines { next, last: start, last_fetched: 0, files };
        assert_eq!(lines.line(start + Duration::from_secs(4)), None);
        let line = lines.line(start + Duration::from_secs(5)).unwrap();
        assert_eq!(line, "30 % of 200.0 MiB, 10.0 MiB/s, eta 14.0 s");
        let stalled = lines.line(start + Duration::from_secs(10)).unwrap();
        assert_eq!(stalled, "30 % of 200.0 MiB");
    }
}
