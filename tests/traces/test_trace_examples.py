"""The examples are traced: what the last stores leave in memory is what the arrays hold afterwards."""

import os
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.launch import watched
from lanewise.ptx import ToolMissing
from lanewise.ptx.tensor_maps import TensorMap
from nvrtc import need_nvrtc
from traces.probes import CASES, Case, example
from traces.traced import written

EVERYTHING = bool(os.environ.get("LANEWISE_EVERYTHING"))
RNG = np.random.default_rng(0)


def random(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def sparse_gemm(module: Any) -> None:
    """Launch a product with a matrix of which each pair of four is zero."""
    a, b = random(16, 64, dtype=np.float16), random(64, 8, dtype=np.float16)
    for row in a.reshape(-1, 4):
        row[RNG.permutation(4)[:2]] = 0
    values, metadata = module.pack(a)
    module.sparse_gemm[(1, 1), 32](values, metadata, b, np.zeros((16, 8), np.float32), 8, 64, arch="sm_90")


def block_scaled_gemm(module: Any) -> None:
    """Launch a product of matrices with a scale for each group of 128 columns."""
    (a, scale_a), (bt, scale_b) = (module.quantized(random(each, 128)) for each in (100, 50))
    module.launch(a, bt, scale_a, scale_b, np.zeros((100, 50), np.float32), arch="sm_90")


def attention(module: Any) -> None:
    """Launch attention over one head of 64 keys."""
    q, k, v = (random(1, 64, 64, dtype=lw.bf16.dtype) for _ in range(3))
    module.launch(q, k, v, np.zeros_like(q), arch="sm_90")


def attention_hopper(module: Any) -> None:
    """Launch attention over one head of 128 keys, by TMA and wgmma."""
    q, k, v = (random(1, 128, 64, dtype=lw.bf16.dtype) for _ in range(3))
    configured, arguments = module.prepare(q, k, v, np.zeros_like(q))
    configured(*arguments, arch="sm_90a")


#: Further examples with a small launch of each.
MORE: dict[str, Any] = {
    "softmax": lambda module: module.launch(random(3, 300), np.zeros((3, 300), np.float32), arch="sm_90"),
    "rms_norm": lambda module: module.launch(
        random(2, 1544, dtype=lw.bf16.dtype), random(1544, dtype=lw.bf16.dtype),
        np.zeros((2, 1544), lw.bf16.dtype), arch="sm_90",
    ),
    "bias_gelu": lambda module: module.launch(
        random(3, 264, dtype=np.float16), random(264, dtype=np.float16), np.zeros((3, 264), np.float16),
        arch="sm_90",
    ),
    "sparse_gemm": sparse_gemm,
    "block_scaled_gemm": block_scaled_gemm,
    "attention": attention,
    "attention_hopper": attention_hopper,
}  # fmt: skip


def check(configured: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Trace a launch of all its blocks, and hold its stores against the arrays that it changed."""
    arrays = [each.array if isinstance(each, TensorMap) else each for each in arguments]
    before = {id(each): each.copy() for each in arrays if isinstance(each, np.ndarray)}
    run = lw.trace(configured, *arguments, **options, blocks="all")
    assert run.is_complete and not run.fault
    changed = [each for each in run.arrays if not np.array_equal(each.array, before[id(each.array)])]
    assert changed
    for each in changed:
        stored, there = (x.reshape(-1).view(np.uint8) for x in (written(run, each.name), each.array))
        was = before[id(each.array)].reshape(-1).view(np.uint8)
        assert np.array_equal(np.where(stored == 0, there, stored), there), each
        # Everything that is not as it was before was stored.
        assert not ((stored == 0) & (there != was) & (there != 0)).any(), each


@pytest.mark.parametrize("name", CASES if EVERYTHING else ("product", "cuda", "ptx", "hopper", "transpose"))
def test_the_last_stores_of_a_kernel_are_its_output(name: str) -> None:
    if name == "cuda":
        need_nvrtc()
    case: Case = CASES[name]()
    check(case.configured, case.arguments, {"arch": case.arch})


@pytest.mark.parametrize("name", MORE if EVERYTHING else ("softmax",))
def test_the_last_stores_of_an_example_are_its_output(name: str) -> None:
    launches: list[Any] = []
    try:
        with watched(lambda *launch: launches.append(launch)):
            MORE[name](example("", name))
    except ToolMissing as error:
        pytest.skip(str(error))
    assert launches
    for configured, arguments, options in launches:
        check(configured, arguments, {"arch": options["arch"]})
