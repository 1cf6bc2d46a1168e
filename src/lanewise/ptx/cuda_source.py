"""`cuda`: CUDA C++ as people publish it to a Module, by NVRTC, or by nvcc where NVRTC does not suffice.

The Module keeps its source, so that instances of templates can be compiled when they are asked for.
"""

import json
import re
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lanewise import disk_cache
from lanewise.errors import LanewiseError, is_set, shown
from lanewise.hints import nearest
from lanewise.isa import find_arch
from lanewise.ptx.device_compiler import PublishedSource, behind_conditions, has_defaults, standard_option
from lanewise.ptx.model.module import CompiledSource, Module
from lanewise.ptx.model.names import matching
from lanewise.ptx.syntax.parser import parse, read_text_or_path
from lanewise.ptx.tools.offline_compiler import find_nvcc, host_compiler, nvcc
from lanewise.ptx.tools.toolkit import ToolFailed, ToolMissing, extra
from lanewise.tracebacks import short_traceback

_COMPILERS = (None, "nvrtc", "nvcc")
_SUFFIXES = (".cu", ".cuh", ".cpp", ".h", ".hpp")
#: What NVRTC says of a name that it is asked to lower.
_NAME_ERROR = re.compile(r"^__nv_name_map\(\d+\): error: (.*)$", re.MULTILINE)
_KERNEL = re.compile(r"__global__[^;{}()]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?\b(\w+)\s*\(")
#: What marks a kernel, as it is usually written and as the macro __global__ is defined.
_KERNEL_MARK = re.compile(r"\b__global__\b|__attribute__\s*\(\s*\(\s*(?:__)?global(?:__)?\b")
#: What compilers say of a header that is not there.
_NO_HEADER = re.compile(r"No such file or directory|cannot open source file|file not found")
_ERROR_LINE = re.compile(r"^.*?\berror\b(?: #[\w-]+)?: .*$", re.MULTILINE)
_SUFFIX = ".nvcc"


