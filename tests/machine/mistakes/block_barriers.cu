// Block barriers: missing, too early, once too few in a loop; double buffering off by one.
#define T threadIdx.x
#define BLOCK blockDim.x

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | reads tiles that other warps have not written
extern "C" __global__ void reverse_no_barrier(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    __syncthreads();  //+
    y[T] = s[127 - T];  //!
}

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | the barrier stands before the store that it should publish
extern "C" __global__ void barrier_too_early(const float* x, float* y) {
    __shared__ float s[128];
    float v = x[T] * 2.0f;
    __syncthreads();  //-
    s[T] = v;  //!
    __syncthreads();  //+
    y[T] = s[(T + 33) % 128];  //!
}

//@ block barriers | race | 2, 256 | f32[512], f32[2]=0 | the tree's last steps run in one warp, the first ones across warps
extern "C" __global__ void reduce_barrier_outside_loop(const float* x, float* sums) {
    __shared__ float s[256];
    s[T] = x[blockIdx.x * BLOCK + T];
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (T < half) s[T] += s[T + half];  //!
        __syncthreads();  //+
    }
    __syncthreads();  //-
    if (T == 0) sums[blockIdx.x] = s[0];
}

//@ block barriers | race | 1, 256 | f32[1024], f32[4]=0 | a fast warp refills the tile while a slow one still sums it
extern "C" __global__ void tile_loop_war(const float* x, float* y) {
    __shared__ float s[256];
    for (int tile = 0; tile < 4; tile++) {
        s[T] = x[tile * 256 + T];  //!
        __syncthreads();
        float sum = 0;
        for (int i = 0; i < 8; i++) sum += s[(T * 8 + i) % 256];  //!
        atomicAdd(&y[tile], sum);
        __syncthreads();  //+
    }
}

//@ block barriers | race | 1, 64 | f32[256], f32[256], f32[256]=0 | classic tiled GEMM without the second barrier
extern "C" __global__ void gemm_no_second_barrier(const float* a, const float* b, float* c) {
    __shared__ float as[8][8], bs[8][8];
    int row = T / 8, col = T % 8;
    float sum = 0;
    for (int k = 0; k < 16; k += 8) {
        as[row][col] = a[row * 16 + k + col];  //!
        bs[row][col] = b[(k + row) * 16 + col];  //!
        __syncthreads();
        for (int i = 0; i < 8; i++) sum += as[row][i] * bs[i][col];  //!
        __syncthreads();  //+
    }
    c[row * 16 + col] = sum;
}

//@ block barriers | race | 1, 64 | f32[256], f32[256], f32[256]=0 | classic tiled GEMM without the first barrier
extern "C" __global__ void gemm_no_first_barrier(const float* a, const float* b, float* c) {
    __shared__ float as[8][8], bs[8][8];
    int row = T / 8, col = T % 8;
    float sum = 0;
    for (int k = 0; k < 16; k += 8) {
        as[row][col] = a[row * 16 + k + col];  //!
        bs[row][col] = b[(k + row) * 16 + col];  //!
        __syncthreads();  //+
        for (int i = 0; i < 8; i++) sum += as[row][i] * bs[i][col];  //!
        __syncthreads();
    }
    c[row * 16 + col] = sum;
}

//@ block barriers | race | 1, 128 | f32[1024], f32[128]=0 | the next tile goes into the buffer that is being read
extern "C" __global__ void double_buffer_same_stage(const float* x, float* y) {
    __shared__ float s[2][128];
    float sum = 0;
    s[0][T] = x[T];
    __syncthreads();
    for (int i = 0; i < 7; i++) {
        s[i & 1][T] = x[(i + 1) * 128 + T];  //-!
        s[(i + 1) & 1][T] = x[(i + 1) * 128 + T];  //+
        sum += s[i & 1][127 - T];  //!
        __syncthreads();
    }
    y[T] = sum;
}

//@ block barriers | race | 1, 128 | f32[1024], f32[128]=0 | one barrier in two steps is one too few for two stages
extern "C" __global__ void double_buffer_barrier_every_other(const float* x, float* y) {
    __shared__ float s[2][128];
    float sum = 0;
    for (int i = 0; i < 8; i++) {
        s[i & 1][T] = x[i * 128 + T];  //!
        if (i & 1) __syncthreads();  //-
        __syncthreads();  //+
        sum += s[i & 1][127 - T];  //!
    }
    y[T] = sum;
}

//@ block barriers | race | 1, 128 | f32[1024], f32[128]=0 | three stages are needed where the barrier comes after the load of the next but one
extern "C" __global__ void triple_buffer_two_stages(const float* x, float* y) {
    __shared__ float s[3][128];
    const int stages = 2;  //-
    const int stages = 3;  //+
    float sum = 0;
    s[0][T] = x[T];  //!
    s[1][T] = x[128 + T];
    __syncthreads();
    for (int i = 0; i < 6; i++) {
        s[(i + 2) % stages][T] = x[(i + 2) * 128 + T];  //!
        sum += s[i % stages][(T + 64) % 128];  //!
        __syncthreads();
    }
    y[T] = sum;
}

//@ block barriers | race | 1, 256 | f32[256], f32[256]=0 | Hillis-Steele scan in one buffer: reads race with the writes of the same step
extern "C" __global__ void scan_in_place(const float* x, float* y) {
    __shared__ float s[256];
    s[T] = x[T];
    __syncthreads();
    for (int d = 1; d < 256; d <<= 1) {
        float v = T >= d ? s[T - d] : 0.0f;  //!
        __syncthreads();  //+
        s[T] += v;  //!
        __syncthreads();
    }
    y[T] = s[T];
}

