"""Exchange between the lanes of a warp: shuffles, votes, matches and reductions.

`mask` names the lanes that take part, all of them where nothing is said; each of them must get there.
"""

from typing import Any

from lanewise.lang.intrinsics.sync import FULL, mask_operand
from lanewise.lang.trace.builder import Register, ResultPair, current
from lanewise.lang.trace.operators import as_predicate
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Traced, describe, is_node, map_leaves
from lanewise.lang.trace.types import i32, is_int, pred, register_kind, u32

#: The clamp value of each mode of shfl.sync, in its lowest five bits.
_CLAMP_LANES = {"idx": 0x1F, "up": 0, "down": 0x1F, "bfly": 0x1F}


def _shuffle(mode: str, value: object, lane: object, width: int, mask: object) -> object:
    """Return the value of another lane: of a pytree leaf by leaf, of 64 bits in two halves."""
    builder = current()
    if is_node(value):
        return map_leaves(lambda x, _: _shuffle(mode, x, lane, width, mask), value, value, "a shuffle")
    if width not in (1, 2, 4, 8, 16, 32):
        raise builder.error(f"the width of a shuffle is a power of two up to 32, not {width!r}")
    if not isinstance(value, Traced) and isinstance(lane, Traced):
        raise builder.error(
            "a shuffle takes the value first, and the mask by name: shfl_sync(x, lane, mask=…)"
        )
    number = scalar(value, None, "a shuffle")
    from_lane = scalar(lane, None, "the lane of a shuffle")
    if from_lane.dtype not in (i32, u32):
        raise builder.error(f"the lane of a shuffle is i32 or u32, not {describe(from_lane)}: convert it")
    source = from_lane.operand
    limits = (source, f"0x{(32 - width) << 8 | _CLAMP_LANES[mode]:X}", mask_operand(mask))

    def shuffled(register: object) -> Register:
        return builder.result(f"shfl.sync.{mode}.b32", "b32", register, *limits)

    dtype, register = number.dtype, number.in_register
    if dtype is pred:
        return as_predicate(_shuffle(mode, number.to(i32), lane, width, mask))
    kind = register_kind(dtype)
    if dtype.bits == 64:
        low, high = Register("b32"), Register("b32")
        builder.emit("mov.b64", (low, high), register, pure=True)
        halves = (shuffled(low), shuffled(high))
        return Scalar(dtype, builder.result("mov.b64", kind, halves))
    if dtype.bits < 32:
        wide = shuffled(builder.define("cvt.u32.u16", "b32", register))
        return Scalar(dtype, builder.define("cvt.u16.u32", "b16", wide))
    if kind == "f32":
        return Scalar(dtype, builder.result("shfl.sync." + mode + ".b32", "f32", register, *limits))
    return Scalar(dtype, shuffled(register))


def shfl_sync(value: object, lane: object, width: int = 32, mask: object = FULL) -> Any:
    """Return the value that another lane holds. Inside a kernel: `first = lw.shfl_sync(x, 0)`."""
    return _shuffle("idx", value, lane, width, mask)


def shfl_up_sync(value: object, delta: object, width: int = 32, mask: object = FULL) -> Any:
    """Return the value of the lane `delta` below; the first lanes keep their own."""
    return _shuffle("up", value, delta, width, mask)


def shfl_down_sync(value: object, delta: object, width: int = 32, mask: object = FULL) -> Any:
    """Return the value of the lane `delta` above; the last lanes keep their own."""
    return _shuffle("down", value, delta, width, mask)


def shfl_xor_sync(value: object, lanes: object, width: int = 32, mask: object = FULL) -> Any:
    """Return the value of the lane whose number differs in the given bits."""
    return _shuffle("bfly", value, lanes, width, mask)


def all_sync(condition: object, mask: object = FULL) -> Scalar:
    """Return whether a condition holds on all lanes."""
    test = as_predicate(condition).in_register
    return Scalar(pred, current().result("vote.sync.all.pred", "pred", test, mask_operand(mask)))


def any_sync(condition: object, mask: object = FULL) -> Scalar:
    """Return whether a condition holds on some lane."""
    test = as_predicate(condition).in_register
    return Scalar(pred, current().result("vote.sync.any.pred", "pred", test, mask_operand(mask)))


def ballot_sync(condition: object, mask: object = FULL) -> Scalar:
    """Return the lanes on which a condition holds, as the bits of a u32."""
    test = as_predicate(condition).in_register
    return Scalar(u32, current().result("vote.sync.ballot.b32", "b32", test, mask_operand(mask)))


def match_any_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the lanes with the same value as this one, as the bits of a u32."""
    number = scalar(value, None, "lw.match_any_sync")
    opcode = f"match.any.sync.b{_matched_bits(number)}"
    return Scalar(u32, current().result(opcode, "b32", number.in_register, mask_operand(mask)))


def match_all_sync(value: object, mask: object = FULL) -> tuple[Scalar, Scalar]:
    """Return (the mask or 0, whether all lanes have the same value)."""
    number = scalar(value, None, "lw.match_all_sync")
    lanes, same = Register("b32"), Register("pred")
    current().emit(
        f"match.all.sync.b{_matched_bits(number)}",
        ResultPair(lanes, same),
        number.in_register,
        mask_operand(mask),
    )
    return Scalar(u32, lanes), Scalar(pred, same)


def _matched_bits(value: Scalar) -> int:
    """Return the size of a value to match; an error unless it is 32 or 64 bits."""
    if value.dtype.bits not in (32, 64):
        raise current().error(f"a match compares 32 or 64 bits, not {describe(value)}: convert it")
    current().need("match.sync", 70, "6.0")
    return value.dtype.bits


def _reduce(name: str, value: object, mask: object) -> Scalar:
    """Emit a reduction over the lanes of a mask and return its outcome, the same on each."""
    builder = current()
    number = scalar(value, None, f"lw.reduce_{name}_sync")
    if not is_int(number.dtype) or number.dtype.bits != 32:
        raise builder.error(f"lw.reduce_{name}_sync takes i32 or u32, not {describe(number)}: use shuffles")
    builder.need("redux.sync", 80, "7.0")
    type = "b32" if name in ("and", "or", "xor") else number.dtype.name
    return Scalar(
        number.dtype,
        builder.result(f"redux.sync.{name}.{type}", "b32", number.in_register, mask_operand(mask)),
    )


def reduce_add_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the sum over the lanes, of i32 or u32."""
    return _reduce("add", value, mask)


def reduce_min_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the least over the lanes, of i32 or u32."""
    return _reduce("min", value, mask)


def reduce_max_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the greatest over the lanes, of i32 or u32."""
    return _reduce("max", value, mask)


def reduce_and_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the bits set on all lanes, of i32 or u32."""
    return _reduce("and", value, mask)


def reduce_or_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the bits set on some lane, of i32 or u32."""
    return _reduce("or", value, mask)


def reduce_xor_sync(value: object, mask: object = FULL) -> Scalar:
    """Return the exclusive or over the lanes, of i32 or u32."""
    return _reduce("xor", value, mask)


def activemask() -> Scalar:
    """Return the lanes that run together now, as the bits of a u32."""
    current().need("activemask", 30, "6.2")
    return Scalar(u32, current().result("activemask.b32", "b32"))
