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
from typing import TYPE_CHECKING

from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32, s32, u8
from lanewise.gpu import recorded
from lanewise.gpu.arrays import library_of
from lanewise.gpu.device import Context, Device, context
from lanewise.gpu.driver import GpuError
from lanewise.gpu.streams import stream_handle
from lanewise.linalg.arrays import DeviceView, Memory, OnGpu, Pointers, device_view
from lanewise.linalg.kernels.family import Launch, family_of
from lanewise.linalg.launch.workspaces import workspace_for
from lanewise.linalg.operands import View, empty, operand, view_of
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning import tuned
from lanewise.linalg.planning.gpus import GPUS, planned_arch
from lanewise.linalg.planning.planner import plan_of, require_kernel, require_possible
from lanewise.linalg.problem import Operand, Problem
from lanewise.linalg.rules import Request
from lanewise.linalg.scales import Scale
from lanewise.linalg.types import BLOCK
from lanewise.recently_used import RecentlyUsed

if TYPE_CHECKING:
    from lanewise.gpu.recorded import NamedKernel, RecordedLaunch

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
    device = context(ordinal).device
    try:
        return planned_arch("sm_90a" if device.arch == "sm_90" else device.arch)
    except LanewiseError:
        raise LanewiseError(
            f"lanewise has no products for {device.name}, which is {device.arch}: copy arrays to host "
            f"memory, and pass arch= of a GPU that it has products for ({', '.join(GPUS)})"
        ) from None


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
    if given.arch.rstrip("a") != own.rstrip("a"):
        raise LanewiseError(
            f"the plan is for {given.arch}, and these arrays lie on {context(ordinal).device.name}, which is "
            f"{own}: a plan for that one is lw.plan(…, arch={own!r})"
        )
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
    size = launches.workspace_bytes
    workspace = workspace_for(request.a, size, launches.counts) if size else None
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
    pointers = pointers_of(request, problem, addresses, size)
    if problem.epilogue.scale_a == "block":  # the scales of blocks are in the sums, not in the epilogue
        fused = replace(problem.epilogue, scale_a=None, scale_b=None)
        problem = replace(problem, epilogue=fused)
    launches = family.launches(problem, plan, pointers, there.device.multiprocessors)
    counts = size > 0 and plan.groups > 1 and not plan.gather
    return record_launches(name, launches, there, addresses, size, counts)


def hopper_launches(
    what: str, kind: tuple[object, ...], ordinal: int, addresses: list[int],
    launches: Callable[[Device], list[Launch]], on_disk: bool = True,
) -> Prepared:  # fmt: skip
    """Return the launches of a kind of call that takes a Hopper GPU, `what` in words: from memory, from disk,
    or made for operands at these addresses and recorded."""
    key = (what, *kind, ordinal)
    prepared = _PREPARED.get(key)
    if prepared is None:
        there = context(ordinal)
        if there.device.arch.rstrip("a") != _HOPPER:
            raise LanewiseError(
                f"only Hopper GPUs, {_HOPPER}, have kernels for {what}, and {there.device.name} is "
                f"{there.device.arch}; arrays in host memory are computed on the CPU"
            )
        name = repr(key) if on_disk else None
        prepared = kept_launches(name, there)
        if prepared is None:
            prepared = record_launches(name, launches(there.device), there, addresses)
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
    made: list[tuple[RecordedLaunch, NamedKernel]] = []
    for launch_of_call in launches:
        named = recorded.known(launch_of_call.name, there)
        if named is None:
            entry, shared_bytes = launch_of_call.traced(there.device.early_arch)
            named = recorded.named(launch_of_call.name, entry, shared_bytes, there)
        shape, arguments = launch_of_call.bound(named.entry, named.shared_bytes)
        made.append((recorded.record(named, shape, arguments, there, _operand_of, addresses), named))
    if name is not None and made:
        recorded.keep(name, made, {"workspace": workspace_bytes, "counts": counts})
    return Prepared([launch for launch, _ in made], workspace_bytes, counts)


def _operand_of(memory: object) -> tuple[int, int] | None:
    return (memory.operand, memory.address) if isinstance(memory, OnGpu) else None


