"""The record of one access while it is looked at: by lanes of a warp, to bytes of one allocation."""

from lanewise.jit.record_layout import pointer
from lanewise.jit.restricted_python import inlined
from lanewise.machine.abi import RecordLayout, WarpFrame, field, per_lane
from lanewise.machine.checker.records import BlockWatch, SiteRow
from lanewise.machine.checker.watch_code.watch_module import ShadowCell, cell_at


class Access(RecordLayout):
    """An access by lanes of one warp to one allocation, to a block's shared memory, or to local memory."""

    frame = pointer(lambda: WarpFrame)
    #: The BlockWatch of the warp's block, and of the block whose memory it is.
    watch = pointer(lambda: BlockWatch)
    home = pointer(lambda: BlockWatch)
    #: The row of the site table, by its number and its address; its flags and the bytes of each lane.
    site = field()
    row = pointer(lambda: SiteRow)
    flags = field()
    size = field()
    #: The lanes whose bytes all lie in the memory.
    active = field()
    #: A Space that is not generic; whether it is shared memory.
    space = field()
    shared = field()
    # The memory: its first address, its bytes, and where it lies on the host.
    origin = field()
    limit = field()
    host = field()
    # Its shadow memory: the first plane, the distance of planes, the bytes of a cell as a power of two.
    plane = field()
    stride = field()
    shift = field()
    # The offset of the first byte that lanes access, and of the byte after the last; whether all lie inside.
    lowest = field()
    highest = field()
    inside = field()
    #: The access in one word, but for its lane; PENDING if it is the write of an asynchronous copy, else 0.
    who = field()
    pending = field()
    #: The addresses of all lanes, and their offsets in the memory.
    addresses = per_lane(8)
    offsets = per_lane(8)


@inlined
def cell_of(access: Access, offset: int) -> ShadowCell:
    """Return the cell of shadow memory for an offset in the memory."""
    return cell_at(access.plane + ((offset >> access.shift) << 2), access.stride)
