//! Shape files: a magic with the version, the digest of the matrices, the shape in bincode, SHA-256 of all before it.
//!
//! A shape file is a cache: one that is damaged or of another version is refused and recorded anew. The last digest
//! finds damage of the file; the first says which matrices these are, however they are laid out, and finds a reader or
//! writer that does not agree with the recorder.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use bincode::Options;
use blstrs::Scalar;
use ff::{Field, PrimeField};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::SrsError;
use crate::groth16::shape::{Matrix, COEFFICIENT_MINUS_ONE, COEFFICIENT_ONE};
use crate::groth16::{unfinished, R1csShape};

/// The last character is the version: it changes with the layout.
const MAGIC: [u8; 8] = *b"CUZKR1C2";
const DIGEST_BYTES: u64 = 32;
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Serialize)]
struct ShapeOut<'a> {
    magic: [u8; 8],
    r1cs_sha256: [u8; 32],
    num_inputs: u64,
    num_aux: u64,
    coefficients: Vec<[u8; 32]>,
    matrices: [MatrixOut<'a>; 3],
}

#[derive(Serialize)]
struct MatrixOut<'a> {
    row_starts: &'a [u32],
    columns: &'a [u32],
    coefficients: &'a [u16],
}

#[derive(Deserialize)]
struct ShapeIn {
    r1cs_sha256: [u8; 32],
    num_inputs: u64,
    num_aux: u64,
    coefficients: Vec<[u8; 32]>,
    matrices: [MatrixIn; 3],
}

#[derive(Deserialize)]
struct MatrixIn {
    row_starts: Vec<u32>,
    columns: Vec<u32>,
    coefficients: Vec<u16>,
}

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
        codec(u64::MAX).serialize_into(&mut writer, &self.to_out()).map_err(io::Error::other)?;
        let Hashing { inner: mut file, hasher } = writer.into_inner().map_err(|error| error.into_error())?;
        file.write_all(&hasher.finalize())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    fn to_out(&self) -> ShapeOut<'_> {
        ShapeOut {
            magic: MAGIC,
            r1cs_sha256: self.sha256(),
            num_inputs: self.num_inputs() as u64,
            num_aux: self.num_aux() as u64,
            coefficients: self.coefficients().iter().map(Scalar::to_bytes_le).collect(),
            matrices: self.matrices().each_ref().map(|matrix| MatrixOut {
                row_starts: &matrix.row_starts,
                columns: &matrix.columns,
                coefficients: &matrix.coefficients,
            }),
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
        let parts: ShapeIn =
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
        checked_shape(parts).map_err(|what| refuse(what.to_owned()))
    }
}

fn codec(limit_bytes: u64) -> impl Options {
    bincode::options().with_fixint_encoding().with_limit(limit_bytes).allow_trailing_bytes()
}

fn io_error(path: &Path, source: io::Error) -> SrsError {
    SrsError::Io { path: path.to_owned(), source: Arc::new(source) }
}

/// Checks what the digest cannot: a file can be whole and yet made by a writer with a defect.
fn checked_shape(parts: ShapeIn) -> Result<R1csShape, &'static str> {
    let ShapeIn { r1cs_sha256, num_inputs, num_aux, coefficients, matrices } = parts;
    let num_variables = match num_inputs.checked_add(num_aux) {
        Some(sum) if num_inputs >= 1 && sum <= u64::from(u32::MAX) => sum as u32,
        _ => return Err("number of variables out of range"),
    };
    let coefficients = checked_coefficients(&coefficients)?;
    let matrices = matrices.map(|MatrixIn { row_starts, columns, coefficients }| Matrix {
        row_starts,
        columns,
        coefficients,
    });
    for matrix in &matrices {
        check_matrix(matrix, num_variables, coefficients.len())?;
    }
    check_rows(&matrices, num_inputs as usize)?;
    let shape = R1csShape::from_parts(num_inputs as usize, num_aux as usize, matrices, coefficients);
    if shape.sha256() != r1cs_sha256 {
        return Err("its matrices are not those whose digest it carries");
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

fn check_matrix(matrix: &Matrix, num_variables: u32, num_coefficients: usize) -> Result<(), &'static str> {
    let Matrix { row_starts, columns, coefficients } = matrix;
    let rising = row_starts.windows(2).all(|pair| pair[0] <= pair[1]);
    if row_starts.first() != Some(&0) || !rising {
        return Err("row starts are not rising from zero");
    }
    if row_starts.last().map(|&end| end as usize) != Some(columns.len())
        || columns.len() != coefficients.len()
    {
        return Err("number of entries differs from the rows'");
    }
    if columns.iter().any(|&column| column >= num_variables) {
        return Err("a column is out of range");
    }
    if coefficients.iter().any(|&index| usize::from(index) >= num_coefficients) {
        return Err("a coefficient's index is out of range");
    }
    Ok(())
}

