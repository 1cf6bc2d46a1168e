"""Matrices in shared memory that 64 bits or a tensor map describe: where each 16 bytes of their rows lie."""

from typing import Any

from lanewise.draw.shared_memory import CHUNK_BYTES, described_matrix
from lanewise.errors import LanewiseError
from lanewise.isa import matrix_descriptor
from lanewise.isa.matrix_descriptor import SWIZZLE_MODES, MatrixDescriptor, piece_grid, swizzle_mode
from lanewise.isa.tensor_map import TiledTensor
from lanewise.isa.tensor_map_fields import ELEMENT_TYPES, SWIZZLES

#: Rows that the page shows of a matrix or a box.
MOST_ROWS = 64
#: The address at which a matrix that the page makes up begins.
START = 0x400


def of_descriptor(rows: int, k: int, bits: int, major: str, swizzle: str, number: str) -> dict[str, Any]:
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


def of_tensor_map(type: str, shape: list[int], box: list[int], swizzle: str) -> dict[str, Any]:
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
