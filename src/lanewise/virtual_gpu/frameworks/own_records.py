"""Launches that `lw.matmul` keeps on disk: none under a virtual GPU, for they hold machine code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanewise.virtual_gpu.frameworks.patches import Patches

if TYPE_CHECKING:
    from lanewise.virtual_gpu.frameworks.framework_state import FrameworkState


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Neither read nor keep launches on disk, until the patches are taken back."""
    from lanewise.gpu import recorded

    patches.set(recorded, "kept", _nothing)
    patches.set(recorded, "keep", _nothing)


def _nothing(*_: object) -> None:
    """Keep nothing and find nothing: a GPU's machine code does not run here, nor PTX there as fast."""
