"""CUDA C++ files as people publish them: host code, macros and headers around the kernels are no obstacle."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from everything import only_with_everything, sampled
from lanewise import LanewiseError
from lanewise.ptx import Module, ToolFailed, cuda, parse
from lanewise.ptx.cplusplus.declarations import Kind, declarations, members
from lanewise.ptx.cplusplus.tokens import tokens
from lanewise.ptx.tools.runtime_compiler import load
from lanewise.ptx.tools.toolkit import include_folders

HAS_NVRTC = load(13) is not None and any((folder / "cuda").is_dir() for folder in include_folders(13))
needs_nvrtc = pytest.mark.skipif(
    not HAS_NVRTC, reason="NVRTC and its headers are not installed (extra `cuda`)"
)

# declarations -------------------------------------------------------------------------------------------


def split(text: str) -> list[tuple[Kind, set[str]]]:
    return [(each.kind, set(each.names)) for each in declarations(tokens(text))]


@pytest.mark.parametrize(
    ("text", "kind", "names"),
    [
        ("int f(int a = g(1), int b = {2}) { return a; }", Kind.FUNCTION, {"f"}),
        ("template <int N = (3 > 2)> __global__ void k(int* p) { *p = N; }", Kind.FUNCTION, {"k"}),
        ("template <> void k<float>(float* p) {}", Kind.FUNCTION, {"k"}),
        ("__launch_bounds__(128) void k() {}", Kind.FUNCTION, {"k"}),
        ("__global__ void __launch_bounds__(MAX(1, 2)) k(int) {}", Kind.FUNCTION, {"k"}),
        ("S::S(int a) : x{a}, y(a) { z(); }", Kind.FUNCTION, {"S"}),
        ("auto f() -> decltype(g()) { return g(); }", Kind.FUNCTION, {"f"}),
        ("bool operator==(A a, A b) { return true; }", Kind.FUNCTION, {"operator"}),
        ("void f(int);", Kind.FUNCTION, {"f"}),
        (
            "struct __align__(16) S : B<sizeof(int)> { int f() { return 1; } } s, *t;",
            Kind.TYPE,
            {"S", "s", "t"},
        ),
        ("enum class E : int { A = 1, B };", Kind.TYPE, {"E", "A", "B"}),
        ("struct S;", Kind.TYPE, {"S"}),
        ("typedef struct { int inner; } S, *P;", Kind.ALIAS, {"S", "P"}),
        ("typedef void (*F)(int, float);", Kind.ALIAS, {"F"}),
        ("using T = int;", Kind.ALIAS, {"T"}),
        ("using namespace std;", Kind.USING, {"std"}),
        ("int a[] = {1, 2}, b = f(3);", Kind.VARIABLE, {"a", "b"}),
        ("const int n{3};", Kind.VARIABLE, {"n"}),
        ("std::vector<int> v(3, 4);", Kind.FUNCTION, {"v"}),  # as C++ itself would take it, were 3 a type
    ],
)
def test_a_declaration(text: str, kind: Kind, names: set[str]) -> None:
    """It is one declaration, of that kind and with these names, also with others around it."""
    assert split(text) == [(kind, names)]
    around = split(f"int before() {{ }}\n{text}\nint after() {{ }}")
    assert [names for _, names in around] == [{"before"}, names, {"after"}]


def test_what_does_not_count() -> None:
    """Braces and quotes in comments, strings, characters, raw strings and `#if 0` open and end nothing."""
    text = r"""
// } int a() { don't
/* int b() { */
const char* s = "}{\"";  char q = '\'', r = '{';
const char* raw = R"x( } )" int c() { )x";
#if 0
int d() { it's unbalanced
#else
int e() { return 1'000'000; }
#endif
#define F(x) int x() { \
    return 1; }
"""
    names = [names for _, names in split(text)]
    assert names == [{"s"}, {"q", "r"}, {"raw"}, {"e"}]


def test_branches_of_the_preprocessor() -> None:
    """Each branch begins with the same brackets open; a function may have several heads or bodies."""
    text = """
