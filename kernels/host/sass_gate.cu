// One routine per kernel and nothing else, so that check.sh can count its instructions. Never run.
#include "../math/fp2.cuh"
#include "../math/fr.cuh"

using namespace cuzk;

extern "C" __global__ void gate_fp_mul(Fp *r, const Fp *a, const Fp *b) { *r = fp_mul(*a, *b); }
extern "C" __global__ void gate_fp_sqr(Fp *r, const Fp *a) { *r = fp_sqr(*a); }
extern "C" __global__ void gate_fp_dot(Fp *r, const Fp *a, const Fp *b) { *r = fp_dot(a[0], b[0], a[1], b[1]); }
extern "C" __global__ void gate_fr_mul(Fr *r, const Fr *a, const Fr *b) { *r = fr_mul(*a, *b); }
