"""`lanewise list`: the forms of the catalogue that answer a question, or how many there are where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli.input.options import ArchName, StyleOptions, flag, valued, with_groups
from lanewise.cli.terminal.answer import Answer, Cell, Table, show, style_of
from lanewise.errors import LanewiseError
from lanewise.formats import AMBIGUOUS, SPELLINGS
from lanewise.hints import nearest
from lanewise.isa import ARCHS, FAMILIES, describe_targets, find_arch, instructions
from lanewise.isa.asynchronous import AsyncInstruction, async_instructions, families, is_asynchronous
from lanewise.isa.asynchronous.descriptor import legal_shapes, product_of
from lanewise.isa.naming.tcgen05_names import SCALED

if TYPE_CHECKING:
    from lanewise.isa import Instruction

#: Words that say whether A is sparse, as --sparse and --dense do; names of instructions have .sp or nothing.
_SPARSITY = ("sparse", "dense")
#: The columns of a list of forms, and of those of Blackwell's instructions and copies.
_COLUMNS = ("instruction", "D", "A", "B", "C", "archs", "PTX")
_ASYNCHRONOUS_COLUMNS = ("instruction", "operands", "archs", "PTX")
#: A shape as a word.
_SIZES = re.compile(r"m(\d+)n(\d+)(?:k(\d+))?")


def _format_option(name: str) -> object:
    return valued(f"--{name.lower()}", "FORMAT", f"Format of {name}, such as f16, half or e4m3.")


@dataclass(frozen=True)
class Filters:
    """The conditions that listed forms fit."""

    arch: ArchName = None
    family: Annotated[
        str | None,
        valued("--family", "FAMILY", f"One of {', '.join(FAMILIES)}; or tcgen05, cp.async.bulk, …"),
    ] = None
    a: Annotated[str | None, _format_option("A")] = None
    b: Annotated[str | None, _format_option("B")] = None
    c: Annotated[str | None, _format_option("C")] = None
    d: Annotated[str | None, _format_option("D")] = None
    shape: Annotated[
        str | None, valued("--shape", "SHAPE", "The shape, such as m16n8k16, or m64n*k16 for any N.")
    ] = None
    sparse: Annotated[bool, flag("--sparse", "Sparse forms only.")] = False
    dense: Annotated[bool, flag("--dense", "Dense forms only.")] = False
    kind: Annotated[
        str | None,
        valued(
            "--kind", "KIND", "f8f6f4, mxf8f6f4, mxf4, mxf4nvf4, or none for instructions without a kind."
        ),
    ] = None
    withdrawn: Annotated[
        bool, flag("--withdrawn", "List also forms that later versions of PTX withdrew.")
    ] = False


@with_groups
def list_forms(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", help="A word that the name of the instruction has, such as m16n8k16 or bf16."
        ),
    ] = None,
    *,
    filters: Filters,
    count: Annotated[bool, flag("--count", "Count the forms of each family on each arch.")] = False,
    every: Annotated[
        bool, flag("--all", "List every form; without this and any condition, families are counted.")
    ] = False,
    shown: StyleOptions,
) -> Callable[[], None]:
    """List the matrix instructions that fit all conditions; without any, the families and what each is for.

    \b
    lanewise list                                  the families, with how many forms each has
    lanewise list mma bf16                         every mma with bf16 in it
    lanewise list mma sparse f16                   every sparse mma with f16 in it
    lanewise list tcgen05                          what Blackwell adds
    lanewise list --arch sm_86 --family mma        what an RTX 30 has, and how it runs it
    lanewise list --a e4m3 --shape "m16n8k*"       every form on FP8
    lanewise list --count                          how many forms each arch has
    lanewise list --arch sm_90a --family wgmma --csv > wgmma.csv
    lanewise list tcgen05.mma kind::f16            also tcgen05, bulk copies and tensor copies
    lanewise list tcgen05.mma bf16 m256n64         those whose kind has this format and this shape
    lanewise list --all --json > forms.json        all of them

    Operand variants are listed as their own: wgmma with A in registers or behind a descriptor,
    wmma.load and store with and without a stride.
    """
    style = style_of(**vars(shown))
    name = find_arch(filters.arch) if filters.arch is not None else None
    family, withdrawn = filters.family, filters.withdrawn
    sparse = _sparsity(filters, words or [])
    words = [word for word in words or () if word.lower() not in _SPARSITY]
    if family is None and words and any(family.startswith(words[0]) for family in families()):
        family, *words = words
    chosen = {"--a": filters.a, "--b": filters.b, "--c": filters.c, "--d": filters.d,
              "--shape": filters.shape, "--sparse": sparse, "--kind": filters.kind}  # fmt: skip
    given = {option: value for option, value in chosen.items() if value is not None}
    if family is not None and is_asynchronous(family):
        if given:
            raise LanewiseError(f"{family} is chosen by words alone, such as kind::f16 or cta_group::2")
        return partial(show, _asynchronous(family, name, words, count), style)
    given = {
        **({"--arch": name} if name is not None else {}),
        **({"--family": family} if family is not None else {}),
        **given,
    }
    if not (given or words or count or every or withdrawn) and style == "text":
        return partial(show, _families(), style)
    fitting = _fitting(given, words, withdrawn)
    if not fitting:
        return partial(show, _nothing(given, words, withdrawn), style)
    answer = _counts(fitting, name) if count else _forms(fitting, name)
    return partial(show, answer, style)


def _sparsity(filters: Filters, words: list[str]) -> bool | None:
    """Return whether sparse forms are wanted, or dense ones, by option or word; None for both."""
    named = {word.lower() for word in words}
    sparse, dense = filters.sparse or "sparse" in named, filters.dense or "dense" in named
    if sparse and dense:
        raise LanewiseError("sparse and dense exclude each other; give one")
    return sparse if sparse or dense else None


def _families() -> Answer:
    """Count the forms of each family, and say on which archs they run and how one asks for them."""
    by_family: dict[str, list[Instruction | AsyncInstruction]] = {}
    every: list[Instruction | AsyncInstruction] = [*instructions(), *async_instructions()]
    for form in every:
        by_family.setdefault(form.family, []).append(form)
    rows: list[list[Cell]] = []
    for family, forms in by_family.items():
        somewhere = {arch for form in forms for arch in form.archs}
        archs = describe_targets(tuple(arch for arch in ARCHS if arch in somewhere))
        rows.append([family, len(forms), archs, forms[0].text])
    table = Table("", ("family", "forms", "archs", "for example"), rows)
    notes = (
        f"{sum(map(len, by_family.values())):,} forms in {len(rows)} families. Words narrow them down: "
        "`lanewise list mma bf16`, `lanewise list wgmma e4m3`; `lanewise list --all` lists every form.",
    )
    return Answer((table,), {family: len(forms) for family, forms in by_family.items()}, notes)


def _has_word(text: str, word: str) -> bool:
    """Whether a modifier, or several in a row, stand in the text as a whole: f16 is not in bf16.

    `half` and `fp16` are taken for f16, `fp8` for e4m3 or e5m2, and `16x8x16` for m16n8k16.
    """
    plain = word.strip(".").lower()
    spellings = AMBIGUOUS.get(plain) or (SPELLINGS.get(plain) or _shape(plain) or plain,)
    return any(
        re.search(rf"(?<![a-z0-9_]){re.escape(spelling)}(?![a-z0-9_])", text, re.I) for spelling in spellings
    )


def _shape(text: str | None) -> str | None:
    """A shape in PTX's words; 16x8x16 is taken for m16n8k16."""
    match = re.fullmatch(r"(\d+|\*)x(\d+|\*)(?:x(\d+|\*))?", text or "")
    if match is None:
        return text
    return "".join(f"{letter}{size}" for letter, size in zip("mnk", match.groups(), strict=True) if size)


