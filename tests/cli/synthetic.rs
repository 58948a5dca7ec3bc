//! `cuzk-bench gen-vanilla`, and what the command line makes of its files.

use std::process::Command;

use super::*;

fn bench(args: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuzk-bench"));
    Done::of(command.args(args).current_dir(env!("CARGO_TARGET_TMPDIR")).output().unwrap())
}

/// From nothing to a verified proof, and by Filecoin's own verification: `cuzk verify` asks it.
#[test]
fn a_synthetic_job_is_proved_and_verified_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(&dir, "job");
    let args =
        ["gen-vanilla", "wpost", "--sector-size", "2KiB", "--synthetic", "--seed", "7", "--out", &folder];
    let made = bench(&args).expect(0).stdout;
    assert!(made.contains("wpost-2k") && made.contains("manifest.json"), "{made}");
    let (manifest, proof) = (path(&dir, "job/manifest.json"), path(&dir, "proof.bin"));
    let line =
        cuzk(&["prove", &manifest, "--params", params(), "--out", &proof, "--json"]).expect(0).json_lines();
    assert_eq!(line[0]["circuit"], "wpost-2k");
    assert_eq!(line[0]["verified"], true);
    cuzk(&["verify", &manifest, &proof, "--params", params()]).expect(0);
}

#[test]
fn inspect_tells_synthetic_files() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, size, extra, vanilla) in [
        ("porep", "32g", &["--challenges", "1", "--partitions", "2"][..], "c1.json"),
        ("snap", "2KiB", &[], "vanilla-0.bin"),
        ("winning", "64GiB", &[], "vanilla-0.bin"),
        ("wpost", "34359738368", &["--sectors", "2"], "vanilla-1.bin"),
    ] {
        let folder = path(&dir, kind);
        let mut args = vec!["gen-vanilla", kind, "--sector-size", size, "--synthetic", "--out", &folder];
        args.extend(extra);
        bench(&args).expect(0);
        let (manifest, vanilla) = (format!("{folder}/manifest.json"), format!("{folder}/{vanilla}"));
        let found = cuzk(&["inspect", &manifest, &vanilla, "--json"]).expect(0).json_lines();
        assert_eq!(found[0]["kind"], "manifest");
        let synthetic = found[0]["synthetic"].as_str().unwrap();
        assert!(synthetic.contains("no network takes its proof"), "{synthetic}");
        assert_eq!(synthetic.contains("scaled to 1 challenges in each of 2 partitions"), kind == "porep");
        match kind {
            "porep" => assert_eq!(found[1]["registered_proof"], "StackedDrg32GiBV1_1"),
            _ => assert_eq!(found[1]["sector_size"], found[0]["sector_size"], "{kind}"),
        }
    }
    // A real one says nothing of it.
    let found = cuzk(&["inspect", &format!("{WINDOW}/manifest.json"), "--json"]).expect(0).json_lines();
    assert!(found[0].get("synthetic").is_none());
}

/// The file begins with the sector's number, whose lowest byte may be a bracket.
#[test]
fn inspect_takes_no_sector_number_for_json() {
    let copy = copy_of("tests/data/filecoin/winning-2k/sector-1");
    let file = path(&copy, "vanilla-0.bin");
    let mut bytes = fs::read(&file).unwrap();
    for first in [b'{', b'[', b' '] {
        bytes[..8].copy_from_slice(&[first, 0x7b, 0x5b, 0, 0, 0, 0, 0]);
        fs::write(&file, &bytes).unwrap();
        let found = cuzk(&["inspect", &file, "--json"]).expect(0).json_lines();
        assert_eq!(found[0]["kind"], "vanilla proof of one sector (PoSt)");
    }
}

#[test]
fn gen_vanilla_refuses_what_it_cannot_make() {
    let not_said = bench(&["gen-vanilla", "porep", "--sector-size", "2KiB"]).expect(2);
    assert!(not_said.stderr.contains("--synthetic"), "{}", not_said.stderr);
    for (args, part) in [
        (["porep", "--sector-size", "3KiB", "--seed", "1"], "is none of 2KiB"),
        (["pdp", "--sector-size", "2KiB", "--seed", "1"], "is none of porep, snap, wpost, winning"),
        (["snap", "--sector-size", "2KiB", "--challenges", "1"], "challenges: is no option of SNAP"),
        (["porep", "--sector-size", "32GiB", "--challenges", "19"], "needs 1 to 18"),
    ] {
        let run = bench(&[&["gen-vanilla", "--synthetic"][..], &args].concat()).expect(2);
        assert!(run.stderr.contains(part), "{part:?} is not in {:?}", run.stderr);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "file");
    fs::write(&file, "").unwrap();
    let run =
        bench(&["gen-vanilla", "snap", "--sector-size", "2KiB", "--synthetic", "--out", &file]).expect(1);
    assert!(run.stderr.contains(&file), "{}", run.stderr);
}

/// One command finds SHA-256's layouts anew: those of the library that the program is built with are the stored ones.
#[test]
fn layouts_are_found_anew_by_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "sha256.txt");
    let said = bench(&["layouts", "--seed", "3", "--out", &file]).expect(0).stdout;
    assert!(said.contains("written, as before"), "{said}");
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/src/circuits/native/layouts/sha256.txt");
    assert_eq!(fs::read_to_string(&file).unwrap(), fs::read_to_string(stored).unwrap());
    let said = bench(&["layouts"]).expect(0).stdout;
    assert!(said.contains("are those of this library"), "{said}");
}

#[test]
fn witnesses_are_measured_and_held_against_the_librarys() {
    let dir = tempfile::tempdir().unwrap();
    let shape = path(&dir, "shape");
    let said = bench(&["shape", "winning-2k", "--out", &shape, "--compare", "--json"]).expect(0).stdout;
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["aux"], 91_674);
    assert!(report["compared_s"].as_f64().unwrap() > 0.0, "{report}");
    let job = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/filecoin/winning-2k/sector-1");
    let said = bench(&["witness", job, "--shape", &shape, "--compare"]).expect(0).stdout;
    for part in ["on one core", "of which SHA-256", "equal to the library's in all 91674 variables"] {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    let part = bench(&["witness", job, "--compare=1", "--compare-percent", "10"]).expect(0).stdout;
    assert!(part.contains("equal to the library's in the first 9160 variables"), "{part}");
    // Matrices of another circuit have no place for it.
    bench(&["shape", "wpost-2k", "--out", &shape]).expect(0);
    bench(&["witness", job, "--shape", &shape]).expect(1);
    bench(&["witness", job, "--compare-percent", "10"]).expect(2);
}
