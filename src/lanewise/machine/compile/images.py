"""The images that a kernel is linked from: its own, and those of functions that all kernels share."""

from __future__ import annotations

from lanewise.jit import ir, machine_code
from lanewise.machine.abi import CODE_TABLE, RUN
from lanewise.machine.codegen.function_code import SHARED
from lanewise.machine.codegen.scheduler import write_scheduler
from lanewise.machine.compile.kernel_writer import Writer
from lanewise.machine.program.basic_blocks import Block
from lanewise.machine.program.resolve import Program


def images(program: Program, blocks: list[Block], arch: str, checking: bool) -> list[bytes]:
    """The kernel's own code, and what it shares with all others."""
    with machine_code.Compilation() as compilation:
        modules: list[ir.Module] = []

        def finished(module: ir.Module) -> None:
            modules.append(module)
            compilation.add(str(module))

        Writer(program, blocks, arch, checking, finished).write(CODE_TABLE)
        found = {RUN: _shared(RUN, checking)}
        waiting = [*_NEEDED[RUN], *(name for module in modules for name in module.undefined)]
        while waiting:
            name = waiting.pop()
            if name in SHARED and name not in found:
                found[name] = _shared(name, checking)
                waiting += _NEEDED[name]
        return [*compilation.images(), *found.values()]


#: Images of functions that all kernels share, and the other functions that they call.
_KEPT: dict[tuple[str, bool], bytes] = {}
_NEEDED: dict[str, list[str]] = {}


def _shared(name: str, checking: bool) -> bytes:
    """The image of a function that kernels share, compiled now if it never was."""
    if (name, checking) not in _KEPT:
        module = ir.Module(name)
        if name == RUN:
            write_scheduler(module, name, checking)
        else:
            SHARED[name](module, name)
        _NEEDED[name] = module.undefined
        key = f"shared {name} {checking}"
        (image,) = machine_code.images(key, lambda: [machine_code.compile(str(module))])
        _KEPT[name, checking] = image
    return _KEPT[name, checking]
