"""CUTLASS's names of MMA operations, made from the catalogue: which instruction each of them stands for.

A row of `GROUPS` says which instructions a prefix covers; the rest of a name is written from the instruction.
Names of tcgen05.mma (UMMA), such as `SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, 256, 128, …>`, say the
kind, the blocks and where A lies. Formats, M, N and orders are template arguments: the fields of the
instruction descriptor. What CuTe says of such an operation is in `mma_traits.py`.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from lanewise.atoms.template import Template, last_name, read_template, unwrapped
from lanewise.atoms.value_types import ALIASES, NAMES, Major, ScaleIn, SparseSel
from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, instructions
from lanewise.isa.asynchronous.products import Tcgen05Instruction, tcgen05_instruction

_NAME = re.compile(
    r"SM100_MMA_(TF32|F16BF16|S8|F8F6F4|MXF8F6F4|MXF4NVF4|MXF4)(_WS)?(_2x1SM)?_(?:SS|TS)(_SPARSE)?"
)
_KINDS = {"TF32": "tf32", "F16BF16": "f16", "S8": "i8"}
_FORMATS = {cpp: name for name, cpp in NAMES.items()}
#: The order of template arguments: those of scaled products have a type of scales, some the size of a block.
_PLAIN = ("a", "b", "d", "m", "n", "a_major", "b_major", "negate_a", "negate_b", "saturate")
_INTEGER = (*_PLAIN[:7], "saturate")
_SCALED = ("a", "b", "d", "scale", *_PLAIN[3:9])
_IN_BLOCKS = (*_SCALED[:6], "block", *_SCALED[6:])
_ORDERS = {"S8": _INTEGER, "MXF8F6F4": _SCALED, "MXF4": _IN_BLOCKS, "MXF4NVF4": _IN_BLOCKS}
_LEAST = _PLAIN.index("negate_a")
_CHOICES: dict[str, dict[str, Any]] = {
    "Major": {"K": "K", "MN": "MN"},
    "ScaleIn": {"One": False, "Neg": True},
    "Saturate": {"False": False, "True": True},
}
#: Kinds in PTX's words; those with scale factors have the size of a block behind them.
_FORMS = (
    "tf32", "f16", "i8", "f8f6f4", "mxf8f6f4.block_scale.block32", "mxf4nvf4.block_scale.block16",
)  # fmt: skip
_CHOICE_OF = {
    "a_major": "Major", "b_major": "Major", "negate_a": "ScaleIn", "negate_b": "ScaleIn",
    "saturate": "Saturate",
}  # fmt: skip


def is_umma_name(text: str) -> bool:
    """Return whether a text begins as CUTLASS's names of tcgen05.mma do."""
    return last_name(text.partition("<")[0].strip()).startswith("SM100_MMA")


def umma_instruction(text: str) -> Tcgen05Instruction:
    """Return the tcgen05.mma that a name of CUTLASS with template arguments stands for.

    >>> mma = umma_instruction("SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, 64, Major::K, Major::MN>")
    >>> mma.text, mma.shape, mma.descriptor.b_major
    ('tcgen05.mma.cta_group::1.kind::f16', (128, 64, 16), 'MN')
    """
    name, fields = _name_and_fields(text)
    match = _NAME.fullmatch(name)
    assert match is not None
    words, ws, pair, sparse = match.groups()
    kind = _KINDS.get(words, words.lower())
    ending = ""
    if words.startswith("MX"):
        # CUTLASS counts the elements of a sparse A's block before it was compressed
        block = fields.pop("block", 32) // (2 if words == "MXF4NVF4" else 1)
        if words != "MXF8F6F4":
            kind = "mxf4nvf4" if block == 16 else "mxf4"
        ending = f".block_scale.block{block}"
    opcode = "tcgen05.mma" + ".ws" * bool(ws) + ".sp" * bool(sparse)
    return tcgen05_instruction(f"{opcode}.cta_group::{2 if pair else 1}.kind::{kind}{ending}", **fields)


def a_in_tensor_memory(text: str) -> bool:
    """Return whether the operation of a name reads A from tensor memory (TS), and not by a descriptor (SS).

    >>> a_in_tensor_memory("SM100_MMA_TF32_TS<float, float, float, 64, 8, Major::K, Major::K>")
    True
    """
    return "_TS" in text.partition("<")[0]


