//! Folded keys: their files, what is refused, and an engine that uses them.

#[path = "common/synthetic.rs"]
mod synthetic;

use std::fs;
use std::path::{Path, PathBuf};

use blst::blst_p1_affine;
use blstrs::{G1Affine, G1Projective};
use cuzk::error::FoldError;
use cuzk::groth16::fold::{
    fold_path, is_beside, load_fold, Fold, FoldKey, HostTransform, LoadOptions, Watch,
};
use cuzk::groth16::generate::{fold_from_secrets, generate_srs};
use cuzk::groth16::prover::prove;
use cuzk::groth16::srs::QuotientBasis;
use cuzk::groth16::srs_file::{read_srs, write_srs, ReadOptions};
use cuzk::groth16::{Blinding, PackedWitness, R1csShape, Srs};
use group::Curve;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use synthetic::{Synthetic, Values};
use tempfile::TempDir;

/// A key in its file, and its fold beside it.
struct Case {
    dir: TempDir,
    shape: R1csShape,
    srs: Srs,
    fold: Fold,
    params: PathBuf,
    key: FoldKey,
}

fn rng(num_constraints: usize) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(num_constraints as u64)
}

impl Case {
    fn new(num_constraints: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shape = R1csShape::record(Synthetic::new(num_constraints, Values::Bits)).unwrap();
        let srs = generate_srs(&shape, &mut rng(num_constraints)).unwrap();
        let fold = fold_from_secrets(&shape, &mut rng(num_constraints)).unwrap();
        let params = dir.path().join("v28-some-circuit.params");
        let written = write_srs(&params, &srs).unwrap();
        let key = FoldKey::new(written.sha256, &shape);
        Self { dir, shape, srs, fold, params, key }
    }

    fn path(&self) -> PathBuf {
        fold_path(&self.params, &self.key)
    }

    fn save(&self, fold: &Fold) {
        fold.save(&self.path(), &self.key, &self.shape, LoadOptions::default(), Watch::NONE).unwrap();
    }

    fn load(&self) -> Result<Option<Fold>, FoldError> {
        self.load_with(LoadOptions::default())
    }

    fn load_with(&self, options: LoadOptions<'_>) -> Result<Option<Fold>, FoldError> {
        load_fold(&self.params, self.key.params_sha256, &self.srs, &self.shape, options, Watch::NONE)
    }
}

#[test]
fn a_fold_comes_back_from_its_file() {
    let case = Case::new(40);
    assert!(case.load().unwrap().is_none() && !is_beside(&case.params));
    case.save(&case.fold);
    assert!(is_beside(&case.params));
    assert!(case.load().unwrap() == Some(case.fold.clone()));
    let names: Vec<_> =
        fs::read_dir(case.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
    // Written again, it is replaced by the same bytes.
    let bytes = fs::read(case.path()).unwrap();
    case.save(&case.fold);
    assert!(fs::read(case.path()).unwrap() == bytes);
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let case = Case::new(7);
    case.save(&case.fold);
    let whole = fs::read(case.path()).unwrap();
    for index in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[index] ^= 1 << (index % 8);
        fs::write(case.path(), &bytes).unwrap();
        let error = case.load().expect_err("a bit was flipped");
        let is_right = match index {
            0..8 => matches!(error, FoldError::Foreign { .. }),
            8..12 => matches!(error, FoldError::Version { .. }),
            12..32 => matches!(error, FoldError::Mismatch { what: "size of the circuit", .. }),
            32..64 => matches!(error, FoldError::Mismatch { what: "parameter file", .. }),
            64..96 => matches!(error, FoldError::Mismatch { what: "circuit", .. }),
            // The curve's equation finds it before the digest does.
            _ if index < whole.len() - 32 => {
                matches!(error, FoldError::Point { .. } | FoldError::Digest { .. })
            }
            _ => matches!(error, FoldError::Digest { .. }),
        };
        assert!(is_right, "byte {index}: {error}");
    }
}

