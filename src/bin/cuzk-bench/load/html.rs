//! A report as one page: figures, and plots drawn as SVG. It asks for nothing from elsewhere.

use std::fmt::Write;

use super::report::Report;
use crate::percentiles::Percentiles;

/// Of the plots' inside, and what lies around it.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 34.0;
/// Bars of the throughput.
const BUCKETS: usize = 60;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--paper:#fff;--faint:#d5dae1;--soft:#667}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#14181f;--faint:#333b47;--soft:#9aa4b2}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid var(--faint);text-align:right}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}\
svg text{fill:var(--soft);font:12px system-ui,sans-serif}.axis{stroke:var(--faint)}.bad{color:#c33}";

/// Told apart by most who do not see all colours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

pub fn page(report: &Report) -> String {
    let title = format!("cuzk-bench {} on {}", report.command, report.target);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{0}</title><style>{STYLE}</style></head><body><h1>{0}</h1>",
        escape(&title)
    );
    let _ = write!(
        page,
        "<p>{} jobs in {:.1} s on {} cores: <b>{:.2} jobs a minute</b>, {:.2} partitions a minute. \
         {} completed, {} failed; {} proofs hold.</p>",
        report.jobs,
        report.wall_ms / 1000.0,
        report.cores,
        report.jobs_per_minute,
        report.partitions_per_minute,
        report.completed,
        report.failed,
        report.verified
    );
    page += &failures(report);
    page += &format!("<h2>Latency as callers saw it</h2>{}", latency_plot(report));
    page += &latencies(report);
    page += &format!("<h2>Jobs that ended, over time</h2>{}", throughput_plot(report));
    page += &format!("<h2>Partitions by device</h2>{}", device_plot(report));
    page + "</body></html>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn failures(report: &Report) -> String {
    let one = |(class, failure): (&String, &super::report::FailureReport)| {
        format!("<li class=\"bad\">{} × {}: {}</li>", failure.count, escape(class), escape(&failure.example))
    };
    let items: String = report.failures.iter().map(one).collect();
    if items.is_empty() {
        items
    } else {
        format!("<ul>{items}</ul>")
    }
}

fn latencies(report: &Report) -> String {
    let mut rows = String::new();
    for (kind, of) in &report.kinds {
        let parts: [(&str, &Percentiles); 5] = [
            ("total", &of.total_ms),
            ("queue", &of.queue_ms),
            ("circuit load", &of.circuit_load_ms),
            ("synthesis", &of.synthesis_ms),
            ("device", &of.device_ms),
        ];
        for (part, times) in parts {
            let _ = write!(
                rows,
                "<tr><td>{} {part}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td></tr>",
                escape(kind),
                times.mean,
                times.p50,
                times.p90,
                times.p99,
                times.max
            );
        }
    }
    format!("<table><tr><th>ms</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>max</th></tr>{rows}</table>")
}

/// An empty plot with its axes: `x` from 0 to the unit's `x_max`, `y` likewise.
fn frame(x_max: f64, x_unit: &str, y_max: f64, y_unit: &str, inside: &str) -> String {
    let (width, height) = (LEFT + WIDTH + 20.0, HEIGHT + BOTTOM + 10.0);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\">");
    for step in 0..=4 {
        let part = f64::from(step) / 4.0;
        let (x, y) = (LEFT + WIDTH * part, 10.0 + HEIGHT * (1.0 - part));
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{0}\" y1=\"{y}\" y2=\"{y}\"/>\
             <text x=\"{1}\" y=\"{2}\" text-anchor=\"end\">{3}</text>\
             <text x=\"{x}\" y=\"{4}\" text-anchor=\"middle\">{5}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0,
            label(y_max * part, y_unit),
            HEIGHT + 28.0,
            label(x_max * part, x_unit)
        );
    }
    svg + inside + "</svg>"
}

fn label(value: f64, unit: &str) -> String {
    let digits = if value == 0.0 || value >= 10.0 { 0 } else { 1 };
    format!("{value:.digits$} {unit}")
}

/// The part of jobs that took no longer, by kind.
fn latency_plot(report: &Report) -> String {
    let longest = report.samples.iter().map(|sample| sample.ended_ms - sample.begun_ms).fold(1.0, f64::max);
    let mut inside = String::new();
    for (index, kind) in report.kinds.keys().enumerate() {
        let of_kind = report.samples.iter().filter(|sample| sample.kind == *kind && sample.verified);
        let mut times: Vec<f64> = of_kind.map(|sample| sample.ended_ms - sample.begun_ms).collect();
        times.sort_by(f64::total_cmp);
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = format!("M{LEFT} {}", 10.0 + HEIGHT);
        for (number, time) in times.iter().enumerate() {
            let y = 10.0 + HEIGHT * (1.0 - (number + 1) as f64 / times.len() as f64);
            let _ = write!(path, "H{:.1}V{y:.1}", LEFT + WIDTH * time / longest);
        }
        let y = 24.0 + 16.0 * index as f64;
        let _ = write!(
            inside,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{0}\" y=\"{1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{2}\" y=\"{y}\">{3}</text>",
            LEFT + 10.0,
            y - 9.0,
            LEFT + 26.0,
            escape(kind)
        );
    }
    frame(longest / 1000.0, "s", 100.0, "%", &inside)
}

fn throughput_plot(report: &Report) -> String {
    let bucket_ms = (report.wall_ms / BUCKETS as f64).max(1e-3);
    let mut counts = [0usize; BUCKETS];
    for sample in report.samples.iter().filter(|sample| sample.verified) {
        counts[((sample.ended_ms / bucket_ms) as usize).min(BUCKETS - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let width = WIDTH / BUCKETS as f64;
    let bar = |(index, count): (usize, &usize)| {
        let height = HEIGHT * *count as f64 / most;
        format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\"/>",
            LEFT + width * index as f64,
            10.0 + HEIGHT - height,
            width - 1.0,
            COLOURS[0]
        )
    };
    let bars: String = counts.iter().enumerate().map(bar).collect();
    frame(report.wall_ms / 1000.0, "s", most * 60_000.0 / bucket_ms, "/min", &bars)
}

fn device_plot(report: &Report) -> String {
    let row = |(index, (device, of)): (usize, (&String, &super::report::DeviceReport))| {
        let y = 8.0 + 26.0 * index as f64;
        format!(
            "<text x=\"0\" y=\"{0}\">{1}</text><rect x=\"200\" y=\"{y}\" width=\"{2:.1}\" height=\"18\" fill=\"{3}\"/>\
             <text x=\"{4:.1}\" y=\"{0}\">{5} ({6:.1} %)</text>",
            y + 13.0,
            escape(device),
            400.0 * of.share,
            COLOURS[2],
            206.0 + 400.0 * of.share,
            of.partitions,
            of.share * 100.0
        )
    };
    let rows: String = report.devices.iter().enumerate().map(row).collect();
    let height = 26 * report.devices.len() + 16;
    format!("<svg viewBox=\"0 0 720 {height}\" role=\"img\">{rows}</svg>")
}
