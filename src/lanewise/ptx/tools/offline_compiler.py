"""nvcc: CUDA C++ with host code in it to PTX; needs a host compiler beside it."""

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from lanewise.isa import arch_number
from lanewise.ptx.tools.toolkit import Tool, ToolFailed, ToolMissing, find_tools, header_release

_HOST_COMPILERS = ("g++", "c++", "clang++", "cl")


def host_compiler() -> str | None:
    """The host compiler that nvcc would find, by path."""
    return next((path for name in _HOST_COMPILERS if (path := shutil.which(name))), None)


def find_nvcc() -> Tool | None:
    """An nvcc whose headers are of its own release, if there is one; else any.

    Packages from PyPI can be of several releases beside each other; nvcc then stops at the first header.
    """
    tools = find_tools("nvcc")
    agreeing = [tool for tool in tools if header_release(_home(tool) / "include") == tool.release]
    return next(iter(agreeing or tools), None)


def _home(tool: Tool) -> Path:
    """The toolkit's folder: an nvcc on the PATH may be a script that starts the one of a toolkit."""
    if tool.path.stat().st_size < 4096:
        match = re.search(r"(/\S+)/bin/nvcc", tool.path.read_text(errors="replace"))
        if match:
            return Path(match.group(1))
    return tool.path.resolve().parent.parent


def nvcc(
    source: str, arch: str, *, name: str = "kernel.cu", options: Iterable[str] = (), timeout: float = 600
) -> str:
    """Compile CUDA C++ to PTX text with nvcc and the host compiler."""
    options = list(options)
    tool, host = find_nvcc(), host_compiler()
    if tool is None or host is None:
        lacking = " and ".join(
            word for word, there in (("nvcc", tool), ("a host C++ compiler", host)) if there is None
        )
        raise ToolMissing(f"{lacking} would be needed, and is not installed")
    if arch_number(arch) < 75 and tool.release >= (13, 0):
        raise ToolMissing(f"nvcc {tool.release[0]}.{tool.release[1]} has no {arch} any more; CUDA 12's has")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = folder / (Path(name).name if Path(name).suffix == ".cu" else "kernel.cu")
        file.write_text(source, encoding="utf-8", errors="replace")
        arguments = [
            "-ptx",
            f"-arch={arch}",
            *(() if any("-std" in option for option in options) else ("-std=c++17",)),
            "--expt-relaxed-constexpr",
            "--extended-lambda",
            *options,
            file.name,
            "-o",
            "kernel.ptx",
        ]
        done = tool.run(arguments, folder, timeout)
        if done.returncode:
            log = (done.stdout + done.stderr).strip()
            raise ToolFailed(
                f"nvcc cannot compile {name} for {arch}:\n{log or f'exit status {done.returncode}'}", log
            )
        return (folder / "kernel.ptx").read_text().replace(str(file), name)