def canonical_name(text: str) -> str:
    """Return a name with its template arguments as CUTLASS spells them in full.

    >>> canonical_name("cute::SM100_MMA_S8_SS<int8_t,int8_t,int,64,8,Major::K,UMMA::Major::K>{}")
    'SM100_MMA_S8_SS<int8_t, int8_t, int32_t, 64, 8, UMMA::Major::K, UMMA::Major::K>'
    """
    name, fields = _name_and_fields(text)
    return f"{name}<{', '.join(_spelled(field, value) for field, value in fields.items())}>"


def _spelled(field: str, value: Any) -> str:
    """Return a template argument as CUTLASS writes it."""
    if field in ("a", "b", "d", "scale"):
        return NAMES[value]
    choice = _CHOICE_OF.get(field)
    if choice is None:
        return str(value)
    return f"UMMA::{choice}::{next(word for word, meant in _CHOICES[choice].items() if meant == value)}"


def name_of_instruction(mma: Tcgen05Instruction, ending: str = "SS") -> str:
    """Return CUTLASS's name of a tcgen05.mma, with A in shared memory (SS) or in tensor memory (TS).

    >>> from lanewise.isa import instruction
    >>> name_of_instruction(instruction("tcgen05 m128n64k16 bf16"))
    'SM100_MMA_F16BF16_SS<bfloat16_t, bfloat16_t, float, 128, 64, UMMA::Major::K, UMMA::Major::K>'
    """
    product, described = mma.product, mma.descriptor
    kind = product.kind.name
    sparse = product.sparse and ending == "SS"
    words = next((word for word, name in _KINDS.items() if name == kind), kind.upper())
    if words.startswith("MXF4"):
        words = "MXF4NVF4" if sparse else "MXF4"
    if product.ws or described.k == described.form.long_k:
        raise LanewiseError(f"CUTLASS has no SM100_MMA operation for {mma.text} with K = {mma.k}")
    d, a, b = mma.types
    values: dict[str, Any] = {
        "a": a, "b": b, "d": d, "scale": mma.scale_type, "m": mma.m, "n": mma.n,
        "block": product.block * (2 if sparse else 1), "a_major": described.a_major,
        "b_major": described.b_major,
    }  # fmt: skip
    signs = {name: getattr(described, name) for name in ("negate_a", "negate_b", "saturate")}
    values |= signs if any(signs.values()) else {}
    order = _ORDERS.get(words, _PLAIN) if ending == "SS" else _PLAIN
    arguments = ", ".join(_spelled(field, values[field]) for field in order if field in values)
    pair = "_2x1SM" * (product.cta_group == 2)
    return f"SM100_MMA_{words}{pair}_{ending}{'_SPARSE' * sparse}<{arguments}>"


def umma_names() -> Iterator[str]:
    """Return a name of each operation, with the largest tile and the first formats that its kind has.

    >>> next(umma_names())
    'SM100_MMA_TF32_SS<tfloat32_t, tfloat32_t, float, 128, 256, UMMA::Major::K, UMMA::Major::K>'
    """
    for kind in _FORMS:
        for group in (1, 2):
            plain = tcgen05_instruction(f"tcgen05.mma.cta_group::{group}.kind::{kind}")
            yield name_of_instruction(plain)
            if not plain.product.block:
                yield name_of_instruction(plain, "TS")
            yield name_of_instruction(tcgen05_instruction(f"tcgen05.mma.sp.cta_group::{group}.kind::{kind}"))


def _name_and_fields(text: str) -> tuple[str, dict[str, Any]]:
    """Return a name without namespaces, and what its template arguments say."""
    template = read_template(text)
    name = last_name(template.name)
    match = _NAME.fullmatch(name)
    if match is None:
        raise LanewiseError(
            f"{name}: CUTLASS's names of tcgen05.mma are SM100_MMA_ with TF32, F16BF16, S8, F8F6F4, MXF8F6F4 "
            "or MXF4, then _2x1SM for a pair of blocks, _SS or _TS (A in tensor memory), and _SPARSE"
        )
    words = match[1]
    order = _ORDERS.get(words, _PLAIN) if "_TS" not in name else _PLAIN
    arguments = template.arguments or ()
    least = _LEAST + len(set(order) & {"scale", "block"})
    if not least <= len(arguments) <= len(order):
        raise LanewiseError(
            f"{name} takes template arguments <{', '.join(order)}>, the last {len(order) - least} of which "
            f"may be left out; {len(arguments)} are given"
        )
    given = zip(order, arguments, strict=False)
    return name, {field: _value(name, field, argument) for field, argument in given}


