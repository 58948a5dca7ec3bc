//! Shape files: a magic with the version, the shape's distinct rows and their order in bincode, SHA-256 of all before.
//!
//! A shape file is a cache: one that is damaged or of another version is refused and recorded anew.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use bincode::Options;
use blstrs::Scalar;
use ff::Field;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::SrsError;
use crate::groth16::shape::{
    Pattern, PatternTable, Rows, Run, Variable, AUX_TAG, COEFFICIENT_MINUS_ONE, COEFFICIENT_ONE, MAX_ROWS,
};
use crate::groth16::{unfinished, R1csShape};

/// The last character is the version: it changes with the layout.
const MAGIC: [u8; 8] = *b"CUZKR1C3";
const DIGEST_BYTES: u64 = 32;
const BUFFER_BYTES: usize = 1 << 20;

/// What is in a file; its lists are borrowed where it is written and owned where it is read.
#[derive(Serialize, Deserialize)]
struct Content<Codes, Indices, Ids, Runs> {
    num_inputs: u64,
    num_aux: u64,
    coefficients: Vec<[u8; 32]>,
    /// Ends of entries in A, B and C, and steps of the aux and input anchors.
    patterns: Vec<([u32; 3], [i32; 2])>,
    codes: Codes,
    coefficient_indices: Indices,
    ids: Ids,
    /// Starts and lengths.
    runs: Runs,
}

type ContentOut<'a> = Content<&'a [u32], &'a [u16], &'a [u32], Vec<(u32, u32)>>;
type ContentIn = Content<Vec<u32>, Vec<u16>, Vec<u32>, Vec<(u32, u32)>>;

impl R1csShape {
    /// Writes the shape to `path`, atomically.
    ///
    /// # Errors
    /// [`SrsError::Io`].
    pub fn save(&self, path: &Path) -> Result<(), SrsError> {
        self.write_file(path).map_err(|source| io_error(path, source))
    }

    fn write_file(&self, path: &Path) -> io::Result<()> {
        let folder = unfinished::folder(path);
        std::fs::create_dir_all(folder)?;
        // Those of the larger circuits take gigabytes. One that cannot be removed is in nobody's way.
        let _ = unfinished::remove_leftovers(folder);
        let file = unfinished::create(folder)?;
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, Hashing::new(file));
        writer.write_all(&MAGIC)?;
        codec(u64::MAX).serialize_into(&mut writer, &self.to_out()).map_err(io::Error::other)?;
        let Hashing { inner: mut file, hasher } = writer.into_inner().map_err(|error| error.into_error())?;
        file.write_all(&hasher.finalize())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// SHA-256 of what [`save`](Self::save) writes: equal for equal circuits that were recorded by equal recorders. A second
    /// for 500 MB, where [`R1csShape::sha256`], of the matrices written out, takes a quarter of a minute.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    pub fn compact_sha256(&self) -> [u8; 32] {
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, Hashing::new(io::sink()));
        let written = writer.write_all(&MAGIC).and_then(|()| {
            codec(u64::MAX).serialize_into(&mut writer, &self.to_out()).map_err(io::Error::other)
        });
        written.expect("a sink takes everything");
        let hashing =
            writer.into_inner().map_err(|error| error.into_error()).expect("a sink takes everything");
        hashing.hasher.finalize().into()
    }

    fn to_out(&self) -> ContentOut<'_> {
        let (rows, patterns) = (self.rows(), self.rows().patterns());
        Content {
            num_inputs: self.num_inputs() as u64,
            num_aux: self.num_aux() as u64,
            coefficients: self.coefficients().iter().map(Scalar::to_bytes_le).collect(),
            patterns: patterns
                .patterns()
                .iter()
                .map(|&Pattern { ends, aux_step, input_step }| (ends, [aux_step, input_step]))
                .collect(),
            codes: patterns.codes(),
            coefficient_indices: patterns.coefficients(),
            ids: rows.ids(),
            runs: rows.runs().iter().map(|run| (run.start, run.length)).collect(),
        }
    }

    /// Reads a shape that [`R1csShape::save`] wrote; damaged files and other versions are refused.
    ///
    /// # Errors
    /// [`SrsError::Io`] if the file cannot be read, [`SrsError::ShapeFile`] if it is not to be used.
    pub fn load(path: &Path) -> Result<Self, SrsError> {
        let refuse = |what: String| SrsError::ShapeFile { path: path.to_owned(), what };
        let file = File::open(path).map_err(|source| io_error(path, source))?;
        let file_bytes = file.metadata().map_err(|source| io_error(path, source))?.len();
        let body_bytes =
            file_bytes.checked_sub(DIGEST_BYTES).ok_or_else(|| refuse(format!("has {file_bytes} B only")))?;
        let mut body = BufReader::with_capacity(BUFFER_BYTES, Hashing::new(file.take(body_bytes)));

        let mut magic = [0; MAGIC.len()];
        body.read_exact(&mut magic).map_err(|_| refuse("ends within the magic".into()))?;
        if magic != MAGIC {
            return Err(refuse("of another version, or no shape file".into()));
        }
        // Claimed lengths cost nothing: bincode reads element by element and stops at the end of the body.
        let content: ContentIn =
            codec(body_bytes).deserialize_from(&mut body).map_err(|error| refuse(error.to_string()))?;
        if body.read(&mut [0]).map_err(|source| io_error(path, source))? != 0 {
            return Err(refuse("trailing bytes".into()));
        }

        let Hashing { inner, hasher } = body.into_inner();
        let mut digest = [0; DIGEST_BYTES as usize];
        inner.into_inner().read_exact(&mut digest).map_err(|source| io_error(path, source))?;
        if digest[..] != hasher.finalize()[..] {
            return Err(refuse("its sha256 is not the one at its end".into()));
        }
        checked_shape(content).map_err(|what| refuse(what.to_owned()))
    }
}

