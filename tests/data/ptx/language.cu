// What C++ turns into: calls, tables, structs, switches, recursion, shared memory, atomics, printf and assert.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
namespace cg = cooperative_groups;

struct Vec { float x, y, z; };
struct Parameters { Vec origin; double scale; int8_t flags[5]; const float* data; };
struct Shape { __device__ virtual float area() const { return 0; } float side; };
struct Square : Shape { __device__ float area() const override { return side * side; } };

__constant__ float weights[6] = {1.0f, 0.5f, -0.25f, 1e-30f, 3.4028235e38f, 0.1f};
__device__ int counters[4] = {1, 2, 3};
__device__ int* pointers[3] = {counters, counters + 2, nullptr};
__device__ const char* words[2] = {"one", "two"};
__managed__ int shared_with_host = 7;
extern __shared__ float dynamic[];

typedef int (*Operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ Operation operations[2] = {add, multiply};
__device__ __noinline__ Vec cross(Vec a, Vec b) { return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; }
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

namespace deep { namespace inner {
template <typename T, int N> __global__ void scale(T* data, T factor) {
  for (int i = 0; i < N; ++i) data[i] = data[i] * factor;
}
template __global__ void scale<float, 4>(float*, float);
template __global__ void scale<double, 2>(double*, double);
}}

__global__ void by_value(Parameters p, Vec* out) {
  int local[20];
  for (int i = 0; i < 20; ++i) local[(i * p.flags[i % 5]) % 20] = i;
  Vec v = cross(p.origin, {p.data[0], p.data[local[threadIdx.x % 20]], (float)p.scale});
  out[threadIdx.x] = v;
}

__global__ void calls(int* out, int which, int n) {
  out[0] = operations[which](out[1], out[2]) + fibonacci(n) + *pointers[which] + words[which][0] + shared_with_host;
}

__global__ void virtual_call(float* out, int n) {
  Shape shape; Square square; square.side = shape.side = *out;
  const Shape* one = n > 3 ? &shape : &square;
  *out = one->area();
}

__global__ void choices(int* out, int which) {
  switch (which) {
    case 0: out[0] = 3; break;
    case 1: out[1] = out[5] * 7; break;
    case 2: out[2] = __clz(out[4]); break;
    case 3: out[3] = out[1] / out[2]; break;
    case 4: atomicAdd(out, 4); break;
    case 5: out[5] = atomicCAS(out + 1, 4, 5); break;
    case 6: out[6] = __popc(out[0]); break;
    case 7: out[7] = out[0] % 10; break;
    default: printf("unexpected %d at %s\n", which, "choices"); assert(which < 100); __trap();
  }
}

__global__ void reduce(const float* in, float* out, int n) {
  __shared__ float partial[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i] * weights[i % 6];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  dynamic[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) { for (unsigned i = 1; i < blockDim.x / 32; ++i) sum += partial[i]; atomicAdd(out, sum + dynamic[5]); }
}

__global__ void groups(int* out) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int sum = tile.thread_rank();
  for (int i = 4; i; i /= 2) sum += tile.shfl_down(sum, i);
  if (__ballot_sync(~0u, sum & 1)) out[tile.meta_group_rank()] = sum;
}

__global__ void mathematics(double* d, float* f, int64_t* l) {
  d[0] = sin(d[1]) / sqrt(d[2]) + fma(d[3], 1.0 / 3, -0.0);
  f[0] = expf(f[1]) + __sinf(f[2]) + fmodf(f[3], 2.5f) + __frcp_rn(f[4]) + INFINITY;
  l[0] = l[1] / l[2] + (l[3] >> 7) + __float2ll_rz(f[5]) + 0x7fffffffffffffffLL;
}
