// Multi-exponentiation, first part: the terms of a sum sorted by window and bucket, for both groups.
//
// A term is one non-zero digit of one scalar. Buckets are numbered through all windows (digits.cuh). Counting sort:
//
//   msm_digits       scalars -> digits [num_windows][num_points]
//   msm_rank         digits  -> counts [num_buckets], ranks [num_windows][num_points]: which of its bucket's terms
//   msm_scan_*       counts  -> offsets, in place: where each bucket's terms begin, and their total at the end
//   msm_scatter      entries[offsets[bucket] + rank] = point | sign
//
// The digits are stored so that ranking and scattering go window by window, and the counters and the entries that
// are written at a time stay in the second-level cache. Bytes moved: 32 per scalar, and per scalar and window 8
// written and 8 read in order, with one atomic operation, one random 4-byte read and one such write for each term.
//
// All kernels: blocks of 256 threads, at most 40 registers, no shared memory beyond 4 KiB.
// The CPU function it all must equal, with what follows: cuzk::groth16::msm::msm_g1 and msm_g2.
#include "math/digits.cuh"

using namespace cuzk;

constexpr uint32_t SORT_THREADS = 256;
constexpr uint32_t ALL_LANES = 0xffffffff;

// values [num_values] in Montgomery form, index [num_points] or null, digits [num_windows][num_points]. One thread per
// point, whose scalar is values[index[i]], or values[i] without an index. An index beyond the values gives no digits.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_digits(const Fr *__restrict__ values, uint64_t num_values, const uint32_t *__restrict__ index,
               uint32_t num_points, uint32_t num_windows, uint32_t num_wide, uint32_t narrow_bits,
               uint32_t *__restrict__ digits)
{
    uint32_t i = blockIdx.x * SORT_THREADS + threadIdx.x;
    if (i >= num_points)
        return;
    uint32_t at = index ? index[i] : i;
    DigitReader reader(at < num_values ? values[at] : fr_zero());
    uint32_t first_bucket = 0;
    for (uint32_t w = 0; w < num_windows; w++) {
        uint32_t bits = narrow_bits + (w < num_wide ? 1 : 0);
        digits[(uint64_t)w * num_points + i] = reader.next(bits, first_bucket);
        first_bucket += 1u << (bits - 1);
    }
}

// digits [num_digits], counts [num_buckets] zero at first, ranks [num_digits] written for non-zero digits. One thread
// per digit. Lanes of a warp with the same bucket share one atomic operation, so that a million equal scalars
// are not a million operations on one address.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_rank(const uint32_t *__restrict__ digits, uint32_t num_digits, uint32_t *__restrict__ counts,
             uint32_t *__restrict__ ranks)
{
    uint64_t i = (uint64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    uint32_t digit = i < num_digits ? digits[i] : NO_DIGIT;
    uint32_t bucket = digit & ~DIGIT_NEGATIVE;
    uint32_t lane = threadIdx.x % 32;
    uint32_t peers = __match_any_sync(ALL_LANES, bucket);
    uint32_t leader = __ffs(peers) - 1;
    uint32_t first = 0;
    if (lane == leader && digit != NO_DIGIT)
        first = atomicAdd(&counts[bucket], (uint32_t)__popc(peers));
    first = __shfl_sync(ALL_LANES, first, leader);
    if (digit != NO_DIGIT)
        ranks[i] = first + __popc(peers & ((1u << lane) - 1));
}

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

extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_scan_tiles(const uint32_t *__restrict__ counts, uint32_t length, uint32_t *__restrict__ tile_sums)
{
    scan_tiles(Counts{counts, length}, tile_sums);
}

// tile_sums [num_tiles] -> the sums of all tiles before, in place. One block.
extern "C" __global__ void __launch_bounds__(SORT_THREADS) msm_scan_sums(uint32_t *tile_sums, uint32_t num_tiles)
{
    uint32_t before = 0;
    for (uint32_t base = 0; base < num_tiles; base += SORT_THREADS) {
        uint32_t i = base + threadIdx.x, total;
        uint32_t exclusive = block_exclusive_sum(i < num_tiles ? tile_sums[i] : 0, total);
        if (i < num_tiles)
            tile_sums[i] = before + exclusive;
        before += total;
    }
}

// counts [length] -> the sums of all counts before, in place.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_scan_apply(uint32_t *counts, uint32_t length, const uint32_t *__restrict__ tile_sums)
{
    scan_apply(Counts{counts, length}, tile_sums, length, counts);
}

// The same for the runs that math/msm_affine.cuh makes: offsets [length] -> halved [length], in two steps around
// `msm_scan_sums`. Both end with the number of all.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_halve_tiles(const uint32_t *__restrict__ offsets, uint32_t length, uint32_t *__restrict__ tile_sums)
{
    scan_tiles(HalvedRuns{offsets, length - 1}, tile_sums);
}

extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_halve_apply(const uint32_t *__restrict__ offsets, uint32_t length, const uint32_t *__restrict__ tile_sums,
                    uint32_t *__restrict__ halved)
{
    scan_apply(HalvedRuns{offsets, length - 1}, tile_sums, length, halved);
}

// digits, ranks [num_windows][num_points], offsets [num_buckets] -> entries: point | sign. `blocks_per_window` blocks
// for each window, one thread per digit.
extern "C" __global__ void __launch_bounds__(SORT_THREADS)
    msm_scatter(const uint32_t *__restrict__ digits, const uint32_t *__restrict__ ranks, uint32_t num_points,
                uint32_t blocks_per_window, const uint32_t *__restrict__ offsets, uint32_t *__restrict__ entries)
{
    uint32_t window = blockIdx.x / blocks_per_window;
    uint32_t point = (blockIdx.x - window * blocks_per_window) * SORT_THREADS + threadIdx.x;
    if (point >= num_points)
        return;
    uint64_t i = (uint64_t)window * num_points + point;
    uint32_t digit = digits[i];
    if (digit != NO_DIGIT)
        entries[offsets[digit & ~DIGIT_NEGATIVE] + ranks[i]] = point | (digit & DIGIT_NEGATIVE);
}
