"""Arguments of a launch on the machine: NumPy arrays at device addresses, encoded as parameter bytes.

`lanewise.ptx.arguments` decides which value fits which parameter, the same for every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import Bytes, address, as_bytes, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.runtime.address_book import (
    ADDRESSES,
    ALIGNMENT,
    AddressBook,
    Array,
    alignment_by_hand,
    bounds,
    owner_of,
)
from lanewise.machine.runtime.device_memory import Allocation, View
from lanewise.ptx import Function
from lanewise.ptx.arguments import (
    ArrayArgument,
    HandleArgument,
    ParameterTypes,
    encode,
    require_alignment,
    require_plain_array,
    require_pointer,
    titled,
)

if TYPE_CHECKING:
    from lanewise.machine.runtime.texture_table import TextureTable
    from lanewise.ptx import Variable
    from lanewise.ptx.tensor_maps import TensorMap

#: Device addresses between two owners that belong to neither.
GAP = 1 << 30
#: The alignment that the host's own instructions need: an atomic operation of 16 bytes is the widest.
HOST_ALIGNMENT = 16


class Memory:
    """Host memory that becomes one allocation: its bounds, and the views that were passed of it.

    `shift` is what a device address has more than the host's, if the memory has a device address already.
    """

    def __init__(
        self, start: int, stop: int, number: int, shift: int | None, views: list[tuple[int, int, View]]
    ) -> None:
        self.start, self.stop, self.shift = start, stop, shift
        #: The place of its first array among the arguments; behind them all if there is none.
        self.number = number
        #: Views, each with its place among the arguments and the host address of its first byte.
        self.views = views
        #: The largest alignment that the host has given to one of the views by hand.
        self.alignment = 1

    def join(self, other: Memory) -> None:
        """Take in memory of the same owner, or memory that overlaps."""
        self.start, self.stop = min(self.start, other.start), max(self.stop, other.stop)
        self.number = min(self.number, other.number)
        self.shift = other.shift if self.shift is None else self.shift
        self.views = sorted(self.views + other.views)
        self.alignment = max(self.alignment, other.alignment)


class StagedMemory:
    """Memory at a host address that atomic operations cannot have: a launch works in a copy of it."""

    def __init__(self, own: Bytes, copy: Bytes) -> None:
        self.own, self.copy = own, copy

    def write_back(self) -> None:
        """Write to the caller's memory what a launch wrote into the copy."""
        self.own[:] = self.copy


class HostArrays:
    """The arrays of a launch and of an address book, and the device memory that they get.

    A GPU has memory by the allocation: cudaMalloc aligns its first byte, and a view such as `a[1:]` is an
    address inside. So here: the owner of a view's memory gets an aligned device address, and its views lie
    where they lie in it. Two views of one owner have their distance, whether they are writable or not. A view
    of bytes that the host has aligned by hand stays aligned.
    """

    def __init__(self, book: AddressBook = ADDRESSES) -> None:
        self.book = book
        self._arrays: list[tuple[str, Array]] = []
        #: Copies of writable memory that is not aligned on the host.
        self.staged: list[StagedMemory] = []
        self._kept: list[Array] = []

    def add(self, name: str, array: Array, *, may_skip: bool = False) -> None:
        """Add an array of the launch; `may_skip` if it may skip memory between its elements."""
        if not (may_skip or array.flags.c_contiguous or array.flags.f_contiguous):
            raise LanewiseError(
                f"argument {name}: an array must be contiguous; np.ascontiguousarray makes a copy that is"
            )
        self._arrays.append((name, array))

    def allocate(self) -> tuple[list[Allocation], dict[int, int]]:
        """Return the allocations, and the device address of each array by its `id`."""
        placed: list[Allocation] = []
        first = abi.ARGUMENT_BASE
        shifts: list[tuple[Memory, int]] = []
        for memory in self._memories():
            size = memory.stop - memory.start
            if memory.shift is None:
                first += memory.start % memory.alignment
                memory.shift = first - memory.start
                first = aligned(first + size + GAP, ALIGNMENT)
            views = tuple(view._replace(offset=start - memory.start) for _, start, view in memory.views)
            writable = any(view.writable for view in views)
            host = self._host(memory.start, size, writable)
            names = ", ".join(dict.fromkeys(view.name for view in views))
            placed.append(Allocation(names, memory.start + memory.shift, size, host, writable, views))
            shifts.append((memory, memory.shift))
        addresses = {
            id(array): address(array) + next(shift for memory, shift in shifts if _within(array, memory))
            for _, array in self._arrays
        }
        return placed, addresses

    def _memories(self) -> list[Memory]:
        """Return the memory of all arrays, in the order of the arguments, then what is in the address book.

        Device addresses then do not depend on host addresses.
        """
        by_owner: dict[int, Memory] = {}
        for owner, addressed in self.book.living() if len(self.book) else ():
            self._kept.append(owner)
            last = len(self._arrays)
            views = [(last, addressed.start + view.offset, view) for view in addressed.views]
            shift = addressed.first - addressed.start
            memory = Memory(addressed.start, addressed.stop, last, shift, views)
            by_owner[id(owner)] = memory
        for number, (name, array) in enumerate(self._arrays):
            owner = owner_of(array)
            start, stop = bounds(owner)
            first, end = bounds(array)  # as_strided can make a view that is larger than its owner
            view = View(name, 0, end - first, bool(array.flags.writeable))
            views = [(number, first, view)]
            memory = Memory(min(start, first), max(stop, end), number, None, views)
            memory.alignment = alignment_by_hand(array, owner)
            known = by_owner.get(id(owner))
            if known is None:
                by_owner[id(owner)] = memory
            else:
                memory.join(known)
                by_owner[id(owner)] = memory
        joined: list[Memory] = []
        for memory in sorted(by_owner.values(), key=lambda memory: memory.start):
            if joined and memory.start < joined[-1].stop:
                joined[-1].join(memory)
            else:
                joined.append(memory)
        return sorted(joined, key=lambda memory: memory.number)

    def caller_memory(self, allocation: Allocation) -> Bytes:
        """Return the bytes of an allocation where the caller has them, not in a copy of the launch."""
        own = (staged.own for staged in self.staged if address(staged.copy) == allocation.host)
        return next(own, as_bytes(allocation.host, allocation.size))

    def _host(self, start: int, size: int, writable: bool) -> int:
        """Return the host address that a launch works at: the memory's own, or that of an aligned copy."""
        if start % HOST_ALIGNMENT == 0 or size == 0:
            return start
        own = as_bytes(start, size)
        copy = zeroed_bytes(size)
        copy[:] = own
        self._kept.append(copy)
        if writable:
            self.staged.append(StagedMemory(own, copy))
        return address(copy)


