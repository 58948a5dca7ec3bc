//! Prometheus' text format, version 0.0.4: families with help and type, samples with labels.

use std::fmt::{Display, Write};

use super::history::Histogram;

/// What kind of figure a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyType {
    Counter,
    Gauge,
    Histogram,
}

/// One metric: its name, what kind of figure it is, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: FamilyType,
    pub help: &'static str,
}

pub const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FamilyType::Counter, help }
}

pub const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FamilyType::Gauge, help }
}

pub const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FamilyType::Histogram, help }
}

/// Names with their values, in their order.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// A document that is being written. Each family is written whole, once, and left out if it has no samples.
#[derive(Debug, Default)]
pub struct Text {
    out: String,
}

impl Text {
    pub fn family(&mut self, family: Family, samples: impl FnOnce(&mut Samples<'_>)) {
        let begun = self.out.len();
        let kind = match family.kind {
            FamilyType::Counter => "counter",
            FamilyType::Gauge => "gauge",
            FamilyType::Histogram => "histogram",
        };
        let Family { name, help, .. } = family;
        push(&mut self.out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        let head = self.out.len();
        samples(&mut Samples { out: &mut self.out, family });
        if self.out.len() == head {
            self.out.truncate(begun);
        }
    }

    pub fn finish(self) -> String {
        self.out
    }
}

/// The samples of one family.
pub struct Samples<'a> {
    out: &'a mut String,
    family: Family,
}

impl Samples<'_> {
    pub fn put(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    pub fn flag(&mut self, labels: Labels<'_>, value: bool) {
        self.put(labels, u8::from(value));
    }

    /// Nothing if there is no value.
    pub fn put_some(&mut self, labels: Labels<'_>, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(labels, value);
        }
    }

    pub fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        for (end, count) in histogram.cumulative() {
            let end = if end.is_infinite() { "+Inf".to_owned() } else { end.to_string() };
            self.line("_bucket", labels, Some(("le", &end)), count);
        }
        self.line("_sum", labels, None, histogram.sum());
        self.line("_count", labels, None, histogram.count());
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, last: Option<(&str, &str)>, value: impl Display) {
        push(self.out, format_args!("{}{suffix}", self.family.name));
        let mut before = '{';
        for (name, value) in labels.iter().copied().chain(last) {
            push(self.out, format_args!("{before}{name}=\""));
            escape(self.out, value);
            self.out.push('"');
            before = ',';
        }
        if before == ',' {
            self.out.push('}');
        }
        push(self.out, format_args!(" {value}\n"));
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes everything");
}

fn escape(out: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_its_head_and_its_samples() {
        let mut text = Text::default();
        text.family(gauge("cuzk_a", "What it is."), |samples| {
            samples.put(&[], 1.5);
            samples.flag(&[("device", "a\\b\"c\nd"), ("state", "")], true);
            samples.put_some(&[], None::<u64>);
        });
        text.family(counter("cuzk_b_total", "Not there."), |_| {});
        text.family(histogram("cuzk_c_seconds", "Times."), |samples| {
            samples.histogram(&[("kind", "x")], &Histogram::of(&[0.5], &[1, 2], 3.25));
        });
        let expected = "# HELP cuzk_a What it is.\n# TYPE cuzk_a gauge\ncuzk_a 1.5\n\
            cuzk_a{device=\"a\\\\b\\\"c\\nd\",state=\"\"} 1\n\
            # HELP cuzk_c_seconds Times.\n# TYPE cuzk_c_seconds histogram\n\
            cuzk_c_seconds_bucket{kind=\"x\",le=\"0.5\"} 1\ncuzk_c_seconds_bucket{kind=\"x\",le=\"+Inf\"} 3\n\
            cuzk_c_seconds_sum{kind=\"x\"} 3.25\ncuzk_c_seconds_count{kind=\"x\"} 3\n";
        assert_eq!(text.finish(), expected);
    }
}
