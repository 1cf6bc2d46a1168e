// The instructions of sm_100a that the sources in this folder use, one function for each.
#pragma once
#include "../../mistakes/hopper/instructions.cuh"

// Tensor memory: an address has the lane in its upper half and the column in the lower one.
template <int GROUP>
DEVICE void allocate(u32& address, u32 columns) {
    if (GROUP == 1) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&address)), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    } else {
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&address)), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
    }
}
template <int GROUP>
DEVICE void free_columns(u32 address, u32 columns) {
    if (GROUP == 1) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
    else asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}
DEVICE u32 lanes_of_warp(u32 address) { return address + (WARP % 4 << 21); }  // the 32 lanes that the warp reaches

#define FOUR(C, x, i) C(x[i]), C(x[i + 1]), C(x[i + 2]), C(x[i + 3])
#define SIXTEEN(C, x, i) FOUR(C, x, i), FOUR(C, x, i + 4), FOUR(C, x, i + 8), FOUR(C, x, i + 12)
#define REGISTERS_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define REGISTERS_32                                                                         \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
// 32 columns of 32 lanes, a lane for each thread.
DEVICE void load_lanes(u32 (&x)[32], u32 address) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 " REGISTERS_32 ", [%32];" : SIXTEEN("=r", x, 0), SIXTEEN("=r", x, 16) : "r"(address));
}
// 32 columns of 16 lanes; registers lie as those of mma's sums do.
DEVICE void load_16_lanes(u32 (&x)[16], u32 address) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 " REGISTERS_16 ", [%16];" : SIXTEEN("=r", x, 0) : "r"(address));
}
DEVICE void store_lanes(u32 address, const u32 (&x)[16]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], " REGISTERS_16 ";" ::SIXTEEN("r", x, 0), "r"(address) : "memory");
}
DEVICE void store_lanes(u32 address, const u32 (&x)[32]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], " REGISTERS_32 ";" ::SIXTEEN("r", x, 0), SIXTEEN("r", x, 16), "r"(address) : "memory");
}
DEVICE void wait_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
DEVICE void wait_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
// 32 rows of 16 bytes of shared memory go to four columns of the lanes of each warp: scale factors of 128 rows.
DEVICE void copy_scales(u32 address, u64 from) { asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(from) : "memory"); }
DEVICE void fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Arrive at an mbarrier once all tcgen05 operations of this thread have completed.
DEVICE void commit(u64& bar) { asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(&bar)) : "memory"); }
DEVICE void commit_to_pair(u64& bar) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(shared(&bar)), "h"(static_cast<unsigned short>(3)) : "memory");
}

// A matrix in shared memory: what TMA writes with one of the swizzles, or 8 × 16-byte matrices without one.
enum Swizzle { NONE = 0, OF_128_BYTES = 2, OF_64_BYTES = 4, OF_32_BYTES = 6 };
DEVICE u64 matrix(const void* p, u32 leading, u32 stride, Swizzle swizzle) {
    return (shared(p) & 0x3ffff) >> 4 | static_cast<u64>(leading >> 4) << 16 | static_cast<u64>(stride >> 4) << 32 | 1ull << 46 | static_cast<u64>(swizzle) << 61;
}

// The instruction descriptor of the kinds without scales; with them, the fields at 4, 23 and 29 have other meanings.
constexpr u32 instruction(u32 m, u32 n, u32 sums, u32 a, u32 b, u32 a_by_columns = 0, u32 b_by_columns = 0) {
    return sums << 4 | a << 7 | b << 10 | a_by_columns << 15 | b_by_columns << 16 | n / 8 << 17 | m / 16 << 24;
}
constexpr u32 scaled_instruction(u32 m, u32 n, u32 format, u32 is_e8m0, u32 part) {
    return part << 4 | format << 7 | format << 10 | n / 8 << 17 | is_e8m0 << 23 | m / 16 << 24 | part << 29;
}

