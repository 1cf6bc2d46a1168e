"""Machine code from kernels: compiled once per processor by LLVM, kept on disk, loaded and called.

Knows nothing of what the kernels compute. Writing them is `simd.py`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

import lanewise.disk_cache as disk_cache  # not from lanewise, which would look for it in the language first
from lanewise.jit import llvm_library, threads
from lanewise.jit.host_memory import address
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from llvmlite.binding import ModuleRef, TargetMachine
    from llvmlite.binding.newpassmanagers import ModulePassManager, PassBuilder

#: With this variable in the environment all code is compiled with few passes, and LLVM selects instructions
#: and registers without optimising: code is there sooner and runs longer. Test suites, which launch most
#: kernels once, take less time with it. If it is set and empty, all code is compiled with all passes before
#: it runs for the first time.
COMPILE_QUICKLY = "LANEWISE_COMPILE_QUICKLY"
_LOCK = threading.RLock()
#: For each program that is being made, a lock that its maker holds: different ones are made side by side.
_MAKING: dict[str, threading.RLock] = {}
#: Programs that are kept although nobody may be using them, by key: those used last.
MOST_PROGRAMS = 256
_RECENT: RecentlyUsed[str, Program] = RecentlyUsed(MOST_PROGRAMS)
#: Every program in memory: the recent ones, and others as long as somebody uses them.
_LOADED: WeakValueDictionary[str, Program] = WeakValueDictionary()


def _unlock() -> None:
    """In a forked child the locks may be held by threads that are not there."""
    global _LOCK
    _LOCK = threading.RLock()
    _MAKING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class Program:
    """Compiled functions, each called with an array of int64 arguments. The GIL is released meanwhile.

    The machine code is in memory for as long as its Program is. Python cannot see an address that was put
    into a table for other machine code: whoever puts one there keeps the Program for as long as the table.
    """

    def __init__(self, images: list[bytes], note: bytes = b"") -> None:
        self._engine = llvm_library.Engine(images)
        #: What was put down beside the machine code.
        self.note = note
        self._functions: dict[str, Callable[[int], None]] = {}

    def __call__(self, name: str, arguments: list[int]) -> None:
        """Call a function of the program; returns when it is done."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.place(name))
        block = np.array(arguments, dtype=np.int64)
        function(address(block))

    def place(self, name: str) -> int:
        """Return the address of a function. It is good for as long as this Program is kept."""
        address_of_function = self._engine.function(name)
        assert address_of_function, f"no function {name}"
        return address_of_function

    def data(self, name: str) -> int:
        """Return the address of a variable. It is good for as long as this Program is kept."""
        address_of_variable = self._engine.variable(name)
        assert address_of_variable, f"no variable {name}"
        return address_of_variable


@cache
def lanes_of(bits: int) -> int:
    """Elements of that width in this processor's widest vectors worth using."""
    if llvm_library.has_feature("avx512f") and llvm_library.has_feature("avx512bw"):
        width = 512
    elif llvm_library.has_feature("avx2"):
        width = 256
    else:
        width = 128
    return width // bits


@cache
def has_half_floats() -> bool:
    """Whether this processor converts between f16 and f32: Arm's all do."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return arm or llvm_library.has_feature("f16c")


def load(key: str, write: Callable[[], str]) -> Program:
    """The program of a key: from memory, from disk, or by compiling the LLVM IR that `write` returns.

    The key names everything the program depends on but the processor, the compiler and the library's source.
    """
    return link(key, lambda: [compile(write())])


def link(key: str, make: Callable[[], list[bytes]], note: Callable[[], bytes] = bytes) -> Program:
    """The program of a key, made of several images that know each other's functions by name.

    What `note` returns once the images are made is kept beside them.
    """
    program = _RECENT.get(key)
    if program is not None:
        return program
    with _LOCK:
        making = _MAKING.setdefault(key, threading.RLock())
    with making:
        try:
            program = _LOADED.get(key)
            if program is None:
                first, *others = images(key, lambda: _noted(make(), note))
                with _LOCK:
                    program = _LOADED[key] = Program(others, first)
            _RECENT.put(key, program)
            return program
        finally:
            _MAKING.pop(key, None)


def find(key: str) -> Program | None:
    """The program of a key if it is in memory or on disk; None if it would have to be made."""
    program = _RECENT.get(key) or _LOADED.get(key)
    if program is not None:
        return program
    kept = _kept(_request(key))
    return link(key, lambda: kept[1:], lambda: kept[0]) if kept is not None else None


def _noted(images: list[bytes], note: Callable[[], bytes]) -> list[bytes]:
    return [note(), *images]


def images(key: str, make: Callable[[], list[bytes]]) -> list[bytes]:
    """The images of a key, from disk or made now; they lie in one file, each behind its length."""
    request = _request(key)
    kept = _kept(request)
    if kept is None:
        kept = make()
        disk_cache.keep(request, ".o", b"".join(len(image).to_bytes(8, "little") + image for image in kept))
    return kept


def _request(key: str) -> str:
    """Return the name by which images are kept on disk."""
    return f"{key} {_circumstances()}{' quickly' if _few_passes() else ''}"


def _kept(request: str) -> list[bytes] | None:
    """Return the images that are on disk under a name; None if there are none."""
    content = disk_cache.read(request, ".o")
    if content is None:
        return None
    kept, place = [], 0
    while place < len(content):
        start = place + 8
        place = start + int.from_bytes(content[place:start], "little")
        kept.append(content[start:place])
    return kept


@cache
def _circumstances() -> str:
    """Return what makes machine code worthless elsewhere: the system, the processor and the compiler."""
    name, features = llvm_library.processor()
    return f"{sys.platform} {name} {features} llvmlite {llvm_library.release()}"


def _few_passes() -> bool:
    """Return whether the environment asks for little optimisation."""
    return bool(os.environ.get(COMPILE_QUICKLY))


def _target_machine(effort: int = 3, features: str = "") -> TargetMachine:
    """Return a new description of this processor: an engine takes its own away when it goes."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm_library.processor()[0],
        features=llvm_library.processor()[1] + features,
        opt=effort,
        codemodel="jitdefault",
        jit=True,
    )


