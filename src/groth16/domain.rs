//! The QAP's evaluation domain: NTT and the quotient.
//!
//! Both transforms here use the twiddles `-ω^brv(b)`, `b < n/2`, in bit-reversed order, read front to back, and leave
//! the data where it is: `to_bit_reversed` takes natural order to bit-reversed, `from_bit_reversed`, its
//! transpose, takes bit-reversed order to natural. A pair of them needs no permutation between. Neither has an
//! inverse twin: with the same `ω`, the inverse transform is the transform read at negated indices
//! (`x[-i] = 1/n · Σ_k X_k ω^ik`), and the quotient's bookkeeping absorbs the negation.
//!
//! Large transforms recurse on quarters, so that each level of the memory hierarchy is passed through once, and do
//! two levels of butterflies per pass. There is no saving of multiplications in that: a fourth root of unity is an
//! ordinary field element.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use rayon::prelude::*;

/// Transforms up to this length (128 KiB) are done by one task, level by level within its cache.
const SERIAL_LEN: usize = 1 << 12;
/// Fewest elements of a pass given to one task.
const MIN_TASK_LEN: usize = 1 << 10;

/// From this domain on, the table of twiddles is a quarter, and the rest is multiplied out: below it is small.
const COMPACT_LOG2: u32 = 18;
/// Times that the table is halved.
const COMPACT_BITS: u32 = 2;

/// Coefficients of `h = (a·b - c) / Z` on the domain of size `n = 2^domain_log2`: `[n - 1]`
/// (the last coefficient is zero for a satisfied witness and is dropped, as bellperson does).
///
/// `a`, `b`: row values, `[num_rows]` each; `c` writes as many, zeros before, and is asked for them when `b` has done its
/// duty. Memory: two vectors of `n`, the given ones, and an eighth of one for twiddles.
///
/// Six transforms. With `g^n = -1`, `Z` is `-2` on the whole coset `g·D`. Let `P` interpolate `a·b` on the coset,
/// with coefficients below `n`, and `c` interpolate the row values on `D`; then, coefficient by coefficient,
/// `h = (P - c) / -2`, and `c` needs no transform to the coset. The quotient of a satisfied witness is unique, so
/// the coset does not show in it; for another witness the result means nothing.
///
/// # Panics
/// If there are more than `n` rows, another number of them in `b`, or `domain_log2` is above 31.
pub fn quotient(
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    domain_log2: u32,
    c: impl FnOnce(&mut [Scalar]),
) -> Vec<Scalar> {
    assert!(domain_log2 < Scalar::S, "domain of 2^{domain_log2}, limit 2^{}", Scalar::S - 1);
    assert_eq!(a.len(), b.len(), "as many rows of b as of a");
    let num_rows = a.len();
    let [mut a, mut b] = [a, b].map(|values| padded(values, 1 << domain_log2));

    let twiddles = Twiddles::new(domain_log2);
    let powers = CosetPowers::new(domain_log2);
    for values in [&mut a, &mut b] {
        to_bit_reversed(values, 0, &twiddles);
        powers.shift_to_coset(values);
        from_bit_reversed(values, 0, &twiddles);
    }
    a.par_iter_mut().zip(&b).with_min_len(MIN_TASK_LEN).for_each(|(a, b)| *a *= b);
    to_bit_reversed(&mut a, 0, &twiddles);

    b.par_iter_mut().with_min_len(MIN_TASK_LEN).for_each(|value| *value = Scalar::ZERO);
    c(&mut b[..num_rows]);
    to_bit_reversed(&mut b, 0, &twiddles);
    powers.divide_by_vanishing(&mut a, &b);
    drop(b);
    permute_bit_reversed(&mut a);
    a.pop();
    a
}

