"""Reading directives: variables with types, sizes and initial values, parameters, `.loc`, files, sections."""

import re
from functools import lru_cache, partial

from lanewise.ptx.lexer import DECLARED, SPACE, Reader
from lanewise.ptx.model.directives import (
    Alias,
    Attribute,
    Data,
    Dwarf,
    File,
    Initialiser,
    Limit,
    Pointer,
    Pragma,
    Prototype,
    Section,
    Setting,
    SymbolAddress,
    Targets,
    Value,
    Variable,
)
from lanewise.ptx.model.statements import Label, Loc
from lanewise.ptx.syntax.operand_parser import (
    MAX_DEPTH,
    literal,
    read_constant,
    read_count,
    read_integer,
    read_literal,
    starts_constant,
)

SPACES = ("reg", "sreg", "const", "global", "local", "param", "shared", "tex")
LINKING = ("visible", "extern", "weak", "common")
#: In the order in which an error names them.
TYPES = (
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2",
    "bf16", "bf16x2", "tf32", "f32", "f64", "pred", "texref", "samplerref", "surfref",
)  # fmt: skip
_TYPES = frozenset(f".{name}" for name in TYPES)
_A_TYPE = f"a type ({', '.join(f'.{name}' for name in TYPES)}), .v2, .v4 or .align"

_FLAT_LIST = re.compile(r"\{([^{}()=]*+)\}")
_SIMPLE_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F]{1,16}|[1-9]\d{0,17}|0|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", re.ASCII
)


def read_variables(reader: Reader, linking: str, start: int) -> list[Variable]:
    """One declaration from its state space to its semicolon; it may declare several variables."""
    line, column = reader.source.line_and_column(start)
    first = _typed(reader, reader.advance()[1:], linking, line, column)
    variables = [first]
    _declarator(reader, first)
    while reader.take(","):
        line, column = reader.line_and_column()
        another = Variable(first.space, first.type, "", first.vector, first.align, line=line, column=column)
        another.linking, another.attributes = first.linking, first.attributes
        _declarator(reader, another)
        variables.append(another)
    reader.expect(";", "',' or ';'")
    return variables


def read_parameters(reader: Reader) -> tuple[Variable, ...]:
    """Parameters, or results, in their parentheses."""
    return reader.enclosed(_parameter, "(", ")")


def _parameter(reader: Reader) -> Variable:
    line, column = reader.line_and_column()
    if reader.token not in (".param", ".reg"):
        raise reader.wrong("a parameter: .param or .reg, a type and a name")
    variable = _typed(reader, reader.advance()[1:], "", line, column)
    if reader.take(".ptr"):
        space = reader.advance()[1:] if reader.token[1:] in SPACES else ""
        align = read_count(reader, "an alignment in bytes") if reader.take(".align") else 0
        variable.pointer = Pointer(space, align)
    variable.name = reader.name("the parameter's name")
    variable.dims = _dims(reader)
    return variable


def _typed(reader: Reader, space: str, linking: str, line: int, column: int) -> Variable:
    """Attributes, alignment, vector and type: what stands between the state space and the name."""
    attributes = read_attributes(reader)
    align, vector = 0, 1
    while reader.token not in _TYPES:
        if reader.take(".align"):
            align = read_count(reader, "an alignment in bytes")
        elif reader.token in (".v2", ".v4", ".v8"):
            vector = int(reader.advance()[2:])
        elif reader.token == ".attribute":
            attributes += read_attributes(reader)
        else:
            raise reader.wrong(_A_TYPE)
    type_name = reader.advance()[1:]
    variable = Variable(space, type_name, "", vector, align, line=line, column=column)
    variable.linking, variable.attributes = linking, attributes
    return variable


def read_attributes(reader: Reader) -> tuple[Attribute, ...]:
    """`.attribute(…)`, if it is at hand."""
    attributes: list[Attribute] = []
    while reader.take(".attribute"):
        reader.expect("(")
        attributes += reader.listed(_attribute, ")")
    return tuple(attributes)


