"""Reading declarations: variables with their types, sizes and initial values, and lists of parameters."""

import re

from lanewise.ptx.lexer import SPACE, Reader
from lanewise.ptx.model.variables import (
    Attribute,
    Initialiser,
    Pointer,
    Setting,
    SymbolAddress,
    Value,
    Variable,
)
from lanewise.ptx.syntax.constants import literal
from lanewise.ptx.syntax.operand_parser import (
    MAX_DEPTH,
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
    reader.expect("(")
    parameters: list[Variable] = []
    if reader.token != ")":
        parameters.append(_parameter(reader))
        while reader.take(","):
            parameters.append(_parameter(reader))
    reader.expect(")", "',' or ')'")
    return tuple(parameters)


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
        attributes.append(_attribute(reader))
        while reader.take(","):
            attributes.append(_attribute(reader))
        reader.expect(")", "',' or ')'")
    return tuple(attributes)


def _attribute(reader: Reader) -> Attribute:
    if reader.kind != "directive":
        raise reader.wrong("an attribute such as .managed")
    name = reader.advance()[1:]
    arguments: list[int] = []
    if reader.take("("):
        arguments.append(read_integer(reader, "a number"))
        while reader.take(","):
            arguments.append(read_integer(reader, "a number"))
        reader.expect(")", "',' or ')'")
    return Attribute(name, tuple(arguments))


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
    reader.expect("{")
    items: list[Value] = []
    if reader.token != "}":
        items.append(_value(reader, depth + 1))
        while reader.take(","):
            items.append(_value(reader, depth + 1))
    reader.expect("}", "',' or '}'")
    return Initialiser(tuple(items))


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
