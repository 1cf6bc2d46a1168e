"""How many kernels of a folder of CUDA C++ files compile, are prepared for the machine, and run as they are.

Run `python benchmarks/published.py FOLDER [--json FILE]`. Each `.cu` and `.cuh` file that defines a kernel is
compiled by `lanewise.cuda` without a change; each kernel is then compiled to machine code and launched on
made-up arguments: arrays of a million elements for pointers, 64 for sizes. So a kernel may well leave its
arrays; it then counts as stopped by its arguments, not as run. Every file has a process of its own with a
limit on time.
"""

import argparse
import json
import math
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

#: What became of a kernel, from the least to the most.
STAGES = ("not compiled", "compiled", "prepared", "stopped by its arguments", "run")
ELEMENTS, SIZE = 1 << 20, 64
GRID = (2, 2, 1)
BLOCKS = ((128, 1, 1), (16, 16, 1), (32, 8, 1), (32, 1, 1), (256, 1, 1))
SHARED_BYTES = 48 << 10
#: How many times the seconds of a kernel may pass by the clock, where other programs have the processors.
MOST_WAITS = 10
#: The beginnings of C++ types, and what NumPy calls them.
TYPES = (
    ("float", "f4"), ("double", "f8"), ("__half", "f2"), ("half", "f2"), ("unsigned char", "u1"),
    ("char", "i1"), ("signed char", "i1"), ("bool", "u1"), ("short", "i2"), ("unsigned short", "u2"),
    ("__nv_bfloat16", "u2"), ("long long", "i8"), ("unsigned long", "u8"), ("long", "i8"),
    ("unsigned int", "u4"), ("int", "i4"),
)  # fmt: skip


# one file, in a process of its own ------------------------------------------------------------------------


def examine(file: Path, kernels: list[str], skipped: set[str], arguments: argparse.Namespace) -> None:
    """Print a line of JSON for each kernel of a file as soon as it is known what becomes of it."""
    import lanewise as lw

    try:
        module = lw.cuda(file, arguments.arch, options=arguments.option)
    except lw.LanewiseError as error:
        for kernel in kernels:
            tell(kernel, "not compiled", first_error(str(error)))
        return
    for kernel in kernels:
        if kernel in skipped:
            continue
        print("\n" + json.dumps({"begins": kernel, "reached": "not compiled"}), flush=True)
        entries = [name for name in module.entries if plain(module[name].demangled) == kernel]
        try:
            entry = module[entries[0] if entries else kernel]
        except lw.LanewiseError as error:
            tell(kernel, "not compiled", reason(str(error)))
            continue
        if arguments.only == "compile":
            tell(kernel, "compiled", "")
            continue
        print("\n" + json.dumps({"reached": "compiled"}), flush=True)
        tell(kernel, *attempt(entry, arguments.only))


def attempt(entry: Any, only: str) -> tuple[str, str]:
    """Prepare a kernel and run it; what was reached, and why no more."""
    import lanewise as lw
    from lanewise.machine import KernelFault, compiled

    try:
        compiled(entry.module, entry.function, entry.module.arch).native  # noqa: B018  # asking for it compiles the kernel
    except lw.LanewiseError as error:
        return "compiled", reason(str(error))
    if only == "prepare":
        return "prepared", ""
    print("\n" + json.dumps({"reached": "prepared"}), flush=True)
    limit = entry.function.limit("reqntid") or entry.function.limit("maxntid")
    blocks = [(*limit, 1, 1)[:3]] if limit else BLOCKS
    stopped = ""
    for block in blocks:
        try:
            entry[GRID, block, SHARED_BYTES](*made_up(entry), unchecked=True)
            return "run", ""
        except KernelFault as error:
            stopped = stopped or reason(str(error))
        except lw.LanewiseError as error:
            return "prepared", reason(str(error))
    return "stopped by its arguments", stopped


def made_up(entry: Any) -> list[Any]:
    """Arguments of sensible size for the parameters of a kernel, by their C++ types if these are known."""
    match = re.search(r"\((.*)\)(?: \[clone.*)?$", entry.demangled)
    types = split_types(match.group(1)) if match else []
    values: list[Any] = []
    for number, variable in enumerate(entry.parameters):
        type_ = types[number] if len(types) == len(entry.parameters) else ""
        if variable.dims or variable.vector > 1:
            values.append(bytes(variable.size))
        elif type_.endswith("*") or (not type_ and variable.size == 8 and variable.type in ("u64", "b64")):
            base = re.sub(r"\b(?:const|volatile|restrict)\b|\*", "", type_).strip()
            dtype = next(
                (name for start, name in TYPES if base == start or base.startswith(start + " ")), "f4"
            )
            values.append(np.ones(ELEMENTS, dtype) if dtype[0] == "f" else np.zeros(ELEMENTS, dtype))
        elif variable.type.startswith("f"):
            values.append(1.0)
        else:
            values.append(SIZE if variable.size > 1 else 1)
    return values


