"""lw.gemm: the matrix instructions of a tiled MMA over fragments, unrolled.

Fragments are filled by `copy.py`. One instruction is emitted by `matrix/emit.py`, a wgmma of SM90's atoms by
`matrix/wgmma.py`, and a tcgen05.mma of SM100's by `matrix/tcgen05.py`.
"""

from typing import Any

from lanewise.atoms import MMA_Atom, TmemTensor
from lanewise.atoms.value_types import ScaleIn, ScaleOut
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.lang.matrix.emit import emit
from lanewise.lang.matrix.fragment import Fragment
from lanewise.lang.matrix.tcgen05 import multiply_in_tensor_memory
from lanewise.lang.matrix.tensor_memory import ROWS_IN_ALL_LANES, Spread, TmemMatrix
from lanewise.lang.matrix.wgmma import multiply_async
from lanewise.lang.memory.layout_index import shape_text
from lanewise.lang.memory.view import TmemAddresses, View
from lanewise.lang.tiles.partition import DescriptorTensor, operand_dtype
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
    if not isinstance(tiled_mma, MMA_Atom):
        raise current().error(f"lw.gemm takes a TiledMMA or an MMA atom first, not {describe(tiled_mma)}")
    if tiled_mma.umma is not None:
        return _gemm_in_tensor_memory(tiled_mma, acc, a, b, accumulate)
    if accumulate is not None:
        raise current().error(
            f"lw.gemm: accumulate= is for SM100's atoms; of {tiled_mma.name}, clear acc or use with_(0)"
        )
    if tiled_mma.instruction.family == "wgmma":
        return _gemm_async(tiled_mma, acc, a, b)
    return _gemm_in_registers(tiled_mma, acc, a, b)


def _extents(acc: Any, a: Any, b: Any) -> tuple[int, int, int]:
    """Return how many instructions there are along M, N and K; an error if the fragments do not fit."""

    def extent(tensor: Any, mode: int) -> int:
        return size(tensor.layout[mode]) if len(tensor.layout) > mode else 1

    m, n, k = extent(acc, 1), extent(acc, 2), extent(a, 2)
    if extent(a, 1) != m or extent(b, 1) != n or extent(b, 2) != k:
        raise current().error(
            f"lw.gemm: acc, a and b of shapes {shape_text(acc.shape)}, {shape_text(a.shape)} and "
            f"{shape_text(b.shape)} do not fit: (V, M, N) += (V, M, K) · (V, N, K)"
        )
    return m, n, k


def _indices(tensor: RegisterTensor, values: int, number: int) -> list[list[int]]:
    """Return the elements of the number-th matrix instruction, register by register."""
    return tensor.indices_by_register(list(range(number * values, (number + 1) * values)))


def _registers(tensor: RegisterTensor, values: int, number: int) -> list[Scalar]:
    """Return the registers of the number-th matrix instruction's operand."""
    return [tensor.packed(index) for index in _indices(tensor, values, number)]


# mma.sync -----------------------------------------------------------------------------------------------

_NAMES = {"c": "acc", "a": "a", "b": "b"}


def _gemm_in_registers(mma: MMA_Atom, acc: Any, a: Any, b: Any) -> None:
    """Emit acc += a · b by the warp's own instructions."""
    builder, instruction = current(), mma.instruction
    for name, given, ranks in (("c", acc, (3,)), ("a", a, (2, 3)), ("b", b, (2, 3))):
        dtype = operand_dtype(mma, name)
        if not isinstance(given, RegisterTensor):
            raise builder.error(
                f"lw.gemm: {_NAMES[name]} is a fragment in registers, not {describe(given)}; "
                f"partition_fragment_{name.upper()} makes it, lw.copy fills it"
            )
        if given.dtype != dtype:
            raise builder.error(
                f"lw.gemm: {mma.name} takes {dtype_name(dtype)} for {name.upper()}, and {_NAMES[name]} "
                f"is {given}"
            )
        values = instruction.operands[name].values
        if len(given.layout) not in ranks or size(given.layout[0]) != values:
            raise builder.error(
                f"lw.gemm: {_NAMES[name]} has shape {shape_text(given.shape)}; it takes ({values} values, "
                f"{'M, N' if name == 'c' else 'Rest'}{'' if name == 'c' else '[, K]'})"
            )
    m, n, k = _extents(acc, a, b)
    for depth in range(k):
        left = [_registers(a, instruction.a.values, row + m * depth) for row in range(m)]
        right = [_registers(b, instruction.b.values, col + n * depth) for col in range(n)]
        for row in range(m):
            for col in range(n) if row % 2 == 0 else reversed(range(n)):
                number = row + m * col
                made = emit(instruction, left[row], right[col], _registers(acc, instruction.c.values, number))
                indices = _indices(acc, instruction.d.values, number)
                for index, register in zip(indices, made.registers, strict=True):
                    acc.set_packed(index, register)


# wgmma --------------------------------------------------------------------------------------------------


