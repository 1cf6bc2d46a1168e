"""The GEMM ladder: every rung has the bits of the instruction repeated, no findings, and few conflicts."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, only_with_everything, sampled

FOLDER = Path(__file__).parents[1] / "examples" / "gemm"
PAGE = Path(__file__).parents[1] / "docs" / "ladder.md"


@pytest.fixture(scope="module")
def ladder() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        import ladder
    finally:
        sys.path.remove(str(FOLDER))
    return ladder


NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
#: Rungs that are climbed each time: the others are tried with tails, and all with LANEWISE_EVERYTHING=1.
CLIMBED = NUMBERS if EVERYTHING else (1, 2, 3, 5, 8, 10, 11, 12)
#: Rungs that swizzle shared memory: not one wavefront more than the bytes need.
WITHOUT_CONFLICTS = (4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
#: Rungs for sm_90a, with wgmma.
HOPPER = (9, 10, 11)
#: Rungs for sm_100a, with tcgen05.
BLACKWELL = (12, 13)


def rung_of(ladder: Any, number: int) -> Any:
    return next(each for each in ladder.RUNGS if each.number == number)


def rows_of_page(word: str) -> list[list[str]]:
    """The table of docs/ladder.md that has a word in its head."""
    for table in re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text(), re.M):
        head, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        )
        if word in head:
            return rows
    raise AssertionError(word)


@sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize("number", CLIMBED)
def test_a_rung_is_exact_and_clean(ladder: Any, number: int) -> None:
    seen = ladder.climb(rung_of(ladder, number), 256, 128, 64)
    assert seen.exact
    assert seen.findings == 0
    assert (seen.conflicts == 0) == (number in WITHOUT_CONFLICTS)
    conflicts = f"{seen.conflicts:,} of {seen.wavefronts:,} wavefronts"
    assert [str(number), seen.rung.adds, conflicts, f"{seen.fetched:,}"] in rows_of_page("bank conflicts")


@sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("label", ["2b", "4b", "5b", "7b"])
def test_a_variant_is_exact_and_clean(ladder: Any, label: str) -> None:
    variant = next(each for each in ladder.VARIANTS if each.label == label)
    seen = ladder.climb(variant, 256, 128, 64)
    assert seen.exact
    assert seen.findings == 0
    conflicts = f"{seen.conflicts:,} of {seen.wavefronts:,} wavefronts"
    assert [label, variant.adds, conflicts, f"{seen.fetched:,}"] in rows_of_page("conflicts")


@sampled(3)
@pytest.mark.parametrize(
    ("number", "dtype", "accumulate", "shape"),
    [
        pytest.param(3, lw.bf16, lw.f32, (131, 70, 50), marks=only_with_everything),
        (4, lw.f16, lw.f16, (40, 129, 33)),
        pytest.param(5, lw.bf16, lw.f32, (100, 136, 71), marks=only_with_everything),
        (6, lw.f16, lw.f16, (17, 36, 100)),
        (7, lw.bf16, lw.f32, (257, 24, 152)),
        pytest.param(8, lw.bf16, lw.f32, (77, 34, 70), marks=only_with_everything),
        (9, lw.bf16, lw.f32, (130, 264, 72)),
        pytest.param(10, lw.f16, lw.f16, (257, 8, 328), marks=only_with_everything),
        pytest.param(11, lw.bf16, lw.f32, (520, 272, 200), marks=only_with_everything),
        (12, lw.f16, lw.f16, (130, 264, 72)),
        pytest.param(13, lw.bf16, lw.f32, (300, 520, 200), marks=only_with_everything),
    ],
    ids=lambda value: getattr(value, "name", None) or str(value).replace(" ", ""),
)
def test_tails_are_handled(
    ladder: Any, number: int, dtype: lw.Format, accumulate: lw.Format, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    a, b = (rng.normal(size=size).astype(dtype.dtype) for size in ((m, k), (k, n)))
    c = np.full((m, n), 7, dtype.dtype)
    rung = rung_of(ladder, number)
    configured, arguments, constants = rung.prepare(a, b, c, accumulate)
    configured(*arguments, **constants, arch=rung.arch)
    wanted = rung.instruction(dtype, accumulate).gemm(a, b, arch=rung.arch).astype(dtype.dtype)
    assert np.array_equal(c.view(np.uint16), wanted.view(np.uint16))


OPCODES = ("HMMA", "LDSM", "LDG", "STS", "LDGSTS", "BAR")
HOPPER_OPCODES = ("HGMMA", "UTMALDG", "SYNCS", "WARPGROUP", "BAR")
BLACKWELL_OPCODES = ("UTCHMMA", "UTCBAR", "SYNCS", "BAR")


@sampled(12)
@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_shows_the_machine_code(ladder: Any, number: int) -> None:
    from lanewise.ptx import ToolMissing

    try:
        loop = ladder.inner_loop(ladder.machine_code(rung_of(ladder, number)))
    except ToolMissing as error:
        pytest.skip(str(error))
    opcodes = [re.sub(r"^@\S+ ", "", each).split()[0] for each in loop]
    plain = Counter(each.split(".")[0] for each in opcodes)
    if number in HOPPER:
        assert [str(number), *(str(plain[each]) for each in HOPPER_OPCODES)] in rows_of_page("UTMALDG")
        return
    if number in BLACKWELL:
        assert [str(number), *(str(plain[each]) for each in BLACKWELL_OPCODES)] in rows_of_page("UTCHMMA")
        return
    assert [str(number), *(str(plain[each]) for each in OPCODES)] in rows_of_page("LDGSTS")
    if number == 7:
        shown = re.search(r"```sass\n(.*?)```", PAGE.read_text(), re.S)
        assert shown and {line.split()[0] for line in shown[1].splitlines()} <= set(opcodes)


def test_the_page_quotes_the_record() -> None:
    record = re.search(r"\(\.\./(benchmarks/results/h200_\w+\.json)\)", PAGE.read_text())
    assert record
    figures = json.loads((PAGE.parents[1] / record[1]).read_text())
    measured = [(f"rung {row['rung']}", row["tflops"], row["share_of_torch"]) for row in figures["rungs"]]
    measured.append(("torch.matmul", figures["torch_tflops"], 1.0))
    assert rows_of_page("TFLOP/s") == [
        [name, f"{tflops:.0f}", f"{share:.1%}".replace("%", " %")] for name, tflops, share in measured
    ]


def test_the_page_quotes_the_record_of_variants() -> None:
    record = PAGE.parents[1] / "benchmarks" / "results" / "h200_ladder_variants.json"
    found = {row["rung"]: row["tflops"] for row in json.loads(record.read_text())["rungs"]}
    for variant, rung in (("2b", 2), ("4b", 4), ("5b", 5), ("7b", 7)):
        assert f"{variant} {found[variant]:.0f} ({rung}: {found[rung]:.0f})" in PAGE.read_text()
