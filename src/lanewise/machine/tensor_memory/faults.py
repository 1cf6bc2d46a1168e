"""What can be wrong with tensor memory, as numbers for compiled code and as sentences for people."""

from lanewise.machine.abi import FaultReason
from lanewise.machine.tensor_memory_records import FREED_COLUMN, TENSOR_COLUMNS, TENSOR_LANES


class Wrong(FaultReason):
    """Why an instruction of tensor memory stops the launch; each has one number that tells more."""

    COUNT = (
        "{0} columns: tensor memory is allocated and freed in 32, 64, 128, 256 or 512 columns of 128 lanes"
    )
    COUNTS_DIFFER = "the number of columns is not the same in all lanes of the warp (lane 0 has {0})"
    RELINQUISHED = (
        "an allocation of {0} columns after the block gave up the right to allocate "
        "(tcgen05.relinquish_alloc_permit): allocate before that, or leave it out"
    )
    NOT_AN_ALLOCATION = (
        "the address {0:#x} with this number of columns is no allocation: free what tcgen05.alloc returned, "
        "once, with the number of columns that it was asked for"
    )
    NO_PAIR = (
        ".cta_group::2 needs the two blocks of a pair, and the cluster of this launch has {0}: launch "
        "clusters of 2, 4, 6, … blocks"
    )
    PAIR_EXITED = (
        "the other block of the pair (rank {0} in the cluster) has exited; let both meet at a barrier of the "
        "cluster before one of them ends"
    )
    PAIR_COUNT = (
        "the other block of the pair asks for another number of columns than this one, which asks for {0}"
    )
    NOT_ALLOCATED = (
        "the instruction reaches columns from {0} on, which are not all allocated: allocate enough with "
        "tcgen05.alloc, use the address that it wrote, and free the columns later"
    )
    BEYOND_COLUMNS = (
        f"the instruction reaches column {{0}}: tensor memory has columns 0 to {TENSOR_COLUMNS - 1}"
    )
    BEYOND_LANES = f"the instruction reaches lane {{0}}: tensor memory has lanes 0 to {TENSOR_LANES - 1}"
    LANES_OF_OTHERS = (
        "the address names lane {0}, which this warp does not reach: a warp reaches the 32 lanes from "
        "32 * (its number in the block modulo 4) on"
    )
    FIRST_LANE = "the address names lane {0}, and this shape begins at a multiple of its lanes"
    ADDRESSES_DIFFER = "the address is not the same in all lanes of the warp (lane 0 has {0:#x})"
    MASK = "the mask {0:#x} names a block that is not in the cluster"
    NOT_SHARED = "the address {0:#x} of the mbarrier is not in the shared memory of the cluster"
    DESCRIPTOR = (
        "the matrix descriptor {0:#x} is none that a copy takes: its bits 46 to 48 are 1, and its swizzle "
        "(bits 61 to 63) is 0 (none), 2 (128 bytes), 4 (64 bytes) or 6 (32 bytes)"
    )


_FREED = (
    "the instruction reaches columns from {0} on, which have been freed by tcgen05.dealloc: free columns "
    "after their last use by any thread"
)


def sentence(why: int, number: int) -> str:
    """Return what is wrong; `number` is the 64-bit number that the fault has beside it.

    >>> sentence(Wrong.BEYOND_LANES, 130)
    'the instruction reaches lane 130: tensor memory has lanes 0 to 127'
    """
    if why == Wrong.NOT_ALLOCATED and number & FREED_COLUMN:
        return _FREED.format(number ^ FREED_COLUMN)
    return Wrong.numbered(why).sentence(number)
