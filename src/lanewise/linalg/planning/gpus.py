"""What the planner knows of GPUs: multiprocessors, bandwidth, and the speed of their tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.isa.gpu_models import FIGURES
from lanewise.isa.multiprocessor import shared_bytes_of


def resident(cluster_size: Any, multiprocessors: int) -> Any:
    """Return how many blocks run at the same time: clusters of four or eight leave some multiprocessors idle.

    Sizes of clusters may be an array.

    On an H200 with 132 of them, 30 clusters of four and 15 of eight run at the same time.

    >>> [resident(size, 132) for size in (1, 2, 4, 8)]
    [132, 132, 120, 120]
    """
    return multiprocessors - (cluster_size > 2) * (multiprocessors - multiprocessors * 10 // 11)


@dataclass(frozen=True)
class Gpu:
    """A GPU that stands for its arch: numbers for the model of time, not for the bits."""

    multiprocessors: int
    #: Bytes in a second that a copy reaches; operations in a second of bf16 products, sustained.
    bandwidth: float
    speed: float
    #: Shared memory of a block in bytes.
    shared_bytes: int
    l2_bytes: int

    def slots(self, size: Any) -> Any:
        """Return how many clusters of so many blocks run at the same time; sizes may be an array.

        >>> [GPUS["sm_90a"].slots(size) for size in (1, 2, 4, 8)]
        [132, 66, 30, 15]
        """
        return resident(size, self.multiprocessors) // size

    def speed_of(self, multiplied: str) -> float:
        """Return the operations in a second of products of a format."""
        return self.speed * _RELATIVE_SPEED[multiplied]


#: Speed by format; bf16 is 1. f64 has tensor cores on data centre GPUs alone.
_RELATIVE_SPEED = {
    "f16": 1.0, "bf16": 1.0, "tf32": 0.5, "e4m3": 1.97, "e5m2": 1.97, "s8": 1.97, "f64": 1 / 14,
}  # fmt: skip


def _gpu(name: str, arch: str, bandwidth: float, speed: float) -> Gpu:
    """Return a GPU with the figures of its data sheet."""
    figures = FIGURES[name]
    l2_bytes = int(figures.l2_mib * (1 << 20))
    return Gpu(figures.multiprocessors, bandwidth, speed, shared_bytes_of(arch), l2_bytes)


#: H200: measured (a copy, and wgmma on operands at rest). The others: 85 % of what NVIDIA states.
GPUS = {
    "sm_75": _gpu("T4", "sm_75", 0.27e12, 55e12),
    "sm_80": _gpu("A100", "sm_80", 1.7e12, 265e12),
    "sm_86": _gpu("RTX 3090", "sm_86", 0.8e12, 60e12),
    "sm_89": _gpu("RTX 4090", "sm_89", 0.86e12, 140e12),
    "sm_90": _gpu("H200", "sm_90", 4.2e12, 560e12),
    "sm_90a": _gpu("H200", "sm_90a", 4.2e12, 859e12),
    "sm_100a": _gpu("B200", "sm_100a", 6.8e12, 1900e12),
    "sm_120": _gpu("RTX 5090", "sm_120", 1.5e12, 180e12),
}
#: Archs that run as another one does here.
_LIKE = {
    "sm_87": "sm_86", "sm_88": "sm_86", "sm_100": "sm_100a", "sm_100f": "sm_100a", "sm_120a": "sm_120",
    "sm_120f": "sm_120", "sm_121": "sm_120", "sm_121a": "sm_120", "sm_121f": "sm_120",
}  # fmt: skip


#: The GPU that arrays in host memory are computed like, unless arch= says otherwise.
DEFAULT_ARCH = "sm_90a"


def planned_arch(arch: str | None) -> str:
    """Return an arch's name as plans have it, of None the usual one; an error for archs that have no plans.

    >>> planned_arch("sm_90a"), planned_arch("RTX 4090"), planned_arch("GB10"), planned_arch(None)
    ('sm_90a', 'sm_89', 'sm_120', 'sm_90a')
    """
    name = DEFAULT_ARCH if arch is None else find_arch(arch)
    planned = _LIKE.get(name, name)
    if planned not in GPUS:
        raise LanewiseError(f"arch={arch!r}: products can be planned for {', '.join(GPUS)}")
    return planned
