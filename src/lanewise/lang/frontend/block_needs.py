"""What a traced kernel needs of the block that it is launched with: threads, whole warps, shared memory.

It is known when the kernel is traced, and held against the launch before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from lanewise.lang.trace.builder import Builder
from lanewise.lang.trace.errors import KernelError

_WARP = 32


@dataclass(frozen=True)
class BlockNeeds:
    """The block that a kernel needs; each requirement stands with an error that names its Python line."""

    #: Threads along x: how many, and for which tiling.
    threads: tuple[tuple[int, str, KernelError], ...] = ()
    #: Functions that take whole warps.
    whole_warps: tuple[tuple[str, KernelError], ...] = ()
    #: Bytes of dynamic shared memory that the kernel's arrays take; 0 if it has none.
    shared_bytes: int = 0

    @classmethod
    def of(cls, builder: Builder) -> BlockNeeds:
        """Return what the kernel that a builder has traced needs."""
        return cls(
            tuple((count, what, builder.error("", at)) for count, what, at in builder.required_threads),
            tuple((what, builder.error("", at)) for what, at in builder.whole_warps),
            builder.dynamic_shared_bytes,
        )

    def check(self, block: tuple[int, ...]) -> None:
        """Raise an error for a block with other threads than the kernel is for."""
        for count, what, error in self.threads:
            if block[0] != count:
                raise _at(
                    error,
                    f"{what} is for {count} threads, and the block has {block[0]} along x: launch with "
                    f"{count}, or make the tiling for {block[0]}",
                )
        for what, error in self.whole_warps:
            if prod(block) % _WARP:
                raise _at(
                    error,
                    f"{what} takes whole warps, and the block has {prod(block)} threads: launch with a "
                    f"multiple of {_WARP}",
                )

    def configuration(self, given: object) -> Any:
        """Return grid, block and the bytes of shared memory: those given, or as many as the arrays take."""
        if self.shared_bytes and isinstance(given, tuple) and len(given) == 2:
            return (*given, self.shared_bytes)
        return given


def _at(error: KernelError, message: str) -> KernelError:
    return KernelError(message, error.file, error.line, error.source)