//@ block barriers | race | 1, 256 | f32[256], f32[1]=0 | warp sums are read before the other warps have stored theirs
extern "C" __global__ void block_reduce_no_barrier(const float* x, float* total) {
    __shared__ float sums[8];
    float v = x[T];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
    if (T % 32 == 0) sums[T / 32] = v;  //!
    __syncthreads();  //+
    if (T < 32) {
        v = T < 8 ? sums[T] : 0.0f;  //!
        for (int d = 4; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
        if (T == 0) *total = v;
    }
}

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | two block reductions share their scratch with no barrier between them (layer norm)
__device__ float block_sum(float v, float* sums) {
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    if (T % 32 == 0) sums[T / 32] = v;  //!
    __syncthreads();
    v = 0;
    for (int i = 0; i < BLOCK / 32; i++) v += sums[i];  //!
    return v;
}

extern "C" __global__ void two_reductions_one_scratch(const float* x, float* y) {
    __shared__ float sums[4];
    float mean = block_sum(x[T], sums) / 128;  //!
    __syncthreads();  //+
    float d = x[T] - mean;
    float var = block_sum(d * d, sums) / 128;  //!
    y[T] = d * rsqrtf(var + 1e-5f);
}

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | softmax: the sum overwrites the maximum that slow warps still read
extern "C" __global__ void softmax_shared_scalar(const float* x, float* y) {
    __shared__ float s[128], scalar;
    s[T] = x[T];
    __syncthreads();
    if (T == 0) {
        float m = s[0];
        for (int i = 1; i < 128; i++) m = fmaxf(m, s[i]);
        scalar = m;
    }
    __syncthreads();
    float e = exp2f(s[T] - scalar);  //!
    __syncthreads();  //+
    s[T] = e;
    if (T == 0) scalar = 0;  //!
    __syncthreads();
    atomicAdd(&scalar, e);
    __syncthreads();
    y[T] = e / scalar;
}

//@ block barriers | race | 1, 256 | f32[256], f32[256]=0 | transpose through shared memory, the barrier forgotten
extern "C" __global__ void transpose_no_barrier(const float* x, float* y) {
    __shared__ float tile[16][17];
    int r = T / 16, c = T % 16;
    tile[r][c] = x[T];  //!
    __syncthreads();  //+
    y[T] = tile[c][r];  //!
}

//@ block barriers | race | 1, 130 | f32[130], f32[128]=0 | the halo is loaded by the last two threads, in another warp
extern "C" __global__ void stencil_halo_no_barrier(const float* x, float* y) {
    __shared__ float s[130];
    s[T] = x[T];  //!
    __syncthreads();  //+
    if (T < 128) y[T] = s[T] + s[T + 1] + s[T + 2];  //!
}

//@ block barriers | race | 1, 128 | i32[128]%7, i32[128]=0 | shared flag set in a loop: the reset of the next round races with its test
extern "C" __global__ void loop_until_flag(int* x, int* rounds) {
    __shared__ int changed;
    int n = 0;
    do {
        __syncthreads();  //+
        if (T == 0) changed = 0;  //!
        __syncthreads();
        if (x[T] > 0) { x[T]--; atomicExch(&changed, 1); }
        __syncthreads();
        n++;
    } while (changed);  //!
    rounds[T] = n;
}

//@ block barriers | race | 1, 64x2 | f32[128], f32[128]=0 | rows of a 2D block are different warps
extern "C" __global__ void two_dimensional_block(const float* x, float* y) {
    __shared__ float s[2][64];
    s[threadIdx.y][T] = x[threadIdx.y * 64 + T];  //!
    __syncthreads();  //+
    y[threadIdx.y * 64 + T] = s[1 - threadIdx.y][T];  //!
}

//@ block barriers | race | 1, 128, 512 | f32[128], f32[128]=0 | dynamic shared memory used twice for different things
extern "C" __global__ void reuse_dynamic_shared(const float* x, float* y) {
    extern __shared__ float buffer[];
    buffer[T] = x[T];
    __syncthreads();
    float v = buffer[127 - T];  //!
    __syncthreads();  //+
    int* counts = reinterpret_cast<int*>(buffer);
    counts[T] = 0;  //!
    __syncthreads();
    atomicAdd(&counts[(int)v % 8], 1);
    __syncthreads();
    y[T] = counts[T % 8];
}

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | bitonic sort: the barrier is at the end of the outer loop only
extern "C" __global__ void bitonic_outer_barrier(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];
    __syncthreads();
    for (int k = 2; k <= 128; k <<= 1) {
        for (int j = k >> 1; j > 0; j >>= 1) {
            int other = T ^ j;
            if (other > T) {
                float a = s[T], b = s[other];  //!
                if ((a > b) == ((T & k) == 0)) { s[T] = b; s[other] = a; }  //!
            }
            __syncthreads();  //+
        }
        __syncthreads();  //-
    }
    y[T] = s[T];
}

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | a fence is no barrier: it orders, but waits for nobody
extern "C" __global__ void fence_instead_of_barrier(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    __threadfence_block();  //-
    __syncthreads();  //+
    y[T] = s[127 - T];  //!
}

//@ block barriers | race | 1, 128 | f32[128], f32[128]=0 | a warp barrier where data crosses warps
extern "C" __global__ void warp_barrier_instead_of_block(const float* x, float* y) {
    __shared__ float s[128];
    s[T] = x[T];  //!
    __syncwarp();  //-
    __syncthreads();  //+
    y[T] = s[T ^ 32];  //!
}
