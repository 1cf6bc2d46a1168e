"""Partitions: the elements of a tensor that one thread of a tiled MMA or copy takes, its index traced.

The layouts are those of `atoms/`; where a thread begins in them becomes integer arithmetic, done once.
Operands of wgmma and tcgen05 in shared memory have a descriptor for each instruction instead; how the fields
of one follow from a layout is in `matrix/descriptor.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanewise.atoms import MMA_Atom, TiledCopy, WarpPartitioner
from lanewise.atoms.tiling import thread_of_index
from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa import Operand
from lanewise.isa.matrix_descriptor import TCGEN05_VERSION
from lanewise.lang.matrix.descriptor import Descriptor, make_gmma_desc, make_umma_desc
from lanewise.lang.memory.layout_index import index_bits, offsets, shape_text
from lanewise.lang.memory.view import View, as_coordinate, slice_layout
from lanewise.lang.tiles.register_tensor import RegisterTensor, make_register_tensor
from lanewise.lang.tiles.tensor import as_view, divide_into_tiles
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar, literal
from lanewise.lang.trace.special_registers import thread_idx
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import i32, is_int
from lanewise.layout import Layout, ScaledBasis, composition, flatten, make_layout, rank, size, zipped_divide


class DescriptorTensor(Node):
    """Descriptors (1, RestM, RestK, …) of one operand: `t[None, None, k, stage]`, and `t.at(m, k)` is one."""

    __slots__ = ("first", "layout")
    CHILDREN = ("first",)

    def __init__(self, first: Descriptor, layout: Layout) -> None:
        self.first, self.layout = first, layout

    @property
    def shape(self) -> Any:
        """The shape of the coordinates; the first mode, that of one instruction, has extent 1."""
        return self.layout.shape

    def __iter__(self) -> Any:
        raise current().error("a tensor of descriptors is not iterated over: index it in a loop")

    def __getitem__(self, coordinate: object) -> DescriptorTensor:
        crd = as_coordinate(coordinate, self.layout)
        step = offsets(self.layout.shape, self.layout.stride, crd).get((), 0)
        kept = slice_layout(crd, self.layout)
        return DescriptorTensor(self.first.advanced(step), kept)

    def at(self, number: int) -> Descriptor:
        """Return the descriptor of a coordinate, counted along the first mode first."""
        return self.first.advanced(int(self.layout(number)))

    def __str__(self) -> str:
        return f"a tensor of descriptors, of shape {shape_text(self.shape)}"


def descriptor_tensor(mma: MMA_Atom, name: str, part: View) -> DescriptorTensor:
    """Return the descriptors for a partition (FrgV, RestM, RestK, …), a warpgroup's or a block's."""
    operand = mma.instruction.operands[name.lower()]
    rows, k = (operand.cols, operand.rows) if name == "B" else (operand.rows, operand.cols)
    rows //= size(mma.ThrID) if mma.umma is not None else 1
    atom = composition(part.layout[0], Layout((rows, k)))
    here = View(part.addresses, atom)
    first = make_gmma_desc(here) if mma.umma is None else make_umma_desc(here)
    major = {"A": mma.tnspA, "B": mma.tnspB}[name].name
    if first.major != major:
        raise current().error(
            f"{mma.name} takes {name} {major}-major, and {part} is {first.major}-major: name the atom with "
            f"{'G' if mma.umma is None else 'U'}MMA::Major::{first.major} for {name}"
        )
    version = 0 if mma.umma is None else TCGEN05_VERSION
    first.require(rows, k, operand.format, f"{name} of {mma.name}", version)
    return DescriptorTensor(first, make_layout([Layout(1, 0), *part.layout[1:]]))


def block_partition(mma: MMA_Atom, name: str, tensor: View) -> View:
    """Return a block's own tile (rows, K, …) as ((rows, k) of one tcgen05.mma, Rest, RestK, …)."""
    rows, k = mma.umma_part(name)
    layout = tensor.layout
    if len(layout) < 2 or size(layout[0]) % rows or size(layout[1]) % k:
        whole = "its whole tile" if size(mma.ThrID) == 1 else "its half of the pair's tile"
        raise current().error(
            f"{mma.name} takes {rows} × {k} elements of {name} from each block, and {tensor} is no multiple "
            f"of that: a block gives {whole}, (rows, K, …)"
        )
    tiles = zipped_divide(layout, (rows, k))
    return View(tensor.addresses, make_layout([tiles[0], *tiles[1]]))


