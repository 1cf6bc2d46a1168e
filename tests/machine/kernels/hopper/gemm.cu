// D = A·Bᵀ, warp-specialised: A (M, K) and B (N, K) row-major, five types. The first warpgroup loads by TMA, two multiply.
#include "products.cuh"
constexpr int STAGES = 3;

// Both consumers work on one tile of 128 × 64. In a cluster, blocks with the same rows of A load a part of them each
// for all (CX), or those with the same rows of B (CY).
struct alignas(1024) Cooperative {
    char a[STAGES][2 * TILE], b[STAGES][TILE];
    u64 full[STAGES], empty[STAGES];
};

template <class Product, int CX, int CY>
__global__ void __launch_bounds__(384, 1) cooperative(MAP a, MAP b, typename Product::Sum* d, int n, int steps) {
    extern __shared__ __align__(1024) char memory[];
    Cooperative& s = *reinterpret_cast<Cooperative*>(memory);
    constexpr int BLOCKS = CX * CY;
    const int group = threadIdx.x / 128, row = blockIdx.y * 128, column = blockIdx.x * 64;
    const u32 rank = BLOCKS > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 2 * BLOCKS);
        fence_init();
    }
    if (BLOCKS > 1) cluster_sync();
    else __syncthreads();
    Place<STAGES> place;
    if (group == 0) {
        fewer_registers<40>();
        if (WARP == 0 && elect())
            for (int step = 0; step < steps; step++, place.count++) {
                int stage = place.stage(), k = step * Product::ELEMENTS;
                u64& full = s.full[stage];
                BLOCKS > 1 ? wait_cluster(s.empty[stage], place.empty()) : wait(s.empty[stage], place.empty());
                arrive_expect(full, 3 * TILE);
                if (CX > 1) load_2d_multicast(s.a[stage] + rank * TILE, &a, k, row + rank * 64, full, 3);
                else load_2d(s.a[stage], &a, k, row, full);
                if (CY > 1) load_2d_multicast(s.b[stage] + rank * TILE / 2, &b, k, column + rank * 32, full, 3);
                else load_2d(s.b[stage], &b, k, column, full);
            }
    } else {
        more_registers<232>();
        typename Product::Sum sums[32];
        for (int step = 0; step < steps; step++, place.count++) {
            int stage = place.stage();
            wait(s.full[stage], place.full());
            multiply_tile<Product>(sums, s.a[stage] + (group - 1) * TILE, s.b[stage], step == 0);
            wgmma_wait<0>();
            if (BLOCKS > 1) {
                if (threadIdx.x % 128 < BLOCKS) arrive_cluster(mapa(&s.empty[stage], threadIdx.x % 128));
            } else if (threadIdx.x % 128 == 0) arrive(s.empty[stage]);
        }
        for (int i = 0; i < 32; i++) d[(row + (group - 1) * 64 + row_of(i)) * n + column + column_of(i)] = sums[i];
    }
    if (BLOCKS > 1) cluster_sync();  // nobody's shared memory is gone while others write to it
}

// Persistent: blocks take tile after tile of 64 × 64, and the two consumers take them in turn: while one stores its
// results by TMA, the other multiplies.
template <class Sum>
struct alignas(1024) Pingpong {
    char a[STAGES][TILE], b[STAGES][TILE];
    Sum d[2][64 * 64];
    u64 full[STAGES], empty[STAGES], turn[2];
};

template <class Product>
__global__ void __launch_bounds__(384, 1) pingpong(MAP a, MAP b, MAP d, int across, int tiles, int steps) {
    typedef typename Product::Sum Sum;
    extern __shared__ __align__(1024) char memory[];
    Pingpong<Sum>& s = *reinterpret_cast<Pingpong<Sum>*>(memory);
    const int group = threadIdx.x / 128, consumer = group - 1;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) init(s.full[i], 1), init(s.empty[i], 1);
        for (int i = 0; i < 2; i++) init(s.turn[i], 128);
        fence_init();
    }
    __syncthreads();
    Place<STAGES> place;
    if (group == 0) {
        fewer_registers<40>();
        if (WARP == 0 && elect())
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
                for (int step = 0; step < steps; step++, place.count++) {
                    int stage = place.stage(), k = step * Product::ELEMENTS;
                    wait(s.empty[stage], place.empty());
                    arrive_expect(s.full[stage], 2 * TILE);
                    load_2d(s.a[stage], &a, k, tile / across * 64, s.full[stage]);
                    load_2d(s.b[stage], &b, k, tile % across * 64, s.full[stage]);
                }
        return;
    }
    more_registers<232>();
    for (int tile = blockIdx.x + consumer * gridDim.x, round = 0; tile < tiles; tile += 2 * gridDim.x, round++) {
        Sum sums[32];
        place.count = (2 * round + consumer) * steps;
        if (consumer || round) wait(s.turn[consumer], consumer ? round & 1 : (round - 1) & 1);
        for (int step = 0; step < steps; step++, place.count++) {
            int stage = place.stage();
            wait(s.full[stage], place.full());
            multiply_tile<Product>(sums, s.a[stage], s.b[stage], step == 0);
            wgmma_wait<0>();
            if (threadIdx.x % 128 == 0) arrive(s.empty[stage]);
        }
        arrive(s.turn[1 - consumer]);
        if (threadIdx.x % 128 == 0) bulk_wait_read<0>();  // the last results have been read
        barrier(group, 128);
        for (int i = 0; i < 32; i++) s.d[consumer][row_of(i) * 64 + column_of(i)] = sums[i];
        fence_async_shared();
        barrier(group, 128);
        if (threadIdx.x % 128 == 0) {
            store_2d(&d, tile % across * 64, tile / across * 64, s.d[consumer]);
            bulk_commit();
        }
    }
    if (threadIdx.x % 128 == 0) bulk_wait<0>();
}

#define INSTANCES(TYPE)                                                                               \
    template __global__ void cooperative<TYPE, 1, 1>(MAP, MAP, TYPE::Sum*, int, int);                 \
    template __global__ void pingpong<TYPE>(MAP, MAP, MAP, int, int, int);
INSTANCES(bf16)
INSTANCES(f16)
INSTANCES(e4m3)
INSTANCES(tf32)
INSTANCES(s8)
template __global__ void cooperative<bf16, 2, 1>(MAP, MAP, float*, int, int);
template __global__ void cooperative<bf16, 1, 2>(MAP, MAP, float*, int, int);
