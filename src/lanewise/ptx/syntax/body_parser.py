"""Reading the body of a function: a flat list of statements, and the scopes its braces open.

Nearly all of a PTX file is here, so a statement is cut by one regular expression and operands seen before
are looked up; what compilers do not write all the time goes through the grammar of `operand_parser.py`.
"""

import re
from collections.abc import Callable

from lanewise.ptx.lexer import DECLARED, NAME, SPACE, PtxSyntaxError, Reader
from lanewise.ptx.model.directives import Variable
from lanewise.ptx.model.function import Scope, Statement
from lanewise.ptx.model.statements import (
    Address,
    BlockEnd,
    BlockStart,
    Element,
    Guard,
    Label,
    Loc,
    Name,
    Operand,
    Operation,
    Vector,
)
from lanewise.ptx.syntax.operand_parser import literal, read_operands

_HEAD = r"[a-z]\w*+(?:\s*+\.\w++(?:::\w++)*+)*+"
_PLACE = r"[1-9]\d{0,17}|0"
#: One statement and the white space after it. Groups: 1 `!`, 2 guard, 3 head, 4 operands; 5 label;
#: 6-8 `.loc`; 9 brace; 10 what begins any other directive; 11 an empty statement.
_STATEMENT = re.compile(
    rf"""(?:
        (?:@\s*+(!?)\s*+({NAME})\s*+)? ({_HEAD}) (?![$]|\s*+:) \s*+ ([^;]*+) ;
      | ({DECLARED}) \s*+ :
      | \.loc\s++({_PLACE})\s++({_PLACE})\s++({_PLACE})(?![\w$.])(?!\s*+,)
      | ([{{}}])
      | (\.[a-zA-Z]|@@)
      | (;)
    )\s*+""",
    re.ASCII | re.VERBOSE,
)
#: One operand of a list that has braces in it; parentheses and nested brackets are left to the grammar.
_OPERAND = re.compile(r"((?:\s*+(?:\{[^{}()\[\]]*+\}|\[[^\[\]{}()]*+\]|[^,{}\[\]()]++)\s*+))(?:,|$)")
_NAME = re.compile(NAME, re.ASCII)
_ELEMENT = re.compile(rf"({NAME})\.([a-zA-Z]\w*+)", re.ASCII)
_INTEGER = re.compile(r"(?:0[xX][0-9a-fA-F]{1,16}|[1-9]\d{0,17}|0)", re.ASCII)
_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", re.ASCII)
_ADDRESS = re.compile(rf"\[\s*+({NAME})\s*+(?:\+\s*+(-?(?:[1-9]\d{{0,17}}|0))\s*+)?\]", re.ASCII)


