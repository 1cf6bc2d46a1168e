"""Times of tiles and divisions for random attentions: what the model of time of lw.attention is fitted to.

    python benchmarks/attention_plans.py --seed 1 --seconds 180 --json plans.json
    python benchmarks/attention_plans.py --regret          # of the model in use, on the record
    python benchmarks/attention_plans.py --fit 3000        # costs fitted anew to one half of the record

The regret of a choice is its time over the time of the best that was measured. Each time is the median of
rounds in which all take turns, the L2 cache swept before every run, beside torch's attention by cuDNN and
FlashAttention-2. A name is the number of warpgroups that multiply, "o" if they take turns, "p" if blocks are
persistent, and into how many parts keys are divided: "2op", "1/16".
"""
# mypy: disable-error-code="no-untyped-call,misc"

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import exp, log
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from time import time
from typing import Any, NamedTuple
from unittest.mock import patch

from lanewise.formats import bf16
from lanewise.linalg.kernels.attention.plans import (
    H200,
    MORE_KEYS,
    Costs,
    divisions,
    microseconds,
    undivided,
)
from lanewise.linalg.kernels.attention.plans import tiles_of as kinds_of
from lanewise.linalg.kernels.attention.sizes import Sizes, Tile

RECORD = Path(__file__).parent / "results" / "h200_attention_plans.json"
#: The most bytes and operations of an attention that is drawn.
MOST_BYTES, MOST_OPERATIONS = 1.2e9, 4e11
#: Rounds, and those before them.
ROUNDS, WARM_UP = 7, 4
#: Cycles for which the GPU sleeps before a run, more than the host needs for any call.
SLEEP = 1_000_000
#: Microseconds of a launch, which the model leaves out.
LAUNCH = 3.6


class Case(NamedTuple):
    """An attention of a record: its sizes as the kernel computes them, and microseconds by tiles."""

    sizes: Sizes
    causal: bool
    times: dict[Tile, float]
    library: float


# drawing ----------------------------------------------------------------------------------------------------


def drawn(seed: int, decodes: int, few: int, prefills: int) -> list[tuple[Sizes, bool]]:
    """Return random attentions of one query, of up to 64, and of more; whether they are causal."""
    rng, found = random.Random(seed), []
    depths = (64, 96, 128, 128, 256)

    def length(first: int, last: int) -> int:
        return 2 ** rng.randint(first, last) if rng.random() < 0.6 else int(2 ** rng.uniform(first, last))

    def decode() -> tuple[Sizes, bool]:
        heads = rng.choice([(32, 8), (32, 32), (8, 1), (64, 8), (16, 2), (28, 4)])
        batch = rng.choice([1, 1, 1, 2, 4, 8, 16, 32, 64])
        return Sizes(batch, *heads, 1, length(8, 17), rng.choice(depths)), False

    def some() -> tuple[Sizes, bool]:
        heads, queries = rng.choice([(32, 8), (16, 16), (8, 1), (4, 4)]), rng.choice([2, 3, 4, 8, 16, 32, 64])
        sizes = Sizes(
            rng.choice([1, 1, 2, 4, 8]), *heads, queries, max(queries, length(8, 16)), rng.choice(depths)
        )
        return sizes, rng.random() < 0.5

    def prefill() -> tuple[Sizes, bool]:
        heads, queries = rng.choice([(32, 8), (16, 16), (8, 1), (4, 4), (8, 8)]), length(6, 11) + 1
        keys = max(queries, length(8, 15)) if rng.random() < 0.6 else queries
        return Sizes(
            rng.choice([1, 1, 1, 2, 4]), *heads, queries, keys, rng.choice(depths)
        ), rng.random() < 0.5

    for draw, count in ((decode, decodes), (some, few), (prefill, prefills)):
        while count:
            sizes, causal = draw()
            rows, keys = sizes.batch * sizes.heads * sizes.queries, sizes.batch * sizes.key_heads * sizes.keys
            operations = 4.0 * rows * sizes.keys * sizes.depth
            if 4 * sizes.depth * (rows + keys) < MOST_BYTES and operations < MOST_OPERATIONS:
                found.append((sizes, causal))
                count -= 1
    return found