@dataclass(frozen=True)
class CudaSource(CompiledSource):
    """CUDA C++ that a Module came from: compiles itself again for instances of its templates."""

    #: Whether any compiler may compile it, since none was asked for.
    is_any_compiler: bool = False
    #: The kernels that are templates, and of these the ones that host code launches with arguments that were
    #: not deduced here, so that the PTX has no instance of them.
    templates: tuple[str, ...] = ()
    undeduced: tuple[str, ...] = ()

    @property
    def _published(self) -> PublishedSource:
        return PublishedSource(self.text, self.name, self.arch, self.options)

    def instance(self, expression: str, known: Container[str]) -> tuple[Module, str]:
        """The source compiled with an instance of a template, and the name that has in the PTX.

        nvcc compiles it if it compiled the module, or if NVRTC cannot and no compiler was asked for.
        """
        if not self.compiler.startswith("nvcc"):
            try:
                module = _by_nvrtc(self, [expression], launched=False)
            except ToolFailed as error:
                if self.is_any_compiler and has_nvcc() and not _NAME_ERROR.search(error.log):
                    with suppress(LanewiseError):
                        return self._instance_by_nvcc(expression, known)
                raise ToolFailed(self._no_instance(expression, error), error.log) from None
            assert module.cuda is not None
            return module, module.cuda.instances[expression]
        return self._instance_by_nvcc(expression, known)

    def _instance_by_nvcc(self, expression: str, known: Container[str]) -> tuple[Module, str]:
        """The source compiled by nvcc with an instance of a template, and the name that has in the PTX.

        nvcc lowers no names: host code then refers to the instance, and the entry that is not `known` is it.
        """
        more = f"\n__attribute__((used)) static void const* lanewise_instance = (void const*)&{expression};\n"
        module = _by_nvcc(replace(self, text=self.text + more))
        module.cuda = self
        new = [name for name in module.entries if name not in known]
        if len(new) > 1:
            new = [name for name in matching(expression, module.entries) if name in new]
        if len(new) != 1:
            raise LanewiseError(
                f"{expression} is no new instance of a kernel; entries are {', '.join(module.entries)}"
            )
        return module, new[0]

    def launched_instances(self, name: str) -> Module | None:
        """The source compiled by nvcc, if host code launches this template with arguments that nvcc deduces.

        An instance by its arguments alone, as `mm<64>`, is left to `instance`.
        """
        is_instance = "<" in name and not name.endswith(")")
        if is_instance or not any(kernel in name for kernel in self.undeduced):
            return None
        if not has_nvcc():
            raise ToolMissing(
                f"host code launches the template {name} with arguments that only a compiler of host code "
                f"deduces: nvcc, which {extra()} brings, and a C++ compiler such as g++; or name the "
                f'instance, as in module["{name}<64>"]'
            )
        return _by_nvcc(self)

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
            near = nearest(name, kernels)
            hint = f"; did you mean {near!r}?" if near else ""
            said = f"{expression!r}: {self.name} has no kernel {name!r}{hint}"
            return f"{said}\nkernels are {', '.join(dict.fromkeys(kernels))}" if kernels else said
        declared = re.search(rf"template\s*<[^;{{}}]*?__global__[^;{{}}()]*?\b{name}\s*\([^)]*\)", self.text)
        shown = [
            complaint for complaint in complaints if not complaint.startswith("Error in parsing")
        ] or complaints
        lines = [f"{expression!r} cannot be made: {'; '.join(shown)}"]
        if declared is not None:
            lines.append(f"    {' '.join(declared[0].split())}")
        if undefined:
            lines.append(f"a kernel in a namespace is named in full, as space::{expression}")
        return "\n".join(lines)

    def texts(self) -> list[str]:
        """The source, and the headers of its project that it includes."""
        main, headers = self._published.read()
        return [main.text, *(file.text for file in headers.files.values())]

    def default_instance(self, name: str) -> str:
        """The instance that a kernel's name alone means, if its template has defaults for all; else empty."""
        main, headers = self._published.read()
        return f"{name}<>" if has_defaults([main, *headers.files.values()], name.split("::")[-1]) else ""

    def reason_missing(self, name: str) -> str:
        """Why a kernel of the source is not in the PTX: it is refused, or stands behind a condition."""
        if name in self.refused:
            return self.refused[name]
        main, headers = self._published.read()
        conditional = behind_conditions([main, *headers.files.values()], name)
        if conditional is None:
            return ""
        file, line, conditions = conditional
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
    compiler: Literal["nvrtc", "nvcc"] | None = None,
) -> Module:
    """Compile CUDA C++ (text, or the path of a file) to a Module.

    NVRTC compiles it, which needs neither a driver nor a host compiler. Host code is left out, and
    `module.cuda.left_out` lists what was. An instance of a template is compiled if the host code launches it
    or `instances` names it (`["mm<64>", "mm<128>"]`), and otherwise when you ask for it.

    Where NVRTC cannot compile the source, or makes no kernel of it because only a compiler of host code
    deduces the template arguments of its launches, nvcc and the host's C++ compiler compile the whole file,
    if they are installed. `compiler="nvrtc"` or `compiler="nvcc"` chooses one. `module.cuda.compiler` is the
    one that compiled it, and `module.cuda.note` says why it was another than NVRTC.

    With `lineinfo`, instructions know their line in the source. `module.arch` is the GPU that the module is
    for; `module.cuda.note` says if it was compiled for another.
    """
    if compiler is not None and (not isinstance(compiler, str) or compiler not in _COMPILERS):
        raise LanewiseError(f'compiler={compiler!r}: "nvrtc" or "nvcc" compiles CUDA C++')
    text, path = read_text_or_path(source, suffixes=_SUFFIXES, what="CUDA C++")
    text = text.removeprefix("\ufeff")  # the mark of some editors; NVRTC takes it for a token
    flags = _words("options", options)
    if is_set("lineinfo", lineinfo) and not {"-G", "--device-debug"} & set(flags):
        flags.append("-lineinfo")
    if path is not None:
        flags.append(f"-I{Path(path).parent.resolve()}")
    asked = CudaSource(
        text, find_arch(arch), path or "kernel.cu", tuple(flags), is_any_compiler=compiler is None
    )
    wanted = _words("instances", instances)
    if compiler == "nvcc":
        if wanted:
            raise LanewiseError("instances= is for NVRTC; nvcc compiles what the host code launches")
        return _with_a_kernel(_by_nvcc(asked))
    try:
        module = _by_nvrtc(asked, wanted, launched=True)
    except (ToolFailed, ToolMissing) as refusal:
        if compiler == "nvrtc" or not has_nvcc():
            raise
        module = _after_refusal(asked, refusal)
        for expression in wanted:
            module[expression]
        return module
    made = module.cuda
    assert isinstance(made, CudaSource)
    if made.undeduced and compiler is None and not module.entries and has_nvcc():
        return _by_nvcc(
            asked,
            f"since host code launches {_listed(made.undeduced)} with template arguments that only a "
            "compiler of host code deduces",
        )
    if module.entries or made.templates:
        return module
    if compiler is None and has_nvcc() and _KERNEL_MARK.search(text):
        return _with_a_kernel(_by_nvcc(asked, "since NVRTC makes no kernel of it"))
    return _with_a_kernel(module)


