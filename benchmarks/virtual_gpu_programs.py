"""Other people's programs in CUDA C++, unchanged, on a virtual GPU: which pass by their own word.

    python benchmarks/virtual_gpu_programs.py cuda-samples/ --suite cuda-samples --save results.json
    python benchmarks/virtual_gpu_programs.py llm.c/dev/cuda --suite llm.c --processes 2
    python benchmarks/virtual_gpu_programs.py LeetCUDA/kernels --suite leetcuda --option=-I/cublas/include
    python benchmarks/virtual_gpu_programs.py SGEMM_CUDA --suite sgemm --option=-I/cublas/include

The folder is a checkout of the programs. `cuda-samples` reads sources and libraries from CMakeLists.txt and
leaves out what needs graphics, several GPUs or a library without PTX; `folder` takes each .cu as a program;
`llm.c` copies dev/cuda, with smaller sizes in each main(), and runs every kernel that a file numbers.
`leetcuda` and `sgemm` take runners whose sizes and repeats stand in the source: a copy beside the file has
smaller ones (`smaller` in the record has the words that were replaced).
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from limited_process import run_limited

#: Words in a CMakeLists.txt, in a folder's name or in its sources, and why such a sample is left out.
LEFT_OUT = {
    r"CUDA::(cublas|cufft|curand|cusolver|cusparse|npp|nvjpeg|nvJitLink|nvjitlink)": "needs a closed library",
    r"GLUT|OPENGL|EGL|[Vv]ulkan|D3D1|FreeImage": "graphics",
    r"MC_EstimatePiInlineP|MC_SingleAsianOptionP": "needs a closed library",  # cuRAND's headers
    r"^\S*cdp|graphConditionalNodes": "kernels that launch kernels, by libcudadevrt: machine code alone",
    r"^\S*(MultiGPU|MultiDevice|P2P|p2p|CrossGPU|MPI|IPC)": "several GPUs or processes",
    r"7_libNVVM|8_Platform_Specific|NvSci": "another platform or libNVVM",
}
#: Arguments that make a sample small enough for a CPU, or that choose its own test.
ARGUMENTS: dict[str, list[str]] = {
    "matrixMul": ["-wA=64", "-hA=64", "-wB=64", "-hB=64"],
    "eigenvalues": ["--iters-timing=1", "--matrix-size=128"],
    "reduction": ["--n=65536"],
    "reductionMultiBlockCG": ["--n=65536", "--maxblocks=16", "--threads=128"],
    "threadFenceReduction": ["--n=65536"],
    "radixSortThrust": ["-n=65536", "-iterations=1"],
    "UnifiedMemoryPerf": ["-kernel-iterations=1"],
    "NV12toBGRandResize": [
        "-input=data/test640x480.nv12",
        "-width=640",
        "-height=480",
        "-pitch=640",
        "-dst_width=320",
        "-dst_height=240",
        "-batch=1",
    ],
    "transpose": ["-dimX=256", "-dimY=256"],
    "FDTD3d": ["--dimx=96", "--dimy=96", "--dimz=96", "--timesteps=2"],
    "SobolQRNG": ["--vectors=10000", "--dimensions=16"],
    "globalToShmemAsyncCopy": ["wA=128", "hA=128", "wB=128", "hB=128"],
    "cudaGraphsPerfScaling": ["3", "1", "4", "2", "0", "4", "8"],
    "MonteCarloMultiGPU": ["--scaling=strong"],
}
#: Sizes of llm.c's kernels that a CPU computes in seconds, twice: each file compares with its own CPU code.
#: As with the original sizes, all block sizes divide B * T, 256 divides T and C, heads have 64 channels, and
#: V is odd and larger than a block.
LLM_SIZES = {"B": "4", "T": "256", "C": "512", "NH": "8", "OC": "1024", "V": "1537", "Vp": "1600"}
#: One of its kernels has rows of T that all block sizes must divide.
LLM_SIZES_OF = {"attention_backward": {"B": "1", "T": "1024", "C": "128", "NH": "2"}}
PASSED = re.compile(r"pass|success|test ok|\bok\b|verified|correct|results match", re.IGNORECASE)
FAILED = re.compile(r"\bFAIL|test failed|\bmismatch")
#: What llm.c's programs print for a kernel that was not compiled in, or not for this type.
NO_SUCH_KERNEL = {
    "Invalid kernel number": "the program says that it has no such kernel",
    "is only supported for fp32": "the program says that it is for float32, and compiles for bf16",
}


#: What makes LeetCUDA's runners small: arguments, and words of the source.
LEETCUDA_ARGUMENTS = {
    "relu": ["1"],
    "elementwise": ["1"],
    "hgemm_mma_swizzle": ["256", "256", "256", "0", "1"],
}
LEETCUDA_SMALLER = {
    r"\btest_num = 64\b": "test_num = 1",
    r"\bj < 5;": "j < test_num;",
    r"\bouter_repeat = 10\b": "outer_repeat = 1",
    r"\b(constexpr int [SK]) = 4096\b": r"\1 = 512",
}
SGEMM_SMALLER = {
    r"SIZE = \{128, 256, 512, 1024, 2048, 4096\}": "SIZE = {128, 256}",
    r"\brepeat_times = 50\b": "repeat_times = 1",
}


def cuda_samples(root: Path) -> list[dict[str, Any]]:
    """Return the samples: name, folder, sources, options, or why one is left out."""
    programs: list[dict[str, Any]] = []
    for listing in sorted(root.glob("Samples/*/*/CMakeLists.txt")):
        folder, text = listing.parent, listing.read_text()
        text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        title = f"{folder.parent.name}/{folder.name}"
        reason = next((why for word, why in LEFT_OUT.items() if re.search(word, f"{title}\n{text}")), None)
        match = re.search(r"add_executable\(\s*(\S+)([^)]*)\)", text)
        sources = [each for each in match.group(2).split() if "$" not in each] if match else []
        sources = [str(folder / each) for each in sources if Path(each).suffix in (".cu", ".cpp", ".c")]
        folders = [
            root / "Common",
            folder,
            *(each for each in (folder / "inc", folder / "src") if each.is_dir()),
        ]
        options = [*(f"-I{each}" for each in folders), "--option=--extended-lambda"]
        if "CUDA::nvrtc" in text:
            options += ["--option=-lnvrtc"]
        if "OpenMP" in text:
            options += ["--option=-Xcompiler=-fopenmp", "--option=-lgomp"]
        programs.append(
            {"name": title, "folder": folder, "sources": sources, "options": options, "left_out": reason}
        )
    return programs


def single_files(root: Path) -> list[dict[str, Any]]:
    """Return each .cu of a folder that has a main() as a program."""
    programs: list[dict[str, Any]] = []
    for file in sorted(root.rglob("*.cu")):
        text = file.read_text(errors="replace")
        if not re.search(r"\bint\s+main\s*\(", text):
            continue
        closed = re.search(r'#include\s*[<"](cublas|cudnn|curand|cufft|mpi|nccl)', text)
        programs.append(
            {
                "name": str(file.relative_to(root)), "folder": file.parent, "sources": [str(file)],
                "options": [f"-I{file.parent}"],
                "left_out": f"needs {closed.group(1)}" if closed else None,
            }
        )  # fmt: skip
    return programs


def smaller(file: Path, words: dict[str, str]) -> tuple[Path, list[str]]:
    """Write a copy of a source file with smaller sizes beside it; return it, and what was replaced."""
    text, replaced = file.read_text(errors="replace"), []
    for pattern, word in words.items():
        replaced += [f"{match.group()} -> {match.expand(word)}" for match in re.finditer(pattern, text)]
        text = re.sub(pattern, word, text)
    copy = file.with_name(f"{file.stem}.small.cu")
    if replaced and not (copy.is_file() and copy.read_text() == text):  # what nvcc made of it is kept
        copy.write_text(text)
    return copy if replaced else file, replaced


def leetcuda(root: Path) -> list[dict[str, Any]]:
    """Return LeetCUDA's runners, those that compare with cuBLAS too, with small sizes."""
    programs = [each for each in single_files(root) if ".small." not in str(each["name"])]
    for program in programs:
        file, replaced = smaller(Path(program["sources"][0]), LEETCUDA_SMALLER)
        program["sources"], program["left_out"] = [str(file)], None
        program["options"] += [f"-I{folder}" for folder in root.glob("hgemm/utils")]
        program["smaller"] = replaced
        program["arguments"] = LEETCUDA_ARGUMENTS.get(Path(program["name"]).stem, [])
    return programs


