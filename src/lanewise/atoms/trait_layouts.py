"""CuTe's names for layouts that many traits share (`SM80_16x8_Row`), derived from instructions.

The traits themselves are in `mma_traits.py`.
"""

from functools import cache

from lanewise.atoms.mma_traits import MMA_Traits
from lanewise.layout import Layout

#: The name of each layout: an operation whose traits have it, and the trait.
_FROM = {
    "SM80_8x4": ("SM80_8x8x4_F64F64F64F64_TN", "ALayout"),
    "SM80_8x8_Row": ("SM80_8x8x4_F64F64F64F64_TN", "CLayout"),
    "SM80_8x16_Row": ("SM80_8x8x16_S32S8S8S32_TN", "ALayout"),
    "SM80_16x8_Row": ("SM80_16x8x16_F32F16F16F32_TN", "CLayout"),
}
NAMES = tuple(_FROM)


@cache
def named_layout(name: str) -> Layout:
    """The layout of a name, (thread, value) to the flat index.

    >>> named_layout("SM80_16x8_Row")
    ((4,8),(2,2)):((32,1),(16,8))
    """
    operation, trait = _FROM[name]
    layout: Layout = getattr(MMA_Traits(operation), trait)
    return layout
