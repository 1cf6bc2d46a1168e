"""Fragments: the registers, or the descriptors, that hold one thread's partition of an operand."""

from typing import Any

from lanewise.atoms.value_types import ValueType
from lanewise.errors import LanewiseError
from lanewise.layout import (
    Layout,
    ScaledBasis,
    Tensor,
    flatten,
    make_fragment_like,
    rank,
    replace,
    size,
    upcast,
)
from lanewise.layout.int_tuple import spell


def check_partitioned(name: str, part: Tensor, values: int) -> None:
    """An error unless a tensor looks like what partition_… returned."""
    if not isinstance(part, Tensor) or rank(part.shape) < 3 or size(part.shape[0]) != values:
        shape = spell(part.shape) if isinstance(part, Tensor) else repr(part)
        raise LanewiseError(
            f"make_fragment_{name} takes what partition_{name} returns, (FrgV, Rest, Rest, …) with {values} "
            f"values in mode 0; {shape} was given"
        )


def registers(kind: ValueType, layout: Layout) -> Tensor:
    """A tensor of zeros of a value type, with a compact layout."""
    import numpy as np

    return Tensor(np.zeros(layout.cosize(), dtype=kind.dtype), layout)


def fragment_like(kind: ValueType, part: Tensor) -> Tensor:
    """Registers for the elements of a partition, the values of an operation next to each other.

    >>> from lanewise.atoms.value_types import value_type
    >>> fragment_like(value_type("half_t"), Tensor(0, Layout((2, 2, 4), (8, 1, 16))))
    ndarray[16]+0 o (2,2,4):(1,2,4)
    """
    domain = _plain(part)
    if any(isinstance(stride, ScaledBasis) for stride in flatten(domain.stride)):
        return registers(kind, Layout(domain.shape))
    return registers(kind, make_fragment_like(domain))


def _plain(part: Tensor) -> Layout:
    """Return the layout of a tensor, before the swizzle if it has one."""
    domain: Any = part.layout
    while not isinstance(domain, Layout):
        domain = domain._domain()
    return domain


#: Bits of the unit in which descriptors count addresses.
_DESCRIPTOR_UNIT = 128


def umma_descriptors(name: str, part: Tensor, bits: int) -> Tensor:
    """Return where the descriptor of each tcgen05.mma points, (1, Rest, …) in units of 16 bytes.

    >>> smem = Tensor(0, Layout(((128, 16), 1, 4), ((64, 1), 0, 16)))
    >>> umma_descriptors("A", smem, 16)
    0 o (1,1,4):(0,0,2)
    """
    bits = max(bits, 8) if bits != 4 else 4
    count, offset = _DESCRIPTOR_UNIT // bits, part.offset
    try:
        if not isinstance(offset, int) or offset % count:
            raise LanewiseError("it begins inside of such a unit")
        units = upcast(_plain(part), count)
    except LanewiseError as error:
        raise LanewiseError(
            f"{name} of layout {part.layout} has no descriptors, which count {count} elements (16 bytes): "
            f"{error}"
        ) from None
    return Tensor(offset // count, replace(units, 0, Layout(1, 0)))


def descriptors(part: Tensor) -> Tensor:
    """Where the descriptor of each operation points: the partition with its first element alone in mode 0."""
    result: Tensor = replace(part, 0, Layout(1, 0))
    return result
