"""Run a PTX kernel on the CPU: y = a·x + y, and what happens when it reads past the end of an array."""

import numpy as np

import lanewise as lw

SAXPY = """
.version 8.0
.target sm_80
.address_size 64

.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<5>; .reg .b64 %rd<3>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %p, %r3, %r4;
    @%p ret;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    mad.wide.u32 %rd0, %r3, 4, %rd0;
    mad.wide.u32 %rd1, %r3, 4, %rd1;
    ld.param.f32 %f0, [a];
    ld.global.f32 %f1, [%rd0];
    ld.global.f32 %f2, [%rd1];
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.global.f32 [%rd1], %f3;
    ret;
}
"""


def main() -> None:
    """Launch it twice: as it should be, and with too large an n."""
    saxpy = lw.load(SAXPY)["saxpy"][4, 256]
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    saxpy(2.0, x, y, x.size)
    print("y[:4] =", y[:4])
    try:
        saxpy(2.0, x, y, x.size + 1)
    except lw.LanewiseError as error:
        print(error)


if __name__ == "__main__":
    main()
