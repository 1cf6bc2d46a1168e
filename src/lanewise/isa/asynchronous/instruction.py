"""Find an asynchronous instruction by its text, or list those that an arch has.

Matrix instructions of a warp or warpgroup are in `isa/catalogue.py`.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from lanewise.engines import Drawn
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.hints import Values
from lanewise.isa.archs import describe_targets, find_arch
from lanewise.isa.asynchronous.table import Row, archs_of, families, rows
from lanewise.isa.asynchronous.words import OPCODES, meaning

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
        opcode = self.text[len(self.family) :].partition(".")[2] if self._suffixed else self._modifiers
        return tuple((word, meaning(word)) for word in opcode.split(".") if word)

    @property
    def _suffixed(self) -> bool:
        return self.text.startswith(f"{self.family}::")  # tcgen05.wait::ld

    @property
    def _modifiers(self) -> str:
        return self.text.removeprefix(self.family).removeprefix(".")

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
