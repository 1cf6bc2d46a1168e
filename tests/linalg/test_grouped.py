"""Grouped products: experts of different sizes, empty ones among them, in one launch."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from lanewise.formats import bf16, f32
from lanewise.linalg import grouped_matmul
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.options import Options
from lanewise.linalg.planning.planner import chain_plan
from lanewise.linalg.rules import request_of
from linalg.hopper_products import operand, plan, product, some, sums_of
from linalg.kernels_on_cpu import by_kernels


@pytest.mark.parametrize(
    ("sizes", "n"), some([((70, 0, 3, 130, 0), 72), ((0, 64, 1), 71)], ((70, 0, 3, 0), 72))
)
def test_experts(sizes: tuple[int, ...], n: int) -> None:
    """Each expert's rows are multiplied by its own matrix; rows of nobody are left as they are."""
    k, gap = 72, 5
    rng = np.random.default_rng(4)
    ends = np.cumsum(sizes).astype(np.int32) + gap
    starts = (ends - np.array(sizes)).astype(np.int32)
    m = int(ends[-1]) + gap
    problem, pointers, _ = product(m, n, k, bf16, bf16, bf16, layout="NT")
    weights: Any = rng.normal(size=(len(sizes), n, k)).astype(bf16.dtype)
    pointers.b = weights
    pointers.starts, pointers.ends = starts, ends
    problem = replace(problem, experts=len(sizes), b=operand(pointers.b, True, True, bf16))
    configured, arguments, _ = hopper.launches(
        problem, plan((64, 64, 64), cluster=(1, 2) if n == 72 else (1, 1)), pointers, multiprocessors=4
    )[0]
    configured(*arguments)
    wanted = np.zeros((m, n), bf16.dtype)
    for expert, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end > start:
            sums = sums_of(pointers.a[start:end], np.ascontiguousarray(pointers.b[expert].T), bf16, bf16, f32)
            wanted[start:end] = sums.astype(bf16.dtype)
    assert np.array_equal(pointers.out, wanted)
    if EVERYTHING:
        assert lw.check(configured, *arguments, schedule="late").ok


@pytest.mark.parametrize(
    ("given", "taken", "m", "n", "rows", "cluster"),
    some(
        [
            ((70, 70, 73), (70, 70, 73), 90, 72, 64, (1, 1)),
            ((5, 3, 200, 90), (5, 5, 90, 90), 90, 71, 64, (1, 1)),
            ((-4, 64), (0, 64), 90, 64, 64, (1, 2)),
            ((190, 310), (190, 310), 520, 136, 128, (2, 1)),
            ((5, 270, 400, 520, 770), (5, 270, 400, 520, 770), 770, 72, 128, (2, 1)),
            ((5, 70, 400), (5, 70, 400), 770, 72, 128, (1, 2)),
        ],
        ((5, 3, 60), (5, 5, 60), 90, 72, 64, (1, 1)),
        ((190, 500), (190, 500), 520, 72, 128, (2, 1)),
    ),
)
def test_experts_that_follow_each_other(
    given: tuple[int, ...], taken: tuple[int, ...], m: int, n: int, rows: int, cluster: tuple[int, int]
) -> None:
    """Without starts, rows begin where those before them end; strange ends are moved, other rows cleared.

    With many rows, halves of tiles come last; a cluster of 2 × 1 splits the row of tiles that is left over.
    """
    k = 72
    rng = np.random.default_rng(5)
    problem, pointers, _ = product(m, n, k, bf16, bf16, bf16, layout="NT")
    weights: Any = rng.normal(size=(len(given), n, k)).astype(bf16.dtype)
    pointers.b, pointers.ends = weights, np.array(given, np.int32)
    pointers.out[...] = 7
    problem = replace(
        problem, experts=len(given), b=operand(pointers.b, True, True, bf16), consecutive=True,
        clears_rest=True,
    )  # fmt: skip
    configured, arguments, _ = hopper.launches(
        problem, plan((rows, 32 if rows > 64 else 64, 64), cluster=cluster), pointers, multiprocessors=4
    )[0]
    configured(*arguments)
    wanted = np.zeros((m, n), bf16.dtype)
    for expert, (start, end) in enumerate(zip((0, *taken), taken, strict=False)):
        if end > start:
            sums = sums_of(pointers.a[start:end], np.ascontiguousarray(pointers.b[expert].T), bf16, bf16, f32)
            wanted[start:end] = sums.astype(bf16.dtype)
    assert np.array_equal(pointers.out, wanted)
    if EVERYTHING:
        assert lw.check(configured, *arguments, schedule="late").ok


