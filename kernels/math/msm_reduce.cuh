// Multi-exponentiation, last part: bucket sums to one point per window, sum over j of (j + 1) B_j.
//
// Neighbouring buckets are put together step by step. A group of m buckets is the pair (S, W) = (sum of B_j, sum of
// (j + 1) B_j) with j counted from the group's first bucket; g such groups together are
//
//   S' = sum of S_t,   W' = sum of W_t + m (sum of t S_t)
//
// where the inner sums come from running sums (Pippenger 1976; here over groups too, so that all of it is parallel)
// and m is a power of two. Groups never reach across windows, whose sizes are powers of two.
#pragma once

#include "ec.cuh"

namespace cuzk {

constexpr uint32_t REDUCE_THREADS = 64;

template <class F>
struct BucketGroup {
    Xyzz<F> sum, weighted;
};

template <class F>
CUZK_HD void xyzz_double_times(Xyzz<F> &p, uint32_t times)
{
    for (uint32_t k = 0; k < times; k++)
        p = xyzz_double(p);
}

// buckets [num_groups << buckets_log2] -> groups [num_groups]: one thread per group, 2 additions per bucket.
template <class F>
static __device__ __forceinline__ void group_buckets(const Xyzz<F> *__restrict__ buckets, uint32_t buckets_log2,
                                                     uint32_t num_groups, BucketGroup<F> *__restrict__ groups)
{
    uint32_t t = blockIdx.x * REDUCE_THREADS + threadIdx.x;
    if (t >= num_groups)
        return;
    const Xyzz<F> *first = buckets + ((uint64_t)t << buckets_log2);
    Xyzz<F> sum = xyzz_identity<F>(), weighted = sum;
    for (uint32_t j = 1u << buckets_log2; j-- > 0;) {
        xyzz_add_call(sum, first[j]);
        xyzz_add_call(weighted, sum);
    }
    groups[t].sum = sum;
    groups[t].weighted = weighted;
}

// groups [num_groups << join_log2] of 2^buckets_log2 buckets each -> joined [num_groups]: one thread per joined group.
template <class F>
static __device__ __forceinline__ void join_groups(const BucketGroup<F> *__restrict__ groups, uint32_t join_log2,
                                                   uint32_t buckets_log2, uint32_t num_groups,
                                                   BucketGroup<F> *__restrict__ joined)
{
    uint32_t t = blockIdx.x * REDUCE_THREADS + threadIdx.x;
    if (t >= num_groups)
        return;
    const BucketGroup<F> *first = groups + ((uint64_t)t << join_log2);
    Xyzz<F> sum = xyzz_identity<F>(), offset = sum, weighted = sum;
    for (uint32_t j = 1u << join_log2; j-- > 0;) {
        xyzz_add_call(sum, first[j].sum);
        xyzz_add_call(weighted, first[j].weighted);
        if (j > 0)
            xyzz_add_call(offset, sum);
    }
    xyzz_double_times(offset, buckets_log2);
    xyzz_add_call(weighted, offset);
    joined[t].sum = sum;
    joined[t].weighted = weighted;
}

// A point in Jacobian coordinates, x = X/Z^2, y = Y/Z^3, the identity with Z = 0: blst's, canonical.
template <class F>
struct Jacobian {
    F x, y, z;
};

// With Z = ZZZ: Z^2 = ZZ^3, so X = X ZZ^2 and Y = Y ZZZ^2.
template <class F>
CUZK_HD Jacobian<F> xyzz_to_jacobian(const Xyzz<F> &p)
{
    return Jacobian<F>{canonical(p.x * square(p.zz)), canonical(p.y * square(p.zzz)), canonical(p.zzz)};
}

// groups [num_windows + num_wide], each half a wide window or a whole narrow one of 2^buckets_log2 buckets, wide windows
// first -> window_sums [num_windows]. One thread per window.
template <class F>
static __device__ __forceinline__ void finish_windows(const BucketGroup<F> *__restrict__ groups,
                                                      uint32_t num_windows, uint32_t num_wide,
                                                      uint32_t buckets_log2, Jacobian<F> *__restrict__ window_sums)
{
    uint32_t w = blockIdx.x * REDUCE_THREADS + threadIdx.x;
    if (w >= num_windows)
        return;
    const BucketGroup<F> *first = groups + w + min(w, num_wide);
    Xyzz<F> sum = first[0].weighted;
    if (w < num_wide) {
        Xyzz<F> offset = first[1].sum;
        xyzz_double_times(offset, buckets_log2);
        xyzz_add_call(sum, first[1].weighted);
        xyzz_add_call(sum, offset);
    }
    window_sums[w] = xyzz_to_jacobian(sum);
}

} // namespace cuzk
