"""Reading instruction text: modifiers in any order become a Form, operands written after it are looked at.

Says what a word is; whether the words go together is decided by the table.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field

from lanewise.errors import IllegalInstruction
from lanewise.isa.form import Form

TYPES = frozenset(
    "f16 bf16 tf32 f32 f64 e4m3 e5m2 e3m2 e2m3 e2m1 s8 u8 s4 u4 b1 s32 b16 b8 b8x16 b6x16_p32 b4x16_p64".split()
)
SCALE_TYPES = frozenset(("ue8m0", "ue4m3"))
KINDS = ("f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")
SPACES = ("global", "shared", "shared::cta")
_SHAPE = re.compile(r"m\d+n\d+(?:k\d+)?")
_WORDS = (
    *sorted(TYPES | SCALE_TYPES), *SPACES, *(f"kind::{kind}" for kind in KINDS), "sync", "aligned", "row", "col",
    "satfinite", "block_scale", "scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "rn", "rz", "rm", "rp", "xor",
    "and", "popc", "x1", "x2", "x4", "trans", "sp", "sp::ordered_metadata",
)  # fmt: skip


@dataclass
class Words:
    """The modifiers of one instruction, sorted by what they are."""

    text: str
    shape: list[str] = field(default_factory=list)
    layouts: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    scale_types: list[str] = field(default_factory=list)
    roundings: list[str] = field(default_factory=list)
    bitops: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    scale_vecs: list[int] = field(default_factory=list)
    nums: list[int] = field(default_factory=list)
    spaces: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    def only(self, name: str, values: list[str] | list[int]) -> str:
        """The one modifier of a kind that may stand once; empty if it is not there."""
        if len(values) > 1:
            raise self.wrong(f"{name} is given {len(values)} times ({', '.join(map(str, values))}); once is allowed")
        return str(values[0]) if values else ""

    def wrong(self, message: str) -> IllegalInstruction:
        return IllegalInstruction(f"{self.text}: {message}")


def split_statement(statement: str) -> tuple[str, str]:
    """The opcode with its modifiers, and the operands after it (both may have come in one PTX statement)."""
    if not isinstance(statement, str):
        raise IllegalInstruction(f"an instruction is text such as 'mma.sync.aligned…', not {statement!r}")
    text = statement.strip().rstrip(";").strip()
    text = re.sub(r"^@!?[%\w$]+\s+", "", text)
    head, _, operands = text.partition(" ") if " " in text else re.sub(r"(?=\{)", " ", text, count=1).partition(" ")
    if not head:
        raise IllegalInstruction("empty text where an instruction was expected, such as 'mma.sync.aligned…'")
    return head, operands.strip()


def read(head: str) -> Form:
    """The form that the text of an instruction spells, legal or not.

    >>> read("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16").text
    'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16'
    """
    first, *modifiers = head.split(".")
    match first:
        case "mma" | "ldmatrix" | "stmatrix" | "movmatrix":
            family = first
        case "wmma" if modifiers and modifiers[0] in ("load", "store", "mma"):
            family = f"wmma.{modifiers.pop(0)}"
        case "wgmma" if modifiers and modifiers[0] == "mma_async":
            family = "wgmma"
            modifiers.pop(0)
        case _:
            raise IllegalInstruction(
                f"{head}: not a matrix instruction; those begin with mma, wmma.load, wmma.store, wmma.mma, "
                "wgmma.mma_async, ldmatrix, stmatrix or movmatrix"
            )
    matrix = ""
    if family in ("wmma.load", "wmma.store"):
        found = [word for word in modifiers if word in ("a", "b", "c", "d")]
        if len(found) != 1:
            raise IllegalInstruction(f"{head}: says which matrix once: {family}.{'d' if family == 'wmma.store' else 'a, .b or .c'}")
        matrix = found[0]
        modifiers.remove(matrix)
    words = Words(head)
    for word in modifiers:
        _sort(words, word)
    return _form(words, family, matrix)


def _sort(words: Words, word: str) -> None:
    if _SHAPE.fullmatch(word):
        words.shape.append(word)
    elif word in ("row", "col"):
        words.layouts.append(word)
    elif word in TYPES:
        words.types.append(word)
    elif word in SCALE_TYPES:
        words.scale_types.append(word)
    elif word in ("rn", "rz", "rm", "rp"):
        words.roundings.append(word)
    elif word in ("xor", "and"):
        words.bitops.append(word)
    elif word.removeprefix("kind::") in KINDS and word.startswith("kind::"):
        words.kinds.append(word.removeprefix("kind::"))
    elif match := re.fullmatch(r"scale_vec::([124])X", word):
        words.scale_vecs.append(int(match.group(1)))
    elif match := re.fullmatch(r"x([124])", word):
        words.nums.append(int(match.group(1)))
    elif word in SPACES:
        words.spaces.append(word)
    elif word in _WORDS:
        words.flags.append(word)
    else:
        near = difflib.get_close_matches(word, _WORDS, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join('.' + name for name in near)}?" if near else ""
        raise words.wrong(f"unknown modifier '.{word}'{hint}")


def _form(words: Words, family: str, matrix: str) -> Form:
    flags = words.flags
    repeated = sorted({flag for flag in flags if flags.count(flag) > 1})
    if repeated:
        raise words.wrong(f".{repeated[0]} is given {flags.count(repeated[0])} times; once is allowed")
    for required in ("sync", "aligned"):
        if required not in flags:
            raise words.wrong(f".{required} is required")
    if family == "mma" and any(flag.startswith("sp") for flag in flags):
        family = "mma.sp::ordered_metadata" if "sp::ordered_metadata" in flags else "mma.sp"
    elif family == "wgmma" and "sp" in flags:
        family = "wgmma.sp"
    shape = words.only("the shape", words.shape)
    if not shape:
        raise words.wrong("the shape is missing (such as .m16n8k16)")
    if bool(words.bitops) != ("popc" in flags):
        raise words.wrong(".xor and .and stand together with .popc")
    if bool(words.scale_types) != ("block_scale" in flags):
        raise words.wrong(".block_scale and the scale type (.ue8m0 or .ue4m3) stand together")
    kind = words.only(".kind", words.kinds)
    written = words.only(".scale_vec", words.scale_vecs)
    scaled = "block_scale" in flags
    default = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 0) if scaled else 0
    types = tuple(words.types)
    if family == "wmma.mma" and len(types) == 2 and set(types) <= {"f16", "f32"}:
        types = (types[0], "f16", "f16", types[1])
    expected = {"mma": 4, "wmma.mma": 4, "wmma.load": 1, "wmma.store": 1, "wgmma": 3, "movmatrix": 1}
    count = expected.get(family.split(".sp")[0])
    if count is not None and len(types) != count:
        what = {4: "four types, of D, A, B and C", 3: "three types, of D, A and B", 1: "one type"}[count]
        if family == "wmma.mma":
            what += " (f16: two, of D and C)"
        raise words.wrong(f"takes {what}; {len(words.types)} given")
    _leftover(words, family)
    return Form(
        family,
        shape,
        types,
        tuple(words.layouts),
        matrix,
        "satfinite" in flags,
        kind,
        int(written) if written else default,
        bool(written),
        words.only("the scale type", words.scale_types),
        words.only("the rounding", words.roundings),
        words.only("the bit operation", words.bitops),
        int(words.only("the number of matrices", words.nums) or 0),
        "trans" in flags,
        words.only("the state space", words.spaces),
    )


#: Which kinds of modifier a family has at all; one that it has not is named, not dropped.
_TAKES = {
    "mma": "layouts scale_types roundings bitops kinds scale_vecs satfinite block_scale popc sp sp::ordered_metadata",
    "wmma.mma": "layouts roundings bitops satfinite popc",
    "wmma.load": "layouts spaces",
    "wmma.store": "layouts spaces",
    "ldmatrix": "nums spaces trans",
    "stmatrix": "nums spaces trans",
    "movmatrix": "trans",
    "wgmma": "bitops satfinite popc sp",
}


def _leftover(words: Words, family: str) -> None:
    base = family.split(".sp")[0]
    takes = {"sync", "aligned", *_TAKES[base].split()}
    groups = ("layouts", "scale_types", "roundings", "bitops", "kinds", "scale_vecs", "nums", "spaces")
    spare = [f".{word}" for group in groups if group not in takes for word in getattr(words, group)]
    spare += [f".{flag}" for flag in words.flags if flag not in takes]
    if spare:
        raise words.wrong(f"{base} has no modifier {', '.join(spare)}")
