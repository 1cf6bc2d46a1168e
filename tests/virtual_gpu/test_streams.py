"""Races between streams: random programs against a brute-force oracle, wrong programs and right twins."""

import ctypes
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lanewise as lw
from lanewise.machine.checker.report import Finding
from lanewise.virtual_gpu import VirtualGPU
from lanewise.virtual_gpu.checking import PROGRAM
from virtual_gpu.happens_before import (
    APART,
    BLOCKING,
    BUFFERS,
    EVENTS,
    WORDS,
    Step,
    draw_program,
    racing_pairs,
)
from virtual_gpu.stream_programs import WORD, Program

NON_BLOCKING = 1


def source_of(program: list[Step]) -> str:
    """A program as Python, with each step on the line of its number (from 1)."""
    lines = []

    def words(place: tuple[int, int, int]) -> str:
        return f"buffers[{place[0]}] + {WORD * place[1]}"

    for step in program:
        stream, event = f"streams[{step.stream}]", f"events[{step.event}]"
        count = (step.writes or step.reads or (0, 0, 0))[2]
        target = words(step.writes) if step.writes else ""
        source = words(step.reads) if step.reads else ""
        lines.append(
            {
                "launch": f"driver.cuLaunchKernel(program.function, 2, 1, 1, 32, 1, 1, 0, {stream}, "
                f"program.arguments({target}, {source}, {count}, True), 0)",
                "copy": f"driver.cuMemcpyDtoDAsync_v2({target}, {source}, {WORD * count}, {stream})",
                "memset": f"driver.cuMemsetD32Async({target or 0}, 5, {count}, {stream})",
                "copy to host": f"driver.cuMemcpyDtoH_v2(host, {source or 0}, {WORD * count})",
                "record": f"driver.cuEventRecord({event}, {stream})",
                "wait": f"driver.cuStreamWaitEvent({stream}, {event}, 0)",
                "synchronize event": f"driver.cuEventSynchronize({event})",
                "synchronize stream": f"driver.cuStreamSynchronize({stream})",
                "synchronize": "driver.cuCtxSynchronize()",
                "host function": f"driver.cuLaunchHostFunc({stream}, callback, 0)",
            }[step.kind]
        )
    return "\n".join(lines)


def lines_of_races(gpu: VirtualGPU) -> set[tuple[int, int]]:
    """The lines of both operations of each race between launches, copies and fills, counted from 0."""
    races = [each for part in gpu.report.parts if part.kernel == PROGRAM for each in part.findings]
    assert all(each.source is not None and each.other is not None for each in races)
    return {(each.other.line - 1, each.line - 1) for each in races if each.other is not None}


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_race_as_the_oracle_says(seed: int, tmp_path: Path) -> None:
    """The programs run through the driver, with kernels; a race is known by the lines of its two steps."""
    chance = random.Random(seed)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    host = ctypes.create_string_buffer(WORD * WORDS)
    for number in range(3):
        program = draw_program(chance, 24)
        path = str(tmp_path / f"program_{number}.py")
        Path(path).write_text(source_of(program))
        with lw.virtual_gpu("A100", streams=True) as gpu:
            driver = gpu.driver
            buffers = [driver.cuMemAlloc_v2(WORD * WORDS) for _ in range(BUFFERS)]
            for each in buffers:
                driver.cuMemsetD32_v2(each, 0, WORDS)
            streams = {0: 0}
            streams |= {each: driver.cuStreamCreate(0) for each in BLOCKING}
            streams |= {each: driver.cuStreamCreate(NON_BLOCKING) for each in APART}
            events = [driver.cuEventCreate(0) for _ in range(EVENTS)]
            driver.cuCtxSynchronize()
            names = {
                "driver": driver, "program": Program(gpu), "buffers": buffers, "streams": streams,
                "events": events, "host": ctypes.addressof(host),
                "callback": ctypes.cast(callback, ctypes.c_void_p).value,
            }  # fmt: skip
            exec(compile(source_of(program), path, "exec"), names)
        assert lines_of_races(gpu) == racing_pairs(program), source_of(program)


