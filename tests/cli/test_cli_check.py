"""`lanewise check`: findings on stdout, the exit status says whether there were any."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanewise.ptx.tools.runtime_compiler import load

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
    assert said.out.startswith("PTX:10: st.shared.u32 [tile], %r0;\nrace: ") and "    mend: " in said.out
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
    said = lanewise(*check("ordered.ptx", "--schedule", "in order", "--schedule", "reverse"))
    assert "has other results under the schedule reverse" in said.out
    for name, told in (("late", "late"), ("7", "seed 7"), ("in order", None)):
        (found,) = json.loads(lanewise(*check("wrong.ptx", "--schedule", name, "--json")).out)["launches"]
        assert {finding["schedule"] for finding in found["findings"]} == {told}
    said = lanewise(*check("right.ptx", "--schedule", "sideways"))
    assert said.code == 2 and '"reverse"' in said.err
    said = lanewise(*check("right.ptx", "--schedule", "late", "--schedules", 2))
    assert said.code == 2 and "exclude each other" in said.err
    assert lanewise(*check("right.ptx", "--schedules", 5)).code == 0
    assert lanewise(*check("right.ptx", "--schedules", 0)).code == 2


SPREAD = (
    RACE.replace("shl.b32 %r1, %r0, 2;", "shl.b32 %r1, %r0, 7;")
    .replace("tile[256]", "tile[8192]")
    .replace("st.shared.u32 [tile], %r0;BARRIER", "st.shared.u32 [%r1], 7; bar.sync 0;")
)


def test_the_source_with_counters(answered: Callable[..., str]) -> None:
    """A word a lane, at distances of 32 words: a bank conflict of all lanes."""
    Path("spread.ptx").write_text(SPREAD)
    lines = answered(*check("spread.ptx", "--lines")).splitlines()
    head = lines.index("PTX") + 1
    columns = lines[head].split()
    assert columns == ["line", "executed", "wavefronts", "conflicts", "requests", "sectors", "source"]
    store = next(line for line in lines[head:] if "st.shared" in line)
    assert store.split()[:4] == ["10", "4", "64", "62"] and store.endswith("bar.sync 0;")
    (remark,) = [line for line in lines[head:] if line.lstrip().startswith("^")]
    assert lines.index(remark) == lines.index(store) + 1 and "32-way bank conflict" in remark
    numbers = [int(line.split()[0]) for line in lines[head + 1 :] if line and line.split()[0].isdigit()]
    assert numbers == sorted(numbers) and numbers[0] == 8


def test_asynchronous_copies_have_their_figures(answered: Callable[..., str]) -> None:
    Path("copy.ptx").write_text(
        RACE.replace("shl.b32 %r1, %r0, 2;", "shl.b32 %r1, %r0, 2; ld.param.u64 %rd1, [out];")
        .replace(
            "st.shared.u32 [tile], %r0;BARRIER",
            "mad.wide.u32 %rd1, %r0, 4, %rd1;\n    cp.async.ca.shared.global [%r1], [%rd1], 4;\n"
            "    cp.async.wait_all; bar.sync 0;",
        )
        .replace("    ld.param.u64 %rd0, [out];\n    mad.wide.u32 %rd0, %r0, 4, %rd0;\n", "")
        .replace("st.global.u32 [%rd0], %r2;", "")
    )
    lines = answered(*check("copy.ptx", "--lines")).splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["line", "executed"])
    columns = lines[head].split()
    copy = next(line for line in lines[head:] if "cp.async.ca" in line).split()
    figures = dict(zip(columns, copy, strict=False))
    assert (figures["executed"], figures["wavefronts"]) == ("2", "2")
    assert (figures["requests"], figures["sectors"]) == ("2", "8")


def test_what_wastes_time_and_strictly(lanewise: Callable[..., Any]) -> None:
    Path("spread.ptx").write_text(SPREAD)
    said = lanewise(*check("spread.ptx"))
    assert said.code == 0 and said.out.startswith("PTX:10  tile: 32-way bank conflict, 62 of 66 wavefronts")
    assert "k: nothing wrong, 1 thing that costs time" in said.out
    said = lanewise(*check("spread.ptx", "--strict", "--json"))
    data = json.loads(said.out)
    assert said.code == 1 and data["ok"] is False
    assert data["launches"][0]["ok"] and data["launches"][0]["performance"][0]["wasted"] == 62
    assert lanewise(*check("right.ptx", "--strict")).code == 0


def test_sarif(lanewise: Callable[..., Any]) -> None:
    said = lanewise(*check("wrong.ptx", "--format", "sarif"))
    log = json.loads(said.out)
    assert said.code == 1 and log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    results = run["results"]
    assert {result["ruleId"] for result in results} == set(rules) >= {"race"}
    race = next(result for result in results if result["ruleId"] == "race")
    place = race["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "wrong.ptx"}, "region": {"startLine": 10}}
    assert race["level"] == "error" and "by thread" in race["message"]["text"]
    Path("spread.ptx").write_text(SPREAD)
    for more, level in (((), "note"), (("--strict",), "warning")):
        log = json.loads(lanewise(*check("spread.ptx", "--format", "sarif", *more)).out)
        (result,) = log["runs"][0]["results"]
        assert (result["ruleId"], result["level"]) == ("performance/bank-conflict", level)


def test_annotations_of_github(lanewise: Callable[..., Any]) -> None:
    said = lanewise(*check("wrong.ptx", "--format", "github"))
    assert said.code == 1
    assert said.out.splitlines()[0].startswith("::error file=wrong.ptx,line=10,title=race::shared ")
    Path("spread.ptx").write_text(SPREAD)
    said = lanewise(*check("spread.ptx", "--format", "github"))
    assert said.code == 0 and said.out.startswith("::notice file=spread.ptx,line=10,title=bank conflict::")
    assert "(94 %25)" in said.out  # a percent sign, as GitHub reads it


@pytest.mark.parametrize("name", ["report.html", "report.json", "report.sarif", "report.txt"])
def test_saved_reports(lanewise: Callable[..., Any], name: str) -> None:
    assert lanewise(*check("wrong.ptx", "--save", name)).code == 1
    text = Path(name).read_text(encoding="utf-8")
    assert "race" in text
    if name.endswith(("json", "sarif")):
        json.loads(text)
    if name.endswith("html"):
        assert text.startswith("<!DOCTYPE html>") and text.count("<table") == text.count("</table>")
        assert "http" not in text and "st.shared.u32 [tile], %r0;" in text  # nothing is fetched


def test_a_report_of_no_known_form(lanewise: Callable[..., Any]) -> None:
    said = lanewise(*check("right.ptx", "--save", "report.pdf"))
    assert said.code == 2 and ".html, .json, .sarif, .txt" in said.err


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
    assert said.code == 2 and said.out == "" and "script.py launches nothing" in said.err
    assert "lanewise check --gpu H100 script.py" in said.err
    said = lanewise("check", "script.py", "--json")
    assert said.code == 2 and json.loads(said.out)["launches"] == []


CHECKS_ITSELF = """import numpy as np
import lanewise as lw
x = np.zeros(64, np.uint32)
report = lw.check(lw.load("wrong.ptx")["k"][1, 64], x)
assert report.findings
lw.load("right.ptx")["k"][1, 64](x)
"""


def test_a_script_that_checks_itself_is_seen(lanewise: Callable[..., Any]) -> None:
    Path("itself.py").write_text(CHECKS_ITSELF)
    said = lanewise("check", "itself.py", "--json")
    data = json.loads(said.out)
    assert said.code == 1 and [bool(each["findings"]) for each in data["launches"]] == [True, False]
    said = lanewise("run", "itself.py", "--json")
    assert said.code == 0 and [each["kernel"] for each in json.loads(said.out)["launches"]] == [
        "k (lw.check)",
        "k",
    ]


def test_without_arguments_a_command_is_suggested_and_works(lanewise: Callable[..., Any]) -> None:
    said = lanewise("check", "right.ptx", "--block", 64)
    assert said.code == 2 and "lanewise check right.ptx --grid 1 --block 64" in said.err
    command = said.err.partition("    lanewise ")[2].replace("\\\n", " ")
    assert lanewise(*shlex.split(command)).code == 0


@pytest.mark.skipif(load(13) is None, reason="NVRTC is not installed")
def test_a_suggested_command_has_the_launch_and_the_types_of_the_file(lanewise: Callable[..., Any]) -> None:
    Path("scale.cu").write_text(
        "#include <cuda_fp16.h>\n"
        "#define N 512\n"
        "__global__ void scale(const half* x, float* y, float alpha, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) y[i] = alpha * __half2float(x[i]);\n"
        "}\n"
        "__global__ void other(const int8_t* x, unsigned long long* y) { y[threadIdx.x] = x[threadIdx.x]; }\n"
        "void host(half* x, float* y, int8_t* z, unsigned long long* w, int m) {\n"
        "  const int threads = 64;\n"
        "  dim3 grid((N + threads - 1) / threads);\n"
        "  scale<<<m, threads>>>(x, y, 2, N);\n"
        "  scale<<<grid, dim3(threads, 2)>>>(x, y, 2, N);\n"
        "  other<<<1, 1 << 5>>>(z, w);\n"
        "}\n"
    )
    for entry, launch, arguments in (
        ("scale", "--grid 8 --block 64,2", "x=random:f16:1024 y=zeros:f32:1024 alpha=1.0 n=1024"),
        ("other", "--grid 1 --block 32", "x=random:s8:1024 y=zeros:u64:1024"),
    ):
        said = lanewise("check", "scale.cu", "--entry", entry)
        assert said.code == 2 and launch in said.err
        assert " ".join(f"--arg {each}" for each in arguments.split()) in said.err
        command = said.err.partition("    lanewise ")[2].replace("\\\n", " ")
        assert lanewise(*shlex.split(command)).code in (0, 1)
    assert (
        "x (__half const*), y (float*), alpha (float), n (int)"
        in lanewise("run", "scale.cu", "--entry", "scale").err
    )
    run_scale = ("run", "scale.cu", "--entry", "scale", "--block", "4", "--print", "1")
    arrays = ("--arg", "ones:f16:4", "--arg", "zeros:f32:4")
    said = lanewise(*run_scale, "--arg", "n=3", "--arg", "alpha=0.5", *arrays)  # the others fill what is left
    assert said.code == 0 and "[0.5 0.5 0.5 0. ]" in said.out
    for wrong, message in (
        (("--arg", "beta=2", *arrays), "the kernel has no parameter beta; it has alpha, n, x, y"),
        (("--arg", "n=3", "--arg", "n=4", *arrays), "n is given twice"),
        (("--arg", "n=3", *arrays), "there is none for alpha (float)"),
        (("--arg", "n=3", *arrays, *arrays), "takes 4 arguments: give one --arg for each; 5 are given"),
    ):
        said = lanewise(*run_scale, *wrong)
        assert said.code == 2 and message in " ".join(said.err.split()), said.err
