"""Products with a 2:4 sparse B on sm_90a, by TMA and wgmma.sp."""

from lanewise.linalg.families.sparse.launches import launch, workspace_bytes

__all__ = ["launch", "workspace_bytes"]
