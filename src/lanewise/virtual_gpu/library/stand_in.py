"""A shared library that stands in for another one: Python answers the functions that it exports.

A library that has the SONAME of another one and is loaded first answers every later dlopen of that name. It
is an ELF file, written without compiler and linker: names, their code, and one word of data. An entry point
loads its number and jumps to one routine. The routine stores the registers that hold arguments, and calls the
function whose address Python wrote into the library: `dispatch(number, registers, stack)`. Without it, the
result is CUDA_ERROR_DEINITIALIZED."""

import ctypes
import os
import platform
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.driver.results import Result
from lanewise.virtual_gpu.order.host_lines import NativeCall, enter_call, leave_call


@dataclass(frozen=True)
class Processor:
    """A kind of processor: its number in ELF files, and how many arguments are in registers."""

    name: str
    elf_number: int
    registers: int
    #: Bytes of the code of each entry point.
    stub_bytes: int
    #: Where the routine keeps the caller's frame pointer and its return address, from the stored registers.
    frame_offset: int
    return_offset: int


X86_64 = Processor("x86_64", 62, 6, 16, frame_offset=48, return_offset=72)
AARCH64 = Processor("aarch64", 183, 8, 8, frame_offset=-16, return_offset=-8)


def this_processor() -> Processor:
    """Return the processor of this machine; an error if the library has no code for it."""
    name = platform.machine().lower()
    if name in ("x86_64", "amd64"):
        return X86_64
    if name in ("aarch64", "arm64"):
        return AARCH64
    raise LanewiseError(f"the driver's library has code for x86_64 and aarch64, not for {name}")


def code(processor: Processor, count: int, slot_distance: int) -> bytes:
    """Return the code: the stubs of entry points 0 to count, then the routine.

    `slot_distance` is how far behind the begin of the code the address of Python's function lies.
    """
    write = _x86_64 if processor is X86_64 else _aarch64
    return write(count, slot_distance)


def _x86_64(count: int, slot_distance: int) -> bytes:
    common = count * X86_64.stub_bytes
    out = bytearray()
    for number in range(count):
        stub = b"\xb8" + struct.pack("<I", number)  # mov eax, number
        stub += b"\xe9" + struct.pack("<i", common - (len(out) + len(stub) + 5))  # jmp common
        out += stub.ljust(X86_64.stub_bytes, b"\xcc")
    out += bytes.fromhex("4883ec48")  # sub rsp, 72: aligned to 16 bytes again
    out += bytes.fromhex("48893c24 4889742408 4889542410 48894c2418 4c89442420 4c894c2428")  # registers
    out += bytes.fromhex("48896c2430")  # mov [rsp + 48], rbp: the frame of the caller
    out += bytes.fromhex("89c7 4889e6 488d542450")  # edi = number; rsi = registers; rdx = stack arguments
    out += b"\x48\x8b\x05" + struct.pack("<i", slot_distance - (len(out) + 7))  # mov rax, [slot]
    out += bytes.fromhex("4885c0 7407")  # test rax, rax; jz none
    out += bytes.fromhex("ffd0 4883c448 c3")  # call rax; add rsp, 72; ret
    out += b"\xb8" + struct.pack("<I", Result.DEINITIALIZED) + bytes.fromhex("4883c448 c3")  # none:
    return bytes(out)


def _aarch64(count: int, slot_distance: int) -> bytes:
    words: list[int] = []
    for number in range(count):
        words.append(0x52800010 | number << 5)  # movz w16, number
        words.append(0x14000000 | (2 * count - len(words)) & 0x3FFFFFF)  # b common
    words += [0xA9BB7BFD, 0x910003FD]  # stp x29, x30, [sp, -80]!; mov x29, sp
    words += [0xA90107E0, 0xA9020FE2, 0xA90317E4, 0xA9041FE6]  # stp x0 … x7, [sp, 16 …]
    words += [0x2A1003E0, 0x910043E1, 0x910143E2]  # mov w0, w16; add x1, sp, 16; add x2, sp, 80
    distance = slot_distance - 4 * len(words)
    words.append(0x10000009 | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5)  # adr x9, slot
    words += [0xF9400129, 0xB4000089]  # ldr x9, [x9]; cbz x9, none
    words += [0xD63F0120, 0xA8C57BFD, 0xD65F03C0]  # blr x9; ldp x29, x30, [sp], 80; ret
    words += [0x52800000 | Result.DEINITIALIZED << 5, 0xA8C57BFD, 0xD65F03C0]  # none: mov w0, 4; …
    return struct.pack(f"<{len(words)}I", *words)


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


