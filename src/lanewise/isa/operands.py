"""The operands of a form: which matrices it has, in which formats, under which fragment layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa import fragments
from lanewise.isa.form import Form
from lanewise.isa.operand import Operand
from lanewise.isa.selected import SelectedOperand
from lanewise.isa.sparsity import Metadata
from lanewise.layout import Layout

PTX_ISA = "PTX ISA"
OBSERVED = "PTX leaves it open; observed on an H200 (sm_90, ptxas 13.0), inferred for other archs"
#: In these kinds every element sits in a byte, whatever its size.
BYTE_CONTAINERS = ("f8f6f4", "mxf8f6f4")
#: What ldmatrix and its kin move without looking into it.
RAW = {16: Format("b16", 16, "int", "uint16", signed=False), 8: Format("b8", 8, "int", "uint8", signed=False)}


def operands_of(form: Form, formats: Mapping[str, Format]) -> dict[str, Operand]:
    """Every operand of a form, by name."""
    if form.family in ("ldmatrix", "stmatrix", "movmatrix"):
        return _moved(form)
    if form.family in ("wmma.load", "wmma.store"):
        return _wmma(form, {form.matrix: formats[form.types[0]]})
    d, a, b, *rest = (formats[name] for name in form.types)
    named = {"a": a, "b": b, "c": rest[0] if rest else d, "d": d}
    if form.family == "wmma.mma":
        return _wmma(form, named)
    if form.shape_text == "m8n8k4" and a.name == "f16":
        return _volta(form, named)
    return _multiplied(form, named, formats)


def _make(form: Form, name: str, rows: int, cols: int, fmt: Format, layout: Layout, **rest: object) -> Operand:
    bits = 64 if fmt.bits == 64 else 32
    settings = {"source": PTX_ISA, "slot_bits": fmt.bits, "register_bits": bits, "instruction": form.text, **rest}
    return Operand(name.upper(), rows, cols, fmt, layout, **settings)  # type: ignore[arg-type]  # checked by the dataclass


def _multiplied(form: Form, named: dict[str, Format], formats: Mapping[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    wgmma = form.family.startswith("wgmma")
    warps, threads = (4, 128) if wgmma else (1, 32)
    packed_k = k // 2 if form.sparse else k

    def slot(fmt: Format) -> dict[str, int]:
        if form.kind not in BYTE_CONTAINERS:
            return {"slot_bits": fmt.bits}
        return {"slot_bits": 8, "shift": 2 if fmt.bits == 4 else 0}  # e2m1 sits in bits 5..2

    def elements(fmt: Format) -> int:
        return 1 if fmt.bits == 64 else 32 // slot(fmt)["slot_bits"]

    def shared(name: str, rows: int, cols: int, outer: int, inner: int, transposed: bool) -> Operand:
        layout = fragments.descriptor_layout(outer, inner)
        where = {"where": "shared memory", "threads": threads, "transposed": transposed}
        return _make(form, name, rows, cols, named[name], layout, **where)

    a, b = named["a"], named["b"]
    found: dict[str, Operand] = {}
    if form.a_source == "descriptor":
        found["a"] = shared("a", m, packed_k, m, packed_k, False)
    else:
        layout = fragments.a_layout(m, packed_k, elements(a), warps)
        found["a"] = _make(form, "a", m, packed_k, a, layout, threads=threads, **slot(a))
    if wgmma:
        found["b"] = shared("b", k, n, n, k, True)
    else:
        layout = fragments.b_layout(n, k, elements(b))
        found["b"] = _make(form, "b", k, n, b, layout, transposed=True, **slot(b))
    for name in ("c", "d"):
        layout = fragments.c_layout(m, n, warps)
        found[name] = _make(form, name, m, n, named[name], layout, threads=threads)
    if form.sparse:
        found["metadata"] = _metadata(form, slot(a)["slot_bits"], warps, formats["u4"])
    if form.scale_type:
        found.update(_scales(form, formats[form.scale_type]))
    return found


def _metadata(form: Form, bits: int, warps: int, code: Format) -> Metadata:
    m, _, k = form.shape
    groups = k // {32: 2, 4: 8}.get(bits, 4)
    choices, step = {4: (4, 1), 8: (2, 2), 16: (1, 1)}[groups]
    return Metadata(
        "E", m, groups, code, fragments.metadata_layout(m, groups, bits, warps), PTX_ISA, 4,
        threads=32 * warps, instruction=form.text, lane_choices=choices, lane_step=step, element_bits=bits,
    )  # fmt: skip


def _scales(form: Form, fmt: Format) -> dict[str, Operand]:
    m, n, _ = form.shape
    vector = form.scale_vec
    common = {"byte_choices": 4 // vector, "byte_step": vector, "instruction": form.text}
    of_a, of_b = fragments.scale_a_layout(m, vector), fragments.scale_b_layout(n, vector)
    return {
        "scale_a": SelectedOperand(
            "scale A", m, vector, fmt, of_a, PTX_ISA, 8, lane_choices=2, lane_step=2, **common  # type: ignore[arg-type]  # ints and a str
        ),
        "scale_b": SelectedOperand(
            "scale B", vector, n, fmt, of_b, PTX_ISA, 8, True, lane_choices=4, **common  # type: ignore[arg-type]  # ints and a str
        ),
    }


def _volta(form: Form, named: dict[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    settings = {"products": 4, "thr_id": fragments.VOLTA_THR_ID}
    a_along_k, b_along_k = form.layouts[0] == "row", form.layouts[1] == "col"
    found = {
        "a": _make(form, "a", m, k, named["a"], fragments.volta_ab_layout(a_along_k), **settings),
        "b": _make(form, "b", k, n, named["b"], fragments.volta_ab_layout(b_along_k), transposed=True, **settings),
    }
    for name in ("c", "d"):
        layout = fragments.volta_c_layout(named[name].bits == 32)
        found[name] = _make(form, name, m, n, named[name], layout, **settings)
    return found


def _wmma(form: Form, named: dict[str, Format]) -> dict[str, Operand]:
    m, n, k = form.shape
    found: dict[str, Operand] = {}
    for name, fmt in named.items():
        e = 1 if fmt.bits == 64 else 32 // fmt.bits
        rows, cols = {"a": (m, k), "b": (k, n)}.get(name, (m, n))
        # f16 has 8 registers on every shape; what the matrix does not fill holds the same elements again.
        copies = max(1, 8 * 32 * e // (rows * cols)) if fmt.name == "f16" and name in "ab" else 1
        # m8n32 is m32n8 with A and B exchanged.
        if name in "cd":
            layout = fragments.c_transposed_layout(m, n) if n == 32 else fragments.c_layout(m, n)
        elif (name == "a") != (n == 32):
            layout = fragments.a_layout(max(m, n) if n == 32 else m, k, e, copies=copies)
        else:
            layout = fragments.b_layout(m if n == 32 else n, k, e, copies=copies)
        source = PTX_ISA if (m, n) == (8, 8) and fmt.bits != 64 else OBSERVED
        found[name] = _make(form, name, rows, cols, fmt, layout, source=source, transposed=name == "b")
    return found


def _moved(form: Form) -> dict[str, Operand]:
    fmt = RAW[16 if form.types[0] == "b16" else 8]
    if form.family == "movmatrix":
        return {
            "a": _make(form, "a", 8, 8, fmt, fragments.row_layout(8, 1, 2)),
            "d": _make(form, "d", 8, 8, fmt, fragments.row_layout(8, 1, 2)),
        }
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
    return {name: _make(form, name, total, cols, fmt, layout)}


class RowAddresses(NamedTuple):
    """The rows that ldmatrix and stmatrix address: lane r gives the address of row r, counted over all matrices."""

    rows: int
    row_bytes: int
    matrices: int

    def lane(self, row: int) -> int:
        """The lane that gives the address of a row."""
        if not 0 <= row < self.rows:
            raise LanewiseError(f"rows are 0 to {self.rows - 1}; {row} was asked for")
        return row


def row_addresses(form: Form) -> RowAddresses:
    """The rows that a form addresses: 16 bytes each, one lane a row."""
    if form.family not in ("ldmatrix", "stmatrix"):
        raise LanewiseError(f"{form.text} takes no row addresses; ldmatrix and stmatrix do")
    rows = 16 if form.shape_text == "m16n16" else 8
    return RowAddresses(rows * form.num, 16, form.num)
