"""TMA under CuTe's names: lw.make_tma_copy, lw.tma_partition, and the copies that lw.copy makes of them.

The instructions are emitted by `hopper/tma.py`; here is which boxes of a tile they move.
"""

from __future__ import annotations

from typing import Any

from lanewise.lang.hopper import tma
from lanewise.lang.hopper.tma import TensorMap
from lanewise.lang.memory.layout_index import shape_text
from lanewise.lang.memory.view import Coordinates, SwizzledAddresses, View
from lanewise.lang.tiles.tensor import as_view, divide_into_tiles, make_identity_tensor
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.traced import Traced, describe
from lanewise.layout import make_layout, size

#: CUTLASS's names of the copies, and the verb of each.
_OPERATIONS = {
    "SM90_TMA_LOAD": "load",
    "SM90_TMA_LOAD_MULTICAST": "load",
    "SM90_TMA_STORE": "store",
    "SM90_TMA_REDUCE_ADD": "add",
    "SM100_TMA_2SM_LOAD": "load",
    "SM100_TMA_2SM_LOAD_MULTICAST": "load",
}


class TmaCopy(Traced):
    """A copy of boxes by a tensor map: `copy.with_(barrier)` says on which mbarrier its loads complete."""

    __slots__ = ("map", "operation", "options")

    def __init__(self, operation: str, map: TensorMap, **options: object) -> None:
        self.operation, self.map, self.options = operation, map, options

    def with_(self, barrier: object = None, *, multicast: object = None, cache: object = None) -> TmaCopy:
        """Return the copy that completes on a barrier, for a mask of blocks and with a cache policy."""
        return TmaCopy(self.operation, self.map, barrier=barrier, multicast=multicast, cache=cache)

    def get_tma_tensor(self, shape: object) -> View:
        """Return the tensor of a map as its coordinates, to be cut into tiles: in the order of the array."""
        return make_identity_tensor(shape)

    def copy_boxes(self, source: Any, target: Any) -> None:
        """Emit the copies of all boxes between tensors that lw.tma_partition made."""
        loads = _OPERATIONS[self.operation] == "load"
        outside, inside = (source, target) if loads else (target, source)
        kinds = ((outside, Coordinates, "coordinates"), (inside, SwizzledAddresses, "shared memory"))
        for given, kind, what in kinds:
            if not isinstance(given, View) or not isinstance(given.addresses, kind):
                way = "from coordinates to shared memory" if loads else "from shared memory to coordinates"
                raise current().error(
                    f"{self.operation} goes {way}, and {describe(given)} is no tensor of {what}: "
                    "lw.tma_partition(copy, tensor, shared) makes both"
                )
        if self.options.get("barrier") is None and loads:
            raise current().error(f"{self.operation} completes on an mbarrier: copy.with_(barrier)")
        outside, inside = _one_tile(outside), _one_tile(inside)
        if size(outside.layout) != size(inside.layout):
            raise current().error(
                f"lw.copy: {shape_text(source.shape)} and {shape_text(target.shape)} have other sizes"
            )
        box, boxes = inside.layout
        for number in range(size(boxes)):
            here = View(inside.addresses_at((0, number), inside.layout), box)
            first = outside.addresses.coordinates(outside.offset(number * size(box)))
            self._copy_box(here, first)

    def _copy_box(self, shared: View, coordinates: object) -> None:
        """Emit the copy of one box."""
        verb, cache = _OPERATIONS[self.operation], self.options.get("cache")
        if verb == "load":
            group = 2 if "_2SM_" in self.operation else None
            tma.load(shared, self.map, coordinates, cta_group=group, **self.options)
        elif verb == "store":
            tma.store(self.map, coordinates, shared, cache=cache)
        else:
            tma.reduce(verb, self.map, coordinates, shared, cache=cache)

    def __str__(self) -> str:
        return f"{self.operation} by {self.map}"