def _within(array: Array, memory: Memory) -> bool:
    """Return whether an array lies in memory."""
    start, stop = bounds(array)
    return memory.start <= start and stop <= memory.stop


class PassedTensorMap:
    """A tensor map as an argument: by value, or by the address of a copy that a kernel can only read."""

    def __init__(self, title: str, variable: Variable, tensor_map: TensorMap, arrays: HostArrays) -> None:
        from lanewise.isa.tensor_map_fields import MAP_BYTES  # few launches have one
        from lanewise.ptx.tensor_maps import require_tensor_map

        self.title, self.tensor_map = title, tensor_map
        if not isinstance(tensor_map.array, np.ndarray):
            raise LanewiseError(
                f"argument {title} is a tensor map of an array on a GPU: the machine takes NumPy arrays"
            )
        require_plain_array(title, tensor_map.array)
        arrays.add(title, tensor_map.array, may_skip=True)
        self._memory: Bytes | None = None
        self._read_only: Bytes | None = None
        if not require_tensor_map(title, variable):
            self._memory = zeroed_bytes(MAP_BYTES)
            # Through a buffer it is an owner of its own, whose device address is aligned as a map's must be.
            self._read_only = np.frombuffer(self._memory.data.toreadonly(), np.uint8)
            arrays.add(f"the tensor map of argument {title}", self._read_only)

    def bytes(self, addresses: dict[int, int]) -> bytes:
        """Return the bytes of the parameter; `addresses` has the device address of each array by its `id`."""
        try:
            raw = self.tensor_map.encode(addresses[id(self.tensor_map.array)])
        except LanewiseError as error:
            raise LanewiseError(f"argument {self.title}: {error}") from None
        if self._memory is None or self._read_only is None:
            return raw
        self._memory[:] = np.frombuffer(raw, np.uint8)
        return addresses[id(self._read_only)].to_bytes(8, "little")


class Arguments:
    """The arguments of a launch: the arrays among them, and the parameter bytes once addresses are known."""

    def __init__(
        self,
        function: Function,
        offsets: tuple[int, ...],
        size: int,
        values: tuple[object, ...],
        book: AddressBook = ADDRESSES,
        source: str = "",
    ) -> None:
        self.function, self.offsets, self.size = function, offsets, size
        self.arrays = HostArrays(book)
        self.textures: TextureTable | None = None
        self.values: list[Any] = []
        types = ParameterTypes(function, source)
        for title, variable, value in titled(function, values):
            if isinstance(value, ArrayArgument):
                self.values.append(self._made_of_array(title, variable, value))
            elif _is_array(value) and not variable.dims:
                if not isinstance(value, np.ndarray):
                    raise LanewiseError(f"argument {title} lies on a GPU: the machine takes NumPy arrays")
                require_pointer(title, variable)
                require_plain_array(title, value)
                self.arrays.add(title, value)
                self.values.append(value)
            else:
                self.values.append(encode(title, value, variable, types))

    def _made_of_array(self, title: str, variable: Variable, value: ArrayArgument) -> bytes | PassedTensorMap:
        """Add a tensor map; or a texture or surface, of which return the handle."""
        if not isinstance(value, HandleArgument):
            from lanewise.ptx.tensor_maps import TensorMap  # few launches have one

            assert isinstance(value, TensorMap)
            return PassedTensorMap(title, variable, value, self.arrays)
        from lanewise.machine.runtime.texture_table import TextureTable  # few launches have one

        self.textures = self.textures or TextureTable()
        return self.textures.add(title, variable, value)

    def bytes(self, addresses: dict[int, int]) -> Bytes:
        """Return the parameter bytes; `addresses` has the device address of each array by its `id`."""
        memory = zeroed_bytes(max(self.size, 8))
        for offset, (title, variable, value) in zip(
            self.offsets, titled(self.function, self.values), strict=True
        ):
            raw = value
            if isinstance(value, np.ndarray):
                require_alignment(title, variable, addresses[id(value)])
                raw = addresses[id(value)].to_bytes(8, "little")
            elif not isinstance(value, bytes):
                raw = value.bytes(addresses)
            memory[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        return memory


def _is_array(value: object) -> bool:
    """Return whether a value is an array, on the host or on a GPU."""
    try:
        on_gpu = hasattr(value, "__cuda_array_interface__")
    except Exception:  # what a library raises, of an array all the same
        on_gpu = True
    return (isinstance(value, np.ndarray) and value.ndim > 0) or on_gpu
