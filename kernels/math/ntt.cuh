// The number-theoretic transform over Fr, n = 2^L, in place, one pass of up to 10 levels at a time.
//
// Both directions use the forward root w of order n and one table: W[b] = exp(2 pi i 0.b0b1b2.../2) in the sense of
// roots of unity, b0 the lowest bit of b, so that W[b] for b < n/2 is w^brv(b) and does not depend on n. A level l
// has 2^l blocks of n/2^l consecutive places; in block b every pair (x, y) half a block apart becomes
//   to bit-reversed     (x + W[b] y, x - W[b] y)      levels 0, 1, ..., L-1, natural order in, bit-reversed out
//   from bit-reversed   (x + y, W[b] (x - y))         levels L-1, ..., 1, 0, bit-reversed order in, natural out
// as in src/groth16/domain.rs. The twiddle belongs to the block, not to the place within: there are no extra
// multiplications between passes, and no inverse twins. Cost: L/2 multiplications per element less one where b = 0,
// which makes 12.5 at n = 2^27 with three passes of nine levels.
//
// A pass takes the levels [first_level, first_level + num_levels). Its tiles have 2^num_levels rows, `stride` places
// apart, and as many columns as fill the tile; a thread holds 8 elements in registers and does three levels at a
// time (a round), then exchanges through shared memory. A round whose levels are not all wanted skips its first
// ones, which an earlier round has done: it starts at a lower level than needed, and no other code is required.
// What a pass does when it loads and stores its elements is the kernel's choice (ntt.cu, quotient.cu). In registers and
// in shared memory they are below 2r, in device memory below r.
#pragma once

#include "fr.cuh"

// A kernel's dynamic shared memory, as shared_tile.
#if defined(__CUDACC__)
#define CUZK_SHARED_TILE extern __shared__ uint4 shared_tile[]
#else
#define CUZK_SHARED_TILE uint4 *shared_tile = reinterpret_cast<uint4 *>(cuda_on_host::block.shared.data())
#endif

