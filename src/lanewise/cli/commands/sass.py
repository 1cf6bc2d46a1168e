"""`lanewise sass`: the machine code that ptxas makes of PTX or CUDA C++, as nvdisasm writes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.input.options import ArchName, AsJson, CompilingOptions, flag, valued, with_groups
from lanewise.cli.launching import (
    Asked,
    entry_of,
    launched_by,
    module_in,
    require_code,
    three,
    what_it_prints,
)
from lanewise.cli.terminal.answer import Answer, show

if TYPE_CHECKING:
    from lanewise.isa.occupancy import Occupancy
    from lanewise.ptx import Module, Resources


@with_groups
def sass(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="PTX (.ptx), CUDA C++ (.cu), or a Python script (.py) whose launches say which kernels.",
        ),
    ],
    arch: ArchName = None,
    entry: Annotated[str | None, valued("--entry", "NAME", "Show this kernel alone.")] = None,
    *,
    compiling: CompilingOptions,
    block: Annotated[
        str | None,
        valued(
            "--block",
            "X[,Y[,Z]]",
            "How many threads a block has, to compute the occupancy; by default the number with which "
            "most warps are resident.",
        ),
    ] = None,
    shared: Annotated[
        int, valued("--shared", "BYTES", "Bytes of dynamic shared memory, to compute the occupancy.", min=0)
    ] = 0,
    lines: Annotated[bool, flag("--lines", "Show the lines of the source between the instructions.")] = False,
    encodings: Annotated[bool, flag("--encodings", "Show the bits of each instruction beside it.")] = False,
    json: AsJson = False,
) -> Callable[[], None]:
    """Show the machine code (SASS) of a kernel for an arch; without --arch, for that of the PTX.

    The registers, shared memory, spills and occupancy of each kernel are written to stderr.

    \b
    lanewise sass kernel.ptx --arch sm_86
    lanewise sass gemm.cu --arch sm_90 --entry "mm<half, float>" | grep MMA
    lanewise sass gemm.cu --arch sm_86 --block 16,16 --shared 32768
    lanewise sass gemm.cu --arch sm_90 --lines --encodings
    lanewise sass script.py --arch sm_90           every kernel that the script launches, each once
    """
    shown = _Shown(arch, block, shared, lines, encodings)
    options = compiling.compilation
    if file.suffix == ".py":
        with what_it_prints(True):  # stdout is for the machine code
            entries = launched_by(Asked(file=file, compilation=options, arch=arch), entry)
        listings = [_listing_of(entry.module, entry.name, file, shown) for entry in entries]
    else:
        module = module_in(file, arch, options)
        if entry is None:
            require_code(module, file)
            listings = [_listing_of(module, None, file, shown)]
        else:
            chosen = entry_of(module, file, entry)
            listings = [_listing_of(chosen.module, chosen.name, file, shown)]
    if not json:
        return partial(
            _say,
            "\n".join(listing.text for listing in listings),
            [note for listing in listings for note in listing.notes],
        )
    data = [listing.data for listing in listings]
    return partial(show, Answer((), data if file.suffix == ".py" else data[0]), "json")


@dataclass(frozen=True)
class _Shown:
    """How machine code is to be shown, as the options say."""

    arch: str | None
    block: str | None
    shared: int
    lines: bool
    encodings: bool


@dataclass(frozen=True)
class _Listing:
    """The machine code of a module or of one kernel: its text, notes for stderr, and the data of JSON."""

    text: str
    notes: list[str]
    data: dict[str, Any]


def _listing_of(module: Module, wanted: str | None, file: Path, shown: _Shown) -> _Listing:
    """Assemble a module and list the machine code of one kernel, or of all."""
    from lanewise.ptx import demangle
    from lanewise.ptx.model.module import one_kernel
    from lanewise.ptx.sass_listing import PTX_NAME, assembled, listing_of, sources
    from lanewise.ptx.tools.toolkit import ToolFailed

    try:
        cubin = assembled(module, shown.arch, lines=shown.lines)
    except ToolFailed:
        if wanted is None or len(module.entries) == 1:
            raise
        module = one_kernel(module, wanted)  # what ptxas refuses may be another kernel of the file
        cubin = assembled(module, shown.arch, lines=shown.lines)
    text = listing_of(cubin, sources(module), lines=shown.lines, encodings=shown.encodings)
    if wanted is not None:
        text = _section(text, wanted)
    text = text.replace(f"// {PTX_NAME}:", f"// {file.name}:")
    used = {name: resource for name, resource in cubin.resources.items() if wanted in (None, name)}
    resident = {
        name: _occupancy(module, name, resources, shown.block, shown.shared)
        for name, resources in used.items()
    }
    notes = [
        f"{demangle(name)}: {resources.registers} registers, {resources.shared} bytes of shared memory, "
        f"{resources.spill_stores + resources.spill_loads} bytes of spills"
        + (f"; {resident[name]}" if resident[name] is not None else "")
        for name, resources in used.items()
    ]
    resources = {
        name: {"registers": resources.registers, "shared": resources.shared, "stack": resources.stack,
               "spill_stores": resources.spill_stores, "spill_loads": resources.spill_loads,
               "occupancy": _plain(resident[name])}
        for name, resources in used.items()
    }  # fmt: skip
    data = {"arch": cubin.arch, "sass": text, "resources": resources, "notes": list(cubin.notes)}
    return _Listing(text if text.endswith("\n") else text + "\n", [*cubin.notes, *notes], data)


def _occupancy(
    module: Module, name: str, used: Resources, block: str | None, shared: int
) -> Occupancy | None:
    """How many blocks of a kernel are resident; None of a device function, and where an arch is not known."""
    from lanewise.isa.multiprocessor import known_multiprocessor
    from lanewise.ptx.model.module import occupancy_of

    if name not in module.entries or known_multiprocessor(used.arch) is None:
        return None
    threads = three(block, "--block") if block is not None else None
    return occupancy_of(used, module.entries[name], threads, shared)


def _plain(occupancy: Occupancy | None) -> dict[str, object] | None:
    """An occupancy as plain data."""
    if occupancy is None:
        return None
    names = ("threads", "blocks", "warps", "most_warps")
    return {name: getattr(occupancy, name) for name in names} | {"limits": dict(occupancy.limits)}


def _section(text: str, name: str) -> str:
    """The part of nvdisasm's text that is one kernel's."""
    parts = text.split("//--------------------- .text.")
    own = [part for part in parts[1:] if part.split()[0] == name]
    return "//--------------------- .text." + own[0] if own else text


def _say(text: str, notes: list[str]) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
    for note in notes:
        print(f"lanewise: {note}", file=sys.stderr)
