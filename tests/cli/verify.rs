//! `cuzk verify`: one line for every outcome, and hex as people pass it on.

use std::fs;

use serde_json::Value;

use crate::{cuzk, params, path, WINDOW};

/// Every line for scripts has the same fields, whatever happened.
#[test]
fn every_outcome_of_verify_has_its_line() {
    let params = params();
    let two = "tests/data/filecoin/window-2k/two-partitions";
    let manifest = format!("{two}/manifest.json");
    let good = fs::read(format!("{two}/proof.bin")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let proof = path(&dir, "proof");
    let verify = |manifest: &str, bytes: &[u8], more: &[&str], code: i32| -> Vec<Value> {
        fs::write(&proof, bytes).unwrap();
        let args = [&["verify", manifest, &proof, "--json", "--params", params], more].concat();
        let run = cuzk(&args).expect(code);
        let lines = run.json_lines();
        for line in &lines {
            for field in ["file", "request", "circuit", "partitions", "verified"] {
                assert!(line.as_object().unwrap().contains_key(field), "{field}: {line}");
            }
            assert_eq!(line["verified"], line["error"].is_null(), "{line}");
            assert_eq!(line["error"].is_null(), line["error"]["message"].is_null(), "{line}");
        }
        let failed = code != 0;
        assert_eq!(run.stderr.lines().last().is_some_and(|line| line.starts_with("error: ")), failed);
        lines
    };
    let verified = |lines: &[Value]| lines.iter().map(|line| line["verified"] == true).collect::<Vec<_>>();
    assert_eq!(verified(&verify(&manifest, &good, &[], 0)), [true, true]);
    // The second request's proof in the place of the first as well, and the other way round.
    assert_eq!(verified(&verify(&manifest, &[&good[192..], &good[192..]].concat(), &[], 1)), [false, true]);
    assert_eq!(verified(&verify(&manifest, &[&good[..192], &good[..192]].concat(), &[], 1)), [true, false]);

    let error = |lines: Vec<Value>| {
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0]["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(error(verify(&manifest, &good[1..], &[], 3)).contains("needs 384 B"));
    assert!(error(verify("/nonexistent.json", &good, &[], 3)).contains("/nonexistent.json"));
    assert!(error(verify(&manifest, &good, &["--request", "7"], 2)).contains("no such one"));
    let winning = "tests/data/filecoin/winning-2k/sector-1/manifest.json";
    assert!(error(verify(winning, &good[..192], &[], 3)).contains("verifying key not found"));
}

#[test]
fn a_proof_in_hex_is_taken_as_people_pass_it_on() {
    let manifest = format!("{WINDOW}/manifest.json");
    let hex = hex::encode(fs::read(format!("{WINDOW}/proof.bin")).unwrap());
    let wrapped: Vec<&str> = (0..hex.len()).step_by(64).map(|at| &hex[at..hex.len().min(at + 64)]).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = path(&dir, "proof.hex");
    let verify = |text: &str| {
        fs::write(&file, text).unwrap();
        cuzk(&["verify", &manifest, &file, "--params", params()])
    };
    let upper = hex.to_uppercase();
    for text in
        [format!("0x{hex}\n"), wrapped.join("\n"), wrapped.join(" \r\n"), format!("\u{feff}0X{upper}")]
    {
        verify(&text).expect(0);
    }
    assert!(verify(&hex[1..]).expect(3).stderr.contains("hex"));
    assert!(verify(&hex[2..]).expect(3).stderr.contains("has 191 B"));
}