@pytest.mark.parametrize("seed", range(4))
def test_nodes_of_a_graph_race_as_the_captured_program_does(seed: int, tmp_path: Path) -> None:
    """A program that is captured from several streams has the same races as a graph, on the same lines."""
    chance = random.Random(100 + seed)
    captured = {"launch", "copy", "memset", "record", "wait"}
    recorded: set[int] = set()
    program = []
    for step in draw_program(chance, 40):
        if step.kind not in captured or (step.kind == "wait" and step.event not in recorded):
            continue
        recorded |= {step.event} if step.kind == "record" else set()
        program.append(replace(step, stream=chance.choice(APART)))
    path = tmp_path / "program.py"
    path.write_text(source_of(program))
    with lw.virtual_gpu("A100", streams=True) as gpu:
        driver = gpu.driver
        buffers = [driver.cuMemAlloc_v2(WORD * WORDS) for _ in range(BUFFERS)]
        for each in buffers:
            driver.cuMemsetD32_v2(each, 0, WORDS)
        streams = {each: driver.cuStreamCreate(NON_BLOCKING) for each in APART}
        first, *others = streams.values()
        events = [driver.cuEventCreate(0) for _ in range(EVENTS)]
        fork, *joins = [driver.cuEventCreate(0) for _ in streams]
        driver.cuCtxSynchronize()
        driver.cuStreamBeginCapture_v2(first, 0)
        driver.cuEventRecord(fork, first)
        for other in others:
            driver.cuStreamWaitEvent(other, fork, 0)
        names = {
            "driver": driver, "program": Program(gpu), "buffers": buffers, "streams": streams,
            "events": events,
        }  # fmt: skip
        exec(compile(path.read_text(), str(path), "exec"), names)
        for other, event in zip(others, joins, strict=True):
            driver.cuEventRecord(event, other)
            driver.cuStreamWaitEvent(first, event, 0)
        graph = driver.cuGraphInstantiateWithFlags(driver.cuStreamEndCapture(first), 0)
        driver.cuGraphLaunch(graph, first)
        inside = lines_of_races(gpu)
        driver.cuEventRecord(fork, first)  # what waits for the graph races with none of its nodes
        driver.cuStreamWaitEvent(others[0], fork, 0)
        for each in buffers:
            driver.cuMemsetD32Async(each, 1, WORDS, others[0])
        assert lines_of_races(gpu) == inside == racing_pairs(program)


# wrong programs and their right twins -----------------------------------------------------------------------


class Machine:
    """A virtual GPU with two streams that stand apart, two buffers that are initialised, and an event."""

    def __init__(self, gpu: VirtualGPU) -> None:
        self.driver, self.program = gpu.driver, Program(gpu)
        self.one, self.two = (self.driver.cuStreamCreate(NON_BLOCKING) for _ in range(2))
        self.a, self.b = (self.driver.cuMemAlloc_v2(WORD * WORDS) for _ in range(2))
        for each in (self.a, self.b):
            self.driver.cuMemsetD32_v2(each, 0, WORDS)
        self.event = self.driver.cuEventCreate(0)
        self.driver.cuCtxSynchronize()

    def order(self, before: int, after: int) -> None:
        """Let one stream wait for another."""
        self.driver.cuEventRecord(self.event, before)
        self.driver.cuStreamWaitEvent(after, self.event, 0)


def races_of(steps: Callable[[Machine], None]) -> list[Finding]:
    with lw.virtual_gpu("A100", streams=True) as gpu:
        steps(Machine(gpu))
    return gpu.findings


def test_a_race_names_both_operations_their_streams_their_lines_and_a_mend() -> None:
    def steps(on: Machine) -> None:
        on.program.add(on.a, on.b, 8, on.one)
        on.driver.cuMemcpyDtoDAsync_v2(on.b, on.a, 16, on.two)

    (race,) = races_of(steps)
    assert "a copy on stream 2" in race.message and "kernel add on stream 1" in race.message
    assert race.source is not None and race.source.startswith(__file__)
    assert "cuMemcpyDtoDAsync_v2" in race.quote
    assert race.other is not None and race.other.source is not None
    assert race.mend.startswith("record an event on stream 1 after kernel add (line ")
    assert "let stream 2 wait for it before a copy (line " in race.mend
    assert race.allocation is not None and "the device memory at" in race.allocation


