"""Run the planted mistakes and their right twins under compute-sanitizer, on a GPU: what do its tools find?

    PYTHONPATH=src python benchmarks/sanitizer.py [words] [--out benchmarks/results/h200_sanitizer.json]

It needs nvcc, ptxas and compute-sanitizer on the path. Each source of tests/machine/mistakes is compiled to
two cubins, one with its wrong kernels, one with their right twins. Each wrong kernel is launched in a
process of its own, once plainly and once under each tool; the right twins of a source share one process for
each tool, and are run again one by one if the tool says anything. `python tests/machine/mistakes/report.py
--markdown RECORD` makes a table of the record.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# Python would take `machine` from this folder, which has a program of that name, not the package of tests.
sys.path[:] = [
    str(ROOT / "tests"),
    *(path for path in sys.path if Path(path).resolve() != ROOT / "benchmarks"),
]

from machine.mistakes import language  # noqa: E402  # after the path was set
from machine.mistakes.corpus import PAIRS, Pair, version  # noqa: E402  # after the path was set

ARCH = "sm_90"
PLAIN = "plain"
TOOLS = {
    "memcheck": ["--leak-check", "full"],
    "racecheck": [],
    "initcheck": [],
    "synccheck": [],
}
#: Seconds for a process; those that must wait for ever get less, because on a GPU they do wait.
SECONDS, SECONDS_OF_A_WAIT = 20.0, 8.0
WAITS = {"deadlock", "endless", "barrier"}


def command_output(*command: str) -> str:
    """Return what a command prints, or why it could not be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return (done.stdout + done.stderr).strip()


def driver_library() -> list[str]:
    """Return how to link the driver's library: by its path, because there may be no `libcuda.so`."""
    paths = re.findall(r"libcuda\.so\.1 .*=> (\S+)", command_output("ldconfig", "-p"))
    return ["-Xlinker", paths[0]] if paths else ["-lcuda"]


