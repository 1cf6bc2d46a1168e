"""Programs in memory: as many as are used and a bounded number of others; unloaded when nobody needs them."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything, sampled
from lanewise.jit import llvm_library, machine_code
from lanewise.jit.host_memory import address
from lanewise.recently_used import RecentlyUsed

#: Adds a number to the word that its argument points to.
ADD = """
define void @add(ptr %arguments) {{
  %address = load i64, ptr %arguments
  %word = inttoptr i64 %address to ptr
  %before = load i64, ptr %word
  %after = add i64 %before, {number}
  store i64 %after, ptr %word
  ret void
}}
"""


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing on disk, and programs of our own alone in memory, of which 16 are kept."""
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")
    monkeypatch.setattr(machine_code, "_RECENT", RecentlyUsed(16))
    monkeypatch.setattr(machine_code, "_LOADED", weakref.WeakValueDictionary())
    yield


def load(number: int) -> machine_code.Program:
    return machine_code.load(f"a test's add {number}", lambda: ADD.format(number=number))


def added(program: machine_code.Program) -> int:
    word = np.zeros(1, np.int64)
    program("add", [address(word)])
    return int(word[0])


@pytest.mark.usefixtures("only_new_objects")
def test_programs_that_nobody_uses_are_bounded() -> None:
    for number in range(100):
        assert added(load(number)) == number
    gc.collect()
    assert len(machine_code._LOADED) == len(machine_code._RECENT) == 16


@pytest.mark.usefixtures("only_new_objects")
def test_a_program_in_use_is_never_unloaded_nor_loaded_twice() -> None:
    used = load(-1)
    place = used.place("add")
    for number in range(100):
        load(number)
    gc.collect()
    assert "a test's add -1" not in list(machine_code._RECENT)
    assert added(used) == -1
    assert load(-1) is used and used.place("add") == place
    gone = weakref.ref(used)
    del used
    for number in range(100, 200):
        load(number)
    gc.collect()
    assert gone() is None


@only_with_everything
@sampled(2)
@pytest.mark.parametrize("directly", [True, False])
def test_memory_of_dropped_programs_is_given_back(directly: bool) -> None:
    """1000 programs of a mebibyte each in a process of its own: some of them fit, and not all."""
    if directly and llvm_library._functions() is None:
        pytest.skip("llvmlite's library is called through llvmlite alone here")
    script = f"""
import resource
from lanewise.jit import llvm_library, machine_code
from lanewise.jit.host_memory import address
text = '''@data = global [131072 x i64] zeroinitializer
define void @f(ptr %0) {{ store i64 7, ptr @data  ret void }}'''
image = machine_code.compile(text)
if {directly}:
    llvm_library._called_directly = llvm_library._functions
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
for number in range(1000):
    machine_code.link(f"program {{number}}", lambda: [image])("f", [])
    if number == 300:
        before = most()
assert len(machine_code._LOADED) <= machine_code.MOST_PROGRAMS + 1
print(most() - before)
"""
    if sys.platform != "linux":
        pytest.skip("the most memory that a process had is counted otherwise here")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400  # mebibytes; 700 if nothing were given back


def test_many_kernels_are_compiled_and_dropped() -> None:
    for number in range(60):
        module = lw.load(f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, {number};
    st.global.u32 [%d0], %r0;
    ret;
}}""")
        out = np.zeros(1, np.uint32)
        module["k"][1, 1](out)
        assert out[0] == number
    assert len(machine_code._RECENT) <= 16


def test_a_running_program_outlives_the_cache() -> None:
    """Threads that run one program while others push it out of memory get their answers."""
    answers: list[int] = []

    def work(number: int) -> None:
        program = load(1000 + number)
        for _ in range(200):
            answers.append(added(program) - 1000 - number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for number in range(100):
        load(number)
    for worker in workers:
        worker.join()
    assert answers == [0] * 800


@pytest.mark.usefixtures("only_new_objects")
def test_an_engine_goes_with_its_last_reference() -> None:
    program = load(5)
    engine = weakref.ref(program._engine)
    machine_code._RECENT.clear()
    del program
    gc.collect()
    assert engine() is None
