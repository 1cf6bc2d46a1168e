"""NVRTC: CUDA C++ to PTX, in this process, without a driver and without a host compiler.

Its library is called directly: one in a package or a toolkit, or the one that the system's loader finds.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.isa import arch_number, find_arch
from lanewise.ptx.tools.standard_headers import STANDARD_HEADERS
from lanewise.ptx.tools.toolkit import (
    ToolFailed,
    ToolMissing,
    extra,
    find_tools,
    include_folders,
    package_folders,
    toolkit_folders,
)


@cache
def load(major: int) -> Nvrtc | None:
    """NVRTC of a major CUDA release; None if it is not installed."""
    name = f"nvrtc64_{major}0_0.dll" if sys.platform == "win32" else f"libnvrtc.so.{major}"
    for path in (*map(str, _libraries(major)), name):  # the name alone: where the system's loader looks
        try:
            return Nvrtc(path)
        except OSError:
            continue
    return None


def installed_libraries() -> list[Path]:
    """Every library of NVRTC that is found in a package or a toolkit, of any release."""
    return [path for major in (13, 12) for path in _libraries(major)]


def _libraries(major: int) -> list[Path]:
    pattern = {"win32": f"nvrtc64_{major}*_0.dll"}.get(sys.platform, f"libnvrtc.so.{major}*")
    folders = [*package_folders(), *toolkit_folders()]
    return [
        path
        for folder in folders
        for place in ("lib", "lib64", "bin", "bin/x86_64")
        for path in sorted(folder.glob(f"{place}/{pattern}"))
    ]


class Nvrtc:
    """A library of NVRTC: its release, the archs that it compiles for, and its functions by name."""

    def __init__(self, path: Path | str) -> None:
        folder = Path(path).parent
        for pattern in ("libnvrtc-builtins.so*", "nvrtc-builtins64_*.dll") if folder.is_absolute() else ():
            for builtins in folder.glob(pattern):
                ctypes.CDLL(str(builtins))  # NVRTC opens it by its name alone
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        archs = (ctypes.c_int * max(count.value, 1))()
        self._library.nvrtcGetSupportedArchs(archs)
        self.release, self.archs = (major.value, minor.value), sorted(archs[: count.value])

    def status(self, name: str, *arguments: object) -> str:
        """Call a function; return what it refuses in NVRTC's words, nothing if it does what it should."""
        status: int = getattr(self._library, name)(*arguments)
        words: bytes = self._library.nvrtcGetErrorString(status) if status else b""
        return words.decode()

    def call(self, what: str, name: str, *arguments: object) -> None:
        """Call a function; raise an error that says what NVRTC cannot do if it refuses."""
        refusal = self.status(name, *arguments)
        if refusal:
            raise ToolFailed(f"NVRTC cannot {what}: {refusal}")

    def output(self, name: str, program: object) -> str:
        """The PTX or the ProgramLog of a program, as text."""
        size = ctypes.c_size_t()
        self.call("say how long its output is", f"nvrtcGet{name}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call("give its output", f"nvrtcGet{name}", program, buffer)
        return buffer.raw.rstrip(b"\0").decode(errors="replace")


def _texts(texts: Iterable[str]) -> Any:
    """Texts as an array of C."""
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of a source: PTX, the names of instances asked for, warnings, and for what it is."""

    ptx: str = field(repr=False)
    lowered: Mapping[str, str]
    log: str
    arch: str
    compiler: str
    note: str = ""


def nvrtc(
    source: str,
    arch: str = "sm_80",
    *,
    name: str = "kernel.cu",
    options: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
) -> str:
    """Compile CUDA C++ to PTX text; headers of CUDA and those that device code includes are found.

    `headers` are further ones, by name. sm_70 and sm_72, which CUDA 13 dropped, are compiled by PyPI's
    nvidia-cuda-nvrtc-cu12 where it is installed, else for compute_75.
    """
    return compile_source(source, arch, name=name, options=options, headers=headers).ptx


def compile_source(
    source: str,
    arch: str,
    *,
    name: str = "kernel.cu",
    options: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    expressions: Iterable[str] = (),
) -> Compiled:
    """Compile CUDA C++, with instances of templates (`mm<half, float>`) asked for by name."""
    if "\0" in source:
        raise LanewiseError(f"{name} has a NUL character in it; NVRTC would read no further")
    options = [options] if isinstance(options, str) else list(options)
    library, major, target, note = _compiler(find_arch(arch))
    given = {**STANDARD_HEADERS, **(headers or {})}
    flags = [
        f"--gpu-architecture={target.replace('sm_', 'compute_')}",
        *(() if any("-std" in option for option in options) else ("--std=c++17",)),
        *(f"--include-path={folder}" for folder in include_folders(major)),
        *options,
    ]
    wanted = list(expressions)
    program, encoded = ctypes.c_void_p(), source.encode(errors="replace")
    contents = _texts(given.values()), _texts(given)
    library.call(
        "create a program", "nvrtcCreateProgram", ctypes.byref(program), encoded, name.encode(), len(given),
        *contents,
    )  # fmt: skip
    try:
        for expression in wanted:
            library.call(f"name {expression}", "nvrtcAddNameExpression", program, expression.encode())
        refusal = library.status("nvrtcCompileProgram", program, len(flags), _texts(flags))
        log = library.output("ProgramLog", program)
        if refusal:
            raise ToolFailed(f"NVRTC cannot compile {name} for {target}:\n{log or refusal}", log)
        ptx = library.output("PTX", program)
        lowered = {expression: _lowered(library, program, expression) for expression in wanted}
    finally:
        library.status("nvrtcDestroyProgram", ctypes.byref(program))
    release = ".".join(map(str, library.release))
    return Compiled(ptx, lowered, log, arch=target, compiler=f"NVRTC {release}", note=note)


def _lowered(library: Nvrtc, program: object, expression: str) -> str:
    """The name that an instance of a template has in the PTX."""
    name = ctypes.c_char_p()
    library.call(expression, "nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(name))
    return (name.value or b"").decode()


def _compiler(arch: str) -> tuple[Nvrtc, int, str, str]:
    """The library to use, its major release, what to compile for, and a word on that if it is unusual."""
    newest = load(13)
    if newest is not None and arch_number(arch) in newest.archs:
        return newest, 13, arch, ""
    older = load(12)
    if older is not None and arch_number(arch) in older.archs:
        return older, 12, arch, f"compiled by NVRTC of CUDA 12, which still has {arch}"
    library, major = (newest, 13) if newest is not None else (older, 12)
    if library is None:
        nvcc = find_tools("nvcc")
        instead = f'; or compile with {nvcc[0].path}: compiler="nvcc", --compiler nvcc' if nvcc else ""
        raise ToolMissing(f"NVRTC, which compiles CUDA C++, is not installed: {extra()}{instead}")
    if arch_number(arch) in (70, 72):
        note = (
            f"compiled for compute_75, since the NVRTC installed has no {arch} (that of "
            f"nvidia-cuda-nvrtc-cu12 has); matrix instructions compute as on {arch}"
        )
        return library, major, "sm_75", note
    known = ", ".join(f"sm_{number}" for number in library.archs)
    raise LanewiseError(f"the NVRTC installed does not know {arch}; it knows {known}")
