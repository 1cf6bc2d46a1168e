"""Mutants of real PTX: the process neither crashes nor hangs, and only LanewiseErrors are raised.

`LANEWISE_FUZZ_SECONDS=1200 python -m pytest tests/machine/test_machine_fuzz.py -s` looks for longer, with
more kernels and the day's seeds (`LANEWISE_FUZZ_SEED` names the first); the folder
`LANEWISE_FUZZ_FINDINGS` keeps what it finds. `LANEWISE_FUZZ_ARCH=sm_90a` mutates the kernels of that arch
alone: wgmma, TMA and clusters; `sm_100a` those with tensor memory, tcgen05 and cluster launch control.
"""

import datetime
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, some_of
from lanewise.ptx import ToolMissing
from machine.blackwell_seeds import of_blackwell
from machine.classics import FOLDER
from machine.mutants import Mutator, Runner, Seed, alone

SRC = Path(lw.__file__).parents[1]
TRITON = Path(__file__).parent / "triton"
SECONDS = float(os.environ.get("LANEWISE_FUZZ_SECONDS", "0"))
#: The first seed of a search, unless another is named: the date, with room for the seeds of a day.
TODAY = int(f"{datetime.date.today():%Y%m%d}") * 1_000_000
#: Mutants that are tried each time.
MUTANTS = 30 if EVERYTHING else 8
#: The arch whose kernels are mutated; all of them if it is empty.
ARCH = os.environ.get("LANEWISE_FUZZ_ARCH", "")

#: Entry, grid, block, dynamic shared bytes, arguments: arrays as (bytes,).
KEPT: list[tuple[str, str, tuple[int, ...], tuple[int, ...], int, tuple[Any, ...]]] = [
    ("hgemm_naive", "hgemm_naive", (2, 2), (32,), 0, ((2048,), (1024,), (1024,), 32, 16, 32)),
    ("reductions", "sum_of_rows", (2,), (64,), 0, ((800,), (8,), 100)),
    ("reductions", "sum_of_all", (3,), (64,), 0, ((800,), (12,), (4,), 200)),
    ("reductions", "softmax", (2,), (64,), 0, ((800,), (800,), 100)),
    ("reductions", "histogram", (2,), (64,), 0, ((300,), (1024,), (4,), 300)),
]  # fmt: skip
TRITON_KEPT: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = [
    ("softmax", (2,), ((800,), (800,), 100, 100, 100, 0, 0)),
    ("layer_norm", (2,), ((1216,), (1216,), (1200,), (1200,), (8,), (8,), 304, 300, 1e-5, 0, 0)),
]
#: A tensor map: bytes, shape, box, swizzle, type.
TENSOR = (16384, (64, 128), (16, 64), "128B", "float16")
#: Handwritten, for sm_90a: entry, grid, block, dynamic shared bytes, arguments, blocks of a cluster.
HOPPER: list[tuple[str, tuple[int, ...], tuple[int, ...], int, tuple[Any, ...], int]] = [
    ("tma_copy", (2,), (64,), 0, (TENSOR, TENSOR, 64, 8), 0),
    ("wgmma", (1,), (128,), 0, ((4096,), (4096,)), 0),
    ("ring", (4,), (32,), 0, ((512,), (512,)), 2),
]  # fmt: skip
#: Compiled by NVRTC for a long look.
MORE: list[tuple[str, str, tuple[int, ...], tuple[int, ...], int, tuple[Any, ...]]] = [
    ("int_products", "int8_gemm", (1, 1), (64,), 0, ((1024,), (256,), (1024,), 32, 8, 32)),
    ("int_products", "bit_products", (1, 1), (32,), 0, ((512,), (256,), (512,), (512,), 8, 8)),
    ("sparse", "sparse", (1,), (32,), 0, ((512,), (512,), (64,), (512,))),
    ("transpose", "transpose8", (2,), (32,), 0, ((256,), (256,))),
    ("transpose", "transpose32", (1, 1), (32, 8), 0, ((4096,), (4096,), 32, 32)),
    ("wmma", "gemm", (1, 1), (64,), 0, ((2048,), (1024,), (2048,), 32, 16, 32, 1.0, 2.0)),
    ("groups", "sum_by_groups", (2,), (64,), 0, ((512,), (64,), (8,), (4,))),
    ("language", "locked", (2,), (40,), 0, ((4,), (8,), (400,))),
    ("language", "token", (1,), (64,), 0, ((256,),)),
    ("language", "blur", (2,), (64,), 0, ((400,), (400,), 100)),
    ("language", "tree_depth", (1,), (31,), 0, ((124,), (124,))),
    ("language", "reversed", (1,), (64,), 256, ((256,),)),
    ("language", "say", (1,), (32,), 0, ((128,),)),
    ("language", "insist", (1,), (32,), 0, ((128,),)),
]  # fmt: skip


