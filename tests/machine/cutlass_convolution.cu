// A convolution of CUTLASS for sm_90: OPERATOR is kFprop, kDgrad or kWgrad, SPATIAL the axes of pixels (1 to 3).
// The host program says what the kernel is to be launched with, and asks for tensor maps without a driver: each
// map is a placeholder that begins with MARK and the number of the call, which is printed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cute/atom/mma_atom.hpp"
#include "cutlass/numeric_types.h"
#include "cutlass/conv/device/conv_universal_adapter.hpp"
#include "cutlass/conv/kernel/conv_universal.hpp"
#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;

constexpr auto kOperator = cutlass::conv::Operator::OPERATOR;
constexpr unsigned long long MARK = 0x5AA55AA5C0FFEE00ull;

constexpr bool kIsWgrad = kOperator == cutlass::conv::Operator::kWgrad;
template <int N> struct Layouts;
template <> struct Layouts<1> { using images = cutlass::layout::TensorNWC; using filters = cutlass::layout::TensorKCS; };
template <> struct Layouts<2> { using images = cutlass::layout::TensorNHWC; using filters = cutlass::layout::TensorKCSR; };
template <> struct Layouts<3> { using images = cutlass::layout::TensorNDHWC; using filters = cutlass::layout::TensorKCSRT; };
using Channels = Layouts<SPATIAL>::images;
using OutLayout = std::conditional_t<kIsWgrad, Layouts<SPATIAL>::filters, Channels>;
using Half = cutlass::half_t;
// The axis of a tile along which filters are unrolled is a shape of its own.
using TileShape = std::conditional_t<kIsWgrad, Shape<_64, Shape<_64>, Shape<_64>>,
                                Shape<_64, _64, Shape<_64>>>;
using ClusterShape = Shape<_1, _1, _1>;
using Out = std::conditional_t<kIsWgrad, Half, float>;
constexpr int kOutUnit = 16 / sizeof(Out);
using Schedule = std::conditional_t<kIsWgrad, cutlass::epilogue::NoSmemWarpSpecialized,
                                    cutlass::epilogue::TmaWarpSpecialized>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Out, OutLayout, kOutUnit, Out, OutLayout, kOutUnit,
    Schedule>::CollectiveOp;
using Mainloop = typename cutlass::conv::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, kOperator, Half, Channels, 8, Half, Channels, 8, float, TileShape,
    ClusterShape,
    cutlass::conv::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::conv::collective::KernelScheduleAuto>::CollectiveOp;
using Problem = cutlass::conv::ConvProblemShape<kOperator, SPATIAL>;
using Kernel = cutlass::conv::kernel::ConvUniversal<Problem, Mainloop, Epilogue>;

// Host code names the kernel, so that it is compiled.
void const* volatile named = (void const*)cutlass::device_kernel<Kernel>;

static int calls = 0;

template <class T> void list(char const* name, T const* values, int count, bool more = true) {
  printf("\"%s\": [", name);
  for (int i = 0; i < count; ++i) printf("%s%lld", i ? ", " : "", (long long)values[i]);
  printf("]%s", more ? ", " : "");
}

static CUresult placeholder(CUtensorMap* map) {
  unsigned long long words[16] = {MARK, (unsigned long long)calls++};
  memcpy(map, words, sizeof(words));
  return CUDA_SUCCESS;
}

extern "C" CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address, cuuint64_t const* dims,
    cuuint64_t const* strides, int const* lower, int const* upper, cuuint32_t channels, cuuint32_t pixels,
    cuuint32_t const* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  printf("map {\"mode\": \"im2col\", \"type\": %d, \"address\": %lld, ", (int)type, (long long)address);
  list("dims", dims, rank), list("strides", strides, rank - 1), list("lower", lower, rank - 2);
  list("upper", upper, rank - 2), list("element_strides", steps, rank);
  printf("\"channels\": %u, \"pixels\": %u, \"interleave\": %d, \"swizzle\": %d, \"promotion\": %d, \"fill\": %d}\n",
         channels, pixels, (int)interleave, (int)swizzle, (int)promotion, (int)fill);
  return placeholder(map);
}

extern "C" CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address, cuuint64_t const* dims,
    cuuint64_t const* strides, cuuint32_t const* box, cuuint32_t const* steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  printf("map {\"mode\": \"tiled\", \"type\": %d, \"address\": %lld, ", (int)type, (long long)address);
  list("dims", dims, rank), list("strides", strides, rank - 1), list("box", box, rank);
  list("element_strides", steps, rank);
  printf("\"interleave\": %d, \"swizzle\": %d, \"promotion\": %d, \"fill\": %d}\n", (int)interleave, (int)swizzle,
         (int)promotion, (int)fill);
  return placeholder(map);
}

template <class StrideD, class P> StrideD output_stride(P const& problem) {
  StrideD stride{};
  if constexpr (kIsWgrad) {
    stride = cutlass::make_cute_packed_stride(StrideD{}, problem.shape_C, problem.stride_C, kOperator);
  } else {
    cute::for_each(cute::make_seq<cute::rank<0>(StrideD{})>{},
                   [&](auto i) { cute::get<0, i>(stride) = problem.stride_C[P::RankT - 2 - i]; });
  }
  return stride;
}

// Arguments: addresses of A, B and D; the shapes of activations and filters; lower and upper padding, strides and
// dilations.
int main(int count, char** words) {
  std::vector<long long> given;
  for (int i = 1; i < count; ++i) given.push_back(atoll(words[i]));
  auto next = given.begin() + 3;
  cute::array<int, SPATIAL + 2> activations, filters;
  cute::array<int, SPATIAL> lower, upper, steps, dilation;
  for (auto& each : activations) each = *next++;
  for (auto& each : filters) each = *next++;
  for (auto& each : lower) each = *next++;
  for (auto& each : upper) each = *next++;
  for (auto& each : steps) each = *next++;
  for (auto& each : dilation) each = *next++;
  Problem problem(cutlass::conv::Mode::kCrossCorrelation, activations, filters, lower, upper, steps, dilation, 1);
  auto stride = output_stride<typename Kernel::StrideD>(problem);
  typename Kernel::EpilogueArguments epilogue{{}, (Out const*)given[2], stride, (Out*)given[2], stride};
  epilogue.thread.alpha = 1.0f;
  epilogue.thread.beta = 0.0f;
  cutlass::KernelHardwareInfo hardware{};
  hardware.sm_count = 132;
  typename Kernel::Arguments arguments{
      problem, {(Half const*)given[0], (Half const*)given[1]}, epilogue, hardware, {}};
  auto params = Kernel::to_underlying_arguments(arguments, nullptr);
  auto grid = Kernel::get_grid_shape(params);
  auto block = Kernel::get_block_shape();
  printf("launch {\"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %d, \"shape\": ", grid.x, grid.y, grid.z,
         block.x, block.y, block.z, (int)Kernel::SharedStorageSize);
  printf("{");
  list("out", problem.shape_C.data(), SPATIAL + 2, false);
  printf("}, \"params\": \"");
  for (size_t i = 0; i < sizeof(params); ++i) printf("%02x", ((unsigned char const*)&params)[i]);
  printf("\"}\n");
}