def _value(name: str, field: str, argument: str) -> Any:
    """Return what a template argument says: a format, a number, or one of two choices."""
    written = last_name(argument)
    if field in ("a", "b", "d", "scale"):
        written = ALIASES.get(written, written)
        if written == "float" and field in ("a", "b") and "TF32" in name:
            written = NAMES["tf32"]
        if written not in _FORMATS:
            raise LanewiseError(f"{name}: {argument} is no type of a matrix; types are {', '.join(_FORMATS)}")
        return _FORMATS[written]
    if field in ("m", "n", "block"):
        number = re.fullmatch(r"(?:Int<|C<)?(\d+)>?", written)
        if number is None:
            raise LanewiseError(f"{name}: {field.upper()} is a number, not {argument}")
        return int(number[1])
    choices = _CHOICES[_CHOICE_OF[field]]
    if written not in choices:
        kind = _CHOICE_OF[field]
        allowed = " or ".join(f"UMMA::{kind}::{choice}" for choice in choices)
        raise LanewiseError(f"{name}: {field} is {allowed}, not {argument}")
    return choices[written]


@dataclass(frozen=True)
class Operation:
    """One MMA operation of CUTLASS: its name, the instruction behind it, and the arch it is named for.

    `parameters` are the template parameters that do not change the instruction (GMMA's); `composed` says how
    operations on complex numbers are put together from real instructions: "", "complex" or "gauss".
    """

    name: str
    instruction: Instruction
    arch: str
    parameters: tuple[str, ...] = ()
    composed: str = ""

    @property
    def key(self) -> str:
        """The name without its namespaces."""
        scope, bracket, arguments = self.name.partition("<")
        return last_name(scope) + bracket + arguments


def _shape(inst: Instruction) -> str:
    return f"{inst.m}x{inst.n}x{inst.k}"


def _types(names: Iterable[str]) -> str:
    return "".join("U1" if name == "b1" else name.upper() for name in names)


def _ending(inst: Instruction) -> str:
    """TN and its kin as BLAS has them (T: row-major, N: column-major), then what else differs."""
    a, b = ("T" if inst.layout_a == "row" else "N"), ("N" if inst.layout_b == "col" else "T")
    return f"{a}{b}" + "_SATURATE" * inst.satfinite + (f"_{inst.bitop.upper()}POPC" if inst.bitop else "")


def _warp(prefix: str, arch: str, covers: Callable[[Instruction], bool]) -> Iterator[Operation]:
    """mma.sync operations named by shape and types; f64 also as the part of a complex product."""
    for inst in instructions(arch, "mma"):
        if inst.rounding or inst.kind or not covers(inst):
            continue
        yield Operation(f"{prefix}_{_shape(inst)}_{_types(inst.types)}_{_ending(inst)}", inst, arch)
        if inst.types[0] == "f64":
            yield Operation(f"{prefix}_{_shape(inst)}_C64C64C64C64_TN", inst, arch, composed="complex")
            if inst.m == 8:
                yield Operation(f"{prefix}_{_shape(inst)}_GC64C64C64GC64_TN", inst, arch, composed="gauss")


def _warpgroup(family: str, prefix: str) -> Iterator[Operation]:
    """GMMA: only 16-bit operands may be MN-major, so only they take tnspA and tnspB and go without _TN."""
    for inst in instructions(family=family):
        if inst.bitop:
            continue
        either_major = inst.types[1] in ("f16", "bf16")
        parameters = ("tnspA", "tnspB") * either_major + ("scaleA", "scaleB") * (inst.types[0] != "s32")
        name = (
            f"{prefix}_{_shape(inst)}_{_types(inst.types)}_{'RS' if inst.a_source == 'registers' else 'SS'}"
        )
        name += "_TN" * (not either_major) + "_SATURATE" * inst.satfinite
        yield Operation(name, inst, "sm_90a", parameters + ("spsel",) * inst.sparse)


