"""What numba-cuda links: the barrier of a grid, and which PTX is complete."""

import numpy as np
import pytest

import lanewise as lw
from lanewise.virtual_gpu.driver.linking import linked
from lanewise.virtual_gpu.frameworks import numba_cuda

#: Every block writes its number, waits for all others, and reads what the next block has written; twice.
ROUNDS = """
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry rounds(.param .u64 written, .param .u64 seen) {
    .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p;
    ld.param.u64 %rd0, [written];
    ld.param.u64 %rd1, [seen];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %nctaid.x;
    mov.u32 %r2, 0;
    mov.u32 %r3, 1;
    { .param .b32 s; .param .b64 h;
      st.param.b32 [s], %r3;
      call.uni (h), cudaCGGetIntrinsicHandle, (s);
      ld.param.b64 %rd2, [h]; }
again:
    mad.lo.u32 %r4, %r2, 100, %r0;
    mul.wide.u32 %rd3, %r0, 4;
    add.u64 %rd3, %rd3, %rd0;
    st.global.u32 [%rd3], %r4;
    { .param .b64 h; .param .b32 f; .param .b32 s;
      st.param.b64 [h], %rd2; st.param.b32 [f], %r2;
      call.uni (s), cudaCGSynchronize, (h, f); }
    add.u32 %r5, %r0, 1;
    rem.u32 %r5, %r5, %r1;
    mul.wide.u32 %rd4, %r5, 4;
    add.u64 %rd4, %rd4, %rd0;
    ld.global.u32 %r6, [%rd4];
    mad.lo.u32 %r7, %r2, %r1, %r0;
    mul.wide.u32 %rd5, %r7, 4;
    add.u64 %rd5, %rd5, %rd1;
    st.global.u32 [%rd5], %r6;
    { .param .b64 h; .param .b32 f; .param .b32 s;
      st.param.b64 [h], %rd2; st.param.b32 [f], %r2;
      call.uni (s), cudaCGSynchronize, (h, f); }
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, 2;
    @%p bra again;
    ret;
}"""


@pytest.mark.parametrize("blocks", [1, 2, 7])
@pytest.mark.parametrize("threads", [1, 96])
def test_blocks_see_what_others_wrote_before_the_barrier(blocks: int, threads: int) -> None:
    kernel = lw.load(linked([numba_cuda._GRID_BARRIER, ROUNDS]))["rounds"]
    written, seen = np.zeros(blocks, np.uint32), np.zeros((2, blocks), np.uint32)
    for _ in range(2):  # the counter goes on from where the first launch left it
        kernel[blocks, threads](written, seen)
        expected = (np.arange(blocks) + 1) % blocks + 100 * np.arange(2)[:, None]
        np.testing.assert_array_equal(seen, expected)


def test_functions_that_only_a_linker_can_miss() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    declared = ".extern .func (.param .b32 func_retval0) {}\n(\n\t.param .b64 a,\n\t.param .b64 b\n)\n;\n"
    assert numba_cuda._is_complete(head)
    assert numba_cuda._is_complete(head + declared.format("vprintf"))
    assert not numba_cuda._is_complete(head + declared.format("elsewhere"))
    assert not numba_cuda._is_complete(head + declared.format("vprintf") + declared.format("elsewhere"))
