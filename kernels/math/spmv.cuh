// Rows of a circuit's matrices times a packed witness, from the compact shape; src/groth16/shape.rs explains the shape,
// shape/image.rs how it lies in memory, and shape/evaluate.rs is what every value must equal.
//
// A tile is SPMV_TILE rows, one thread each, in the rows' own order, so that results are stored side by side. The tile's
// place says which run it begins in and the anchors of the row before; a row's anchors are those plus the sum of the
// steps up to it, a scan over the block. Rows that repeat each other many times lie far apart, but neighbours in one
// repetition are neighbours in the next: patterns and their entries (a few MB of a PoRep of 32 GiB) and the bits (16 MB)
// are read from the L2 cache.
#pragma once

#include "fr.cuh"

namespace cuzk {

constexpr uint32_t SPMV_TILE = 256;
// Longer rows are summed by a whole warp. One row in a thousand has hundreds of terms, and a third of all terms are in
// such rows.
constexpr uint32_t SPMV_LONG = 32;
constexpr uint32_t SPMV_WARPS = SPMV_TILE / 32;
constexpr uint32_t SPMV_ALL_LANES = 0xffffffffu;

// Codes of columns: input 0, which is one; INPUT | distance to the input anchor; distance to the aux anchor.
constexpr uint32_t SPMV_CODE_ONE = 0xffffffffu;
constexpr uint32_t SPMV_CODE_INPUT = 1u << 31;

struct alignas(16) ShapePlace {
    uint32_t run, offset, aux, input;
};
struct alignas(16) ShapePattern {
    uint32_t start, end[3];
    uint32_t aux_step, input_step, is_small, unused;
};
struct alignas(8) ShapeRun {
    uint32_t start, length;
};
static_assert(sizeof(ShapePlace) == 16 && sizeof(ShapePattern) == 32 && sizeof(ShapeRun) == 8,
              "src/groth16/shape/image.rs relies on these sizes");

struct ShapeTables {
    const ShapePlace *places;
    const ShapePattern *patterns;
    const Fr *coefficients;
    const int64_t *small_values;
    const uint64_t *dense_variables;
    const ShapeRun *runs;
    const uint32_t *codes;
    const uint32_t *ids;
    const uint16_t *indices;
};

struct WitnessTables {
    // A bit per aux variable, 0 where it is dense.
    const uint64_t *bits;
    // Every variable, inputs first.
    const Fr *values;
    uint32_t num_inputs;
};

CUZK_HD bool bit_at(const uint64_t *words, uint32_t index)
{
    return words[index / 64] >> (index % 64) & 1;
}

// A thread's row: its pattern and where its variables lie. A thread beyond the last row has an empty one.
struct ShapeRow {
    ShapePattern pattern;
    uint32_t aux, input;
    bool exists;
};

// The rows of a tile, one per thread; all threads of the block come here. `totals` is shared, a uint2 for each warp.
CUZK_HD ShapeRow row_of_thread(const ShapeTables &shape, uint32_t tile, uint32_t num_rows, uint2 *totals)
{
    uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    uint32_t left = num_rows - tile * SPMV_TILE;
    uint32_t count = left < SPMV_TILE ? left : SPMV_TILE;
    ShapeRow row;
    row.pattern = ShapePattern{};
    row.exists = thread < count;
    ShapePlace place = shape.places[tile];
    // Every thread walks the same runs, one in most tiles. They hold all rows, so there is no walking past the last.
    uint32_t offset = place.offset;
    for (uint32_t covered = 0, r = place.run; covered < count; r++) {
        ShapeRun run = shape.runs[r];
        uint32_t taken = run.length - offset, wanted = count - covered;
        taken = taken < wanted ? taken : wanted;
        if (thread >= covered && thread < covered + taken)
            row.pattern = shape.patterns[shape.ids[run.start + offset + (thread - covered)]];
        covered += taken;
        offset = 0;
    }
    // Inclusive sums of the steps, modulo 2^32 as on the host.
    uint32_t aux = row.pattern.aux_step, input = row.pattern.input_step;
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t aux_before = __shfl_up_sync(SPMV_ALL_LANES, aux, distance);
        uint32_t input_before = __shfl_up_sync(SPMV_ALL_LANES, input, distance);
        aux += lane >= distance ? aux_before : 0;
        input += lane >= distance ? input_before : 0;
    }
    if (lane == 31)
        totals[warp] = uint2{aux, input};
    __syncthreads();
    row.aux = place.aux + aux;
    row.input = place.input + input;
    for (uint32_t w = 0; w < warp; w++) {
        row.aux += totals[w].x;
        row.input += totals[w].y;
    }
    return row;
}

