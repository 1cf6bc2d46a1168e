"""PTX for the tests of the virtual GPU."""

#: Every thread writes its number to one word, or to its own.
WRITE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry write(.param .u64 out, .param .u32 stride) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r1, [stride];
    mov.u32 %r0, %tid.x;
    mul.lo.u32 %r2, %r0, %r1;
    cvt.u64.u32 %rd1, %r2;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r0;
    ret;
}
.visible .entry endless() {
AGAIN:
    bra AGAIN;
}
"""
