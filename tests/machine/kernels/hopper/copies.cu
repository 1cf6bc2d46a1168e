// A box of a tensor copied by TMA through shared memory: 1 to 5 dimensions, stored, added, or loaded for a whole cluster.
#include "../../mistakes/hopper/instructions.cuh"

struct At { int x, y, z, w, v; };  // the innermost first

#define LOAD(N, WHERE) "cp.async.bulk.tensor." #N "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" WHERE "}], [%2];"
#define STORE(N, WHERE) "cp.async.bulk.tensor." #N "d.global.shared::cta.tile.bulk_group [%1, {" WHERE "}], [%0];"
#define ADD(N, WHERE) "cp.reduce.async.bulk.tensor." #N "d.global.shared::cta.add.tile.bulk_group [%1, {" WHERE "}], [%0];"
#define PREFETCH(N, WHERE) "cp.async.bulk.prefetch.tensor." #N "d.L2.global.tile [%1, {" WHERE "}];"
#define ONE(KIND)                                                                                                      \
    if constexpr (RANK == 1) asm volatile(KIND(1, "%3") OPERANDS);                                                     \
    if constexpr (RANK == 2) asm volatile(KIND(2, "%3, %4") OPERANDS);                                                 \
    if constexpr (RANK == 3) asm volatile(KIND(3, "%3, %4, %5") OPERANDS);                                             \
    if constexpr (RANK == 4) asm volatile(KIND(4, "%3, %4, %5, %6") OPERANDS);                                         \
    if constexpr (RANK == 5) asm volatile(KIND(5, "%3, %4, %5, %6, %7") OPERANDS);
#define OPERANDS ::"r"(shared(box)), "l"(map), "r"(shared(&bar)), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "r"(at.v) : "memory"

template <int RANK, bool SUM>
__global__ void copy_box(MAP from, MAP to, At source, At target, u32 bytes) {
    extern __shared__ __align__(1024) char box[];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(bar, 1);
        fence_init();
        const CUtensorMap* map = &from;
        At at = source;
        ONE(PREFETCH)
        arrive_expect(bar, bytes);
        ONE(LOAD)
    }
    __syncthreads();
    wait(bar, 0);
    if (threadIdx.x == 0) {
        const CUtensorMap* map = &to;
        At at = target;
        if constexpr (SUM) { ONE(ADD) } else { ONE(STORE) }
        bulk_commit();
        bulk_wait<0>();
    }
}
#define INSTANCES(RANK)                                                \
    template __global__ void copy_box<RANK, false>(MAP, MAP, At, At, u32); \
    template __global__ void copy_box<RANK, true>(MAP, MAP, At, At, u32);
INSTANCES(1) INSTANCES(2) INSTANCES(3) INSTANCES(4) INSTANCES(5)

// Plain bytes: loaded, passed on to the next block of a cluster, stored from there.
extern "C" __global__ void copy_bytes(const char* from, char* to, u32 bytes) {
    extern __shared__ __align__(1024) char box[];
    __shared__ u64 loaded, passed;
    u32 rank = cluster_rank(), blocks = gridDim.x;  // one cluster
    if (threadIdx.x == 0) {
        init(loaded, 1), init(passed, 1);
        fence_init();
        arrive_expect(passed, bytes);
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        arrive_expect(loaded, bytes);
        bulk_load(box, from + rank * bytes, bytes, loaded);
        wait(loaded, 0);
        u32 next = (rank + 1) % blocks;
        copy_cluster(mapa(box + bytes, next), box, bytes, mapa(&passed, next));
        wait_cluster(passed, 0);
        bulk_store(to + rank * bytes, box + bytes, bytes);
        bulk_commit();
        bulk_wait<0>();
    }
    cluster_sync();
}

// One block of a cluster loads a box for all; each stores it to rows of its own.
extern "C" __global__ void broadcast(MAP from, MAP to, int rows, u32 bytes) {
    extern __shared__ __align__(1024) char box[];
    __shared__ u64 bar;
    u32 rank = cluster_rank();
    if (threadIdx.x == 0) {
        init(bar, 1);
        fence_init();
        arrive_expect(bar, bytes);
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        if (rank == 0) load_2d_multicast(box, &from, 0, 0, bar, (1 << gridDim.x) - 1);
        wait(bar, 0);
        store_2d(&to, 0, rank * rows, box);
        bulk_commit();
        bulk_wait<0>();
    }
    cluster_sync();
}

// The sum of an array: every block of the cluster sends its part to the first one's shared memory, which counts bytes.
extern "C" __global__ void __cluster_dims__(4) reduce(const u32* data, u32 count, u32* result) {
    __shared__ u32 parts[4][32];
    __shared__ u64 bar;
    u32 sum = 0, rank = cluster_rank();
    if (rank == 0 && threadIdx.x == 0) {
        init(bar, 1);
        fence_init();
        arrive_expect(bar, sizeof(parts));
    }
    cluster_sync();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += data[i];
    store_async(mapa(&parts[rank][threadIdx.x], 0), sum, mapa(&bar, 0));
    if (rank == 0) {
        wait_cluster(bar, 0);
        sum = 0;
        for (int i = 0; i < 4; i++) sum += parts[i][threadIdx.x];
        sum = __reduce_add_sync(~0u, sum);
        if (threadIdx.x == 0) atomicAdd(result, sum);
    }
    cluster_sync();
}
