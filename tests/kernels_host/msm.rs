//! The kernels of a multi-exponentiation, run thread by thread, against blstrs.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use blst::{blst_fp, blst_fp2};
use blstrs::{G1Projective, G2Projective, Scalar};
use cuzk::policy::msm_plan::{Group, MsmPlan};
use group::Group as _;
use rayon::prelude::*;

use crate::harness;
use crate::msm_cases::cuzk_raw::Raw;
use crate::msm_cases::{self, base_kinds, bases, expected, raw_scalars, scalar_kinds, Curve12381};

static HARNESS: LazyLock<PathBuf> = LazyLock::new(|| harness::build("msm_harness"));

trait HostCurve: Curve12381 {
    const GROUP: Group;
    fn from_jacobian(limbs: &[u64]) -> Self;
}

fn fp(limbs: &[u64]) -> blst_fp {
    blst_fp { l: limbs.try_into().unwrap() }
}

impl HostCurve for G1Projective {
    const GROUP: Group = Group::G1;

    fn from_jacobian(limbs: &[u64]) -> Self {
        let mut point = Self::identity();
        let raw = point.as_mut();
        (raw.x, raw.y, raw.z) = (fp(&limbs[..6]), fp(&limbs[6..12]), fp(&limbs[12..]));
        point
    }
}

impl HostCurve for G2Projective {
    const GROUP: Group = Group::G2;

    fn from_jacobian(limbs: &[u64]) -> Self {
        let coordinate = |at: usize| blst_fp2 { fp: [fp(&limbs[at..at + 6]), fp(&limbs[at + 6..at + 12])] };
        let mut point = Self::identity();
        let raw = point.as_mut();
        (raw.x, raw.y, raw.z) = (coordinate(0), coordinate(12), coordinate(24));
        point
    }
}

/// A sum by the kernels.
struct HostMsm {
    plan: MsmPlan,
    /// Blocks of accumulating threads at most: few make long segments.
    resident_blocks: u32,
    windows_per_range: u32,
    reversed: bool,
}

impl HostMsm {
    fn header<G: HostCurve>(&self, num_points: usize, num_values: usize, has_index: bool) -> Vec<u32> {
        let plan = &self.plan;
        assert_eq!(plan.group, G::GROUP);
        vec![
            if plan.group == Group::G1 { 1 } else { 2 },
            self.reversed.into(),
            num_points as u32,
            plan.chunk_points as u32,
            num_values as u32,
            has_index.into(),
            plan.num_windows(),
            plan.num_wide(),
            plan.narrow_bits(),
            plan.total_buckets() as u32,
            self.resident_blocks,
            plan.group_log2(),
            plan.affine_levels,
            self.windows_per_range,
        ]
    }

    fn sum<G: HostCurve>(&self, points: &[G::Raw], values: &[Scalar], index: Option<&[u32]>) -> G {
        let mut case = Vec::new();
        for word in self.header::<G>(points.len(), values.len(), index.is_some()) {
            case.extend(word.to_le_bytes());
        }
        raw_scalars(values).iter().flat_map(|raw| raw.l).for_each(|limb| case.extend(limb.to_le_bytes()));
        index.into_iter().flatten().for_each(|at| case.extend(at.to_le_bytes()));
        points.iter().flat_map(Raw::limbs).for_each(|limb| case.extend(limb.to_le_bytes()));
        self.combine(&run(&case))
    }

    /// Horner over the windows.
    fn combine<G: HostCurve>(&self, window_sums: &[u8]) -> G {
        let limbs: Vec<u64> =
            window_sums.chunks(8).map(|limb| u64::from_le_bytes(limb.try_into().unwrap())).collect();
        let windows = self.plan.num_windows();
        let sums: Vec<G> = limbs.chunks(limbs.len() / windows as usize).map(G::from_jacobian).collect();
        assert_eq!(sums.len(), windows as usize);
        (0..windows).rev().fold(G::identity(), |sum, index| {
            (0..self.plan.width(index)).fold(sum, |sum, _| sum.double()) + sums[index as usize]
        })
    }
}

