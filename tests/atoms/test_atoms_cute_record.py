"""Traits, tilings and partitions are CuTe's, character by character, as cute_record.txt has them."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanewise.atoms import (
    Copy_Atom,
    Copy_Traits,
    MMA_Traits,
    TiledMMA,
    make_cotiled_copy,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_copy_C,
    make_tiled_copy_C_atom,
    make_tiled_mma,
)
from lanewise.atoms.names import operations
from lanewise.layout import Layout, Tensor, coalesce

#: CuTe lets C's (thread, value) layout run past the tile where atoms stand along both N and K.
CUTE_LEAVES_THE_TILE = ("SM70_8x8x4_F32F16F16F32_TN ; (2,2,2)", "layoutC_TV")


def blocks() -> Iterator[tuple[str, list[str], list[tuple[str, str]]]]:
    """(kind, what it was made from, lines of name and text) of every block of the record."""
    found: list[tuple[str, list[str], list[tuple[str, str]]]] = []
    for line in (Path(__file__).parent / "cute_record.txt").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if first == "#":
            continue
        if first in ("mma", "copy", "tiled", "cotiled", "copy_C_atom", "traits"):
            found.append((first, rest.split(" ; "), []))
        else:
            name, _, text = line.rpartition(" ")
            found[-1][2].append((name, text))
    yield from found


RECORD = list(blocks())


def read_tuple(text: str) -> Any:
    return eval(re.sub(r"\((\d+)\)", r"(\1,)", text), {})


def read_layout(text: str) -> Layout:
    shape, _, stride = text.partition(":")
    return Layout(read_tuple(shape), read_tuple(stride)) if stride else Layout(read_tuple(shape))


def read_mma(made_from: list[str]) -> TiledMMA:
    operation, atom_layout, permutation, _ = made_from
    entries = None
    if permutation != "-":
        entries = tuple(
            None if entry == "_" else int(entry) if entry.isdigit() else read_layout(entry)
            for entry in permutation.split(" ")
        )
    shape = read_layout(atom_layout) if ":" in atom_layout else read_tuple(atom_layout)
    return make_tiled_mma(operation, shape, entries)


MMAS = [made_from for kind, made_from, _ in RECORD if kind == "mma"]


def tensors(made_from: list[str]) -> dict[str, Tensor]:
    m, n, k = map(int, made_from[3].split(" "))
    return {
        "A": Tensor(0, Layout((m, k), (k, 1))),
        "B": Tensor(0, Layout((n, k, 3))),
        "C": Tensor(0, Layout((m, n))),
    }


def said_of_mma(mma: TiledMMA, data: dict[str, Tensor], name: str) -> Any:
    what, _, thread = name.partition(" ")
    operand = what.removesuffix("_TV")[-1]
    if what == "thr_layout_vmnk":
        return mma.thr_layout_vmnk
    if what.startswith("layout"):
        return getattr(mma, f"get_{what}")()
    if what.startswith("thrfrg"):
        return getattr(mma, what)(data[operand].layout)
    thr = mma.get_slice(int(thread or 0))
    if what.startswith("fragment"):
        tensor = data["B"][None, None, 0] if operand == "B" else data[operand]
        return getattr(thr, f"partition_{what}")(tensor).layout
    return getattr(thr, what)(data[operand])


@pytest.mark.parametrize(
    "block", [block for block in RECORD if block[0] == "mma"], ids=lambda block: str(block[1])
)
def test_tiled_mma_is_cutes(block: Any) -> None:
    _, made_from, lines = block
    mma, data = read_mma(made_from), tensors(made_from)
    assert len(lines) > 8
    for name, text in lines:
        if CUTE_LEAVES_THE_TILE[0] in " ; ".join(made_from) and name == CUTE_LEAVES_THE_TILE[1]:
            assert read_layout(text).cosize() > mma.tile_size_mnk[0] * mma.tile_size_mnk[1]
            continue
        assert str(said_of_mma(mma, data, name)).replace(" ", "") == text, name


def said_of_copy(copy: Any, data: Tensor, name: str) -> Any:
    what, _, thread = name.partition(" ")
    if what in ("TiledLayout_TV", "Tiler_MN"):
        return getattr(copy, what)
    if what.startswith("layout"):
        return getattr(copy, f"get_{what}")()
    return getattr(copy.get_slice(int(thread)), what)(data)


def check_copy(copy: Any, data: Tensor, lines: list[tuple[str, str]]) -> None:
    assert lines
    for name, text in lines:
        assert str(said_of_copy(copy, data, name)).replace(" ", "") == text, name


MAKE = {"A": make_tiled_copy_A, "B": make_tiled_copy_B, "C": make_tiled_copy_C}


@pytest.mark.parametrize(
    "block", [block for block in RECORD if block[0] == "copy"], ids=lambda block: str(block[1])
)
def test_tiled_copies_of_an_mma_are_cutes(block: Any) -> None:
    _, (operation, kind, operand, number), lines = block
    mma = read_mma(MMAS[int(number)])
    m, n, k = map(int, MMAS[int(number)][3].split(" "))
    rows, cols = {"A": (m, k), "B": (n, k), "C": (m, n)}[operand]
    data = Tensor(0, Layout((rows, cols), (cols, 1)))
    copy = MAKE[operand](Copy_Atom(operation, kind), mma)
    retiled = dict(lines)["retile"]
    fragment = getattr(mma.get_slice(0), f"partition_{operand}")(data)
    assert str(copy.retile(fragment.layout)) == retiled
    check_copy(copy, data, [(name, text) for name, text in lines if name != "retile"])


@pytest.mark.parametrize(
    "block", [block for block in RECORD if block[0] == "tiled"], ids=lambda block: str(block[1])
)
def test_tiled_copies_of_threads_and_values_are_cutes(block: Any) -> None:
    _, (operation, kind, threads, values, shape), lines = block
    rows, cols = map(int, shape.split(" "))
    copy = make_tiled_copy(Copy_Atom(operation, kind), read_layout(threads), read_layout(values))
    check_copy(copy, Tensor(0, Layout((rows, cols), (cols, 1))), lines)


def test_cotiled_copies_are_cutes() -> None:
    found = [block for block in RECORD if block[0] == "cotiled"]
    assert len(found) == 3
    for _, (operation, kind, tv, data), lines in found:
        copy = make_cotiled_copy(Copy_Atom(operation, kind), read_layout(tv), read_layout(data))
        check_copy(copy, Tensor(0, read_layout(data)), lines)


def test_copies_of_one_atoms_accumulators_are_cutes() -> None:
    found = [block for block in RECORD if block[0] == "copy_C_atom"]
    assert len(found) == 3
    for _, (operation, kind, number), lines in found:
        copy = make_tiled_copy_C_atom(Copy_Atom(operation, kind), read_mma(MMAS[int(number)]))
        check_copy(copy, Tensor(0, Layout(1)), lines)


def test_copy_traits_are_cutes() -> None:
    found = [block for block in RECORD if block[0] == "traits"]
    assert len(found) == 23
    for _, (operation,), lines in found:
        traits = Copy_Traits(operation)
        assert [(name, str(getattr(traits, name))) for name, _ in lines] == lines, operation


# every MMA operation --------------------------------------------------------------------------------------

#: SHA-256 over one line an operation, as CuTe 4.2 prints it; layouts are coalesced mode by mode, since CuTe
#: writes some with modes of extent 1.
CUTE_TRAITS = "d50eb2a2ebf32d0ace5ed8df5fa92623d83579970beffd43a24906cb8fa7fc51"
#: Not in 4.2; and eight int4 operations whose B CuTe 4.2 gives as ((4,8),8):((32,1),8): not all of B.
ELSEWHERE = re.compile(r"SM75_16x8x8_F16F16F16F16_TN|SM80_16x8x32_S32[SU]4[SU]4S32_TN(_SATURATE)?")


def coalesced(layout: Layout) -> str:
    return str(coalesce(layout, (1, 1)) if len(layout) == 2 else coalesce(layout))


def trait_line(name: str) -> str:
    traits = MMA_Traits(name)
    inst = traits.instruction
    row = [name, coalesced(traits.ThrID), str(traits.Shape_MNK)]
    row += [coalesced(getattr(traits, f"{which}Layout")) for which in "ABC"]
    row.append(coalesced(traits.ELayout) if inst.sparse else "-")
    row += [coalesced(getattr(traits, f"SF{which}Layout")) if inst.scale_type else "-" for which in "AB"]
    row += [str(getattr(traits, f"{kind}{which}")) for kind in ("ValType", "FrgType") for which in "DABC"]
    row += [str(getattr(traits, f"{which}Registers")) for which in "DABC"]
    return " ".join(part.replace(" ", "") for part in row)


def test_every_mma_operation_has_cutes_layouts_types_and_registers() -> None:
    names = [operation.name for operation in operations()]
    lines = sorted(trait_line(name) for name in names if not ELSEWHERE.fullmatch(name))
    assert len(lines) == 2347
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == CUTE_TRAITS