// Terms first, first + stride, ... below end: small coefficients, and no variables but one and bits. As on the host,
// sums stay below 2^52.
CUZK_HD int64_t small_sum(const ShapeTables &shape, const uint64_t *bits, uint32_t aux, uint32_t first, uint32_t end)
{
    int64_t sum = 0;
    for (uint32_t k = first; k < end; k++) {
        uint32_t code = shape.codes[k];
        int64_t value = shape.small_values[shape.indices[k]];
        bool is_set = code == SPMV_CODE_ONE || bit_at(bits, aux - code);
        sum += is_set ? value : 0;
    }
    return sum;
}

// What a term adds; false if it is nothing. Coefficient 0 is 1, and 1 is -1.
CUZK_HD bool term_of(const ShapeTables &shape, const WitnessTables &witness, const ShapeRow &row, uint32_t k, Fr &term)
{
    uint32_t code = shape.codes[k], index = shape.indices[k];
    const Fr *value = nullptr;
    bool is_set = true;
    if (code != SPMV_CODE_ONE) {
        if (code & SPMV_CODE_INPUT) {
            value = witness.values + (row.input - (code ^ SPMV_CODE_INPUT));
        } else {
            uint32_t aux = row.aux - code;
            if (bit_at(shape.dense_variables, aux))
                value = witness.values + witness.num_inputs + aux;
            else
                is_set = bit_at(witness.bits, aux);
        }
    }
    if (!is_set)
        return false;
    if (value == nullptr) {
        term = shape.coefficients[index];
    } else {
        term = *value;
        if (index == 1)
            term = fr_neg(term);
        else if (index != 0)
            term = shape.coefficients[index] * term;
    }
    return true;
}

CUZK_HD Fr field_sum(const ShapeTables &shape, const WitnessTables &witness, const ShapeRow &row, uint32_t first,
                     uint32_t end, uint32_t stride)
{
    Fr sum = fr_zero();
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (uint32_t k = first; k < end; k += stride) {
        Fr term;
        if (term_of(shape, witness, row, k, term))
            sum = sum + term;
    }
    return sum;
}

// A small integer in Montgomery form. Most are 0 or 1.
CUZK_HD Fr fr_from_small(int64_t value)
{
    if (value == 0)
        return fr_zero();
    if (value == 1)
        return fr_one();
    // R^2 mod r.
    const Fr square = {{0xf3f29c6d, 0xc999e990, 0x87925c23, 0x2b6cedcb, 0x7254398f, 0x05d31496, 0x9f59ff11,
                        0x0748d9d9}};
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    Fr scaled = fr_mul(square, Fr{{(uint32_t)magnitude, (uint32_t)(magnitude >> 32)}});
    return value < 0 ? fr_neg(scaled) : scaled;
}

// The sum of a value over a warp, in all lanes.
CUZK_HD Fr warp_sum(Fr value)
{
    for (int width = 16; width > 0; width /= 2) {
        Fr other;
        CUZK_UNROLL
        for (int i = 0; i < FR_LIMBS; i++)
            other.limb[i] = __shfl_xor_sync(SPMV_ALL_LANES, value.limb[i], width);
        value = value + other;
    }
    return value;
}

// The row's terms first <= k < end of one matrix; all lanes of the warp come here, each with a row of its own.
CUZK_HD Fr row_value(const ShapeTables &shape, const WitnessTables &witness, const ShapeRow &row, uint32_t first,
                     uint32_t end)
{
    bool is_long = end - first > SPMV_LONG;
    Fr value = fr_zero();
    if (!is_long) {
        if (row.pattern.is_small)
            value = fr_from_small(small_sum(shape, witness.bits, row.aux, first, end));
        else
            value = field_sum(shape, witness, row, first, end, 1);
    }
    uint32_t longs = __ballot_sync(SPMV_ALL_LANES, is_long);
    while (longs != 0) {
        int owner = __ffs((int)longs) - 1;
        longs &= longs - 1;
        ShapeRow shared_row = row;
        shared_row.aux = __shfl_sync(SPMV_ALL_LANES, row.aux, owner);
        shared_row.input = __shfl_sync(SPMV_ALL_LANES, row.input, owner);
        uint32_t lane = threadIdx.x % 32;
        uint32_t its_first = __shfl_sync(SPMV_ALL_LANES, first, owner);
        uint32_t its_end = __shfl_sync(SPMV_ALL_LANES, end, owner);
        // In the field, whatever the coefficients: the terms' sum is the same.
        Fr sum = warp_sum(field_sum(shape, witness, shared_row, its_first + lane, its_end, 32));
        if ((int)lane == owner)
            value = sum;
    }
    return value;
}

} // namespace cuzk
