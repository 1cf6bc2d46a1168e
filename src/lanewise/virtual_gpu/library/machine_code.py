"""The code of the library: a few instructions for each entry point, and one routine that all jump to.

An entry point loads its number and jumps to the routine. The routine stores the registers that hold
arguments, and calls the function whose address Python wrote into the library: `dispatch(number, registers,
stack)`. Without it, the result is CUDA_ERROR_DEINITIALIZED.
"""

import platform
import struct
from dataclasses import dataclass

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.driver.results import Result


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