// Formats of operands and sums, a kind of tcgen05.mma, and how many elements of K a row of 128 bytes has.
#define KIND(NAME, WORD, SUM, SUMS, FORMAT, ELEMENTS_OF_A_ROW)                                                          \
    struct NAME {                                                                                                       \
        typedef SUM Sum;                                                                                                \
        static constexpr int ELEMENTS = ELEMENTS_OF_A_ROW;                                                              \
        static constexpr u32 sums = SUMS, format = FORMAT;                                                              \
        template <int GROUP>                                                                                            \
        static DEVICE void multiply(u32 d, u64 a, u64 b, u32 described, u32 accumulate) {                               \
            if (GROUP == 1)                                                                                             \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::" WORD               \
                             " [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(described), "r"(accumulate) : "memory"); \
            else                                                                                                        \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::" WORD               \
                             " [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(described), "r"(accumulate) : "memory"); \
        }                                                                                                               \
    };
KIND(f16, "f16", float, 1, 0, 64)
KIND(bf16, "f16", float, 1, 1, 64)
KIND(f16_to_f16, "f16", __half, 0, 0, 64)
KIND(tf32, "tf32", float, 1, 2, 32)
KIND(e4m3, "f8f6f4", float, 1, 0, 128)
KIND(e5m2, "f8f6f4", float, 1, 1, 128)
KIND(u8, "i8", int, 2, 0, 128)
KIND(s8, "i8", int, 2, 1, 128)
// A of 16 bits in tensor memory.
DEVICE void multiply_from_lanes(u32 d, u32 a, u64 b, u32 described, u32 accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(d), "r"(a), "l"(b), "r"(described), "r"(accumulate) : "memory");
}

// Formats with scale factors: elements of K in a row of 128 bytes and in one instruction, elements that share a factor.
#define SCALED(NAME, WORDS, FORMAT, IS_E8M0, ELEMENTS_OF_A_ROW, ELEMENTS_AT_ONCE, ELEMENTS_OF_A_BLOCK)                   \
    struct NAME {                                                                                                       \
        static constexpr int ELEMENTS = ELEMENTS_OF_A_ROW, AT_ONCE = ELEMENTS_AT_ONCE, BLOCK = ELEMENTS_OF_A_BLOCK;     \
        static constexpr u32 format = FORMAT, is_e8m0 = IS_E8M0;                                                        \
        static DEVICE void multiply(u32 d, u64 a, u64 b, u32 described, u32 scales_a, u32 scales_b, u32 accumulate) {   \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; tcgen05.mma.cta_group::1.kind::" WORDS                  \
                         " [%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(d), "l"(a), "l"(b), "r"(described), "r"(scales_a), \
                         "r"(scales_b), "r"(accumulate) : "memory");                                                    \
        }                                                                                                               \
    };
SCALED(mxf8, "mxf8f6f4.block_scale.scale_vec::1X", 0, 1, 128, 32, 32)
SCALED(mxf4, "mxf4.block_scale.scale_vec::2X", 1, 1, 256, 64, 32)
SCALED(nvf4, "mxf4nvf4.block_scale.scale_vec::4X", 1, 0, 256, 64, 16)

// TMA of a pair of blocks: bytes count at the mbarrier of the even block, wherever the tile is written.
DEVICE void load_2d_of_pair(void* target, const CUtensorMap* map, int x, int y, u64& bar) {
    asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared(target)), "l"(map), "r"(x), "r"(y), "r"(mapa(&bar, cluster_rank() & ~1u)) : "memory");
}

// Cluster launch control: ask for the index of a block that has not started, which then never starts.
DEVICE void try_cancel(uint4& answer, u64& bar) {
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(shared(&answer)), "r"(shared(&bar)) : "memory");
}
DEVICE bool canceled(const uint4& answer, int& x, int& y) {
    u32 there;
    asm volatile("{ .reg .b128 answer; .reg .pred p; ld.shared.b128 answer, [%3];\n"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer; selp.u32 %0, 1, 0, p;\n"
                 "mov.b32 %1, 0; mov.b32 %2, 0;\n"
                 "@p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%1, %2, _, _}, answer; }"
                 : "=r"(there), "=r"(x), "=r"(y) : "r"(shared(&answer)) : "memory");
    return there;
}

// A stage of a ring, counted on and on: its number, and the parity that a consumer waits for.
template <int STAGES>
struct Place {
    int count = 0;
    DEVICE int stage() const { return count % STAGES; }
    DEVICE u32 full() const { return count / STAGES & 1; }
    DEVICE u32 empty() const { return full() ^ 1; }  // the first round finds every stage empty
};
