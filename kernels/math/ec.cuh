// The groups G1 (F = Fp) and G2 (F = Fp2) of BLS12-381, short Weierstrass curves y^2 = x^3 + b (a = 0).
//
// Affine: the identity is x = y = 0, which is on neither curve (b = 4 and 4 + 4u).
// XYZZ: x = X/ZZ, y = Y/ZZZ with ZZ^3 = ZZZ^2; the identity has ZZ = 0.
// In both the marker is "all limbs zero": the functions set it exactly so and never give it to another point.
//
// Formulas: D. J. Bernstein, T. Lange, "Explicit-Formulas Database", g1p/auto-shortw-xyzz, by their names there.
// Every function handles identities, equal and opposite points. No point has order 2 (both cofactors are odd).
// Costs: M = multiplication, S = squaring, D = double product with one reduction (mul_sub), in wide
// multiplications for Fp (294, 228, 438 with the low halves counted as halves: fp.cuh).
#pragma once

#include "fp2.cuh"

namespace cuzk {

template <class F>
struct Affine {
    F x, y;
};

template <class F>
struct Xyzz {
    F x, y, zz, zzz;
};

using G1Affine = Affine<Fp>;
using G2Affine = Affine<Fp2>;
using G1Xyzz = Xyzz<Fp>;
using G2Xyzz = Xyzz<Fp2>;
static_assert(sizeof(G1Affine) == 96 && sizeof(G2Affine) == 192, "the parameter layout relies on these sizes");
static_assert(sizeof(G1Xyzz) == 192 && sizeof(G2Xyzz) == 384, "src/cuda relies on these sizes");

template <class F>
CUZK_HD bool is_identity(const Affine<F> &p)
{
    return is_marker_zero(p.x) && is_marker_zero(p.y);
}

template <class F>
CUZK_HD bool is_identity(const Xyzz<F> &p)
{
    return is_marker_zero(p.zz);
}

template <class F>
CUZK_HD Xyzz<F> xyzz_identity()
{
    return Xyzz<F>{};
}

template <class F>
CUZK_HD Xyzz<F> xyzz_from_affine(const Affine<F> &p)
{
    if (is_identity(p))
        return xyzz_identity<F>();
    Xyzz<F> r;
    r.x = p.x;
    r.y = p.y;
    set_one(r.zz);
    set_one(r.zzz);
    return r;
}

template <class F>
CUZK_HD Affine<F> affine_negate(const Affine<F> &p)
{
    return Affine<F>{p.x, negate(p.y)};
}

template <class F>
CUZK_HD Xyzz<F> xyzz_negate(const Xyzz<F> &p)
{
    return Xyzz<F>{p.x, negate(p.y), p.zz, p.zzz};
}

// 2 p for p affine and not the identity: mdbl-2008-s-1, 4M + 3S with one double product.
template <class F>
CUZK_HD_CALL Xyzz<F> xyzz_double_affine(const Affine<F> p)
{
    F u = twice(p.y);
    F v = square(u);
    F w = u * v;
    F s = p.x * v;
    F xx = square(p.x);
    F m = twice(xx) + xx;
    Xyzz<F> r;
    r.x = square(m) - twice(s);
    r.y = mul_sub(m, s - r.x, w, p.y);
    r.zz = v;
    r.zzz = w;
    return r;
}

// 2 p: dbl-2008-s-1, 6M + 3S with one double product. For the identity v = 0 exactly keeps the marker, since
// a product with zero operand limbs is below p and divisible by it.
template <class F>
CUZK_HD_CALL Xyzz<F> xyzz_double(const Xyzz<F> p)
{
    if (is_identity(p))
        return p;
    F u = twice(p.y);
    F v = square(u);
    F w = u * v;
    F s = p.x * v;
    F xx = square(p.x);
    F m = twice(xx) + xx;
    Xyzz<F> r;
    r.x = square(m) - twice(s);
    r.y = mul_sub(m, s - r.x, w, p.y);
    r.zz = v * p.zz;
    r.zzz = w * p.zzz;
    return r;
}

// p += q for q affine: madd-2008-s, 6M + 2S + 1D = 2658 w for Fp (8M + 2S without the double product).
template <class F>
CUZK_HD void xyzz_add_affine(Xyzz<F> &p, const Affine<F> &q)
{
    if (is_identity(q))
        return;
    if (is_identity(p)) {
        p = xyzz_from_affine(q);
        return;
    }
    F d = q.x * p.zz - p.x;
    F r = q.y * p.zzz - p.y;
    if (is_zero(d)) {
        p = is_zero(r) ? xyzz_double_affine(q) : xyzz_identity<F>();
        return;
    }
    F dd = square(d);
    F ddd = d * dd;
    F t = p.x * dd;
    F x = square(r) - ddd - twice(t);
    p.y = mul_sub(r, t - x, p.y, ddd);
    p.x = x;
    p.zz = p.zz * dd;
    p.zzz = p.zzz * ddd;
}

// p += q: add-2008-s, 10M + 2S + 1D = 3834 w for Fp.
template <class F>
CUZK_HD void xyzz_add(Xyzz<F> &p, const Xyzz<F> &q)
{
    if (is_identity(q))
        return;
    if (is_identity(p)) {
        p = q;
        return;
    }
    F u = p.x * q.zz;
    F s = p.y * q.zzz;
    F d = q.x * p.zz - u;
    F r = q.y * p.zzz - s;
    if (is_zero(d)) {
        p = is_zero(r) ? xyzz_double(p) : xyzz_identity<F>();
        return;
    }
    F dd = square(d);
    F ddd = d * dd;
    F t = u * dd;
    p.x = square(r) - ddd - twice(t);
    p.y = mul_sub(r, t - p.x, s, ddd);
    p.zz = p.zz * q.zz * dd;
    p.zzz = p.zzz * q.zzz * ddd;
}

// `xyzz_add` as a call, for sums that are not the hot loop: two additions inline fill the instruction cache.
template <class F>
CUZK_HD_CALL void xyzz_add_call(Xyzz<F> &p, const Xyzz<F> &q)
{
    xyzz_add(p, q);
}

// To affine with one inversion: 1/ZZZ, then 1/ZZ = (ZZ/ZZZ)^2 because ZZ^3 = ZZZ^2. Canonical.
template <class F>
CUZK_HD Affine<F> xyzz_to_affine(const Xyzz<F> &p)
{
    if (is_identity(p))
        return Affine<F>{};
    F zzz_inverse = inverse(p.zzz);
    F z_inverse = p.zz * zzz_inverse;
    return Affine<F>{canonical(p.x * square(z_inverse)), canonical(p.y * zzz_inverse)};
}

// Whether the condition holds in any thread that must stay together for the arithmetic of F: in one alone, unless F
// is spread over lanes (fp2_pair.cuh).
template <class F>
struct Together {
    static CUZK_HD bool any(bool condition) { return condition; }
};

// Fields that have no cheaper difference for a factor of a product; Fp has one.
template <class F>
CUZK_HD F loose_difference(const F &a, const F &b)
{
    return a - b;
}

// Affine addition with an inversion shared by a batch, in two steps. `affine_pair_denominator` classifies the
// pair and gives the factor that enters the batch's product; it is never zero. `affine_pair_sum` takes its
// inverse. Slope and sum: the chord (y2 - y1)/(x2 - x1) or the tangent 3 x^2/(2 y). 2M + 1S (tangent 2M + 2S).
// No branch in either divides threads that must stay together.
//
// PAIR_KNOWN: the sum needs no slope, and is p, which `affine_pair_denominator` sees to.
enum AffinePair : uint32_t { PAIR_CHORD, PAIR_TANGENT, PAIR_KNOWN };

template <class F>
CUZK_HD AffinePair affine_pair_denominator(F &denominator, Affine<F> &p, const Affine<F> &q)
{
    bool no_p = is_marker_zero(p.x) & is_marker_zero(p.y), no_q = is_marker_zero(q.x) & is_marker_zero(q.y);
    F d = q.x - p.x;
    bool same_x = is_zero(d), same_y = is_zero(q.y - p.y);
    AffinePair pair = no_p | no_q ? PAIR_KNOWN : !same_x ? PAIR_CHORD : same_y ? PAIR_TANGENT : PAIR_KNOWN;
    if (no_p)
        p = q;
    else if (pair == PAIR_KNOWN && !no_q)
        p = Affine<F>{};
    if (pair == PAIR_CHORD)
        denominator = d;
    else if (pair == PAIR_TANGENT)
        denominator = twice(p.y);
    else
        set_one(denominator);
    return pair;
}

template <class F>
CUZK_HD Affine<F> affine_pair_sum(AffinePair pair, const F &inverse_denominator, const Affine<F> &p,
                                  const Affine<F> &q)
{
    F numerator = loose_difference(q.y, p.y);
    if (Together<F>::any(pair == PAIR_TANGENT)) {
        F xx = square(p.x);
        F triple = twice(xx) + xx;
        if (pair == PAIR_TANGENT)
            numerator = triple;
    }
    F slope = numerator * inverse_denominator;
    Affine<F> sum;
    sum.x = square(slope) - p.x - q.x;
    sum.y = slope * loose_difference(p.x, sum.x) - p.y;
    if (pair == PAIR_KNOWN)
        sum = p;
    return sum;
}

} // namespace cuzk