def _attribute(reader: Reader) -> Attribute:
    if reader.kind != "directive":
        raise reader.wrong("an attribute such as .managed")
    name = reader.advance()[1:]
    arguments = reader.listed(partial(read_integer, what="a number"), ")") if reader.take("(") else ()
    return Attribute(name, arguments)


def _declarator(reader: Reader, variable: Variable) -> None:
    """Name, range or sizes, and initial value."""
    variable.name = reader.name("a name")
    if reader.take("<"):
        variable.count = read_count(reader, "how many registers the range has")
        reader.expect(">")
    variable.dims = _dims(reader)
    if reader.take("="):
        variable.initialiser = _value(reader, 0)


def _dims(reader: Reader) -> tuple[int, ...]:
    dims: list[int] = []
    while reader.take("["):
        if reader.take("]"):
            dims.append(0)
            continue
        start = reader.start
        size = read_integer(reader, "the size of the array or ']'")
        if size < 0:
            raise reader.source.wrong(start, f"'{size}'", "a size that is not negative")
        reader.expect("]")
        dims.append(size)
    return tuple(dims)


# initial values -----------------------------------------------------------------------------------------


def _value(reader: Reader, depth: int) -> Value:
    """A constant, an address, or a list of values."""
    if reader.token == "{":
        return _numbers_only(reader) or _list(reader, depth)
    if reader.kind == "name" and reader.token != "WARP_SZ":
        start = reader.start
        address = _symbol(reader)
        if not reader.take("="):
            return address
        if address != SymbolAddress(address.name):
            raise reader.source.wrong(start, f"'{address}'", "the name of a field before '='")
        value = read_integer(reader, "a value") if starts_constant(reader) else reader.name("a value")
        return Setting(address.name, str(value))
    if not starts_constant(reader):
        raise reader.wrong("a constant, an address or a list in braces")
    return _masked(reader) or read_constant(reader)


def _list(reader: Reader, depth: int) -> Initialiser:
    if depth >= MAX_DEPTH:
        raise reader.source.wrong(reader.start, f"a list nested more than {MAX_DEPTH} deep")
    return Initialiser(reader.enclosed(partial(_value, depth=depth + 1), "{", "}"))


def _numbers_only(reader: Reader) -> Initialiser | None:
    """A list of plain numbers, which may be long: cut at the commas."""
    match = _FLAT_LIST.match(reader.source.code, reader.start)
    if match is None:
        return None
    pieces = [piece.strip(SPACE) for piece in match.group(1).split(",")]
    if not all(map(_SIMPLE_NUMBER.fullmatch, pieces)):
        return None
    reader.seek(match.end())
    return Initialiser(tuple(map(literal, pieces)))


def _masked(reader: Reader) -> SymbolAddress | None:
    """`0xFF00(x)`: some bytes of an address."""
    start = reader.start
    if reader.kind != "number":
        return None
    mask = read_literal(reader)
    if not mask.is_integer or not reader.take("("):
        reader.seek(start)
        return None
    address = _symbol(reader)
    reader.expect(")")
    return SymbolAddress(address.name, address.offset, address.generic, mask.bits)


def _symbol(reader: Reader) -> SymbolAddress:
    name = reader.name("the name of a variable or a function")
    generic = name == "generic" and reader.take("(")
    if generic:
        name = reader.name("the name of a variable")
        reader.expect(")")
    offset = read_integer(reader, "a constant number of bytes") if reader.take("+") else 0
    return SymbolAddress(name, offset, generic)


#: Directives that may follow the head of a function, and how many numbers each takes.
LIMITS = {
    "maxntid": (1, 3), "reqntid": (1, 3), "minnctapersm": (1, 1), "maxnctapersm": (1, 1), "maxnreg": (1, 1),
    "reqnctapercluster": (1, 3), "explicitcluster": (0, 0), "maxclusterrank": (1, 1),
    "blocksareclusters": (0, 0), "noreturn": (0, 0), "abi_preserve": (1, 1), "abi_preserve_control": (1, 1),
    "local_maxnreg": (1, 1),
}  # fmt: skip
#: The most labels that a range in `.branchtargets` may stand for.
_MOST_LABELS = 1 << 16

