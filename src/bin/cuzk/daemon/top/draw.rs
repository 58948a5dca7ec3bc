//! The screen of `cuzk top`. Everything fits 80×24; more room shows more jobs.

use std::time::Duration;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, LineGauge, Paragraph, Row, Sparkline, Table};
use ratatui::Frame;

use super::super::snapshot::{Device, Job, Snapshot};
use super::state::{busy_percent, State, Typing};
use crate::ui;

/// More devices than this leave no room for the jobs of a small screen.
const DEVICES_MAX: usize = 8;
/// Kinds of queue, and as many circuits beside them.
const QUEUE_ROWS: usize = 4;

pub fn draw(frame: &mut Frame, state: &State) {
    let num_devices =
        state.snapshot.as_ref().map_or(1, |snapshot| snapshot.devices.len().clamp(1, DEVICES_MAX));
    let [head, devices, middle, jobs, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(num_devices as u16 + 1),
        Constraint::Length(QUEUE_ROWS as u16 + 1),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, state);
    if let Some(snapshot) = &state.snapshot {
        draw_devices(frame, devices, state, snapshot);
        let [queue, circuits] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(middle);
        draw_queue(frame, queue, snapshot);
        draw_circuits(frame, circuits, snapshot);
        draw_jobs(frame, jobs, state);
    }
    draw_foot(frame, foot, state);
    if state.help {
        draw_help(frame);
    }
}

