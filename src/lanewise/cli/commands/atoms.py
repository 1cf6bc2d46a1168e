"""`lanewise atoms`: CUTLASS's names of MMA and copy operations, with the instruction behind each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lanewise.cli.input.option_groups import with_groups
from lanewise.cli.input.options import StyleOptions
from lanewise.cli.terminal.answer import Answer, Table
from lanewise.cli.terminal.render import show, style_of

if TYPE_CHECKING:
    from lanewise.atoms import Copy_Atom, MMA_Atom


@with_groups
def atom_names(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="A part of the name; * and ? stand for anything.")
    ] = "*",
    *,
    shown: StyleOptions,
) -> Callable[[], None]:
    """List CUTLASS's atoms and the instructions behind them.

    \b
    lanewise atoms SM80                    every operation of sm80
    lanewise atoms "16x8x16*F32F16"        by shape and types
    lanewise atoms LDSM                    what stands for ldmatrix
    """
    from lanewise.atoms import atom, atoms

    style = style_of(**vars(shown))
    known = {name: atom(name) for name in atoms(pattern)}
    found = {name: each.instruction for name, each in known.items()}
    rows = [(name, form.text if form else _copied(known[name])) for name, form in found.items()]
    table = Table("", ("atom", "instruction"), rows, catalogue=True)
    data = [{"atom": name, "instruction": form.text if form else None} for name, form in found.items()]
    note = (
        f"{len(found)} atoms." if found else f"No atom has {pattern} in its name; * and ? stand for anything."
    )
    return partial(show, Answer((table,) if rows else (), data, (note,), table), style)


def _copied(found: MMA_Atom | Copy_Atom) -> str:
    """Return how the PTX of a copy that is no matrix instruction begins."""
    from lanewise.atoms import Copy_Atom

    return f"{found.operation.opcode}, no matrix instruction" if isinstance(found, Copy_Atom) else ""
