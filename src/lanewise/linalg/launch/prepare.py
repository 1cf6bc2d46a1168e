"""A product on a GPU: its family's launches, made once and recorded, and repeated for calls of the same kind.

What a family launches depends on the problem, the plan and the device; from call to call of one kind only the
addresses change. So the first call records the launches that the family makes
(`gpu/recorded.py`), and keeps the record in memory and on disk: later calls need no kernel's source.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32, s32, u8
from lanewise.gpu import recorded
from lanewise.gpu.arrays import library_of
from lanewise.gpu.device import Context, Device, context
from lanewise.gpu.driver import GpuError
from lanewise.gpu.streams import stream_handle
from lanewise.linalg.arrays import Pointers
from lanewise.linalg.kernels.family import Launch, family_of
from lanewise.linalg.launch.device_view import DeviceView
from lanewise.linalg.launch.workspaces import workspace_for
from lanewise.linalg.operands import View, empty, operand, view_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning import tuned
from lanewise.linalg.planning.gpus import planned_arch
from lanewise.linalg.planning.planner import plan_of, require_kernel, require_possible
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import Request
from lanewise.linalg.scales import Scale
from lanewise.linalg.types import BLOCK
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from lanewise.gpu.recorded import RecordedLaunch
    from lanewise.ptx import Entry

#: The operands of a launch, in the order of their addresses.
OPERANDS = (
    "a", "b", "out", "bias", "residual", "scale_a", "scale_b", "scale_out", "workspace", "starts", "ends",
    "metadata",
)  # fmt: skip
#: Kinds of calls that are remembered.
_MOST_KINDS = 4096
#: The arch of kernels that other GPUs have no replacement for.
_HOPPER = "sm_90"


@dataclass(eq=False)
class Prepared:
    """The launches of one kind of call, ready to be made on any memory of that kind."""

    launches: list[RecordedLaunch]
    workspace_bytes: int
    #: Whether the workspace begins with counters, which are zero before a launch and after it.
    counts: bool
    #: Whether they are those of a plan that `lw.tune` kept.
    tuned: bool = False

    def __call__(self, addresses: list[int], stream: int) -> None:
        """Launch on operands at these addresses, in the order of OPERANDS."""
        for launch in self.launches:
            launch(addresses, stream)


_PREPARED: RecentlyUsed[object, Prepared] = RecentlyUsed(_MOST_KINDS)


def arch_of_device(ordinal: int) -> str:
    """Return the arch that products on a device are planned for: sm_90a on Hopper, sm_100a on a B200."""
    arch = context(ordinal).device.arch
    return planned_arch(f"{arch}a" if arch in ("sm_90", "sm_100") else arch)


def plan_on_gpu(problem: Problem, ordinal: int, arch: str | None, given: Plan | None) -> Plan:
    """Return the plan for a problem on a device: the given one, or the planner's."""
    own = arch_of_device(ordinal)
    if arch is not None and given is None:
        wanted = planned_arch(arch)
        if wanted.rstrip("a") != own.rstrip("a"):
            raise LanewiseError(
                f"arch={arch!r} is for arrays in host memory, which are computed as on that GPU; these lie "
                f"on {context(ordinal).device.name}, which is {own}: leave it out"
            )
        own = wanted
    if given is None:
        return plan_of(problem, own)
    if problem.sparse or problem.experts:  # plans of the library's own
        require_possible(problem, given)
    else:
        require_kernel(problem, given)
    return given


def run(
    request: Request, problem: Problem, arch: str | None, given: Plan | None, stream: object
) -> Prepared | None:
    """Compute a request on its GPU; returns what repeats it, None where nothing had to be launched."""
    if not (problem.m and problem.n and problem.batch):
        return None
    ordinal = request.a.device
    assert ordinal is not None
    if not problem.k:
        return _without_terms(request, problem, arch, given, stream)
    if problem.sparse:
        given = _sparse_plan(problem, ordinal)
    handle = stream_handle(stream) if stream is not None else current_stream(request.a, ordinal)
    launches = prepared(request, problem, arch, given, ordinal)
    workspace = (
        workspace_for(request.a, launches.workspace_bytes, launches.counts)
        if launches.workspace_bytes
        else None
    )
    try:
        launches(operand_addresses(request, workspace), handle)
    except GpuError:
        if not launches.tuned:
            raise
        tuned.forget(problem, context(ordinal).device.name)
        forget_prepared()
        return run(request, problem, arch, given, stream)
    return launches


def _sparse_plan(problem: Problem, ordinal: int) -> Plan:
    """Return the plan of a product with a sparse B; an error where the GPU has no wgmma.sp."""
    from lanewise.linalg.kernels.sparse.plans import sparse_plan

    own = arch_of_device(ordinal)
    if own != "sm_90a":
        raise LanewiseError(
            f"products with a sparse b run on sm_90a, or in host memory; this GPU is {own}: pass b.dense()"
        )
    return sparse_plan(problem)


def forget_prepared() -> None:
    """Forget the launches of all calls: their plans have changed."""
    _PREPARED.clear()