/// Bytes that [`quotient`] works in: the given vectors, on the whole domain, and its tables.
pub fn quotient_bytes(domain_log2: u32) -> u64 {
    let n = 1u64 << domain_log2;
    let low = MIN_TASK_LEN as u64;
    let coset_powers = 3 * (low.min(n) + (n / low).max(1));
    let table = 1 << domain_log2.saturating_sub(1 + skipped_bits(domain_log2));
    32 * (2 * n + table + coset_powers)
}

/// What the quotient of a satisfied witness is in the Lagrange basis, but for what `C·w` adds, which a folded key has in its
/// points (`groth16/fold.rs`): `t_j = (ã_j b_j + a_j b̃_j) / n²` for each row of the domain, `[n]`, where `ã` are the
/// values of `X a'(X)`. Zero wherever `a` and `b` both are.
///
/// `a`, `b`: row values, `[num_rows]` each. Memory: three vectors of `n`, two of them the given ones, and an eighth of
/// one for twiddles. Four transforms: the coefficients of `a`, each times its index, and back; and so for `b`.
///
/// # Panics
/// If there are more than `n` rows, another number of them in `b`, or `domain_log2` is above 31.
pub fn lagrange_quotient(a: Vec<Scalar>, b: Vec<Scalar>, domain_log2: u32) -> Vec<Scalar> {
    assert!(domain_log2 < Scalar::S, "domain of 2^{domain_log2}, limit 2^{}", Scalar::S - 1);
    assert_eq!(a.len(), b.len(), "as many rows of b as of a");
    let [a, mut b] = [a, b].map(|values| padded(values, 1 << domain_log2));
    let twiddles = Twiddles::new(domain_log2);
    let indices = IndexFactors::new(domain_log2);
    // Both transforms together read at negated indices.
    let differentiate = |values: &mut Vec<Scalar>| {
        to_bit_reversed(values, 0, &twiddles);
        indices.scale(values);
        from_bit_reversed(values, 0, &twiddles);
    };
    let mask = a.len() - 1;
    let for_each = |values: &mut [Scalar], visit: &(dyn Fn(usize, &mut Scalar) + Sync)| {
        let values = values.par_iter_mut().enumerate().with_min_len(MIN_TASK_LEN);
        values.for_each(|(index, value)| visit(index.wrapping_neg() & mask, value));
    };
    let mut t = a.clone();
    differentiate(&mut t);
    for_each(&mut t, &|negated, t| *t *= b[negated]);
    differentiate(&mut b);
    for_each(&mut b, &|negated, b| *b *= a[negated]);
    drop(a);
    t.par_iter_mut().zip(&b).with_min_len(MIN_TASK_LEN).for_each(|(t, b)| *t += b);
    t[1..].reverse();
    t
}

/// Bytes that [`lagrange_quotient`] works in.
pub fn lagrange_quotient_bytes(domain_log2: u32) -> u64 {
    let n = 1u64 << domain_log2;
    let low = MIN_TASK_LEN as u64;
    let index_factors = low.min(n) + (n / low).max(1);
    let table = 1 << domain_log2.saturating_sub(1 + skipped_bits(domain_log2));
    32 * (3 * n + table + index_factors)
}

/// In-place inverse NTT over the domain of `values.len()` points (natural order in and out).
/// Used by the parameter generator for the Lagrange coefficients at tau.
///
/// # Panics
/// If the length is not a power of two, or above 2^32.
pub fn intt(values: &mut [Scalar]) {
    assert!(values.len().is_power_of_two(), "{} points", values.len());
    let log2 = values.len().trailing_zeros();
    to_bit_reversed(values, 0, &Twiddles::new(log2));
    permute_bit_reversed(values);
    values[1..].reverse();
    let scale = inverse_of_power_of_two(log2);
    values.par_iter_mut().with_min_len(MIN_TASK_LEN).for_each(|value| *value *= scale);
}

/// `values` followed by zeros up to length `n`.
fn padded(mut values: Vec<Scalar>, n: usize) -> Vec<Scalar> {
    assert!(values.len() <= n, "{} rows on a domain of {n}", values.len());
    values.reserve_exact(n - values.len());
    values.resize(n, Scalar::ZERO);
    values
}

