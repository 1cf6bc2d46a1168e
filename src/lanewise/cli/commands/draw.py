"""`lanewise draw`: layouts, atoms, tilings, swizzles, instructions and banks, as text or into a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from lanewise.cli.explanation.holdings import operand_named
from lanewise.cli.input.encoded import drawable, instruction_descriptor, read_encoded
from lanewise.cli.input.options import (
    ASource,
    Descriptor,
    InstructionWords,
    Stride,
    flag,
    valued,
    with_groups,
)
from lanewise.cli.input.subject import atom_named, instruction_named, usual_instruction
from lanewise.errors import LanewiseError
from lanewise.hints import nearest
from lanewise.isa.asynchronous import is_asynchronous
from lanewise.isa.naming.shorthand import is_cutlass_name, possible_texts
from lanewise.layout import ComposedLayout, Layout, recast
from lanewise.layout.reading import read_integers, read_layout, read_plain_layout, read_swizzle
from lanewise.layout.text import at_commas

if TYPE_CHECKING:
    from lanewise.isa import Instruction

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the picture to a .svg, .tex, .txt, .html, .png or .pdf file; without -o, print text.",
        show_default=False,
    ),
]
LayoutText = Annotated[
    str, typer.Argument(metavar="LAYOUT", help="shape:stride, such as (8,64):(64,1).", show_default=False)
]
AtomName = Annotated[
    str, typer.Argument(metavar="ATOM", help="CUTLASS's name of the atom.", show_default=False)
]
Colour = Annotated[
    str | None, valued("--colour", "BY", "What the colours stand for: thread, value or register.")
]
Labels = Annotated[
    bool,
    typer.Option(
        "--labels/--no-labels",
        help="Write the thread and the value, or the index, into each cell.",
        show_default=False,
    ),
]
Lane = Annotated[int | None, valued("--lane", "LANE", "Mark the elements of this lane.")]
CopiedType = Annotated[str | None, valued("--type", "TYPE", "What a copy moves: f16, half_t, float, 16, …")]
AtomLayout = Annotated[
    str, valued("--atom-layout", "M,N,K", "How many atoms along M, N and K, or a layout of them.")
]
Permutation = Annotated[
    str | None,
    valued("--permutation", "M,N,K", "The tile along M, N and K. Each may be a layout; _ keeps it as it is."),
]
Columns = Annotated[
    int | None, valued("--columns", "N", "Cut what is wider than N columns into pieces below one another.")
]
Bits = Annotated[int, valued("--bits", "BITS", "The size of an element in bits.")]


#: The most atoms, threads, values a thread, or places along M, N or K of a tile to be drawn.
_MOST = 1024


class _DrawGroup(TyperGroup):
    """The commands under `lanewise draw`; a word that is none names an instruction, an atom or a layout."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command that is implied before its first word: `draw ldmatrix`, `draw SM80_…`."""
        first = args[0] if args else ""
        if first and first[0] != "-" and first not in self.commands:
            if first[0] == "(":
                args = ["layout", *args]
            elif is_cutlass_name(first):
                args = ["atom", *args]
            elif _begins_instruction(first) or not nearest(first, self.commands):
                args = ["instruction", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def _begins_instruction(word: str) -> bool:
    """Whether a word is the text of an instruction, or one by which instructions are named."""
    try:
        return (
            is_asynchronous(f"{word} ") or bool(possible_texts(word)) or instruction_named(word) is not None
        )
    except LanewiseError:
        return False


def draw_app() -> typer.Typer:
    """The commands under `lanewise draw`."""
    app = typer.Typer(help=_HELP, cls=_DrawGroup)
    for name, function in (
        ("layout", layout),
        ("atom", atom),
        ("tiled-mma", tiled_mma),
        ("tiled-copy", tiled_copy),
        ("tiled-copy-a", _copy_of_tiled_mma("A", "SM75_U32x4_LDSM_N")),
        ("tiled-copy-b", _copy_of_tiled_mma("B", "SM75_U32x2_LDSM_N")),
        ("tiled-copy-c", _copy_of_tiled_mma("C", '"UniversalCopy<float>"')),
        ("swizzle", swizzle),
        ("instruction", instruction),
        ("banks", banks),
        ("descriptor", descriptor),
        ("tensor-map", tensor_map),
    ):
        app.command(name)(function)
    return app


_HELP = """Draw layouts, atoms, tilings, swizzles, instructions, banks, descriptors, tensor maps.

\b
lanewise draw layout "((4,8),(2,2)):((32,1),(16,8))"
lanewise draw instruction mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 -o mma.svg
lanewise draw ldmatrix x4
lanewise draw m16n8k16 bf16 -o bf16.svg
lanewise draw atom SM80_16x8x16_F32F16F16F32_TN -o atom.tex
lanewise draw tiled-mma SM80_16x8x16_F32F16F16F32_TN --atom-layout 2,2,1 -o tiled.svg
lanewise draw swizzle 3,4,3 --layout "(8,64):(64,1)" --bits 16 -o swizzle.html
lanewise draw descriptor 0x4000004000000040 -o descriptor.svg
"""


def _drawn(picture: Any, output: Path | None, **options: Any) -> Callable[[], None]:
    from lanewise import draw

    defaults = {"labels": True, "inputs": False}
    chosen = {name: value for name, value in options.items() if value is not None}
    chosen = {name: value for name, value in chosen.items() if value is not defaults.get(name)}
    if output is not None:
        draw.save(picture, output, **chosen)
        return lambda: print(f"{output}: drawn")
    text = draw.text(picture, **chosen).rstrip()
    return lambda: print(text)


@dataclass(frozen=True)
class PictureOptions:
    """Where a picture of threads and their values goes, and how it looks."""

    output: Output = None
    lane: Lane = None
    colour: Colour = None
    labels: Labels = True


def layout(
    layout: LayoutText,
    output: Output = None,
    tv: Annotated[
        str | None,
        valued(
            "--tv",
            "ROWS,COLS",
            "Read the layout as a map from (thread, value) to the elements of a matrix of this size.",
        ),
    ] = None,
    columns: Columns = None,
    colour: Colour = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw a layout: its indices, or who owns what.

    \b
    lanewise draw layout "(8,8):(8,1)"
    lanewise draw layout "Sw<2,0,3> o 0 o (8,8):(8,1)" -o swizzled.svg
    lanewise draw layout "((4,8),(2,2)):((32,1),(16,8))" --tv 16,8 -o c.svg
    """
    drawn: object = read_layout(layout)
    if tv is not None:
        from lanewise import draw

        drawn = draw.tv(drawn, read_integers(tv, "the size of a matrix"))
    return _drawn(drawn, output, colour=colour, columns=columns, labels=labels)


def atom(
    name: AtomName,
    output: Output = None,
    type: CopiedType = None,
    lane: Lane = None,
    colour: Colour = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw an MMA atom or a copy atom.

    C at the origin, A left of it, B above; of a copy the source beside the destination.

    \b
    lanewise draw atom SM80_16x8x16_F32F16F16F32_TN -o atom.svg
    lanewise draw atom SM75_U32x4_LDSM_N
    lanewise atoms SM80                              which names there are
    """
    return _drawn(atom_named(name, type), output, lane=lane, colour=colour, labels=labels)


def tiled_mma(
    name: AtomName,
    output: Output = None,
    atom_layout: AtomLayout = "1,1,1",
    permutation: Permutation = None,
    lane: Lane = None,
    colour: Colour = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw a TiledMMA: atoms over threads, and their tile.

    \b
    lanewise draw tiled-mma SM80_16x8x16_F32F16F16F32_TN --atom-layout 2,2,1 -o tiled.svg
    lanewise draw tiled-mma SM80_16x8x16_F32F16F16F32_TN --atom-layout 2,2,1 --permutation 32,32,16 -o t.svg
    """
    from lanewise.atoms import make_tiled_mma

    tiled = make_tiled_mma(atom_named(name), _atom_layout(atom_layout), _permutation(permutation))
    return _drawn(tiled, output, lane=lane, colour=colour, labels=labels)


@with_groups
def tiled_copy(
    name: AtomName,
    threads: Annotated[
        str, valued("--threads", "LAYOUT", "The layout of the threads, from (M, N) to the thread.")
    ],
    values: Annotated[
        str, valued("--values", "LAYOUT", "The layout of a thread's values, from (M, N) to the value.")
    ] = "(1,1)",
    type: CopiedType = None,
    *,
    picture: PictureOptions,
) -> Callable[[], None]:
    """Draw a TiledCopy: source beside destination.

    \b
    lanewise draw tiled-copy SM75_U32x4_LDSM_N --type f16 --threads "(16,2)" --values "(1,8)" -o copy.svg
    lanewise draw tiled-copy "UniversalCopy<uint128_t>" --type f32 --threads "(4,8):(8,1)" --values "(1,4)"
    """
    from lanewise.atoms import make_tiled_copy

    copy = atom_named(name, type)
    thr_layout = _drawable(read_plain_layout(threads), "threads")
    tiled = make_tiled_copy(copy, thr_layout, _drawable(read_plain_layout(values), "values a thread"))
    return _drawn(tiled, **vars(picture))


def _copy_of_tiled_mma(letter: str, copy_atom: str) -> Callable[..., Callable[[], None]]:
    """Return the command that draws the copy of an operand of a tiled MMA; its help copies by `copy_atom`."""
    small = letter.lower()

    @with_groups
    def command(
        name: AtomName,
        mma: Annotated[str, valued("--mma", "ATOM", "CUTLASS's name of the MMA atom.", show_default=False)],
        atom_layout: AtomLayout = "1,1,1",
        permutation: Permutation = None,
        *,
        picture: PictureOptions,
    ) -> Callable[[], None]:
        from lanewise import atoms

        tiled = atoms.make_tiled_mma(atom_named(mma), _atom_layout(atom_layout), _permutation(permutation))
        return _drawn(getattr(atoms, f"make_tiled_copy_{letter}")(name, tiled), **vars(picture))

    command.__doc__ = f"""Draw the copy of a tiled MMA's {letter} (make_tiled_copy_{letter}).

    \b
    lanewise draw tiled-copy-{small} {copy_atom} --mma SM80_16x8x16_F32F16F16F32_TN -o {small}.svg
    """
    return command


def swizzle(
    swizzle: Annotated[
        str, typer.Argument(metavar="SWIZZLE", help="Bits, base, shift, such as 3,4,3.", show_default=False)
    ],
    layout: Annotated[
        str | None, valued("--layout", "LAYOUT", "The layout it is applied to; one period of it by default.")
    ] = None,
    bits: Annotated[
        int | None,
        valued(
            "--bits", "BITS", "Size of an element: the swizzle then is on bytes, as TMA and wgmma have it."
        ),
    ] = None,
    output: Output = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw a layout under a swizzle.

    \b
    lanewise draw swizzle 3,4,3 --layout "(8,64):(64,1)" --bits 16 -o swizzle.svg
    lanewise draw swizzle 2,0,3 --layout "(8,8):(8,1)"
    """
    pattern = read_swizzle(swizzle) if bits is None else recast(read_swizzle(swizzle), 8, bits)
    drawn = pattern if layout is None else ComposedLayout(pattern, 0, read_plain_layout(layout))
    return _drawn(drawn, output, labels=labels)


@dataclass(frozen=True)
class MarkOptions:
    """What is marked in a picture of an instruction, and of which operand."""

    operand: Annotated[str | None, valued("--operand", "OPERAND", "Draw this operand alone.")] = None
    lane: Lane = None
    element: Annotated[
        tuple[str, int, int] | None, valued("--element", "OPERAND ROW COL", "Mark one element.")
    ] = None
    product: Annotated[int | None, valued("--product", "Q", "Which product of Volta's m8n8k4.")] = None
    inputs: Annotated[
        bool, flag("--inputs", "With --element D: mark the row of A and the column of B that make it.")
    ] = False

    def of(self, drawn: Instruction) -> MarkOptions:
        """Return the same with the names that an instruction's operands have: `--operand a` means A."""
        operand = operand_named(drawn, self.operand).name if self.operand is not None else None
        element = self.element
        if element is not None:
            element = (operand_named(drawn, element[0]).name, *element[1:])
        return replace(self, operand=operand, element=element)


@with_groups
def instruction(
    words: InstructionWords,
    output: Output = None,
    *,
    marked: MarkOptions,
    columns: Columns = None,
    colour: Colour = None,
    labels: Labels = True,
    a_source: ASource = None,
    stride: Stride = None,
    descriptor: Descriptor = None,
) -> Callable[[], None]:
    """Draw an instruction: which lane holds which element.

    \b
    MMA=mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    lanewise draw instruction $MMA -o mma.svg
    lanewise draw instruction $MMA --operand A --lane 5
    lanewise draw instruction $MMA --element D 3 4 --inputs -o inputs.svg
    lanewise draw instruction ldmatrix.sync.aligned.m8n8.x4.shared.b16 -o ldmatrix.svg
    lanewise draw instruction wgmma m64n256k16 bf16 --operand D --columns 64 -o wide.svg
    lanewise draw instruction tcgen05 m256n32k16 bf16 -o pair.svg
    lanewise draw instruction tcgen05.ld.sync.aligned.16x256b.x2.b32 --lane 5
    """
    text = " ".join(words)
    drawn: Any
    if is_asynchronous(text):
        drawn = instruction_named(
            text, a_source=a_source, stride=stride, descriptor=instruction_descriptor(descriptor)
        )
    elif descriptor is not None:
        raise LanewiseError(f"--descriptor is for tcgen05.mma; {text} has no instruction descriptor")
    else:
        drawn = usual_instruction(text, a_source=a_source, stride=stride)
        marked = marked.of(drawn)
    return _drawn(drawn, output, **vars(marked), columns=columns, colour=colour, labels=labels)


def banks(
    layout: LayoutText,
    bits: Bits = 16,
    unit: Annotated[
        str,
        valued(
            "--unit",
            "UNIT",
            "Draw by 'element', or by 'chunk' of 16 bytes as ldmatrix reads.",
            show_default=False,
        ),
    ] = "",
    output: Output = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw the shared-memory banks of a layout.

    \b
    lanewise draw banks "(8,64):(64,1)" --bits 16 -o banks.svg
    lanewise draw banks "Sw<3,3,3> o 0 o (8,64):(64,1)" --bits 16
    """
    from lanewise import draw

    return _drawn(draw.bank_map(read_layout(layout), bits, unit=unit), output, labels=labels)


def descriptor(
    descriptor: Annotated[
        str, typer.Argument(metavar="DESCRIPTOR", help="64 bits, such as 0x4000004000000040.")
    ],
    rows: Annotated[int, valued("--rows", "ROWS", "Rows of the operand: M of A, N of B.")] = 64,
    k: Annotated[int | None, valued("--k", "K", "Its K; 32 bytes by default.")] = None,
    bits: Bits = 16,
    major: Annotated[str, valued("--major", "MAJOR", "K or MN: along which elements adjoin.")] = "K",
    output: Output = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw the matrix that a descriptor of wgmma or tcgen05 names.

    \b
    lanewise draw descriptor 0x4000004000000040
    lanewise draw descriptor 0x4000004001000040 --bits 16 --major MN -o descriptor.svg
    """
    from lanewise import draw

    encoded = read_encoded(descriptor)
    if not isinstance(encoded, int):
        raise LanewiseError(
            f"{descriptor!r} is no matrix descriptor: give 64 bits, such as 0x4000004000000040"
        )
    return _drawn(draw.described_matrix(encoded, rows, k, bits, major.upper()), output, labels=labels)


def tensor_map(
    tensor_map: Annotated[
        str,
        typer.Argument(metavar="MAP", help="A file of 128 bytes or of hexadecimal words; or these words."),
    ],
    output: Output = None,
    labels: Labels = True,
) -> Callable[[], None]:
    """Draw the boxes of a tensor map.

    A second picture shows how a box lies in shared memory.

    \b
    lanewise draw tensor-map map.bin -o map.svg
    """
    encoded = read_encoded(tensor_map)
    if not isinstance(encoded, bytes):
        raise LanewiseError("a tensor map is 128 bytes: give a file that has them, or 256 hexadecimal digits")
    return _drawn(drawable(encoded), output, labels=labels)


def _drawable(layout: Layout, what: str) -> Layout:
    """A layout of what tiles are made of, if a picture could show that many."""
    if layout.size() > _MOST:
        raise LanewiseError(f"{layout} has {layout.size()} {what}; up to {_MOST} can be drawn")
    return layout


def _atom_layout(text: str) -> object:
    """A layout of atoms, or how many of them stand along M, N and K."""
    if ":" in text:
        return _drawable(read_plain_layout(text), "atoms")
    return _drawable(Layout(read_integers(text, "an atom layout")), "atoms").shape


def _permutation(text: str | None) -> object:
    """Three modes, each a number, a layout, or _ for none."""
    if text is None:
        return None
    modes = at_commas(text)
    if len(modes) != 3:
        raise LanewiseError(
            f"{text!r} is no permutation; give M, N and K, such as 32,32,16 or _,(8,2):(1,8),_"
        )
    return tuple(None if mode in ("_", "") else _mode(mode) for mode in modes)


def _mode(text: str) -> object:
    drawable = _drawable(read_plain_layout(text), "places")
    return drawable.shape if ":" not in text and isinstance(drawable.shape, int) else drawable
