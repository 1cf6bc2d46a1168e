"""What can be wrong with a bulk copy, as numbers for compiled code and as sentences for people."""

from lanewise.machine.abi import FaultReason


class Wrong(FaultReason):
    """Why a bulk copy or a tensor copy stops the launch; each has one number that tells more.

    >>> Wrong.SIZE.sentence(24)
    'a copy of 24 bytes: the number of bytes has to be a multiple of 16'
    """

    SIZE = "a copy of {0} bytes: the number of bytes has to be a multiple of 16"
    ALIGNMENT = "the address {0:#x} is not a multiple of 16, as a bulk copy needs it"
    TENSOR_ALIGNMENT = "the shared address {0:#x} is not a multiple of 128, as a tensor copy needs it"
    COORDINATE = (
        "the innermost coordinate is {0} bytes from the start of the tensor, which is not a multiple of 16 "
        "(an H200 stops with an illegal instruction)"
    )
    NEGATIVE = (
        "the coordinate {0} is negative, which is allowed in loads only (an H200 stops with an illegal "
        "instruction)"
    )
    RANK = "the tensor map has {0} dimensions, and the instruction (.1d to .5d) is for another number"
    MODE = "the address is not that of a tensor map of the mode .tile (its field for the mode is {0})"
    #: `fault_report.py` names the type, the operation, and the types that it reduces.
    TYPE = "elements of the tensor map's type (number {0}) cannot be reduced by this operation"
    MULTICAST = "the mask {0:#x} names a block that is not in the cluster"
    MAP_TYPE = "the tensor map has the unknown element type {0}"
    LOCAL_MAP = (
        "the tensor map lies in local memory: declare the parameter as const __grid_constant__ CUtensorMap, "
        "and use the address of the parameter itself, not that of a copy"
    )
    MAP_ALIGNMENT = "the address {0:#x} of a tensor map is not a multiple of 64"
    NO_COLUMN = (
        "the address is not that of a tensor map of the mode .im2col (its field for the mode is {0}; an H200 "
        "stops with an illegal instruction)"
    )
    PIXEL = (
        "the first pixel lies outside of the bounding box of the tensor map: its coordinate is {0} (an H200 "
        "stops with an illegal instruction)"
    )
    OFFSET = (
        "the offset {0} is too large: with .3d offsets are below 65536, with .4d below 256, with .5d below 32"
    )
    BOX_BEYOND = (
        "the bounding box of the tensor map reaches beyond the tensor, to {0}, which is allowed in loads "
        "only: for stores no lower corner is negative and no upper one positive (an H200 stops with an "
        "illegal instruction)"
    )
    PAIR = (
        "the mbarrier at {0:#x} is in another block than .cta_group allows: with ::1 in that of the "
        "destination, with ::2 there or in the other block of its pair"
    )
    ROWS = (
        "the box of the tensor map has {0} rows; .tile::gather4 and .tile::scatter4 take four single rows, "
        "so that it must have one"
    )
    GATHER_INTERLEAVED = (
        "the tensor map has the interleaved layout {0}, which .tile::gather4 and .tile::scatter4 do not take"
    )
    HALO = (
        "wHalo or wOffset is {0}, which is too large: wHalo is below 512 with .im2col::w and below 32 with "
        ".im2col::w::128, wOffset is below 32"
    )
    BULK_STORE = "st.bulk of {0} bytes: a multiple of 8, and 16777216 at most, is allowed"
    BULK_STORE_ALIGNMENT = "the address {0:#x} is not a multiple of 8, as st.bulk needs it"
    PACKED_COORDINATE = (
        "the innermost coordinate {0} is not a multiple of 128, as the padded types b4x16_p64 and b6x16_p32 "
        "need it, or of 2 for b4x16"
    )
    ATOMICITY = (
        "the tensor map has swizzle and atomicity (number {0}) that do not go together: 32B and more is for "
        "the swizzle of 128 bytes"
    )
    PADDED_STORE = "elements of the tensor map's type (number {0}) can be loaded, and not stored"
