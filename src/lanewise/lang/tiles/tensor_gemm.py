"""lw.gemm on SM100's atoms: the tcgen05.mma of a tiled MMA over a tensor in tensor memory and descriptors.

`gemm.py` comes here for them; one product is emitted by `matrix/tcgen05.py`.
"""

from typing import Any

from lanewise.atoms import MMA_Atom, TmemTensor
from lanewise.atoms.gmma import ScaleOut
from lanewise.isa.asynchronous.products import Tcgen05Instruction
from lanewise.lang.matrix.tcgen05 import multiply_in_tensor_memory
from lanewise.lang.matrix.tensor_memory import ROWS_IN_ALL_LANES, Spread, TmemMatrix
from lanewise.lang.memory.addresses import TmemAddresses
from lanewise.lang.memory.layout_index import shape_text
from lanewise.lang.memory.view import View
from lanewise.lang.tiles.descriptor_tensor import DescriptorTensor
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.traced import describe
from lanewise.lang.trace.types import dtype_name
from lanewise.layout import size


def gemm_in_tensor_memory(mma: MMA_Atom, acc: Any, a: Any, b: Any, accumulate: object) -> None:
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
    m, n, k = _extent(acc, 1), _extent(acc, 2), _extent(a, 2)
    if _extent(a, 1) != m or _extent(b, 1) != n or _extent(b, 2) != k:
        raise current().error(
            f"lw.gemm: acc, a and b of shapes {shape_text(acc.shape)}, {shape_text(a.shape)} and "
            f"{shape_text(b.shape)} do not fit: (V, M, N) += (V, M, K) · (V, N, K)"
        )
    first = mma.accumulate_ is ScaleOut.One if accumulate is None else accumulate
    for depth in range(k):
        for row in range(m):
            for col in range(n):
                multiply_in_tensor_memory(
                    instruction,
                    _operand(instruction, a, row + m * depth),
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


def _extent(tensor: Any, mode: int) -> int:
    """Return the extent of a mode of a fragment (V, Rest[, K])."""
    return size(tensor.layout[mode]) if len(tensor.layout) > mode else 1


def _address(tensor: View, number: int) -> Any:
    """Return the address of the number-th product's part of a tensor in tensor memory."""
    addresses = tensor.addresses
    assert isinstance(addresses, TmemAddresses)
    return addresses.address_at(int(tensor.layout(number * size(tensor.layout[0]))))


def _operand(instruction: Tcgen05Instruction, a: DescriptorTensor | View, number: int) -> Any:
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
