// Runs the kernels of fold.cu on the host: a whole transform. tests/kernels_host/fold.rs gives the points.
//
//   fold_harness ORDER DOMAIN_LOG2 LOW_LOG2 WEIGHTED CHUNK < points > results
//
// ORDER is rising or falling: how the threads of a block are resumed. n - 1 affine points of G1 come, n go out. CHUNK:
// points converted, and butterflies done, by one launch.
#include "cuda_on_host.hpp"

#include "../fold.cu"
#include "../ntt.cu"

#include <string>

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: fold_harness ORDER DOMAIN_LOG2 LOW_LOG2 WEIGHTED CHUNK\n");
        return 2;
    }
    auto number = [&](int i) { return (uint32_t)std::stoul(argv[i]); };
    bool falling = strcmp(argv[1], "falling") == 0;
    uint32_t log2 = number(2), low_log2 = number(3), weighted = number(4), chunk = number(5), n = 1u << log2;
    std::vector<G1Affine> points(n - 1), results(n);
    if (!points.empty() && fread(points.data(), sizeof(G1Affine), points.size(), stdin) != points.size()) {
        fprintf(stderr, "fold_harness: the input is too short\n");
        return 2;
    }
    auto launch = [&](uint32_t count, uint32_t threads, std::function<void()> body) {
        cuda_on_host::launch({(count + threads - 1) / threads, threads, 0, falling}, body);
    };
    std::vector<Fr> low(size_t(1) << low_log2), high(size_t(1) << (log2 - low_log2));
    cuda_on_host::launch({1, 256, 0, falling}, [&] { ntt_twiddles(low.data(), low_log2, 0); });
    cuda_on_host::launch({1, 256, 0, falling}, [&] { ntt_twiddles(high.data(), log2 - low_log2, low_log2); });

    // 1/n^2 times 2^256 in Montgomery form.
    Fr half = fr_inverse(fr_one() + fr_one()), scale = fr_one();
    for (uint32_t i = 0; i < 2 * log2; i++)
        scale = scale * half;
    for (int i = 0; i < 256; i++)
        scale = scale + scale;
    auto word = [&](int i) { return scale.limb[2 * i] | (uint64_t)scale.limb[2 * i + 1] << 32; };

    std::vector<G1Xyzz> values(n);
    for (uint32_t first = 0; first < n; first += chunk) {
        uint32_t count = n - first < chunk ? n - first : chunk;
        // Exactly as long as what is there, so that a read beyond it is seen.
        size_t end = first + count < points.size() ? first + count : points.size();
        std::vector<G1Affine> part(points.begin() + (first < end ? first : end), points.begin() + end);
        launch(count, FOLD_THREADS, [&] {
            fold_load(part.data(), (uint32_t)part.size(), values.data(), first, count, weighted, word(0), word(1), word(2),
                      word(3));
        });
    }
    for (uint32_t level = 0; level < log2; level++)
        for (uint32_t first = 0; first < n / 2; first += chunk) {
            uint32_t count = n / 2 - first < chunk ? n / 2 - first : chunk;
            launch(count, FOLD_THREADS, [&] {
                fold_level(values.data(), low.data(), high.data(), low_log2, log2 - 1 - level, first, count);
            });
        }
    for (uint32_t first = 0; first < n; first += chunk) {
        uint32_t count = n - first < chunk ? n - first : chunk;
        launch(count, FOLD_THREADS, [&] { fold_store(values.data(), log2, results.data() + first, first, count); });
    }
    if (fwrite(results.data(), sizeof(G1Affine), n, stdout) != n)
        return 3;
    return fflush(stdout) == 0 ? 0 : 3;
}