def split_types(text: str) -> list[str]:
    """The types of parameters between the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def plain(demangled: str) -> str:
    """The name of a kernel without its result, its namespaces, template arguments and parameters."""
    name = demangled.replace("(anonymous namespace)::", "")
    while True:
        shorter = re.sub(r"<[^<>]*>", "", name)
        if shorter == name:
            break
        name = shorter
    return name.partition("(")[0].split(" ")[-1].split("::")[-1]


def first_error(text: str) -> str:
    """The first error in a compiler's words."""
    match = re.search(r"error(?: #[\w-]+)?: (.*)", text)
    return match.group(1).strip()[:160] if match else reason(text)


def reason(text: str) -> str:
    """The first line of a message."""
    return text.strip().split("\n")[0][:200]


def tell(kernel: str, stage: str, why: str) -> None:
    """Print what became of a kernel, for the process that waits."""
    print(
        "\n" + json.dumps({"kernel": kernel, "stage": stage, "why": why}), flush=True
    )  # after a printf's text


# all files ------------------------------------------------------------------------------------------------


def kernels_of(file: Path) -> dict[str, Path]:
    """The kernels that a file and the headers of its project define, and which of them defines each."""
    from lanewise.ptx.cplusplus.declarations import Kind
    from lanewise.ptx.device_compiler import PublishedSource

    main, headers = PublishedSource(
        file.read_text(encoding="utf-8", errors="replace"), str(file), "sm_80", ()
    ).read()
    found: dict[str, Path] = {}
    for source in (main, *headers.files.values()):
        for each in source.declared:
            if each.kind is Kind.FUNCTION and each.has_body and "__global__" in each.head_words():
                found.setdefault(each.name, Path(source.name).resolve())
    return found


def watch(file: Path, kernels: list[str], arguments: argparse.Namespace) -> list[dict[str, str]]:
    """What becomes of the kernels of a file, also of one that takes too long or ends its process."""
    known: dict[str, dict[str, str]] = {}
    while len(known) < len(kernels):
        command = [
            sys.executable,
            __file__,
            str(file),
            "--examine",
            "--arch",
            arguments.arch,
            "--only",
            arguments.only,
        ]
        command += [f"--option={each}" for each in arguments.option]
        environment = {**os.environ, **({"PYTHONPATH": arguments.library} if arguments.library else {})}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps([kernels, sorted(known)]))
        process.stdin.close()
        begun, reached, before = "", STAGES[0], len(known)
        for line in lines_of(process, arguments.seconds):
            row = json.loads(line) if line.startswith("{") else {}
            begun, reached = row.get("begins", begun), row.get("reached", reached)
            if "kernel" in row:
                known[row["kernel"]] = row
        if process.poll() is None:
            process.kill()
            why = f"took more than {arguments.seconds:g} s"
        else:
            why = f"the process ended with status {process.returncode}"
        process.wait()
        if len(known) == len(kernels):
            break
        if begun and begun not in known:
            known[begun] = {"kernel": begun, "stage": reached, "why": why}
        elif len(known) == before:
            for kernel in kernels:
                known.setdefault(kernel, {"kernel": kernel, "stage": "not compiled", "why": why})
    return [known[kernel] for kernel in kernels]


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """The processor time that a process has used; infinite where the system does not tell."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lines_of(process: subprocess.Popen[str], seconds: float) -> Any:
    """The lines that a process prints, until it ends or is silent for so many seconds of processor time."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    began, used = time.monotonic(), processor_seconds(process)
    while True:
        try:
            line = lines.get(timeout=seconds)
        except queue.Empty:
            waited = time.monotonic() - began
            if processor_seconds(process) - used < seconds and waited < MOST_WAITS * seconds:
                continue  # others have the processors
            return
        began, used = time.monotonic(), processor_seconds(process)
        if line is None:
            process.wait()
            return
        yield line


