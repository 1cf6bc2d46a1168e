"""The memory that a launch may access, as allocations at device addresses; the module's variables.

`parameter_bytes.py` makes allocations of the caller's arrays, `heap.py` one of the heap. Compiled code checks
each address (`warp_ops/addresses.py`).
"""

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.jit.host_memory import Bytes, address, zeroed_bytes
from lanewise.machine.launch_info import LaunchInfo, function_addresses, variable_addresses
from lanewise.ptx import Immediate, Initialiser, Module, SymbolAddress, Value, Variable
from lanewise.records import record


class View(NamedTuple):
    """An array that was passed: which bytes of its allocation it has, and whether it is writable."""

    name: str
    offset: int
    size: int
    writable: bool

    @property
    def is_argument(self) -> bool:
        """Whether it is an argument of the launch, and not an array of lw.address."""
        return not self.name.startswith("the ")

    @property
    def end(self) -> int:
        """The offset of the byte after its last."""
        return self.offset + self.size


#: The heaps of modules whose kernels have called malloc, by the identity of the module: see `heap.py`.
HEAPS: dict[int, Any] = {}


@record(frozen=True)
class Allocation:
    """A range of device memory: its address and size, the host's address, and whether any of it is writable.

    `views` are the arrays that were passed of it; nothing of what only read-only views have may be written.
    """

    name: str
    first: int
    size: int
    host: int
    writable: bool
    views: tuple[View, ...] = ()

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of the module: nothing of it was passed. (Addresses do not tell.)"""
        return not self.views

    @property
    def title(self) -> str:
        """The name in messages, such as "argument a" or "the heap"."""
        if self.name.startswith("the "):
            return self.name
        return f"variable {self.name}" if self.is_variable else _titled([view.name for view in self.views])

    def title_at(self, address: int) -> str:
        """Return the name in messages of what lies at an address: an array that was passed, if one does."""
        offset = address - self.first
        names = [view.name for view in self.views if view.offset <= offset < view.end]
        if names:
            return _titled(names)
        if self.views and 0 <= offset < self.size:
            return self.whole_title
        return self.title

    @property
    def whole_title(self) -> str:
        """The name in messages of the whole allocation, where the arrays that were passed are parts of it."""
        if not self.views or any((view.offset, view.size) == (0, self.size) for view in self.views):
            return self.title
        if len({view.name for view in self.views}) == 1:
            return f"the array that {self.title} is a view of"
        return f"the array that {self.title} are views of"

    def writable_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of bytes that may be written, as offsets of first and end."""
        if not self.writable:
            return []
        writable = [view for view in self.views if view.writable]
        ranges = [(0, self.size)]
        for view in self.views:
            if view.writable or not view.size:
                continue
            kept = [(view.offset, view.end)]
            for other in writable:  # bytes that a writable view has as well may be written
                kept = _without(kept, other.offset, other.end)
            for start, stop in kept:
                ranges = _without(ranges, start, stop)
        return ranges

    def __contains__(self, address: int) -> bool:
        return self.first <= address < self.first + self.size

    def distance(self, address: int) -> int:
        """Return the bytes between the allocation and an address; 0 inside."""
        if address < self.first:
            return self.first - address
        return max(0, address - (self.first + self.size) + 1)


def _titled(names: Sequence[str]) -> str:
    """Return arrays as messages call them: arguments by their number and name, others by their title."""
    arguments = dict.fromkeys(name for name in names if not name.startswith("the "))
    others = dict.fromkeys(name for name in names if name.startswith("the "))
    return ", ".join(([f"argument {', '.join(arguments)}"] if arguments else []) + list(others))


def _without(ranges: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """Return what is left of ranges when one is taken away.

    >>> _without([(0, 8), (10, 12)], 4, 11)
    [(0, 4), (11, 12)]
    """
    left = [part for low, high in ranges for part in ((low, min(high, start)), (max(low, stop), high))]
    return [(low, high) for low, high in left if low < high]


# variables ------------------------------------------------------------------------------------------------


class ModuleMemory:
    """The memory of a module's variables, which keep their values between launches."""

    def __init__(self) -> None:
        self.variables: dict[str, Bytes] = {}
        #: What variables have the address of, by their names: it lives as long.
        self.pointed_to: dict[str, object] = {}
        #: Whether a kernel of the module was launched here.
        self.launched = False


_MEMORIES: dict[int, ModuleMemory] = {}
#: How the names begin that NVRTC gives to strings.
_NAMELESS = ("$", "__unnamed_")


def module_memory(module: Module) -> ModuleMemory:
    """Return the memory of a module's variables; it lasts as long as the module, and instances share it."""
    module = module.root or module
    kept = _MEMORIES.get(id(module))
    if kept is None:
        kept = _MEMORIES[id(module)] = ModuleMemory()
        weakref.finalize(module, _MEMORIES.pop, id(module), None)
    return kept


def variable_bytes(module: Module, name: str, symbols: dict[str, int] | None = None) -> Bytes:
    """Return the bytes of a variable in global or constant memory; they have its initial value at first.

    `symbols` are the addresses of `_symbols`, for who asks for many variables.
    """
    kept = module_memory(module).variables
    variable = module.variables[name]
    # Instances of a module share its variables, but each numbers its strings from the beginning.
    key = f"{name} = {variable.initialiser}" if name.startswith(_NAMELESS) else name
    if key not in kept:
        memory = zeroed_bytes(max(variable.size, 1))
        if variable.initialiser is not None:
            memory[: variable.size] = image(variable, _symbols(module) if symbols is None else symbols)
        kept[key] = memory
    return kept[key]


def variables(module: Module, info: LaunchInfo) -> list[Allocation]:
    """Return the module's variables as the allocations of a launch."""
    memory = module_memory(module)
    memory.launched = True
    declared = info.variables
    # Headers of templates leave thousands of constants behind: the addresses are computed once for all.
    symbols = _symbols(module) if any(name not in memory.variables for name, *_ in declared) else {}
    return [
        Allocation(name, start, size, address(variable_bytes(module, name, symbols)), space == "global")
        for name, space, start, size in declared
    ]


def _symbols(module: Module) -> dict[str, int]:
    """Return the addresses that an initial value may hold, by the names of functions and variables."""
    return function_addresses(module) | variable_addresses(module)


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


# the table ------------------------------------------------------------------------------------------------


def table(allocations: list[Allocation]) -> npt.NDArray[np.int64]:
    """Return the allocations as the table that compiled code reads.

    An allocation that may be written in part has a row to be read, and one for each range to be written.
    """
    rows = []
    for allocation in allocations:
        ranges = allocation.writable_ranges()
        if allocation.writable and ranges == [(0, allocation.size)]:
            rows.append((allocation.first, allocation.size, allocation.host, 1))
            continue
        rows.append((allocation.first, allocation.size, allocation.host, 0))
        rows += [
            (allocation.first + start, stop - start, allocation.host + start, 1) for start, stop in ranges
        ]
    return np.array(rows or [(0, 0, 0, 0)], np.int64)


def heap_in_use(module: Module) -> bool:
    """Return whether a kernel of a module has called malloc: its memory is there for all other kernels."""
    return id(module.root or module) in HEAPS
