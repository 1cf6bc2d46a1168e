"""Pictures as SVG, HTML, LaTeX and text: what users of this room call, and which picture an object has."""

from pathlib import Path
from typing import Unpack

from lanewise.atoms import Copy_Atom, CopyOperation, MMA_Atom
from lanewise.atoms.tmem import TensorMove
from lanewise.draw import atoms, banks, instructions, layouts, shared_memory, tcgen05, tensor_memory
from lanewise.draw.drawing import draw
from lanewise.draw.options import Choices, Options
from lanewise.draw.picture import Picture, cut
from lanewise.draw.write_latex import check_cells, to_latex
from lanewise.draw.write_svg import to_svg, xml
from lanewise.draw.write_text import to_text
from lanewise.errors import LanewiseError, install_command
from lanewise.isa import Instruction, Operand
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction, async_instruction
from lanewise.isa.matrix_descriptor import MatrixDescriptor
from lanewise.isa.tensor_map import TiledTensor
from lanewise.isa.tensor_memory.accumulators import Accumulator
from lanewise.layout import ComposedLayout, Layout, Swizzle, Tensor
from lanewise.tracebacks import short_traceback


def svg(thing: object, **options: Unpack[Choices]) -> str:
    """Return the picture of an object as SVG; `Options` lists the options.

    >>> from lanewise.layout import Layout
    >>> svg(Layout((4, 8), (8, 1))).startswith("<svg ")
    True
    """
    chosen = Options.of(options)
    picture = describe(thing, chosen)
    return to_svg(draw(picture, labels=chosen.labels), picture.title)


def html(thing: object, **options: Unpack[Choices]) -> str:
    """Return the picture of an object as an HTML page.

    >>> from lanewise.layout import Layout
    >>> html(Layout((4, 8), (8, 1))).startswith("<!DOCTYPE html>")
    True
    """
    chosen = Options.of(options)
    picture = describe(thing, chosen)
    drawing = draw(picture, labels=chosen.labels)
    return to_html(to_svg(drawing, picture.title), picture.title)


def latex(thing: object, *, standalone: bool = True, **options: Unpack[Choices]) -> str:
    """Return the picture of an object as a LaTeX document; with standalone=False as a tikzpicture alone.

    >>> from lanewise.layout import Layout
    >>> latex(Layout((4, 8), (8, 1))).splitlines()[2]
    '\\\\usepackage{tikz}'
    """
    chosen = Options.of(options)
    picture = describe(thing, chosen)
    check_cells(picture)
    return to_latex(draw(picture, labels=chosen.labels), picture.title, standalone=standalone)


def print_latex(thing: object, **options: Unpack[Choices]) -> None:
    """Print an object's picture as a LaTeX document."""
    print(latex(thing, **options), end="")


def text(thing: object, **options: Unpack[Choices]) -> str:
    """Return the picture of an object as plain text.

    >>> from lanewise.layout import Layout
    >>> print(text(Layout((2, 4), (4, 1))))  # doctest: +NORMALIZE_WHITESPACE
    Layout (2,4):(4,1)
    8 coordinates, 8 different indices, 0 to 7
    <BLANKLINE>
        2×4
    i\\j 0 1 2 3
      0 0 1 2 3
      1 4 5 6 7
    <BLANKLINE>
    Mode 0 runs down (i), mode 1 across (j). Each cell: its index.
    """
    chosen = Options.of(options)
    if not chosen.labels:
        raise LanewiseError("a text picture is its labels: leave labels=False to SVG and LaTeX")
    return to_text(describe(thing, chosen))


_WRITERS = {".svg": svg, ".html": html, ".htm": html, ".tex": latex, ".txt": text}
#: Formats that a library writes from the SVG: the extra `pictures` installs it.
_CONVERTED = {".png": "svg2png", ".pdf": "svg2pdf"}
_PIXELS_A_UNIT = 2.0


