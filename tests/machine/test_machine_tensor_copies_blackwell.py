"""Tensor copies that GPUs have from sm_100 on, against models in NumPy that follow the PTX ISA."""

import random
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import Im2colTensor, TiledTensor, decode
from lanewise.isa.tensor_map_fields import FIELD
from lanewise.machine.errors import KernelFault
from tensor_copy_cases import IMAGE, THREADS, UNTOUCHED, Bytes, kernel_text

LOAD = "cp.async.bulk.tensor.{rank}d.shared::cta.global.{mode}.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group"
REDUCE = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{verb}.{mode}.bulk_group"
#: Where 16 bytes of a row of 128 bytes lie, by the number of the row: tables of the PTX ISA, 5.5.7.
TABLES = {
    "none": ("01234567",),
    "32B": ("01234567", "10325476"),
    "64B": ("01234567", "10325476", "23016745", "32107654"),
    "128B": (
        "01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210",
    ),
    "128B_ATOM_32B": ("01234567", "23016745", "45670123", "67452301"),
    "128B_ATOM_64B": ("01234567", "45670123"),
}  # fmt: skip
TABLES["128B_ATOM_32B_FLIP_8B"] = TABLES["128B_ATOM_32B"]
#: The bytes of a row of each swizzle.
WIDTHS = {"none": 0, "32B": 32, "64B": 64} | {name: 128 for name in TABLES if name.startswith("128B")}
_MODULES: dict[str, lw.Module] = {}


def kernel(verb: str, instruction: str) -> lw.Module:
    """Return a kernel for sm_100a that issues one copy between a tensor and shared memory."""
    rank = next(number for number in range(1, 6) if f".{number}d." in instruction)
    if instruction not in _MODULES:
        text = kernel_text(verb, rank).replace("sm_90a", "sm_100a").replace(".version 8.0", ".version 8.8")
        usual = next(line for line in text.splitlines() if ".tensor." in line and line.endswith(";"))
        _MODULES[instruction] = lw.load(text.replace(usual, instruction))
    return _MODULES[instruction]


def copy(
    verb: str,
    instruction: str,
    tensor: TiledTensor | Im2colTensor,
    memory: Bytes,
    image: Bytes,
    coordinates: tuple[int, ...],
    bytes: int = 0,
    **options: Any,
) -> None:
    """Run one copy between a tensor at the start of some memory and an image of shared memory."""
    encoded = np.frombuffer(tensor.encode(int(lw.address(memory))), np.uint8)
    given = [each % (1 << 32) for each in (*coordinates, 0, 0, 0, 0)[:5]]
    entry = kernel(verb, instruction)["copy"]
    entry[1, THREADS, IMAGE](encoded, image, *given, 0, bytes, **options)


def swizzled(swizzle: str, rows: list[Bytes], pitch: int) -> Bytes:
    """Return rows as they lie in shared memory, by the tables; bytes that are not written are UNTOUCHED."""
    image = np.full(IMAGE, UNTOUCHED, np.uint8)
    for number, row in enumerate(rows):
        for start in range(0, len(row), 16):
            offset = number * pitch + start
            line, cell = offset // 128, offset % 128 // 16
            table = TABLES[swizzle][line % len(TABLES[swizzle])]
            chunk = row[start : start + 16]
            if swizzle.endswith("FLIP_8B") and line % 2:
                chunk = np.concatenate([chunk[8:], chunk[:8]])
            there = line * 128 + 16 * table.index(str(cell))
            image[there : there + len(chunk)] = chunk
    return image


# rows of a matrix -------------------------------------------------------------------------------------------

SIZES = {"u8": 1, "f16": 2, "f32": 4, "u64": 8}
GATHERED = "{%c0, %c1, %c2, %c3, %c4}"


