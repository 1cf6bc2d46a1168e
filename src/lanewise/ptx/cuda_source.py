"""`cuda`: CUDA C++ as people publish it to a Module, by NVRTC or, if it holds host code, by nvcc.

The Module keeps its source, so that instances of templates can be compiled when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.ptx.model.module import CompiledSource, Module
from lanewise.ptx.syntax.parser import parse
from lanewise.ptx.text_or_path import read_text_or_path
from lanewise.ptx.tools.offline_compiler import find_nvcc, host_compiler, nvcc
from lanewise.ptx.tools.runtime_compiler import Compiled, compile_source
from lanewise.ptx.tools.toolkit import EXTRA, ToolFailed, ToolMissing

_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*+"|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?', re.DOTALL)
_HOST_HEADERS = (
    "iostream", "vector", "string", "random", "chrono", "fstream", "sstream", "iomanip", "map", "set",
    "thread", "unordered_map", "mutex", "memory", "stdexcept", r"cublas\w*\.h", r"curand\.h", r"cudnn\w*\.h",
    r"unistd\.h", r"thrust/[\w./]+", r"sys/[\w.]+",
)  # fmt: skip
_HOST_CALLS = "Malloc|Memcpy|Memset|Free|DeviceSynchronize|EventCreate|StreamCreate|GetLastError|SetDevice"
#: What only host code has, and what to call it.
_HOST_CODE = (
    (re.compile(r"<<<"), "a kernel launch <<<…>>>"),
    (re.compile(r"\bmain\s*\("), "main()"),
    (re.compile(rf"\b(cuda(?:{_HOST_CALLS})\w*)\s*\("), "{}()"),
    (
        re.compile(rf"^[ \t]*#[ \t]*include[ \t]*<({'|'.join(_HOST_HEADERS)})>", re.MULTILINE),
        "#include <{}>",
    ),
    (re.compile(r"^[ \t]*__host__(?!\s*__device__)[^;{]*\{", re.MULTILINE), "a __host__ function"),
)

#: What nvcc's implicit cuda_runtime.h brings from the host's headers, so that sources use it without a word.
#: (Diagnostic 47 is the redefinition of a macro: libcu++'s cmath has INFINITY and NAN as well.)
_PRELUDE = """#pragma once
#pragma nv_diag_suppress 47
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef long long intptr_t; typedef unsigned long long uintptr_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
"""


@dataclass(frozen=True)
class CudaSource(CompiledSource):
    """CUDA C++ that a Module came from: compiles itself again for instances of its templates."""

    def compile(self, expressions: Iterable[str] = ()) -> Compiled:
        """The source compiled by NVRTC."""
        return compile_source(
            self.text,
            self.arch,
            name=self.name,
            options=("--pre-include=lanewise_prelude.h", *self.options),
            headers={"lanewise_prelude.h": _PRELUDE},
            expressions=expressions,
        )

    def instance(self, expression: str, known: Container[str]) -> tuple[Module, str]:
        """The source compiled with an instance of a template, and the name that has in the PTX.

        nvcc lowers no names: host code then refers to the instance, and the entry that is not `known` is it.
        """
        if not self.compiler.startswith("nvcc"):
            made = self.compile([expression])
            return _module(made.ptx, self), made.lowered[expression]
        more = f"\n__attribute__((used)) static void const* lanewise_instance = (void const*)&{expression};\n"
        module = _by_nvcc(replace(self, text=self.text + more))
        module.cuda = self
        new = [name for name in module.entries if name not in known]
        if len(new) != 1:
            raise LanewiseError(
                f"{expression} is no new instance of a kernel; entries are {', '.join(module.entries)}"
            )
        return module, new[0]


def _module(ptx: str, source: CudaSource) -> Module:
    module = parse(ptx)
    module.cuda = source
    return module


def cuda(
    source: str | Path, arch: str = "sm_80", *, options: Iterable[str] = (), lineinfo: bool = True
) -> Module:
    """Compile CUDA C++ (text, or the path of a file) to a Module.

    Files without host code go to NVRTC, which needs neither a driver nor a host compiler; those with a main()
    or launches go to nvcc. With `lineinfo`, instructions know their line in the source. `module.arch` is the
    GPU that it is for; `module.cuda.note` tells if it was compiled for another.
    """
    text, path = read_text_or_path(source, suffixes=(".cu", ".cuh", ".cpp", ".h"), what="CUDA C++")
    wanted = find_arch(arch)
    flags = [options] if isinstance(options, str) else list(options)
    if lineinfo and not {"-G", "--device-debug"} & set(flags):
        flags.append("-lineinfo")
    if path is not None:
        flags.append(f"-I{Path(path).parent.resolve()}")
    asked = CudaSource(text, wanted, path or "kernel.cu", tuple(flags))
    host_code = _host_code(text)
    if host_code:
        return _with_host_code(asked, host_code)
    try:
        # what does not say where it runs is for the device: nvcc's --expt-relaxed-constexpr, and more
        return _by_nvrtc(replace(asked, options=(*flags, "-default-device")))
    except (ToolFailed, ToolMissing) as error:
        # a header that NVRTC has not, or no NVRTC at all: nvcc may do
        may_help = isinstance(error, ToolMissing) or "cannot open source file" in error.log
        if not may_help or find_nvcc() is None or host_compiler() is None:
            raise
    return _by_nvcc(asked)


def _by_nvrtc(source: CudaSource) -> Module:
    made = source.compile()
    return _module(made.ptx, replace(source, compiler=made.compiler, note=made.note, log=made.log))


def _by_nvcc(source: CudaSource) -> Module:
    tool = find_nvcc()
    target, note = source.arch, ""
    if tool is not None and tool.release >= (13, 0) and source.arch in ("sm_70", "sm_72"):
        target = "sm_75"
        note = (
            f"compiled for compute_75, since nvcc of CUDA 13 has no {source.arch}; "
            f"matrix instructions compute as on {source.arch}"
        )
    release = ".".join(map(str, tool.release)) if tool else ""
    ptx = nvcc(source.text, target, name=source.name, options=source.options)
    return _module(ptx, replace(source, compiler=f"nvcc {release}", note=note))


def _with_host_code(source: CudaSource, host_code: str) -> Module:
    if find_nvcc() is not None and host_compiler() is not None:
        return _by_nvcc(source)
    lacking = [
        word
        for word, there in (("nvcc", find_nvcc()), ("a host C++ compiler (g++)", host_compiler()))
        if not there
    ]
    raise ToolMissing(
        f"{source.name} holds host code ({host_code}), which takes nvcc and a host compiler; "
        f"{' and '.join(lacking)} is not installed. A file of kernels alone is compiled by NVRTC; "
        f"{EXTRA} brings nvcc"
    )


def _host_code(text: str) -> str:
    """What in a source is host code, and on which line; empty if nothing is."""
    code = _COMMENTS.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    found = [
        (match.start(), words.format(*match.groups()))
        for pattern, words in _HOST_CODE
        if (match := pattern.search(code))
    ]
    if not found:
        return ""
    offset, words = min(found)
    return f"{words} on line {code.count(chr(10), 0, offset) + 1}"
