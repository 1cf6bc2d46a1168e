"""Questions of the room Layouts: an expression of the algebra as a table of indices, and its banks.

How 32 lanes read a layout in shared memory: addresses, banks, turns, and layouts that take fewer turns. The
costs are those of the checker's bank model, and the layouts that are proposed are its proposals."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.draw.layouts import indices_of
from lanewise.errors import LanewiseError
from lanewise.explore.answers import question
from lanewise.explore.expressions import FUNCTIONS, MOST_LETTERS, evaluate
from lanewise.layout import ComposedLayout, Layout, Swizzle, left_inverse, rank, right_inverse, size
from lanewise.layout.int_tuple import spell
from lanewise.machine.checker.cost.bank_proposals import Candidate, Observed, Usage, best_candidates
from lanewise.machine.checker.cost.requests import LANES, WAVEFRONT, Requests, cost_of
from lanewise.machine.checker.cost.shared_arrays import SharedArray

ACCESSES = ("ldmatrix", "along", "across", "lanes")
#: Bytes that a lane reads at once, and bytes of a row of ldmatrix.
VECTOR_BYTES, ROW_BYTES = (1, 2, 4, 8, 16), 16
#: Addresses that are looked at: far more than any shared memory has.
MOST_ADDRESS = 1 << 40
#: Rows that four matrices of ldmatrix have below each other, two beside each other.
_MATRIX_ROWS = 16


@dataclass(frozen=True)
class Access:
    """One request of a warp: the layout, the element of each lane, and the bytes that each reads."""

    layout: Any
    element_bytes: int
    #: The flat coordinate of the first element that each lane reads.
    coordinates: tuple[int, ...]
    vector: int
    by_rows: bool
    steps: tuple[int, ...]

    @property
    def indices(self) -> list[int]:
        """The index of the first element that each lane reads."""
        return [self.layout(coordinate) for coordinate in self.coordinates]

    @property
    def requests(self) -> Requests:
        """The request as the bank model takes it."""
        offsets = np.array([self.indices], dtype=np.int64) * self.element_bytes
        return Requests(offsets, np.ones((1, LANES), bool), self.vector * self.element_bytes, self.by_rows)

    def facts(self) -> dict[str, Any]:
        """Return the request for the page: each lane with its cells, byte, bank and turn; and the cost."""
        requests = self.requests
        cost = cost_of(requests)
        unit = ROW_BYTES if self.by_rows else max(requests.size, 4)
        rows = size(self.layout.shape[0]) if rank(self.layout) > 1 else 1
        lanes = []
        turns = _turns(requests, unit)
        for lane, (coordinate, index) in enumerate(zip(self.coordinates, self.indices, strict=True)):
            byte = index * self.element_bytes
            cells = [divmod(coordinate + step, rows)[::-1] for step in self.steps]
            lanes.append(
                {
                    "cells": cells,
                    "byte": byte,
                    "bank": byte % WAVEFRONT // 4,
                    "banks": max(requests.size // 4, 1),
                    "phase": lane // (WAVEFRONT // unit),
                    "turn": turns[lane],
                }
            )
        return {
            "lanes": lanes,
            "bytes": requests.size,
            "wavefronts": int(cost.wavefronts[0]),
            "ideal": int(cost.phases[0]),
            "memory": int(self.layout.cosize()) * self.element_bytes,
        }


def _turns(requests: Requests, unit: int) -> list[int]:
    """Return for each lane in which turn its bank serves it, within its phase."""
    length = WAVEFRONT // unit
    wavefronts = []
    for first in range(0, LANES, length):
        served: dict[int, list[int]] = {}
        for offset in requests.offsets[0, first : first + length].tolist():
            word = offset // unit
            words = served.setdefault(word % length, [])
            if word not in words:
                words.append(word)
            wavefronts.append(words.index(word))
    return wavefronts


def access_of(layout: Any, bits: int, access: str, vector: int, lanes: object = None) -> Access:
    """Return how 32 lanes read a layout.

    `access` is "ldmatrix" (each lane a row of 16 bytes), "along" (lanes on neighbouring elements), "across"
    (lanes on neighbouring rows), or "lanes", with a layout from the lane to the coordinate.

    >>> access_of(Layout((32, 32), (32, 1)), 32, "across", 1).facts()["wavefronts"]
    32
    """
    if access not in ACCESSES:
        raise LanewiseError(f"an access is one of {', '.join(ACCESSES)}, not {access[:40]!r}")
    if bits not in (8, 16, 32, 64, 128):
        raise LanewiseError(f"elements have 8, 16, 32, 64 or 128 bits here, not {bits}")
    element = bits // 8
    if access == "ldmatrix":
        vector = ROW_BYTES // element
    if vector * element not in VECTOR_BYTES or vector < 1:
        raise LanewiseError(f"a lane reads 1, 2, 4, 8 or 16 bytes; {vector} × {element} bytes are not that")
    if not isinstance(layout(0), int):
        raise LanewiseError(f"{layout} leads to coordinates and not to places in shared memory")
    rows = size(layout.shape[0]) if rank(layout) > 1 else 1
    down = _is_down(layout, rows)
    step = 1 if down else rows
    if access == "lanes":
        coordinates = _of_lanes(layout, lanes)
    else:
        coordinates = _walked(layout, access, vector, rows, down)
    steps = tuple(step * number for number in range(vector))
    drawn = Access(layout, element, coordinates, vector, access == "ldmatrix", steps)
    _check(drawn)
    return drawn


def _is_down(layout: Any, rows: int) -> bool:
    """Whether neighbours in memory lie below each other, in mode 0; if not, they lie beside each other."""
    beside = layout.size() > rows and layout(rows) == layout(0) + 1
    return not beside and rows > 1 and layout(1) == layout(0) + 1


def _walked(layout: Any, access: str, vector: int, rows: int, down: bool) -> tuple[int, ...]:
    """Return the coordinates of lanes that go along neighbours in memory, or across them."""
    cols = layout.size() // rows
    run, lines = (rows, cols) if down else (cols, rows)
    if run % vector:
        raise LanewiseError(f"lines of {run} elements cannot be read {vector} at a time")
    pieces = run // vector
    starts = []
    for lane in range(LANES):
        if access == "along":
            line, piece = lane // pieces % lines, lane % pieces
        else:
            tall = min(lines, _MATRIX_ROWS if access == "ldmatrix" else LANES)
            line, piece = lane % tall, lane // tall % pieces
        starts.append(piece * vector + line * rows if down else line + piece * vector * rows)
    return tuple(starts)


def _of_lanes(layout: Any, lanes: Any) -> tuple[int, ...]:
    if isinstance(lanes, int):
        lanes = Layout(lanes)
    if not isinstance(lanes, Layout | ComposedLayout) or lanes.size() != LANES:
        raise LanewiseError(
            "the lanes are a layout of 32, from the lane to the coordinate, such as (16,2):(1,8)"
        )
    elements = tuple(lanes(lane) for lane in range(LANES))
    if any(not isinstance(element, int) or not 0 <= element < layout.size() for element in elements):
        raise LanewiseError(f"{lanes} leads out of the {layout.size()} coordinates of {layout}")
    return elements


def _check(access: Access) -> None:
    """Refuse an access that no GPU can make: vectors that are apart or not aligned, addresses below 0."""
    for coordinate in access.coordinates:
        if coordinate + access.steps[-1] >= access.layout.size():
            raise LanewiseError(f"{access.vector} elements from coordinate {coordinate} on leave the layout")
        indices = [access.layout(coordinate + step) for step in access.steps]
        if not 0 <= indices[0] * access.element_bytes < MOST_ADDRESS:
            raise LanewiseError(f"{access.layout} leads to index {indices[0]}, which no shared memory has")
        if indices != list(range(indices[0], indices[0] + access.vector)) or indices[0] % access.vector:
            raise LanewiseError(
                f"a lane cannot read {access.vector} elements at once here: at coordinate {coordinate} they "
                f"do not lie side by side at a multiple of {access.vector}"
            )


def proposals_for(access: Access) -> list[dict[str, object]]:
    """Return layouts with which the same access takes fewer turns; none where it has no conflicts."""
    requests = access.requests
    before = cost_of(requests)
    if not before.excess or not isinstance(access.layout, Layout):
        return []
    # The memory is a whole power of two, so that swizzles of any period stay inside.
    elements = 1 << int(access.layout.cosize() - 1).bit_length()
    element = access.element_bytes
    array = SharedArray("", 0, elements * element, element, "", (elements,), (1,), "ptx")
    usage = Usage(array, [Observed(requests, 1)], requests.size, strided=False, static_bytes=array.size)
    return [
        proposal
        for candidate in best_candidates(usage)
        if (proposal := _tried(access, candidate)) is not None
    ]


def _tried(access: Access, candidate: Candidate) -> dict[str, object] | None:
    """Return a layout that was tried, if it is one to one and takes fewer turns."""
    swizzle, element = candidate.swizzle, access.element_bytes
    layout: Any
    if swizzle is not None:
        layout = ComposedLayout(swizzle, 0, access.layout)
        text = f"Sw<{swizzle.bits},{swizzle.base},{swizzle.shift}> o {access.layout}"
        why = f"Swizzle({swizzle.bits},{swizzle.base},{swizzle.shift}), without more memory"
    else:
        row = candidate.array.stride[1]
        padding = candidate.stride[1] - row
        layout = _padded(access.layout, row, padding)
        text, why = str(layout), f"rows longer by {padding * element} bytes"
    if candidate.left or _distinct(layout) < _distinct(access.layout):
        return None
    facts = Access(layout, element, access.coordinates, access.vector, access.by_rows, access.steps).facts()
    if facts["wavefronts"] >= int(cost_of(access.requests).wavefronts[0]):
        return None
    return {"text": text, "why": why, "wavefronts": facts["wavefronts"], "memory": facts["memory"]}


def _distinct(layout: Any) -> int:
    return len({layout(coordinate) for coordinate in range(layout.size())})


def _padded(layout: Layout, row: int, padding: int) -> Layout:
    """Return a layout whose rows of some elements are longer."""

    def stride(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(stride(value) for value in given)
        return given + given // row * padding

    return Layout(layout.shape, stride(layout.stride))


#: Elements of a layout that the page draws at most.
MOST_CELLS = 1 << 14

#: Layouts to begin with: a name, what is typed, bits of an element, how lanes access it, elements each reads,
#: and the matrix of a layout of threads and values.
EXAMPLES: tuple[dict[str, Any], ...] = tuple(
    dict(zip(("name", "text", "bits", "access", "vector", "tv"), example, strict=False))
    for example in (
        ("Rows of 32 f16", "(16,32):(32,1)", 16, "ldmatrix", 8),
        ("The same, padded", "(16,32):(40,1)", 16, "ldmatrix", 8),
        ("The same, swizzled", "Sw<2,3,3> o (16,32):(32,1)", 16, "ldmatrix", 8),
        ("128B swizzle of f16", "Sw<3,3,3> o (8,64):(64,1)", 16, "ldmatrix", 8),
        ("A column of floats", "(32,32):(32,1)", 32, "across", 1),
        ("A column, padded", "(32,32):(33,1)", 32, "across", 1),
        ("Vectors of 4 floats", "(32,32):(32,1)", 32, "across", 4),
        ("Tiles of a matrix", "A = (8,16):(16,1)\nzipped_divide(A, (4,8))", 16, "along", 1),
        ("A 2×2 block, repeated", "blocked_product((2,2):(2,1), (3,4):(1,3))", 16, "along", 1),
        ("Accumulators of m16n8", "((4,8),(2,2)):((32,1),(16,8))", 32, "along", 1, "16,8"),
    )
)


@question("layouts", "about")
def about() -> dict[str, Any]:
    """Return the examples and the functions of the algebra that can be typed."""
    return {"examples": EXAMPLES, "functions": sorted(FUNCTIONS)}


@question("layouts", "evaluate")
def evaluated(text: str, tv: str = "") -> dict[str, Any]:
    """Return the layout that was typed: its indices, its inverse, its swizzle.

    >>> evaluated("(2,3):(3,1)")["indices"]
    [[0, 1, 2], [3, 4, 5]]
    """
    value, names = evaluate(text)
    named = {name: str(layout) for name, layout in names.items()}
    if isinstance(value, Swizzle) and value.size() <= MOST_CELLS:
        value = ComposedLayout(value, 0, _period(value))
    if isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        value = Layout(value)
    if not isinstance(value, Layout | ComposedLayout):
        return {"kind": "value", "text": str(value)[:MOST_LETTERS], "names": named}
    facts = {"kind": "layout", "names": named, **_drawn(value), **_facts(value)}
    facts["inverse"] = _inverse(value)
    if tv:
        facts["fragments"] = _fragments(value, tv)
    return facts


@question("layouts", "banks")
def banks(text: str, bits: int = 16, access: str = "ldmatrix", vector: int = 8, lanes: str = "") -> Any:
    """Return where 32 lanes read in a layout, the turns that this takes, and layouts that take fewer."""
    value, _ = evaluate(text)
    if isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        value = Layout(value)
    if isinstance(value, Swizzle) or not isinstance(value, Layout | ComposedLayout):
        raise LanewiseError("banks are those of a layout; type one, such as (32,32):(32,1)")
    if value.size() > MOST_CELLS:
        raise LanewiseError(f"{value} has {value.size()} elements; up to {MOST_CELLS} are looked at")
    accessed = access_of(value, bits, access, vector, evaluate(lanes)[0] if lanes else None)
    return {**accessed.facts(), "proposals": proposals_for(accessed)}


def _period(swizzle: Swizzle) -> Layout:
    """Return the indices that a swizzle permutes among themselves, a row for each of its patterns."""
    rows = 1 << swizzle.bits
    return Layout((rows, swizzle.size() // rows), (swizzle.size() // rows, 1))


def _drawn(layout: Any) -> dict[str, object]:
    """Return a layout's text and its indices, unless there are too many to draw."""
    if layout.size() > MOST_CELLS:
        return {"text": str(layout), "indices": None, "large": f"{layout.size()} elements: too many to draw"}
    try:
        indices = indices_of(layout)
    except LanewiseError as error:
        return {"text": str(layout), "indices": None, "large": str(error)}
    plain = [[index if isinstance(index, int) else spell(index) for index in row] for row in indices]
    return {"text": str(layout), "indices": plain}


