//! How the daemon ends.

use std::time::{Duration, Instant};

use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::{DrainRequest, GetStatusRequest};
use rustix::process::Signal;
use tonic::Code;

use super::requests::{other_window, prove, window};
use super::rig::{in_progress, wait_status, Setup};

#[tokio::test(flavor = "multi_thread")]
async fn b43_the_only_device_lost_ends_the_process_with_an_error() {
    let mut setup = Setup::new("sim:1;0:lost@1.sum_h");
    // Given up at once, and not after minutes.
    for (name, value) in [("CUZK_GPUS_MAX_RESTARTS", "0"), ("CUZK_GPUS_QUARANTINE_S", "1")] {
        setup.env.push((name.to_owned(), value.to_owned()));
    }
    let mut daemon = setup.start().await;
    let mut client = daemon.client().await;
    // The caller is answered, to try again elsewhere or later.
    let error = client.prove(prove(window("lost"))).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert_eq!(daemon.exit_code().await, 1);
    assert!(daemon.log_text().contains("no device is left"), "{}", daemon.log_text());
    assert!(!daemon.setup.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn b44_sigterm_lets_jobs_finish_and_refuses_new_ones() {
    let mut daemon = Setup::new("sim:1;0:delay(3000ms)@1.sum_h").start().await;
    let mut client = daemon.client().await;
    let mut waiting = client.clone();
    let answer = tokio::spawn(async move { waiting.prove(prove(window("running"))).await });
    wait_status(&mut client, |status| in_progress(status) == 1).await;
    daemon.signal(Signal::TERM);
    let status = wait_status(&mut client, |status| status.draining).await;
    assert!(!status.ready);
    let error = client.prove(prove(other_window("late"))).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert_eq!(client.submit_proof(other_window("late")).await.unwrap_err().code(), Code::Unavailable);
    let result = answer.await.unwrap().unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Completed, "{result:?}");
    assert_eq!(daemon.exit_code().await, 0);
    assert!(!daemon.setup.socket().exists(), "the socket file is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn b44_an_idle_daemon_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Setup::new("sim:1").start().await;
        // Also with a connection that somebody keeps open.
        let mut client = daemon.client().await;
        client.get_status(GetStatusRequest {}).await.unwrap();
        let begun = Instant::now();
        daemon.signal(signal);
        assert_eq!(daemon.exit_code().await, 0);
        let took = begun.elapsed();
        println!("an idle daemon ended after {took:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let mut daemon = Setup::new("sim:1;0:hang@1.sum_h").start().await;
    let mut client = daemon.client().await;
    client.submit_proof(window("hangs")).await.unwrap();
    wait_status(&mut client, |status| in_progress(status) == 1).await;
    daemon.signal(Signal::INT);
    wait_status(&mut client, |status| status.draining).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code().await, 128 + 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_has_a_limit_and_what_is_left_is_for_the_next_process() {
    let mut daemon = Setup::new("sim:1;0:hang@1.sum_h").start().await;
    let mut client = daemon.client().await;
    let mut waiting = client.clone();
    let answer = tokio::spawn(async move { waiting.prove(prove(window("left"))).await });
    wait_status(&mut client, |status| in_progress(status) == 1).await;
    let drained = client.drain(DrainRequest { limit_ms: 300 }).await.unwrap().into_inner();
    assert_eq!(drained.jobs, 1);
    assert_eq!(answer.await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(daemon.exit_code().await, 0);
    daemon.setup.devices = "sim:1".to_owned();
    let daemon = daemon.restart().await;
    let mut client = daemon.client().await;
    let status = wait_status(&mut client, |status| status.total_proofs_completed == 1).await;
    assert_eq!(status.totals.unwrap().recovered, 1);
}

/// The system ends whoever writes a file beyond its limit, unless it hears of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_may_grow_no_further_is_not_the_end() {
    let mut daemon = Setup::new("sim:1").start().await;
    daemon.signal(Signal::XFSZ);
    daemon.log_with("ulimit -f").await;
    let mut client = daemon.client().await;
    client.prove(prove(window("after"))).await.unwrap();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code().await, 0);
}
