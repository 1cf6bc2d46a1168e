"""Bits: logic, shifts, fields, permutations of bytes; moves between registers.

PTX shifts clamp: a count beyond the width shifts everything out.
"""

from __future__ import annotations

from lanewise.jit.simd import Type, Value
from lanewise.machine.arithmetic.integer import I32, U32, U64, integer_type, operands
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes, intrinsic, lowers, several, type_of, types
from lanewise.machine.program.resolve import Op, Several
from lanewise.ptx import Immediate


@lowers("and", "or", "xor", "not", "cnot")
def logic(lanes: Lanes, op: Op) -> None:
    """Bit by bit, of words or predicates."""
    type = integer_type(op)
    values = operands(lanes, op, type)
    a = values[0]
    if op.opcode == "not":
        found = ~a
    elif op.opcode == "cnot":
        found = a.equals(0).to(type)
    else:
        found = {"and": a.__and__, "or": a.__or__, "xor": a.__xor__}[op.opcode](values[1])
    lanes.write(op.operands[0], found)


@lowers("lop3")
def lop3(lanes: Lanes, op: Op) -> None:
    """Any function of three bits, by its table of eight; with a predicate, whether any bit is set as well."""
    destination, *predicate = several(op.operands[0])
    a, b, c = (lanes.read(each, U32) for each in op.operands[1:4])
    table = op.operands[4]
    if not isinstance(table, Immediate):
        raise op.unsupported("its table is no constant")
    # What a changes of what b and c give: bits 4 to 7 of the table are for a = 1, 0 to 3 for a = 0.
    low, changes = table.bits & 15, (table.bits ^ table.bits >> 4) & 15
    found = _of_two(lanes, b, c, low)
    if changes:
        found = found ^ (a & _of_two(lanes, b, c, changes))
    if predicate:
        given = lanes.read(op.operands[5], BOOL)
        some = found.differs(0)
        lanes.write(predicate[0], some & given if op.has("and") else some | given)
    lanes.write(destination, found)


def _of_two(lanes: Lanes, b: Value, c: Value, table: int) -> Value:
    """A function of two words, bit by bit: bit 2b + c of its table is what it is."""
    if table & 1:
        return ~_of_two(lanes, b, c, table ^ 15)
    match table:
        case 0:
            return lanes.constant(U32, 0)
        case 2:
            return ~b & c
        case 4:
            return b & ~c
        case 6:
            return b ^ c
        case 8:
            return b & c
        case 10:
            return c
        case 12:
            return b
        case _:  # 14
            return b | c


def shifted(a: Value, count: Value, left: bool) -> Value:
    """A shift that clamps; `count` is unsigned 32 bits."""
    bits = a.type.bits
    amount = count.to(Type("u", bits)) if bits != 32 else count
    large = count > bits - 1
    safe = large.select(amount ^ amount, amount).view(a.type)
    if left:
        return large.select(a ^ a, a << safe)
    out = a >> safe
    return large.select(a >> (bits - 1), out) if a.type.kind == "i" else large.select(a ^ a, out)


@lowers("shl", "shr")
def shift(lanes: Lanes, op: Op) -> None:
    """shl and shr."""
    a = lanes.read(op.operands[1], integer_type(op))
    given = op.operands[2]
    if isinstance(given, Immediate) and given.bits < a.type.bits:  # as it nearly always is
        number = int(given.bits)
        lanes.write(op.operands[0], a << number if op.opcode == "shl" else a >> number)
        return
    lanes.write(op.operands[0], shifted(a, lanes.read(given, U32), op.opcode == "shl"))


@lowers("shf")
def funnel(lanes: Lanes, op: Op) -> None:
    """Shift of two registers as one of 64 bits."""
    low, high, count = (lanes.read(each, U32) for each in op.operands[1:4])
    count = count & 31 if op.has("wrap") else (count > 32).select(lanes.constant(U32, 32), count)
    both = low.to(U64) | (high.to(U64) << 32)
    found = (both << count.to(U64) >> 32).to(U32) if op.has("l") else (both >> count.to(U64)).to(U32)
    lanes.write(op.operands[0], found)


