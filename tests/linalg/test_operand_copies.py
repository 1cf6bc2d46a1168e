"""Copies of operands for TMA and wgmma: every element in its place, zeros behind the rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.formats import FORMATS, bf16, e4m3, f32, tf32
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.copies import kernels, launches
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.operand_copies import needs_copy
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import request_of
from linalg.hopper_products import plan, product, some
from linalg.kernels_on_cpu import launches_of

#: Rows, columns, leading dimension and matrices: short lines, one line, a long one, fewer than 80 bytes.
SHAPES = ((37, 75, 81, 1), (5, 130, 131, 3), (1, 2309, 2309, 1), (3, 5, 7, 1), (2, 3, 3, 1), (67, 9, 64, 2))


def copy_of(array: Any, fmt: Any, precision: str = "", k_major: bool = True) -> tuple[Any, Any, Any]:
    """Return the copy of an array (matrices × lines × length), its arguments, and its result in memory."""
    steps = [each // array.itemsize for each in array.strides]
    matrices, lines, length = array.shape
    aligned = array.ctypes.data | steps[1] * array.itemsize | 16 | (steps[0] * array.itemsize)
    own = Operand(fmt, k_major, steps[1], steps[0] if matrices > 1 else 0, aligned & -aligned)
    rows, k = (lines, length) if k_major else (length, lines)
    problem = Problem(rows, 1, k, own, own, own, f32, matrices, precision=precision)
    copy = launches.Copy(own, rows, problem)
    workspace = np.full(copy.bytes + 128, 7, np.uint8)
    workspace = workspace[-lw.address(workspace) % 128 :]
    target = copy.view(workspace, 0, array if matrices > 1 else array[0])
    return copy, copy.arguments(array if matrices > 1 else array[0], target), workspace[: copy.bytes]


def random_lines(shape: tuple[int, int, int, int], dtype: Any, ahead: int) -> Any:
    """Random lines in a wider array, a few elements behind an aligned address."""
    rows, columns, leading, matrices = shape
    rng = np.random.default_rng(ahead)
    base = np.zeros(64 + matrices * rows * leading, dtype)
    first = -base.ctypes.data % 16 // base.itemsize + ahead
    numbers = rng.standard_normal(len(base)).astype(np.float32)
    base[...] = numbers if dtype == np.float32 else rng.integers(0, 256, len(base))
    found = base[first : first + matrices * rows * leading].reshape(matrices, rows, leading)
    return found[:, :, :columns]


@sampled(12)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ahead", some(range(8), 1, 5))
def test_realigned_copies(shape: tuple[int, int, int, int], ahead: int) -> None:
    """Lines that begin anywhere become lines at multiples of 16 bytes, with zeros behind them."""
    for fmt, dtype in some([(bf16, np.uint16), (e4m3, np.uint8)], (bf16, np.uint16)):
        source = random_lines(shape, dtype, ahead)
        copy, arguments, found = copy_of(source, fmt)
        run([launches.copy_launch([(copy, arguments)])])
        lines = found.view(dtype).reshape(len(source), source.shape[1], copy.padded)
        assert np.array_equal(lines[:, :, : source.shape[2]], source)
        assert not lines[:, :, source.shape[2] :].any()


@sampled(4)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", some(SHAPES, SHAPES[0], SHAPES[-1]))
def test_copies_in_planes(shape: tuple[int, int, int, int], transposed: bool) -> None:
    """f32 becomes three planes of bf16 whose sum it is, as it lies or transposed."""
    for ahead in (0, 3):
        source = random_lines(shape, np.float32, ahead)
        copy, arguments, found = copy_of(source, f32, "f32", not transposed)
        run([launches.copy_launch([(copy, arguments)])])
        planes = found.view(bf16.dtype).reshape(len(source), 3, copy.new_lines, copy.padded)
        wanted = source.swapaxes(1, 2) if transposed else source
        for plane, part in enumerate(split(np.ascontiguousarray(wanted))):
            assert np.array_equal(planes[:, plane, :, : wanted.shape[2]], part)
        assert not planes[..., wanted.shape[2] :].any()


@sampled(2)
@pytest.mark.parametrize("size", some([1, 4], 1))
def test_transposed_copies(size: int) -> None:
    """A matrix becomes its transpose, with zeros behind its rows."""
    fmt, dtype, precision = {1: (e4m3, np.uint8, ""), 4: (f32, np.uint32, "tf32")}[size]
    for ahead, shape in ((1, (37, 75, 81, 2)), (4, (37, 75, 84, 2)), (0, (150, 133, 136, 1))):
        source = random_lines(shape, dtype, ahead)
        copy, arguments, found = copy_of(source, fmt, precision, k_major=False)
        run([launches.copy_launch([(copy, arguments)])])
        rows, columns = source.shape[1:]
        lines = found.view(dtype).reshape(len(source), columns, copy.padded)
        assert np.array_equal(lines[:, :, :rows], source.swapaxes(1, 2)) and not lines[:, :, rows:].any()


def test_both_operands_in_one_launch() -> None:
    """One launch makes two copies of different kinds, and is clean under the checker."""
    plain, turned = random_lines((37, 75, 81, 1), np.uint8, 3), random_lines((70, 33, 33, 1), np.uint8, 1)
    copies = [copy_of(plain, e4m3), copy_of(turned, e4m3, k_major=False)]
    jobs = [(copy, arguments) for copy, arguments, _ in copies]
    run([launches.copy_launch(jobs)])
    (one, _, first), (other, _, second) = copies
    assert np.array_equal(first.reshape(37, one.padded)[:, :75], plain[0])
    assert np.array_equal(second.reshape(33, other.padded)[:, :70], turned[0].T)
    kernel = kernels.copying(one.kind, other.kind)
    configured = kernel[one.blocks + other.blocks, kernels.THREADS]
    assert lw.check(configured, jobs[0][1], jobs[1][1], one.blocks).ok


def test_many_chunks_are_counted_with_64_bits() -> None:
    """The kernel for arrays of more than 2³¹ chunks gives the same."""
    source = random_lines((9, 600, 601, 1), np.uint16, 1)
    copy, arguments, found = copy_of(source, bf16)
    kernels.copying(copy.kind._replace(wide=True))[copy.blocks, kernels.THREADS](arguments)
    assert np.array_equal(found.view(np.uint16).reshape(9, copy.padded)[:, :600], source[0])


@sampled(2)
@pytest.mark.parametrize(
    ("dtype", "layout", "out"),
    some(
        [(bf16, "NN", bf16), (bf16, "TT", bf16), (e4m3, "TN", f32), (tf32, "TN", f32)],
        (e4m3, "TN", f32),
    ),
)
def test_products_of_copies(dtype: Any, layout: str, out: Any) -> None:
    """A product of odd sizes by way of copies has the same bits."""
    m, n, k = 67, 61, 77
    problem, pointers, sums = product(m, n, k, dtype, dtype, out, layout=layout)
    chosen = replace(plan((64, 64, 32 * 32 // FORMATS[dtype.name].bits)), copy_a=True, copy_b=True)
    if dtype is e4m3:
        chosen = replace(chosen, tile=(64, 64, 128))
    if dtype is bf16:
        chosen = replace(chosen, tile=(64, 64, 64))
    if dtype is tf32:
        chosen = replace(chosen, tile=(64, 64, 32))
    assert needs_copy(problem.a, problem.precision) and needs_copy(problem.b, problem.precision)
    pointers.workspace = np.zeros(hopper.workspace_bytes(problem, chosen) + 128, np.uint8)
    start = -lw.address(pointers.workspace) % 128 if hasattr(lw, "address") else 0
    pointers.workspace = pointers.workspace[start:]
    run(hopper.launches(problem, chosen, pointers))
    assert np.array_equal(pointers.out, sums.astype(pointers.out.dtype))


@pytest.mark.parametrize("layout", some(["NN", "TT"], "TT"))
def test_f32_by_split_products(layout: str) -> None:
    """Six products of bf16 parts, promoted after each 64 of K, are nearly exact."""
    m, n, k = 70, 68, 200
    problem, pointers, _ = product(m, n, k, tf32, tf32, f32, layout=layout)
    problem = replace(problem, precision="f32")
    chosen = replace(plan((64, 64, 64), stages=2), copy_a=True, copy_b=True)
    pointers.workspace = np.zeros(hopper.workspace_bytes(problem, chosen) + 128, np.uint8)
    pointers.workspace = pointers.workspace[-lw.address(pointers.workspace) % 128 :]
    run(hopper.launches(problem, chosen, pointers))
    mma = lw.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")
    parts_a, parts_b = split(pointers.a), split(pointers.b.T)
    total = np.zeros((m, n), np.float32)
    for first in range(0, k, 64):
        at = slice(first, first + 64)
        order = ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))
        left = [np.pad(parts_a[i][:, at], ((0, 0), (0, 64 - parts_a[i][:, at].shape[1]))) for i, _ in order]
        right = [np.pad(parts_b[j][at], ((0, 64 - parts_b[j][at].shape[0]), (0, 0))) for _, j in order]
        total = total + mma.gemm(np.concatenate(left, 1), np.concatenate(right, 0), arch="sm_90a")
    assert np.array_equal(pointers.out, total)
    exact = pointers.a.astype(np.float64) @ pointers.b.T.astype(np.float64)
    assert np.abs(pointers.out - exact).max() < 1e-6 * np.abs(exact).max()


def split(values: Any) -> list[Any]:
    """An f32 array as three of bf16: towards zero first, then to nearest."""
    high = (values.view(np.uint32) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    middle = (values - high).astype(bf16.dtype)
    low = (values - high - middle.astype(np.float32)).astype(bf16.dtype)
    return [high.astype(bf16.dtype), middle, low]


@sampled(2)
@pytest.mark.parametrize("shared", some(["a", "b", "turned"], "a", "turned"))
def test_f32_in_batches_and_turned(shared: str) -> None:
    """One matrix for the whole batch, or the transpose computed: the bits are those of the plan."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal((1 if shared == "a" else 2, 70, 100)).astype(np.float32)
    b = rng.standard_normal((1 if shared != "a" else 2, 100, 36)).astype(np.float32)
    if shared == "turned":
        b = b.repeat(2, 0)
    request = request_of(a, b, Options())
    assert request.problem is not None
    chosen = replace(plan((64, 40, 64), stages=2, swap=shared == "turned"), copy_a=True, copy_b=True)
    out = np.zeros((2, 70, 36), np.float32)
    workspace = np.zeros(hopper.workspace_bytes(request.problem, chosen) + 128, np.uint8)
    workspace = workspace[-lw.address(workspace) % 128 :]
    left, right = (np.broadcast_to(each, (2, *each.shape[1:])) for each in (a, b))
    result: Any = out
    if request.problem.batch == 1:  # b is the same for all: the rows of the batch are those of one product
        left, right, result = left.reshape(-1, 100), right[0], out.reshape(-1, 36)
    run(
        hopper.launches(
            request.problem, chosen, Pointers(left, right.swapaxes(-1, -2), result, workspace=workspace)
        )
    )
    assert out.tobytes() == lw.matmul(a, b, plan=chosen).tobytes()


