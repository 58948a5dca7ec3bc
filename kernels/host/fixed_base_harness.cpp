// Runs the kernels of fixed_base.cu on the host. tests/kernels_host/fixed_base.rs gives tables and scalars.
//
//   fixed_base_harness GROUP WINDOW_BITS NUM_WINDOWS TABLE_POINTS NUM_SCALARS BLOCKS < table scalars > points encoded
//
// GROUP is g1 or g2. Every buffer is exactly as long as the kernels' documentation says.
#include "cuda_on_host.hpp"

#include "../fixed_base.cu"

#include <string>

namespace {

// At an address that suits a point, with nothing of it usable beyond its end.
template <class T>
struct Buffer {
    explicit Buffer(size_t length) : length(length), at((T *)operator new(length * sizeof(T) + 1, std::align_val_t(16))) {}
    ~Buffer() { operator delete(at, std::align_val_t(16)); }
    void read()
    {
        if (length && fread((void *)at, sizeof(T), length, stdin) != length) {
            fprintf(stderr, "fixed_base_harness: the input is too short\n");
            exit(2);
        }
    }
    void write() const
    {
        if (length && fwrite(at, sizeof(T), length, stdout) != length)
            exit(3);
    }

    size_t length;
    T *at;
};

template <class F, class Kernel>
void run(Kernel kernel, uint32_t swapped, char **argv)
{
    auto number = [&](int i) { return (uint32_t)std::stoul(argv[i]); };
    uint32_t window_bits = number(2), num_windows = number(3), n = number(5), blocks = number(6);
    Buffer<Affine<F>> table(number(4)), points(n);
    Buffer<Fr> scalars(n);
    Buffer<FixedBaseScratch<F>> scratch(n);
    table.read();
    scalars.read();
    cuda_on_host::launch({blocks, 128, 0, false}, [&] {
        kernel(table.at, scalars.at, scratch.at, points.at, window_bits, num_windows, n);
    });
    points.write();
    uint32_t num_coordinates = n * (uint32_t)(sizeof(Affine<F>) / sizeof(Fp));
    Buffer<uint32_t> encoded(12 * (size_t)num_coordinates);
    cuda_on_host::launch({(num_coordinates + 255) / 256, 256, 0, false}, [&] {
        fixed_base_encode((const Fp *)points.at, encoded.at, swapped, num_coordinates);
    });
    encoded.write();
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: fixed_base_harness GROUP 5 NUMBERS\n");
        return 2;
    }
    if (std::string(argv[1]) == "g2")
        run<Fp2>(fixed_base_g2, 1, argv);
    else
        run<Fp>(fixed_base_g1, 0, argv);
    return fflush(stdout) == 0 ? 0 : 3;
}
