"""`lw.tune` without a GPU: which plans it measures, which it keeps, and how a bad cache heals."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import LanewiseError
from lanewise.gpu.driver import GpuError
from lanewise.linalg import tune as tuning
from lanewise.linalg.launch import prepare
from lanewise.linalg.operand_copies import needs_copy
from lanewise.linalg.options import Options
from lanewise.linalg.orientation import computes_transpose
from lanewise.linalg.plan import Plan
from lanewise.linalg.planning import tuned
from lanewise.linalg.planning.measured import fields_of, plan_from
from lanewise.linalg.planning.planner import plan_of, require_kernel
from lanewise.linalg.problem import Problem
from lanewise.linalg.rules import Request, request_of
from lanewise.linalg.tune import find_winner

DEVICE = "NVIDIA Nothing"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of its own."""
    monkeypatch.setattr(tuned, "cache_directory", lambda: tmp_path)
    tuned._known.cache_clear()
    yield tmp_path
    tuned._known.cache_clear()


def test_every_field_of_a_plan_is_written_down() -> None:
    """Operands that are copied follow from the problem, and the arch stands beside the plan."""
    plan = Plan(
        "warp", "sm_90a", (64, 128, 32), 1, (2, 1), 2, "pingpong", 4, True, groups=3, skew=1, gather=True,
        direct=True, l2="f-", a_in_registers=True, whole_sectors=True,
    )  # fmt: skip
    usual = Plan("warpgroup", "sm_90a", (64, 64, 64), 4)
    left_out = {"arch", "copy_a", "copy_b", "why"}
    assert {
        each.name for each in fields(Plan) if getattr(plan, each.name) == getattr(usual, each.name)
    } == left_out
    assert plan_from(json.loads(json.dumps(fields_of(plan))), "sm_90a", "") == plan


def new_process() -> None:
    """Forget what this process knows of the file."""
    tuned._known.cache_clear()


def problem_of(m: int, n: int, k: int, dtype: Any = np.float16, turned: str = "", **keywords: Any) -> Problem:
    """Return the problem of arrays of these sizes; `turned` names those whose columns are contiguous."""
    a = np.zeros((k, m), dtype).T if "a" in turned else np.zeros((m, k), dtype)
    b = np.zeros((n, k), dtype).T if "b" in turned else np.zeros((k, n), dtype)
    if "o" in turned:
        keywords["out"] = np.zeros((n, m), dtype).T
    found = request_of(a, b, Options(**keywords)).problem
    assert found is not None
    return found


# the winner -------------------------------------------------------------------------------------------------


def noisy(seed: int, times: dict[str, float], usual: float, noise: float) -> Any:
    """Return a clock: the time of each candidate, too long or too short by chance."""
    rng = np.random.default_rng(seed)
    return lambda each: times.get(each, usual) * rng.lognormal(0, noise)


def test_equals_do_not_replace_what_is_in_use() -> None:
    """Of 40 candidates as fast as the one in use, the luckiest of noisy times is not kept."""
    kept = 0
    for seed in range(100):
        others = [f"other {n}" for n in range(40)]
        kept += find_winner("in use", others, noisy(seed, {}, 1.0, 0.05)).best == "in use"
    assert kept >= 98


@pytest.mark.parametrize("gain", [0.10, 0.3])
def test_faster_candidates_win(gain: float) -> None:
    won = 0
    for seed in range(40):
        times = {"in use": 1.0, "fast": 1 - gain, "slow": 2.0}
        names = [*(f"other {n}" for n in range(20)), "slow", "fast"]
        won += find_winner("in use", names, noisy(seed, times, 1.02, 0.03)).best == "fast"
    assert won == 40


def test_slower_candidates_never_win() -> None:
    times = {"in use": 1.0} | {f"other {n}": 1.0 + 0.01 * n for n in range(1, 30)}
    for seed in range(60):
        assert find_winner("in use", list(times), noisy(seed, times, 1.0, 0.04)).best == "in use"


def test_candidates_that_fail_are_left_out() -> None:
    """At once, or late; the one in use may not fail."""
    calls: dict[str, int] = {}

    def seconds(each: str) -> float:
        calls[each] = calls.get(each, 0) + 1
        if each == "never" or (each == "late" and calls[each] > 30):
            raise LanewiseError("it fails")
        return {"in use": 1.0, "good": 0.9, "late": 0.1}[each]

    assert find_winner("in use", ["never", "late", "good"], seconds).best != "never"
    assert find_winner("in use", ["never", "good"], seconds).best == "good"
    with pytest.raises(LanewiseError, match="it fails"):
        find_winner("never", ["good"], seconds)


