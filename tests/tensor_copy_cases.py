"""Tensor copies as cases that the CPU machine and a GPU run alike: data that can be generated again, kernels.

The record of an H200, benchmarks/results/h200_tensor_copies.json, has such cases and digests of the results.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import lanewise as lw
from lanewise.isa.tensor_map import TiledTensor

Bytes = npt.NDArray[np.uint8]

#: Bytes of shared memory that a case sees, and what they hold before a load.
IMAGE, UNTOUCHED = 32768, 0xA5
#: Bytes of global memory that a store sees, and what they hold where the tensor is not.
SEEN, GUARD = 1 << 17, 0x5A
THREADS = 128
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz")
SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
INTERLEAVES, SWIZZLES, FILLS = ("none", "16B", "32B"), ("none", "32B", "64B", "128B"), ("zeros", "nan")


class Case(NamedTuple):
    """A copy of a box: the innermost dimension comes first. `dtype`, `swizzle` … are the driver's numbers."""

    verb: str
    number: int
    dtype: int
    dims: tuple[int, ...]
    pitches: tuple[int, ...]
    box: tuple[int, ...]
    strides: tuple[int, ...]
    interleave: int
    swizzle: int
    fill: int
    coordinates: tuple[int, ...]
    where: int
    bytes: int
    data: str

    @classmethod
    def from_json(cls, job: dict[str, Any]) -> Case:
        """Return a case of the record."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in job.items()
        }
        return cls(**{name: values[name] for name in cls._fields})

    @property
    def size(self) -> int:
        """The bytes of an element."""
        return SIZES[self.dtype]

    def tensor(self) -> TiledTensor:
        """Return the tensor that the map is of."""
        rank = len(self.dims)
        return TiledTensor(
            TYPES[self.dtype], self.dims, self.pitches[: rank - 1], self.box, self.strides,
            INTERLEAVES[self.interleave], SWIZZLES[self.swizzle], "none", FILLS[self.fill],
        )  # fmt: skip


def random_bytes(seed: int, size: int) -> Bytes:
    """Return bytes of SplitMix64."""
    with np.errstate(over="ignore"):
        x = np.arange(1, -(-size // 8) + 1, dtype=np.uint64) + np.uint64(seed * 1000003)
        x = x * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (x ^ (x >> np.uint64(31))).view(np.uint8)[:size].copy()


def data(seed: int, size: int, kind: str) -> Bytes:
    """Return random bytes, or words that name their own place."""
    if kind == "random":
        return random_bytes(seed, size)
    word = np.dtype({"index2": np.uint16, "index4": np.uint32}[kind])
    return np.arange(-(-size // word.itemsize)).astype(word).view(np.uint8)[:size].copy()


#: Words that are of interest as floats, by their bytes.
SPECIAL = {
    1: [0, 1, 127, 128, 255],
    2: [
        0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01,
        0xFE01, 0xFFFF, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7F7F, 0x7FC0, 0x7FA0, 0x0080, 0x007F, 0x3555,
    ],
    4: [
        0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
        0x7F800000, 0xFF800000, 0x7FC00000, 0x7FA00001, 0xFFC12345, 0xFFFFFFFF, 0x00800001, 0x80800000,
        0x33800000, 0x3F7FFFFF,
    ],
    8: [
        0, 1 << 63, 1, 1 << 63 | 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, 0xBFF << 52, 0x7FEFFFFFFFFFFFFF,
        0xFFEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0x7FF4000000000001, 0xFFF8123456789ABC,
        (1 << 64) - 1,
    ],
}  # fmt: skip


def operands(seed: int, total: int, size: int) -> tuple[Bytes, Bytes]:
    """Return the bytes of two arrays to reduce: pairs of special words, words that are near, random ones."""
    kind = np.dtype(f"uint{8 * size}")
    special = np.array(SPECIAL[size], dtype=np.uint64).astype(kind)
    count = total // size
    a, b = (random_bytes(seed + each, total).view(kind).copy() for each in (0, 1))
    pairs = min(count * 3 // 4, len(special) ** 2)
    a[:pairs] = np.repeat(special, len(special))[:pairs]
    b[:pairs] = np.tile(special, len(special))[:pairs]
    near = slice(pairs, pairs + (count - pairs) // 2)
    b[near] = a[near] ^ (b[near] >> kind.type(size * 8 * 5 // 8))
    return a.view(np.uint8), b.view(np.uint8)


def ties() -> Bytes:
    """Return words of f32 among which are halves between two numbers of tf32, and subnormal numbers."""
    words = operands(77, 4096, 4)[0].view(np.uint32).copy()
    words[512:768] = (words[512:768] & ~np.uint32(0x1FFF)) | np.uint32(0x1000)
    words[768:1000] &= np.uint32(0x807FFFFF)
    return words.view(np.uint8)


def sources(case: Case) -> tuple[Bytes, Bytes]:
    """Return the tensor's memory, with guard bytes behind it, and the shared memory of a store."""
    if case.data == "special":
        tensor, shared = operands(case.number, case.bytes, case.size)
        image = np.zeros(IMAGE, np.uint8)
        image[: case.bytes] = shared
    elif case.data == "ties":
        tensor, image = ties(), np.zeros(IMAGE, np.uint8)
        if case.verb == "store":
            image[: case.bytes], tensor = tensor, np.zeros_like(tensor)
    else:
        tensor = data(case.number, case.bytes, case.data)
        indices = case.verb == "store" and case.size == 2
        image = data(case.number + 7, IMAGE, "index2" if indices else "random")
    memory = np.full(1 << 18, GUARD, np.uint8)
    memory[: case.bytes] = tensor
    return memory, image


