// The quotient's pointwise steps within the passes of its transforms; src/groth16/domain.rs has the algebra. All
// values Montgomery, n = 2^domain_log2, the coset's generator g the root of order 2n.
//
// The twiddle table serves here too: W[p] = g^brv(p) for p < n, and W of disjoint bits is a product. What comes out of
// rounds is below 2r and thus a second factor always (fr.cuh).
#pragma once

#include "ntt.cuh"

namespace cuzk {

// The place of index -i in bit-reversed order, from that of i: the bits below the highest set one are complemented.
CUZK_HD uint32_t negated_place(uint32_t place)
{
    uint32_t below = place == 0 ? 0 : (1u << (31 - __clz((int)place))) - 1;
    return place ^ below;
}

CUZK_HD uint32_t reversed_bits(uint32_t value, uint32_t bits)
{
    return bits == 0 ? 0 : __brev(value) >> (32 - bits);
}

// The first pass to bit-reversed order, from row values: those beyond num_rows count as zero; with a factor they are
// multiplied by its rows. `out` may be `rows`.
CUZK_HD void rows_pass(const Fr *rows, const Fr *factor, Fr *out, uint32_t num_rows, const Twiddles &table,
                       uint4 *shared, uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    TilePass<> pass(shared, domain_log2, 0, num_levels, tile_log2);
    Fr x[8];
    pass.for_each_place(pass.memory_shift(0), [&](uint32_t e, uint32_t place) {
        x[e] = place < num_rows ? fr_load(rows + place) : fr_zero();
    });
    if (factor != nullptr)
        pass.replace_each(x, 0, [=](uint32_t) {
            return [=](const Fr &value, uint32_t place) {
                return place < num_rows ? fr_load(factor + place) * value : value;
            };
        });
    pass.run<true, false>(x, table);
    pass.prepare_store(x, pass.last_round());
    pass.for_each_place(pass.memory_shift(pass.last_round()),
                        [&](uint32_t e, uint32_t place) { fr_store(out + place, fr_subtract_once(x[e])); });
}

// The last pass to bit-reversed order, the shift to the coset, and the first pass from bit-reversed order. Between
// the two place p holds n times the coefficient of X^j, j = brv(negated p), and wants the factor g^j = W[negated p].
template <bool COMPUTED>
CUZK_HD void turn_at_coefficients(Fr *values, const Twiddles &table, uint4 *shared, uint32_t domain_log2,
                                  uint32_t first_level, uint32_t tile_log2)
{
    uint32_t num_levels = domain_log2 - first_level;
    TilePass<> pass(shared, domain_log2, first_level, num_levels, tile_log2);
    Fr x[8];
    pass.for_each_place(pass.memory_shift(0), [&](uint32_t e, uint32_t place) { x[e] = fr_load(values + place); });
    pass.run<true, COMPUTED>(x, table);
    // All of a thread's places have the same bits but the lowest three; those bits' part of the twiddle is common.
    pass.replace_each(x, pass.last_round(), [&](uint32_t first) {
        Fr common = twiddle<true>(table, negated_place(first) & ~7u);
        return [=](const Fr &value, uint32_t place) {
            return (fr_load(table.low + (negated_place(place) & 7)) * common) * value;
        };
    });
    pass.run<false, COMPUTED, false>(x, table);
    pass.prepare_store(x, 0);
    pass.for_each_place(pass.memory_shift(0), [&](uint32_t e, uint32_t place) { fr_store(values + place, fr_subtract_once(x[e])); });
}

// The last pass of a from bit-reversed order, a = a b, and the first pass of a to bit-reversed order.
CUZK_HD void turn_at_values(Fr *a, const Fr *b, const Twiddles &table, uint4 *shared, uint32_t domain_log2,
                            uint32_t num_levels, uint32_t tile_log2)
{
    TilePass<> pass(shared, domain_log2, 0, num_levels, tile_log2);
    Fr x[8];
    pass.for_each_place(pass.memory_shift(pass.last_round()),
                        [&](uint32_t e, uint32_t place) { x[e] = fr_load(a + place); });
    pass.run<false, false>(x, table);
    pass.replace_each(x, 0, [=](uint32_t) {
        return [=](const Fr &value, uint32_t place) { return fr_load(b + place) * value; };
    });
    pass.run<true, false, false>(x, table);
    pass.prepare_store(x, pass.last_round());
    pass.for_each_place(pass.memory_shift(pass.last_round()),
                        [&](uint32_t e, uint32_t place) { fr_store(a + place, fr_subtract_once(x[e])); });
}

// The last pass to bit-reversed order with its results in natural order: a tile is spread over the vector, so that
// equal rows of its blocks are neighbours there. This part leaves the results in shared memory.
template <bool COMPUTED>
CUZK_HD TilePass<true> spread_pass(const Fr *values, const Twiddles &table, uint4 *shared, uint32_t domain_log2,
                             uint32_t num_levels, uint32_t tile_log2)
{
    TilePass<true> pass(shared, domain_log2, domain_log2 - num_levels, num_levels, tile_log2);
    Tile tile = pass.tile();
    uint32_t shift = pass.memory_shift(0), first = pass.first_local(shift);
    Fr x[8];
    CUZK_UNROLL
    for (uint32_t e = 0; e < NTT_ELEMENTS; e++)
        x[e] = fr_load(values + tile.place(first | e << shift));
    pass.run<true, COMPUTED>(x, table);
    pass.put(x, pass.round_shift(pass.last_round()));
    __syncthreads();
    return pass;
}

// The tile's place of the first of a thread's results: thread t takes block t mod 2^columns_log2, and of its rows
// every 2^(num_levels - 3)-th.
CUZK_HD uint32_t first_spread_result(const TilePass<true> &pass)
{
    uint32_t columns_log2 = pass.tile_log2 - pass.num_levels, thread = thread_number();
    uint32_t block = thread & ((1u << columns_log2) - 1);
    return block << pass.num_levels | thread >> columns_log2;
}

// Calls visit(result, its place) for the thread's results of a spread pass.
template <class Visit>
CUZK_HD void for_each_spread_result(const TilePass<true> &pass, Visit visit)
{
    Tile tile = pass.tile();
    uint32_t first = first_spread_result(pass);
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint32_t e = 0; e < NTT_ELEMENTS; e++) {
        uint32_t local = first | e << (pass.num_levels - 3);
        visit(pass.get(swizzled(local)), tile.place(local));
    }
}

