"""The table of matrix instructions: a row a family of forms, its targets and its first PTX version.

Held against ptxas 13.0 (PTX ISA 9.0) form by form and arch by arch in tests/isa/. `forms()` expands it.
Rows that ptxas accepts but no document mentions are kept, so that they can be refused by name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from lanewise.isa.archs import targets
from lanewise.isa.form import Form

Types = tuple[tuple[str, ...], ...]

F8 = ("e4m3", "e5m2")
F6F4 = ("e3m2", "e2m3", "e2m1")
I8 = ("s8", "u8")
I4 = ("s4", "u4")
MX_PAIRS = tuple(product(F8 + F6F4, repeat=2))
NARROW_PAIRS = tuple(pair for pair in MX_PAIRS if not set(pair) <= set(F8))
ANY_LAYOUT = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
ROW_COL = (("row", "col"),)
ROUNDINGS = ("", "rn", "rz", "rm", "rp")
EITHER = (False, True)
GENERIC_SHARED = ("", "shared", "shared::cta")
ANY_SPACE = ("", "global", "shared", "shared::cta")
WMMA_16 = ("m16n16k16", "m8n32k16", "m32n8k16")
#: wgmma's N: every multiple of 8 for floats; integers and b1 skip the odd multiples above 32.
FLOAT_N = tuple(range(8, 257, 8))
INTEGER_N = (8, 16, 24, *range(32, 257, 16))


@dataclass(frozen=True)
class Legality:
    """Where a form is legal, since which PTX version, until which, and whether it is documented."""

    archs: tuple[str, ...]
    since: str
    until: str | None = None
    documented: bool = True


@dataclass(frozen=True)
class Row:
    """Forms that share their targets and their first PTX version: the product of the choices given."""

    family: str
    shapes: tuple[str, ...]
    types: Types
    targets: str
    since: str
    layouts: tuple[tuple[str, ...], ...] = ((),)
    satfinite: tuple[bool, ...] = (False,)
    kind: str = ""
    scale: tuple[tuple[int, bool, str], ...] = ((0, False, ""),)
    roundings: tuple[str, ...] = ("",)
    bitop: str = ""
    matrix: str = ""
    nums: tuple[int, ...] = (0,)
    trans: tuple[bool, ...] = (False,)
    spaces: tuple[str, ...] = ("",)
    strides: tuple[bool, ...] = (False,)
    a_sources: tuple[str, ...] = ("",)
    until: str | None = None
    documented: bool = True

    def forms(self) -> Iterator[tuple[Form, Legality]]:
        """Every form of the row, with where it is legal."""
        legality = Legality(targets(self.targets), self.since, self.until, self.documented)
        for shape, layouts, types, (vector, written, scale_type) in product(
            self.shapes, self.layouts, self.types, self.scale
        ):
            form = Form(
                self.family, shape, types, layouts, self.matrix, kind=self.kind, bitop=self.bitop,
                scale_vec=vector, scale_vec_written=written, scale_type=scale_type,
            )  # fmt: skip
            yield from self._choices(form, legality)

    def has(self, form: Form) -> bool:
        """Whether a form of the row's family is one of the row's."""
        return (
            form.shape_text in self.shapes
            and form.types in self.types
            and form.layouts in self.layouts
            and (form.scale_vec, form.scale_vec_written, form.scale_type) in self.scale
            and (form.matrix, form.kind, form.bitop) == (self.matrix, self.kind, self.bitop)
            and form.satfinite in self.satfinite
            and form.rounding in self.roundings
            and form.num in self.nums
            and form.trans in self.trans
            and form.space in self.spaces
            and form.stride in self.strides
            and form.a_source in self.a_sources
        )

    def legality(self, form: Form) -> Legality:
        """Where a form of the row is legal."""
        legality = Legality(targets(self.targets), self.since, self.until, self.documented)
        return _since_space(legality, form.space)

    def _choices(self, form: Form, legality: Legality) -> Iterator[tuple[Form, Legality]]:
        """A form with every choice of the modifiers and operands that are independent of its types."""
        for saturate, rounding, num, trans, (space, stride), a_source in product(
            self.satfinite,
            self.roundings,
            self.nums,
            self.trans,
            product(self.spaces, self.strides),
            self.a_sources,
        ):
            chosen = replace(
                form, satfinite=saturate, rounding=rounding, num=num, trans=trans, space=space, stride=stride,
                a_source=a_source,
            )  # fmt: skip
            yield chosen, _since_space(legality, space)


def _since_space(legality: Legality, space: str) -> Legality:
    """`.shared::cta` can be spelt since PTX 7.8, whatever it is attached to."""
    if space == "shared::cta" and version(legality.since) < (7, 8):
        return replace(legality, since="7.8")
    return legality


def version(text: str) -> tuple[int, int]:
    """A PTX version as numbers, to be compared."""
    major, minor = text.split(".")
    return int(major), int(minor)


def _each(names: tuple[str, ...], *results: str) -> Types:
    """A and B of the same type, for every type named and every `D/C` given."""
    return tuple((d, name, name, c) for name in names for d, c in (result.split("/") for result in results))


def _pairs(pairs: Iterable[tuple[str, ...]], *results: str) -> Types:
    """A and B from the pairs given, for every `D/C`."""
    return tuple((d, *pair, c) for pair in pairs for d, c in (result.split("/") for result in results))


def _mixed(names: tuple[str, ...], *results: str) -> Types:
    """A and B of any two of the types named, for every `D/C`."""
    return _pairs(product(names, repeat=2), *results)


def _dense() -> Iterator[Row]:
    def row(shapes: str, types: Types, where: str, since: str, **choices: Any) -> Row:
        return replace(Row("mma", tuple(shapes.split()), types, where, since, ROW_COL), **choices)

    yield row("m8n8k4", _each(("f16",), "f16/f16", "f32/f16", "f32/f32"), "sm_70+", "6.4", layouts=ANY_LAYOUT)
    yield row("m8n8k4", _each(("f64",), "f64/f64"), "sm_80+", "7.0", roundings=ROUNDINGS)
    yield row("m16n8k4 m16n8k8 m16n8k16", _each(("f64",), "f64/f64"), "sm_90+", "7.8", roundings=ROUNDINGS)
    yield row("m16n8k8", _each(("f16",), "f16/f16", "f32/f32"), "sm_75+", "6.5")
    yield row("m16n8k16", _each(("f16",), "f16/f16", "f32/f32"), "sm_80+", "7.0")
    yield row("m16n8k8 m16n8k16", _each(("bf16",), "f32/f32"), "sm_80+", "7.0")
    yield row("m16n8k4 m16n8k8", _each(("tf32",), "f32/f32"), "sm_80+", "7.0")
    yield row("m8n8k16", _mixed(I8, "s32/s32"), "sm_75+", "6.5", satfinite=EITHER)
    yield row("m8n8k32", _mixed(I4, "s32/s32"), "sm_75+", "6.5", satfinite=EITHER)
    yield row("m16n8k16 m16n8k32", _mixed(I8, "s32/s32"), "sm_80+", "7.0", satfinite=EITHER)
    yield row("m16n8k32 m16n8k64", _mixed(I4, "s32/s32"), "sm_80+", "7.0", satfinite=EITHER)
    yield row("m8n8k128", _each(("b1",), "s32/s32"), "sm_75+", "7.0", bitop="xor")
    yield row("m16n8k128 m16n8k256", _each(("b1",), "s32/s32"), "sm_80+", "7.0", bitop="xor")
    yield row("m8n8k128 m16n8k128 m16n8k256", _each(("b1",), "s32/s32"), "sm_80+", "7.1", bitop="and")
    yield row("m16n8k16", _mixed(F8, "f16/f16", "f32/f32"), "sm_89+", "8.7")
    yield row("m16n8k32", _mixed(F8, "f16/f16"), "sm_89+", "8.7")
    yield row("m16n8k32", _mixed(F8, "f32/f32"), "sm_89+", "8.4")
    yield row("m16n8k32", _mixed(F8, "f16/f16"), "sm_100a+", "8.7", kind="f8f6f4")
    yield row("m16n8k32", _mixed(F8, "f32/f32"), "sm_100a+", "8.6", kind="f8f6f4")
    yield row("m16n8k32", _pairs(NARROW_PAIRS, "f16/f16", "f32/f32"), "sm_120a+", "8.7", kind="f8f6f4")
    yield row(
        "m16n8k16", _mixed(F8, "f16/f16", "f32/f32"), "sm_100a+", "8.7", kind="f8f6f4", documented=False
    )
    yield from _block_scaled("mma", "m16n8k32", "m16n8k64", "sm_120a+")


def _block_scaled(family: str, wide: str, narrow: str, narrow_targets: str) -> Iterator[Row]:
    """mxf8f6f4 on any pair of 8-, 6- and 4-bit floats; mxf4 and mxf4nvf4 on e2m1 at twice the K."""
    mx1 = ((1, False, "ue8m0"), (1, True, "ue8m0"))
    mx2 = ((2, False, "ue8m0"), (2, True, "ue8m0"))
    nv = ((2, True, "ue8m0"), (4, True, "ue4m3"))
    mixed, e2m1 = _pairs(MX_PAIRS, "f32/f32"), _each(("e2m1",), "f32/f32")
    yield Row(family, (wide,), mixed, "sm_120a+", "8.7", ROW_COL, kind="mxf8f6f4", scale=mx1)
    yield Row(family, (narrow,), e2m1, narrow_targets, "8.7", ROW_COL, kind="mxf4", scale=mx2)
    yield Row(family, (narrow,), e2m1, narrow_targets, "8.7", ROW_COL, kind="mxf4nvf4", scale=nv)


def _scale_forgotten() -> Iterator[Row]:
    """Kinds that need scales, without them: ptxas takes them with e4m3 and e5m2, as if they were f8f6f4."""

    def row(family: str, shape: str, kind: str, result: str, where: str, since: str) -> Row:
        types = _mixed(F8, result)
        return Row(family, (shape,), types, where, since, ROW_COL, kind=kind, documented=False)

    sparse, specific = "mma.sp::ordered_metadata", "sm_100a sm_103a sm_110a sm_120a sm_121a"
    for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4"):
        wide = kind == "mxf8f6f4"
        first = "8.7" if kind == "mxf4nvf4" else "8.6"
        yield row("mma", "m16n8k16", kind, "f16/f16", "sm_100a+", "8.7")
        yield row("mma", "m16n8k16", kind, "f32/f32", "sm_100a+", "8.7")
        yield row("mma", "m16n8k32", kind, "f16/f16", "sm_100a+", "8.7")
        yield row("mma", "m16n8k32", kind, "f32/f32", "sm_100a+", first)
        yield row(sparse, "m16n8k64", kind, "f32/f32", "sm_100a+" if wide else specific, first)
        yield row(sparse, "m16n8k64", kind, "f16/f16", "sm_120a+" if wide else "sm_120a sm_121a", "8.7")


def _sparse() -> Iterator[Row]:
    for family, since in (("mma.sp", "7.1"), ("mma.sp::ordered_metadata", "8.5")):

        def row(
            shapes: str, types: Types, where: str, since: str, family: str = family, **choices: Any
        ) -> Row:
            return replace(Row(family, tuple(shapes.split()), types, where, since, ROW_COL), **choices)

        yield row("m16n8k8 m16n8k16", _each(("tf32",), "f32/f32"), "sm_80+", since)
        yield row("m16n8k16 m16n8k32", _each(("f16",), "f16/f16", "f32/f32"), "sm_80+", since)
        yield row("m16n8k16 m16n8k32", _each(("bf16",), "f32/f32"), "sm_80+", since)
        yield row("m16n8k32 m16n8k64", _mixed(I8, "s32/s32"), "sm_80+", since, satfinite=EITHER)
        yield row("m16n8k64 m16n8k128", _mixed(I4, "s32/s32"), "sm_80+", since, satfinite=EITHER)
        yield row("m16n8k64", _mixed(F8, "f32/f32"), "sm_89+", max(since, "8.4", key=version))
        if family == "mma.sp":
            continue
        yield row("m16n8k64", _mixed(F8, "f16/f16"), "sm_120a+", "8.7")
        yield row("m16n8k64", _mixed(F8, "f16/f16"), "sm_120a+", "8.7", kind="f8f6f4")
        yield row("m16n8k64", _mixed(F8, "f32/f32"), "sm_100a+", "8.6", kind="f8f6f4")
        yield row("m16n8k64", _pairs(NARROW_PAIRS, "f16/f16", "f32/f32"), "sm_120a+", "8.7", kind="f8f6f4")
        yield from _block_scaled(family, "m16n8k64", "m16n8k128", "sm_120a sm_121a")


def _wmma_mma() -> Iterator[Row]:
    def row(shapes: tuple[str, ...], types: Types, where: str, since: str, **choices: Any) -> Row:
        return replace(Row("wmma.mma", shapes, types, where, since, ANY_LAYOUT), **choices)

    half = _each(("f16",), "f16/f16", "f16/f32", "f32/f16", "f32/f32")
    yield row(WMMA_16, half, "sm_70+", "6.3")
    yield row(WMMA_16, half, "sm_70+", "6.3", satfinite=(True,), until="6.4")
    yield row(WMMA_16, _each(("bf16",), "f32/f32"), "sm_80+", "7.0")
    yield row(WMMA_16, _each(I8, "s32/s32"), "sm_72+", "6.3", satfinite=EITHER)
    yield row(("m16n16k8",), _each(("tf32",), "f32/f32"), "sm_80+", "7.0")
    yield row(("m8n8k4",), _each(("f64",), "f64/f64"), "sm_80+", "7.0", roundings=ROUNDINGS)
    yield row(("m8n8k32",), _each(I4, "s32/s32"), "sm_75+", "6.3", layouts=ROW_COL, satfinite=EITHER)
    yield row(("m8n8k128",), _each(("b1",), "s32/s32"), "sm_75+", "6.3", layouts=ROW_COL, bitop="xor")
    yield row(("m8n8k128",), _each(("b1",), "s32/s32"), "sm_80+", "7.1", layouts=ROW_COL, bitop="and")
    f64 = _each(("f64",), "f64/f64")
    yield row(("m16n16k16", "m16n16k8"), f64, "sm_80+", "7.0", roundings=ROUNDINGS, documented=False)
    int4, ampere = _each(I4, "s32/s32"), "sm_80 sm_86 sm_87 sm_88 sm_89"
    yield row(WMMA_16, int4, f"sm_75 {ampere}", "6.3", satfinite=EITHER, documented=False)
    yield row(("m16n16k8", "m8n8k4"), int4, ampere, "7.0", satfinite=EITHER, documented=False)


def _wmma_memory() -> Iterator[Row]:
    """What can be loaded and stored follows from what can be multiplied."""

    def row(
        family: str, matrix: str, shapes: tuple[str, ...], types: str, where: str, since: str, **choices: Any
    ) -> Row:
        single = tuple((name,) for name in types.split())
        made = Row(family, shapes, single, where, since, matrix=matrix, spaces=ANY_SPACE, strides=EITHER)
        return replace(made, **{"layouts": (("row",), ("col",)), **choices})

    for matrix, only in (("a", "row"), ("b", "col")):
        yield row("wmma.load", matrix, WMMA_16, "f16", "sm_70+", "6.3")
        yield row("wmma.load", matrix, WMMA_16, "bf16", "sm_80+", "7.0")
        yield row("wmma.load", matrix, WMMA_16, "s8 u8", "sm_72+", "6.3")
        yield row("wmma.load", matrix, ("m16n16k8",), "tf32", "sm_80+", "7.0")
        yield row("wmma.load", matrix, ("m8n8k4",), "f64", "sm_80+", "7.0")
        yield row("wmma.load", matrix, ("m8n8k32",), "s4 u4", "sm_75+", "6.3", layouts=((only,),))
        yield row("wmma.load", matrix, ("m8n8k128",), "b1", "sm_75+", "6.3", layouts=((only,),))
    for family, matrix in (("wmma.load", "c"), ("wmma.store", "d")):
        yield row(family, matrix, WMMA_16, "f16 f32", "sm_70+", "6.3")
        yield row(family, matrix, WMMA_16, "s32", "sm_72+", "6.3")
        yield row(family, matrix, ("m16n16k8",), "f32", "sm_80+", "7.0")
        yield row(family, matrix, ("m8n8k4",), "f64", "sm_80+", "7.0")
        yield row(family, matrix, ("m8n8k32", "m8n8k128"), "s32", "sm_75+", "6.3")
        yield row(family, matrix, ("m8n8k32", "m8n8k128"), "f32", "sm_75+", "6.3", documented=False)


def _matrix_moves() -> Iterator[Row]:
    b16, b8 = (("b16",),), (("b8",),)
    unpacked = (("b8x16", "b6x16_p32"), ("b8x16", "b4x16_p64"))
    where = "sm_100a+"
    spaces = GENERIC_SHARED
    yield Row("ldmatrix", ("m8n8",), b16, "sm_75+", "6.5", nums=(1, 2, 4), trans=EITHER, spaces=spaces)
    yield Row("ldmatrix", ("m16n16",), b8 + unpacked, where, "8.6", nums=(1, 2), trans=(True,), spaces=spaces)
    yield Row("ldmatrix", ("m8n16",), unpacked, where, "8.6", nums=(1, 2, 4), spaces=spaces)
    yield Row("stmatrix", ("m8n8",), b16, "sm_90+", "7.8", nums=(1, 2, 4), trans=EITHER, spaces=spaces)
    yield Row("stmatrix", ("m16n8",), b8, where, "8.6", nums=(1, 2, 4), trans=(True,), spaces=spaces)
    yield Row("movmatrix", ("m8n8",), b16, "sm_75+", "7.8", trans=(True,))


def _wgmma() -> Iterator[Row]:
    sources = ("registers", "descriptor")

    def row(family: str, k: int, widths: tuple[int, ...], types: Types, since: str, **choices: Any) -> Row:
        depth = 2 * k if family == "wgmma.sp" else k
        shapes = tuple(f"m64n{n}k{depth}" for n in widths)
        three = tuple(types_[:3] for types_ in types)
        return replace(Row(family, shapes, three, "sm_90a", since, a_sources=sources), **choices)

    for family, since in (("wgmma", "8.0"), ("wgmma.sp", "8.2")):
        yield row(family, 16, FLOAT_N, _each(("f16",), "f16/f16", "f32/f32"), since)
        yield row(family, 16, FLOAT_N, _each(("bf16",), "f32/f32"), since)
        yield row(family, 8, FLOAT_N, _each(("tf32",), "f32/f32"), since)
        yield row(family, 32, FLOAT_N, _mixed(F8, "f16/f16", "f32/f32"), since)
        yield row(family, 32, INTEGER_N, _each(I8, "s32/s32"), since, satfinite=EITHER)
        mixed = _pairs((("s8", "u8"), ("u8", "s8")), "s32/s32")
        yield row(family, 32, INTEGER_N, mixed, "8.4", satfinite=EITHER)
    yield row("wgmma", 256, INTEGER_N, _each(("b1",), "s32/s32"), "8.0", bitop="and")


_SOURCES = (_dense, _sparse, _scale_forgotten, _wmma_mma, _wmma_memory, _matrix_moves, _wgmma)


@cache
def rows(family: str) -> tuple[Row, ...]:
    """The rows of one family."""
    return tuple(row for source in _SOURCES for row in source() if row.family == family)


@cache
def forms(family: str) -> dict[Form, Legality]:
    """Every form of a family that ptxas accepts, documented or not."""
    return {form: legality for row in rows(family) for form, legality in row.forms()}


def legality_of(form: Form) -> Legality | None:
    """Where a form is legal, None if ptxas does not accept it: as `forms` says, which makes all forms."""
    return next((row.legality(form) for row in reversed(rows(form.family)) if row.has(form)), None)
