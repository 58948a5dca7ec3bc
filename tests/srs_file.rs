//! Parameter files are believed only after every check (behaviours B36, B37, B38).

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::{G1Affine, G2Affine, Scalar};
use cuzk::error::SrsError;
use cuzk::groth16::generate::generate_srs;
use cuzk::groth16::srs_file::{
    decode_srs, decode_vk, read_counts, read_srs, read_vk, write_srs, LoadedSrs, ReadOptions,
};
use cuzk::groth16::R1csShape;
use group::prime::PrimeCurveAffine;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tempfile::TempDir;

/// A chain of squarings with one public input.
#[derive(Clone, Copy)]
struct Squarings(usize);

impl Circuit<Scalar> for Squarings {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let no_value = || Err(SynthesisError::AssignmentMissing);
        let mut last = cs.alloc_input(|| "input", no_value)?;
        for index in 0..self.0 {
            let square = cs.alloc(|| format!("square {index}"), no_value)?;
            cs.enforce(|| "square", |lc| lc + last, |lc| lc + last, |lc| lc + square);
            last = square;
        }
        Ok(())
    }
}

/// Parameters of a small circuit, as a file and as bytes.
struct Fixture {
    dir: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    shape: R1csShape,
}

impl Fixture {
    fn new(num_squarings: usize, seed: u8) -> Self {
        let shape = R1csShape::record(Squarings(num_squarings)).unwrap();
        let srs = generate_srs(&shape, &mut ChaCha20Rng::from_seed([seed; 32])).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("squarings.params");
        write_srs(&path, &srs).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        Self { dir, path, bytes, shape }
    }

    /// Name, first byte of the first point, number of points and bytes of a point, by reading the layout anew.
    fn sections(&self) -> Vec<(&'static str, usize, usize, usize)> {
        let head = [
            ("vk.alpha_g1", 0, 96),
            ("vk.beta_g1", 96, 96),
            ("vk.beta_g2", 192, 192),
            ("vk.gamma_g2", 384, 192),
            ("vk.delta_g1", 576, 96),
            ("vk.delta_g2", 672, 192),
        ];
        let mut sections: Vec<_> = head.map(|(name, start, size)| (name, start, 1, size)).into();
        let mut start = 864;
        for (name, size) in [("vk.ic", 96), ("h", 96), ("l", 96), ("a", 96), ("b_g1", 96), ("b_g2", 192)] {
            let count = u32::from_be_bytes(self.bytes[start..start + 4].try_into().unwrap()) as usize;
            sections.push((name, start + 4, count, size));
            start += 4 + count * size;
        }
        assert_eq!(start, self.bytes.len());
        sections
    }

    /// The file with one point replaced.
    fn with_point(&self, start: usize, point: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[start..start + point.len()].copy_from_slice(point);
        bytes
    }
}

fn read(path: &Path, options: &ReadOptions) -> Result<LoadedSrs, SrsError> {
    read_srs(path, options, &|_, _| ())
}

fn assert_point_error(bytes: &[u8], section: &str, index: usize, what: &str) {
    let error = decode_srs(bytes).unwrap_err();
    match &error {
        SrsError::Point { section: at, index: at_index, what: reason, .. } => {
            assert_eq!((*at, *at_index as usize), (section, index), "{error}");
            assert!(reason.contains(what), "{error}");
        }
        other => panic!("{section}[{index}]: {other}"),
    }
    assert!(error.to_string().contains(&format!("{section}[{index}]")), "{error}");
}

#[test]
fn b36_one_flipped_bit_in_any_section_is_named_by_section_and_index() {
    let fixture = Fixture::new(9, 1);
    for (section, start, count, size) in fixture.sections() {
        for index in [0, count / 2, count - 1] {
            let point = start + index * size;
            for bit in (0..size * 8).step_by(61) {
                let mut bytes = fixture.bytes.clone();
                bytes[point + bit / 8] ^= 1 << (bit % 8);
                assert_point_error(&bytes, section, index, "");
            }
        }
    }
}

