"""Surface loads, stores and reductions: the same bits on the machine and on a GPU, beyond the surface too."""

import itertools
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here

torch = torch_here()

#: By geometry: the coordinates of an instruction, and the shape of the surface.
GEOMETRIES = {
    "1d": ("{%c0}", (13,)), "2d": ("{%c0, %c1}", (5, 13)), "3d": ("{%c0, %c1, %c2, %c2}", (3, 5, 13)),
    "a1d": ("{%c3, %c0}", (4, 13)), "a2d": ("{%c3, %c0, %c1, %c1}", (4, 5, 13)),
}  # fmt: skip
#: Types of texels and their channels.
TEXELS: tuple[tuple[Any, int], ...] = (
    (np.uint8, 1), (np.uint8, 2), (np.uint8, 4), (np.int16, 1), (np.int16, 2), (np.int16, 4), (np.int32, 1),
    (np.int32, 2), (np.int32, 4), (np.float32, 1),
)  # fmt: skip
REDUCTIONS = ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32")
WORDS = {8: "%h", 16: "%h", 32: "%r", 64: "%q"}
POINTS = 96


def kernel(geometry: str, opcode: str, count: int, bits: int, mode: str) -> str:
    """Return a kernel in which one thread goes through a list of points."""
    coordinates, word = GEOMETRIES[geometry][0], WORDS[bits]
    registers = [f"{word}{number}" for number in range(count)]
    held = "{" + ", ".join(registers) + "}"
    vector = f".v{count}" if count > 1 else ""
    moves = enumerate(registers)
    if opcode == "suld":
        body = f"suld.b.{geometry}{vector}.b{bits}.{mode} {held}, [%rd0, {coordinates}];\n"
        body += "\n".join(f"st.global.b{bits} [%rd3+{at * bits // 8}], {each};" for at, each in moves)
    else:
        body = "\n".join(f"ld.global.b{bits} {each}, [%rd2+{at * bits // 8}];" for at, each in moves)
        if opcode == "sust":
            body += f"\nsust.b.{geometry}{vector}.b{bits}.{mode} [%rd0, {coordinates}], {held};"
        else:
            name, type_ = opcode.split(".")
            body += f"\nsured.b.{name}.{geometry}.{type_}.{mode} [%rd0, {coordinates}], %r0;"
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 s, .param .u64 points, .param .u64 data, .param .u64 out, .param .u32 n) {{
    .reg .b64 %rd<6>; .reg .b32 %r<8>; .reg .b32 %c<4>; .reg .b32 %i<3>; .reg .b16 %h<4>; .reg .b64 %q<4>;
    .reg .pred %p;
    ld.param.u64 %rd0, [s]; ld.param.u64 %rd1, [points]; ld.param.u64 %rd2, [data]; ld.param.u64 %rd3, [out];
    ld.param.u32 %i1, [n]; mov.u32 %i0, 0;
L:  ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%rd1];
    {body}
    add.u64 %rd1, %rd1, 16; add.u64 %rd2, %rd2, 16; add.u64 %rd3, %rd3, 16;
    add.u32 %i0, %i0, 1; setp.lt.u32 %p, %i0, %i1; @%p bra L;
    ret;
}}
"""


def accesses(geometry: str, dtype: Any, channels: int) -> list[tuple[str, int, int]]:
    """Return opcodes with the elements and bits that fill a texel."""
    texel = 8 * np.dtype(dtype).itemsize * channels
    forms = [(count, bits) for count, bits in itertools.product((1, 2, 4), (8, 16, 32, 64))]
    fitting = [(count, bits) for count, bits in forms if count * bits == texel and (count, bits) != (4, 64)]
    found = [(opcode, *form) for opcode in ("suld", "sust") for form in fitting]
    reduces = dtype is np.int32 and channels == 1 and geometry[0] != "a"
    return found + [(each, 1, 32) for each in REDUCTIONS if reduces]


def points_of(geometry: str, texel: int, beyond: int, chance: np.random.Generator) -> Any:
    """Return coordinates (x in bytes, y, z, layer), some of them so far beyond the surface."""
    *outer, width = GEOMETRIES[geometry][1]
    layers = outer.pop(0) if geometry[0] == "a" else 1
    sizes = (width, *reversed(outer))
    points = np.zeros((POINTS, 4), np.int32)
    for axis, size in enumerate(sizes):
        points[:, axis] = chance.integers(-beyond, size + beyond, POINTS)
    points[:, 0] *= texel
    points[:, 3] = chance.integers(0, layers, POINTS)
    if beyond:
        points[-3:, 0] = (-(2**31), 2**31 - 16, 2**30)
    return points


@pytest.mark.parametrize("mode", ["trap", "clamp", "zero"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_surfaces_have_the_same_bits(geometry: str, mode: str) -> None:
    for dtype, channels in TEXELS:
        for number, (opcode, count, bits) in enumerate(accesses(geometry, dtype, channels)):
            chance = np.random.default_rng(number)
            shape = (*GEOMETRIES[geometry][1], *([channels] if channels > 1 else []))
            surface = chance.integers(0, 100, shape).astype(dtype)
            texel = np.dtype(dtype).itemsize * channels
            points = points_of(geometry, texel, 0 if mode == "trap" else 2, chance)
            data = chance.integers(0, 2**32, (POINTS, 4), dtype=np.uint32).view(np.int32)
            run = lw.load(kernel(geometry, opcode, count, bits, mode))["k"][1, 1]
            layered = geometry[0] == "a"
            here, out = surface.copy(), np.zeros((POINTS, 4), np.int32)
            run(lw.surface(here, channels=channels, layered=layered), points, data, out, POINTS)
            there, *others = (torch.from_numpy(each.copy()).cuda() for each in (surface, points, data))
            found = torch.zeros((POINTS, 4), dtype=torch.int32, device="cuda")
            run(lw.surface(there, channels=channels, layered=layered), *others, found, POINTS)
            torch.cuda.synchronize()
            name = f"{opcode} {count} x {bits}, {geometry}, {np.dtype(dtype)} x {channels}, {mode}"
            np.testing.assert_array_equal(out, found.cpu().numpy(), name)
            assert here.tobytes() == there.cpu().numpy().tobytes(), name
