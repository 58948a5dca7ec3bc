//! PoSt requests that must be refused: a typed error that names what is wrong and where.

use cuzk::circuits::FilecoinRequest;

use crate::common::{assert_refused, changed, decode, put, request, Fixture, LEVELS, LEVEL_BYTES};

fn window() -> FilecoinRequest {
    request("window-2k/full-partition")
}

fn winning() -> FilecoinRequest {
    request("winning-2k/sector-1")
}

/// Where a sector proof's parts are: id, comm_r, two counts; then paths of 556 B in sectors of 2 KiB.
const PATHS: usize = 56;
const PATH_BYTES: usize = 556;

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
    assert_refused(FilecoinRequest { partition_index: 2, ..second.clone() }, &["challenge is leaf"]);
    assert_refused(FilecoinRequest { registered_proof: 10, ..second }, &["challenge is leaf"]);
    let second = Fixture::open("window-2k/two-partitions").request(1);
    assert!(decode(FilecoinRequest { partition_index: 0, ..second }).is_ok());
}

#[test]
fn a_partition_that_no_deadline_has_is_refused() {
    for name in ["window-2k/full-partition", "window-2k/two-partitions-v1"] {
        for index in [3000, u32::MAX] {
            let request = FilecoinRequest { partition_index: index, ..request(name) };
            assert_refused(request, &["partition_index: needs 0 to 2999", &format!("has {index}")]);
        }
    }
    // Today's challenges do not depend on it.
    assert!(decode(FilecoinRequest { partition_index: 2999, ..window() }).is_ok());
    assert_refused(FilecoinRequest { partition_index: 1, ..winning() }, &["partition_index: is no field of"]);
}

#[test]
fn a_window_sector_other_than_proved_is_refused() {
    let proved: Vec<u64> = window()
        .vanilla_proofs
        .iter()
        .map(|proof| u64::from_le_bytes(proof[..8].try_into().unwrap()))
        .collect();
    let said = |sector_number| FilecoinRequest { sector_number, ..window() };
    for number in [0, proved[0], proved[1]] {
        assert!(decode(said(number)).is_ok(), "{number}");
    }
    let sectors = format!("none of the 2 sectors proved, {} to {}", proved[0], proved[1]);
    assert_refused(said(7), &["sector_number: 7 is", &sectors]);
    let padded = FilecoinRequest { sector_number: 7, ..request("window-2k/padded-partition") };
    assert_refused(padded, &["sector_number says 7", "vanilla_proofs[0] sector says"]);
}

#[test]
fn a_winning_sector_other_than_said_is_refused() {
    let other = FilecoinRequest { sector_number: 7, ..winning() };
    assert_refused(other, &["sector_number says 7", "vanilla_proofs[0] sector says 801282"]);
}