def _field(lanes: Lanes, op: Op, first: int, bits: int) -> tuple[Value, Value]:
    """Place and length of a field: their low bytes; of 64-bit words all their bits (seen on an H200)."""
    place, length = (lanes.read(each, U32) for each in op.operands[first : first + 2])
    if bits == 32:
        return place & 0xFF, length & 0xFF
    most = lanes.constant(U32, 0xFF)
    return (place > 0xFF).select(most, place), (length > 0xFF).select(most, length)


@lowers("bfe")
def extract(lanes: Lanes, op: Op) -> None:
    """A field of bits, its sign extended if the type has one."""
    type = integer_type(op)
    bits = type.bits
    a = lanes.read(op.operands[1], type)
    place, length = _field(lanes, op, 2, bits)
    unsigned = Type("u", bits)
    moved = shifted(a, place, left=False).view(unsigned)
    wide = length > bits - 1
    keep = shifted(lanes.constant(unsigned, -1), length, left=True)
    inside = wide.select(moved, moved & ~keep)
    if type.kind == "i":
        last = place + length - 1
        last = (last > bits - 1).select(lanes.constant(U32, bits - 1), last)
        sign = (shifted(a.view(unsigned), last, left=False) & 1).differs(0) & length.differs(0)
        inside = (sign & (length.__lt__(bits))).select(inside | keep, inside)
    lanes.write(op.operands[0], length.equals(0).select(lanes.constant(unsigned, 0), inside))


@lowers("bfi")
def insert(lanes: Lanes, op: Op) -> None:
    """A field of bits put into a word."""
    type = integer_type(op)
    a, b = (lanes.read(each, type) for each in op.operands[1:3])
    place, length = _field(lanes, op, 3, type.bits)
    ones = shifted(lanes.constant(type, -1), length, left=True)
    field = shifted(~ones, place, left=True)
    lanes.write(op.operands[0], (b & ~field) | (shifted(a, place, left=True) & field))


@lowers("bmsk")
def mask(lanes: Lanes, op: Op) -> None:
    """So many ones from a place on."""
    place, length = (lanes.read(each, U32) for each in op.operands[1:3])
    if op.has("wrap"):
        place, length = place & 31, length & 31
    ones = ~shifted(lanes.constant(U32, -1), length, left=True)
    lanes.write(op.operands[0], shifted(ones, place, left=True))


@lowers("szext")
def extend(lanes: Lanes, op: Op) -> None:
    """The low bits with their sign, or zeros, above."""
    type = integer_type(op)
    a, length = lanes.read(op.operands[1], U32), lanes.read(op.operands[2], U32)
    if op.has("wrap"):
        length = length & 31
    up = (length > 31).select(lanes.constant(U32, 0), 32 - length)
    moved = shifted(a, up, left=True).view(type)
    down = shifted(moved, up, left=False).view(U32)
    lanes.write(op.operands[0], length.equals(0).select(lanes.constant(U32, 0), down))


