"""lw.gemm: the matrix instructions of a tiled MMA over fragments, unrolled.

Fragments are filled by `copy.py`; one matrix instruction is emitted by `matrix/emit.py`.
"""

from typing import Any

from lanewise.atoms import MMA_Atom
from lanewise.lang.matrix.emit import emit
from lanewise.lang.memory.layout_index import shape_text
from lanewise.lang.tiles.partition import operand_dtype
from lanewise.lang.tiles.register_tensor import RegisterTensor
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import dtype_name
from lanewise.layout import size
from lanewise.tracebacks import short_traceback


@short_traceback
def gemm(tiled_mma: object, acc: Any, a: Any, b: Any, *, accumulate: object = None) -> None:
    """Emit acc += a · b over fragments (V, M, N), (V, M[, K]) and (V, N[, K]), every other row backwards.

    Inside a kernel: `lw.gemm(tiled_mma, tCrC, tCrA[None, None, k], tCrB[None, None, k])`. SM90's atoms are
    wgmma: lw.wgmma_fence() stands before, lw.wgmma_commit() and lw.wgmma_wait() after; with
    `tiled_mma.with_(0)` the product begins the sums. SM100's atoms are tcgen05.mma: one thread issues them,
    and lw.tcgen05.commit(barrier) follows. In a warp, `if lw.elect_one():` stands around both (CuTe's atoms
    elect a lane inside). They take `accumulate`, a truth value that may be traced: where it
    is false, the product begins the sums.
    """
    builder = current()
    if not isinstance(tiled_mma, MMA_Atom):
        raise builder.error(f"lw.gemm takes a TiledMMA or an MMA atom first, not {describe(tiled_mma)}")
    instruction = tiled_mma.instruction
    if tiled_mma.umma is not None:
        from lanewise.lang.tiles.tensor_gemm import gemm_in_tensor_memory  # loaded where a kernel needs it

        return gemm_in_tensor_memory(tiled_mma, acc, a, b, accumulate)
    if accumulate is not None:
        raise builder.error(
            f"lw.gemm: accumulate= is for SM100's atoms; of {tiled_mma.name}, clear acc or use with_(0)"
        )
    if instruction.family == "wgmma":
        from lanewise.lang.tiles.warpgroup_gemm import gemm_async  # loaded where a kernel needs it

        return gemm_async(tiled_mma, acc, a, b)
    for name, given, ranks in (("c", acc, (3,)), ("a", a, (2, 3)), ("b", b, (2, 3))):
        dtype = operand_dtype(tiled_mma, name)
        if not isinstance(given, RegisterTensor):
            raise builder.error(
                f"lw.gemm: {_NAMES[name]} is a fragment in registers, not {describe(given)}; "
                f"partition_fragment_{name.upper()} makes it, lw.copy fills it"
            )
        if given.dtype != dtype:
            raise builder.error(
                f"lw.gemm: {tiled_mma.name} takes {dtype_name(dtype)} for {name.upper()}, and {_NAMES[name]} "
                f"is {given}"
            )
        values = instruction.operands[name].values
        if len(given.layout) not in ranks or size(given.layout[0]) != values:
            raise builder.error(
                f"lw.gemm: {_NAMES[name]} has shape {shape_text(given.shape)}; it takes ({values} values, "
                f"{'M, N' if name == 'c' else 'Rest'}{'' if name == 'c' else '[, K]'})"
            )
    m, n, k = size(acc.layout[1]), size(acc.layout[2]), _depth(a)
    if size(a.layout[1]) != m or size(b.layout[1]) != n or _depth(b) != k:
        raise builder.error(
            f"lw.gemm: acc, a and b of shapes {shape_text(acc.shape)}, {shape_text(a.shape)} and "
            f"{shape_text(b.shape)} do not fit: (V, M, N) += (V, M, K) · (V, N, K)"
        )
    for depth in range(k):
        left = [_registers(a, instruction.a.values, row + m * depth) for row in range(m)]
        right = [_registers(b, instruction.b.values, col + n * depth) for col in range(n)]
        for row in range(m):
            for col in range(n) if row % 2 == 0 else reversed(range(n)):
                number = row + m * col
                sums = _registers(acc, instruction.c.values, number)
                made = emit(instruction, left[row], right[col], sums)
                _set_registers(acc, instruction.d.values, number, made.registers)


_NAMES = {"c": "acc", "a": "a", "b": "b"}


def _depth(tensor: RegisterTensor) -> int:
    """Return the extent along K of a fragment (V, M[, K]) or (V, N[, K])."""
    return size(tensor.layout[2]) if len(tensor.layout) == 3 else 1


def _indices(tensor: RegisterTensor, values: int, number: int) -> list[list[int]]:
    """Return the elements of the number-th matrix instruction, register by register."""
    return tensor.indices_by_register(list(range(number * values, (number + 1) * values)))


def _registers(tensor: RegisterTensor, values: int, number: int) -> list[Scalar]:
    """Return the registers of the number-th matrix instruction's operand."""
    return [tensor.packed(index) for index in _indices(tensor, values, number)]


def _set_registers(tensor: RegisterTensor, values: int, number: int, registers: tuple[Scalar, ...]) -> None:
    """Put the result of the number-th matrix instruction into a fragment."""
    for index, register in zip(_indices(tensor, values, number), registers, strict=True):
        tensor.set_packed(index, register)
