"""Other people's kernels for Blackwell, unchanged, on a virtual B200: which are right by their own word.

    python benchmarks/blackwell_kernels.py --cutlass cutlass/ --built programs/ --deepgemm deep_gemm.ptx \\
        --dsl VENV/bin/python --triton VENV/bin/python --gluon VENV/bin/python triton/ tests.txt \\
        --jobs 8 --save record.json

Every project is a folder, or the Python of an environment in which it is installed; those not given are left
out. `--cutlass` takes a copy of CUTLASS, for CuTe's tutorials and the examples in CUDA C++ (`--built` has
them as shared libraries, else nvcc builds each), and for CuTe DSL's examples under `--dsl`; `--gluon` a
Python with Triton, a copy of its sources and a file with names of Gluon's tests. Programs of `--save FILE`
that ran before are kept unless they are run again; each has the commit on which it ran.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from limited_process import run_limited

HERE = Path(__file__).parent
GPU = ["--gpu", "B200"]
LIBRARY = HERE.parent / "src"
IMAGE = ["--n=1", "--d=2", "--h=8", "--w=8", "--iterations=0"]
VERIFY = ["--verify", "--iterations=0", "--warmup_iterations=1"]
HEADS = ["--b=1", "--h=1", "--k=256", *VERIFY]
ATTENTION = ["-DFP16", "--use_fast_math"]
PROBLEMS = f"--benchmark={HERE / 'kernels/blackwell/moe_problems.txt'}"
NO_WARMUP = ["--groups=2", "--warmup=0"]
SMALL = ["--m=256", "--n=256", "--k=256", "--iterations=0"]
#: CuTe's tutorials and CUTLASS's examples: the file, its arguments, options of nvcc. A program that is built
#: with -DCPASYNC has a name that says so.
EXAMPLES: list[tuple[str, list[str], list[str]]] = [
    ("cute/tutorial/blackwell/01_mma_sm100.cu", ["256", "512", "128"], []),
    ("cute/tutorial/blackwell/02_mma_tma_sm100.cu", ["256", "512", "128"], []),
    ("cute/tutorial/blackwell/03_mma_tma_multicast_sm100.cu", [], []),
    ("cute/tutorial/blackwell/04_mma_tma_2sm_sm100.cu", [], []),
    ("cute/tutorial/blackwell/05_mma_tma_epi_sm100.cu", [], []),
    ("70_blackwell_gemm/70_blackwell_fp16_gemm.cu", SMALL, []),
    ("70_blackwell_gemm/70_blackwell_fp8_gemm.cu", SMALL, []),
    ("71_blackwell_gemm_with_collective_builder/71_blackwell_gemm_with_collective_builder.cu", SMALL, []),
    ("72_blackwell_narrow_precision_gemm/72a_blackwell_nvfp4_bf16_gemm.cu", SMALL, []),
    ("72_blackwell_narrow_precision_gemm/72b_blackwell_nvfp4_nvfp4_gemm.cu", SMALL, []),
    ("72_blackwell_narrow_precision_gemm/72c_blackwell_mixed_mxfp8_bf16_gemm.cu", SMALL, []),
    ("73_blackwell_gemm_preferred_cluster/blackwell_gemm_preferred_cluster.cu", SMALL, []),
    ("74_blackwell_gemm_streamk/blackwell_gemm_streamk.cu", SMALL, []),
    ("75_blackwell_grouped_gemm/75_blackwell_grouped_gemm.cu", [*SMALL, "--groups=2"], []),
    ("75_blackwell_grouped_gemm/75_blackwell_grouped_gemm_block_scaled.cu", [*SMALL, "--groups=2"], []),
    ("76_blackwell_conv/76_blackwell_conv_fprop.cu", IMAGE, []),
    ("76_blackwell_conv/76_blackwell_conv_dgrad.cu", IMAGE, []),
    ("76_blackwell_conv/76_blackwell_conv_wgrad.cu", IMAGE, []),
    ("77_blackwell_fmha/77_blackwell_fmha.cu", [*HEADS, "--q=256", "--d=64"], ATTENTION),
    ("77_blackwell_fmha/77_blackwell_fmha_gen.cu", [*HEADS, "--d=128", "--iterations=1"], ATTENTION),
    ("77_blackwell_fmha/77_blackwell_fmha_bwd.cu", [*HEADS, "--q=256", "--d=64"], ATTENTION),
    ("77_blackwell_fmha/77_blackwell_fmha_2bwd.cu", [*HEADS, "--q=256", "--d=64"], ATTENTION),
    ("77_blackwell_fmha/77_blackwell_mla.cu", ["--b=1", "--k=256", "--page=128", *VERIFY], ATTENTION),
    ("77_blackwell_fmha/77_blackwell_mla.cu", ["--b=1", "--k=256", "--page=128", *VERIFY], [
        *ATTENTION, "-DCPASYNC"]),
    ("77_blackwell_fmha/77_blackwell_mla_fwd.cu", [*HEADS, "--q=256"], ATTENTION),
    ("78_blackwell_emulated_bf16x9_gemm/78_blackwell_emulated_bf16x9_gemm.cu", SMALL, []),
    ("79_blackwell_geforce_gemm/79a_blackwell_geforce_nvfp4_bf16_gemm.cu", SMALL, []),
    ("79_blackwell_geforce_gemm/79b_blackwell_geforce_nvfp4_nvfp4_gemm.cu", SMALL, []),
    ("79_blackwell_geforce_gemm/79c_blackwell_geforce_mixed_mxfp8_mxfp6_bf16_gemm.cu", SMALL, []),
    ("79_blackwell_geforce_gemm/79d_blackwell_geforce_nvfp4_grouped_gemm.cu", [*SMALL, "--groups=2"], []),
    ("81_blackwell_gemm_blockwise/81_blackwell_gemm_blockwise.cu", SMALL, []),
    ("81_blackwell_gemm_blockwise/81_blackwell_gemm_groupwise.cu", SMALL, []),
    ("81_blackwell_gemm_blockwise/81_blackwell_grouped_gemm_blockwise.cu", [*SMALL, "--groups=2"], []),
    ("81_blackwell_gemm_blockwise/81_blackwell_grouped_gemm_groupwise.cu", [*SMALL, "--groups=2"], []),
    ("83_blackwell_sparse_gemm/83_blackwell_sparse_gemm.cu", SMALL, []),
    ("84_blackwell_narrow_precision_sparse_gemm/84a_blackwell_nvfp4_bf16_sparse_gemm.cu", SMALL, []),
    ("84_blackwell_narrow_precision_sparse_gemm/84b_blackwell_mixed_mxfp8_bf16_sparse_gemm.cu", SMALL, []),
    ("86_blackwell_mixed_dtype_gemm/86_blackwell_mixed_dtype.cu", [*SMALL, "--verify"], [
        f"-include={HERE / 'kernels/blackwell/newer_minor_version.h'}"]),
    # With assertions it stops (docs/found.md); CUTLASS builds it without them.
    ("89_sm103_fp4_ultra_gemm/89_sm103_fp4_ultra_gemm.cu", [*SMALL[:2], "--k=768", "--iterations=0"], [
        "-DNDEBUG"]),
    # It is wrong where K is no multiple of 1024 (docs/found.md).
    ("91_fp4_gemv/91_fp4_gemv.cu", ["--m=256", "--k=1024", "--iterations=0", "--profiling=false"], []),
    ("92_blackwell_moe_gemm/92_blackwell_moe_gemm_regular.cu", [*SMALL, "--l=2"], []),
    ("92_blackwell_moe_gemm/92_blackwell_moe_gemm_grouped.cu", [*SMALL, PROBLEMS], []),
    ("92_blackwell_moe_gemm/92_blackwell_moe_gemm_rcgrouped.cu", [*SMALL, *NO_WARMUP], []),
    ("92_blackwell_moe_gemm/92_blackwell_moe_gemm_fp4_regular.cu", [*SMALL, "--l=2"], []),
    ("92_blackwell_moe_gemm/92_blackwell_moe_gemm_fp4_grouped.cu", [*SMALL, PROBLEMS], []),
    ("92_blackwell_moe_gemm/92_blackwell_moe_gemm_blockscaled_rcgrouped.cu", [*SMALL, *NO_WARMUP], []),
]  # fmt: skip
TILES = ["--mma_tiler_mn", "128,128", "--cluster_shape_mn", "1,1"]
PAIRS = ["--mma_tiler_mn", "256,128", "--cluster_shape_mn", "2,1", "--use_2cta_instrs"]
ONCE = ["--warmup_iterations", "0", "--iterations", "1"]
#: CuTe DSL's examples: the file below `cute/blackwell`, a word for the case, its arguments.
DSL_EXAMPLES: list[tuple[str, str, list[str]]] = [
    *((f"tutorial/tutorial_gemm/fp16_gemm_{name}.py", "", ["--mnk", size]) for name, size in (
        ("0", "128,256,128"), ("1", "256,256,128"), ("2", "256,256,128"), ("3", "256,256,128"),
        ("3_1", "256,256,128"), ("4", "256,256,128"), ("5", "256,256,128"), ("6", "256,256,128"),
    )),
    ("tutorial/tutorial_gemm/nvfp4_gemm_0.py", "", ["--mnkl", "128,256,256,1"]),
    ("tutorial/tutorial_gemm/nvfp4_gemm_1.py", "", ["--mnkl", "256,256,256,1"]),
    *((f"tutorial/tutorial_tma/tma_v{number}.py", "", []) for number in range(3)),
    ("kernel/dense_gemm/dense_gemm.py", "one block", ["--mnkl", "256,256,128,1", *TILES, *ONCE]),
    ("kernel/dense_gemm/dense_gemm.py", "pair", ["--mnkl", "256,256,128,1", *PAIRS, *ONCE]),
    ("kernel/dense_gemm/dense_gemm_persistent.py", "one block", ["--mnkl", "256,256,128,1", *TILES, *ONCE]),
    ("kernel/dense_gemm/dense_gemm_persistent.py", "pair", ["--mnkl", "256,256,128,1", *PAIRS, *ONCE]),
    ("kernel/dense_gemm/dense_gemm_persistent_dynamic.py", "", ["--mnkl", "256,256,128,1", *TILES, *ONCE]),
    ("kernel/dense_gemm/dense_gemm_software_pipeline.py", "", ["--mnkl", "256,256,128,1", *TILES, *ONCE]),
    ("kernel/dense_gemm/dense_gemm_alpha_beta_persistent.py", "", ["--mnkl", "256,256,128,1", *TILES, *ONCE]),
    ("kernel/blockscaled_gemm/dense_blockscaled_gemm_persistent.py", "", [
        "--mnkl", "256,256,256,1", *TILES, *ONCE]),
    ("kernel/grouped_gemm/grouped_gemm.py", "", [
        "--num_groups", "2", "--problem_sizes_mnkl", "(256,256,128,1),(128,256,64,1)",
        "--mma_tiler_mn", "128,64", "--cluster_shape_mn", "1,1", *ONCE]),
    ("kernel/mixed_input_gemm/mixed_input_gemm.py", "", ["--mnkl", "256,256,256,1", *ONCE]),
    ("kernel/blockwise_gemm/blockwise_gemm.py", "", ["--mnkl", "256,256,256,1", *ONCE]),
    ("kernel/attention/fmha/fmha.py", "", [
        "--q_shape", "1,256,1,64", "--k_shape", "1,256,1,64", "--mma_tiler_mn", "128,128", *ONCE]),
    ("kernel/reduce/reduce.py", "", []),
    ("kernel/rmsnorm/rmsnorm.py", "", ["--M", "64", "--N", "1024"]),
]  # fmt: skip
#: Kernels that a check of CUTLASS's programs looks at, by name; those of cutlass::reference::device
#: run plainly.
CHECKED = ("device_kernel", "gemm_device", "*Gemv*")
#: What a program says of itself.
PASSED = re.compile(
    r"\bpass(ed)?\b|execution is successful|relative error: 0\.0|status: success|\[OK *\]", re.I
)
FAILED = re.compile(r"\bfail(ed)?\b|disposition: failed|execution is not successful|mismatch", re.I)
#: Lines that say why a program stopped, the most telling first.
REASONS = ("lanewise gpu:", "cannot run", "Unsupported", "KernelFault", "Error", "error", "lanewise:")
#: What records of runs and of checks say of themselves.
ABOUT_RUNS = {
    "what": "kernels for Blackwell, unchanged, under lanewise run --gpu B200 on a machine without a GPU",
    "verdicts": {
        "right": "exit status 0 and its own comparison, or float64, agrees",
        "wrong": "its own comparison, or float64, disagrees",
        "silent": "exit status 0, and no word of a comparison",
        "stopped": "it did not run to its end; why_not says what stopped it",
        "time": "the time limit stopped it",
    },
}
ABOUT_CHECKS = {
    "what": "kernels for Blackwell under lanewise check --gpu B200 --schedule …, one row for each schedule",
    "verdicts": {
        "right": "the check reports no error, in any schedule that one process tried",
        "wrong": "the check reports errors; why_not quotes them",
        "stopped": "it did not run to its end; why_not says what stopped it",
        "time": "the time limit stopped it",
    },
}
#: Tests of Gluon that one process runs.
TOGETHER = 8


@dataclass
class Outcome:
    """What became of a program: "right", "wrong", "silent", "stopped" (with the reason) or "time"."""

    project: str
    program: str
    verdict: str
    why_not: str = ""
    seconds: float = 0
    arguments: list[str] = field(default_factory=list)
    commit: str = ""


@dataclass(frozen=True)
class Program:
    """A program of a project and the command that runs it."""

    project: str
    name: str
    command: list[str]
    folder: Path
    arguments: list[str] = field(default_factory=list)
    #: Names of the kernels that a check looks at; all without any.
    kernels: tuple[str, ...] = ()


#: Something to run, which gives the outcomes of one program or of several.
Job = Callable[[], list[Outcome]]


def ended(words: list[str], folder: Path, seconds: float) -> tuple[int | None, str]:
    """Run a command; return its exit status, None if its time was over, and what it printed."""
    further = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(LIBRARY), *further])}
    result: tuple[int | None, str] = run_limited(words, folder, seconds, environment)
    return result


def reason(output: str) -> str:
    """Return the line of an output that says why a program stopped."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for word in REASONS:
        for line in lines:
            if word in line:
                return line[:300]
    return lines[-1][:300] if lines else "it printed nothing"


