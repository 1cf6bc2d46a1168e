// Kernels that only start, or only read memory: what no product that reads as much can beat.
// One thread of a block keeps a ring of bulk copies in flight and waits for each; nobody looks at the data.
typedef unsigned long long u64;
typedef unsigned int u32;

struct __align__(64) Map { char bytes[128]; };

__device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u32 bar) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar)); }
__device__ void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ void wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra READY;\nbra AGAIN;\nREADY:\n}"
        ::"r"(bar), "r"(parity) : "memory");
}
// 0: none, 1: evict_first, 2: evict_unchanged, 3: evict_last, 4: evict_normal, 5: evict_first for a half
__device__ u64 policy_of(int kind) {
    u64 policy = 0x1000000000000000ull;
    if (kind == 1) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    if (kind == 2) asm volatile("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
    if (kind == 3) asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    if (kind == 5) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 0.5;" : "=l"(policy));
    return policy;
}

extern "C" __global__ void __launch_bounds__(384) nothing(float* out, int never) {
    if (never) out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void __launch_bounds__(384) __cluster_dims__(2, 1, 1) nothing_in_clusters(float* out, int never) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (never) out[threadIdx.x] = 1.0f;
}

// Blocks take chunks of `bytes` by turns; `stages` of them are in flight in each block.
extern "C" __global__ void __launch_bounds__(384) bulk(const char* memory, u64 total, int bytes, int stages, int kind) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ __align__(8) u64 full[64];
    if (threadIdx.x != 0) return;
    u64 policy = policy_of(kind);
    for (int i = 0; i < stages; i++) init(shared_address(&full[i]));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    int chunks = total / bytes;
    int mine = chunks / (int)gridDim.x + ((int)blockIdx.x < chunks % (int)gridDim.x);
    for (int i = 0; i < mine + stages; i++) {
        int stage = i % stages;
        if (i >= stages) wait(shared_address(&full[stage]), (i / stages - 1) & 1);
        if (i < mine) {
            u32 bar = shared_address(&full[stage]), to = shared_address(ring) + stage * bytes;
            const char* from = memory + (u64)(blockIdx.x + i * gridDim.x) * bytes;
            expect(bar, bytes);
            if (kind)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                    ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
            else
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
        }
        if (i >= stages && i - stages + 1 >= mine) break;
    }
}

// Boxes of 64 elements of K and `rows` rows; each block has a contiguous range of (row of boxes, step of K).
extern "C" __global__ void __launch_bounds__(384) boxes(const __grid_constant__ Map map, int rows, int tall, int steps, int stages, int kind) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ __align__(8) u64 full[64];
    if (threadIdx.x != 0) return;
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
    u64 policy = policy_of(kind);
    for (int i = 0; i < stages; i++) init(shared_address(&full[i]));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    int bytes = rows * 128;
    long long all = (long long)tall * steps;
    int first = all * blockIdx.x / gridDim.x, mine = all * (blockIdx.x + 1) / gridDim.x - first;
    for (int i = 0; i < mine + stages; i++) {
        int stage = i % stages;
        if (i >= stages) wait(shared_address(&full[stage]), (i / stages - 1) & 1);
        if (i < mine) {
            u32 bar = shared_address(&full[stage]), to = shared_address(ring) + stage * bytes;
            int row = (first + i) / steps * rows, k = (first + i) % steps * 64;
            expect(bar, bytes);
            if (kind)
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;"
                    ::"r"(to), "l"(&map), "r"(k), "r"(row), "r"(bar), "l"(policy) : "memory");
            else
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                    ::"r"(to), "l"(&map), "r"(k), "r"(row), "r"(bar) : "memory");
        }
        if (i >= stages && i - stages + 1 >= mine) break;
    }
}

// Plain loads of 16 bytes, eight of them in flight in each thread.
extern "C" __global__ void __launch_bounds__(1024) loads(const char* memory, u64 total, u32* out, int kind) {
    u64 policy = policy_of(kind);
    u64 step = (u64)gridDim.x * blockDim.x * 16, at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 16;
    u32 seen = 0;
    for (; at < total; at += 8 * step) {
        u32 v[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0;
            const char* from = memory + at + i * step;
            if (at + i * step < total) {
                if (kind)
                    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                        : "=r"(v[i][0]), "=r"(v[i][1]), "=r"(v[i][2]), "=r"(v[i][3]) : "l"(from), "l"(policy));
                else
                    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                        : "=r"(v[i][0]), "=r"(v[i][1]), "=r"(v[i][2]), "=r"(v[i][3]) : "l"(from));
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) seen ^= v[i][0] ^ v[i][1] ^ v[i][2] ^ v[i][3];
    }
    if (seen == 0x12345678) *out = seen;
}
