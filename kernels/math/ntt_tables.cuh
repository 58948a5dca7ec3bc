// The twiddle table W of ntt.cuh, made on the device.
#pragma once

#include "ntt.cuh"

namespace cuzk {

// A primitive root of unity of order 2^32, 7^((r-1)/2^32): blstrs' ROOT_OF_UNITY, Montgomery.
#define CUZK_FR_ROOT \
    {0x5f0e466a, 0xb9b58d8c, 0x1819d7ec, 0x5b1b4c80, 0x52a31e64, 0x0af53ae3, 0x19e9b27b, 0x5bf3adda}

constexpr uint32_t NUM_TWIDDLE_ROOTS = 31;

// roots[k] = W[2^k], a root of order 2^(k+2), k < 31. By one thread.
CUZK_HD void twiddle_roots(Fr *roots)
{
    Fr root = Fr{CUZK_FR_ROOT};
    for (uint32_t k = NUM_TWIDDLE_ROOTS; k-- > 0;) {
        roots[k] = root;
        root = fr_sqr(root);
    }
}

// W[b]: the product of roots[k] over the set bits k of b.
CUZK_HD Fr twiddle_from_roots(const Fr *roots, uint32_t b)
{
    Fr w = fr_one();
    for (; b != 0; b &= b - 1) {
        uint32_t lowest = 0;
        while (!(b >> lowest & 1))
            lowest++;
        w = w * roots[lowest];
    }
    return w;
}

} // namespace cuzk
