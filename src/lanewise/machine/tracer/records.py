"""The format of a log: what compiled code writes for every instruction of the traced blocks.

A log is one piece of memory. Entries, which have a fixed size, grow from its beginning; what belongs to an
entry, its payload, grows from its end. When they meet, the log is full and nothing more is written.

An entry is an `EntryHeader`. Its `point` says which instruction it is: `points.py` numbers them, and knows
the offset of everything in the payload:

- for each register that the instruction writes: 32 elements of the register's width, one for each lane;
- for each access to memory: 32 addresses of 8 bytes; if it is an atomic operation, the bytes before it;
  and the bytes that were read, or that are there after the write. Row n is lane n's access, matrix row n of
  ldmatrix and stmatrix, or line n of the tile of wmma.load and wmma.store.

Addresses are generic: those of shared, local and parameter memory lie in their windows (`abi.py`). What lanes
hold that are not active is not defined.
"""

from enum import IntEnum

import numpy as np

from lanewise.machine.abi import RecordLayout, field


class TracerRecord(RecordLayout):
    """What the steps of a traced launch share: where the log is written next, and what is logged."""

    #: A byte for each block of the grid, a BlockChoice, and for each warp of a block: whether it is logged.
    blocks = field()
    warps = field()
    #: Where the next entry begins, and where the last payload did.
    next_entry = field()
    last_payload = field()
    #: Not 0 once the log is full.
    full = field()
    #: The entry that a step has begun and another will complete, and its payload; 0 if there is none.
    current_entry = field()
    current = field()
    #: Where the log begins.
    base = field()


class EntryHeader(RecordLayout):
    """One entry of the log: an instruction that a warp has executed."""

    #: The offset of its payload in the log.
    payload = field()
    #: The number of the block in the grid.
    block = field()
    point = field(4)
    #: The warp of the block; -1 for what is of the whole block.
    warp = field(4)
    #: The lanes that were at the instruction, and those for which its guard held too.
    lanes = field(4)
    active = field(4)
    #: An EntryState.
    state = field(4)
    #: The number of a barrier that was completed; of an asynchronous write: whether it was done while the
    #: instruction of the entry before it ran; of cp.async: the lanes whose copies take effect later, as bits.
    barrier = field(4)


class AsyncWrite(RecordLayout):
    """What an asynchronous operation has written, followed by its runs and by the bytes of each run."""

    #: The offsets in the log of the entry that issued it, and of the wait that copied its source (or -1).
    issuer = field()
    reader = field()
    lane = field()
    #: The mbarrier at which it completes: its generic address (0: none), its block, its bits afterwards.
    barrier = field()
    barrier_block = field()
    barrier_word = field()
    #: How many runs there are, and where in the payload the bytes of the first one begin.
    runs = field()
    bytes = field()


class AsyncRun(RecordLayout):
    """Bytes that an asynchronous operation has written side by side."""

    #: Generic addresses. A source is known of tensor copies; FILLED is beyond the tensor, 0 of other copies.
    target = field()
    source = field()
    size = field()


#: The source of a run that a tensor copy has filled in, because it lies beyond the tensor.
FILLED = -1


class BlockChoice(IntEnum):
    """What is logged of a block."""

    NOTHING = 0
    EVERYTHING = 1
    #: What it writes to memory, because a block of its cluster is traced.
    WRITES = 2


class EntryState(IntEnum):
    """Whether an instruction ran to its end."""

    #: It began, and stopped the launch.
    BEGUN = 0
    COMPLETE = 1


#: The entries of a log as NumPy reads them.
ENTRY = np.dtype(
    {
        "names": list(EntryHeader.FIELDS),
        "formats": [
            {"payload": "i8", "block": "i8", "lanes": "u4", "active": "u4"}.get(name, "i4")
            for name in EntryHeader.FIELDS
        ],
        "offsets": [field.offset for field in EntryHeader.FIELDS.values()],
        "itemsize": EntryHeader.BYTES,
    }
)
#: The numbers of points that stand for no instruction: a completed barrier; bytes of memory that an
#: asynchronous operation has written, whose payload is an AsyncWrite with its runs and bytes.
BARRIER_POINT, ASYNC_WRITE_POINT = 0, 1
#: Payloads begin at multiples of this.
PAYLOAD_ALIGNMENT = 16
#: Bytes of an access that are kept for each lane; of longer ones the address alone is.
MOST_KEPT_BYTES = 128