def _words(name: str, given: Any) -> list[str]:
    """The texts of an argument that is one or several of them; an error for anything else."""
    if isinstance(given, str):
        return [given]
    try:
        words = list(given)
    except Exception:  # whatever an object does that is no sequence
        words = [None]
    if not all(isinstance(word, str) for word in words):
        raise LanewiseError(f"{name} is a list of texts, not {type(given).__name__} {shown(given)}")
    return words


def has_nvcc() -> bool:
    """Whether nvcc and the compiler of host code that it needs are installed."""
    return find_nvcc() is not None and host_compiler() is not None


def _listed(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> _listed(["mm", "copy", "fill"])
    'mm, copy and fill'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _after_refusal(source: CudaSource, refusal: LanewiseError) -> Module:
    """The source compiled by nvcc after NVRTC has refused it; if nvcc refuses it too, what both say."""
    first = _ERROR_LINE.search(str(refusal))
    why = first.group().strip() if first else str(refusal).splitlines()[0]
    try:
        return _with_a_kernel(_by_nvcc(source, f"since NVRTC cannot: {why}"))
    except ToolFailed as other:
        second = _ERROR_LINE.search(other.log)
        said = second.group().strip() if second else other.log.strip().partition("\n")[0]
        if _NO_HEADER.search(said):  # it has not come to the kernels
            raise refusal from None
        log = getattr(refusal, "log", "")
        raise ToolFailed(f"{refusal}\nnvcc cannot compile it either: {said}", log) from None


def _with_a_kernel(module: Module) -> Module:
    """The module, if it has a kernel or its source has templates of kernels; else an error that says why."""
    source = module.cuda
    assert isinstance(source, CudaSource)
    if module.entries or module.functions or source._published.kernel_templates():
        return module
    names = dict.fromkeys(name for text in source.texts() for name in _KERNEL.findall(text))
    reason = next((why for name in names if (why := source.reason_missing(name))), "")
    if reason:
        raise LanewiseError(f"{source.name} has no kernel: {reason}")
    if names:
        raise LanewiseError(
            f"{source.name} has no kernel: of {_listed(names)} there is a declaration, and no definition"
        )
    raise LanewiseError(
        f"{source.name} has no kernel: no function in it is marked __global__, so there is nothing to launch"
    )


def _by_nvrtc(source: CudaSource, expressions: list[str], *, launched: bool) -> Module:
    made = source._published.compile(expressions, launched=launched)
    compiled = made.compiled
    module = parse(compiled.ptx)
    notes = [compiled.note] if compiled.note else []
    if made.undeduced:
        names = _listed(made.undeduced)
        notes.append(
            f"host code launches {names} with template arguments that only a compiler of host code deduces: "
            f'module["{made.undeduced[0]}"] compiles the source with nvcc'
        )
    module.cuda = replace(
        source,
        compiler=compiled.compiler,
        note="; ".join(notes),
        log=compiled.log,
        left_out=made.left_out,
        instances=compiled.lowered,
        refused=made.refused,
        templates=made.templates,
        undeduced=made.undeduced,
    )
    if not module.entries and made.refused:
        raise LanewiseError(next(iter(made.refused.values())))
    return module


def _by_nvcc(source: CudaSource, why: str = "") -> Module:
    """The source compiled by nvcc; `why` says for what reason, if nobody asked for nvcc."""
    tool = find_nvcc()
    release = ".".join(map(str, tool.release)) if tool else ""
    notes = [f"compiled by nvcc {release}, {why}"] if why else []
    target = source.arch
    if tool is not None and tool.release >= (13, 0) and source.arch in ("sm_70", "sm_72"):
        target = "sm_75"
        notes.append(
            f"compiled for compute_75, since nvcc of CUDA 13 has no {source.arch}; "
            f"matrix instructions compute as on {source.arch}"
        )
    module = parse(_ptx_of_nvcc(source, target))
    module.cuda = replace(
        source, compiler=f"nvcc {release}", note="; ".join(notes), left_out=(), instances={}, undeduced=()
    )
    return module


def _ptx_of_nvcc(source: CudaSource, target: str) -> str:
    """What nvcc makes of a source; kept on disk with all that it depends on."""
    main, headers = source._published.read()
    texts = [main.text, *(file.text for file in headers.files.values())]
    options = [*source.options, *standard_option(source.options, texts)]
    tool, host = find_nvcc(), host_compiler()
    paths = [*((tool.path,) if tool is not None else ()), *((Path(host),) if host is not None else ())]
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    request = (
        json.dumps(["nvcc", target, options, stamps, source._published.request(headers)])
        if headers.is_complete
        else ""
    )
    kept = disk_cache.read(request, _SUFFIX) if request else None
    if kept is not None:
        return kept.decode()
    ptx = nvcc(source.text, target, name=source.name, options=options)
    if request:
        disk_cache.keep(request, _SUFFIX, ptx.encode())
    return ptx
