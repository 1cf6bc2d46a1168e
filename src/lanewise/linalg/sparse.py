"""`lw.sparsify`: a B of which two of four neighbours along K are kept, and products with it."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lanewise.errors import LanewiseError
from lanewise.formats import Format, u8
from lanewise.isa.sparsity import prune_2_4
from lanewise.linalg.fused_on_cpu import as_matrices, finished
from lanewise.linalg.launching.warm import kind_of_tensor
from lanewise.linalg.operands import View, empty, plain_tensors, view_of
from lanewise.linalg.order import instruction_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import Options, Request, request_of
from lanewise.tracebacks import short_traceback

if TYPE_CHECKING:
    from lanewise.linalg.launching.on_gpu import Prepared

Array = npt.NDArray[Any]

#: Formats of sparse matrices: those of wgmma.sp with groups of four.
_FORMATS = ("f16", "bf16", "e4m3", "e5m2", "s8")
#: Bytes that rows of values are padded to, for TMA.
_ALIGNED = 16
#: Keywords without which a call is plain, besides alpha.
_KEYWORDS = (
    "out", "bias", "activation", "residual", "beta", "scale_a", "scale_b", "scale_out", "epilogue",
    "accumulate", "precision",
)  # fmt: skip
#: Calls of one matrix that are remembered; when there are more, all are forgotten.
_MOST_CALLS = 256


class OnDevice(NamedTuple):
    """A sparse matrix on a GPU: the kept values of each column, padded rows of bytes, and its metadata."""

    values: Any
    metadata: Any
    values_address: int
    metadata_address: int

    @classmethod
    def of(cls, values: Any, metadata: Any) -> OnDevice:
        """Return a matrix whose values and metadata are two arrays of bytes."""
        from lanewise.gpu.arrays import locate

        places = [locate(each, 0) for each in (values, metadata)]
        assert places[0] is not None and places[1] is not None
        return cls(values, metadata, places[0].address, places[1].address)


class SparseMatrix:
    """A K by N matrix of which two of four neighbours along K are kept: half of the elements, and where they
    stood. The tensor cores take it as their first operand, so that products are computed transposed."""

    def __init__(self, k: int, n: int, fmt: Format) -> None:
        #: The shape of the matrix with its zeros.
        self.shape = (k, n)
        self.k, self.format = k, fmt
        #: Values and indices in host memory, and copies on GPUs, by library and device. The matrix is in one
        #: of them; the others are made for the first product there.
        self.in_host_memory: tuple[Array, Array] | None = None
        self.copies: dict[tuple[str, int], OnDevice] = {}
        #: Launches of calls without keywords, by the kind of their a and their out_dtype.
        self.launched: dict[Any, tuple[Prepared, tuple[int, ...], Any]] = {}

    @property
    def values(self) -> Array:
        """What is kept of each column, (N, K/2)."""
        return self._on_host()[0]

    @property
    def indices(self) -> Array:
        """The place of each kept element in its group of four, (N, K/2)."""
        return self._on_host()[1]

    def _on_host(self) -> tuple[Array, Array]:
        """Return values and indices in host memory; they are copied from a GPU once."""
        if self.in_host_memory is None:
            from lanewise.linalg.families.sparse.metadata import indices_of

            (library, _), found = next(iter(self.copies.items()))
            k, n = self.shape
            values, metadata = (_to_host(each, library) for each in (found.values, found.metadata))
            kept = values.view(self.format.dtype)[: n * self.leading].reshape(n, self.leading)[:, : k // 2]
            words = metadata[: len(metadata) // 4 * 4].view(np.int32)
            self.in_host_memory = np.ascontiguousarray(kept), indices_of(words, n, k, self.format)
        return self.in_host_memory

    @property
    def leading(self) -> int:
        """Elements from one row of values on a GPU to the next."""
        packed = _ALIGNED // (self.format.bits // 8)
        return -(-max(self.k // 2, 1) // packed) * packed

    def dense(self) -> Array:
        """Return the matrix with zeros for what was dropped."""
        found = np.zeros(self.shape[::-1], self.values.dtype)
        columns = np.arange(self.k // 2) // 2 * 4 + self.indices
        np.put_along_axis(found, columns, self.values, axis=1)
        return found.T

    def on_device(self, like: View) -> OnDevice:
        """Return the matrix on the GPU of an array, in memory of the array's library; it is copied once."""
        assert like.device is not None
        key = (like.library, like.device)
        found = self.copies.get(key)
        if found is None:
            from lanewise.linalg.families.sparse.metadata import ordered_metadata

            values = np.zeros((self.shape[1], self.leading), self.values.dtype)
            values[:, : self.k // 2] = self.values
            parts = [_to_device(like, each) for each in (values, ordered_metadata(self.indices, self.format))]
            found = self.copies[key] = OnDevice.of(*parts)
        return found

    def __repr__(self) -> str:
        return f"<sparse {self.format.name} {self.k} × {self.shape[1]}, 2 of 4 kept>"


def _bytes_for(like: View, count: int) -> Any:
    """Return so many bytes on the GPU of an array, in memory of its library."""
    return empty(like, (max(count, _ALIGNED),), u8)


def _to_device(like: View, array: Array) -> Any:
    """Return an array's bytes on the GPU of another one, in memory of its library."""
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    made = _bytes_for(like, whole.size)
    if like.library == "torch":
        made[: whole.size].copy_(sys.modules["torch"].from_numpy(whole))
    else:
        made[: whole.size].set(whole)
    return made


def _to_host(array: Any, library: str) -> Array:
    """Return bytes on a GPU as an array in host memory."""
    return np.asarray(array.cpu().numpy() if library == "torch" else array.get())


# products ---------------------------------------------------------------------------------------------------


def sparse_product(
    a: Any, b: SparseMatrix, options: Options, arch: str | None, plan: Any, stream: Any
) -> Any:
    """Return a · b for arrays in host memory or on a GPU, with the same bits."""
    key = None
    if _is_plain(a, options) and arch is None and plan is None and stream is None:
        key = (kind_of_tensor(a), options.out_dtype)
        made = b.launched.get(key)
        if made is not None:
            return _again(a, b, *made)
    for name, given in (("accumulate", options.accumulate), ("precision", options.precision), ("plan", plan)):
        if given is not None:
            raise LanewiseError(f"products with a sparse b take no {name}=")
    left = view_of(a, "a")
    planned = planned_arch(arch or "sm_90a")
    if planned != "sm_90a":
        raise LanewiseError(f"products with a sparse b are planned for sm_90a only, not for {planned}")
    device = None if left.device is None else b.on_device(left)
    strides = (1, b.leading)
    right = View(
        b.shape, strides, b.format, 0 if device is None else device.values_address, left.library,
        left.device, None if device is None else device.values,
    )  # fmt: skip
    request = request_of(a, b, options, right=right)
    problem = request.problem
    if problem is None or (problem.batch > 1 and left.device is not None):
        return _each_of_batch(request, a, b, options, arch, stream)
    if problem.promote is not None:
        raise LanewiseError(
            "products with a sparse b take one scale, or scales of rows and columns, but no scales of blocks"
        )
    if left.device is None:
        _on_cpu(request, replace(problem, sparse=True), b)
        return request.result
    scattered = [each for each in (problem.a, problem.out, problem.epilogue.residual) if _is_scattered(each)]
    if scattered and request.m and request.n:
        return _on_copies(request, problem, a, b, options, stream)
    assert device is not None
    prepared = _on_gpu(request, problem, device, stream)
    if key is not None and prepared is not None and request.k:
        if len(b.launched) >= _MOST_CALLS:
            b.launched.clear()
        b.launched[key] = (prepared, tuple(request.result.shape), request.result.dtype)
    return request.result


def _is_plain(a: Any, options: Options) -> bool:
    """Return whether a call has torch's tensor on a GPU, and no keyword but out_dtype."""
    if "torch" not in sys.modules or type(a) not in plain_tensors() or not a.is_cuda or a.requires_grad:
        return False
    others = (getattr(options, name) for name in _KEYWORDS)
    return options.alpha == 1 and all(each is None for each in others)


def _again(a: Any, b: SparseMatrix, prepared: Prepared, shape: tuple[int, ...], dtype: Any) -> Any:
    """Make a call of a kind that was made before."""
    from lanewise.linalg.launching.on_gpu import OPERANDS

    torch = sys.modules["torch"]
    ordinal = a.get_device()
    device = b.copies["torch", ordinal]
    out = torch.empty(shape, dtype=dtype, device=a.device)
    known = {
        "a": a.data_ptr(), "b": device.values_address, "out": out.data_ptr(),
        "metadata": device.metadata_address,
    }  # fmt: skip
    workspace = None
    if prepared.workspace_bytes:
        workspace = torch.empty(prepared.workspace_bytes, dtype=torch.uint8, device=a.device)
        known["workspace"] = workspace.data_ptr()
    prepared([known.get(name, 0) for name in OPERANDS], torch._C._cuda_getCurrentRawStream(ordinal))
    return out


def _on_cpu(request: Request, problem: Problem, b: SparseMatrix) -> None:
    """Compute a product in host memory by the sparse instruction's own sums, in order of K."""
    out = as_matrices(request.out.array, request.out.shape)
    if not out.size:
        return
    multiply = instruction_of(problem, Plan("sparse", "sm_90a", (128, 128, 64), 1))
    dense = np.ascontiguousarray(as_matrices(request.a.array, request.a.shape))
    rows = dense.reshape(prod(request.batch) * request.m, b.k)
    padding = -b.k % multiply.k or (multiply.k if not b.k else 0)
    values = np.pad(b.values, ((0, 0), (0, padding // 2)))
    # The places of what is not there: 0 and 1 of each group, whose elements are zeros.
    indices = np.concatenate(
        [b.indices, np.tile(np.array([0, 1], np.uint8), (b.indices.shape[0], padding // 4))], axis=1
    )
    columns = np.pad(rows, ((0, 0), (0, padding))).T
    total = multiply.gemm(values, columns, arch="sm_90a", metadata=indices)
    shape = (*request.batch, request.m, request.n)
    out[...] = finished(request, problem, np.ascontiguousarray(total.T).reshape(shape))


def _on_gpu(request: Request, problem: Problem, device: OnDevice, stream: Any) -> Prepared | None:
    """Compute a product on its GPU; returns what repeats it, None where nothing had to be launched."""
    from lanewise.linalg.families.sparse.plans import sparse_plan
    from lanewise.linalg.launching.on_gpu import arch_of_device, run

    assert request.a.device is not None
    own = arch_of_device(request.a.device)
    if own != "sm_90a":
        raise LanewiseError(
            f"products with a sparse b run on sm_90a, or in host memory; this GPU is {own}: pass b.dense()"
        )
    if not problem.k:  # what the epilogue makes of zeros
        return run(request, problem, None, None, stream)
    if not (problem.m and problem.n):
        return None
    problem = replace(problem, sparse=True)
    size = 4
    request.metadata = View(
        (len(device.metadata) // size,), (1,), request.b.format, device.metadata_address,
        request.a.library, request.a.device, device.metadata,
    )  # fmt: skip
    return run(request, problem, None, sparse_plan(problem), stream)


def _is_scattered(operand: Operand | None) -> bool:
    """Return whether an operand has neighbours along neither axis, or runs backwards."""
    return operand is not None and (operand.inner != 1 or operand.leading < 0)


def _on_copies(
    request: Request, problem: Problem, a: Any, b: SparseMatrix, options: Options, stream: Any
) -> Any:
    """Compute a product on a GPU whose operands are scattered, on copies that their library makes of them."""

    def compact(array: Any, operand: Operand | None) -> Any:
        if array is None or not _is_scattered(operand):
            return array
        return array.contiguous() if hasattr(array, "contiguous") else array.copy(order="C")

    out, residual = options.out, options.residual
    if residual is None and request.residual is not None:
        residual = out  # what it holds is added
    scattered = _is_scattered(problem.out)
    changed = replace(
        options,
        out=None if scattered else out,
        out_dtype=problem.out.dtype.name,
        residual=compact(residual, problem.epilogue.residual),
        beta=options.beta if residual is not None else None,
    )
    result = sparse_product(compact(a, problem.a), b, changed, None, None, stream)
    if scattered:
        out[...] = result
        return out
    return result


def _each_of_batch(
    request: Request, a: Any, b: SparseMatrix, options: Options, arch: str | None, stream: Any
) -> Any:
    """Compute a batch whose rows are not those of one long matrix: a product for each of its first axis."""
    axes = len(request.batch)

    def item(array: Any, index: int) -> Any:
        if array is None or not hasattr(array, "shape") or len(array.shape) < axes + 2:
            return array
        return array[0 if array.shape[0] == 1 else index]

    residual = options.residual
    for index in range(request.batch[0]):
        part = replace(
            options,
            out=request.result[index],
            residual=None if residual is None else residual[index],
            scale_a=item(options.scale_a, index),
            out_dtype=None,
        )
        sparse_product(item(a, index), b, part, arch, None, stream)
    return request.result


@short_traceback
def sparsify(b: Any) -> SparseMatrix:
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
    found = SparseMatrix(k, n, view.format)
    if view.device is None:
        found.in_host_memory = _pruned(view.array)
    else:
        found.copies[view.library, view.device] = _pruned_on_gpu(view, found.leading)
    return found


def _pruned(array: Array) -> tuple[Array, Array]:
    """Return the values that are kept of a matrix (K, N) in host memory, and their places in their groups."""
    k, n = array.shape
    groups = prune_2_4(np.ascontiguousarray(array.T)).reshape(n, -1, 4)
    with np.errstate(invalid="ignore"):
        kept = np.sort(np.argsort(groups == 0, axis=-1, kind="stable")[..., :2], axis=-1)
    values = np.take_along_axis(groups, kept, axis=-1)
    return values.reshape(n, k // 2), kept.reshape(n, k // 2).astype(np.uint8)


def _pruned_on_gpu(view: View, leading: int) -> OnDevice:
    """Return what is kept of a matrix on a GPU: its values and metadata, as the products read them."""
    from lanewise.formats import s32
    from lanewise.linalg.families.sparse.metadata import metadata_shape
    from lanewise.linalg.families.sparse.pruning import prune_into
    from lanewise.linalg.launching.device_view import DeviceView
    from lanewise.linalg.launching.on_gpu import current_stream

    assert view.device is not None
    k, n = view.shape
    words = prod(metadata_shape(n, k, view.bytes))
    found = OnDevice.of(_bytes_for(view, n * leading * view.bytes), _bytes_for(view, words * 4))
    if k and n:
        values = DeviceView(0, found.values_address, (n, leading), (leading, 1), view.format)
        metadata = DeviceView(0, found.metadata_address, (words,), (1,), s32)
        source = DeviceView(0, view.address, view.shape, view.strides, view.format)
        steps = (view.strides[0], view.strides[1])
        prune_into(
            source, values, metadata, (k, n), steps, leading, view.format,
            stream=current_stream(view, view.device),
        )  # fmt: skip
    return found