/// A primitive root of unity of order `2^log2`: bellperson's `omega`.
pub(super) fn root_of_unity(log2: u32) -> Scalar {
    (log2..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square())
}

pub(super) fn inverse_of_power_of_two(log2: u32) -> Scalar {
    Scalar::TWO_INV.pow_vartime([u64::from(log2)])
}

/// `brv(index)` in `bits` bits.
pub(super) fn bit_reverse(index: usize, bits: u32) -> usize {
    if bits == 0 {
        0
    } else {
        index.reverse_bits() >> (usize::BITS - bits)
    }
}

/// `[factor · base^brv(i)]` for `i < 2^bits`, `brv` in `bits` bits.
pub(super) fn bit_reversed_powers(factor: Scalar, base: Scalar, bits: u32) -> Vec<Scalar> {
    let mut powers = vec![factor; 1 << bits];
    for k in 0..bits {
        // Entries from 2^k on have bit k set, which is bit `bits - 1 - k` of the exponent.
        let step = base.pow_vartime([1u64 << (bits - 1 - k)]);
        let (known, next) = powers.split_at_mut(1 << k);
        let pairs = next[..1 << k].par_iter_mut().zip(&*known).with_min_len(MIN_TASK_LEN);
        pairs.for_each(|(next, power)| *next = step * power);
    }
    powers
}

fn skipped_bits(log2: u32) -> u32 {
    if log2 < COMPACT_LOG2 {
        0
    } else {
        COMPACT_BITS
    }
}

/// The twiddles `-ω^brv(b)`, `b < n/2`, of a transform of length `n`.
struct Twiddles {
    /// The first of them: all, or a quarter. Those of a transform half as long are the first half.
    table: Vec<Scalar>,
    table_log2: u32,
    /// What the part of a number beyond the table's multiplies the table's entry by.
    factors: [Scalar; 1 << COMPACT_BITS],
}

impl Twiddles {
    fn new(log2: u32) -> Self {
        Self::with_skipped_bits(log2, skipped_bits(log2))
    }

    /// A table of `2^-skipped` of the twiddles.
    fn with_skipped_bits(log2: u32, skipped: u32) -> Self {
        let table_log2 = log2.saturating_sub(1 + skipped);
        let table = bit_reversed_powers(-Scalar::ONE, root_of_unity(log2 - skipped), table_log2);
        let omega = root_of_unity(log2);
        let factors = std::array::from_fn(|high| omega.pow_vartime([bit_reverse(high, COMPACT_BITS) as u64]));
        Self { table, table_log2, factors }
    }

    #[inline(always)]
    fn get(&self, number: usize) -> Scalar {
        match self.table.get(number) {
            Some(twiddle) => *twiddle,
            None => {
                let low = number & (self.table.len() - 1);
                self.table[low] * self.factors[number >> self.table_log2]
            }
        }
    }
}

/// `X_k = Σ_j x_j ω^jk`, natural order in, bit-reversed order out (Cooley-Tukey).
/// `values` is block `block` of a larger transform; a whole transform is block 0.
fn to_bit_reversed(values: &mut [Scalar], block: usize, twiddles: &Twiddles) {
    let len = values.len();
    if len <= SERIAL_LEN {
        return to_bit_reversed_serial(values, block, twiddles);
    }
    let (w, w_even, w_odd) = (&twiddles.get(block), &twiddles.get(2 * block), &twiddles.get(2 * block + 1));
    for_each_in_quarters(values, |x0, x1, x2, x3| {
        if block == 0 {
            butterfly(x0, x2);
            butterfly(x1, x3);
            butterfly(x0, x1);
        } else {
            scale_then_add(x0, x2, w);
            scale_then_add(x1, x3, w);
            scale_then_add(x0, x1, w_even);
        }
        scale_then_add(x2, x3, w_odd);
    });
    values
        .par_chunks_exact_mut(len / 4)
        .enumerate()
        .for_each(|(quarter, values)| to_bit_reversed(values, 4 * block + quarter, twiddles));
}

