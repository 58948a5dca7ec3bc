// Multiples of points by arbitrary scalars, for transforms of points (fold.cu).
//
// The curve's endomorphism (x, y) -> (beta x, y), beta^3 = 1, multiplies points of G1 by -u^2, u the curve's parameter
// (R. Gallant, R. Lambert, S. Vanstone, "Faster Point Multiplication on Elliptic Curves with Efficient Endomorphisms",
// 2001). Since r = u^4 - u^2 + 1, a scalar k = q u^2 + s with 0 <= q, s < u^2 < 2^128, and k P = s P + q (beta x, -y): one
// run of 128 doublings for both halves.
#pragma once

#include "digits.cuh"
#include "ec.cuh"

namespace cuzk {

#define CUZK_FP_BETA \
    {0x798a64e8, 0x30f1361b, 0x7ece5a2a, 0xf3b8ddab, 0xc61577f7, 0x16a8ca3a, \
     0x74fd029b, 0xc26a2ff8, 0x60701c6e, 0x3636b766, 0x241b6160, 0x051ba4ab}
// u^2, and 2^256 / u^2 rounded down.
#define CUZK_U2 {0x00000000, 0x00000001, 0x0001a402, 0xac45a401}
#define CUZK_U2_RECIPROCAL {0xf6cfee2e, 0x63f6e522, 0xe01faadd, 0x7c6becf1, 0x00000001}

// Windows of a half, of four bits; the last takes a carry.
constexpr uint32_t HALF_WINDOWS = 33;
// 1 P .. 8 P: digits are in [-8, 8].
constexpr uint32_t NUM_MULTIPLES = 8;

// A scalar's halves: k = half[0] + half[1] u^2.
struct ScalarHalves {
    uint32_t half[2][4];
};

// k < r as an integer.
CUZK_HD_CALL ScalarHalves split_scalar(const Fr k)
{
    const uint32_t u2[4] = CUZK_U2, reciprocal[5] = CUZK_U2_RECIPROCAL;
    // The quotient is this or one more: k / u^2 - k reciprocal / 2^256 < 1.
    uint32_t product[13] = {};
    for (int i = 0; i < FR_LIMBS; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < 5; j++) {
            carry += (uint64_t)k.limb[i] * reciprocal[j] + product[i + j];
            product[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product[i + 5] = (uint32_t)carry;
    }
    // The rest, below 2 u^2: five limbs are enough.
    uint32_t multiple[5] = {}, rest[5];
    for (int i = 0; i < 4; i++) {
        uint64_t carry = 0;
        for (int j = 0; i + j < 5 && j < 4; j++) {
            carry += (uint64_t)product[8 + i] * u2[j] + multiple[i + j];
            multiple[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        if (i == 0)
            multiple[4] = (uint32_t)carry;
    }
    int64_t borrow = 0;
    for (int i = 0; i < 5; i++) {
        borrow += (int64_t)k.limb[i] - multiple[i];
        rest[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    uint32_t less[5];
    borrow = 0;
    for (int i = 0; i < 5; i++) {
        borrow += (int64_t)rest[i] - (i < 4 ? u2[i] : 0);
        less[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    bool is_more = borrow == 0;
    ScalarHalves halves;
    uint32_t carry = is_more;
    for (int i = 0; i < 4; i++) {
        halves.half[0][i] = is_more ? less[i] : rest[i];
        uint64_t sum = (uint64_t)product[8 + i] + carry;
        halves.half[1][i] = (uint32_t)sum;
        carry = (uint32_t)(sum >> 32);
    }
    return halves;
}

// Digit `window` of a half in [-8, 8]: its four bits as a two's complement number, plus the bit below (Booth).
CUZK_HD int32_t half_digit(const uint32_t (&half)[4], uint32_t window)
{
    uint32_t raw = 0;
    for (uint32_t bit = 0; bit < 5; bit++) {
        uint32_t at = 4 * window + bit;
        if (at == 0 || at > 128)
            continue;
        raw |= (half[(at - 1) / 32] >> ((at - 1) % 32) & 1) << bit;
    }
    return (int32_t)((raw >> 1) + (raw & 1)) - (raw & 16 ? 16 : 0);
}

// p = 2 p, inline: dbl-2008-s-1, 6M + 3S with one double product = 2298 w. `xyzz_double` is the same as a call.
CUZK_HD void xyzz_double_in_place(G1Xyzz &p)
{
    if (is_identity(p))
        return;
    Fp u = twice(p.y);
    Fp v = square(u);
    Fp w = u * v;
    Fp s = p.x * v;
    Fp xx = square(p.x);
    Fp m = twice(xx) + xx;
    Fp x = square(m) - twice(s);
    p.y = mul_sub(m, s - x, w, p.y);
    p.x = x;
    p.zz = v * p.zz;
    p.zzz = w * p.zzz;
}

// k p, k in Montgomery form: 128 doublings, at most 66 additions and the 7 of the table, some 570,000 w.
CUZK_HD G1Xyzz xyzz_multiply(const G1Xyzz &p, const Fr &k)
{
    ScalarHalves halves = split_scalar(fr_to_integer(k));
    G1Xyzz multiples[NUM_MULTIPLES];
    multiples[0] = p;
    multiples[1] = xyzz_double(p);
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint32_t i = 2; i < NUM_MULTIPLES; i++) {
        multiples[i] = multiples[i - 1];
        xyzz_add_call(multiples[i], p);
    }
    G1Xyzz sum = xyzz_identity<Fp>();
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint32_t window = HALF_WINDOWS; window-- > 0;) {
#if defined(__CUDACC__)
#pragma unroll 1
#endif
        for (int i = 0; i < 4; i++)
            xyzz_double_in_place(sum);
#if defined(__CUDACC__)
#pragma unroll 1
#endif
        for (uint32_t which = 0; which < 2; which++) {
            int32_t digit = half_digit(halves.half[which], window);
            if (digit == 0)
                continue;
            G1Xyzz term = multiples[(digit < 0 ? -digit : digit) - 1];
            if (which == 1) {
                const Fp beta = Fp{CUZK_FP_BETA};
                term.x = term.x * beta;
            }
            if ((digit < 0) != (which == 1))
                term.y = negate(term.y);
            xyzz_add(sum, term);
        }
    }
    return sum;
}

} // namespace cuzk
