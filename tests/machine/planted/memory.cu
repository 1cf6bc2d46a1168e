// arch: sm_80
// Addresses that are wrong, and memory that nobody wrote.
#include <assert.h>

// One element too many.
// [1, 64] zeros:f32:40 40
__global__ void past_the_end(float* x, int n) {
  int i = threadIdx.x;
  if (i <= n)  // bug
  if (i < n)   // fix
    x[i] = i;  // <- out of bounds
}

// The left neighbour of the first element.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void before_the_start(const float* x, float* y) {
  int i = threadIdx.x;
  float left = 0;
  if (i > 0)          // fix
    left = x[i - 1];  // <- out of bounds
  y[i] = x[i] - left;
}

// Rows of 24 are read as if they were rows of 32.
// [1, (24, 16)] arange:f32:16x24 zeros:f32:16x24
__global__ void wrong_row_stride(const float* x, float* y) {
  int row = threadIdx.y, column = threadIdx.x;
  float v = x[32 * row + column];  // bug <- out of bounds
  float v = x[24 * row + column];  // fix
  y[24 * row + column] = v;
}

// A product of indices that does not fit into 32 bits.
// [1, 32] zeros:f32:32 65536
__global__ void index_that_overflows(float* x, int stride) {
  int at = stride * 49152 + threadIdx.x;                            // bug
  long long at = (long long)stride * 49152 % 3221225472LL + threadIdx.x;  // fix
  x[at] = 1;                                                        // <- out of bounds
}

// A pointer that is null.
// [1, 32] null zeros:f32:32
__global__ void null_pointer(const float* x, float* y) {
  int i = threadIdx.x;
  y[i] = x[i];          // bug <- out of bounds
  y[i] = x ? x[i] : 0;  // fix
}

// More shared memory than the block has.
// [1, 64] arange:f32:64 zeros:f32:64
__global__ void past_shared_memory(const float* x, float* y) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  tile[i] = x[i];
  __syncthreads();
  y[i] = tile[i + 1];         // bug <- out of bounds
  y[i] = tile[(i + 1) % 64];  // fix
}

// More dynamic shared memory than was asked for.
// [1, 64, 128] arange:f32:64 zeros:f32:64
__global__ void past_dynamic_shared_memory(const float* x, float* y) {
  extern __shared__ float tile[];
  int i = threadIdx.x;
  tile[i] = x[i];            // bug <- out of bounds
  if (i < 32) tile[i] = x[i];  // fix
  __syncthreads();
  y[i] = tile[i % 32];
}

// An array of a thread's own, indexed past its end.
// [1, 32] arange:s32:32 zeros:s32:32
__global__ void past_a_local_array(const int* x, int* y) {
  int own[8];
  for (int k = 0; k < 8; ++k) own[k] = x[k];
  y[threadIdx.x] = own[x[threadIdx.x]];      // bug <- out of bounds
  y[threadIdx.x] = own[x[threadIdx.x] % 8];  // fix
}

// A shared address used as a pointer to anything.
// [1, 32] zeros:f32:32
__global__ void shared_address_as_a_pointer(float* y) {
  __shared__ float tile[32];
  int i = threadIdx.x;
  tile[i] = i;
  float* p = (float*)(unsigned long long)__cvta_generic_to_shared(&tile[i]);  // bug
  float* p = &tile[i];                                                       // fix
  asm volatile("" : "+l"(p));
  y[i] = *p;  // <- out of bounds
}

// Four floats at a time from an address of one.
// [1, 32] arange:f32:64 zeros:f32:32
__global__ void misaligned_vector(const float* x, float* y) {
  int i = threadIdx.x;
  float4 v = *(const float4*)(x + i);           // bug <- misaligned
  float4 v = *(const float4*)(x + i / 4 * 4);  // fix
  y[i] = v.x + v.w;
}