fn to_bit_reversed_serial(values: &mut [Scalar], block: usize, twiddles: &Twiddles) {
    let mut len = values.len();
    let mut first_block = block;
    while len > 1 {
        for (offset, values) in values.chunks_exact_mut(len).enumerate() {
            let (low, high) = values.split_at_mut(len / 2);
            let pairs = low.iter_mut().zip(high);
            match first_block + offset {
                0 => pairs.for_each(|(x, y)| butterfly(x, y)),
                block => {
                    let w = &twiddles.get(block);
                    pairs.for_each(|(x, y)| scale_then_add(x, y, w));
                }
            }
        }
        len /= 2;
        first_block *= 2;
    }
}

/// `X_k = Σ_j x_j ω^jk`, bit-reversed order in, natural order out (Gentleman-Sande): the transpose of
/// `to_bit_reversed`.
fn from_bit_reversed(values: &mut [Scalar], block: usize, twiddles: &Twiddles) {
    let len = values.len();
    if len <= SERIAL_LEN {
        return from_bit_reversed_serial(values, block, twiddles);
    }
    values
        .par_chunks_exact_mut(len / 4)
        .enumerate()
        .for_each(|(quarter, values)| from_bit_reversed(values, 4 * block + quarter, twiddles));
    let (w, w_even, w_odd) = (&twiddles.get(block), &twiddles.get(2 * block), &twiddles.get(2 * block + 1));
    for_each_in_quarters(values, |x0, x1, x2, x3| {
        add_then_scale(x2, x3, w_odd);
        if block == 0 {
            butterfly(x0, x1);
            butterfly(x0, x2);
            butterfly(x1, x3);
        } else {
            add_then_scale(x0, x1, w_even);
            add_then_scale(x0, x2, w);
            add_then_scale(x1, x3, w);
        }
    });
}

fn from_bit_reversed_serial(values: &mut [Scalar], block: usize, twiddles: &Twiddles) {
    let whole = values.len();
    let mut len = 2;
    while len <= whole {
        let first_block = block * (whole / len);
        for (offset, values) in values.chunks_exact_mut(len).enumerate() {
            let (low, high) = values.split_at_mut(len / 2);
            let pairs = low.iter_mut().zip(high);
            match first_block + offset {
                0 => pairs.for_each(|(x, y)| butterfly(x, y)),
                block => {
                    let w = &twiddles.get(block);
                    pairs.for_each(|(x, y)| add_then_scale(x, y, w));
                }
            }
        }
        len *= 2;
    }
}

/// `(x + wy, x - wy)`, given `-w`.
///
/// With the sign in the table, every result is made in place. One that is copied right after blst has written it, limb
/// by limb, stalls the copy's wider loads.
#[inline(always)]
fn scale_then_add(x: &mut Scalar, y: &mut Scalar, minus_w: &Scalar) {
    *y *= minus_w;
    let x_before = *x;
    *x -= &*y;
    *y += &x_before;
}

/// `(x + y, w(x - y))`, given `-w`.
#[inline(always)]
fn add_then_scale(x: &mut Scalar, y: &mut Scalar, minus_w: &Scalar) {
    let x_before = *x;
    *x += &*y;
    *y -= &x_before;
    *y *= minus_w;
}

/// `(x + y, x - y)`.
#[inline(always)]
fn butterfly(x: &mut Scalar, y: &mut Scalar) {
    let difference = *x - *y;
    *x += *y;
    *y = difference;
}