def tensor(
    rows: int, columns: int, box: tuple[int, int], dtype: str = "float16", swizzle: str = "128B"
) -> Any:
    """A tensor map of a matrix, as `Seed` takes it."""
    return (rows * columns * np.dtype(dtype).itemsize, (rows, columns), box, swizzle, dtype)


#: A head of 128 queries, keys or values.
HEAD = (16384, (1, 128, 64), (1, 64, 64), "128B", "float16")
#: Compiled by NVRTC for sm_90a, for a long look: as HOPPER, behind the source.
MORE_HOPPER: list[tuple[str, str, tuple[int, ...], tuple[int, ...], int, tuple[Any, ...], int]] = [
    (
        "gemm", "cooperative<f16, 1, 1>", (2, 1), (384,), 74752,
        (tensor(128, 128, (128, 64)), tensor(128, 128, (64, 64)), (65536,), 128, 2), 0,
    ),
    (
        "gemm", "cooperative<bf16, 2, 1>", (2, 1), (384,), 74752,
        (tensor(128, 128, (64, 64)), tensor(128, 128, (64, 64)), (65536,), 128, 2), 2,
    ),
    (
        "gemm", "pingpong<f16>", (1,), (384,), 82944,
        (
            tensor(128, 64, (64, 64)), tensor(64, 64, (64, 64)),
            tensor(128, 64, (64, 64), "float32", "none"), 1, 2, 1,
        ), 0,
    ),
    ("registers", "mixed", (1, 1), (160,), 17408, ((8192,), tensor(64, 128, (64, 64)), (16384,), 64, 128), 0),
    ("registers", "attention<true>", (1, 1), (288,), 50176, (HEAD, HEAD, HEAD, (32768,), 128, 0.18), 0),
    ("copies", "copy_bytes", (4,), (32,), 512, ((1024,), (1024,), 256), 4),
    (
        "copies", "broadcast", (4,), (32,), 2048,
        (tensor(8, 64, (8, 64), "int32", "none"), tensor(32, 64, (8, 64), "int32", "none"), 8, 2048), 4,
    ),
    ("copies", "reduce", (8,), (32,), 0, ((2000,), 500, (4,)), 0),
]  # fmt: skip
#: Compiled by Triton for sm_90a, for a long look: file, arguments.
MORE_TRITON: list[tuple[str, tuple[Any, ...]]] = [
    ("wgmma_matmul", ((16384,), (16384,), (16384,), 64, 64, 128, 128, 64, 64, 0, 0)),
    (
        "described",
        (
            tensor(64, 128, (64, 64)), 64, 128, 128, 1, tensor(64, 128, (64, 64)), 64, 128, 128, 1,
            tensor(64, 64, (64, 32), "float32"), 64, 64, 64, 1, 128, 0, 0,
        ),
    ),
    ("describes", ((16384,), (16384,), (16384,), 64, 64, 128, (384,), 0)),
]  # fmt: skip


def seeds(long: bool) -> list[Seed]:
    found = []
    for file, entry, grid, block, shared, arguments in KEPT:
        text = alone((FOLDER / f"{file}.sm_80.ptx").read_text(), entry)
        found.append(Seed(entry, text, entry, grid, block, shared, arguments))
    hopper = (FOLDER / "hopper" / "fuzzed.ptx").read_text()
    for entry, grid, block, shared, arguments, cluster in HOPPER:
        found.append(Seed(entry, alone(hopper, entry), entry, grid, block, shared, arguments, cluster))
    about = json.loads((TRITON / "kernels.json").read_text())
    for name, grid, arguments in TRITON_KEPT:
        text = (TRITON / f"{name}.ptx").read_text()
        found.append(Seed(f"triton {name}", text, name, grid, (128,), about[name]["shared"], arguments))
    if long:
        for file, entry, grid, block, shared, arguments in MORE:
            try:
                module = lw.cuda(FOLDER / f"{file}.cu", lineinfo=False)
            except ToolMissing:
                continue
            found.append(Seed(entry, alone(module.text, entry), entry, grid, block, shared, arguments))
        found += more_of_hopper(about)
    found += of_blackwell(long)
    chosen = [each for each in found if f".target {ARCH}" in each.text]
    assert chosen, f"no kernel here is for LANEWISE_FUZZ_ARCH={ARCH}; try sm_80, sm_90a or sm_100a"
    return chosen


