"""Questions of the room Instructions: the list to search, all about one instruction, matrices in memory.

The page compares what is typed with the words of the list and knows nothing of instructions itself. Forms of
wgmma that differ in N alone are one entry with the sizes that there are. Of matrices in shared memory that 64
bits or a tensor map describe, it is shown where each 16 bytes of their rows lie.
"""

import re
from functools import cache
from typing import Any

from lanewise.atoms import atom
from lanewise.draw.in_words import does, runs_of
from lanewise.draw.instructions import PLACES, axes_of, choose
from lanewise.draw.options import Options
from lanewise.draw.shared_memory import CHUNK_BYTES, described_matrix
from lanewise.errors import LanewiseError
from lanewise.explore import tensor_instructions
from lanewise.explore.answers import question
from lanewise.explore.code_forms import forms_of_code
from lanewise.formats import SPELLINGS
from lanewise.isa import (
    ARCHS,
    Instruction,
    Operand,
    describe_targets,
    instruction,
    instructions,
    matrix_descriptor,
)
from lanewise.isa.asynchronous import AsyncInstruction, Tcgen05Instruction, is_asynchronous
from lanewise.isa.asynchronous.descriptor import KINDS
from lanewise.isa.gpu_models import gpu_names
from lanewise.isa.matrix_descriptor import SWIZZLE_MODES, MatrixDescriptor, piece_grid, swizzle_mode
from lanewise.isa.operands import VOLTA_ARCHS, has_volta_fragments
from lanewise.isa.tensor_map import TiledTensor
from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, SWIZZLES

#: Families in the order in which most people look for them.
_ORDER = ("mma", "ldmatrix", "wgmma", "stmatrix", "movmatrix", "wmma.mma", "wmma.load", "wmma.store")
#: State spaces likewise; "" is the generic one.
_SPACES = ("shared", "")
#: The size that stands for an entry with several.
_USUAL_N = 128
_OPCODE = re.compile(r"\b(?:[A-Z]{1,2}G?MMA|LDSM|STSM|MOVM)\b")


@question("instructions", "catalogue")
@cache
def catalogue() -> dict[str, Any]:
    """Return what the page needs to search: entries, archs, and GPUs by their names.

    >>> catalogue()["archs"][0]
    'sm_70'
    """
    entries: dict[tuple[str, str], list[Instruction]] = {}
    for form in instructions():
        key = (_without_n(form), form.base_family)
        entries.setdefault(key, []).append(form)
    listed = sorted(entries.items(), key=lambda pair: _rank(pair[1][0]))
    sent = [_entry(text, forms) for (text, _), forms in listed]
    sent += [_tensor_entry(form) for form in tensor_instructions.listed()]
    return {
        # Many entries have the same words, sizes and archs: each list is sent once, entries have its number.
        **{name: _numbered(sent, name) for name in ("words", "sizes", "on")},
        "archs": ARCHS,
        "gpus": gpu_names(),
        "entries": sent,
    }


def _numbered(entries: list[dict[str, object]], name: str) -> list[object]:
    """Put the number of a value in its place in every entry; return the values by their numbers."""
    numbers: dict[object, int] = {}
    for entry in entries:
        if name in entry:
            entry[name] = numbers.setdefault(entry[name], len(numbers))
    return list(numbers)


def _without_n(form: Instruction) -> str:
    """Return the text with * in place of N where N is free within a family."""
    return re.sub(r"\.m64n\d+k", ".m64n*k", form.text) if form.family.startswith("wgmma") else form.text


def _rank(form: Instruction) -> tuple[object, ...]:
    """Return a key by which the usual forms come first."""
    family = _ORDER.index(form.base_family) if form.base_family in _ORDER else len(_ORDER)
    kind = form.types[1] if len(form.types) > 1 else form.types[0]
    common = ("f16", "bf16", "tf32", "e4m3", "b16", "s8")
    return (
        family if family < 3 else 3 + family,
        form.sparse,
        form.scale_type != "" or form.kind != "",
        form.satfinite,
        form.products,
        common.index(kind) if kind in common else len(common),
        _SPACES.index(form.space) if form.space in _SPACES else len(_SPACES),
        form.types[0] == "f16" and len(form.types) > 1,
        tuple(-size for size in form.shape),
        -form.num,
        form.trans,
        form.text,
    )


