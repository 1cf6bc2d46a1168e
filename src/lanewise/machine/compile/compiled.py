"""A kernel made ready to run: resolved, compiled once, kept on disk and in memory."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

from lanewise.jit import machine_code
from lanewise.machine.errors import Unsupported
from lanewise.machine.launch_info import Footprint
from lanewise.ptx import Function, Module
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lanewise.machine.analysis.definite_assignment import Plan
    from lanewise.machine.program.basic_blocks import Block
    from lanewise.machine.program.ops import Program


class Compiled:
    """A kernel as machine code, what a launch has to know of it, and the rest of it when it is asked for."""

    def __init__(self, module: Module, function: Function, arch: str, checking: bool) -> None:
        self.module, self.function, self.arch = module, function, arch
        text = module.text or str(module)
        named = f"{text}\0{function.name}\0{arch}\0{checking}"

        def make() -> list[bytes]:
            from lanewise.machine.compile.images import images

            return images(self.program, self.blocks, arch, checking)

        def note() -> bytes:
            from lanewise.machine.launch_info import footprint

            return footprint(self.program, self.blocks, arch).to_bytes()

        try:
            key = f"machine {hashlib.sha256(named.encode()).hexdigest()}"
            self.native = machine_code.link(key, make, note)
        except RuntimeError as error:  # LLVM refuses what was written: a form whose operands do not fit
            raise Unsupported(f"{function.name}: the machine cannot compile this kernel: {error}") from error
        self.footprint = Footprint.from_bytes(self.native.note)

    @cached_property
    def program(self) -> Program:
        """The kernel and all that it reaches, resolved."""
        from lanewise.machine.program.resolve import resolve

        return resolve(self.module, self.function)

    @cached_property
    def blocks(self) -> list[Block]:
        """Its blocks of code, by number."""
        from lanewise.machine.program.basic_blocks import cut

        return cut(self.program)

    @cached_property
    def plan(self) -> Plan:
        """The registers that a check follows because a path may leave them without a value."""
        from lanewise.machine.analysis import definite_assignment

        return definite_assignment.plan(self.blocks, self.footprint.entry)

    @cached_property
    def watched(self) -> npt.NDArray[np.int64]:
        """How a check watches each instruction: what every launch begins with a copy of."""
        from lanewise.machine.checker.site_table import watched

        return watched(self.program, self.arch)

    @cached_property
    def texts(self) -> list[str]:
        """Each instruction as PTX."""
        return [str(op.source) for op in self.program.sites]

    @cached_property
    def notes(self) -> list[str]:
        """Where a GPU may give other bits."""
        from lanewise.machine.analysis.fidelity import notes

        return notes(self.program, self.arch)


#: Kernels ready to run, each with the module whose identity is in its key.
_READY: RecentlyUsed[tuple[int, str, str, bool], tuple[Module, Compiled]] = RecentlyUsed(256)


def compiled(module: Module, entry: Function, arch: str, checking: bool = False) -> Compiled:
    """The kernel for an arch, compiled now if it never was; with hooks for the checks if asked for."""
    ready = _ready(module, entry, arch, checking)
    if ready is not None:
        return ready
    ready = Compiled(module, entry, arch, checking)
    _READY.put((id(module), entry.name, arch, checking), (module, ready))
    return ready


def _ready(module: Module, entry: Function, arch: str, checking: bool) -> Compiled | None:
    kept = _READY.get((id(module), entry.name, arch, checking))
    return kept[1] if kept is not None and kept[0] is module else None


def to_check(module: Module, entry: Function, arch: str) -> Program:
    """The kernel resolved, whether or not it was compiled for a check: a refused launch needs no more."""
    from lanewise.machine.program.resolve import resolve

    ready = _ready(module, entry, arch, checking=True)
    return resolve(module, entry) if ready is None else ready.program
