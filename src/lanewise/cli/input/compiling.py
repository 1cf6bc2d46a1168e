"""Options for CUDA C++, which `run`, `check`, `ptx` and `sass` share, and what they ask of the compiler."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lanewise.cli.input.option_groups import flag, valued
from lanewise.errors import LanewiseError

_COMPILING = "For CUDA C++"


class Compiler(StrEnum):
    """The compilers of CUDA C++."""

    #: NVRTC, or nvcc where NVRTC does not suffice.
    AUTO = "auto"
    NVRTC = "nvrtc"
    NVCC = "nvcc"


Definitions = Annotated[
    list[str] | None,
    typer.Option(
        "--define",
        "-D",
        metavar="NAME[=VALUE]",
        help="Define a macro for CUDA C++.",
        rich_help_panel=_COMPILING,
    ),
]
Includes = Annotated[
    list[Path] | None,
    typer.Option(
        "--include",
        "-I",
        metavar="FOLDER",
        help="Search this folder for headers; the folder of the file itself is always searched.",
        rich_help_panel=_COMPILING,
    ),
]
Standard = Annotated[
    str | None,
    valued("--std", "STANDARD", "The C++ standard, such as c++20; c++17 if left out.", panel=_COMPILING),
]
CompilerOptions = Annotated[
    list[str] | None,
    valued(
        "--option",
        "OPTION",
        "Pass another option to the compiler, as in --option=--use_fast_math.",
        panel=_COMPILING,
    ),
]
CompilerName = Annotated[
    Compiler,
    flag(
        "--compiler",
        "Compile with NVRTC, or with nvcc and the host's C++ compiler, which compile host code too. By "
        "default nvcc compiles what NVRTC cannot.",
        panel=_COMPILING,
    ),
]


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

    define: Definitions = None
    include: Includes = None
    std: Standard = None
    option: CompilerOptions = None
    compiler: CompilerName = Compiler.AUTO

    @property
    def compilation(self) -> Compilation:
        """How CUDA C++ is to be compiled."""
        given = tuple(self.define or ()), tuple(self.include or ()), self.std, tuple(self.option or ())
        return Compilation(*given, self.compiler)