# what is measured -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "turned", "keywords"),
    [
        (np.float16, "", {}), (np.float16, "ab", {}), (np.float16, "o", {}), (np.int8, "", {}),
        (np.float32, "b", {"precision": "tf32"}), (np.float32, "", {}), (np.float64, "", {}),
    ],
)  # fmt: skip
def test_plans_that_are_measured_can_be_launched(dtype: Any, turned: str, keywords: dict[str, Any]) -> None:
    """Sizes at random, most with rows that TMA cannot load: each plan copies what has to be copied."""
    rng = np.random.default_rng(len(turned))
    for _ in range(3):
        m, n, k = (int(each) for each in rng.integers(1, 400, 3))
        problem = problem_of(m, n, k, dtype, "" if "o" in turned and dtype == np.int8 else turned, **keywords)
        usual, others = tuning.plans_to_measure(problem, "sm_90a")
        assert replace(plan_of(problem, "sm_90a"), why="") == usual
        assert usual not in others and len(set(others)) == len(others) > 0
        refused = 0
        for plan in (usual, *others):
            assert not plan.why
            if plan.family == "warpgroup":
                kept = [
                    computes_transpose(problem, plan) == (name == "b") and plan.a_in_registers
                    for name in "ab"
                ]
                assert plan.copy_a == (needs_copy(problem.a, problem.precision) and not kept[0])
                assert plan.copy_b == (needs_copy(problem.b, problem.precision) and not kept[1])
            try:
                require_kernel(problem, plan)
            except LanewiseError:
                refused += 1
        assert refused <= len(others) // 2


def test_large_products_are_also_measured_with_pingpong() -> None:
    """Several tiles for each block: while one warpgroup stores, the other multiplies."""
    usual, others = tuning.plans_to_measure(problem_of(2000, 2048, 512), "sm_90a")
    assert (128, 128) in {each.tile[:2] for each in (usual, *others) if each.schedule == "pingpong"}
    _, others = tuning.plans_to_measure(problem_of(64, 64, 512), "sm_90a")
    assert not [each for each in others if each.schedule == "pingpong"]


def test_odd_products_are_also_measured_without_copies() -> None:
    """By the mma.sync kernels, whose sums of these types have the same bits."""
    rng = np.random.default_rng(3)
    cases: list[tuple[Any, dict[str, Any]]]
    cases = [(np.float16, {}), (np.int8, {}), (np.float32, {"precision": "tf32"})]
    for dtype, keywords in cases:
        a, b = ((9 * rng.standard_normal(shape)).astype(dtype) for shape in ((20, 37), (37, 11)))
        problem = problem_of(20, 11, 37, dtype, **keywords)
        usual, others = tuning.plans_to_measure(problem, "sm_90a")
        found = [each for each in others if each.family == "warp" and each.split * each.groups == 1]
        assert len(found) > 2
        chain = replace(usual, split=1, groups=1, gather=False)
        wanted = lw.matmul(a, b, plan=chain, **keywords)
        for plan in found:
            assert lw.matmul(a, b, plan=plan, **keywords).tobytes() == wanted.tobytes()
    _, others = tuning.plans_to_measure(problem_of(512, 512, 1600), "sm_90a")
    assert not [each for each in others if each.family == "warp"]


def test_the_regret_of_a_plan_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that takes longer for larger tiles: the planner's own plan comes first, all are timed."""
    calls: list[Plan] = []

    class Timer:
        def __init__(self, *_: Any) -> None:
            pass

        def warm_up(self, call: Any) -> None:
            call()

        def seconds(self, call: Any) -> float:
            call()
            return calls[-1].tile[0] * calls[-1].tile[1] / 1e9

    a, b = np.zeros((256, 512), np.float16), np.zeros((512, 256), np.float16)
    request = request_of(a, b, Options())
    monkeypatch.setattr(tuning, "_request", lambda *_: (request, request.problem, 0))
    monkeypatch.setattr(tuning, "_Timer", Timer)
    monkeypatch.setattr(tuning, "matmul", lambda *_, plan: calls.append(plan))
    monkeypatch.setattr(prepare, "arch_of_device", lambda _: "sm_90a")
    found = tuning.measure_plans(a, b, count=6)
    assert request.problem is not None and len(found) == 6
    assert found[0].plan == replace(plan_of(request.problem, "sm_90a"), why="")
    for row in found:
        assert row.measured == pytest.approx(row.plan.tile[0] * row.plan.tile[1] / 1e3) and row.expected > 1


