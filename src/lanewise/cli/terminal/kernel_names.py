"""Names of C++ kernels in a table or beside a bar: template arguments fill pages, so they are folded."""

#: The most columns of a kernel's name in a table.
COLUMNS = 100
_OPENING, _CLOSING = "<(", ">)"


def folded(name: str, room: int) -> str:
    """Return a name in so many columns: inner template arguments and parameters become "…".

    As few levels are folded as fit; a name that is still too long is cut at its end.

    >>> folded("void run<Gemm<Shape<64, 64>, float>>(Gemm<Shape<64, 64>, float>::Params)", 40)
    'void run<Gemm<…>>(Gemm<…>::Params)'
    >>> folded("void run<Gemm<Shape<64, 64>, float>>(Gemm<Shape<64, 64>, float>::Params)", 20)
    'void run<…>(…)'
    >>> folded("saxpy", 20)
    'saxpy'
    """
    depth = _depth(name)
    while len(name) > room and depth:
        depth -= 1
        name = _folded_below(name, depth)
    return name if len(name) <= room else name[: max(0, room - 1)] + "…"


def _steps(name: str) -> list[int]:
    """Return how each character changes the depth of brackets; nothing changes it where they are no pairs."""
    steps = [(letter in _OPENING) - (letter in _CLOSING) for letter in name]
    balance = 0
    for step in steps:
        balance += step
        if balance < 0:
            break
    return steps if balance == 0 else [0] * len(name)


def _depth(name: str) -> int:
    """Return how many levels of arguments a name has."""
    depth = deepest = 0
    for step in _steps(name):
        depth += step
        deepest = max(deepest, depth)
    return deepest


def _folded_below(name: str, level: int) -> str:
    """Return a name with "…" in place of what lies deeper than a level."""
    kept: list[str] = []
    depth = 0
    for letter, step in zip(name, _steps(name), strict=True):
        if step < 0:
            depth -= 1
        if depth <= level:
            kept.append(letter)
            if step > 0 and depth == level:
                kept.append("…")
        if step > 0:
            depth += 1
    return "".join(kept)
