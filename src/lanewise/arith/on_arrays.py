"""An instruction on arrays: `compute` for one, `gemm` for as many as whole matrices need, `fidelity`.

It checks what users pass as operands, arrays of the right dtype and shape or nested lists, and brings it into
the form of the engines, which do the arithmetic. Numbers in lists have to be exact in the format. Errors name
the operand, what it should be, and how to get there.
"""

from dataclasses import replace
from typing import Unpack

import numpy as np
import numpy.typing as npt

from lanewise.arith.batches import Product
from lanewise.arith.models import NAN_BITS, Fidelity, FmaChain, FusedSum, IntegerSum, Model, model_of
from lanewise.engines import ProductOptions
from lanewise.errors import LanewiseError
from lanewise.formats import Format, as_array
from lanewise.isa import Instruction
from lanewise.numpy_types import AnyArray as Array


def as_operand(name: str, value: object, fmt: Format) -> Array:
    """Return the operand as an array of the format's dtype, at least a matrix."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # numpy.ma is slow to import
        raise LanewiseError(f"{name} is a masked array; .filled(value) says what its masked elements are")
    array = value if isinstance(value, np.ndarray) else exact_array(name, value, fmt)
    if array.dtype != fmt.dtype:
        raise LanewiseError(
            f"{name} is {fmt.name} and takes an array of dtype {fmt.dtype}, not {array.dtype}; "
            f"lanewise.formats.{fmt.name}.array({name}) rounds numbers to it"
        )
    if array.ndim < 2:
        raise LanewiseError(f"{name} is a matrix or a batch of them; got an array of shape {array.shape}")
    return array


def exact_array(name: str, value: object, fmt: Format) -> Array:
    """Return numbers that are no array yet as one, if the format holds each of them exactly."""
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return as_array(value, name)
    try:
        numbers = np.asarray(value if value is not None else "None", dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LanewiseError(f"{name} is neither an array nor nested lists of numbers: {error}") from error
    words = fmt.encode(numbers)
    back = fmt.decode(words).astype(np.float64)
    if not np.array_equal(back, numbers, equal_nan=True):
        worst = numbers[(back != numbers) & ~np.isnan(numbers)].flat[0]
        raise LanewiseError(
            f"{name}: {worst} is not a number of {fmt.name}; "
            f"lanewise.formats.{fmt.name}.array({name}) rounds numbers to it"
        )
    return fmt.from_bits(words)


def check_shape(
    name: str, array: Array, rows: int | None, cols: int | None, why: str, remedy: str = ""
) -> None:
    """Raise an error if a matrix is not (rows, cols); None means any number. It ends with the remedy."""
    got = array.shape[-2:]
    if rows not in (None, got[0]) or cols not in (None, got[1]):
        wanted = f"(…, {'any' if rows is None else rows}, {'any' if cols is None else cols})"
        raise LanewiseError(f"{name} has shape {array.shape}; {why} takes {wanted}{remedy}")


def batch_of(**arrays: Array | None) -> tuple[int, ...]:
    """Return the leading dimensions of all operands together, as NumPy broadcasts them."""
    shapes = {name: array.shape[:-2] for name, array in arrays.items() if array is not None}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise LanewiseError(f"the batch dimensions do not broadcast: {listed}") from error


def as_indices(instruction: Instruction, metadata: object, packed: Array, groups: int) -> Array:
    """Return the dense column of every packed element of a sparse A, for K of `groups` instructions."""
    operand = instruction.metadata
    rows, per_instruction = operand.indices_shape
    if metadata is None:
        raise LanewiseError(
            f"{instruction.text} needs metadata: an integer array (…, {packed.shape[-2]}, "
            f"{per_instruction * groups}) of the places that A's elements take in their groups"
        )
    indices = as_array(metadata, "metadata")
    wanted = (packed.shape[-2], per_instruction * groups)
    if indices.dtype.kind not in "ui" or indices.ndim < 2 or indices.shape[-2:] != wanted:
        raise LanewiseError(
            f"metadata is an integer array (…, {wanted[0]}, {wanted[1]}) of places in groups; "
            f"got {indices.dtype} {indices.shape}"
        )
    # Each tile of the instruction is checked separately, then they are joined again.
    whole = -wanted[0] % rows
    padded = np.concatenate(
        [indices, np.broadcast_to(indices[..., :1, :], (*indices.shape[:-2], whole, wanted[1]))], -2
    )
    tiles = padded.reshape(*indices.shape[:-2], -1, rows, groups, per_instruction).swapaxes(-3, -2)
    operand.codes(tiles)
    columns = operand.columns(tiles) + (np.arange(groups) * instruction.k)[:, None, None]
    columns = columns.swapaxes(-3, -2).reshape(*indices.shape[:-2], -1, packed.shape[-1])
    return np.asarray(columns[..., : wanted[0], :])


def compute(
    instruction: Instruction,
    a: object,
    b: object,
    c: object = None,
    *,
    arch: str,
    **options: Unpack[ProductOptions],
) -> Array:
    """Return D = A·B + C with the bits that the arch returns, for one instruction or a batch of them.

    A is (…, M, K), B (…, K, N), C (…, M, N) or nothing for zeros; leading dimensions broadcast. A sparse A is
    packed, (…, M, K/2), as are its metadata. Scale factors are (…, M, scales) and (…, scales, N).
    The options are described at `lanewise.engines.ProductOptions`.

    >>> import numpy as np
    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    >>> a = np.full((16, 8), 0.5, np.float16)
    >>> b = np.ones((8, 8), np.float16)
    >>> float(compute(mma, a, b, arch="sm_80")[0, 0])
    4.0
    """
    operands = CheckedOperands(instruction, required_model(instruction, arch), a, b, c, options)
    why = instruction.text
    larger = "; mma.gemm (in the shell, --gemm) takes matrices of any size"
    check_shape("A", operands.a, instruction.m, instruction.a.cols, why, larger)
    check_shape("B", operands.b, instruction.k, instruction.n, why, larger)
    return multiply(operands)


def gemm(
    instruction: Instruction,
    a: object,
    b: object,
    c: object = None,
    *,
    arch: str,
    **options: Unpack[ProductOptions],
) -> Array:
    """Return A·B + C of whole matrices: the instruction is repeated along K, ascending, as kernels do.

    Matrices may have any shape; parts that do not fill an instruction are padded with zeros. Everything else
    is as for `compute`.

    >>> import numpy as np
    >>> from lanewise.isa import instruction
    >>> mma = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> gemm(mma, np.ones((3, 100), np.float16), np.ones((100, 2), np.float16), arch="sm_90").tolist()
    [[100.0, 100.0], [100.0, 100.0], [100.0, 100.0]]
    """
    operands = CheckedOperands(instruction, required_model(instruction, arch), a, b, c, options)
    return multiply(operands)


def fidelity(instruction: Instruction, arch: str) -> Fidelity:
    """Return how far the computed bits can be trusted on an arch.

    >>> from lanewise.isa import instruction
    >>> fidelity(instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), "sm_90")
    'confirmed on hardware'
    """
    model = model_of(instruction, instruction.require(arch))
    return "unknown" if model is None else model.fidelity


def required_model(instruction: Instruction, arch: str) -> Model:
    """Return the model; raise an error if the arch lacks the instruction or its model is unknown."""
    name = instruction.require(arch)
    model = model_of(instruction, name)
    if model is None:
        raise LanewiseError(f"{instruction.text}: what {name} computes is unknown; see `fidelity`")
    return model


class CheckedOperands:
    """The operands of a call after all checks: dtypes, shapes that fit, metadata and scales; its options."""

    def __init__(
        self, instruction: Instruction, model: Model, a: object, b: object, c: object, options: ProductOptions
    ) -> None:
        unknown = [name for name in options if name not in ProductOptions.__annotations__]
        if unknown:
            known = ", ".join(ProductOptions.__annotations__)
            raise TypeError(
                f"{instruction.text} has no option {unknown[0]!r} on arrays; it has arch, {known}"
            )
        self.instruction, self.model, self.options = instruction, model, options
        self.a, self.b = as_operand("A", a, model.a), as_operand("B", b, model.b)
        rows, packed, k, columns = *self.a.shape[-2:], *self.b.shape[-2:]
        if packed * (2 if model.sparse else 1) != k:
            wanted = "half as many columns as B has rows" if model.sparse else "as many columns as B has rows"
            raise LanewiseError(f"A has shape {self.a.shape} and B {self.b.shape}; A needs {wanted}")
        self.c = None if c is None else as_operand("C", c, model.c)
        if self.c is not None:
            check_shape("C", self.c, rows, columns, "a product of these A and B")
        self.steps = -(-k // instruction.k)
        if model.sparse and k % instruction.k:
            raise LanewiseError(f"a sparse K is a multiple of {instruction.k}; B has {k} rows")
        metadata = options.get("metadata")
        self.columns = as_indices(instruction, metadata, self.a, self.steps) if model.sparse else None
        if metadata is not None and not model.sparse:
            raise LanewiseError(f"{instruction.text} is not sparse and takes no metadata")
        self.scale_a = self.scale("scale_a", options.get("scale_a"), rows, model.scale_vec * self.steps)
        self.scale_b = self.scale("scale_b", options.get("scale_b"), model.scale_vec * self.steps, columns)
        self.batch = batch_of(
            A=self.a, B=self.b, C=self.c, metadata=self.columns, scale_a=self.scale_a, scale_b=self.scale_b
        )

    def scale(self, name: str, value: object, rows: int, columns: int) -> Array | None:
        """Return a scale operand, which must be present exactly where the instruction has one."""
        fmt = self.model.scale
        if fmt is None:
            if value is not None:
                raise LanewiseError(f"{self.instruction.text} is not block-scaled and takes no {name}")
            return None
        if value is None:
            raise LanewiseError(
                f"{self.instruction.text} needs {name}: {fmt.dtype} of shape (…, {rows}, {columns})"
            )
        array = as_operand(name, value, fmt)
        check_shape(name, array, rows, columns, self.instruction.text)
        return array


def multiply(operands: CheckedOperands) -> Array:
    """Return D of operands that were checked."""
    model, options = operands.model, operands.options
    satfinite = options.get("satfinite", False)
    negate_a, negate_b = options.get("negate_a", False), options.get("negate_b", False)
    if (negate_a or negate_b) and (
        not operands.instruction.family.startswith(("wgmma", "tcgen05")) or model.a.kind != "float"
    ):
        raise LanewiseError(
            f"{operands.instruction.text} cannot negate its operands; wgmma and tcgen05.mma of floats can"
        )
    if satfinite and isinstance(model.scheme, IntegerSum):
        model = replace(model, satfinite=True)
    elif satfinite and (operands.instruction.family != "wmma.mma" or model.d.name not in ("f16", "f32")):
        raise LanewiseError(
            "satfinite=True is for integer sums and for wmma with f16 or f32 results; "
            f"{operands.instruction.text} has no such form"
        )
    clamps = model.d.kind == "float" and (satfinite or model.satfinite)
    if operands.steps > 1 and (model.c.name, model.d.name) == ("f16", "f32"):
        raise LanewiseError(
            f"{operands.instruction.text} makes an f32 D and takes an f16 C: it cannot be repeated along K; "
            "take the form whose C is f32"
        )
    a, b = raw_a(operands, negate_a), padded_k(raw_b(operands, negate_b), operands.instruction.k, axis=-2)
    rows, columns = a.shape[-2], b.shape[-1]
    sums = np.zeros((*operands.batch, rows, columns), sum_dtype(model))
    if operands.c is not None:
        with np.errstate(invalid="ignore"):
            sums[...] = operands.c
    product = Product(a, b, sums, operands.batch, operands.scale_a, operands.scale_b)
    if not clamps and carries_d(model):
        return finished(model, run(model, product))
    # D is rounded and clamped after each instruction, before it is the C of the next one.
    k = operands.instruction.k
    d = finished(model, sums)
    for start in range(0, b.shape[-2], k):
        step = replace(product, a=a[..., start : start + k], b=b[..., start : start + k, :], sums=sums)
        d = finished(model, run(model, step))
        if clamps:
            d = clamp(d, model.d)
        sums = d.astype(sum_dtype(model))
    return d


def carries_d(model: Model) -> bool:
    """Return whether the kernels' sums are D's numbers after every instruction, without more rounding."""
    if isinstance(model.scheme, FusedSum):
        return model.d.name == "f32" or model.scheme.rounding == "RNE-FP16"
    return model.d.name != "f16"


def run(model: Model, product: Product) -> Array:
    """Return the sums of all products: f32, f64 or int32, as the model's accumulator has them."""
    if product.sums.size == 0 or product.a.shape[-1] == 0:
        return product.sums
    if isinstance(model.scheme, FusedSum):
        from lanewise.arith.fused_engine import run_fused

        return run_fused(model, product)
    from lanewise.arith.plain_engine import run_plain

    return run_plain(model, product)


