"""A shared library as an ELF file, written without a linker: names, their code, and one word of data."""

import struct
from collections.abc import Sequence

from lanewise.virtual_gpu.library.machine_code import Processor, code

#: Segments begin at multiples of this: the largest pages of x86 and Arm.
_PAGE = 0x10000
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ, _WRITE, _EXECUTE = 4, 2, 1
_HEADER, _SEGMENT, _SYMBOL = 64, 56, 24
_FUNCTION, _OBJECT = 0x12, 0x11  # global symbols: code, data
#: Entries of the dynamic section.
_END, _HASH, _TEXTS, _SYMBOLS, _TEXT_BYTES, _SYMBOL_BYTES, _SONAME = 0, 4, 5, 6, 10, 11, 14
#: The word of data in which Python writes the address of its function.
SLOT = "lanewise_dispatch"


def shared_library(soname: str, names: Sequence[str], processor: Processor) -> bytes:
    """Return a shared library that exports a function for each name, and the data word `SLOT`."""
    texts, places = _texts([soname, SLOT, *names])
    segments = 4
    symbols_at = _HEADER + segments * _SEGMENT
    count = len(names) + 2  # the first symbol is empty, the second is the slot
    hashes_at = symbols_at + count * _SYMBOL
    table = _hash_table(["", SLOT, *names])
    texts_at = hashes_at + len(table)
    code_at = -(-(texts_at + len(texts)) // 64) * 64
    size = len(code(processor, len(names), 0))
    data_at = -(-(code_at + size) // _PAGE) * _PAGE
    dynamic_bytes = 7 * 16
    slot_at = data_at + dynamic_bytes
    end = slot_at + 8
    symbols = bytes(_SYMBOL) + struct.pack("<IBBHQQ", places[SLOT], _OBJECT, 0, 2, slot_at, 8)
    for number, name in enumerate(names):
        where = code_at + number * processor.stub_bytes
        symbols += struct.pack("<IBBHQQ", places[name], _FUNCTION, 0, 1, where, processor.stub_bytes)
    dynamic = b"".join(
        struct.pack("<QQ", *entry)
        for entry in (
            (_SONAME, places[soname]),
            (_HASH, hashes_at),
            (_TEXTS, texts_at),
            (_SYMBOLS, symbols_at),
            (_TEXT_BYTES, len(texts)),
            (_SYMBOL_BYTES, _SYMBOL),
            (_END, 0),
        )
    )
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, processor.elf_number, 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, segments, 64, 0, 0
    )
    headers = header + b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, at, at, length, length, align)
        for kind, flags, at, length, align in (
            (_LOAD, _READ | _EXECUTE, 0, code_at + size, _PAGE),
            (_LOAD, _READ | _WRITE, data_at, end - data_at, _PAGE),
            (_DYNAMIC, _READ | _WRITE, data_at, dynamic_bytes, 8),
            (_STACK, _READ | _WRITE, 0, 0, 16),
        )
    )
    image = bytearray(end)
    parts = ((0, headers), (symbols_at, symbols), (hashes_at, table), (texts_at, texts), (data_at, dynamic))
    for at, part in (*parts, (code_at, code(processor, len(names), slot_at - code_at))):
        image[at : at + len(part)] = part
    return bytes(image)


def _texts(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """Return the names one after the other with a zero byte behind each, and the offset of each."""
    out, places = bytearray(b"\0"), {}
    for name in names:
        places[name] = len(out)
        out += name.encode() + b"\0"
    return bytes(out), places


def _hash_table(names: Sequence[str]) -> bytes:
    """Return the table by which the loader finds a symbol: buckets of chains, as the System V ABI has it."""
    buckets = max(1, len(names) // 2)
    heads, chain = [0] * buckets, [0] * len(names)
    for number, name in enumerate(names):
        if name:
            bucket = _hash(name) % buckets
            chain[number], heads[bucket] = heads[bucket], number
    words = [buckets, len(names), *heads, *chain]
    table = struct.pack(f"<{len(words)}I", *words)
    return table + bytes(-len(table) % 8)


def _hash(name: str) -> int:
    """Return the hash of a name, as the System V ABI defines it.

    >>> hex(_hash("printf"))
    '0x77905a6'
    """
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value