void f(int a) {
#ifdef A
  if (a) {
#else
  if (!a) {
#endif
  } }
#ifdef B
void g(int a)
#else
void g(float a)
#endif
{ }
void h()
#ifdef C
{ one(); }
#else
{ two(); }
#endif
extern "C" {
#ifdef D
namespace n { int i; }
#endif
}
MAKE(float)
MAKE(int)
__global__ void k() {}
"""
    found = declarations(tokens(text))
    assert [min(each.names) for each in found] == ["f", "g", "h", "i", "MAKE", "MAKE", "k"]
    assert found[3].conditions == ("#ifdef D",) and found[-1].conditions == ()


def test_members_of_a_class() -> None:
    text = "struct S { public: int a; S() : a(1) {} __device__ int f() { return a; } private: void g(); };"
    inside = members(declarations(tokens(text))[0])
    assert [min(each.names) for each in inside] == ["a", "S", "f", "g"]


# host code is left out ----------------------------------------------------------------------------------

PROGRAM = r"""#include <iostream>
#include <vector>
#include <torch/extension.h>
#include "cublas_v2.h"
#include <nvToolsExt.h>
#include <thrust/device_vector.h>
#include "missing_project_header.h"
using namespace std;
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) exit(1); } while (0)
#define LAUNCH(n, p) fill<n> << <1, 32>> >(p)
#define KERNEL __global__ void
typedef struct { FILE* file; cublasHandle_t handle; } Context;
static std::vector<int> registry;
Context context;
cublasHandle_t handle;
const int BLOCK = 64;
enum Mode { FAST, SLOW = 7 };
struct Pair {
  int first, second;
  __host__ __device__ int sum() const { return first + second; }
  std::string text() const { return std::to_string(first); }
};
static int helper(int x) { return x + 1; }
inline constexpr int twice(int x) { return 2 * x; }
float host_only(float x) { std::cout << x << std::endl; return x; }
template <int N> __global__ void fill(int* p) { p[threadIdx.x] = N; }
template <typename T, int N> __global__ void scale(T* a) { a[threadIdx.x] *= N; }
KERNEL once(int* p) {
  half h = __float2half(M_PI);
  Pair pair{1, 2};
  p[threadIdx.x] = helper(twice(BLOCK)) + pair.sum() + SLOW + (int)(float)h;
}
template <int W> void wrapped(int* p) {
  constexpr int M = W * 2;
  fill<M><<<1, M>>>(p);
}
torch::Tensor forward(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
int main(int argc, char** argv) {
  std::vector<float> host(4);
  float* data; int* p;
  CHECK(cudaMalloc(&data, 16));
  LAUNCH(5, p);
  wrapped<8>(p);
  once<<<1, 1>>>(p);
  scale<float, 3><<<1, 4>>>(data);
  cout << host[0] << endl;
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return cuda(PROGRAM)


@needs_nvrtc
class TestPrograms:
    def test_kernels_stay_and_run(self, module: Module) -> None:
        out = np.zeros(32, np.int32)
        module["once"][1, 32](out)
        assert set(out) == {64 * 2 + 1 + 3 + 7 + 3}

    def test_instances_that_host_code_launches_are_there(self, module: Module) -> None:
        """Through a macro, through a constant of a function template, and as they are written."""
        demangled = {module[name].demangled for name in module.entries}
        assert demangled == {
            "once(int*)", "void fill<5>(int*)", "void fill<16>(int*)", "void scale<float, 3>(float*)"
        }  # fmt: skip
        assert module["scale<float, 3>"].module is module

    def test_what_was_left_out_is_told(self, module: Module) -> None:
        assert module.cuda is not None
        told = {each.name: each for each in module.cuda.left_out}
        assert {"main", "forward", "host_only", "wrapped", "registry", "context", "iostream"} <= told.keys()
        assert {"missing_project_header.h", "torch/extension.h", "text"} <= told.keys()
        assert not {"helper", "twice", "Pair", "once", "BLOCK", "Mode"} & told.keys()
        line = PROGRAM.split("\n").index("int main(int argc, char** argv) {") + 1
        assert str(told["main"]) == f"function main (kernel.cu:{line})"

    def test_lines_are_those_of_the_file(self, module: Module) -> None:
        entry = module["void fill<5>(int*)"]
        store = next(each for each in entry.function.operations if each.opcode == "st")
        assert PROGRAM.split("\n")[store.loc.source_line - 1].startswith(
            "template <int N> __global__ void fill"
        )


@sampled(16)
@needs_nvrtc
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("uint a; ushort b; ulong c; __global__ void k(uint* p) { *p = a + b + c; }", id="uint"),
        pytest.param(
            "__global__ void k(int* p) { auto f = [=] __device__(int x) { return x; }; *p = f(3); }",
            id="lambda",
        ),
        pytest.param("__global__ void k(double* p) { *p = M_PI * M_SQRT2 + M_LN2; }", id="M_PI"),
        pytest.param("__global__ void k(__int128* p) { p[0] = p[1] * p[2]; }", id="int128"),
        pytest.param("__global__ void k(unsigned __int128* p) { p[0] = p[1] / 3; }", id="uint128"),
        pytest.param(
            "#include <algorithm>\n__global__ void k(int* p) { *p = std::min(p[0], std::max(p[1], 3)); "
            "std::swap(p[2], p[3]); std::fill(p, p + 2, std::clamp(p[4], 1, 2)); }",
            id="algorithm",
        ),
        pytest.param(
            "#include <climits>\n#include <float.h>\n__global__ void k(int* p) { *p = INT_MAX - CHAR_BIT; }",
            id="limits",
        ),
        pytest.param("#ifndef __linux__\n#error\n#endif\n__global__ void k(int* p) { *p = 1; }", id="linux"),
        pytest.param("\ufeff__global__ void k(int* p) { *p = 1; }", id="byte order mark"),
        pytest.param(
            "#include <cub/cub.cuh>\n__global__ void k(int* p) { using R = cub::BlockReduce<int, 64>; "
            "__shared__ R::TempStorage s; int x = R(s).Sum(p[threadIdx.x]); if (!threadIdx.x) *p = x; }",
            id="cub",
        ),
        pytest.param(
            "#include <thrust/complex.h>\n__global__ void k(thrust::complex<float>* p) { p[0] *= p[1]; }",
            id="thrust's types",
        ),
        pytest.param(
            "#include <thrust/sort.h>\n#include <thrust/device_ptr.h>\n"
            "__global__ void k(int* p) { *p = 1; }\n"
            "void go(int* p) { thrust::sort(thrust::device_ptr<int>(p), thrust::device_ptr<int>(p) + 1); }",
            id="thrust's host code",
        ),
        pytest.param(
            "template <typename T> concept Small = sizeof(T) < 8;\n"
            "template <Small T> __device__ T f(T x) { return x; }\n__global__ void k(int* p) { *p = f(3); }",
            id="C++20",
        ),
        pytest.param(
            "#include <cudnn.h>\nstruct Plan { cudnnHandle_t h; void run(); };\n"
            "void Plan::run() { cudnnRun(h); }\n__global__ void k(int* p) { *p = 1; }",
            id="a host class",
        ),
        pytest.param(
            "void go(int* p) { unknown_library_call(p); }\nstatic unknown_type object;\n"
            "__global__ void k(int* p) { *p = 1; }",
            id="names that nobody knows",
        ),
        pytest.param(
            "unknown_type width;\n__global__ void k(int* p, int width) { *p = width; }",
            id="a host variable with the name of a parameter",
        ),
        pytest.param(
            "float max3(float a, float b) { return a; }\n"
            "__device__ float max3(float a, float b) { return b; }\n"
            "__global__ void k(float* p) { *p = max3(p[0], p[1]); }",
            id="a function for the host and one for the device",
        ),
    ],
)
def test_traits_of_published_files(source: str) -> None:
    assert list(module_names(cuda(source))) == ["k"]


