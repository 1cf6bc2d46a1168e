"""Options that several commands share, declared once, and records of them.

A command takes a dataclass, and each field of it is an option of the command line: `valued` and `flag`
declare options, `with_groups` hands them on together."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from lanewise.virtual_gpu.checking import Checking

T = TypeVar("T")


def valued(
    name: str, metavar: str, help: str, *, panel: str | None = None, show_default: bool = True,
    min: int | None = None, max: int | None = None,
) -> object:  # fmt: skip
    """Return an option that takes a value, as Typer reads it: its name, what to write after it, its help."""
    return typer.Option(
        name, metavar=metavar, help=help, rich_help_panel=panel, show_default=show_default, min=min, max=max
    )


def flag(name: str, help: str, *, panel: str | None = None) -> object:
    """Return an option without a value."""
    return typer.Option(name, help=help, rich_help_panel=panel)


def with_groups(command: Callable[..., T]) -> Callable[..., T]:
    """Return a command as Typer reads it, with the fields of its records in place of the records.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Launch:
    ...     grid: int = 1
    >>> @with_groups
    ... def run(file: str, launch: Launch, json: bool = False) -> str:
    ...     return f"{file} {launch.grid}"
    >>> list(signature(run).parameters), run(file="k.cu", grid=2)
    (['file', 'grid', 'json'], 'k.cu 2')
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        kind = groups.get(parameter.name)
        if kind is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        types = get_type_hints(kind, include_extras=True)
        parameters += [
            Parameter(field.name, parameter.kind, default=field.default, annotation=types[field.name])
            for field in fields(kind)
        ]

    @wraps(command)
    def grouped(**given: Any) -> T:
        records = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind) if field.name in given})
            for name, kind in groups.items()
        }
        return command(**given, **records)

    grouped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(grouped)["__signature__"] = Signature(parameters)
    return grouped


_STYLE = "How the answer is written"

_INSTRUCTION_HELP = (
    "PTX (its words in any order, operands may follow), words that name it such as m16n8k16 bf16, or the "
    "name of a CUTLASS atom."
)
#: An instruction in one argument, where other arguments follow it.
InstructionText = Annotated[str, typer.Argument(metavar="INSTRUCTION", help=_INSTRUCTION_HELP)]
#: An instruction in as many words as the user writes, with or without quotes.
InstructionWords = Annotated[list[str], typer.Argument(metavar="INSTRUCTION...", help=_INSTRUCTION_HELP)]
ArchName = Annotated[
    str | None, valued("--arch", "ARCH", "An arch such as sm_86, or a GPU such as 'RTX 4090'.")
]
AsJson = Annotated[bool, flag("--json", "Write JSON.", panel=_STYLE)]
ASource = Annotated[
    str | None,
    valued("--a-source", "WHERE", "Of wgmma: A is in 'registers' or behind a 'descriptor' (the default)."),
]
Descriptor = Annotated[
    str | None,
    valued("--descriptor", "BITS", "Of tcgen05.mma: its instruction descriptor, 32 bits such as 0x8400490."),
]
Stride = Annotated[
    bool | None,
    flag(
        "--stride/--no-stride",
        "Of wmma.load and wmma.store: the form with a stride operand (the default) or the one without.",
    ),
]


@dataclass(frozen=True)
class StyleOptions:
    """The options that say in which form an answer is written."""

    json: AsJson = False
    csv: Annotated[bool, flag("--csv", "Write CSV, one table.", panel=_STYLE)] = False
    markdown: Annotated[bool, flag("--markdown", "Write Markdown tables.", panel=_STYLE)] = False


_COMPILING = "For CUDA C++"


class Compiler(StrEnum):
    """The compilers of CUDA C++."""

    #: NVRTC, or nvcc where NVRTC does not suffice.
    AUTO = "auto"
    NVRTC = "nvrtc"
    NVCC = "nvcc"


class Compilation(NamedTuple):
    """How CUDA C++ is to be compiled."""

    definitions: tuple[str, ...] = ()
    includes: tuple[Path, ...] = ()
    standard: str | None = None
    options: tuple[str, ...] = ()
    compiler: Compiler = Compiler.AUTO

    @property
    def given(self) -> str:
        """The first option that was given; empty if none was."""
        options = {
            "--define": self.definitions,
            "--include": self.includes,
            "--std": self.standard,
            "--option": self.options,
            "--compiler": self.compiler != Compiler.AUTO,
        }
        return next((name for name, value in options.items() if value), "")

    @property
    def flags(self) -> list[str]:
        """The compiler's own options.

        >>> Compilation(("N=4",), standard="20").flags
        ['-DN=4', '--std=c++20']
        """
        for folder in self.includes:
            if not folder.is_dir():
                raise LanewiseError(f"--include {folder}: no such folder")
        standard = (self.standard or "").lower().removeprefix("c++")
        if standard and not standard.isalnum():
            raise LanewiseError(f"--std {self.standard}: a standard is written as c++17 or c++20")
        return [
            *(f"-D{definition}" for definition in self.definitions),
            *(f"-I{folder.resolve()}" for folder in self.includes),
            *((f"--std=c++{standard}",) if standard else ()),
            *self.options,
        ]