def raw_a(operands: CheckedOperands, negate: bool) -> Array:
    """Return A as the engines take it: raw words, padded to whole instructions; a sparse A spread out."""
    model = operands.model
    words = negated(model.a.to_bits(operands.a), model.a, negate)
    if operands.columns is None:
        return padded_k(words, operands.instruction.k, axis=-1)
    k = operands.b.shape[-2]
    batch = np.broadcast_shapes(words.shape[:-2], operands.columns.shape[:-2])
    columns = np.broadcast_to(operands.columns, (*batch, *operands.columns.shape[-2:]))
    if isinstance(model.scheme, IntegerSum):
        spread = np.zeros((*batch, words.shape[-2], k), words.dtype)
        elements = words
    else:
        # Gaps are -0, and a zero that is there is +0: only the latter meets an infinity of B.
        spread = np.full((*batch, words.shape[-2], k), -0.0, np.float32)
        elements = (model.a.decode(words) + 0.0).astype(np.float32)
    np.put_along_axis(spread, columns, np.broadcast_to(elements, (*batch, *words.shape[-2:])), axis=-1)
    return spread


def raw_b(operands: CheckedOperands, negate: bool) -> Array:
    """Return B as raw words, with signs flipped if asked for."""
    return negated(operands.model.b.to_bits(operands.b), operands.model.b, negate)


