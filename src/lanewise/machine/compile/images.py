"""The images that a kernel is linked from: its own, and those of functions that all kernels share."""

from __future__ import annotations

from lanewise.jit import ir, machine_code
from lanewise.machine.abi import CODE_TABLE, RUN
from lanewise.machine.codegen.function_code import Write
from lanewise.machine.codegen.scheduler import write_scheduler
from lanewise.machine.compile.kernel_writer import Writer
from lanewise.machine.program.basic_blocks import Block
from lanewise.machine.program.resolve import Program
from lanewise.recently_used import RecentlyUsed


def images(program: Program, blocks: list[Block], arch: str, checking: bool) -> list[bytes]:
    """The kernel's own code, and what it shares with all others."""
    with machine_code.Compilation() as compilation:
        modules: list[ir.Module] = []

        def finished(module: ir.Module) -> None:
            modules.append(module)
            compilation.add(str(module))

        Writer(program, blocks, arch, checking, finished).write(CODE_TABLE)
        found: dict[str, bytes] = {}
        waiting: dict[str, Write] = {RUN: lambda module, name: write_scheduler(module, name, checking)}
        for module in modules:
            waiting |= module.apart
        while waiting:
            name, write = waiting.popitem()
            if name not in found:
                found[name], needed = _shared(name, checking, write)
                waiting |= needed
        return [*compilation.images(), *found.values()]


#: Images of functions that kernels share, each with what writes the other functions that it calls.
_SHARED: RecentlyUsed[tuple[str, bool], tuple[bytes, dict[str, Write]]] = RecentlyUsed(1024)


def _shared(name: str, checking: bool, write: Write) -> tuple[bytes, dict[str, Write]]:
    """Return the image of a function that kernels share, compiled now if it never was, and what it calls."""
    kept = _SHARED.get((name, checking))
    if kept is None:
        module = ir.Module(name)
        write(module, name)
        key = f"shared {name} {checking}"
        (image,) = machine_code.images(key, lambda: [machine_code.compile(str(module))])
        kept = image, module.apart
        _SHARED.put((name, checking), kept)
    return kept
