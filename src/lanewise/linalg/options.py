"""Every keyword of a product, once: `lw.matmul` packs them, and everything else gets them whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.hints import nearest

if TYPE_CHECKING:
    from lanewise.linalg.arrays import Array, Scale
    from lanewise.linalg.block_scaling import SwizzledScales
    from lanewise.linalg.epilogue_function import EpilogueFunction
    from lanewise.linalg.plan import Plan
    from lanewise.linalg.planning.planned import PlannedProduct


@dataclass(frozen=True)
class Options:
    """The keywords of a product, as they were given; docs/matmul.md says what each does."""

    out: Array | None = None
    bias: Array | None = None
    activation: str | None = None
    residual: Array | None = None
    alpha: float = 1.0
    beta: float | None = None
    scale_a: Scale | SwizzledScales | None = None
    scale_b: Scale | SwizzledScales | None = None
    scale_out: Scale | None = None
    epilogue: EpilogueFunction | None = None
    #: Types of NumPy, ml_dtypes or torch, or names such as "f16".
    out_dtype: object = None
    accumulate: object = None
    precision: str | None = None
    batch_invariant: bool = False
    arch: str | None = None
    plan: Plan | PlannedProduct | None = None
    #: A stream of any library, or its handle.
    stream: object = None


#: The keywords that are arrays (a scale may be a number), in the order of a launch's operands after a and b.
ARRAYS = ("out", "bias", "residual", "scale_a", "scale_b", "scale_out")
_DEFAULTS = {field.name: field.default for field in fields(Options)}
#: The others, but for the stream: with the kinds of all arrays they decide what is launched.
SETTINGS = tuple(name for name in _DEFAULTS if name not in ARRAYS and name != "stream")
_USUAL = tuple((name, _DEFAULTS[name]) for name in SETTINGS)
#: The settings of a call without keywords.
NO_SETTINGS = tuple(value for _, value in _USUAL)


def settings_of(given: Mapping[str, object]) -> tuple[object, ...]:
    """Return the settings of a call, in their order.

    >>> settings_of({"activation": "relu"}) == ("relu", *NO_SETTINGS[1:])
    True
    """
    return tuple([given.get(name, usual) for name, usual in _USUAL])


def given_names(options: Options) -> set[str]:
    """Return the keywords that have another value than their default; arrays are not compared.

    >>> given_names(Options(alpha=1.0, bias=[1.0]))
    {'bias'}
    """

    def is_default(value: object, default: object) -> bool:
        return value is default or (type(value) is type(default) and value == default)

    return {name for name, value in _DEFAULTS.items() if not is_default(getattr(options, name), value)}


def options_of(function: str, keywords: Mapping[str, Any], without: tuple[str, ...] = ()) -> Options:
    """Return the options of a function that takes keywords of `lw.matmul`, but for some.

    >>> options_of("lw.plan", {"bias": None}).alpha
    1.0
    """
    require_keywords(function, keywords, without)
    for name in without:
        if keywords.get(name) is not None:
            raise LanewiseError(f"{function} takes no {name}=")
    return Options(**keywords)


#: What a keyword of another library's product is here.
_ELSEWHERE = {
    "dtype": "out_dtype= is the type of the result",
    "preferred_element_type": "out_dtype= is the type of the result, accumulate= that of sums",
    "acc_dtype": "accumulate= is the type of sums",
    "input": "beta= and residual= add a matrix to the product",
    "c": "beta= and residual= add a matrix to the product",
    "act": "activation= is applied to the product",
    "allow_tf32": "precision='tf32' rounds f32 arrays",
}


def require_keywords(function: str, names: Iterable[str], without: tuple[str, ...] = ()) -> None:
    """Raise an error if a name is no keyword of a product: it says what serves instead.

    >>> require_keywords("lw.matmul", ["bias", "trans_b"])
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: lw.matmul has no keyword trans_b: pass b.T, arrays may have any strides
    """
    for name in names:
        if name in _DEFAULTS:
            continue
        instead = _ELSEWHERE.get(name.lower())
        if instead is None and name.lower().startswith("trans"):
            operand = "a" if name.lower().endswith("a") else "b"
            instead = f"pass {operand}.T, arrays may have any strides"
        if instead is None:
            known = [keyword for keyword in _DEFAULTS if keyword not in without]
            near = nearest(name, known)
            instead = f"did you mean {near}=?" if near else f"it takes {', '.join(known)}"
        raise LanewiseError(f"{function} has no keyword {name}: {instead}")
