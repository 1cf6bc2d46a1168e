//@arch sm_75
// What is particular to sm_75: ldmatrix heeds the addresses of all lanes, and there is no cp.async.
#include <cuda_fp16.h>
#define T threadIdx.x
#define SHARED(p) static_cast<unsigned>(__cvta_generic_to_shared(p))

//@ matrix accesses | out of bounds/misaligned | 1, 32 | f16[64], u32[32]=0 | on sm_75 lanes 8 to 31 of ldmatrix.x1 need valid addresses, too
extern "C" __global__ void turing_ldmatrix_addresses(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[64];
    s[T] = x[T]; s[T + 32] = x[T + 32];
    __syncwarp();
    unsigned v, row = SHARED(s + T * 8);  //-
    unsigned v, row = SHARED(s + T % 8 * 8);  //+
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(row) : "memory");  //!
    y[T] = v;
}

//@ matrix accesses | misaligned | 1, 32 | f16[64], u32[32]=0 | lanes whose rows are not taken give odd addresses
extern "C" __global__ void turing_ldmatrix_alignment(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[64];
    s[T] = x[T]; s[T + 32] = x[T + 32];
    __syncwarp();
    unsigned v, row = SHARED(s + T % 8 * 8 + (T >= 8));  //-
    unsigned v, row = SHARED(s + T % 8 * 8);  //+
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(row) : "memory");  //!
    y[T] = v;
}

//@ registers | uninitialised | 1, 32 | u32[32], u32[32], f32[64]=0 | an operand of mma.m16n8k8 that was set in half the lanes
extern "C" __global__ void turing_mma_operand(const unsigned* a, const unsigned* b, float* d) {
    float c[4] = {};
    unsigned right;
    if (T < 16) asm volatile("ld.global.u32 %0, [%1];" : "=r"(right) : "l"(b + T));  //-
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(right) : "l"(b + T));  //+
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"  //!
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[T]), "r"(a[31 - T]), "r"(right));  //!
    d[T] = c[0] + c[1];
    d[T + 32] = c[2] + c[3];
}

//@ block barriers | race | 1, 64 | f32[256], f32[64]=0 | register prefetch, where the tile is stored before the others have read the last one
extern "C" __global__ void turing_register_prefetch(const float* x, float* y) {
    __shared__ float s[64];
    float next = x[T], sum = 0;
    for (int i = 0; i < 4; i++) {
        s[T] = next;  //!
        __syncthreads();
        if (i < 3) next = x[(i + 1) * 64 + T];
        sum += s[63 - T];  //!
        __syncthreads();  //+
    }
    y[T] = sum;
}
