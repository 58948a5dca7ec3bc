// Fp2 spread over two neighbouring lanes of a warp: the even lane holds c0, the odd one c1.
//
// One thread would need some 250 registers and spill for an addition in G2; two need as many each as one in G1.
// A product is one `fp_dot` per lane, a square one `fp_mul`, with the partner's limbs taken by shuffles, which
// go to a pipe that is idle otherwise. All lanes of a warp must take part in every operation here that asks the
// partner (*, square, mul_sub, is_zero, is_marker_zero): no branch around them may divide a warp.
//
// Bounds as in fp.cuh: all values in [0, 2p).
#pragma once

#include "ec.cuh"

namespace cuzk {

struct Fp2Half {
    Fp own;
};

static __device__ __forceinline__ bool holds_c1()
{
    return threadIdx.x & 1;
}

// The partner's limbs i and i + 1.
static __device__ __forceinline__ void partner_limbs(uint32_t *other, const Fp &own, int i)
{
    uint64_t pair = own.limb[i] | (uint64_t)own.limb[i + 1] << 32;
    pair = __shfl_xor_sync(0xffffffff, pair, 1);
    other[0] = (uint32_t)pair;
    other[1] = (uint32_t)(pair >> 32);
}

static __device__ __forceinline__ Fp partner(const Fp &own)
{
    Fp other;
    CUZK_UNROLL
    for (int i = 0; i < FP_LIMBS; i += 2)
        partner_limbs(other.limb + i, own, i);
    return other;
}

// fp_dot(x, b, y, b of the partner), whose limbs are fetched two at a time when their rows come, so that they take
// two registers and not twelve.
static __device__ __forceinline__ Fp fp_dot_with_partner(const Fp &x, const Fp &y, const Fp &b)
{
    uint32_t u[FP_LIMBS], v[FP_LIMBS], other[2];
    partner_limbs(other, b, 0);
    fp_product_row(u, v, x, b.limb[0]);
    mad_row<6>(v, y.limb + 1, other[0]);
    mad_row<6>(u, y.limb, other[0], v[11]);
    fp_reduce_row(u, v);
    CUZK_UNROLL
    for (int i = 1; i < FP_LIMBS; i++) {
        uint32_t *even = i % 2 == 1 ? v : u;
        uint32_t *odd = i % 2 == 1 ? u : v;
        if (i % 2 == 0)
            partner_limbs(other, b, i);
        fp_shifted_product_row(even, odd, x, b.limb[i]);
        mad_row<6>(odd, y.limb + 1, other[i % 2]);
        mad_row<6>(even, y.limb, other[i % 2], odd[11]);
        fp_reduce_row(even, odd);
    }
    return fp_close_rows(v, u);
}

static __device__ __forceinline__ Fp fp_select(bool take_a, const Fp &a, const Fp &b)
{
    Fp r;
    select_limbs<FP_LIMBS>(r.limb, take_a, a.limb, b.limb);
    return r;
}

static __device__ __forceinline__ bool both_lanes(bool own)
{
    return own & (bool)__shfl_xor_sync(0xffffffff, (uint32_t)own, 1);
}

static __device__ __forceinline__ Fp2Half operator+(const Fp2Half &a, const Fp2Half &b)
{
    return Fp2Half{a.own + b.own};
}
static __device__ __forceinline__ Fp2Half operator-(const Fp2Half &a, const Fp2Half &b)
{
    return Fp2Half{a.own - b.own};
}
static __device__ __forceinline__ Fp2Half twice(const Fp2Half &a) { return Fp2Half{twice(a.own)}; }
static __device__ __forceinline__ Fp2Half negate(const Fp2Half &a) { return Fp2Half{negate(a.own)}; }
static __device__ __forceinline__ bool is_zero(const Fp2Half &a) { return both_lanes(is_zero(a.own)); }
static __device__ __forceinline__ bool is_marker_zero(const Fp2Half &a) { return both_lanes(is_marker_zero(a.own)); }
static __device__ __forceinline__ void set_one(Fp2Half &a) { a.own = holds_c1() ? fp_zero() : fp_one(); }

// c0 = a0 b0 - a1 b1, c1 = a0 b1 + a1 b0.
static __device__ __forceinline__ Fp2Half operator*(const Fp2Half &a, const Fp2Half &b)
{
    Fp other = partner(a.own);
    Fp x = fp_select(holds_c1(), other, a.own);
    Fp y = fp_select(holds_c1(), a.own, negate(other));
    return Fp2Half{fp_dot_with_partner(x, y, b.own)};
}

// c0 = (a0 + a1)(a0 - a1), c1 = 2 a1 a0.
static __device__ __forceinline__ Fp2Half square(const Fp2Half &a)
{
    Fp other = partner(a.own);
    Fp x = a.own + fp_select(holds_c1(), a.own, other);
    Fp y = fp_select(holds_c1(), other, a.own - other);
    return Fp2Half{fp_mul(x, y)};
}

static __device__ __forceinline__ Fp2Half mul_sub(const Fp2Half &a, const Fp2Half &b, const Fp2Half &c,
                                                  const Fp2Half &d)
{
    return a * b - c * d;
}

template <>
struct Together<Fp2Half> {
    static __device__ __forceinline__ bool any(bool condition) { return __any_sync(0xffffffff, condition); }
};

} // namespace cuzk
