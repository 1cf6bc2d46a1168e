"""`lw.cluster`: blocks that run side by side, their barrier, and the shared memory of the others.

The kernel, @lw.kernel(cluster=(2, 1)), or its launch says how many blocks a cluster has.
"""

from typing import Any

from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar, scalar
from lanewise.lang.trace.special_registers import Dim3, read_special_register
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import i32, u32

__all__ = ["arrive", "block_dim", "block_idx", "id", "map", "rank", "size", "sync", "wait"]

#: The block's coordinates in its cluster, and the extent of a cluster.
block_idx = Dim3("cluster_ctaid", "the block's coordinates in its cluster")
block_dim = Dim3("cluster_nctaid", "the blocks of a cluster")
#: The cluster's coordinates in the grid.
id = Dim3("clusterid", "the cluster's coordinates in the grid")


def _needed() -> None:
    current().need("a cluster", 90, "7.8")


def rank() -> Scalar:
    """Return the number of this block in its cluster, from 0 on."""
    _needed()
    return read_special_register("cluster_ctarank", "cluster_rank")


def size() -> Scalar:
    """Return how many blocks the cluster has."""
    _needed()
    return read_special_register("cluster_nctarank", "cluster_size")


def sync() -> None:
    """Wait for all threads of the cluster: arrive and wait."""
    arrive()
    wait()


def arrive(*, relaxed: bool = False) -> None:
    """Arrive at the cluster's barrier without waiting; what was written before is seen after the wait.

    With `relaxed` it orders no memory accesses, which is enough if mbarriers order them.
    """
    current().need("barrier.cluster.arrive with .release or .relaxed", 90, "8.0")
    current().emit(f"barrier.cluster.arrive{'.relaxed' if relaxed else '.release'}.aligned")


def wait() -> None:
    """Wait until all threads of the cluster have arrived at its barrier."""
    current().need("barrier.cluster.wait.acquire", 90, "8.0")
    current().emit("barrier.cluster.wait.acquire.aligned")


def map(pointer: object, rank: object) -> Pointer:
    """Return the pointer to the same variable in the shared memory of another block of the cluster."""
    builder = current()
    _needed()
    if hasattr(pointer, "ptr"):
        pointer = pointer.ptr()
    if not isinstance(pointer, Pointer) or pointer.space != "shared":
        raise builder.error(f"lw.cluster.map takes a pointer to shared memory, not {describe(pointer)}")
    target = builder.define(
        "mapa.shared::cluster.u32",
        "b32",
        pointer.as_number().in_register,
        rank_operand(rank, "lw.cluster.map"),
    )
    piece, variable = pointer.piece, pointer.variable
    return Pointer(pointer.dtype, "shared::cluster", target, 0, pointer.align, piece, variable)


def rank_operand(rank: object, what: str) -> Any:
    """Return the operand for a block's number in the cluster."""
    number = scalar(rank, None, f"the rank of {what}")
    if number.dtype not in (i32, u32) or (number.constant is not None and not 0 <= number.constant < 16):
        given = number.constant if number.constant is not None else describe(number)
        raise current().error(f"the rank of {what} is an i32 or u32, 0 to 15; not {given}")
    return number.operand
