"""`module["k"][grid, block](…)`: the shape of a launch, and the engine that the data asks for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from lanewise.errors import IllegalInstruction, LanewiseError, is_set, shown
from lanewise.isa import find_arch
from lanewise.observers import Observers
from lanewise.ptx import Shape, cluster_refusal, required_cluster, shape_refusals, shared_refusals
from lanewise.ptx.host_tensors import host_arguments
from lanewise.ptx.notebook_cells import in_notebook
from lanewise.ptx.signatures import require_signature
from lanewise.tracebacks import short_traceback, shorten

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from lanewise.gpu.plan import Plan
    from lanewise.isa.occupancy import Occupancy
    from lanewise.machine.launch_info import LaunchInfo
    from lanewise.machine.runtime.launch import Progress
    from lanewise.ptx import Entry

#: Kinds of arguments for which a configured kernel keeps a warm launch.
_MOST_PLANS = 4

#: Takes a launch in place of the engine: the kernel, its arguments, the options that were given.
Watcher = Callable[["Configured", tuple[Any, ...], dict[str, Any]], None]
#: Those who take every launch, of any thread; launches that they make themselves are plain.
LAUNCHES = Observers[Watcher]()
watched = LAUNCHES.observed
_OBSERVERS = LAUNCHES.observers


def _is_observed(configured: Configured, arguments: tuple[object, ...], options: dict[str, object]) -> bool:
    """Hand a launch to who observes launches; return whether somebody does."""
    watcher = LAUNCHES.current
    if watcher is None:
        return False
    with LAUNCHES.unobserved():
        watcher(configured, arguments, {name: value for name, value in options.items() if value is not None})
    return True


def _any_on_gpu(arguments: tuple[object, ...]) -> bool:
    """Whether an array lies on a GPU; the room that knows such arrays is not loaded for NumPy's."""
    if all(
        argument is None or isinstance(argument, int | float | np.ndarray | np.generic)
        for argument in arguments
    ):
        return False
    from lanewise.gpu.arrays import any_on_gpu
    from lanewise.ptx.arguments import ArrayArgument

    return any_on_gpu(
        [argument.array if isinstance(argument, ArrayArgument) else argument for argument in arguments]
    )


def arch_of_arrays(arguments: tuple[object, ...]) -> str | None:
    """Return the arch of the GPU on which arrays lie, if a kernel has to be traced for it by name: one that
    is older than those that kernels are traced for otherwise."""
    if not _any_on_gpu(arguments):
        return None
    from lanewise.gpu.launching import early_arch

    return early_arch(arguments)


def _three(what: str, given: object) -> tuple[int, int, int]:
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3:
        raise LanewiseError(f"{what} is an integer or up to three of them, not {shown(given)}")
    sizes = []
    for part in parts:
        try:
            size = part.__index__()
        except Exception:  # whatever an object does that is no integer
            mend = "; // divides to an integer" if isinstance(part, float) else ""
            raise LanewiseError(
                f"{what} is an integer or up to three of them, not {shown(given)}{mend}"
            ) from None
        if size < 1:
            raise LanewiseError(f"{what} has at least 1 in each direction, not {shown(given)}")
        sizes.append(size)
    first, second, third = (*sizes, 1, 1)[:3]
    return first, second, third


def require_shared_memory(info: LaunchInfo, shape: Shape, arch: str, name: str) -> None:
    """Raise an error if a launch of a kernel wants more shared memory than an arch has."""
    static, dynamic = info.shared_bytes - info.shared_base, info.dynamic_offset - info.shared_base
    if refused := shared_refusals(static, dynamic, shape.shared_bytes, arch):
        raise LanewiseError(f"{name}: {refused[0]}")


#: Seconds that a launch on the CPU machine may take without a word.
PATIENCE = 10.0


