"""Loads and stores of every width, space and pattern of addresses against NumPy; how a bad one faults."""

from dataclasses import dataclass

import numpy as np
import pytest

import lanewise.ptx as ptx
from everything import sampled
from lanewise.launch import launch
from lanewise.machine import KernelFault

BYTES = 4096
LANES = np.arange(32)


@dataclass(frozen=True)
class Form:
    """A vector of elements: `.v4.u32` is four of 32 bits."""

    count: int
    bits: int

    @property
    def size(self) -> int:
        return self.count * self.bits // 8

    @property
    def suffix(self) -> str:
        vector = f".v{self.count}" if self.count > 1 else ""
        return f"{vector}.b{self.bits}"

    @property
    def registers(self) -> str:
        names = ", ".join(f"%v{number}" for number in range(self.count))
        return "{" + names + "}" if self.count > 1 else names


FORMS = [Form(1, 8), Form(1, 16), Form(1, 32), Form(1, 64), Form(2, 32), Form(4, 32), Form(2, 64), Form(4, 8),
         Form(8, 32), Form(1, 128)]  # fmt: skip
PATTERNS = ("contiguous", "shifted", "uniform", "strided", "scattered", "pairs")


def offsets_of(pattern: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Places in units of an access."""
    last = BYTES // size - 1
    match pattern:
        case "contiguous":
            return LANES.copy()
        case "shifted":
            return LANES + (last - 31)
        case "uniform":
            return np.full(32, 7)
        case "strided":
            return LANES * (last // 31)
        case "pairs":
            return LANES // 2 * 3 + LANES % 2
    return rng.permutation(last + 1)[:32]


def kernel(form: Form, space: str, storing: bool) -> ptx.Entry:
    """Lane i moves data between `image + at[i]` and `data[i]`, if `mask[i]`; shared images are copied."""
    register = f".reg .b{max(form.bits, 16)} %v<{form.count}>;"
    move = f"ld{space}{form.suffix} {form.registers}, [%place+8];"
    own = f"st.global{form.suffix} [%own], {form.registers};"
    if storing:
        own, move = (
            f"ld.global{form.suffix} {form.registers}, [%own];",
            (f"st{space}{form.suffix} [%place+8], {form.registers};"),
        )
    lines = [f"@%take {move}", own] if not storing else [own, f"@%take {move}"]
    in_shared = "shared" in space or space == ""
    copy = """
copy_DIRECTION:
add.u32 %at, %byte, %window; cvt.u64.u32 %wide, %byte; add.u64 %from, %image, %wide;
MOVE
add.u32 %byte, %byte, 128; setp.lt.u32 %more, %byte, SIZE;
@%more bra copy_DIRECTION;
""".replace("SIZE", str(BYTES))
    inward = copy.replace("DIRECTION", "in").replace(
        "MOVE", "ld.global.u32 %w, [%from]; st.shared.u32 [%at], %w;"
    )
    outward = copy.replace("DIRECTION", "out").replace(
        "MOVE", "ld.shared.u32 %w, [%at]; st.global.u32 [%from], %w;"
    )
    place = "cvt.u64.u32 %place, %offset; add.u64 %place, %place, %image;"
    if in_shared:
        place = "add.u32 %offset, %offset, %window; cvt.u64.u32 %place, %offset;"
        if space == "":
            place += " cvta.shared.u64 %place, %place;"
    text = f"""
.version 8.7
.target sm_100
.address_size 64
.visible .entry k(.param .u64 p_image, .param .u64 p_at, .param .u64 p_mask, .param .u64 p_data) {{
.shared .align 128 .b8 window[{BYTES}];
{register}
.reg .b64 %image, %place, %own, %wide, %from; .reg .b32 %lane, %offset, %flag, %window, %at, %byte, %w;
.reg .pred %take, %more;
mov.u32 %lane, %tid.x; mov.u32 %window, window;
ld.param.u64 %image, [p_image];
shl.b32 %byte, %lane, 2; {inward if in_shared else ""} bar.sync 0;
ld.param.u64 %own, [p_at]; mad.wide.u32 %own, %lane, 4, %own; ld.global.u32 %offset, [%own];
ld.param.u64 %own, [p_mask]; mad.wide.u32 %own, %lane, 4, %own; ld.global.u32 %flag, [%own];
setp.ne.u32 %take, %flag, 0;
{place} sub.u64 %place, %place, 8;
ld.param.u64 %own, [p_data]; mad.wide.u32 %own, %lane, {form.size}, %own;
{chr(10).join(lines)}
bar.sync 0; shl.b32 %byte, %lane, 2; {outward if in_shared and storing else ""}
ret;
}}"""
    return ptx.parse(text)["k"]


@sampled(24)
@pytest.mark.parametrize("space", [".global", ".shared", ""], ids=["global", "shared", "generic"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix)
def test_every_pattern_of_addresses(form: Form, space: str) -> None:
    rng = np.random.default_rng(form.size * 3 + len(space))
    for storing in (False, True):
        run = kernel(form, space, storing)
        for pattern in PATTERNS:
            for mask in (np.ones(32, np.uint32), (LANES < 16).astype(np.uint32),
                         ((LANES > 3) & (LANES < 23)).astype(np.uint32),
                         rng.integers(0, 2, 32).astype(np.uint32), np.zeros(32, np.uint32)):  # fmt: skip
                image = rng.integers(0, 256, BYTES).astype(np.uint8)
                data = rng.integers(0, 256, (32, form.size)).astype(np.uint8)
                at = (offsets_of(pattern, form.size, rng) * form.size).astype(np.uint32)
                places = at[:, None] + np.arange(form.size)
                expected_image, expected_data = image.copy(), data.copy()
                if storing:
                    for lane in np.flatnonzero(mask):  # the last lane wins where lanes share a place
                        expected_image[places[lane]] = data[lane]
                else:
                    expected_data = np.where(mask[:, None] != 0, image[places], 0).astype(np.uint8)
                launch(run, (1, 32))(image, at, mask, data)
                assert (image == expected_image).all(), (pattern, storing)
                assert (data == expected_data).all(), (pattern, storing)


@pytest.mark.parametrize("form", [Form(1, 32), Form(4, 32)], ids=lambda form: form.suffix)
@pytest.mark.parametrize("space", [".global", ".shared"])
@pytest.mark.parametrize("lane", [0, 13, 31])
def test_one_bad_lane_is_the_one_named(form: Form, space: str, lane: int) -> None:
    for storing in (False, True):
        run = kernel(form, space, storing)
        image, data = np.zeros(BYTES, np.uint8), np.zeros((32, form.size), np.uint8)
        for value, kind in ((BYTES, "out of bounds"), (2, "misaligned")):
            at = (LANES * form.size).astype(np.uint32)
            at[lane] = value
            mask = np.ones(32, np.uint32)
            with pytest.raises(KernelFault, match=rf"(?s){kind}.*thread \({lane}, 0, 0\)"):
                launch(run, (1, 32))(image, at, mask, data)
            mask[lane] = 0
            launch(run, (1, 32))(image, at, mask, data)


MORE = """
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {
.reg .b64 %p, %policy, %lo, %hi; .reg .b128 %q, %old; .reg .f32 %f<5>; .reg .b32 %r<9>; .reg .b16 %h<9>;
.reg .pred %first;
ld.param.u64 %p, [p]; mov.u32 %r0, %tid.x; setp.eq.u32 %first, %r0, 0;
createpolicy.fractional.L2::evict_last.b64 %policy, 1.0;
prefetch.global.L2 [%p]; prefetch.global.L1 [%p];
mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f40000000;
red.relaxed.gpu.global.add.v2.f32 [%p], {%f0, %f1};
red.global.add.v4.f32 [%p+16], {%f0, %f1, %f0, %f1};
mov.b32 %r1, 0x40003C00; mov.b32 {%h0, %h1}, %r1;
red.global.add.noftz.v4.f16 [%p+32], {%h0, %h1, %h0, %h1};
red.global.max.noftz.v2.bf16x2 [%p+40], {%r1, %r1};
ld.global.L1::no_allocate.L2::cache_hint.L2::128B.f32 %f2, [%p+64], %policy;
ld.volatile.global.f32 %f3, [%p+64]; ld.acquire.gpu.global.f32 %f3, [%p+64]; ld.relaxed.sys.f32 %f3, [%p+64];
ld.global.nc.L1::evict_last.f32 %f4, [%p+64];
add.f32 %f2, %f2, %f4;
st.release.gpu.global.f32 [%p+68], %f2; st.global.L2::cache_hint.f32 [%p+72], %f3, %policy;
@!%first bra done;
mov.u64 %lo, 5; mov.u64 %hi, 6; mov.b128 %q, {%lo, %hi};
atom.global.exch.b128 %old, [%p+80], %q;
st.global.b128 [%p+96], %old;
mov.u64 %lo, 7; mov.b128 %old, {%lo, %hi};
atom.global.cas.b128 %old, [%p+80], %q, %old;
ld.global.b128 %q, [%p+80]; st.global.b128 [%p+112], %q;
done: ret; }"""


def test_vector_and_wide_atomics_hints_and_orders() -> None:
    memory = np.zeros(40, np.uint32)
    if memory.ctypes.data % 16:
        memory = np.zeros(44, np.uint32)[(16 - memory.ctypes.data % 16) // 4 :][:40]
    memory[16] = np.float32(3).view(np.uint32)
    memory[20:24] = (1, 2, 3, 4)
    launch(ptx.parse(MORE)["k"], (1, 32))(memory)
    floats, halves = memory.view(np.float32), memory.view(np.float16)
    assert floats[:2].tolist() == [32, 64] and floats[4:8].tolist() == [32, 64, 32, 64]
    assert halves[16:20].tolist() == [32, 64, 32, 64]
    assert memory[10:12].tolist() == [0x40003C00] * 2
    assert floats[17] == 6 and floats[18] == 3
    assert memory[24:28].tolist() == [1, 2, 3, 4]
    assert memory[28:32].tolist() == [7, 0, 6, 0]


NOT_THERE = [
    "red.async.relaxed.cluster.global.add.u32 [%r0], %r1, [%r2];",
    "st.async.mmio.release.gpu.global.u32 [%p], %r1;",
    "st.bulk.weak.shared::cta [%r0], 64, 0;",
]


@pytest.mark.parametrize("line", NOT_THERE, ids=lambda line: line.split()[0])
def test_what_is_not_there_is_named_with_its_line(line: str) -> None:
    head = ".version 8.7\n.target sm_90\n.address_size 64\n.entry k() {\n.reg .b64 %p; .reg .b32 %r<3>;\n"
    text = head + line + "\nret; }"
    with pytest.raises(ValueError, match="line 6"):
        launch(ptx.parse(text)["k"], (1, 32))()
