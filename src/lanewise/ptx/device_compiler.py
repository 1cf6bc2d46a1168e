"""The device code of a published source, compiled by NVRTC: host code is left out first.

What is in doubt is kept. If the compiler then complains inside a declaration that no kernel needs, this is
left out as well and the rest compiled again. The PTX is kept on disk.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from lanewise import disk_cache
from lanewise.ptx.cplusplus.declarations import Declaration, Kind, members
from lanewise.ptx.cplusplus.device_code import BY_THE_COMPILER, Program
from lanewise.ptx.cplusplus.launches import UsedInstances, template_parameters, used_instances
from lanewise.ptx.cplusplus.source_file import (
    HOST_HEADERS,
    Headers,
    SourceFile,
    empty_headers,
    is_host_header,
    read_headers,
    with_paths,
)
from lanewise.ptx.model.module import LeftOut
from lanewise.ptx.tools.runtime_compiler import Compiled, compile_source, installed_libraries
from lanewise.ptx.tools.standard_headers import (
    PRELUDE,
    PRELUDE_NAME,
    STANDARD_HEADERS,
    TENSOR_MAP_PRELUDE,
    THRUST_PRELUDE,
)
from lanewise.ptx.tools.toolkit import ToolFailed, include_folders

_SUFFIX = ".nvrtc"
#: Variables of the environment from which NVRTC takes further options.
_FLAGS = ("NVRTC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS")
#: How often a source is compiled, each time without what the compiler complained about.
_ROUNDS = 10
_ERROR = re.compile(
    r"^(?P<file>[^\n]+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: .*$", re.MULTILINE
)
#: Errors that a declaration in a header might mend.
_MISSES_A_NAME = re.compile(
    r"error: .*(?:is undefined|has no member|incomplete type|is not a (?:template|class|type)|must be a class"
    r"|has not been declared|name followed by|no instance of|not a class or namespace|explicit type is miss)"
)
#: Headers that an error names.
_MOST_HEADERS = 3
_NO_SUCH_HEADER = re.compile(r'cannot open source file "([^"\n]+)"')
_EXPRESSION = re.compile(r"#pragma nv_mangled_name (.+)")
_EXPRESSIONS_FILE = "__nv_name_map"
#: Words of C++20 without which its sources do not compile.
_CPP20 = re.compile(r"\b(?:concept\s+\w+\s*=|requires\s*[({\w]|consteval\b|constinit\b)|\boperator\s*<=>")
#: A tensor map's type named, and defined by the source itself.
_TENSOR_MAP = re.compile(r"\bCUtensorMap\b")
_OWN_MAP = re.compile(
    r"}\s*CUtensorMap\s*;|\b(?:struct|union|class)\b[^;{}]*\bCUtensorMap\s*{|\busing\s+CUtensorMap\s*="
)
#: What a header asks that has other code for NVRTC.
_KNOWS_NVRTC = "__CUDACC_RTC__"
_WORD = re.compile(r"[^\W\d]\w*")
_STANDARD = re.compile(r"-{1,2}std(?:=.*)?")


@dataclass(frozen=True)
class DeviceCode:
    """What became of a source: PTX, what was left out, and why some kernels are refused.

    `templates` are the kernels that are templates. Host code launches those that are `undeduced` with
    arguments that were not deduced here, so that the PTX has no instance of them.
    """

    compiled: Compiled
    left_out: tuple[LeftOut, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    templates: tuple[str, ...] = ()
    undeduced: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedSource:
    """A source to be compiled: its text, its name in messages, the arch and the options for NVRTC."""

    text: str
    name: str
    arch: str
    options: tuple[str, ...]

    def read(self) -> tuple[SourceFile, Headers]:
        """The source and the headers that it includes, all read from disk."""
        main = SourceFile(self.name, self.text)
        path = Path(self.name)
        folder = path.resolve().parent if path.is_file() else None
        named = _include_options(self.options)
        headers = read_headers(main, folder, named, STANDARD_HEADERS, _toolkit_folders())
        for header in named:
            _take_as_they_are(headers, header.resolve())
        return main, headers

    def compile(self, expressions: Sequence[str] = (), *, launched: bool = False) -> DeviceCode:
        """Compile the device code, with some instances of templates.

        If `launched`, those that host code launches are compiled as well.
        """
        main, headers = self.read()
        request = self.request(headers, expressions, launched) if headers.is_complete else ""
        kept = disk_cache.read(request, _SUFFIX) if request else None
        if kept is not None:
            return _from_json(kept)
        made = _Rounds(self, main, headers, expressions, launched).run()
        if request:
            disk_cache.keep(request, _SUFFIX, json.dumps(asdict(made)).encode())
        return made

    def kernel_templates(self) -> tuple[str, ...]:
        """The names of the kernels that are templates, in the source and in the headers of its project."""
        main, headers = self.read()
        return tuple(_Rounds(self, main, headers, (), launched=False).templates)

    def request(self, headers: Headers, expressions: Sequence[str] = (), launched: bool = False) -> str:
        """Everything that the PTX depends on, as text."""
        texts = {str(path): file.text for path, file in headers.files.items()}
        names = {
            name: {included: str(path) for included, path in header.items()}
            for name, header in headers.resolved.items()
        }
        parts = [
            "device code", self.text, self.name, self.arch, self.options, texts, names, sorted(headers.empty),
            list(expressions), launched, _toolkit_stamp(), [os.environ.get(name) for name in _FLAGS],
        ]  # fmt: skip
        return json.dumps(parts)


def standard_option(options: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The option for the C++ standard that texts need, unless the options name one: C++20 or C++17."""
    if any(_STANDARD.fullmatch(option) for option in options):
        return []
    return ["--std=c++20" if any(_CPP20.search(text) for text in texts) else "--std=c++17"]