class LongLaunch:
    """Says once, on a terminal or in a notebook, that a launch takes long, and how to find out why.

    It is called with the blocks done and the blocks in all while the launch runs.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry, self.begin, self.told = entry, time.monotonic(), False

    @classmethod
    def of(cls, entry: Entry) -> LongLaunch | None:
        """Return one where somebody reads what is written to stderr; else None."""
        is_read = sys.stderr is not None and (sys.stderr.isatty() or in_notebook())
        return cls(entry) if is_read else None

    def __call__(self, done: int, total: int) -> None:
        seconds = time.monotonic() - self.begin
        if self.told or seconds < PATIENCE:
            return
        self.told = True
        blocks, hint = f"{done:,} of {total:,} blocks are done", "progress=function shows how far it is"
        if done in (0, total):  # the last that begin count as done where only one thread of the CPU runs them
            blocks = "its blocks are not done yet" if total > 1 else "its block is not done yet"
            script = Path(sys.argv[0]).name if sys.argv and sys.argv[0].endswith(".py") else "script.py"
            check = "lw.check" if in_notebook() else f"`lanewise check {script}`, or lw.check,"
            hint = f"Does it end? {check} names a loop that never does, and steps= bounds what a block runs"
        what = f"{self.entry.demangled} has run on the CPU for {seconds:.0f} s: {blocks}"
        print(f"lanewise: {what}. {hint}; Ctrl-C stops it.", file=sys.stderr, flush=True)


class Options(TypedDict, total=False):
    """Options of a launch on the CPU machine."""

    arch: str | None
    steps: int | None
    progress: Progress | None
    executor: Executor | None
    schedule: str | int | None
    unchecked: bool


class Configured:
    """A kernel with its grid, block and dynamic shared memory: to be called with its arguments."""

    def __init__(self, entry: Entry, shape: Shape) -> None:
        self.entry, self.shape = entry, shape
        #: Warm launches on a GPU, the last first; and one of them in machine code, if it is repeated.
        self._plans: list[Plan] = []
        self._native: Callable[[tuple[object, ...], int], int] | None = None
        self._current_stream: Callable[[int], int] = int
        self._ordinal = 0
        #: The same in clusters, by the cluster's shape; and the same that overlaps with the kernel before it.
        self._clustered: dict[tuple[int, int, int], Configured] = {}
        self._overlapping: Configured | None = None

    def in_clusters(self, cluster: object) -> Configured:
        """Return the same launch in clusters of some blocks: an integer, or up to three of them."""
        shape = _three("a cluster", cluster)
        if shape == self.shape.cluster:
            return self
        configured = self._clustered.get(shape)
        if configured is None:
            configured = self._clustered[shape] = Configured(self.entry, replace(self.shape, cluster=shape))
        return configured

    def overlapping(self) -> Configured:
        """Return the same launch, which may begin while the kernel before it still runs."""
        if self.shape.overlap:
            return self
        if self._overlapping is None:
            self._overlapping = Configured(self.entry, replace(self.shape, overlap=True))
        return self._overlapping

    def __call__(
        self,
        *arguments: object,
        stream: object = None,
        cluster: object = None,
        overlap: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Run it where its arrays lie: NumPy arrays on the CPU machine, CUDA arrays on their GPU.

        `cluster` is how many blocks make a cluster, (x, y, z) or the first of these; a kernel with
        `.reqnctapercluster` or `__cluster_dims__` says so itself. With `overlap=True` the kernel may begin
        on a GPU before the one ahead of it in the stream has ended: it calls `lw.wait_on_dependencies()`
        before it touches memory.
        On the machine, `arch` is the GPU that matrix instructions compute like; `steps` bounds a block's run;
        `progress` is called with the blocks done and the blocks in all, about five times a second;
        `executor`, any `concurrent.futures.Executor`, runs ranges of blocks on its workers instead;
        `schedule` says when asynchronous copies take effect: "early" (as soon as they are issued), "late"
        (when somebody waits for them and nothing else can go on), or a seed that draws it.
        Arguments are held against the kernel's signature in C++, where it is known: an array of float32 is
        refused for a `__half*`. With `unchecked=True` arrays are passed as they are.
        On a GPU, `stream` is where to launch; without one, torch's or CuPy's current one for their arrays.
        """
        try:
            if cluster is not None:
                self.in_clusters(cluster)(*arguments, stream=stream, overlap=overlap, **options)
                return
            if overlap is not False and is_set("overlap", overlap) and not self.shape.overlap:
                self.overlapping()(*arguments, stream=stream, **options)
                return
            native = self._native  # as `warm` does it, without a further call
            if native is not None and stream is None and not options and not _OBSERVERS:
                status = native(arguments, self._current_stream(self._ordinal))
                if not status:
                    return
            self._run(arguments, stream, options)
        except LanewiseError as error:
            shorten(error)
            raise

    def _run(self, arguments: tuple[object, ...], stream: object, options: Options) -> None:
        unknown = next((name for name in options if name not in Options.__annotations__), None)
        if unknown is not None:
            raise TypeError(
                f"{self.entry.demangled} has no option {unknown!r}: arguments go by position, "
                "and options are arch, cluster, executor, progress, schedule, steps, stream and unchecked"
            )
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if "unchecked" in given and not is_set("unchecked", given["unchecked"]):
            del given["unchecked"]
        if not given and self.warm(arguments, stream):
            return
        if _is_observed(self, arguments, given | {"stream": stream}):
            return
        if refused := shape_refusals(self.entry.function, self.shape):
            raise LanewiseError(refused[0])
        if not given.pop("unchecked", False):
            require_signature(self.entry, arguments)
        arch = given.pop("arch", None)
        if stream is None and not _any_on_gpu(arguments):
            try:
                self._on_machine(arguments, arch, **given)
            except IllegalInstruction as error:  # of the catalogue, which knows no lines
                raise self.entry.module.with_line(error) from None
        elif given:
            raise LanewiseError(
                "steps=, progress=, executor= and schedule= are for NumPy arrays, on the CPU machine"
            )
        else:
            self._on_gpu(arguments, stream, arch)

    def warm(self, arguments: tuple[object, ...], stream: object = None) -> bool:
        """Launch on a GPU if everything is prepared for such arguments; False if nothing was done."""
        if not _OBSERVERS:
            native = self._native
            if native is not None and stream is None:
                status = native(arguments, self._current_stream(self._ordinal))
                if not status:
                    return True
            for plan in self._plans:
                if plan(arguments, stream):
                    if self._native is None and plan.native is not None:
                        self._current_stream, self._ordinal = plan.current_stream, plan.ordinal
                        self._native = plan.native
                    return True
        return False

    def _on_gpu(self, arguments: tuple[object, ...], stream: object, arch: str | None) -> None:
        from lanewise.gpu import launch as launch_on_gpu

        plan = launch_on_gpu(self.entry, self.shape, arguments, stream, arch)
        if plan is not None and all(
            plan.types != other.types or plan.ordinal != other.ordinal for other in self._plans
        ):
            self._plans = [plan, *self._plans[: _MOST_PLANS - 1]]

    def _on_machine(
        self,
        arguments: tuple[object, ...],
        arch: str | None,
        steps: int | None = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
        schedule: str | int | None = None,
    ) -> None:
        from lanewise.machine import Launch, compiled

        if progress is not None and not callable(progress):
            raise LanewiseError(
                "progress is a function that is called with the blocks done and the blocks in all, not "
                f"{type(progress).__name__} {shown(progress)}"
            )
        arguments = host_arguments(arguments)
        module = self.entry.module
        name = find_arch(arch if arch is not None else module.arch)
        refused = cluster_refusal(self.shape, name, module.arch)
        if refused is not None:
            raise LanewiseError(refused)
        ready = compiled(module, self.entry.function, name)
        require_shared_memory(ready.launch_info, self.shape, name, self.entry.demangled)
        if executor is not None:
            if schedule is not None:
                raise LanewiseError("schedule= is for launches in one process, without executor=")
            from lanewise.machine.runtime.distributed import spread

            spread(ready, self.shape, arguments, executor, steps, progress)
            return
        if progress is None:
            progress = LongLaunch.of(self.entry)
        Launch(ready, self.shape, arguments, steps, schedule=schedule).run(progress)

    def occupancy(self, arch: str | None = None) -> Occupancy:
        """How many of its blocks and warps a multiprocessor of an arch holds at a time, and why not more."""
        return self.entry.occupancy(arch, block=self.shape.block, shared_bytes=self.shape.shared_bytes)

    def bind(self, *arguments: object, arch: str | None = None) -> tuple[Configured, tuple[object, ...]]:
        """The kernel and the arguments as they are launched: these, for any arch."""
        return self, arguments

    def __repr__(self) -> str:
        cluster = f" in clusters of {self.shape.cluster}" if self.shape.cluster is not None else ""
        return f"<{self.entry.demangled}[{self.shape.grid}, {self.shape.block}]{cluster}>"


