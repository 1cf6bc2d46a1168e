"""Random kernels on the CPU machine beside the oracle: compared bit for bit, and cut down where they differ.

`python -m lang.compare_kernels --seconds 3600` in the folder `tests` looks for an hour; `--seed N` and
`--programs 1` look at one program again. `test_lang_oracle.py` does so in the suite.
"""

import argparse
import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lanewise as lw
from lang import oracle
from lang.random_aliases import alias_source
from lang.random_kernels import kernel_source
from lang.random_values import value_source

#: Elements of a row of the arrays that kernels write their variables to, and of all of it.
ROW = 64
ROOM = ROW * 200


@dataclass
class Outcome:
    """What became of one program: "same", "refused", "differs" or "broken", and more about it."""

    word: str
    detail: str = ""


def arguments(n: int) -> list[tuple[str, Any]]:
    """Arrays and numbers to run a program on."""
    x = np.arange(ROW, dtype=np.int32) * 7 % 23 - 5
    y = (np.arange(ROW, dtype=np.float32) - 11) / 4
    return [
        ("i64", np.zeros(ROOM, np.int64)), ("f64", np.zeros(ROOM, np.float64)),
        ("i32", np.zeros(ROW * 8, np.int32)), ("i32", np.arange(4 * ROW, dtype=np.int32)), ("i32", x),
        ("f32", y),
        ("i32", n),
    ]  # fmt: skip


def loaded(source: str, folder: Path) -> Any:
    """The module of a source, which has to be in a file: the language reads it."""
    path = folder / f"program_{abs(hash(source)):x}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(source: str, folder: Path, sizes: tuple[int, ...] = (0, 2, 5)) -> Outcome:
    """Run a program both ways with several arguments, and say whether the outcomes agree."""
    try:
        module = loaded(source, folder)
        kernel, warps = module.program, getattr(module, "WARPS", 1)
        kernel.ptx("sm_90")
    except lw.KernelError as error:
        return Outcome("refused", str(error).splitlines()[0].partition(": ")[2])
    except Exception as error:
        return Outcome("broken", f"the trace raised {type(error).__name__}: {error}")
    for n in sizes:
        ours, theirs = arguments(n), arguments(n)
        try:
            oracle.run(source, theirs, warps)
        except (oracle.Refusal, NameError, TypeError, AttributeError, IndexError) as error:
            return Outcome("invalid", f"the oracle raised {type(error).__name__}: {error}")
        try:
            kernel[1, 32 * warps](*(value for _, value in ours), arch="sm_90")
        except lw.LanewiseError as error:
            return Outcome("broken", f"the launch raised {error}")
        for (_, left), (_, right) in zip(ours[:4], theirs[:4], strict=True):
            same = (left == right) | ((left != left) & (right != right))
            if left.dtype == np.float64:
                same &= (np.signbit(left) == np.signbit(right)) | (left != left)
            if not same.all():
                row, lane = divmod(int(np.flatnonzero(~same)[0]), ROW)
                return Outcome(
                    "differs",
                    f"n = {n}: row {row} of {left.dtype}, thread {lane}: the kernel has "
                    f"{left[row * ROW + lane]}, Python {right[row * ROW + lane]}",
                )
    return Outcome("same")


# shrinking ----------------------------------------------------------------------------------------------


def _smaller(source: str) -> Iterator[str]:
    """Programs with one statement less, or with the body of one in its place, the largest cuts first."""
    tree = ast.parse(source)
    bodies = [
        (node, name)
        for node in ast.walk(tree)
        for name in ("body", "orelse")
        if isinstance(getattr(node, name, None), list) and getattr(node, name)
    ]
    cuts: list[tuple[int, Any, str, int]] = []
    for node, name in bodies:
        for number, statement in enumerate(getattr(node, name)):
            cuts.append((len(ast.unparse(statement)), node, name, number))
    for _, node, name, number in sorted(cuts, key=lambda cut: -cut[0]):
        statements = getattr(node, name)
        old = list(statements)
        statement = statements[number]
        inside: list[Any] = [[], getattr(statement, "body", None), getattr(statement, "orelse", None)]
        for new in inside:
            if new is None or (isinstance(statement, ast.FunctionDef | ast.ClassDef) and new):
                continue
            statements[:] = old[:number] + list(new) + old[number + 1 :]
            if not statements and name == "body":
                statements[:] = [ast.Pass()]
            yield ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            statements[:] = old