fn codec(limit_bytes: u64) -> impl Options {
    bincode::options().with_fixint_encoding().with_limit(limit_bytes).allow_trailing_bytes()
}

fn io_error(path: &Path, source: io::Error) -> SrsError {
    SrsError::Io { path: path.to_owned(), source: Arc::new(source) }
}

/// Checks what the digest cannot: a file can be whole and yet made by a writer with a defect. What follows from the rows
/// (densities, classes) is not in the file and cannot contradict them.
fn checked_shape(content: ContentIn) -> Result<R1csShape, &'static str> {
    let is_count = |count: u64| count < u64::from(AUX_TAG);
    if content.num_inputs == 0 || !is_count(content.num_inputs) || !is_count(content.num_aux) {
        return Err("number of variables out of range");
    }
    let (num_inputs, num_aux) = (content.num_inputs as usize, content.num_aux as usize);
    let coefficients = checked_coefficients(&content.coefficients)?;
    if content.coefficient_indices.iter().any(|&index| usize::from(index) >= coefficients.len()) {
        return Err("a coefficient's index is out of range");
    }
    let to_pattern =
        |(ends, [aux_step, input_step]): ([u32; 3], [i32; 2])| Pattern { ends, aux_step, input_step };
    let patterns = content.patterns.into_iter().map(to_pattern).collect();
    let patterns = PatternTable::from_parts(patterns, content.codes, content.coefficient_indices)?;
    let runs: Vec<Run> = content.runs.into_iter().map(|(start, length)| Run { start, length }).collect();
    let num_rows: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
    if num_rows < content.num_inputs || num_rows > MAX_ROWS as u64 {
        return Err("number of rows out of range");
    }
    let rows = Rows::from_parts(patterns, content.ids, runs, num_inputs, num_aux)?;
    check_input_rows(&rows, num_inputs)?;
    let shape = R1csShape::from_parts(num_inputs, num_aux, rows, coefficients);
    if shape.num_nonzero().iter().any(|&entries| entries > u64::from(u32::MAX)) {
        return Err("a matrix has 2^32 entries or more");
    }
    Ok(shape)
}

fn checked_coefficients(bytes: &[[u8; 32]]) -> Result<Vec<Scalar>, &'static str> {
    let decoded: Option<Vec<Scalar>> =
        bytes.iter().map(|bytes| Scalar::from_bytes_le(bytes).into()).collect();
    let coefficients = decoded.ok_or("a coefficient is not canonical")?;
    let has = |index: u16, value: Scalar| coefficients.get(index as usize) == Some(&value);
    if !has(COEFFICIENT_ONE, Scalar::ONE) || !has(COEFFICIENT_MINUS_ONE, -Scalar::ONE) {
        return Err("coefficients do not start with 1 and -1");
    }
    if coefficients.contains(&Scalar::ZERO) {
        return Err("a coefficient is zero");
    }
    Ok(coefficients)
}

