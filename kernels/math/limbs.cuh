// Multi-precision rows of 32-bit limbs.
//
// One step of everything above this file is "acc += x * y" for a row x of every second limb of a number and
// one limb y. A 32x32-bit product is 64 bits wide, so the products of the even limbs fill adjacent limb pairs
// without overlap, and so do those of the odd limbs one limb further up. Two accumulators, "even" and "odd",
// each take their row as one carry chain of mad.lo.cc/madc.hi.cc pairs; ptxas fuses each pair into one
// IMAD.WIDE with carry, the instruction whose rate bounds all arithmetic here (32 lanes/clk/SM on H200).
//
// Each function is one asm block (ptx_rows.cuh), so no carry flag lives between blocks. The PTX is used under
// __CUDA_ARCH__; everywhere else its portable twin with 64-bit intermediates, which the host tests run.
//
// Aliasing: outputs never overlap the row x; in `add_limbs` and `sub_limbs` r may be a or b.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define CUZK_HD __host__ __device__ __forceinline__
// For what is rarely run, or too long to repeat at every use: a real call keeps it out of the hot code.
#define CUZK_HD_CALL static __host__ __device__ __noinline__
#define CUZK_UNROLL _Pragma("unroll")
#define CUZK_ROLLED _Pragma("unroll 1")
#else
#define CUZK_HD inline
#define CUZK_HD_CALL static inline
#define CUZK_UNROLL
#define CUZK_ROLLED
#endif

#if defined(__CUDA_ARCH__)
#include "ptx_rows.cuh"
#endif

namespace cuzk {

// acc[0..2N) = sum over k of x[2k] * y * 2^(64k). The products do not overlap: no carries.
template <int N>
CUZK_HD void mul_row(uint32_t *acc, const uint32_t *x, uint32_t y)
{
    CUZK_UNROLL
    for (int k = 0; k < N; k++) {
        uint64_t product = (uint64_t)x[2 * k] * y;
        acc[2 * k] = (uint32_t)product;
        acc[2 * k + 1] = (uint32_t)(product >> 32);
    }
}

#if !defined(__CUDA_ARCH__)
// One link of a carry chain: (lo, hi) += x * y + carry; the carry out is 0 or 1.
inline uint32_t mad_pair(uint32_t &lo, uint32_t &hi, uint32_t x, uint32_t y, uint32_t carry)
{
    uint64_t product = (uint64_t)x * y;
    uint64_t sum = (uint64_t)lo + (uint32_t)product + carry;
    lo = (uint32_t)sum;
    sum = (sum >> 32) + hi + (product >> 32);
    hi = (uint32_t)sum;
    return (uint32_t)(sum >> 32);
}

inline uint32_t add_limb(uint32_t &limb, uint32_t b, uint32_t carry)
{
    uint64_t sum = (uint64_t)limb + b + carry;
    limb = (uint32_t)sum;
    return (uint32_t)(sum >> 32);
}
#endif

// acc[0..2N) += sum over k of x[2k] * y * 2^(64k); the carry out of acc[2N-1] is added to `top`.
template <int N>
CUZK_HD void mad_row(uint32_t *acc, const uint32_t *x, uint32_t y, uint32_t &top)
{
#if defined(__CUDA_ARCH__)
    PtxRow<N>::mad(acc, x, y, top);
#else
    uint32_t carry = 0;
    for (int k = 0; k < N; k++)
        carry = mad_pair(acc[2 * k], acc[2 * k + 1], x[2 * k], y, carry);
    top += carry;
#endif
}

// The same where the caller has shown that there is no carry out.
template <int N>
CUZK_HD void mad_row(uint32_t *acc, const uint32_t *x, uint32_t y)
{
    uint32_t none = 0;
    mad_row<N>(acc, x, y, none);
}

// e0 += stray, and its carry goes into acc[0..2N) += sum over k of x[2k] * y * 2^(64k), which has none out.
template <int N>
CUZK_HD void shift_mad_row(uint32_t &e0, uint32_t stray, uint32_t *acc, const uint32_t *x, uint32_t y)
{
#if defined(__CUDA_ARCH__)
    PtxRow<N>::shift_mad(e0, stray, acc, x, y);
#else
    uint32_t carry = add_limb(e0, stray, 0);
    for (int k = 0; k < N; k++)
        carry = mad_pair(acc[2 * k], acc[2 * k + 1], x[2 * k], y, carry);
#endif
}

// acc[0..2) += (lo, hi) plus the carry of a + b, and in the same chain acc[2..2+2N) += sum over k of
// x[2k] * y * 2^(64k), where the caller has shown that there is no carry out.
template <int N>
CUZK_HD void carry_pair_mad_row(uint32_t *acc, uint32_t a, uint32_t b, uint32_t lo, uint32_t hi, const uint32_t *x,
                                uint32_t y)
{
#if defined(__CUDA_ARCH__)
    PtxRow<N>::carry_pair_mad(acc, a, b, lo, hi, x, y);
#else
    uint32_t carry = add_limb(a, b, 0);
    carry = add_limb(acc[0], lo, carry);
    carry = add_limb(acc[1], hi, carry);
    for (int k = 0; k < N; k++)
        carry = mad_pair(acc[2 + 2 * k], acc[3 + 2 * k], x[2 * k], y, carry);
#endif
}

// negative = zero - a, and less = negative less the borrow: -a mod 2^32 and, unless a is 0, one less. `zero` is 0,
// unknown to the compiler.
CUZK_HD void negate_limb(uint32_t &negative, uint32_t &less, uint32_t zero, uint32_t a)
{
#if defined(__CUDA_ARCH__)
    asm("sub.cc.u32 %0, %2, %3; subc.u32 %1, %0, 0;" : "=&r"(negative), "=r"(less) : "r"(zero), "r"(a));
#else
    negative = zero - a;
    less = negative - (a != zero ? 1 : 0);
#endif
}

// r = a + b; returns the carry, 0 or 1.
template <int LIMBS>
CUZK_HD uint32_t add_limbs(uint32_t *r, const uint32_t *a, const uint32_t *b)
{
#if defined(__CUDA_ARCH__)
    return PtxSum<LIMBS>::add(r, a, b);
#else
    uint32_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        uint32_t limb = a[i];
        carry = add_limb(limb, b[i], carry);
        r[i] = limb;
    }
    return carry;
#endif
}

