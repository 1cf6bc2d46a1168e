"""The shape of a launch: grid, block, shared memory, cluster; and why a GPU would not launch a kernel so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.isa.multiprocessor import (
    CLUSTERS_SINCE,
    LARGEST_BLOCK,
    LARGEST_GRID,
    MOST_CLUSTER_BLOCKS,
    MOST_THREADS,
    STATIC_SHARED_BYTES,
    WARP,
    cluster_blocks_of,
    shared_bytes_of,
)
from lanewise.ptx.model.function import Function
from lanewise.ptx.model.names import demangle

if TYPE_CHECKING:
    from lanewise.ptx.model.module import Entry
    from lanewise.ptx.tools.assembler import Resources


@dataclass(frozen=True)
class Shape:
    """Grid and block, dynamic shared memory, and the blocks of a cluster.

    >>> shape = Shape((4, 2, 1), (33, 1, 1))
    >>> shape.blocks, shape.threads, shape.warps
    (8, 33, 2)
    >>> Shape((4, 2, 1), (33, 1, 1), cluster=(2, 2, 1)).cluster_blocks
    4
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    #: The blocks of a cluster along x, y and z; None if the launch says nothing of clusters.
    cluster: tuple[int, int, int] | None = None
    #: Whether the kernel may begin before the one ahead of it in its stream has ended: it calls
    #: `griddepcontrol.wait` before it touches memory. On the CPU machine it changes nothing.
    overlap: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster; 1 without clusters."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z


def shape_refusals(function: Function, shape: Shape) -> list[str]:
    """Return why no GPU would launch a kernel in such a shape; an empty list if one would."""
    refusals, name = [], demangle(function.name)
    for what, sizes, largest in (
        ("a grid", shape.grid, LARGEST_GRID),
        ("a block", shape.block, LARGEST_BLOCK),
    ):
        if any(size > most for size, most in zip(sizes, largest, strict=True)):
            mend = "" if what == "a grid" else ": launch more blocks of fewer threads"
            refusals.append(f"{what} is at most {largest}, not {sizes}{mend}")
    if shape.threads > MOST_THREADS:
        refusals.append(f"a block has at most {MOST_THREADS} threads; {shape.block} has {shape.threads}")
    for limit, wanted in (("maxntid", "at most"), ("reqntid", "exactly")):
        values = function.limit(limit)
        if values is None:
            continue
        full = (*values, 1, 1)[:3]
        product = full[0] * full[1] * full[2]
        if (limit == "reqntid" and shape.block != full) or shape.threads > product:
            refusals.append(
                f"{name} says .{limit} {full}: {wanted} {product} threads a block, not {shape.block}"
            )
    return refusals + _cluster_refusals(function, shape)


def required_cluster(function: Function) -> tuple[int, int, int] | None:
    """Return the cluster that `.reqnctapercluster` of a kernel asks for; None if it asks for none."""
    values = function.limit("reqnctapercluster")
    if values is None:
        return None
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _cluster_refusals(function: Function, shape: Shape) -> list[str]:
    """Why no GPU would launch a kernel in clusters of such a shape."""
    name = demangle(function.name)
    if shape.cluster is None:
        if function.limit("explicitcluster") is not None and required_cluster(function) is None:
            return [f"{name} says .explicitcluster: give the blocks of a cluster, cluster=(x, y, z)"]
        return []
    if min(shape.cluster) < 1:
        return [f"a cluster has at least one block along each axis; {shape.cluster} has not"]
    refusals = []
    required, most = required_cluster(function), function.limit("maxclusterrank")
    if required is not None and shape.cluster != required:
        refusals.append(
            f"{name} says .reqnctapercluster {required}: cluster={shape.cluster} contradicts it; "
            "leave cluster= out"
        )
    if most is not None and shape.cluster_blocks > most[0]:
        refusals.append(
            f"{name} says .maxclusterrank {most[0]}: a cluster of {shape.cluster} has "
            f"{shape.cluster_blocks} blocks"
        )
    if shape.cluster_blocks > MOST_CLUSTER_BLOCKS:
        refusals.append(
            f"a cluster has at most {MOST_CLUSTER_BLOCKS} blocks; {shape.cluster} has {shape.cluster_blocks}"
        )
    if any(blocks % size for blocks, size in zip(shape.grid, shape.cluster, strict=True)):
        refusals.append(
            f"a grid is a whole number of clusters along each axis: {shape.grid} is not a multiple of "
            f"{shape.cluster}"
        )
    return refusals


def cluster_refusal(shape: Shape, arch: str, target: str) -> str | None:
    """Return why a GPU of an arch would not launch PTX with a target in such clusters; None if it would."""
    if shape.cluster is None:
        return None
    for name in (target, arch):
        if not cluster_blocks_of(name):
            return (
                f"clusters need sm_{CLUSTERS_SINCE} or later, and this is for {name}: compile the kernel for "
                f"sm_{CLUSTERS_SINCE}, or leave cluster= out"
            )
    most = cluster_blocks_of(arch)
    if shape.cluster_blocks > most:
        return f"a cluster has at most {most} blocks on {arch}; {shape.cluster} has {shape.cluster_blocks}"
    return None


def shared_refusals(static: int, dynamic_offset: int, dynamic: int, arch: str) -> list[str]:
    """Return why an arch would not launch a kernel with so much shared memory; empty if it would.

    `static` are the bytes that the kernel declares; dynamic ones begin at an offset behind them.

    >>> shared_refusals(0, 0, 100_000, "sm_75")
    ['a block takes 100,000 bytes of shared memory, and sm_75 has 65,536']
    """
    if static > STATIC_SHARED_BYTES:
        return [
            f"the kernel declares {static:,} bytes of static shared memory, and it may declare "
            f"{STATIC_SHARED_BYTES:,}; use dynamic shared memory for more"
        ]
    whole = dynamic_offset + dynamic if dynamic else static
    most = shared_bytes_of(arch)
    return (
        [f"a block takes {whole:,} bytes of shared memory, and {arch} has {most:,}"] if whole > most else []
    )


def register_refusals(used: Resources, threads: int) -> list[str]:
    """Return why a GPU would not launch so many threads with these registers; empty if it would.

    >>> from lanewise.ptx import Resources
    >>> register_refusals(Resources(registers=168, arch="sm_90"), 512)
    ['a thread takes 168 registers, with which a block has at most 384 threads, not 512; bound the registers \
(.maxntid, __launch_bounds__)']
    """
    if threads <= used.threads or used.threads == MOST_THREADS:
        return []  # more threads than any block has are refused by the shape of the launch
    return [
        f"a thread takes {used.registers} registers, with which a block has at most {used.threads} threads, "
        f"not {threads}; bound the registers (.maxntid, __launch_bounds__)"
    ]


def resources_or_none(entry: Entry, arch: str) -> Resources | None:
    """Return what a kernel uses on an arch; None without ptxas, or if ptxas refuses the PTX."""
    try:
        return entry.resources(arch)
    except (LanewiseError, OSError):
        return None
