"""Kernels that convert fp8, fp6 and fp4, for the machine and a GPU."""

from __future__ import annotations

from typing import Any

import lanewise as lw

SMALL = {
    lw.e4m3: ("sm_90", lw.e4m3x2),
    lw.e5m2: ("sm_90", lw.e5m2x2),
    lw.e2m3: ("sm_100a", lw.e2m3x2),
    lw.e3m2: ("sm_100a", lw.e3m2x2),
    lw.e2m1: ("sm_100a", lw.e2m1x2),
}


def kernels(element: Any, pair: Any) -> Any:
    """Kernels that convert one by one, as loaded neighbours, and in pairs."""

    @lw.kernel
    def narrow(x: lw.Ptr[lw.f32, 16], one: lw.Ptr[element], four: lw.Ptr[element, 4], two: lw.Ptr[pair]):
        i = lw.block_idx.x * 32 + lw.thread_idx.x
        one[i] = x[i].to(element)
        values = (x + 4 * i).load(4)
        (four + 4 * i).store([each.to(element) for each in values])
        two[2 * i] = lw.pack(values[0], values[1], element)
        two[2 * i + 1] = lw.pack(values[2].to(element), values[3].to(element))

    @lw.kernel
    def wide(x: lw.Ptr[element, 4], one: lw.Ptr[lw.f32], four: lw.Ptr[lw.f16, 8], ints: lw.Ptr[lw.i32]):
        i = lw.thread_idx.x
        for k in range(4):
            one[4 * i + k] = x[4 * i + k].to(lw.f32)
            ints[4 * i + k] = x[4 * i + k].to(lw.i32)
        (four + 4 * i).store([each.to(lw.f16) for each in (x + 4 * i).load(4)])

    @lw.kernel
    def pairs(x: lw.Ptr[pair], both: lw.Ptr[lw.f16x2], low: lw.Ptr[lw.f16], high: lw.Ptr[lw.f16]):
        i = lw.thread_idx.x
        both[i] = x[i].to(lw.f16x2)
        first, second = lw.unpack(x[i])
        low[i], high[i] = first.to(lw.f16), second.to(lw.f16)

    return narrow, wide, pairs
