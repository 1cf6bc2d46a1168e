"""The kinds of instructions that order memory accesses, as rows of the site table name them."""

from __future__ import annotations

from enum import IntEnum

from lanewise.machine.program.instruction_record import Order
from lanewise.machine.program.ops import Op

#: Vector clocks follow the kind, and not only the clocks of asynchronous operations.
VECTOR_CLOCKS = True


class OrderKind(IntEnum):
    """A kind of ordering instruction: its number in the flags of a row, and which instructions it is for.

    A kind with modifiers is for instructions that have one of them, and comes after the kind without.
    """

    order: Order
    modifiers: tuple[str, ...]
    in_vector_clocks: bool

    def __new__(
        cls, order: Order, modifiers: tuple[str, ...] = (), in_vector_clocks: bool = False
    ) -> OrderKind:
        """Give each kind the next number, from 1 on."""
        number = len(cls.__members__) + 1
        made = int.__new__(cls, number)
        made._value_ = number
        made.order, made.modifiers, made.in_vector_clocks = order, modifiers, in_vector_clocks
        return made

    FENCE = Order.FENCE, (), VECTOR_CLOCKS
    #: A fence whose scope is the block, and one whose scope is the cluster.
    BLOCK_FENCE = Order.FENCE, ("cta",), VECTOR_CLOCKS
    CLUSTER_FENCE = Order.FENCE, ("cluster",), VECTOR_CLOCKS
    COMMIT = Order.COMMIT, (), VECTOR_CLOCKS
    #: Waits for all groups but the latest ones, as many as the displacement says; -1: for all copies.
    WAIT = Order.WAIT_GROUP, (), VECTOR_CLOCKS
    TRACK = Order.TRACK, (), VECTOR_CLOCKS
    # From here on, those of asynchronous operations: fences between the generic and the asynchronous proxy.
    PROXY_FENCE = (Order.PROXY_FENCE,)
    PROXY_FENCE_SHARED = Order.PROXY_FENCE, ("shared::cta", "shared::cluster")
    PROXY_FENCE_GLOBAL = Order.PROXY_FENCE, ("global",)
    # Groups of wgmma and of bulk copies; how many of the latest are not waited for is the displacement.
    WGMMA_FENCE = (Order.WARPGROUP_FENCE,)
    WGMMA_COMMIT = (Order.WARPGROUP_COMMIT,)
    WGMMA_WAIT = (Order.WARPGROUP_WAIT,)
    BULK_COMMIT = (Order.BULK_COMMIT,)
    BULK_WAIT = (Order.BULK_WAIT,)
    BULK_WAIT_READ = (Order.BULK_WAIT_READ,)
    #: What mbarrier.init wrote is visible to all.
    INIT_FENCE = Order.INIT_FENCE, (), VECTOR_CLOCKS
    #: A tensor map that was changed is seen as it is.
    MAP_FENCE = (Order.MAP_FENCE,)
    # A tensor map that was changed before is released; the same by the instruction that copies it.
    MAP_RELEASE = (Order.MAP_RELEASE,)
    MAP_COPY = (Order.MAP_COPY,)
    # A warpgroup gives up registers, or takes some; how many it has then is the displacement.
    GIVE_REGISTERS = (Order.REGISTERS,)
    TAKE_REGISTERS = Order.REGISTERS, ("inc",)
    # Arrivals at the barrier of a cluster; one that is relaxed releases nothing.
    CLUSTER_ARRIVAL = Order.CLUSTER_ARRIVAL, (), VECTOR_CLOCKS
    CLUSTER_ARRIVAL_RELAXED = Order.CLUSTER_ARRIVAL, ("relaxed",), VECTOR_CLOCKS


def order_kind(op: Op) -> OrderKind:
    """Return the kind of an instruction that orders something."""
    order = op.record.orders
    order = Order.WAIT_GROUP if order is Order.WAIT_ALL else order
    first, *others = (kind for kind in OrderKind if kind.order is order)
    return next((kind for kind in others if any(op.has(name) for name in kind.modifiers)), first)