def module_names(module: Module) -> list[str]:
    return [module[name].demangled.partition("(")[0].split(" ")[-1] for name in module.entries]


@needs_nvrtc
def test_headers_of_the_project(tmp_path: Path) -> None:
    """They are found beside the file, in `common` and `include` above it and by -I; host code is left out."""
    for folder in ("src/kernels", "common", "include", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "common/helper.cuh").write_text(
        "#pragma once\n#include <string>\n#include <deep.h>\n"
        "inline std::string name() { return std::string(); }\n"
        "__device__ inline int three() {\n  return THREE; }\nvoid go();\n"
    )
    (tmp_path / "include/deep.h").write_text("#pragma once\n#define THREE 3\n")
    (tmp_path / "elsewhere/four.h").write_text("#define FOUR 4\n")
    file = tmp_path / "src/kernels/k.cu"
    file.write_text(
        '#include "helper.cuh"\n#include "helper.cuh"\n#include "four.h"\n'
        "__global__ void k(int* p) { *p = three() + FOUR; }\n"
    )
    module = cuda(file, options=[f"-I{tmp_path / 'elsewhere'}"])
    out = np.zeros(1, np.int32)
    module["k"][1, 1](out)
    assert out[0] == 7
    assert module.cuda is not None and "name" in {each.name for each in module.cuda.left_out}
    (tmp_path / "include/deep.h").write_text("#pragma once\n#define THREE 30\n")
    cuda(file, options=[f"-I{tmp_path / 'elsewhere'}"])["k"][1, 1](out)
    assert out[0] == 34  # a header that changed is not taken from the cache
    (tmp_path / "common/helper.cuh").write_text("__device__ int three() {\n  return nothing; }\n")
    with pytest.raises(ToolFailed, match=r'helper\.cuh\(2\): error: identifier "nothing" is undefined'):
        cuda(file, options=[f"-I{tmp_path / 'elsewhere'}"])


