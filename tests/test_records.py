"""These tests check documents: the records in benchmarks/results support the figures that the pages quote.

They measure nothing and need no GPU. They read JSON files that were written when a GPU was at hand, and the
pages that quote them, and fail if a page claims what the file does not say. What measures is in tests/gpu
and benchmarks; CONTRIBUTING.md says how to record anew.
"""

import json
import math
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from lanewise.linalg.kernels.attention.plans import H200
from lanewise.linalg.kernels.hopper.launches import is_promoted
from lanewise.linalg.kernels.int4.packing import CHUNK
from lanewise.linalg.kernels.int4.plans import Tile, tile_of
from lanewise.linalg.rules import problem_of_sizes

ROOT = Path(__file__).parents[1]


def record(name: str) -> Any:
    """The record of that name, as it is on file."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def page(name: str) -> str:
    """The text of a page, its lines joined."""
    return " ".join((ROOT / name).read_text().split())


def test_docs_may_say_that_the_machine_and_the_gpu_left_the_same_bits() -> None:
    seen = record("h200_same_bits")
    exact = {name: each for name, each in seen["entries"].items() if not each.get("approximate")}
    assert seen["device"] and seen["driver"] and seen["date"]
    assert len(exact) > 100 and all(each["launches"] and each["compared"] for each in exact.values())
    assert not any(each["differing"] for each in exact.values())
    assert seen["entries"]["attention"]["largest_difference"] < 0.002
    quoted = f"none of the {seen['bytes_compared'] / 1e6:.0f} million bytes differed"
    assert quoted in page("docs/gpu.md")


def test_docs_may_say_that_every_compared_counter_was_equal() -> None:
    seen = record("h200_counters")
    assert seen["compared"] == seen["equal"] == 1227
    assert f"{seen['equal']} of {seen['compared']} counters" in page("docs/checks.md")
    assert f"{seen['equal']} counters of `lw.check` equal Nsight Compute's" in page("README.md")


def test_docs_quote_what_calls_of_new_sizes_cost() -> None:
    seen = record("new_sizes_emerald_rapids_2_cores")

    def milliseconds(when: str, what: str) -> float:
        return float(median(run[what] for run in seen[when]["runs"])) / 1000

    row, key, kept = (
        "product, one row less",
        "attention, one key more",
        "product, kernel kept by another process",
    )
    said = page("docs/matmul.md")
    assert f"{milliseconds('after', row):.1f} ms for a product with one row less" in said
    assert f"and {milliseconds('after', key):.1f} ms for `lw.attention` with one key more" in said
    assert f"has kept the kernel, {milliseconds('after', kept):.0f} ms" in said
    assert f"has to be made, {milliseconds('after', 'product, kernel not known') / 1000:.2f} s" in said
    changes = page("CHANGELOG.md")
    for what, digits in ((row, 1), (key, 1), (kept, 0)):
        assert (
            f"{milliseconds('after', what):.{digits}f} ms ({milliseconds('before', what):.{digits}f}"
            in changes
        )


def test_docs_quote_the_recorded_share_of_each_rung() -> None:
    seen = record("h200_ladder")
    best = max(seen["rungs"], key=lambda row: row["tflops"])
    assert best["share_of_torch"] >= 0.6 and best["tflops"] > 396
    assert all(row["elements_unlike_torch"] == 0 for row in seen["rungs"])
    for row in seen["rungs"]:
        quoted = f"| rung {row['rung']} | {row['tflops']:.0f} | {100 * row['share_of_torch']:.1f} % |"
        assert quoted in page("docs/ladder.md")


def test_docs_may_say_that_a_warm_launch_was_recorded_below_five_microseconds() -> None:
    launches = record("h200_launch")["microseconds_a_warm_launch"]
    for way in ("lanewise: k = kernel[grid, block]; k(…)", "lanewise language: kernel[grid, block](…)"):
        assert launches[way]["best"] <= 5


def test_docs_may_say_how_many_published_kernels_compile_and_run() -> None:
    seen = record("published")
    columns = ("files", "kernels", "compile", "prepared", "run", "stopped_by_made_up_arguments")
    rows = {name: [each[column] for column in columns] for name, each in seen["projects"].items()}
    rows["together"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    text = page("docs/ptx.md")
    for name, figures in rows.items():
        assert " | ".join([f"| {name}", *map(str, figures)]) + " |" in text
    for _files, kernels, compile_, prepared, run, stopped in rows.values():
        assert kernels >= compile_ >= prepared >= run + stopped


def test_the_table_of_planted_mistakes_is_that_of_the_record() -> None:
    kernels = record("h200_sanitizer")["kernels"].values()

    def told(said: dict[str, Any]) -> bool:
        return bool(said.get("errors") or said.get("warnings"))

    found = [
        sum(told(each["wrong"].get(tool, {})) and not told(each["right"].get(tool, {})) for each in kernels)
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck")
    ]
    planted = sum(bool(each["wrong"]) for each in kernels)
    (total,) = [line for line in page_lines("docs/checks.md") if line.startswith("| **all** |")]
    cells = [int(cell) for cell in total.split("|")[2:-1]]
    assert cells[0] == planted and cells[2:] == found
    ran = [
        each[twin].get(tool) for each in kernels for twin in ("right",) for tool in ("memcheck", "racecheck")
    ]
    assert all(said is not None and "not_run" not in said for said in ran)


def page_lines(name: str) -> list[str]:
    """The lines of a page."""
    return (ROOT / name).read_text().splitlines()


def test_docs_may_say_that_late_warps_load_what_was_stored() -> None:
    seen, text = record("h200_late_warps"), page("docs/virtual-gpu.md")
    assert all(seen[name] for name in ("device", "driver", "cuda", "torch", "triton", "date"))
    rows = [row for row in seen["experiments"] if row["kernel"] == "late"]
    (means,) = (row for row in seen["experiments"] if row["kernel"] == "running")
    without = {(row["warps"], row["rounds"]): row for row in rows if not row["barrier"]}
    for warps, before in ((32, "drifted apart, "), (4, "and ")):
        row = without[warps, 32]
        assert row["wrong"] and f"{before}{row['wrong']:,} of {row['values']:,}" in text
    fenced = [row for row in rows if row["barrier"]]
    assert len(fenced) == len(without) == 6 and not any(row["wrong"] for row in (*fenced, means))
    assert f"With the barrier, none of {sum(row['values'] for row in fenced):,} was." in text
    assert not without[4, 0]["wrong"] and not without[8, 0]["wrong"]
    assert f"Of the running means, none of {means['values']:,} was wrong." in text


def test_docs_may_say_that_tensor_maps_are_the_drivers() -> None:
    seen = record("h200_tensor_maps")
    counts = seen["counts"]
    assert seen["device"] and seen["driver"] and seen["toolkit"] and seen["date"]
    assert f"{counts['legal']:,} random maps have the driver's bytes" in page("docs/hopper.md")
    asked, refused = counts["at_limits"], counts["at_limits_refused"]
    quoted = f"all of {asked:,} calls at the limits of the rules, {refused:,} of which"
    assert quoted in page("docs/hopper.md")


def test_docs_quote_the_recorded_speed_of_products() -> None:
    seen, text = record("h200_matmul"), page("docs/matmul.md")
    assert seen["circumstances"]["gpu"]["driver_version"] in text and seen["circumstances"]["date"]
    parts: dict[str, list[float]] = {}
    for each in seen["rows"]:
        parts.setdefault(each["part"], []).append(each["ratio"])
    for part in ("squares", "small", "skinny"):
        ratios = parts[part]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        assert f"| {min(ratios):.2f} to {max(ratios):.2f}, geometric mean {mean:.3f} |" in text
    for part in ("long_k", "odd", "int8", "grouped", "fused", "sparse"):
        assert f"| {', '.join(f'{ratio:.2f}' for ratio in parts[part])} |" in text
    tf32, f64, f32 = parts["single"]
    assert f"| {tf32:.2f}, {f64:.2f} |" in text and f"SGEMM's error | {f32:.2f} |" in text
    forms: dict[str, list[str]] = {}
    for each in seen["rows"]:
        if each["part"] == "fp8":
            forms.setdefault(each["name"].split()[-1], []).append(f"{each['ratio']:.2f}")
    one, rows, blocks = forms["tensor"], forms["rows"], forms["blocks"]
    assert f"| {', '.join(one[:4])} |" in text and f"| {', '.join(rows[:4])} |" in text
    assert f"| {', '.join(one[4:])}; {', '.join(rows[4:])} |" in text
    assert f"| {', '.join(blocks[:4])}; {', '.join(blocks[4:])} |" in text
    host = seen["host"]["microseconds"]
    quoted = f"takes {host['lw.matmul(a, b)']:.1f} µs of the host's time"
    assert quoted in text and f"`torch.matmul` takes {host['torch.matmul(a, b)']:.1f}" in text


def test_docs_quote_the_recorded_speed_of_random_products() -> None:
    seen, text = record("h200_matmul_random"), page("docs/matmul.md")
    timed = [row for row in seen["products"] if row.get("ratio")]
    assert not any(row.get("wrong") for row in seen["products"])

    def mean(rows: list[Any]) -> str:
        return f"{math.exp(sum(math.log(row['ratio']) for row in rows) / len(rows)):.2f}"

    dense = [row for row in timed if row.get("dtype") in ("bf16", "f16")]
    assert f"On {len(dense)} fresh random products of bf16 and f16 (`python {seen['how']}`" in text
    assert f"driver {seen['driver']}" in text and f"calls ran at {mean(dense)} times the speed" in text
    of = {name: [row for row in timed if row["group"] == name] for name in {row["group"] for row in timed}}
    quoted = (
        f"Large ones reach {mean(of['large'])}, small ones {mean(of['small'])}, skinny ones "
        f"{mean(of['skinny'])}, long K {mean(of['long K'])} (there are {len(of['long K'])}), batches "
        f"{mean(of['batches'])}, odd ones {mean(of['odd'])}; {len(of['f32'])} products of f32 "
        f"reach {mean(of['f32'])}, "
        f"{len(of['s8'])} of int8 {mean(of['s8'])}, {len(of['e4m3'])} of e4m3 {mean(of['e4m3'])}, and "
        f"{len(of['groups'])} groups of experts {mean(of['groups'])}."
    )
    assert quoted in text
    worst, *others = sorted(timed, key=lambda row: row["ratio"])
    assert f"of {worst['dtype']} at {worst['ratio']:.2f} ({worst['lanewise']:.1f} µs;" in text
    assert all(f"at {row['ratio']:.2f} ({row['lanewise']:.1f} and" in text for row in others[:2])


def test_docs_quote_random_products_of_more_seeds() -> None:
    timed = [row for row in record("h200_matmul_random_seeds")["products"] if row["ratio"]]
    text = " ".join(page("docs/matmul.md").split())

    def mean(rows: list[Any]) -> str:
        return f"{math.exp(sum(math.log(row['ratio']) for row in rows) / len(rows)):.2f}"

    dense = [row for row in timed if row["dtype"] in ("bf16", "f16")]
    seeds = {row["seed"]: [each for each in dense if each["seed"] == row["seed"]] for row in dense}
    means = sorted(mean(rows) for rows in seeds.values())
    tenth = sorted(row["ratio"] for row in dense)[len(dense) // 10]
    faster = sum(row["ratio"] >= 1 for row in dense)
    assert len(seeds) == 5 and f"Five other seeds gave {means[0]} to {means[-1]}:" in text
    assert (
        f"{len(dense):,} products of bf16 and f16 it is {mean(dense)}, the 10th percentile {tenth:.2f}, and"
        in text
    )
    assert f"{faster:,} were as fast or faster" in text
    names = ("large", "small", "skinny", "long K", "batches", "odd", "f32", "s8", "e4m3")
    of = {name: mean([row for row in timed if row["group"] == name]) for name in names}
    assert (
        f"Large ones reach {of['large']} there, small ones {of['small']}, skinny ones {of['skinny']}," in text
    )
    assert f"long K {of['long K']}, batches {of['batches']}, odd ones {of['odd']}; f32 {of['f32']}," in text
    assert f"int8 {of['s8']}, e4m3 {of['e4m3']}." in text


def test_docs_quote_products_by_turns() -> None:
    rows, text = record("h200_matmul_turns")["products"], " ".join(page("docs/matmul.md").split())

    def share(group: str) -> tuple[int, str]:
        some = [row["times"] for row in rows if group in ("", row["group"])]
        logs = [math.log(times[1] * times[3] / times[0] / times[2]) / 2 for times in some]
        return len(some), f"{math.exp(sum(logs) / len(logs)):.2f}"

    (count, taken), (odd, of_odd), (single, of_single) = share(""), share("odd"), share("f32")
    (integers, of_integers), how = share("s8"), record("h200_matmul_turns")["how"]
    assert f"calls of these {count} took {taken} times as long: {odd} odd ones {of_odd}," in text
    assert f"{single} of f32 {of_single}, {integers} of int8 {of_integers}" in text
    assert how.replace("matmul_turns.py", "matmul_turns.py BEFORE AFTER") in text


def gains_by_promotion(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """What L2 gains by reading 256 bytes at once, where the rule asks it to, and elsewhere."""
    gains: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        problem = problem_of_sizes(
            row["m"], row["n"], row["k"], row["dtype"], layout=row["layout"], batch=row["batch"],
            out="bf16" if row["dtype"] == "e4m3" else None,
        )  # fmt: skip
        gains[any(is_promoted(problem, name) for name in "AB")].append(row["none"] / row["256B"])
    return gains[True], gains[False]


def test_docs_quote_what_reading_whole_lines_gains() -> None:
    """The table of promoted operands; the rule's operands gain, and nobody's loss is hidden by it."""
    rows, text = record("h200_l2_promotion")["products"], page("docs/matmul-kernels.md")
    quoted = 0
    for row in rows:
        batch = f"{row['batch']}×" if row["batch"] > 1 else ""
        name = f"{batch}{row['m']}×{row['n']}×{row['k']} {row['dtype']} ({row['layout'].upper()})"
        if f"| {name} | {row['none']:.0f} | {row['256B']:.0f} |" in text:
            quoted += 1
    assert quoted == 7
    of_rule, others = gains_by_promotion(rows)
    assert geometric_mean(of_rule) > 1.05 and 0.98 < geometric_mean(others) < 1.01
    larger, smaller = gains_by_promotion(record("h200_l2_promotion_sizes")["products"])
    assert f"the {len(larger)} with a larger operand run at {geometric_mean(larger):.2f} times" in text
    assert f"with it, least {min(larger):.2f}, and the {len(smaller)} with a smaller one at" in text
    assert f"at {geometric_mean(smaller):.2f}, least {min(smaller):.2f}." in text


def test_docs_may_say_what_tuning_gains() -> None:
    seen, text = record("h200_tuned"), page("docs/matmul.md")
    gains = [usual / tuned for _, usual, tuned, _ in seen["products"]]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    assert not seen["wrong"] and min(gains) > 0.97
    quoted = (
        f"{len(gains)} random products ran at {mean:.2f} times the speed after tuning, and none was slower"
    )
    assert quoted in text


def test_docs_quote_the_recorded_speed_of_attention() -> None:
    seen, text = record("h200_attention"), page("docs/attention.md")

    def span(few: bool, peer: str) -> str:
        times = [each["microseconds"] for each in seen["rows"] if (each["queries"] == 1) == few]
        ratios = [each[peer] / each["lanewise"] for each in times if peer in each]
        return f"{min(ratios):.2f} to {max(ratios):.2f}"

    assert f"{span(False, 'cudnn')} times as fast as cuDNN" in text
    assert f"{span(False, 'flash')} times as fast as FlashAttention-2" in text
    assert f"{span(True, 'cudnn')} times as fast as cuDNN's" in text
    assert f"{seen['host_microseconds']:.1f} µs of the host's time" in text


def test_docs_quote_attentions_at_random() -> None:
    rows, said = record("h200_attention_random")["rows"], []
    for first, last in ((1, 1), (2, 64), (65, 1 << 31)):
        ratios = [row["ratio"] for row in rows if first <= row["queries"] <= last and row["ratio"] > 0]
        said += [len(ratios), geometric_mean(ratios), min(ratios)]
    assert (
        "{} attentions of one query were {:.2f} times as fast in the geometric mean ({:.2f} at least), {} of "
        "2 to 64 queries {:.2f} times ({:.2f} at least), and {} of more {:.2f} times ({:.2f} at least)"
    ).format(*said) in page("docs/attention.md")


def test_docs_quote_the_regret_of_dividing_keys() -> None:
    spec = spec_from_file_location("attention_plans", ROOT / "benchmarks" / "attention_plans.py")
    assert spec is not None and spec.loader is not None
    plans = module_from_spec(spec)
    spec.loader.exec_module(plans)
    cases = plans.cases_of(record("h200_attention_plans")["attentions"])
    found = sorted(plans.regrets(cases[1::2], H200))
    middle, most = found[len(found) // 2], found[len(found) * 19 // 20]
    said = f"{middle:.3f} in the median, {most:.2f} at the 95th percentile and {found[-1]:.2f} at most"
    text = page("docs/attention.md")
    assert f"fitted to {len(cases[::2])} attentions" in text
    assert f"of {len(found)} others that were not in the fit, {said}" in text


def test_docs_quote_the_recorded_speed_of_4_bit_weights() -> None:
    """Of the planner's choices among the divisions that were timed, and how much time they lose."""
    layers = {(4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672)}
    ratios: dict[int, list[float]] = {}
    regrets = []
    more_rows = [each for each in record("h200_int4_plans")["products"] if each["rows"] > 8]
    few_rows = [*record("h200_int4_few_rows")["products"], *record("h200_int4_sweep")["products"]]
    for each in few_rows + more_rows:
        m, k, n = each["rows"], each["k"], each["n"]
        times = {}
        for given in each["tiles"]:
            microseconds, fields = given["microseconds"], {**given}
            del fields["microseconds"]
            times[Tile(**fields)] = microseconds
        chosen = times[tile_of(m, n, -(-k // CHUNK))]
        regrets.append(chosen / min(times.values()))
        if (k, n) in layers and "bf16" in each:
            ratios.setdefault(m, []).append(min(each["bf16"].values()) / chosen)
    many = [each["ratio"] for each in record("h200_int4")["rows"] if each["rows"] > 1024]
    text = " ".join(page("docs/matmul.md").split())

    def span(found: list[float]) -> str:
        return f"{min(found):.2f} to {max(found):.2f} with"

    few = [f"{span(ratios[m])} {m}{' rows' if m == 8 else ''}" for m in (8, 16, 32, 64, 128, 256)]
    assert ", ".join(few) in text
    assert f"{span(ratios[512] + ratios[1024])} 512 and 1024" in text
    assert f"{span(many)} 2048 and 4096" in text
    regrets.sort()
    middle, most = regrets[len(regrets) // 2], regrets[len(regrets) * 19 // 20]
    said = f"{middle:.3f} times as long as the fastest divisions in the median, {most:.2f} at the 95th"
    assert f"{said} percentile, {regrets[-1]:.2f} at most" in text


def test_docs_quote_the_recorded_floors_of_reading_memory() -> None:
    floors = record("h200_memory_floors")["floors"]
    kinds = {"bulk": "bulk copies", "boxes": "boxes of TMA", "plain": "plain loads"}
    text = page("docs/matmul-kernels.md")
    for size in ("16.8 MB", "33.6 MB", "67.1 MB", "117.4 MB", "234.9 MB"):
        for kind, title in kinds.items():
            for hint, said in (("none", ""), ("evict_first", ", `evict_first`")):
                names = [
                    each for each in floors[size] if each.startswith(kind) and each.endswith(f", {hint}")
                ]
                spans = []
                for swept in ("writes", "reads"):
                    times = [floors[size][name][swept] for name in names]
                    spans.append(f"{min(times):.1f}–{max(times):.1f}")
                assert f"| {size} by {title}{said} | {spans[0]} | {spans[1]} |" in text


def test_docs_quote_the_recorded_cost_of_instructions_beside_wgmma() -> None:
    cycles = {each["beside"]: round(each["cycles"]) for each in record("h200_wgmma_beside")["rows"]}
    text = " ".join(page("docs/matmul-kernels.md").split())
    alone, single = cycles["nothing"], cycles["copies of 4 bytes"]
    together = cycles["64 fma, 3 loads, copies of 4 bytes"]
    assert f"a step takes {cycles['64 fma']} cycles with 64 fma beside it and without" in text
    assert f"with 128 it takes {cycles['128 fma']}" in text and cycles["copies of 16 bytes"] == alone
    assert f"takes {single} cycles instead of {alone}, and {together} together with 64 fma" in text


def test_docs_may_say_how_many_blackwell_kernels_are_right() -> None:
    seen = record("blackwell_kernels")
    text = page("docs/blackwell.md")
    for project, count in seen["counts"].items():
        rows = [each for each in seen["programs"] if each["project"] == project]
        assert count == {"tried": len(rows), "right": sum(each["verdict"] == "right" for each in rows)}
        assert all(each["verdict"] == "right" or each["why_not"] for each in rows)
        assert f"| {count['right']} of {count['tried']} |" in text


def test_docs_may_say_how_many_kernels_for_blackwell_a_check_accuses() -> None:
    verdicts: dict[str, dict[str, list[str]]] = {}
    for each in record("blackwell_checks")["programs"]:
        kernels = verdicts.setdefault(each["project"], {})
        kernels.setdefault(each["program"].rpartition(", ")[0], []).append(each["verdict"])
    text, not_tried = page("docs/blackwell.md"), {"Gluon, Triton 3.9.0": 6}
    titles = {
        "CUTLASS": "CUTLASS at 7107b05",
        "CuTe": "CuTe's tutorials",
        "DeepGEMM": "DeepGEMM at 54e2261",
        "Gluon, Triton 3.6.0": "Gluon's tests, Triton 3.6.0",
        "Gluon, Triton 3.9.0": "Gluon's tests, Triton 3.9.0",
    }
    for project, kernels in verdicts.items():
        if project.endswith(", mended"):
            assert {verdict for each in kernels.values() for verdict in each} == {"right"}
            continue
        assert all(len(each) == 3 for each in kernels.values())
        count = len(kernels) + not_tried.get(project, 0)
        silent = sum(set(each) == {"right"} for each in kernels.values())
        accused = sum("wrong" in each for each in kernels.values())
        row = (
            f"| {titles.get(project, project)} | {count} | {silent} | {f'{accused}: ' if accused else '| |'}"
        )
        assert row in text, row


def test_docs_may_say_on_which_commit_silent_kernels_for_blackwell_were_checked() -> None:
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in record("blackwell_checks")["programs"]:
        rows.setdefault((each["project"], each["program"].rpartition(", ")[0]), []).append(each)
    newest = {
        each["commit"][:8]
        for (project, _), kernel in rows.items()
        if not project.endswith((", mended", "3.6.0")) and {row["verdict"] for row in kernel} == {"right"}
        for each in kernel
    }
    assert len(newest) == 1 and f"on commit {newest.pop()}, were made" in page("docs/blackwell.md")


def test_docs_may_say_that_cases_agree_with_consan() -> None:
    seen = record("consan")
    cases = seen["cases"]
    right = [each for each in cases.values() if each["right"]]
    assert len(right) == seen["right"]
    quoted = f"{len(right)} of the {len(cases)} cases of Triton {seen['triton']} agree with ConSan"
    assert quoted in page("docs/checks.md")
    more = {name: each["more"] for name, each in cases.items() if not each["right"]}
    assert len(more) == seen["more"]
    for name, said in more.items():
        assert f"[{name.partition('[')[2]}" in page("docs/checks.md")
        assert said.rpartition("mended by ")[2] in page("docs/checks.md")
    held_out = record("consan_held_out")
    agree = [each for each in held_out["cases"].values() if each["right"]]
    assert len(agree) == held_out["right"]
    assert f"{len(agree)} of {len(held_out['cases'])} agree" in page("docs/checks.md")
