"""The room Kernels: each example shows what it is for; what is typed is bounded and reads nothing."""

import base64
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.errors import LanewiseError
from lanewise.explore import kernel_views, kernel_workers, kernels, time_limits
from lanewise.explore.answers import Session
from lanewise.explore.kernel_requests import EXAMPLES, KernelRequest, refuse_files, requested, without_paths
from lanewise.explore.kernel_views import data_of, origin_of, view_of
from lanewise.explore.kernel_worker import KernelWorker
from lanewise.machine.tracer.traced_launch import TracedLaunch

SAXPY = EXAMPLES["saxpy"]
TYPED: dict[str, Any] = {
    "language": "ptx", "source": SAXPY.source, "grid": "4", "block": "64", "arguments": list(SAXPY.arguments),
}  # fmt: skip
ENDLESS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 x)
{
    .reg .b32 %r<2>;
    mov.u32 %r0, 0;
again:
    add.u32 %r0, %r0, 1;
    bra again;
}
"""


def unpacked(text: str, dtype: Any) -> Any:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


def shown(name: str) -> dict[str, Any]:
    """What the page is given of an example, made in this process."""
    with requested(KernelRequest(example=name, grid="", block="")) as launch:
        data = data_of(view_of(launch))
    json.dumps(data, allow_nan=False, default=lambda value: value.item())
    return data


@sampled(6)
@pytest.mark.parametrize("name", ["saxpy", "transpose", "transpose-padded", "hgemm", "pipeline", "scan"])
def test_an_example_runs_and_nothing_is_found(name: str) -> None:
    data = shown(name)
    assert data["report"]["ok"] and not data["findings"] and data["kept"] == data["all"] > 30
    assert any(each["changed"] for each in data["results"])
    if EXAMPLES[name].language == "python":
        assert list(data["files"]) == [EXAMPLES[name].shown_name]
        assert "\n".join(data["files"][EXAMPLES[name].shown_name]) == EXAMPLES[name].source.rstrip("\n")


def test_the_transpose_has_conflicts_and_its_twin_has_none() -> None:
    wrong, right = shown("transpose"), shown("transpose-padded")

    def conflicts(data: dict[str, Any]) -> int:
        return sum(each.get("conflicts", 0) for each in data["report"]["ptx"].values())

    assert conflicts(wrong) == 31 * 32 and conflicts(right) == 0
    remarks = [
        text
        for each in wrong["report"]["files"]["transpose.py"]["lines"].values()
        for text in each["remarks"]
    ]
    assert any("32-way bank conflict" in each for each in remarks)


def test_copies_groups_and_findings_are_on_the_time_line() -> None:
    pipeline = shown("pipeline")
    assert len(pipeline["copies"]) == 8
    for _, _, issued, committed, done, text, size in pipeline["copies"]:
        assert issued < committed < done and text.startswith("cp.async") and size > 0
    barrier = shown("barrier")
    assert [each["title"] for each in barrier["findings"]][:1] == ["race"]
    first = barrier["findings"][0]
    assert (
        barrier["points"][unpacked(barrier["steps"]["point"], np.int32)[first["step"]]]["source"]
        == first["source"]
    )


def test_hopper_shows_tma_and_groups_of_wgmma() -> None:
    data = shown("tma-wgmma")
    assert len(data["copies"]) == 4 and len(data["groups"]) == 8
    assert all(first < commit < wait for _, _, first, commit, wait in data["groups"])
    # What TMA wrote is in shared memory: the last tiles of A and B, swizzled.
    writes = data["sharedWrites"]
    lanes = unpacked(writes["lane"], np.int32)
    sizes = unpacked(writes["size"], np.int32)
    # Two tiles of A and of B; each of the four copies tells an mbarrier of 8 bytes.
    assert sizes[lanes == -1].sum() == 2 * 2 * 64 * 64 * 2 + 4 * 8


def test_shared_memory_is_that_of_the_trace() -> None:
    with requested(KernelRequest(example="hgemm", grid="", block="")) as launch:
        view = view_of(launch)
    data = data_of(view)
    writes = {
        name: unpacked(data["sharedWrites"][name], np.uint8 if name == "bytes" else np.int32)
        for name in ("step", "offset", "size", "bytes")
    }
    step = view.trace.first(lambda each: each.op.opcode == "mma", 100)
    assert step is not None
    memory, start = np.zeros(data["sharedBytes"], np.uint8), 0
    for at, offset, size in zip(writes["step"], writes["offset"], writes["size"], strict=True):
        if at <= step.number:
            memory[offset : offset + size] = writes["bytes"][start : start + size]
        start += size
    (array,) = [each for each in view.trace.recording.shared_arrays.all() if each.name == "As"]
    assert np.array_equal(array.values(memory), step.shared("As"))


def test_the_origin_of_an_element() -> None:
    with requested(KernelRequest(example="hgemm", grid="", block="")) as launch:
        view = view_of(launch)
    last = len(view.trace) - 1
    found = origin_of(view, "C[3, 5]", None, 0, last, 0)
    assert found["inputs"] == {"A": [[3, k] for k in range(64)], "B": [[k, 5] for k in range(64)]}
    assert found["tree"]["step"] is not None and found["tree"]["sources"]
    early = origin_of(view, "C[3, 5]", None, 0, 10, 0)
    assert early["tree"]["line"] == "C[3, 5] = 0  (input)"
    with pytest.raises(LanewiseError, match="there is no step"):
        origin_of(view, "C[3, 5]", None, 0, 10**6, 0)
    with pytest.raises(LanewiseError, match="no register or variable"):
        origin_of(view, "nothing", 0, 0, 10, 0)


@pytest.mark.parametrize("name", ["swizzle", "barrier", "scan"])
def test_the_mistakes_are_those_of_the_docs(name: str) -> None:
    docs = Path(__file__).parents[2] / "docs" / "debugging.md"
    snippets = re.findall(r"```python\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    assert EXAMPLES[name].source in snippets


def test_launches_of_a_script_are_kept() -> None:
    session = Session()
    kernel = lw.load(SAXPY.source)["saxpy"][1, 32]
    x, y = np.ones(32, np.float32), np.ones(32, np.float32)
    kernels.add_launch(session, kernel, (2.0, x, y, 32), {})
    assert y.tolist() == [3.0] * 32
    assert kernels.about(session)["opened"] == [{"number": 1, "title": "saxpy[1, 32]"}]
    assert kernels.opened(session, 1)["all"] == 17
    found = kernels.origin(session, "tab", {}, of="y[3]", step=16, warp=0, block=0, opened=1)
    assert found["inputs"] == {"x": [[3]], "y": [[3]]}
    with pytest.raises(LanewiseError, match="launch 2 was not opened"):
        kernels.opened(session, 2)


# What may not be asked for ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": ""}, "empty"),
        ({"source": "/etc/passwd"}, "line 2"),
        ({"source": "kernel.ptx"}, "line 2"),
        ({"arguments": ["2", "x.npy", "ones:f32:8", "8"]}, "the page reads no files"),
        ({"arguments": ["2", "/etc/passwd", "ones:f32:8", "8"]}, "it takes"),
        ({"arguments": ["2", "zeros:f32:99999999", "ones:f32:8", "8"]}, "too many"),
        ({"arguments": ["2"]}, "takes 4 arguments"),
        ({"grid": "99999,99999"}, "threads"),
        ({"block": ""}, "how many threads"),
        ({"block": "x"}, "up to three sizes"),
        ({"language": "fortran"}, "ptx, cuda or python"),
        ({"shared": -1}, "more than any GPU has"),
        ({"shared": "12"}, "no 'shared' like this"),
        ({"surprise": "1"}, "no 'surprise'"),
        ({"arguments": [1]}, "an argument is text"),
        ({"traced": ["a"]}, "three coordinates"),
        ({"example": "../../secret"}, "there is no example"),
        ({"arch": "sm_1"}, "sm_1"),
        ({"source": SAXPY.source + "x" * (1 << 18)}, "characters"),
    ],
)
def test_bad_requests_are_sentences(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LanewiseError, match=message), requested(KernelRequest.of({**TYPED, **change})):
        pass


@pytest.mark.parametrize(
    "line",
    ['#include "x.h"', "#include </etc/passwd>", "#include <../x>", "#in\\\nclude \"x.h\"",
     "#/**/include \"x.h\"",
     "%:include \"x\"", "#define X \"/etc/passwd\"\n#include X", "#include_next <x.h>y\n#include \"z\"",
     "#line 1 \"/etc/passwd\"", "# 1 \"/etc/passwd\"", '#if __has_include("/etc/passwd")\n#endif'],
)  # fmt: skip
def test_no_file_is_included(line: str) -> None:
    with pytest.raises(LanewiseError, match="the page"):
        refuse_files(f"{line}\n__global__ void k() {{}}")


def test_headers_of_the_toolkit_are_included() -> None:
    refuse_files("#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n__global__ void k() {}")


def test_ptx_names_no_path(tmp_path: Path) -> None:
    secret = tmp_path / "secret.cu"
    secret.write_text("secret\n" * 20)
    text = SAXPY.source.replace(".address_size 64", f'.address_size 64\n.file /* a */ 1 "{secret}"').replace(
        "    ret;\n}", "    .loc 1 3 1\n    ret;\n}"
    )
    module = without_paths(text)
    assert set(module.files.values()) == {"secret.cu"}
    with requested(KernelRequest.of({**TYPED, "source": text})) as launch:
        data = data_of(view_of(launch))
    assert "secret\\n" not in json.dumps(data["files"]) and not data["files"]


# The processes ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers() -> Iterator[kernel_workers.Workers]:
    found = kernel_workers.Workers()
    yield found
    pids = found.pids
    found.close()
    for pid in pids:  # none is left
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_typed_kernel_runs_in_a_process(workers: kernel_workers.Workers) -> None:
    data = workers.ask("tab", "run", TYPED)
    assert data["kernel"] == "saxpy" and data["report"]["ok"]
    y = next(each for each in data["results"] if each["name"] == "y")
    assert y["rows"][0][:3] == ["1", "3.5", "6"]
    found = workers.ask(
        "tab", "origin", TYPED, {"of": "y[3]", "lane": None, "warp": 0, "step": 30, "block": 0}
    )
    assert found["inputs"] == {"x": [[3]], "y": [[3]]}
    with pytest.raises(LanewiseError, match="takes 4 arguments"):
        workers.ask("tab", "run", {**TYPED, "arguments": []})


ENDLESS_RUN = {"language": "ptx", "source": ENDLESS, "block": "32", "arguments": ["null"]}
#: What the answer says of a launch that was stopped, or that the limit on basic blocks has ended.
STOPPED = re.compile("the launch was|never|basic blocks")


def test_a_launch_that_is_stopped_shows_its_steps_up_to_there() -> None:
    def stop_after_some(running: TracedLaunch) -> None:
        def watch() -> None:
            while running._entries < 1000:
                time.sleep(0.001)
            running.stop()

        threading.Thread(target=watch, daemon=True).start()

    with requested(KernelRequest.of(ENDLESS_RUN)) as launch:
        data = data_of(view_of(launch, started=stop_after_some))
    assert STOPPED.search(data["fault"]) and data["all"] >= 1000


def test_a_kernel_that_never_ends_is_stopped_whenever_that_is_asked(workers: kernel_workers.Workers) -> None:
    """The process may still compile the kernel, or may not have read the request."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(workers.ask, "tab", "run", ENDLESS_RUN)
        while not any(each.busy and each.tab == "tab" for each in workers._workers):
            assert not answer.done()
            time.sleep(0.001)
        workers.stop("tab")
        assert STOPPED.search(answer.result()["fault"])
    data = workers.ask("tab", "run", TYPED)  # which nobody has stopped
    assert data["kernel"] == "saxpy" and not data["fault"]


