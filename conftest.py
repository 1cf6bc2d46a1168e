"""The test suite keeps compiled code in a cache folder of its own, never in the user's.

lanewise keeps machine code on disk, below the user's cache directory unless LANEWISE_CACHE_DIR names another
folder. The process in which pytest is started makes one temporary folder for the whole run and puts its name
into that variable. The workers of pytest-xdist and the programs that tests start inherit the variable: what
one of them compiled is there for all others. When the run ends, the process that made the folder removes it.

A variable that is already set is left as it is, and its folder is kept: `LANEWISE_CACHE_DIR=/tmp/warm pytest`
starts the next run with what this one compiled, and `LANEWISE_CACHE_DIR= pytest` keeps nothing on disk. By
the same rule a worker neither makes nor removes a folder: it finds the variable set.

The tests are many files and start many programs. Where Python may write no bytecode beside the sources
(PYTHONDONTWRITEBYTECODE), each worker and each program would compile all of them again. The run then keeps
bytecode in a second temporary folder, which all of them share.

Every worker of pytest-xdist imports every file, and pytest rewrites the assertions of each. Half of the
workers import them in the opposite order, so that two workers find what the other has rewritten when they
meet in the middle.

Most kernels are launched once, so all code is compiled with few passes of LLVM, in this process and in
programs that tests start. With LANEWISE_EVERYTHING=1, as in CI's second step and at night, code is compiled
as users have it; so it is if LANEWISE_COMPILE_QUICKLY is set and empty.

NumPy and torch compute with one thread. Otherwise each worker, and each program that tests start, would have
as many threads as the machine has processors, and these spin while they wait for each other.

Python's garbage collector walks through all that is alive: thousands of tests, and the modules that they
import. It would do so again and again while they are collected, and find nothing to free; it is off until
then. What is there once the tests are collected stays for the whole run, so the collector leaves it alone.

The checkers of types (`tests/type_checkers`) and the page in a browser (`tests/explore/*browser.py`) take
half a minute and more. They run if they are named, as CI does, or with LANEWISE_EVERYTHING=1.

Nothing in a test depends on how fast the machine is. What lanewise itself bounds in seconds (`lanewise
explore`) is multiplied by LANEWISE_PATIENCE, which is so large here that no limit is met unless a test sets
one. Hypothesis neither has a deadline nor complains that examples are drawn slowly. It would also parse the
source of every module of the project, once in each worker, to draw the constants that stand there more often;
it does so with LANEWISE_EVERYTHING=1. The time limit of pytest-timeout is for tests that hang.

A script starts programs in the background with SIGINT ignored, and what they start inherits that. Tests of
Ctrl-C would then wait for ever, so the run heeds the signal again.
"""

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator

import pytest

CACHE = "LANEWISE_CACHE_DIR"
#: The folder of this run's bytecode, where Python may not write it beside the sources.
BYTECODE = "LANEWISE_TESTS_BYTECODE"
#: Files whose first test takes longest: they are run first, so that no worker has to wait for one at the end.
LONGEST = ("test_torch_operator.py",)
#: Parts of the suite that run apart from the others, by words of their paths.
APART = ("type_checkers", "browser")
#: With this set, an error inside the machine's compiler is raised as it is, not as an InternalError, and
#: tracebacks have every line.
RAISE_INTERNAL_ERRORS = "LANEWISE_RAISE_INTERNAL_ERRORS"
#: With this set and not empty, code is compiled with few passes.
QUICKLY = "LANEWISE_COMPILE_QUICKLY"
#: With this set and not empty, nothing is left out, and code is compiled as users have it.
EVERYTHING = "LANEWISE_EVERYTHING"
#: The factor of all time limits of `lanewise explore`, in this process and in those that tests start.
PATIENCE = ("LANEWISE_PATIENCE", "1000")
#: How many threads OpenMP's programs and OpenBLAS have; they ask when they are loaded.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def pytest_configure(config: pytest.Config) -> None:
    """Heed SIGINT, and make the cache folder of this run, unless the environment names one."""
    gc.disable()  # until the tests are collected
    pytest.register_assert_rewrite("shared_tests")
    os.environ.setdefault(RAISE_INTERNAL_ERRORS, "1")
    os.environ.setdefault(*PATIENCE)
    os.environ.setdefault(QUICKLY, "" if os.environ.get(EVERYTHING) else "1")
    for variable in ONE_THREAD:
        os.environ.setdefault(variable, "1")
    _let_hypothesis_take_its_time()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if CACHE not in os.environ:
        _make_folder(CACHE, config.add_cleanup)
    if sys.dont_write_bytecode and BYTECODE not in os.environ:
        _make_folder(BYTECODE, config.add_cleanup)
    if BYTECODE in os.environ:
        _share_bytecode(os.environ[BYTECODE])


