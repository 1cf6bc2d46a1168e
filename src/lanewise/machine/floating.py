"""Floating-point arithmetic: f32 and f64 in all rounding modes, f16 and bf16 through f32.

Every NaN that an f32 instruction computes is 0x7FFFFFFF, as on GPUs; f64 ones keep a NaN operand's payload.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from lanewise.arith.float_mode import float_mode
from lanewise.arith.simd import Code, Pointer, Type, Value, f32, f64, i64
from lanewise.machine import integer
from lanewise.machine.integer import U32, U64
from lanewise.machine.lanes import Lanes, intrinsic, lowers, types
from lanewise.machine.narrow import flush, flush_half, is_nan, round_to, single_odd, to_odd, two_sum, widen
from lanewise.machine.resolve import Op

ROUNDINGS = ("rn", "rz", "rm", "rp")
#: Elements of the packed types, and how many there are.
PACKED = {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2)}


def quiet(value: Value, *sources: Value) -> Value:
    """NaN results as an H200 returns them: f64 ones are the first source that is NaN, quieted."""
    if value.type.bits == 32:
        bits = value.view(U32)
        return is_nan(value).select(value.code.constant(bits.type, 0x7FFFFFFF), bits).view(f32)
    bits = value.view(U64)
    found = value.code.constant(bits.type, 0x7FF8000000000000)
    for source in reversed(sources):
        found = is_nan(source).select(source.view(U64) | (1 << 51), found)
    return is_nan(value).select(found, bits).view(f64)


def saturate(value: Value) -> Value:
    """Clamped to 0…1; NaN becomes +0."""
    low = (value > 0.0).select(value, 0.0)
    return (low > 1.0).select(value.code.constant(value.type, 1.0), low)


def rounding_of(op: Op) -> str:
    """The rounding mode an instruction names; to nearest if none."""
    return next((modifier for modifier in op.modifiers if modifier in ROUNDINGS), "rn")


# directed rounding ----------------------------------------------------------------------------------------


def _plain(code: Code, name: str, values: list[Value]) -> Value:
    builder, handles = code.builder, [each.handle for each in values]
    match name:
        case "add":
            return values[0] + values[1]
        case "sub":
            return values[0] - values[1]
        case "mul":
            return values[0] * values[1]
        case "div":
            return Value(code, values[0].type, builder.fdiv(*handles))
        case "sqrt":
            return intrinsic("sqrt", values[0])
        case "fma":
            return intrinsic("fma", *values)
    raise KeyError(name)


def _in_mode(lanes: Lanes, name: str, values: list[Value], mode: str) -> Value:
    """An operation in a rounding mode of the processor's: in a function of its own, so that nothing moves."""
    code, type = lanes.code, values[0].type
    module = code.module
    label = f"{name}_{mode}_{type.name}"
    arguments = tuple(f"a{number}" for number in range(len(values)))
    outer = module.globals.get(label)
    if outer is None:
        inner = Code(module, f"inner_{label}", (*arguments, "out"))
        inner.function.attributes.add("noinline")
        element = type.by(1)
        loaded = [inner.pointer(each, element).load(0, type.lanes) for each in arguments]
        inner.pointer("out", element).store(_plain(inner, name, loaded))
        inner.end()
        wrapper = Code(module, label, (*arguments, "out"))
        with float_mode(wrapper, mode):
            wrapper.call(inner, **{each: wrapper[each] for each in inner.arguments})
        wrapper.end()
        wrapper.function.attributes.add("noinline")
        outer = wrapper.function
    builder = code.builder
    with builder.goto_entry_block():
        slots = [builder.alloca(type.ir) for _ in range(len(values) + 1)]
        block = builder.alloca(ir.IntType(64), len(slots))
    for value, slot in zip(values, slots, strict=False):
        builder.store(value.handle, slot)
    pointer = Pointer(code, i64, builder.bitcast(block, ir.IntType(8).as_pointer()))
    for place, slot in enumerate(slots):
        pointer.store(Value(code, i64, builder.ptrtoint(slot, ir.IntType(64))), place)
    builder.call(outer, [block])
    return Value(code, type, builder.load(slots[-1]))


