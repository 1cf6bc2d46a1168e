"""lw.gemm on SM90's atoms: the wgmma of a tiled MMA over accumulators and descriptors, unrolled.

`gemm.py` comes here for them; one wgmma is emitted by `matrix/wgmma.py`.
"""

from typing import Any

from lanewise.atoms import MMA_Atom
from lanewise.atoms.gmma import ScaleIn, ScaleOut
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.matrix.wgmma import multiply_async
from lanewise.lang.memory.layout_index import shape_text
from lanewise.lang.tiles.descriptor_tensor import DescriptorTensor
from lanewise.lang.tiles.register_tensor import RegisterTensor
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.traced import describe
from lanewise.layout import size


def gemm_async(mma: MMA_Atom, acc: Any, a: Any, b: Any) -> None:
    """Emit acc += a · b; with accumulate_ Zero the first product along K begins the sums."""
    instruction = mma.instruction
    _require_accumulator(mma, acc)
    for name, given in (("A", a), ("B", b)):
        in_registers = name == "A" and instruction.a_source == "registers"
        if not isinstance(given, RegisterTensor if in_registers else DescriptorTensor):
            wanted = "a fragment in registers" if in_registers else "a tensor of descriptors"
            raise current().error(
                f"lw.gemm: {mma.name} takes {wanted} for {name}, not {describe(given)}; "
                f"partition_fragment_{name} makes it"
            )
    m, n, k = size(acc.layout[1]), size(acc.layout[2]), _extent(a, 2)
    if _extent(a, 1) != m or _extent(b, 1) != n or _extent(b, 2) != k:
        raise current().error(
            f"lw.gemm: acc, a and b of shapes {shape_text(acc.shape)}, {shape_text(a.shape)} and "
            f"{shape_text(b.shape)} do not fit: (V, M, N) += (V, M, K) · (V, N, K)"
        )
    signs = {"negate_a": mma.scaleA is ScaleIn.Neg, "negate_b": mma.scaleB is ScaleIn.Neg}
    for depth in range(k):
        accumulate = depth > 0 or mma.accumulate_ is ScaleOut.One
        for row in range(m):
            for col in range(n):
                multiply_async(
                    instruction,
                    _operand(a, row + m * depth, instruction),
                    _operand(b, col + n * depth, instruction),
                    _sums(acc, instruction, row + m * col),
                    accumulate=accumulate,
                    **signs,
                )


def _require_accumulator(mma: MMA_Atom, acc: object) -> None:
    """Raise an error unless acc is a tensor of accumulators that wgmma may change."""
    if not isinstance(acc, RegisterTensor) or not acc.registers.in_place:
        raise current().error(
            f"lw.gemm: {mma.name} changes its accumulator in place: partition_fragment_C makes one; not "
            f"{describe(acc)}"
        )
    values = mma.instruction.c.values
    if len(acc.layout) != 3 or size(acc.layout[0]) != values:
        raise current().error(
            f"lw.gemm: acc has shape {shape_text(acc.shape)}; it takes ({values} values, M, N)"
        )


def _extent(tensor: DescriptorTensor | RegisterTensor, mode: int) -> int:
    """Return the extent of a mode of a fragment (V, Rest[, K])."""
    return size(tensor.layout[mode]) if len(tensor.layout) > mode else 1


def _operand(tensor: DescriptorTensor | RegisterTensor, number: int, instruction: Any) -> Any:
    """Return the descriptor, or the registers of A, for the number-th instruction along M (or N) and K."""
    if isinstance(tensor, DescriptorTensor):
        return tensor.at(number)
    values = instruction.a.values
    indices = tensor.indices_by_register(list(range(number * values, (number + 1) * values)))
    return [tensor.packed(index) for index in indices]


def _sums(acc: RegisterTensor, instruction: Any, number: int) -> Fragment:
    """Return the accumulator of one instruction: the tensor's own registers."""
    values = instruction.c.values
    indices = acc.indices_by_register(list(range(number * values, (number + 1) * values)))
    return Fragment(instruction.c, [acc.registers[index[0] // acc.slots] for index in indices])
