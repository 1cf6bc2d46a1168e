"""Options of `lanewise draw` that several of its commands share, declared once."""

from pathlib import Path
from typing import Annotated

import typer

from lanewise.cli.input.option_groups import valued

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
OperandName = Annotated[str | None, valued("--operand", "OPERAND", "Draw this operand alone.")]
CopiedType = Annotated[str | None, valued("--type", "TYPE", "What a copy moves: f16, half_t, float, 16, …")]
MmaName = Annotated[str, valued("--mma", "ATOM", "CUTLASS's name of the MMA atom.", show_default=False)]
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
