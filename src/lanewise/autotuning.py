"""`lw.autotune`: a kernel whose Constexpr values are chosen by trying them, once for each arch and shapes.

What was found is kept in the cache folder, under the kernel's source, the arch and the arguments' shapes.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from lanewise import disk_cache
from lanewise.benchmarking import Timing, benchmark
from lanewise.errors import LanewiseError
from lanewise.lang.frontend.kernel import Kernel
from lanewise.lang.frontend.launching import ConfiguredKernel
from lanewise.lang.frontend.structs import leaves
from lanewise.lang.trace.errors import KernelError
from lanewise.tracebacks import short_traceback

Configuration = dict[str, Any]
#: What times a call, as lw.benchmark does: the least median is the best.
Measure = Callable[[Callable[[], object]], Timing]


class AutotunedKernel:
    """A kernel that tries its configurations when it is first launched with new shapes on an arch."""

    def __init__(self, kernel: Kernel, configurations: list[Configuration], measure: Measure) -> None:
        self.kernel, self.configurations, self.measure = kernel, configurations, measure
        #: The best configuration, by what was asked.
        self._best: dict[str, Configuration] = {}
        #: What the last round of trying found: each configuration with its times, or why it does not run.
        self.trials: list[tuple[Configuration, Timing | Exception]] = []
        #: The configuration that the last launch used.
        self.best: Configuration | None = None
        self.__doc__ = kernel.__doc__

    def __getitem__(self, configuration: object) -> AutotunedLaunch:
        if not isinstance(configuration, tuple) or len(configuration) not in (2, 3):
            raise LanewiseError(
                f"a launch is kernel[grid, block] or kernel[grid, block, shared_bytes], not {configuration!r}"
            )
        return AutotunedLaunch(self, configuration)

    @short_traceback
    def __iter__(self) -> NoReturn:
        name = self.kernel.name
        raise LanewiseError(f"a kernel is launched, {name}[grid, block](…), and not iterated over")

    def __repr__(self) -> str:
        return f"<autotuned kernel {self.kernel.name}, {len(self.configurations)} configurations>"


class AutotunedLaunch:
    """An autotuned kernel with its grid and block, each a value or a function of the launch's arguments."""

    def __init__(self, tuned: AutotunedKernel, shape: tuple[object, ...]) -> None:
        self.tuned, self.shape = tuned, shape

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch the kernel with the best configuration, which is sought first if it is not known."""
        tuned = self.tuned
        for name in kwargs:
            if any(name in configuration for configuration in tuned.configurations):
                raise LanewiseError(
                    f"{tuned.kernel.name}: {name} is chosen by lw.autotune, and given as {name}=, too; leave "
                    "it out, or launch the kernel that is not tuned"
                )
        request = self._request(args, kwargs)
        best = tuned._best.get(request)
        if best is None:
            best = _kept(request, tuned.configurations) or self._tried(request, args, kwargs)
            tuned._best[request] = best
        tuned.best = best
        self._configured(best, args, kwargs)(*args, **kwargs, **best)

    def bind(self, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the traced kernel and its arguments, as lw.check and lw.trace take them.

        It has the best configuration that is known; the first one, if none was tried yet.
        """
        tuned, request = self.tuned, self._request(args, kwargs)
        best = tuned._best.get(request) or _kept(request, tuned.configurations) or tuned.configurations[0]
        return self._configured(best, args, kwargs).bind(*args, **kwargs, **best)

    def _configured(
        self, configuration: Configuration, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> ConfiguredKernel:
        """Return the kernel with the grid and block of a configuration."""
        names = [parameter.name for parameter in self.tuned.kernel.signature]
        known = {**dict(zip(names, args, strict=False)), **kwargs, **configuration}
        return self.tuned.kernel[tuple(_evaluated(size, known) for size in self.shape)]

    def _tried(self, request: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Configuration:
        """Return the fastest configuration; arrays are as before when all have been tried."""
        tuned = self.tuned
        tuned.trials = []
        measure = tuned.measure
        if measure is benchmark:
            device = "cpu" if _where(args) == "cpu" else None
            measure = partial(benchmark, stream=kwargs.get("stream") or 0, device=device)
        with _restored(leaves((*args, *kwargs.values()))):
            for configuration in _with_progress(tuned.configurations, tuned.kernel.name):
                outcome: Timing | Exception
                try:
                    launch = self._configured(configuration, args, kwargs)
                    outcome = measure(_bound(launch, args, {**kwargs, **configuration}))
                except LanewiseError as error:  # too much shared memory, a tile that does not divide, …
                    outcome = error
                tuned.trials.append((configuration, outcome))
        timed = [
            (outcome.median, number)
            for number, (_, outcome) in enumerate(tuned.trials)
            if isinstance(outcome, Timing)
        ]
        if not timed:
            first, why = tuned.trials[0]
            count = len(tuned.trials)
            raise KernelError(f"{tuned.kernel.name}: none of {count} configurations runs; {first}: {why}")
        best = tuned.trials[min(timed)[1]][0]
        disk_cache.keep(request, ".tuned", json.dumps(tuned.configurations.index(best)).encode())
        return best

    def _request(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return what the best configuration depends on: source, arch, and shapes; floats do not count."""
        kernel = self.tuned.kernel
        arch = kwargs.get("arch")
        given = [_key(argument) for argument in args] + sorted(
            f"{name}={_key(value)}" for name, value in kwargs.items() if name not in ("arch", "stream")
        )
        source = kernel.source.text
        return repr(("autotune", kernel.name, source, arch, _where(args), self.tuned.configurations, given))


@short_traceback
def autotune(
    configurations: Mapping[str, Iterable[object]] | Sequence[Configuration],
    *,
    measure: Measure = benchmark,
) -> Callable[[Kernel], AutotunedKernel]:
    """Make a kernel choose the values of its Constexpr parameters by trying them; it goes above @lw.kernel.

    `configurations` are lists of values by name, of which all combinations are tried, or a list of dicts. The
    grid and block of a launch may be functions of what they need, by name: `kernel[lambda N, BLOCK: -(-N //
    BLOCK), 128](…)`. A configuration that cannot run is left out. `measure` times a call, as lw.benchmark.

    >>> autotune({"BLOCK": (64, 128)})(print)
    Traceback (most recent call last):
    lanewise.errors.LanewiseError: @lw.autotune goes above @lw.kernel, and takes a kernel; not <built-in ...
    """
    if not callable(measure):
        raise LanewiseError(f"measure= is a function that times a call, as lw.benchmark; not {measure!r}")
    if isinstance(configurations, Mapping):
        names = list(configurations)
        for name, values in configurations.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise LanewiseError(
                    f"lw.autotune takes values of {name} to try, {{{name!r}: (64, 128)}}; not {values!r}"
                )
        candidates = [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*(tuple(values) for values in configurations.values()))
        ]
    else:
        try:
            candidates = [dict(configuration) for configuration in configurations]
        except (TypeError, ValueError):
            candidates = []
    if not candidates or not all(candidates):
        raise LanewiseError("lw.autotune takes values to try: {'BLOCK': (64, 128)}, or a list of such dicts")

    @short_traceback
    def decorated(kernel: Kernel) -> AutotunedKernel:
        if not isinstance(kernel, Kernel):
            raise LanewiseError(f"@lw.autotune goes above @lw.kernel, and takes a kernel; not {kernel!r}")
        constants = [parameter.name for parameter in kernel.parameters if parameter.is_constexpr]
        for name in {name for candidate in candidates for name in candidate}:
            if name not in constants:
                has = ", ".join(constants) or "none"
                raise LanewiseError(f"{kernel.name} has no Constexpr parameter {name}; it has {has}")
        return AutotunedKernel(kernel, candidates, measure)

    return decorated


# the pieces ---------------------------------------------------------------------------------------------


def _bound(launch: ConfiguredKernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None]:
    return lambda: launch(*args, **kwargs)


def _evaluated(what: object, known: Mapping[str, object]) -> object:
    """Return a grid or block: a value as it is, a function called with the arguments that it names."""
    if not callable(what):
        return what
    parameters = inspect.signature(what).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return what(**known)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.name not in known and parameter.default is parameter.empty
    ]
    if missing:
        raise LanewiseError(f"a grid or block asks for {', '.join(missing)}; there are {', '.join(known)}")
    return what(
        **{parameter.name: known[parameter.name] for parameter in parameters if parameter.name in known}
    )


def _key(value: object) -> str:
    """Return what of an argument decides which configuration is best: shape and type, or the integer."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{tuple(shape)}:{getattr(value, 'dtype', '')}"
    fields = [_key(leaf) for leaf in leaves(value) if leaf is not value]
    if fields:
        return f"({', '.join(fields)})"
    return type(value).__name__ if isinstance(value, float) else repr(value)


def _where(args: tuple[object, ...]) -> str:
    """Return what runs the launch: the name of a GPU, or the CPU."""
    from lanewise import gpu

    if gpu.available() and gpu.any_on_gpu(list(leaves(args))):
        return str(gpu.devices()[0].name)
    return "cpu"


def _kept(request: str, configurations: list[Configuration]) -> Configuration | None:
    """Return the best configuration that an earlier process found; None if none did."""
    content = disk_cache.read(request, ".tuned")
    if content is None:
        return None
    number = json.loads(content)
    return configurations[number] if isinstance(number, int) and number < len(configurations) else None


def _with_progress(configurations: list[Configuration], name: str) -> Iterator[Configuration]:
    """Give the configurations one after the other; a terminal shows how far it is."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"tuning {name}", total=len(configurations))
        for configuration in configurations:
            words = ", ".join(f"{key}={value}" for key, value in configuration.items())
            progress.update(task, description=f"tuning {name}: {words}")
            yield configuration
            progress.advance(task)


@contextmanager
def _restored(arguments: Iterable[Any]) -> Iterator[None]:
    """Keep the contents of arrays, which trial launches change, and put them back."""
    kept = [(argument, _copy(argument)) for argument in arguments if getattr(argument, "shape", None)]
    try:
        yield
    finally:
        for array, copy in kept:
            if copy is None:
                continue
            if hasattr(array, "copy_"):
                array.copy_(copy)  # torch
            elif getattr(getattr(array, "flags", None), "writeable", True):
                array[...] = copy


def _copy(array: object) -> object:
    """Return a copy of an array of NumPy, CuPy or torch; None for what has no such method."""
    method = getattr(array, "clone", None) or getattr(array, "copy", None)
    return method() if callable(method) else None
