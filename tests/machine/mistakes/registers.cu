// Registers that were never set. The compiler may fold what is undefined; the asm keeps the reads as the author wrote them.
#include <cuda_fp16.h>
#include <mma.h>
#define T threadIdx.x
using namespace nvcuda;

//@ registers | uninitialised | 1, 32 | f32[128], f32[32]=0 | garbage of an earlier kernel is added
extern "C" __global__ void sum_not_cleared(const float* x, float* y) {
    float sum;  //-
    float sum = 0;  //+
    for (int i = T; i < 128; i += 32) sum += x[i];  //!
    y[T] = sum;  //!
}

//@ registers | uninitialised | 1, 32 | u32[64], u32[32], f32[128]=0 | an accumulator of mma that nobody cleared
extern "C" __global__ void mma_accumulator(const unsigned* a, const unsigned* b, float* d) {
    float c0, c1, c2, c3;  //-
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;  //+
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"  //!
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[T]), "r"(a[T + 32]), "r"(b[T]));  //!
    d[T * 4] = c0; d[T * 4 + 1] = c1; d[T * 4 + 2] = c2; d[T * 4 + 3] = c3;
}

//@ registers | uninitialised | 1, 32 | u32[64], u32[32], f32[128]=0 | only two of the four accumulators were cleared
extern "C" __global__ void mma_half_cleared(const unsigned* a, const unsigned* b, float* d) {
    float c[4];
    for (int i = 0; i < 2; i++) c[i] = 0;  //-
    for (int i = 0; i < 4; i++) c[i] = 0;  //+
    for (int k = 0; k < 2; k++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"  //!
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[T]), "r"(a[T + 32]), "r"(b[T]));  //!
    for (int i = 0; i < 4; i++) d[T * 4 + i] = c[i];
}

//@ registers | uninitialised | 1, 32 | f16[256], f16[256], f32[256]=0 | fill_fragment forgotten
extern "C" __global__ void wmma_not_filled(const __half* a, const __half* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);  //+
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);  //!
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);  //!
}

//@ registers | uninitialised | 1, 32 | i32[32], i32[32]=0 | xor of a register with what is not there
extern "C" __global__ void xor_of_nothing(const int* x, int* y) {
    int v;  //-
    int v = 0;  //+
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(v) : "r"(x[T]));  //!
    y[T] = v;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32]=0 | the shuffle sends what no lane has set
extern "C" __global__ void shuffle_of_nothing(float* y) {
    float v;  //-
    float v = T;  //+
    float w;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, -1;" : "=f"(w) : "f"(v));  //!
    y[T] = w;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32]=0 | a lane's shuffle source is set only in even lanes, odd ones are read
extern "C" __global__ void shuffle_source_set_in_even_lanes(float* y) {
    float v, w;
    if (T % 2 == 0) asm volatile("cvt.rn.f32.u32 %0, %1;" : "=f"(v) : "r"(T));  //-
    asm volatile("cvt.rn.f32.u32 %0, %1;" : "=f"(v) : "r"(T));  //+
    asm volatile("shfl.sync.down.b32 %0, %1, 1, 31, -1;" : "=f"(w) : "f"(v));  //!
    y[T] = w;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | one case of the switch sets nothing
extern "C" __global__ void switch_without_default(const float* x, float* y) {
    float v;
    switch (T % 3) {
        case 0: v = x[T]; break;
        case 1: v = x[T] * x[T]; break;
        case 2: v = -x[T]; break;  //+
    }
    asm volatile("add.f32 %0, %0, 0f3f800000;" : "+f"(v));  //!
    y[T] = v;  //!
}

//@ registers | uninitialised | 1, 64 | f32[50], f32[64]=0, i32:50 | the tail's lanes never load, all lanes store
extern "C" __global__ void tail_not_loaded(const float* x, float* y, int n) {
    float v;  //-
    float v = 0;  //+
    if (T < n) v = x[T];
    asm volatile("mul.f32 %0, %0, %0;" : "+f"(v));  //!
    y[T] = v;  //!
}

//@ registers | uninitialised | 1, 64 | f32[50], f32[1]=0, i32:50 | lanes beyond n take part in the reduction with garbage
extern "C" __global__ void reduce_tail_garbage(const float* x, float* y, int n) {
    float v;  //-
    float v = 0;  //+
    if (T < n) asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(x + T));
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);  //!
    if (T % 32 == 0) atomicAdd(y, v);  //!
}

