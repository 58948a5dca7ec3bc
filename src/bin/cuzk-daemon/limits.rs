//! How much callers may ask for: each connection, and all of them together.
//!
//! What is over a limit is refused and not kept waiting: callers that wait hold memory too. How many connections there may
//! be is looked at where they are accepted, and how many streams each has is HTTP/2's own matter.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuzk::config::DaemonConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// The limits, and what is used of them by all connections together.
pub struct Limits {
    calls: Arc<Semaphore>,
    bytes: Arc<ByteBudget>,
    rate: Rate,
    max_calls: u32,
    max_bytes_per_connection: u64,
    /// How long a connection may take to begin, and a request may stand still.
    pub slow_client: Duration,
}

impl Limits {
    pub fn new(config: &DaemonConfig) -> Arc<Self> {
        Arc::new(Self {
            calls: Arc::new(Semaphore::new(config.max_calls as usize)),
            bytes: ByteBudget::new(config.max_bytes_in_flight.0, ""),
            rate: Rate::default(),
            max_calls: config.max_calls,
            max_bytes_per_connection: config.max_bytes_per_connection.0,
            slow_client: Duration::from_secs(config.slow_client_limit_s),
        })
    }

    /// What a new connection has used: nothing.
    pub fn usage(&self) -> Arc<Usage> {
        Arc::new(Usage {
            bytes: ByteBudget::new(self.max_bytes_per_connection, " on this connection"),
            rate: Rate::default(),
            was_refused: AtomicBool::new(false),
        })
    }

    /// Lets one more call begin, as far as its connection's rate goes.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there are too many.
    pub fn begin(usage: &Usage, config: &DaemonConfig) -> Result<(), Status> {
        if !usage.rate.admit(config.max_calls_per_s_per_connection) {
            return Err(Status::resource_exhausted(
                "too many calls a second on this connection: try again later",
            ));
        }
        Ok(())
    }

    /// The same of all connections together.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there are too many.
    pub fn begin_of_all(&self, config: &DaemonConfig) -> Result<(), Status> {
        if !self.rate.admit(config.max_calls_per_s) {
            return Err(Status::resource_exhausted("too many calls a second: try again later"));
        }
        Ok(())
    }

    /// A place among the calls that are served.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is none.
    pub fn place(&self) -> Result<OwnedSemaphorePermit, Status> {
        let place = Arc::clone(&self.calls).try_acquire_owned();
        place.map_err(|_| Status::resource_exhausted("too many calls at a time: try again later"))
    }

    /// Counts the bytes of one request of this connection.
    pub fn charge(&self, usage: &Usage) -> Charge {
        Charge { budgets: [Arc::clone(&usage.bytes), Arc::clone(&self.bytes)], num_bytes: AtomicU64::new(0) }
    }

    /// Waits until no call is being served.
    pub async fn wait_idle(&self) {
        // An error means that the limit is gone, and every call with it.
        let _ = self.calls.acquire_many(self.max_calls).await;
    }
}

/// What one connection uses.
pub struct Usage {
    bytes: Arc<ByteBudget>,
    rate: Rate,
    was_refused: AtomicBool,
}

impl Usage {
    /// Whether a call of this connection is refused for the first time: a caller must not fill the log.
    pub fn is_first_refusal(&self) -> bool {
        !self.was_refused.swap(true, Ordering::Relaxed)
    }
}

/// Bytes of requests that are being received or decoded.
struct ByteBudget {
    limit: u64,
    used: AtomicU64,
    /// Of what, for messages.
    scope: &'static str,
}

impl ByteBudget {
    fn new(limit: u64, scope: &'static str) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), scope })
    }

    /// They count whether there is room for them or not, until they are given back.
    fn add(&self, num_bytes: u64) -> Result<(), Status> {
        let used = self.used.fetch_add(num_bytes, Ordering::Relaxed).saturating_add(num_bytes);
        let Self { limit, scope, .. } = self;
        if used <= *limit {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "requests of {used} B are being received{scope}, limit {limit} B: try again"
        )))
    }
}

/// The bytes of one request: counted as they come, given back when this is dropped.
pub struct Charge {
    budgets: [Arc<ByteBudget>; 2],
    num_bytes: AtomicU64,
}

