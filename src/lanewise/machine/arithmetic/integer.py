"""Lowerings of integer arithmetic: add to szext, carry chains, dot products of bytes.

Division by zero and the one quotient that overflows never reach the host's division, which would trap.
"""

from lanewise.jit.simd import Kind, Type, Value
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes, intrinsic, type_of
from lanewise.machine.program.ops import Op

#: Types of integers, bits and conditions; those of 128 bits are only moved.
WORD_TYPES = frozenset(("pred", *(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64))))
U32, I32, U64 = Type("u", 32), Type("i", 32), Type("u", 64)


def operands(lanes: Lanes, op: Op, type: Type, count: int | None = None) -> list[Value]:
    """Return the source operands of an instruction, all read as one type."""
    sources = op.operands[1:] if count is None else op.operands[1 : 1 + count]
    return [lanes.read(source, type) for source in sources]


def is_float(op: Op) -> bool:
    """Return whether an instruction computes with floating-point numbers."""
    return any(name.startswith(("f", "bf", "tf")) for name in op.types)


def integer_type(op: Op) -> Type:
    """Return the type of an integer instruction, which is the last one that it names."""
    types = op.types
    if not types:
        raise op.unsupported("it names no type")
    if types[-1] not in WORD_TYPES:
        raise op.unsupported(f"it is not of .{types[-1]}")
    return type_of(types[-1])


def halves(word: Value, kind: Kind = "u") -> tuple[Value, Value]:
    """Split a 32-bit word into two 16-bit words, the low one first."""
    narrow = Type(kind, 16)
    return word.to(Type("u", 16)).to(narrow), (word >> 16).to(Type("u", 16)).to(narrow)


def joined(low: Value, high: Value) -> Value:
    """Pack two 16-bit words into one of 32 bits."""
    low, high = (half.to(Type("u", 16)).to(U32) for half in (low, high))
    return low | (high << 16)


def clamped(value: Value, low: int, high: int) -> Value:
    """Clamp signed numbers to bounds."""
    low_value, high_value = (value.code.constant(value.type, bound) for bound in (low, high))
    return intrinsic("smin", intrinsic("smax", value, low_value), high_value)


def in_halves(lanes: Lanes, op: Op, compute: object) -> bool:
    """Apply `compute` to both halves if the type is u16x2 or s16x2; return whether it is one of them."""
    types = op.types
    if not types or types[-1] not in ("u16x2", "s16x2"):
        return False
    kind: Kind = "i" if types[-1] == "s16x2" else "u"
    words = [lanes.read(operand, U32) for operand in op.operands[1:]]
    pairs = [halves(word, kind) for word in words]
    assert callable(compute)
    lanes.write(op.operands[0], joined(*(compute(*pair) for pair in zip(*pairs, strict=True))))
    return True


def add_sub(lanes: Lanes, op: Op) -> None:
    """Lower add and sub of integers, with .sat and with the carry-out of .cc."""
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
    """Write a + b + carry, or a + ~b + carry; with .cc the carry goes to the condition-code register."""
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
    """Write the carry flag, which is kept in a predicate register of its own."""
    lanes.write(lanes.carry, carry)


def read_carry(lanes: Lanes) -> Value:
    """Return the carry flag of each lane."""
    return lanes.register(lanes.carry)


def addc(lanes: Lanes, op: Op) -> None:
    """Lower addc and subc; subc's carry flag is an inverted borrow."""
    a, b = operands(lanes, op, integer_type(op))
    carry_out(lanes, a, b, read_carry(lanes), op.opcode == "subc", op)


def wide_product(a: Value, b: Value) -> Value:
    """Return the product in twice the bits."""
    wide = Type(a.type.kind, a.type.bits * 2)
    return a.to(wide) * b.to(wide)


def product(op: Op, a: Value, b: Value) -> Value:
    """Return the product that .lo, .hi or .wide asks for."""
    if op.has("wide"):
        return wide_product(a, b)
    if op.has("hi"):
        return (wide_product(a, b) >> a.type.bits).to(a.type)
    return a * b


def multiply(lanes: Lanes, op: Op) -> None:
    """Lower mul of integers, in halves for packed types."""
    if in_halves(lanes, op, lambda a, b: a * b):
        return
    a, b = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], product(op, a, b))


def mad(lanes: Lanes, op: Op) -> None:
    """Lower mad and madc of integers."""
    type = integer_type(op)
    a, b = operands(lanes, op, type, 2)
    result = product(op, a, b)
    c = lanes.read(op.operands[3], Type(type.kind, result.type.bits))
    if op.has("sat"):
        lanes.write(op.operands[0], intrinsic("sadd.sat", result, c))
    elif op.opcode == "madc" or op.has("cc"):
        carry = read_carry(lanes) if op.opcode == "madc" else lanes.constant(BOOL, 0)
        carry_out(lanes, result, c, carry, False, op)
    else:
        lanes.write(op.operands[0], result + c)


