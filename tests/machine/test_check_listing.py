"""Reports in other forms: the source with counters beside its lines, HTML; lines and lanes in messages."""

import pickle
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.machine import KernelFault, Unsupported
from lanewise.machine.checker.report import Report
from nvrtc import need_nvrtc

SOURCE = """__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[32][32];

    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void gone(float* x) {
    if (threadIdx.x % 3 == 0) return;
    __syncthreads();
    x[threadIdx.x] = 1;
}
__global__ void past(float* x) {
    if (threadIdx.x < 16) x[threadIdx.x] = 2;
    else {
        __syncthreads();
        x[threadIdx.x] = 1;
    }
}
__global__ void apart(float* x) {
    if (threadIdx.x < 5) { __syncthreads(); x[0] = 1; }
    else { __syncthreads(); x[1] = 1; }
}
__global__ void counts(float* x) {
    float a = 0;
    for (int i = 0; i < 1000000; i++)
        a = a * 2 + i;
    x[0] = a;
}
__global__ void sleeps(float* x) {
    x[0] = 1;
    asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" :: "l"(x), "f"(1.0f) : "memory");
}
__global__ void waits(float* x) {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;");
    x[0] = 1;
}
"""


@pytest.fixture(scope="module")
def module() -> Any:
    need_nvrtc()
    return lw.cuda(SOURCE, arch="sm_90")


@pytest.fixture(scope="module")
def report(module: Any) -> Report:
    square = np.ones((32, 32), np.float32)
    return lw.check(module["transpose"][1, (32, 32)], square, square.copy())


def test_every_line_once_and_in_order(report: Report) -> None:
    (file,) = report.listing()
    assert file.name == "kernel.cu"
    assert [line.number for line in file.lines] == list(range(1, 8))
    assert [line.text for line in file.lines] == SOURCE.split("\n")[:7]
    figures = {line.number: line.figures for line in file.lines}
    assert figures[6]["wavefronts"] == 1024 and figures[6]["conflicts"] == 992
    assert (figures[4]["wavefronts"], figures[4]["conflicts"], figures[4]["sectors"]) == (32, 0, 128)
    assert not figures[3] and figures[5]["executed"] == 32
    total = sum(each.get("executed", 0) for each in figures.values())
    assert total == report.counters["smsp__inst_executed.sum"]
    assert file.lines[5].remarks == [report.performance[0].description]


def test_text(report: Report) -> None:
    lines = report.listing_text().split("\n")
    assert lines[:2] == [
        "kernel.cu",
        "line  executed  wavefronts  conflicts  requests  sectors  source",
    ]
    assert lines[7].startswith("   6 ") and lines[7].endswith("tile[threadIdx.x][threadIdx.y];")
    assert lines[8].lstrip().startswith("^ tile[threadIdx.x][threadIdx.y]: 32-way bank conflict")


def test_reports_go_to_other_processes(report: Report) -> None:
    again = pickle.loads(pickle.dumps(report))
    assert again == report and again.performance == report.performance and str(again) == str(report)
    assert again.listing()[0].lines[5].figures == report.listing()[0].lines[5].figures


class Reader(HTMLParser):
    """Reads a page: its text, whether its elements are closed in order, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_pages(report: Report, module: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report.save(path)
    for html in (path.read_text(encoding="utf-8"), report._repr_html_()):
        reader = Reader()
        reader.feed(html)
        assert not reader.open and not reader.fetched and "@import" not in html
        assert "__global__ void transpose(const float* in" in reader.text
        assert "32-way bank conflict" in reader.text and "15,872" not in reader.text
    wrong = lw.check(module["past"][1, 32], np.zeros(32, np.float32))
    reader = Reader()
    reader.feed(wrong._repr_html_())
    assert "divergence: all lanes of a warp have to come to this barrier together" in reader.text


def test_lanes_are_named(module: Any) -> None:
    def message(name: str) -> str:
        (found,) = lw.check(module[name][1, 32], np.zeros(32, np.float32)).findings
        assert found.kind == "divergence"
        return found.message

    exits = "lanes 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30"
    assert f"together, but some have exited ({exits});" in message("gone")
    assert message("past").endswith("some have skipped it and exited (lanes 0 to 15)")
    assert message("apart").endswith("but some are elsewhere in the kernel (lanes 5 to 31)")


def test_lines_of_the_source_are_named(module: Any) -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(
        KernelFault,
        match=r"steps, the limit that steps= \(--steps\) sets\n    line \d+: .*\n    from kernel.cu:2",
    ):
        module["counts"][1, 32](x, steps=100)
    (found,) = lw.check(module["counts"][1, 32], x, steps=100).findings
    assert found.kind == "endless" and found.source in ("kernel.cu:26", "kernel.cu:27")
    with pytest.raises(Unsupported, match=r"multimem.*\n    from kernel.cu:32$"):
        module["sleeps"][1, 32](x)
    with pytest.raises(Unsupported, match=r"^line \d+: .*\n    from kernel.cu:32$"):
        lw.check(module["sleeps"][1, 32], x)
    with pytest.raises(KernelFault, match=r"32 threads wait at barrier 1, kernel.cu:3\d\n    mend: "):
        module["waits"][1, 32](x)


HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"


@pytest.mark.parametrize(
    ("static", "dynamic", "arch", "words"),
    [
        (50_000, 0, None, "declares 50,000 bytes of static shared memory, and it may declare 49,152"),
        (16, 70_000, None, "a block takes 70,016 bytes of shared memory, and sm_75 has 65,536"),
        (16, 110_000, "sm_86", "a block takes 110,016 bytes of shared memory, and sm_86 has 101,376"),
    ],
)
def test_a_plain_launch_refuses_what_a_check_does(static: int, dynamic: int, arch: Any, words: str) -> None:
    body = (
        f".shared .align 16 .b8 tile[{static}]; .reg .b32 %r; mov.u32 %r, tile; st.shared.u32 [%r], 1; ret;"
    )
    kernel = lw.load(f"{HEAD}.extern .shared .align 16 .b8 more[];\n.visible .entry k() {{ {body} }}")["k"]
    with pytest.raises(lw.LanewiseError, match=words):
        kernel[1, 32, dynamic](arch=arch)
    (found,) = lw.check(kernel[1, 32, dynamic], arch=arch).findings
    assert found.kind == "launch" and words in found.message
    if static < 49152:
        kernel[1, 32, 60_000](arch=arch)
