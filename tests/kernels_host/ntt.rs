//! The kernels of `ntt.cu`, `quotient.cu` and `lagrange.cu`, run thread by thread, against the CPU's transforms.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use blst::blst_fr;
use blstrs::Scalar;
use cuzk::groth16::domain;
use cuzk::policy::lagrange_plan::lagrange_steps;
use cuzk::policy::ntt_plan::{self, NttPlan, Order, Step, Vector};
use ff::Field;

use crate::harness;
use crate::ntt_cases::{self, assert_same, bit_reversed, random_scalars, transformed};

static HARNESS: LazyLock<PathBuf> = LazyLock::new(|| harness::build("ntt_harness"));

/// What the harness is told apart from the steps.
#[derive(Clone, Debug)]
struct Setting {
    falling: bool,
    plan: NttPlan,
    num_rows: usize,
}

impl Setting {
    /// In both orders of the threads, with all rows.
    fn both(plan: &NttPlan) -> [Self; 2] {
        [false, true].map(|falling| Self { falling, plan: plan.clone(), num_rows: 1 << plan.domain_log2 })
    }
}

/// Runs the steps on `a` and `b` and returns the vector that the last word names.
fn run(setting: &Setting, words: &[String], a: &[Scalar], b: &[Scalar]) -> Vec<Scalar> {
    let plan = &setting.plan;
    let numbers = [plan.domain_log2, plan.table.low_log2, plan.tile_log2, setting.num_rows as u32];
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

fn words<S: ToString>(steps: impl IntoIterator<Item = S>, out: &str) -> Vec<String> {
    steps.into_iter().map(|step| step.to_string()).chain([format!("out:{out}")]).collect()
}

/// Both directions of one input.
fn check_transforms(setting: &Setting, what: &str, values: &[Scalar]) {
    let expected = transformed(values);
    let steps = |order| words(ntt_plan::transform_steps(Vector::A, order, &setting.plan), "a");
    let forward = run(setting, &steps(Order::ToBitReversed), values, values);
    assert_same(&format!("{what}, to bit-reversed, {setting:?}"), &bit_reversed(&forward), &expected);
    let backward = run(setting, &steps(Order::FromBitReversed), &bit_reversed(values), values);
    assert_same(&format!("{what}, from bit-reversed, {setting:?}"), &backward, &expected);
}

/// The quotient of some rows; what lies beyond them must not matter.
fn check_quotient(setting: &Setting) {
    let domain_log2 = setting.plan.domain_log2;
    let n = 1 << domain_log2;
    let (mut a, mut b) = (random_scalars(n, 11), random_scalars(n, 12));
    let expected = ntt_cases::quotient(&a[..setting.num_rows], &b[..setting.num_rows], domain_log2);
    a[setting.num_rows..].fill(Scalar::ONE);
    b[setting.num_rows..].fill(-Scalar::ONE);
    let h = run(setting, &words(ntt_plan::quotient_steps(&setting.plan), "b"), &a, &b);
    assert_same(&format!("quotient, {setting:?}"), &h[..n - 1], &expected);
    assert_eq!(h[n - 1], Scalar::ZERO, "the highest coefficient of a satisfied witness");
    // From the same rows, in the other basis.
    let expected = domain::lagrange_quotient(
        a[..setting.num_rows].to_vec(),
        b[..setting.num_rows].to_vec(),
        domain_log2,
    );
    let t = run(setting, &words(lagrange_steps(&setting.plan), "a"), &a, &b);
    assert_same(&format!("lagrange quotient, {setting:?}"), &t, &expected);
}

#[test]
fn twiddles_are_the_roots_of_unity() {
    for plan in [
        NttPlan::of(0),
        NttPlan::of(1),
        NttPlan::of(13),
        NttPlan::cut(13, 10, &[7, 6], 7),
        NttPlan::cut(10, 10, &[10], 0),
    ] {
        let (low_log2, high_log2) = (plan.table.low_log2, plan.table.high_log2);
        let none = vec![Scalar::ZERO; 1 << plan.domain_log2];
        let [setting, _] = Setting::both(&plan);
        let low: Vec<_> = (0..1 << low_log2).map(ntt_cases::twiddle).collect();
        assert_same("low", &run(&setting, &words::<Step>([], "low"), &none, &none), &low);
        let high: Vec<_> = (0..1 << high_log2).map(|k| ntt_cases::twiddle(k << low_log2)).collect();
        assert_same("high", &run(&setting, &words::<Step>([], "high"), &none, &none), &high);
    }
}

/// Above it a case takes seconds, and fewer of a kind are run.
const LARGEST_QUICK_LOG2: u32 = 10;

#[test]
fn transforms_of_every_size_equal_the_cpus() {
    for domain_log2 in 1..=13 {
        let mut inputs = ntt_cases::inputs(domain_log2);
        if domain_log2 > LARGEST_QUICK_LOG2 {
            inputs.retain(|(name, _)| *name == "random");
        }
        for setting in Setting::both(&NttPlan::of(domain_log2)) {
            for (name, values) in &inputs {
                check_transforms(&setting, name, values);
            }
        }
    }
}

/// Passes of 3 to 10 levels as first, middle and last, in tiles of several sizes.
const CUTS: [(u32, u32, &[u32]); 13] = [
    (13, 10, &[7, 6]),
    (13, 10, &[9, 4]),
    (13, 10, &[3, 10]),
    (13, 10, &[4, 9]),
    (13, 10, &[5, 8]),
    (13, 10, &[8, 5]),
    (13, 6, &[4, 4, 5]),
    (13, 6, &[5, 5, 3]),
    (12, 5, &[3, 3, 3, 3]),
    (12, 6, &[6, 3, 3]),
    (12, 10, &[3, 9]),
    (10, 10, &[10]),
    (9, 3, &[3, 3, 3]),
];

/// With all twiddles in the table in one order of the threads, and with as few as can be, so that most are products, in
/// the other.
fn all_cuts() -> impl Iterator<Item = Setting> {
    CUTS.into_iter().enumerate().flat_map(|(index, (domain_log2, tile_log2, levels))| {
        let least = if levels.len() == 1 { 0 } else { levels[0].max(levels[levels.len() - 1]) };
        [domain_log2, least].into_iter().enumerate().map(move |(table, low_log2)| {
            let plan = NttPlan::cut(domain_log2, tile_log2, levels, low_log2);
            let [rising, falling] = Setting::both(&plan);
            if (index + table).is_multiple_of(2) {
                rising
            } else {
                falling
            }
        })
    })
}

#[test]
fn every_kind_of_pass_equals_the_cpus() {
    for setting in all_cuts() {
        check_transforms(&setting, "random", &random_scalars(1 << setting.plan.domain_log2, 5));
    }
}

#[test]
fn quotients_with_every_kind_of_pass_equal_the_cpus() {
    for setting in all_cuts() {
        let num_rows = setting.num_rows - setting.num_rows / 5;
        check_quotient(&Setting { num_rows, ..setting });
    }
}

#[test]
fn quotients_of_every_size_equal_the_cpus() {
    for domain_log2 in 0..=13 {
        let n = 1usize << domain_log2;
        let mut row_counts = vec![n, n - n / 3, n / 2 + 1, 1];
        row_counts.retain(|num_rows| *num_rows <= n);
        row_counts.dedup();
        if domain_log2 > LARGEST_QUICK_LOG2 {
            row_counts = vec![n - n / 3];
        }
        for num_rows in row_counts {
            for setting in Setting::both(&NttPlan::of(domain_log2)) {
                check_quotient(&Setting { num_rows, ..setting });
            }
        }
    }
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