def computed(sizes: Sizes, causal: bool) -> tuple[Sizes, bool]:
    """Return sizes as the kernel computes them: heads that share keys are one head's queries."""
    if sizes.queries > 1:
        return sizes, causal
    return sizes._replace(heads=sizes.key_heads, queries=sizes.heads // sizes.key_heads), False


def tiles_of(sizes: Sizes) -> dict[str, Tile]:
    """Return the tiles and divisions that are measured, by their names."""
    every = [each for tile in kinds_of(sizes) for each in (tile, *divisions(sizes, tile))]
    return {name_of(tile): tile for tile in every}


def name_of(tile: Tile) -> str:
    """Return how a record calls a tile.

    >>> name_of(Tile(consumers=3, ordered=True, persistent=True)), name_of(Tile(consumers=1, parts=16))
    ('3op', '1/16')
    """
    flags = "o" * tile.ordered + "p" * tile.persistent
    return f"{tile.consumers}{flags}" + f"/{tile.parts}" * (tile.parts > 1)


# measuring --------------------------------------------------------------------------------------------------


def compile_one(sizes: Sizes, causal: bool, tile: Tile) -> None:
    """Compile the kernels of a tile, which the cache folder keeps."""
    from lanewise.linalg.kernels.attention.kernel import compiled, traits_of
    from lanewise.linalg.kernels.attention.split_keys import merging

    compiled(traits_of(sizes, bf16, causal, tile)).cubin("sm_90a")
    for shared in (False, True) if tile.parts > 1 else ():
        merging(bf16, sizes.depth, shared).cubin("sm_90a")


def run_of(sizes: Sizes, causal: bool, tile: Tile, tensors: Sequence[Any]) -> Callable[[], Any]:
    """Return what computes an attention by a tile."""
    import torch

    from lanewise.formats import f32
    from lanewise.gpu.device import context
    from lanewise.lang import u32
    from lanewise.linalg.arrays import device_view
    from lanewise.linalg.kernels.attention.kernel import launches_of
    from lanewise.linalg.kernels.attention.sizes import Operands
    from lanewise.linalg.kernels.attention.split_keys import partial_bytes
    from lanewise.linalg.launch.prepare import record_launches

    counter = torch.zeros(1, dtype=torch.uint32, device="cuda") if tile.persistent else None
    size = partial_bytes(sizes, tile.parts) // 4
    partial = torch.empty(size, device="cuda") if size else None
    held = [*tensors, None, counter, partial]
    addresses = [0 if each is None else each.data_ptr() for each in held]
    views: list[Any] = [
        None if each is None else device_view(number, each.data_ptr(), each.shape, each.stride(), fmt)
        for number, (each, fmt) in enumerate(zip(held, [bf16] * 4 + [f32, u32, f32], strict=True))
    ]
    operands, there = Operands(*views), context(0)
    launches = launches_of(
        sizes, bf16, causal, tile, operands, sizes.depth**-0.5, there.device.multiprocessors
    )
    prepared = record_launches(None, launches, there, addresses)
    return lambda held=held: prepared(addresses, 0)


def measured(sizes: Sizes, causal: bool) -> dict[str, Any]:
    """Return a row of the record."""
    import torch
    from attention import by_torch
    from gpu_times import timed

    B, H, G, L, S, D = sizes
    q = torch.randn((B, H, L, D), device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn((B, G, S, D), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    runs: dict[str, Callable[[], Any]] = {}
    if not causal or L in (1, S):  # torch's mask begins at the first query and key
        runs = by_torch(q, k, v, causal and L > 1)
        runs.pop("efficient", None)
    of_kernel, masked = computed(sizes, causal)
    outs = []
    for name, tile in tiles_of(of_kernel).items():
        shape = (of_kernel.batch, of_kernel.heads, of_kernel.queries, D)
        outs.append(torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16))
        runs[name] = run_of(of_kernel, masked, tile, (q.view(shape), k, v, outs[-1]))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(WARM_UP + ROUNDS):
        for name, run in runs.items():
            found = timed(run, sleep=SLEEP)
            if number >= WARM_UP:
                times[name].append(found)
    first = outs[0].float()
    off = max((out.float() - first).abs().max().item() for out in outs)
    if not off <= 0.02 * max(1.0, first.abs().max().item()):
        raise ArithmeticError(f"{sizes}: results of tiles differ by {off}")
    return {
        "sizes": list(sizes), "causal": causal,
        "microseconds": {name: round(median(each), 2) for name, each in times.items()},
    }  # fmt: skip


def sweep(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure random attentions until the time is over."""
    until, rows = time() + given.seconds, []
    cases = drawn(given.seed, *given.counts)
    kernels = {(*computed(*case), tile) for case in cases for tile in tiles_of(computed(*case)[0]).values()}
    by_kernel = {}
    for sizes, causal, tile in kernels:
        aligned = (sizes.keys - sizes.queries) % tile.keys == 0
        by_kernel[sizes.depth, causal, aligned, replace(tile, parts=min(tile.parts, 2))] = sizes, causal, tile
    with get_context("spawn").Pool(given.processes) as pool:
        pool.starmap(compile_one, by_kernel.values())
    import torch

    for case in cases:
        if time() > until:
            break
        rows.append(measured(*case))
        torch.cuda.empty_cache()
    return rows


# the model --------------------------------------------------------------------------------------------------


def cases_of(rows: list[dict[str, Any]]) -> list[Case]:
    """Return the attentions of a record that have more than one time."""
    cases = []
    for row in rows:
        sizes, causal = computed(Sizes(*row["sizes"]), row["causal"])
        with patch.dict(MORE_KEYS, clear=True):  # which the record does not know
            named, found = tiles_of(sizes), row["microseconds"]
        times = {named[name]: value for name, value in found.items() if name in named}
        library = min((found[name] for name in ("cudnn", "flash") if name in found), default=0.0)
        if len(times) > 1:
            cases.append(Case(sizes, causal, times, library))
    return cases


def regrets(cases: list[Case], costs: Costs) -> list[float]:
    """Return, for each attention, the time of the tile that costs choose over the best one's."""
    found = []
    for case in cases:
        whole = undivided(case.sizes)
        if {tile.keys for tile in whole}.isdisjoint(tile.keys for tile in case.times):
            continue  # its tiles have more keys now
        may_be = [tile for tile in case.times if tile.parts > 1 or tile in whole]
        chosen = min(may_be, key=lambda tile: microseconds(case.sizes, case.causal, tile, costs))
        found.append(case.times[chosen] / min(case.times.values()))
    return found


def errors(cases: list[Case], costs: Costs) -> list[float]:
    """Return how far the model's times are from those measured, as logarithms, at most 0.4."""
    return [
        min(0.4, abs(log((microseconds(case.sizes, case.causal, tile, costs) + LAUNCH) / value)))
        for case in cases for tile, value in case.times.items()
    ]  # fmt: skip


def loss(cases: list[Case], costs: Costs) -> float:
    """Return what a fit makes small: regret, large regret more, and the times' errors."""
    logs = [log(each) for each in regrets(cases, costs)]
    off = errors(cases, costs)
    return sum(each + 2 * max(0.0, each - 0.05) for each in logs) / len(logs) + 0.4 * sum(off) / len(off)


def changed(costs: Costs, rng: random.Random, much: float) -> Costs:
    """Return costs of which one to three differ."""
    for field in rng.sample(fields(Costs), rng.choice([1, 1, 2, 3])):
        value: Any = getattr(costs, field.name)
        factor = exp(rng.gauss(0.0, much))
        if isinstance(value, tuple):
            place = rng.randrange(len(value))
            value = tuple(each * factor if number == place else each for number, each in enumerate(value))
        else:
            value = max(1.0, value * factor) if field.name == "overlap" else value * factor
        costs = replace(costs, **{field.name: value})
    return costs


def fit(cases: list[Case], steps: int) -> Costs:
    """Return costs that fit better than those in use, by steps at random that are kept if they do."""
    rng, best, least = random.Random(1), H200, loss(cases, H200)
    for step in range(steps):
        tried = changed(best, rng, 0.2 * (1 - step / steps) + 0.02)
        found = loss(cases, tried)
        if found < least:
            best, least = tried, found
    return best


def report(name: str, cases: list[Case], costs: Costs) -> None:
    """Print regret, the error of times, and the speed beside the library's best."""
    found, off = regrets(cases, costs), errors(cases, costs)
    chosen = [min(case.times.values()) * regret for case, regret in zip(cases, found, strict=True)]
    ratios = [case.library / value for case, value in zip(cases, chosen, strict=True) if case.library]
    print(
        f"{name}: {len(cases)} attentions, regret {median(found):.3f} in the median, "
        f"{quantiles(found, n=20)[-1]:.3f} at the 95th percentile, {max(found):.3f} at most; times are off "
        f"by {100 * sum(off) / len(off):.1f} %; {geometric_mean(ratios):.3f} times as fast as the better of "
        f"cuDNN and FlashAttention-2, {min(ratios):.3f} at least, {sum(each < 1 for each in ratios)} of "
        f"{len(ratios)} below 1"
    )


def main() -> None:
    """Measure, or report on a record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--counts", type=int, nargs=3, default=[110, 50, 110], help="of each kind")
    parser.add_argument("--processes", type=int, default=13, help="that compile")
    parser.add_argument("--json", type=Path, default=RECORD)
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--fit", type=int, metavar="STEPS")
    given = parser.parse_args()
    if not given.regret and not given.fit:
        from gpu_times import save

        rows = sweep(given)
        how = "microseconds by consumers/parts, by turns, L2 swept, medians"
        save(given.json, how, seed=given.seed, attentions=rows)
    else:
        rows = json.loads(given.json.read_text(encoding="utf-8"))["attentions"]
    cases = cases_of(rows)
    report("the model in use", cases, H200)
    if given.fit:
        costs = fit(cases[::2], given.fit)
        print(costs)
        report("fitted to one half, on the other", cases[1::2], costs)


if __name__ == "__main__":
    main()
