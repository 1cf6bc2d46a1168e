// Addresses that are no multiple of what the access takes, and views of one host array that are several arguments.
#include <cuda_fp16.h>
#define T threadIdx.x

//@ alignment | misaligned | 1, 32 | f32[132], f32[32]=0 | float4 at an odd float
extern "C" __global__ void float4_at_odd(const float* x, float* y) {
    float4 v = *reinterpret_cast<const float4*>(x + 4 * T + 1);  //-!
    float4 v = *reinterpret_cast<const float4*>(x + 4 * T + 4);  //+
    y[T] = v.x + v.w;
}

//@ alignment | misaligned | 1, 32 | f32[99], f32[32]=0 | rows of three floats read as float2
extern "C" __global__ void float2_of_rows_of_three(const float* x, float* y) {
    float2 v = *reinterpret_cast<const float2*>(x + 3 * T);  //-!
    float2 v = make_float2(x[3 * T], x[3 * T + 1]);  //+
    y[T] = v.x + v.y;
}

//@ alignment | misaligned | 1, 32 | f16[66], f32[32]=0 | half2 at an odd half
extern "C" __global__ void half2_at_odd(const __half* x, float* y) {
    __half2 v = *reinterpret_cast<const __half2*>(x + 2 * T + 1);  //-!
    __half2 v = __halves2half2(x[2 * T + 1], x[2 * T + 2]);  //+
    y[T] = __low2float(v) + __high2float(v);
}

//@ alignment | misaligned | 1, 32 | u8[132], u32[32]=0, i32:3 | a word at a byte offset
extern "C" __global__ void word_at_byte(const unsigned char* x, unsigned* y, int skip) {
    y[T] = *reinterpret_cast<const unsigned*>(x + 4 * T + skip);  //-!
    y[T] = *reinterpret_cast<const unsigned*>(x + 4 * T + (skip & ~3));  //+
}

//@ alignment | misaligned | 1, 32 | f32[128], f32[128]=0, i32:33 | a vectorised row copy where the width is no multiple of four
extern "C" __global__ void rows_of_odd_width(const float* x, float* y, int width) {
    int r = T / 8, c = T % 8 * 4;
    *reinterpret_cast<float4*>(y + r * 32 + c) = *reinterpret_cast<const float4*>(x + r * width + c);  //-!
    for (int i = 0; i < 4; i++) if (r * width + c + i < 128) y[r * 32 + c + i] = x[r * width + c + i];  //+
}

//@ alignment | misaligned | 1, 32 | f32[64], f32[64]=0 | a padded shared row of 33 floats read as float2
extern "C" __global__ void padded_shared_row(const float* x, float* y) {
    __shared__ __align__(16) float s[2][33];
    s[0][T] = x[T]; s[1][T] = x[T + 32];
    __syncwarp();
    int r = T / 16, c = T % 16 * 2;
    float2 v = *reinterpret_cast<float2*>(&s[r][c]);  //-!
    float2 v = make_float2(s[r][c], s[r][c + 1]);  //+
    y[2 * T] = v.x; y[2 * T + 1] = v.y;
}

//@ alignment | misaligned | 1, 32, 1024 | f32[32], f64[32]=0 | doubles behind an odd number of floats in dynamic shared memory
extern "C" __global__ void doubles_after_floats(const float* x, double* y) {
    extern __shared__ __align__(16) unsigned char raw[];
    float* floats = reinterpret_cast<float*>(raw);
    double* doubles = reinterpret_cast<double*>(floats + 33);  //-
    double* doubles = reinterpret_cast<double*>(floats + 34);  //+
    floats[T] = x[T];
    doubles[T] = x[T] * 0.5;  //!
    __syncwarp();
    y[T] = doubles[31 - T] + floats[T];  //!
}

//@ alignment | misaligned | 1, 32 | i32[64]=0, u64[40]=0 | a 64-bit atomic at a multiple of 4
extern "C" __global__ void atomic64_at_word(int* x, unsigned long long* y) {
    atomicAdd(reinterpret_cast<unsigned long long*>(x + 1), 1ull);  //-!
    atomicAdd(reinterpret_cast<unsigned long long*>(x + 2), 1ull);  //+
    y[T] = T;
}

//@ alignment | misaligned | 1, 32 | u8[68], u32[1]=0 | an atomic on a word inside packed bytes
extern "C" __global__ void atomic_at_byte(unsigned char* x, unsigned* y) {
    atomicAdd(reinterpret_cast<unsigned*>(x + 2), 1u);  //-!
    atomicAdd(reinterpret_cast<unsigned*>(x + 4), 1u);  //+
    if (T == 0) *y = 1;
}

