// Multi-exponentiation, first part: the terms of a sum sorted by window and bucket, for both groups.
//
// A term is one non-zero digit of one scalar. Buckets are numbered through all windows (digits.cuh). Counting sort in two
// steps, so that all that is written at a time stays in the second-level cache: 2^11 neighbouring buckets are a partition.
//
//   msm_digits           scalars -> digits [num_windows][num_points]
//   msm_partition_sizes  digits  -> how many terms each partition has; their sums are where partitions begin
//   msm_partition        digits  -> records, by partition: point | sign, and which of the partition's buckets
//   msm_bucket_sizes     records -> how many terms each bucket has; their sums are where buckets begin
//   msm_scatter          records -> entries, by bucket: point | sign
//
// Blocks count in shared memory and reserve room for all of a block's terms of one kind by one atomic operation. Whatever
// the scalars are, blocks have equal work: it is shared out by terms. The order within a bucket is not determined.
//
// Where kinds begin: an array of one more than there are, whose first element is 0. Counts are taken from the second
// element on and summed in place to the beginnings, which then serve as the places to reserve from: each grows to its
// kind's end, which is where the next begins, and the whole array is what it should be.
//
// Bytes moved: 32 per scalar; per term 4 written as digit, 8 read, 8 written as record, 16 read, 4 written.
// The CPU function it all must equal, with what follows: cuzk::groth16::msm::msm_g1 and msm_g2.
#include "math/digits.cuh"
#include "math/msm_scan.cuh"

using namespace cuzk;

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

// Terms that a block sorts at a time: 16 for each of its 1024 threads.
constexpr uint32_t TILE_THREADS = 1024;
constexpr uint32_t TILE_PER_THREAD = 16;
constexpr uint32_t TILE = TILE_THREADS * TILE_PER_THREAD;

constexpr uint32_t PARTITION_LOG2 = 11;
constexpr uint32_t PARTITION_BUCKETS = 1u << PARTITION_LOG2;
// The widest windows have 2^23 buckets; narrow ones may lie across a partition's border.
constexpr uint32_t MAX_WINDOW_PARTITIONS = (1u << (23 - PARTITION_LOG2)) + 1;

static __device__ __forceinline__ void clear_counts(uint32_t *counts, uint32_t num_counts)
{
    for (uint32_t i = threadIdx.x; i < num_counts; i += TILE_THREADS)
        counts[i] = 0;
    __syncthreads();
}

// counts [num_counts] of this block -> totals.
static __device__ __forceinline__ void add_counts(const uint32_t *counts, uint32_t num_counts, uint32_t *totals)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < num_counts; i += TILE_THREADS)
        if (counts[i] > 0)
            atomicAdd(&totals[i], counts[i]);
}

// counts [num_counts] of this block -> where it may write its terms of each kind.
static __device__ __forceinline__ void reserve(uint32_t *counts, uint32_t num_counts, uint32_t *beginnings)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < num_counts; i += TILE_THREADS)
        if (counts[i] > 0)
            counts[i] = atomicAdd(&beginnings[i], counts[i]);
    __syncthreads();
}

// A block's digits: some of one window's.
struct DigitTile {
    uint32_t first_point, num_points, first_partition, num_partitions;
    const uint32_t *digits;

    __device__ __forceinline__ DigitTile(const uint32_t *all, uint32_t points, const Windows &windows)
    {
        uint32_t tiles_per_window = (points + TILE - 1) / TILE, window = blockIdx.x / tiles_per_window;
        first_point = (blockIdx.x - window * tiles_per_window) * TILE;
        num_points = min(points - first_point, TILE);
        digits = all + (uint64_t)window * points + first_point;
        uint32_t first_bucket = (window + min(window, windows.num_wide)) << (windows.narrow_bits - 1);
        uint32_t num_buckets = 1u << (windows.narrow_bits - (window < windows.num_wide ? 0 : 1));
        first_partition = first_bucket >> PARTITION_LOG2;
        num_partitions = ((first_bucket + num_buckets - 1) >> PARTITION_LOG2) - first_partition + 1;
    }

    // The digit of a thread's k-th point, or NO_DIGIT.
    __device__ __forceinline__ uint32_t digit(uint32_t k) const
    {
        uint32_t i = k * TILE_THREADS + threadIdx.x;
        return i < num_points ? digits[i] : NO_DIGIT;
    }

    __device__ __forceinline__ uint32_t partition(uint32_t digit) const
    {
        return ((digit & ~DIGIT_NEGATIVE) >> PARTITION_LOG2) - first_partition;
    }
};

// digits [num_windows][num_points] -> sizes [partitions] added to. A block for each TILE of each window's digits.
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    msm_partition_sizes(const uint32_t *__restrict__ digits, uint32_t num_points, uint32_t num_windows,
                        uint32_t num_wide, uint32_t narrow_bits, uint32_t *__restrict__ sizes)
{
    __shared__ uint32_t counts[MAX_WINDOW_PARTITIONS];
    DigitTile tile(digits, num_points, Windows{num_windows, num_wide, narrow_bits});
    clear_counts(counts, tile.num_partitions);
    CUZK_UNROLL
    for (uint32_t k = 0; k < TILE_PER_THREAD; k++) {
        uint32_t digit = tile.digit(k);
        if (digit != NO_DIGIT)
            atomicAdd(&counts[tile.partition(digit)], 1u);
    }
    add_counts(counts, tile.num_partitions, sizes + tile.first_partition);
}

