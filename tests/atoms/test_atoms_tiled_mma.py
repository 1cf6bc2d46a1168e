"""Laws of TiledMMA: what threads own together, tiles, permutations, swizzled tensors, bad input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everything import EVERYTHING, examples
from lanewise.atoms import (
    MMA_Atom,
    TiledMMA,
    make_tiled_mma,
    partition_fragment_C,
    partition_shape_A,
    partition_shape_B,
    partition_shape_C,
)
from lanewise.errors import LanewiseError
from lanewise.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    make_identity_tensor,
    size,
)

OPERATIONS = (
    "SM80_16x8x16_F32F16F16F32_TN",
    "SM80_16x8x8_F32TF32TF32F32_TN",
    "SM80_8x8x4_F64F64F64F64_TN",
    "SM70_8x8x4_F32F16F16F32_NT",
    "SM70_8x8x4_F16F16F16F16_TN",
)


def elements(part: Tensor) -> np.ndarray:
    """The offsets that a partition leads to."""
    return part.offset + part.layout(np.arange(part.size()))


def threads_of(mma: MMA_Atom) -> list[int]:
    layout = mma.thr_layout_vmnk
    return sorted(layout(i) for i in range(size(layout)))


def owners(mma: MMA_Atom, which: str, shape: tuple[int, ...]) -> np.ndarray:
    """How many threads own each element of a tensor."""
    counts = np.zeros(int(np.prod(shape)), dtype=int)
    tensor = Tensor(0, Layout(shape))
    for t in threads_of(mma):
        np.add.at(counts, elements(getattr(mma.get_slice(t), f"partition_{which}")(tensor)), 1)
    return counts


def check_coverage(mma: MMA_Atom, tiles: tuple[int, int, int]) -> None:
    """Each element belongs to as many threads as stand along the mode that the operand does not have."""
    _, m, n, k = (size(mode) for mode in mma.thr_layout_vmnk)
    extents = [tile * count for tile, count in zip(mma.tile_size_mnk, tiles, strict=True)]
    assert set(owners(mma, "A", (extents[0], extents[2]))) == {n}
    assert set(owners(mma, "B", (extents[1], extents[2]))) == {m}
    assert set(owners(mma, "C", (extents[0], extents[1]))) == {k}


@st.composite
def tilings(draw: st.DrawFn) -> TiledMMA:
    counts = draw(
        st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 2), (4, 1, 1)])
    )
    order = draw(st.permutations([0, 1, 2]))
    stride, strides = 1, [0, 0, 0]
    for mode in order:
        strides[mode] = stride
        stride *= counts[mode]
    mma = make_tiled_mma(draw(st.sampled_from(OPERATIONS)), Layout(counts, tuple(strides)))
    entries: list[Any] = []
    for extent in mma.tile_size_mnk:
        times = draw(st.sampled_from([1, 2]))
        entry: Any = draw(st.sampled_from([None, extent * times, "interleaved"]))
        if entry == "interleaved":  # the two halves of each group of 8 (of all, if fewer) are taken apart
            group = min(8, extent * times)
            entry = Layout((group // 2, extent * times // group, 2), (1, group, group // 2))
        entries.append(entry)
    return make_tiled_mma(mma, mma.AtomLayoutMNK, tuple(entries))


@pytest.mark.slow
@settings(deadline=None, max_examples=40 if EVERYTHING else 8)
@given(tilings(), st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 2)]))
def test_each_element_is_owned_the_right_number_of_times(mma: TiledMMA, tiles: tuple[int, int, int]) -> None:
    check_coverage(mma, tiles)


@pytest.mark.parametrize(
    "mma",
    [
        make_tiled_mma("SM90::GMMA::MMA_64x32x16_F32F16F16_RS", (2, 1, 1)),
        make_tiled_mma("SM80_16x8x32_S32S8S8S32_TN", (2, 2, 1), (32, 32, 64)),
        make_tiled_mma("SM120_16x8x32_TN<float_e4m3_t, float_e2m1_t, float>", (4, 2, 1), (128, 32, 32)),
        MMA_Atom("SM80_16x8x16_F16F16F16F16_TN"),
    ],
    ids=repr,
)
def test_accumulators_are_owned_once(mma: MMA_Atom) -> None:
    m, n, _ = mma.tile_size_mnk
    assert set(owners(mma, "C", (2 * m, 2 * n))) == {1}


@settings(deadline=None, max_examples=examples(40))
@given(tilings())
def test_layouts_of_a_tile_say_what_partitions_say(mma: TiledMMA) -> None:
    m, n, k = mma.tile_size_mnk
    for which, shape in (("A", (m, k)), ("B", (n, k)), ("C", (m, n))):
        tv = getattr(mma, f"get_layout{which}_TV")()
        for t in threads_of(mma)[::5]:
            part = getattr(mma.get_slice(t), f"partition_{which}")(Layout(shape))
            assert tv(t, np.arange(size(tv[1]))).tolist() == elements(part).tolist()


@settings(deadline=None, max_examples=examples(30))
@given(tilings())
def test_thrfrg_rearranges_without_loss(mma: TiledMMA) -> None:
    m, n, k = mma.tile_size_mnk
    for which, shape in (("A", (m, 2 * k)), ("B", (2 * n, k)), ("C", (2 * m, n))):
        split = getattr(mma, f"thrfrg_{which}")(Layout(shape))
        assert sorted(split(np.arange(size(split)))) == list(range(shape[0] * shape[1]))


def test_a_lone_atom_is_the_tiling_of_one() -> None:
    for name in OPERATIONS:
        mma = MMA_Atom(name)
        assert mma == make_tiled_mma(mma, (1, 1, 1)) == make_tiled_mma(name)
        assert hash(mma) == hash(make_tiled_mma(name))
        assert mma != make_tiled_mma(name, (2, 1, 1))
        assert mma.tile_size_mnk == mma.Shape_MNK
        assert [mma.tile_size_mnk(i) for i in range(3)] == list(mma.Shape_MNK)  # type: ignore[operator]  # a tuple that can be called, as in CuTe


def test_volta_runs_four_products_in_a_warp() -> None:
    mma = make_tiled_mma("SM70_8x8x4_F32F16F16F32_NT", Layout((2, 2), (2, 1)))
    assert str(mma.thr_layout_vmnk) == "((4,2),2,2,1):((1,16),8,4,0)"
    assert threads_of(mma) == list(range(32))
    quads = {mma.get_slice(t).thr_vmnk[1:3] for t in (0, 4, 8, 12)}
    assert quads == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_partitions_write_through_to_an_array() -> None:
    mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 1, 1))
    owner = np.full((32, 8), -1)
    for t in range(64):
        part = mma.get_slice(t).partition_C(owner)
        for i in range(part.size()):
            part[i] = t
    instruction = mma.instruction
    for row in range(32):
        for col in range(8):
            lane = instruction.d.holder(row % 16, col).lane
            assert owner[row, col] == lane + 32 * (row // 16)


def test_swizzled_tensors_keep_their_swizzle() -> None:
    mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1))
    swizzled = ComposedLayout(Swizzle(3, 3, 3), 0, Layout((32, 64), (64, 1)))
    where = Tensor(0, swizzled)
    cells = make_identity_tensor((32, 64))
    for t in (0, 5, 77, 127):
        thr = mma.get_slice(t)
        assert list(thr.partition_A(where)) == [swizzled(cell) for cell in thr.partition_A(cells)]


def test_further_modes_pass_through() -> None:
    mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1))
    stages = Tensor(0, Layout((64, 32, 3)))
    part = mma.get_slice(9).partition_A(stages)
    assert part.shape == ((2, 2, 2), 2, 2, 3)
    alone = mma.get_slice(9).partition_A(stages[None, None, 2])
    assert list(part[None, None, None, 2]) == list(alone)


def test_fragments_hold_a_threads_part() -> None:
    mma = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2, 1))
    a = np.arange(64 * 32, dtype=np.float16).reshape(64, 32)
    thr = mma.get_slice(3)
    part, fragment = thr.partition_A(a), thr.partition_fragment_A(a)
    assert fragment.shape == part.shape and fragment.data.dtype == np.float16
    assert len(fragment.data) == part.size()
    fragment[None] = part
    assert list(fragment) == list(part)
    accumulators = thr.partition_fragment_C(np.zeros((64, 32), np.float32))
    assert accumulators.data.dtype == np.float32 and accumulators.shape == partition_shape_C(mma, (64, 32))
    assert partition_fragment_C(mma, (64, 32)).layout == accumulators.layout
    assert partition_shape_A(mma, (64, 32)) == part.shape
    assert partition_shape_B(mma, (64, 32)) == thr.partition_B(Layout((64, 32))).shape
    cells = thr.partition_fragment_A(make_identity_tensor((64, 32)))
    assert cells.shape == part.shape


@pytest.mark.parametrize(
    ("call", "explained"),
    [
        (lambda mma: mma.get_slice(128), "threads 0 to 127"),
        (lambda mma: mma.get_slice(-1), "thread -1 does not take part"),
        (lambda mma: mma.get_slice("0"), "a thread is an integer"),
        (lambda mma: MMA_Atom("SM70_8x8x4_F32F16F16F32_TN").get_slice(5), "of which 8 take part"),
        (lambda mma: mma.get_slice(0).partition_A(Layout((48, 16))), "not a multiple"),
        (lambda mma: mma.get_slice(0).partition_B(Layout((32, 24))), "takes 16 along K"),
        (lambda mma: mma.thrfrg_C(Layout(64)), "takes a tensor of modes (M, N, …)"),
        (lambda mma: mma.get_slice(0).partition_A(3.5), "needs a layout"),
        (lambda mma: mma.make_fragment_A(Tensor(0, Layout((4, 1, 1)))), "with 8 values in mode 0"),
        (lambda mma: mma.tile_size_mnk(3), "modes are 0 (M), 1 (N) and 2 (K)"),
        (lambda mma: mma.with_(7), "ScaleOut is"),
        (lambda mma: make_tiled_mma(7), "an MMA atom or its name"),
        (lambda mma: make_tiled_mma("SM75_U32x4_LDSM_N"), "no MMA operation is named"),
        (lambda mma: MMA_Atom(7), "given by CUTLASS's name"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda mma: make_tiled_mma(mma, (1, 1, 1, 1)), "has modes M, N and K"),
        (lambda mma: make_tiled_mma(mma, Layout((2, 2), (1, 1))), "the same threads"),
        (lambda mma: make_tiled_mma(mma, (2, 2), (24,)), "not a multiple of the 32"),
        (lambda mma: make_tiled_mma(mma, (2, 2), (Layout(32, 2),)), "no permutation"),
        (lambda mma: make_tiled_mma(mma, (2, 2), ("32",)), "an extent, a layout or None"),
        (lambda mma: make_tiled_mma(mma, (2, 2), (32, 16, 16, 1)), "entries for M, N and K"),
    ],
)
def test_wrong_input_is_explained(call: Any, explained: str) -> None:
    with pytest.raises(LanewiseError) as caught:
        call(make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", (2, 2)))
    assert explained in str(caught.value)


def test_printing_is_cutes() -> None:
    assert str(make_tiled_mma("SM80_16x8x8_F32F16F16F32_TN", (2, 1), (None, 16))) == (
        "TiledMMA\n"
        "  ThrLayoutVMNK:  (32,2,1,1):(1,32,0,0)\n"
        "  PermutationMNK: (_,16,_)\n"
        "MMA_Atom\n"
        "  ThrID:      32:1\n"
        "  Shape_MNK:  (16,8,8)\n"
        "  LayoutA_TV: ((4,8),(2,2)):((32,1),(16,8))\n"
        "  LayoutB_TV: ((4,8),2):((16,1),8)\n"
        "  LayoutC_TV: ((4,8),(2,2)):((32,1),(16,8))"
    )