def compile_source(pair: Pair, wrong: bool, folder: Path) -> Path:
    """Compile the source of a pair to a cubin, unless it is there already, and return its path."""
    twin = "wrong" if wrong else "right"
    if pair.file.endswith(".py"):
        cubin = folder / f"{pair.name}.{twin}.cubin"
        source = cubin.with_suffix(".ptx")
        text = getattr(language, pair.name).ptx(ARCH, WRONG=wrong)
    else:
        cubin = folder / f"{pair.file}.{twin}.cubin"
        source = folder / twin / pair.file
        text = version(pair.file, wrong)
    source.parent.mkdir(exist_ok=True)
    source.write_text(text)
    if source.suffix == ".cu":
        command = ["nvcc", "-std=c++17", f"-arch={ARCH}", "-lineinfo", "-cubin", "-w"]
    else:
        command = ["ptxas", f"-arch={ARCH}", "-lineinfo"]
    done = subprocess.run(
        [*command, "-o", str(cubin), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{source}: {done.stderr[-2000:]}", file=sys.stderr)
    return cubin


def base_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def describe(pair: Pair, cubin: Path, folder: Path) -> Path:
    """Write the launch of a kernel as `sanitizer_launch.cpp` reads it, and return the path of the text."""
    bases: list[np.ndarray[Any, Any]] = []
    arguments = []
    for value in pair.make_arguments():
        if isinstance(value, np.ndarray):
            base = base_of(value)
            number = next((i for i, other in enumerate(bases) if other is base), len(bases))
            if number == len(bases):
                bases.append(base)
            offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            arguments.append(f"p {number} {offset}")
        else:
            raw = np.uint64(value) if isinstance(value, int) else value
            arguments.append(f"v {raw.tobytes().hex()}")
    stem = f"{pair.name}.{cubin.name.split('.')[-2]}"
    lines = [f"{cubin} {pair.name}", " ".join(map(str, (*three(pair.grid), *three(pair.block), pair.shared)))]
    lines.append(f"arrays {len(bases)}")
    for number, base in enumerate(bases):
        contents = folder / f"{stem}.{number}.bin"
        contents.write_bytes(base.tobytes())
        lines.append(f"{base.nbytes} {contents}")
    lines += [f"arguments {len(arguments)}", *arguments]
    path = folder / f"{stem}.launch"
    path.write_text("\n".join(lines) + "\n")
    return path


def three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    """Return sizes of a grid or block with ones for those left out."""
    x, y, z, *_ = (*sizes, 1, 1)
    return x, y, z


def run(command: list[str], seconds: float) -> tuple[str, bool]:
    """Run a command in its own process group; return its output and whether its time ran out."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        return process.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], True


def judge(tool: str, output: str, timed_out: bool, lines: Iterable[int]) -> dict[str, Any]:
    """Return what the output of a tool says: errors, warnings, lines, and the launch's own result."""
    launches = re.findall(r"^LAUNCH (\w+) (\w+) (\w+)$", output, re.MULTILINE)
    result: dict[str, Any] = {"timed_out": timed_out, "result": launches[-1][1] if launches else "none"}
    if tool == PLAIN:
        result["digest"] = launches[-1][2] if launches else ""
        return result
    summary = re.search(r"(\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)", output)
    errors = re.search(r"ERROR SUMMARY: (\d+) errors?", output)
    result["errors"] = int(summary[2]) if summary else int(errors[1]) if errors else 0
    result["warnings"] = int(summary[3]) if summary else 0
    if not summary and not errors:
        # A process that was ended for its time wrote no summary: count what it had said until then.
        result["errors"] = len(
            re.findall(
                r"^========= (?:Error|Invalid|Barrier|Uninit|Leaked|Double|Malloc)", output, re.MULTILINE
            )
        )
    named = sorted({int(line) for line in re.findall(r"\.(?:cu|ptx|py):(\d+)", output)})
    result["lines"] = named[:12]
    result["on_line"] = bool(set(named) & set(lines))
    said = [
        line
        for line in output.splitlines()
        if line.startswith("========= ") and "COMPUTE-SANITIZER" not in line
    ]
    result["first"] = said[0][10:160].strip() if said and (result["errors"] or result["warnings"]) else ""
    return result


class Session:
    """The launches of one run of this program: the compiled programs, the deadline and what was found."""

    def __init__(self, pairs: list[Pair], folder: Path, deadline: float, workers: int) -> None:
        self.pairs, self.folder, self.deadline = pairs, folder, deadline
        self.pool = ThreadPoolExecutor(workers)
        self.launcher = str(folder / "launcher")
        self.found: dict[str, Any] = {
            pair.name: {"cause": pair.cause, "file": pair.file, "wrong": {}, "right": {}} for pair in pairs
        }
        self.launches: dict[tuple[str, bool], str] = {}

    def build(self) -> None:
        """Compile the launcher and every source, and write the description of every launch."""
        launcher = str(ROOT / "benchmarks" / "sanitizer_launch.cpp")
        command = ["nvcc", "-std=c++17", "-O1", "-o", self.launcher, launcher, *driver_library()]
        building = self.pool.submit(subprocess.run, command, check=True)
        versions = {}
        for pair in self.pairs:
            for wrong in (True, False):
                key = (pair.name if pair.file.endswith(".py") else pair.file, wrong)
                if (pair.kinds or not wrong) and key not in versions:
                    versions[key] = self.pool.submit(compile_source, pair, wrong, self.folder)
        for pair in self.pairs:
            for wrong in [True, False] if pair.kinds else [False]:
                cubin = versions[pair.name if pair.file.endswith(".py") else pair.file, wrong].result()
                self.launches[pair.name, wrong] = str(describe(pair, cubin, self.folder))
        building.result()

    def go_on(self, record: dict[str, Any]) -> None:
        """Take over what an earlier record has of these kernels."""
        for name, each in record["kernels"].items():
            if name in self.found:
                self.found[name] |= {"wrong": each["wrong"], "right": each["right"]}

    def is_known(self, pair: Pair, wrong: bool, tool: str) -> bool:
        """Say whether a tool has been run on a kernel."""
        said = self.found[pair.name]["wrong" if wrong else "right"].get(tool, {"not_run": True})
        return "not_run" not in said

    def run_one(self, pair: Pair, wrong: bool, tool: str) -> None:
        """Launch one kernel under one tool and note what it said."""
        where = self.found[pair.name]["wrong" if wrong else "right"]
        if self.is_known(pair, wrong, tool):
            return
        if time.monotonic() > self.deadline:
            where[tool] = {"not_run": True}
            return
        seconds = SECONDS_OF_A_WAIT if wrong and WAITS & pair.kinds else SECONDS
        output, timed_out = run(self.command(tool, [self.launches[pair.name, wrong]]), seconds)
        where[tool] = judge(tool, output, timed_out, pair.lines)

    def run_together(self, pairs: list[Pair], tool: str) -> list[Pair]:
        """Launch right twins in one process; return them all if the tool said anything."""
        pairs = [pair for pair in pairs if not self.is_known(pair, False, tool)]
        if time.monotonic() > self.deadline or not pairs:
            return pairs
        output, timed_out = run(
            self.command(tool, [self.launches[p.name, False] for p in pairs]), 3 * SECONDS
        )
        silent = judge(tool, output, timed_out, ())
        if timed_out or silent["errors"] or silent["warnings"] or output.count("LAUNCH ") < len(pairs):
            return pairs
        for pair in pairs:
            self.found[pair.name]["right"][tool] = {**silent, "together": True}
        return []

    def command(self, tool: str, launches: list[str]) -> list[str]:
        """Return the command line of a launch under a tool, or of a plain one."""
        before = (
            []
            if tool == PLAIN
            else ["compute-sanitizer", "--tool", tool, "--print-limit", "20", *TOOLS[tool]]
        )
        return [*before, self.launcher, *launches]

    def run_all(self) -> None:
        """Run every kernel under every tool."""
        wrong = [pair for pair in self.pairs if pair.kinds]
        # The kernels that wait for ever come first, spread over the others, so that none is left for the end.
        wrong.sort(key=lambda pair: not WAITS & pair.kinds)
        futures = [self.pool.submit(self.run_one, pair, True, tool) for tool in TOOLS for pair in wrong]
        files = sorted({pair.file for pair in self.pairs})
        together = [
            self.pool.submit(self.run_together, [pair for pair in self.pairs if pair.file == file], tool)
            for file in files
            for tool in TOOLS
        ]
        alone = [
            (future.result(), tool) for future, tool in zip(together, [*TOOLS] * len(files), strict=True)
        ]
        futures += [
            self.pool.submit(self.run_one, pair, False, tool) for pairs, tool in alone for pair in pairs
        ]
        for future in futures:
            future.result()
        plain = [self.pool.submit(self.run_one, pair, False, PLAIN) for pair in self.pairs]
        plain += [self.pool.submit(self.run_one, pair, True, PLAIN) for pair in wrong]
        for future in plain:
            future.result()
        for each in self.found.values():
            digests = [each[twin].get(PLAIN, {}).get("digest") for twin in ("wrong", "right")]
            if all(digests):
                each["wrong"][PLAIN]["same_result_as_right"] = digests[0] == digests[1]


def one_line_each(record: dict[str, Any]) -> str:
    """Return the record as JSON with a line for each kernel, and without what is empty, false or zero."""
    for each in record["kernels"].values():
        for twin in ("wrong", "right"):
            each[twin] = {tool: {k: v for k, v in said.items() if v} for tool, said in each[twin].items()}
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in record["kernels"].items()]
    head = json.dumps({**record, "kernels": None}, indent=1)
    return head.replace('"kernels": null', '"kernels": {\n' + ",\n".join(lines) + "\n }") + "\n"


def main() -> None:
    """Compile, run, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only pairs whose name, cause or file contains one of them")
    parser.add_argument("--out", default=str(Path(os.environ.get("OUT", ".")) / "h200_sanitizer.json"))
    parser.add_argument("--seconds", type=float, default=470, help="what is not run by then is noted as such")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--go-on", type=Path, help="a record that was cut short: run what it lacks")
    options = parser.parse_args()
    start = time.monotonic()
    # compute-sanitizer does not see the asynchronous proxy: the pairs in hopper/ are not for it.
    described = [
        (pair, f"{pair.name} {pair.cause} {pair.file}")
        for pair in PAIRS
        if not pair.file.startswith("hopper/")
    ]
    pairs = [p for p, text in described if not options.words or any(word in text for word in options.words)]
    folder = Path(tempfile.mkdtemp(prefix="sanitizer-"))
    session = Session(pairs, folder, start + options.seconds, options.workers)
    try:
        if options.go_on:
            session.go_on(json.loads(options.go_on.read_text()))
        session.build()
        print(f"built in {time.monotonic() - start:.0f} s")
        session.run_all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    device = command_output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").split(
        ", "
    )
    record = {
        "what": "what compute-sanitizer's tools say of planted mistakes and of their right twins",
        "device": device[0],
        "driver": device[-1],
        "toolkit": command_output("nvcc", "--version").splitlines()[-1],
        "sanitizer": command_output("compute-sanitizer", "--version").splitlines()[-1],
        "date": datetime.date.today().isoformat(),
        "seconds": round(time.monotonic() - start),
        "kernels": session.found,
    }
    Path(options.out).write_text(one_line_each(record))
    for tool in TOOLS:
        seen = [(e["wrong"].get(tool, {}), e["right"].get(tool, {})) for e in session.found.values()]
        found = sum(bool(wrong.get("errors")) for wrong, _ in seen)
        accused = sum(bool(right.get("errors")) for _, right in seen)
        left = sum("not_run" in each for both in seen for each in both)
        print(
            f"{tool:10} found {found} of {sum(bool(w) for w, _ in seen)}, accused {accused}, not run {left}"
        )
    print(f"{options.out}, {record['seconds']} s")


if __name__ == "__main__":
    main()
