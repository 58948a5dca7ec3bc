//! The kernels of `ntt.cu` and `quotient.cu`, run on the host thread by thread under sanitizers, against the CPU's
//! transforms. Needs a C++17 compiler named by `CXX`, or `c++`; fails without one.

#[path = "common/ntt_cases.rs"]
mod ntt_cases;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::policy::ntt_plan::{self, Order, Pass, Step, TableShape, Vector};
use ff::Field;
use ntt_cases::{assert_same, bit_reversed, random_scalars, transformed};

static HARNESS: LazyLock<PathBuf> = LazyLock::new(build_harness);

fn build_harness() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/host/ntt_harness.cpp");
    let harness = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels_ntt_harness");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o"])
        .arg(&harness)
        .arg(&source)
        .output()
        .unwrap_or_else(|error| {
            panic!("this test needs a C++ compiler; {compiler:?} cannot be started: {error}")
        });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    harness
}

/// What the harness is told apart from the steps.
#[derive(Clone, Copy, Debug)]
struct Setting {
    falling: bool,
    domain_log2: u32,
    low_log2: u32,
    tile_log2: u32,
    num_rows: usize,
}

impl Setting {
    /// As the launchers do it.
    fn of(domain_log2: u32) -> Self {
        let low_log2 = TableShape::of(domain_log2).low_log2;
        let tile_log2 = ntt_plan::tile_log2(domain_log2);
        Self { falling: false, domain_log2, low_log2, tile_log2, num_rows: 1 << domain_log2 }
    }

    fn both_thread_orders(self) -> [Self; 2] {
        [self, Self { falling: true, ..self }]
    }
}

/// Runs the steps on `a` and `b` and returns the vector that the last word names.
fn run(setting: Setting, words: &[String], a: &[Scalar], b: &[Scalar]) -> Vec<Scalar> {
    let numbers = [setting.domain_log2, setting.low_log2, setting.tile_log2, setting.num_rows as u32];
    let mut child = Command::new(&*HARNESS)
        .arg(if setting.falling { "falling" } else { "rising" })
        .args(numbers.map(|number| number.to_string()))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let values = ntt_cases::to_raw(&[a, b].concat());
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.l).flat_map(u64::to_le_bytes).collect();
    // It reads all of its input before it writes, so this cannot deadlock.
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{setting:?} {words:?}: {}\n{errors}", output.status);
    let limbs: Vec<u64> =
        output.stdout.chunks_exact(8).map(|limb| u64::from_le_bytes(limb.try_into().unwrap())).collect();
    let values: Vec<blst_fr> =
        limbs.chunks_exact(4).map(|limbs| blst_fr { l: limbs.try_into().unwrap() }).collect();
    ntt_cases::from_raw(&values)
}

fn words(steps: impl IntoIterator<Item = Step>, out: &str) -> Vec<String> {
    steps.into_iter().map(|step| step.to_string()).chain([format!("out:{out}")]).collect()
}

/// Both directions of one input, with these passes or the planned ones.
fn check_transforms(setting: Setting, passes: Option<&[Pass]>, what: &str, values: &[Scalar]) {
    let expected = transformed(values);
    let steps = |order: Order| match passes {
        None => ntt_plan::transform_steps(Vector::A, order, setting.domain_log2),
        Some(passes) => {
            let mut steps: Vec<_> = passes.iter().map(|pass| Step::Pass(Vector::A, order, *pass)).collect();
            if order == Order::FromBitReversed {
                steps.reverse();
            }
            steps
        }
    };
    let forward = run(setting, &words(steps(Order::ToBitReversed), "a"), values, values);
    assert_same(&format!("{what}, to bit-reversed, {setting:?}"), &bit_reversed(&forward), &expected);
    let backward = run(setting, &words(steps(Order::FromBitReversed), "a"), &bit_reversed(values), values);
    assert_same(&format!("{what}, from bit-reversed, {setting:?}"), &backward, &expected);
}

