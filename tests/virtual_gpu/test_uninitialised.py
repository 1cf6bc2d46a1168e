"""Memory that nothing wrote, followed across launches and copies: random programs against an oracle."""

import ctypes
import random

import pytest

import lanewise as lw
from lanewise.machine.checker.report import Finding
from lanewise.machine.runtime.initialised_bytes import INITIALISED
from lanewise.virtual_gpu import VirtualGPU
from virtual_gpu.stream_programs import WORD, Program

WORDS = 40
BUFFERS = 3

#: Each thread loads four words as one vector, and stores the sum of the first two, or all four.
VECTORS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sum_two(.param .u64 target, .param .u64 source) {
    .reg .b64 %rd<4>; .reg .b32 %r<8>;
    ld.param.u64 %rd0, [target]; ld.param.u64 %rd1, [source];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 16;
    add.u64 %rd1, %rd1, %rd2; add.u64 %rd0, %rd0, %rd2;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
    add.u32 %r5, %r1, %r2;
    st.global.v4.u32 [%rd0], {%r5, %r5, %r3, %r4};
    ret;
}
.visible .entry count(.param .u64 target) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [target];
    red.global.add.u32 [%rd0], 1;
    ret;
}
"""


def launch(gpu: VirtualGPU, name: str, *addresses: int, threads: int = 1) -> None:
    function = gpu.driver.cuModuleGetFunction(gpu.driver.load(VECTORS), name)
    values = [ctypes.c_uint64(each) for each in addresses]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    gpu.driver.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, 0, ctypes.addressof(pointers), 0)


def unwritten(gpu: VirtualGPU) -> list[Finding]:
    return [each for each in gpu.findings if each.kind == "uninitialised"]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_read_what_nothing_wrote_as_the_oracle_says(seed: int) -> None:
    """The oracle keeps a set of words that were written; a launch that reads others is found."""
    chance = random.Random(seed)
    with lw.virtual_gpu("A100", check=True) as gpu:
        driver, program = gpu.driver, Program(gpu)
        buffers = [driver.cuMemAlloc_v2(WORD * WORDS) for _ in range(BUFFERS)]
        written: set[int] = set()
        host = ctypes.create_string_buffer(WORD * WORDS)
        for _ in range(20):
            kind = chance.choice(("copy", "memset", "launch", "launch", "write", "upload", "new"))
            source, target = (chance.choice(buffers) + WORD * chance.randrange(WORDS) for _ in range(2))
            ends = [
                WORD * WORDS + max(each for each in buffers if each <= place) for place in (source, target)
            ]
            room = min(end - place for end, place in zip(ends, (source, target), strict=True))
            count = chance.randint(1, room // WORD)
            sources = [source + WORD * each for each in range(count)]
            targets = [target + WORD * each for each in range(count)]
            before = len(gpu.launches)
            expected = False
            match kind:
                case "copy" if not set(sources) & set(targets):
                    driver.cuMemcpyDtoD_v2(target, source, WORD * count)
                    carried = {there for here, there in zip(sources, targets, strict=True) if here in written}
                    written = (written - set(targets)) | carried
                case "memset":
                    driver.cuMemsetD32_v2(target, 3, count)
                    written |= set(targets)
                case "upload":
                    driver.cuMemcpyHtoD_v2(target, ctypes.addressof(host), WORD * count)
                    written |= set(targets)
                case "write":
                    program.add(target, 0, count, overwrites=True)
                    written |= set(targets)
                case "launch" if not set(sources) & set(targets):
                    expected = not set(sources) | set(targets) <= written
                    program.add(target, source, count)
                    written |= set(targets)
                case "new":
                    old = buffers.pop(chance.randrange(BUFFERS))
                    written -= {old + WORD * each for each in range(WORDS)}
                    driver.cuMemFree_v2(old)
                    buffers.append(driver.cuMemAlloc_v2(WORD * WORDS))
                    written -= {buffers[-1] + WORD * each for each in range(WORDS)}
            findings = [
                finding for each in gpu.launches[before:] if each.report is not None
                for finding in each.report.findings
            ]  # fmt: skip
            found = any(each.kind == "uninitialised" for each in findings)
            assert found == expected, kind
            for each in buffers:
                marks = INITIALISED.marks(each, WORD * WORDS)
                words = [True] * WORDS if marks is None else marks[::WORD].astype(bool).tolist()
                assert words == [each + WORD * number in written for number in range(WORDS)], kind
    assert not len(INITIALISED)


def test_a_finding_names_the_memory_and_who_allocated_it() -> None:
    with lw.virtual_gpu("A100", check=True) as gpu:
        place = gpu.driver.cuMemAlloc_v2(64)
        launch(gpu, "count", place)
    (finding,) = unwritten(gpu)
    assert finding.allocation is not None
    assert "the device memory at" in finding.allocation and "64 bytes, allocated at" in finding.allocation
    assert "test_uninitialised.py:" in finding.allocation
    assert "no copy, no memset and no kernel has written" in finding.message


@pytest.mark.parametrize(("words", "is_found"), [(4, False), (2, False), (1, True), (0, True)])
def test_elements_of_a_vector_that_are_only_copied_may_be_padding(words: int, is_found: bool) -> None:
    with lw.virtual_gpu("A100", check=True) as gpu:
        source, target = (gpu.driver.cuMemAlloc_v2(64) for _ in range(2))
        if words:
            gpu.driver.cuMemsetD32_v2(source, 1, words)
        launch(gpu, "sum_two", target, source)
    assert bool(unwritten(gpu)) == is_found


def test_plain_launches_and_memory_that_the_host_writes_count_as_initialised() -> None:
    with lw.virtual_gpu("A100", first=1) as gpu:
        place, other = gpu.driver.cuMemAlloc_v2(64), gpu.driver.cuMemAlloc_v2(64)
        gpu.driver.cuMemsetD32_v2(place, 0, 16)
        launch(gpu, "count", place)
        launch(gpu, "count", other)
    assert len(gpu.launches) == 2 and gpu.report.checked == 1 and not gpu.findings
    with lw.virtual_gpu("A100", check=True) as gpu:
        launch(gpu, "count", gpu.driver.cuMemAllocManaged(64, 1))
        launch(gpu, "count", gpu.driver.cuMemAllocHost_v2(64))
    assert not gpu.findings


def test_a_launch_that_is_repeated_begins_with_what_was_written_before_it() -> None:
    """Blocks on several host threads: the launch is repeated on one to tell what it found."""
    with lw.virtual_gpu("A100", check=True) as gpu:
        program = Program(gpu)
        size = 1 << 14
        source, target = (gpu.driver.cuMemAlloc_v2(WORD * size) for _ in range(2))
        gpu.driver.cuMemsetD32_v2(source, 1, size)
        program.add(target, source, size)
    (finding,) = unwritten(gpu)
    assert finding.count == size
