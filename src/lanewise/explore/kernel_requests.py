"""A launch that the page asks for: a ready example, or PTX, CUDA C++ or Python that was typed; bounded.

PTX and CUDA C++ are text that is compiled, without files: their arguments are made here. A Python script that
was typed is run up to its launch, which only a process with limits may do: see `kernel_worker.py`. Scripts of
examples are kept as text beside this file, because they use the library as its users do."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.launch import watched
from lanewise.machine.checker.check import CHECKS
from lanewise.machine.checker.report import Report
from lanewise.ptx import Module, cuda, load
from lanewise.ptx.arguments import described
from lanewise.ptx.launch_text import parse_argument, three

FOLDER = Path(__file__).with_name("examples")


@dataclass(frozen=True)
class Example:
    """An example: its name in links, what it is, its file, and for PTX and CUDA C++ how it is launched."""

    name: str
    title: str
    about: str
    file: str
    grid: str = ""
    block: str = ""
    arguments: tuple[str, ...] = ()
    arch: str = ""

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return FOLDER / self.file

    @property
    def language(self) -> str:
        """The language of its source: ptx, cuda or python."""
        return {".ptx": "ptx", ".cu": "cuda", ".txt": "python"}[self.path.suffix]

    @property
    def shown_name(self) -> str:
        """The name of the file as the page and the PTX have it."""
        return self.file.removesuffix(".txt")

    @cached_property
    def source(self) -> str:
        """The text of the file."""
        return self.path.read_text(encoding="utf-8")


EXAMPLES = {
    example.name: example
    for example in (
        Example("saxpy", "SAXPY", "y = a x + y in PTX; the last threads have nothing to do", "saxpy.ptx",
                "4", "64", ("2.5", "arange:f32:250", "ones:f32:250", "250"), "sm_80"),
        Example("histogram", "A histogram", "CUDA C++: counted by atomics in shared memory", "histogram.cu",
                "2", "128", ("random:u8:4096", "4096", "zeros:i32:64"), "sm_80"),
        Example("transpose", "Transpose, with conflicts", "lanes read a column, which lies in one bank",
                "transpose.py.txt"),
        Example("transpose-padded", "Transpose, mended", "rows of 33 floats: 32 different banks",
                "transpose_padded.py.txt"),
        Example("hgemm", "HGEMM", "ldmatrix from swizzled shared memory, and mma", "hgemm.py.txt",
                arch="sm_80"),
        Example("pipeline", "A pipeline of cp.async", "copies of two rows are under way while one is used",
                "pipeline.py.txt", arch="sm_80"),
        Example("tma-wgmma", "Hopper: TMA and wgmma", "a tile by TMA, an mbarrier, four warps multiply",
                "tma_wgmma.py.txt"),
        Example("tcgen05", "Blackwell: tensor memory", "one thread multiplies, 128 threads read the sums",
                "tcgen05.py.txt", arch="sm_100a"),
        Example("barrier", "A missing barrier", "a mistake to find: who reads too early?", "barrier.py.txt"),
        Example("swizzle", "A wrong swizzle", "a mistake to find: which rows are exchanged?",
                "swizzle.py.txt"),
        Example("scan", "A lane too few", "a mistake to find: which lane does not add?", "scan.py.txt"),
    )
}  # fmt: skip

#: Characters of a source, elements of one array, bytes of all arrays, threads of a launch, arguments.
MOST_SOURCE, MOST_ELEMENTS, MOST_BYTES = 1 << 18, 1 << 22, 64 << 20
MOST_THREADS, MOST_ARGUMENTS = 1 << 22, 64
#: The arch that CUDA C++ is compiled for unless another is asked for.
USUAL_ARCH = "sm_80"
#: The name that `lw.cuda` gives to CUDA C++ that came as text.
TYPED = "kernel.cu"
#: The name under which Python that was typed is shown, and launches of it that may come before the one shown.
TYPED_PYTHON, MOST_LAUNCHES = "kernel.py", 64

_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_INCLUDE = re.compile(
    r"(?:#|%:|\?\?=)(?:\s|/\*.*?\*/)*(?:include_next|include|import|embed)\b(?P<rest>[^\n]*)", re.DOTALL
)
_HAS_INCLUDE = re.compile(r"__has_(?:include|include_next|embed)\b(?P<rest>[^\n]*)")
_LINE = re.compile(r"(?:#|%:|\?\?=)(?:\s|/\*.*?\*/)*(?:line\b|\d)[^\n]*", re.DOTALL)
_SAFE_HEADER = re.compile(r"[\s(]*<(?P<name>[A-Za-z0-9_][A-Za-z0-9_./+-]*)>")


@dataclass(frozen=True)
class KernelRequest:
    """What the page asks for; `key` tells requests apart that give different runs."""

    example: str = ""
    language: str = "ptx"
    source: str = ""
    entry: str = ""
    grid: str = "1"
    block: str = ""
    shared: int = 0
    cluster: str = ""
    arguments: tuple[str, ...] = ()
    arch: str = ""
    schedule: str = "in order"
    traced: tuple[int, int, int] = (0, 0, 0)
    #: Of a script, the number of the launch that is shown; those before it run as they are.
    launch: int = 1

    @property
    def is_typed_python(self) -> bool:
        """Whether it is Python that was typed, which runs only where that is allowed."""
        return not self.example and self.language == "python"

    @classmethod
    def of(cls, data: Mapping[str, object]) -> KernelRequest:
        """Return the request in what the page sent, each field held against its type."""
        fields: dict[str, Any] = {}
        for name, value in data.items():
            kinds = {"shared": int, "launch": int, "arguments": list, "traced": list}
            wanted = kinds.get(name, str)
            if name not in cls.__dataclass_fields__ or not isinstance(value, wanted) or value is True:
                raise LanewiseError(f"a launch has no {name[:40]!r} like this")
            fields[name] = value
        if "arguments" in fields:
            fields["arguments"] = tuple(_text(field) for field in fields["arguments"])
        if "traced" in fields:
            fields["traced"] = _coordinates(fields["traced"])
        return cls(**fields)

    @property
    def order(self) -> str | int:
        """The schedule as `lw.trace` takes it: words, or a seed."""
        return int(self.schedule) if self.schedule.isdecimal() and len(self.schedule) < 10 else self.schedule


@dataclass
class RequestedLaunch:
    """A kernel with its shape and arguments, ready to be launched; the arrays as they were before."""

    configured: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    #: Files whose text the page may show, by the name under which lines name them.
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = [
            argument.copy() if isinstance(argument, np.ndarray) else None for argument in self.arguments
        ]

    def restore(self) -> None:
        """Put the arrays back as they were before the first run."""
        for array, before in zip(self.arguments, self._before, strict=True):
            if before is not None and array.flags.writeable:
                array[...] = before

    def before(self, array: object) -> Any:
        """Return an argument as it was before the first run; None if it is not among them."""
        return next(
            (old for argument, old in zip(self.arguments, self._before, strict=True) if argument is array),
            None,
        )


@contextmanager
def requested(request: KernelRequest, runs_python: bool = False) -> Iterator[RequestedLaunch]:
    """Give the launch that is asked for; Python that was typed is run only where the caller allows it."""
    if request.is_typed_python:
        if not runs_python:
            raise LanewiseError("this process does not run Python that was typed")
        yield _of_script(TYPED_PYTHON, _bounded(request.source), request.arch, request.launch)
        return
    if request.example:
        example = EXAMPLES.get(request.example)
        if example is None:
            raise LanewiseError(f"there is no example {request.example[:40]!r}")
        if example.language == "python":
            yield _of_script(example.shown_name, example.source, request.arch or example.arch)
            return
        request = _of_example(request, example)
    yield _typed(request)


def _of_example(request: KernelRequest, example: Example) -> KernelRequest:
    """Return the request with the example's source; its shape and arguments are those that are asked for."""
    return replace(
        request,
        language=example.language,
        source=example.source,
        grid=request.grid or example.grid,
        block=request.block or example.block,
        arguments=request.arguments or example.arguments,
        arch=request.arch or example.arch,
    )