#: As CUDA C++ is compiled if nothing is said.
USUAL = Compilation()


@dataclass(frozen=True)
class CompilingOptions:
    """The options for CUDA C++ of a command."""

    define: Annotated[
        list[str] | None,
        typer.Option(
            "--define",
            "-D",
            metavar="NAME[=VALUE]",
            help="Define a macro for CUDA C++.",
            rich_help_panel=_COMPILING,
        ),
    ] = None
    include: Annotated[
        list[Path] | None,
        typer.Option(
            "--include",
            "-I",
            metavar="FOLDER",
            help="Search this folder for headers; the folder of the file itself is always searched.",
            rich_help_panel=_COMPILING,
        ),
    ] = None
    std: Annotated[
        str | None,
        valued("--std", "STANDARD", "The C++ standard, such as c++20; c++17 if left out.", panel=_COMPILING),
    ] = None
    option: Annotated[
        list[str] | None,
        valued(
            "--option",
            "OPTION",
            "Pass another option to the compiler, as in --option=--use_fast_math.",
            panel=_COMPILING,
        ),
    ] = None
    compiler: Annotated[
        Compiler,
        flag(
            "--compiler",
            "Compile with NVRTC, or with nvcc and the host's C++ compiler, which compile host code too. By "
            "default nvcc compiles what NVRTC cannot.",
            panel=_COMPILING,
        ),
    ] = Compiler.AUTO

    @property
    def compilation(self) -> Compilation:
        """How CUDA C++ is to be compiled."""
        given = tuple(self.define or ()), tuple(self.include or ()), self.std, tuple(self.option or ())
        return Compilation(*given, self.compiler)


_PANEL = "Programs on a virtual GPU (--gpu)"
ExecutorName = Annotated[
    str | None,
    valued(
        "--executor",
        "WORKERS",
        "Spread the blocks of launches over so many processes, or over the Dask cluster at an address: "
        "4, tcp://scheduler:8786.",
        panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class GpuChecks:
    """Which launches on a virtual GPU are checked, and how: options of a command."""

    streams: Annotated[
        bool,
        flag(
            "--streams",
            "Look for races between launches, copies and memsets on different streams as well.",
            panel=_PANEL,
        ),
    ] = False
    only: Annotated[
        list[str] | None,
        valued(
            "--only",
            "NAME",
            "Check the launches of kernels of this name (* stands for any text); others run plainly.",
            panel=_PANEL,
        ),
    ] = None
    first: Annotated[
        int | None,
        valued("--first", "N", "Check the first N launches; later ones run plainly.", min=1, panel=_PANEL),
    ] = None
    fast: Annotated[bool, flag("--fast", "Run launches plainly and look at bounds alone.", panel=_PANEL)] = (
        False
    )

    def require_gpu(self, gpu: str | None) -> None:
        """Raise an error if an option was given without a virtual GPU."""
        given = {"--streams": self.streams, "--only": self.only, "--first": self.first, "--fast": self.fast}
        for option, value in given.items():
            if value and gpu is None:
                raise LanewiseError(f"{option} is for programs on a virtual GPU: give --gpu H100 as well")

    def checking(self) -> Checking:
        """Return how the virtual GPU is to check."""
        from lanewise.virtual_gpu.checking import Checking

        if self.fast and self.streams:
            raise LanewiseError(
                "--fast runs launches plainly, and --streams needs to know what they access; give one of them"
            )
        return Checking(tuple(self.only or ()), self.first, self.fast, self.streams)


def executor_of(text: str | None, gpu: str | None) -> AbstractContextManager[Executor | None]:
    """Return the executor that a text names, to be entered: a number of processes, or a Dask cluster."""
    if text is None:
        return nullcontext()
    if gpu is None:
        raise LanewiseError("--executor is for programs on a virtual GPU: give --gpu H100 as well")
    if text.isdecimal() and int(text):
        from concurrent.futures import ProcessPoolExecutor, wait
        from multiprocessing import get_context

        pool = ProcessPoolExecutor(int(text), mp_context=get_context("spawn"))
        # All workers start now: later `__main__` is the script, which they would run.
        wait([pool.submit(os.getpid) for _ in range(int(text))])
        return pool
    if "://" not in text:
        raise LanewiseError(
            f"--executor {text!r}: a number of processes is wanted, or the address of a Dask scheduler such "
            "as tcp://scheduler:8786"
        )
    try:
        import distributed
    except ImportError:
        raise LanewiseError(f"--executor {text}: Dask is not installed: `pip install distributed`") from None
    try:
        client: Any = distributed.Client
        executor: Executor = client(text, timeout="10s").get_executor()
    except (OSError, ValueError) as error:
        raise LanewiseError(f"--executor {text}: no Dask scheduler answers there ({error})") from None
    return executor
