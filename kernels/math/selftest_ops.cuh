// The operations that are compared with the CPU's field and curve: one struct each, with the layout of a test
// case and of its result. `host/harness.cpp` runs them compiled for the host and `selftest.cu` on a device, over
// the same cases; tests/common/kernel_cases.rs makes those and knows the right answers.
//
// Results are left as they come, in [0, 2p) for Fp, so that the ranges are tested too.
#pragma once

#include "ec.cuh"
#include "fr.cuh"

namespace cuzk {

template <class F>
struct Two {
    F a, b;
};

struct op_fp_add {
    using In = Two<Fp>;
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_add(in.a, in.b); }
};
struct op_fp_sub {
    using In = Two<Fp>;
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_sub(in.a, in.b); }
};
struct op_fp_mul {
    using In = Two<Fp>;
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_mul(in.a, in.b); }
};
struct op_fp_sqr {
    using In = Fp;
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_sqr(in); }
};
struct op_fp_dot {
    struct In {
        Fp a, b, c, d;
    };
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_dot(in.a, in.b, in.c, in.d); }
};
struct op_fp_canonical {
    using In = Fp;
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_canonical(in); }
};
struct op_fp_inverse {
    using In = Fp;
    using Out = Fp;
    static CUZK_HD Out run(const In &in) { return fp_inverse(in); }
};

struct op_fr_add {
    using In = Two<Fr>;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_add(in.a, in.b); }
};
struct op_fr_sub {
    using In = Two<Fr>;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_sub(in.a, in.b); }
};
struct op_fr_mul {
    using In = Two<Fr>;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_mul(in.a, in.b); }
};
// Of the functions for [0, 2r) the result less r, if it is not less already: in [0, r) if and only if it was in range.
struct op_fr_add_2r {
    using In = Two<Fr>;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_subtract_once(fr_add_2r(in.a, in.b)); }
};
struct op_fr_sub_2r {
    using In = Two<Fr>;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_subtract_once(fr_sub_2r(in.a, in.b)); }
};
struct op_fr_mul_2r {
    using In = Two<Fr>;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_subtract_once(fr_mul_2r(in.a, in.b)); }
};
struct op_fr_reduce {
    using In = Fr;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_reduce(in); }
};
struct op_fr_inverse {
    using In = Fr;
    using Out = Fr;
    static CUZK_HD Out run(const In &in) { return fr_inverse(in); }
};

struct op_fp2_mul {
    using In = Two<Fp2>;
    using Out = Fp2;
    static CUZK_HD Out run(const In &in) { return in.a * in.b; }
};
struct op_fp2_sqr {
    using In = Fp2;
    using Out = Fp2;
    static CUZK_HD Out run(const In &in) { return square(in); }
};
struct op_fp2_inverse {
    using In = Fp2;
    using Out = Fp2;
    static CUZK_HD Out run(const In &in) { return inverse(in); }
};

// XYZZ + affine, XYZZ + XYZZ, 2 XYZZ, XYZZ to affine, affine + affine with the pair's own inversion.
template <class F>
struct op_add_affine {
    struct In {
        Xyzz<F> p;
        Affine<F> q;
    };
    using Out = Xyzz<F>;
    static CUZK_HD Out run(const In &in)
    {
        Xyzz<F> p = in.p;
        xyzz_add_affine(p, in.q);
        return p;
    }
};
template <class F>
struct op_add {
    using In = Two<Xyzz<F>>;
    using Out = Xyzz<F>;
    static CUZK_HD Out run(const In &in)
    {
        Xyzz<F> p = in.a;
        xyzz_add(p, in.b);
        return p;
    }
};
template <class F>
struct op_double {
    using In = Xyzz<F>;
    using Out = Xyzz<F>;
    static CUZK_HD Out run(const In &in) { return xyzz_double(in); }
};
template <class F>
struct op_to_affine {
    using In = Xyzz<F>;
    using Out = Affine<F>;
    static CUZK_HD Out run(const In &in) { return xyzz_to_affine(in); }
};
template <class F>
struct op_affine_pair {
    using In = Two<Affine<F>>;
    using Out = Affine<F>;
    static CUZK_HD Out run(const In &in)
    {
        F denominator;
        Affine<F> a = in.a;
        AffinePair pair = affine_pair_denominator(denominator, a, in.b);
        return affine_pair_sum(pair, inverse(denominator), a, in.b);
    }
};

using op_g1_add_affine = op_add_affine<Fp>;
using op_g1_add = op_add<Fp>;
using op_g1_double = op_double<Fp>;
using op_g1_to_affine = op_to_affine<Fp>;
using op_g1_affine_pair = op_affine_pair<Fp>;
using op_g2_add_affine = op_add_affine<Fp2>;
using op_g2_add = op_add<Fp2>;
using op_g2_double = op_double<Fp2>;
using op_g2_to_affine = op_to_affine<Fp2>;
using op_g2_affine_pair = op_affine_pair<Fp2>;

} // namespace cuzk

// Every operation by name; the Rust tests and launcher use the same names.
#define CUZK_SELFTEST_OPS(APPLY) \
    APPLY(fp_add) APPLY(fp_sub) APPLY(fp_mul) APPLY(fp_sqr) APPLY(fp_dot) APPLY(fp_canonical) APPLY(fp_inverse) \
    APPLY(fr_add) APPLY(fr_sub) APPLY(fr_mul) APPLY(fr_reduce) APPLY(fr_inverse) \
    APPLY(fr_add_2r) APPLY(fr_sub_2r) APPLY(fr_mul_2r) \
    APPLY(fp2_mul) APPLY(fp2_sqr) APPLY(fp2_inverse) \
    APPLY(g1_add_affine) APPLY(g1_add) APPLY(g1_double) APPLY(g1_to_affine) APPLY(g1_affine_pair) \
    APPLY(g2_add_affine) APPLY(g2_add) APPLY(g2_double) APPLY(g2_to_affine) APPLY(g2_affine_pair)
