"""What 32 or 64 bits or 128 bytes mean: descriptors of wgmma and tcgen05, a tensor map of TMA, by fields."""

from collections.abc import Sequence

from lanewise.cli.terminal.answer import Answer, Cell, Table, facts
from lanewise.errors import LanewiseError
from lanewise.isa import matrix_descriptor, tensor_map, tensor_map_fields
from lanewise.isa.asynchronous.descriptor import KINDS, InstructionDescriptor
from lanewise.isa.matrix_descriptor import TCGEN05_FIELD, TCGEN05_VERSION, MatrixDescriptor
from lanewise.isa.tensor_map import TiledTensor, address_violation, decode_im2col


def of_descriptor(number: int) -> Answer:
    """Explain a matrix descriptor; 32 bits may be an instruction descriptor of tcgen05.mma.

    >>> of_descriptor(0x4000004000000040).data["swizzle"]
    '128B'
    >>> of_descriptor(0x4000404000000040).data["version"]
    1
    """
    data: dict[str, object] = {"kind": "matrix descriptor", "bits": f"{number:#018x}"}
    tables = []
    if number >> 32 == 0:
        tables.append(_as_instruction_descriptor(number, data))
    is_tcgen05 = TCGEN05_FIELD["version"].of(number) == TCGEN05_VERSION
    problem = matrix_descriptor.tcgen05_fault(number) if is_tcgen05 else ""
    decoded = MatrixDescriptor.decode(number, TCGEN05_VERSION if is_tcgen05 and not problem else 0)
    table = matrix_descriptor.TCGEN05_FIELDS if is_tcgen05 else matrix_descriptor.FIELDS
    fields = []
    for field in table:
        value: Cell = decoded.swizzle if field.name == "swizzle" and not problem else field.of(number)
        if field.name == "start_address":
            value = f"{value:#x}"
        fields.append((field.name, _bits(((field.first_bit, field.bits),)), value, field.meaning))
    data |= {field.name: getattr(decoded, field.name) for field in matrix_descriptor.FIELDS}
    data["version"] = TCGEN05_VERSION if is_tcgen05 else 0
    whose = "tcgen05 (version 1)" if is_tcgen05 else "wgmma"
    named = f"a matrix in shared memory, for {whose}"
    tables += [
        facts("", [("matrix descriptor", f"{number:#018x}"), ("names", named)]),
        Table("fields", ("field", "bits", "value", "meaning"), fields),
    ]
    notes = _descriptor_notes(decoded, number, is_tcgen05)
    if problem:
        data["problem"] = problem
        notes = [f"tcgen05 does not take it: {problem}."]
    return Answer(tuple(tables), data, tuple(notes))


def _as_instruction_descriptor(number: int, data: dict[str, object]) -> Table:
    """Return what 32 bits say as an instruction descriptor of tcgen05.mma, for each kind."""
    rows: list[Sequence[Cell]] = []
    for name in KINDS:
        try:
            said = InstructionDescriptor.decode(number, name)
        except LanewiseError as error:
            why = str(error).replace(f" of the instruction descriptor {number:#010x}", "")
            rows.append((name, "no", why.removeprefix(f"the instruction descriptor {number:#010x} ")))
            continue
        flags = [
            f"{word} {getattr(said, word)}"
            for word in ("a_major", "b_major", "scale", "scale_a_id", "scale_b_id")
            if getattr(said, word) not in ("K", "", 0)
        ]
        flags += [word for word in ("negate_a", "negate_b", "sparse", "saturate") if getattr(said, word)]
        shape = f"m{said.m}n{said.n}k{said.k}, A {said.a}, B {said.b}, D {said.d}"
        rows.append((name, "yes", ", ".join((shape, *flags))))
    data["instruction_descriptor"] = [dict(zip(("kind", "legal", "says"), row, strict=True)) for row in rows]
    return Table(
        f"as an instruction descriptor of tcgen05.mma, {number:#010x}", ("kind", "legal", "says"), rows
    )


