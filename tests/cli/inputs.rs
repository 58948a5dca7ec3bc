//! Inputs as editors and links present them, and several files at a time.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::{command, copy_of, cuzk, params, path, refused, Done, POREP, POREP_MINER, WINDOW};

const MARK: &[u8] = b"\xef\xbb\xbf";

/// A copy of the file with a byte order mark before it.
fn marked(file: &str) -> String {
    let bytes = fs::read(file).unwrap();
    fs::write(file, [MARK, &bytes].concat()).unwrap();
    file.to_owned()
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let dir = copy_of(WINDOW);
    let manifest = marked(&path(&dir, "manifest.json"));
    cuzk(&["verify", &manifest, &path(&dir, "proof.bin"), "--params", params()]).expect(0);
    let c1 = copy_of(POREP);
    let wrapped = marked(&path(&c1, "c1-wrapped.json"));
    let bare = marked(&path(&c1, "c1.json"));
    for (file, kind) in [
        (&manifest, "manifest"),
        (&bare, "C1 (output of PoRep's commit phase 1)"),
        (&wrapped, "C1 (output of PoRep's commit phase 1), wrapped by a caller"),
    ] {
        assert_eq!(cuzk(&["inspect", "--json", file]).expect(0).json_lines()[0]["kind"], kind);
    }
    // They are read to the end: what is missing are the parameters.
    for args in
        [&[&bare[..], "--miner", POREP_MINER, "--sector", "801282"][..], &[&wrapped, "--miner", POREP_MINER]]
    {
        let error = refused(args);
        assert!(error["message"].as_str().unwrap().contains("parameter file"), "{error}");
    }
    let request = path(&dir, "request.json");
    fs::write(&request, json!({"proof_kind": "WINNING_POST", "randomness": "00"}).to_string()).unwrap();
    let error = refused(&[&marked(&request)]);
    assert_eq!(error["at"], "randomness", "{error}");

    let config = path(&dir, "cuzk.toml");
    fs::write(&config, "\u{feff}[synthesis]\nthreads = 3\n").unwrap();
    assert!(cuzk(&["check-config", &config]).expect(0).stdout.contains("threads = 3"));
}

#[test]
fn inputs_are_found_beside_a_link_and_else_beside_what_it_leads_to() {
    let data = format!("{}/{WINDOW}", env!("CARGO_MANIFEST_DIR"));
    let verifies = |manifest: &str| {
        let run = cuzk(&["verify", manifest, &format!("{WINDOW}/proof.bin"), "--params", params()]);
        run.expect(0);
    };
    // A link to the manifest alone, from the folder that it is in too.
    let alone = tempfile::tempdir().unwrap();
    let link = path(&alone, "job.json");
    symlink(format!("{data}/manifest.json"), &link).unwrap();
    verifies(&link);
    let args = ["verify", "job.json", &format!("{data}/proof.bin"), "--params", params()];
    Done::of(command(&args).current_dir(alone.path()).output().unwrap()).expect(0);

    // A folder of links whose targets are apart.
    let (store, links) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::copy(format!("{data}/manifest.json"), path(&store, "manifest.json")).unwrap();
    symlink(path(&store, "manifest.json"), path(&links, "manifest.json")).unwrap();
    for name in ["vanilla-0.bin", "vanilla-1.bin"] {
        symlink(format!("{data}/{name}"), path(&links, name)).unwrap();
    }
    verifies(&path(&links, "manifest.json"));

    // In neither place: the one that was named is the one that is said.
    fs::remove_file(path(&links, "vanilla-1.bin")).unwrap();
    let error = refused(&[&path(&links, "manifest.json")]);
    assert!(error["message"].as_str().unwrap().contains(&path(&links, "vanilla-1.bin")), "{error}");

    // Request files as well.
    let request = path(&store, "request.json");
    let text = json!({"proof_kind": "WINDOW_POST_PARTITION", "registered_proof": 10, "randomness": "00",
        "vanilla": ["inputs/vanilla-0.bin"]});
    fs::write(&request, text.to_string()).unwrap();
    symlink(&data, path(&store, "inputs")).unwrap();
    let link = path(&alone, "request.json");
    symlink(&request, &link).unwrap();
    assert_eq!(refused(&[&link])["at"], "randomness");
}

#[test]
fn every_file_is_inspected() {
    let good = format!("{WINDOW}/proof.bin");
    let files = ["README.md", &good, "/nonexistent", &good];
    let run = cuzk(&[&["inspect", "--json"], &files[..]].concat()).expect(3);
    let lines = run.json_lines();
    assert_eq!(lines.len(), files.len());
    for (line, file) in lines.iter().zip(files) {
        assert_eq!(line["file"], file);
        assert_eq!(line["kind"].is_null(), file != good, "{line}");
        assert_eq!(line["error"]["class"] == "caller", file != good, "{line}");
    }
    let run = cuzk(&[&["inspect"], &files[..]].concat()).expect(3);
    assert_eq!(run.stdout.matches(&good).count(), 2, "{}", run.stdout);
    for said in ["error: README.md", "error: /nonexistent", "2 of 4 files"] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
}
