"""cp.async: copies from global to shared memory that run on while the kernel computes.

Tiled copies that use them are in `tiles/copy.py`.
"""

from typing import Any

from lanewise.lang.memory.pointer import Pointer
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import u32


def cp_async(
    dst: Any, src: Any, bytes: int = 16, src_bytes: object = None, cache: str = "", l2_bytes: int = 0
) -> None:
    """Copy 4, 8 or 16 bytes from global to shared memory; beyond `src_bytes` zeros are written.

    `cache` is ca (all levels) or cg (L2 only, 16 bytes); by default cg for 16 bytes, and ca otherwise.
    `l2_bytes` (64, 128 or 256) is what L2 should read at once from memory.
    """
    builder = current()
    for pointer, space, what in ((dst, "shared", "destination"), (src, "global", "source")):
        if not isinstance(pointer, Pointer) or pointer.space != space:
            raise builder.error(
                f"the {what} of lw.cp_async is a pointer to {space} memory, not {describe(pointer)}"
            )
    if bytes not in (4, 8, 16):
        raise builder.error(f"lw.cp_async copies 4, 8 or 16 bytes, not {bytes!r}")
    for pointer in (dst, src):
        pointer.require_together(bytes, "lw.cp_async's elements")
    cache = cache or ("cg" if bytes == 16 else "ca")
    if cache not in ("ca", "cg") or (cache == "cg" and bytes != 16):
        raise builder.error(f"lw.cp_async: cache is ca, or cg for 16 bytes; not {cache!r} for {bytes}")
    builder.need("cp.async", 80, "7.0")
    prefetched = ""
    if l2_bytes:
        if l2_bytes not in (64, 128, 256):
            raise builder.error(f"lw.cp_async: l2_bytes is 64, 128 or 256, not {l2_bytes!r}")
        builder.need("cp.async with l2_bytes", 80, "7.4")
        prefetched = f".L2::{l2_bytes}B"
    more = []
    if src_bytes is not None:
        if isinstance(src_bytes, Scalar):
            more = [src_bytes.operand if src_bytes.dtype.bits == 32 else src_bytes.to(u32).operand]
        elif isinstance(src_bytes, int) and 0 <= src_bytes <= bytes:
            more = [str(src_bytes)]
        else:
            raise builder.error(f"src_bytes is 0 to {bytes}, not {src_bytes!r}")
    addresses = (dst.operand, src.operand)
    builder.emit(f"cp.async.{cache}.shared.global{prefetched}", *addresses, str(bytes), *more)


def cp_async_commit() -> None:
    """Put the copies that this thread began since the last call into a group: `cp.async.commit_group`."""
    current().need("cp.async", 80, "7.0")
    current().emit("cp.async.commit_group")


def cp_async_wait(n: int | None = None) -> None:
    """Wait until at most the `n` latest groups are still on their way; without n, for all copies."""
    builder = current()
    builder.need("cp.async", 80, "7.0")
    if n is None:
        builder.emit("cp.async.wait_all")
        return
    if isinstance(n, Scalar) or not isinstance(n, int) or n < 0:
        raise builder.error(f"lw.cp_async_wait takes a Python integer of at least 0, not {describe(n)}")
    builder.emit("cp.async.wait_group", str(n))
