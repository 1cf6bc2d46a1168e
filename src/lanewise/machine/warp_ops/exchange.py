"""Lowerings of instructions among lanes: shuffles, votes, matches, reductions, activemask.

And of what concerns whole warps and clusters: barrier.cluster.arrive and setmaxnreg. Threads that wait for
the barrier of a cluster are parked (`compile/block_ends.py`), and the scheduler of clusters lets them go on.
"""

from lanewise.jit.simd import Pointer, Type, Value, f32, i64, u32
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.arithmetic.float_bits import pick
from lanewise.machine.codegen.function_code import BlockCode
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes, type_of
from lanewise.machine.program.operands import Sink, elements_of
from lanewise.machine.program.ops import Op
from lanewise.ptx import Immediate


def _store(code: BlockCode, lanes: Lanes, active: Value) -> None:
    """Store the registers that were written, in the active lanes."""
    lanes.mask = active
    lanes.put_back(lambda register: False)


def activemask(code: BlockCode, op: Op) -> None:
    """Lower activemask: the lanes that run together now."""
    active = code.active(op)
    lanes = code.all_lanes()
    lanes.write(op.operands[0], code.mask_bits().spread(abi.LANES))
    _store(code, lanes, active)


def shuffle(code: BlockCode, op: Op) -> None:
    """Lower shfl.sync: up, down, bfly, idx."""
    active = code.active(op)
    destination, *predicate = elements_of(op.operands[0])
    lanes = code.all_lanes()
    value = lanes.read(op.operands[1], u32)
    b, c = (lanes.read(operand, u32) for operand in op.operands[2:4])
    lane = lanes.lane_numbers()
    segment, clamp = (c >> 8) & 31, c & 31
    b = b & 31
    high = (lane & segment) | (clamp & ~segment)
    low = lane & segment
    if op.has("up"):
        source = lane - b
        valid = _signed(source) & ~(source.view(Type("i", 32)) < high.view(Type("i", 32)))
    elif op.has("down"):
        source = lane + b
        valid = ~(source > high)
    elif op.has("bfly"):
        source = lane ^ b
        valid = ~(source > high)
    else:
        source = low | (b & ~segment)
        valid = ~(source > high)
    source = valid.select(source, lane) & 31
    values, sources, results = (_lane_words(code) for _ in range(3))
    values.store(value)
    sources.store(source)
    with code.loop(abi.LANES) as number:
        results.store(values.load(sources.load(number).to(i64)), number)
    lanes.write(destination, results.load(0, abi.LANES))
    if predicate:
        lanes.write(predicate[0], valid)
    _store(code, lanes, active)


def _lane_words(code: BlockCode) -> Pointer:
    """Return memory on the stack for a word of each lane."""
    return code.room(u32, abi.LANES)


def _signed(value: Value) -> Value:
    """Return whether a number is not negative as a signed one."""
    return ~(value.view(Type("i", 32)) < 0)


def vote(code: BlockCode, op: Op) -> None:
    """Lower vote.sync: all, any, uni, ballot."""
    active = code.active(op)
    lanes = code.all_lanes()
    holds = lanes.read(op.operands[1], BOOL)
    members = lanes.read(op.operands[-1], u32)
    present = code.bits(active).spread(abi.LANES) & members
    yes = code.bits(holds & active).spread(abi.LANES) & members
    if op.has("ballot"):
        lanes.write(op.operands[0], yes)
    elif op.has("all"):
        lanes.write(op.operands[0], yes.equals(present))
    elif op.has("any"):
        lanes.write(op.operands[0], yes.differs(0))
    else:
        lanes.write(op.operands[0], yes.equals(present) | yes.equals(0))
    _store(code, lanes, active)


def match(code: BlockCode, op: Op) -> None:
    """Lower match.sync: the lanes with an equal value (any), or whether all lanes have it (all)."""
    active = code.active(op)
    bits = code.bits(active)
    word = type_of(op.types[-1])
    destination, *predicate = elements_of(op.operands[0])
    lanes = code.all_lanes()
    values = lanes.read(op.operands[1], word)
    members = lanes.read(op.operands[2], u32)
    results = _lane_words(code)
    results.store(code.constant(u32.by(abi.LANES), 0))
    with code.each_lane(bits) as lane:
        value = Value(code, word, code.builder.extract_element(values.handle, lane.handle))
        same = code.bits(values.equals(value.spread(abi.LANES)))
        results.store(same & bits, lane)
    matching = results.load(0, abi.LANES) & members
    present = bits.spread(abi.LANES) & members
    if op.has("all"):
        every = matching.equals(present)
        lanes.write(destination, every.select(members, 0))
        if predicate:
            lanes.write(predicate[0], every)
    else:
        lanes.write(destination, matching)
    _store(code, lanes, active)