def _forms(forms: list[Instruction], arch: str | None) -> Answer:
    variants = [_variant(form) for form in forms]
    columns = ["instruction", "D", "A", "B", "C", "archs", "PTX"]
    columns += ["variant"] if any(variants) else []
    columns += [f"runs on {arch} as"] if arch else []
    rows: list[list[Cell]] = []
    for form, variant in zip(forms, variants, strict=True):
        row: list[Cell] = [
            form.text,
            *(form.operands[name].registers if name in form.operands else "-" for name in "dabc"),
            describe_targets(form.archs),
            f"{form.since}+" if form.until is None else f"{form.since}-{form.until}",
        ]
        row += [variant] if any(variants) else []
        row += [str(form.lowering(arch))] if arch else []
        rows.append(row)
    table = Table("", tuple(columns), rows, catalogue=True)
    total = f"{len(forms)} form{'s' if len(forms) != 1 else ''}"
    note = f"{total}; the columns D, A, B and C have the registers of each lane."
    return Answer((table,), [_data(form, arch) for form in forms], (note,), table)


def _nothing(given: dict[str, Any], words: list[str], withdrawn: bool) -> Answer:
    """Say that no form fits, which word no form has, or without which condition some would fit."""
    every = instructions(withdrawn=withdrawn)
    for word in words:
        if not any(_has_word(form.text, word) for form in every):
            known = {part for form in every for part in re.findall(r"[a-z0-9_]+", form.text)} | {*SPELLINGS}
            return _said(_unknown_word(word, nearest(word.strip("."), sorted(known), 0.5)))
    fits = []
    for option in given:
        rest = {key: value for key, value in given.items() if key != option}
        count = len(_fitting(rest, words, withdrawn))
        if count:
            fits.append(f"{count:,} without {_written(option, given[option])}")
    for word in words:
        count = len(_fitting(given, [other for other in words if other != word], withdrawn))
        if count:
            fits.append(f"{count:,} without {word}")
    return _said(_without(fits))


