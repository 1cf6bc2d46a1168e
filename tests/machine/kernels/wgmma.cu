// D = A·Bᵀ on one warpgroup and block: A (M, K) and B (N, K), both row-major, tiles of 64 × 256 × 64.
typedef unsigned long long u64;
constexpr int M_TILE = 64, N_TILE = 256, K_TILE = 64;
constexpr int ROW = 2 * K_TILE;   // bytes: the width of the 128-byte swizzle

// A tile of rows of 128 bytes; the 16-byte piece p of row r lies at piece p ^ (r % 8).
template <int ROWS> __device__ void load(char *tile, const char *from, int pitch) {
    for (int piece = threadIdx.x; piece < ROWS * 8; piece += blockDim.x) {
        int row = piece / 8, column = piece % 8;
        *(uint4 *)(tile + row * ROW + (column ^ row % 8) * 16) = *(const uint4 *)(from + (u64)row * pitch + column * 16);
    }
}

__device__ u64 descriptor(const void *tile) {   // stride offset 1024, swizzle 128B
    return (u64)((unsigned)__cvta_generic_to_shared(tile) & 0x3FFFF) >> 4 | 64ull << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(128) gemm(const char *a, const char *b, float *d, int n, int k) {
    extern __shared__ __align__(1024) char shared[];
    char *tile_a = shared, *tile_b = shared + M_TILE * ROW;
    const int row = blockIdx.y * M_TILE, column = blockIdx.x * N_TILE, pitch = 2 * k;
    float acc[128] = {};
    for (int start = 0; start < k; start += K_TILE) {
        load<M_TILE>(tile_a, a + (u64)row * pitch + 2 * start, pitch);
        load<N_TILE>(tile_b, b + (u64)column * pitch + 2 * start, pitch);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int step = 0; step < K_TILE / 16; step++)
            WGMMA(acc, descriptor(tile_a + 32 * step), descriptor(tile_b + 32 * step));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    const int lane = threadIdx.x % 32, first = row + threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < 128; i += 2)
        *(float2 *)(d + (u64)(first + 8 * (i / 2 % 2)) * n + column + i / 4 * 8 + lane % 4 * 2) =
            make_float2(acc[i], acc[i + 1]);
}
