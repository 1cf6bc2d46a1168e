"""Reading the text of an instruction: modifiers in any order become a Form.

Says what a word is and how often it may stand; whether the words go together is decided by the table, and
operands written after the text are read by `statement.py`. The order is freer than with ptxas in two points:
there the scale type follows the types, and .popc the bit operation.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lanewise.errors import IllegalInstruction
from lanewise.formats import SPELLINGS
from lanewise.isa.form import Form

TYPES = (
    "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1",
    "s8", "u8", "s4", "u4", "b1", "s32", "b16", "b8", "b8x16", "b6x16_p32", "b4x16_p64",
)  # fmt: skip
KINDS = ("f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")

#: Every modifier but the shape, by what it says.
_CLASSES: dict[str, tuple[str, ...]] = {
    "type": TYPES,
    "layout": ("row", "col"),
    "rounding": ("rn", "rz", "rm", "rp"),
    "bit operation": ("xor", "and"),
    "kind": tuple(f"kind::{kind}" for kind in KINDS),
    "scale vector": ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X"),
    "scale type": ("ue8m0", "ue4m3"),
    "number of matrices": ("x1", "x2", "x4"),
    "state space": ("global", "shared", "shared::cta"),
    "sparsity": ("sp", "sp::ordered_metadata"),
    **{f".{word}": (word,) for word in ("sync", "aligned", "satfinite", "block_scale", "popc", "trans")},
}
_CLASS_OF = {word: name for name, words in _CLASSES.items() for word in words}
#: What wmma.load and wmma.store name beside: which matrix they move.
_MATRICES = ("a", "b", "c", "d")
_SHAPE = re.compile(r"m[0-9]{1,4}n[0-9]{1,4}(?:k[0-9]{1,4})?")

#: What a family takes beside .sync, .aligned, a shape and its types; another modifier is named, not dropped.
_TAKES: dict[str, tuple[str, ...]] = {
    "mma": (
        "layout", "sparsity", ".satfinite", "kind", ".block_scale", "scale vector", "scale type", "rounding",
        "bit operation", ".popc",
    ),
    "wmma.mma": ("layout", "rounding", "bit operation", ".popc", ".satfinite"),
    "wmma.load": ("layout", "state space"),
    "wmma.store": ("layout", "state space"),
    "ldmatrix": ("number of matrices", ".trans", "state space"),
    "stmatrix": ("number of matrices", ".trans", "state space"),
    "movmatrix": (".trans",),
    "wgmma": ("sparsity", ".satfinite", "bit operation", ".popc"),
}  # fmt: skip
_LAYOUTS = {
    0: "no layout",
    1: "one layout (.row or .col)",
    2: "two layouts, of A and of B (such as .row.col)",
}
_TYPES = {1: "one type", 3: "three types, of D, A and B", 4: "four types, of D, A, B and C"}


@dataclass
class Words:
    """The modifiers of one instruction, sorted by what they say."""

    text: str
    family: str
    sorted: dict[str, list[str]] = field(default_factory=dict)

    def sort(self, words: Iterable[str]) -> None:
        """Put every word into its class, or raise if it has none in this family."""
        for word in words:
            name = "shape" if _SHAPE.fullmatch(word) else _CLASS_OF.get(word)
            if name is None:
                raise self.wrong(unknown(word))
            if name not in (".sync", ".aligned", "shape", "type", *_TAKES[self.family]):
                raise self.wrong(f"{self.family} has no modifier .{word}")
            self.sorted.setdefault(name, []).append(word)

    def all(self, name: str) -> tuple[str, ...]:
        """Every word of a class, as they stand."""
        return tuple(self.sorted.get(name, ()))

    def one(self, name: str) -> str:
        """The word of a class that may stand once; empty if it is not there."""
        words = self.all(name)
        if len(words) > 1:
            what = name if name.startswith(".") else f"the {name}"
            given = "" if name.startswith(".") else f" ({', '.join('.' + word for word in words)})"
            raise self.wrong(f"{what} is given {len(words)} times{given}; once is allowed")
        return words[0] if words else ""

    def wrong(self, message: str) -> IllegalInstruction:
        """The error that says so of this instruction."""
        return IllegalInstruction(f"{self.text}: {message}")


def corrected(word: str) -> str:
    """The modifier that a word is, or may have been meant for; the word itself if nothing is near."""
    if word in _CLASS_OF or word in _MATRICES or _SHAPE.fullmatch(word):
        return word
    return next(iter(_meant(word)), word)


def _meant(word: str) -> list[str]:
    """The modifiers that an unknown word may have been meant for, likeliest first."""
    from difflib import get_close_matches  # wanted for a message alone

    if word in SPELLINGS:
        return [SPELLINGS[word]]
    return get_close_matches(word, _CLASS_OF, n=3, cutoff=0.5)


def unknown(word: str) -> str:
    """What to say of a word that is no modifier."""
    if not word:
        return "a modifier is empty: two dots in a row, or one at the end"
    near = [f".{name}" for name in _meant(word)]
    return f"unknown modifier '.{word}'" + (f"; did you mean {' or '.join(near)}?" if near else "")


def split_family(head: str) -> tuple[str, list[str]]:
    """The family that a text begins with, sparsity aside, and the modifiers after it."""
    first, *modifiers = head.split(".")
    pair = f"{first}.{modifiers[0]}" if modifiers else first
    if pair == "wgmma.mma_async":
        return "wgmma", modifiers[1:]
    if first in _TAKES and first != "wgmma":
        return first, modifiers
    if pair in _TAKES:
        return pair, modifiers[1:]
    hint = "; modifiers are lower case" if head.lower() != head else ""
    also = "; those of tensor memory with tcgen05 (lanewise list tcgen05)"
    if head.startswith("cp.async"):
        also = "; in a kernel, cp.async is lw.cp_async"
    raise IllegalInstruction(
        f"{head}: not a matrix instruction of a warp or warpgroup{hint}; those begin with mma, wmma.load, "
        f"wmma.store, wmma.mma, wgmma.mma_async, ldmatrix, stmatrix or movmatrix{also}"
    )


def read(head: str) -> Form:
    """The form that the text of an instruction spells, legal or not.

    >>> read("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16").text
    'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16'
    """
    family, modifiers = split_family(head)
    words = Words(head, family)
    matrix = _matrix(words, modifiers) if family in ("wmma.load", "wmma.store") else ""
    words.sort(modifiers)
    for required in (".sync", ".aligned"):
        if not words.one(required):
            lax = (
                " (ptxas lets that pass, the PTX ISA does not)"
                if (family, required) == ("wgmma", ".aligned")
                else ""
            )
            raise words.wrong(f"{required} is missing{lax}")
    shape = words.one("shape")
    if not shape:
        raise words.wrong("the shape is missing (such as .m16n8k16)")
    _together(words)
    kind = words.one("kind").removeprefix("kind::")
    vector = words.one("scale vector").removeprefix("scale_vec::").removesuffix("X")
    default = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 0) if words.one(".block_scale") else 0
    sparsity = words.one("sparsity")
    return Form(
        family=f"{family}.{sparsity}" if sparsity else family,
        shape_text=shape,
        types=_types(words),
        layouts=_layouts(words),
        matrix=matrix,
        satfinite=bool(words.one(".satfinite")),
        kind=kind,
        scale_vec=int(vector) if vector else default,
        scale_vec_written=bool(vector),
        scale_type=words.one("scale type"),
        rounding=words.one("rounding"),
        bitop=words.one("bit operation"),
        num=int(words.one("number of matrices").removeprefix("x") or 0),
        trans=bool(words.one(".trans")),
        space=words.one("state space"),
    )


def _matrix(words: Words, modifiers: list[str]) -> str:
    """Which matrix wmma.load or wmma.store moves: it follows at once, and is taken out of the modifiers."""
    if not modifiers or modifiers[0] not in _MATRICES:
        choices = ".d" if words.family == "wmma.store" else ".a, .b or .c"
        raise words.wrong(f"the matrix ({choices}) is missing right after {words.family}")
    return modifiers.pop(0)


def _together(words: Words) -> None:
    """Modifiers that stand together or not at all."""
    if bool(words.one("bit operation")) != bool(words.one(".popc")):
        raise words.wrong("the bit operation (.xor or .and) and .popc stand together; one is missing")
    if bool(words.one("scale type")) != bool(words.one(".block_scale")):
        raise words.wrong(".block_scale and the scale type (.ue8m0 or .ue4m3) stand together; one is missing")
    if words.one("sparsity") == "sp::ordered_metadata" and words.family == "wgmma":
        raise words.wrong("wgmma has no modifier .sp::ordered_metadata; .sp it has")


def _types(words: Words) -> tuple[str, ...]:
    types = words.all("type")
    if words.family == "wmma.mma":
        if len(types) == 2 and set(types) <= {"f16", "f32"}:
            return types[0], "f16", "f16", types[1]
        if types[1:3] == ("f16", "f16"):
            raise words.wrong(f"A and B of f16 go without saying: two types, of D and C; {_given(types)}")
    if words.family in ("ldmatrix", "stmatrix"):
        if len(types) not in (1, 2):
            raise words.wrong(f"takes one type, or two (such as .b8x16.b6x16_p32); {_given(types)}")
        return types
    count = {"mma": 4, "wmma.mma": 4, "wgmma": 3}.get(words.family, 1)
    if len(types) != count:
        more = " (or two, of D and C, where A and B are f16)" if words.family == "wmma.mma" else ""
        raise words.wrong(f"takes {_TYPES[count]}{more}; {_given(types)}")
    return types


def _layouts(words: Words) -> tuple[str, ...]:
    layouts = words.all("layout")
    count = {"mma": 2, "wmma.mma": 2, "wmma.load": 1, "wmma.store": 1}.get(words.family, 0)
    if len(layouts) != count:
        raise words.wrong(f"takes {_LAYOUTS[count]}; {_given(layouts)}")
    return layouts


def _given(words: Sequence[str]) -> str:
    if not words:
        return "none is given"
    return f"{len(words)} {'is' if len(words) == 1 else 'are'} given ({'.' + '.'.join(words)})"
