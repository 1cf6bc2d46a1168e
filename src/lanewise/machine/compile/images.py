"""What is kept of a kernel on disk: the images that it is linked from, and what a launch has to know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lanewise.jit import ir, machine_code
from lanewise.machine.abi import CODE_TABLE, RUN
from lanewise.machine.analysis.control_registers import reads_clock
from lanewise.machine.codegen.function_code import CompiledQuickly, Kernel, Write
from lanewise.machine.codegen.scheduler import write_scheduler
from lanewise.machine.codegen.threaded_code import Instrumentation
from lanewise.machine.compile.kernel_writer import KernelWriter
from lanewise.machine.launch_info import LaunchInfo
from lanewise.machine.program.basic_blocks import BasicBlock, entry_block
from lanewise.machine.program.operands import Symbol
from lanewise.machine.program.ops import Program
from lanewise.machine.tensor_core.mma_library import (
    TENSOR_PRODUCT,
    load_products,
    product_key,
    product_sites,
    tensor_sites,
)
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from concurrent.futures import Future


def images(
    instrumentation: Instrumentation | None,
    make: Callable[[], tuple[Kernel, list[BasicBlock]]],
    how: Callable[[str], bytes],
) -> list[bytes]:
    """Return the images of the kernel, of the shared functions that it calls, and of the instrumentation.

    All are compiled side by side, those that take longest first. What every kernel needs is begun before
    `make` resolves the kernel and splits it into basic blocks. `how` compiles what is the kernel's own.
    """
    with machine_code.Compilation() as compilation:
        made: list[Future[bytes]] = []
        shared = _SharedImages(compilation)
        if instrumentation is not None:
            shared.add_library(*instrumentation.library())
        shared.add_scheduler(instrumentation)
        kernel, blocks = make()
        compilation.begin_beside(partial(load_products, kernel.program, kernel.arch))

        def finished(module: ir.Module) -> None:
            made.append(compilation.begin(str(module), how))
            shared.add(module.apart)

        KernelWriter(kernel, blocks, instrumentation, finished).write(CODE_TABLE)
        return [*shared.images(), *(image.result() for image in made)]


def launch_info(program: Program, blocks: list[BasicBlock], arch: str) -> LaunchInfo:
    """Return the facts that are kept on disk beside a kernel's machine code."""
    body = program.body(program.entry.name)
    return LaunchInfo(
        frame_bytes=program.frame_bytes,
        local_bytes=program.local_bytes,
        shared_base=program.shared_base,
        shared_bytes=program.shared_bytes,
        dynamic_offset=program.dynamic_offset,
        parameter_bytes=program.parameter_bytes,
        parameters=tuple(parameter.address for parameter in body.parameters if isinstance(parameter, Symbol)),
        variables=tuple(
            (name, variable.space, variable.address, variable.size)
            for name, variable in program.globals.items()
        ),
        uses_heap=program.uses_heap,
        uses_grid=program.uses_grid,
        uses_reserved_memory=program.uses_reserved_memory,
        uses_tensor_memory=any(op.record.touches_tensor_memory for op in program.sites),
        reads_clock=any(reads_clock(op) for op in program.sites),
        takes_over_clusters=any(op.record.takes_over_clusters for op in program.sites),
        sites=len(program.sites),
        entry=entry_block(program, blocks),
        lines=tuple(block.line for block in blocks),
        products=(
            *(
                (instruction.text, product_key(instruction, arch), tuple(sites))
                for instruction, sites in product_sites(program, arch).items()
            ),
            *((text, TENSOR_PRODUCT, sites) for text, sites in tensor_sites(program).items()),
        ),
    )


#: Images of functions that kernels share, each with the writers of the functions that it calls.
_SHARED: RecentlyUsed[str, tuple[bytes, dict[str, Write]]] = RecentlyUsed(1024)


class _SharedImages:
    """The images of shared functions, and of those that they call in turn; each is compiled at most once."""

    def __init__(self, compilation: machine_code.Compilation) -> None:
        self._compilation = compilation
        self._names: set[str] = set()
        #: Images by key, as they were kept.
        self._kept: list[bytes] = []
        #: Images that are being compiled.
        self._begun: list[Future[bytes]] = []

    def add_library(self, key: str, write: Callable[[], str]) -> None:
        """Add the functions of an instrumentation, which are one module and call no shared functions."""
        kept = _SHARED.get(key)
        if kept is not None:
            self._kept.append(kept[0])
        else:
            self._begin(key, write, machine_code.compile, {})

    def add_scheduler(self, instrumentation: Instrumentation | None) -> None:
        """Add the scheduler: what runs once for a block is not worth the time of all LLVM's passes."""
        hook = instrumentation.barrier_hook() if instrumentation is not None else None
        key = f"scheduler with {hook.__module__}.{hook.__qualname__}" if hook else "scheduler alone"
        write = partial(write_scheduler, name=RUN, hook=hook)
        self._add(key, write, machine_code.compile_quickly)

    def add(self, writers: dict[str, Write]) -> None:
        """Add functions by their writers, and what they call, unless they were added before."""
        for name, write in writers.items():
            if name not in self._names:
                self._names.add(name)
                quickly = isinstance(write, CompiledQuickly)
                how = machine_code.compile_quickly if quickly else machine_code.compile
                self._add(f"shared function {name}", partial(_write_named, write, name), how)

    def _add(self, key: str, write: Callable[[ir.Module], None], how: Callable[[str], bytes]) -> None:
        kept = _SHARED.get(key)
        if kept is not None:
            image, needed = kept
            self._kept.append(image)
        else:
            module = ir.Module(key)
            write(module)
            text, needed = str(module), module.apart
            self._begin(key, lambda: text, how, needed)
        self.add(needed)

    def _begin(
        self, key: str, write: Callable[[], str], how: Callable[[str], bytes], needed: dict[str, Write]
    ) -> None:
        """Begin to read or compile an image, which is kept in memory for later kernels."""
        image_to_be = self._compilation.begin_kept(key, write, how)
        image_to_be.add_done_callback(partial(_remember, key, needed))
        self._begun.append(image_to_be)

    def images(self) -> list[bytes]:
        """Return all images, once they are compiled."""
        return [*self._kept, *(image.result() for image in self._begun)]


def _remember(key: str, needed: dict[str, Write], image: Future[bytes]) -> None:
    """Keep an image that is compiled, also if the kernel for which it was begun is refused."""
    if not image.cancelled() and image.exception() is None:
        _SHARED.put(key, (image.result(), needed))


def _write_named(write: Write, name: str, module: ir.Module) -> None:
    """Call a writer of shared functions with its arguments in another order."""
    write(module, name)