def sgemm(root: Path) -> list[dict[str, Any]]:
    """Return SGEMM_CUDA's programs: two files alone, and its runner for each kernel (0 is cuBLAS)."""
    options = [f"-I{root}", f"-I{root / 'src'}"]
    programs: list[dict[str, Any]] = [
        {"name": name, "folder": root, "sources": [str(root / name)], "options": options, "left_out": None}
        for name in ("cuBLAS_sgemm.cu", "simplest_kernel.cu")
    ]
    file, replaced = smaller(root / "sgemm.cu", SGEMM_SMALLER)
    for number in range(13):
        programs.append(
            {
                "name": f"sgemm.cu {number}", "folder": root, "sources": [str(file)],
                # One source with the other in it: what nvcc makes of it serves all kernels.
                "options": [*options, "--option=-include", f"--option={root / 'src/runner.cu'}"],
                "left_out": None, "smaller": replaced, "arguments": [str(number)],
            }
        )  # fmt: skip
    return programs


def llm_c(root: Path) -> list[dict[str, Any]]:
    """Return the programs of llm.c's dev/cuda, each kernel of a file one, from copies with smaller sizes."""
    copies = Path(tempfile.mkdtemp(prefix="llm.c-"))
    programs: list[dict[str, Any]] = []
    for file in sorted([*root.glob("*.h"), *root.glob("*.cu")]):
        text = file.read_text()
        start = text.find("int main(")
        if start >= 0:
            small = text[start:]
            for name, size in {**LLM_SIZES, **LLM_SIZES_OF.get(file.stem, {})}.items():
                small = re.sub(
                    rf"(\bint |\bint64_t |, )({name}) = \d+[^,;]*(?=[,;])", rf"\g<1>\g<2> = {size}", small
                )
            text = text[:start] + re.sub(r"(repeat_times = )\d+", r"\g<1>1", small)
        (copies / file.name).write_text(text)
        if start < 0 or file.suffix != ".cu":
            continue
        closed = re.search(r'#include\s*[<"](mpi|nccl)', text)
        switch = re.search(r"switch \(kernel_num\) \{.*?default:", text, re.DOTALL)
        kernels = [int(each) for each in re.findall(r"case (\d+):", switch[0])] if switch else [None]
        for kernel in kernels:
            programs.append(
                {
                    "name": f"{file.stem} {kernel}" if kernel is not None else file.stem, "folder": copies,
                    "sources": [str(copies / file.name)],
                    "options": [f"-I{copies}", "--option=-lcublas", "--option=-lcublasLt"],
                    "left_out": f"needs {closed.group(1)}" if closed else None,
                    "arguments": [str(kernel)] if kernel is not None else [],
                }
            )  # fmt: skip
    # The first kernel of every file comes first: later ones then find the file built.
    return sorted(programs, key=lambda each: each["arguments"] or ["0"])


