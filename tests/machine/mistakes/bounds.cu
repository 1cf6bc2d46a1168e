// Addresses outside of the array, the variable or the parameter that they belong to.
#include <cuda_fp16.h>
#define T threadIdx.x
#define B blockIdx.x

//@ bounds | out of bounds | 2, 64 | f32[100], f32[100]=0, i32:100 | the guard is missing: the last block reads and writes beyond the tail
extern "C" __global__ void tail_no_guard(const float* x, float* y, int n) {
    int i = B * 64 + T;
    if (i < n)  //+
        y[i] = x[i] + 1;  //!
}

//@ bounds | out of bounds | 2, 64 | f32[100], f32[100]=0, i32:100 | the guard is <= n
extern "C" __global__ void guard_off_by_one(const float* x, float* y, int n) {
    int i = B * 64 + T;
    if (i <= n)  //-
    if (i < n)  //+
        y[i] = x[i] + 1;  //!
}

//@ bounds | out of bounds | 1, 64 | f32[64], f32[64]=0 | the left neighbour of element 0
extern "C" __global__ void negative_index(const float* x, float* y) {
    y[T] = x[T] - x[(int)T - 1];  //-!
    y[T] = T ? x[T] - x[T - 1] : 0;  //+
}

//@ bounds | out of bounds | 1, 64 | f32[64], f32[64]=0 | the right neighbour of the last element
extern "C" __global__ void right_neighbour(const float* x, float* y) {
    y[T] = x[T + 1] - x[T];  //-!
    y[T] = x[T < 63 ? T + 1 : T] - x[T];  //+
}

//@ bounds | out of bounds | 1, 16x16 | f32[192], f32[192]=0, i32:12, i32:16 | rows and columns are exchanged in the stride
extern "C" __global__ void wrong_stride(const float* x, float* y, int rows, int columns) {
    int r = threadIdx.y, c = T;
    if (r < rows && c < columns) {
        int i = c * columns + r;  //-
        int i = r * columns + c;  //+
        y[i] = x[i];  //!
    }
}

//@ bounds | out of bounds | 1, 32 | i32[32], i32[16]=0 | an index from data that nobody checked
extern "C" __global__ void gather_unchecked(const int* x, int* y) {
    y[x[T]] = T;  //-!
    if (x[T] < 16) y[x[T]] = T;  //+
}

//@ bounds | out of bounds | 1, 64 | f32[64], f32[64]=0 | a shared array one element too short
extern "C" __global__ void shared_too_short(const float* x, float* y) {
    __shared__ float s[63];  //-
    __shared__ float s[64];  //+
    s[T] = x[T];  //!
    __syncthreads();
    y[T] = s[63 - T];  //!
}

//@ bounds | out of bounds | 1, 64 | f32[64], f32[64]=0 | an overrun of one shared array into its neighbour
extern "C" __global__ void shared_neighbour(const float* x, float* y) {
    __shared__ float a[64], b[64];
    a[T] = x[T];
    b[T] = 0;
    __syncthreads();
    float left = a[T], right = b[T];
    __syncthreads();
    if (T == 0) a[64 - 1 + (int)x[1]] = 5;  //-!
    if (T == 0) a[63] = 5;  //+
    __syncthreads();
    y[T] = left + right + a[T] + b[T];  //!
}

//@ bounds | out of bounds | 1, 64, 128 | f32[64], f32[64]=0 | half as much dynamic shared memory as the kernel uses
extern "C" __global__ void dynamic_too_small(const float* x, float* y) {
    extern __shared__ float buffer[];
    buffer[T] = x[T];  //-!
    __syncthreads();  //-
    y[T] = buffer[63 - T];  //-!
    if (T < 32) buffer[T] = x[T];  //+
    __syncthreads();  //+
    y[T] = buffer[31 - T % 32];  //+
}

//@ bounds | out of bounds | 1, 32 | i32[32], f32[32]=0 | a local array overrun by an index from data
extern "C" __global__ void local_overrun(const int* x, float* y) {
    float v[16];
    for (int i = 0; i < 16; i++) v[i] = i;
    y[T] = v[x[T]];  //-!
    y[T] = v[x[T] % 16];  //+
}

//@ bounds | out of bounds | 1, 32 | i32[32], f32[32]=0 | a local array written beyond its end
extern "C" __global__ void local_store_overrun(const int* x, float* y) {
    float v[8] = {};
    v[x[T]] = 1;  //-!
    v[x[T] % 8] = 1;  //+
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += v[i] * i;
    y[T] = sum;
}

__constant__ float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};

//@ bounds | out of bounds | 1, 32 | i32[32], f32[32]=0 | a constant table read beyond its end
extern "C" __global__ void constant_overrun(const int* x, float* y) {
    y[T] = weights[x[T]];  //-!
    y[T] = weights[x[T] % 8];  //+
}

