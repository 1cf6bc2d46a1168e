"""Laws of copies: traits against the instruction, tiles covered, loads that feed an MMA what it owns."""

from typing import Any

import numpy as np
import pytest

from everything import sampled
from lanewise.atoms import (
    Copy_Atom,
    Copy_Traits,
    TiledCopy,
    make_cotiled_copy,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_copy_C,
    make_tiled_copy_D,
    make_tiled_copy_S,
    make_tiled_mma,
)
from lanewise.atoms.copy_names import copy_operations
from lanewise.errors import LanewiseError
from lanewise.layout import ComposedLayout, Layout, Swizzle, Tensor, size

oracle = pytest.importorskip("tensor_layouts.atoms_nv")

MATRIX_LOADS = [name for name in copy_operations() if "LDSM" in name]
MATRIX_STORES = [name for name in copy_operations() if "STSM" in name]
#: CUTLASS exchanges bytes after two loads: (a0 a1 a2 a3, b0 b1 b2 b3) becomes (a0 a1 b0 b1, a2 a3 b2 b3).
EXCHANGED = {name: [0, 1, 4, 5, 2, 3, 6, 7] for name in ("SM100_U8x8_LDSM_T", "SM100_U8x16_LDSM_T")}


def elements(part: Tensor) -> list[int]:
    return (part.offset + part.layout(np.arange(part.size()))).tolist()