fn run(case: &[u8]) -> Vec<u8> {
    let mut child = Command::new(&*HARNESS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    // The harness reads all of its input before it writes, so this cannot deadlock.
    child.stdin.take().unwrap().write_all(case).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the harness: {}", output.status);
    output.stdout
}

fn msm<G: HostCurve>(chunk_points: usize, window_bits: u32, resident_blocks: u32, reversed: bool) -> HostMsm {
    let plan = MsmPlan::new(G::GROUP, chunk_points.max(1) as u64, window_bits).without_affine();
    HostMsm { plan, resident_blocks, windows_per_range: u32::MAX >> 1, reversed }
}

/// Emulated threads are slow: one case in twenty-three, another one for each `offset`, unless CUZK_EMULATE_ALL is set. A prime,
/// so that what goes by a case's number (levels, ranges, the order of threads) is another from one to the next.
fn thinned<T>(cases: Vec<T>, offset: usize) -> Vec<T> {
    if std::env::var_os("CUZK_EMULATE_ALL").is_some() {
        return cases;
    }
    let thinned: Vec<T> = cases.into_iter().skip(offset % 23).step_by(23).collect();
    assert!(!thinned.is_empty(), "there is a case at least");
    thinned
}

/// All kinds of bases and scalars at each size, the order of threads by turns.
fn check_kinds<G: HostCurve>(sizes: &[usize], window_bits: u32) {
    for &n in sizes {
        let scalars = scalar_kinds(n);
        let cases: Vec<_> = base_kinds(n)
            .into_iter()
            .flat_map(|bases| scalars.iter().map(move |scalars| (bases.clone(), scalars)))
            .enumerate()
            .collect();
        thinned(cases, n).par_iter().for_each(|(number, ((bases_kind, logs), (kind, scalars)))| {
            let msm = msm::<G>(n, window_bits, 1 + *number as u32 % 3, number % 2 == 1);
            let sum: G = msm.sum(&bases::<G>(logs), scalars, None);
            assert_eq!(sum, expected(logs, scalars), "{n} points, {bases_kind}, {kind}");
        });
    }
}

#[test]
fn any_bases_and_scalars_in_g1() {
    check_kinds::<G1Projective>(&[0, 1, 2, 31, 33, 100], 6);
}

#[test]
fn any_bases_and_scalars_in_g2() {
    check_kinds::<G2Projective>(&[2, 33], 8);
}

/// Enough entries and slots for several lists of slots to be merged, with runs over all of them.
#[test]
fn many_segments_in_g1() {
    let cases: Vec<_> = scalar_kinds(1500).into_iter().enumerate().collect();
    thinned(cases, 1).par_iter().for_each(|(number, (kind, scalars))| {
        let logs: Vec<i64> = (1..=1500).collect();
        let msm = msm::<G1Projective>(1500, 5, u32::MAX, number % 2 == 1);
        let sum: G1Projective = msm.sum(&bases::<G1Projective>(&logs), scalars, None);
        assert_eq!(sum, expected(&logs, scalars), "{kind}");
    });
}

/// Fewer in G2, where each lane is patient with its partner at every limb.
#[test]
fn many_segments_in_g2() {
    let n = 50;
    let cases: Vec<_> = scalar_kinds(n).into_iter().enumerate().collect();
    // Uniform ones: of zeros there would be no segment.
    thinned(cases, 0).par_iter().for_each(|(number, (kind, scalars))| {
        let logs: Vec<i64> = (1..=n as i64).collect();
        let msm = msm::<G2Projective>(n, 10, u32::MAX, number % 2 == 1);
        let sum: G2Projective = msm.sum(&bases::<G2Projective>(&logs), scalars, None);
        assert_eq!(sum, expected(&logs, scalars), "{kind}");
    });
}

/// Affine levels: runs of any length, in one window at a time and in all of them, with every pair that is no chord.
fn check_affine_levels<G: HostCurve>(n: usize, window_bits: u32, levels: &[u32], offset: usize) {
    let bases_kinds = base_kinds(n);
    let scalars = scalar_kinds(n);
    let cases: Vec<_> = bases_kinds
        .iter()
        .flat_map(|bases| scalars.iter().map(move |scalars| (bases, scalars)))
        .enumerate()
        .collect();
    thinned(cases, offset).par_iter().for_each(|(number, ((bases_kind, logs), (kind, scalars)))| {
        let mut msm = msm::<G>(n, window_bits, 1 + *number as u32 % 2, number % 2 == 1);
        msm.plan.affine_levels = levels[number % levels.len()];
        msm.windows_per_range = [1, 3, 100][number % 3];
        let sum: G = msm.sum(&bases::<G>(logs), scalars, None);
        assert_eq!(sum, expected(logs, scalars), "{n} points, {bases_kind}, {kind}, {:?}", msm.plan);
    });
}

#[test]
fn affine_levels_in_g1() {
    // Small scalars of distinct points, ones of P and -P, edges where some are the identity: levels 5, 3 and 2.
    check_affine_levels::<G1Projective>(70, 8, &[1, 2, 3, 5], 7);
}

#[test]
fn affine_levels_in_g2() {
    // Ones of equal points, edges of P and -P: levels 1 and 3.
    check_affine_levels::<G2Projective>(12, 8, &[1, 2, 3], 12);
}

#[test]
fn every_window_width() {
    let n = 40;
    let logs: Vec<i64> = (0..n).map(|i| i * i - 5 * i).collect();
    let scalars = &scalar_kinds(n as usize);
    let uniform = &scalars[0].1;
    let edges: Vec<Scalar> = msm_cases::edge_scalars().into_iter().step_by(23).take(n as usize).collect();
    // 2^19 buckets of each window are as many as an emulated device is patient for.
    let widths = if std::env::var_os("CUZK_EMULATE_ALL").is_some() { 14 } else { 7 };
    (4..=widths).into_par_iter().for_each(|window_bits: u32| {
        for scalars in [uniform, &edges] {
            let logs = &logs[..scalars.len()];
            let msm = msm::<G1Projective>(scalars.len(), window_bits, 2, window_bits % 2 == 1);
            let sum: G1Projective = msm.sum(&bases::<G1Projective>(logs), scalars, None);
            assert_eq!(sum, expected(logs, scalars), "{window_bits} bits");
        }
    });
}

#[test]
fn chunks_make_no_difference() {
    let n = 257;
    let logs: Vec<i64> = (1..=n as i64).collect();
    let scalars = scalar_kinds(n);
    let cases: Vec<_> = [1, 31, 64, 200, 256]
        .iter()
        .flat_map(|chunk| scalars.iter().map(move |kind| (*chunk, kind)))
        .collect();
    thinned(cases, 3).par_iter().for_each(|(chunk, (kind, scalars))| {
        let chunk = if *chunk == 1 && *kind != "bit-heavy" { 50 } else { *chunk };
        let msm = msm::<G1Projective>(chunk, 7, 3, false);
        let sum: G1Projective = msm.sum(&bases::<G1Projective>(&logs), scalars, None);
        assert_eq!(sum, expected(&logs, scalars), "{kind} in chunks of {chunk}");
    });
    let scalars = &scalars[0].1[..60];
    let msm = msm::<G2Projective>(25, 8, 1, false);
    let sum: G2Projective = msm.sum(&bases::<G2Projective>(&logs[..60]), scalars, None);
    assert_eq!(sum, expected(&logs[..60], scalars));
}

#[test]
fn an_index_selects_scalars() {
    let logs: Vec<i64> = (1..=90).collect();
    let (_, values) = &scalar_kinds(50)[1];
    // Repeats, any order; the last is beyond the values and counts as zero.
    let index: Vec<u32> = (0..90u32).map(|i| if i == 89 { 50 } else { i * 7 % 50 }).collect();
    let selected: Vec<Scalar> =
        index.iter().map(|&at| values.get(at as usize).copied().unwrap_or_default()).collect();
    for chunk in [40, 90] {
        let msm = msm::<G1Projective>(chunk, 6, 2, false);
        let sum: G1Projective = msm.sum(&bases::<G1Projective>(&logs), values, Some(&index));
        assert_eq!(sum, expected(&logs, &selected), "chunks of {chunk}");
    }
}
