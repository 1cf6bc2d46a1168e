// D = A B + C with a 2:4 sparse A (16x32 kept as 16x16 and two-bit places), loaded by hand.
// The metadata word of a row pair: of each four lanes, the two that `selector` names hold it.
#include <cuda_fp16.h>

extern "C" __global__ void sparse(const unsigned* A, const unsigned* B, const unsigned short* places, float* D) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    // A by rows, 8 words each; B by columns, 16 words each; places: 16 kept elements of 2 bits make 2 half words a row.
    const unsigned a[4] = {A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4]};
    const unsigned b[4] = {B[g * 16 + t], B[g * 16 + t + 4], B[g * 16 + t + 8], B[g * 16 + t + 12]};
    // Lane 4g + t of the selected pair: t = 0 rows' first half, t = 1 their second; low half row g, high half row g + 8.
    const unsigned e = places[g * 2 + t % 2] | static_cast<unsigned>(places[(g + 8) * 2 + t % 2]) << 16;
    float d[4] = {0, 0, 0, 0};
    asm volatile(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(e));
    for (int i = 0; i < 4; i++) D[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
