"""Loads and stores: every address is checked against what the launch may touch.

A warp that reads or writes neighbouring places costs one check and one vector move; all else goes lane by
lane.
"""

from __future__ import annotations

from typing import Any

from lanewise.arith import ir
from lanewise.arith.simd import Pointer, Type, Value, i64
from lanewise.machine import frame
from lanewise.machine.code import BYTE, STOPPING, U32, U64, BlockCode, FunctionCode, Record, call
from lanewise.machine.lanes import several, type_of, types
from lanewise.machine.resolve import Op, Place, Register, Resolved, Sink

WRITE, GENERIC, ATOMIC = 1, 2, 4
SPACES = ("global", "shared", "local", "param", "const")


def space_of(op: Op) -> str:
    """The state space that an instruction names; generic if none."""
    for modifier in op.modifiers:
        name = modifier.split("::")[0]
        if name in SPACES:
            if modifier == "shared::cluster":
                return "shared"
            return name
    return "generic"


def write_locate(module: ir.Module) -> Any:
    """`locate(frame, address, size, alignment, flags, site, lane)`: a host address, or 0 and the fault."""
    code = FunctionCode(
        module, "locate", ("frame", "address", "size", "alignment", "flags", "site", "lane"), ir.IntType(64)
    )
    code.function.attributes.add("noinline")
    warp = code.record("frame")
    block = warp.at(frame.BLOCK)
    launch = block.at(frame.LAUNCH)
    address, size, flags = code["address"].to(U64), code["size"].to(U64), code["flags"]
    misaligned = (address & (code["alignment"].to(U64) - 1)).differs(0)

    def fail(kind: int) -> None:
        block.set(frame.KIND, kind)
        block.set(frame.SITE, code["site"])
        block.set(frame.LANE, code["lane"])
        block.set(frame.ADDRESS, address.to(i64))
        block.set(frame.SIZE, size.to(i64))
        code.give(0)

    def inside(offset: Value, limit: Value) -> Value:
        return (offset < limit) & ((offset + size - 1) < limit)

    with code.when(misaligned):
        fail(2)
    with code.when((flags & GENERIC).differs(0)):
        shared = address - frame.SHARED_WINDOW
        with code.when(shared < frame.WINDOW_BYTES):
            with code.when(inside(shared, launch.get(frame.SHARED_BYTES).to(U64))):
                code.give(block.get(frame.SHARED) + shared.to(i64))
            fail(1)
            _dead(code)
        local = address - frame.LOCAL_WINDOW
        with code.when(local < frame.WINDOW_BYTES):
            bytes_each = launch.get(frame.LOCAL_BYTES)
            with code.when(inside(local, bytes_each.to(U64))):
                thread = warp.get(frame.INDEX) * frame.LANES + code["lane"]
                code.give(block.get(frame.LOCAL) + thread * bytes_each + local.to(i64))
            fail(1)
            _dead(code)
        parameter = address - frame.PARAM_WINDOW
        with code.when(parameter < frame.WINDOW_BYTES):
            readable = inside(parameter, launch.get(frame.PARAMETER_BYTES).to(U64)) & (flags & WRITE).equals(
                0
            )
            with code.when(readable):
                code.give(launch.get(frame.PARAMETERS) + parameter.to(i64))
            fail(1)
            _dead(code)
    table = launch.at(frame.ALLOCATIONS)
    with code.loop(launch.get(frame.ALLOCATION_COUNT)) as number:
        entry = Record(code, table.address + number * frame.ALLOCATION_BYTES)
        offset = address - entry.get(0, U64)
        with code.when(inside(offset, entry.get(8, U64))):
            with code.when((flags & WRITE).differs(0) & entry.get(24).equals(0)):
                fail(3)
                _dead(code)
            host = entry.get(16) + offset.to(i64)
            unfit = (host.to(U64) & (code["alignment"].to(U64) - 1)).differs(0) & (flags & ATOMIC).differs(0)
            with code.when(unfit):
                fail(2)
                _dead(code)
            cache = Record(code, block.get(frame.CACHES) + code["site"] * frame.CACHE_BYTES)
            # The number of bytes is written last: another warp of this block never sees half an entry.
            cache.set(0, entry.get(0))
            cache.set(16, entry.get(16))
            cache.set(8, entry.get(8))
            code.give(host)
            _dead(code)
    fail(1)
    return code.function


