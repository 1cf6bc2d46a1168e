"""Traced values are those of a plain run: stores make the outputs, and registers are what probes store.

A probe is the oracle for registers: PTX that is added to a kernel behind an instruction, which stores the
register when the thread has executed the instruction often enough; a plain launch runs it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from traces.traced import hgemm, hgemm_trace, matrices, reduction, written

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


def probed(text: str, probes: list[tuple[int, str, int]]) -> str:
    """Return a kernel that stores registers: for each probe a line of the PTX, a register and its bits.

    Probe n of a thread stores when the thread has executed the line as often as `targets[n, thread]` says.
    """
    lines = text.splitlines()
    for number, (line, register, bits) in enumerate(probes):
        kind = "pred" if bits == 8 else f"b{bits}"
        value = {"pred": "", "b16": "cvt.u64.u16 %probe_v, {r};", "b32": "cvt.u64.u32 %probe_v, {r};"}
        widen = value.get(kind, "mov.b64 %probe_v, {r};").format(r=f"%probe_x{bits}")
        move = f"mov.b{bits} %probe_x{bits}, {register};"
        if kind == "pred":
            widen, move = f"selp.u64 %probe_v, 1, 0, {register};", ""
        lines[line - 1] += (
            f" add.u32 %probe_n{number}, %probe_n{number}, 1;"
            f" ld.global.u32 %probe_t, [%probe_a+{number * 4096}];"
            f" setp.eq.u32 %probe_q, %probe_n{number}, %probe_t; {move} {widen}"
            f" @%probe_q st.global.u64 [%probe_o+{number * 8192}], %probe_v;"
        )
    found = "\n".join(lines)
    found = re.sub(r"\n\)", ",\n .param .u64 probe_out, .param .u64 probe_targets\n)", found, count=1)
    counters = " ".join(f".reg .u32 %probe_n{n}; mov.u32 %probe_n{n}, 0;" for n in range(len(probes)))
    prologue = (
        "{ .reg .u64 %probe_a, %probe_o, %probe_v, %probe_w, %probe_x64; .reg .u32 %probe_t, %probe_x32;"
        " .reg .b16 %probe_x16; .reg .pred %probe_q;"
        f" {counters} ld.param.u64 %probe_o, [probe_out]; ld.param.u64 %probe_a, [probe_targets];"
        " mov.u32 %probe_t, %tid.x; mul.wide.u32 %probe_w, %probe_t, 4; add.u64 %probe_a, %probe_a, %probe_w;"
        " mul.wide.u32 %probe_w, %probe_t, 8; add.u64 %probe_o, %probe_o, %probe_w;"
    )
    return found.replace("\n{", f"\n{prologue}", 1)


def check_probes(run: lw.traces.Trace, text: str, shape: Any, arguments: tuple[Any, ...], seed: int) -> int:
    """Hold registers of random steps against probes; return how many values were compared."""
    rng = np.random.default_rng(seed)
    by_line: dict[int, lw.traces.Step] = {}
    for number in rng.permutation(len(run)).tolist():
        step = run.at(number)
        if step.op.guard is None and step.written and step.line not in by_line:
            by_line[step.line] = step
        if len(by_line) == 16:
            break
    chosen, threads = list(by_line.values()), 1024
    probes = [(step.line, next(iter(step.written))) for step in chosen]
    targets = np.zeros((len(chosen), threads), np.uint32)
    for row, step in zip(targets, chosen, strict=True):
        for each in run.steps[: step.number + 1]:
            if each.line == step.line and each.warp == step.warp:
                row[32 * each.warp : 32 * each.warp + 32] += each.active
    with_bits = [
        (line, name, step.written[name].dtype.itemsize * 8)
        for (line, name), step in zip(probes, chosen, strict=True)
    ]
    out = np.zeros((len(chosen), threads), np.uint64)
    module = lw.load(probed(text, with_bits))
    (kernel,) = module.entries
    module[kernel][shape](*arguments, out, targets, arch=run.arch)
    compared = 0
    for row, step, (_, name, bits) in zip(out, chosen, with_bits, strict=True):
        lanes = np.flatnonzero(step.active)
        held = step.registers[name]
        raw = np.ascontiguousarray(held).view(f"uint{bits}")[lanes].astype(np.uint64)
        assert np.array_equal(step.written[name][lanes], held[lanes]) or np.isnan(held[lanes]).any()
        assert np.array_equal(raw, row[32 * step.warp + lanes]), (step, raw, row[32 * step.warp + lanes])
        compared += len(lanes)
    return compared


@pytest.mark.parametrize("seed", range(3))
def test_registers_of_a_product_are_what_probes_store(seed: int) -> None:
    arrays = matrices(16, 8, 64, seed)
    run = hgemm_trace([each.copy() for each in arrays], arch="sm_90")
    a, b, c = arrays
    assert check_probes(run, hgemm.ptx("sm_90"), ((1, 1), 32), (a, b, c, 8, 64), seed) > 300


@pytest.mark.parametrize("seed", range(3))
def test_registers_of_diverging_warps_are_what_probes_store(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(301).astype(np.float32)
    y = np.zeros(1, np.float32)
    run = lw.trace(reduction[1, 128], x, y, 301, arch="sm_80")
    expected = np.where(x > 0, 2 * x, -x).sum(dtype=np.float64)
    assert abs(float(y[0]) - expected) < 1e-3 * expected
    assert check_probes(run, reduction.ptx("sm_80"), (1, 128), (x, y.copy(), 301), seed) > 100


# what one step says ---------------------------------------------------------------------------------------


def test_a_step_says_who_where_and_what() -> None:
    arrays = matrices()
    run = hgemm_trace(arrays, blocks=[(1, 1)])
    step = run.first(lambda step: step.op.opcode == "mma")
    assert step is not None
    assert (step.block, step.warp) == ((1, 1, 0), 0) and step.active.all() and step.is_complete
    assert step.source is not None and step.source.endswith("traced.py:28")
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
