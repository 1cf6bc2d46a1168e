// D = A·Bᵀ by TMA and wgmma, warp-specialised: A (M, K) and B (N, K) of bf16, both row-major. One thread fills a
// ring of stages with tiles of 64 columns of K, swizzled by 128 bytes; two warpgroups multiply 64 × 256 each.
#include <cuda.h>
typedef unsigned long long u64;
constexpr int ROWS = 64, COLUMNS = 256, K_TILE = 64, STAGES = 3;
constexpr int TILE_A = ROWS * 128, TILE_B = COLUMNS * 128, STAGE = 2 * TILE_A + TILE_B;

#define F4(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
#define F64(i) F16(i), F16(i + 16), F16(i + 32), F16(i + 48)
#define ACCUMULATORS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

__device__ unsigned address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }
__device__ void init(u64 *barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count));
}
__device__ void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}
__device__ void expect(u64 *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(u64 *barrier, int parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}
__device__ void copy(const CUtensorMap &map, int k, int row, char *to, u64 *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(address(to)), "l"(&map), "r"(k), "r"(row), "r"(address(barrier)) : "memory");
}
__device__ u64 descriptor(const void *tile) {   // stride offset 1024, swizzle 128B
    return (u64)(address(tile) & 0x3FFFF) >> 4 | 64ull << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(384) gemm(const __grid_constant__ CUtensorMap a,
                                                       const __grid_constant__ CUtensorMap b, float *d, int n, int k) {
    extern __shared__ __align__(1024) char shared[];
    __shared__ u64 full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    const int row = blockIdx.y * 2 * ROWS, column = blockIdx.x * COLUMNS, tiles = k / K_TILE;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) init(full + stage, 1), init(empty + stage, 2);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (group == 0) {
        if (thread == 0)
            for (int tile = 0; tile < tiles; tile++) {
                int stage = tile % STAGES, round = tile / STAGES;
                char *to = shared + stage * STAGE;
                if (round) wait(empty + stage, (round - 1) & 1);
                expect(full + stage, STAGE);
                copy(a, tile * K_TILE, row, to, full + stage);
                copy(b, tile * K_TILE, column, to + 2 * TILE_A, full + stage);
            }
        return;
    }
    float acc[128] = {};
    for (int tile = 0; tile < tiles; tile++) {
        int stage = tile % STAGES;
        char *tile_a = shared + stage * STAGE + (group - 1) * TILE_A, *tile_b = shared + stage * STAGE + 2 * TILE_A;
        wait(full + stage, tile / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int step = 0; step < K_TILE / 16; step++)
            asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" ACCUMULATORS
                         "}, %128, %129, 1, 1, 1, 0, 0;" : F64(0), F64(64)
                         : "l"(descriptor(tile_a + 32 * step)), "l"(descriptor(tile_b + 32 * step)));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (thread == 0) arrive(empty + stage);
    }
    const int lane = thread % 32, first = row + (group - 1) * ROWS + thread / 32 * 16 + lane / 4;
    for (int i = 0; i < 128; i += 2)
        *(float2 *)(d + (u64)(first + i / 2 % 2 * 8) * n + column + i / 4 * 8 + lane % 4 * 2) =
            make_float2(acc[i], acc[i + 1]);
}
