"""CuTe's layout algebra in plain Python: int tuples, Layout, its algebra, Swizzle, Tensor.

Every name of CUTLASS's pycute is here with its meaning there, and so is what pycute leaves out.
"""

from lanewise.hints import not_called

from .basis import ArithmeticTuple, E, ScaledBasis
from .common import max_common_layout, max_common_vector
from .complements import complement
from .compose import composition, with_shape
from .coordinates import crd2crd, crd2idx, has_none, idx2crd, slice_
from .divides import flat_divide, hier_unzip, logical_divide, tiled_divide, zipped_divide
from .int_tuple import (
    Integer,
    ceil_div,
    elem_scale,
    flatten,
    inner_product,
    is_int,
    is_tuple,
    prefix_product,
    product,
    product_each,
    shape_div,
    signum,
    suffix_product,
    tuple_max,
    unflatten,
)
from .inverse import left_inverse, nullspace, right_inverse
from .layout import (
    Layout,
    LayoutBase,
    cosize,
    is_layout,
    make_identity_layout,
    make_layout,
    size,
    slice_and_offset,
)
from .modes import append, depth, dice, group, prepend, rank, replace, select, take
from .order import make_fragment_like, make_layout_like, make_ordered_layout
from .partition import domain_offset, inner_partition, local_partition, local_tile, outer_partition
from .products import (
    blocked_product,
    flat_product,
    logical_product,
    raked_product,
    tile_to_shape,
    tiled_product,
    zipped_product,
)
from .recasting import downcast, recast, recast_layout, upcast
from .relations import compatible, congruent, weakly_compatible, weakly_congruent
from .simplify import coalesce, filter
from .swizzle import ComposedLayout, Swizzle, is_swizzled, shiftl, shiftr
from .tensor import Tensor, make_identity_tensor, make_tensor

__all__ = [
    "ArithmeticTuple",
    "ComposedLayout",
    "E",
    "Integer",
    "Layout",
    "LayoutBase",
    "ScaledBasis",
    "Swizzle",
    "Tensor",
    "append",
    "blocked_product",
    "ceil_div",
    "coalesce",
    "compatible",
    "complement",
    "composition",
    "congruent",
    "cosize",
    "crd2crd",
    "crd2idx",
    "depth",
    "dice",
    "domain_offset",
    "downcast",
    "elem_scale",
    "filter",
    "flat_divide",
    "flat_product",
    "flatten",
    "group",
    "has_none",
    "hier_unzip",
    "idx2crd",
    "inner_partition",
    "inner_product",
    "is_int",
    "is_layout",
    "is_swizzled",
    "is_tuple",
    "left_inverse",
    "local_partition",
    "local_tile",
    "logical_divide",
    "logical_product",
    "make_fragment_like",
    "make_identity_layout",
    "make_identity_tensor",
    "make_layout",
    "make_layout_like",
    "make_ordered_layout",
    "make_tensor",
    "max_common_layout",
    "max_common_vector",
    "nullspace",
    "outer_partition",
    "prefix_product",
    "prepend",
    "product",
    "product_each",
    "raked_product",
    "rank",
    "recast",
    "recast_layout",
    "replace",
    "right_inverse",
    "select",
    "shape_div",
    "shiftl",
    "shiftr",
    "signum",
    "size",
    "slice_",
    "slice_and_offset",
    "suffix_product",
    "take",
    "tile_to_shape",
    "tiled_divide",
    "tiled_product",
    "tuple_max",
    "unflatten",
    "upcast",
    "weakly_compatible",
    "weakly_congruent",
    "with_shape",
    "zipped_divide",
    "zipped_product",
]

not_called(__name__, "lanewise.Layout((4, 8), (1, 4)) makes a layout")