def _unknown_word(word: str, near: str | None) -> str:
    """Say that no instruction has a word, and which one may be meant."""
    return f"No instruction has the word {word!r} in its name." + (f" Did you mean {near}?" if near else "")


def _without(fits: list[str]) -> str:
    """Say that nothing fits, and how many forms would without a condition."""
    if not fits:
        return "No form fits all of that; leave out some of the conditions."
    return f"No form fits all of that; there are {', '.join(fits)}."


def _written(option: str, value: object) -> str:
    """Return an option as it was written on the command line."""
    return f"{option} {value}" if not isinstance(value, bool) else "--sparse" if value else "--dense"


def _fitting(given: dict[str, Any], words: list[str], withdrawn: bool) -> list[Instruction]:
    """Return the forms that fit options, by their names on the command line, and words."""
    chosen = {option.lstrip("-"): value for option, value in given.items()}
    if "shape" in chosen:
        chosen["shape"] = _shape(chosen["shape"])
    fitting = instructions(**chosen, withdrawn=withdrawn)
    return [form for form in fitting if all(_has_word(form.text, word) for word in words)]


def _said(note: str, columns: tuple[str, ...] = _COLUMNS) -> Answer:
    """Return an answer without forms."""
    return Answer((), [], (note,), Table("", columns, [], catalogue=True))


def _spelled(word: str) -> str:
    """Return a word as names of instructions have it: in small letters, and a shape as m16n8k16."""
    plain = word.strip(".").lower()
    return _shape(plain) or plain


def _fits_word(form: AsyncInstruction, word: str) -> bool:
    """Whether a form has a word in its name, or a tcgen05.mma the format or shape that it names."""
    if _has_word(form.text, word):
        return True
    if not form.multiplies:
        return False
    product = product_of(form.text)
    plain = _spelled(word)
    if plain in SCALED:
        kind, _, block = SCALED[plain]
        return (product.kind.name, product.block) == (kind, block)
    sizes = _SIZES.fullmatch(plain)
    if sizes is not None:
        legal = legal_shapes(product)
        return all(
            int(size) in sizes_allowed
            for size, sizes_allowed in zip(sizes.groups(), legal, strict=True)
            if size
        )
    formats = AMBIGUOUS.get(plain) or (SPELLINGS.get(plain, plain),)
    return any(name in (*product.kind.formats, *product.kind.d, *product.kind.scales) for name in formats)


