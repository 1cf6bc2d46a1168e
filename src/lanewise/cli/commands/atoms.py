"""`lanewise atoms`: CUTLASS's names of MMA and copy operations, with the instruction behind each."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lanewise.cli.input.options import StyleOptions, with_groups
from lanewise.cli.terminal.answer import Answer, Table, show, style_of

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
    rows = [(name, _instruction_text(atom_) or _copied(atom_)) for name, atom_ in known.items()]
    table = Table("", ("atom", "instruction"), rows, catalogue=True)
    data = [{"atom": name, "instruction": _instruction_text(known[name])} for name in known]
    if known:
        note = f"{len(known)} atoms."
    else:
        beginnings = {name.replace("::GMMA::MMA", "")[: len(pattern)] for name in atoms()}
        close = get_close_matches(pattern.upper(), sorted(beginnings), 2)
        near = f" Did you mean {' or '.join(close)}?" if close else ""
        note = f"No atom has {pattern} in its name; * and ? stand for anything.{near}"
    return partial(show, Answer((table,) if rows else (), data, (note,), table), style)


def _instruction_text(atom: MMA_Atom | Copy_Atom) -> str | None:
    """Return the text of the instruction of an atom; None for a plain copy."""
    from lanewise.atoms import Copy_Atom

    if isinstance(atom, Copy_Atom) and atom.operation.move is not None:
        return atom.operation.move.text
    return atom.instruction.text if atom.instruction is not None else None


def _copied(atom: MMA_Atom | Copy_Atom) -> str:
    """Return how the PTX of a copy that is no matrix instruction begins."""
    from lanewise.atoms import Copy_Atom

    return f"{atom.operation.opcode}, no matrix instruction" if isinstance(atom, Copy_Atom) else ""