//@ alignment | misaligned | 1, 32 | f16[320], u32[32]=0 | ldmatrix rows begin at multiples of 16 bytes; a padding of one half breaks it
extern "C" __global__ void ldmatrix_row_stride(const __half* x, unsigned* y) {
    const int width = 9;  //-
    const int width = 16;  //+
    __shared__ __align__(16) __half s[8 * 16];
    for (int i = T; i < 128; i += 32) s[i] = x[i];
    __syncwarp();
    unsigned v, a = __cvta_generic_to_shared(s + T % 8 * width);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(a) : "memory");  //!
    y[T] = v;
}

struct __align__(8) Pair {
    int a, b;
};

//@ alignment | misaligned | 1, 32 | i32[66], i32[32]=0 | a struct of 8 bytes laid over ints
extern "C" __global__ void struct_over_ints(const int* x, int* y) {
    const Pair* p = reinterpret_cast<const Pair*>(x + 1);  //-
    const Pair* p = reinterpret_cast<const Pair*>(x + 2);  //+
    Pair v = p[T];  //!
    y[T] = v.a + v.b;
}

//@ alignment | misaligned | 1, 32 | u8[32], u8[32]=0 | local bytes read as a word
extern "C" __global__ void local_word_at_byte(const unsigned char* x, unsigned char* y) {
    unsigned char v[16];
    for (int i = 0; i < 16; i++) v[i] = x[(T + i) % 32];
    int at = x[T] % 4 + 1;  //-
    int at = x[T] % 4 * 4 % 12;  //+
    y[T] = *reinterpret_cast<unsigned*>(v + at) >> 8;  //!
}

//@ alignment | misaligned | 1, 32 | @misaligned_view | the view begins at the second float of an array; the kernel reads float4
extern "C" __global__ void view_at_second_float(const float* x, float* y, int skip) {
    float4 v = *reinterpret_cast<const float4*>(x + 4 * T);  //-!
    float4 v = *reinterpret_cast<const float4*>(x + 4 * T + skip);  //+
    y[T] = v.x + v.w;
}

//@ alignment | misaligned | 1, 32 | @misaligned_halves | the view begins at the second half of an array; the kernel reads half2
extern "C" __global__ void view_at_second_half(const __half* x, float* y, int skip) {
    __half2 v = *reinterpret_cast<const __half2*>(x + 2 * T);  //-!
    __half2 v = *reinterpret_cast<const __half2*>(x + 2 * T + skip);  //+
    y[T] = __low2float(v) + __high2float(v);
}

//@ views | race | 1, 64 | @shifted | the output begins one element after the input: a warp overwrites what the other has not read
extern "C" __global__ void shifted_copy(const float* x, float* y) {
    float v = x[T];  //!
    __syncthreads();  //+
    y[T] = v + 1;  //!
}

//@ views | race | 1, 64 | @same_array_twice | input and output are one array: reversal in place
extern "C" __global__ void reverse_in_place(const float* x, float* y) {
    float v = x[63 - T];  //!
    __syncthreads();  //+
    y[T] = v;  //!
}

//@ views | race | 1, 64 | @read_only_view_of_output | the input is a read-only view of the output
extern "C" __global__ void stencil_of_output(const float* x, float* y) {
    float v = x[T] + x[T < 63 ? T + 1 : T];  //!
    __syncthreads();  //+
    y[T] = v;  //!
}

//@ views | advice out of bounds | 1, 64 | @rows_of_one_matrix | a row overrun lands in the row that was passed as another argument
extern "C" __global__ void overrun_into_next_row(const float* x, float* y) {
    y[T] = x[T + 1];  //-!
    y[T] = x[(T + 1) % 64];  //+
}

//@ views | advice out of bounds | 1, 64 | @disjoint_halves | an output overrun before its beginning lands in the input
extern "C" __global__ void underrun_into_input(const float* x, float* y) {
    float v = x[T];
    __syncthreads();
    y[(int)T - 1] = v;  //-!
    y[T] = v;  //+
}

//@ views | race | 1, 64 | @disjoint_halves | two views of one array, joined by the kernel's own stride
extern "C" __global__ void scan_over_both_halves(float* x, float* y) {
    x[T] += 1;  //!
    y[T] = x[T ^ 32];  //-!
    __syncthreads();  //+
    y[T] = x[T ^ 32];  //+
}

//@ views | - | 1, 64 | @disjoint_halves | views that share an array but no element
extern "C" __global__ void copy_between_halves(const float* x, float* y) {
    y[T] = x[63 - T] * 2;
}

//@ views | - | 1, 64 | @interior_view | the elements before and after a view belong to its array: p[-1] is right, as on a GPU
extern "C" __global__ void stencil_around_view(const float* x, float* y) {
    y[T] = x[(int)T - 1] + x[T] + x[T + 1];
}

//@ views | - | 1, 64 | @same_array_twice | every thread reads and writes its own element
extern "C" __global__ void scale_in_place(const float* x, float* y) {
    y[T] = x[T] * 2;
}
