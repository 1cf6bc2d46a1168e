"""CUTLASS's names of copy operations: the instruction behind each, or how many bits one thread moves by it.

Layouts are derived from these in `copy_atom.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from lanewise.atoms.names import unknown_name
from lanewise.atoms.template import read_template
from lanewise.atoms.tmem import TensorMove, tensor_moves
from lanewise.atoms.value_types import value_type
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, instruction


@dataclass(frozen=True)
class CopyOperation:
    """One copy operation: a matrix instruction of a warp (`text`), or a copy of `bits` by one thread.

    `widths` are the bits that its template argument may choose; without an argument the widest is taken,
    and if `widths` is empty there is nothing to choose. `swaps_bytes` marks the loads after which CUTLASS
    exchanges bytes of neighbouring registers, so that they hold what a matrix store of the same width
    takes. Copies to and from tensor memory have a `move`.
    """

    name: str
    text: str = ""
    widths: tuple[int, ...] = ()
    bits: int = 0
    swaps_bytes: bool = False
    move: TensorMove | None = None

    @property
    def instruction(self) -> Instruction | None:
        """The matrix instruction, if it is one."""
        return instruction(self.text) if self.text else None

    @property
    def opcode(self) -> str:
        """How the PTX of the copy begins: that of TMA, of bulk copies, of cp.async, or a load and a store.

        >>> copy_operations()["SM90_TMA_STORE_2D"].opcode, copy_operations()["UniversalCopy"].opcode
        ('cp.async.bulk.tensor', 'ld, st')
        """
        if self.move is not None:
            return ".".join(self.move.text.split(".")[:2])
        if self.text:
            return self.text.partition(".")[0]
        for part, opcode in _OPCODES.items():
            if part in self.name:
                return opcode
        return "ld, st"


#: How the PTX of a copy begins, by a part of its name; the first that fits.
_OPCODES = {
    "TMA_REDUCE": "cp.reduce.async.bulk.tensor",
    "TMA": "cp.async.bulk.tensor",
    "BULK_COPY": "cp.async.bulk",
    "CP_ASYNC": "cp.async",
}


def _matrix_operations() -> Iterator[CopyOperation]:
    for num in (1, 2, 4):
        yield CopyOperation(f"SM75_U32x{num}_LDSM_N", f"ldmatrix.sync.aligned.m8n8.x{num}.shared.b16")
        yield CopyOperation(
            f"SM75_U16x{2 * num}_LDSM_T", f"ldmatrix.sync.aligned.m8n8.x{num}.trans.shared.b16"
        )
        yield CopyOperation(f"SM90_U32x{num}_STSM_N", f"stmatrix.sync.aligned.m8n8.x{num}.shared.b16")
        yield CopyOperation(
            f"SM90_U16x{2 * num}_STSM_T", f"stmatrix.sync.aligned.m8n8.x{num}.trans.shared.b16"
        )
        yield CopyOperation(
            f"SM100_U8x{4 * num}_STSM_T", f"stmatrix.sync.aligned.m16n8.x{num}.trans.shared.b8"
        )
        for bits, packed in ((4, "b4x16_p64"), (6, "b6x16_p32")):
            text = f"ldmatrix.sync.aligned.m8n16.x{num}.shared.b8x16.{packed}"
            yield CopyOperation(f"SM100_SU{bits}_DU8x16_x{num}_LDSM_N", text)
    for num in (1, 2):
        text = f"ldmatrix.sync.aligned.m16n16.x{num}.trans.shared.b8"
        yield CopyOperation(f"SM100_U8x{8 * num}_LDSM_T", text, swaps_bytes=True)
    yield CopyOperation("SM75_U32x1_MOVM_T", "movmatrix.sync.aligned.m8n8.trans.b16")


#: cp.async moves 4, 8 or 16 bytes; past L1 (.cg) only 16.
_ASYNC = {"CACHEALWAYS": (32, 64, 128), "CACHEGLOBAL": (128,)}
#: Ranks of the tensors that TMA moves, by what is done with them.
_TMA = {
    "LOAD": range(1, 6), "LOAD_MULTICAST": range(1, 6), "STORE": range(1, 6), "REDUCE_ADD": range(1, 6),
    "LOAD_IM2COL": range(3, 6), "LOAD_IM2COL_MULTICAST": range(3, 6), "STORE_IM2COL": range(3, 6),
}  # fmt: skip


def _thread_operations() -> Iterator[CopyOperation]:
    yield CopyOperation("UniversalCopy", widths=(8, 16, 32, 64, 128))
    for cache_at, widths in _ASYNC.items():
        for ending in ("", "_ZFILL"):
            yield CopyOperation(f"SM80_CP_ASYNC_{cache_at}{ending}", widths=widths)
    # bulk copies move what their descriptor says: any number of 16-byte units, given as the template argument
    for kind, ranks in _TMA.items():
        for ending in ("", *(f"_{dims}D" for dims in ranks)):
            yield CopyOperation(f"SM90_TMA_{kind}{ending}", bits=128)
    for kind in ("AUTO", "G2S", "S2G"):
        yield CopyOperation(f"SM90_BULK_COPY_{kind}", bits=128)


@cache
def copy_operations() -> dict[str, CopyOperation]:
    """Every copy operation that can be found by name.

    >>> copy_operations()["SM75_U32x4_LDSM_N"].instruction
    <ldmatrix.sync.aligned.m8n8.x4.shared.b16>
    """
    moves = (CopyOperation(name, move=move) for name, move in tensor_moves())
    return {operation.name: operation for operation in (*_matrix_operations(), *_thread_operations(), *moves)}


#: Copies that CuTe defines as a UniversalCopy of so many bits, where nothing more is known of the tensors.
_UNIVERSAL = {"DefaultCopy": "8", "AutoVectorizingCopy": "128", "AutoVectorizingCopyWithAssumedAlignment": ""}


def find_copy(text: str) -> CopyOperation | None:
    """The copy operation of a name, or None if there is none of that name.

    >>> find_copy("SM80_CP_ASYNC_CACHEALWAYS<cute::uint64_t>").bits
    64
    """
    template = read_template(text)
    if template.name in _UNIVERSAL:
        bits = _UNIVERSAL[template.name] or "".join(template.arguments or ()) or "128"
        template = template._replace(name="UniversalCopy", arguments=(bits,))
    operation = copy_operations().get(template.name)
    if operation is None:
        return None
    return with_arguments(operation, template.arguments or ())


def named_copy(text: str) -> CopyOperation:
    """The copy operation of a name, or an error that names the nearest.

    >>> named_copy("SM75_U16x8_LDSM_T").text
    'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16'
    """
    operation = find_copy(text)
    if operation is None:
        raise unknown_name("copy operation", text, copy_operations())
    return operation


def with_arguments(operation: CopyOperation, arguments: tuple[str, ...]) -> CopyOperation:
    """The operation with its width chosen by a template argument, or the widest it has."""
    if not operation.widths and not operation.bits:
        if arguments:
            raise LanewiseError(
                f"{operation.name} takes no template arguments; <{', '.join(arguments)}> given"
            )
        return operation
    if len(set(arguments)) > 1:
        raise LanewiseError(
            f"{operation.name} copies between values of one type; <{', '.join(arguments)}> given"
        )
    if not arguments:
        return replace(operation, bits=operation.bits or max(operation.widths))
    written = arguments[0]
    if not operation.widths:
        if not re.fullmatch(r"\d+", written) or int(written) % 128 or int(written) == 0:
            raise LanewiseError(f"{operation.name} moves a multiple of 128 bits; <{written}> given")
        return replace(operation, bits=int(written))
    bits = int(written) if re.fullmatch(r"\d+", written) else value_type(written).bits
    if bits not in operation.widths:
        allowed = ", ".join(f"{width} bits (uint{width}_t)" for width in operation.widths)
        raise LanewiseError(f"{operation.name} moves {allowed}; {written} was given")
    return replace(operation, bits=bits)