#[test]
fn b36_a_flipped_bit_in_a_file_is_named_with_the_file() {
    let fixture = Fixture::new(9, 1);
    for (section, start, count, size) in fixture.sections() {
        let point = start + (count - 1) * size;
        let mut bytes = fixture.bytes.clone();
        bytes[point + size - 1] ^= 4;
        std::fs::write(&fixture.path, &bytes).unwrap();
        let error = read(&fixture.path, &ReadOptions::default()).unwrap_err();
        let expected = format!("{}: {section}[{}]: not on the curve", fixture.path.display(), count - 1);
        assert_eq!(error.to_string(), expected);
    }
}

/// A point on the curve of G1 and not in the subgroup, uncompressed.
fn g1_outside() -> Vec<u8> {
    (1u8..)
        .find_map(|x| {
            let mut bytes = [0; 48];
            bytes[0] = 0x80;
            bytes[47] = x;
            Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
                .filter(|point| !bool::from(point.is_torsion_free()))
        })
        .unwrap()
        .to_uncompressed()
        .to_vec()
}

/// The same in G2.
fn g2_outside() -> Vec<u8> {
    (1u8..)
        .find_map(|x| {
            let mut bytes = [0; 96];
            bytes[0] = 0x80;
            bytes[95] = x;
            Option::<G2Affine>::from(G2Affine::from_compressed_unchecked(&bytes))
                .filter(|point| !bool::from(point.is_torsion_free()))
        })
        .unwrap()
        .to_uncompressed()
        .to_vec()
}

#[test]
fn b36_points_on_the_curve_but_off_the_subgroup_are_named() {
    let fixture = Fixture::new(9, 1);
    for (section, start, count, size) in fixture.sections() {
        let outside = if size == 96 { g1_outside() } else { g2_outside() };
        let bytes = fixture.with_point(start + (count - 1) * size, &outside);
        assert_point_error(&bytes, section, count - 1, "not in the subgroup");
    }
}

/// Big-endian sum of a coordinate and the field's modulus, if it fits into the 381 bits of an encoding.
fn plus_modulus(coordinate: &[u8]) -> Option<Vec<u8>> {
    let modulus = hex::decode(concat!(
        "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf",
        "6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab"
    ))
    .unwrap();
    let mut sum = vec![0; 48];
    let mut carry = 0;
    for index in (0..48).rev() {
        let digit = u16::from(coordinate[index]) + u16::from(modulus[index]) + carry;
        sum[index] = digit as u8;
        carry = digit >> 8;
    }
    (sum[0] < 0x20).then_some(sum)
}

