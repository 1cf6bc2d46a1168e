"""Kernels made ready to run: resolved, compiled once, kept on disk and in memory."""

from __future__ import annotations

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from lanewise.errors import InternalError
from lanewise.jit import machine_code
from lanewise.machine.errors import Unsupported
from lanewise.machine.launch_info import LaunchInfo
from lanewise.ptx import Function, Module
from lanewise.recently_used import RecentlyUsed

#: A draft is compiled again, optimised, once its launches have taken so many times as long as its
#: compilation: later costs speed, sooner costs time for kernels that are launched a few times.
WORTH_OPTIMISING = 8


def _starts_with_draft() -> bool:
    """Return whether the first launches of a kernel run a draft."""
    return os.environ.get(machine_code.COMPILE_QUICKLY) != ""


def _optimises_later() -> bool:
    """Return whether a draft that has run for long is optimised."""
    return not os.environ.get(machine_code.COMPILE_QUICKLY)


class DraftedCode(ABC):
    """The machine code of a kernel: a draft at first, optimised code once its launches have taken long."""

    def __init__(self) -> None:
        self._native: machine_code.Program | None = None
        #: The seconds that launches of a draft have taken.
        self._launched_seconds = 0.0

    @abstractmethod
    def _find_optimised(self) -> machine_code.Program | None:
        """Return optimised code that is kept already."""

    @abstractmethod
    def _link(self, is_draft: bool) -> machine_code.Program:
        """Return a draft, or optimised code: from memory, from disk, or compiled now."""

    @abstractmethod
    def _draft_seconds(self) -> float:
        """Return how long the draft took to compile; 0 for optimised code."""

    @abstractmethod
    def _code_changed(self) -> None:
        """Forget what was known of the draft."""

    @property
    def native(self) -> machine_code.Program:
        """The machine code, loaded from disk or compiled now: a draft, if there is no optimised code yet."""
        if self._native is None:
            is_draft = _starts_with_draft()
            optimised = self._find_optimised() if is_draft and _optimises_later() else None
            self._native = optimised if optimised is not None else self._link(is_draft)
        return self._native

    def native_for_launch(self) -> machine_code.Program:
        """Return the machine code of the next launch; a draft that has run for long is optimised first."""
        draft_seconds = self._draft_seconds()
        if draft_seconds and self._launched_seconds > WORTH_OPTIMISING * draft_seconds:
            self._launched_seconds = 0.0
            if _optimises_later():
                self._native = self._link(is_draft=False)
                self._code_changed()
        return self.native

    def launched(self, seconds: float) -> None:
        """Note how long a launch took."""
        self._launched_seconds += seconds


if TYPE_CHECKING:
    from lanewise.machine.codegen.threaded_code import Instrumentation
    from lanewise.machine.program.basic_blocks import BasicBlock
    from lanewise.machine.program.ops import Program

#: Kernels that are kept ready in memory; those that were not launched for longest are dropped.
MOST_READY = 256

#: The variant of kernels whose registers are looked at after every instruction.
TRACED = "traced"


class Compiled(DraftedCode):
    """A kernel as machine code, and what is known of it; each property is computed when first used.

    `instrument` gives the steps that a checked launch adds; `variant` names them in the key of the code.
    """

    def __init__(
        self,
        module: Module,
        function: Function,
        arch: str,
        variant: str = "",
        instrument: Callable[[], Instrumentation] | None = None,
    ) -> None:
        self.module, self.function, self.arch = module, function, arch
        self._variant, self._instrument = variant, instrument
        super().__init__()

    @cached_property
    def _key(self) -> str:
        """The name of the optimised machine code."""
        text = self.module.text or str(self.module)
        named = f"{text}\0{self.function.name}\0{self.arch}\0{self._variant}"
        return f"machine {hashlib.sha256(named.encode()).hexdigest()}"

    def _find_optimised(self) -> machine_code.Program | None:
        return machine_code.find(self._key)

    def _draft_seconds(self) -> float:
        return self.launch_info.draft_seconds

    def _code_changed(self) -> None:
        self.__dict__.pop("launch_info", None)

    def _link(self, is_draft: bool) -> machine_code.Program:
        began = time.perf_counter()
        how = machine_code.compile_draft if is_draft else machine_code.compile_quickly

        def note() -> bytes:
            return self._note(time.perf_counter() - began if is_draft else 0.0)

        try:
            return machine_code.link(self._key + " draft" * is_draft, lambda: self._images(how), note)
        except RuntimeError as error:  # LLVM refuses the IR
            raise InternalError(f"{self.function.name} could not be compiled", error) from error
        except Unsupported as error:
            raise self._with_source(error) from None

    def _with_source(self, error: Unsupported) -> Unsupported:
        """Return an error about a line of the PTX with the line of the source that it came from."""
        from lanewise.machine.program.source_lines import with_source

        return with_source(error, self.module)

    def _images(self, how: Callable[[str], bytes]) -> list[bytes]:
        """Return the images of machine code that the kernel is linked from."""
        from lanewise.machine.codegen.function_code import Kernel
        from lanewise.machine.compile.images import images

        def make() -> tuple[Kernel, list[BasicBlock]]:
            return Kernel(self.program, self.arch, self._variant == TRACED), self.blocks

        return images(self._instrument() if self._instrument is not None else None, make, how)

    def _note(self, draft_seconds: float) -> bytes:
        """Return the launch info as bytes, kept beside the machine code."""
        from lanewise.machine.compile.images import launch_info

        info = launch_info(self.program, self.blocks, self.arch)
        return info._replace(draft_seconds=draft_seconds).to_bytes()

    @cached_property
    def launch_info(self) -> LaunchInfo:
        """What a launch has to know of the kernel, kept beside the machine code."""
        return LaunchInfo.from_bytes(self.native.note)

    @cached_property
    def program(self) -> Program:
        """The kernel and the functions that it reaches, resolved."""
        from lanewise.machine.program.resolve import resolve

        try:
            return resolve(self.module, self.function)
        except Unsupported as error:
            raise self._with_source(error) from None

    @cached_property
    def blocks(self) -> list[BasicBlock]:
        """The basic blocks of the kernel, by number."""
        from lanewise.machine.program.basic_blocks import split

        return split(self.program)

    @cached_property
    def texts(self) -> list[str]:
        """The PTX text of each instruction."""
        return [str(op.source) for op in self.program.sites]

    @cached_property
    def notes(self) -> list[str]:
        """Sentences on where a GPU may give other bits."""
        from lanewise.machine.analysis.fidelity import notes

        return notes(self.program, self.arch)


Ready = TypeVar("Ready", bound=Compiled)


class ReadyKernels(Generic[Ready]):
    """Compiled kernels by module, entry and arch: each is compiled once, and the latest are kept."""

    def __init__(self, make: Callable[[Module, Function, str], Ready]) -> None:
        self._make = make
        self._kept: RecentlyUsed[tuple[int, str, str], tuple[Module, Ready]] = RecentlyUsed(MOST_READY)

    def __call__(self, module: Module, entry: Function, arch: str) -> Ready:
        """Return the kernel for an arch; it is compiled when first launched."""
        key = (id(module), entry.name, arch)
        kept = self._kept.get(key)
        if kept is not None and kept[0] is module:
            return kept[1]
        ready = self._make(module, entry, arch)
        self._kept.put(key, (module, ready))
        return ready


#: The kernel for an arch, as plain launches run it.
compiled = ReadyKernels(Compiled)