#[test]
fn a_file_that_is_cut_or_goes_on_is_refused() {
    let case = Case::new(3);
    case.save(&case.fold);
    let whole = fs::read(case.path()).unwrap();
    for length in [0, 1, 8, 95, 96, 97, whole.len() / 2, whole.len() - 33, whole.len() - 1] {
        fs::write(case.path(), &whole[..length]).unwrap();
        let error = case.load().expect_err("it was cut");
        let is_right = match length {
            0..96 => matches!(error, FoldError::Foreign { .. }),
            _ => matches!(error, FoldError::Length { .. }),
        };
        assert!(is_right, "{length} B: {error}");
    }
    fs::write(case.path(), [whole.as_slice(), &[0]].concat()).unwrap();
    let error = case.load().expect_err("it goes on");
    assert!(matches!(error, FoldError::Length { .. }), "{error}");
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let case = Case::new(3);
    std::os::unix::fs::symlink("/dev/null", case.path()).unwrap();
    let error = case.load().expect_err("it is a device");
    assert!(matches!(error, FoldError::Io { .. }), "{error}");
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn another_circuits_or_keys_fold_is_refused() {
    let (case, other) = (Case::new(40), Case::new(41));
    other.save(&other.fold);
    // Under the right name.
    fs::copy(other.path(), case.path()).unwrap();
    let error = case.load().expect_err("it is another key's");
    assert!(matches!(error, FoldError::Mismatch { what: "parameter file", .. }), "{error}");
    // Said to be of this key: the digests are of what was put in.
    let key = FoldKey { shape_sha256: other.key.shape_sha256, ..case.key };
    case.fold.save(&case.path(), &key, &case.shape, LoadOptions::default(), Watch::NONE).unwrap();
    let error = case.load().expect_err("it is another circuit's");
    assert!(matches!(error, FoldError::Mismatch { what: "circuit", .. }), "{error}");
    // Under its own name it is none of this key's.
    fs::remove_file(case.path()).unwrap();
    fs::copy(other.path(), case.dir.path().join(other.path().file_name().unwrap())).unwrap();
    assert!(case.load().unwrap().is_none());
}

/// Whole files whose points are not the key's: only the random sums can tell.
#[test]
fn wrong_points_are_found_before_use() {
    let case = Case::new(40);
    let infinity = blst_p1_affine::default();
    let swapped = |points: &[blst_p1_affine], i, j| {
        let mut points = points.to_vec();
        points.swap(i, j);
        points
    };
    let replaced = |points: &[blst_p1_affine], index: usize| {
        let mut points = points.to_vec();
        points[index] = infinity;
        points
    };
    let Fold { h, l } = case.fold.clone();
    let last = l.len() - 1;
    let input = l.iter().position(|point| *point != infinity).unwrap();
    let wrong = [
        ("h", Fold { h: swapped(&h, 0, 1), l: l.clone() }),
        ("h", Fold { h: replaced(&h, h.len() - 1), l: l.clone() }),
        ("l", Fold { h: h.clone(), l: swapped(&l, last - 1, last) }),
        ("l", Fold { h: h.clone(), l: replaced(&l, input) }),
        ("l", Fold { h: h.clone(), l: replaced(&l, last) }),
    ];
    for (query, fold) in wrong {
        case.save(&fold);
        let error = case.load().expect_err("a point is wrong");
        assert!(matches!(error, FoldError::Wrong { query: named } if named == query), "{query}: {error}");
    }
    let short = Fold { h: h[1..].to_vec(), l };
    let error = short.check(&case.srs, &case.shape, Path::new("short"), Watch::NONE).unwrap_err();
    assert!(matches!(error, FoldError::Wrong { query: "h" }), "{error}");
}

/// They are looked for first: of those whose part outside the subgroup has order 3, a random sum misses one in three.
#[test]
fn a_point_outside_the_subgroup_is_named() {
    let case = Case::new(40);
    let mut compressed = [0; 48];
    compressed[0] = 0x80;
    let outside = (1u8..).find_map(|x| {
        compressed[47] = x;
        let point = Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&compressed));
        point.filter(|point| !bool::from(point.is_torsion_free()))
    });
    let outside = outside.expect("half of all x are on the curve");
    let moved_out = |point: blst_p1_affine| -> blst_p1_affine {
        let mut affine = G1Affine::default();
        *affine.as_mut() = point;
        *(G1Projective::from(affine) + outside).to_affine().as_ref()
    };
    let num_inputs = case.shape.num_inputs();
    let (mut h, mut input, mut aux) = (case.fold.clone(), case.fold.clone(), case.fold.clone());
    h.h[5] = moved_out(h.h[5]);
    input.l[num_inputs - 1] = moved_out(input.l[num_inputs - 1]);
    aux.l[num_inputs + 3] = moved_out(aux.l[num_inputs + 3]);
    let last_input = num_inputs as u64 - 1;
    for (fold, named, at) in [(h, "fold.h", 5), (input, "fold.l inputs", last_input), (aux, "fold.l aux", 3)]
    {
        case.save(&fold);
        let error = case.load().expect_err("a point is outside the subgroup");
        let is_right =
            matches!(error, FoldError::Point { section, index, .. } if (section, index) == (named, at));
        assert!(is_right, "{named}: {error}");
    }
}

