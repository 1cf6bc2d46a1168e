// arch: sm_90
// What came with Hopper.
#define STMATRIX(p, v) asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"((unsigned)__cvta_generic_to_shared(p)), "r"(v) : "memory")

// Row addresses that step by an element instead of by a row.
// [1, 32] zeros:u32:32
__global__ void stmatrix_rows_two_bytes_apart(unsigned* y) {
  __shared__ __align__(16) unsigned short tile[64];
  int i = threadIdx.x;
  STMATRIX(tile + i % 8, i);      // bug <- misaligned
  STMATRIX(tile + i % 8 * 8, i);  // fix
  __syncwarp();
  y[i] = tile[2 * i];
}

// Two warps store their tile to one place.
// [1, 64] zeros:u32:64
__global__ void stmatrix_of_two_warps(unsigned* y) {
  __shared__ __align__(16) unsigned short tile[2][64];
  int i = threadIdx.x, lane = i % 32, warp = i / 32;
  STMATRIX(&tile[0][lane % 8 * 8], i);     // bug <- race
  STMATRIX(&tile[warp][lane % 8 * 8], i);  // fix
  __syncthreads();
  y[i] = tile[0][lane];
}
