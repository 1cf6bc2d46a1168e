"""CUTLASS's own GoogleTests for SM80 and SM90 on a virtual GPU: a random sample of test cases.

    python benchmarks/cutlass_tests.py cutlass/ --gtest /usr/src/googletest/googletest --save results.json

The sample is drawn before anything runs, from all test cases whose suites are named SM80… or SM90… and whose
files are in CUTLASS's lists for CMake. nvcc takes a minute for CUTLASS's headers alone, so test cases that
include the same testbed are built together, and the cases of their files that were not drawn are cut out, as
CUTLASS's split_test_cmake.py does. Each case has a process of its own: SM80 on an A100, SM90 on an H100.
"""

import argparse
import itertools
import json
import lzma
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from limited_process import run_limited

TEST = re.compile(
    r"^[ \t]*(TEST|TEST_F|TYPED_TEST|CUTLASS_TEST_L[0-2])\s*\(\s*(\w+)\s*,\s*(\w+)", re.MULTILINE
)
TESTBED = re.compile(r'#include "([\w/.]*(?:testbed|configuration)\w*\.h(?:pp)?)"')
#: Suites of these names, and the GPU that their cases run on.
GPUS = {"SM80": "A100", "SM90": "H100"}
TARGETS = {"SM80": "80", "SM90": "90a"}
#: How many cases are built together, if they come from several files.
GROUP_SIZE = 5


@dataclass(frozen=True)
class Case:
    """A test case: its file below test/unit, the macro that declares it, and its two names."""

    file: str
    macro: str
    suite: str
    title: str

    @property
    def arch(self) -> str:
        return self.suite[:4]

    @property
    def filter(self) -> str:
        """The name by which GoogleTest selects the case."""
        if self.macro == "TYPED_TEST":
            return f"{self.suite}/*.{self.title}"
        level = f"L{self.macro[-1]}_" if self.macro.startswith("CUTLASS") else ""
        return f"{self.suite}.{level}{self.title}"


@dataclass
class Group:
    """Test cases that one library holds."""

    name: str
    arch: str
    folder: str
    source: str
    cases: list[Case] = field(default_factory=list)


def without_comments(text: str) -> str:
    """Return C++ with spaces in place of comments and of what `#if 0` disables: offsets stay."""
    text = re.sub(
        r"/\*.*?\*/|//[^\n]*", lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.DOTALL
    )
    lines: list[str] = []
    depth, disabled = 0, 0
    for line in text.split("\n"):
        if re.match(r"\s*#\s*if", line):
            depth += 1
            if not disabled and re.match(r"\s*#\s*if\s+0\b", line):
                disabled = depth
        elif re.match(r"\s*#\s*(endif|el)", line):
            disabled = 0 if disabled == depth else disabled
            depth -= "endif" in line
        lines.append(" " * len(line) if disabled else line)
    return "\n".join(lines)


def end_of(text: str, begin: int, macro: str) -> int:
    """Return where a test case ends: at the brace of its body, or at the parenthesis of its macro."""
    opening, closing = "()" if macro.startswith("CUTLASS") else "{}"
    depth = 0
    for at in range(text.index(opening, begin), len(text)):
        depth += (text[at] == opening) - (text[at] == closing)
        if not depth and text[at] == closing:
            return at + 1
    raise ValueError("a test case has no end")


def all_cases(root: Path) -> list[Case]:
    """Return all test cases of SM80 and SM90 in files that CMake builds."""
    listed = {
        Path(name).name
        for file in root.rglob("CMakeLists.txt")
        for name in re.findall(r"[\w./-]+\.cu", file.read_text())
    }
    return [
        Case(str(file.relative_to(root)), *match.groups())
        for file in sorted(root.rglob("*.cu"))
        if file.name in listed
        for match in TEST.finditer(without_comments(file.read_text(errors="replace")))
        if match.group(2)[:4] in GPUS
    ]


