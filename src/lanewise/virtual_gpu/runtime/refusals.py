"""Calls of the runtime that did not succeed: which are mistakes of the program, and whether it looked.

CUDA refuses a call and says so by its result alone, and a kernel that is stopped says so at a later call. A
program that never looks ends as if all was well.
"""

import re
from collections.abc import Container, Sequence

from lanewise.virtual_gpu.driver import Driver, DriverError, Result
from lanewise.virtual_gpu.driver.entry_points import EntryPoint
from lanewise.virtual_gpu.driver.results import FAULTS
from lanewise.virtual_gpu.order.host_lines import host_line

#: The kind of a finding.
KIND = "refused call"
#: Results that say that the program passed something wrong.
_WRONG = (
    Result.INVALID_VALUE,
    Result.INVALID_CONFIGURATION,
    Result.INVALID_SYMBOL,
    Result.INVALID_MEMCPY_DIRECTION,
    Result.INVALID_DEVICE_FUNCTION,
    Result.INVALID_DEVICE,
    Result.INVALID_HANDLE,
    Result.HOST_MEMORY_NOT_REGISTERED,
    Result.LAUNCH_OUT_OF_RESOURCES,
)
#: Calls by which programs find out what there is: a refusal is an answer.
_QUESTIONS = re.compile(
    r"Get|Query|Peer|Occupancy|Choose|FuncSet|CanAccess|Support|HostRegister|Update|Limit"
)
#: Calls without whose work the results of a program are wrong.
_WORK = re.compile(r"Launch|Memcpy|Memset")
#: By these a program asks whether something went wrong, or what the name of an error is.
ASKING = ("cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorString", "cudaGetErrorName")


class Refusals:
    """What did not succeed, and whether the program has asked since."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._unasked: list[str] = []

    def add(self, name: str, title: str, result: Result, error: str, reason: str) -> None:
        """Note a call that did not succeed: its name, what messages call it, its result, and why."""
        if result in FAULTS:
            self._unasked.append(f"a kernel was stopped ({error})")
            return
        is_work = _WORK.search(name) is not None
        if is_work:
            self._unasked.append(f"{title} was refused ({error})")
        if result in _WRONG and not _QUESTIONS.search(name):
            mend = (
                "cudaGetLastError() after a launch says whether it was refused"
                if "Launch" in name
                else "a call that is refused does nothing: let the program look at its result"
            )
            self._driver.mistakes.add(KIND, f"{title} is refused ({error}): {reason}", mend, host_line())

    def asked(self) -> None:
        """Note that the program asks for errors: what went wrong before, it knows."""
        self._unasked.clear()

    @property
    def missed(self) -> str:
        """What went wrong without that the program ever asked, in a sentence; empty if nothing did."""
        if not self._unasked:
            return ""
        more = f", and {len(self._unasked) - 1} more" if len(self._unasked) > 1 else ""
        return (
            f"main() returned 0, but {self._unasked[0]}{more}, and the program did not ask: look at the "
            "results of cudaGetLastError() after a launch, of cudaDeviceSynchronize() and of copies; the "
            "exit status is 1"
        )


#: Kinds of copies (cudaMemcpyKind): which of target and source they say to be on the device.
_ON_DEVICE = {0: (), 1: ("target",), 2: ("source",), 3: ("target", "source"), 4: ()}
_ON_HOST = {0: ("target", "source"), 1: ("source",), 2: ("target",), 3: (), 4: ()}
_DIRECTIONS = ("HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default")


def require_legal(
    driver: Driver, declared: EntryPoint, raw: Sequence[int], variables: Container[int]
) -> None:
    """Raise an error for a copy whose direction its addresses cannot have, and for a stream that is none.

    `variables` are the addresses by which the host names variables of the device. An H200 with the driver
    580 refuses a copy if pageable memory of the host stands where the direction says the device, and no
    other: memory of the device may stand where it says the host.
    """
    words = {
        parameter.name: word
        for parameter, word in zip(declared.parameters, raw, strict=False)
        if not parameter.is_result
    }
    if words.get("stream"):
        driver.stream(words["stream"])
    if "kind" not in words or not declared.name.startswith("cudaMemcpy"):
        return
    kind = words["kind"] & 0xFFFFFFFF
    if kind not in _ON_DEVICE:
        raise DriverError(
            Result.INVALID_MEMCPY_DIRECTION,
            f"{kind} is no direction of a copy: the last arguments are the bytes and a cudaMemcpyKind",
        )
    if not words.get("bytes", 1):
        return
    for side in _ON_DEVICE[kind]:
        place = words.get(side)
        if place is not None and driver.memory.find(place) is None and not driver.memory.was_device(place):
            other = "source" if side == "target" else "target"
            there = words.get(other)
            is_swapped = kind in (1, 2) and there is not None and driver.memory.find(there) is not None
            mended = f": it should be cudaMemcpy{_DIRECTIONS[3 - kind]}" if is_swapped else ""
            if place in variables:
                right = "cudaMemcpyToSymbol" if side == "target" else "cudaMemcpyFromSymbol"
                mended = f": a variable of the device is copied by {right}"
            raise DriverError(
                Result.INVALID_VALUE,
                f"the {side} {place:#x} is host memory, and the direction cudaMemcpy{_DIRECTIONS[kind]} says "
                f"that the {side} is on the device{mended}",
            )
    for side in _ON_HOST[kind]:
        place = words.get(side)
        if place is not None and driver.mistakes.are_reported and driver.memory.is_on_device(place):
            driver.mistakes.add(
                "copy direction",
                f"the {side} {place:#x} is memory of the device, and cudaMemcpy{_DIRECTIONS[kind]} says that "
                "it is on the host: CUDA leaves undefined what happens (an H200 copies)",
                "name the direction that the addresses have, or cudaMemcpyDefault",
                host_line(),
                place,
                "advice",
            )
