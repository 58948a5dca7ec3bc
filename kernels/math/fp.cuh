// The base field of BLS12-381, p = 0x1a0111ea...aaab (381 bits), in Montgomery form with R = 2^384: twelve
// 32-bit limbs, little-endian, the memory layout of blst's `vec384`.
//
// Values are redundant: every function takes and returns integers in [0, 2p), so that multiplication needs no
// final subtraction. Only `fp_canonical` gives [0, p). Since 4p < R/2 sums never overflow twelve limbs.
//
// Montgomery multiplication: P. L. Montgomery, "Modular multiplication without trial division" (1985),
// interleaved row by row (the CIOS method of Koc, Acar, Kaliski 1996) on even and odd accumulators (limbs.cuh).
// Costs in wide multiplications ("w", one IMAD.WIDE): mul 288 + 12 low halves, sqr 222 + 12, dot 432 + 12.
#pragma once

#include "limbs.cuh"

namespace cuzk {

constexpr int FP_LIMBS = 12;

struct alignas(16) Fp {
    uint32_t limb[FP_LIMBS];
};
static_assert(sizeof(Fp) == 48 && alignof(Fp) == 16, "src/cuda and the parameter layout rely on 48 bytes");

#define CUZK_FP_P \
    {0xffffaaab, 0xb9feffff, 0xb153ffff, 0x1eabfffe, 0xf6b0f624, 0x6730d2a0, \
     0xf38512bf, 0x64774b84, 0x434bacd7, 0x4b1ba7b6, 0x397fe69a, 0x1a0111ea}
#define CUZK_FP_2P \
    {0xffff5556, 0x73fdffff, 0x62a7ffff, 0x3d57fffd, 0xed61ec48, 0xce61a541, \
     0xe70a257e, 0xc8ee9709, 0x869759ae, 0x96374f6c, 0x72ffcd34, 0x340223d4}
#define CUZK_FP_ONE \
    {0x0002fffd, 0x76090000, 0xc40c0002, 0xebf4000b, 0x53c758ba, 0x5f489857, \
     0x70525745, 0x77ce5853, 0xa256ec6d, 0x5c071a97, 0xfa80e493, 0x15f65ec3}

// Constants on the device; the compiler folds them into immediates, which does no harm here, since no limb of p
// is 0, 1 or 2^32 - 1 (compare fr.cuh).
#if defined(__CUDACC__)
static __device__ __constant__ const uint32_t FP_P_DEVICE[FP_LIMBS] = CUZK_FP_P;
static __device__ __constant__ const uint32_t FP_2P_DEVICE[FP_LIMBS] = CUZK_FP_2P;
#endif
static constexpr uint32_t FP_P_HOST[FP_LIMBS] = CUZK_FP_P;
static constexpr uint32_t FP_2P_HOST[FP_LIMBS] = CUZK_FP_2P;
#if defined(__CUDA_ARCH__)
#define FP_P FP_P_DEVICE
#define FP_2P FP_2P_DEVICE
#else
#define FP_P FP_P_HOST
#define FP_2P FP_2P_HOST
#endif

constexpr uint32_t FP_M0 = 0xfffcfffd; // -1/p mod 2^32

CUZK_HD Fp fp_zero()
{
    return Fp{};
}

// R mod p.
CUZK_HD Fp fp_one()
{
    return Fp{CUZK_FP_ONE};
}

// a + b mod p: a + b < 4p, less 2p if that fits.
CUZK_HD Fp fp_add(const Fp &a, const Fp &b)
{
    Fp sum, less;
    add_limbs<FP_LIMBS>(sum.limb, a.limb, b.limb);
    uint32_t borrow = sub_limbs<FP_LIMBS>(less.limb, sum.limb, FP_2P);
    select_limbs<FP_LIMBS>(sum.limb, borrow != 0, sum.limb, less.limb);
    return sum;
}

// a - b mod p: plus 2p if a < b.
CUZK_HD Fp fp_sub(const Fp &a, const Fp &b)
{
    Fp difference;
    uint32_t correction[FP_LIMBS];
    uint32_t borrow = sub_limbs<FP_LIMBS>(difference.limb, a.limb, b.limb);
    CUZK_UNROLL
    for (int i = 0; i < FP_LIMBS; i++)
        correction[i] = FP_2P[i] & borrow;
    add_limbs<FP_LIMBS>(difference.limb, difference.limb, correction);
    return difference;
}

// a - b + 2p, below 4p: only for a factor of a product whose other factor is below 2p (fp_mul). Two thirds of the
// instructions of `fp_sub`, and none that waits for the highest limb.
CUZK_HD Fp fp_sub_loose(const Fp &a, const Fp &b)
{
    Fp difference;
    const uint32_t *two_p = FP_2P;
    add_limbs<FP_LIMBS>(difference.limb, a.limb, two_p);
    sub_limbs<FP_LIMBS>(difference.limb, difference.limb, b.limb);
    return difference;
}

// False for no loose difference that is 0 mod p, and for all others but one in 2^30.
CUZK_HD bool fp_may_be_zero_loose(const Fp &a)
{
    uint32_t low = a.limb[0], p = FP_P[0];
    return low == p || low == 2 * p || low == 3 * p;
}

CUZK_HD Fp fp_neg(const Fp &a)
{
    return fp_sub(fp_zero(), a);
}

CUZK_HD Fp fp_double(const Fp &a)
{
    return fp_add(a, a);
}

// The representative in [0, p).
CUZK_HD Fp fp_canonical(const Fp &a)
{
    Fp less;
    uint32_t borrow = sub_limbs<FP_LIMBS>(less.limb, a.limb, FP_P);
    select_limbs<FP_LIMBS>(less.limb, borrow != 0, a.limb, less.limb);
    return less;
}

// a = 0 mod p, of which there are two representatives.
CUZK_HD bool fp_is_zero(const Fp &a)
{
    return limbs_are_zero<FP_LIMBS>(a.limb) || limbs_are_equal<FP_LIMBS>(a.limb, FP_P);
}

CUZK_HD bool fp_equal(const Fp &a, const Fp &b)
{
    return fp_is_zero(fp_sub(a, b));
}

// The accumulators of an interleaved multiplication stand for
//     T = sum of even[j] 2^(32 j) + sum of odd[j] 2^(32 (j+1)).
// Bound: for operands a (and c of fp_dot) < 2p, or a < 4p alone, every T before a division by 2^32 is below
// (a + c + p) 2^32 <= 5p 2^32 < 2^416, thirteen limbs; both accumulators and every partial sum are parts of T,
// so the odd chains have no carry out and the even chain's carry into odd[11] cannot overflow it.

// T += m p with m chosen so that 2^32 divides T; even[0] becomes 0.
CUZK_HD void fp_reduce_row(uint32_t *even, uint32_t *odd)
{
    uint32_t m = even[0] * FP_M0;
    mad_row<6>(odd, FP_P + 1, m);
    mad_row<6>(even, FP_P, m, odd[11]);
}

// T = a b_0, and the reduction.
CUZK_HD void fp_product_row(uint32_t *even, uint32_t *odd, const Fp &a, uint32_t b)
{
    mul_row<6>(even, a.limb, b);
    mul_row<6>(odd, a.limb + 1, b);
}

// T = T / 2^32 + a b_i. The division makes `even` the new odd accumulator, two limbs down, and leaves its
// limb 1 over; in place, so the caller swaps the two from row to row.
CUZK_HD void fp_shifted_product_row(uint32_t *new_even, uint32_t *new_odd, const Fp &a, uint32_t b)
{
    uint32_t stray = new_odd[1];
    CUZK_UNROLL
    for (int j = 0; j < 10; j++)
        new_odd[j] = new_odd[j + 2];
    new_odd[10] = new_odd[11] = 0;
    shift_mad_row<6>(new_even[0], stray, new_odd, a.limb + 1, b);
    mad_row<6>(new_even, a.limb, b, new_odd[11]);
}

// T / 2^32 with even[0] = 0.
CUZK_HD Fp fp_close_rows(uint32_t *even, const uint32_t *odd)
{
    Fp r;
    CUZK_UNROLL
    for (int j = 0; j < 11; j++)
        even[j] = even[j + 1];
    even[11] = 0;
    add_limbs<FP_LIMBS>(r.limb, even, odd);
    return r;
}

// a b / R mod p. For a, b < 2p the result is below (4p^2 + R p)/R < 1.41p; for one of them below 4p, 1.82p.
CUZK_HD Fp fp_mul(const Fp &a, const Fp &b)
{
    uint32_t x[FP_LIMBS], y[FP_LIMBS];
    fp_product_row(x, y, a, b.limb[0]);
    fp_reduce_row(x, y);
    CUZK_UNROLL
    for (int i = 1; i < 11; i += 2) {
        fp_shifted_product_row(y, x, a, b.limb[i]);
        fp_reduce_row(y, x);
        fp_shifted_product_row(x, y, a, b.limb[i + 1]);
        fp_reduce_row(x, y);
    }
    fp_shifted_product_row(y, x, a, b.limb[11]);
    fp_reduce_row(y, x);
    return fp_close_rows(y, x);
}

// (a b + c d) / R mod p with one reduction: 438 w where two multiplications take 588.
// For operands < 2p the result is below (8p^2 + R p)/R < 1.82p.
CUZK_HD Fp fp_dot(const Fp &a, const Fp &b, const Fp &c, const Fp &d)
{
    uint32_t x[FP_LIMBS], y[FP_LIMBS];
    fp_product_row(x, y, a, b.limb[0]);
    mad_row<6>(y, c.limb + 1, d.limb[0]);
    mad_row<6>(x, c.limb, d.limb[0], y[11]);
    fp_reduce_row(x, y);
    CUZK_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) {
        uint32_t *even = i % 2 == 1 ? y : x;
        uint32_t *odd = i % 2 == 1 ? x : y;
        fp_shifted_product_row(even, odd, a, b.limb[i]);
        mad_row<6>(odd, c.limb + 1, d.limb[i]);
        mad_row<6>(even, c.limb, d.limb[i], odd[11]);
        fp_reduce_row(even, odd);
    }
    return fp_close_rows(y, x);
}

