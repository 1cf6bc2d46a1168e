"""The arithmetic of tensor cores: the table of models by arch and type, and the compiled loops that run them.

`compute`, `gemm` and `fidelity` are what an Instruction forwards to.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lanewise.hints import not_called

if TYPE_CHECKING:
    from lanewise.arith.comparison import ArchComparison, compare
    from lanewise.arith.models import Model, model_of
    from lanewise.arith.on_arrays import compute, fidelity, gemm

#: Loaded on first use, because running machine code needs no models.
_LATER = {
    "ArchComparison": "comparison",
    "compare": "comparison",
    "Model": "models",
    "model_of": "models",
    "compute": "on_arrays",
    "fidelity": "on_arrays",
    "gemm": "on_arrays",
}

__all__ = ["ArchComparison", "Model", "compare", "compute", "fidelity", "gemm", "model_of"]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'lanewise.arith' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"lanewise.arith.{_LATER[name]}"), name)
    return value


not_called(__name__, 'lanewise.instruction("m16n8k16 f16 f32")(a, b, c, arch="sm_90") computes on arrays')
