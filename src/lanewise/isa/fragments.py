"""Fragment layouts by rule: which thread holds which element, as CuTe layouts (thread, value) -> index.

The index is the flat column-major one of (M, K) for A, (N, K) for B and (M, N) for C and D. One rule covers
every instruction but Volta's m8n8k4. With e elements a register and lane = 4 g + t (g = 0…7, t = 0…3):
rows (of A; columns of B) go with g and K goes with e·t, so that a register holds e neighbours along K.
"""

from collections.abc import Sequence

from lanewise.layout import Layout

Mode = tuple[int, int]


def layout_of(threads: Sequence[Mode], values: Sequence[Mode]) -> Layout:
    """A (thread, value) layout from (size, stride) pairs; modes of size 1 are left out.

    >>> print(layout_of([(4, 32), (8, 1)], [(2, 16), (2, 8)]))
    ((4,8),(2,2)):((32,1),(16,8))
    """

    def mode(pairs: Sequence[Mode]) -> tuple[object, object]:
        kept = [pair for pair in pairs if pair[0] != 1] or [(1, 0)]
        if len(kept) == 1:
            return kept[0]
        return tuple(size for size, _ in kept), tuple(stride for _, stride in kept)

    (thread_shape, thread_stride), (value_shape, value_stride) = mode(threads), mode(values)
    return Layout((thread_shape, value_shape), (thread_stride, value_stride))