SUITES: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "cuda-samples": cuda_samples,
    "folder": single_files,
    "leetcuda": leetcuda,
    "sgemm": sgemm,
    "llm.c": llm_c,
}


def side_files(folder: Path, arch: str) -> None:
    """Build the fatbins and PTX that samples of the driver API load at run time, with PTX in them."""
    text = (folder / "CMakeLists.txt").read_text() if (folder / "CMakeLists.txt").is_file() else ""
    for file, source in re.findall(
        r'BINARY_DIR}/(\S+\.(?:fatbin|ptx))"\)\s*set\(CUDA_KERNEL_SOURCE "\S+SOURCE_DIR}/(\S+)"\)', text
    ):
        kind = "-ptx" if file.endswith("ptx") else "-fatbin"
        how = [f"-arch={arch}"] if kind == "-ptx" else ["-gencode", f"arch={arch},code={arch}"]
        subprocess.run(["nvcc", kind, *how, "-o", folder / file, folder / source], check=False)

    include = Path(shutil.which("nvcc") or "").resolve().parents[1] / "include"
    for name in re.findall(r"\{CUDA_INCLUDE_DIR}/(\S+)", text):  # headers that NVRTC reads beside the program
        if (include / name).is_dir():
            shutil.copytree(include / name, folder / Path(name).name, dirs_exist_ok=True)
        elif (include / name).is_file():
            shutil.copy(include / name, folder)


