"""Names of tcgen05.mma as people say them: `tcgen05 m128n256k16 bf16`, `umma nvfp4 m256n256k64 sparse`.

PTX text, whose words are all words of a form, is read by `asynchronous/instruction.py`.
"""

import re
from typing import Any, NamedTuple

from lanewise.errors import IllegalInstruction
from lanewise.formats import AMBIGUOUS, FORMATS, SPELLINGS
from lanewise.hints import nearest
from lanewise.isa.asynchronous.descriptor import KINDS
from lanewise.isa.asynchronous.instruction import AsyncInstruction, async_instruction, is_form

#: Words that begin a name; CUTLASS calls tcgen05.mma UMMA.
_BEGINNINGS = ("tcgen05", "umma")
_SHAPE = re.compile(r"m(\d{1,4})n(\d{1,4})(?:k(\d{1,4}))?|(\d{1,4})x(\d{1,4})(?:x(\d{1,4}))?")
_OPERANDS = re.compile(r"[%{}\[\];@]")
#: Block-scaled formats: the kind, the format that A and B have if no other is named, elements for each scale.
SCALED = {
    "mxfp8": ("mxf8f6f4", "e4m3", 32),
    "mxfp6": ("mxf8f6f4", "e3m2", 32),
    "mxfp4": ("mxf4", "e2m1", 32),
    "nvfp4": ("mxf4nvf4", "e2m1", 16),
}
_PAIR = ("pair", "2cta", "2sm", "cta_group::2")
_ONE = ("1cta", "1sm", "cta_group::1", "mma", "dense", "")
#: Formats that D may have.
_RESULTS = ("f32", "f16", "s32")


class Named(NamedTuple):
    """What a name means: the form, and the fields of its instruction descriptor."""

    form: AsyncInstruction
    fields: dict[str, Any]


def meant(text: str) -> Named | None:
    """Return what a name of tcgen05.mma means; None if the text is no such name.

    >>> meant("tcgen05 m128n256k16 bf16").form.text
    'tcgen05.mma.cta_group::1.kind::f16'
    >>> meant("tcgen05.mma.cta_group::1.kind::f16") is None
    True
    """
    if _OPERANDS.search(text) or len(text) >= 100 or is_form(text.strip()):
        return None
    words = [word for word in re.split(r"[\s.,]+", text.lower().replace("×", "x").strip(" .")) if word]
    if not words or words[0] not in _BEGINNINGS:
        return None
    rest = words[1:]
    if not any(_SHAPE.fullmatch(word) or word in SCALED or _format(word) for word in rest):
        return None
    return _Reader(text).read(rest)


class _Reader:
    """The words of a name, read one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kind = ""
        self.block = 0
        self.sparse = self.ws = self.pair = False
        self.formats: list[str] = []
        self.shape: dict[str, int] = {}

    def read(self, words: list[str]) -> Named:
        """Return the form and the fields that the words say."""
        for word in words:
            self._word(word)
        formats = self._formats()
        kind = self.kind or _kind_of(formats.get("a", ""))
        if not kind:
            raise self._error("no format of A is named, such as bf16 or e4m3")
        if self.shape.get("m") == 256:
            self.pair = True
        opcode = ".".join(["tcgen05.mma", *(["ws"] if self.ws else []), *(["sp"] if self.sparse else [])])
        parts = [opcode, f"cta_group::{2 if self.pair else 1}", f"kind::{kind}"]
        if KINDS[kind].block_scaled:
            parts += ["block_scale", f"block{self.block or min(KINDS[kind].blocks)}"]
        return Named(async_instruction(".".join(parts)), {**self.shape, **formats})

    def _word(self, word: str) -> None:
        shape = _SHAPE.fullmatch(word)
        if shape is not None:
            sizes = [int(size) for size in shape.groups() if size]
            self.shape = dict(zip("mnk", sizes, strict=False))
        elif word in SCALED:
            self.kind, default, self.block = SCALED[word]
            self.formats.append(default)
        elif word.removeprefix("kind::") in KINDS and word not in FORMATS:
            self.kind = word.removeprefix("kind::")
        elif _format(word):
            self.formats.append(_format(word))
        elif word in ("sp", "sparse"):
            self.sparse = True
        elif word == "ws":
            self.ws = True
        elif word in _PAIR:
            self.pair = True
        elif word in ("block16", "block32"):
            self.block = int(word[5:])
        elif word in AMBIGUOUS:
            raise self._error(f"{word} may mean {' or '.join(AMBIGUOUS[word])}; name one of them")
        elif word not in _ONE:
            known = [*FORMATS, *SPELLINGS, *SCALED, *KINDS, "sparse", "ws", "pair", "block16", "block32"]
            near = nearest(word, known)
            hint = f" (did you mean {near!r}?)" if near else ""
            raise self._error(f"the word {word!r} is not known here{hint}")

    def _formats(self) -> dict[str, str]:
        """Return the formats of A, B and D: one is A's and B's; D stands first, as in PTX, or last."""
        given = list(self.formats)
        formats: dict[str, str] = {}
        if len(given) > 1:
            alike = len({_kind_of(name) for name in given}) == 1
            if given[0] in _RESULTS and (not alike or len(given) == 3):
                formats["d"] = given.pop(0)
            elif given[-1] in _RESULTS and (not alike or len(given) == 3):
                formats["d"] = given.pop()
        if len(given) > 2 or not all(_kind_of(name) for name in given):
            raise self._error("formats are those of A and B, and of D before or after them")
        if given:
            formats |= {"a": given[0], "b": given[-1]}
        return formats

    def _error(self, why: str) -> IllegalInstruction:
        return IllegalInstruction(
            f"{self.text!r}: {why}. A name is tcgen05, a shape (m128n256k16) and formats (bf16, e4m3, nvfp4)"
        )


def _format(word: str) -> str:
    """Return the format that a word names, or nothing."""
    name = SPELLINGS.get(word, word)
    return name if name in FORMATS else ""


def _kind_of(name: str) -> str:
    """Return the kind without block scales that multiplies a format, or nothing."""
    return next((kind.name for kind in KINDS.values() if name in kind.formats), "")
