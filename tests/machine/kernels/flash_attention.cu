// Attention forward as FlashAttention does it: a block of 4 warps has 64 queries of one head, keys and values come
// in tiles of 64, the softmax goes along (running maximum and sum). D = 64. Q, K, V, O: [heads, length, 64].
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int D = 64, TILE = 64;

template <class T> struct Type;
template <> struct Type<half> {
    __device__ static unsigned pack(float x, float y) {
        const half2 pair = __floats2half2_rn(x, y);
        return *reinterpret_cast<const unsigned*>(&pair);
    }
    __device__ static void multiply(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
template <> struct Type<__nv_bfloat16> {
    __device__ static unsigned pack(float x, float y) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
        return *reinterpret_cast<const unsigned*>(&pair);
    }
    __device__ static void multiply(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// A line of a tile is 128 bytes: its eight pieces change places by the line's number.
template <class T>
__device__ __forceinline__ T* place(T* tile, int line, int chunk) {
    return tile + line * D + ((chunk ^ (line & 7)) * 8);
}

template <class T>
__device__ __forceinline__ void fill(T* tile, const T* from, int thread) {
    for (int i = thread; i < TILE * D / 8; i += 128) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(place(tile, i / 8, i % 8)));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + i * 8) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <bool TRANSPOSED, class T>
__device__ __forceinline__ void load_matrices(unsigned (&d)[4], const T* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ float over_quad(float x, bool largest) {
    for (int mask = 1; mask < 4; mask *= 2) {
        const float other = __shfl_xor_sync(~0u, x, mask);
        x = largest ? fmaxf(x, other) : x + other;
    }
    return x;
}

template <class T, bool CAUSAL>
__global__ void __launch_bounds__(128)
attention(const T* Q, const T* K, const T* V, T* O, float* log_sums, int length, float scale) {
    __shared__ __align__(128) T q_tile[TILE * D], k_tile[TILE * D], v_tile[TILE * D];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const size_t head = static_cast<size_t>(blockIdx.y) * length * D;
    const int first = blockIdx.x * TILE;
    fill(q_tile, Q + head + first * D, thread);
    fill(k_tile, K + head, thread);
    float sums[D / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    unsigned q[D / 16][4];
    const int tiles = CAUSAL ? blockIdx.x + 1 : length / TILE;
    const float to_exponent = scale * 1.4426950408889634f;
    for (int tile = 0; tile < tiles; tile++) {
        fill(v_tile, V + head + tile * TILE * D, thread);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if (tile == 0)
#pragma unroll
            for (int k = 0; k < D / 16; k++)
                load_matrices<false>(q[k], place(q_tile, warp * 16 + lane % 16, k * 2 + lane / 16));
        float s[TILE / 8][4] = {};
#pragma unroll
        for (int k = 0; k < D / 16; k++)
#pragma unroll
            for (int j = 0; j < TILE / 16; j++) {
                unsigned b[4];
                load_matrices<false>(b, place(k_tile, j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
                Type<T>::multiply(s[2 * j], q[k], b[0], b[1]);
                Type<T>::multiply(s[2 * j + 1], q[k], b[2], b[3]);
            }
        __syncthreads();
        if (tile + 1 < tiles) fill(k_tile, K + head + (tile + 1) * TILE * D, thread);
        else asm volatile("cp.async.commit_group;" ::: "memory");
        if (CAUSAL && tile == static_cast<int>(blockIdx.x))
#pragma unroll
            for (int j = 0; j < TILE / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (j * 8 + lane % 4 * 2 + i % 2 > warp * 16 + lane / 4 + i / 2 * 8) s[j][i] = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = largest[h];
#pragma unroll
            for (int j = 0; j < TILE / 8; j++) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
            top = over_quad(top, true);
            const float shrink = exp2f((largest[h] - top) * to_exponent);
            largest[h] = top;
            float sum = 0;
#pragma unroll
            for (int j = 0; j < TILE / 8; j++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) sum += s[j][i] = exp2f((s[j][i] - top) * to_exponent);
            total[h] = total[h] * shrink + sum;
#pragma unroll
            for (int j = 0; j < D / 8; j++) sums[j][2 * h] *= shrink, sums[j][2 * h + 1] *= shrink;
        }
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE / 16; k++) {
            const unsigned p[4] = {Type<T>::pack(s[2 * k][0], s[2 * k][1]), Type<T>::pack(s[2 * k][2], s[2 * k][3]),
                                   Type<T>::pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                                   Type<T>::pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                unsigned b[4];
                load_matrices<true>(b, place(v_tile, k * 16 + lane % 16, j * 2 + lane / 16));
                Type<T>::multiply(sums[2 * j], p, b[0], b[1]);
                Type<T>::multiply(sums[2 * j + 1], p, b[2], b[3]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float sum = over_quad(total[h], false);
        const int row = first + warp * 16 + lane / 4 + h * 8;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *reinterpret_cast<unsigned*>(&O[head + row * D + j * 8 + lane % 4 * 2]) =
                Type<T>::pack(sums[j][2 * h] / sum, sums[j][2 * h + 1] / sum);
        if (lane % 4 == 0) log_sums[blockIdx.y * length + row] = largest[h] * scale + logf(sum);
    }
}

template __global__ void attention<half, false>(const half*, const half*, const half*, half*, float*, int, float);
template __global__ void attention<half, true>(const half*, const half*, const half*, half*, float*, int, float);
template __global__ void attention<__nv_bfloat16, true>(const __nv_bfloat16*, const __nv_bfloat16*,
                                                        const __nv_bfloat16*, __nv_bfloat16*, float*, int, float);