def _let_hypothesis_take_its_time() -> None:
    """Load a profile like the usual one, without limits that depend on the speed of the machine."""
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:  # the tests that need it say so
        return
    settings.register_profile(
        "any speed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any speed")
    if not os.environ.get(EVERYTHING):
        _leave_constants_of_modules_alone()


def _leave_constants_of_modules_alone() -> None:
    """Let Hypothesis draw examples without the constants of the project's modules.

    There is no setting for it. A release of Hypothesis without such a function is left as it is.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from hypothesis.internal.conjecture import providers

        constants = providers._local_constants
        if hasattr(providers, "_get_local_constants"):
            providers._get_local_constants = lambda: constants


def _make_folder(variable: str, add_cleanup: Callable[[Callable[[], None]], None]) -> None:
    """Make a temporary folder, put its name into a variable of the environment, and remove it at the end."""
    folder = tempfile.mkdtemp(prefix="lanewise-tests-")
    os.environ[variable] = folder

    def remove() -> None:
        os.environ.pop(variable, None)
        # A process that a test has stopped may still be writing; what it leaves is no failure of the run.
        shutil.rmtree(folder, ignore_errors=True)

    add_cleanup(remove)


def _worker() -> int | None:
    """Return the number of this worker of pytest-xdist; None in the process that was started."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(name.removeprefix("gw")) if name else None


def _share_bytecode(folder: str) -> None:
    """Let this worker, and programs that tests start, write and read bytecode in the folder of the run.

    The process that was started keeps to the bytecode beside installed packages, which it finds there alone.
    """
    if _worker() is not None:
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every other worker import the files of a folder in the opposite order."""
    report = yield
    if isinstance(collector, pytest.Directory) and (_worker() or 0) % 2 and report.result:
        report.result.reverse()
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of sampled tests, and put the others into the same order in every worker.

    The order is by file, the longest files first.
    """
    _leave_out(config, items)
    items.sort(key=lambda item: (item.path.name not in LONGEST, item.path.parts))


@pytest.fixture
def only_new_objects() -> None:
    """Let `gc.collect()` look at what the test makes, not at all that tests before it have left in caches."""
    gc.freeze()


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what stays for the whole run, and come less often."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of tests that are marked as sampled, unless cases are chosen by name.

    And the parts that run apart, unless they are named.
    """
    by_name = config.option.keyword or any("::" in each for each in config.args)
    apart = [each for each in APART if not any(each in argument for argument in config.args)]
    left_out = {item for item in items if any(each in item.nodeid.partition("::")[0] for each in apart)}
    if by_name or not (left_out or any(item.get_closest_marker("sampled") for item in items)):
        return
    from everything import EVERYTHING, is_sampled

    if EVERYTHING:
        left_out.clear()
    cases = Counter[str]()
    for item in items:
        marker, test = item.get_closest_marker("sampled"), item.nodeid.partition("[")[0]
        if marker is not None and not is_sampled(marker.args[0], cases[test]):
            left_out.add(item)
        cases[test] += 1
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
