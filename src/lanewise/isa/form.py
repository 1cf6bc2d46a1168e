"""A form: one matrix instruction as its parts, and its text with the modifiers in the documented order.

Whether a form exists is the table's business (`table.py`); reading text is the syntax's (`syntax.py`).
"""

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

FAMILIES: tuple[str, ...] = (
    "mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.load", "wmma.store", "wmma.mma",
    "ldmatrix", "stmatrix", "movmatrix", "wgmma", "wgmma.sp",
)  # fmt: skip

_SHAPE = re.compile(r"m(\d+)n(\d+)(?:k(\d+))?")


@lru_cache(maxsize=4096)
def sizes(shape_text: str) -> tuple[int, ...]:
    """The numbers of a shape's text.

    >>> sizes("m16n8k32")
    (16, 8, 32)
    """
    match = _SHAPE.fullmatch(shape_text)
    assert match is not None, shape_text
    return tuple(int(part) for part in match.groups() if part)


def stated(item: Any) -> dict[str, object]:
    """What of a frozen dataclass is pickled or copied: its fields, not what was worked out from them."""
    return {part.name: getattr(item, part.name) for part in fields(item)}


@dataclass(frozen=True)
class Form:
    """What the text of a matrix instruction says, one field a modifier.

    `types` are in the order d, a, b, c (wgmma: d, a, b; wmma.load and store: the one type;
    ldmatrix: destination and, where it differs, source). Two fields are not modifiers but choices of
    operands: `stride` (wmma.load and store with a stride operand) and `a_source` (wgmma with A in
    registers or behind a shared-memory descriptor).
    """

    family: str
    shape_text: str
    types: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    matrix: str = ""
    satfinite: bool = False
    kind: str = ""
    scale_vec: int = 0
    scale_vec_written: bool = False
    scale_type: str = ""
    rounding: str = ""
    bitop: str = ""
    num: int = 0
    trans: bool = False
    space: str = ""
    stride: bool = False
    a_source: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """(m, n, k), or (rows, columns) of one matrix for ldmatrix, stmatrix and movmatrix."""
        return sizes(self.shape_text)

    @property
    def sparse(self) -> bool:
        """Whether A comes packed, with metadata that says where its elements belong."""
        return ".sp" in self.family

    @property
    def base_family(self) -> str:
        """The family without regard to sparsity: mma for mma.sp, wgmma for wgmma.sp."""
        return self.family.split(".sp")[0]

    @property
    def threads(self) -> int:
        """Threads that execute it together: a warp, or a warpgroup of four for wgmma."""
        return 128 if self.family.startswith("wgmma") else 32

    @property
    def products(self) -> int:
        """Products that one instruction computes: four for Volta's m8n8k4, else one."""
        return 4 if self.family == "mma" and self.types[1] == "f16" and self.shape_text == "m8n8k4" else 1

    @property
    def text(self) -> str:
        """The instruction's text, modifiers in the order of the PTX ISA."""
        return ".".join(part for part in self._parts() if part)

    def _parts(self) -> tuple[str, ...]:
        sync = "sync.aligned"
        saturate = "satfinite" if self.satfinite else ""
        bitop = f"{self.bitop}.popc" if self.bitop else ""
        types = ".".join(self.types)
        layouts = ".".join(self.layouts)
        match self.family:
            case "mma" | "mma.sp" | "mma.sp::ordered_metadata":
                scaled = "block_scale" if self.scale_type else ""
                vector = f"scale_vec::{self.scale_vec}X" if self.scale_vec_written else ""
                kind = f"kind::{self.kind}" if self.kind else ""
                return (
                    self.family, sync, self.shape_text, layouts, saturate, kind, scaled, vector,
                    types, self.scale_type, self.rounding, bitop,
                )  # fmt: skip
            case "wmma.load" | "wmma.store":
                return (self.family, self.matrix, sync, layouts, self.shape_text, self.space, types)
            case "wmma.mma":
                if self.types[1] == "f16":  # A and B go without saying: only D's and C's types are written
                    types = f"{self.types[0]}.{self.types[3]}"
                return (self.family, bitop, sync, layouts, self.shape_text, self.rounding, types, saturate)
            case "ldmatrix" | "stmatrix":
                trans = "trans" if self.trans else ""
                return (self.family, sync, self.shape_text, f"x{self.num}", trans, self.space, types)
            case "movmatrix":
                return (self.family, sync, self.shape_text, "trans", types)
            case _:
                sparse = "sp" if self.sparse else ""
                return ("wgmma.mma_async", sparse, sync, self.shape_text, types, saturate, bitop)

    def __str__(self) -> str:
        return self.text
