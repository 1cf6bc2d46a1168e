"""CUDA C++ as people publish it becomes a Module: headers, templates, host code, archs CUDA 13 dropped."""

from pathlib import Path

import pytest

from everything import only_with_everything
from lanewise import LanewiseError
from lanewise.ptx import ToolFailed, cuda, cuda_source, nvrtc, parse, ptxas
from lanewise.ptx.tools import runtime_compiler
from lanewise.ptx.tools.offline_compiler import _home, find_nvcc, host_compiler
from lanewise.ptx.tools.runtime_compiler import Nvrtc, _libraries, load
from lanewise.ptx.tools.toolkit import find_tools, header_release, include_folders

HAS_NVRTC = load(13) is not None and any((folder / "cuda").is_dir() for folder in include_folders(13))
pytestmark = pytest.mark.skipif(
    not HAS_NVRTC, reason="NVRTC and its headers are not installed (extra `cuda`)"
)


def has_nvcc() -> bool:
    tool = find_nvcc()
    return (
        tool is not None
        and host_compiler() is not None
        and header_release(_home(tool) / "include") == tool.release
    )


needs_nvcc = pytest.mark.skipif(
    not has_nvcc(), reason="nvcc with headers of its release, or a host compiler, is not installed"
)

HEADERS = """
#include <assert.h>
#include <cassert>
#include <cfloat>
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <mma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__global__ void all(std::uint32_t* out, uint64_t* wide, __nv_bfloat16 b, half h, __nv_fp8_e4m3 q) {
  auto block = cooperative_groups::this_thread_block();
  assert((FLT_MAX > 1e-3f * out[0] && out[1] != 5 && INT_MAX > 0 && std::is_same<int, int32_t>::value));
  printf("%d %f\\n", ceil_div(7, 2), INFINITY);
  out[block.thread_rank()] = float(b) + float(h) + float(q) > std::sqrt(2.0f) ? NAN : UINT32_MAX;
  wide[0] = sizeof(size_t) == 8 ? INT64_MAX : 0;
}
"""


def test_headers_that_kernels_include() -> None:
    module = cuda(HEADERS)
    assert module.target == module.arch == "sm_80"
    assert module["all"].parameters[0].type in ("u64", "b64")
    assert "vprintf" in module.functions and "__assertfail" in module.functions
    assert module.cuda.compiler.startswith("NVRTC")
    assert module.cuda.note == ""
    assert "macro" not in module.cuda.log  # what is provided does not get in the way of the headers


def test_lines_of_the_source_are_known() -> None:
    module = cuda("\n\n__global__ void k(float* p) {\n  p[0] =\n    p[1] * 3.0f;\n}\n")
    store = next(operation for operation in module["k"].function.operations if operation.opcode == "st")
    assert store.loc.source_line == 4
    assert module.files[store.loc.file].endswith("kernel.cu")
    assert cuda("__global__ void k() {}", lineinfo=False).files == {}
    assert cuda("__global__ void k() {}", options="-G").target_options == ("debug",)


def test_a_file_and_its_own_headers(tmp_path: Path) -> None:
    (tmp_path / "scale.cuh").write_text("#pragma once\n#define SCALE 7\n")
    file = tmp_path / "kernel.cu"
    file.write_text('#include "scale.cuh"\n__global__ void k(int* p) { *p = SCALE; }\n')
    for given in (file, str(file)):
        assert "7" in str(cuda(given))
    assert str(file) in cuda(file).files.values()
    with pytest.raises(LanewiseError, match=r"absent\.cu: no such file"):
        cuda(tmp_path / "absent.cu")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120f"])
def test_archs(arch: str) -> None:
    assert cuda("__global__ void k(int* p) { *p = 1; }", arch).target == arch


def test_errors_carry_the_compilers_words() -> None:
    with pytest.raises(ToolFailed, match=r'kernel\.cu\(2\): error: identifier "x" is undefined'):
        cuda("__global__ void k(int* p) {\n  *p = x;\n}")
    with pytest.raises(ToolFailed, match=r"NVRTC cannot compile mine\.cu"):
        nvrtc("oops", name="mine.cu")
    with pytest.raises(LanewiseError, match="unknown arch"):
        cuda("__global__ void k() {}", "sm_42")
    with pytest.raises(LanewiseError, match="NUL"):
        nvrtc("int x;\0int y;")
    with pytest.raises(LanewiseError, match="empty text"):
        cuda("")