def _gemm_async(mma: MMA_Atom, acc: Any, a: Any, b: Any) -> None:
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
    m, n, k = _extents(acc, a, b)
    signs = {"negate_a": mma.scaleA is ScaleIn.Neg, "negate_b": mma.scaleB is ScaleIn.Neg}
    for depth in range(k):
        accumulate = depth > 0 or mma.accumulate_ is ScaleOut.One
        for row in range(m):
            for col in range(n):
                left = row + m * depth
                multiply_async(
                    instruction,
                    a.at(left)
                    if isinstance(a, DescriptorTensor)
                    else _registers(a, instruction.a.values, left),
                    b.at(col + n * depth),
                    _accumulators(acc, instruction, row + m * col),
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


def _accumulators(acc: RegisterTensor, instruction: Any, number: int) -> Fragment:
    """Return the accumulator of one instruction: the tensor's own registers."""
    indices = _indices(acc, instruction.c.values, number)
    return Fragment(instruction.c, [acc.registers[index[0] // acc.slots] for index in indices])


# tcgen05.mma --------------------------------------------------------------------------------------------


def _gemm_in_tensor_memory(mma: MMA_Atom, acc: Any, a: Any, b: Any, accumulate: object) -> None:
    """Emit acc += a · b by one thread; the first product along K may begin the sums."""
    instruction = mma.instruction
    assert isinstance(instruction, Tcgen05Instruction) and mma.umma is not None
    if instruction.product.block or instruction.product.sparse:
        raise current().error(
            f"lw.gemm: {mma.name} takes scale factors or metadata in tensor memory, too: call the "
            "instruction, mma.instruction(a, b, acc, scale_a=…), with a = descriptors.at(k)"
        )
    _require_in_tensor_memory(mma, "C", acc, "acc")
    for name, given in (("A", a), ("B", b)):
        if mma.umma.in_tensor_memory(name):
            _require_in_tensor_memory(mma, name, given, name.lower())
        elif not isinstance(given, DescriptorTensor):
            raise current().error(
                f"lw.gemm: {mma.name} takes a tensor of descriptors for {name}, not {describe(given)}; "
                f"partition_fragment_{name} makes it of a tile in shared memory"
            )
    m, n, k = _extents(acc, a, b)
    first = mma.accumulate_ is ScaleOut.One if accumulate is None else accumulate
    for depth in range(k):
        for row in range(m):
            for col in range(n):
                multiply_in_tensor_memory(
                    instruction,
                    _operand_a(instruction, a, row + m * depth),
                    b.at(col + n * depth),
                    _sums(instruction, acc, row + m * col),
                    accumulate=True if depth else first,
                )


def _require_in_tensor_memory(mma: MMA_Atom, name: str, given: object, what: str) -> None:
    """Raise an error unless a tensor lies in tensor memory, as the fragment of an operand."""
    if isinstance(given, TmemTensor):
        raise current().error(
            f"lw.gemm: {what} is a fragment of {mma.name} that is not allocated: memory.tensor({what}) of "
            "memory = lw.tmem.alloc(columns) says where it lies"
        )
    if not isinstance(given, View) or not isinstance(given.addresses, TmemAddresses):
        raise current().error(
            f"lw.gemm: {mma.name} has {name} in tensor memory: {what} is memory.tensor(fragment), with "
            f"fragment = partition_fragment_{name}(shape); not {describe(given)}"
        )
    wanted = getattr(mma, f"ValType{name}").format
    if given.dtype != wanted:
        raise current().error(
            f"lw.gemm: {mma.name} takes {dtype_name(wanted)} for {name}, and {what} is {given}"
        )
    assert mma.umma is not None
    rows, cols = mma.umma_part(name)
    fragment = mma.umma.fragment(name, ((rows, cols), 1, 1))
    if len(given.layout) < 2 or given.layout[0] != fragment.layout[0]:
        raise current().error(
            f"lw.gemm: a product of {mma.name} has {name} at {fragment.layout[0]} in tensor memory, and "
            f"{what} has layout {given.layout}: it takes a fragment (V, Rest, Rest) of this tiled MMA"
        )


def _address(tensor: View, number: int) -> Scalar:
    """Return the address of the number-th product's part of a tensor in tensor memory."""
    addresses = tensor.addresses
    assert isinstance(addresses, TmemAddresses)
    return addresses.address_at(int(tensor.layout(number * size(tensor.layout[0]))))


def _operand_a(instruction: Tcgen05Instruction, a: DescriptorTensor | View, number: int) -> Any:
    """Return A of the number-th product: a descriptor, or a matrix in tensor memory."""
    if isinstance(a, DescriptorTensor):
        return a.at(number)
    spread = ROWS_IN_ALL_LANES._replace(columns=instruction.k)
    return TmemMatrix(_address(a, number), a.dtype, spread, a.dtype.bits)


def _sums(instruction: Tcgen05Instruction, acc: View, number: int) -> TmemMatrix:
    """Return the accumulator of the number-th product."""
    product = instruction.product
    spread = Spread.of(instruction.m, instruction.n, instruction.cta_group, product.ws, product.sparse)
    return TmemMatrix(_address(acc, number), instruction.d.format, spread)
