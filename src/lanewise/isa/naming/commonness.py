"""How common the forms of the catalogue are: which one is meant where a name leaves something open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from lanewise.isa.form import Form
from lanewise.isa.table import Legality

Candidate = tuple[Form, Legality]

#: Families, the most common first.
USUAL_FAMILIES = ("mma", "wgmma", "wmma.mma", "ldmatrix", "stmatrix", "movmatrix")
#: Types of A, the most common first.
_TYPES = (
    "f16", "bf16", "e4m3", "s8", "tf32", "f64", "e5m2", "u8", "e2m1", "s4", "u4", "e3m2", "e2m3", "b1", "b16",
)  # fmt: skip


def usual(candidates: list[Candidate], flags: Iterable[str]) -> list[Candidate]:
    """Return the forms without what was not asked for, where there are such, the most common first.

    `flags` are the words that were given: "sparse", "trans", "satfinite" or a kind. Of forms of several
    types, the most common one of each type comes first, so that a short list shows all types.
    """
    asked = set(flags)
    preferences: tuple[Callable[[Form], bool], ...] = (
        lambda form: form.sparse == ("sparse" in asked),
        lambda form: "ordered" not in form.family,
        lambda form: not form.satfinite or "satfinite" in asked,
        lambda form: form.trans == ("trans" in asked),
        lambda form: not form.rounding,
        lambda form: not form.kind or form.kind in asked,
        lambda form: not form.scale_vec_written,
        lambda form: form.layouts in ((), ("row", "col")),
        lambda form: form.shape_text == "m8n8",
        lambda form: form.space == "shared",
        lambda form: len(form.types) < 4 or form.types[0] == form.types[3],
        lambda form: len(form.types) < 3 or form.types[1] == form.types[2],
    )
    for prefers in preferences:
        candidates = [each for each in candidates if prefers(each[0])] or candidates
    seen: Counter[str] = Counter()
    turns = []
    for each in sorted(candidates, key=_rarity):
        kind = _type_of(each[0])
        turns.append((seen[kind], each))
        seen[kind] += 1
    return [each for _, each in sorted(turns, key=lambda turn: turn[0])]


def _type_of(form: Form) -> str:
    """Return the type by which forms are told apart: that of A, or the only one."""
    return form.types[1] if len(form.types) >= 3 else form.types[0]


def _rarity(candidate: Candidate) -> tuple[object, ...]:
    """Return a key that is less for forms that are used more."""
    form, _ = candidate
    family = USUAL_FAMILIES.index(form.base_family) if form.base_family in USUAL_FAMILIES else 9
    kind = _TYPES.index(_type_of(form)) if _type_of(form) in _TYPES else len(_TYPES)
    volta = form.base_family == "mma" and form.shape_text == "m8n8k4" and form.types[0] != "f64"
    other_wmma = form.base_family == "wmma.mma" and form.shape[:2] != (16, 16)
    rare_shape = volta or other_wmma
    return family, kind, rare_shape, form.types[0] == "f16", -form.num, tuple(-size for size in form.shape)
