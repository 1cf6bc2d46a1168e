// Products of integers: int8 with s32 sums through ldmatrix and mma, and of single bits by and/popc and xor/popc.
#include <cstdint>

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// C = A B: A is MxK by rows, B is KxN by columns; a block of two warps has a tile of 32x8.
extern "C" __global__ void int8_gemm(const int8_t* A, const int8_t* B, int* C, int M, int N, int K) {
    __shared__ __align__(16) int8_t tile_a[32][32], tile_b[8][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = blockIdx.y * 32, col = blockIdx.x * 8;
    int sum[4] = {};
    for (int k = 0; k < K; k += 32) {
        const int line = threadIdx.x / 2, part = threadIdx.x % 2 * 16;
        *reinterpret_cast<int4*>(&tile_a[line][part]) = *reinterpret_cast<const int4*>(&A[(row + line) * K + k + part]);
        if (line < 8)
            *reinterpret_cast<int4*>(&tile_b[line][part]) =
                *reinterpret_cast<const int4*>(&B[(col + line) * K + k + part]);
        __syncthreads();
        unsigned a[4], b[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(shared_address(&tile_a[warp * 16 + lane % 16][lane / 16 * 16])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1])
                     : "r"(shared_address(&tile_b[lane % 8][lane / 8 % 2 * 16])));
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        __syncthreads();
    }
    int* out = C + (row + warp * 16 + lane / 4) * N + col + lane % 4 * 2;
    *reinterpret_cast<int2*>(out) = make_int2(sum[0], sum[1]);
    *reinterpret_cast<int2*>(out + 8 * N) = make_int2(sum[2], sum[3]);
}

// How many bits two vectors have in common (and), in how many they differ (xor): A and B are rows of K bits.
extern "C" __global__ void bit_products(const uint32_t* A, const uint32_t* B, int* both, int* differ, int N, int words) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const int row = blockIdx.y * 16 + g, col = blockIdx.x * 8;
    int c[4] = {}, x[4] = {};
    for (int k = 0; k < words; k += 8) {
        const uint32_t a[4] = {A[row * words + k + t], A[(row + 8) * words + k + t], A[row * words + k + t + 4],
                               A[(row + 8) * words + k + t + 4]};
        const uint32_t b[2] = {B[(col + g) * words + k + t], B[(col + g) * words + k + t + 4]};
        asm volatile(
            "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        asm volatile(
            "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    for (int i = 0; i < 4; i++) {
        const int place = (row + i / 2 * 8) * N + col + t * 2 + i % 2;
        both[place] = c[i], differ[place] = x[i];
    }
}
