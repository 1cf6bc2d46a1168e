"""`lw.tma`: bulk copies between global and shared memory, by tensor maps or of plain bytes.

Loads complete on an mbarrier, stores and reductions in groups of the thread that issues them. One thread
issues a copy for its whole block. Coordinates and boxes are in the order of the array, outermost first.

`lw.TensorMap[dtype, box, swizzle]` is the annotation of a parameter that takes a tensor map, and its value.
What the 128 bytes mean, and how the host makes them, is `lw.tensor_map`; here is what a kernel knows of them.
"""

from math import prod
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa.matrix_descriptor import SwizzleMode, swizzle_mode
from lanewise.lang.hopper.mbarrier import Mbarrier, barrier_address
from lanewise.lang.matrix.descriptor import byte_swizzle_mode
from lanewise.lang.memory.array import Array
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.memory.view import SwizzledAddresses, View
from lanewise.lang.trace.builder import Address, Register, TensorAddress, current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import Traced, describe
from lanewise.lang.trace.types import TensorMapType, dtype_name, i32, storage_bytes, u16, u32, u64
from lanewise.layout import flatten, size, suffix_product
from lanewise.tracebacks import short_traceback

#: Dimensions of a tensor, and elements of a box along each of them.
_MOST_DIMENSIONS, _LONGEST_BOX = 5, 256
#: The names of swizzles by the bytes that are swizzled.
_SWIZZLES = {0: "none", 32: "32B", 64: "64B", 128: "128B"}


