"""A file of a program: its text, its declarations, and its text without those that are left out.

What is left out becomes blank, so that every line keeps its number.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from lanewise.ptx.cplusplus.declarations import Declaration, declarations
from lanewise.ptx.cplusplus.host_code import holds_host_code
from lanewise.ptx.cplusplus.tokens import Lines, Token, TokenKind, directive, tokens
from lanewise.ptx.model.module import LeftOut

_ANNOTATIONS = ("__device__", "__host__")
#: Preprocessor lines that stay where a declaration around them is left out: what comes later depends on them.
_KEPT_DIRECTIVES = frozenset(
    ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "define", "undef", "include")
)


@dataclass(eq=False)
class SourceFile:
    """A file of the program: its text, its declarations, and those that are not compiled."""

    name: str
    text: str
    is_header: bool = False
    blanked: dict[Declaration, str] = field(default_factory=dict, repr=False)

    @cached_property
    def is_split(self) -> bool:
        """Whether declarations are judged; headers without kernels and host code are taken as they are."""
        return not self.is_header or "__global__" in self.text or holds_host_code(self.text)

    @cached_property
    def lines(self) -> Lines:
        """The numbers of the lines, by offset."""
        return Lines(self.text)

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens of the text; none of a header that is taken as it is."""
        return tokens(self.text) if self.is_split else []

    @cached_property
    def declared(self) -> list[Declaration]:
        """The declarations of the text; none of a header that is taken as it is."""
        return declarations(self.tokens)

    def split(self) -> None:
        """Judge the declarations of a header after all."""
        self.is_split = True
        for name in ("tokens", "declared"):
            self.__dict__.pop(name, None)

    def at_line(self, line: int) -> Declaration | None:
        """The declaration that a line belongs to."""
        for declaration in self.declared:
            if self.lines.at(declaration.start) <= line <= self.lines.at(declaration.end - 1):
                return declaration
        return None

    def line(self, declaration: Declaration) -> int:
        """The line on which a declaration begins."""
        return self.lines.at(declaration.start)

    def is_conditional(self, declaration: Declaration, token: Token) -> bool:
        """Whether a token of a declaration stands behind an `#if` inside the declaration."""
        depth = 0
        for later in self.tokens[bisect_left(self.tokens, declaration.start, key=_start) :]:
            if later.start >= token.start:
                break
            if later.kind is TokenKind.DIRECTIVE:
                name = directive(later.text)[0]
                depth += (name in ("if", "ifdef", "ifndef")) - (name == "endif")
        return depth > 0

    def compiled_text(self) -> str:
        """The text with blanks for what is left out; conditionals, macros and includes stay."""
        text = self._without_lambda_annotations()
        kept = [
            token
            for token in self.tokens
            if token.kind is TokenKind.DIRECTIVE and directive(token.text)[0] in _KEPT_DIRECTIVES
        ]
        pieces, done, following = [], 0, 0
        for declaration in sorted(self.blanked, key=lambda one: one.start):
            if declaration.start < done:  # a member of a class that is left out itself
                continue
            pieces.append(text[done : declaration.start])
            done = declaration.start
            while following < len(kept) and kept[following].start < declaration.end:
                token = kept[following]
                if token.start >= done:
                    pieces += [_blank(text[done : token.start]), token.text]
                    done = token.end
                following += 1
            pieces.append(_blank(text[done : declaration.end]))
            done = declaration.end
        return "".join([*pieces, text[done:]])

    def _without_lambda_annotations(self) -> str:
        """The text without `__device__` on lambdas, which NVRTC refuses; all its lambdas are the device's."""
        pieces, done = [], 0
        for before, token in pairwise(self.tokens):
            follows = before.text == "]" or (done == before.end and before.text in _ANNOTATIONS)
            if follows and token.text in _ANNOTATIONS:
                pieces += [self.text[done : token.start], " " * len(token.text)]
                done = token.end
        return "".join([*pieces, self.text[done:]])


def _start(token: Token) -> int:
    return token.start


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


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