@needs_nvrtc
def test_errors_are_those_of_the_kernels() -> None:
    """What is wrong in a kernel is told, and nothing that was only left out."""
    source = '#include "lost.h"\nvoid go() { unknown(); }\n__global__ void k(int* p) {\n  *p = wrong; }\n'
    with pytest.raises(ToolFailed) as raised:
        cuda(source)
    message = str(raised.value)
    assert 'kernel.cu(4): error: identifier "wrong" is undefined' in message and "unknown" not in message
    assert "headers that were not found are empty: lost.h" in message


@needs_nvrtc
def test_a_kernel_behind_a_condition() -> None:
    source = (
        "#ifndef GUARD\n#define GUARD\n#ifdef WITH_TENSOR_CORES\n__global__ void fast(int* p) { *p = 1; }\n"
        "template <int N> __global__ void faster(int* p) { *p = N; }\n#endif\n#endif\n"
        "__global__ void k() {}\n"
    )
    module = cuda(source)
    with pytest.raises(LanewiseError, match=r"fast is defined on line 4 of kernel\.cu, but behind #ifdef"):
        module["fast"]
    with pytest.raises(LanewiseError, match=r"faster is defined on line 5 .* behind #ifdef WITH_TENSOR"):
        module["faster<3>"]
    assert cuda(source, options=["-DWITH_TENSOR_CORES"])["fast"].name


@needs_nvrtc
def test_dynamic_parallelism_is_refused_by_name() -> None:
    child = "__global__ void child(int* p) { *p = 1; }\n"
    parent = "__global__ void parent(int* p) {\n  child<<<1, 1>>>(p); }\n"
    caller = (
        "__device__ void go(int* p) { child<< <1, 1>> >(p); }\n__global__ void caller(int* p) { go(p); }\n"
    )
    graph = "__global__ void graph(cudaGraphExec_t g) {\n  cudaGraphLaunch(g, 0); }\n"
    module = cuda(child + parent + caller + graph)
    assert module_names(module) == ["child"]
    with pytest.raises(LanewiseError, match=r"parent launches a kernel on the device \(kernel\.cu:3\): dyn"):
        module["parent"]
    with pytest.raises(LanewiseError, match=r"caller calls go; go launches a kernel .* \(kernel\.cu:4\)"):
        module["caller"]
    with pytest.raises(LanewiseError, match=r"graph calls cudaGraphLaunch on the device \(kernel\.cu:7\)"):
        module["graph"]
    guarded = parent.replace("  child", "#ifdef NESTED\n  child").replace("(p); }", "(p);\n#endif\n}")
    assert module_names(cuda(child + guarded)) == ["child", "parent"]  # the launch is not compiled
    nested = cuda(child + guarded, options=["-DNESTED"])
    assert module_names(nested) == ["child"]
    with pytest.raises(LanewiseError, match=r"parent launches a kernel on the device \(kernel\.cu:4\)"):
        nested["parent"]
    calling = (
        ".version 8.0\n.target sm_80\n.extern .func cudaLaunchDeviceV2 ();\n"
        ".visible .entry k() { call cudaLaunchDeviceV2; ret; }"
    )
    with pytest.raises(LanewiseError, match="line 4: cudaLaunchDeviceV2 is called: dynamic parallelism"):
        parse(calling)["k"][1, 1]()
    with pytest.raises(LanewiseError, match="launches a kernel on the device"):
        cuda("__global__ void self(int n) {\n  if (n) self<<<1, 1>>>(n - 1); }")


# kept on disk -------------------------------------------------------------------------------------------


