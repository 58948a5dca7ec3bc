// The number-theoretic transform over Fr: twiddle tables and passes (math/ntt.cuh). All values Montgomery.
//
// Without ptxas' higher levels of optimization the passes need 102 registers, not 128, and take 3 % less time (H200,
// benches/RESULTS.md): those start one multiplication before another has ended, which other warps do as well.
// nvcc: -Xptxas -O1
#include "math/ntt_tables.cuh"

using namespace cuzk;

// One pass of a transform, in place. values [2^domain_log2]; low [2^low_log2] and high [2^(domain_log2 - low_log2)]
// the twiddles. Grid: 2^(domain_log2 - tile_log2) blocks of 2^(tile_log2 - 3) threads, 32 << tile_log2 bytes of
// shared memory; 3 <= num_levels <= tile_log2 <= min(10, domain_log2). The `far` kernels multiply two table entries
// where a block's number has more than low_log2 bits; the others need 2^(first_level + num_levels - 1) entries.
// Reads and writes every value once: 64 bytes and num_levels/2 multiplications per element. 102 to 109 registers.
#define CUZK_NTT_KERNEL(name, to_bit_reversed, computed) \
    extern "C" __global__ void __launch_bounds__(NTT_MAX_THREADS, NTT_MIN_BLOCKS) \
        name(Fr *values, const Fr *low, const Fr *high, uint32_t low_log2, uint32_t domain_log2, \
             uint32_t first_level, uint32_t num_levels, uint32_t tile_log2) \
    { \
        CUZK_SHARED_TILE; \
        Twiddles table{low, high, low_log2}; \
        ntt_pass<to_bit_reversed, computed>(values, table, shared_tile, domain_log2, first_level, num_levels, \
                                            tile_log2); \
    }
CUZK_NTT_KERNEL(ntt_to_bit_reversed, true, false)
CUZK_NTT_KERNEL(ntt_to_bit_reversed_far, true, true)
CUZK_NTT_KERNEL(ntt_from_bit_reversed, false, false)
CUZK_NTT_KERNEL(ntt_from_bit_reversed_far, false, true)

// Whole transforms of 1, 2 or 4 values by one thread: a tile has at least eight.
extern "C" __global__ void __launch_bounds__(32)
    ntt_tiny(Fr *values, const Fr *low, uint32_t domain_log2, uint32_t to_bit_reversed)
{
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    uint32_t n = 1u << domain_log2;
    for (uint32_t i = 0; i < domain_log2; i++) {
        uint32_t level = to_bit_reversed ? i : domain_log2 - 1 - i;
        uint32_t half = n >> level >> 1;
        for (uint32_t x = 0; x < n; x++) {
            if (x & half)
                continue;
            Fr w = low[x / (2 * half)];
            Fr left = values[x], right = values[x + half];
            if (to_bit_reversed)
                right = right * w;
            values[x] = left + right;
            values[x + half] = to_bit_reversed ? left - right : w * (left - right);
        }
    }
}

// out[b] = W[b << shift], b < 2^num_log2. Blocks of 256 threads, each block makes 2048 entries (the last one fewer).
// About two multiplications per entry, and 31 by each block's first thread.
extern "C" __global__ void __launch_bounds__(256) ntt_twiddles(Fr *out, uint32_t num_log2, uint32_t shift)
{
    __shared__ Fr roots[NUM_TWIDDLE_ROOTS];
    if (threadIdx.x == 0)
        twiddle_roots(roots);
    __syncthreads();
    uint32_t first = blockIdx.x * 2048 + threadIdx.x, n = 1u << num_log2;
    if (first >= n)
        return;
    Fr w = twiddle_from_roots(roots, first << shift);
    for (uint32_t e = 0; e < 8 && first + e * 256 < n; e++) {
        Fr factor = twiddle_from_roots(roots, e * 256 << shift);
        fr_store(out + first + e * 256, w * factor);
    }
}
