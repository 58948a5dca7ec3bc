//! A timeline as one self-contained SVG file: it reads in light and dark, every colour has its name in the legend, and
//! every bar says on hovering what it is.

use std::fmt::Write;

use super::{Bar, DeviceTrack, Mark, Step, Timeline};
use crate::backend::Stage;

/// All lengths in pixels of the picture.
const LABEL_WIDTH: f64 = 150.0;
const PLOT_WIDTH: f64 = 1400.0;
const MARGIN: f64 = 16.0;
const LANE_HEIGHT: f64 = 18.0;
const CURVE_HEIGHT: f64 = 44.0;
const GAP: f64 = 6.0;
const DEVICE_GAP: f64 = 18.0;

/// Bars of the same stage that are closer than this are drawn as one.
const MERGE_WIDTH: f64 = 0.4;

/// Points of a curve: more than the plot has columns cannot be seen.
const COLUMNS: usize = 2800;

/// A colour per stage that is told from the others on white and on black, also without red and green.
fn color(stage: Stage) -> &'static str {
    match stage {
        Stage::Upload => "#999999",
        Stage::Evaluate => "#b07aa1",
        Stage::Quotient => "#e69f00",
        Stage::SumH => "#0072b2",
        Stage::SumL => "#56b4e9",
        Stage::SumA => "#009e73",
        Stage::SumBG1 => "#cc79a7",
        Stage::SumBG2 => "#d55e00",
        Stage::Assemble => "#f0e442",
    }
}

const STYLE: &str = "<style>\
    .bg{fill:#ffffff}.ink{fill:#1a1a1a}.dim{fill:#5a5a5a}.grid{stroke:#d8d8d8}.row{fill:#f1f1f1}\
    .curve{stroke:#0072b2;fill:#0072b2;fill-opacity:.18}.curve2{stroke:#d55e00;fill:none}.bad{stroke:#c00000;fill:#c00000}\
    text{font:12px system-ui,sans-serif}.small{font-size:10px}.title{font-size:15px;font-weight:600}\
    @media(prefers-color-scheme:dark){.bg{fill:#16181c}.ink{fill:#eeeeee}.dim{fill:#a8a8a8}.grid{stroke:#3a3d44}\
    .row{fill:#20232a}.curve{stroke:#56b4e9;fill:#56b4e9}.curve2{stroke:#e69f00}.bad{stroke:#ff6b6b;fill:#ff6b6b}}\
    </style>";

impl Timeline {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let mut picture = Picture { timeline: self, body: String::new(), y: MARGIN };
        picture.heading();
        let top = picture.y;
        picture.curve("partitions waiting", &[&self.waiting], |value| value.to_string());
        picture.curve("jobs", &[&self.open_jobs], |value| value.to_string());
        if !self.witness_bytes.is_empty() {
            picture.curve("witness memory", &[&self.witness_bytes], bytes);
        }
        for (id, device) in &self.devices {
            picture.device(id.as_str(), device);
        }
        picture.axis(top);
        let (width, height) = (LABEL_WIDTH + PLOT_WIDTH + 2.0 * MARGIN, picture.y + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"timeline of an engine\">{STYLE}\
             <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            picture.body
        )
    }
}

struct Picture<'a> {
    timeline: &'a Timeline,
    body: String,
    /// Where the next thing goes.
    y: f64,
}

/// Writing to a `String` cannot fail.
macro_rules! draw {
    ($picture:expr, $($arguments:tt)*) => {
        writeln!($picture.body, $($arguments)*).expect("a String takes everything")
    };
}