def _facts(layout: Any) -> dict[str, object]:
    """Return what a layout is, beside its indices."""
    facts: dict[str, Any] = {
        "size": layout.size(),
        "rank": rank(layout),
        "shape": str(layout.shape).replace(" ", ""),
        "python": _python(layout),
    }
    outer = layout.layoutB if isinstance(layout, ComposedLayout) else None
    if isinstance(outer, Swizzle):
        facts["swizzle"] = {"bits": outer.bits, "base": outer.base, "shift": outer.shift}
    # Under a swizzle every coordinate has to be looked at to say it.
    known = isinstance(layout, Layout) or layout.size() <= MOST_CELLS
    try:
        facts["cosize"] = str(layout.cosize()) if known else ""
    except (LanewiseError, AttributeError, TypeError):
        facts["cosize"] = ""
    return facts


def _python(layout: Any) -> str:
    if isinstance(layout, ComposedLayout):
        if isinstance(layout.layoutB, Swizzle) and isinstance(layout.layoutA, Layout):
            inner = layout.layoutB
            return (
                f"lw.ComposedLayout(lw.Swizzle({inner.bits}, {inner.base}, {inner.shift}), "
                f"{layout.offset}, {_python(layout.layoutA)})"
            )
        return ""
    return f"lw.Layout({layout.shape}, {layout.stride})"


