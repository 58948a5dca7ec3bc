//! The six shapes in which real callers send requests, and garbage in each of their fields.

use base64::Engine as _;
use cuzk_wire::v1::await_proof_response::Status as End;
use cuzk_wire::v1::{AwaitProofResponse, SubmitProofRequest};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::requests::{prove, recorded, window, winning};
use super::rig::{wait_status, Client, Setup};

async fn result(client: &mut Client, submit: SubmitProofRequest) -> AwaitProofResponse {
    client.prove(prove(submit)).await.unwrap().into_inner().result.unwrap()
}

/// The request was read and its inputs hold: what is missing is the circuit's parameter file, which is too large for a test.
#[track_caller]
fn assert_was_read(result: &AwaitProofResponse, circuit: &str) {
    assert_eq!(result.status(), End::Failed);
    let expected = format!("not found for circuit {circuit}");
    assert!(result.error_message.contains(&expected), "{result:?}");
}

/// The C1 in the wrapper that callers send, as Go writes it.
fn wrapped(c1: &[u8], sector_number: u64, sector_size: u64) -> Vec<u8> {
    let inner = base64::engine::general_purpose::STANDARD.encode(c1);
    format!("{{\"SectorNum\":{sector_number},\"Phase1Out\":\"{inner}\",\"SectorSize\":{sector_size}}}")
        .into_bytes()
}