_DISPATCH = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
#: What has been loaded stays loaded: the libraries of this process by name, with their files.
_LOADED: dict[str, tuple[ctypes.CDLL, Path, tempfile.TemporaryDirectory[str]]] = {}
#: The libraries' machine code calls these, so they must live as long as the process.
_CALLED_FROM_C: list[object] = []


class Arguments:
    """The arguments of a call from C: calling it with a number returns so many words of 64 bits."""

    def __init__(self, processor: Processor, registers: int, stack: int) -> None:
        self.processor, self._registers, self.stack = processor, registers, stack

    @property
    def registers(self) -> list[int]:
        """The words in the registers that hold arguments."""
        return list((ctypes.c_uint64 * self.processor.registers).from_address(self._registers))

    @property
    def call(self) -> NativeCall:
        """Who called: the address that the call returns to, and the caller's frame."""
        frame = ctypes.c_uint64.from_address(self._registers + self.processor.frame_offset).value
        address = ctypes.c_uint64.from_address(self._registers + self.processor.return_offset).value
        return NativeCall(address, frame)

    def __call__(self, count: int) -> list[int]:
        """Return the words of the first arguments, of which none is a struct or a float."""
        own = min(count, self.processor.registers)
        words = list((ctypes.c_uint64 * own).from_address(self._registers))
        if count > own:
            words += (ctypes.c_uint64 * (count - own)).from_address(self.stack)
        return words


#: Returns what a function returns, given its name and its arguments.
Answer = Callable[[str, Arguments], int]


class StandIn:
    """A library in a file, connected to a function of Python until it is closed.

    Of a library that `is_global`, later libraries find the functions without asking for its name.
    """

    def __init__(self, soname: str, names: Sequence[str], answer: Answer, is_global: bool = False) -> None:
        if soname not in _LOADED:
            _LOADED[soname] = _load(soname, names, os.RTLD_GLOBAL if is_global else os.RTLD_LOCAL)
        self._library, self.path, _ = _LOADED[soname]
        self._names, self._answer, self._processor = tuple(names), answer, this_processor()
        self._slot = ctypes.c_uint64.in_dll(self._library, SLOT)
        dispatch = _DISPATCH(self._call)
        _CALLED_FROM_C.append(dispatch)
        self._slot.value = ctypes.cast(dispatch, ctypes.c_void_p).value or 0

    def close(self) -> None:
        """Let every function answer that the driver is there no more, as at the end of a process."""
        self._slot.value = 0

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def _call(self, number: int, registers: int, stack: int) -> int:
        arguments = Arguments(self._processor, registers, stack)
        outer = enter_call(arguments.call)
        try:
            return self._answer(self._names[number], arguments)
        finally:
            leave_call(outer)


def _load(
    soname: str, names: Sequence[str], mode: int
) -> tuple[ctypes.CDLL, Path, tempfile.TemporaryDirectory[str]]:
    """Write a library to a file and load it."""
    if not sys.platform.startswith("linux"):
        raise LanewiseError(f"programs in C find a virtual GPU on Linux alone, not on {sys.platform}")
    folder = tempfile.TemporaryDirectory(prefix="lanewise-")
    path = Path(folder.name) / soname
    path.write_bytes(shared_library(soname, names, this_processor()))
    return ctypes.CDLL(str(path), mode=mode | os.RTLD_NOW), path, folder
