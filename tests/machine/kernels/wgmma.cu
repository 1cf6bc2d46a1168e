// D = A·Bᵀ by wgmma: A (M, K) and B (N, K) of bf16, both row-major. Tiles of K are 64 wide: rows of 128 bytes.
typedef unsigned long long u64;
constexpr int M_TILE = 64, N_TILE = 256, K_TILE = 64, ROW = 2 * K_TILE;

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

// A tile as the 128-byte swizzle has it: piece p of row r (16 bytes) lies at piece p ^ (r % 8).
template <int ROWS> __device__ void load(char *tile, const char *from, int pitch, int thread) {
    for (int piece = thread; piece < ROWS * 8; piece += 128) {
        int row = piece / 8, column = piece % 8;
        *(uint4 *)(tile + row * ROW + (column ^ row % 8) * 16) =
            *(const uint4 *)(from + (u64)row * pitch + column * 16);
    }
}

__device__ unsigned address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

// Stride offset 1024, swizzle 128B.
__device__ u64 descriptor(const void *tile) {
    return (u64)(address(tile) & 0x3FFFF) >> 4 | 64ull << 32 | 1ull << 62;
}

// acc += A·B for one tile of K, complete when it returns.
__device__ void multiply(float (&acc)[128], const char *tile_a, const char *tile_b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < K_TILE / 16; step++) {
        u64 a = descriptor(tile_a + 32 * step), b = descriptor(tile_b + 32 * step);
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" ACCUMULATORS
                     "}, %128, %129, 1, 1, 1, 0, 0;" : F64(0), F64(64) : "l"(a), "l"(b));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ void store(const float (&acc)[128], float *d, int row, int column, int n) {
    const int lane = threadIdx.x % 32, first = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
    for (int i = 0; i < 128; i += 2)
        *(float2 *)(d + (u64)(first + i / 2 % 2 * 8) * n + column + i / 4 * 8 + lane % 4 * 2) =
            make_float2(acc[i], acc[i + 1]);
}

// One warpgroup that loads, then multiplies.
extern "C" __global__ void __launch_bounds__(128) gemm(const char *a, const char *b, float *d, int n, int k) {
    extern __shared__ __align__(1024) char shared[];
    char *tile_a = shared, *tile_b = shared + M_TILE * ROW;
    const int row = blockIdx.y * M_TILE, column = blockIdx.x * N_TILE, pitch = 2 * k;
    float acc[128] = {};
    for (int start = 0; start < k; start += K_TILE) {
        load<M_TILE>(tile_a, a + (u64)row * pitch + 2 * start, pitch, threadIdx.x);
        load<N_TILE>(tile_b, b + (u64)column * pitch + 2 * start, pitch, threadIdx.x);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        multiply(acc, tile_a, tile_b);
        __syncthreads();
    }
    store(acc, d, row, column, n);
}

constexpr int STAGES = 3, STAGE = (2 * M_TILE + N_TILE) * ROW;

__device__ void init(u64 *barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count));
}
__device__ void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}
__device__ void wait(u64 *barrier, int parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}

// Warp-specialised: the first warpgroup loads tiles into a ring, two others multiply 64 rows each. Of each of
// them one thread says that a stage is free.
extern "C" __global__ void __launch_bounds__(384) specialised(const char *a, const char *b, float *d, int n, int k) {
    extern __shared__ __align__(1024) char shared[];
    __shared__ u64 full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128, pitch = 2 * k;
    const int row = blockIdx.y * 2 * M_TILE, column = blockIdx.x * N_TILE, tiles = k / K_TILE;
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; stage++) init(full + stage, 128), init(empty + stage, 2);
    __syncthreads();
    if (group == 0) {
        for (int tile = 0; tile < tiles; tile++) {
            int stage = tile % STAGES, round = tile / STAGES;
            char *tile_a = shared + stage * STAGE;
            if (round) wait(empty + stage, (round - 1) & 1);
            load<2 * M_TILE>(tile_a, a + (u64)row * pitch + tile * ROW, pitch, thread);
            load<N_TILE>(tile_a + 2 * M_TILE * ROW, b + (u64)column * pitch + tile * ROW, pitch, thread);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            arrive(full + stage);
        }
        return;
    }
    float acc[128] = {};
    for (int tile = 0; tile < tiles; tile++) {
        int stage = tile % STAGES;
        char *tile_a = shared + stage * STAGE;
        wait(full + stage, tile / STAGES & 1);
        multiply(acc, tile_a + (group - 1) * M_TILE * ROW, tile_a + 2 * M_TILE * ROW);
        if (thread == 0) arrive(empty + stage);
    }
    store(acc, d, row + (group - 1) * M_TILE, column, n);
}