def mul24(lanes: Lanes, op: Op) -> None:
    """Lower mul24 and mad24: bits 31..0 or 47..16 of a 48-bit product."""
    type = integer_type(op)
    a, b = ((value << 8) >> 8 for value in operands(lanes, op, type, 2))
    whole = wide_product(a, b)
    result = (whole >> 16 if op.has("hi") else whole).to(type)
    if op.opcode == "mad24":
        c = lanes.read(op.operands[3], type)
        result = intrinsic("sadd.sat", result, c) if op.has("sat") else result + c
    lanes.write(op.operands[0], result)


def sad(lanes: Lanes, op: Op) -> None:
    """Lower sad: c + |a - b|."""
    a, b, c = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], c + (a > b).select(a - b, b - a))


def divide(lanes: Lanes, op: Op) -> None:
    """Lower div and rem. Division by zero gives all ones for both (measured on an H200)."""
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
        quotient = Value(lanes.code, a.type, method(a.handle, divisor.handle))
        lanes.write(op.operands[0], zero.select(lanes.constant(type, -1), quotient))
    else:
        method = builder.srem if type.kind == "i" else builder.urem
        quotient = Value(lanes.code, a.type, method(a.handle, divisor.handle))
        lanes.write(op.operands[0], zero.select(lanes.constant(type, -1), quotient))


def absolute(lanes: Lanes, op: Op) -> None:
    """Lower abs of integers; the smallest number stays as it is."""
    (a,) = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], a.__lt__(0).select(lanes.constant(a.type.by(1), 0) - a, a))


def negate(lanes: Lanes, op: Op) -> None:
    """Lower neg of integers."""
    (a,) = operands(lanes, op, integer_type(op))
    lanes.write(op.operands[0], lanes.constant(a.type.by(1), 0) - a)


def min_max(lanes: Lanes, op: Op) -> None:
    """Lower min and max of integers, with .relu."""
    if len(op.operands) > 3:
        raise op.unsupported("it compares three numbers for .f32 alone")

    def pick(a: Value, b: Value) -> Value:
        picked = (a > b).select(a, b) if op.opcode == "max" else (a > b).select(b, a)
        if op.has("relu"):
            picked = (picked > 0).select(picked, 0)
        return picked

    if in_halves(lanes, op, pick):
        return
    lanes.write(op.operands[0], pick(*operands(lanes, op, integer_type(op))))


def count(lanes: Lanes, op: Op) -> None:
    """Lower popc, clz and brev: counts of bits, and their reversal."""
    (a,) = operands(lanes, op, integer_type(op))
    if op.opcode == "clz":
        result = intrinsic("ctlz", a, extra=(lanes.code.constant(BOOL, 0),))
    else:
        result = intrinsic("ctpop" if op.opcode == "popc" else "bitreverse", a)
    lanes.write(op.operands[0], result)


def bfind(lanes: Lanes, op: Op) -> None:
    """Lower bfind: the position of the highest bit that is no sign bit, or -1.

    With .shiftamt it is the shift that moves this bit to the top.
    """
    type = integer_type(op)
    (a,) = operands(lanes, op, type)
    bits = a.view(Type("u", type.bits))
    if type.kind == "i":
        bits = (a >> (type.bits - 1)).view(Type("u", type.bits)) ^ bits
    zeros = intrinsic("ctlz", bits, extra=(lanes.code.constant(BOOL, 0),))
    position = zeros if op.has("shiftamt") else (type.bits - 1) - zeros
    result = bits.equals(0).select(lanes.constant(U32, -1), position.to(U32))
    lanes.write(op.operands[0], result)


def dot(lanes: Lanes, op: Op) -> None:
    """Lower dp4a and dp2a: a dot product of four bytes, or of two halves and two bytes, added to c."""
    kinds = [modifier for modifier in op.modifiers if modifier in ("s32", "u32")]
    if len(kinds) != 2:
        raise op.unsupported("it names two types, each .u32 or .s32")
    signed = [kind == "s32" for kind in kinds]
    a, b, c = (lanes.read(operand, U32) for operand in op.operands[1:4])

    def element(word: Value, index: int, bits: int, sign: bool) -> Value:
        up = 32 - bits * (index + 1)
        moved = (word << up).view(I32 if sign else U32)
        return (moved >> (32 - bits)).view(U32)

    total = c
    width, terms = (8, 4) if op.opcode == "dp4a" else (16, 2)
    first = 2 if op.opcode == "dp2a" and op.has("hi") else 0
    for index in range(terms):
        total = total + element(a, index, width, signed[0]) * element(b, first + index, 8, signed[1])
    lanes.write(op.operands[0], total)
