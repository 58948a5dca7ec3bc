// The carry chains of limbs.cuh in PTX, one asm block each; see there for what each computes.
//
// Operands are numbered outputs first. Every block computes only from its operands, so the compiler may move
// or drop it. Outputs that are written before the last input is read are early clobbers.
#pragma once

#include <stdint.h>

namespace cuzk {

template <int N>
struct PtxRow;

template <>
struct PtxRow<1> {
    static __device__ __forceinline__ void mad(uint32_t *a, const uint32_t *x, uint32_t y, uint32_t &top)
    {
        asm("{\n\t"
            "mad.lo.cc.u32 %0, %3, %4, %0; madc.hi.cc.u32 %1, %3, %4, %1;\n\t"
            "addc.u32 %2, %2, 0;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(top)
            : "r"(x[0]), "r"(y));
    }
};

template <>
struct PtxRow<2> {
    static __device__ __forceinline__ void mad(uint32_t *a, const uint32_t *x, uint32_t y, uint32_t &top)
    {
        asm("{\n\t"
            "mad.lo.cc.u32 %0, %5, %7, %0; madc.hi.cc.u32 %1, %5, %7, %1;\n\t"
            "madc.lo.cc.u32 %2, %6, %7, %2; madc.hi.cc.u32 %3, %6, %7, %3;\n\t"
            "addc.u32 %4, %4, 0;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(top)
            : "r"(x[0]), "r"(x[2]), "r"(y));
    }
};

template <>
struct PtxRow<3> {
    static __device__ __forceinline__ void mad(uint32_t *a, const uint32_t *x, uint32_t y, uint32_t &top)
    {
        asm("{\n\t"
            "mad.lo.cc.u32 %0, %7, %10, %0; madc.hi.cc.u32 %1, %7, %10, %1;\n\t"
            "madc.lo.cc.u32 %2, %8, %10, %2; madc.hi.cc.u32 %3, %8, %10, %3;\n\t"
            "madc.lo.cc.u32 %4, %9, %10, %4; madc.hi.cc.u32 %5, %9, %10, %5;\n\t"
            "addc.u32 %6, %6, 0;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(top)
            : "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(y));
    }

    static __device__ __forceinline__ void carry_pair_mad(uint32_t *a, uint32_t carry_a, uint32_t carry_b, uint32_t lo,
                                                          uint32_t hi, const uint32_t *x, uint32_t y)
    {
        asm("{\n\t"
            ".reg .u32 unused;\n\t"
            "add.cc.u32 unused, %8, %9;\n\t"
            "addc.cc.u32 %0, %0, %10;\n\t"
            "addc.cc.u32 %1, %1, %11;\n\t"
            "madc.lo.cc.u32 %2, %12, %15, %2; madc.hi.cc.u32 %3, %12, %15, %3;\n\t"
            "madc.lo.cc.u32 %4, %13, %15, %4; madc.hi.cc.u32 %5, %13, %15, %5;\n\t"
            "madc.lo.cc.u32 %6, %14, %15, %6; madc.hi.u32 %7, %14, %15, %7;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(a[6]), "+r"(a[7])
            : "r"(carry_a), "r"(carry_b), "r"(lo), "r"(hi), "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(y));
    }
};

template <>
struct PtxRow<4> {
    static __device__ __forceinline__ void mad(uint32_t *a, const uint32_t *x, uint32_t y, uint32_t &top)
    {
        asm("{\n\t"
            "mad.lo.cc.u32 %0, %9, %13, %0; madc.hi.cc.u32 %1, %9, %13, %1;\n\t"
            "madc.lo.cc.u32 %2, %10, %13, %2; madc.hi.cc.u32 %3, %10, %13, %3;\n\t"
            "madc.lo.cc.u32 %4, %11, %13, %4; madc.hi.cc.u32 %5, %11, %13, %5;\n\t"
            "madc.lo.cc.u32 %6, %12, %13, %6; madc.hi.cc.u32 %7, %12, %13, %7;\n\t"
            "addc.u32 %8, %8, 0;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(a[6]), "+r"(a[7]),
              "+r"(top)
            : "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(x[6]), "r"(y));
    }

    static __device__ __forceinline__ void shift_mad(uint32_t &e0, uint32_t stray, uint32_t *a, const uint32_t *x,
                                                     uint32_t y)
    {
        asm("{\n\t"
            "add.cc.u32 %0, %0, %9;\n\t"
            "madc.lo.cc.u32 %1, %10, %14, %1; madc.hi.cc.u32 %2, %10, %14, %2;\n\t"
            "madc.lo.cc.u32 %3, %11, %14, %3; madc.hi.cc.u32 %4, %11, %14, %4;\n\t"
            "madc.lo.cc.u32 %5, %12, %14, %5; madc.hi.cc.u32 %6, %12, %14, %6;\n\t"
            "madc.lo.cc.u32 %7, %13, %14, %7; madc.hi.cc.u32 %8, %13, %14, %8;\n\t"
            "}"
            : "+r"(e0), "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(a[6]),
              "+r"(a[7])
            : "r"(stray), "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(x[6]), "r"(y));
    }
};

template <>
struct PtxRow<5> {
    static __device__ __forceinline__ void mad(uint32_t *a, const uint32_t *x, uint32_t y, uint32_t &top)
    {
        asm("{\n\t"
            "mad.lo.cc.u32 %0, %11, %16, %0; madc.hi.cc.u32 %1, %11, %16, %1;\n\t"
            "madc.lo.cc.u32 %2, %12, %16, %2; madc.hi.cc.u32 %3, %12, %16, %3;\n\t"
            "madc.lo.cc.u32 %4, %13, %16, %4; madc.hi.cc.u32 %5, %13, %16, %5;\n\t"
            "madc.lo.cc.u32 %6, %14, %16, %6; madc.hi.cc.u32 %7, %14, %16, %7;\n\t"
            "madc.lo.cc.u32 %8, %15, %16, %8; madc.hi.cc.u32 %9, %15, %16, %9;\n\t"
            "addc.u32 %10, %10, 0;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(a[6]), "+r"(a[7]),
              "+r"(a[8]), "+r"(a[9]), "+r"(top)
            : "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(x[6]), "r"(x[8]), "r"(y));
    }
};

template <>
struct PtxRow<6> {
    static __device__ __forceinline__ void mad(uint32_t *a, const uint32_t *x, uint32_t y, uint32_t &top)
    {
        asm("{\n\t"
            "mad.lo.cc.u32 %0, %13, %19, %0; madc.hi.cc.u32 %1, %13, %19, %1;\n\t"
            "madc.lo.cc.u32 %2, %14, %19, %2; madc.hi.cc.u32 %3, %14, %19, %3;\n\t"
            "madc.lo.cc.u32 %4, %15, %19, %4; madc.hi.cc.u32 %5, %15, %19, %5;\n\t"
            "madc.lo.cc.u32 %6, %16, %19, %6; madc.hi.cc.u32 %7, %16, %19, %7;\n\t"
            "madc.lo.cc.u32 %8, %17, %19, %8; madc.hi.cc.u32 %9, %17, %19, %9;\n\t"
            "madc.lo.cc.u32 %10, %18, %19, %10; madc.hi.cc.u32 %11, %18, %19, %11;\n\t"
            "addc.u32 %12, %12, 0;\n\t"
            "}"
            : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(a[6]), "+r"(a[7]),
              "+r"(a[8]), "+r"(a[9]), "+r"(a[10]), "+r"(a[11]), "+r"(top)
            : "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(x[6]), "r"(x[8]), "r"(x[10]), "r"(y));
    }

    static __device__ __forceinline__ void shift_mad(uint32_t &e0, uint32_t stray, uint32_t *a, const uint32_t *x,
                                                     uint32_t y)
    {
        asm("{\n\t"
            "add.cc.u32 %0, %0, %13;\n\t"
            "madc.lo.cc.u32 %1, %14, %20, %1; madc.hi.cc.u32 %2, %14, %20, %2;\n\t"
            "madc.lo.cc.u32 %3, %15, %20, %3; madc.hi.cc.u32 %4, %15, %20, %4;\n\t"
            "madc.lo.cc.u32 %5, %16, %20, %5; madc.hi.cc.u32 %6, %16, %20, %6;\n\t"
            "madc.lo.cc.u32 %7, %17, %20, %7; madc.hi.cc.u32 %8, %17, %20, %8;\n\t"
            "madc.lo.cc.u32 %9, %18, %20, %9; madc.hi.cc.u32 %10, %18, %20, %10;\n\t"
            "madc.lo.cc.u32 %11, %19, %20, %11; madc.hi.cc.u32 %12, %19, %20, %12;\n\t"
            "}"
            : "+r"(e0), "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4]), "+r"(a[5]), "+r"(a[6]),
              "+r"(a[7]), "+r"(a[8]), "+r"(a[9]), "+r"(a[10]), "+r"(a[11])
            : "r"(stray), "r"(x[0]), "r"(x[2]), "r"(x[4]), "r"(x[6]), "r"(x[8]), "r"(x[10]), "r"(y));
    }
};

template <int LIMBS>
struct PtxSum;

template <>
struct PtxSum<8> {
    static __device__ __forceinline__ uint32_t add(uint32_t *r, const uint32_t *a, const uint32_t *b)
    {
        uint32_t out;
        asm("{\n\t"
            "add.cc.u32 %0, %9, %17;\n\t"
            "addc.cc.u32 %1, %10, %18;\n\t"
            "addc.cc.u32 %2, %11, %19;\n\t"
            "addc.cc.u32 %3, %12, %20;\n\t"
            "addc.cc.u32 %4, %13, %21;\n\t"
            "addc.cc.u32 %5, %14, %22;\n\t"
            "addc.cc.u32 %6, %15, %23;\n\t"
            "addc.cc.u32 %7, %16, %24;\n\t"
            "addc.u32 %8, 0, 0;\n\t"
            "}"
            : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]), "=&r"(r[4]), "=&r"(r[5]), "=&r"(r[6]),
              "=&r"(r[7]), "=r"(out)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
              "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
        return out;
    }

    static __device__ __forceinline__ uint32_t sub(uint32_t *r, const uint32_t *a, const uint32_t *b)
    {
        uint32_t out;
        asm("{\n\t"
            "sub.cc.u32 %0, %9, %17;\n\t"
            "subc.cc.u32 %1, %10, %18;\n\t"
            "subc.cc.u32 %2, %11, %19;\n\t"
            "subc.cc.u32 %3, %12, %20;\n\t"
            "subc.cc.u32 %4, %13, %21;\n\t"
            "subc.cc.u32 %5, %14, %22;\n\t"
            "subc.cc.u32 %6, %15, %23;\n\t"
            "subc.cc.u32 %7, %16, %24;\n\t"
            "subc.u32 %8, 0, 0;\n\t"
            "}"
            : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]), "=&r"(r[4]), "=&r"(r[5]), "=&r"(r[6]),
              "=&r"(r[7]), "=r"(out)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
              "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
        return out;
    }

    static __device__ __forceinline__ void add_if(uint32_t *r, const uint32_t *a, uint32_t mask)
    {
        asm("{\n\t"
            ".reg .pred wanted;\n\t"
            "setp.ne.u32 wanted, %16, 0;\n\t"
            "@wanted add.cc.u32 %0, %0, %8;\n\t"
            "@wanted addc.cc.u32 %1, %1, %9;\n\t"
            "@wanted addc.cc.u32 %2, %2, %10;\n\t"
            "@wanted addc.cc.u32 %3, %3, %11;\n\t"
            "@wanted addc.cc.u32 %4, %4, %12;\n\t"
            "@wanted addc.cc.u32 %5, %5, %13;\n\t"
            "@wanted addc.cc.u32 %6, %6, %14;\n\t"
            "@wanted addc.u32 %7, %7, %15;\n\t"
            "}"
            : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]), "+r"(r[6]), "+r"(r[7])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(mask));
    }
};

template <>
struct PtxSum<12> {
    static __device__ __forceinline__ uint32_t add(uint32_t *r, const uint32_t *a, const uint32_t *b)
    {
        uint32_t out;
        asm("{\n\t"
            "add.cc.u32 %0, %13, %25;\n\t"
            "addc.cc.u32 %1, %14, %26;\n\t"
            "addc.cc.u32 %2, %15, %27;\n\t"
            "addc.cc.u32 %3, %16, %28;\n\t"
            "addc.cc.u32 %4, %17, %29;\n\t"
            "addc.cc.u32 %5, %18, %30;\n\t"
            "addc.cc.u32 %6, %19, %31;\n\t"
            "addc.cc.u32 %7, %20, %32;\n\t"
            "addc.cc.u32 %8, %21, %33;\n\t"
            "addc.cc.u32 %9, %22, %34;\n\t"
            "addc.cc.u32 %10, %23, %35;\n\t"
            "addc.cc.u32 %11, %24, %36;\n\t"
            "addc.u32 %12, 0, 0;\n\t"
            "}"
            : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]), "=&r"(r[4]), "=&r"(r[5]), "=&r"(r[6]),
              "=&r"(r[7]), "=&r"(r[8]), "=&r"(r[9]), "=&r"(r[10]), "=&r"(r[11]), "=r"(out)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
              "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
              "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]), "r"(b[8]), "r"(b[9]), "r"(b[10]), "r"(b[11]));
        return out;
    }

    static __device__ __forceinline__ uint32_t sub(uint32_t *r, const uint32_t *a, const uint32_t *b)
    {
        uint32_t out;
        asm("{\n\t"
            "sub.cc.u32 %0, %13, %25;\n\t"
            "subc.cc.u32 %1, %14, %26;\n\t"
            "subc.cc.u32 %2, %15, %27;\n\t"
            "subc.cc.u32 %3, %16, %28;\n\t"
            "subc.cc.u32 %4, %17, %29;\n\t"
            "subc.cc.u32 %5, %18, %30;\n\t"
            "subc.cc.u32 %6, %19, %31;\n\t"
            "subc.cc.u32 %7, %20, %32;\n\t"
            "subc.cc.u32 %8, %21, %33;\n\t"
            "subc.cc.u32 %9, %22, %34;\n\t"
            "subc.cc.u32 %10, %23, %35;\n\t"
            "subc.cc.u32 %11, %24, %36;\n\t"
            "subc.u32 %12, 0, 0;\n\t"
            "}"
            : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]), "=&r"(r[4]), "=&r"(r[5]), "=&r"(r[6]),
              "=&r"(r[7]), "=&r"(r[8]), "=&r"(r[9]), "=&r"(r[10]), "=&r"(r[11]), "=r"(out)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
              "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
              "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]), "r"(b[8]), "r"(b[9]), "r"(b[10]), "r"(b[11]));
        return out;
    }
};

template <>
struct PtxSum<24> {
    static __device__ __forceinline__ uint32_t add(uint32_t *r, const uint32_t *a, const uint32_t *b)
    {
        uint32_t out;
        asm("{\n\t"
            "add.cc.u32 %0, %25, %49;\n\t"
            "addc.cc.u32 %1, %26, %50;\n\t"
            "addc.cc.u32 %2, %27, %51;\n\t"
            "addc.cc.u32 %3, %28, %52;\n\t"
            "addc.cc.u32 %4, %29, %53;\n\t"
            "addc.cc.u32 %5, %30, %54;\n\t"
            "addc.cc.u32 %6, %31, %55;\n\t"
            "addc.cc.u32 %7, %32, %56;\n\t"
            "addc.cc.u32 %8, %33, %57;\n\t"
            "addc.cc.u32 %9, %34, %58;\n\t"
            "addc.cc.u32 %10, %35, %59;\n\t"
            "addc.cc.u32 %11, %36, %60;\n\t"
            "addc.cc.u32 %12, %37, %61;\n\t"
            "addc.cc.u32 %13, %38, %62;\n\t"
            "addc.cc.u32 %14, %39, %63;\n\t"
            "addc.cc.u32 %15, %40, %64;\n\t"
            "addc.cc.u32 %16, %41, %65;\n\t"
            "addc.cc.u32 %17, %42, %66;\n\t"
            "addc.cc.u32 %18, %43, %67;\n\t"
            "addc.cc.u32 %19, %44, %68;\n\t"
            "addc.cc.u32 %20, %45, %69;\n\t"
            "addc.cc.u32 %21, %46, %70;\n\t"
            "addc.cc.u32 %22, %47, %71;\n\t"
            "addc.cc.u32 %23, %48, %72;\n\t"
            "addc.u32 %24, 0, 0;\n\t"
            "}"
            : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]), "=&r"(r[4]), "=&r"(r[5]), "=&r"(r[6]),
              "=&r"(r[7]), "=&r"(r[8]), "=&r"(r[9]), "=&r"(r[10]), "=&r"(r[11]), "=&r"(r[12]), "=&r"(r[13]),
              "=&r"(r[14]), "=&r"(r[15]), "=&r"(r[16]), "=&r"(r[17]), "=&r"(r[18]), "=&r"(r[19]),
              "=&r"(r[20]), "=&r"(r[21]), "=&r"(r[22]), "=&r"(r[23]), "=r"(out)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
              "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]), "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]),
              "r"(a[16]), "r"(a[17]), "r"(a[18]), "r"(a[19]), "r"(a[20]), "r"(a[21]), "r"(a[22]), "r"(a[23]),
              "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]),
              "r"(b[8]), "r"(b[9]), "r"(b[10]), "r"(b[11]), "r"(b[12]), "r"(b[13]), "r"(b[14]), "r"(b[15]),
              "r"(b[16]), "r"(b[17]), "r"(b[18]), "r"(b[19]), "r"(b[20]), "r"(b[21]), "r"(b[22]), "r"(b[23]));
        return out;
    }
};

} // namespace cuzk
