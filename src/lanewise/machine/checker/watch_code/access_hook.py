"""Called before each access: finds the bytes that the lanes of a warp touch, and has them looked at.

The lanes' addresses become offsets into shadow memory (`shadow_memory.py`), and their costs are counted
(`request_costs.py`).
"""

from lanewise.jit.lane_functions import (
    address_of,
    any_lane,
    choose,
    count_bits,
    lanes_in,
    lowest_bit,
    mask_of,
    unsigned_less,
)
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.machine import abi
from lanewise.machine.abi import WarpFrame
from lanewise.machine.checker import records
from lanewise.machine.checker.proxy_records import BarrierUse
from lanewise.machine.checker.records import (
    Access,
    AllocationShadow,
    BlockWatch,
    Flag,
    LastRequest,
    SiteRow,
    Space,
    WatchRecord,
)
from lanewise.machine.checker.suspicions import Suspicion
from lanewise.machine.checker.watch_code.clocks.block_order import arrive_at_grid
from lanewise.machine.checker.watch_code.clocks.clusters import is_in_cluster, note_remote
from lanewise.machine.checker.watch_code.clocks.mbarriers_and_atomics import access_strongly
from lanewise.machine.checker.watch_code.clocks.vector_clocks import (
    row_of,
    suspect,
    watch_of,
    watch_of_running,
)
from lanewise.machine.checker.watch_code.clocks.warp_order import meet
from lanewise.machine.checker.watch_code.proxy.async_clocks import note_written
from lanewise.machine.checker.watch_code.proxy.phases import written_over
from lanewise.machine.checker.watch_code.shadow.request_costs import count_costs, keep_base, remember
from lanewise.machine.checker.watch_code.shadow.shadow_memory import (
    access_heap,
    access_local,
    examine_wait,
    follow_initialised,
)
from lanewise.machine.checker.watch_code.shadow.shadow_vectors import (
    lanes_read_1,
    lanes_read_4,
    lanes_write_1,
    lanes_write_4,
    tiled_read,
    tiled_write,
)
from lanewise.machine.checker.watch_code.watch_module import (
    EVERY_LANE,
    LANES,
    ByteArray,
    LaneLongs,
    LaneWords,
    follows_async,
    longs_of,
    shifted_right,
)

#: How often an instruction that reported a race reports races again in another array, and how many.
MOST_REOPENED, REPORTS_REOPENED = 256, 20
#: The bytes of a row of a matrix.
ROW_BYTES = 16


# the memory -------------------------------------------------------------------------------------------------


@compiled()
def find_allocation(launch: WatchRecord, address: int) -> AllocationShadow:
    """Return the allocation with an address; its address is 0 if there is none."""
    for number in range(launch.allocation_count):
        shadow = launch.allocations[number]
        if unsigned_less(address - shadow.first, shadow.size):
            return shadow
    return AllocationShadow.at(0)


@inlined
def reopen(row: SiteRow, allocation: AllocationShadow) -> None:
    """Let an instruction report races again, because it accesses another allocation than before."""
    is_another = (address_of(row.last_allocation) != 0) & (address_of(allocation) != 0)
    if is_another & (row.allocation_changes < MOST_REOPENED):
        row.allocation_changes += 1
        for kind in (
            Suspicion.AFTER_WRITE,
            Suspicion.AFTER_READ,
            Suspicion.SAME_ADDRESS,
            Suspicion.WEAKLY_AFTER_WRITE,
            Suspicion.WEAKLY_AFTER_READ,
        ):
            row.limits[kind] = max(row.limits[kind], REPORTS_REOPENED)


@inlined
def find_global(access: Access, address: int) -> bool:
    """Fill in the allocation with an address; false if there is none."""
    row = access.row
    shadow = row.last_allocation
    is_known = address_of(shadow) != 0 and unsigned_less(address - shadow.first, shadow.size)
    if not is_known:
        shadow = find_allocation(access.watch.watch, address)
        reopen(row, shadow)
        row.last_allocation = shadow
    if address_of(shadow) == 0:
        return False
    access.origin = shadow.first
    access.limit = shadow.size
    access.plane = shadow.plane
    access.stride = shadow.stride
    access.shift = shadow.cell_shift
    access.host = shadow.host
    return True


@inlined
def find_shared(access: Access, address: int) -> None:
    """Fill in the shared memory of the own block, or of another one of the cluster.

    An address of no block leaves it without bytes: the access is a fault.
    """
    block = access.frame.block
    rank = shifted_right(address - access.origin, abi.RANK_SHIFT)
    if rank < block.launch.cluster_blocks:
        member = block.members[rank]
        owner = watch_of(member.block)
        access.origin += rank << abi.RANK_SHIFT
        access.limit = member.bytes
        access.home = owner
        access.plane = owner.shadow
        access.stride = owner.stride
        access.shift = owner.cell_shift
        access.host = member.shared


