"""Arguments held against the C++ signature: what is refused, with the parameter's name, and what is taken."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
typedef float real;
struct Params { int a; };
__global__ void halves(const __half* __restrict__ A, float* C, int n, long long wide) {
    if (n > 99) C[0] = A[0];
}
__global__ void small(const __nv_bfloat16* b, const __nv_fp8_e4m3* e, signed char* s, unsigned char* raw) {}
__global__ void words(unsigned* u, short* s, int4* v, void* p, Params* q, unsigned short* w) {}
__global__ void vectors(float4* x, __half2* h, float** table, bool* flags) {}
template <typename T> __global__ void scale(T* data, T factor) {
    data[threadIdx.x] = data[threadIdx.x] * factor;
}
template __global__ void scale<float>(float*, float);
extern "C" __global__ void plain(const real* x, int n) {}
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    try:
        return lw.cuda(SOURCE, arch="sm_90")
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))


def of(dtype: Any) -> np.ndarray:
    return np.zeros(64, dtype)


f16, f32, bf16 = of(np.float16), of(np.float32), of(ml_dtypes.bfloat16)
fp8 = of(ml_dtypes.float8_e4m3fn)

REFUSED = [
    ("halves", (f32, f32, 1, 1), r"0 \(A\) .* is __half const\*: .*of float16, and one of float32 was given"),
    ("halves", (bf16, f32, 1, 1), r"0 \(A\) .*one of bfloat16 was given; array.astype\(numpy.float16"),
    ("halves", (f16, of(np.float64), 1, 1), r"argument 1 \(C\) of halves.* is float\*: .*float64 was given"),
    ("halves", (f16, of(np.uint32), 1, 1), r"1 \(C\).*array.view\(numpy.float32\) takes its bits"),
    ("halves", (f16, 64, 1, 1), r"1 \(C\) .*takes an array, None, or lw.address\(array\); 64 was given"),
    ("halves", (f16, np.int32(64), 1, 1), r"argument 1 \(C\) .*lw.address"),
    ("halves", (f16, True, 1, 1), r"argument 1 \(C\)"),
    ("halves", (f16, f32, 3_000_000_000, 1), r"argument 2 \(n\) .* is int: 3000000000 does not fit"),
    ("halves", (f16, f32, 1, f32), r"argument 3 \(wide\) .*it takes an integer; an array was given"),
    ("small", (f16, fp8, of(np.int8), f32), r"argument 0 \(b\) .*astype\(ml_dtypes.bfloat16\)"),
    ("small", (bf16, of(ml_dtypes.float8_e5m2), of(np.int8), f32), r"argument 1 \(e\) .*float8_e4m3fn"),
    ("small", (bf16, fp8, f32, f32), r"argument 2 \(s\) .*int8"),
    ("words", (of(np.int64), of("i2"), f32, f32, f32, f16), r"argument 0 \(u\) .*uint32, and one of int64"),
    ("words", (of("u4"), f16, f32, f32, f32, f16), r"argument 1 \(s\) .*int16, and one of float16"),
    ("words", (of("u4"), of("i2"), f32, f32, f32, f32), r"argument 5 \(w\) .*uint16"),
    ("vectors", (f16, f16, of("u8"), of("?")), r"argument 0 \(x\) .* is float4\*: .*float32"),
    ("vectors", (f32, f32, of("u8"), of("?")), r"argument 1 \(h\) .*float16"),
    ("vectors", (f32, f16, f32, of("?")), r"argument 2 \(table\) .*uint64"),
    ("scale", (of(np.float64), 2.0), r"0 \(data\) of void scale<float>\(float\*, float\) is float\*"),
    ("plain", (f16, 1), r"argument 0 \(x\) of plain is const real\*: .*float32"),
]  # fmt: skip
TAKEN = [
    ("halves", (f16, f32, 1, 1)),
    ("halves", (of(np.uint16), None, np.int64(7), 2**40)),
    ("halves", (f16, lw.address(f32), -1, 1)),
    ("halves", (f16, lw.address(f32) + 4, 1, 1)),
    ("small", (bf16, of(np.uint8), of(ml_dtypes.int4), of(np.float64))),
    ("words", (of(np.int32), of(np.uint16), f16, f32, of([("a", "i4")]), bf16)),
    ("words", (f32, of(np.int16), f32, f16, f32, f16)),
    ("vectors", (f32, f16, of(np.int64), of(np.uint8))),
    ("scale<float>", (f32, 2)),
    ("plain", (f32, 1)),
    ("plain", (of(np.uint8), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "values", "message"), REFUSED)
def test_what_the_signature_does_not_take(
    module: lw.Module, kernel: str, values: tuple[Any, ...], message: str
) -> None:
    for launch in (module[kernel][1, 1], lambda *each: lw.check(module[kernel][1, 1], *each)):
        with pytest.raises(LanewiseError, match=message):
            launch(*values)
    with pytest.raises(LanewiseError, match=message):
        lw.trace(module[kernel][1, 1], *values)


@pytest.mark.parametrize(("kernel", "values"), TAKEN)
def test_what_the_signature_takes(module: lw.Module, kernel: str, values: tuple[Any, ...]) -> None:
    module[kernel][1, 1](*values)
    lw.check(module[kernel][1, 1], *values)


def test_unchecked_gets_by(module: lw.Module) -> None:
    module["halves"][1, 1](f32, f32, 1, 1, unchecked=True)
    assert lw.check(module["halves"][1, 1], f32, f32, 1, 1, unchecked=True).ok
    lw.trace(module["halves"][1, 1], f32, f32, 1, 1, unchecked=True)


def test_mangled_names_in_ptx_have_a_signature_as_well(module: lw.Module) -> None:
    loaded = lw.load(str(module))
    with pytest.raises(LanewiseError, match=r"argument 0 of halves.* is __half const\*"):
        loaded["halves"][1, 1](f32, f32, 1, 1)


def test_memory_maps_and_read_only_arrays(module: lw.Module, tmp_path: Path) -> None:
    data = np.memmap(tmp_path / "data", np.float32, "w+", shape=(32,))
    data[:] = 3
    module["scale<float>"][1, 32](data, 2.0)
    data.flush()
    assert (np.fromfile(tmp_path / "data", np.float32) == 6).all()
    kept = np.memmap(tmp_path / "data", np.float32, "r")
    assert lw.check(module["plain"][1, 32], kept, 1).ok
    with pytest.raises(LanewiseError, match="read-only"):
        module["scale<float>"][1, 32](kept, 2.0)


class Tensor:
    """What a launch asks of a torch tensor in host memory, held by a NumPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.ndim = array, array.ndim
        self.dtype = f"torch.{array.dtype.name}"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    is_cuda = False

    def detach(self) -> Tensor:
        return self

    def element_size(self) -> int:
        return self.array.dtype.itemsize

    def view(self, dtype: str) -> Tensor:
        return Tensor(self.array.view(dtype))

    def numpy(self) -> np.ndarray:
        if not hasattr(np, self.array.dtype.name):
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array

    def item(self) -> float:
        return float(self.array)


