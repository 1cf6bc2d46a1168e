// The instructions of sm_90a that the sources in this folder use, one function for each.
#pragma once
#include <cuda.h>
#include <cuda_fp16.h>
#include <stdint.h>
#define T threadIdx.x
#define WARP (threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
#define DEVICE __device__ __forceinline__
// A loop that is not unrolled: the kernels stay short.
#define REPEAT(t, n) _Pragma("unroll 1") for (int t = 0; t < n; t++)
#define MAP const __grid_constant__ CUtensorMap
typedef unsigned long long u64;
typedef unsigned u32;

DEVICE u32 shared(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
DEVICE bool elect() {
    u32 chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen)::"memory");
    return chosen;
}

// mbarriers
DEVICE void init(u64& bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(&bar)), "r"(count) : "memory"); }
DEVICE void inval(u64& bar) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared(&bar)) : "memory"); }
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive(u64& bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&bar)) : "memory"); }
DEVICE void expect(u64& bar, u32 bytes) { asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared(&bar)), "r"(bytes) : "memory"); }
DEVICE void arrive_expect(u64& bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(&bar)), "r"(bytes) : "memory"); }
DEVICE u32 try_wait(u64& bar, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared(&bar)), "r"(parity) : "memory");
    return done;
}
DEVICE void wait(u64& bar, u32 parity) { asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D: }" ::"r"(shared(&bar)), "r"(parity) : "memory"); }
DEVICE void wait_cluster(u64& bar, u32 parity) { asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D: }" ::"r"(shared(&bar)), "r"(parity) : "memory"); }

// fences between proxies
DEVICE void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
DEVICE void barrier(u32 number, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

// bulk copies in one dimension
DEVICE void bulk_load(void* target, const void* source, u32 bytes, u64& bar) { asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared(target)), "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(shared(&bar)) : "memory"); }
DEVICE void bulk_store(void* target, const void* source, u32 bytes) { asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(target)), "r"(shared(source)), "r"(bytes) : "memory"); }
DEVICE void bulk_add(void* target, const void* source, u32 bytes) { asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(target)), "r"(shared(source)), "r"(bytes) : "memory"); }
DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
template <int N>
DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }

// tensor copies
DEVICE void load_2d(void* target, const CUtensorMap* map, int x, int y, u64& bar) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared(target)), "l"(map), "r"(x), "r"(y), "r"(shared(&bar)) : "memory"); }
DEVICE void load_3d(void* target, const CUtensorMap* map, int x, int y, int z, u64& bar) { asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared(target)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared(&bar)) : "memory"); }
DEVICE void store_2d(const CUtensorMap* map, int x, int y, const void* source) { asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(shared(source)) : "memory"); }
DEVICE void store_3d(const CUtensorMap* map, int x, int y, int z, const void* source) { asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(shared(source)) : "memory"); }
DEVICE void add_2d(const CUtensorMap* map, int x, int y, const void* source) { asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(shared(source)) : "memory"); }

// wgmma m64n8k16, f16 with sums of f32
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
enum { PLAIN = 0, SWIZZLE_128B = 1, SWIZZLE_64B = 2, SWIZZLE_32B = 3 };
DEVICE u64 descriptor(const void* p, u32 leading, u32 stride, u64 mode = PLAIN) {
    return (shared(p) & 0x3ffff) >> 4 | static_cast<u64>(leading >> 4) << 16 | static_cast<u64>(stride >> 4) << 32 | mode << 62;
}
// A tile whose 8 × 8 matrices of 128 bytes lie one after the other, those of a row of K = 16 side by side.
DEVICE u64 plain(const void* p) { return descriptor(p, 128, 256); }
// A tile with rows of 128 bytes, as TMA writes it with swizzle 128B.
DEVICE u64 swizzled(const void* p) { return descriptor(p, 16, 1024, SWIZZLE_128B); }
DEVICE void wgmma(float (&d)[4], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
DEVICE void wgmma_first(float (&d)[4], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
DEVICE void wgmma(float (&d)[4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// clusters
DEVICE u32 cluster_rank() { u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void cluster_sync() { cluster_arrive(); cluster_wait(); }
DEVICE u32 mapa(const void* p, u32 rank) { u32 there; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared(p)), "r"(rank)); return there; }
DEVICE float load_cluster(u32 address) { float value; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory"); return value; }
DEVICE void store_cluster(u32 address, float value) { asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory"); }
DEVICE void arrive_cluster(u32 bar) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory"); }
DEVICE void store_async(u32 address, u32 value, u32 bar) { asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(address), "r"(value), "r"(bar) : "memory"); }
DEVICE void load_multicast(void* target, const void* source, u32 bytes, u64& bar, u32 mask) { asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(shared(target)), "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(shared(&bar)), "h"(static_cast<unsigned short>(mask)) : "memory"); }
DEVICE void load_2d_multicast(void* target, const CUtensorMap* map, int x, int y, u64& bar, u32 mask) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared(target)), "l"(map), "r"(x), "r"(y), "r"(shared(&bar)), "h"(static_cast<unsigned short>(mask)) : "memory"); }
DEVICE void copy_cluster(u32 target, const void* source, u32 bytes, u32 bar) { asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target), "r"(shared(source)), "r"(bytes), "r"(bar) : "memory"); }
DEVICE void arrive_relaxed(u32 bar) { asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory"); }
DEVICE void add_cluster(u32 address, u32 value) { asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory"); }
DEVICE u32 poll(u32* p) { u32 value; asm volatile("ld.relaxed.cluster.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(shared(p)) : "memory"); return value; }
DEVICE void* generic(void* p, u32 rank) { void* there; asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank)); return there; }

// registers of a warpgroup
template <int N>
DEVICE void take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N) : "memory"); }
template <int N>
DEVICE void give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N) : "memory"); }
