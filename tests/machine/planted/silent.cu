// arch: sm_80
// Kernels that are right, though they look dangerous: nothing is to be found in them.
#define SYNC(id, n) asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(n) : "memory")
#define ARRIVE(id, n) asm volatile("bar.arrive %0, %1;" ::"n"(id), "n"(n) : "memory")

// One warp fetches, another computes; two buffers, a barrier for full and one for empty each.
// [2, 64] arange:f32:512 zeros:f32:64
__global__ void producer_and_consumer(const float* x, float* y) {
  __shared__ float tiles[2][32];
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int k = 0; k < 8; k += 2) {
      if (k > 0) SYNC(3, 64);
      tiles[0][lane] = x[256 * blockIdx.x + 32 * k + lane];
      ARRIVE(1, 64);
      if (k > 0) SYNC(4, 64);
      tiles[1][lane] = x[256 * blockIdx.x + 32 * k + 32 + lane];
      ARRIVE(2, 64);
    }
  } else {
    float sum = 0;
    for (int k = 0; k < 8; k += 2) {
      SYNC(1, 64);
      sum += tiles[0][31 - lane];
      if (k < 6) ARRIVE(3, 64);
      SYNC(2, 64);
      sum += tiles[1][31 - lane];
      if (k < 6) ARRIVE(4, 64);
    }
    y[32 * blockIdx.x + lane] = sum;
  }
}

// A lock that lanes, warps and blocks want, and a plain sum under it.
// [2, 64] zeros:s32:1 zeros:s32:1 steps=40000000
__global__ void sum_under_a_lock(int* lock, volatile int* sum) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *sum = *sum + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// The block that comes last adds what the others left.
// [5, 64] arange:f32:320 zeros:f32:5 zeros:u32:1 zeros:f32:1
__global__ void last_block(const float* x, volatile float* partial, unsigned* tickets, float* total) {
  __shared__ float sums[64];
  __shared__ bool last;
  int i = threadIdx.x;
  sums[i] = x[64 * blockIdx.x + i];
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (i < half) sums[i] += sums[i + half];
    __syncthreads();
  }
  if (i == 0) {
    partial[blockIdx.x] = sums[0];
    __threadfence();
    last = atomicAdd(tickets, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && i == 0) {
    __threadfence();
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += partial[b];
    *total = sum;
  }
}

// A word is passed from block to block by release and acquire.
// [3, 32] zeros:s32:3 zeros:s32:4 steps=40000000
__global__ void passed_on(int* values, int* flags) {
  if (threadIdx.x != 0) return;
  int b = blockIdx.x, seen = b == 0;
  while (!seen) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flags + b) : "memory");
  values[b] = b == 0 ? 7 : values[b - 1] + 1;
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flags + b + 1), "r"(1) : "memory");
}

// All lanes of an instruction write the same to one place.
// [1, 32] arange:f32:32 zeros:f32:1
__global__ void all_write_the_same(const float* x, float* y) {
  float v = x[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
  *y = v;
}

// Sums by shuffles, by halves of a warp.
// [1, 64] arange:f32:64 zeros:f32:64
__global__ void shuffles_of_halves(const float* x, float* y) {
  int i = threadIdx.x;
  float v = x[i];
  if (i % 32 < 16) {
    for (int step = 8; step > 0; step /= 2) v += __shfl_down_sync(0x0000ffff, v, step, 16);
  } else {
    for (int step = 8; step > 0; step /= 2) v += __shfl_xor_sync(0xffff0000, v, step, 16);
  }
  y[i] = v;
}

// A part of the block waits at a barrier of its own; the others go their way and meet it later.
// [1, 128] arange:f32:128 zeros:f32:128
__global__ void barriers_of_parts(const float* x, float* y) {
  __shared__ float tile[128];
  int i = threadIdx.x;
  tile[i] = x[i];
  if (i < 64) {
    SYNC(1, 64);
    y[i] = tile[63 - i];
  } else {
    SYNC(2, 64);
    y[i] = tile[191 - i];
  }
  __syncthreads();
  tile[127 - i] = y[i];
  __syncthreads();
  y[i] += tile[i];
}

// Three stages of asynchronous copies, the tail with empty groups.
// [1, 64] arange:f32:2048 zeros:f32:64
__global__ void stages(const float* x, float* y) {
  __shared__ __align__(16) float tiles[3][256];
  int i = threadIdx.x;
  float sum = 0;
  auto fetch = [&](int k) {
    if (k < 8)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(&tiles[k % 3][4 * i])),
                   "l"(x + 256 * k + 4 * i) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0);
  fetch(1);
#pragma unroll 1
  for (int k = 0; k < 8; ++k) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    fetch(k + 2);
    sum += tiles[k % 3][255 - 4 * i] + tiles[k % 3][4 * i];
  }
  y[i] = sum;
}

// A product and a maximum by compare-and-swap: what the first, plain load reads is only a guess.
// [2, 64] arange:f32:128 zeros:f32:1 ones:f64:1
__global__ void compare_and_swap(const float* x, float* largest, double* product) {
  int i = 64 * blockIdx.x + threadIdx.x;
  int old = *(int*)largest;
  while (__int_as_float(old) < x[i]) {
    int assumed = old;
    old = atomicCAS((int*)largest, assumed, __float_as_int(x[i]));
    if (old == assumed) break;
  }
  unsigned long long *place = (unsigned long long*)product, seen = *place, before;
  do {
    before = seen;
    seen = atomicCAS(place, before, __double_as_longlong(__longlong_as_double(before) * (i % 2 ? 2.0 : 0.5)));
  } while (before != seen);
}

// Memory of the heap that one thread gives back and another gets.
// [2, 64] arange:f32:128
__global__ void memory_that_changes_hands(float* x) {
  int i = 64 * blockIdx.x + threadIdx.x;
  float* own = new float[3];
  own[0] = x[i];
  own[2] = own[0] + 1;
  x[i] = own[2];
  delete[] own;
}

// Threads without work leave before the barrier that the others share.
// [1, 96] arange:f32:40 zeros:f32:40 40
__global__ void those_without_work_leave(const float* x, float* y, int n) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  if (i >= 64) return;
  tile[i] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) y[i] = tile[n - 1 - i];
}

// One warp fetches, another computes; two buffers, mbarriers for full and for empty, many rounds.
// [1, 64] arange:f32:512 zeros:f32:32
__global__ void pipeline_of_mbarriers(const float* x, float* y) {
  __shared__ float tiles[2][32];
  __shared__ unsigned long long full[2], empty[2];
  int lane = threadIdx.x % 32;
  auto address = [](void* p) { return (unsigned)__cvta_generic_to_shared(p); };
  auto arrive = [&](void* p) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(address(p)) : "memory");
  };
  auto await = [&](void* p, int phase) {
    for (int done = 0; !done;)
      asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                   : "=r"(done) : "r"(address(p)), "r"(phase) : "memory");
  };
  if (threadIdx.x == 0)
    for (int s = 0; s < 2; ++s) {
      asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(address(&full[s])) : "memory");
      asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(address(&empty[s])) : "memory");
    }
  __syncthreads();
  if (threadIdx.x < 32) {
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
      if (k >= 2) await(&empty[k % 2], (k / 2 - 1) % 2);
      tiles[k % 2][lane] = x[32 * k + lane];
      arrive(&full[k % 2]);
    }
  } else {
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
      await(&full[k % 2], k / 2 % 2);
      sum += tiles[k % 2][31 - lane];
      arrive(&empty[k % 2]);
    }
    y[lane] = sum;
  }
}