//@ registers | uninitialised | 1, 32 | f32[32]%5, f32[32]=0 | the maximum is found only where something is larger than the threshold
extern "C" __global__ void maximum_never_assigned(const float* x, float* y) {
    float best;  //-
    float best = -1e30f;  //+
    for (int i = 0; i < 4; i++) {
        float v = x[(T * 4 + i) % 32];
        if (v > 3.5f) asm volatile("mov.f32 %0, %1;" : "=f"(best) : "f"(v));
    }
    y[T] = best;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | an array in registers is filled for three of four places
extern "C" __global__ void register_array_hole(const float* x, float* y) {
    float v[4];
    for (int i = 0; i < 3; i++) v[i] = x[(T + i) % 32];  //-
    for (int i = 0; i < 4; i++) v[i] = x[(T + i) % 32];  //+
    float sum = 0;
    for (int i = 0; i < 4; i++) asm volatile("add.f32 %0, %0, %1;" : "+f"(sum) : "f"(v[i]));  //!
    y[T] = sum;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | a conversion of what was never set
extern "C" __global__ void convert_nothing(const float* x, float* y) {
    int i;  //-
    int i = T;  //+
    float f;
    asm volatile("cvt.rn.f32.s32 %0, %1;" : "=f"(f) : "r"(i));  //!
    y[T] = f + x[T];  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | the index was never computed
extern "C" __global__ void index_never_set(const float* x, float* y) {
    unsigned i;  //-
    unsigned i = T;  //+
    asm volatile("and.b32 %0, %0, 31;" : "+r"(i));  //!
    y[T] = x[i];  //!
}

//@ registers | uninitialised | 1, 32 | i32[32], i32[32]=0 | a predicate from a register without a value
extern "C" __global__ void branch_on_nothing(const int* x, int* y) {
    int flag;  //-
    int flag = x[T] & 1;  //+
    int v = 0;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; @p mov.b32 %0, 7; }" : "+r"(v) : "r"(flag));  //!
    y[T] = v;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32]=0 | a device function returns on one path without a value
__device__ __noinline__ float lookup(int i) {
    float v;  //-
    float v = 0;  //+
    if (i < 20) asm volatile("cvt.rn.f32.s32 %0, %1;" : "=f"(v) : "r"(i));
    return v;  //!
}
extern "C" __global__ void function_without_value(float* y) {
    float v = lookup(T);  //!
    asm volatile("add.f32 %0, %0, %0;" : "+f"(v));  //!
    y[T] = v;  //!
}

//@ registers | uninitialised | 1, 32 | i32[32]%3, i32[32]=0 | an out-parameter that the callee sets only if it finds something
__device__ __noinline__ bool search(const int* x, int wanted, int* where) {
    for (int i = 0; i < 32; i++)
        if (x[i] == wanted) { *where = i; return true; }
    return false;
}
extern "C" __global__ void out_parameter_not_set(const int* x, int* y) {
    int where;  //-
    int where = -1;  //+
    search(x, T % 5, &where);
    asm volatile("add.s32 %0, %0, 1;" : "+r"(where));  //!
    y[T] = where;  //!
}

//@ registers | uninitialised | 1, 32 | u32[32], u32[32]=0 | one half of a packed pair was never set
extern "C" __global__ void packed_half_not_set(const unsigned* x, unsigned* y) {
    unsigned short low = x[T], high;  //-
    unsigned short low = x[T], high = 1;  //+
    unsigned pair;
    asm volatile("mov.b32 %0, {%1, %2};" : "=r"(pair) : "h"(low), "h"(high));  //!
    asm volatile("add.f16x2 %0, %0, %0;" : "+r"(pair));  //!
    y[T] = pair;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | the first iteration uses the previous value that no iteration has set
extern "C" __global__ void previous_value(const float* x, float* y) {
    float previous;  //-
    float previous = x[T];  //+
    float sum = 0;
    for (int i = 0; i < 8; i++) {
        float v = x[(T + i) % 32];
        asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum) : "f"(v), "f"(previous));  //!
        previous = v;
    }
    y[T] = sum;  //!
}

//@ registers | uninitialised | 1, 32 | f32[32], f32[32]=0 | a struct with a member that no constructor sets
struct Running {
    float sum, weight;
};
extern "C" __global__ void struct_member_not_set(const float* x, float* y) {
    Running r;
    r.sum = 0;
    r.weight = 0;  //+
    for (int i = 0; i < 4; i++) {
        r.sum += x[(T + i) % 32];
        asm volatile("add.f32 %0, %0, 0f3f800000;" : "+f"(r.weight));  //!
    }
    y[T] = r.sum / r.weight;  //!
}

//@ registers | - | 1, 32 | f32[32], f32[32]=0 | a value set under one predicate and used under the same
extern "C" __global__ void set_and_used_under_one_guard(const float* x, float* y) {
    float v;
    if (T < 20) v = x[T];
    y[T] = 1.0f;
    if (T < 20) y[T] = v;
}