#: An item of a section and the white space after it: 1 data, 2 label, 3 the end.
_SECTION_ITEM = re.compile(
    rf"""(?:
        (\.b(?:8|16|32|64)\s++[^\s,{{}}:]++(?:\s*+,\s*+[^\s,{{}}:]++)*+)(?=\s*+[.}}a-zA-Z_$%])
      | ({DECLARED})\s*+:
      | (\}})
    )\s*+""",
    re.ASCII | re.VERBOSE,
)
_DATA = re.compile(r"\.b(8|16|32|64)\s++(.*)", re.ASCII | re.DOTALL)
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})", re.ASCII)
_LABELS = re.compile(
    rf"\.?{DECLARED}(?:[+-](?:0[xX][0-9a-fA-F]{{1,16}}|[0-9]{{1,20}}|{DECLARED}))?", re.ASCII
)


def read_limits(reader: Reader) -> tuple[Limit | Pragma, ...]:
    """The directives after the head of a function or prototype."""
    limits: list[Limit | Pragma] = []
    while reader.kind == "directive":
        if reader.token == ".pragma":
            limits.append(read_pragma(reader))
            continue
        line, column = reader.line_and_column()
        word = reader.token[1:]
        if word not in LIMITS:
            raise reader.unknown((*LIMITS, "pragma"))
        reader.advance()
        fewest, most = LIMITS[word]
        values = [read_count(reader, f"a number for .{word}")] if fewest else []
        while len(values) < most and reader.take(","):
            values.append(read_count(reader, f"a number for .{word}"))
        limits.append(Limit(word, tuple(values), line, column))
    return tuple(limits)


def read_loc(reader: Reader) -> Loc:
    """`.loc`, with what was inlined where."""
    line, column = reader.line_and_column()
    reader.advance()
    file, source_line, source_column = _source_place(reader)
    loc = Loc(file, source_line, source_column, line=line, column=column)
    while reader.take(","):
        if reader.take("function_name"):
            if reader.kind not in ("name", "directive"):
                raise reader.wrong("the label of the function's name")
            loc.function = reader.advance()
            if reader.take("+"):
                loc.function_offset = read_integer(reader, "a constant number of bytes")
        elif reader.take("inlined_at"):
            loc.inlined_at = _source_place(reader)
        else:
            raise reader.wrong("function_name or inlined_at")
    return loc


def _source_place(reader: Reader) -> tuple[int, int, int]:
    file = read_count(reader, "the number of a file")
    line = read_count(reader, "a line")
    return file, line, read_count(reader, "a column")


def _string(reader: Reader, what: str) -> str:
    if reader.kind != "string":
        raise reader.wrong(what)
    return reader.advance()


def read_pragma(reader: Reader) -> Pragma:
    """`.pragma` and its strings."""
    line, column = reader.line_and_column()
    reader.advance()
    return Pragma(reader.listed(partial(_string, what="a string"), ";"), line, column)


def read_file(reader: Reader) -> File:
    """`.file`: a number and a name, perhaps its time and size."""
    line, column = reader.line_and_column()
    reader.advance()
    index = read_count(reader, "the number of the file")
    name = _string(reader, "the name of the file in quotes")[1:-1]
    timestamp = size = None
    if reader.take(","):
        timestamp = read_count(reader, "the time of the file")
        reader.expect(",")
        size = read_count(reader, "the size of the file")
    return File(index, name, timestamp, size, line, column)