def operate(lanes: Lanes, name: str, values: list[Value], mode: str) -> Value:
    """An operation on f32 or f64."""
    found = _plain(lanes.code, name, values) if mode == "rn" else _in_mode(lanes, name, values, mode)
    # Which operand's NaN comes through, as an H200 has it: b, c, a; the first of a division.
    order = values if name in ("div", "sqrt") else [*values[1:], values[0]]
    if name == "sqrt" and found.type.bits == 64:
        negative = (found.view(U64) ^ found.view(U64)) | 0xFFF8000000000000
        order = [*order, negative.view(f64)]
    return quiet(found, *order)


# small floats ---------------------------------------------------------------------------------------------


def small_operate(name: str, fmt: str, words: list[Value]) -> Value:
    """An operation on f16 or bf16 words, rounded once."""
    values = [widen(word, fmt) for word in words]
    if name == "fma":
        a, b, c = (value.to(f64) for value in values)
        total = single_odd(to_odd(*two_sum(a * b, c)))
    else:
        total = _plain(words[0].code, name, values)
    return round_to(total, fmt)


def each_half(lanes: Lanes, op: Op, fmt: str, compute: Any) -> None:
    """The instruction on 16-bit words, or on both halves of 32-bit ones."""
    element, count = PACKED.get(fmt, (fmt, 1))
    if count == 1:
        words = [lanes.read(each, Type("u", 16)) for each in op.operands[1:]]
        lanes.write(op.operands[0], compute(element, words))
        return
    pairs = [integer.halves(lanes.read(each, U32)) for each in op.operands[1:]]
    low, high = (compute(element, [pair[side] for pair in pairs]) for side in (0, 1))
    lanes.write(op.operands[0], integer.joined(low, high))


def float_type(op: Op) -> str:
    """The floating-point type of an instruction."""
    found = types(op)
    return found[0] if found else ""


def _general(lanes: Lanes, op: Op, name: str) -> None:
    """add, sub, mul, fma."""
    fmt = float_type(op)
    if len(set(types(op))) > 1:
        _mixed(lanes, op, name)
        return
    if fmt in ("f16", "bf16", "f16x2", "bf16x2"):

        def compute(element: str, words: list[Value]) -> Value:
            ftz = op.has("ftz") and element == "f16"
            words = [flush_half(word) for word in words] if ftz else words
            found = small_operate(name, element, words)
            found = flush_half(found) if ftz else found
            if op.has("sat"):
                found = round_to(saturate(widen(found, element)), element)
            if op.has("relu"):
                negative = (found > 0x8000 - 1) & ~(is_nan(widen(found, element)))
                found = negative.select(found ^ found, found)
            return found

        each_half(lanes, op, fmt, compute)
        return
    if fmt == "f32x2":
        words = [lanes.read(each, U64) for each in op.operands[1:]]
        found = []
        for side in (0, 32):
            parts = [(word >> side).to(U32).view(f32) for word in words]
            found.append(
                _finish(op, operate(lanes, name, [_start(op, part) for part in parts], rounding_of(op)))
            )
        low, high = (each.view(U32).to(U64) for each in found)
        lanes.write(op.operands[0], low | (high << 32))
        return
    type = f32 if fmt == "f32" else f64
    values = [_start(op, lanes.read(each, type)) for each in op.operands[1:]]
    lanes.write(op.operands[0], _finish(op, operate(lanes, name, values, rounding_of(op))))


def _mixed(lanes: Lanes, op: Op, name: str) -> None:
    """f32 arithmetic with a 16-bit operand (add.f32.f16 and its kin)."""
    found = types(op)
    if found[0] != "f32" or any(each not in ("f16", "bf16") for each in found[1:]):
        raise op.unsupported("of these types")
    count = {"fma": 2}.get(name, 1)
    sources = list(op.operands[1:])
    values = [
        widen(lanes.read(each, Type("u", 16)), found[1]) if place < count else lanes.read(each, f32)
        for place, each in enumerate(sources)
    ]
    lanes.write(op.operands[0], _finish(op, operate(lanes, name, values, rounding_of(op))))


def _start(op: Op, value: Value) -> Value:
    return flush(value) if op.has("ftz") and value.type.bits == 32 else value


def _finish(op: Op, value: Value) -> Value:
    value = flush(value) if op.has("ftz") and value.type.bits == 32 else value
    return saturate(value) if op.has("sat") else value


@lowers("add", "sub")
def add(lanes: Lanes, op: Op) -> None:
    """add and sub of every type."""
    _general(lanes, op, op.opcode) if integer.is_float(op) else integer.add_sub(lanes, op)


