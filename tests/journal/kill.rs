//! A process with twenty real jobs is killed at random instants and started again.
//!
//! The process is this test program itself, started with [`DIR_VARIABLE`] set and told to run `child_process` alone.
//! Proofs have random blinding values: two that are equal are one, so a job that is proved again is found out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuzk::circuits::SrsSource;
use cuzk::engine::{DeviceSpec, Engine, EngineConfig};
use cuzk::groth16::generate::generate_params;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::{R1csShape, VerifyingKey};
use cuzk::ids::CircuitId;
use cuzk::journal::{Contents, JournalConfig, Medium, Store, StoredEnd};
use rand::Rng;

use crate::common::seeds;
use crate::encoded::{encoded, holds_for, SquaresDecoder};
use crate::model::KEEP_ALL;
use crate::squares::Squares;

/// Set for the process that is killed: the folder of its journal and key.
const DIR_VARIABLE: &str = "CUZK_KILL_DIR";
/// How many kills; the hundred take some minutes on two cores.
const KILLS_VARIABLE: &str = "CUZK_KILLS";
const KILLS: usize = 10;

const NUM_JOBS: u64 = 20;
/// Of the circuit: a proof takes some tens of milliseconds.
const NUM_SQUARINGS: usize = 2_000;
/// Before what the process says.
const PREFIX: &str = "killed process: ";

fn say(what: &str) {
    println!("{PREFIX}{what}");
}

fn x_of(job: u64) -> u64 {
    2 + job
}

/// What is killed: it submits all jobs, and says which are acknowledged and what their proofs are.
#[test]
fn child_process() {
    let Some(dir) = std::env::var_os(DIR_VARIABLE).map(PathBuf::from) else { return };
    let decoder = SquaresDecoder {
        circuit: CircuitId::new("squares-2000"),
        num_squarings: NUM_SQUARINGS,
        srs: SrsSource::File(key_files(&dir).0.into()),
    };
    let engine = Engine::start(EngineConfig {
        devices: vec![DeviceSpec::Cpu { threads: 0, lanes: 2 }],
        synthesis_threads: 2,
        journal: Some(JournalConfig::file(dir.join("journal"))),
        decoders: vec![Arc::new(decoder)],
        shape_cache_dir: Some(dir.join("shapes")),
        verdict_dir: Some(dir.join("verdicts")),
        ..EngineConfig::default()
    });
    let engine = engine.unwrap();
    let submit = |job: u64| {
        let handle = engine.submit_blocking(encoded(&format!("job-{job}"), &[x_of(job)])).unwrap();
        assert!(handle.is_durable());
        say(&format!("acknowledged {job}"));
        (job, handle)
    };
    let jobs: Vec<_> = (0..NUM_JOBS).map(submit).collect();
    std::thread::scope(|scope| {
        for (job, handle) in &jobs {
            scope.spawn(move || {
                let outcome = handle.wait_blocking().unwrap();
                say(&format!("proved {job} {}", hex::encode(&outcome.proof)));
            });
        }
    });
    let status = engine.wait_status_blocking(|status| status.jobs.is_empty()).unwrap();
    say(&format!("dispatched {}", status.totals.dispatched));
    engine.shutdown_blocking(Duration::from_secs(60));
    say("ended");
}

fn key_files(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("squares.params"), dir.join("squares.vk"))
}

/// What a process said until its end.
#[derive(Debug, Default)]
struct Run {
    acknowledged: BTreeSet<u64>,
    proofs: BTreeMap<u64, Vec<u8>>,
    dispatched: Option<u64>,
    has_ended: bool,
    elapsed: Duration,
}

impl Run {
    fn take(&mut self, line: &str) {
        // The test harness writes to the same line.
        let Some((_, said)) = line.split_once(PREFIX) else { return };
        let words: Vec<&str> = said.split(' ').collect();
        match words[..] {
            ["acknowledged", job] => {
                self.acknowledged.insert(job.parse().unwrap());
            }
            ["proved", job, proof] => {
                // Cut off by the kill: then it was not said.
                let Ok(proof) = hex::decode(proof) else { return };
                if proof.len() == 192 {
                    self.proofs.insert(job.parse().unwrap(), proof);
                }
            }
            ["dispatched", count] => self.dispatched = count.parse().ok(),
            ["ended"] => self.has_ended = true,
            _ => {}
        }
    }
}

