"""A call of `lw.matmul` that was made before, as one function of machine code.

It reads a, b, out and other operands, finds the call by their kind, makes the result (and a workspace) by
the function that torch's Inductor makes tensors with, asks for the current stream, and launches. What it
cannot do itself it leaves to Python: it returns None then, and nothing has happened. Its text is in
`quick_call_text.py`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from lanewise.gpu.native import (
    can_be_made,
    exchange_function,
    load,
    made,
    places_in_python,
    stream_function,
    with_places,
)
from lanewise.jit import machine_code
from lanewise.linalg.launch.quick_call_text import QUICK_TEXT

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch

#: What of Python's C interface is called: the first words of the table.
_PYTHON = (
    "PyLong_FromUnsignedLongLong", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread",
    "PyObject_Call", "Py_IncRef", "Py_DecRef", "PyObject_GetAttr", "PyLong_AsUnsignedLongLong",
    "PyBytes_FromStringAndSize",
)  # fmt: skip
#: The other words of the table, in order; the types of tensors follow. Then the words of a call's record; the
#: addresses of its launches' records follow.
_TABLE = (
    "READ", "STREAM", "NONE", "TRUE", "LAUNCH", "CAPTURING", "LAST", "EMPTY", "GRADIENT", "RECORDING",
    "NOTHING", "CALLS", "MASK", "TYPES", "FIRST_TYPE",
)  # fmt: skip
_RECORD = (
    "DEVICE", "NAME", "RESULT", "WORKSPACE", "COUNTS", "COUNTING_STREAM", "COUNTING_ADDRESS", "EXTENTS",
    "ADDS_OUT", "KEY", "LAUNCHES", "FIRST_LAUNCH",
)  # fmt: skip
#: Numbers of operands: the result, what is added to it, the workspace, where a sparse b's elements stood.
#: Arguments have the same ones, but for the number of the other keywords in the place of the workspace, and
#: the metadata behind it.
_PLACES = {"OUT": 2, "ADDED": 4, "MEMORY": 8, "METADATA": 11}
#: Words of the longest key; the words of a tensor in it beside those of its axes, the word for an argument
#: that is absent, and what is added to the alignment of one that is there.
_KEY_ROOM = 192
_KEY = {"KEY_ROOM": _KEY_ROOM, "TENSOR_WORDS": 3, "ABSENT": 0, "GIVEN": 16}
#: Bytes of CUlaunchConfig.
_CONFIG_BYTES = 56
#: Operands that a call may have, and how many objects a record needs.
_OPERANDS, _HELD = 8, 6
#: Calls that are found, and places for them: more than twice as many, so that those taken are short rows.
_MOST_CALLS, _ROOM = 4096, 16384


@cache
def _program() -> machine_code.Program | None:
    """Return the compiled functions; None where Python has no global lock, and objects look otherwise."""
    if not can_be_made():
        return None
    places = {name: len(_PYTHON) + number for number, name in enumerate(_TABLE)}
    places |= {name: number for number, name in enumerate(_RECORD)} | _PLACES | _KEY
    # Behind the longest key there is room for the keywords' number and the hash.
    text = QUICK_TEXT.replace("[KEY_WORDS x", f"[{_KEY_ROOM + 16} x")
    return load("quick call", with_places(text, places))


class QuickCalls:
    """Calls that machine code makes: `call(a, b, out)` returns the result, None, or a status."""

    def __init__(
        self, types: Sequence[type], empty: object, recording: object, *, launch: int, capturing: int,
        last: int, stream: int = 0,
    ) -> None:  # fmt: skip
        """`empty` makes tensors, `recording` tells whether gradients are recorded; the others are places of
        driver functions and of the last kernel's number.

        `stream` is the function that tells the current stream, where the types' own is not to be asked.
        """
        program, read = _program(), exchange_function(types[0])
        stream = stream or stream_function(types[0])
        #: Whether there is machine code at all.
        self.possible = bool(program is not None and read and stream)
        self._slots = (c_uint64 * (2 * _ROOM))()
        self._kept: dict[bytes, tuple[object, ...]] = {}
        self._before: dict[bytes, tuple[object, ...]] = {}
        #: Where calls are among the slots, by their keys; one thread at a time adds some.
        self._taken: dict[bytes, int] = {}
        self._adding = Lock()
        #: The key of a call's arguments with its hash, empty if machine code does not take them. The call.
        self.kind: Callable[..., bytes] = lambda *_: b""
        self.call: Callable[..., Any] = lambda *_: None
        if program is not None and self.possible:
            gradient, nothing = "requires_grad", ()
            words = [
                *places_in_python(_PYTHON), read, stream, id(None), id(True), launch, capturing, last,
                id(empty), id(gradient), id(recording), id(nothing), ctypes.addressof(self._slots), _ROOM - 1,
                len(types), *map(id, types),
            ]  # fmt: skip
            held = (tuple(types), empty, gradient, recording, nothing, self._slots)
            self.kind = made(program, "kind", words, held)
            self.call = made(program, "quick", words, held)

    def add(
        self, arguments: Sequence[object], launches: Sequence[RecordedLaunch], device: int, name: int,
        result: tuple[object, ...], workspace: tuple[object, ...] | None,
        extents: Sequence[tuple[int, int] | None],
        counting: tuple[int, int, object] | None = None, adds_out: bool = False,
    ) -> None:  # fmt: skip
        """Have calls of the kind of these arguments made by machine code.

        `result` and `workspace` are the arguments that make their tensors; `extents` are the first and the
        last byte of each operand by its address; `counting` are the stream and the address of a workspace in
        which kernels count, and the workspace; `adds_out` says that what out holds is the residual.
        """
        kind = self.kind(*arguments)
        if not kind:
            return
        records, held = launch_records(launches)
        bytes_ = (c_uint64 * (2 * _OPERANDS))()
        for number, extent in enumerate(extents):
            if extent is not None:
                bytes_[2 * number], bytes_[2 * number + 1] = (address % (1 << 64) for address in extent)
        stream, address, memory = counting or (0, 0, None)
        *key_words, hash_ = struct.unpack(f"<{len(kind) // 8}Q", kind)
        key = (c_uint64 * len(key_words))(*key_words)
        words = [
            device, name, id(result), 0 if workspace is None else id(workspace),
            int(counting is not None), stream, address, ctypes.addressof(bytes_), int(adds_out),
            ctypes.addressof(key), len(records), *records,
        ]  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        with self._adding:
            if len(self._kept) >= _MOST_CALLS:
                self.clear()
            place = self._taken.get(kind, -1)
            if place < 0:
                place = hash_ % _ROOM
                while self._slots[2 * place]:  # taken, by a call with another key
                    place = (place + 1) % _ROOM
            self._taken[kind] = place
            before = self._kept.get(kind, ())[:_HELD]  # another thread may be launching it
            self._kept[kind] = (record, held, bytes_, result, workspace, (memory, key), before)
            self._slots[2 * place + 1] = ctypes.addressof(record)
            self._slots[2 * place] = hash_

    def clear(self) -> None:
        """Forget all calls. Their memory stays until the next time: other threads may be launching them."""
        ctypes.memset(self._slots, 0, ctypes.sizeof(self._slots))
        self._before, self._kept, self._taken = self._kept, {}, {}


def launch_records(launches: Sequence[RecordedLaunch]) -> tuple[list[int], list[object]]:
    """Return the addresses of what LAUNCH_TEXT reads of each launch, and the memory that holds it."""
    records: list[int] = []
    held: list[object] = []
    for launch in launches:
        values, offsets, config, changes = launch.parts()
        content = ctypes.create_string_buffer(values, max(len(values), 1))
        places = (c_uint64 * max(len(offsets), 1))(*offsets)
        settings = ctypes.create_string_buffer(config, _CONFIG_BYTES)
        rows = (c_uint64 * max(3 * len(changes), 1))(*(number for change in changes for number in change))
        words = (
            ctypes.addressof(content), len(values), len(offsets), ctypes.addressof(places),
            ctypes.addressof(settings), len(changes), ctypes.addressof(rows), launch.kernel.function,
        )  # fmt: skip
        record = (c_uint64 * len(words))(*words)
        records.append(ctypes.addressof(record))
        held.append((content, places, settings, rows, record, launch))
    return records, held
