"""torch's tensors begin where device memory does: at multiples of 512 bytes, not of a CPU's 64.

Programs rely on it: CuTe DSL asks for tensors that are aligned to 128 bytes. torch's library for memory calls
`posix_memalign` with its own alignment; in the table of that library's imports, a few instructions take the
place of the function: they raise the alignment and go on with the C library's.
"""

import ctypes
import mmap
import struct
from functools import cache
from pathlib import Path

import torch

from lanewise.virtual_gpu.library.machine_code import X86_64, this_processor
from lanewise.virtual_gpu.programs.elf_file import ElfFile

#: What the addresses of cudaMalloc are multiples of.
ALIGNMENT = 512
_FUNCTION = "posix_memalign"


def _code(target: int) -> bytes:
    """Return code that raises the alignment of posix_memalign to ALIGNMENT and goes on at a target."""
    least = struct.pack("<I", ALIGNMENT)
    compare = b"\x48\x81\xfe" + least + b"\x73\x05"  # cmp rsi, least; jae over the next instruction
    return compare + b"\xbe" + least + b"\x49\xbb" + struct.pack("<Q", target) + b"\x41\xff\xe3"


@cache
def align_tensors() -> mmap.mmap | None:
    """Let torch align memory of new tensors to 512 bytes, for the rest of the process.

    It returns the memory with the code, or None where torch or the processor is another one: then tensors
    stay where they are.
    """
    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    if this_processor() is not X86_64 or not path.is_file():
        return None
    file = ElfFile(path.read_bytes())
    places = [place for name, place in file.imports() if name == _FUNCTION]
    libc = ctypes.CDLL(None)
    target = ctypes.cast(getattr(libc, _FUNCTION), ctypes.c_void_p).value
    if not places or target is None:
        return None
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # a system that allows no new code
        return None
    memory.write(_code(target))
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    library = ctypes.CDLL(str(path))
    base = ctypes.c_uint64.from_address(library._handle).value  # the loader's record begins with it
    for place in places:
        page = (base + place) // mmap.PAGESIZE * mmap.PAGESIZE
        if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 3) == 0:  # read and write
            ctypes.c_uint64.from_address(base + place).value = begin
    return memory