def _dead(code: FunctionCode) -> None:
    """Code after a return is written into a block that nothing reaches."""
    code.builder.position_at_end(code.function.append_basic_block("unreached"))


class Access:
    """How one instruction turns addresses into places of the host's memory."""

    def __init__(
        self, code: BlockCode, site: int | Value, space: str, size: int, alignment: int, flags: int
    ) -> None:
        self.code, self.site, self.size, self.alignment = code, site, size, alignment
        self.space, self.flags = space, flags | (GENERIC if space == "generic" else 0)
        self.block = code.block
        self.launch = self.block.at(frame.LAUNCH)

    def _checked(self, offset: Value, limit: Value, address: Value, lane: Value, size: int) -> None:
        code = self.code
        inside = (offset < limit) & ((offset + (size - 1)) < limit)
        with code.when(~inside):
            code.fault(1, self.site, lane, address, size)
        if self.alignment > 1:
            with code.when((offset & (self.alignment - 1)).differs(0)):
                code.fault(2, self.site, lane, address, size)

    def known(self, address: Value, size: int) -> tuple[Value, Value]:
        """Whether so many bytes from an address on are known to be good, and the host's address then."""
        code = self.code
        if self.space == "shared":
            offset, limit, start = (
                address,
                self.launch.get(frame.SHARED_BYTES).to(U64),
                self.block.get(frame.SHARED),
            )
        else:
            cache = Record(code, self.block.get(frame.CACHES) + code.number(self.site) * frame.CACHE_BYTES)
            offset, limit, start = address - cache.get(0, U64), cache.get(8, U64), cache.get(16)
        good = (offset < limit) & ((offset + (size - 1)) < limit)
        if self.alignment > 1:
            good = good & (address & (self.alignment - 1)).equals(0)
        return good, start + offset.to(i64)

    def host(self, address: Value, lane: Value) -> Any:
        """The host's place of an address, checked; a bad one ends the block of code."""
        code, size = self.code, self.size
        if self.space == "shared":
            self._checked(address, self.launch.get(frame.SHARED_BYTES).to(U64), address, lane, size)
            return Record(code, self.block.get(frame.SHARED) + address.to(i64)).handle
        if self.space == "local":
            each = self.launch.get(frame.LOCAL_BYTES)
            self._checked(address, each.to(U64), address, lane, size)
            thread = code.frame.get(frame.INDEX) * frame.LANES + lane
            return Record(code, self.block.get(frame.LOCAL) + thread * each + address.to(i64)).handle
        if self.space == "param":
            self._checked(address, self.launch.get(frame.PARAMETER_BYTES).to(U64), address, lane, size)
            return Record(code, self.launch.get(frame.PARAMETERS) + address.to(i64)).handle
        cache = Record(code, self.block.get(frame.CACHES) + code.number(self.site) * frame.CACHE_BYTES)
        offset, limit = address - cache.get(0, U64), cache.get(8, U64)
        known = (offset < limit) & ((offset + (size - 1)) < limit)
        if self.alignment > 1:
            known = known & (address & (self.alignment - 1)).equals(0)
        if self.flags & ATOMIC:
            known = known & ((cache.get(16, U64) + offset) & (self.alignment - 1)).equals(0)
        found = code.variable(cache.get(16) + offset.to(i64))
        with code.when(~known):
            locate = code.module.globals["locate"]
            numbers = [code.number(n) for n in (size, self.alignment, self.flags, self.site)]
            values = [code["frame"], address.to(i64), *numbers, lane]
            where = Value(code, i64, code.builder.call(locate, [each.handle for each in values]))
            with code.when(where.equals(0)):
                code.builder.ret(ir.Constant(ir.IntType(32), -2))
            found.set(where)
        return code.builder.inttoptr(found.get().handle, BYTE)


def effective_space(op: Op, place: Place) -> str:
    """Parameters of device functions and of calls lie in local memory."""
    space = space_of(op)
    base = place.base
    if space == "param" and getattr(base, "space", "") == "local":
        return "local"
    return space


