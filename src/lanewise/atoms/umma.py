"""CUTLASS's names of tcgen05.mma (UMMA): `SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, 256, 128, …>`.

The name says the kind, the blocks and where A lies. Formats, M, N and orders are template arguments: the
fields of the instruction descriptor. What CuTe says of such an operation is in `mma_traits.py`.
"""

import re
from collections.abc import Iterator
from typing import Any

from lanewise.atoms.template import last_name, read_template
from lanewise.atoms.value_types import ALIASES, NAMES
from lanewise.errors import LanewiseError
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
