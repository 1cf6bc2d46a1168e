"""`lw.tune`: the planner's candidates measured on the GPU at hand, and the fastest kept for later calls."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.linalg.call import matmul
from lanewise.linalg.launching.warm import forget
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.planned import PlannedProduct
from lanewise.linalg.planning.planner import candidates, estimate, plan_of
from lanewise.linalg.planning.tuned import remember
from lanewise.linalg.rules import Options, request_of
from lanewise.tracebacks import short_traceback

#: Candidates that are measured: those that the model finds best.
_MOST_CANDIDATES = 24
_GROUPS = (8, 16)
_WARM_UP, _ROUNDS = 3, 15
#: What is written between two measurements, so that operands come from memory: more than any L2 cache.
_FLUSHED_BYTES = 256 << 20


@short_traceback
def tune(a: Any, b: Any, *, progress: bool = True, **keywords: Any) -> PlannedProduct:
    """Measure plans for a call of `lw.matmul` on this GPU; the fastest is returned and used from now on.

    Arrays are torch's or CuPy's on a GPU; keywords are those of `lw.matmul`. The result is kept in the user's
    cache folder ($LANEWISE_CACHE_DIR), for this device, these types and sizes. A bar shows the progress.
    """
    request = request_of(a, b, Options(**keywords), empty_result=False)
    ordinal, problem = request.a.device, request.problem
    if ordinal is None:
        raise LanewiseError("lw.tune measures on a GPU, and a and b lie in host memory: move them to the GPU")
    if problem is None or not (problem.m and problem.n and problem.k):
        raise LanewiseError(
            "lw.tune takes a product, not empty, or a batch whose strides let it be treated as one axis"
        )
    from lanewise.gpu.device import context
    from lanewise.linalg.launching.on_gpu import arch_of_device

    arch = arch_of_device(ordinal)
    gpu = GPUS[arch]
    ranked = sorted(candidates(problem, arch), key=lambda each: estimate(problem, each, gpu).seconds)
    tried = [plan_of(problem, arch), *ranked[:_MOST_CANDIDATES]]
    plans = [replace(plan, group=group) for plan in dict.fromkeys(tried) for group in _GROUPS]
    timer = _Timer(request.a.library, ordinal)
    times: dict[Any, list[float]] = {}
    with _bar(progress, len(plans) * (_ROUNDS + 1)) as advance:
        for plan in plans:
            try:
                for _ in range(_WARM_UP):
                    matmul(a, b, plan=plan, **keywords)
                timer.wait()
                times[plan] = []
            except LanewiseError:
                pass  # a candidate that the kernels cannot have
            advance()
        if not times:
            raise LanewiseError("no plan for this product could be launched: call lw.matmul, which says why")
        for _ in range(_ROUNDS):
            for plan in times:
                times[plan].append(timer.seconds(lambda plan=plan: matmul(a, b, plan=plan, **keywords)))
                advance()
    best = min(times, key=lambda plan: median(times[plan]))
    microseconds = median(times[best]) * 1e6
    device = context(ordinal).device.name
    remember(problem, best, device, microseconds)
    forget()
    chosen = replace(best, why=f"the fastest of {len(times)} plans on this {device}: {microseconds:.1f} µs")
    return PlannedProduct(chosen, problem)


class _Timer:
    """Times of calls on a GPU by its own events, the L2 cache emptied before each."""

    def __init__(self, library: str, ordinal: int) -> None:
        from importlib import import_module

        if library not in ("torch", "cupy"):
            raise LanewiseError(f"lw.tune takes arrays of torch or CuPy, not of {library}")
        self.library, self.ordinal = library, ordinal
        self.module: Any = import_module(library)
        if library == "torch":
            self.flush = self.module.empty(_FLUSHED_BYTES, dtype=self.module.uint8, device=f"cuda:{ordinal}")
        else:
            self.flush = self.module.empty(_FLUSHED_BYTES, "uint8")

    def wait(self) -> None:
        """Wait until the GPU is done."""
        if self.library == "torch":
            self.module.cuda.synchronize(self.ordinal)
        else:
            self.module.cuda.Device(self.ordinal).synchronize()

    def seconds(self, call: Any) -> float:
        """Return how long a call takes on the GPU."""
        if self.library == "torch":
            start, end = (self.module.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush.zero_()
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        start, end = self.module.cuda.Event(), self.module.cuda.Event()
        self.flush.fill(0)
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(self.module.cuda.get_elapsed_time(start, end)) / 1e3


class _bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, shown: bool, total: int) -> None:
        self.shown, self.total = shown, total

    def __enter__(self) -> Any:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self.progress = Progress(
            console=console, transient=True, disable=not (self.shown and console.is_terminal)
        )
        self.progress.start()
        task = self.progress.add_task("measuring plans", total=self.total)
        return lambda: self.progress.advance(task)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
