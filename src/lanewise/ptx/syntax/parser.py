"""Reading a module: its header, then functions, variables and directives. `parse` does it all.

Bodies are read by `body_parser.py`, declarations by `directive_parser.py`, operands by `operand_parser.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.hints import missing_file
from lanewise.ptx.lexer import PtxSyntaxError, Reader, Source
from lanewise.ptx.model.function import Function, Statement
from lanewise.ptx.model.module import Item, Module
from lanewise.ptx.syntax.body_parser import BodyParser
from lanewise.ptx.syntax.directive_parser import (
    LIMITS,
    LINKING,
    SPACES,
    read_alias,
    read_attributes,
    read_dwarf,
    read_file,
    read_limits,
    read_loc,
    read_parameters,
    read_pragma,
    read_prototype,
    read_section,
    read_targets,
    read_variables,
)
from lanewise.ptx.syntax.operand_parser import read_count
from lanewise.tracebacks import short_traceback


def read_text_or_path(given: str | Path, *, suffixes: tuple[str, ...], what: str) -> tuple[str, str | None]:
    """The text, and the path it was read from; None if the text itself was given.

    A string of one line that ends like a file name, or that names a file, is a path.
    """
    if isinstance(given, str):
        stripped = given.strip()
        if not stripped:
            raise LanewiseError(f"empty text where {what} or the path of a file was expected")
        if "\n" in stripped or len(stripped) > 4096 or "\0" in stripped:
            return given, None
        if not stripped.endswith(suffixes) and not os.path.isfile(stripped):
            return given, None
        given = stripped
    elif not isinstance(given, os.PathLike):
        raise LanewiseError(
            f"{what} is given as text or as the path of a file, not as {type(given).__name__}"
        )
    try:
        with open(given, encoding="utf-8", errors="replace") as file:
            return file.read(), os.fsdecode(given)
    except FileNotFoundError:
        raise missing_file(Path(given)) from None
    except OSError as error:
        raise LanewiseError(f"{given}: {error.strerror or error}") from None


#: Directives outside and inside of functions, by what reads them.
_READ_IN_MODULE: dict[str, Callable[[Reader], Item]] = {
    "file": read_file, "section": read_section, "pragma": read_pragma, "alias": read_alias,
}  # fmt: skip
_READ_IN_BODY: dict[str, Callable[[Reader], Statement]] = {
    "loc": read_loc, "pragma": read_pragma, "callprototype": read_prototype, "calltargets": read_targets,
    "branchtargets": read_targets, "file": read_file, "section": read_section,
}  # fmt: skip
_IN_MODULE = (*LINKING, "entry", "func", *_READ_IN_MODULE, "target", *SPACES)
_IN_BODY = (*_READ_IN_BODY, *SPACES)


#: An inline asm as LLVM writes it, and a `.loc` in it: its file and its column.
_INLINE_ASM = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
_LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+\d+[ \t]+(\d+)\b[^\n]*$", re.MULTILINE)


def _with_one_place_for_inline_asm(text: str) -> str:
    """Return PTX whose inline asms keep their first `.loc` alone; lines stay where they are.

    LLVM counts the lines of an asm's own text on from the line of the source in which it stands.
    """
    if "// begin inline asm" not in text or ".loc" not in text:
        return text

    def first_alone(asm: re.Match[str]) -> str:
        first = _LOC.search(asm[0])

        def kept(loc: re.Match[str]) -> str:
            is_counted = first is not None and loc.start() != first.start() and loc.groups() == first.groups()
            return "" if is_counted else loc[0]

        return _LOC.sub(kept, asm[0])

    return _INLINE_ASM.sub(first_alone, text)


def parse(text: str) -> Module:
    """Read PTX text and return it as a Module, or raise a PtxSyntaxError that names line and column.

    >>> module = parse('''
    ... .version 9.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry copy(.param .u64 from, .param .u64 to)
    ... {
    ...     .reg .b64 %rd<3>;
    ...     ld.param.u64 %rd1, [from];
    ...     ret;
    ... }''')
    >>> module["copy"].body[1].line, str(module["copy"].body[1])
    (8, 'ld.param.u64 %rd1, [from];')
    """
    if not isinstance(text, str):
        raise LanewiseError(f"PTX is text, not {type(text).__name__}; `lanewise.load` reads files")
    reader = Reader(Source(_with_one_place_for_inline_asm(text)))
    module = _header(reader)
    module.text = text
    bodies = BodyParser(reader, _body_directive)
    while reader.kind != "end":
        module.items += _item(reader, module, bodies)
    return module


def _header(reader: Reader) -> Module:
    reader.expect(".version", "'.version', with which PTX begins")
    if reader.kind != "number" or not re.fullmatch(r"\d{1,3}\.\d{1,3}", reader.token, re.ASCII):
        raise reader.wrong("a version such as 9.0")
    version = reader.advance()
    reader.expect(".target", "'.target' after '.version'")
    module = Module(version, *_target(reader))
    module.says_address_size = reader.take(".address_size")
    if module.says_address_size:
        start = reader.start
        module.address_size = read_count(reader, "32 or 64")
        if module.address_size not in (32, 64):
            raise reader.source.wrong(start, f"'{module.address_size}'", "32 or 64")
    return module


def _target(reader: Reader) -> tuple[str, tuple[str, ...]]:
    target = reader.name("a target such as sm_90a")
    options: list[str] = []
    while reader.take(","):
        options.append(reader.name("an option of the target such as debug"))
    return target, tuple(options)


def _item(reader: Reader, module: Module, bodies: BodyParser) -> list[Item]:
    if reader.token == "@":
        return [read_dwarf(reader)]
    if reader.take(";"):
        return []
    word, start = reader.token[1:], reader.start
    linking = ""
    if word in LINKING and reader.kind == "directive":
        linking = word
        reader.advance()
        word = reader.token[1:]
    if reader.kind != "directive":
        raise reader.wrong("a directive such as .entry, .func or .global")
    if word in ("entry", "func"):
        return [_function(reader, bodies, linking, start)]
    if word in SPACES:
        return list(read_variables(reader, linking, start))
    if linking:
        raise reader.wrong(f".entry, .func or a state space ({', '.join(f'.{name}' for name in SPACES)})")
    if word == "target":  # a later one names the features of what follows; the last stands for all
        reader.advance()
        module.target, options = _target(reader)
        module.target_options = tuple(dict.fromkeys((*module.target_options, *options)))
        return []
    if word not in _READ_IN_MODULE:
        raise reader.unknown(_IN_MODULE)
    return [_READ_IN_MODULE[word](reader)]


def _function(reader: Reader, bodies: BodyParser, linking: str, start: int) -> Function:
    line, column = reader.source.line_and_column(start)
    is_entry = reader.advance() == ".entry"
    attributes = read_attributes(reader)
    returns = read_parameters(reader) if not is_entry and reader.token == "(" else ()
    name = reader.name("the name" if returns or is_entry else "the name, or results in '( )'")
    parameters = read_parameters(reader) if reader.token == "(" else ()
    limits = read_limits(reader)
    function = Function(
        name, is_entry, parameters, returns, linking, attributes, limits, line=line, column=column
    )
    if reader.take(";"):
        return function
    if reader.token != "{":
        known = ", ".join(f".{limit}" for limit in LIMITS)
        raise reader.wrong(f"'{{' or ';'{'' if parameters else ', parameters in ( )'}, or one of {known}")
    function.body, function.scopes = bodies.read()
    return function


def _body_directive(reader: Reader) -> list[Statement]:
    """A directive in the body of a function; a plain `.loc` is read there already."""
    if reader.token == "@":
        return [read_dwarf(reader)]
    word, start = reader.token[1:], reader.start
    if word in LINKING:
        linking = reader.advance()[1:]
        if reader.token[1:] not in SPACES:
            raise reader.wrong(f"a state space ({', '.join(f'.{name}' for name in SPACES)})")
        return list(read_variables(reader, linking, start))
    if word in SPACES:
        return list(read_variables(reader, "", start))
    if word not in _READ_IN_BODY:
        raise reader.unknown(_IN_BODY)
    return [_READ_IN_BODY[word](reader)]


@short_traceback
def load(path_or_text: str | Path) -> Module:
    """Read PTX: a Path, the path of a file as text, or the PTX itself.

    >>> load(".version 9.0\\n.target sm_80\\n.visible .entry k() { ret; }")["k"]
    <entry k>
    """
    text, path = read_text_or_path(path_or_text, suffixes=(".ptx",), what="PTX")
    if path is None:
        if ".version" not in text and "\n" not in text.strip():
            raise LanewiseError(
                f"{text.strip()[:80]!r} is neither a file nor PTX (which begins with .version)"
            )
        return parse(text)
    if path.endswith((".cu", ".cuh")):
        raise LanewiseError(f"{path} is CUDA C++, not PTX: lanewise.cuda(path, arch=…) compiles it")
    if text.startswith("\x7fELF"):
        raise LanewiseError(f"{path} is a cubin or another ELF file, not PTX")
    try:
        return parse(text)
    except PtxSyntaxError as error:
        error.add_note(f"in {path}")
        raise
