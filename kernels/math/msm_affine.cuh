// Multi-exponentiation, between sorting and accumulating where there are many terms for each bucket: every run of items
// of one bucket becomes half as long, by affine additions of neighbours that share inversions.
//
// A run of m items becomes one of ceil(m/2) points; the last of an odd run passes through. The list of results is as
// dense as the list of items, so the work is shared out by results, whatever the buckets' sizes. Shared inversions:
// P. L. Montgomery, "Speeding the Pollard and elliptic curve methods of factorization" (1987), section 10.3.1.
//
//   note       which results have one item alone
//   forward    d_j = x2 - x1 of a thread's pairs, products d_0 ... d_j: kept where the warp's sums will be
//   invert     each thread's product, those of a warp together
//   backward   1/d_j from the inverse of d_0 ... d_j and the product d_0 ... d_(j-1); the sum of pair j
//
// A block is one warp, which waits for no other. Its results are neighbours, in each step of its loops and all
// together: what it reads and writes in order comes in whole lines.
//
// 5M + 1S for each result (1698 w for Fp), plus an inversion in each thread, which takes as long as five steps.
#pragma once

#include "msm_points.cuh"

namespace cuzk {

constexpr uint32_t PAIR_THREADS = 32;
// A thread's results at most, and at least as far as there are any: fewer make the inversions felt. With 512 the first
// level, which gathers its points, is 3 % slower: all warps would gather at the same time.
constexpr uint32_t MAX_PAIRS = 256;
constexpr uint32_t MIN_PAIRS = 8;

// Buckets for each of a warp's results, above which they are searched for by results: most are empty.
constexpr uint32_t SPARSE_BUCKETS = 16;

// Items of a pair, as references to points; twice the same where there is one alone.
struct PointPair {
    uint32_t first, second;
};

// 16 bytes of each lane beside each other. A point is six rows of its lanes, x before y; a step's points lie together.
using Row = uint4[32];
constexpr uint32_t POINT_ROWS = 6, FP_ROWS = 3;

// Shared memory of a block.
struct PairBlock {
    // Bit t of a step: its result t has one item alone, or is none.
    uint32_t singles[MAX_PAIRS];
    // The step's first item.
    uint32_t items[MAX_PAIRS];
    // Whether some pair of a step may have no chord.
    uint32_t specials[MAX_PAIRS];
    Row prefix[FP_ROWS];
};

static __device__ __forceinline__ void get_rows(Fp &own, const Row *rows, uint32_t lane)
{
    CUZK_UNROLL
    for (uint32_t r = 0; r < FP_ROWS; r++) {
        uint4 limbs = rows[r][lane];
        uint32_t *limb = own.limb + 4 * r;
        limb[0] = limbs.x;
        limb[1] = limbs.y;
        limb[2] = limbs.z;
        limb[3] = limbs.w;
    }
}

static __device__ __forceinline__ void put_rows(Row *rows, uint32_t lane, const Fp &own)
{
    CUZK_UNROLL
    for (uint32_t r = 0; r < FP_ROWS; r++) {
        const uint32_t *limb = own.limb + 4 * r;
        rows[r][lane] = uint4{limb[0], limb[1], limb[2], limb[3]};
    }
}

// The thread's own part of rows, on its way from device to shared memory.
static __device__ __forceinline__ void copy_rows_ahead(Row *to, const Row *from, uint32_t lane)
{
    CUZK_UNROLL
    for (uint32_t r = 0; r < FP_ROWS; r++) {
#if defined(__CUDA_ARCH__)
        uint32_t shared = (uint32_t)__cvta_generic_to_shared(&to[r][lane]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared), "l"(&from[r][lane]) : "memory");
#else
        to[r][lane] = from[r][lane];
#endif
    }
}

static __device__ __forceinline__ void wait_for_copies()
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

// The items of a warp's pairs.
template <class L>
struct WarpPairs {
    static constexpr uint32_t WARP_THREADS = 32 / L::LANES;

    const uint32_t *__restrict__ entries;
    const PairBlock &block;
    uint32_t first_item, last_item, t;

    // `t`: the thread of the warp, that is which of a step's results it makes.
    __device__ __forceinline__ bool is_single(uint32_t step) const { return block.singles[step] >> t & 1; }

    __device__ __forceinline__ uint32_t reference(uint32_t item) const
    {
        return entries ? entries[item] : item - first_item;
    }

    // Some pair where the thread has no result.
    __device__ __forceinline__ PointPair pair(uint32_t step) const
    {
        uint32_t singles_before = __popc(block.singles[step] & ((1u << t) - 1));
        uint32_t item = min(block.items[step] + 2 * t - singles_before, last_item);
        // What is read is not looked at: that would wait for it.
        return PointPair{reference(item), reference(is_single(step) ? item : item + 1)};
    }
};

