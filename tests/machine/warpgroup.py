"""wgmma on the machine, through the kernels of tests/gpu: one instruction, fed from arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import lanewise as lw
from gpu.device import Kernel
from lanewise.isa import Instruction, instructions

ARCH = "sm_90a"


class Machine:
    """The CPU machine in place of a GPU (`gpu.device.Device`)."""

    arch = ARCH

    def run(self, kernel: Kernel, inputs: list[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
        """Launch one block for each item of the output's first axis; return what it left there."""
        arrays = [np.ascontiguousarray(each) for each in (*inputs, output)]
        lw.load(kernel.ptx)["k"][len(output), kernel.threads](*arrays, arch=ARCH)
        return arrays[-1]


def by_types(family: str, n: int) -> list[Instruction]:
    """The instructions of a family with N columns: all types and modifiers, A from either place."""
    return [each for each in instructions(ARCH, family) if each.n == n]


def statement(instruction: Instruction, a: str = "%rd0", b: str = "%rd1", scale_d: str = "1") -> str:
    """One instruction written out; registers %f0 … are D, %r0 … A and %r4 the metadata."""

    def vector(letter: str, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{number}" for number in range(count)) + "}"

    operands = [vector("f", instruction.d.registers)]
    operands.append(vector("r", 4) if instruction.a_source == "registers" else a)
    operands.append(b)
    if instruction.sparse:
        operands += ["%r4", "0"]
    operands.append(scale_d)
    if instruction.types[0] != "s32":
        operands += ["1", "1"]
    if instruction.types[1] in ("f16", "bf16"):
        operands += ["0"] if instruction.a_source == "registers" else ["0", "0"]
    return f"{instruction.text} {', '.join(operands)};"


def module(body: str, shared: int = 16384) -> str:
    """A kernel with registers for one wgmma, its `out` pointer in %rd2 and the thread in %r8."""
    return f"""
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {{
    .shared .align 1024 .b8 tile[{shared}];
    .reg .b32 %f<128>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .pred %p<4>;
    ld.param.u64 %rd2, [out];
    mov.u32 %r8, %tid.x;
    mov.u32 %r9, tile;
    shr.u32 %r9, %r9, 4;
    cvt.u64.u32 %rd0, %r9;
    or.b64 %rd0, %rd0, 0x4000004000000000;
    add.u64 %rd1, %rd0, 256;
    {body}
    ret;
}}
"""