def read_alias(reader: Reader) -> Alias:
    """Read `.alias new, old;`, a further name of a function."""
    line, column = reader.line_and_column()
    reader.advance()
    name = reader.name("the new name")
    reader.expect(",")
    target = reader.name("the name of a function")
    reader.expect(";")
    return Alias(name, target, line, column)


def read_prototype(reader: Reader) -> Prototype:
    """`.callprototype (results) _ (parameters);`"""
    line, column = reader.line_and_column()
    reader.advance()
    returns = read_parameters(reader) if reader.token == "(" else ()
    name = reader.name("'_'" if returns else "'_', or results in '( )'")
    parameters = read_parameters(reader) if reader.token == "(" else ()
    limits = read_limits(reader)
    reader.expect(";", "';'" if parameters or limits else "';', or parameters in '( )'")
    return Prototype(returns, name, parameters, limits, line, column)


def read_targets(reader: Reader) -> Targets:
    """`.branchtargets` or `.calltargets`; a range of labels is written out."""
    line, column = reader.line_and_column()
    kind = reader.advance()[1:]
    ranges = reader.listed(partial(_target, kind=kind), ";")
    return Targets(kind, tuple(name for names in ranges for name in names), line, column)


def _target(reader: Reader, kind: str) -> list[str]:
    name = reader.name("a label" if kind == "branchtargets" else "a function")
    if not reader.take("<"):
        return [name]
    start = reader.start
    count = read_count(reader, "how many labels the range has")
    if count > _MOST_LABELS:
        raise reader.source.wrong(start, f"'{count}'", f"at most {_MOST_LABELS} labels")
    reader.expect(">")
    return [f"{name}{number}" for number in range(count)]


def read_dwarf(reader: Reader) -> Dwarf:
    """`@@DWARF` and the rest of its line, as it is."""
    line, column = reader.line_and_column()
    code = reader.source.code
    end = code.find("\n", reader.start)
    end = end if end >= 0 else len(code)
    text = code[reader.start : end]
    if text[:7].upper() != "@@DWARF":
        raise reader.wrong("a directive, or @@DWARF")
    reader.seek(end)
    return Dwarf(" ".join(text[7:].split()), line, column)


# sections -----------------------------------------------------------------------------------------------


def read_section(reader: Reader) -> Section:
    """`.section` and the data in its braces."""
    line, column = reader.line_and_column()
    reader.advance()
    if reader.kind not in ("directive", "name"):
        raise reader.wrong("the name of the section")
    name = reader.advance()
    opened = reader.expect("{")
    code, position = reader.source.code, reader.start
    items: list[Data | Label] = []
    while (match := _SECTION_ITEM.match(code, position)) is not None:
        text, label, end = match.groups()
        if text is not None:
            data = _section_data(text)
            if data is None:
                excerpt = f"'{' '.join(text.split())[:60]}'"
                raise reader.source.wrong(position, excerpt, "numbers, labels or names of sections")
            items.append(data)
        elif label is not None:
            items.append(Label(label, *reader.source.line_and_column(position)))
        elif end is not None:
            reader.seek(match.end())
            return Section(name, tuple(items), line, column)
        position = match.end()
    reader.seek(position)
    if reader.kind == "end":
        raise reader.wrong(f"'}}' for the '{{' of line {reader.source.line_and_column(opened)[0]}")
    raise reader.wrong(".b8, .b16, .b32 or .b64 with values, a label, or '}'")


@lru_cache(maxsize=1 << 15)
def _section_data(text: str) -> Data | None:
    """What `.b8 1, 2` says; None if it does not say anything."""
    match = _DATA.fullmatch(text)
    if match is None:
        return None
    bits, values = match.groups()
    numbers: list[int | str] = []
    for value in (part.strip(SPACE) for part in values.split(",")):
        if _INTEGER.fullmatch(value):
            numbers.append(int(value, 16) if value.lstrip("-")[:2] in ("0x", "0X") else int(value))
        elif _LABELS.fullmatch(value):
            numbers.append(value)
        else:
            return None
    return Data(int(bits), tuple(numbers))
