"""How long something takes, and which values of a kernel's constants make it fastest."""

from lanewise.tuning.autotuning import AutotunedKernel, autotune
from lanewise.tuning.benchmarking import Timing, benchmark

__all__ = ["AutotunedKernel", "Timing", "autotune", "benchmark"]
