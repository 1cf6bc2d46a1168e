"""What can be wrong with a bulk copy, as numbers for compiled code and as sentences for people."""

from __future__ import annotations

from enum import IntEnum


class Wrong(IntEnum):
    """Why a bulk copy or a tensor copy stops the launch; each has one number that tells more."""

    SIZE = 1
    ALIGNMENT = 2
    TENSOR_ALIGNMENT = 3
    COORDINATE = 4
    NEGATIVE = 5
    RANK = 6
    MODE = 7
    TYPE = 8
    MULTICAST = 9
    MAP_TYPE = 10
    LOCAL_MAP = 11
    MAP_ALIGNMENT = 12
    NO_COLUMN = 13
    PIXEL = 14
    OFFSET = 15
    BOX_BEYOND = 16


_SENTENCES = {
    Wrong.SIZE: "a copy of {0} bytes: the number of bytes has to be a multiple of 16",
    Wrong.ALIGNMENT: "the address {0:#x} is not a multiple of 16, as a bulk copy needs it",
    Wrong.TENSOR_ALIGNMENT: "the shared address {0:#x} is not a multiple of 128, as a tensor copy needs it",
    Wrong.COORDINATE: (
        "the innermost coordinate is {0} bytes from the start of the tensor, which is not a multiple of 16 "
        "(an H200 stops with an illegal instruction)"
    ),
    Wrong.NEGATIVE: (
        "the coordinate {0} is negative, which is allowed in loads only (an H200 stops with an illegal "
        "instruction)"
    ),
    Wrong.RANK: "the tensor map has {0} dimensions, and the instruction (.1d to .5d) is for another number",
    Wrong.MODE: "the address is not that of a tensor map of the mode .tile (its field for the mode is {0})",
    Wrong.TYPE: "elements of the tensor map's type (number {0}) cannot be reduced by this operation",
    Wrong.MULTICAST: "the mask {0:#x} names a block that is not in the cluster",
    Wrong.MAP_TYPE: "the tensor map has the unknown element type {0}",
    Wrong.LOCAL_MAP: (
        "the tensor map lies in local memory: declare the parameter as const __grid_constant__ CUtensorMap, "
        "and use the address of the parameter itself, not that of a copy"
    ),
    Wrong.NO_COLUMN: (
        "the address is not that of a tensor map of the mode .im2col (its field for the mode is {0}; an H200 "
        "stops with an illegal instruction)"
    ),
    Wrong.PIXEL: (
        "the first pixel lies outside of the bounding box of the tensor map: its coordinate is {0} (an H200 "
        "stops with an illegal instruction)"
    ),
    Wrong.BOX_BEYOND: (
        "the bounding box of the tensor map reaches beyond the tensor, to {0}, which is allowed in loads "
        "only: for stores no lower corner is negative and no upper one positive (an H200 stops with an "
        "illegal instruction)"
    ),
    Wrong.OFFSET: (
        "the offset {0} is too large: with .3d offsets are below 65536, with .4d below 256, with .5d below 32"
    ),
    Wrong.MAP_ALIGNMENT: "the address {0:#x} of a tensor map is not a multiple of 64",
}


def sentence(why: int, number: int) -> str:
    """Return what is wrong; `number` is the 64-bit number that the fault has beside it.

    >>> sentence(Wrong.SIZE, 24)
    'a copy of 24 bytes: the number of bytes has to be a multiple of 16'
    """
    signed = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return _SENTENCES[Wrong(why)].format(signed)