def note(outputs: Path | None, program: str, output: str) -> None:
    """Write what a program printed to a folder of outputs; its lines may be very long."""
    if outputs is not None:
        lines = (line[:400] for line in output.splitlines())
        name = re.sub(r"\W+", "_", program)
        (outputs / f"{name}.txt").write_text("\n".join(lines) + "\n")


def outcome(program: Program, seconds: float, outputs: Path | None) -> list[Outcome]:
    """Run a program and judge it by its exit status and by what it says."""
    begin = time.perf_counter()
    status, output = ended(program.command, program.folder, seconds)
    note(outputs, program.name, output)
    verdict, why = "right", ""
    if status is None:
        verdict, why = "time", f"not ended after {seconds:.0f} s"
    elif FAILED.search(output) and not status:
        verdict, why = "wrong", next(line.strip() for line in output.splitlines() if FAILED.search(line))
    elif status:
        verdict, why = "stopped", reason(output)
    elif not PASSED.search(output):
        verdict, why = "silent", "exit status 0; it prints no verdict"
    duration = round(time.perf_counter() - begin, 1)
    return [Outcome(program.project, program.name, verdict, why[:300], duration, program.arguments)]


def checked(program: Program, schedules: list[str], seconds: float, outputs: Path | None) -> list[Outcome]:
    """Check the kernels of a program, a row for each schedule; "right" means that no error was reported.

    All schedules are tried in one process, and each by itself if it reports an error.
    """
    together = checked_in(program, schedules, seconds, outputs)
    if together.verdict in ("wrong", "stopped") and len(schedules) > 1:
        return [checked_in(program, [schedule], seconds, outputs) for schedule in schedules]
    part = round(together.seconds / len(schedules), 1)
    return [replace(together, program=f"{program.name}, {schedule}", seconds=part) for schedule in schedules]


