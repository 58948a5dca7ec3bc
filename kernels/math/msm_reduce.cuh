// Multi-exponentiation, last part: bucket sums to one point per window, sum over j of (j + 1) B_j.
//
// First, threads take groups of 2^g neighbouring buckets to W = sum of (j + 1) B_j and S = sum of B_j, with j counted from
// the group's first bucket, by running sums (Pippenger 1976). Then, with t counted over a window's groups,
//
//   sum of W_t + 2^g (sum of t S_t),   sum of t S_t = sum over bits b of 2^b (sum of the S_t whose t has bit b)
//
// where the sum for each bit and those of W and S come from one tree: a node holds them for the groups below it, and joins
// two nodes part by part; the sum for the new bit is S of the right one. Depth counts here: what is left of a sum is small
// but for its chain of additions. Nodes never reach across windows, whose sizes are powers of two.
#pragma once

#include "ec.cuh"

namespace cuzk {

constexpr uint32_t REDUCE_THREADS = 64;

// The parts of a node: W, S, and from PART_BITS on the sum for each bit.
constexpr uint32_t PART_WEIGHTED = 0;
constexpr uint32_t PART_SUM = 1;
constexpr uint32_t PART_BITS = 2;
// A window has 2^23 buckets at most.
constexpr uint32_t MAX_PARTS = 32;

template <class F>
CUZK_HD void xyzz_double_times(Xyzz<F> &p, uint32_t times)
{
    for (uint32_t k = 0; k < times; k++)
        p = xyzz_double(p);
}

// buckets [num_groups << buckets_log2] -> parts [2][num_groups]: one thread per group, 2 additions per bucket.
template <class F>
static __device__ __forceinline__ void group_buckets(const Xyzz<F> *__restrict__ buckets, uint32_t buckets_log2,
                                                     uint32_t num_groups, Xyzz<F> *__restrict__ parts)
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
    parts[PART_SUM * num_groups + t] = sum;
    parts[PART_WEIGHTED * num_groups + t] = weighted;
}

// One step of the tree: parts [2 + level][2 * num_nodes] -> joined [3 + level][num_nodes], of `level` levels before. One
// thread per sum that is made, neighbours of one kind.
template <class F>
static __device__ __forceinline__ void join_nodes(const Xyzz<F> *__restrict__ parts, uint32_t level,
                                                  uint32_t num_nodes, Xyzz<F> *__restrict__ joined)
{
    uint32_t t = blockIdx.x * REDUCE_THREADS + threadIdx.x;
    uint32_t part = t / num_nodes, node = t - part * num_nodes;
    if (part > PART_BITS + level)
        return;
    // The last part is new: the sums of the right halves.
    bool is_new = part == PART_BITS + level;
    const Xyzz<F> *pair = parts + (uint64_t)(is_new ? PART_SUM : part) * 2 * num_nodes + 2 * node;
    Xyzz<F> sum = pair[1];
    if (!is_new)
        xyzz_add_call(sum, pair[0]);
    joined[(uint64_t)part * num_nodes + node] = sum;
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

// parts [2 + num_levels][num_windows + num_wide] -> window_sums [num_windows]. A node is half a wide window or a whole
// narrow one, of groups of 2^group_log2 buckets. One block per window.
template <class F>
static __device__ __forceinline__ void finish_window(const Xyzz<F> *__restrict__ parts, uint32_t num_levels,
                                                     uint32_t num_windows, uint32_t num_wide, uint32_t group_log2,
                                                     Jacobian<F> *__restrict__ window_sums)
{
    __shared__ Xyzz<F> sums[MAX_PARTS];
    uint32_t part = threadIdx.x, window = blockIdx.x;
    bool is_wide = window < num_wide;
    uint32_t num_nodes = num_windows + num_wide, node = window + min(window, num_wide);
    uint32_t num_parts = PART_BITS + num_levels + (is_wide ? 1 : 0);
    if (part < num_parts && part != PART_SUM) {
        bool is_new = part == PART_BITS + num_levels;
        const Xyzz<F> *first = parts + (uint64_t)(is_new ? PART_SUM : part) * num_nodes + node;
        Xyzz<F> sum = first[is_new ? 1 : 0];
        if (is_wide && !is_new)
            xyzz_add_call(sum, first[1]);
        if (part >= PART_BITS)
            xyzz_double_times(sum, group_log2 + part - PART_BITS);
        sums[part] = sum;
    } else if (part < MAX_PARTS) {
        sums[part] = xyzz_identity<F>();
    }
    for (uint32_t width = MAX_PARTS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (part < width)
            xyzz_add_call(sums[part], sums[part + width]);
    }
    if (part == 0)
        window_sums[window] = xyzz_to_jacobian(sums[0]);
}

} // namespace cuzk
