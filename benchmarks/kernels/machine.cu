// The kernels that benchmarks/machine.py times. machine.ptx is what NVRTC makes of them (`--ptx` writes it).
#include <cuda_fp16.h>

extern "C" __global__ void mandelbrot(int *counts, int width, float step, int limit)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    float cx = -2.0f + step * (place % width), cy = -1.25f + step * (place / width);
    float x = 0, y = 0;
    int n = 0;
    while (n < limit && x * x + y * y < 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        n++;
    }
    counts[place] = n;
}

extern "C" __global__ void polynomial(const float *in, float *out, int repeats)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[place], sum = 0;
    for (int turn = 0; turn < repeats; turn++) {
#pragma unroll
        for (int term = 0; term < 128; term++)
            sum = __fmaf_rn(sum, x, 1.0f / (term + 1));
    }
    out[place] = sum;
}

extern "C" __global__ void saxpy(const float *x, float *y, float a, int n)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n)
        y[place] = a * x[place] + y[place];
}

extern "C" __global__ void transpose(const float *in, float *out, int width)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int row = 0; row < 32; row += 8)
        tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
#pragma unroll
    for (int row = 0; row < 32; row += 8)
        out[(y + row) * width + x] = tile[threadIdx.x][threadIdx.y + row];
}

extern "C" __global__ void reduction(const float *in, float *out)
{
    __shared__ float sums[256];
    int own = threadIdx.x;
    sums[own] = in[blockIdx.x * 256 + own];
    __syncthreads();
#pragma unroll
    for (int half = 128; half > 0; half /= 2) {
        if (own < half)
            sums[own] += sums[own + half];
        __syncthreads();
    }
    if (own == 0)
        out[blockIdx.x] = sums[0];
}

// One warp a block, one 16 x 8 tile of C: A is row-major M x K, B is N x K.
extern "C" __global__ void hgemm(const half *A, const half *B, half *C, int M, int N, int K)
{
    __shared__ half as[16][16], bs[8][16], cs[16][8];
    int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    unsigned c[2] = {0, 0};
    for (int step = 0; step < K; step += 16) {
        *(int4 *)&as[lane / 2][lane % 2 * 8] = *(const int4 *)&A[(row + lane / 2) * K + step + lane % 2 * 8];
        if (lane < 16)
            *(int4 *)&bs[lane / 2][lane % 2 * 8] = *(const int4 *)&B[(column + lane / 2) * K + step + lane % 2 * 8];
        __syncthreads();
        unsigned a[4], b[2];
        unsigned from_a = __cvta_generic_to_shared(&as[lane % 16][lane / 16 * 8]);
        unsigned from_b = __cvta_generic_to_shared(&bs[lane % 8][lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from_a));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1]) : "r"(from_b));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                     : "+r"(c[0]), "+r"(c[1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        __syncthreads();
    }
    *(unsigned *)&cs[lane / 4][lane % 4 * 2] = c[0];
    *(unsigned *)&cs[lane / 4 + 8][lane % 4 * 2] = c[1];
    __syncthreads();
    if (lane < 16)
        *(int4 *)&C[(row + lane) * N + column] = *(int4 *)&cs[lane][0];
}

// About a thousand typical instructions in one piece: rounds of a hash, address arithmetic, floats, loads and stores.
extern "C" __global__ void unrolled(const unsigned *in, float *out, int n)
{
    __shared__ unsigned words[256];
    int own = threadIdx.x, place = blockIdx.x * blockDim.x + own;
    unsigned h = in[place % n];
    float sum = 0;
#pragma unroll
    for (int round = 0; round < 26; round++) {
        h = (h ^ (h >> 15)) * (0x2c1b3c6du + 2 * round);
        h = (h << 7 | h >> 25) + (h & 0x55aa) * 3;
        unsigned other = in[(h + round) % n];
        words[own] = h;
        __syncwarp();
        float x = (float)(int)(other >> 8), y = __uint_as_float((h & 0x7fffff) | 0x3f800000);
        sum = h & 1 ? fmaf(x, y, sum) : sum - x * y;
        sum = fmaxf(sum, (float)words[own ^ 1]) * 0.5f;
        if (sum > 1e9f)
            sum = sqrtf(sum);
    }
    out[place] = sum;
}
