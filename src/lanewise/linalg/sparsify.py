"""`lw.sparsify`: 2:4-sparse matrices in host memory and on GPUs, and what products with them must fulfil."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.formats import Format, s32
from lanewise.isa.sparsity import prune_2_4
from lanewise.linalg.arrays import Array, device_view
from lanewise.linalg.matrix_in_two_arrays import ALIGNED, MatrixInTwoArrays, OnDevice, bytes_for
from lanewise.linalg.operands import View, view_of
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.rules import Request, request_of
from lanewise.numpy_types import AnyArray
from lanewise.tracebacks import short_traceback

#: Formats of sparse matrices: those of wgmma.sp with groups of four.
_FORMATS = ("f16", "bf16", "e4m3", "e5m2", "s8")


class SparseMatrix(MatrixInTwoArrays):
    """A K by N matrix of which two of four neighbours along K are kept: half of the elements, and where they
    stood. The tensor cores take it as their first operand, so that products are computed transposed."""

    def __init__(self, k: int, n: int, fmt: Format) -> None:
        super().__init__((k, n), fmt, ("sparse", k, n, fmt.name))
        #: Values and indices in host memory; None as long as the matrix is on a GPU alone.
        self.in_host_memory: tuple[AnyArray, AnyArray] | None = None

    @property
    def values(self) -> AnyArray:
        """What is kept of each column, (N, K/2)."""
        return self._on_host()[0]

    @property
    def indices(self) -> AnyArray:
        """The place of each kept element in its group of four, (N, K/2)."""
        return self._on_host()[1]

    def _on_host(self) -> tuple[AnyArray, AnyArray]:
        """Return values and indices in host memory; they are copied from a GPU once."""
        if self.in_host_memory is None:
            from lanewise.linalg.kernels.sparse.metadata import indices_of, metadata_shape

            (library, _), copy = next(iter(self.copies.items()))
            k, n = self.shape
            values, metadata = (_to_host(array, library) for array in (copy.values, copy.metadata))
            kept = values.view(self.format.dtype)[: n * self.leading].reshape(n, self.leading)[:, : k // 2]
            words = metadata[: 4 * prod(metadata_shape(n, k, self.format.bits // 8))].view(np.int32)
            self.in_host_memory = np.ascontiguousarray(kept), indices_of(words, n, k, self.format)
        return self.in_host_memory

    @property
    def leading(self) -> int:
        """Elements from one row of values on a GPU to the next."""
        packed = ALIGNED // (self.format.bits // 8)
        return -(-max(self.k // 2, 1) // packed) * packed

    def dense(self) -> AnyArray:
        """Return the matrix with zeros for what was dropped, as an array of NumPy in host memory."""
        dense = np.zeros(self.shape[::-1], self.values.dtype)
        columns = np.arange(self.k // 2) // 2 * 4 + self.indices
        np.put_along_axis(dense, columns, self.values, axis=1)
        return dense.T

    def parts(self) -> tuple[AnyArray, AnyArray]:
        """Return values with padded rows, and metadata."""
        from lanewise.linalg.kernels.sparse.metadata import ordered_metadata

        values = np.zeros((self.shape[1], self.leading), self.values.dtype)
        values[:, : self.k // 2] = self.values
        return values, ordered_metadata(self.indices, self.format)

    def __repr__(self) -> str:
        return f"<sparse {self.format.name} {self.k} × {self.shape[1]}, 2 of 4 kept>"


def _to_host(array: Any, library: str) -> AnyArray:
    """Return bytes on a GPU as an array in host memory."""
    return np.asarray(array.cpu().numpy() if library == "torch" else array.get())


@short_traceback
def sparsify(b: Array) -> SparseMatrix:
    """Return a matrix with two of four neighbours along K kept, those of larger magnitude, for `lw.matmul`.

    K, the first axis, is a multiple of 4. Of a matrix on a GPU, the result stays on this GPU.

    >>> import numpy as np
    >>> import lanewise as lw
    >>> b = np.array([[1, 5], [4, 6], [3, 7], [2, 8]], np.float16)
    >>> lw.sparsify(b).dense().tolist()
    [[0.0, 0.0], [4.0, 0.0], [3.0, 7.0], [0.0, 8.0]]
    """
    view = view_of(b, "b")
    if view.format.name not in _FORMATS:
        raise LanewiseError(
            f"b has elements of type {view.format.dtype_name}; lw.sparsify takes {', '.join(_FORMATS)}"
        )
    if len(view.shape) != 2 or view.shape[0] % 4:
        raise LanewiseError(
            f"b has shape {view.shape}; lw.sparsify takes a matrix whose first axis, K, is a multiple of 4"
        )
    k, n = view.shape
    matrix = SparseMatrix(k, n, view.format)
    if view.device is None:
        matrix.in_host_memory = _pruned(view.array)
    else:
        matrix.keep_copy(view, _pruned_on_gpu(view, matrix.leading))
    return matrix


def _pruned(array: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the values that are kept of a matrix (K, N) in host memory, and their places in their groups."""
    k, n = array.shape
    groups = prune_2_4(np.ascontiguousarray(array.T)).reshape(n, k // 4, 4)
    with np.errstate(invalid="ignore"):
        kept = np.sort(np.argsort(groups == 0, axis=-1, kind="stable")[..., :2], axis=-1)
    values = np.take_along_axis(groups, kept, axis=-1)
    return values.reshape(n, k // 2), kept.reshape(n, k // 2).astype(np.uint8)


def _pruned_on_gpu(view: View, leading: int) -> OnDevice:
    """Return what is kept of a matrix on a GPU: its values and metadata, as the products read them."""
    from lanewise.linalg.kernels.sparse.metadata import metadata_shape, prune_into
    from lanewise.linalg.launch.prepare import current_stream

    assert view.device is not None
    k, n = view.shape
    words = prod(metadata_shape(n, k, view.bytes))
    kept = OnDevice.of(bytes_for(view, n * leading * view.bytes), bytes_for(view, words * 4))
    if k and n:
        values = device_view(0, kept.values_address, (n, leading), (leading, 1), view.format)
        metadata = device_view(0, kept.metadata_address, (words,), (1,), s32)
        source = device_view(0, view.address, view.shape, view.strides, view.format)
        steps = (view.strides[0], view.strides[1])
        prune_into(
            source, values, metadata, (k, n), steps, leading, view.format,
            stream=current_stream(view, view.device),
        )  # fmt: skip
    return kept


def sparse_request(a: object, b: SparseMatrix, options: Options) -> Request:
    """Return what a call with a sparse b asks for; an error if it breaks a rule."""
    for name in ("accumulate", "precision", "plan"):
        if getattr(options, name) is not None:
            raise LanewiseError(f"products with a sparse b take no {name}=")
    left = view_of(a, "a")
    sparse_plan_of(options)
    device = None if left.device is None else b.on_device(left)
    kept = View(
        (b.k // 2, b.shape[1]), (1, b.leading), b.format, 0 if device is None else device.values_address,
        left.library, left.device, None if device is None else device.values,
    )  # fmt: skip
    request = request_of(a, b, options, kept=kept)
    if request.problem is None:
        return request
    if request.problem.promote is not None:
        raise LanewiseError(
            "products with a sparse b take one scale, or scales of rows and columns, but no scales of blocks"
        )
    if device is not None:
        words = len(device.metadata) // (s32.word_bits // 8)
        request.metadata = View(
            (words,), (1,), s32, device.metadata_address, left.library, left.device, device.metadata
        )
    request.problem = replace(request.problem, sparse=True)
    return request


def sparse_plan_of(options: Options) -> Plan:
    """Return a plan that says in which order the CPU sums a product with a sparse b: one chain along K."""
    arch = planned_arch(options.arch)
    if arch != "sm_90a":
        raise LanewiseError(f"products with a sparse b are planned for sm_90a only, not for {arch}")
    return Plan("sparse", arch, (128, 128, 64), 1)
