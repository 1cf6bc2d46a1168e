"""A plugin for pytest that checks every launch of a test.

Say `pytest_plugins = ["lanewise.pytest"]` in a conftest.py. Then a test that takes the fixture
`lanewise_check` fails at the first launch in which something is found; with `pytest --lanewise-check` every
test does. Nothing of lanewise is loaded before a test asks for it. With
`pytest -p lanewise.pytest --gpu H100` tests of Triton and torch have a virtual GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lanewise.launch import Configured
    from lanewise.machine.checker.report import Report


#: Options of a launch that a check takes as well.
_PASSED_ON = ("arch", "steps", "progress", "unchecked")
#: Whether a session of pytest has its virtual GPU.
_ENTERED = pytest.StashKey[bool]()


class LaunchFailed(AssertionError):
    """A launch in which a check found something; `report` has all of it."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"lanewise.check found something\n\n{_words(report)}")
        self.report = report


def _words(report: Report) -> str:
    """Return the findings and what wastes time, without the counters."""
    slow = "\n".join(str(entry) for entry in report.performance)
    parts = [*(str(finding) for finding in report.findings), slow, f"{report.kernel}: {report.summary}"]
    return "\n\n".join(part for part in parts if part)


class CheckedLaunches:
    """The launches of a test, each of which is checked; what may be found is set by attributes."""

    def __init__(self) -> None:
        #: The report of each launch so far.
        self.reports: list[Report] = []
        #: Whether a launch also fails for what wastes time.
        self.strict = False
        #: The orders of blocks and warps in which a launch is repeated, as `lanewise.check` takes them.
        self.schedule: Any = None
        #: Whether launches are left alone.
        self.off = False

    def __call__(self, configured: Configured, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Check a launch instead of making it; one of arrays on a GPU is made as it is."""
        from lanewise.gpu import any_on_gpu
        from lanewise.machine.checker.check import check

        if self.off or "stream" in options or any_on_gpu(arguments):
            configured(*arguments, **options)
            from lanewise.machine.runtime.initialised_bytes import INITIALISED

            INITIALISED.take_all_as_initialised()
            return
        passed_on = {name: value for name, value in options.items() if name in _PASSED_ON}
        report = check(configured, *arguments, schedule=self.schedule, **passed_on)
        self.reports.append(report)
        if not report.ok or (self.strict and report.performance):
            raise LaunchFailed(report)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin to pytest."""
    group = parser.getgroup("lanewise")
    group.addoption(
        "--lanewise-check", "--check-launches", action="store_true", help="check every launch of every test"
    )
    group.addoption(
        "--gpu", metavar="NAME", help="give tests of Triton and torch a virtual GPU, such as H100, on the CPU"
    )
    group.addoption(
        "--lanewise-schedule", action="append", metavar="ORDER",
        help="check launches in this order, such as reverse, late or a seed; again for a further run",
    )  # fmt: skip
    group.addoption(
        "--lanewise-strict", action="store_true", help="let launches also fail for what wastes time"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Enter the virtual GPU before any conftest.py is imported, if one is asked for."""
    _enter_virtual_gpu(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Enter the virtual GPU before test files are imported, where a conftest.py names this plugin."""
    _enter_virtual_gpu(config, config.option)


def _enter_virtual_gpu(config: pytest.Config, options: argparse.Namespace) -> None:
    """Enter the virtual GPU that the options name, once."""
    name = getattr(options, "gpu", None)
    if name is None or config.stash.get(_ENTERED, False):
        return
    from lanewise.errors import LanewiseError
    from lanewise.virtual_gpu.session import VirtualGPU

    try:
        gpu = VirtualGPU(name)
        if options.lanewise_check:
            gpu.follow_memory()
    except LanewiseError as error:
        raise pytest.UsageError(f"--gpu: {error}") from None
    gpu.__enter__()
    config.stash[_ENTERED] = True
    config.add_cleanup(lambda: gpu.__exit__(None, None, None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Let a test fail whose program took a failed launch for an error of the driver, and went on."""
    yield
    if item.config.getoption("--gpu") is None:
        return
    from lanewise.virtual_gpu.session import active

    gpu = active()
    unseen = gpu.driver.take_unseen() if gpu is not None else []
    for error in unseen:
        if isinstance(error, LaunchFailed):
            raise error


@pytest.fixture
def lanewise_check(request: pytest.FixtureRequest) -> Iterator[CheckedLaunches]:
    """Check every launch of the test on the CPU; the test fails at one in which something is found.

    The fixture has the `reports` so far; `strict`, `schedule` and `off` change what follows.
    """
    from lanewise.launch import watched

    launches = CheckedLaunches()
    launches.strict = bool(request.config.getoption("--lanewise-strict"))
    orders = request.config.getoption("--lanewise-schedule")
    launches.schedule = [int(name) if name.isdecimal() else name for name in orders] if orders else None
    with watched(launches):
        yield launches
    request.node.user_properties.append(("checked launches", len(launches.reports)))


@pytest.fixture(autouse=True)
def _every_launch(request: pytest.FixtureRequest) -> None:
    """Use `lanewise_check` in every test, if pytest was started so."""
    if request.config.getoption("--lanewise-check"):
        request.getfixturevalue("lanewise_check")
