"""A public test suite on a virtual GPU through lanewise's pytest plugin: a sample of it, counted.

    git clone https://github.com/BobMcDear/attorch
    python benchmarks/public_tests.py attorch --of-each 2 --seed 22 --check --save attorch.json
    python benchmarks/public_tests.py triton --tests python/test/unit/language/test_core.py --of-each 1

All tests are collected under the virtual GPU, and the sample is drawn before any of them runs: --of-each
cases of every test function, then --sample of these. Each process has a share of them, by files, and takes
its tests one after the other; one that crashes or exceeds the limit of a test is started again behind it. A
row of the result has the name of the test, its verdict (passed, failed, skipped, crashed, time, not run),
why, and the seconds that it took.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TypedDict

import pytest

SOURCE = Path(__file__).parents[1] / "src"
BEGAN = "began"


class Row(TypedDict, total=False):
    """What became of a test."""

    test: str
    verdict: str
    why: str
    seconds: float


class Draw(TypedDict):
    """How the sample is drawn."""

    seed: int
    of_each: int | None
    sample: int | None


# in the process that runs tests --------------------------------------------------------------------------


class Recorder:
    """A plugin of pytest that writes a line when a test begins and another when it has ended."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.row: Row = {}
        self.begin = 0.0

    def write(self, row: Row) -> None:
        with self.log.open("a") as log:
            log.write(json.dumps(row) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.row, self.begin = {"test": nodeid, "verdict": "passed", "why": ""}, time.perf_counter()
        self.write({"test": nodeid, "verdict": BEGAN, "why": ""})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "passed" or self.row["verdict"] == "failed":
            return
        self.row["verdict"] = report.outcome
        if isinstance(report.longrepr, tuple):
            self.row["why"] = report.longrepr[2]
        else:
            lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            self.row["why"] = "\n".join(lines or report.longreprtext.splitlines()[-12:])[:3000]

    def pytest_runtest_logfinish(self) -> None:
        self.row["seconds"] = round(time.perf_counter() - self.begin, 2)
        self.write(self.row)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which a process is told what to run and where to write."""
    parser.addoption("--record-tests", type=Path, help="the folder to which names and verdicts are written")
    parser.addoption("--draw", help="how the sample is drawn, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Write verdicts if a folder is named."""
    folder = config.getoption("--record-tests")
    if folder is not None:
        config.pluginmanager.register(Recorder(folder / "log"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw the sample, and run nothing; or keep what is left of it: the tests that have no verdict yet."""
    folder: Path | None = config.getoption("--record-tests")
    if folder is None:
        return
    names = folder / "names"
    if not names.exists():
        how: Draw = json.loads(config.getoption("--draw"))
        (folder / "collected").write_text(str(len(items)))
        names.write_text("\n".join(drawn([each.nodeid for each in items], how)))
        items.clear()
    left = set(names.read_text().splitlines()) - set(verdicts(folder / "log"))
    items[:] = [each for each in items if each.nodeid in left]


def drawn(names: list[str], how: Draw) -> list[str]:
    """Return the sample: some cases of each test function, and some of these."""
    rng = random.Random(how["seed"])
    if how["of_each"] is not None:
        functions: dict[str, list[str]] = {}
        for name in names:
            functions.setdefault(name.partition("[")[0], []).append(name)
        names = [
            name
            for cases in functions.values()
            for name in rng.sample(cases, min(how["of_each"], len(cases)))
        ]
    if how["sample"] is not None:
        names = rng.sample(names, min(how["sample"], len(names)))
    return names


# in the process that counts ------------------------------------------------------------------------------


def command(asked: argparse.Namespace, *more: str) -> list[str]:
    """Return the words that start pytest in the suite's folder."""
    words = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-p", "lanewise.pytest"]
    words += ["-p", Path(__file__).stem, "--gpu", asked.gpu, "-p", "no:cacheprovider", "--rootdir", "."]
    words += ["--continue-on-collection-errors", *asked.option]
    return [*words, *more]


def environment() -> dict[str, str]:
    """Return the variables with which lanewise and this file are imported."""
    path = [str(SOURCE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def verdicts(log: Path) -> dict[str, Row]:
    """Return the last line of each test."""
    lines = log.read_text().splitlines() if log.exists() else []
    return {row["test"]: row for row in map(json.loads, lines)}


def sample_of(asked: argparse.Namespace, folder: Path) -> list[str]:
    """Collect all tests in a process, and return the names of the sample."""
    how: Draw = {"seed": asked.seed, "of_each": asked.of_each, "sample": asked.sample}
    words = command(asked, "--record-tests", str(folder), "--draw", json.dumps(how), "-q", *asked.tests)
    with (folder / "output").open("wb") as output:
        subprocess.run(words, cwd=asked.folder, env=environment(), stdout=output, stderr=output, check=False)
    names = folder / "names"
    if not names.exists():
        raise SystemExit((folder / "output").read_text(errors="replace")[-3000:])
    return names.read_text().splitlines()


class Runner:
    """Processes that run one share of the sample, one process at a time."""

    def __init__(self, asked: argparse.Namespace, names: list[str], folder: Path) -> None:
        self.asked, self.folder, self.output = asked, folder, folder / "output"
        folder.mkdir()
        (folder / "names").write_text("\n".join(names))
        self.start()

    def names(self) -> list[str]:
        """Return the share."""
        return (self.folder / "names").read_text().splitlines()

    def rows(self) -> dict[str, Row]:
        """Return the last line of each test that began."""
        return verdicts(self.folder / "log")

    def start(self) -> None:
        """Start a process that runs what is left."""
        files = sorted({name.partition("::")[0] for name in self.names() if name not in self.rows()})
        options = ["--record-tests", str(self.folder), "-q"]
        options += ["--check-launches"] if self.asked.check else []
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command(self.asked, *options, *files), cwd=self.asked.folder,
                env=environment(), stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def is_over(self) -> bool:
        """Look after the process; start it again behind a test that ended it. Whether all tests are done."""
        status, log = self.process.poll(), self.folder / "log"
        running = [row for row in self.rows().values() if row["verdict"] == BEGAN]
        if status is None and (not running or time.time() - log.stat().st_mtime < self.asked.seconds):
            return False
        self.end()
        for row in running:
            why = f"more than {self.asked.seconds} s" if status is None else f"status {status}"
            verdict = "time" if status is None else "crashed"
            with log.open("a") as lines:
                lines.write(json.dumps({"test": row["test"], "verdict": verdict, "why": why}) + "\n")
        left = [name for name in self.names() if name not in self.rows()]
        if left and running:
            self.start()
            return False
        if left:
            print(self.output.read_text(errors="replace")[-1500:], flush=True)
        return True

    def end(self) -> None:
        """End the process, if it runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def run(asked: argparse.Namespace) -> tuple[int, list[Row]]:
    """Run the tests; return how many were collected, and the rows of the sample."""
    begin, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="public_tests"))
    print("logs:", folder, flush=True)
    names = sorted(sample_of(asked, folder), key=lambda name: name.partition("::")[0])
    size = -(-len(names) // asked.processes)
    shares = [names[first : first + size] for first in range(0, len(names), size)]
    runners = [Runner(asked, share, folder / str(number)) for number, share in enumerate(shares)]
    running = runners
    while running and time.monotonic() - begin < asked.all_seconds:
        running = [each for each in running if not each.is_over()]
        time.sleep(0.5)
    for each in running:
        each.end()
    nothing: Row = {"verdict": "not run", "why": f"all ended after {asked.all_seconds} s"}
    rows: list[Row] = []
    for each in runners:
        ended = {name: row for name, row in each.rows().items() if row["verdict"] != BEGAN}
        rows += [ended.get(name, {"test": name, **nothing}) for name in each.names()]
    return int((folder / "collected").read_text()), sorted(rows, key=lambda row: row["test"])


def main() -> None:
    """Draw the sample, run it, print the counts, and save the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the checkout of the suite, in which pytest is started")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files or folders of tests in it")
    parser.add_argument("--sample", type=int, help="how many tests (default: all)")
    parser.add_argument("--of-each", type=int, help="how many cases of each test function (default: all)")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--check", action="store_true", help="check every launch: pytest --check-launches")
    parser.add_argument("--seconds", type=int, default=300, help="limit of a test")
    parser.add_argument("--all-seconds", type=int, default=36000, help="limit of all tests together")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--option", action="append", default=[], help="an option for pytest")
    parser.add_argument("--save", type=Path, help="a JSON file")
    asked = parser.parse_args()
    collected, rows = run(asked)
    counts = Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} of {collected} tests (seed {asked.seed}): {json.dumps(counts)}")
    for row in rows:
        if row["verdict"] not in ("passed", "skipped"):
            print(f"{row['verdict']}: {row['test']}\n    {row['why'].splitlines()[0] if row['why'] else ''}")
    if asked.save is not None:
        result = {
            "suite": asked.folder.resolve().name,
            "tests": collected,
            "seed": asked.seed,
            "gpu": asked.gpu,
            "checked": asked.check,
            "counts": counts,
            "rows": rows,
        }
        asked.save.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
