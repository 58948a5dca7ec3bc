// Sums of counts before each, over arrays of any length: per-tile sums, the sums of those, and both together.
// Also where in such an array an item lies.
#pragma once

#include "limbs.cuh"

namespace cuzk {

constexpr uint32_t SORT_THREADS = 256;
constexpr uint32_t ALL_LANES = 0xffffffff;
constexpr uint32_t SCAN_PER_THREAD = 8;
constexpr uint32_t SCAN_TILE = SORT_THREADS * SCAN_PER_THREAD;

// The sum over the block's threads with lower numbers; `total` is over all.
static __device__ uint32_t block_exclusive_sum(uint32_t value, uint32_t &total)
{
    __shared__ uint32_t warp_sums[SORT_THREADS / 32];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t inclusive = value;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, inclusive, distance);
        if (lane >= distance)
            inclusive += other;
    }
    if (lane == 31)
        warp_sums[warp] = inclusive;
    __syncthreads();
    uint32_t before = 0;
    total = 0;
    for (uint32_t w = 0; w < SORT_THREADS / 32; w++) {
        before += w < warp ? warp_sums[w] : 0;
        total += warp_sums[w];
    }
    __syncthreads();
    return before + inclusive - value;
}

// counts [length] -> tile_sums [ceil(length / SCAN_TILE)]: one block per tile.
template <class Count>
static __device__ __forceinline__ void scan_tiles(Count count, uint32_t *__restrict__ tile_sums)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < SCAN_PER_THREAD; k++)
        sum += count(blockIdx.x * SCAN_TILE + k * SORT_THREADS + threadIdx.x);
    uint32_t total;
    block_exclusive_sum(sum, total);
    if (threadIdx.x == 0)
        tile_sums[blockIdx.x] = total;
}

// The sum of all counts before each, sums [length]; the counts may be the same array. One block per tile.
template <class Count>
static __device__ __forceinline__ void scan_apply(Count count, const uint32_t *__restrict__ tile_sums, uint32_t length,
                                                  uint32_t *sums)
{
    uint32_t first = blockIdx.x * SCAN_TILE + threadIdx.x * SCAN_PER_THREAD;
    uint32_t mine[SCAN_PER_THREAD], sum = 0;
    for (uint32_t k = 0; k < SCAN_PER_THREAD; k++) {
        mine[k] = count(first + k);
        sum += mine[k];
    }
    uint32_t total;
    uint32_t before = tile_sums[blockIdx.x] + block_exclusive_sum(sum, total);
    for (uint32_t k = 0; k < SCAN_PER_THREAD; k++) {
        if (first + k < length)
            sums[first + k] = before;
        before += mine[k];
    }
}

// The counts themselves, 0 beyond their end.
struct Counts {
    const uint32_t *counts;
    uint32_t length;

    __device__ __forceinline__ uint32_t operator()(uint32_t i) const { return i < length ? counts[i] : 0; }
};

// Half of each run's length, rounded up. offsets [num_runs + 1].
struct HalvedRuns {
    const uint32_t *offsets;
    uint32_t num_runs;

    __device__ __forceinline__ uint32_t operator()(uint32_t i) const
    {
        return i < num_runs ? (offsets[i + 1] - offsets[i] + 1) / 2 : 0;
    }
};

// The run that item `i` of a list belongs to: the last whose first item is not after it. starts [num_runs + 1] with
// starts[0] <= i < starts[num_runs]; for other i some run.
static __device__ __forceinline__ uint32_t run_of(const uint32_t *__restrict__ starts, uint32_t num_runs, uint32_t i)
{
    uint32_t run = 0;
    for (uint32_t step = 1u << 31; step > 0; step /= 2)
        if (step < num_runs - run && starts[run + step] <= i)
            run += step;
    return run;
}

} // namespace cuzk