// r = a - b; returns the borrow as a mask, 0 or 0xffffffff.
template <int LIMBS>
CUZK_HD uint32_t sub_limbs(uint32_t *r, const uint32_t *a, const uint32_t *b)
{
#if defined(__CUDA_ARCH__)
    return PtxSum<LIMBS>::sub(r, a, b);
#else
    uint64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        uint64_t difference = (uint64_t)a[i] - b[i] - borrow;
        r[i] = (uint32_t)difference;
        borrow = difference >> 63;
    }
    return 0u - (uint32_t)borrow;
#endif
}

// r += a if `mask` is not 0, without a branch. No carry out.
template <int LIMBS>
CUZK_HD void add_limbs_if(uint32_t *r, const uint32_t *a, uint32_t mask)
{
#if defined(__CUDA_ARCH__)
    PtxSum<LIMBS>::add_if(r, a, mask);
#else
    if (mask != 0)
        add_limbs<LIMBS>(r, r, a);
#endif
}

// r = take_a ? a : b, without a branch.
template <int LIMBS>
CUZK_HD void select_limbs(uint32_t *r, bool take_a, const uint32_t *a, const uint32_t *b)
{
    CUZK_UNROLL
    for (int i = 0; i < LIMBS; i++)
        r[i] = take_a ? a[i] : b[i];
}

template <int LIMBS>
CUZK_HD bool limbs_are_zero(const uint32_t *a)
{
    uint32_t any = 0;
    CUZK_UNROLL
    for (int i = 0; i < LIMBS; i++)
        any |= a[i];
    return any == 0;
}

template <int LIMBS>
CUZK_HD bool limbs_are_equal(const uint32_t *a, const uint32_t *b)
{
    uint32_t any = 0;
    CUZK_UNROLL
    for (int i = 0; i < LIMBS; i++)
        any |= a[i] ^ b[i];
    return any == 0;
}

} // namespace cuzk