@inlined
def find_space(access: Access, address: int) -> None:
    """Fill in the space of an address, and where a generic address of that space begins."""
    access.space = access.row.space
    access.origin = 0
    if access.space == Space.GENERIC:
        access.space = Space.GLOBAL
        if unsigned_less(address - abi.SHARED_WINDOW, abi.WINDOW_BYTES):
            access.space = Space.SHARED
            access.origin = abi.SHARED_WINDOW
        if unsigned_less(address - abi.LOCAL_WINDOW, abi.WINDOW_BYTES):
            access.space = Space.LOCAL
            access.origin = abi.LOCAL_WINDOW


@inlined
def find_memory(access: Access, address: int) -> bool:
    """Fill in the memory with an address; false if there is none: a fault, or an access to parameters."""
    find_space(access, address)
    access.home = access.watch
    access.shared = int(access.space == Space.SHARED)
    access.limit = 0
    access.plane = 0
    access.stride = 0
    access.shift = 0
    access.host = 0
    if access.space == Space.GLOBAL:
        return find_global(access, address)
    if access.space == Space.SHARED:
        find_shared(access, address)
    else:
        access.limit = access.watch.local_bytes
    return True


# the request ------------------------------------------------------------------------------------------------


@inlined
def look_at_pattern(access: Access, request: LastRequest, first: int) -> None:
    """Find out how a request lies, and what it costs; `first` is its first lane.

    The result for the last request of this instruction holds for the same pattern some sectors further on, or
    some rows of banks.
    """
    base = access.offsets[first]
    phase = base & (127 if access.shared != 0 else 31)
    key = access.active | (access.space << 32) | (access.shift << 36) | (phase << 40)
    pattern = access.offsets - base
    if (request.key != key) | any_lane(request.pattern != pattern):
        request.key = key
        request.pattern = pattern
        remember(access, request, base)
    keep_base(request, base)
    access.lowest = base + request.least_offset
    access.highest = base + request.most_offset + access.size
    access.inside = int((access.lowest >= 0) & (access.highest <= access.limit))


@inlined
def check_bounds(access: Access) -> None:
    """Report lanes that leave the view or variable that their address was computed from."""
    row, offsets = access.row, access.offsets
    if (row.highest != 0) & ((access.lowest < row.lowest) | (access.highest > row.highest)):
        beyond = access.active & mask_of((offsets < row.lowest) | (offsets + access.size > row.highest))
        if beyond != 0:
            lane = lowest_bit(beyond)
            address = access.origin + access.offsets[lane]
            suspect(Suspicion.OUTSIDE, access.frame, access.site, lane, address, row.lowest, row.highest)


@inlined
def access_allocation(access: Access, first: int) -> bool:
    """Note which bytes of an allocation are accessed; false if nothing else has to be looked at."""
    shadow, flags = access.row.last_allocation, access.flags
    is_inside = access.inside != 0
    shadow.accessed_from = min(shadow.accessed_from, access.lowest if is_inside else 0)
    shadow.accessed_to = max(shadow.accessed_to, access.highest if is_inside else access.limit)
    shadow.flags = shadow.flags | flags
    if shadow.byte_states != 0:
        access_heap(access, ByteArray.at(shadow.byte_states))
    if shadow.initialised != 0:
        follow_initialised(access, ByteArray.at(shadow.initialised))
    if shadow.reads_recorded == 0:
        if flags & (Flag.READS | Flag.WRITES | Flag.STRONG_ACCESS) == Flag.READS:
            return False
        if flags & Flag.WRITES != 0:
            address = access.addresses[first]
            suspect(Suspicion.UNRECORDED_READS, access.frame, access.site, first, address, 0, 0)
    return True


# the access -------------------------------------------------------------------------------------------------


@inlined
def word_of(row: SiteRow, flags: int) -> int:
    """Return an access in one word, but for its lane."""
    who = row.number << records.SITE_SHIFT
    if (flags & (Flag.MATRIX | Flag.TILE) != 0) & (flags & Flag.BY_WORD == 0):
        who |= records.COLLECTIVE
    if flags & (Flag.READS | Flag.WRITES) == Flag.READS | Flag.WRITES:
        who |= records.ATOMIC
    if flags & Flag.CONSTANT != 0:
        who |= records.CONSTANT_READ
    if flags & Flag.STRONG_ACCESS != 0:
        # Operations on an mbarrier do not race with each other, wherever the threads are (CUTLASS arrives in
        # other blocks at the scope of the block, which is the default).
        of_block = flags & (Flag.IN_BLOCK | Flag.PHASES) == Flag.IN_BLOCK
        of_cluster = flags & (Flag.IN_CLUSTER | Flag.PHASES) == Flag.IN_CLUSTER
        if of_block | of_cluster:
            who |= records.STRONG_IN_BLOCK
        if not of_block:
            who |= records.STRONG
        if flags & Flag.VOLATILE_ACCESS != 0:
            who |= records.VOLATILE
    return who


