//! PoRep requests that must be refused: a typed error that names what is wrong and where.

use base64::Engine as _;
use cuzk::circuits::FilecoinRequest;
use cuzk::error::RequestError;
use serde_json::{json, Value};

use crate::common::{assert_refused, refusal, request, Fixture};

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
fn b39_unknown_poreps_are_refused_by_name() {
    for name in ["StackedDrg4KiBV1_1", "StackedDrg2KiBV1_2", "", "stackeddrg2kibv1_1"] {
        let error = assert_refused(with_c1(|c1| c1["registered_proof"] = json!(name)), &[name]);
        assert!(matches!(error, RequestError::Unsupported { .. }), "{error:?}");
    }
    // Proofs of a small sector under the name of a large one.
    for name in ["StackedDrg32GiBV1_1", "StackedDrg64GiBV1_2_Feat_NonInteractivePoRep"] {
        let named = FilecoinRequest {
            registered_proof: 0,
            sector_size: 0,
            ..with_c1(|c1| c1["registered_proof"] = json!(name))
        };
        assert_refused(named, &[name, "StackedDrg2KiBV1"]);
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
            challenge["comm_d_proofs"]["data"] = json!({"Half": single});
        }),
        &["unknown variant `Half`"],
    );
    // A path with parts that the size's trees have not, also where they are empty.
    assert_refused(
        with_challenge(|challenge| {
            let mut path = challenge["comm_r_last_proof"]["data"]["Single"].take();
            path["base_proof"] = path["path"].take();
            path["sub_proof"] = json!({"path": []});
            challenge["comm_r_last_proof"]["data"] = json!({"Sub": path});
        }),
        &["comm_r_last path", "needs 1 parts (base, sub, top), has 2"],
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
