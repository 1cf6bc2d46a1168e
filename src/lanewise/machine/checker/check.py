"""`lanewise.check`: runs a kernel with its grid, block and arguments under watch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.isa import find_arch
from lanewise.machine.checker.checked_kernel import checked
from lanewise.machine.checker.checked_launch import CheckRun
from lanewise.machine.checker.fault_findings import beyond_limits, refused_by_ptxas
from lanewise.machine.checker.report import Report
from lanewise.machine.checker.schedules import RunSchedule, run_schedules
from lanewise.machine.errors import Refused
from lanewise.machine.runtime.launch import Progress
from lanewise.observers import Observers
from lanewise.ptx import resources_or_none
from lanewise.ptx.host_tensors import host_arguments
from lanewise.ptx.signatures import require_signature
from lanewise.tracebacks import short_traceback


@short_traceback
def check(
    configured: object,
    *arguments: object,
    arch: str | None = None,
    steps: int | None = None,
    schedule: object = None,
    progress: Progress | None = None,
    cluster: object = None,
    resources: bool = False,
    unchecked: bool = False,
    **constants: object,
) -> Report:
    """Run a kernel under watch and report hazards as `findings`, and `counters` as Nsight Compute names them.

    `schedule` is the order in which blocks and warps run: "in order", "reverse", or a seed, which gives the
    same run each time; with a list of them the launch is repeated, and a finding says under which it showed.
    `steps` bounds the basic blocks that a thread block may run; `cluster` is how many blocks make a cluster,
    as at a launch. With `resources`, ptxas is asked for the kernel's registers and spills as well, if it is
    installed. With `unchecked`, arguments are not held against the kernel's signature in C++. `constants` are
    arguments by name of a kernel of the language, its Constexpr ones among them.

    >>> import numpy as np
    >>> import lanewise as lw
    >>> module = lw.load('''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry fill(.param .u64 out) {
    ...     .reg .b64 %rd<2>;
    ...     .reg .b32 %r<2>;
    ...     ld.param.u64 %rd0, [out];
    ...     mov.u32 %r0, %tid.x;
    ...     st.global.u32 [%rd0], %r0;
    ...     ret;
    ... }''')
    >>> report = lw.check(module["fill"][1, 32], np.zeros(1, np.uint32))
    >>> [(finding.kind, finding.line) for finding in report.findings]
    [('race', 10)]
    """
    if not hasattr(configured, "bind"):
        raise LanewiseError(
            "lw.check takes a kernel with its grid and block, then its arguments: "
            f"lw.check(kernel[grid, block], a, b, …), not {type(configured).__name__}"
        )
    schedules = run_schedules(schedule)
    bound, values = configured.bind(*arguments, arch=arch, **constants)
    if cluster is not None:
        bound = bound.in_clusters(cluster)
    values = host_arguments(values)
    if not unchecked:
        require_signature(bound.entry, values)
    name = find_arch(arch if arch is not None else bound.entry.module.arch)
    perform = partial(_checked_report, bound, values, name, steps, schedules, resources, progress)
    observer = CHECKS.current
    if observer is None:
        return perform()
    options = {"arch": arch, "steps": steps}
    with CHECKS.unobserved():
        given = {option: value for option, value in options.items() if value is not None}
        return observer(bound, values, given, perform)


#: Sees a check: the kernel with its grid and block, its arguments, its options, and what runs it.
CheckObserver = Callable[[Any, Sequence[Any], dict[str, Any], Callable[[], Report]], Report]
#: Those who take every `check`, and return its report.
CHECKS = Observers[CheckObserver]()


def _checked_report(
    bound: Any,
    values: tuple[object, ...],
    arch: str,
    steps: int | None,
    schedules: list[RunSchedule],
    resources: bool,
    progress: Progress | None,
) -> Report:
    """Run a kernel under watch, in each of the schedules, and return its report."""
    module = bound.entry.module
    ready = checked(module, bound.entry.function, arch)
    try:
        program = ready.program
    except Refused as refusal:
        return Report(bound.entry.name, [refused_by_ptxas(refusal)], {}, module=module)
    used = resources_or_none(bound.entry, arch) if resources else None
    refused = beyond_limits(program, bound.shape, arch, used)
    if refused:
        return Report(bound.entry.name, refused, {}, module=module)
    report = CheckRun(ready, bound.shape, values, steps, progress).report(schedules, list(ready.notes))
    if used is None:
        return report
    from lanewise.machine.checker.cost.verdicts import judged_with_spills

    return replace(report, judge=partial(judged_with_spills, report, bound.entry, used, bound.shape))
