// Runs a multi-exponentiation's kernels on the host, in the order in which src/cuda/msm.rs launches them, for
// tests/kernels_host/msm.rs. Usage: msm_harness < case > window sums
//
// A case: the `Case` below, then its arrays: values [num_values] (Fr), index [num_points] (if has_index), points
// [num_points] (affine). The result: one Jacobian point per window. The sizes come from src/policy/msm_plan.rs.
#include "cuda_on_host.hpp"

#include "../msm_sort.cu"

#include "../msm_g1.cu"
#include "../msm_g2.cu"

namespace {

struct Case {
    uint32_t group; // 1 or 2
    uint32_t reversed;
    uint32_t num_points, chunk_points;
    uint32_t num_values, has_index;
    uint32_t num_windows, num_wide, narrow_bits;
    uint32_t total_buckets;
    uint32_t resident_blocks;
    uint32_t group_log2;
    uint32_t affine_levels, windows_per_range;

    uint32_t first_bucket(uint32_t window) const
    {
        return (window + (window < num_wide ? window : num_wide)) << (narrow_bits - 1);
    }
};

template <class T>
std::vector<T> read_array(size_t length)
{
    std::vector<T> elements(length);
    if (length > 0 && fread(elements.data(), sizeof(T), length, stdin) != length) {
        fprintf(stderr, "msm_harness: the input ends too early\n");
        exit(2);
    }
    return elements;
}

// Arrays of exactly the length that the launcher allocates, so that the address sanitizer guards their ends; poisoned
// like fresh device memory.
template <class T>
std::vector<T> device_array(size_t length)
{
    std::vector<T> elements(length);
    if (length > 0)
        memset(static_cast<void *>(elements.data()), 0xa5, length * sizeof(T));
    return elements;
}

uint32_t ceil_div(uint64_t a, uint64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

struct Launcher {
    bool reversed;

    template <class Kernel, class... Arguments>
    void operator()(uint32_t blocks, uint32_t threads, Kernel kernel, Arguments... arguments) const
    {
        cuda_on_host::launch({blocks, threads, 0, reversed}, [=] { kernel(arguments...); });
    }
};

template <class F, class A>
struct Kernels;
template <>
struct Kernels<FpCalled, G1Accumulator> {
    static constexpr auto pairs = msm_g1_pairs;
    static constexpr auto accumulate = msm_g1_accumulate;
    static constexpr auto merge = msm_g1_merge;
    static constexpr auto group = msm_g1_group;
    static constexpr auto join = msm_g1_join;
    static constexpr auto finish = msm_g1_finish;
};
template <>
struct Kernels<Fp2, G2Accumulator> {
    static constexpr auto pairs = msm_g2_pairs;
    static constexpr auto accumulate = msm_g2_accumulate;
    static constexpr auto merge = msm_g2_merge;
    static constexpr auto group = msm_g2_group;
    static constexpr auto join = msm_g2_join;
    static constexpr auto finish = msm_g2_finish;
};

// Windows whose terms are added together.
struct Range {
    uint32_t first_bucket, num_buckets, max_items;
};

template <class F, class A>
void add_windows(const Case &c, Launcher launch, const Range &range, const typename A::Point *points,
                 const std::vector<uint32_t> &entries, const std::vector<uint32_t> &offsets,
                 const std::vector<std::vector<uint32_t>> &halved, uint32_t fresh, Xyzz<F> *buckets)
{
    using K = Kernels<F, A>;
    const typename A::Point *items = points;
    const uint32_t *references = entries.data(), *runs = offsets.data() + range.first_bucket;
    uint32_t max_items = range.max_items;
    std::vector<typename A::Point> level_points;
    uint32_t levels_left = c.affine_levels;
    for (const std::vector<uint32_t> &level : halved) {
        const uint32_t *halved_runs = level.data() + range.first_bucket;
        max_items = (max_items + min(max_items, range.num_buckets)) / 2;
        auto sums = device_array<typename A::Point>(ceil_div(max_items, PAIR_THREADS) * PAIR_THREADS);
        uint32_t blocks = ceil_div(max_items, MAX_PAIRS * (PAIR_THREADS / A::LANES));
        blocks = max(ceil_div(blocks, c.resident_blocks), 1u) * c.resident_blocks;
        uint32_t last = --levels_left == 0;
        launch(blocks, PAIR_THREADS, K::pairs, items, references, runs, halved_runs, range.num_buckets, last,
               sums.data());
        level_points = std::move(sums);
        items = level_points.data();
        references = nullptr;
        runs = halved_runs;
    }

    uint32_t per_block = ACCUMULATE_THREADS / A::LANES;
    uint32_t blocks = min(ceil_div(ceil_div(max_items, MIN_SEGMENT), per_block), c.resident_blocks);
    uint32_t num_slots = 2 * blocks * per_block;
    auto keys = device_array<uint32_t>(num_slots);
    auto slots = device_array<Xyzz<F>>(num_slots);
    launch(blocks, ACCUMULATE_THREADS, K::accumulate, items, references, runs, range.num_buckets, fresh, buckets,
           keys.data(), slots.data());
    for (bool last = false; !last;) {
        uint32_t merge_blocks = ceil_div(num_slots, MERGE_THREADS);
        auto next_keys = device_array<uint32_t>(2 * merge_blocks);
        auto next_slots = device_array<Xyzz<F>>(2 * merge_blocks);
        launch(merge_blocks, MERGE_THREADS, K::merge, keys.data(), slots.data(), num_slots, next_keys.data(),
               next_slots.data(), buckets);
        last = merge_blocks == 1;
        num_slots = 2 * merge_blocks;
        keys = next_keys;
        slots = next_slots;
    }
}

template <class F, class A>
int run(const Case &c)
{
    using K = Kernels<F, A>;
    Launcher launch{c.reversed != 0};
    auto values = read_array<Fr>(c.num_values);
    auto index = read_array<uint32_t>(c.has_index ? c.num_points : 0);
    auto points = read_array<typename A::Point>(c.num_points);
    std::vector<Xyzz<F>> buckets(c.total_buckets);

    uint32_t fresh = 1;
    for (uint32_t start = 0; start < c.num_points; start += c.chunk_points, fresh = 0) {
        uint32_t n = min(c.chunk_points, c.num_points - start);
        uint32_t num_digits = n * c.num_windows, per_window = ceil_div(n, SORT_THREADS);
        auto digits = device_array<uint32_t>(num_digits);
        auto records = device_array<uint2>(num_digits);
        uint32_t num_partitions = ceil_div(c.total_buckets, PARTITION_BUCKETS);
        std::vector<uint32_t> partitions(num_partitions + 1), offsets(c.total_buckets + 1);
        uint32_t length = c.total_buckets + 1, num_tiles = ceil_div(length, SCAN_TILE);
        auto tile_sums = device_array<uint32_t>(num_tiles);
        auto sum_up = [&](uint32_t *counts, uint32_t num_counts) {
            uint32_t tiles = ceil_div(num_counts, SCAN_TILE);
            launch(tiles, SORT_THREADS, msm_scan_tiles, counts, num_counts, tile_sums.data());
            launch(1, SORT_THREADS, msm_scan_sums, tile_sums.data(), tiles);
            launch(tiles, SORT_THREADS, msm_scan_apply, counts, num_counts, tile_sums.data());
        };
        const Fr *chunk_values = c.has_index ? values.data() : values.data() + start;
        uint64_t num_values = c.has_index ? c.num_values : n;
        const uint32_t *chunk_index = c.has_index ? index.data() + start : nullptr;
        launch(per_window, SORT_THREADS, msm_digits, chunk_values, num_values, chunk_index, n, c.num_windows, c.num_wide,
               c.narrow_bits, digits.data());
        uint32_t digit_tiles = ceil_div(n, TILE) * c.num_windows, record_tiles = ceil_div(num_digits, TILE);
        launch(digit_tiles, TILE_THREADS, msm_partition_sizes, digits.data(), n, c.num_windows, c.num_wide,
               c.narrow_bits, partitions.data() + 1);
        sum_up(partitions.data() + 1, num_partitions);
        launch(digit_tiles, TILE_THREADS, msm_partition, digits.data(), n, c.num_windows, c.num_wide, c.narrow_bits,
               partitions.data() + 1, records.data());
        launch(record_tiles, TILE_THREADS, msm_bucket_sizes, records.data(), partitions.data(), num_partitions,
               offsets.data() + 1);
        sum_up(offsets.data() + 1, c.total_buckets);
        auto entries = device_array<uint32_t>(num_digits);
        launch(record_tiles, TILE_THREADS, msm_scatter, records.data(), partitions.data(), num_partitions,
               offsets.data() + 1, entries.data());

        std::vector<std::vector<uint32_t>> halved;
        const uint32_t *runs = offsets.data();
        for (uint32_t level = 0; level < c.affine_levels; level++) {
            halved.push_back(device_array<uint32_t>(length));
            launch(num_tiles, SORT_THREADS, msm_halve_tiles, runs, length, tile_sums.data());
            launch(1, SORT_THREADS, msm_scan_sums, tile_sums.data(), num_tiles);
            launch(num_tiles, SORT_THREADS, msm_halve_apply, runs, length, tile_sums.data(), halved.back().data());
            runs = halved.back().data();
        }
        for (uint32_t w = 0; w < c.num_windows; w += c.windows_per_range) {
            uint32_t end = min(w + c.windows_per_range, c.num_windows);
            uint32_t first_bucket = c.first_bucket(w), num_buckets = c.first_bucket(end) - first_bucket;
            add_windows<F, A>(c, launch, Range{first_bucket, num_buckets, n * (end - w)}, points.data() + start, entries,
                              offsets, halved, fresh, buckets.data() + first_bucket);
        }
    }

    uint32_t num_nodes = c.total_buckets >> c.group_log2, num_levels = c.narrow_bits - 1 - c.group_log2;
    auto parts = device_array<Xyzz<F>>(2 * num_nodes);
    launch(ceil_div(num_nodes, REDUCE_THREADS), REDUCE_THREADS, K::group, buckets.data(), c.group_log2, num_nodes,
           parts.data());
    for (uint32_t level = 0; level < num_levels; level++) {
        num_nodes /= 2;
        uint32_t num_sums = (3 + level) * num_nodes;
        auto joined = device_array<Xyzz<F>>(num_sums);
        launch(ceil_div(num_sums, REDUCE_THREADS), REDUCE_THREADS, K::join, parts.data(), level, num_nodes,
               joined.data());
        parts = joined;
    }
    auto window_sums = device_array<Jacobian<F>>(c.num_windows);
    launch(c.num_windows, MAX_PARTS, K::finish, parts.data(), num_levels, c.num_windows, c.num_wide, c.group_log2,
           window_sums.data());
    size_t written = fwrite(window_sums.data(), sizeof(Jacobian<F>), c.num_windows, stdout);
    return written == c.num_windows && fflush(stdout) == 0 ? 0 : 3;
}

} // namespace

int main()
{
    Case c = read_array<Case>(1)[0];
    return c.group == 1 ? run<FpCalled, G1Accumulator>(c) : run<Fp2, G2Accumulator>(c);
}
