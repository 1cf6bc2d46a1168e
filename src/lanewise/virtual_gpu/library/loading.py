"""The library with the driver's name, loaded into this process before a program asks for it."""

import ctypes

from lanewise.virtual_gpu.driver.driver import Driver, entry_points
from lanewise.virtual_gpu.driver.results import Result
from lanewise.virtual_gpu.library.exported_names import exported_name, exported_names
from lanewise.virtual_gpu.library.stand_in import Arguments, StandIn

SONAME = "libcuda.so.1"
#: What cuGetProcAddress_v2 writes to its last argument: that it succeeded, that it did not find the symbol.
_FOUND, _MISSING = 0, 1


class DriverLibrary(StandIn):
    """The library of this process, connected to a driver until it is closed."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(SONAME, exported_names(), self._driver_call, is_global=True)
        self.driver = driver
        driver.entry_point = self.entry_point

    def _driver_call(self, name: str, arguments: Arguments) -> int:
        declared = entry_points().get(name)
        raw = arguments(len(declared.parameters) if declared is not None else 0)
        if name.startswith("cuGetProcAddress"):
            return self._address_asked(raw)
        return int(self.driver.call(name, raw))

    def _address_asked(self, raw: list[int]) -> int:
        """Write the address of an entry point that a program asks for by name."""
        symbol, target, version, _, *status = raw
        asked = ctypes.string_at(symbol).decode(errors="replace")
        place = self.entry_point(asked, ctypes.c_int32(version).value)
        ctypes.c_uint64.from_address(target).value = place
        if status and status[0]:
            ctypes.c_int32.from_address(status[0]).value = _FOUND if place else _MISSING
        return int(Result.SUCCESS if place else Result.NOT_FOUND)

    def entry_point(self, symbol: str, version: int) -> int:
        """Return the address of an entry point by its name and version; 0 if there is none."""
        name = exported_name(symbol, version)
        return 0 if name is None else self.address(name)
