"""Laws of the catalogue: texts, fragments, packing, metadata and scales, each over many instructions."""

import copy
import pickle
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everything import EVERYTHING, examples, some_of
from isa.probe import TYPE_NAMES, operands, shuffled
from lanewise.formats import FORMATS
from lanewise.isa import FAMILIES, Instruction, Metadata, Operand, SelectedOperand, instruction, instructions

F16 = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
EVERY = instructions(withdrawn=True)
CUTLASS_NAME = re.compile(
    r"SM(?:70|75|80|89|90)_(\d+)x(\d+)x(\d+)_((?:(?:F|BF|TF|S|U|E\dM)\d+)+)_([TNS][TNS])(?:_XORPOPC)?"
)
some_instruction = st.sampled_from(FAMILIES).flatmap(lambda name: st.sampled_from(instructions(family=name)))


def choice(found: Instruction) -> dict[str, Any]:
    """What `instruction` is told beside the text."""
    if found.a_source:
        return {"a_source": found.a_source}
    return {"stride": found.stride} if found.family in ("wmma.load", "wmma.store") else {}


def one_of_each_layout() -> list[Operand]:
    """Operands in registers, one of those that share all but their instruction; wgmma's N thinned out."""
    found: dict[Operand, None] = {}
    for each in EVERY:
        if each.threads == 32 or each.n in (8, 24, 256):
            found.update(dict.fromkeys(each.operands.values()))
    return [operand for operand in found if operand.where == "registers"]


LAYOUTS = one_of_each_layout()
PLAIN = [operand for operand in LAYOUTS if not isinstance(operand, SelectedOperand)]
METADATA = [operand for operand in LAYOUTS if isinstance(operand, Metadata)]
SCALES = [each for each in LAYOUTS if isinstance(each, SelectedOperand) and not isinstance(each, Metadata)]


def random_bits(operand: Operand, *batch: int) -> np.ndarray:
    """Raw words of random elements, in the shape that `pack` takes."""
    chance = np.random.default_rng(operand.rows * 1000 + operand.cols)
    shape = (*batch, *operand.matrix_shape)
    return chance.integers(0, 1 << operand.format.bits, shape, dtype=np.uint64).astype(
        operand.format.word_dtype
    )


# texts -----------------------------------------------------------------------------------------------


@given(some_instruction, st.randoms(use_true_random=False))
@settings(max_examples=examples(400), deadline=None)
def test_modifiers_in_any_order(found: Instruction, chance: Any) -> None:
    read = instruction(shuffled(found.text, chance), **choice(found))
    assert read == found
    assert str(read) == found.text


def test_canonical_text_is_stable() -> None:
    for found in EVERY:
        read = instruction(found.text, **choice(found))
        assert (read, str(read), hash(read)) == (found, found.text, hash(found))


def test_documented_order_of_modifiers() -> None:
    """The order of the PTX ISA's own syntax and examples."""
    written = (
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e5m2.f32.ue8m0"
    )
    assert str(instruction(written)) == (
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0"
    )
    for text in (
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
        "wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
        "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32.satfinite",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.u8.s8.satfinite",
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc",
    ):
        assert str(instruction(text)) == text


