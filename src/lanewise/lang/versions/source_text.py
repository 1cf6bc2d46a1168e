"""The text of a function, read when the function is decorated, and held against the code that Python has.

A file that is edited later does not matter then. A text that is not the function's, because the file was
edited before, is refused.
"""

import __future__

import ast
import inspect
import linecache
import tokenize
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType

from lanewise.lang.trace.errors import KernelError
from lanewise.recently_used import RecentlyUsed

_PACKAGE = str(Path(__file__).parents[2])
#: The lines of files, and the code of their functions.
_COMPILED: RecentlyUsed[tuple[str, int], tuple[list[str], list[CodeType]]] = RecentlyUsed(64)
#: Flags of code that was compiled under a `from __future__ import …`.
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in ("annotations", "generator_stop"))


class SourceText:
    """The lines of a function's file, as they are when this is made."""

    def __init__(self, function: FunctionType) -> None:
        self.function, self.code = function, function.__code__
        self.file = self.code.co_filename
        linecache.checkcache(self.file)
        self._read = linecache.getlines(self.file, function.__globals__)
        entry = linecache.cache.get(self.file)
        #: Whether the lines are a file's, which can be edited, and not a notebook cell's.
        self._is_file = entry is not None and len(entry) == 4 and entry[1] is not None

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the file, without their ends."""
        return [line.rstrip("\n") for line in self._read]

    @property
    def text(self) -> str:
        """The text of the function alone."""
        first, last = self.code.co_firstlineno, self.tree().end_lineno
        return "\n".join(self.lines[first - 1 : last])

    def error(self, message: str, line: int) -> KernelError:
        """Return an error that names a line of the function's file."""
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return KernelError(message, self.file, line, text)

    def tree(self) -> ast.FunctionDef:
        """Return the syntax tree of the function, with the line numbers of its file."""
        first, name = self.code.co_firstlineno, self.function.__name__
        if not self._read:
            raise KernelError(
                f"the source of {name} is not available, and a kernel is made from its "
                "source: put it into a file (a notebook cell works, too; exec and the plain REPL do not)",
                self.file,
                first,
            )
        if self.code.co_name == "<lambda>":
            raise self.error("a kernel is a function defined with `def`, not a lambda", first)
        if self.code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise self.error("a kernel is a function defined with `def`, not with `async def`", first)
        definition = _parsed(_indented_below(self.lines, first), first) or _parsed(self._block(first), first)
        if definition is None or not self._is_of_code():
            raise self.error(
                f"the file has changed since Python read {name} from it, and a kernel is made from its "
                "source: import the module again (importlib.reload), or start Python anew",
                first,
            )
        return definition

    def _block(self, first: int) -> list[str]:
        """Return the lines of the definition at a line, as Python's tokenizer finds its end."""
        try:
            return [line.rstrip("\n") for line in inspect.getblock(self._read[first - 1 :])]
        except (tokenize.TokenError, SyntaxError):
            return []

    def _is_of_code(self) -> bool:
        """Return whether the lines are those of the function's code; a notebook cell's always are."""
        if not self._is_file or self.file.startswith(_PACKAGE):
            return True
        flags = self.code.co_flags & _FUTURE
        codes = _codes_of(self._read, self.file, flags)
        codes = [code for code in codes if _begin(code) == _begin(self.code)]
        if self.code in codes:
            return True
        if isinstance(self.function.__globals__.get("__loader__"), SourceFileLoader | None):
            return False
        # pytest and others rewrite what they import: the code is not that of the text, but its parameters are
        return _parameters(self.code) in map(_parameters, codes)


def _codes_of(lines: list[str], file: str, flags: int) -> list[CodeType]:
    """Return the code of all functions of a file; they are remembered for the files read last."""
    known = _COMPILED.get((file, flags))
    if known is None or known[0] is not lines:
        try:
            module = compile("".join(lines), file, "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError):
            known = lines, []
        else:
            known = lines, _inner_codes(module)
        _COMPILED.put((file, flags), known)
    return known[1]


def _inner_codes(code: CodeType) -> list[CodeType]:
    """Return the code objects inside another one."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return inner + [deeper for code in inner for deeper in _inner_codes(code)]


def _begin(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _parameters(code: CodeType) -> tuple[object, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count], code.co_argcount, code.co_kwonlyargcount, code.co_freevars


def _indented_below(lines: list[str], first: int) -> list[str]:
    """Return the lines of a definition: from its first one to the last that is indented further.

    A text or an expression of several lines that goes on with less indentation is cut off. Then the lines
    found are no whole statement, and Python's own tokenizer has to find the end (`inspect.getblock`).
    """
    indented: list[str] = []
    margin, begun = "", False
    for line in lines[first - 1 :]:
        text = line.lstrip()
        if not indented:
            margin = line[: len(line) - len(text)]
        elif begun and text and text[0] not in ")#" and not line.startswith((margin + " ", margin + "\t")):
            break
        begun = begun or text.startswith("def ")
        indented.append(line)
    return indented


def _parsed(lines: list[str], first: int) -> ast.FunctionDef | None:
    """Return the function that begins lines of a file, the first of which is given; None if none does."""
    try:
        module = ast.parse("\n" * (first - 1) + dedent("\n".join(lines)))
    except (SyntaxError, ValueError):
        return None
    statement = module.body[0] if module.body else None
    return statement if isinstance(statement, ast.FunctionDef) else None