def _typed(request: KernelRequest) -> RequestedLaunch:
    module = _module(replace(request, source=_bounded(request.source)))
    entry = _entry(module, request.entry.strip())
    parameters = entry.parameters
    if len(request.arguments) > MOST_ARGUMENTS:
        raise LanewiseError(f"a launch has at most {MOST_ARGUMENTS} arguments here")
    if len(request.arguments) != len(parameters):
        names = ", ".join(described(parameter) for parameter in parameters)
        raise LanewiseError(
            f"{entry.demangled} takes {len(parameters)} arguments ({names}), not {len(request.arguments)}"
        )
    values = tuple(
        _argument(text, number, variable)
        for number, (text, variable) in enumerate(zip(request.arguments, parameters, strict=True))
    )
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if sum(array.nbytes for array in arrays) > MOST_BYTES:
        raise LanewiseError(f"the arrays have more than {MOST_BYTES >> 20} MiB together: make them smaller")
    grid = three(request.grid or "1", "the grid")
    block = three(request.block, "the block") if request.block else entry.function.limit("reqntid")
    if block is None:
        raise LanewiseError(f"say how many threads a block of {entry.demangled} has, such as 128")
    threads = int(np.prod([*grid, *block], dtype=object))
    if threads > MOST_THREADS:
        raise LanewiseError(f"the launch has {threads} threads; {MOST_THREADS} are allowed here")
    if not 0 <= request.shared <= 1 << 20:
        raise LanewiseError(f"{request.shared} bytes of dynamic shared memory are more than any GPU has")
    configured = entry[grid, block, request.shared]
    if request.cluster:
        configured = configured.in_clusters(three(request.cluster, "the cluster"))
    files = {TYPED: request.source} if request.language == "cuda" else {}
    arch = find_arch(request.arch) if request.arch else None
    return RequestedLaunch(configured, values, {"arch": arch} if arch else {}, files)