impl Picture<'_> {
    fn x(&self, at_us: u64) -> f64 {
        let since = at_us.saturating_sub(self.timeline.begin_us).min(self.timeline.span_us());
        MARGIN + LABEL_WIDTH + since as f64 / self.timeline.span_us() as f64 * PLOT_WIDTH
    }

    fn heading(&mut self) {
        let summary = self.timeline.summary();
        let verified: u64 = summary.devices.values().map(|device| device.partitions_verified).sum();
        let num_jobs = self.timeline.jobs.len();
        self.y += 14.0;
        draw!(
            self,
            "<text class=\"ink title\" x=\"{MARGIN}\" y=\"{:.1}\">{} of an engine: {num_jobs} jobs, {verified} \
             partitions verified</text>",
            self.y,
            time(self.timeline.span_us())
        );
        self.y += 12.0;
        let mut x = MARGIN;
        for stage in Stage::ALL {
            draw!(
                self,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/><text class=\"ink\" \
                 x=\"{:.1}\" y=\"{:.1}\">{stage}</text>",
                self.y,
                color(stage),
                x + 16.0,
                self.y + 10.5
            );
            x += 30.0 + 7.5 * stage.as_str().len() as f64;
        }
        draw!(
            self,
            "<path class=\"bad\" d=\"M{:.1} {:.1}l5 10h-10z\"/><text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\">failed \
             attempt, or device down</text>",
            x + 6.0,
            self.y + 1.0,
            x + 16.0,
            self.y + 10.5
        );
        self.y += 30.0;
    }

    fn label(&mut self, text: &str, class: &str, y: f64) {
        draw!(self, "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{y:.1}\">{}</text>", escaped(text));
    }

    fn device(&mut self, id: &str, device: &DeviceTrack) {
        self.y += DEVICE_GAP;
        self.label(&format!("{id}  {}", device.name), "ink", self.y);
        self.y += GAP;
        for (lane, bars) in &device.lanes {
            self.lane(&format!("lane {lane}"), bars);
        }
        self.marks(device);
        if !device.reserved_bytes.is_empty() {
            self.curve("VRAM: reserved, in use", &[&device.reserved_bytes, &device.in_use_bytes], bytes);
        }
    }

    fn lane(&mut self, name: &str, bars: &[Bar]) {
        self.label(name, "dim small", self.y + 13.0);
        draw!(
            self,
            "<rect class=\"row\" x=\"{:.1}\" y=\"{:.1}\" width=\"{PLOT_WIDTH}\" height=\"{LANE_HEIGHT}\"/>",
            MARGIN + LABEL_WIDTH,
            self.y
        );
        let mut index = 0;
        while index < bars.len() {
            let first = &bars[index];
            let mut last = first;
            // What is too narrow to be seen is drawn together with what follows it.
            while let Some(next) = bars.get(index + 1) {
                let is_wide = self.x(next.end_us) - self.x(first.begin_us) > MERGE_WIDTH;
                let is_same =
                    next.stage == first.stage && self.x(next.begin_us) - self.x(last.end_us) < MERGE_WIDTH;
                if is_wide && !is_same {
                    break;
                }
                last = next;
                index += 1;
            }
            self.bar(first, last);
            index += 1;
        }
        self.y += LANE_HEIGHT + 2.0;
    }

    fn bar(&mut self, first: &Bar, last: &Bar) {
        let (begin, end) = (self.x(first.begin_us), self.x(last.end_us));
        let what = if first == last {
            format!(
                "{} of job {} partition {} attempt {}",
                first.stage, first.at.job, first.at.partition, first.at.attempt
            )
        } else {
            format!("from {} of job {} to {} of job {}", first.stage, first.at.job, last.stage, last.at.job)
        };
        draw!(
            self,
            "<rect x=\"{begin:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{LANE_HEIGHT}\" fill=\"{}\"><title>{what}, {}\
             </title></rect>",
            self.y,
            (end - begin).max(0.3),
            color(first.stage),
            time(last.end_us - first.begin_us)
        );
    }

    fn marks(&mut self, device: &DeviceTrack) {
        let downs = device.states.iter().filter(|mark| mark.what.starts_with("down"));
        let marks: Vec<&Mark> = device.failures.iter().chain(downs).collect();
        if marks.is_empty() {
            return;
        }
        let mut last_x = f64::NEG_INFINITY;
        let mut marks = marks;
        marks.sort_by_key(|mark| mark.at_us);
        for mark in marks {
            let x = self.x(mark.at_us);
            if x - last_x < 2.0 {
                continue;
            }
            last_x = x;
            draw!(
                self,
                "<path class=\"bad\" d=\"M{x:.1} {:.1}l4 8h-8z\"><title>{}</title></path>",
                self.y,
                escaped(&mark.what)
            );
        }
        self.y += 10.0;
    }

    /// Steps over time, the first one filled. The highest value is written beside it.
    fn curve(&mut self, name: &str, series: &[&[Step]], show: fn(u64) -> String) {
        let peak = series.iter().flat_map(|steps| steps.iter()).map(|step| step.value).max().unwrap_or(0);
        self.label(name, "dim small", self.y + 14.0);
        self.label(&format!("at most {}", show(peak)), "dim small", self.y + 28.0);
        let bottom = self.y + CURVE_HEIGHT;
        for (index, steps) in series.iter().enumerate() {
            let class = if index == 0 { "curve" } else { "curve2" };
            let path = self.path_of(steps, peak, bottom);
            draw!(self, "<path class=\"{class}\" d=\"{path}\"/>");
        }
        self.y = bottom + GAP;
    }

    fn path_of(&self, steps: &[Step], peak: u64, bottom: f64) -> String {
        let (left, right) = (self.x(self.timeline.begin_us), self.x(self.timeline.end_us));
        let height = |value: u64| bottom - value as f64 / peak.max(1) as f64 * (CURVE_HEIGHT - 2.0);
        let mut path = format!("M{left:.1} {bottom:.1}");
        let mut last = 0;
        for column in highest_per_column(steps, self.timeline.begin_us, self.timeline.span_us()) {
            let x = self.x(column.at_us);
            let _ = write!(path, "L{x:.1} {:.1}L{x:.1} {:.1}", height(last), height(column.value));
            last = column.value;
        }
        let _ = write!(path, "L{right:.1} {:.1}L{right:.1} {bottom:.1}", height(last));
        path
    }

    /// Times, over everything that was drawn below `top`.
    fn axis(&mut self, top: f64) {
        let span_us = self.timeline.span_us();
        let step_us = axis_step(span_us);
        let mut since_us = 0;
        while since_us <= span_us {
            let x = self.x(self.timeline.begin_us + since_us);
            draw!(
                self,
                "<path class=\"grid\" d=\"M{x:.1} {top:.1}V{:.1}\" stroke-width=\"0.5\"/><text class=\"dim small\" \
                 x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                self.y + 4.0,
                self.y + 16.0,
                time(since_us)
            );
            since_us += step_us;
        }
        self.y += 18.0;
    }
}

