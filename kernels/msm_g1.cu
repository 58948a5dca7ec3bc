// Multi-exponentiation in G1: sorted entries to bucket sums to one point per window. What each kernel does, and its
// arguments, stand at its template in math/msm_affine.cuh, math/msm_accumulate.cuh and math/msm_reduce.cuh.
#include "math/fp_called.cuh"
#include "math/msm_accumulate.cuh"
#include "math/msm_affine.cuh"
#include "math/msm_reduce.cuh"

using namespace cuzk;

// Sums as all kernels but the hot one see them.
using Sum = Xyzz<FpCalled>;

extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 16)
    msm_g1_pairs(const G1Affine *__restrict__ points, const uint32_t *__restrict__ entries,
                 const uint32_t *__restrict__ offsets, const uint32_t *__restrict__ halved, uint32_t num_buckets,
                 uint32_t last, G1Affine *__restrict__ sums)
{
    __shared__ PairBlock block;
    add_pairs<G1Lanes>(points, entries, offsets, halved, num_buckets, last, sums, block);
}

extern "C" __global__ void __launch_bounds__(ACCUMULATE_THREADS, 3)
    msm_g1_accumulate(const G1Affine *__restrict__ points, const uint32_t *__restrict__ entries,
                      const uint32_t *__restrict__ offsets, uint32_t num_buckets, uint32_t fresh, Sum *buckets,
                      uint32_t *__restrict__ keys, Sum *slots)
{
    accumulate<G1Accumulator>(points, entries, offsets, num_buckets, fresh,
                              reinterpret_cast<G1Xyzz *>(buckets), keys, reinterpret_cast<G1Xyzz *>(slots));
}

extern "C" __global__ void __launch_bounds__(MERGE_THREADS)
    msm_g1_merge(const uint32_t *__restrict__ keys, const Sum *__restrict__ slots, uint32_t num_slots,
                 uint32_t *__restrict__ next_keys, Sum *__restrict__ next_slots, Sum *__restrict__ buckets)
{
    merge_slots<FpCalled>(keys, slots, num_slots, next_keys, next_slots, buckets);
}

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
    msm_g1_group(const Sum *__restrict__ buckets, uint32_t buckets_log2, uint32_t num_groups, Sum *__restrict__ parts)
{
    group_buckets<FpCalled>(buckets, buckets_log2, num_groups, parts);
}

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
    msm_g1_join(const Sum *__restrict__ parts, uint32_t level, uint32_t num_nodes, Sum *__restrict__ joined)
{
    join_nodes<FpCalled>(parts, level, num_nodes, joined);
}

extern "C" __global__ void __launch_bounds__(MAX_PARTS)
    msm_g1_finish(const Sum *__restrict__ parts, uint32_t num_levels, uint32_t num_windows, uint32_t num_wide,
                  uint32_t group_log2, Jacobian<FpCalled> *__restrict__ window_sums)
{
    finish_window<FpCalled>(parts, num_levels, num_windows, num_wide, group_log2, window_sums);
}
