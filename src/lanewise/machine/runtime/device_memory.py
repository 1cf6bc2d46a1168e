"""What a launch may touch: the module's variables and the caller's arrays, each at a device address.

Arrays are used in place. Which address an access may have is checked by the compiled code (`access.py`).
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
    """A piece of memory: its device address, bytes, the host's address, and who may write."""

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
        """As messages call it; what is neither an argument nor a variable has a name of its own."""
        if self.name.startswith("the "):
            return self.name
        return f"variable {self.name}" if self.is_variable else f"argument {self.name}"

    def __contains__(self, place: int) -> bool:
        return self.first <= place < self.first + self.size

    def distance(self, place: int) -> int:
        """Bytes between it and an address; 0 inside."""
        if place < self.first:
            return self.first - place
        return max(0, place - (self.first + self.size) + 1)


# variables ------------------------------------------------------------------------------------------------

_VARIABLES: dict[int, dict[str, Bytes]] = {}


def variables(module: Module, footprint: LaunchInfo) -> list[Allocation]:
    """The module's variables in memory: those of global memory keep their values between launches."""
    kept = _VARIABLES.get(id(module))
    if kept is None:
        kept = _VARIABLES[id(module)] = {}
        weakref.finalize(module, _VARIABLES.pop, id(module), None)
    found = []
    for name, space, place, size in footprint.variables:
        if space == "shared":
            continue
        if name not in kept:
            kept[name] = zeroed_bytes(max(size, 1))
            if module.variables[name].initialiser is not None:
                addresses = {each: place for each, _, place, _ in footprint.variables}
                kept[name][:size] = image(module.variables[name], function_addresses(module) | addresses)
        found.append(Allocation(name, place, size, address(kept[name]), space == "global"))
    return found


def image(variable: Variable, symbols: dict[str, int]) -> Bytes:
    """The bytes that a variable begins with."""
    memory = np.zeros(variable.size, np.uint8)
    if variable.initialiser is not None:
        dims = [dim or _length(variable.initialiser) for dim in variable.dims]
        _fill(memory, 0, variable.initialiser, variable, dims, symbols)
    return memory


def _length(value: Value) -> int:
    return len(value.items) if isinstance(value, Initialiser) else 1


def _fill(
    memory: Bytes, place: int, value: Value, variable: Variable, dims: list[int], symbols: dict[str, int]
) -> None:
    size = variable.element_size // max(variable.vector, 1)
    if isinstance(value, Initialiser):
        step = size * variable.vector * int(np.prod(dims[1:], dtype=np.int64)) if dims else size
        for number, item in enumerate(value.items):
            _fill(memory, place + number * step, item, variable, dims[1:], symbols)
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
    if place + size > memory.size:
        raise LanewiseError(f"line {variable.line}: {variable.name} has more initial values than elements")
    memory[place : place + size] = np.frombuffer((bits % (1 << 8 * size)).to_bytes(size, "little"), np.uint8)


def _bits(value: Immediate, variable: Variable) -> int:
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

#: What malloc has to give to the kernels of a module, as on a GPU that nobody told otherwise.
HEAP_BYTES = 8 << 20
_HEAPS: dict[int, Heap] = {}


class Heap:
    """What `malloc` gives and `free` takes: it lasts from launch to launch, as the module's variables do."""

    def __init__(self) -> None:
        self.memory = zeroed_bytes(HEAP_BYTES)
        self.lock = threading.Lock()
        #: The blocks that were given: address and bytes.
        self.blocks: dict[int, int] = {}

    @property
    def allocation(self) -> Allocation:
        """All of it."""
        return Allocation("the heap", abi.HEAP_BASE, HEAP_BYTES, address(self.memory), True)

    def take(self, size: int) -> int:
        """The address of so many bytes, or 0 if there is no room."""
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

    def give_back(self, place: int) -> bool:
        """Whether an address was one that `take` gave, and is free now."""
        with self.lock:
            return place == 0 or self.blocks.pop(place, None) is not None


def heap(module: Module) -> Heap:
    """The heap of a module's kernels."""
    kept = _HEAPS.get(id(module))
    if kept is None:
        kept = _HEAPS[id(module)] = Heap()
        weakref.finalize(module, _HEAPS.pop, id(module), None)
    return kept


# arrays ---------------------------------------------------------------------------------------------------


class Arrays:
    """The caller's arrays: each at a device address; those that overlap keep their distance."""

    def __init__(self) -> None:
        self._given: list[tuple[str, npt.NDArray[Any]]] = []

    def add(self, name: str, array: npt.NDArray[Any]) -> None:
        """One array of the launch."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise LanewiseError(
                f"argument {name}: an array must be in one piece; np.ascontiguousarray makes a copy that is"
            )
        if array.dtype.hasobject:
            raise LanewiseError(f"argument {name}: an array of Python objects cannot be passed")
        self._given.append((name, array))

    def place(self) -> tuple[list[Allocation], dict[int, int]]:
        """The allocations, and the device address of each array by its `id`."""
        pieces: list[list[Any]] = []
        for name, array in sorted(self._given, key=lambda each: address(each[1])):
            start, end = address(array), address(array) + array.nbytes
            if pieces and start < pieces[-1][2] and pieces[-1][3] == array.flags.writeable:
                pieces[-1][2] = max(pieces[-1][2], end)
                pieces[-1][0] = pieces[-1][0] if name in pieces[-1][0] else f"{pieces[-1][0]}, {name}"
            else:
                pieces.append([name, start, end, array.flags.writeable])
        placed: list[Allocation] = []
        where: dict[int, int] = {}
        # In the order of the arguments, so that addresses do not depend on where the host put things.
        first = abi.ARGUMENT_BASE
        bases: dict[int, int] = {}
        for _, array in self._given:
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
            where[id(array)] = bases[number] + address(array) - start
        return placed, where


def table(allocations: list[Allocation]) -> npt.NDArray[np.int64]:
    """The allocations as the compiled code reads them."""
    rows = [(each.first, each.size, each.host, int(each.writable)) for each in allocations]
    return np.array(rows or [(0, 0, 0, 0)], np.int64)
