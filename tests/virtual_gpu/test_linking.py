"""Links of several PTX texts: what one text declares as external, another one defines."""

import ctypes
import itertools

import numpy as np
import pytest

import lanewise as lw
from lanewise.virtual_gpu.devices import find_device
from lanewise.virtual_gpu.driver import Driver
from lanewise.virtual_gpu.driver.linking import linked

HEAD = ".version {version}\n.target sm_80\n.address_size 64\n"
#: Writes helper(5) + outside(7) + the variable `offset`; `helper` is a function of the text's own.
CALLER = (
    HEAD.format(version="8.0")
    + """
.file 1 "caller.cu"
.extern .func (.param .b32 result) outside (.param .b32 x);
.extern .global .align 4 .u32 offset;
.global .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};
.func (.param .b32 result) helper (.param .b32 x) {
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.b32 %r0, [x];
    mov.u64 %rd0, table;
    ld.global.u32 %r1, [%rd0+4];
    add.u32 %r2, %r0, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.visible .entry caller(.param .u64 out) {
    .reg .b32 %r<6>; .reg .b64 %rd<3>;
    .loc 1 12 3
    ld.param.u64 %rd0, [out];
    { .param .b32 p; .param .b32 q; mov.u32 %r0, 5; st.param.b32 [p], %r0;
      call (q), helper, (p); ld.param.b32 %r1, [q]; }
    { .param .b32 p; .param .b32 q; mov.u32 %r0, 7; st.param.b32 [p], %r0;
      call (q), outside, (p); ld.param.b32 %r2, [q]; }
    add.u32 %r3, %r1, %r2;
    mov.u64 %rd1, offset;
    ld.global.u32 %r4, [%rd1];
    add.u32 %r5, %r3, %r4;
    st.global.u32 [%rd0], %r5;
    ret;
}
"""
)
#: Defines `outside` by a `helper` and a `table` of its own, which are not those of the caller.
CALLED = (
    HEAD.format(version="8.3")
    + """
.file 1 "called.cu"
.global .align 4 .b8 table[4] = {100, 0, 0, 0};
.visible .global .align 4 .u32 offset = 1000;
.func (.param .b32 result) helper (.param .b32 x) {
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.b32 %r0, [x];
    mov.u64 %rd0, table;
    ld.global.u32 %r1, [%rd0];
    mul.lo.u32 %r2, %r0, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.visible .func (.param .b32 result) outside (.param .b32 x) {
    .reg .b32 %r<3>;
    .loc 1 33 3
    ld.param.b32 %r0, [x];
    { .param .b32 p; .param .b32 q; st.param.b32 [p], %r0; call (q), helper, (p); ld.param.b32 %r1, [q]; }
    st.param.b32 [result], %r1;
    ret;
}
"""
)
EXPECTED = (5 + 2) + 7 * 100 + 1000


@pytest.mark.parametrize("texts", list(itertools.permutations([CALLER, CALLED])))
def test_texts_are_linked_in_any_order_and_keep_their_own_names(texts: tuple[str, str]) -> None:
    text = linked(texts)
    assert text.count(".version") == 1 and ".version 8.3" in text
    out = np.zeros(1, np.uint32)
    lw.load(text)["caller"][1, 1](out)
    assert out[0] == EXPECTED


def test_one_text_is_left_as_it_is() -> None:
    assert linked([CALLED]) == CALLED


def test_the_drivers_linker_takes_several_texts() -> None:
    driver = Driver(find_device("A100"))
    state = driver.cuLinkCreate_v2(0, 0, 0)
    for text in (CALLER, CALLED):
        raw = ctypes.create_string_buffer(text.encode())
        driver.cuLinkAddData_v2(state, 1, ctypes.addressof(raw), len(raw), "text", 0, 0, 0)
    image, _ = driver.cuLinkComplete(state)
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(image), "caller")
    memory = ctypes.c_uint64(driver.cuMemAlloc_v2(4))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(parameters), 0)
    assert ctypes.c_uint32.from_address(memory.value).value == EXPECTED
    driver.cuLinkDestroy(state)
