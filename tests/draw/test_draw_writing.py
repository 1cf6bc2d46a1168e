"""The outputs themselves: LaTeX compiles, HTML stands alone, and what cannot be drawn is refused."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lanewise.draw import bank_map, html, latex, print_latex, save, svg, text, tv
from lanewise.errors import LanewiseError
from lanewise.isa import instruction
from lanewise.layout import Layout, Swizzle, Tensor, composition, make_identity_layout

MMA = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
WGMMA = instruction("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
PICTURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mma": (MMA, {}),
    "mma lane": (MMA, {"lane": 5, "element": ("B", 3, 4)}),
    "sparse": (instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"), {}),
    "ldmatrix": (instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), {}),
    "wgmma": (instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", a_source="registers"), {}),
    "layout": (Layout((4, 8), (8, 1)), {}),
    "largest": (Layout((64, 64), (64, 1)), {}),
    "swizzle": (composition(Swizzle(2, 0, 3), Layout((8, 8), (8, 1))), {"element": (1, 1)}),
    "tensor": (Tensor(["$x^2_1$", "50%", "a&b#c", "{\\~}", "→é…", '"'], Layout((2, 3))), {}),
    "tv": (tv(Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))), (16, 8)), {"labels": False}),
    "banks": (bank_map(composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))), 16, phase=(0, 1)), {}),
}


def words_of(tex: str) -> Any:
    return Counter(re.findall(r"\\lwmiddle\{([^{}]*)\}", tex))


def test_latex_has_every_label_as_often_as_svg() -> None:
    for thing, options in (PICTURES["mma"], PICTURES["layout"]):
        drawn = re.findall(r"<tspan[^>]*>([^<]*)</tspan>", svg(thing, **options))
        inside = [word for word in drawn if re.fullmatch(r"[TV]?\d+", word)]
        written = {w: n for w, n in words_of(latex(thing, **options)).items() if re.fullmatch(r"[TV]?\d+", w)}
        rows = Counter(re.findall(r"\\lwend\{(\d+)\}", latex(thing, **options)))
        assert Counter(written) + rows == Counter(inside)


@pytest.mark.parametrize("name", PICTURES)
def test_latex_is_balanced_and_plain(name: str) -> None:
    thing, options = PICTURES[name]
    tex = latex(thing, **options)
    assert tex.isascii()
    assert tex.startswith("\\documentclass") and tex.rstrip().endswith("\\end{document}")
    assert Counter(re.findall(r"\\begin\{(\w+)\}", tex)) == Counter(re.findall(r"\\end\{(\w+)\}", tex))
    assert tex.count("{") == tex.count("}")


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed: LaTeX is only read, not run"
)
def test_latex_compiles(tmp_path: Any) -> None:
    """All of them in one document, to start pdflatex once."""
    head, _, tail = latex(MMA).partition("\\begin{tikzpicture}")
    head = re.sub(r"paperwidth=.*?,paperheight=.*?,", "paperwidth=180cm,paperheight=120cm,", head)
    pictures = "\n\n\\newpage\n".join(latex(t, standalone=False, **o) for t, o in PICTURES.values())
    tail = tail[tail.rindex("\\end{document}") :]
    (tmp_path / "all.tex").write_text(f"{head}\\relax\n{pictures}\n{tail}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert run.returncode == 0, run.stdout[-2000:]
    assert f"({len(PICTURES)} pages" in run.stdout
    assert "Missing character" not in run.stdout and "Overfull" not in run.stdout


def test_print_latex_prints_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_latex(Layout((4, 8)))
    assert capsys.readouterr().out == latex(Layout((4, 8)))
    bank_map(Layout((8, 64), (64, 1)), 16).print_latex()
    assert capsys.readouterr().out.startswith("\\documentclass")


@pytest.mark.parametrize("extent", [(65, 1), (1, 65), (65, 65)])
def test_latex_beyond_64_points_to_svg(extent: tuple[Any, ...]) -> None:
    with pytest.raises(LanewiseError, match=r"64×64.*SVG"):
        latex(Layout(extent))
    assert svg(Layout(extent)).startswith("<svg ")
    with pytest.raises(LanewiseError, match="SVG"):
        latex(WGMMA)


@pytest.mark.parametrize(
    "layout", [Layout(257), Layout((4, 100000)), Layout((10**9, 10**9)), Layout((2, 40, 40))]
)
def test_huge_layouts_are_refused_at_once(layout: Layout) -> None:
    for write in (svg, latex, text, html):
        with pytest.raises(LanewiseError, match="256×256"):
            write(layout)


def test_html_is_a_page_with_the_picture() -> None:
    class Page(HTMLParser):
        tags: list[str] = []  # noqa: RUF012 (one page is read)

        def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
            self.tags.append(tag)

    page = html(Layout((4, 8)))
    Page().feed(page)
    assert page.startswith("<!DOCTYPE html>") and Page.tags.count("svg") == 1
    assert svg(Layout((4, 8))) in page
    assert not re.search(r"(src|href)=", page)


@pytest.mark.parametrize(
    ("suffix", "write"), [(".svg", svg), (".html", html), (".tex", latex), (".txt", text)]
)
def test_save_goes_by_suffix(tmp_path: Path, suffix: str, write: Callable[..., Any]) -> None:
    path = save(MMA, tmp_path / f"picture{suffix}", lane=5)
    assert path.read_text(encoding="utf-8") == write(MMA, lane=5)


def test_svg_is_white_behind_and_has_no_style_sheet() -> None:
    drawn = svg(MMA)
    assert re.search(r'<rect width="\d+" height="\d+" fill="#ffffff"/>', drawn)
    assert "<style" not in drawn and "class=" not in drawn


def test_the_legend_names_every_colour_used() -> None:
    for thing, options in PICTURES.values():
        drawn = svg(thing, hover=False, **options)
        head, *panels = drawn.split("<g data-panel=")[1:]
        known = set(re.findall(r'fill="(#\w+)" d=', head)) | {"#ececec", "#fafafa"}  # shared memory, faded
        assert {colour for panel in panels for colour in re.findall(r'fill="(#\w+)" d=', panel)} <= known


REFUSED = [
    (3, {}, "no picture"),
    (None, {}, "no picture"),
    (MMA, {"nonsense": 1}, "options are lane, operand"),
    (MMA, {"lane": 32}, "0 to 31"),
    (MMA, {"lane": -1}, "0 to 31"),
    (MMA, {"lane": "x"}, "not an integer"),
    (MMA, {"operand": "Q"}, "has no operand 'Q'"),
    (MMA, {"operand": 7}, "not a name"),
    (MMA, {"element": (1, 2)}, "name the matrix"),
    (MMA, {"element": ("E", 1, 2)}, "the picture has A, B, C, D"),
    (MMA, {"element": ("A", 16, 0)}, "A is 16×16"),
    (MMA, {"element": ("B", 0, 8)}, "B is 16×8"),
    (MMA, {"element": "A"}, "give"),
    (MMA, {"operand": "A", "element": ("B", 0, 0)}, "the picture has A"),
    (MMA, {"colour": "red"}, "thread, value, register"),
    (MMA, {"product": 1}, "product"),
    (MMA.a, {"operand": "B"}, "of A alone"),
    (Layout((4, 8)), {"lane": 1}, "means nothing"),
    (Layout((4, 8)), {"element": (4, 0)}, "4×8"),
    (Tensor([1, 2], Layout(4)), {}, "outside"),
    (tv(Layout((4, 8)), (4, 4)), {}, "outside the 4×4"),
    (tv(Layout((4, 4)), (4, 4)), {"colour": "register"}, "registers"),
    (bank_map(Layout((8, 8)), 16), {"lane": 3}, "means nothing"),
]


@pytest.mark.parametrize(("thing", "options", "message"), REFUSED)
def test_what_cannot_be_drawn_is_explained(thing: Any, options: dict[Any, Any], message: str) -> None:
    for write in (svg, latex, text):
        with pytest.raises(LanewiseError, match=re.escape(message)):
            write(thing, **options)


def test_objects_that_cannot_be_made() -> None:
    for make, message in (
        (lambda: tv(Layout(4), (4, 4)), "two modes"),
        (lambda: tv(Layout((4, 8)), 32), "rows, columns"),
        (lambda: bank_map(Layout(8), 12), "element_bits"),
        (lambda: bank_map(7, 16), "takes a layout"),
        (lambda: bank_map(make_identity_layout((4, 4)), 16), "shared memory"),
        (lambda: bank_map(Layout((4, 4)), 16, unit="chunk"), "16 bytes"),
        (lambda: bank_map(Layout((8, 64), (64, 1)), 16, phase=(1, 0)), "1×8 phases"),
        (lambda: bank_map(Layout((8, 64), (64, 1)), 16, unit="row"), "element"),
        (lambda: text(MMA, labels=False), "labels"),
        (lambda: save(MMA, "picture.jpg"), ".svg, .html"),
        (lambda: save(MMA, 5), "the path of a file"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: save(MMA, "/no/such/folder/picture.svg"), "cannot be written"),
    ):
        with pytest.raises(LanewiseError, match=message):
            make()
