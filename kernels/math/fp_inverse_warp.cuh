// Inversion in the base field by all lanes of a warp at a time, each of its own number, by the division steps of
// fp_inverse.cuh without branches: lanes that branch wait for each other.
//
// 26 rounds of 930 instructions; one number alone takes 26 rounds on average, and 32 of them hardly more.
#pragma once

#include "fp_inverse.cuh"

namespace cuzk {

// 30 division steps of the variant that begins at delta = 1/2; `zeta` is -(delta + 1/2), returned for the next 30. It
// needs 26 rounds where delta = 1 at the beginning needs 27.
static __device__ __forceinline__ int32_t division_steps_together(int32_t zeta, uint32_t f, uint32_t g, StepMatrix &t)
{
    uint32_t u = 1, v = 0, q = 0, r = 1;
    CUZK_UNROLL
    for (int step = 0; step < STEP_BITS; step++) {
        bool odd = g & 1, swap = odd & (zeta < 0);
        // (f, g) -> (g, (g - f)/2) or (f, (g + f)/2) or (f, g/2).
        uint32_t times_f = swap ? ~0u : (uint32_t)odd;
        uint32_t next_g = (g + times_f * f) >> 1, next_q = q + times_f * u, next_r = r + times_f * v;
        f = swap ? g : f;
        u = (swap ? q : u) << 1;
        v = (swap ? r : v) << 1;
        zeta = (swap ? -1 - zeta : zeta) - 1;
        g = next_g;
        q = next_q;
        r = next_r;
    }
    t = StepMatrix{(int32_t)u, (int32_t)v, (int32_t)q, (int32_t)r};
    return zeta;
}

// 1/a, canonical; 0 gives 0. All lanes of the warp.
static __device__ __noinline__ Fp fp_inverse_together(const Fp a)
{
    constexpr int32_t p[STEP_LIMBS] = CUZK_STEP_P;
    StepNumber f, g = step_number(fp_canonical(a)), d{}, e{{1}};
    CUZK_UNROLL
    for (int i = 0; i < STEP_LIMBS; i++)
        f.limb[i] = p[i];
    int32_t zeta = -1;
    for (;;) {
        int32_t any = 0;
        CUZK_UNROLL
        for (int i = 0; i < STEP_LIMBS; i++)
            any |= g.limb[i];
        // A lane that is done goes on with the others: with g = 0 steps leave f, and d mod p.
        if (!__any_sync(0xffffffff, any != 0))
            break;
        StepMatrix t;
        zeta = division_steps_together(zeta, (uint32_t)f.limb[0], (uint32_t)g.limb[0], t);
        apply_to_de(t, d, e);
        apply_to_fg(t, f, g);
    }
    normalize(d, f.limb[STEP_LIMBS - 1] >> 31);
    return fp_canonical(fp_mul(fp_from_step_number(d), Fp{CUZK_FP_R3}));
}

} // namespace cuzk
