"""Launches that the tests of the debugger walk through."""

from typing import Any

import numpy as np

import lanewise as lw
from lanewise.debug.commands import Commands
from lanewise.debug.debugger import Debugger
from lanewise.debug.launches import DebuggedLaunch
from lanewise.debug.prompt import answered
from traces.traced import hgemm, matrices, reduction

#: A function that is inlined, in the file of the kernel, and a loop.
CUDA = """
__device__ float twice(float x) {
    float y = x * 2.0f;
    return y + 1.0f;
}
__global__ void k(const float* X, float* Y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = X[i];
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < n; j++) {
        sum += twice(tile[(i + j) % 64]);
    }
    Y[i] = sum;
}
"""
#: Adds 1 to each element; it has no source.
PTX = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 X) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd0, [X];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.f32 %f0, [%rd2];
    add.f32 %f1, %f0, 0f3F800000;
    st.global.f32 [%rd2], %f1;
    ret;
}
"""


def launched(configured: Any, *arguments: Any, **options: Any) -> DebuggedLaunch:
    """Return a launch to be debugged."""
    bound, values = configured.bind(*arguments)
    return DebuggedLaunch(bound, values, options)


def hgemm_debugger() -> Debugger:
    """Return a debugger of a product of matrices, of one warp a block."""
    a, b, c = matrices()
    return Debugger(launched(hgemm[(2, 2), 32], a, b, c, 16, 48))


def reduction_debugger() -> Debugger:
    """Return a debugger of a sum over four warps."""
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    return Debugger(launched(reduction[1, 128], x, np.zeros(1, np.float32), 1000))


def ptx_debugger(elements: int = 32) -> Debugger:
    """Return a debugger of PTX without a source."""
    return Debugger(launched(lw.load(PTX)["k"][1, 32], np.arange(elements, dtype=np.float32)))


class Told:
    """What a debugger answers to commands."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger, self.commands = debugger, Commands(debugger)

    def __call__(self, *lines: str) -> str:
        """Return the answer to the last of some commands."""
        for line in lines:
            answer = answered(self.commands, line)
        return answer


def line_of(kernel: Any, text: str) -> int:
    """Return the line of a kernel's file that has a text."""
    import inspect

    lines, first = inspect.getsourcelines(kernel.function)
    return first + next(number for number, each in enumerate(lines) if text in each)
