"""`lanewise run`: kernels in files on arrays from files or made on the spot, scripts, Ctrl-C, the bar."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lanewise
from lanewise.tracebacks import RAISE_AS_IS

SAXPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<5>; .reg .b64 %rd<3>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %p, %r3, %r4;
    @%p ret;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    mad.wide.u32 %rd0, %r3, 4, %rd0;
    mad.wide.u32 %rd1, %r3, 4, %rd1;
    ld.param.f32 %f0, [a];
    ld.global.f32 %f1, [%rd0];
    ld.global.f32 %f2, [%rd1];
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.global.f32 [%rd1], %f3;
    ret;
}
"""
MANY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing(.param .u64 p) { ret; }
.visible .entry number(.param .u64 p) { .reg .b64 %rd; ld.param.u64 %rd, [p]; st.global.u32 [%rd], 7; ret; }
.visible .entry pair(.param .align 4 .b8 s[8]) .reqntid 32 { ret; }
.visible .entry spin() { L: bra L; }
"""
SCRIPT = """import sys
import numpy as np
import lanewise as lw
saxpy = lw.load("saxpy.ptx")["saxpy"]
x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
for n in map(int, sys.argv[1:]):
    saxpy[3, 32](0.5, x, y, n)
print("sum", y.sum(), __name__)
"""
SOURCE = str(Path(lanewise.__file__).parent.parent)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saxpy.ptx").write_text(SAXPY)
    Path("many.ptx").write_text(MANY)
    Path("script.py").write_text(SCRIPT)
    Path("folder.py").mkdir()


def saxpy(n: int, *more: Any) -> tuple[Any, ...]:
    shape = ("--grid", 4, "--block", 256)
    return ("run", "saxpy.ptx", *shape, "--arg", 2.0, "--arg", "x.npy", "--arg", "y.npy", "--arg", n, *more)


def test_arrays_in_files(answered: Callable[..., str]) -> None:
    x, y = np.arange(1000, dtype=np.float32), np.full(1000, 3, np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    out = answered(*saxpy(1000, "--save", "2=z.npy"))
    assert np.array_equal(np.load("z.npy"), 2 * x + y)
    assert np.array_equal(np.load("y.npy"), y)  # what is not asked for is not overwritten
    assert "saxpy" in out and "argument 2 is in z.npy" in out


def test_json_has_the_launch_and_what_is_printed(answered: Callable[..., str]) -> None:
    for name in "xy":
        np.save(f"{name}.npy", np.ones(4, np.float32))
    data = json.loads(answered(*saxpy(3, "--print", 2, "--json")))
    assert (data["kernel"], data["grid"], data["block"], data["blocks"]) == (
        "saxpy",
        [4, 1, 1],
        [256, 1, 1],
        4,
    )
    assert data["arch"] == "sm_80" and data["seconds"] > 0 and data["fault"] is None
    assert data["arguments"] == {"2": {"dtype": "float32", "shape": [4], "values": [3, 3, 3, 1]}}


def test_a_fault_is_told_with_its_place(lanewise: Callable[..., Any]) -> None:
    for name in "xy":
        np.save(f"{name}.npy", np.ones(1000, np.float32))
    said = lanewise(*saxpy(1001))
    assert said.code == 1
    assert "out of bounds" in said.err and "line 19" in said.err and "thread (232, 0, 0)" in said.err
    assert "stopped: out of bounds" in said.out


def made(text: str, number: int = 0) -> np.ndarray:
    from lanewise.cli.launching import parse_argument

    return parse_argument(text, number, lanewise.load(MANY)["number"].parameters[0])


def test_arrays_made_on_the_spot() -> None:
    assert np.array_equal(made("zeros:f32:2x3"), np.zeros((2, 3), np.float32))
    assert made("ones:bf16:4").dtype == ml_dtypes.bfloat16 and (made("ones:bf16:4") == 1).all()
    assert np.array_equal(made("arange:i64:2x2"), [[0, 1], [2, 3]])
    assert np.array_equal(made("arange:s4:10").astype(int), [*range(8), 0, 1])
    for name, dtype in {"f16": "f2", "f64": "f8", "u8": "u1", "s8": "i1", "s32": "i4", "u32": "u4"}.items():
        assert made(f"random:{name}:100").dtype == np.dtype(dtype)
    spread = made("random:s8:100000")
    assert (spread.min(), spread.max()) == (-128, 127)
    assert (made("random:f32:1000") >= 0).all() and (made("random:f32:1000") < 1).all()
    assert abs(made("normal:f64:100000").std() - 1) < 0.01


def test_random_arguments_repeat_and_differ() -> None:
    assert np.array_equal(made("random:f32:9"), made("random:f32:9"))
    assert not np.array_equal(made("random:f32:9", 0), made("random:f32:9", 1))
    assert np.array_equal(made("random:f32:9:5", 0), made("random:f32:9:5", 1))
    assert np.array_equal(made("random:f32:9", 5), made("random:f32:9:5", 1))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["many.ptx", "--block", 1], ["4 kernels", "--entry", "'nothing'"]),
        (["many.ptx", "--entry", "none", "--block", 1], ["none", "nothing"]),
        (["many.ptx", "--entry", "number", "--block", 1], ["takes 1 argument:", ".u64 p", "0 are given"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "x.npy"], ["x.npy", "no such file"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "x"], ["'x'", "zeros:f32:64x64"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "zeros:f99:4"], ["f99", "bf16"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "zeros:f32:4x"], ["4x", "64x64"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "zeros:f32:0"], ["'0'", "64x64"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "zeros:f32:4:1"], ["zeros:type:shape"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "random:f32:4:x"], ["'x'", "seed"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", "normal:u8:4"], ["floating"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", f"zeros:f32:{9**30}"], ["too many"]),
        (["many.ptx", "--entry", "number", "--arg", "zeros:f32:4"], ["--block 128"]),
        (["many.ptx", "--entry", "number", "--block", "1,2,3,4", "--arg", 1], ["--block", "1,2,3,4"]),
        (["many.ptx", "--entry", "number", "--block", "0", "--arg", 1], ["block", "0"]),
        (["many.ptx", "--entry", "number", "--block", "2000", "--arg", 1], ["2000"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", 1, "--save", "2"], ["--save", "2=c.npy"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", 1, "--save", "2=c.npy"], ["--save 2"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", 1, "--print", "0"], ["argument 0 is 1"]),
        (["many.ptx", "--entry", "pair", "--arg", "5"], ["struct of 8 bytes", "hex:"]),
        (["many.ptx", "--entry", "pair", "--arg", "hex:0"], ["hex:00ff"]),
        (["many.ptx", "--entry", "pair", "--arg", "hex:00ff"], ["8 bytes", "2 were given"]),
        (["many.ptx", "more", "--entry", "spin", "--block", 1], ["more", "--arg"]),
        (["many.ptx", "-D", "N=4"], ["--define", "CUDA C++"]),
        (["saxpy.ptx", "--block", 1, "--arg", "one"], ["takes 4 arguments"]),
        (["none.ptx", "--block", 1], ["none.ptx", "no such file"]),
        (["none.py"], ["none.py", "no such file"]),
        (["folder.py"], ["folder.py", "a folder, not a file"]),
        (["many.ptx", "--entry", "number", "--arg", 1], ["say how many threads a block of number has"]),
        (["none.txt"], ["none.txt", ".ptx, .cu or .py"]),
        (["script.py", "--grid", "1"], ["--grid", "script"]),
        (["script.py", "--print", "1"], ["--print", "script"]),
        (["many.ptx", "--entry", "number", "--block", 1, "--arg", 1, "--arch", "sm_1"], ["sm_1"]),
    ],
    ids=lambda value: " ".join(map(str, value))[:60],
)  # fmt: skip
def test_complaints(lanewise: Callable[..., Any], arguments: list[str], named: list[str]) -> None:
    said = lanewise("run", *arguments)
    assert said.code == 2 and said.out == ""
    assert said.err.startswith("lanewise: ") and "Traceback" not in said.err and "defect" not in said.err
    for words in named:
        assert words in said.err


def test_syntax_errors_keep_their_lines(lanewise: Callable[..., Any]) -> None:
    Path("bad.ptx").write_text(".version 8.0\n.target sm_80\n.entry k() {\n add.s32 %r1, %r2 %r3;\n}")
    said = lanewise("run", "bad.ptx", "--block", 1)
    assert said.code == 2 and "4" in said.err and said.err.count("\n") > 1


def test_structs_and_limits_of_the_kernel(answered: Callable[..., str]) -> None:
    answered("run", "many.ptx", "--entry", "pair", "--arg", "hex:0011223344556677")


def test_script_runs_as_python_would_and_its_launches_are_reported(answered: Callable[..., str]) -> None:
    out = answered("run", "script.py", "--", 10, 64)
    assert out.startswith("sum 37.0 __main__\n")
    assert len([line for line in out.splitlines() if line.startswith("saxpy ")]) == 2
    assert out.endswith("2 launches.\n")


def test_script_in_json(lanewise: Callable[..., Any]) -> None:
    said = lanewise("run", "script.py", "--json", "--", 10)
    assert said.code == 0 and "sum 5.0" in said.err
    data = json.loads(said.out)
    assert data["status"] == 0
    assert [(each["kernel"], each["grid"], each["fault"]) for each in data["launches"]] == [
        ("saxpy", [3, 1, 1], None)
    ]


def test_script_that_fails_shows_its_own_traceback(
    lanewise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RAISE_AS_IS, raising=False)  # with which the suite asks for whole tracebacks
    said = lanewise("run", "script.py", "--", 10, 65)
    assert said.code == 2
    assert "out of bounds" in said.err and 'File "script.py", line 7' in said.err
    assert said.err.count("File ") == 1  # nothing of how lanewise came to notice
    assert "stopped: out of bounds" in said.out and "2 launches." in said.out


def test_a_script_whose_library_is_missing_says_what_installs_it(
    lanewise: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("needs.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    said = lanewise("check", "--gpu", "H100", "needs.py")
    assert said.code == 2 and "-m pip install torch" in said.err and "0 launches" not in said.err
    Path("needs.py").write_text("import my_own_helpers\n")  # what pip would bring is another's
    assert "pip install" not in lanewise("run", "needs.py").err


def test_script_that_needs_a_gpu_is_given_one(lanewise: Callable[..., Any]) -> None:
    Path("needs.py").write_text("raise AssertionError('Torch not compiled with CUDA enabled')\n")
    said = lanewise("run", "needs.py")
    assert said.code == 2 and said.err.endswith("lanewise run --gpu H100 needs.py\n")
    assert "not there" not in lanewise("run", "--gpu", "H100", "needs.py").err


def test_script_that_exits(lanewise: Callable[..., Any]) -> None:
    Path("exit.py").write_text("import sys\nsys.exit(5)\n")
    assert lanewise("run", "exit.py").code == 5
    Path("exit.py").write_text("import sys\nsys.exit('no')\n")
    said = lanewise("run", "exit.py")
    assert said.code == 1 and said.err == "no\n"
    Path("exit.py").write_text("1 +\n")
    said = lanewise("run", "exit.py")
    assert said.code == 2 and "SyntaxError" in said.err and "runpy" not in said.err


def test_endless_loop_ends_by_its_steps(lanewise: Callable[..., Any]) -> None:
    said = lanewise("run", "many.ptx", "--entry", "spin", "--block", 32, "--steps", 10_000)
    assert said.code == 1 and "steps" in said.err


def test_bar_shows_blocks_done(lanewise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.cli.terminal.progress.PATIENCE", 0)
    for name in "xy":
        np.save(f"{name}.npy", np.ones(1000, np.float32))
    said = lanewise(*saxpy(1000, "--progress"))
    assert said.code == 0 and "4/4" in said.err and "blocks, about 0:00 left" in said.err
    assert lanewise(*saxpy(1000)).err == ""  # not a terminal


def interrupted(command: list[str], until: str) -> tuple[int, str]:
    """Ctrl-C once the program has written something: its exit status, and what it wrote."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        seen = ""
        while until not in seen:
            more = process.stderr.read(1)
            assert more, seen
            seen += more
        time.sleep(0.5)  # it is busy with what comes next; if not yet, then the signal finds less to end
        process.send_signal(signal.SIGINT)
        seen += process.communicate()[1]
        return process.returncode, seen


