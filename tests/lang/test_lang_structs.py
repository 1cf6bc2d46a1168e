"""Structs as parameters: named tuples, dataclasses and tuples of parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import lanewise as lw
from lanewise.lang.frontend.kernel import Kernel

THREADS = 32


class Steps(NamedTuple):
    """Elements from row to row and from column to column."""

    row: lw.i32
    column: lw.i32 = 1


USUAL = Steps(2, 3)


@dataclass(frozen=True)
class Image:
    """A matrix in memory, and what its elements are multiplied by."""

    data: lw.Ptr[lw.f32]
    steps: Steps
    scale: lw.f16

    def at(self, row: Any, column: Any) -> Any:
        """Return an element."""
        return self.data[row * self.steps.row + column * self.steps.column] * self.scale.to(lw.f32)


@lw.kernel
def sum_rows(out: lw.Ptr[lw.f32], image: Image, sizes: (lw.i32, lw.i32)):  # type: ignore[syntax]  # types
    row, (rows, columns) = lw.thread_idx.x, sizes
    if row < rows:
        total = lw.f32(0.0)
        for column in lw.range(columns):
            total = total + image.at(row, column)
        out[row] = total


def run(image: Any, sizes: tuple[Any, Any], launch: Callable[..., None] = sum_rows[1, THREADS]) -> Any:
    out = np.zeros(THREADS, np.float32)
    launch(out, image, sizes)
    return out


def test_a_struct_is_one_parameter_and_its_fields_are_those_of_the_ptx() -> None:
    rng = np.random.default_rng()
    rows, columns = (int(size) for size in rng.integers(1, 30, 2))
    x = rng.integers(-8, 8, (rows, columns)).astype(np.float32)
    wanted = np.zeros(THREADS, np.float32)
    wanted[:rows] = 1.5 * x.sum(1)
    given = [
        Image(x.reshape(-1), Steps(columns), 1.5),
        (x.reshape(-1), (columns, 1), 1.5),
        Image(np.asfortranarray(x).reshape(-1, order="F"), Steps(1, rows), np.float16(1.5)),
    ]
    for image in given:
        assert np.array_equal(run(image, (rows, columns)), wanted)
    names = [parameter.name for parameter in sum_rows.module().entries["sum_rows"].parameters]
    assert names == [
        "out", "image_data", "image_steps_row", "image_steps_column", "image_scale", "sizes_0", "sizes_1",
    ]  # fmt: skip
    assert [parameter.name for parameter in sum_rows.signature] == ["out", "image", "sizes"]


def test_findings_name_the_field() -> None:
    x, out = np.zeros(8, np.float32), np.zeros(THREADS, np.float32)
    report = lw.check(sum_rows[1, THREADS], out, (x, (4, 1), 1.0), (3, 4))
    assert "image_data" in str(report) and "out of bounds" in str(report)


WRONG = {
    "sizes takes a tuple of 2, not 3": lambda image: (image, 3),
    r"sizes takes a tuple of 2, not \(3, 4, 5\)": lambda image: (image, (3, 4, 5)),
    r"sizes takes a tuple of 2, not Steps\(row=3, column=1\)": lambda image: (image, Steps(3)),
    r"image takes Image, or a tuple of 3 \(data, steps, scale\), not 7": lambda image: (7, (1, 1)),
    r"image.steps takes Steps, or a tuple of 2 \(row, column\), not \(1,\)": (
        lambda image: ((image[0], (1,), 1.0), (1, 1))
    ),
    "image.steps.row is lw.i32 and takes an integer, not float 1.5": (
        lambda image: ((image[0], (1.5, 1), 1.0), (1, 1))
    ),
    r"image.data is Ptr\[f32\] and takes arrays of dtype float32, not of float64": (
        lambda image: ((np.zeros(4), (1, 1), 1.0), (1, 1))
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_does_not_fit_is_named(said: str) -> None:
    given = WRONG[said]((np.zeros(4, np.float32), (1, 1), 1.0))
    with pytest.raises(lw.LanewiseError, match=f"sum_rows: {said}"):
        run(*given)


def kernel_of(kind: object) -> Kernel:
    """Return a kernel with a parameter of a kind."""

    def taking(x: Any, given: Any) -> None:
        x[0] = 1.0

    taking.__annotations__ = {"x": lw.Ptr[lw.f32], "given": kind}
    return lw.kernel(taking)


class Unreadable(NamedTuple):
    """A type that is nowhere."""

    size: nowhere  # type: ignore[name-defined]  # noqa: F821, that is the point


class OfPython(NamedTuple):
    """A field that kernels do not have."""

    size: int


REFUSED = {
    "fields of Unreadable cannot be read: name 'nowhere' is not defined": Unreadable,
    "parameter given.size: <class 'int'> is no type of the kernel language; write lw.i32": OfPython,
    "parameter given.1: a Constexpr is a parameter of the kernel, and no field": (lw.i32, lw.Constexpr),
    r"parameter given: \(4, 4\) is no type of the kernel language": (4, 4),
    "parameter given.0: 4 is no type of the kernel language": (4, lw.i32),
}


@pytest.mark.parametrize("said", REFUSED)
def test_types_that_are_none_are_refused(said: str) -> None:
    with pytest.raises(lw.LanewiseError, match=said):
        kernel_of(REFUSED[said]).ptx()


def test_two_fields_with_one_name_in_the_ptx_are_refused() -> None:
    def both(steps_row: Any, steps: Any) -> None: ...

    both.__annotations__ = {"steps_row": lw.i32, "steps": Steps}
    with pytest.raises(lw.LanewiseError, match="two parameters are steps_row in the PTX"):
        lw.kernel(both).ptx()


def test_fields_that_are_none_have_no_parameter() -> None:
    def scaled(x: Any, image: Any) -> None:
        if image.steps is None:  # decided while tracing
            x[lw.thread_idx.x] = image.data[lw.thread_idx.x] * 2.0

    scaled.__annotations__ = {"x": lw.Ptr[lw.f32], "image": Image(lw.Ptr[lw.f32], None, None)}
    kernel, x = lw.kernel(scaled), np.ones(THREADS, np.float32)
    out = np.zeros(THREADS, np.float32)
    kernel[1, THREADS](out, (x, None, None))
    assert (out == 2).all() and len(kernel.parameters) == 2
    with pytest.raises(lw.LanewiseError, match=r"image\.steps is None in this kernel, not \(1, 1\)"):
        kernel[1, THREADS](out, (x, (1, 1), None))


def test_structs_have_defaults_and_are_given_by_name() -> None:
    def filled(x: Any, by: Any = USUAL) -> None:
        x[lw.thread_idx.x] = by.row * 10 + by.column

    filled.__annotations__ = {"x": lw.Ptr[lw.i32], "by": Steps}
    kernel, x = lw.kernel(filled), np.zeros(THREADS, np.int32)
    kernel[1, THREADS](x)
    assert (x == 23).all()
    for steps, wanted in (((4, 5), 45), (Steps(6), 61), ((7, 8), 78)):
        kernel[1, THREADS](x, by=steps)
        assert (x == wanted).all()


def test_autotuned_kernels_take_structs() -> None:
    def filled(image: Any, EACH: Any) -> None:
        image[0][lw.thread_idx.x] += image[1] * EACH

    filled.__annotations__ = {"image": (lw.Ptr[lw.i32], lw.i32), "EACH": lw.Constexpr}
    tuned = lw.autotune({"EACH": (1, 2)})(lw.kernel(filled))
    x = np.zeros(THREADS, np.int32)
    tuned[1, THREADS]((x, 5))
    assert set(x) == {5 * tuned.best["EACH"]}  # once: trials are undone
