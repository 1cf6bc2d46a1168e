// arch: sm_80
// Barriers in shared memory (mbarrier).
#define ADDRESS(p) ((unsigned)__cvta_generic_to_shared(p))
#define INIT(b, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ADDRESS(b)), "r"(n) : "memory")
#define ARRIVE(b) asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(ADDRESS(b)) : "memory")
#define AWAIT(b, phase)                                                                                       \
  for (int done = 0; !done;)                                                                                  \
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"  \
                 : "=r"(done) : "r"(ADDRESS(b)), "r"(phase) : "memory")

// A consumer that does not wait for the producer.
// [1, 64] arange:f32:32 zeros:f32:32
__global__ void consumer_does_not_wait(const float* x, float* y) {
  __shared__ float tile[32];
  __shared__ unsigned long long full;
  int i = threadIdx.x % 32;
  if (threadIdx.x == 0) INIT(&full, 32);
  __syncthreads();
  if (threadIdx.x < 32) {
    tile[i] = x[i];
    ARRIVE(&full);
  } else {
    AWAIT(&full, 0);  // fix
    y[i] = tile[31 - i];  // <- race
  }
}

// A warp whose copies an mbarrier tracks, and that arrives there as others do, but does not wait.
// [1, 64] arange:f32:64 zeros:f32:64
__global__ void tracked_copies_not_waited_for(const float* x, float* y) {
  __shared__ __align__(16) float tile[64];
  __shared__ unsigned long long full;
  int i = threadIdx.x;
  if (i == 0) INIT(&full, 128);
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(ADDRESS(tile + i)), "l"(x + i) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(ADDRESS(&full)) : "memory");
  ARRIVE(&full);
  AWAIT(&full, 0);  // fix
  y[i] = tile[i ^ 1] + tile[63 - i];  // <- asynchronous copy
}

// Copies that another warp waits for; their own warp learns of it at a barrier, and then reads them.
// [1, 64] arange:f32:32 zeros:f32:32
__global__ void another_waits_for_the_copies(const float* x, float* y) {
  __shared__ __align__(16) float tile[32];
  __shared__ unsigned long long full;
  int i = threadIdx.x % 32;
  if (threadIdx.x == 0) INIT(&full, 32);
  __syncthreads();
  if (threadIdx.x < 32) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(ADDRESS(tile + i)), "l"(x + i) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(ADDRESS(&full)) : "memory");
  } else {
    AWAIT(&full, 0);  // fix
  }
  __syncthreads();
  if (threadIdx.x < 32) y[i] = tile[31 - i];  // <- asynchronous copy
}

// A consumer that waits for a phase that is over, and so for nothing.
// [1, 64] arange:f32:32 zeros:f32:32
__global__ void wait_for_the_wrong_phase(const float* x, float* y) {
  __shared__ float tile[32];
  __shared__ unsigned long long full;
  int i = threadIdx.x % 32;
  if (threadIdx.x == 0) INIT(&full, 32);
  __syncthreads();
  if (threadIdx.x < 32) {
    tile[i] = x[i];
    ARRIVE(&full);
  } else {
    AWAIT(&full, 1);  // bug <- barrier
    AWAIT(&full, 0);  // fix
    y[i] = tile[31 - i];
  }
}

// More arrivals are waited for than come.
// [1, 64] arange:f32:32 zeros:f32:32 steps=400000
__global__ void more_arrivals_than_come(const float* x, float* y) {
  __shared__ float tile[32];
  __shared__ unsigned long long full;
  int i = threadIdx.x % 32;
  if (threadIdx.x == 0) INIT(&full, 33);  // bug
  if (threadIdx.x == 0) INIT(&full, 32);  // fix
  __syncthreads();
  if (threadIdx.x < 32) {
    tile[i] = x[i];
    ARRIVE(&full);
  } else {
    AWAIT(&full, 0);  // <- endless deadlock barrier
    y[i] = tile[31 - i];
  }
}

// A barrier that others use before it is made.
// [1, 64] arange:f32:32 zeros:f32:32 steps=400000
__global__ void barrier_used_before_it_is_made(const float* x, float* y) {
  __shared__ float tile[32];
  __shared__ unsigned long long full;
  int i = threadIdx.x % 32;
  if (threadIdx.x == 32) INIT(&full, 32);
  __syncthreads();  // fix
  if (threadIdx.x < 32) {
    tile[i] = x[i];
    ARRIVE(&full);  // <- race uninitialised barrier
  } else {
    AWAIT(&full, 0);
    y[i] = tile[31 - i];
  }
}
