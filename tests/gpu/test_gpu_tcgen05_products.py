"""tcgen05.mma on a B200 and on the CPU machine: all of tensor memory after random products, bit for bit.

Layouts, descriptors and arithmetic of the machine rest on the PTX ISA, on CUTLASS and on published models; a
product that differs here names the one that is wrong. `LANEWISE_SEED` draws others.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from gpu.forms import arch
from lanewise.isa.asynchronous.descriptor import KINDS
from machine.tcgen05_products import SHARED_BYTES, Case, ptx, random_case

SEED = int(os.environ.get("LANEWISE_SEED", "1"))
#: Products of each kind.
DRAWN = 48
SOURCE = Path(__file__).parents[1] / "machine" / "kernels" / "tcgen05_tma.cu"

pytestmark = pytest.mark.skipif(arch() not in ("sm_100a", "sm_103a"), reason="tcgen05 is of sm_100a")


@cache
def cases(kind: str) -> list[Case]:
    return [random_case(SEED + number, kind) for number in range(DRAWN)]


@cache
def compiled(kind: str, blocks: int) -> tuple[lw.Module, list[str]]:
    """One kernel for all products of a kind."""
    statements = sorted({case.statement() for case in cases(kind) if case.blocks == blocks})
    return lw.load(ptx(statements, blocks, arch())), statements


def on_device(array: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array).view(f"i{array.itemsize}")).cuda()


@pytest.mark.parametrize("number", range(DRAWN))
@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_the_same_on_both(kind: str, number: int) -> None:
    case = cases(kind)[number]
    module, statements = compiled(kind, case.blocks)
    numbers = np.array([*case.numbers_of_kernel(), statements.index(case.statement())], np.uint64)
    after = on_device(np.zeros_like(case.before))
    launched = module["k"][case.blocks, 128, SHARED_BYTES]
    launched(on_device(case.shared), on_device(case.before), after, on_device(numbers))
    there, here = after.cpu().numpy().view(np.uint32), case.expected()
    wrong = np.argwhere(there != here)
    assert not len(wrong), (
        case.text,
        str(case.descriptor),
        case.a_matrix,
        case.b_matrix,
        len(wrong),
        wrong[0],
    )


@pytest.mark.parametrize(("name", "blocks"), [("gemm", 1), ("gemm_of_pairs", 2)])
def test_a_gemm_is_the_same_on_both(name: str, blocks: int) -> None:
    import torch

    m, n, k = 512, 256, 640
    rng = np.random.default_rng(blocks)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    columns = 128 // blocks
    launched = lw.cuda(SOURCE, arch=arch())[name][(m // 128, n // 128), 128, 3 * (128 + columns) * 128]

    def maps(first: Any, second: Any) -> list[Any]:
        pairs = ((first, 128), (second, columns))
        return [lw.tensor_map(each, (rows, 64), swizzle="128B", dtype="bf16") for each, rows in pairs]

    here, there = np.zeros((m, n), np.float32), torch.zeros((m, n), dtype=torch.float32, device="cuda")
    launched(*maps(a, b), here, n, k)
    launched(*maps(*(on_device(each).view(torch.bfloat16) for each in (a, b))), there, n, k)
    assert np.array_equal(here.view(np.uint32), there.cpu().numpy().view(np.uint32))
