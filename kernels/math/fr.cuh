// The scalar field of BLS12-381, r = 0x73eda753...00000001 (255 bits), in Montgomery form with R = 2^256: eight
// 32-bit limbs, little-endian, the memory layout of blst's `vec256`.
//
// Values are integers in [0, r), but for the functions whose names end in _2r: those take and return [0, 2r), and
// spare transforms the subtraction of r after every multiplication. There is one spare bit only: the interleaved
// product needs its first operand below 2^255 and gives a result below 2r. What comes from outside goes through
// `fr_reduce` first.
//
// The two lowest limbs of r are 1 and 2^32 - 1, so a reduction step needs no multiplication for them and none
// for m = -T mod 2^32: mul costs 64 + 48 = 112 w where a general 8-limb modulus costs 128 + 8 low halves.
#pragma once

#include "limbs.cuh"

namespace cuzk {

constexpr int FR_LIMBS = 8;

struct alignas(16) Fr {
    uint32_t limb[FR_LIMBS];
};
static_assert(sizeof(Fr) == 32 && alignof(Fr) == 16, "src/cuda relies on 32 bytes");

#define CUZK_FR_R \
    {0x00000001, 0xffffffff, 0xfffe5bfe, 0x53bda402, 0x09a1d805, 0x3339d808, 0x299d7d48, 0x73eda753}
#define CUZK_FR_ONE \
    {0xfffffffe, 0x00000001, 0x00034802, 0x5884b7fa, 0xecbc4ff5, 0x998c4fef, 0xacc5056f, 0x1824b159}

// On the device the modulus is read from constant memory, and so is the 0 that m = -T is the difference from; the
// declarations are not `const` (nothing writes them): as immediates the limbs 1 and 2^32 - 1, or a visible negation,
// are folded into the multiplications and split the fused pairs (67 + 48 instead of 112 products in SASS, nvcc 13.0,
// sm_90).
#if defined(__CUDACC__)
static __device__ __constant__ uint32_t FR_R_DEVICE[FR_LIMBS] = CUZK_FR_R;
static __device__ __constant__ uint32_t FR_ZERO_DEVICE = 0;
#endif
static constexpr uint32_t FR_R_HOST[FR_LIMBS] = CUZK_FR_R;
static constexpr uint32_t FR_ZERO_HOST = 0;
#if defined(__CUDA_ARCH__)
#define FR_R FR_R_DEVICE
#define FR_ZERO FR_ZERO_DEVICE
#else
#define FR_R FR_R_HOST
#define FR_ZERO FR_ZERO_HOST
#endif

CUZK_HD Fr fr_zero()
{
    return Fr{};
}

// R mod r.
CUZK_HD Fr fr_one()
{
    return Fr{CUZK_FR_ONE};
}

// a less r if a >= r, for a < 2r.
CUZK_HD Fr fr_subtract_once(const Fr &a)
{
    Fr less;
    uint32_t borrow = sub_limbs<FR_LIMBS>(less.limb, a.limb, FR_R);
    select_limbs<FR_LIMBS>(less.limb, borrow != 0, a.limb, less.limb);
    return less;
}

// Any 256-bit integer to [0, r): 2^256 < 3r.
CUZK_HD Fr fr_reduce(const Fr &a)
{
    return fr_subtract_once(fr_subtract_once(a));
}

// a + b mod r: a + b < 2r < 2^256.
CUZK_HD Fr fr_add(const Fr &a, const Fr &b)
{
    Fr sum;
    add_limbs<FR_LIMBS>(sum.limb, a.limb, b.limb);
    return fr_subtract_once(sum);
}

CUZK_HD Fr fr_sub(const Fr &a, const Fr &b)
{
    Fr difference;
    uint32_t correction[FR_LIMBS];
    uint32_t borrow = sub_limbs<FR_LIMBS>(difference.limb, a.limb, b.limb);
    CUZK_UNROLL
    for (int i = 0; i < FR_LIMBS; i++)
        correction[i] = FR_R[i] & borrow;
    add_limbs<FR_LIMBS>(difference.limb, difference.limb, correction);
    return difference;
}

CUZK_HD Fr fr_neg(const Fr &a)
{
    return fr_sub(fr_zero(), a);
}

CUZK_HD bool fr_is_zero(const Fr &a)
{
    return limbs_are_zero<FR_LIMBS>(a.limb);
}

CUZK_HD bool fr_equal(const Fr &a, const Fr &b)
{
    return limbs_are_equal<FR_LIMBS>(a.limb, b.limb);
}

// The accumulators stand for T = sum of even[j] 2^(32 j) + sum of odd[j] 2^(32 (j+1)), as in fp.cuh.
// Bound: for a < 2^255 every T before a division by 2^32 is below (a + r) 2^32 < 2^288, nine limbs.

// T += m r with m = -T mod 2^32, but for even[0], which would become 0 and is not needed any more. Of m r the lowest
// limb's m is added to even[0], with a carry unless m = 0, and m (2^32 - 1) at the next limb is the pair (-m, m - 1), or
// (0, 0) when m = 0.
CUZK_HD void fr_reduce_row(uint32_t *even, uint32_t *odd)
{
    uint32_t minus_m = even[0], m, m_less_one;
    negate_limb(m, m_less_one, FR_ZERO, minus_m);
    carry_pair_mad_row<3>(odd, minus_m, m, minus_m, m_less_one, FR_R + 3, m);
    mad_row<3>(even + 2, FR_R + 2, m, odd[7]);
}

// T = T / 2^32 + a b_i; the caller swaps the accumulators from row to row, as in fp.cuh.
CUZK_HD void fr_shifted_product_row(uint32_t *new_even, uint32_t *new_odd, const Fr &a, uint32_t b)
{
    uint32_t stray = new_odd[1];
    CUZK_UNROLL
    for (int j = 0; j < 6; j++)
        new_odd[j] = new_odd[j + 2];
    new_odd[6] = new_odd[7] = 0;
    shift_mad_row<4>(new_even[0], stray, new_odd, a.limb + 1, b);
    mad_row<4>(new_even, a.limb, b, new_odd[7]);
}

// a b / R mod r, below 2r, for a < r and any b < 2^256.
CUZK_HD Fr fr_mul_2r(const Fr &a, const Fr &b)
{
    uint32_t x[FR_LIMBS], y[FR_LIMBS];
    mul_row<4>(x, a.limb, b.limb[0]);
    mul_row<4>(y, a.limb + 1, b.limb[0]);
    fr_reduce_row(x, y);
    CUZK_UNROLL
    for (int i = 1; i < FR_LIMBS; i++) {
        uint32_t *even = i % 2 == 1 ? y : x;
        uint32_t *odd = i % 2 == 1 ? x : y;
        fr_shifted_product_row(even, odd, a, b.limb[i]);
        fr_reduce_row(even, odd);
    }
    // i = 7 left the even accumulator in y. (T + m r)/R < (r R + R r)/R = 2r.
    Fr r;
    CUZK_UNROLL
    for (int j = 0; j < 7; j++)
        y[j] = y[j + 1];
    y[7] = 0;
    add_limbs<FR_LIMBS>(r.limb, y, x);
    return r;
}

// a b / R mod r; b may be any 256-bit integer.
CUZK_HD Fr fr_mul(const Fr &a, const Fr &b)
{
    return fr_subtract_once(fr_mul_2r(a, b));
}

CUZK_HD Fr fr_sqr(const Fr &a)
{
    return fr_mul(a, a);
}

#define CUZK_FR_2R \
    {0x00000002, 0xfffffffe, 0xfffcb7fd, 0xa77b4805, 0x1343b00a, 0x6673b010, 0x533afa90, 0xe7db4ea6}

// a - b mod r for values in [0, 2r), in the same range.
CUZK_HD Fr fr_sub_2r(const Fr &a, const Fr &b)
{
    const uint32_t twice_r[FR_LIMBS] = CUZK_FR_2R;
    Fr difference;
    uint32_t borrow = sub_limbs<FR_LIMBS>(difference.limb, a.limb, b.limb);
    add_limbs_if<FR_LIMBS>(difference.limb, twice_r, borrow);
    return difference;
}

// a + b likewise, as a - (2r - b): the sum may have 257 bits.
CUZK_HD Fr fr_add_2r(const Fr &a, const Fr &b)
{
    const uint32_t twice_r[FR_LIMBS] = CUZK_FR_2R;
    Fr complement;
    sub_limbs<FR_LIMBS>(complement.limb, twice_r, b.limb);
    return fr_sub_2r(a, complement);
}

// 1/a by Fermat's little theorem, a^(r-2); 0 gives 0.
CUZK_HD Fr fr_inverse(const Fr &a)
{
    // r - 2 has limbs (2^32 - 1, 2^32 - 2, then those of r); its highest bit is 254.
    Fr result = a;
    for (int bit = 253; bit >= 0; bit--) {
        result = fr_sqr(result);
        uint32_t limb = bit < 32 ? 0xffffffffu : bit < 64 ? 0xfffffffeu : FR_R[bit / 32];
        if ((limb >> (bit % 32)) & 1)
            result = fr_mul(result, a);
    }
    return result;
}

CUZK_HD Fr operator+(const Fr &a, const Fr &b) { return fr_add(a, b); }
CUZK_HD Fr operator-(const Fr &a, const Fr &b) { return fr_sub(a, b); }
CUZK_HD Fr operator*(const Fr &a, const Fr &b) { return fr_mul(a, b); }

} // namespace cuzk
