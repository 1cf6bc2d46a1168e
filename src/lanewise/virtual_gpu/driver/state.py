"""What all entry points of a virtual GPU share: the device, its memory, and handles of what programs made."""

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from lanewise.launch import Configured
from lanewise.virtual_gpu.devices import Device
from lanewise.virtual_gpu.driver.host_mistakes import HostMistakes
from lanewise.virtual_gpu.driver.memory import Memory
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.unfinished_work import UnfinishedWork
from lanewise.virtual_gpu.order.stream_races import StreamRaces

Known = TypeVar("Known")

#: The version of the driver that programs are told: CUDA 13.0.
DRIVER_VERSION = 13000
#: Handles begin here and have this distance, so that they look like the pointers that a driver gives.
_FIRST_HANDLE, _HANDLE_STEP = 0x10000, 16

#: Makes a launch: the kernel with its grid and block, its arguments, and the handle of the stream.
Launcher = Callable[[Configured, tuple[Any, ...], int], None]


class PerThread:
    """Attributes that each thread has of its own, also threads of a program in C.

    `threading.local` does not serve: Python forgets a thread of C when its call returns.
    """

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[threading.get_ident(), name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._values[threading.get_ident(), name] = value


def plain_launch(configured: Configured, arguments: tuple[object, ...], stream: int) -> None:
    """Launch a kernel as it is; watchers of launches see it."""
    configured(*arguments, unchecked=True)


class DriverState:
    """The state of a driver: its device, memory, handles, and the current contexts of each thread."""

    def __init__(self, device: Device, launcher: Launcher = plain_launch) -> None:
        self.device, self.launcher = device, launcher
        self.memory = Memory(device.memory_bytes)
        self._numbers = itertools.count(_FIRST_HANDLE, _HANDLE_STEP)
        self._known: dict[int, object] = {}
        #: What handles were of that are none any more: numbers are given once.
        self._forgotten: dict[int, type[object]] = {}
        self._texts: dict[str, ctypes.Array[ctypes.c_char]] = {}
        self.thread = PerThread()
        #: Returns the address of an entry point by its name and version, once its library is loaded.
        self.entry_point: Callable[[str, int], int] = lambda symbol, version: 0
        #: Follows the order of operations, if races between streams are looked for.
        self.races: StreamRaces | None = None
        #: What host code did wrong.
        self.mistakes = HostMistakes()
        self.unfinished = UnfinishedWork(self.memory, self.mistakes)

    def handle(self, value: object) -> int:
        """Return a new handle of a thing."""
        number = next(self._numbers)
        self._known[number] = value
        return number

    def known(self, handle: int, kind: type[Known]) -> Known:
        """Return the thing of a handle; an error if the handle is of another kind, or of nothing."""
        value = self._known.get(handle)
        if not isinstance(value, kind):
            gone = " any more: it was destroyed" if self._forgotten.get(handle) is kind else ""
            raise DriverError(Result.INVALID_HANDLE, f"{handle:#x} is no handle of a {kind.__name__}{gone}")
        return value

    def forget(self, handle: int, kind: type[object]) -> Any:
        """Return the thing of a handle, which is no handle from now on."""
        value = self.known(handle, kind)
        del self._known[handle]
        self._forgotten[handle] = kind
        return value

    def text_address(self, text: str) -> int:
        """Return the address of a text that ends in a zero byte and lives as long as the driver."""
        if text not in self._texts:
            self._texts[text] = ctypes.create_string_buffer(text.encode())
        return ctypes.addressof(self._texts[text])


def write_text(place: int, length: int, text: str) -> None:
    """Write a text with its zero byte to memory that has some bytes; what is too long is cut."""
    if length > 0:
        raw = text.encode()[: length - 1] + b"\0"
        ctypes.memmove(place, raw, len(raw))
