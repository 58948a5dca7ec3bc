// Rows of A and B of a packed witness, straight to where the quotient reads them; shapes and mapping in math/spmv.cuh.
// Everything is Montgomery, n = the number of variables of the kind.
//
// Predicted for PoRep of 32 GiB on an H200 (130.3 M rows, 309 M terms in A and 130 M in B, 1.7 M dense of 130 M aux;
// 4.8 TB/s, 60 G Fr multiplications a second, about 5.5 TB/s out of the L2 cache):
//
//   spmv_expand   16 + 16 MB of bits and classes and 54 MB of dense values read, 4.17 GB written: 0.9 ms
//   spmv_rows     0.06 GB of shape read, 8.34 GB written: 1.8 ms. Beside them for each term 6 bytes of pattern, its
//                 coefficient and a bit, 4 gathers of a sector of 32 bytes, most of them L1 hits: at most 56 GB out
//                 of L2, 10 ms. One multiplication by R^2 for the warps of A in which a value is not 0 or 1, 130 M at
//                 most: 2.2 ms. The chain of a tile (place, run, id, pattern, scan, entries, bits, some 5000 cycles for each
//                 matrix at most) overlaps with those of the other tiles of a multiprocessor, three at a time:
//                 510 K tiles / (132 x 3) x 10000 / 1.8 GHz = 7 ms if nothing else were hidden. Between 7 and 16 ms,
//                 where the host needs seconds of all its cores and 8.3 GB over PCIe.
//   spmv_check    of one tile in 16: 1/16 of the same for C, and of 8.34 GB read: 0.5 ms
#include "math/spmv.cuh"

using namespace cuzk;

// values [num_inputs + num_aux]: the aux variables as scalars, behind the inputs, which are there already. bits and
// dense_variables [ceil(num_aux / 64)] words, dense [the number of dense variables], ranks [ceil(num_aux / 512)]: dense
// variables before every 512th. One thread per aux variable.
extern "C" __global__ void __launch_bounds__(256)
    spmv_expand(const uint64_t *bits, const Fr *dense, const uint64_t *dense_variables, const uint32_t *ranks,
                Fr *values, uint32_t num_inputs, uint32_t num_aux)
{
    uint32_t aux = blockIdx.x * blockDim.x + threadIdx.x;
    if (aux >= num_aux)
        return;
    uint32_t word = aux / 64, bit = aux % 64;
    uint64_t classes = dense_variables[word];
    Fr value;
    if (classes >> bit & 1) {
        uint32_t rank = ranks[word / 8] + (uint32_t)__popcll(classes & ((1ull << bit) - 1));
        for (uint32_t before = word & ~7u; before < word; before++)
            rank += (uint32_t)__popcll(dense_variables[before]);
        value = dense[rank];
    } else {
        value = bits[word] >> bit & 1 ? fr_one() : fr_zero();
    }
    values[num_inputs + aux] = value;
}

#define CUZK_SHAPE_ARGUMENTS \
    const ShapePlace *places, const ShapePattern *patterns, const Fr *coefficients, const int64_t *small_values, \
        const uint64_t *dense_variables, const ShapeRun *runs, const uint32_t *codes, const uint32_t *ids, \
        const uint16_t *indices, const uint64_t *bits, const Fr *values, uint32_t num_inputs, uint32_t num_rows
#define CUZK_SHAPE_TABLES \
    const ShapeTables shape = {places, patterns, coefficients, small_values, dense_variables, \
                               runs,   codes,    ids,          indices}; \
    const WitnessTables witness = {bits, values, num_inputs}

// a, b [at least num_rows]: A w and B w, canonical. What lies beyond num_rows is left as it is: the quotient takes it
// for zero. The shape's tables as R1csShape::fill_image makes them, which has checked every index against its table;
// values [num_inputs + the number of aux variables], bits a word for 64 of these. A block of SPMV_TILE threads per tile.
// Equals R1csShape::evaluate.
extern "C" __global__ void __launch_bounds__(SPMV_TILE, 3)
    spmv_rows(CUZK_SHAPE_ARGUMENTS, Fr *a, Fr *b)
{
    __shared__ uint2 totals[SPMV_WARPS];
    CUZK_SHAPE_TABLES;
    ShapeRow row = row_of_thread(shape, blockIdx.x, num_rows, totals);
    uint32_t index = blockIdx.x * SPMV_TILE + threadIdx.x;
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (int matrix = 0; matrix < 2; matrix++) {
        uint32_t first = matrix == 0 ? row.pattern.start : row.pattern.end[0];
        uint32_t end = matrix == 0 ? row.pattern.end[0] : row.pattern.end[1];
        Fr value = row_value(shape, witness, row, first, end);
        if (row.exists)
            (matrix == 0 ? a : b)[index] = value;
    }
}

// Which of `every` tiles a block looks at: without pattern, from the seed.
static CUZK_HD uint32_t drawn_tile(uint32_t group, uint32_t every, uint64_t seed)
{
    uint64_t x = (seed + group) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return group * every + (uint32_t)((x ^ (x >> 31)) % every);
}

// Whether a b = C w in one tile of every `every`: the first row where it is not is put into first_bad [1], which is
// 0xffffffff before. a, b as spmv_rows has made them. A block per group of `every` tiles; where the last group's draw is
// beyond the last tile, the last tile.
extern "C" __global__ void __launch_bounds__(SPMV_TILE, 3)
    spmv_check(CUZK_SHAPE_ARGUMENTS, const Fr *a, const Fr *b, uint32_t every, uint64_t seed, uint32_t *first_bad)
{
    __shared__ uint2 totals[SPMV_WARPS];
    CUZK_SHAPE_TABLES;
    uint32_t last = (num_rows - 1) / SPMV_TILE, drawn = drawn_tile(blockIdx.x, every, seed);
    uint32_t tile = drawn < last ? drawn : last;
    ShapeRow row = row_of_thread(shape, tile, num_rows, totals);
    Fr c = row_value(shape, witness, row, row.pattern.end[1], row.pattern.end[2]);
    uint32_t index = tile * SPMV_TILE + threadIdx.x;
    if (row.exists && !fr_equal(a[index] * b[index], c))
        atomicMin(first_bad, index);
}