def test_ctrl_c_ends_a_run_that_never_ends() -> None:
    command = [sys.executable, "-m", "lanewise.cli", "run", "many.ptx", "--entry", "spin", "--block", "32"]
    code, err = interrupted([*command, "--progress"], until="0/1")
    assert code == 130 and err.endswith("lanewise: interrupted\n") and "Traceback" not in err


def test_ctrl_c_is_heard_while_a_compiler_works() -> None:
    """C code that does not come back to Python for a long while, as a compiler's."""
    code = """
import hashlib, sys
from lanewise.cli.terminal.interrupt import ends_soon
with ends_soon():
    print("now", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)  # half an hour
"""
    status, err = interrupted([sys.executable, "-c", code], until="now\n")
    assert (status, err) == (130, "now\nlanewise: interrupted\n")


def test_clusters(lanewise: Callable[..., Any]) -> None:
    text = SAXPY.replace(".target sm_80", ".target sm_90").replace("saxpy(", "size(").split("{")[0]
    body = (
        "{ .reg .b32 %r<2>; .reg .b64 %rd; ld.param.u64 %rd, [x]; mov.u32 %r0, %cluster_nctarank; "
        "st.global.u32 [%rd], %r0; ret; }"
    )
    Path("size.ptx").write_text(text + body)
    arguments = ["size.ptx", "--grid", "4", "--block", "32", "--arg", "1", "--arg", "zeros:u32:1"]
    arguments += ["--arg", "null", "--arg", "1", "--print", "1", "--json"]
    said = lanewise("run", *arguments, "--cluster", "2,2")
    assert said.code == 2 and "not a multiple of (2, 2, 1)" in said.err
    said = lanewise("run", *arguments, "--cluster", "4")
    assert said.code == 0 and json.loads(said.out)["arguments"]["1"]["values"] == [4]
