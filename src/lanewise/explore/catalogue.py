"""The list that the page searches: every form of the catalogue with the words by which people look for it.

The page compares what is typed with these words and knows nothing of instructions itself. Forms of wgmma that
differ in N alone are one entry with the sizes that there are.
"""

import re
from functools import cache
from typing import Any

from lanewise.explore import tensor_instructions
from lanewise.formats import SPELLINGS
from lanewise.isa import ARCHS, Instruction, describe_targets, instructions
from lanewise.isa.asynchronous import AsyncInstruction
from lanewise.isa.asynchronous.descriptor import KINDS
from lanewise.isa.gpu_models import gpu_names

#: Families in the order in which most people look for them.
_ORDER = ("mma", "ldmatrix", "wgmma", "stmatrix", "movmatrix", "wmma.mma", "wmma.load", "wmma.store")
#: State spaces likewise; "" is the generic one.
_SPACES = ("shared", "")
#: The size that stands for an entry with several.
_USUAL_N = 128
_OPCODE = re.compile(r"\b(?:[A-Z]{1,2}G?MMA|LDSM|STSM|MOVM)\b")


@cache
def catalogue() -> dict[str, Any]:
    """Return what the page needs to search: entries, archs, and GPUs by their names.

    >>> catalogue()["archs"][0]
    'sm_70'
    """
    entries: dict[tuple[str, str], list[Instruction]] = {}
    for form in instructions():
        key = (_without_n(form), form.base_family)
        entries.setdefault(key, []).append(form)
    listed = sorted(entries.items(), key=lambda pair: _rank(pair[1][0]))
    sent = [_entry(text, forms) for (text, _), forms in listed]
    sent += [_tensor_entry(form) for form in tensor_instructions.listed()]
    return {
        # Many entries have the same words, sizes and archs: each list is sent once, entries have its number.
        **{name: _numbered(sent, name) for name in ("words", "sizes", "on")},
        "archs": ARCHS,
        "gpus": gpu_names(),
        "entries": sent,
    }


def _numbered(entries: list[dict[str, object]], name: str) -> list[object]:
    """Put the number of a value in its place in every entry; return the values by their numbers."""
    numbers: dict[object, int] = {}
    for entry in entries:
        if name in entry:
            entry[name] = numbers.setdefault(entry[name], len(numbers))
    return list(numbers)


def _without_n(form: Instruction) -> str:
    """Return the text with * in place of N where N is free within a family."""
    return re.sub(r"\.m64n\d+k", ".m64n*k", form.text) if form.family.startswith("wgmma") else form.text


def _rank(form: Instruction) -> tuple[object, ...]:
    """Return a key by which the usual forms come first."""
    family = _ORDER.index(form.base_family) if form.base_family in _ORDER else len(_ORDER)
    kind = form.types[1] if len(form.types) > 1 else form.types[0]
    common = ("f16", "bf16", "tf32", "e4m3", "b16", "s8")
    return (
        family if family < 3 else 3 + family,
        form.sparse,
        form.scale_type != "" or form.kind != "",
        form.satfinite,
        form.products,
        common.index(kind) if kind in common else len(common),
        _SPACES.index(form.space) if form.space in _SPACES else len(_SPACES),
        form.types[0] == "f16" and len(form.types) > 1,
        tuple(-size for size in form.shape),
        -form.num,
        form.trans,
        form.text,
    )


def _entry(text: str, forms: list[Instruction]) -> dict[str, Any]:
    """Return an entry: its text, the words to find it by, the archs, and what can be chosen."""
    first = forms[0]
    sizes = sorted({form.n for form in forms}) if "n*" in text else []
    usual = _USUAL_N if _USUAL_N in sizes else sizes[-1] if sizes else 0
    entry = {
        "text": text,
        "words": " ".join(sorted(_words(first, sizes))),
        "archs": sum(1 << ARCHS.index(arch) for arch in first.archs),
        "on": describe_targets(first.archs),
    }
    if sizes:
        entry |= {"sizes": tuple(sizes), "usual": usual}
    sources = sorted({form.a_source for form in forms} - {""})
    return entry | ({"sources": sources} if len(sources) > 1 else {})


def _tensor_entry(form: AsyncInstruction) -> dict[str, Any]:
    """Return the entry of a tcgen05 instruction; formats and shapes are found by the words of its kind."""
    words = {"tcgen05", "blackwell", "umma" if ".mma" in form.text else "tmem"}
    kind = next((word for word in form.text.split(".") if word.startswith("kind::")), "")
    if kind:
        formats = KINDS[kind.removeprefix("kind::")].formats
        spelled = {name for name, known in SPELLINGS.items() if known in formats} | set(formats)
        words |= {re.sub(r"[^a-z0-9_]", "", name.lower()) for name in spelled}
        words |= {"pair"} if "cta_group::2" in form.text else set()
        words |= {"sparse"} if ".sp" in form.family else set()
    return {
        "text": form.text,
        "words": " ".join(sorted(words - {""})),
        "archs": sum(1 << ARCHS.index(arch) for arch in form.archs),
        "on": describe_targets(form.archs),
    }


def _words(form: Instruction, sizes: list[int]) -> set[str]:
    """Return words that the text does not have: names in SASS and C++, types and shapes spelled otherwise."""
    spelled = {name for name, kind in SPELLINGS.items() if kind in form.types}
    shapes: list[tuple[int, ...]] = [(form.m, n, form.k) for n in sizes] or [form.shape]
    words = {re.sub(r"[^a-z0-9_]", "", name.lower()) for name in spelled}
    for shape in shapes:
        words.add("x".join(map(str, shape)))
        if sizes:
            words.add("".join(f"{letter}{size}" for letter, size in zip("mnk", shape, strict=True)))
    if len(form.shape) == 3 and not sizes:
        words.add("".join(map(str, form.shape)))  # HMMA.16816
    for arch in form.archs:
        words |= {name.lower() for name in _OPCODE.findall(form.lowering(arch).detail)}
    words |= {"sparse"} if form.sparse else set()
    words |= {"wgmma"} if form.family.startswith("wgmma") else set()
    return words - {""}
