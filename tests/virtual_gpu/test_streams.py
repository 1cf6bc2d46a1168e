"""Races between streams: random programs against a brute-force oracle, wrong programs and their right twins."""

import ctypes
import random
from pathlib import Path

import pytest

import lanewise as lw
from lanewise.virtual_gpu import VirtualGPU
from lanewise.virtual_gpu.report import PROGRAM
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
