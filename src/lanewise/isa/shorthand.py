"""Names of instructions as people say them: `m16n8k16 bf16`, `wmma 16x16x16 half`, `HMMA.16816.F32`.

PTX text, which has .sync and .aligned, is read strictly by `syntax.py`. A name has neither: its words narrow
down the forms of the catalogue. If one form is left, it is meant; else those that are left are told, the
usual ones first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lanewise.errors import IllegalInstruction
from lanewise.formats import SPELLINGS
from lanewise.isa.form import FAMILIES, Form
from lanewise.isa.syntax import KINDS, TYPES
from lanewise.isa.table import Legality, forms

#: Families by the words that people use, machine instructions (SASS) among them, and what those multiply.
_FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "mma": ("mma", ()), "wmma": ("wmma.mma", ()), "wgmma": ("wgmma", ()), "ldmatrix": ("ldmatrix", ()),
    "stmatrix": ("stmatrix", ()), "movmatrix": ("movmatrix", ()), "ldsm": ("ldmatrix", ()),
    "stsm": ("stmatrix", ()), "movm": ("movmatrix", ()), "dmma": ("mma", ("f64",)), "bmma": ("mma", ("b1",)),
    "hmma": ("mma", ("f16", "bf16", "tf32")), "imma": ("mma", ("s8", "u8", "s4", "u4")),
    "qmma": ("mma", ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")), "omma": ("mma", ("e2m1",)),
    "hgmma": ("wgmma", ("f16", "bf16", "tf32")), "igmma": ("wgmma", ("s8", "u8")),
    "bgmma": ("wgmma", ("b1",)), "qgmma": ("wgmma", ("e4m3", "e5m2")),
}  # fmt: skip
#: Words of the machine's instructions and of C++ that say nothing more about the form.
_IGNORED = ("sync", "mma_async", "async", "warp", "load", "mma_sync")
_SHAPE = re.compile(r"m(\d{1,4})n(\d{1,4})(?:k(\d{1,4}))?|(\d{1,4})x(\d{1,4})(?:x(\d{1,4}))?")
#: HMMA.16816 is 16 × 8 × 16.
_PACKED_SHAPE = re.compile(r"(8|16)(8)(4|8|16|32|64|128|256)")
#: Signs of a statement with operands.
_STATEMENT = re.compile(r"[%{}\[\];@]|\b(?:sync|aligned)\b")
#: The most forms that a message lists.
_MOST_LISTED = 4
#: Types that D may have.
_RESULTS = ("f32", "f16", "s32", "f64")
#: How common families are, the most common first.
_USUAL = ("mma", "wgmma", "wmma.mma", "ldmatrix", "stmatrix", "movmatrix")


class _Asked(NamedTuple):
    """What a name says: of each, nothing where it says nothing."""

    family: str
    a_types: tuple[str, ...]
    shape: str
    types: tuple[str, ...]
    flags: frozenset[str]
    layouts: tuple[str, ...]


def is_shorthand(text: object) -> bool:
    """Return whether a text is a name, and not PTX with .sync and .aligned or with operands.

    >>> is_shorthand("m16n8k16 bf16"), is_shorthand("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    (True, False)
    """
    return isinstance(text, str) and len(text) < 100 and _STATEMENT.search(text) is None


def meant(text: str, arch: str | None = None) -> tuple[Form, Legality] | None:
    """Return the form that a name means; None if it is not understood, an error if it may mean several.

    >>> meant("HMMA.16816.F32.BF16")[0].text
    'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    """
    asked = _read(text)
    if asked is None:
        return None
    found = _usual(_fitting(asked, arch), asked)
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    shown = [f"    {form.text}" for form, _ in found[:_MOST_LISTED]]
    more = [f"    and {len(found) - _MOST_LISTED} more"] if len(found) > _MOST_LISTED else []
    raise IllegalInstruction("\n".join([f"{text!r} may mean one of", *shown, *more]))


def _read(text: str) -> _Asked | None:
    """Return what the words of a name say; None if a word is not understood or too little is said."""
    family, shape = "", ""
    a_types: tuple[str, ...] = ()
    types: list[str] = []
    layouts: list[str] = []
    flags: set[str] = set()
    for word in re.split(r"[\s.,]+", text.lower().replace("×", "x").strip(" .")):
        plain = word.removeprefix("nvcuda::").removeprefix("wmma::")
        spelt = SPELLINGS.get(plain, plain)
        sizes = _SHAPE.fullmatch(plain)
        packed = _PACKED_SHAPE.fullmatch(plain)
        if plain in _FAMILIES and not family:
            family, a_types = _FAMILIES[plain]
        elif sizes is not None and not shape:
            shape = "".join(
                f"{letter}{size}" for letter, size in zip("mnk", filter(None, sizes.groups()), strict=False)
            )
        elif packed is not None and not shape and a_types:
            shape = f"m{packed[1]}n{packed[2]}k{packed[3]}"
        elif spelt in TYPES:
            types.append(spelt)
        elif plain in ("row", "col"):
            layouts.append(plain)
        elif plain in ("sp", "sparse"):
            flags.add("sparse")
        elif plain in ("x1", "x2", "x4", "trans", "satfinite", *KINDS):
            flags.add(plain)
        elif plain not in _IGNORED:
            return None
    moves = family in ("ldmatrix", "stmatrix", "movmatrix")
    if not moves and (not (shape or a_types) or not (shape or types or flags)):
        return None
    return _Asked(family, a_types, shape, tuple(types), frozenset(flags), tuple(layouts))


def _fitting(asked: _Asked, arch: str | None) -> list[tuple[Form, Legality]]:
    """Return the documented forms that are as a name says; of those that differ in operands only, one."""
    found: dict[str, tuple[Form, Legality]] = {}
    for family in FAMILIES:
        if asked.family and not (family == asked.family or family.startswith(f"{asked.family}.sp")):
            continue
        if not asked.family and family not in _USUAL and not family.startswith(("mma.sp", "wgmma.sp")):
            continue
        for form, legality in forms(family).items():
            if not legality.documented or legality.until is not None or form.a_source == "registers":
                continue
            if (arch is None or arch in legality.archs) and _fits(form, asked):
                found.setdefault(form.text, (form, legality))
    return list(found.values())


def _fits(form: Form, asked: _Asked) -> bool:
    """Return whether a form is as a name says."""
    if asked.shape and form.shape_text != asked.shape:
        return False
    flags = {"sparse": form.sparse, "trans": form.trans, "satfinite": form.satfinite}
    for flag in asked.flags:
        if not flags.get(flag, flag in (f"x{form.num}", form.kind)):
            return False
    if asked.layouts and form.layouts[: len(asked.layouts)] != asked.layouts:
        return False
    products = len(form.types) >= 3
    if asked.a_types and (not products or form.types[1] not in asked.a_types):
        return False
    return _has_types(form.types, asked) if products else set(asked.types) <= set(form.types)


def _has_types(types: tuple[str, ...], asked: _Asked) -> bool:
    """Return whether D, A, B and C have the types of a name.

    One type is that of A; but the machine's instructions begin with D, and HMMA.16816.F32 has A of f16. Two
    are those of D and A, or of A and B where the first is none that D may have: IMMA.16832.S8.U8.
    """
    given = asked.types
    if len(given) == 1 and asked.a_types and given[0] in _RESULTS:
        return types[:2] == (given[0], asked.a_types[0])
    if len(given) == 1:
        return types[1] == given[0]
    start = 1 if given and given[0] not in _RESULTS else 0
    return types[start : start + len(given)] == given


def _usual(found: list[tuple[Form, Legality]], asked: _Asked) -> list[tuple[Form, Legality]]:
    """Return the forms without what the name does not say, where there are such; the usual ones first."""
    preferences: tuple[Callable[[Form], bool], ...] = (
        lambda form: form.sparse == ("sparse" in asked.flags),
        lambda form: "ordered" not in form.family,
        lambda form: not form.satfinite or "satfinite" in asked.flags,
        lambda form: form.trans == ("trans" in asked.flags),
        lambda form: not form.rounding,
        lambda form: not form.kind or form.kind in asked.flags,
        lambda form: not form.scale_vec_written,
        lambda form: form.layouts in ((), ("row", "col")),
        lambda form: form.shape_text == "m8n8",
        lambda form: form.space == "shared",
        lambda form: len(form.types) < 4 or form.types[0] == form.types[3],
        lambda form: len(form.types) < 3 or form.types[1] == form.types[2],
    )
    for prefers in preferences:
        found = [each for each in found if prefers(each[0])] or found
    return sorted(found, key=_rarity)


def _rarity(found: tuple[Form, Legality]) -> tuple[int, bool, Iterable[int]]:
    """Return a number that is less for forms that are used more."""
    form, _ = found
    family = _USUAL.index(form.base_family) if form.base_family in _USUAL else len(_USUAL)
    return family, form.types[0] == "f16", tuple(-size for size in form.shape)
