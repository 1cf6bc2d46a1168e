"""The processor's floating-point mode around compiled code: set on the way in, put back on the way out.

Other libraries may have told this thread to flush subnormal numbers. The kernels need them, and some need
another rounding.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager

from lanewise.jit import ir
from lanewise.jit.simd import Code

#: The rounding bits of Arm's FPCR and of x86's MXCSR, and the number llvm.set.rounding has for each mode.
FPCR_ROUNDING = {"rn": 0 << 22, "rp": 1 << 22, "rm": 2 << 22, "rz": 3 << 22}
MXCSR_ROUNDING = {"rn": 0 << 13, "rm": 1 << 13, "rp": 2 << 13, "rz": 3 << 13}
LLVM_ROUNDING = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
#: MXCSR with every exception masked and subnormals kept.
MXCSR_DEFAULT = 0x1F80


def write_entry_point(inner: Code, name: str, rounding: str = "rn") -> None:
    """A function that runs another one with subnormals kept and in a rounding mode."""
    inner.function.attributes.add("noinline")  # nothing moves across the change of mode
    outer = Code(inner.module, name, inner.arguments)
    with float_mode(outer, rounding):
        outer.call(inner, **{argument: outer[argument] for argument in inner.arguments})
    outer.end()


@contextmanager
def float_mode(code: Code, rounding: str) -> Iterator[None]:
    """The body in a rounding mode, with subnormals kept; then the mode from before."""
    builder, machine = code.builder, platform.machine().lower()
    word, long = ir.IntType(32), ir.IntType(64)
    if machine in ("aarch64", "arm64"):
        get = code.external("llvm.aarch64.get.fpcr", long, [])
        put = code.external("llvm.aarch64.set.fpcr", ir.VoidType(), [long])
        before = builder.call(get, [])
        builder.call(put, [ir.Constant(long, FPCR_ROUNDING[rounding])])
        yield
        builder.call(put, [before])
    elif machine in ("x86_64", "amd64"):
        pointer = ir.IntType(8).as_pointer()
        get = code.external("llvm.x86.sse.stmxcsr", ir.VoidType(), [pointer])
        put = code.external("llvm.x86.sse.ldmxcsr", ir.VoidType(), [pointer])
        kept, wanted = builder.alloca(word), builder.alloca(word)
        builder.call(get, [builder.bitcast(kept, pointer)])
        builder.store(ir.Constant(word, MXCSR_DEFAULT | MXCSR_ROUNDING[rounding]), wanted)
        builder.call(put, [builder.bitcast(wanted, pointer)])
        yield
        builder.call(put, [builder.bitcast(kept, pointer)])
    else:
        put = code.external("llvm.set.rounding", ir.VoidType(), [word])
        builder.call(put, [ir.Constant(word, LLVM_ROUNDING[rounding])])
        yield
        builder.call(put, [ir.Constant(word, LLVM_ROUNDING["rn"])])