def checked_in(program: Program, schedules: list[str], seconds: float, outputs: Path | None) -> Outcome:
    """Check the kernels of a program in one process."""
    begin = time.perf_counter()
    named = f"{program.name}, {', '.join(schedules)}"
    at = program.command.index("run")
    options = [word for name in program.kernels for word in ("--only", name)]
    options += [word for schedule in schedules for word in ("--schedule", schedule)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = ["check", "--save", str(report), *options]
        command = [*program.command[:at], *words, *program.command[at + 1 :]]
        status, output = ended(command, program.folder, seconds)
        reports = json.loads(report.read_text()) if report.is_file() else []
    note(outputs, named, output)
    errors = [f for launch in reports for f in launch["findings"] if f["severity"] == "error"]
    verdict, why = "right", ""
    if status is None:
        verdict, why = "time", f"not ended after {seconds:.0f} s"
    elif errors:
        verdict = "wrong"
        why = "; ".join(dict.fromkeys(f"{each['kind']}: {each['message']}" for each in errors))
    elif status or not reports:
        verdict, why = "stopped", reason(output)
    duration = round(time.perf_counter() - begin, 1)
    return Outcome(program.project, named, verdict, why[:300], duration, program.arguments)


def of_cutlass(folder: Path, includes: list[str], built: Path | None) -> Iterator[Program]:
    """Yield CuTe's tutorials and CUTLASS's examples in CUDA C++; `built` has what was built before."""
    examples = folder / "examples"
    folders = [f"-I{folder}/include", f"-I{folder}/tools/util/include", f"-I{examples}/common"]
    options = [*folders, "--expt-relaxed-constexpr", "-w", *includes]
    for name, arguments, extra in EXAMPLES:
        file = examples / name
        title = file.stem + ("_cpasync" if "-DCPASYNC" in extra else "")
        flags = [f"--option={flag}" for flag in (*options, f"-I{file.parent}", *extra)]
        program = [*flags, str(file)]
        if built is not None:
            program = [str(built / f"{title}.so")]
            if not Path(program[0]).is_file():
                continue
        gpu = GPU
        for word, other in (("geforce", "RTX 5090"), ("sm103", "B300")):
            gpu = ["--gpu", other] if word in name else gpu
        command = [sys.executable, "-m", "lanewise", "run", *gpu, *program, "--", *arguments]
        said = [word.replace(f"{HERE}/", "") for word in arguments]
        yield Program("CuTe" if "cute" in name else "CUTLASS", title, command, file.parent, said, CHECKED)


def of_dsl(python: str, folder: Path) -> Iterator[Program]:
    """Yield CuTe DSL's examples."""
    examples = folder / "examples/python/CuTeDSL/cute/blackwell"
    project = f"CuTe DSL {version_of(python, 'cutlass')}"
    for name, case, arguments in DSL_EXAMPLES:
        file = examples / name
        command = [python, "-m", "lanewise", "run", *GPU, str(file), "--", *arguments]
        title = f"{file.stem}, {case}" if case else file.stem
        yield Program(project, title, command, file.parent, arguments)


def version_of(python: str, module: str) -> str:
    """Return the version of a module in the environment of a Python."""
    words = [python, "-c", f"import {module}; print({module}.__version__)"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1]


def of_cases(
    project: str, python: str, file: Path, options: list[str], given: list[str]
) -> Iterator[Program]:
    """Yield the kernels of one of our programs by themselves, as its table CASES has them."""
    command = [python, "-c", f"import {file.stem}; print(*{file.stem}.CASES, sep='\\n')"]
    paths = os.pathsep.join((str(LIBRARY), os.environ.get("PYTHONPATH", "")))
    environment = os.environ | {"PYTHONPATH": paths}
    said = subprocess.run(command, cwd=file.parent, env=environment, stdout=subprocess.PIPE, check=True)
    names = said.stdout.decode().splitlines()
    for name in names:
        words = [python, "-m", "lanewise", "run", *options, str(file), "--", *given, name]
        yield Program(project, name, words, HERE)


@dataclass(frozen=True)
class GluonTests:
    """Tests of Gluon: a Python that has Triton, the folder of the tests, and how long a process may run."""

    python: str
    folder: Path
    seconds: float

    def __post_init__(self) -> None:
        assert (self.folder / "python/test/gluon").is_dir(), f"{self.folder} has no tests of Gluon"

    @property
    def project(self) -> str:
        return f"Gluon, Triton {version_of(self.python, 'triton')}"

    def run(self, nodes: list[str], schedules: list[str]) -> list[Outcome]:
        """Run some tests in one process; with schedules, check every launch in each of them."""
        options = (
            ["--lanewise-check", *(f"--lanewise-schedule={name}" for name in schedules)] if schedules else []
        )
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "record.xml"
            words = [
                "-q",
                "--tb=short",
                "-o",
                "junit_family=xunit1",
                f"--junit-xml={record}",
                *options,
                *nodes,
            ]
            command = [self.python, "-m", "pytest", "-p", "lanewise.pytest", *GPU, *words]
            ended(command, self.folder / "python/test/gluon", self.seconds)
            tests = ElementTree.parse(record).iter("testcase") if record.is_file() else ()
            said = {str(test.get("name")): test for test in tests}
        duration = round((time.perf_counter() - begin) / len(nodes) / max(1, len(schedules)), 1)
        rows = []
        for node in nodes:
            name = node.partition("::")[2]
            verdict, why = of_test(said.get(name), bool(schedules))
            for title in [f"{name}, {schedule}" for schedule in schedules] or [name]:
                rows.append(Outcome(self.project, title, verdict, why[:300], duration))
        return rows

    def check(self, nodes: list[str], schedules: list[str]) -> list[Outcome]:
        """Check every launch of some tests; those with errors once more in each schedule by itself."""
        rows = {row.program: row for row in self.run(nodes, schedules)}
        again = [
            node for node in nodes if rows[f"{node.partition('::')[2]}, {schedules[0]}"].verdict == "wrong"
        ]
        if again and len(schedules) > 1:
            for schedule in schedules:
                rows |= {row.program: row for row in self.run(again, [schedule])}
        return list(rows.values())


def of_test(test: ElementTree.Element | None, checks: bool) -> tuple[str, str]:
    """Return the verdict on a test of which pytest has written a record, and why it is not right."""
    if test is None:
        return "time", "it did not end"
    wrong = test.find("failure")
    wrong = test.find("error") if wrong is None else wrong
    if wrong is not None:
        message = wrong.get("message") or ""
        accused = checks and "LaunchFailed" in message
        return ("wrong", " ".join(message.split()[4:])) if accused else ("stopped", message.split("\n")[0])
    launches = [each.get("value") for each in test.iter("property") if each.get("name") == "checked launches"]
    if test.find("skipped") is not None or (checks and launches == ["0"]):
        return "stopped", "it is skipped, or launches nothing"
    return "right", ""


def of_lines(project: str, words: list[str], seconds: float) -> list[Outcome]:
    """Run a program that prints a line of JSON for each of its kernels."""
    _, output = ended(words, HERE, seconds)
    rows = []
    for line in output.splitlines():
        if not line.startswith('{"kernel"'):
            continue
        said = json.loads(line)
        verdict = "right" if said["right"] else "stopped" if "failed" in said else "wrong"
        why = said.get("failed") or ("" if said["right"] else f"error {said['error']:.3g}")
        rows.append(Outcome(
            project, said["kernel"], verdict, why.splitlines()[0] if why else "", said.get("seconds", 0)
        ))  # fmt: skip
    return rows or [Outcome(project, Path(words[-1]).stem, "stopped", reason(output))]


def keep(record: Path | None, outcomes: dict[tuple[str, str], Outcome], checks: bool) -> None:
    """Write the record: counts of every project, then the programs."""
    if record is None:
        return
    rows = sorted(outcomes.values(), key=lambda row: (row.project, row.program))
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        count = counts.setdefault(row.project, {"tried": 0, "right": 0})
        count["tried"] += 1
        count["right"] += row.verdict == "right"
    content = {
        **(ABOUT_CHECKS if checks else ABOUT_RUNS),
        "commits": dict(Counter(row.commit for row in rows)),
        "counts": counts,
        "programs": [asdict(row) for row in rows],
    }
    record.write_text(json.dumps(content, indent=1) + "\n")


def jobs_of(asked: argparse.Namespace) -> Iterator[Job]:
    """Yield everything that is to be run, the long programs first."""
    schedules = (asked.schedule or ["in order"]) if asked.check else []
    programs: list[Program] = []
    if asked.cutlass:
        cutlass = asked.cutlass.resolve()
        if asked.built or not asked.dsl:
            includes = [f"-I{folder}" for folder in asked.include]
            programs += of_cutlass(cutlass, includes, asked.built and asked.built.resolve())
        if asked.dsl:
            programs += of_dsl(asked.dsl, cutlass)
    ours = HERE / "kernels/blackwell"
    if asked.deepgemm:
        script, given = ours / "deep_gemm.py", [str(asked.deepgemm.resolve())]
        if schedules:
            programs += of_cases("DeepGEMM", sys.executable, script, [], given)
        else:
            yield partial(of_lines, "DeepGEMM", [sys.executable, str(script), *given], asked.seconds)
    for python in asked.triton:
        project, script = f"Triton {version_of(python, 'triton')}", ours / "triton_kernels.py"
        if schedules:
            programs += of_cases(project, python, script, GPU, [])
        else:
            words = [python, "-m", "lanewise", "run", *GPU, str(script), "--", *asked.kernels]
            yield partial(of_lines, project, words, asked.seconds)
    for program in programs:
        if re.search(asked.only, program.name) and schedules:
            yield partial(checked, program, schedules, asked.seconds, asked.outputs)
        elif re.search(asked.only, program.name):
            yield partial(outcome, program, asked.seconds, asked.outputs)
    for python, folder, names in asked.gluon:
        tests = GluonTests(python, Path(folder).resolve(), asked.seconds)
        nodes = [each for each in Path(names).read_text().split() if re.search(asked.only, each)]
        for first in range(0, len(nodes), TOGETHER):
            yield partial(tests.check if schedules else tests.run, nodes[first : first + TOGETHER], schedules)


def main() -> None:
    """Run what was asked for and print a line for each program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cutlass", type=Path)
    parser.add_argument("--include", action="append", default=[], help="a folder of headers (cuRAND's)")
    parser.add_argument("--built", type=Path, help="a folder of NAME.so: examples that nvcc built before")
    parser.add_argument("--dsl", help="the Python that has CuTe DSL")
    parser.add_argument("--deepgemm", type=Path, help="the PTX of kernels/blackwell/deep_gemm.cu")
    parser.add_argument("--triton", action="append", default=[], help="a Python that has Triton and torch")
    parser.add_argument(
        "--gluon", action="append", default=[], nargs=3, metavar=("PYTHON", "SOURCES", "NODES"),
        help="a Python that has Triton and torch, Triton's sources, a file with names of tests",
    )  # fmt: skip
    parser.add_argument("--kernels", nargs="*", default=[], help="words in names of the Triton kernels")
    parser.add_argument("--check", action="store_true", help="check the kernels instead of running them")
    parser.add_argument("--schedule", action="append", help="a schedule of --check; several may be given")
    parser.add_argument("--only", default="", help="a regular expression for names of programs")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run at a time")
    parser.add_argument("--commit", default="", help="what the record says of the tree that ran")
    parser.add_argument("--outputs", type=Path, help="a folder for what programs print")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="records whose rows are added")
    asked = parser.parse_args()
    if not (asked.cutlass or asked.deepgemm or asked.triton or asked.gluon or asked.merge):
        parser.error("name a project: --cutlass, --deepgemm, --triton or --gluon")
    outcomes: dict[tuple[str, str], Outcome] = {}
    before = [asked.save] if asked.save and asked.save.is_file() else []
    for record in (*before, *asked.merge):
        rows = (Outcome(**row) for row in json.loads(record.read_text())["programs"])
        outcomes |= {(row.project, row.program): row for row in rows}
    keep(asked.save, outcomes, asked.check)
    with ThreadPoolExecutor(asked.jobs) as pool:
        for future in as_completed([pool.submit(job) for job in jobs_of(asked)]):
            for row in future.result():
                row.commit = asked.commit
                outcomes[row.project, row.program] = row
                told = f"{row.verdict:<8} {row.seconds:>6}  {row.project}  {row.program}  {row.why_not}"
                print(told, flush=True)
            keep(asked.save, outcomes, asked.check)


if __name__ == "__main__":
    main()
