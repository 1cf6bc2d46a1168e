"""What the room Instructions shows of tcgen05: lanes and columns of tensor memory in place of registers."""

import re
from typing import Any

from lanewise.draw import svg
from lanewise.draw.in_words import runs_of
from lanewise.draw.tcgen05 import load_form
from lanewise.errors import LanewiseError
from lanewise.isa import Operand, instruction
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction, async_instructions
from lanewise.isa.asynchronous.descriptor import legal_shapes
from lanewise.isa.asynchronous.tensor_places import regions_of
from lanewise.isa.tensor_memory.accumulators import LANES, block_rows
from lanewise.isa.tensor_memory.load_shapes import WARP

#: What the page is told of something: values that JSON has, by their names.
Facts = dict[str, Any]
#: The N that is shown where none was chosen: its cells are large enough to be read.
_USUAL_N = 64
#: What stands for a lane, or a part of one, that holds nothing: no element has this number.
_NOTHING = -(1 << 40)
_FIELD = re.compile(r"([a-z_]+)=([\w]+)")
#: Where operands stand beside one another, as for other products.
_PLACES = {"scale_b": (0, 3), "b": (1, 3), "scale_a": (2, 0), "metadata": (2, 1), "a": (2, 2), "d": (2, 3)}
#: Words of a form that change nothing of what is shown.
_UNSEEN = ("collector::", "ashift", "tcgen05.ld.red")


def listed() -> list[AsyncInstruction]:
    """Return the tcgen05 instructions that the page lists: those that look alike once."""
    return [
        async_instruction
        for async_instruction in async_instructions()
        if async_instruction.family.startswith("tcgen05")
        and not any(word in async_instruction.text for word in _UNSEEN)
    ]


def named(text: str, fields: str) -> Tcgen05Instruction | AsyncInstruction:
    """Return the tcgen05 instruction of a text, with fields such as "m=64 n=16 a=bf16" or "descriptor=0x…".

    >>> named("tcgen05.mma.cta_group::1.kind::f16", "m=64 n=16").shape
    (64, 16, 16)
    """
    given: Facts = {}
    for part in fields.split():
        match = _FIELD.fullmatch(part)
        if match is None:
            raise LanewiseError(f"{part[:40]!r} is no field: write m=64 n=16 a=bf16, or descriptor=0x8400490")
        name, value = match.groups()
        is_hexadecimal = re.fullmatch(r"0[xX][0-9a-fA-F]+", value) is not None
        given[name] = int(value, 16) if is_hexadecimal else int(value) if value.isdecimal() else value
    form = instruction(text, **given)
    if not isinstance(form, Tcgen05Instruction):
        assert isinstance(form, AsyncInstruction), text
        return form
    if not form.chosen and _USUAL_N in legal_shapes(form.product).n:
        return form.with_fields({"n": _USUAL_N})
    return form


def described(form: Tcgen05Instruction | AsyncInstruction) -> Facts:
    """Return a tcgen05 instruction as JSON: matrices with the lanes or threads that hold their elements.

    >>> described(named("tcgen05 m64n8k16 f16", ""))["operands"][-1]["name"]
    'D'
    """
    about: Facts = {
        "text": form.text,
        "does": form.does.rstrip("."),
        "family": form.family,
        "shape": (),
        "threads": WARP,
        "products": 1,
        "multiplies": False,
        "source": "",
        "trans": False,
        "fragments_of": "",
        "other_fragments": (),
        "archs": form.archs,
        "ptx": f"{form.since} and later",
        "runs": [],
        "operands": [],
        "rows": None,
        "code": _code(form),
        "words": form.words,
    }
    if isinstance(form, Tcgen05Instruction):
        return about | _product(form)
    if form.family in ("tcgen05.ld", "tcgen05.st", "tcgen05.ld.red"):
        return about | {
            "operands": _moved(form),
            "tensor": {"thread": "thread", "value": "register", "letters": "TR"},
        }
    try:
        return about | {"picture": svg(form)}
    except LanewiseError:  # commit, fence, wait, shift: words say it
        return about


def _product(mma: Tcgen05Instruction) -> Facts:
    """Return the operands of a tcgen05.mma, what may be chosen, and its instruction descriptor."""
    descriptor, product = mma.descriptor, mma.product
    bits = descriptor.encode()
    who = "a pair of blocks" if product.cta_group == 2 else "a block"
    return {
        "does": f"one thread starts D = A·B + D for {who}; D lies in tensor memory",
        "shape": mma.shape,
        "threads": LANES * product.cta_group,
        "multiplies": True,
        "runs": runs_of(mma, mma.archs),
        "operands": [_operand(mma, key) for key in _PLACES if key in mma.operands],
        "tensor": {"thread": "lane", "value": "column", "letters": "LC"},
        "pair": product.cta_group == 2,
        "choices": {
            **legal_shapes(product)._asdict(),
            "a": list(product.kind.formats),
            "b": list(product.kind.formats),
            "d": list(product.kind.d),
        },
        "fields": {name: getattr(descriptor, name) for name in ("m", "n", "k", "a", "b", "d")},
        "descriptor": {
            "number": f"{bits:#010x}",
            "fields": [
                {
                    "name": field.name,
                    "first": field.first,
                    "bits": field.bits,
                    "number": field.of(bits),
                    "value": str(getattr(descriptor, field.attribute)),
                    "says": field.says,
                }
                for field in descriptor.fields
            ],
        },
    }


