//! What makes mail, timers and futures of an actor wait, and for what.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{Actor, AsyncContext, Context, Handler, MailboxError, Message, Supervised};
use tokio::time::sleep;

use crate::common::{on_arbiter, on_paused_arbiter};
use crate::{notes, settle, Attached, Feed, GetTime, Journal, Slow, Stop, Ticking, MS};

/// Sends itself one message after the other for a while, with a timer that is due long before.
struct Busy {
    begun: std::time::Instant,
    num_handled: Rc<Cell<u32>>,
    seen_by_timer: Rc<Cell<Option<u32>>>,
}

/// Of the machine's own clock.
const BUSY: Duration = Duration::from_millis(30);

impl Actor for Busy {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.begun = std::time::Instant::now();
        ctx.run_later(MS, |this, _| this.seen_by_timer.set(Some(this.num_handled.get())));
        ctx.address().do_send(Feed);
    }
}

impl Handler<Feed> for Busy {
    type Result = ();

    fn handle(&mut self, _: Feed, ctx: &mut Context<Self>) {
        self.num_handled.set(self.num_handled.get() + 1);
        if self.begun.elapsed() < BUSY {
            ctx.address().do_send(Feed);
        }
    }
}

#[test]
fn mail_goes_before_timers_that_are_due() {
    on_arbiter(async {
        let (num_handled, seen_by_timer) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        let begun = std::time::Instant::now();
        let (counter, seen) = (Rc::clone(&num_handled), Rc::clone(&seen_by_timer));
        let _address = Busy { begun, num_handled: counter, seen_by_timer: seen }.start();
        while seen_by_timer.get().is_none() {
            sleep(MS).await;
        }
        assert!(begun.elapsed() >= BUSY);
        assert_eq!(seen_by_timer.get(), Some(num_handled.get()), "the timer was due after a thirtieth of it");
    });
}

#[derive(Message)]
#[rtype(result = "()")]
struct WaitInContext;

impl Handler<WaitInContext> for Ticking {
    type Result = ();

    fn handle(&mut self, _: WaitInContext, ctx: &mut Context<Self>) {
        ctx.wait(wrap_future::<_, Self>(sleep(55 * MS)));
    }
}

#[test]
fn waiting_in_the_context_stops_mail_and_timers() {
    on_paused_arbiter(async {
        let (address, ticks) = Ticking::start_new();
        settle().await;
        let answered = address.send(WaitInContext);
        let time = address.send(GetTime);
        assert_eq!(answered.await, Ok(()), "its caller does not wait");
        assert!(ticks.borrow().is_empty());
        assert_eq!(time.await, Ok(55 * MS), "mail waited");
        settle().await;
        assert_eq!(*ticks.borrow(), [55 * MS; 5], "ticks waited");
    });
}

impl Supervised for Attached {}

#[test]
fn an_actor_future_does_not_outlive_a_restart_and_its_caller_is_told_closed() {
    on_paused_arbiter(async {
        let journal = Journal::default();
        let attached = Attached(Rc::clone(&journal));
        let address = actix::Supervisor::start(move |_| attached);
        let reply = address.send(Slow);
        address.do_send(Stop);
        assert_eq!(reply.await, Err(MailboxError::Closed));
        sleep(50 * MS).await;
        assert!(address.connected(), "it was restarted");
        assert_eq!(notes(&journal), [""; 0], "and its future never ended");
    });
}
