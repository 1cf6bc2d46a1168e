"""`module.globals`: variables of a module, read and written by the host, on the CPU machine and on GPUs."""

import ctypes
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import lanewise as lw
from lanewise.gpu import assemble, device, driver, loading
from lanewise.ptx.cuda_types import declared_variable
from nvrtc import need_nvrtc

SOURCE = r"""
#include <cuda_fp16.h>
namespace nn { __constant__ float weights[2][COUNT]; __device__ int count; }
struct Pair { int a; float b; };
static __device__ double total;
__device__ float4 corners[3];
__managed__ int table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ __half scale; __constant__ Pair pair; __device__ float* where; __device__ bool flag = true;
namespace { __device__ unsigned hidden = 7; }
template <typename T> __device__ T unit = T(3);
extern "C" __global__ void use(float* out) {
    static __device__ int calls;
    calls++;
    nn::count += 2;
    total += pair.b;
    out[0] = nn::weights[1][2] + corners[1].z + table[1][2] + __half2float(scale) + pair.a + flag + hidden + unit<float>;
    out[1] = where ? *where : -1;
}
template <int N> __global__ void add() { nn::count += N; }
template __global__ void add<1>();
"""  # noqa: E501  # CUDA C++ as it is written
PTX = """
.version 8.0
.target sm_80
.address_size 64
.const .align 16 .v4 .f32 limits[2];
.global .align 4 .b8 raw[8];
.global .s32 counter = -3;
.global .u64 here = counter;
.visible .entry k(.param .u64 out) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd0, [out];
    ld.global.u32 %r0, [counter];
    add.s32 %r1, %r0, 1;
    st.global.u32 [counter], %r1;
    st.global.u32 [%rd0], %r0;
    ret;
}
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    try:
        return lw.cuda(SOURCE, arch="sm_80", options=["-DCOUNT=5"])
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))


def test_types_come_from_the_source_or_from_the_ptx(module: lw.Module) -> None:
    found = {
        name: (str(module.globals[name].dtype), module.globals[name].shape)
        for name in (
            "weights",
            "count",
            "total",
            "corners",
            "table",
            "scale",
            "pair",
            "where",
            "flag",
            "hidden",
        )
    }
    assert found == {
        "weights": ("float32", (2, 5)),
        "count": ("int32", ()),
        "total": ("float64", ()),
        "corners": ("float32", (3, 4)),
        "table": ("int32", (2, 3)),
        "scale": ("float16", ()),
        "pair": ("uint8", (8,)),
        "where": ("uint64", ()),
        "flag": ("bool", ()),
        "hidden": ("uint32", ()),
    }
    plain = lw.load(PTX).globals
    assert {name: (str(each.dtype), each.shape) for name, each in plain.items()} == {
        "limits": ("float32", (2, 4)),
        "raw": ("uint8", (8,)),
        "counter": ("int32", ()),
        "here": ("uint64", ()),
    }


def test_kernels_read_what_the_host_wrote_and_the_host_what_they_wrote(module: lw.Module) -> None:
    values, out = module.globals, np.zeros(2, np.float32)
    assert values["table"].array.tolist() == [[1, 2, 3], [4, 5, 6]] and values["unit<float>"].item() == 3
    values["nn::weights"][:] = np.arange(10).reshape(2, 5)
    values["corners"][1, 2] = 0.25
    values["scale"] = 1.5
    values["pair"] = np.array((100, 0.5), [("a", "i4"), ("b", "f4")])
    values["table"][1] = 10
    target = np.array([42.0], np.float32)
    values["where"] = lw.address(target)
    module["use"][1, 1](out)
    assert out.tolist() == [7 + 0.25 + 10 + 1.5 + 100 + 1 + 7 + 3, 42]
    assert lw.check(module["use"][1, 1], out).ok
    assert int(values["count"]) == 4 and float(values["total"]) == 1.0 and values["calls"].item() == 2
    values["pair"].view([("a", "i4"), ("b", "f4")])["a"] = 1
    assert np.asarray(values["pair"].view("i4")).tolist()[0] == 1
    # An instance of a template is compiled by itself; its variables are the same.
    module["add<1>"][1, 1]()
    module["add<40>"][1, 1]()
    assert int(values["count"]) == 45
    values["count"] = -1
    module["add<40>"][1, 1]()
    assert int(module["add<40>"].module.globals["count"]) == 39


def test_what_cannot_be() -> None:
    values = lw.load(PTX).globals
    with pytest.raises(lw.LanewiseError, match=r"no variable 'count'; there are:\n    limits\n    raw"):
        values["count"]
    with pytest.raises(lw.LanewiseError, match=r"limits is float32\[2\]\[4\]: could not broadcast"):
        values["limits"][:] = np.zeros(3)
    with pytest.raises(lw.LanewiseError, match="raw has 8 bytes; 3 were given"):
        values["raw"] = b"abc"
    with pytest.raises(lw.LanewiseError, match="not a multiple of"):
        values["raw"].view("f8").view([("a", "u1", 3)])
    with pytest.raises(lw.LanewiseError, match="is a variable of the module"):
        del values["raw"]
    with pytest.raises(ValueError, match="read-only"):
        values["raw"].array[0] = 1
    with pytest.raises(lw.LanewiseError, match="not on 0; the module is on 'cpu'"):
        values["raw"].on(0).item()
    values["raw"] = np.array([1.5, 2.5], np.float32)
    assert values["raw"].view("f4")[1] == 2.5 and len(values["raw"]) == 8
    assert "raw" in values and "rest" not in values
    assert "out" not in values and repr(values["limits"]) == "<limits: float32[2, 4]>"


def test_types_and_sizes_by_other_names() -> None:
    source = """
