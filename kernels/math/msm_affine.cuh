// Multi-exponentiation, between sorting and accumulating where there are many terms for each bucket: every run of items
// of one bucket becomes half as long, by affine additions of neighbours that share inversions.
//
// A run of m items becomes one of ceil(m/2) points; the last of an odd run passes through. The list of results is as
// dense as the list of items, so the work is shared out by results, whatever the buckets' sizes, and each thread walks
// its results' runs. Shared inversions: P. L. Montgomery, "Speeding the Pollard and elliptic curve methods of
// factorization" (1987), section 10.3.1.
//
//   forward    d_j = x2 - x1 of the thread's pairs, products d_0 ... d_j: kept where pair j's sum will be
//   block      a tree of the threads' products, one inversion, and back down the tree
//   backward   1/d_j from the inverse of d_0 ... d_j and the product d_0 ... d_(j-1); the sum of pair j
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
    using Element = decltype(L::Point::x);

    PointPair pairs[MAX_PAIRS][THREADS];
    // A heap: node k's children are 2k and 2k + 1, thread t's product is node THREADS + t.
    Element products[2 * THREADS];
};

// The list of items, and the place in it that a thread has reached.
struct PairWalk {
    const uint32_t *__restrict__ entries;
    const uint32_t *__restrict__ offsets;
    uint32_t first, item, run_end, bucket;

    // To the items of result `result`, of which there are as `halved` says.
    __device__ __forceinline__ PairWalk(const uint32_t *__restrict__ entries, const uint32_t *__restrict__ offsets,
                                        const uint32_t *__restrict__ halved, uint32_t num_buckets, uint32_t result)
        : entries(entries), offsets(offsets), first(offsets[0])
    {
        bucket = run_of(halved, num_buckets, result);
        item = offsets[bucket] + 2 * (result - halved[bucket]);
        run_end = offsets[bucket + 1];
    }

    __device__ __forceinline__ uint32_t reference(uint32_t i) const { return entries ? entries[i] : i - first; }

    __device__ __forceinline__ PointPair take() const
    {
        return PointPair{reference(item), item + 1 < run_end ? reference(item + 1) : NO_POINT};
    }

    // To the next result, which must exist.
    __device__ __forceinline__ void advance()
    {
        item += 2;
        if (item < run_end)
            return;
        item = run_end;
        do
            bucket++;
        while (offsets[bucket + 1] == item);
        run_end = offsets[bucket + 1];
    }
};

// The pair's factor of the product, by the points' x alone if nothing is special about them; else the pair is replaced
// by one that says what it is.
template <class L>
static __device__ __forceinline__ typename L::Field pair_denominator(PointPair &pair,
                                                                     const typename L::Point *__restrict__ points)
{
    using Field = typename L::Field;
    bool is_pair = pair.second != NO_POINT;
    Field x1{}, x2{}, d;
    if (is_pair) {
        x1 = L::load(&points[pair.first & ~DIGIT_NEGATIVE].x);
        x2 = L::load(&points[pair.second & ~DIGIT_NEGATIVE].x);
    }
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
                                                                     const typename L::Point *__restrict__ points,
                                                                     const typename L::Field &prefix,
                                                                     typename L::Field &inverse)
{
    using Field = typename L::Field;
    AffinePair kind = pair.first == NO_POINT    ? PAIR_CANCELS
                      : pair.second == NO_POINT ? PAIR_FIRST
                      : pair.second == pair.first ? PAIR_TANGENT
                                                  : PAIR_CHORD;
    Affine<Field> p{}, q{};
    if (pair.first != NO_POINT)
        p = load_point<L>(points, pair.first);
    if (pair.second != NO_POINT)
        q = load_point<L>(points, pair.second);
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
    uint32_t t = threadIdx.x / L::LANES;
    uint32_t first = halved[0], total = halved[num_buckets] - first;
    uint32_t num_threads = gridDim.x * THREADS;
    uint32_t num_pairs = min(max((total + num_threads - 1) / num_threads, MIN_PAIRS), MAX_PAIRS);
    uint64_t start = (uint64_t)blockIdx.x * THREADS * num_pairs;
    if (start >= total)
        return;
    uint32_t mine = min((uint32_t)start + t * num_pairs, total);
    uint32_t num_mine = min(num_pairs, total - mine);
    typename L::Point *results = sums + mine;

    Field product;
    set_one(product);
    if (Together<Field>::any(num_mine > 0)) {
        PairWalk walk(entries, offsets, halved, num_buckets, first + min(mine, total - 1));
        for (uint32_t j = 0; j < num_pairs; j++) {
            PointPair pair{NO_POINT, NO_POINT};
            if (j < num_mine)
                pair = walk.take();
            product = product * pair_denominator<L>(pair, points);
            block.pairs[j][t] = pair;
            if (j + 1 < num_mine) {
                L::store(&results[j].x, product);
                walk.advance();
            }
        }
    }
    L::store(&block.products[THREADS + t], product);
    invert_products<L>(block.products, t);
    if (!Together<Field>::any(num_mine > 0))
        return;
    Field inverse = L::load(&block.products[THREADS + t]);
    for (uint32_t j = num_pairs; j-- > 0;) {
        PointPair pair = block.pairs[j][t];
        Field prefix;
        if (j > 0 && j < num_mine)
            prefix = L::load(&results[j - 1].x);
        else
            set_one(prefix);
        Affine<Field> sum = pair_sum<L>(pair, points, prefix, inverse);
        if (j < num_mine)
            store_point<L>(&results[j], sum);
    }
}

} // namespace cuzk
