//! Many multiples of one point, by tables of its small multiples.
//!
//! A scalar is cut into windows of `w` bits, and each window's value made signed (`-2^(w-1) < digit <= 2^(w-1)`, the
//! carry going to the next window), which halves the tables. Table `i` holds `1 · 2^(wi) · base` … in affine form, and
//! a multiple costs one addition per window. The last window is not made signed. Many multiples are summed at a time,
//! in affine form: their additions share one inversion, and nothing has to be normalised in the end.

use blstrs::Scalar;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use rayon::prelude::*;

use super::{Chunks, PointMaker, Sink};
use crate::error::SrsError;
use crate::groth16::srs_file::{RawPoint, BATCH_POINTS};

/// Bits of the scalar field's modulus.
const SCALAR_BITS: usize = 255;

/// Scalars that are multiplied and written at a time.
const CHUNK_SCALARS: usize = 1 << 14;

/// Above this, tables (50 MB in G1, 100 MB in G2) outgrow caches and save less than a miss costs.
const MAX_WINDOW_BITS: usize = 16;

/// Multiples summed at a time: an inversion costs as much as 20 additions in G1.
const SUMS_AT_ONCE: usize = 1 << 10;

/// Tables of one base.
pub(crate) struct FixedBase<P> {
    window_bits: usize,
    tables: Vec<Vec<P>>,
}

impl<P: RawPoint> FixedBase<P> {
    /// Tables whose making pays for `num_scalars` multiplications.
    pub fn new(base: P::Projective, num_scalars: usize) -> Self {
        let window_bits = cheapest_window_bits(num_scalars);
        let mut window_base = base;
        let bases: Vec<_> = (0..num_windows(window_bits))
            .map(|_| {
                let this = window_base;
                (0..window_bits).for_each(|_| window_base = window_base.double());
                this
            })
            .collect();
        let tables = bases
            .into_par_iter()
            .enumerate()
            .map(|(window, base)| multiples(base, table_points(window, window_bits)))
            .collect();
        Self { window_bits, tables }
    }

    #[cfg_attr(not(feature = "cuda"), allow(dead_code))] // For whoever multiplies by these tables elsewhere.
    pub fn window_bits(&self) -> usize {
        self.window_bits
    }

    /// A table for each window, lowest first.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub fn tables(&self) -> &[Vec<P>] {
        &self.tables
    }

    /// `scalars[i] · base` for each; no scalar may be zero, so that no result is the identity.
    pub fn multiply(&self, scalars: &[Scalar]) -> Vec<P> {
        scalars.par_chunks(SUMS_AT_ONCE).flat_map_iter(|scalars| self.multiply_batch(scalars)).collect()
    }

    /// Window by window over the batch: its additions share an inversion, and one table at a time is in use.
    fn multiply_batch(&self, scalars: &[Scalar]) -> Vec<P> {
        let mut digits: Vec<_> = scalars.iter().map(|scalar| Digits::new(scalar, self.window_bits)).collect();
        let mut sums = vec![P::Affine::identity(); scalars.len()];
        let mut addends = Vec::with_capacity(scalars.len());
        for (window, table) in self.tables.iter().enumerate() {
            let is_last = window + 1 == self.tables.len();
            addends.clear();
            addends.extend(digits.iter_mut().map(|digits| {
                let digit = if is_last { digits.last() } else { digits.next_signed() };
                match digit.unsigned_abs() as usize {
                    0 => P::Affine::identity(),
                    magnitude if digit > 0 => table[magnitude - 1].to_affine(),
                    magnitude => -table[magnitude - 1].to_affine(),
                }
            }));
            match window {
                0 => sums.copy_from_slice(&addends),
                _ => P::add_each(&mut sums, &addends),
            }
        }
        sums.iter().map(P::from_affine).collect()
    }
}

impl<P: RawPoint> PointMaker<P> for &FixedBase<P> {
    fn chunk_scalars(&self) -> usize {
        CHUNK_SCALARS
    }

    fn points(&mut self, mut chunks: Chunks<'_>, sink: &mut Sink<'_, P>) -> Result<(), SrsError> {
        chunks.try_for_each(|scalars| sink(&self.multiply(&scalars)))
    }

