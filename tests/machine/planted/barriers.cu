// arch: sm_80
// Barriers, and instructions that a whole warp has to execute.

// Half of a warp goes to a barrier that the whole warp has to execute.
// [1, 32] zeros:f32:32
__global__ void barrier_under_a_condition(float* y) {
  int i = threadIdx.x;
  if (i < 16) {
    y[i] = i;
    __syncthreads();  // bug <- divergence
  }
  __syncthreads();  // fix
  y[i] = i;
}

// More threads are waited for than there are.
// [1, 64] zeros:f32:64
__global__ void barrier_for_more_than_there_are(float* y) {
  asm volatile("bar.sync 1, 96;");  // bug <- deadlock barrier
  asm volatile("bar.sync 1, 64;");  // fix
  y[threadIdx.x] = 1;
}

// A barrier for a part of a warp.
// [1, 64] zeros:f32:64
__global__ void barrier_for_part_of_a_warp(float* y) {
  asm volatile("bar.sync 1, %0;" ::"r"(40 + (int)(y[0])));  // bug <- barrier
  asm volatile("bar.sync 1, %0;" ::"r"(64 + (int)(y[0])));  // fix
  y[threadIdx.x] = 1;
}

// The producer arrives at another barrier than the consumer waits at.
// [1, 64] arange:f32:32 zeros:f32:32
__global__ void producer_arrives_elsewhere(const float* x, float* y) {
  __shared__ float tile[32];
  int i = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    tile[i] = x[i];
    asm volatile("bar.arrive 2, 64;" ::: "memory");  // bug
    asm volatile("bar.arrive 1, 64;" ::: "memory");  // fix
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");  // <- deadlock barrier
    y[i] = tile[31 - i];
  }
}

// Two warps go to two barriers, each in its own order.
// [1, 64] zeros:f32:64
__global__ void barriers_in_opposite_order(float* y) {
  if (threadIdx.x < 32) {
    asm volatile("bar.sync 1, 64;");  // <- deadlock barrier
    asm volatile("bar.sync 2, 64;");
  } else {
    asm volatile("bar.sync 2, 64;");  // bug
    asm volatile("bar.sync 1, 64;");  // bug
    asm volatile("bar.sync 1, 64;");  // fix
    asm volatile("bar.sync 2, 64;");  // fix
  }
  y[threadIdx.x] = 1;
}

// Threads without work leave; those that stay wait for them.
// [1, 64] zeros:f32:64 40
__global__ void early_return_before_a_barrier(float* y, int n) {
  int i = threadIdx.x;
  bool works = i < n;
  if (i >= 32 && n < 64) return;    // bug
  asm volatile("bar.sync 1, 64;");  // <- deadlock barrier
  if (works) y[i] = 1;
}

// A lane that the mask does not name takes part in a shuffle.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void shuffle_of_a_lane_not_in_the_mask(const float* x, float* y) {
  int i = threadIdx.x;
  y[i] = __shfl_sync(0x0000ffff, x[i], 0);  // bug <- divergence
  y[i] = __shfl_sync(0xffffffff, x[i], 0);  // fix
}

// The mask names lanes that are on their way to a barrier.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void shuffle_with_lanes_that_are_elsewhere(const float* x, float* y) {
  int i = threadIdx.x;
  float v = x[i];
  if (i < 16) v = __shfl_sync(0xffffffff, v, 3);  // bug <- divergence
  if (i < 16) v = __shfl_sync(0x0000ffff, v, 3);  // fix
  __syncthreads();
  y[i] = v;
}

// A shuffle under a condition whose other lanes go on to another one.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void shuffle_on_both_sides(const float* x, float* y) {
  int i = threadIdx.x;
  float v = x[i];
  if (i < 16) {
    v = __shfl_sync(0xffffffff, v, 3);   // bug <- divergence
    v = __shfl_sync(0x0000ffff, v, 3);   // fix
    v = v + 1;
  } else {
    v = 2 * __shfl_sync(0xffff0000, v, 20);
  }
  __syncwarp();
  y[i] = v;
}

// A vote of all, taken by some.
// [1, 32] arange:f32:32 zeros:u32:32
__global__ void vote_of_lanes_that_are_elsewhere(const float* x, unsigned* y) {
  int i = threadIdx.x;
  unsigned v = 0;
  if (i < 20) v = __ballot_sync(0xffffffff, x[i] > 3);  // bug <- divergence
  if (i < 20) v = __ballot_sync(0x000fffff, x[i] > 3);  // fix
  __syncwarp();
  y[i] = v;
}

// A lane waits for a warp of which its mask says that it is no part.
// [1, 32] zeros:f32:32
__global__ void syncwarp_of_a_lane_not_in_the_mask(float* y) {
  __syncwarp(0x0000ffff);  // bug <- divergence
  __syncwarp(0xffffffff);  // fix
  y[threadIdx.x] = 1;
}

// ldmatrix under a condition.
// [1, 32] zeros:u32:32
__global__ void ldmatrix_under_a_condition(unsigned* y) {
  __shared__ __align__(16) unsigned tile[128];
  int i = threadIdx.x;
  for (int k = i; k < 128; k += 32) tile[k] = k;
  __syncthreads();
  unsigned row = (unsigned)__cvta_generic_to_shared(tile) + 16 * (i % 8), r = 0;
  if (i < 8)                                                                                        // bug
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(row));      // bug <- divergence
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(row));        // fix
  y[i] = r;
}

// A product by the lanes that have a row alone.
// [1, 32] arange:u32:32 zeros:f32:32
__global__ void mma_under_a_condition(const unsigned* x, float* y) {
  int i = threadIdx.x;
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  unsigned a = x[i];
  if (i < 24)  // bug
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};" : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a));  // <- divergence
  y[i] = c0 + c1 + c2 + c3;
}