class BodyParser:
    """Reads bodies; operands, guards and opcodes that repeat are the same objects throughout a module."""

    def __init__(self, reader: Reader, read_directive: Callable[[Reader], list[Statement]]) -> None:
        self._reader = reader
        self._read_directive = read_directive
        self._operands: dict[str, Operand] = {}
        self._heads: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._guards: dict[tuple[str, str], Guard] = {}

    def read(self) -> tuple[list[Statement], list[Scope]]:
        """The statements between the brace at hand and its closing brace, and the scopes in them."""
        reader, source = self._reader, self._reader.source
        code, starts, match_statement = source.code, source.starts, _STATEMENT.match
        heads, guards = self._heads, self._guards
        body: list[Statement] = []
        scopes = [Scope()]
        scope = 0
        loc: Loc | None = None
        openings = [reader.expect("{")]
        position = reader.start
        line = source.line_and_column(position)[0]
        lines = len(starts)
        while True:
            while line < lines and starts[line] <= position:
                line += 1
            column = position - starts[line - 1] + 1
            match = match_statement(code, position)
            if match is None:
                reader.seek(position)
                raise self._unreadable(openings[scope])
            kind = match.lastindex
            if kind == 4:
                negated, guard_name, head, rest = match.group(1, 2, 3, 4)
                parts = heads.get(head)
                if parts is None:
                    parts = heads[head] = self._head(head)
                guard = None
                if guard_name is not None:
                    guard = guards.get((negated, guard_name))
                    if guard is None:
                        guard = guards[negated, guard_name] = Guard(guard_name, bool(negated))
                operands = self._known(rest) if rest else ()
                if operands is None:
                    reader.seek(match.start(4))
                    operands = read_operands(reader, parts[0] == "call")
                body.append(Operation(parts[0], parts[1], operands, guard, line, column, scope, loc))
            elif kind == 5:
                name = match.group(5)
                scopes[scope].labels.setdefault(name, len(body))
                body.append(Label(name, line, column, scope))
            elif kind == 8:
                file, source_line, source_column = match.group(6, 7, 8)
                loc = Loc(int(file), int(source_line), int(source_column), line=line, column=column)
                body.append(loc)
            elif kind == 9:
                if match.group(9) == "{":
                    scopes.append(Scope(scope))
                    openings.append(position)
                    scope = len(scopes) - 1
                    body.append(BlockStart(line, column, scope))
                elif scope == 0:
                    reader.seek(match.end())
                    return body, scopes
                else:
                    body.append(BlockEnd(line, column, scope))
                    scope = scopes[scope].parent
            elif kind == 10:
                reader.seek(position)
                for statement in self._read_directive(reader):
                    if isinstance(statement, Variable):
                        statement.scope = scope
                        scopes[scope].declare(statement)
                    elif isinstance(statement, Loc):
                        loc = statement
                    body.append(statement)
                position = reader.start
                continue
            position = match.end()

    def _unreadable(self, opened: int) -> PtxSyntaxError:
        """What is at hand begins no statement: say what is missing."""
        reader = self._reader
        if reader.kind == "end":
            return reader.wrong(f"'}}' for the '{{' of line {reader.source.line_and_column(opened)[0]}")
        if reader.take("@"):
            reader.take("!")
            if reader.kind != "name":
                return reader.wrong("a predicate register")
            reader.advance()
            if reader.kind != "name":
                return reader.wrong("an opcode")
        elif reader.kind != "name":
            return reader.wrong("an instruction, a label, a directive, '{' or '}'")
        start = reader.start
        head = re.compile(_HEAD, re.ASCII).match(reader.source.code, start)
        if head is None:
            return reader.wrong("an opcode, which begins with a small letter, or a label and ':'")
        reader.seek(head.end())
        try:
            read_operands(reader, head.group() == "call")
        except PtxSyntaxError as error:
            return error
        return reader.source.wrong(start, f"'{head.group()}'", "an opcode and its operands")

    def _head(self, head: str) -> tuple[str, tuple[str, ...]]:
        opcode, *modifiers = "".join(head.split()).split(".")
        return opcode, tuple(modifiers)

    def _known(self, text: str) -> tuple[Operand, ...] | None:
        """The operands of a text without parentheses, if each is seen to be what it is; else None."""
        if "{" in text:
            pieces = _OPERAND.findall(text)
            if sum(map(len, pieces)) + len(pieces) - 1 != len(text):
                return None
        else:
            pieces = text.split(",")
        known = self._operands
        operands = []
        for piece in pieces:
            operand = known.get(piece)
            if operand is None:
                operand = self._simple(piece.strip(SPACE))
                if operand is None:
                    return None
                known[piece] = operand
            operands.append(operand)
        return tuple(operands)

    def _simple(self, text: str) -> Operand | None:
        known = self._operands.get(text)
        if known is not None:
            return known
        operand: Operand | None = None
        if _NAME.fullmatch(text) and text != "WARP_SZ":
            operand = Name(text)
        elif match := _ADDRESS.fullmatch(text):
            name, offset = match.groups()
            if name != "WARP_SZ":
                operand = Address(Name(name), int(offset or 0), says_zero=offset in ("0", "-0"))
        elif text[:1] == "{":
            elements = self._known(text[1:-1])
            operand = Vector(elements) if elements is not None else None
        elif _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
            operand = literal(text)
        elif match := _ELEMENT.fullmatch(text):
            operand = Element(*match.groups())
        if operand is not None:
            self._operands[text] = operand
        return operand
