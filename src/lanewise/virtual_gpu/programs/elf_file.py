"""An ELF file of 64 bits: segments, symbols and imports, to load a program; the registers of a cubin."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_LOAD, _DYNAMIC, _THREAD_LOCAL = 1, 2, 7
#: The tag of the dynamic section that says where its texts are.
_TEXTS = 5
_SYMBOL_TABLE, _RELOCATIONS, _IMPORTED_SYMBOLS = 2, 4, 11
_FUNCTION, _THREAD_VARIABLE = 2, 6
EXECUTABLE_TYPE, SHARED_TYPE = 2, 3
#: An entry of a cubin's `.nv.info` with bytes of its own, and the one that has the registers of a function.
_SIZED, _REGISTERS = 4, 0x2F


@dataclass(frozen=True)
class Symbol:
    """A symbol: its name, kind, address and size; the section 0 means that it is imported."""

    name: str
    kind: int
    section: int
    address: int
    size: int

    @property
    def is_function(self) -> bool:
        """Whether it is code."""
        return self.kind == _FUNCTION

    @property
    def is_thread_variable(self) -> bool:
        """Whether every thread has its own."""
        return self.kind == _THREAD_VARIABLE


class ElfFile:
    """The tables of an ELF file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.type, self.machine = struct.unpack_from("<HH", data, 16)
        self.entry, self._segments_at, self._sections_at = struct.unpack_from("<QQQ", data, 24)
        self._segment_bytes, self._segments, self._section_bytes, self._sections = struct.unpack_from(
            "<HHHH", data, 54
        )

    @staticmethod
    def is_one(data: bytes) -> bool:
        """Return whether bytes begin like an ELF file of 64 bits."""
        return data[:5] == b"\x7fELF\x02" and len(data) > 64

    @cached_property
    def segments(self) -> list[tuple[int, ...]]:
        """The segments: type, flags, offset, address, …, bytes in the file."""
        return [
            _SEGMENT.unpack_from(self.data, self._segments_at + number * self._segment_bytes)
            for number in range(self._segments)
        ]

    @cached_property
    def sections(self) -> list[tuple[int, ...]]:
        """The sections: name, type, flags, address, offset, bytes, link, …."""
        if not self._sections_at:
            return []
        return [
            _SECTION.unpack_from(self.data, self._sections_at + number * self._section_bytes)
            for number in range(self._sections)
        ]

    def offset(self, address: int) -> int | None:
        """Return where in the file the byte of an address is; None if it is not there."""
        for kind, _, offset, start, _, size, *_ in self.segments:
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        return None

    def dynamic_entries(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield the entries of the dynamic section: the tag, where the entry is in the file, its value."""
        for kind, _, offset, _, _, size, *_ in self.segments:
            if kind == _DYNAMIC:
                for at in range(offset, offset + size, 16):
                    tag, value = struct.unpack_from("<QQ", self.data, at)
                    yield tag, (at, value)
                    if not tag:
                        return

    def dynamic_text(self, place: int) -> str:
        """Return a text of the table that the dynamic section names."""
        texts = self.offset(dict(self.dynamic_entries())[_TEXTS][1])
        assert texts is not None
        begin = texts + place
        return self.data[begin : self.data.index(b"\0", begin)].decode(errors="replace")

    @property
    def loaded_bytes(self) -> int:
        """How many bytes of addresses the file takes when it is loaded."""
        return max((segment[3] + segment[6] for segment in self.segments if segment[0] == _LOAD), default=0)

    @property
    def has_thread_variables(self) -> bool:
        """Whether there is memory that every thread has of its own."""
        return any(segment[0] == _THREAD_LOCAL for segment in self.segments)

    @property
    def import_count(self) -> int:
        """How many symbols are imported or exported."""
        return sum(section[5] // _SYMBOL.size for section in self.sections if section[1] == _IMPORTED_SYMBOLS)

    def _text(self, table: int, place: int) -> str:
        begin = self.sections[table][4] + place
        return self.data[begin : self.data.index(b"\0", begin)].decode(errors="replace")

    def _symbols_in(self, section: tuple[int, ...]) -> Iterator[Symbol]:
        offset, size, link = section[4], section[5], section[6]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, info, _, owner, address, length = _SYMBOL.unpack_from(self.data, at)
            yield Symbol(self._text(link, name), info & 15, owner, address, length)

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The symbols of the file's own table, which `strip` removes, or else those that it exports."""
        for wanted in (_SYMBOL_TABLE, _IMPORTED_SYMBOLS):
            tables = [section for section in self.sections if section[1] == wanted]
            if tables:
                return [symbol for table in tables for symbol in self._symbols_in(table)]
        return []

    def imports(self) -> Iterator[tuple[str, int]]:
        """Yield each imported name with the address of the word that the loader writes its address to."""
        for section in self.sections:
            if section[1] != _RELOCATIONS:
                continue
            table = self.sections[section[6]]
            if table[1] != _IMPORTED_SYMBOLS:
                continue
            names = list(self._symbols_in(table))
            for at in range(section[4], section[4] + section[5], _RELOCATION.size):
                place, info, _ = _RELOCATION.unpack_from(self.data, at)
                symbol = names[info >> 32]
                if symbol.name and symbol.section == 0:
                    yield symbol.name, place

    def contents(self, name: str) -> Iterator[bytes]:
        """Yield the contents of the sections of a name."""
        (names,) = struct.unpack_from("<H", self.data, 62)
        for section in self.sections:
            if self._text(names, section[0]) == name:
                yield self.data[section[4] : section[4] + section[5]]


def registers_of(cubin: bytes) -> int:
    """Return the most registers that a thread of a kernel in a cubin has; 0 if it does not say it."""
    most = 0
    try:
        for data in ElfFile(cubin).contents(".nv.info"):
            at = 0
            while at + 4 <= len(data):
                form, kind, size = struct.unpack_from("<BBH", data, at)
                if form == _SIZED and kind == _REGISTERS and size >= 8:
                    most = max(most, struct.unpack_from("<I", data, at + 8)[0])
                at += 4 + (size if form == _SIZED else 0)
    except (struct.error, IndexError, ValueError):  # no ELF file
        return 0
    return most
