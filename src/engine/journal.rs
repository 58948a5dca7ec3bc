//! The engine's journal: opened at the start, asked for what it brought back.

use std::sync::Arc;

use tokio::sync::watch;

use super::system::StartedJournal;
use super::{internal, no_answer, Engine, JobHandle};
use crate::error::{EngineError, ScheduleError};
use crate::ids::JobId;
use crate::journal::{JobRecord, JournalConfig, JournalWriter, OpenJournal, Recovery, Store};
use crate::messages::job::FindJob;
use crate::messages::journal::{AttachJob, RecoveredJob};

/// Who writes.
pub(super) enum JournalWay {
    Thread,
    Inline,
}

/// What the handles know of the journal.
pub(super) struct JournalLinks {
    recovery: watch::Receiver<Recovery>,
    jobs: Arc<[RecoveredJob]>,
}

/// Opens the journal, if there is to be one.
pub(super) fn start(
    config: Option<&JournalConfig>,
    way: JournalWay,
) -> Result<(StartedJournal, Option<JournalLinks>), EngineError> {
    let Some(config) = config else { return Ok(((None, None), None)) };
    let time_of_start = config.time_of_start();
    let (store, contents) = Store::open(config.medium.clone(), config.retention)?;
    if !contents.jobs.is_empty() {
        tracing::info!(jobs = contents.jobs.len(), "the journal has jobs to go on with");
    }
    let jobs = contents.jobs.iter().map(|record| {
        let process_ends = contents.process_ends.get(&record.job).copied().unwrap_or_default();
        recovered_job(record, process_ends)
    });
    let jobs = jobs.collect();
    let (writer, thread) = match way {
        JournalWay::Inline => (JournalWriter::inline(store), None),
        JournalWay::Thread => {
            let (writer, thread) = JournalWriter::on_thread(store)
                .map_err(|error| internal(format!("no thread for the journal: {error}")))?;
            (writer, Some(thread))
        }
    };
    let (sender, recovery) = watch::channel(Recovery::default());
    let open = OpenJournal { writer, contents, time_of_start, recovery: sender };
    Ok(((Some(open), thread), Some(JournalLinks { recovery, jobs })))
}

fn recovered_job(record: &JobRecord, process_ends: u32) -> RecoveredJob {
    RecoveredJob {
        job: record.job,
        request_id: record.request_id.clone(),
        kind: record.kind,
        circuit: record.circuit.clone(),
        digest: record.digest,
        priority: record.priority,
        accepted_unix_ms: record.accepted_unix_ms,
        deadline_unix_ms: record.deadline_unix_ms,
        process_ends,
    }
}

impl Engine {
    /// The jobs that an earlier process had accepted and not ended, in that order. They are queued again by themselves,
    /// under the same numbers; [`Engine::attach`], or submitting the same request again, waits for one of them.
    pub fn recovered(&self) -> Arc<[RecoveredJob]> {
        self.inner.journal.as_ref().map_or_else(|| Arc::from([]), |journal| Arc::clone(&journal.jobs))
    }

    /// Waits until every job of the journal is queued again, or has ended, but for those that are held back
    /// ([`RecoveredJob::process_ends`]).
    ///
    /// # Errors
    /// [`EngineError::Schedule`] if the engine stops before, or its Synthesizer was given up, which decodes them;
    /// [`EngineError::NoAnswer`] if it takes longer than [`super::Deadlines::recovery`], as it does while requests cannot be
    /// read from the disk.
    pub async fn wait_recovered(&self) -> Result<(), EngineError> {
        self.wait_recovery(|recovery| recovery.is_done).await
    }

    async fn wait_recovery(&self, mut is_reached: impl FnMut(&Recovery) -> bool) -> Result<(), EngineError> {
        let Some(journal) = &self.inner.journal else { return Ok(()) };
        let mut recovery = journal.recovery.clone();
        let limit = self.inner.deadlines.recovery;
        let settled = recovery.wait_for(|recovery| is_reached(recovery) || recovery.hindered.is_some());
        let recovery = match self.inner.clock.within(limit, settled).await {
            Some(settled) => settled.map_err(|_| self.unreachable())?.clone(),
            None => return Err(no_answer("recover the jobs of a journal", limit)),
        };
        match recovery.hindered.clone() {
            Some(reason) if !is_reached(&recovery) => Err(ScheduleError::NoSynthesizer(reason).into()),
            _ => Ok(()),
        }
    }

    /// A handle to a job that is known by its number: one of an earlier process, or one that was detached. `None`: it
    /// is not known, or not any more. One that is held back is waited for.
    ///
    /// # Errors
    /// As [`Engine::wait_recovered`], while it may still come; [`EngineError::Schedule`] if the engine has stopped,
    /// [`EngineError::NoAnswer`] if it does not answer in time.
    pub async fn attach(&self, job: JobId) -> Result<Option<JobHandle>, EngineError> {
        self.wait_recovery(|recovery| recovery.is_done && !recovery.held_back.contains(&job)).await?;
        let links = &self.inner.links;
        let accepted = self.ask_scheduler("attach to a job", &links.attach, AttachJob { job }).await?;
        match accepted {
            Some(accepted) => self.acknowledge(accepted).await.map(Some),
            None => Ok(None),
        }
    }

    /// The job of this name ([`JobHandle::name`]), also one of an earlier process that is not queued again yet. `None`:
    /// there is none, or it is not known any more.
    ///
    /// # Errors
    /// [`EngineError::Schedule`] if the engine has stopped, [`EngineError::NoAnswer`] if it does not answer in time.
    pub async fn find(&self, name: &str) -> Result<Option<JobId>, EngineError> {
        let find = FindJob { name: name.to_owned() };
        self.ask_scheduler("find a job", &self.inner.links.find, find).await
    }
}
