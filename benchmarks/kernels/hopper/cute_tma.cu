// CuTe's tutorial wgmma_tma_sm90.cu: its kernel for K-major A and B of f16. The host fills in the tensor maps.
#include "wgmma_tma_sm90.cu"
namespace given {
using namespace cute;
using Element = half_t;
using Problem = decltype(make_shape(0, 0, 0));
using Tile = Shape<_128, _128, _64>;
using Shared = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, make_shape(_128{}, _64{}, _3{})));
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F16F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using StrideC = decltype(make_stride(Int<1>{}, 0));
__device__ auto load(int rows, int k) {
    auto tensor = make_tensor((Element const*)nullptr, make_shape(rows, k), make_stride(k, Int<1>{}));
    return make_tma_atom(SM90_TMA_LOAD{}, tensor, Shared{}(_, _, 0), make_shape(_128{}, _64{}));
}
using Tma = decltype(load(0, 0));
}  // namespace given
__global__ void setup(int rows, int k, char* tma, char* mma, int* sizes) {
    auto made = given::load(rows, k);
    given::Mma tiled;
    for (int i = 0; i < sizeof(made); i++) tma[i] = reinterpret_cast<char*>(&made)[i];
    for (int i = 0; i < sizeof(tiled); i++) mma[i] = reinterpret_cast<char*>(&tiled)[i];
    sizes[0] = sizeof(SharedStorage<given::Element, given::Element, given::Shared, given::Shared>);
    sizes[1] = sizeof(made);
}
template __global__ void gemm_device<given::Problem, given::Tile, given::Element, given::Shared, given::Tma, given::Element,
                                     given::Shared, given::Tma, given::Element, given::StrideC, given::Mma, given::Element,
                                     given::Element>(
    given::Problem, given::Tile, given::Element const*, const __grid_constant__ given::Tma, given::Element const*,
    const __grid_constant__ given::Tma, given::Element*, given::StrideC, given::Mma, given::Element, given::Element);
