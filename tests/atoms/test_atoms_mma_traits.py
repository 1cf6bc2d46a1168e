"""MMA atoms against tensor-layouts (an independent table of CuTe's atoms) and against their instructions."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from everything import EVERYTHING, sampled
from lanewise import atoms
from lanewise.atoms import MMA_Atom, MMA_Traits
from lanewise.atoms.names import operations
from lanewise.layout import Layout, Tensor, make_identity_tensor, size

oracle = pytest.importorskip("tensor_layouts.atoms_nv")

#: Names that tensor-layouts made up for operations that CUTLASS names by template arguments; the types in
#: some of them are not those of the instruction, whose layouts they are.
TEMPLATES = {
    "SM120_16x8x32_F32E4M3E4M3F32_TN": "SM120_16x8x32_TN<float_e4m3_t, float_e4m3_t, float>",
    "SM120_16x8x32_F16E4M3E4M3F16_TN": "SM120_16x8x32_TN<float_e4m3_t, float_e4m3_t, half_t>",
    "SM120_16x8x64_F32E4M3E4M3F32_TN": (
        "SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, 32>"
    ),
    "SM120_16x8x64_F16E4M3E4M3F16_TN": (
        "SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>"
    ),
    "SM120_16x8x64_F32E4M3E4M3F32_TN_SPARSE": "SM120_SPARSE_16x8x64_TN<float_e4m3_t, float_e4m3_t, float>",
    "SM120_16x8x64_F16E4M3E4M3F16_TN_SPARSE": "SM120_SPARSE_16x8x64_TN<float_e4m3_t, float_e4m3_t, half_t>",
    "SM120_16x8x128_F32E4M3E4M3F32_TN_SPARSE": (
        "SM120_SPARSE_16x8x128_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, 64>"
    ),
    "SM120_16x8x128_F16E4M3E4M3F16_TN_SPARSE": (
        "SM120_SPARSE_16x8x128_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 32>"
    ),
}
#: Pascal's dot products and the tensor memory of sm_100 are not operations of a warp or a warpgroup.
OUTSIDE = re.compile(r"SM61_.*|SM100_.*")
#: CUTLASS and the oracle after it give B ((4,8),8):((32,1),8), which reaches 160 of its 256 elements.
WRONG_B = "SM80_16x8x32_S32S4S4S32_TN"


def cutlass_name(name: str) -> str:
    """The operation that the oracle means: it leaves _TN out, and puts SPARSE at the end."""
    match = re.fullmatch(r"SM90_(64x\d+x\d+_(\w+?))_SS(_SPARSE)?", name)
    if match is None:
        return TEMPLATES.get(name, name)
    ending = "_SS" if match[2] in ("F16F16F16", "F32F16F16", "F32BF16BF16") else "_SS_TN"
    return ("SPARSE::GMMA_" if match[3] else "GMMA::MMA_") + match[1] + ending


def oracle_atoms() -> Iterator[tuple[str, Any]]:
    for name, value in sorted(vars(oracle).items()):
        if isinstance(value, oracle.MMAAtom):
            yield name, value


def flat(shape: Any) -> list[int]:
    return [leaf for mode in shape for leaf in flat(mode)] if isinstance(shape, tuple) else [shape]


def some_threads(layout: Layout) -> list[int]:
    """All of them; a few where all see the same, or where each has many values."""
    if layout[0].stride == 0:
        return [0, 127]
    return list(range(0, size(layout[0]), 1 if size(layout[1]) <= 16 else 29))


def test_how_many_the_oracle_has() -> None:
    names = [name for name, _ in oracle_atoms()]
    assert len(names) == 124
    assert sum(1 for name in names if not OUTSIDE.fullmatch(name)) == 96


@sampled(16)
@pytest.mark.parametrize(
    ("name", "theirs"),
    [pair for pair in oracle_atoms() if not OUTSIDE.fullmatch(pair[0])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_layouts_equal_the_oracles(name: str, theirs: Any) -> None:
    mma = MMA_Atom(cutlass_name(name))
    assert mma.Shape_MNK == theirs.shape_mnk
    if theirs.thr_id is not None:
        count = size(mma.ThrID)
        assert [mma.ThrID(t) for t in range(count)] == [theirs.thr_id(t) for t in range(count)]
    for which, other in (("A", theirs.a_layout), ("B", theirs.b_layout), ("C", theirs.c_layout)):
        if (name, which) == (WRONG_B, "B"):
            continue
        ours = getattr(mma, f"Layout{which}_TV")
        assert int(np.prod(flat(other.shape))) == size(ours)
        for t in some_threads(ours):
            assert [ours(t, v) for v in range(size(ours[1]))] == [other(t, v) for v in range(size(ours[1]))]


@cache
def signatures() -> list[MMA_Atom]:
    """One atom for every different set of threads and layouts."""
    found: dict[Any, MMA_Atom] = {}
    for operation in operations():
        mma = MMA_Atom(operation)
        found.setdefault((mma.ThrID, mma.LayoutA_TV, mma.LayoutB_TV, mma.LayoutC_TV), mma)
    return list(found.values())


def test_few_layouts_underlie_the_operations() -> None:
    assert 100 < len(signatures()) < 400


def test_a_lone_atom_gives_every_thread_what_its_instruction_says() -> None:
    """(thread, value) of a lone atom's tile against Operand.element, for all lanes of every layout."""
    seen = set()
    for mma in signatures():
        inst = mma.instruction
        m, n, _ = mma.Shape_MNK
        for operand, tv, rows in (
            (inst.a, mma.get_layoutA_TV(), m),
            (inst.b, mma.get_layoutB_TV(), n),
            (inst.d, mma.get_layoutC_TV(), m),
        ):
            key = (tv, operand.shape, operand.transposed, inst.sparse)
            if operand.where != "registers" or key in seen:
                continue
            seen.add(key)
            values = np.arange(size(tv[1]))
            threads = size(mma.ThrID)
            step = 1 if EVERYTHING else 3 if threads <= 32 else 19  # by day some
            for lane in (mma.ThrID(t) for t in range(0, threads, step)):
                if operand is inst.a and inst.sparse:  # a packed element stands for two neighbours along K
                    cells = [(r, 2 * c + i) for v in range(operand.values) for i in range(2)
                             for r, c in (operand.element(lane, v),)]  # fmt: skip
                else:
                    cells = [operand.element(lane, v) for v in range(operand.values)]
                expected = [c + rows * r if operand is inst.b else r + rows * c for r, c in cells]
                assert tv(lane, values).tolist() == expected, (mma.name, operand.name, lane)
    assert len(seen) > 60


