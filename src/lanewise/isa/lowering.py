"""How each arch really runs an instruction: one tensor-core opcode, several, or a sequence made by ptxas.

Read off the SASS that ptxas 13.0 makes; for sm_70 and sm_72, which it no longer assembles for, not known.
"""

from typing import NamedTuple

from lanewise.isa.archs import arch_number
from lanewise.isa.form import Form


class Lowering(NamedTuple):
    """`kind` is native, split, emulated or unknown; `detail` names the machine instructions."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


_OPCODES = {
    "f64": "D",
    "f16": "H",
    "bf16": "H",
    "tf32": "H",
    "s8": "I",
    "u8": "I",
    "s4": "I",
    "u4": "I",
    "b1": "B",
}
_MOVES = {"ldmatrix": "LDSM", "stmatrix": "STSM", "movmatrix": "MOVM"}


def lowering(form: Form, arch: str) -> Lowering:
    """What ptxas makes of a form on an arch that has it."""
    number = arch_number(arch)
    if form.family in _MOVES:
        return Lowering("native", f"1 {_MOVES[form.family]}")
    if form.family in ("wmma.load", "wmma.store"):
        return Lowering("split", "a sequence of plain loads or stores")
    if number < 75:
        return Lowering("unknown", "")
    if form.family.startswith("wgmma"):
        return Lowering("native", f"1 {_OPCODES.get(form.types[1], 'Q')}GMMA")
    if form.family == "wmma.mma":
        return _wmma(form, number)
    return _mma(form, number)


def _mma(form: Form, number: int) -> Lowering:
    d, a, *_ = form.types
    m, _, k = form.shape
    if form.kind.startswith("mxf4"):
        return Lowering("native", "1 OMMA")
    if form.kind == "mxf8f6f4":
        return Lowering("native", "1 QMMA.SF")
    if a == "f16" and form.shape_text == "m8n8k4":
        if number >= 80:
            return Lowering("emulated", "a call without tensor-core opcode: HADD2, FFMA and FADD")
        return Lowering("split", f"{4 if d == 'f32' else 2} HMMA.884")
    if a in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"):
        if number == 89 or number >= 120:
            return Lowering("native", "1 QMMA")
        how = "by a call" if form.sparse and number >= 100 else "by conversion to f16"
        return Lowering("emulated", f"{how}: 2 HMMA + F2FP + {'HADD2' if d == 'f16' else 'FADD'}")
    if a in ("s4", "u4") and number >= 90:
        return Lowering("emulated", "by a call: 2 IMMA")
    if a == "b1" and number >= 100:
        steps = 8 if k == 256 else 4
        return Lowering("emulated", f"by a call: {steps} IMMA + {steps * (2 if m == 8 else 3)} MOVM")
    if a == "b1" and number == 90 and form.bitop == "xor":
        return Lowering("emulated", "by a call: 2 BMMA")
    if a == "f64" and m == 16 and number >= 100:
        return Lowering("split", f"{m // 8 * k // 4} DMMA")
    if form.family == "mma.sp" and number >= 100 and a in ("f16", "s8", "u8"):
        return Lowering("emulated", f"by a call that sorts the metadata: 1 {_OPCODES[a]}MMA")
    return Lowering("native", f"1 {_OPCODES[a]}MMA")


def _wmma(form: Form, number: int) -> Lowering:
    d, a, _, c = form.types
    if form.shape[:2] == (8, 8):
        return _mma(form, number)
    if a == "tf32":
        return Lowering("split", "4 HMMA")
    count = 4 if number == 75 else 2
    narrowed = (
        " + 4 F2FP (f32 accumulator to f16 result)" if (d, c) == ("f16", "f32") and number >= 80 else ""
    )
    return Lowering("split", f"{count} {_OPCODES[a]}MMA{narrowed}")