class TensorMap(Traced):
    """A tensor map inside a kernel: what lw.tma loads through and stores through; `nbytes` is a box's size.

    The annotation says the element's format, the box (or only its rank) in the order of the array, and the
    bytes that are swizzled, 0, 32, 64 or 128: `lw.TensorMap[lw.bf16, (128, 64), 128]`.
    """

    __slots__ = ("address", "kind", "name")

    def __init__(self, kind: TensorMapType, address: Register, name: str) -> None:
        self.kind, self.address, self.name = kind, address, name

    @short_traceback
    def __class_getitem__(cls, what: object) -> TensorMapType:
        """Return the type that an annotation names."""
        entries = what if isinstance(what, tuple) else (what,)
        usage = "lw.TensorMap[lw.bf16, (128, 64), 128] or lw.TensorMap[lw.bf16, 2]"
        if not 2 <= len(entries) <= 3 or not isinstance(entries[0], Format):
            raise LanewiseError(
                "lw.TensorMap takes the element's format, the box or the rank, and perhaps the swizzle: "
                f"{usage}"
            )
        dtype, box, swizzle = (*entries, None)[:3]
        if isinstance(swizzle, int) and swizzle in _SWIZZLES:
            swizzle = _SWIZZLES[swizzle]  # a number, since type checkers read text in annotations as code
        elif swizzle is not None and swizzle not in _SWIZZLES.values():
            raise LanewiseError(f"the swizzle of lw.TensorMap is 0, 32, 64 or 128 bytes, not {swizzle!r}")
        if isinstance(box, int) and not isinstance(box, bool):
            rank, box = box, None
        elif isinstance(box, tuple | list):
            rank, box = len(box), tuple(box)
        else:
            raise LanewiseError(f"the box of lw.TensorMap is a tuple, or its rank a number: {usage}")
        if not 1 <= rank <= _MOST_DIMENSIONS:
            raise LanewiseError(f"a tensor map has 1 to {_MOST_DIMENSIONS} dimensions, not {rank}")
        if box is not None:
            _check_box(dtype, box, swizzle)
        return TensorMapType(dtype, rank, box, swizzle)

    @property
    def dtype(self) -> Format:
        """The format of the tensor's elements."""
        return self.kind.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of one box, which a load brings to shared memory."""
        if self.kind.box is None:
            raise current().error(
                f"the box of {self.name} is not known while tracing: write it into the annotation, "
                f"lw.TensorMap[lw.{dtype_name(self.dtype)}, (rows, columns)]"
            )
        return prod(self.kind.box) * storage_bytes(self.dtype)

    def __str__(self) -> str:
        return f"the tensor map {self.name!r}, {self.kind!r}"


def _check_box(dtype: Format, box: tuple[Any, ...], swizzle: str | None) -> None:
    """Raise an error for a box that no tensor map has."""
    for extent in box:
        if isinstance(extent, bool) or not isinstance(extent, int) or not 1 <= extent <= _LONGEST_BOX:
            raise LanewiseError(
                f"a box has 1 to {_LONGEST_BOX} elements along each dimension, not {extent!r}"
            )
    inner = box[-1] * storage_bytes(dtype)
    if inner % 16:
        raise LanewiseError(
            f"the innermost extent of a box is a multiple of 16 bytes; {box[-1]} of {dtype.name} are {inner}"
        )
    if swizzle not in (None, "none") and inner > swizzle_mode(swizzle).row_bytes:
        widest = swizzle_mode(swizzle).row_bytes
        raise LanewiseError(
            f"with the {swizzle} swizzle the innermost extent of a box is at most {widest} bytes, "
            f"{widest // storage_bytes(dtype)} of {dtype.name}; not {box[-1]}"
        )


__all__ = ["commit", "copy", "load", "prefetch", "prefetch_map", "reduce", "store", "wait"]

#: Cache policies of L2 as CUDA encodes them for the hint operand.
_POLICIES = {
    "evict_normal": 0x1000000000000000,
    "evict_first": 0x12F0000000000000,
    "evict_last": 0x14F0000000000000,
}
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
#: Alignment in bytes of a box in shared memory, and of plain bytes.
_BOX_ALIGNMENT, _BULK_ALIGNMENT = 128, 16
_MOST_GROUPS = 7


def load(
    target: object,
    map: Any,
    coordinates: object,
    barrier: object,
    *,
    multicast: object = None,
    cache: object = None,
    cta_group: int | None = None,
) -> None:
    """Load the box that begins at some coordinates into shared memory; `barrier` counts its bytes.

    `multicast` is a mask of blocks of the cluster: each gets the box at the same address of its own shared
    memory, and its own mbarrier counts. `cache` is evict_first, evict_last, evict_normal, or a u64 policy.
    On Blackwell cta_group=2 lets the mbarrier be that of the pair's other block: full.remote(rank).
    """
    builder = current()
    builder.need("cp.async.bulk.tensor", 90, "8.0")
    tensor = _tensor_address(map, coordinates, "lw.tma.load")
    address = _box_address(target, map, "the target of lw.tma.load")
    modifiers, operands = "", [address, tensor, barrier_address(barrier, "lw.tma.load", cta_group == 2)]
    if multicast is not None:
        modifiers += ".multicast::cluster"
        operands.append(multicast_mask(multicast))
    hint = _hint(cache)
    _emit(
        f"cp.async.bulk.tensor.{map.kind.rank}d.shared::cluster.global.tile"
        f".mbarrier::complete_tx::bytes{modifiers}{_group(cta_group)}",
        operands,
        hint,
    )


def store(map: Any, coordinates: object, source: object, *, cache: object = None) -> None:
    """Store a box in shared memory to the tensor; what lies outside of the tensor is left out.

    Threads that wrote the box call lw.fence_proxy_async() before the barrier that precedes the store.
    """
    builder = current()
    builder.need("cp.async.bulk.tensor", 90, "8.0")
    tensor = _tensor_address(map, coordinates, "lw.tma.store")
    address = _box_address(source, map, "the source of lw.tma.store")
    opcode = f"cp.async.bulk.tensor.{map.kind.rank}d.global.shared::cta.tile.bulk_group"
    _emit(opcode, [tensor, address], _hint(cache))


def reduce(operation: str, map: Any, coordinates: object, source: object, *, cache: object = None) -> None:
    """Combine a box in shared memory with the tensor: add, min, max, inc, dec, and, or, xor."""
    builder = current()
    builder.need("cp.reduce.async.bulk.tensor", 90, "8.0")
    if operation not in _REDUCTIONS:
        raise builder.error(f"lw.tma.reduce knows {', '.join(_REDUCTIONS)}; not {operation!r}")
    tensor = _tensor_address(map, coordinates, "lw.tma.reduce")
    address = _box_address(source, map, "the source of lw.tma.reduce")
    opcode = f"cp.reduce.async.bulk.tensor.{map.kind.rank}d.global.shared::cta.{operation}.tile.bulk_group"
    _emit(opcode, [tensor, address], _hint(cache))


def prefetch(map: Any, coordinates: object, *, cache: object = None) -> None:
    """Bring a box of the tensor to L2 ahead of time."""
    builder = current()
    builder.need("cp.async.bulk.prefetch.tensor", 90, "8.0")
    tensor = _tensor_address(map, coordinates, "lw.tma.prefetch")
    _emit(f"cp.async.bulk.prefetch.tensor.{map.kind.rank}d.L2.global.tile", [tensor], _hint(cache))


def prefetch_map(map: object) -> None:
    """Bring the 128 bytes of a tensor map to the cache ahead of the first copy through it."""
    current().need("prefetch.tensormap", 90, "8.0")
    current().emit("prefetch.tensormap", Address(_map(map, "lw.tma.prefetch_map").address))


def copy(
    target: object, source: object, bytes: object, barrier: object = None, *, multicast: object = None
) -> None:
    """Copy plain bytes, a multiple of 16: global to shared memory (an mbarrier counts them) or back.

    From shared to global memory the copy belongs to a group: lw.tma.commit() and lw.tma.wait(). Into the
    shared memory of another block, `target` and `barrier` are those that lw.cluster.map and remote give.
    """
    builder = current()
    builder.need("cp.async.bulk", 90, "8.0")
    to, of = (_pointer(given, "lw.tma.copy") for given in (target, source))
    count = scalar(bytes, None, "the bytes of lw.tma.copy")
    if count.dtype not in (i32, u32):
        raise builder.error(f"the bytes of lw.tma.copy are an i32 or u32, not {describe(count)}")
    if count.constant is not None and (count.constant % _BULK_ALIGNMENT or count.constant < 1):
        raise builder.error(f"lw.tma.copy moves a multiple of {_BULK_ALIGNMENT} bytes, not {count.constant}")
    for pointer in (to, of):
        _require_alignment(pointer, _BULK_ALIGNMENT, "lw.tma.copy")
    addresses = [to.operand, of.operand, count.operand]
    spaces = (to.space, of.space)
    if multicast is not None and spaces != ("shared", "global"):
        raise builder.error("multicast= is for copies from global to shared memory")
    if spaces == ("shared", "global"):
        addresses.append(barrier_address(barrier, "lw.tma.copy"))
        many = ".multicast::cluster" if multicast is not None else ""
        more = [multicast_mask(multicast)] if multicast is not None else []
        opcode = f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{many}"
        builder.emit(opcode, *addresses, *more)
    elif spaces == ("global", "shared"):
        if barrier is not None:
            raise builder.error("a copy to global memory completes in a group: leave the barrier out")
        builder.emit("cp.async.bulk.global.shared::cta.bulk_group", *addresses)
    elif spaces == ("shared::cluster", "shared"):
        if not isinstance(barrier, Mbarrier) or barrier.pointer.space != "shared::cluster":
            raise builder.error(
                "a copy to another block completes on an mbarrier of that block: bars[i].remote(rank)"
            )
        addresses.append(barrier.pointer.operand)
        builder.emit("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", *addresses)
    else:
        raise builder.error(
            "lw.tma.copy goes from global to shared memory, from shared to global memory, or to the shared "
            f"memory of another block; not from {of} to {to}"
        )


def commit() -> None:
    """Put the stores and reductions that this thread issued since the last call into a group."""
    current().need("cp.async.bulk", 90, "8.0")
    current().emit("cp.async.bulk.commit_group")


def wait(n: int = 0, *, read: bool = False) -> None:
    """Wait until at most `n` groups of this thread are on their way.

    With `read` it waits until the other groups have read their sources, which may then be written again.
    Without it, it waits until their results are in memory.
    """
    builder = current()
    builder.need("cp.async.bulk", 90, "8.0")
    if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= _MOST_GROUPS:
        raise builder.error(
            f"lw.tma.wait takes a Python integer, 0 to {_MOST_GROUPS} groups, not {describe(n)}"
        )
    builder.emit(f"cp.async.bulk.wait_group{'.read' if read else ''}", str(n))


def _map(map: object, what: str) -> TensorMap:
    """Return a tensor map; an error if something else is given."""
    if not isinstance(map, TensorMap):
        raise current().error(
            f"{what} takes a tensor map, a parameter annotated lw.TensorMap[…]; not {describe(map)}"
        )
    return map


def _tensor_address(map: object, coordinates: object, what: str) -> TensorAddress:
    """Return the operand of a tensor map and coordinates, which PTX has innermost first."""
    tensor_map = _map(map, what)
    entries = tuple(coordinates) if isinstance(coordinates, tuple | list) else (coordinates,)
    if len(entries) != tensor_map.kind.rank:
        raise current().error(
            f"{what}: {tensor_map} has {tensor_map.kind.rank} dimensions, and {len(entries)} coordinates are "
            "given"
        )
    operands = []
    for entry in entries:
        one = scalar(entry, None, f"a coordinate of {what}")
        if one.dtype not in (i32, u32):
            raise current().error(
                f"a coordinate of {what} is i32, not {describe(one)}: convert it with .to(lw.i32)"
            )
        operands.append(one.operand)
    inner = scalar(entries[-1]).constant
    at = (inner or 0) * storage_bytes(tensor_map.dtype)
    if at % _BULK_ALIGNMENT:
        raise current().error(
            f"{what}: the innermost coordinate {inner} is {at} bytes from the beginning; it has to be a "
            f"multiple of {_BULK_ALIGNMENT} bytes"
        )
    return TensorAddress(tensor_map.address, tuple(reversed(operands)))


def _box_address(tensor: object, map: TensorMap, what: str) -> Address:
    """Return the address of a box in shared memory; an error if what is there is not like the map's box."""
    if isinstance(tensor, Array | View):
        view = tensor.view(what) if isinstance(tensor, Array) else tensor
        if view.space != "shared" or not isinstance(view.addresses, SwizzledAddresses):
            raise current().error(f"{what} lies in shared memory; {view} does not")
        pointer = view.addresses.linear_pointer()
        mode = byte_swizzle_mode(view.addresses.swizzle, view.dtype)
        mode = _require_swizzle(view, map, mode, what)
        _require_box(view, map, mode, what)
    else:
        pointer = _pointer(tensor, what)
    if pointer.space != "shared":
        raise current().error(f"{what} lies in shared memory; {pointer} does not")
    if pointer.dtype.bits != map.dtype.bits:
        raise current().error(
            f"{what} has elements of {dtype_name(pointer.dtype)}, and {map} of {dtype_name(map.dtype)}"
        )
    _require_alignment(pointer, _BOX_ALIGNMENT, what)
    return pointer.operand


