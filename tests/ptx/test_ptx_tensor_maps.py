"""CUDA C++ that names CUtensorMap compiles under NVRTC, with the headers that people include and without."""

import pytest

import lanewise as lw
from everything import sampled
from lanewise.isa.tensor_map_fields import DRIVER_ENUMERATIONS
from lanewise.ptx import nvrtc
from lanewise.ptx.tools.runtime_compiler import load
from lanewise.ptx.tools.standard_headers import TENSOR_MAP_PRELUDE
from lanewise.ptx.tools.toolkit import include_folders

pytestmark = pytest.mark.skipif(load(13) is None, reason="NVRTC is not installed (extra `cuda`)")

KERNEL = """
extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, unsigned long long* out) {
    *out = reinterpret_cast<unsigned long long>(&map);
}
"""
has_libcudacxx = any((folder / "cuda" / "barrier").is_file() for folder in include_folders(13))


@sampled(2)
@pytest.mark.parametrize("include", ["", "<cuda.h>", "<cudaTypedefs.h>", "<cuda/barrier>"])
def test_headers(include: str) -> None:
    if include == "<cuda/barrier>" and not has_libcudacxx:
        pytest.skip("libcu++ is not installed")
    source = f"#include {include}\n{KERNEL}" if include else KERNEL
    parameter = lw.cuda(source, arch="sm_90a")["k"].parameters[0]
    assert parameter.size == 128 and parameter.alignment >= 64


def test_a_published_file_with_its_host_code() -> None:
    """Host code that asks the driver for a map is left out; enumerations in device code stay."""
    source = """
    #include <cuda.h>
    #include <cudaTypedefs.h>
    #include <cuda_runtime.h>
    #include <iostream>
    #include <cassert>
    PFN_cuTensorMapEncodeTiled_v12000 encoder() {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
        return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
    }
    template <int ROWS, int COLUMNS>
    __host__ static inline CUtensorMap made(float* data, int height, int width) {
        CUtensorMap map{};
        uint64_t shape[] = {uint64_t(width), uint64_t(height)};
        CUresult status = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, shape, nullptr, nullptr,
            nullptr, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        assert(status == CUDA_SUCCESS);
        return map;
    }
    struct Parameters { CUtensorMap a, b; int count; };
    template <CUtensorMapSwizzle S>
    __device__ int width() { return S == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : 64; }
    __global__ void copy(
        const __grid_constant__ CUtensorMap map, const __grid_constant__ Parameters all, int* out
    ) {
        out[0] = width<CU_TENSOR_MAP_SWIZZLE_128B>() + all.count;
    }
    int main() { copy<<<1, 32>>>(made<64, 64>(nullptr, 1, 2), Parameters{}, nullptr); }
    """
    sizes = [each.size for each in lw.cuda(source, arch="sm_90a")["copy"].parameters]
    assert sizes[0] == 128 and sizes[1] >= 264


def test_a_source_may_define_the_type_itself() -> None:
    source = "typedef struct { alignas(64) unsigned long long words[16]; } CUtensorMap;\n" + KERNEL
    assert lw.cuda(source, arch="sm_90a")["k"].parameters[0].alignment == 64


def test_without_a_cuda_h_the_type_and_its_enumerations_are_declared() -> None:
    names = [name for members in DRIVER_ENUMERATIONS.values() for name in members]
    uses = "".join(f"__device__ int n{n} = {name};\n" for n, name in enumerate(names))
    headers = {"cuda.h": "", "prelude.h": TENSOR_MAP_PRELUDE}
    ptx = nvrtc(uses + KERNEL, "sm_90a", options=["--pre-include=prelude.h"], headers=headers)
    assert "align 64 .b8 k_param_0[128]" in ptx


def test_the_numbers_are_those_of_cuda_h() -> None:
    if not any((folder / "cuda.h").is_file() for folder in include_folders(13)):
        pytest.skip("cuda.h is not installed")
    checks = "".join(
        f"static_assert({name} == {number});\n"
        for members in DRIVER_ENUMERATIONS.values()
        for name, number in members.items()
    )
    lw.cuda("#include <cuda.h>\n" + checks + KERNEL, arch="sm_90a")