def _entry(text: str, forms: list[Instruction]) -> dict[str, Any]:
    """Return an entry: its text, the words to find it by, the archs, and what can be chosen."""
    first = forms[0]
    sizes = sorted({form.n for form in forms}) if "n*" in text else []
    usual = _USUAL_N if _USUAL_N in sizes else sizes[-1] if sizes else 0
    entry = {
        "text": text,
        "words": " ".join(sorted(_words(first, sizes))),
        "archs": sum(1 << ARCHS.index(arch) for arch in first.archs),
        "on": describe_targets(first.archs),
    }
    if sizes:
        entry |= {"sizes": tuple(sizes), "usual": usual}
    sources = sorted({form.a_source for form in forms} - {""})
    return entry | ({"sources": sources} if len(sources) > 1 else {})


def _tensor_entry(form: AsyncInstruction) -> dict[str, Any]:
    """Return the entry of a tcgen05 instruction; formats and shapes are found by the words of its kind."""
    words = {"tcgen05", "blackwell", "umma" if ".mma" in form.text else "tmem"}
    kind = next((word for word in form.text.split(".") if word.startswith("kind::")), "")
    if kind:
        formats = KINDS[kind.removeprefix("kind::")].formats
        spelled = {name for name, known in SPELLINGS.items() if known in formats} | set(formats)
        words |= {re.sub(r"[^a-z0-9_]", "", name.lower()) for name in spelled}
        words |= {"pair"} if "cta_group::2" in form.text else set()
        words |= {"sparse"} if ".sp" in form.family else set()
    return {
        "text": form.text,
        "words": " ".join(sorted(words - {""})),
        "archs": sum(1 << ARCHS.index(arch) for arch in form.archs),
        "on": describe_targets(form.archs),
    }


def _words(form: Instruction, sizes: list[int]) -> set[str]:
    """Return words that the text does not have: names in SASS and C++, types and shapes spelled otherwise."""
    spelled = {name for name, kind in SPELLINGS.items() if kind in form.types}
    shapes: list[tuple[int, ...]] = [(form.m, n, form.k) for n in sizes] or [form.shape]
    words = {re.sub(r"[^a-z0-9_]", "", name.lower()) for name in spelled}
    for shape in shapes:
        words.add("x".join(map(str, shape)))
        if sizes:
            words.add("".join(f"{letter}{size}" for letter, size in zip("mnk", shape, strict=True)))
    if len(form.shape) == 3 and not sizes:
        words.add("".join(map(str, form.shape)))  # HMMA.16816
    for arch in form.archs:
        words |= {name.lower() for name in _OPCODE.findall(form.lowering(arch).detail)}
    words |= {"sparse"} if form.sparse else set()
    words |= {"wgmma"} if form.family.startswith("wgmma") else set()
    return words - {""}


#: Rows that the page shows of a matrix or a box.
MOST_ROWS = 64
#: The address at which a matrix that the page makes up begins.
START = 0x400


@question("instructions", "descriptor")
def of_descriptor(
    rows: int, k: int, bits: int = 16, major: str = "K", swizzle: str = "128B", number: str = ""
) -> dict[str, Any]:
    """Describe 64 bits, or a descriptor of a matrix whose patterns lie one after the other.

    >>> of_descriptor(64, 16, 16, "K", "128B", "")["number"]
    '0x4000004000000040'
    """
    typed = MatrixDescriptor.decode(_number(number)) if number else None
    descriptor = typed or _compact(rows, k, bits, major, swizzle)
    matrix = described_matrix(descriptor, rows, k, bits, major)
    elements = descriptor.element_addresses(matrix.rows, matrix.k, matrix.bits, matrix.major)
    lines = elements if matrix.major == "K" else elements.T
    count = 8 * CHUNK_BYTES // bits
    encoded = descriptor.encode()
    return {
        "number": f"{encoded:#018x}",
        "fields": [
            {
                "name": field.name,
                "first": field.first_bit,
                "bits": field.bits,
                "value": descriptor.swizzle if field.name == "swizzle" else field.of(encoded),
                "meaning": field.meaning,
            }
            for field in matrix_descriptor.FIELDS
        ],
        "line": "row" if matrix.major == "K" else "k",
        "across": "k" if matrix.major == "K" else "row",
        "elements": count,
        "pieces": lines[:MOST_ROWS, ::count].tolist(),
        "all": len(lines),
        "swizzles": [mode.name for mode in SWIZZLE_MODES],
    }


