"""numba-cuda's own tests on a virtual GPU and in its simulator: a line of JSON for each test.

    python benchmarks/virtual_gpu_numba.py simulator.jsonl --simulator --processes 6
    python benchmarks/virtual_gpu_numba.py gpu.jsonl --passed-in simulator.jsonl --processes 6
    python benchmarks/virtual_gpu_numba.py --compare simulator.jsonl gpu.jsonl

Workers take one test file after the other. A line has the name of the test, its verdict, the reason, and
the seconds of processor time of the worker and of the processes that it started; the time to import a test
file is a line of its own. A worker that crashes or exceeds the limit of a test is started again behind it.
"""

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

BEGAN, MODULE = "began", ":module"
#: Verdicts of tests that did what they should.
GOOD = ("passed", "expected failure")


class TooLong(BaseException):
    """A test that exceeded its limit; no `except Exception` of a test keeps it."""


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def test_files() -> list[str]:
    """Return the names of the test modules, the largest files first, so that workers end together."""
    specification = importlib.util.find_spec("numba.cuda")
    if specification is None or not specification.submodule_search_locations:
        raise SystemExit("numba.cuda is not installed")
    folder = Path(specification.submodule_search_locations[0]) / "tests"
    files = sorted(folder.rglob("test_*.py"), key=lambda each: (-each.stat().st_size, each.name))
    names = [".".join(each.relative_to(folder).with_suffix("").parts) for each in files]
    return [f"numba.cuda.tests.{each}" for each in names if not each.startswith("benchmarks")]