def _thread_index(index: object, what: MMA_Atom | TiledCopy) -> Scalar:
    """Return the index of a thread; of lw.thread_idx.x, note how many threads a block must have."""
    if isinstance(index, int) and not isinstance(index, bool):
        return literal(index, i32)
    if not isinstance(index, Scalar) or not is_int(index.dtype) or index.dtype.bits != 32:
        raise current().error(f"a thread of {what!r} is an i32, as lw.thread_idx.x is; not {describe(index)}")
    builder = current()
    # under a branch, some of a block's threads may have work of another kind
    if index.register is thread_idx.x.register and not builder.open_control_flow and what.size() % 32 == 0:
        builder.required_threads.append((what.size(), repr(what), builder.location))
    return index


def _with_line(f: Callable[..., object], *args: object) -> Any:
    """Return f(*args) of the atoms; their error is raised again with the Python line."""
    try:
        return f(*args)
    except LanewiseError as error:
        raise current().error(str(error)) from None


def _share(whole: View, threads: Layout, rest: Layout, index: Scalar) -> View:
    """Return one thread's elements: `threads` maps its index to where it begins, `rest` has them."""
    stride = flatten((threads.stride,))
    mask = None if any(isinstance(step, ScaledBasis) for step in stride) else index_bits(threads)
    return View(whole.addresses_at(index, threads, mask), rest)


