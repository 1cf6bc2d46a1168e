"""Integer arithmetic: add to szext, carry chains, dot products of bytes.

Division by zero and the one quotient that overflows are settled before the processor sees them.
"""

from __future__ import annotations

from lanewise.jit.simd import Kind, Type, Value
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes, intrinsic, type_of
from lanewise.machine.program.ops import Op

U32, I32, U64, I64 = Type("u", 32), Type("i", 32), Type("u", 64), Type("i", 64)


def operands(lanes: Lanes, op: Op, type: Type, count: int | None = None) -> list[Value]:
    """The sources of an instruction, all of one type."""
    sources = op.operands[1:] if count is None else op.operands[1 : 1 + count]
    return [lanes.read(each, type) for each in sources]


def is_float(op: Op) -> bool:
    """Whether an instruction computes with floating-point numbers."""
    return any(name.startswith(("f", "bf", "tf")) for name in op.types)


def integer_type(op: Op) -> Type:
    """The type of an integer instruction."""
    found = op.types
    if not found:
        raise op.unsupported("it names no type")
    return type_of(found[-1])


def halves(word: Value, kind: Kind = "u") -> tuple[Value, Value]:
    """A 32-bit word as two 16-bit ones, low first."""
    narrow = Type(kind, 16)
    return word.to(Type("u", 16)).to(narrow), (word >> 16).to(Type("u", 16)).to(narrow)


def joined(low: Value, high: Value) -> Value:
    """Two 16-bit words as one of 32 bits."""
    low, high = (each.to(Type("u", 16)).to(U32) for each in (low, high))
    return low | (high << 16)


def clamped(value: Value, low: int, high: int) -> Value:
    """Signed numbers kept within bounds."""
    low_value, high_value = (value.code.constant(value.type, bound) for bound in (low, high))
    return intrinsic("smin", intrinsic("smax", value, low_value), high_value)


def in_halves(lanes: Lanes, op: Op, compute: object) -> bool:
    """u16x2 and s16x2: the instruction on both halves. Whether it was one of those."""
    found = op.types
    if not found or found[-1] not in ("u16x2", "s16x2"):
        return False
    kind: Kind = "i" if found[-1] == "s16x2" else "u"
    words = [lanes.read(each, U32) for each in op.operands[1:]]
    parts = [halves(word, kind) for word in words]
    assert callable(compute)
    lanes.write(op.operands[0], joined(*(compute(*each) for each in zip(*parts, strict=True))))
    return True


def add_sub(lanes: Lanes, op: Op) -> None:
    """add and sub of integers, with .sat; .cc is `addc`'s business."""
    subtract = op.opcode == "sub"
    if in_halves(lanes, op, lambda a, b: a - b if subtract else a + b):
        return
    type = integer_type(op)
    a, b = operands(lanes, op, type)
    if op.has("cc"):
        carry_out(lanes, a, b, lanes.constant(BOOL, 1 if subtract else 0), subtract, op)
    elif op.has("sat"):
        lanes.write(op.operands[0], intrinsic("ssub.sat" if subtract else "sadd.sat", a, b))
    else:
        lanes.write(op.operands[0], a - b if subtract else a + b)


def carry_out(lanes: Lanes, a: Value, b: Value, carry: Value, subtract: bool, op: Op) -> None:
    """a + b + carry, or a + ~b + carry; the carry goes to the condition register if asked for."""
    unsigned = Type("u", a.type.bits)
    a, b = a.view(unsigned), b.view(unsigned)
    b = ~b if subtract else b
    first = a + b
    total = first + carry.to(unsigned)
    over = (a > first) | (first > total)
    lanes.write(op.operands[0], total)
    if op.has("cc"):
        write_carry(lanes, over)


def write_carry(lanes: Lanes, carry: Value) -> None:
    """Keep the carry flag: a predicate register of its own."""
    lanes.write(lanes.carry, carry)


def read_carry(lanes: Lanes) -> Value:
    """The carry flag."""
    return lanes.register(lanes.carry)


def addc(lanes: Lanes, op: Op) -> None:
    """Extended precision: subc's flag is a borrow that is not there."""
    a, b = operands(lanes, op, integer_type(op))
    carry_out(lanes, a, b, read_carry(lanes), op.opcode == "subc", op)


def wide_product(a: Value, b: Value) -> Value:
    """The product in twice the bits."""
    wide = Type(a.type.kind, a.type.bits * 2)
    return a.to(wide) * b.to(wide)


def product(op: Op, a: Value, b: Value) -> Value:
    """lo, hi or wide."""
    if op.has("wide"):
        return wide_product(a, b)
    if op.has("hi"):
        return (wide_product(a, b) >> a.type.bits).to(a.type)
    return a * b


def multiply(lanes: Lanes, op: Op) -> None:
    """mul of integers."""
    if in_halves(lanes, op, lambda a, b: a * b):
        return
    a, b = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], product(op, a, b))


