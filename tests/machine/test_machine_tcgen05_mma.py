"""tcgen05.mma of every kind, form and layout: tensor memory after it, bit for bit as `arith` computes it."""

import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, sampled
from lanewise.isa.asynchronous.descriptor import KINDS
from machine.tcgen05_products import Case, ptx, random_case, store_shared
from ptxas import assemble, find_ptxas

SEED = int(os.environ.get("LANEWISE_SEED", "20261116"))
#: Products of each kind that are drawn: what each compiles takes a part of a second.
DRAWN = 24 if EVERYTHING else 2


#: Instructions of the tests below, which share the kernel: it takes long to compile.
MORE = (
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r3, %p1;",
    "tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], [%r2], %rd2, %r3, %p1;",
    "tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r3, %p1, %rd3;",
)
PLAIN = {"sparse": False, "ws": False, "cta_group": 1, "scale_d": 0, "disabled": False}
#: Products of .ws whose B a mask changes.
MASKED = {"ws": True, "sparse": False, "specials": False, "a_in_tensor_memory": False}


@cache
def cases() -> dict[str, Case]:
    """All products that are drawn, by name."""
    found = {}
    for kind in KINDS:
        for number in range(DRAWN):
            # Of each kind there is a plain one and one of a pair, whatever is drawn.
            fixed = ({"sparse": False, "ws": False}, {"cta_group": 2, "ws": False})
            chosen = fixed[number] if number < len(fixed) else {}
            found[f"{kind} {number}"] = random_case(SEED + number, kind, **chosen)
    return found | {
        "f16 .ws": random_case(SEED, "f16", ws=True, m=32, sparse=False),
        "tf32 .ws.sp": random_case(SEED, "tf32", ws=True, m=64, sparse=True),
        "f16 .sp": random_case(SEED, "f16", sparse=True, ws=False),
        "mxf4 .sp": random_case(SEED, "mxf4", sparse=True),
        "tf32 M-major": random_case(SEED, "tf32", a_major="MN", b_major="MN", a_in_tensor_memory=False),
    }


@cache
def compiled(blocks: int) -> tuple[lw.Module, list[str]]:
    """One kernel for all products of one block, or of a pair, and its instructions."""
    statements = sorted({case.statement() for case in cases().values() if case.blocks == blocks})
    statements += [each for each in MORE if blocks == 1 and each not in statements]
    text = ptx(statements, blocks)
    if find_ptxas() is not None:
        assert assemble(text, "sm_100a") == []
    return lw.load(text), statements


NAMES = [f"{kind} {number}" for kind in KINDS for number in range(DRAWN)]
NAMES += ["f16 .ws", "tf32 .ws.sp", "f16 .sp", "mxf4 .sp", "tf32 M-major"]


@sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_product_has_the_bits_that_arith_computes(name: str) -> None:
    case = cases()[name]
    after = case.run(*compiled(case.blocks))
    expected = case.expected()
    wrong = np.argwhere(after != expected)
    assert not len(wrong), (
        case.text,
        str(case.descriptor),
        len(wrong),
        wrong[0],
        case.a_matrix,
        case.b_matrix,
    )


@pytest.mark.parametrize("schedule", ["late", 3])
@pytest.mark.parametrize("name", ["f16 0", "f16 1"])
def test_a_product_is_the_same_in_every_schedule(name: str, schedule: str | int) -> None:
    case = cases()[name]
    assert np.array_equal(case.run(*compiled(case.blocks), schedule=schedule), case.expected())