/// At most [`COLUMNS`] steps, each the highest of those it stands for; the last value of each column follows it.
fn highest_per_column(steps: &[Step], begin_us: u64, span_us: u64) -> Vec<Step> {
    if steps.len() <= COLUMNS {
        return steps.to_vec();
    }
    let column_of = |step: &Step| (step.at_us - begin_us) as u128 * COLUMNS as u128 / u128::from(span_us);
    let mut kept: Vec<Step> = Vec::new();
    for column in steps.chunk_by(|a, b| column_of(a) == column_of(b)) {
        let highest = column.iter().map(|step| step.value).max().unwrap_or(0);
        let last = column[column.len() - 1];
        kept.push(Step { at_us: column[0].at_us, value: highest });
        if last.value != highest {
            kept.push(last);
        }
    }
    kept
}

/// A round number of microseconds that divides the span into some ten parts.
fn axis_step(span_us: u64) -> u64 {
    const SECOND: u64 = 1_000_000;
    let rounds = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        1000,
        2000,
        5000,
        10_000,
        20_000,
        50_000,
        100_000,
        200_000,
        500_000,
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
        600 * SECOND,
        1800 * SECOND,
        3600 * SECOND,
        7200 * SECOND,
        21_600 * SECOND,
        86_400 * SECOND,
    ];
    rounds.into_iter().find(|step| span_us / step <= 14).unwrap_or(span_us / 10)
}

/// As people say it: the two largest units that matter.
fn time(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    match seconds {
        0 if micros < 1000 => format!("{micros} µs"),
        0 => format!("{} ms", micros / 1000),
        1..=59 => format!("{}.{} s", seconds, micros / 100_000 % 10),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn bytes(value: u64) -> String {
    format!("{:.1} GiB", value as f64 / f64::from(1 << 30))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::small_log;
    use super::*;

    #[test]
    fn the_picture_is_well_formed_and_says_what_is_what() {
        let svg = Timeline::new(&small_log()).to_svg();
        for word in
            ["sim-0  card", "lane 1", "sum_b_g2", "partitions waiting", "VRAM", "prefers-color-scheme:dark"]
        {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.contains("job 0002 partition 0: its proof does not verify"));
        // Every element that is opened is closed.
        for element in ["svg", "title", "text", "style"] {
            let count = |what: String| svg.matches(&what).count();
            assert_eq!(
                count(format!("<{element}>")) + count(format!("<{element} ")),
                count(format!("</{element}>"))
            );
        }
        assert_eq!(svg.matches("<script").count(), 0);
    }

    #[test]
    fn a_long_curve_keeps_its_peaks() {
        let steps: Vec<Step> =
            (0..100_000).map(|at_us| Step { at_us, value: u64::from(at_us == 77_777) * 9 }).collect();
        let kept = highest_per_column(&steps, 0, 100_000);
        assert!(kept.len() <= 2 * COLUMNS && kept.iter().any(|step| step.value == 9), "{}", kept.len());
    }

    #[test]
    fn axes_have_a_handful_of_round_marks() {
        for span_us in [1, 7, 950, 123_456, 60_000_000, 86_400_000_000, 3_600_000_000_000] {
            assert!((1..=15).contains(&(span_us / axis_step(span_us) + 1)), "{span_us}");
        }
        assert_eq!([time(5), time(61_000_000), time(7_260_000_000)], ["5 µs", "1 min 01 s", "2 h 01 min"]);
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