def prepared(
    request: Request, problem: Problem, arch: str | None, given: Plan | None, ordinal: int
) -> Prepared:
    """Return the launches of a call: from memory, from disk, or as its family makes them.

    What is on disk needs no plan: it was chosen when the launches were made.
    """
    key = (problem, given, arch, request.alpha, request.beta, ordinal)
    launches = _PREPARED.get(key)
    if launches is None:
        there = context(ordinal)
        if given is None:
            fastest = tuned.tuned_plan(problem, arch_of_device(ordinal), there.device.name)
            if fastest is not None:
                try:
                    launches = _made(request, problem, arch, None, fastest, there)
                except LanewiseError:  # the planner's plan is taken, or says what is wrong with the call
                    tuned.forget(problem, there.device.name)
        launches = launches or _made(request, problem, arch, given, None, there)
        _PREPARED.put(key, launches)
    return launches


def _made(
    request: Request, problem: Problem, arch: str | None, given: Plan | None, fastest: Plan | None,
    there: Context,
) -> Prepared:  # fmt: skip
    """Return the launches of a call by the plan that was tuned, the given one or the planner's."""
    key = (problem, given, arch, request.alpha, request.beta, fastest)
    name = None if problem.epilogue.function is not None else repr(key)
    launches = kept_launches(name, there)
    if launches is None:
        plan = fastest or plan_on_gpu(problem, there.device.ordinal, arch, given)
        launches = _recorded(request, problem, plan, there, name)
    launches.tuned = fastest is not None
    return launches


def _recorded(request: Request, problem: Problem, plan: Plan, there: Context, name: str | None) -> Prepared:
    """Return the launches that a family makes for a call: made on the call's own memory, and recorded."""
    family = family_of(plan.family)
    size = family.workspace_bytes(problem, plan)
    workspace = workspace_for(request.a, size) if size else None
    addresses = operand_addresses(request, workspace)
    views = _views(request, problem, addresses, size)
    if problem.epilogue.scale_a == "block":  # the scales of blocks are in the sums, not in the epilogue
        fused = replace(problem.epilogue, scale_a=None, scale_b=None)
        problem = replace(problem, epilogue=fused)
    pointers = Pointers(**views, alpha=request.alpha, beta=request.beta)
    launches = family.launches(problem, plan, pointers, there.device.multiprocessors)
    return record_launches(name, launches, there, addresses, size, plan.groups > 1 and not plan.gather)


def hopper_launch(
    what: str, kind: tuple[object, ...], ordinal: int, addresses: list[int],
    launch: Callable[[Device], Launch], on_disk: bool = True,
) -> Prepared:  # fmt: skip
    """Return the one launch of a kind of call that takes a Hopper GPU, `what` in words: from memory, from
    disk, or made for operands at these addresses and recorded."""
    key = (what, *kind, ordinal)
    prepared = _PREPARED.get(key)
    if prepared is None:
        there = context(ordinal)
        if there.device.arch.rstrip("a") != _HOPPER:
            raise LanewiseError(
                f"{what} runs on Hopper GPUs, {_HOPPER}, and {there.device.name} is {there.device.arch}; "
                "arrays in host memory are computed on the CPU"
            )
        name = repr(key) if on_disk else None
        prepared = kept_launches(name, there)
        if prepared is None:
            prepared = record_launches(name, [launch(there.device)], there, addresses)
        _PREPARED.put(key, prepared)
    return prepared


def kept_launches(name: str | None, there: Context) -> Prepared | None:
    """Return the launches that were kept on disk under a name; None if there are none."""
    kept = recorded.kept(name, there) if name is not None else None
    return None if kept is None else Prepared(kept[0], kept[1]["workspace"], kept[1]["counts"])


def record_launches(
    name: str | None, launches: Iterable[Launch], there: Context, addresses: list[int],
    workspace_bytes: int = 0, counts: bool = False,
) -> Prepared:  # fmt: skip
    """Return launches on operands at these addresses, recorded; with a name they are kept on disk, too."""
    made: list[tuple[RecordedLaunch, Entry]] = []
    for launch_of_call in launches:
        kernel, arguments = launch_of_call.traced()
        launch = recorded.record(kernel.entry, kernel.shape, arguments, there, _operand_of, addresses)
        made.append((launch, kernel.entry))
    if name is not None and made:
        recorded.keep(name, made, {"workspace": workspace_bytes, "counts": counts})
    return Prepared([launch for launch, _ in made], workspace_bytes, counts)


def _operand_of(memory: object) -> int | None:
    return memory.operand if isinstance(memory, DeviceView) else None