def _take_as_they_are(headers: Headers, folder: Path) -> None:
    """Let the headers of a library that knows NVRTC, such as CUTLASS, be compiled whole at first.

    Its functions for the host are not judged, so that none is missed and none takes time; those of a header
    that the compiler complains of are judged after all, and those of headers with kernels always.
    """
    within = [file for path, file in headers.files.items() if path.resolve().is_relative_to(folder)]
    if any(_KNOWS_NVRTC in file.text for file in within):
        for file in within:
            file.is_split = "__global__" in file.text


def _from_json(content: bytes) -> DeviceCode:
    parts = json.loads(content)
    left_out = tuple(LeftOut(**part) for part in parts["left_out"])
    names = (tuple(parts[name]) for name in ("templates", "undeduced"))
    return DeviceCode(Compiled(**parts["compiled"]), left_out, parts["refused"], *names)


def _toolkit_folders() -> list[Path]:
    """The folders of headers of the toolkits that are installed."""
    return [folder for major in (13, 12) for folder in include_folders(major)]


def _toolkit_stamp() -> list[tuple[str, int, int]]:
    """What says that the compiler and its headers are still the same: paths, sizes and times of change."""
    folders = _toolkit_folders()
    paths = [*installed_libraries(), *folders]
    for folder in folders:
        paths += [Path(entry.path) for entry in os.scandir(folder)]
    stamps = ((str(path), path.stat()) for path in paths if path.exists())
    return sorted((path, status.st_size, status.st_mtime_ns) for path, status in stamps)


def _include_options(options: Sequence[str]) -> list[Path]:
    """The folders that `-I` names, in any of its spellings."""
    folders = []
    for at, option in enumerate(options):
        if option in ("-I", "--include-path") and at + 1 < len(options):
            folders.append(Path(options[at + 1]))
        elif match := re.fullmatch(r"(?:-I|--include-path=)(.+)", option):
            folders.append(Path(match.group(1)))
    return folders


