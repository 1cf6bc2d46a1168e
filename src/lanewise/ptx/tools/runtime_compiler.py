"""NVRTC: CUDA C++ to PTX, in this process, without a driver and without a host compiler."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.isa import arch_number, find_arch
from lanewise.ptx.tools.nvrtc_library import Nvrtc, load
from lanewise.ptx.tools.standard_headers import STANDARD_HEADERS
from lanewise.ptx.tools.toolkit import ToolFailed, ToolMissing, extra, find_tools, include_folders


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
    titles, texts = [title.encode() for title in given], [text.encode() for text in given.values()]
    created = library.nvrtcCreateProgram(
        source.encode(errors="replace"), name.encode(), len(given), texts, titles
    )
    program = _check(library, created, "create a program")
    try:
        for expression in wanted:
            _check(
                library, library.nvrtcAddNameExpression(program, expression.encode()), f"name {expression}"
            )
        encoded = [flag.encode() for flag in flags]
        status = library.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _text(library, program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
        if int(status) != 0:
            raise ToolFailed(
                f"NVRTC cannot compile {name} for {target}:\n{log or _words(library, status)}", log
            )
        ptx = _text(library, program, library.nvrtcGetPTXSize, library.nvrtcGetPTX)
        lowered = {
            expression: _check(
                library, library.nvrtcGetLoweredName(program, expression.encode()), expression
            ).decode()
            for expression in wanted
        }
    finally:
        library.nvrtcDestroyProgram(program)
    _, newest, minor = library.nvrtcVersion()
    return Compiled(ptx, lowered, log, arch=target, compiler=f"NVRTC {newest}.{minor}", note=note)


def _compiler(arch: str) -> tuple[Nvrtc, int, str, str]:
    """The library to use, its major release, what to compile for, and a word on that if it is unusual."""
    newest = load(13)
    if newest is not None and arch_number(arch) in newest.nvrtcGetSupportedArchs()[1]:
        return newest, 13, arch, ""
    older = load(12)
    if older is not None and arch_number(arch) in older.nvrtcGetSupportedArchs()[1]:
        return older, 12, arch, f"compiled by NVRTC of CUDA 12, which still has {arch}"
    library, major = (newest, 13) if newest is not None else (older, 12)
    if library is None:
        nvcc = find_tools("nvcc")
        instead = f'; or compile with {nvcc[0].path}: compiler="nvcc", --compiler nvcc' if nvcc else ""
        raise ToolMissing(f"NVRTC, which compiles CUDA C++, is not installed: {extra()}{instead}")
    supported = sorted(library.nvrtcGetSupportedArchs()[1])
    if arch_number(arch) in (70, 72):
        note = (
            f"compiled for compute_75, since the NVRTC installed has no {arch} (that of "
            f"nvidia-cuda-nvrtc-cu12 has); matrix instructions compute as on {arch}"
        )
        return library, major, "sm_75", note
    known = ", ".join(f"sm_{number}" for number in supported)
    raise LanewiseError(f"the NVRTC installed does not know {arch}; it knows {known}")


def _words(library: Nvrtc, status: object) -> str:
    words = library.nvrtcGetErrorString(status)
    text = words[-1] if isinstance(words, tuple) else words
    return text.decode() if isinstance(text, bytes) else str(text)


def _check(library: Nvrtc, result: tuple[Any, ...], what: str) -> Any:
    if int(result[0]) != 0:
        raise ToolFailed(f"NVRTC cannot {what}: {_words(library, result[0])}")
    return result[1] if len(result) > 1 else None


def _text(library: Nvrtc, program: object, size_of: Any, read: Any) -> str:
    size = _check(library, size_of(program), "say how long its output is")
    buffer = bytes(size)
    _check(library, read(program, buffer), "give its output")
    return buffer.rstrip(b"\0").decode(errors="replace")