def _require_box(view: View, map: TensorMap, mode: SwizzleMode, what: str) -> None:
    """Raise an error unless a view has as many elements as the box, and the same order of them.

    Rows of a box that is narrower than its swizzle are as long as this is.
    """
    box = map.kind.box
    if box is None:
        return
    if size(view.layout) != prod(box):
        raise current().error(
            f"{what} has shape {view.shape}, {size(view.layout)} elements, and the box of {map} has {box}, "
            f"{prod(box)} elements: slice one stage of it, or change the box"
        )
    swizzled = mode.row_bytes // storage_bytes(map.dtype) if view.addresses.swizzle is not None else 0
    pitch = max(box[-1], swizzled)
    wanted = flatten((suffix_product((*box[:-1], pitch)),))
    shape = view.shape if isinstance(view.shape, tuple) else (view.shape,)
    stride = view.layout.stride if isinstance(view.shape, tuple) else (view.layout.stride,)
    if tuple(flatten((shape,))) == box:
        shape, stride = box, tuple(flatten((stride,)))
    elif tuple(size(view.layout[mode]) for mode in range(len(shape))) != box:
        return  # a row of elements, say
    if not all(_steps_evenly(*mode) for mode in zip(shape, stride, wanted, strict=True)):
        raise current().error(
            f"{what}: TMA lays a box out with its last mode fastest, {box}:{wanted}; the array has "
            f"{view.layout}"
        )


