//! `SyncArbiter`, and why nothing of ours runs on one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread::ThreadId;

use actix::{Actor, ActorContext, Handler, MailboxError, Message, SyncArbiter, SyncContext};

use crate::common::on_arbiter;
use crate::{Panic, Stop};

struct Blocking;

impl Actor for Blocking {
    type Context = SyncContext<Self>;
}

impl Handler<Stop> for Blocking {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut SyncContext<Self>) {
        ctx.stop();
    }
}

impl Handler<Panic> for Blocking {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut SyncContext<Self>) {
        std::panic::resume_unwind(Box::new("scripted"));
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Ping;

impl Handler<Ping> for Blocking {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut SyncContext<Self>) {}
}

#[test]
fn a_sync_arbiter_renews_its_actor_after_a_stop_and_loses_its_thread_to_a_panic() {
    on_arbiter(async {
        let num_made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&num_made);
        let address = SyncArbiter::start(1, move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Blocking
        });
        address.send(Stop).await.expect("it answers");
        address.send(Ping).await.expect("a fresh actor answers");
        assert_eq!(num_made.load(Ordering::SeqCst), 2);
        assert_eq!(address.send(Panic).await, Err(MailboxError::Closed));
        assert_eq!(address.send(Ping).await, Err(MailboxError::Closed), "the only thread is gone for good");
        assert_eq!(num_made.load(Ordering::SeqCst), 2);
    });
}

/// Says which thread it is on, and keeps it until it is let go.
#[derive(Message)]
#[rtype(result = "()")]
struct Occupy {
    begun: mpsc::Sender<ThreadId>,
    end: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Handler<Occupy> for Blocking {
    type Result = ();

    fn handle(&mut self, Occupy { begun, end }: Occupy, _: &mut SyncContext<Self>) {
        begun.send(std::thread::current().id()).expect("the test listens");
        // An error: the test is over.
        let _ = end.lock().expect("nobody panics with it").recv();
    }
}

#[test]
fn a_sync_arbiter_has_one_address_for_all_threads_and_an_unbounded_queue() {
    on_arbiter(async {
        let address = SyncArbiter::start(2, || Blocking);
        let (begin, begun) = mpsc::channel();
        // One end for each, or the second would wait for the first one's lock and not for its end.
        let ends = [mpsc::channel(), mpsc::channel()].map(|(send, end)| {
            address.do_send(Occupy { begun: begin.clone(), end: Arc::new(Mutex::new(end)) });
            send
        });
        // The arbiter hands them on while this task lets it.
        let mut threads = Vec::new();
        while threads.len() < 2 {
            tokio::task::yield_now().await;
            threads.extend(begun.try_iter());
        }
        assert_ne!(threads[0], threads[1], "nobody says which thread a message goes to");
        for _ in 0..10_000 {
            assert!(address.try_send(Ping).is_ok(), "nothing is ever refused");
            tokio::task::yield_now().await;
        }
        let last = address.send(Ping);
        drop(ends);
        last.await.expect("all of them are handled");
    });
}