def _one_tile(tensor: View) -> View:
    """Return a slice ((box, boxes),) of a partition as (box, boxes)."""
    if len(tensor.layout) == 1 and len(tensor.layout[0]) == 2:
        return View(tensor.addresses, tensor.layout[0])
    if len(tensor.layout) != 2 or len(tensor.layout[1].shape) != len(tensor.layout[0].shape):
        raise current().error(
            f"lw.copy by TMA takes one tile, a slice t[None, k] of what lw.tma_partition gives; {tensor} has "
            "further modes"
        )
    return tensor


def make_tma_copy(operation: str, map: object) -> TmaCopy:
    """Return a copy by a tensor map, under CUTLASS's name of it.

    The names are SM90_TMA_LOAD, SM90_TMA_LOAD_MULTICAST, SM90_TMA_STORE and SM90_TMA_REDUCE_ADD; those of a
    pair of blocks are SM100_TMA_2SM_LOAD and SM100_TMA_2SM_LOAD_MULTICAST.
    Inside a kernel: `load = lw.make_tma_copy("SM90_TMA_LOAD", A)` for a parameter A: lw.TensorMap[…].
    """
    if operation not in _OPERATIONS:
        raise current().error(f"lw.make_tma_copy knows {', '.join(_OPERATIONS)}; not {operation!r}")
    if not isinstance(map, TensorMap):
        raise current().error(
            f"lw.make_tma_copy takes a tensor map, a parameter annotated lw.TensorMap[…]; not {describe(map)}"
        )
    if map.kind.box is None:
        raise current().error(
            f"lw.make_tma_copy has to know the box of {map.name}: write it into the annotation"
        )
    return TmaCopy(operation, map)


def tma_partition(copy: object, tensor: object, shared: object) -> tuple[View, View]:
    """Return a tensor of coordinates and one in shared memory, both as ((box, boxes), rest, …).

    Their first modes are a tile in the order of the array, as long as the map has dimensions; it is cut into
    boxes of the map. Further modes, such as tiles along K and stages, are kept for indices.
    Inside a kernel: `from_a, to_a = lw.tma_partition(load, gA, sA)`, then
    `lw.copy(load.with_(full[stage]), from_a[None, k], to_a[None, stage])`.
    """
    if not isinstance(copy, TmaCopy):
        raise current().error(f"lw.tma_partition takes what lw.make_tma_copy made, not {describe(copy)}")
    outside, inside = as_view(tensor, "lw.tma_partition"), as_view(shared, "lw.tma_partition")
    if not isinstance(outside.addresses, Coordinates):
        raise current().error(
            f"lw.tma_partition takes a tensor of coordinates, from copy.get_tma_tensor(shape); not {outside}"
        )
    boxes = [_in_boxes(copy, tensor) for tensor in (outside, inside)]
    if size(boxes[0].layout[0]) != size(boxes[1].layout[0]):
        raise current().error(
            f"lw.tma_partition: a tile of shape {shape_text(outside.shape)} and one in shared memory of "
            f"shape {shape_text(inside.shape)} have other sizes"
        )
    return boxes[0], boxes[1]


def _in_boxes(copy: TmaCopy, tensor: View) -> View:
    """Return a tensor as ((box, boxes), rest, …)."""
    box = copy.map.kind.box
    assert box is not None
    rank = len(box)
    if len(tensor.layout) < rank:
        raise current().error(f"{copy.map} has {rank} dimensions, and {tensor} has fewer modes")
    for extent, mode in zip(box, tensor.layout, strict=False):
        if size(mode) % extent:
            raise current().error(
                f"lw.tma_partition: {size(mode)} elements of {tensor} are no multiple of the box's {extent}"
            )
    divided = divide_into_tiles(tensor, box)
    over = list(divided[1])
    tile = make_layout([divided[0], make_layout(over[:rank])])
    return View(tensor.addresses, make_layout([tile, *over[rank:]]))