def _fitting_asynchronous(family: str, arch: str | None, words: list[str]) -> list[AsyncInstruction]:
    """Return the forms of an opcode, or of all that begin with it, that an arch has and that fit words."""
    exact = family in families()
    return [
        form
        for form in async_instructions(arch, family if exact else None)
        if (exact or form.family.startswith(family)) and all(_fits_word(form, word) for word in words)
    ]


def _nothing_asynchronous(family: str, arch: str | None, words: list[str]) -> Answer:
    """Say which word no form has, or without which condition some would fit."""
    every = async_instructions()
    for word in words:
        if not _SIZES.fullmatch(_spelled(word)) and not any(_fits_word(form, word) for form in every):
            known = {part for form in every for part in re.findall(r"[a-z0-9_]+", form.text)}
            near = nearest(_spelled(word), sorted(known | {*SPELLINGS, *SCALED}), 0.5)
            return _said(_unknown_word(word, near), _ASYNCHRONOUS_COLUMNS)
    counts = {f"--arch {arch}": len(_fitting_asynchronous(family, None, words))}
    for word in words:
        rest = [other for other in words if other != word]
        counts[word] = len(_fitting_asynchronous(family, arch, rest))
    fits = [f"{count:,} without {condition}" for condition, count in counts.items() if count]
    return _said(_without(fits), _ASYNCHRONOUS_COLUMNS)


def _asynchronous(family: str, arch: str | None, words: list[str], count: bool) -> Answer:
    """List tcgen05 instructions, bulk copies or tensor copies: an opcode, or all that begin with it."""
    if not any(name.startswith(family) for name in families()):
        raise LanewiseError(f"unknown family {family!r}; the families are {', '.join(families())}")
    forms = _fitting_asynchronous(family, arch, words)
    if not forms:
        return _nothing_asynchronous(family, arch, words)
    if count:
        counted = Counter(form.family for form in forms)
        counts: list[list[Cell]] = [[name, many] for name, many in counted.items()]
        table = Table("", ("family", "forms"), [*counts, ["all", len(forms)]], grid=True)
        return Answer((table,), dict(counted))
    rows: list[list[Cell]] = [
        [form.text, form.operands, describe_targets(form.archs), f"{form.since}+"] for form in forms
    ]
    table = Table("", _ASYNCHRONOUS_COLUMNS, rows, catalogue=True)
    data = [
        {"text": form.text, "operands": form.operands, "archs": list(form.archs), "since": form.since}
        for form in forms
    ]
    note = f"{len(forms)} form{'s' if len(forms) != 1 else ''}."
    return Answer((table,), data, (note,), table)


def _data(form: Instruction, arch: str | None) -> dict[str, object]:
    data: dict[str, Any] = {
        "text": form.text,
        "family": form.family,
        "shape": list(form.shape),
        "formats": {name: operand.format.name for name, operand in form.operands.items()},
        "registers": {name: operand.registers for name, operand in form.operands.items()},
        "variant": _variant(form),
        "archs": list(form.archs),
        "since": form.since,
        "until": form.until,
    }
    if arch:
        data["lowering"] = form.lowering(arch)._asdict()
    return data


def _counts(forms: list[Instruction], arch: str | None) -> Answer:
    counted = Counter((form.family, name) for form in forms for name in form.archs)
    archs = (arch,) if arch else ARCHS
    families = [family for family in FAMILIES if any(form.family == family for form in forms)]
    rows: list[list[Cell]] = [[family, *(counted[family, name] for name in archs)] for family in families]
    rows.append(["all", *(sum(counted[family, name] for family in families) for name in archs)])
    table = Table("", ("family", *archs), rows, grid=True)
    data = {family: {name: counted[family, name] for name in archs} for family in families}
    return Answer((table,), data)


def _variant(form: Instruction) -> str:
    if form.a_source:
        return f"A in {'registers' if form.a_source == 'registers' else 'shared memory'}"
    if form.family in ("wmma.load", "wmma.store"):
        return "with stride" if form.stride else "no stride"
    return ""