def more_of_hopper(about: dict[str, Any]) -> list[Seed]:
    """Real kernels of sm_90a: CUDA C++ where NVRTC is installed, and Triton's."""
    found = []
    for file, name, grid, block, shared, arguments, cluster in MORE_HOPPER:
        try:
            module = lw.cuda(FOLDER / "hopper" / f"{file}.cu", arch="sm_90a", lineinfo=False)
        except ToolMissing:
            break
        entry = module[name].function.name
        found.append(Seed(name, alone(module.text, entry), entry, grid, block, shared, arguments, cluster))
    for file, arguments in MORE_TRITON:
        text = (TRITON / f"{file}.ptx").read_text()
        (entry,) = lw.load(text).entries
        threads, shared = 32 * about[file]["num_warps"], about[file]["shared"]
        found.append(Seed(f"triton {file}", text, entry, (1, 1), (threads,), shared, arguments))
    return found


def look(kernels: list[Seed], first: int, seconds: float, most: int) -> tuple[Counter[str], list[str]]:
    """Run mutants; what was answered how often, and what must not be."""
    runner = Runner(SRC, limit=60)
    counts: Counter[str] = Counter()
    findings = []
    end = time.monotonic() + seconds
    try:
        for number in range(most):
            if time.monotonic() > end:
                break
            kernel = kernels[number % len(kernels)]
            job = kernel.job(first + number)
            answer = runner.run(job)
            counts[answer.split(":")[0].split(" ")[0]] += 1
            if not answer.startswith(("ok", "refused")):
                findings.append(f"{kernel.name}, seed {first + number}: {answer}")
                _keep(first + number, job, answer)
    finally:
        runner.close()
    return counts, findings


def _keep(seed: int, job: str, answer: str) -> None:
    folder = os.environ.get("LANEWISE_FUZZ_FINDINGS")
    if folder:
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / f"{seed}.json").write_text(job)
        (Path(folder) / f"{seed}.txt").write_text(answer + "\n\n" + json.loads(job)["text"])


def test_mutants_are_deterministic_and_differ() -> None:
    kernel = seeds(long=False)[0]
    mutants = [Mutator(kernel.text, seed).mutant() for seed in range(20)]
    assert mutants == [Mutator(kernel.text, seed).mutant() for seed in range(20)]
    assert len({*mutants, kernel.text}) > 15


@pytest.mark.timeout(SECONDS + 1800)
def test_the_kernels_themselves_run() -> None:
    runner = Runner(SRC, limit=60)
    try:
        kernels = seeds(long=bool(SECONDS))
        newer = [each for each in kernels if ".target sm_80" not in each.text]
        for kernel in (*kernels[:2], *(newer if SECONDS else some_of(2, newer))):
            job = json.loads(kernel.job(0)) | {
                "text": kernel.text,
                "arguments": kernel.arguments,
                "check": False,
                "cluster": kernel.cluster,
                "completion": None,
            }
            assert runner.run(json.dumps(job)) == "ok", kernel.name
    finally:
        runner.close()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 1800)
def test_no_mutant_crashes_hangs_or_escapes() -> None:
    if SECONDS:
        first = int(os.environ.get("LANEWISE_FUZZ_SEED", TODAY))
        counts, findings = look(seeds(long=True), first, SECONDS, 1 << 30)
        print(f"\nfirst seed {first}: {dict(counts)}")
    else:
        counts, findings = look(seeds(long=False), 0, math.inf, MUTANTS)
    assert not findings, "\n".join(findings)
    assert counts["ok"] + counts["refused"] >= 1


REFUSED = """
import gc, sys
sys.path.insert(0, sys.argv[1])
from lanewise.jit import machine_code
bad = "define i32 @f(i32 %x) { %y = add i32 %x, %z\\n %z = add i32 %y, 1\\n ret i32 %z }"
for _ in range(20):
    with machine_code.Compilation() as compilation:
        try:
            compilation.begin(bad).result()
        except RuntimeError as error:
            error.itself = error  # a cycle, as tracebacks make them: the collector comes for what it holds
    gc.collect()
print("alive")
"""


def test_what_llvm_refuses_is_cleared_away_in_order() -> None:
    """A module that outlived its context once took the process with it."""
    done = subprocess.run([sys.executable, "-c", REFUSED, str(SRC)], capture_output=True, text=True)
    assert done.stdout == "alive\n", done.stderr
