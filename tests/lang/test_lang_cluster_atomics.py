"""Atomics on the shared memory of another block of the cluster, held against NumPy and ptxas."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from ptxas import assemble, find_ptxas

#: Operations by name: what a word becomes if all lanes of two blocks take part, lane l of block b with l + b.
LANES = np.add.outer(np.arange(2), np.arange(32)).ravel()
OPERATIONS: dict[str, tuple[Any, int, Any]] = {
    "add": (lw.i32, 5, 5 + LANES.sum()),
    "min": (lw.i32, 7, 0),
    "max": (lw.u32, 7, 32),
    "and": (lw.u32, 0xFF, 0),
    "or": (lw.u32, 1 << 20, 1 << 20 | 63),
    "xor": (lw.i32, 3, 3 ^ int(np.bitwise_xor.reduce(LANES))),
}
FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


def of_cluster(operation: Any, dtype: Any, initial: Any, scope: str, order: str) -> lw.Kernel:
    """A kernel in whose clusters both blocks change a word of the second, by its address in the cluster."""

    @lw.kernel(cluster=2)
    def kernel(out: lw.Ptr[dtype]):
        word = lw.shared(dtype, 1)
        lane = lw.thread_idx.x
        if lane == 0:
            word[0] = initial
        lw.cluster.sync()
        operation(lw.cluster.map(word, 1), (lane + lw.cluster.rank()).to(dtype), scope=scope, order=order)
        lw.cluster.sync()
        if lane == 0:
            out[lw.block_idx.x] = word[0]

    return kernel


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_blocks_change_a_word_of_the_second(name: str) -> None:
    dtype, initial, wanted = OPERATIONS[name]
    scope, order = ("cluster", "acq_rel") if name == "add" else ("gpu", "relaxed")
    kernel = of_cluster(getattr(lw, f"atomic_{name}"), dtype, initial, scope, order)
    out = np.zeros(4, dtype.dtype)
    kernel[4, 32](out)
    assert out.tolist() == [initial, wanted] * 2
    report = lw.check(kernel[4, 32], out)
    assert not report.findings, report
    text = kernel.ptx()
    assert f"atom.{order}.{scope}.shared::cluster.{name}" in text
    assert find_ptxas() is None or assemble(text, "sm_90") == []


@pytest.mark.parametrize("name", ["min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", [lw.i64, lw.u64], ids=["i64", "u64"])
def test_operations_that_a_gpu_would_tear_are_refused(name: str, dtype: Any) -> None:
    """An H200 kept 17 of atom.shared::cluster.min.u64 with 1 to 32: the SASS has LD.E.64 and ST.E.64."""
    kernel = of_cluster(getattr(lw, f"atomic_{name}"), dtype, 7, "cluster", "acq_rel")
    with pytest.raises(lw.LanewiseError, match="loses updates"):
        kernel.ptx()


@pytest.mark.parametrize("name", FLOATS)
def test_sums_of_floats(name: str) -> None:
    kernel = of_cluster(lw.atomic_add, getattr(lw, name), 0.0, "gpu", "relaxed")
    out = np.zeros(2, FLOATS[name])
    kernel[2, 32](out)
    assert out.tolist() == [0, LANES.sum()]
    assert find_ptxas() is None or assemble(kernel.ptx(), "sm_90") == []


def test_counters_exchanges_and_locks() -> None:
    @lw.kernel(cluster=2)
    def kernel(out: lw.Ptr[lw.u32]):
        words = lw.shared(lw.u32, 4)
        lane, rank = lw.thread_idx.x, lw.cluster.rank()
        if lane < 4:
            words[lane] = 0
        lw.cluster.sync()
        theirs = lw.cluster.map(words, rank ^ 1)
        lw.atomic_inc(theirs, 9)  # 32 times: 0 to 9, thrice, then 2
        lw.atomic_dec(theirs + 1, 4)  # 32 times, from 0: 4 to 0, six times, then 4 and 3
        if lane == 0:
            out[rank * 6 + 4] = lw.atomic_exch(theirs + 2, (rank + 7).to(lw.u32))
            out[rank * 6 + 5] = lw.atomic_cas(theirs + 3, 0, 11)
            lw.atomic_cas(theirs + 3, 0, 12)
        lw.cluster.sync()
        if lane < 4:
            out[rank * 6 + lane] = words[lane]

    out = np.full(12, 99, np.uint32)
    kernel[2, 32](out)
    assert out.reshape(2, 6).tolist() == [[2, 3, 8, 11, 0, 0], [2, 3, 7, 11, 0, 0]]
    assert find_ptxas() is None or assemble(kernel.ptx(), "sm_90") == []


def test_scopes_and_orders_have_names() -> None:
    for keywords, says in (
        ({"scope": "warp"}, "the scope of lw.atomic_add is block, cluster, gpu, system, not 'warp'"),
        ({"order": "seq_cst"}, "the order of lw.atomic_add is relaxed, acquire, release, acq_rel, not"),
    ):

        @lw.kernel
        def kernel(out: lw.Ptr[lw.u32]):
            lw.atomic_add(out, 1, **keywords)  # noqa: B023  # traced within the loop

        with pytest.raises(lw.KernelError, match=says):
            kernel.ptx()