@lowers("prmt")
def permute(lanes: Lanes, op: Op) -> None:
    """Four bytes picked out of eight."""
    a, b, selector = (lanes.read(each, U32) for each in op.operands[1:4])
    both = a.to(U64) | (b.to(U64) << 32)
    mode = next((each for each in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") if op.has(each)), "")
    found = lanes.constant(U32, 0)
    low = selector & 3
    for place in range(4):
        if not mode:
            nibble = (selector >> (4 * place)) & 15
            choice, sign = nibble & 7, (nibble & 8).differs(0)
        else:
            if mode == "f4e":
                choice = low + place
            elif mode == "b4e":
                choice = (low - place) & 7
            elif mode == "rc8":
                choice = low
            elif mode == "rc16":
                choice = ((selector & 1) << 1) + (place & 1)
            elif mode == "ecl":
                choice = (low > place).select(low, place)
            else:
                choice = (low > place).select(lanes.constant(U32, place), low)
            sign = None
        byte = (both >> (choice.to(U64) << 3)).to(U32) & 0xFF
        if sign is not None:
            spread = (byte & 0x80).differs(0).mask(U32.by(lanes.count)) & 0xFF
            byte = sign.select(spread, byte)
        found = found | (byte << (8 * place))
    lanes.write(op.operands[0], found)


@lowers("mov")
def move(lanes: Lanes, op: Op) -> None:
    """A register, a constant or an address; or words taken apart and put together."""
    found = types(op)
    type = type_of(found[-1]) if found else U32
    destination, source = op.operands
    if isinstance(destination, Several):
        part = type.bits // len(destination.elements)
        whole = lanes.read(source, Type("u", type.bits))
        for place, element in enumerate(destination.elements):
            lanes.write(element, (whole >> (place * part)).to(Type("u", part)))
        return
    if isinstance(source, Several):
        part = type.bits // len(source.elements)
        whole = lanes.constant(Type("u", type.bits), 0)
        for place, element in enumerate(source.elements):
            word = lanes.read(element, Type("u", part)).to(Type("u", type.bits))
            whole = whole | (word << (place * part))
        lanes.write(destination, whole)
        return
    if source in lanes.unsettled and type.bits == 32:
        lanes.write_number(destination, lanes.unsettled[source])
        return
    lanes.write(destination, lanes.read(source, type if type.bits > 1 else BOOL))


@lowers("isspacep")
def is_space(lanes: Lanes, op: Op) -> None:
    """Whether a generic address lies in a space."""
    from lanewise.machine import abi

    address = lanes.read(op.operands[1], U64)
    windows = {"shared": abi.SHARED_WINDOW, "local": abi.LOCAL_WINDOW, "param": abi.PARAM_WINDOW}
    space = op.modifiers[0].split("::")[0]
    if space in windows:
        found = (address - windows[space]).__lt__(abi.WINDOW_BYTES)
    elif space == "global":
        found = (address - abi.GLOBAL_BASE).__lt__(abi.SHARED_WINDOW - abi.GLOBAL_BASE)
    elif space == "const":
        found = (address - abi.CONST_BASE).__lt__(abi.GLOBAL_BASE - abi.CONST_BASE)
    else:
        found = lanes.constant(BOOL, 0)
    lanes.write(op.operands[0], found)


@lowers("cvta")
def convert_address(lanes: Lanes, op: Op) -> None:
    """Between a space's own addresses and generic ones: windows lie one after the other."""
    from lanewise.machine import abi

    windows = {"shared": abi.SHARED_WINDOW, "local": abi.LOCAL_WINDOW, "param": abi.PARAM_WINDOW}
    space = next(
        (
            each.split("::")[0]
            for each in op.modifiers
            if each.split("::")[0] in (*windows, "global", "const")
        ),
        "global",
    )
    address = lanes.read(op.operands[1], U64)
    base = windows.get(space, 0)
    lanes.write(op.operands[0], address - base if op.has("to") else address + base)


@lowers("fns")
def find_nth(lanes: Lanes, op: Op) -> None:
    """The n-th set bit from a base on, upwards or downwards; -1 if there is none."""
    bits, base = lanes.read(op.operands[1], U32), lanes.read(op.operands[2], U32)
    offset = lanes.read(op.operands[3], I32)
    found = lanes.constant(U32, -1)
    wanted = (offset.__lt__(0)).select(0 - offset, offset).view(U32)
    none = lanes.constant(U32, 0)
    ones = lanes.constant(U32, -1)
    for place in range(32):
        bit = (bits >> place) & 1
        up = ones << (base & 31)
        below_base = ~(up << 1)
        below_here, above_here = (2 << place) - 1 & 0xFFFFFFFF, -1 << place & 0xFFFFFFFF
        rank_up = intrinsic("ctpop", bits & up & below_here)
        rank_down = intrinsic("ctpop", bits & below_base & above_here)
        position = lanes.constant(U32, place)
        upwards = (offset > 0) & rank_up.equals(wanted) & bit.differs(0) & ~position.__lt__(base)
        downwards = offset.__lt__(0) & rank_down.equals(wanted) & bit.differs(0) & ~(position > base)
        itself = offset.equals(0) & base.equals(place) & bit.differs(0)
        found = (upwards | downwards | itself).select(position, found)
    lanes.write(op.operands[0], (base > 31).select(none - 1, found))


@lowers("mapa")
def map_address(lanes: Lanes, op: Op) -> None:
    """The address in a block of the cluster: a block is alone in its own."""
    lanes.write(op.operands[0], lanes.read(op.operands[1], integer_type(op)))


@lowers("getctarank", "createpolicy")
def nothing_known(lanes: Lanes, op: Op) -> None:
    """The rank of the only block of a cluster; a cache policy, which nobody reads."""
    lanes.write(op.operands[0], lanes.constant(U64, 0))