impl Charge {
    /// # Errors
    /// `RESOURCE_EXHAUSTED`, naming the limit.
    pub fn add(&self, num_bytes: u64) -> Result<(), Status> {
        self.num_bytes.fetch_add(num_bytes, Ordering::Relaxed);
        let [own, all] = &self.budgets;
        let (own, all) = (own.add(num_bytes), all.add(num_bytes));
        own.and(all)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let num_bytes = self.num_bytes.load(Ordering::Relaxed);
        for budget in &self.budgets {
            budget.used.fetch_sub(num_bytes, Ordering::Relaxed);
        }
    }
}

/// Calls that begin in one second. A second's worth may begin at once.
#[derive(Default)]
struct Rate {
    /// When the second began, and how many calls have since.
    window: Mutex<Option<(Instant, u32)>>,
}

impl Rate {
    /// Whether one more may begin now; `limit` 0: any number.
    fn admit(&self, limit: u32) -> bool {
        self.admit_at(Instant::now(), limit)
    }

    fn admit_at(&self, now: Instant, limit: u32) -> bool {
        if limit == 0 {
            return true;
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= Duration::from_secs(1);
        let (since, begun) = window.filter(|(since, _)| !is_over(*since)).unwrap_or((now, 0));
        let is_admitted = begun < limit;
        *window = Some((since, begun + u32::from(is_admitted)));
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn limits(change: impl FnOnce(&mut DaemonConfig)) -> (Arc<Limits>, DaemonConfig) {
        let mut config = DaemonConfig::default();
        change(&mut config);
        (Limits::new(&config), config)
    }

    #[test]
    fn bytes_are_given_back_however_a_request_ends() {
        let (limits, _) = limits(|config| config.max_bytes_in_flight.0 = 100);
        let usage = limits.usage();
        let charge = |num_bytes| {
            let charge = limits.charge(&usage);
            charge.add(num_bytes).map(|()| charge)
        };
        let first = charge(60).ok().unwrap();
        assert_eq!(charge(50).err().unwrap().code(), Code::ResourceExhausted);
        let used = || [&limits.bytes, &usage.bytes].map(|budget| budget.used.load(Ordering::Relaxed));
        assert_eq!(used(), [60, 60], "what was refused is not counted");
        drop(first);
        assert_eq!(used(), [0, 0]);
    }

    #[test]
    fn one_connection_over_its_bytes_leaves_the_others_theirs() {
        let (limits, _) = limits(|config| {
            config.max_bytes_in_flight.0 = 100;
            config.max_bytes_per_connection.0 = 40;
        });
        let (greedy, other) = (limits.usage(), limits.usage());
        let first = limits.charge(&greedy);
        first.add(40).unwrap();
        let refused = limits.charge(&greedy).add(1).unwrap_err();
        assert!(refused.message().contains("on this connection, limit 40 B"), "{refused}");
        limits.charge(&other).add(40).unwrap();
    }

    #[test]
    fn a_rate_is_kept_within_a_second_and_begins_again_with_the_next() {
        let (rate, start) = (Rate::default(), Instant::now());
        let admitted = |at_ms: u64| {
            let at = start + Duration::from_millis(at_ms);
            (0..5).filter(|_| rate.admit_at(at, 3)).count()
        };
        assert_eq!([admitted(0), admitted(999), admitted(1000), admitted(1500)], [3, 0, 3, 0]);
        assert!((0..100).all(|_| Rate::default().admit_at(start, 0)));
    }

    #[test]
    fn a_connection_over_its_rate_takes_nothing_from_the_others() {
        let (limits, config) = limits(|config| {
            config.max_calls_per_s = 5;
            config.max_calls_per_s_per_connection = 2;
        });
        let (wild, other) = (limits.usage(), limits.usage());
        let begins =
            |usage: &Usage| Limits::begin(usage, &config).and_then(|()| limits.begin_of_all(&config));
        let begun = |usage: &Usage| (0..100).filter(|_| begins(usage).is_ok()).count();
        // The hundred calls are made in much less than a second, or there would be more of them.
        let of_wild = begun(&wild);
        let of_other = begun(&other);
        assert!(of_wild >= 2 && of_other >= 2, "{of_wild} {of_other}");
        assert!(of_wild < 100 && of_other < 100, "{of_wild} {of_other}");
    }

    #[test]
    fn only_the_first_refusal_of_a_connection_is_logged() {
        let (limits, _) = limits(|_| ());
        let usage = limits.usage();
        assert!(usage.is_first_refusal() && !usage.is_first_refusal());
        assert!(limits.usage().is_first_refusal());
    }
}
