//! What outlives the process.

use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::AwaitProofRequest;

use super::requests::{other_window, prove, window};
use super::rig::{in_progress, status, wait_status, Client, Setup};

async fn wait_for(client: &mut Client, job_id: &str) -> cuzk_wire::v1::AwaitProofResponse {
    let request = AwaitProofRequest { job_id: job_id.to_owned(), timeout_ms: 0 };
    client.await_proof(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn b49_a_kill_loses_no_job_and_no_result() {
    let mut daemon = Setup::new("sim:1;0:hang@1.sum_h").start().await;
    let mut client = daemon.client().await;
    let submitted = client.submit_proof(window("job")).await.unwrap().into_inner();
    assert!(submitted.durable);
    wait_status(&mut client, |status| in_progress(status) == 1).await;
    daemon.setup.devices = "sim:1".to_owned();
    // Mid-job: it is found by its id, and by the same request.
    let daemon = daemon.kill_and_restart().await;
    let mut client = daemon.client().await;
    let by_id = wait_for(&mut client, &submitted.job_id).await;
    assert_eq!(by_id.status(), End::Completed, "{by_id:?}");
    let again = client.prove(prove(window("job"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!((again.status(), &again.proof), (End::Completed, &by_id.proof));
    assert_eq!(status(&mut client).await.totals.unwrap().dispatched, 1);
    // Finished: it is served without a device.
    let daemon = daemon.kill_and_restart().await;
    let mut client = daemon.client().await;
    let served = client.prove(prove(window("job"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(served.proof, by_id.proof);
    assert_eq!(wait_for(&mut client, &submitted.job_id).await.proof, by_id.proof);
    assert_eq!(status(&mut client).await.totals.unwrap().dispatched, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b49_job_ids_mean_the_same_after_a_restart() {
    let daemon = Setup::new("sim:1").start().await;
    let mut client = daemon.client().await;
    let first = client.submit_proof(window("same")).await.unwrap().into_inner().job_id;
    let second = client.submit_proof(other_window("same")).await.unwrap().into_inner().job_id;
    let before = [wait_for(&mut client, &first).await.proof, wait_for(&mut client, &second).await.proof];
    let daemon = daemon.kill_and_restart().await;
    let mut client = daemon.client().await;
    let after = [wait_for(&mut client, &first).await.proof, wait_for(&mut client, &second).await.proof];
    assert_eq!(before, after);
    assert_ne!(before[0], before[1]);
    assert_eq!(client.submit_proof(other_window("same")).await.unwrap().into_inner().job_id, second);
}
