"""Arguments that fit nothing: each is refused with a sentence, none ends in a traceback of the library."""

import ctypes
import decimal
import fractions
import random
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING

INTERFACE: dict[str, Any] = {"shape": (8, 8), "typestr": "<f4", "data": (0, False), "version": 3}


class OnGpu:
    """An object that says where it lies on a GPU, well or ill."""

    def __init__(self, interface: Any) -> None:
        self.interface = interface

    @property
    def __cuda_array_interface__(self) -> Any:
        if isinstance(self.interface, Exception):
            raise self.interface
        return self.interface


class OnHost:
    """An object that says where it lies on the host, well or ill."""

    def __init__(self, interface: Any) -> None:
        self.interface = interface

    @property
    def __array_interface__(self) -> Any:
        return self.interface


class Dlpack:
    """An object that speaks DLPack, well or ill."""

    def __init__(self, device: Any, capsule: Any) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, Exception):
            raise self.device
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if isinstance(self.capsule, Exception):
            raise self.capsule
        return self.capsule


class NeitherTrueNorFalse:
    """As an array of several elements is."""

    __hash__ = None  # type: ignore[assignment]  # as an array has none

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


class Broken:
    """An object that cannot be looped over."""

    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


def _interfaces() -> list[Any]:
    changes: list[tuple[str, Any]] = [
        ("shape", None), ("shape", "ab"), ("shape", (8.5, 8)), ("shape", (-1, 8)), ("typestr", "zz"),
        ("typestr", None), ("typestr", 7), ("data", None), ("data", 5), ("data", ("x", False)),
        ("data", (1.5, False)), ("data", (-5, False)), ("data", (1 << 70, False)), ("strides", "no"),
        ("strides", (1,)), ("strides", (4.5, 4)), ("mask", 1), ("stream", "x"),
    ]  # fmt: skip
    found: list[Any] = [{**INTERFACE, name: value} for name, value in changes]
    found += [{key: value for key, value in INTERFACE.items() if key != left} for left in INTERFACE]
    return [*found, {}, 5, None, "x", KeyError("x")]


def _objects() -> list[Any]:
    found: list[Any] = [
        None, True, 0, 1, -1, 1.5, float("nan"), 1 << 70, -(1 << 70), "", "x", "128B", b"", b"x" * 64,
        bytearray(128), (), (1,), (1.5, 2), ("a", "b"), [], [8, 8], [1, 2, 3, 4, 5, 6], {}, {1: 2}, set(),
        object(), NeitherTrueNorFalse(), Broken(), range(3), slice(1), ..., int, 1j, fractions.Fraction(1, 2),
        decimal.Decimal(1), np.zeros((8, 8), np.float32).T, np.zeros(0), np.float32(1.5), np.int64(8),
        np.array(5), np.zeros((2, 2), object), np.zeros(4, "U3"), np.zeros((4, 4), complex),
        np.zeros((4, 4), ">f4"), np.ma.zeros((4, 4)), np.zeros((4, 4), "M8[s]"),
        np.zeros((4, 4), [("a", "i4")]), np.zeros((4,) * 7), np.array([1.5, 2.5]),
        np.zeros((8, 32), ml_dtypes.bfloat16), np.zeros((8, 32), ml_dtypes.int4), memoryview(bytearray(64)),
        array("f", [1, 2]), (ctypes.c_float * 4)(), ctypes.c_void_p(0), np.zeros(4).__dlpack__(),
        Path("/tmp"),
        Path("/nowhere/x.ptx"), "/nowhere/x.cu",
    ]  # fmt: skip
    for interface in _interfaces():
        found += [OnGpu(interface), OnHost(interface)]
    for device in ((2, 0), (1, 0), (99, 0), (2,), ("x", "y"), None, 5, RuntimeError("no")):
        found += [Dlpack(device, capsule) for capsule in (None, 5, OSError("no"), np.zeros(4).__dlpack__())]
    try:
        import torch
    except ImportError:
        return found
    complexes = torch.zeros(4, 4, dtype=torch.complex64)
    return [
        *found, torch.zeros(8, 8, requires_grad=True), torch.tensor(3.0), torch.zeros(0, 4), complexes,
        complexes.conj(), torch.zeros(8, 8).to_sparse(), torch.zeros(8, 8, device="meta"),
        torch.zeros(8, 16, dtype=torch.float8_e4m3fn), torch.zeros(4, 4, dtype=torch.bool),
    ]  # fmt: skip


