"""Bad input: one line on stderr that names what is wrong, exit code 2, never a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvrtc import need_nvrtc

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16"

BAD = [
    # command, what the complaint must name
    (["nonsense"], ["nonsense"]),
    (["script.py"], ["lanewise run script.py"]),
    (["version"], ["Did you mean --version?"]),
    (["trace", "script.py"], ["No such command 'trace'. `lanewise debug FILE` steps"]),
    (["profile", "script.py"], ["`lanewise check FILE --counters`"]),
    (["run", "kernel.cu", "-g", "1"], ["Did you mean --gpu or --grid?"]),
    (
        ["compute", "m16n8k16", "f16", "a.npy", "b.npy", "--arch", "sm_90"],
        ['lanewise compute "m16n8k16 f16"'],
    ),
    (["draw", "swizzle", "128B"], ["3,4,3 (128B of TMA)"]),
    (["--gpu", "H100", "check", "script.py"], ["Options stand after the command: `lanewise check --gpu"]),
    (["check", "--gpu", "script.py"], ["--gpu takes the name of a GPU: `--gpu H100 script.py`"]),
    (["run", "no/such/script.py"], ["there is no folder no/such; the working folder is"]),
    (["run", "script.ptx"], ["script.ptx: no such file; the working folder is"]),
    (["list", "--dtype", "f16"], ["Did you mean --a?"]),
    (["draw", "ldmatrx"], ["ldmatrx", "ldmatrix"]),
    (["draw", "swizle", "3,4,3"], ["swizle", "swizzle"]),
    (["explain"], ["Write `lanewise explain INSTRUCTION...`"]),
    (["explain", MMA, "--foo"], ["--foo"]),
    (["explain", MMA, "extra"], ["takes 4 operands"]),
    (["explain", "m16n8k16", "extra"], ["'extra' is not known"]),
    (["explain", ""], ["''", "mma.sync.aligned"]),
    (["explain", "hello"], ["hello", "wgmma.mma_async"]),
    (["explain", MMA.replace("k16", "k24")], ["m16n8k24", "m16n8k8", MMA]),
    (["explain", MMA, "--arch", "sm_75"], ["sm_75", "sm_80 and later"]),
    (["explain", MMA, "--arch", "gfx90a"], ["gfx90a", "sm_90a"]),
    (["explain", MMA, "--lane", "32"], ["lane 32", "0 to 31"]),
    (["explain", MMA, "--lane", "-1"], ["lane -1", "0 to 31"]),
    (["explain", MMA, "--lane", "five"], ["--lane", "integer"]),
    (["explain", MMA, "--lane", "1e3"], ["--lane", "integer"]),
    (["explain", MMA, "--element", "A", "3"], ["Write `--element OPERAND ROW COL`"]),
    (["explain", MMA, "--element", "A", "3", "x"], ["--element", "integer"]),
    (["explain", MMA, "--element", "A", "16", "0"], ["row 16", "0 to 15"]),
    (["explain", MMA, "--element", "B", "0", "8"], ["column 8", "0 to 7"]),
    (["explain", MMA, "--element", "Q", "0", "0"], ["Q", "A, B, C, D"]),
    (["explain", MMA, "--element", "E", "0", "0"], ["E", "A, B, C, D"]),
    (["explain", MMA, "--element", "scale-a", "0", "0"], ["scale-a", "A, B, C, D"]),
    (["explain", MMA, "--register", "B", "5", "2"], ["register 2", "0 to 1"]),
    (["explain", MMA, "--register", "B", "5", "-1"], ["register -1", "0 to 1"]),
    (["explain", MMA, "--register", "B", "99", "0"], ["lane 99", "0 to 31"]),
    (["explain", MMA, "--register", "B", "99", "9"], ["lane 99", "0 to 31"]),
    (["explain", MMA, "--product", "1", "--lane", "3"], ["product 1"]),
    (["explain", MMA, "--product", "1"], ["--product", "--lane"]),
    (["explain", MMA, "--operand", "B", "--by-lane", "--product", "1"], ["product 1"]),
    (["explain", MMA, "--lane", "3", "--element", "A", "0", "0"], ["--lane and --element"]),
    (["explain", MMA, "--operand", "B", "--element", "A", "0", "0"], ["--operand B"]),
    (["explain", MMA, "--by-lane"], ["--by-lane", "--operand"]),
    (["explain", MMA, "--transpose", "--lane", "1"], ["--transpose", "--operand"]),
    (["explain", MMA, "--inputs"], ["--inputs", "element of D"]),
    (["explain", MMA, "--inputs", "--element", "A", "0", "0"], ["--inputs", "element of D"]),
    (["explain", MMA, "--json", "--csv"], ["--json and --csv"]),
    (["explain", MMA, "--a-source", "registers"], ["a_source", "wgmma"]),
    (
        ["explain", MMA, "--svg", "/no/such/folder/a.svg"],
        ["/no/such/folder/a.svg", "there is no folder /no/such/folder"],
    ),
    (["explain", MMA, "--svg", "a.png"], ["--svg a.png", ".png, not in .svg", "lanewise draw"]),
    (["explain", MMA, "--latex", "a.svg"], ["--latex a.svg", ".svg, not in .tex"]),
    (["explain", "0x4000004000000040", "--svg", "a.png"], ["--svg a.png"]),
    (["check", "kernel.cu", "--json", "--format", "sarif"], ["--json and --format sarif exclude each other"]),
    (["check", "kernel.cu", "--json", "--format", "github"], ["--json and --format github"]),
    (["run", "kernel.cu", "--arch", ""], ["unknown arch ''", "sm_80"]),
    (["run", "script.py", "--arch", " "], ["unknown arch ' '", "sm_80"]),
    (["ptx", "kernel.cu", "--arch", ""], ["unknown arch ''", "sm_80"]),
    (["explain", WGMMA, "--a-source", "moon"], ["moon", "registers"]),
    (["explain", WGMMA, "--element", "B", "0", "0"], ["B", "shared memory"]),
    (["explain", WGMMA, "--operand", "B"], ["B", "shared memory"]),
    (["explain", WGMMA, "--operand", "B", "--by-lane"], ["B", "shared memory"]),
    (["explain", WGMMA, "--register", "B", "0", "0"], ["B", "shared memory"]),
    (["explain", WGMMA, "--lane", "128"], ["lane 128", "0 to 127"]),
    (["plan", "4096x4096"], ["Write `lanewise plan M N K`."]),
    (["plan", "64x64x128"], ["Write `lanewise plan 64 64 128`."]),
    (["plan", "64", "64", "64", "--a", "f16"], ["Did you mean --dtype?"]),
    (["cache", "clean"], ["'clean' is not one of", "Did you mean clear?"]),
    (["check", "kernel.cu", "--format", "jsn"], ["Did you mean json?"]),
    (["doctor", "now"], ["unexpected extra argument", "Write `lanewise doctor`."]),
    (["draw", "swizzle", "3", "3"], ["Write `lanewise draw swizzle SWIZZLE`."]),
    (["explain", MMA, "--lane"], ["Write `--lane LANE`."]),
    (["draw", "kernel.cu"], ["A file with kernels is run, checked or debugged: `lanewise check kernel.cu`."]),
    (["explain", "SM80_16x8x16"], ["nearest are SM80_16x8x16_"]),
    (["draw", "atom", "SM80_16x8"], ["nearest are SM80_16x8x"]),
    (["explore", "mma"], ["mma: no such file", "has instructions without a file"]),
    (["run", "."], [".: a folder, not a file"]),
    (["check", "script.py", "--arch", "sm_20"], ["unknown arch 'sm_20'"]),
    (["compute", MMA, "a.npy", "b.npy", "--arch", "sm_80", "-o", "d.csv"], ["d.csv", "name the file d.npy"]),
    (["compute", MMA, "a.npy", "b.npy", "--arch", "sm_80", "--save", "d.npy"], ["Did you mean -o?"]),
    (["plan", "4096"], ["Missing argument", "Write `lanewise plan M N K`."]),
    (["check", "kernel.cu", "--kernel", "mm"], ["No such option", "--kernel", "Did you mean --entry?"]),
    (["run", "kernel.cu", "--kernel", "mm"], ["No such option", "--kernel", "Did you mean --entry?"]),
    (["run", "kernel.cu", "--blok", "32"], ["--block"]),
    (["check", "mine.ipynb"], ["mine.ipynb is a notebook", "lw.check(kernel[grid, block], …)"]),
    (
        ["plan", "100000000000", "100000000000", "100000000000"],
        ["A takes 1.73e+04 EiB, more than any GPU has"],
    ),
    (["plan", "1", "100000000000", "99", "--dtype", "bf16"], ["B takes 18 TiB"]),
    (["list", "--target", "sm_90"], ["Did you mean --arch?"]),
    (["list", "--arch", "sm_71"], ["sm_71", "sm_70"]),
    (["list", "--family", "mmx"], ["mmx", "wmma.load"]),
    (["list", "--a", "f7"], ["f7", "bf16"]),
    (["list", "--shape", "16by8"], ["16by8", "m16n8k16"]),
    (["list", "--kind", "mx"], ["mx", "mxf4"]),
    (["list", "--json", "--markdown"], ["--json and --markdown"]),
    (["draw"], ["Missing command", "The commands are layout, atom"]),
    (["draw", "layout", ""], ["shape:stride"]),
    (["draw", "layout", "(8,"], ["(8,", "the end"]),
    (["draw", "layout", "(8,8):(8"], [")", "the end"]),
    (["draw", "layout", "8:9:7"], [":7"]),
    (["draw", "layout", "(8,8)x"], ["x"]),
    (["draw", "layout", "(8,8.5)"], ["8.5"]),
    (["draw", "layout", "(0,3)"], ["0", "at least 1"]),
    (["draw", "layout", "(8,8):8"], ["8", "nested"]),
    (["draw", "layout", "(" * 5000], ["deep"]),
    (["draw", "layout", "9" * 50], ["9" * 50]),
    (["draw", "layout", "(100000,100000)"], ["100000"]),
    (["draw", "layout", "a o b"], ["swizzle"]),
    (["draw", "layout", "Sw<2,0,2> o 1,2 o (4,4)"], ["1,2"]),
    (["draw", "layout", "(8,8)", "--tv", "2,2"], ["2×2"]),
    (["draw", "layout", "(8,8)", "--tv", "8"], ["(8,)"]),
    (["draw", "layout", "(8,8)", "--tv", "a,b"], ["a,b"]),
    (["draw", "layout", "(8,8)", "-o", "picture.jpg"], ["picture.jpg", ".svg"]),
    (
        ["draw", "layout", "(8,8)", "-o", "/no/such/folder/a.svg"],
        ["a.svg cannot be written: there is no folder /no/such/folder"],
    ),
    (["draw", "swizzle", "3,4"], ["3,4"]),
    (["draw", "swizzle", "3,4,1"], ["3,4,1"]),
    (["draw", "swizzle", "3,4,3", "--bits", "24"], ["3"]),
    (["draw", "swizzle", "3,4,3", "--bits", "0"], ["0 bits"]),
    (["draw", "swizzle", "99,99,99"], ["256"]),
    (["draw", "banks", "(8,8)", "--bits", "7"], ["7"]),
    (["draw", "instruction", MMA, "--operand", "Z"], ["Z", "A, B, C, D"]),
    (["draw", "instruction", MMA, "--element", "Z", "0", "0"], ["Z", "A, B, C, D"]),
    (["draw", "instruction", MMA, "--colour", "pink"], ["pink", "thread"]),
    (["draw", "atom", "SM80_NOTHING"], ["SM80_NOTHING"]),
    (["draw", "tiled-mma", "SM80_16x8x16_F32F16F16F32_TN", "--atom-layout", "2,x,1"], ["2,x,1"]),
    (["draw", "tiled-mma", "SM80_16x8x16_F32F16F16F32_TN", "--permutation", "32"], ["32", "M, N and K"]),
    (["draw", "tiled-mma", "SM80_16x8x16_F32F16F16F32_TN", "--atom-layout", "9999999,1"], ["9999999 atoms"]),
    (["draw", "tiled-mma", "SM80_16x8x16_F32F16F16F32_TN", "--permutation", "9999,9,9"], ["9999 places"]),
    (["draw", "tiled-mma", "SM75_U32x4_LDSM_N"], ["SM75_U32x4_LDSM_N"]),
    (["draw", "tiled-copy", "SM75_U32x4_LDSM_N"], ["--threads"]),
    (["draw", "tiled-copy", "SM75_U32x4_LDSM_N", "--threads", "(7,2)"], ["32 threads"]),
    (["draw", "tiled-copy", "SM75_U32x4_LDSM_N", "--threads", "9999999"], ["9999999 threads"]),
    (["draw", "tiled-copy", "SM75_U32x4_LDSM_N", "--threads", "32", "--type", "f99"], ["f99"]),
    (
        ["draw", "tiled-copy", "SM80_16x8x16_F32F16F16F32_TN", "--threads", "32"],
        ["SM80_16x8x16_F32F16F16F32_TN"],
    ),
    (["explain", "SM80_CP_ASYNC_CACHEALWAYS", "--lane", "0"], ["plain copy"]),
    (["list", "dense", "sparse"], ["sparse and dense exclude each other"]),
    (["list", "--sparse", "--dense"], ["sparse and dense exclude each other"]),
    (["list", "--dense", "Sparse"], ["sparse and dense exclude each other"]),
    (["explain", "sm80_nothing"], ["sm80_nothing", "operation"]),
    (["explain", "SM80_16x8x16_F32F16F16F32_TN", "--arch", "sm_75"], ["sm_75", "sm_80"]),
    (["explain", "SM80_16x8x16_F32F16F16F32_TN", "--a-source", "registers"], ["--a-source"]),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=lambda value: " ".join(value)[:60])
def test_complaint(lanewise: Callable[..., Any], arguments: list[Any], named: list[Any]) -> None:
    said = lanewise(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("lanewise: ") and said.err.count("\n") == 1
    assert "Traceback" not in said.err and "defect" not in said.err
    for words in named:
        assert words in said.err


def test_a_mistake_in_ptx_names_the_file(lanewise: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "wrong.ptx"
    path.write_text(".version 9.0\n.target sm_80\n.entry k() { add.s32 %r1, %r2 5; }")
    for command in (["run", path, "--block", 32], ["check", path, "--block", 32], ["ptx", path]):
        said = lanewise(*command)
        assert said.code == 2
        assert said.err.startswith(f"lanewise: {path}: line 3, column 31: found '5'")


@pytest.mark.parametrize(
    ("target", "line", "says"),
    [
        ("sm_90", "ld.param.u64 %rd1, [q];", "'ld.param.u64 %rd1, [q];': q is not declared"),
        ("sm_70", f"{MMA} {{%r1,%r2,%r3,%r4}},{{%r1,%r2,%r3,%r4}},{{%r1,%r2}},{{%r1,%r2,%r3,%r4}};", MMA),
    ],
)
def test_an_instruction_of_ptx_is_named_with_file_and_line(
    lanewise: Callable[..., Any], tmp_path: Path, target: str, line: str, says: str
) -> None:
    path = tmp_path / "wrong.ptx"
    body = f".reg .u64 %rd<2>; .reg .b32 %r<9>;\n{line}\nret;"
    path.write_text(f".version 8.0\n.target {target}\n.address_size 64\n.entry k(.param .u64 p) {{ {body} }}")
    for command in ("run", "check", "debug"):
        said = lanewise(command, path, "--block", 32, "--arg", "zeros:f32:32")
        assert said.code == 2
        assert said.err.startswith(f"lanewise: {path}: line 5: {says}")


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x7f", b"int host() { return 1; }"])
def test_a_file_without_a_kernel_is_told_so(
    lanewise: Callable[..., Any], tmp_path: Path, content: bytes
) -> None:
    need_nvrtc()
    path = tmp_path / "nothing.cu"
    path.write_bytes(content)
    for command in (["run", path, "--block", 32], ["check", path, "--block", 32], ["ptx", path]):
        said = lanewise(*command)
        assert (said.code, said.out) == (2, "")
        assert f"{path} has no kernel" in said.err


def test_usage_points_to_the_help_of_the_command(lanewise: Callable[..., Any]) -> None:
    assert "lanewise explain --help" in lanewise("explain", MMA, "--foo").err
    assert "lanewise explain --help" in lanewise("explain", MMA, "--element", "A[3][9]").err


def test_a_word_that_is_no_choice_is_refused_in_a_sentence(lanewise: Callable[..., Any]) -> None:
    said = lanewise("check", "kernel.cu", "--format", "xml").err
    assert "'xml' is not one of 'text', 'json', 'sarif', 'github'" in said
    assert "Value error" not in said


def test_a_defect_is_called_one(lanewise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.cli.commands.listing.instructions", lambda *_, **__: 1 / 0)
    said = lanewise("list")
    assert said.code == 1 and said.err.count("\n") == 1
    assert "defect of lanewise" in said.err and "ZeroDivisionError" in said.err
    monkeypatch.setenv("LANEWISE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        lanewise("list")


def test_running_out_of_memory_is_said(lanewise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("lanewise.cli.commands.listing.instructions", exhausted)
    said = lanewise("list")
    assert said.code == 2 and "memory" in said.err


@pytest.mark.parametrize("command", [["explain", "m16n8k16 bf16"], ["list"], ["plan", "64", "64", "64"]])
def test_a_gpu_whose_name_was_not_quoted(lanewise: Callable[..., Any], command: list[str]) -> None:
    said = lanewise(*command, "--arch", "RTX", "4090")
    assert said.code == 2 and 'in quotes: --arch "RTX 4090".' in said.err


def test_help_is_a_command_as_in_git(lanewise: Callable[..., Any]) -> None:
    assert lanewise("help").out == lanewise("--help").out
    assert lanewise("help", "check").out == lanewise("check", "--help").out
