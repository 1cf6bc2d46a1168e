"""Textures held to a record of an H200: 407 textures, each with ordinary, odd and borderline coordinates.

The record (tests/data/textures_h200.npz) has the texels, the coordinates and the words that were returned.
No `lw.texture` is sRGB, a cube map, or a line whose unused y axis has a border: those were left out.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lanewise as lw
from everything import sampled

RECORD = Path(__file__).parents[1] / "data" / "textures_h200.npz"
DTYPES = {
    "u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32,
    "f16": np.float16, "f32": np.float32,
}  # fmt: skip
#: The registers of each geometry's coordinates, in the order of the record.
COORDINATES = {
    "1d": "{%c0}", "2d": "{%c0, %c1}", "3d": "{%c0, %c1, %c2, %c2}", "a1d": "{%c0, %c1}",
    "a2d": "{%c0, %c1, %c2, %c2}",
}  # fmt: skip
KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 texture, .param .u64 points, .param .u64 out, .param .u32 n) {{
    .reg .b64 %rd<6>; .reg .b32 %r<24>; .reg .b32 %c<8>; .reg .b16 %h<4>; .reg .pred %p;
    ld.param.u64 %rd0, [texture]; ld.param.u64 %rd1, [points]; ld.param.u64 %rd2, [out];
    ld.param.u32 %r20, [n]; mov.u32 %r21, %ctaid.x; mov.u32 %r22, %tid.x; mad.lo.u32 %r23, %r21, 64, %r22;
    setp.ge.u32 %p, %r23, %r20; @%p bra DONE;
    mul.wide.u32 %rd3, %r23, 32; add.u64 %rd1, %rd1, %rd3;
    mul.wide.u32 %rd3, %r23, 16; add.u64 %rd2, %rd2, %rd3;
    ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%rd1]; ld.global.v4.b32 {{%c4, %c5, %c6, %c7}}, [%rd1+16];
    mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
    {fetch}
    st.global.v4.b32 [%rd2], {{%r0, %r1, %r2, %r3}};
DONE:
    ret;
}}
"""


class Record(NamedTuple):
    info: dict[str, Any]
    cases: list[dict[str, Any]]
    coordinates: np.ndarray
    results: np.ndarray
    texels: np.ndarray


@cache
def record() -> Record:
    kept = np.load(RECORD)
    described = json.loads(kept["record"].tobytes())
    return Record(described["info"], described["cases"], kept["coordinates"], kept["results"], kept["texels"])


def fetch_of(case: dict[str, Any]) -> str:
    """The instruction of a case, and what puts its result into words."""
    places = COORDINATES[case["geom"]]
    opcode = {"tex": "tex", "level": "tex.level", "grad": "tex.grad"}.get(case["op"], case["op"])
    more = {"level": ", %c7", "grad": ", {%c4, %c5}, {%c6, %c7}"}.get(case["op"], "")
    count = "v2" if case["dtype"] == "f16x2" else "v4"
    form = f"{opcode}.{case['geom']}.{count}.{case['dtype']}.{case['ctype']}"
    if case["dtype"] == "f16":
        widen = " ".join(f"cvt.u32.u16 %r{n}, %h{n};" for n in range(4))
        return f"{form} {{%h0, %h1, %h2, %h3}}, [%rd0, {places}]; {widen}"
    registers = "%r0, %r1" if case["dtype"] == "f16x2" else "%r0, %r1, %r2, %r3"
    return f"{form} {{{registers}}}, [%rd0, {places}]{more};"


@cache
def kernel_of(fetch: str) -> Any:
    return lw.load(KERNEL.format(fetch=fetch))["k"]


def texture_of(case: dict[str, Any]) -> Any:
    """The texture of a case; borders of integers were given as the bits of floats."""
    dtype, sizes = np.dtype(DTYPES[case["fmt"]]), case["sizes"][::-1]
    shape = [*([case["layers"]] if case["layers"] else []), *sizes, case["ch"]]
    if case["texels"] < 0:
        texels = np.arange(sizes[-1]).astype(dtype).reshape(shape)
    else:
        size = int(np.prod(shape)) * dtype.itemsize
        texels = record().texels[case["texels"] : case["texels"] + size].view(dtype).reshape(shape)
    integers = case["integer"] and dtype.kind != "f"
    border = np.float32(case["border"])
    return lw.texture(
        np.ascontiguousarray(texels if case["ch"] > 1 else texels[..., 0]),
        filter=case["filter"],
        address=case["addr"],
        normalized=case["norm"],
        read="element" if integers or dtype.kind == "f" else "normalized_float",
        channels=case["ch"],
        layered=bool(case["layers"]),
        border=(border.view(np.int32) if integers else border).tolist(),
    )


def parts() -> dict[str, list[tuple[dict[str, Any], int, int]]]:
    """The cases of each geometry, with where their coordinates and results begin."""
    found: dict[str, list[tuple[dict[str, Any], int, int]]] = {}
    point = result = 0
    for case in record().cases:
        found.setdefault(f"{case['geom']} {case['op'].split('.')[0]}", []).append((case, point, result))
        point += case["rows"] * case["columns"]
        result += case["rows"] * case["words"]
    return found


@sampled(12)
@pytest.mark.parametrize("name", parts())
def test_every_word_is_an_h200s(name: str) -> None:
    kept = record()
    wrong = []
    for case, point, result in parts()[name]:
        rows = case["rows"]
        points = np.zeros((rows, 8), np.uint32)
        end = point + rows * case["columns"]
        points[:, : case["columns"]] = kept.coordinates[point:end].reshape(-1, rows).T
        wanted = np.zeros((rows, 4), np.uint32)
        end = result + rows * case["words"]
        wanted[:, : case["words"]] = kept.results[result:end].reshape(-1, rows).T
        found = np.zeros((rows, 4), np.uint32)
        kernel_of(fetch_of(case))[-(-rows // 64), 64](texture_of(case), points, found, rows)
        for row in np.flatnonzero((found != wanted).any(axis=1)):
            wrong.append((case, points[row], found[row], wanted[row]))
    assert not wrong, f"{len(wrong)} differ, the first: {wrong[0]}"


def test_the_record_tells_where_it_is_from() -> None:
    info = record().info
    assert info["device"] == "NVIDIA H200" and info["driver"] and info["cuda"] and info["date"]
    assert len(record().cases) == 407
