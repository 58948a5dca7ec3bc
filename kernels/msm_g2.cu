// Multi-exponentiation in G2: sorted entries to bucket sums to one point per window. What each kernel does, and its
// arguments, stand at its template in math/msm_affine.cuh, math/msm_accumulate.cuh and math/msm_reduce.cuh.
#include "math/msm_accumulate.cuh"
#include "math/msm_affine.cuh"
#include "math/msm_reduce.cuh"

using namespace cuzk;

extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 12)
    msm_g2_pairs(const G2Affine *__restrict__ points, const uint32_t *__restrict__ entries,
                 const uint32_t *__restrict__ offsets, const uint32_t *__restrict__ halved, uint32_t num_buckets,
                 uint32_t last, G2Affine *__restrict__ sums)
{
    __shared__ PairBlock block;
    add_pairs<G2Lanes>(points, entries, offsets, halved, num_buckets, last, sums, block);
}

extern "C" __global__ void __launch_bounds__(ACCUMULATE_THREADS, 3)
    msm_g2_accumulate(const G2Affine *__restrict__ points, const uint32_t *__restrict__ entries,
                      const uint32_t *__restrict__ offsets, uint32_t num_buckets, uint32_t fresh, G2Xyzz *buckets,
                      uint32_t *__restrict__ keys, G2Xyzz *slots)
{
    accumulate<G2Accumulator>(points, entries, offsets, num_buckets, fresh, buckets, keys, slots);
}

extern "C" __global__ void __launch_bounds__(MERGE_THREADS)
    msm_g2_merge(const uint32_t *__restrict__ keys, const G2Xyzz *__restrict__ slots, uint32_t num_slots,
                 uint32_t *__restrict__ next_keys, G2Xyzz *__restrict__ next_slots, G2Xyzz *__restrict__ buckets)
{
    merge_slots<Fp2>(keys, slots, num_slots, next_keys, next_slots, buckets);
}

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
    msm_g2_group(const G2Xyzz *__restrict__ buckets, uint32_t buckets_log2, uint32_t num_groups, G2Xyzz *__restrict__ parts)
{
    group_buckets<Fp2>(buckets, buckets_log2, num_groups, parts);
}

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS)
    msm_g2_join(const G2Xyzz *__restrict__ parts, uint32_t level, uint32_t num_nodes, G2Xyzz *__restrict__ joined)
{
    join_nodes<Fp2>(parts, level, num_nodes, joined);
}

extern "C" __global__ void __launch_bounds__(MAX_PARTS)
    msm_g2_finish(const G2Xyzz *__restrict__ parts, uint32_t num_levels, uint32_t num_windows, uint32_t num_wide,
                  uint32_t group_log2, Jacobian<Fp2> *__restrict__ window_sums)
{
    finish_window<Fp2>(parts, num_levels, num_windows, num_wide, group_log2, window_sums);
}
