"""Addresses: each is checked against what the launch may touch, and becomes a place of the host's memory.

A warp's addresses are checked together where they lie in one array; what moves there is in `moves.py`.
"""

from __future__ import annotations

from typing import Any

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import BYTE, U64, BlockCode, FunctionCode, Record, shared
from lanewise.machine.program.resolve import Op, Place

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


def locate(module: ir.Module) -> ir.Function:
    """`locate(frame, address, size, alignment, flags, site, lane)`: a host address, or 0 and the fault."""
    return shared(module, "locate", ir.FunctionType(ir.LONG, [ir.LONG] * 7), _write_locate)


def _write_locate(module: ir.Module, name: str) -> None:
    arguments = ("frame", "address", "size", "alignment", "flags", "site", "lane")
    code = FunctionCode(module, name, arguments, ir.IntType(64), "")
    code.function.attributes.add("noinline")
    warp = code.record("frame")
    block = warp.at(abi.BLOCK)
    launch = block.at(abi.LAUNCH)
    address, size, flags = code["address"].to(U64), code["size"].to(U64), code["flags"]
    misaligned = (address & (code["alignment"].to(U64) - 1)).differs(0)

    def fail(kind: int) -> None:
        block.set(abi.KIND, kind)
        block.set(abi.SITE, code["site"])
        block.set(abi.LANE, code["lane"])
        block.set(abi.ADDRESS, address.to(i64))
        block.set(abi.SIZE, size.to(i64))
        code.give(0)

    def inside(offset: Value, limit: Value) -> Value:
        return (offset < limit) & ((offset + size - 1) < limit)

    with code.when(misaligned):
        fail(2)
    with code.when((flags & GENERIC).differs(0)):
        shared = address - abi.SHARED_WINDOW
        with code.when(shared < abi.WINDOW_BYTES):
            with code.when(inside(shared, launch.get(abi.SHARED_BYTES).to(U64))):
                code.give(block.get(abi.SHARED) + shared.to(i64))
            fail(1)
            _dead(code)
        local = address - abi.LOCAL_WINDOW
        with code.when(local < abi.WINDOW_BYTES):
            bytes_each = launch.get(abi.LOCAL_BYTES)
            with code.when(inside(local, bytes_each.to(U64))):
                thread = warp.get(abi.INDEX) * abi.LANES + code["lane"]
                code.give(block.get(abi.LOCAL) + thread * bytes_each + local.to(i64))
            fail(1)
            _dead(code)
        parameter = address - abi.PARAM_WINDOW
        with code.when(parameter < abi.WINDOW_BYTES):
            readable = inside(parameter, launch.get(abi.PARAMETER_BYTES).to(U64)) & (flags & WRITE).equals(0)
            with code.when(readable):
                code.give(launch.get(abi.PARAMETERS) + parameter.to(i64))
            fail(1)
            _dead(code)
    table = launch.at(abi.ALLOCATIONS)
    with code.loop(launch.get(abi.ALLOCATION_COUNT)) as number:
        entry = Record(code, table.address + number * abi.ALLOCATION_BYTES)
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
            cache = Record(code, block.get(abi.CACHES) + code["site"] * abi.CACHE_BYTES)
            # The number of bytes is written last: another warp of this block never sees half an entry.
            cache.set(0, entry.get(0))
            cache.set(16, entry.get(16))
            cache.set(8, entry.get(8))
            code.give(host)
            _dead(code)
    fail(1)


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
        self.launch = self.block.at(abi.LAUNCH)

    def _checked(self, offset: Value, limit: Value, address: Value, lane: Value, size: int) -> None:
        code = self.code
        inside = (offset < limit) & ((offset + (size - 1)) < limit)
        with code.when(~inside):
            code.fault(1, self.site, lane, address, size)
        if self.alignment > 1:
            with code.when((offset & (self.alignment - 1)).differs(0)):
                code.fault(2, self.site, lane, address, size)

    def window(self, address: Value) -> tuple[Value, Value, Value]:
        """What an address most likely lies in: its first address, its bytes, and the host's address of it."""
        code, zero = self.code, self.code.constant(U64, 0)
        if self.space == "shared":
            return zero, self.launch.get(abi.SHARED_BYTES).to(U64), self.block.get(abi.SHARED)
        if self.space == "local":
            each = self.launch.get(abi.LOCAL_BYTES)
            first_lane = code.frame.get(abi.INDEX) * abi.LANES * each
            return zero, each.to(U64), self.block.get(abi.LOCAL) + first_lane
        if self.space == "param":
            return zero, self.launch.get(abi.PARAMETER_BYTES).to(U64), self.launch.get(abi.PARAMETERS)
        cache = Record(code, self.block.get(abi.CACHES) + code.number(self.site) * abi.CACHE_BYTES)
        found = cache.get(0, U64), cache.get(8, U64), cache.get(16)
        if self.space != "generic":
            return found
        shared = (address - abi.SHARED_WINDOW) < abi.WINDOW_BYTES
        others = (
            code.constant(U64, abi.SHARED_WINDOW),
            self.launch.get(abi.SHARED_BYTES).to(U64),
            self.block.get(abi.SHARED),
        )
        first, limit, start = (shared.select(mine, other) for mine, other in zip(others, found, strict=True))
        return first, limit, start

    def host(self, address: Value, lane: Value) -> Any:
        """The host's place of an address, checked; a bad one ends the block of code."""
        code, size = self.code, self.size
        if self.space == "shared":
            self._checked(address, self.launch.get(abi.SHARED_BYTES).to(U64), address, lane, size)
            return Record(code, self.block.get(abi.SHARED) + address.to(i64)).handle
        if self.space == "local":
            each = self.launch.get(abi.LOCAL_BYTES)
            self._checked(address, each.to(U64), address, lane, size)
            thread = code.frame.get(abi.INDEX) * abi.LANES + lane
            return Record(code, self.block.get(abi.LOCAL) + thread * each + address.to(i64)).handle
        if self.space == "param":
            self._checked(address, self.launch.get(abi.PARAMETER_BYTES).to(U64), address, lane, size)
            return Record(code, self.launch.get(abi.PARAMETERS) + address.to(i64)).handle
        cache = Record(code, self.block.get(abi.CACHES) + code.number(self.site) * abi.CACHE_BYTES)
        offset, limit = address - cache.get(0, U64), cache.get(8, U64)
        known = (offset < limit) & ((offset + (size - 1)) < limit)
        if self.alignment > 1:
            known = known & (address & (self.alignment - 1)).equals(0)
        if self.flags & ATOMIC:
            known = known & ((cache.get(16, U64) + offset) & (self.alignment - 1)).equals(0)
        found = code.variable(cache.get(16) + offset.to(i64))
        with code.when(~known):
            numbers = [code.number(n) for n in (size, self.alignment, self.flags, self.site)]
            values = [code["frame"], address.to(i64), *numbers, lane]
            where = Value(code, i64, code.builder.call(locate(code.module), [each.handle for each in values]))
            with code.when(where.equals(0)):
                code.builder.ret(ir.Constant(ir.IntType(32), -2))
            found.set(where)
        return code.builder.inttoptr(found.get().handle, BYTE)