def examine_kernels(
    path: Path,
    with_headers: bool,
    folder: Path,
    best: dict[tuple[Path, str], dict[str, str]],
    arguments: argparse.Namespace,
) -> None:
    """Examine the kernels of a file, and of its headers, that no file before it has brought to compile."""
    kernels = kernels_of(path)
    wanted = [
        name
        for name, place in kernels.items()
        if place == path.resolve() or (with_headers and place.is_relative_to(folder))
        if best.get((place, name), {"stage": STAGES[0]})["stage"] == STAGES[0]
    ]
    for row in watch(path, wanted, arguments):
        key = (kernels[row["kernel"]], row["kernel"])
        if key not in best or STAGES.index(row["stage"]) > STAGES.index(best[key]["stage"]):
            best[key] = row


def survey(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Examine all files of a folder; prints a line for each that defines kernels, and causes.

    A kernel in a header counts by the best that any source including it, or the header alone, reaches.
    """
    best: dict[tuple[Path, str], dict[str, str]] = {}
    sources = [folder] if folder.is_file() else sorted(folder.rglob("*.cu"))
    headers = [] if folder.is_file() else sorted(folder.rglob("*.cuh"))
    done: list[str] = []
    if arguments.go_on and arguments.go_on.exists():
        earlier = json.loads(arguments.go_on.read_text())
        done = earlier["done"]
        best = {(Path(place), row["kernel"]): row for place, row in earlier["best"]}
    try:
        for path in (*sources, *headers):
            if str(path) in done:
                continue
            examine_kernels(path, path in sources, folder.resolve(), best, arguments)
            print(f"\r{len(best)} kernels", end="", file=sys.stderr, flush=True)
            done.append(str(path))
            if arguments.go_on:
                rows = [(str(place), row) for (place, _), row in best.items()]
                arguments.go_on.write_text(json.dumps({"done": done, "best": rows}))
    except KeyboardInterrupt:
        print("\nstopped; what is known so far:", file=sys.stderr)
    return told(folder.resolve(), best, arguments.causes)


def told(folder: Path, best: dict[tuple[Path, str], dict[str, str]], most_causes: int) -> dict[str, Any]:
    """Print what became of the kernels by file, in total, and why; returns it as a record."""
    files: dict[str, list[dict[str, str]]] = {}
    for (path, _), row in sorted(best.items(), key=lambda each: each[0]):
        name = str(path.relative_to(folder)) if folder.is_dir() else path.name
        files.setdefault(name, []).append(row)
    for name, rows in files.items():
        stages = Counter(row["stage"] for row in rows)
        counts = ", ".join(f"{stages[stage]} {stage}" for stage in reversed(STAGES) if stages[stage])
        print(f"{name:64} {counts}")
    totals = Counter(row["stage"] for row in best.values())
    reached = {stage: sum(totals[each] for each in STAGES[at:]) for at, stage in enumerate(STAGES)}
    whole = sum(all(row["stage"] != STAGES[0] for row in rows) for rows in files.values())
    print(
        f"\n{len(files)} files, {whole} of them whole; {len(best)} kernels: {reached['compiled']} compile, "
        f"{reached['prepared']} are prepared, {totals['run']} run to their end, "
        f"{totals['stopped by its arguments']} are stopped by made-up arguments"
    )
    causes = Counter(f"{row['stage']}: {row['why']}" for row in best.values() if row["why"])
    for cause, count in causes.most_common(most_causes):
        print(f"{count:5}  {cause}")
    return {"files": files, "whole_files": whole, "kernels": len(best), **reached, "totals": dict(totals)}


def main() -> None:
    """Survey a folder, or examine one file for the process that surveys."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument(
        "--option", action="append", default=[], help="an option of the compiler, such as -DN=8"
    )
    parser.add_argument("--only", choices=("compile", "prepare", "run"), default="run", help="how far to go")
    parser.add_argument("--seconds", type=float, default=60, help="processor time for one kernel")
    parser.add_argument("--causes", type=int, default=20, help="how many causes to print")
    parser.add_argument(
        "--library", default="", help="a folder to import lanewise from, to measure another copy"
    )
    parser.add_argument("--json", type=Path, help="write what became of each kernel to this file")
    parser.add_argument(
        "--go-on", type=Path, help="keep what is known after each file here, and go on from it"
    )
    parser.add_argument("--examine", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.examine:
        kernels, skipped = json.loads(sys.stdin.read())
        examine(arguments.folder, kernels, set(skipped), arguments)
        return
    record = survey(arguments.folder, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
