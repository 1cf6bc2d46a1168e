"""Lowerings of bit instructions: logic, shifts, bit fields, byte permutations, moves between registers.

PTX shifts clamp: a count beyond the width shifts every bit out.
"""

from lanewise.jit.simd import Type, Value
from lanewise.machine.arithmetic.integer import I32, U32, U64, integer_type, operands
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes, intrinsic, type_of
from lanewise.machine.program.operands import OperandList, elements_of
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate


def logic(lanes: Lanes, op: Op) -> None:
    """Lower and, or, xor, not and cnot of words and of predicates."""
    type = integer_type(op)
    values = operands(lanes, op, type)
    a = values[0]
    if op.opcode == "not":
        result = ~a
    elif op.opcode == "cnot":
        result = a.equals(0).to(type)
    else:
        result = {"and": a.__and__, "or": a.__or__, "xor": a.__xor__}[op.opcode](values[1])
    lanes.write(op.operands[0], result)


def lop3(lanes: Lanes, op: Op) -> None:
    """Lower lop3: any function of three bits, given by a table; a predicate tells if any bit is set."""
    destination, *predicate = elements_of(op.operands[0])
    a, b, c = (lanes.read(operand, U32) for operand in op.operands[1:4])
    table = op.operands[4]
    if not isinstance(table, Immediate):
        raise op.unsupported("its table is no constant")
    # Bits 4 to 7 of the table are for a = 1, bits 0 to 3 for a = 0; `changes` is where they differ.
    low, changes = table.bits & 15, (table.bits ^ table.bits >> 4) & 15
    result = _two_input_table(lanes, b, c, low)
    if changes:
        result = result ^ (a & _two_input_table(lanes, b, c, changes))
    if predicate:
        combined = lanes.read(op.operands[5], BOOL)
        any_bit = result.differs(0)
        lanes.write(predicate[0], any_bit & combined if op.has("and") else any_bit | combined)
    lanes.write(destination, result)


def _two_input_table(lanes: Lanes, b: Value, c: Value, table: int) -> Value:
    """Return a bitwise function of two words; bit 2b + c of the table is its value for bits b and c."""
    if table & 1:
        return ~_two_input_table(lanes, b, c, table ^ 15)
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
    """Return a value shifted by an unsigned 32-bit count that clamps at the width."""
    bits = a.type.bits
    amount = count.to(Type("u", bits)) if bits != 32 else count
    large = count > bits - 1
    safe = large.select(amount ^ amount, amount).view(a.type)
    if left:
        return large.select(a ^ a, a << safe)
    out = a >> safe
    return large.select(a >> (bits - 1), out) if a.type.kind == "i" else large.select(a ^ a, out)


def shift(lanes: Lanes, op: Op) -> None:
    """Lower shl and shr; a constant count below the width needs no clamping."""
    a = lanes.read(op.operands[1], integer_type(op))
    count = op.operands[2]
    if isinstance(count, Immediate) and count.bits < a.type.bits:  # the common case
        number = int(count.bits)
        lanes.write(op.operands[0], a << number if op.opcode == "shl" else a >> number)
        return
    lanes.write(op.operands[0], shifted(a, lanes.read(count, U32), op.opcode == "shl"))


def funnel(lanes: Lanes, op: Op) -> None:
    """Lower shf: two registers are shifted as one of 64 bits, and 32 bits of the result are kept."""
    low, high, count = (lanes.read(operand, U32) for operand in op.operands[1:4])
    count = count & 31 if op.has("wrap") else (count > 32).select(lanes.constant(U32, 32), count)
    both = low.to(U64) | (high.to(U64) << 32)
    result = (both << count.to(U64) >> 32).to(U32) if op.has("l") else (both >> count.to(U64)).to(U32)
    lanes.write(op.operands[0], result)


def _field(lanes: Lanes, op: Op, first: int, bits: int) -> tuple[Value, Value]:
    """Return position and length of a bit field: their low bytes for 32-bit words.

    For 64-bit words all bits count (measured on an H200).
    """
    position, length = (lanes.read(operand, U32) for operand in op.operands[first : first + 2])
    if bits == 32:
        return position & 0xFF, length & 0xFF
    most = lanes.constant(U32, 0xFF)
    return (position > 0xFF).select(most, position), (length > 0xFF).select(most, length)


