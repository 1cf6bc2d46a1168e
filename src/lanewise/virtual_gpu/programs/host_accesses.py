"""Host code that follows a pointer to device memory: the signal is caught, and a sentence says what it is.

Programs get addresses of device memory that the host cannot access (`driver/reserved_addresses.py`), so that
the processor stops host code there, as it does with a GPU. What a signal handler may do is little. Here it
is called in the program's own code, not in Python's, so that it may call Python; the thread does not go on.
"""

import ctypes
import platform
import signal
import sys
from collections.abc import Callable

from lanewise.machine.program.source_lines import short_place
from lanewise.virtual_gpu.driver import Driver
from lanewise.virtual_gpu.driver.memory import Memory
from lanewise.virtual_gpu.order.host_lines import line_of_frames, native_line

#: The kind of a finding.
KIND = "host access"
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
#: Flags of an action: the handler gets what happened (SA_SIGINFO), on a stack of its own if there is one.
_WITH_INFO, _ON_STACK = 4, 0x08000000
#: Where siginfo_t has the address that was accessed.
_ADDRESS_AT = 16
#: Where ucontext_t has the address of the instruction, and on x86-64 what the processor says of the access.
_INSTRUCTION_AT = {"x86_64": 40 + 8 * 16, "aarch64": 176 + 8 * 33}
_ERROR_AT, _IS_WRITE = 40 + 8 * 19, 2
#: Bytes before a block of the heap that free() looks at.
_BLOCK_HEADER = 16
#: The most frames of a stack that are looked at.
_FRAMES = 96


class _Action(ctypes.Structure):
    """struct sigaction of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int32),
        ("restorer", ctypes.c_void_p),
    )


class HostAccesses:
    """Catches accesses of host code to device memory while a program runs; `end` is called with a status."""

    def __init__(self, driver: Driver, end: Callable[[int], None]) -> None:
        self._driver, self._end = driver, end
        self._libc = ctypes.CDLL(None)
        #: The system calls it: it must live as long as the process.
        self._handler = _HANDLER(self._faulted)
        self._before = _Action()
        self._frames = (ctypes.c_void_p * _FRAMES)()

    def catch(self) -> None:
        """Catch segmentation faults from now on."""
        self._walk()  # the first call loads the library that walks stacks, which a handler should not do
        action = _Action(ctypes.cast(self._handler, ctypes.c_void_p).value, flags=_WITH_INFO | _ON_STACK)
        self._libc.sigaction(signal.SIGSEGV, ctypes.byref(action), ctypes.byref(self._before))

    def _walk(self) -> list[int]:
        """Return the addresses that the functions of this thread return to; empty if they are not known."""
        walk = getattr(self._libc, "backtrace", None)
        count = walk(self._frames, _FRAMES) if walk is not None else 0
        return [int(frame or 0) for frame in self._frames[:count]]

    def _faulted(self, number: int, info: int, context: int) -> None:
        """Tell of an access to device memory and end the program; others have the effect that they had."""
        place = ctypes.c_uint64.from_address(info + _ADDRESS_AT).value
        memory = self._driver.memory
        known = memory.find(place)
        is_shared = known is not None and not known.is_device
        if memory.reserved is None or not (memory.reserved.has(place) or memory.is_on_device(place)):
            self._libc.sigaction(number, ctypes.byref(self._before), None)
            return  # the instruction is repeated, and the signal does what it does without a handler
        machine = platform.machine()
        instruction, verb = 0, "accesses"
        if machine in _INSTRUCTION_AT:
            instruction = ctypes.c_uint64.from_address(context + _INSTRUCTION_AT[machine]).value
        if machine == "x86_64":
            error = ctypes.c_uint64.from_address(context + _ERROR_AT).value
            verb = "writes" if error & _IS_WRITE else "reads"
        line = line_of_frames(instruction, self._walk())
        if is_shared:
            if not self._driver.unfinished.touched(place, verb, line):
                self._libc.sigaction(number, ctypes.byref(self._before), None)
            return  # the instruction is repeated, which succeeds now
        if line is None and (line := native_line()) is not None:
            verb = "lets a call of CUDA access"  # which gives a result by its address
        message, mend = _words(memory, place, verb)
        finding = self._driver.mistakes.add(KIND, message, mend, line, place)
        self._driver.mistakes.stopped = True
        if not self._driver.mistakes.are_reported:
            print(f"lanewise: {finding.in_words()}", file=sys.stderr)
        print("lanewise: nothing after this point was run or checked", file=sys.stderr, flush=True)
        self._end(128 + number)


def _words(memory: Memory, place: int, verb: str) -> tuple[str, str]:
    """Return what is wrong with an access of host code to device memory, and what mends it."""
    known, freed_at = memory.find_near(place), None
    if known is None and (freed := memory.find_freed(place)) is not None:
        known, freed_at = freed
    if known is None:
        what = f"{place:#x}, an address of the device"
    else:
        made_at = known.made_at
        offset, where = place - known.first, f", allocated at {short_place(made_at)}" if made_at else ""
        kind = "device" if known.is_device else "managed" if known.is_managed else "pinned host"
        title = f"{kind} memory ({known.size:,} bytes at {known.first:#x}{where})"
        if 0 <= offset < known.size:
            what = f"byte {offset:,} of {title}"
        elif offset < 0:
            what = f"{place:#x}, {-offset:,} bytes before {title}"
        else:
            what = f"{place:#x}, {offset - known.size:,} bytes past the end of {title}"
        if freed_at is not None:
            what += f", which was freed{f' at {short_place(freed_at)}' if freed_at else ''}"
    dies = "with a GPU the program dies of a segmentation fault"
    if known is not None and (freed_at is not None or not known.is_device):
        return f"host code {verb} {what}: {dies}", "stay inside the memory, and use it before it is freed"
    message = f"host code {verb} {what}: only kernels can; {dies}"
    if known is not None and -_BLOCK_HEADER <= place - known.first < 0:
        mend = "give memory of cudaMalloc back by cudaFree, not by free() or delete"
    elif verb == "writes":
        mend = "write to host memory and copy that with cudaMemcpy(…, cudaMemcpyHostToDevice)"
    elif verb.startswith("lets"):
        mend = "pass the address of a variable of the host, and copy what it gets to the device"
    else:
        mend = "copy the memory to the host first: cudaMemcpy(…, cudaMemcpyDeviceToHost)"
    return message, f"{mend}; or allocate memory that both sides reach: cudaMallocManaged"
