// Runs the kernels of spmv.cu on the host. tests/kernels_host/spmv.rs gives shape and witness.
//
//   spmv_harness ORDER NUM_INPUTS NUM_AUX NUM_DENSE NUM_ROWS FIRST_TILE NUM_TILES EVERY SEED LENGTH... < image bits dense inputs > a b first_bad values
//
// ORDER is rising or falling: how the threads of a block are resumed. LENGTH: bytes of the image's ten tables; stdin has
// them one after the other, then the witness. Each table is an allocation of its own, so that a read beyond it is seen.
// a and b are those of NUM_TILES tiles from FIRST_TILE on; first_bad (u32) is the check's, which looks at tiles only if
// EVERY is not 0 (a and b must then be of all tiles); values are all variables'.
#include "cuda_on_host.hpp"

#include "../spmv.cu"

#include <string>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace {

// Exactly as long as asked for, and as aligned as a table of an image.
struct Bytes {
    explicit Bytes(size_t length) : length(length), at(length ? aligned_alloc(32, (length + 31) / 32 * 32) : nullptr)
    {
#if defined(__SANITIZE_ADDRESS__)
        if (length % 32 != 0)
            ASAN_POISON_MEMORY_REGION((char *)at + length, 32 - length % 32);
#endif
    }
    Bytes(Bytes &&other) : length(other.length), at(other.at) { other.at = nullptr; }
    ~Bytes()
    {
#if defined(__SANITIZE_ADDRESS__)
        if (at && length % 32 != 0)
            ASAN_UNPOISON_MEMORY_REGION((char *)at + length, 32 - length % 32);
#endif
        free(at);
    }
    void read()
    {
        if (length && fread(at, 1, length, stdin) != length) {
            fprintf(stderr, "spmv_harness: the input is too short\n");
            exit(2);
        }
    }
    void write() const
    {
        if (length && fwrite(at, 1, length, stdout) != length)
            exit(3);
    }
    template <class T>
    T *as() const { return (T *)at; }

    size_t length;
    void *at;
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 20) {
        fprintf(stderr, "usage: spmv_harness ORDER 8 NUMBERS 10 LENGTHS\n");
        return 2;
    }
    auto number = [&](int i) { return (uint32_t)std::stoul(argv[i]); };
    bool falling = strcmp(argv[1], "falling") == 0;
    uint32_t num_inputs = number(2), num_aux = number(3), num_dense = number(4), num_rows = number(5);
    uint32_t first_tile = number(6), num_tiles = number(7), every = number(8);
    uint64_t seed = std::stoull(argv[9]);
    std::vector<Bytes> tables;
    for (int i = 0; i < 10; i++) {
        tables.emplace_back(std::stoul(argv[10 + i]));
        tables.back().read();
    }
    Bytes bits(8 * (((size_t)num_aux + 63) / 64)), dense(32 * (size_t)num_dense);
    Bytes values(32 * ((size_t)num_inputs + num_aux)), inputs(32 * (size_t)num_inputs);
    bits.read();
    dense.read();
    inputs.read();
    memcpy(values.at, inputs.at, inputs.length);

    auto launch = [&](uint32_t blocks, std::function<void()> body) {
        cuda_on_host::launch({blocks, SPMV_TILE, 0, falling}, body);
    };
    launch((num_aux + 255) / 256, [&] {
        spmv_expand(bits.as<uint64_t>(), dense.as<Fr>(), tables[4].as<uint64_t>(), tables[8].as<uint32_t>(),
                    values.as<Fr>(), num_inputs, num_aux);
    });

    // Of the tiles that are wanted alone; the kernels are given where row 0 would lie.
    size_t first_row = (size_t)first_tile * SPMV_TILE;
    size_t rows_end = first_row + (size_t)num_tiles * SPMV_TILE;
    rows_end = rows_end < num_rows ? rows_end : num_rows;
    Bytes a(32 * (rows_end - first_row)), b(32 * (rows_end - first_row));
    uintptr_t before = 32 * (uintptr_t)first_row;
    Fr *a_rows = (Fr *)((uintptr_t)a.at - before), *b_rows = (Fr *)((uintptr_t)b.at - before);
#define SHAPE \
    tables[0].as<ShapePlace>(), tables[1].as<ShapePattern>(), tables[2].as<Fr>(), tables[3].as<int64_t>(), \
        tables[4].as<uint64_t>(), tables[5].as<ShapeRun>(), tables[6].as<uint32_t>(), tables[7].as<uint32_t>(), \
        tables[9].as<uint16_t>(), bits.as<uint64_t>(), values.as<Fr>(), num_inputs, num_rows
    for (uint32_t tile = first_tile; tile < first_tile + num_tiles; tile++)
        launch(1, [&] {
            cuda_on_host::block.index.x = tile;
            spmv_rows(SHAPE, a_rows, b_rows);
        });
    uint32_t first_bad = 0xffffffffu;
    if (every != 0) {
        uint32_t all_tiles = (num_rows + SPMV_TILE - 1) / SPMV_TILE;
        launch((all_tiles + every - 1) / every,
               [&] { spmv_check(SHAPE, a_rows, b_rows, every, seed, &first_bad); });
    }
    a.write();
    b.write();
    if (fwrite(&first_bad, sizeof first_bad, 1, stdout) != 1)
        return 3;
    values.write();
    return fflush(stdout) == 0 ? 0 : 3;
}