def _rows(m: int, warps: int = 1) -> tuple[Mode, Mode]:
    """Rows g and g + 8 of a 16-row stripe, and the further stripes that one warp takes."""
    return (min(m, 16) // 8, 8), (max(m // 16 // warps, 1), 16)


def a_layout(m: int, k: int, e: int, warps: int = 1, copies: int = 1) -> Layout:
    """A: row g + 8·(r mod 2), column e·t + i mod e + 4e·(r div 2); further 16-row stripes after that.

    The four warps of wgmma take a stripe each. `copies` counts registers that hold the same elements again.
    """
    pair, stripes = _rows(m, warps)
    return layout_of(
        [(4, e * m), (8, 1), (warps, 16)],
        [(e, m), pair, (k // (4 * e), 4 * e * m), stripes, (copies, 0)],
    )


def b_layout(n: int, k: int, e: int, copies: int = 1) -> Layout:
    """B: row e·t + i mod e + 4e·r, column g; the next 8 columns after all of K."""
    return layout_of([(4, e * n), (8, 1)], [(e, n), (k // (4 * e), 4 * e * n), (n // 8, 8), (copies, 0)])


def c_layout(m: int, n: int, warps: int = 1) -> Layout:
    """C and D: row g + 8·(i div 2), column 2t + i mod 2; further stripes, then the next 8 columns."""
    pair, stripes = _rows(m, warps)
    return layout_of([(4, 2 * m), (8, 1), (warps, 16)], [(2, m), pair, stripes, (n // 8, 8 * m)])


def c_transposed_layout(m: int, n: int) -> Layout:
    """C of wmma's m8n32: the fragment of the transposed m32n8 product."""
    pair, stripes = _rows(n)
    return layout_of([(4, 2), (8, m)], [(2, 1), *((size, stride * m) for size, stride in (pair, stripes))])


def descriptor_layout(outer: int, k: int) -> Layout:
    """An operand behind a shared-memory descriptor: all 128 threads see the whole matrix."""
    return Layout((128, (outer, k)), (0, (1, outer)))


# Volta's m8n8k4: a quad pair of 8 threads does one 8×8×4 product; THR_ID names its lanes, product q adds 4q.
VOLTA_THR_ID = Layout((4, 2), (1, 16))


def volta_ab_layout(along_k: bool) -> Layout:
    """A (.row) and B (.col) hold 4 elements along K of one row; the others 4 rows at one k."""
    return Layout((8, 4), (1, 8)) if along_k else Layout(((4, 2), 4), ((8, 4), 1))


def volta_c_layout(f32: bool) -> Layout:
    """f16 accumulators hold a row a thread; f32 ones 2×2 blocks of pairs."""
    if not f32:
        return Layout((8, 8), (1, 8))
    return Layout(((2, 2, 2), (2, 2, 2)), ((1, 16, 4), (8, 2, 32)))


# Volta's wmma: m8n8k4 over and over. Bits 0, 1 and 4 of a lane number the threads of its quad pair, bits 2
# and 3 the quad pair. `pairs` are the strides by which these two bits choose the quad pair's part of the
# matrix; with stride 0 two quad pairs hold the same part.


def volta_wmma_ab_layout(outer: int, k: int, pairs: Sequence[int], along_k: bool) -> Layout:
    """A (.row) and B (.col) hold all of K of one row; the others 4 rows at every fourth k."""
    first, second = ((2, pair) for pair in pairs)
    if along_k:
        return layout_of([(4, 1), first, second, (2, 4)], [(k, outer)])
    return layout_of([(4, outer), first, second, (2, 4)], [(4, 1), (k // 4, 4 * outer)])


def volta_wmma_c_layout(m: int, pairs: Sequence[int], f32: bool) -> Layout:
    """The 8×8 tile of a quad pair, as m8n8k4 has it."""
    first, second = ((2, pair) for pair in pairs)
    if not f32:
        return layout_of([(4, 1), first, second, (2, 4)], [(8, m)])
    return layout_of([(2, 1), (2, 2 * m), first, second, (2, 4)], [(2, m), (2, 2), (2, 4 * m)])


# Matrices of ldmatrix, stmatrix, movmatrix, stacked by rows: index = row + rows·column.


def row_layout(rows: int, matrices: int, e: int) -> Layout:
    """Register r holds matrix r: row g, columns e·t …, e neighbours of one row."""
    return layout_of([(4, e * rows), (8, 1)], [(e, rows), (matrices, rows // matrices)])


def transposed_layout(rows: int, matrices: int) -> Layout:
    """`.trans` on m8n8: row 2t + i mod 2, column g."""
    return layout_of([(4, 2), (8, rows)], [(2, 1), (matrices, rows // matrices)])


def m16n16_layout(rows: int, matrices: int) -> Layout:
    """ldmatrix.m16n16.trans on bytes: row 4t + i mod 4, column g + 8·(r mod 2)."""
    return layout_of([(4, 4), (8, rows)], [(4, 1), (2, 8 * rows), (matrices, 16)])


def m16n8_layout(rows: int, matrices: int) -> Layout:
    """stmatrix.m16n8.trans on bytes, as its 8 stored rows of 16: row 2t + i mod 2, column g + 8·(i div 2)."""
    return layout_of([(4, 2), (8, rows)], [(2, 1), (2, 8 * rows), (matrices, 8)])


# Sparse metadata: (thread, code) -> row + M·(group of K). Scales: (thread, byte) -> row + M·(scale along K).
# A mode of stride 0 is the choice that a selector makes: any one of those lanes or bytes may hold the item.


def metadata_layout(m: int, groups: int, bits: int, warps: int = 1) -> Layout:
    """Where the 4-bit codes of sparse A lie: in one lane of four, in a pair, or in all four of a quad.

    `groups` is the number of codes a row has, `bits` the size of A's elements. 16- and 32-bit elements put
    rows g and g + 8 into one word; 8- and 4-bit elements give them to neighbouring lanes.
    """
    rows_of_warps = [(8, 1), (warps, 16)]
    if groups == 4:
        return layout_of([(4, 0), *rows_of_warps], [(4, m), (2, 8)])
    if groups == 8 and bits >= 16:
        return layout_of([(2, 4 * m), (2, 0), *rows_of_warps], [(4, m), (2, 8)])
    if groups == 8:
        return layout_of([(2, 8), (2, 0), *rows_of_warps], [(8, m)])
    return layout_of([(2, 8), (2, 8 * m), *rows_of_warps], [(8, m)])


def scale_a_layout(m: int, vector: int) -> Layout:
    """Scale factors of A: lane 4·(row mod 8) + 2·thread-id + row div 8, byte byte-id + j."""
    return layout_of([(2, 8), (2, 0), (8, 1)], [(vector, m), (4 // vector, 0)])


def scale_b_layout(n: int, vector: int) -> Layout:
    """Scale factors of B: lane 4·column + thread-id, byte byte-id + j."""
    return layout_of([(4, 0), (8, 1)], [(vector, n), (4 // vector, 0)])