def _bounded(source: str) -> str:
    """Return a source that was typed, unless it is empty or too long."""
    if not source.strip():
        raise LanewiseError("the kernel is empty: type Python, PTX or CUDA C++, or choose an example")
    if len(source) > MOST_SOURCE:
        raise LanewiseError(f"the kernel has {len(source)} characters; {MOST_SOURCE} are allowed here")
    return source


def _module(request: KernelRequest) -> Module:
    if request.language == "cuda":
        refuse_files(request.source)
        return cuda(_as_text(request.source), request.arch or USUAL_ARCH)
    if request.language != "ptx":
        raise LanewiseError(f"{request.language[:40]!r} is no language here: ptx, cuda or python is")
    return without_paths(request.source)


def refuse_files(source: str) -> None:
    """Refuse CUDA C++ that includes anything but a header of the toolkit, by its plain name."""
    text = _SPLICE.sub("", source)
    for include in (*_INCLUDE.finditer(text), *_HAS_INCLUDE.finditer(text)):
        header = _SAFE_HEADER.match(include["rest"])
        if header is None or ".." in header["name"]:
            raise LanewiseError(
                f"{include[0].strip()[:60]}: the page includes headers of the toolkit only, as <cuda_fp16.h>"
            )

    named = _LINE.search(text)
    if named is not None:
        raise LanewiseError(f"{named[0].strip()[:60]}: the page does not take lines that name a file")


def without_paths(text: str) -> Module:
    """Return the module in PTX that was typed, with files that its `.file` names by their last name only.

    So nobody who reads the line that an instruction came from opens a file that the text names.
    """
    module = load(_as_text(text))
    paths = {name for name in module.files.values() if Path(name).name != name}
    if not paths:
        return module
    for path in paths:
        text = text.replace(f'"{path}"', f'"{Path(path).name or "file"}"')
    module = load(_as_text(text))
    if any(Path(name).name != name for name in module.files.values()):
        raise LanewiseError("a .file of this PTX names a path in a way that the page does not take")
    return module


def _as_text(text: str) -> str:
    """Return a source so that it is taken for text, never for the name of a file."""
    return text if "\n" in text.strip() else f"//\n{text}\n"


def _entry(module: Module, name: str) -> Any:
    if name:
        return module[name]
    if len(module.entries) == 1:
        return module[next(iter(module.entries))]
    names = ", ".join(repr(module[entry].demangled) for entry in module.entries)
    raise LanewiseError(
        f"choose one of the kernels: {names}" if names else "there is no kernel in this source"
    )


def _argument(text: str, number: int, variable: Any) -> Any:
    if text.strip().endswith((".npy", ".npz")):
        raise LanewiseError(f"{text[:60]}: the page reads no files; arrays are made here, as zeros:f32:64x64")
    return parse_argument(text.strip(), number, variable, option="the argument", most=MOST_ELEMENTS)


class _LaunchReached(BaseException):
    """The launch that is shown was reached, and the script need not go on; no `except Exception` keeps it."""


def _of_script(name: str, text: str, arch: str, number: int = 1) -> RequestedLaunch:
    """Run a script up to its launch with this number, and return that."""
    if not 1 <= number <= MOST_LAUNCHES:
        raise LanewiseError(f"launch {number} is not shown here: 1 to {MOST_LAUNCHES} are")
    seen = 0
    reached: list[RequestedLaunch] = []

    def count(configured: object, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            reached.append(RequestedLaunch(configured, arguments, options))
            raise _LaunchReached

    def launched(configured: Any, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        count(configured, arguments, options)
        configured(*arguments, **options)

    def checked(
        configured: object,
        values: Sequence[object],
        options: dict[str, object],
        perform: Callable[[], Report],
    ) -> Report:
        count(configured, tuple(values), options)
        return perform()

    # The kernel's source is found under the name that the page shows, which is no file.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        with watched(launched), CHECKS.observed(checked):
            exec(compile(text, name, "exec"), {"__name__": "__main__", "__file__": name})
    except _LaunchReached:
        pass
    except LanewiseError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise LanewiseError(_script_error(error, name)) from None
    if not reached:
        few = f"it has {seen}, and not {number}" if seen else "call a kernel: `kernel[grid, block](array)`"
        raise LanewiseError(f"{name} ended without the launch that is shown: {few}")
    launch = reached[0]
    launch.files = {name: text}
    if arch:
        launch.options = {**launch.options, "arch": find_arch(arch)}
    return launch


def _script_error(error: BaseException, name: str) -> str:
    """Return an error of a script as a sentence with the script's own line."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return f"{name}, line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    where = f"{name}, line {lines[-1]}" if lines else name
    if isinstance(error, MemoryError):
        return f"{where}: the script needs more memory than it may have here"
    return f"{where}: {type(error).__name__}: {error}" if str(error) else f"{where}: {type(error).__name__}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise LanewiseError(f"an argument is text, as zeros:f32:64x64, not {value!r}")
    return value


def _coordinates(value: list[Any]) -> tuple[int, int, int]:
    if len(value) > 3 or not all(isinstance(size, int) and not isinstance(size, bool) for size in value):
        raise LanewiseError("a block is three coordinates, as [0, 0, 0]")
    x, y, z = (*value, 0, 0, 0)[:3]
    return x, y, z
