// arch: sm_80
// Threads that touch one place without an order between them.

// A tile is read before all of it is written.
// [1, 64] arange:f32:64 zeros:f32:64
__global__ void missing_barrier_before_the_read(const float* x, float* y) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  tile[i] = x[i];
  __syncthreads();      // fix
  y[i] = tile[63 - i];  // <- race
}

// A tile is filled again before all have read it.
// [1, 64] arange:f32:128 zeros:f32:64
__global__ void missing_barrier_before_the_next_tile(const float* x, float* y) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  for (int step = 0; step < 2; ++step) {
    tile[i] = x[64 * step + i];  // <- race
    __syncthreads();
    y[i] += tile[63 - i];
    __syncthreads();  // fix
  }
}

// Two warps write one word.
// [1, 64] arange:f32:64 zeros:f32:64
__global__ void two_warps_write_one_word(const float* x, float* y) {
  __shared__ float first;
  int i = threadIdx.x;
  if (i % 32 == 0) first = x[i];  // bug <- race
  if (i == 0) first = x[i];       // fix
  __syncthreads();
  y[i] = first;
}

// A block reads what another one writes.
// [2, 32] arange:f32:64 zeros:f32:64
__global__ void blocks_share_an_array(float* x, float* y) {
  int i = 32 * blockIdx.x + threadIdx.x;
  x[i] = 2 * x[i];
  y[i] = x[63 - i];      // bug <- race
  y[i] = x[i] + i;       // fix
}

// A sum of what other blocks left, with nothing that says they are done.
// [4, 32] zeros:f32:4 zeros:f32:1
__global__ void partial_sums_before_they_are_there(float* partial, float* total) {
  if (threadIdx.x == 0) partial[blockIdx.x] = blockIdx.x;
  if (blockIdx.x == 3 && threadIdx.x == 0) {  // bug
    float sum = 0;                            // bug
    for (int b = 0; b < 4; ++b)               // bug
      sum += partial[b];                      // bug <- race
    *total = sum;                             // bug
  }                                           // bug
  if (threadIdx.x == 0) atomicAdd(total, float(blockIdx.x));  // fix
}

// Counts are read, raised and written by many.
// [2, 64] random:u32:128 zeros:u32:8
__global__ void histogram_without_atomics(const unsigned* x, unsigned* counts) {
  unsigned bin = x[64 * blockIdx.x + threadIdx.x] % 8;
  counts[bin] = counts[bin] + 1;  // bug <- race
  atomicAdd(&counts[bin], 1);     // fix
}

// The same in shared memory.
// [1, 64] random:u32:64 zeros:u32:8
__global__ void shared_histogram_without_atomics(const unsigned* x, unsigned* counts) {
  __shared__ unsigned bins[8];
  int i = threadIdx.x;
  if (i < 8) bins[i] = 0;
  __syncthreads();
  unsigned bin = x[i] % 8;
  bins[bin] = bins[bin] + 1;  // bug <- race
  atomicAdd(&bins[bin], 1);   // fix
  __syncthreads();
  if (i < 8) counts[i] = bins[i];
}

// A counter is set to zero by a plain store while others raise it.
// [1, 64] zeros:s32:64
__global__ void counter_set_while_it_is_raised(int* y) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();      // fix
  atomicAdd(&count, 1);  // <- race
  __syncthreads();
  y[threadIdx.x] = count;
}

// A counter that others raise is read by a plain load.
// [1, 64] zeros:s32:1 zeros:s32:64
__global__ void counter_read_while_it_is_raised(int* count, int* y) {
  int i = threadIdx.x;
  if (i < 32) atomicAdd(count, 1);
  if (i >= 32) y[i] = *count;               // bug <- race
  if (i >= 32) y[i] = atomicAdd(count, 0);  // fix
}

// Lanes 0 and 16 write one place: > stands where >= was meant.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void greater_where_not_less_was_meant(const float* x, float* y) {
  int i = threadIdx.x;
  int place = 2 * (i % 16) + (i > 16);   // bug
  int place = 2 * (i % 16) + (i >= 16);  // fix
  y[place] = x[i];                       // <- race
}

// Two buffers take turns, and nothing stands between two turns.
// [1, 64] arange:f32:256 zeros:f32:64
__global__ void double_buffer_without_a_barrier(const float* x, float* y) {
  __shared__ float tiles[2][64];
  int i = threadIdx.x;
  float sum = 0;
  tiles[0][i] = x[i];
  __syncthreads();
  for (int k = 0; k < 4; ++k) {
    if (k < 3) tiles[(k + 1) % 2][i] = x[64 * (k + 1) + i];  // <- race
    sum += tiles[k % 2][63 - i];
    __syncthreads();  // fix
  }
  y[i] = sum;
}

// The next tile goes into the buffer that is being read.
// [1, 64] arange:f32:256 zeros:f32:64
__global__ void double_buffer_with_the_wrong_index(const float* x, float* y) {
  __shared__ float tiles[2][64];
  int i = threadIdx.x;
  float sum = 0;
  tiles[0][i] = x[i];
  __syncthreads();
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    if (k < 3) tiles[k % 2][i] = x[64 * (k + 1) + i];        // bug <- race
    if (k < 3) tiles[(k + 1) % 2][i] = x[64 * (k + 1) + i];  // fix
    sum += tiles[k % 2][63 - i];
    __syncthreads();
  }
  y[i] = sum;
}

// A stencil over an array in place.
// [1, 64] arange:f32:65
__global__ void stencil_in_place(float* x) {
  int i = threadIdx.x;
  float next = x[i + 1];  // <- race
  __syncthreads();        // fix
  x[i] = x[i] + next;
}

// A transpose through a tile whose columns other warps write.
// [1, (32, 2)] arange:f32:32x2 zeros:f32:32x2
__global__ void transpose_without_a_barrier(const float* x, float* y) {
  __shared__ float tile[2][33];
  int row = threadIdx.y, column = threadIdx.x;
  tile[row][column] = x[32 * row + column];
  __syncthreads();  // fix
  int at = 32 * row + column;
  y[at] = tile[at % 2][at / 2];  // <- race
}

// Only one of two groups of warps waits at the barrier that both need.
// [1, 96] arange:f32:96 zeros:f32:96
__global__ void barrier_for_too_few_warps(const float* x, float* y) {
  __shared__ float tile[96];
  int i = threadIdx.x;
  tile[i] = x[i];
  if (i < 64) asm volatile("bar.sync 1, 64;" ::: "memory");  // bug
  asm volatile("bar.sync 1, 96;" ::: "memory");              // fix
  y[i] = tile[95 - i];                                       // <- race
}

// Lanes of one warp sum through shared memory as if they ran in step.
// [1, 32] arange:f32:32 zeros:f32:1
__global__ void missing_syncwarp_in_a_reduction(const float* x, float* y) {
  __shared__ float sums[32];
  int i = threadIdx.x;
  sums[i] = x[i];
  __syncwarp();
  for (int half = 16; half > 0; half /= 2) {
    if (i < half) sums[i] = sums[i] + sums[i + half];  // <- race
    __syncwarp();                                      // fix
  }
  if (i == 0) y[0] = sums[0];
}

// A result of one lane is read by the others without a word between them.
// [1, 32] arange:f32:32 zeros:f32:32
__global__ void one_lane_writes_for_all(const float* x, float* y) {
  __shared__ float scale;
  int i = threadIdx.x;
  if (i == 5) scale = x[i];
  __syncwarp();         // fix
  y[i] = x[i] * scale;  // <- race uninitialised
}
