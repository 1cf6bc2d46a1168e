"""What CUDA C++ has besides arithmetic: locks, variables, structs, templates, arrays, printf, assert."""

import numpy as np
import pytest

from lanewise.machine import KernelFault
from machine.classics import classic


def test_a_lock_between_lanes_warps_and_blocks() -> None:
    mutex, total, order = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1 + 3 * 48, np.int32)
    classic("language")["locked"][3, 48](mutex, total, order)
    turns = order[1:].reshape(3, 48)
    assert sorted(turns.ravel()) == list(range(144))
    assert total[0] == ((turns + 1) * (np.arange(48) + 1)).sum()
    assert order[0] == 144 and mutex[0] == 0


def test_lanes_that_wait_for_a_higher_one() -> None:
    out = np.zeros(64, np.int32)
    classic("language")["token"][1, 64](out)
    assert (out == 63 - np.arange(64)).all()


def test_variables_of_the_device_keep_their_values() -> None:
    module = classic("language")
    x = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    y, seen, count = np.zeros_like(x), np.zeros(64, np.float32), np.zeros(1, np.int32)
    module["look"][1, 64](seen, count)
    before = int(count[0])
    for _ in range(3):
        module["blur"][2, 64](x, y, 100)
    module["look"][1, 64](seen, count)
    assert count[0] == before + 3
    offsets = np.array([[1, -1], [2, -2], [3, -3]], np.float32)
    assert (seen == x[:64] + offsets[np.arange(64) % 3, np.arange(64) % 2]).all()
    sums = np.zeros(100, np.float32)
    for k, weight in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True):
        near = x[np.clip(np.arange(100) + k, 0, 99)]
        # NVRTC fuses the product and the sum: one rounding.
        sums = (sums + np.float64(weight) * near).astype(np.float32)
    assert (y == sums / 16).all()


def test_structs_by_value() -> None:
    fields = [("slope", "f4"), ("shift", "f4"), ("low", "i2"), ("scale", "f8"), ("name", "u1", (3,))]
    line = np.zeros((), np.dtype(fields, align=True))
    line["slope"], line["shift"], line["low"], line["scale"], line["name"] = 2, 1, -1, 0.5, (7, 8, 9)
    x, y = np.linspace(-3, 3, 40, dtype=np.float32), np.zeros(40, np.float32)
    classic("language")["by_value"][1, 40](line, x, y, 100)
    inside = (np.maximum((2 * x.astype(np.float64) + 1).astype(np.float32), -1) * 0.5).astype(np.float32)
    assert (y == inside + np.array([7, 8, 9], np.float32)[np.arange(40) % 3] + np.float32(100)).all()


def test_templates_are_made_when_asked_for() -> None:
    x, y = np.arange(-16, 16, dtype=np.int64), np.zeros(32, np.int64)
    classic("language")["power<long long, 5>"][1, 32](x, y)
    assert (y == x**5).all()
    small, out = np.linspace(-2, 2, 32), np.zeros(32)
    classic("language")["power<double, 3>"][1, 32](small, out)
    assert (out == small * small * small).all()


def test_local_arrays() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-99, 99, (33, 16)).astype(np.int32)
    y = np.zeros_like(x)
    classic("language")["sort16"][1, 33](x, y)
    assert (y == np.sort(x)).all()
    children, depths = np.full((31, 2), -1, np.int16), np.zeros(31, np.int32)
    children[:15] = np.arange(1, 31).reshape(15, 2)
    classic("language")["tree_depth"][1, 31](children, depths)
    assert (depths == 5 - np.floor(np.log2(np.arange(1, 32))).astype(int)).all()


def test_dynamic_shared_memory() -> None:
    x = np.arange(500, dtype=np.int32)
    classic("language")["reversed"][1, 500, 2000](x)
    assert (x == np.arange(500)[::-1]).all()


def test_printf(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(32, dtype=np.float32) / 8
    classic("language")["say"][(2, 1), 32](x)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [
        f"thread {t} of block ({b},0): {t / 8:.3f} ok d%" for t, b in ((19, 0), (19, 1), (3, 0), (3, 1))
    ]


def test_an_assertion_names_its_line_and_thread() -> None:
    x = np.arange(20, 60, dtype=np.int32)
    classic("language")["insist"][1, 20](x)
    with pytest.raises(KernelFault, match=r"x\[threadIdx.x\] < 40") as caught:
        classic("language")["insist"][1, 40](x)
    assert caught.value.kind == "assertion"
    assert "language.cu:" in str(caught.value) and "thread (20, 0, 0)" in str(caught.value)


def test_calls_through_pointers() -> None:
    rng = np.random.default_rng(3)
    which = rng.integers(0, 3, 64).astype(np.int32)
    a, b = rng.standard_normal(64).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    c = np.zeros_like(a)
    classic("pointers")["chosen"][1, 64](which, a, b, c)
    assert (c == np.choose(which, [a + b, a - b, a * b])).all()
