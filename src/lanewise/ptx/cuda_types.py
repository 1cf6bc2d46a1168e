"""The types of CUDA C++ that have a fixed layout, as NumPy has them: numbers, half, vectors."""

import re
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np


class CudaType(NamedTuple):
    """A type: what NumPy calls one of its numbers, how many there are, and how it is aligned in bytes."""

    name: str
    dtype: np.dtype
    numbers: int = 1
    alignment: int = 0

    @property
    def size(self) -> int:
        """The bytes of a value."""
        return self.dtype.itemsize * self.numbers


#: Numbers, by every name that the CUDA headers have for them: NumPy's name.
_NUMBERS = {
    "i1": "char, signed char, int8_t",
    "u1": "unsigned char, uint8_t, uchar, u_char",
    "i2": "short, short int, int16_t",
    "u2": "unsigned short, unsigned short int, uint16_t, ushort, char16_t",
    "i4": "int, signed, signed int, int32_t",
    "u4": "unsigned, unsigned int, uint32_t, uint, char32_t",
    "i8": "long, long int, long long, long long int, int64_t, ptrdiff_t, intptr_t, ssize_t",
    "u8": "unsigned long, unsigned long int, unsigned long long, unsigned long long int, uint64_t, size_t, "
    "uintptr_t, ulong, cudaTextureObject_t, cudaSurfaceObject_t",
    "f4": "float",
    "f8": "double",
    "?": "bool",
    "f2": "half, __half",
}
#: Small floats that ml_dtypes has.
_SMALL = {
    "bfloat16": "nv_bfloat16, __nv_bfloat16, bfloat16, bfloat16_t",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}
#: The elements of vector types, which have a number of them behind the name: float4.
_VECTORS = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "long": "i8",
    "ulong": "u8", "longlong": "i8", "ulonglong": "u8", "float": "f4", "double": "f8",
}  # fmt: skip
#: The alignment of a vector beyond which it is not aligned to its whole size.
_MOST_ALIGNED = 16
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|struct|typename|__restrict__|__grid_constant__)\b|\b(?:cuda::)?std::|&"
)


class _Layout(NamedTuple):
    """What a type is made of: NumPy's or ml_dtypes's name of its numbers, how many, and the alignment."""

    element: str
    numbers: int
    alignment: int


@cache
def _known() -> dict[str, _Layout]:
    """Return the layouts of all types by name."""
    layouts: dict[str, _Layout] = {}

    def add(names: str, element: str, size: int, numbers: int = 1, alignment: int = 0) -> None:
        for name in names.split(", "):
            layouts[name] = _Layout(element, numbers, alignment or size)

    for code, names in _NUMBERS.items():
        dtype = np.dtype(code)
        add(names, dtype.name, dtype.itemsize)
    for kind, names in _SMALL.items():
        add(names, kind, 2 if kind == "bfloat16" else 1)
    for name, code in _VECTORS.items():
        dtype = np.dtype(code)
        for numbers in (1, 2, 3, 4):
            whole = dtype.itemsize * (numbers if numbers != 3 else 1)
            add(f"{name}{numbers}", dtype.name, dtype.itemsize, numbers, min(whole, _MOST_ALIGNED))
    add("half2, __half2", "float16", 2, 2, 4)
    add("nv_bfloat162, __nv_bfloat162, bfloat162", "bfloat16", 2, 2, 4)
    add("cuFloatComplex, cuComplex", "float32", 4, 2, 8)
    add("cuDoubleComplex", "float64", 8, 2, 16)
    add("dim3", "uint32", 4, 3, 4)
    return layouts


def _dtype(element: str) -> np.dtype:
    """Return the NumPy type of a name; ml_dtypes is loaded for the types that only it has."""
    if element not in _SMALL:
        return np.dtype(element)
    import ml_dtypes

    dtype: np.dtype = np.dtype(getattr(ml_dtypes, element))
    return dtype


@lru_cache(maxsize=1024)
def without_qualifiers(text: str) -> str:
    """Return a type without const, references and the like.

    >>> without_qualifiers("const std::int8_t * __restrict__")
    'int8_t *'
    """
    return " ".join(_QUALIFIERS.sub(" ", text).split())


def elements_of(text: str) -> tuple[str, int] | None:
    """Return NumPy's or ml_dtypes's name of the numbers of a type, and how many it has; None if unknown.

    >>> elements_of("__half2 const"), elements_of("__nv_bfloat16"), elements_of("Params")
    (('float16', 2), ('bfloat16', 1), None)
    """
    layout = _known().get(without_qualifiers(text))
    return None if layout is None else (layout.element, layout.numbers)


def cuda_type(text: str) -> CudaType | None:
    """Return the type that C++ writes so; None for structs and templates, whose layout is not known here.

    >>> cuda_type("const float4").numbers, cuda_type("unsigned int").dtype.name, cuda_type("Params")
    (4, 'uint32', None)
    >>> cuda_type("float const*").dtype.name
    'uint64'
    """
    plain = without_qualifiers(text)
    if plain.endswith("*") or "(*" in plain:
        return CudaType(plain, np.dtype("u8"), 1, 8)
    layout = _known().get(plain)
    return (
        None if layout is None else CudaType(plain, _dtype(layout.element), layout.numbers, layout.alignment)
    )
