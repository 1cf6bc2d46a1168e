"""`lanewise sass`: the machine code that ptxas makes of PTX or CUDA C++, as nvdisasm writes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lanewise.cli.input.options import ArchName, AsJson
from lanewise.cli.launching import Definitions, entry_of, module_in
from lanewise.cli.terminal.answer import Answer
from lanewise.cli.terminal.render import show


def sass(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="PTX (.ptx) or CUDA C++ (.cu).", show_default=False)
    ],
    arch: ArchName = None,
    entry: Annotated[
        str | None, typer.Option(metavar="NAME", help="This kernel alone.", show_default=False)
    ] = None,
    define: Definitions = None,
    json: AsJson = False,
) -> Callable[[], None]:
    """Show the machine code (SASS) of a kernel for an arch; the PTX's own arch if none is named.

    Each kernel's registers, shared memory and spills are on stderr.

    \b
    lanewise sass kernel.ptx --arch sm_86
    lanewise sass gemm.cu --arch sm_90 --entry "mm<half, float>" | grep MMA
    """
    from lanewise.ptx import demangle, ptxas

    module = module_in(file, arch, define)
    wanted = None
    if entry is not None:
        found = entry_of(module, file, entry)
        module, wanted = found.module, found.name
    cubin = ptxas(module, arch)
    text = cubin.sass()
    if wanted is not None:
        text = _section(text, wanted)
    used = {name: each for name, each in cubin.resources.items() if wanted in (None, name)}
    lines = [
        f"{demangle(name)}: {each.registers} registers, {each.shared} bytes of shared memory, "
        f"{each.spill_stores + each.spill_loads} bytes of spills"
        for name, each in used.items()
    ]
    if not json:
        return partial(_say, text, [*cubin.notes, *lines])
    resources = {
        name: {"registers": each.registers, "shared": each.shared, "stack": each.stack,
               "spill_stores": each.spill_stores, "spill_loads": each.spill_loads}
        for name, each in used.items()
    }  # fmt: skip
    data = {"arch": cubin.arch, "sass": text, "resources": resources, "notes": list(cubin.notes)}
    return partial(show, Answer((), data), "json")


def _section(text: str, name: str) -> str:
    """The part of nvdisasm's text that is one kernel's."""
    parts = text.split("//--------------------- .text.")
    own = [part for part in parts[1:] if part.split()[0] == name]
    return "//--------------------- .text." + own[0] if own else text


def _say(text: str, notes: list[str]) -> None:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()
    for note in notes:
        print(f"lanewise: {note}", file=sys.stderr)
