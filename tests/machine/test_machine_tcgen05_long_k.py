"""tcgen05.mma with K = 96 (sm_103a): rows of 48 bytes, also in two buffers, and scale factors in two words.

The scale factors and the two buffers lie as CUTLASS's kernels for sm_103a have them; no GPU was asked.
"""

import os
from functools import cache
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, sampled
from lanewise.isa.matrix_descriptor import PIECE_BYTES, MatrixDescriptor
from lanewise.machine import KernelFault
from machine.tcgen05_products import A_MATRIX, DESCRIPTOR, LONG_K, Case, ptx, random_case
from ptxas import assemble, find_ptxas

SEED = int(os.environ.get("LANEWISE_SEED", "20261117"))
#: The first byte of the scale factors of A and of B, with the elements for which there is one.
FACTORS = [("mxf4", 32, a, 3 - a) for a in range(4)] + [("mxf4nvf4", 16, 0, 2), ("mxf4nvf4", 16, 2, 0)]
FACTORS += [("mxf4nvf4", 32, 1, 1)]
NAMES = [
    f"{kind} block{block} ids {a} {b} group {group}"
    for kind, block, a, b in FACTORS
    for group in ((1, 2) if EVERYTHING or (a, block) in ((3, 32), (2, 16)) else (1,))
]
ABSOLUTE = 1 << 52


@cache
def cases() -> dict[str, Case]:
    """Products of K = 96 by name: every first byte of scale factors, single blocks and pairs."""
    found = {}
    for number, name in enumerate(NAMES):
        kind, block, _, a, b, _, group = name.split()
        found[name] = random_case(
            SEED + number, kind, k=LONG_K, sparse=False, block=int(block.removeprefix("block")),
            cta_group=int(group), scale_a_id=int(a), scale_b_id=int(b), a_in_tensor_memory=number % 3 == 2,
            m=256 if number % 2 and int(group) == 2 else 128,
        )  # fmt: skip
    return found


@cache
def compiled(blocks: int) -> tuple[lw.Module, list[str]]:
    """One kernel for all products of one block, or of a pair, and its instructions."""
    statements = sorted({case.statement() for case in cases().values() if case.blocks == blocks})
    text = ptx(statements, blocks, "sm_103a")
    if find_ptxas() is not None:
        assert assemble(text, "sm_103a") == []
    return lw.load(text), statements


@sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_a_product_has_the_bits_that_arith_computes(name: str) -> None:
    case = cases()[name]
    after = case.run(*compiled(case.blocks), arch="sm_103a")
    wrong = np.argwhere(after != case.expected())
    assert not len(wrong), (case.text, str(case.descriptor), wrong[0], case.a_matrix, case.b_matrix)


def test_a_checked_product_is_silent() -> None:
    case = cases()[NAMES[0]]
    module, statements = compiled(1)
    numbers = np.array([*case.numbers_of_kernel(), statements.index(case.statement())], np.uint64)
    launched = module["k"][1, 128, case.shared.shape[1]]
    report = lw.check(launched, case.shared, case.before, np.zeros_like(case.before), numbers, arch="sm_103a")
    assert report.ok, report


@pytest.mark.parametrize("piece", range(8))
def test_rows_go_on_at_the_absolute_address(piece: int) -> None:
    """Pieces that do not fit into the 128 bytes lie at the beginning of the other buffer's rows."""
    start, other = 4096, 16384
    at = MatrixDescriptor(start + 16 * piece, other, 1024, swizzle="128B", version=1, absolute_leading=True)
    assert MatrixDescriptor.decode(at.encode(), 1) == at
    addresses = at.element_addresses(128, LONG_K, 4)[:, ::32]
    for row in (0, 7, 9, 127):
        for number in range(3):
            base, column = (start, piece + number) if piece + number < 8 else (other, piece + number - 8)
            swizzled = (column ^ row % 8) * PIECE_BYTES
            assert addresses[row, number] == base + row // 8 * 1024 + row % 8 * 128 + swizzled


MISTAKES: list[tuple[dict[int, Any], str]] = [
    ({A_MATRIX: lambda bits: bits | ABSOLUTE | 1 << 49}, "base offset .* is 0, not 1"),
    (
        {A_MATRIX: lambda bits: bits & ~(7 << 61) | ABSOLUTE},
        "goes with the 128B swizzle only, not with 'none'",
    ),
    ({DESCRIPTOR: lambda bits: bits & ~(1 << 31)}, "which only products of K = 96 on sm_103a have"),
]


@pytest.mark.parametrize(("changes", "says"), MISTAKES, ids=["base offset", "swizzle", "K = 64"])
def test_an_absolute_address_has_rules(changes: dict[int, Any], says: str) -> None:
    case = random_case(
        SEED, "mxf4", k=LONG_K, sparse=False, block=32, cta_group=1, a_in_tensor_memory=False,
        scale_a_id=0, scale_b_id=0,
    )  # fmt: skip
    case.a_matrix = MatrixDescriptor(0, 32768, 1024, swizzle="128B", version=1, absolute_leading=True)
    numbers = case.numbers_of_kernel()
    changed = {place: change(int(numbers[place])) for place, change in changes.items()}
    module, statements = compiled(1)
    with pytest.raises(KernelFault, match=says):
        case.run(module, statements, changed, arch="sm_103a")


def test_other_archs_do_not_have_it() -> None:
    case = cases()[NAMES[0]]
    _, statements = compiled(1)
    other = lw.load(ptx(statements, 1))
    with pytest.raises(KernelFault, match="only sm_103a has that"):
        case.run(other, statements, arch="sm_100a")