def _steps_evenly(shape: Any, stride: Any, step: int) -> bool:
    """Return whether neighbours along a mode, which may have modes of its own, are `step` elements apart."""
    for length, own in zip(flatten((shape,)), flatten((stride,)), strict=True):
        if length > 1 and own != step:
            return False
        step *= length
    return True


def _require_swizzle(view: View, map: TensorMap, mode: SwizzleMode | None, what: str) -> SwizzleMode:
    """Return how an array is swizzled; an error if it is in another way than the map says, or than TMA does:
    it swizzles addresses, and an array counts from its beginning."""
    if mode is None:
        raise current().error(
            f"{what}: TMA knows no swizzle {view.addresses.swizzle} of {dtype_name(view.dtype)}"
        )
    if map.kind.swizzle is not None and mode.name != map.kind.swizzle:
        raise current().error(
            f'{what} has the swizzle "{mode.name}", and {map} the swizzle "{map.kind.swizzle}": they must '
            "agree"
        )
    align = view.addresses.pointer.align
    if view.addresses.swizzle is not None and align % mode.pattern_bytes:
        raise current().error(
            f"{what}: the {mode.name} swizzle repeats every {mode.pattern_bytes} bytes, and the array is "
            f"known to be aligned to {align} only: lw.shared(…, align={mode.pattern_bytes}), or an offset= "
            f"of lw.dynamic_shared that is a multiple of {mode.pattern_bytes}; a stage that is "
            "known at run time is array[None, None, stage]"
        )
    return mode