class _Rounds:
    """A source compiled again and again, until the compiler complains of nothing that can be left out."""

    def __init__(
        self,
        source: PublishedSource,
        main: SourceFile,
        headers: Headers,
        expressions: Sequence[str],
        launched: bool,
    ) -> None:
        self.source, self.main, self.headers = source, main, headers
        self.files = {main.name: main, **{str(path): file for path, file in headers.files.items()}}
        self.wanted = list(expressions)
        self.words = set(_WORD.findall(" ".join(self.wanted)))
        self.complaints: set[tuple[str, int]] = set()
        self.program = Program(list(self.files.values()), self.words)
        self.templates = self._templates()
        self.used = (
            used_instances(list(self.files.values()), self.templates, self.program.macros)
            if launched
            else UsedInstances()
        )
        self.guessed = [expression for expression in self.used.expressions if expression not in self.wanted]
        if self.guessed:
            self.words |= set(_WORD.findall(" ".join(self.guessed)))
            self.program = Program(list(self.files.values()), self.words)

    def _templates(self) -> dict[str, Declaration]:
        """The kernels that are templates, by name."""
        return {
            name: declaration
            for file in self.files.values()
            for declaration in reversed(file.declared)
            if declaration.is_template
            and declaration.tokens[2].text != ">"
            and self.program.is_kernel(declaration)
            for name in declaration.names
        }

    def run(self) -> DeviceCode:
        """Compile; the error that is raised in the end is the first that could not be helped."""
        first: ToolFailed | None = None
        for _ in range(_ROUNDS):
            try:
                compiled = self._compile()
                return DeviceCode(
                    compiled, self._left_out(), self.program.refused, tuple(self.templates), self._undeduced()
                )
            except ToolFailed as error:
                first = first or error
                if not self._left_out_more(error.log):
                    if self.guessed:
                        self.guessed = []
                        continue
                    raise self._explained(first, error) from None
        assert first is not None
        raise self._explained(first, first)

    def _undeduced(self) -> tuple[str, ...]:
        """The templates that host code launches and of which no instance was compiled."""
        asked = [expression.partition("<")[0].split("::")[-1].strip() for expression in self.wanted]
        made = {*asked, *(self.used.expressions[guess] for guess in self.guessed)}
        return tuple(name for name in self.used.launched if name not in made)

    def _compile(self) -> Compiled:
        texts = {
            name: with_paths(file.compiled_text(), self.headers.resolved.get(name, {}), self.headers.empty)
            for name, file in self.files.items()
        }
        main = texts.pop(self.main.name)
        if self.wanted or self.guessed:
            # NVRTC 13.0 forgets instances behind a constructor of a class template with initialisers.
            main += "\nnamespace {}\n"
        options = [f"--pre-include={PRELUDE_NAME}", "-default-device", *self.source.options]
        options += standard_option(options, (main, *texts.values()))
        if not {"-device-int128", "--device-int128"} & set(options):
            options.append("--device-int128")
        uses_thrust = any(
            name.startswith("thrust/") for name in self.headers.external.keys() - self.headers.empty
        )
        prelude = PRELUDE + (THRUST_PRELUDE if uses_thrust else "")
        compiled = (main, *texts.values())
        if any(_TENSOR_MAP.search(text) for text in compiled) and not any(map(_OWN_MAP.search, compiled)):
            prelude += TENSOR_MAP_PRELUDE
        empty = empty_headers((*HOST_HEADERS, *self.headers.empty))
        return compile_source(
            main,
            self.source.arch,
            name=self.main.name,
            options=options,
            headers={**empty, **STANDARD_HEADERS, **texts, PRELUDE_NAME: prelude},
            expressions=[*self.wanted, *self.guessed],
        )

    def _left_out_more(self, log: str) -> bool:
        """Leave out what the compiler complained about, if no kernel needs it; whether anything was."""
        before = self._count()
        self._split_files(log)
        complaints = {(match["file"], int(match["line"])) for match in _ERROR.finditer(log)}
        if not self.program.guarded.isdisjoint(complaints):
            self.complaints |= complaints
            self.program = Program(list(self.files.values()), self.words, self.complaints)
            return True
        needed = self.program.needed()
        for match in _ERROR.finditer(log):
            missing = _NO_SUCH_HEADER.search(match.group())
            if missing:
                self._leave_empty(missing.group(1))
            elif match["file"] == _EXPRESSIONS_FILE:
                pragma = _EXPRESSION.search(log, match.end())
                expression = pragma.group(1).strip() if pragma else ""
                self.guessed = [guess for guess in self.guessed if guess != expression]
            elif match["file"] in self.files:
                self._leave_out_line(self.files[match["file"]], int(match["line"]), needed)
            else:
                self._leave_out_library(match["file"])
        return self._count() != before

    def _count(self) -> tuple[int, int, int]:
        """How much is left out so far."""
        blanked = sum(len(file.blanked) for file in self.files.values())
        return len(self.guessed), len(self.headers.empty), blanked

    def _split_files(self, log: str) -> None:
        """Find the declarations of headers that were taken as they are, if the compiler complains of them."""
        complained = {match["file"] for match in _ERROR.finditer(log)}
        whole = [file for name, file in self.files.items() if name in complained and not file.is_split]
        for file in whole:
            file.split()
        if whole:
            self.program = Program(list(self.files.values()), self.words, self.complaints)

    def _leave_out_line(self, file: SourceFile, line: int, needed: set[Declaration]) -> None:
        declaration = file.at_line(line)
        if declaration is None or declaration in file.blanked:
            return
        if declaration not in needed:
            file.blanked[declaration] = BY_THE_COMPILER
        elif declaration.kind is Kind.TYPE:
            for member in members(declaration):
                within = file.lines.at(member.start) <= line <= file.lines.at(member.end - 1)
                if within and member.kind is Kind.FUNCTION and not self.program.is_device(member):
                    file.blanked[member] = BY_THE_COMPILER

    def _leave_empty(self, name: str) -> None:
        place = self.headers.external.get(name, LeftOut("header", name, self.main.name, 0))
        self.headers.empty.setdefault(name, place)

    def _leave_out_library(self, path: str) -> None:
        """Leave out the headers of a library, such as Thrust's, that the compiler cannot read."""
        for folder in _toolkit_folders():
            if Path(path).is_relative_to(folder):
                library = Path(path).relative_to(folder).parts[0]
                for name in self.headers.external:
                    if name.split("/")[0] == library:
                        self._leave_empty(name)

    def _left_out(self) -> tuple[LeftOut, ...]:
        """What was left out, by file and line: declarations of the source and of its headers, and headers."""
        declared = [
            LeftOut(_what(declaration, why), declaration.name, name, file.line(declaration))
            for name, file in self.files.items()
            for declaration, why in file.blanked.items()
        ]
        order = {name: at for at, name in enumerate(self.files)}
        return tuple(
            sorted(
                (*declared, *self.headers.empty.values()), key=lambda one: (order.get(one.file, 0), one.line)
            )
        )

    def _explained(self, first: ToolFailed, last: ToolFailed) -> ToolFailed:
        """The error to raise: the first complaints, without those about what was left out since."""
        still = [block for block in _blocks(last.log) if block.split("\n")[0] in first.log]
        log = "\n\n".join(still) or first.log
        head = str(first).partition("\n")[0]
        # What a host's library declares is no matter of a kernel, and a header that is missing is none of an
        # error that misses nothing.
        missed = _MISSES_A_NAME.search(log) is not None
        empty = [name for name in self.headers.empty if missed and not is_host_header(name)]
        names = ", ".join(empty[:_MOST_HEADERS]) + (", …" if len(empty) > _MOST_HEADERS else "")
        note = f"\nheaders that were not found are empty: {names} (-I names their folder)" if empty else ""
        if "curand_kernel.h" in self.headers.empty:
            note += "\npip install nvidia-curand (about 60 MB to download) brings curand_kernel.h"
        return ToolFailed(f"{head}\n{log.strip()}{note}", log)