def _inverse(layout: Any) -> dict[str, object]:
    """Return the inverse: its text where the algebra has one, and which coordinate lies at each index."""
    facts: dict[str, object] = {"text": _inverse_text(layout), "memory": None}
    if layout.size() > MOST_CELLS or not isinstance(layout(0), int):
        return facts
    rows = size(layout.shape[0]) if rank(layout) > 1 else 1
    places: dict[int, list[int]] = {}
    for coordinate in range(layout.size()):
        places.setdefault(layout(coordinate), list(divmod(coordinate, rows)[::-1]))
    if min(places) < 0 or max(places) >= MOST_CELLS:
        return facts
    facts["memory"] = [places.get(index) for index in range(max(places) + 1)]
    facts["meets"] = len(places)
    return facts


def _inverse_text(layout: object) -> str:
    """Return the left inverse, or the right inverse where there is no other; a swizzle is its own inverse."""
    if isinstance(layout, ComposedLayout):
        swizzle = layout.layoutB
        if not isinstance(swizzle, Swizzle) or layout.offset != 0 or layout.size() > MOST_CELLS:
            return ""
        inner = _inverse_text(layout.layoutA)
        indices = f"{layout.cosize()}:1"
        return f"{inner} o Sw<{swizzle.bits},{swizzle.base},{swizzle.shift}> o {indices}" if inner else ""
    for function in (left_inverse, right_inverse):
        try:
            return str(function(layout))
        except (LanewiseError, ValueError, TypeError, AssertionError):
            continue
    return ""


