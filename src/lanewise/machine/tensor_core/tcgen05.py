"""tcgen05.mma: a product with accumulators in tensor memory, issued by one thread for its block or pair.

Its operands are evaluated when it is issued. When the pipe carries it out, the instruction descriptor says
which product it is: the code of that one (`tcgen05_product.py`) is looked up, and compiled on first use.
"""

from lanewise.jit.simd import Value, i64, u32, u64
from lanewise.machine.abi import BlockRecord, FaultKind, MmaEntry
from lanewise.machine.async_records import AsyncOperation
from lanewise.machine.codegen.function_code import (
    BlockCode,
    FunctionCode,
    Record,
    shared_function,
    shared_routine,
)
from lanewise.machine.codegen.tensor_pipe import ISSUER, PipeOperation, fault_in, operand_of
from lanewise.machine.program.operands import MemoryOperand
from lanewise.machine.program.ops import Op
from lanewise.machine.tensor_core import tcgen05_product as product
from lanewise.machine.tensor_core.mma_library import ProductCache
from lanewise.machine.tensor_core.tcgen05_faults import Wrong
from lanewise.machine.tensor_core.tcgen05_statement import Statement

#: Operands of an operation as arguments of the function that issues it, in the order of their numbers.
_OPERANDS = (
    "d", "a", "b", "descriptor", "form", "adds", "scale_d", "mask0", "mask1", "mask2", "mask3", "scale_a",
    "scale_b", "metadata", "zero_mask",
)  # fmt: skip


def lower(code: BlockCode, op: Op) -> None:
    """Lower tcgen05.mma: its operands are evaluated lane by lane, and the products issued to the pipe."""
    statement = Statement(op, code.kernel.arch)
    with code.each_lane(code.bits(code.active(op))) as lane:

        def tensor(operand: MemoryOperand | None) -> Value:
            return code.number(0) if operand is None else code.address_of(operand, lane).to(i64)

        a = statement.a
        matrix = tensor(a) if isinstance(a, MemoryOperand) else code.lane_read(a, u64, lane).to(i64)
        given = {
            product.D: tensor(statement.d),
            product.A: matrix,
            product.B: code.lane_read(statement.b, u64, lane).to(i64),
            product.DESCRIPTOR: code.lane_read(statement.descriptor, u32, lane).to(u64).to(i64),
            product.FORM: code.number(statement.form.packed()),
            product.ADDS: statement.adds(code, lane),
            product.SCALE_D: code.number(statement.scale_d),
            product.SCALE_A: tensor(statement.scale_a),
            product.SCALE_B: tensor(statement.scale_b),
            product.METADATA_ADDRESS: tensor(statement.metadata),
        }
        if statement.zero_mask is not None:
            given[product.ZERO_MASK] = code.lane_read(statement.zero_mask, u64, lane).to(i64)
        words = [code.lane_read(word, u32, lane).to(u64) for word in statement.mask]
        for number in range(0, len(words), 2):
            given[product.MASK + number // 2] = (words[number] | (words[number + 1] << 32)).to(i64)
        values = [given.get(number, code.number(0)) for number in range(len(_OPERANDS))]
        code.invoke_or_stop(_issuer(code.module), code["frame"], op.site, lane, *values)


@shared_function("issue tcgen05.mma", (*ISSUER, *_OPERANDS), quickly=True)
def _issuer(code: BlockCode) -> None:
    """Return the function that issues a product of one lane."""
    operation = PipeOperation(code)
    for number, name in enumerate(_OPERANDS):
        operation.operand(number, code[name])
    operation.give(execute(code.module))


@shared_routine("execute tcgen05.mma", ("operation",), quickly=True)
def execute(code: FunctionCode) -> None:
    """`execute(operation)`: it finds the product by the descriptor, and computes it."""
    operation = Record(code, code["operation"], AsyncOperation)
    block = operation.at(AsyncOperation.block)
    site = operation.get(AsyncOperation.site)
    entry = Record(code, block.get(BlockRecord.mma_table) + site * MmaEntry.BYTES)
    cache = Record(code, entry.get(MmaEntry.pack_b))
    form, descriptor = (operand_of(operation, field) for field in (product.FORM, product.DESCRIPTOR))
    key = descriptor | (form << 32)
    with code.when(cache.get(ProductCache.key).differs(key)):
        answer = code.invoke(entry.get(MmaEntry.function), cache.address, form, descriptor)
        with code.when(answer.differs(0)):
            fault_in(code, operation, FaultKind.TENSOR_PRODUCT, key, int(Wrong.INSTRUCTION_DESCRIPTOR))
        cache.set(ProductCache.key, key)
    record = Record(code, cache.get(ProductCache.record))
    function = record.get(product.ProductRecord.function)
    stage = entry.get(MmaEntry.stage)
    code.give(code.invoke(function, operation.address, record.address, stage))
