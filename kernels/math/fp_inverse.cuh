// Inversion in the base field by division steps: D. J. Bernstein, B.-Y. Yang, "Fast constant-time gcd computation and
// modular inversion" (TCHES 2019/3), 30 steps at a time on the numbers' lowest limbs and then once on all limbs, as
// P. Wuille's implementation notes for libsecp256k1 (doc/safegcd_implementation.md) do, variable-time.
//
// About 27 rounds of 130 wide multiplications and some 400 cheap instructions, of which a thread waits for each: 15,000
// where Fermat's exponentiation takes 200,000. It pays where one thread inverts and others wait for it.
#pragma once

#include "fp.cuh"

namespace cuzk {

// Thirteen limbs of 30 bits, the highest signed: 381 bits, a sign, and room for sums.
constexpr int STEP_LIMBS = 13;
constexpr int STEP_BITS = 30;
constexpr uint32_t STEP_MASK = (1u << STEP_BITS) - 1;
constexpr uint32_t STEP_P_INVERSE = 0x30003; // 1/p mod 2^30

#define CUZK_STEP_P \
    {0x3fffaaab, 0x27fbffff, 0x153ffffb, 0x2affffac, 0x30f6241e, 0x034a83da, 0x112bf673, \
     0x12e13ce1, 0x2cd76477, 0x1ed90d2e, 0x29a4b1ba, 0x3a8e5ff9, 0x001a0111}
// R^3 mod p.
#define CUZK_FP_R3 \
    {0xd94ca1e0, 0xed48ac6b, 0x03a7adf8, 0x315f831e, 0x615e29dd, 0x9a53352a, \
     0x921e1761, 0x34c04e5e, 0x65724728, 0x2512d435, 0x91755d4d, 0x0aa63460}

struct StepNumber {
    int32_t limb[STEP_LIMBS];
};

// 30 division steps take (f, g) to (u f + v g, q f + r g) / 2^30.
struct StepMatrix {
    int32_t u, v, q, r;
};

CUZK_HD StepNumber step_number(const Fp &a)
{
    StepNumber n;
    CUZK_UNROLL
    for (int i = 0; i < STEP_LIMBS; i++) {
        int word = STEP_BITS * i / 32, shift = STEP_BITS * i % 32;
        uint64_t pair = a.limb[word] | (uint64_t)(word + 1 < FP_LIMBS ? a.limb[word + 1] : 0) << 32;
        n.limb[i] = (int32_t)((uint32_t)(pair >> shift) & STEP_MASK);
    }
    return n;
}

// A number in [0, p).
CUZK_HD Fp fp_from_step_number(const StepNumber &n)
{
    Fp a;
    CUZK_UNROLL
    for (int i = 0; i < FP_LIMBS; i++) {
        int first = 32 * i / STEP_BITS, shift = 32 * i % STEP_BITS;
        uint32_t low = (uint32_t)n.limb[first] >> shift;
        a.limb[i] = low | (uint32_t)n.limb[first + 1] << (STEP_BITS - shift);
    }
    return a;
}

CUZK_HD uint32_t trailing_zeros(uint32_t x)
{
#if defined(__CUDA_ARCH__)
    return __clz(__brev(x));
#else
    return (uint32_t)__builtin_ctz(x);
#endif
}

// 30 steps on the lowest limbs; `eta` is the steps' -delta, returned for the next 30.
CUZK_HD int32_t division_steps(int32_t eta, uint32_t f, uint32_t g, StepMatrix &t)
{
    uint32_t u = 1, v = 0, q = 0, r = 1;
    int32_t left = STEP_BITS;
    for (;;) {
        uint32_t zeros = trailing_zeros(g | ~0u << left);
        g >>= zeros;
        u <<= zeros;
        v <<= zeros;
        eta -= (int32_t)zeros;
        left -= (int32_t)zeros;
        if (left == 0)
            break;
        if (eta < 0) {
            uint32_t was_f = f, was_u = u, was_v = v;
            eta = -eta;
            f = g;
            g = 0 - was_f;
            u = q;
            q = 0 - was_u;
            v = r;
            r = 0 - was_v;
        }
        // The next eta + 1 steps only add f to g: up to six of them at once. f (f^2 - 2) = -1/f mod 64.
        int32_t steps = eta + 1 < left ? eta + 1 : left;
        uint32_t mask = steps < 6 ? (1u << steps) - 1 : 63;
        uint32_t w = (f * g * (f * f - 2)) & mask;
        g += f * w;
        q += u * w;
        r += v * w;
    }
    t = StepMatrix{(int32_t)u, (int32_t)v, (int32_t)q, (int32_t)r};
    return eta;
}

CUZK_HD int64_t step_dot(int32_t a, int32_t x, int32_t b, int32_t y)
{
    return (int64_t)a * x + (int64_t)b * y;
}

// (f, g) = t (f, g) / 2^30, exactly.
CUZK_HD void apply_to_fg(const StepMatrix &t, StepNumber &f, StepNumber &g)
{
    int64_t cf = step_dot(t.u, f.limb[0], t.v, g.limb[0]) >> STEP_BITS;
    int64_t cg = step_dot(t.q, f.limb[0], t.r, g.limb[0]) >> STEP_BITS;
    CUZK_UNROLL
    for (int i = 1; i < STEP_LIMBS; i++) {
        cf += step_dot(t.u, f.limb[i], t.v, g.limb[i]);
        cg += step_dot(t.q, f.limb[i], t.r, g.limb[i]);
        f.limb[i - 1] = (int32_t)((uint32_t)cf & STEP_MASK);
        g.limb[i - 1] = (int32_t)((uint32_t)cg & STEP_MASK);
        cf >>= STEP_BITS;
        cg >>= STEP_BITS;
    }
    f.limb[STEP_LIMBS - 1] = (int32_t)cf;
    g.limb[STEP_LIMBS - 1] = (int32_t)cg;
}

// (d, e) = t (d, e) / 2^30 mod p; both stay in (-2p, p).
CUZK_HD void apply_to_de(const StepMatrix &t, StepNumber &d, StepNumber &e)
{
    constexpr int32_t p[STEP_LIMBS] = CUZK_STEP_P;
    int32_t d_sign = d.limb[STEP_LIMBS - 1] >> 31, e_sign = e.limb[STEP_LIMBS - 1] >> 31;
    // How often p is added: once for each negative number times its factor, then what makes 2^30 divide the sums.
    int32_t md = (t.u & d_sign) + (t.v & e_sign);
    int32_t me = (t.q & d_sign) + (t.r & e_sign);
    int64_t cd = step_dot(t.u, d.limb[0], t.v, e.limb[0]);
    int64_t ce = step_dot(t.q, d.limb[0], t.r, e.limb[0]);
    md -= (int32_t)((STEP_P_INVERSE * (uint32_t)cd + (uint32_t)md) & STEP_MASK);
    me -= (int32_t)((STEP_P_INVERSE * (uint32_t)ce + (uint32_t)me) & STEP_MASK);
    cd = (cd + (int64_t)p[0] * md) >> STEP_BITS;
    ce = (ce + (int64_t)p[0] * me) >> STEP_BITS;
    CUZK_UNROLL
    for (int i = 1; i < STEP_LIMBS; i++) {
        cd += step_dot(t.u, d.limb[i], t.v, e.limb[i]) + (int64_t)p[i] * md;
        ce += step_dot(t.q, d.limb[i], t.r, e.limb[i]) + (int64_t)p[i] * me;
        d.limb[i - 1] = (int32_t)((uint32_t)cd & STEP_MASK);
        e.limb[i - 1] = (int32_t)((uint32_t)ce & STEP_MASK);
        cd >>= STEP_BITS;
        ce >>= STEP_BITS;
    }
    d.limb[STEP_LIMBS - 1] = (int32_t)cd;
    e.limb[STEP_LIMBS - 1] = (int32_t)ce;
}

// n times the sign, from (-2p, p) to [0, p).
CUZK_HD void normalize(StepNumber &n, int32_t sign)
{
    constexpr int32_t p[STEP_LIMBS] = CUZK_STEP_P;
    CUZK_UNROLL
    for (int turn = 0; turn < 2; turn++) {
        int32_t add = n.limb[STEP_LIMBS - 1] >> 31;
        int32_t flip = turn == 0 ? sign : 0, carry = 0;
        CUZK_UNROLL
        for (int i = 0; i < STEP_LIMBS; i++) {
            carry += ((n.limb[i] + (p[i] & add)) ^ flip) - flip;
            n.limb[i] = i + 1 < STEP_LIMBS ? (int32_t)((uint32_t)carry & STEP_MASK) : carry;
            carry >>= STEP_BITS;
        }
    }
}

// 1/a, canonical; 0 gives 0. With x = a R the steps give 1/(a R), and R^3 makes that R/a.
CUZK_HD_CALL Fp fp_inverse(const Fp a)
{
    constexpr int32_t p[STEP_LIMBS] = CUZK_STEP_P;
    StepNumber f, g = step_number(fp_canonical(a)), d{}, e{{1}};
    CUZK_UNROLL
    for (int i = 0; i < STEP_LIMBS; i++)
        f.limb[i] = p[i];
    int32_t eta = -1;
    for (;;) {
        int32_t any = 0;
        CUZK_UNROLL
        for (int i = 0; i < STEP_LIMBS; i++)
            any |= g.limb[i];
        if (any == 0)
            break;
        StepMatrix t;
        eta = division_steps(eta, (uint32_t)f.limb[0], (uint32_t)g.limb[0], t);
        apply_to_de(t, d, e);
        apply_to_fg(t, f, g);
    }
    // f is 1 or -1 now, and d = f/x.
    normalize(d, f.limb[STEP_LIMBS - 1] >> 31);
    return fp_canonical(fp_mul(fp_from_step_number(d), Fp{CUZK_FP_R3}));
}

CUZK_HD Fp inverse(const Fp &a) { return fp_inverse(a); }

} // namespace cuzk