def test_a_stop_concerns_the_request_that_it_names() -> None:
    worker, launches = KernelWorker(), [StoppedLaunch() for _ in range(3)]
    worker.stop(1)  # before the request was read
    for number, launch in enumerate(launches, 1):
        worker._number = number
        worker._begun(launch)
    assert [each.was_stopped for each in launches] == [True, False, False]
    worker.stop(2)  # too late: it has been answered
    assert not launches[2].was_stopped
    worker.stop(3)
    assert launches[2].was_stopped


class StoppedLaunch:
    """Stands for a launch: it notes that it was stopped."""

    was_stopped = False

    def stop(self) -> None:
        self.was_stopped = True


def test_a_process_that_does_not_answer_in_time_is_ended(
    workers: kernel_workers.Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_workers, "MOST_SECONDS", 0.0)
    with pytest.raises(LanewiseError, match="seconds and was stopped"):
        workers.ask("tab", "run", {**ENDLESS_RUN, "block": "64"})
    monkeypatch.undo()
    assert workers.ask("tab", "run", TYPED)["kernel"] == "saxpy"  # in another process


def test_a_launch_that_takes_its_time_is_stopped_or_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_views, "CHECKED_SECONDS", 0.0)
    with requested(KernelRequest.of(TYPED)) as launch:
        view = view_of(launch)
    assert view.report is None and "was not checked" in view.notes[0]
    monkeypatch.setattr(kernel_views, "TRACE_SECONDS", 0.0)
    with requested(KernelRequest.of(ENDLESS_RUN)) as launch:
        view = view_of(launch)
    assert view.report is None and "was stopped" in view.notes[0]


