"""An executable as a library that this process can load: a copy in which the CUDA runtime is replaced.

nvcc links NVIDIA's runtime into an executable. In the copy, each function of the runtime begins with a jump
to the one of this project. An executable that may lie at any address (PIE, which compilers make by default)
is a shared library but for a mark, which the copy does not have.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.library.stand_in import X86_64, this_processor
from lanewise.virtual_gpu.programs.elf_file import EXECUTABLE_TYPE, ElfFile
from lanewise.virtual_gpu.runtime.runtime import exported_names

if TYPE_CHECKING:
    from lanewise.virtual_gpu.library.program_libraries import RuntimeLibrary

#: Entries of the dynamic section: flags with the mark of an executable, and the versions of imports.
_FLAGS_1, _IS_PIE = 0x6FFFFFFB, 0x08000000
_NEEDED_VERSIONS, _SYMBOL_VERSIONS = 0x6FFFFFFE, 0x6FFFFFF0
#: The version number of a symbol that has none.
_NO_VERSION = 1
#: A tag of the dynamic section that the loader does not know.
_UNUSED = 0x6FFFF000
#: Folders of copies: they live as long as the process.
_COPIES: list[tempfile.TemporaryDirectory[str]] = []


def main_address(file: ElfFile) -> int | None:
    """Return the address of main(): by its symbol, or as the first code passes it to the C library."""
    for symbol in file.symbols:
        if symbol.name == "main" and symbol.section:
            return symbol.address
    return _main_in_start(file)


def _main_in_start(file: ElfFile) -> int | None:
    """Return what the code at the entry puts into the first argument: `lea rdi, [rip + main]` on x86."""
    offset = file.offset(file.entry)
    if offset is None or not file.entry or file.machine != X86_64.elf_number:
        return None
    code = file.data[offset : offset + 64]
    at = code.find(b"\x48\x8d\x3d")
    if at < 0:
        return None
    (distance,) = struct.unpack_from("<i", code, at + 3)
    return int(file.entry + at + 7 + distance)


def as_library(path: Path, title: str, file: ElfFile, runtime: RuntimeLibrary) -> Path:
    """Return what can be loaded: the file itself, or a copy of an executable without its runtime."""
    if file.machine != this_processor().elf_number:
        raise LanewiseError(f"{title} is for another processor than this one")
    if file.type == EXECUTABLE_TYPE:
        raise LanewiseError(
            f"{title} is linked to a fixed address: link it with `nvcc -Xcompiler -fPIE -Xlinker -pie`, or "
            "give the .cu file"
        )
    image = bytearray(file.data)
    is_changed = _clear_mark(image, file)
    if is_changed:
        _require_no_thread_variables(title, file)
    is_changed |= _replace_runtime(title, image, file, runtime)
    is_changed |= _forget_versions(image, file)
    if not is_changed:
        return path
    folder = tempfile.TemporaryDirectory(prefix="lanewise-")
    _COPIES.append(folder)
    copy = Path(folder.name) / path.name
    copy.write_bytes(image)
    copy.chmod(0o700)
    return copy


def _require_no_thread_variables(title: str, file: ElfFile) -> None:
    """Raise an error for an executable with thread_local variables, whose place is fixed in its code.

    NVIDIA's runtime has one as well, which nobody uses once its functions are replaced.
    """
    own = [
        symbol.name
        for symbol in file.symbols
        if symbol.is_thread_variable and symbol.section and not symbol.name.startswith("libcudart_static")
    ]
    if own or (file.has_thread_variables and not file.symbols):
        names = ", ".join(own[:3]) or "unnamed ones"
        raise LanewiseError(
            f"{title} has thread_local variables ({names}), which an executable keeps where this process has "
            "its own: give the .cu file, or link the program with `nvcc -shared -Xcompiler -fPIC`"
        )


def _forget_versions(image: bytearray, file: ElfFile) -> bool:
    """Let imports of CUDA libraries have no version, as ours have none; return whether there were some."""
    entries = dict(file.dynamic_entries())
    versions, needed = entries.get(_SYMBOL_VERSIONS), entries.get(_NEEDED_VERSIONS)
    if versions is None or needed is None:
        return False
    first, links = file.offset(needed[1]), file.offset(versions[1])
    assert first is not None and links is not None
    before, at, is_changed = None, first, False
    while True:
        _, count, name, own, following = struct.unpack_from("<HHIII", image, at)
        if file.dynamic_text(name).startswith(("libcudart.so", "libcuda.so", "libcublas")):
            is_changed = True
            numbers, place = set(), at + own
            for _ in range(count):
                _, _, number, _, step = struct.unpack_from("<IHHII", image, place)
                numbers.add(number & 0x7FFF)
                place += step
            for index in range(file.import_count):
                if struct.unpack_from("<H", image, links + 2 * index)[0] & 0x7FFF in numbers:
                    struct.pack_into("<H", image, links + 2 * index, _NO_VERSION)
            if before is not None:
                step = at + following - before if following else 0
                struct.pack_into("<I", image, before + 12, step)
            elif following:
                struct.pack_into("<Q", image, needed[0] + 8, needed[1] + following)
            else:
                struct.pack_into("<Q", image, needed[0], _UNUSED)
        else:
            before = at
        if not following:
            return is_changed
        at += following


def _clear_mark(image: bytearray, file: ElfFile) -> bool:
    """Clear the mark of an executable, for which the loader would refuse it; return whether there was one."""
    for tag, (at, value) in file.dynamic_entries():
        if tag == _FLAGS_1 and value & _IS_PIE:
            struct.pack_into("<Q", image, at + 8, value & ~_IS_PIE)
            return True
    return False


def _replace_runtime(title: str, image: bytearray, file: ElfFile, runtime: RuntimeLibrary) -> bool:
    """Begin each function of a runtime in the file with a jump to ours; return whether there was one."""
    names = set(exported_names())
    own = [
        symbol for symbol in file.symbols if symbol.name in names and symbol.section and symbol.is_function
    ]
    if not own:
        if any(name in names for name, _ in file.imports()) or not _has_device_code(file):
            return False
        raise LanewiseError(
            f"{title} has the CUDA runtime linked in and its symbols stripped: build it with "
            "`nvcc -cudart shared`, or do not strip it"
        )
    if this_processor() is not X86_64:
        raise LanewiseError(f"{title} has the CUDA runtime linked in: build it with `nvcc -cudart shared`")
    for symbol in own:
        offset = file.offset(symbol.address)
        if offset is not None:
            # mov r11, address; jmp r11
            jump = b"\x49\xbb" + struct.pack("<Q", runtime.address(symbol.name)) + b"\x41\xff\xe3"
            image[offset : offset + len(jump)] = jump
    return True


def _has_device_code(file: ElfFile) -> bool:
    """Return whether a file has fatbins."""
    return struct.pack("<I", 0xBA55ED50) in file.data
