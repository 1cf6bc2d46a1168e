"""Why no GPU would launch a kernel in a shape: grids and blocks beyond all limits, or the kernel's own."""

from __future__ import annotations

from lanewise.isa.launch_limits import LARGEST_BLOCK, LARGEST_GRID, MOST_THREADS
from lanewise.ptx.launch_shape import Shape
from lanewise.ptx.model.function import Function


def shape_refusals(function: Function, shape: Shape) -> list[str]:
    """Why no GPU would launch a kernel in such a shape; empty if one would."""
    found = []
    for what, sizes, largest in (
        ("a grid", shape.grid, LARGEST_GRID),
        ("a block", shape.block, LARGEST_BLOCK),
    ):
        if any(size > most for size, most in zip(sizes, largest, strict=True)):
            found.append(f"{what} is at most {largest}, not {sizes}")
    if shape.threads > MOST_THREADS:
        found.append(f"a block has at most {MOST_THREADS} threads; {shape.block} has {shape.threads}")
    for limit, wanted in (("maxntid", "at most"), ("reqntid", "exactly")):
        values = function.limit(limit)
        if values is None:
            continue
        full = (*values, 1, 1)[:3]
        product = full[0] * full[1] * full[2]
        if (limit == "reqntid" and shape.block != full) or shape.threads > product:
            found.append(
                f"{function.name} says .{limit} {full}: {wanted} {product} threads a block, not {shape.block}"
            )
    return found
