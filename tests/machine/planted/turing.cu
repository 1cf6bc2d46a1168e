// arch: sm_75
// What only the older GPUs mind.

// Lanes 16 to 31 of an ldmatrix.x2, whose rows are not read, need addresses all the same.
// [1, 32] zeros:u32:32
__global__ void ldmatrix_x2_with_wild_lanes(unsigned* y) {
  __shared__ __align__(16) unsigned tile[64];
  int i = threadIdx.x;
  tile[i] = i;
  tile[i + 32] = i;
  __syncthreads();
  unsigned row = (unsigned)__cvta_generic_to_shared(tile), r[2];
  row += 16 * i;         // bug
  row += 16 * (i % 16);  // fix
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row));  // <- out of bounds
  y[i] = r[0] + r[1];
}

// The same with addresses between two rows.
// [1, 32] zeros:u32:32
__global__ void ldmatrix_x1_with_misaligned_lanes(unsigned* y) {
  __shared__ __align__(16) unsigned tile[64];
  int i = threadIdx.x;
  tile[i] = i;
  tile[i + 32] = i;
  __syncthreads();
  unsigned row = (unsigned)__cvta_generic_to_shared(tile), r;
  row += i < 8 ? 16 * i : 4 * i;  // bug
  row += 16 * (i % 8);            // fix
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(row));  // <- misaligned
  y[i] = r;
}

// More dynamic shared memory than a block of a Turing may have.
// [1, 32, 66560 or 65536] zeros:f32:32
__global__ void more_dynamic_shared_memory_than_there_is(float* y) {  // <- launch
  extern __shared__ float tile[];
  tile[threadIdx.x] = 1;
  y[threadIdx.x] = tile[threadIdx.x];
}

// More static shared memory than any kernel may declare.
// [1, 32] zeros:f32:32
__global__ void more_static_shared_memory_than_allowed(float* y) {  // <- launch
  __shared__ float tile[12800];  // bug
  __shared__ float tile[12288];  // fix
  int i = threadIdx.x;
  for (int k = i; k < 12288; k += 32) tile[k] = k;
  __syncthreads();
  y[i] = tile[12287 - 99 * i];
}