# traits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MATRIX_LOADS + MATRIX_STORES)
def test_registers_hold_what_the_instruction_says(name: str) -> None:
    """A lane's value at (row, col) is number col of what lane `row` points to."""
    traits = Copy_Traits(name)
    inst = traits.instruction
    assert inst is not None
    load = inst.family == "ldmatrix"
    operand = inst.d if load else inst.a
    bits = operand.format.bits
    copy = Copy_Atom(name, bits)
    registers, memory = (
        (copy.ValLayoutDst, copy.ValLayoutSrc) if load else (copy.ValLayoutSrc, copy.ValLayoutDst)
    )
    assert size(registers[1]) == operand.values
    order = EXCHANGED.get(name, list(range(8)))
    for lane in range(32):
        for v in range(operand.values):
            row, col = operand.element(lane, v // 8 * 8 + order[v % 8])
            assert registers(lane, v) == memory(inst.row_addresses.lane(row), col)
    for lane in range(inst.row_addresses.rows, 32):
        assert memory(lane, 3) == memory(lane % inst.row_addresses.rows, 3)


def test_movmatrix_transposes() -> None:
    copy = Copy_Atom("SM75_U32x1_MOVM_T", "half_t")
    inst = copy.instruction
    assert inst is not None
    where = {copy.ValLayoutSrc(lane, v): inst.a.element(lane, v) for lane in range(32) for v in range(2)}
    for lane in range(32):
        for v in range(2):
            assert where[copy.ValLayoutDst(lane, v)] == inst.d.element(lane, v)[::-1]


def test_traits_equal_the_oracles() -> None:
    compared = 0
    for name, theirs in vars(oracle).items():
        if not isinstance(theirs, oracle.CopyAtom) or name.startswith("SM50"):
            continue
        ours = Copy_Traits(name.removesuffix("_16B"))
        assert str(ours.ThrID[0] if len(ours.ThrID) > 1 else size(ours.ThrID)) == str(size_of(theirs.thr_id))
        for mine, other in (
            (ours.SrcLayout, theirs.src_layout_bits),
            (ours.DstLayout, theirs.dst_layout_bits),
        ):
            threads, values = size(mine[0]), size(mine[1])
            pairs = [(t, v) for t in range(threads) for v in range(0, values, 3)]
            assert [mine(*pair) for pair in pairs] == [other(*pair) for pair in pairs], name
        compared += 1
    assert compared == 14


def size_of(layout: Any) -> int:
    return int(np.prod(np.ravel(layout.shape)))


@pytest.mark.parametrize("bits", [8, 16, 32, 64, 128])
def test_universal_copies(bits: int) -> None:
    copy = Copy_Atom(f"UniversalCopy<uint{bits}_t>", "uint8_t")
    assert copy.NumValSrc == copy.NumValDst == bits // 8
    assert Copy_Atom(f"UniversalCopy<{bits}>").ValType.bits == bits
    assert size(copy.ThrID) == 1


def test_bulk_copies_are_of_one_thread() -> None:
    for name in copy_operations():
        if name.startswith(("SM90_TMA", "SM90_BULK")):
            assert size(Copy_Traits(name).ThrID) == 1
    assert Copy_Atom("SM90_TMA_LOAD_2D<4096>", "half_t").NumValDst == 256


def test_types_are_understood() -> None:
    spellings = ("half_t", "cutlass::half_t", "f16", np.float16, np.dtype(np.float16))
    assert len({Copy_Atom("SM75_U32x4_LDSM_N", kind).ValType for kind in spellings}) == 1
    assert Copy_Atom("SM75_U32x4_LDSM_N").ValType.bits == 16
    assert Copy_Atom("SM100_U8x16_LDSM_T").ValType.bits == 8
    assert Copy_Atom("UniversalCopy").ValType.bits == 128


# tilings --------------------------------------------------------------------------------------------------


def owners(copy: TiledCopy, side: str, shape: tuple[int, ...]) -> np.ndarray:
    counts = np.zeros(int(np.prod(shape)), dtype=int)
    for t in range(copy.size()):
        np.add.at(counts, elements(getattr(copy.get_slice(t), f"partition_{side}")(Layout(shape))), 1)
    return counts


@sampled(3)
@pytest.mark.parametrize(
    ("copy", "reads"),
    [
        (make_tiled_copy("UniversalCopy<uint128_t>", Layout((16, 8), (8, 1)), Layout((1, 8)), "half_t"), 1),
        (make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL", Layout((32, 4), (4, 1)), Layout((1, 16)), "e4m3"), 1),
        (make_tiled_copy("UniversalCopy<float>", Layout((4, 8), (8, 1)), Layout((2, 4), (4, 1)), "float"), 1),
        (make_tiled_copy("SM75_U32x4_LDSM_N", Layout((32, 2)), Layout((2, 4)), "half_t"), 1),
        (make_tiled_copy("SM75_U32x2_LDSM_N", Layout((32, 2)), Layout((2, 4)), "half_t"), 2),
        (make_tiled_copy("SM75_U32x1_LDSM_N", Layout((32, 2)), Layout((2, 4)), "half_t"), 4),
        (make_tiled_copy("SM90_U16x8_STSM_T", Layout((32, 2)), Layout((2, 4)), "half_t"), 1),
    ],
    ids=repr,
)
def test_a_tile_is_covered(copy: TiledCopy, reads: int) -> None:
    """Registers hold each element once; 32 lanes point to memory, several to a row where there are fewer."""
    shape = (2 * copy.tile_mn[0], 3 * copy.tile_mn[1])
    registers, memory = ("S", "D") if "STSM" in copy.name else ("D", "S")
    assert set(owners(copy, registers, shape)) == {1}
    assert set(owners(copy, memory, shape)) == {reads}


MMAS = {
    "half_t": make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2), (32, 32, 16)),
    "interleaved": make_tiled_mma(
        "SM80_16x8x16_F32F16F16F32_TN", (2, 2), (None, Layout((8, 2, 2), (1, 16, 8)), 32)
    ),
    "int8_t": make_tiled_mma("SM80_16x8x32_S32S8S8S32_TN", (2, 2), (32, 32, 32)),
    "tfloat32_t": make_tiled_mma("SM80_16x8x8_F32TF32TF32F32_TN", (4, 1), (64, 32, 16)),
}
LOADS = ["SM75_U32x1_LDSM_N", "SM75_U32x2_LDSM_N", "SM75_U32x4_LDSM_N"]


