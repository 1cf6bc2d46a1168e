"""The GEMM ladder: every rung verified, checked and counted on the CPU; on a GPU also measured beside cuBLAS.

python examples/gemm/ladder.py                     # all rungs on the CPU, 256 × 256 × 128
python examples/gemm/ladder.py --rung 3 --rung 4   # some of them
python examples/gemm/ladder.py --sass 7            # the machine code of a rung's inner loop, for sm_90
python examples/gemm/ladder.py --gpu --json ladder.json   # 4096³ in bf16 on a GPU, with torch
python examples/gemm/ladder.py --gpu --dtype bf16,f16/f16 --sizes 256,1024,4096   # curves
"""

import json
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import lanewise as lw

sys.path.insert(0, str(Path(__file__).parent))
import parts

CONFLICTS = "derived__memory_l1_wavefronts_shared_excessive"
#: Bytes that loads and asynchronous copies read from global memory.
FETCHED = ("smsp__sass_data_bytes_mem_global_op_ld.sum", "smsp__sass_data_bytes_mem_global_op_ldgsts.sum")


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder: its number, its module beside this file, what it adds, and its arch."""

    number: int
    module: str
    adds: str
    arch: str = "sm_90"
    #: The function of the module that prepares it, if it is a variant of a rung, and its letter.
    function: str = "prepare"
    letter: str = ""

    @property
    def label(self) -> str:
        """The number, and the letter of a variant."""
        return f"{self.number}{self.letter}"

    def instruction(self, dtype: lw.Format, accumulate: lw.Format) -> lw.Instruction:
        """The instruction whose sums along K the rung has, bit for bit."""
        instruction = getattr(import_module(self.module), "instruction", parts.instruction)
        return instruction(dtype, accumulate)

    def takes(self, n: int, k: int) -> bool:
        """Whether it can multiply matrices of so many columns: TMA wants rows of whole 16 bytes."""
        return self.arch == "sm_90" or not (n % 8 or k % 8)

    def runs_on(self, arch: str) -> bool:
        """Whether a GPU of an arch has its instructions: those of sm_90a and sm_100a are of one alone."""
        return not self.arch.endswith("a") or arch.rstrip("af") == self.arch.rstrip("a")

    def prepare(self, *arguments: Any) -> Any:
        """The configured kernel, its arguments and constants, for A, B, C and a format of the sums."""
        return getattr(import_module(self.module), self.function)(*arguments)


RUNGS = (
    Rung(1, "rung1_one_warp", "one warp a 16×8 tile, ldmatrix and mma"),
    Rung(2, "rung2_wmma", "WMMA, one warp a 16×16 tile"),
    Rung(3, "rung3_block_tile", "block tiles in shared memory"),
    Rung(4, "rung4_swizzled", "swizzled shared memory"),
    Rung(5, "rung5_pipelined", "cp.async, four stages"),
    Rung(6, "rung6_double_buffered", "fragments of the next step ahead of time"),
    Rung(7, "rung7_rasterised", "blocks ordered for L2, 256×128 tiles, rows written whole"),
    Rung(8, "rung8_tiled", "the same in tiles, CuTe's way"),
    Rung(9, "rung9_tma_wgmma", "TMA and wgmma", "sm_90a"),
    Rung(10, "rung10_specialised", "one warp loads, two warpgroups multiply", "sm_90a"),
    Rung(11, "rung11_persistent", "persistent blocks, clusters that share B, TMA stores", "sm_90a"),
    Rung(12, "rung12_tensor_memory", "tcgen05, sums in tensor memory", "sm_100a"),
    Rung(13, "rung13_pairs", "pairs of blocks, persistent, two accumulators", "sm_100a"),
)
#: Rungs with one thing done another way.
VARIANTS = (
    Rung(2, "variants", "WMMA over padded block tiles", function="wmma_tiles", letter="b"),
    Rung(4, "variants", "padded, not swizzled", function="padded", letter="b"),
    Rung(5, "variants", "two stages, not four", function="two_stages", letter="b"),
    Rung(7, "variants", "sums to shared memory by stmatrix", function="stored_as_matrices", letter="b"),
)
#: Cycles that the GPU sleeps before each run, so that what follows is queued when it wakes up.
_HEAD_START = 500_000
#: What torch calls the formats.
TORCH: dict[lw.Format, str] = {lw.f16: "float16", lw.bf16: "bfloat16"}


@dataclass
class Outcome:
    """What was seen of a rung on the CPU: exact or not, findings, conflicts, bytes from global memory."""

    rung: Rung
    exact: bool
    findings: int
    conflicts: int
    wavefronts: int
    fetched: int


def climb(
    rung: Rung, m: int, n: int, k: int, dtype: lw.Format = lw.f16, accumulate: lw.Format = lw.f32
) -> Outcome:
    """Run a rung on the CPU: its bits against `mma.gemm`, its hazards and its counters."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.normal(size=shape).astype(dtype.dtype) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), dtype.dtype)
    configured, arguments, constants = rung.prepare(a, b, c, accumulate)
    report = lw.check(configured, *arguments, **constants, arch=rung.arch)
    wanted = rung.instruction(dtype, accumulate).gemm(a, b, arch=rung.arch).astype(dtype.dtype)
    if not report.ok:
        print(report, file=sys.stderr)
    return Outcome(
        rung,
        bool(np.array_equal(c.view(np.uint16), wanted.view(np.uint16))),
        len(report.findings),
        int(report.counters[CONFLICTS]),
        int(report.counters["memory_l1_wavefronts_shared"]),
        sum(int(report.counters.get(name, 0)) for name in FETCHED),
    )