def test_out_may_not_lie_in_what_later_groups_read() -> None:
    """Results of the first group would be rows of the second, or the matrix of a later one."""
    memory, weights = np.ones((5, 16), np.float32), np.ones((4, 16, 16), np.float32)
    with pytest.raises(lw.LanewiseError, match="out overlaps a in memory"):
        lw.grouped_matmul(memory[:4], weights, [1, 2, 3, 4], out=memory[1:])
    with pytest.raises(lw.LanewiseError, match="out overlaps b in memory"):
        lw.grouped_matmul(memory[:4], weights, [1, 4, 4, 4], out=weights[3, :4])
    assert (memory == 1).all() and (weights == 1).all()  # nothing was written
    out = np.zeros((4, 32), np.float32)
    lw.grouped_matmul(memory[:4], weights, [1, 2, 3, 4], out=out[:, ::2])
    assert (out[:, ::2] == 16).all() and not out[:, 1::2].any()


def test_a_call_that_was_made_before_does_not_hide_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that require a gradient are no kind of call: the rules refuse them."""
    torch = pytest.importorskip("torch")
    tensors = [SimpleNamespace(is_cuda=True, requires_grad=grad, shape=(2, 2)) for grad in (False, True)]
    for tensor in tensors:
        tensor.stride, tensor.data_ptr, tensor.get_device = lambda: (2, 1), lambda: 256, lambda: 0
        tensor.dtype, tensor.is_neg = torch.float16, lambda: False
    monkeypatch.setattr(grouped_matmul, "plain_tensors", lambda: (SimpleNamespace,))
    plain, trained = tensors
    assert grouped_matmul._kind(plain, plain, [2]) is not None
    assert grouped_matmul._kind(trained, plain, [2]) is grouped_matmul._kind(plain, trained, [2]) is None


def test_sizes_in_place_of_offsets_are_noticed(recwarn: pytest.WarningsRecorder) -> None:
    a, b = np.ones((6, 16), np.float16), np.ones((3, 16, 8), np.float16)
    for offsets in ([2, 4, 6], [2, 4, 5], [0, 0, 6], [1, 1, 1]):
        lw.grouped_matmul(a, b, offsets)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"if they are sizes, pass np\.cumsum\(sizes\)") as said:
        result = lw.grouped_matmul(a, b, [2, 2, 2])
    assert said[0].filename == __file__ and not result[2:].any()


def test_a_bias_of_rows_is_that_of_each_groups_rows() -> None:
    rng = np.random.default_rng(8)
    a, b = (
        rng.standard_normal((20, 16)).astype(np.float16),
        rng.standard_normal((3, 16, 10)).astype(np.float16),
    )
    bias, ends = rng.standard_normal((20, 1)).astype(np.float32), [5, 6, 20]
    found = lw.grouped_matmul(a, b, ends, bias=bias, out_dtype="f32")
    plain = lw.grouped_matmul(a, b, ends, out_dtype="f32")
    assert (found == plain + bias).all()
    out = np.full((20, 10), -1, np.float16)
    for shape in ((5, 1), (3, 10), (20,)):
        with pytest.raises(
            lw.LanewiseError, match=r"it must be \(10,\), .* or \(20, 1\), a number for each row"
        ):
            lw.grouped_matmul(a, b, ends, bias=np.zeros(shape, np.float32), out=out)
    assert (out == -1).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("rows", [1, 150])
def test_f32_has_one_order_of_sums_for_groups_of_any_size(arch: str, rows: int) -> None:
    """Split f32 is added up in steps that depend on the family of the kernel."""
    rng = np.random.default_rng(np.random.SeedSequence())
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((150, 70), (1, 70, 45)))
    wanted = lw.grouped_matmul(a, b, [150], arch=arch)[:rows]
    problem = request_of(a[:rows], b[0], Options()).problem
    assert problem is not None
    fitted = chain_plan(problem, arch, fitted=True)
    found = by_kernels(a[:rows], b[0], arch, plan=fitted, launch_arch=arch)
    assert found.tobytes() == wanted.tobytes()
