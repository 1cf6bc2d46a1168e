"""Kernels that would never end: Ctrl-C, a budget of steps, a deadlock; the process goes on as before."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise.machine import Deadlock, KernelFault
from lanewise.machine.runtime import launch, resident_blocks
from lanewise.machine.runtime.state import BlockState

SRC = Path(lw.__file__).parents[1]
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
#: Sets the second element of x, by which others see that the kernel runs.
BEGUN = "    st.volatile.global.u32 [%rd0+4], 1;"
ENDLESS = HEAD + """
.visible .entry endless(.param .u64 x)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [x];
""" + BEGUN + """
again:
    ld.volatile.global.u32 %r0, [%rd0];
    add.u32 %r1, %r1, %r0;
    bra again;
}
.visible .entry products(.param .u64 x)
{
    .reg .b32 %a<4>, %b<2>; .reg .f32 %c<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [x];
""" + BEGUN + """
again:
""" + "    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, " \
      "{%b0, %b1}, {%c0, %c1, %c2, %c3};\n" * 64 + """    bra again;
}
.visible .entry twice(.param .u64 x)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd0, %r0, 4, %rd0;
    ld.global.u32 %r1, [%rd0];
    add.u32 %r1, %r1, %r1;
    st.global.u32 [%rd0], %r1;
    ret;
}
.visible .entry stuck(.param .u64 x)
{
    .reg .b32 %r<2>; .reg .pred %p;
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p, %r0, 32;
    @%p bra one;
    bar.sync 2, 128;
    ret;
one:
    bar.sync 1, 128;
    ret;
}
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 words[4] = {46, 0, 0, 0};
.visible .entry talks(.param .u64 x)
{
    .reg .b64 %rd<3>;
    mov.u64 %rd0, words;
    cvta.global.u64 %rd1, %rd0;
    mov.u64 %rd2, 0;
    ld.param.u64 %rd0, [x];
""" + BEGUN + """
again:
    { .param .b64 a; st.param.b64 [a], %rd1; .param .b64 b; st.param.b64 [b], %rd2; .param .b32 c;
      call.uni (c), vprintf, (a, b); }
    bra again;
}
"""  # fmt: skip

CHILD = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import numpy as np, lanewise as lw
module = lw.load(sys.stdin.read())
x = np.zeros(64, np.int32)
kernel = module[sys.argv[2]][3, 64]
try:
    kernel(x, steps=1)                                     # compiled by now
except lw.LanewiseError:
    pass
progress = (lambda done, total: None) if sys.argv[3] == "progress" else None
x[1] = 0
def watch():
    while not x[1]:                                        # which the kernel sets when it begins
        time.sleep(0.001)
    print("\\nrunning", file=sys.stderr, flush=True)
threading.Thread(target=watch).start()
try:
    kernel(x, progress=progress)
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr, flush=True)
x = np.arange(64, dtype=np.int32)
module["twice"][1, 64](x)
print("healthy" if (x == 2 * np.arange(64)).all() else "sick", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def module() -> lw.Module:
    return lw.load(ENDLESS)


@sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "waiting"),
    [("endless", "quietly"), ("endless", "progress"), ("products", "quietly"), ("talks", "quietly")],
)
def test_ctrl_c_stops_a_run_and_the_process_goes_on(kernel: str, waiting: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(SRC), kernel, waiting],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stderr is not None
    try:
        child.stdin.write(ENDLESS)
        child.stdin.close()
        for line in child.stderr:
            if line.strip() == "running":
                break
        child.send_signal(signal.SIGINT)
        lines = child.stderr.read().splitlines()
        assert child.wait() == 0, "\n".join(lines)
        assert lines == ["interrupted", "healthy"]
    finally:
        child.kill()


@sampled(2)
@pytest.mark.parametrize("kernel", ["endless", "products", "talks"])
def test_a_budget_of_steps_ends_what_is_endless(kernel: str, module: lw.Module) -> None:
    with pytest.raises(KernelFault, match="steps") as caught:
        module[kernel][2, 64](np.zeros(2, np.int32), steps=100)
    assert caught.value.kind == "endless"


@pytest.mark.parametrize("steps", [0, -1, 1.5, "many"])
def test_a_budget_is_a_number_of_steps(steps: object, module: lw.Module) -> None:
    with pytest.raises(lw.LanewiseError, match="steps="):
        module["twice"][1, 32](np.zeros(32, np.int32), steps=steps)
    module["twice"][1, 32](np.zeros(32, np.int32), steps=1 << 80)


def test_a_deadlock_is_named(module: lw.Module) -> None:
    with pytest.raises(Deadlock, match="wait at barrier 1") as caught:
        module["stuck"][1, 64](np.zeros(1, np.int32))
    assert caught.value.kind == "deadlock" and "barrier 2" in str(caught.value)


def test_blocks_that_spin_do_not_pile_up(module: lw.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(resident_blocks, "ON_A_GPU", 6)
    monkeypatch.setattr(launch.Launch, "workers", lambda launch: 2)  # each has a block at least, however many
    plain = launch.Launch.new_block

    def new_block(started: launch.Launch, worker: int) -> BlockState:
        made.append(1)
        return plain(started, worker)

    monkeypatch.setattr(launch.Launch, "new_block", new_block)
    with pytest.raises(KernelFault) as caught:
        module["endless"][1000, 32](np.zeros(2, np.int32), steps=200_000)
    assert caught.value.kind == "endless"
    assert 2 <= len(made) <= 6


def test_progress_is_told_to_the_end(module: lw.Module) -> None:
    seen: list[tuple[int, int]] = []
    module["twice"][40, 32](np.zeros(32, np.int32), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40) and seen == sorted(seen)
