"""What `run` and `check` share: options, the kernel in a file with its arguments, scripts that are watched.

How a launch is reported is left to each of the two.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lanewise.cli.input.options import USUAL, Compilation, CompilingOptions, flag, valued
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.hints import missing_file
from lanewise.tracebacks import shorten

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from lanewise.launch import Configured
    from lanewise.machine.checker.check import CheckObserver
    from lanewise.machine.checker.report import Report
    from lanewise.ptx import Entry, Module, Variable
    from lanewise.virtual_gpu.checking import Checking
    from lanewise.virtual_gpu.session import VirtualGPU

FAILED = 2
#: What pip calls the libraries that scripts with kernels import.
_PACKAGES = {
    "torch": "torch", "triton": "triton", "cupy": "cupy-cuda12x", "numba": "numba-cuda", "jax": "jax",
    "cutlass": "nvidia-cutlass-dsl", "cuda": "cuda-python",
}  # fmt: skip
#: What libraries say where there is no GPU: torch, Numba, the CUDA runtime, Triton.
_NO_GPU = re.compile(
    "not compiled with CUDA|no NVIDIA driver|No CUDA GPUs|CUDA_ERROR_NO_DEVICE|no CUDA-capable device|"
    "CUDA driver library cannot be found|0 active drivers"
)

#: How errors begin that are about a line of PTX.
_LINE = re.compile(r"line \d+:")

_SHAPE = "The launch"
KernelFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="PTX (.ptx), CUDA C++ (.cu) or a Python script (.py); with --gpu also an executable.",
    ),
]
ScriptArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGUMENTS]",
        help="Arguments for a Python script, which finds them in sys.argv, or for main() of a program.",
    ),
]
Grid = Annotated[
    str | None,
    valued("--grid", "X[,Y[,Z]]", "How many blocks the grid has; 1 if left out.", panel=_SHAPE),
]
Block = Annotated[str | None, valued("--block", "X[,Y[,Z]]", "How many threads a block has.", panel=_SHAPE)]
Gpu = Annotated[
    str | None,
    valued(
        "--gpu",
        "NAME",
        "Give a script or a program a virtual GPU, such as H100: a Python script with Triton's kernels "
        'and torch\'s "cuda" tensors, CUDA C++ with a main(), or an executable that holds PTX.',
    ),
]
Bar = Annotated[
    bool | None,
    flag(
        "--progress/--no-progress",
        "Show a bar on stderr for launches that take over 2 seconds; by default on a terminal.",
    ),
]


@dataclass(frozen=True)
class LaunchOptions:
    """The options of a launch that `run`, `check` and `debug` have."""

    entry: Annotated[
        str | None,
        valued(
            "--entry",
            "NAME",
            "The name of the kernel: plain, demangled or mangled; of a template an instance, "
            "'mm<half, float>'.",
            panel=_SHAPE,
        ),
    ] = None
    grid: Grid = None
    block: Block = None
    shared: Annotated[
        int | None,
        valued("--shared", "BYTES", "How many bytes of dynamic shared memory a block has.", panel=_SHAPE),
    ] = None
    cluster: Annotated[
        str | None,
        valued(
            "--cluster",
            "X[,Y[,Z]]",
            "How many blocks a cluster has (sm_90 and later), unless the kernel itself says it.",
            panel=_SHAPE,
        ),
    ] = None
    arg: Annotated[
        list[str] | None,
        valued(
            "--arg",
            "VALUE",
            "An argument: a .npy file, zeros:f32:64x64 (zeros, ones, arange, random, normal; random and "
            "normal take :seed after that), a number, null, or a struct as hex:00ff; as n=64 that of the "
            "parameter n.",
        ),
    ] = None
    arch: Annotated[
        str | None,
        valued(
            "--arch",
            "ARCH",
            "The GPU to imitate, such as sm_90 or H100: CUDA C++ is compiled for it, and matrix "
            "instructions give its bits.",
        ),
    ] = None
    steps: Annotated[
        int | None, valued("--steps", "N", "Stop a block after N steps, so that an endless loop ends.", min=1)
    ] = None
    unchecked: Annotated[
        bool,
        flag(
            "--unchecked",
            "Pass the arguments as they are, without a comparison with the kernel's signature in C++.",
        ),
    ] = False


def three(text: str, option: str) -> tuple[int, ...]:
    """Return a grid or a block: up to three sizes between commas."""
    from lanewise.ptx.launch_text import three

    return three(text, option)


def module_in(
    file: Path, arch: str | None = None, compilation: Compilation = USUAL, *, lines: bool = True
) -> Module:
    """The module in a file of PTX or of CUDA C++, compiled for the arch; with its lines or without."""
    from lanewise.ptx import PtxSyntaxError, cuda, load

    require_known(arch)
    if file.suffix == ".ptx":
        if compilation.given:
            raise LanewiseError(f"{file} is PTX: {compilation.given} is for CUDA C++")
        try:
            return load(file)
        except PtxSyntaxError as error:
            raise LanewiseError(f"{file}: {error}") from None
    if file.suffix in (".cu", ".cuh"):
        chosen: dict[str, Literal["nvrtc", "nvcc"]] = {"nvrtc": "nvrtc", "nvcc": "nvcc"}
        module = cuda(
            file,
            arch or "sm_80",
            options=compilation.flags,
            lineinfo=lines,
            compiler=chosen.get(compilation.compiler),
        )
        if module.cuda is not None and module.cuda.note:
            print(f"lanewise: {module.cuda.note}", file=sys.stderr)
        return module
    if not file.suffix and not file.exists():
        raise missing_file(file)
    if file.suffix == ".ipynb":
        raise LanewiseError(
            f"{file} is a notebook, whose cells call lw.check(kernel[grid, block], …) themselves; "
            "`jupyter nbconvert --to script` makes a script of it"
        )
    if file.is_dir():
        raise missing_file(file)
    raise LanewiseError(f"{file}: the name of the file should end in .ptx, .cu or .py")


def entry_of(module: Module, file: Path, name: str | None) -> Entry:
    """The kernel asked for, or the only one."""
    if name is not None:
        return module[name]
    if len(module.entries) == 1:
        return module[next(iter(module.entries))]
    if module.entries:
        names = ", ".join(repr(module[entry].demangled) for entry in module.entries)
        raise LanewiseError(f"{file} has {len(module.entries)} kernels; choose one with --entry: {names}")
    raise _no_kernel(file)


def require_code(module: Module, file: Path) -> None:
    """Raise an error if a module has neither a kernel nor a device function."""
    if not module.entries and not module.functions:
        raise _no_kernel(file)


def require_known(arch: str | None) -> None:
    """Raise an error for an arch that is not known: a script would find out at its first launch."""
    if arch is not None:
        from lanewise.isa import find_arch

        find_arch(arch)


def _no_kernel(file: Path) -> LanewiseError:
    return LanewiseError(
        f"{file} has no kernel; an instance of a template is asked for as --entry 'mm<half, float>'"
    )


@dataclass(frozen=True)
class Asked(LaunchOptions):
    """A launch as it was asked for on the command line."""

    file: Path = Path()
    arguments: tuple[str, ...] = ()
    compilation: Compilation = USUAL
    progress: bool | None = None
    #: The command that asks, for messages: run, check or debug.
    command: str = "run"
    #: The virtual GPU that a script has; None if it has none.
    gpu: str | None = None

    @classmethod
    def of(
        cls,
        file: Path,
        arguments: list[str] | None,
        launching: LaunchOptions,
        compiling: CompilingOptions,
        *,
        command: str = "run",
        progress: bool | None = None,
        gpu: str | None = None,
    ) -> Asked:
        """Return what a command was asked for."""
        asked = cls(file=file, arguments=tuple(arguments or ()), compilation=compiling.compilation)
        return replace(asked, **vars(launching), command=command, progress=progress, gpu=gpu)

    @property
    def args(self) -> list[str]:
        """The kernel's arguments as they were written."""
        return self.arg or []

    @property
    def is_script(self) -> bool:
        """Whether it is a Python script or a whole program, whose launches are its own business."""
        if self.file.suffix != ".py" and not self.is_program:
            if self.arguments:
                raise LanewiseError(
                    f"{' '.join(self.arguments)}: only a script takes arguments like this; give those of a "
                    "kernel with --arg"
                )
            return False
        require_known(self.arch)
        given = {
            "--arch, which --gpu says": self.arch if self.gpu is not None else None,
            "--entry": self.entry,
            "--grid": self.grid,
            "--block": self.block,
            "--shared": self.shared,
            "--cluster": self.cluster,
            "--arg": self.args or None,
        }
        if not (self.is_program and self.file.suffix):
            given[self.compilation.given] = self.compilation.given or None
        for option, value in given.items():
            if value is not None:
                raise LanewiseError(
                    f"{self.file} is a {'program' if self.is_program else 'script'} and launches its kernels "
                    f"itself; leave out {option}"
                )
        if not self.file.is_file():
            raise missing_file(self.file)
        return True

    @property
    def is_program(self) -> bool:
        """Whether it is a whole program for a virtual GPU: CUDA C++ with a main(), or an executable."""
        if self.gpu is None or self.file.suffix == ".py":
            return False
        if self.file.suffix == ".ptx":
            raise LanewiseError(
                f"--gpu is for scripts and programs, which launch kernels themselves; {self.file} is none: "
                "--arch says which GPU to imitate"
            )
        return True

    @contextlib.contextmanager
    def naming_the_file(self, configured: Configured) -> Iterator[None]:
        """Name the file of PTX in errors about one of its lines."""
        try:
            yield
        except IllegalInstruction as error:
            raise self._with_file(configured.entry.module.with_line(error)) from None
        except LanewiseError as error:
            raise self._with_file(error) from None

    def _with_file(self, error: LanewiseError) -> LanewiseError:
        """An error that begins with its line, with the file before it."""
        if self.file.suffix != ".ptx" or not _LINE.match(str(error)):
            return error
        made = copy.copy(error)
        made.args = (f"{self.file}: {error}",)
        return made

    @property
    def options(self) -> dict[str, Any]:
        """What every launch is given beside its arguments."""
        given = {"arch": self.arch, "steps": self.steps, "unchecked": self.unchecked or None}
        return {name: value for name, value in given.items() if value is not None}

    def virtual_gpu(
        self, checking: Checking | None = None, executor: Executor | None = None
    ) -> VirtualGPU | None:
        """The virtual GPU of a script, to be entered; None if none was asked for."""
        if self.gpu is None:
            return None
        from lanewise.virtual_gpu.session import VirtualGPU

        return VirtualGPU(self.gpu, check=checking or False, steps=self.steps, executor=executor)

    def nothing_launched(self, what: str) -> str:
        """Say that a script launched nothing, so that `what` did not happen, and what would be a launch."""
        launches = "kernel[grid, block](…) and lw.check(…)"
        if self.gpu is not None:
            return f"{self.file} launches nothing: {what}. Launches are those of the CUDA driver, {launches}"
        return (
            f"{self.file} launches nothing: {what}. Launches are {launches} of lanewise's kernels; those of "
            f"Triton, Numba and CUDA C++ need a virtual GPU: lanewise {self.command} --gpu H100 {self.file}"
        )

    def assumed(self, configured: Configured) -> tuple[str, ...]:
        """What was assumed of the launch, in words, where the command line did not say it."""
        said = []
        if self.grid is None:
            said.append("a grid of 1 block was assumed; give --grid for another")
        if self.block is None:
            threads = " × ".join(map(str, configured.shape.block))
            said.append(f"a block of {threads} threads is what the kernel requires")
        return tuple(said)

    def kernel(self) -> tuple[Configured, list[Any]]:
        """The kernel, configured, and its arguments."""
        from lanewise.cli.input.suggested_command import (
            arguments_in_order,
            parameter_names,
            suggested_command,
        )
        from lanewise.ptx.arguments import described

        entry = entry_of(module_in(self.file, self.arch, self.compilation), self.file, self.entry)
        parameters = entry.parameters
        texts = arguments_in_order(self.args, entry)
        if texts is None or None in texts:
            names = ", ".join(described(parameter) for parameter in parameters)
            signature = entry.demangled if "(" in entry.demangled else f"{entry.demangled}({names})"
            wanted = (
                f"{signature} takes {len(parameters)} argument{'s' if len(parameters) != 1 else ''}: give "
                f"one --arg for each; {len(self.args)} {'is' if len(self.args) == 1 else 'are'} given"
            )
            if texts is None:
                raise LanewiseError(wanted)
            if self.args:
                named = zip(parameter_names(entry), texts, strict=True)
                missing = ", ".join(name for name, text in named if text is None)
                raise LanewiseError(f"{wanted}: there is none for {missing}")
            suggested = suggested_command(self.command, entry, self.file, self.grid, self.block)
            raise LanewiseError(f"{wanted}. A command to begin with:\n{suggested}")
        values = [
            parse_argument(text, number, variable)
            for number, (text, variable) in enumerate(zip(texts, parameters, strict=True))
            if text is not None
        ]
        grid = three(self.grid or "1", "--grid")
        block = three(self.block, "--block") if self.block else entry.function.limit("reqntid")
        if block is None:
            raise LanewiseError(f"say how many threads a block of {entry.demangled} has: --block 128")
        configured: Configured = entry[grid, block, self.shared or 0]
        if self.cluster is not None:
            configured = configured.in_clusters(three(self.cluster, "--cluster"))
        return configured, values


