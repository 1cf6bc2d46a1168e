"""lw.matmul against the better of torch and cuBLASLt on this GPU, in one run: interleaved rounds, L2 emptied.

    python benchmarks/matmul.py --only squares skinny --json results.json --svg speed.svg

Each part fits into a minute. cuBLASLt is the fastest of its heuristic's first eight algorithms, measured
first. Times are medians of at least 25 rounds of random normal numbers; the table says the share of the
ceiling that wgmma reaches with operands at rest in shared memory (859 TFLOP/s of bf16 on an H200).
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from cublaslt import CublasLt
from gpu_times import timed

import lanewise as lw

#: Operations in a second (× 10¹²) that the tensor cores sustain, by what is multiplied; bytes of a copy.
CEILINGS = {"bf16": 859, "f16": 859, "tf32": 430, "e4m3": 1690, "s8": 1690, "f64": 62, "f32": 430 / 3}
COPY_BANDWIDTH = 4.2e12
BF16, F16, F32, F64, S8 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8
E4M3 = torch.float8_e4m3fn


@dataclass
class Case:
    """A product, how lanewise and others compute it, and what is asked of the ratio."""

    part: str
    name: str
    flops: float
    bytes: float
    own: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
    goal: float
    kind: str = "bf16"
    times: dict[str, list[float]] = field(default_factory=dict)

    @property
    def best_peer(self) -> tuple[str, float]:
        """The fastest of the others, in seconds."""
        name = min(self.peers, key=lambda each: median(self.times[each]))
        return name, median(self.times[name])

    @property
    def seconds(self) -> float:
        """lanewise's own time."""
        return median(self.times["lanewise"])

    @property
    def ratio(self) -> float:
        """How many times as fast lanewise is."""
        return self.best_peer[1] / self.seconds


LT: list[CublasLt] = []


def best_of_lt(a: Any, b: Any, out: Any, **options: Any) -> Callable[[], Any] | None:
    """Return the fastest of cuBLASLt's algorithms for a product; None if it has none."""
    if not LT:
        LT.append(CublasLt())
    try:
        runs = LT[0].algorithms(a, b, out, **options)
    except RuntimeError:
        return None
    times = []
    for run in runs:
        try:
            run()
            times.append((median(timed(run) for _ in range(5)), run))
        except RuntimeError:
            continue
    return min(times, key=lambda each: each[0])[1] if times else None


def numbers(rows: int, columns: int, dtype: Any, transposed: bool = False, pad: int = 0) -> Any:
    """Return random normal numbers, stored by rows or columns, the leading dimension longer by `pad`."""
    if transposed:
        return numbers(columns, rows, dtype, pad=pad).t()
    wide = torch.randn(rows, columns + pad, device="cuda")
    made = (wide * 30).to(dtype) if dtype == S8 else wide.to(dtype)
    return made[:, :columns]


def plain(
    part: str, m: int, n: int, k: int, goal: float, dtype: Any = BF16, layout: str = "nt", kind: str = "bf16",
    name: str = "", pad: int = 0, **keywords: Any,
) -> Case:  # fmt: skip
    """Return the case of one product without an epilogue."""
    a = numbers(m, k, dtype, layout[0] == "t", pad)
    b = numbers(k, n, dtype, layout[1] == "t", pad)
    small = dtype in (E4M3,)
    out_dtype = torch.int32 if dtype == S8 else (BF16 if small else dtype)
    out = torch.empty(m, n, dtype=out_dtype, device="cuda")
    peers: dict[str, Callable[[], Any]] = {}
    if dtype == S8:
        peers["torch._int_mm"] = lambda: torch._int_mm(a, b)
    elif not small:
        peers["torch.matmul"] = lambda: torch.matmul(a, b, out=out)
    by_lt = best_of_lt(a, b, out, tf32=kind == "tf32")
    if by_lt is not None:
        peers["cuBLASLt"] = by_lt
    own = torch.empty_like(out)
    item = a.element_size()
    return Case(
        part, name or f"{m}×{n}×{k}", 2.0 * m * n * k, (m * k + k * n) * item + m * n * out.element_size(),
        lambda: lw.matmul(a, b, out=own, **keywords), peers, goal, kind,
    )  # fmt: skip


# the parts of the table ------------------------------------------------------------------------------------


