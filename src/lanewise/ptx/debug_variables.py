"""Variables of CUDA C++ in the debug information of PTX: which registers hold them (NVRTC and nvcc with -G).

PTX has DWARF 2 as directives of bytes. A register is a number there whose bytes are its name: 0x256631 is
"%f1". Only what registers hold is read; arrays and whatever lies in memory are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# Tags, attributes, forms and operations of DWARF 2, by the names of the standard.
_SUBPROGRAM, _VARIABLE, _PARAMETER, _BASE, _POINTER = 0x2E, 0x34, 0x05, 0x24, 0x0F
_MODIFIERS = (0x16, 0x26, 0x35, 0x37)  # typedef, const, volatile, restrict
_LOCATION, _NAME, _SIZE, _ENCODING, _TYPE, _LINKAGE_NAME = 0x02, 0x03, 0x0B, 0x3E, 0x49, 0x2007
_ADDR, _BLOCK1, _DATA1, _DATA2, _DATA4, _STRING, _FLAG, _REF4, _BLOCK = 1, 10, 11, 5, 6, 8, 12, 19, 9
_SDATA, _UDATA, _DATA8 = 13, 15, 7
_SIZES = {_DATA1: 1, _DATA2: 2, _DATA4: 4, _DATA8: 8, _FLAG: 1, _REF4: 4, _ADDR: 8}
_REGX = 0x90
#: Encodings of base types: the letter of lanewise's formats.
_LETTERS = {2: "u", 4: "f", 5: "s", 6: "s", 7: "u", 8: "u"}

_SECTION = re.compile(r"\.section\s+(\.debug_\w+)\s*\{(.*?)\}", re.DOTALL)
_DIRECTIVE = re.compile(r"\.b(8|16|32|64)\s+([^\n]*)")
_WIDTHS = {"8": 1, "16": 2, "32": 4, "64": 8}


class DebugVariable(NamedTuple):
    """A variable: the function that it is in, its name, its registers at one time or another, its type.

    The type is a letter and bits, as in "f32" and "s64"; empty if it is another one.
    """

    function: str
    name: str
    registers: tuple[str, ...]
    type: str


@dataclass
class _Entry:
    """A debugging information entry: its tag, its attributes, and the function that it is in."""

    tag: int
    values: dict[int, tuple[int, object]] = field(default_factory=dict)
    function: str = ""


class _Section:
    """The bytes of a section; of a number that is a label and an offset, the offset."""

    def __init__(self, text: str) -> None:
        self.bytes = b"".join(_encoded(text))
        self.at = 0

    def number(self, size: int) -> int:
        number = int.from_bytes(self.bytes[self.at : self.at + size], "little")
        self.at += size
        return number

    def leb(self) -> int:
        """Return a number of unsigned LEB128."""
        number = shift = 0
        while self.at < len(self.bytes):
            byte = self.number(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        return number

    def string(self) -> str:
        end = self.bytes.find(b"\0", self.at)
        text = self.bytes[self.at : end if end >= 0 else None].decode("utf-8", "replace")
        self.at = end + 1 if end >= 0 else len(self.bytes)
        return text


def _encoded(text: str) -> Iterator[bytes]:
    """Yield the bytes of a section's directives."""
    for width, values in _DIRECTIVE.findall(text):
        for word in values.split(","):
            plain = word.strip()
            offset = plain.rpartition("+")[2] if "+" in plain else plain
            number = int(offset, 0) if re.fullmatch(r"-?(?:\d+|0[xX][0-9a-fA-F]+)", offset) else 0
            size = _WIDTHS[width]
            yield (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def debug_variables(text: str) -> list[DebugVariable]:
    """Return the variables that registers hold, as the debug information of PTX says; none if it has none."""
    sections = dict(_SECTION.findall(text))
    if ".debug_info" not in sections or ".debug_abbrev" not in sections:
        return []
    kinds = _abbreviations(_Section(sections[".debug_abbrev"]))
    entries = dict(_entries(_Section(sections[".debug_info"]), kinds))
    places = sections.get(".debug_loc", "")
    variables: dict[tuple[str, str], DebugVariable] = {}
    for entry in entries.values():
        if entry.tag not in (_VARIABLE, _PARAMETER) or _LOCATION not in entry.values or not entry.function:
            continue
        name = str(entry.values.get(_NAME, (0, ""))[1])
        form, where = entry.values[_LOCATION]
        if isinstance(where, bytes):
            registers = tuple(filter(None, [_register(where)]))
        else:
            registers = tuple(_listed(_Section(places), int(str(where)))) if form == _DATA4 else ()
        key = entry.function, name
        if registers and name:
            held = variables[key].registers if key in variables else ()  # of another block of the function
            both = tuple(dict.fromkeys((*held, *registers)))
            variables[key] = DebugVariable(entry.function, name, both, _type_of(entries, entry))
    return list(variables.values())


def _abbreviations(section: _Section) -> dict[int, tuple[int, bool, list[tuple[int, int]]]]:
    """Return for each code the tag, whether entries have children, and attributes with their forms."""
    abbreviations: dict[int, tuple[int, bool, list[tuple[int, int]]]] = {}
    while section.at < len(section.bytes):
        code = section.leb()
        if not code:
            break
        tag, children, attributes = section.leb(), bool(section.number(1)), []
        while section.at < len(section.bytes):
            attribute, form = section.leb(), section.leb()
            if not attribute:
                break
            attributes.append((attribute, form))
        abbreviations[code] = tag, children, attributes
    return abbreviations


def _entries(
    section: _Section, kinds: dict[int, tuple[int, bool, list[tuple[int, int]]]]
) -> Iterator[tuple[int, _Entry]]:
    """Yield the entries by their offsets."""
    section.at = 11  # the header of the unit: its length, version, abbreviations, bytes of an address
    functions: list[str] = [""]
    while section.at < len(section.bytes):
        offset, code = section.at, section.leb()
        if not code:
            if len(functions) > 1:
                functions.pop()
            continue
        if code not in kinds:
            return
        tag, children, attributes = kinds[code]
        entry = _Entry(tag, function=functions[-1])
        for attribute, form in attributes:
            value = _value(section, form)
            if value is None:
                return  # a form of later versions: the rest cannot be read
            entry.values[attribute] = form, value
        yield offset, entry
        if children:
            name = entry.values.get(_LINKAGE_NAME) or entry.values.get(_NAME)
            functions.append(str(name[1]) if tag == _SUBPROGRAM and name else functions[-1])


def _value(section: _Section, form: int) -> object:
    """Return the value of an attribute; None if the form is not one of DWARF 2's usual ones."""
    if form in _SIZES:
        return section.number(_SIZES[form])
    if form == _STRING:
        return section.string()
    if form in (_UDATA, _SDATA):
        return section.leb()
    if form in (_BLOCK1, _BLOCK):
        size = section.number(1) if form == _BLOCK1 else section.leb()
        section.at += size
        return section.bytes[section.at - size : section.at]
    return None


def _register(expression: bytes) -> str:
    """Return the register that a location is; empty if it is another place.

    >>> _register(bytes([0x90, 177, 204, 149, 1]))
    '%f1'
    """
    section = _Section("")
    section.bytes = expression
    if not expression or section.number(1) != _REGX:
        return ""
    number = section.leb()
    name = number.to_bytes((number.bit_length() + 7) // 8, "big").decode("ascii", "replace")
    return name if name.startswith("%") else ""


def _listed(section: _Section, offset: int) -> Iterator[str]:
    """Yield the registers of a list of locations, each for a range of instructions."""
    section.at = offset
    numbers = 0
    while section.at < len(section.bytes) and numbers < 1000:
        numbers += 1
        section.number(16)  # from which label to which; a list ends with zeros and no expression
        size = section.number(2)
        expression = section.bytes[section.at : section.at + size]
        if not size or size > 16:
            return
        section.at += size
        name = _register(expression)
        if name:
            yield name


def _type_of(entries: dict[int, _Entry], entry: _Entry) -> str:
    """Return the type of a variable: a letter and bits."""
    for _ in range(16):
        reference = entry.values.get(_TYPE)
        referred = entries.get(int(str(reference[1]))) if reference is not None else None
        if referred is None:
            return ""
        if referred.tag == _POINTER:
            return "u64"
        if referred.tag == _BASE:
            letter = _LETTERS.get(int(str(referred.values.get(_ENCODING, (0, 0))[1])), "")
            bits = 8 * int(str(referred.values.get(_SIZE, (0, 0))[1]))
            return f"{letter}{bits}" if letter else ""
        if referred.tag not in _MODIFIERS:
            return ""
        entry = referred
    return ""
