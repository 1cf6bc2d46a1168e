// C = A B, half in, float sums: a ring of tiles in dynamic shared memory filled by cp.async, swizzled so that
// ldmatrix meets no bank twice, each warp a part of the block's tile. A is MxK by rows, B is KxN by columns.
#include <cuda_fp16.h>

template <int BM, int BN, int BK, int STAGES, int WARPS_M, int WARPS_N>
struct Tile {
    static constexpr int THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;  // a warp's part
    static constexpr int CHUNKS = BK / 8;                       // pieces of 16 bytes in a line of a tile
    static constexpr int STAGE = (BM + BN) * BK;                // halves of one stage

    // A piece of a line moves by the line's number, so that eight lines touch all banks.
    __device__ static int place(int line, int chunk) { return (line * CHUNKS + (chunk ^ (line & (CHUNKS - 1)))) * 8; }
};

__device__ __forceinline__ void copy_async(half* to, const half* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

template <int LEFT>
__device__ __forceinline__ void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&d)[4], const half* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int BM, int BN, int BK, int STAGES, int WARPS_M, int WARPS_N>
__global__ void __launch_bounds__(32 * WARPS_M * WARPS_N)
hgemm_multistage(const half* __restrict__ A, const half* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    using T = Tile<BM, BN, BK, STAGES, WARPS_M, WARPS_N>;
    extern __shared__ __align__(128) half ring[];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_m = warp / WARPS_N * T::WM, warp_n = warp % WARPS_N * T::WN;
    const half* a_tile = A + static_cast<size_t>(blockIdx.y) * BM * K;
    const half* b_tile = B + static_cast<size_t>(blockIdx.x) * BN * K;

    auto fill = [&](int step) {
        half* stage = ring + step % STAGES * T::STAGE;
        for (int i = thread; i < BM * T::CHUNKS; i += T::THREADS) {
            const int line = i / T::CHUNKS, chunk = i % T::CHUNKS;
            copy_async(stage + T::place(line, chunk), a_tile + static_cast<size_t>(line) * K + step * BK + chunk * 8);
        }
        for (int i = thread; i < BN * T::CHUNKS; i += T::THREADS) {
            const int line = i / T::CHUNKS, chunk = i % T::CHUNKS;
            copy_async(stage + BM * BK + T::place(line, chunk),
                       b_tile + static_cast<size_t>(line) * K + step * BK + chunk * 8);
        }
    };

    float sums[T::WM / 16][T::WN / 8][4] = {};
    const int steps = K / BK;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) fill(s);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int step = 0; step < steps; step++) {
        wait_group<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) fill(step + STAGES - 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        const half* a_stage = ring + step % STAGES * T::STAGE;
        const half* b_stage = a_stage + BM * BK;
#pragma unroll
        for (int k = 0; k < BK / 16; k++) {
            unsigned a[T::WM / 16][4], b[T::WN / 16][4];
#pragma unroll
            for (int i = 0; i < T::WM / 16; i++)
                load_matrices(a[i], a_stage + T::place(warp_m + i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
            for (int j = 0; j < T::WN / 16; j++)
                load_matrices(b[j], b_stage + T::place(warp_n + j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < T::WM / 16; i++)
#pragma unroll
                for (int j = 0; j < T::WN / 8; j++)
                    multiply(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    wait_group<0>();
    const int row = blockIdx.y * BM + warp_m + lane / 4, col = blockIdx.x * BN + warp_n + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < T::WM / 16; i++)
#pragma unroll
        for (int j = 0; j < T::WN / 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *reinterpret_cast<float2*>(&C[static_cast<size_t>(row + i * 16 + h * 8) * N + col + j * 8]) =
                    make_float2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
}

template __global__ void hgemm_multistage<64, 64, 32, 3, 2, 2>(const half*, const half*, float*, int, int, int);
