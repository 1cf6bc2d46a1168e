"""`lw.attention` on the CPU: random shapes against f64, strides, errors, torch's operator, the checker."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything
from lanewise.formats import format_of
from lanewise.linalg.kernels.attention.kernel import launches_of, traits_of
from lanewise.linalg.kernels.attention.plans import HEAD_SIZES, PARTS, tile_of
from lanewise.linalg.kernels.attention.sizes import Operands, Sizes, Tile
from lanewise.linalg.kernels.attention.split_keys import partial_bytes
from linalg.attention_oracle import reference, require_right

BF16 = ml_dtypes.bfloat16
SEED = np.random.SeedSequence()


def arrays(rng: Any, sizes: Sizes, dtype: Any) -> tuple[Any, Any, Any]:
    """Random queries, keys and values."""
    batch, heads, key_heads, queries, keys, depth = sizes
    q = rng.normal(size=(batch, heads, queries, depth))
    k, v = (rng.normal(size=(batch, key_heads, keys, depth)) for _ in range(2))
    return q.astype(dtype), k.astype(dtype), v.astype(dtype)


def random_sizes(rng: Any, depth: int) -> Sizes:
    """Sizes that seldom fit tiles: lengths log-uniform from 1 to 400."""
    key_heads, group = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    queries, keys = (int(each) for each in 400 ** rng.random(2))
    return Sizes(int(rng.integers(1, 3)), key_heads * group, key_heads, queries, keys, depth)


#: Cases that are always tried: kernels that other tests use, too, and one whose tiles no warpgroup divides.
USUAL = ((64, False, BF16), (96, True, np.float16))
#: The others take seconds each, most of them for the compilation of their kernels.
CASES = [
    pytest.param(depth, causal, dtype, marks=() if (depth, causal, dtype) in USUAL else only_with_everything)
    for depth in HEAD_SIZES
    for causal in (False, True)
    for dtype in (BF16, np.float16)
]


@pytest.mark.parametrize(("depth", "causal", "dtype"), CASES)
def test_random_shapes_are_right(depth: int, causal: bool, dtype: Any) -> None:
    print(SEED.entropy)
    rng = np.random.default_rng(SEED.spawn(1)[0])
    for _ in range(3):
        sizes = random_sizes(rng, depth)
        q, k, v = arrays(rng, sizes, dtype)
        out, lse = lw.attention(q, k, v, causal=causal, return_lse=True)
        print(sizes)
        require_right(out, lse, q, k, v, causal=causal)


def test_a_causal_mask_ends_at_the_last_query_and_key() -> None:
    rng = np.random.default_rng(1)
    for queries, keys in ((5, 9), (9, 5), (1, 70), (70, 1), (64, 64)):
        q, k, v = arrays(rng, Sizes(1, 1, 1, queries, keys, 96), np.float16)  # of USUAL
        out, lse = lw.attention(q, k, v, causal=True, return_lse=True)
        require_right(out, lse, q, k, v, causal=True)
        unseen = max(0, queries - keys)
        assert (out[:, :, :unseen] == 0).all() and np.isneginf(lse[:, :, :unseen]).all()
        last = lw.attention(q[:, :, -1:], k, v, causal=True)
        require_right(last, None, q[:, :, -1:], k, v)


def test_heads_that_share_keys_and_strides_of_all_kinds_give_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    q, k, v = arrays(rng, Sizes(2, 4, 2, 30, 41, 64), BF16)
    whole, lse = lw.attention(q, k, v, return_lse=True)
    repeated = [np.repeat(each, 2, axis=1) for each in (k, v)]
    assert (lw.attention(q, *repeated) == whole).all()
    by_length = [np.ascontiguousarray(each.swapaxes(1, 2)).swapaxes(1, 2) for each in (q, k, v)]
    out, again = lw.attention(*by_length, return_lse=True)
    assert (out == whole).all() and (again == lse).all() and out.strides == by_length[0].strides
    odd = [np.empty((*each.shape[:-1], 71), BF16)[..., 3:67] for each in (q, k, v)]
    for each, source in zip(odd, (q, k, v), strict=True):
        each[...] = source
    assert (lw.attention(*odd) == whole).all()
    backwards = [each[:, :, ::-1] for each in (k, v)]
    require_right(lw.attention(q, *backwards), None, q, *backwards)
    target = np.zeros((2, 4, 64, 30), BF16).swapaxes(2, 3)
    assert lw.attention(q, k, v, out=target) is target and (target == whole).all()
    one, shared = lw.attention(q[:, :, :1], k, v), lw.attention(q[:, :, :1], *repeated)
    assert (one == shared).all()  # queries of heads that share keys are computed together
    assert (lw.attention(q[0, 0], k[0, 0], v[0, 0]) == whole[0, 0]).all()
    assert (lw.attention(q[0], k[0], v[0]) == whole[0]).all()


def test_scales_and_lengths_at_the_edges() -> None:
    rng = np.random.default_rng(3)
    q, k, v = arrays(rng, Sizes(1, 1, 1, 20, 130, 64), BF16)
    for scale in (1e-3, 2.0, 30.0):
        out, lse = lw.attention(q, k, v, scale=scale, return_lse=True)
        require_right(out, lse, q, k, v, scale=scale)
    nothing, lse = lw.attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert (nothing == 0).all() and np.isneginf(lse).all()
    assert lw.attention(q[:, :, :0], k, v).shape == (1, 1, 0, 64)
    assert lw.attention(q[:0], k[:0], v[:0]).shape == (0, 1, 20, 64)
    large = np.full_like(k, 1e4)
    require_right(lw.attention(q, large, v), None, q, large, v)


def _mistakes() -> dict[str, tuple[Any, str]]:
    attention: Any = lw.attention  # called with what no type allows
    q = np.zeros((2, 4, 8, 64), np.float16)
    k = np.zeros((2, 2, 9, 64), np.float16)
    read_only = q.copy()
    read_only.flags.writeable = False
    return {
        "no array": (lambda: attention(1.0, k, k), "q must be an array"),
        "types": (lambda: attention(q, k, k.astype(BF16)), "convert them to one type"),
        "f32": (lambda: attention(*[each.astype(np.float32) for each in (q, k, k)]), "float16 and bf"),
        "f64": (lambda: attention(q, k.astype(np.float64), k), "float16 and bfloat16"),
        "int16": (lambda: attention(q.astype(np.int16), k, k), "it must have float16, bfloat16"),
        "one axis": (lambda: attention(q[0, 0, 0], k, k), r"takes \(batch, heads, length, head size\)"),
        "axes": (lambda: attention(q, k[0], k[0]), "the same number of axes"),
        "values": (lambda: attention(q, k, k[:, :, :5]), "k and v must have the same shape"),
        "head sizes": (lambda: attention(q[..., :32], k, k), "must have the same size"),
        "no kernel": (lambda: attention(q[..., :32], k[..., :32], k[..., :32]), "64, 96, 128, 256"),
        "batch": (lambda: attention(q, k[:1], k[:1]), "the same batch"),
        "heads": (lambda: attention(q[:, :3], k, k), "3 heads and k 2"),
        "causal": (lambda: attention(q, k, k, causal="yes"), "causal='yes' must be True or False"),
        "lse": (lambda: attention(q, k, k, return_lse=1), "return_lse=1 must be"),
        "scale": (lambda: attention(q, k, k, scale="1"), "scale='1' must be a number above 0"),
        "negative": (lambda: attention(q, k, k, scale=-0.5), "pass -q and -scale"),
        "nan": (lambda: attention(q, k, k, scale=float("nan")), "above 0"),
        "tiny": (lambda: attention(q, k, k, scale=1e-60), "that f32 holds"),
        "large": (lambda: attention(q, k, k, scale=1e39), "that f32 holds"),
        "a long integer": (lambda: attention(q, k, k, scale=10**400), "that f32 holds"),
        "out's shape": (lambda: attention(q, k, k, out=np.zeros_like(k)), "it must be as q"),
        "out's type": (lambda: attention(q, k, k, out=q.astype(BF16)), "it must be as q"),
        "out read": (lambda: attention(q, k, k, out=q), "out overlaps q in memory"),
        "out written": (lambda: attention(q, k, k, out=read_only), "out is read-only"),
        "out repeated": (
            lambda: attention(q, k, k, out=np.broadcast_to(q[:1].copy(), q.shape)), "read-only|share"
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", _mistakes())
def test_mistakes_are_refused_in_a_sentence(name: str) -> None:
    call, said = _mistakes()[name]
    with pytest.raises(lw.LanewiseError, match=said):
        call()


def test_torch_has_it_as_an_operator() -> None:
    torch = pytest.importorskip("torch")
    import lanewise.torch as lt

    torch.manual_seed(0)
    q = torch.randn(2, 30, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
    k, v = (torch.randn(2, 2, 41, 64, dtype=torch.bfloat16) for _ in range(2))
    whole = lw.attention(q, k, v)
    out, lse = lt.attention(q, k, v, return_lse=True)
    assert torch.equal(out, whole) and lse.shape == (2, 4, 30) and out.stride() == q.stride()
    assert torch.allclose(torch.compile(lt.attention, backend="eager")(q, k, v), whole)
    with pytest.raises(lw.LanewiseError, match="q requires a gradient, and lw"):
        lw.attention(q.clone().requires_grad_(), k, v)
    result = lt.attention(q.clone().requires_grad_(), k, v)
    with pytest.raises(lw.LanewiseError, match="has no gradient"):
        result.sum().backward()
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(each) for each in (q, k, v)]
        made = lt.attention(*fakes, return_lse=True)
        assert [(each.shape, each.stride(), each.dtype) for each in made] == [
            (each.shape, each.stride(), each.dtype) for each in (out, lse)
        ]
        with pytest.raises(lw.LanewiseError, match="must have the same shape"):
            lt.attention(fakes[0], fakes[1], fakes[2][:, :, :3])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "attention_lse"])
def test_opcheck_passes(name: str) -> None:
    torch = pytest.importorskip("torch")
    import lanewise.torch  # noqa: F401, defines the operators

    q, k, v = (torch.randn(1, 2, each, 64, dtype=torch.bfloat16) for each in (30, 41, 41))
    operator = getattr(torch.ops.lanewise, name).default
    assert set(torch.library.opcheck(operator, (q, k, v, False, 0.2, True)).values()) == {"SUCCESS"}


def test_every_tile_fits_and_few_queries_have_the_keys_of_many() -> None:
    rng = np.random.default_rng()
    for depth in HEAD_SIZES:
        for count in (int(draw) for draw in 50000 ** rng.random(20)):
            tiles = set()
            for queries in (1, 64, *(int(draw) for draw in 65 + 5000 ** rng.random(20))):
                for heads, alone in ((1, False), (1, True), (64, False)):
                    sizes, causal = Sizes(1, heads, heads, queries, count, depth), queries % 2 == 0
                    tile = tile_of(sizes, causal, alone)
                    traits = traits_of(sizes, format_of(BF16), causal, tile)
                    assert (
                        tile.queries > 64
                        or tile.parts > 1
                        or queries <= 64
                        or queries * heads <= 2 * 132 * 64
                    )
                    assert traits.shared_bytes <= 227 * 1024 and tile.parts in PARTS
                    assert tile.parts <= (1 if alone else -(-count // tile.keys))
                    tiles.add(tile)
            assert len({tile.keys for tile in tiles}) == 1  # bits depend on them


def test_tiles_of_queries_follow_what_they_compute() -> None:
    def consumers(length: int) -> int:
        return tile_of(Sizes(64, 16, 16, length, length, 64), True).consumers

    # The faster of both on an H200, of causal lengths (benchmarks/attention.py --tiles).
    assert [consumers(n) for n in (512, 640, 768, 900, 1000, 1536, 2048)] == [2, 2, 3, 3, 2, 3, 3]
    keys = [tile_of(Sizes(1, 1, 1, n, n, 256), True).keys for n in (512, 2048, 2049, 4096)]
    assert keys == [64, 64, 80, 80]


#: A tile of each kind: three consumers that take turns, panels of 64 bytes, tiles that no warpgroup divides.
CHECKED = [
    (Sizes(1, 2, 1, 200, 264, 64), True, Tile(128, 3, 2, ordered=True, persistent=True)),
    (Sizes(1, 2, 2, 200, 120, 96), True, Tile(112, 3, 2, ordered=True, persistent=True)),
    (Sizes(1, 2, 2, 60, 400, 96), True, Tile(112, 1, 2)),
    (Sizes(3, 6, 2, 3, 300, 64), True, Tile(128, 1, 2, persistent=True)),
    (Sizes(2, 3, 3, 1, 200, 128), False, Tile(128, 1, 2, persistent=True)),
    (Sizes(1, 3, 1, 200, 300, 128), False, Tile(128, 2, 2, persistent=True)),
    (Sizes(1, 2, 1, 150, 214, 256), True, Tile(80, 2, 2, persistent=True)),
    (Sizes(1, 2, 1, 200, 200, 256), True, Tile(64, 2, 2, ordered=True)),
    (Sizes(1, 2, 1, 300, 200, 256), False, Tile(64, 2, 2, persistent=True)),
    (Sizes(1, 2, 1, 200, 264, 64), True, Tile(128, 3, 2, parts=3)),
    (Sizes(1, 1, 1, 192, 448, 64), True, Tile(128, 3, 2, parts=2)),
    (Sizes(1, 2, 2, 100, 300, 96), False, Tile(112, 1, 2, parts=2)),
    (Sizes(1, 1, 1, 5, 1300, 128), True, Tile(128, 1, 2, parts=10)),
]


@only_with_everything
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "causal", "tile"),
    CHECKED,
)
def test_the_checker_finds_nothing_and_bits_do_not_depend_on_the_grid(
    sizes: Sizes, causal: bool, tile: Tile
) -> None:
    rng = np.random.default_rng(4)
    q, k, v = arrays(rng, sizes, np.float16)
    results = []
    for blocks, counter in ((3, np.zeros(1, np.uint32)), (3, None), (132, None)):
        out, lse = np.full_like(q, 7), np.full(q.shape[:-1], 7, np.float32)
        partial = np.full(partial_bytes(sizes, tile.parts) // 4, np.nan, np.float32)
        operands = Operands(q, k, v, out, lse, counter, partial)
        scale = sizes.depth**-0.5
        for launch in launches_of(sizes, format_of(np.float16), causal, tile, operands, scale, blocks):
            if blocks == 3:
                report = lw.check(launch.kernel, *launch.arguments)
                assert not report.findings, report.findings[0]
            else:
                launch()
        require_right(out, lse, q, k, v, causal=causal)
        results.append((out.tobytes(), lse.tobytes()))
        assert counter is None or counter[0] == 0
    assert len(set(results)) == 1


def by_tile(sizes: Sizes, causal: bool, tile: Tile, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return what a tile computes of bf16: results and logarithms."""
    out, lse = np.full_like(q, 7), np.full(q.shape[:-1], 7, np.float32)
    partial = np.full(partial_bytes(sizes, tile.parts) // 4, np.nan, np.float32)
    operands = Operands(q, k, v, out, lse, None, partial)
    for launch in launches_of(sizes, format_of(BF16), causal, tile, operands, 0.125, 132):
        launch()
    return out, lse


def require_tile_right(rng: Any, sizes: Sizes, causal: bool, tile: Tile) -> None:
    """Compare what a tile computes with the reference."""
    q, k, v = arrays(rng, sizes, BF16)
    print(sizes)
    require_right(*by_tile(sizes, causal, tile, q, k, v), q, k, v, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_divided_keys_are_right_and_parts_may_be_empty(causal: bool) -> None:
    print(SEED.entropy)
    rng = np.random.default_rng(SEED.spawn(1)[0])
    for parts in (2, 7, 9, int(rng.integers(65, 129))):
        keys = int(rng.integers(1, 700 if parts < 10 else 12000))
        sizes = Sizes(1, 2, 1, int(rng.integers(2, 140)) if parts < 10 else 3, keys, 64)
        require_tile_right(rng, sizes, causal, Tile(consumers=1 if parts == 7 else 2, parts=parts))


def test_parts_of_queries_that_see_no_key_or_begin_with_a_tile() -> None:
    rng = np.random.default_rng(8)
    for sizes, consumers, parts in (
        (Sizes(1, 2, 1, 150, 70, 64), 2, 2), (Sizes(1, 1, 1, 40, 3, 64), 1, 9),
        (Sizes(1, 1, 1, 192, 448, 64), 3, 2),
    ):  # fmt: skip
        require_tile_right(rng, sizes, True, Tile(consumers=consumers, parts=parts))


@pytest.mark.parametrize(("consumers", "parts"), [(2, 1), (2, 2), (1, 3), (1, 9)])
def test_queries_that_see_no_key_are_zero_whatever_the_values_are(consumers: int, parts: int) -> None:
    sizes = Sizes(1, 2, 1, 150, 100, 64)
    q, k, v = arrays(np.random.default_rng(9), sizes, BF16)
    v[:, :, 0, :2] = np.inf, np.nan
    out, lse = by_tile(sizes, True, Tile(consumers=consumers, parts=parts), q, k, v)
    assert (out[:, :, :50] == 0).all() and np.isneginf(lse[:, :, :50]).all()
    assert np.isinf(out[:, :, 50:, 0]).all() and np.isnan(out[:, :, 50:, 1].astype(float)).all()
    assert np.isfinite(out[:, :, :, 2:].astype(float)).all() and np.isfinite(lse[:, :, 50:]).all()


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_sums_of_older_tiles_keep_their_weight(dtype: Any) -> None:
    """Where the highest score stays the same, however large, they are multiplied by 1: the halves cancel."""
    rng = np.random.default_rng()
    for keys, score in ((384, 1e4), (3000, 30.0), (3000, 1e6), (3000, 1e8)):
        q = rng.normal(size=(3, 64)).astype(dtype)
        k = np.repeat(rng.normal(size=(1, 64)).astype(dtype), keys, 0)
        v = np.where(np.arange(keys)[:, None] < keys // 2, -1.0, 1.0).repeat(64, 1).astype(dtype)
        scale = float(np.float32(score / np.abs(q.astype(float) @ k[0].astype(float)).max()))
        for batch_invariant in (True, False):
            out, lse = lw.attention(q, k, v, scale=scale, return_lse=True, batch_invariant=batch_invariant)
            require_right(
                out[None, None], lse[None, None], *(each[None, None] for each in (q, k, v)), scale=scale
            )


def test_keys_without_weight_in_the_last_tiles() -> None:
    """A bias of -inf in a column of the keys masks them: tiles of nothing else come first."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(length, 64)).astype(BF16) for length in (4, 1500, 1500))
    q[:, 5], k[:, 5], k[300:, 5] = 1, 0, -np.inf
    seen = [each[None, None] for each in (q, k[:300], v[:300])]
    for batch_invariant in (True, False):
        out, lse = lw.attention(q, k, v, return_lse=True, batch_invariant=batch_invariant)
        require_right(out[None, None], lse[None, None], *seen)
    k[:, 5] = -np.inf
    options: Any
    for options in ({"batch_invariant": True}, {"causal": True}, {}):
        out, lse = lw.attention(q, k, v, return_lse=True, **options)
        assert not out.any() and np.isneginf(lse).all()


def test_numbers_that_are_none_show_in_the_logarithms() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (rng.normal(size=(length, 64)).astype(BF16) for length in (4, 1500, 1500))
    q[1, 3] = np.nan
    for batch_invariant in (True, False):
        out, lse = lw.attention(q, k, v, return_lse=True, batch_invariant=batch_invariant)
        assert np.array_equal(np.isnan(lse), [False, True, False, False])
        assert np.array_equal(np.isnan(out.astype(float)).any(1), np.isnan(lse))


def test_addresses_between_multiples_of_16_bytes_are_copied() -> None:
    rng = np.random.default_rng(6)
    wide = [rng.normal(size=(1, 1, length, 72)).astype(BF16) for length in (20, 30, 30)]
    for first in (1, 4):
        q, k, v = (each[..., first : first + 64] for each in wide)
        out = np.zeros((1, 1, 20, 72), BF16)[..., first : first + 64]
        require_right(lw.attention(q, k, v, out=out), None, q, k, v)
    same = wide[0][..., :64]
    for name in "qkv":
        with pytest.raises(lw.LanewiseError, match=f"out overlaps {name} in memory"):
            lw.attention(*(same if each == name else same.copy() for each in "qkv"), out=same)


def test_scales_are_numbers_of_any_kind() -> None:
    q = np.ones((2, 64), np.float16)
    wanted = lw.attention(q, q, q, scale=0.5).tobytes()
    scale: Any
    for scale in (np.float16(0.5), BF16(0.5), np.array(0.5), np.float64(0.5)):
        assert lw.attention(q, q, q, scale=scale).tobytes() == wanted
    wrong: Any
    for wrong in (np.ones(2), "1", True):
        with pytest.raises(lw.LanewiseError, match="must be a number above 0"):
            lw.attention(q, q, q, scale=wrong)


def test_keys_are_divided_unless_the_call_is_batch_invariant() -> None:
    rng = np.random.default_rng(5)
    few, many = Sizes(1, 2, 1, 1, 1500, 64), Sizes(8, 64, 64, 2, 1500, 64)
    assert tile_of(few._replace(heads=1, queries=2), False).parts > 1
    assert tile_of(many, False).parts == 1
    q, k, v = arrays(rng, few, BF16)
    out, lse = lw.attention(q, k, v, return_lse=True)
    require_right(out, lse, q, k, v)
    alone = lw.attention(q, k, v, batch_invariant=True)
    require_right(alone, None, q, k, v)
    tile = tile_of(few._replace(heads=1, queries=2), False, True)
    assert tile.parts == 1 and (alone.view(np.uint16) != out.view(np.uint16)).any()


def test_the_oracle_is_attention() -> None:
    q = np.zeros((1, 1, 2, 64))
    v = np.arange(3.0).reshape(1, 1, 3, 1) * np.ones(64)
    out, lse = reference(q, v, v, causal=True)
    assert np.allclose(out[0, 0, :, 0], [0.5, 1.0]) and np.allclose(lse, np.log([2, 3]))