// Fills `singles` and `items` for the results from `first_result` on, num_results > 0 of them. All lanes of the warp.
template <class L>
static __device__ __noinline__ void note_runs(PairBlock &block, const uint32_t *__restrict__ offsets,
                                                 const uint32_t *__restrict__ halved, uint32_t num_buckets,
                                                 uint32_t first_result, uint32_t num_results)
{
    constexpr uint32_t WARP_THREADS = 32 / L::LANES;
    constexpr uint32_t AT_A_TIME = 4;
    uint32_t lane = threadIdx.x;
    uint32_t num_steps = (num_results + WARP_THREADS - 1) / WARP_THREADS;
    for (uint32_t step = lane; step < num_steps; step += 32) {
        uint32_t results = min(num_results - step * WARP_THREADS, WARP_THREADS);
        block.singles[step] = results < 32 ? ~0u << results : 0;
    }
    __syncwarp();
    uint32_t first_bucket = run_of(halved, num_buckets, first_result);
    uint32_t last_bucket = run_of(halved, num_buckets, first_result + num_results - 1);
    // The last results of odd runs.
    auto note = [&](uint32_t length, uint32_t last_result) {
        uint32_t result = last_result - first_result;
        if (length % 2 == 1 && result < num_results)
            atomicOr(&block.singles[result / WARP_THREADS], 1u << result % WARP_THREADS);
    };
    uint32_t range = last_bucket - first_bucket + 1;
    if (range <= SPARSE_BUCKETS * num_results) {
        // Several are asked for at a time, since each is waited for.
        for (uint32_t from = 0; from < range; from += 32 * AT_A_TIME) {
            uint32_t length[AT_A_TIME], last_result[AT_A_TIME];
            CUZK_UNROLL
            for (uint32_t k = 0; k < AT_A_TIME; k++) {
                uint32_t bucket = min(first_bucket + from + 32 * k + lane, last_bucket);
                length[k] = offsets[bucket + 1] - offsets[bucket];
                last_result[k] = halved[bucket + 1] - 1;
            }
            CUZK_UNROLL
            for (uint32_t k = 0; k < AT_A_TIME; k++)
                note(length[k], last_result[k]);
        }
    } else {
        for (uint32_t result = lane; result < num_results; result += 32) {
            uint32_t bucket = first_bucket + run_of(halved + first_bucket, range, first_result + result);
            note(offsets[bucket + 1] - offsets[bucket], halved[bucket + 1] - 1);
        }
    }
    __syncwarp();
    // Two items for each result, less one for each that has one alone.
    uint32_t next_item = offsets[first_bucket] + 2 * (first_result - halved[first_bucket]);
    for (uint32_t from = 0; from < num_steps; from += 32) {
        uint32_t step = from + lane;
        uint32_t singles = step < num_steps ? block.singles[step] << (32 - WARP_THREADS) : 0;
        uint32_t items = 2 * WARP_THREADS - __popc(singles), through = items;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(ALL_LANES, through, distance);
            if (lane >= distance)
                through += other;
        }
        if (step < num_steps)
            block.items[step] = next_item + through - items;
        next_item += __shfl_sync(ALL_LANES, through, 31);
    }
    __syncwarp();
}

// Points as the parameters have them, or in rows: sums of an earlier level.
template <class L>
struct PairPoints {
    const typename L::Point *__restrict__ points;
    bool in_rows;

    __device__ __forceinline__ const Row *rows(uint32_t number) const
    {
        return reinterpret_cast<const Row *>(points) + number / (32 / L::LANES) * (uint64_t)POINT_ROWS;
    }

    static __device__ __forceinline__ uint32_t lane(uint32_t number)
    {
        return number % (32 / L::LANES) * L::LANES + threadIdx.x % L::LANES;
    }

    __device__ __forceinline__ void load_xs(typename L::Field &x1, typename L::Field &x2, const PointPair &pair) const
    {
        if (in_rows) {
            get_rows(L::own(x1), rows(pair.first), lane(pair.first));
            get_rows(L::own(x2), rows(pair.second), lane(pair.second));
        } else {
            x1 = L::load(&points[pair.first & ~DIGIT_NEGATIVE].x);
            x2 = L::load(&points[pair.second & ~DIGIT_NEGATIVE].x);
        }
    }

    // Both points but for their signs, so that all that is read is asked for before any of it is waited for.
    __device__ __forceinline__ void load(Affine<typename L::Field> &p, Affine<typename L::Field> &q,
                                         const PointPair &pair) const
    {
        load_xs(p.x, q.x, pair);
        if (in_rows) {
            get_rows(L::own(p.y), rows(pair.first) + FP_ROWS, lane(pair.first));
            get_rows(L::own(q.y), rows(pair.second) + FP_ROWS, lane(pair.second));
        } else {
            p.y = L::load(&points[pair.first & ~DIGIT_NEGATIVE].y);
            q.y = L::load(&points[pair.second & ~DIGIT_NEGATIVE].y);
        }
    }

    static __device__ __forceinline__ void take_signs(Affine<typename L::Field> &p, Affine<typename L::Field> &q,
                                                      const PointPair &pair)
    {
        if (pair.first & DIGIT_NEGATIVE)
            p.y = negate(p.y);
        if (pair.second & DIGIT_NEGATIVE)
            q.y = negate(q.y);
    }
};