def _element_type(name: str) -> Type:
    return Type("u", 8) if name == "pred" else type_of(name)


def move(code: BlockCode, op: Op) -> None:
    """ld, ldu and st with vectors, of every space."""
    storing = op.opcode == "st"
    place, data = (op.operands[0], op.operands[1]) if storing else (op.operands[1], op.operands[0])
    if not isinstance(place, Place):
        raise op.unsupported("its address is none")
    names = types(op)
    if not names:
        raise op.unsupported("it names no type")
    parts = several(data)
    element = _element_type(names[-1])
    if element.bits == 128:
        raise op.unsupported("128-bit registers")
    size = element.bits // 8 * len(parts)
    space = effective_space(op, place)
    if space == "const":
        space = "global"
    if (storing and space == "param") or any(each.startswith("cluster") for each in op.modifiers):
        raise op.unsupported()
    if not all(isinstance(part, Register | Sink) or storing for part in parts):
        raise op.unsupported("its destination is no register")
    active = code.bits(code.active(op))
    if not isinstance(place.base, Register) and not storing and space != "local":
        access = Access(code, op.site, space, size, size, 0)
        _broadcast(code, access, place, parts, element, active)
        return
    if not isinstance(place.base, Register) or not all(isinstance(part, Register) for part in parts):
        access = Access(code, op.site, space, size, size, WRITE if storing else 0)
        _one_by_one(code, access, place, parts, element, active, storing)
        return
    registers = [part for part in parts if isinstance(part, Register)]
    function = _mover(code, space, element, place.base, registers, storing)
    values: list[Value | int] = [code["frame"], active, place.base.offset, place.offset, op.site]
    answer = call(code, function, [*values, *(register.offset for register in registers)])
    with code.when(answer.differs(0)):
        code.builder.ret(ir.Constant(ir.IntType(32), STOPPING))


def _mover(
    code: BlockCode, space: str, element: Type, base: Register, parts: list[Register], storing: bool
) -> Any:
    """A function that moves data of one kind for any registers: written once a program."""
    kinds = "_".join(f"{part.bits}{'p' * (part.type == 'pred')}" for part in parts)
    verb = "st" if storing else "ld"
    name = f"{verb}_{space}_{element.kind}{element.bits}_{base.bits}_{kinds}"
    existing = code.module.globals.get(name)
    if existing is not None:
        return existing
    names = tuple(f"r{number}" for number in range(len(parts)))
    inner = BlockCode(code.module, name, ("active", "base", "displacement", "site", *names))
    registers: Any = tuple(
        Register(part.name, part.type, part.bits, inner[each])  # type: ignore[arg-type]  # known when it runs
        for part, each in zip(parts, names, strict=True)
    )
    address: Any = Register(base.name, base.type, base.bits, inner["base"])  # type: ignore[arg-type]  # as above
    place = Place(address, inner["displacement"])  # type: ignore[arg-type]  # as above
    size = element.bits // 8 * len(parts)
    access = Access(inner, inner["site"], space, size, size, WRITE if storing else 0)
    active = inner["active"].to(U32)
    if space in ("local", "param"):
        _one_by_one(inner, access, place, registers, element, active, storing)
        inner.give(0)
        return inner.function
    first = inner.address_of(place, inner.constant(i64, 0))
    known, start = access.known(first, size * frame.LANES)
    together = _contiguous(inner, place, size) & active.equals(-1) & known
    with inner.when(together):
        _together(inner, inner.builder.inttoptr(start.handle, BYTE), registers, element, storing)
        inner.give(0)
    _one_by_one(inner, access, place, registers, element, active, storing)
    inner.give(0)
    return inner.function


def _contiguous(code: BlockCode, place: Place, size: int) -> Value:
    """Whether the lanes' addresses follow one another without gaps."""
    base = place.base
    assert isinstance(base, Register)
    type = Type("u", base.bits)
    addresses = code.frame.get(base.offset, type, frame.LANES)
    counting = ir.Constant(type.by(frame.LANES).ir, [lane * size for lane in range(frame.LANES)])
    wanted = addresses.lane(0).spread(frame.LANES) + Value(code, type.by(frame.LANES), counting)
    return ~addresses.differs(wanted).any()