@inlined
def check_near_barriers(access: Access) -> None:
    """Look at plain accesses to bytes of mbarriers, and at those that initialise mbarriers."""
    flags, home, is_weak = access.flags, access.home, access.flags & Flag.STRONG_ACCESS == 0
    writes, of_barrier = flags & Flag.WRITES != 0, flags & Flag.PHASES != 0
    initialises = of_barrier & is_weak & writes
    # Accesses beyond the limits are looked at lane by lane.
    overlaps = (access.lowest < home.followed_to) & (home.followed_from < access.highest)
    is_near = ((access.inside == 0) | overlaps) & (home.followed_count > 0)
    is_other = (not of_barrier) & (flags & (Flag.READS | Flag.WRITES) != 0)
    if initialises | (is_other & is_near):
        made = BarrierUse.INVAL if flags & Flag.INVALIDATES != 0 else BarrierUse.INIT
        used = BarrierUse.STORE if writes else BarrierUse.LOAD
        written_over(
            access.frame,
            access.site,
            home,
            LaneLongs.at(address_of(access.offsets)),
            access.active,
            access.size,
            access.host,
            use=made if initialises else used,
        )


@inlined
def look_at_cells(access: Access, first: int) -> None:
    """Look at an access to memory that has shadow memory: its cells are examined, and it is put on record."""
    watch, flags = access.watch, access.flags
    reads, writes, is_weak = (
        flags & Flag.READS != 0,
        flags & Flag.WRITES != 0,
        flags & Flag.STRONG_ACCESS == 0,
    )
    if follows_async() and (access.home is not watch) & is_in_cluster(watch):
        addresses = LaneLongs.at(address_of(access.addresses))
        note_remote(watch, access.home, access.site, addresses, access.active)
    access.who = word_of(access.row, flags)
    if not is_weak:
        if (access.origin == abi.GRID_BASE) & writes:
            arrive_at_grid(access.frame, access.site, first)
        if (flags & Flag.PHASES != 0) & reads & (not writes) & (access.home is watch):
            examine_wait(access)
        access_strongly(access)
    if follows_async():
        if writes:
            note_written(watch, access.active, access.shared != 0)
        if access.shared != 0:
            check_near_barriers(access)
    access.pending = 0
    if flags & Flag.COPIES != 0:
        access.pending = records.PENDING
        lanes = watch.running_lanes
        lanes.issued = choose(lanes_in(access.active), watch.epoch, lanes.issued)
    is_aligned = access.lowest & ((1 << access.shift) - 1) == 0
    is_tiled = (access.inside != 0) & is_weak & (access.row.last_request.tiled_cells != 0) & is_aligned
    by_fours = (access.size >> access.shift) & 3 == 0
    # An atomic is one access: its write stands for both.
    if writes:
        if not is_tiled or not tiled_write(access, access.row.last_request):
            if by_fours:
                lanes_write_4(access)
            else:
                lanes_write_1(access)
    elif reads:
        active = access.active
        if is_weak & (access.shared == 0) & (address_of(access.row.observing) != 0):
            # It does not matter which value a lane loads that does nothing with it.
            access.active = active & access.row.observing[access.frame.index]
        is_whole = is_tiled & (access.active == active)
        if not is_whole or not tiled_read(access, access.row.last_request):
            if by_fours:
                lanes_read_4(access)
            else:
                lanes_read_1(access)
        access.active = active


@compiled()
def access_region(access: Access, lanes: int) -> int:
    """Look at the lanes that access the same memory as the first of them; return those that are done."""
    first = lowest_bit(lanes)
    if not find_memory(access, access.addresses[first]):
        return lanes
    access.active = lanes
    access.offsets = access.addresses - access.origin
    request, is_local = access.row.last_request, access.space == Space.LOCAL
    look_at_pattern(access, request, first)
    if access.inside == 0:
        last = access.offsets + (access.size - 1)
        access.active = lanes & mask_of((access.offsets < access.limit) & (last < access.limit))
        if access.active == 0:  # the first lane's access is a fault
            return 1 << first
        if not is_local:
            request.key = 0
            count_costs(access, request)
    if is_local:
        access_local(access)
        return access.active
    row = access.row
    row.wavefronts += request.wavefronts
    row.ideal += request.ideal
    row.sectors += request.sectors
    row.least_sectors += request.least_sectors
    check_bounds(access)
    if access.space == Space.GLOBAL and not access_allocation(access, first):
        return access.active
    if access.plane != 0:  # else it is too large to be watched
        look_at_cells(access, first)
    return access.active


