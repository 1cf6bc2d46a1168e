"""Flash attention, forward, on Hopper: TMA brings keys and values, wgmma multiplies, softmax in registers.

A block takes 64 queries for each of its two or three warpgroups and walks over the keys, from the last ones
to the first. If it stays for many tiles of queries, the queries and keys of the next are under way while one
is finished. The tensor cores compute the scores of a tile and the sums of the one before together; while they
finish the sums, the warpgroup computes exponentials of the scores. With `turns` the warpgroups also multiply
one after the other, so that one computes exponentials while another multiplies.

    python examples/attention_hopper.py

benchmarks/attention.py measures it beside FlashAttention-2 and cuDNN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

import lanewise as lw

LOG2_E = 1.4426950408889634
WARPGROUP, ROWS, WIDE = 128, 64, 64
SWIZZLE = lw.Swizzle(3, 3, 3)
#: Those of an H100 or H200; fewer on the CPU, so that blocks have more than one tile.
MULTIPROCESSORS = 3
#: The first of the barriers at which a warpgroup waits for its turn.
FIRST_TURN = 8
#: Registers of the warpgroup that loads, and of those that multiply, by how many these are.
REGISTERS = {2: (24, 240), 3: (32, 160)}


#: What was fastest on an H200, by the length of a head and whether it is causal.
FASTEST: dict[tuple[int, bool], dict[str, Any]] = {
    (64, False): {"consumers": 3, "stages": 3, "turns": True},
    (64, True): {"consumers": 3, "stages": 2, "turns": True},
    (128, False): {"consumers": 2, "stages": 2},
    (128, True): {"consumers": 2, "stages": 2, "stays": False},
}


@dataclass(frozen=True)
class Shape:
    """What is compiled in: the length of a head, the keys of a tile, the warpgroups that multiply."""

    depth: int = 128
    keys: int = 128
    consumers: int = 2
    stages: int = 2
    causal: bool = False
    #: Whether the warpgroups multiply one after the other.
    turns: bool = False
    #: Whether blocks stay for many tiles of queries, or the GPU hands tiles out.
    stays: bool = True

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return ROWS * self.consumers

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (1 + self.consumers) * WARPGROUP

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile of keys or of values."""
        return 2 * self.keys * self.depth

    @property
    def query_bytes(self) -> int:
        """Bytes of the block's queries."""
        return 2 * self.queries * self.depth

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return 2 * self.query_bytes + 2 * self.stages * self.tile_bytes

    @property
    def masked(self) -> int:
        """Tiles of keys of which some of a warpgroup's queries may not see some: those on the diagonal."""
        return 1 + (ROWS + self.keys - 2) // self.keys if self.causal and self.keys % ROWS else 1


def quad(combine: Any, value: Any) -> Any:
    """Return a value over the four lanes that share a row of an accumulator."""
    for distance in (1, 2):
        value = combine(value, lw.shfl_xor_sync(value, distance))
    return value