# what is kept -----------------------------------------------------------------------------------------------


def keep(problem: Problem, **changes: Any) -> Plan:
    """Keep the planner's plan with changes as the fastest."""
    plan = replace(plan_of(problem, "sm_90a"), **changes)
    tuned.remember(problem, plan, DEVICE, 12.0)
    return plan


@pytest.mark.parametrize("sizes", [(64, 64, 65), (127, 129, 131), (65, 64, 64)])
def test_kept_plans_copy_what_cannot_be_loaded(folder: Path, sizes: tuple[int, int, int]) -> None:
    """Odd leading dimensions: the plan that comes back, in this process and in others, has its copies."""
    problem = problem_of(*sizes)
    kept = keep(problem, group=16)
    for _ in range(2):
        plan = tuned.tuned_plan(problem, "sm_90a", DEVICE)
        assert plan is not None and replace(plan, why=kept.why) == kept
        require_kernel(problem, plan)
        new_process()


def test_plans_are_kept_for_their_kind_of_call_alone(folder: Path) -> None:
    """Another type, another layout, another alignment or something fused is another kind."""
    sizes = (128, 192, 256)
    kinds = {
        "f16": problem_of(*sizes), "a turned": problem_of(*sizes, turned="a"),
        "out turned": problem_of(*sizes, turned="o"), "f32 sums": problem_of(*sizes, out_dtype="f32"),
        "odd": problem_of(128, 192, 255), "bias": problem_of(*sizes, bias=np.zeros(192, np.float32)),
        "bias of f16": problem_of(*sizes, bias=np.zeros(192, np.float16)),
        "relu": problem_of(*sizes, activation="relu"), "f16 inside": problem_of(*sizes, accumulate="f16"),
        "split f32": problem_of(*sizes, np.float32), "tf32": problem_of(*sizes, np.float32, precision="tf32"),
    }  # fmt: skip
    keys = {tuned._key(problem, DEVICE) for problem in kinds.values()}
    assert len(keys) == len(kinds)
    a = np.zeros((128, 257), np.float16)[:, 1:]
    unaligned = request_of(a, np.zeros((256, 192), np.float16), Options()).problem
    assert unaligned is not None and tuned._key(unaligned, DEVICE) not in keys
    keep(kinds["f16"], group=16)
    for name, problem in kinds.items():
        assert (tuned.tuned_plan(problem, "sm_90a", DEVICE) is not None) == (name == "f16")
    assert tuned.tuned_plan(kinds["f16"], "sm_90a", "another GPU") is None
    assert tuned.tuned_plan(kinds["f16"], "sm_80", DEVICE) is None
    assert tuned.tuned_plan(replace(kinds["f16"], batch_invariant=True), "sm_90a", DEVICE) is None


def entries(folder: Path) -> dict[str, Any]:
    """Return what the file holds."""
    found = json.loads((folder / "tuned_products.json").read_text(encoding="utf-8"))
    return dict(found["plans"])


@pytest.mark.parametrize(
    "damage",
    [
        {"plan": {"family": "warpgroup", "tile": [7, 7, 7], "stages": 2}}, {"plan": {"stages": 100}},
        {"plan": {"no such field": 1}}, {"plan": None}, {"plan": []}, {"microseconds": "fast"},
        {"microseconds": None}, {"plan": {"cluster": 3}}, {"plan": {"family": "sparse"}},
        {"plan": {"groups": 5000}}, {"plan": {"l2": 9}}, {"plan": {"tile": "large"}},
    ],
    ids=str,
)  # fmt: skip
def test_plans_that_cannot_be_used_are_dropped(folder: Path, damage: dict[str, Any]) -> None:
    """The planner's own plan is taken, and the file does not hold the bad one any more."""
    good, bad = problem_of(64, 64, 64), problem_of(300, 200, 100)
    keep(good, group=16)
    keep(bad, group=16)
    file = folder / "tuned_products.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    row = content["plans"][tuned._key(bad, DEVICE)]
    for name, value in damage.items():
        row[name] = {**row[name], **value} if isinstance(value, dict) else value
    file.write_text(json.dumps(content), encoding="utf-8")
    new_process()
    assert tuned.tuned_plan(bad, "sm_90a", DEVICE) is None
    assert list(entries(folder)) == [tuned._key(good, DEVICE)]
    assert tuned.tuned_plan(good, "sm_90a", DEVICE) is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 2, "plans": 3}', "\x00"])
