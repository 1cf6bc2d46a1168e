// arch: sm_80
// Asynchronous copies: who waits for them, when, and where they go.
#define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory")
#define COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

// A tile is read while it is on its way.
// [1, 32] arange:f32:128 zeros:f32:32
__global__ void missing_wait(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  int i = threadIdx.x;
  COPY(tile + 4 * i, x + 4 * i);
  COMMIT();
  WAIT(0);  // fix
  __syncthreads();
  y[i] = tile[127 - 4 * i];  // <- asynchronous copy
}

// Each waits for its own copies; nobody waits for the others.
// [1, 64] arange:f32:256 zeros:f32:64
__global__ void wait_without_a_barrier(const float* x, float* y) {
  __shared__ __align__(16) float tile[256];
  int i = threadIdx.x;
  COPY(tile + 4 * i, x + 4 * i);
  COMMIT();
  WAIT(0);
  __syncthreads();           // fix
  y[i] = tile[255 - 4 * i];  // <- race
}

// The barrier comes before the wait.
// [1, 64] arange:f32:256 zeros:f32:64
__global__ void barrier_before_the_wait(const float* x, float* y) {
  __shared__ __align__(16) float tile[256];
  int i = threadIdx.x;
  COPY(tile + 4 * i, x + 4 * i);
  COMMIT();
  __syncthreads();           // bug
  WAIT(0);
  __syncthreads();           // fix
  y[i] = tile[255 - 4 * i];  // <- race asynchronous copy
}

// Copies that no group holds are waited for by nobody.
// [1, 32] arange:f32:128 zeros:f32:32
__global__ void missing_commit(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  int i = threadIdx.x;
  COPY(tile + 4 * i, x + 4 * i);
  COMMIT();  // fix
  WAIT(0);
  __syncthreads();
  y[i] = tile[127 - 4 * i];  // <- asynchronous copy
}

// Three stages; the wait leaves one group too many on its way.
// [1, 32] arange:f32:1024 zeros:f32:32
__global__ void wait_for_one_group_too_few(const float* x, float* y) {
  __shared__ __align__(16) float stages[3][128];
  int i = threadIdx.x;
  float sum = 0;
  for (int s = 0; s < 2; ++s) {
    COPY(&stages[s][4 * i], x + 128 * s + 4 * i);
    COMMIT();
  }
#pragma unroll 1
  for (int k = 0; k < 8; ++k) {
    WAIT(2);  // bug
    WAIT(1);  // fix
    __syncthreads();
    sum += stages[k % 3][127 - 4 * i];  // <- asynchronous copy
    if (k + 2 < 8) COPY(&stages[(k + 2) % 3][4 * i], x + 128 * (k + 2) + 4 * i);
    COMMIT();
  }
  y[i] = sum;
}

// The next copy goes into the stage that is being read.
// [1, 64] arange:f32:1024 zeros:f32:64
__global__ void copy_into_the_stage_in_use(const float* x, float* y) {
  __shared__ __align__(16) float stages[2][256];
  int i = threadIdx.x;
  float sum = 0;
  COPY(&stages[0][4 * i], x + 4 * i);
  COMMIT();
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    WAIT(0);
    __syncthreads();
    if (k < 3) COPY(&stages[k % 2][4 * i], x + 256 * (k + 1) + 4 * i);        // bug <- race asynchronous copy
    if (k < 3) COPY(&stages[(k + 1) % 2][4 * i], x + 256 * (k + 1) + 4 * i);  // fix
    COMMIT();
    sum += stages[k % 2][255 - 4 * i];
  }
  y[i] = sum;
}

// A store to a place to which a copy is on its way.
// [1, 32] arange:f32:128 zeros:f32:32
__global__ void store_under_a_copy(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  int i = threadIdx.x;
  COPY(tile + 4 * i, x + 4 * i);
  COMMIT();
  tile[4 * i] = 0;  // bug <- race asynchronous copy
  WAIT(0);
  tile[4 * i] = 0;  // fix
  __syncthreads();
  y[i] = tile[4 * i] + tile[4 * i + 1];
}

// Sixteen bytes from an address of four.
// [1, 32] arange:f32:160 zeros:f32:32
__global__ void misaligned_copy(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  int i = threadIdx.x;
  COPY(tile + 4 * i, x + 4 * i + 1);  // bug <- misaligned
  COPY(tile + 4 * i, x + 4 * i + 4);  // fix
  COMMIT();
  WAIT(0);
  y[i] = tile[4 * i];
}

// A copy that begins past the end.
// [1, 32] arange:f32:120 zeros:f32:32
__global__ void copy_from_past_the_end(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  int i = threadIdx.x;
  for (int k = 0; k < 4; ++k) tile[4 * i + k] = 0;
  if (i < 30)  // fix
    COPY(tile + 4 * i, x + 4 * i);  // <- out of bounds
  COMMIT();
  WAIT(0);
  y[i] = tile[4 * i];
}
