"""One thread of a tiled MMA or a tiled copy inside a kernel, its index traced: what it takes of a tensor.

The layouts are those of `atoms/`; a thread's place in them becomes integer arithmetic, done once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.atoms import MMA_Atom, TiledCopy
from lanewise.atoms.tiling import thread_of_index
from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa import Operand
from lanewise.lang.builder import current
from lanewise.lang.coordinates import thread_idx
from lanewise.lang.tiles import View, tiled, view
from lanewise.lang.tiles_registers import Registers, make_registers
from lanewise.lang.tiles_steps import reach
from lanewise.lang.types import is_int
from lanewise.lang.values import Scalar, describe
from lanewise.layout import Layout, ScaledBasis, composition, flatten, make_layout, rank, size


def _index(index: Any, what: MMA_Atom | TiledCopy) -> Scalar:
    if not isinstance(index, Scalar) or not is_int(index.dtype) or index.dtype.bits != 32:
        raise current().error(f"a thread of {what!r} is an i32, as lw.thread_idx.x is; not {describe(index)}")
    builder = current()
    # under a branch, some of a block's threads may have work of another kind
    if index.register is thread_idx.x.register and not builder.open and what.size() % 32 == 0:
        builder.threads.append((what.size(), repr(what), builder.place))
    return index


def _named(f: Callable[..., Any], *args: Any) -> Any:
    """What a function of the atoms says, with the Python line where it complains."""
    try:
        return f(*args)
    except LanewiseError as error:
        raise current().error(str(error)) from None


def _share(whole: View, threads: Layout, rest: Layout, index: Scalar) -> View:
    """The elements of one thread: `threads` maps its index to where it begins, `rest` has its elements."""
    stride = flatten((threads.stride,))
    mask = None if any(isinstance(each, ScaledBasis) for each in stride) else reach(threads)
    return View(whole.moved(index, threads, mask), rest)


class ThreadMMA:
    """One thread of a tiled MMA, its index traced: `tiled_mma.get_slice(lw.thread_idx.x)`."""

    def __init__(self, mma: MMA_Atom, index: Any) -> None:
        self.mma, self.thr_idx = mma, _index(index, mma)

    def partition_A(self, tensor: Any) -> View:
        """The thread's elements of a tensor (M, K, …), as (FrgV, RestM, RestK, …)."""
        return self._part("A", tensor)

    def partition_B(self, tensor: Any) -> View:
        """The thread's elements of a tensor (N, K, …), as (FrgV, RestN, RestK, …)."""
        return self._part("B", tensor)

    def partition_C(self, tensor: Any) -> View:
        """The thread's elements of a tensor (M, N, …), as (FrgV, RestM, RestN, …)."""
        return self._part("C", tensor)

    def _part(self, name: str, tensor: Any) -> View:
        whole = view(tensor, f"partition_{name}")
        threads, rest = _named(self.mma.by_index, name, whole.layout)
        return _share(whole, threads, _spread(rest), self.thr_idx)

    def partition_fragment_A(self, tensor: Any) -> Registers:
        """Registers for partition_A(tensor)."""
        return self._fragment("A", tensor)

    def partition_fragment_B(self, tensor: Any) -> Registers:
        """Registers for partition_B(tensor)."""
        return self._fragment("B", tensor)

    def partition_fragment_C(self, tensor: Any) -> Registers:
        """Registers for the accumulators of partition_C(tensor), zero; a shape will do for the tensor."""
        return self._fragment("C", tensor)

    def _fragment(self, name: str, tensor: Any) -> Registers:
        if isinstance(tensor, tuple):
            layout = _named(Layout, tensor)
        else:
            layout = view(tensor, f"partition_fragment_{name}").layout
        _, rest = _named(self.mma.by_index, name, layout)
        return make_registers(operand_dtype(self.mma, name), _spread(rest))

    def __repr__(self) -> str:
        return f"<a thread of {self.mma!r}>"


