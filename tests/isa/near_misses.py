"""Instruction texts that are nearly legal: a modifier of a legal one changed, forgotten or added.

Left out are slips of spelling that ptxas overlooks (see SPELLING): the catalogue is stricter on purpose.
"""

import random
from functools import cache

from isa.probe import TYPE_NAMES
from lanewise.isa import FAMILIES, instructions

SHAPES = (
    "m8n8k4", "m8n8k16", "m8n8k32", "m8n8k128", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m16n8k64",
    "m16n8k128", "m16n8k256", "m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8", "m8n16", "m16n16",
    "m16n8", "m64n8k16", "m64n8k8", "m64n8k32", "m64n8k64", "m64n8k256", "m64n40k32", "m64n12k16",
    "m64n264k16", "m16n8k24",
)  # fmt: skip
CLASSES = (
    SHAPES,
    TYPE_NAMES,
    ("row", "col"),
    ("rn", "rz", "rm", "rp"),
    ("kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"),
    ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X"),
    ("ue8m0", "ue4m3"),
    ("global", "shared", "shared::cta"),
    ("x1", "x2", "x4"),
    ("xor", "and"),
    ("sp", "sp::ordered_metadata"),
    ("a", "b", "c", "d"),
)
_CLASS_OF = {word: words for words in CLASSES for word in words}

#: What ptxas 13.0 overlooks and no document allows: a text, an arch that takes it, what the catalogue says.
SPELLING = (
    ("mma.sync.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", ".sync is given 2 times"),
    ("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32.satfinite", "sm_80", "given 2 times"),
    ("wgmma.mma_async.sync.m64n8k16.f32.f16.f16", "sm_90a", ".aligned is missing (ptxas lets that pass"),
    ("mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32.and", "sm_80", "stand together; one is missing"),
    ("mma.sp.sync.aligned.bf16.m16n8k16.row.col.f16.f16.f16.f16", "sm_80", "takes four types"),
    ("movmatrix.sync.aligned.m8n8.trans.tf32.b16", "sm_80", "takes one type"),
    ("stmatrix.sync.aligned.m8n8.x4.b16.row", "sm_90", "stmatrix has no modifier .row"),
    ("ldmatrix.sync.aligned.m8n8.x1.col.b16", "sm_80", "ldmatrix has no modifier .col"),
)


@cache
def _family(name: str) -> tuple[tuple[tuple[str, str, bool], ...], tuple[str, ...], int]:
    """The legal texts of a family with their choices, its vocabulary, and how many types it takes at most."""
    found = instructions(family=name)
    texts = tuple((each.text, each.a_source, each.stride) for each in found)
    words = {word for text, *_ in texts for word in text.split(".")[1:]}
    kept = words - {"sync", "aligned", "load", "store", "mma", "mma_async", "a", "b", "c", "d"}
    most = max(sum(word in TYPE_NAMES for word in text.split(".")) for text, *_ in texts)
    return texts, tuple(sorted(kept | {"m16n8k24", "m64n12k16"})), most


def near_misses(seed: str, count: int) -> list[tuple[str, str, bool]]:
    """So many texts with the choices of their operands, the same for the same seed; a few are legal."""
    chance = random.Random(seed)
    found: dict[tuple[str, str, bool], None] = {}
    while len(found) < count:
        family = chance.choice(FAMILIES)
        texts, vocabulary, most = _family(family)
        legal, a_source, stride = chance.choice(texts)
        words = legal.split(".")
        for _ in range(chance.choice((1, 1, 1, 2))):
            words = _changed(chance, words, vocabulary)
        if not _overlooked(words, most):
            found[".".join(words), a_source, stride] = None
    return list(found)


def _changed(chance: random.Random, words: list[str], vocabulary: tuple[str, ...]) -> list[str]:
    """One modifier exchanged for another of its class (once or wherever it stands), dropped, or added."""
    opcode = 2 if words[0] in ("wmma", "wgmma") else 1
    place = chance.randrange(opcode, len(words))
    old = words[place]
    new = chance.choice([word for word in _CLASS_OF.get(old, ()) if word != old] or [old])
    match chance.choice(("exchange",) * 4 + ("everywhere",) * 2 + ("drop",) * 2 + ("add",)):
        case "exchange":
            return [*words[:place], new, *words[place + 1 :]]
        case "everywhere":
            return [new if word == old else word for word in words]
        case "drop" if len(words) > opcode + 1:
            return [*words[:place], *words[place + 1 :]]
        case "add":
            return [*words[:place], chance.choice(vocabulary), *words[place:]]
    return words


def _overlooked(words: list[str], most_types: int) -> bool:
    """Whether ptxas may overlook what is wrong."""
    repeated = any(words.count(flag) > 1 for flag in ("sync", "satfinite"))
    half_a_bit_operation = ("popc" in words) != ("xor" in words or "and" in words)
    surplus = sum(word in TYPE_NAMES for word in words) > most_types
    return repeated or half_a_bit_operation or surplus or (words[0] == "wgmma" and "aligned" not in words)