MODULE = lw.load(
    ".version 8.0\n.target sm_90a\n.address_size 64\n.global .align 4 .f32 v[4];\n"
    ".visible .entry k(.param .u64 p, .param .u32 n, .param .f32 x, .param .align 64 .b8 m[128], "
    ".param .align 4 .b8 s[12]) { ret; }"
)
IMAGES = np.zeros((2, 16, 16, 16), np.float32)
TILED: dict[str, Any] = {
    "dtype": "f32", "address": 0, "dims": (16, 16), "strides": (64,), "box": (8, 8), "element_strides": None,
    "swizzle": "none", "interleave": None, "l2_promotion": None, "fill": "zeros",
}  # fmt: skip
IM2COL = {key: value for key, value in TILED.items() if key != "box"} | {
    "dims": (16, 16, 16, 2), "strides": (64, 1024, 16384), "lower": (0, 0), "upper": (0, 0), "channels": 8,
    "pixels": 16,
}  # fmt: skip
GIVEN = (np.zeros((16, 16), np.float32), 1, 1.0, lw.tensor_map(IMAGES[0, 0], (8, 8)), bytes(12))


def _with(place: int, value: Any) -> tuple[Any, ...]:
    return (*GIVEN[:place], value, *GIVEN[place + 1 :])


def _calls() -> dict[str, Callable[[Any], Any]]:
    kernel = MODULE["k"]
    calls: dict[str, Callable[[Any], Any]] = {
        "tensor_map": lambda v: lw.tensor_map(v, (8, 8)),
        "tensor_map box": lambda v: lw.tensor_map(IMAGES[0, 0], v),
        "tensor_map im2col": lambda v: lw.tensor_map(IMAGES, (16, 8), im2col=v),
        "tensor_map of pixels": lambda v: lw.tensor_map(IMAGES, v, im2col=((0, 0), (0, 0))),
        "load": lw.load, "address": lw.address, "cuda": lambda v: lw.cuda(v, compiler="nvrtc"),
        "grid": lambda v: kernel[v, 32], "block": lambda v: kernel[1, v],
        "shared": lambda v: kernel[1, 32, v],
        "configuration": lambda v: kernel[v], "encode": GIVEN[3].encode,
        "globals": lambda v: MODULE.globals.__setitem__("v", v),
    }  # fmt: skip
    for name in ("swizzle", "interleave", "element_strides", "l2_promotion", "fill", "dtype"):
        calls[f"tensor_map {name}"] = lambda v, name=name: lw.tensor_map(IMAGES[0, 0], (8, 8), **{name: v})
    for name in TILED:
        calls[f"encode_tiled {name}"] = lambda v, name=name: lw.encode_tiled(**TILED | {name: v})
    for name in IM2COL:
        calls[f"encode_im2col {name}"] = lambda v, name=name: lw.encode_im2col(**IM2COL | {name: v})
    for place in range(len(GIVEN)):
        calls[f"argument {place}"] = lambda v, place=place: kernel[1, 32](*_with(place, v))
        calls[f"checked argument {place}"] = lambda v, place=place: lw.check(kernel[1, 32], *_with(place, v))
    for name in ("arch", "steps", "executor", "schedule", "stream", "cluster", "unchecked", "overlap"):
        calls[f"launch {name}"] = lambda v, name=name: kernel[1, 32](*GIVEN, **{name: v})
    for name in ("arch", "options", "instances", "lineinfo", "compiler"):
        options: dict[str, Any] = {} if name == "compiler" else {"compiler": "nvrtc"}
        calls[f"cuda {name}"] = lambda v, name=name, options=options: lw.cuda(
            "__global__ void k() {}", **options | {name: v}
        )
    return calls


CALLS = _calls()


@pytest.mark.parametrize("name", CALLS)
def test_every_refusal_is_a_sentence(name: str) -> None:
    objects = _objects()
    if not EVERYTHING:
        objects = random.Random(name).sample(objects, 20)
    for value in objects:
        try:
            CALLS[name](value)
        except lw.LanewiseError as error:
            assert len(str(error).split()) > 3, (name, value, error)
        except TypeError as error:  # Python's own, about the call
            assert "lanewise" in str(error) or "argument" in str(error) or "option" in str(error), (
                name,
                value,
            )
