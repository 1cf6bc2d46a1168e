"""The warpgroup family on the CPU machine: the bits of its instruction for any shape, type and layout."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, sampled
from lanewise.formats import bf16, f16, f32
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.kernels.hopper.limits import require_possible
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import traits_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import problem_of_sizes
from linalg.hopper_products import plan, product, some
from linalg.warpgroup_cases import CASES, rounded


@sampled(6)
@pytest.mark.parametrize("columns", [256, 224, 208, 200, 176, 160, 144, 112, 96])
@pytest.mark.parametrize("rows", [128, 192, 256])
def test_no_subtile_overwrites_what_tma_has_not_read(rows: int, columns: int) -> None:
    """Each subtile's buffer was read before: so many are unread, at most, when the next one is written."""
    operand = Operand(bf16, True, 4096)
    problem = Problem(4096, 4096, 4096, operand, operand, operand, f32)
    for stages in (3, 4, 5):
        traits = traits_of(problem, Plan("warpgroup", "sm_90a", (rows, columns, 64), stages))
        try:
            require_possible(traits)
        except lw.LanewiseError:
            continue
        memory = SharedMemory(traits)
        last_use: dict[int, int] = {}
        read = -1  # subtiles up to this one have been read
        for place in range(3 * memory.subtiles):  # of three tiles
            subtile = place % memory.subtiles
            if memory.unread(subtile - 1) is None:
                read = place - 1
            assert last_use.get(subtile % memory.buffers, -1) <= read
            last_use[subtile % memory.buffers] = place
            unread = memory.unread(subtile)
            if unread is not None:
                read = max(read, place - 1 - unread)


@sampled(6)
@pytest.mark.parametrize(
    "name",
    some(CASES, "small tiles in a cluster", "batch", "s8", "turns of different width", "stored by warps"),
)
def test_bits_are_those_of_the_instruction(name: str) -> None:
    """A product has wgmma's sums in order of K, rounded once; the kernel is clean under every schedule."""
    sizes, chosen, blocks = CASES[name]
    problem, pointers, sums = product(**sizes)
    configured, arguments, _ = hopper.launches(problem, chosen, pointers, multiprocessors=blocks)[0]
    configured(*arguments)
    assert np.array_equal(pointers.out, rounded(sums, pointers.out.dtype))
    for schedule in ("in order", "late", 7) if EVERYTHING else ("late",):
        report = lw.check(configured, *arguments, schedule=schedule)
        assert report.ok, report


@pytest.mark.parametrize(
    ("tile", "more"),
    [((64, 64, 64), {"skew": 2}), ((128, 64, 64), {"skew": 5}), ((128, 64, 64), {"skew": -1}),
     ((64, 64, 64), {"skew": 2, "schedule": "pingpong"})],
)  # fmt: skip
def test_skew_is_for_warpgroups_that_share_a_tile(tile: tuple[int, int, int], more: Any) -> None:
    problem, pointers, _ = product(300, 136, 400, bf16, bf16, bf16, layout="NT")
    with pytest.raises(lw.LanewiseError, match="skew="):
        hopper.launches(problem, plan(tile, **more), pointers, multiprocessors=2)


def test_launch_is_the_call() -> None:
    """`launch` computes what a prepared kernel does."""
    sizes, chosen, _ = CASES["odd result"]
    problem, pointers, sums = product(**sizes)
    run(hopper.launches(problem, replace(chosen, group=1), pointers))
    assert np.array_equal(pointers.out, sums.astype(pointers.out.dtype))


def test_rows_of_operands_may_end_within_a_word() -> None:
    """TMA fills in zeros from the middle of a word on: the check once took that for a second copy there."""
    problem, pointers, sums = product(70, 96, 77, f16, f16, f16, layout="NN")
    wide = np.zeros((70, 80), np.float16)
    wide[:, :77] = pointers.a
    pointers.a = wide[:, :77]
    problem = replace(problem, a=replace(problem.a, leading=80))
    configured, arguments, _ = hopper.launches(problem, plan((64, 64, 64)), pointers)[0]
    report = lw.check(configured, *arguments, schedule="late")
    assert report.ok, report
    assert np.array_equal(pointers.out, sums.astype(np.float16))


@pytest.mark.parametrize(
    ("sizes", "tile", "more", "hints"),
    [
        ((100, 14336, 4096, "bf16"), (128, 128, 64), {}, "-f"),  # 117 MB, read once
        ((300, 14336, 4096, "bf16"), (128, 128, 64), {}, "--"),  # three rows of tiles read it
        ((100, 28672, 8192, "bf16"), (128, 128, 64), {}, "--"),  # 470 MB
        ((100, 9000, 5000, "bf16"), (128, 128, 64), {}, "--"),  # 90 MB, lines that L2 reads ahead
        ((100, 12000, 5000, "bf16"), (128, 128, 64), {}, "--"),  # 120 MB
        ((14336, 8, 4096, "bf16"), (128, 8, 64), {}, "ff"),  # B is little
        ((300, 300, 16384, "bf16"), (128, 128, 64), {"groups": 4, "gather": True}, "ff"),
        ((14336, 64, 4096, "f32"), (128, 64, 64), {"a_in_registers": True, "copy_b": True}, "f-"),  # 235 MB
    ],
)  # fmt: skip
def test_what_is_read_once_is_given_up_first(sizes: Any, tile: Any, more: Any, hints: str) -> None:
    """L2 is told of operands that one tile reads, if they are no larger than what it pays for."""
    problem = problem_of_sizes(*sizes, layout="nt")
    assert hopper.cache_hints(traits_of(problem, plan(tile, **more)), problem) == hints


def test_an_operand_of_all_of_a_batch_is_read_again() -> None:
    problem = problem_of_sizes(100, 4096, 4096, "bf16", layout="nt", batch=3)
    shared = replace(problem, b=replace(problem.b, batch_stride=0))
    chosen = plan((128, 128, 64))
    assert hopper.cache_hints(traits_of(problem, chosen), problem) == "-f"
    assert hopper.cache_hints(traits_of(shared, chosen), shared) == "--"
