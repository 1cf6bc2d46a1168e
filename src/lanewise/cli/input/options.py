"""Options that several commands share, declared once."""

from dataclasses import dataclass
from typing import Annotated

import typer

from lanewise.cli.input.option_groups import flag, valued

_STYLE = "How the answer is written"

_INSTRUCTION_HELP = (
    "PTX (its words in any order, operands may follow), words that name it such as m16n8k16 bf16, or the "
    "name of a CUTLASS atom."
)
#: An instruction in one argument, where other arguments follow it.
InstructionText = Annotated[str, typer.Argument(metavar="INSTRUCTION", help=_INSTRUCTION_HELP)]
#: An instruction in as many words as the user writes, with or without quotes.
InstructionWords = Annotated[list[str], typer.Argument(metavar="INSTRUCTION...", help=_INSTRUCTION_HELP)]
ArchName = Annotated[
    str | None, valued("--arch", "ARCH", "An arch such as sm_86, or a GPU such as 'RTX 4090'.")
]
AsJson = Annotated[bool, flag("--json", "Write JSON.", panel=_STYLE)]
AsCsv = Annotated[bool, flag("--csv", "Write CSV, one table.", panel=_STYLE)]
AsMarkdown = Annotated[bool, flag("--markdown", "Write Markdown tables.", panel=_STYLE)]
ASource = Annotated[
    str | None,
    valued("--a-source", "WHERE", "Of wgmma: A is in 'registers' or behind a 'descriptor' (the default)."),
]
Descriptor = Annotated[
    str | None,
    valued("--descriptor", "BITS", "Of tcgen05.mma: its instruction descriptor, 32 bits such as 0x8400490."),
]
Stride = Annotated[
    bool | None,
    flag(
        "--stride/--no-stride",
        "Of wmma.load and wmma.store: the form with a stride operand (the default) or the one without.",
    ),
]


@dataclass(frozen=True)
class StyleOptions:
    """The options that say in which form an answer is written."""

    json: AsJson = False
    csv: AsCsv = False
    markdown: AsMarkdown = False
