"""Checks of heap memory: accesses outside of what malloc gave, after free and before a write, and leaks."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lanewise.jit.host_memory import as_bytes
from lanewise.machine import abi
from lanewise.machine.checker.access_descriptions import finding_at
from lanewise.machine.checker.report import Finding
from lanewise.machine.runtime.heap import Heap, HeapBlock, heap_of
from lanewise.machine.runtime.state import LaunchState

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.intp]


# leaks ------------------------------------------------------------------------------------------------------


def leaks(launch: LaunchState, before: set[int]) -> list[Finding]:
    """Return a finding for each malloc whose memory nobody can free any more.

    `before` are the blocks that were there when the launch began. A block is not lost while a pointer to it
    lies in an array, a variable or a block that is itself not lost: a later launch may free it.
    """
    heap = heap_of(launch.compiled.module)
    lost = _lost(launch, heap)
    by_site: dict[int, list[HeapBlock]] = {}
    for block in lost:
        if block.first not in before:
            by_site.setdefault(block.owner.site, []).append(block)
    findings = []
    for site, blocks in sorted(by_site.items()):
        op, first = launch.compiled.program.sites[site], blocks[0]
        bytes = sum(block.size for block in blocks)
        many = f"{len(blocks)} blocks, {bytes} bytes in all" if len(blocks) > 1 else f"{bytes} bytes"
        message = f"memory from malloc is never freed, and no pointer to it is left ({many})"
        where = (first.owner.thread, first.owner.block, first.first, "the heap")
        finding = finding_at(launch, op, "heap", message, *where)
        findings.append(replace(finding, count=len(blocks), severity="advice"))
    return findings


def _lost(launch: LaunchState, heap: Heap) -> list[HeapBlock]:
    """Return the blocks in use that no pointer leads to, by address."""
    if not heap.blocks:
        return []
    starts = np.array(sorted(heap.blocks), np.uint64)
    ends = starts + np.array([max(heap.blocks[int(start)].size, 1) for start in starts], np.uint64)

    def block_of(addresses: Words) -> tuple[Numbers, Numbers]:
        """The positions of addresses that lie in a block, and the numbers of their blocks."""
        near = np.flatnonzero((addresses >= starts[0]) & (addresses < ends[-1]))
        numbers = np.searchsorted(starts, addresses[near], "right") - 1
        inside = addresses[near] < ends[numbers]
        return near[inside], numbers[inside]

    reached = np.zeros(len(starts), bool)
    for allocation in launch.allocations:
        if allocation.first != abi.HEAP_BASE:
            memory = as_bytes(allocation.host, allocation.size)
            reached[block_of(memory[: memory.size & ~7].view(np.uint64))[1]] = True
    # Pointers that lie in blocks themselves: from which block to which.
    places, targets = block_of(heap.memory.view(np.uint64))
    kept, sources = block_of((places * 8 + abi.HEAP_BASE).astype(np.uint64))
    pointers: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in zip(sources.tolist(), targets[kept].tolist(), strict=True):
        pointers[source].append(target)
    waiting = np.flatnonzero(reached).tolist()
    while waiting:
        for target in pointers.pop(waiting.pop(), ()):
            if not reached[target]:
                reached[target] = True
                waiting.append(target)
    return [heap.blocks[int(start)] for start in starts[~reached]]