def squares() -> Iterator[Case]:
    """Squares of bf16 and f16, powers of two and others."""
    for size in (1280, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384):
        yield plain("squares", size, size, size, 0.98)
    for size in (4096, 8192):
        yield plain("squares", size, size, size, 0.98, F16, kind="f16", name=f"{size}³ f16")
    for size in (3000, 5000):
        yield plain("squares", size, size, size, 1.10)


def small() -> Iterator[Case]:
    """Small squares."""
    for size in (256, 384, 512, 768, 1024, 1536):
        yield plain("small", size, size, size, 1.15)


def skinny() -> Iterator[Case]:
    """Few rows and large weights: layers of Llama 3, Qwen and DeepSeek V3."""
    layers = (
        (4096, 4096),
        (6144, 4096),
        (14336, 4096),
        (4096, 14336),
        (28672, 8192),
        (7168, 16384),
        (3584, 18944),
    )
    for n, k in layers:
        for m in (1, 16, 64, 128):
            yield plain("skinny", m, n, k, 1.3)


def long_k() -> Iterator[Case]:
    """A K much longer than M and N."""
    for m, n, k in ((128, 128, 65536), (256, 256, 16384), (512, 512, 32768)):
        yield plain("long_k", m, n, k, 1.2)


def odd() -> Iterator[Case]:
    """Sizes and leading dimensions that are no multiples of 8."""
    for m, n, k in ((4095, 4095, 4095), (4096, 4096, 4095), (4097, 5001, 2049)):
        yield plain("odd", m, n, k, 4.0)
    yield plain("odd", 4096, 4096, 4096, 4.0, pad=3, name="4096³, leading 4099")


def layouts() -> Iterator[Case]:
    """A and B stored by rows or by columns."""
    for layout in ("nn", "nt", "tn", "tt"):
        yield plain("layouts", 4096, 4096, 4096, 0.98, layout=layout, name=f"4096³ {layout.upper()}")


def fused() -> Iterator[Case]:
    """A product with bias and gelu, against the plain product of lanewise itself."""
    for size in (4096, 8192):
        a, b = numbers(size, size, BF16), numbers(size, size, BF16, True)
        bias, out, other = torch.randn(size, device="cuda").to(BF16), torch.empty_like(a), torch.empty_like(a)
        yield Case(
            "fused", f"{size}³ bias, gelu", 2.0 * size**3, 6.0 * size**2,
            lambda a=a, b=b, bias=bias, out=out: lw.matmul(a, b, bias=bias, activation="gelu_tanh", out=out),
            {"lanewise, plain": lambda a=a, b=b, other=other: lw.matmul(a, b, out=other)}, 1 / 1.03,
        )  # fmt: skip