/// The last rows are the input rows.
fn check_input_rows(rows: &Rows, num_inputs: usize) -> Result<(), &'static str> {
    let first = rows.num_rows() - num_inputs;
    let mut all = true;
    rows.for_each(first..rows.num_rows(), |row, id, anchors| {
        let [a, b, c] = rows.patterns().row(id);
        let is_only_entry = matches!(
            (a.codes, a.coefficients),
            (&[code], &[COEFFICIENT_ONE]) if anchors.variable(code) == Variable::Input((row - first) as u32)
        );
        all &= is_only_entry && b.codes.is_empty() && c.codes.is_empty();
    });
    all.then_some(()).ok_or("input rows are missing")
}

/// Hashes what is read or written through it. Buffers belong outside: small calls are slow.
struct Hashing<T> {
    inner: T,
    hasher: Sha256,
}

impl<T> Hashing<T> {
    fn new(inner: T) -> Self {
        Self { inner, hasher: Sha256::new() }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let num_read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..num_read]);
        Ok(num_read)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let num_written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..num_written]);
        Ok(num_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groth16::shape::INPUT;
    use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError as CircuitError};

    /// Inputs and aux variables interleaved, a zero coefficient, coefficients other than 1 and -1.
    struct Small;

    impl Circuit<Scalar> for Small {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), CircuitError> {
            let absent = || Err(CircuitError::AssignmentMissing);
            let x = cs.alloc(|| "", absent)?;
            let y = cs.alloc_input(|| "", absent)?;
            let z = cs.alloc(|| "", absent)?;
            let three = Scalar::from(3);
            cs.enforce(|| "", |lc| lc + x + (three, y), |lc| lc + (Scalar::ZERO, x) + z, |lc| lc - z);
            cs.enforce(|| "", |lc| lc + CS::one(), |lc| lc, |lc| lc + x - y);
            Ok(())
        }
    }

    fn saved() -> (tempfile::TempDir, std::path::PathBuf, R1csShape, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.r1cs");
        let shape = R1csShape::record(Small).unwrap();
        shape.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (folder, path, shape, bytes)
    }

    fn refusal(path: &Path, bytes: &[u8]) -> String {
        std::fs::write(path, bytes).unwrap();
        match R1csShape::load(path).unwrap_err() {
            SrsError::ShapeFile { what, .. } => what,
            other => panic!("{other}"),
        }
    }

    /// `body` with its digest, so that only the checks of the content are left.
    fn with_digest(body: &[u8]) -> Vec<u8> {
        [body, Sha256::digest(body).as_slice()].concat()
    }

    #[test]
    fn recorded_matrices_are_the_circuits() {
        let shape = R1csShape::record(Small).unwrap();
        assert_eq!((shape.num_inputs(), shape.num_aux(), shape.num_constraints()), (2, 2, 2));
        let entries = |matrix| {
            let mut entries = Vec::new();
            shape.for_each_entry(matrix, &mut |row, column, coefficient| {
                entries.push((row, column, *coefficient));
            });
            entries
        };
        let (one, three) = (Scalar::ONE, Scalar::from(3));
        // Columns: one, y, x, z. The last two rows are the inputs'.
        assert_eq!(entries(0), [(0, 1, three), (0, 2, one), (1, 0, one), (2, 0, one), (3, 1, one)]);
        assert_eq!(entries(1), [(0, 3, one)]);
        assert_eq!(entries(2), [(0, 3, -one), (1, 1, -one), (1, 2, one)]);
        assert_eq!(shape.a_aux_density().iter_ones().collect::<Vec<_>>(), [0]);
        assert_eq!(shape.b_aux_density().iter_ones().collect::<Vec<_>>(), [1]);
        assert_eq!(shape.b_input_density().count_ones(), 0);
    }

    #[test]
    fn digest_is_that_of_the_definition() {
        let mut hasher = Sha256::new();
        let u64s = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let u32s = |values: &[u32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let scalars = |values: &[Scalar]| values.iter().flat_map(Scalar::to_bytes_le).collect::<Vec<_>>();
        let (one, three) = (Scalar::ONE, Scalar::from(3));
        hasher.update(u64s(&[2, 2]));
        hasher.update(u32s(&[0, 2, 3, 4, 5]));
        hasher.update(u32s(&[1, 2, 0, 0, 1]));
        hasher.update(scalars(&[three, one, one, one, one]));
        hasher.update(u32s(&[0, 1, 1, 1, 1]));
        hasher.update(u32s(&[3]));
        hasher.update(scalars(&[one]));
        hasher.update(u32s(&[0, 1, 3, 3, 3]));
        hasher.update(u32s(&[3, 1, 2]));
        hasher.update(scalars(&[-one, -one, one]));
        assert_eq!(R1csShape::record(Small).unwrap().sha256()[..], hasher.finalize()[..]);
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let (_folder, path, shape, _) = saved();
        assert!(R1csShape::load(&path).unwrap() == shape);
    }

    #[test]
    fn a_missing_file_is_an_io_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = R1csShape::load(&folder.path().join("absent")).unwrap_err();
        assert!(matches!(error, SrsError::Io { .. }), "{error}");
    }

    #[test]
    fn any_cut_and_any_flipped_bit_is_refused() {
        let (_folder, path, _, bytes) = saved();
        for len in 0..bytes.len() {
            refusal(&path, &bytes[..len]);
        }
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1 << (index % 8);
            refusal(&path, &damaged);
        }
        refusal(&path, &[&bytes[..], &[0]].concat());
    }

    #[test]
    fn claimed_lengths_beyond_the_file_are_refused_without_allocating() {
        let (_folder, path, _, bytes) = saved();
        let mut body = bytes[..bytes.len() - DIGEST_BYTES as usize].to_vec();
        // The number of coefficients follows the magic and the two numbers of variables.
        body[24..32].copy_from_slice(&(u64::MAX / 64).to_le_bytes());
        refusal(&path, &with_digest(&body));
    }

    #[test]
    fn a_whole_file_with_impossible_content_is_refused() {
        let (_folder, path, shape, _) = saved();
        let refused_after = |change: &dyn Fn(&mut ContentIn)| {
            let mut content = owned(shape.to_out());
            change(&mut content);
            let body = [&MAGIC[..], &codec(u64::MAX).serialize(&content).unwrap()].concat();
            refusal(&path, &with_digest(&body))
        };
        let variables = "number of variables out of range";
        assert_eq!(refused_after(&|c| c.num_inputs = 0), variables);
        assert_eq!(refused_after(&|c| c.num_inputs = 1 << 31), variables);
        assert_eq!(refused_after(&|c| c.num_aux = u64::MAX), variables);
        assert_eq!(refused_after(&|c| c.coefficients[2] = [0; 32]), "a coefficient is zero");
        assert_eq!(refused_after(&|c| c.coefficients[2] = [255; 32]), "a coefficient is not canonical");
        assert_eq!(refused_after(&|c| c.coefficients.swap(0, 1)), "coefficients do not start with 1 and -1");
        let index = "a coefficient's index is out of range";
        assert_eq!(refused_after(&|c| c.coefficient_indices[0] = 3), index);
        let ends = "ends of entries are not rising";
        assert_eq!(refused_after(&|c| c.patterns[0].0[1] = 1), ends);
        assert_eq!(refused_after(&|c| c.patterns[1].0[0] = 1), ends);
        let entries = "number of entries differs from the patterns'";
        assert_eq!(refused_after(&|c| c.codes.truncate(4)), entries);
        assert_eq!(refused_after(&|c| c.coefficient_indices.push(0)), entries);
        assert_eq!(refused_after(&|c| c.ids[1] = 4), "a pattern is out of range");
        let runs = "a run is out of range";
        assert_eq!(refused_after(&|c| c.runs[0].0 = 1), runs);
        assert_eq!(refused_after(&|c| c.runs.push((u32::MAX, 1))), runs);
        let rows = "number of rows out of range";
        assert_eq!(refused_after(&|c| c.runs.clear()), rows);
        assert_eq!(refused_after(&|c| c.runs = vec![(0, u32::MAX); 2]), rows);
        let column = "a column is out of range";
        assert_eq!(refused_after(&|c| c.num_aux = 1), column);
        assert_eq!(refused_after(&|c| c.patterns[0].1[0] = 5), column);
        assert_eq!(refused_after(&|c| c.patterns[1].1[0] = i32::MIN), column);
        assert_eq!(refused_after(&|c| c.patterns[0].1[1] = -1), column);
        assert_eq!(refused_after(&|c| c.codes[0] = INPUT | 7), column);
        assert_eq!(refused_after(&|c| c.codes[1] = 2), column);
        let input_rows = "input rows are missing";
        assert_eq!(refused_after(&|c| c.runs[0].1 -= 1), input_rows);
        assert_eq!(refused_after(&|c| c.coefficient_indices[c.codes.len() - 1] = 1), input_rows);
    }

    fn owned(content: ContentOut<'_>) -> ContentIn {
        Content {
            num_inputs: content.num_inputs,
            num_aux: content.num_aux,
            coefficients: content.coefficients,
            patterns: content.patterns,
            codes: content.codes.to_vec(),
            coefficient_indices: content.coefficient_indices.to_vec(),
            ids: content.ids.to_vec(),
            runs: content.runs,
        }
    }
}