def _observer_of(watcher: Callable[..., None]) -> CheckObserver:
    """Return an observer of checks that hands each to a watcher of launches, on copies of the arrays."""

    def observer(
        configured: object,
        values: Sequence[object],
        options: dict[str, object],
        perform: Callable[[], Report],
    ) -> Report:
        watcher(configured, tuple(copy.copy(value) for value in values), options)
        return perform()

    return observer


def run_script(
    asked: Asked,
    watcher: Callable[..., None],
    checks: CheckObserver | None = None,
    gpu: VirtualGPU | None = None,
) -> int:
    """Run a script as Python would, its launches through the watcher; returns its exit status.

    Launches that the script itself checks with `lw.check` go through `checks`; without one, they go through
    the watcher as other launches do, on copies of their arrays. `gpu` is the script's virtual GPU; without
    one it has what was asked for. An exception of the script's is shown as
    Python shows it, without the frames of the command line.
    """
    from lanewise.launch import watched
    from lanewise.machine.checker.check import CHECKS

    if asked.is_program:
        return _run_program(asked, watcher, checks, gpu)
    path, device = str(asked.file), gpu or asked.virtual_gpu() or contextlib.nullcontext()
    if not faulthandler.is_enabled():  # a crash of the script's libraries ends in its lines, not in silence
        with contextlib.suppress(OSError, ValueError):  # stderr may be no file
            faulthandler.enable()
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = [path, *asked.arguments], [str(asked.file.parent.resolve()), *sys.path]
    try:
        with watched(watcher), CHECKS.observed(checks or _observer_of(watcher)), device:
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, LanewiseError):
            shorten(error)
        place = error.__traceback__
        while place is not None and place.tb_frame.f_code.co_filename != path:
            place = place.tb_next
        traceback.print_exception(type(error), error, place)
        if isinstance(error, ModuleNotFoundError) and error.name in _PACKAGES:
            command = f"{sys.executable} -m pip install {_PACKAGES[error.name]}"
            print(f"{error.name} is not installed here: {command}", file=sys.stderr)
        if asked.gpu is None and gpu is None and _NO_GPU.search(str(error)):
            print(
                f"It runs on a GPU that is not there: lanewise {asked.command} --gpu H100 {path}",
                file=sys.stderr,
            )
        return FAILED
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _run_program(
    asked: Asked, watcher: Callable[..., None], checks: CheckObserver | None, gpu: VirtualGPU | None
) -> int:
    """Run a program on a virtual GPU, its launches through the watcher; returns the exit status of main()."""
    from lanewise.launch import watched
    from lanewise.machine.checker.check import CHECKS
    from lanewise.virtual_gpu.devices import find_device
    from lanewise.virtual_gpu.programs import library_of, run_program
    from lanewise.virtual_gpu.programs.running import supervised

    assert asked.gpu is not None
    library = library_of(asked.file, find_device(asked.gpu).arch, asked.compilation.flags)
    ended = supervised()
    if ended is not None:
        raise SystemExit(ended)
    gpu = gpu or asked.virtual_gpu()
    assert gpu is not None
    with watched(watcher), CHECKS.observed(checks or _observer_of(watcher)), gpu:
        return run_program(library, asked.arguments, gpu.driver, str(asked.file))