def fp8() -> Iterator[Case]:
    """e4m3 with scales for the tensor, for rows and columns, and for blocks."""
    shapes = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 2048), (4096, 24576, 1536),
              (128, 7168, 16384), (64, 7168, 2048))  # fmt: skip
    for m, n, k in shapes:
        a, b = numbers(m, k, E4M3), numbers(k, n, E4M3, True)
        one = torch.ones((), device="cuda")
        rows, columns = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
        blocks = (
            torch.rand(m, -(-k // 128), device="cuda"),
            torch.rand(-(-k // 128), -(-n // 128), device="cuda"),
        )
        goal = 1.2 if m <= 128 else 1.05
        forms = {"tensor": (one, one), "rows": (rows, columns), "blocks": blocks}
        for form, (scale_a, scale_b) in forms.items():
            out = torch.empty(m, n, dtype=BF16, device="cuda")

            def own(a: Any = a, b: Any = b, sa: Any = scale_a, sb: Any = scale_b, out: Any = out) -> Any:
                return lw.matmul(a, b, scale_a=sa, scale_b=sb, out=out)

            def scaled(a: Any = a, b: Any = b, sa: Any = scale_a, sb: Any = scale_b) -> Any:
                return torch._scaled_mm(a, b, scale_a=sa, scale_b=sb, out_dtype=BF16, use_fast_accum=True)

            peers: dict[str, Callable[[], Any]] = {"torch._scaled_mm": scaled}
            if form == "blocks":  # torch has none here: the goal is 0.9 of the speed with one scale
                whole = torch.empty_like(out)
                peers = {
                    "lanewise, one scale": lambda a=a, b=b, one=one, out=whole: lw.matmul(
                        a, b, scale_a=one, scale_b=one, out=out
                    )
                }
            yield Case(
                "fp8", f"{m}×{n}×{k} {form}", 2.0 * m * n * k, 1.0 * (m * k + n * k) + 2.0 * m * n, own,
                peers, 0.9 if form == "blocks" else goal, "e4m3",
            )  # fmt: skip


def int8() -> Iterator[Case]:
    """int8 with sums in int32."""
    for size in (4096, 8192):
        yield plain("int8", size, size, size, 1.3, S8, kind="s8")


def single() -> Iterator[Case]:
    """tf32, f64, and f32 by split products against SGEMM."""
    yield plain("single", 4096, 4096, 4096, 1.0, F32, kind="tf32", name="4096³ tf32", precision="tf32")
    yield plain("single", 4096, 4096, 4096, 1.0, F64, kind="f64", name="4096³ f64")
    yield plain("single", 4096, 4096, 4096, 2.0, F32, kind="f32", name="4096³ f32")


def grouped() -> Iterator[Case]:
    """Experts of uneven size."""
    for experts, rows, n, k in ((8, 4096, 4096, 4096), (64, 8192, 2048, 2048), (256, 8192, 2048, 1024)):
        a, b = numbers(rows, k, BF16), torch.randn(experts, k, n, device="cuda").to(BF16)
        shares = torch.rand(experts) + 0.2
        ends = (shares.cumsum(0) / shares.sum() * rows).int()
        ends[-1] = rows
        on_gpu, listed = ends.cuda(), ends.tolist()

        def loop(a: Any = a, b: Any = b, ends: Any = listed) -> None:
            for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
                torch.matmul(a[start:end], b[group])

        peers: dict[str, Callable[[], Any]] = {"a loop of torch.matmul": loop}
        if hasattr(torch, "_grouped_mm"):
            peers["torch._grouped_mm"] = lambda a=a, b=b, ends=on_gpu: torch._grouped_mm(a, b, ends)
        yield Case(
            "grouped", f"{experts} experts, {rows}×{n}×{k}", 2.0 * rows * n * k, 2.0 * experts * n * k,
            lambda a=a, b=b, ends=on_gpu: lw.grouped_matmul(a, b, ends), peers, 1.3,
        )  # fmt: skip


def sparse() -> Iterator[Case]:
    """A 2:4 sparse b, against the dense product of the same sizes, and cuSPARSELt where torch has it."""
    for size in (4096, 8192):
        a, b = numbers(size, size, BF16), numbers(size, size, BF16)
        kept = lw.sparsify(b)
        peers: dict[str, Callable[[], Any]] = {"torch.matmul, dense": lambda a=a, b=b: torch.matmul(a, b)}
        try:
            mask = torch.tensor([1, 0, 0, 1], dtype=BF16, device="cuda").repeat(size, size // 4)
            packed = torch.sparse.to_sparse_semi_structured((b.t() * mask).contiguous())
            peers["cuSPARSELt"] = lambda a=a, w=packed: torch.nn.functional.linear(a, w)
        except RuntimeError as error:  # of a build without cuSPARSELt, or of another GPU
            print(f"torch has no sparse product here: {error}".splitlines()[0])
        yield Case(
            "sparse", f"{size}³", 2.0 * size**3, 2.0 * size * size,
            lambda a=a, b=kept: lw.matmul(a, b), peers, 1.0,
        )  # fmt: skip


PARTS: dict[str, Callable[[], Iterator[Case]]] = {
    each.__name__: each
    for each in (squares, small, skinny, long_k, odd, layouts, fused, fp8, int8, single, grouped, sparse)
}


# a run -----------------------------------------------------------------------------------------------------


def measure(case: Case, rounds: int) -> str:
    """Measure a case in interleaved rounds; returns why it cannot be, or nothing."""
    runs = {"lanewise": case.own, **case.peers}
    for name, run in list(runs.items()):
        try:
            for _ in range(3):
                run()
            torch.cuda.synchronize()
        except Exception as error:  # a peer that refuses is left out, and said
            if name == "lanewise":
                return f"{type(error).__name__}: {error}".splitlines()[0]
            del runs[name], case.peers[name]
    if not case.peers:
        return "nobody else computes it"
    case.times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            case.times[name].append(timed(run) / 1e6)
    return ""


def circumstances() -> dict[str, Any]:
    """Return what a result depends on: GPU, driver, clocks, versions, date."""
    asked = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu"
    said = subprocess.run(
        ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    return {
        "gpu": dict(zip(asked.split(","), said.splitlines()[0].split(", "), strict=False)) if said else {},
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cublaslt": LT[0].version if LT else None,
        "lanewise": lw.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def row(case: Case) -> dict[str, Any]:
    """Return a case's figures for the table and for JSON."""
    peer, seconds = case.best_peer
    speed = case.flops / case.seconds / 1e12
    return {
        "part": case.part, "name": case.name, "microseconds": case.seconds * 1e6, "tflops": speed,
        "ceiling": speed / CEILINGS[case.kind], "bandwidth": case.bytes / case.seconds / COPY_BANDWIDTH,
        "peer": peer, "peer_microseconds": seconds * 1e6, "ratio": case.ratio, "goal": case.goal,
        "all_microseconds": {name: median(times) * 1e6 for name, times in case.times.items()},
    }  # fmt: skip


def write_svg(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the ratios as horizontal bars, the goals as marks, and 1 as a line."""
    scale, left, height = 140.0, 230, 16
    most = min(6.0, max(each["ratio"] for each in rows))
    width = left + scale * most + 120
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height * len(rows) + 30}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="100%" fill="white"/>',
    ]
    for number, each in enumerate(rows):
        y = 10 + number * height
        long = scale * min(each["ratio"], most)
        colour = "#2a7f62" if each["ratio"] >= each["goal"] else "#c8553d"
        goal = left + scale * min(each["goal"], most)
        parts += [
            f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{each["name"]}</text>',
            f'<rect x="{left}" y="{y + 2}" width="{long:.1f}" height="{height - 4}" fill="{colour}"/>',
            f'<line x1="{goal:.1f}" x2="{goal:.1f}" y1="{y}" y2="{y + height}" stroke="#333"/>',
            f'<text x="{left + long + 4:.1f}" y="{y + 11}">{each["ratio"]:.2f}×, '
            f"{each['tflops']:.0f} TFLOP/s</text>",
        ]
    one = left + scale
    parts.append(f'<line x1="{one}" x2="{one}" y1="4" y2="{height * len(rows) + 14}" stroke="#999"/>')
    parts.append("</svg>\n")
    path.write_text("\n".join(parts), encoding="utf-8")


def main() -> None:
    """Measure the parts that are asked for, print the table, and write what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    began, rows, refused = time.monotonic(), [], []
    print(f"{'':<34}{'µs':>8}{'TFLOP/s':>9}{'ceiling':>9}{'copy':>7}{'others':>9}{'ratio':>7}{'goal':>6}")
    for part in given.only:
        ratios = []
        torch.backends.cuda.matmul.allow_tf32 = False
        for case in PARTS[part]():
            if time.monotonic() - began > given.seconds:
                print("out of time", file=sys.stderr)
                break
            torch.backends.cuda.matmul.allow_tf32 = case.kind == "tf32"
            why = measure(case, given.rounds)
            if why:
                refused.append({"part": part, "name": case.name, "why": why})
                print(f"{case.name:<34} {why}")
                continue
            found = row(case)
            rows.append(found)
            ratios.append(found["ratio"])
            print(
                f"{found['name']:<34}{found['microseconds']:>8.1f}{found['tflops']:>9.1f}"
                f"{found['ceiling']:>9.0%}{found['bandwidth']:>7.0%}{found['peer_microseconds']:>9.1f}"
                f"{found['ratio']:>7.2f}{found['goal']:>6.2f}  {found['peer']}",
                flush=True,
            )
        if ratios:
            print(
                f"{part}: geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}\n", flush=True
            )
    if given.json:
        content = {"circumstances": circumstances(), "rounds": given.rounds, "rows": rows, "refused": refused}
        given.json.write_text(json.dumps(content, indent=1), encoding="utf-8")
    if given.svg and rows:
        write_svg(rows, given.svg)


if __name__ == "__main__":
    main()
