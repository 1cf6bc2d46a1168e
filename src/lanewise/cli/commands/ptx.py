"""`lanewise ptx`: the PTX that NVRTC makes of CUDA C++, or a PTX file read and written again."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lanewise.cli.input.options import ArchName, CompilingOptions, flag, valued, with_groups
from lanewise.cli.launching import Asked, entry_of, launched_by, module_in, require_code, what_it_prints


@with_groups
def ptx(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CUDA C++ (.cu), PTX to be tidied, or a Python script (.py) that launches kernels.",
        ),
    ],
    arch: ArchName = None,
    entry: Annotated[
        str | None,
        valued("--entry", "NAME", "This kernel alone; also an instance of a template, 'mm<half, float>'."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    *,
    compiling: CompilingOptions,
    lines: Annotated[bool, flag("--lines/--no-lines", "Keep the lines of the source (.loc).")] = False,
) -> Callable[[], None]:
    """Compile CUDA C++ to PTX; a GPU, a driver or a host compiler are not needed.

    \b
    lanewise ptx kernel.cu --arch sm_90 > kernel.ptx
    lanewise ptx gemm.cu --entry "mm<half, float>" -o gemm.ptx --lines
    lanewise ptx cute.cu -I cutlass/include --std c++20 --arch H100
    lanewise ptx script.py --entry hgemm           kernels that the script launches, each once
    """
    from lanewise.ptx.model.module import one_kernel

    if file.suffix == ".py":
        with what_it_prints(True):  # stdout is for the PTX
            entries = launched_by(Asked(file=file, compilation=compiling.compilation, arch=arch), entry)
        modules = {str(kernel.module): kernel.module for kernel in entries}
        return partial(_write, "\n".join(modules), output)
    module = module_in(file, arch, compiling.compilation, lines=lines)
    if entry is not None:
        kernel = entry_of(module, file, entry)
        module = kernel.module
        others = len(module.entries) > 1
        text = str(one_kernel(module, kernel.name)) if others else module.text
    else:
        require_code(module, file)
        text = module.text if module.cuda is not None else str(module)
    return partial(_write, text, output)


def _write(text: str, output: Path | None) -> None:
    if output is not None:
        output.write_text(text)
        return
    sys.stdout.write(text)
    sys.stdout.flush()