def mad(lanes: Lanes, op: Op) -> None:
    """mad and madc of integers."""
    type = integer_type(op)
    a, b = operands(lanes, op, type, 2)
    found = product(op, a, b)
    c = lanes.read(op.operands[3], Type(type.kind, found.type.bits))
    if op.has("sat"):
        lanes.write(op.operands[0], intrinsic("sadd.sat", found, c))
    elif op.opcode == "madc" or op.has("cc"):
        carry = read_carry(lanes) if op.opcode == "madc" else lanes.constant(BOOL, 0)
        carry_out(lanes, found, c, carry, False, op)
    else:
        lanes.write(op.operands[0], found + c)


def mul24(lanes: Lanes, op: Op) -> None:
    """Products of 24-bit numbers: bits 31..0 or 47..16 of 48."""
    type = integer_type(op)
    a, b = ((value << 8) >> 8 for value in operands(lanes, op, type, 2))
    whole = wide_product(a, b)
    found = (whole >> 16 if op.has("hi") else whole).to(type)
    if op.opcode == "mad24":
        c = lanes.read(op.operands[3], type)
        found = intrinsic("sadd.sat", found, c) if op.has("sat") else found + c
    lanes.write(op.operands[0], found)


def sad(lanes: Lanes, op: Op) -> None:
    """c + |a - b|."""
    a, b, c = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], c + (a > b).select(a - b, b - a))


def divide(lanes: Lanes, op: Op) -> None:
    """Quotient and remainder. By zero: all ones, both, as an H200 returns them."""
    type = integer_type(op)
    a, b = operands(lanes, op, type)
    zero = b.equals(0)
    unsafe = zero
    if type.kind == "i":
        unsafe = zero | (b.equals(-1) & a.equals(-(1 << type.bits - 1)))
    divisor = unsafe.select(lanes.constant(type, 1), b)
    builder = lanes.code.builder
    if op.opcode == "div":
        method = builder.sdiv if type.kind == "i" else builder.udiv
        found = Value(lanes.code, a.type, method(a.handle, divisor.handle))
        lanes.write(op.operands[0], zero.select(lanes.constant(type, -1), found))
    else:
        method = builder.srem if type.kind == "i" else builder.urem
        found = Value(lanes.code, a.type, method(a.handle, divisor.handle))
        lanes.write(op.operands[0], zero.select(lanes.constant(type, -1), found))


def absolute(lanes: Lanes, op: Op) -> None:
    """abs of integers: the smallest stays as it is."""
    (a,) = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], a.__lt__(0).select(lanes.constant(a.type.by(1), 0) - a, a))


def negate(lanes: Lanes, op: Op) -> None:
    """neg of integers."""
    (a,) = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], lanes.constant(a.type.by(1), 0) - a)


def min_max(lanes: Lanes, op: Op) -> None:
    """min and max of integers, with .relu."""

    def pick(a: Value, b: Value) -> Value:
        found = (a > b).select(a, b) if op.opcode == "max" else (a > b).select(b, a)
        if op.has("relu"):
            found = (found > 0).select(found, 0)
        return found

    if in_halves(lanes, op, pick):
        return
    lanes.write(op.operands[0], pick(*operands(lanes, op, integer_type(op))))


def count(lanes: Lanes, op: Op) -> None:
    """Counts and reversal of bits."""
    (a,) = operands(lanes, op, integer_type(op))
    if op.opcode == "clz":
        found = intrinsic("ctlz", a, extra=(lanes.code.constant(BOOL, 0),))
    else:
        found = intrinsic("ctpop" if op.opcode == "popc" else "bitreverse", a)
    lanes.write(op.operands[0], found)


def bfind(lanes: Lanes, op: Op) -> None:
    """The most significant bit that is not a sign bit; with .shiftamt, how far to shift it up; or -1."""
    type = integer_type(op)
    (a,) = operands(lanes, op, type)
    bits = a.view(Type("u", type.bits))
    if type.kind == "i":
        bits = (a >> (type.bits - 1)).view(Type("u", type.bits)) ^ bits
    zeros = intrinsic("ctlz", bits, extra=(lanes.code.constant(BOOL, 0),))
    place = zeros if op.has("shiftamt") else (type.bits - 1) - zeros
    found = bits.equals(0).select(lanes.constant(U32, -1), place.to(U32))
    lanes.write(op.operands[0], found)


def dot(lanes: Lanes, op: Op) -> None:
    """Dot products of four bytes, or of two halves and two bytes, added to c."""
    kinds = [modifier for modifier in op.modifiers if modifier in ("s32", "u32")]
    if len(kinds) != 2:
        raise op.unsupported("it names two types, each .u32 or .s32")
    signed = [kind == "s32" for kind in kinds]
    a, b, c = (lanes.read(each, U32) for each in op.operands[1:4])

    def part(word: Value, place: int, bits: int, sign: bool) -> Value:
        up = 32 - bits * (place + 1)
        moved = (word << up).view(I32 if sign else U32)
        return (moved >> (32 - bits)).view(U32)

    total = c
    width, terms = (8, 4) if op.opcode == "dp4a" else (16, 2)
    first = 2 if op.opcode == "dp2a" and op.has("hi") else 0
    for place in range(terms):
        total = total + part(a, place, width, signed[0]) * part(b, first + place, 8, signed[1])
    lanes.write(op.operands[0], total)
