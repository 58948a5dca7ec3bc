// Runs the self-test operations compiled for the host: cases on standard input, results on standard output,
// both as the raw structs of math/selftest_ops.cuh. Usage: harness OPERATION < cases > results
//
// tests/kernels_host.rs builds it with -fsanitize=address,undefined and compares with the CPU's arithmetic.
#include "../math/selftest_ops.cuh"

#include <cstdio>
#include <cstring>
#include <vector>

template <class Op>
static int run_all()
{
    using In = typename Op::In;
    using Out = typename Op::Out;
    std::vector<In> cases;
    In one;
    size_t got;
    while ((got = fread(&one, 1, sizeof one, stdin)) == sizeof one)
        cases.push_back(one);
    if (got != 0) {
        fprintf(stderr, "harness: the input ends within a case of %zu bytes\n", sizeof one);
        return 2;
    }
    for (const In &in : cases) {
        Out out = Op::run(in);
        if (fwrite(&out, sizeof out, 1, stdout) != 1)
            return 3;
    }
    return fflush(stdout) == 0 ? 0 : 3;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: harness OPERATION < cases > results\n");
        return 2;
    }
#define CUZK_DISPATCH(name) \
    if (strcmp(argv[1], #name) == 0) \
        return run_all<cuzk::op_##name>();
    CUZK_SELFTEST_OPS(CUZK_DISPATCH)
    fprintf(stderr, "harness: no operation %s\n", argv[1]);
    return 2;
}