/// Calls `visit` with the elements at equal places of the four quarters of `values`, in parallel.
fn for_each_in_quarters<F>(values: &mut [Scalar], visit: F)
where
    F: Fn(&mut Scalar, &mut Scalar, &mut Scalar, &mut Scalar) + Sync + Send,
{
    let quarter = values.len() / 4;
    let (low, high) = values.split_at_mut(2 * quarter);
    let (q0, q1) = low.split_at_mut(quarter);
    let (q2, q3) = high.split_at_mut(quarter);
    (q0, q1, q2, q3)
        .into_par_iter()
        .with_min_len(MIN_TASK_LEN)
        .for_each(|(x0, x1, x2, x3)| visit(x0, x1, x2, x3));
}

/// The coset is `g·D` with this `g`: `g^n = -1`.
fn coset_generator(domain_log2: u32) -> Scalar {
    root_of_unity(domain_log2 + 1)
}

/// The powers `g^-brv(p)`, for every place `p` of the domain.
///
/// `brv(p) = brv(low part) · 2^high_bits + brv(high part)`: two short tables instead of one of length `n`.
struct CosetPowers {
    domain_log2: u32,
    low: Vec<Scalar>,
    high: Vec<Scalar>,
}

impl CosetPowers {
    fn new(domain_log2: u32) -> Self {
        let low_bits = domain_log2.min(MIN_TASK_LEN.trailing_zeros());
        let high_bits = domain_log2 - low_bits;
        let g_inverse = coset_generator(domain_log2).invert().expect("a root of unity is not zero");
        let low = bit_reversed_powers(Scalar::ONE, g_inverse.pow_vartime([1u64 << high_bits]), low_bits);
        let high = bit_reversed_powers(Scalar::ONE, g_inverse, high_bits);
        Self { domain_log2, low, high }
    }

    fn scaled(&self, factor: Scalar) -> Self {
        let high = self.high.iter().map(|power| power * factor).collect();
        Self { domain_log2: self.domain_log2, low: self.low.clone(), high }
    }

    /// Calls `visit(place, value, power)` for every place.
    fn for_each(&self, values: &mut [Scalar], visit: impl Fn(usize, &mut Scalar, Scalar) + Sync + Send) {
        let chunks = values.par_chunks_exact_mut(self.low.len()).zip(&self.high).enumerate();
        chunks.for_each(|(chunk, (values, high))| {
            for (place, (value, low)) in (chunk * self.low.len()..).zip(values.iter_mut().zip(&self.low)) {
                visit(place, value, high * low);
            }
        });
    }

    /// Prepares a transform for `from_bit_reversed`, which then yields `-n·f(g ω^-k)`.
    ///
    /// Place `p` holds `n` times the coefficient of `X^j`, `j = -brv(p) mod n`, and wants the factor `g^j`. For `p`
    /// other than 0 that is `g^(n - brv(p)) = -g^-brv(p)`. The sign is left out, so place 0 gets the opposite one; both
    /// polynomials come out negated, and their product is right.
    fn shift_to_coset(&self, values: &mut [Scalar]) {
        self.for_each(values, |_, value, power| *value *= power);
        values[0] = -values[0];
    }

    /// `h_i = (P_i - c_i) / -2`, at place `brv(i)`.
    ///
    /// `product` holds `n^3 g^i P_i` at place `brv(i)` and is overwritten; `c` holds `n c_i` at place `brv(-i mod n)`.
    fn divide_by_vanishing(&self, product: &mut [Scalar], c: &[Scalar]) {
        let n_inverse = inverse_of_power_of_two(self.domain_log2);
        let c_scale = n_inverse * Scalar::TWO_INV;
        let product_scale = -(c_scale * n_inverse.square());
        self.scaled(product_scale).for_each(product, |place, value, power| {
            *value *= power;
            *value += c[negated(place)] * c_scale;
        });
    }
}

