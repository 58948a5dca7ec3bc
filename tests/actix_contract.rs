//! What our actors rely on, or guard against, in actix 0.13.5: one test per fact. An upgrade that changes one of them
//! fails here, and the design has to be looked at again.

#[path = "actix_contract/closing.rs"]
mod closing;
mod common;
#[cfg(feature = "cuda")]
#[path = "actix_contract/cust.rs"]
mod cust_handles;
#[path = "actix_contract/sync_arbiter.rs"]
mod sync_arbiter;
#[path = "actix_contract/waiting.rs"]
mod waiting;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, Arbiter, AsyncContext, AtomicResponse, Context, Handler,
    MailboxError, Message, ResponseActFuture, ResponseFuture, Running, SpawnHandle, Supervised, System,
};
use common::{on_arbiter, on_paused_arbiter};
use tokio::time::{sleep, timeout, Instant};

const MS: Duration = Duration::from_millis(1);

/// What an actor did, in order; shared with its test on the same thread.
type Journal = Rc<RefCell<Vec<String>>>;

fn note(journal: &Journal, what: impl Into<String>) {
    journal.borrow_mut().push(what.into());
}

fn notes(journal: &Journal) -> Vec<String> {
    std::mem::take(&mut journal.borrow_mut())
}

/// Lets every other task of this arbiter that can run do so.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Note(&'static str);

#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

#[derive(Message)]
#[rtype(result = "()")]
struct Panic;

/// Journals its life; stops or panics when told.
struct Scribe {
    journal: Journal,
    capacity: Option<usize>,
}

impl Scribe {
    fn new(journal: &Journal) -> Self {
        Self { journal: Rc::clone(journal), capacity: None }
    }
}

impl Actor for Scribe {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(capacity) = self.capacity {
            ctx.set_mailbox_capacity(capacity);
        }
        note(&self.journal, "started");
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        note(&self.journal, "stopping");
        Running::Stop
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        note(&self.journal, "stopped");
    }
}

impl Supervised for Scribe {
    fn restarting(&mut self, _: &mut Context<Self>) {
        note(&self.journal, "restarting");
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        note(&self.journal, "dropped");
    }
}

impl Handler<Note> for Scribe {
    type Result = ();

    fn handle(&mut self, Note(what): Note, _: &mut Context<Self>) {
        note(&self.journal, what);
    }
}

impl Handler<Stop> for Scribe {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        note(&self.journal, "stop");
        ctx.stop();
    }
}

impl Handler<Panic> for Scribe {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Context<Self>) {
        note(&self.journal, "panic");
        // Unwinds as a panic does, without the hook's output.
        std::panic::resume_unwind(Box::new("scripted"));
    }
}

async fn with_capacity(capacity: Option<usize>) -> Addr<Scribe> {
    let address = Scribe { journal: Journal::default(), capacity }.start();
    settle().await;
    address
}

fn num_accepted(num_tries: usize, mut try_send: impl FnMut() -> bool) -> usize {
    (0..num_tries).filter(|_| try_send()).count()
}

#[test]
fn only_try_send_on_one_address_is_ever_refused() {
    on_paused_arbiter(async {
        let address = with_capacity(Some(2)).await;
        assert_eq!(num_accepted(10, || address.try_send(Note("same")).is_ok()), 2);
        assert_eq!(num_accepted(10, || address.clone().try_send(Note("clone")).is_ok()), 10);
        for _ in 0..100 {
            address.do_send(Note("do_send"));
        }
        let sent: Vec<_> = (0..100).map(|_| address.send(Note("send"))).collect();
        for reply in sent {
            reply.await.expect("a full mailbox takes it");
        }
    });
}

#[test]
fn capacity_is_sixteen_until_set_and_zero_is_unbounded() {
    on_paused_arbiter(async {
        let address = with_capacity(None).await;
        assert_eq!(num_accepted(100, || address.try_send(Note("")).is_ok()), 16);
        let address = with_capacity(Some(0)).await;
        assert_eq!(num_accepted(100, || address.try_send(Note("")).is_ok()), 100);
    });
}

/// Answers after a while; `begun` and `ended` are journalled.
#[derive(Message)]
#[rtype(result = "()")]
struct Slow;

struct Detached(Journal);

