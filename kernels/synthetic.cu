// Scalars and points made on the device from a seed (math/synthetic.cuh), for measurements. Not used in proofs.
#include "math/synthetic.cuh"

using namespace cuzk;

// out [n], Montgomery. One thread per scalar.
extern "C" __global__ void __launch_bounds__(256)
    synthetic_scalars(Fr *out, uint64_t seed, uint32_t bits_of_1024, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = synthetic_scalar(seed, i, bits_of_1024);
}

// table [2048] multiples of the generator, out [n]; affine. One thread per point: eight additions and one inversion,
// about 570 multiplications in G1. Speed is no concern beyond a few seconds for 2^26 points.
extern "C" __global__ void __launch_bounds__(128)
    synthetic_points_g1(const G1Affine *table, G1Affine *out, uint64_t seed, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = synthetic_point(table, seed, i);
}

extern "C" __global__ void __launch_bounds__(128)
    synthetic_points_g2(const G2Affine *table, G2Affine *out, uint64_t seed, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = synthetic_point(table, seed, i);
}
