// CuTe's tutorial wgmma_sm90.cu: its kernel for K-major A and B of f16, and what the host passes for the tiled MMA.
#include "wgmma_sm90.cu"
namespace given {
using namespace cute;
using Element = half_t;
using Problem = decltype(make_shape(0, 0, 0));
using Tile = Shape<_128, _128, _64>;
using Strides = decltype(make_stride(0, Int<1>{}));
using StrideC = decltype(make_stride(Int<1>{}, 0));
using Shared = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, make_shape(_128{}, _64{}, _3{})));
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F16F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using Copy = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, Element>{},
                                      Layout<Shape<_16, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));
}  // namespace given
__global__ void setup(char* out, int* sizes) {
    given::Mma mma;
    for (int i = 0; i < sizeof(mma); i++) out[i] = reinterpret_cast<char*>(&mma)[i];
    sizes[0] = sizeof(SharedStorage<given::Element, given::Element, given::Shared, given::Shared>);
}
template __global__ void gemm_device<given::Problem, given::Tile, given::Element, given::Strides, given::Shared, given::Copy,
                                     given::Element, given::Strides, given::Shared, given::Copy, given::Element,
                                     given::StrideC, given::Mma, given::Element, given::Element>(
    given::Problem, given::Tile, given::Element const*, given::Strides, given::Shared, given::Copy, given::Element const*,
    given::Strides, given::Shared, given::Copy, given::Element*, given::StrideC, given::Mma, given::Element, given::Element);