def test_nvrtc_gives_text() -> None:
    source = '#include "mine.h"\n__global__ void k(int* p) { *p = N; }'
    text = nvrtc(source, "sm_86", headers={"mine.h": "#define N 12345"}, options=["--maxrregcount=32"])
    assert parse(text).target == "sm_86" and "12345" in text


# templates ----------------------------------------------------------------------------------------------

TEMPLATE = """
#include <cuda_fp16.h>
namespace ns {
template <typename A, typename B, typename C> __global__ void mm(const A* a, const B* b, C* c) {
  c[0] = C(float(a[0]) * float(b[0]));
}
template <int N> __global__ void fill(int* p) { for (int i = 0; i < N; ++i) p[i] = N; }
}
using namespace ns;
__global__ void plain(float* x) { *x = 1; }
"""


def test_templates_are_instantiated_by_name() -> None:
    module = cuda(TEMPLATE)
    assert list(module.entries) == ["_Z5plainPf"]
    entry = module["mm<half, half, float>"]
    assert entry.demangled == "void ns::mm<__half, __half, float>(__half const*, __half const*, float*)"
    assert entry.function is entry.module.entries[entry.name]
    assert entry.module.cuda is not None and entry.module["plain"].name == "_Z5plainPf"
    assert module["ns::fill<3 + 1>"].demangled == "void ns::fill<4>(int*)"
    assert entry.module["mm<__half,__half,float>"].module is entry.module  # it is there already
    assert module["mm<half, half, float>"] is entry  # compiled once


def test_a_template_with_defaults_needs_no_arguments() -> None:
    module = cuda("""
    template <class T = float, int N = 3> __global__ void fill(T* x) { x[threadIdx.x] = N; }
    template <class T, int N = 3> __global__ void other(T* x) { x[threadIdx.x] = N; }
    """)
    assert module["fill"].demangled == "void fill<float, 3>(float*)"
    assert module["fill<int, 4>"].demangled == "void fill<int, 4>(int*)"
    with pytest.raises(LanewiseError, match="a template is instantiated by its full name"):
        module["other"]


def test_templates_that_cannot_be_made() -> None:
    module = cuda(TEMPLATE)
    with pytest.raises(LanewiseError, match="a template is instantiated by its full name"):
        module["mm"]
    with pytest.raises(ToolFailed, match="strange"):
        module["mm<strange>"]
    device = cuda(
        "template <typename T> __device__ T v; template <typename T> __device__ T f() { return v<T>; }"
        "__global__ void k() {}"
    )
    with pytest.raises(ToolFailed, match="non-__global__"):
        device["f<int>"]
    with pytest.raises(LanewiseError, match="only a __global__ function"):
        device["&v<int>"]
    with pytest.raises(LanewiseError, match="no entry"):
        parse(str(module))["mm<half, half, float>"]  # PTX alone has no source


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "scael<float, 4>",
            "kernel.cu has no kernel 'scael'; did you mean 'scale'?\nkernels are scale, other",
        ),
        ("scale<float>", "template<class T, int N> __global__ void scale(T* x)"),
        ("scale<flaot, 4>", "'scale<flaot, 4>' cannot be made: identifier \"flaot\" is undefined"),
        ("other<float>", "a kernel in a namespace is named in full, as space::other<float>"),
    ],
)
def test_what_is_said_of_an_instance_that_cannot_be_made(name: str, says: str) -> None:
    module = cuda(
        "template<class T, int N> __global__ void scale(T* x) { *x *= N; }\n"
        "namespace a { template<class T> __global__ void other(T* x) {} }"
    )
    with pytest.raises(ToolFailed) as caught:
        module[name]
    assert says in str(caught.value)
    assert module["scale<float, 4>(float*)"].demangled == "void scale<float, 4>(float*)"


# host code ----------------------------------------------------------------------------------------------

