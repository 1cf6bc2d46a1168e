// Products of tcgen05 for the sources in this folder, which are told on the lines of their callers.
#pragma once
#include "tcgen05.cuh"
DEVICE void multiply(u32 d, u64 a, u64 b, u32 shape, u32 adds) { asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(adds) : "memory"); }
DEVICE void multiply_by_pair(u32 d, u64 a, u64 b, u32 shape, u32 adds) { asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(shape), "r"(adds) : "memory"); }
