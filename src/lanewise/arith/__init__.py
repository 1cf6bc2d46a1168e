"""What the silicon computes: the table of models per arch and type, and the compiled loops that run them.

`compute`, `gemm` and `fidelity` are what an Instruction forwards to. PTX and kernels are other rooms.
"""

from lanewise.arith.compute import compute, fidelity, gemm
from lanewise.arith.models import Model, model_of

__all__ = ["Model", "compute", "fidelity", "gemm", "model_of"]
