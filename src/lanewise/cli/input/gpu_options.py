"""Options for programs on a virtual GPU: which launches are checked, and who runs their blocks."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from lanewise.cli.input.option_groups import flag, valued
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from lanewise.virtual_gpu.checking import Checking

_PANEL = "Programs on a virtual GPU (--gpu)"
Streams = Annotated[
    bool,
    flag(
        "--streams",
        "Look for races between launches, copies and memsets on different streams as well.",
        panel=_PANEL,
    ),
]
Only = Annotated[
    list[str] | None,
    valued(
        "--only",
        "NAME",
        "Check the launches of kernels of this name (* stands for any text); others run plainly.",
        panel=_PANEL,
    ),
]
First = Annotated[
    int | None,
    valued("--first", "N", "Check the first N launches; later ones run plainly.", min=1, panel=_PANEL),
]
Fast = Annotated[bool, flag("--fast", "Run launches plainly and look at bounds alone.", panel=_PANEL)]
ExecutorName = Annotated[
    str | None,
    valued(
        "--executor",
        "WORKERS",
        "Spread the blocks of launches over so many processes, or over the Dask cluster at an address: "
        "4, tcp://scheduler:8786.",
        panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class GpuChecks:
    """Which launches on a virtual GPU are checked, and how: options of a command."""

    streams: Streams = False
    only: Only = None
    first: First = None
    fast: Fast = False

    def require_gpu(self, gpu: str | None) -> None:
        """Raise an error if an option was given without a virtual GPU."""
        given = {"--streams": self.streams, "--only": self.only, "--first": self.first, "--fast": self.fast}
        for option, value in given.items():
            if value and gpu is None:
                raise LanewiseError(f"{option} is for programs on a virtual GPU: give --gpu H100 as well")

    def checking(self) -> Checking:
        """Return how the virtual GPU is to check."""
        from lanewise.virtual_gpu.checking import Checking

        if self.fast and self.streams:
            raise LanewiseError(
                "--fast runs launches plainly, and --streams needs to know what they access; give one of them"
            )
        return Checking(tuple(self.only or ()), self.first, self.fast, self.streams)


def executor_of(text: str | None, gpu: str | None) -> AbstractContextManager[Executor | None]:
    """Return the executor that a text names, to be entered: a number of processes, or a Dask cluster."""
    if text is None:
        return nullcontext()
    if gpu is None:
        raise LanewiseError("--executor is for programs on a virtual GPU: give --gpu H100 as well")
    if text.isdecimal() and int(text):
        from concurrent.futures import ProcessPoolExecutor, wait
        from multiprocessing import get_context

        pool = ProcessPoolExecutor(int(text), mp_context=get_context("spawn"))
        # All workers start now: later `__main__` is the script, which they would run.
        wait([pool.submit(os.getpid) for _ in range(int(text))])
        return pool
    if "://" not in text:
        raise LanewiseError(
            f"--executor {text!r}: a number of processes is wanted, or the address of a Dask scheduler such "
            "as tcp://scheduler:8786"
        )
    try:
        import distributed
    except ImportError:
        raise LanewiseError(f"--executor {text}: Dask is not installed: `pip install distributed`") from None
    try:
        client: Any = distributed.Client
        executor: Executor = client(text, timeout="10s").get_executor()
    except (OSError, ValueError) as error:
        raise LanewiseError(f"--executor {text}: no Dask scheduler answers there ({error})") from None
    return executor
