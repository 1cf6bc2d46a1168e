"""The catalogue: find one instruction by its text, or list those that answer a question.

Joins the table, the syntax and the diagnosis; what can be asked of an instruction is in `instruction.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Unpack, cast

from lanewise.engines import ATOM_INSTRUCTION
from lanewise.errors import IllegalInstruction, LanewiseError
from lanewise.formats import AMBIGUOUS, SPELLINGS
from lanewise.hints import nearest
from lanewise.isa.archs import find_arch
from lanewise.isa.diagnosis import add_nearest, refuse
from lanewise.isa.form import FAMILIES, Form
from lanewise.isa.instruction import Instruction
from lanewise.isa.statement import check_operands, split_statement
from lanewise.isa.syntax import KINDS, TYPES, read
from lanewise.isa.table import Legality, forms, legality_of
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from lanewise.isa.asynchronous.descriptor import InstructionDescriptor
    from lanewise.isa.asynchronous.products import DescriptorFields

#: How instructions begin that complete later, and names of tcgen05.mma: `isa/asynchronous` has them.
_ASYNCHRONOUS = re.compile(r"\s*(@!?[%\w$]+\s+)?(tcgen05|umma|cp\.(reduce\.)?async\.bulk)\b", re.I)


@short_traceback
def instruction(
    text: str,
    *,
    arch: str | None = None,
    a_source: str | None = None,
    stride: bool | None = None,
    descriptor: int | InstructionDescriptor | None = None,
    **fields: Unpack[DescriptorFields],
) -> Instruction:
    """Return the instruction that a text spells; its words may be in any order, and operands may follow.

    wgmma takes A from registers or through a descriptor of shared memory, and wmma.load and wmma.store exist
    with and without a stride. If the text has operands, they decide which form is meant. Otherwise `a_source`
    ("registers" or "descriptor", the default) and `stride` (True by default) decide. With `arch`, the
    instruction must be legal there, and its operands have the layouts of that arch (`Instruction.on`).

    A text without .sync and .aligned is read as a short name, such as `m16n8k16 bf16` or `HMMA.16816.F32`. If
    exactly one instruction fits it, that one is returned; if several fit, an error lists them. A name of
    CUTLASS, with or without its templates, stands for the instruction of that operation.

    tcgen05.mma takes M, N and its formats from an instruction descriptor: `descriptor` (32 bits or an object)
    or fields of it by name (m, n, a, b, d, negate_a, …). What is left open follows the arrays of a call.
    Other tcgen05 instructions, bulk copies and tensor copies are `AsyncInstruction`s, which say what they do
    and where they are legal.

    >>> instruction("mma.sync.aligned.row.col.m16n8k16.f32.bf16.bf16.f32").archs[0]
    'sm_80'
    >>> instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="bf16").shape
    (128, 64, 16)
    """
    if isinstance(text, str) and _ASYNCHRONOUS.match(text):
        if a_source is not None or stride is not None:
            raise LanewiseError("a_source is for wgmma, stride for wmma.load and wmma.store")
        return _asynchronous(text, arch, descriptor, dict(fields))
    if descriptor is not None or fields:
        given = ", ".join([*(["descriptor"] if descriptor is not None else []), *fields])
        raise LanewiseError(
            f"{given} chooses what an instruction descriptor says, which tcgen05.mma has; the text of other "
            "instructions says their shape and formats"
        )
    # Imported here, so that `import lanewise` does not wait for it.
    from lanewise.isa.naming.shorthand import is_cutlass_name, is_shorthand, meant

    wanted_arch = find_arch(arch) if arch is not None else None
    if is_cutlass_name(text):
        named_form = _of_cutlass(text, a_source, stride)
        return named_form.on(named_form.require(wanted_arch)) if wanted_arch is not None else named_form
    if is_shorthand(text) and a_source is None and stride is None:
        named = meant(text, wanted_arch)
        if named is not None:
            named_form = _instruction(*named)
            return named_form.on(wanted_arch) if wanted_arch is not None else named_form
    head, written = split_statement(text)
    try:
        form = read(head)
    except IllegalInstruction as error:
        raise add_nearest(error, head) from None
    form = _choose_operands(form, written, a_source, stride)
    legality = legality_of(form)
    if legality is None or not legality.documented:
        raise refuse(form, head, wanted_arch)
    named_form = _instruction(form, legality)
    if written:
        check_operands(named_form, written)
    if wanted_arch is not None:
        return named_form.on(named_form.require(wanted_arch))
    return named_form


def _asynchronous(
    text: str, arch: str | None, descriptor: int | InstructionDescriptor | None, fields: dict[str, object]
) -> Instruction:
    """Return a tcgen05.mma that computes; of other tcgen05 instructions and copies, what they are."""
    from lanewise.isa.asynchronous import async_instruction, tcgen05_instruction
    from lanewise.isa.naming.tcgen05_names import meant

    named = meant(text)
    if named is not None:
        form, fields = named.form, named.fields | fields
    else:
        form = async_instruction(re.sub(r"^umma\b", "tcgen05.mma", split_statement(text)[0], flags=re.I))
    if ".mma" in form.family:
        product = tcgen05_instruction(form, descriptor, **fields)
        if arch is not None:
            product.require(arch)
        return product
    if descriptor is not None or fields:
        raise LanewiseError(f"{form.text} multiplies nothing: it takes no instruction descriptor")
    if arch is not None:
        form.require(arch)
    return cast(Instruction, form)


def _of_cutlass(text: str, a_source: str | None, stride: bool | None) -> Instruction:
    """The instruction that an operation of CUTLASS stands for."""
    if a_source is not None or stride is not None:
        raise LanewiseError(
            f"{text} is an atom, whose name already decides this; leave a_source and stride out"
        )
    try:
        form = ATOM_INSTRUCTION.function(text)
    except LanewiseError as error:
        raise IllegalInstruction(str(error)) from None
    if not isinstance(form, Instruction):
        raise LanewiseError(
            f"{text} is no matrix instruction but a plain copy; lw.atom({text!r}) has it, and "
            f"`lanewise draw atom '{text}'` draws it"
        )
    return form


@lru_cache(maxsize=8192)
def _instruction(form: Form, legality: Legality) -> Instruction:
    return Instruction(**{part.name: getattr(form, part.name) for part in fields(Form)}, legality=legality)


@short_traceback
def instructions(
    arch: str | None = None,
    family: str | None = None,
    *,
    a: str | None = None,
    b: str | None = None,
    c: str | None = None,
    d: str | None = None,
    shape: str | Sequence[int] | None = None,
    kind: str | None = None,
    sparse: bool | None = None,
    withdrawn: bool = False,
) -> list[Instruction]:
    """Return every documented instruction on an arch, of a family, with operands of these formats.

    Variants of the operands are listed separately: wgmma with A in registers and with A behind a descriptor,
    wmma.load and wmma.store in every state space, with and without a stride. Forms that later PTX versions
    withdrew are listed only with `withdrawn`.

    >>> len(instructions("sm_90", "mma"))
    110
    """
    wanted_arch = find_arch(arch) if arch is not None else None
    wanted = {
        name: _format_name(value)
        for name, value in (("a", a), ("b", b), ("c", c), ("d", d))
        if value is not None
    }
    kind = "" if kind == "none" else kind
    if kind is not None and kind not in ("", *KINDS):
        raise LanewiseError(f"unknown kind {kind!r}; kinds are {', '.join(KINDS)}, and 'none'")
    if sparse not in (None, False, True):
        raise LanewiseError(f"sparse is True, False or None (both), not {sparse!r}")
    shape_text = _shape_text(shape)
    listed = []
    for name in (_family(family),) if family is not None else FAMILIES:
        for form, legality in forms(name).items():
            if not legality.documented or (legality.until is not None and not withdrawn):
                continue
            if wanted_arch is not None and wanted_arch not in legality.archs:
                continue
            if shape_text is not None and not re.fullmatch(shape_text, form.shape_text):
                continue
            if (kind is not None and form.kind != kind) or (sparse is not None and form.sparse != sparse):
                continue
            if wanted and not _has_types(form, wanted):
                continue
            listed.append(_instruction(form, legality))
    return listed


def _family(name: str) -> str:
    if isinstance(name, str) and name in FAMILIES:
        return name
    listed = f"families are {', '.join(FAMILIES)}; lw.async_instructions lists tcgen05 and cp.async.bulk"
    raise _unknown("family", name, FAMILIES, listed)


def _format_name(value: object) -> str:
    name = getattr(value, "name", value)
    name = SPELLINGS.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in TYPES:
        if isinstance(name, str) and name.lower() in AMBIGUOUS:
            raise LanewiseError(
                f"{value!r} may mean {' or '.join(AMBIGUOUS[name.lower()])}; name one of them"
            )
        raise _unknown("format", value, (*TYPES, *SPELLINGS), f"formats are {', '.join(TYPES)}")
    return name


def _unknown(what: str, given: object, known: Iterable[str], listed: str) -> LanewiseError:
    """Return the error for a name that is not known: the nearest that is, and a list of all."""
    near = ""
    if isinstance(given, str) and given:
        longer = [name for name in known if name.startswith(f"{given}.")]
        near = " or ".join(longer) or nearest(given, known)
    meant = f"; did you mean {near}? The" if near else "; the"
    return LanewiseError(f"unknown {what} {given!r}{meant} {listed}")


def _shape_text(shape: str | Sequence[int] | None) -> str | None:
    """The shape as a pattern of shape texts."""
    if shape is None:
        return None
    if isinstance(shape, str):
        if not re.fullmatch(r"m(\d+|\*)n(\d+|\*)(k(\d+|\*))?", shape):
            raise LanewiseError(f"a shape is written as m16n8k16 (or m64n*k16), not {shape!r}")
        return shape.replace("*", r"\d+")
    try:
        sizes = [index(size) for size in shape]
    except TypeError:
        sizes = []
    if len(sizes) not in (2, 3):
        raise LanewiseError(
            f"a shape is (m, n, k), or (rows, columns) for ldmatrix, stmatrix and movmatrix, not {shape!r}"
        )
    return "".join(f"{letter}{size}" for letter, size in zip("mnk", sizes, strict=False))


def _has_types(form: Form, wanted: dict[str, str]) -> bool:
    if form.family.startswith(("wmma.load", "wmma.store")):
        types = {form.matrix: form.types[0]}
    elif form.family in ("ldmatrix", "movmatrix"):
        types = {"d": form.types[0]}
    elif form.family == "stmatrix":
        types = {"a": form.types[0]}
    else:
        types = dict(zip("dabc", (*form.types, form.types[0])[:4], strict=True))
    return all(types.get(name) == value for name, value in wanted.items())


def _choose_operands(form: Form, written: list[str], a_source: str | None, stride: bool | None) -> Form:
    """The form with the choices that its text leaves open: A's source, and whether a stride is given."""
    wgmma, memory = form.family.startswith("wgmma"), form.family in ("wmma.load", "wmma.store")
    if a_source not in (None, "registers", "descriptor"):
        raise LanewiseError(f"a_source is 'registers' or 'descriptor', not {a_source!r}")
    if stride not in (None, False, True):
        raise LanewiseError(f"stride is True or False, not {stride!r}")
    if (a_source is not None and not wgmma) or (stride is not None and not memory):
        raise LanewiseError("a_source is for wgmma, stride for wmma.load and wmma.store")
    if wgmma:
        in_registers = len(written) > 1 and written[1].startswith("{")
        return replace(form, a_source=a_source or ("registers" if in_registers else "descriptor"))
    if memory:
        return replace(form, stride=stride if stride is not None else len(written) != 2)
    return form