fn draw_head(frame: &mut Frame, area: Rect, state: &State) {
    let mut first = vec![Span::from("cuzk top ").bold(), Span::from(format!("{}  ", state.address))];
    if let Some(why) = &state.away {
        first.push(Span::from(why.clone()).red().bold());
    } else if let Some(snapshot) = &state.snapshot {
        let style = match snapshot.condition() {
            "ready" => Style::new().green(),
            "failed" => Style::new().red(),
            _ => Style::new().yellow(),
        };
        first.push(Span::styled(snapshot.condition(), style));
        first
            .push(Span::from(format!("  up {}", ui::duration(Duration::from_secs(snapshot.uptime_seconds)))));
        if let Some(reason) = snapshot.reasons.first() {
            first.push(Span::from(format!("  {reason}")).yellow());
        }
    } else {
        first.push(Span::from("connecting"));
    }
    if state.paused {
        first.push(Span::from("  paused").yellow());
    }
    let mut lines = vec![Line::from(first)];
    if let Some(snapshot) = &state.snapshot {
        lines.push(Line::from(rates(state, snapshot)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn rates(state: &State, snapshot: &Snapshot) -> String {
    let (completed, failed) = state.rates();
    let totals = &snapshot.totals;
    let host = snapshot.circuit_memory_bytes + snapshot.witness_memory_bytes;
    format!(
        "proofs {} ({completed:.1}/min)  failed {} ({failed:.1}/min)  retried {}  host {} of {}",
        totals.completed,
        totals.failed,
        totals.retried,
        ui::bytes(host),
        ui::bytes(snapshot.host_memory_budget_bytes)
    )
}

/// A block with a title and a line above only: borders all around would cost a third of a small screen.
fn section(title: impl Into<Line<'static>>) -> Block<'static> {
    Block::new().borders(Borders::TOP).border_style(Style::new().dark_gray()).title(title)
}

fn draw_devices(frame: &mut Frame, area: Rect, state: &State, snapshot: &Snapshot) {
    let hidden = snapshot.devices.len().saturating_sub(DEVICES_MAX);
    let title = match hidden {
        0 => "devices: lanes, memory, busy".to_owned(),
        hidden => format!("devices: lanes, memory, busy (and {hidden} more)"),
    };
    let block = section(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    for (device, row) in snapshot.devices.iter().take(DEVICES_MAX).zip(inner.rows()) {
        draw_device(frame, row, state, snapshot, device);
    }
}

fn draw_device(frame: &mut Frame, row: Rect, state: &State, snapshot: &Snapshot, device: &Device) {
    let [name, memory, busy, percent, does] = Layout::horizontal([
        Constraint::Length(18),
        Constraint::Length(18),
        Constraint::Length(12),
        Constraint::Length(6),
        Constraint::Min(10),
    ])
    .spacing(1)
    .areas(row);
    let style = match (device.state.as_str(), device.health.as_str()) {
        ("gone", _) | (_, "quarantined") => Style::new().red(),
        ("ready", "healthy") => Style::new(),
        _ => Style::new().yellow(),
    };
    let label = format!("{:<12.12} {}/{}", short(&device.id), device.lanes_busy, device.lanes);
    frame.render_widget(Line::styled(label, style), name);
    let part = |bytes: u64| bytes as f64 / device.memory_budget_bytes.max(1) as f64;
    let gauge = LineGauge::default()
        .ratio(part(device.memory_in_use_bytes).clamp(0.0, 1.0))
        .label(format!("{:>9}", ui::bytes(device.memory_in_use_bytes)))
        .filled_style(Style::new().fg(Color::Cyan))
        .unfilled_style(Style::new().fg(Color::DarkGray));
    frame.render_widget(gauge, memory);
    if let Some(history) = state.busy.get(&device.id) {
        let skipped = history.len().saturating_sub(usize::from(busy.width));
        let data: Vec<u64> = history.iter().skip(skipped).copied().collect();
        frame.render_widget(Sparkline::default().data(data).max(100).style(Style::new().green()), busy);
    }
    frame.render_widget(Line::from(format!("{:>3} %", busy_percent(device))), percent);
    frame.render_widget(Line::styled(doing(snapshot, device), style), does);
}

/// What a device does, or why it does nothing.
fn doing(snapshot: &Snapshot, device: &Device) -> String {
    let running = snapshot.doing(device);
    let mut text = if device.state != "ready" || device.health != "healthy" {
        format!("{} {}", device.state, device.health)
    } else if running.is_empty() {
        "idle".to_owned()
    } else {
        running
    };
    if let Some(celsius) = device.temperature_celsius {
        text += &format!(" {celsius}°C");
    }
    if let Some(watts) = device.power_watts {
        text += &format!(" {watts}W");
    }
    text
}

/// The part of a UUID that tells devices apart.
fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

fn draw_queue(frame: &mut Frame, area: Rect, snapshot: &Snapshot) {
    let most =
        snapshot.queues.iter().map(|queue| queue.pending + queue.in_progress).max().unwrap_or(0).max(1);
    let rows = snapshot.queues.iter().take(QUEUE_ROWS).map(|queue| {
        let bar = |count: u32| "█".repeat((count * 12).div_ceil(most) as usize);
        Row::new([
            Cell::from(queue.proof_kind.clone()),
            Cell::from(format!("{:>4}", queue.pending)),
            Cell::from(format!("{:>4}", queue.in_progress)),
            Cell::from(Line::from(vec![
                Span::styled(bar(queue.in_progress), Style::new().green()),
                Span::styled(bar(queue.pending), Style::new().yellow()),
            ])),
        ])
    });
    let widths = [Constraint::Length(12), Constraint::Length(4), Constraint::Length(4), Constraint::Min(5)];
    let table = Table::new(rows, widths).block(section("queue: pending, running"));
    frame.render_widget(table, area);
}

fn draw_circuits(frame: &mut Frame, area: Rect, snapshot: &Snapshot) {
    let hidden = snapshot.circuits.len().saturating_sub(QUEUE_ROWS);
    let title = if hidden == 0 { "circuits".to_owned() } else { format!("circuits (and {hidden} more)") };
    let rows = snapshot.circuits.iter().take(QUEUE_ROWS).map(|circuit| {
        let state = if circuit.state == "loading" { "loading" } else { circuit.tier };
        let pinned = if circuit.pinned { "pinned" } else { "" };
        Row::new([
            circuit.circuit_id.clone(),
            state.to_owned(),
            format!("{:>9}", ui::bytes(circuit.size_bytes)),
            pinned.to_owned(),
        ])
    });
    let widths = [Constraint::Length(12), Constraint::Length(7), Constraint::Length(9), Constraint::Min(6)];
    frame.render_widget(Table::new(rows, widths).block(section(title)), area);
}

fn draw_jobs(frame: &mut Frame, area: Rect, state: &State) {
    let jobs = state.jobs();
    // The last page stays full.
    let page = usize::from(area.height.saturating_sub(2));
    let scroll = state.scroll.min(jobs.len().saturating_sub(page));
    let mut title = format!("jobs: {}", jobs.len());
    if !state.filter.is_empty() {
        title += &format!(" with `{}`", state.filter);
    }
    title += &format!(", by {}", state.sort.as_str());
    if state.reverse {
        title += " reversed";
    }
    let header = Row::new(["job", "kind", "circuit", "prio", "done", "", "age", "on"]).bold();
    let rows = jobs.iter().skip(scroll).take(page).map(|job| job_row(job));
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(12),
        Constraint::Length(11),
        Constraint::Length(4),
        Constraint::Length(5),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Fill(1),
    ];
    frame.render_widget(Table::new(rows, widths).header(header).block(section(title)), area);
}

fn job_row(job: &Job) -> Row<'static> {
    let (done, running) = (job.partitions_done, job.partitions_running);
    let marks = |count: u32| (count * 8).div_ceil(job.partitions.max(1)) as usize;
    let (full, begun) = (marks(done).min(8), marks(done + running).min(8));
    let bar = format!("{}{}", "█".repeat(full), "▒".repeat(begun - full));
    let style = if job.state == "queued" { Style::new().dark_gray() } else { Style::new() };
    let priority: String = job.priority.chars().take(4).collect();
    Row::new([
        job.job_id.clone(),
        job.proof_kind.clone(),
        job.circuit_id.clone(),
        priority,
        format!("{done}/{}", job.partitions),
        format!("{bar:·<8}"),
        ui::duration(Duration::from_millis(job.age_ms)).replace(" min ", "m").replace(' ', ""),
        job.devices.join(" "),
    ])
    .style(style)
}

fn draw_foot(frame: &mut Frame, area: Rect, state: &State) {
    let line = match state.typing {
        Typing::Filter => Line::from(format!("filter: {}_  (Enter keeps, Esc clears)", state.filter)),
        Typing::Nothing => {
            Line::from("q quit  s sort  r reverse  / filter  p pause  ↑↓ scroll  ? help").dark_gray()
        }
    };
    frame.render_widget(line, area);
}

const HELP: &str = "\
q, Ctrl-C   quit
s           sort jobs by age, priority, kind, done
r           reverse the order
/, f        filter jobs: id, kind, circuit, state, device
Esc         clear the filter
p, space    hold the screen
↑ ↓ k j     scroll jobs; PgUp PgDn, Home
?, h        this

█ proved  ▒ on a device  · to come
queue: green runs, yellow waits; counted in jobs
circuits: hot on a device, warm in host memory";

fn draw_help(frame: &mut Frame) {
    let area = frame.area();
    let (width, height) = (60.min(area.width), (HELP.lines().count() as u16 + 2).min(area.height));
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    let block = Block::bordered().title("keys").style(Style::new().add_modifier(Modifier::empty()));
    frame.render_widget(Paragraph::new(HELP).block(block), place);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    use super::super::super::snapshot::{Circuit, Queue};
    use super::*;
    use cuzk::messages::status::RunningPartition;

    fn busy_machine() -> Snapshot {
        let device = |index: usize| Device {
            id: format!("GPU-{index}fd2a1bc-0000"),
            state: "ready".to_owned(),
            health: "healthy".to_owned(),
            lanes: 2,
            lanes_busy: 1,
            memory_budget_bytes: 40 << 30,
            memory_in_use_bytes: 10 << 30,
            ..Device::default()
        };
        let job = |index: usize| Job {
            job_id: format!("porep-1000-{index}"),
            proof_kind: "porep-c2".to_owned(),
            circuit_id: "porep-32g".to_owned(),
            priority: "normal",
            partitions: 10,
            partitions_done: 3,
            partitions_running: 2,
            running: vec![RunningPartition {
                partition: 4,
                device: format!("GPU-{index}fd2a1bc-0000"),
                doing: "sum-h".to_owned(),
            }],
            age_ms: 1000 * index as u64,
            ..Job::default()
        };
        let kinds = ["porep-c2", "snap-update", "window-post", "winning-post"];
        Snapshot {
            ready: true,
            devices: (0..10).map(device).collect(),
            queues: kinds
                .map(|kind| Queue { proof_kind: kind.to_owned(), pending: 7, in_progress: 2 })
                .to_vec(),
            circuits: vec![Circuit { circuit_id: "porep-32g".to_owned(), tier: "hot", ..Circuit::default() }],
            jobs: (0..50).map(job).collect(),
            ..Snapshot::default()
        }
    }

    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
        terminal.draw(|frame| draw(frame, state)).expect("it is memory");
        terminal.backend().to_string()
    }

    #[test]
    fn a_busy_machine_fits_80_by_24_and_any_other_size_does_not_panic() {
        let mut state = State::new("unix:///run/curio/cuzk.sock".to_owned());
        assert!(screen(&state, 80, 24).contains("connecting"));
        state.take(Ok(Box::new(busy_machine())), Instant::now());
        let drawn = screen(&state, 80, 24);
        let wanted = [
            "ready",
            "GPU-0fd2a1bc 1/2",
            "10.0 GiB",
            " 50 %",
            "and 2 more",
            "sum-h porep-1000-0[4]",
            "winning-post",
            "porep-32g    hot",
        ];
        for word in wanted.iter().chain(&["porep-1000-49", "3/10", "███▒·", "q quit"]) {
            assert!(drawn.contains(word), "{word}: {drawn}");
        }
        for (width, height) in [(1, 1), (20, 5), (40, 12), (300, 100)] {
            screen(&state, width, height);
        }
        state.help = true;
        assert!(screen(&state, 80, 24).contains("hold the screen"));
        state.away = Some("the daemon went away".to_owned());
        state.scroll = 1000;
        let drawn = screen(&state, 80, 24);
        assert!(drawn.contains("the daemon went away"), "{drawn}");
    }
}
