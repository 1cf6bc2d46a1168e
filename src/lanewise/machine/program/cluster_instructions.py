"""Records of instructions of clusters, and of those that prepare a kernel's warps and launches on Hopper."""

from __future__ import annotations

from lanewise.machine.program.instruction_record import AddressFlow, Level, Order, Waits
from lanewise.machine.program.record_builders import lane, records, refused, warp

CLUSTERS = (
    *lane("mapa", 2, "bits:map_address", types="u32 u64 s32 s64", since=90, address_flow=AddressFlow.SUM),
    *lane("getctarank", 1, "bits:cluster_rank", types="u32 u64 s32 s64", since=90),
    # The order is that of a release and an acquire unless .relaxed says otherwise.
    *records(
        "barrier.cluster.arrive", Level.CLUSTER, "", lowering="warp_ops.clusters:arrive", since=90,
        orders=Order.CLUSTER_ARRIVAL,
    ),
    *records("barrier.cluster.wait", Level.CLUSTER, "", waits=Waits.CLUSTER, since=90),
    *warp(
        "setmaxnreg", "use", "warp_ops.clusters:set_registers", orders=Order.REGISTERS, since=90,
    ),
    # Kernels of one stream run one after the other here, so that there is nothing to wait for.
    *warp("griddepcontrol", "", since=90),
    *refused(
        "clusterlaunchcontrol", "it cancels clusters that have not begun, which GPUs have from sm_100 on",
        Level.CLUSTER,
    ),
)  # fmt: skip
