"""What can be wrong with tcgen05.mma, as numbers for compiled code and as sentences for people."""

from __future__ import annotations

from enum import IntEnum


class Wrong(IntEnum):
    """Why a product of tcgen05 stops the launch; each has one number that tells more."""

    NOT_YET = 1


_SENTENCES = {
    Wrong.NOT_YET: "the machine does not compute tcgen05.mma yet ({0})",
}


def sentence(why: int, number: int) -> str:
    """Return what is wrong; `number` is the 64-bit number that the fault has beside it.

    >>> sentence(Wrong.NOT_YET, 0)
    'the machine does not compute tcgen05.mma yet (0)'
    """
    signed = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return _SENTENCES[Wrong(why)].format(signed)
