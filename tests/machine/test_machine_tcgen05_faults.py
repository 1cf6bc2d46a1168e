"""Mistakes in products of tcgen05: the launch stops, and a sentence says which rule is broken."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING
from lanewise.isa.asynchronous.descriptor import InstructionDescriptor
from lanewise.machine import KernelFault
from machine.tcgen05_products import (
    A_MATRIX,
    B_MATRIX,
    COLUMNS,
    DESCRIPTOR,
    METADATA_COLUMN,
    METADATA_PLACE,
    SCALE_PLACE,
    SHARED_BYTES,
    Case,
    D,
    ptx,
    random_case,
)
from machine.tensor_memory_kernels import fill

PLAIN = {"ws": False, "cta_group": 1, "a_in_tensor_memory": False, "disabled": False, "adds": False}


@cache
def cases() -> dict[str, Case]:
    """Products that are right."""
    return {
        "dense": random_case(1, "f16", sparse=False, m=128, n=64, a="bf16", b="bf16", d="f32", **PLAIN),
        "sparse": random_case(2, "f16", sparse=True, m=128, n=64, sparsity_selector=0, **PLAIN),
        "scaled": random_case(3, "mxf8f6f4", sparse=False, m=128, n=64, **PLAIN),
        "tf32": random_case(6, "tf32", sparse=False, m=64, n=64, b_major="MN", **PLAIN),
        "masked": replace(
            random_case(5, "f16", m=32, n=64, sparse=False, **PLAIN | {"ws": True}), zero_mask=1
        ),
        "pair": random_case(4, "f16", sparse=False, **{**PLAIN, "cta_group": 2}),
    }


@cache
def compiled(blocks: int) -> tuple[lw.Module, list[str]]:
    """One kernel for all products of one block, or of a pair."""
    statements = sorted({case.statement() for case in cases().values() if case.blocks == blocks})
    return lw.load(ptx(statements, blocks)), statements


def message(name: str, changed: dict[int, int]) -> str:
    """What the fault says if some numbers are changed."""
    case = cases()[name]
    with pytest.raises(KernelFault) as caught:
        case.run(*compiled(case.blocks), changed)
    assert caught.value.kind == "tensor product" or "out of bounds" in str(caught.value)
    text = str(caught.value)
    assert case.text in text and "by thread (0, 0, 0) in block (0, 0, 0)" in text
    return text


DENSE = InstructionDescriptor("f16", 128, 64, "bf16", "bf16").encode()


@pytest.mark.parametrize(
    ("bits", "says"),
    [
        (InstructionDescriptor("f16", 256, 64, "bf16", "bf16").encode(), "M is 256"),
        (DENSE | 1 << 2, "bit 2 of the instruction descriptor (sparse) is 1"),
        (DENSE | 3 << 7, "kind::f16 has 0 (f16) or 1 (bf16)"),
        (DENSE | 1 << 23, "bits set that kind::f16 reserves: 23"),
        (DENSE & ~(63 << 17), "n of an instruction descriptor"),
        (DENSE | 1 << 30, "largest shift"),
    ],
)
def test_instruction_descriptors_that_are_none(bits: int, says: str) -> None:
    assert says in message("dense", {DESCRIPTOR: bits})


@pytest.mark.parametrize("matrix", [A_MATRIX, B_MATRIX])
@pytest.mark.parametrize(
    ("flipped", "says"),
    [(1 << 46, "version of tcgen05"), (3 << 61, "swizzle mode"), (1 << 52, "absolute address")],
)
def test_matrix_descriptors_that_are_none(matrix: int, flipped: int, says: str) -> None:
    right = int(cases()["dense"].numbers_of_kernel()[matrix]) & ~(7 << 61)
    assert says in message("dense", {matrix: right ^ flipped})


@pytest.mark.parametrize(
    ("name", "mode", "says"),
    [("dense", 1, "which only MN-major matrices of 32-bit elements have"), ("tf32", 2, "have mode 1")],
)
def test_swizzles_that_do_not_fit_the_matrix(name: str, mode: int, says: str) -> None:
    right = int(cases()[name].numbers_of_kernel()[B_MATRIX]) & ~(7 << 61)
    assert says in message(name, {B_MATRIX: right | mode << 61})


def test_a_shift_of_columns_that_is_too_large() -> None:
    case = replace(cases()["masked"], zero_mask=17 << 56)
    with pytest.raises(KernelFault, match="shifts columns by 17; the largest shift is 16 for M = 32"):
        case.run(*compiled(1))


def test_a_matrix_beyond_shared_memory() -> None:
    right = int(cases()["dense"].numbers_of_kernel()[A_MATRIX])
    assert "shared read of 16 bytes out of bounds" in message("dense", {A_MATRIX: right & ~0x3FFF | 0x3000})


@pytest.mark.parametrize(
    ("name", "place", "number", "says"),
    [
        ("dense", D, 460, "D does not lie in allocated columns of tensor memory; its first column is 460"),
        ("dense", D, 3 << 16, "the lane of D's address is 3"),
        ("sparse", METADATA_PLACE, 512, "the metadata of A does not lie in allocated columns"),
        ("sparse", METADATA_PLACE, METADATA_COLUMN | 16 << 16, "the lane of the metadata's address is 16"),
        ("scaled", SCALE_PLACE, 510, "scale factors do not lie in allocated columns"),
    ],
)
def test_addresses_of_tensor_memory_that_are_none(name: str, place: int, number: int, says: str) -> None:
    assert says in message(name, {place: number})


def test_metadata_that_selects_nothing() -> None:
    case = random_case(2, "f16", sparse=True, m=128, n=64, sparsity_selector=0, **PLAIN)
    case.before[:, 9, METADATA_COLUMN] = 0  # the second half of K of rows 1 and 9
    with pytest.raises(KernelFault, match="row 1 of A has metadata that select no elements"):
        case.run(*compiled(1))


def test_metadata_of_zeros_may_be_any() -> None:
    """CUTLASS's compressor writes the code 0 for a group of four zeros; NaN is no zero."""
    case = random_case(2, "f16", sparse=True, m=128, n=64, sparsity_selector=0, **PLAIN)
    case.a[[1, 9]] = 0
    case.b &= 0x3FFF  # finite numbers
    case._fill_shared()
    case.before[:, 9, METADATA_COLUMN] = 0
    assert np.array_equal(case.run(*compiled(1)), case.expected())
    case.a[9] = 0x7E00
    case._fill_shared()
    with pytest.raises(KernelFault, match="row 9 of A has metadata that select no elements"):
        case.run(*compiled(1))


