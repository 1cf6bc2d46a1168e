"""Operations on f32 and f64 in every rounding mode, with NaN results as GPUs return them.

Every NaN that an f32 instruction computes is 0x7FFFFFFF; f64 results keep the payload of a NaN operand.
"""

from lanewise.jit import ir
from lanewise.jit.float_mode import float_mode
from lanewise.jit.simd import Code, Pointer, Value, f64, i64
from lanewise.machine.arithmetic.integer import U64
from lanewise.machine.arithmetic.small_floats import SCALE, flush, is_nan
from lanewise.machine.codegen.function_code import shared
from lanewise.machine.codegen.lane_vectors import Lanes, canonical_nan, intrinsic
from lanewise.machine.program.ops import Op

ROUNDINGS = ("rn", "rz", "rm", "rp")


def quiet(value: Value, *sources: Value) -> Value:
    """Return a result with NaNs as on an H200: for f64 the first NaN source made quiet, else a new NaN."""
    if value.type.bits == 32:
        return canonical_nan(value)
    bits = value.view(U64)
    nan = value.code.constant(bits.type, 0xFFF8000000000000)
    for source in reversed(sources):
        nan = is_nan(source).select(source.view(U64) | (1 << 51), nan)
    return is_nan(value).select(nan, bits).view(f64)


def saturate(value: Value) -> Value:
    """Clamp a float to [0, 1]; NaN becomes +0."""
    low = (value > 0.0).select(value, 0.0)
    # Processors take the maximum of a signalling NaN and a number for NaN.
    low = is_nan(value).select(value.code.constant(value.type, 0.0), low)
    return (low > 1.0).select(value.code.constant(value.type, 1.0), low)


def rounding_of(op: Op) -> str:
    """Return the rounding mode that an instruction names, to nearest if it names none."""
    return next((modifier for modifier in op.modifiers if modifier in ROUNDINGS), "rn")


def plain(code: Code, name: str, values: list[Value]) -> Value:
    """Return an operation in the host's current rounding mode."""
    builder, handles = code.builder, [value.handle for value in values]
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
    """Return an operation in a rounding mode of the host's processor.

    It stands in a function that is not inlined, so that the compiler moves nothing out of the mode.
    """
    code, type = lanes.code, values[0].type
    label = f"{name}_{mode}_{type.name}"
    arguments = tuple(f"a{number}" for number in range(len(values)))

    def write(module: ir.Module, label: str) -> None:
        inner = Code(module, f"inner_{label}", (*arguments, "out"))
        inner.function.attributes.add("noinline")
        inner.function.linkage = "internal"
        element = type.by(1)
        loaded = [inner.pointer(argument, element).load(0, type.lanes) for argument in arguments]
        inner.pointer("out", element).store(plain(inner, name, loaded))
        inner.end()
        wrapper = Code(module, label, (*arguments, "out"))
        with float_mode(wrapper, mode):
            wrapper.call(inner, **{argument: wrapper[argument] for argument in inner.arguments})
        wrapper.end()

    outer = shared(code.module, label, ir.FunctionType(ir.VoidType(), [ir.LONG.as_pointer()]), write)
    builder = code.builder
    with builder.goto_entry_block():
        slots = [builder.alloca(type.ir) for _ in range(len(values) + 1)]
        block = builder.alloca(ir.IntType(64), len(slots))
    for value, slot in zip(values, slots, strict=False):
        builder.store(value.handle, slot)
    pointer = Pointer(code, i64, builder.bitcast(block, ir.IntType(8).as_pointer()))
    for index, slot in enumerate(slots):
        pointer.store(Value(code, i64, builder.ptrtoint(slot, ir.IntType(64))), index)
    builder.call(outer, [block])
    return Value(code, type, builder.load(slots[-1]))


def rounded(lanes: Lanes, name: str, values: list[Value], mode: str) -> Value:
    """Return an operation on f32 or f64; its NaNs are those of the host's processor."""
    return plain(lanes.code, name, values) if mode == "rn" else _in_mode(lanes, name, values, mode)


def operate(lanes: Lanes, name: str, values: list[Value], mode: str) -> Value:
    """Return an operation on f32 or f64 with NaNs as a GPU returns them."""
    result = rounded(lanes, name, values, mode)
    # Which operand's NaN comes through, as an H200 has it: b, c, a; the first of a division.
    order = values if name in ("div", "sqrt") else [*values[1:], values[0]]
    return quiet(result, *order)


#: The operands that scale a result.
_SCALED = {"mul": (0,), "div": (0,), "fma": (0, 2)}


def flushed(lanes: Lanes, name: str, values: list[Value], mode: str, result: Value) -> Value:
    """Return the result of an f32 operation with .ftz applied."""
    if name not in _SCALED or mode == "rz":
        return flush(result)
    scaled = [value * SCALE if index in _SCALED[name] else value for index, value in enumerate(values)]
    return flush(result, rounded(lanes, name, scaled, mode))