// c's last pass: at place p it has n c_i for i = brv(negated p), and writes h_i = c_i / 2. scale = 1/(2n).
template <bool COMPUTED>
CUZK_HD void last_pass_of_rows(const Fr *c, Fr *h, const Twiddles &table, uint4 *shared, uint32_t domain_log2,
                               uint32_t first_level, uint32_t tile_log2, const Fr &scale)
{
    TilePass<true> pass =
        spread_pass<COMPUTED>(c, table, shared, domain_log2, domain_log2 - first_level, tile_log2);
    for_each_spread_result(pass, [&](const Fr &x, uint32_t place) {
        fr_store(h + reversed_bits(negated_place(place), domain_log2), scale * x);
    });
}

// The product's last pass: at place p it has n^3 g^i P_i for i = brv(p), and adds -P_i / 2 to h_i. g^-i is W[0] = 1
// for p = 0, otherwise -W[negated p]. scale = 1/(2 n^3).
template <bool COMPUTED>
CUZK_HD void last_pass_of_product(const Fr *product, Fr *h, const Twiddles &table, uint4 *shared,
                                  uint32_t domain_log2, uint32_t first_level, uint32_t tile_log2, const Fr &scale)
{
    TilePass<true> pass =
        spread_pass<COMPUTED>(product, table, shared, domain_log2, domain_log2 - first_level, tile_log2);
    // All of a thread's places have the same bits above the row's; their part of the twiddle is common.
    uint32_t row_mask = (1u << pass.num_levels) - 1;
    uint32_t upper = pass.tile().place(first_spread_result(pass)) & ~row_mask;
    Fr common = twiddle<true>(table, negated_place(upper) & ~row_mask) * scale;
    for_each_spread_result(pass, [&](const Fr &x, uint32_t place) {
        Fr shifted = (fr_load(table.low + (negated_place(place) & row_mask)) * common) * x;
        Fr *to = h + reversed_bits(place, domain_log2);
        fr_store(to, place == 0 ? fr_load(to) - shifted : fr_load(to) + shifted);
    });
}

} // namespace cuzk
