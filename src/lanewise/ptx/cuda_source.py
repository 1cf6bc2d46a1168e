"""`cuda`: CUDA C++ as people publish it to a Module, by NVRTC; by nvcc where that is asked for.

The Module keeps its source, so that instances of templates can be compiled when they are asked for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.ptx.device_compiler import PublishedSource, behind_conditions, has_defaults
from lanewise.ptx.model.module import CompiledSource, Module
from lanewise.ptx.syntax.parser import parse
from lanewise.ptx.text_or_path import read_text_or_path
from lanewise.ptx.tools.offline_compiler import find_nvcc, nvcc
from lanewise.ptx.tools.toolkit import ToolFailed
from lanewise.tracebacks import short_traceback

_COMPILERS = ("nvrtc", "nvcc")
_SUFFIXES = (".cu", ".cuh", ".cpp", ".h", ".hpp")
#: What NVRTC says of a name that it is asked to lower.
_NAME_ERROR = re.compile(r"^__nv_name_map\(\d+\): error: (.*)$", re.MULTILINE)
_KERNEL = re.compile(r"__global__[^;{}()]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?\b(\w+)\s*\(")


@dataclass(frozen=True)
class CudaSource(CompiledSource):
    """CUDA C++ that a Module came from: compiles itself again for instances of its templates."""

    @property
    def _published(self) -> PublishedSource:
        return PublishedSource(self.text, self.name, self.arch, self.options)

    def instance(self, expression: str, known: Container[str]) -> tuple[Module, str]:
        """The source compiled with an instance of a template, and the name that has in the PTX.

        nvcc lowers no names: host code then refers to the instance, and the entry that is not `known` is it.
        """
        if not self.compiler.startswith("nvcc"):
            try:
                module = _by_nvrtc(self, [expression], launched=False)
            except ToolFailed as error:
                raise ToolFailed(self._no_instance(expression, error), error.log) from None
            assert module.cuda is not None
            return module, module.cuda.instances[expression]
        more = f"\n__attribute__((used)) static void const* lanewise_instance = (void const*)&{expression};\n"
        module = _by_nvcc(replace(self, text=self.text + more))
        module.cuda = self
        new = [name for name in module.entries if name not in known]
        if len(new) != 1:
            raise LanewiseError(
                f"{expression} is no new instance of a kernel; entries are {', '.join(module.entries)}"
            )
        return module, new[0]

    def _no_instance(self, expression: str, error: ToolFailed) -> str:
        """Why there is no such instance: its template is misspelt, or what the compiler says of it."""
        name = expression.partition("<")[0].split("::")[-1].strip()
        reason = self.reason_missing(name)
        complaints = list(dict.fromkeys(_NAME_ERROR.findall(error.log)))
        if reason or not complaints:  # the source itself does not compile
            return f"{reason}\n{error}" if reason else str(error)
        kernels = _KERNEL.findall(self.text)
        undefined = f'identifier "{name}" is undefined' in complaints[0]
        if undefined and name not in kernels:
            near = difflib.get_close_matches(name, kernels, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            said = f"{expression!r}: {self.name} has no kernel {name!r}{hint}"
            return f"{said}\nkernels are {', '.join(dict.fromkeys(kernels))}" if kernels else said
        declared = re.search(rf"template\s*<[^;{{}}]*?__global__[^;{{}}()]*?\b{name}\s*\([^)]*\)", self.text)
        told = [each for each in complaints if not each.startswith("Error in parsing")] or complaints
        lines = [f"{expression!r} cannot be made: {'; '.join(told)}"]
        if declared is not None:
            lines.append(f"    {' '.join(declared[0].split())}")
        if undefined:
            lines.append(f"a kernel in a namespace is named in full, as space::{expression}")
        return "\n".join(lines)

    def texts(self) -> list[str]:
        """The source, and the headers of its project that it includes."""
        main, headers = self._published.read()
        return [main.text, *(each.text for each in headers.files.values())]

    def default_instance(self, name: str) -> str:
        """The instance that a kernel's name alone means, if its template has defaults for all; else empty."""
        main, headers = self._published.read()
        return f"{name}<>" if has_defaults([main, *headers.files.values()], name.split("::")[-1]) else ""

    def reason_missing(self, name: str) -> str:
        """Why a kernel of the source is not in the PTX: it is refused, or stands behind a condition."""
        if name in self.refused:
            return self.refused[name]
        main, headers = self._published.read()
        found = behind_conditions([main, *headers.files.values()], name)
        if found is None:
            return ""
        file, line, conditions = found
        return (
            f"{name} is defined on line {line} of {file}, but behind {' and '.join(conditions)}, which does "
            'not hold: options=["-DNAME=value"] (--define NAME=value on the command line) defines a macro'
        )


@short_traceback
def cuda(
    source: str | Path,
    arch: str = "sm_80",
    *,
    options: Iterable[str] = (),
    lineinfo: bool = True,
    instances: Iterable[str] = (),
    compiler: str = "nvrtc",
) -> Module:
    """Compile CUDA C++ (text, or the path of a file) to a Module.

    NVRTC compiles it, which needs neither a driver nor a host compiler. Host code is left out, and
    `module.cuda.left_out` lists what was. An instance of a template is compiled if the host code launches it
    or `instances` names it (`["mm<64>", "mm<128>"]`), and otherwise when you ask for it.
    `compiler="nvcc"` gives the whole file to nvcc and the host's C++ compiler instead. With `lineinfo`,
    instructions know their line in the source. `module.arch` is the GPU that the module is for;
    `module.cuda.note` says if it was compiled for another.
    """
    if compiler not in _COMPILERS:
        raise LanewiseError(f'compiler={compiler!r}: "nvrtc" or "nvcc" compiles CUDA C++')
    text, path = read_text_or_path(source, suffixes=_SUFFIXES, what="CUDA C++")
    text = text.removeprefix("\ufeff")  # the mark of some editors; NVRTC takes it for a token
    flags = [options] if isinstance(options, str) else list(options)
    if lineinfo and not {"-G", "--device-debug"} & set(flags):
        flags.append("-lineinfo")
    if path is not None:
        flags.append(f"-I{Path(path).parent.resolve()}")
    asked = CudaSource(text, find_arch(arch), path or "kernel.cu", tuple(flags))
    wanted = [instances] if isinstance(instances, str) else list(instances)
    if compiler == "nvcc":
        if wanted:
            raise LanewiseError("instances= is for NVRTC; nvcc compiles what the host code launches")
        return _by_nvcc(asked)
    return _by_nvrtc(asked, wanted, launched=True)


def _by_nvrtc(source: CudaSource, expressions: list[str], *, launched: bool) -> Module:
    made = source._published.compile(expressions, launched=launched)
    compiled = made.compiled
    module = parse(compiled.ptx)
    module.cuda = replace(
        source,
        compiler=compiled.compiler,
        note=compiled.note,
        log=compiled.log,
        left_out=made.left_out,
        instances=compiled.lowered,
        refused=made.refused,
    )
    if not module.entries and made.refused:
        raise LanewiseError(next(iter(made.refused.values())))
    return module


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
    module = parse(ptx)
    module.cuda = replace(source, compiler=f"nvcc {release}", note=note)
    return module