def _spread(rest: Layout) -> Layout:
    """(FrgV, (Rest, …)) as (FrgV, Rest, …)."""
    return make_layout([rest[0], *rest[1]])


def operand_dtype(mma: MMA_Atom, name: str) -> Format:
    """The dtype of an operand's elements; an error where they do not lie side by side in 32-bit registers."""
    inst = mma.instruction
    operand: Operand = inst.operands[name.lower()]
    if inst.family != "mma" or operand.where != "registers":
        raise current().error(f"{mma.name} is {inst.family}: tiles inside kernels are for mma.sync")
    element = getattr(mma, f"ValType{name.upper()}").format
    if element != operand.format or (operand.slots > 1 and operand.slot_bits != operand.format.bits):
        raise current().error(f"{mma.name}: {operand.title} is not held as plain elements in registers")
    return operand.format


class ThreadCopy:
    """One thread of a tiled copy, its index traced: `tiled_copy.get_slice(lw.thread_idx.x)`."""

    def __init__(self, copy: TiledCopy, index: Any) -> None:
        self.copy, self.thr_idx = copy, _index(index, copy)

    def partition_S(self, tensor: Any) -> View:
        """What the thread reads of a source (M, N, …), as ((FrgV, FrgX), RestM, RestN, …)."""
        return self._part(self.copy.tidfrg_S, tensor, "partition_S")

    def partition_D(self, tensor: Any) -> View:
        """What the thread writes of a destination (M, N, …), as ((FrgV, FrgX), RestM, RestN, …)."""
        return self._part(self.copy.tidfrg_D, tensor, "partition_D")

    def _part(self, split: Callable[[Any], Any], tensor: Any, what: str) -> View:
        whole = view(tensor, what)
        threads, values, rest = _named(split, whole.layout)
        assert rank(values) == 2
        return _share(whole, threads, make_layout([values, *rest]), self.thr_idx).prepared()

    def retile_S(self, tensor: Any) -> Registers:
        """A fragment to be read, seen in the order of this copy; the registers are the same."""
        return self._retile(tensor, "retile_S")

    def retile_D(self, tensor: Any) -> Registers:
        """A fragment to be written, seen in the order of this copy; the registers are the same."""
        return self._retile(tensor, "retile_D")

    def _retile(self, tensor: Any, what: str) -> Registers:
        if not isinstance(tensor, Registers):
            raise current().error(f"{what} takes a tensor in registers, not {describe(tensor)}")
        return Registers(tensor.dtype, _named(self.copy.retile, tensor.layout), tensor.words, tensor.offset)

    def __repr__(self) -> str:
        return f"<a thread of {self.copy!r}>"


def local_partition(tensor: Any, threads: Any, index: Any) -> View:
    """The elements of one thread, a layout of threads laid over a tensor tile by tile.

    Inside a kernel: `mine = lw.local_partition(tile, lw.Layout((16, 8), (8, 1)), lw.thread_idx.x)`.
    """
    whole = view(tensor, "lw.local_partition")
    if not isinstance(threads, Layout):
        raise current().error(f"lw.local_partition takes a Layout of threads, not {describe(threads)}")
    tile = tiled(whole, tuple(size(mode) for mode in threads))
    if not isinstance(index, Scalar) or not is_int(index.dtype):
        raise current().error(f"a thread is an integer, as lw.thread_idx.x is; not {describe(index)}")
    by_index = _named(composition, tile[0], _named(thread_of_index, threads))
    return _share(whole, by_index, tile[1], index)


def slice_of(tiled: MMA_Atom | TiledCopy, index: Any) -> ThreadMMA | ThreadCopy:
    """One thread of a tiled MMA or copy, for the atoms' own `get_slice` on a traced index."""
    return ThreadMMA(tiled, index) if isinstance(tiled, MMA_Atom) else ThreadCopy(tiled, index)


__all__ = ["ThreadCopy", "ThreadMMA", "local_partition", "operand_dtype", "slice_of"]
