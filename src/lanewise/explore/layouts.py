"""Questions of the room Layouts: an expression of the algebra as a table of indices, and its banks."""

from typing import Any

from lanewise.draw.layouts import indices_of
from lanewise.errors import LanewiseError
from lanewise.explore.answers import question
from lanewise.explore.bank_access import access_of, proposals_for
from lanewise.explore.expressions import FUNCTIONS, MOST_LETTERS, evaluate
from lanewise.layout import ComposedLayout, Layout, Swizzle, left_inverse, rank, right_inverse, size
from lanewise.layout.int_tuple import spell

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
