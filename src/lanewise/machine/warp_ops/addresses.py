"""Address translation: each device address is checked against the allocations and becomes a host address.

The addresses of a warp are checked together where they lie in one array; `load_store.py` moves the data.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u64
from lanewise.machine import abi
from lanewise.machine.abi import (
    AllocationRow,
    BlockRecord,
    CacheEntry,
    FaultKind,
    LaunchRecord,
    MemberRow,
    WarpFrame,
)
from lanewise.machine.codegen.function_code import BYTE, BlockCode, FunctionCode, Record, shared_routine
from lanewise.machine.codegen.lane_vectors import BOOL
from lanewise.machine.program.memory_accesses import LocatedAccess
from lanewise.machine.program.ops import Op

#: What `locate` has to know of an access: whether it writes, and whether its address is generic or one in the
#: shared memory of a cluster.
WRITE, GENERIC, CLUSTER = 1, 2, 4
#: The state space of the shared memory of all blocks of a cluster, as PTX names it; "shared" is that of the
#: block alone.
SHARED_CLUSTER = "shared::cluster"


@shared_routine("locate", ("frame", "address", "size", "alignment", "flags", "site", "lane"), ir.LONG)
def locate(code: FunctionCode) -> None:
    """`locate(frame, address, size, alignment, flags, site, lane)`: a host address.

    It returns 0 and records the fault if the address is not good.
    """
    code.function.attributes.add("noinline")
    warp = code.record("frame")
    block = warp.at(WarpFrame.block)
    launch = block.at(BlockRecord.launch)
    address, size, flags = code["address"].to(u64), code["size"].to(u64), code["flags"]
    misaligned = (address & (code["alignment"].to(u64) - 1)).differs(0)

    def fail(kind: FaultKind) -> None:
        code.record_fault(block, kind, code["site"], code["lane"], address, size)
        code.give(0)

    def inside(offset: Value, limit: Value) -> Value:
        return (offset < limit) & ((offset + size - 1) < limit)

    def in_cluster(shared: Value) -> None:
        """Return the host address of an address in the shared memory of any block of the cluster."""
        rank, offset = shared >> abi.RANK_SHIFT, shared & abi.OFFSET_MASK
        with code.when(~(rank < launch.get(LaunchRecord.cluster_blocks).to(u64))):
            fail(FaultKind.BAD_RANK)
            _dead(code)
        row = Record(code, block.get(BlockRecord.members) + rank.to(i64) * MemberRow.BYTES)
        with code.when(inside(offset, row.get(MemberRow.bytes, u64))):
            code.give(row.get(MemberRow.shared) + offset.to(i64))
        exited = row.get(MemberRow.bytes).equals(0) & launch.get(LaunchRecord.shared_bytes).differs(0)
        with code.when(exited):
            fail(FaultKind.EXITED_BLOCK)
            _dead(code)
        fail(FaultKind.OUT_OF_BOUNDS)

    with code.when(misaligned):
        fail(FaultKind.MISALIGNED)
    with code.when((flags & CLUSTER).differs(0)):
        in_cluster(address)
        _dead(code)
    with code.when((flags & GENERIC).differs(0)):
        shared = address - abi.SHARED_WINDOW
        with code.when(shared < abi.WINDOW_BYTES):
            in_cluster(shared)
            _dead(code)
        local = address - abi.LOCAL_WINDOW
        with code.when(local < abi.WINDOW_BYTES):
            bytes_each = launch.get(LaunchRecord.local_bytes)
            with code.when(inside(local, bytes_each.to(u64))):
                thread = warp.get(WarpFrame.index) * abi.LANES + code["lane"]
                code.give(block.get(BlockRecord.local) + thread * bytes_each + local.to(i64))
            fail(FaultKind.OUT_OF_BOUNDS)
            _dead(code)
        parameter = address - abi.PARAM_WINDOW
        with code.when(parameter < abi.WINDOW_BYTES):
            readable = inside(parameter, launch.get(LaunchRecord.parameter_bytes).to(u64)) & (
                flags & WRITE
            ).equals(0)
            with code.when(readable):
                code.give(launch.get(LaunchRecord.parameters) + parameter.to(i64))
            fail(FaultKind.OUT_OF_BOUNDS)
            _dead(code)
    table = launch.at(LaunchRecord.allocations)
    read_only = code.variable(code.constant(BOOL, 0))
    with code.loop(launch.get(LaunchRecord.allocation_count)) as number:
        entry = Record(code, table.address + number * AllocationRow.BYTES)
        offset = address - entry.get(AllocationRow.first, u64)
        with code.when(inside(offset, entry.get(AllocationRow.size, u64))):
            refused = (flags & WRITE).differs(0) & entry.get(AllocationRow.writable).equals(0)
            with code.when(refused):  # a later row may have the part of it that can be written
                read_only.set(code.constant(BOOL, 1))
            with code.when(~refused):
                cache = Record(code, block.get(BlockRecord.caches) + code["site"] * CacheEntry.BYTES)
                # The number of bytes is written last: another warp of this block never sees half an entry.
                cache.set(CacheEntry.first, entry.get(AllocationRow.first))
                cache.set(CacheEntry.host, entry.get(AllocationRow.host))
                cache.set(CacheEntry.size, entry.get(AllocationRow.size))
                code.give(entry.get(AllocationRow.host) + offset.to(i64))
                _dead(code)
    with code.when(read_only.get()):
        fail(FaultKind.READ_ONLY)
        _dead(code)
    fail(FaultKind.OUT_OF_BOUNDS)


def reached_space(op: Op, located: LocatedAccess) -> str:
    """Return the state space that an access reaches: a generic or named one, or that of the cluster."""
    return SHARED_CLUSTER if located.space == "shared" and op.has(SHARED_CLUSTER) else located.space


def _dead(code: FunctionCode) -> None:
    """Continue writing in a basic block that nothing reaches, after a return."""
    code.builder.position_at_end(code.function.append_basic_block("unreached"))


class Access:
    """Translates the addresses of one instruction into host addresses."""

    def __init__(
        self, code: BlockCode, site: int | Value, space: str, size: int, alignment: int, flags: int
    ) -> None:
        self.code, self.site, self.size, self.alignment = code, site, size, alignment
        self.space = space
        self.flags = flags | {"generic": GENERIC, SHARED_CLUSTER: CLUSTER}.get(space, 0)
        self.block = code.block
        self.launch = self.block.at(BlockRecord.launch)

    def _checked(self, offset: Value, limit: Value, address: Value, lane: Value, size: int) -> None:
        """Write the checks of an offset against a limit and of its alignment."""
        code = self.code
        inside = (offset < limit) & ((offset + (size - 1)) < limit)
        with code.when(~inside):
            code.fault(FaultKind.OUT_OF_BOUNDS, self.site, lane, address, size)
        if self.alignment > 1:
            with code.when((offset & (self.alignment - 1)).differs(0)):
                code.fault(FaultKind.MISALIGNED, self.site, lane, address, size)

    def window(self, address: Value) -> tuple[Value, Value, Value]:
        """Return the range that an address most likely lies in: first address, bytes, host address."""
        code, zero = self.code, self.code.constant(u64, 0)
        if self.space in ("shared", SHARED_CLUSTER):
            return (
                self.block.get(BlockRecord.shared_first, u64),
                self.launch.get(LaunchRecord.shared_bytes).to(u64),
                self.block.get(BlockRecord.shared),
            )
        if self.space == "local":
            local_bytes = self.launch.get(LaunchRecord.local_bytes)
            first_lane = code.frame.get(WarpFrame.index) * abi.LANES * local_bytes
            return zero, local_bytes.to(u64), self.block.get(BlockRecord.local) + first_lane
        if self.space == "param":
            return (
                zero,
                self.launch.get(LaunchRecord.parameter_bytes).to(u64),
                self.launch.get(LaunchRecord.parameters),
            )
        cache = Record(code, self.block.get(BlockRecord.caches) + code.number(self.site) * CacheEntry.BYTES)
        cached = cache.get(CacheEntry.first, u64), cache.get(CacheEntry.size, u64), cache.get(CacheEntry.host)
        if self.space != "generic":
            return cached
        shared = (address - abi.SHARED_WINDOW) < abi.WINDOW_BYTES
        others = (
            self.block.get(BlockRecord.shared_first, u64) + abi.SHARED_WINDOW,
            self.launch.get(LaunchRecord.shared_bytes).to(u64),
            self.block.get(BlockRecord.shared),
        )
        first, limit, start = (shared.select(mine, other) for mine, other in zip(others, cached, strict=True))
        return first, limit, start

    def host(self, address: Value, lane: Value) -> ir.Operand:
        """Return the host address of a device address; a bad one stops the launch."""
        code, size = self.code, self.size
        if self.space == "shared":
            offset = address - self.block.get(BlockRecord.shared_first, u64)
            self._checked(offset, self.launch.get(LaunchRecord.shared_bytes).to(u64), address, lane, size)
            return Record(code, self.block.get(BlockRecord.shared) + offset.to(i64)).handle
        if self.space == SHARED_CLUSTER:
            offset = address - self.block.get(BlockRecord.shared_first, u64)
            known = self._inside(offset, self.launch.get(LaunchRecord.shared_bytes).to(u64), address)
            host = self.block.get(BlockRecord.shared) + offset.to(i64)
            return self._known_or_located(address, lane, known, host)
        if self.space == "local":
            local_bytes = self.launch.get(LaunchRecord.local_bytes)
            self._checked(address, local_bytes.to(u64), address, lane, size)
            thread = code.frame.get(WarpFrame.index) * abi.LANES + lane
            return Record(
                code, self.block.get(BlockRecord.local) + thread * local_bytes + address.to(i64)
            ).handle
        if self.space == "param":
            self._checked(address, self.launch.get(LaunchRecord.parameter_bytes).to(u64), address, lane, size)
            return Record(code, self.launch.get(LaunchRecord.parameters) + address.to(i64)).handle
        cache = Record(code, self.block.get(BlockRecord.caches) + code.number(self.site) * CacheEntry.BYTES)
        offset, limit = address - cache.get(CacheEntry.first, u64), cache.get(CacheEntry.size, u64)
        known = self._inside(offset, limit, address)
        return self._known_or_located(address, lane, known, cache.get(CacheEntry.host) + offset.to(i64))

    def _inside(self, offset: Value, limit: Value, address: Value) -> Value:
        """Return whether an access lies below a limit, and its address is aligned."""
        known = (offset < limit) & ((offset + (self.size - 1)) < limit)
        if self.alignment > 1:
            known = known & (address & (self.alignment - 1)).equals(0)
        return known

    def _known_or_located(self, address: Value, lane: Value, known: Value, host: Value) -> ir.Operand:
        """Return a host address that is known to be right; else that which `locate` finds, or its fault."""
        code = self.code
        place = code.variable(host)
        with code.when(~known):
            facts = (self.size, self.alignment, self.flags, self.site, lane)
            located = code.invoke(locate(code.module), code["frame"], address.to(i64), *facts)
            code.stop_if(located.equals(0))
            place.set(located)
        return code.builder.inttoptr(place.get().handle, BYTE)


class Window:
    """The range of memory that a warp's addresses most likely lie in, loaded once for all lanes."""

    def __init__(self, access: Access, address: Value) -> None:
        code = access.code
        self.access = access
        self.first, limit, start = access.window(address)
        #: The host address minus the device address (in local memory, for the first lane).
        self.shift = start - self.first.to(i64)
        # In an empty window no address is good, since no offset is below 0.
        fits = limit >= access.size
        self.end = fits.select(limit - (access.size - 1), code.constant(u64, 0))
        self.local_bytes = access.launch.get(LaunchRecord.local_bytes) if access.space == "local" else None

    def bad(self, addresses: Value) -> Value:
        """Return 0 where an address lies in the window; others may still be good, in another array."""
        type, single = addresses.type, addresses.type.by(1)
        offsets = addresses - self.first.to(single).spread(type.lanes)
        outside = (offsets >= self.end.to(single).spread(type.lanes)).mask(type)
        return outside | (addresses & (self.access.alignment - 1)) if self.access.alignment > 1 else outside

    def host(self, address: Value, lane: Value) -> Value:
        """Return the host address of one lane's access, if it lies in the window."""
        host = self.shift + address.to(i64)
        return host if self.local_bytes is None else host + lane * self.local_bytes