def records(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of every test in a log; a line that was cut off is left out."""
    last = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        last[record["test"]] = record
    return last


# a worker ------------------------------------------------------------------------------------------------


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Give the test cases of a suite, nested suites included."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        elif isinstance(each, unittest.TestCase):
            yield each


def verdict(case: unittest.TestCase, limit: int) -> tuple[str, str]:
    """Run a test; return what became of it, and why."""
    result = unittest.TestResult()
    signal.alarm(limit)
    try:
        unittest.TestSuite([case]).run(result)
    except TooLong:
        return "time", f"more than {limit} s"
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {error}"[:500]
    finally:
        signal.alarm(0)
    if result.errors or result.failures:
        return "failed", (result.errors + result.failures)[0][1][-1500:]
    if result.skipped:
        return "skipped", result.skipped[0][1][:200]
    if result.expectedFailures:
        return "expected failure", ""
    return ("passed", "") if result.testsRun and not result.unexpectedSuccesses else ("failed", "not run")


def work(arguments: argparse.Namespace) -> None:
    """Run test files that no other worker has claimed, until there are none."""

    def ring(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, ring)
    wanted = None
    if arguments.passed_in:
        wanted = {name for name, each in records(arguments.passed_in).items() if each["verdict"] in GOOD}
    claims = arguments.claims
    with arguments.log.open("a") as log:
        for name in test_files():
            if wanted is not None and not any(each.startswith(name + ".") for each in wanted):
                continue
            try:
                (claims / name).touch(exist_ok=False)
            except FileExistsError:
                if not arguments.resume or name != arguments.resume:
                    continue
            run_file(name, wanted, arguments, log)


def run_file(name: str, wanted: set[str] | None, arguments: argparse.Namespace, log: TextIO) -> None:
    """Run the tests of a file, those of a crashed worker left out; write a line for each."""

    def write(test: str, verdict: str, why: str = "", **more: object) -> None:
        log.write(json.dumps({"test": test, "verdict": verdict, "why": why, **more}) + "\n")
        log.flush()

    done = records(arguments.log)
    begin = processor_seconds()
    write(name + MODULE, BEGAN)
    try:
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name))
    except BaseException as error:
        write(name + MODULE, "import", f"{type(error).__name__}: {error}"[:300])
        return
    write(name + MODULE, "imported", cpu=round(processor_seconds() - begin, 3))
    for case in cases(suite):
        test = case.id()
        if test in done or (wanted is not None and test not in wanted):
            continue
        write(test, BEGAN)
        begin, clock = processor_seconds(), time.perf_counter()
        outcome, why = verdict(case, arguments.seconds)
        took = time.perf_counter() - clock
        write(test, outcome, why, cpu=round(processor_seconds() - begin, 3), s=round(took, 3))


# the parent ----------------------------------------------------------------------------------------------


class Worker:
    """A process that runs test files, with a log of its own."""

    def __init__(self, number: int, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.log = arguments.claims / f"log.{number}"
        self.output = arguments.claims / f"output.{number}"
        self.start()

    def start(self, resume: str = "") -> None:
        asked = self.arguments
        words = [str(Path(__file__).resolve()), str(asked.log), "--worker", "--claims", str(asked.claims)]
        words += ["--own-log", str(self.log), "--seconds", str(asked.seconds), "--resume", resume]
        if asked.passed_in:
            words += ["--passed-in", str(asked.passed_in)]
        environment = dict(os.environ)
        if asked.simulator:
            environment["NUMBA_ENABLE_CUDASIM"] = "1"
            command = [sys.executable, *words]
        else:
            command = [
                sys.executable,
                "-m",
                "lanewise",
                "run",
                "--gpu",
                asked.gpu,
                words[0],
                "--",
                *words[1:],
            ]
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def is_over(self) -> bool:
        """Look after the process; return whether its work is done. One that died goes on behind its test."""
        quiet = time.time() - (self.log.stat().st_mtime if self.log.exists() else time.time())
        status = self.process.poll()
        if status is None and quiet < self.arguments.seconds + 30:
            return False
        if status == 0:
            return True
        self.stop()
        last = list(records(self.log).values())
        pending = [each["test"] for each in last if each["verdict"] == BEGAN]
        with self.log.open("a") as log:
            for test in pending:
                why = (
                    "the process did not answer"
                    if status is None
                    else f"the process ended with status {status}"
                )
                log.write(
                    json.dumps({"test": test, "verdict": "crashed", "why": f"the process {why}"}) + "\n"
                )
        if not pending:
            return True
        files = [each["test"].removesuffix(MODULE) for each in last if each["test"].endswith(MODULE)]
        in_import = any(each.endswith(MODULE) for each in pending)
        self.start("" if in_import or not files else files[-1])
        return False


def supervise(arguments: argparse.Namespace) -> None:
    """Run all test files by workers; write one log of all of them."""
    arguments.claims.mkdir(parents=True)
    end = time.time() + arguments.total
    begin = time.perf_counter()
    workers = [Worker(number, arguments) for number in range(arguments.processes)]
    running = list(workers)
    while running and time.time() < end:
        time.sleep(0.2)
        running = [each for each in running if not each.is_over()]
    for each in running:
        each.stop()
    merged = {name: each for worker in workers for name, each in records(worker.log).items()}
    arguments.log.write_text("".join(json.dumps(each) + "\n" for each in merged.values()))
    print(f"{time.perf_counter() - begin:.0f} s;", "all done" if not running else "the time was over")
    summarize(merged)


def summarize(merged: dict[str, dict[str, Any]]) -> None:
    """Print how many tests there are of each verdict, and their processor time."""
    tests = {name: each for name, each in merged.items() if not name.endswith(MODULE)}
    print(dict(Counter(each["verdict"] for each in tests.values())))
    print(f"{sum(each.get('cpu', 0) for each in tests.values()):.1f} s of processor time")


def compare(simulator: Path, gpu: Path) -> None:
    """Print what became of the tests that the simulator passes, and the processor time of both."""
    first = {k: v for k, v in records(simulator).items() if v["verdict"] in GOOD}
    second = records(gpu)
    both = [name for name in first if name in second and second[name]["verdict"] not in (BEGAN, "skipped")]
    good = [name for name in both if second[name]["verdict"] in GOOD]
    print(f"the simulator passes {len(first)}; {len(both)} of these ran, {len(good)} passed")
    for name in both:
        if name not in good:
            print(name, second[name]["verdict"], second[name]["why"].strip().splitlines()[-1:])
    times = [sum(each[name].get("cpu", 0) for name in both) for each in (first, second)]
    print(f"processor time of these: {times[0]:.1f} s in the simulator, {times[1]:.1f} s on the virtual GPU")


def main() -> None:
    """Run, or be a worker, or compare two logs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path, nargs="?", help="the file to write, a line of JSON for each test")
    parser.add_argument("--simulator", action="store_true", help="in numba-cuda's simulator")
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--passed-in", type=Path, help="only the tests that have passed in this log")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=120, help="limit of a test")
    parser.add_argument("--total", type=int, default=100000, help="limit of all tests")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("SIMULATOR", "GPU"))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--own-log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--claims", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--resume", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compare:
        compare(*arguments.compare)
    elif arguments.worker:
        arguments.log = arguments.own_log
        work(arguments)
    elif arguments.log:
        arguments.claims = arguments.log.with_suffix(".work")
        supervise(arguments)
    else:
        parser.error("name the file to write")


if __name__ == "__main__":
    main()