@pytest.mark.parametrize(
    "name",
    [
        "SM80_16x8x16_F32F16F16F32_TN",
        "SM80_8x8x4_F64F64F64F64_TN",
        "SM80_16x8x256_S32U1U1S32_TN_XORPOPC",
        "SM75_8x8x16_S32S8S8S32_TN",
        "SM70_8x8x4_F32F16F16F32_NT",
        "SM70_8x8x4_F16F16F16F16_TT",
        "SM90::GMMA::MMA_64x24x16_F32F16F16_RS",
    ],
)
def test_partition_of_an_identity_tensor(name: str) -> None:
    mma = MMA_Atom(name)
    inst = mma.instruction
    m, n, k = mma.Shape_MNK
    for t in range(size(mma.ThrID)):
        lane = mma.ThrID(t)
        thr = mma.get_slice(lane)
        cells = [inst.d.element(lane, v) for v in range(inst.d.values)]
        assert list(thr.partition_C(make_identity_tensor((m, n)))) == cells
        cells = [inst.a.element(lane, v) for v in range(inst.a.values)]
        assert list(thr.partition_A(make_identity_tensor((m, k)))) == cells
        if inst.b.where == "registers":
            cells = [inst.b.element(lane, v)[::-1] for v in range(inst.b.values)]
            assert list(thr.partition_B(make_identity_tensor((n, k)))) == cells


def test_every_layout_covers_its_matrix_evenly() -> None:
    layouts = set()
    for mma in signatures():
        m, n, k = mma.Shape_MNK
        layouts |= {(mma.LayoutA_TV, m * k), (mma.LayoutB_TV, n * k), (mma.LayoutC_TV, m * n)}
    for layout, extent in layouts:
        whole = layout[1] if layout[0].stride == 0 else layout
        counts = np.bincount(whole(np.arange(size(whole))), minlength=extent)
        assert len(counts) == extent and len(set(counts)) == 1, layout


def test_operands_in_shared_memory_are_seen_whole_by_all_threads() -> None:
    mma = MMA_Atom("SM90::GMMA::MMA_64x64x16_F32F16F16_SS")
    assert str(mma.LayoutA_TV) == "(128,(64,16)):(0,(1,64))"
    assert str(mma.LayoutC_TV) == "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))"
    smem = Tensor(0, Layout((128, 64), (64, 1)))
    part = mma.get_slice(77).partition_A(smem)
    assert part.shape == ((64, 16), 2, 4)
    descriptors = mma.get_slice(77).partition_fragment_A(smem)
    assert descriptors.shape == (1, 2, 4)
    assert [descriptors[0, i, j] for i in range(2) for j in range(4)] == [
        part[(0, 0), i, j] for i in range(2) for j in range(4)
    ]


def test_cutes_names_of_layouts_and_of_traits() -> None:
    """The layouts as CuTe's headers define them."""
    assert atoms.SM80_8x4 == Layout(((4, 8), 1), ((8, 1), 0))
    assert atoms.SM80_8x8_Row == Layout(((4, 8), 2), ((16, 1), 8))
    assert atoms.SM80_8x16_Row == Layout(((4, 8), 4), ((32, 1), 8))
    assert atoms.SM80_16x8_Row == Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    traits = MMA_Traits("SM80_16x8x16_F32F16F16F32_TN")
    assert traits.MMA_Op == "SM80_16x8x16_F32F16F16F32_TN"
    assert (traits.ElementAVal, traits.ElementCVal) == (traits.ValTypeA, traits.ValTypeC)
    assert (traits.ElementBVal, traits.ElementDVal) == (traits.ValTypeB, traits.ValTypeD)
