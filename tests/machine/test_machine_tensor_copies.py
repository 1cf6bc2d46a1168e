"""Tensor copies (TMA) on the CPU machine: held against an H200's record, and against a model in NumPy."""

import re
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lanewise as lw
from everything import EVERYTHING, examples, sampled
from lanewise.machine.errors import KernelFault
from machine.recorded_copies import RECORD, recorded
from tensor_copy_cases import IMAGE, SEEN, SIZES, UNTOUCHED, Bytes, Case, box_bytes, digest, run, sources

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


# the record -------------------------------------------------------------------------------------------------


def test_copies_leave_the_bytes_that_an_h200_left(everything: bool) -> None:
    wrong, count = [], 0
    for number, (case, seen) in enumerate(recorded()):
        if "error" in seen or (
            not everything and number % (3 if EVERYTHING else 12) and case.verb in ("load", "store")
        ):
            continue
        image, memory = run(case)
        found = digest(image) if case.verb == "load" else digest(memory[:SEEN])
        count += 1
        if found != (seen["shared"] if case.verb == "load" else seen["global"]):
            wrong.append(case)
    assert count > (200 if EVERYTHING else 50)
    assert not wrong


def test_what_stops_an_h200_stops_the_machine_with_its_line() -> None:
    for case, seen in recorded():
        if "error" in seen:
            with pytest.raises(KernelFault, match=r"(?s)line \d+: cp\..*by thread") as raised:
                run(case)
            assert raised.value.line


def replacement(name: str) -> str:
    """Return the instruction that changes a field: its name, with a mode or the number of a dimension."""
    mode = re.fullmatch(r"([a-z_]+)_(\d+)", name)
    if mode is not None:
        return f"tensormap.replace.tile.{mode[1]}.global.b1024.b32 [%rd0], {mode[2]};"
    field = name.rstrip("01234")
    ordinal = f"{name[-1]}, " if field != name else ""
    wide = field in ("global_address", "global_stride")
    type, value = ("b64", "%rd1") if wide else ("b32", "%r1")
    return f"tensormap.replace.tile.{field}.global.b1024.{type} [%rd0], {ordinal}{value};"


def test_tensormap_replace_changes_the_bits_that_an_h200_changed() -> None:
    entries = [
        f"""
.visible .entry {name}(.param .u64 map, .param .u64 value) {{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd0, [map];
    ld.param.u64 %rd1, [value];
    cvt.u32.u64 %r1, %rd1;
    {replacement(name)}
    ret;
}}"""
        for name in dict.fromkeys(name for name, _, _ in RECORD["replaced_fields"])
    ]
    module = lw.load(HEAD.replace("8.0", "8.3") + "".join(entries))
    for name, value, changed in RECORD["replaced_fields"]:
        words = np.frombuffer(bytes.fromhex(RECORD["map_before"]), np.uint32).copy()
        expected = words.copy()
        for place, word in changed:
            expected[place] = word
        module[name][1, 1](words, value)
        assert words.tolist() == expected.tolist(), name


@pytest.mark.parametrize("case, told, completes", RECORD["bytes_told"])
def test_an_mbarrier_is_told_of_the_bytes_of_the_box(case: list[Any], told: int, completes: bool) -> None:
    box, strides, swizzle, coordinates = case
    made = Case(
        "load", 1, 2, (16, 8, 8), (2048, 16384), tuple(box), tuple(strides), 0, swizzle, 0,
        tuple(coordinates), 0, 131072, "index4",
    )  # fmt: skip
    assert (box_bytes(made) == told) == completes
    run(made)  # it waits for just so many bytes


# a model ----------------------------------------------------------------------------------------------------