// One row of the products a_i a_j, j > i, into accumulators indexed by the column i + j. Chains of later rows
// never end before those of earlier ones, so the limb that takes a chain's carry is still zero.
template <int I>
CUZK_HD void fp_triangle_row(uint32_t *even, uint32_t *odd, const Fp &a)
{
    constexpr int NUM_ODD = (12 - I) / 2, NUM_EVEN = (11 - I) / 2;
    mad_row<NUM_ODD>(odd + 2 * I + 1, a.limb + I + 1, a.limb[I], odd[2 * I + 1 + 2 * NUM_ODD]);
    if constexpr (NUM_EVEN > 0)
        mad_row<NUM_EVEN>(even + 2 * I + 2, a.limb + I + 2, a.limb[I], even[2 * I + 2 + 2 * NUM_EVEN]);
    if constexpr (I < 10)
        fp_triangle_row<I + 1>(even, odd, a);
}

// a^2: 66 products, doubled, plus the 12 squares of limbs.
CUZK_HD void fp_square_wide(uint32_t *wide, const Fp &a)
{
    uint32_t even[24] = {}, odd[24] = {}, squares[24];
    fp_triangle_row<0>(even, odd, a);
    add_limbs<24>(wide, even, odd);
    CUZK_UNROLL
    for (int i = 23; i > 0; i--)
        wide[i] = (wide[i] << 1) | (wide[i - 1] >> 31);
    wide[0] <<= 1;
    CUZK_UNROLL
    for (int i = 0; i < FP_LIMBS; i++)
        mul_row<1>(squares + 2 * i, a.limb + i, a.limb[i]);
    add_limbs<24>(wide, wide, squares);
}

