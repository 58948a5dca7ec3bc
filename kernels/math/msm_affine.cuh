// Multi-exponentiation, between sorting and accumulating where there are many terms for each bucket: every run of items
// of one bucket becomes half as long, by affine additions of neighbours that share inversions.
//
// A run of m items becomes one of ceil(m/2) points; the last of an odd run passes through. The list of results is as
// dense as the list of items, so the work is shared out by results, whatever the buckets' sizes. Shared inversions:
// P. L. Montgomery, "Speeding the Pollard and elliptic curve methods of factorization" (1987), section 10.3.1.
//
//   refer      where the items of the thread's pairs lie
//   forward    d_j = x2 - x1 of its pairs, products d_0 ... d_j: kept where the warp's sums will be
//   block      a tree of the threads' products, one inversion, and back down the tree
//   backward   1/d_j from the inverse of d_0 ... d_j and the product d_0 ... d_(j-1); the sum of pair j
//
// A warp's results are neighbours, in each step of its loops and all together: what it reads and writes in order comes
// in whole lines.
//
// 5M + 1S for each result (1698 w for Fp), plus 4 % for the tree and the inversion. Blocks of a multiprocessor are in
// different phases, so that one's gathers and inversion pass during another's multiplications.
#pragma once

#include "msm_points.cuh"

namespace cuzk {

constexpr uint32_t PAIR_THREADS = 128;
// A thread's results at most, and at least as far as there are any: fewer make the inversions felt.
constexpr uint32_t MAX_PAIRS = 32;
constexpr uint32_t MIN_PAIRS = 8;

// Points that are to be added: the second is NO_POINT if the first is the result, the first too if there is none. Twice
// the same reference stands for any point doubled.
struct PointPair {
    uint32_t first, second;
};

// Shared memory of a block.
template <class L>
struct PairBlock {
    static constexpr uint32_t THREADS = PAIR_THREADS / L::LANES;
    static constexpr uint32_t WARP_THREADS = 32 / L::LANES;
    using Element = decltype(L::Point::x);

    PointPair pairs[MAX_PAIRS][THREADS];
    // A heap: node k's children are 2k and 2k + 1, thread t's product is node THREADS + t.
    Element products[2 * THREADS];
};

// The lists of items and results, and the results of one warp among them.
template <class L>
struct WarpPairs {
    static constexpr uint32_t WARP_THREADS = PairBlock<L>::WARP_THREADS;

    const uint32_t *__restrict__ entries;
    const uint32_t *__restrict__ offsets;
    const uint32_t *__restrict__ halved;
    uint32_t first_item, first_result, num_results, first_bucket, last_bucket;

    // To the results from `first_result` on, num_results > 0 of them.
    __device__ __forceinline__ WarpPairs(const uint32_t *__restrict__ entries, const uint32_t *__restrict__ offsets,
                                         const uint32_t *__restrict__ halved, uint32_t num_buckets,
                                         uint32_t first_result, uint32_t num_results)
        : entries(entries), offsets(offsets), halved(halved), first_item(offsets[0]), first_result(first_result),
          num_results(num_results)
    {
        first_bucket = run_of(halved, num_buckets, first_result);
        last_bucket = run_of(halved, num_buckets, first_result + num_results - 1);
    }

    // A thread's pairs: one in each step.
    __device__ __forceinline__ uint32_t num_steps() const { return (num_results + WARP_THREADS - 1) / WARP_THREADS; }

    __device__ __forceinline__ uint32_t reference(uint32_t item) const
    {
        return entries ? entries[item] : item - first_item;
    }

    __device__ __forceinline__ PointPair pair_of(uint32_t result, uint32_t bucket) const
    {
        uint32_t item = offsets[bucket] + 2 * (result - halved[bucket]);
        return PointPair{reference(item), item + 1 < offsets[bucket + 1] ? reference(item + 1) : NO_POINT};
    }

