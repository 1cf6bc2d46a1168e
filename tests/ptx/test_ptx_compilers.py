"""Which compiler compiles CUDA C++: NVRTC, and nvcc where NVRTC makes no kernel of it; no module is empty."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything
from lanewise import LanewiseError
from lanewise.ptx import ToolFailed, ToolMissing, cuda, cuda_source
from lanewise.ptx.cuda_source import has_nvcc
from nvrtc import need_nvrtc

needs_nvcc = pytest.mark.skipif(not has_nvcc(), reason="nvcc or a host compiler is not installed")


@pytest.fixture(autouse=True)
def _nvrtc() -> None:
    need_nvrtc()


@pytest.fixture
def without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_source, "find_nvcc", lambda: None)


BODY = "{ x[threadIdx.x] = 7; }"
#: A layout whose type host code deduces, as CuTe's tutorials do; only a compiler of host code can tell it.
DEDUCED = """
template <class A, class B> struct Pair { A first; B second; };
template <class A, class B> constexpr auto paired(A a, B b) { return Pair<A, B>{a, b}; }
template <class Layout> __global__ void scale(Layout layout, float* x) {
  x[threadIdx.x] = x[threadIdx.x] * layout.first + layout.second;
}
template <class T> void run(T factor, float* x) {
  auto layout = paired(factor, 0.5);
  scale<<<1, 32>>>(layout, x);
}
int main() { run(3, (float*)0); }
"""


@pytest.mark.parametrize(
    "source",
    [
        f"static __global__ void k(float* x) {BODY}",
        f"namespace {{ __global__ void k(float* x) {BODY} }}",
        f"namespace a {{ namespace b {{ inline __global__ void k(float* x) {BODY} }} }}",
        f'extern "C" {{ __global__ void k(float* x) {BODY} }}',
        "template <int N> __global__ void k(float* x) { x[threadIdx.x] = N; }\n"
        "template __global__ void k<7>(float*);",
        "template <int N> __global__ void k(float* x) {}\n"
        f"template <> __global__ void k<3>(float* x) {BODY}",
        f"#define KERNEL static __global__\nKERNEL void k(float* x) {BODY}",
        f"#define DEFINE(name) __global__ void name(float* x) {BODY}\nDEFINE(k)",
        "template <int N> __global__ void k(float* x) { x[threadIdx.x] = N; }\n"
        "int main() { auto f = k<7>; f<<<1, 1>>>(0); }",
        "template <int N> __global__ void k(float* x) { x[threadIdx.x] = N; }\n"
        "int main() { void* a[1]; cudaLaunchKernel((void*)k<7>, 1, 1, a, 0, 0); }",
    ],
)
def test_kernels_that_nvrtc_compiles(source: str) -> None:
    """However a kernel is declared or launched, the module has it, and it runs."""
    module = cuda(source)
    (name,) = module.entries
    assert module.cuda.compiler.startswith("NVRTC") and module.cuda.note == ""
    x = np.zeros(32, np.float32)
    module[name][1, 32](x)
    assert (x == 7).all()


@needs_nvcc
def test_arguments_that_host_code_deduces() -> None:
    module = cuda(DEDUCED)
    assert module.cuda.compiler.startswith("nvcc") and "launches scale with template arg" in module.cuda.note
    assert "by nvcc" in repr(module)
    x = np.arange(32, dtype=np.float32)
    layout = np.array([(3, 0.5)], np.dtype([("first", "i4"), ("second", "f8")], align=True))
    module["scale"][1, 32](layout[0], x)
    assert np.array_equal(x, np.arange(32) * 3 + 0.5)


@needs_nvcc
def test_nvcc_joins_in_for_the_kernel_that_is_missing() -> None:
    """Where NVRTC compiles some kernels, the others are compiled when they are asked for."""
    module = cuda(DEDUCED + f"__global__ void plain(float* x) {BODY}")
    assert module.cuda.compiler.startswith("NVRTC") and 'module["scale"] compiles' in module.cuda.note
    assert [module[name].demangled for name in module.entries] == ["plain(float*)"]
    assert module["scale"].demangled == "void scale<Pair<int, double> >(Pair<int, double>, float*)"
    assert module["scale"].module.cuda.compiler.startswith("nvcc")


@pytest.mark.usefixtures("without_nvcc")
def test_without_nvcc_the_note_says_what_is_missing() -> None:
    module = cuda(DEDUCED)
    assert not module.entries and "launches scale with template arguments" in module.cuda.note
    with pytest.raises(ToolMissing, match="nvcc, which pip install"):
        module["scale"]
    assert module["scale<Pair<float, float>>"].demangled.startswith("void scale<Pair<float, float>")


#: Overloads that NVRTC refuses and nvcc takes, as ThunderKittens' headers have them.
OVERLOADED = """
template <bool B> struct If { }; template <> struct If<true> { using type = int; };
template <int n> struct Size {
  int runtime;
  template <int N = n> __device__ static constexpr typename If<(N > 0)>::type get() { return N; }
  template <int N = n> __device__ typename If<(N < 0)>::type get() const { return runtime; }
};
__global__ void k(float* x) { Size<-1> size{4}; x[threadIdx.x] = size.get() + Size<3>::get(); }
template <int N> __global__ void t(float* x) { x[threadIdx.x] = Size<N>::get(); }
"""


@needs_nvcc
def test_what_nvrtc_refuses_and_nvcc_takes() -> None:
    module = cuda(OVERLOADED)
    assert module.cuda.compiler.startswith("nvcc")
    assert "since NVRTC cannot: kernel.cu(6): error: static and nonstatic" in module.cuda.note
    x = np.zeros(32, np.float32)
    module["k"][1, 32](x)
    assert (x == 7).all()
    if EVERYTHING:  # nvcc is started again for each
        module["t<5>"][1, 32](x)
        assert (x == 5).all()
        assert cuda(OVERLOADED, instances=["t<9>"])["t<9>"].demangled == "void t<9>(float*)"
    with pytest.raises(ToolFailed, match="NVRTC cannot compile"):
        cuda(OVERLOADED, compiler="nvrtc")


@needs_nvcc
def test_what_both_refuse() -> None:
    with pytest.raises(ToolFailed, match=r"(?s)NVRTC cannot compile.*undefined.*nvcc cannot .*either"):
        cuda("__global__ void k(float* x) { *x = nothing; }")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("// nothing", "no function in it is marked __global__"),
        ("__device__ float twice(float x) { return 2 * x; }", "no function in it is marked __global__"),
        ("__device__ int table[4]; __constant__ float scale;", "no function in it is marked __global__"),
        ("#include <cstdio>\nint main() { printf(\"hello\"); }", "no function in it is marked __global__"),
        ("#ifdef FAST\n__global__ void k(float* x) { *x = 1; }\n#endif", "behind #ifdef FAST"),
        ("__global__ void k(float* x);", "of k there is a declaration, and no definition"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compiler", [None, "nvrtc"])
def test_text_without_a_kernel(source: str, says: str, compiler: Any) -> None:
    with pytest.raises(LanewiseError, match="has no kernel") as caught:
        cuda(source, compiler=compiler)
    assert says in str(caught.value)


def test_a_template_alone_waits_for_its_arguments() -> None:
    module = cuda("template <int N> __global__ void k(float* x) { *x = N; }")
    assert not module.entries and module.cuda.note == "" and module.cuda.compiler.startswith("NVRTC")
    assert module["k<4>"].demangled == "void k<4>(float*)"


# CuTe -------------------------------------------------------------------------------------------------------

CUTLASS = Path(os.environ.get("CUTLASS", ""))
TUTORIALS = CUTLASS / "examples" / "cute" / "tutorial"


@only_with_everything
@needs_nvcc
@pytest.mark.skipif(not os.environ.get("CUTLASS"), reason="CUTLASS= names no checkout of CUTLASS")
@pytest.mark.parametrize(
    ("name", "arch"),
    [("sgemm_1", "sm_80"), ("sgemm_2", "sm_80"), ("sgemm_sm70", "sm_70"), ("sgemm_sm80", "sm_80")],
)
def test_tutorials_of_cute(name: str, arch: str) -> None:
    """Every instance that a tutorial launches multiplies matrices as NumPy does."""
    options = [f"-I{CUTLASS}/include", f"-I{CUTLASS}/tools/util/include"]
    module = lw.cuda(TUTORIALS / f"{name}.cu", arch, options=options)
    kernels = [module[each] for each in module.entries if "gemm_device" in each]
    assert kernels and module.cuda.compiler.startswith("nvcc")
    for kernel in kernels:
        _multiply(kernel)


def _multiply(kernel: Any) -> None:
    """Launch an instance of gemm_device on a matrix of 2 × 3 tiles and compare with NumPy."""
    is_half = "half_t" in kernel.demangled
    dtype = np.dtype(np.float16 if is_half else np.float32)
    m, n, k = 256, 384, 64
    random = np.random.default_rng(5)
    a, b = (random.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (n, k)))
    c = random.integers(-3, 4, (m, n)).astype(dtype)
    # A stride is (1, ld) for column-major operands, (ld, 1) for row-major ones, and one int in the launch.
    strides = [
        each for each in _template_arguments(kernel.demangled) if "int" in each and each.count(",") == 1
    ]
    stored, leading = [], []
    for matrix, stride in zip((a, b, c), strides, strict=True):
        is_column_major = stride.startswith("cute::tuple<cute::C<1>")
        stored.append(np.array(matrix, order="F" if is_column_major else "C"))
        leading.append(np.int32(stored[-1].strides[1 if is_column_major else 0] // dtype.itemsize))
    given: list[Any] = []
    arrays = iter(zip(stored, leading, strict=True))
    for parameter in kernel.parameters:
        if parameter.size == 12:
            given.append(np.array([m, n, k], np.int32).view(np.uint8))
        elif parameter.size == 8 and not parameter.dims:
            array, step = next(arrays)
            given.append(array)
        elif parameter.size == 4 and parameter.dims:
            given.append(np.array([step], np.int32).view(np.uint8))
        elif parameter.dims and parameter.size == 1:
            given.append(np.zeros(1, np.uint8))
        elif parameter.type == "f32":
            given.append(np.float32(2))
        elif parameter.size == 2 and parameter.dims:
            given.append(np.array([2], np.float16).view(np.uint8))
        else:
            given.append(np.zeros(parameter.size, np.uint8))
    threads = kernel.function.limit("maxntid")
    shared = (
        96 << 10 if "SM75_U32x4_LDSM_N" in kernel.demangled or "AutoVectorizing" in kernel.demangled else 0
    )
    kernel[(m // 128, n // 128), threads, shared](*given)
    expected = 2 * (a.astype(np.float32) @ b.astype(np.float32).T) + 2 * c.astype(np.float32)
    assert np.array_equal(stored[2].astype(np.float32), expected), kernel.demangled


def _template_arguments(full: str) -> list[str]:
    """The arguments of a template in a demangled name."""
    inner, parts, depth, start = full[full.index("<") + 1 :], [], 0, 0
    for at, letter in enumerate(inner):
        depth += (letter == "<") - (letter == ">")
        if depth < 0 or (letter == "," and depth == 0):
            parts.append(inner[start:at].strip())
            start = at + 1
        if depth < 0:
            break
    return parts
