//! What must be refused: a typed error that names what is wrong and where, and no panic.

use base64::Engine as _;
use cuzk::circuits::{catch_panic, CustomCircuit, FilecoinRequest, SrsSource};
use cuzk::error::{RequestError, SynthesisError};
use cuzk::ids::CircuitId;
use serde_json::{json, Value};

use crate::common::{decode, refusal, request, Fixture};

/// The request must be refused with all `parts` in the message.
fn assert_refused(request: FilecoinRequest, parts: &[&str]) -> RequestError {
    let error = refusal(request);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    error
}

// --- PoRep ---------------------------------------------------------------------------------------------------

const PROOFS: &str = "StackedDrg2KiBV1";

fn porep() -> FilecoinRequest {
    request("porep-2k/sector-1")
}

fn c1() -> Value {
    let dir = Fixture::open("porep-2k/sector-1").dir;
    serde_json::from_slice(&std::fs::read(dir.join("c1.json")).unwrap()).unwrap()
}

/// The PoRep request with a changed C1, bare.
fn with_c1(change: impl FnOnce(&mut Value)) -> FilecoinRequest {
    let mut c1 = c1();
    change(&mut c1);
    FilecoinRequest { vanilla_proof: serde_json::to_vec(&c1).unwrap(), ..porep() }
}

/// The same with a change to challenge 1 of partition 0.
fn with_challenge(change: impl FnOnce(&mut Value)) -> FilecoinRequest {
    with_c1(|c1| change(&mut c1["vanilla_proofs"][PROOFS][0][1]))
}

/// The PoRep request in a changed wrapper.
fn with_wrapper(change: impl FnOnce(&mut Value)) -> FilecoinRequest {
    let phase1_out = base64::engine::general_purpose::STANDARD.encode(serde_json::to_vec(&c1()).unwrap());
    let mut wrapper =
        json!({"SectorNum": porep().sector_number, "Phase1Out": phase1_out, "SectorSize": 2048});
    change(&mut wrapper);
    FilecoinRequest { vanilla_proof: serde_json::to_vec(&wrapper).unwrap(), ..porep() }
}

/// Flips the lowest bit of a JSON node's byte.
fn flip(node: &mut Value, byte: usize) {
    node[byte] = json!(node[byte].as_u64().unwrap() ^ 1);
}

#[test]
fn a_c1_cut_anywhere_is_refused() {
    let whole = porep().vanilla_proof;
    for length in [0, 1, 30, whole.len() / 2, whole.len() - 1] {
        let cut = FilecoinRequest { vanilla_proof: whole[..length].to_vec(), ..porep() };
        assert!(refusal(cut).to_string().contains(if length == 0 {
            "vanilla_proof: is empty"
        } else {
            "C1"
        }));
    }
    let bare = serde_json::to_vec(&c1()).unwrap();
    for length in [1, 5_000, bare.len() - 1] {
        let cut = FilecoinRequest { vanilla_proof: bare[..length].to_vec(), ..porep() };
        assert_refused(cut, &["vanilla proof C1", "EOF while parsing", "column"]);
    }
    // Cut within the wrapper's base64: the wrapper is whole, the C1 in it is not.
    let cut = with_wrapper(|wrapper| {
        let text = wrapper["Phase1Out"].as_str().unwrap();
        wrapper["Phase1Out"] = json!(text[..4 * (text.len() / 8)]);
    });
    assert_refused(cut, &["C1", "EOF while parsing"]);
}

#[test]
fn a_c1_with_more_after_it_is_refused() {
    for request in [porep(), with_c1(|_| ())] {
        let mut vanilla_proof = request.vanilla_proof.clone();
        vanilla_proof.extend_from_slice(b"{}");
        assert_refused(FilecoinRequest { vanilla_proof, ..request }, &["C1", "trailing characters"]);
    }
}