/// Starts the process, and kills it after so long, unless it has ended.
fn run(dir: &Path, kill_after: Option<Duration>) -> Run {
    let begun = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_process", "--nocapture", "--test-threads=1"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in stdout.split(b'\n').map_while(Result::ok) {
            send.send(String::from_utf8_lossy(&line).into_owned()).unwrap();
        }
    });
    let mut run = Run::default();
    let until = kill_after.map(|after| begun + after);
    let mut is_killed = false;
    loop {
        let left = match until.filter(|_| !is_killed) {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => Duration::from_secs(120),
        };
        match lines.recv_timeout(left) {
            Ok(line) => run.take(&line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                assert!(!is_killed && until.is_some(), "the process hangs: {run:?}");
                // SIGKILL. What it had written to the pipe is still read.
                child.kill().unwrap();
                is_killed = true;
            }
        }
    }
    reader.join().unwrap();
    let status = child.wait().unwrap();
    assert!(is_killed || (status.success() && run.has_ended), "{status}: {run:?}");
    run.elapsed = begun.elapsed();
    run
}

/// The journal as a kill left it, without touching it.
fn contents(dir: &Path) -> Contents {
    let (journal, copy) = (dir.join("journal"), dir.join("journal-copy"));
    if !journal.exists() {
        return Contents::default();
    }
    std::fs::copy(journal, &copy).unwrap();
    Store::open(Medium::File(copy), KEEP_ALL).unwrap().1
}

fn number(request_id: &str) -> u64 {
    request_id.strip_prefix("job-").unwrap().parse().unwrap()
}

/// What the test knows of the jobs of one journal.
struct Ledger<'a> {
    vk: &'a VerifyingKey,
    acknowledged: BTreeSet<u64>,
    /// Stored results.
    proofs: BTreeMap<u64, Vec<u8>>,
}

impl Ledger<'_> {
    /// After a run: nothing that was acknowledged is lost, nothing that was stored has changed.
    fn check(&mut self, run: &Run, dir: &Path) {
        self.acknowledged.extend(&run.acknowledged);
        let contents = contents(dir);
        let mut kept: BTreeSet<u64> = contents.jobs.iter().map(|record| number(&record.request_id)).collect();
        for result in &contents.results {
            let job = number(&result.job.request_id);
            kept.insert(job);
            let StoredEnd::Proved(stored) = &result.end else { panic!("job {job}: {:?}", result.end) };
            assert!(holds_for(self.vk, &stored.proof, x_of(job), NUM_SQUARINGS), "job {job}");
            let known = self.proofs.entry(job).or_insert_with(|| stored.proof.clone());
            assert_eq!(*known, stored.proof, "job {job} was proved again");
        }
        let lost: Vec<_> = self.acknowledged.difference(&kept).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        for (job, proof) in &run.proofs {
            assert_eq!(
                self.proofs.get(job),
                Some(proof),
                "job {job} was answered before its result was stored"
            );
        }
    }
}

#[test]
fn b49_kill_at_random_instants_loses_no_job_and_proves_none_twice() {
    let num_kills = match std::env::var(KILLS_VARIABLE) {
        Ok(text) => text.parse().expect("CUZK_KILLS is a number"),
        Err(_) => KILLS,
    };
    let mut rng = seeds::rng();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    let (params, vk) = key_files(dir);
    let shape = R1csShape::record(Squares::blank(NUM_SQUARINGS)).unwrap();
    generate_params(&shape, &mut seeds::rng_of(7), &params, &vk, &|_, _| {}).unwrap();
    let vk = read_vk(&vk).unwrap();

    // The first one checks the key and records the circuit, for all that follow.
    run(dir, None);
    std::fs::remove_file(dir.join("journal")).unwrap();
    let whole = run(dir, None);
    assert_eq!((whole.proofs.len() as u64, whole.dispatched), (NUM_JOBS, Some(NUM_JOBS)));
    println!("without a kill: {:?}", whole.elapsed);
    let (mut kills, mut rounds, mut kills_before_ack) = (0, 0, 0);
    while kills < num_kills {
        std::fs::remove_file(dir.join("journal")).unwrap();
        rounds += 1;
        let mut ledger = Ledger { vk: &vk, acknowledged: BTreeSet::new(), proofs: BTreeMap::new() };
        while kills < num_kills && (ledger.proofs.len() as u64) < NUM_JOBS {
            let kill_after = whole.elapsed.mul_f64(rng.gen_range(0.0..0.8));
            let killed = run(dir, Some(kill_after));
            ledger.check(&killed, dir);
            kills += usize::from(!killed.has_ended);
            kills_before_ack += usize::from(ledger.acknowledged.is_empty());
        }
        let stored = ledger.proofs.len() as u64;
        let last = run(dir, None);
        ledger.check(&last, dir);
        assert_eq!(last.proofs.len() as u64, NUM_JOBS, "every job ends with a proof");
        assert_eq!(last.dispatched, Some(NUM_JOBS - stored), "what was stored needs no device");
        println!("round {rounds}: {kills} kills so far, {stored} of {NUM_JOBS} stored at the last");
    }
    println!("{kills} kills in {rounds} rounds, {kills_before_ack} of them before anything was acknowledged");
}