def cut(text: str, wanted: set[tuple[str, str]]) -> tuple[str, bool]:
    """Return a source file without its other cases, and whether it has definitions beside its cases."""
    bare = without_comments(text)
    kept, beside, at = [], [], 0
    for match in TEST.finditer(bare):
        if match.start() < at:
            continue
        end = end_of(bare, match.start(), match.group(1))
        kept.append(text[at : end if match.groups()[1:] in wanted else match.start()])
        beside.append(bare[at : match.start()])
        at = end
    rest = "".join([*beside, bare[at:]])
    has_macros = re.search(r"^\s*#\s*define", rest, re.MULTILINE) is not None
    rest = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|using namespace [\w:]+;", "", rest, flags=re.MULTILINE)
    return "".join([*kept, text[at:]]), has_macros or bool(rest.strip(" \n\t;"))


def grouped(root: Path, sample: list[Case]) -> list[Group]:
    """Return the cases in groups: those of one file; files with one testbed up to GROUP_SIZE cases."""
    files: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in sample:
        files[case.arch, case.file].append(case)
    kinds: dict[tuple[str, ...], list[tuple[str, list[Case]]]] = defaultdict(list)
    for (arch, file), cases in files.items():
        text, is_own = cut(
            (root / file).read_text(errors="replace"), {(each.suite, each.title) for each in cases}
        )
        testbeds = sorted(set(TESTBED.findall(text)))
        kinds[arch, str(Path(file).parent), *testbeds, file if is_own else ""].append((text, cases))
    groups: list[Group] = []
    for kind, members in sorted(kinds.items()):
        group: Group | None = None
        for text, cases in members:
            if group is None or len(group.cases) + len(cases) > GROUP_SIZE:
                group = Group(f"g{len(groups):02}", kind[0], kind[1], "")
                groups.append(group)
            group.source += f"\n{text}\n"
            group.cases += cases
    return groups


class Builder:
    """nvcc for the cases: PTX alone, as `lanewise run program.cu` builds; GoogleTest has its own library."""

    def __init__(self, checkout: Path, gtest: Path, work: Path, options: list[str]) -> None:
        self.work, tests = work, checkout / "test/unit"
        self.tests, self._gtest = tests, gtest
        folders = [
            checkout / "include", checkout / "tools/util/include", tests, tests / "common", gtest / "include",
        ]  # fmt: skip
        # As CUTLASS's CMake builds by default (Release), with all levels of tests.
        self._options = [
            "-w", "-std=c++17", "-O1", "-DNDEBUG", "-DCUTLASS_TEST_LEVEL=2", "--expt-relaxed-constexpr",
            "-Xcompiler=-fPIC", *(f"-I{folder}" for folder in folders), *options,
        ]  # fmt: skip

    def prepare(self) -> None:
        """Build GoogleTest and main()."""
        folders = [f"-I{self._gtest}", f"-I{self._gtest / 'include'}"]
        library, source = str(self.work / "libgtest.so"), str(self._gtest / "src/gtest-all.cc")
        commands = [["g++", "-O1", "-fPIC", "-shared", *folders, source, "-o", library]]
        for name, file in (("main.o", "test_unit.cpp"), ("filter.o", "common/filter_architecture.cpp")):
            commands.append(
                ["nvcc", *self._options, "-c", str(self.tests / file), "-o", str(self.work / name)]
            )
        processes = [subprocess.Popen(command) for command in commands]
        statuses = [process.wait() for process in processes]
        if any(statuses):
            raise RuntimeError("GoogleTest could not be built")

    def build(self, group: Group, seconds: float) -> str:
        """Build a group; return what went wrong, or nothing."""
        source, library = self.work / f"{group.name}.cu", self.work / f"{group.name}.so"
        source.write_text(group.source)
        target = f"compute_{TARGETS[group.arch]}"
        command = [
            "nvcc", "-shared", "-Xlinker=-Bsymbolic", "-cudart=none", "--no-compress", *self._options,
            f'-DCUTLASS_TARGET_NAME="{group.name}"', "-gencode", f"arch={target},code={target}",
            f"-I{self.tests / group.folder}", str(source), str(self.work / "main.o"),
            str(self.work / "filter.o"), f"-L{self.work}", "-lgtest", f"-Xlinker=-rpath={self.work}",
            "-o", str(library.with_suffix(".part")),
        ]  # fmt: skip
        status, output = run_limited(command, self.work, seconds)
        if status != 0:
            return "nvcc: time" if status is None else f"nvcc: {output[-1500:]}"
        subprocess.run(["strip", library.with_suffix(".part")], check=True)
        library.with_suffix(".part").rename(library)
        return ""


