"""Random kernels do on the CPU machine what the same Python source does without the tracer, lane by lane.

`LANEWISE_FUZZ_SECONDS=3600 python -m pytest tests/lang/test_lang_oracle.py -s` looks for an hour, from a seed
that is the date (`LANEWISE_FUZZ_SEED` names another), in `LANEWISE_FUZZ_PROCESSES` processes at once. It
prints the seeds and how many programs ran; a program that differs is printed as source, cut down.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from everything import EVERYTHING, only_with_everything
from lanewise.lang import wmma
from lanewise.lang.frontend import control_flow, loop_values, merge
from lanewise.lang.frontend.loop_values import LoopValues
from lanewise.lang.trace import operators
from lanewise.lang.trace.scalar import PackedElement
from lang import oracle
from lang.compare_kernels import arguments, compare, first_seed, look, look_in_processes, source_of
from lang.random_kernels import SIGNATURE
from lang.random_values import value_source

SECONDS = float(os.environ.get("LANEWISE_FUZZ_SECONDS", "0"))
#: The share of programs that must run: a generator whose programs are refused finds nothing.
LEAST_SHARE = 0.4


@pytest.mark.timeout(SECONDS + 900)
def test_random_kernels_do_what_python_does() -> None:
    if SECONDS:
        first = int(os.environ.get("LANEWISE_FUZZ_SEED", str(first_seed())))
        processes = int(os.environ.get("LANEWISE_FUZZ_PROCESSES", "1"))
        print(f"\nfirst seed {first}, {processes} processes")
        counts, findings = look_in_processes(first, SECONDS, processes)
        print(dict(counts))
    else:
        counts, findings, _ = look(7, 300, 20 if EVERYTHING else 10)
    assert not findings, "\n\n".join(findings)
    # Ten programs are too few for a share.
    assert counts["same"] >= (LEAST_SHARE * counts.total() if counts.total() >= 20 else 1)


def test_programs_are_deterministic_and_differ() -> None:
    programs = [source_of(seed) for seed in range(20)]
    assert programs == [source_of(seed) for seed in range(20)]
    assert len(set(programs)) == 20


def test_a_miscompilation_does_not_escape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Moves into the registers of a loop one after the other, not at once: a swap is wrong then."""

    def one_by_one(pairs: list[tuple[Any, Any]]) -> None:
        for register, value in pairs:
            loop_values.current().emit(f"mov.{register.kind}", register, value.operand, pure=True)

    source = (
        "import lanewise as lw\n\n"
        + SIGNATURE
        + """
    p, q = lw.lane_id(), n
    for k in lw.range(3):
        p, q = q, p
    mid[lw.lane_id()] = p * 100 + q
"""
    )
    assert compare(source, tmp_path, sizes=(5,)).word == "same"
    monkeypatch.setattr(loop_values, "parallel_move", one_by_one)
    (tmp_path / "again").mkdir()
    assert compare(source, tmp_path / "again", sizes=(5,)).word == "differs"


GUARDED = """
    lane, seen = lw.lane_id(), lw.local(lw.i32, 1)
    seen[0] = 0
    def note(value):
        seen[0] = seen[0] + 1
        return value
    {statement}
    mid[64 + lane] = seen[0]
"""
STATEMENTS = [
    "if lane > 20 and note(lane) > 25:\n        mid[lane] = 1",
    "if lane > 20 or note(lane) > 10:\n        mid[lane] = 1",
    "mid[lane] = note(lane) if lane > 9 else n",
    "mid[lane] = n if lane > 9 else note(lane)",
    "mid[lane] = x[lane * 4] if lane < 16 else n",
    "if lane < 16 and x[lane * 4] > 3:\n        mid[lane] = 1",
    "while seen[0] < 3 and note(lane) > 9:\n        mid[lane] += 1",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_code_behind_a_condition_runs_only_where_it_holds(
    statement: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If all that stands behind `and`, `or` and in `a if c else b` counted as pure, it would always run."""
    source = "import lanewise as lw\n\n" + SIGNATURE + GUARDED.replace("{statement}", statement)
    assert compare(source, tmp_path, sizes=(5,)).word == "same"
    monkeypatch.setattr(control_flow, "is_pure", lambda code: True)
    (tmp_path / "again").mkdir()
    assert compare(source, tmp_path / "again", sizes=(5,)).word in ("differs", "broken")


def _write_addend(inst: Any, d: Any, a: Any, b: Any, c: Any, right: Any = wmma._multiply) -> None:
    right(inst, c, a, b, c)
    d.filled = True


#: Mistakes of the language: where each would stand, and what would stand there.
PLANTED = {
    "elements of one register are one value": (
        PackedElement, "is_same",
        lambda self, other: isinstance(other, PackedElement) and self.packed == other.packed,
    ),
    "WMMA writes C": (wmma, "_multiply", _write_addend),
    "-0.0 is 0.0 after branches": (merge, "_equal", lambda a, b: bool(a == b)),
    "-0.0 is 0.0 in selections": (operators, "copysign", lambda a, b: 1),
    "a if c else b is a": (
        control_flow.If, "select", lambda self: self.branches[0][1].roots[control_flow.CHOICE].value
    ),
    "what the condition of a while changes is lost": (LoopValues, "is_changed", lambda self: False),
}  # fmt: skip


@only_with_everything
@pytest.mark.parametrize("planted", PLANTED)
def test_short_kernels_find_planted_mistakes(
    planted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    where, name, mistake = PLANTED[planted]
    monkeypatch.setattr(where, name, mistake)
    for seed in range(120):
        (tmp_path / str(seed)).mkdir()
        outcome = compare(value_source(seed), tmp_path / str(seed))
        assert outcome.word in ("same", "refused", "differs"), outcome
        if outcome.word == "differs":
            return
    pytest.fail(f"{planted}: no program of 120 shows it")


PARTED = (
    SIGNATURE
    + """
    lane = lw.lane_id()
    if lane < 16:
        lw.syncwarp()
"""
)


def test_the_oracle_says_when_lanes_wait_in_vain() -> None:
    with pytest.raises(oracle.Refusal, match="lanes wait for others that have ended"):
        oracle.run(PARTED, arguments(1))
    both = PARTED + "    else:\n        lw.any_sync(lane > 3)\n"
    with pytest.raises(oracle.Refusal, match="at different instructions"):
        oracle.run(both, arguments(1))
