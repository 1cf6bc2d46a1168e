// C = A B in half precision, one warp for each 16x8 tile of C. A is MxK by rows, B is KxN by columns.
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

extern "C" __global__ void hgemm_naive(const half* A, const half* B, half* C, int M, int N, int K) {
    const int row = blockIdx.y * 16, col = blockIdx.x * 8, lane = threadIdx.x;
    __shared__ half tile_a[16][16], tile_b[8][16], tile_c[16][8];
    unsigned sum[2] = {0, 0};
    for (int k = 0; k < K; k += 16) {
        const int line = lane / 2, part = lane % 2;
        reinterpret_cast<int4*>(tile_a[line])[part] =
            *reinterpret_cast<const int4*>(&A[(row + line) * K + k + part * 8]);
        if (lane < 16)
            reinterpret_cast<int4*>(tile_b[line])[part] =
                *reinterpret_cast<const int4*>(&B[(col + line) * K + k + part * 8]);
        __syncthreads();
        unsigned a[4], b[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(shared_address(&tile_a[lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1])
                     : "r"(shared_address(&tile_b[lane % 8][lane / 8 % 2 * 8])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                     : "+r"(sum[0]), "+r"(sum[1])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        __syncthreads();
    }
    reinterpret_cast<unsigned*>(tile_c[lane / 4])[lane % 4] = sum[0];
    reinterpret_cast<unsigned*>(tile_c[lane / 4 + 8])[lane % 4] = sum[1];
    __syncthreads();
    if (lane < 16) *reinterpret_cast<int4*>(&C[(row + lane) * N + col]) = *reinterpret_cast<int4*>(tile_c[lane]);
}
