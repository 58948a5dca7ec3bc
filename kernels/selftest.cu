// Self-test and rate kernels.
//
// selftest_OP: one thread per case of math/selftest_ops.cuh; must equal the CPU's field and curve on every case.
// Shapes: cases [n], results [n], raw structs. Registers are not a concern here: blocks of 64 threads.
//
// rate_OP: long dependent chains per thread, whose results are written out and recomputed on the CPU for a sample
// of threads, so that a rate is only reported for right results. They measure the multiply pipe, not memory.
#include "math/selftest_ops.cuh"

using namespace cuzk;

#define CUZK_SELFTEST_KERNEL(name) \
    extern "C" __global__ void __launch_bounds__(64) \
        selftest_##name(const op_##name::In *cases, op_##name::Out *results, uint32_t n) \
    { \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; \
        if (i < n) \
            results[i] = op_##name::run(cases[i]); \
    }
CUZK_SELFTEST_OPS(CUZK_SELFTEST_KERNEL)

// Writes where nothing is mapped: an illegal address, on purpose. For the tests of recovery from a lost context.
extern "C" __global__ void selftest_fault(uint64_t address)
{
    *reinterpret_cast<volatile uint32_t *>(address) = 1;
}

// seeds [threads + 1], results [threads]. Thread t: x = seeds[t], y = seeds[t + 1]; `steps` times x = x y then
// y = y x; writes x + y. 2 `steps` multiplications per thread, each waiting for the last: only the other warps
// hide the latency, as in a point addition. 256 threads, about 48 (Fp) and 40 (Fr) registers expected.
template <class F>
static __device__ __forceinline__ void rate_mul(const F *seeds, F *results, uint32_t steps)
{
    uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    F x = seeds[t], y = seeds[t + 1];
#pragma unroll 1
    for (uint32_t i = 0; i < steps; i++) {
        x = x * y;
        y = y * x;
    }
    results[t] = x + y;
}

extern "C" __global__ void __launch_bounds__(256) rate_fp_mul(const Fp *seeds, Fp *results, uint32_t steps)
{
    rate_mul(seeds, results, steps);
}

extern "C" __global__ void __launch_bounds__(256) rate_fr_mul(const Fr *seeds, Fr *results, uint32_t steps)
{
    rate_mul(seeds, results, steps);
}

// As rate_mul with x = x^2, y = y^2 from two seeds: 2 `steps` squarings.
extern "C" __global__ void __launch_bounds__(256) rate_fp_sqr(const Fp *seeds, Fp *results, uint32_t steps)
{
    uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    Fp x = seeds[t], y = seeds[t + 1];
#pragma unroll 1
    for (uint32_t i = 0; i < steps; i++) {
        x = square(x);
        y = square(y);
    }
    results[t] = x + y;
}

// x = x y + y x in one reduction, then y likewise: 2 `steps` double products.
extern "C" __global__ void __launch_bounds__(256) rate_fp_dot(const Fp *seeds, Fp *results, uint32_t steps)
{
    uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    Fp x = seeds[t], y = seeds[t + 1];
#pragma unroll 1
    for (uint32_t i = 0; i < steps; i++) {
        x = fp_dot(x, y, y, y);
        y = fp_dot(y, x, x, x);
    }
    results[t] = x + y;
}

// The table for rate_g1_add_affine: table [n] gets points [num_points] over and over, in an order without pattern
// (a bijection of the table's index would do as well; `spread` is an odd multiplier).
extern "C" __global__ void __launch_bounds__(256)
    rate_fill_table(const G1Affine *points, uint32_t num_points, uint32_t spread, G1Affine *table, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        table[i] = points[(i * spread >> 8) % num_points];
}

// table [2^table_log2] affine points, results [threads] XYZZ. Each thread adds `steps` table entries at indices of
// a linear congruential sequence started from its number: random 96-byte gathers as in an MSM's bucket
// accumulation. 128 threads; the MSM kernel's shape.
extern "C" __global__ void __launch_bounds__(128)
    rate_g1_add_affine(const G1Affine *table, uint32_t table_log2, G1Xyzz *results, uint32_t steps)
{
    uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = t * 2654435761u + 12345u;
    G1Xyzz sum = xyzz_identity<Fp>();
#pragma unroll 1
    for (uint32_t i = 0; i < steps; i++) {
        state = state * 1664525u + 1013904223u;
        xyzz_add_affine(sum, table[state >> (32 - table_log2)]);
    }
    results[t] = sum;
}
