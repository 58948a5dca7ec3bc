// Multi-exponentiation, second part: sorted entries to bucket sums, and the partial sums this leaves.
//
// The entries of all windows and buckets are one list. Every thread (in G2 every pair of lanes) gets an equal share
// of it, a segment, whatever the buckets' sizes: one bucket with all entries costs as much as a million with a few.
// A run of equal buckets that lies within a segment goes to its bucket; the sum of a run that a segment's border
// cuts goes to one of the segment's two slots, in the order of the list:
//
//   slot 2t      the run that came from segment t - 1
//   slot 2t + 1  the run that goes on in segment t + 1; for a run that does both, an identity with its key
//
// so that the slots of one bucket are neighbours, with no other slot in between. `merge_slots` then adds each
// bucket's slots as a tree within blocks; what is cut by the blocks' borders goes to a shorter list of slots by the
// same rule, until one block is left: logarithmic depth however long a run is.
//
// Buckets live across chunks: the first part of a run starts from what its bucket holds.
#pragma once

#include "msm_points.cuh"

namespace cuzk {

constexpr uint32_t ACCUMULATE_THREADS = 128;
constexpr uint32_t MERGE_THREADS = 64;
// Shortest share of a thread; below it more threads do not pay for the slots they leave.
constexpr uint32_t MIN_SEGMENT = 16;

// How an accumulating thread holds a sum and adds to it: G1, one lane per sum.
struct G1Accumulator : G1Lanes {
    Sum sum;

    __device__ __forceinline__ void clear() { sum = xyzz_identity<Fp>(); }
    __device__ __forceinline__ void load(const Sum *from) { sum = *from; }
    __device__ __forceinline__ void store(Sum *to) const { *to = sum; }

    __device__ __forceinline__ void add(bool active, const Point *__restrict__ points, uint32_t entry, Sum *)
    {
        if (!active)
            return;
        xyzz_add_affine(sum, load_point<G1Lanes>(points, entry));
    }
};

// G2, two lanes per sum: as long as any lane of a warp is active all of them go through the same arithmetic, and the
// exceptional cases replace its result.
struct G2Accumulator : G2Lanes {
    Xyzz<Fp2Half> sum;

    __device__ __forceinline__ void clear() { sum = xyzz_identity<Fp2Half>(); }

    __device__ __forceinline__ void load(const Sum *from)
    {
        sum.x = G2Lanes::load(&from->x);
        sum.y = G2Lanes::load(&from->y);
        sum.zz = G2Lanes::load(&from->zz);
        sum.zzz = G2Lanes::load(&from->zzz);
    }

    __device__ __forceinline__ void store(Sum *to) const
    {
        G2Lanes::store(&to->x, sum.x);
        G2Lanes::store(&to->y, sum.y);
        G2Lanes::store(&to->zz, sum.zz);
        G2Lanes::store(&to->zzz, sum.zzz);
    }