// Two floats at a time from an odd place of a tile.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void misaligned_shared_vector(const float* x, float* y) {
  __shared__ __align__(16) float tile[36];
  int i = threadIdx.x;
  tile[i] = x[i];
  if (i < 4) tile[32 + i] = 0;
  __syncthreads();
  float2 v = *(const float2*)(tile + i);           // bug <- misaligned
  float2 v = *(const float2*)(tile + i / 2 * 2);  // fix
  y[i] = v.x + v.y;
}

// An atomic at an odd address.
// [1, 32] zeros:u32:4
__global__ void misaligned_atomic(unsigned char* counts) {
  atomicAdd((unsigned*)(counts + threadIdx.x % 4), 1u);      // bug <- misaligned
  atomicAdd((unsigned*)(counts + threadIdx.x % 4 * 4), 1u);  // fix
}

// A write to an array that may only be read.
// [1, 32] arange:f32:32! zeros:f32:32
__global__ void write_to_an_input(float* x, float* y) {
  int i = threadIdx.x;
  x[i] = 2 * x[i];  // bug <- read-only
  y[i] = 2 * x[i];  // fix
}

// Shared memory that nobody filled.
// [1, 64] arange:f32:64 zeros:f32:64
__global__ void shared_memory_nobody_filled(const float* x, float* y) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  if (i < 60)  // bug
    tile[i] = x[i];
  __syncthreads();
  y[i] = tile[63 - i];  // <- uninitialised
}

// Dynamic shared memory that was never set to zero.
// [1, 32, 128] zeros:s32:32
__global__ void counters_never_set_to_zero(int* y) {
  extern __shared__ int counts[];
  int i = threadIdx.x;
  counts[i] = 0;               // fix
  __syncthreads();
  atomicAdd(&counts[i % 4], 1);  // <- uninitialised
  __syncthreads();
  y[i] = counts[i % 4];
}

// An array of a thread's own with holes in it.
// [1, 32] arange:s32:32 zeros:s32:32
__global__ void local_array_with_holes(const int* x, int* y) {
  volatile int own[8];
  int i = threadIdx.x;
  for (int k = 0; k < 7; ++k) own[x[k]] = k;  // bug
  for (int k = 0; k < 8; ++k) own[x[k]] = k;  // fix
  y[i] = own[x[i] % 8];                       // <- uninitialised
}

// A loop that never ends.
// [1, 32] zeros:s32:32 steps=400000
__global__ void endless_loop(volatile int* x) {
  int i = threadIdx.x;
  while (x[i] < 10) {
    x[i] = 0;         // bug <- endless
    x[i] = x[i] + 1;  // fix
  }
}

// A lock that is taken and not given back.
// [1, 2] zeros:s32:1 zeros:s32:1 steps=400000
__global__ void lock_never_given_back(int* lock, int* y) {
  while (atomicCAS(lock, 0, 1) != 0) {  // <- endless
  }
  __threadfence();
  atomicAdd(y, 1);
  __threadfence();
  atomicExch(lock, 0);  // fix
}

// A block that waits for what nobody does.
// [1, 64] zeros:s32:1 zeros:s32:64 steps=400000
__global__ void flag_that_nobody_sets(volatile int* flag, int* y) {
  if (threadIdx.x == 0) {
    __threadfence();
    *flag = 2;  // bug
    atomicExch((int*)flag, 1);  // fix
  }
  while (atomicAdd((int*)flag, 0) != 1) {  // <- endless
  }
  y[threadIdx.x] = 1;
}

// A kernel that stops itself.
// [1, 32] arange:s32:32
__global__ void trap_on_a_value(int* x) {
  if (x[threadIdx.x] == 20) __trap();   // bug <- trap
  if (x[threadIdx.x] == 200) __trap();  // fix
}

// An assertion that does not hold.
// [1, 32] arange:s32:32
__global__ void assertion_that_fails(int* x) {
  assert(x[threadIdx.x] < 31);  // bug <- assertion
  assert(x[threadIdx.x] < 32);  // fix
}