class Window:
    """The piece of memory that a warp's addresses most likely lie in: looked at once for all lanes."""

    def __init__(self, access: Access, address: Value) -> None:
        code = access.code
        self.access = access
        self.first, limit, start = access.window(address)
        #: What makes a good address the host's when added to it (in local memory, the first lane's).
        self.shift = start - self.first.to(i64)
        # An empty window has no last place: nothing is below 0.
        fits = limit >= access.size
        self.end = fits.select(limit - (access.size - 1), code.constant(U64, 0))
        self.each = access.launch.get(abi.LOCAL_BYTES) if access.space == "local" else None

    def bad(self, addresses: Value) -> Value:
        """0 where an access is good; it may be good elsewhere too, in another array."""
        type, single = addresses.type, addresses.type.by(1)
        offsets = addresses - self.first.to(single).spread(type.lanes)
        found = (offsets >= self.end.to(single).spread(type.lanes)).mask(type)
        return found | (addresses & (self.access.alignment - 1)) if self.access.alignment > 1 else found

    def host(self, address: Value, lane: Value) -> Value:
        """The host's address of one lane's access, if that is good."""
        host = self.shift + address.to(i64)
        return host if self.each is None else host + lane * self.each


def effective_space(op: Op, place: Place) -> str:
    """Parameters of device functions and of calls lie in local memory."""
    space = space_of(op)
    base = place.base
    if space == "param" and getattr(base, "space", "") == "local":
        return "local"
    return space
