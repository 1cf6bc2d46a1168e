"""Find an asynchronous instruction by its text, or list those that an arch has; what its words mean.

Which words go together is in `table.py`; matrix instructions of a warp or warpgroup, in `isa/catalogue.py`.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from lanewise.engines import Drawn
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.hints import Values
from lanewise.isa.archs import describe_targets, find_arch
from lanewise.isa.asynchronous.table import Row, archs_of, families, rows
from lanewise.tracebacks import short_traceback

#: What an opcode does, in a sentence.
OPCODES = {
    "tcgen05.alloc": "One warp allocates columns of tensor memory and writes their address to shared memory.",
    "tcgen05.dealloc": "One warp gives columns of tensor memory back.",
    "tcgen05.relinquish_alloc_permit": "The block promises to allocate no more tensor memory.",
    "tcgen05.ld": "A warp loads its 32 lanes of tensor memory into registers; tcgen05.wait::ld waits for it.",
    "tcgen05.ld.red": "A load from tensor memory that also gives each lane the least or greatest value.",
    "tcgen05.st": "A warp stores registers to its 32 lanes of tensor memory; tcgen05.wait::st waits for it.",
    "tcgen05.wait": "A warp waits until its loads (::ld) or stores (::st) of tensor memory are complete.",
    "tcgen05.cp": "One thread starts a copy from shared memory to tensor memory.",
    "tcgen05.shift": "One thread starts a shift of 32 rows of tensor memory by one row.",
    "tcgen05.commit": "Arrives at an mbarrier when all tcgen05 operations that this thread started are done.",
    "tcgen05.fence": "Orders tcgen05 operations with the synchronisation of threads before or after it.",
    "tcgen05.mma": "One thread starts D = A·B + D for a block, or for two: D lies in tensor memory, B behind "
    "a descriptor of shared memory, A behind one or in tensor memory.",
    "tcgen05.mma.sp": "tcgen05.mma with a 2:4 sparse A, whose metadata lie in tensor memory.",
    "tcgen05.mma.ws": "tcgen05.mma that keeps B in a buffer between instructions (weight stationary).",
    "tcgen05.mma.ws.sp": "tcgen05.mma.ws with a 2:4 sparse A.",
    "cp.async.bulk": "One thread starts a copy of bytes that are one block of memory, at both ends.",
    "cp.async.bulk.prefetch": "One thread asks for bytes of global memory in L2.",
    "cp.async.bulk.commit_group": "Closes the group of the bulk copies that this thread started so far.",
    "cp.async.bulk.wait_group": "Waits until at most so many of this thread's groups are on their way.",
    "cp.reduce.async.bulk": "One thread starts a bulk copy that combines elements with those in memory.",
    "cp.async.bulk.tensor": "One thread starts a copy of a box of an array, described by a tensor map (TMA).",
    "cp.reduce.async.bulk.tensor": "A tensor copy to global memory that combines elements with those there.",
    "cp.async.bulk.prefetch.tensor": "One thread asks for a box of an array in L2.",
}

WORDS = {
    "cta_group::1": "one block takes part",
    "cta_group::2": "a pair of blocks of a cluster takes part",
    "sync": "all lanes of the warp execute it together",
    "aligned": "all lanes execute this same instruction",
    "b32": "units of 32 bits",
    "b64": "the mbarrier has 64 bits",
    "pack::16b": "two 16-bit elements of neighbouring columns are packed into a register",
    "unpack::16b": "the two 16-bit halves of a register go to neighbouring columns",
    "min": "the lesser of two values",
    "max": "the greater of two values",
    "abs": "of absolute values",
    "NaN": "a NaN among the values is the result",
    "add": "the sum",
    "inc": "count up to the given value, then from 0",
    "dec": "count down to 0, then from the given value",
    "and": "bits that both have",
    "or": "bits that one of them has",
    "xor": "bits in which they differ",
    "noftz": "subnormal numbers are kept",
    "warpx2::02_13": "the 64 rows are copied to warps 0 and 2, and 1 and 3",
    "warpx2::01_23": "the 64 rows are copied to warps 0 and 1, and 2 and 3",
    "warpx4": "the 32 rows are copied to all four warps' lanes",
    "b8x16": "elements become 8 bits wide, 16 of them in a piece",
    "b6x16_p32": "from 16 elements of 6 bits and 32 bits of padding",
    "b4x16_p64": "from 16 elements of 4 bits and 64 bits of padding",
    "down": "towards lower rows",
    "mbarrier::arrive::one": "one arrival at the mbarrier when everything is complete",
    "mbarrier::complete_tx::bytes": "an mbarrier counts the bytes that have arrived",
    "multicast::cluster": "to several blocks of the cluster, which a mask names",
    "bulk_group": "this thread waits for it by groups: commit_group, wait_group",
    "read": "only until the sources have been read",
    "cp_mask": "a mask says which bytes of every 16 are written",
    "shared::cta": "shared memory of this block",
    "shared::cluster": "shared memory of a block of the cluster",
    "global": "global memory",
    "L2": "into the L2 cache",
    "L2::cache_hint": "a 64-bit policy for the L2 cache is the last operand",
    "ashift": "rows of A are shifted by one (A lies in tensor memory)",
    "block_scale": "blocks of elements along K have scale factors, which lie in tensor memory",
    "scale_vec::1X": "one scale factor for each row and 32 elements of K",
    "scale_vec::2X": "two scale factors for each row along K",
    "scale_vec::4X": "four scale factors for each row along K",
    "block16": "a scale factor for each 16 elements",
    "block32": "a scale factor for each 32 elements",
    "kind::f16": "A and B are f16 or bf16; D is f16 or f32",
    "kind::tf32": "A and B are tf32; D is f32",
    "kind::f8f6f4": "A and B are e4m3, e5m2, e3m2, e2m3 or e2m1, each its own; D is f16 or f32",
    "kind::i8": "A and B are s8 or u8; D is s32",
    "kind::mxf8f6f4": "A and B are e4m3, e5m2, e3m2, e2m3 or e2m1 with ue8m0 scales; D is f32",
    "kind::mxf4": "A and B are e2m1 with ue8m0 scales; D is f32",
    "kind::mxf4nvf4": "A and B are e2m1 with ue8m0 or ue4m3 scales; D is f32",
    "tile": "boxes as the tensor map says (the default)",
    "tile::gather4": "four rows, each with its own coordinate",
    "tile::scatter4": "four rows, each with its own coordinate",
    "im2col": "boxes of a convolution's input, by offsets",
    "im2col_no_offs": "boxes of a convolution's output, without offsets",
    "im2col::w": "as im2col, along the width alone",
    "im2col::w::128": "as im2col::w, for 128 elements of the width",
}
WORDS |= {
    f"collector::{buffer}::{use}": f"the buffer of {buffer.upper()} {meaning}"
    for buffer in ("a", "b0", "b1", "b2", "b3")
    for use, meaning in (
        ("fill", "is filled for later instructions"),
        ("use", "is used, and kept"),
        ("lastuse", "is used for the last time"),
        ("discard", "is not kept (the default)"),
    )
}
_PATTERNS = (
    (r"(\d)d", r"a tensor of \1 dimensions"),
    (r"x(\d+)", r"\1 times along the columns"),
    (r"(\d+)x(\d+)b", r"\1 lanes by \2 bits of tensor memory"),
    (r"16x32bx2", r"two halves of 16 lanes by 32 bits, the second at an offset"),
    (r"([usf]|bf)(8|16|32|64)", r"elements are \1\2"),
)


def meaning(word: str) -> str:
    """What a word of an instruction says.

    >>> meaning("x8"), meaning("cta_group::2")
    ('8 times along the columns', 'a pair of blocks of a cluster takes part')
    """
    if word in WORDS:
        return WORDS[word]
    for pattern, words in _PATTERNS:
        match = re.fullmatch(pattern, word)
        if match:
            return match.expand(words)
    return ""


_SPACES = ("global", "shared::cta", "shared::cluster")
#: The most forms that a message lists.
_MOST_LISTED = 6


@dataclass(frozen=True)
class AsyncInstruction(Drawn):
    """An instruction that one thread or warp starts and that completes later: tcgen05, or a bulk copy.

    >>> alloc = async_instruction("tcgen05.alloc.cta_group::1.sync.aligned.b32")
    >>> alloc.archs, alloc.operands
    (('sm_100a', 'sm_100f', 'sm_103a', 'sm_110a', 'sm_110f'), '[shared address], columns')
    """

    text: str
    row: Row

    @property
    def family(self) -> str:
        """The opcode without modifiers."""
        return self.row.family

    @property
    def operands(self) -> str:
        """The operands as PTX orders them; brackets are addresses, braces are vectors of registers."""
        return self.row.operands

    @property
    def multiplies(self) -> bool:
        """Whether it computes D = A·B + D; `lw.instruction` returns those as instructions that compute."""
        return ".mma" in self.family

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs that have it, by name."""
        return Values(archs_of(self.row))

    @property
    def since(self) -> str:
        """The first PTX version that has it."""
        return self.row.since

    @property
    def does(self) -> str:
        """What it does, in a sentence."""
        return OPCODES[self.family]

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Each word after the opcode, and what it says.

        >>> async_instruction("tcgen05.wait::ld.sync.aligned").words[0]
        ('sync', 'all lanes of the warp execute it together')
        """
        modifiers = self.text.removeprefix(self.family).partition(".")[2]  # behind ::ld of tcgen05.wait::ld
        return tuple((word, meaning(word)) for word in modifiers.split(".") if word)

    def require(self, arch: str) -> str:
        """Return the full name of an arch; raise an error if the arch does not have this instruction."""
        name = find_arch(arch)
        if name not in self.archs:
            raise IllegalInstruction(
                f"{self.text}: {name} does not have it; {describe_targets(self.archs)} have"
            )
        return name

    def __repr__(self) -> str:
        return f"<{self.text}>"


@cache
def _forms() -> dict[frozenset[str], AsyncInstruction]:
    """Every form by its words, in whatever order they are written."""
    forms: dict[frozenset[str], AsyncInstruction] = {}
    for row in rows():
        for text in row.texts():
            forms[frozenset(text.split("."))] = AsyncInstruction(text, row)
    return forms


@short_traceback
def async_instruction(text: str, *, arch: str | None = None) -> AsyncInstruction:
    """Return the tcgen05 instruction, bulk copy or tensor copy that a text spells.

    Operands after it are ignored. With `arch`, the instruction must be legal there.

    >>> async_instruction("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32").since
    '8.8'
    """
    if not isinstance(text, str):
        raise LanewiseError(f"an instruction is text, not {text!r}")
    head = text.strip().partition(" ")[0].rstrip(";").partition("[")[0]
    form = _forms().get(frozenset(head.split(".")))
    if form is None or _spaces(head) != _spaces(form.text) or len(head) != len(form.text):
        raise _refusal(head)
    if arch is not None:
        form.require(arch)
    return form


def is_form(head: str) -> bool:
    """Whether a text without operands has the words of a form, in whatever order.

    >>> is_form("tcgen05.mma.kind::f16.cta_group::1"), is_form("tcgen05 m128n256k16 bf16")
    (True, False)
    """
    return frozenset(head.split(".")) in _forms()


@short_traceback
def async_instructions(arch: str | None = None, family: str | None = None) -> list[AsyncInstruction]:
    """Return every asynchronous instruction, or those of an arch and of a family.

    >>> [form.text for form in async_instructions("sm_100a", "tcgen05.shift")]
    ['tcgen05.shift.cta_group::1.down', 'tcgen05.shift.cta_group::2.down']
    """
    name = find_arch(arch) if arch is not None else None
    if family is not None and family not in families():
        raise LanewiseError(f"unknown family {family!r}; families are {', '.join(families())}")
    return [
        form
        for form in _forms().values()
        if (name is None or name in form.archs) and (family is None or family == form.family)
    ]


def is_asynchronous(text: str) -> bool:
    """Whether a text begins as one of these instructions does."""
    return text.strip().lower().startswith(("tcgen05", "umma ", "cp.async.bulk", "cp.reduce.async.bulk"))


def _spaces(text: str) -> list[str]:
    """The state spaces in the order in which they are written: the target, then the source."""
    return [word for word in text.split(".") if word in _SPACES]


def _refusal(head: str) -> IllegalInstruction:
    """Say which word does not fit, and the nearest form."""
    if any(f"{family}.".startswith(f"{head}.") for family in families()):  # an opcode without its words
        begun = [form for form in _forms().values() if f"{form.text}.".startswith(f"{head}.")]
        return IllegalInstruction(_begun(head, begun))
    words = head.split(".")
    known = {word for form in _forms() for word in form}
    unknown = [word for word in words if word not in known]
    mended = {
        (get_close_matches(word, known, 1, 0.5) or [""])[0] if word in unknown else word for word in words
    }
    nearest = min(_forms().values(), key=lambda form: _distance(mended, frozenset(form.text.split("."))))
    about = (
        f"{', '.join(unknown)} is no word of these instructions"
        if unknown and any(unknown)
        else "there is no form with these words in this order"
    )
    short = head if len(head) < 160 else f"{head[:157]}…"
    return IllegalInstruction(
        f"{short}: {about}. Nearest legal form: {nearest.text} "
        f"({describe_targets(nearest.archs)}; PTX {nearest.since})"
    )


def _begun(head: str, forms: list[AsyncInstruction]) -> str:
    """Return the message for a text that is the beginning of some forms: the shortest of each family."""
    shortest: dict[str, AsyncInstruction] = {}
    ordered = sorted(forms, key=lambda form: (form.text.count("."), "f16" not in form.text))
    for form in ordered:
        shortest.setdefault(form.family, form)
    shown = list(shortest.values()) if len(shortest) > 1 else ordered
    lines = [f"    {form.text}" for form in shown[:_MOST_LISTED]]
    if len(forms) > len(lines):
        lines.append(f"    and {len(forms) - len(lines)} more: lanewise list --family {head}")
    return "\n".join([f"{head!r} begins {len(forms)} instructions; ask again with the one you mean:", *lines])


def _distance(words: set[str], form: frozenset[str]) -> tuple[int, int]:
    return len(words - form) * 2 + len(form - words), len(form)