def shrink(source: str, fails: Callable[[str], bool], seconds: float = 60) -> str:
    """A smaller program that fails as well."""
    ends = time.monotonic() + seconds
    shorter = True
    while shorter and time.monotonic() < ends:
        shorter = False
        for smaller in _smaller(source):
            if time.monotonic() > ends:
                break
            if len(smaller) < len(source) and fails(smaller):
                source, shorter = smaller, True
                break
    return source


def _cut_down(source: str, outcome: Outcome, folder: Path, seconds: float) -> str:
    """What happened to a program, and the smallest one to which the same happens."""

    def fails(text: str) -> bool:
        again = compare(text, folder)
        if again.word != outcome.word:
            return False
        return again.word == "differs" or again.detail[:40] == outcome.detail[:40]

    small = source if outcome.word == "invalid" else shrink(source, fails, seconds)
    detail = compare(small, folder).detail if small != source else outcome.detail
    return f"{outcome.word}: {detail}\n{small}"


# looking ------------------------------------------------------------------------------------------------


def source_of(seed: int) -> str:
    """The program of a seed: of even ones a kernel of everything, of odd ones a short one about one thing."""
    return (kernel_source, alias_source, kernel_source, value_source)[seed % 4](seed)


def look(
    first: int, seconds: float, most: int, shrinking: float = 60
) -> tuple[Counter[str], list[str], Counter[str]]:
    """Compare programs from a seed on, for some time; return counts, findings, and why some were refused."""
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    findings: list[str] = []
    ends = time.monotonic() + seconds
    for seed in range(first, first + most):
        if time.monotonic() > ends or len(findings) > 5:
            break
        folder = Path(tempfile.mkdtemp(prefix="lanewise-programs-"))
        try:
            source = source_of(seed)
            outcome = compare(source, folder)
            counts[outcome.word] += 1
            if outcome.word == "refused":
                refusals[outcome.detail] += 1
            elif outcome.word != "same":
                findings.append(f"seed {seed}: {_cut_down(source, outcome, folder, shrinking)}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            sys.modules.pop("program", None)
    return counts, findings, refusals


def first_seed() -> int:
    """The seed of today."""
    return int(time.strftime("%Y%m%d")) * 100_000_000


def look_in_processes(first: int, seconds: float, processes: int) -> tuple[Counter[str], list[str]]:
    """Look in several processes at once, each with seeds of its own; return counts and findings."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "lang.compare_kernels", "--seconds", str(seconds),
             "--seed", str(first + number * 1_000_000), "--json"],
            cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(lw.__file__).parents[1]), "."])},
        )
        for number in range(processes)
    ]  # fmt: skip
    counts: Counter[str] = Counter()
    findings: list[str] = []
    for each in running:
        out, _ = each.communicate(timeout=seconds + 600)
        answer = json.loads(out.splitlines()[-1])
        counts.update(answer["counts"])
        findings += answer["findings"]
    return counts, findings


def main() -> None:
    """The command: look for some time, print what was found, and fail if it was anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=first_seed())
    parser.add_argument("--programs", type=int, default=1 << 30)
    parser.add_argument("--refusals", action="store_true", help="print why programs were refused")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to cut a program down")
    parser.add_argument("--source", action="store_true", help="print the program of the seed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.source:
        print(source_of(options.seed))
        return
    print(f"first seed {options.seed}", flush=True)
    counts, findings, refusals = look(options.seed, options.seconds, options.programs, options.shrink)
    if options.json:
        print(json.dumps({"counts": counts, "findings": findings}))
        return
    if options.refusals:
        for reason, count in refusals.most_common(30):
            print(count, reason)
    print(dict(counts))
    print("\n\n".join(findings))
    raise SystemExit(bool(findings))


if __name__ == "__main__":
    main()
