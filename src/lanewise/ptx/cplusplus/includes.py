"""The headers of a program: those of the project are read here, the compiler's own are left to it.

A header that is found nowhere, or that is known to be the host's alone, becomes an empty one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lanewise.ptx.cplusplus.source_file import SourceFile
from lanewise.ptx.model.left_out import LeftOut

_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include(?:_next)?[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
#: A header whose name is a macro; CUTLASS names those of libcu++ so, which the compiler has.
_COMPUTED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(?!CUDA_STD_HEADER\()[A-Za-z_]", re.MULTILINE)
#: Headers of C++, of operating systems and of CUDA's host libraries that device code has no use for.
HOST_HEADERS = (
    "iostream", "vector", "string", "random", "chrono", "fstream", "sstream", "iomanip", "map", "set",
    "list", "deque", "queue", "stack", "thread", "unordered_map", "unordered_set", "mutex",
    "condition_variable", "memory", "stdexcept", "exception", "ctime", "time.h", "csignal", "signal.h",
    "unistd.h", "cstdarg", "stdarg.h", "atomic", "future", "filesystem", "regex", "locale", "ios",
    "ostream", "istream", "iosfwd", "string_view", "variant", "any", "bitset", "typeinfo", "typeindex",
    "cerrno", "errno.h", "new", "cctype", "ctype.h", "getopt.h", "omp.h", "dirent.h", "fcntl.h",
    "pthread.h", "windows.h", "Windows.h", "strings.h", "memory.h", "malloc.h", "process.h", "inttypes.h",
    "cinttypes", "iterator", "source_location", "cxxabi.h", "execinfo.h", "dlfcn.h", "glob.h",
    "thrust/device_vector.h", "thrust/host_vector.h", "cuda_gl_interop.h", "cudaGL.h",
    "cuda_profiler_api.h", "cudaProfiler.h", "nvrtc.h", "nvml.h", "nvtx3/nvToolsExt.h",
)  # fmt: skip
_HOST_HEADER = re.compile(
    r"(?:sys|torch|ATen|c10|pybind11|nvtx3|GL|boost|opencv2|gtest|benchmark|mpi)/.*|Python\.h|mpi\.h"
    r"|(?:cublas|cudnn|cufft|cusparse|cusolver|nccl|nvToolsExt|nvjpeg|npp|cusolver|cudss|freeglut|glut)\w*\.h"
)
#: Headers of the host's libraries that include those of CUDA's number formats.
_BRINGS_FORMATS = re.compile(r"cublas|cudnn|cusparse|cufft|torch/|ATen/|c10/|nccl")
_NUMBER_FORMATS = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuComplex.h>
typedef float cufftReal; typedef double cufftDoubleReal;
typedef cuComplex cufftComplex; typedef cuDoubleComplex cufftDoubleComplex;
"""
_LEFT_OUT = "left out/"
#: Folders beside a source, or beside one of the folders above it, where projects keep their headers.
_COMMON = ("", "common", "Common", "include", "inc", "includes", "utils", "src")
_ANCESTORS = 6
_MOST_FILES = 3000


def is_host_header(name: str) -> bool:
    """Return whether a header is one of the host's, which declares nothing that device code needs."""
    return name in HOST_HEADERS or _HOST_HEADER.fullmatch(name) is not None


@dataclass
class Headers:
    """The files that a source includes: the project's, by path, and the names that were left empty."""

    files: dict[Path, SourceFile] = field(default_factory=dict)
    #: For each file: what a name in an `#include` of it means.
    resolved: dict[str, dict[str, Path]] = field(default_factory=dict)
    #: Names that the compiler has itself, and who includes them first.
    external: dict[str, LeftOut] = field(default_factory=dict)
    #: Names that became empty headers, and who includes them first.
    empty: dict[str, LeftOut] = field(default_factory=dict)
    #: Whether all that will be read is known; a header whose name is a macro is not.
    is_complete: bool = True


def read_headers(
    source: SourceFile,
    folder: Path | None,
    include_options: Sequence[Path],
    provided: Iterable[str],
    toolkit: Sequence[Path],
) -> Headers:
    """Read what a source includes, and what that includes.

    A name is looked for beside the file that has it, in the folders of `-I`, among the headers `provided`
    and in the `toolkit`'s folders, and then in the folders where projects keep their common headers.
    """
    headers = Headers()
    given = frozenset(provided)
    common = _common_folders(folder)
    waiting: list[tuple[SourceFile, Path | None]] = [(source, folder)]
    while waiting:
        file, beside = waiting.pop()
        headers.is_complete &= _COMPUTED.search(file.text) is None
        names = headers.resolved.setdefault(file.name, {})
        for match in _INCLUDE.finditer(file.text):
            quoted, name = match.group(2) is not None, match.group(2) or match.group(3)
            path = _find(name, quoted, beside, include_options, given, toolkit, common)
            if not isinstance(path, Path):
                place = LeftOut("header", name, file.name, file.lines.at(match.start()))
                (headers.empty if path is None else headers.external).setdefault(name, place)
            elif len(headers.files) < _MOST_FILES:
                names[name] = path
                if path not in headers.files:
                    text = path.read_text(encoding="utf-8-sig", errors="replace")
                    read = SourceFile(str(path), text, is_header=True)
                    headers.files[path] = read
                    waiting.append((read, path.parent))
    return headers


def _find(
    name: str,
    quoted: bool,
    beside: Path | None,
    include_options: Sequence[Path],
    provided: frozenset[str],
    toolkit: Sequence[Path],
    common: Sequence[Path],
) -> Path | bool | None:
    """The path of a project's header; True for one that the compiler has; None for one to leave empty."""
    near = [beside] if quoted and beside is not None else []
    for folder in (*near, *include_options):
        if (folder / name).is_file():
            return (folder / name).resolve()
    if name in provided:
        return True
    if is_host_header(name):
        return None
    if any((folder / name).is_file() for folder in toolkit):
        return True
    for folder in common:
        if (folder / name).is_file():
            return (folder / name).resolve()
    return None


def _common_folders(folder: Path | None) -> list[Path]:
    """The folders that exist among those where projects keep headers, the nearest first."""
    if folder is None:
        return []
    near = [folder, *folder.parents][:_ANCESTORS]
    places = (above / name for above in near if above != Path(above.anchor) for name in _COMMON)
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def empty_headers(names: Iterable[str]) -> dict[str, str]:
    """The headers that stand for some that are left out, by the names they are included by.

    Those of libraries that bring CUDA's number formats with them still do so.
    """
    return {
        title: _NUMBER_FORMATS if _BRINGS_FORMATS.match(name) else ""
        for name in names
        for title in (name, _LEFT_OUT + name)
    }


def with_paths(text: str, resolved: Mapping[str, Path], empty: Iterable[str]) -> str:
    """A text whose `#include`s of headers name their paths, those of empty ones a place of their own."""
    gone = frozenset(empty)

    def replaced(match: re.Match[str]) -> str:
        name = match.group(2) or match.group(3)
        if name in resolved:
            return f'{match.group(1)}"{resolved[name]}"'
        return f'{match.group(1)}"{_LEFT_OUT}{name}"' if name in gone else match.group()

    return _INCLUDE.sub(replaced, text)
