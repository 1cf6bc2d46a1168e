"""Records of a block's tensor memory: its size, and which of its columns are allocated.

The memory is 128 lanes of 512 columns of 32 bits, lane after lane: the word at a lane and a column lies at
`lane * LANE_BYTES + column * 4` from `BlockRecord.tensor_memory`. A device address has the lane in its bits
16 to 31 and the column in its bits 0 to 15. Hardware has this memory once for a multiprocessor, and the
blocks that run there share it; here each block has all of it to itself, as if it were alone there.
"""

from lanewise.machine.abi import RecordLayout, field

TENSOR_LANES, TENSOR_COLUMNS = 128, 512
LANE_BYTES = 4 * TENSOR_COLUMNS
TENSOR_BYTES = TENSOR_LANES * LANE_BYTES
#: The bit of an address where the lane begins.
LANE_SHIFT = 16
#: Columns are allocated by so many: a unit.
UNIT = 32
UNITS = TENSOR_COLUMNS // UNIT
#: A fault names a column that is not allocated by its number, with this bit if the column was freed.
FREED_COLUMN = 1 << LANE_SHIFT


class TensorAllocator(RecordLayout):
    """The columns of a block's tensor memory that are allocated, and who waits for columns."""

    #: The units that are allocated, as bits; those that were freed last, and not allocated since.
    allocated = field()
    freed = field()
    #: For each unit one more than the first column of the allocation that it belongs to; 0 if it is free.
    owners = field(elements=UNITS)
    #: Whether the block has given up its right to allocate.
    relinquished = field()
    # A warp that allocates for a pair of blocks and waits for the other block: the columns that it asked for
    # (0: none), its number, and one more than the column that the other block's warp got for both.
    asked = field()
    asked_warp = field()
    granted = field()