def run(program: dict[str, Any], gpu: str, seconds: float, command: str) -> dict[str, object]:
    """Run a program; return how it ended."""
    name, folder = str(program["name"]), Path(str(program["folder"]))
    main, *others = sorted(program["sources"], key=lambda each: str(each).endswith(".c"))
    side_files(folder, "compute_90")
    title = name.rpartition("/")[2]
    arguments = program.get("arguments", ARGUMENTS.get(title, []))
    buffer = ["stdbuf", "-oL"] if shutil.which("stdbuf") else []  # what was printed before a time limit
    words = [
        *buffer, sys.executable, "-m", "lanewise", command, "--gpu", gpu, *program["options"],
        *(f"--option={each}" for each in others), main, "--", *arguments,
    ]  # fmt: skip
    begin = time.perf_counter()
    status, output = run_limited(words, folder, seconds)
    own = [line for line in output.splitlines() if not line.startswith("lanewise")]
    verdict = "time" if status is None else "failed" if status else "passed"
    said = bool(PASSED.search("\n".join(own)))
    if verdict == "passed" and FAILED.search("\n".join(own)):
        verdict = "failed"
    elif verdict == "passed" and not said:
        verdict = "ended, no verdict of its own"
    for words_of_program, why in NO_SUCH_KERNEL.items():
        if words_of_program in output:
            return {"name": name, "verdict": "left out", "why": why}
    return {
        "name": name, "arguments": arguments, "smaller": program.get("smaller", []),
        "status": status, "verdict": verdict,
        "seconds": round(time.perf_counter() - begin, 1),
        "end": output[-1500 if command == "run" else -20_000 :],
    }  # fmt: skip


def main() -> None:
    """Run the programs of a folder and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suite", choices=tuple(SUITES), default="folder")
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--command", choices=("run", "check"), default="run")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--processes", type=int, default=1, help="programs that run at a time")
    parser.add_argument("--save", type=Path)
    parser.add_argument(
        "--option", action="append", default=[], help="an option of lanewise run, such as -Iinclude"
    )
    asked = parser.parse_args()
    root = asked.folder.resolve()
    programs = [each for each in SUITES[asked.suite](root) if re.search(asked.only, str(each["name"]))]
    results: list[dict[str, object]] = []

    def run_one(program: dict[str, Any]) -> None:
        if program["left_out"] or not program["sources"]:
            why = program["left_out"] or "no sources"
            last: dict[str, object] = {"name": program["name"], "verdict": "left out", "why": why}
        else:
            program["options"] = [*program["options"], *asked.option]
            last = run(program, asked.gpu, asked.seconds, asked.command)
        with writing:
            results.append(last)
            seconds = last.get("seconds", "")
            print(f"{last['verdict']:<12} {seconds!s:>6}  {last['name']}  {last.get('why', '')}", flush=True)
            if asked.save:
                asked.save.write_text(json.dumps(results, indent=1) + "\n")

    writing = threading.Lock()
    with ThreadPoolExecutor(asked.processes) as pool:
        list(pool.map(run_one, programs))


if __name__ == "__main__":
    main()
