"""Time variants of the Hopper kernels of `lw.matmul` against torch, by turns, and write what was found.

    python benchmarks/matmul_sweep.py --shapes 4096,4096,4096 3000,3000,3000 --out sweep.json

Kernels are compiled by several processes first. In each round every variant and torch run once, with the L2
cache swept before each; the figures are medians.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import Any

from lanewise.formats import FORMATS, f32
from lanewise.linalg.families.build import ROWS, Build

SMS = 132
BF16 = FORMATS["bf16"]


@dataclass(frozen=True)
class Variant:
    """One way to compute a shape."""

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    schedule: str
    stages: int
    group: int = 8
    skew: int = 0
    l2: str | None = None

    @property
    def name(self) -> str:
        """A short name for tables."""
        m, n, _ = self.tile
        return f"{m}x{n} {self.cluster[0]}x{self.cluster[1]} {self.schedule[:4]} s{self.stages} g{self.group} k{self.skew} {self.l2 or ''}"


def build(variant: Variant, dtype: Any, a_k_major: bool, b_k_major: bool) -> Build:
    """Return the constants of a variant's kernel."""
    rows = variant.tile[0]
    consumers = 2 if variant.schedule == "pingpong" else (rows // ROWS if rows in (64, 192) else 2)
    return Build(
        a=dtype, b=dtype, out=BF16, sums=f32, a_k_major=a_k_major, b_k_major=b_k_major, tile=variant.tile,
        stages=variant.stages, cluster=variant.cluster, schedule=variant.schedule, consumers=consumers,
        skew=variant.skew,
    )  # fmt: skip


def fitting_stages(variant: Variant, dtype: Any, a_k: bool, b_k: bool, most: int = 8) -> Variant | None:
    """Return the variant with as many stages as fit, or None if the kernel cannot have its tile."""
    for stages in range(most, 2, -1):
        one = replace(variant, stages=stages)
        try:
            build(one, dtype, a_k, b_k).require_possible()
        except Exception:
            continue
        return one
    return None


def efficiency(variant: Variant, m: int, n: int, k: int) -> float:
    """Return the share of the tensor cores' time that a shape fills, by its waves of tiles."""
    bm, bn, _ = variant.tile
    across, along = variant.cluster
    tiles = -(-m // (bm * across)) * -(-n // (bn * along))
    waves = -(-tiles // (SMS // (across * along)))
    # a step of K takes so long as the larger of products and shared memory, then some for the epilogue
    speed = min(1.0, 0.62 + 0.38 * (bm * bn) / (128 * 256))
    return m * n / SMS / (waves * bm * bn) * speed


def candidates(m: int, n: int, k: int, dtype: Any, a_k: bool, b_k: bool, count: int) -> list[Variant]:
    """Return the most promising variants of a shape."""
    bk = 1024 // dtype.bits
    found: dict[Any, tuple[float, Variant]] = {}
    shapes = [(128, "cooperative"), (256, "cooperative"), (192, "cooperative"), (64, "pingpong"), (128, "pingpong")]
    for bm, schedule in shapes:
        for bn in range(64, 257, 16):
            for cluster in ((2, 1), (1, 2), (1, 1)):
                one = fitting_stages(Variant((bm, bn, bk), cluster, schedule, 4), dtype, a_k, b_k)
                if one is not None and not (bm == 192 and bn > 192):
                    found[bm, bn, cluster, schedule] = (efficiency(one, m, n, k), one)
    ranked = sorted(found.values(), key=lambda each: -each[0])
    taken: list[Variant] = []
    kinds: dict[Any, int] = {}
    for _, each in ranked:  # at most three of one kind, so that the list stays mixed
        kind = (each.tile[0], each.schedule)
        if kinds.get(kind, 0) < max(2, count // 3):
            kinds[kind] = kinds.get(kind, 0) + 1
            taken.append(each)
        if len(taken) == count:
            break
    return taken


def compile_one(given: Build) -> str:
    """Fill the disk cache with a kernel's machine code; what went wrong, if anything did."""
    try:
        from lanewise.gpu.assemble import cubin
        from lanewise.gpu.device import context
        from lanewise.linalg.families.warpgroup import compiled

        cubin(compiled(given).module("sm_90a"), context(0))
    except Exception as error:
        return f"{given.tile} {given.cluster} {given.schedule}: {error}"
    return ""


def prepared(given: Build, variant: Variant, a: Any, b: Any, c: Any) -> Any:
    """Return a function that launches a variant on arrays."""
    from lanewise.linalg.families.warpgroup import compiled, grid, tensor_maps

    (m, k), n = a.shape, b.shape[1]
    maps = tensor_maps(given, a, b, c, variant.l2)
    kernel = compiled(given)[grid(given, m, n, 1, SMS if given.cluster_size <= 2 else 128), given.threads, given.shared_bytes]
    arguments = (*maps, m, n, k, 1, variant.group, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0, 1.0)
    return lambda: kernel(*arguments)


def measure(shape: tuple[int, int, int], layout: str, variants: list[Variant], rounds: int) -> dict[str, Any]:
    """Time the variants of one shape; `layout` is NN, NT, TN or TT, as BLAS names A and B."""
    import torch

    m, n, k = shape
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(k, n, device="cuda").bfloat16()
    if layout[0] == "T":
        a = a.t().contiguous().t()
    if layout[1] == "T":
        b = b.t().contiguous().t()
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    wanted = torch.matmul(a, b)
    sweep = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def by(library: str) -> Any:
        def run() -> None:
            torch.backends.cuda.preferred_blas_library(library)
            torch.matmul(a, b, out=c)

        return run

    runs: dict[Any, Any] = {"cublas": by("cublas"), "cublaslt": by("cublaslt")}
    wrong = {}
    for each in variants:
        run = prepared(build(each, BF16, layout[0] == "N", layout[1] == "T"), each, a, b, c)
        c.fill_(float("nan"))
        run()
        unlike = (c.float() - wanted.float()).abs() > 0.02 * wanted.float().abs() + 0.02 * k**0.5 / 8
        wrong[each.name] = int((unlike | c.isnan()).sum())
        runs[each] = run
    times: dict[Any, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            sweep.zero_()
            torch.cuda._sleep(100_000)
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            run()
            after.record()
            torch.cuda.synchronize()
            if number >= 2:
                times[name].append(before.elapsed_time(after) * 1e3)
    median = {name: sorted(each)[len(each) // 2] for name, each in times.items()}
    best = min(median["cublas"], median["cublaslt"])
    rows = [
        {"name": each.name, **asdict(each), "us": median[each], "wrong": wrong[each.name],
         "share": best / median[each], "model": efficiency(each, m, n, k)}
        for each in variants
    ]  # fmt: skip
    rows.sort(key=lambda row: row["us"])
    return {
        "shape": shape, "layout": layout, "cublas": median["cublas"], "cublaslt": median["cublaslt"],
        "tflops": 2e-6 * m * n * k / rows[0]["us"], "variants": rows,
    }  # fmt: skip


def read_variant(text: str, a_k: bool, b_k: bool) -> Variant:
    """Return the variant that the command line names; 0 stages are as many as fit."""
    m, n, rows, columns, schedule, stages, group, skew, l2 = text.split(",")
    long = {"c": "cooperative", "p": "pingpong"}[schedule]
    found = Variant(
        (int(m), int(n), 64), (int(rows), int(columns)), long, int(stages), int(group), int(skew), l2 or None
    )
    return (fitting_stages(found, BF16, a_k, b_k) if not found.stages else found) or found


def main() -> None:
    """Measure the shapes that the command line names."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", nargs="+", default=["4096,4096,4096"])
    parser.add_argument("--layouts", nargs="+", default=["NT"])
    parser.add_argument("--variants", nargs="+", help="m,n,rows,columns,schedule,stages,group,skew,l2 each")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", default="sweep.json")
    given = parser.parse_args()
    jobs = []
    for text in given.shapes:
        m, n, k = map(int, text.split(","))
        for layout in given.layouts:
            a_k, b_k = layout[0] == "N", layout[1] == "T"
            chosen = [read_variant(each, a_k, b_k) for each in given.variants or ()]
            chosen = chosen or candidates(m, n, k, BF16, a_k, b_k, given.count)
            jobs.append(((m, n, k), layout, chosen))
    builds = {build(v, BF16, layout[0] == "N", layout[1] == "T") for _, layout, vs in jobs for v in vs}
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
        for problem in filter(None, pool.map(compile_one, builds, chunksize=2)):
            print("not compiled:", problem, flush=True)
    print(len(builds), "kernels compiled", flush=True)
    device = torch.cuda.get_device_properties(0)
    found: dict[str, Any] = {"device": device.name, "date": datetime.now(UTC).isoformat(), "torch": torch.__version__}
    found["runs"] = []
    for shape, layout, variants in jobs:
        try:
            run = measure(shape, layout, variants, given.rounds)
        except Exception as error:
            print(shape, layout, "failed:", error, flush=True)
            continue
        found["runs"].append(run)
        best = run["variants"][0]
        print(f"{shape} {layout}: cublas {run['cublas']:.1f} lt {run['cublaslt']:.1f} us; {run['tflops']:.0f} TF", flush=True)
        for row in run["variants"]:
            print(f"    {row['name']:36s} {row['us']:8.1f} us {row['share']:.3f} model {row['model']:.2f} wrong {row['wrong']}")
        with open(given.out, "w") as file:
            json.dump(found, file, indent=1)
        assert best


if __name__ == "__main__":
    main()
