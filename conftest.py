"""The test suite keeps compiled code in a cache folder of its own, never in the user's.

lanewise keeps machine code on disk, below the user's cache directory unless LANEWISE_CACHE_DIR names another
folder. The process in which pytest is started makes one temporary folder for the whole run and puts its name
into that variable. The workers of pytest-xdist and the programs that tests start inherit the variable: what
one of them compiled is there for all others. When the run ends, the process that made the folder removes it.

A variable that is already set is left as it is, and its folder is kept: `LANEWISE_CACHE_DIR=/tmp/warm pytest`
starts the next run with what this one compiled, and `LANEWISE_CACHE_DIR= pytest` keeps nothing on disk. By
the same rule a worker neither makes nor removes a folder: it finds the variable set.

A script starts programs in the background with SIGINT ignored, and what they start inherits that. Tests of
Ctrl-C would then wait for ever, so the run heeds the signal again.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest

CACHE = "LANEWISE_CACHE_DIR"
#: With this set, an error inside the machine's compiler is raised as it is, not as an InternalError.
RAISE_INTERNAL_ERRORS = "LANEWISE_RAISE_INTERNAL_ERRORS"


def pytest_configure(config: pytest.Config) -> None:
    """Heed SIGINT, and make the cache folder of this run, unless the environment names one."""
    os.environ.setdefault(RAISE_INTERNAL_ERRORS, "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if CACHE in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="lanewise-tests-")
    os.environ[CACHE] = folder

    def remove() -> None:
        os.environ.pop(CACHE, None)
        # A process that a test has stopped may still be writing; what it leaves is no failure of the run.
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(remove)
