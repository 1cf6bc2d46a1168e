// A GEMM of CUTLASS 3.x for sm_90 out of its collective builders: A (M, K) and B (N, K) K-major, D of the sums' type.
// The options say -DELEMENT=…, -DSUM=…, -DKTILE=…, and -DCOOPERATIVE or -DPINGPONG. The host fills in the tensor maps.
#include <algorithm>  // a header of CUTLASS's names std::max, and leaves it to others to declare it
#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/default_epilogue.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/device_kernel.h"
using namespace cute;
template <class Element, class Accumulator, class Tile, class Cluster, class Schedule, class Epilogue>
struct Made {
  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, Accumulator, Accumulator,
      Accumulator, cutlass::layout::RowMajor, 4, Accumulator, cutlass::layout::RowMajor, 4, Epilogue>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, 16 / sizeof(Element),
      Element, cutlass::layout::ColumnMajor, 16 / sizeof(Element), Accumulator, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename CollectiveEpilogue::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, CollectiveEpilogue>;
};
template <class Kernel, class Element, class Accumulator>
__device__ void describe(int m, int n, int k, void* a, void* b, void* c, char* out, int* sizes) {
  typename Kernel::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = make_shape(m, n, k, 1);
  arguments.mainloop.ptr_A = (Element const*)a;
  arguments.mainloop.dA = make_stride((int64_t)k, Int<1>{}, (int64_t)0);
  arguments.mainloop.ptr_B = (Element const*)b;
  arguments.mainloop.dB = make_stride((int64_t)k, Int<1>{}, (int64_t)0);
  arguments.epilogue.thread.alpha = 1;
  arguments.epilogue.thread.beta = 0;
  arguments.epilogue.ptr_C = nullptr;
  arguments.epilogue.dC = make_stride((int64_t)n, Int<1>{}, (int64_t)0);
  arguments.epilogue.ptr_D = (Accumulator*)c;
  arguments.epilogue.dD = arguments.epilogue.dC;
  arguments.hw_info.sm_count = 2;
  using Main = typename Kernel::CollectiveMainloop;
  using Epi_ = typename Kernel::CollectiveEpilogue;
  typename Kernel::Params params{
      arguments.mode, arguments.problem_shape,
      Main::to_underlying_arguments(arguments.problem_shape, arguments.mainloop, nullptr),
      Epi_::to_underlying_arguments(arguments.problem_shape, arguments.epilogue, nullptr), arguments.hw_info,
      Kernel::TileScheduler::to_underlying_arguments(arguments.problem_shape, typename Kernel::TileShape{}, typename Kernel::ClusterShape{}, arguments.hw_info, arguments.scheduler, nullptr)};
  for (int i = 0; i < sizeof(params); i++) out[i] = ((char*)&params)[i];
  sizes[0] = sizeof(params);
  sizes[1] = (char*)params.mainloop.tma_load_a.get_tma_descriptor() - (char*)&params;
  sizes[2] = (char*)params.mainloop.tma_load_b.get_tma_descriptor() - (char*)&params;
  sizes[3] = (char*)params.epilogue.tma_load_c.get_tma_descriptor() - (char*)&params;
  sizes[4] = (char*)params.epilogue.tma_store_d.get_tma_descriptor() - (char*)&params;
  sizes[5] = Kernel::SharedStorageSize;
  sizes[6] = Kernel::MaxThreadsPerBlock;
  dim3 grid = Kernel::get_grid_shape(params);
  sizes[7] = grid.x; sizes[8] = grid.y; sizes[9] = grid.z;
  using Epi = decltype(typename Kernel::CollectiveEpilogue::EpilogueTile{});
  sizes[10] = size<0>(Epi{}); sizes[11] = size<1>(Epi{});
  sizes[12] = decltype(params.mainloop.tma_load_a)::NumValSrc; sizes[13] = decltype(params.mainloop.tma_load_b)::NumValSrc; sizes[14] = decltype(params.epilogue.tma_store_d)::NumValSrc;
}
#ifdef COOPERATIVE
using made = Made<ELEMENT, SUM, Shape<_128, _64, KTILE>, Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperative, cutlass::epilogue::TmaWarpSpecializedCooperative>;
#else
using made = Made<ELEMENT, SUM, Shape<_64, _64, KTILE>, Shape<_1, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong, cutlass::epilogue::TmaWarpSpecialized>;
#endif
__global__ void setup(int m, int n, int k, void* a, void* b, void* c, char* out, int* sizes) {
  describe<made::Kernel, ELEMENT, SUM>(m, n, k, a, b, c, out, sizes);
}
template __global__ void cutlass::device_kernel<made::Kernel>(const __grid_constant__ typename made::Kernel::Params);
