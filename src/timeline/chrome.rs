//! A timeline as a trace of the Trace Event Format ("JSON Object Format"), which chrome://tracing and Perfetto open.

use std::io::{self, Write};

use serde_json::{json, Value};

use super::{Step, Timeline};

impl Timeline {
    /// Devices are processes, lanes their threads; jobs are asynchronous spans; memory and queue are counters.
    ///
    /// # Errors
    /// Of `out`.
    pub fn write_chrome_trace(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut trace = TraceWriter { out, is_first: true };
        trace.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        self.write_devices(&mut trace)?;
        self.write_jobs(&mut trace)?;
        trace.counter(0, "partitions waiting", &self.waiting, 1)?;
        trace.counter(0, "jobs", &self.open_jobs, 1)?;
        trace.counter(0, "witness memory, MiB", &self.witness_bytes, 1 << 20)?;
        trace.out.write_all(b"\n]}\n")
    }

    fn write_devices(&self, trace: &mut TraceWriter<'_>) -> io::Result<()> {
        trace.name("process_name", 0, 0, "engine")?;
        for (process, (id, device)) in (1u32..).zip(&self.devices) {
            trace.name("process_name", process, 0, &format!("{id} {}", device.name))?;
            for (lane, bars) in &device.lanes {
                trace.name("thread_name", process, *lane, &format!("lane {lane}"))?;
                for bar in bars {
                    trace.write(&json!({
                        "name": bar.stage.as_str(), "cat": "stage", "ph": "X", "pid": process, "tid": lane,
                        "ts": bar.begin_us, "dur": bar.end_us - bar.begin_us,
                        "args": {
                            "job": bar.at.job.to_string(), "partition": bar.at.partition.0,
                            "attempt": bar.at.attempt.0,
                        },
                    }))?;
                }
            }
            for mark in device.failures.iter().chain(&device.states) {
                trace.write(&json!({
                    "name": mark.what, "cat": "device", "ph": "i", "s": "p", "pid": process, "tid": 0,
                    "ts": mark.at_us,
                }))?;
            }
            trace.counter(process, "VRAM reserved, MiB", &device.reserved_bytes, 1 << 20)?;
            trace.counter(process, "VRAM in use, MiB", &device.in_use_bytes, 1 << 20)?;
        }
        Ok(())
    }

    fn write_jobs(&self, trace: &mut TraceWriter<'_>) -> io::Result<()> {
        for (id, job) in &self.jobs {
            let name = format!("job {id} {}", job.circuit);
            let (kind, id) = (job.kind.as_str(), id.0);
            let end_us = job.end_us.unwrap_or(self.end_us);
            for (phase, at_us) in [("b", job.begin_us), ("e", end_us)] {
                trace.write(&json!({
                    "name": name, "cat": kind, "ph": phase, "id": id, "pid": 0, "tid": 0, "ts": at_us,
                }))?;
            }
        }
        Ok(())
    }
}

struct TraceWriter<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl TraceWriter<'_> {
    fn write(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    fn name(&mut self, what: &str, process: u32, thread: u32, name: &str) -> io::Result<()> {
        self.write(
            &json!({ "name": what, "ph": "M", "pid": process, "tid": thread, "args": { "name": name } }),
        )
    }

    fn counter(&mut self, process: u32, name: &str, steps: &[Step], unit: u64) -> io::Result<()> {
        for step in steps {
            let value = step.value / unit;
            self.write(&json!({
                "name": name, "ph": "C", "pid": process, "ts": step.at_us, "args": { "value": value },
            }))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small_log;
    use super::*;

    #[test]
    fn every_event_has_what_the_format_demands() {
        let mut out = Vec::new();
        Timeline::new(&small_log()).write_chrome_trace(&mut out).unwrap();
        let trace: Value = serde_json::from_slice(&out).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!((of("X"), of("b"), of("e")), (2, 2, 2));
        for event in events {
            assert!(event["pid"].is_u64() && event["name"].is_string(), "{event}");
            assert!(event["ph"] == "M" || event["ts"].is_u64(), "{event}");
        }
        let stage = events.iter().find(|event| event["name"] == "sum_h").unwrap();
        assert_eq!((&stage["ts"], &stage["dur"]), (&json!(600), &json!(100)));
    }
}