def _blocks(log: str) -> list[str]:
    """The errors of a log, each with the lines that belong to it."""
    starts = [match.start() for match in _ERROR.finditer(log)]
    return [log[start:end].split("\n\n")[0] for start, end in pairwise([*starts, len(log)])]


def _what(declaration: Declaration, why: str) -> str:
    named = (Kind.FUNCTION, Kind.TYPE, Kind.VARIABLE, Kind.MACRO_CALL)
    what = declaration.kind.name.lower().replace("_", " ") if declaration.kind in named else "declaration"
    return what + (" with dynamic parallelism" if why == "dynamic parallelism" else "")


def _kernels(files: Iterable[SourceFile], name: str) -> Iterator[tuple[SourceFile, Declaration]]:
    """Yield the declarations of a kernel, each with its file; a file that has its name is split first."""
    for file in files:
        if not file.is_split:
            if not re.search(rf"\b{re.escape(name)}\b", file.text):
                continue
            file.split()
        for declared in file.declared:
            if name in declared.names and "__global__" in declared.head_words():
                yield file, declared


def behind_conditions(files: Iterable[SourceFile], name: str) -> tuple[str, int, tuple[str, ...]] | None:
    """Where a kernel is defined that the preprocessor left out: file, line and the conditions around it."""
    for file, kernel in _kernels(files, name):
        guards = tuple(condition for condition in kernel.conditions if not _is_guard(condition, file))
        if guards:
            return file.name, file.line(kernel), guards
    return None


def has_defaults(files: Iterable[SourceFile], name: str) -> bool:
    """Whether a kernel is a template all of whose parameters have defaults."""
    templates = (
        template_parameters(kernel.tokens) for _, kernel in _kernels(files, name) if kernel.is_template
    )
    return any(parameters and all(has_default for _, has_default in parameters) for parameters in templates)


def _is_guard(condition: str, file: SourceFile) -> bool:
    """Whether a condition is the header's guard against being included twice."""
    match = re.fullmatch(r"#(?:ifndef|if\s*!\s*defined)\s*\(?\s*(\w+)\s*\)?", condition)
    return (
        match is not None
        and re.search(rf"#\s*define\s+{match.group(1)}\s*$", file.text, re.MULTILINE) is not None
    )
