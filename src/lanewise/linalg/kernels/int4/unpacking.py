"""4-bit weights: where they lie, as numbers in registers, and the kernel that writes them to memory."""

from __future__ import annotations

from typing import NamedTuple

from lanewise import lang as lw
from lanewise.formats import Format
from lanewise.lang.frontend.kernel import Kernel
from lanewise.layout import Layout
from lanewise.linalg.kernels.family import made_by_constants
from lanewise.linalg.kernels.int4.packing import CHUNK, COLUMNS, TILE_WORDS
from lanewise.linalg.kernels.int4.traits import DEEP, LANES, LINE, WARPGROUP
from lanewise.linalg.kernels.parameters import Field

#: Threads of a block that unpacks a tile to memory.
UNPACKING = 2 * WARPGROUP
#: What arithmetic of two bf16 at once needs.
_NEEDS = ("sm_90", "7.8")
#: By type: the bits of a number with a 4-bit integer in its last place, and what is subtracted from it.
_MAGIC = {"bf16": (0x4300, 128 + 8), "f16": (0x6400, 1024 + 8)}


class WeightParameters(NamedTuple):
    """What kernels take of packed weights: words and scales, chunks of K, halves of them that share a scale,
    and how many groups have one."""

    W: Field
    scales: Field
    chunks: Field
    per_group: Field
    groups: Field


class Weights:
    """Packed weights in global memory: where the words and the scales of a tile of columns begin."""

    def __init__(self, given: WeightParameters) -> None:
        self._words, self._scales, chunks, per_group, self._groups = given
        self.chunks = lw.assume(chunks, nonnegative=True)
        #: Halves of chunks that share a scale.
        self.per_group = lw.assume(per_group, nonnegative=True)

    def words(self, tile, chunk):
        """Return the pointer to the words of a chunk of K."""
        return self._words + (tile.to(lw.i64) * self.chunks.to(lw.i64) + chunk.to(lw.i64)) * TILE_WORDS

    def scales(self, tile, chunk, half):
        """Return the pointer to the scales of half a chunk of K, and how many halves before it share them."""
        halves = chunk * 2 + half
        group = halves // self.per_group
        scales = self._scales + (tile * self._groups + group).to(lw.i64) * COLUMNS
        return scales, halves - group * self.per_group


def own_column(warp):
    """Return g, the first of the two columns whose weights a lane of a warp has; the other is g + 8."""
    return warp * 16 + lw.lane_id() // 4


@lw.device
def unpacked(dtype, word, scales):
    """Return four registers of two weights each: q · scale, rounded once; `scales` are of two columns."""
    magic, offset = _MAGIC[dtype.name]
    name = f"{dtype.name}x2"
    offsets = int(dtype.array([offset] * 2).view("uint32")[0])
    minus = lw.asm(f"mov.b32 {{d}}, {offsets};", d=lw.u32)  # which takes two numbers from registers alone
    pairs = []
    for number in range(4):
        moved = lw.bitcast(word, lw.u32) >> (4 * number)
        # (moved & mask) | magic in one instruction
        pair = lw.asm(f"lop3.b32 {{d}}, {{x}}, 0x000F000F, {magic << 16 | magic}, 0xEA;", d=lw.u32, x=moved)
        whole = lw.asm(f"sub.rn.{name} {{d}}, {{x}}, {{y}};", needs=_NEEDS, d=lw.u32, x=pair, y=minus)
        scale = scales[number % 2]
        pairs.append(lw.asm(f"mul.rn.{name} {{d}}, {{x}}, {{y}};", needs=_NEEDS, d=lw.u32, x=whole, y=scale))
    return pairs


@lw.device
def scale_pairs(scales):
    """Return the scales of columns g and g + 8, twice in a register each; a pointer is to the first."""
    return [lw.pack(scales[8 * half], scales[8 * half]) for half in range(2)]


@made_by_constants
def unpacking(dtype: Format) -> Kernel:
    """Return the kernel that writes weights as a matrix (N, K): a warp has 16 columns and 64 of K."""
    pitch = LINE + 8
    of_packed = WeightParameters(lw.Ptr[lw.i32, 16], lw.Ptr[dtype], lw.i32, lw.i32, lw.i32)

    @lw.kernel(max_threads=UNPACKING)
    def unpack_int4(packed: of_packed, Out: lw.Ptr[dtype, 16], N: lw.i32):
        weights = Weights(packed)
        lane, warp = lw.lane_id(), lw.thread_idx.x // LANES
        tile, chunk, half = lw.block_idx.y, lw.block_idx.x, warp // 4
        held = lw.shared(dtype, Layout((LINE, 16, UNPACKING // LANES), (1, pitch, 16 * pitch)), align=16)
        words = (weights.words(tile, chunk) + lw.thread_idx.x * 4).aligned(16).load(4)
        of_half, _ = weights.scales(tile, chunk, half)
        pairs = scale_pairs(of_half + own_column(warp % 4))
        first = tile * COLUMNS + warp % 4 * 16
        for number, word in enumerate(words):
            for i, pair in enumerate(unpacked(dtype, word, pairs)):
                k = number * DEEP + i // 2 * 8 + lane % 4 * 2
                target = held.ptr(k, lane // 4 + i % 2 * 8, warp)
                lw.pointer(target.address, lw.u32, "shared", 4).store(pair)
        lw.syncwarp()
        for number in range(4):
            row, k = number * 4 + lane // 8, lane % 8 * 8
            eight = lw.pointer(held.ptr(k, row, warp).address, lw.u32, "shared", 16).load(4)
            if first + row < N:
                line = (first + row).to(lw.i64) * (weights.chunks.to(lw.i64) * CHUNK)
                target = Out + line + (chunk * CHUNK + half * LINE + k).to(lw.i64)
                lw.pointer(target.address, lw.u32, "global", 16).store(tuple(eight))

    return unpack_int4
