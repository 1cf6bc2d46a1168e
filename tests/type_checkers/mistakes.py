"""Mistakes that type checkers find; the lines that they are to mark say which checker does."""

import lanewise as lw


@lw.device
def half(x: lw.f32) -> lw.f32:
    return x.too(lw.f16)  # both


@lw.kernel
def wrong(A: lw.Ptr[lw.f16, 16], n: lw.i32) -> None:
    (A + n).load(8, caching="cg")  # pyright
    A.lod(lw.thread_id.x)  # both
    shared = lw.shared("f16", (16, 16))  # both
    n = n + "1"  # both
    for k in lw.range(n):
        k.named(3)  # both
        shared.pointr(k)  # both