def test_an_event_that_is_recorded_again_stands_for_its_last_recording() -> None:
    def steps(on: Machine, again: bool) -> None:
        on.driver.cuEventRecord(on.event, on.one)
        on.program.add(on.a, on.b, 8, on.one)
        if again:
            on.driver.cuEventRecord(on.event, on.one)
        on.driver.cuStreamWaitEvent(on.two, on.event, 0)
        on.program.add(on.a, on.b, 8, on.two)

    assert races_of(lambda on: steps(on, again=False))
    assert not races_of(lambda on: steps(on, again=True))


@pytest.mark.parametrize("kind", ["legacy", "blocking", "apart", "per thread"])
def test_the_default_stream_and_streams_that_block_wait_for_each_other(kind: str) -> None:
    def steps(on: Machine) -> None:
        stream = {"legacy": 1, "blocking": on.driver.cuStreamCreate(0), "apart": on.one, "per thread": 2}[
            kind
        ]
        on.program.add(on.a, on.b, 8, stream)
        on.program.add(on.a, on.b, 8, 0)
        on.program.add(on.a, on.b, 8, stream)

    assert bool(races_of(steps)) == (kind == "apart")


def test_two_threads_have_default_streams_of_their_own() -> None:
    def steps(on: Machine) -> None:
        on.program.add(on.a, on.b, 8, 2)
        thread = threading.Thread(target=lambda: on.program.add(on.a, on.b, 8, 2))
        thread.start()
        thread.join()

    (race,) = races_of(steps)
    assert "the default stream of thread" in race.message


def test_memory_is_freed_in_the_order_of_a_stream() -> None:
    def steps(on: Machine, ordered: bool) -> None:
        memory = on.driver.cuMemAllocAsync(64, on.one)
        on.driver.cuMemsetD32Async(memory, 0, 16, on.one)
        if ordered:
            on.order(on.one, on.two)
        on.program.add(memory, on.b, 8, on.two)
        if ordered:
            on.order(on.two, on.one)
        on.driver.cuMemFreeAsync(memory, on.one)

    wrong = races_of(lambda on: steps(on, ordered=False))
    titles = " ".join(each.message for each in wrong)
    assert "the allocation on stream 1" in titles and "the free on stream 1" in titles
    assert not races_of(lambda on: steps(on, ordered=True))


def test_atomics_of_two_streams_do_not_race_and_neighbours_do_not() -> None:
    count = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry count(.param .u64 p) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [p];
    red.global.add.u32 [%rd0], 1;
    ret;
}"""

    def steps(on: Machine, other: int) -> None:
        function = on.driver.cuModuleGetFunction(on.driver.load(count), "count")
        pointer = ctypes.c_uint64(on.a)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
        for stream in (on.one, on.two):
            on.driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(arguments), 0)
        on.driver.cuMemsetD32Async(on.a + other, 0, 1, on.one)

    assert not races_of(lambda on: steps(on, WORD))
    assert len(races_of(lambda on: steps(on, 0))) == 1  # a memset is not atomic


def test_pageable_memory_is_copied_when_the_call_returns_and_pinned_memory_is_not() -> None:
    def steps(on: Machine, pinned: bool, ordered: bool) -> None:
        own = ctypes.create_string_buffer(64)
        host = on.driver.cuMemAllocHost_v2(64) if pinned else ctypes.addressof(own)
        on.driver.cuMemcpyDtoHAsync_v2(host, on.a, 64, on.one)
        if ordered:
            on.driver.cuStreamSynchronize(on.one)
        on.driver.cuMemsetD32Async(on.a, 0, 16, on.two)

    assert not races_of(lambda on: steps(on, pinned=False, ordered=False))
    assert races_of(lambda on: steps(on, pinned=True, ordered=False))
    assert not races_of(lambda on: steps(on, pinned=True, ordered=True))


def test_a_loop_is_one_finding_and_keeps_one_record() -> None:
    def steps(on: Machine) -> None:
        for number in range(50):
            on.program.add(on.a, on.b, 8, (on.one, on.two)[number % 2])

    assert len(races_of(steps)) == 1
