// Transforms of points of G1: Y_k = sum_i w^ik X_i over the group, n = 2^domain_log2, in place over XYZZ points, natural
// order in and bit-reversed order out, as `ntt_to_bit_reversed` does over the field. What src/groth16/fold/transform.rs does
// on the host. Read at negated indices it is the inverse transform, but for 1/n.
//
//   fold_load      affine points, and their weights, -> XYZZ
//   fold_level     one level of butterflies: (x, y) -> (x + w y, x - w y)
//   fold_store     XYZZ -> affine, in natural order, negated
//
// A transform is (n/2 log2 n - n) multiplications of points by twiddles, of about 570,000 w (math/fold.cuh), and all else is
// small: 105 T w at 2^24, 12.5 s of an H200's multiply pipe; 1.0 P w at 2^27, two minutes.
#include "math/fold.cuh"
#include "math/ntt.cuh"

using namespace cuzk;

constexpr uint32_t FOLD_THREADS = 128;

// points [num_points] affine, values [n]; point i is value first + i. Values from num_values on become the identity, for
// i < count. With weights point j = first + i is multiplied by j / n^2: scale = 1/n^2, Montgomery twice over, in words.
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3)
    fold_load(const G1Affine *points, uint32_t num_points, G1Xyzz *values, uint32_t first, uint32_t count, uint32_t weighted,
              uint64_t s0, uint64_t s1, uint64_t s2, uint64_t s3)
{
    uint32_t i = blockIdx.x * FOLD_THREADS + threadIdx.x;
    if (i >= count)
        return;
    G1Xyzz value = i < num_points ? xyzz_from_affine(points[i]) : xyzz_identity<Fp>();
    if (weighted) {
        Fr scale = Fr{{(uint32_t)s0, (uint32_t)(s0 >> 32), (uint32_t)s1, (uint32_t)(s1 >> 32), (uint32_t)s2,
                       (uint32_t)(s2 >> 32), (uint32_t)s3, (uint32_t)(s3 >> 32)}};
        value = xyzz_multiply(value, fr_mul(scale, Fr{{first + i}}));
    }
    values[first + i] = value;
}

// Butterflies first .. first + count of level `level`, of n/2: block b has those from b 2^half_log2 on, and the twiddle W[b].
// values [n]. One thread each: a multiplication of a point, but in block 0, and two additions.
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3)
    fold_level(G1Xyzz *values, const Fr *low, const Fr *high, uint32_t low_log2, uint32_t half_log2, uint32_t first,
               uint32_t count)
{
    uint32_t i = blockIdx.x * FOLD_THREADS + threadIdx.x;
    if (i >= count)
        return;
    uint32_t butterfly = first + i, block = butterfly >> half_log2;
    uint32_t offset = butterfly & ((1u << half_log2) - 1);
    G1Xyzz *x = values + ((uint64_t)block << (half_log2 + 1) | offset), *y = x + (1u << half_log2);
    G1Xyzz right = *y;
    if (block != 0)
        right = xyzz_multiply(right, twiddle<true>(Twiddles{low, high, low_log2}, block));
    G1Xyzz left = *x, sum = left;
    xyzz_add_call(sum, right);
    *x = sum;
    right.y = negate(right.y);
    xyzz_add_call(left, right);
    *y = left;
}

// out [count]: result first + i in natural order, negated: of a forward transform the inverse one's. One inversion each.
extern "C" __global__ void __launch_bounds__(FOLD_THREADS)
    fold_store(const G1Xyzz *values, uint32_t domain_log2, G1Affine *out, uint32_t first, uint32_t count)
{
    uint32_t i = blockIdx.x * FOLD_THREADS + threadIdx.x;
    if (i >= count)
        return;
    uint32_t index = (0u - (first + i)) & ((1u << domain_log2) - 1);
    uint32_t place = domain_log2 == 0 ? 0 : __brev(index) >> (32 - domain_log2);
    out[i] = xyzz_to_affine(values[place]);
}