def extract(lanes: Lanes, op: Op) -> None:
    """Lower bfe: extract a bit field, sign-extended for signed types."""
    type = integer_type(op)
    bits = type.bits
    a = lanes.read(op.operands[1], type)
    position, length = _field(lanes, op, 2, bits)
    unsigned = Type("u", bits)
    moved = shifted(a, position, left=False).view(unsigned)
    wide = length > bits - 1
    keep = shifted(lanes.constant(unsigned, -1), length, left=True)
    inside = wide.select(moved, moved & ~keep)
    if type.kind == "i":
        last = position + length - 1
        last = (last > bits - 1).select(lanes.constant(U32, bits - 1), last)
        sign = (shifted(a.view(unsigned), last, left=False) & 1).differs(0) & length.differs(0)
        inside = (sign & (length.__lt__(bits))).select(inside | keep, inside)
    lanes.write(op.operands[0], length.equals(0).select(lanes.constant(unsigned, 0), inside))


def insert(lanes: Lanes, op: Op) -> None:
    """Lower bfi: insert a bit field into a word."""
    type = integer_type(op)
    a, b = (lanes.read(operand, type) for operand in op.operands[1:3])
    position, length = _field(lanes, op, 3, type.bits)
    ones = shifted(lanes.constant(type, -1), length, left=True)
    field = shifted(~ones, position, left=True)
    lanes.write(op.operands[0], (b & ~field) | (shifted(a, position, left=True) & field))


def mask(lanes: Lanes, op: Op) -> None:
    """Lower bmsk: a mask of `length` ones that begins at a bit position."""
    position, length = (lanes.read(operand, U32) for operand in op.operands[1:3])
    if op.has("wrap"):
        position, length = position & 31, length & 31
    ones = ~shifted(lanes.constant(U32, -1), length, left=True)
    lanes.write(op.operands[0], shifted(ones, position, left=True))


def extend(lanes: Lanes, op: Op) -> None:
    """Lower szext: keep the low bits and fill those above with the sign or with zeros."""
    type = integer_type(op)
    a, length = lanes.read(op.operands[1], U32), lanes.read(op.operands[2], U32)
    if op.has("wrap"):
        length = length & 31
    up = (length > 31).select(lanes.constant(U32, 0), 32 - length)
    moved = shifted(a, up, left=True).view(type)
    down = shifted(moved, up, left=False).view(U32)
    lanes.write(op.operands[0], length.equals(0).select(lanes.constant(U32, 0), down))


