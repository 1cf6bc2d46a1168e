"""Tensor memory on the saved page of a trace, and warps that wait for columns of it."""

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.traces.page import page_data
from traces.tensor_kernels import pair, tile
from traces.traced import BROWSER, page_at

# the saved page ---------------------------------------------------------------------------------------------


def unpacked(text: str, kind: Any) -> Any:
    """Return what the page has compressed."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind)


@pytest.mark.parametrize("schedule", ["early", "late"])
def test_the_page_has_the_words_of_every_step(schedule: str) -> None:
    """What arrives up to a step, put in place one after the other, is the memory of that step."""
    trace, *_ = tile(schedule)
    data = page_data(trace._recording)["tensor"]
    writes = {name: unpacked(text, np.int32) for name, text in data["writes"].items()}
    words, firsts = unpacked(data["words"], np.uint32), np.cumsum(writes["count"]) - writes["count"]
    memory, writers = np.zeros((128, 512), np.uint32), np.full((128, 512), -1)
    number = 0
    for step in trace.steps[:: len(trace.steps) // 7]:
        while number < len(firsts) and writes["step"][number] <= step.number:
            lane, column, count = (int(writes[name][number]) for name in ("lane", "column", "count"))
            memory[lane, column : column + count] = words[firsts[number] : firsts[number] + count]
            writers[lane, column : column + count] = writes["by"][number]
            number += 1
        expected = step.tensor_memory
        assert np.array_equal(memory, expected.words) and np.array_equal(writers, expected.writers)
    allocated = [columns for _, _, _, columns in data["allocations"]]
    assert allocated == [64, -64]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_shows_tensor_memory(tmp_path: Path) -> None:
    trace, *_ = tile("late")
    step = trace.first(lambda step: step.op.opcode == "tcgen05" and step.op.has("ld") and step.warp == 2)
    assert step is not None
    page = page_at(trace.save(tmp_path / "run.html"), step.number)
    value, writer = step.tensor_memory.read("f32")[0, 0], step.tensor_memory.writers[0, 0]
    assert "Allocated: columns 0–63. This step reads tmem: lanes 64–95, columns 0–63." in page
    shown = re.search(r'id="tensor-word">([-\d.]+) \(0x([0-9a-f]{8})\), written by step (\d+)<', page)
    assert shown is not None and np.isclose(float(shown[1]), value, rtol=1e-5)
    assert int(shown[2], 16) == step.tensor_memory.words[0, 0] and int(shown[3]) == writer


# waits for columns ------------------------------------------------------------------------------------------

TWO_WARPS = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
{
    .shared .align 4 .b32 first, second;
    .reg .b32 %r<8>;
    .reg .pred %p<3>;
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, 32;
    @%p1 bra OTHER;
    mov.u32 %r2, first;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 256;
    bar.sync 1, 64;
    bar.sync 2, 64;
    ld.shared.b32 %r3, [first];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 256;
    ret;
OTHER:
    bar.sync 1, 64;
    bar.arrive 2, 64;
    mov.u32 %r5, second;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], ASKED;
    ld.shared.b32 %r6, [second];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r6, ASKED;
    ret;
}
"""


@pytest.mark.parametrize("asked, waits", [(512, True), (256, False)])
def test_a_warp_waits_for_columns(asked: int, waits: bool) -> None:
    trace = lw.trace(lw.load(TWO_WARPS.replace("ASKED", str(asked)))["k"][1, 64])
    alloc = next(each for each in trace.steps if each.warp == 1 and "alloc" in each.text)
    free = next(each for each in trace.steps if each.warp == 0 and "dealloc" in each.text)
    waiting = {step.number: [each for each in step.waiting if each.kind == "columns"] for step in trace.steps}
    told = [number for number, each in waiting.items() if each]
    before = max(each.number for each in trace.steps[: alloc.number] if each.warp == 1)
    assert told == (list(range(before, alloc.number)) if waits else [])
    for number in told:
        (wait,) = waiting[number]
        assert (wait.warp, wait.what, wait.since) == (1, "for 512 columns of tensor memory", before)
        assert wait.missing == ("columns 0–255 are allocated" if number < free.number else "")


def test_a_warp_that_waits_for_columns_for_ever() -> None:
    text = TWO_WARPS.replace("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 256;", "").replace(
        "ASKED", "512"
    )
    trace = lw.trace(lw.load(text)["k"][1, 64])
    (wait,) = trace.steps[-1].waiting
    assert wait.kind == "columns" and wait.missing == "columns 0–255 are allocated"


def test_the_first_block_of_a_pair_waits_for_the_other() -> None:
    trace, *_ = pair()
    waits = [each for step in trace.steps for each in step.waiting if each.kind == "columns"]
    assert waits and {each.missing for each in waits} == {"block (1, 0, 0) has not asked for its part"}
