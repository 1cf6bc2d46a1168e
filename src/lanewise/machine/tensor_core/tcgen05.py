"""tcgen05.mma: a product with accumulators in tensor memory, issued by one thread for its block or pair."""

from __future__ import annotations

from lanewise.machine.codegen.function_code import BlockCode
from lanewise.machine.program.ops import Op


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.mma: its operands are evaluated, and the product is issued to the pipe."""
    raise op.unsupported("the machine does not compute tcgen05.mma yet")
