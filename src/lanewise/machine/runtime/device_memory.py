"""The memory that a launch may access: the module's variables, the heap and the caller's arrays.

Each has a device address; arrays are used in place. Compiled code checks each address
(`warp_ops/addresses.py`).
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import Bytes, address, zeroed_bytes
from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.launch_info import LaunchInfo, function_addresses
from lanewise.ptx import Immediate, Initialiser, Module, SymbolAddress, Value, Variable

#: Device addresses between two arrays that belong to neither.
GAP = 1 << 30


@dataclass(frozen=True)
class Allocation:
    """A range of device memory: its address and size, the host's address, and whether it is writable."""

    name: str
    first: int
    size: int
    host: int
    writable: bool

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of the module, and not an argument."""
        return self.first < abi.ARGUMENT_BASE

    @property
    def title(self) -> str:
        """The name in messages, such as "argument a" or "the heap"."""
        if self.name.startswith("the "):
            return self.name
        return f"variable {self.name}" if self.is_variable else f"argument {self.name}"

    def __contains__(self, address: int) -> bool:
        return self.first <= address < self.first + self.size

    def distance(self, address: int) -> int:
        """Return the bytes between the allocation and an address; 0 inside."""
        if address < self.first:
            return self.first - address
        return max(0, address - (self.first + self.size) + 1)


# variables ------------------------------------------------------------------------------------------------

_VARIABLES: dict[int, dict[str, Bytes]] = {}


def variables(module: Module, info: LaunchInfo) -> list[Allocation]:
    """Return the module's variables as allocations; global ones keep their values between launches."""
    kept = _VARIABLES.get(id(module))
    if kept is None:
        kept = _VARIABLES[id(module)] = {}
        weakref.finalize(module, _VARIABLES.pop, id(module), None)
    found = []
    for name, space, start, size in info.variables:
        if space == "shared":
            continue
        if name not in kept:
            kept[name] = zeroed_bytes(max(size, 1))
            if module.variables[name].initialiser is not None:
                addresses = {each: start for each, _, start, _ in info.variables}
                kept[name][:size] = image(module.variables[name], function_addresses(module) | addresses)
        found.append(Allocation(name, start, size, address(kept[name]), space == "global"))
    return found


def image(variable: Variable, symbols: dict[str, int]) -> Bytes:
    """Return the initial bytes of a variable."""
    memory = np.zeros(variable.size, np.uint8)
    if variable.initialiser is not None:
        dims = [dim or _length(variable.initialiser) for dim in variable.dims]
        _fill(memory, 0, variable.initialiser, variable, dims, symbols)
    return memory


def _length(value: Value) -> int:
    """Return how many elements an initial value has."""
    return len(value.items) if isinstance(value, Initialiser) else 1


def _fill(
    memory: Bytes, offset: int, value: Value, variable: Variable, dims: list[int], symbols: dict[str, int]
) -> None:
    """Write an initial value into memory at an offset."""
    size = variable.element_size // max(variable.vector, 1)
    if isinstance(value, Initialiser):
        step = size * variable.vector * int(np.prod(dims[1:], dtype=np.int64)) if dims else size
        for number, item in enumerate(value.items):
            _fill(memory, offset + number * step, item, variable, dims[1:], symbols)
        return
    if isinstance(value, SymbolAddress):
        start = symbols.get(value.name)
        if start is None:
            raise LanewiseError(
                f"line {variable.line}: {variable.name} is the address of {value.name}, an unknown name"
            )
        bits = start + value.offset
        if value.mask is not None:
            low = (value.mask & -value.mask).bit_length() - 1
            bits = (bits & value.mask) >> low
    elif isinstance(value, Immediate):
        bits = _bits(value, variable)
    else:
        raise LanewiseError(f"line {variable.line}: the initial value of {variable.name} is not supported")
    if offset + size > memory.size:
        raise LanewiseError(f"line {variable.line}: {variable.name} has more initial values than elements")
    memory[offset : offset + size] = np.frombuffer(
        (bits % (1 << 8 * size)).to_bytes(size, "little"), np.uint8
    )


