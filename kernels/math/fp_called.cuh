// The base field with its multiplications as calls, for additions outside the hot loop: an addition is then some
// hundred instructions and a fifth of ptxas's time, which it takes anew for each kernel and architecture.
#pragma once

#include "fp2.cuh"

namespace cuzk {

struct FpCalled {
    Fp value;
};
static_assert(sizeof(FpCalled) == sizeof(Fp), "the same points, read as either");

CUZK_HD_CALL Fp fp_sqr_call(const Fp a)
{
    return fp_sqr(a);
}

CUZK_HD FpCalled operator+(const FpCalled &a, const FpCalled &b) { return FpCalled{a.value + b.value}; }
CUZK_HD FpCalled operator-(const FpCalled &a, const FpCalled &b) { return FpCalled{a.value - b.value}; }
CUZK_HD FpCalled operator*(const FpCalled &a, const FpCalled &b) { return FpCalled{fp_mul_call(a.value, b.value)}; }
CUZK_HD FpCalled square(const FpCalled &a) { return FpCalled{fp_sqr_call(a.value)}; }
CUZK_HD FpCalled twice(const FpCalled &a) { return FpCalled{twice(a.value)}; }
CUZK_HD FpCalled canonical(const FpCalled &a) { return FpCalled{canonical(a.value)}; }
CUZK_HD bool is_zero(const FpCalled &a) { return is_zero(a.value); }
CUZK_HD bool is_marker_zero(const FpCalled &a) { return is_marker_zero(a.value); }
CUZK_HD FpCalled mul_sub(const FpCalled &a, const FpCalled &b, const FpCalled &c, const FpCalled &d)
{
    return FpCalled{fp_dot_call(a.value, b.value, negate(c.value), d.value)};
}

} // namespace cuzk