namespace cuzk {

// Elements in a thread's registers, and levels of a round: 2^3 = 8.
constexpr uint32_t NTT_ELEMENTS = 8;
constexpr uint32_t NTT_ROUND_LEVELS = 3;

// Of a block of a pass kernel: tiles of 2^10, and what its registers are made to suffice for.
constexpr uint32_t NTT_MAX_THREADS = 128;
constexpr uint32_t NTT_MIN_BLOCKS = 4;

// Device memory as two vectors of 16 bytes.
CUZK_HD Fr fr_load(const Fr *at)
{
    const uint4 *halves = reinterpret_cast<const uint4 *>(at);
    uint4 low = halves[0], high = halves[1];
    return Fr{{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

CUZK_HD void fr_store(Fr *at, const Fr &value)
{
    const uint32_t *limb = value.limb;
    uint4 *halves = reinterpret_cast<uint4 *>(at);
    halves[0] = uint4{limb[0], limb[1], limb[2], limb[3]};
    halves[1] = uint4{limb[4], limb[5], limb[6], limb[7]};
}

// W in two levels: W[b] = low[b mod 2^low_log2] * high[b / 2^low_log2], where high[k] = W[k 2^low_log2].
struct Twiddles {
    const Fr *low;
    const Fr *high;
    uint32_t low_log2;
};

// W[b]. Without COMPUTED, b < 2^low_log2.
template <bool COMPUTED>
CUZK_HD Fr twiddle(const Twiddles &table, uint32_t b)
{
    if (!COMPUTED)
        return fr_load(table.low + b);
    Fr w = fr_load(table.low + (b & ((1u << table.low_log2) - 1)));
    uint32_t high = b >> table.low_log2;
    return high == 0 ? w : w * fr_load(table.high + high);
}

// Keeps the compiler from loading all of a round's twiddles, and working on several products, at once: a round needs
// most registers for its elements, and other warps fill the pipe.
CUZK_HD void one_at_a_time()
{
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
}

CUZK_HD void butterfly(Fr &x, Fr &y)
{
    Fr difference = fr_sub_2r(x, y);
    x = fr_add_2r(x, y);
    y = difference;
}

// Whether any thread of the warp needs a multiplication: all of them do it or none, so that they stay together.
CUZK_HD bool any_thread(bool needs)
{
#if defined(__CUDA_ARCH__)
    return __any_sync(__activemask(), needs);
#else
    return needs;
#endif
}

// x[i] = x[i] w for one, two or four elements, one after the other.
CUZK_HD void scale(Fr (&x)[8], int first, int count, const Fr &w)
{
    CUZK_UNROLL
    for (int i = first; i < first + count; i++) {
        one_at_a_time();
        x[i] = fr_mul_2r(w, x[i]);
    }
}

// Three levels of eight elements, of which the first `skipped` are done: block b, its halves 2b and 2b + 1, and
// its quarters. Warps all of whose blocks are 0 do not multiply by W[0] = 1.
template <bool COMPUTED>
CUZK_HD void round_to_bit_reversed(Fr (&x)[8], const Twiddles &table, uint32_t b, uint32_t skipped)
{
    bool nontrivial = any_thread(b != 0);
    if (skipped < 1) {
        if (nontrivial)
            scale(x, 4, 4, twiddle<COMPUTED>(table, b));
        CUZK_UNROLL
        for (int i = 0; i < 4; i++)
            butterfly(x[i], x[i + 4]);
    }
    if (skipped < 2) {
        CUZK_UNROLL
        for (int half = 0; half < 2; half++) {
            one_at_a_time();
            if (half != 0 || nontrivial)
                scale(x, 4 * half + 2, 2, twiddle<COMPUTED>(table, 2 * b + half));
            butterfly(x[4 * half], x[4 * half + 2]);
            butterfly(x[4 * half + 1], x[4 * half + 3]);
        }
    }
    CUZK_UNROLL
    for (int quarter = 0; quarter < 4; quarter++) {
        one_at_a_time();
        if (quarter != 0 || nontrivial)
            scale(x, 2 * quarter + 1, 1, twiddle<COMPUTED>(table, 4 * b + quarter));
        butterfly(x[2 * quarter], x[2 * quarter + 1]);
    }
}

// The transpose of round_to_bit_reversed.
template <bool COMPUTED>
CUZK_HD void round_from_bit_reversed(Fr (&x)[8], const Twiddles &table, uint32_t b, uint32_t skipped)
{
    bool nontrivial = any_thread(b != 0);
    CUZK_UNROLL
    for (int quarter = 0; quarter < 4; quarter++) {
        one_at_a_time();
        butterfly(x[2 * quarter], x[2 * quarter + 1]);
        if (quarter != 0 || nontrivial)
            scale(x, 2 * quarter + 1, 1, twiddle<COMPUTED>(table, 4 * b + quarter));
    }
    if (skipped < 2) {
        CUZK_UNROLL
        for (int half = 0; half < 2; half++) {
            one_at_a_time();
            butterfly(x[4 * half], x[4 * half + 2]);
            butterfly(x[4 * half + 1], x[4 * half + 3]);
            if (half != 0 || nontrivial)
                scale(x, 4 * half + 2, 2, twiddle<COMPUTED>(table, 2 * b + half));
        }
    }
    if (skipped < 1) {
        one_at_a_time();
        CUZK_UNROLL
        for (int i = 0; i < 4; i++)
            butterfly(x[i], x[i + 4]);
        if (nontrivial)
            scale(x, 4, 4, twiddle<COMPUTED>(table, b));
    }
}

// Where a block's tile lies. A place within the tile ("local") has the bits [blocks | row | column]: the lowest
// `column_log2` select among adjacent columns of one block, the next `num_levels` the row; what the tile has beyond
// that are whole blocks, side by side or 2^block_step_log2 apart (only in the last pass, whose rows are adjacent
// places).
struct Tile {
    uint32_t stride_log2, num_levels, column_log2, block_step_log2;
    // The tile's first block of the pass's first level, and the tile's first column within a block.
    uint32_t first_block, first_column;

    CUZK_HD Tile(uint32_t domain_log2, uint32_t first_level, uint32_t levels, uint32_t tile_log2, uint32_t tile)
    {
        stride_log2 = domain_log2 - first_level - levels;
        num_levels = levels;
        block_step_log2 = 0;
        uint32_t columns_log2 = tile_log2 - levels;
        column_log2 = stride_log2 < columns_log2 ? stride_log2 : columns_log2;
        uint32_t tiles_per_block_log2 = stride_log2 - column_log2;
        first_block = tile >> tiles_per_block_log2 << (columns_log2 - column_log2);
        first_column = (tile & ((1u << tiles_per_block_log2) - 1)) << column_log2;
    }

    // The last pass's tile whose blocks are as far apart as can be: in bit-reversed order their equal rows are
    // neighbours.
    static CUZK_HD Tile spread(uint32_t domain_log2, uint32_t levels, uint32_t tile_log2, uint32_t tile)
    {
        Tile result(domain_log2, domain_log2 - levels, levels, tile_log2, 0);
        result.block_step_log2 = domain_log2 - tile_log2;
        result.first_block = tile;
        return result;
    }

    // The block, `start` levels into the pass, of a local place from which all but the block's bits are cut off.
    CUZK_HD uint32_t block(uint32_t local_block, uint32_t start) const
    {
        uint32_t row = local_block & ((1u << start) - 1);
        return (((local_block >> start) << block_step_log2) + first_block) << start | row;
    }

    // The place in the vector.
    CUZK_HD uint32_t place(uint32_t local) const
    {
        uint32_t column = local & ((1u << column_log2) - 1);
        return (block(local >> column_log2, num_levels) << stride_log2) + first_column + column;
    }
};

// A mapping gives thread t the local places {high(t), e, low(t)}, e = 0..7 in the bits [shift, shift + 3).
CUZK_HD uint32_t local_place(uint32_t thread, uint32_t shift)
{
    return (thread >> shift << (shift + 3)) | (thread & ((1u << shift) - 1));
}

// Shared memory is two planes of 16-byte halves. Eight neighbouring threads, which are served together, touch eight
// different bank groups in every mapping: xor with three sums of higher bits makes it so for the shifts 0, 1 and 2
// and for rows read across a tile's blocks (passes of 6 to 9 levels in tiles of 2^11).
CUZK_HD uint32_t swizzled(uint32_t local)
{
    return local ^ (((local >> 3) ^ (local >> 5) ^ (local >> 8)) & 7);
}

// `value`, which the compiler takes for a new one each time, and the numbers of the thread and its block: what is
// computed from them is computed where it is needed and does not stay in registers over the rounds, which need all
// there are.
CUZK_HD uint32_t anew(uint32_t value)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mov.u32 %0, %0;" : "+r"(value));
#endif
    return value;
}

CUZK_HD uint32_t thread_number()
{
#if defined(__CUDA_ARCH__)
    uint32_t number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
#else
    return threadIdx.x;
#endif
}

CUZK_HD uint32_t block_number()
{
#if defined(__CUDA_ARCH__)
    uint32_t number;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(number));
    return number;
#else
    return blockIdx.x;
#endif
}

// A pass within its tile, by 2^(tile_log2 - 3) threads with 32 << tile_log2 bytes of shared memory.
// 3 <= num_levels <= tile_log2 <= min(10, domain_log2), and stride 1 or at least the tile's columns.
// SPREAD: in tiles of blocks far apart (Tile::spread).
template <bool SPREAD = false>
struct TilePass {
    // The kernel's parameters.
    uint32_t domain_log2, first_level, num_levels, tile_log2;
    uint4 *shared;

    CUZK_HD TilePass(uint4 *shared_tile, uint32_t domain_log2, uint32_t first_level, uint32_t num_levels,
                     uint32_t tile_log2)
        : domain_log2(domain_log2), first_level(first_level), num_levels(num_levels), tile_log2(tile_log2),
          shared(shared_tile)
    {
    }

    CUZK_HD Tile tile() const
    {
        if (SPREAD)
            return Tile::spread(anew(domain_log2), anew(num_levels), anew(tile_log2), block_number());
        return Tile(anew(domain_log2), anew(first_level), anew(num_levels), anew(tile_log2), block_number());
    }

    // Round r starts at level `start(r)` of the pass, whose first `skipped(r)` levels belong to the round before.
    CUZK_HD uint32_t last_round() const { return (anew(num_levels) + NTT_ROUND_LEVELS - 1) / NTT_ROUND_LEVELS - 1; }
    template <bool TO_BIT_REVERSED>
    CUZK_HD uint32_t first_round() const
    {
        return TO_BIT_REVERSED ? 0 : last_round();
    }
    CUZK_HD uint32_t start(uint32_t round) const
    {
        uint32_t wanted = NTT_ROUND_LEVELS * round, last = anew(num_levels) - NTT_ROUND_LEVELS;
        return wanted < last ? wanted : last;
    }
    CUZK_HD uint32_t skipped(uint32_t round) const { return NTT_ROUND_LEVELS * round - start(round); }
    CUZK_HD uint32_t round_shift(uint32_t round) const
    {
        return tile().column_log2 + anew(num_levels) - NTT_ROUND_LEVELS - start(round);
    }

    // The mapping for global memory before or after a round: where rows are adjacent places, the one that has a
    // warp on adjacent places.
    CUZK_HD uint32_t memory_shift(uint32_t round) const
    {
        return first_level + num_levels == domain_log2 ? tile_log2 - 3 : round_shift(round);
    }

    // The tile's place of the thread's first element in a mapping.
    CUZK_HD uint32_t first_local(uint32_t shift) const { return local_place(thread_number(), shift); }

    CUZK_HD void set(uint32_t swizzled_place, const Fr &value)
    {
        const uint32_t *limb = value.limb;
        shared[swizzled_place] = uint4{limb[0], limb[1], limb[2], limb[3]};
        shared[swizzled_place + (1u << tile_log2)] = uint4{limb[4], limb[5], limb[6], limb[7]};
    }

    CUZK_HD Fr get(uint32_t swizzled_place) const
    {
        uint4 low = shared[swizzled_place], high = shared[swizzled_place + (1u << tile_log2)];
        return Fr{{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    }

    CUZK_HD void put(const Fr (&x)[8], uint32_t shift)
    {
        uint32_t base = swizzled(first_local(shift));
        CUZK_UNROLL
        for (uint32_t e = 0; e < NTT_ELEMENTS; e++)
            set(base ^ swizzled(e << shift), x[e]);
    }

    CUZK_HD void get_all(Fr (&x)[8], uint32_t shift) const
    {
        uint32_t base = swizzled(first_local(shift));
        CUZK_UNROLL
        for (uint32_t e = 0; e < NTT_ELEMENTS; e++)
            x[e] = get(base ^ swizzled(e << shift));
    }

    // From one mapping to another. Writes only what this thread read in the exchange before, hence one barrier.
    CUZK_HD void exchange(Fr (&x)[8], uint32_t from, uint32_t to)
    {
        if (from == to)
            return;
        put(x, from);
        __syncthreads();
        get_all(x, to);
    }

    // Calls visit(e, place in the vector) for the thread's elements in a mapping. The tile's blocks, if there are
    // several, must be side by side.
    template <class Visit>
    CUZK_HD void for_each_place(uint32_t shift, Visit visit) const
    {
        Tile where = tile();
        uint32_t first = where.place(first_local(shift));
        uint32_t step_log2 = shift - where.column_log2 + where.stride_log2;
        CUZK_UNROLL
        for (uint32_t e = 0; e < NTT_ELEMENTS; e++)
            visit(e, first + (e << step_log2));
    }

    // All rounds, from the first one's mapping for memory, or with !FROM_MEMORY from its own, to the last one's own.
    template <bool TO_BIT_REVERSED, bool COMPUTED, bool FROM_MEMORY = true>
    CUZK_HD void run(Fr (&x)[8], const Twiddles &table)
    {
#if defined(__CUDACC__)
#pragma unroll 1
#endif
        for (uint32_t i = 0; i <= last_round(); i++) {
            uint32_t round = TO_BIT_REVERSED ? i : last_round() - i;
            uint32_t shift = round_shift(round);
            if (i != 0)
                exchange(x, round_shift(TO_BIT_REVERSED ? round - 1 : round + 1), shift);
            else if (FROM_MEMORY)
                exchange(x, memory_shift(round), shift);
            uint32_t block = tile().block(thread_number() >> shift, start(round));
            if (TO_BIT_REVERSED)
                round_to_bit_reversed<COMPUTED>(x, table, block, skipped(round));
            else
                round_from_bit_reversed<COMPUTED>(x, table, block, skipped(round));
        }
    }

    // Replaces each of the thread's elements by visit(element, its place in the vector), where visit is
    // make_visit(the first place), one after the other through shared memory: little code and few registers. In the
    // mapping of `round`, after an exchange into it or before any.
    template <class MakeVisit>
    CUZK_HD void replace_each(Fr (&x)[8], uint32_t round, MakeVisit make_visit)
    {
        uint32_t shift = round_shift(round);
        put(x, shift);
        {
            Tile where = tile();
            uint32_t local = first_local(shift), place = where.place(local);
            uint32_t step_log2 = shift - where.column_log2 + where.stride_log2;
            auto visit = make_visit(place);
#if defined(__CUDACC__)
#pragma unroll 1
#endif
            for (uint32_t e = 0; e < NTT_ELEMENTS; e++) {
                uint32_t at = swizzled(local | e << shift);
                set(at, visit(get(at), place + (e << step_log2)));
            }
        }
        get_all(x, shift);
    }

    // From the mapping of `round` to its mapping for memory.
    CUZK_HD void prepare_store(Fr (&x)[8], uint32_t round) { exchange(x, round_shift(round), memory_shift(round)); }
};

// One pass, in place.
template <bool TO_BIT_REVERSED, bool COMPUTED>
CUZK_HD void ntt_pass(Fr *values, const Twiddles &table, uint4 *shared, uint32_t domain_log2,
                      uint32_t first_level, uint32_t num_levels, uint32_t tile_log2)
{
    TilePass<> pass(shared, domain_log2, first_level, num_levels, tile_log2);
    uint32_t load_shift = pass.memory_shift(pass.template first_round<TO_BIT_REVERSED>());
    Fr x[8];
    pass.for_each_place(load_shift, [&](uint32_t e, uint32_t place) { x[e] = fr_load(values + place); });
    pass.template run<TO_BIT_REVERSED, COMPUTED>(x, table);
    uint32_t last = pass.template first_round<!TO_BIT_REVERSED>();
    pass.prepare_store(x, last);
    pass.for_each_place(pass.memory_shift(last),
                        [&](uint32_t e, uint32_t place) { fr_store(values + place, fr_subtract_once(x[e])); });
}

} // namespace cuzk