def verdict_of(status: int | None, output: str) -> str:
    """Return how a case ended, by GoogleTest's own word."""
    if status is None:
        return "time"
    passed = re.search(r"\[  PASSED  \] (\d+) test", output)
    skipped = output.count("[  SKIPPED ]")
    if status or passed is None:
        return "failed"
    if int(passed.group(1)):
        return "passed"
    return "skips itself" if skipped else "not compiled in"


class Schedule:
    """Builds and runs by several workers: what is built runs first; all end by a time."""

    def __init__(self, asked: argparse.Namespace, builder: Builder) -> None:
        self._asked, self._builder, self._begin = asked, builder, time.monotonic()
        self._lock = threading.Lock()
        self._order = itertools.count()
        #: (0 for runs and 1 for builds, number, what)
        self._work: queue.PriorityQueue[tuple[int, int, Group | tuple[Group, Case]]] = queue.PriorityQueue()
        #: Groups whose cases may still come to be run.
        self._unbuilt = 0
        self.results: list[dict[str, object]] = []

    def add(self, group: Group) -> None:
        library = self._builder.work / f"{group.name}.so"
        kept = self._asked.built / f"{group.name}.so.xz" if self._asked.built else None
        if kept is not None and kept.is_file() and not library.is_file():
            library.write_bytes(lzma.decompress(kept.read_bytes()))
        if library.is_file():
            self._add_runs(group)
        else:
            self._unbuilt += 1
            self._work.put((1, next(self._order), group))

    def _add_runs(self, group: Group) -> None:
        for case in group.cases:
            if not self._asked.build_alone:
                self._work.put((0, next(self._order), (group, case)))

    def _left(self) -> float:
        return float(self._asked.seconds - (time.monotonic() - self._begin))

    def _tasks(self) -> Iterator[Group | tuple[Group, Case]]:
        while self._left() > 1:
            try:
                yield self._work.get(timeout=1)[2]
            except queue.Empty:
                with self._lock:
                    if not self._unbuilt:
                        return

    def _worker(self) -> None:
        for task in self._tasks():
            if isinstance(task, Group):
                try:
                    self._build(task)
                finally:
                    with self._lock:
                        self._unbuilt -= 1
            else:
                self._run(*task)

    def _build(self, group: Group) -> None:
        begin = time.monotonic()
        if begin - self._begin > self._asked.build_seconds:
            return
        wrong = self._builder.build(group, self._left())
        print(
            f"built        {time.monotonic() - begin:6.1f}  {group.name} {len(group.cases)} {wrong[-300:]}",
            flush=True,
        )
        if not wrong:
            self._add_runs(group)
            if self._asked.keep:
                library = self._builder.work / f"{group.name}.so"
                (self._asked.keep / f"{group.name}.so.xz").write_bytes(
                    lzma.compress(library.read_bytes(), preset=1)
                )
        elif wrong != "nvcc: time":
            for case in group.cases:
                self._add(case, group, {"verdict": "not built", "end": wrong})

    def _run(self, group: Group, case: Case) -> None:
        gpu = GPUS[case.arch]
        words = [
            sys.executable, "-m", "lanewise", self._asked.command, "--gpu", gpu,
            str(self._builder.work / f"{group.name}.so"), "--", f"--gtest_filter={case.filter}",
        ]  # fmt: skip
        begin, limit = time.monotonic(), min(self._asked.test_seconds, self._left())
        libraries = {"LD_LIBRARY_PATH": str(self._builder.work)}
        status, output = run_limited(words, self._builder.work, limit, {**os.environ, **libraries})
        if status is None and limit < self._asked.test_seconds:
            return  # all ends: nothing is known of this case
        seconds = round(time.monotonic() - begin, 1)
        verdict = verdict_of(status, output)
        lines = [line[:300] for line in output.splitlines()]
        row: dict[str, object] = {"gpu": gpu, "verdict": verdict, "seconds": seconds}
        if verdict not in ("passed", "skips itself"):
            row["end"] = "\n".join(lines)[-3000:]
        self._add(case, group, row)

    def _add(self, case: Case, group: Group, row: dict[str, object]) -> None:
        with self._lock:
            self.results.append({"file": case.file, "test": case.filter, "library": group.name, **row})
            print(f"{row['verdict']!s:<12} {row.get('seconds', 0)!s:>6}  {case.filter}", flush=True)
            if self._asked.save:
                ordered = sorted(self.results, key=lambda each: (str(each["file"]), str(each["test"])))
                part = self._asked.save.with_suffix(".part")
                part.write_text(json.dumps(ordered, indent=1) + "\n")
                part.replace(self._asked.save)  # whoever reads it while this runs has a whole file

    def run(self) -> None:
        workers = [threading.Thread(target=self._worker) for _ in range(self._asked.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def main() -> None:
    """Draw the sample, build it, run it, and print a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--gtest", type=Path, default=Path("/usr/src/googletest/googletest"))
    parser.add_argument("--work", type=Path, default=Path("cutlass_tests"), help="a folder for what is built")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=36000, help="when all must have ended")
    parser.add_argument("--build-seconds", type=float, default=36000, help="when the last build may begin")
    parser.add_argument("--test-seconds", type=float, default=600, help="a limit for each case")
    parser.add_argument("--only", default="", help="a regular expression for groups")
    parser.add_argument("--cases", default="", help="a regular expression for cases")
    parser.add_argument("--passed", type=Path, help="results of an earlier run: what passed is not run again")
    parser.add_argument("--built", type=Path, help="a folder with libraries that were built before")
    parser.add_argument("--keep", type=Path, help="a folder for the libraries, compressed")
    parser.add_argument("--build-alone", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the sample, and build nothing")
    parser.add_argument("--command", choices=("run", "check"), default="run")
    parser.add_argument("--option", action="append", default=[], help="an option of nvcc, such as -I/curand")
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    for name in ("checkout", "gtest", "work", "built", "keep"):
        if getattr(asked, name) is not None:
            setattr(asked, name, getattr(asked, name).resolve())
    root = asked.checkout / "test/unit"
    cases = all_cases(root)
    sample = random.Random(asked.seed).sample(cases, min(asked.count, len(cases)))
    groups = [group for group in grouped(root, sample) if re.search(asked.only, group.name)]
    before = json.loads(asked.passed.read_text()) if asked.passed else []
    passed = {row["test"] for row in before if row["verdict"] == "passed"}
    slow = {row["test"] for row in before if row["verdict"] == "time"}
    for group in groups:
        group.cases = [
            case for case in group.cases if case.filter not in passed and re.search(asked.cases, case.filter)
        ]
    groups = [group for group in groups if group.cases]
    print(
        f"{len(sample)} of {len(cases)} test cases, {sum(len(group.cases) for group in groups)} of them now"
    )
    if asked.list:
        for group in groups:
            for case in group.cases:
                print(group.name, case.file, case.filter)
        return
    asked.work.mkdir(parents=True, exist_ok=True)
    builder = Builder(asked.checkout, asked.gtest, asked.work, asked.option)
    schedule = Schedule(asked, builder)
    if shutil.which("nvcc") and not (asked.work / "filter.o").is_file():
        builder.prepare()

    def weight(group: Group) -> tuple[bool, bool, int]:
        """What takes longest begins first: cases that had not ended before, then SM90's builds."""
        return any(case.filter in slow for case in group.cases), group.arch == "SM90", len(group.cases)

    for group in sorted(groups, key=weight, reverse=True):
        schedule.add(group)
    schedule.run()


if __name__ == "__main__":
    main()