def _blackwell() -> Iterator[Operation]:
    """SM120's narrow floats, their types as template arguments; block-scaled (VS) and sparse ones too."""
    for family, sparse in (("mma", ""), ("mma.sp::ordered_metadata", "SPARSE")):
        for inst in instructions("sm_120a", family):
            if inst.kind not in ("f8f6f4", "mxf8f6f4", "mxf4nvf4") or (
                inst.scale_type and not inst.scale_vec_written
            ):
                continue
            scaled = bool(inst.scale_type)
            scope = "::".join(part for part in ("SM120", "BLOCKSCALED" * scaled, sparse) if part)
            scope = f"{scope}::" if scaled or sparse else ""
            base = f"SM120_{sparse}{'_' * bool(sparse)}{_shape(inst)}_TN{'_VS' * scaled}"
            arguments = [NAMES[name] for name in inst.types[1:]]
            if scaled:
                arguments += [NAMES[inst.scale_type], str(inst.k // inst.scale_vec)]
            yield Operation(f"{scope}{base}<{', '.join(arguments)}>", inst, "sm_120a")


def _named_for_turing(inst: Instruction) -> bool:
    """What CUTLASS names SM75; the other forms that Turing began with are named SM80."""
    named = {"m16n8k8": ("f16", "f16"), "m8n8k16": ("s8", "s8")}
    return named.get(inst.shape_text) == inst.types[1:3] and not inst.satfinite


class _Group(NamedTuple):
    """The operations whose names, without namespaces, look alike."""

    pattern: str
    operations: Callable[[], Iterator[Operation]]


GROUPS: tuple[_Group, ...] = (
    _Group("SM70_", lambda: _warp("SM70", "sm_70", lambda inst: inst.types[0] == inst.types[3])),
    _Group("SM75_", lambda: _warp("SM75", "sm_75", _named_for_turing)),
    _Group("SM80_", lambda: _warp("SM80", "sm_80", lambda inst: inst.products == 1)),
    _Group("SM89_", lambda: _warp("SM89", "sm_89", lambda inst: inst.types[1][0] == "e" and inst.k == 32)),
    _Group(
        "(MMA|SM90)_16",
        lambda: _warp("SM90::MMA", "sm_90", lambda inst: inst.m == 16 and inst.types[1] == "f64"),
    ),
    _Group("(MMA|SM90)_64", lambda: _warpgroup("wgmma", "SM90::GMMA::MMA")),
    _Group("GMMA_", lambda: _warpgroup("wgmma.sp", "SM90::GMMA::SPARSE::GMMA")),
    _Group("SM120_", _blackwell),
)


@cache
def _table(group: int) -> dict[str, Operation]:
    return {operation.key: operation for operation in GROUPS[group].operations()}


def operations() -> Iterator[Operation]:
    """Every MMA operation of a warp or a warpgroup that can be found by name.

    >>> len(list(operations()))
    2356
    """
    for group in range(len(GROUPS)):
        yield from _table(group).values()


def find_operation(text: str) -> tuple[Operation, dict[str, Enum]] | None:
    """The operation of a name and the values of its parameters, or None if there is none of that name.

    Namespaces may be left out, and CUTLASS's aliases `SM90_64x…` and `SM90_16x…` are known.

    >>> operation, arguments = find_operation("SM90_64x8x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::MN>")
    >>> operation.instruction.text, arguments["tnspB"].name
    ('wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16', 'MN')
    """
    text = unwrapped(text)[0]
    template = read_template(text)
    key = last_name(template.name)
    if is_umma_name(key):
        return Operation(canonical_name(text), umma_instruction(text), "sm_100a"), {}
    for index, group in enumerate(GROUPS):
        if not re.match(group.pattern, key):
            continue
        table = _table(index)
        if any("<" in name for name in table):
            return _typed(template, table)
        operation = table.get(key.replace("SM90_", "MMA_"))
        if operation is None or not _in_scope(template.name, operation):
            return None
        return operation, _values(operation, template.arguments or ())
    return None


def operation_names() -> Iterator[str]:
    """The names of all operations; of those that are tcgen05.mma one of many tiles and types each."""
    yield from (operation.name for operation in operations())
    yield from umma_names()


def named_operation(text: str) -> tuple[Operation, dict[str, Enum]]:
    """The operation of a name and the values of its parameters, or an error that names the nearest.

    >>> named_operation("SM80_16x8x16_F32F16F16F32_TN")[0].arch
    'sm_80'
    """
    operation = find_operation(text)
    if operation is None:
        raise unknown_name("MMA operation", text, operation_names())
    return operation


def unknown_name(what: str, text: str, known: Iterable[str]) -> LanewiseError:
    """The error for a name that nothing has."""
    written = last_name(read_template(text).name).lower()
    by_key = {last_name(name.partition("<")[0]).lower(): name for name in known}
    begun = sorted((name for name in by_key if name.startswith(written)), key=len)
    near = begun[:3] or difflib.get_close_matches(written, by_key, n=3, cutoff=0.5)
    hint = (
        f"; nearest are {', '.join(by_key[name] for name in near)}"
        + (f"; `lanewise atoms {text}` lists the {len(begun)} that begin so" if len(begun) > 3 else "")
        if near
        else "; `lanewise atoms`, or lanewise.atoms.atoms(), lists those that there are"
    )
    return LanewiseError(f"no {what} is named {text!r}{hint}")


def _in_scope(written: str, operation: Operation) -> bool:
    """Whether the namespaces written, if any, are the last ones of the operation's."""
    canonical = operation.name.partition("<")[0]
    if last_name(written).startswith("SM90_"):
        return "::" not in written
    return canonical == written or canonical.endswith(f"::{written}")


def _typed(template: Template, table: dict[str, Operation]) -> tuple[Operation, dict[str, Enum]] | None:
    """An operation whose types are template arguments; the size of a scaled block may be left to the name."""
    base = last_name(template.name)
    known = [operation for name, operation in table.items() if name.partition("<")[0] == base]
    if not known or not _in_scope(template.name, known[0]):
        return None
    arguments = tuple(last_name(argument) for argument in template.arguments or ())
    for operation in known:
        expected = tuple(operation.name.partition("<")[2].rstrip(">").split(", "))
        if arguments == expected or (
            len(expected) == 5 and arguments in (expected[:4], (*expected[:4], "VS"))
        ):
            return operation, {}
    kinds = "a_type, b_type, c_type" + (", sf_type, VS" if base.endswith("_VS") else "")
    written = f"{base}<{', '.join(arguments)}>"
    near = difflib.get_close_matches(written, [operation.key for operation in known], n=3, cutoff=0)
    given = f"no instruction has {written}" if arguments else "none are given"
    raise LanewiseError(f"{base} takes template arguments <{kinds}>; {given}. Try {' or '.join(near)}")


_DEFAULTS: dict[str, Enum] = {
    "tnspA": Major.K, "tnspB": Major.K, "scaleA": ScaleIn.One, "scaleB": ScaleIn.One, "spsel": SparseSel.Zero,
}  # fmt: skip


def _values(operation: Operation, arguments: tuple[str, ...]) -> dict[str, Enum]:
    """The values of an operation's parameters: as written, else the defaults (K-major, not negated)."""
    if len(arguments) > len(operation.parameters):
        takes = (
            f"at most <{', '.join(operation.parameters)}>"
            if operation.parameters
            else "no template arguments"
        )
        raise LanewiseError(f"{operation.name} takes {takes}; <{', '.join(arguments)}> given")
    values = {name: _DEFAULTS[name] for name in operation.parameters}
    for parameter, argument in zip(operation.parameters, arguments, strict=False):
        choice = type(_DEFAULTS[parameter])
        if last_name(argument) not in choice.__members__:
            allowed = " or ".join(f"GMMA::{choice.__name__}::{member}" for member in choice.__members__)
            raise LanewiseError(f"{operation.name}: {parameter} is {allowed}, not {argument}")
        values[parameter] = choice[last_name(argument)]
    return values
