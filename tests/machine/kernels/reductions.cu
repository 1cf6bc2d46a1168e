// Sums: by shuffles within a warp and shared memory within a block, over a whole grid in one launch (the last block
// to finish adds what the others left); softmax of rows; histograms.

__device__ float block_sum(float x) {
    __shared__ float parts[32];
    for (int step = 16; step; step /= 2) x += __shfl_down_sync(~0u, x, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        x = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
        for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    }
    __syncthreads();
    return x;
}

extern "C" __global__ void sum_of_rows(const float* x, float* sums, int n) {
    float part = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) part += x[blockIdx.x * n + i];
    const float sum = block_sum(part);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__device__ unsigned blocks_done = 0;

extern "C" __global__ void sum_of_all(const float* x, volatile float* parts, float* result, int n) {
    __shared__ bool last;
    float part = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) part += x[i];
    part = block_sum(part);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = part;
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;  // wraps to 0 for the next launch
    }
    __syncthreads();
    if (last) {
        float all = 0;
        for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) all += parts[i];
        all = block_sum(all);
        if (threadIdx.x == 0) *result = all;
    }
}

extern "C" __global__ void softmax(const float* x, float* y, int n) {
    __shared__ float parts[32];
    const float* row = x + static_cast<size_t>(blockIdx.x) * n;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, row[i]);
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    if (lane == 0) parts[warp] = top;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; i++) top = fmaxf(top, parts[i]);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += __expf(row[i] - top);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x / 32; i++) sum += parts[i];
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[static_cast<size_t>(blockIdx.x) * n + i] = __expf(row[i] - top) / sum;
}

// 256 bins: a histogram of each block in shared memory, then all of them into one; lanes that meet in a bin add once.
extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, unsigned* zeros, int n) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[x[i]], 1u);
        if (x[i] == 0) atomicAdd(zeros, 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (own[i]) atomicAdd(&bins[i], own[i]);
}
