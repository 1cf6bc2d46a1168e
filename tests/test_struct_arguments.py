"""Structs by value: ctypes and NumPy structures, half and vector types from numbers and tuples."""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw

KERNELS = r"""
__global__ void show_float4(float* out, float4 v) { out[0] = v.x; out[1] = v.y; out[2] = v.z; out[3] = v.w; }
__global__ void show_half(float* out, __half h, half2 g) {
    out[0] = __half2float(h); out[1] = __half2float(g.x); out[2] = __half2float(g.y);
}
__global__ void show_bf16(float* out, __nv_bfloat16 b, __nv_bfloat162 c) {
    out[0] = __bfloat162float(b); out[1] = __bfloat162float(c.x); out[2] = __bfloat162float(c.y);
}
__global__ void show_uint2(float* out, uint2 v, double3 d, char4 c) {
    out[0] = v.x; out[1] = v.y; out[2] = d.z; out[3] = c.w;
}
__global__ void show_params(float* out, Params p) {
    out[0] = p.a; out[1] = p.d; out[2] = p.v.y; out[3] = p.c;
}
__global__ void show_float2(float* out, float2 z) { out[0] = z.x; out[1] = z.y; }
"""
PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({}) {{ ret; }}"
HEAD = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Params { int a; double d; float2 v; char c; };
"""


class Params(ctypes.Structure):
    """As the kernel has it."""

    _fields_ = (
        ("a", ctypes.c_int), ("d", ctypes.c_double), ("v", ctypes.c_float * 2), ("c", ctypes.c_char),
    )  # fmt: skip


@pytest.fixture(scope="module", params=["mangled", "extern C"])
def module(request: pytest.FixtureRequest) -> lw.Module:
    """The types are known by the mangled name, or by the source."""
    source = HEAD + (KERNELS if request.param == "mangled" else f'extern "C" {{ {KERNELS} }}')
    try:
        return lw.cuda(source, arch="sm_80")
    except lw.ptx.ToolMissing as error:
        pytest.skip(str(error))


def shown(module: lw.Module, kernel: str, *values: Any) -> list[float]:
    out = np.zeros(4, np.float32)
    module[kernel][1, 1](out, *values)
    assert lw.check(module[kernel][1, 1], out, *values).ok
    found: list[float] = out.tolist()
    return found


def test_vectors_and_halves_from_numbers(module: lw.Module) -> None:
    assert shown(module, "show_float4", (1, 2.5, np.float32(3), -4)) == [1, 2.5, 3, -4]
    assert shown(module, "show_float4", np.arange(4, dtype=np.float32)) == [0, 1, 2, 3]
    assert shown(module, "show_half", 1.5, (2, -3)) == [1.5, 2, -3, 0]
    assert shown(module, "show_half", np.float16(1.5), [2, 0.5]) == [1.5, 2, 0.5, 0]
    assert shown(module, "show_half", np.float64(1.5), (np.float16(1), 2.0))[:2] == [1.5, 1]
    assert shown(module, "show_bf16", 1.0078125, (2, 3)) == [1.0078125, 2, 3, 0]
    assert shown(module, "show_bf16", ml_dtypes.bfloat16(7), (2, 3))[0] == 7
    assert shown(module, "show_uint2", (2**24, 7), (0.0, 1.0, 2.5), (0, 0, 0, -5)) == [2**24, 7, 2.5, -5]
    assert shown(module, "show_float2", 3 - 4j)[:2] == [3, -4]
    assert shown(module, "show_float2", np.complex64(3 - 4j))[:2] == [3, -4]
    big = shown(module, "show_half", 1e9, (0, 0))
    assert big[0] == np.inf  # as NumPy and C++ convert it


def test_structures(module: lw.Module) -> None:
    expected = [3, 0.25, 9, 65]
    value = Params(3, 0.25, (ctypes.c_float * 2)(8, 9), b"A")
    assert shown(module, "show_params", value) == expected
    fields = [("a", "i4"), ("d", "f8"), ("v", "f4", 2), ("c", "i1")]
    aligned = np.array((3, 0.25, (8, 9), 65), np.dtype(fields, align=True))
    assert shown(module, "show_params", aligned) == expected
    assert shown(module, "show_params", aligned[()]) == expected
    assert shown(module, "show_params", bytes(value)) == expected
    with pytest.raises(lw.LanewiseError, match=r"32 bytes; 21 were given; numpy.dtype\(…, align=True\)"):
        shown(module, "show_params", np.array((3, 0.25, (8, 9), 65), np.dtype(fields)))


@pytest.mark.parametrize(
    ("kernel", "values", "message"),
    [
        ("show_float4", ((1, 2, 3),), "argument 1 is float4: pass a tuple of 4 numbers; 3 given"),
        ("show_float4", (1.0,), "argument 1 is float4: pass a tuple of 4 numbers; 1 given"),
        ("show_float4", ("text",), "argument 1 is float4: pass a tuple of 4 numbers"),
        ("show_uint2", ((-1, 2), (0, 0, 0), (0, 0, 0, 0)), "argument 1: -1 does not fit into uint2"),
        ("show_uint2", ((1.5, 2), (0, 0, 0), (0, 0, 0, 0)), "argument 1 is uint2: 1.5 is not an integer"),
        ("show_half", ((1, 2), (1, 2)), "pass a number; 2 given"),
        ("show_params", ((1, 2.0, 3.0),), "a struct of 32 bytes: pass bytes, a ctypes structure"),
        ("show_params", (ctypes.c_double(3),), "32 bytes; 8 were given"),
        ("show_params", (np.zeros((), [("a", ">i4", 8)]),), "big-endian"),
        ("show_params", (np.array(None, object),), "Python objects|without dimensions"),
    ],
)
def test_what_does_not_fit(module: lw.Module, kernel: str, values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(lw.LanewiseError, match=message):
        shown(module, kernel, *values)


class Wide(ctypes.Structure):
    """Eight bytes of which the kernel has two fields of four."""

    _fields_ = (("d", ctypes.c_double),)


def test_fields_that_need_more_alignment_than_the_parameter_has() -> None:
    text = PTX.format(".param .align 4 .b8 p[8]")
    kernel = lw.load(text)["k"][1, 1]
    with pytest.raises(lw.LanewiseError, match="aligned to 4 bytes; the one given has a field that needs 8"):
        kernel(Wide(1.0))
    with pytest.raises(lw.LanewiseError, match="needs 8"):
        kernel(np.zeros((), np.dtype([("d", "f8")], align=True))[()])
    kernel(np.zeros((), np.dtype([("a", "i4"), ("b", "f4")], align=True))[()])
    with pytest.raises(lw.LanewiseError, match=r"a struct of 8 bytes: pass bytes.*not float 1\.0"):
        kernel(1.0)
    half = lw.load(text.replace("p[8]", "p[2]"))["k"][1, 1]
    with pytest.raises(lw.LanewiseError, match=r"numpy.float16\(x\) for a half"):
        half(1.0)


def test_numbers_of_ctypes() -> None:
    kernel = lw.load(PTX.format(".param .s32 n, .param .f32 x"))["k"][1, 1]
    kernel(ctypes.c_int(3), ctypes.c_float(1.5))
    with pytest.raises(lw.LanewiseError, match="does not fit"):
        kernel(ctypes.c_longlong(2**40), 1.0)