class ThreadMMA:
    """One thread of a tiled MMA, its index traced: `tiled_mma.get_slice(lw.thread_idx.x)`."""

    def __init__(self, mma: MMA_Atom, index: object) -> None:
        self.mma, self.thr_idx = mma, _thread_index(index, mma)

    def partition_A(self, tensor: object) -> View:
        """Return the thread's elements of a tensor (M, K, …), as (FrgV, RestM, RestK, …)."""
        return self._partition("A", tensor)

    def partition_B(self, tensor: object) -> View:
        """Return the thread's elements of a tensor (N, K, …), as (FrgV, RestN, RestK, …)."""
        return self._partition("B", tensor)

    def partition_C(self, tensor: object) -> View:
        """Return the thread's elements of a tensor (M, N, …), as (FrgV, RestM, RestN, …)."""
        return self._partition("C", tensor)

    def _partition(self, name: str, tensor: object) -> View:
        whole = as_view(tensor, f"partition_{name}")
        threads, rest = _with_line(self.mma.by_index, name, whole.layout)
        return _share(whole, threads, _flat_rest(rest), self.thr_idx)

    def partition_fragment_A(self, tensor: object) -> Any:
        """Return a tensor of zeros in registers for the elements of partition_A(tensor).

        An operand that wgmma reads from shared memory has descriptors instead, (1, RestM, RestK, …).
        """
        return self._fragment("A", tensor)

    def partition_fragment_B(self, tensor: object) -> Any:
        """Return a tensor of zeros in registers for the elements of partition_B(tensor).

        An operand that wgmma reads from shared memory has descriptors instead, (1, RestN, RestK, …).
        """
        return self._fragment("B", tensor)

    def partition_fragment_C(self, tensor: object) -> Any:
        """Return accumulators of zeros in registers for partition_C(tensor).

        A shape will do for the tensor. Those of tcgen05.mma lie in tensor memory, which is not allocated by
        it: `memory.tensor(fragment)` of `memory = lw.tmem.alloc(columns)` says where.
        """
        return self._fragment("C", tensor)

    def make_fragment_A(self, tensor: object) -> Any:
        """Return tcgen05.mma's descriptors of A, for a block's ((rows, k), RestM, RestK, …) in shared memory.

        An A that lies in tensor memory gets a fragment there.
        """
        return self._tensor_fragment("A", tensor)

    def make_fragment_B(self, tensor: object) -> Any:
        """Return tcgen05.mma's descriptors of B, for a block's ((rows, k), RestN, RestK, …)."""
        return self._tensor_fragment("B", tensor)

    def make_fragment_C(self, tensor: object) -> Any:
        """Return the fragment in tensor memory for a block's partition ((rows, columns), RestM, RestN, …)."""
        return self._tensor_fragment("C", tensor)

    def _tensor_fragment(self, name: str, tensor: object) -> Any:
        """Return descriptors or a fragment in tensor memory for what partition_A, _B or _C returns."""
        if self.mma.umma is None:
            raise current().error(f"{self.mma.name}: use partition_fragment_{name}(tensor) inside a kernel")
        if self.mma.umma.in_tensor_memory(name):
            shape = tensor if isinstance(tensor, tuple) else as_view(tensor, f"make_fragment_{name}").shape
            return _with_line(self.mma.umma.fragment, name, shape)
        view = as_view(tensor, f"make_fragment_{name}")
        rows, k = self.mma.umma_part(name)
        if len(view.layout) < 3 or size(view.layout[0]) != rows * k:
            raise current().error(
                f"make_fragment_{name} takes a block's partition (({rows}, {k}), Rest, RestK, …), not "
                f"{view}; partition_fragment_{name} takes its tile (rows, K, …)"
            )
        return descriptor_tensor(self.mma, name, view)

    def _fragment(self, name: str, tensor: object) -> Any:
        operand = self.mma.instruction.operands[name.lower()]
        if self.mma.umma is not None:
            return self._umma_fragment(name, tensor)
        if operand.where != "registers":
            return descriptor_tensor(self.mma, name, self._partition(name, tensor))
        if isinstance(tensor, tuple):
            layout = _with_line(Layout, tensor)
        else:
            layout = as_view(tensor, f"partition_fragment_{name}").layout
        _, rest = _with_line(self.mma.by_index, name, layout)
        in_place = name == "C" and self.mma.instruction.family == "wgmma"
        return make_register_tensor(operand_dtype(self.mma, name), _flat_rest(rest), in_place)

    def _umma_fragment(self, name: str, tensor: object) -> Any:
        """Return the fragment of a whole tile of C or A, or descriptors of a block's own tile of A or B."""
        umma = self.mma.umma
        assert umma is not None
        if not umma.in_tensor_memory(name):
            return descriptor_tensor(
                self.mma, name, block_partition(self.mma, name, as_view(tensor, f"partition_fragment_{name}"))
            )
        layout = _with_line(Layout, tensor) if isinstance(tensor, tuple) else as_view(tensor, name).layout
        _, rest = _with_line(self.mma.by_index, name, layout)
        return _with_line(umma.fragment, name, _flat_rest(rest).shape)

    def __repr__(self) -> str:
        return f"<a thread of {self.mma!r}>"


def _flat_rest(rest: Layout) -> Layout:
    """Return the layout (FrgV, (Rest, …)) as (FrgV, Rest, …)."""
    return make_layout([rest[0], *rest[1]])


def operand_dtype(mma: MMA_Atom, name: str) -> Format:
    """Return the dtype of an operand's elements.

    It raises an error unless they lie side by side in 32-bit registers.
    """
    inst = mma.instruction
    operand: Operand = inst.operands[name.lower()]
    if inst.family not in ("mma", "wgmma") or operand.where != "registers":
        raise current().error(
            f"{mma.name} is {inst.family}: tiles inside kernels are for mma.sync and dense wgmma"
        )
    element = getattr(mma, f"ValType{name.upper()}").format
    if element != operand.format or (operand.slots > 1 and operand.slot_bits != operand.format.bits):
        raise current().error(f"{mma.name}: {operand.title} is not held as plain elements in registers")
    return operand.format