def modelled(case: Case) -> tuple[Bytes, Bytes]:
    """Return shared memory and the tensor's memory after a load or store, as the PTX ISA describes it.

    What the ISA leaves open is as an H200 has it: rows as wide as the swizzle's pattern, stores of whole
    16 bytes.
    """
    memory, image = sources(case)
    if case.verb == "load":
        image = np.full(IMAGE, UNTOUCHED, np.uint8)
    size = case.size
    counts = [
        case.box[0],
        *(-(-box // step) for box, step in zip(case.box[1:], case.strides[1:], strict=True)),
    ]
    steps = [1, *case.strides[1:]]
    pitches = [size, *case.pitches]
    index = np.indices(counts)
    position = [index[d] * steps[d] + case.coordinates[d] for d in range(len(counts))]
    dims = list(case.dims)
    if case.verb == "store":
        dims[0] = -(-dims[0] * size // 16) * 16 // size
    inside = np.logical_and.reduce([(p >= 0) & (p < d) for p, d in zip(position, dims, strict=True)])
    offset = sum(p * pitch for p, pitch in zip(position, pitches, strict=False))
    row = max(counts[0] * size, [0, 32, 64, 128][case.swizzle])
    rows = np.zeros(counts, int)
    for d in range(len(counts) - 1, 0, -1):
        rows = rows * counts[d] + index[d]
    place = case.where + rows * row + index[0] * size
    place ^= (place >> 7 & [0, 1, 3, 7][case.swizzle]) << 4
    for byte in range(size):
        if case.verb == "store":
            memory[(offset + byte)[inside]] = image[(place + byte)[inside]]
        else:
            fill = (0xF7, 0x7F)[byte % 2] if case.fill else 0
            image[place + byte] = np.where(inside, memory[np.where(inside, offset + byte, 0)], fill)
    return image, memory


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Random tensors, boxes and coordinates."""
    verb = draw(st.sampled_from(("load", "store")))
    dtype = draw(st.integers(0, 10))  # rounding to tf32 is in the record
    size, rank = SIZES[dtype], draw(st.integers(1, 5))
    swizzle = draw(st.integers(0, 3))
    unit, most = 16 // size, (8, 2, 4, 8)[swizzle]
    box = [unit * draw(st.integers(1, min(most, 256 // unit)))]
    box += [draw(st.integers(1, 6)) for _ in range(rank - 1)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    while np.prod([-(-b // s) for b, s in zip(box[1:], strides[1:], strict=True)], dtype=int) > 96:
        box[1 + int(np.argmax(box[1:]))] //= 2
    dims = [draw(st.integers(1, 2 * b + 3)) for b in box]
    pitches, pitch = [], dims[0] * size
    for dim in dims[1:]:
        pitch = -(-pitch // 16) * 16 + 16 * draw(st.integers(0, 2))
        pitches.append(pitch)
        pitch *= dim
    if pitch > SEEN:
        dims, pitches, pitch = dims[:1], [], dims[0] * size
        box, strides = box[:1], strides[:1]
    low = -1 if verb == "load" else 0
    coordinates = [unit * draw(st.integers(low * box[0] // unit, dims[0] // unit + 1))]
    coordinates += [draw(st.integers(low * b, d + 1)) for b, d in zip(box[1:], dims[1:], strict=True)]
    fill = draw(st.integers(0, 1)) if dtype >= 6 else 0
    where = 128 * draw(st.integers(0, 16))
    return Case(
        verb, draw(st.integers(0, 99)), dtype, tuple(dims), tuple(pitches), tuple(box), tuple(strides), 0,
        swizzle, fill, tuple(coordinates), where, pitch, "random",
    )  # fmt: skip


@settings(deadline=None, max_examples=examples(60))
@given(cases(), st.sampled_from((None, "early", "late", 1, 2)))
def test_copies_are_as_the_model_says_whenever_they_take_effect(case: Case, schedule: object) -> None:
    image, memory = run(case, schedule=schedule)
    expected_image, expected_memory = modelled(case)
    if case.verb == "load":
        assert np.array_equal(image, expected_image)
    assert np.array_equal(memory, expected_memory)


# clusters, places of a map, mistakes ------------------------------------------------------------------------


def one_copy(instruction: str, declarations: str = "") -> str:
    """Return a kernel that issues a copy; %rd4 is the map, %r1 shared memory, %r2 an mbarrier."""
    return f"""{HEAD}{declarations}
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 out) {{
    .reg .b64 %rd<8>;
    .reg .b32 %r<8>;
    .shared .align 1024 .b8 buffer[4096];
    .shared .align 8 .b64 bar;
    mov.b64 %rd3, map;
    cvta.param.u64 %rd4, %rd3;
    mov.u32 %r1, buffer;
    mov.u32 %r2, bar;
    mov.u32 %r3, 1;
    mbarrier.init.shared::cta.b64 [bar], 1;
    {instruction}
    ret;
}}"""


LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"


@sampled(4)
@pytest.mark.parametrize(
    "instruction, words",
    [
        (f"{LOAD} [%r1+16], [%rd4, {{0, 0}}], [%r2];", "not a multiple of 128"),
        (f"{LOAD} [%r1], [%rd4, {{%r3, 0}}], [%r2];", "innermost coordinate is 2 bytes"),
        (f"{LOAD} [%r1], [%rd4, {{0, 0}}], [%r2+4];", "misaligned"),
        (f"{LOAD} [%r1], [%rd4, {{0, 0}}], [%r1];", "no mbarrier was initialised"),
        (f"{LOAD} [%r1+4096], [%rd4, {{0, 0}}], [%r2];", "out of bounds"),
        (LOAD.replace("2d", "3d") + " [%r1], [%rd4, {0, 0, 0}], [%r2];", "has 2 dimensions"),
        (f"{STORE} [%rd4, {{0, -1}}], [%r1];", "coordinate -1 is negative"),
        (f"{STORE} [%rd4, {{8, 0}}], [%r1+64];", "not a multiple of 128"),
        (
            STORE.replace("cp.", "cp.reduce.").replace(".tile", ".min.tile") + " [%rd4, {0, 0}], [%r1];",
            r"\.min cannot reduce elements of the tensor map's type \.f32; it can reduce \.u32, \.s32",
        ),
        (
            f"{LOAD}.multicast::cluster [%r1], [%rd4, {{0, 0}}], [%r2], 3;",
            "names a block that is not in the cluster",
        ),
    ],
)
def test_a_wrong_copy_is_a_fault_in_words(instruction: str, words: str) -> None:
    map = lw.tensor_map(np.zeros((16, 64), np.float32 if "min" in instruction else np.uint16), (4, 16))
    with pytest.raises(KernelFault, match=words) as raised:
        lw.load(one_copy(instruction))["copy"][1, 1](map, np.zeros(1))
    assert raised.value.line == 16
    report = lw.check(lw.load(one_copy(instruction))["copy"][1, 1], map, np.zeros(1))
    assert [finding.line for finding in report.findings] == [16]


def test_a_tensor_beyond_its_array_is_a_fault() -> None:
    array = np.zeros((8, 16), np.uint32)
    encoded = np.frombuffer(lw.tensor_map(array, (4, 16)).encode(lw.address(array) + 256), np.uint8)
    with pytest.raises(KernelFault, match=r"global read of .* out of bounds"):
        lw.load(one_copy(f"{LOAD} [%r1], [%rd4, {{0, 4}}], [%r2];"))["copy"][1, 1](encoded, np.zeros(1))


@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_a_store_of_whole_granules_ends_with_the_array(swizzle: Literal["none", "64B"]) -> None:
    """A row of 28 elements ends within 16 bytes, which are written whole, but for those behind the array."""
    memory = bytearray(np.full(4 * 32, 7, np.uint16))
    array = np.frombuffer(memoryview(memory)[:-8], np.uint16)
    rows = np.lib.stride_tricks.as_strided(array, (4, 28), (64, 2))
    map = lw.tensor_map(rows, (4, 32), swizzle=swizzle)
    zeros = "st.shared.v4.b32 [%r4], {0, 0, 0, 0};"
    instruction = f"""mov.u32 %r4, buffer;
    {" add.u32 %r4, %r4, 16; ".join([zeros] * 16)}
    fence.proxy.async;
    {STORE} [%rd4, {{0, 0}}], [%r1];"""
    lw.load(one_copy(instruction))["copy"][1, 1](map, np.zeros(1))
    assert np.frombuffer(memory, np.uint16).tolist() == [0] * 124 + [7] * 4


@pytest.mark.parametrize(
    "instruction, why",
    [
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
            "[%r1], [%rd4, {0, 0, 0, 0, 0}], [%r2];",
            "needs sm_100",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
            "[%rd4, {0, 0, 0, 0, 0}], [%r1];",
            "needs sm_100a",
        ),
        ("st.bulk.weak.shared::cta [%r1], 16, 0;", "sm_100"),
    ],
)
def test_modes_that_are_not_run_are_refused_by_name(instruction: str, why: str) -> None:
    with pytest.raises(lw.LanewiseError, match=rf"line 16: .*{why}"):
        lw.load(one_copy(instruction))["copy"][1, 1](np.zeros(128, np.uint8), np.zeros(1))


@pytest.mark.parametrize("schedule", (None, "late", 5))
def test_a_multicast_writes_the_same_place_in_each_block_and_tells_each_mbarrier(schedule: object) -> None:
    module = lw.load(f"""{HEAD}
.visible .entry spread(.param .align 64 .b8 map[128], .param .u64 out) {{
    .reg .b64 %rd<8>;
    .reg .b32 %r<8>;
    .reg .b16 %h;
    .reg .pred %p<4>;
    .shared .align 1024 .b8 buffer[4096];
    .shared .align 8 .b64 bar;
    mov.b64 %rd3, map;
    cvta.param.u64 %rd4, %rd3;
    ld.param.u64 %rd0, [out];
    mov.u32 %r1, buffer;
    mov.u32 %r2, bar;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %cluster_ctarank;
    setp.ne.u32 %p0, %r3, 0;
    @%p0 bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
READY:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    or.b32 %r5, %r3, %r4;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra WAIT;
    mov.b16 %h, 0xb;
    {LOAD}.multicast::cluster [%r1], [%rd4, {{16, 4}}], [%r2], %h;
WAIT:
    setp.eq.u32 %p3, %r4, 2;  // the mask leaves this block out
    @%p3 bra DONE;
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
    @!%p2 bra WAIT;
    shl.b32 %r6, %r3, 2;
    add.u32 %r1, %r1, %r6;
    ld.shared.u32 %r7, [%r1];
    shl.b32 %r4, %r4, 7;
    add.u32 %r6, %r6, %r4;
    cvt.u64.u32 %rd5, %r6;
    add.u64 %rd0, %rd0, %rd5;
    st.global.u32 [%rd0], %r7;
DONE:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}}""")
    array = np.arange(16 * 64, dtype=np.uint16).reshape(16, 64)
    out = np.zeros((4, 64), np.uint16)
    module["spread"][4, 32](lw.tensor_map(array, (4, 16)), out, cluster=4, schedule=schedule)
    box = array[4:8, 16:32].ravel()
    assert np.array_equal(out, np.where([[True], [True], [False], [True]], box, 0))


@pytest.mark.parametrize("schedule", (None, "late", 5))
def test_a_store_reads_the_shared_memory_of_its_own_block(schedule: object) -> None:
    module = lw.load(f"""{HEAD}
.visible .entry store(.param .align 64 .b8 map[128]) {{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .shared .align 1024 .b8 buffer[4096];
    mov.b64 %rd0, map;
    cvta.param.u64 %rd1, %rd0;
    mov.u32 %r0, buffer;
    and.b32 %r0, %r0, 0xffffff;  // in the block of rank 0
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {{0, 0}}], [%r0];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}}""")
    bound, tensor = module["store"][2, 1], lw.tensor_map(np.zeros((16, 64), np.uint16), (4, 16))
    with pytest.raises(KernelFault, match=r"block \(1, 0, 0\)") as raised:
        bound(tensor, cluster=2, schedule=schedule)
    assert "another block: a bulk copy reads that of its own block only" in str(raised.value)
    for _ in range(20):
        found = lw.check(bound, tensor, cluster=2, schedule=schedule).findings
        assert "out of bounds" in {each.kind for each in found}


def test_a_map_in_global_memory_is_read_when_the_copy_is_issued() -> None:
    """A kernel changes a map by tensormap.replace in shared memory, publishes it, and copies by it."""
    module = lw.load(f"""{HEAD.replace("8.0", "8.3")}
.visible .entry change(.param .u64 maps, .param .u64 tensor, .param .u64 out) {{
    .reg .b64 %rd<8>;
    .reg .b32 %r<8>;
    .reg .pred %p<3>;
    .shared .align 128 .b8 map[128];
    .shared .align 128 .b8 buffer[128];
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd0, [maps];
    ld.param.u64 %rd1, [tensor];
    ld.param.u64 %rd2, [out];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, map;
    add.u32 %r3, %r2, %r1;
    cvt.u64.u32 %rd3, %r1;
    add.u64 %rd4, %rd0, %rd3;
    ld.global.u32 %r4, [%rd4];
    st.shared.u32 [%r3], %r4;
    bar.warp.sync -1;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r2], %rd1;
    bar.warp.sync -1;
    add.u64 %rd5, %rd0, 128;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd5], [%r2], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;
    @%p0 bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    {LOAD} [buffer], [%rd5, {{0, 0}}], [bar];
READY:
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    mov.u32 %r5, buffer;
    add.u32 %r5, %r5, %r1;
    ld.shared.u32 %r6, [%r5];
    add.u64 %rd6, %rd2, %rd3;
    st.global.u32 [%rd6], %r6;
    ret;
}}""")
    first, second = (np.arange(64, dtype=np.uint32).reshape(8, 8) + 1000 * each for each in (1, 2))
    maps = np.zeros(256, np.uint8)
    maps[:128] = np.frombuffer(bytes(lw.tensor_map(first, (4, 8))), np.uint8)
    out = np.zeros(32, np.uint32)
    module["change"][1, 32](maps, second, out)
    assert np.array_equal(out, second.ravel()[:32])