// wide / R mod p: (low half + m p)/R < p + 1, plus the high half. 144 w + 12 low halves.
CUZK_HD Fp fp_reduce_wide(const uint32_t *wide)
{
    uint32_t x[FP_LIMBS], y[FP_LIMBS];
    CUZK_UNROLL
    for (int i = 0; i < FP_LIMBS; i++)
        x[i] = wide[i];
    uint32_t m = x[0] * FP_M0;
    mul_row<6>(y, FP_P + 1, m);
    mad_row<6>(x, FP_P, m, y[11]);
    CUZK_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) {
        uint32_t *even = i % 2 == 1 ? y : x;
        uint32_t *odd = i % 2 == 1 ? x : y;
        uint32_t stray = odd[1];
        CUZK_UNROLL
        for (int j = 0; j < 10; j++)
            odd[j] = odd[j + 2];
        odd[10] = odd[11] = 0;
        m = (even[0] + stray) * FP_M0;
        shift_mad_row<6>(even[0], stray, odd, FP_P + 1, m);
        mad_row<6>(even, FP_P, m, odd[11]);
    }
    Fp r = fp_close_rows(y, x);
    add_limbs<FP_LIMBS>(r.limb, r.limb, wide + FP_LIMBS);
    return r;
}

// a^2 / R mod p, below 1.41p for a < 2p.
CUZK_HD Fp fp_sqr(const Fp &a)
{
    uint32_t wide[24];
    fp_square_wide(wide, a);
    return fp_reduce_wide(wide);
}

// The common names, for the formulas that hold over Fp and Fp2 alike.
CUZK_HD Fp operator+(const Fp &a, const Fp &b) { return fp_add(a, b); }
CUZK_HD Fp operator-(const Fp &a, const Fp &b) { return fp_sub(a, b); }
CUZK_HD Fp operator*(const Fp &a, const Fp &b) { return fp_mul(a, b); }
CUZK_HD Fp square(const Fp &a) { return fp_sqr(a); }
CUZK_HD Fp twice(const Fp &a) { return fp_double(a); }
CUZK_HD Fp negate(const Fp &a) { return fp_neg(a); }
CUZK_HD Fp canonical(const Fp &a) { return fp_canonical(a); }
CUZK_HD bool is_zero(const Fp &a) { return fp_is_zero(a); }
// All limbs zero: the marker of identity points, not the test for a field element that may be p.
CUZK_HD bool is_marker_zero(const Fp &a) { return limbs_are_zero<FP_LIMBS>(a.limb); }
// a - b as a factor of a product whose other factor is no loose difference.
CUZK_HD Fp loose_difference(const Fp &a, const Fp &b) { return fp_sub_loose(a, b); }
// a b - c d.
CUZK_HD Fp mul_sub(const Fp &a, const Fp &b, const Fp &c, const Fp &d) { return fp_dot(a, b, fp_neg(c), d); }
CUZK_HD void set_one(Fp &a) { a = fp_one(); }

} // namespace cuzk
