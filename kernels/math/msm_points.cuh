// How threads hold and move points: G1 in one lane, G2 in two. A lane of G2 reads and writes its own coordinates, at
// every second Fp.
//
// A reference to a point is its number and, in the highest bit, whether its negative is meant.
#pragma once

#include "digits.cuh"
#include "fp_inverse_warp.cuh"
#include "fp2_pair.cuh"
#include "msm_scan.cuh"

namespace cuzk {

// Where no bucket or no point is meant.
constexpr uint32_t NO_BUCKET = 0xffffffff;
constexpr uint32_t NO_POINT = 0xffffffff;

struct G1Lanes {
    static constexpr uint32_t LANES = 1;
    using Field = Fp;
    using Point = G1Affine;
    using Sum = G1Xyzz;

    static __device__ __forceinline__ Fp load(const Fp *from) { return *from; }
    static __device__ __forceinline__ void store(Fp *to, const Fp &a) { *to = a; }
    static __device__ __forceinline__ Fp field_inverse_together(const Fp &a) { return fp_inverse_together(a); }
    static __device__ __forceinline__ Fp &own(Fp &a) { return a; }
    // Whether d = x2 - x1 (a loose difference) may be zero, or one of x1 and x2 an identity's: by their lowest limbs.
    static __device__ __forceinline__ bool may_be_special(const Fp &d, const Fp &x1, const Fp &x2)
    {
        return fp_may_be_zero_loose(d) | (x1.limb[0] == 0) | (x2.limb[0] == 0);
    }
};

struct G2Lanes {
    static constexpr uint32_t LANES = 2;
    using Field = Fp2Half;
    using Point = G2Affine;
    using Sum = G2Xyzz;

    static __device__ __forceinline__ Fp2Half load(const Fp2 *from)
    {
        return Fp2Half{reinterpret_cast<const Fp *>(from)[holds_c1()]};
    }
    static __device__ __forceinline__ void store(Fp2 *to, const Fp2Half &a)
    {
        reinterpret_cast<Fp *>(to)[holds_c1()] = a.own;
    }
    static __device__ __forceinline__ Fp &own(Fp2Half &a) { return a.own; }
    // As in G1, if it may be so in both coordinates.
    static __device__ __forceinline__ bool may_be_special(const Fp2Half &d, const Fp2Half &x1, const Fp2Half &x2)
    {
        uint32_t own = (uint32_t)(d.own.limb[0] == 0 || d.own.limb[0] == FP_P[0]) |
                       (uint32_t)(x1.own.limb[0] == 0) << 1 | (uint32_t)(x2.own.limb[0] == 0) << 2;
        return (own & __shfl_xor_sync(0xffffffff, own, 1)) != 0;
    }
    // The conjugate over the norm, as in fp2.cuh. Both lanes invert the norm.
    static __device__ __forceinline__ Fp2Half field_inverse_together(const Fp2Half &a)
    {
        Fp squared = fp_sqr(a.own);
        Fp norm_inverse = fp_inverse_together(squared + partner(squared));
        return Fp2Half{fp_mul(holds_c1() ? negate(a.own) : a.own, norm_inverse)};
    }
};

template <class L>
static __device__ __forceinline__ Affine<typename L::Field> load_point(const typename L::Point *__restrict__ points,
                                                                       uint32_t reference)
{
    const typename L::Point *from = points + (reference & ~DIGIT_NEGATIVE);
    Affine<typename L::Field> point{L::load(&from->x), L::load(&from->y)};
    if (reference & DIGIT_NEGATIVE)
        point = affine_negate(point);
    return point;
}

template <class L>
static __device__ __forceinline__ void store_point(typename L::Point *to, const Affine<typename L::Field> &point)
{
    L::store(&to->x, point.x);
    L::store(&to->y, point.y);
}

} // namespace cuzk
