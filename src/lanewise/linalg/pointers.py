"""The arrays and numbers of one launch of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Pointers:
    """What a plan is launched on: arrays of NumPy (for the machine) or of a GPU, as lanewise takes them.

    `a`, `b` and `out` have two axes, or three with the batch first; `a` is M × K, `b` K × N, whatever their
    strides. Scales are arrays of f32; alpha and beta are numbers.
    """

    a: Any
    b: Any
    out: Any
    bias: Any = None
    residual: Any = None
    scale_a: Any = None
    scale_b: Any = None
    scale_out: Any = None
    alpha: float = 1.0
    beta: float = 1.0
    workspace: Any = None
