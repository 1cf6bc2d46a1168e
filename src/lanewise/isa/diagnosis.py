"""Why a form is not legal: the modifier that is wrong, what the rest allows, and the nearest form that exists."""

from __future__ import annotations

from lanewise.errors import IllegalInstruction
from lanewise.isa.archs import describe_targets
from lanewise.isa.form import Form
from lanewise.isa.table import Legality, forms

_NAMES = {
    "shape": "shape", "layout 0": "layout of A", "layout 1": "layout of B", "layouts": "layouts", "types": "types",
    "type 0": "type of D", "type 1": "type of A", "type 2": "type of B", "type 3": "type of C",
    "satfinite": ".satfinite", "kind": ".kind", "scale": "scale", "rounding": "rounding", "bitop": "bit operation",
    "num": "number of matrices", "trans": ".trans", "space": "state space", "matrix": "matrix",
}  # fmt: skip


def features(form: Form) -> dict[str, object]:
    """A form as what a reader sees in its text, one entry a modifier."""
    seen: dict[str, object] = {
        "shape": form.shape_text, "satfinite": form.satfinite, "kind": form.kind, "rounding": form.rounding,
        "bitop": form.bitop, "num": form.num, "trans": form.trans, "space": form.space, "matrix": form.matrix,
        "scale": (form.scale_vec, form.scale_type), "layouts": len(form.layouts), "types": len(form.types),
    }  # fmt: skip
    seen.update({f"layout {i}": layout for i, layout in enumerate(form.layouts)})
    seen.update({f"type {i}": name for i, name in enumerate(form.types)})
    return seen


def refuse(form: Form, written: str) -> IllegalInstruction:
    """The error for a form that is not in the catalogue."""
    known = forms(form.family)
    legality = known.get(form)
    if legality is not None and not legality.documented:
        return IllegalInstruction(
            f"{written}: ptxas accepts it, but no document mentions it, so what it computes is nobody's promise; "
            f"it is not in the catalogue. {_nearest_words(_nearest(form, known))}"
        )
    near = _nearest(form, known)
    wrong = [name for name, value in features(form).items() if features(near[0]).get(name) != value]
    allowed = _allowed(form, known)
    if allowed:
        parts = [
            f"{_NAMES[name]} {_spell(name, features(form)[name])} does not go with the rest, which "
            f"{_allows(name, values)}"
            for name, values in allowed.items()
        ]
        reason = "; or ".join(parts)
    else:
        reason = "does not exist: " + ", ".join(
            f"{_NAMES[name]} {_spell(name, features(form)[name])}" for name in wrong
        )
    return IllegalInstruction(f"{written}: {reason}. {_nearest_words(near)}")


def _documented(known: dict[Form, Legality]) -> list[tuple[Form, Legality]]:
    return [(form, legality) for form, legality in known.items() if legality.documented]


def _allowed(form: Form, known: dict[Form, Legality]) -> dict[str, list[object]]:
    """For each modifier whose change alone makes the form legal: the values that do."""
    mine = features(form)
    found: dict[str, list[object]] = {}
    for other, _ in _documented(known):
        theirs = features(other)
        if theirs.keys() != mine.keys():
            continue
        differing = [name for name, value in theirs.items() if mine[name] != value]
        if len(differing) == 1 and theirs[differing[0]] not in found.setdefault(differing[0], []):
            found[differing[0]].append(theirs[differing[0]])
    return {name: values for name, values in found.items() if values}


def _nearest(form: Form, known: dict[Form, Legality]) -> tuple[Form, Legality]:
    mine = features(form)

    def distance(entry: tuple[Form, Legality]) -> tuple[float, int]:
        theirs = features(entry[0])
        weight = sum(
            0.9 if name == "shape" else 1.0 for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)
        )
        return weight, _shape_distance(form, entry[0])

    return min(_documented(known), key=distance)


def _shape_distance(one: Form, other: Form) -> int:
    return sum(abs(x - y) for x, y in zip(one.shape, other.shape, strict=False))


def _nearest_words(near: tuple[Form, Legality]) -> str:
    form, legality = near
    return f"Nearest legal form: {form.text} ({describe_targets(legality.archs)}; PTX {legality.since})"


def _spell(name: str, value: object) -> str:
    match value:
        case "":
            return "left out"
        case bool():
            return "there" if value else "left out"
        case (0, ""):
            return "left out"
        case (int() as vector, str() as kind):
            return f".scale_vec::{vector}X with .{kind}" if vector else f".{kind}"
        case int():
            return f".x{value}" if name == "num" and value else ("left out" if name == "num" else str(value))
        case _:
            return f".{value}"


def _allows(name: str, values: list[object]) -> str:
    if values == [True]:
        return f"requires {_NAMES[name]}"
    if values == [False] or values in ([""], [(0, "")]):
        return "wants it left out"
    spelled = [_spell(name, value) for value in values]
    shown = spelled if len(spelled) <= 12 else [*spelled[:11], f"… ({len(spelled)} in all)"]
    return f"{'allows' if len(values) > 1 else 'requires'} {', '.join(shown)}"
