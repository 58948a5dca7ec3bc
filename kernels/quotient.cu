// The quotient h = (a b - c) / Z; src/groth16/domain.rs has the algebra. All values Montgomery, n = 2^domain_log2.
//
// The compiler's option as in ntt.cu:
// nvcc: -Xptxas -O1
//
// First the pointwise steps alone, one thread per element, for domains of a single tile; then the passes that have
// them built in (math/quotient.cuh), so that none costs a round trip through memory.
#include "math/quotient.cuh"

using namespace cuzk;

static CUZK_HD Fr from_words(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
    return Fr{{(uint32_t)w0, (uint32_t)(w0 >> 32), (uint32_t)w1, (uint32_t)(w1 >> 32), (uint32_t)w2,
               (uint32_t)(w2 >> 32), (uint32_t)w3, (uint32_t)(w3 >> 32)}};
}

// a, b, c [n]: c = a b for the first num_rows rows; the rest of all three becomes zero.
extern "C" __global__ void __launch_bounds__(256)
    quotient_products(Fr *a, Fr *b, Fr *c, uint32_t num_rows, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    if (i < num_rows) {
        fr_store(c + i, fr_load(a + i) * fr_load(b + i));
        return;
    }
    fr_store(a + i, fr_zero());
    fr_store(b + i, fr_zero());
    fr_store(c + i, fr_zero());
}

// values [n] in bit-reversed order after the forward transform: place p holds n times the coefficient of X^j,
// j = brv(negated p), and is multiplied by g^j = W[negated p], g the root of order 2n.
extern "C" __global__ void __launch_bounds__(256)
    quotient_shift(Fr *values, const Fr *low, const Fr *high, uint32_t low_log2, uint32_t n)
{
    uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n)
        return;
    Fr factor = twiddle<true>(Twiddles{low, high, low_log2}, negated_place(place));
    fr_store(values + place, fr_load(values + place) * factor);
}

// a = a b, elementwise; [n].
extern "C" __global__ void __launch_bounds__(256) quotient_multiply(Fr *a, const Fr *b, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        fr_store(a + i, fr_load(a + i) * fr_load(b + i));
}

// h [n], natural order: h_i = (P_i - c_i) / -2. At place p = brv(i), product [n] holds n^3 g^i P_i, and c [n] holds
// n c_i at place negated p. g^-i is W[0] = 1 for p = 0, otherwise -W[negated p].
// product_scale = 1/(2 n^3), c_scale = 1/(2 n), as four words each.
extern "C" __global__ void __launch_bounds__(256)
    quotient_divide(const Fr *product, const Fr *c, Fr *h, const Fr *low, const Fr *high, uint32_t low_log2,
                    uint32_t domain_log2, uint64_t p0, uint64_t p1, uint64_t p2, uint64_t p3, uint64_t c0,
                    uint64_t c1, uint64_t c2, uint64_t c3)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >> domain_log2 != 0)
        return;
    uint32_t place = reversed_bits(i, domain_log2);
    uint32_t negated = negated_place(place);
    Fr product_scale = from_words(p0, p1, p2, p3), c_scale = from_words(c0, c1, c2, c3);
    Fr power = twiddle<true>(Twiddles{low, high, low_log2}, negated) * product_scale;
    Fr shifted = fr_load(product + place) * power;
    Fr rows = fr_load(c + negated) * c_scale;
    fr_store(h + i, place == 0 ? rows - shifted : rows + shifted);
}

// The passes. Grid, shared memory and limits as for ntt_to_bit_reversed, with 12 <= domain_log2; low_log2 at least
// the levels of the first and of the last pass. values, rows, factor, out, a, b, c, product, h: [n].

// out = the first pass of rows (times factor, unless null; out may be rows), zero from num_rows on.
extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS)
    quotient_rows_pass(const Fr *rows, const Fr *factor, Fr *out, uint32_t num_rows, const Fr *low, const Fr *high,
                       uint32_t low_log2, uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    CUZK_SHARED_TILE;
    rows_pass(rows, factor, out, num_rows, Twiddles{low, high, low_log2}, shared_tile, domain_log2, num_levels,
              tile_log2);
}

// a = the last pass from bit-reversed order, times b, and the first pass back.
extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS)
    quotient_turn_at_values(Fr *a, const Fr *b, const Fr *low, const Fr *high, uint32_t low_log2,
                            uint32_t domain_log2, uint32_t num_levels, uint32_t tile_log2)
{
    CUZK_SHARED_TILE;
    turn_at_values(a, b, Twiddles{low, high, low_log2}, shared_tile, domain_log2, num_levels, tile_log2);
}

#define CUZK_QUOTIENT_PASSES(suffix, computed) \
    /* The last pass to bit-reversed order, the shift to the coset, and the first pass back, in place. */ \
    extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS) \
        quotient_turn_at_coefficients##suffix(Fr *values, const Fr *low, const Fr *high, uint32_t low_log2, \
                                              uint32_t domain_log2, uint32_t first_level, uint32_t tile_log2) \
    { \
        CUZK_SHARED_TILE; \
        turn_at_coefficients<computed>(values, Twiddles{low, high, low_log2}, shared_tile, domain_log2, \
                                       first_level, tile_log2); \
    } \
    /* h = c / 2, its coefficients in natural order; the scale 1/(2 n) in words. */ \
    extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS) \
        quotient_last_pass_of_rows##suffix(const Fr *c, Fr *h, const Fr *low, const Fr *high, uint32_t low_log2, \
                                           uint32_t domain_log2, uint32_t first_level, uint32_t tile_log2, \
                                           uint64_t s0, uint64_t s1, uint64_t s2, uint64_t s3) \
    { \
        CUZK_SHARED_TILE; \
        last_pass_of_rows<computed>(c, h, Twiddles{low, high, low_log2}, shared_tile, domain_log2, first_level, \
                                    tile_log2, from_words(s0, s1, s2, s3)); \
    } \
    /* h -= P / 2; the scale 1/(2 n^3) in words. */ \
    extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS) \
        quotient_last_pass_of_product##suffix(const Fr *product, Fr *h, const Fr *low, const Fr *high, \
                                              uint32_t low_log2, uint32_t domain_log2, uint32_t first_level, \
                                              uint32_t tile_log2, uint64_t s0, uint64_t s1, uint64_t s2, \
                                              uint64_t s3) \
    { \
        CUZK_SHARED_TILE; \
        last_pass_of_product<computed>(product, h, Twiddles{low, high, low_log2}, shared_tile, domain_log2, \
                                       first_level, tile_log2, from_words(s0, s1, s2, s3)); \
    }
CUZK_QUOTIENT_PASSES(, false)
CUZK_QUOTIENT_PASSES(_far, true)
