//! The kernels' arithmetic against blstrs and big integers.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::harness;
use crate::kernel_cases::{self, Suite};

static HARNESS: LazyLock<PathBuf> = LazyLock::new(|| harness::build("harness"));

fn run(suite: &Suite) -> Vec<u8> {
    let mut child = Command::new(&*HARNESS)
        .arg(suite.operation)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    // The harness reads to the end of its input before it writes, so this cannot deadlock.
    child.stdin.take().unwrap().write_all(&suite.cases).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {}", suite.operation, output.status);
    output.stdout
}

#[test]
fn kernel_arithmetic_equals_the_cpus() {
    for suite in kernel_cases::suites(10_000, 0x381) {
        suite.check(&run(&suite)).unwrap();
        println!("{}: {} cases", suite.operation, suite.num_cases());
    }
}

/// The comparison itself must be able to fail.
#[test]
fn a_wrong_result_is_noticed() {
    for suite in kernel_cases::suites(100, 1) {
        let mut results = run(&suite);
        results[0] ^= 1;
        assert!(suite.check(&results).is_err(), "{}: a flipped bit went unnoticed", suite.operation);
    }
}

#[test]
fn an_unknown_operation_or_half_a_case_is_refused() {
    let status = Command::new(&*HARNESS).arg("fp_nonsense").stdin(Stdio::null()).output().unwrap().status;
    assert_eq!(status.code(), Some(2));
    let mut child =
        Command::new(&*HARNESS).arg("fp_sqr").stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&[0; 47]).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
}
