"""Products of fragments: mma_sync with its saturation, bmma_sync, and the rounding of f32 to tf32.

The instructions are the catalogue's, emitted by `matrix/emit.py`.
"""

from typing import Any

from lanewise.formats import b1, f16, f32, f64, s32
from lanewise.isa import Instruction
from lanewise.lang.matrix.emit import multiply, require
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.compare import where
from lanewise.lang.trace.convert import bitcast
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.types import u32
from lanewise.lang.wmma.fragment import fragment, given_fragment
from lanewise.lang.wmma.names import (
    ORDERS,
    accumulator,
    bmmaAccumulateOpPOPC,
    bmmaBitOpAND,
    bmmaBitOpXOR,
    find,
    matrix_a,
    matrix_b,
)


def _operands(
    d: object, a: object, b: object, c: object, what: str
) -> tuple[fragment, fragment, fragment, fragment]:
    """Return the four fragments of a product; an error unless they fit together."""
    fragments = tuple(given_fragment(given, what) for given in (d, a, b, c))
    builder = current()
    for held, use in zip(fragments, (accumulator, matrix_a, matrix_b, accumulator), strict=True):
        if held.use is not use:
            raise builder.error(f"{what}(d, a, b, c): {held} is given where {use.name} belongs")
        if (held.m, held.n, held.k) != (fragments[1].m, fragments[1].n, fragments[1].k):
            raise builder.error(f"{what}: {held} and {fragments[1]} are of different shapes")
    for held in fragments[1:]:
        held.require_filled("it is multiplied")
    if fragments[1].dtype != fragments[2].dtype:
        raise builder.error(f"{what}: {fragments[1]} and {fragments[2]} are of different formats")
    return fragments[0], fragments[1], fragments[2], fragments[3]


def _multiply(inst: Instruction, d: fragment, a: fragment, b: fragment, c: fragment) -> None:
    """Emit a product and put its result into D."""
    require(inst)
    given = [
        Fragment(inst.operands[name], list(fragment_.registers))
        for name, fragment_ in (("a", a), ("b", b), ("c", c))
    ]
    d.registers[:] = multiply(inst, *given).registers
    d.filled = True


def mma_sync(d: object, a: object, b: object, c: object, satf: bool = False) -> None:
    """Set D to A·B + C. With `satf`, integers saturate; floats turn ±Inf into ±MAX_NORM and NaN into +0."""
    what = "mma_sync"
    to, left, right, start = _operands(d, a, b, c, what)
    if left.dtype is b1:
        raise current().error(f"{what}: b1 matrices are multiplied by bmma_sync")
    orders = f"{ORDERS[left.layout]}.{ORDERS[right.layout]}"
    types = [to.dtype, *([] if left.dtype is f16 else [left.dtype, right.dtype]), start.dtype]
    whole = to.dtype is s32
    names = ".".join(fmt.name for fmt in types)
    text = f"wmma.mma.sync.aligned.{orders}.{left.shape}.{names}{'.satfinite' if satf and whole else ''}"
    if satf and to.dtype is f64:
        raise current().error(f"{what}: f64 sums do not saturate: leave satf out")
    _multiply(find(text, what), to, left, right, start)
    if satf and not whole:
        _saturate(to)


def _saturate(held: fragment) -> None:
    """Saturate floats as the programming guide defines satf: PTX had a modifier for it until 6.4."""
    largest = {f32: float.fromhex("0x1.fffffep127"), f16: 65504.0}[held.dtype]
    for number in range(held.num_elements):
        value = held.x[number].to(f32)
        value = where(value > largest, largest, where(value < -largest, -largest, value))
        held.x[number] = where(value == value, value, 0.0).to(held.dtype)


def bmma_sync(
    d: object,
    a: object,
    b: object,
    c: object,
    bmmaBitOp: Any = bmmaBitOpXOR,
    bmmaAccumulateOp: object = bmmaAccumulateOpPOPC,
) -> None:
    """Set D to popc(A xor B) + C for matrices of bits, or with `and` (bmmaBitOpAND, sm_80 on)."""
    what = "bmma_sync"
    to, left, right, start = _operands(d, a, b, c, what)
    if left.dtype is not b1:
        raise current().error(f"{what} multiplies b1 matrices; {left} is for mma_sync")
    if bmmaAccumulateOp is not bmmaAccumulateOpPOPC:
        raise current().error(f"{what}: the only sum is wmma.bmmaAccumulateOpPOPC, not {bmmaAccumulateOp!r}")
    operation = {bmmaBitOpXOR: "xor", bmmaBitOpAND: "and"}.get(bmmaBitOp)
    if operation is None:
        raise current().error(f"{what}: wmma.bmmaBitOpXOR or wmma.bmmaBitOpAND, not {bmmaBitOp!r}")
    text = f"wmma.mma.{operation}.popc.sync.aligned.row.col.{left.shape}.s32.b1.b1.s32"
    _multiply(find(text, what), to, left, right, start)


def float_to_tf32(x: object) -> Scalar:
    """Return an f32 rounded to the nearest tf32, ties away from zero; it stays an f32."""
    value = scalar(x, f32, "float_to_tf32")
    current().need("cvt.rna.tf32.f32", 80, "7.0")
    return bitcast(Scalar(u32, current().define("cvt.rna.tf32.f32", "b32", value.in_register)), f32)
