"""The images that a kernel is linked from: its own, and those of functions that all kernels share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lanewise.jit import ir, machine_code
from lanewise.machine.abi import CODE_TABLE, RUN
from lanewise.machine.codegen.function_code import Kernel, Write
from lanewise.machine.codegen.instrumentation import Instrumentation
from lanewise.machine.codegen.scheduler import write_scheduler
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.program.basic_blocks import BasicBlock
from lanewise.recently_used import RecentlyUsed


def images(kernel: Kernel, blocks: list[BasicBlock], instrumentation: Instrumentation | None) -> list[bytes]:
    """Return the images of the kernel, of the shared functions that it calls, and of the instrumentation."""
    with machine_code.Compilation() as compilation:
        modules: list[ir.Module] = []

        def finished(module: ir.Module) -> None:
            modules.append(module)
            compilation.add(str(module))

        KernelWriter(kernel, blocks, instrumentation, finished).write(CODE_TABLE)
        shared: dict[str, bytes] = {}
        hook = instrumentation.barrier_hook() if instrumentation is not None else None
        shared[RUN], waiting = _image(
            f"scheduler with {hook.__module__}.{hook.__qualname__}" if hook else "scheduler alone",
            lambda module: write_scheduler(module, RUN, hook),
        )
        waiting = dict(waiting)
        for module in modules:
            waiting |= module.apart
        while waiting:
            name, write = waiting.popitem()
            if name not in shared:
                shared[name], needed = _image(f"shared function {name}", partial(_write_named, write, name))
                waiting |= needed
        more = [instrumentation.image()] if instrumentation is not None else []
        return [*compilation.images(), *shared.values(), *more]


def _write_named(write: Write, name: str, module: ir.Module) -> None:
    """Call a writer of shared functions with its arguments in another order."""
    write(module, name)


#: Images of functions that kernels share, each with the writers of the functions that it calls.
_SHARED: RecentlyUsed[str, tuple[bytes, dict[str, Write]]] = RecentlyUsed(1024)


def _image(key: str, write: Callable[[ir.Module], None]) -> tuple[bytes, dict[str, Write]]:
    """Return the image of a shared module, compiled at most once, and the writers of what it calls."""
    kept = _SHARED.get(key)
    if kept is None:
        module = ir.Module(key)
        write(module)
        (image,) = machine_code.images(key, lambda: [machine_code.compile(str(module))])
        kept = image, module.apart
        _SHARED.put(key, kept)
    return kept