// offsets and halved [num_buckets + 1]: where each bucket's items and results begin in the lists of all; those of these
// buckets are taken. An item is a reference to a point: entries[i], or, if `entries` is null, point i - offsets[0] of
// points in rows. Result r becomes point r - halved[0] of `sums`, in rows unless `last`; room for whole steps of them.
// Any grid that has MAX_PAIRS threads' results for all.
template <class L>
static __device__ __forceinline__ void add_pairs(const typename L::Point *__restrict__ points,
                                                 const uint32_t *__restrict__ entries,
                                                 const uint32_t *__restrict__ offsets,
                                                 const uint32_t *__restrict__ halved, uint32_t num_buckets,
                                                 uint32_t last, typename L::Point *__restrict__ sums, PairBlock &block)
{
    using Field = typename L::Field;
    constexpr uint32_t WARP_THREADS = 32 / L::LANES;
    uint32_t lane = threadIdx.x, t = lane / L::LANES;
    uint32_t first = halved[0], total = halved[num_buckets] - first;
    uint32_t all_steps = (total + WARP_THREADS - 1) / WARP_THREADS;
    uint32_t most_steps = max((all_steps + gridDim.x - 1) / gridDim.x, MIN_PAIRS);
    if ((uint64_t)blockIdx.x * most_steps >= all_steps)
        return;
    uint32_t start = blockIdx.x * most_steps * WARP_THREADS;
    uint32_t num_steps = min(most_steps, all_steps - blockIdx.x * most_steps);
    uint32_t num_results = min(num_steps * WARP_THREADS, total - start);
    note_runs<L>(block, offsets, halved, num_buckets, first + start, num_results);
    WarpPairs<L> pairs{entries, block, offsets[0], offsets[num_buckets] - 1, t};
    PairPoints<L> from{points, entries == nullptr};
    typename L::Point *results = sums + start;
    // A product for each lane and step until they become sums: in order of the steps, half as large as those. Step j's
    // sums take the place of the products of the steps 2j and 2j + 1, which have been read when they are written, since
    // the sums are made from the last step to the first.
    Row *products = reinterpret_cast<Row *>(results);

    Field product;
    set_one(product);
    {
        // The next pair's x are on their way while this one's are multiplied, and the references of the one after it.
        Field next_x1, next_x2;
        from.load_xs(next_x1, next_x2, pairs.pair(0));
        PointPair after = pairs.pair(min(1u, num_steps - 1));
        CUZK_ROLLED
        for (uint32_t j = 0; j < num_steps; j++) {
            Field x1 = next_x1, x2 = next_x2;
            from.load_xs(next_x1, next_x2, after);
            after = pairs.pair(min(j + 2, num_steps - 1));
            Field d = loose_difference(x2, x1);
            bool special = !pairs.is_single(j) & L::may_be_special(d, x1, x2);
            uint32_t specials = __ballot_sync(ALL_LANES, special);
            if (specials) {
                PointPair pair = pairs.pair(j);
                Affine<Field> p, q;
                from.load(p, q, pair);
                from.take_signs(p, q, pair);
                affine_pair_denominator(d, p, q);
            }
            if (lane == 0)
                block.specials[j] = specials;
            if (pairs.is_single(j))
                set_one(d);
            product = product * d;
            if (j + 1 < num_steps)
                put_rows(products + FP_ROWS * j, lane, L::own(product));
        }
    }
    Field inverse = L::field_inverse_together(product);
    PointPair next = pairs.pair(num_steps - 1);
    if (num_steps > 1)
        copy_rows_ahead(block.prefix, products + FP_ROWS * (num_steps - 2), lane);
    CUZK_ROLLED
    for (uint32_t j = num_steps; j-- > 0;) {
        // All of the warp have read the products that this step's sums are written over.
        __syncwarp();
        // Before the points are asked for: all that was is waited for.
        wait_for_copies();
        Field prefix;
        if (j > 0)
            get_rows(L::own(prefix), block.prefix, lane);
        else
            set_one(prefix);
        PointPair pair = next;
        Affine<Field> p, q;
        from.load(p, q, pair);
        if (j > 1)
            copy_rows_ahead(block.prefix, products + FP_ROWS * (j - 2), lane);
        next = pairs.pair(j > 0 ? j - 1 : 0);
        // Needs neither point, which come meanwhile.
        Field own_inverse = inverse * prefix;
        from.take_signs(p, q, pair);
        bool is_single = pairs.is_single(j);
        AffinePair kind = PAIR_CHORD;
        Field denominator = loose_difference(q.x, p.x);
        // In all lanes, which may not part in G2.
        if (block.specials[j])
            kind = affine_pair_denominator(denominator, p, q);
        if (is_single) {
            kind = PAIR_KNOWN;
            set_one(denominator);
        }
        inverse = inverse * denominator;
        Affine<Field> sum = affine_pair_sum(kind, own_inverse, p, q);
        if (j * WARP_THREADS + t < num_results) {
            if (last) {
                store_point<L>(&results[j * WARP_THREADS + t], sum);
            } else {
                put_rows(products + POINT_ROWS * j, lane, L::own(sum.x));
                put_rows(products + POINT_ROWS * j + FP_ROWS, lane, L::own(sum.y));
            }
        }
    }
}

} // namespace cuzk