#define ROWS 2
typedef float real;
using number = real;
constexpr int COLUMNS = 0x3;
__device__ number grid[ROWS][COLUMNS][SLICES];
__global__ void k(real* out) { *out = grid[0][0][0]; }
"""
    try:
        module = lw.cuda(source, options=["-DSLICES=4"])
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))
    assert (module.globals["grid"].dtype, module.globals["grid"].shape) == (np.float32, (2, 3, 4))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__device__ int x;", ("int", ())),
        ("__constant__ const float x[3] = {1, 2, 3};", ("const float", ("3",))),
        ("__device__ __align__(16) unsigned long long a[N], *x = 0, b;", ("unsigned long long*", ())),
        ("namespace n { __device__ /* of all */ float2 x[2]\n[W]; }", ("float2", ("2", "W"))),
        ("__device__ float f(int x) { return x; }", None),
        ("int x; __device__ int y;", None),
    ],
)
def test_declarations(source: str, expected: Any) -> None:
    found = declared_variable(source, "x")
    assert (found if found is None else (found.type, found.sizes)) == expected


class FakeDriver:
    """One GPU, whose variables are a dictionary."""

    version = (12, 4)

    def __init__(self) -> None:
        self.memory: dict[int, bytearray] = {}
        self.names: dict[tuple[int, bytes], int] = {}
        self.loaded = 0

    def __call__(self, name: str, *arguments: Any, kernel: str = "") -> None:
        if name == "cuModuleGetGlobal_v2":
            key = (arguments[2], arguments[3])
            place = self.names.setdefault(key, 1000 + len(self.names))
            self.memory.setdefault(place, bytearray((253, 255, 255, 255)))
            arguments[0]._obj.value, arguments[1]._obj.value = place, 4
        elif name == "cuMemcpyDtoH_v2":
            ctypes.memmove(arguments[0], bytes(self.memory[arguments[1]]), arguments[2])
        elif name == "cuMemcpyHtoD_v2":
            self.memory[arguments[0]][:] = arguments[1]

    def number(self, name: str, *arguments: Any) -> int:
        return {"cuDeviceGetCount": 1, "cuFuncGetAttribute": 64, "cuDeviceGetAttribute": 8192}.get(name, 0)

    def handle(self, name: str, *arguments: Any, kernel: str = "") -> int:
        self.loaded += name == "cuModuleLoadData"
        return self.loaded if name == "cuModuleLoadData" else 7

    def launch(self, *arguments: Any) -> int:
        return 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    made = FakeDriver()
    monkeypatch.setattr(driver, "load", lambda: made)
    monkeypatch.setattr(loading, "cubin", lambda module, context, kernel: b"\x7fELF")
    device.context.cache_clear()
    yield made
    device.context.cache_clear()


class OnGpu:
    """An array on the GPU, as a launch sees it."""

    __cuda_array_interface__: ClassVar = {
        "shape": (8,), "typestr": "<f4", "data": (4096, False), "version": 3,
    }  # fmt: skip


def test_variables_on_a_gpu(fake: FakeDriver) -> None:
    module = lw.load(PTX)
    counter = module.globals["counter"]
    assert counter.item() == -3
    counter.set(5)  # before the module is loaded
    module["k"][1, 1](OnGpu())
    assert fake.memory[1000] == (5).to_bytes(4, "little")
    fake.memory[1000][:] = (9).to_bytes(4, "little")  # a kernel has counted
    assert int(counter) == 9 and int(counter.on("cpu")) == 5
    module.globals["counter"] = 20
    assert fake.memory[1000] == (20).to_bytes(4, "little") and counter.on("cpu").item() == 20
    counter.on(0)[...] = 21
    assert counter.on("cpu").item() == 20 and counter.item() == 21
    module["k"][1, 1](np.zeros(1, np.int32))
    with pytest.raises(lw.LanewiseError, match=r"ran on several devices.*\.on\('cpu'\) or \.on\(0\)"):
        counter.item()


def test_variables_are_visible_to_the_driver() -> None:
    shown = assemble.with_visible_variables(lw.load(PTX))
    assert shown.count(".visible .global") == 3 and shown.count(".visible .const") == 1
    assert shown.replace(".visible .global", ".global").replace(".visible .const", ".const") == PTX
    assert assemble.with_visible_variables(lw.load(shown)) == shown
    again = lw.load(PTX)
    again.text = ""
    assert assemble.with_visible_variables(again).count(".visible .global") == 3


def test_strings_of_two_instances_are_their_own() -> None:
    """Instances of templates share variables, but NVRTC gives the strings of each the same names."""
    source = """
    template <int N> __global__ void copy(char* out) {
        const char* text = N == 1 ? "one" : "a much longer text: two";
        if (threadIdx.x < (N == 1 ? 3 : 23)) out[threadIdx.x] = text[threadIdx.x];
    }
    """
    need_nvrtc()
    module = lw.cuda(source)
    found = []
    for number in (1, 2):
        out = np.zeros(64, np.uint8)
        module[f"copy<{number}>"][1, 32](out)
        found.append(out.tobytes().rstrip(b"\0"))
    assert found == [b"one", b"a much longer text: two"]
