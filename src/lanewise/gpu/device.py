"""CUDA devices: which there are, and the context of each in which modules are loaded and launched.

The context is the device's primary one, the same that torch, CuPy, JAX and Numba use.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, c_uint64
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lanewise.gpu import driver as cuda
from lanewise.gpu.driver import Driver, GpuError
from lanewise.isa import arch_number

#: Numbers of attributes (CUdevice_attribute).
_MULTIPROCESSORS, _MAJOR, _MINOR, _MOST_SHARED = 16, 75, 76, 97
#: The lowest arch that kernels of the language are traced for, unless one is named.
_TRACED_FOR = 80


@dataclass(frozen=True)
class Device:
    """A CUDA device: its number, name and arch, and the driver that runs it."""

    ordinal: int
    name: str
    arch: str
    multiprocessors: int
    #: The most shared memory of a block, in bytes.
    most_shared: int
    #: The newest CUDA release that the driver supports, and the driver's own release where it can be read.
    cuda: str
    driver: str = ""

    @property
    def early_arch(self) -> str | None:
        """The arch, if it is older than sm_80, the lowest that kernels of the language are traced for."""
        return self.arch if arch_number(self.arch) < _TRACED_FOR else None

    def __str__(self) -> str:
        release = f", driver {self.driver}" if self.driver else ""
        return f"{self.name} ({self.arch}, {self.multiprocessors} multiprocessors), CUDA {self.cuda}{release}"


def devices() -> list[Device]:
    """Return the CUDA devices of this machine; an empty list if there is no driver or no GPU.

    >>> all(device.arch.startswith("sm_") for device in devices())
    True
    """
    try:
        driver = cuda.load()
        return [_device(driver, ordinal) for ordinal in range(driver.number("cuDeviceGetCount"))]
    except GpuError:
        return []


def available() -> bool:
    """Return whether a kernel can be launched on a CUDA device of this machine.

    >>> available() == bool(devices())
    True
    """
    return bool(devices())


def _device(driver: Driver, ordinal: int) -> Device:
    from ctypes import create_string_buffer

    handle = driver.number("cuDeviceGet", ordinal)
    name = create_string_buffer(256)
    driver("cuDeviceGetName", name, 256, handle)

    def attribute(number: int) -> int:
        return driver.number("cuDeviceGetAttribute", number, handle)

    return Device(
        ordinal,
        name.value.decode(errors="replace"),
        f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}",
        attribute(_MULTIPROCESSORS),
        attribute(_MOST_SHARED),
        ".".join(map(str, driver.version)),
        _driver_release(),
    )


def _driver_release() -> str:
    """The release of the kernel module, where Linux tells it."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    release = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return release.group(1) if release else ""


class Context:
    """A device's primary context."""

    def __init__(self, ordinal: int) -> None:
        self.driver = cuda.load()
        count = self.driver.number("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise GpuError(f"there is no CUDA device {ordinal}; {count} are visible")
        self.ordinal = ordinal
        self.device = _device(self.driver, ordinal)
        self.handle = self.driver.handle(
            "cuDevicePrimaryCtxRetain", self.driver.number("cuDeviceGet", ordinal)
        )
        #: With one device no other context is expected to be current: a launch need not look.
        self.alone = count == 1
        #: The kernel that was launched last, for errors that come to light later: its number among the names.
        self._last, self._names = c_uint64(), [""]
        self.last_place = addressof(self._last)

    def numbered(self, name: str) -> int:
        """The number of a kernel's name, which machine code puts at `last_place`."""
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    @property
    def last(self) -> str:
        """The kernel that was launched last."""
        return self._names[self._last.value]

    @last.setter
    def last(self, name: str) -> None:
        self._last.value = self.numbered(name)

    def is_current(self) -> bool:
        """Whether it is the context of this thread."""
        return self.driver.handle("cuCtxGetCurrent") == self.handle

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it this thread's context for a while; for good, if the thread had none."""
        there = self.driver.handle("cuCtxGetCurrent")
        if there == self.handle:
            yield
            return
        if not there:
            self.driver("cuCtxSetCurrent", self.handle)
            yield
            return
        self.driver("cuCtxPushCurrent_v2", self.handle)
        try:
            yield
        finally:
            self.driver.handle("cuCtxPopCurrent_v2")


@cache
def context(ordinal: int) -> Context:
    """The context of a device."""
    return Context(ordinal)


def synchronize(ordinal: int = 0) -> None:
    """Wait until a device has finished all work; raise a GpuError if a kernel failed.

    A launch returns before the kernel has run, so an illegal address is reported here.
    """
    there = context(ordinal)
    with there.current():
        there.driver("cuCtxSynchronize", kernel=there.last)