def _fragments(layout: Any, tv: str) -> dict[str, object]:
    """Return a (thread, value) layout over a matrix, as an instruction's operand is sent."""
    try:
        rows, cols = (int(word) for word in tv.split(","))
    except ValueError:
        raise LanewiseError(f"{tv[:40]!r} is no size of a matrix: write rows,columns, as in 16,8") from None
    if rank(layout) != 2 or not 0 < rows * cols <= MOST_CELLS or layout.size() > MOST_CELLS:
        raise LanewiseError(f"a (thread, value) layout has two modes and up to {MOST_CELLS} elements")
    threads, values = size(layout.shape[0]), size(layout.shape[1])
    held = []
    for thread in range(threads):
        line = []
        for value in range(values):
            index = layout(thread, value)
            if not isinstance(index, int) or not 0 <= index < rows * cols:
                raise LanewiseError(
                    f"thread {thread}, value {value} leads to {index}, outside of {rows}×{cols}"
                )
            line.append(index % rows * cols + index // rows)
        held.append(line)
    return {
        "threads": threads,
        "products": 1,
        "multiplies": False,
        "rows": None,
        "operands": [
            {
                "key": "d", "name": "matrix", "rows": rows, "cols": cols, "row_axis": "m", "col_axis": "n",
                "format": "", "registers": values, "slots": 1, "at": (2, 3), "held": {"all": held},
            }
        ],
    }  # fmt: skip