def _views(request: Request, problem: Problem, addresses: list[int], size: int) -> dict[str, Any]:
    """Return the operands as arrays of two axes, or of three with the batch first."""
    views: dict[str, Any] = {}

    def matrix(name: str, view: View, operand: Operand, rows: int, columns: int) -> None:
        shape: tuple[int, ...] = (rows, columns)
        strides: tuple[int, ...] = operand.strides
        count = problem.batch
        if name == "b":
            shape, strides, count = shape[::-1], strides[::-1], problem.experts or count
        if count > 1 or (name == "b" and problem.experts):
            shape, strides = (count, *shape), (operand.batch_stride, *strides)
        views[name] = DeviceView(OPERANDS.index(name), view.address, shape, strides, view.format)

    def vector(name: str, count: int, fmt: Format) -> None:
        number = OPERANDS.index(name)
        views[name] = DeviceView(number, addresses[number], (count,), (1,), fmt)

    m, n, k = problem.m, problem.n, problem.k
    matrix("a", request.a, problem.a, m, k)
    matrix("b", request.b, problem.b, n, k // 2 if problem.sparse else k)
    matrix("out", request.out, problem.out, m, n)
    if request.residual is not None and problem.epilogue.residual is not None:
        matrix("residual", request.residual, problem.epilogue.residual, m, n)
    for name, scale, strides in (
        ("scale_a", request.scale_a, problem.epilogue.scale_a_strides),
        ("scale_b", request.scale_b, problem.epilogue.scale_b_strides),
    ):
        if scale.view is not None:
            views[name] = _scale_view(name, scale, strides, problem)
    for name, view in (("bias", request.bias), ("scale_out", request.scale_out)):
        if view is not None:
            vector(name, view.shape[0], view.format)
    if problem.promote and "scale_a" not in views:
        # Sums that are promoted without scales: pointers that no kernel reads.
        aligned = request.a.address & -16
        views["scale_a"] = views["scale_b"] = DeviceView(0, aligned, (1, 1), (1, 1), f32)
    if size:
        vector("workspace", size, u8)
    if request.metadata is not None:
        vector("metadata", request.metadata.shape[0], s32)
    if request.bounds is not None:
        for name in ("ends",) if problem.consecutive else ("starts", "ends"):
            vector(name, problem.experts, s32)
    return views


def _scale_view(name: str, scale: Scale, strides: tuple[int, int, int], problem: Problem) -> DeviceView:
    """Return a scale as kernels take it: a vector, or blocks as (rows, K) of A and (K, columns) of B."""
    view = scale.view
    assert view is not None
    number = OPERANDS.index(name)
    if scale.swizzled:
        return DeviceView(number, view.address, (prod(view.shape),), (1,), u8)
    if scale.block_format is not None:
        factors = -(-problem.k // scale.block_format.block)
        _, across, along = scale.strides
        if name == "scale_a":
            return DeviceView(number, view.address, (problem.m, factors), (across, along), u8)
        return DeviceView(number, view.address, (factors, problem.n), (along, across), u8)
    if scale.form == "block":
        blocks = -(-problem.k // BLOCK)
        if name == "scale_a":
            return DeviceView(number, view.address, (problem.m, blocks), (strides[1], strides[2]), f32)
        wide = -(-problem.n // BLOCK)
        return DeviceView(number, view.address, (blocks, wide), (strides[2], strides[1]), f32)
    size = 1 if scale.form == "tensor" else (problem.m if name == "scale_a" else problem.n)
    if size > 1 and strides[1] != 1:
        raise LanewiseError(f"{name} is not contiguous: pass a contiguous copy of it")
    return DeviceView(number, view.address, (size,), (1,), f32)


def operand_addresses(request: Request, workspace: object) -> list[int]:
    """Return the operands' addresses in the order of OPERANDS; 0 for those that are not there."""
    bounds = [0, 0]
    if request.bounds is not None:
        first = int(request.bounds.data_ptr())
        bounds = [first, first + 4 * request.bounds.shape[1]] if request.bounds.ndim > 1 else [0, first]
    metadata = 0 if request.metadata is None else request.metadata.address
    given = [0 if view is None else view.address for view in request.views.values()]
    return [*given, address_of(workspace), *bounds, metadata]


def address_of(workspace: object) -> int:
    """Return where a workspace lies; 0 if there is none."""
    if workspace is None:
        return 0
    library = library_of(workspace)
    assert library is not None
    return library.address(workspace)


def current_stream(like: View, ordinal: int) -> int:
    """Return the stream on which the arrays' library works now; the legacy default stream of others."""
    library = library_of(like.array)
    return library.current_stream(ordinal) if library is not None else 0


def _without_terms(
    request: Request, problem: Problem, arch: str | None, given: Plan | None, stream: object
) -> Prepared | None:
    """Compute a product with a K of 0, whose sums are zeros: as one of zeros with a short K."""
    module = sys.modules.get(request.a.library)
    if request.a.library not in ("torch", "cupy") or module is None:
        raise LanewiseError(
            f"K is 0, which lw.matmul computes for arrays of torch and CuPy only, not of {request.a.library}"
        )
    k = 128
    zeros = [empty(request.a, shape, request.a.format) for shape in ((problem.m, k), (problem.n, k))]
    for matrix in zeros:
        if request.a.library == "torch":
            matrix.zero_()
        else:
            matrix.fill(0)
    a, b = (view_of(array, "a") for array in zeros)
    request.a, request.b, request.metadata = a, b, None
    filled = replace(
        problem,
        k=k,
        sparse=False,
        a=operand(a, problem.m, k, k, 1, 1, 0),
        b=operand(b, problem.n, k, k, 1, 1, 0),
    )
    return run(request, filled, arch, given, stream)
