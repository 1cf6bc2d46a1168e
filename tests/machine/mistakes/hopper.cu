//@arch sm_90
// What sm_90 adds: stmatrix and mbarrier.try_wait.
#include <cuda_fp16.h>
#define T threadIdx.x
#define SHARED(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
#define INIT(bar, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SHARED(&bar)), "r"(n) : "memory")
#define WAIT(bar, parity)                                                                                        \
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra D; bra L; D: }" ::"r"( \
                     SHARED(&bar)), "r"(parity) : "memory")

//@ matrix accesses | advice race | 1, 32 | u32[32], u32[32]=0 | what stmatrix stored is read with no __syncwarp
extern "C" __global__ void stmatrix_then_read(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[32];
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(SHARED(s + T % 8 * 4)), "r"(x[T]) : "memory");  //!
    __syncwarp();  //+
    y[T] = s[31 - T];  //!
}

//@ matrix accesses | race | 1, 32 | u32[32], u32[32]=0 | two rows of one stmatrix lie at one address
extern "C" __global__ void stmatrix_rows_overlap(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[32];
    s[T] = 0;
    __syncwarp();
    unsigned row = SHARED(s + T % 4 * 4);  //-
    unsigned row = SHARED(s + T % 8 * 4);  //+
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(x[T]) : "memory");  //!
    __syncwarp();
    y[T] = s[T];
}

//@ matrix accesses | race | 1, 32 | u32[64], u32[64]=0 | the matrices of one stmatrix.trans.x2 overlap
extern "C" __global__ void stmatrix_trans_overlap(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[64];
    unsigned row = SHARED(s + T % 8 * 4);  //-
    unsigned row = SHARED(s + T % 16 * 4);  //+
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(x[T]), "r"(x[T + 32] + 9) : "memory");  //!
    __syncwarp();
    y[T] = s[T % 32] + s[T];
    if (T == 0) y[63] = 1;
}

//@ matrix accesses | race | 1, 32 | u32[128], u32[128]=0 | the last two of four matrices lie over the first two
extern "C" __global__ void stmatrix_four_overlap(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[128];
    for (int i = 0; i < 4; i++) s[32 * i + T] = 0;
    __syncwarp();
    unsigned row = SHARED(s + T % 16 * 4);  //-
    unsigned row = SHARED(s + T * 4);  //+
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(x[T]), "r"(x[32 + T]), "r"(x[64 + T]), "r"(x[96 + T]) : "memory");  //!
    __syncwarp();
    for (int i = 0; i < 4; i++) y[32 * i + T] = s[32 * i + T];
}

//@ matrix accesses | race | 1, 32 | u32[64], u32[64]=0 | two matrices side by side, whose rows of 32 bytes overlap for want of an offset
extern "C" __global__ void stmatrix_pair_overlap(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[64];
    s[T] = s[32 + T] = 0;
    __syncwarp();
    unsigned row = SHARED(s + T % 8 * 8);  //-
    unsigned row = SHARED(s + T % 8 * 8 + T / 8 % 2 * 4);  //+
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(x[T]), "r"(x[32 + T]) : "memory");  //!
    __syncwarp();
    y[T] = s[T], y[32 + T] = s[32 + T];
}

//@ matrix accesses | race | 1, 32 | u32[64], u32[64]=0 | matrices that overlap and differ in the odd halves alone
extern "C" __global__ void stmatrix_odd_halves_differ(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[64];
    s[T] = s[32 + T] = 0;
    __syncwarp();
    unsigned row = SHARED(s + T % 8 * 4);  //-
    unsigned row = SHARED(s + T % 16 * 4);  //+
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(7), "r"(7 | (1 + x[T]) << 16) : "memory");  //!
    __syncwarp();
    y[T] = s[T], y[32 + T] = s[32 + T];
}

//@ matrix accesses | - | 1, 32 | u32[32], u32[64]=0 | a matrix that is stored twice to the same rows, with equal values; and in a loop
extern "C" __global__ void stmatrix_twice_the_same(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[64];
    s[T] = s[32 + T] = 0;
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < 3; i++) {
        unsigned row = SHARED(s + T % 16 * 4);
        unsigned value = x[T] + i;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %1, %2};" ::"r"(row), "r"(value), "r"(value + 1) : "memory");
    }
    __syncwarp();
    y[T] = s[T], y[32 + T] = s[32 + T];
}

//@ matrix accesses | race | 1, 64 | u32[64], u32[64]=0 | two warps store matrices to the same rows
extern "C" __global__ void stmatrix_two_warps(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[2][32];
    unsigned row = SHARED(&s[0][T % 8 * 4]);  //-
    unsigned row = SHARED(&s[T / 32][T % 8 * 4]);  //+
    s[1][T % 32] = 0;  //-
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(x[T]) : "memory");  //!
    __syncthreads();
    y[T] = s[T / 32][T % 32];
}

//@ matrix accesses | misaligned | 1, 32 | u32[32], u32[40]=0 | rows of stmatrix at a stride of 20 bytes
extern "C" __global__ void stmatrix_misaligned(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[64];
    unsigned row = SHARED(s + T % 8 * 5);  //-
    unsigned row = SHARED(s + T % 8 * 8);  //+
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(x[T]) : "memory");  //!
    __syncwarp();
    y[T] = T < 4 ? s[T] : 0;
}

//@ mbarrier | race/barrier/uninitialised/mbarrier | 1, 64 | f32[64], f32[64]=0 | the other warp waits at a barrier that is not made yet
extern "C" __global__ void try_wait_before_init(const float* x, float* y) {
    __shared__ __align__(16) float s[64];
    __shared__ unsigned long long bar;
    if (T == 32) INIT(bar, 64);  //!
    __syncthreads();  //+
    s[T] = x[T];
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(SHARED(&bar)) : "memory");  //!
    WAIT(bar, 0);  //!
    y[T] = s[63 - T];  //!
}

//@ matrix accesses | - | 1, 32 | u32[32]=0 | rows of stmatrix that lie at one address and hold equal values
extern "C" __global__ void stmatrix_equal_rows(unsigned* y) {
    __shared__ __align__(16) unsigned s[32];
    s[T] = 0;
    __syncwarp();
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(SHARED(s)), "r"(0x00070007u) : "memory");
    __syncwarp();
    y[T] = s[T];
}
