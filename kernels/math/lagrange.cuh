// The quotient in the Lagrange basis, its pointwise steps within the passes of its four transforms;
// src/groth16/domain.rs (lagrange_quotient) has the algebra. All values Montgomery, n = 2^domain_log2.
//
// t_j = (a~_j b_j + a_j b~_j) / n^2, a~ = the transform of a's coefficients times their indices. To bit-reversed order and
// back with one table leaves a~ at negated indices: what is pointwise with it reads there.
#pragma once

#include "ntt.cuh"
#include "quotient.cuh"

namespace cuzk {

// j / n^3 for place p in bit-reversed order, where j = -brv(p) mod n: the coefficient's index and what the transform before
// and the one after multiply by n too many. scale = 1/n^3, Montgomery twice over.
CUZK_HD Fr index_factor(uint32_t place, uint32_t domain_log2, const Fr &scale)
{
    uint32_t index = (0u - reversed_bits(place, domain_log2)) & ((1u << domain_log2) - 1);
    return fr_mul(scale, Fr{{index}});
}

// The last pass to bit-reversed order, each coefficient times its index, and the first pass back.
template <bool COMPUTED>
CUZK_HD void turn_at_indices(Fr *values, const Twiddles &table, uint4 *shared, uint32_t domain_log2,
                             uint32_t first_level, uint32_t tile_log2, const Fr &scale)
{
    TilePass<> pass(shared, domain_log2, first_level, domain_log2 - first_level, tile_log2);
    Fr x[8];
    pass.for_each_place(pass.memory_shift(0), [&](uint32_t e, uint32_t place) { x[e] = fr_load(values + place); });
    pass.run<true, COMPUTED>(x, table);
    pass.replace_each(x, pass.last_round(), [&](uint32_t) {
        return [&](const Fr &value, uint32_t place) { return index_factor(place, domain_log2, scale) * value; };
    });
    pass.run<false, COMPUTED, false>(x, table);
    pass.prepare_store(x, 0);
    pass.for_each_place(pass.memory_shift(0),
                        [&](uint32_t e, uint32_t place) { fr_store(values + place, fr_subtract_once(x[e])); });
}

// Where a value at a negated index lies.
CUZK_HD uint32_t negated_index(uint32_t index, uint32_t domain_log2)
{
    return (0u - index) & ((1u << domain_log2) - 1);
}

// The last pass from bit-reversed order; then values[-i] = a~_i becomes a~_i b_i. b is zero from num_rows on.
CUZK_HD void last_pass_times(Fr *values, const Fr *b, uint32_t num_rows, const Twiddles &table, uint4 *shared,
                             uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    TilePass<> pass(shared, domain_log2, 0, num_levels, tile_log2);
    Fr x[8];
    pass.for_each_place(pass.memory_shift(pass.last_round()),
                        [&](uint32_t e, uint32_t place) { x[e] = fr_load(values + place); });
    pass.run<false, false>(x, table);
    pass.replace_each(x, 0, [=](uint32_t) {
        return [=](const Fr &value, uint32_t place) {
            uint32_t row = negated_index(place, domain_log2);
            return row < num_rows ? fr_load(b + row) * value : fr_zero();
        };
    });
    pass.prepare_store(x, 0);
    pass.for_each_place(pass.memory_shift(0),
                        [&](uint32_t e, uint32_t place) { fr_store(values + place, fr_subtract_once(x[e])); });
}

// The last pass from bit-reversed order of b, whose results b~ stay nowhere: a_i = products[-i] + a_i b~_i, in natural order.
// a is zero from num_rows on.
CUZK_HD void last_pass_plus(const Fr *values, const Fr *products, Fr *a, uint32_t num_rows, const Twiddles &table,
                            uint4 *shared, uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    TilePass<> pass(shared, domain_log2, 0, num_levels, tile_log2);
    Fr x[8];
    pass.for_each_place(pass.memory_shift(pass.last_round()),
                        [&](uint32_t e, uint32_t place) { x[e] = fr_load(values + place); });
    pass.run<false, false>(x, table);
    pass.replace_each(x, 0, [=](uint32_t) {
        return [=](const Fr &value, uint32_t place) {
            uint32_t row = negated_index(place, domain_log2);
            Fr product = fr_load(products + place);
            return row < num_rows ? product + fr_load(a + row) * value : product;
        };
    });
    // A block reads the rows that it writes, and no other: all of them before the exchange, if there is one.
    pass.prepare_store(x, 0);
    pass.for_each_place(pass.memory_shift(0), [&](uint32_t e, uint32_t place) {
        fr_store(a + negated_index(place, domain_log2), fr_subtract_once(x[e]));
    });
}

} // namespace cuzk