    // Calls put(step, pair) for the pairs of thread `lane` of the warp, none for steps that it has no part in. Several
    // buckets are searched for at a time, since each search waits for what it reads.
    template <class Put>
    __device__ __forceinline__ void refer(uint32_t lane, Put put) const
    {
        constexpr uint32_t AT_A_TIME = 4;
        uint32_t range = last_bucket - first_bucket;
        for (uint32_t step = 0; step < num_steps(); step += AT_A_TIME) {
            uint32_t result[AT_A_TIME], bucket[AT_A_TIME];
            CUZK_UNROLL
            for (uint32_t k = 0; k < AT_A_TIME; k++) {
                result[k] = first_result + min((step + k) * WARP_THREADS + lane, num_results - 1);
                bucket[k] = first_bucket;
            }
            for (uint32_t distance = 1u << (31 - __clz((int)(range | 1))); distance > 0; distance /= 2) {
                CUZK_UNROLL
                for (uint32_t k = 0; k < AT_A_TIME; k++)
                    if (distance <= last_bucket - bucket[k] && halved[bucket[k] + distance] <= result[k])
                        bucket[k] += distance;
            }
            PointPair pair[AT_A_TIME];
            CUZK_UNROLL
            for (uint32_t k = 0; k < AT_A_TIME; k++) {
                bool has_part = (step + k) * WARP_THREADS + lane < num_results;
                pair[k] = has_part ? pair_of(result[k], bucket[k]) : PointPair{NO_POINT, NO_POINT};
            }
            CUZK_UNROLL
            for (uint32_t k = 0; k < AT_A_TIME; k++)
                if (step + k < num_steps())
                    put(step + k, pair[k]);
        }
    }
};

// Where a warp keeps a product for each of its threads and steps until they become sums: in order of the steps, half as
// large as those, three rows of 16 bytes each from all lanes. Step j's sums take the place of the products of the steps
// 2j and 2j + 1, which have been read when they are written, since the sums are made from the last step to the first.
struct WarpProducts {
    // From one row to the next.
    static constexpr uint32_t ROW = 32;

    uint4 *rows;

    __device__ __forceinline__ explicit WarpProducts(void *sums)
        : rows(reinterpret_cast<uint4 *>(sums) + threadIdx.x % 32)
    {
    }

    __device__ __forceinline__ void put(uint32_t step, const Fp &own) const
    {
        CUZK_UNROLL
        for (uint32_t r = 0; r < 3; r++) {
            const uint32_t *limb = own.limb + 4 * r;
            rows[(3 * step + r) * ROW] = uint4{limb[0], limb[1], limb[2], limb[3]};
        }
    }