@sampled(2)
@pytest.mark.parametrize(
    ("shared", "layout", "more"),
    [
        ("a", "n", {}), ("a", "t", {}), ("b", "n", {}), ("b", "t", {}),
        ("b", "n", {"a_in_registers": True, "copy_a": False}),
        ("a", "n", {"a_in_registers": True, "copy_b": False, "swap": True}),
    ],
)  # fmt: skip
def test_an_operand_that_a_batch_shares(shared: str, layout: str, more: dict[str, Any]) -> None:
    """It is copied once; the copy is written as one matrix and read as many."""
    rng, batch = np.random.default_rng(7), 3

    def matrices(name: str, rows: int, columns: int) -> Any:
        size = (columns, rows) if layout == "t" else (rows, columns)
        made = rng.standard_normal(size if name == shared else (batch, *size)).astype(np.float16)
        made = made.swapaxes(-1, -2) if layout == "t" else made
        return np.broadcast_to(made, (batch, rows, columns))

    a, b = matrices("a", 70, 71), matrices("b", 71, 33)
    chosen = Plan("warpgroup", "sm_90a", (64, 64, 64), 2, **{"copy_a": True, "copy_b": True, **more})
    *made, result = launches_of(a, b, plan=chosen)
    for kernel, arguments, _ in made:
        report = lw.check(kernel, *arguments, arch="sm_90a")
        assert not report.findings, report.findings[0]
    assert np.array_equal(result, lw.matmul(a, b, plan=chosen))
