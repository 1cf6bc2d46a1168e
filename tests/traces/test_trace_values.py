"""Traced values are those of a plain run: stores make the outputs, and registers are what probes store.

A probe is the oracle for registers (`probes.py`): a plain launch stores them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from nvrtc import need_nvrtc
from traces.probes import CASES, Case, chosen_steps, compare_probes, run_probed
from traces.traced import hgemm, hgemm_trace, matrices, written

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gemm"))

RUNGS = ("rung1_one_warp", "rung2_wmma", "rung3_block_tile", "rung5_pipelined", "rung8_tiled")


def test_the_stores_of_a_trace_make_the_output_of_a_plain_run() -> None:
    arrays = matrices()
    a, b, c = (each.copy() for each in arrays)
    hgemm[(2, 2), 32](a, b, c, 16, 48)
    run = hgemm_trace(arrays, blocks="all")
    assert np.array_equal(arrays[2].view(np.uint32), c.view(np.uint32))
    assert np.array_equal(written(run, "C").view(np.uint32), c.view(np.uint32))
    assert run.is_complete and not run.findings and not run.fault


@sampled(4)
@pytest.mark.parametrize("name", RUNGS)
def test_the_stores_of_the_ladder_make_its_output(name: str) -> None:
    from importlib import import_module

    a, b, _ = matrices(128, 128, 64, seed=1)
    c = np.zeros((128, 128), np.float16)
    configured, arguments, constants = import_module(name).prepare(a, b, c)
    # An A100 has not the shared memory that rung 8 asks for.
    run = lw.trace(configured, *arguments, **constants, blocks="all", arch="sm_90")
    assert run.is_complete, run
    assert np.array_equal(written(run, "C").view(np.uint16), c.view(np.uint16))
    assert np.abs(c.astype(float) - a.astype(float) @ b.astype(float)).max() < 0.1


# probes ---------------------------------------------------------------------------------------------------


def check_probes(case: Case, seed: int) -> int:
    """Hold registers of random steps against probes; return how many values were compared."""
    run = Case(case.configured, tuple(map(copied, case.arguments)), case.arch).trace()
    probes = chosen_steps(run, seed)
    for step, name, _ in probes:
        lanes, held = np.flatnonzero(step.active), step.registers[name]
        assert np.array_equal(step.written[name][lanes], held[lanes]) or np.isnan(held[lanes]).any()
    return compare_probes(probes, run_probed(case, run, probes, arch=case.arch))


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


@sampled(4)
@pytest.mark.parametrize(
    "name, seeds", [("product", 3), ("reduction", 3), ("cuda", 1), ("ptx", 1), ("hopper", 2)]
)
def test_registers_are_what_probes_store(name: str, seeds: int) -> None:
    if name == "cuda":
        need_nvrtc()
    for seed in range(seeds):
        assert check_probes(CASES[name](), seed) > 100


# what one step says ---------------------------------------------------------------------------------------


def test_a_step_says_who_where_and_what() -> None:
    arrays = matrices()
    run = hgemm_trace(arrays, blocks=[(1, 1)])
    step = run.first(lambda step: step.op.opcode == "mma")
    assert step is not None
    assert (step.block, step.warp) == ((1, 1, 0), 0) and step.active.all() and step.is_complete
    assert step.source is not None and step.source.endswith("traced.py:48")
    assert step.source_text == "acc = mma(a, b, acc)"
    assert run.at(step.number).text == step.text and run.at(-1).op.opcode == "ret"
    assert [each.number for each in run.steps[3:6]] == [3, 4, 5]


def test_memory_is_told_with_elements_and_values() -> None:
    arrays = matrices()
    run = hgemm_trace(arrays)
    load = run.first(lambda step: step.memory and step.memory[0].space == "global")
    assert load is not None
    (access,) = load.memory
    assert access.kind == "read" and access.elements[:3] == ["A[0, 0]", "A[0, 8]", "A[1, 0]"]
    assert np.array_equal(access.values[2].view(np.float16), arrays[0][1, :8])
    store = run.at(load.number + 1).memory[0]
    assert store.kind == "write" and store.space == "shared"
    assert store.elements[:3] == ["As[0, 0]", "As[0, 8]", "As[1, 0]"]


def test_lanes_that_a_guard_leaves_out_are_not_active() -> None:
    run = hgemm_trace(matrices())
    store = run.first(
        lambda step: step.op.opcode == "st" and "Bs" in "".join(e for a in step.memory for e in a.elements)
    )
    assert store is not None and store.active.tolist() == [True] * 16 + [False] * 16
    assert store.memory[0].rows.tolist() == list(range(16))


def test_lanes_that_a_branch_sends_around_a_store_are_not_active() -> None:
    @lw.kernel
    def some(X: lw.Ptr[lw.i32]):
        i = lw.thread_idx.x
        where = X + i
        if i < 5:
            where.store(i + 7)

    x = np.zeros(32, np.int32)
    run = lw.trace(some[1, 32], x)
    branch, store = (run.first(lambda step, name=name: step.op.opcode == name) for name in ("bra", "st"))
    assert branch is not None and store is not None and branch.number < store.number
    assert store.active.sum() == 5 and branch.active.sum() == 27 and branch.lanes.all()
    assert store.memory[0].rows.tolist() == [0, 1, 2, 3, 4] and x.sum() == 45
    assert run.writer("X[5]") is None


def test_atomics_tell_the_values_before_and_after() -> None:
    @lw.kernel
    def count(X: lw.Ptr[lw.u32]):
        old = lw.atomic_add(X, lw.u32(1))
        X[old + 1] = old

    x = np.zeros(40, np.uint32)
    run = lw.trace(count[1, 32], x)
    step = run.first(lambda step: step.op.opcode in ("atom", "red"))
    assert step is not None and step.memory[0].before is not None
    assert step.memory[0].kind == "atomic" and step.memory[0].before[0, 0] == 0
    assert sorted(step.registers["old"].tolist()) == list(range(32)) and x[0] == 32