// digits as above, beginnings [partitions] -> records: point | sign in x, the bucket within its partition in y. The
// same blocks.
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    msm_partition(const uint32_t *__restrict__ digits, uint32_t num_points, uint32_t num_windows, uint32_t num_wide,
                  uint32_t narrow_bits, uint32_t *__restrict__ beginnings, uint2 *__restrict__ records)
{
    __shared__ uint32_t counts[MAX_WINDOW_PARTITIONS];
    DigitTile tile(digits, num_points, Windows{num_windows, num_wide, narrow_bits});
    clear_counts(counts, tile.num_partitions);
    uint32_t taken[TILE_PER_THREAD], ranks[TILE_PER_THREAD];
    CUZK_UNROLL
    for (uint32_t k = 0; k < TILE_PER_THREAD; k++) {
        taken[k] = tile.digit(k);
        if (taken[k] != NO_DIGIT)
            ranks[k] = atomicAdd(&counts[tile.partition(taken[k])], 1u);
    }
    reserve(counts, tile.num_partitions, beginnings + tile.first_partition);
    CUZK_UNROLL
    for (uint32_t k = 0; k < TILE_PER_THREAD; k++) {
        if (taken[k] == NO_DIGIT)
            continue;
        uint32_t point = tile.first_point + k * TILE_THREADS + threadIdx.x;
        records[counts[tile.partition(taken[k])] + ranks[k]] =
            uint2{point | (taken[k] & DIGIT_NEGATIVE), taken[k] & (PARTITION_BUCKETS - 1)};
    }
}

// A block's records, partition after partition.
struct RecordTile {
    const uint32_t *starts;
    uint32_t begin, end, tile_end, partition;

    // starts [num_partitions + 1].
    __device__ __forceinline__ RecordTile(const uint32_t *starts, uint32_t num_partitions) : starts(starts)
    {
        uint32_t total = starts[num_partitions];
        begin = end = min(blockIdx.x * TILE, total);
        tile_end = min(begin + TILE, total);
        partition = run_of(starts, num_partitions, begin);
    }

    // To the records [begin, end) of the next partition that has any in this tile.
    __device__ __forceinline__ bool next()
    {
        begin = end;
        if (begin == tile_end)
            return false;
        while (starts[partition + 1] <= begin)
            partition++;
        end = min(starts[partition + 1], tile_end);
        return true;
    }

    __device__ __forceinline__ uint32_t index(uint32_t k) const { return begin + k * TILE_THREADS + threadIdx.x; }
};

// records, starts [num_partitions + 1] -> sizes [buckets] added to. A block for each TILE of records at most.
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    msm_bucket_sizes(const uint2 *__restrict__ records, const uint32_t *__restrict__ starts, uint32_t num_partitions,
                     uint32_t *__restrict__ sizes)
{
    __shared__ uint32_t counts[PARTITION_BUCKETS];
    RecordTile tile(starts, num_partitions);
    while (tile.next()) {
        clear_counts(counts, PARTITION_BUCKETS);
        CUZK_UNROLL
        for (uint32_t k = 0; k < TILE_PER_THREAD; k++)
            if (tile.index(k) < tile.end)
                atomicAdd(&counts[records[tile.index(k)].y], 1u);
        add_counts(counts, PARTITION_BUCKETS, sizes + (tile.partition << PARTITION_LOG2));
        __syncthreads();
    }
}

// records, starts as above, beginnings [buckets] -> entries: point | sign. The same blocks.
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    msm_scatter(const uint2 *__restrict__ records, const uint32_t *__restrict__ starts, uint32_t num_partitions,
                uint32_t *__restrict__ beginnings, uint32_t *__restrict__ entries)
{
    __shared__ uint32_t counts[PARTITION_BUCKETS];
    RecordTile tile(starts, num_partitions);
    while (tile.next()) {
        clear_counts(counts, PARTITION_BUCKETS);
        uint2 taken[TILE_PER_THREAD];
        uint32_t ranks[TILE_PER_THREAD];
        CUZK_UNROLL
        for (uint32_t k = 0; k < TILE_PER_THREAD; k++) {
            if (tile.index(k) >= tile.end)
                continue;
            taken[k] = records[tile.index(k)];
            ranks[k] = atomicAdd(&counts[taken[k].y], 1u);
        }
        reserve(counts, PARTITION_BUCKETS, beginnings + (tile.partition << PARTITION_LOG2));
        CUZK_UNROLL
        for (uint32_t k = 0; k < TILE_PER_THREAD; k++)
            if (tile.index(k) < tile.end)
                entries[counts[taken[k].y] + ranks[k]] = taken[k].x;
        __syncthreads();
    }
}

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
