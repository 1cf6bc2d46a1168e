"""What a cubin says about its kernels beside their code, which the virtual GPU does not run: registers."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SECTION = struct.Struct("<IIQQQQIIQQ")
#: An entry of `.nv.info` with bytes of its own, and the one that has the registers of a function.
_SIZED, _REGISTERS = 4, 0x2F


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and contents of each section of an ELF file of 64 bits."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [_SECTION.unpack_from(cubin, table + number * size) for number in range(count)]
    texts = headers[names][4]
    for name, _, _, _, offset, length, *_ in headers:
        end = cubin.index(b"\0", texts + name)
        yield cubin[texts + name : end].decode(), cubin[offset : offset + length]


def registers_of(cubin: bytes) -> int:
    """Return the most registers that a thread of a kernel in a cubin has; 0 if it does not say it."""
    most = 0
    try:
        for name, data in _sections(cubin):
            if name != ".nv.info":
                continue
            at = 0
            while at + 4 <= len(data):
                form, kind, size = struct.unpack_from("<BBH", data, at)
                if form == _SIZED and kind == _REGISTERS and size >= 8:
                    most = max(most, struct.unpack_from("<I", data, at + 8)[0])
                at += 4 + (size if form == _SIZED else 0)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError):  # no ELF file
        return 0
    return most
