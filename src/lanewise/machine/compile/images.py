"""The images that a kernel is linked from: its own, and those of functions that all kernels share."""

from __future__ import annotations

from lanewise.jit import ir, machine_code
from lanewise.machine.abi import CODE_TABLE, RUN
from lanewise.machine.codegen.function_code import SHARED, Kernel
from lanewise.machine.codegen.instrumentation import Instrumentation
from lanewise.machine.codegen.scheduler import write_scheduler
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import BasicBlock


def images(kernel: Kernel, blocks: list[BasicBlock], instrumentation: Instrumentation | None) -> list[bytes]:
    """The kernel's own code, what it shares with all others, and what the instrumentation calls."""
    with machine_code.Compilation() as compilation:
        modules: list[ir.Module] = []

        def finished(module: ir.Module) -> None:
            modules.append(module)
            compilation.add(str(module))

        KernelWriter(kernel, blocks, instrumentation, finished).write(CODE_TABLE)
        scheduler, needed = _scheduler(instrumentation)
        found = {RUN: scheduler}
        more: list[bytes] = []
        provided: frozenset[str] = frozenset()
        if instrumentation is not None:
            provided, image = instrumentation.image()
            more.append(image)
        waiting = [*needed, *(name for module in modules for name in module.undefined)]
        while waiting:
            name = waiting.pop()
            if name in SHARED and name not in found and name not in provided:
                found[name], needed = _shared(name)
                waiting += needed
        return [*compilation.images(), *found.values(), *more]


#: The image of each function that kernels share, and the other functions that it calls.
_KEPT: dict[str, tuple[bytes, list[str]]] = {}


def _kept(key: str, module: ir.Module) -> tuple[bytes, list[str]]:
    if key not in _KEPT:
        (image,) = machine_code.images(key, lambda: [machine_code.compile(str(module))])
        _KEPT[key] = image, module.undefined
    return _KEPT[key]


def _shared(name: str) -> tuple[bytes, list[str]]:
    """The image of a function that kernels share, compiled now if it never was."""
    key = f"shared function {name}"
    if key in _KEPT:
        return _KEPT[key]
    module = ir.Module(name)
    SHARED[name](module, name)
    return _kept(key, module)


def _scheduler(instrumentation: Instrumentation | None) -> tuple[bytes, list[str]]:
    """The image of the scheduler; with a hook at barriers if there is an instrumentation."""
    key = f"scheduler {'with hooks' if instrumentation else 'alone'}"
    if key in _KEPT:
        return _KEPT[key]
    module = ir.Module(RUN)
    write_scheduler(module, RUN, instrumentation.barrier_hook() if instrumentation else None)
    return _kept(key, module)