def _descriptor_notes(descriptor: MatrixDescriptor, number: int, is_tcgen05: bool) -> list[str]:
    """Return what the fields together say."""
    mode = descriptor.mode
    stride, leading = descriptor.stride_byte_offset, descriptor.leading_byte_offset
    if mode.name == "none":
        notes = [
            "Without a swizzle, 8 rows of 16 bytes lie one after the other, 128 bytes.",
            f"K-major: the next 8 rows are {stride} bytes further, the next 16 bytes along K {leading}.",
            f"MN-major: the next 8 along K are {leading} bytes further, the next 16 bytes along M or N "
            f"{stride}.",
        ]
    else:
        notes = [
            f"Swizzle {mode.name}: {mode.lines} rows of {mode.row_bytes} bytes lie one after the other, "
            f"{mode.pattern_bytes} bytes; the 16-byte pieces of a row are permuted by {mode.swizzle!r}.",
            f"K-major: the next 8 rows are {stride} bytes further, the next {mode.row_bytes} bytes along K "
            f"{leading}; a step within them adds to the start address.",
            f"MN-major: the next 8 along K are {stride} bytes further, the next {mode.row_bytes} bytes along "
            f"M or N {leading}.",
        ]
        start = descriptor.start_address % mode.pattern_bytes
        if start and not descriptor.base_offset and start >= mode.row_bytes:
            notes.append(
                f"The start is {start} bytes past a multiple of {mode.pattern_bytes}, where patterns begin; "
                f"if the pattern begins at it, base_offset is {descriptor.start_address >> 7 & 7}."
            )
    unknown = 0 if is_tcgen05 else matrix_descriptor.reserved_bits(number)
    if unknown:
        notes.append(
            f"Bits that belong to no field are set: {unknown:#x}. Descriptors of sm_90 have zeros there."
        )
    if number >> 32 == 0:
        notes.append(
            "Field by field, for one kind: "
            f"`lanewise explain tcgen05.mma.cta_group::1.kind::f16 --descriptor {number:#x}`."
        )
    notes.append(f"Draw it: lanewise draw descriptor {number:#x} --bits 16 --major K -o descriptor.svg")
    return notes


def of_tensor_map(raw: bytes) -> Answer:
    """Explain a tensor map; one that is not legal is shown field by field all the same.

    >>> tensor = TiledTensor("f16", (64, 64), (128,), (64, 8), (1, 1), swizzle="128B")
    >>> of_tensor_map(tensor.encode(0x10000)).data["box"]
    [8, 64]
    """
    values = tensor_map.field_values(raw)
    try:
        address, tensor = tensor_map.decode(raw)
    except LanewiseError as error:
        table = _fields(values, None)
        if values["mode"] == tensor_map_fields.IM2COL:
            return _of_columns(raw, values, table)
        return Answer(
            (table,), {"kind": "tensor map", "fields": values, "problem": str(error)}, (str(error),)
        )
    return Answer(
        (facts("", _tensor_facts(address, tensor)), _fields(values, tensor)),
        _tensor_data(address, tensor, values),
        tuple(_map_notes(raw, address, tensor)),
    )


def _of_columns(raw: bytes, values: dict[str, int], table: Table) -> Answer:
    """Explain a tensor map of the mode im2col, of which `table` has the fields as a tiled map has them."""
    data: dict[str, object] = {"kind": "tensor map", "mode": "im2col", "fields": values}
    try:
        address, tensor = decode_im2col(raw)
    except LanewiseError as error:
        return Answer((table,), data | {"problem": str(error)}, (str(error),))
    cells: list[tuple[str, Cell]] = [
        ("tensor map", tensor.described()),
        (
            "tensor",
            f"{tensor.type} {tensor.dims[::-1]} at {address:#x}, strides {tensor.strides[::-1]} bytes",
        ),
        (
            "a copy",
            f"takes {tensor.pixels} pixels of {tensor.row_bytes} bytes, one each {tensor.row_pitch} in "
            f"shared memory; an mbarrier expects {tensor.box_bytes} bytes",
        ),
        ("bounding box", f"from {tensor.lower[::-1]} to {tensor.upper[::-1]} past the last pixel"),
    ]
    broken = tensor.violation()
    notes = () if broken is None else (f"The driver would not encode this: {broken}.",)
    data |= {
        "address": address, "type": tensor.type, "shape": list(tensor.dims[::-1]),
        "lower": list(tensor.lower[::-1]), "upper": list(tensor.upper[::-1]), "pixels": tensor.pixels,
        "channels": tensor.channels, "box_bytes": tensor.box_bytes, "problem": broken or "",
    }  # fmt: skip
    return Answer((facts("", cells), table), data, notes)