#[test]
fn twiddles_are_the_roots_of_unity() {
    for (domain_log2, low_log2) in [(0, 0), (1, 0), (13, 12), (13, 5), (12, 0)] {
        let setting = Setting { low_log2, ..Setting::of(domain_log2) };
        let none = vec![Scalar::ZERO; 1 << domain_log2];
        let low: Vec<_> = (0..1 << low_log2).map(ntt_cases::twiddle).collect();
        assert_same("low", &run(setting, &words([], "low"), &none, &none), &low);
        let high: Vec<_> =
            (0..1 << (domain_log2 - low_log2)).map(|k| ntt_cases::twiddle(k << low_log2)).collect();
        assert_same("high", &run(setting, &words([], "high"), &none, &none), &high);
    }
}

#[test]
fn transforms_of_every_size_equal_the_cpus() {
    for domain_log2 in 1..=13 {
        for setting in Setting::of(domain_log2).both_thread_orders() {
            for (name, values) in ntt_cases::inputs(domain_log2) {
                check_transforms(setting, None, name, &values);
            }
        }
    }
}

/// Passes of 3 to 11 levels as first, middle and last, in tiles of several sizes, with twiddles from both tables.
#[test]
fn every_kind_of_pass_equals_the_cpus() {
    let cut: [(u32, u32, &[u32]); 14] = [
        (13, 11, &[7, 6]),
        (13, 11, &[9, 4]),
        (13, 11, &[3, 10]),
        (13, 11, &[4, 9]),
        (13, 11, &[5, 8]),
        (13, 10, &[8, 5]),
        (13, 6, &[4, 4, 5]),
        (13, 6, &[5, 5, 3]),
        (12, 5, &[3, 3, 3, 3]),
        (12, 6, &[6, 3, 3]),
        (12, 11, &[3, 9]),
        (11, 11, &[11]),
        (10, 10, &[10]),
        (9, 3, &[3, 3, 3]),
    ];
    for (domain_log2, tile_log2, levels) in cut {
        let mut first_level = 0;
        let passes: Vec<Pass> = levels
            .iter()
            .map(|&num_levels| {
                first_level += num_levels;
                Pass { first_level: first_level - num_levels, num_levels }
            })
            .collect();
        let values = random_scalars(1 << domain_log2, 5);
        for low_log2 in [domain_log2 - 1, 4, 0] {
            let setting = Setting { tile_log2, low_log2, ..Setting::of(domain_log2) };
            for setting in setting.both_thread_orders() {
                check_transforms(setting, Some(&passes), &format!("{levels:?}"), &values);
            }
        }
    }
}

#[test]
fn quotients_of_every_size_equal_the_cpus() {
    for domain_log2 in 0..=13 {
        let n = 1usize << domain_log2;
        let mut row_counts = vec![n, n - n / 3, n / 2 + 1, 1];
        row_counts.dedup();
        for num_rows in row_counts {
            let (mut a, mut b) = (random_scalars(n, 11), random_scalars(n, 12));
            let expected = ntt_cases::quotient(&a[..num_rows], &b[..num_rows], domain_log2);
            // What lies beyond the rows must not matter.
            a[num_rows..].fill(Scalar::ONE);
            b[num_rows..].fill(-Scalar::ONE);
            let steps = words(ntt_plan::quotient_steps(domain_log2), "b");
            for setting in (Setting { num_rows, ..Setting::of(domain_log2) }).both_thread_orders() {
                let h = run(setting, &steps, &a, &b);
                assert_same(&format!("quotient, {setting:?}"), &h[..n - 1], &expected);
                assert_eq!(h[n - 1], Scalar::ZERO, "the highest coefficient of a satisfied witness");
            }
        }
    }
}

/// With a table only as long as the first and last passes need: products of two twiddles in the last levels.
#[test]
fn a_quotient_with_a_short_table_equals_the_cpus() {
    let (a, b) = (random_scalars(1 << 12, 21), random_scalars(1 << 12, 22));
    let setting = Setting { low_log2: 6, num_rows: 3000, ..Setting::of(12) };
    let h = run(setting, &words(ntt_plan::quotient_steps(12), "b"), &a, &b);
    assert_same("quotient", &h[..4095], &ntt_cases::quotient(&a[..3000], &b[..3000], 12));
}

#[test]
fn the_harness_refuses_what_it_does_not_know() {
    for arguments in [&["rising"][..], &["rising", "3", "2", "3", "8", "nonsense"]] {
        let mut child = Command::new(&*HARNESS)
            .args(arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(&[0; 512]);
        assert_eq!(child.wait().unwrap().code(), Some(2));
    }
}
