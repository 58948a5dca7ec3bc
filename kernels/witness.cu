// What a witness is made of.
//
// witness_count_dense: counter [1] += the number of values [n] (Montgomery) that are neither 0 nor 1. Most values of a
// Filecoin witness are bits; the rest decide how wide a sum's windows should be. 256 threads, any grid: each thread
// takes every (threads of the grid)-th value. Memory-bound: 32 bytes a value.
#include "math/fr.cuh"

using namespace cuzk;

extern "C" __global__ void __launch_bounds__(256)
    witness_count_dense(const Fr *values, uint64_t n, uint32_t *counter)
{
    const Fr one = fr_one();
    uint32_t count = 0;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        Fr value = values[i];
        count += !limbs_are_zero<FR_LIMBS>(value.limb) && !limbs_are_equal<FR_LIMBS>(value.limb, one.limb);
    }
    for (int width = 16; width > 0; width /= 2)
        count += __shfl_xor_sync(0xffffffffu, count, width);
    if (threadIdx.x % 32 == 0 && count != 0)
        atomicAdd(counter, count);
}
