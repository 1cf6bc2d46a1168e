"""Origins: the tree of instructions and inputs that made a value, followed back through a recording.

A node finds its sources when it is asked for them, so that a value with a long past costs nothing until
somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lanewise.machine.abi import SHARED_WINDOW
from lanewise.machine.program.instruction_record import AddressFlow, BitFlow, Level
from lanewise.machine.program.ptx_types import TYPE_BITS
from lanewise.machine.tracer.records import ASYNC_WRITE_POINT
from lanewise.numpy_types import AnyDtype
from lanewise.traces.arrays import bytes_of
from lanewise.traces.byte_flow import whole_number
from lanewise.traces.dataflow import Dataflow
from lanewise.traces.history import NOTHING, space_of
from lanewise.traces.names import SIGNED, Meaning, meaning_of, meant
from lanewise.traces.places import MemoryPlace, Place, RegisterPlace, Source
from lanewise.traces.recording import Recording
from lanewise.traces.step import Step

#: How deep and wide the text of an origin is, unless more is asked for.
DEPTH, WIDTH = 6, 3
#: Characters of an instruction in such a text.
_LONGEST = 72
#: The type of a product of two integers with all its bits, by the type of the integers.
_WIDE = {"s16": "s32", "s32": "s64", "u16": "u32", "u32": "u64"}
#: Nodes after which a search for all inputs ends.
MOST_NODES = 1_000_000


class Origins:
    """Finds origins in a recording; a value that was made once is one node, however many have used it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.dataflow = Dataflow(recording)
        self._kept: dict[tuple[Place, int, Meaning | None], Origin] = {}

    def find(self, place: Place, entry: int, text: str = "", format: Meaning | None = None) -> Origin:
        """Return the origin of what a place held before an entry."""
        if isinstance(place, RegisterPlace):
            return self._register(place, entry, text, format or place.format)
        return self._memory(place, entry, format)

    def source(self, source: Source, entry: int, format: Meaning | None) -> Origin:
        """Return the origin of a source of an entry; a format says what its bits mean to the instruction."""
        if source.place is None:
            return Origin(self, source.text, None, NOTHING, b"", None, "constant")
        when = entry if source.entry is None else source.entry
        if isinstance(source.place, MemoryPlace):
            return self._memory(source.place, when, source.format or format, source.read)
        return self._register(source.place, when, source.text, source.format or format)

    def _register(self, place: RegisterPlace, entry: int, text: str, format: Meaning | None) -> Origin:
        values, writers = self.recording.registers.last(place.block, place.warp, place.registers, entry - 1)
        writer = int(writers[place.lane])
        whole = np.ascontiguousarray(values[place.lane]).tobytes()
        what = text or place.registers[0].name
        if writer == NOTHING:
            raw = whole[place.first : place.first + place.size]
            return Origin(self, f"{what}, which nothing has written", place, NOTHING, raw, format, "initial")
        written = self._written_register(writer, place)
        raw = whole[written.first : written.first + written.size]
        key = (written, writer, format)
        if key not in self._kept:
            self._kept[key] = Origin(self, what, written, writer, raw, format)
        return self._kept[key]

    def _written_register(self, writer: int, place: RegisterPlace) -> RegisterPlace:
        """Return the place with the one register that the entry has written; of a number, all its bytes."""
        point = self.recording.log.point(writer)
        written = {register.register for register in point.registers}
        registers = tuple(register for register in place.registers if register in written)
        first, size = place.first, place.size
        if point.op is not None:
            first, size = whole_number(point.op, first, size, registers[0].bits // 8)
        return RegisterPlace(place.block, place.warp, place.lane, registers, first, size)

    def _memory(self, place: MemoryPlace, entry: int, format: Meaning | None, read: bytes = b"") -> Origin:
        """Return the origin of bytes of memory before an entry; `read` is what an instruction read there."""
        what = self.recording.described(place.address)
        spans = self._spans(place, entry)
        if len(spans) > 1:
            parts = tuple(
                self._memory(
                    replace(place, address=place.address + first, size=end - first),
                    entry,
                    format,
                    read[first:end],
                )
                for _, first, end in spans
            )
            raw = b"".join(part.raw for part in parts)
            return Origin(self, what, place, NOTHING, raw, format, "parts", parts)
        write = spans[0].write
        if write is None:
            is_input = space_of(place.address) in ("global", "const", "param")
            kind = "input" if is_input else "initial"
            raw = read or self._argument_bytes(place, entry)
            return Origin(self, what, place, NOTHING, raw, format, kind)
        writer = int(self.recording.memory.writes.entry[write])
        key = (place, writer, format)
        if key not in self._kept:
            if space_of(place.address) == "tensor":
                issuer = self.dataflow.issuer(write)
                format = self.dataflow.tensor.format_of(issuer[0]) or format if issuer else format
            raw = self.recording.log.written(write, place.address, place.size)
            self._kept[key] = Origin(self, what, place, writer, raw, format, write=write)
        return self._kept[key]

    def _spans(self, place: MemoryPlace, entry: int) -> list[_Span]:
        """Return the spans of a place: bytes that one write wrote last, or that are of one input element."""
        memory, arguments = self.recording.memory, self.recording.arguments

        def past(address: int) -> tuple[int | None, object]:
            write = next(memory.before(address, entry, place.block, place.warp, place.lane), None)
            elements = (argument.index_at(address) for argument in arguments) if write is None else ()
            return write, next((index for index in elements if index is not None), None)

        pasts = [past(address) for address in range(place.address, place.address + place.size)]
        borders = [first for first in range(1, place.size) if pasts[first] != pasts[first - 1]]
        return [_Span(pasts[first][0], first, end) for first, end in pairwise((0, *borders, place.size))]

    def _argument_bytes(self, place: MemoryPlace, entry: int) -> bytes:
        """Return the bytes of an argument that no traced block has written before an entry."""
        is_over = entry >= len(self.recording.log)
        for argument in self.recording.arguments:
            offset = place.address - argument.address
            if offset >= 0 and offset + place.size <= argument.array.nbytes:
                held = bytes_of(argument.array if is_over else argument.initial)
                return held[offset : offset + place.size].tobytes()
        return b""


class _Span(NamedTuple):
    """Bytes of a place with one past: the write that wrote them last (None: no write), first byte and end."""

    write: int | None
    first: int
    end: int


class Origin:
    """A value with its past: what it is, who wrote it at which step, and the values that it was made from.

    `kind` is "instruction"; "input" for memory that nobody wrote while the launch ran; "initial" for
    registers and shared memory without a value; "constant"; "parts" for bytes that several instructions have
    written.
    """

    def __init__(
        self,
        origins: Origins,
        what: str,
        place: Place | None,
        entry: int,
        raw: bytes,
        format: Meaning | None,
        kind: str = "instruction",
        parts: tuple[Origin, ...] = (),
        write: int = NOTHING,
    ) -> None:
        self._origins, self.what, self.place, self.entry = origins, what, place, entry
        self.raw, self.kind = raw, kind
        self._format, self._parts, self._write = format, parts, write

    @property
    def step(self) -> Step | None:
        """The step that wrote it, or that issued the copy which did; None if no traced step did."""
        if self.entry == NOTHING:
            return None
        entry = self.entry
        if self._is_copy:
            issuer = self._origins.dataflow.issuer(self._write)
            entry = issuer[0] if issuer is not None else entry
        number = self._origins.recording.step_of(entry)
        return Step(self._origins.recording, number) if number is not None else None

    @property
    def _is_copy(self) -> bool:
        """Whether an asynchronous operation wrote it."""
        log = self._origins.recording.log
        return self._write != NOTHING and log.point(self.entry).number == ASYNC_WRITE_POINT

    @property
    def warp(self) -> int | None:
        """The warp that wrote it; None if nobody did."""
        if self.entry == NOTHING:
            return None
        issuer = self._origins.dataflow.issuer(self._write) if self._is_copy else None
        return int(self._origins.recording.log.entries["warp"][issuer[0] if issuer else self.entry])

    @property
    def lane(self) -> int | None:
        """The lane that wrote it, or the row of a matrix that it lies in; None if nobody did."""
        if isinstance(self.place, RegisterPlace):
            return self.place.lane
        if self._write != NOTHING:
            return int(self._origins.recording.log.writes.row[self._write])
        return None

    @property
    def value(self) -> Any:
        """The value as a number; None if it is not known. It has the type of the array or the register."""
        if not self.raw:
            return None
        if isinstance(self.place, MemoryPlace):
            dtype = self._dtype(self.place)
            if dtype is not None and len(self.raw) == dtype.itemsize:
                return np.frombuffer(self.raw, dtype)[0]
        if len(self.raw) not in (1, 2, 4, 8):
            return self.raw
        bits = np.frombuffer(self.raw, f"uint{8 * len(self.raw)}")
        meanings = [self._format]
        if isinstance(self.place, RegisterPlace):
            meanings += [self._result_type, self.place.registers[0].type]
        for meaning in meanings:
            values = meant(bits, meaning)
            if values is not None:
                return values[0]
        return bits[0]

    def _dtype(self, place: MemoryPlace) -> AnyDtype | None:
        """Return the type of the array that a place lies in."""
        recording = self._origins.recording
        for argument in recording.arguments:
            if argument.index_at(place.address) is not None:
                return argument.array.dtype
        for array in recording.shared_arrays.all() if space_of(place.address) == "shared" else ():
            if array.index_at(place.address - SHARED_WINDOW) is not None:
                return array.dtype
        return None

    @property
    def _result_type(self) -> str | None:
        """The type of the result of the instruction that wrote a register."""
        op = self._origins.recording.op(self.entry) if self.entry != NOTHING else None
        if op is None or not op.types:
            return None
        name = _WIDE.get(op.types[0], "") if op.has("wide") else op.types[0]
        is_low = isinstance(self.place, RegisterPlace) and self.place.first == 0
        bits = 8 * len(self.raw)
        # The low bytes of a signed integer are that integer, if it fits into them.
        return f"s{bits}" if is_low and name in SIGNED and TYPE_BITS[name] > bits else name

    @cached_property
    def sources(self) -> tuple[Origin, ...]:
        """The values that it was made from; none of inputs and constants."""
        if self._parts or self.entry == NOTHING:
            return self._parts
        dataflow = self._origins.dataflow
        if isinstance(self.place, MemoryPlace):
            origins = dataflow.of_memory(self._write, self.place)
        else:
            assert self.place is not None
            origins = dataflow.of_register(self.entry, self.place)
        return tuple(self._origins.source(origin, self.entry, self._source_format) for origin in origins)

    @property
    def _source_format(self) -> Meaning | None:
        """What the bits of the sources mean: the same as here if they were only moved."""
        op, format = self._origins.recording.op(self.entry), None
        if self._is_moved:
            format = self._format
            if format is None and isinstance(self.place, MemoryPlace):
                format = meaning_of(self._dtype(self.place))
        return format or (op.types[-1] if op is not None and op.types else None)

    @property
    def _is_moved(self) -> bool:
        """Whether the instruction only moved bits, so that they mean the same before and after it."""
        point = self._origins.recording.log.point(self.entry)
        if point.op is None:
            return False
        record = point.op.record
        if record.level is Level.LANE and record.bit_flow is not BitFlow.ALL:
            return len(point.op.types) < 2 or all(name.startswith("u") for name in point.op.types)
        moves = record.address_flow is AddressFlow.COPY or record.shuffles or record.touches_tensor_memory
        return (moves or bool(point.accesses)) and not record.is_atomic and not record.multiplies

    def walk(self, limit: int = MOST_NODES) -> Iterator[Origin]:
        """Yield this node and everything it was made from, each once, up to a number of them."""
        seen: set[object] = set()
        waiting = [self]
        while waiting and len(seen) < limit:
            node = waiting.pop()
            key = (node.place, node.entry, node.what) if node.place is None else (node.place, node.entry)
            if key in seen:
                continue
            seen.add(key)
            yield node
            waiting += reversed(node.sources)

    @cached_property
    def inputs(self) -> dict[str, list[tuple[int, ...]]]:
        """The elements of arguments that it was made from, by the name of the argument, in order."""
        by_argument: dict[str, set[tuple[int, ...]]] = {}
        arguments = self._origins.recording.arguments
        for node in self.walk():
            if node.kind == "input" and isinstance(node.place, MemoryPlace):
                for argument in arguments:
                    index = argument.index_at(node.place.address)
                    if index is not None:
                        by_argument.setdefault(argument.name, set()).add(index)
                        break
        return {name: sorted(indices) for name, indices in by_argument.items()}

    # as text ------------------------------------------------------------------------------------------------

    @property
    def line(self) -> str:
        """The node as one line of text."""
        value = self.value
        head = self.what if value is None or self.kind == "constant" else f"{self.what} = {shown(value)}"
        if self.kind in ("input", "initial", "constant", "parts"):
            return head if self.kind in ("constant", "initial") else f"{head}  ({self.kind})"
        op = self._origins.recording.op(self.entry)
        step = self.step
        who = f"step {step.number}" if step is not None else f"warp {self.warp}, not traced"
        if self._is_copy:
            return f"{head}  {self._copied_by()}"
        if op is None:  # where a function begins
            return f"{head}  passed by a call to lane {self.lane}"
        source = self._origins.recording.source(op) if op is not None else None
        where = f"  ({source.rsplit('/', 1)[-1]})" if source else ""
        lane = f", lane {self.lane}" if isinstance(self.place, RegisterPlace) or self.lane is not None else ""
        return f"{head}  {who}{lane}: {_shortened(str(op.source)) if op is not None else ''}{where}"

    def _copied_by(self) -> str:
        """Return which asynchronous copy wrote it, in words."""
        recording = self._origins.recording
        issuer = self._origins.dataflow.issuer(self._write)
        op = recording.op(issuer[0]) if issuer is not None else None
        if issuer is None or op is None:
            return "written by an asynchronous copy"
        step = recording.step_of(issuer[0])
        who = f"step {step}" if step is not None else "a warp that is not traced"
        verb = "computed" if op.record.multiplies else "written" if op.has("st") else "copied"
        return f"{verb} asynchronously by {who}: {_shortened(str(op.source))}"

    def tree(self, depth: int = DEPTH, width: int = WIDTH) -> str:
        """Return the tree as text, so many levels deep and with so many sources for each node."""
        return "\n".join(self._lines(depth, width, ""))

    def _lines(self, depth: int, width: int, indent: str) -> Iterator[str]:
        yield self.line
        sources = self.sources
        if not sources:
            return
        if depth == 0:
            yield f"{indent}└ …"
            return
        # The first is an accumulator's past; the last ones are of B as the ones after the first are of A.
        kept = sources if len(sources) <= width else (*sources[: width - 1], sources[-1])
        left = len(sources) - len(kept)
        for number, node in enumerate(kept):
            last = number == len(kept) - 1
            if last and left:
                yield f"{indent}├ … {left} more"
            lines = node._lines(depth - 1, width, indent + ("  " if last else "│ "))
            yield f"{indent}{'└' if last else '├'} {next(lines)}"
            yield from lines

    def __str__(self) -> str:
        return self.tree()

    def __repr__(self) -> str:
        return f"<{self.line}>"


def _shortened(text: str) -> str:
    """Return an instruction as a line of a tree has room for."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def shown(value: object) -> str:
    """Return a number as text, short enough for a line."""
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:.7g}" if isinstance(value, float | np.floating) else str(value)