__device__ int counts[16];

//@ bounds | out of bounds | 1, 32 | i32[32], i32[32]=0 | a device variable written beyond its end
extern "C" __global__ void device_variable_overrun(const int* x, int* y) {
    atomicAdd(&counts[x[T]], 1);  //-!
    atomicAdd(&counts[x[T] % 16], 1);  //+
    y[T] = T;
}

//@ bounds | out of bounds | 1, 32 | f32[126], f32[32]=0 | float4 loads run over the end of an array of 126
extern "C" __global__ void vector_tail(const float* x, float* y) {
    float4 v = reinterpret_cast<const float4*>(x)[T];  //-!
    float4 v = T < 31 ? reinterpret_cast<const float4*>(x)[T] : make_float4(x[124], x[125], 0, 0);  //+
    y[T] = v.x + v.y + v.z + v.w;
}

//@ bounds | out of bounds | 1, 32 | f16[63], f16[64]=0 | half2 over an odd number of halves
extern "C" __global__ void half2_tail(const __half* x, __half2* y) {
    y[T] = reinterpret_cast<const __half2*>(x)[T];  //-!
    y[T] = T < 31 ? reinterpret_cast<const __half2*>(x)[T] : __halves2half2(x[62], x[62]);  //+
}

//@ bounds | out of bounds | 1, 64 | i32[10]=0, i32[64] | an atomic beyond the bins
extern "C" __global__ void atomic_beyond_bins(int* bins, const int* x) {
    atomicAdd(&bins[x[T] / 6], 1);  //-!
    atomicAdd(&bins[x[T] / 7], 1);  //+
}

//@ bounds | out of bounds | 1, 32 | f32[32], f32[32]=0, i32:-8 | an unsigned number that was meant to be negative
extern "C" __global__ void unsigned_wrap(const float* x, float* y, int shift) {
    unsigned i = T + shift;  //-
    unsigned i = (T + shift) % 32;  //+
    y[T] = x[i];  //!
}

//@ bounds | out of bounds | 1, 32 | u8[100], f32[32]=0 | bytes counted as floats
extern "C" __global__ void elements_for_bytes(const unsigned char* x, float* y) {
    y[T] = reinterpret_cast<const float*>(x)[T];  //-!
    y[T] = reinterpret_cast<const float*>(x)[T % 25];  //+
}

//@ bounds | out of bounds | 4, 64 | f32[256], f32[64]=0 | each block writes at the global index of an array of one block
extern "C" __global__ void global_index_of_block_array(const float* x, float* y) {
    int i = B * 64 + T;
    y[i] = x[i];  //-!
    if (B == 0) y[T] = x[T];  //+
}

//@ bounds | out of bounds | 1, 32 | f32[32], f32[32]=0 | the end pointer itself is read
extern "C" __global__ void end_pointer(const float* x, float* y) {
    float sum = 0;
    for (const float* p = x + T; p <= x + 32; p++) sum += *p;  //-!
    for (const float* p = x + T; p < x + 32; p++) sum += *p;  //+
    y[T] = sum;
}

//@ bounds | out of bounds | 1, 64 | f32[64], f32[64]=0 | a padded tile indexed with the unpadded width runs out at the last rows
extern "C" __global__ void row_beyond_tile(const float* x, float* y) {
    __shared__ float tile[8][8];
    tile[T / 8][T % 8] = x[T];
    __syncthreads();
    float* flat = &tile[0][0];
    y[T] = flat[(T / 8) * 9 + T % 8 + 1];  //-!
    y[T] = flat[(T / 8) * 8 + T % 8];  //+
}

//@ bounds | read-only | 1, 32 | f32[32]=0, readonly f32[32] | the input is written
extern "C" __global__ void input_written(float* y, float* x) {
    y[T] = x[T];
    x[T] = 0;  //-!
}

//@ bounds | read-only | 1, 32 | i32[32], readonly i32[8]=0 | an atomic on an array that was passed as read-only
extern "C" __global__ void input_counted(int* x, int* bins) {
    atomicAdd(&bins[x[T] % 8], 1);  //-!
    atomicAdd(&x[T], bins[x[T] % 8]);  //+
}

//@ calls | out of bounds/null pointer | 1, 32 | f32[32], null | an optional argument used without a test
extern "C" __global__ void null_bias(float* x, const float* bias) {
    x[T] += bias[T];  //-!
    if (bias) x[T] += bias[T];  //+
}

//@ calls | out of bounds/null pointer | 1, 32 | f32[32], null | a store through a null pointer
extern "C" __global__ void null_output(const float* x, float* y) {
    if (y)  //+
        y[T] = x[T];  //!
}
