"""The kinds of instructions that order memory accesses, as rows of the site table name them."""

from __future__ import annotations

from enum import IntEnum


class OrderKind(IntEnum):
    """The kinds of ordering instructions, kept in the flags of a row."""

    FENCE = 1
    COMMIT = 2
    #: Waits for all groups but the latest ones, as many as the displacement says; -1: for all copies.
    WAIT = 3
    TRACK = 4
    #: A fence whose scope is the block.
    BLOCK_FENCE = 5
    #: A fence whose scope is the cluster.
    CLUSTER_FENCE = 21
    # From here on, those of asynchronous operations: fences between the generic and the asynchronous proxy.
    PROXY_FENCE = 6
    PROXY_FENCE_SHARED = 7
    PROXY_FENCE_GLOBAL = 8
    # A warpgroup gives up registers, or takes some; how many it has then is the displacement.
    GIVE_REGISTERS = 17
    TAKE_REGISTERS = 18
    # Arrivals at the barrier of a cluster; one that is relaxed releases nothing.
    CLUSTER_ARRIVAL = 19
    CLUSTER_ARRIVAL_RELAXED = 20
    #: What mbarrier.init wrote is visible to all.
    INIT_FENCE = 15
    #: A tensor map that was changed is seen as it is.
    MAP_FENCE = 16
    # Groups of wgmma and of bulk copies; how many of the latest are not waited for is the displacement.
    WGMMA_FENCE = 9
    WGMMA_COMMIT = 10
    WGMMA_WAIT = 11
    BULK_COMMIT = 12
    BULK_WAIT = 13
    BULK_WAIT_READ = 14


#: Those that vector clocks follow, and not only the clocks of asynchronous operations.
OF_VECTOR_CLOCKS = frozenset(
    (
        OrderKind.FENCE,
        OrderKind.COMMIT,
        OrderKind.WAIT,
        OrderKind.TRACK,
        OrderKind.BLOCK_FENCE,
        OrderKind.CLUSTER_FENCE,
        OrderKind.INIT_FENCE,
        OrderKind.CLUSTER_ARRIVAL,
    )
)