class ThreadCopy:
    """One thread of a tiled copy, its index traced: `tiled_copy.get_slice(lw.thread_idx.x)`."""

    def __init__(self, copy: TiledCopy, index: object) -> None:
        self.copy, self.thr_idx = copy, _thread_index(index, copy)

    def partition_S(self, tensor: object) -> View:
        """Return what the thread reads of a source (M, N, …), as ((FrgV, FrgX), RestM, RestN, …)."""
        return self._partition(self.copy.tidfrg_S, tensor, "partition_S")

    def partition_D(self, tensor: object) -> View:
        """Return what the thread writes of a destination (M, N, …), as ((FrgV, FrgX), RestM, RestN, …)."""
        return self._partition(self.copy.tidfrg_D, tensor, "partition_D")

    def _partition(self, divide: Callable[[object], object], tensor: object, what: str) -> View:
        whole = as_view(tensor, what)
        threads, values, rest = _with_line(divide, whole.layout)
        assert rank(values) == 2
        return _share(whole, threads, make_layout([values, *rest]), self.thr_idx).prepared()

    def retile_S(self, tensor: object) -> RegisterTensor:
        """Return a fragment to be read, seen in the order of this copy; the registers are the same."""
        return self._retile(tensor, "retile_S")

    def retile_D(self, tensor: object) -> RegisterTensor:
        """Return a fragment to be written, seen in the order of this copy; the registers are the same."""
        return self._retile(tensor, "retile_D")

    def _retile(self, tensor: object, what: str) -> RegisterTensor:
        if not isinstance(tensor, RegisterTensor):
            raise current().error(f"{what} takes a tensor in registers, not {describe(tensor)}")
        return RegisterTensor(
            tensor.dtype, _with_line(self.copy.retile, tensor.layout), tensor.registers, tensor.offset
        )

    def __repr__(self) -> str:
        return f"<a thread of {self.copy!r}>"


def local_partition(tensor: object, threads: object, index: object) -> View:
    """Return the elements of one thread, a layout of threads laid over a tensor tile by tile.

    Inside a kernel: `mine = lw.local_partition(tile, lw.Layout((16, 8), (8, 1)), lw.thread_idx.x)`.
    """
    whole = as_view(tensor, "lw.local_partition")
    if not isinstance(threads, Layout):
        raise current().error(f"lw.local_partition takes a Layout of threads, not {describe(threads)}")
    tile = divide_into_tiles(whole, tuple(size(mode) for mode in threads))
    if not isinstance(index, Scalar) or not is_int(index.dtype):
        raise current().error(f"a thread is an integer, as lw.thread_idx.x is; not {describe(index)}")
    by_index = _with_line(composition, tile[0], _with_line(thread_of_index, threads))
    return _share(whole, by_index, tile[1], index)


class WarpPart:
    """One warp of lw.make_tmem_warp_partitioner(tensor), its number traced."""

    def __init__(self, partitioner: WarpPartitioner, warp: object) -> None:
        if not isinstance(warp, Scalar) or not is_int(warp.dtype):
            raise current().error(f"a warp is an integer, as lw.warp_id() % 4 is; not {describe(warp)}")
        self.partitioner, self.warp = partitioner, warp

    def partition(self, tensor: object) -> View:
        """Return what the warp reaches of a tensor (M, N, …), as (RestM, RestN, …)."""
        whole = as_view(tensor, "partition")
        warps, rest = _with_line(self.partitioner.tiles, whole.layout)
        return _share(whole, warps, rest, self.warp)


def thread_slice(tiled: MMA_Atom | TiledCopy | WarpPartitioner, index: object) -> Any:
    """Return one thread of a tiled MMA or copy: what the atoms' own `get_slice` does on a traced index."""
    if isinstance(tiled, WarpPartitioner):
        return WarpPart(tiled, index)
    return ThreadMMA(tiled, index) if isinstance(tiled, MMA_Atom) else ThreadCopy(tiled, index)