def compile(text: str) -> bytes:
    """An image of a module, optimised with all that LLVM has, unless the environment asks for less."""
    if _few_passes():
        return compile_quickly(text)
    from llvmlite import binding as llvm

    machine = _target_machine()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    return _compile(text, machine, builder, builder.getModulePassManager())


def compile_quickly(text: str) -> bytes:
    """An image of a module whose code is good as it is written, or runs seldom."""
    return _compile_with_few_passes(text, effort=1)


def compile_draft(text: str) -> bytes:
    """An image of a module that may run once: LLVM takes half as long, and the code is 2 to 9 % slower."""
    return _compile_with_few_passes(text, effort=0)


def _compile_with_few_passes(text: str, effort: int) -> bytes:
    from llvmlite import binding as llvm

    # Scheduling after register allocation brings nothing to processors that reorder by themselves.
    features = ",-use-postra-scheduler" if platform.machine().lower() in ("aarch64", "arm64") else ""
    # At level 0 LLVM emits an object in half the time of level 1.
    machine = _target_machine(0 if _few_passes() else effort, features)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_dead_code_elimination_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(1))
    return _compile(text, machine, builder, passes)


def _compile(text: str, machine: TargetMachine, builder: PassBuilder, passes: ModulePassManager) -> bytes:
    """Parse a module, run passes over it and return its image; several threads may do so at a time."""
    from llvmlite import binding as llvm

    # Closed here, the module first: after an error the collector would take them away in any order, and LLVM
    # does not outlive a module whose context is gone.
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.verify()
        run = _unlocked("RunNewModulePassManager")
        if run is None:
            passes.run(module, builder)
        else:
            run(passes, module, builder)
        return _emit(machine, module)


class Compilation:
    """Images that are compiled on all processors while the text of more of them is written."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(threads.processors(), thread_name_prefix="lanewise-compile")

    def begin(self, text: str, how: Callable[[str], bytes] = compile_quickly) -> Future[bytes]:
        """Let a thread compile a module whose code is good as it is written; return its image to be."""
        return self._pool.submit(how, text)

    def begin_kept(
        self, key: str, write: Callable[[], str], how: Callable[[str], bytes] = compile
    ) -> Future[bytes]:
        """Let a thread read the image of a key from disk, or compile it; return the image to be."""
        return self._pool.submit(lambda: images(key, lambda: [how(write())])[0])

    def begin_beside(self, job: Callable[[], None]) -> None:
        """Let a thread do what will be needed later, if there is time."""
        self._pool.submit(job)

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def _emit(machine: TargetMachine, module: ModuleRef) -> bytes:
    """`machine.emit_object(module)`, without the lock that llvmlite has around all calls.

    Module and machine are this thread's own, as LLVM asks for.
    """
    from llvmlite import binding as llvm

    emit = _unlocked("TargetMachineEmitToMemory")
    if emit is None:
        plain: bytes = machine.emit_object(module)
        return plain
    complaint = ctypes.c_char_p()
    buffer = emit(machine, module, 1, ctypes.byref(complaint))
    if not buffer:
        raise RuntimeError((complaint.value or b"LLVM emits nothing").decode(errors="replace"))
    start, size = llvm.ffi.lib.LLVMPY_GetBufferStart(buffer), llvm.ffi.lib.LLVMPY_GetBufferSize(buffer)
    image = ctypes.string_at(start, size)
    llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
    return image


@cache
def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock around it; None where it is not as expected."""
    from llvmlite import binding as llvm

    try:
        function = getattr(ctypes.CDLL(llvm.ffi.lib._name), f"LLVMPY_{name}")
        like = getattr(llvm.ffi.lib, f"LLVMPY_{name}")
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = like.argtypes, like.restype
    return function
