"""The number formats of matrix instructions as data, with exact decode and encode over arrays.

Holds one row per format and its NumPy dtype; what instructions do with the numbers is left to other rooms.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from lanewise.engines import HOST_ARRAY, NUMBER
from lanewise.errors import LanewiseError
from lanewise.hints import Named, nearest
from lanewise.tracebacks import short_methods, short_traceback

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lanewise.numpy_types import AnyArray, AnyDtype

    Words = npt.NDArray[np.unsignedinteger[Any]]


def as_array(values: object, what: str) -> AnyArray:
    """The values as a NumPy array, or an error if they are none (rows of unequal length, say).

    >>> as_array([[1, 2], [3, 4]], "A").shape
    (2, 2)
    """
    import numpy as np

    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        if hasattr(values, "__dlpack_device__"):  # a tensor of bfloat16 or fp8, which NumPy does not have
            array = HOST_ARRAY.function(values)
            if isinstance(array, np.ndarray):
                return array
        raise LanewiseError(f"{what}: what was given is not an array ({error})") from None


#: The formats that were made, by their fields.
_MADE: dict[tuple[tuple[str, Any], ...], Format] = {}


@short_methods
@dataclass(frozen=True, repr=False)
class Format:
    """A number format: what its bits mean, and how arrays are converted to and from it exactly.

    A float has a sign bit (if `signed`), an exponent and a mantissa, from the top bit down. `word_bits` is
    the width of the unsigned word that holds one unpacked element.

    >>> f16.max, f16.emin, f16.smallest_subnormal
    (65504.0, -14, 5.960464477539063e-08)
    >>> e4m3.decode([0x7E, 0x7F, 0x01]).tolist()
    [448.0, nan, 0.001953125]
    >>> [hex(word) for word in bf16.encode([1.0, -2.5])]
    ['0x3f80', '0xc020']
    """

    name: str
    bits: int
    kind: Literal["float", "int", "bits"]
    dtype_name: str
    signed: bool = True
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    has_inf: bool = False
    has_nan: bool = False
    ignored_low_bits: int = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Format:
        """Return the one object that there is of a format, so that formats can be compared with `is`."""
        if not (args or kwargs):  # a pickle of an earlier version: the fields are set afterwards
            return super().__new__(cls)
        defaults = {field.name: field.default for field in fields(cls)}
        values = defaults | dict(zip(defaults, args, strict=False)) | kwargs
        return _MADE.setdefault(tuple(values.items()), super().__new__(cls))

    def __reduce__(self) -> tuple[type[Format], tuple[Any, ...]]:
        """Have a copy, or what is unpickled, be the format itself."""
        return Format, tuple(getattr(self, field.name) for field in fields(self))

    def __post_init__(self) -> None:
        if self.kind == "float":
            used = self.signed + self.exponent_bits + self.mantissa_bits + self.ignored_low_bits
            assert used in (self.bits, self.bits - 1), f"{self.name}: {used} bits used of {self.bits}"
            assert self.has_nan or not self.has_inf, f"{self.name}: infinities come with NaNs"

    def __call__(self, value: object) -> Any:
        """Inside a kernel: a number of this format, or a traced value converted to it."""
        return NUMBER.function(self, value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @cached_property
    def dtype(self) -> AnyDtype:
        """The NumPy dtype of arrays in this format (tf32 travels as float32, ue4m3 as float8_e4m3fn)."""
        import ml_dtypes
        import numpy as np

        return np.dtype(getattr(ml_dtypes, self.dtype_name, self.dtype_name))

    @property
    def word_bits(self) -> int:
        """The width of the word that holds one unpacked element: 8, 16, 32 or 64."""
        return max(8, self.bits)

    @property
    def word_dtype(self) -> AnyDtype:
        """The unsigned dtype of one unpacked element's raw bits."""
        import numpy as np

        return np.dtype(f"uint{self.word_bits}")

    @property
    def emin(self) -> int:
        """The exponent of the smallest normal number, which every subnormal number shares."""
        self._require_float("an exponent range")
        return (1 if self.mantissa_bits else 0) - self.bias

    @property
    def emax(self) -> int:
        """The exponent of the largest finite number."""
        self._require_float("an exponent range")
        return (self._max_code >> self.mantissa_bits) - self.bias

    @cached_property
    def max(self) -> float | int:
        """The largest finite number."""
        if self.kind != "float":
            return (1 << (self.bits - self.signed)) - 1
        significand = (self._max_code & self._mantissa_mask) + self._mantissa_mask + 1
        return float(significand) * 2.0 ** (self.emax - self.mantissa_bits)

    @property
    def min(self) -> float | int:
        """The most negative finite number (0 where there is no sign; ue8m0 has neither sign nor zero)."""
        if self.kind != "float":
            return -(1 << (self.bits - 1)) if self.signed else 0
        if self.signed:
            return -self.max
        return 0.0 if self.mantissa_bits else self.smallest_subnormal

    @property
    def smallest_subnormal(self) -> float | int:
        """The smallest positive number (1 for integers)."""
        return 1 if self.kind != "float" else 2.0 ** (self.emin - self.mantissa_bits)

    def decode(self, bits: npt.ArrayLike) -> AnyArray:
        """Return the exact values of raw words, as float64 for floats and int64 for integers and bits.

        >>> s4.decode([0x0, 0x7, 0x8, 0xF]).tolist()
        [0, 7, -8, -1]
        >>> tf32.decode([0x3F801FFF]).tolist()
        [1.0]
        """
        import numpy as np

        words = self._words(bits)
        if self.kind != "float":
            values = words.astype(np.int64)
            return values - ((values >> (self.bits - 1)) << self.bits) if self.signed else values
        if self.bits >= 32:
            kept = words & ~words.dtype.type((1 << self.ignored_low_bits) - 1)
            with np.errstate(invalid="ignore"):  # widening a signalling NaN is no error here
                return kept.view(f"f{self.bits // 8}").astype(np.float64)
        code = words.astype(np.int64) & ((1 << self._magnitude_bits) - 1)
        fields = code >> self.mantissa_bits
        exponent = np.maximum(fields, 1 if self.mantissa_bits else 0) - self.bias
        implicit = (fields > 0).astype(np.int64) if self.mantissa_bits else 1
        significand = (code & self._mantissa_mask) + (implicit << self.mantissa_bits)
        values = np.ldexp(significand.astype(np.float64), exponent - self.mantissa_bits)
        if self.has_inf:
            values = np.where(code == self._max_code + 1, np.inf, values)
        if self.has_nan:
            values = np.where(code > self._max_code + self.has_inf, np.nan, values)
        return np.copysign(values, np.where(words >> (self.bits - 1), -1.0, 1.0)) if self.signed else values

    def encode(self, values: npt.ArrayLike, *, saturate: bool = False) -> Words:
        """Return the raw words of the nearest representable numbers (ties to even).

        A float that is too large becomes Inf, or NaN in formats without Inf. In formats that have neither,
        and for integers, it is an error. With `saturate` it becomes the largest finite number instead.

        >>> e4m3.encode([448.0, 1000.0]).tolist(), e4m3.encode([1000.0], saturate=True).tolist()
        ([126, 127], [126])
        >>> s8.encode([-1, 127]).tolist()
        [255, 127]
        """
        import numpy as np

        if self.kind != "float":
            return self._encode_integers(values, saturate)
        numbers = self._real_numbers(values)
        if self.bits == 64:
            return np.where(saturate & np.isinf(numbers), np.copysign(self.max, numbers), numbers).view(
                np.uint64
            )
        magnitude = np.abs(np.where(np.isnan(numbers), 0.0, numbers))
        finite = np.where(np.isinf(magnitude), 0.0, magnitude)
        exponent = np.maximum(np.where(finite == 0, self.emin, np.frexp(finite)[1] - 1), self.emin)
        # Steps of the exponent's binade; a carry out of the mantissa lands in the next exponent by itself.
        steps = np.rint(np.ldexp(finite, self.mantissa_bits - exponent)).astype(np.int64)
        code = steps + ((exponent - self.emin).astype(np.int64) << self.mantissa_bits)
        if not self.mantissa_bits:
            code = np.maximum(code - 1, 0)  # no zero and no subnormals: code 0 is 2^-bias
        code = np.where((code > self._max_code) | np.isinf(magnitude), self._overflow_code(saturate), code)
        code = np.where(np.isnan(numbers), self._nan_code, code)
        if not self.signed:
            below = np.signbit(numbers) & (numbers != 0)
            unrepresentable = below | (numbers == 0 if not self.mantissa_bits else False)
            code = np.where(unrepresentable, self._nan_code, code)
        if code.size and code.min() < 0:
            worst = numbers.flat[int(np.argmin(code))]
            way = ", which has no NaN" if np.isnan(worst) else "; pass saturate=True to clamp"
            raise LanewiseError(
                f"{worst} is not representable in {self.name} ({self.min} to {self.max}){way}"
            )
        if self.signed:
            code |= np.signbit(numbers).astype(np.int64) << self._magnitude_bits
        return (code << self.ignored_low_bits).astype(self.word_dtype)

    def to_bits(self, array: npt.ArrayLike) -> Words:
        """Return the raw words of an array of this format's dtype, one word for each element.

        >>> import numpy as np
        >>> f16.to_bits(np.array([1.0, -0.0], np.float16)).tolist()
        [15360, 32768]
        """
        import numpy as np

        values = as_array(array, self.name)
        if values.dtype != self.dtype:
            raise LanewiseError(
                f"{self.name} takes arrays of dtype {self.dtype}, not {values.dtype}; "
                f"use lanewise.formats.{self.name}.array(values) to convert numbers"
            )
        words = np.ascontiguousarray(values).view(self.word_dtype).reshape(values.shape)
        if self.bits < self.word_bits:
            # ml_dtypes ignores the spare high bits of its 4- and 6-bit types, so they may hold anything.
            words = words & self.word_dtype.type((1 << self.bits) - 1)
        return words

    def from_bits(self, words: npt.ArrayLike) -> AnyArray:
        """Return the array of this format's dtype that has the given raw words.

        >>> e2m1.from_bits([0x7, 0xF]).astype(float).tolist()
        [6.0, -6.0]
        """
        import numpy as np

        raw = self._words(words)
        return np.ascontiguousarray(raw).view(self.dtype).reshape(raw.shape)

    def array(self, values: npt.ArrayLike, *, saturate: bool = False) -> AnyArray:
        """Return the array of this format's dtype with the numbers nearest to `values`, ties to even.

        A number that is too large becomes infinite. In a format without infinities it is an error, or with
        `saturate` the largest number. Only NaN becomes NaN.

        >>> e5m2.array([1.0, 1e9, -3.25]).astype(float).tolist()
        [1.0, inf, -3.0]
        >>> e4m3.array([1.0, 1e9], saturate=True).astype(float).tolist()
        [1.0, 448.0]
        """
        words = self.encode(values, saturate=saturate)
        if self.kind == "float" and self.has_nan and not self.has_inf and not saturate:
            self._require_in_range(values, words)
        return self.from_bits(words)

    def _require_in_range(self, values: npt.ArrayLike, words: Words) -> None:
        """Raise an error if a number became NaN, as `encode` has it for one that is too large."""
        import numpy as np

        numbers = self._real_numbers(values)
        lost = ~np.isnan(numbers) & np.isnan(self.decode(words))
        if lost.any():
            raise LanewiseError(
                f"{self.name} holds numbers up to {self.max}, and {numbers[lost].flat[0]:g} is not "
                "among them; pass saturate=True to get the largest number instead"
            )

    @property
    def _magnitude_bits(self) -> int:
        return self.exponent_bits + self.mantissa_bits

    @property
    def _mantissa_mask(self) -> int:
        return (1 << self.mantissa_bits) - 1

    @property
    def _max_code(self) -> int:
        """The largest finite magnitude: below Inf, or below the one NaN, or all ones."""
        if self.has_inf:
            return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
        return (1 << self._magnitude_bits) - 1 - self.has_nan

    @property
    def _nan_code(self) -> int:
        """A quiet NaN's magnitude, or -1 where the format has none."""
        if not self.has_nan:
            return -1
        if self.has_inf:
            return self._max_code + 1 + (1 << (self.mantissa_bits - 1))
        return (1 << self._magnitude_bits) - 1

    def _overflow_code(self, saturate: bool) -> int:
        if saturate:
            return self._max_code
        return self._max_code + 1 if self.has_inf else self._nan_code

    def _words(self, bits: npt.ArrayLike) -> Words:
        raw = as_array(bits, f"raw words of {self.name}")
        if raw.size == 0:
            raw = raw.astype(self.word_dtype)
        if raw.dtype.kind not in "ui" or (raw.min(initial=0) < 0) or raw.max(initial=0) >= 1 << self.bits:
            raise LanewiseError(
                f"raw words of {self.name} are unsigned integers below 2**{self.bits}; "
                f"got dtype {raw.dtype}" + (f" up to {raw.max()}" if raw.dtype.kind in "ui" else "")
            )
        words: Words = raw.astype(self.word_dtype)
        return words

    def _real_array(self, values: npt.ArrayLike) -> AnyArray:
        """Return values as an array, or raise an error if they are no real numbers."""
        numbers = as_array(values, self.name)
        # NumPy would cast these too, and lose an imaginary part or a unit, or take None for NaN.
        unreal = numbers.dtype.kind in "cmMSU"
        if unreal or (
            numbers.dtype.kind == "O" and not all(isinstance(number, Real) for number in numbers.flat)
        ):
            raise LanewiseError(f"{self.name} encodes real numbers, not dtype {numbers.dtype}")
        return numbers

    def _real_numbers(self, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return values as float64 numbers that round to this format as the values themselves do."""
        import numpy as np

        numbers = self._real_array(values)
        try:
            if self.bits < 64 and numbers.dtype.kind in "iu" and numbers.dtype.itemsize == 8:
                return _odd_integers(numbers)
            with np.errstate(over="ignore"):  # a longdouble may be too large
                nearest: npt.NDArray[np.float64] = numbers.astype(np.float64)
            return _odd(numbers, nearest) if self.bits < 64 and _is_wide(numbers) else nearest
        except (TypeError, ValueError, OverflowError) as error:
            raise LanewiseError(f"{self.name} encodes real numbers: {error}") from error

    def _encode_integers(self, values: npt.ArrayLike, saturate: bool) -> Words:
        import numpy as np

        numbers = self._real_array(values)
        if numbers.dtype.kind not in "biu":
            reals = self._real_numbers(values)
            if not np.array_equal(reals, np.rint(reals)):
                raise LanewiseError(f"{self.name} holds integers only; round the values first")
            numbers = numbers if _is_wide(numbers) else reals
        if self.bits == 64 or _is_wide(numbers):
            numbers = _exact_integers(numbers)
        if saturate:
            numbers = np.clip(numbers, self.min, self.max)
        elif numbers.size and (numbers.min() < self.min or numbers.max() > self.max):
            raise LanewiseError(
                f"{self.name} holds {self.min} to {self.max}; got {numbers.min()} to {numbers.max()}; "
                "pass saturate=True to clamp"
            )
        words = numbers.astype(np.int64 if self.signed else np.uint64).astype(np.uint64)
        return (words & np.uint64((1 << self.bits) - 1)).astype(self.word_dtype)

    def _require_float(self, what: str) -> None:
        if self.kind != "float":
            raise LanewiseError(f"{self.name} is not a float format: {what} is what floats have")


def _is_wide(numbers: AnyArray) -> bool:
    """Return whether an array may hold numbers that are no float64: longdouble, or Python's numbers."""
    return numbers.dtype.kind == "O" or (numbers.dtype.kind == "f" and numbers.dtype.itemsize > 8)


def _odd(numbers: AnyArray, nearest: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return numbers rounded to odd, given the nearest float64 of each.

    A number between two float64 becomes the one whose last bit is 1. It stays on the same side of every
    number and every tie of a narrower format, so that rounding it a second time gives the right result.
    """
    import numpy as np

    below = np.where(np.abs(nearest) > np.abs(numbers), np.nextafter(nearest, 0.0), nearest)
    inexact = (nearest != numbers) & ~np.isnan(nearest)
    odd: npt.NDArray[np.float64] = (below.view(np.uint64) | inexact.astype(np.uint64)).view(np.float64)
    return odd


def _odd_integers(numbers: AnyArray) -> npt.NDArray[np.float64]:
    """Return 64-bit integers rounded to odd, to multiples of 2**11 where 53 bits are too few."""
    import numpy as np

    unit = numbers.dtype.type(1 << 11)
    rest = numbers & (unit - numbers.dtype.type(1))
    odd = np.where(rest != 0, (numbers - rest) | unit, numbers)
    exact = (numbers < 1 << 53) & (numbers > -(1 << 53) if numbers.dtype.kind == "i" else True)
    return np.where(exact, numbers, odd).astype(np.float64)


def _exact_integers(numbers: AnyArray) -> AnyArray:
    """Return whole numbers as Python's integers; infinities stay as they are."""
    import numpy as np

    exact = np.empty(numbers.size, object)
    exact[:] = [number if number in (inf, -inf) else int(number) for number in numbers.flat]
    return exact.reshape(numbers.shape)


def _float(name: str, bits: int, exponent: int, mantissa: int, dtype: str, **more: Any) -> Format:
    more = {"bias": 2 ** (exponent - 1) - 1, "has_inf": True, "has_nan": True} | more
    return Format(name, bits, "float", dtype, exponent_bits=exponent, mantissa_bits=mantissa, **more)


f64 = _float("f64", 64, 11, 52, "float64")
f32 = _float("f32", 32, 8, 23, "float32")
tf32 = _float("tf32", 32, 8, 10, "float32", ignored_low_bits=13)
f16 = _float("f16", 16, 5, 10, "float16")
bf16 = _float("bf16", 16, 8, 7, "bfloat16")
e5m2 = _float("e5m2", 8, 5, 2, "float8_e5m2")
e4m3 = _float("e4m3", 8, 4, 3, "float8_e4m3fn", has_inf=False)
e3m2 = _float("e3m2", 6, 3, 2, "float6_e3m2fn", has_inf=False, has_nan=False)
e2m3 = _float("e2m3", 6, 2, 3, "float6_e2m3fn", has_inf=False, has_nan=False)
e2m1 = _float("e2m1", 4, 2, 1, "float4_e2m1fn", has_inf=False, has_nan=False)
ue8m0 = _float("ue8m0", 8, 8, 0, "float8_e8m0fnu", signed=False, has_inf=False)
ue4m3 = _float("ue4m3", 8, 4, 3, "float8_e4m3fn", signed=False, has_inf=False)  # the top bit is ignored
s32 = Format("s32", 32, "int", "int32")
s8 = Format("s8", 8, "int", "int8")
u8 = Format("u8", 8, "int", "uint8", signed=False)
s4 = Format("s4", 4, "int", "int4")
u4 = Format("u4", 4, "int", "uint4", signed=False)
b1 = Format("b1", 1, "bits", "bool", signed=False)

_ALL = (f16, bf16, tf32, e4m3, e5m2, e3m2, e2m3, e2m1, ue8m0, ue4m3, f32, f64, s8, u8, s4, u4, b1, s32)
FORMATS: dict[str, Format] = Named("format", {fmt.name: fmt for fmt in _ALL})


#: Names of formats in other languages and libraries, in lower case.
SPELLINGS: dict[str, str] = {
    name: format
    for format, names in {
        "f16": "fp16, half, float16, half_t, __half, f16x2",
        "bf16": "bfloat16, bfloat, bfloat16_t, nv_bfloat16, __nv_bfloat16, bf16x2",
        "tf32": "tfloat32, tensorfloat32, tfloat32_t",
        "f32": "fp32, float, float32",
        "f64": "fp64, double, float64",
        "e4m3": "e4m3fn, fp8e4m3, fp8_e4m3, e4m3x2, float_e4m3_t, __nv_fp8_e4m3, float8_e4m3",
        "e5m2": "fp8e5m2, fp8_e5m2, e5m2x2, float_e5m2_t, __nv_fp8_e5m2",
        "e3m2": "fp6e3m2, fp6_e3m2, float_e3m2_t",
        "e2m3": "fp6e2m3, fp6_e2m3, float_e2m3_t",
        "e2m1": "fp4, fp4e2m1, fp4_e2m1, float_e2m1_t",
        "s8": "int8, i8, int8_t",
        "u8": "uint8, uint8_t",
        "s4": "int4, i4",
        "u4": "uint4",
        "s32": "int32, i32, int32_t",
    }.items()
    for name in names.split(", ")
}
#: Names under which people mean one of several formats.
AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "fp8": ("e4m3", "e5m2"),
    "float8": ("e4m3", "e5m2"),
    "fp6": ("e3m2", "e2m3"),
    "float6": ("e3m2", "e2m3"),
}


@short_traceback
def format_of(what: str | Format | npt.DTypeLike) -> Format:
    """Return the format of a name, such as bf16 or half, or of a dtype of NumPy or torch: float16 is f16.

    >>> format_of("bf16").mantissa_bits, format_of("int4").name, format_of("half").name
    (7, 's4', 'f16')
    """
    if isinstance(what, Format):
        return what
    if type(what).__module__ == "torch":  # torch.float16
        what = str(what).removeprefix("torch.")
    if isinstance(what, str) and what.lower() in FORMATS:
        return FORMATS[what.lower()]
    own = [fmt for fmt in FORMATS.values() if fmt not in (tf32, ue4m3)]  # these borrow another's dtype
    if isinstance(what, str):
        matching = [fmt for fmt in own if fmt.dtype_name == what]
        if not matching and what.lower() in SPELLINGS:
            return FORMATS[SPELLINGS[what.lower()]]
    else:
        import numpy as np

        try:
            dtype = None if what is None else np.dtype(what)  # NumPy takes None for float64
        except TypeError:
            dtype = None
        matching = [fmt for fmt in own if fmt.dtype == dtype and dtype is not None]
    if not matching:
        if isinstance(what, str) and what.lower() in AMBIGUOUS:
            raise LanewiseError(f"{what!r} may mean {' or '.join(AMBIGUOUS[what.lower()])}; name one of them")
        raise LanewiseError(f"no format {what!r}{_hint(what)}; the formats are {', '.join(FORMATS)}")
    return matching[0]


def _hint(what: object) -> str:
    """What an unknown name may have been meant for, as a part of a message."""
    if not isinstance(what, str):
        return ""
    near = nearest(what, [*FORMATS, *SPELLINGS], 0.75)
    return f"; did you mean {near}?" if near else ""
