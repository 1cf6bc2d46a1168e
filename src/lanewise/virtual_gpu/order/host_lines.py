"""The line of the program that called into a framework or into the driver, in Python or in C++.

The library's code keeps the frame pointer of its caller, and programs are built with frame pointers and line
tables, so that the frames of host code can be walked; `addr2line` of binutils reads the tables.
"""

import os
import re
import struct
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

#: How many frames are walked; a launch is two or three below the program's own line.
_FRAMES = 16
_FRAME = struct.Struct("<QQ")
#: A function that nvcc writes for a launch, and the kernel's own name in it.
_STUB = re.compile(r"__device_stub_(_\w+)")
_SECONDS = 60
#: Where the headers of the system are, those of C++ among them.
_SYSTEM = ("/usr/include/", "/usr/lib/", "/usr/local/include/")
#: The file that nvcc writes of a source file, and a line.
_WRITTEN_BY_NVCC = re.compile(r"_(\w+)\.cudafe1\.cpp:(\d+)$")


@dataclass(frozen=True)
class NativeCall:
    """A call from C: the address that it returns to, and the frame of its caller."""

    return_address: int
    frame: int


@dataclass(frozen=True)
class _Program:
    file: Path
    base: int
    end: int
    #: The offset of its main(); 0 if it is not known.
    main: int = 0


#: The innermost call from C of each thread, and the programs of this process.
_CALLS: dict[int, NativeCall] = {}
_PROGRAMS: list[_Program] = []


def enter_call(call: NativeCall) -> NativeCall | None:
    """Note a call of this thread, and return the one that it is in."""
    thread = threading.get_ident()
    outer, _CALLS[thread] = _CALLS.get(thread), call
    return outer


def leave_call(outer: NativeCall | None) -> None:
    """Note that a call has ended."""
    if outer is None:
        _CALLS.pop(threading.get_ident(), None)
    else:
        _CALLS[threading.get_ident()] = outer


def add_program(file: Path, base: int, size: int, main: int = 0) -> None:
    """Note where a program was loaded."""
    _PROGRAMS.append(_Program(file, base, base + size, main))


def is_program(address: int) -> bool:
    """Return whether an address lies in a program: its code, or a global variable."""
    return any(program.base <= address < program.end for program in _PROGRAMS)


def current_frame() -> int:
    """Return the address of the frame of the program that made the current call; 0 if there is none."""
    call = _CALLS.get(threading.get_ident())
    return call.frame if call is not None else 0


@cache
def _own_memory(process: int) -> int:
    """Return the file of the memory of this process, which stays open; a forked process has its own."""
    return os.open(f"/proc/{process}/mem", os.O_RDONLY)


def _return_addresses(call: NativeCall) -> Iterator[int]:
    """Yield the addresses that a call and its callers return to; code without frame pointers ends it."""
    yield call.return_address
    frame, memory = call.frame, _own_memory(os.getpid())
    for _ in range(_FRAMES):
        try:  # a wrong address is an error, and no crash
            outer, address = _FRAME.unpack(os.pread(memory, _FRAME.size, frame))
        except (OSError, OverflowError, struct.error):
            return
        yield address
        if outer <= frame:
            return
        frame = outer


@cache
def _lines_at(file: Path, offset: int) -> tuple[tuple[str, str], ...]:
    """Return function and line of an address of a program, the innermost of inlined functions first."""
    command = ["addr2line", "-i", "-f", "-e", str(file), hex(offset)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    words = done.stdout.splitlines()
    places = [word.partition(" ")[0] for word in words[1::2]]  # a discriminator may be behind it
    return tuple(zip(words[::2], places, strict=False))


def native_line() -> str | None:
    """Return the line of the program in C++ that made the current call; None if it is not known.

    A kernel is launched by two functions that nvcc writes: one has the kernel's own name and calls the other,
    in whose name the first one's is. Their lines are those of the kernel.
    """
    return line_of_calls(native_frames())


def native_frames() -> tuple[int, ...]:
    """Return the addresses that the program's current call and its callers return to, innermost first."""
    call = _CALLS.get(threading.get_ident())
    return () if call is None or not _PROGRAMS else tuple(_return_addresses(call))


def line_of_calls(frames: Sequence[int]) -> str | None:
    """Return the line of the program in C++ that made a call, given its `native_frames`."""
    kernel = ""
    for address in frames:
        for program in _PROGRAMS:
            if not program.base <= address < program.end:
                continue
            for function, line in _lines_at(program.file, address - 1 - program.base):  # the call is before
                stub = _STUB.search(function)
                if stub is not None:
                    kernel = stub.group(1)
                elif not kernel.startswith(function) and (own := _own_line(program, line)) is not None:
                    return own
    return None


def _own_line(program: _Program, line: str) -> str | None:
    """Return a line of an address as the program's own, if it is one.

    nvcc compiles host code from a file that it writes and removes. Of a few instructions that file is named,
    with the number of the line in the source, which is the file of main() if their names agree.
    """
    if _is_own(line):
        return line
    written = _WRITTEN_BY_NVCC.search(line)
    if written is None or not program.main:
        return None
    for _, of_main in _lines_at(program.file, program.main):
        source = of_main.rpartition(":")[0]
        if Path(source).stem == written[1] and _is_own(f"{source}:{written[2]}"):
            return f"{source}:{written[2]}"
    return None


def line_of_frames(instruction: int, frames: Sequence[int]) -> str | None:
    """Return the line of the program in which an instruction is, or that called the function which has it.

    `frames` are the addresses that functions return to, the innermost first.
    """
    of_library: str | None = None
    for address in (instruction + 1, *frames):  # of a call, the address behind it is known
        for program in _PROGRAMS:
            if program.base <= address < program.end:
                for _, line in _lines_at(program.file, address - 1 - program.base):
                    own = _own_line(program, line)
                    if own is not None and not own.startswith(_SYSTEM):
                        return own
                    of_library = of_library or own
    return of_library


def _is_own(line: str) -> bool:
    """Return whether a line is known and in no header of the toolkit, such as the template of cudaMalloc."""
    name, _, number = line.rpartition(":")
    file = Path(name)
    is_header = (file.parent / "cuda_runtime.h").is_file()
    return number.isdigit() and int(number) > 0 and file.is_file() and not is_header


#: The folder of this library.
_OWN = str(Path(__file__).parents[2])


@cache
def _is_library(file: str) -> bool:
    """Return whether a file belongs to Python, to this library or to an installed package."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file.startswith(("<frozen", "<string", _OWN)) or any(
        file.startswith(folder + os.sep) for folder in folders if folder
    )


def host_line() -> str | None:
    """Return the file and line of the program's innermost frame, in Python or in C++; None if unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return native_line()
