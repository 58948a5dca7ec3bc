// Signed digits of scalars, for multi-exponentiation.
//
// A scalar s of [0, r) stands for the point's multiple s P or, where s > (r - 1)/2, (r - s)(-P): 254 bits. Those are
// cut into windows whose widths sum to 255 bits; a window's digit lies in [-2^(w-1), 2^(w-1)], because a raw value
// above 2^(w-1) becomes value - 2^w and a carry into the next window. The last window has one bit more than the
// scalar, so its digit cannot overflow: it is at most 2^(w-1) with the carry.
//
// The widths differ by one at most: the first `num_wide` windows have one bit more than the others. That is
// src/policy/msm_plan.rs, which must agree.
#pragma once

#include "fr.cuh"

namespace cuzk {

// (r - 1)/2.
#define CUZK_FR_HALF \
    {0x80000000, 0x7fffffff, 0x7fff2dff, 0xa9ded201, 0x04d0ec02, 0x199cec04, 0x94cebea4, 0x39f6d3a9}

// A digit's bucket, over all windows, in the lower 31 bits and its sign above.
constexpr uint32_t DIGIT_NEGATIVE = 1u << 31;
constexpr uint32_t NO_DIGIT = 0xffffffff;

struct Windows {
    uint32_t num_windows;
    uint32_t num_wide;
    uint32_t narrow_bits;
};

// From Montgomery form to the integer in [0, r).
CUZK_HD Fr fr_to_integer(const Fr &a)
{
    return fr_mul(a, Fr{{1}});
}

// s to min(s, r - s); returns whether it was r - s.
CUZK_HD bool take_absolute(Fr &s)
{
    const uint32_t half[FR_LIMBS] = CUZK_FR_HALF;
    uint32_t unused[FR_LIMBS];
    bool above = sub_limbs<FR_LIMBS>(unused, half, s.limb) != 0;
    Fr negated = fr_neg(s);
    select_limbs<FR_LIMBS>(s.limb, above, negated.limb, s.limb);
    return above;
}

CUZK_HD void shift_right(Fr &s, uint32_t bits)
{
    CUZK_UNROLL
    for (int i = 0; i < FR_LIMBS; i++) {
        uint64_t pair = s.limb[i] | (uint64_t)(i + 1 < FR_LIMBS ? s.limb[i + 1] : 0) << 32;
        s.limb[i] = (uint32_t)(pair >> bits);
    }
}

// Takes the digits of a scalar one after the other, lowest first.
struct DigitReader {
    Fr rest;
    uint32_t carry;
    uint32_t negated; // DIGIT_NEGATIVE or 0

    // `scalar` in Montgomery form.
    CUZK_HD explicit DigitReader(const Fr &scalar) : rest(fr_to_integer(scalar)), carry(0)
    {
        negated = take_absolute(rest) ? DIGIT_NEGATIVE : 0;
    }

    // The next digit, of `bits` bits, as an index among the buckets from `first_bucket` on, or NO_DIGIT for zero.
    CUZK_HD uint32_t next(uint32_t bits, uint32_t first_bucket)
    {
        uint32_t raw = (rest.limb[0] & ((1u << bits) - 1)) + carry;
        shift_right(rest, bits);
        carry = raw > 1u << (bits - 1);
        uint32_t magnitude = carry ? (1u << bits) - raw : raw;
        if (magnitude == 0)
            return NO_DIGIT;
        return (first_bucket + magnitude - 1) | (negated ^ (carry ? DIGIT_NEGATIVE : 0));
    }
};

} // namespace cuzk