class Address(int):
    """The device address of an array: an integer that goes into arrays of pointers and into structs.

    It keeps its array alive. The numbers that NumPy makes of it do not: keep the array, or this, for those.
    """

    array: Any

    def __repr__(self) -> str:
        return f"Address({int(self):#x})"

    def __reduce__(self) -> tuple[object, ...]:
        return int, (int(self),)


@short_traceback
def address(array: object) -> Address:
    """Return the device address of an array, for arrays of pointers and structs that a kernel follows.

    A NumPy array gets an address on the CPU machine, the same in every launch; an array on a GPU has its own.

    >>> import numpy as np
    >>> import lanewise as lw
    >>> rows = [np.zeros(8, np.float32), np.ones(8, np.float32)]
    >>> pointers = np.array([lw.address(row) for row in rows], dtype=np.uint64)
    >>> lw.address(rows[0][1:]) - lw.address(rows[0])
    4
    """
    address_of_array = Address(device_address(array, "lw.address"))
    address_of_array.array = array
    return address_of_array


def device_address(array: object, asked_by: str) -> int:
    """Return the device address of an array; messages name the function of the library that asked for it."""
    if isinstance(array, np.ndarray):
        from lanewise.machine.runtime.address_book import ADDRESSES
        from lanewise.ptx.arguments import require_plain_array

        require_plain_array(f"of {asked_by}", array)
        return ADDRESSES.enter(array, asked_by)
    from lanewise.gpu.arrays import locate

    where = locate(array, 0)
    if where is None or not where.on_gpu:
        raise LanewiseError(
            f"{asked_by} takes a NumPy array or an array on a GPU, not {type(array).__name__}"
            + ("; numpy.asarray makes a NumPy array of it without a copy" if where is not None else "")
        )
    return where.address


def launch(entry: Entry, configuration: object) -> Configured:
    """The kernel with its configuration: `[grid, block]` or `[grid, block, shared_bytes]`."""
    if not isinstance(configuration, tuple) or len(configuration) not in (2, 3):
        raise LanewiseError(
            f"a launch is kernel[grid, block] or kernel[grid, block, shared_bytes], not "
            f"{shown(configuration)}"
        )
    grid, block = _three("a grid", configuration[0]), _three("a block", configuration[1])
    shared = configuration[2] if len(configuration) == 3 else 0
    if not isinstance(shared, int | np.integer) or shared < 0:
        raise LanewiseError(f"shared memory is a number of bytes, not {shown(shared)}")
    return Configured(entry, Shape(grid, block, int(shared), required_cluster(entry.function)))
