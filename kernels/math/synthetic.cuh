// Inputs without pattern for measurements, each from its index alone, so that the host can recompute any of them
// (src/cuda/synthetic.rs has the same arithmetic).
#pragma once

#include "ec.cuh"
#include "fr.cuh"

namespace cuzk {

// 2^64 over the golden ratio, and the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014).
constexpr uint64_t SYNTHETIC_STEP = 0x9e3779b97f4a7c15;

CUZK_HD uint64_t synthetic_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// Word `word` of element `index`.
CUZK_HD uint64_t synthetic_word(uint64_t seed, uint64_t index, uint64_t word)
{
    return synthetic_mix((seed + 8 * index + word) * SYNTHETIC_STEP);
}

// A scalar: 0 or 1 (for bits_of_1024 in 1024 indices), or its Montgomery form's words below 2^252.
CUZK_HD Fr synthetic_scalar(uint64_t seed, uint64_t index, uint32_t bits_of_1024)
{
    uint64_t kind = synthetic_word(seed, index, 4);
    if ((kind & 1023) < bits_of_1024)
        return kind >> 63 ? fr_one() : fr_zero();
    Fr r;
    for (int i = 0; i < 4; i++) {
        uint64_t word = synthetic_word(seed, index, i);
        if (i == 3)
            word >>= 4;
        r.limb[2 * i] = (uint32_t)word;
        r.limb[2 * i + 1] = (uint32_t)(word >> 32);
    }
    return r;
}

// k G for k = word 0 of `index`, from a table of d 2^(8 j) G at 256 j + d, j < 8.
template <class F>
CUZK_HD Affine<F> synthetic_point(const Affine<F> *table, uint64_t seed, uint64_t index)
{
    uint64_t logarithm = synthetic_word(seed, index, 0);
    Xyzz<F> sum = xyzz_identity<F>();
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int j = 0; j < 8; j++)
        xyzz_add_affine(sum, table[256 * j + (logarithm >> (8 * j) & 255)]);
    return xyzz_to_affine(sum);
}

} // namespace cuzk