def matrix(chance: random.Random) -> tuple[TiledTensor, Bytes, int]:
    """Return a random matrix whose boxes have one row, its bytes, and the bytes of its rows."""
    kind = chance.choice([*SIZES])
    swizzle = chance.choice([*TABLES])
    size, widest = SIZES[kind], WIDTHS[swizzle] or 256
    box = chance.randrange(16, min(widest, 256 * size) + 1, 16) // size
    columns, rows = chance.randrange(1, 300), chance.randrange(1, 40)
    pitch = -(-columns * size // 16) * 16 + chance.choice([0, 16])
    made = TiledTensor(kind, (columns, rows), (pitch,), (box, 1), (1, 1), swizzle=swizzle, arch="sm_100a")
    seed = chance.randrange(1 << 30)
    memory = np.random.default_rng(seed).integers(0, 256, pitch * rows + 64, dtype=np.uint8)
    return made, memory, pitch


@sampled(4)
@pytest.mark.parametrize("seed", range(48))
def test_four_rows_are_gathered(seed: int) -> None:
    chance = random.Random(seed)
    tensor, memory, pitch = matrix(chance)
    size, (columns, rows), box = SIZES[tensor.type], tensor.dims, tensor.box[0]
    first = chance.randrange(-2, columns * size // 16 + 2) * 16 // size
    chosen = [chance.randrange(-3, rows + 3) for _ in range(4)]
    wanted = []
    for number in chosen:
        line = np.zeros(box * size, np.uint8)
        if 0 <= number < rows:
            for place in range(box):
                if 0 <= first + place < columns:
                    start = number * pitch + (first + place) * size
                    line[place * size : (place + 1) * size] = memory[start : start + size]
        wanted.append(line)
    image = np.full(IMAGE, UNTOUCHED, np.uint8)
    instruction = f"{LOAD.format(rank=2, mode='tile::gather4')} [%r3], [%rd4, {GATHERED}], [bar];"
    schedule = chance.choice(["early", "late", seed])
    copy("load", instruction, tensor, memory, image, (first, *chosen), 4 * box * size, schedule=schedule)
    row_pitch = WIDTHS[tensor.swizzle] or box * size
    assert np.array_equal(image, swizzled(tensor.swizzle, wanted, row_pitch)), tensor


@sampled(4)
@pytest.mark.parametrize("seed", range(32))
def test_four_rows_are_scattered_or_reduced(seed: int) -> None:
    chance = random.Random(1000 + seed)
    tensor, memory, pitch = matrix(chance)
    reduces = tensor.type == "f16"  # added as u32 below
    size, (columns, rows), box = SIZES[tensor.type], tensor.dims, tensor.box[0]
    if reduces:
        tensor = TiledTensor(
            "u32", (-(-columns // 2), rows), (pitch,), (box // 2, 1), (1, 1), swizzle=tensor.swizzle,
            arch="sm_100a",
        )  # fmt: skip
        size, columns, box = 4, tensor.dims[0], tensor.box[0]
    first = chance.randrange(columns * size // 16 + 1) * 16 // size
    chosen = [chance.randrange(rows + 3) for _ in range(4)]
    if not reduces:
        chosen = chance.sample(range(max(rows, 4) + 3), 4)
    lines = [
        np.random.default_rng(seed * 8 + number).integers(0, 256, box * size, dtype=np.uint8)
        for number in range(4)
    ]
    pitch_there = WIDTHS[tensor.swizzle] or box * size
    wanted = memory.copy()
    end = -(-columns * size // 16) * 16  # whole 16 bytes are written
    for number, line in zip(chosen, lines, strict=True):
        count = min(len(line), end - first * size)
        if number >= rows or count <= 0:
            continue
        start = number * pitch + first * size
        if reduces:
            there = wanted[start : start + count].view(np.uint32)
            wanted[start : start + count] = (there + line[:count].view(np.uint32)).view(np.uint8)
        else:
            wanted[start : start + count] = line[:count]
    image = swizzled(tensor.swizzle, lines, pitch_there)
    head = (REDUCE if reduces else STORE).format(rank=2, mode="tile::scatter4", verb="add")
    copy(
        "add" if reduces else "store", f"{head} [%rd4, {GATHERED}], [%r3];", tensor, memory, image,
        (first, *chosen), schedule=chance.choice(["early", "late", seed]),
    )  # fmt: skip
    assert np.array_equal(memory, wanted), tensor


def test_a_box_of_several_rows_cannot_be_gathered() -> None:
    tensor = TiledTensor("f32", (64, 32), (256,), (8, 2), (1, 1))
    instruction = f"{LOAD.format(rank=2, mode='tile::gather4')} [%r3], [%rd4, {GATHERED}], [bar];"
    with pytest.raises(KernelFault, match=r"2 rows; \.tile::gather4 and \.tile::scatter4 take four"):
        copy(
            "load", instruction, tensor, np.zeros(8192, np.uint8), np.zeros(IMAGE, np.uint8), (0, 1, 2, 3, 4)
        )


# swizzles of 128 bytes with larger atoms ------------------------------------------------------------------


@pytest.mark.parametrize("swizzle", [name for name in TABLES if "ATOM" in name])
@pytest.mark.parametrize("verb", ["load", "store"])
def test_swizzles_of_larger_atoms(swizzle: str, verb: str) -> None:
    chance = np.random.default_rng(len(swizzle) + len(verb))
    memory = chance.integers(0, 256, 64 * 24 * 4, dtype=np.uint8)
    tensor = TiledTensor("f32", (64, 24), (256,), (32, 17), (1, 1), swizzle=swizzle, arch="sm_100a")
    box = memory.reshape(24, 256)[3:20, 16 * 4 : 16 * 4 + 128]
    expected = swizzled(swizzle, list(box), 128)
    if verb == "load":
        image = np.full(IMAGE, UNTOUCHED, np.uint8)
        head = f"{LOAD.format(rank=2, mode='tile')} [%r3], [%rd4, {{%c0, %c1}}], [bar];"
        copy("load", head, tensor, memory, image, (16, 3), 17 * 128)
        assert np.array_equal(image, expected)
    else:
        wanted, target = memory.copy(), np.zeros_like(memory)
        head = f"{STORE.format(rank=2, mode='tile')} [%rd4, {{%c0, %c1}}], [%r3];"
        copy("store", head, tensor, target, expected, (16, 3))
        assert np.array_equal(target.reshape(24, 256)[3:20, 64:192], wanted.reshape(24, 256)[3:20, 64:192])
        assert np.count_nonzero(target) <= 17 * 128


def test_maps_of_later_gpus_are_encoded_and_decoded() -> None:
    for swizzle in TABLES:
        tensor = TiledTensor("f32", (64, 24), (256,), (8, 8), (1, 1), swizzle=swizzle, arch="sm_100")
        assert decode(tensor.encode(1 << 20)) == (1 << 20, tensor)
    with pytest.raises(LanewiseError, match="needs sm_100 or later"):
        TiledTensor("f32", (64,), (), (8,), (1,), swizzle="128B_ATOM_32B").encode(0)
    for kind, pitch in (("b4x16", 64), ("b4x16_p64", 64), ("b6x16_p32", 96)):
        tensor = TiledTensor(kind, (128, 5), (pitch,), (128, 5), (1, 1), swizzle="128B", arch="sm_103a")
        assert decode(tensor.encode(4096)) == (4096, tensor)
        assert tensor.box_bytes == 5 * pitch
        with pytest.raises(LanewiseError, match="needs sm_100"):
            TiledTensor(kind, (128, 5), (pitch,), (128, 5), (1, 1)).encode(4096)


def test_maps_of_arrays_for_later_gpus() -> None:
    array = np.arange(64 * 24, dtype=np.float32).reshape(24, 64)
    with pytest.raises(LanewiseError, match="needs sm_100 or later"):
        lw.tensor_map(array, (17, 32), swizzle="128B_ATOM_64B")
    made = lw.tensor_map(array, (17, 32), swizzle="128B_ATOM_64B", arch="B200")
    assert decode(bytes(made))[1].swizzle == "128B_ATOM_64B"
    raw = lw.encode_tiled("b4x16_p64", 0, (256, 5), (128,), (128, 5), swizzle="128B", arch="sm_100a")
    assert decode(raw)[1].type == "b4x16_p64"
    with pytest.raises(LanewiseError, match="arch"):
        lw.encode_tiled("f16", 0, (256, 5), (512,), (64, 5), arch="sm_1")


@pytest.mark.parametrize(("number", "kind"), [(13, "b4x16"), (14, "b4x16_p64"), (15, "b6x16_p32")])
def test_tensormap_replace_takes_the_numbers_of_ptx(number: int, kind: str) -> None:
    """They are the driver's; the number in the map is another one for packed types."""
    text = f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 map) {{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [map];
    tensormap.replace.tile.elemtype.global.b1024.b32 [%rd0], {number};
    ret;
}}"""
    raw = lw.encode_tiled("u8", 0, (256, 5), (256,), (128, 5), swizzle="128B", arch="sm_100a")
    words = np.frombuffer(raw, np.uint32).copy()
    lw.load(text)["k"][1, 1](words)
    assert decode(words.tobytes())[1].type == kind


def test_the_number_of_4_bit_elements_is_that_of_maps_by_cute_dsl() -> None:
    raw = lw.encode_tiled("b4x16", 0, (256, 5), (128,), (128, 5), swizzle="64B", arch="sm_100a")
    assert FIELD["type"].of(int.from_bytes(raw, "little")) == 11


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"box": (64, 5)}, "128 elements of b6x16_p32, not 64"),
        ({"dims": (192, 5)}, "multiple of 128 elements of b6x16_p32, not 192: 128 is nearest"),
        ({"strides": (112,)}, "multiples of 32 bytes, and 112 is not"),
        ({"swizzle": "64B"}, "the swizzle is none, 128B"),
        ({"swizzle": "128B_ATOM_32B_FLIP_8B"}, "the swizzle is none, 128B"),
        ({"fill": "nan"}, "is for floats"),
    ],
)
def test_rules_of_padded_types(changed: dict[str, Any], words: str) -> None:
    usual = {"dims": (256, 5), "strides": (192,), "box": (128, 5), "element_strides": (1, 1)}
    with pytest.raises(LanewiseError, match=words):
        TiledTensor("b6x16_p32", **{**usual, **changed}, arch="sm_100a").encode(0)


# packed types -----------------------------------------------------------------------------------------------


def padded(row: Bytes, kind: str) -> Bytes:
    """Return a row of global memory as it lies in shared memory: padding is not written."""
    if kind == "b4x16":
        return row
    unit = {"b4x16_p64": 8, "b6x16_p32": 12}[kind]
    found = np.full((len(row) // unit, 16), UNTOUCHED, np.uint8)
    found[:, :unit] = row.reshape(-1, unit)
    return found.reshape(-1)


@pytest.mark.parametrize("swizzle", ["none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"])
@pytest.mark.parametrize("kind", ["b4x16", "b4x16_p64", "b6x16_p32"])
def test_packed_types_are_padded_on_the_way(kind: str, swizzle: str) -> None:
    bits = 6 if kind == "b6x16_p32" else 4
    columns, rows, first = 384, 11, -128 if swizzle == "128B" else 128
    pitch = columns * bits // 8
    memory = np.random.default_rng(len(kind) + len(swizzle)).integers(0, 256, pitch * rows, dtype=np.uint8)
    tensor = TiledTensor(kind, (columns, rows), (pitch,), (128, 6), (1, 1), swizzle=swizzle, arch="sm_100a")
    wanted = []
    for number in range(7, 13):
        line = np.zeros(128 * bits // 8, np.uint8)
        outside = number >= rows or first < 0
        if not outside:
            line = memory.reshape(rows, pitch)[number, first * bits // 8 :][: len(line)]
        wanted.append(np.zeros(len(padded(line, kind)), np.uint8) if outside else padded(line, kind))
    image = np.full(IMAGE, UNTOUCHED, np.uint8)
    head = f"{LOAD.format(rank=2, mode='tile')} [%r3], [%rd4, {{%c0, %c1}}], [bar];"
    copy("load", head, tensor, memory, image, (first, 7), tensor.box_bytes)
    row_pitch = WIDTHS[swizzle] or len(wanted[0])
    assert np.array_equal(image, swizzled(swizzle, wanted, row_pitch))


def test_six_bits_of_bytes_are_stored() -> None:
    """b6p2x16: of every byte of shared memory the lower six bits go to global memory, side by side."""
    chance = np.random.default_rng(6)
    values = chance.integers(0, 256, (4, 128), dtype=np.uint8)
    memory = np.full(96 * 6 * 2, 0x5A, np.uint8)
    tensor = TiledTensor("b6x16_p32", (256, 6), (192,), (128, 4), (1, 1), swizzle="128B", arch="sm_100a")
    head = f"{STORE.format(rank=2, mode='tile')} [%rd4, {{%c0, %c1}}], [%r3];"
    copy("store", head, tensor, memory, swizzled("128B", list(values), 128), (128, 1))
    bits = np.unpackbits(values[..., None], axis=2, bitorder="little")[..., :6].reshape(4, -1)
    wanted = np.full((6, 192), 0x5A, np.uint8)
    wanted[1:5, 96:] = np.packbits(bits, axis=1, bitorder="little")
    assert np.array_equal(memory.reshape(6, 192), wanted)


@pytest.mark.parametrize(
    ("kind", "verb", "coordinate", "words"),
    [
        ("b4x16_p64", "store", 0, "can be loaded, and not stored"),
        ("b6x16_p32", "load", 64, "64 is not a multiple of 128"),
        ("b4x16", "load", 31, "31 is not a multiple"),
    ],
)
def test_wrong_copies_of_packed_types_are_faults(kind: str, verb: str, coordinate: int, words: str) -> None:
    tensor = TiledTensor(kind, (128, 5), (96,), (128, 5), (1, 1), arch="sm_100a")
    head = f"{LOAD.format(rank=2, mode='tile')} [%r3], [%rd4, {{%c0, %c1}}], [bar];"
    if verb == "store":
        head = f"{STORE.format(rank=2, mode='tile')} [%rd4, {{%c0, %c1}}], [%r3];"
    with pytest.raises(KernelFault, match=words):
        copy(verb, head, tensor, np.zeros(1024, np.uint8), np.zeros(IMAGE, np.uint8), (coordinate, 0))


# columns of pixels along W ----------------------------------------------------------------------------------


def wide_pixels(
    tensor: Im2colTensor, coordinates: tuple[int, ...], halo: int, offset: int, period: int, pixels: int
) -> list[tuple[int, int]]:
    """Return the image and the W of each pixel, as 5.5.5 of the PTX ISA has them; the rest stays as it is."""
    step = tensor.element_strides[1]
    low, high = tensor.lower[0] + offset, tensor.dims[1] - 1 + tensor.upper[0] + offset
    w, image = coordinates[1] + offset, coordinates[-1]
    found = []
    for number in range(1, pixels + 1):
        found.append((image, w))
        if number % period == 0:
            found += [(image, w + step * each) for each in range(1, halo + 1)]
        w += step
        if w > high:
            w, image = low, image + 1
    return found


@sampled(8)
@pytest.mark.parametrize("seed", range(40))
def test_columns_along_w(seed: int) -> None:
    chance = random.Random(seed)
    rank, mode = chance.choice([3, 4, 5]), chance.choice(["im2col::w", "im2col::w::128"])
    middle = tuple(chance.randrange(1, 5) for _ in range(rank - 3))
    width, images, channels = chance.randrange(1, 40), chance.randrange(1, 9), 8
    dims = (channels, width, *middle, images)
    strides = tuple(32 * int(np.prod(dims[1:axis])) for axis in range(1, rank))
    half = {3: 5, 4: 5, 5: 5}[rank]
    low = chance.randrange(-half, 1)
    high = chance.randrange(max(low - width + 1, -half), half)
    lower, upper = ((each, *(0,) * (rank - 3)) for each in (low, high))
    pixels = chance.randrange(1, 140)
    step = chance.randrange(1, 4)
    tensor = Im2colTensor("f32", dims, strides, lower, upper, channels, pixels, (1, step, *(1,) * (rank - 2)))
    first = chance.randrange(low - 3, width + high)
    halo, offset = chance.randrange(6), chance.randrange(4)
    inner = tuple(chance.randrange(-1, size + 1) for size in middle)
    coordinates = (0, first, *inner, chance.randrange(images))
    memory = np.random.default_rng(seed).integers(1, 256, 32 * int(np.prod(dims[1:])), dtype=np.uint8)
    count, period = (128, 32) if mode.endswith("128") else (pixels, pixels)
    wanted = []
    whole = memory.reshape(*dims[1:][::-1], 32)
    for image, w in wide_pixels(tensor, coordinates, halo, offset, period, count):
        place = (image, *inner[::-1], w)
        inside = all(0 <= at < size for at, size in zip(place, whole.shape, strict=False))
        wanted.append(whole[place] if inside else np.zeros(32, np.uint8))
    found = np.full(IMAGE, UNTOUCHED, np.uint8)
    places = "{" + ", ".join(f"%c{axis}" for axis in range(rank)) + "}"
    head = f"{LOAD.format(rank=rank, mode=mode)} [%r3], [%rd4, {places}], [bar], {{{halo}, {offset}}};"
    copy("load", head, tensor, memory, found, coordinates, len(wanted) * 32)
    assert np.array_equal(found, swizzled("none", wanted, 32)), (tensor, coordinates, halo, offset)


def test_a_halo_that_is_too_large_is_a_fault() -> None:
    tensor = Im2colTensor("f32", (8, 9, 2), (32, 288), (0,), (0,), 8, 16, (1, 1, 1))
    for mode, halo, offset in (("im2col::w", 512, 0), ("im2col::w::128", 32, 0), ("im2col::w", 0, 32)):
        places = f"{LOAD.format(rank=3, mode=mode)} [%r3], [%rd4, {{%c0, %c1, %c2}}], [bar]"
        with pytest.raises(KernelFault, match="which is too large: wHalo is below 512"):
            copy(
                "load", f"{places}, {{{halo}, {offset}}};", tensor, np.zeros(1024, np.uint8),
                np.zeros(IMAGE, np.uint8), (0, 0, 0),
            )  # fmt: skip


# pairs of blocks --------------------------------------------------------------------------------------------

PAIRS = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 mask, .param .u32 owner)
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .b16 %h<2>;
    .shared .align 128 .b8 tile[256]; .shared .align 8 .b64 bar;
    mov.b64 %rd0, map; cvta.param.u64 %rd0, %rd0; ld.param.u64 %rd1, [out];
    ld.param.u32 %r0, [mask]; cvt.u16.u32 %h0, %r0; ld.param.u32 %r1, [owner];
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r3, tile; mov.u32 %r4, bar; mapa.shared::cluster.u32 %r5, %r4, %r1;
    mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    setp.ne.u32 %p0, %r2, 0;
    @!%p0 {instruction}
    fence.proxy.async; barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared.u32 %r6, [tile];
    ld.shared.u64 %rd2, [bar];
    mul.wide.u32 %rd3, %r2, 16; add.u64 %rd3, %rd3, %rd1;
    st.global.u32 [%rd3], %r6; st.global.u64 [%rd3+8], %rd2;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}}
"""


@pytest.mark.parametrize("group", (1, 2))
@pytest.mark.parametrize(("mask", "owner"), [(0b1111, 0), (0b1111, 1), (0b0110, 0), (0b1001, 3), (0b1000, 2)])
def test_the_mbarrier_of_the_pair_is_told(group: int, mask: int, owner: int) -> None:
    """With .cta_group::2 it is the mbarrier of the pair's block that has the parity of its own block."""
    head = (
        f"cp.async.bulk.tensor.1d.cta_group::{group}.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%r3], [%rd0, {0}], [%r5], %h0;"
    )
    memory, out = np.full(64, 7, np.uint32), np.zeros((4, 2), np.uint64)
    lw.load(PAIRS.format(instruction=head))["k"][4, 1](
        lw.tensor_map(memory, (64,)), out, mask, owner, cluster=4
    )
    assert [int(each) & 0xFFFFFFFF for each in out[:, 0]] == [7 * (mask >> rank & 1) for rank in range(4)]
    told = [0] * 4
    for rank in range(4):
        if mask >> rank & 1:
            told[rank if group == 1 else rank & ~1 | owner & 1] += 256
    assert [-_bytes(int(each)) for each in out[:, 1]] == told


def _bytes(word: int) -> int:
    """Return the bytes that an mbarrier still expects; they are negative, since nobody expects any here."""
    count = word >> 40 & (1 << 21) - 1
    return count - (count >> 20 << 21)


@pytest.mark.parametrize(("group", "owner"), [(1, 1), (2, 2), (2, 3)])
def test_an_mbarrier_outside_of_the_pair_is_a_fault(group: int, owner: int) -> None:
    head = (
        f"cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes.cta_group::{group} "
        "[%r3], [%rd0, {0}], [%r5];"
    )
    with pytest.raises(KernelFault, match=r"is in another block than \.cta_group allows"):
        lw.load(PAIRS.format(instruction=head))["k"][4, 1](
            lw.tensor_map(np.zeros(64, np.uint32), (64,)), np.zeros(8, np.uint64), 0, owner, cluster=4
        )


# checked launches -------------------------------------------------------------------------------------------

ROWS = TiledTensor("f32", (64, 40), (256,), (32, 1), (1, 1), swizzle="128B")
FLIPPED = TiledTensor(
    "f32", (64, 24), (256,), (32, 17), (1, 1), swizzle="128B_ATOM_32B_FLIP_8B", arch="sm_100a"
)
FOUR_BITS = TiledTensor("b4x16_p64", (128, 20), (64,), (128, 6), (1, 1), arch="sm_100a")
SIX_BITS = TiledTensor("b6x16_p32", (128, 20), (96,), (128, 6), (1, 1), swizzle="128B", arch="sm_100a")
PIXELS = Im2colTensor("f32", (8, 9, 2), (32, 288), (0,), (0,), 8, 16, (1, 1, 1))
BOX, COLUMN = "{%c0, %c1}", "{%c0, %c1, %c2}"


@pytest.mark.parametrize(
    ("verb", "mode", "tensor", "coordinates", "bytes"),
    [
        ("load", "tile::gather4", ROWS, (0, 3, 39, 41, 2), 512),
        ("store", "tile::scatter4", ROWS, (0, 3, 39, 41, 2), 0),
        ("load", "tile", FLIPPED, (16, 3), 17 * 128),
        ("load", "tile", FOUR_BITS, (0, 7), 6 * 64),
        ("store", "tile", SIX_BITS, (0, 7), 0),
        ("load", "im2col::w", PIXELS, (0, 3, 0), 18 * 32),
    ],
)
@pytest.mark.parametrize("schedule", ("early", "late"))
def test_a_check_of_right_copies_finds_nothing(
    verb: str,
    mode: str,
    tensor: TiledTensor | Im2colTensor,
    coordinates: tuple[int, ...],
    bytes: int,
    schedule: str,
) -> None:
    memory, image = np.ones(64 * 40 * 4, np.uint8), np.zeros(IMAGE, np.uint8)
    places = {"tile": BOX, "im2col::w": COLUMN}.get(mode, GATHERED)
    rank = 3 if mode == "im2col::w" else 2
    more = ", {2, 1}" if mode == "im2col::w" else ""
    instruction = f"{LOAD.format(rank=rank, mode=mode)} [%r3], [%rd4, {places}], [bar]{more};"
    if verb == "store":
        instruction = f"{STORE.format(rank=rank, mode=mode)} [%rd4, {places}], [%r3];"
    encoded = np.frombuffer(tensor.encode(int(lw.address(memory))), np.uint8)
    given = (*coordinates, 0, 0, 0, 0)[:5]
    configured = kernel(verb, instruction)["copy"][1, THREADS, IMAGE]
    report = lw.check(configured, encoded, image, *given, 0, bytes, schedule=schedule)
    assert report.ok, report