def test_the_block_of_odd_rank_does_not_issue() -> None:
    case = cases()["pair"]
    text = ptx([case.statement()], 2).replace(
        "or.b32 %r54, %tid0, %rank;", "xor.b32 %r54, %rank, 1; or.b32 %r54, %r54, %tid0;"
    )
    with pytest.raises(
        KernelFault, match="the block of rank 1 in the cluster issues a product of cta_group::2"
    ):
        case.run(lw.load(text), [case.statement()])


def test_only_rows_of_tensor_memory_are_shifted() -> None:
    statement = "tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], %rd1, %rd2, %r3, %p1;"
    with pytest.raises(lw.LanewiseError, match="A is in shared memory"):
        lw.load(ptx([statement], 1))["k"][1, 128, 1024](*[0] * 4)


#: The fields of an instruction descriptor as first bit and width: D, A, B, N, M, the highest bits, all.
DESCRIPTOR_FIELDS = ((4, 2), (7, 3), (10, 3), (17, 6), (24, 5), (29, 3), (0, 32))


def changed_numbers(random: np.random.Generator, case: Case) -> dict[int, int]:
    """Return a number of a product that is another one, mostly its instruction descriptor, by its place."""
    place = int(random.choice([*[DESCRIPTOR] * 4, D, A_MATRIX, B_MATRIX, SCALE_PLACE, METADATA_PLACE]))
    number = int(case.numbers_of_kernel()[place])
    if place != DESCRIPTOR:
        return {place: number ^ 1 << int(random.integers(64 if place in (A_MATRIX, B_MATRIX) else 32))}
    first, width = DESCRIPTOR_FIELDS[random.integers(len(DESCRIPTOR_FIELDS))]
    field = 0 if random.integers(2) else int(random.integers(1 << width))
    return {place: number & ~(((1 << width) - 1) << first) | field << first}


@cache
def without_values(blocks: int) -> lw.Module:
    """The kernel of `compiled` that writes nothing to tensor memory before the product."""
    written = ptx(compiled(blocks)[1], blocks)
    bare = written.replace(fill("before", COLUMNS), "")
    assert bare != written
    return lw.load(bare)


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("name", ["dense", "sparse", "scaled", "tf32", "masked", "pair"])
def test_a_check_tells_the_fault_of_a_product_that_is_none(name: str, filled: bool) -> None:
    """Whatever an operation was given, a check ends with findings; one is what stops the launch."""
    case, random = cases()[name], np.random.default_rng(7)
    module, statements = compiled(case.blocks)
    module = module if filled else without_values(case.blocks)
    for changed in [{DESCRIPTOR: 0}, {DESCRIPTOR: 0xFFFFFFFF}, {D: 600}] + [
        changed_numbers(random, case) for _ in range(200 if EVERYTHING else 5)
    ]:
        numbers = np.array([*case.numbers_of_kernel(), statements.index(case.statement())], np.uint64)
        for place, number in changed.items():
            numbers[place] = number
        launched = module["k"][case.blocks, 128, SHARED_BYTES]
        report = lw.check(launched, case.shared, case.before, np.zeros_like(case.before), numbers)
        try:
            case.run(module, statements, changed)
        except KernelFault as fault:
            assert fault.kind in {finding.kind for finding in report.findings}, (changed, str(fault))
