"""A warm launch: for one kernel, configuration and kinds of arguments, everything prepared but the values.

What a plan cannot take as it is (another type, a value out of range) it leaves to `launching.py`, which says
what is wrong or does it the long way.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache, reduce
from itertools import accumulate
from operator import itemgetter, or_
from typing import TYPE_CHECKING, Any

from lanewise.gpu.arrays import Library, library_of
from lanewise.gpu.loading import Loaded
from lanewise.gpu.streams import stream_handle
from lanewise.ptx import Shape, Variable

if TYPE_CHECKING:
    from lanewise.ptx.tensor_maps import TensorMap

#: How a number goes into a parameter, by its kind and size: each takes a place of eight bytes.
_FORMATS = {
    "s": {1: "b7x", 2: "h6x", 4: "i4x", 8: "q"},
    "u": {1: "B7x", 2: "H6x", 4: "I4x", 8: "Q"},
    "f": {2: "e6x", 4: "f4x", 8: "d"},
}
#: CUlaunchConfig: grid, block, dynamic shared memory, stream, attributes.
_CONFIG = struct.Struct("<7I4xQQI4x")
_CONFIG_STREAM = 32
#: CUlaunchAttribute: its kind, then a value of 64 bytes; the kinds of a cluster's shape, and of a launch that
#: may overlap with the one before it.
_ATTRIBUTE, _CLUSTER_DIMENSION, _PROGRAMMATIC = struct.Struct("<I4x3I52x"), 4, 6
#: CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_INVALID_HANDLE: what a launch in a wrong context gets.
_WRONG_CONTEXT = (201, 400)


#: How an array goes into a parameter, and how a tensor map does: as its 128 bytes.
POINTER = "P"
TENSOR_MAP = "128s"
#: Launches after which one is worth compiling: a program that launches a few times does not wait for that.
OFTEN = 16


@cache
def _kept_attributes(cluster: tuple[int, int, int] | None, overlap: bool) -> Any:
    """Some CUlaunchAttributes, one after the other. They are kept: launches refer to their memory."""
    rows = [] if cluster is None else [_ATTRIBUTE.pack(_CLUSTER_DIMENSION, *cluster)]
    rows += [_ATTRIBUTE.pack(_PROGRAMMATIC, 1, 0, 0)] if overlap else []
    return ctypes.create_string_buffer(b"".join(rows), _ATTRIBUTE.size * len(rows))


def _attributes(shape: Shape) -> tuple[int, ...]:
    """The address and number of a launch's attributes; empty if it has none."""
    if shape.cluster is None and not shape.overlap:
        return ()
    kept = _kept_attributes(shape.cluster, shape.overlap)
    return ctypes.addressof(kept), len(kept) // _ATTRIBUTE.size


def launch_config(shape: Shape) -> bytes:
    """Return a CUlaunchConfig, the stream left open."""
    return _CONFIG.pack(*shape.grid, *shape.block, shape.shared_bytes, 0, *(_attributes(shape) or (0, 0)))


class Record:
    """The memory of one launch, as cuLaunchKernelEx reads it: pointers to values, configuration, values."""

    def __init__(self, loaded: Loaded, shape: Shape, offsets: Sequence[int], size: int) -> None:
        config = 8 * len(offsets)
        self.stream = config + _CONFIG_STREAM
        self.values = config + _CONFIG.size
        self.buffer = ctypes.create_string_buffer(self.values + size)
        base = ctypes.addressof(self.buffer)
        places = [base + self.values + offset for offset in offsets]
        struct.pack_into(f"<{len(places)}Q", self.buffer, 0, *places)
        struct.pack_into(f"{_CONFIG.size}s", self.buffer, config, launch_config(shape))
        #: The arguments of cuLaunchKernelEx.
        self.call = (
            ctypes.c_void_p(base + config),
            ctypes.c_void_p(loaded.function),
            ctypes.c_void_p(base),
            None,
        )


def padded_offsets(raw: Sequence[bytes]) -> list[int]:
    """Where parameters begin in the memory of a launch, each at a multiple of 16 bytes, and where it ends."""
    return list(accumulate((len(part) + -len(part) % 16 for part in raw), initial=0))


def filled_record(loaded: Loaded, shape: Shape, raw: Sequence[bytes]) -> Record:
    """Return the record of a launch whose parameters have these bytes; its stream is left open."""
    *offsets, size = padded_offsets(raw)
    record = Record(loaded, shape, offsets, size)
    for part, offset in zip(raw, offsets, strict=True):
        struct.pack_into(f"{len(part)}s", record.buffer, record.values + offset, part)
    return record


def start(loaded: Loaded, record: Record) -> None:
    """Launch what a record says, in the right context; a status other than success is raised."""
    context = loaded.context
    with context.current():
        status = context.driver.launch(*record.call)
    context.last = loaded.name
    if status:
        raise context.driver.error(status, loaded.name)