def launched_by(asked: Asked, name: str | None) -> list[Entry]:
    """Run a script and return the kernels that it launches, each once; with a name only those."""
    entries: dict[str, Entry] = {}

    def watcher(configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        entry = configured.entry
        if name in (None, entry.name, entry.demangled):
            entries.setdefault(str(entry.module), entry)
        configured(*arguments, **options)

    if not asked.is_script:
        raise LanewiseError(f"{asked.file} is no Python script")
    status = run_script(asked, watcher)
    if entries:
        return list(entries.values())
    which = f"no kernel {name}" if name is not None else "no kernel"
    ended = f"; it ended with exit status {status}" if status else ""
    raise LanewiseError(f"{asked.file} launches {which}, so there is nothing to show{ended}")


@contextlib.contextmanager
def what_it_prints(json: bool) -> Iterator[None]:
    """Within it, what kernels and scripts print goes to stderr if stdout is for JSON."""
    if not json:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield


def parse_argument(text: str, number: int, variable: Variable) -> Any:
    """Return the value of one `--arg`, a `.npy` file or what needs no file, for the parameter that it is for.

    `number` counts parameters from 0.
    """
    from lanewise.ptx import launch_text

    path = Path(text)
    if path.suffix == ".npy" or (len(text) < 4096 and "\0" not in text and path.is_file()):
        from lanewise.cli.input.arrays import load

        return load(path)
    return launch_text.parse_argument(text, number, variable)
