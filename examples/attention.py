"""Flash attention, forward, in bf16 on mma.sync: softmax(Q Kᵀ / √D) V, the scores never written to memory.

A block of four warps takes 64 queries of one head and walks over the keys, 64 at a time: keys and values come
by cp.async one step ahead, scores stay in registers, and sums are rescaled when a larger score turns up.

    python examples/attention.py
"""

from typing import Any

import numpy as np

import lanewise as lw

QUERIES = KEYS = 64
WARPS, STAGES = 4, 2
mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
LOG2_E = 1.4426950408889634


def fetch(source: Any, first: Any, length: Any, target: Any, depth: int) -> None:
    """Start the copies of 64 rows from `first` on; rows beyond the end are zero."""
    across = depth // 8  # pieces of 16 bytes in a row
    for number in range(KEYS * across // (WARPS * 32)):
        piece = lw.thread_idx.x + number * WARPS * 32
        row, col = piece // across, piece % across * 8
        inside = lw.where(first + row < length, 16, 0)
        lw.cp_async(target.ptr(row, col), source + ((first + row) * depth + col), 16, src_bytes=inside)


def quad(combine: Any, value: Any) -> Any:
    """A value over the four lanes that share a row of a fragment."""
    for distance in (1, 2):
        value = combine(value, lw.shfl_xor_sync(value, distance))
    return value


@lw.kernel(max_threads=WARPS * 32)
def attention(
    Q: lw.Ptr[lw.bf16, 16], K: lw.Ptr[lw.bf16, 16], V: lw.Ptr[lw.bf16, 16], Out: lw.Ptr[lw.bf16, 16],
    S: lw.i32, scale: lw.f32, D: lw.Constexpr = 64, CAUSAL: lw.Constexpr = False,
) -> None:  # fmt: skip
    """Heads are [S, D] matrices one after the other; the grid is (blocks of queries, heads)."""
    lane, warp = lw.lane_id(), lw.thread_idx.x // 32
    first = lw.block_idx.x * QUERIES
    head = lw.block_idx.y * S * D
    Q, K, V, Out = Q + head, K + head, V + head, Out + head
    # D = 64: rows of 128 bytes, their eight 16-byte pieces XORed with the row: no bank conflicts.
    layout, swizzle = (KEYS, D), lw.Swizzle(3, 3, D.bit_length() - 4)
    size = KEYS * D * 2
    Qs = lw.dynamic_shared(lw.bf16, layout, swizzle=swizzle)
    Ks = [lw.dynamic_shared(lw.bf16, layout, swizzle=swizzle, offset=(1 + s) * size) for s in range(STAGES)]
    Vs = [lw.dynamic_shared(lw.bf16, layout, swizzle=swizzle, offset=(3 + s) * size) for s in range(STAGES)]
    fetch(Q, first, S, Qs, D)
    fetch(K, lw.i32(0), S, Ks[0], D)
    fetch(V, lw.i32(0), S, Vs[0], D)
    lw.cp_async_commit()
    row = first + warp * 16 + lane // 4  # this lane's rows of the scores are this one and the eighth after it
    largest = [lw.f32(-np.inf), lw.f32(-np.inf)]
    total = [lw.f32(0.0), lw.f32(0.0)]
    out = [mma.zeros() for _ in range(D // 8)]
    keys = lw.min(S, first + QUERIES) if CAUSAL else S
    for start in lw.range(0, keys, KEYS * STAGES):
        for s in range(STAGES):
            here = start + s * KEYS
            lw.cp_async_wait(0)
            lw.syncthreads()  # this step's keys and values are here, and the other stage is free
            fetch(K, here + KEYS, S, Ks[1 - s], D)
            fetch(V, here + KEYS, S, Vs[1 - s], D)
            lw.cp_async_commit()
            # scores: Q Kᵀ; K lies row by row, which is the column-major B that mma takes
            scores = [mma.zeros() for _ in range(KEYS // 8)]
            for k in range(0, D, 16):
                a = lw.ldmatrix(Qs.ptr(warp * 16 + lane % 16, k + lane // 16 * 8))
                for n in range(0, KEYS, 16):
                    b = lw.ldmatrix(Ks[s].ptr(n + lane // 16 * 8 + lane % 8, k + lane // 8 % 2 * 8)).registers
                    scores[n // 8] = mma(a, b[:2], scores[n // 8])
                    scores[n // 8 + 1] = mma(a, b[2:], scores[n // 8 + 1])
            for n in range(KEYS // 8):
                for i in range(4):
                    key = here + n * 8 + lane % 4 * 2 + i % 2
                    seen = key < S
                    if CAUSAL:
                        seen = seen & ~(key > row + i // 2 * 8)
                    scores[n][i] = lw.where(seen, scores[n][i] * (scale * LOG2_E), -np.inf)
            # softmax as it goes: powers of two below the largest score so far, older sums rescaled
            for half in range(2):
                now = largest[half]
                for n in range(KEYS // 8):
                    now = lw.max(now, scores[n][2 * half], scores[n][2 * half + 1])
                now = quad(lw.max, now)
                base = lw.where(now == -np.inf, 0.0, now)  # a row that sees no key yet
                shrink = lw.exp2(largest[half] - base)
                largest[half] = now
                part = lw.f32(0.0)
                for n in range(KEYS // 8):
                    for i in (2 * half, 2 * half + 1):
                        scores[n][i] = lw.exp2(scores[n][i] - base)
                        part = part + scores[n][i]
                total[half] = total[half] * shrink + part
                for n in range(D // 8):
                    for i in (2 * half, 2 * half + 1):
                        out[n][i] = out[n][i] * shrink
            # the scores of two 8-column blocks are, rounded, the A of one m16n8k16
            for k in range(KEYS // 16):
                weights = [
                    lw.pack(scores[n][i].to(lw.bf16), scores[n][i + 1].to(lw.bf16))
                    for n in (2 * k, 2 * k + 1)
                    for i in (0, 2)
                ]
                for n in range(0, D, 16):
                    b = lw.ldmatrix(Vs[s].ptr(k * 16 + lane % 16, n + lane // 16 * 8), trans=True).registers
                    out[n // 8] = mma(weights, b[:2], out[n // 8])
                    out[n // 8 + 1] = mma(weights, b[2:], out[n // 8 + 1])
    lw.cp_async_wait(0)
    for half in range(2):
        whole = lw.rcp(quad(lambda x, y: x + y, total[half]))
        r = row + half * 8
        if r < S:
            for n in range(D // 8):
                pair = [(out[n][2 * half + i] * whole).to(lw.bf16) for i in range(2)]
                (Out + (r * D + n * 8 + lane % 4 * 2)).store(pair)


def launch(q: Any, k: Any, v: Any, o: Any, causal: bool = False, **options: Any) -> None:
    """Attention of [heads, S, D] arrays: NumPy ones on the CPU, CUDA ones on their GPU."""
    heads, length, depth = q.shape
    shared = (1 + 2 * STAGES) * KEYS * depth * 2
    configured = attention[(-(-length // QUERIES), heads), WARPS * 32, shared]
    configured(q, k, v, o, length, depth**-0.5, D=depth, CAUSAL=causal, **options)


def reference(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """The same in double precision."""
    q, k, v = (operand.astype(np.float64) for operand in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) * q.shape[-1] ** -0.5
    if causal:
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def main() -> None:
    """Two heads of 100 queries, causal and not, against double precision."""
    import ml_dtypes

    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 100, 64)).astype(ml_dtypes.bfloat16) for _ in range(3))
    for causal in (False, True):
        o = np.zeros_like(q)
        launch(q, k, v, o, causal, arch="sm_90")
        error = np.abs(o.astype(np.float64) - reference(q, k, v, causal)).max()
        print(f"{'causal' if causal else 'all keys'}: largest error {error:.4f}")
        # bf16 keeps 8 bits of the weights and of the result, whose elements are below 4 here
        assert error < 0.03, "NOT right"


if __name__ == "__main__":
    main()
