"""Options of `lanewise draw` that several of its commands share, declared once."""

from pathlib import Path
from typing import Annotated

import typer

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
    str | None,
    typer.Option(
        "--colour",
        metavar="BY",
        help="What the colours stand for: thread, value or register.",
        show_default=False,
    ),
]
Labels = Annotated[
    bool,
    typer.Option(
        "--labels/--no-labels",
        help="Write the thread and the value, or the index, into each cell.",
        show_default=False,
    ),
]
Lane = Annotated[
    int | None,
    typer.Option("--lane", metavar="LANE", help="Mark the elements of this lane.", show_default=False),
]
OperandName = Annotated[
    str | None,
    typer.Option("--operand", metavar="OPERAND", help="Draw this operand alone.", show_default=False),
]
CopiedType = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="What a copy moves: f16, half_t, float, 16, …",
        show_default=False,
    ),
]
MmaName = Annotated[
    str, typer.Option("--mma", metavar="ATOM", help="CUTLASS's name of the MMA atom.", show_default=False)
]
AtomLayout = Annotated[
    str,
    typer.Option(
        "--atom-layout", metavar="M,N,K", help="How many atoms along M, N and K, or a layout of them."
    ),
]
Permutation = Annotated[
    str | None,
    typer.Option(
        "--permutation",
        metavar="M,N,K",
        help="The tile along M, N and K. Each may be a layout; _ keeps it as it is.",
        show_default=False,
    ),
]
Columns = Annotated[
    int | None,
    typer.Option(
        "--columns",
        metavar="N",
        help="Cut what is wider than N columns into pieces below one another.",
        show_default=False,
    ),
]
Bits = Annotated[int, typer.Option("--bits", metavar="BITS", help="The size of an element in bits.")]