@pytest.mark.parametrize(
    ("text", "limit"), [("", 6.0), (" ", 6.0), ("1", 6.0), ("2.5", 15.0), ("1e-3", 0.006), ("inf", 6e6)]
)
def test_patience_multiplies_every_limit(text: str, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_PATIENCE", text)
    assert time_limits.seconds(6.0) == pytest.approx(limit)
    monkeypatch.delenv("LANEWISE_PATIENCE")
    assert time_limits.seconds(6.0) == 6.0


@pytest.mark.parametrize("text", ["0", "-1", "nan", "ten", "10 s"])
def test_patience_that_is_no_factor_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_PATIENCE", text)
    with pytest.raises(LanewiseError, match=f"LANEWISE_PATIENCE is '{text}', where a number above 0"):
        time_limits.seconds(6.0)


def test_twenty_quick_runs_of_a_tab(workers: kernel_workers.Workers) -> None:
    answers: list[Any] = []

    def run(number: int) -> None:
        try:
            answers.append(workers.ask("tab", "run", {**TYPED, "grid": str(number)}))
        except LanewiseError as error:
            answers.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 21)]
    for number, each in enumerate(threads, workers._count + 1):
        each.start()
        while workers._count < number:  # until it has taken the place of the one before
            time.sleep(0.001)
    for each in threads:
        each.join()
    assert len(answers) == 20 and len(workers.pids) <= kernel_workers.MOST_WORKERS
    ran = [each for each in answers if isinstance(each, dict)]
    assert any(each["grid"][0] == 20 for each in ran)
    assert all(isinstance(each, kernel_workers.Superseded) for each in answers if not isinstance(each, dict))
