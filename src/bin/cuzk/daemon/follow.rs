//! Waiting for jobs of a daemon, several at once, with their progress shown.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use cuzk_wire::client::Client;
use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::{AwaitProofRequest, AwaitProofResponse, JobStatus, ListJobsRequest};
use tokio::sync::{oneshot, watch};
use tonic::{Code, Status};

use super::refused;
use crate::failure::{Failure, EXIT_INPUT, EXIT_PROVING};
use crate::interrupt::{interrupted, Interrupts};
use crate::progress::BoardLine;
use crate::ui;

/// How often the daemon is asked how far its jobs are.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A daemon that is being restarted has this long to come back; its journal has the job.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// The daemon's unfinished jobs by id, asked for again and again while somebody looks.
pub struct Poll {
    jobs: watch::Receiver<BTreeMap<String, JobStatus>>,
    task: tokio::task::JoinHandle<()>,
}

impl Poll {
    pub fn start(mut client: Client) -> Self {
        let (send, jobs) = watch::channel(BTreeMap::new());
        let task = tokio::spawn(async move {
            loop {
                // What cannot be had is not shown; the waiting itself says what is wrong.
                if let Ok(listed) = client.list_jobs(ListJobsRequest {}).await {
                    let by_id = |job: JobStatus| (job.job_id.clone(), job);
                    send.send_replace(listed.into_inner().jobs.into_iter().map(by_id).collect());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        Self { jobs, task }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for the end of a job; a daemon that goes away meanwhile may come back. `limit`: of the waiting alone.
pub async fn wait(
    client: &mut Client,
    job_id: &str,
    limit: Option<Duration>,
    poll: &Poll,
    line: &BoardLine,
) -> Result<AwaitProofResponse, Failure> {
    let shown = show(poll.jobs.clone(), job_id, line);
    let ended = end(client, job_id, limit, line);
    tokio::select! {
        response = ended => response.map_err(|status| refused(&format!("job {job_id}"), &status)),
        () = shown => unreachable!("it is shown until the job ends"),
    }
}

async fn end(
    client: &mut Client,
    job_id: &str,
    limit: Option<Duration>,
    line: &BoardLine,
) -> Result<AwaitProofResponse, Status> {
    let begun = Instant::now();
    let mut gone_since: Option<Instant> = None;
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()).max(Duration::from_millis(1)));
        let timeout_ms = left.map_or(0, |left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1));
        let asked = Instant::now();
        match client.await_proof(AwaitProofRequest { job_id: job_id.to_owned(), timeout_ms }).await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) if is_away(&status) => {
                // A call that stood for long means that the daemon was there until now.
                let since = match gone_since {
                    Some(since) if asked.elapsed() < POLL_INTERVAL => since,
                    _ => Instant::now(),
                };
                gone_since = Some(since);
                if since.elapsed() > RETURN_LIMIT {
                    return Err(status);
                }
                line.detail("the daemon went away; waiting for it to come back");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(status) => return Err(status),
        }
    }
}

/// The connection broke, or nobody listens: not an answer of the daemon's.
fn is_away(status: &Status) -> bool {
    use std::error::Error;
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
        && status.source().is_some()
}

/// Shows how far the job is, for ever.
async fn show(mut jobs: watch::Receiver<BTreeMap<String, JobStatus>>, job_id: &str, line: &BoardLine) {
    let mut last = String::new();
    loop {
        let text = jobs.borrow_and_update().get(job_id).map(progress).unwrap_or_default();
        if !text.is_empty() && text != last {
            line.step(&text);
            last = text;
        }
        if jobs.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn progress(job: &JobStatus) -> String {
    if job.state == "queued" {
        return format!("{}, queued", job.circuit_id);
    }
    let on = if job.devices.is_empty() { String::new() } else { format!(" on {}", job.devices.join(", ")) };
    format!(
        "{}: {} of {} proved, {} running{on}",
        job.circuit_id,
        job.partitions_done,
        ui::count(u64::from(job.partitions), "partition"),
        job.partitions_running
    )
}

/// The proof, or why there is none.
pub fn outcome(response: AwaitProofResponse) -> Result<AwaitProofResponse, Failure> {
    let at = format!("job {}", response.job_id);
    let failure = |code, class: &'static str, what: &str| {
        let message = match response.error_message.as_str() {
            "" => format!("{at}: {what}"),
            message => message.to_owned(),
        };
        Err(Failure { code, class, message, at: at.clone() })
    };
    match response.status() {
        End::Completed => Ok(response),
        End::Failed => {
            let class = ["caller", "retry", "device-lost", "cancelled"]
                .into_iter()
                .find(|class| *class == response.error_class)
                .unwrap_or("bug");
            let code = if class == "caller" { EXIT_INPUT } else { EXIT_PROVING };
            failure(code, class, "failed")
        }
        End::Cancelled => failure(EXIT_PROVING, "cancelled", "was cancelled"),
        End::Timeout => failure(EXIT_PROVING, "retry", "has not ended in time; it goes on"),
        End::Unknown => failure(EXIT_PROVING, "bug", "has an end that this program does not know"),
    }
}

/// Runs `work` until a signal comes. What the daemon was given goes on there.
pub async fn unless_interrupted<T>(
    interrupts: Interrupts,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let (send, signal) = oneshot::channel();
    let wait = move || {
        if let Ok(signal) = interrupts.arrived.recv() {
            // Nobody waits for it once the work is done.
            let _ = send.send(signal);
        }
    };
    std::thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(wait)
        .map_err(|error| Failure::proving("threads", format!("the system refuses a thread: {error}")))?;
    tokio::select! {
        done = work => done,
        Ok(signal) = signal => {
            let mut failure = interrupted(signal);
            failure.message = "interrupted: jobs that the daemon has go on (`cuzk jobs` lists them, \
                               `cuzk await JOB` waits, `cuzk cancel JOB` ends them)"
                .to_owned();
            Err(failure)
        }
    }
}
