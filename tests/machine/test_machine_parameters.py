"""Parameters of a kernel: read whole or in part, under guards and in one branch only, never beyond them."""

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine import KernelFault

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .s8 small, .param .align 8 .b8 pair[8], .param .f64 real) {
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    .reg .pred %p;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %d0, %r0, 16, %d0;
    setp.lt.u32 %p, %r0, 10;
    mov.u32 %r1, 7;
    mov.u32 %r2, 8;
    mov.u32 %r3, 9;
"""
TAIL = """
    st.global.v4.u32 [%d0], {%r1, %r2, %r3, %r0};
    ret;
}"""
PAIR = np.array([0x11223344, 0x55667788], np.uint32)


def run(body: str, small: int = -3, checking: bool = False) -> np.ndarray:
    out = np.zeros((64, 4), np.int32)
    kernel = lw.load(HEAD + body + TAIL)["k"][1, 64]
    arguments = (out, small, PAIR.tobytes(), 1.5)
    if checking:
        assert lw.check(kernel, *arguments).ok
    else:
        kernel(*arguments)
    return out


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("ld.param.s8 %r1, [small];", (-3, 8, 9), (-3, 8, 9)),
        ("ld.param.u8 %r1, [small];", (253, 8, 9), (253, 8, 9)),
        ("@%p ld.param.s8 %r1, [small];", (-3, 8, 9), (7, 8, 9)),
        ("@!%p ld.param.v2.u32 {%r2, %r3}, [pair];", (7, 8, 9), (7, 0x11223344, 0x55667788)),
        ("ld.param.v2.u32 {_, %r3}, [pair];", (7, 8, 0x55667788), (7, 8, 0x55667788)),
        ("ld.param.u16 %r2, [pair+2];", (7, 0x1122, 9), (7, 0x1122, 9)),
        ("ld.param.u64 %d1, [real]; shr.u64 %d1, %d1, 32; cvt.u32.u64 %r1, %d1;", (0x3FF80000, 8, 9), None),
        ("@%p bra on;\n ld.param.u32 %r1, [pair+4];\non:", (7, 8, 9), (0x55667788, 8, 9)),
    ],
)
def test_lanes_that_load_have_the_parameter(
    body: str, low: tuple[int, ...], high: tuple[int, ...] | None
) -> None:
    """Lanes below 10 (`low`) and the others, which a guard or a branch tells apart."""
    lanes = np.arange(64)
    expected = np.where(lanes[:, None] < 10, low, low if high is None else high)
    assert (run(body) == np.column_stack([expected, lanes])).all()
    if "bra" in body:  # checked code has it in another way
        assert (run(body, checking=True) == np.column_stack([expected, lanes])).all()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("ld.param.u32 %r1, [real+8];", "out of bounds"),
        ("ld.param.u64 %d1, [pair+4];", "misaligned"),
        ("ld.param.v2.u32 {%r1, %r2}, [pair+4];", "misaligned"),
    ],
)
def test_beyond_the_parameters_is_a_fault(body: str, kind: str) -> None:
    with pytest.raises(KernelFault) as caught:
        run(body)
    assert caught.value.kind == kind
    assert caught.value.line == 15
