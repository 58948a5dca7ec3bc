//! `cuzk top`: a daemon's devices, queue and jobs, live on a terminal.
//!
//! ```text
//! source.rs: a thread that asks the daemon ──channel──> state.rs: what is shown ──> draw.rs
//!                                          keys ──────────┘
//! ```
//! The terminal is put back as it was however this ends: by a key, a signal, an error or a panic.

mod draw;
mod source;
mod state;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use cuzk::config::Config;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::source::Source;
use self::state::{State, Typing};
use super::status::seconds;
use super::DaemonOptions;
use crate::failure::Failure;
use crate::interrupt::interrupted;

/// Watch devices, queue and jobs live; q quits, ? explains the keys
#[derive(Args)]
pub struct TopArgs {
    #[command(flatten)]
    daemon: DaemonOptions,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

/// How long a key or a signal may wait to be seen.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(args: &TopArgs, config: &Config) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage("standard output is no terminal: `cuzk status --watch` prints instead"));
    }
    let endpoint = args.daemon.endpoint(config).map_err(Failure::usage)?;
    let signal = listen_to_signals()?;
    let state = State::new(args.daemon.address(config));
    let source = Source::start(endpoint, args.interval)?;
    let terminal = Terminal::take_over()?;
    watch(terminal, state, &source, &signal)
}

/// The last signal's number, once one came.
fn listen_to_signals() -> Result<Arc<AtomicI32>, Failure> {
    let refused =
        |error: std::io::Error| Failure::proving("signals", format!("cannot listen to signals: {error}"));
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(refused)?;
    let last = Arc::new(AtomicI32::new(0));
    let seen = Arc::clone(&last);
    let wait = move || {
        for signal in signals.forever() {
            seen.store(signal, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(refused)?;
    Ok(last)
}

/// The terminal in raw mode on its other screen. Its panic hook is the library's, which restores before it prints.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn take_over() -> Result<Self, Failure> {
        ratatui::try_init().map(Self).map_err(|error| unusable(&error))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn unusable(error: &std::io::Error) -> Failure {
    Failure::proving("terminal", format!("terminal: {error}"))
}

fn watch(
    mut terminal: Terminal,
    mut state: State,
    source: &Source,
    signal: &AtomicI32,
) -> Result<(), Failure> {
    loop {
        for update in source.updates.try_iter() {
            state.take(update, Instant::now());
        }
        terminal.0.draw(|frame| draw::draw(frame, &state)).map_err(|error| unusable(&error))?;
        if event::poll(EVENT_INTERVAL).map_err(|error| unusable(&error))? {
            match event::read().map_err(|error| unusable(&error))? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if is_end(&key, &state) {
                        return Ok(());
                    }
                    press(&key, &mut state);
                }
                // A resize is seen by the next drawing.
                _ => {}
            }
        }
        match signal.load(Ordering::Relaxed) {
            0 => {}
            signal => return Err(interrupted(signal)),
        }
    }
}

fn is_end(key: &KeyEvent, state: &State) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let is_typed = state.typing == Typing::Filter;
    is_ctrl_c || (key.code == KeyCode::Char('q') && !is_typed)
}

fn press(key: &KeyEvent, state: &mut State) {
    if state.typing == Typing::Filter {
        match key.code {
            KeyCode::Enter => state.typing = Typing::Nothing,
            KeyCode::Esc => {
                state.filter.clear();
                state.typing = Typing::Nothing;
            }
            KeyCode::Backspace => {
                state.filter.pop();
            }
            KeyCode::Char(c) => state.filter.push(c),
            _ => {}
        }
        return;
    }
    match key.code {
        KeyCode::Char('?' | 'h') => state.help = !state.help,
        KeyCode::Esc if state.help => state.help = false,
        KeyCode::Esc => state.filter.clear(),
        KeyCode::Char('s') => state.sort = state.sort.next(),
        KeyCode::Char('r') => state.reverse = !state.reverse,
        KeyCode::Char('p' | ' ') => state.paused = !state.paused,
        KeyCode::Char('/' | 'f') => state.typing = Typing::Filter,
        KeyCode::Down | KeyCode::Char('j') => state.scroll = state.scroll.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => state.scroll = state.scroll.saturating_sub(1),
        KeyCode::PageDown => state.scroll = state.scroll.saturating_add(10),
        KeyCode::PageUp => state.scroll = state.scroll.saturating_sub(10),
        KeyCode::Home | KeyCode::Char('g') => state.scroll = 0,
        _ => {}
    }
}