def inner_loop(sass: str) -> list[str]:
    """The instructions of the loop that multiplies: from its label to the branch back to it."""
    labels: dict[str, int] = {}
    instructions: list[str] = []
    for line in sass.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(instructions)
        elif match := re.match(r"\s*/\*\w+\*/\s*(.*?)\s*;", line):
            instructions.append(match[1])
            back = re.search(r"\bBRA.*`\((\.L_\w+)\)", match[1])
            if back and back[1] in labels:
                loop = instructions[labels[back[1]] :]
                if any(
                    "HMMA" in instruction or "HGMMA" in instruction for instruction in loop
                ):  # UTCHMMA among them
                    return loop
    return []


def machine_code(rung: Rung) -> str:
    """What ptxas makes of a rung, for whole tiles of f16 summed in f32."""
    a, b, c = (np.zeros(shape, np.float16) for shape in ((256, 64), (64, 128), (256, 128)))
    configured, _, constants = rung.prepare(a, b, c, lw.f32)
    return str(configured.kernel.sass(rung.arch, **constants))


def measure(
    rungs: list[Rung], size: int, dtype: lw.Format = lw.bf16, accumulate: lw.Format = lw.f32, rounds: int = 30
) -> dict[str, Any]:
    """Run rungs on a GPU beside torch.matmul by turns: medians, with the L2 cache swept before each run.

    Each rung's product is held against float64 first, to half a unit of the result's format and what sums of
    the length may lose.
    """
    import torch

    cuda: Any = torch.cuda
    kind = getattr(torch, TORCH[dtype])
    torch.backends.cuda.matmul.allow_fp16_accumulation = accumulate is lw.f16
    a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
    c = torch.empty_like(a)
    sweep = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    wanted = torch.matmul(a, b)
    exact = a.double() @ b.double()
    lost = (2.0**-23 if accumulate is lw.f32 else 2.0**-10) * (4 * size**0.5 + size / 16)
    allowed = exact.abs() * torch.finfo(kind).eps / 2 + lost * exact.abs().mean()
    runs: dict[Any, Any] = {"torch": lambda: torch.matmul(a, b, out=c)}
    differ = {}
    for rung in rungs:
        configured, arguments, constants = rung.prepare(a, b, c, accumulate)
        c.fill_(float("nan"))
        configured(*arguments, **constants)
        wrong = int((~((c.double() - exact).abs() <= allowed)).sum())
        if wrong:
            raise SystemExit(f"rung {rung.label}: {wrong} of {c.numel()} elements are wrong")
        differ[rung] = int((c != wanted).sum())
        runs[rung] = partial(configured, *arguments, **constants)
    times: dict[Any, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 3):
        for name, run in runs.items():
            if number > 5 and sum(times[name]) > 500:  # milliseconds: slow ones have run often enough
                continue
            sweep.zero_()
            cuda._sleep(_HEAD_START)
            before, after = (cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            run()
            after.record()
            cuda.synchronize()
            if number >= 3:
                times[name].append(before.elapsed_time(after))
    flops = 2 * size**3
    median = {name: sorted(durations)[len(durations) // 2] for name, durations in times.items()}
    device = lw.gpu.devices()[0]
    return {
        "device": device.name,
        "driver": device.driver,
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "size": size,
        "dtype": TORCH[dtype],
        "accumulate": accumulate.name,
        "torch_tflops": flops / median["torch"] / 1e9,
        "rungs": [
            {
                "rung": rung.label if rung.letter else rung.number, "adds": rung.adds,
                "milliseconds": median[rung],
                "tflops": flops / median[rung] / 1e9, "share_of_torch": median["torch"] / median[rung],
                "elements_unlike_torch": differ[rung],
            }
            for rung in rungs
        ],
    }  # fmt: skip


def main(
    rung: Annotated[list[int] | None, typer.Option(help="The rungs to climb; all without it.")] = None,
    m: int = 256,
    n: int = 256,
    k: int = 128,
    sass: Annotated[
        int | None, typer.Option(min=1, max=len(RUNGS), help="Print the inner loop of this rung and end.")
    ] = None,
    variants: Annotated[bool, typer.Option(help="Climb the variants of rungs, too.")] = False,
    gpu: Annotated[bool, typer.Option(help="Measure on a GPU as well (needs torch).")] = False,
    sizes: Annotated[str, typer.Option(help="M = N = K on the GPU, one or several.")] = "4096",
    dtype: Annotated[str, typer.Option(help="Formats: bf16, f16, or f16/f16 with sums in f16.")] = "bf16",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the GPU's figures here.")] = None,
) -> None:
    """Climb the ladder."""
    if sass is not None:
        try:
            print("\n".join(inner_loop(machine_code(RUNGS[sass - 1]))))
        except lw.LanewiseError as error:  # no nvdisasm, say
            raise typer.BadParameter(str(error)) from None
        return
    every = sorted(
        [*RUNGS, *(VARIANTS if variants else ())], key=lambda kernel: (kernel.number, kernel.letter)
    )
    chosen = [kernel for kernel in every if not rung or kernel.number in rung]
    console = Console()
    table = Table("rung", "what it adds", "bits", "findings", "bank conflicts", title=f"CPU, {m} × {n} × {k}")
    for kernel in chosen:
        seen = climb(kernel, m, n, k)
        table.add_row(
            kernel.label, kernel.adds, "exact" if seen.exact else "WRONG", str(seen.findings),
            f"{seen.conflicts:,} of {seen.wavefronts:,} wavefronts",
        )  # fmt: skip
    console.print(table)
    if not gpu:
        return
    chosen = [kernel for kernel in chosen if kernel.runs_on(lw.gpu.devices()[0].arch)]
    runs = []
    for pair, size in product(dtype.split(","), map(int, sizes.split(","))):
        inner, _, outer = pair.partition("/")
        figures = measure(chosen, size, lw.format_of(inner), lw.format_of(outer or "f32"))
        runs.append(figures)
        title = f"{figures['device']}, {size}³ {inner}, sums in {outer or 'f32'}"
        table = Table("rung", "what it adds", "TFLOP/s", "of cuBLAS", title=title)
        for row in figures["rungs"]:
            share = f"{row['share_of_torch']:.1%}"
            table.add_row(str(row["rung"]), row["adds"], f"{row['tflops']:.0f}", share)
        table.add_row("", "torch.matmul", f"{figures['torch_tflops']:.0f}", "100 %")
        console.print(table)
    if json_file:
        json_file.write_text(json.dumps({**runs[0], "runs": runs[1:]}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