@sampled(24)
@pytest.mark.parametrize("operation", LOADS)
@pytest.mark.parametrize("which", "AB")
@pytest.mark.parametrize("kind", MMAS)
def test_ldmatrix_brings_an_mma_what_it_owns(kind: str, which: str, operation: str) -> None:
    """The point of it all: what a load leaves in a retiled fragment is what the MMA takes from it."""
    mma = MMAS[kind]
    rows, cols = 2 * mma.tile_size_mnk["AB".index(which)], 2 * mma.tile_size_mnk[2]
    data = Tensor(0, Layout((rows, cols), (cols, 1)))
    copy = (make_tiled_copy_A if which == "A" else make_tiled_copy_B)(operation, mma)
    inst = copy.instruction
    assert inst is not None
    per_row = 16 * 8 // copy.ValType.bits
    per_element = inst.d.format.bits / copy.ValType.bits
    for warp in range(0, 128, 32):
        threads = [copy.get_slice(warp + lane) for lane in range(32)]
        sources = [elements(thread.partition_S(data)) for thread in threads]
        for lane, thread in enumerate(threads):
            owned = getattr(mma.get_slice(warp + lane), f"partition_{which}")(data)
            received = elements(thread.partition_D(data))
            assert received == elements(thread.retile_D(owned))
            assert sorted(received) == sorted(elements(owned))
            # and the load can do it: each value comes out of the row that ldmatrix takes it from
            values = copy.NumValDst
            for v, element in enumerate(received):
                atom, within = divmod(v, values)
                slot = int(within // max(per_element, 1)) if per_element >= 1 else int(within / per_element)
                row, col = inst.d.element(lane, slot)
                offset = within % int(per_element) if per_element >= 1 else 0
                source = atom * per_row + int(col * per_element) + offset
                assert sources[row][source] == element


@pytest.mark.parametrize("operation", ["SM75_U16x2_LDSM_T", "SM75_U16x4_LDSM_T", "SM75_U16x8_LDSM_T"])
@pytest.mark.parametrize("which", "AB")
def test_transposing_ldmatrix_feeds_m_major_operands(which: str, operation: str) -> None:
    mma = MMAS["half_t"]
    rows, cols = mma.tile_size_mnk["AB".index(which)], mma.tile_size_mnk[2]
    data = Tensor(0, Layout((rows, cols)))
    copy = (make_tiled_copy_A if which == "A" else make_tiled_copy_B)(operation, mma)
    for t in (0, 5, 33, 127):
        thread = copy.get_slice(t)
        owned = getattr(mma.get_slice(t), f"partition_{which}")(data)
        assert elements(thread.partition_D(data)) == elements(thread.retile_D(owned))
        source = elements(thread.partition_S(data))
        runs = np.array(source).reshape(-1, 8)
        assert (np.diff(runs, axis=1) == 1).all(), "a lane points to 16 contiguous bytes"


@pytest.mark.parametrize("operation", ["SM90_U32x4_STSM_N", "SM90_U32x2_STSM_N", "SM90_U16x4_STSM_T"])
def test_stmatrix_stores_what_an_mma_owns(operation: str) -> None:
    mma = MMAS["half_t"]
    data = Tensor(0, Layout((32, 64), (64, 1)))
    copy = make_tiled_copy_C(Copy_Atom(operation, "half_t"), mma)
    for t in (0, 5, 33, 127):
        thread = copy.get_slice(t)
        owned = mma.get_slice(t).partition_C(data)
        assert elements(thread.partition_S(data)) == elements(thread.retile_S(owned))


def test_retiled_fragments_are_views() -> None:
    mma = MMAS["half_t"]
    copy = make_tiled_copy_A("SM75_U32x4_LDSM_N", mma)
    a = np.arange(64 * 32, dtype=np.float16).reshape(64, 32)
    smem = Tensor(a.reshape(-1), ComposedLayout(Swizzle(2, 3, 3), 0, Layout((64, 32), (32, 1))))
    thr, load = mma.get_slice(70), copy.get_slice(70)
    fragment = thr.partition_fragment_A(smem)
    view = load.retile_D(fragment)
    view[None] = load.partition_D(smem)
    assert list(fragment) == list(thr.partition_A(smem))


def test_copies_made_after_copies() -> None:
    load = make_tiled_copy_A("SM75_U32x4_LDSM_N", MMAS["half_t"])
    data = Tensor(0, Layout((64, 64), (64, 1)))
    for t in (0, 9, 100):
        read = make_tiled_copy_S("UniversalCopy<uint128_t>", load).get_slice(t)
        assert elements(read.partition_S(data)) == elements(load.get_slice(t).partition_S(data))
        write = make_tiled_copy_D("UniversalCopy<uint32_t>", load).get_slice(t)
        assert elements(write.partition_D(data)) == elements(load.get_slice(t).partition_D(data))


def test_cotiled_copies_keep_offsets() -> None:
    tv, data = Layout((32, 8), (8, 1)), Layout((16, 16), (16, 1))
    copy = make_cotiled_copy(Copy_Atom("UniversalCopy<uint128_t>", "half_t"), tv, data)
    for t in range(32):
        assert elements(copy.get_slice(t).partition_S(Tensor(0, data))) == [tv(t, v) for v in range(8)]


def test_a_tile_with_gaps_must_fit() -> None:
    copy = make_cotiled_copy("UniversalCopy<uint32_t>", Layout((4, 4), (64, 2)), Layout((16, 16), (16, 1)))
    assert copy.Tiler_MN == (Layout(4, 4), Layout(4, 2))
    data = Layout((16, 16), (16, 1))
    for t in range(4):
        assert elements(copy.get_slice(t).partition_S(data))[:4] == [
            64 * t,
            64 * t + 2,
            64 * t + 4,
            64 * t + 6,
        ]
    with pytest.raises(LanewiseError, match="not a multiple"):
        copy.get_slice(0).partition_S(Layout((16, 4)))


@pytest.mark.parametrize(
    ("call", "explained"),
    [
        (lambda copy: Copy_Atom("SM75_U16x8_LDSM_T", "float"), "keeps 16 neighbouring bits together"),
        (lambda copy: Copy_Atom("UniversalCopy<uint16_t>", "float"), "keeps 16 neighbouring bits"),
        (lambda copy: Copy_Atom(7), "given by CUTLASS's name"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda copy: Copy_Atom("SM80_16x8x16_F32F16F16F32_TN"), "no copy operation is named"),
        (lambda copy: Copy_Atom("UniversalCopy", 24), "unknown value type 24"),
        (lambda copy: copy.get_slice(128), "threads 0 to 127"),
        (lambda copy: copy.get_slice(None), "does not take part"),
        (lambda copy: copy.get_slice(0).partition_S(Layout((33, 16))), "not a multiple"),
        (lambda copy: copy.get_slice(0).partition_D(Layout(32)), "takes a tensor of modes"),
        (lambda copy: copy.retile(Layout((8, 2))), "of 3 modes at least"),
        (lambda copy: copy.retile(Layout((3, 2, 2))), "does not hold whole atoms"),
        (
            lambda copy: make_tiled_copy("SM75_U32x4_LDSM_N", Layout(16), Layout(8)),
            "a multiple of 32 threads",
        ),
        (lambda copy: make_tiled_copy("SM75_U32x4_LDSM_N", Layout(32), Layout(4)), "8 values a thread"),
        (lambda copy: make_tiled_copy("UniversalCopy", Layout(16, 2)), "each once"),
        (lambda copy: make_tiled_copy("UniversalCopy", "16"), "thr_layout is a layout or a shape"),
        (lambda copy: make_tiled_copy(3, Layout(16)), "a copy atom or its name"),
        (lambda copy: make_tiled_copy_A("UniversalCopy", copy), "after a TiledMMA"),
        (lambda copy: make_tiled_copy_S("UniversalCopy", 3), "after a TiledCopy"),  # type: ignore[arg-type]  # wrong on purpose
        (
            lambda copy: make_cotiled_copy("UniversalCopy", Layout((32, 4), (4, 2)), Layout(128)),
            "does not have",
        ),
        (lambda copy: make_cotiled_copy("UniversalCopy", Layout(32), Layout(128)), "(threads, values)"),
        (lambda copy: make_cotiled_copy("UniversalCopy", 32, Layout(128)), "is a layout"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda copy: TiledCopy("UniversalCopy", "f16", Layout(32), (32,)), "a layout (threads, values)"),
    ],
)
def test_wrong_input_is_explained(call: Any, explained: str) -> None:
    with pytest.raises(LanewiseError) as caught:
        call(make_tiled_copy_A("SM75_U32x4_LDSM_N", MMAS["half_t"]))
    assert explained in str(caught.value)
