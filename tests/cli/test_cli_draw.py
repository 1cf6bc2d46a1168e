"""`lanewise draw` draws what `lanewise.draw` draws of the same object."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lanewise as lw
from everything import sampled
from lanewise import draw
from lanewise.atoms import atom, make_tiled_copy, make_tiled_mma
from lanewise.isa import instruction
from lanewise.layout import ComposedLayout, Layout, Swizzle, recast
from lanewise.layout.reading import read_layout, read_plain_layout, read_swizzle

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ATOM = "SM80_16x8x16_F32F16F16F32_TN"
LDSM = "SM75_U32x4_LDSM_N"
TV = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))

shapes = st.recursive(
    st.integers(1, 99), lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=6
)


def strided(shape: int | tuple[Any, ...]) -> Any:
    if isinstance(shape, tuple):
        return st.tuples(*map(strided, shape))
    return st.integers(-99, 999)


layouts = shapes.flatmap(lambda shape: strided(shape).map(lambda stride: Layout(shape, stride)))


@settings(deadline=None)
@given(layouts)
def test_a_printed_layout_reads_back(layout: Layout) -> None:
    assert read_plain_layout(str(layout)) == layout
    assert read_layout(str(layout).replace(",", " , ")) == layout


@settings(deadline=None)
@given(layouts, st.integers(0, 4), st.integers(0, 6), st.integers(4, 8), st.integers(0, 999))
def test_a_printed_swizzled_layout_reads_back(
    layout: Layout, bits: int, base: int, shift: int, offset: int
) -> None:
    composed = ComposedLayout(Swizzle(bits, base, shift), offset, layout)
    assert read_layout(str(composed)) == composed
    assert read_layout(f"Sw<{bits},{base},{shift}> o _{offset} o {layout}") == composed


def test_a_shape_alone_is_compact() -> None:
    assert read_layout("(4,(2,3))") == Layout((4, (2, 3)))
    assert read_layout("_8") == Layout(8)


def test_swizzles_as_people_write_them() -> None:
    for text in ("3,4,3", "Sw<3,4,3>", "SW_3_4_3", "Swizzle(3, 4, 3)", "Swizzle<3,4,3>"):
        assert read_swizzle(text) == Swizzle(3, 4, 3)


CASES = [
    (["layout", "(8,8):(8,1)"], lambda: Layout((8, 8), (8, 1)), {}),
    (["layout", str(TV), "--tv", "16,8"], lambda: draw.tv(TV, (16, 8)), {}),
    (
        ["layout", str(TV), "--tv", "16,8", "--colour", "value"],
        lambda: draw.tv(TV, (16, 8)),
        {"colour": "value"},
    ),
    (
        ["swizzle", "2,0,3", "--layout", "(8,8):(8,1)"],
        lambda: ComposedLayout(Swizzle(2, 0, 3), 0, Layout((8, 8), (8, 1))),
        {},
    ),
    (
        ["swizzle", "3,4,3", "--layout", "(8,64):(64,1)", "--bits", "16"],
        lambda: ComposedLayout(recast(Swizzle(3, 4, 3), 8, 16), 0, Layout((8, 64), (64, 1))),
        {},
    ),
    (["instruction", MMA], lambda: instruction(MMA), {}),
    (
        ["instruction", MMA, "--operand", "b", "--lane", "5"],
        lambda: instruction(MMA),
        {"operand": "B", "lane": 5},
    ),
    (["instruction", MMA, "--element", "a", "3", "9"], lambda: instruction(MMA), {"element": ("A", 3, 9)}),
    (["atom", ATOM], lambda: atom(ATOM), {}),
    (["atom", LDSM, "--type", "half_t"], lambda: atom(LDSM, "half_t"), {}),
    (["tiled-mma", ATOM, "--atom-layout", "2,2"], lambda: make_tiled_mma(atom(ATOM), (2, 2)), {}),
    (
        ["tiled-mma", ATOM, "--atom-layout", "(2,2,1):(2,1,0)", "--permutation", "32,(8,2,2):(1,16,8),_"],
        lambda: make_tiled_mma(
            atom(ATOM), Layout((2, 2, 1), (2, 1, 0)), (32, Layout((8, 2, 2), (1, 16, 8)), None)
        ),
        {},
    ),
    (
        ["tiled-copy", LDSM, "--type", "f16", "--threads", "(16,2)", "--values", "(1,8)"],
        lambda: make_tiled_copy(atom(LDSM, "f16"), Layout((16, 2)), Layout((1, 8))),
        {},
    ),
    (["banks", "(8,64):(64,1)", "--bits", "16"], lambda: draw.bank_map(Layout((8, 64), (64, 1)), 16), {}),
    (
        ["banks", "Sw<3,3,3> o 0 o (8,64):(64,1)", "--bits", "16", "--unit", "element"],
        lambda: draw.bank_map(
            ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))), 16, unit="element"
        ),
        {},
    ),
]


@sampled(12)
@pytest.mark.parametrize(
    ("arguments", "drawn", "options"),
    CASES,
    ids=lambda value: "drawn" if callable(value) else str(value)[:50],
)
def test_text_and_files_are_the_library_s(
    answered: Callable[..., str],
    tmp_path: Path,
    arguments: list[Any],
    drawn: Callable[..., Any],
    options: dict[Any, Any],
) -> None:
    assert answered("draw", *arguments).rstrip() == draw.text(drawn(), **options).rstrip()
    for suffix, write in (
        (".svg", draw.svg),
        (".html", draw.html),
        (".tex", draw.latex),
        (".txt", draw.text),
    ):
        path = tmp_path / f"picture{suffix}"
        assert str(path) in answered("draw", *arguments, "-o", path)
        assert path.read_text(encoding="utf-8") == write(drawn(), **options)


def test_labels_can_be_left_out(answered: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    answered("draw", "layout", "(8,8)", "--no-labels", "-o", path)
    assert path.read_text() == draw.svg(Layout((8, 8)), labels=False)


def test_a_swizzle_alone_shows_one_period(answered: Callable[..., str]) -> None:
    swizzle = Swizzle(3, 3, 3)
    whole = ComposedLayout(swizzle, 0, Layout((8, swizzle.size() // 8), (swizzle.size() // 8, 1)))
    assert answered("draw", "swizzle", "3,3,3").rstrip() == draw.text(whole).rstrip()


@pytest.mark.parametrize(
    ("letter", "copy"),
    [("a", "SM75_U32x4_LDSM_N"), ("b", "SM75_U32x2_LDSM_N"), ("c", "UniversalCopy<float>")],
)
def test_the_copies_of_a_tiled_mma(answered: Callable[..., str], letter: str, copy: str) -> None:
    mma = "SM80_16x8x16_F32F16F16F32_TN"
    told = answered("draw", f"tiled-copy-{letter}", copy, "--mma", mma, "--atom-layout", "2,1,1")
    tiled = lw.make_tiled_mma(mma, (2, 1, 1))
    make = {"a": lw.make_tiled_copy_A, "b": lw.make_tiled_copy_B, "c": lw.make_tiled_copy_C}[letter]
    assert told == lw.draw.text(make(copy, tiled)).rstrip() + "\n"


def test_png_and_pdf_need_a_library(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        said = lanewise("draw", "swizzle", "2,0,2", "-o", tmp_path / f"swizzle{suffix}")
        try:
            import cairosvg  # noqa: F401  # whether it is there
        except (ImportError, OSError):
            assert said.code == 2 and "[pictures]'" in said.err
        else:
            assert (tmp_path / f"swizzle{suffix}").read_bytes().startswith(magic)


def test_an_instruction_or_atom_needs_no_command(lanewise: Callable[..., Any]) -> None:
    for words, text in (
        (["ldmatrix"], "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        (["ldmatrix", "x2", "trans"], "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"),
        (["m16n8k16", "bf16"], "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ([MMA], MMA),
    ):
        said = lanewise("draw", *words)
        assert said.code == 0 and said.out == draw.text(instruction(text)).rstrip() + "\n"
    assert lanewise("draw", ATOM).out == lanewise("draw", "atom", ATOM).out
    said = lanewise("draw", "layuot", "(8,8)")
    assert said.code == 2 and "layout" in said.err


def test_a_layout_alone_is_drawn(lanewise: Callable[..., Any]) -> None:
    assert lanewise("draw", "(4,8):(8,1)").out == lanewise("draw", "layout", "(4,8):(8,1)").out != ""
    assert "'(4,8):(8,1' is no layout" in lanewise("draw", "(4,8):(8,1").err
