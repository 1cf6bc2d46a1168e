"""`lanewise check`: findings on stdout, the exit status says whether there were any."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RACE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p;
    .shared .align 4 .b8 tile[256];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    st.shared.u32 [tile], %r0;BARRIER
    ld.shared.u32 %r2, [tile];
    ld.param.u64 %rd0, [out];
    mad.wide.u32 %rd0, %r0, 4, %rd0;
    st.global.u32 [%rd0], %r2;
    ret;
}
"""
SCRIPT = """import numpy as np
import lanewise as lw
for name in ("right.ptx", "wrong.ptx"):
    lw.load(name)["k"][1, 64](np.zeros(64, np.uint32))
print("done")
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.ptx").write_text(RACE.replace("BARRIER", ""))
    right = RACE.replace("BARRIER", " bar.sync 0;").replace("[tile], %r0", "[tile], 7")
    Path("right.ptx").write_text(right.replace("st.shared", "setp.eq.u32 %p, %r0, 0; @%p st.shared"))
    Path("script.py").write_text(SCRIPT)


def check(name: str, *more: Any) -> tuple[Any, ...]:
    return ("check", name, "--block", 64, "--arg", "zeros:u32:64", *more)


def test_nothing_to_find(answered: Callable[..., str]) -> None:
    out = answered(*check("right.ptx"))
    assert "k" in out and "race" not in out
    data = json.loads(answered(*check("right.ptx", "--json")))
    assert data["ok"] is True and data["launches"][0]["findings"] == []
    assert data["launches"][0]["counters"]


def test_a_race(lanewise: Callable[..., Any]) -> None:
    said = lanewise(*check("wrong.ptx"))
    assert said.code == 1 and said.err == ""
    assert "race" in said.out and "line 10" in said.out
    said = lanewise(*check("wrong.ptx", "--json"))
    data = json.loads(said.out)
    assert said.code == 1 and data["ok"] is False
    assert {finding["kind"] for finding in data["launches"][0]["findings"]} == {"race"}


def test_other_orders(lanewise: Callable[..., Any]) -> None:
    text = RACE.replace("BARRIER", "").replace("st.shared.u32 [tile], %r0", "mov.u32 %r2, 0")
    exchange = "atom.global.exch.b32 %r3, [%rd0], %r0;"  # the last of the two warps leaves its number there
    for access in ("ld.shared.u32 %r2, [tile];", "mad.wide.u32 %rd0, %r0, 4, %rd0;"):
        text = text.replace(access, "")
    Path("ordered.ptx").write_text(text.replace("st.global.u32 [%rd0], %r2;", exchange))
    said = lanewise(*check("ordered.ptx", "--schedules", 2))
    assert "has other results under the schedule reverse" in said.out
    said = lanewise(*check("wrong.ptx", "--schedules", 2, "--json"))
    (found,) = json.loads(said.out)["launches"]
    assert said.code == 1 and {finding["schedule"] for finding in found["findings"]} == {None}
    assert lanewise(*check("right.ptx", "--schedules", 5)).code == 0
    assert lanewise(*check("right.ptx", "--schedules", 0)).code == 2


def test_counters_by_line(answered: Callable[..., str]) -> None:
    """A word a lane, at distances of 32 words: a bank conflict of all lanes."""
    spread = Path("right.ptx").read_text().replace("shl.b32 %r1, %r0, 2;", "shl.b32 %r1, %r0, 7;")
    spread = spread.replace("tile[256]", "tile[8192]").replace(
        "st.shared.u32 [tile], 7;", "st.shared.u32 [%r1], 7;"
    )
    Path("spread.ptx").write_text(spread.replace("setp.eq.u32 %p, %r0, 0; @%p ", ""))
    rows = [line.split() for line in answered(*check("spread.ptx", "--lines")).splitlines()]
    columns = next(row for row in rows if row[:2] == ["line", "instructions"])
    store = next(row for row in rows if row and row[0] == "PTX:10")
    assert (store[columns.index("wavefronts")], store[columns.index("excessive")]) == ("64", "62")


def test_a_fault_is_a_finding(lanewise: Callable[..., Any]) -> None:
    said = lanewise("check", "right.ptx", "--block", 64, "--arg", "zeros:u32:60")
    assert said.code == 1 and "out of bounds" in said.out and said.err == ""


def test_what_cannot_be_checked(lanewise: Callable[..., Any]) -> None:
    said = lanewise("check", "none.ptx", "--block", 64)
    assert said.code == 2 and said.out == "" and "none.ptx" in said.err
    assert lanewise("check", "right.ptx", "--block", 64).code == 2


def test_every_launch_of_a_script(lanewise: Callable[..., Any]) -> None:
    said = lanewise("check", "script.py")
    assert said.code == 1 and said.out.startswith("done\n") and "race" in said.out
    said = lanewise("check", "script.py", "--json")
    data = json.loads(said.out)
    assert said.code == 1 and said.err == "done\n"
    assert [launch["ok"] for launch in data["launches"]] == [True, False]


def test_script_that_fails_or_launches_nothing(lanewise: Callable[..., Any]) -> None:
    Path("script.py").write_text("1 / 0")
    said = lanewise("check", "script.py")
    assert said.code == 2 and "ZeroDivisionError" in said.err
    Path("script.py").write_text("")
    said = lanewise("check", "script.py")
    assert said.code == 0 and "no launch" in said.out