def _bits(value: Immediate, variable: Variable) -> int:
    """Return the bits of a constant as an element of a variable."""
    if value.is_integer and not variable.type.startswith("f"):
        return value.bits
    if variable.type == "f32":
        return int(np.float32(value.value).view(np.uint32)) if value.type != "f32" else value.bits
    if variable.type == "f64":
        return int(np.float64(value.value).view(np.uint64))
    if variable.type == "f16" and not value.is_integer:
        return int(np.float16(value.value).view(np.uint16))
    return value.bits


# the heap -------------------------------------------------------------------------------------------------

#: Bytes of the heap of a module's kernels: the default limit of a GPU.
HEAP_BYTES = 8 << 20
_HEAPS: dict[int, Heap] = {}


class Heap:
    """The heap of a module for `malloc` and `free`; it lasts from launch to launch."""

    def __init__(self) -> None:
        self.memory = zeroed_bytes(HEAP_BYTES)
        self.lock = threading.Lock()
        #: Address and bytes of the allocated blocks of memory.
        self.blocks: dict[int, int] = {}

    @property
    def allocation(self) -> Allocation:
        """The whole heap as one allocation."""
        return Allocation("the heap", abi.HEAP_BASE, HEAP_BYTES, address(self.memory), True)

    def allocate(self, size: int) -> int:
        """Return the address of new memory of some bytes, or 0 if there is not enough."""
        size = aligned(max(size, 1), 16)
        with self.lock:
            start = abi.HEAP_BASE
            for first, bytes in sorted(self.blocks.items()):
                if first - start >= size:
                    break
                start = first + bytes
            if start + size > abi.HEAP_BASE + HEAP_BYTES:
                return 0
            self.blocks[start] = size
            return start

    def free(self, address: int) -> bool:
        """Free memory by its address; return whether `allocate` had returned this address."""
        with self.lock:
            return address == 0 or self.blocks.pop(address, None) is not None


def heap(module: Module) -> Heap:
    """Return the heap of a module's kernels."""
    kept = _HEAPS.get(id(module))
    if kept is None:
        kept = _HEAPS[id(module)] = Heap()
        weakref.finalize(module, _HEAPS.pop, id(module), None)
    return kept


# arrays ---------------------------------------------------------------------------------------------------


class Arrays:
    """The caller's arrays, which get device addresses; overlapping arrays keep their distance."""

    def __init__(self) -> None:
        self._arrays: list[tuple[str, npt.NDArray[Any]]] = []

    def add(self, name: str, array: npt.NDArray[Any]) -> None:
        """Add an array of the launch."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise LanewiseError(
                f"argument {name}: an array must be in one piece; np.ascontiguousarray makes a copy that is"
            )
        self._arrays.append((name, array))

    def allocate(self) -> tuple[list[Allocation], dict[int, int]]:
        """Return the allocations, and the device address of each array by its `id`."""
        pieces: list[list[Any]] = []
        for name, array in sorted(self._arrays, key=lambda named: address(named[1])):
            start, end = address(array), address(array) + array.nbytes
            if pieces and start < pieces[-1][2] and pieces[-1][3] == array.flags.writeable:
                pieces[-1][2] = max(pieces[-1][2], end)
                pieces[-1][0] = pieces[-1][0] if name in pieces[-1][0] else f"{pieces[-1][0]}, {name}"
            else:
                pieces.append([name, start, end, array.flags.writeable])
        placed: list[Allocation] = []
        addresses: dict[int, int] = {}
        # In the order of the arguments, so that device addresses do not depend on host addresses.
        first = abi.ARGUMENT_BASE
        bases: dict[int, int] = {}
        for _, array in self._arrays:
            number = next(
                n
                for n, piece in enumerate(pieces)
                if piece[1] <= address(array)
                and address(array) + array.nbytes <= piece[2]
                and piece[3] == array.flags.writeable
            )
            name, start, end, writable = pieces[number]
            if number not in bases:
                bases[number] = first
                placed.append(Allocation(name, first, end - start, start, writable))
                first = aligned(first + (end - start) + GAP, 1 << 21)
            addresses[id(array)] = bases[number] + address(array) - start
        return placed, addresses


def table(allocations: list[Allocation]) -> npt.NDArray[np.int64]:
    """Return the allocations as the table that compiled code reads."""
    rows = [(each.first, each.size, each.host, int(each.writable)) for each in allocations]
    return np.array(rows or [(0, 0, 0, 0)], np.int64)