/// The factors `j / n³` of the coefficients of `X^j` at place `p`, `j = -brv(p) mod n`: two short tables whose sums they
/// are. A transform has left `n` times the coefficients there.
struct IndexFactors {
    /// `(n - brv(low part)) / n³`
    low: Vec<Scalar>,
    /// `brv(high part) / n³`
    high: Vec<Scalar>,
}

impl IndexFactors {
    fn new(domain_log2: u32) -> Self {
        let low_bits = domain_log2.min(MIN_TASK_LEN.trailing_zeros());
        let high_bits = domain_log2 - low_bits;
        let scale = inverse_of_power_of_two(3 * domain_log2);
        let scaled = |index: usize| Scalar::from(index as u64) * scale;
        let low = (0..1 << low_bits)
            .map(|part| scaled((1 << domain_log2) - (bit_reverse(part, low_bits) << high_bits)))
            .collect();
        let high = (0..1 << high_bits).map(|part| scaled(bit_reverse(part, high_bits))).collect();
        Self { low, high }
    }

    fn scale(&self, values: &mut [Scalar]) {
        values.par_chunks_exact_mut(self.low.len()).zip(&self.high).for_each(|(values, high)| {
            values.iter_mut().zip(&self.low).for_each(|(value, low)| *value *= low - high);
        });
        values[0] = Scalar::ZERO;
    }
}

/// The bit-reversed place of index `-i`, from that of `i`: negation keeps the lowest set bit and complements those
/// above it, which are the bits below the highest in the place.
fn negated(place: usize) -> usize {
    match place.checked_ilog2() {
        None => 0,
        Some(top) => place ^ ((1 << top) - 1),
    }
}

