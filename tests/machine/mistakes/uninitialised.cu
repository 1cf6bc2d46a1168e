// Registers, shared memory and local memory that were never set, or of whose words only some bytes were written.
// The compiler may fold what is undefined; asm keeps the reads as the author wrote them.
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

//@ uninitialised memory | uninitialised | 1, 64 | f32[60], f32[64]=0, i32:60 | the tail of the tile holds what an earlier block left
extern "C" __global__ void tile_tail(const float* x, float* y, int n) {
    __shared__ float s[64];
    if (T < n) s[T] = x[T];  //-
    s[T] = T < n ? x[T] : 0.0f;  //+
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ uninitialised memory | uninitialised | 1, 64 | f32[64], f32[1]=0 | a shared sum that starts at nothing
extern "C" __global__ void shared_sum_start(const float* x, float* y) {
    __shared__ float sum;
    if (T == 0) sum = 0;  //+
    __syncthreads();
    atomicAdd(&sum, x[T]);  //!
    __syncthreads();
    if (T == 0) *y = sum;  //!
}

//@ uninitialised memory | uninitialised | 1, 32 | i32[32]%8, i32[8]=0 | bins 4 to 7 are not cleared
extern "C" __global__ void bins_half_cleared(const int* x, int* y) {
    __shared__ int bins[8];
    if (T < 4) bins[T] = 0;  //-
    if (T < 8) bins[T] = 0;  //+
    __syncwarp();
    atomicAdd(&bins[x[T]], 1);  //!
    __syncwarp();
    if (T < 8) y[T] = bins[T];  //!
}

//@ uninitialised memory | uninitialised | 1, 64 | f32[64], f32[64]=0 | the halo left and right is read but never loaded
extern "C" __global__ void stencil_halo(const float* x, float* y) {
    __shared__ float s[66];
    s[T + 1] = x[T];
    if (T == 0) s[0] = s[65] = 0;  //+
    __syncthreads();
    y[T] = s[T] + s[T + 1] + s[T + 2];  //!
}

//@ uninitialised memory | uninitialised | 1, 64 | f32[64], f32[1]=0 | eight warp sums are read where there are two warps
extern "C" __global__ void warp_sums_of_absent_warps(const float* x, float* y) {
    __shared__ float sums[8];
    float v = x[T];
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    if (T % 32 == 0) sums[T / 32] = v;
    __syncthreads();
    if (T < 32) {
        v = T < 8 ? sums[T] : 0.0f;  //-!
        v = T < blockDim.x / 32 ? sums[T] : 0.0f;  //+
        for (int d = 4; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
        if (T == 0) *y = v;
    }
}

//@ uninitialised memory | uninitialised | 1, 64 | f32[256], f32[64]=0 | rows are written with a stride of 8 and read with one of 9
extern "C" __global__ void padding_read(const float* x, float* y) {
    __shared__ float s[8][9];
    s[T / 8][T % 8] = x[T];
    __syncthreads();
    float sum = 0;
    for (int c = 0; c < 9; c++) sum += s[T % 8][c];  //-!
    for (int c = 0; c < 8; c++) sum += s[T % 8][c];  //+
    y[T] = sum;
}

//@ uninitialised memory | uninitialised | 1, 32 | f32[32], f32[32]=0 | the second buffer is read in the first step
extern "C" __global__ void wrong_buffer_first(const float* x, float* y) {
    __shared__ float s[2][32];
    float sum = 0;
    s[0][T] = x[T];
    __syncwarp();
    for (int i = 0; i < 3; i++) {
        sum += s[(i + 1) & 1][31 - T];  //-!
        sum += s[i & 1][31 - T];  //+
        __syncwarp();
        s[(i + 1) & 1][T] = x[T] + i;
        __syncwarp();
    }
    y[T] = sum;
}

//@ uninitialised memory | uninitialised | 1, 32 | i32[32], f32[32]=0 | a local table of which the last entries were not filled
extern "C" __global__ void local_table(const int* x, float* y) {
    float table[16];
    for (int i = 0; i < 12; i++) table[i] = i * 0.5f;  //-
    for (int i = 0; i < 16; i++) table[i] = i * 0.5f;  //+
    y[T] = table[x[T] & 15];  //!
}

//@ uninitialised memory | uninitialised | 1, 32 | i32[32]%8, i32[32]=0 | a stack on local memory popped once too often
extern "C" __global__ void local_stack(const int* x, int* y) {
    int stack[8], top = 0;
    for (int i = 0; i < x[T]; i++) stack[top++] = i;
    int sum = 0;
    while (top >= 0) sum += stack[top--];  //-!
    while (top > 0) sum += stack[--top];  //+
    y[T] = sum;
}

//@ uninitialised memory | uninitialised | 1, 64, 512 | f32[64], f32[64]=0 | the second array of dynamic shared memory is one that nobody filled
extern "C" __global__ void dynamic_second_array(const float* x, float* y) {
    extern __shared__ float buffer[];
    float* first = buffer;
    float* second = buffer + 64;
    first[T] = x[T];
    second[T] = 1.0f;  //+
    __syncthreads();
    y[T] = first[63 - T] + second[63 - T];  //!
}

//@ uninitialised memory | uninitialised | 1, 32 | f32[32], f32[32]=0 | the flag of a state machine is tested before anyone sets it
extern "C" __global__ void flag_tested_first(const float* x, float* y) {
    __shared__ int ready;
    if (T == 0) ready = 0;  //+
    __syncwarp();
    if (ready == 0) y[T] = x[T];  //!
    __syncwarp();
    if (T == 0) ready = (int)x[0];
}

//@ partial words | uninitialised | 1, 32 | f16[32], u32[32]=0 | the upper half of each word was never written
extern "C" __global__ void upper_halves(const __half* x, unsigned* y) {
    __shared__ __half s[64];
    s[2 * T] = x[T];
    s[2 * T + 1] = x[T];  //+
    __syncwarp();
    y[T] = reinterpret_cast<unsigned*>(s)[31 - T] + 1;  //!
}

//@ partial words | uninitialised | 1, 32 | u8[96], u32[32]=0 | RGB stored into RGBX, the fourth byte read as part of the word
extern "C" __global__ void rgb_as_word(const unsigned char* x, unsigned* y) {
    __shared__ __align__(4) unsigned char s[128];
    for (int i = 0; i < 3; i++) s[4 * T + i] = x[3 * T + i];
    s[4 * T + 3] = 255;  //+
    __syncwarp();
    y[T] = __popc(reinterpret_cast<unsigned*>(s)[T ^ 1]);  //!
}

//@ partial words | uninitialised | 1, 32 | f16[96], f16[128]=0 | rows of three halves read as two pairs
extern "C" __global__ void odd_row_as_pairs(const __half* x, __half2* y) {
    __shared__ __align__(4) __half s[32][4];
    for (int i = 0; i < 3; i++) s[T][i] = x[3 * T + i];
    s[T][3] = __float2half(0.0f);  //+
    __syncwarp();
    __half2 low = *reinterpret_cast<__half2*>(&s[31 - T][0]), high = *reinterpret_cast<__half2*>(&s[31 - T][2]);  //!
    y[T] = __hadd2(low, high);  //!
}

//@ partial words | uninitialised | 1, 32 | u8[32], u32[8]=0 | the last word of an odd number of bytes
extern "C" __global__ void last_word_of_bytes(const unsigned char* x, unsigned* y) {
    __shared__ __align__(4) unsigned char s[32];
    if (T < 30) s[T] = x[T];  //-
    s[T] = T < 30 ? x[T] : 0;  //+
    __syncwarp();
    if (T < 8) y[T] = reinterpret_cast<unsigned*>(s)[T] * 31u;  //!
}

//@ partial words | uninitialised | 1, 32 | u8[32], u32[32]=0 | one byte of a local word is written, the whole word read
extern "C" __global__ void local_partial(const unsigned char* x, unsigned* y) {
    volatile unsigned word;
    volatile unsigned char* bytes = reinterpret_cast<volatile unsigned char*>(&word);
    bytes[0] = x[T]; bytes[1] = 1; bytes[2] = 2;
    bytes[3] = 3;  //+
    y[T] = word + 1;  //!
}

//@ partial words | uninitialised | 1, 32 | f32[96], f32[128]=0 | float3 stored in rows of four, all four summed
extern "C" __global__ void float3_as_float4(const float* x, float* y) {
    __shared__ float4 s[32];
    float* row = reinterpret_cast<float*>(&s[T]);
    for (int i = 0; i < 3; i++) row[i] = x[3 * T + i];
    row[3] = 0;  //+
    __syncwarp();
    float4 v = s[31 - T];  //!
    y[T] = v.x + v.y + v.z + v.w;  //!
}

//@ partial words | uninitialised | 1, 32 | f16[512], u32[64]=0 | ldmatrix of a tile whose right half was not loaded
extern "C" __global__ void ldmatrix_half_tile(const __half* x, unsigned* y) {
    __shared__ __align__(16) __half s[16][16];
    for (int c = 0; c < 8; c++) s[T % 16][c] = x[(T % 16) * 16 + c];  //-
    for (int c = 0; c < 16; c++) s[T % 16][c] = x[(T % 16) * 16 + c];  //+
    __syncwarp();
    unsigned a = __cvta_generic_to_shared(&s[T % 8][T / 8 % 2 * 8]), v, w;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(v), "=r"(w) : "r"(a) : "memory");  //!
    y[T] = v + w;  //!
}

//@ partial words | uninitialised | 1, 32 | u8[256], u32[64]=0 | ldmatrix of rows of which 15 of 16 bytes were written
extern "C" __global__ void ldmatrix_row_end(const unsigned char* x, unsigned* y) {
    __shared__ __align__(16) unsigned char s[8][16];
    for (int i = T; i < 120; i += 32) s[i / 15][i % 15] = x[i];
    if (T < 8) s[T][15] = 0;  //+
    __syncwarp();
    unsigned a = __cvta_generic_to_shared(&s[T % 8][0]), v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(a) : "memory");  //!
    y[T] = v + 1;  //!
}
