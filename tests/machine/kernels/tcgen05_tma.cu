// D = A·Bᵀ by TMA and tcgen05.mma, warp-specialised: A (M, K) and B (N, K) of bf16, both row-major. One thread fills
// a ring of stages with tiles of 64 columns of K, swizzled by 128 bytes; another one issues products of 128 × 128, or
// with PAIR = 2 of 256 × 128 for two blocks, of which each holds half of A's rows and half of B's.
#include <cuda.h>
typedef unsigned long long u64;
constexpr int ROWS = 128, COLUMNS = 128, K_TILE = 64, STAGES = 3;

#define R4(i) "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

__device__ unsigned address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }
__device__ void init(u64 *barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count));
}
__device__ void expect(u64 *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(u64 *barrier, int parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}
__device__ u64 descriptor(const void *tile) {   // stride offset 1024, version 1, swizzle 128B
    return (u64)(address(tile) & 0x3FFFF) >> 4 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

__device__ void copy(const CUtensorMap &map, int k, int row, char *to, u64 *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(address(to)), "l"(&map), "r"(k), "r"(row), "r"(address(barrier)) : "memory");
}
__device__ void arrive_in_first(u64 *barrier) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, 0;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];}" ::"r"(address(barrier)) : "memory");
}

template <int PAIR> __device__ void multiply(unsigned d, u64 a, u64 b, unsigned what, bool adds) {
    if (PAIR == 2)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;}"
                     ::"r"(d), "l"(a), "l"(b), "r"(what), "r"((int)adds) : "memory");
    else
        asm volatile("{.reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}"
                     ::"r"(d), "l"(a), "l"(b), "r"(what), "r"((int)adds) : "memory");
}

template <int PAIR> __device__ void commit(u64 *barrier) {
    if (PAIR == 2)
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
                     "[%0], %1;" ::"r"(address(barrier)), "h"((short)3) : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     ::"r"(address(barrier)) : "memory");
}

template <int PAIR> __device__ void sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    if (PAIR == 2)
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    else
        __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

template <int PAIR> __device__ void run(const CUtensorMap &a, const CUtensorMap &b, float *d, int n, int k) {
    constexpr int TILE_A = ROWS * 128, TILE_B = COLUMNS / PAIR * 128, STAGE = TILE_A + TILE_B;
    extern __shared__ __align__(1024) char shared[];
    __shared__ u64 full[STAGES], empty[STAGES], other[STAGES], done;
    __shared__ unsigned place;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = k / K_TILE;
    unsigned rank = 0;
    if (PAIR == 2) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int row = blockIdx.x * ROWS, column = blockIdx.y * COLUMNS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++)
            init(full + stage, 1), init(empty + stage, 1), init(other + stage, 1);
        init(&done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == 0) {
        if (PAIR == 2)
            asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 128;\n"
                         "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::"r"(address(&place)));
        else
            asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;\n"
                         "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(address(&place)));
    }
    sync<PAIR>();
    const unsigned columns = place;
    // D f32, A and B bf16, N / 8 and M / 16.
    const unsigned what = 1 << 4 | 1 << 7 | 1 << 10 | (COLUMNS / 8) << 17 | (ROWS * PAIR / 16) << 24;
    if (warp == 0 && lane == 0) {
        for (int tile = 0; tile < tiles; tile++) {
            int stage = tile % STAGES, round = tile / STAGES;
            char *to = shared + stage * STAGE;
            if (round) wait(empty + stage, (round - 1) & 1);
            expect(full + stage, STAGE);
            copy(a, tile * K_TILE, row, to, full + stage);
            copy(b, tile * K_TILE, column + rank * (COLUMNS / 2), to + TILE_A, full + stage);
        }
    }
    if (warp == 1 && lane == 0 && rank == 1)   // tells the first block of the pair when its tiles are there
        for (int tile = 0; tile < tiles; tile++) {
            wait(full + tile % STAGES, tile / STAGES & 1);
            arrive_in_first(other + tile % STAGES);
        }
    if (warp == 1 && lane == 0 && rank == 0) {
        for (int tile = 0; tile < tiles; tile++) {
            int stage = tile % STAGES;
            char *tile_a = shared + stage * STAGE, *tile_b = tile_a + TILE_A;
            wait(full + stage, tile / STAGES & 1);
            if (PAIR == 2) wait(other + stage, tile / STAGES & 1);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int step = 0; step < K_TILE / 16; step++)
                multiply<PAIR>(columns, descriptor(tile_a + 32 * step), descriptor(tile_b + 32 * step), what,
                               tile + step > 0);
            commit<PAIR>(empty + stage);
        }
        commit<PAIR>(&done);
    }
    __syncwarp();
    wait(&done, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    float *out = d + (u64)(row + threadIdx.x) * n + column;
    for (int first = 0; first < COLUMNS; first += 16) {
        unsigned v[16];
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
                     "%13, %14, %15}, [%16];\ntcgen05.wait::ld.sync.aligned;"
                     : R16(0) : "r"(columns + (warp << 21) + first) : "memory");
        for (int i = 0; i < 16; i++) out[first + i] = __uint_as_float(v[i]);
    }
    sync<PAIR>();
    if (warp == 0) {
        if (PAIR == 2) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 128;" ::"r"(columns));
        else asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(columns));
    }
}

extern "C" __global__ void __launch_bounds__(128) gemm(const __grid_constant__ CUtensorMap a,
                                                       const __grid_constant__ CUtensorMap b, float *d, int n, int k) {
    run<1>(a, b, d, n, k);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
gemm_of_pairs(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float *d, int n, int k) {
    run<2>(a, b, d, n, k);
}