    __device__ __forceinline__ void get(uint32_t step, Fp &own) const
    {
        CUZK_UNROLL
        for (uint32_t r = 0; r < 3; r++) {
            uint4 limbs = rows[(3 * step + r) * ROW];
            uint32_t *limb = own.limb + 4 * r;
            limb[0] = limbs.x;
            limb[1] = limbs.y;
            limb[2] = limbs.z;
            limb[3] = limbs.w;
        }
    }
};

// The pair's factor of the product, by the points' x alone if nothing is special about them; else the pair is replaced
// by one that says what it is.
template <class L>
static __device__ __forceinline__ typename L::Field pair_denominator(PointPair &pair, const typename L::Field &x1,
                                                                     const typename L::Field &x2,
                                                                     const typename L::Point *__restrict__ points)
{
    using Field = typename L::Field;
    bool is_pair = pair.second != NO_POINT;
    Field d;
    d = x2 - x1;
    bool special = is_pair & (is_zero(d) | is_marker_zero(x1) | is_marker_zero(x2));
    if (Together<Field>::any(special)) {
        Affine<Field> p{}, q{};
        if (special) {
            p = load_point<L>(points, pair.first);
            q = load_point<L>(points, pair.second);
        }
        Field denominator;
        AffinePair kind = affine_pair_denominator(denominator, p, q);
        if (special) {
            d = denominator;
            if (kind == PAIR_TANGENT)
                pair.second = pair.first;
            else if (kind == PAIR_SECOND)
                pair = PointPair{pair.second, NO_POINT};
            else if (kind == PAIR_FIRST)
                pair.second = NO_POINT;
            else if (kind == PAIR_CANCELS)
                pair = PointPair{NO_POINT, NO_POINT};
        }
    }
    if (!is_pair)
        set_one(d);
    return d;
}

// products[THREADS + t] -> their inverses, in place. All threads of the block.
template <class L>
static __device__ __forceinline__ void invert_products(typename PairBlock<L>::Element *products, uint32_t t)
{
    using Field = typename L::Field;
    constexpr uint32_t THREADS = PairBlock<L>::THREADS;
    for (uint32_t width = THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        bool mine = t < width;
        if (Together<Field>::any(mine)) {
            uint32_t node = width + (mine ? t : 0);
            Field product = L::load(&products[2 * node]) * L::load(&products[2 * node + 1]);
            if (mine)
                L::store(&products[node], product);
        }
    }
    __syncthreads();
    if (Together<Field>::any(t == 0)) {
        Field inverse = L::field_inverse(L::load(&products[1]));
        if (t == 0)
            L::store(&products[1], inverse);
    }
    for (uint32_t width = 2; width <= THREADS; width *= 2) {
        __syncthreads();
        bool mine = t < width, any = Together<Field>::any(mine);
        uint32_t node = width + (mine ? t : 0);
        Field inverse;
        if (any)
            inverse = L::load(&products[node / 2]) * L::load(&products[node ^ 1]);
        __syncthreads();
        if (mine)
            L::store(&products[node], inverse);
    }
}

// The sum of a pair, given the inverse of its denominator; and that denominator again.
template <class L>
static __device__ __forceinline__ Affine<typename L::Field> pair_sum(const PointPair &pair,
                                                                     const Affine<typename L::Field> &p,
                                                                     const Affine<typename L::Field> &q,
                                                                     const typename L::Field &prefix,
                                                                     typename L::Field &inverse)
{
    using Field = typename L::Field;
    AffinePair kind = pair.first == NO_POINT    ? PAIR_CANCELS
                      : pair.second == NO_POINT ? PAIR_FIRST
                      : pair.second == pair.first ? PAIR_TANGENT
                                                  : PAIR_CHORD;
    Field denominator;
    if (kind == PAIR_CHORD)
        denominator = q.x - p.x;
    else if (kind == PAIR_TANGENT)
        denominator = twice(p.y);
    else
        set_one(denominator);
    Field own_inverse = inverse * prefix;
    inverse = inverse * denominator;
    return affine_pair_sum(kind, own_inverse, p, q);
}

template <class L>
static __device__ __forceinline__ void load_xs(typename L::Field &x1, typename L::Field &x2, const PointPair &pair,
                                               const typename L::Point *__restrict__ points)
{
    // Whatever is there, in place of a pair that is none: a branch would wait for what it reads.
    bool is_pair = pair.second != NO_POINT;
    x1 = L::load(&points[is_pair ? pair.first & ~DIGIT_NEGATIVE : 0].x);
    x2 = L::load(&points[is_pair ? pair.second & ~DIGIT_NEGATIVE : 0].x);
}

// Both points of a pair; zeros for those it has not. All that is read is asked for before any of it is waited for.
template <class L>
static __device__ __forceinline__ void load_points(Affine<typename L::Field> &p, Affine<typename L::Field> &q,
                                                   const PointPair &pair, const typename L::Point *__restrict__ points)
{
    const typename L::Point *first = points + (pair.first & ~DIGIT_NEGATIVE);
    const typename L::Point *second = points + (pair.second & ~DIGIT_NEGATIVE);
    if (pair.first != NO_POINT) {
        p.x = L::load(&first->x);
        p.y = L::load(&first->y);
    }
    if (pair.second != NO_POINT) {
        q.x = L::load(&second->x);
        q.y = L::load(&second->y);
    }
    if (pair.first & DIGIT_NEGATIVE)
        p = affine_negate(p);
    if (pair.second & DIGIT_NEGATIVE)
        q = affine_negate(q);
}

// offsets and halved [num_buckets + 1]: where each bucket's items and results begin in the lists of all; those of these
// buckets are taken. An item is a reference to a point: entries[i], or, if `entries` is null, point i - offsets[0].
// Result r goes to sums[r - halved[0]]. Any grid of full blocks that has MAX_PAIRS threads' results for all.
template <class L>
static __device__ __forceinline__ void add_pairs(const typename L::Point *__restrict__ points,
                                                 const uint32_t *__restrict__ entries,
                                                 const uint32_t *__restrict__ offsets,
                                                 const uint32_t *__restrict__ halved, uint32_t num_buckets,
                                                 typename L::Point *__restrict__ sums, PairBlock<L> &block)
{
    using Field = typename L::Field;
    constexpr uint32_t THREADS = PairBlock<L>::THREADS;
    constexpr uint32_t WARP_THREADS = PairBlock<L>::WARP_THREADS;
    constexpr PointPair NO_PAIR{NO_POINT, NO_POINT};
    uint32_t t = threadIdx.x / L::LANES, lane = t % WARP_THREADS;
    uint32_t first = halved[0], total = halved[num_buckets] - first;
    uint32_t num_threads = gridDim.x * THREADS;
    uint32_t num_pairs = min(max((total + num_threads - 1) / num_threads, MIN_PAIRS), MAX_PAIRS);
    uint64_t block_start = (uint64_t)blockIdx.x * THREADS * num_pairs;
    if (block_start >= total)
        return;
    uint32_t start = min((uint32_t)block_start + (t - lane) * num_pairs, total);
    uint32_t num_results = min(WARP_THREADS * num_pairs, total - start);
    uint32_t num_steps = (num_results + WARP_THREADS - 1) / WARP_THREADS;
    typename L::Point *results = sums + start;
    WarpProducts products(results);

    Field product;
    set_one(product);
    if (num_results > 0) {
        WarpPairs<L> pairs(entries, offsets, halved, num_buckets, first + start, num_results);
        pairs.refer(lane, [&](uint32_t step, const PointPair &pair) { block.pairs[step][t] = pair; });
        // The next pair's x are on their way while this one's are multiplied.
        PointPair next = block.pairs[0][t];
        Field next_x1{}, next_x2{};
        load_xs<L>(next_x1, next_x2, next, points);
        for (uint32_t j = 0; j < num_steps; j++) {
            PointPair pair = next;
            Field x1 = next_x1, x2 = next_x2;
            next = j + 1 < num_steps ? block.pairs[j + 1][t] : NO_PAIR;
            load_xs<L>(next_x1, next_x2, next, points);
            product = product * pair_denominator<L>(pair, x1, x2, points);
            block.pairs[j][t] = pair;
            if (j + 1 < num_steps)
                products.put(j, L::own(product));
        }
    }
    L::store(&block.products[THREADS + t], product);
    invert_products<L>(block.products, t);
    if (num_results == 0)
        return;
    Field inverse = L::load(&block.products[THREADS + t]);
    for (uint32_t j = num_steps; j-- > 0;) {
        // All of the warp have read the products that this step's sums are written over.
        __syncwarp();
        PointPair pair = block.pairs[j][t];
        Affine<Field> p{}, q{};
        load_points<L>(p, q, pair, points);
        Field prefix;
        if (j > 0)
            products.get(j - 1, L::own(prefix));
        else
            set_one(prefix);
        Affine<Field> sum = pair_sum<L>(pair, p, q, prefix, inverse);
        if (j * WARP_THREADS + lane < num_results)
            store_point<L>(&results[j * WARP_THREADS + lane], sum);
    }
}

} // namespace cuzk