def _number(text: str) -> int:
    try:
        return int(text.strip().replace("_", ""), 0)
    except ValueError:
        raise LanewiseError(
            f"{text[:40]!r} is no descriptor: write 64 bits, as in 0x4000004000000040"
        ) from None


def _compact(rows: int, k: int, bits: int, major: Any, swizzle: str) -> MatrixDescriptor:
    """Return the descriptor of a matrix that takes no more shared memory than it has to."""
    described_matrix(0, rows, k, bits, major)  # sizes that no instruction has are refused here
    grid, mode = piece_grid(rows, k, bits, major, swizzle), swizzle_mode(swizzle)
    offsets = {
        str(grid.line_modes[1].stride): mode.pattern_bytes,
        str(grid.piece_modes[1].stride): mode.pattern_bytes * grid.line_modes[1].extent,
    }
    if grid.piece_modes[1].extent == 1:
        offsets[str(grid.piece_modes[1].stride)] = 0  # there is no second one to go to
    leading, stride = (offsets.get(name, 0) for name in ("leading_byte_offset", "stride_byte_offset"))
    return MatrixDescriptor(START, leading, stride, swizzle=swizzle)


@question("instructions", "tensor_map")
def of_tensor_map(type: str, shape: list[int], box: list[int], swizzle: str = "none") -> dict[str, Any]:
    """Describe a tensor map of a row-major matrix and where its box lies in shared memory.

    >>> of_tensor_map("f16", [64, 64], [8, 64], "128B")["pieces"][1][0]
    144
    """
    if type not in ELEMENT_TYPES:
        raise LanewiseError(f"{type[:40]!r} is no type of a tensor map; types are {', '.join(ELEMENT_TYPES)}")
    if swizzle not in SWIZZLES:
        raise LanewiseError(f"{swizzle[:40]!r} is no swizzle; there are {', '.join(SWIZZLES)}")
    if len(shape) != 2 or len(box) != 2:
        raise LanewiseError("a matrix has rows and columns: give two sizes, and two of the box")
    if min(*shape, *box) < 1:
        raise LanewiseError("sizes are at least 1")
    pitch = shape[1] * ELEMENT_TYPES[type].bytes
    tensor = TiledTensor(type, (shape[1], shape[0]), (pitch,), (box[1], box[0]), (1, 1), swizzle=swizzle)
    tensor.require_legal()
    chunks = -(-tensor.row_bytes // CHUNK_BYTES)
    rows = min(tensor.rows, MOST_ROWS)
    return {
        "described": tensor.described(),
        "box_bytes": tensor.box_bytes,
        "line": "row",
        "across": "column",
        "elements": CHUNK_BYTES // tensor.element.bytes,
        "pieces": [
            [tensor.swizzled(row * tensor.row_pitch + CHUNK_BYTES * chunk) for chunk in range(chunks)]
            for row in range(rows)
        ],
        "from": [row * pitch for row in range(rows)],
        "all": tensor.rows,
        "types": list(ELEMENT_TYPES),
        "swizzles": list(SWIZZLES),
    }


#: Names of CUTLASS's atoms.
_ATOM = re.compile(r"(cute::)?(SM_?\d|(MMA_Atom|Copy_Atom|MMA_Traits|Copy_Traits)\s*<)", re.I)
#: Letters of a text that is looked up.
MOST_LETTERS = 2000


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