def test_files_of_other_versions_and_damaged_ones_count_as_empty(folder: Path, text: str) -> None:
    """The first release wrote plans without a version; some of them made every later call fail."""
    problem = problem_of(64, 64, 65)
    (folder / "tuned_products.json").write_text(text, encoding="utf-8")
    assert tuned.tuned_plan(problem, "sm_90a", DEVICE) is None
    keep(problem, group=16)
    new_process()
    assert tuned.tuned_plan(problem, "sm_90a", DEVICE) is not None


def test_processes_do_not_lose_what_others_kept(folder: Path) -> None:
    one, other = problem_of(64, 64, 64), problem_of(64, 64, 128)
    tuned._known()  # read before the other process writes
    known = dict(tuned._known())
    keep(other, group=16)
    tuned._known().clear()
    tuned._known().update(known)
    keep(one, group=16)
    assert len(entries(folder)) == 2
    assert [each.name for each in folder.iterdir()] == ["tuned_products.json"]


def test_folders_that_cannot_be_written_are_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setattr(tuned, "cache_directory", lambda: blocked / "folder")
    tuned._known.cache_clear()
    problem = problem_of(64, 64, 64)
    keep(problem, group=16)
    assert tuned.tuned_plan(problem, "sm_90a", DEVICE) is not None
    tuned.forget(problem, DEVICE)
    assert tuned.tuned_plan(problem, "sm_90a", DEVICE) is None
    tuned._known.cache_clear()


# calls ------------------------------------------------------------------------------------------------------


class Failing:
    """Launches of a plan that fail."""

    def __init__(self, launched: list[Plan], plan: Plan, fails: bool) -> None:
        self.launched, self.plan, self.fails = launched, plan, fails
        self.workspace_bytes, self.counts, self.tuned = 0, False, False

    def __call__(self, *_: Any) -> None:
        if self.fails:
            raise GpuError("the launch failed", "matmul", "CUDA_ERROR_INVALID_VALUE")
        self.launched.append(self.plan)


@pytest.mark.parametrize("when", ["never", "recording", "launching"])
def test_calls_do_without_a_plan_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A kept plan that fails is dropped, and the call is made by the planner's own."""
    there = SimpleNamespace(device=SimpleNamespace(name=DEVICE, arch="sm_90", ordinal=0))
    launched: list[Plan] = []

    def recorded(_: Any, problem: Problem, plan: Plan, *more: Any) -> Any:
        fails = plan.group == 16
        if fails and when == "recording":
            raise LanewiseError("strides must be multiples of 16 bytes")
        return Failing(launched, plan, fails and when == "launching")

    monkeypatch.setattr(prepare, "context", lambda _: there)
    monkeypatch.setattr(prepare, "_recorded", recorded)
    monkeypatch.setattr("lanewise.gpu.recorded.kept", lambda *_: None)
    prepare.forget_prepared()
    request: Request = request_of(np.zeros((64, 65), np.float16), np.zeros((65, 64), np.float16), Options())
    request.a = request.a._replace(device=0)
    problem = request.problem
    assert problem is not None
    keep(problem, group=16)
    for _ in range(2):
        prepare.run(request, problem, None, None, 7)
    assert [plan.group for plan in launched] == ([16, 16] if when == "never" else [8, 8])
    assert len(entries(folder)) == (1 if when == "never" else 0)
    prepare.forget_prepared()


def test_what_tune_does_not_take() -> None:
    half = np.zeros((4, 4), np.float16)
    for keywords, said in (
        ({"plan": 3}, "takes no plan="), ({"stream": 3}, "takes no stream="), ({"biass": 3}, "no keyword"),
        ({}, "host memory"),
    ):  # fmt: skip
        with pytest.raises(LanewiseError, match=said):
            lw.tune(half, half, **keywords)  # type: ignore[arg-type]  # the mistakes
