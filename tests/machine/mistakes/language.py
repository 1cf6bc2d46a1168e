"""Planted mistakes in the Python language: `WRONG` decides which twin is traced; see `corpus.py` for the markers."""

from __future__ import annotations

import lanewise as lw


#@ block barriers | race | 1, 64 | f32[64], f32[64]=0 | a warp reads what the other has not yet written
@lw.kernel
def language_reverse(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], WRONG: lw.Constexpr = False):
    t = lw.thread_idx.x
    tile = lw.shared(lw.f32, 64)
    tile[t] = x[t]  #!
    if not WRONG:
        lw.syncthreads()
    y[t] = tile[63 - t]  #!
