//! What is let in: the limit of the job queue, and the identity of work.

use std::collections::HashMap;

use crate::circuits::WorkKind;
use crate::error::ScheduleError;
use crate::ids::{JobId, RequestDigest};
use crate::messages::job::{Placement, Priority};

/// How many times the queue's limit the limit of CRITICAL work is.
const CRITICAL_FACTOR: usize = 4;

/// The limit of a queue for work of `priority`, out of the one for all work. CRITICAL work has one of its own, which
/// only a caller that went wild meets: a WinningPoSt that is refused is a block that is lost, but a queue without any
/// limit takes the whole engine down.
pub fn limit_of(priority: Priority, limit: usize) -> usize {
    match priority {
        Priority::Critical => limit.saturating_mul(CRITICAL_FACTOR),
        _ => limit,
    }
}

/// `Ok` if one more job may enter. `live_jobs`: all that have not ended; `live_critical_jobs`: those of them that are
/// CRITICAL, which alone count for one more of their kind.
///
/// # Errors
/// [`ScheduleError::Draining`], [`ScheduleError::QueueFull`].
pub fn admit(
    draining: bool,
    live_jobs: usize,
    live_critical_jobs: usize,
    limit: usize,
    priority: Priority,
) -> Result<(), ScheduleError> {
    if draining {
        return Err(ScheduleError::Draining);
    }
    let jobs = if priority == Priority::Critical { live_critical_jobs } else { live_jobs };
    let limit = limit_of(priority, limit);
    if jobs >= limit {
        return Err(ScheduleError::QueueFull { jobs, limit });
    }
    Ok(())
}

/// What makes two requests the same work. Callers reuse request ids, so an id alone is not enough; and a proof with
/// fixed blinding values is another proof.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkIdentity {
    pub request_id: String,
    pub kind: WorkKind,
    pub digest: RequestDigest,
    /// Digest of the blinding values; `None`: the operating system's.
    pub blinding: Option<[u8; 32]>,
    /// Whoever asks for a device is not served with another's work.
    pub placement: Placement,
}

/// Which job does which work.
#[derive(Debug, Default)]
pub struct Identities {
    jobs: HashMap<WorkIdentity, JobId>,
}

impl Identities {
    pub fn find(&self, identity: &WorkIdentity) -> Option<JobId> {
        self.jobs.get(identity).copied()
    }

    /// The newest job of an identity is the one that is found.
    pub fn insert(&mut self, identity: WorkIdentity, job: JobId) {
        self.jobs.insert(identity, job);
    }

    /// Forgets `job`, unless a newer one has taken its identity.
    pub fn remove(&mut self, identity: &WorkIdentity, job: JobId) {
        if self.jobs.get(identity) == Some(&job) {
            self.jobs.remove(identity);
        }
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DeviceId;

    #[test]
    fn critical_has_a_larger_limit_of_its_own() {
        assert_eq!(admit(false, 1, 0, 2, Priority::High), Ok(()));
        let full = |jobs, limit| Err(ScheduleError::QueueFull { jobs, limit });
        assert_eq!(admit(false, 2, 0, 2, Priority::High), full(2, 2));
        assert_eq!(admit(false, 2, 0, 2, Priority::Critical), Ok(()));
        assert_eq!(admit(false, 9, 7, 2, Priority::Critical), Ok(()));
        assert_eq!(admit(false, 9, 8, 2, Priority::Critical), full(8, 8));
        assert_eq!(admit(true, 0, 0, 2, Priority::Critical), Err(ScheduleError::Draining));
        assert_eq!(limit_of(Priority::Critical, usize::MAX), usize::MAX);
    }

    #[test]
    fn identity_is_id_kind_digest_blinding_and_placement() {
        let identity = |id: &str, kind, byte, blinding| WorkIdentity {
            request_id: id.to_owned(),
            kind,
            digest: RequestDigest([byte; 32]),
            blinding,
            placement: Placement::Any,
        };
        let base = identity("a", WorkKind::WindowPost, 1, None);
        let mut identities = Identities::default();
        identities.insert(base.clone(), JobId(1));
        assert_eq!(identities.find(&base), Some(JobId(1)));
        for other in [
            identity("b", WorkKind::WindowPost, 1, None),
            identity("a", WorkKind::WinningPost, 1, None),
            identity("a", WorkKind::WindowPost, 2, None),
            identity("a", WorkKind::WindowPost, 1, Some([0; 32])),
            WorkIdentity { placement: Placement::Device(DeviceId::new("sim-0")), ..base.clone() },
        ] {
            assert_eq!(identities.find(&other), None);
        }
        identities.insert(base.clone(), JobId(2));
        identities.remove(&base, JobId(1));
        assert_eq!(identities.find(&base), Some(JobId(2)));
        identities.remove(&base, JobId(2));
        assert!(identities.is_empty());
    }
}
