"""Arguments that no kernel could read as they are: each is refused with its name and what to pass instead."""

import array
import ctypes
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.machine import KernelFault

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data, .param .f32 x, .param .s32 n) {
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd0, [data];
    ld.param.u32 %r0, [n];
    st.global.u32 [%rd0], %r0;
    ret;
}
.visible .entry half(.param .u64 data, .param .b16 x) { ret; }
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    return lw.load(PTX)


def call(module: lw.Module, data: Any, x: Any = 1.0, n: Any = 1) -> None:
    module["k"][1, 1](data, x, n)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(4, ">f4"), r"argument 0 \(data\) is an array of >f4, which is big-endian"),
        (np.zeros(4, [("a", "<i4"), ("b", ">i4")]), "big-endian"),
        (np.zeros(4, np.complex64), r"complex numbers; array.view\(numpy.float32\)"),
        (np.zeros(4, "datetime64[s]"), r"dates; array.view\(numpy.int64\)"),
        (np.zeros(4, "timedelta64[ns]"), "spans of time"),
        (np.array([None, 1]), "Python objects"),
        (np.array(["a", "b"]), "text"),
        (np.ma.masked_array(np.zeros(4), mask=[False, True, False, False]), r"masked array.*array.filled"),
        (np.array(3), r"an array without dimensions; pass a number .*array.reshape\(1\)"),
        (np.zeros(4, np.longdouble), r"which no GPU has; use array.astype"),
        (array.array("f", [1, 2]), "array in host memory cannot be passed; numpy.asarray"),
        ((ctypes.c_float * 4)(), "in host memory cannot be passed; numpy.asarray"),
        (np.zeros((4, 4), np.float32)[:, 1], "an array must be contiguous"),
        ("text", "cannot be passed"),
    ],
    ids=lambda each: str(getattr(each, "dtype", ""))[:12],
)
def test_arrays_that_no_kernel_can_read(module: lw.Module, data: Any, message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        call(module, data)
    with pytest.raises(LanewiseError, match=message):
        lw.check(module["k"][1, 1], data, 1.0, 1)


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        (10**400, 1, r"argument 1 \(x\): .* does not fit into .f32"),
        (1.0, 2**40, r"argument 2 \(n\): 1099511627776 does not fit into .s32"),
        (1.0, 1.5, "cannot be passed"),
        (1j, 1, "cannot be passed"),
        (np.complex64(1), 1, "cannot be passed"),
        (np.array(1.0), 1, "without dimensions"),
    ],
)
def test_numbers_that_do_not_fit(module: lw.Module, x: Any, n: Any, message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        call(module, np.zeros(1, np.int32), x, n)


@pytest.mark.parametrize("x", [float("inf"), float("nan"), -float("inf"), np.float32("inf"), 3, True, 1e300])
def test_numbers_that_fit(module: lw.Module, x: Any) -> None:
    call(module, np.zeros(1, np.int32), x)


def test_null_pointers_are_called_that(module: lw.Module) -> None:
    with pytest.raises(KernelFault, match="address 0x0 is a null pointer"):
        call(module, None)
    report = lw.check(module["k"][1, 1], None, 1.0, 1)
    assert "null pointer" in str(report)


def test_grids_that_nobody_can_run(module: lw.Module) -> None:
    with pytest.raises(LanewiseError, match="a grid is at most"):
        module["k"][10**10, 1](np.zeros(1, np.int32), 1.0, 1)
    refused = lw.check(module["k"][10**10, 1], np.zeros(1, np.int32), 1.0, 1)
    assert [finding.kind for finding in refused.findings] == ["launch"]
    with pytest.raises(LanewiseError, match="a check takes at most"):
        lw.check(module["k"][(2**31 - 1, 65535), 1], np.zeros(1, np.int32), 1.0, 1)
