"""What can be wrong with tcgen05.mma, as numbers for compiled code and as sentences for people."""

from lanewise.errors import LanewiseError
from lanewise.isa.matrix_descriptor import tcgen05_fault
from lanewise.machine.abi import FaultReason
from lanewise.machine.tensor_core.tcgen05_statement import checked_descriptor, unpacked
from lanewise.machine.tensor_memory_records import FREED_COLUMN


class Wrong(FaultReason):
    """Why a product of tcgen05 stops the launch; each has one number that tells more."""

    INSTRUCTION_DESCRIPTOR = "no model says what this arch computes for the product"
    #: `tcgen05_fault` says what is wrong.
    MATRIX_DESCRIPTOR = ""
    NO_PAIR = "cta_group::2 needs a pair of blocks: launch it with clusters of an even number of blocks"
    ODD_RANK = (
        "the block of rank {0} in the cluster issues a product of cta_group::2; the block of the pair with "
        "the even rank issues it"
    )
    PARTNER_EXITED = (
        "the other block of the pair has exited: let both blocks wait for the cluster (barrier.cluster) or "
        "for the product's mbarrier before they end"
    )
    D_LANE = (
        "the lane of D's address is {0}; it is 0, or 16 as well where D has 64 rows in halves of partitions"
    )
    D_COLUMNS = "D does not lie in allocated columns of tensor memory; its first column is {0}"
    A_LANE = "the lane of A's address is {0}, and has to be that of D"
    A_COLUMNS = "A does not lie in allocated columns of tensor memory; its first column is {0}"
    SCALE_COLUMNS = "scale factors do not lie in allocated columns of tensor memory; the first column is {0}"
    METADATA_COLUMNS = (
        "the metadata of A does not lie in allocated columns of tensor memory; its first column is {0}"
    )
    BAD_METADATA = (
        "row {0} of A has metadata that select no elements: a code names two different elements of four, the "
        "first one first (tf32: 0b0100 or 0b1110)"
    )
    COLUMN_SHIFT = (
        "the zero-column mask shifts columns by {0}; the largest shift is 16 for M = 32, and 32 otherwise"
    )
    WIDE_SWIZZLE = (
        "the swizzle mode of the matrix descriptor (bits 61 to 63) is {0}; MN-major matrices of 32-bit "
        "elements have mode 1, the 128-byte swizzle with atoms of 32 bytes"
    )
    OTHER_SWIZZLE = (
        "the swizzle mode of the matrix descriptor (bits 61 to 63) is {0}, the 128-byte swizzle with atoms "
        "of 32 bytes, which only MN-major matrices of 32-bit elements have"
    )
    METADATA_LANE = "the lane of the metadata's address is {0}, and has to be that of D"
    ABSOLUTE_LEADING = (
        "the leading offset of a matrix descriptor is an absolute address (bit 52), which only products of "
        "K = 96 on sm_103a have"
    )


#: What is wrong with columns; the number has FREED_COLUMN if they were freed.
COLUMNS = (Wrong.D_COLUMNS, Wrong.A_COLUMNS, Wrong.SCALE_COLUMNS, Wrong.METADATA_COLUMNS)


def sentence(why: int, number: int) -> str:
    """Return what is wrong; `number` is the 64-bit number that the fault has beside it.

    >>> sentence(Wrong.ODD_RANK, 3)[:33]
    'the block of rank 3 in the cluste'
    """
    if why == Wrong.MATRIX_DESCRIPTOR:
        return tcgen05_fault(number)
    if why == Wrong.INSTRUCTION_DESCRIPTOR:
        try:
            checked_descriptor(unpacked(number >> 32), number & 0xFFFFFFFF)
        except LanewiseError as error:
            return str(error)
    if why in COLUMNS and number & FREED_COLUMN:
        return f"{sentence(why, number ^ FREED_COLUMN)}; it has been freed by tcgen05.dealloc"
    return Wrong.numbered(why).sentence(number)
