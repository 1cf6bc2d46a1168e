"""The planner's model: laws that its times obey, and how well it chooses, by times of an H200."""

import itertools
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled
from lanewise.linalg.kernels.family import family_of
from lanewise.linalg.kernels.hopper.shared_memory import SharedMemory
from lanewise.linalg.kernels.hopper.traits import Store, traits_of
from lanewise.linalg.orientation import oriented
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning.candidates import ranked
from lanewise.linalg.planning.gpus import GPUS
from lanewise.linalg.planning.measured import measured_plan
from lanewise.linalg.planning.model import ERRORS, H200, box_bytes, case_of, expected
from lanewise.linalg.planning.planner import built, candidates, estimate, plan_of, require_kernel
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import problem_of_sizes

ROOT = Path(__file__).parents[2]
HOPPER = GPUS["sm_90a"]


def drawn(seed: int, count: int) -> list[Problem]:
    """Return problems of random sizes, types and layouts."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        m, n, k = (int(2 ** rng.uniform(0, 13)) for _ in range(3))
        dtype = str(rng.choice(["bf16", "f16", "e4m3", "s8", "f32"]))
        layout = str(rng.choice(["nn", "nt", "tn", "tt"]))
        found.append(problem_of_sizes(m, n, k, dtype, layout=layout, batch=int(rng.choice([1, 1, 4, 16]))))
    return found


@sampled(3)
@pytest.mark.parametrize(
    "problem", drawn(3, 24), ids=lambda each: f"{each.m}x{each.n}x{each.k} {each.a.dtype.name}"
)
def test_a_plan_can_be_had_and_its_time_is_said(problem: Problem) -> None:
    plan = plan_of(problem, "sm_90a")
    require_kernel(problem, plan)
    found = estimate(problem, plan)
    assert 1e-6 < found.seconds < 1 and 0 < found.error < 0.6
    assert found.bound in found.parts
    assert found.seconds * 1e6 >= 0.8 * max(found.parts.values())


def test_a_plan_has_the_same_time_alone_and_beside_others() -> None:
    """The same bits: which plan is best must not depend on how many are compared, nor on the processor."""
    for problem in drawn(5, 12):
        found = ranked(problem)
        for place in np.random.default_rng(1).integers(0, len(found), 8):
            assert expected(found.case.of([place]), H200, HOPPER).total[0] == found.microseconds[place]
        assert (np.diff(found.microseconds) >= 0).all()


def test_the_model_sees_the_kernels_stages_and_boxes() -> None:
    """Candidates are built with the stages that they were ranked with, and store the boxes that count."""
    rng = np.random.default_rng(7)
    seen, fewer, boxes = 0, 0, 0
    for _ in range(30):
        m, n, k = (8 * int(2 ** rng.uniform(0, 10)) for _ in range(3))
        problem = problem_of_sizes(m, n, k, "bf16", layout=str(rng.choice(["nn", "nt", "tn", "tt"])))
        found = ranked(problem)
        for place in rng.integers(0, len(found), 6).tolist():
            plan = built(problem, found.plan(place))
            if plan is None or plan.family != "warpgroup":
                continue
            seen, fewer = seen + 1, fewer + (plan.stages != found.plan(place).stages)
            traits = traits_of(oriented(problem, plan), plan)
            if traits.store is Store.TMA and not (plan.gather or traits.transposed):
                box = SharedMemory(traits).box_columns * traits.out.bits // 8
                assert box_bytes(case_of(problem, [plan]))[0] == box, (m, n, k, plan)
                boxes += 1
    assert seen > 100 and boxes > 30 and fewer < 0.03 * seen


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_boxes_that_begin_between_lines_take_longer(layout: str) -> None:
    """Where B is contiguous along N, a tile of 248 columns begins between sectors, one of 256 does not."""
    problem = problem_of_sizes(1408, 4352, 5120, "f16", layout=layout, batch=16)
    plan = plan_of(problem, "sm_90a")
    tried = replace(plan, cluster=(1, 2), stages=4, swap=False)
    plans = [replace(tried, tile=(128, columns, 64)) for columns in (248, 256)]
    odd, even = expected(case_of(problem, plans), H200, HOPPER).loads
    assert (odd / 248 > 1.1 * even / 256) == (layout[1] == "n")


def test_results_that_stream_to_memory_are_written_in_few_rows() -> None:
    """With short K, tiles go along the rows of a result that L2 does not hold; a result that it holds has the
    usual raster order, and so have long products, whose operands tiles share."""
    sizes = ((6464, 6976, 64, 16), (6464, 6976, 64, 1), (1000, 1000, 64, 1), (6464, 6976, 640, 16))
    problems = [problem_of_sizes(m, n, k, "bf16", layout="nt", batch=batch) for m, n, k, batch in sizes]
    rasters = [plan_of(problem, "sm_90a").group for problem in problems]
    assert rasters == [2, 2, 8, 8]


def test_plans_that_were_measured_serve_products_with_as_many_waves() -> None:
    """Products of nearly the same sizes may take one wave of tiles more, for which another plan is better."""
    served = []
    for size, layout in itertools.product(range(2600, 5800, 100), ("nn", "nt")):
        problem = problem_of_sizes(size, size, size, "bf16", layout=layout)
        plan = measured_plan(problem, "sm_90a")
        if plan is None:
            continue
        row = int(re.findall(r"(\d+)×", plan.why)[0])
        at_row = problem_of_sizes(row, row, row, "bf16", layout=layout)
        waves = [expected(case_of(each, [plan]), H200, HOPPER).waves[0] for each in (problem, at_row)]
        assert np.ceil(waves[0]) == np.ceil(waves[1]) and waves[0] > 0.96 * waves[1], (size, layout)
        served.append((size, layout))
    assert (3000, "nt") in served and (5300, "nn") not in served and (5100, "nn") in served


def test_longer_products_take_longer() -> None:
    """Four times the K, or twice the batch, with the same plan."""
    for problem in drawn(7, 16):
        plan = plan_of(problem, "sm_90a")
        once = estimate(problem, plan).seconds
        assert estimate(replace(problem, k=4 * problem.k), plan).seconds >= 0.99 * once
        assert estimate(replace(problem, batch=2 * problem.batch), plan).seconds >= once


def test_power_slows_all_plans_of_a_long_product_alike() -> None:
    """The clock falls by what is multiplied, not by the plan: short products keep their times."""
    at_full_power = H200._replace(slower_clock=0.0)
    for size, is_long in ((2048, False), (12288, True)):
        problem = problem_of_sizes(size, size, size, "bf16", layout="nt")
        found = ranked(problem)
        case = case_of(problem, [found.plan(place) for place in range(20)])
        more = expected(case, H200, HOPPER).total - expected(case, at_full_power, HOPPER).total
        assert (more > 100 if is_long else more == 0).all() and np.ptp(more) <= 0.1 * more.max()


def test_copies_that_transpose_tf32_take_longer() -> None:
    times = {}
    for layout in ("nt", "nn"):
        problem = problem_of_sizes(128, 64, 64, "f32", layout=layout, precision="tf32")
        plan = Plan("warpgroup", "sm_90a", (64, 32, 32), 16)
        times[layout] = estimate(problem, plan).parts["copies of operands"]
    assert times["nt"] == 0 and times["nn"] > H200.copy + H200.transposing_copy


def test_fewer_multiprocessors_take_longer() -> None:
    """The number of multiprocessors comes from the table of GPUs."""
    small = replace(HOPPER, multiprocessors=66)
    for size in (1024, 3000, 8192):
        problem = problem_of_sizes(size, size, size, "bf16", layout="nt")
        case = case_of(problem, [plan_of(problem, "sm_90a")])
        assert expected(case, H200, small).total[0] > 1.3 * expected(case, H200, HOPPER).total[0]


def test_the_planner_takes_its_best_candidate() -> None:
    for problem in drawn(9, 2):
        plans = candidates(problem, "sm_90a")
        chosen = replace(plan_of(problem, "sm_90a"), why="")
        assert chosen in [replace(each, why="") for each in plans]


def test_plans_say_by_how_much_they_are_better_than_other_tiles() -> None:
    """The other tile is the best of those with other rows or columns."""
    problem = problem_of_sizes(700, 900, 1100, "bf16", layout="tt")
    found = ranked(problem)
    tiles = [found.plan(place).tile for place in range(len(found))]
    other = found.next_tile(0)
    assert other is not None and tiles[other] != tiles[0] and set(tiles[:other]) == {tiles[0]}
    assert found.next_tile(len(found) - 1) is None
    said = re.search(
        r"the next tile, (\d+)×(\d+), would take ([\d.]+) % longer", plan_of(problem, "sm_90a").why
    )
    assert said is not None and (int(said[1]), int(said[2])) in {tile[:2] for tile in tiles}


def test_plans_say_what_they_expect() -> None:
    a = np.zeros((512, 4096), np.float16)
    said = dict(lw.plan(a, a.T).rows())
    assert said["expected"].split()[1] == "µs"
    assert "±" in said["expected"] and "tensor cores" in said["expected"]
    assert said["bound"] in said["expected"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cluster": (3, 3)}, "plans of family 'warp' have cluster=(1, 1), not (3, 3)"),
        ({"split": 100000}, "bytes of shared memory"),
        ({"family": "warpgroup", "cluster": (2, 8)}, "cluster (2, 8)"),
    ],
)
def test_a_plan_without_a_kernel_says_so_when_it_is_printed(changes: dict[str, Any], said: str) -> None:
    a, b = np.zeros((20, 128), np.float16), np.zeros((128, 10), np.float16)
    planned = lw.plan(a, b)
    assert planned.plan.family == "warp" and planned.with_(split=np.int64(2)).plan.split == 2
    changed = planned.with_(**changes)
    assert said in str(changed).split("\n")[1]
    for use in (lambda: changed.estimate, lambda: lw.matmul(a, b, plan=changed)):
        with pytest.raises(lw.LanewiseError, match=re.escape(said)):
            use()


def test_fields_that_a_family_lacks_have_their_usual_values() -> None:
    a, b = np.zeros((20, 128), np.float16), np.zeros((128, 10), np.float16)
    for changes in ({"swap": True}, {"direct": True}, {"whole_sectors": True}, {"l2": "ff"}):
        changed = lw.plan(a, b).with_(**changes)
        with pytest.raises(lw.LanewiseError, match=f"plans of family 'warp' have {next(iter(changes))}="):
            lw.matmul(a, b, plan=changed)
    with pytest.raises(lw.LanewiseError, match="a cluster of 16 blocks; every launch can have 8"):
        lw.matmul(a, b, plan=lw.plan(a, b).with_(family="warpgroup", tile=(64, 64, 64), cluster=(4, 4)))


def test_plans_of_one_kernel_are_compiled_once() -> None:
    for dtype, layout in (("bf16", "nt"), ("e4m3", "nn"), ("f32", "nn")):
        problem = problem_of_sizes(512, 512, 512, dtype, layout=layout)
        plan = plan_of(problem, "sm_90a")
        assert plan == replace(plan, why="for another reason")
        kernel = family_of(plan.family).kernel  # whose operands are those that are loaded
        assert kernel(problem, plan) is kernel(problem, replace(plan, why="", group=3))


@pytest.mark.parametrize("change", [{"l2": True}, {"gather": 1}, {"skew": -1}])
def test_a_field_has_values_of_its_own(change: dict[str, Any]) -> None:
    planned = lw.plan(np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16))
    with pytest.raises(lw.LanewiseError, match=f"^{next(iter(change))}="):
        planned.with_(**change)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("m", "k"), [(20, 0), (0, 16)])
def test_products_of_nothing_have_a_time(m: int, k: int) -> None:
    planned = lw.plan(np.zeros((m, k), np.float16), np.zeros((k, 10), np.float16))
    assert 0 < planned.estimate.seconds < 1e-4 and "nan" not in str(planned)


# the scripts ------------------------------------------------------------------------------------------------


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts that sweep, fit and report, as they lie in the tree."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import fit_planner
    import planner_sweep
    import random_shapes

    return SimpleNamespace(fit=fit_planner, sweep=planner_sweep, shapes=random_shapes)


def sweep(scripts: Any, count: int, microseconds: Any) -> list[dict[str, Any]]:
    """Return the rows of a sweep whose times are computed."""
    rows = []
    for number, shape in enumerate(scripts.sweep.drawn(11, 60)[:count]):
        problem = scripts.fit.problem_of(shape)
        plans = scripts.sweep.plans_for(problem, number, 8)
        times = microseconds(case_of(problem, plans))
        timed = [[scripts.sweep.text_of(plan), time, 9] for plan, time in zip(plans, times, strict=True)]
        rows.append({"index": number, **shape.fields(), "plans": timed})
    return rows


@only_with_everything
def test_a_fit_finds_costs_that_choose_well(scripts: Any) -> None:
    """Times of a model with other costs: after the fit, plans are chosen as if those costs were known."""
    in_use = scripts.fit.IN_USE
    rng = np.random.default_rng(3)
    values = in_use.costs._asdict()
    other = {name: value * float(np.exp(rng.normal(0, 1))) for name, value in values.items()}
    truth = replace(in_use, costs=type(in_use.costs)(**other))
    data = scripts.fit.Data(sweep(scripts, 24, truth))
    fitted = scripts.fit.fit(data, in_use, 10)
    best, before, after = (scripts.fit.regrets(data, each)[0] for each in (truth, in_use, fitted))
    assert best.max() == 1
    assert np.percentile(after, 90) < 1.02 and np.mean(after) - 1 < 0.5 * (np.mean(before) - 1)


def test_plans_of_a_sweep_are_read_as_they_were_written(scripts: Any) -> None:
    for shape in scripts.sweep.drawn(13, 40)[:4]:
        problem = scripts.fit.problem_of(shape)
        for plan in scripts.sweep.plans_for(problem, 1, 12):
            assert scripts.sweep.plan_of_text(scripts.sweep.text_of(plan)) == plan
            require_kernel(problem, plan)
    older = scripts.sweep.plan_of_text("64x16x64 2 stages 1x1 splits_a copy_b")  # the field's first name
    assert older.a_in_registers and older.copy_b


def test_random_shapes_are_those_of_the_seed(scripts: Any) -> None:
    """Products of a seed are always the same, and belong to the classes that they say."""
    found = scripts.shapes.shapes(5, 300)
    assert found[:100] == scripts.shapes.shapes(5, 100) and found != scripts.shapes.shapes(6, 300)
    assert {each.layout for each in found} == {"nn", "nt", "tn", "tt"}
    assert {each.batch for each in found} == {1, 4, 16}
    for each in found:
        problem = scripts.fit.problem_of(each)
        operands = (problem.a, problem.b, problem.out)
        assert each.is_aligned == all(operand.tma for operand in operands)
        assert (each.group == "odd") == (not each.is_aligned)
        if each.is_aligned:
            assert (each.group == "large") == (each.products >= 1e10)


class Library:
    """cuBLASLt with one algorithm, which torch runs."""

    def algorithms(self, a: Any, b: Any, out: Any, tf32: bool) -> list[Any]:
        return [lambda: a.float() @ b.float()]


@pytest.fixture
def no_gpu(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the scripts on the CPU; the nth call that is timed takes n microseconds."""
    torch = pytest.importorskip("torch")
    import gpu_times

    count = itertools.count(1)

    def timed(run: Any, *_: Any) -> float:
        run()
        return float(next(count))

    monkeypatch.setattr(gpu_times, "timed", timed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(scripts.shapes, "DEVICE", "cpu")
    return scripts


@sampled(2)
@pytest.mark.parametrize("dtype", ["bf16", "f32", "s8"])
def test_a_sweep_measures_the_planner_s_plan_and_others(no_gpu: Any, dtype: str) -> None:
    """All plans that are timed give right results, so that none is left out."""
    shape = no_gpu.shapes.Shape(40, 24, 72, dtype, "nn")
    row = no_gpu.sweep.measure(shape, 5, Library(), nullcontext(), 8, until=float("inf"))
    assert no_gpu.fit.shape_of(row) == shape and row["index"] == 5 and not row["failed"]
    texts = [text for text, _, _ in row["plans"]]
    own = plan_of(no_gpu.fit.problem_of(shape), "sm_90a")
    assert len(set(texts)) == len(texts) >= 3 and no_gpu.sweep.plan_of_text(texts[0]) == replace(own, why="")
    assert all(time > 0 for _, time, _ in row["plans"]) and row["cublaslt"] > 0
    no_gpu.fit.Data([row])


def test_wrong_results_are_seen(no_gpu: Any) -> None:
    torch = pytest.importorskip("torch")
    right = torch.randn(64, 64)
    wrong, missing = right.clone(), right.clone()
    wrong[3, 5] += 9
    missing[63, 63] = float("nan")
    found = [no_gpu.sweep.is_wrong(each, right, 64) for each in (right, right + 1e-3, wrong, missing)]
    assert found == [False, False, True, True]


def test_random_products_are_measured_and_reported(no_gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The ratio is that of the medians, and the report says the geometric mean and the worst."""
    import matmul_random

    sizes = ((8, 16, 120, "f16", "nt"), (5, 7, 33, "bf16", "tn", 4), (16, 16, 16, "f32", "tt"))
    rows = [matmul_random.measured(no_gpu.shapes.Shape(*each), Library()) for each in sizes]
    for row in rows:
        peers = [row[name] for name in ("torch", "cublaslt") if name in row]
        assert row["ratio"] == pytest.approx(min(peers) / row["lanewise"], rel=1e-3) and not row["wrong"]
    matmul_random.report([{**rows[0], "group": "small", "ratio": ratio} for ratio in (0.5, 2.0)])
    said = capsys.readouterr().out
    assert "small       2 products: mean 1.000" in said and "least 0.500" in said and "wrong: none" in said


def test_a_smaller_tile_takes_the_place_of_one_that_is_slower() -> None:
    """Of mma.sync, where results are stored element by element; elsewhere the model's choice stays."""
    odd = plan_of(problem_of_sizes(9870, 2613, 2, "f16", layout="nt"), "sm_90a")
    assert odd.family == "warp" and odd.tile[:2] == (64, 128)
    times = ranked(problem_of_sizes(9870, 2613, 2, "f16", layout="nt"))
    slow = (times.choices["warp"] > 0) & (times.choices["rows"] * times.choices["columns"] == 128**2)
    assert slow.any() and np.isinf(times.microseconds[slow & (times.choices["stages"] == 1)]).all()
    even = ranked(problem_of_sizes(9870, 2616, 2, "f16", layout="nt"))
    assert np.isfinite(even.microseconds).all()


def test_estimates_are_as_sure_as_they_say(scripts: Any) -> None:
    """The errors that plans state are those on the fold of the sweeps' products that is left out."""
    data = scripts.fit.left_out_of(scripts.fit.RECORDS)
    for name, (count, error) in scripts.fit.errors_by_bound(data).items():
        assert abs(ERRORS[name] - error) < 0.006 or count < 20, (name, count, error)
