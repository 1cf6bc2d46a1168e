"""Entry points of the driver's linker: PTX goes in and comes out, and modules are loaded from it."""

from __future__ import annotations

import ctypes
from pathlib import Path

from lanewise.virtual_gpu.driver.linked_ptx import linked
from lanewise.virtual_gpu.driver.modules import ptx_in
from lanewise.virtual_gpu.driver.results import DriverError, Result
from lanewise.virtual_gpu.driver.state import DriverState


class Linking:
    """The inputs of a link so far, and its result once it is complete."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.result: ctypes.Array[ctypes.c_char] | None = None


class LinkCalls(DriverState):
    """A linker of PTX texts."""

    def cuLinkCreate_v2(self, count: int, options: int, values: int) -> int:
        """Return a new link; options are for a compiler that is not used."""
        return self.handle(Linking())

    def cuLinkAddData_v2(self, state: int, type: int, data: int, bytes: int, *options: object) -> None:
        """Add an input that lies in memory: PTX, or a fatbin with PTX."""
        self.known(state, Linking).inputs.append(ptx_in(ctypes.string_at(data, bytes)))

    def cuLinkAddFile_v2(self, state: int, type: int, path: str, *options: object) -> None:
        """Add an input in a file: PTX, or a fatbin with PTX."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DriverError(Result.FILE_NOT_FOUND, f"{path}: {error.strerror}") from None
        self.known(state, Linking).inputs.append(ptx_in(data))

    def cuLinkComplete(self, state: int) -> tuple[int, int]:
        """Return address and size of the result, which is PTX; it lives as long as the link."""
        linking = self.known(state, Linking)
        if not linking.inputs:
            raise DriverError(Result.INVALID_VALUE, "a link without inputs")
        raw = linked(linking.inputs).encode() + b"\0"
        linking.result = ctypes.create_string_buffer(raw, len(raw))
        return ctypes.addressof(linking.result), len(raw)

    def cuLinkDestroy(self, state: int) -> None:
        """Forget a link and its result."""
        self.forget(state, Linking)