def matrix_facts(key: str, operand: Operand, axes: tuple[str, str]) -> Facts:
    """Return what an operand's matrix is, whoever holds it: sizes, axes, format."""
    row_axis, col_axis = axes
    return {
        "key": key,
        "rows": operand.rows,
        "cols": operand.cols,
        "row_axis": row_axis,
        "col_axis": col_axis,
        "format": operand.format.name,
        "bits": operand.format.bits,
        "source": operand.source,
    }


def _operand(mma: Tcgen05Instruction, key: str) -> Facts:
    """Return an operand: its matrix, and the element that each lane holds in each part of a column."""
    operand, blocks = mma.operands[key], mma.cta_group
    held, slots = None, 1
    if key == "d":
        held = _sums(mma)
    elif key not in ("a", "b"):
        held, slots = _bytes(mma, key)
    axes = {"b": ("k", "n"), "scale_b": ("block", "n"), "scale_a": ("m", "block"), "metadata": ("m", "group")}
    where = "shared memory" if key in ("a", "b") else "tensor memory"
    return {
        **matrix_facts(key, operand, axes.get(key, ("m", "k" if key == "a" else "n"))),
        "name": operand.name,
        "registers": 1,
        "slots": slots,
        "packing": f"in {where}"
        + (", half of it in each block of a pair" if blocks == 2 and key in "abd" else ""),
        "layout": "",
        "at": _PLACES[key],
        "held": held,
        # Where the second block's part begins: a row of A and D, a column of B.
        "second": (operand.cols // 2 if key == "b" else operand.rows // 2) if blocks == 2 else 0,
        "where": where,
    }


def _sums(mma: Tcgen05Instruction) -> dict[str, object]:
    """Return D: for each lane (of both blocks of a pair) its first element, and those of its columns."""
    spread, n = regions_of(mma.descriptor, mma.product), mma.n
    rows = block_rows(mma.m, mma.cta_group)
    first = [_NOTHING] * (LANES * mma.cta_group)
    for block in range(mma.cta_group):
        for part in spread:
            for i in range(part.rows):
                first[LANES * block + part.lane + i] = (block * rows + part.row + i) * n + part.column
    return {"lanes": first, "values": list(range(spread[0].columns))}


def _bytes(mma: Tcgen05Instruction, key: str) -> tuple[dict[str, object], int]:
    """Return scale factors or metadata: for each lane the element in each byte, or code, of its columns."""
    operand = mma.operands[key]
    places = [
        (row * operand.cols + col, tensor_bit)
        for row in range(operand.rows)
        for col in range(operand.cols)
        for tensor_bit in mma.tensor_bits(key, row, col)
    ]
    slots = 32 // places[0][1].bits
    columns = max(place.column for _, place in places) + 1
    held = [[_NOTHING] * (slots * columns) for _ in range(LANES * mma.cta_group)]
    for number, place in places:
        held[LANES * place.block + place.lane][place.column * slots + place.first_bit // place.bits] = number
    return {"all": held}, slots


def _moved(move: AsyncInstruction) -> list[Facts]:
    """Return the words that a tcgen05.ld or st moves: lanes × columns, held by registers of threads."""
    shape, num, packed = load_form(move)
    columns, slots = shape.columns_of(num, packed), 2 if packed else 1
    lanes, places = shape.places(num, packed)
    half = WARP // shape.halves
    operands = []
    for number in range(shape.halves):
        held: list[list[int]] = []
        for thread in range(WARP):
            mine = thread // half == number
            first = [int(a) * columns + int(b) for a, b in zip(lanes[thread], places[thread], strict=True)]
            held.append([value + part if mine else _NOTHING for value in first for part in range(slots)])
        name = "tmem" if shape.halves == 1 else f"tmem, half {number}"
        operands.append(
            {
                "key": f"t{number}", "name": name, "rows": shape.lanes, "cols": columns, "row_axis": "lane",
                "col_axis": "column", "format": "b32", "bits": 32, "registers": shape.registers_of(num),
                "slots": slots, "packing": f"{shape.registers_of(num)} registers a thread",
                "layout": str(shape.layout(num)), "source": "PTX ISA, Data movement shape",
                "at": (2, 3 + number),
                "held": {"all": held}, "second": 0, "where": "",
            }
        )  # fmt: skip
    return operands


def _code(shown: Tcgen05Instruction | AsyncInstruction) -> dict[str, str]:
    """Return the statement in PTX, and for a product its instruction object and descriptor."""
    form = shown.form if isinstance(shown, Tcgen05Instruction) else shown
    code = {"PTX": f"{form.text} {form.operands};".replace(" ;", ";")}
    if isinstance(shown, Tcgen05Instruction):
        fields = ", ".join(
            f"{name}={getattr(shown.descriptor, name)!r}".replace("'", '"')
            for name in ("m", "n", "a", "b", "d")
        )
        code["lanewise"] = (
            f'import lanewise as lw\n\nmma = lw.instruction("{shown.text}", {fields})\n'
            f"assert mma.descriptor.encode() == {shown.descriptor.encode():#010x}\n"
        )
    return code