def negated(words: Array, fmt: Format, negate: bool) -> Array:
    """Return words with their signs flipped if asked for."""
    return words ^ words.dtype.type(1 << (fmt.bits - 1)) if negate else words


def padded_k(array: Array, k: int, axis: int) -> Array:
    """Return an array padded with zeros to whole instructions along K."""
    missing = -array.shape[axis] % k
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


def sum_dtype(model: Model) -> npt.DTypeLike:
    """Return the dtype that carries the sums; f16 sums are kept as f32."""
    return {"f64": np.float64, "s32": np.int32}.get(model.accumulator, np.float32)


def finished(model: Model, sums: Array) -> Array:
    """Return sums as D: rounded to its format if that is narrower, with every NaN the hardware's."""
    with np.errstate(over="ignore", invalid="ignore"):
        d = np.ascontiguousarray(sums).astype(model.d.dtype, copy=False)
        if model.narrowing == "rz" and model.d.name == "f16":
            past = np.abs(d.astype(sums.dtype)) > np.abs(sums)
            d = np.where(past, np.nextafter(d, np.zeros_like(d)), d)
    if isinstance(model.scheme, FmaChain) and model.scheme.nan == "one":
        words = d.view(model.d.word_dtype)
        words[np.isnan(d)] = NAN_BITS[model.d.name]
    return d


def clamp(d: Array, fmt: Format) -> Array:
    """Apply WMMA's satf: infinities become the largest numbers, NaN becomes +0."""
    return np.nan_to_num(d, nan=0.0, posinf=float(fmt.max), neginf=-float(fmt.max))
