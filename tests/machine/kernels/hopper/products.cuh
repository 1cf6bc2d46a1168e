// wgmma m64n64 of five types, all with operands in rows of 128 bytes that TMA has swizzled; and the ring of stages
// through which a producer hands tiles to consumers.
#pragma once
#include "../../mistakes/hopper/instructions.cuh"

constexpr int ROW = 128, TILE = 64 * ROW;  // bytes of a row of a tile; of a tile of 64 rows

#define SUMS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FOUR(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define SIXTEEN(C, i) FOUR(C, i), FOUR(C, i + 4), FOUR(C, i + 8), FOUR(C, i + 12)
#define FLOATS "+f"
#define INTEGERS "+r"

// A product that adds to its sums unless `accumulate` is 0.
#define PRODUCT(NAME, ELEMENTS_OF_A_ROW, SUM, CONSTRAINT, TEXT, IMMEDIATES)                                                              \
    struct NAME {                                                                                                     \
        typedef SUM Sum;                                                                                              \
        static constexpr int ELEMENTS = ELEMENTS_OF_A_ROW;                                                            \
        static DEVICE void multiply(SUM (&d)[32], u64 a, u64 b, int accumulate) {                                     \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64" TEXT            \
                         " {" SUMS "}, %32, %33, p" IMMEDIATES "; }"                                                  \
                         : SIXTEEN(CONSTRAINT, 0), SIXTEEN(CONSTRAINT, 16)                                            \
                         : "l"(a), "l"(b), "r"(accumulate));                                                          \
        }                                                                                                             \
    };
PRODUCT(bf16, 64, float, FLOATS, "k16.f32.bf16.bf16", ", 1, 1, 0, 0")
PRODUCT(f16, 64, float, FLOATS, "k16.f32.f16.f16", ", 1, 1, 0, 0")
PRODUCT(e4m3, 128, float, FLOATS, "k32.f32.e4m3.e4m3", ", 1, 1")
PRODUCT(tf32, 32, float, FLOATS, "k8.f32.tf32.tf32", ", 1, 1")
PRODUCT(s8, 128, int, INTEGERS, "k32.s32.s8.s8", "")

// All products of a tile's 128 bytes of K: 32 bytes each.
template <class Product>
DEVICE void multiply_tile(typename Product::Sum (&d)[32], const char* a, const char* b, bool first) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++)
        Product::multiply(d, swizzled(a + 32 * step), swizzled(b + 32 * step), !first || step);
    wgmma_commit();
}

// Where the sum of number i lies in the 64 × 64 results of a warpgroup.
DEVICE int row_of(int i) { return threadIdx.x % 128 / 32 * 16 + LANE / 4 + i / 2 % 2 * 8; }
DEVICE int column_of(int i) { return i / 4 * 8 + LANE % 4 * 2 + i % 2; }

template <int REGISTERS>
DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
template <int REGISTERS>
DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }

// A stage of a ring, counted on and on: its number, and the parity that a consumer waits for.
template <int STAGES>
struct Place {
    int count = 0;
    DEVICE int stage() const { return count % STAGES; }
    DEVICE u32 full() const { return count / STAGES & 1; }
    DEVICE u32 empty() const { return full() ^ 1; }  // the first round finds every stage empty
};
