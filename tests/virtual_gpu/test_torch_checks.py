"""torch's own operators under checks: memory of torch.empty, streams and events, and what is put back."""

from collections.abc import Callable
from typing import Any

import pytest

import lanewise as lw
from lanewise.machine.checker.report import Finding
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.virtual_gpu import VirtualGPU
from virtual_gpu.stream_programs import Program

torch = pytest.importorskip("torch")


def findings_of(steps: Callable[[Program], None], streams: bool = False) -> list[Finding]:
    with lw.virtual_gpu("A100", check=True, streams=streams) as gpu:
        steps(Program(gpu))
    return gpu.findings


def new(words: int = 16) -> Any:
    return torch.empty(words, dtype=torch.int32, device="cuda")


def full(words: int = 16) -> Any:
    return torch.ones(words, dtype=torch.int32, device="cuda")


#: How memory of torch.empty comes to hold something, and whether all 16 words are written then.
WAYS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "nothing": (lambda x: x, False),
    "fill_": (lambda x: x.fill_(3), True),
    "copy_": (lambda x: x.copy_(full()), True),
    "half": (lambda x: (x[:8].fill_(1), x)[1], False),
    "both halves": (lambda x: (x[::2].zero_(), x[1::2].zero_(), x)[2], True),
    "index": (lambda x: (x.__setitem__(slice(None), 4), x)[1], True),
    "out=": (lambda x: torch.add(full(), 1, out=x), True),
    "clone": (lambda x: x.clone(), False),
    "copy of nothing": (lambda x: new().copy_(x), False),
    "copy over something": (lambda x: full().copy_(x), False),
    "computed": (lambda x: x * 0 + 1, True),
    "reshaped": (lambda x: x.view(4, 4).fill_(2).view(16), True),
    "on the host and back": (lambda x: x.cpu().cuda(), False),
    "like": (lambda x: torch.empty_like(full()), False),
    "new_zeros": (lambda x: x.new_zeros(16), True),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_torch_writes_counts_as_written(way: str) -> None:
    change, is_written = WAYS[way]

    def steps(program: Program) -> None:
        memory, target = change(new()), full()
        program.add(target.data_ptr(), memory.data_ptr(), 16)

    found = [each for each in findings_of(steps) if each.kind == "uninitialised"]
    assert bool(found) != is_written
    assert all(each.allocation is not None and "test_torch_checks.py:" in each.allocation for each in found)
    assert not len(INITIALISED)


def test_memory_that_torch_gives_to_a_new_tensor_is_not_that_of_the_old_one() -> None:
    def steps(program: Program) -> None:
        target = full(1024)
        for _ in range(8):
            memory = new(1024)
            del memory  # its memory is likely to be the next one's
            memory = full(1024)
            program.add(target.data_ptr(), memory.data_ptr(), 1024)

    assert not findings_of(steps)


# streams ----------------------------------------------------------------------------------------------------


def on_side_stream(program: Program, begin: bool, end: bool) -> None:
    x, y = full(), full()
    side = torch.cuda.Stream()
    if begin:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        program.add(y.data_ptr(), x.data_ptr(), 16, torch.cuda.current_stream().cuda_stream)
        z = y + 1
    if end:
        torch.cuda.current_stream().wait_event(side.record_event())
    assert z.sum().item() == 48


@pytest.mark.parametrize(("begin", "end"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_side_stream_has_to_wait_and_to_be_waited_for(begin: bool, end: bool) -> None:
    races = findings_of(lambda program: on_side_stream(program, begin, end), streams=True)
    messages = " ".join(each.message for each in races)
    assert ("on stream 1 reads" in messages) != begin
    assert ("on the default stream reads" in messages) != end


WAITS: dict[str, tuple[Callable[[Any, Any], object], bool]] = {
    "nothing": (lambda side, y: None, False),
    "synchronize the stream": (lambda side, y: side.synchronize(), True),
    "synchronize": (lambda side, y: torch.cuda.synchronize(), True),
    "query": (lambda side, y: side.query(), True),
    "an event": (lambda side, y: side.record_event().synchronize(), True),
    "cpu()": (lambda side, y: y.cpu(), True),
    "to": (lambda side, y: y.to("cpu"), True),
    "to, not waiting": (lambda side, y: y.to("cpu", non_blocking=True), False),
    "item": (lambda side, y: y[0].item(), True),
    "is_pinned": (lambda side, y: y.is_pinned(), False),
}


@pytest.mark.parametrize("way", WAITS)
def test_the_host_waits_where_it_reads(way: str) -> None:
    wait, is_ordered = WAITS[way]

    def steps(program: Program) -> None:
        x, side = full(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
            wait(side, y)
        y.zero_()

    assert bool(findings_of(steps, streams=True)) != is_ordered


def test_streams_and_events_are_those_of_the_driver() -> None:
    with lw.virtual_gpu("A100") as gpu:
        side = torch.cuda.Stream()
        assert gpu.driver.cuStreamGetFlags(side.cuda_stream) == 1
        assert torch.cuda.current_stream() == torch.cuda.default_stream() != side
        with side:
            assert torch.cuda.current_stream() == side
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        torch.cuda.set_stream(side)
        assert torch.cuda.current_stream().cuda_stream == side.cuda_stream
        assert event.query() and event.elapsed_time(side.record_event()) >= 0
    with lw.virtual_gpu("A100"):
        assert torch.cuda.current_stream().cuda_stream == 0


def test_nothing_is_followed_without_a_check() -> None:
    def storages(gpu: VirtualGPU) -> object:
        return gpu.torch.checks

    with lw.virtual_gpu("A100") as gpu:
        new()
        assert storages(gpu) is None and not len(INITIALISED)