@short_traceback
def save(thing: object, path: str | Path, **options: Unpack[Choices]) -> Path:
    """Write the picture of an object to a file, as .svg, .html, .tex, .txt, .png or .pdf.

    .png and .pdf are made by CairoSVG, which `pip install 'lanewise[pictures]'` installs.

    >>> from lanewise.layout import Layout
    >>> save(Layout((4, 8)), "layout.svg")  # doctest: +SKIP
    >>> save(Layout((4, 8)), "a.jpg")
    Traceback (most recent call last):
        ...
    lanewise.errors.LanewiseError: a.jpg: pictures are written as .svg, .html, .htm, .tex, .txt, .png, .pdf
    """
    try:
        path = Path(path)
    except TypeError:
        order = f"; the path comes second: save(thing, {thing!r})" if isinstance(thing, str) else ""
        raise LanewiseError(f"a picture is saved to the path of a file, not to {path!r}{order}") from None
    suffix = path.suffix.lower()
    writer = _WRITERS.get(suffix)
    if writer is None and suffix not in _CONVERTED:
        raise LanewiseError(f"{path}: pictures are written as {', '.join((*_WRITERS, *_CONVERTED))}")
    picture = writer(thing, **options).encode() if writer else _converted(svg(thing, **options), suffix)
    try:
        path.write_bytes(picture)
    except OSError as error:
        reason = error.strerror if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise LanewiseError(f"{path} cannot be written: {reason}") from error
    return path


def _converted(picture: str, suffix: str) -> bytes:
    """An SVG as PNG or PDF."""
    try:
        import cairosvg
    except (ImportError, OSError) as error:  # OSError: the package is there, and the Cairo library is not
        raise LanewiseError(
            f"{suffix} pictures are made by CairoSVG: {install_command('pictures')} ({error}); "
            ".svg needs nothing more"
        ) from None
    convert = getattr(cairosvg, _CONVERTED[suffix])
    image: bytes = convert(bytestring=picture.encode(), scale=_PIXELS_A_UNIT if suffix == ".png" else 1.0)
    return image


def to_html(svg: str, title: str) -> str:
    """A standalone page with an SVG picture.

    >>> "<title>mma</title>" in to_html("<svg/>", "mma")
    True
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{xml(title)}</title>\n"
        "<style>body { margin: 0; background: #fff; color: #1a1a1a; } svg { display: block; }</style>\n"
        f"</head>\n<body>\n{svg}</body>\n</html>\n"
    )


def describe(thing: object, options: Options) -> Picture:
    """The picture of anything that has one; its wide panels cut, if that is asked for."""
    picture = _described(thing, options)
    columns = options.columns
    return picture if columns is None else cut(picture, lambda panel: columns)


def _described(thing: object, options: Options) -> Picture:
    """The picture of anything that has one, whole."""
    match thing:
        case Instruction(family="ldmatrix" | "stmatrix"):
            return instructions.picture_of_rows(thing, options)
        case Instruction(family="movmatrix"):
            return instructions.picture_of_transpose(thing, options)
        case Tcgen05Instruction():
            return tcgen05.picture_of_tensor_product(thing, options)
        case Instruction():
            return instructions.picture_of_product(thing, options)
        case AsyncInstruction():
            return tcgen05.picture_of_async(thing, options)
        case Accumulator():
            return tcgen05.picture_of_accumulator(thing, options)
        case MMA_Atom(instruction=Tcgen05Instruction() as product):
            return tcgen05.picture_of_tensor_product(product, options)
        case Copy_Atom(operation=CopyOperation(move=TensorMove(text=text))):
            return tcgen05.picture_of_async(async_instruction(text), options)
        case MMA_Atom():
            return atoms.picture_of_mma(thing, options)
        case Copy_Atom():
            return atoms.picture_of_copy(thing, options)
        case Operand():
            return instructions.picture_of_operand(thing, options)
        case layouts.TVLayout():
            return layouts.picture_of_tv(thing, options)
        case banks.BankMap():
            return banks.picture_of_banks(thing, options)
        case Layout() | ComposedLayout():
            return layouts.picture_of_layout(thing, options)
        case Swizzle():
            return layouts.picture_of_layout(layouts.one_period(thing), options)
        case Tensor():
            return layouts.picture_of_tensor(thing, options)
        case TiledTensor():
            return shared_memory.picture_of_tensor_map(thing, options)
        case MatrixDescriptor():
            return shared_memory.picture_of_matrix(shared_memory.described_matrix(thing), options)
        case shared_memory.DescribedMatrix():
            return shared_memory.picture_of_matrix(thing, options)
        case tensor_memory.TensorMemory():
            return tensor_memory.picture_of_memory(thing, options)
        case Picture():
            return thing
    tensor = getattr(thing, "tensor", None)
    if isinstance(tensor, TiledTensor):  # a tensor map of an array
        return shared_memory.picture_of_tensor_map(tensor, options)
    raise LanewiseError(
        f"{type(thing).__name__} has no picture: layouts, tensors, tv(layout, shape), "
        "bank_map(layout, bits), instructions, their operands, atoms, TiledMMA and TiledCopy, matrix "
        "descriptors and tensor maps have"
    )
