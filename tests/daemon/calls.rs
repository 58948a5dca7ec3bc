//! Each call, and what it answers when things go wrong.

use std::time::{Duration, Instant};

use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::{
    AwaitProofRequest, CancelProofRequest, EvictSrsRequest, GetMetricsRequest, ListJobsRequest,
    PreloadSrsRequest, Priority, ProveRequest, SubmitProofRequest,
};
use tokio::task::JoinSet;
use tonic::{Code, Request};

use super::requests::{other_window, prove, window};
use super::rig::{in_progress, status, wait_status, Setup};

/// Two seconds and a half more for the first partition that a device begins.
const SLOW_FIRST: &str = "sim:1;0:delay(2500ms)@1.sum_h";

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_comes_back_verified_and_a_known_one_at_once() {
    let daemon = Setup::new("sim:2").start().await;
    let mut client = daemon.client().await;
    let first = client.prove(prove(window("a"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(first.status(), End::Completed, "{first:?}");
    assert_eq!((first.job_id.as_str(), first.proof.len()), ("a", 192));
    assert!(first.total_ms > 0 && first.synthesis_ms > 0 && first.devices.len() == 1, "{first:?}");
    let again = client.prove(prove(window("a"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(again.proof, first.proof);
    let status = status(&mut client).await;
    assert_eq!(status.totals.unwrap().dispatched, 1);
    assert_eq!((status.total_proofs_completed, status.total_proofs_failed), (1, 0));
    // As Curio sums them.
    assert_eq!(status.queues.iter().map(|queue| queue.pending + queue.in_progress).sum::<u32>(), 0);
    let kinds: Vec<&str> = status.queues.iter().map(|queue| queue.proof_kind.as_str()).collect();
    assert_eq!(kinds, ["porep-c2", "snap-update", "window-post", "winning-post"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_with_different_inputs_are_two_jobs_with_two_names() {
    let daemon = Setup::new("sim:2").start().await;
    let mut client = daemon.client().await;
    let mut submit = async |request| client.submit_proof(request).await.unwrap().into_inner();
    let id = "wdpost-1000-0-[1 2 3 4 5 6 7 8]";
    let first = submit(window(id)).await;
    let second = submit(other_window(id)).await;
    let first_again = submit(window(id)).await;
    assert_eq!(first.job_id, id);
    assert!(second.job_id.starts_with(id) && second.job_id != id, "{second:?}");
    assert_eq!((first_again.job_id.as_str(), first_again.attached), (id, true));
    let unnamed = submit(window("")).await;
    assert!(!unnamed.job_id.is_empty());
    let mut proofs = Vec::new();
    for job_id in [first.job_id, second.job_id, unnamed.job_id] {
        let waited =
            client.await_proof(AwaitProofRequest { job_id, timeout_ms: 0 }).await.unwrap().into_inner();
        assert_eq!(waited.status(), End::Completed, "{waited:?}");
        proofs.push(waited.proof);
    }
    assert_ne!(proofs[0], proofs[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_who_goes_away_cancels_and_may_come_back() {
    let daemon = Setup::new(SLOW_FIRST).start().await;
    let mut client = daemon.client().await;
    // A deadline: the same code, whoever's clock was first.
    let mut request = Request::new(prove(window("deadline")));
    request.set_timeout(Duration::from_secs(1));
    let error = client.prove(request).await.unwrap_err();
    assert!(matches!(error.code(), Code::DeadlineExceeded | Code::Cancelled), "{error}");
    let gone = |status: &cuzk_wire::v1::GetStatusResponse| {
        let totals = status.totals.unwrap();
        status.jobs == 0 && totals.cancelled + totals.failed == 1
    };
    wait_status(&mut client, gone).await;
    let again = client.prove(prove(window("deadline"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(again.status(), End::Completed, "{again:?}");
    assert!(!daemon.log_text().contains("panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_a_job_goes_on_for_whoever_still_waits() {
    let daemon = Setup::new(SLOW_FIRST).start().await;
    let mut client = daemon.client().await;
    let call = || {
        let mut client = client.clone();
        async move { client.prove(prove(window("shared"))).await }
    };
    let (leaves, stays) = (tokio::spawn(call()), tokio::spawn(call()));
    wait_status(&mut client, |status| status.totals.unwrap().attached == 1 && in_progress(status) == 1).await;
    leaves.abort();
    let result = stays.await.unwrap().unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Completed, "{result:?}");
    assert_eq!(status(&mut client).await.totals.unwrap().cancelled, 0);
    // Alone, it takes its job along.
    let alone = Setup::new(SLOW_FIRST).start().await;
    let mut client = alone.client().await;
    let mut other = client.clone();
    let leaves = tokio::spawn(async move { other.prove(prove(window("alone"))).await });
    wait_status(&mut client, |status| in_progress(status) == 1).await;
    leaves.abort();
    wait_status(&mut client, |status| status.totals.unwrap().cancelled == 1 && status.jobs == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_is_defined_in_every_state() {
    let daemon = Setup::new(SLOW_FIRST).start().await;
    let mut client = daemon.client().await;
    client.submit_proof(window("runs")).await.unwrap();
    wait_status(&mut client, |status| in_progress(status) == 1).await;
    client.submit_proof(other_window("waits")).await.unwrap();
    let mut cancel = async |job_id: &str| {
        let request = CancelProofRequest { job_id: job_id.to_owned() };
        let answer = client.cancel_proof(request).await.unwrap().into_inner();
        (answer.was_running, answer.was_known, answer.had_ended)
    };
    assert_eq!(cancel("waits").await, (false, true, false));
    assert_eq!(cancel("runs").await, (true, true, false));
    assert_eq!(cancel("runs").await, (false, true, true));
    assert_eq!(cancel("never").await, (false, false, false));
    let request = AwaitProofRequest { job_id: "runs".into(), timeout_ms: 0 };
    assert_eq!(client.await_proof(request).await.unwrap().into_inner().status(), End::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_are_those_that_callers_know() {
    let daemon = Setup::new(SLOW_FIRST).start().await;
    let mut client = daemon.client().await;
    let code = client.prove(ProveRequest { submit: None }).await.unwrap_err().code();
    assert_eq!(code, Code::InvalidArgument);
    for proof_kind in [0, 9, -1] {
        let bad = SubmitProofRequest { proof_kind, ..window("bad") };
        assert_eq!(client.prove(prove(bad.clone())).await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(client.submit_proof(bad).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let unknown = AwaitProofRequest { job_id: "unknown".into(), timeout_ms: 0 };
    assert_eq!(client.await_proof(unknown).await.unwrap_err().code(), Code::NotFound);
    client.submit_proof(window("slow")).await.unwrap();
    let soon = AwaitProofRequest { job_id: "slow".into(), timeout_ms: 50 };
    assert_eq!(client.await_proof(soon).await.unwrap().into_inner().status(), End::Timeout);
    // Contradictory sizes: both are named. Zero: taken from what says it.
    let contradiction = SubmitProofRequest { sector_size: 8 << 20, ..window("contradiction") };
    let result = client.prove(prove(contradiction)).await.unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Failed);
    assert!(result.error_message.contains("8388608") && result.error_message.contains("2KiB"), "{result:?}");
    // A version that nobody knows is refused by name.
    let unsupported = SubmitProofRequest { registered_proof: 99, sector_size: 0, ..window("unsupported") };
    let error = client.prove(prove(unsupported)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("99"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b50_many_calls_at_once_and_status_never_waits() {
    const CALLS: usize = 32;
    let daemon = Setup::new("sim:2").start().await;
    let mut client = daemon.client().await;
    let mut calls = JoinSet::new();
    for index in 0..CALLS {
        let mut client = client.clone();
        calls.spawn(async move {
            let answer = client.prove(prove(window(&format!("call-{index}")))).await;
            answer.unwrap().into_inner().result.unwrap()
        });
    }
    let mut waits = Vec::new();
    let mut completed = 0;
    while completed < CALLS {
        let asked = Instant::now();
        status(&mut client).await;
        waits.push(asked.elapsed());
        tokio::select! {
            Some(result) = calls.join_next() => {
                assert_eq!(result.unwrap().status(), End::Completed);
                completed += 1;
            }
            () = super::rig::pause() => {}
        }
    }
    waits.sort_unstable();
    let p99 = waits[(waits.len() * 99).div_ceil(100) - 1];
    println!("GetStatus under {CALLS} proofs: {} calls, p99 {p99:?}", waits.len());
    assert!(p99 < Duration::from_millis(50), "{p99:?} of {}", waits.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn b58_a_running_job_and_its_key_are_in_the_status_and_on_every_path_of_http() {
    let mut setup = Setup::new(SLOW_FIRST);
    setup.daemon = "status_listen = \"127.0.0.1:0\"".to_owned();
    let daemon = setup.start().await;
    let mut client = daemon.client().await;
    client.submit_proof(window("seen")).await.unwrap();
    // Its upload comes first; then it stands still for a while.
    let is_hot = |srs: &cuzk_wire::v1::SrsStatus| srs.tier() == cuzk_wire::v1::srs_status::Tier::Hot;
    let status =
        wait_status(&mut client, |status| in_progress(status) == 1 && status.loaded_srs.iter().any(is_hot))
            .await;
    let queue = status.queues.iter().find(|queue| queue.proof_kind == "window-post").unwrap();
    assert_eq!((queue.pending, queue.in_progress), (0, 1));
    assert_eq!(status.gpus[0].current_job_id, "seen");
    assert_eq!(status.gpus[0].current_proof_kind, "window-post");
    let srs = status.loaded_srs.iter().find(|srs| srs.circuit_id == "wpost-2k").unwrap();
    assert!(is_hot(srs), "{srs:?}");
    assert!(srs.size_bytes > 1 << 20 && srs.ref_count == 1, "{srs:?}");
    let jobs = client.list_jobs(ListJobsRequest {}).await.unwrap().into_inner().jobs;
    assert_eq!((jobs[0].job_id.as_str(), jobs[0].state.as_str()), ("seen", "running"));
    assert_eq!(jobs[0].priority(), Priority::High);
    let (code, text) = daemon.http("/status");
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &said["jobs"][0]["request_id"]), (200, &"seen".into()), "{text}");
    let (code, metrics) = daemon.http("/metrics");
    let in_progress = "cuzk_partitions_in_progress{kind=\"window-post\",priority=\"high\"} 1";
    assert!(code == 200 && metrics.contains(in_progress), "{metrics}");
    let is_hot = |line: &str| line.starts_with("cuzk_srs_bytes{circuit=\"wpost-2k\",tier=\"hot\"");
    let hot = metrics.lines().find(|line| is_hot(line)).expect("its key is on the device");
    assert!(hot.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 1e6, "{hot}");
    let by_grpc = client.get_metrics(GetMetricsRequest {}).await.unwrap().into_inner().prometheus_text;
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect()
    };
    assert_eq!(names(&by_grpc), names(&metrics));
    assert_eq!([daemon.http("/healthz").0, daemon.http("/readyz").0], [200, 200]);
    let (code, page) = daemon.http("/");
    assert!(code == 200 && page.contains("<!doctype html>"), "{page}");
    for path in ["/health", "/healthz/", "/metrics/x", "/index.html"] {
        assert_eq!(daemon.http(path).0, 404, "{path}");
    }
    // In use: it stays.
    let evict = EvictSrsRequest { circuit_id: "wpost-2k".into() };
    assert_eq!(client.evict_srs(evict).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_before_they_are_needed_and_go_when_told() {
    let daemon = Setup::new("sim:1").start().await;
    let mut client = daemon.client().await;
    let preload = || PreloadSrsRequest { circuit_id: "wpost-2k".into(), ..Default::default() };
    let first = client.preload_srs(preload()).await.unwrap().into_inner();
    assert!(!first.already_loaded && first.host_bytes > 0, "{first:?}");
    assert!(client.preload_srs(preload()).await.unwrap().into_inner().already_loaded);
    let evict = || EvictSrsRequest { circuit_id: "wpost-2k".into() };
    let evicted = client.evict_srs(evict()).await.unwrap().into_inner();
    assert!(evicted.was_loaded && evicted.freed_bytes >= first.host_bytes, "{evicted:?}");
    assert!(!client.evict_srs(evict()).await.unwrap().into_inner().was_loaded);
    let unknown = PreloadSrsRequest { circuit_id: "porep-3g".into(), ..Default::default() };
    assert_eq!(client.preload_srs(unknown).await.unwrap_err().code(), Code::InvalidArgument);
    // There is no such file: said at once, and the daemon goes on.
    let missing = PreloadSrsRequest { circuit_id: "porep-2k".into(), ..Default::default() };
    let error = client.preload_srs(missing).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
}