class Plan:
    """A launch of known types: called with arguments and a stream, it launches, or returns False.

    `formats` say of each parameter how it is packed: `POINTER`, `TENSOR_MAP`, or as `number_format` says;
    `array_types` of which type its array is.
    """

    def __init__(
        self,
        loaded: Loaded,
        shape: Shape,
        library: Library,
        types: tuple[type, ...],
        formats: Sequence[str],
        align: int = 1,
        *,
        array_types: tuple[type | None, ...],
    ) -> None:
        self.loaded, self.shape, self.library = loaded, shape, library
        self.types, self.formats = types, formats
        #: The type of each argument's array, if it is one or is made of one.
        self.array_types = array_types
        self.ordinal = loaded.context.ordinal
        arrays = [place for place, code in enumerate(formats) if code == POINTER]
        maps = [place for place, code in enumerate(formats) if code == TENSOR_MAP]
        numbers = [place for place, code in enumerate(formats) if code not in (POINTER, TENSOR_MAP)]
        self._ordinals = [self.ordinal] * len(arrays)
        #: Bits that no array's address has if all are aligned; one that has some takes the long way.
        self._low_bits = align - 1
        self._arrays, self._numbers = _taken(arrays), _taken(numbers)
        self._maps = _taken(maps) if maps else None
        # Arrays come first in the memory of a launch, then numbers, then tensor maps; the pointers to values
        # have their order.
        order = [*arrays, *numbers, *maps]
        sizes = [struct.calcsize(f"<{formats[place]}") if place in maps else 8 for place in order]
        offsets = dict(zip(order, accumulate(sizes, initial=0), strict=False))
        self._offsets, self._size = [offsets[place] for place in range(len(formats))], sum(sizes)
        # One step packs the stream, the attributes, and the values that lie behind them.
        codes = "".join("Q" if formats[place] == POINTER else formats[place] for place in order)
        self._attributes = _attributes(shape)
        middle = "QI4x" if self._attributes else "16x"
        self._pack_into = struct.Struct(f"<Q{middle}{codes}").pack_into
        self._context, self._name, self._launch = loaded.context, loaded.name, loaded.context.driver.launch
        self.current_stream = library.current_stream
        #: Records that no launch is using; threads take them and put them back.
        self._free = [self._record()]
        self._stream = self._free[0].stream
        #: The same in machine code, once it has been launched often.
        self.native: Callable[[tuple[Any, ...], int], int] | None = None
        self._launches = 0

    def _record(self) -> Record:
        return Record(self.loaded, self.shape, self._offsets, self._size)

    def __call__(self, arguments: tuple[object, ...], stream: object) -> bool:
        """Launch; False if these arguments are not of the kind that was prepared for."""
        handle = self.current_stream(self.ordinal) if stream is None else stream_handle(stream)
        context = self._context
        if self.native is not None:
            status = self.native(arguments, handle)
            if not status:
                return True
            if status > 0 and (status not in _WRONG_CONTEXT or context.is_current()):
                raise context.driver.error(status, self._name)
        library = self.library
        if tuple(map(type, arguments)) != self.types:
            return False
        arrays = self._arrays(arguments)
        if list(map(library.ordinal, arrays)) != self._ordinals:
            return False
        if not all(map(library.contiguous, arrays)) and not all(map(library.in_one_piece, arrays)):
            return False
        addresses = list(map(library.address, arrays))
        if self._low_bits and reduce(or_, addresses, 0) & self._low_bits:
            return False
        maps = self._encoded(self._maps(arguments)) if self._maps is not None else ()
        if maps is None:
            return False
        try:
            record = self._free.pop()
        except IndexError:  # other threads have them all
            record = self._record()
        try:
            self._pack_into(
                record.buffer,
                self._stream,
                handle,
                *self._attributes,
                *addresses,
                *self._numbers(arguments),
                *maps,
            )
        except (struct.error, OverflowError):  # a number that does not fit as it is
            self._free.append(record)
            return False
        status = self._launch(*record.call) if context.alone or context.is_current() else _WRONG_CONTEXT[0]
        context.last = self._name
        if status:
            self._again(record, status)
        self._free.append(record)
        self._launches += 1
        if self._launches == OFTEN:
            self.native = self._compiled()
        return True

    def _encoded(self, maps: tuple[TensorMap, ...]) -> list[bytes] | None:
        """The bytes of tensor maps; None if their arrays are of another library or on another device."""
        library = self.library
        for tensor_map in maps:
            if (
                library_of(tensor_map.array) is not library
                or library.ordinal(tensor_map.array) != self.ordinal
            ):
                return None
        return [tensor_map.encode(library.address(tensor_map.array)) for tensor_map in maps]

    def _again(self, record: Record, status: int) -> None:
        """A launch that failed: once more if the context of this thread was another, else raise."""
        context = self.loaded.context
        if status in _WRONG_CONTEXT and not context.is_current():
            start(self.loaded, record)
        else:
            raise context.driver.error(status, self.loaded.name)

    def _compiled(self) -> Callable[[tuple[Any, ...], int], int] | None:
        """This launch in machine code; None where that cannot be."""
        from lanewise.gpu import native

        reads = {native.exchange_function(kind) for kind in self.array_types if kind is not None}
        parameters = [
            native.parameter(code, type_, array_type)
            for code, type_, array_type in zip(self.formats, self.types, self.array_types, strict=True)
        ]
        expected = [parameter for parameter in parameters if parameter is not None]
        if len(reads) != 1 or len(expected) < len(parameters):
            return None
        context = self.loaded.context
        launch, current = context.driver.places
        return native.compiled_launch(
            expected,
            launch_config(self.shape),
            self.ordinal,
            read=reads.pop(),
            launch=launch,
            current=0 if context.alone else current,
            context=context.handle,
            function=self.loaded.function,
            low_bits=self._low_bits,
            last=context.last_place,
            name=context.numbered(self._name),
        )


def _taken(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What takes some items of a tuple, in one step."""
    if list(places) == list(range(places[0], places[-1] + 1)) if places else True:
        return itemgetter(slice(places[0], places[-1] + 1) if places else slice(0, 0))
    return itemgetter(*places)


def number_format(variable: Variable, value: object) -> str | None:
    """How a number of this type is packed for a parameter; None if a launch must encode it anew each time."""
    if variable.dims or variable.vector > 1:
        return None
    kind = "u" if variable.type[0] == "b" else variable.type[0]
    if type(value) is float and variable.type[0] == "b":
        kind = "f"
    if type(value) not in ((int, bool, float) if kind == "f" else (int, bool)):
        return None
    return _FORMATS.get(kind, {}).get(variable.size)