@cache
def kernel(T: Shape) -> lw.Kernel:
    """Return the kernel of a shape: queries, keys and values are [heads, S, depth]."""
    scores = lw.instruction(f"wgmma.mma_async.sync.aligned.m64n{T.keys}k16.f32.bf16.bf16")
    values = lw.instruction(
        f"wgmma.mma_async.sync.aligned.m64n{T.depth}k16.f32.bf16.bf16", a_source="registers"
    )
    panels = T.depth // WIDE
    query_box, key_box = (1, T.queries, WIDE), (1, T.keys, WIDE)

    @lw.kernel(max_threads=T.threads, min_blocks=1)
    def attention(
        Q: lw.TensorMap[lw.bf16, query_box, 128],
        K: lw.TensorMap[lw.bf16, key_box, 128],
        V: lw.TensorMap[lw.bf16, key_box, 128],
        Out: lw.TensorMap[lw.bf16, (1, ROWS, WIDE), 128],
        S: lw.i32, heads: lw.i32, scale: lw.f32,
    ) -> None:  # fmt: skip
        S, heads = (lw.assume(each, nonnegative=True) for each in (S, heads))
        thread = lw.thread_idx.x
        role = lw.shfl_sync(thread // WARPGROUP, 0)
        at_k = 2 * T.query_bytes
        at_v = at_k + T.stages * T.tile_bytes
        tile = T.keys * T.depth

        def boxes(rows: int, stages: int, step: int, offset: int) -> Any:  # as TMA sees them
            layout = lw.Layout((1, rows, WIDE, panels, stages), (rows * WIDE, WIDE, 1, rows * WIDE, step))
            return lw.dynamic_shared(lw.bf16, layout, swizzle=SWIZZLE, offset=offset)

        def along_depth(rows: int, stages: int, step: int, offset: int) -> Any:  # (row, depth, stage)
            layout = lw.Layout((rows, (WIDE, panels), stages), (WIDE, (1, rows * WIDE), step))
            return lw.dynamic_shared(lw.bf16, layout, swizzle=SWIZZLE, offset=offset)

        of_queries = lw.Pipeline(1, bytes=T.query_bytes, consumers=T.consumers)
        of_keys = lw.Pipeline(T.stages, bytes=T.tile_bytes, consumers=T.consumers)
        of_values = lw.Pipeline(T.stages, bytes=T.tile_bytes, consumers=T.consumers)
        if thread == 0:
            for each in (Q, K, V, Out):
                lw.tma.prefetch_map(each)
            for pipeline in (of_queries, of_keys, of_values):
                pipeline.init()
            lw.fence_mbarrier_init()
        lw.syncthreads()
        blocks = lw.cdiv(S, T.queries)

        def place(number: Any) -> Any:
            """Return the head, the first query and the tiles of keys of a piece of work."""
            head, which = number // blocks, number % blocks
            if T.stays and T.causal:  # pieces that are equally long one after the other
                head, which = number % heads, number // heads
            first = which * T.queries
            if T.causal:  # the longest first
                first = (blocks - 1 - which) * T.queries
            last = lw.min(S, first + T.queries) if T.causal else S
            return head, first, lw.cdiv(last, T.keys)

        # How many pieces of work this block has, and which of all is its piece in each round.
        pieces, shift = 1, 0
        if T.stays and T.causal:  # who has a long one in one round has a short one in another
            rounds = lw.cdiv(blocks * heads, lw.grid_dim.x)
            shift = lw.cdiv(lw.grid_dim.x, rounds)
            last = (rounds - 1) * lw.grid_dim.x + (lw.block_idx.x + (rounds - 1) * shift) % lw.grid_dim.x
            pieces = rounds - lw.where(last < blocks * heads, 0, 1)
        elif T.stays:
            pieces = lw.cdiv(blocks * heads - lw.block_idx.x, lw.grid_dim.x)

        def piece(turn: Any) -> Any:
            """Return the number of this block's piece of work in a round."""
            if not T.stays:
                return lw.block_idx.x
            place = (lw.block_idx.x + turn * shift) % lw.grid_dim.x if T.causal else lw.block_idx.x
            return turn * lw.grid_dim.x + place

        if role == 0:
            lw.setmaxnreg_dec(REGISTERS[T.consumers][0])
            if (thread < 32) & lw.elect_one():
                sQ = boxes(T.queries, 1, 0, 0)
                sK, sV = boxes(T.keys, T.stages, tile, at_k), boxes(T.keys, T.stages, tile, at_v)
                filling, asked = of_keys.producer_state(), of_queries.producer_state()
                for turn in lw.range(pieces):
                    head, first, tiles = place(piece(turn))
                    of_queries.acquire(asked)
                    of_queries.commit(asked)
                    for panel in range(panels):
                        lw.tma.load(
                            sQ[None, None, None, panel, 0], Q, (head, first, panel * WIDE),
                            of_queries.barrier(asked),
                        )  # fmt: skip
                    asked = asked.next()
                    for done in lw.range(tiles):
                        row = (tiles - 1 - done) * T.keys
                        for pipeline, source, target in ((of_keys, K, sK), (of_values, V, sV)):
                            pipeline.acquire(filling)
                            pipeline.commit(filling)
                            for panel in range(panels):
                                lw.tma.load(
                                    target[None, None, None, panel, filling.stage], source,
                                    (head, row, panel * WIDE), pipeline.barrier(filling),
                                )  # fmt: skip
                        filling = filling.next()
        else:
            lw.setmaxnreg_inc(REGISTERS[T.consumers][1])
            sQ = along_depth(T.queries, 1, 0, 0)
            sK = along_depth(T.keys, T.stages, tile, at_k)
            sV = lw.dynamic_shared(  # (depth, key, stage): neighbours along the depth
                lw.bf16,
                lw.Layout(((WIDE, panels), T.keys, T.stages), ((1, T.keys * WIDE), WIDE, tile)),
                swizzle=SWIZZLE,
                offset=at_v,
            )
            own = role - 1
            if T.turns and own == T.consumers - 1:
                lw.arrive(FIRST_TURN, 2 * WARPGROUP)  # the first may begin
            reading, queries = of_keys.consumer_state(), of_queries.consumer_state()
            for turn in lw.range(pieces):
                head, first, tiles = place(piece(turn))
                of_queries.wait(queries)
                query = first + own * ROWS
                sums, total, reading = attend(
                    T, scores, values, of_queries, queries, of_keys, of_values, reading, sQ, sK, sV, own,
                    query, S, tiles, scale * LOG2_E, turn + 1 < pieces,
                )  # fmt: skip
                queries = queries.next()
                store(T, sums, total, Out, head, query, own)
            if (thread % WARPGROUP < 32) & lw.elect_one():
                lw.tma.wait(0, read=True)  # the block's shared memory is read before the block ends

    return attention


@lw.device
def attend(
    T: Any,
    scores: Any,
    values: Any,
    of_queries: Any,
    queries: Any,
    of_keys: Any,
    of_values: Any,
    reading: Any,
    sQ: Any,
    sK: Any,
    sV: Any,
    own: Any,
    query: Any,
    S: Any,
    tiles: Any,
    scale: Any,
    more: Any,
) -> Any:
    """Return the sums over all keys, not yet divided, the totals of this lane's two rows, the next stage."""
    q, k, v = lw.make_gmma_desc(sQ), lw.make_gmma_desc(sK), lw.make_gmma_desc(sV)
    thread = lw.thread_idx.x % WARPGROUP
    lane, warp = lw.lane_id(), thread // 32
    row = query + warp * 16 + lane // 4  # this lane's rows are this one and the eighth after it
    if T.causal and T.keys % T.queries:  # the last tiles, which only the warpgroups after this one see
        seen = lw.cdiv(lw.min(S, query + ROWS), T.keys)
        for _ in lw.range(seen, tiles):
            if T.turns:  # the last warpgroup sees all tiles
                lw.barrier(FIRST_TURN + own, 2 * WARPGROUP)
                lw.arrive(FIRST_TURN + 1 + own, 2 * WARPGROUP)
            for pipeline in (of_keys, of_values):
                pipeline.wait(reading)  # so that this does not count as giving the tile before it back
                if thread == 0:
                    pipeline.release(reading)
            reading = reading.next()
        tiles = seen
    before = reading
    s, o = scores.zeros(), values.zeros()
    # the scores of the last tile, which may reach beyond the end
    of_keys.wait(reading)
    lw.wgmma_fence()
    s = multiply_keys(T, scores, q, k, s, own, reading.stage)
    lw.wgmma_commit()
    lw.wgmma_wait(0)
    if thread == 0:
        of_keys.release(reading)
        if tiles == 1:
            of_queries.release(queries)
    highest = [lw.f32(-np.inf), lw.f32(-np.inf)]
    total = [lw.f32(0.0), lw.f32(0.0)]
    powers, highest, total, _ = softmax(T, s, highest, total, scale, row, (tiles - 1) * T.keys, S, True)
    p = packed(powers)
    reading = reading.next()
    some = lw.min(tiles, T.masked)
    for part in range(2 if T.masked > 1 else 1):
        hidden = T.masked > 1 and part == 0
        begin, end = (1, some) if hidden else (some, tiles)
        for done in lw.range(begin, end):
            of_keys.wait(reading)
            if T.turns:
                lw.barrier(FIRST_TURN + own, 2 * WARPGROUP)
            lw.wgmma_fence()
            s = multiply_keys(T, scores, q, k, s, own, reading.stage)
            lw.wgmma_commit()
            of_values.wait(before)
            o = multiply_values(T, values, p, v, o, before.stage)
            lw.wgmma_commit()
            if T.turns:
                if own < T.consumers - 1:
                    lw.arrive(FIRST_TURN + 1 + own, 2 * WARPGROUP)
                elif (done + 1 < tiles) | more:
                    lw.arrive(FIRST_TURN, 2 * WARPGROUP)
            lw.wgmma_wait(1)
            if thread == 0:
                of_keys.release(reading)
                if done == tiles - 1:  # the queries are no longer needed
                    of_queries.release(queries)
            key = (tiles - 1 - done) * T.keys
            powers, highest, total, factors = softmax(T, s, highest, total, scale, row, key, S, hidden)
            lw.wgmma_wait(0)
            if thread == 0:
                of_values.release(before)
            for i in range(len(o)):
                o[i] = o[i] * factors[i // 2 % 2]
            p = packed(powers)
            before = reading
            reading = reading.next()
    of_values.wait(before)
    lw.wgmma_fence()
    o = multiply_values(T, values, p, v, o, before.stage)
    lw.wgmma_commit()
    lw.wgmma_wait(0)
    if thread == 0:
        of_values.release(before)
    return o, total, reading


def multiply_keys(T: Any, mma: Any, q: Any, k: Any, s: Any, own: Any, stage: Any) -> Any:
    """Begin the scores of 64 queries and a tile of keys."""
    for depth in range(0, T.depth, 16):
        s = mma(q[own * ROWS, depth, 0], k[0, depth, stage], s, accumulate=depth > 0)
    return s


def multiply_values(T: Any, mma: Any, p: Any, v: Any, o: Any, stage: Any) -> Any:
    """Begin to add the values of a tile, weighted by p."""
    for number in range(T.keys // 16):
        o = mma(p[number], v[0, number * 16, stage], o)
    return o


def packed(powers: Any) -> Any:
    """Return weights as registers of A, a fragment for every 16 keys: an accumulator lies as they do."""
    pairs = [lw.pack(powers[i], powers[i + 1], lw.bf16) for i in range(0, len(powers), 2)]
    return [tuple(pairs[i : i + 4]) for i in range(0, len(pairs), 4)]


@lw.device
def softmax(
    T: Any, s: Any, highest: Any, total: Any, scale: Any, row: Any, key: Any, S: Any, hidden: Any
) -> Any:
    """Return exponentials of scores, the highest scores and totals so far, and factors for older sums."""
    values = [s[i] for i in range(len(s))]
    if hidden:
        lane = lw.lane_id()
        for i in range(len(values)):
            column = key + i // 4 * 8 + 2 * (lane % 4) + i % 2
            seen = column < S
            if T.causal:
                seen = column <= lw.min(row + 8 * (i // 2 % 2), S - 1)
            values[i] = lw.where(seen, values[i], lw.f32(-np.inf))
    new, factors, sums = [], [], []
    for half in range(2):
        largest = highest[half]
        for i in range(2 * half, len(values), 4):
            largest = lw.max(largest, lw.max(values[i], values[i + 1]))
        largest = quad(lw.max, largest)
        base = largest * scale
        if hidden:  # rows that see nothing yet
            base = lw.where(largest == lw.f32(-np.inf), lw.f32(0.0), base)
        factor = lw.exp2(lw.fma(highest[half], scale, -base))
        added = total[half] * factor
        for i in range(2 * half, len(values), 4):
            for n in range(2):
                values[i + n] = lw.exp2(lw.fma(values[i + n], scale, -base))
                added = added + values[i + n]
        new.append(largest)
        factors.append(factor)
        sums.append(added)
    return values, new, sums, factors


@lw.device
def store(T: Any, sums: Any, total: Any, Out: Any, head: Any, query: Any, own: Any) -> Any:
    """Divide, and store 64 rows by way of shared memory."""
    thread = lw.thread_idx.x % WARPGROUP
    lane, warp = lw.lane_id(), lw.shfl_sync(thread // 32, 0)
    panels = T.depth // WIDE
    sO = lw.dynamic_shared(
        lw.bf16,
        lw.Layout(
            (1, ROWS, WIDE, panels, T.consumers), (ROWS * WIDE, WIDE, 1, T.queries * WIDE, ROWS * WIDE)
        ),
        swizzle=SWIZZLE,
        offset=T.query_bytes,
    )
    if (warp == 0) & lw.elect_one():
        lw.tma.wait(0, read=True)  # the rows before have left
    lw.barrier(1 + own, WARPGROUP)
    shares = [1.0 / quad(lambda a, b: a + b, each) for each in total]
    for panel in range(panels):
        for sixteen in range(WIDE // 16):
            at = (panel * WIDE + sixteen * 16) // 8 * 4
            four = [
                lw.pack(sums[at + i] * shares[i // 2 % 2], sums[at + i + 1] * shares[i // 2 % 2], lw.bf16)
                for i in range(0, 8, 2)
            ]
            place = sO.ptr(0, warp * 16 + lane % 16, sixteen * 16 + lane // 16 * 8, panel, own)
            lw.stmatrix(place, four)
    lw.fence_proxy_async()
    lw.barrier(1 + own, WARPGROUP)
    if (warp == 0) & lw.elect_one():
        for panel in range(panels):
            lw.tma.store(Out, (head, query, panel * WIDE), sO[None, None, None, panel, own])
        lw.tma.commit()


def prepare(
    q: Any, k: Any, v: Any, out: Any, causal: bool = False, **given: Any
) -> tuple[Any, tuple[Any, ...]]:
    """Return the configured kernel and its arguments, for arrays of [heads, S, depth] in bf16."""
    heads, length, depth = q.shape
    T = Shape(depth, causal=causal, **{**FASTEST[depth, causal], **given})
    maps = (
        lw.tensor_map(q, (1, T.queries, WIDE), swizzle="128B"),
        lw.tensor_map(k, (1, T.keys, WIDE), swizzle="128B"),
        lw.tensor_map(v, (1, T.keys, WIDE), swizzle="128B"),
        lw.tensor_map(out, (1, ROWS, WIDE), swizzle="128B"),
    )
    present = [each.multiprocessors for each in lw.gpu.devices()] or [MULTIPROCESSORS]
    blocks = -(-length // T.queries) * heads
    if T.stays:
        blocks = min(blocks, present[0])
    return kernel(T)[blocks, T.threads, T.shared_bytes], (*maps, length, heads, 1 / sqrt(depth))


def reference(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Return attention in f64."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def main() -> None:
    """Compare with f64; look for mistakes in the causal kernel, which does all that the plain one does."""
    rng = np.random.default_rng(0)
    for depth, length, causal in ((64, 200, False), (128, 300, True)):
        q, k, v = (rng.normal(size=(2, length, depth)).astype(ml_dtypes.bfloat16) for _ in range(3))
        out = np.zeros_like(q)
        configured, arguments = prepare(q, k, v, out, causal)
        if causal:
            report = lw.check(configured, *arguments)
            print("causal:", report.findings[0] if report.findings else "nothing found")
            assert not report.findings
        else:
            configured(*arguments)
        error = np.abs(out.astype(np.float64) - reference(q, k, v, causal)).max()
        print(f"{'causal' if causal else 'plain'}: largest error {error:.4f}")
        assert error < 0.02


if __name__ == "__main__":
    main()
