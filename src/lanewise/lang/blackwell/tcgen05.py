"""`lw.tcgen05`: commits to mbarriers, fences and waits of Blackwell's Tensor Core, copies into its memory.

The product itself is an instruction of the catalogue, `mma(a, b, acc)`; tensor memory is `lw.tmem`. Products
and copies of one thread take effect in the order in which it issues them, and nobody else may rely on an
order before a commit has arrived at its mbarrier.
"""

from lanewise.lang.blackwell.tmem import TensorMemory
from lanewise.lang.hopper.mbarrier import barrier_address
from lanewise.lang.hopper.tma import multicast_mask
from lanewise.lang.matrix.descriptor import Descriptor
from lanewise.lang.matrix.tensor_memory import TmemMatrix, emit_tcgen05, group_word
from lanewise.lang.trace.builder import Address, current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import u32, u64

#: Instructions that are methods of what they work on.
INSTEAD = {
    **dict.fromkeys(("ld", "load"), "matrix.load(column, count) loads from a matrix in tensor memory"),
    **dict.fromkeys(("st", "store"), "matrix.store(column, values) stores to a matrix in tensor memory"),
    **dict.fromkeys(("alloc", "dealloc", "free"), "memory = lw.tmem.alloc(columns), and memory.free()"),
    "mma": 'lw.instruction("tcgen05.mma…") is called: mma(a, b, acc, accumulate=…)',
    "cp": "copy(target, descriptor, shape) copies into tensor memory",
    "wait": "wait_load() and wait_store() wait for loads and stores, a barrier's wait(phase) for products",
    "fence": "fence_before() and fence_after() order it with barriers",
}
__all__ = ["commit", "copy", "fence_after", "fence_before", "shift", "wait_load", "wait_store"]

#: The shapes of copies from shared to tensor memory, and to which warps' lanes they may be repeated.
_COPY_WARPS = {
    "128x256b": ("",),
    "4x256b": ("",),
    "128x128b": ("",),
    "64x128b": ("warpx2::02_13", "warpx2::01_23"),
    "32x128b": ("warpx4",),
}


def commit(barrier: object, *, cta_group: int = 1, multicast: object = None) -> None:
    """Let an mbarrier count one arrival when all products and copies of this thread so far are complete.

    `multicast` is a mask of blocks of the cluster: the mbarrier at the same address of each of them counts.
    With cta_group=2 the products of the pair are meant.
    """
    text = f"tcgen05.commit.{group_word(cta_group)}.mbarrier::arrive::one.shared::cluster"
    if multicast is None:
        emit_tcgen05(f"{text}.b64", barrier_address(barrier, "lw.tcgen05.commit", may_be_remote=True))
    else:
        address = barrier_address(barrier, "lw.tcgen05.commit")
        emit_tcgen05(f"{text}.multicast::cluster.b64", address, multicast_mask(multicast))


def fence_before() -> None:
    """Order accesses of this thread to tensor memory before the barrier that follows."""
    emit_tcgen05("tcgen05.fence::before_thread_sync")


def fence_after() -> None:
    """Order accesses of this thread to tensor memory after the barrier or wait that precedes."""
    emit_tcgen05("tcgen05.fence::after_thread_sync")


def wait_load() -> None:
    """Wait until the loads of this thread from tensor memory have filled their registers."""
    emit_tcgen05("tcgen05.wait::ld.sync.aligned")


def wait_store() -> None:
    """Wait until the stores of this thread to tensor memory are complete."""
    emit_tcgen05("tcgen05.wait::st.sync.aligned")


def copy(target: object, source: object, shape: str, *, warps: str = "", cta_group: int = 1) -> None:
    """Copy from shared to tensor memory, in order with the products of this thread: `tcgen05.cp`.

    `shape` is 128x256b, 4x256b, 128x128b, 64x128b (with `warps` warpx2::02_13 or warpx2::01_23) or 32x128b
    (to the lanes of all four warps). `source` is a descriptor from lw.make_umma_desc, or u64 bits of one.
    """
    builder = current()
    if shape not in _COPY_WARPS:
        raise builder.error(f"lw.tcgen05.copy knows the shapes {', '.join(_COPY_WARPS)}; not {shape!r}")
    choices = _COPY_WARPS[shape]
    warps = warps or (choices[0] if len(choices) == 1 else "")
    if warps not in choices:
        raise builder.error(f"a copy of shape {shape} goes to warps={' or '.join(map(repr, choices))}")
    bits = source.bits if isinstance(source, Descriptor) else source
    if not isinstance(bits, Scalar) or bits.dtype is not u64:
        raise builder.error(f"the source of lw.tcgen05.copy is a descriptor, not {describe(source)}")
    text = ".".join(word for word in ("tcgen05.cp", group_word(cta_group), shape, warps) if word)
    emit_tcgen05(text, Address(_address(target, "lw.tcgen05.copy").in_register), bits.in_register)


def shift(target: object, *, cta_group: int = 1) -> None:
    """Move rows of 32 bytes of tensor memory down by one lane: `tcgen05.shift`."""
    address = _address(target, "lw.tcgen05.shift")
    emit_tcgen05(f"tcgen05.shift.{group_word(cta_group)}.down", Address(address.in_register))


def _address(target: object, what: str) -> Scalar:
    """Return an address of tensor memory as a u32."""
    if isinstance(target, TensorMemory | TmemMatrix):
        return target.address
    if isinstance(target, Scalar):
        return scalar(target, u32, f"the address of {what}")
    raise current().error(f"{what} takes tensor memory or an address of it, not {describe(target)}")
