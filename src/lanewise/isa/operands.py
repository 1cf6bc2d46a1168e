"""The operands of a form: which matrices it has, in which formats, under which fragment layouts.

The layouts themselves are rules in `fragments.py`; what can be asked of an operand is in `operand.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from lanewise.formats import Format
from lanewise.isa import fragments
from lanewise.isa.form import Form
from lanewise.isa.operand import MissingOperand, Operand, SelectedOperand, within
from lanewise.isa.sparsity import Metadata
from lanewise.layout import Layout

PTX_ISA = "PTX ISA"
OBSERVED = "PTX leaves it open; observed on an H200 (sm_90, ptxas 13.0), inferred for other archs"
VOLTA_ARCHS = ("sm_70", "sm_72")
VOLTA_PUBLISHED = (
    "PTX leaves it open; published by Jia et al. (2018) and Raihan et al. (2019), who measured V100 and "
    "Titan V; it is the PTX ISA's m8n8k4 in each quad pair; not measured here, taken to be the same on sm_72"
)
VOLTA_ASSUMED = (
    "PTX leaves it open; assumed: the PTX ISA's m8n8k4 in each quad pair, as is published for m16n16k16; "
    "which quad pair has which part is not published for this shape"
)
CUTE = "CuTe's copy traits, in agreement with the PTX ISA's text"
#: By codes a row, and whether elements are 16 bits or wider (which share a word between rows g and g + 8).
METADATA_SOURCES = {
    (4, True): "PTX ISA for the lane, inferred for the order of bits",
    (8, True): "CuTe's layouts of E (SM90 GMMA, by warp)",
    (8, False): "inferred from the first half of the shape with twice the K",
    (16, False): "CuTe's layouts of E (SM90 GMMA, SM120)",
}
#: In these kinds every element sits in a byte, whatever its size.
BYTE_CONTAINERS = ("f8f6f4", "mxf8f6f4")
#: What ldmatrix and its kin move without looking into it.
RAW = {16: Format("b16", 16, "int", "uint16", signed=False), 8: Format("b8", 8, "int", "uint8", signed=False)}


def operands_of(form: Form, formats: Mapping[str, Format], fragments_of: str = "") -> dict[str, Operand]:
    """Every operand of a form, by name; with the fragments of an arch that has its own (`VOLTA_ARCHS`)."""
    if fragments_of in VOLTA_ARCHS and has_volta_fragments(form):
        return _volta_wmma(form, formats)
    if form.family in ("ldmatrix", "stmatrix", "movmatrix"):
        return _moved(form)
    if form.family in ("wmma.load", "wmma.store"):
        return _wmma(form, {form.matrix: formats[form.types[0]]})
    d, a, b, *rest = (formats[name] for name in form.types)
    named = {"a": a, "b": b, "c": rest[0] if rest else d, "d": d}
    if form.family == "wmma.mma":
        return _wmma(form, named)
    if form.products > 1:
        return _volta(form, named)
    return _multiplied(form, named, formats)


def _elements(fmt: Format, container: int = 0) -> int:
    """Elements a register holds, each in a container of so many bits or in its own."""
    return max(1, 32 // (container or fmt.bits))


def _make(form: Form, name: str, shape: tuple[int, int], fmt: Format, layout: Layout) -> Operand:
    """An operand as most are held: densely packed 32-bit registers of a warp, 64-bit ones for f64."""
    bits = 64 if fmt.bits == 64 else 32
    return Operand(
        name.upper(),
        *shape,
        fmt,
        layout,
        PTX_ISA,
        slot_bits=fmt.bits,
        register_bits=bits,
        transposed=name == "b",
        instruction=form.text,
    )


def _multiplied(form: Form, named: dict[str, Format], formats: Mapping[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    wgmma = form.family.startswith("wgmma")
    warps = form.threads // 32
    packed_k = k // 2 if form.sparse else k
    container = 8 if form.kind in BYTE_CONTAINERS else 0

    def in_registers(name: str, shape: tuple[int, int], layout: Layout) -> Operand:
        made = replace(_make(form, name, shape, named[name], layout), threads=form.threads)
        if not container or name in "cd":
            return made
        return replace(made, slot_bits=container, shift=2 if named[name].bits == 4 else 0)  # e2m1: bits 5..2

    def in_shared_memory(name: str, shape: tuple[int, int], layout: Layout) -> Operand:
        made = _make(form, name, shape, named[name], layout)
        return replace(made, threads=form.threads, where="shared memory")

    operands: dict[str, Operand] = {}
    if form.a_source == "descriptor":
        operands["a"] = in_shared_memory("a", (m, packed_k), fragments.descriptor_layout(m, packed_k))
    else:
        e = _elements(named["a"], container)
        operands["a"] = in_registers("a", (m, packed_k), fragments.a_layout(m, packed_k, e, warps))
    if wgmma:
        operands["b"] = in_shared_memory("b", (k, n), fragments.descriptor_layout(n, k))
    else:
        e = _elements(named["b"], container)
        operands["b"] = in_registers("b", (k, n), fragments.b_layout(n, k, e))
    for name in ("c", "d"):
        operands[name] = in_registers(name, (m, n), fragments.c_layout(m, n, warps))
    if form.sparse:
        operands["metadata"] = _metadata(form, named["a"], container, warps, formats["u4"])
    if form.scale_type:
        operands.update(_scales(form, formats[form.scale_type]))
    return operands


def _metadata(form: Form, a: Format, container: int, warps: int, code: Format) -> Metadata:
    m, _, k = form.shape
    bits = container or a.bits
    groups = k // {32: 2, 4: 8}.get(bits, 4)
    choices, step = {4: (4, 1), 8: (2, 2), 16: (1, 1)}[groups]
    return Metadata(
        "E",
        m,
        groups,
        code,
        fragments.metadata_layout(m, groups, bits, warps),
        METADATA_SOURCES[groups, bits >= 16],
        slot_bits=4,
        threads=form.threads,
        instruction=form.text,
        lane_choices=choices,
        lane_step=step,
        element_bits=bits,
        # PTX ISA, "Sparse matrix storage": FP8 has no codes that descend, others have them in mma.sp.
        ordered=form.family != "mma.sp" or a.name in ("e4m3", "e5m2"),
    )


def _scales(form: Form, fmt: Format) -> dict[str, Operand]:
    m, n, _ = form.shape
    vector = form.scale_vec

    def scale(name: str, shape: tuple[int, int], layout: Layout, choices: int, step: int) -> SelectedOperand:
        return SelectedOperand(
            name,
            *shape,
            fmt,
            layout,
            PTX_ISA,
            slot_bits=8,
            transposed=name == "scale B",
            instruction=form.text,
            lane_choices=choices,
            lane_step=step,
            byte_choices=4 // vector,
            byte_step=vector,
        )

    return {
        "scale_a": scale("scale A", (m, vector), fragments.scale_a_layout(m, vector), 2, 2),
        "scale_b": scale("scale B", (vector, n), fragments.scale_b_layout(n, vector), 4, 1),
    }


def _volta(form: Form, named: dict[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    layouts = {
        "a": fragments.volta_ab_layout(along_k=form.layouts[0] == "row"),
        "b": fragments.volta_ab_layout(along_k=form.layouts[1] == "col"),
        "c": fragments.volta_c_layout(f32=named["c"].bits == 32),
        "d": fragments.volta_c_layout(f32=named["d"].bits == 32),
    }
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}
    return {
        name: replace(
            _make(form, name, shapes[name], named[name], layout),
            products=form.products,
            thr_id=fragments.VOLTA_THR_ID,
        )
        for name, layout in layouts.items()
    }


def _wmma(form: Form, named: dict[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    operands: dict[str, Operand] = {}
    for name, fmt in named.items():
        e = _elements(fmt)
        rows, cols = {"a": (m, k), "b": (k, n)}.get(name, (m, n))
        # f16 has 8 registers on every shape; what the matrix does not fill holds the same elements again.
        copies = max(1, 8 * 32 * e // (rows * cols)) if fmt.name == "f16" and name in "ab" else 1
        # m8n32 is m32n8 with A and B exchanged.
        if name in "cd":
            layout = fragments.c_transposed_layout(m, n) if n == 32 else fragments.c_layout(m, n)
        elif (name == "a") != (n == 32):
            layout = fragments.a_layout(max(m, n), k, e, copies=copies)
        else:
            layout = fragments.b_layout(min(m, n), k, e, copies=copies)
        operands[name] = replace(_make(form, name, (rows, cols), fmt, layout), source=OBSERVED)
    return operands


def has_volta_fragments(form: Form) -> bool:
    """Whether Volta has fragments of its own for a form: wmma of f16, with its accumulators."""
    if form.family == "wmma.mma":
        return form.types[1] == "f16"
    return form.family in ("wmma.load", "wmma.store") and form.types[0] in ("f16", "f32")


def _volta_wmma(form: Form, formats: Mapping[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    if form.family == "wmma.mma":
        named = dict(zip("dabc", form.types, strict=True))
        orders = {"a": form.layouts[0], "b": form.layouts[1]}
    else:
        named, orders = {form.matrix: form.types[0]}, {form.matrix: form.layouts[0]}
    # Bits 2 and 3 of a lane choose 8 rows and 8 columns; where a matrix has 32 of them, both bits do.
    rows, columns = {16: ((8, 0), (0, 8)), 32: ((8, 16), (0, 0)), 8: ((0, 0), (8, 16))}[m]
    operands: dict[str, Operand] = {}
    for name, fmt in named.items():
        if name == "a":
            shape, layout = (m, k), fragments.volta_wmma_ab_layout(m, k, rows, orders["a"] == "row")
        elif name == "b":
            shape, layout = (k, n), fragments.volta_wmma_ab_layout(n, k, columns, orders["b"] == "col")
        else:
            pairs = [row + m * column for row, column in zip(rows, columns, strict=True)]
            shape, layout = (m, n), fragments.volta_wmma_c_layout(m, pairs, formats[fmt].bits == 32)
        source = VOLTA_PUBLISHED if m == 16 else VOLTA_ASSUMED
        operands[name] = replace(_make(form, name, shape, formats[fmt], layout), source=source)
    return {name: operands[name] for name in "abcd" if name in operands}


def _moved(form: Form) -> dict[str, Operand]:
    fmt = RAW[16 if form.types[0] == "b16" else 8]
    if form.family == "movmatrix":
        layout = fragments.row_layout(8, 1, 2)
        return {name: _make(form, name, (8, 8), fmt, layout) for name in ("a", "d")}
    rows, cols = (8, 16) if form.shape_text == "m16n8" else form.shape
    total = rows * form.num
    if form.shape_text == "m16n16":
        layout = fragments.m16n16_layout(total, form.num)
    elif form.shape_text == "m16n8":
        layout = fragments.m16n8_layout(total, form.num)
    elif form.trans:
        layout = fragments.transposed_layout(total, form.num)
    else:
        layout = fragments.row_layout(total, form.num, 32 // fmt.bits)
    name = "a" if form.family == "stmatrix" else "d"
    source = PTX_ISA if form.types[0] == "b16" or form.shape_text == "m8n16" else CUTE
    return {name: replace(_make(form, name, (total, cols), fmt, layout), source=source)}


class RowAddresses(NamedTuple):
    """The rows that ldmatrix and stmatrix address: lane r gives row r's address, counted over all matrices.

    >>> from lanewise.isa import instruction
    >>> instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16").row_addresses
    RowAddresses(rows=32, row_bytes=16, matrices=4)
    """

    rows: int
    row_bytes: int
    matrices: int

    def lane(self, row: int) -> int:
        """The lane that gives the address of a row."""
        return within(row, self.rows, "row", "the matrices")


def row_addresses(form: Form) -> RowAddresses:
    """The rows that a form addresses: 16 bytes each, one lane a row."""
    if form.family not in ("ldmatrix", "stmatrix"):
        raise MissingOperand(f"{form.text} takes no row addresses; ldmatrix and stmatrix do")
    rows = 16 if form.shape_text == "m16n16" else 8
    return RowAddresses(rows * form.num, 16, form.num)