@inlined
def find_addresses(access: Access) -> None:
    """Fill in the addresses of all lanes."""
    frame, row = access.frame, access.row
    base, displacement = row.base, row.displacement
    if base < 0:
        # A variable in shared memory is that of the own block.
        own = frame.block.shared_first if row.space == Space.SHARED else 0
        access.addresses = displacement + own
    elif row.base_bits == 32:
        access.addresses = longs_of(LaneWords.at(address_of(frame) + base).words + displacement)
    elif row.base_bits == 64:
        access.addresses = LaneLongs.at(address_of(frame) + base).longs + displacement


@compiled()
def access(frame: WarpFrame, site: int, active: int) -> None:
    """Called before every instruction that accesses memory."""
    if active == 0:
        return
    row = row_of(frame, site)
    of_warp = row.flags & (Flag.MATRIX | Flag.TILE | Flag.BY_ONE_LANE) != 0
    if of_warp and row.flags & Flag.BY_ONE_LANE == 0:
        meet(frame, active)
    watch = watch_of_running(frame)
    note_strays(watch, active)
    made = Access.on_stack()
    made.frame = frame
    made.watch = watch
    made.site = site
    made.row = row
    made.flags = row.flags
    made.size = row.access_size
    find_addresses(made)
    left = active
    if of_warp:
        if row.flags & Flag.BY_ONE_LANE != 0:
            left = 1 << lowest_bit(active)
        else:
            shape(made)
            left = row.lanes_read & EVERY_LANE
    lanes = count_bits(left)
    row.requests += 1
    row.threads += lanes
    row.moved_bytes += lanes * row.access_size
    while left != 0:
        left &= ~access_region(made, left)
    if of_warp and row.flags & Flag.BY_ONE_LANE == 0:
        meet(frame, active)


@inlined
def note_strays(watch: BlockWatch, active: int) -> None:
    """Note lanes that access memory, perhaps while others of the warp wait for them."""
    clock = watch.clock
    if clock.partial | clock.awaited | clock.waiting != 0:
        clock.broken = 1
        clock.strayed = clock.strayed | active
    clock.touched = clock.touched | active
    clock.arrived_lanes = clock.arrived_lanes & ~active


# matrices ---------------------------------------------------------------------------------------------------


@inlined
def suspect_lane(access: Access, kind: int, lane: int, number: int) -> None:
    """Report a suspicion about an address of a lane."""
    suspect(kind, access.frame, access.site, lane, number, 0, 0)


@inlined
def check_rows(access: Access) -> None:
    """Report addresses of rows that are not aligned or lie outside, also those that are ignored."""
    generic = abi.SHARED_WINDOW if access.row.space == Space.GENERIC else 0
    offsets, limit = access.addresses - generic, access.watch.shared_bytes
    unaligned = mask_of(offsets & (ROW_BYTES - 1) != 0)
    if unaligned != 0:
        lane = lowest_bit(unaligned)
        suspect_lane(access, Suspicion.IGNORED_ALIGNMENT, lane, access.addresses[lane])
    outside = mask_of((offsets + (ROW_BYTES - 1) >= limit) | (offsets >= limit))
    if outside != 0:
        lane_outside = lowest_bit(outside)
        suspect_lane(access, Suspicion.IGNORED_ADDRESS, lane_outside, access.addresses[lane_outside])


@inlined
def tell_not_uniform(access: Access, lanes: int) -> None:
    """Report lanes whose operand of a tile differs from that of the first lane."""
    if lanes != 0:
        suspect_lane(access, Suspicion.TILE_UNIFORM, lowest_bit(lanes), access.addresses[lowest_bit(lanes)])


@inlined
def check_tile(access: Access) -> None:
    """Check the address and the stride of a tile, and replace the lanes' addresses by those of its lines."""
    row, first = access.row, access.addresses[0]
    tell_not_uniform(access, mask_of(access.addresses != first))
    if first & (row.alignment - 1) != 0:
        suspect_lane(access, Suspicion.TILE_ALIGNMENT, 0, first)
    leading = row.step
    if row.step_base > 0:
        steps = LaneWords.at(address_of(access.frame) + row.step_base)
        leading = steps.words[0]
        tell_not_uniform(access, mask_of(steps.words != leading))
    # A line has to begin on a multiple of 16 bytes.
    pitch = leading * row.element_bits
    if pitch & (8 * ROW_BYTES - 1) != 0:
        suspect_lane(access, Suspicion.TILE_STRIDE, 0, leading)
    for line in range(LANES):
        access.addresses[line] = first + ((line * pitch) >> 3)


@compiled()
def shape(access: Access) -> None:
    """Check the addresses of a matrix, and replace the lanes' addresses by those of its rows."""
    if access.flags & Flag.EVERY_LANE != 0:
        check_rows(access)
    if access.flags & Flag.TILE != 0:
        check_tile(access)