#[test]
fn b36_non_canonical_coordinates_are_refused_even_if_they_name_the_same_point() {
    let fixture = Fixture::new(9, 1);
    let mut refused = 0;
    for (section, start, count, size) in fixture.sections() {
        for index in 0..count {
            for coordinate in (start + index * size..start + (index + 1) * size).step_by(48) {
                if let Some(same) = plus_modulus(&fixture.bytes[coordinate..coordinate + 48]) {
                    assert_point_error(&fixture.with_point(coordinate, &same), section, index, "modulus");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 10, "a fifth of all coordinates are small enough");
}

#[test]
fn b36_the_identity_and_wrong_flags_are_refused() {
    let fixture = Fixture::new(9, 1);
    for (section, start, count, size) in fixture.sections() {
        let last = start + (count - 1) * size;
        let refused = |point: &[u8], what| {
            assert_point_error(&fixture.with_point(last, point), section, count - 1, what);
        };
        let mut identity = vec![0; size];
        refused(&identity, "not on the curve");
        identity[0] = 0x40;
        refused(&identity, "identity");
        let point = &fixture.bytes[last..last + size];
        for (flag, what) in [(0x80, "compressed"), (0x40, "identity"), (0x20, "sign")] {
            refused(&[point[0] | flag], what);
        }
        // A well-formed compressed point, in a place twice its size.
        let mut compressed = vec![0; size];
        match size {
            96 => compressed[..48].copy_from_slice(&G1Affine::generator().to_compressed()),
            _ => compressed[..96].copy_from_slice(&G2Affine::generator().to_compressed()),
        }
        refused(&compressed, "compressed");
    }
}

#[test]
fn b37_empty_half_missing_and_renamed_files_are_four_clear_errors() {
    let fixture = Fixture::new(300, 1);
    let other = Fixture::new(200, 2);
    let digest = read(&fixture.path, &ReadOptions::default()).unwrap().sha256;
    let options = ReadOptions { expected_sha256: Some(digest), verdict_dir: None };
    let refusal = || {
        let begun = Instant::now();
        let error = read(&fixture.path, &options).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(1), "{error}");
        error
    };

    std::fs::write(&fixture.path, []).unwrap();
    let empty = refusal();
    assert!(
        matches!(empty, SrsError::Length { section: "vk.alpha_g1", needs_bytes: 96, has_bytes: 0, .. }),
        "{empty}"
    );

    std::fs::write(&fixture.path, &fixture.bytes[..fixture.bytes.len() / 2]).unwrap();
    let half = refusal();
    assert!(
        matches!(half, SrsError::Length { has_bytes, .. } if has_bytes == fixture.bytes.len() as u64 / 2),
        "{half}"
    );

    std::fs::write(&fixture.path, &other.bytes).unwrap();
    let renamed = refusal();
    assert!(matches!(renamed, SrsError::Digest { .. }), "{renamed}");
    let counts = read_counts(&fixture.path).unwrap();
    assert!(matches!(counts.check_fits(&fixture.shape), Err(SrsError::Mismatch { .. })));

    std::fs::remove_file(&fixture.path).unwrap();
    let missing = refusal();
    assert!(matches!(missing, SrsError::Missing { .. }), "{missing}");

    let texts = [empty, half, renamed, missing].map(|error| error.to_string());
    assert!(texts.iter().all(|text| text.contains("squarings.params")));
    assert!((1..4).all(|index| !texts[..index].contains(&texts[index])));
}

#[test]
fn b37_what_is_no_regular_file_is_refused() {
    let fixture = Fixture::new(3, 1);
    for error in [
        read(fixture.dir.path(), &ReadOptions::default()).unwrap_err(),
        read_vk(Path::new("/dev/zero")).unwrap_err(),
        read_counts(Path::new("/dev/zero")).unwrap_err(),
    ] {
        assert!(matches!(error, SrsError::Io { .. }), "{error}");
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}

#[test]
fn b37_a_file_cut_anywhere_names_the_section() {
    let fixture = Fixture::new(9, 1);
    let counts = read_counts(&fixture.path).unwrap();
    assert_eq!(counts.file_bytes, fixture.bytes.len() as u64);
    for (section, start, count, size) in fixture.sections() {
        let end = start + count * size;
        let count_start = if section.starts_with("vk.") && section != "vk.ic" { start } else { start - 4 };
        for cut in [count_start, count_start + 1, start.max(count_start + 2), start + 1, end - size, end - 1]
        {
            let error = decode_srs(&fixture.bytes[..cut]).unwrap_err();
            match &error {
                SrsError::Length { section: at, needs_bytes, has_bytes, .. } => {
                    assert_eq!((*at, *has_bytes), (section, cut as u64), "{error}");
                    assert!(*needs_bytes > cut as u64 && *needs_bytes <= end as u64, "{error}");
                }
                other => panic!("cut at {cut}: {other}"),
            }
            std::fs::write(&fixture.path, &fixture.bytes[..cut]).unwrap();
            assert_eq!(
                read_counts(&fixture.path).unwrap_err().to_string(),
                read(&fixture.path, &ReadOptions::default()).unwrap_err().to_string()
            );
        }
    }
}

#[test]
fn b37_trailing_bytes_are_refused() {
    let fixture = Fixture::new(9, 1);
    for trailing in [1, 95, 96, 100_000] {
        let mut bytes = fixture.bytes.clone();
        bytes.resize(bytes.len() + trailing, 0);
        let error = decode_srs(&bytes).unwrap_err();
        let (needs, has) = (fixture.bytes.len() as u64, bytes.len() as u64);
        assert!(
            matches!(error, SrsError::Length { section: "whole file", needs_bytes, has_bytes, .. }
                if (needs_bytes, has_bytes) == (needs, has)),
            "{error}"
        );
    }
}

#[test]
fn b37_a_huge_claimed_count_is_refused_before_anything_is_allocated() {
    let fixture = Fixture::new(9, 1);
    for (section, start, _, size) in fixture.sections().split_off(6) {
        let bytes = fixture.with_point(start - 4, &[0xff; 4]);
        let error = decode_srs(&bytes).unwrap_err();
        let needs = start as u64 + u64::from(u32::MAX) * size as u64;
        assert!(
            matches!(error, SrsError::Length { section: at, needs_bytes, .. } if (at, needs_bytes) == (section, needs)),
            "{error}"
        );
    }
}

#[test]
fn b37_a_sparse_file_as_long_as_it_claims_is_refused_at_once() {
    let fixture = Fixture::new(9, 1);
    let h_count = fixture.sections()[7].1 - 4;
    let mut file = File::create(&fixture.path).unwrap();
    file.write_all(&fixture.bytes[..h_count]).unwrap();
    file.write_all(&u32::MAX.to_be_bytes()).unwrap();
    // Four empty sections follow.
    file.set_len(h_count as u64 + 4 + u64::from(u32::MAX) * 96 + 4 * 4).unwrap();
    let begun = Instant::now();
    let error = read(&fixture.path, &ReadOptions::default()).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Either the memory for the claim is refused, or its first point.
    assert!(matches!(error, SrsError::Io { .. } | SrsError::Point { section: "h", index: 0, .. }), "{error}");
}

#[test]
fn b37_keys_have_the_same_checks() {
    let fixture = Fixture::new(9, 1);
    let vk_end = fixture.sections()[7].1 - 4;
    let bytes = &fixture.bytes[..vk_end];
    let vk = decode_vk(bytes).unwrap();
    assert_eq!(vk, decode_srs(&fixture.bytes).unwrap().vk);
    for cut in 0..vk_end {
        assert!(matches!(decode_vk(&bytes[..cut]), Err(SrsError::Length { .. })));
    }
    assert!(matches!(decode_vk(&fixture.bytes), Err(SrsError::Length { section: "whole file", .. })));
    let mut outside = bytes.to_vec();
    outside[vk_end - 96..].copy_from_slice(&g1_outside());
    let error = decode_vk(&outside).unwrap_err();
    assert!(matches!(error, SrsError::Point { section: "vk.ic", index: 1, .. }), "{error}");
    let path = fixture.dir.path().join("squarings.vk");
    assert!(matches!(read_vk(&path), Err(SrsError::Missing { .. })));
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read_vk(&path).unwrap(), vk);
}

#[test]
fn b38_an_srs_of_another_circuit_is_refused_by_its_counts() {
    let fixture = Fixture::new(9, 1);
    let srs = decode_srs(&fixture.bytes).unwrap();
    srs.check_fits(&fixture.shape).unwrap();
    for (other, expected) in [(Squarings(10), "l"), (Squarings(30), "h"), (Squarings(8), "l")] {
        let shape = R1csShape::record(other).unwrap();
        let error = srs.check_fits(&shape).unwrap_err();
        assert!(matches!(error, SrsError::Mismatch { what, .. } if what == expected), "{error}");
        let by_counts = read_counts(&fixture.path).unwrap().check_fits(&shape).unwrap_err();
        assert_eq!(by_counts.to_string(), error.to_string());
    }
    let mut shorter = decode_srs(&fixture.bytes).unwrap();
    for (query, name) in [(3, "b_g2"), (2, "b_g1"), (1, "a"), (0, "ic")] {
        match query {
            0 => drop(shorter.vk.ic.pop()),
            1 => drop(shorter.a.pop()),
            2 => drop(shorter.b_g1.pop()),
            _ => drop(shorter.b_g2.pop()),
        }
        let error = shorter.check_fits(&fixture.shape).unwrap_err();
        assert!(matches!(error, SrsError::Mismatch { what, .. } if what == name), "{error}");
    }
}

#[test]
fn b36_another_digest_than_the_expected_one_is_refused() {
    let fixture = Fixture::new(9, 1);
    let loaded = read(&fixture.path, &ReadOptions::default()).unwrap();
    let right = ReadOptions { expected_sha256: Some(loaded.sha256), verdict_dir: None };
    read(&fixture.path, &right).unwrap();
    let wrong = ReadOptions { expected_sha256: Some([0xab; 32]), verdict_dir: None };
    let error = read(&fixture.path, &wrong).unwrap_err();
    assert!(error.to_string().contains(&"ab".repeat(32)), "{error}");
    assert!(error.to_string().contains(&hex::encode(loaded.sha256)), "{error}");
}

/// A fixture with a folder for verdicts, read once.
fn with_verdict() -> (Fixture, ReadOptions, PathBuf) {
    let fixture = Fixture::new(9, 1);
    let dir = fixture.dir.path().join("verdicts");
    let options = ReadOptions { expected_sha256: None, verdict_dir: Some(dir.clone()) };
    assert!(!read(&fixture.path, &options).unwrap().reused_verdict);
    let verdicts: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [verdict] = verdicts.try_into().unwrap();
    (fixture, options, verdict)
}

#[test]
fn b36_a_verdict_is_used_again_and_only_for_its_folder() {
    let (fixture, options, _) = with_verdict();
    let reused = read(&fixture.path, &options).unwrap();
    assert!(reused.reused_verdict);
    assert_eq!(reused.file_bytes, fixture.bytes.len() as u64);
    let elsewhere = ReadOptions { verdict_dir: Some(fixture.dir.path().join("elsewhere")), ..options };
    assert!(!read(&fixture.path, &elsewhere).unwrap().reused_verdict);
    assert!(!read(&fixture.path, &ReadOptions::default()).unwrap().reused_verdict);
}

#[test]
fn b36_a_verdict_is_dropped_when_the_file_was_touched_or_replaced() {
    let (fixture, options, _) = with_verdict();
    let file = File::options().write(true).open(&fixture.path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_nanos(1_000_000_001)).unwrap();
    assert!(!read(&fixture.path, &options).unwrap().reused_verdict);
    assert!(read(&fixture.path, &options).unwrap().reused_verdict);
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_nanos(1_000_000_002)).unwrap();
    assert!(!read(&fixture.path, &options).unwrap().reused_verdict);

    let copy = fixture.dir.path().join("copy");
    std::fs::copy(&fixture.path, &copy).unwrap();
    std::fs::rename(&copy, &fixture.path).unwrap();
    assert!(!read(&fixture.path, &options).unwrap().reused_verdict);
}

#[test]
fn b36_a_verdict_does_not_cover_other_bytes_of_the_same_size_and_time() {
    let (fixture, options, _) = with_verdict();
    let modified = std::fs::metadata(&fixture.path).unwrap().modified().unwrap();
    let (_, start, ..) = fixture.sections()[8];
    let mut file = File::options().write(true).open(&fixture.path).unwrap();
    file.seek(SeekFrom::Start(start as u64)).unwrap();
    file.write_all(&g1_outside()).unwrap();
    file.set_modified(modified).unwrap();
    let error = read(&fixture.path, &options).unwrap_err();
    assert!(matches!(error, SrsError::Point { section: "l", index: 0, .. }), "{error}");
}

#[test]
fn b36_a_damaged_verdict_is_none_and_is_replaced() {
    let (fixture, options, verdict) = with_verdict();
    for damage in [b"".as_slice(), b"{", b"null", b"{\"checks_version\":1}"] {
        std::fs::write(&verdict, damage).unwrap();
        assert!(!read(&fixture.path, &options).unwrap().reused_verdict);
        assert!(read(&fixture.path, &options).unwrap().reused_verdict);
    }
    // A folder that cannot be made does not keep the file from being used.
    let blocked = ReadOptions { expected_sha256: None, verdict_dir: Some(verdict.join("below a file")) };
    assert!(!read(&fixture.path, &blocked).unwrap().reused_verdict);
}