def test_torch_tensors_in_host_memory(module: lw.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = ModuleType("torch")
    torch.Tensor, torch.uint8, torch.int16 = Tensor, "u1", "i2"
    monkeypatch.setitem(sys.modules, "torch", torch)
    data = np.ones(32, np.float32)
    module["scale<float>"][1, 32](Tensor(data), 2.0)
    assert (data == 2).all()
    assert lw.check(module["scale<float>"][1, 32], Tensor(data), Tensor(np.array(2, np.float32))).ok
    assert (data == 4).all()
    arguments = [Tensor(bf16), Tensor(fp8), of(np.int8), Tensor(f32)]
    module["small"][1, 1](*arguments)
    arguments[0] = Tensor(f16)
    with pytest.raises(LanewiseError, match=r"argument 0 \(b\) .*one of float16"):
        module["small"][1, 1](*arguments)


def test_torch_tensors_for_kernels_of_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = ModuleType("torch")
    torch.Tensor, torch.uint8, torch.int16 = Tensor, "u1", "i2"
    monkeypatch.setitem(sys.modules, "torch", torch)

    @lw.kernel
    def double(x: lw.Ptr[lw.bf16]) -> None:
        i = lw.thread_idx.x
        x[i] = x[i] + x[i]

    data = np.ones(32, ml_dtypes.bfloat16)
    double[1, 32](Tensor(data))
    assert (data == 2).all()
    with pytest.raises(LanewiseError, match="dtype bfloat16, not of float16"):
        double[1, 32](Tensor(f16))
