"""CuTe's atoms under CUTLASS's names: MMA and copy operations, tiled over threads and data, in plain Python.

Everything is derived from the instructions of the catalogue; pictures of it are in `draw/`.
"""

from lanewise.atoms.copy_atom import Copy_Atom, Copy_Traits
from lanewise.atoms.copy_names import CopyOperation
from lanewise.atoms.lookup import atom, atoms
from lanewise.atoms.mma_atom import MMA_Atom, ThrMMA
from lanewise.atoms.mma_traits import MMA_Traits
from lanewise.atoms.names import Operation
from lanewise.atoms.tiled_copy import (
    ThrCopy,
    TiledCopy,
    WarpPartitioner,
    make_cotiled_copy,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_copy_C,
    make_tiled_copy_C_atom,
    make_tiled_copy_D,
    make_tiled_copy_S,
    make_tmem_copy,
    make_tmem_warp_partitioner,
    make_utccp_copy,
)
from lanewise.atoms.tiled_mma import (
    TiledMMA,
    make_tiled_mma,
    partition_fragment_C,
    partition_shape_A,
    partition_shape_B,
    partition_shape_C,
)
from lanewise.atoms.tmem import TmemTensor, find_tmem_tensor_col_offset
from lanewise.atoms.value_types import (
    Major,
    RegisterArray,
    ScaleIn,
    ScaleOut,
    SparseSel,
    ValueType,
    value_type,
)
from lanewise.hints import not_called
from lanewise.tracebacks import short_functions

__all__ = [
    "CopyOperation",
    "Copy_Atom",
    "Copy_Traits",
    "MMA_Atom",
    "MMA_Traits",
    "Major",
    "Operation",
    "RegisterArray",
    "ScaleIn",
    "ScaleOut",
    "SparseSel",
    "ThrCopy",
    "ThrMMA",
    "TiledCopy",
    "TiledMMA",
    "TmemTensor",
    "ValueType",
    "WarpPartitioner",
    "atom",
    "atoms",
    "find_tmem_tensor_col_offset",
    "make_cotiled_copy",
    "make_tiled_copy",
    "make_tiled_copy_A",
    "make_tiled_copy_B",
    "make_tiled_copy_C",
    "make_tiled_copy_C_atom",
    "make_tiled_copy_D",
    "make_tiled_copy_S",
    "make_tiled_mma",
    "make_tmem_copy",
    "make_tmem_warp_partitioner",
    "make_utccp_copy",
    "partition_fragment_C",
    "partition_shape_A",
    "partition_shape_B",
    "partition_shape_C",
    "value_type",
]


def __getattr__(name: str) -> object:
    """Layouts by CuTe's names, such as SM80_16x8_Row, which are derived when they are asked for."""
    from lanewise.atoms.mma_traits import NAMES, named_layout

    if name in NAMES:
        return named_layout(name)
    raise AttributeError(f"module 'lanewise.atoms' has no attribute {name!r}")


def INSTEAD(name: str) -> str:
    """Return how an operation is asked for whose name was written as an attribute."""
    return f"lanewise.atom({name!r}) is the operation" if atoms(name) else ""


short_functions(__name__)
not_called(
    __name__,
    'lanewise.atom("SM80_16x8x16_F32F16F16F32_TN") is one atom, lanewise.atoms.atoms("SM80") lists names',
)
