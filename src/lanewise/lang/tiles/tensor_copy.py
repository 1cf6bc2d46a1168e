"""What a copy atom to or from tensor memory emits: tcgen05.ld and st of a warp, and the wait for them.

Which elements each atom takes is decided in `copy.py`; their layouts are those of `atoms/tmem_traits.py`.
"""

from functools import lru_cache

from lanewise.atoms import Copy_Atom
from lanewise.isa.tensor_memory import load_shapes
from lanewise.lang.matrix.tensor_memory import emit_tcgen05
from lanewise.lang.memory.addresses import TmemAddresses
from lanewise.lang.memory.view import View
from lanewise.lang.tiles.register_tensor import RegisterTensor, as_register
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.ir import Address, Register
from lanewise.lang.trace.packed_register import register_dtype
from lanewise.lang.trace.scalar import Scalar
from lanewise.lang.trace.types import register_kind
from lanewise.layout import Layout, coalesce, composition, upcast


def require_tensor_sides(
    atom: Copy_Atom, source: View | RegisterTensor, target: View | RegisterTensor
) -> None:
    """Raise an error unless one side is in tensor memory as the atom wants it, and the other in registers."""
    move = atom.operation.move
    assert move is not None
    loads = move.kind == "ld"
    if move.kind == "cp":
        raise current().error(
            f"{atom.name} copies from shared memory by a descriptor: lw.tcgen05.copy(target, descriptor, "
            "shape)"
        )
    inside, outside = (source, target) if loads else (target, source)
    for tensor, space, verb in (
        (inside, "tensor", "reads" if loads else "writes"),
        (outside, "registers", "writes" if loads else "reads"),
    ):
        if tensor.space != space:
            where = "tensor memory" if space == "tensor" else "registers"
            raise current().error(f"{atom.name} {verb} {where}, and here it is {tensor}")
    wanted, have = _wanted(atom), coalesce(composition(inside.layout, Layout(_count(atom))))
    if have != wanted:
        raise current().error(
            f"{atom.name} moves values that lie at {wanted} in tensor memory, and here they lie at {have}: "
            "partition the tensor by lw.make_tmem_copy(atom, tensor)"
        )


def _count(atom: Copy_Atom) -> int:
    move = atom.operation.move
    assert move is not None
    return atom.NumValSrc if move.kind == "ld" else atom.NumValDst


@lru_cache(maxsize=256)
def _wanted(atom: Copy_Atom) -> Layout:
    """Return where in tensor memory the values of an atom lie, from the first on."""
    layout: Layout = coalesce(upcast(atom.ValID, atom.ValType.bits))
    return layout


def emit_tensor_move(
    atom: Copy_Atom,
    source: View | RegisterTensor,
    target: View | RegisterTensor,
    reads: list[int],
    writes: list[int],
) -> None:
    """Emit one load or store of tensor memory on the values of these numbers."""
    move = atom.operation.move
    assert move is not None
    if move.kind == "ld":
        assert isinstance(source, View) and isinstance(target, RegisterTensor)
        groups = target.indices_by_register(writes)
        kind = register_dtype(target.dtype)
        results = [Register(register_kind(kind)) for _ in groups]
        emit_tcgen05(move.text, tuple(results), _address(source, reads[0]), *_half_split(move.text))
        for indices, register in zip(groups, results, strict=True):
            target.set_packed(indices, Scalar(kind, register))
        return
    assert isinstance(source, RegisterTensor) and isinstance(target, View)
    kind = register_dtype(source.dtype)
    values = [as_register(source.packed(indices), kind) for indices in source.indices_by_register(reads)]
    registers = tuple(value.in_register for value in values)
    emit_tcgen05(move.text, _address(target, writes[0]), *_half_split(move.text), registers)


def emit_tensor_wait(atom: Copy_Atom) -> None:
    """Emit the wait after which the values of all loads or stores so far are there."""
    move = atom.operation.move
    assert move is not None
    emit_tcgen05(f"tcgen05.wait::{move.kind}.sync.aligned")


def _address(tensor: View, number: int) -> Address:
    """Return the operand of an address in tensor memory."""
    addresses = tensor.addresses
    assert isinstance(addresses, TmemAddresses)
    return Address(addresses.address_at(int(tensor.layout(number))).in_register)


def _half_split(text: str) -> tuple[str, ...]:
    """Return the operand that says how many columns later the second half lies, if the shape has two."""
    words = text.split(".")
    shape = load_shapes.SHAPES[words[4]]
    if shape.halves == 1:
        return ()
    return (str(shape.columns_of(int(words[5][1:]), "16b" in text)),)
