"""Types of CUDA C++: those of fixed layout as NumPy has them, and what a source declares of its variables.

The PTX made of a source no longer tells the types of its variables and parameters. This reads declarations as
people write them, not all of C++: what it does not understand, it does not know.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from lanewise.layout.text import at_commas

#: Brackets of C++ in which commas separate no declarations.
_BRACKETS = "<>()[]{}"


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


# what a source declares -------------------------------------------------------------------------------------

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ALIGNMENT = re.compile(
    r"\b(?:__align__|alignas|__attribute__|__launch_bounds__)\s*\((?:[^()]|\([^()]*\))*\)"
)
_SPACE = re.compile(r"\b(?:__device__|__constant__|__managed__)\b")
_SHARED = re.compile(r"\b__shared__\b")
_WORDS = re.compile(
    r"\b(?:__device__|__constant__|__managed__|__shared__|static|extern|inline|constexpr|constinit|thread_local"
    r"|volatile)\b"
)
#: Names that may stand for one another before a type or a number comes.
_MOST_ALIASES = 8
_DECLARATOR = re.compile(r"(.*?[\s*&])?([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$", re.DOTALL)


class Declared(NamedTuple):
    """A declaration: the type as it is written, and the sizes of an array, as they are written."""

    type: str
    sizes: tuple[str, ...]


class DeclaredParameter(NamedTuple):
    """A parameter of a kernel: the type as it is written, and the name if it has one."""

    type: str
    name: str


def _plain(source: str) -> str:
    """Return source without comments and alignments."""
    return _ALIGNMENT.sub(" ", _COMMENT.sub(" ", source))


def declared_variable(source: str, name: str) -> Declared | None:
    """Return how a `__device__`, `__constant__` or `__managed__` variable is declared, if that is seen.

    >>> declared_variable("static __constant__ float weights[4][N]; // of the filter", "weights")
    Declared(type='float', sizes=('4', 'N'))
    >>> declared_variable("__device__ int a = 3, *b;", "b")
    Declared(type='int*', sizes=())
    """
    return next(_declarations(source, name, _SPACE), None)


def declared_shared(source: str, name: str) -> Iterator[Declared]:
    """Yield how `__shared__` variables of a name are declared, in all functions that have one.

    >>> list(declared_shared("{ __shared__ alignas(128) float a[4], tile[2][N + 1]; }", "tile"))
    [Declared(type='float', sizes=('2', 'N + 1'))]
    """
    return _declarations(source, name, _SHARED)


def _declarations(source: str, name: str, space: re.Pattern[str]) -> Iterator[Declared]:
    """Yield the declarations of a name that have a word for a state space."""
    text = _plain(source)
    pattern = rf"\b{re.escape(name)}\b\s*((?:\[[^\]]*\]\s*)*)(?=[=;,{{])"
    for match in re.finditer(pattern, text):
        start = max(text.rfind(mark, 0, match.start()) for mark in ";}#>") + 1
        before = text[start : match.start()]
        opened = before.rfind("{")
        if opened >= 0 and "=" not in before[:opened]:  # the beginning of a namespace or function
            before = before[opened + 1 :]
        if not space.search(before):
            continue
        sizes = tuple(size.strip() for size in re.findall(r"\[([^\]]*)\]", match.group(1)))
        kind = _type_before(before)
        if kind:
            yield Declared(kind, sizes)


def aliased_type(source: str, name: str) -> str:
    """Return the type that a name stands for in a source, by typedef, using or #define; else the name itself.

    >>> aliased_type("typedef float real;\\nusing number = real;", "number")
    'float'
    """
    text = _plain(source)
    for _ in range(_MOST_ALIASES):
        word = re.escape(name)
        match = (
            re.search(rf"\btypedef\s+([\w\s:]+?)\s+{word}\s*;", text)
            or re.search(rf"\busing\s+{word}\s*=\s*([\w\s:]+?)\s*;", text)
            or re.search(rf"(?m)^[ \t]*#[ \t]*define[ \t]+{word}[ \t]+([\w:][\w: \t]*?)[ \t]*$", text)
        )
        if match is None or match.group(1) == name:
            break
        name = match.group(1)
    return name


def named_number(source: str, name: str) -> int | None:
    """Return the integer that a name stands for in a source, by #define or as a constant; None if unknown.

    >>> named_number("#define N 0x20\\nconstexpr int M = 3;", "N"), named_number("const int M = 3;", "M")
    (32, 3)
    """
    text = _plain(source)
    for _ in range(_MOST_ALIASES):
        if re.fullmatch(r"(0[xX][0-9a-fA-F]+|[1-9]\d*|0)[uUlL]*", name):
            return int(name.rstrip("uUlL"), 0)
        word = re.escape(name)
        match = re.search(
            rf"(?m)^[ \t]*#[ \t]*define[ \t]+{word}[ \t]+\(?(\w+)\)?[ \t]*$", text
        ) or re.search(rf"\b(?:const|constexpr)\b[\w\s]*\b{word}\s*=\s*(\w+)\s*;", text)
        if match is None or match.group(1) == name:
            return None
        name = match.group(1)
    return None


def computed_number(source: str, text: str) -> int | None:
    """Return the integer that an expression of a source has: numbers and names, added and multiplied.

    >>> computed_number("constexpr int BM = 64, PAD = 8;\\n#define BK 32", "BK * 2 + 8")
    72
    """
    total = 0
    for term in text.split("+"):
        product = 1
        for factor in term.split("*"):
            number = named_number(source, factor.strip(" ()\t\n"))
            if number is None:
                return None
            product *= number
        total += product
    return total if text.count("(") == text.count(")") == 0 or "+" not in text else None


def _type_before(before: str) -> str:
    """Return the type in what stands before a name; other names may stand between, after commas."""
    own = re.search(r"([\s*&]*)$", before)
    stars = "*" * (own.group(1).count("*") if own else 0)
    plain = _WORDS.sub(" ", before).strip()
    first = at_commas(plain, _BRACKETS)[0]
    if first != plain:  # `int a = 3, *`: the type is what stands before the first name
        match = _DECLARATOR.fullmatch(first.split("=")[0].strip())
        plain = (match.group(1) or "") if match else ""
    return " ".join(plain.rstrip("*& \t\n").split()) + stars


def declared_parameters(source: str, kernel: str) -> list[DeclaredParameter] | None:
    """Return the parameters of a `__global__` function; None if it is not seen, or seen more than once.

    >>> parameters = declared_parameters('__global__ void k(const float4 *x, half2 s, int n = 3) {}', "k")
    >>> [(parameter.type, parameter.name) for parameter in parameters]
    [('const float4*', 'x'), ('half2', 's'), ('int', 'n')]
    """
    text = _plain(source)
    signatures = {
        tuple(parameter.type for parameter in parameters): parameters  # declarations may name them otherwise
        for match in re.finditer(
            rf"__global__[^;{{}}()]*\b{re.escape(kernel)}\s*\(([^{{;]*?)\)\s*[{{;]", text
        )
        for parameters in [_parameters(match.group(1).strip())]
    }
    return next(iter(signatures.values())) if len(signatures) == 1 else None


def _parameters(text: str) -> list[DeclaredParameter]:
    """Return the declarations in a list of parameters."""
    return [_parameter(part.split("=")[0].strip()) for part in at_commas(text, _BRACKETS)] if text else []


def _parameter(text: str) -> DeclaredParameter:
    """Return one parameter: its type, and its name if it has one."""
    match = _DECLARATOR.fullmatch(text)
    kind = (match.group(1) or "").strip() if match else text
    if match is None or not kind or kind in ("const", "unsigned", "struct"):
        kind = text  # a parameter without a name
    name = match.group(2) if match is not None and kind != text else ""
    sizes = re.findall(r"\[([^\]]*)\]", match.group(3)) if match else []
    stars = "*" if sizes else ""
    return DeclaredParameter(re.sub(r"\s*\*", "*", " ".join(kind.split())) + stars, name)
