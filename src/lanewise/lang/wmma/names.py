"""The programming guide's names for uses, layouts and operations, and the catalogue's forms by them.

They are plain constants; fragments and the functions that take them are in the other modules.
"""

from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace

from lanewise.errors import LanewiseError
from lanewise.formats import b1, s4, s32, tf32, u4
from lanewise.isa import Instruction, instruction
from lanewise.lang.trace.builder import current
from lanewise.lang.trace.types import u32


@dataclass(frozen=True)
class Named:
    """A name of the programming guide: what a fragment is used for, how a matrix lies in memory."""

    name: str

    def __repr__(self) -> str:
        return f"wmma.{self.name}"


matrix_a, matrix_b, accumulator = Named("matrix_a"), Named("matrix_b"), Named("accumulator")
row_major, col_major = Named("row_major"), Named("col_major")
mem_row_major, mem_col_major = Named("mem_row_major"), Named("mem_col_major")
bmmaBitOpXOR, bmmaBitOpAND = Named("bmmaBitOpXOR"), Named("bmmaBitOpAND")  # noqa: N816  # the guide's names
bmmaAccumulateOpPOPC = Named("bmmaAccumulateOpPOPC")  # noqa: N816  # the guide's name
precision = SimpleNamespace(u4=u4, s4=s4, b1=b1, tf32=tf32)
#: CUDA C++ keeps what is smaller than a byte in a namespace of its own, nvcuda::wmma::experimental.
experimental = SimpleNamespace(
    precision=SimpleNamespace(u4=u4, s4=s4, b1=b1),
    bmmaBitOpXOR=bmmaBitOpXOR,
    bmmaBitOpAND=bmmaBitOpAND,
    bmmaAccumulateOpPOPC=bmmaAccumulateOpPOPC,
)

LETTERS = {matrix_a: "a", matrix_b: "b", accumulator: "c"}
ORDERS = {row_major: "row", col_major: "col", mem_row_major: "row", mem_col_major: "col"}
#: Formats whose elements are smaller than what C can address, and what they are stored in.
STORAGE = {u4: u32, s4: s32, b1: u32}


@lru_cache(maxsize=1024)
def _known(text: str, stride: bool | None) -> Instruction | LanewiseError:
    """Return an instruction of the catalogue, or the error that there is none."""
    try:
        return instruction(text, stride=stride)
    except LanewiseError as error:
        return error


def find(text: str, what: str, *, stride: bool | None = None) -> Instruction:
    """Return an instruction of the catalogue; an error in the words of WMMA if there is none."""
    known = _known(text, stride)
    if isinstance(known, LanewiseError):
        raise current().error(f"{what}: there is no {text}. {known}")
    return known
