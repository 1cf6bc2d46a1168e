"""CUTLASS's names of tcgen05.mma (UMMA): `SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, 256, 128, …>`.

The name says the kind, the blocks and where A lies. Formats, M, N and orders are template arguments: the
fields of the instruction descriptor.
"""

from __future__ import annotations

import re
from typing import Any

from lanewise.atoms.template import last_name, read_template
from lanewise.atoms.value_types import NAMES
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
    template = read_template(text)
    name = last_name(template.name)
    found = _NAME.fullmatch(name)
    if found is None:
        raise LanewiseError(
            f"{name}: CUTLASS's names of tcgen05.mma are SM100_MMA_ with TF32, F16BF16, S8, F8F6F4, MXF8F6F4 "
            "or MXF4, then _2x1SM for a pair of blocks, _SS or _TS (A in tensor memory), and _SPARSE"
        )
    words, ws, pair, sparse = found.groups()
    order = _ORDERS.get(words, _PLAIN) if "_TS" not in name else _PLAIN
    arguments = template.arguments or ()
    least = _LEAST + len(set(order) & {"scale", "block"})
    if not least <= len(arguments) <= len(order):
        raise LanewiseError(
            f"{name} takes template arguments <{', '.join(order)}>, the last {len(order) - least} of which "
            f"may be left out; {len(arguments)} are given"
        )
    fields = {field: _value(name, field, each) for field, each in zip(order, arguments, strict=False)}
    kind = _KINDS.get(words, words.lower())
    ending = ""
    if words.startswith("MX"):
        block = fields.pop("block", 32)
        kind = "mxf4nvf4" if kind == "mxf4" and block == 16 else kind
        ending = f".block_scale.block{block}"
    opcode = "tcgen05.mma" + ".ws" * bool(ws) + ".sp" * bool(sparse)
    return tcgen05_instruction(f"{opcode}.cta_group::{2 if pair else 1}.kind::{kind}{ending}", **fields)


def _value(name: str, field: str, argument: str) -> Any:
    """Return what a template argument says: a format, a number, or one of two choices."""
    written = last_name(argument)
    if field in ("a", "b", "d", "scale"):
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
        allowed = " or ".join(f"UMMA::{kind}::{each}" for each in choices)
        raise LanewiseError(f"{name}: {field} is {allowed}, not {argument}")
    return choices[written]