def test_default_scale_vector_is_told_but_not_written() -> None:
    short = instruction("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
    assert (short.scale_vec, "scale_vec" in str(short)) == (2, False)


def test_instructions_are_values() -> None:
    for found in (F16, instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")):
        assert len(found.operands) == 4
        found.d.holder(0, 0)
        for twin in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            assert (twin, hash(twin), twin.archs) == (found, hash(found), found.archs)
            assert twin.operands == found.operands
        assert pickle.loads(pickle.dumps(found.d)) == found.d
    sources = [instruction(found.text, a_source=source) for source in ("registers", "descriptor")]
    assert sources[0] != sources[1]


# lists -----------------------------------------------------------------------------------------------


def test_lists_are_what_their_filters_say() -> None:
    every = instructions()
    assert instructions("sm_86") == [each for each in every if "sm_86" in each.archs]
    assert instructions(a="e4m3", d="f16") == [
        each
        for each in every
        if each.multiplies and (each.a.format.name, each.d.format.name) == ("e4m3", "f16")
    ]
    assert instructions(b=FORMATS["tf32"], c="f32") == instructions(b="tf32", c="f32") != []  # type: ignore[arg-type]  # a Format stands for its name
    assert instructions(sparse=True) == [each for each in every if "metadata" in each.operands]
    assert instructions(kind="mxf4") == [each for each in every if "kind::mxf4." in each.text]
    assert instructions(shape=(16, 8, 32)) == instructions(shape="m16n8k32") != []
    assert {each.n for each in instructions(shape="m64n*k16", sparse=False)} == set(range(8, 257, 8))
    assert all(each.space == "" or each.family != "movmatrix" for each in every)


@given(some_instruction)
@settings(max_examples=examples(150), deadline=None)
def test_shapes_of_operands(found: Instruction) -> None:
    """A is (M, K), packed to (M, K/2) if sparse; B is (K, N); C and D are (M, N)."""
    if not found.multiplies:
        return
    m, n, k = found.shape
    assert (m, n, k) == (found.m, found.n, found.k)
    assert (found.a.shape, found.b.shape) == ((m, k // 2 if found.sparse else k), (k, n))
    assert found.c.shape == found.d.shape == (m, n)
    if found.scale_type:
        assert (found.scale_a.shape, found.scale_b.shape) == ((m, found.scale_vec), (found.scale_vec, n))
    if found.sparse:
        assert found.metadata.columns(np.zeros(found.metadata.indices_shape, int)).shape == found.a.shape


# fragments -------------------------------------------------------------------------------------------


def test_the_sample_has_every_kind_of_layout() -> None:
    assert len(PLAIN) > 100
    assert len(METADATA) > 10
    assert len(SCALES) == 6
    assert {operand.register_bits for operand in PLAIN} == {32, 64}
    assert {operand.products for operand in PLAIN} == {1, 4}
    assert {operand.shift for operand in PLAIN} == {0, 2}


def test_holders_and_element_are_inverse() -> None:
    for operand in some_of(3, LAYOUTS):
        if operand.threads == 128 and operand.cols > 24:
            continue  # the same rule as for fewer columns, and the facts cover it
        places = 0
        for q, row, col in product(range(operand.products), range(operand.rows), range(operand.cols)):
            for lane, register, slot in operand.holders(row, col, q):
                value = register * operand.slots + slot
                assert operand.element(lane, value) == (row, col)
                assert operand.cell(lane, value) == (q, row, col)
                places += 1
        assert (
            places == operand.threads * operand.values == operand.threads * operand.registers * operand.slots
        )


def test_layout_is_cutes_map() -> None:
    """`layout` maps (thread, value) to the column-major index of (M, K), (N, K), (M, N)."""
    for operand in some_of(3, PLAIN):
        for thread, value in product(range(0, operand.layout[0].size(), 3), range(operand.values)):
            lane = thread if operand.thr_id is None else operand.thr_id(thread)
            row, col = operand.element(lane, value)
            place = col + operand.cols * row if operand.transposed else row + operand.rows * col
            assert operand.layout(thread, value) == place


def test_layouts_agree_with_cutlass() -> None:
    """CUTLASS's traits as another project transcribed them (tensor-layouts on PyPI)."""
    atoms_nv = pytest.importorskip("tensor_layouts.atoms_nv")
    compared, not_one_to_one = 0, []
    for name in dir(atoms_nv):
        match = CUTLASS_NAME.fullmatch(name)
        if match is None:
            continue
        m, n, k, types, majors = match.groups()
        shape, named = f"m{m}n{n}k{k}", re.sub(r"(?<=[0-9])(?=[A-Z])", ".", types).lower().replace("u1", "b1")
        named = re.sub(r"(e\d)\.(m\d)", r"\1\2", named)
        if majors == "SS":
            found = instruction(f"wgmma.mma_async.sync.aligned.{shape}.{named}")
        else:
            layouts = ".".join("row" if major == "T" else "col" for major in majors)
            end = ".xor.popc" if "b1" in named else ""
            found = instruction(f"mma.sync.aligned.{shape}.{layouts}.{named}{end}")
        atom = getattr(atoms_nv, name)
        for mine, theirs in ((found.a, atom.a_layout), (found.b, atom.b_layout), (found.d, atom.c_layout)):
            threads, values = mine.layout[0].size(), mine.layout[1].size()
            if threads <= 32:
                image = {theirs(thread, value) for thread in range(threads) for value in range(values)}
                if len(image) < mine.rows * mine.cols:
                    not_one_to_one.append(name)
                    continue
            step = 17 if threads > 32 else 1 if EVERYTHING else 3
            for thread, value in product(range(0, threads, step), range(0, values, step)):
                assert mine.layout(thread, value) == theirs(thread, value), name
        compared += 1
    assert compared == 76
    assert not_one_to_one == ["SM80_16x8x32_S32S4S4S32_TN"]  # B, in CUTLASS too: lanes share elements


# packing ---------------------------------------------------------------------------------------------


def test_pack_puts_elements_where_holders_say() -> None:
    for operand in some_of(3, PLAIN):
        bits = random_bits(operand)
        words = operand.pack(operand.format.from_bits(bits))
        assert words.shape == (operand.threads, operand.registers)
        assert words.dtype == f"uint{operand.register_bits}"
        rebuilt = np.zeros_like(words)
        per_product = bits.reshape(operand.products, *operand.shape)
        for lane, value in product(range(operand.threads), range(operand.values)):
            register, slot = divmod(value, operand.slots)
            raw = int(per_product[operand.cell(lane, value)])
            rebuilt[lane, register] |= words.dtype.type(raw << (slot * operand.slot_bits + operand.shift))
        assert np.array_equal(words, rebuilt), operand.title


def test_unpack_undoes_pack_over_batches() -> None:
    for operand in PLAIN:
        bits = random_bits(operand, 2, 3)
        matrices = operand.format.from_bits(bits)
        words = operand.pack(matrices)
        assert words.shape == (2, 3, operand.threads, operand.registers)
        assert np.array_equal(words[1, 2], operand.pack(matrices[1, 2]))
        back = operand.unpack(words)
        assert (back.dtype, back.shape) == (operand.format.dtype, matrices.shape)
        assert np.array_equal(operand.format.to_bits(back), bits)
        signed = operand.unpack(words.view(words.dtype.str.replace("u", "i")))
        assert np.array_equal(operand.format.to_bits(signed), bits)
        swapped = operand.unpack(words.astype(words.dtype.newbyteorder(">")))
        assert np.array_equal(operand.format.to_bits(swapped), bits)
        empty = operand.pack(matrices[:0])
        assert operand.unpack(empty).shape == (0, 3, *operand.matrix_shape)


def test_four_products_a_warp() -> None:
    """m8n8k4 on f16: each quad pair of lanes has its own product."""
    volta = instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32")
    assert (volta.products, F16.products) == (4, 1)
    assert volta.a.matrix_shape == (4, 8, 4)
    pairs = {q: set(range(4 * q, 4 * q + 4)) | set(range(16 + 4 * q, 20 + 4 * q)) for q in range(4)}
    for q, operand in product(range(4), volta.operands.values()):
        lanes = {
            holder.lane
            for row, col in product(range(operand.rows), range(operand.cols))
            for holder in operand.holders(row, col, product=q)
        }
        assert lanes == pairs[q]


def test_narrow_floats_in_bytes() -> None:
    """In kind f8f6f4 and mxf8f6f4 e2m1 sits in bits 5..2 of its byte, 6-bit formats in bits 5..0."""
    text = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{}.{}.f32"
    for a, b in product(("e4m3", "e3m2", "e2m1"), repeat=2):
        mma = instruction(text.format(a, b))
        for operand, mask in ((mma.a, a), (mma.b, b)):
            ones = {"e4m3": 0xFF, "e3m2": 0x3F, "e2m1": 0x3C}[mask]
            full = np.full(operand.shape, (1 << operand.format.bits) - 1, operand.format.word_dtype)
            assert np.all(operand.pack(operand.format.from_bits(full)) == ones * 0x01010101)
    dense = instruction("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
    assert (dense.a.slots, dense.a.shift, dense.a.packing) == (8, 0, "4 × .b32, 8 e2m1 in each")


def test_wmma_f16_holds_some_elements_twice() -> None:
    """f16 fragments have 8 registers whatever the shape; B of m32n8k16 needs only 2 of them."""
    load = instruction("wmma.load.b.sync.aligned.col.m32n8k16.f16")
    b = load.operands["b"]
    assert (b.registers, b.rows * b.cols * b.format.bits // 1024) == (8, 2)
    assert all(len(b.holders(row, col)) == 4 for row, col in product(range(16), range(8)))
    bits = random_bits(b)
    words = b.pack(b.format.from_bits(bits))
    assert np.array_equal(words[:, :2], words[:, 2:4])


def test_which_elements_lanes_hold() -> None:
    """Published register contents: the value of an element is its index in memory."""

    def held(operand: Operand, lane: int, width: int, by_column: bool) -> list[list[int]]:
        places = [operand.element(lane, value) for value in range(operand.values)]
        flat = [col * width + row if by_column else row * width + col for row, col in places]
        return [flat[i : i + operand.slots] for i in range(0, len(flat), operand.slots)]

    assert held(F16.a, 0, 16, False) == [[0, 1], [128, 129], [8, 9], [136, 137]]
    assert held(F16.a, 1, 16, False) == [[2, 3], [130, 131], [10, 11], [138, 139]]
    assert held(F16.b, 0, 16, True) == [[0, 1], [8, 9]]
    assert held(F16.b, 1, 16, True) == [[2, 3], [10, 11]]


def test_ldmatrix_with_and_without_trans() -> None:
    """B stored row-major, 16×8, element k + 16 n: .trans gives what mma wants, without it something else."""
    memory = (np.arange(16)[:, None] + 16 * np.arange(8)).astype(np.uint16)
    expected = {"": [[0, 16], [8, 24]], ".trans": [[0, 1], [8, 9]]}
    for trans, registers in expected.items():
        load = instruction(f"ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16")
        words = load.d.pack(memory)
        assert [[int(word) & 0xFFFF, int(word) >> 16] for word in words[0]] == registers
        assert [load.row_addresses.lane(row) for row in (0, 7, 15)] == [0, 7, 15]
    transposed = instruction("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16").d
    assert np.array_equal(transposed.pack(memory), F16.b.pack(memory.view(np.float16)))
    normal = instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16").d
    a = np.arange(256, dtype=np.uint16).reshape(16, 16)
    tiles = np.concatenate([a[:8, :8], a[8:, :8], a[:8, 8:], a[8:, 8:]])
    assert np.array_equal(normal.pack(tiles), F16.a.pack(a.view(np.float16)))


# metadata --------------------------------------------------------------------------------------------


def random_indices(metadata: Metadata, *batch: int) -> np.ndarray:
    chance = np.random.default_rng(metadata.cols)
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    groups = (*batch, metadata.rows, metadata.cols)
    if metadata.per_code == 1:
        return chance.integers(0, 2, groups).astype(np.uint8)
    return pairs[chance.integers(0, 6, groups)].reshape(*batch, *metadata.indices_shape).astype(np.uint8)


def test_metadata_codes() -> None:
    tf32 = instruction("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32").metadata
    f16 = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").metadata
    assert sorted(set(tf32.codes(random_indices(tf32)).ravel().tolist())) == [0b0100, 0b1110]
    valid = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
    assert set(f16.codes(random_indices(f16)).ravel().tolist()) == valid
    assert f16.codes([[1, 3] * 4] * 16)[0, 0] == 0b1101


def test_metadata_round_trips_under_every_selector() -> None:
    for metadata in METADATA:
        indices = random_indices(metadata, 2)
        chance = np.random.default_rng(7)
        for selector in range(metadata.lane_choices):
            words = metadata.pack(indices, thread_id=selector)
            assert np.array_equal(metadata.unpack(words, thread_id=selector), indices)
            # What the selector does not choose may hold anything.
            noise = chance.integers(0, 1 << 32, words.shape, dtype=np.uint32)
            read = [metadata.selected(lane, 0, selector) for lane in range(metadata.threads)]
            mixed = np.where(np.array(read)[:, None], words, noise)
            assert np.array_equal(metadata.unpack(mixed, thread_id=selector), indices)
            assert sum(read) * metadata.lane_choices == metadata.threads


def test_metadata_lands_where_holders_say() -> None:
    for metadata in METADATA:
        indices = random_indices(metadata)
        codes = metadata.codes(indices)
        for selector in range(metadata.lane_choices):
            words = metadata.pack(indices, thread_id=selector)
            for row, group in product(range(metadata.rows), range(metadata.cols)):
                ((lane, register, slot),) = metadata.holders(row, group, thread_id=selector)
                assert int(words[lane, register]) >> (4 * slot) & 15 == codes[row, group]


def test_compress_and_expand() -> None:
    for metadata in METADATA:
        indices = random_indices(metadata, 3)
        columns = metadata.columns(indices)
        packed = np.random.default_rng(1).integers(1, 100, columns.shape).astype(np.int32)
        dense = metadata.expand(packed, indices)
        assert dense.shape == (3, metadata.rows, metadata.cols * metadata.group)
        assert np.count_nonzero(dense) == packed.size == dense.size // 2
        again, places = metadata.compress(dense)
        assert np.array_equal(again, packed)
        assert np.array_equal(places, indices)
        thinner = dense * (np.random.default_rng(2).random(dense.shape) < 0.5)
        assert np.array_equal(metadata.expand(*metadata.compress(thinner)), thinner)


def test_sparsity_of_four_bit_elements_is_by_pairs() -> None:
    metadata = instruction("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").metadata
    assert (metadata.group, metadata.run, metadata.per_code) == (8, 2, 2)
    assert metadata.columns([[1, 2] * 8] * 16)[0, :8].tolist() == [2, 3, 4, 5, 10, 11, 12, 13]


# scales ----------------------------------------------------------------------------------------------


def test_scales_round_trip_under_every_selector() -> None:
    for scale in SCALES:
        bits = random_bits(scale, 2)
        matrices = scale.format.from_bits(bits)
        chance = np.random.default_rng(3)
        for thread, byte in product(range(scale.lane_choices), range(0, 4, scale.byte_step)):
            words = scale.pack(matrices, thread_id=thread, byte_id=byte)
            assert words.shape == (2, 32, 1)
            back = scale.unpack(words, thread_id=thread, byte_id=byte)
            assert np.array_equal(scale.format.to_bits(back), bits)
            bytes_ = chance.integers(0, 256, (2, 32, 4), dtype=np.uint8)
            for lane, value in product(range(32), range(4)):
                if scale.selected(lane, value, thread, byte):
                    bytes_[:, lane, value] = (words[:, lane, 0] >> np.uint32(8 * value)) & np.uint32(255)
            mixed = bytes_.view("<u4")
            again = scale.unpack(mixed, thread_id=thread, byte_id=byte)
            assert np.array_equal(scale.format.to_bits(again), bits)


# statements ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "{} {{%f0,%f1,%f2,%f3}},{{%r0,%r1,%r2,%r3}},{{%r4,%r5}},{{%f0,%f1,%f2,%f3}};",
        "@!%p3  {}{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%10, %11, %12, %13}};",
        "@p\t{}\n\t{{d, _, d, d}},\n\t{{a, a, a, a}},\n\t{{b, b}}, {{0f0, 0f0, 0f0, 0f0}}; // {{a}};",
        "  {} ; ",
    ],
)
def test_statements(statement: str) -> None:
    assert instruction(statement.format(F16.text)) == F16


def test_operands_decide_what_the_text_leaves_open() -> None:
    text = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    assert instruction(f"{text} {{d0,d1,d2,d3}}, {{a0,a1,a2,a3}}, bd, p, 1, 1, 0;").a_source == "registers"
    assert instruction(f"{text} {{d0,d1,d2,d3}}, ad, bd, p, 1, 1, 0, 1;").a_source == "descriptor"
    assert instruction(text).a_source == "descriptor"
    load = "wmma.load.c.sync.aligned.row.m16n16k16.f16"
    assert instruction(f"{load} {{a,b,c,d}}, [p+16], 32;").stride is True
    assert instruction(f"{load} {{a,b,c,d}}, [p];").stride is False
    assert instruction(load).stride is True


@given(some_instruction)
@settings(max_examples=examples(200), deadline=None)
def test_statements_of_every_family(found: Instruction) -> None:
    written, _ = operands(found.text, found.a_source, found.stride)
    assert instruction(f"{found.text} {written};") == found


def test_type_names_are_the_catalogues() -> None:
    used = {name for found in EVERY for name in found.types}
    assert used == set(TYPE_NAMES)


def test_formulas_give_the_element_of_every_lane_and_value() -> None:
    told = 0
    for operand in one_of_each_layout():
        if operand.formulas is None or isinstance(operand, SelectedOperand | Metadata):
            continue
        told += 1
        row, column = (compile(text.replace("/", "//"), text, "eval") for text in operand.formulas)
        for lane in range(operand.threads):
            for value in range(0, operand.values, max(1, operand.values // 8)):
                at = {"lane": lane, "value": value}
                assert (eval(row, at), eval(column, at)) == operand.element(lane, value), operand.title
    assert told > 40