def pointers_of(request: Request, problem: Problem, addresses: list[int], workspace_bytes: int) -> Pointers:
    """Return the operands as kernels take them: matrices of two axes, or of three with the batch first."""

    def view(name: str, shape: tuple[int, ...], strides: tuple[int, ...], fmt: Format) -> DeviceView:
        number = OPERANDS.index(name)
        return device_view(number, addresses[number], shape, strides, fmt)

    def matrix(name: str, operand: Operand, rows: int, columns: int, experts: int = 0) -> DeviceView:
        shape: tuple[int, ...] = (rows, columns)
        strides: tuple[int, ...] = operand.strides
        if experts or problem.batch > 1:
            shape, strides = (experts or problem.batch, *shape), (operand.batch_stride, *strides)
        return view(name, shape, strides, operand.dtype)

    def vector(name: str, count: int, fmt: Format) -> DeviceView | None:
        return view(name, (count,), (1,), fmt) if count else None

    def scale(name: str, given: Scale, rows: int, steps: tuple[int, int, int]) -> Memory | None:
        """A vector, or one for each row of A or column of B (or block of them) and block of K."""
        if given.view is None:
            return None
        if given.swizzled:
            return vector(name, prod(given.view.shape), u8)
        if given.form in ("tensor", "row"):
            size = 1 if given.form == "tensor" else rows
            if size > 1 and steps[1] != 1:
                raise LanewiseError(f"{name} is not contiguous: pass a contiguous copy of it")
            return vector(name, size, f32)
        if given.block_format is not None:
            shape = rows, -(-problem.k // given.block_format.block)
            return view(name, shape, given.strides[1:], u8)
        shape = rows if name == "scale_a" else -(-rows // BLOCK), -(-problem.k // BLOCK)
        return view(name, shape, steps[1:], f32)

    (m, n, k), epilogue = (problem.m, problem.n, problem.k), problem.epilogue
    scales = (
        scale("scale_a", request.scale_a, m, epilogue.scale_a_strides),
        scale("scale_b", request.scale_b, n, epilogue.scale_b_strides),
    )
    if problem.promote and scales[0] is None:
        # Sums that are promoted without scales: pointers that no kernel reads.
        scales = (device_view(0, request.a.address & -16, (1, 1), (1, 1), f32),) * 2
    bias, scale_out, metadata = request.bias, request.scale_out, request.metadata
    bounds = problem.experts if request.bounds is not None else 0
    return Pointers(
        matrix("a", problem.a, m, k),
        matrix("b", problem.b, n, k // 2 if problem.sparse else k, problem.experts),
        matrix("out", problem.out, m, n),
        None if bias is None else vector("bias", bias.shape[0], bias.format),
        None if epilogue.residual is None else matrix("residual", epilogue.residual, m, n),
        *scales,
        None if scale_out is None else vector("scale_out", 1, f32),
        request.alpha,
        request.beta,
        vector("workspace", workspace_bytes, u8),
        vector("starts", 0 if problem.consecutive else bounds, s32),
        vector("ends", bounds, s32),
        None if metadata is None else vector("metadata", metadata.shape[0], s32),
    )


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
    """Compute a product with a K of 0, whose sums are zeros: as one of zeros with a short K.

    Scales of blocks have no elements then, and there is nothing to promote.
    """
    module = sys.modules.get(request.a.library)
    if request.a.library not in ("torch", "cupy") or module is None:
        raise LanewiseError(
            f"K is 0, which lw.matmul computes for arrays of torch and CuPy only, not of {request.a.library}"
        )
    k = 128
    zeros = [empty(request.a, shape, request.a.format) for shape in ((problem.m, k), (problem.n, k))]
    for matrix in zeros:
        matrix[...] = 0
    a, b = (view_of(array, "a") for array in zeros)
    changed = replace(request, a=a, b=b, metadata=None)
    epilogue = problem.epilogue
    if problem.block_format or epilogue.scale_a == "block":
        changed = replace(changed, scale_a=Scale(), scale_b=Scale())
        epilogue = replace(epilogue, scale_a=None, scale_b=None)
    filled = replace(
        problem,
        k=k,
        sparse=False,
        a=operand(a, problem.m, k, k, 1, 1, 0),
        b=operand(b, problem.n, k, k, 1, 1, 0),
        epilogue=epilogue,
        promote=None,
        block_format="",
    )
    return run(changed, filled, arch, given, stream)