@lowers("mul")
def multiply(lanes: Lanes, op: Op) -> None:
    """mul of every type."""
    _general(lanes, op, "mul") if integer.is_float(op) else integer.multiply(lanes, op)


@lowers("fma")
def fma(lanes: Lanes, op: Op) -> None:
    """fma, and mad of floats."""
    _general(lanes, op, "fma")


@lowers("div")
def divide(lanes: Lanes, op: Op) -> None:
    """div of every type; .approx and .full round to nearest, which is within their error."""
    if not integer.is_float(op):
        integer.divide(lanes, op)
        return
    _general(lanes, op, "div")


@lowers("sqrt", "rcp")
def root(lanes: Lanes, op: Op) -> None:
    """sqrt and rcp; the approximate forms of f32 round to nearest, which is within their error."""
    type = f32 if float_type(op) == "f32" else f64
    value = _start(op, lanes.read(op.operands[1], type))
    values = [value] if op.opcode == "sqrt" else [lanes.constant(type, 1.0), value]
    if op.opcode == "rcp" and type is f64 and op.has("approx"):
        # The low words are zero: a 20-bit mantissa.
        value = (value.view(U64) & 0xFFFFFFFF00000000).view(f64)
        found = operate(lanes, "div", [values[0], value], "rn")
        word = found.view(U64) & 0xFFFFFFFF00000000
        lanes.write(op.operands[0], is_nan(found).select(lanes.constant(U64, 0x7FFFFFFF00000000), word))
        return
    found = operate(lanes, "div" if op.opcode == "rcp" else "sqrt", values, rounding_of(op))
    lanes.write(op.operands[0], _finish(op, found))


@lowers("rsqrt")
def inverse_root(lanes: Lanes, op: Op) -> None:
    """rsqrt.approx: through f64, within the stated error."""
    single = float_type(op) == "f32"
    value = _start(op, lanes.read(op.operands[1], f32 if single else f64))
    wide = value.to(f64)
    found = Value(
        lanes.code,
        wide.type,
        lanes.code.builder.fdiv(lanes.constant(f64, 1.0).handle, intrinsic("sqrt", wide).handle),
    )
    if single:
        found = found.to(f32)
    elif op.has("ftz"):
        found = (found.view(U64) & 0xFFFFFFFF00000000).view(f64)
    lanes.write(op.operands[0], _finish(op, quiet(found, value)))


@lowers("ex2", "lg2", "sin", "cos", "tanh")
def approximate(lanes: Lanes, op: Op) -> None:
    """Approximate functions, computed to within an ulp or so of f32 and thereby within the ISA's error."""
    names = {"ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos"}

    def function(value: Value) -> Value:
        if op.opcode == "tanh":
            return quiet(_each(value, "tanhf"))
        return quiet(intrinsic(names[op.opcode], value))

    fmt = float_type(op)
    if fmt == "f32":
        value = _start(op, lanes.read(op.operands[1], f32))
        lanes.write(op.operands[0], _finish(op, function(value)))
        return

    def compute(element: str, words: list[Value]) -> Value:
        found = round_to(function(widen(words[0], element)), element)
        return flush_half(found) if op.has("ftz") and element == "f16" else found

    each_half(lanes, op, fmt, compute)


def _each(value: Value, name: str) -> Value:
    """A function of the C library, lane by lane."""
    code, single = value.code, ir.FloatType()
    function = code.external(name, single, [single])
    found: Any = ir.Constant(value.type.ir, ir.Undefined)
    for lane in range(value.type.lanes):
        result = code.builder.call(function, [value.lane(lane).handle])
        found = code.builder.insert_element(found, result, ir.Constant(ir.IntType(32), lane))
    return Value(code, value.type, found)


