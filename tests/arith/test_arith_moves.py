"""ldmatrix, stmatrix and movmatrix on arrays, held against the kernels that execute them on the machine."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import LanewiseError

RNG = np.random.default_rng(5)
KERNEL = """
.version 8.6
.target {arch}
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 places, .param .u64 registers) {{
    .reg .b64 %rd<5>; .reg .b32 %r<12>; .reg .pred %p;
    .shared .align 16 .b8 memory[2048];
    ld.param.u64 %rd0, [image]; ld.param.u64 %rd1, [places]; ld.param.u64 %rd2, [registers];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, memory;
    mov.u32 %r2, 0;
copy:
    add.u32 %r4, %r1, %r2; cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd0, %rd3;
    ld.global.b32 %r3, [%rd3]; st.shared.b32 [%r4], %r3;
    add.u32 %r2, %r2, 4; setp.lt.u32 %p, %r2, 2048; @%p bra copy;
    bar.sync 0;
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd1, %rd3; ld.global.b32 %r3, [%rd3]; add.u32 %r3, %r3, %r1;
    mul.wide.u32 %rd3, %r0, {bytes}; add.u64 %rd3, %rd2, %rd3;
    {text} {{{registers}}}, [%r3];
    {stores}
    ret;
}}
"""


@sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        *(
            f"ldmatrix.sync.aligned.m8n8.x{num}{trans}.shared.b16"
            for num in (1, 2, 4)
            for trans in ("", ".trans")
        ),
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8",
    ],
)
def test_loads_give_what_the_machine_gives(text: str) -> None:
    load = lw.instruction(text)
    count = load.d.registers
    image = RNG.integers(0, 256, 2048, np.uint8)
    places = (16 * RNG.integers(0, 128, 32)).astype(np.int32)
    found = np.zeros((32, count), np.uint32)
    names = [f"%r{4 + number}" for number in range(count)]
    stores = "\n".join(f"st.global.b32 [%rd3+{4 * number}], {name};" for number, name in enumerate(names))
    arch = "sm_80" if "b16" in text else "sm_100a"
    source = KERNEL.format(arch=arch, text=text, registers=", ".join(names), stores=stores, bytes=4 * count)
    lw.load(source)["k"][1, 32](image, places, found)
    assert np.array_equal(load(image, places), found)
    assert np.array_equal(load(image, places[: load.row_addresses.rows]), found)


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_a_store_undoes_a_load(num: int, trans: str) -> None:
    image = RNG.integers(0, 1 << 16, (8 * num, 8), np.uint16)
    places = 16 * RNG.permutation(8 * num)
    registers = lw.instruction(f"ldmatrix.sync.aligned.m8n8.x{num}{trans}.shared.b16")(image, places)
    copy = np.zeros_like(image)
    store = lw.instruction(f"stmatrix.sync.aligned.m8n8.x{num}{trans}.shared.b16")
    assert store(copy, places, registers) is copy and np.array_equal(copy, image)


def test_movmatrix_transposes() -> None:
    move = lw.instruction("movmatrix")
    tile = RNG.integers(0, 1 << 16, (8, 8), np.uint16)
    load = lw.instruction("ldmatrix x1")
    rows = 16 * np.arange(8)
    assert np.array_equal(move(load(tile, rows)), load(np.ascontiguousarray(tile.T), rows))


def test_copy_atoms_are_called_alike() -> None:
    tile = RNG.integers(0, 1 << 16, (32, 8), np.uint16)
    rows = 16 * np.arange(32)
    expected = lw.instruction("ldmatrix x4")(tile, rows)
    assert np.array_equal(lw.atom("Copy_Atom<SM75_U32x4_LDSM_N, half_t>")(tile, rows), expected)
    with pytest.raises(LanewiseError, match="copies the values of one thread"):
        lw.atom("SM80_CP_ASYNC_CACHEALWAYS")(tile, rows)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ((np.zeros(64, np.uint16),), r"takes \(shared, addresses\); 1 were given"),
        ((np.zeros(64, np.uint16), 16 * np.arange(8) + 2), "address 2 of lane 0 is not a multiple of 16"),
        (
            (np.zeros(64, np.uint16), 16 * np.arange(1, 9)),
            "lane 7 points to byte 128 of an array of 128 bytes",
        ),
        ((np.zeros(64, np.uint16), np.arange(4)), "an address for each of 8 lanes"),
        (([1, 2], 16 * np.arange(8)), "a NumPy array in one piece"),
    ],
)
def test_what_is_wrong_is_said(operands: tuple[Any, ...], message: str) -> None:
    with pytest.raises(LanewiseError, match=message):
        lw.instruction("ldmatrix x1")(*operands)


def test_movmatrix_of_a_matrix_and_of_one_register_for_each_lane() -> None:
    transpose = lw.instruction("movmatrix")
    matrix = np.arange(64, dtype=np.float16).reshape(8, 8)
    assert np.array_equal(transpose(matrix), matrix.T)
    registers = transpose.a.pack(matrix.view(np.uint16))
    assert np.array_equal(transpose(registers[:, 0]), transpose.a.pack(matrix.T.copy().view(np.uint16))[:, 0])


def test_products_of_torch_tensors_of_types_that_numpy_has_not() -> None:
    torch = pytest.importorskip("torch")
    mma = lw.instruction("m16n8k16 bf16")
    a, b = torch.ones(16, 16, dtype=torch.bfloat16), torch.ones(16, 8, dtype=torch.bfloat16)
    assert (mma(a, b, arch="H100") == 16).all()
    mma = lw.instruction("m16n8k32 f32 e4m3")
    a, b = torch.ones(16, 32).to(torch.float8_e4m3fn), torch.ones(32, 8).to(torch.float8_e4m3fn)
    assert (mma(a, b, arch="H100") == 32).all()