# sums against float64 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [64, 128])
def test_a_product_is_close_to_float64(m: int) -> None:
    chosen = PLAIN | {"d": "f32", "specials": False, "a_in_tensor_memory": False, "adds": True}
    case = random_case(SEED, "f16", m=m, n=48, **chosen)
    after = case.run(*compiled(1))[0]
    numbers = {name: np.asarray(each, np.float64) for name, each in case.numbers().items()}
    signs = (-1) ** (case.descriptor.negate_a + case.descriptor.negate_b)
    exact = signs * (numbers["a"] @ numbers["b"]) + numbers["c"]
    # Where D lies, from the text of the PTX ISA: rows in lanes, by 16 in each partition where M is 64.
    rows = np.arange(m)
    lanes = case.d_lane + (rows if m == 128 else rows // 16 * 32 + rows % 16)
    d = after[lanes, case.d_column : case.d_column + 48].view(np.float32)
    magnitude = np.abs(numbers["a"]) @ np.abs(numbers["b"]) + np.abs(numbers["c"])
    assert np.all(np.abs(d - exact) <= magnitude * 2.0**-22)


# zero-column masks of .ws -----------------------------------------------------------------------------------


def zeroed(mask: int, columns: int, parts: int) -> np.ndarray:
    """Which columns of B a mask sets to zero, from the text of the PTX ISA, column by column."""
    skip, use = (mask >> 40 & 255) + 1, (mask >> 48 & 255) + 1
    found = []
    for part in range(parts):
        start, zero = mask >> 8 * part & 255, mask >> 32 + part & 1
        sequence: list[int] = []
        while len(sequence) < start + columns // parts:
            sequence += [zero] * (skip if zero else use)
            zero = 1 - zero
        found += sequence[start : start + columns // parts]
    return np.array(found, bool)


@pytest.mark.parametrize("m", [32, 64, 128])
def test_a_mask_sets_columns_of_b_to_zero(m: int) -> None:
    rng = np.random.default_rng([SEED, m])
    case = random_case(SEED, "f16", m=m, n=64, adds=True, **MASKED)
    starts = int.from_bytes(rng.integers(0, 9, 4).astype(np.uint8).tobytes(), "little")
    spans = int(rng.integers(9, 20)) << 40 | int(rng.integers(9, 20)) << 48
    case.zero_mask = starts | int(rng.integers(0, 16)) << 32 | 1 << 39 | spans
    after = case.run(*compiled(1))
    columns = zeroed(case.zero_mask, 64, 128 // m)
    assert 0 < columns.sum() < 64
    case.b[:, columns] = 0
    assert np.array_equal(after, case.expected())


def test_the_masks_of_the_isa() -> None:
    """The examples of PTX ISA 9.0, "Zero-Column Mask Descriptor", by `zeroed`, which the test above uses."""
    spans = 1 << 39 | 2 << 40 | 3 << 48

    def bits(mask: int, parts: int) -> list[str]:
        found = zeroed(mask, 16 * parts, parts).reshape(parts, 16)
        return ["".join(str(int(each)) for each in part[::-1]) for part in found]

    assert bits(spans, 1)[0].endswith("11100001110000")
    first, second = bits(spans | 1 << 32, 2)
    assert first.endswith("1110000111") and second.endswith("00001110000")
    four = bits(spans | 0b0011 << 32 | 0 | 1 << 8 | 2 << 16 | 1 << 24, 4)
    for found, end in zip(
        four, ("00001110000111", "0000111000011", "111000011100", "1110000111000"), strict=True
    ):
        assert found.endswith(end)


@pytest.mark.parametrize(("m", "shift", "major"), [(32, 13, "K"), (64, 32, "MN"), (128, 5, "K")])
def test_a_mask_shifts_the_columns_of_b(m: int, shift: int, major: str) -> None:
    """B's columns from `shift` on are used: a wider B is stored, and a part of it multiplied."""
    case = random_case(SEED, "f16", m=m, n=128, b_major=major, **MASKED)
    formats = {"a": case.descriptor.a, "b": case.descriptor.b, "d": case.descriptor.d}
    wide = random_case(SEED + 1, "f16", m=m, n=256, b_major=major, **MASKED, **formats)
    case.b = wide.b[:, shift : shift + 128].copy()
    case.b_matrix = replace(wide.b_matrix, start_address=32 << 10)
    store_shared(case.shared[0], case.b_matrix, wide.b.T, case.descriptor.b, 16, major)
    case.zero_mask = shift << 56
    after = case.run(*compiled(1))
    assert np.array_equal(after, case.expected())


def test_rows_of_a_may_be_shifted_by_one() -> None:
    case = random_case(SEED, "f16", m=128, a_in_tensor_memory=True, **PLAIN)
    case.text += ".ashift"
    after = case.run(*compiled(1))
    rows = np.arange(128)
    case.a = case.a[np.where(rows % 32 == 31, rows, rows + 1)]
    case.text = case.text.removesuffix(".ashift")
    assert np.array_equal(after, case.expected())
