"""`lw.clc`: cluster launch control. A running cluster takes over the work of one that has not begun.

A persistent kernel is launched with one cluster for each tile: those that run ask for a cluster that waits
to begin, which then never begins, and compute its tile themselves.
"""

from __future__ import annotations

from lanewise.lang.hopper.mbarrier import barrier_address
from lanewise.lang.memory.array import shared
from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import Register, current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import Node, describe
from lanewise.lang.trace.types import i32, pred, u64

__all__ = ["BYTES", "Response", "response", "try_cancel"]

#: Bytes of an answer, which the mbarrier of a request counts.
BYTES = 16


class Response(Node):
    """The answer to a request, 16 bytes of shared memory: `read()` it after its mbarrier is complete."""

    __slots__ = ("pointer",)
    CHILDREN = ("pointer",)

    def __init__(self, pointer: Pointer) -> None:
        self.pointer = pointer

    def read(self) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Return whether a cluster was taken over, and the x, y and z of its first block.

        Without a cluster the three are not defined. Before the next request, lw.fence_proxy_async() and a
        barrier follow, since the answer is written by the asynchronous proxy.
        """
        builder = current()
        builder.need("clusterlaunchcontrol.query_cancel", 100, "8.6")
        handle = builder.result("ld.shared.b128", "b128", self.pointer.operand)
        is_canceled, query = Register("pred"), "clusterlaunchcontrol.query_cancel"
        builder.emit(f"{query}.is_canceled.pred.b128", is_canceled, handle)
        first = tuple(Register("b32") for _ in range(3))
        builder.emit(f"{query}.get_first_ctaid.v4.b32.b128", (*first, "_"), handle, guard=is_canceled)
        x, y, z = (Scalar(i32, register, nonnegative=True) for register in first)
        return Scalar(pred, is_canceled), x, y, z

    def __str__(self) -> str:
        return "an answer of cluster launch control"


def response() -> Response:
    """Declare 16 bytes of shared memory for the answer to a request."""
    return Response(shared(u64, 2, align=BYTES).pointer)


def try_cancel(answer: object, barrier: object, *, multicast: bool = False) -> None:
    """Ask for a cluster that has not begun; one thread of the cluster calls it.

    The mbarrier counts the 16 bytes of the answer: `barrier.arrive(expect=lw.clc.BYTES)` before. With
    `multicast` every block of the cluster gets the answer, and its own mbarrier counts.
    """
    builder = current()
    if not isinstance(answer, Response):
        raise builder.error(f"lw.clc.try_cancel writes to lw.clc.response(), not to {describe(answer)}")
    builder.need("clusterlaunchcontrol.try_cancel", 100, "8.6")
    text = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
    if multicast:
        builder.need_specific(f"{text}.multicast::cluster::all", builder.arch or "sm_100a", "8.6")
        text += ".multicast::cluster::all"
    builder.emit(f"{text}.b128", answer.pointer.operand, barrier_address(barrier, "lw.clc.try_cancel"))
