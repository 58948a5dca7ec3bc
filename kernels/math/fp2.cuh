// The quadratic extension Fp2 = Fp[u]/(u^2 + 1) of BLS12-381: c0 + c1 u, coordinates in [0, 2p) as in fp.cuh.
#pragma once

#include "fp_inverse.cuh"

namespace cuzk {

struct Fp2 {
    Fp c0, c1;
};
static_assert(sizeof(Fp2) == 96, "the parameter layout relies on 96 bytes, c0 first");

CUZK_HD Fp2 operator+(const Fp2 &a, const Fp2 &b) { return Fp2{a.c0 + b.c0, a.c1 + b.c1}; }
CUZK_HD Fp2 operator-(const Fp2 &a, const Fp2 &b) { return Fp2{a.c0 - b.c0, a.c1 - b.c1}; }
CUZK_HD Fp2 twice(const Fp2 &a) { return Fp2{twice(a.c0), twice(a.c1)}; }
CUZK_HD Fp2 negate(const Fp2 &a) { return Fp2{negate(a.c0), negate(a.c1)}; }
CUZK_HD Fp2 canonical(const Fp2 &a) { return Fp2{canonical(a.c0), canonical(a.c1)}; }
CUZK_HD bool is_zero(const Fp2 &a) { return is_zero(a.c0) && is_zero(a.c1); }
CUZK_HD bool is_marker_zero(const Fp2 &a) { return is_marker_zero(a.c0) && is_marker_zero(a.c1); }
CUZK_HD void set_one(Fp2 &a) { a = Fp2{fp_one(), fp_zero()}; }

// An addition in G2 inlines to some 9,000 multiplications: 150 KB of instructions, more than the instruction caches
// hold, and half a minute of ptxas for each architecture. Fp2 therefore calls these two.
CUZK_HD_CALL Fp fp_mul_call(const Fp a, const Fp b)
{
    return fp_mul(a, b);
}

CUZK_HD_CALL Fp fp_dot_call(const Fp a, const Fp b, const Fp c, const Fp d)
{
    return fp_dot(a, b, c, d);
}

// Schoolbook with one reduction per coordinate: 2 dots = 876 w. Karatsuba with three reductions is 882 w and
// more additions; Karatsuba with lazy reduction would be 732 w.
CUZK_HD Fp2 operator*(const Fp2 &a, const Fp2 &b)
{
    return Fp2{fp_dot_call(a.c0, b.c0, negate(a.c1), b.c1), fp_dot_call(a.c0, b.c1, a.c1, b.c0)};
}

// ((c0 + c1)(c0 - c1), 2 c0 c1): 2 multiplications = 588 w.
CUZK_HD Fp2 square(const Fp2 &a)
{
    return Fp2{fp_mul_call(a.c0 + a.c1, a.c0 - a.c1), fp_mul_call(twice(a.c0), a.c1)};
}

// a b - c d.
CUZK_HD Fp2 mul_sub(const Fp2 &a, const Fp2 &b, const Fp2 &c, const Fp2 &d)
{
    return a * b - c * d;
}

// The conjugate over the norm c0^2 + c1^2, which is zero only for zero; 0 gives 0.
CUZK_HD Fp2 inverse(const Fp2 &a)
{
    Fp norm_inverse = inverse(fp_dot(a.c0, a.c0, a.c1, a.c1));
    return Fp2{fp_mul_call(a.c0, norm_inverse), fp_mul_call(negate(a.c1), norm_inverse)};
}

} // namespace cuzk
