// How often each of 64 values occurs: counted in shared memory, then added to the result.
extern "C" __global__ void histogram(const unsigned char* x, int n, int* counts) {
    __shared__ int mine[64];
    const int thread = threadIdx.x;
    if (thread < 64) mine[thread] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + thread; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[x[i] % 64], 1);
    __syncthreads();
    if (thread < 64) atomicAdd(&counts[thread], mine[thread]);
}