def digest(array: Bytes) -> str:
    """Return the first digits of a digest of bytes, as the record has them."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


# kernels ----------------------------------------------------------------------------------------------------


def _copy(verb: str, rank: int) -> str:
    coordinates = "{" + ", ".join(f"%c{each}" for each in range(rank)) + "}"
    if verb == "load":
        return (
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            f"[%r3], [%rd4, {coordinates}], [bar];"
        )
    head = (
        f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
        if verb == "store"
        else f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{verb}.tile.bulk_group"
    )
    return f"{head} [%rd4, {coordinates}], [%r3];"


def kernel_text(verb: str, rank: int) -> str:
    """Return a kernel that issues one copy between a tensor and shared memory, given and returned."""
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 image, .param .u32 p0, .param .u32 p1,
    .param .u32 p2, .param .u32 p3, .param .u32 p4, .param .u32 where, .param .u32 bytes)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b32 %c<5>;
    .reg .b64 %rd<12>;
    .shared .align 8 .b64 bar;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [image];
    {" ".join(f"ld.param.u32 %c{each}, [p{each}];" for each in range(5))}
    ld.param.u32 %r1, [where];
    ld.param.u32 %r9, [bytes];
    mov.b64 %rd3, map;
    cvta.param.u64 %rd4, %rd3;
    mov.u32 %r2, smem;
    add.u32 %r3, %r2, %r1;
    shl.b32 %r5, %r0, 4;
FILL:
    cvt.u64.u32 %rd5, %r5;
    add.u64 %rd6, %rd0, %rd5;
    ld.global.v2.b64 {{%rd7, %rd8}}, [%rd6];
    add.u32 %r7, %r2, %r5;
    st.shared.v2.b64 [%r7], {{%rd7, %rd8}};
    add.u32 %r5, %r5, {16 * THREADS};
    setp.lt.u32 %p1, %r5, {IMAGE};
    @%p1 bra FILL;
    setp.ne.u32 %p2, %r0, 0;
    @%p2 bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1;
READY:
    fence.proxy.async;
    bar.sync 0;
    @%p2 bra ISSUED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r9;
    {_copy(verb, rank)}
    {"" if verb == "load" else "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"}
ISSUED:
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0;
    @!%p3 bra WAIT;
    shl.b32 %r5, %r0, 4;
DUMP:
    add.u32 %r7, %r2, %r5;
    ld.shared.v2.b64 {{%rd7, %rd8}}, [%r7];
    cvt.u64.u32 %rd5, %r5;
    add.u64 %rd6, %rd0, %rd5;
    st.global.v2.b64 [%rd6], {{%rd7, %rd8}};
    add.u32 %r5, %r5, {16 * THREADS};
    setp.lt.u32 %p1, %r5, {IMAGE};
    @%p1 bra DUMP;
    ret;
}}
"""


_MODULES: dict[tuple[str, int], lw.Module] = {}


def box_bytes(case: Case) -> int:
    """Return the bytes that an mbarrier is told of: those of the box, beyond the tensor too."""
    places = [-(-box // step) for box, step in zip(case.box, case.strides, strict=True)]
    if case.interleave:
        places[-2] = 1
        return int(np.prod(places)) * 16 * case.interleave
    return int(np.prod(places[1:], dtype=int)) * case.box[0] * case.size


def run(case: Case, **options: Any) -> tuple[Bytes, Bytes]:
    """Run a case on the CPU machine; return shared memory and the tensor's memory after it."""
    memory, image = sources(case)
    if case.verb == "load":
        image = np.full(IMAGE, UNTOUCHED, np.uint8)
    key = case.verb, len(case.dims)
    if key not in _MODULES:
        _MODULES[key] = lw.load(kernel_text(*key))
    encoded = np.frombuffer(case.tensor().encode(int(lw.address(memory))), np.uint8)
    coordinates = [each % (1 << 32) for each in (*case.coordinates, 0, 0, 0, 0)[:5]]
    expected = box_bytes(case) if case.verb == "load" else 0
    entry = _MODULES[key]["copy"]
    entry[1, THREADS, IMAGE](encoded, image, *coordinates, case.where, expected, **options)
    return image, memory
