"""Matrix instructions and asynchronous copies."""

from __future__ import annotations

from lanewise.machine.code import BlockCode
from lanewise.machine.resolve import Op


def copy_async(code: BlockCode, op: Op) -> None:
    raise op.unsupported()


multiply = wmma = load = store = transpose = copy_async