def _together(code: BlockCode, host: Any, parts: tuple[Resolved, ...], element: Type, storing: bool) -> None:
    """The whole warp's data in one piece."""
    count, lanes = len(parts), frame.LANES
    word = Type("u", element.bits)
    memory = Pointer(code, word, host)
    registers = [part for part in parts if isinstance(part, Register)]
    if storing:
        rows = [
            code.frame.get(register.offset, Type("u", register.bits), lanes).to(word)
            for register in registers
        ]
        if count == 1:
            memory.store(rows[0])
        else:
            joined = _interleaved(code, [row.handle for row in rows], word, count)
            memory.store(Value(code, word.by(lanes * count), joined))
        return
    whole = memory.load(0, lanes * count)
    for number, register in enumerate(registers):
        values = whole
        if count > 1:
            places = ir.Constant(
                ir.VectorType(ir.IntType(32), lanes), list(range(number, lanes * count, count))
            )
            undefined = ir.Constant(whole.type.ir, ir.Undefined)
            values = Value(code, word.by(lanes), code.builder.shuffle_vector(whole.handle, undefined, places))
        values = Value(code, element.by(lanes), values.handle) if element.kind != "f" else values
        extended = values.to(Type(values.type.kind, register.bits)).to(Type("u", register.bits))
        code.frame.pointer(register.offset, Type("u", register.bits)).store(extended)


def _interleaved(code: BlockCode, handles: list[Any], word: Type, count: int) -> Any:
    """Vectors of a warp's registers as they lie in memory: lane by lane."""
    lanes = frame.LANES
    while len(handles) > 1:  # two and two, so that each shuffle joins vectors of one length
        width = handles[0].type.count
        places = list(range(2 * width))
        handles = [
            code.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), 2 * width), places))
            for a, b in zip(handles[::2], handles[1::2], strict=True)
        ]
    order = [part * lanes + lane for lane in range(lanes) for part in range(count)]
    undefined = ir.Constant(handles[0].type, ir.Undefined)
    places_constant = ir.Constant(ir.VectorType(ir.IntType(32), lanes * count), order)
    return code.builder.shuffle_vector(handles[0], undefined, places_constant)


def _broadcast(
    code: BlockCode, access: Access, place: Place, parts: tuple[Resolved, ...], element: Type, active: Value
) -> None:
    """A load from one place for all lanes."""
    with code.when(active.differs(0)):
        zero = code.constant(i64, 0)
        host = access.host(code.address_of(place, zero), zero)
        mask = code.lanes_of(active)
        for number, part in enumerate(parts):
            if isinstance(part, Register):
                value = Pointer(code, Type(_integer_kind(element), element.bits), host).load(number)
                wide = value.to(Type(value.type.kind, part.bits)).to(Type("u", part.bits))
                pointer = code.frame.pointer(part.offset, Type("u", part.bits))
                pointer.store(mask.select(wide.spread(frame.LANES), pointer.load(0, frame.LANES)))


def _integer_kind(element: Type) -> Any:
    return "i" if element.kind == "i" else "u"


def _one_by_one(
    code: BlockCode,
    access: Access,
    place: Place,
    parts: tuple[Resolved, ...],
    element: Type,
    active: Value,
    storing: bool,
) -> None:
    word = Type(_integer_kind(element), element.bits)
    with code.each_lane(active) as lane:
        host = access.host(code.address_of(place, lane), lane)
        pointer = Pointer(code, word, host)
        if storing:
            values = [code.lane_read(part, word, lane) for part in parts]
            for number, value in enumerate(values):
                value = value.to(word) if value.type.bits == 1 else value
                _unaligned_store(code, pointer, value, number)
        else:
            loaded = [_unaligned_load(code, pointer, number) for number in range(len(parts))]
            for part, value in zip(parts, loaded, strict=True):
                code.lane_write(part, value, lane)


def _unaligned_load(code: BlockCode, pointer: Pointer, number: int) -> Value:
    return Value(code, pointer.type, code.builder.load((pointer + number)._typed(pointer.type), align=1))


def _unaligned_store(code: BlockCode, pointer: Pointer, value: Value, number: int) -> None:
    code.builder.store(value.handle, (pointer + number)._typed(value.type), align=1)
