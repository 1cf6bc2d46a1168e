"""A kernel made ready to run: resolved, compiled once, kept on disk and in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lanewise.arith import machine_code
from lanewise.machine import resolve
from lanewise.machine.blocks import Block, cut, entry_block
from lanewise.machine.faults import Unsupported
from lanewise.ptx import Function, Module


@dataclass(eq=False)
class Compiled:
    """A kernel as machine code, and what of it is needed to launch it."""

    program: resolve.Program
    native: machine_code.Program
    entry: int
    lines: list[int]
    arch: str
    blocks: list[Block]


_READY: dict[tuple[int, str, str, bool], tuple[Module, Compiled]] = {}


def compiled(module: Module, entry: Function, arch: str, checking: bool = False) -> Compiled:
    """The kernel for an arch, compiled now if it never was; with hooks for the checks if asked for."""
    key = (id(module), entry.name, arch, checking)
    kept = _READY.get(key)
    if kept is not None and kept[0] is module:
        return kept[1]
    program = resolve.resolve(module, entry)
    blocks = cut(program)
    text = module.text or str(module)
    named = f"{text}\0{entry.name}\0{arch}\0{source_digest()}\0{checking}"

    def make() -> list[bytes]:
        from lanewise.machine.image import images

        return images(program, blocks, arch, checking)

    try:
        native = machine_code.link(f"machine {hashlib.sha256(named.encode()).hexdigest()}", make)
    except RuntimeError as error:  # LLVM refuses what was written: a form whose operands do not fit
        raise Unsupported(f"{entry.name}: the machine cannot compile this kernel: {error}") from error
    lines = [block.line for block in blocks]
    ready = Compiled(program, native, entry_block(program, blocks), lines, arch, blocks)
    if len(_READY) > 256:
        _READY.clear()
    _READY[key] = (module, ready)
    return ready


@cache
def source_digest() -> str:
    """This room's own source: machine code that it wrote is worthless once it changes."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
