"""Machine code from kernels: compiled once per processor by LLVM, kept on disk, loaded and called.

Knows nothing of what the kernels compute. Writing them is `simd.py`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise import disk_cache

_LOCK = threading.RLock()
_LOADED: dict[str, Program] = {}


def _unlock() -> None:
    """In a forked child the lock may be held by a thread that is not there."""
    global _LOCK
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


class Program:
    """Compiled functions, each called with an array of int64 arguments. The GIL is released meanwhile."""

    def __init__(self, image: bytes) -> None:
        from llvmlite import binding as llvm

        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, _target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(image))
        self._engine.finalize_object()
        self._functions: dict[str, Any] = {}

    def __call__(self, name: str, arguments: list[int]) -> None:
        """Run a function."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.place(name))
        block = np.array(arguments, dtype=np.int64)
        function(address(block))

    def place(self, name: str) -> int:
        """The address of a function, for other machine code to call."""
        found: int = self._engine.get_function_address(name)
        assert found, f"no function {name}"
        return found


@cache
def lanes_of(bits: int) -> int:
    """Elements of that width in this processor's widest vectors worth using."""
    from llvmlite import binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512bw"):
        width = 512
    elif features.get("avx2"):
        width = 256
    else:
        width = 128
    return width // bits


@cache
def has_half_floats() -> bool:
    """Whether this processor converts between f16 and f32: Arm's all do."""
    from llvmlite import binding as llvm

    arm = platform.machine().lower() in ("aarch64", "arm64")
    return arm or bool(llvm.get_host_cpu_features().get("f16c"))


def load(key: str, write: Callable[[], str]) -> Program:
    """The program of a key: from memory, from disk, or by compiling the LLVM IR that `write` returns.

    The key names everything the program depends on but the processor, the compiler and the kernels' source.
    """
    program = _LOADED.get(key)
    if program is not None:
        return program
    with _LOCK:
        if key not in _LOADED:
            name = hashlib.sha256(f"{key} {_circumstances()}".encode()).hexdigest()[:40] + ".o"
            image = disk_cache.read(name)
            if image is None:
                image = _compile(write())
                disk_cache.keep(name, image)
            _LOADED[key] = Program(image)
        return _LOADED[key]


@cache
def _circumstances() -> str:
    """What makes machine code worthless elsewhere: processor, compiler, the kernels' own source."""
    import llvmlite
    from llvmlite import binding as llvm

    source = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source.update(path.read_bytes())
    features = llvm.get_host_cpu_features().flatten()
    return f"{llvm.get_host_cpu_name()} {features} llvmlite {llvmlite.__version__} {source.hexdigest()}"


def _target_machine() -> Any:
    """A new description of this processor: an engine takes its own away when it goes."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        codemodel="jitdefault",
        jit=True,
    )


def _compile(text: str) -> bytes:
    from llvmlite import binding as llvm

    machine = _target_machine()
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    image: bytes = machine.emit_object(module)
    return image


def address(array: npt.NDArray[Any]) -> int:
    """Where an array's elements begin."""
    start: int = array.__array_interface__["data"][0]
    return start
