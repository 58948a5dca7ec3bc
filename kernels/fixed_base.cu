// Points of a setup: known scalars times one base (math/fixed_base.cuh), and their form in parameter files.
//
// For an H200 and windows of 16 bits: 16 additions of 2658 w in G1, three eighths of an inversion's worth of products, some
// 45,000 w for each point; 8.36 T w/s give 180 M points a second, of which the additions' gathers (96 bytes, from a table of
// 50 MB, half of it in the L2 cache) take less than a third. Parameters of PoRep of 32 GiB have 427 M points in G1 and 33 M in
// G2: 2.4 and 0.6 s at the pipe's full rate, where their way to a file takes a minute.
#include "math/fixed_base.cuh"

using namespace cuzk;

// out [n]: scalars [n] (Montgomery) times the base of the table, affine, canonical. The table has num_windows windows of
// window_bits, as FixedBase makes them; scratch [n]. One thread per FIXED_BASE_POINTS scalars, or any other number: neighbours
// take neighbouring scalars.
extern "C" __global__ void __launch_bounds__(128)
    fixed_base_g1(const G1Affine *table, const Fr *scalars, FixedBaseScratch<Fp> *scratch, G1Affine *out,
                  uint32_t window_bits, uint32_t num_windows, uint32_t n)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    fixed_base_multiples(table, scalars, scratch, out, window_bits, num_windows, thread, gridDim.x * blockDim.x, n);
}

extern "C" __global__ void __launch_bounds__(128)
    fixed_base_g2(const G2Affine *table, const Fr *scalars, FixedBaseScratch<Fp2> *scratch, G2Affine *out,
                  uint32_t window_bits, uint32_t num_windows, uint32_t n)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    fixed_base_multiples(table, scalars, scratch, out, window_bits, num_windows, thread, gridDim.x * blockDim.x, n);
}

// out [12 n]: coordinates [n] as parameter files hold them. In G2 (swapped = 1) c1 goes before c0. One thread per
// coordinate; memory-bound, 96 bytes each.
extern "C" __global__ void __launch_bounds__(256)
    fixed_base_encode(const Fp *coordinates, uint32_t *out, uint32_t swapped, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        encode_coordinate(coordinates[i ^ swapped], out + 12 * (size_t)i);
}