def _tensor_facts(address: int, tensor: TiledTensor) -> list[tuple[str, Cell]]:
    """Return a tensor map in words, shapes with the outermost axis first."""
    fill = "NaN" if tensor.fill == "nan" else "zeros"
    strides = (*tensor.strides[::-1], tensor.element.bytes)
    return [
        ("tensor map", tensor.described()),
        ("tensor", f"{tensor.type} {tensor.dims[::-1]} at {address:#x}, strides {strides} bytes"),
        (
            "box",
            f"{tensor.copied[::-1]} elements"
            + (f" of {tensor.place_bytes} bytes, interleaved" if tensor.is_interleaved else "")
            + f"; an mbarrier expects {tensor.box_bytes} bytes",
        ),
        (
            "in shared memory",
            f"{tensor.rows} rows of {tensor.row_bytes} bytes, one each {tensor.row_pitch}; aligned to "
            f"{tensor.swizzle_mode.alignment}",
        ),
        ("outside", f"read as {fill}, not written"),
    ]


def _tensor_data(address: int, tensor: TiledTensor, values: dict[str, int]) -> dict[str, object]:
    """Return the same for JSON."""
    return {
        "kind": "tensor map",
        "address": address,
        "type": tensor.type,
        "shape": list(tensor.dims[::-1]),
        "strides": [*tensor.strides[::-1], tensor.element.bytes],
        "box": list(tensor.box[::-1]),
        "element_strides": list(tensor.element_strides[::-1]),
        "interleave": tensor.interleave,
        "swizzle": tensor.swizzle,
        "l2_promotion": tensor.l2_promotion,
        "fill": tensor.fill,
        "box_bytes": tensor.box_bytes,
        "fields": values,
    }


def _fields(values: dict[str, int], tensor: TiledTensor | None) -> Table:
    """Return the fields, without those of axes that the tensor does not have."""
    words = (
        {}
        if tensor is None
        else {
            "type": tensor.element.name.removeprefix("t") if tensor.element.tf32 else tensor.type,
            "interleave": tensor.interleave,
            "swizzle": tensor.swizzle,
            "fill": tensor.fill,
            "l2_promotion": tensor.l2_promotion,
        }
    )
    rows: list[Sequence[Cell]] = []
    for field in tensor_map_fields.FIELDS:
        axis = field.name[-1]
        if tensor is not None and axis.isdigit() and field.name != "tf32" and int(axis) >= tensor.rank:
            continue
        value: Cell = words.get(field.name, values[field.name])
        rows.append(
            (
                field.name,
                _bits(field.parts),
                f"{value:#x}" if field.name == "address" else value,
                field.meaning,
            )
        )
    return Table("fields (axis 0 is the innermost)", ("field", "bits", "value", "meaning"), rows)


def _map_notes(raw: bytes, address: int, tensor: TiledTensor) -> list[str]:
    """Return what is unusual about a map."""
    notes = []
    broken = tensor.violation() or address_violation(tensor.interleave, address)
    if broken is not None:
        notes.append(f"The driver would not encode this: {broken}.")
    else:
        for name in tensor_map.noted_otherwise(raw):
            notes.append(
                f"{name} is not what the driver writes for such a map: another field was changed since."
            )
    bits = tensor_map.unknown_bits(raw)
    if bits:
        notes.append(f"Bits that belong to no field are set: {', '.join(map(str, bits[:16]))}.")
    notes.append("Draw it: lanewise draw tensor-map FILE -o map.svg")
    return notes


def _bits(parts: Sequence[tuple[int, int]]) -> str:
    """Return the bits of a field as people write them.

    >>> _bits(((96, 32), (224, 4)))
    '127–96, 227–224'
    """
    return ", ".join(f"{first + count - 1}–{first}" if count > 1 else str(first) for first, count in parts)
