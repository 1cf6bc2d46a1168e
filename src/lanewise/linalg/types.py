"""Which formats can be multiplied, how their products are summed, and what results they give: one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import FORMATS, Format, f32, format_of

#: The block of K after which sums of small floats are promoted to f32, and the side of a block of scales.
BLOCK = 128
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu_erf",
    "gelu_erf": "gelu_erf",
    "gelu_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class Product:
    """What products of a format are: the formats of their sums and results (the first is the default)."""

    sums: tuple[str, ...]
    results: tuple[str, ...]
    #: "" is the types' own product.
    precisions: tuple[str, ...] = ("",)
    #: Which scales A and B may have.
    scales: tuple[str, ...] = ()


_SMALL_FLOATS = Product(
    ("f32",), ("bf16", "f16", "f32", "e4m3"), scales=("tensor", "row", "block", "factors")
)
PRODUCTS = {
    "f16": Product(("f32", "f16"), ("f16", "bf16", "f32", "e4m3")),
    "bf16": Product(("f32",), ("bf16", "f16", "f32", "e4m3")),
    "f32": Product(("f32",), ("f32", "f16", "bf16"), precisions=("f32", "tf32")),
    "f64": Product(("f64",), ("f64",)),
    "e4m3": _SMALL_FLOATS,
    "e5m2": _SMALL_FLOATS,
    "s8": Product(("s32",), ("s32", "f16", "bf16", "f32"), scales=("tensor", "row")),
    "e2m1": Product(("f32",), _SMALL_FLOATS.results, scales=("factors",)),
}
#: Formats of a bias or residual, and of weights that are quantized.
ADDED = ("f16", "bf16", "f32", "f64")
QUANTIZED = ("f16", "bf16", "f32")
_RESULTS = tuple(dict.fromkeys(name for product in PRODUCTS.values() for name in product.results))
#: Formats that operands of some product have; others have f32.
_OF_OPERANDS: dict[str, Iterable[str]] = {
    "a": PRODUCTS, "b": PRODUCTS, "out": _RESULTS, "bias": ADDED, "residual": ADDED,
    "w": QUANTIZED, **dict.fromkeys("qkv", ("f16", "bf16")),
}  # fmt: skip
#: The arch since which an instruction rounds f32 to a format of results; all archs round to the others.
ROUNDED_SINCE = {"bf16": 80, "e4m3": 89}
#: Formats of arrays that products take or give.
TAKEN = tuple(dict.fromkeys((*PRODUCTS, *_RESULTS, "ue8m0")))


def names_taken(operand: str) -> str:
    """Return the types that an operand of some product has, in words.

    >>> names_taken("bias")
    'float16, bfloat16, float32, float64'
    """
    return ", ".join(FORMATS[name].dtype_name for name in _OF_OPERANDS.get(operand, ("f32",)))


def product_of(a: Format, b: Format) -> Product:
    """Return what the product of two formats is; an error if there is none.

    >>> product_of(FORMATS["e4m3"], FORMATS["e5m2"]).results[0]
    'bf16'
    """
    product = PRODUCTS.get(a.name)
    if product is None or b.name not in PRODUCTS:
        alone = b if product is not None else a
        raise LanewiseError(f"{alone.dtype_name} cannot be multiplied; products take {names_taken('a')}")
    if a != b and PRODUCTS[b.name] is not product:
        raise LanewiseError(
            f"a is {a.dtype_name} and b is {b.dtype_name}; both must have the same type (only e4m3 and e5m2 "
            "may be mixed): convert one of them"
        )
    return product


def format_named(given: Any, name: str) -> Format:
    """Return the format of a dtype of any library, or of a format's name."""
    if isinstance(given, np.dtype) and not given.isnative:
        own = given.newbyteorder("=").str
        raise LanewiseError(f"{name}={given.str!r} must be in this machine's own byte order: {own!r}")
    try:
        return format_of(str(given).removeprefix("torch.") if "torch" in type(given).__module__ else given)
    except LanewiseError as error:
        raise LanewiseError(f"{name}={given!r}: {error}") from None
    except Exception:  # an object with a dtype of its own that NumPy does not take
        raise LanewiseError(
            f"{name}={given!r} must be a type of NumPy's, ml_dtypes' or torch's, or a name such as 'f16'"
        ) from None


def sums_of(product: Product, a: Format, accumulate: object) -> tuple[Format, int | None]:
    """Return the format of the sums, and the block of K after which they are promoted, if they are."""
    if accumulate is None:
        return FORMATS[product.sums[0]], None
    wanted = format_named(accumulate, "accumulate")
    if wanted.name not in product.sums:
        raise LanewiseError(
            f"accumulate={accumulate!r}: products of {a.dtype_name} are summed in {' or '.join(product.sums)}"
        )
    return wanted, BLOCK if product is _SMALL_FLOATS else None


def precision_of(product: Product, a: Format, precision: object) -> str:
    """Return the precision of products of f32: "tf32" if asked for, else "f32"; "" of other types."""
    if precision is None:
        return product.precisions[0]
    if not isinstance(precision, str) or precision not in product.precisions or not precision:
        raise LanewiseError(
            f"precision={precision!r}: "
            + (
                "f32 arrays take precision='f32' or 'tf32'"
                if a == f32
                else f"{a.dtype_name} arrays are multiplied as they are; precision= is for f32 arrays"
            )
        )
    return str(precision)


def result_of(product: Product, a: Format, given: Format | None, out_dtype: object, scaled: bool) -> Format:
    """Return the format of the result: that of `out`, or `out_dtype`, or the default of the product."""
    wanted = None if out_dtype is None else format_named(out_dtype, "out_dtype")
    if given is not None and wanted is not None and given != wanted:
        raise LanewiseError(
            f"out has elements of type {given.dtype_name}, but out_dtype is {wanted.dtype_name}: leave out "
            "one of the two"
        )
    chosen = given or wanted
    if chosen is None:
        if scaled and product.results[0] == "s32":
            raise LanewiseError(
                "products of int8 with scales give float16, bfloat16 or float32: say which with out_dtype="
            )
        return FORMATS[product.results[0]]
    if chosen.name not in product.results:
        raise LanewiseError(
            f"products of {a.dtype_name} can give "
            f"{', '.join(FORMATS[result].dtype_name for result in product.results)}, not {chosen.dtype_name}"
        )
    return chosen


def activation_of(name: object) -> str | None:
    """Return an activation's own name; "gelu" is the one with erf, as in torch."""
    if name is None:
        return None
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise LanewiseError(
            f"activation={name!r} must be one of {', '.join(ACTIVATIONS)}; epilogue= takes a function of "
            "your own"
        )
    return ACTIVATIONS[name]


def number_of(value: object, name: str) -> float:
    """Return a number of an epilogue, or a scale, as a float; arrays are refused.

    -0.0 counts as 0.0: calls that differ in nothing but this are one kind of call.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        mend = (
            f": pass float({name}); arrays may be scale_a, scale_b and scale_out"
            if hasattr(type(value), "shape")
            else ""
        )
        raise LanewiseError(f"{name} must be a number, not {type(value).__name__}{mend}")
    try:
        return float(value) + 0.0
    except OverflowError:
        raise LanewiseError(f"{name} must be at most 1.8e308; this integer is larger") from None
