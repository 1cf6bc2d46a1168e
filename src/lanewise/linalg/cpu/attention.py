"""Attention on arrays in host memory, as `launch/attention.py` has it on GPUs: by the CPU machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.linalg.attention_call import AttentionCall
from lanewise.linalg.cpu.progress import Progress
from lanewise.linalg.kernels.attention.kernel import launch_of, traits_of
from lanewise.linalg.operands import View
from lanewise.linalg.planning.gpus import GPUS


def _array(view: View) -> Any:
    """Return a view as an array of NumPy with its four axes."""
    strides = [step * view.bytes for step in view.strides]
    return np.lib.stride_tricks.as_strided(view.array, view.shape, strides)


def compute(call: AttentionCall) -> None:
    """Compute a call whose arrays are in host memory. A bar shows the progress of a long one."""
    traits = traits_of(call.sizes, call.dtype, call.causal)
    q, k, v, out = map(_array, call.views)
    lse = None if call.lse is None else call.lse.array
    at_once = GPUS["sm_90a"].multiprocessors
    counter = np.zeros(1, np.uint32)
    launch = launch_of(traits, call.sizes, (q, k, v, out), lse, call.scale, at_once, counter)
    with Progress("lw.attention") as progress:
        launch.kernel(*launch.arguments, arch="sm_90a", progress=progress)