#[test]
fn a_verdict_spares_the_sums_and_is_of_one_file() {
    let case = Case::new(40);
    let verdicts = case.dir.path().join("verdicts");
    let options = LoadOptions { verdict_dir: Some(&verdicts) };
    case.save(&case.fold);
    assert!(!verdicts.exists());
    case.load_with(options).unwrap().unwrap();
    assert_eq!(fs::read_dir(&verdicts).unwrap().count(), 1);
    // Another file under the name is checked again.
    let mut wrong = case.fold.clone();
    wrong.h.swap(0, 1);
    case.save(&wrong);
    assert!(matches!(case.load_with(options), Err(FoldError::Wrong { query: "h" })));
    // Whoever writes a file has checked it.
    case.fold.save(&case.path(), &case.key, &case.shape, options, Watch::NONE).unwrap();
    assert!(case.load_with(options).unwrap() == Some(case.fold.clone()));
}

#[test]
fn a_folded_key_cannot_be_folded_again_nor_stand_for_a_plain_one() {
    let case = Case::new(40);
    let folded = case.fold.clone().apply(case.srs);
    assert_eq!(folded.basis, QuotientBasis::Lagrange);
    folded.check_fits(&case.shape).unwrap();
    let error = Fold::build(&folded, &case.shape, &mut HostTransform, Watch::NONE).unwrap_err();
    assert!(matches!(error, FoldError::Key { .. }), "{error}");
    // A parameter file could not say that its key is folded.
    let path = case.dir.path().join("folded.params");
    let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| write_srs(&path, &folded)));
    assert!(written.is_err() && !path.exists());
    let plain = Srs { basis: QuotientBasis::Coefficients, ..folded };
    assert!(plain.check_fits(&case.shape).is_err());
}

#[test]
fn a_stopped_check_or_transform_says_so() {
    let case = Case::new(40);
    let watch = Watch { is_stopped: &|| true, ..Watch::NONE };
    let stopped = |result: Result<(), FoldError>| matches!(result, Err(FoldError::Stopped));
    assert!(stopped(case.fold.check(&case.srs, &case.shape, Path::new(""), watch)));
    assert!(stopped(Fold::build(&case.srs, &case.shape, &mut HostTransform, watch).map(|_| ())));
    let path = case.path();
    assert!(stopped(
        case.fold.save(&path, &case.key, &case.shape, LoadOptions::default(), watch).map(|_| ())
    ));
    assert!(!path.exists() && fs::read_dir(case.dir.path()).unwrap().count() == 1);
}

/// By the file as it is read: the proof is the plain key's.
#[test]
fn a_key_and_its_fold_read_from_disk_give_the_plain_keys_bytes() {
    let case = Case::new(700);
    let fold = Fold::build(&case.srs, &case.shape, &mut HostTransform, Watch::NONE).unwrap();
    assert!(fold == case.fold);
    case.save(&fold);
    let loaded = read_srs(&case.params, &ReadOptions::default(), &|_, _| ()).unwrap();
    assert_eq!(loaded.sha256, case.key.params_sha256);
    let fold = case.load().unwrap().unwrap();
    let folded = fold.apply(loaded.srs);
    let witness = PackedWitness::synthesize(Synthetic::new(700, Values::Bits), &case.shape).unwrap();
    let blinding = Blinding::random(&mut rng(3));
    let proofs = [&case.srs, &folded].map(|srs| prove(srs, &case.shape, &witness, &blinding).unwrap());
    assert_eq!(proofs[0], proofs[1]);
}
