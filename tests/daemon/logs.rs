//! What is logged, and what never is.

use std::fs;

use cuzk_wire::v1::await_proof_response::Status as End;
use serde_json::Value;

use super::requests::{prove, window};
use super::rig::Setup;

#[tokio::test(flavor = "multi_thread")]
async fn b59_every_line_is_json_and_names_its_job() {
    let daemon = Setup::new("sim:1").start().await;
    let mut client = daemon.client().await;
    let result = client.prove(prove(window("logged"))).await.unwrap().into_inner().result.unwrap();
    assert_eq!(result.status(), End::Completed);
    let text = daemon.log_with("job completed").await;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.len() >= 2, "{text}");
    let about_the_job: Vec<&Value> =
        lines.iter().filter(|line| line.to_string().contains("logged")).collect();
    let completed = lines.iter().find(|line| line["message"] == "job completed").expect("it is logged");
    assert!(!about_the_job.is_empty());
    assert_eq!(completed["span"]["request_id"], "logged", "{completed}");
    assert!(completed["job"].is_string() || completed["span"]["job"].is_string(), "{completed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b59_the_filter_holds() {
    let mut setup = Setup::new("sim:1");
    setup.sections = "[logging]\nlevel = \"error\"\nformat = \"json\"\n".to_owned();
    let daemon = setup.start().await;
    let mut client = daemon.client().await;
    client.prove(prove(window("quiet"))).await.unwrap();
    assert_eq!(daemon.log_text(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_rolling_files_the_newest_are_kept() {
    let mut setup = Setup::new("sim:1");
    let dir = setup.dir.path().to_owned();
    for hour in 0..5 {
        fs::write(dir.join(format!("rolling.log.2020-01-01-0{hour}")), "old\n").unwrap();
    }
    setup.sections = format!(
        "[logging]\nlevel = \"info\"\nfile = \"{}\"\nrotation = \"hourly\"\nretained_files = 3\n",
        dir.join("rolling.log").display()
    );
    let daemon = setup.start().await;
    let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let kept: Vec<String> = names.filter(|name| name.starts_with("rolling.log.")).collect();
    assert_eq!(kept.len(), 3, "{kept:?}");
    let is_old = |name: &&String| name.contains(".2020-");
    assert_eq!(kept.iter().filter(is_old).count(), 2, "there is no new one: {kept:?}");
    // Nothing else of the folder is touched, and nothing is said elsewhere.
    assert!(daemon.setup.config_file().exists() && dir.join("journal").exists());
    assert_eq!(daemon.log_text(), "");
}

/// At the most talkative level, with inputs that fail as well as inputs that do not.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_is_logged() {
    let mut setup = Setup::new("sim:1");
    let log = setup.dir.path().join("rolling.log");
    setup.sections = format!(
        "[logging]\nlevel = \"trace,h2=info,hyper=info\"\nformat = \"json\"\nfile = \"{}\"\nrotation = \"hourly\"\n",
        log.display()
    );
    let daemon = setup.start().await;
    let mut client = daemon.client().await;
    let good = window("good");
    client.prove(prove(good.clone())).await.unwrap();
    let mut bad = window("bad");
    bad.vanilla_proofs[0] = bad.vanilla_proofs[0].slice(..bad.vanilla_proofs[0].len() - 9);
    client.prove(prove(bad)).await.unwrap();
    let mut text = daemon.log_text();
    let mut num_files = 0;
    for entry in fs::read_dir(daemon.setup.dir.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("rolling.log.") {
            text += &fs::read_to_string(entry.path()).unwrap();
            num_files += 1;
        }
    }
    assert!(num_files >= 1, "no rolling file");
    assert!(text.len() > 1000, "the log says nothing: {text}");
    let vanilla = &good.vanilla_proofs[0];
    // Any sixteen bytes of the middle, as hexadecimal or as a list of numbers.
    for start in (0..vanilla.len() - 16).step_by(64) {
        let piece = &vanilla[start..start + 16];
        if piece.iter().all(|byte| *byte == piece[0]) {
            continue;
        }
        let as_list = piece.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        assert!(!text.contains(&hex::encode(piece)) && !text.contains(&as_list), "byte {start} on is logged");
    }
}
