"""What functions in the restricted Python may call: bits of numbers, lanes of vectors, addresses."""

from typing import TypeVar, overload

from lanewise.jit import ir
from lanewise.jit.compiled_functions import CONDITION, primitive, signature_only
from lanewise.jit.record_layout import LANES, Conditions, Numbers, RecordLayout, Table, Vector
from lanewise.jit.simd import Code, Type, Value, i64, u32

V = TypeVar("V", bound=Vector)


@primitive(lambda code, mask: code.intrinsic("ctpop", i64, [mask]))
def count_bits(mask: int) -> int:
    """Return how many bits of a number are set."""
    signature_only()


@primitive(lambda code, mask: code.intrinsic("cttz", i64, [mask, code.constant(CONDITION, 0)]))
def lowest_bit(mask: int) -> int:
    """Return the lowest bit that is set in a number; 64 if none is."""
    signature_only()


@primitive(lambda code, a, b: Value(code, CONDITION, code.builder.icmp_unsigned("<", a.handle, b.handle)))
def unsigned_less(a: int, b: int) -> bool:
    """Return whether a is below b, both as numbers without a sign: then a is not negative either."""
    signature_only()


@primitive(lambda code, conditions: conditions.any())
def any_lane(conditions: Conditions) -> bool:
    """Return whether a condition holds in some lane."""
    signature_only()


def _mask(code: Code, conditions: Value) -> Value:
    return (
        Value(code, u32, code.builder.bitcast(conditions.handle, ir.IntType(LANES))).to(Type("u", 64)).to(i64)
    )


@primitive(_mask)
def mask_of(conditions: Conditions) -> int:
    """Return the lanes in which a condition holds, as bits."""
    signature_only()


def _lanes(code: Code, mask: Value) -> Value:
    vector = ir.VectorType(ir.IntType(1), LANES)
    return Value(code, CONDITION.by(LANES), code.builder.bitcast(mask.to(u32).handle, vector))


@primitive(_lanes)
def lanes_in(mask: int) -> Conditions:
    """Return for each lane whether its bit is set in a mask."""
    signature_only()


def set_bits(mask: int) -> list[int]:
    """In `for lane in set_bits(mask)`: the bits that are set in a number, from the lowest on."""
    raise TypeError("only compiled functions loop over bits")


def address_of(record: RecordLayout | Table[RecordLayout] | Numbers) -> int:
    """Return the address of a record, or of the first element of an array; 0 if there is none."""
    raise TypeError("only compiled functions have records")


@overload
def choose(conditions: Conditions, yes: V, no: V | int) -> V: ...


@overload
def choose(conditions: Conditions, yes: int, no: V) -> V: ...


def choose(conditions: Conditions, yes: V | int, no: V | int) -> V:
    """Return a vector: of `yes` in the lanes where a condition holds, else of `no`."""
    raise TypeError("only compiled functions have vectors")


def joined(a: V, b: V | int) -> V:
    """Return the join of two vectors: in each lane the larger element."""
    raise TypeError("only compiled functions have vectors")


def smallest(vector: Vector) -> int:
    """Return the smallest element of a vector."""
    raise TypeError("only compiled functions have vectors")


def largest(vector: Vector) -> int:
    """Return the largest element of a vector."""
    raise TypeError("only compiled functions have vectors")
