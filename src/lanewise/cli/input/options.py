"""Options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

_STYLE = "How the answer is written"

InstructionText = Annotated[
    str,
    typer.Argument(
        metavar="INSTRUCTION",
        help="PTX text, modifiers in any order, operands allowed after it; or the name of a CUTLASS atom.",
        show_default=False,
    ),
]
ArchName = Annotated[
    str | None,
    typer.Option("--arch", metavar="ARCH", help="An arch such as sm_86 or sm_90a.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.", rich_help_panel=_STYLE)]
AsCsv = Annotated[bool, typer.Option("--csv", help="Write CSV, one table.", rich_help_panel=_STYLE)]
AsMarkdown = Annotated[
    bool, typer.Option("--markdown", help="Write Markdown tables.", rich_help_panel=_STYLE)
]
ASource = Annotated[
    str | None,
    typer.Option(
        "--a-source",
        metavar="WHERE",
        help="wgmma: A from 'registers' or behind a 'descriptor' (the default).",
        show_default=False,
    ),
]
Stride = Annotated[
    bool | None,
    typer.Option(
        "--stride/--no-stride",
        help="wmma.load and store: with a stride operand (the default) or without.",
        show_default=False,
    ),
]
