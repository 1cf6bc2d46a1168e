"""Where NVIDIA's tools, libraries and headers lie: in packages from PyPI, or in an installed toolkit.

Runs programs and reads their versions; what a tool is used for is written elsewhere, one file a tool.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lanewise.errors import LanewiseError, install_command

#: Download, and space on disk, of the packages of the extra (CUDA 13.0, Linux on aarch64; x86-64 is alike).
_SIZE = "about 150 MB to download, 400 MB on disk"
_SUFFIX = ".exe" if sys.platform == "win32" else ""
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


def extra() -> str:
    """Return the command that installs NVIDIA's compilers, and how large they are."""
    return f"{install_command('cuda')} ({_SIZE})"


class ToolMissing(LanewiseError):
    """A tool of NVIDIA's that is not installed: the message says how to get it."""


class ToolFailed(LanewiseError):
    """A tool that ran and refused its input; `log` is what it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True)
class Tool:
    """A program that was found."""

    path: Path

    @property
    def release(self) -> tuple[int, int]:
        """The CUDA release it says it is of; (0, 0) if it does not say."""
        return _release(self.path)

    def run(
        self, arguments: Sequence[str | Path], folder: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run it in a folder and wait for it."""
        command = [str(self.path), *map(str, arguments)]
        try:
            return subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolFailed(
                f"{self.path.name} was stopped after {timeout:g} seconds; timeout= gives it more"
            ) from None
        except OSError as error:
            raise ToolFailed(f"{self.path} cannot be run: {error}") from None


@cache
def _release(path: Path) -> tuple[int, int]:
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=600, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    match = _RELEASE.search(done.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def package_folders() -> Iterator[Path]:
    """The folders that PyPI's `nvidia-*` packages fill, the newest CUDA first."""
    spec = find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or () if spec else ())]
    folders = [path for root in roots if root.is_dir() for path in root.iterdir() if path.is_dir()]
    yield from sorted(folders, key=lambda path: (-_major(path), path))


def _major(folder: Path) -> int:
    """Packages of CUDA 13 share the folder `cu13`; those of CUDA 12 have one each (`cuda_runtime`, …)."""
    match = re.fullmatch(r"cu(\d+)", folder.name)
    return int(match.group(1)) if match else 12


def toolkit_folders() -> Iterator[Path]:
    """The folders of toolkits that are installed: as the environment says, then the usual ones."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda"]
    yield from (Path(place) for place in dict.fromkeys(places) if place and Path(place).is_dir())


def find_tools(name: str) -> list[Tool]:
    """Every installed program of that name: from PyPI's packages, from a toolkit, on the PATH."""
    paths = [folder / "bin" / (name + _SUFFIX) for folder in (*package_folders(), *toolkit_folders())]
    on_path = shutil.which(name)
    paths += [Path(on_path)] if on_path else []
    return [Tool(path) for path in dict.fromkeys(paths) if path.is_file() and os.access(path, os.X_OK)]


def find_tool(name: str) -> Tool:
    """The program of that name that is found first."""
    tools = find_tools(name)
    if not tools:
        raise ToolMissing(f"{name} is not installed: {extra()}, or install the CUDA toolkit")
    return tools[0]


#: Headers of CUDA that come in packages of their own.
_RUNTIME_HEADER = "cuda_runtime.h"
_HEADERS = (_RUNTIME_HEADER, "cooperative_groups.h", "crt/mma.h")


def include_folders(major: int = 13) -> list[Path]:
    """Where the headers of CUDA are, for a compiler of that major release; with libcu++'s beside them."""
    folders = [folder / "include" for folder in package_folders() if _major(folder) == major]
    has_runtime = any((folder / _RUNTIME_HEADER).is_file() for folder in folders)
    if not all(any((folder / header).is_file() for folder in folders) for header in _HEADERS):
        # A toolkit gives what the packages lack. Without any, its release is as good as another.
        toolkits = [folder / "include" for folder in toolkit_folders()]
        folders += [toolkit for toolkit in toolkits if not has_runtime or header_release(toolkit)[0] == major]
    folders = [folder for folder in folders if folder.is_dir()]
    return [*folders, *(folder / "cccl" for folder in folders if (folder / "cccl").is_dir())]


def header_release(folder: Path) -> tuple[int, int]:
    """The CUDA release of the headers in a folder; (0, 0) if they do not say."""
    header = folder / "cuda_runtime_api.h"
    match = (
        re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"))
        if header.is_file()
        else None
    )
    return (int(match.group(1)) // 1000, int(match.group(1)) % 1000 // 10) if match else (0, 0)
