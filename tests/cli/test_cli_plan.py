"""`lanewise plan`: which kernel a product runs, in which tiles, and why."""

from collections.abc import Callable
from typing import Any


def test_a_plan_is_printed(lanewise: Callable[..., Any]) -> None:
    said = lanewise("plan", "4096", "4096", "4096", "--dtype", "bf16")
    assert said.code == 0
    rows = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert rows["problem"].startswith("4096 × 4096 × 4096") and rows["kernel"] == "warpgroup (sm_90a)"
    assert {"tile", "stages", "cluster", "split", "schedule", "registers", "waves", "bound", "why"} <= set(
        rows
    )


def test_the_instruction_has_the_columns_of_the_tile(lanewise: Callable[..., Any]) -> None:
    """Also of a product that is computed as its transpose."""
    for sizes in (("1", "8192", "640"), ("16", "4096", "14336"), ("4096", "4096", "4096")):
        rows = dict(line.split(maxsplit=1) for line in lanewise("plan", *sizes).out.splitlines())
        columns = rows["tile"].split(",")[0].split(" × ")[1]
        assert f".m64n{columns}k16." in rows["instruction"]


def test_other_archs_and_wrong_words(lanewise: Callable[..., Any]) -> None:
    said = lanewise("plan", "64", "64", "64", "--dtype", "f64", "--arch", "A100")
    assert said.code == 0 and "warp (sm_80)" in said.out
    for arguments in (("--dtype", "q"), ("--layout", "xy"), ("--arch", "V100"), ("--precision", "tf32")):
        said = lanewise("plan", "64", "64", "64", *arguments)
        assert said.code == 2 and said.err


def test_plans_of_a_b200_are_estimates(lanewise: Callable[..., Any]) -> None:
    said = lanewise("plan", "512", "512", "512", "--dtype", "nvfp4", "--arch", "sm_100a")
    rows = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert said.code == 0 and rows["kernel"] == "blackwell (sm_100a)"
    assert "no B200 has confirmed" in rows["expected"] and "±" not in rows["expected"]
    assert "mxf4nvf4.block_scale.block16, m128n128k64" in rows["instruction"]
    for arguments, words in (
        (("--dtype", "mxfp8"), "arch='sm_100a' has them"),
        (("--dtype", "e2m1", "--arch", "sm_100a"), "block-scaled, mxfp4 or nvfp4"),
        (("--dtype", "mxfp8", "--arch", "sm_100a", "--batch", "2"), "planned one by one"),
    ):
        said = lanewise("plan", "64", "64", "64", *arguments)
        assert said.code == 2 and words in said.err


def test_what_is_expected_is_said(lanewise: Callable[..., Any]) -> None:
    """Microseconds, how sure they are, and what they consist of; copies are a part of it."""
    rows = dict(line.split(maxsplit=1) for line in lanewise("plan", "1001", "1001", "1001").out.splitlines())
    assert "µs ±" in rows["expected"] and "copies of operands" in rows["expected"]
    assert rows["bound"] in rows["expected"]


def test_regret_needs_a_gpu(lanewise: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("lanewise.gpu.available", lambda: False)
    said = lanewise("plan", "64", "64", "64", "--regret")
    assert said.code == 2 and said.err.count("\n") <= 2
    assert "measures plans on a GPU, and this machine has none" in said.err
