// The quotient in the Lagrange basis, t_j = (a~_j b_j + a_j b~_j) / n^2; src/groth16/domain.rs (lagrange_quotient) has the
// algebra. All values Montgomery, n = 2^domain_log2.
//
// The compiler's option as in ntt.cu:
// nvcc: -Xptxas -O1
//
// First the pointwise steps alone, one thread per element, for domains of a single tile; then the passes that have them
// built in (math/lagrange.cuh). The first passes, which take rows beyond the last as zero, are quotient_rows_pass.
#include "math/lagrange.cuh"

using namespace cuzk;

static CUZK_HD Fr from_words(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
    return Fr{{(uint32_t)w0, (uint32_t)(w0 >> 32), (uint32_t)w1, (uint32_t)(w1 >> 32), (uint32_t)w2,
               (uint32_t)(w2 >> 32), (uint32_t)w3, (uint32_t)(w3 >> 32)}};
}

// a, b, t [n]: t = a on the first num_rows rows; the rest of all three becomes zero.
extern "C" __global__ void __launch_bounds__(256)
    lagrange_rows(Fr *a, Fr *b, Fr *t, uint32_t num_rows, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (i < num_rows) {
        fr_store(t + i, fr_load(a + i));
        return;
    }
    fr_store(a + i, fr_zero());
    fr_store(b + i, fr_zero());
    fr_store(t + i, fr_zero());
}

// values [n] in bit-reversed order after the transform: each coefficient times its index; scale as index_factor's, in words.
extern "C" __global__ void __launch_bounds__(256)
    lagrange_indices(Fr *values, uint32_t domain_log2, uint64_t s0, uint64_t s1, uint64_t s2, uint64_t s3)
{
    uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >> domain_log2 != 0)
        return;
    Fr factor = index_factor(place, domain_log2, from_words(s0, s1, s2, s3));
    fr_store(values + place, factor * fr_load(values + place));
}

// t[-i] = a~_i becomes a~_i b_i; [n].
extern "C" __global__ void __launch_bounds__(256) lagrange_times(Fr *t, const Fr *b, uint32_t domain_log2)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >> domain_log2 == 0)
        fr_store(t + i, fr_load(b + negated_index(i, domain_log2)) * fr_load(t + i));
}

// a_i = t[-i] + a_i b~_i, where b[-i] = b~_i; [n].
extern "C" __global__ void __launch_bounds__(256)
    lagrange_plus(const Fr *b, const Fr *t, Fr *a, uint32_t domain_log2)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >> domain_log2 != 0)
        return;
    Fr *to = a + negated_index(i, domain_log2);
    fr_store(to, fr_load(t + i) + fr_load(to) * fr_load(b + i));
}

// The passes. Grid, shared memory and limits as for the passes of quotient.cu; values, b, products, a: [n].

// values = the last pass from bit-reversed order, times b.
extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS)
    lagrange_last_pass_times(Fr *values, const Fr *b, uint32_t num_rows, const Fr *low, const Fr *high,
                             uint32_t low_log2, uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    CUZK_SHARED_TILE;
    last_pass_times(values, b, num_rows, Twiddles{low, high, low_log2}, shared_tile, domain_log2, num_levels, tile_log2);
}

// a = products + a times the last pass of `values` from bit-reversed order; the result is in natural order.
extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS)
    lagrange_last_pass_plus(const Fr *values, const Fr *products, Fr *a, uint32_t num_rows, const Fr *low, const Fr *high,
                            uint32_t low_log2, uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    CUZK_SHARED_TILE;
    last_pass_plus(values, products, a, num_rows, Twiddles{low, high, low_log2}, shared_tile, domain_log2, num_levels,
                   tile_log2);
}

#define CUZK_LAGRANGE_TURN(suffix, computed) \
    /* The last pass to bit-reversed order, the indices, and the first pass back, in place; the scale in words. */ \
    extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS) \
        lagrange_turn##suffix(Fr *values, const Fr *low, const Fr *high, uint32_t low_log2, uint32_t domain_log2, \
                              uint32_t first_level, uint32_t tile_log2, uint64_t s0, uint64_t s1, uint64_t s2, \
                              uint64_t s3) \
    { \
        CUZK_SHARED_TILE; \
        turn_at_indices<computed>(values, Twiddles{low, high, low_log2}, shared_tile, domain_log2, first_level, \
                                  tile_log2, from_words(s0, s1, s2, s3)); \
    }
CUZK_LAGRANGE_TURN(, false)
CUZK_LAGRANGE_TURN(_far, true)
