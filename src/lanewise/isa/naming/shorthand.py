"""Names of instructions as people say them: `m16n8k16 bf16`, `wmma 16x16x16 half`, `HMMA.16816.F32`.

PTX text, which has .sync and .aligned, is read strictly by `syntax.py`. A name has neither: its words narrow
down the forms of the catalogue. If one form is left, it is meant; else those that are left are listed, the
usual ones first. Names of CUTLASS are looked up by `atoms/`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lanewise.errors import IllegalInstruction
from lanewise.formats import AMBIGUOUS, SPELLINGS
from lanewise.hints import nearest
from lanewise.isa.archs import describe_targets
from lanewise.isa.form import FAMILIES, Form
from lanewise.isa.syntax import KINDS, TYPES
from lanewise.isa.table import Legality, forms

#: Families by the words that people use, machine instructions (SASS) among them, and what those multiply.
_FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "mma": ("mma", ()), "wmma": ("wmma.mma", ()), "wgmma": ("wgmma", ()), "gmma": ("wgmma", ()),
    "ldmatrix": ("ldmatrix", ()), "stmatrix": ("stmatrix", ()), "movmatrix": ("movmatrix", ()),
    "ldsm": ("ldmatrix", ()), "stsm": ("stmatrix", ()), "movm": ("movmatrix", ()),
    "dmma": ("mma", ("f64",)), "bmma": ("mma", ("b1",)),
    "hmma": ("mma", ("f16", "bf16", "tf32")), "imma": ("mma", ("s8", "u8", "s4", "u4")),
    "qmma": ("mma", ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")), "omma": ("mma", ("e2m1",)),
    "hgmma": ("wgmma", ("f16", "bf16", "tf32")), "igmma": ("wgmma", ("s8", "u8")),
    "bgmma": ("wgmma", ("b1",)), "qgmma": ("wgmma", ("e4m3", "e5m2")),
}  # fmt: skip
#: Families that move a matrix.
_MOVES = ("ldmatrix", "stmatrix", "movmatrix")
#: Block-scaled formats by their names: the types that they may have, and words of the instruction.
_SCALED = {
    "mxfp8": (("e4m3", "e5m2"), ("mxf8f6f4",)), "mxfp6": (("e3m2", "e2m3"), ("mxf8f6f4",)),
    "mxfp4": (("e2m1",), ("mxf4",)), "nvfp4": (("e2m1",), ("mxf4nvf4", "ue4m3")),
}  # fmt: skip
#: Words of the machine's instructions and of C++ that say nothing more about the form.
_IGNORED = (
    "", "sync", "mma_async", "async", "warp", "load", "mma_sync", "nvcuda", "popc", "aligned", "dense",
    "instruction", "matrix",
)  # fmt: skip
#: Words for instructions of the other catalogue, and where they are found.
_ELSEWHERE = {
    "umma": "UMMA is CUTLASS's name of tcgen05.mma, which `lanewise list --family tcgen05.mma` lists",
    "tma": "TMA's copies are cp.async.bulk.tensor, which `lanewise list --family cp.async.bulk.tensor` lists",
    "tmem": "tensor memory is read by tcgen05.ld and written by tcgen05.st: `lanewise list --family tcgen05`",
    **dict.fromkeys(
        ("utchmma", "utcimma", "utcqmma", "utcomma"),
        "this machine instruction is tcgen05.mma, which `lanewise list --family tcgen05.mma` lists",
    ),
    **dict.fromkeys(
        ("utmaldg", "utmastg", "utmaredg"),
        "this machine instruction is a copy by TMA: `lanewise list --family cp.async.bulk.tensor`",
    ),
    "ldgsts": "this machine instruction is cp.async; in a kernel, cp.async is lw.cp_async",
}
_SHAPE = re.compile(r"m(\d{1,4})n(\d{1,4})(?:k(\d{1,4}))?|(\d{1,4})x(\d{1,4})(?:x(\d{1,4}))?")
#: HMMA.16816 is 16 × 8 × 16.
_PACKED_SHAPE = re.compile(r"(8|16)(8)(4|8|16|32|64|128|256)")
#: LDSM.16.MT88.4: elements of 16 bits, 8 × 8 matrices, transposed, four of them.
_SASS_MATRICES = {"16": "b16", "m88": "m8n8", "mt88": "trans", "1": "x1", "2": "x2", "4": "x4"}
#: Signs of a statement with operands.
_OPERANDS = re.compile(r"[%{}\[\];@]")
_PTX_WORDS = re.compile(r"\b(?:sync|aligned)\b", re.I)
#: The beginning of an instruction, with nothing that would choose a form.
_ONLY_BEGUN = re.compile(r"(mma|wgmma|wmma)(\.mma_async|\.mma)?(\.sync)?(\.aligned)?")
#: Names of CUTLASS's operations, with what may stand around them.
_CUTLASS = re.compile(
    r"(cute::)?(SM_?\d|(MMA_Atom|Copy_Atom|MMA_Traits|Copy_Traits)\s*<|Universal(FMA|Copy)"
    r"|(Auto|Default)\w*Copy)",
    re.I,
)
#: The most forms that a message lists.
_MOST_LISTED = 4
#: Types that D may have.
_RESULTS = ("f32", "f16", "s32", "f64")
#: Where the types of a product stand: D, A, B, C.
_D, _A, _B = 0, 1, 2


class _Asked(NamedTuple):
    """What a name says: of each, nothing where it says nothing. A type may be one of several."""

    family: str = ""
    a_types: tuple[str, ...] = ()
    shape: str = ""
    types: tuple[tuple[str, ...], ...] = ()
    flags: frozenset[str] = frozenset()
    layouts: tuple[str, ...] = ()


def is_cutlass_name(text: object) -> bool:
    """Return whether a text names an operation of CUTLASS rather than spelling an instruction.

    >>> is_cutlass_name("SM80_16x8x16_F32F16F16F32_TN"), is_cutlass_name("mma.sync.aligned")
    (True, False)
    """
    return isinstance(text, str) and _CUTLASS.match(text.strip()) is not None


def is_shorthand(text: object) -> bool:
    """Return whether a text is a name, and not PTX with .sync and .aligned or with operands.

    >>> is_shorthand("m16n8k16 bf16"), is_shorthand("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    (True, False)
    """
    if not isinstance(text, str) or len(text) >= 100 or _OPERANDS.search(text):
        return False
    if text.lstrip().lower().startswith(("tcgen05", "umma ", "cp.")):
        return False
    return _PTX_WORDS.search(text) is None or _ONLY_BEGUN.fullmatch(text.strip()) is not None


def meant(text: str, arch: str | None = None) -> Candidate | None:
    """Return the form that a name means; None if none of its words is understood.

    A name that may mean several forms, or none, is an error that says which forms come near it.

    >>> meant("HMMA.16816.F32.BF16")[0].text
    'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    """
    asked = _read(text)
    if asked is None:
        return None
    candidates = _candidates(text, asked, arch)
    if len(candidates) == 1:
        return candidates[0]
    raise IllegalInstruction(
        f"{text!r} may mean one of these; ask again with the one you mean:\n{_listed(candidates, asked)}"
    )


def possible_texts(text: str, arch: str | None = None) -> list[str]:
    """Return the text of every form that a name may mean, the most common first; empty if it is no name.

    >>> possible_texts("ldmatrix")[0]
    'ldmatrix.sync.aligned.m8n8.x4.shared.b16'
    """
    asked = _read(text) if is_shorthand(text) else None
    return [form.text for form, _ in _candidates(text, asked, arch)] if asked is not None else []


def _candidates(text: str, asked: _Asked, arch: str | None) -> list[Candidate]:
    """Return the forms that a name may mean on an arch, the most common first; an error if there are none."""
    fitting = _fitting(asked)
    here = [form for form in fitting if arch is None or arch in form[1].archs]
    if fitting and not here:
        raise IllegalInstruction(_not_on(text, str(arch), asked, fitting))
    if not here:
        raise IllegalInstruction(_nothing_fits(text, asked, arch))
    return usual(here, asked.flags)


# reading ------------------------------------------------------------------------------------------------


def _read(text: str) -> _Asked | None:
    """Return what the words of a name say; None if none is understood, an error if only some are."""
    asked = _Asked()
    unknown = ""
    for word in _words(text):
        more = _with_word(asked, word)
        if more is None and word not in _IGNORED:
            unknown = unknown or word
        asked = more or asked
    if unknown in _ELSEWHERE:
        raise IllegalInstruction(f"{text!r}: {_ELSEWHERE[unknown]}")
    if asked == _Asked():
        return None
    if unknown:
        raise IllegalInstruction(f"{text!r}: the word {unknown!r} is not known here{_hint(unknown)}")
    return asked


def _words(text: str) -> Iterator[str]:
    """Yield the words of a name in lower case; one with underscores is cut if it is not known as it is."""
    for word in re.split(r"[\s.,]+|(?<=[a-z])::(?=[a-z])", text.lower().replace("×", "x").strip(" .")):
        if word in SPELLINGS or word in AMBIGUOUS or word in _IGNORED or "_" not in word:
            yield word.removeprefix("kind::")
        else:
            yield from word.split("_")


def _with_word(asked: _Asked, word: str) -> _Asked | None:
    """Return what is asked with one more word; None if the word is not understood."""
    if word in _FAMILIES and not asked.family:
        family, a_types = _FAMILIES[word]
        return asked._replace(family=family, a_types=a_types)
    if word == "mma" and asked.family:  # wmma.mma
        return asked
    if asked.family in _MOVES and word in _SASS_MATRICES:
        if word == "mt88":
            asked = asked._replace(shape="m8n8")
        word = _SASS_MATRICES[word]
    shape = _shape(word)
    if shape and not asked.shape:
        return asked._replace(shape=shape)
    types = AMBIGUOUS.get(word) or (SPELLINGS.get(word, word),)
    if word in _SCALED:
        types, words = _SCALED[word]
        asked = asked._replace(flags=asked.flags.union(words))
    if all(word in TYPES for word in types):
        return asked._replace(types=(*asked.types, types))
    if word in ("row", "col"):
        return asked._replace(layouts=(*asked.layouts, word))
    if word in ("sp", "sparse"):
        return asked._replace(flags=asked.flags | {"sparse"})
    if word in ("x1", "x2", "x4", "trans", "satfinite", "and", "xor", "ue8m0", "ue4m3", *KINDS):
        return asked._replace(flags=asked.flags | {word})
    return None


def _shape(word: str) -> str:
    """Return a shape as PTX writes it: of `16x8x16`, `16816` and `m16n8k16` alike; empty if it is none."""
    sizes = _SHAPE.fullmatch(word) or _PACKED_SHAPE.fullmatch(word)
    if sizes is None:
        return ""
    return "".join(
        f"{letter}{size}" for letter, size in zip("mnk", filter(None, sizes.groups()), strict=False)
    )


def _hint(word: str) -> str:
    """Return what an unknown word may have been meant for, as the end of a message."""
    known = [*_FAMILIES, *TYPES, *SPELLINGS, *AMBIGUOUS, *_SCALED, *KINDS, "sparse", "trans", "row", "col"]
    near = nearest(word, known)
    if near:
        return f"; did you mean {near!r}?"
    return "; a name is a family (mma, wgmma, wmma, ldmatrix), a shape (m16n8k16) and types (f16, bf16, e4m3)"


# finding ------------------------------------------------------------------------------------------------


def _fitting(asked: _Asked) -> list[Candidate]:
    """Return the documented forms that are as a name says; of those that differ in operands only, one."""
    for places in _readings(asked):
        fitting: dict[str, Candidate] = {}
        for family in FAMILIES:
            if asked.family and not (family == asked.family or family.startswith(f"{asked.family}.sp")):
                continue
            if not asked.family and family not in USUAL_FAMILIES and ".sp" not in family:
                continue
            for form, legality in forms(family).items():
                if not legality.documented or legality.until is not None or form.a_source == "registers":
                    continue
                if _fits(form, asked, places):
                    fitting.setdefault(form.text, (form, legality))
        if fitting:
            return list(fitting.values())
    return []


def _readings(asked: _Asked) -> Iterator[dict[int, tuple[str, ...]]]:
    """Yield where the types of a name may belong (D, A, B, C), the likeliest first.

    One type is that of A; but the machine's instructions begin with D, and HMMA.16816.F32 has A of f16. More
    are those of D, A, B and C in this order, as PTX has them; or of A and B; or of A, B and then D, as C++
    has them.
    """
    given = asked.types
    if not given:
        yield {}
        return
    result = any(value in _RESULTS for value in given[0])
    if len(given) == 1:
        if asked.a_types and result:
            yield {_D: given[0], _A: asked.a_types[:1]}
        yield {_A: given[0]}
        yield {_D: given[0]}
        return
    if result:
        yield dict(enumerate(given))
    yield dict(enumerate(given, _A))
    yield {**dict(enumerate(given[:-1], _A)), _D: given[-1]}


def _fits(form: Form, asked: _Asked, places: dict[int, tuple[str, ...]]) -> bool:
    """Return whether a form is as a name says, with its types in these places."""
    if asked.shape and form.shape_text != asked.shape:
        return False
    flags = {"sparse": form.sparse, "trans": form.trans, "satfinite": form.satfinite}
    for flag in asked.flags:
        if not flags.get(flag, flag in (f"x{form.num}", form.kind, form.bitop, form.scale_type)):
            return False
    if asked.layouts and form.layouts[: len(asked.layouts)] != asked.layouts:
        return False
    if len(form.types) < 3:
        return not asked.a_types and all(set(kinds) & set(form.types) for kinds in asked.types)
    if asked.a_types and form.types[_A] not in asked.a_types:
        return False
    return all(place < len(form.types) and form.types[place] in kinds for place, kinds in places.items())


# messages -----------------------------------------------------------------------------------------------


def _listed(candidates: list[Candidate], asked: _Asked) -> str:
    """Return the first of some forms, one in each line, and how to see the others."""
    lines = [f"    {form.text}" for form, _ in candidates[:_MOST_LISTED]]
    if len(candidates) > _MOST_LISTED:
        words = [asked.shape, *(kinds[0] for kinds in asked.types if len(kinds) == 1)]
        if len({form.base_family for form, _ in candidates}) == 1:
            words.insert(0, f"--family {candidates[0][0].base_family}")
        lines.append(
            f"    and {len(candidates) - _MOST_LISTED} more: lanewise list {' '.join(filter(None, words))}"
        )
    return "\n".join(lines)


def _not_on(text: str, arch: str, asked: _Asked, candidates: list[Candidate]) -> str:
    """Return the message for a name whose forms an arch does not have."""
    form, legality = usual(candidates, asked.flags)[0]
    return f"{text!r} is {form.text}, which {arch} does not have; legal on {describe_targets(legality.archs)}"


def _nothing_fits(text: str, asked: _Asked, arch: str | None) -> str:
    """Return the message for a name that no form fits, with those of the same types that come near it."""
    for less, what in (
        (asked._replace(shape=""), f"no instruction of these types has the shape {asked.shape}"),
        (asked._replace(shape="", layouts=(), flags=frozenset()), "no instruction has all of these words"),
        (asked._replace(types=()), "no instruction of this shape has these types"),
        (asked._replace(types=(), layouts=(), flags=frozenset()), "no instruction has all of these words"),
        (_Asked(family=asked.family, types=asked.types), "no instruction has all of these words"),
    ):
        candidates = [candidate for candidate in _fitting(less) if arch is None or arch in candidate[1].archs]
        if candidates:
            near = sorted(
                usual(candidates, asked.flags), key=lambda candidate: _shapes_apart(candidate[0], asked.shape)
            )
            return f"{text!r}: {what}; the nearest are\n{_listed(near, less)}"
    return f"{text!r}: no instruction has all of these words; `lanewise list` shows which there are"


def _shapes_apart(form: Form, shape: str) -> int:
    """Return how far the shape of a form is from one that was asked for."""
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    return sum(abs(x - y) for x, y in zip(sizes, form.shape, strict=False))


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
        candidates = [candidate for candidate in candidates if prefers(candidate[0])] or candidates
    seen: Counter[str] = Counter()
    numbered = []
    for candidate in sorted(candidates, key=_rarity):
        kind = _type_of(candidate[0])
        numbered.append((seen[kind], candidate))
        seen[kind] += 1
    return [candidate for _, candidate in sorted(numbered, key=lambda pair: pair[0])]


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
