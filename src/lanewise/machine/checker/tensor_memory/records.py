"""The records by which a check follows tensor memory: who touched its cells, waits, and commits.

A cell is 16 lanes of one column: instructions of tcgen05 reach such groups of lanes as a whole, but for those
that fill single lanes, which count as the whole group. Only kernels with tcgen05 keep these records.
"""

from enum import IntEnum, IntFlag, auto

from lanewise.jit.record_layout import embedded, pointer
from lanewise.machine.abi import RecordLayout, field, per_lane
from lanewise.machine.checker.records import BlockWatch
from lanewise.machine.tensor_memory_records import TENSOR_COLUMNS, TENSOR_LANES

#: Lanes of a cell, and the groups of so many lanes that tensor memory has.
CELL_LANES = 16
LANE_GROUPS = TENSOR_LANES // CELL_LANES
CELLS = LANE_GROUPS * TENSOR_COLUMNS
#: Waits, and commits, of a warp that are kept, powers of two: older ones count as known to all.
WAITS_KEPT, COMMITS_KEPT = 16, 64


class TensorFlag(IntFlag):
    """What an instruction does to the cells of tensor memory that it reaches."""

    READS = auto()
    WRITES = auto()
    #: It is an operation of the pipe: tcgen05.mma, cp or shift. Others are loads and stores of a warp.
    PIPE = auto()
    #: Every column has to be written before it is read; without it, one of them has to be.
    EVERY_COLUMN = auto()
    #: That some columns were never written is worth advice.
    ADVISES = auto()
    #: The columns are freed.
    FREES = auto()
    #: Every cell has to be written before it is read.
    EVERY_CELL = auto()
    #: It is D of a product that is written.
    SUMS = auto()
    #: What a product has written as D cannot be read as this operand.
    NO_SUMS = auto()


class TensorOperand(IntEnum):
    """What a product reads from tensor memory; above the bits of TensorFlag, in one number with them."""

    SUMS = 0
    MATRIX_A = 1
    SCALES_OF_A = 2
    SCALES_OF_B = 3
    METADATA = 4


#: The first bit of a TensorOperand beside TensorFlags.
OPERAND_SHIFT = 16
assert max(TensorFlag) < 1 << OPERAND_SHIFT


class TensorWait(IntEnum):
    """What a warp executes after its own instructions of tcgen05, so that others may rely on them."""

    LOADS = 0  # tcgen05.wait::ld
    STORES = 1  # tcgen05.wait::st
    FENCE = 2  # tcgen05.fence::before_thread_sync


class TensorCell(RecordLayout):
    """A cell: the epochs and words (`who`) of its last write, its last load, and its last use by the pipe.

    `extent` is that of the last write, if the pipe wrote: all columns that the instruction wrote, and whether
    they are D of a product. `used_as` is the TensorOperand of the last use.
    """

    written = field(4)
    writer = field(4)
    loaded = field(4)
    loader = field(4)
    used = field(4)
    user = field(4)
    extent = field(4)
    used_as = field(4)


class Commit(RecordLayout):
    """A tcgen05.commit: its epoch and lane, and the phase of the mbarrier that it arrives in."""

    epoch = field()
    lane = field()
    home = pointer(lambda: BlockWatch)
    number = field()
    phase = field()


class TensorClock(RecordLayout):
    """What a warp has done to wait for its own tcgen05 instructions; the last ones of each are kept."""

    #: The epochs of what a TensorWait counts, WAITS_KEPT for each kind of it, and how many there were.
    waits = field(8, len(TensorWait) * WAITS_KEPT)
    wait_counts = field(8, len(TensorWait))
    # The epoch of the last tcgen05.fence::after_thread_sync, and what the warp knew of others by then, as in
    # its WarpClock.
    after_fence = field()
    after_acquired = field()
    after_seen = per_lane()
    #: The columns that the warp asked for last; 0: it has allocated none.
    allocated = field()
    commit_count = field()
    commits = embedded(Commit, COMMITS_KEPT)