def permute(lanes: Lanes, op: Op) -> None:
    """Lower prmt: pick four of the eight bytes of two registers."""
    a, b, selector = (lanes.read(operand, U32) for operand in op.operands[1:4])
    both = a.to(U64) | (b.to(U64) << 32)
    mode = next((name for name in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") if op.has(name)), "")
    result = lanes.constant(U32, 0)
    low = selector & 3
    for index in range(4):
        if not mode:
            nibble = (selector >> (4 * index)) & 15
            choice, sign = nibble & 7, (nibble & 8).differs(0)
        else:
            if mode == "f4e":
                choice = low + index
            elif mode == "b4e":
                choice = (low - index) & 7
            elif mode == "rc8":
                choice = low
            elif mode == "rc16":
                choice = ((selector & 1) << 1) + (index & 1)
            elif mode == "ecl":
                choice = (low > index).select(low, index)
            else:
                choice = (low > index).select(lanes.constant(U32, index), low)
            sign = None
        byte = (both >> (choice.to(U64) << 3)).to(U32) & 0xFF
        if sign is not None:
            spread = (byte & 0x80).differs(0).mask(U32.by(lanes.count)) & 0xFF
            byte = sign.select(spread, byte)
        result = result | (byte << (8 * index))
    lanes.write(op.operands[0], result)


def move(lanes: Lanes, op: Op) -> None:
    """Lower mov of a register, constant or address; a vector of registers is packed or unpacked."""
    types = op.types
    type = type_of(types[-1]) if types else U32
    destination, source = op.operands
    if isinstance(destination, OperandList):
        bits = type.bits // len(destination.elements)
        whole = lanes.read(source, Type("u", type.bits))
        for index, element in enumerate(destination.elements):
            lanes.write(element, (whole >> (index * bits)).to(Type("u", bits)))
        return
    if isinstance(source, OperandList):
        bits = type.bits // len(source.elements)
        whole = lanes.constant(Type("u", type.bits), 0)
        for index, element in enumerate(source.elements):
            word = lanes.read(element, Type("u", bits)).to(Type("u", type.bits))
            whole = whole | (word << (index * bits))
        lanes.write(destination, whole)
        return
    if source in lanes.any_nan and type.bits == 32:
        lanes.write_number(destination, lanes.any_nan[source])
        return
    lanes.write(destination, lanes.read(source, type if type.bits > 1 else BOOL))


def is_space(lanes: Lanes, op: Op) -> None:
    """Lower isspacep: test whether a generic address lies in the window of a state space."""
    from lanewise.machine import abi

    address = lanes.read(op.operands[1], U64)
    windows = {"shared": abi.SHARED_WINDOW, "local": abi.LOCAL_WINDOW, "param": abi.PARAM_WINDOW}
    space = op.modifiers[0].split("::")[0]
    if space == "shared" and not op.has("shared::cluster"):  # that of the block alone
        first = lanes.number_at(lanes.record(abi.WarpFrame.block), abi.BlockRecord.shared_first).to(U64)
        inside = (address - abi.SHARED_WINDOW - first).__lt__(1 << abi.RANK_SHIFT)
    elif space in windows:
        inside = (address - windows[space]).__lt__(abi.WINDOW_BYTES)
    elif space == "global":
        inside = (address - abi.GLOBAL_BASE).__lt__(abi.SHARED_WINDOW - abi.GLOBAL_BASE)
    elif space == "const":
        inside = (address - abi.CONST_BASE).__lt__(abi.GLOBAL_BASE - abi.CONST_BASE)
    else:
        inside = lanes.constant(BOOL, 0)
    lanes.write(op.operands[0], inside)


def convert_address(lanes: Lanes, op: Op) -> None:
    """Lower cvta: convert between addresses of a state space and generic addresses."""
    from lanewise.machine import abi

    windows = {"shared": abi.SHARED_WINDOW, "local": abi.LOCAL_WINDOW, "param": abi.PARAM_WINDOW}
    address = lanes.read(op.operands[1], U64)
    base = windows.get(op.space, 0)
    lanes.write(op.operands[0], address - base if op.has("to") else address + base)


def find_nth(lanes: Lanes, op: Op) -> None:
    """Lower fns: the position of the n-th set bit from a base, upwards or downwards; -1 if there is none."""
    bits, base = lanes.read(op.operands[1], U32), lanes.read(op.operands[2], U32)
    offset = lanes.read(op.operands[3], I32)
    nth = lanes.constant(U32, -1)
    wanted = (offset.__lt__(0)).select(0 - offset, offset).view(U32)
    none = lanes.constant(U32, 0)
    ones = lanes.constant(U32, -1)
    for index in range(32):
        bit = (bits >> index) & 1
        up = ones << (base & 31)
        below_base = ~(up << 1)
        below_here, above_here = (2 << index) - 1 & 0xFFFFFFFF, -1 << index & 0xFFFFFFFF
        rank_up = intrinsic("ctpop", bits & up & below_here)
        rank_down = intrinsic("ctpop", bits & below_base & above_here)
        position = lanes.constant(U32, index)
        upwards = (offset > 0) & rank_up.equals(wanted) & bit.differs(0) & ~position.__lt__(base)
        downwards = offset.__lt__(0) & rank_down.equals(wanted) & bit.differs(0) & ~(position > base)
        itself = offset.equals(0) & base.equals(index) & bit.differs(0)
        nth = (upwards | downwards | itself).select(position, nth)
    lanes.write(op.operands[0], (base > 31).select(none - 1, nth))


def map_address(lanes: Lanes, op: Op) -> None:
    """Lower mapa: the address of the same variable in another block of the cluster.

    Bits 24 to 31 of an address in shared memory, also of a generic one, are the rank (seen on an H200).
    """
    from lanewise.machine import abi

    word = integer_type(op)
    address, rank = lanes.read(op.operands[1], word), lanes.read(op.operands[2], U32)
    wide = rank.to(Type("u", word.bits)).view(word) if word.bits != 32 else rank.view(word)
    kept = ~(0xFF << abi.RANK_SHIFT) & (1 << word.bits) - 1
    lanes.write(op.operands[0], (address & kept) | ((wide & 0xFF) << abi.RANK_SHIFT))


def cluster_rank(lanes: Lanes, op: Op) -> None:
    """Lower getctarank: the rank of the block whose shared memory has an address."""
    from lanewise.machine import abi

    address = lanes.read(op.operands[1], integer_type(op))
    lanes.write(op.operands[0], (address >> abi.RANK_SHIFT).to(U32) & 0xFF)


def nothing_known(lanes: Lanes, op: Op) -> None:
    """Lower instructions whose result is always 0: cache policies."""
    lanes.write(op.operands[0], lanes.constant(U64, 0))
