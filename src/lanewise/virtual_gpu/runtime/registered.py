"""What nvcc registers of a program before main(): fatbins, kernels and variables, by their host addresses."""

import ctypes
from dataclasses import dataclass, field

from lanewise.virtual_gpu.driver import Driver, DriverError, Result


@dataclass
class Fatbin:
    """A fatbin of the program, whose PTX is loaded when something of it is first used."""

    place: int
    #: The address of this is the handle that the program keeps.
    cell: ctypes.c_uint64 = field(default_factory=ctypes.c_uint64)
    module: int | None = None
    #: Managed variables: where the host keeps their address, and their names.
    managed: list[tuple[int, str]] = field(default_factory=list)


class Registered:
    """The fatbins of a program, and its kernels and variables."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._fatbins: dict[int, Fatbin] = {}
        self._names: dict[int, tuple[Fatbin, str]] = {}
        self._variables: dict[int, tuple[Fatbin, str]] = {}
        self._functions: dict[int, int] = {}

    def add_fatbin(self, place: int) -> int:
        """Keep a fatbin; return its handle."""
        fatbin = Fatbin(place)
        handle = ctypes.addressof(fatbin.cell)
        self._fatbins[handle] = fatbin
        return handle

    def add_function(self, fatbin: int, host: int, name: str) -> None:
        """Keep a kernel under the address of its host function."""
        self._names[host] = (self._fatbins[fatbin], name)

    def add_variable(self, fatbin: int, host: int, name: str) -> None:
        """Keep a variable under the address of its host variable."""
        self._variables[host] = (self._fatbins[fatbin], name)

    def add_managed(self, fatbin: int, host: int, name: str) -> None:
        """Keep a managed variable: the host finds its address in memory."""
        own = self._fatbins[fatbin]
        own.managed.append((host, name))
        self._variables[host] = (own, name)

    def load(self, fatbin: Fatbin) -> int:
        """Return the handle of a fatbin's module, and tell the host where managed variables are."""
        if fatbin.module is None:
            fatbin.module = self.driver.cuModuleLoadData(fatbin.place)
            for host, name in fatbin.managed:
                address, _ = self.driver.cuModuleGetGlobal_v2(fatbin.module, name)
                ctypes.c_uint64.from_address(host).value = address
        return fatbin.module

    def load_handle(self, handle: int) -> None:
        """Load a fatbin by its handle."""
        self.load(self._fatbins[handle])

    def function(self, host: int) -> int:
        """Return the handle of a kernel by its host address; a handle is returned as it is."""
        if not host:  # nvcc's code asked for a kernel that has no PTX; that was told when it asked
            raise DriverError(Result.NO_BINARY_FOR_GPU, "")
        known = self._functions.get(host)
        if known is None:
            if host not in self._names:
                if self.driver.is_function(host):
                    return host
                raise DriverError(Result.INVALID_DEVICE_FUNCTION, f"{host:#x} is no kernel of the program")
            fatbin, name = self._names[host]
            known = self._functions[host] = self.driver.cuModuleGetFunction(self.load(fatbin), name)
        return known

    def variable(self, host: int) -> tuple[int, int]:
        """Return the address and the bytes of a variable by its host address."""
        if host not in self._variables:
            raise DriverError(Result.INVALID_SYMBOL, f"{host:#x} is no variable of the device")
        fatbin, name = self._variables[host]
        return self.driver.cuModuleGetGlobal_v2(self.load(fatbin), name)