fn permute_bit_reversed(values: &mut [Scalar]) {
    let bits = values.len().trailing_zeros();
    for i in 0..values.len() {
        let j = bit_reverse(i, bits);
        if i < j {
            values.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    fn random_scalars(n: usize, seed: u64) -> Vec<Scalar> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        (0..n).map(|_| Scalar::random(&mut rng)).collect()
    }

    fn evaluate(coefficients: &[Scalar], x: Scalar) -> Scalar {
        coefficients.iter().rev().fold(Scalar::ZERO, |sum, coefficient| sum * x + coefficient)
    }

    fn naive_ntt(values: &[Scalar]) -> Vec<Scalar> {
        let omega = root_of_unity(values.len().trailing_zeros());
        (0..values.len()).map(|k| evaluate(values, omega.pow_vartime([k as u64]))).collect()
    }

    fn bit_reversed(values: &[Scalar]) -> Vec<Scalar> {
        let mut permuted = values.to_vec();
        permute_bit_reversed(&mut permuted);
        permuted
    }

    #[test]
    fn both_orders_agree_with_the_definition() {
        for log2 in 0..9 {
            let values = random_scalars(1 << log2, log2 as u64);
            let expected = naive_ntt(&values);
            let twiddles = Twiddles::new(log2);
            let mut forward = values.clone();
            to_bit_reversed(&mut forward, 0, &twiddles);
            assert_eq!(bit_reversed(&forward), expected, "2^{log2}");
            let mut backward = bit_reversed(&values);
            from_bit_reversed(&mut backward, 0, &twiddles);
            assert_eq!(backward, expected, "2^{log2}");
        }
    }

    #[test]
    fn recursion_on_quarters_agrees_with_the_levels() {
        for log2 in [13, 14, 15] {
            let values = random_scalars(1 << log2, 7);
            let twiddles = Twiddles::new(log2);
            let (mut recursive, mut by_levels) = (values.clone(), values.clone());
            to_bit_reversed(&mut recursive, 0, &twiddles);
            to_bit_reversed_serial(&mut by_levels, 0, &twiddles);
            assert!(recursive == by_levels, "to bit-reversed, 2^{log2}");
            from_bit_reversed(&mut recursive, 0, &twiddles);
            from_bit_reversed_serial(&mut by_levels, 0, &twiddles);
            assert!(recursive == by_levels, "from bit-reversed, 2^{log2}");
        }
    }

    #[test]
    fn inverse_undoes_the_definition() {
        for log2 in 0..9 {
            let values = random_scalars(1 << log2, 100 + log2 as u64);
            let mut transformed = naive_ntt(&values);
            intt(&mut transformed);
            assert_eq!(transformed, values, "2^{log2}");
        }
    }

    #[test]
    fn twiddles_are_the_same_from_a_shorter_table() {
        for log2 in [3, 4, 7, 10] {
            let whole = Twiddles::with_skipped_bits(log2, 0);
            let compact = Twiddles::with_skipped_bits(log2, COMPACT_BITS);
            assert_eq!((whole.table.len(), compact.table.len()), (1 << (log2 - 1), 1 << (log2 - 3)));
            assert!((0..1 << (log2 - 1)).all(|number| whole.get(number) == compact.get(number)), "2^{log2}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// `h(ω^j) = n t_j - (X c'(X))(ω^j) / n`, by l'Hôpital's rule, and no value where both rows are zero.
        #[test]
        fn the_lagrange_quotient_gives_the_quotients_values(num_rows in 1usize..200, spare_log2 in 0u32..3, seed: u64) {
            let domain_log2 = num_rows.next_power_of_two().trailing_zeros() + spare_log2;
            let n = 1usize << domain_log2;
            let (mut a, mut b) = (random_scalars(num_rows, seed), random_scalars(num_rows, seed ^ 1));
            let zeros: Vec<usize> = (0..num_rows).filter(|row| (seed >> (row % 64)) & 3 == 0).collect();
            zeros.iter().for_each(|&row| (a[row], b[row]) = (Scalar::ZERO, Scalar::ZERO));
            let c: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
            let t = lagrange_quotient(a.clone(), b.clone(), domain_log2);
            prop_assert_eq!(t.len(), n);
            prop_assert!(zeros.iter().all(|&row| t[row] == Scalar::ZERO));
            prop_assert!(t[num_rows..].iter().all(|t| *t == Scalar::ZERO));
            let mut derivative = padded(c.clone(), n);
            intt(&mut derivative);
            derivative.iter_mut().enumerate().for_each(|(index, value)| *value *= Scalar::from(index as u64));
            let h = quotient(a, b, domain_log2, |rows| rows.copy_from_slice(&c));
            let (omega, n_inverse) = (root_of_unity(domain_log2), inverse_of_power_of_two(domain_log2));
            for j in [0, 1, n / 2, n - 1] {
                let x = omega.pow_vartime([j as u64]);
                let expected = evaluate(&h, x) + evaluate(&derivative, x) * n_inverse;
                prop_assert_eq!(t[j % n] * Scalar::from(n as u64), expected);
            }
        }

        /// a·b - c = h·(X^n - 1) at a random point, for any number of rows on any domain that holds them.
        #[test]
        fn quotient_is_exact(num_rows in 1usize..200, spare_log2 in 0u32..3, seed: u64) {
            let domain_log2 = num_rows.next_power_of_two().trailing_zeros() + spare_log2;
            let (a, b) = (random_scalars(num_rows, seed), random_scalars(num_rows, seed ^ 1));
            let c: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
            let interpolated = [&a, &b, &c].map(|values| {
                let mut coefficients = padded(values.clone(), 1 << domain_log2);
                intt(&mut coefficients);
                coefficients
            });
            let h = quotient(a, b, domain_log2, |rows| rows.copy_from_slice(&c));
            prop_assert_eq!(h.len(), (1 << domain_log2) - 1);
            let x = random_scalars(1, seed ^ 2)[0];
            let [a, b, c] = interpolated.map(|coefficients| evaluate(&coefficients, x));
            let vanishing = x.pow_vartime([1u64 << domain_log2]) - Scalar::ONE;
            prop_assert_eq!(a * b - c, evaluate(&h, x) * vanishing);
        }
    }
}
