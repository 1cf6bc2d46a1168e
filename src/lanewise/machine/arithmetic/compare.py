"""Lowerings of comparisons and selections: set, setp, selp, slct."""

from lanewise.jit.simd import Type, Value, f32, f64
from lanewise.machine.arithmetic.integer import U32, halves
from lanewise.machine.arithmetic.small_floats import flush, flush_half, is_nan, widen
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes, type_of
from lanewise.machine.program.operands import Sink, elements_of
from lanewise.machine.program.ops import Op

_INTEGER = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_FLOAT = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS = {*_INTEGER, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}


def compare(op: Op, name: str, a: Value, b: Value) -> Value:
    """Return the comparison in every lane; NaN makes ordered ones false and unordered ones true."""
    builder, result = a.code.builder, BOOL.by(a.type.lanes)
    if a.type.kind == "f":
        if name in ("num", "nan"):
            either = is_nan(a) | is_nan(b)
            return either if name == "nan" else ~either
        if name in _FLOAT:
            return Value(a.code, result, builder.fcmp_ordered(_FLOAT[name], a.handle, b.handle))
        if name[:-1] in _FLOAT and name.endswith("u"):
            return Value(a.code, result, builder.fcmp_unordered(_FLOAT[name[:-1]], a.handle, b.handle))
        raise op.unsupported(f".{name} of floats")
    signed = a.type.kind == "i" and name not in ("lo", "ls", "hi", "hs")
    if name not in _INTEGER:
        raise op.unsupported(f".{name} of integers")
    method = builder.icmp_signed if signed else builder.icmp_unsigned
    return Value(a.code, result, method(_INTEGER[name], a.handle, b.handle))


def _operands(lanes: Lanes, op: Op, fmt: str) -> tuple[Value, Value]:
    """Return the two compared operands as numbers: 16-bit floats widened to f32, .ftz applied."""
    sources = op.operands[1:3]
    if fmt in ("f16", "bf16"):
        words = [lanes.read(source, Type("u", 16)) for source in sources]
        if op.has("ftz") and fmt == "f16":
            words = [flush_half(word) for word in words]
        return widen(words[0], fmt), widen(words[1], fmt)
    type = f32 if fmt == "f32" else f64 if fmt == "f64" else type_of(fmt)
    a, b = (lanes.number(source, type) for source in sources)
    if op.has("ftz") and fmt == "f32":
        a, b = flush(a), flush(b)
    return a, b


def _combined(lanes: Lanes, op: Op, comparison: Value) -> Value:
    """Combine a comparison with the third operand, a predicate, by .and, .or or .xor if there is one."""
    if len(op.operands) < 4:
        return comparison
    third = lanes.read(op.operands[3], BOOL)
    method = op.one_of(("and", "or", "xor"), "a predicate without .and, .or or .xor")
    return {"and": comparison & third, "or": comparison | third, "xor": comparison ^ third}[method]


def _compared_halves(lanes: Lanes, op: Op, fmt: str) -> list[Value]:
    """Return the comparison of the lower and of the upper halves of packed floats."""
    name = op.one_of(COMPARISONS, "it names no comparison")
    pairs = [halves(lanes.read(operand, U32)) for operand in op.operands[1:3]]
    results = []
    for side in (0, 1):
        words = [pair[side] for pair in pairs]
        if op.has("ftz") and fmt == "f16x2":
            words = [flush_half(word) for word in words]
        a, b = (widen(word, fmt.removesuffix("x2")) for word in words)
        results.append(_combined(lanes, op, compare(op, name, a, b)))
    return results


def setp(lanes: Lanes, op: Op) -> None:
    """Lower setp: p gets the comparison, q its opposite; for packed types they belong to the two halves."""
    fmt = op.types[-1]
    first, *second = elements_of(op.operands[0])
    if fmt in ("f16x2", "bf16x2"):
        results = _compared_halves(lanes, op, fmt)
        lanes.write(first, results[0])
        if second:
            lanes.write(second[0], results[1])
        return
    raw = compare(op, op.one_of(COMPARISONS, "it names no comparison"), *_operands(lanes, op, fmt))
    result, opposite = _combined(lanes, op, raw), _combined(lanes, op, ~raw)
    lanes.write(first, result)
    if second and not isinstance(second[0], Sink):
        lanes.write(second[0], opposite)


def set_(lanes: Lanes, op: Op) -> None:
    """Lower set: all ones or 1.0 where the comparison holds, else zero."""
    result, fmt = op.types[0], op.types[-1]
    if fmt in ("f16x2", "bf16x2"):
        word = lanes.constant(U32, 0)
        one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(result, 0xFFFF)
        for side, holds in enumerate(_compared_halves(lanes, op, fmt)):
            word = word | holds.select(lanes.constant(U32, one << 16 * side), 0)
        lanes.write(op.operands[0], word)
        return
    name = op.one_of(COMPARISONS, "it names no comparison")
    outcome = _combined(lanes, op, compare(op, name, *_operands(lanes, op, fmt)))
    if result == "f32":
        lanes.write(op.operands[0], outcome.select(lanes.constant(f32, 1.0), 0.0))
    elif result in ("f16", "bf16"):
        one = 0x3C00 if result == "f16" else 0x3F80
        lanes.write(op.operands[0], outcome.select(lanes.constant(Type("u", 16), one), 0))
    else:
        lanes.write(op.operands[0], outcome.select(lanes.constant(type_of(result), -1), 0))


def selp(lanes: Lanes, op: Op) -> None:
    """Lower selp: a where the predicate holds, else b."""
    type = type_of(op.types[-1])
    a, b = (lanes.read(operand, type) for operand in op.operands[1:3])
    lanes.write(op.operands[0], lanes.read(op.operands[3], BOOL).select(a, b))


def slct(lanes: Lanes, op: Op) -> None:
    """Lower slct: a where c is not negative, else b."""
    chosen, tested = op.types[0], op.types[-1]
    type = type_of(chosen)
    a, b = (lanes.read(operand, type) for operand in op.operands[1:3])
    if tested == "f32":
        c = lanes.read(op.operands[3], f32)
        c = flush(c) if op.has("ftz") else c
        builder = lanes.code.builder
        zero = lanes.constant(f32, 0.0)
        condition = Value(lanes.code, BOOL.by(lanes.count), builder.fcmp_ordered(">=", c.handle, zero.handle))
    else:
        condition = ~(lanes.read(op.operands[3], Type("i", 32)) < 0)
    lanes.write(op.operands[0], condition.select(a, b))