@lowers("abs", "neg")
def sign(lanes: Lanes, op: Op) -> None:
    """abs and neg of every type: of floats, the sign bit alone."""
    if not integer.is_float(op):
        integer.absolute(lanes, op) if op.opcode == "abs" else integer.negate(lanes, op)
        return
    fmt = float_type(op)

    def change(word: Value, bits: int) -> Value:
        top = 1 << bits - 1
        return word & (top - 1) if op.opcode == "abs" else word ^ top

    if fmt in ("f32", "f64"):
        value = _start(op, lanes.read(op.operands[1], f32 if fmt == "f32" else f64))
        bits = value.type.bits
        raw = value.view(Type("u", bits))
        # Seen on an H200: an f64 NaN keeps its sign and becomes quiet, any other becomes the canonical one.
        nan = lanes.constant(U32, 0x7FFFFFFF) if bits == 32 else raw | (1 << 51)
        lanes.write(op.operands[0], is_nan(value).select(nan, change(raw, bits)))
        return

    def compute(element: str, words: list[Value]) -> Value:
        word = flush_half(words[0]) if op.has("ftz") and element == "f16" else words[0]
        return is_nan(widen(word, element)).select(lanes.constant(Type("u", 16), 0x7FFF), change(word, 16))

    each_half(lanes, op, fmt, compute)


@lowers("min", "max")
def min_max(lanes: Lanes, op: Op) -> None:
    """min and max: a number wins over NaN, unless .NaN; -0 is below +0."""
    if not integer.is_float(op):
        integer.min_max(lanes, op)
        return
    fmt = float_type(op)

    def pick(values: list[Value], nan: int) -> Value:
        unsigned = Type("u", values[0].type.bits)
        found = values[0]
        for other in values[1:]:
            found = _pick(op, found, other, unsigned, nan)
        return found

    if fmt in ("f32", "f64"):
        type = f32 if fmt == "f32" else f64
        values = [_start(op, lanes.read(each, type)) for each in op.operands[1:]]
        lanes.write(op.operands[0], pick(values, 0x7FFFFFFF if type is f32 else 0x7FFFFFFFFFFFFFFF))
        return

    def compute(element: str, words: list[Value]) -> Value:
        if op.has("ftz") and element == "f16":
            words = [flush_half(word) for word in words]
        return round_to(pick([widen(word, element) for word in words], 0x7FFFFFFF), element)

    each_half(lanes, op, fmt, compute)


def _pick(op: Op, a: Value, b: Value, unsigned: Type, nan: int) -> Value:
    bits = unsigned.bits
    first, second = a, b
    if op.has("xorsign"):
        clear = (1 << bits - 1) - 1
        first, second = ((each.view(unsigned) & clear).view(each.type.by(1)) for each in (a, b))
    left, right = first.view(unsigned), second.view(unsigned)
    both_zero = first.equals(0.0) & second.equals(0.0)
    if op.opcode == "max":
        found = (first > second).select(left, right)
        found = both_zero.select(left & right, found)
    else:
        found = (first < second).select(left, right)
        found = both_zero.select(left | right, found)
    canonical = found.code.constant(found.type, nan)
    no_a, no_b = is_nan(first), is_nan(second)
    if op.has("NaN"):
        found = (no_a | no_b).select(canonical, found)
    else:
        found = no_a.select(right, no_b.select(left, found))
        found = (no_a & no_b).select(canonical, found)
    if op.has("xorsign"):
        sign = (a.view(unsigned) ^ b.view(unsigned)) & (1 << bits - 1)
        found = (no_a & no_b).select(found, found | sign)
    return found.view(a.type.by(1))


@lowers("copysign")
def copysign(lanes: Lanes, op: Op) -> None:
    """The sign of a with the magnitude of b."""
    bits = 32 if float_type(op) == "f32" else 64
    a, b = (lanes.read(each, Type("u", bits)) for each in op.operands[1:3])
    top = 1 << bits - 1
    lanes.write(op.operands[0], (a & top) | (b & (top - 1)))


@lowers("testp")
def test(lanes: Lanes, op: Op) -> None:
    """What kind of number a float is."""
    bits, mantissa = (32, 23) if float_type(op) == "f32" else (64, 52)
    word = lanes.read(op.operands[1], Type("u", bits))
    magnitude = word & ((1 << bits - 1) - 1)
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    tiny = (magnitude < (1 << mantissa)) & magnitude.differs(0)
    match op.modifiers[0]:
        case "finite":
            found = magnitude < infinity
        case "infinite":
            found = magnitude.equals(infinity)
        case "number":
            found = ~(magnitude > infinity)
        case "notanumber":
            found = magnitude > infinity
        case "normal":
            found = (magnitude < infinity) & ~tiny
        case _:
            # Zero counts as normal: so an H200 has it.
            found = tiny
    lanes.write(op.operands[0], found)
