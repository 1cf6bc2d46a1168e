"""Why an instruction is refused: the modifier that is wrong, what the rest allows, the nearest legal form.

Knows the table only; what the words of a text are was settled by `syntax.py`.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import compress
from operator import ne
from typing import NamedTuple

from lanewise.errors import IllegalInstruction
from lanewise.isa.archs import describe_targets
from lanewise.isa.form import FAMILIES, Form, sizes
from lanewise.isa.syntax import TYPES, corrected, split_family
from lanewise.isa.table import Legality, forms

#: How far a change of a modifier leads away from what was meant; 1 unless given here. A shape is chosen with
#: care, C follows D; what was merely forgotten costs a little less, integers in place of floats a lot more.
_WEIGHTS = {
    "shape": 1.9, ".sp": 2.5, "type of D": 0.9, "type of C": 0.8, "layout of A": 0.9, "layout of B": 0.9,
    ".satfinite": 0.7, "rounding": 0.7,
}  # fmt: skip
_FORGOTTEN = 0.9
_OTHER_NUMBERS = 2.0


class Entry(NamedTuple):
    """A documented form, what a reader sees of it, and the words of its text."""

    form: Form
    legality: Legality
    features: dict[str, object]
    words: Counter[str]


def features(form: Form) -> dict[str, object]:
    """A form as what a reader sees in its text, an entry a modifier; false values stand for none.

    Forms of one family, sparsity aside, have the same entries in the same order.
    """
    seen: dict[str, object] = {
        "shape": form.shape_text,
        ".sp": form.sparse,
        ".sp::ordered_metadata": "ordered" in form.family,
        ".satfinite": form.satfinite,
        "kind": form.kind,
        "block scale": (form.scale_vec, form.scale_type) if form.scale_vec or form.scale_type else (),
        "rounding": form.rounding,
        "bit operation": form.bitop,
        "number of matrices": form.num,
        ".trans": form.trans,
        "state space": form.space,
        "matrix": form.matrix,
    }
    if len(form.layouts) == 2:
        seen.update({"layout of A": form.layouts[0], "layout of B": form.layouts[1]})
    elif form.layouts:
        seen["layout"] = form.layouts[0]
    if len(form.types) >= 3:
        seen.update({f"type of {name}": kind for name, kind in zip("DABC", form.types, strict=False)})
    else:
        seen["type"] = ".".join(form.types)
    return seen


def refuse(form: Form, written: str, arch: str | None = None) -> IllegalInstruction:
    """The error for a form that is not in the catalogue."""
    legality = forms(form.family).get(form)
    nearest = _nearest(form, arch)
    reason = _reason(form, nearest)
    if legality is not None and not legality.documented:
        reason = (
            f"ptxas accepts it, but no document mentions it ({reason}), so what it computes is not defined"
        )
    return IllegalInstruction(f"{written}: {reason}. {_nearest_words(nearest)}")


def refuse_arch(form: Form, legality: Legality, arch: str) -> IllegalInstruction:
    """The error for a form that an arch does not have."""
    where = f"{form.text}: not on {arch}; legal on {describe_targets(legality.archs)}"
    if not any(arch in entry.legality.archs for entry in _entries(form.base_family)):
        return IllegalInstruction(f"{where}. {arch} has no {form.base_family} at all")
    return IllegalInstruction(f"{where}. {_nearest_words(_nearest(form, arch), f' on {arch}')}")


def add_nearest(error: IllegalInstruction, written: str) -> IllegalInstruction:
    """An error about a text that could not be read, with the legal form that shares most of its words."""
    try:
        family, modifiers = split_family(written)
    except IllegalInstruction:
        return error
    words = [corrected(word) for word in modifiers]
    count, types = Counter(words), [word for word in words if word in TYPES]

    def distance(entry: Entry) -> tuple[int, int]:
        shared = (count & entry.words).total()
        misplaced = sum(map(ne, types, entry.form.types))
        return entry.words.total() - 2 * shared, misplaced

    nearest = min(_entries(family), key=distance)
    stop = "" if str(error).endswith("?") else "."
    return IllegalInstruction(f"{error}{stop} {_nearest_words(nearest)}")


@cache
def _entries(base_family: str) -> tuple[Entry, ...]:
    """The documented forms of a family, dense and sparse, one of those that differ in their operands only."""
    entries: dict[str, Entry] = {}
    for family in FAMILIES:
        if family == base_family or family.startswith(f"{base_family}.sp"):
            for form, legality in forms(family).items():
                if legality.documented and legality.until is None:
                    words = Counter(split_family(form.text)[1])
                    entries.setdefault(form.text, Entry(form, legality, features(form), words))
    return tuple(entries.values())


def _reason(form: Form, nearest: Entry) -> str:
    mine = features(form)
    allowed = _allowed(form)
    order = sorted(allowed, key=lambda name: _WEIGHTS.get(name, 1.0))
    complaints = [_complaint(name, mine[name], allowed[name]) for name in order]
    parts = [
        f"{name} {_spell(name, value)} (here {_spell(name, mine[name])})"
        for name, value in nearest.features.items()
        if value != mine[name]
    ]
    if not complaints:
        return f"several modifiers do not go together; the nearest legal form has {', '.join(parts)}"
    if len(parts) > 1:  # two small changes may lead less far away than a large one
        complaints.append(" together with ".join(parts))
    return "; or ".join(complaints)


def _allowed(form: Form) -> dict[str, list[object]]:
    """For each modifier whose change alone makes the form legal: the values that do."""
    mine = features(form)
    allowed: dict[str, list[object]] = {}
    for entry in _entries(form.base_family):
        differ = list(map(ne, mine.values(), entry.features.values()))
        if sum(differ) == 1:
            name, value = list(entry.features.items())[differ.index(True)]
            if value not in allowed.setdefault(name, []):
                allowed[name].append(value)
    return allowed


def _nearest(form: Form, arch: str | None = None) -> Entry:
    mine = features(form)
    weights = [_WEIGHTS.get(name, 1.0) * (1.0 if value else _FORGOTTEN) for name, value in mine.items()]

    def distance(entry: Entry) -> tuple[float, int]:
        away = sum(compress(weights, map(ne, mine.values(), entry.features.values())))
        away += _OTHER_NUMBERS * ((form.types[0] == "s32") != (entry.form.types[0] == "s32"))
        return away, sum(abs(x - y) for x, y in zip(form.shape, entry.form.shape, strict=False))

    entries = _entries(form.base_family)
    return min([entry for entry in entries if arch in entry.legality.archs] or entries, key=distance)


def _nearest_words(near: Entry, where: str = "") -> str:
    targets = describe_targets(near.legality.archs)
    return f"Nearest legal form{where}: {near.form.text} ({targets}; PTX {near.legality.since})"


# words ----------------------------------------------------------------------------------------------------


def _complaint(name: str, value: object, allowed: list[object]) -> str:
    """What is wrong with one modifier, and which modifiers may stand there instead."""
    others = [_spell(name, word) for word in allowed if word] if name != "shape" else _spell_shapes(allowed)
    optional = not all(allowed)
    if not value:
        return f"{name} is missing; the rest requires {_either(others) if others != [name] else 'it'}"
    if not others:
        return f"{name if name.startswith('.') else _spell(name, value)} does not go with the rest"
    choices = _either([*others, "none"] if optional else others)
    return f"{name} is {_spell(name, value)}, where the rest allows {choices}{' only' * (len(allowed) == 1)}"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _spell(name: str, value: object) -> str:
    match value:
        case _ if not value:
            return "none"
        case True:
            return name
        case (int() as vector, str() as scale):
            factor = f".scale_vec::{vector}X" if vector else ""
            if not scale:
                return f"{factor} without .block_scale"
            return f".block_scale{factor} with .{scale}{'' if vector else ' and no .scale_vec'}"
        case int():
            return f".x{value}"
    return f".kind::{value}" if name == "kind" else f".{value}{'.popc' * (name == 'bit operation')}"


def _spell_shapes(shapes: Iterable[object]) -> list[str]:
    """Shapes one by one, or, where there are many that differ in N only, as ranges of N."""
    texts = [str(shape) for shape in shapes]
    if len(texts) <= 6:
        return [f".{text}" for text in texts]
    by_rest: dict[tuple[int, ...], list[int]] = {}
    for text in texts:
        m, n, *k = sizes(text)
        by_rest.setdefault((m, *k), []).append(n)
    return [
        f".m{m}nNk{k[0]} with N {_spell_numbers(widths)}" if k else f".m{m}nN with N {_spell_numbers(widths)}"
        for (m, *k), widths in by_rest.items()
    ]


def _spell_numbers(numbers: list[int]) -> str:
    """Ascending numbers as runs of equal steps: `8 to 32 in steps of 8, 48 to 256 in steps of 16`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        run = runs[-1] if runs else []
        if len(run) == 1 or (len(run) > 1 and number - run[-1] == run[-1] - run[-2]):
            run.append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]} in steps of {run[1] - run[0]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs
    )