    fn encoded(&mut self, mut chunks: Chunks<'_>, sink: &mut Sink<'_, u8>) -> Result<(), SrsError> {
        let mut bytes = Vec::with_capacity(CHUNK_SCALARS * P::BYTES);
        chunks.try_for_each(|scalars| {
            bytes.clear();
            self.multiply(&scalars).iter().for_each(|point| point.encode(&mut bytes));
            sink(&bytes)
        })
    }
}

/// `1 · base … count · base`.
fn multiples<P: RawPoint>(base: P::Projective, count: usize) -> Vec<P> {
    let affine = base.to_affine();
    let mut multiple = P::Projective::identity();
    let mut table = Vec::with_capacity(count);
    let mut batch = Vec::with_capacity(BATCH_POINTS);
    while table.len() < count {
        batch.clear();
        for _ in 0..BATCH_POINTS.min(count - table.len()) {
            multiple += &affine;
            batch.push(multiple);
        }
        table.extend(P::normalize(&batch));
    }
    table
}

fn num_windows(window_bits: usize) -> usize {
    SCALAR_BITS.div_ceil(window_bits)
}

/// Largest digit of a window. The last has fewer bits and no sign, but may take a carry.
fn table_points(window: usize, window_bits: usize) -> usize {
    let rest_bits = SCALAR_BITS - window * window_bits;
    match rest_bits <= window_bits {
        true => 1 << rest_bits,
        false => 1 << (window_bits - 1),
    }
}

/// Weighs additions for the tables against additions for the scalars.
fn cheapest_window_bits(num_scalars: usize) -> usize {
    let cost = |bits: &usize| {
        let table: usize = (0..num_windows(*bits)).map(|window| table_points(window, *bits)).sum();
        table + num_scalars * num_windows(*bits)
    };
    (2..=MAX_WINDOW_BITS).min_by_key(cost).expect("the range is not empty")
}

/// A scalar's windows, lowest first.
struct Digits {
    /// What is left of the scalar, little-endian.
    words: [u64; 4],
    window_bits: usize,
    carry: i64,
}

impl Digits {
    fn new(scalar: &Scalar, window_bits: usize) -> Self {
        let bytes = scalar.to_bytes_le();
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
        }
        Self { words, window_bits, carry: 0 }
    }

    fn next_signed(&mut self) -> i64 {
        let bits = self.window_bits;
        let value = (self.words[0] & ((1 << bits) - 1)) as i64 + self.carry;
        for index in 0..4 {
            let above = self.words.get(index + 1).map_or(0, |word| word << (64 - bits));
            self.words[index] = self.words[index] >> bits | above;
        }
        self.carry = i64::from(value > 1 << (bits - 1));
        value - (self.carry << bits)
    }

    /// The last window's digit: what is left, and the carry.
    fn last(&self) -> i64 {
        debug_assert_eq!(self.words[1..], [0; 3]);
        self.words[0] as i64 + self.carry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blst::{blst_p1_affine, blst_p2_affine};
    use blstrs::{G1Projective, G2Projective};
    use ff::Field;
    use rand_core::SeedableRng;

    #[test]
    fn multiples_are_those_of_plain_multiplication_for_every_window_size() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let g1 = G1Projective::random(&mut rng);
        let g2 = G2Projective::random(&mut rng);
        let mut scalars = vec![Scalar::ONE, -Scalar::ONE, Scalar::from(u64::MAX), -Scalar::from(2)];
        scalars.extend((0..7).map(|log| Scalar::from(2).pow_vartime([37 * log])));
        scalars.extend((0..10).map(|_| Scalar::random(&mut rng)));
        let sizes = [0, 30, 100, 1000, 10_000, 100_000].map(cheapest_window_bits);
        assert!(sizes.is_sorted() && sizes[0] < sizes[5]);
        for num_scalars in [1, 100, 10_000] {
            let multiplied = FixedBase::<blst_p1_affine>::new(g1, num_scalars).multiply(&scalars);
            for (point, scalar) in multiplied.into_iter().zip(&scalars) {
                assert_eq!(point.to_affine(), (g1 * scalar).to_affine());
            }
        }
        let multiplied = FixedBase::<blst_p2_affine>::new(g2, 100).multiply(&scalars);
        for (point, scalar) in multiplied.into_iter().zip(&scalars) {
            assert_eq!(point.to_affine(), (g2 * scalar).to_affine());
        }
    }
}
