"""`lw.sparsify`: a B of which two of four neighbours along K are kept, and products with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import Format
from lanewise.isa import instruction
from lanewise.isa.sparsity import prune_2_4
from lanewise.linalg.fused_on_cpu import rounded
from lanewise.linalg.gpus import planned_arch
from lanewise.linalg.operands import view_of
from lanewise.linalg.types import PRODUCTS, format_named

Array = npt.NDArray[Any]

#: The instructions whose A is sparse, by format: K is twice that of the dense ones.
_SPARSE = {
    "f16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16",
    "bf16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16",
    "e4m3": "wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3",
    "e5m2": "wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e5m2.e5m2",
    "s8": "wgmma.mma_async.sp.sync.aligned.m64n256k64.s32.s8.s8",
}


class SparseMatrix:
    """A K by N matrix of which two of four neighbours along K are kept: half of the elements, and where they
    stood. The tensor cores take it as their first operand, so that products are computed transposed."""

    def __init__(self, values: Array, indices: Array, k: int, fmt: Format) -> None:
        #: (N, K/2): what is kept of each column, and its place in its group of four.
        self.values, self.indices = values, indices
        self.k, self.format = k, fmt

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix with its zeros: (K, N)."""
        return self.k, self.values.shape[0]

    def dense(self) -> Array:
        """Return the matrix with zeros for what was dropped."""
        found = np.zeros((self.values.shape[0], self.k), self.values.dtype)
        columns = np.arange(self.k // 2) // 2 * 4 + self.indices
        np.put_along_axis(found, columns, self.values, axis=1)
        return found.T

    def product(self, a: Any, out_dtype: Any, arch: str | None) -> Any:
        """Return a · self for a matrix or a batch of them in host memory."""
        view = view_of(a, "a")
        if view.device is not None:
            raise LanewiseError(
                "products with a sparse b run on arrays in host memory; pass b.dense() on a GPU"
            )
        if view.format != self.format:
            raise LanewiseError(f"a is {view.format.dtype_name} and the sparse b {self.format.dtype_name}")
        if not view.shape or view.shape[-1] != self.k:
            raise LanewiseError(f"a has shape {view.shape}; the sparse b has K of {self.k}")
        name = planned_arch(arch or "sm_90a")
        if name != "sm_90a":
            raise LanewiseError(f"products with a sparse b are planned for sm_90a; not for {name}")
        product = PRODUCTS[self.format.name]
        wanted = product.results[0] if out_dtype is None else format_named(out_dtype, "out_dtype").name
        if wanted not in product.results:
            raise LanewiseError(f"products of {self.format.dtype_name} give {', '.join(product.results)}")
        multiply = instruction(_SPARSE[self.format.name])
        rows = np.ascontiguousarray(view.array).reshape(-1, self.k)
        padding = -self.k % multiply.k
        values = np.pad(self.values, ((0, 0), (0, padding // 2)))
        # The places of what is not there: 0 and 1 of each group, whose elements are zeros.
        indices = np.concatenate(
            [self.indices, np.tile(np.array([0, 1], np.uint8), (self.indices.shape[0], padding // 4))], axis=1
        )
        columns = np.pad(rows, ((0, 0), (0, padding))).T
        total = multiply.gemm(values, columns, arch=name, metadata=indices)
        result = rounded(np.ascontiguousarray(total.T), _format(wanted))
        result = result.reshape(*view.shape[:-1], self.values.shape[0])
        if view.library == "torch":
            return _as_torch(result, wanted)
        return result

    def __repr__(self) -> str:
        return f"<sparse {self.format.name} {self.k} × {self.values.shape[0]}, 2 of 4 kept>"


def _format(name: str) -> Format:
    return format_named(name, "out_dtype")


def _as_torch(array: Array, name: str) -> Any:
    """Return a NumPy array as a torch tensor of the same type."""
    import sys

    from lanewise.linalg.operands import empty
    from lanewise.ptx.host_tensors import host_array

    torch = sys.modules["torch"]
    like = view_of(torch.empty(1), "a")
    found = empty(like, array.shape, _format(name))
    host_array(found)[...] = array
    return found


def sparsify(b: Any) -> SparseMatrix:
    """Return a matrix with two of four neighbours along K kept, those of larger magnitude, for `lw.matmul`.

    K, the first axis, is a multiple of 4.

    >>> import numpy as np
    >>> import lanewise as lw
    >>> b = np.array([[1, 5], [4, 6], [3, 7], [2, 8]], np.float16)
    >>> lw.sparsify(b).dense().tolist()
    [[0.0, 0.0], [4.0, 0.0], [3.0, 7.0], [0.0, 8.0]]
    """
    view = view_of(b, "b")
    if view.device is not None:
        raise LanewiseError("lw.sparsify takes arrays in host memory: b.cpu() (torch), b.get() (CuPy)")
    if view.format.name not in _SPARSE:
        raise LanewiseError(
            f"b has elements of type {view.format.dtype_name}; sparse products are of {', '.join(_SPARSE)}"
        )
    if len(view.shape) != 2 or view.shape[0] % 4:
        raise LanewiseError(
            f"b has shape {view.shape}; a sparse b is a matrix whose K, the first axis, divides by 4"
        )
    groups = prune_2_4(np.ascontiguousarray(view.array.T)).reshape(view.shape[1], -1, 4)
    kept = np.sort(np.argsort(groups == 0, axis=-1, kind="stable")[..., :2], axis=-1)
    values = np.take_along_axis(groups, kept, axis=-1)
    flat = (view.shape[1], view.shape[0] // 2)
    return SparseMatrix(values.reshape(flat), kept.reshape(flat).astype(np.uint8), view.shape[0], view.format)