/// All matrices have the same rows, and the last ones are the input rows.
fn check_rows(matrices: &[Matrix; 3], num_inputs: usize) -> Result<(), &'static str> {
    let num_rows = matrices[0].num_rows();
    if matrices.iter().any(|matrix| matrix.num_rows() != num_rows) {
        return Err("matrices have unequal numbers of rows");
    }
    if num_rows < num_inputs || num_rows > 1 << (Scalar::S - 1) {
        return Err("number of rows out of range");
    }
    let [a, b, c] = matrices;
    let is_input_row = |input: usize| {
        let row = num_rows - num_inputs + input;
        let start = a.row_starts[row] as usize;
        let only_entry = a.row_starts[row + 1] as usize == start + 1
            && a.columns[start] as usize == input
            && a.coefficients[start] == COEFFICIENT_ONE;
        only_entry && [b, c].iter().all(|matrix| matrix.row_starts[row] == matrix.row_starts[row + 1])
    };
    if (0..num_inputs).all(is_input_row) {
        Ok(())
    } else {
        Err("input rows are missing")
    }
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
        // The number of coefficients follows the magic, a digest and the two numbers of variables.
        body[56..64].copy_from_slice(&(u64::MAX / 64).to_le_bytes());
        refusal(&path, &with_digest(&body));
    }

    #[test]
    fn a_whole_file_with_impossible_content_is_refused() {
        let (_folder, path, shape, _) = saved();
        let refused_after = |change: &dyn Fn(&mut ShapeParts)| {
            let mut parts = ShapeParts::of(&shape);
            change(&mut parts);
            let body = codec(u64::MAX).serialize(&parts.to_out()).unwrap();
            refusal(&path, &with_digest(&body))
        };
        assert_eq!(refused_after(&|p| p.matrices[1].columns[0] = 4), "a column is out of range");
        assert_eq!(
            refused_after(&|p| p.matrices[2].coefficients[0] = 3),
            "a coefficient's index is out of range"
        );
        assert_eq!(
            refused_after(&|p| p.matrices[0].row_starts[1] = 4),
            "row starts are not rising from zero"
        );
        assert_eq!(
            refused_after(&|p| p.matrices[0].columns.truncate(4)),
            "number of entries differs from the rows'"
        );
        assert_eq!(
            refused_after(&|p| p.matrices[1].row_starts.push(1)),
            "matrices have unequal numbers of rows"
        );
        assert_eq!(
            refused_after(&|p| p.matrices[0].row_starts.clear()),
            "row starts are not rising from zero"
        );
        assert_eq!(refused_after(&|p| p.num_inputs = 0), "number of variables out of range");
        assert_eq!(refused_after(&|p| p.num_aux = u64::MAX), "number of variables out of range");
        assert_eq!(refused_after(&|p| p.matrices[0].columns[4] = 0), "input rows are missing");
        assert_eq!(refused_after(&|p| p.coefficients[2] = [0; 32]), "a coefficient is zero");
        assert_eq!(refused_after(&|p| p.coefficients[2] = [255; 32]), "a coefficient is not canonical");
        assert_eq!(refused_after(&|p| p.coefficients.swap(0, 1)), "coefficients do not start with 1 and -1");
        // Possible, and not what was recorded.
        let others = "its matrices are not those whose digest it carries";
        assert_eq!(refused_after(&|p| p.matrices[1].columns[0] = 2), others);
        assert_eq!(refused_after(&|p| p.coefficients[2][0] ^= 1), others);
        assert_eq!(refused_after(&|p| p.r1cs_sha256[31] ^= 1), others);
    }

    /// A shape taken apart, to be spoiled.
    struct ShapeParts {
        r1cs_sha256: [u8; 32],
        num_inputs: u64,
        num_aux: u64,
        coefficients: Vec<[u8; 32]>,
        matrices: [Matrix; 3],
    }

    impl ShapeParts {
        fn of(shape: &R1csShape) -> Self {
            Self {
                r1cs_sha256: shape.sha256(),
                num_inputs: shape.num_inputs() as u64,
                num_aux: shape.num_aux() as u64,
                coefficients: shape.coefficients().iter().map(Scalar::to_bytes_le).collect(),
                matrices: shape.matrices().clone(),
            }
        }

        fn to_out(&self) -> ShapeOut<'_> {
            ShapeOut {
                magic: MAGIC,
                r1cs_sha256: self.r1cs_sha256,
                num_inputs: self.num_inputs,
                num_aux: self.num_aux,
                coefficients: self.coefficients.clone(),
                matrices: self.matrices.each_ref().map(|matrix| MatrixOut {
                    row_starts: &matrix.row_starts,
                    columns: &matrix.columns,
                    coefficients: &matrix.coefficients,
                }),
            }
        }
    }
}