/// The same JSON with its keys in another order, as another language writes it.
fn reordered(c1: &[u8]) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_slice(c1).unwrap();
    let object = value.as_object().unwrap();
    let mut fields: Vec<String> = object.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    fields.sort();
    fields.reverse();
    format!("{{{}}}", fields.join(",")).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_of_real_callers_is_read() {
    let daemon = Setup::new("sim:2").start().await;
    let mut client = daemon.client().await;
    // 1, 2: PoRep, bare and wrapped; its size may be left to the C1, and another language may have written it.
    let in_wrapper = recorded("porep-2k/sector-1", 0, "porep-6413-801282");
    assert_was_read(&result(&mut client, in_wrapper.clone()).await, "porep-2k");
    let bare: &[u8] = include_bytes!("../data/filecoin/porep-2k/sector-1/c1.json");
    let porep = SubmitProofRequest { vanilla_proof: bare.into(), sector_number: 801_282, ..in_wrapper };
    assert_was_read(&result(&mut client, porep.clone()).await, "porep-2k");
    let other = SubmitProofRequest {
        vanilla_proof: reordered(&porep.vanilla_proof).into(),
        sector_size: 0,
        ..porep.clone()
    };
    assert_was_read(&result(&mut client, other).await, "porep-2k");
    let wrapper = wrapped(&reordered(&porep.vanilla_proof), porep.sector_number, 2048);
    let in_wrapper = SubmitProofRequest { vanilla_proof: wrapper.into(), sector_size: 0, ..porep.clone() };
    assert_was_read(&result(&mut client, in_wrapper).await, "porep-2k");
    // 3: SnapDeals.
    let snap = recorded("snap-2k/sector-1", 0, "snap-1000-1");
    assert_was_read(&result(&mut client, snap).await, "snap-2k");
    // 4: WindowPoSt, two partitions of a deadline under one name and both with partition_index 0, at once.
    let name = "wdpost-1000-0-[101 2 3 4 5 6 7 8]";
    let (mut one, mut two) = (client.clone(), client.clone());
    let partitions = [recorded("window-2k/two-partitions", 0, name), window(name)];
    assert!(partitions.iter().all(|partition| partition.partition_index == 0));
    let [first, second] = partitions;
    let (first, second) = tokio::join!(result(&mut one, first), result(&mut two, second));
    assert_eq!((first.status(), second.status()), (End::Completed, End::Completed), "{first:?} {second:?}");
    assert_ne!(first.proof, second.proof);
    assert_ne!(first.job_id, second.job_id);
    // 5: WindowPoSt V1_1, whose number is 10 to 14 on the caller's side.
    let v1_1 = window("wdpost-1000-1-[1 2 3 4 5 6 7 8]");
    assert_eq!(result(&mut client, v1_1).await.status(), End::Completed);
    // 6: WinningPoSt, without a name and without a size.
    let unnamed = SubmitProofRequest { sector_size: 0, ..winning("") };
    let unnamed = result(&mut client, unnamed).await;
    assert_eq!(unnamed.status(), End::Completed);
    assert!(!unnamed.job_id.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn b61_the_reason_of_a_failed_proof_reaches_its_caller() {
    let daemon = Setup::new("sim:1").start().await;
    let mut client = daemon.client().await;
    let mut damaged = winning("damaged");
    let mut bytes = damaged.vanilla_proofs[0].to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    damaged.vanilla_proofs[0] = bytes.into();
    let failed = result(&mut client, damaged).await;
    assert_eq!(failed.status(), End::Failed);
    assert_eq!(failed.error_class, "caller");
    assert!(failed.error_message.starts_with("vanilla proof"), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b62_garbage_in_any_field_is_answered() {
    let mut setup = Setup::new("sim:1");
    // Without parameters what is no garbage after all fails too, and takes no proof.
    setup.params = setup.dir.path().display().to_string();
    let daemon = setup.start().await;
    let mut client = daemon.client().await;
    let named = [
        ("randomness", SubmitProofRequest { randomness: vec![1; 31].into(), ..winning("r") }),
        ("randomness", SubmitProofRequest { randomness: vec![0xff; 32].into(), ..winning("r") }),
        ("comm_r_new", {
            SubmitProofRequest { comm_r_new: vec![1; 33].into(), ..recorded("snap-2k/sector-1", 0, "s") }
        }),
        ("comm_d_new", {
            SubmitProofRequest { comm_d_new: vec![0xff; 32].into(), ..recorded("snap-2k/sector-1", 0, "s") }
        }),
        ("vanilla_proofs", SubmitProofRequest { vanilla_proofs: Vec::new(), ..winning("v") }),
        ("vanilla_proof", SubmitProofRequest { vanilla_proof: b"{}".to_vec().into(), ..winning("v") }),
        ("priority", SubmitProofRequest { priority: 77, ..winning("p") }),
        ("request_id", winning(&"x".repeat(10_000))),
        ("request_id", winning("line\nbreak")),
    ];
    for (field, submit) in named {
        let failed = result(&mut client, submit).await;
        assert_eq!(failed.status(), End::Failed, "{field}: {failed:?}");
        assert!(failed.error_message.contains(field), "{field}: {failed:?}");
    }
    // Whatever else: an answer of any kind, and no crash.
    let seed = 62;
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let bases = [
        winning("g"),
        window("g"),
        recorded("snap-2k/sector-1", 0, "g"),
        recorded("porep-2k/sector-1", 0, "g"),
    ];
    for round in 0..120 {
        let garbage = garbage(&bases[round % bases.len()], &mut rng);
        if let Ok(answer) = client.prove(prove(garbage)).await {
            let result = answer.into_inner().result.unwrap();
            assert_ne!(result.status(), End::Unknown, "seed {seed} round {round}");
        }
    }
    wait_status(&mut client, |status| status.jobs == 0).await;
}

/// One field or two of the request replaced or damaged.
fn garbage(base: &SubmitProofRequest, rng: &mut ChaCha20Rng) -> SubmitProofRequest {
    let mut request = base.clone();
    let bytes = |rng: &mut ChaCha20Rng| -> Vec<u8> {
        let length = rng.gen_range(0..70);
        (0..length).map(|_| rng.gen()).collect()
    };
    for _ in 0..rng.gen_range(1..3) {
        match rng.gen_range(0..12) {
            0 => request.sector_size = rng.gen(),
            1 => request.registered_proof = rng.gen_range(0..40),
            2 => request.priority = rng.gen(),
            3 => request.vanilla_proof = bytes(rng).into(),
            4 => request.vanilla_proofs = (0..rng.gen_range(0..4)).map(|_| bytes(rng).into()).collect(),
            5 => request.sector_number = rng.gen(),
            6 => request.randomness = bytes(rng).into(),
            7 => request.partition_index = rng.gen(),
            8 => request.comm_r_old = bytes(rng).into(),
            9 => request.proof_kind = rng.gen_range(0..6),
            10 => {
                // A bit of a real proof.
                let target = request.vanilla_proofs.first_mut().unwrap_or(&mut request.vanilla_proof);
                let mut damaged = target.to_vec();
                if !damaged.is_empty() {
                    let at = rng.gen_range(0..damaged.len());
                    damaged[at] ^= 1 << rng.gen_range(0..8);
                }
                *target = damaged.into();
            }
            _ => {
                let target = request.vanilla_proofs.first_mut().unwrap_or(&mut request.vanilla_proof);
                *target = target.slice(..rng.gen_range(0..=target.len()));
            }
        }
    }
    request
}
