// Many multiples of one point by tables of its small multiples; src/groth16/generate/fixed_base.rs is the same on the
// host, makes the tables, and says how scalars are cut.
//
// Table of window w: 1 2^(bits w) base ... in affine form, from w 2^(bits - 1) on. A digit lies in
// (-2^(bits - 1), 2^(bits - 1)], and the carry goes to the next window; the last window has what is left, without a sign.
// A thread sums several multiples, one addition for each window, and brings them to affine form by one inversion.
#pragma once

#include "digits.cuh"
#include "ec.cuh"

namespace cuzk {

// Multiples that a thread makes: an inversion costs as much as five additions in G1, and eight multiples share it.
constexpr uint32_t FIXED_BASE_POINTS = 8;

// What a thread keeps of a multiple until its inverse is known, beside x and y. The product is that of the multiples before.
template <class F>
struct FixedBaseScratch {
    F zz, zzz, product;
};

// scalar times the base, for a scalar in Montgomery form.
template <class F>
CUZK_HD Xyzz<F> fixed_base_multiple(const Affine<F> *table, const Fr &scalar, uint32_t window_bits, uint32_t num_windows)
{
    const uint32_t half = 1u << (window_bits - 1);
    Fr rest = fr_to_integer(scalar);
    uint32_t carry = 0;
    Xyzz<F> sum = xyzz_identity<F>();
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint32_t window = 0; window < num_windows; window++) {
        bool is_last = window + 1 == num_windows;
        uint32_t magnitude = (is_last ? rest.limb[0] : rest.limb[0] & (2 * half - 1)) + carry;
        shift_right(rest, window_bits);
        bool is_negative = !is_last && magnitude > half;
        carry = is_negative ? 1 : 0;
        if (is_negative)
            magnitude = 2 * half - magnitude;
        if (magnitude == 0)
            continue;
        Affine<F> addend = table[(size_t)window * half + magnitude - 1];
        if (is_negative)
            addend = affine_negate(addend);
        xyzz_add_affine(sum, addend);
    }
    return sum;
}

// This thread's multiples: `first`, `first + stride` ... below n. Canonical; the identity for a scalar that is zero.
template <class F>
CUZK_HD void fixed_base_multiples(const Affine<F> *table, const Fr *scalars, FixedBaseScratch<F> *scratch, Affine<F> *out,
                                  uint32_t window_bits, uint32_t num_windows, uint32_t first, uint32_t stride, uint32_t n)
{
    if (first >= n)
        return;
    F product;
    set_one(product);
    uint32_t last = first;
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint64_t i = first; i < n; i += stride) {
        Xyzz<F> sum = fixed_base_multiple(table, scalars[i], window_bits, num_windows);
        out[i] = Affine<F>{sum.x, sum.y};
        scratch[i] = FixedBaseScratch<F>{sum.zz, sum.zzz, product};
        if (!is_identity(sum))
            product = product * sum.zzz;
        last = (uint32_t)i;
    }
    F inverse_product = inverse(product);
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint32_t i = last;; i -= stride) {
        FixedBaseScratch<F> kept = scratch[i];
        if (is_marker_zero(kept.zz)) {
            out[i] = Affine<F>{};
        } else {
            // 1/ZZZ, and 1/Z = ZZ/ZZZ.
            F zzz_inverse = inverse_product * kept.product;
            F z_inverse = kept.zz * zzz_inverse;
            Affine<F> sum = out[i];
            out[i] = Affine<F>{canonical(sum.x * square(z_inverse)), canonical(sum.y * zzz_inverse)};
            inverse_product = inverse_product * kept.zzz;
        }
        if (i == first)
            break;
    }
}

CUZK_HD uint32_t swapped_bytes(uint32_t x)
{
    return x << 24 | (x & 0xff00) << 8 | (x >> 8 & 0xff00) | x >> 24;
}

// A coordinate as parameter files hold it: 48 bytes, the highest first.
CUZK_HD void encode_coordinate(const Fp &coordinate, uint32_t *out)
{
    Fp value = fp_canonical(fp_mul(coordinate, Fp{{1}}));
    CUZK_UNROLL
    for (int i = 0; i < FP_LIMBS; i++)
        out[i] = swapped_bytes(value.limb[FP_LIMBS - 1 - i]);
}

} // namespace cuzk
