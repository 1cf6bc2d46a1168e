"""Atoms and layouts as C++ writes them, wherever an atom or a layout is taken."""

import pytest

import lanewise as lw
from lanewise.atoms import MMA_Atom, atom, atoms, make_tiled_copy, make_tiled_mma
from lanewise.cli import main
from lanewise.errors import LanewiseError
from lanewise.layout import Layout
from lanewise.layout.reading import read_layout

MMA = "SM80_16x8x16_F32F16F16F32_TN"


def test_atoms_in_their_templates() -> None:
    for text in (f"MMA_Atom<{MMA}>", f"cute::MMA_Atom<cute::{MMA}>{{}}", f"MMA_Atom<MMA_Traits<{MMA}>>"):
        assert atom(text) == atom(MMA) == MMA_Atom(text)
        assert make_tiled_mma(text, (2, 2, 1)) == make_tiled_mma(MMA, (2, 2, 1))
    load = atom("SM75_U32x4_LDSM_N", "half_t")
    assert (
        atom("Copy_Atom<SM75_U32x4_LDSM_N, half_t>")
        == atom("Copy_Atom<SM75_U32x4_LDSM_N, cute::half_t>")
        == load
    )
    assert atom("Copy_Atom<UniversalCopy<uint128_t>, half_t>") == atom("UniversalCopy<uint128_t>", "half_t")
    with pytest.raises(LanewiseError, match="an operation stands in the brackets"):
        atom("MMA_Atom<>")


def test_layouts_as_text() -> None:
    expected = Layout((4, 8), (1, 4))
    for text in (
        "(4,8):(1,4)",
        "(_4,_8):(_1,_4)",
        "Layout<Shape<_4,_8>, Stride<_1,_4>>",
        "cute::Layout<cute::Shape<cute::_4, Int<8>>, cute::Stride<_1, C<4>>>{}",
        "Layout<tuple<_4,_8>>",
    ):
        assert Layout(text) == expected == read_layout(text)
    nested = Layout("Layout<Shape<Shape<_4,_8>,_2>, Stride<Stride<_32,_1>,_16>>")
    assert nested == Layout(((4, 8), 2), ((32, 1), 16))
    copy = make_tiled_copy("Copy_Atom<UniversalCopy<uint128_t>, half_t>", "(16,8):(8,1)", "(1,8)")
    assert copy == make_tiled_copy(
        "UniversalCopy<uint128_t>", Layout((16, 8), (8, 1)), Layout((1, 8)), "half_t"
    )
    swizzled = read_layout("ComposedLayout<Swizzle<3,4,3>, Int<0>, Layout<Shape<_8,_64>, Stride<_64,_1>>>")
    assert swizzled == read_layout("Sw<3,4,3> o 0 o (8,64):(64,1)")


@pytest.mark.parametrize(
    "text", ["(4,8", "Layout<Shape<_4>", "Layout<Shape<_4>, Stride<_1>, _2>", "abc", "Shape<>", ""]
)
def test_text_that_is_no_layout(text: str) -> None:
    with pytest.raises(LanewiseError):
        Layout(text)


def test_text_and_a_stride_exclude_each_other() -> None:
    with pytest.raises(LanewiseError):
        Layout("(4,8)", (1, 4))


def test_explain_takes_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of every kind: of those that are alike but for their sizes, one."""
    names = [name for name in atoms() if "GMMA" not in name and "F32F16" not in name]
    for name in [
        *names[::40],
        *atoms("TMA_LOAD"),
        *atoms("CP_ASYNC"),
        "UniversalCopy<uint64_t>",
        f"MMA_Atom<{MMA}>",
    ]:
        assert main(["explain", name]) == 0, name
    said = capsys.readouterr()
    assert said.err == "" and "SM80_CP_ASYNC_CACHEALWAYS" in said.out


def test_formats_of_copies_by_other_names() -> None:
    assert atom("SM75_U32x4_LDSM_N", "fp16").ValType == lw.atom("SM75_U32x4_LDSM_N", "half_t").ValType