@needs_nvrtc
def test_a_second_start_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process does not even load NVRTC; another option, another source and another arch compile."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    code = (
        "import json, sys, lanewise as lw\n"
        "from lanewise.ptx.tools import runtime_compiler\n"
        "compiled = []\nreal = runtime_compiler.load\n"
        "runtime_compiler.load = lambda major: (compiled.append(major), real(major))[1]\n"
        "source, arch, options = json.loads(sys.argv[1])\n"
        "module = lw.cuda(source, arch, options=options, instances=['f<1>', 'f<2>'])\n"
        "print(json.dumps([bool(compiled), list(module.entries), module['f<2>'].name]))\n"
    )

    def start(*request: object) -> tuple[bool, list[str], str]:
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(request)], capture_output=True, text=True, check=True
        )
        compiled, entries, name = json.loads(done.stdout)
        return compiled, entries, name

    source = "template <int N> __global__ void f(int* p) { *p = N; }"
    names = ["_Z1fILi1EEvPi", "_Z1fILi2EEvPi"]
    assert start(source, "sm_80", []) == (True, names, names[1])  # both at once
    assert start(source, "sm_80", []) == (False, names, names[1])
    for other in ((source, "sm_80", ["-DA"]), (source, "sm_90", []), (source + "\n", "sm_80", [])):
        assert start(*other)[0]


@needs_nvrtc
def test_asking_for_instances() -> None:
    module = cuda("template <int N> __global__ void f(int* p) { *p = N; }", instances=["f<1>", "f<2>"])
    assert module["f<1>"].module is module and module["f<2>"].module is module
    assert module["f<3>"].module is not module
    with pytest.raises(ToolFailed, match="strange"):
        cuda("template <int N> __global__ void f(int* p) { *p = N; }", instances=["f<strange>"])
    with pytest.raises(LanewiseError, match='"nvrtc" or "nvcc"'):
        cuda("__global__ void k() {}", compiler="gcc")  # type: ignore[arg-type]  # the mistake


# the survey ---------------------------------------------------------------------------------------------


@needs_nvrtc
@only_with_everything  # a script that measures; what it calls is tested on its own
def test_survey_of_a_folder(tmp_path: Path) -> None:
    """benchmarks/published.py tells for each kernel how far it comes."""
    (tmp_path / "good.cu").write_text(
        "__global__ void good(float* a, int n) { if (threadIdx.x < n) a[threadIdx.x] = 1; }\nint main() {}\n"
    )
    (tmp_path / "bad.cu").write_text(
        "__global__ void wild(int* a) { a[1 << 29] = 1; }\n__global__ void idle() {}\n"
    )
    (tmp_path / "wrong.cu").write_text("__global__ void wrong(int* a) { *a = b; }\n")
    script = Path(__file__).parents[2] / "benchmarks" / "published.py"
    record = tmp_path / "record.json"
    command = [sys.executable, str(script), str(tmp_path), "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files = json.loads(record.read_text())["files"]
    stages = {row["kernel"]: row["stage"] for rows in files.values() for row in rows}
    assert stages["good"] == "run" and stages["wrong"] == "not compiled" and stages["idle"] == "run"
    assert stages["wild"] == "stopped by its arguments"
    assert "3 files, 2 of them whole; 4 kernels: 3 compile, 3 are prepared" in done.stdout


@needs_nvrtc
@only_with_everything  # NVRTC takes some seconds for Thrust
def test_thrust_sorts_and_adds_up_inside_a_kernel() -> None:
    kernel = cuda("""
    #include <thrust/execution_policy.h>
    #include <thrust/reduce.h>
    #include <thrust/sort.h>
    __global__ void rows(int* x, int* sums, int n) {
        int* row = x + threadIdx.x * n;
        thrust::sort(thrust::seq, row, row + n);
        sums[threadIdx.x] = thrust::reduce(thrust::seq, row, row + n, 0);
    }""")["rows"]
    x, sums = np.random.default_rng(0).integers(0, 100, (32, 16)).astype(np.int32), np.zeros(32, np.int32)
    expected = np.sort(x, axis=1)
    kernel[1, 32](x, sums, 16)
    assert (x == expected).all() and (sums == expected.sum(axis=1)).all()


@needs_nvrtc
def test_instances_of_class_templates_whose_members_launch() -> None:
    module = cuda("""
    template <class T> __global__ void scale(T* x) { x[threadIdx.x] *= 2; }
    template <class T> struct Engine { T* data; int n; Engine(int); void run(); };
    template <class T> void Engine<T>::run() { scale<T><<<1, 32>>>(data); }
    template struct Engine<float>;
    template class Engine<double>;
    template <class T> Engine<T>::Engine(int n) : n(n) {}
    """)
    assert {entry.demangled for entry in map(module.__getitem__, module.entries)} == {
        "void scale<float>(float*)",
        "void scale<double>(double*)",
    }
