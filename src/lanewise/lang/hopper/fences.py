"""Fences between proxies and of barriers, and launches that overlap: `griddepcontrol`.

Fences of ordinary memory accesses are in `intrinsics/sync.py`.
"""

from __future__ import annotations

from lanewise.lang.trace.builder import current

#: What fence.proxy.async orders, by the name in the language.
_PROXY_SPACES = {"shared": ".shared::cta", "cluster": ".shared::cluster", "global": ".global", "": ""}


def fence_proxy_async(space: str = "shared") -> None:
    """Order ordinary accesses of this thread before those of TMA and wgmma: `fence.proxy.async`.

    Every thread that wrote shared memory calls it before the barrier after which TMA or wgmma reads it.
    `space` is shared, cluster, global, or '' for all.
    """
    builder = current()
    if space not in _PROXY_SPACES:
        known = ", ".join(repr(each) for each in _PROXY_SPACES)
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
