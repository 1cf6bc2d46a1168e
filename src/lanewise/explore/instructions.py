"""Questions of the room Instructions: the list to search, and everything about one instruction."""

import re
from typing import Any

from lanewise.atoms import atom
from lanewise.draw.in_words import does, runs_of
from lanewise.draw.instructions import PLACES, axes_of, choose
from lanewise.draw.options import Options
from lanewise.errors import LanewiseError
from lanewise.explore import tensor_instructions
from lanewise.explore.answers import question
from lanewise.explore.catalogue import catalogue
from lanewise.explore.code_forms import forms_of_code
from lanewise.explore.memory_pieces import of_descriptor, of_tensor_map
from lanewise.isa import Instruction, Operand, instruction
from lanewise.isa.asynchronous import Tcgen05Instruction, is_asynchronous
from lanewise.isa.operands import VOLTA_ARCHS, has_volta_fragments

#: Names of CUTLASS's atoms.
_ATOM = re.compile(r"(cute::)?(SM_?\d|(MMA_Atom|Copy_Atom|MMA_Traits|Copy_Traits)\s*<)", re.I)
#: Letters of a text that is looked up.
MOST_LETTERS = 2000


@question("instructions", "catalogue")
def the_catalogue() -> dict[str, object]:
    """Return the list that the page searches."""
    return catalogue()


@question("instructions", "about")
def about(text: str, source: str = "", arch: str = "", fields: str = "") -> dict[str, Any]:
    """Return all that the page shows of an instruction: legality, fragments, code.

    `fields` are those of the instruction descriptor of a tcgen05.mma, such as "m=64 n=16 a=bf16".

    >>> about("m16n8k16 bf16")["threads"]
    32
    """
    if is_asynchronous(text) or _ATOM.match(text.strip()):
        facts = _asynchronous(text, fields)
        if facts is not None:
            return facts
    return described(_named(text, source, arch))


@question("instructions", "descriptor")
def descriptor(
    rows: int, k: int, bits: int = 16, major: str = "K", swizzle: str = "128B", number: str = ""
) -> dict[str, object]:
    """Return the fields of a matrix descriptor, and where each 16 bytes of its matrix lie."""
    return of_descriptor(rows, k, bits, major, swizzle, number)


@question("instructions", "tensor_map")
def tensor_map(type: str, shape: list[int], box: list[int], swizzle: str = "none") -> dict[str, Any]:
    """Return where a tensor copy (TMA) puts each 16 bytes of a box."""
    return of_tensor_map(type, shape, box, swizzle)


def _asynchronous(text: str, fields: str) -> dict[str, Any] | None:
    """Return all that the page shows of a tcgen05 instruction; None if the text names something else."""
    if len(text) > MOST_LETTERS or len(fields) > MOST_LETTERS:
        raise LanewiseError(f"an instruction has fewer than {MOST_LETTERS} letters")
    if _ATOM.match(text.strip()):
        product = atom(text.strip()).instruction
        return tensor_instructions.described(product) if isinstance(product, Tcgen05Instruction) else None
    form = tensor_instructions.named(text, fields)
    if not form.text.startswith("tcgen05"):
        return None
    return tensor_instructions.described(form)


def _named(text: str, source: str, arch: str) -> Instruction:
    if len(text) > MOST_LETTERS:
        raise LanewiseError(f"an instruction has fewer than {MOST_LETTERS} letters")
    if _ATOM.match(text.strip()):
        named = atom(text.strip()).instruction
        if named is None:
            raise LanewiseError(f"{text.strip()[:80]} is a plain copy, which is no matrix instruction")
        return named
    form = instruction(text, a_source=source or None, arch=arch or None)
    if is_asynchronous(form.text):
        raise LanewiseError(
            f"{form.text} has no fragments in registers, which this page shows; `lanewise explain` knows it"
        )
    return form


def described(instruction: Instruction) -> dict[str, Any]:
    """Return an instruction as JSON.

    >>> described(instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16"))["rows"]["matrices"]
    4
    """
    chosen = choose(instruction, Options())
    addresses = instruction.family in ("ldmatrix", "stmatrix")
    return {
        "text": instruction.text,
        "does": does(instruction),
        "family": instruction.family,
        "shape": instruction.shape,
        "threads": instruction.threads,
        "products": instruction.products,
        "multiplies": instruction.multiplies,
        "source": instruction.a_source,
        "trans": instruction.trans,
        "fragments_of": instruction.fragments_of,
        "other_fragments": VOLTA_ARCHS
        if has_volta_fragments(instruction) and VOLTA_ARCHS[0] in instruction.archs
        else (),
        "archs": instruction.archs,
        "ptx": f"{instruction.since} {'and later' if not instruction.until else f'to {instruction.until}'}",
        "runs": runs_of(instruction, instruction.archs),
        "operands": [_operand(key, operand, name) for key, (operand, name) in chosen.items()],
        "rows": instruction.row_addresses._asdict() if addresses else None,
        "code": forms_of_code(instruction),
    }


def _operand(key: str, operand: Operand, name: str) -> dict[str, Any]:
    """Return an operand: its matrix, and for each lane and value the element that it holds."""
    held = operand.where == "registers"
    return {
        **tensor_instructions.matrix_facts(key, operand, axes_of(operand)),
        "name": name,
        "registers": operand.registers,
        "slots": operand.slots if held else 0,
        "packing": operand.packing,
        "layout": str(operand.layout),
        "at": PLACES.get(key, (2, 3)),
        "held": _held(operand) if held else None,
    }


def _held(operand: Operand) -> dict[str, object]:
    """Return which element each lane holds in each register and slot: (product · rows + row) · cols + col.

    A layout adds a lane's part and a value's part, so that two short lists say it; where an operand is not
    like that, all elements are sent.
    """
    elements = operand.gather.reshape(operand.threads, -1)
    lanes, values = elements[:, 0], elements[0] - elements[0, 0]
    if (elements == lanes[:, None] + values).all():
        return {"lanes": lanes.tolist(), "values": values.tolist()}
    return {"all": elements.tolist()}
