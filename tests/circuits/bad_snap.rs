//! SnapDeals requests that must be refused: a typed error that names what is wrong and where.

use cuzk::circuits::FilecoinRequest;

use crate::common::{assert_refused, changed, request, LEVELS};

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
