"""Synchronisation: barriers of the block and of the warp; fences, also between proxies; `griddepcontrol`.

Exchange between the lanes of a warp is in `warp.py`.
"""

from typing import Any

from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar, literal, scalar
from lanewise.lang.trace.types import u32

#: The mask of all lanes of a warp.
FULL = 0xFFFFFFFF
#: The scopes of fences and atomics, and what PTX calls them.
SCOPES = {"block": "cta", "cluster": "cluster", "gpu": "gpu", "system": "sys"}
#: What fence.proxy.async orders, by the name in the language.
_PROXY_SPACES = {"shared": ".shared::cta", "cluster": ".shared::cluster", "global": ".global", "": ""}


def scope_name(scope: str, what: str) -> str:
    """Return what PTX calls a scope; an error if there is none of this name."""
    if scope not in SCOPES:
        raise current().error(f"the scope of {what} is {', '.join(SCOPES)}, not {scope!r}")
    if scope == "cluster":
        current().need("the scope of a cluster", 90, "7.8")
    return SCOPES[scope]


def syncthreads() -> None:
    """Wait for all threads of the block: `bar.sync 0`."""
    current().emit("bar.sync", "0")


def barrier(id: object, count: object = None) -> None:
    """Wait at a named barrier, 0 to 15, for `count` threads (a multiple of 32); without one, for all."""
    current().emit("barrier.sync", *_barrier_operands(id, count))


def arrive(id: object, count: object) -> None:
    """Arrive at a named barrier without waiting there."""
    current().emit("barrier.arrive", *_barrier_operands(id, count))


def _barrier_operands(id: object, count: object) -> list[object]:
    """Return the operands for a named barrier and its number of threads."""
    builder = current()
    if not isinstance(id, Scalar) and (not isinstance(id, int) or not 0 <= id < 16):
        raise builder.error(f"a named barrier is 0 to 15, not {id!r}")
    if isinstance(count, int) and (count % 32 or not 32 <= count <= 1024):
        raise builder.error(f"a barrier counts threads in whole warps, 32 to 1024, not {count}")
    operands = [id.operand if isinstance(id, Scalar) else str(id)]
    if count is not None:
        operands.append(count.operand if isinstance(count, Scalar) else str(count))
    return operands


def mask_operand(mask: object) -> Any:
    """Return the operand for the mask of lanes that take part."""
    if isinstance(mask, Scalar):
        return scalar(mask, u32, "a mask").operand
    return f"0x{literal(mask, u32).constant:08X}"


def syncwarp(mask: object = FULL) -> None:
    """Wait for all lanes of a mask: `bar.warp.sync`."""
    current().emit("bar.warp.sync", mask_operand(mask))


def fence(scope: str = "gpu") -> None:
    """Order memory accesses before it against those after it: for the block, cluster, gpu or system."""
    current().need("fence", 70, "6.0")
    current().emit(f"fence.acq_rel.{scope_name(scope, 'a fence')}")


def fence_proxy_async(space: str = "shared") -> None:
    """Order ordinary accesses of this thread before those of TMA and wgmma: `fence.proxy.async`.

    Every thread that wrote shared memory calls it before the barrier after which TMA or wgmma reads it.
    `space` is shared, cluster, global, or '' for all.
    """
    builder = current()
    if space not in _PROXY_SPACES:
        known = ", ".join(repr(space) for space in _PROXY_SPACES)
        raise builder.error(f"lw.fence_proxy_async is for {known}, not {space!r}")
    builder.need("fence.proxy.async", 90, "8.0")
    builder.emit(f"fence.proxy.async{_PROXY_SPACES[space]}")


def fence_mbarrier_init() -> None:
    """Make mbarriers that this thread initialised known to the cluster: `fence.mbarrier_init`."""
    current().need("fence.mbarrier_init", 90, "8.0")
    current().emit("fence.mbarrier_init.release.cluster")


def launch_dependents() -> None:
    """Let the next kernel of the stream begin, if it was launched to overlap with this one."""
    current().need("griddepcontrol", 90, "7.8")
    current().emit("griddepcontrol.launch_dependents")


def wait_on_dependencies() -> None:
    """Wait until the kernels before this one have ended and what they wrote can be seen."""
    current().need("griddepcontrol", 90, "7.8")
    current().emit("griddepcontrol.wait")
