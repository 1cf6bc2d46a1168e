"""Products of matrices: `lanewise.matmul`, its plans, its kernels, and the same bits on a CPU."""

from lanewise.linalg.call import epilogue, matmul, plan
from lanewise.linalg.grouped import grouped_matmul
from lanewise.linalg.plan import Plan
from lanewise.linalg.planned import PlannedProduct
from lanewise.linalg.sparse import SparseMatrix, sparsify
from lanewise.linalg.tuning import tune

__all__ = [
    "Plan",
    "PlannedProduct",
    "SparseMatrix",
    "epilogue",
    "grouped_matmul",
    "matmul",
    "plan",
    "sparsify",
    "tune",
]