PROGRAM = """#include <iostream>
#include <vector>
template <typename T> __global__ void twice(T* a) { a[threadIdx.x] *= 2; }
__global__ void once(int* p) { *p = 1; }
int main() {
  std::vector<int> host(4);
  int* p;
  cudaMalloc(&p, 16);
  once<<<1, 1>>>(p);
  twice<<<1, 4>>>(p);
  cudaMemcpy(host.data(), p, 16, cudaMemcpyDeviceToHost);
  std::cout << host[0] << std::endl;
}
"""


@needs_nvcc
@only_with_everything
def test_nvcc_where_it_is_asked_for() -> None:
    module = cuda(PROGRAM, compiler="nvcc")
    assert module.cuda.compiler.startswith("nvcc") and module.cuda.left_out == ()
    assert module["once"].function.operations[-1].opcode == "ret"
    assert module["twice<int>"].module is module
    assert module["twice<float>"].demangled == "void twice<float>(float*)"
    assert any(name.endswith("kernel.cu") for name in module.files.values())
    with pytest.raises(ToolFailed, match="nvcc cannot compile"):
        cuda(PROGRAM.replace("*p = 1", "*p = x"), compiler="nvcc")
    with pytest.raises(LanewiseError, match="instances= is for NVRTC"):
        cuda(PROGRAM, compiler="nvcc", instances=["twice<float>"])


def test_programs_go_to_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_source, "find_nvcc", lambda: None)
    module = cuda(PROGRAM)
    assert module.cuda.compiler.startswith("NVRTC")
    assert [each.name for each in module.cuda.left_out] == ["iostream", "vector", "main"]
    assert module["twice<int>"].module is module  # its argument is what the launch passes
    kernels = "// int main() { k<<<1, 1>>>(); }\n/* cudaMalloc(p) */ __global__ void k(int* p) { *p = 1; }"
    assert cuda(kernels)["k"].name == "_Z1kPi"
    assert cuda(kernels).cuda.left_out == ()


# Volta --------------------------------------------------------------------------------------------------

HALVES = "#include <cuda_fp16.h>\n__global__ void k(half* p) { p[0] = p[1] * p[2]; }"


def test_volta_without_an_nvrtc_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    monkeypatch.setattr(runtime_compiler, "load", lambda major: load(13) if major == 13 else None)
    module = cuda(HALVES, "sm_70")
    assert (module.target, module.arch) == ("sm_75", "sm_70")
    assert "compiled for compute_75" in module.cuda.note and "as on sm_70" in module.cuda.note


@pytest.mark.skipif(load(12) is None, reason="nvidia-cuda-nvrtc-cu12 is not installed")
def test_volta_with_an_nvrtc_that_has_it() -> None:
    module = cuda(HALVES, "sm_70")
    assert (module.target, module.arch) == ("sm_70", "sm_70")
    assert "CUDA 12" in module.cuda.note


@pytest.mark.skipif(not _libraries(13), reason="libnvrtc is in no folder of a package or a toolkit")
def test_the_library_of_a_package_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")  # nothing that was compiled before is taken
    monkeypatch.setattr(runtime_compiler, "load", lambda major: Nvrtc(_libraries(13)[0]))
    module = cuda(TEMPLATE)
    assert module["mm<half, half, float>"].name == "_ZN2ns2mmI6__halfS1_fEEvPKT_PKT0_PT1_"
    with pytest.raises(ToolFailed, match="undefined"):
        cuda("__global__ void k(int* p) { *p = x; }")


# on to the assembler ------------------------------------------------------------------------------------


@pytest.mark.skipif(not find_tools("ptxas"), reason="ptxas is not installed (extra `cuda`)")
def test_what_nvrtc_writes_is_assembled() -> None:
    """Whatever the releases of the two: a newer PTX version is lowered."""
    source = Path(__file__).parent.parent / "data" / "ptx" / "tensor.cu"
    module = cuda(source)
    cubin = ptxas(module)
    assert cubin.resources[module["hgemm"].name].shared == 16 * 16 * 2 + 8 * 16 * 2
    assert set(cubin.resources) == set(module.entries)
