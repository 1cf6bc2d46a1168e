"""The tiling of an MMA operation over threads and data, as operations on layouts, with their conditions.

Whose shapes and layouts they are is said in `mma_atom.py`, and so is one thread's share.
"""

from typing import Any

from lanewise.errors import LanewiseError
from lanewise.layout import (
    ComposedLayout,
    Layout,
    Tensor,
    coalesce,
    complement,
    composition,
    flatten,
    is_int,
    logical_divide,
    make_layout,
    product,
    size,
    zipped_divide,
)
from lanewise.layout.int_tuple import spell
from lanewise.layout.layout import on_domain


class Modes(tuple[Any, ...]):
    """A value for each of M, N and K: indexed like a tuple, or called as CuTe's `tile_size_mnk<I>()` is.

    >>> tile = Modes((32, 16, 16))
    >>> tile[0], tile(1), tile() == (32, 16, 16)
    (32, 16, True)
    """

    __slots__ = ()

    def __call__(self, mode: int | None = None) -> Any:
        if mode is None:
            return self
        if not is_int(mode) or not 0 <= mode < len(self):
            raise LanewiseError(f"modes are 0 (M), 1 (N) and 2 (K); {mode!r} was asked for")
        return self[mode]


def as_tensor(what: object) -> Any:
    """What can be partitioned: tensors and layouts as they are, an array as the tensor of its own layout."""
    return what if isinstance(what, (Tensor, Layout, ComposedLayout)) else Tensor(what)


def _divides(entry: Any, extent: int) -> bool:
    """Whether copies of a tile, an extent or a layout, fill a mode without a gap."""
    if not isinstance(entry, Layout):
        return extent % int(entry) == 0
    return entry.cosize() <= extent and size(entry) * size(complement(entry, extent)) == extent


def check_divides(what: str, target: Any, names: str, tile: tuple[object, ...]) -> None:
    """An error unless the modes of a tensor are whole numbers of tiles."""
    shape = target.shape
    if not isinstance(shape, tuple) or len(shape) < len(tile):
        raise LanewiseError(
            f"{what} takes a tensor of modes ({', '.join(names)}, …); one of shape {spell(shape)} was given"
        )
    for i, entry in enumerate(tile):
        name, extent = names[i] if i < len(names) else f"mode {i}", product(shape[i])
        if not _divides(entry, extent):
            raise LanewiseError(
                f"{what}: the tile takes {entry} along {name}, and the tensor of shape {spell(shape)} has "
                f"{extent} there, which is not a multiple of it; pad the tensor (an identity tensor "
                "partitioned alike tells what lies outside) or choose another tile"
            )


@on_domain
def thrfrg(
    layout: Layout, permutation: tuple[Any, ...], shape: tuple[int, ...], tv: Layout, threads: tuple[int, ...]
) -> Layout:
    """A layout (M, K, …) as ((ThrV, (ThrM, ThrK)), (FrgV, (RestM, RestK, …))); so too (N, K, …), (M, N, …).

    ThrV and FrgV are the threads and values of one operation, ThrM and ThrK the operations side by side,
    RestM and RestK what is left to be repeated.

    >>> thrfrg(Layout((32, 16)), (32, 16), (16, 8), Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))), (2, 1))
    (((4,8),(2,1)),((2,2),(1,2))):(((64,1),(16,0)),((32,8),(0,256)))
    """
    permuted = logical_divide(layout, permutation)
    atom, rest = zipped_divide(permuted, tuple(Layout(extent) for extent in shape))
    thread, value = composition(atom, tv)
    threads_of, rest_of = zipped_divide(rest, tuple(Layout(count, int(count > 1)) for count in threads))
    return make_layout(make_layout(thread, threads_of), make_layout(value, rest_of))


def thread_of_index(thr_layout_vmnk: Layout) -> Layout:
    """Index of a thread to its coordinate in (ThrV, ThrM, ThrN, ThrK); a thread that is idle gets another's.

    >>> print(thread_of_index(Layout(((4, 2), 1, 1, 1), ((1, 16), 0, 0, 0))))
    (4,4,2):(1,0,4)
    """
    steps, place = [], 1
    for extent, stride in zip(flatten(thr_layout_vmnk.shape), flatten(thr_layout_vmnk.stride), strict=True):
        steps.append((stride, extent, place))
        place *= extent
    absent = complement(thr_layout_vmnk)
    for extent, stride in zip(flatten(absent.shape), flatten(absent.stride), strict=True):
        steps.append((stride, extent, 0))
    ordered = sorted(step for step in steps if step[1] > 1) or [(0, 1, 0)]
    return coalesce(Layout(tuple(extent for _, extent, _ in ordered), tuple(at for _, _, at in ordered)))


def check_permutation(name: str, entry: Any, step: int) -> None:
    """An error unless a permutation rearranges a whole number of the operations that run side by side."""
    if entry is None:
        return
    if not (isinstance(entry, Layout) or (is_int(entry) and entry > 0)):
        raise LanewiseError(
            f"PermutationMNK: the entry for {name} is an extent, a layout or None, not {entry!r}"
        )
    extent = size(entry)
    if extent % step:
        raise LanewiseError(
            f"PermutationMNK: {entry} takes {extent} along {name}, which is not a multiple of the {step} "
            "that the atoms cover side by side"
        )
    if isinstance(entry, Layout) and sorted(map(entry, range(extent))) != list(range(extent)):
        raise LanewiseError(
            f"PermutationMNK: {entry} for {name} is no permutation: it must hit 0 to {extent - 1} once each"
        )
