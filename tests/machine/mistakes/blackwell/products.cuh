// Products of tcgen05, and answers of cluster launch control, for the sources in this folder, which are told on the lines of their callers.
#pragma once
#include "tcgen05.cuh"
DEVICE void multiply(u32 d, u64 a, u64 b, u32 shape, u32 adds) { asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(adds) : "memory"); }
DEVICE void multiply_by_pair(u32 d, u64 a, u64 b, u32 shape, u32 adds) { asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(adds) : "memory"); }
// Which block an answer names, whether it names one or not.
DEVICE int named(const uint4& answer) { int x; asm volatile("{ .reg .b128 a; ld.shared.b128 a, [%1]; clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, a; }" : "=r"(x) : "r"(shared(&answer)) : "memory"); return x; }
DEVICE bool names_block(const uint4& answer) { u32 there; asm volatile("{ .reg .b128 a; .reg .pred p; ld.shared.b128 a, [%1]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, a; selp.u32 %0, 1, 0, p; }" : "=r"(there) : "r"(shared(&answer)) : "memory"); return there; }
DEVICE void try_cancel_for_all(uint4& answer, u64& bar) { asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::"r"(shared(&answer)), "r"(shared(&bar)) : "memory"); }
// A sparse A with metadata in tensor memory; e4m3 with scale factors in tensor memory.
DEVICE void multiply_sparse(u32 d, u64 a, u64 b, u32 metadata, u32 shape, u32 adds) { asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; tcgen05.mma.sp.cta_group::1.kind::f16 [%0], %1, %2, [%3], %4, p; }" ::"r"(d), "l"(a), "l"(b), "r"(metadata), "r"(shape), "r"(adds) : "memory"); }
DEVICE void multiply_scaled(u32 d, u64 a, u64 b, u32 shape, u32 scales_a, u32 scales_b, u32 adds) { asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(scales_a), "r"(scales_b), "r"(adds) : "memory"); }