def _pointer(given: object, what: str) -> Pointer:
    """Return the pointer that something in memory is; an error if it is none."""
    if isinstance(given, Array | View):
        given = given.ptr()
    if not isinstance(given, Pointer):
        raise current().error(f"{what} takes an array or a pointer, not {describe(given)}")
    return given


def _require_alignment(pointer: Pointer, least: int, what: str) -> None:
    """Raise an error if an address is known not to be, or not known to be, a multiple of some bytes."""
    if pointer.align % least:
        raise current().error(
            f"{what} must begin at a multiple of {least} bytes, and {pointer} is known to begin at a "
            f"multiple of {pointer.align}: use lw.shared(…, align={least}), or promise it with "
            f"pointer.aligned({least})"
        )


def _group(cta_group: int | None) -> str:
    """Return the word of a load whose mbarrier is one of a pair of blocks."""
    if cta_group is None:
        return ""
    if isinstance(cta_group, bool) or cta_group not in (1, 2):
        raise current().error(f"cta_group= of lw.tma.load is 1 or 2, not {describe(cta_group)}")
    builder, word = current(), f".cta_group::{cta_group}"
    builder.need_specific(f"cp.async.bulk.tensor{word}", builder.arch or "sm_100a", "8.6")
    return word


def multicast_mask(mask: object) -> object:
    """Return the operand for a mask of blocks of the cluster, 16 bits."""
    bits = scalar(mask, None, "multicast=")
    if bits.dtype in (i32, u32) and bits.constant is None:
        return current().define("cvt.u16.u32", "b16", bits.in_register)
    if bits.dtype is u16:
        return bits.in_register
    if bits.constant is None or bits.dtype not in (i32, u32) or not 1 <= bits.constant < 1 << 16:
        given = bits.constant if bits.constant is not None else describe(bits)
        raise current().error(f"multicast= is a mask of the cluster's blocks, 16 bits and not 0; not {given}")
    return current().define("mov.b16", "b16", str(bits.constant))


def _emit(opcode: str, operands: list[Any], hint: list[object]) -> None:
    """Emit a copy by a tensor map, with a cache policy if there is one."""
    current().emit(f"{opcode}.L2::cache_hint" if hint else opcode, *operands, *hint)


def _hint(cache: object) -> list[object]:
    """Return the operand for a cache policy, if there is one."""
    if cache is None:
        return []
    if isinstance(cache, Scalar):
        return [scalar(cache, u64, "cache=").in_register]
    if cache not in _POLICIES:
        raise current().error(f"cache= is {', '.join(_POLICIES)}, or a u64 policy; not {cache!r}")
    return [current().define("mov.b64", "b64", str(_POLICIES[cache]))]
