"""What an MMA operation computes: on whole matrices, and on the registers of all its threads.

The arithmetic is the instruction's; here are the operands' ways into it, GMMA's scales, and complex products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.atoms.value_types import GAUSS_COMPLEX, ScaleIn, ScaleOut, scale_out
from lanewise.errors import LanewiseError
from lanewise.formats import as_array
from lanewise.isa import Operand

if TYPE_CHECKING:
    from lanewise.atoms.mma_traits import MMA_Traits
    from lanewise.numpy_types import AnyArray


def multiply(
    mma: MMA_Traits,
    a: object,
    b: object,
    c: object = None,
    *,
    arch: str | None = None,
    scale_D: ScaleOut = ScaleOut.One,
    **options: object,
) -> AnyArray:
    """D = A·B + C on matrices (M, K), (K, N), (M, N), with any batch dimensions before them.

    A and B are negated as scaleA and scaleB say; with scale_D Zero, C is left out. `arch` defaults to the one
    that the operation is named for. Further options (metadata, scale_a, scale_b) go to the instruction.
    A Gauss complex accumulator is a structured array of t0, t1, t2.
    """
    where = mma.operation.arch if arch is None else arch
    if scale_out(scale_D) is ScaleOut.Zero:
        c = None
    if mma.operation.composed:
        composed = _complex if mma.operation.composed == "complex" else _gauss
        return composed(mma, as_array(a, f"A of {mma.name}"), as_array(b, f"B of {mma.name}"), c, where)
    for name, scale in (("negate_a", mma.scaleA), ("negate_b", mma.scaleB)):
        if scale is ScaleIn.Neg:
            options[name] = True
    product: AnyArray = mma.instruction(a, b, c, arch=where, **options)
    return product


def _complex(mma: MMA_Traits, a: AnyArray, b: AnyArray, c: object, arch: str) -> AnyArray:
    """Four real products, in the order in which CUTLASS chains them through the accumulators."""
    import numpy as np

    mul = mma.instruction
    re_c, im_c = (None, None) if c is None else (np.asarray(c).real, np.asarray(c).imag)
    real = mul(a.real, b.real, re_c, arch=arch)
    imag = mul(a.imag, b.real, im_c, arch=arch)
    real = mul(-a.imag, b.imag, real, arch=arch)
    imag = mul(a.real, b.imag, imag, arch=arch)
    result = np.empty(real.shape, dtype=np.complex128)
    result.real, result.imag = real, imag
    return result


def _gauss(mma: MMA_Traits, a: AnyArray, b: AnyArray, c: object, arch: str) -> AnyArray:
    """Three real products: t0 = Re A·Re B, t1 = Im A·Im B, t2 = (Re A + Im A)·(Re B + Im B)."""
    import numpy as np

    dtype = GAUSS_COMPLEX.dtype
    if c is not None and np.asarray(c).dtype != dtype:
        raise LanewiseError(
            f"{mma.name}: accumulators hold three partial sums, a structured array of t0, t1 and t2; "
            f"{np.asarray(c).dtype} was given"
        )
    factors = {"t0": (a.real, b.real), "t1": (a.imag, b.imag), "t2": (a.real + a.imag, b.real + b.imag)}
    sums = {
        name: mma.instruction(x, y, None if c is None else np.asarray(c)[name], arch=arch)
        for name, (x, y) in factors.items()
    }
    result = np.empty(sums["t0"].shape, dtype=dtype)
    for name, values in sums.items():
        result[name] = values
    return result


def fma(
    mma: MMA_Traits,
    a: object,
    b: object,
    c: object,
    *more: object,
    arch: str | None = None,
    scale_D: ScaleOut = ScaleOut.One,
) -> AnyArray:
    """D's registers for the registers of all threads: uint32[…, threads, registers] (f64: uint64) in and out.

    Registers that CUTLASS types float or double may be given as such. An operand in shared memory is given as
    its matrix, (M, K) or (K, N). After C come, where the operation has them, the metadata of a sparse A and
    the scale factors of A and B. Complex operations take and return complex numbers.
    """
    inst = mma.instruction
    extra = ("metadata",) * inst.sparse + ("scale_a", "scale_b") * bool(inst.scale_type)
    if len(more) != len(extra):
        takes = f"A, B and C, then {', '.join(extra)}" if extra else "A, B and C"
        raise LanewiseError(
            f"{mma.name}: fma takes the registers of {takes}; {3 + len(more)} operands were given"
        )
    if mma.operation.composed:
        # registers of complex numbers lie as those of their real parts do
        parts = [_parts(operand, given) for operand, given in ((inst.a, a), (inst.b, b), (inst.c, c))]
        return _pack_parts(inst.d, multiply(mma, *parts, arch=arch, scale_D=scale_D))
    options: dict[str, object] = {}
    for name, words in zip(extra, more, strict=True):
        if name == "metadata":
            options[name] = inst.metadata.unpack(words, thread_id=mma.spsel.value)
        else:
            options[name] = inst.operands[name].unpack(words)
    d = multiply(
        mma,
        _matrix(inst.a, a),
        _matrix(inst.b, b),
        _matrix(inst.c, c),
        arch=arch,
        scale_D=scale_D,
        **options,
    )
    return inst.d.pack(d)


def _matrix(operand: Operand, given: object) -> object:
    """The matrix that an operand's registers hold; one in shared memory is given as it is."""
    import numpy as np

    if operand.where != "registers":
        return given
    array = as_array(given, f"the registers of {operand.title}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "f" and array.dtype.itemsize * 8 == operand.register_bits:
        array = np.ascontiguousarray(array).view(f"uint{operand.register_bits}")
    return operand.unpack(array)


def _parts(operand: Operand, given: object) -> AnyArray:
    """The matrix of a register array of complex numbers, or of structures of doubles."""
    import numpy as np

    array = as_array(given, f"the registers of {operand.title}")
    if array.dtype.kind not in "iufc" and array.dtype != GAUSS_COMPLEX.dtype:
        raise LanewiseError(
            f"the registers of {operand.name} are complex128[…, {operand.threads}, {operand.registers}]; "
            f"{array.dtype}{list(array.shape)} was given"
        )
    dtype = array.dtype if array.dtype.names else np.dtype(np.complex128)
    words = np.ascontiguousarray(array, dtype=dtype).view(np.uint64).reshape(*array.shape, -1)
    parts = [operand.unpack(words[..., i]) for i in range(words.shape[-1])]
    return np.ascontiguousarray(np.stack(parts, axis=-1)).view(dtype)[..., 0]


def _pack_parts(operand: Operand, matrix: AnyArray) -> AnyArray:
    """The register array of a matrix of complex numbers, or of structures of doubles."""
    import numpy as np

    doubles = np.ascontiguousarray(matrix).view(np.float64).reshape(*matrix.shape, -1)
    words = [operand.pack(doubles[..., i]) for i in range(doubles.shape[-1])]
    return np.ascontiguousarray(np.stack(words, axis=-1)).view(matrix.dtype)[..., 0]