def reduce(code: BlockCode, op: Op) -> None:
    """Lower redux.sync: combine the numbers of the lanes that a mask names."""
    word = type_of(op.types[-1])
    kinds = {
        "add": "add",
        "and": "and",
        "or": "or",
        "xor": "xor",
        "min": "smin" if word.kind == "i" else "umin",
        "max": "smax" if word.kind == "i" else "umax",
    }
    every = " ".join(f".{kind}" for kind in kinds)
    name = op.one_of(kinds, f"it names no operation; redux.sync has {every}")
    active = code.active(op)
    bits = code.bits(active)
    lanes = code.all_lanes()
    values, members = lanes.read(op.operands[1], word), lanes.read(op.operands[2], u32)
    if op.has("abs"):
        values = (values.view(u32) & 0x7FFFFFFF).view(f32)
    results = _lane_words(code)
    results.store(code.constant(u32.by(abi.LANES), 0))
    neutral = {
        "add": 0,
        "and": -1,
        "or": 0,
        "xor": 0,
        "smin": 2**31 - 1,
        "umin": -1,
        "smax": -(2**31),
        "umax": 0,
    }
    with code.each_lane(bits) as lane:
        named = Value(code, u32, code.builder.extract_element(members.handle, lane.handle)) & bits
        if word.kind == "f":
            total = _extreme(op, name, values, code.lanes_of(named))
        else:
            chosen = code.lanes_of(named).select(values, neutral[kinds[name]])
            total = code.intrinsic(f"vector.reduce.{kinds[name]}", word, [chosen], of=chosen.type)
        results.store(total.view(u32), lane)
    lanes.write(op.operands[0], results.load(0, abi.LANES))
    _store(code, lanes, active)


def _extreme(op: Op, name: str, values: Value, members: Value) -> Value:
    """Return the smallest or largest float among some lanes; -0 is less than +0."""
    # Lanes that are not named get a neutral value: NaN, or an infinity where NaN would win.
    nobody = (0xFF800000 if name == "max" else 0x7F800000) if op.has("NaN") else 0x7FFFFFFF
    chosen = members.select(values.view(u32), nobody).view(f32)
    while chosen.type.lanes > 2:
        half = chosen.type.lanes // 2
        chosen = pick(op, name == "max", chosen.part(0, half), chosen.part(half, half))
    return pick(op, name == "max", chosen.lane(0), chosen.lane(1))


def elect(code: BlockCode, op: Op) -> None:
    """Lower elect.sync: elect the first of the lanes that a mask names."""
    active = code.active(op)
    lanes = code.all_lanes()
    destination, *predicate = elements_of(op.operands[0])
    members = lanes.read(op.operands[1], u32) & code.bits(active).spread(abi.LANES)
    first = lanes.code.intrinsic("cttz", members.type, [members, code.constant(BOOL, 0)])
    if not isinstance(destination, Sink):
        lanes.write(destination, first)
    if predicate:
        lanes.write(predicate[0], first.equals(lanes.lane_numbers()))
    _store(code, lanes, active)


def barrier_result(code: BlockCode, op: Op) -> None:
    """Lower the second half of bar.red: take what the scheduler counted, as .popc, .and or .or."""
    active = code.active(op)
    lanes = code.all_lanes()
    counted = code.frame.get(abi.WarpFrame.barrier_result, u32, abi.LANES)
    yes, total = counted & 0xFFFF, counted >> 16
    if op.has("popc"):
        lanes.write(op.operands[0], yes)
    elif op.has("and"):
        lanes.write(op.operands[0], yes.equals(total))
    else:
        lanes.write(op.operands[0], yes.differs(0))
    _store(code, lanes, active)


#: The registers that setmaxnreg may ask for: from, to, in steps of (PTX ISA).
LEAST_REGISTERS, MOST_REGISTERS, REGISTER_STEP = 24, 256, 8


def arrive(code: BlockCode, op: Op) -> None:
    """Lower barrier.cluster.arrive: lanes are marked until all threads of the cluster have arrived.

    A second arrival before the barrier is complete changes nothing, as on an H200.
    """
    arrived = code.frame.get(WarpFrame.cluster_arrived, u32)
    code.frame.set(WarpFrame.cluster_arrived, arrived | code.bits(code.active(op)))


def set_registers(code: BlockCode, op: Op) -> None:
    """Lower setmaxnreg: there is nothing to do, because warps take no registers from each other here."""
    count = op.operands[0]
    legal = range(LEAST_REGISTERS, MOST_REGISTERS + 1, REGISTER_STEP)
    if not isinstance(count, Immediate) or count.bits not in legal:
        raise op.unsupported(
            f"its number of registers is a constant, {LEAST_REGISTERS} to {MOST_REGISTERS} in steps of "
            f"{REGISTER_STEP}"
        )