impl Actor for Detached {
    type Context = Context<Self>;
}

impl Handler<Slow> for Detached {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Slow, _: &mut Context<Self>) -> ResponseFuture<()> {
        let journal = Rc::clone(&self.0);
        note(&journal, "begun");
        Box::pin(async move {
            sleep(10 * MS).await;
            note(&journal, "ended");
        })
    }
}

impl Handler<Stop> for Detached {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

#[test]
fn a_dropped_send_is_skipped_if_not_begun_and_finished_unseen_if_begun() {
    on_paused_arbiter(async {
        let journal = Journal::default();
        let address = Detached(Rc::clone(&journal)).start();
        settle().await;
        drop(address.send(Slow));
        sleep(50 * MS).await;
        assert_eq!(notes(&journal), [""; 0], "never begun");
        assert!(matches!(address.send(Slow).timeout(MS).await, Err(MailboxError::Timeout)));
        assert_eq!(notes(&journal), ["begun"]);
        sleep(50 * MS).await;
        assert_eq!(notes(&journal), ["ended"]);
    });
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor that knows nothing of tokio.
fn block_on_foreign<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Doubler;

impl Actor for Doubler {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u32")]
struct Double(u32);

impl Handler<Double> for Doubler {
    type Result = u32;

    fn handle(&mut self, Double(number): Double, _: &mut Context<Self>) -> u32 {
        2 * number
    }
}

#[test]
fn send_works_on_any_executor_but_its_timeout_needs_tokio() {
    on_arbiter(async {
        let address = Doubler.start();
        let (done, answer) = tokio::sync::oneshot::channel();
        let foreign = std::thread::spawn(move || {
            let reply = block_on_foreign(address.send(Double(21)));
            let with_timeout = catch_unwind(AssertUnwindSafe(|| {
                std::panic::set_hook(Box::new(|_| {}));
                let timed = address.send(Double(21)).timeout(MS);
                drop(timed);
            }));
            let _ = std::panic::take_hook();
            done.send((reply, with_timeout.is_err())).expect("the test waits");
        });
        let (reply, timeout_panicked) = answer.await.expect("the thread answers");
        assert_eq!(reply, Ok(42));
        assert!(timeout_panicked);
        foreign.join().expect("it ended");
    });
}

struct Fallible;

impl Actor for Fallible {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<(), &'static str>")]
struct Fail;

impl Handler<Fail> for Fallible {
    type Result = Result<(), &'static str>;

    fn handle(&mut self, _: Fail, _: &mut Context<Self>) -> Self::Result {
        Err("lost, unless somebody waits")
    }
}

#[test]
fn do_send_loses_the_error_of_a_fallible_handler() {
    on_paused_arbiter(async {
        let address = Fallible.start();
        address.do_send(Fail);
        settle().await;
        assert!(address.connected(), "nobody was told, nothing stopped");
        assert_eq!(address.send(Fail).await, Ok(Err("lost, unless somebody waits")));
    });
}

/// Sends itself one message after the other.
struct SelfFeeding {
    num_handled: Rc<Cell<u32>>,
    seen_by_future: Rc<Cell<u32>>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Feed;

const NUM_FED: u32 = 10_000;

impl Actor for SelfFeeding {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.address().do_send(Feed);
        ctx.spawn(wrap_future(async {}).map(|(), this: &mut Self, _| {
            this.seen_by_future.set(this.num_handled.get());
        }));
    }
}

impl Handler<Feed> for SelfFeeding {
    type Result = ();

    fn handle(&mut self, _: Feed, ctx: &mut Context<Self>) {
        self.num_handled.set(self.num_handled.get() + 1);
        if self.num_handled.get() < NUM_FED {
            ctx.address().do_send(Feed);
        }
    }
}

#[test]
fn the_mailbox_is_drained_before_futures_and_without_yielding() {
    on_paused_arbiter(async {
        let (num_handled, seen_by_future) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let actor =
            SelfFeeding { num_handled: Rc::clone(&num_handled), seen_by_future: Rc::clone(&seen_by_future) };
        let _address = actor.start();
        while num_handled.get() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(num_handled.get(), NUM_FED, "no other task of the arbiter ran in between");
        settle().await;
        assert_eq!(seen_by_future.get(), NUM_FED);
    });
}

struct Orderly(Rc<RefCell<Vec<u32>>>);

impl Actor for Orderly {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Number(u32);

#[derive(Message)]
#[rtype(result = "()")]
struct NotifyFive;

const MAIL: u32 = 99;

impl Handler<NotifyFive> for Orderly {
    type Result = ();

    fn handle(&mut self, _: NotifyFive, ctx: &mut Context<Self>) {
        (0..5).for_each(|number| {
            ctx.notify(Number(number));
        });
        ctx.address().do_send(Number(MAIL));
    }
}

impl Handler<Number> for Orderly {
    type Result = ();

    fn handle(&mut self, Number(number): Number, _: &mut Context<Self>) {
        self.0.borrow_mut().push(number);
    }
}

#[test]
fn notify_is_not_first_in_first_out_and_comes_after_mail() {
    on_paused_arbiter(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let address = Orderly(Rc::clone(&order)).start();
        address.send(NotifyFive).await.expect("it answers");
        settle().await;
        assert_eq!(*order.borrow(), [MAIL, 0, 4, 3, 2, 1]);
    });
}

/// Notes when each tick came, and when mail did.
struct Ticking {
    ticks: Rc<RefCell<Vec<Duration>>>,
    begun: Instant,
}

impl Ticking {
    fn start_new() -> (Addr<Self>, Rc<RefCell<Vec<Duration>>>) {
        let ticks = Rc::new(RefCell::new(Vec::new()));
        (Self { ticks: Rc::clone(&ticks), begun: Instant::now() }.start(), ticks)
    }
}

impl Actor for Ticking {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.run_interval(10 * MS, |this, _| this.ticks.borrow_mut().push(this.begun.elapsed()));
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Wait;

impl Handler<Wait> for Ticking {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, _: Wait, _: &mut Context<Self>) -> Self::Result {
        AtomicResponse::new(Box::pin(wrap_future(sleep(55 * MS))))
    }
}

#[derive(Message)]
#[rtype(result = "Duration")]
struct GetTime;

impl Handler<GetTime> for Ticking {
    type Result = actix::MessageResult<GetTime>;

    fn handle(&mut self, _: GetTime, _: &mut Context<Self>) -> Self::Result {
        actix::MessageResult(self.begun.elapsed())
    }
}

#[test]
fn an_interval_repays_missed_ticks_in_a_burst() {
    on_paused_arbiter(async {
        let (_address, ticks) = Ticking::start_new();
        settle().await;
        tokio::time::advance(100 * MS).await;
        settle().await;
        assert_eq!(*ticks.borrow(), [100 * MS; 10]);
    });
}

#[test]
fn timers_have_the_granularity_of_a_millisecond() {
    on_paused_arbiter(async {
        let begun = Instant::now();
        sleep(Duration::from_micros(1)).await;
        assert_eq!(begun.elapsed(), MS);
    });
}

#[test]
fn an_atomic_response_stops_mail_and_timers() {
    on_paused_arbiter(async {
        let (address, ticks) = Ticking::start_new();
        settle().await;
        let wait = address.send(Wait);
        let time = address.send(GetTime);
        assert_eq!(time.await, Ok(55 * MS), "mail waited");
        wait.await.expect("it ended");
        assert_eq!(*ticks.borrow(), [55 * MS; 5], "ticks waited");
    });
}

/// Answers from within the actor.
struct Attached(Journal);

impl Actor for Attached {
    type Context = Context<Self>;
}

impl Handler<Slow> for Attached {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Slow, _: &mut Context<Self>) -> Self::Result {
        Box::pin(wrap_future(sleep(10 * MS)).map(|(), this: &mut Self, _| note(&this.0, "ended")))
    }
}

impl Handler<Panic> for Attached {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Panic, _: &mut Context<Self>) -> Self::Result {
        let panicking = |(), _: &mut Self, _: &mut Context<Self>| {
            std::panic::resume_unwind(Box::new("scripted"));
        };
        Box::pin(wrap_future(sleep(MS)).map(panicking))
    }
}

impl Handler<Stop> for Attached {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

#[test]
fn an_actor_future_dies_with_its_actor_and_a_plain_one_does_not() {
    on_paused_arbiter(async {
        let journal = Journal::default();
        let attached = Attached(Rc::clone(&journal)).start();
        let reply = attached.send(Slow);
        attached.do_send(Stop);
        assert_eq!(reply.await, Err(MailboxError::Closed));
        sleep(50 * MS).await;
        assert_eq!(notes(&journal), [""; 0]);

        let detached = Detached(Rc::clone(&journal)).start();
        let reply = detached.send(Slow);
        detached.do_send(Stop);
        assert_eq!(reply.await, Ok(()));
        assert!(!detached.connected());
        assert_eq!(notes(&journal), ["begun", "ended"]);
    });
}

#[test]
fn a_panic_in_an_actor_future_kills_the_actor() {
    on_paused_arbiter(async {
        let attached = Attached(Journal::default()).start();
        assert_eq!(attached.send(Panic).await, Err(MailboxError::Closed));
        assert!(!attached.connected());
    });
}

#[test]
fn a_panic_unwinds_one_actor_and_tells_nobody() {
    on_paused_arbiter(async {
        let (journal, other) = (Journal::default(), Journal::default());
        let (broken, sibling) = (Scribe::new(&journal).start(), Scribe::new(&other).start());
        assert_eq!(broken.send(Panic).await, Err(MailboxError::Closed));
        assert!(!broken.connected(), "the address closes");
        assert_eq!(notes(&journal), ["started", "panic", "stopping", "stopped", "dropped"]);
        assert_eq!(sibling.send(Note("alive")).await, Ok(()));
        assert_eq!(notes(&other), ["started", "alive"]);
    });
}

#[test]
fn the_stock_supervisor_restarts_after_a_stop_with_the_same_value_but_not_after_a_panic() {
    on_paused_arbiter(async {
        let journal = Journal::default();
        let scribe = Scribe::new(&journal);
        let address = actix::Supervisor::start(move |_| scribe);
        address.do_send(Stop);
        address.do_send(Note("mail is kept"));
        settle().await;
        assert_eq!(
            notes(&journal),
            ["started", "stop", "stopping", "stopped", "restarting", "started", "mail is kept"]
        );
        assert_eq!(address.send(Panic).await, Err(MailboxError::Closed));
        settle().await;
        assert!(!address.connected());
        let ended = notes(&journal);
        assert_eq!(ended.first().map(String::as_str), Some("panic"));
        assert!(!ended.iter().any(|what| what == "restarting"), "{ended:?}");
    });
}

/// Keeps the handle of its first timer over a restart.
struct Handles {
    first: Option<SpawnHandle>,
    num_fired: Rc<Cell<u32>>,
}

impl Actor for Handles {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let handle = ctx.run_later(10 * MS, |this, _| this.num_fired.set(this.num_fired.get() + 1));
        match self.first {
            None => self.first = Some(handle),
            Some(old) => {
                assert_eq!(old, handle, "handles count from the beginning again");
                ctx.cancel_future(old);
            }
        }
    }
}

impl Supervised for Handles {}

impl Handler<Stop> for Handles {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

#[test]
fn after_a_restart_an_old_handle_cancels_a_new_timer() {
    on_paused_arbiter(async {
        let num_fired = Rc::new(Cell::new(0));
        let actor = Handles { first: None, num_fired: Rc::clone(&num_fired) };
        let address = actix::Supervisor::start(move |_| actor);
        settle().await;
        address.do_send(Stop);
        sleep(100 * MS).await;
        assert!(address.connected());
        assert_eq!(num_fired.get(), 0, "the first timer was dropped, the second cancelled");
    });
}

#[test]
fn start_in_arbiter_returns_at_once_and_a_failure_there_is_a_closed_address() {
    on_paused_arbiter(async {
        let (ran, has_run) = mpsc::channel();
        let address = Doubler::start_in_arbiter(&Arbiter::current(), move |_| {
            ran.send(()).expect("the test listens");
            Doubler
        });
        assert!(has_run.try_recv().is_err(), "its closure has not run yet");
        assert_eq!(address.send(Double(4)).await, Ok(8));
        assert!(has_run.try_recv().is_ok());

        let panicking = Doubler::start_in_arbiter(&Arbiter::current(), |_| -> Doubler {
            std::panic::resume_unwind(Box::new("scripted"))
        });
        assert_eq!(panicking.send(Double(4)).await, Err(MailboxError::Closed));

        let dead = Arbiter::new();
        dead.stop();
        let handle = dead.handle();
        dead.join().expect("it stopped");
        let address = Doubler::start_in_arbiter(&handle, |_| Doubler);
        assert!(!address.connected());
    });
}

#[test]
fn dropping_every_address_does_not_stop_an_actor_with_an_interval() {
    on_paused_arbiter(async {
        let (address, ticks) = Ticking::start_new();
        drop(address);
        sleep(55 * MS).await;
        assert_eq!(ticks.borrow().len(), 5);

        let journal = Journal::default();
        drop(Scribe::new(&journal).start());
        settle().await;
        assert_eq!(
            notes(&journal),
            ["started", "stopping", "stopped", "dropped"],
            "one without timers stops"
        );
    });
}

#[test]
fn neither_run_nor_block_on_waits_for_arbiters() {
    // On threads of their own: a system stays registered where it was made.
    let host = std::thread::spawn(|| {
        let system = System::new();
        let arbiter = system.block_on(async { Arbiter::new() });
        let (alive, is_alive) = mpsc::channel();
        arbiter.spawn_fn(move || alive.send(()).expect("the test listens"));
        is_alive.recv().expect("block_on has ended, the arbiter has not");

        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (end, ended) = mpsc::channel();
        arbiter.spawn_fn(move || {
            begin.send(()).expect("the test listens");
            released.recv().expect("the test releases it");
            end.send(()).expect("the test listens");
        });
        begun.recv().expect("the arbiter is busy from now on");
        System::current().stop();
        system.run().expect("it was stopped");
        assert!(ended.try_recv().is_err(), "run has returned while the arbiter was busy");
        release.send(()).expect("the arbiter waits");
        arbiter.join().expect("the system stopped it");
        ended.recv().expect("it ended after run had returned");
    });
    host.join().expect("the host thread's assertions hold");
}

/// Counts what it is told.
struct Counter(Rc<Cell<usize>>);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Note> for Counter {
    type Result = ();

    fn handle(&mut self, _: Note, _: &mut Context<Self>) {
        self.0.set(self.0.get() + 1);
    }
}

/// Any crate of the build may switch the feature `mailbox_assert` on for all: an actor with 256 messages in a row then
/// panics. Ours may have as many (each of a job's partitions has its facts), so the feature must be off.
#[test]
fn a_thousand_messages_in_a_row_are_handled_since_mailbox_assert_is_off() {
    on_paused_arbiter(async {
        let count = Rc::new(Cell::new(0));
        let address = Counter(Rc::clone(&count)).start();
        for _ in 0..1_000 {
            address.do_send(Note("one of many"));
        }
        assert_eq!(count.get(), 0, "all of them wait, and are handled in one go");
        settle().await;
        assert_eq!(count.get(), 1_000);
        assert!(address.connected());
    });
}

/// Asks its own context for something when it is too late: actix complains in its log.
struct TooLate;

impl Actor for TooLate {
    type Context = Context<Self>;

    fn stopped(&mut self, ctx: &mut Context<Self>) {
        ctx.notify(Note("to nobody"));
    }
}

impl Handler<Note> for TooLate {
    type Result = ();

    fn handle(&mut self, _: Note, _: &mut Context<Self>) {}
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Its complaints come through the crate `log`, not through `tracing`: without the bridge they would be lost.
#[test]
fn actix_logs_through_log_and_the_bridge_to_tracing_carries_it() {
    let lines = Lines::default();
    let writer = lines.clone();
    // Installs the bridge, for the whole process: no other test of this binary reads logs.
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    on_paused_arbiter(async {
        drop(TooLate.start());
        settle().await;
    });
    let text = String::from_utf8(lines.0.lock().expect("nobody panics with it").clone()).expect("text");
    assert!(text.contains("ERROR actix::actor: Context::notify called for stopped actor"), "{text}");
}

#[test]
fn a_stop_drops_queued_mail() {
    on_paused_arbiter(async {
        let journal = Journal::default();
        let address = Scribe::new(&journal).start();
        let stop = address.send(Stop);
        let note = address.send(Note("never"));
        assert_eq!(stop.await, Ok(()));
        assert_eq!(note.await, Err(MailboxError::Closed));
        assert_eq!(notes(&journal), ["started", "stop", "stopping", "stopped", "dropped"]);
    });
}

/// Says on which thread, and whether within tokio, its `stopped` and its drop run.
struct Departing(mpsc::Sender<(&'static str, ThreadId, bool)>);

impl Departing {
    fn say(&self, what: &'static str) {
        let within_tokio = tokio::runtime::Handle::try_current().is_ok();
        // The test has stopped listening if it failed already.
        let _ = self.0.send((what, std::thread::current().id(), within_tokio));
    }
}

impl Actor for Departing {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.say("started");
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.say("stopped");
    }
}

impl Drop for Departing {
    fn drop(&mut self) {
        self.say("dropped");
    }
}

impl Handler<Panic> for Departing {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Context<Self>) {
        std::panic::resume_unwind(Box::new("scripted"));
    }
}

#[test]
fn after_the_arbiters_stop_stopped_runs_outside_tokio_on_the_same_thread() {
    on_arbiter(async {
        let (say, said) = mpsc::channel();
        let arbiter = Arbiter::new();
        let _address = Departing::start_in_arbiter(&arbiter.handle(), move |_| Departing(say));
        let (_, thread, within_tokio) = said.recv().expect("it starts");
        assert!(within_tokio);
        arbiter.stop();
        arbiter.join().expect("it stopped");
        let rest: Vec<_> = said.try_iter().collect();
        assert_eq!(rest, [("stopped", thread, false), ("dropped", thread, false)]);
    });
}

#[test]
fn an_actor_is_dropped_on_its_arbiters_thread_after_a_panic_too() {
    on_arbiter(async {
        let (say, said) = mpsc::channel();
        let arbiter = Arbiter::new();
        let address = Departing::start_in_arbiter(&arbiter.handle(), move |_| Departing(say));
        assert_eq!(address.send(Panic).await, Err(MailboxError::Closed));
        let threads: Vec<_> = (0..3).map(|_| said.recv().expect("three events")).collect();
        assert_eq!(
            threads.iter().map(|event| event.0).collect::<Vec<_>>(),
            ["started", "stopped", "dropped"]
        );
        assert!(threads.iter().all(|event| event.1 == threads[0].1));
        assert_ne!(threads[0].1, std::thread::current().id());

        // A rebuilt one may start there.
        let rebuilt = Doubler::start_in_arbiter(&arbiter.handle(), |_| Doubler);
        assert_eq!(rebuilt.send(Double(1)).await, Ok(2));
        arbiter.stop();
        arbiter.join().expect("it stopped");
    });
}

#[test]
fn systems_belong_to_their_thread_and_are_never_cleared() {
    let foreign = std::thread::spawn(|| {
        let quietly = |action: fn()| catch_unwind(action).is_err();
        assert!(!System::is_registered());
        assert!(quietly(|| drop(System::current())), "no system on a foreign thread");
        assert!(quietly(|| drop(Doubler.start())), "nor can an actor be started there");
        drop(System::new());
        assert!(System::is_registered(), "it is still registered after its runner is gone");
    });
    foreign.join().expect("the thread's assertions hold");
}

#[test]
fn a_paused_clock_jumps_over_waits_for_other_threads_but_not_over_blocking_tasks() {
    on_paused_arbiter(async {
        let real = std::time::Instant::now();
        let begun = Instant::now();
        sleep(Duration::from_secs(7_200)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(7_200));
        assert!(real.elapsed() < Duration::from_secs(60), "two hours pass at once");

        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        let (release, released) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let _ = released.recv();
            let _ = send.send(());
        });
        assert!(timeout(Duration::from_secs(3_600), receive).await.is_err(), "straight to the timeout");
        release.send(()).expect("the thread waits");
        other.join().expect("it ended");

        let begun = Instant::now();
        let (release, released) = mpsc::channel::<()>();
        let blocking = tokio::task::spawn_blocking(move || released.recv());
        let helper = std::thread::spawn(move || {
            std::thread::yield_now();
            release.send(())
        });
        let answer = timeout(Duration::from_secs(3_600), blocking).await;
        assert!(matches!(answer, Ok(Ok(Ok(())))), "{answer:?}");
        assert_eq!(begun.elapsed(), Duration::ZERO, "the clock was held");
        helper.join().expect("it ended").expect("it was received");
    });
}
