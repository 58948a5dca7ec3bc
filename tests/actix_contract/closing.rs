//! What is said to an actor, or done by it, when it is too late.

use std::sync::mpsc;

use actix::{Actor, Arbiter, AsyncContext, Context, MailboxError};

use crate::common::{on_arbiter, on_paused_arbiter};
use crate::{notes, settle, Journal, Note, Scribe, Stop, MS};

#[test]
fn do_send_to_a_closed_address_says_nothing_and_the_others_say_closed() {
    on_paused_arbiter(async {
        let journal = Journal::default();
        let address = Scribe::new(&journal).start();
        address.do_send(Stop);
        settle().await;
        assert!(!address.connected());
        // Gives nothing back, and does not panic.
        address.do_send(Note("never"));
        address.clone().recipient().do_send(Note("never"));
        assert!(address.try_send(Note("never")).is_err());
        assert_eq!(address.send(Note("never")).await, Err(MailboxError::Closed));
        settle().await;
        assert_eq!(notes(&journal), ["started", "stop", "stopping", "stopped", "dropped"]);
    });
}

/// Makes a timer when it is too late, and has something left to do after it.
struct Late(mpsc::Sender<&'static str>);

impl Late {
    fn say(&self, what: &'static str) {
        // The test has stopped listening if it failed already.
        let _ = self.0.send(what);
    }
}

impl Actor for Late {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.say("started");
    }

    fn stopped(&mut self, ctx: &mut Context<Self>) {
        self.say("stopped");
        ctx.run_later(MS, |_, _| {});
        self.say("the rest");
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.say("dropped");
    }
}

/// So what has to be done at the end is done in `Drop`.
#[test]
fn a_timer_made_in_stopped_panics_after_the_arbiters_stop_and_skips_the_rest() {
    on_arbiter(async {
        let (say, said) = mpsc::channel();
        let arbiter = Arbiter::new();
        let _address = Late::start_in_arbiter(&arbiter.handle(), move |_| Late(say));
        assert_eq!(said.recv(), Ok("started"));
        arbiter.stop();
        // Whether the panic takes the thread along is not what anybody relies on.
        let _ = arbiter.join();
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["stopped", "dropped"]);
    });
}