    // madd-2008-s as in ec.cuh. `parking` keeps the sum in memory where there is nothing to add: in registers it
    // would be alive through all of the arithmetic. For the same reason the exceptions read the point again.
    __device__ __forceinline__ void add(bool active, const Point *__restrict__ points, uint32_t entry, Sum *parking)
    {
        Affine<Fp2Half> q{};
        if (active)
            q = load_point<G2Lanes>(points, entry);
        // Not the short-circuiting is_identity of ec.cuh: all lanes must take part in both questions.
        bool nothing = both_lanes(is_marker_zero(q.x.own) & is_marker_zero(q.y.own));
        bool first = is_marker_zero(sum.zz);
        if (nothing)
            store(parking);
        Fp2Half d = q.x * sum.zz - sum.x;
        Fp2Half r = q.y * sum.zzz - sum.y;
        bool same_x = is_zero(d), same_y = is_zero(r);
        Fp2Half dd = square(d);
        Fp2Half ddd = d * dd;
        sum.zz = sum.zz * dd;
        sum.zzz = sum.zzz * ddd;
        Fp2Half t = sum.x * dd;
        sum.x = square(r) - ddd - twice(t);
        sum.y = mul_sub(r, t - sum.x, sum.y, ddd);
        bool exception = same_x && !nothing && !first;
        if (__any_sync(0xffffffff, exception)) {
            Affine<Fp2Half> again{};
            if (exception)
                again = load_point<G2Lanes>(points, entry);
            Xyzz<Fp2Half> doubled = xyzz_double_affine(again);
            if (exception)
                sum = same_y ? doubled : xyzz_identity<Fp2Half>();
        }
        if (nothing) {
            load(parking);
        } else if (first) {
            Affine<Fp2Half> again = load_point<G2Lanes>(points, entry);
            sum.x = again.x;
            sum.y = again.y;
            set_one(sum.zz);
            set_one(sum.zzz);
        }
    }
};

// offsets [num_buckets + 1]: where each bucket's items begin in the list of all items, of which those of these buckets
// are taken. An item is a reference to a point: entries[i], or, if `entries` is null, point i - offsets[0]. buckets
// [num_buckets], added to, or taken for identities if `fresh`; keys and slots [2 * threads / LANES]. Any grid.
template <class A>
static __device__ __forceinline__ void accumulate(const typename A::Point *__restrict__ points,
                                                  const uint32_t *__restrict__ entries,
                                                  const uint32_t *__restrict__ offsets, uint32_t num_buckets,
                                                  uint32_t fresh, typename A::Sum *buckets,
                                                  uint32_t *__restrict__ keys, typename A::Sum *slots)
{
    uint32_t t = (blockIdx.x * ACCUMULATE_THREADS + threadIdx.x) / A::LANES;
    uint32_t num_segments = gridDim.x * (ACCUMULATE_THREADS / A::LANES);
    uint32_t first = offsets[0], total = offsets[num_buckets] - first;
    uint32_t length = max((total + num_segments - 1) / num_segments, MIN_SEGMENT);
    uint32_t i = first + min(t * length, total), end = min(i + length, first + total);

    // What the thread needs next is read before it is needed: the ends of this bucket's run and of the next one's, the
    // next item and the one after it.
    uint32_t bucket = run_of(offsets, num_buckets, i);
    uint32_t run_end = offsets[bucket + 1], next_end = offsets[min(bucket + 2, num_buckets)];
    auto reference = [=](uint32_t at) { return at >= end ? 0 : entries ? entries[at] : at - first; };
    uint32_t next = reference(i), after = reference(i + 1);
    bool cut_before = i < end && offsets[bucket] < i;
    uint32_t key_before = NO_BUCKET, key_after = NO_BUCKET;

    A sum;
    sum.clear();
    if (i < end && !cut_before && !fresh)
        sum.load(&buckets[bucket]);
    while (Together<typename A::Field>::any(i < end)) {
        bool active = i < end;
        uint32_t item = next;
        next = after;
        after = reference(i + 2);
        sum.add(active, points, item, &slots[2 * t + 1]);
        i++;
        if (!active || (i != run_end && i != end))
            continue;
        bool cut_after = i < run_end;
        sum.store(cut_before ? &slots[2 * t] : cut_after ? &slots[2 * t + 1] : &buckets[bucket]);
        if (cut_before)
            key_before = bucket;
        if (cut_after)
            key_after = bucket;
        if (i < end) {
            do {
                bucket++;
                run_end = next_end;
                next_end = offsets[min(bucket + 2, num_buckets)];
            } while (run_end == i);
            cut_before = false;
            sum.clear();
            if (!fresh)
                sum.load(&buckets[bucket]);
        }
    }
    if (key_before == key_after && key_before != NO_BUCKET) {
        sum.clear();
        sum.store(&slots[2 * t + 1]);
    }
    keys[2 * t] = key_before;
    keys[2 * t + 1] = key_after;
}

// keys and slots [num_slots], next_keys and next_slots [2 * blocks]; buckets [num_buckets]. One thread per slot.
// Full additions, at most one per slot in all, in log2(MERGE_THREADS) steps.
template <class F>
static __device__ __forceinline__ void merge_slots(const uint32_t *__restrict__ keys,
                                                   const Xyzz<F> *__restrict__ slots, uint32_t num_slots,
                                                   uint32_t *__restrict__ next_keys, Xyzz<F> *__restrict__ next_slots,
                                                   Xyzz<F> *__restrict__ buckets)
{
    __shared__ Xyzz<F> sums[MERGE_THREADS];
    __shared__ uint32_t sum_keys[MERGE_THREADS];
    uint32_t me = threadIdx.x;
    uint32_t i = blockIdx.x * MERGE_THREADS + me;
    uint32_t key = i < num_slots ? keys[i] : NO_BUCKET;
    sum_keys[me] = key;
    if (key != NO_BUCKET)
        sums[me] = slots[i];
    if (me < 2)
        next_keys[2 * blockIdx.x + me] = NO_BUCKET;
    __syncthreads();
    uint32_t first = me;
    while (first > 0 && sum_keys[first - 1] == key)
        first--;
    uint32_t rank = me - first;
    for (uint32_t distance = 1; distance < MERGE_THREADS; distance *= 2) {
        uint32_t other = me + distance;
        if (key != NO_BUCKET && rank % (2 * distance) == 0 && other < MERGE_THREADS && sum_keys[other] == key)
            xyzz_add_call(sums[me], sums[other]);
        __syncthreads();
    }
    if (key == NO_BUCKET || rank != 0)
        return;
    uint32_t next_block = (blockIdx.x + 1) * MERGE_THREADS;
    bool cut_before = me == 0 && i > 0 && keys[i - 1] == key;
    bool cut_after =
        sum_keys[MERGE_THREADS - 1] == key && next_block < num_slots && keys[next_block] == key;
    uint32_t next = 2 * blockIdx.x + (cut_before ? 0 : 1);
    (cut_before || cut_after ? next_slots[next] : buckets[key]) = sums[me];
    if (cut_before || cut_after)
        next_keys[next] = key;
    if (cut_before && cut_after) {
        next_keys[next + 1] = key;
        next_slots[next + 1] = xyzz_identity<F>();
    }
}

} // namespace cuzk