#[test]
fn what_is_no_c1_is_refused() {
    for (text, part) in [
        ("null", "invalid type: null"),
        ("[]", "invalid type: sequence"),
        ("{}", "missing field"),
        ("\u{0}", "expected value"),
        (r#"{"Phase1Out": "AA=="}"#, "missing field `SectorNum`"),
        (r#"{"Phase1Out": "A", "SectorNum": 1, "SectorSize": 2048}"#, "Phase1Out: is no base64"),
        (r#"{"Phase1Out": "", "SectorNum": -1, "SectorSize": 2048}"#, "SectorNum: -1 is negative"),
        (r#"{"Phase1Out": "", "SectorNum": 1, "SectorSize": 2048, "More": 1}"#, "unknown field `More`"),
    ] {
        assert_refused(FilecoinRequest { vanilla_proof: text.into(), ..porep() }, &[part]);
    }
}

#[test]
fn contradictions_between_request_wrapper_and_c1_name_both_sides() {
    assert_refused(
        FilecoinRequest { sector_size: 8 << 20, ..porep() },
        &["sector_size says 8388608 (8 MiB)", "C1 registered_proof says 5 (StackedDrg2KiBV1_1, 2 KiB V1_1)"],
    );
    assert_refused(FilecoinRequest { sector_size: 4096, ..porep() }, &["sector_size 4096 B is none"]);
    assert_refused(
        FilecoinRequest { registered_proof: 10, ..porep() },
        &["registered_proof says 10 (StackedDrg2KiBV1_1_Feat_SyntheticPoRep", "C1 registered_proof says 5"],
    );
    assert_refused(
        FilecoinRequest { sector_number: 7, ..porep() },
        &["sector_number says 7", "C1 wrapper SectorNum says 801282"],
    );
    assert_refused(
        with_wrapper(|wrapper| wrapper["SectorSize"] = json!(8 << 20)),
        &["C1 wrapper SectorSize says 8388608", "sector size of the C1 says 2048"],
    );
    assert_refused(
        with_wrapper(|wrapper| wrapper["SectorNum"] = json!(801_283)),
        &["sector_number says 801282", "C1 wrapper SectorNum says 801283"],
    );
    assert_refused(
        with_c1(|c1| c1["vanilla_proofs"] = json!({"StackedDrg8MiBV1": c1["vanilla_proofs"][PROOFS]})),
        &["C1 registered_proof says StackedDrg2KiBV1_1", "vanilla_proofs says StackedDrg8MiBV1"],
    );
}

#[test]
fn b39_unknown_and_unsupported_poreps_are_refused_by_name() {
    for name in ["StackedDrg4KiBV1_1", "StackedDrg2KiBV1_2", "", "stackeddrg2kibv1_1"] {
        let error = assert_refused(with_c1(|c1| c1["registered_proof"] = json!(name)), &[name]);
        assert!(matches!(error, RequestError::Unsupported { .. }), "{error:?}");
    }
    for (name, size, version) in [
        ("StackedDrg32GiBV1_1", "32 GiB", "V1_1"),
        ("StackedDrg64GiBV1_2_Feat_NonInteractivePoRep", "64 GiB", "V1_2 non-interactive"),
    ] {
        let named = FilecoinRequest {
            registered_proof: 0,
            sector_size: 0,
            ..with_c1(|c1| c1["registered_proof"] = json!(name))
        };
        let error = assert_refused(named, &[size, version]);
        assert!(matches!(error, RequestError::Unsupported { .. }), "{error:?}");
    }
    let error = assert_refused(
        FilecoinRequest { registered_proof: 20, ..porep() },
        &["registered_proof 20 ", "0 to 19"],
    );
    assert!(matches!(error, RequestError::Unsupported { .. }), "{error:?}");
}

#[test]
fn another_miner_sector_ticket_or_version_yields_another_replica_id() {
    assert_refused(
        FilecoinRequest { miner_id: 6414, ..porep() },
        &["C1 replica_id says a167d942", "miner_id 6414, sector_number 801282"],
    );
    // A bare C1 does not say its sector.
    assert_refused(FilecoinRequest { sector_number: 801_283, ..with_c1(|_| ()) }, &["replica_id", "801283"]);
    assert_refused(with_c1(|c1| flip(&mut c1["ticket"], 0)), &["replica_id"]);
    assert_refused(with_c1(|c1| flip(&mut c1["comm_d"], 0)), &["replica_id"]);
    assert_refused(with_c1(|c1| flip(&mut c1["replica_id"], 0)), &["replica_id"]);
    let synthetic = FilecoinRequest {
        registered_proof: 0,
        ..with_c1(|c1| c1["registered_proof"] = json!("StackedDrg2KiBV1_1_Feat_SyntheticPoRep"))
    };
    assert_refused(synthetic, &["replica_id"]);
}

#[test]
fn another_seed_or_comm_r_does_not_fit_the_proofs() {
    assert_refused(with_c1(|c1| flip(&mut c1["seed"], 0)), &["partition 0 challenge 0", "challenge is node"]);
    assert_refused(with_c1(|c1| flip(&mut c1["comm_r"], 0)), &["partition 0: comm_r is not the hash"]);
    for field in ["seed", "comm_d", "comm_r"] {
        assert_refused(with_c1(|c1| c1[field] = json!(vec![0; 32])), &[field, "is all zeros"]);
    }
}

#[test]
fn a_flipped_bit_in_a_porep_path_is_found_where_it_is() {
    let path = |proof: &mut Value| proof["data"]["Single"]["path"]["path"].take();
    for depth in [0, 1, 5] {
        let flipped = with_challenge(|challenge| {
            let proof = &mut challenge["comm_d_proofs"];
            flip(&mut proof["data"]["Single"]["path"]["path"][depth]["hashes"][0], 3);
        });
        assert_refused(
            flipped,
            &["partition 0 challenge 1 comm_d path", "does not lead from its leaf to its root"],
        );
    }
    for depth in [0, 1] {
        let flipped = with_challenge(|challenge| {
            flip(
                &mut challenge["comm_r_last_proof"]["data"]["Single"]["path"]["path"][depth]["hashes"][6],
                9,
            );
        });
        assert_refused(flipped, &["partition 0 challenge 1 comm_r_last path", "does not lead"]);
        for (parents, parent) in [("drg_parents", 5), ("exp_parents", 7)] {
            let flipped = with_challenge(|challenge| {
                let column = &mut challenge["replica_column_proofs"][parents][parent];
                let single = &mut column["inclusion_proof"]["data"]["Single"];
                flip(&mut single["path"]["path"][depth]["hashes"][2], 0);
            });
            let place = format!("partition 0 challenge 1 column {parents}[{parent}]");
            assert_refused(flipped, &[&place]);
        }
    }
    for (part, place) in
        [("root", "partition 0 challenge 1 comm_d path"), ("leaf", "partition 0 challenge 1 comm_d path")]
    {
        let flipped =
            with_challenge(|challenge| flip(&mut challenge["comm_d_proofs"]["data"]["Single"][part], 0));
        assert_refused(flipped, &[place]);
    }
    let row = with_challenge(|challenge| {
        flip(&mut challenge["replica_column_proofs"]["c_x"]["column"]["rows"][1], 0);
    });
    assert_refused(row, &["partition 0 challenge 1 column c_x", "rows do not hash"]);
    let empty = with_challenge(|challenge| {
        path(&mut challenge["comm_d_proofs"]);
        challenge["comm_d_proofs"]["data"]["Single"]["path"]["path"] = json!([]);
    });
    assert_refused(empty, &["partition 0 challenge 1 comm_d path", "needs 6 levels, has 0"]);
}

#[test]
fn parts_of_a_c1_in_other_numbers_are_refused() {
    let remove = |value: &mut Value| {
        value.as_array_mut().unwrap().pop();
    };
    assert_refused(
        with_c1(|c1| c1["vanilla_proofs"][PROOFS] = json!([])),
        &["C1: needs 1 partitions, has 0"],
    );
    assert_refused(
        with_c1(|c1| {
            let partition = c1["vanilla_proofs"][PROOFS][0].clone();
            c1["vanilla_proofs"][PROOFS].as_array_mut().unwrap().push(partition);
        }),
        &["C1: needs 1 partitions, has 2"],
    );
    assert_refused(
        with_c1(|c1| remove(&mut c1["vanilla_proofs"][PROOFS][0])),
        &["partition 0: needs 2 challenges, has 1"],
    );
    assert_refused(
        with_challenge(|challenge| challenge["labeling_proofs"] = json!([])),
        &["partition 0 challenge 1: needs 2 labeling_proofs, has 0"],
    );
    assert_refused(
        with_challenge(|challenge| challenge["labeling_proofs"][0]["node"] = json!(1)),
        &["partition 0 challenge 1 labeling_proofs", "is of node 1"],
    );
    for (parents, needs) in [("drg_parents", 6), ("exp_parents", 8)] {
        let missing = with_challenge(|challenge| remove(&mut challenge["replica_column_proofs"][parents]));
        let what = format!("partition 0 challenge 1: needs {needs} {parents}, has {}", needs - 1);
        assert_refused(missing, &[&what]);
    }
    assert_refused(
        with_challenge(|challenge| remove(&mut challenge["replica_column_proofs"]["c_x"]["column"]["rows"])),
        &["partition 0 challenge 1 column c_x: needs 2 rows, has 1"],
    );
    let level =
        |challenge: &mut Value| challenge["comm_r_last_proof"]["data"]["Single"]["path"]["path"][1].take();
    assert_refused(with_challenge(|challenge| drop(level(challenge))), &["C1", "invalid type: null"]);
    assert_refused(
        with_challenge(|challenge| {
            let single = &mut challenge["comm_r_last_proof"]["data"]["Single"];
            remove(&mut single["path"]["path"][1]["hashes"]);
        }),
        &["partition 0 challenge 1 comm_r_last path level 1: needs 7 siblings, has 6"],
    );
    assert_refused(
        with_challenge(|challenge| {
            challenge["comm_r_last_proof"]["data"]["Single"]["path"]["path"][0]["index"] = json!(8);
        }),
        &["comm_r_last path level 0: index 8 is not below the arity 8"],
    );
    assert_refused(
        with_challenge(|challenge| {
            let single = challenge["comm_d_proofs"]["data"]["Single"].take();
            challenge["comm_d_proofs"]["data"] = json!({"Sub": single});
        }),
        &["unknown variant `Sub`"],
    );
    assert_refused(
        with_c1(|c1| remove(&mut c1["comm_r"])),
        &["C1", "invalid length 31, expected an array of length 32"],
    );
}

#[test]
fn swapped_and_repeated_partitions_of_a_c1_are_refused() {
    let fixture = Fixture::open("porep-2k/noninteractive-1");
    let text = std::fs::read(fixture.dir.join("c1.json")).unwrap();
    for (from, to) in [(3, 7), (0, 1)] {
        let mut c1: Value = serde_json::from_slice(&text).unwrap();
        let partitions = c1["vanilla_proofs"][PROOFS].as_array_mut().unwrap();
        partitions.swap(from, to);
        let swapped =
            FilecoinRequest { vanilla_proof: serde_json::to_vec(&c1).unwrap(), ..fixture.request(0) };
        assert_refused(swapped, &[&format!("partition {from} challenge 0"), "challenge is node"]);
        let partitions = c1["vanilla_proofs"][PROOFS].as_array_mut().unwrap();
        partitions[to] = partitions[from].clone();
        let repeated =
            FilecoinRequest { vanilla_proof: serde_json::to_vec(&c1).unwrap(), ..fixture.request(0) };
        assert_refused(repeated, &["challenge is node"]);
        let partitions = c1["vanilla_proofs"][PROOFS].as_array_mut().unwrap();
        partitions.remove(from);
        let missing =
            FilecoinRequest { vanilla_proof: serde_json::to_vec(&c1).unwrap(), ..fixture.request(0) };
        assert_refused(missing, &["C1: needs 13 partitions, has 12"]);
    }
}

#[test]
fn nodes_that_are_no_field_elements_are_refused() {
    let max = json!(vec![255; 32]);
    for field in ["comm_r", "comm_d", "replica_id"] {
        assert_refused(with_c1(|c1| c1[field] = max.clone()), &["C1", field, "no canonical field element"]);
    }
    let sibling = with_challenge(|challenge| {
        challenge["comm_r_last_proof"]["data"]["Single"]["path"]["path"][0]["hashes"][4] = max.clone();
    });
    assert_refused(
        sibling,
        &["challenge 1 comm_r_last path level 0", "sibling ffff", "no canonical field element"],
    );
    let row = with_challenge(|challenge| {
        challenge["replica_column_proofs"]["exp_parents"][0]["column"]["rows"][0] = max.clone();
    });
    assert_refused(row, &["column exp_parents[0]", "no canonical field element"]);
    let number =
        with_challenge(|challenge| challenge["comm_d_proofs"]["data"]["Single"]["leaf"][0] = json!(256));
    assert_refused(number, &["C1", "invalid value: integer `256`, expected u8"]);
}

// --- PoSt ----------------------------------------------------------------------------------------------------

fn window() -> FilecoinRequest {
    request("window-2k/full-partition")
}

fn winning() -> FilecoinRequest {
    request("winning-2k/sector-1")
}

/// Where a sector proof's parts are: id, comm_r, two counts; then paths of 556 B in sectors of 2 KiB.
const PATHS: usize = 56;
const PATH_BYTES: usize = 556;
const LEVELS: usize = 76;
const LEVEL_BYTES: usize = 240;

fn changed(request: FilecoinRequest, proof: usize, change: impl FnOnce(&mut Vec<u8>)) -> FilecoinRequest {
    let mut request = request;
    change(&mut request.vanilla_proofs[proof]);
    request
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

#[test]
fn wrong_lengths_of_randomness_and_commitments_are_named() {
    for length in [0, 31, 33] {
        let has = format!("needs 32 B, has {length} B");
        let short = |request| FilecoinRequest { randomness: vec![0; length], ..request };
        assert_refused(short(window()), &["randomness", &has]);
        assert_refused(short(winning()), &["randomness", &has]);
        let snap = || request("snap-2k/sector-1");
        let bytes = vec![0; length];
        assert_refused(FilecoinRequest { comm_r_old: bytes.clone(), ..snap() }, &["comm_r_old", &has]);
        assert_refused(FilecoinRequest { comm_r_new: bytes.clone(), ..snap() }, &["comm_r_new", &has]);
        assert_refused(FilecoinRequest { comm_d_new: bytes, ..snap() }, &["comm_d_new", &has]);
    }
    let snap = FilecoinRequest { comm_d_new: vec![255; 32], ..request("snap-2k/sector-1") };
    assert_refused(snap, &["comm_d_new", "no canonical field element"]);
    for bits in [0x40, 0x80, 0xc0] {
        let mut set = window();
        set.randomness[31] |= bits;
        assert_refused(set, &["randomness", "two top bits"]);
    }
}

#[test]
fn post_proofs_cut_extended_or_of_another_size_are_refused() {
    for (request, needs) in [(window(), 5680), (winning(), 36816)] {
        let cut = changed(request.clone(), 0, |proof| proof.truncate(100));
        assert_refused(cut, &["vanilla_proofs[0]", &format!("needs {needs} B for 2 KiB sectors, has 100 B")]);
        let extended = changed(request, 0, |proof| proof.push(0));
        assert_refused(extended, &["vanilla_proofs[0]", &format!("has {} B", needs + 1)]);
    }
    let other =
        FilecoinRequest { vanilla_proofs: request("window-8m/padded-partition").vanilla_proofs, ..window() };
    assert_refused(other, &["vanilla_proofs[0]: needs 5680 B", "has 15280 B, the length for 8 MiB sectors"]);
    let other = FilecoinRequest { sector_size: 8 << 20, ..winning() };
    assert_refused(
        other,
        &["sector_size says 8388608 (8 MiB)", "registered_proof says 0 (StackedDrgWinning2KiBV1"],
    );
    let other = FilecoinRequest { registered_proof: 1, sector_size: 0, ..winning() };
    assert_refused(other, &["needs 100176 B for 8 MiB sectors, has 36816 B, the length for 2 KiB sectors"]);
}

#[test]
fn huge_claimed_lengths_are_refused() {
    for count in [11, 1 << 32, 1 << 62, u64::MAX] {
        for at in [40, 48, PATHS + 68, PATHS + LEVELS] {
            let claimed = changed(window(), 1, |proof| put(proof, at, count));
            assert_refused(claimed, &["vanilla_proofs[1]"]);
        }
        for at in [32, 296, 304 + 68, 304 + LEVELS] {
            let claimed = changed(request("snap-2k/sector-1"), 0, |proof| put(proof, at, count));
            assert_refused(claimed, &["vanilla_proofs[0]"]);
        }
    }
}

#[test]
fn numbers_of_sectors_are_checked() {
    let none = |request| FilecoinRequest { vanilla_proofs: Vec::new(), ..request };
    assert_refused(none(window()), &["vanilla_proofs: needs 1 to 2", "has 0"]);
    assert_refused(none(winning()), &["vanilla_proofs: needs 1", "has 0"]);
    let mut three = window();
    three.vanilla_proofs.push(request("window-2k/two-partitions").vanilla_proofs[0].clone());
    assert_refused(three, &["vanilla_proofs: needs 1 to 2", "has 3"]);
    let mut two = winning();
    two.vanilla_proofs.push(two.vanilla_proofs[0].clone());
    assert_refused(two, &["vanilla_proofs: needs 1", "has 2"]);
}

#[test]
fn repeated_and_swapped_sectors_are_refused() {
    let mut repeated = window();
    repeated.vanilla_proofs[1] = repeated.vanilla_proofs[0].clone();
    assert_refused(repeated, &["vanilla_proofs[1]", "is repeated"]);
    let mut swapped = window();
    swapped.vanilla_proofs.swap(0, 1);
    assert_refused(swapped, &["vanilla_proofs[1]", "sectors must rise"]);
}

#[test]
fn a_flipped_bit_in_a_post_path_is_found_where_it_is() {
    for (request, name, last) in [(window(), "vanilla_proofs[1]", 9), (winning(), "vanilla_proofs[0]", 65)] {
        let proof = request.vanilla_proofs.len() - 1;
        for number in [0, 4, last] {
            for level in 0..2 {
                let at = PATHS + number * PATH_BYTES + LEVELS + level * LEVEL_BYTES + 8 + 32 * 6;
                let flipped = changed(request.clone(), proof, |bytes| bytes[at] ^= 1);
                let place = format!("path {number}: does not lead from its leaf to its root");
                assert_refused(flipped, &[name, "sector", &place]);
            }
            let leaf = PATHS + number * PATH_BYTES + 36;
            let flipped = changed(request.clone(), proof, |bytes| bytes[leaf] ^= 1);
            assert_refused(flipped, &[name, &format!("path {number}: does not lead")]);
            let index = PATHS + number * PATH_BYTES + LEVELS + LEVEL_BYTES - 8;
            let flipped = changed(request.clone(), proof, |bytes| bytes[index] ^= 1);
            assert_refused(flipped, &[name, &format!("path {number}: leads to leaf"), "challenge is leaf"]);
        }
        let end = request.vanilla_proofs[proof].len();
        for at in [8, end - 64, end - 32] {
            let flipped = changed(request.clone(), proof, |bytes| bytes[at] ^= 1);
            assert_refused(flipped, &[name, "comm_r is not the hash of comm_c and comm_r_last"]);
        }
    }
}

#[test]
fn malformed_post_paths_are_refused() {
    let tag = changed(window(), 0, |proof| proof[PATHS] = 1);
    assert_refused(tag, &["vanilla_proofs[0]", "does not decode"]);
    let index = changed(window(), 0, |proof| put(proof, PATHS + LEVELS + LEVEL_BYTES - 8, 8));
    assert_refused(index, &["vanilla_proofs[0] path 0 level 0", "index 8 is not below the arity 8"]);
    let node = changed(window(), 0, |proof| proof[PATHS + 4..PATHS + 36].fill(0xff));
    assert_refused(node, &["vanilla_proofs[0] path 0: root ffff", "no canonical field element"]);
    let comm_r = changed(winning(), 0, |proof| proof[8..40].fill(0xff));
    assert_refused(comm_r, &["vanilla_proofs[0]: comm_r ffff", "no canonical field element"]);
}

#[test]
fn other_randomness_sector_or_place_asks_for_other_leaves() {
    for request in [window(), winning()] {
        let mut other = request.clone();
        other.randomness[0] ^= 1;
        assert_refused(other, &["vanilla_proofs[0] (sector ", "challenge is leaf"]);
        let number = u64::from_le_bytes(request.vanilla_proofs[0][..8].try_into().unwrap());
        let other = changed(request, 0, |proof| put(proof, 0, number - 1));
        assert_refused(other, &[&format!("(sector {})", number - 1), "challenge is leaf"]);
    }
    // Only in the legacy version do challenges depend on the partition's place.
    let second = Fixture::open("window-2k/two-partitions-v1").request(1);
    assert_refused(
        FilecoinRequest { partition_index: 0, ..second.clone() },
        &["path 0", "challenge is leaf"],
    );
    assert_refused(FilecoinRequest { partition_index: u32::MAX, ..second.clone() }, &["challenge is leaf"]);
    assert_refused(FilecoinRequest { registered_proof: 10, ..second }, &["challenge is leaf"]);
    let second = Fixture::open("window-2k/two-partitions").request(1);
    assert!(decode(FilecoinRequest { partition_index: 0, ..second }).is_ok());
}

#[test]
fn a_winning_sector_other_than_said_is_refused() {
    let other = FilecoinRequest { sector_number: 7, ..winning() };
    assert_refused(other, &["sector_number says 7", "vanilla_proofs[0] sector says 801282"]);
}

// --- SnapDeals -----------------------------------------------------------------------------------------------

/// A challenge proof of 2 KiB sectors: paths of 556, 364 and 556 B, after comm_c, eight apex leaves and two counts.
const CHALLENGES: usize = 304;
const CHALLENGE_BYTES: usize = 556 + 364 + 556;

fn snap() -> FilecoinRequest {
    request("snap-2k/sector-1")
}

#[test]
fn partitions_of_an_update_missing_swapped_or_repeated_are_refused() {
    let whole = request("snap-8m/sector-1");
    let mut missing = whole.clone();
    missing.vanilla_proofs.pop();
    assert_refused(missing, &["vanilla_proofs: needs 4 (one per partition of 8 MiB sectors), has 3"]);
    let mut swapped = whole.clone();
    swapped.vanilla_proofs.swap(1, 2);
    assert_refused(swapped, &["vanilla_proofs[1] challenge 0", "of partition 2, but is partition 1's"]);
    let mut repeated = whole.clone();
    repeated.vanilla_proofs[3] = repeated.vanilla_proofs[0].clone();
    assert_refused(repeated, &["vanilla_proofs[3] challenge 0", "of partition 0, but is partition 3's"]);
    let mut five = whole;
    five.vanilla_proofs.push(five.vanilla_proofs[0].clone());
    assert_refused(five, &["needs 4", "has 5"]);
    let small = FilecoinRequest {
        vanilla_proofs: request("snap-8m/sector-1").vanilla_proofs[..1].to_vec(),
        ..snap()
    };
    assert_refused(small, &["vanilla_proofs[0]: needs 15064 B for 2 KiB sectors, has 43864 B", "8 MiB"]);
}

#[test]
fn a_flipped_bit_in_an_update_is_found_where_it_is() {
    for challenge in [0, 9] {
        for (path, name, step, levels) in [
            (0, "old replica path", 240, 2),
            (556, "new data path", 48, 6),
            (556 + 364, "new replica path", 240, 2),
        ] {
            for level in 0..levels {
                let at = CHALLENGES + challenge * CHALLENGE_BYTES + path + LEVELS + level * step + 8;
                let flipped = changed(snap(), 0, |bytes| bytes[at] ^= 1);
                let place = format!("vanilla_proofs[0] challenge {challenge} {name}: does not lead");
                assert_refused(flipped, &[&place]);
            }
        }
    }
    let comm_c = changed(snap(), 0, |bytes| bytes[0] ^= 1);
    assert_refused(comm_c, &["vanilla_proofs[0]: comm_r_old is not the hash"]);
    let apex_leaf = changed(snap(), 0, |bytes| bytes[40] ^= 1);
    assert_refused(apex_leaf, &["vanilla_proofs[0]", "apex leaf"]);
    let node = changed(snap(), 0, |bytes| bytes[40..72].fill(0xff));
    assert_refused(node, &["vanilla_proofs[0]: apex leaf ffff", "no canonical field element"]);
}

#[test]
fn commitments_of_another_sector_are_refused() {
    let other = || request("snap-2k/sector-2");
    let swapped = FilecoinRequest { comm_r_old: snap().comm_r_new, comm_r_new: snap().comm_r_old, ..snap() };
    assert_refused(swapped, &["vanilla_proofs[0]: comm_r_old is not the hash"]);
    assert_refused(
        FilecoinRequest { comm_r_new: other().comm_r_new, ..snap() },
        &["comm_r_new is not the hash"],
    );
    assert_refused(
        FilecoinRequest { comm_d_new: other().comm_d_new, ..snap() },
        &["vanilla_proofs[0] challenge 0 new data path: ends in root"],
    );
    assert_refused(
        FilecoinRequest { vanilla_proofs: other().vanilla_proofs, ..snap() },
        &["is not the hash"],
    );
}

// --- Any kind ------------------------------------------------------------------------------------------------

#[test]
fn a_request_of_no_kind_or_with_another_kinds_fields_is_refused() {
    assert_refused(FilecoinRequest { proof_kind: None, ..porep() }, &["proof_kind: is missing"]);
    let proofs = || vec![vec![1]];
    assert_refused(
        FilecoinRequest { vanilla_proofs: proofs(), ..porep() },
        &["vanilla_proofs: is no field of POREP"],
    );
    assert_refused(
        FilecoinRequest { vanilla_proof: vec![1], ..window() },
        &["vanilla_proof: is no field of WINDOW"],
    );
    assert_refused(FilecoinRequest { randomness: vec![1], ..snap() }, &["randomness: is no field of SNAP"]);
    assert_refused(
        FilecoinRequest { comm_r_old: vec![1], ..winning() },
        &["comm_r_old: is no field of WINNING"],
    );
    assert_refused(
        FilecoinRequest { partition_index: 1, ..porep() },
        &["partition_index: is no field of POREP"],
    );
}

/// Any one byte of any PoSt or SnapDeals input, changed: refused, and never a panic (which would be "as a whole").
#[test]
fn every_byte_of_a_vanilla_proof_counts() {
    for request in [window(), snap()] {
        let length = request.vanilla_proofs[0].len();
        for at in (0..length).step_by(97) {
            let error = refusal(changed(request.clone(), 0, |bytes| bytes[at] ^= 0x80));
            let RequestError::VanillaProof { at: place, .. } = &error else { panic!("byte {at}: {error:?}") };
            assert!(place.starts_with("vanilla_proofs["), "byte {at}: {error}");
        }
    }
}

#[test]
fn a_panic_becomes_an_error_with_its_message() {
    let error = catch_panic::<()>(|| panic!("no sector {}", 7)).unwrap_err();
    assert_eq!(error, SynthesisError::Panicked("no sector 7".into()));
    let error = catch_panic::<()>(|| std::panic::panic_any(7)).unwrap_err();
    assert_eq!(error, SynthesisError::Panicked("no message".into()));
    assert_eq!(catch_panic(|| Ok(7)), Ok(7));
}

/// A circuit of no constraints.
#[derive(Clone)]
struct Empty;

impl bellpepper_core::Circuit<blstrs::Scalar> for Empty {
    fn synthesize<CS: bellpepper_core::ConstraintSystem<blstrs::Scalar>>(
        self,
        _: &mut CS,
    ) -> Result<(), bellpepper_core::SynthesisError> {
        Ok(())
    }
}

#[test]
fn custom_circuits_are_jobs_of_their_own_unless_their_statement_is_said() {
    let job = |circuit: &str| {
        let srs = SrsSource::File("empty.params".into());
        CustomCircuit::new(CircuitId::new(circuit), srs, Empty, vec![(Empty, Vec::new())])
    };
    let digest = |job: CustomCircuit<Empty>| job.into_workload().digest();
    assert_ne!(digest(job("empty")), digest(job("empty")));
    assert_eq!(digest(job("empty").with_statement(b"one")), digest(job("empty").with_statement(b"one")));
    assert_ne!(digest(job("empty").with_statement(b"one")), digest(job("empty").with_statement(b"two")));
    assert_ne!(digest(job("empty").with_statement(b"one")), digest(job("other").with_statement(b"one")));
}
