"""Which picture an object has: one entry a kind of object, nothing else."""

from lanewise.atoms import Copy_Atom, CopyOperation, MMA_Atom
from lanewise.atoms.tmem import TensorMove
from lanewise.draw import (
    banks,
    copy_atoms,
    descriptors,
    instructions,
    layouts,
    mma_atoms,
    moves,
    tcgen05,
    tensor_maps,
    tensor_memory,
)
from lanewise.draw.options import Options
from lanewise.draw.picture import Picture, cut
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, Operand
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction, async_instruction
from lanewise.isa.matrix_descriptor import MatrixDescriptor
from lanewise.isa.tensor_map import TiledTensor
from lanewise.isa.tensor_memory.operand import Accumulator
from lanewise.layout import ComposedLayout, Layout, Swizzle, Tensor


def describe(thing: object, options: Options) -> Picture:
    """The picture of anything that has one; its wide panels cut, if that is asked for."""
    picture = _described(thing, options)
    columns = options.columns
    return picture if columns is None else cut(picture, lambda panel: columns)


def _described(thing: object, options: Options) -> Picture:
    """The picture of anything that has one, whole."""
    match thing:
        case Instruction(family="ldmatrix" | "stmatrix"):
            return moves.picture_of_rows(thing, options)
        case Instruction(family="movmatrix"):
            return moves.picture_of_transpose(thing, options)
        case Tcgen05Instruction():
            return tcgen05.picture_of_tensor_product(thing, options)
        case Instruction():
            return instructions.picture_of_product(thing, options)
        case AsyncInstruction():
            return tcgen05.picture_of_async(thing, options)
        case Accumulator():
            return tcgen05.picture_of_accumulator(thing, options)
        case MMA_Atom(instruction=Tcgen05Instruction() as product):
            return tcgen05.picture_of_tensor_product(product, options)
        case Copy_Atom(operation=CopyOperation(move=TensorMove(text=text))):
            return tcgen05.picture_of_async(async_instruction(text), options)
        case MMA_Atom():
            return mma_atoms.picture_of_mma(thing, options)
        case Copy_Atom():
            return copy_atoms.picture_of_copy(thing, options)
        case Operand():
            return instructions.picture_of_operand(thing, options)
        case layouts.TVLayout():
            return layouts.picture_of_tv(thing, options)
        case banks.BankMap():
            return banks.picture_of_banks(thing, options)
        case Layout() | ComposedLayout():
            return layouts.picture_of_layout(thing, options)
        case Swizzle():
            return layouts.picture_of_layout(layouts.one_period(thing), options)
        case Tensor():
            return layouts.picture_of_tensor(thing, options)
        case TiledTensor():
            return tensor_maps.picture_of_tensor_map(thing, options)
        case MatrixDescriptor():
            return descriptors.picture_of_matrix(descriptors.described_matrix(thing), options)
        case descriptors.DescribedMatrix():
            return descriptors.picture_of_matrix(thing, options)
        case tensor_memory.TensorMemory():
            return tensor_memory.picture_of_memory(thing, options)
        case Picture():
            return thing
    tensor = getattr(thing, "tensor", None)
    if isinstance(tensor, TiledTensor):  # a tensor map of an array
        return tensor_maps.picture_of_tensor_map(tensor, options)
    raise LanewiseError(
        f"{type(thing).__name__} has no picture: layouts, tensors, tv(layout, shape), "
        "bank_map(layout, bits), instructions, their operands, atoms, TiledMMA and TiledCopy, matrix "
        "descriptors and tensor maps have"
    )
