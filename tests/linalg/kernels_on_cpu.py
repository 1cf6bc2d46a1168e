"""The kernels that a call of `lw.matmul` launches on a GPU, run on the CPU machine on the call's own arrays.

`lw.matmul` of arrays in host memory runs no kernel: it computes sums by the instruction's arithmetic. Here
the family's kernels run, as they would on a GPU, on the problem that the rules make of the call.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from lanewise.linalg.arrays import DeviceView, Pointers
from lanewise.linalg.kernels.family import family_of, run
from lanewise.linalg.launch.prepare import OPERANDS, operand_addresses, pointers_of
from lanewise.linalg.options import Options
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.planner import plan_of
from lanewise.linalg.rules import Request, request_of


def by_kernels(
    a: Any, b: Any, arch: str = "sm_90a", plan: Plan | None = None, launch_arch: str | None = None,
    **keywords: Any,
) -> Any:  # fmt: skip
    """Return the product of two NumPy arrays as the kernels of its plan compute it.

    `launch_arch` is the arch whose bits they have; without it, the first that has the kernels' instructions.
    """
    *launches, result = launches_of(a, b, arch, plan, **keywords)
    if launch_arch is None:
        run(launches)
    else:
        for kernel, arguments, _ in launches:
            kernel(*arguments, arch=launch_arch)
    return result


def launches_of(a: Any, b: Any, arch: str = "sm_90a", plan: Plan | None = None, **keywords: Any) -> list[Any]:
    """Return the launches of a product's plan, and behind them the array that they write."""
    request = request_of(a, b, Options(**keywords))
    problem = request.problem
    assert problem is not None, "the axes of the batch cannot be joined"
    plan = plan or plan_of(problem, arch)
    family = family_of(plan.family)
    size = family.workspace_bytes(problem, plan)
    epilogue = problem.epilogue
    if epilogue.scale_a == "block":
        problem = replace(problem, epilogue=replace(epilogue, scale_a=None, scale_b=None))
    return [*family.launches(problem, plan, _pointers(request, size)), request.result]


def _pointers(request: Request, workspace: int) -> Pointers:
    """Return the arrays of a request as kernels get them on a GPU, but in host memory."""
    problem = request.problem
    assert problem is not None
    memory = np.zeros(workspace + 128, np.uint8)
    addresses = operand_addresses(request, None)
    addresses[OPERANDS.index("workspace")] = memory.ctypes.data + -memory.ctypes.data % 128
    pointers = pointers_of(request, problem, addresses, workspace)
    if problem.promote and request.scale_a.view is None:
        pointers.scale_a = pointers.scale_b = np.ones((1, 1), np.float32)
    for field in fields(pointers):
        array = getattr(pointers, field.name)
        if isinstance(array, DeviceView):
            setattr(pointers, field.name, array.view(np.ndarray))
    _KEPT.append(memory)
    return pointers


#: Memory of workspaces, which arrays at an address do not keep.
_KEPT: list[Any] = []
