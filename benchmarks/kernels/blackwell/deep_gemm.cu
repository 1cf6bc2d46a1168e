// Instances of DeepGEMM's kernels for sm_100 that deep_gemm.py launches.
#include <deep_gemm/impls/sm100_bf16_gemm.cuh>
#include <deep_gemm/impls/sm100_fp8_fp4_gemm_1d1d.cuh>

using deep_gemm::GemmType;
constexpr auto K = cute::UMMA::Major::K, MN = cute::UMMA::Major::MN;
#define MAP const __grid_constant__ cute::TmaDescriptor
#define BF16(MAJOR_B, M, N, PAIR, OF_A, SWAPPED, SUM)                                                                  \
    template __global__ void deep_gemm::sm100_bf16_gemm_impl<K, MAJOR_B, 0, 0, 0, M, N, 64, 1, 128, 128, 128, 4, 128, \
        128, PAIR, OF_A, 4, 128, SWAPPED, false, GemmType::Normal, false, SUM, 100>(                                  \
        int*, uint32_t, uint32_t, uint32_t, MAP, MAP, MAP);
BF16(K, 128, 64, 1, false, false, float)
BF16(MN, 128, 128, 2, false, false, cutlass::bfloat16_t)
BF16(K, 32, 128, 2, true, true, cutlass::bfloat16_t)

template __global__ void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<K, K, 128, 128, 128, 0, 0, 0, 128, 128, 128, 1, 128,
    128, 128, 4, 128, 128, 1, false, 4, false, false, GemmType::Normal, false, cutlass::float_e4m3_t,
    cutlass::float_e4m3_t, float, deep_gemm::epilogue::transform::EpilogueIdentity>(
    int*, uint32_t, uint32_t, uint32_t, MAP, MAP, MAP, MAP, MAP);
