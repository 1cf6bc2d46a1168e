"""Other people's Hopper kernels on the machine: what compiles, runs, is right to the last bit, and is found.

Run `python benchmarks/hopper_kernels.py --cutlass FOLDER --fast FOLDER [--json FILE]`. FOLDER is a copy of
CUTLASS (or `cutlass_library/source` of the package nvidia-cutlass), and of fast.cu. Their sources are
compiled without a change; what instances and arguments their hosts would make is in
`benchmarks/kernels/hopper`. Every kernel runs under four schedules of its asynchronous operations and under
`lanewise.check` in five orders, and is compared with its instruction's `gemm`.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import lanewise as lw

DRIVERS = Path(__file__).parent / "kernels" / "hopper"
ARCH = "sm_90a"
SCHEDULES = ("early", "late", 1, 2)
#: The orders of a check.
CHECKED = ["in order", "reverse", "late", 1, 2]


@dataclass
class Outcome:
    """What became of a kernel: seconds to compile and run it first, elements that differ, findings."""

    project: str
    kernel: str
    compile_s: float = 0
    first_run_s: float = 0
    different: int = -1
    findings: tuple[str, ...] = ()
    failed: str = ""

    def line(self) -> str:
        """Return the outcome as a line of a table."""
        if self.failed:
            return f"{self.project:10} {self.kernel:34} {self.failed}"
        bits = "exact" if self.different == 0 else f"{self.different} elements differ"
        told = "; ".join(self.findings) or "silent"
        return (
            f"{self.project:10} {self.kernel:34} compile {self.compile_s:5.1f} s, "
            f"first run {self.first_run_s:5.1f} s, {bits}, check: {told}"
        )


@dataclass
class Prepared:
    """A kernel ready to launch: arguments, the array that it writes, and what belongs there."""

    launched: Any
    arguments: tuple[Any, ...]
    out: np.ndarray
    expected: np.ndarray
    #: Arrays that the arguments have the addresses of.
    kept: tuple[np.ndarray, ...] = ()


def product(text: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return A·Bᵀ as wgmma computes it."""
    instruction = lw.instruction(f"wgmma.mma_async.sync.aligned.{text}")
    return instruction.gemm(a, np.ascontiguousarray(b.T), arch=ARCH)


def normal(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return random numbers, always the same."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def outcome(project: str, kernel: str, prepare: Callable[[], Prepared]) -> Outcome:
    """Compile, run and check a kernel."""
    found = Outcome(project, kernel)
    try:
        begin = time.perf_counter()
        ready = prepare()
        found.compile_s = time.perf_counter() - begin
        begin = time.perf_counter()
        ready.launched(*ready.arguments)
        found.first_run_s = time.perf_counter() - begin
        found.different = int((ready.out != ready.expected).sum())
        for schedule in SCHEDULES:
            ready.out[...] = 0
            ready.launched(*ready.arguments, schedule=schedule)
            found.different = max(found.different, int((ready.out != ready.expected).sum()))
        report = lw.check(ready.launched, *ready.arguments, schedule=CHECKED)
        found.findings = tuple(f"{each.severity}: {each.kind} at {each.source}" for each in report.findings)
    except lw.LanewiseError as error:
        found.failed = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
    return found


def words(*values: int) -> bytes:
    """Return integers as a C++ struct has them."""
    return np.array(values, np.int32).tobytes()


# CuTe and CUTLASS -------------------------------------------------------------------------------------------


def cute_arguments() -> tuple[int, int, int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return M, N, K, operands of f16, an array for the product's transpose, and what belongs there."""
    m, n, k = 256, 128, 256
    a, b = normal((m, k), np.float16), normal((n, k), np.float16)
    expected = product("m64n64k16.f16.f16.f16", a, b).T
    return m, n, k, a, b, np.zeros((n, m), np.float16), expected


def entry_of(module: lw.Module, part: str) -> Any:
    """Return the kernel with a word in its name."""
    return module[next(name for name in module.entries if part in name)]


def cute_wgmma(options: list[str]) -> Prepared:
    """Prepare the tutorial that loads with cp.async."""
    module = lw.cuda((DRIVERS / "cute_wgmma.cu").read_text(), arch=ARCH, options=options)
    m, n, k, a, b, c, expected = cute_arguments()
    mma, sizes = np.zeros(8, np.uint8), np.zeros(1, np.int32)
    module["setup"][1, 1](mma, sizes)
    one, zero = (np.array([each], np.float16).tobytes() for each in (1, 0))
    empty = bytes(1)
    arguments = (
        words(m, n, k), empty, a, words(k), empty, empty, b, words(k), empty, empty, c, words(m),
        mma.tobytes(), one, zero,
    )  # fmt: skip
    return Prepared(entry_of(module, "gemm_device")[2, 128, int(sizes[0])], arguments, c, expected)


def cute_tma(options: list[str]) -> Prepared:
    """Prepare the tutorial that loads with TMA, in clusters of two blocks as its host launches it."""
    module = lw.cuda((DRIVERS / "cute_tma.cu").read_text(), arch=ARCH, options=options)
    m, n, k, a, b, c, expected = cute_arguments()
    copies, mma, sizes = [], np.zeros(8, np.uint8), np.zeros(2, np.int32)
    for each in (a, b):
        made = np.zeros(1024, np.uint8)
        module["setup"][1, 1](len(each), k, made, mma, sizes)
        made[:128] = np.frombuffer(bytes(lw.tensor_map(each, (128, 64), swizzle="128B")), np.uint8)
        copies.append(made[: sizes[1]].tobytes())
    one, zero = (np.array([each], np.float16).tobytes() for each in (1, 0))
    arguments = (
        words(m, n, k), bytes(1), a, copies[0], b, copies[1], c, words(m), mma.tobytes(), one, zero,
    )  # fmt: skip
    launched = entry_of(module, "gemm_device")[2, 128, int(sizes[0])].in_clusters(2)
    return Prepared(launched, arguments, c, expected)


#: CUTLASS's element and sum types, K of a tile, NumPy's types, the instruction's.
CUTLASS = {
    "bf16": ("cutlass::bfloat16_t", "float", 64, ml_dtypes.bfloat16, np.float32, "m64n64k16.f32.bf16.bf16"),
    "e4m3": (
        "cutlass::float_e4m3_t",
        "float",
        128,
        ml_dtypes.float8_e4m3fn,
        np.float32,
        "m64n64k32.f32.e4m3.e4m3",
    ),
}


def cutlass_gemm(kind: str, cooperative: bool, options: list[str]) -> Prepared:
    """Prepare a warp-specialised GEMM: pingpong on single blocks, cooperative in clusters of two."""
    element, sums, depth, dtype, sum_dtype, text = CUTLASS[kind]
    schedule = "COOPERATIVE" if cooperative else "PINGPONG"
    defined = [f"-D{schedule}", f"-DELEMENT={element}", f"-DSUM={sums}", f"-DKTILE=_{depth}"]
    module = lw.cuda((DRIVERS / "cutlass_gemm.cu").read_text(), arch=ARCH, options=[*options, *defined])
    m, n, k = 256, 128, 3 * depth
    a, b, d = normal((m, k), dtype), normal((n, k), dtype), np.zeros((m, n), sum_dtype)
    parameters, sizes = np.zeros(8192, np.uint8), np.zeros(16, np.int32)
    module["setup"][1, 1](m, n, k, a, b, d, parameters, sizes)
    rows_of_a, rows_of_b = (128, 32) if cooperative else (64, 64)
    rows_of_d = int(sizes[14]) // 32
    maps = (
        (sizes[1], lw.tensor_map(a[None], (1, rows_of_a, depth), swizzle="128B")),
        (sizes[2], lw.tensor_map(b[None], (1, rows_of_b, depth), swizzle="128B")),
        (sizes[4], lw.tensor_map(d[None], (1, rows_of_d, 32), swizzle="128B")),
    )
    for offset, tensor_map in maps:
        parameters[offset : offset + 128] = np.frombuffer(bytes(tensor_map), np.uint8)
    kernel = entry_of(module, "device_kernel")
    launched = kernel[tuple(map(int, sizes[7:10])), int(sizes[6]), int(sizes[5])]
    launched = launched.in_clusters((2, 1, 1)) if cooperative else launched
    expected = product(text, a, b)
    if kind == "e4m3":  # its sums are added to others in registers after each tile of K
        expected = np.zeros_like(expected)
        for begin in range(0, k, depth):
            expected += product(text, *(each[:, begin : begin + depth].copy() for each in (a, b)))
    return Prepared(launched, (parameters[: sizes[0]].tobytes(),), d, expected, (a, b))


def of_cutlass(folder: Path) -> Iterator[Outcome]:
    """Try the kernels of CuTe and CUTLASS."""
    include = [f"-I{folder / 'include'}"]
    tutorial = [
        *include, f"-I{folder / 'tools' / 'util' / 'include'}",
        f"-I{folder / 'examples' / 'cute' / 'tutorial' / 'hopper'}",
    ]  # fmt: skip
    yield outcome("CuTe", "wgmma_sm90.cu, f16", lambda: cute_wgmma(tutorial))
    yield outcome("CuTe", "wgmma_tma_sm90.cu, f16", lambda: cute_tma(tutorial))
    for kind in CUTLASS:
        for cooperative in (False, True):
            name = f"{'cooperative' if cooperative else 'pingpong'} GEMM, {kind}"
            yield outcome("CUTLASS", name, partial(cutlass_gemm, kind, cooperative, include))


# fast.cu ----------------------------------------------------------------------------------------------------


def fast_gemm(
    file: Path, name: str, shape: tuple[int, int, int], launch: tuple[int, int, int], n: int
) -> Prepared:
    """Prepare a kernel of fast.cu that takes maps of A and B, with boxes of 64 columns."""
    module = lw.cuda(file, arch=ARCH)
    rows = 64 if n == 64 else 128
    a, b = normal((shape[0], shape[2]), ml_dtypes.bfloat16), normal((shape[1], shape[2]), ml_dtypes.bfloat16)
    c = np.zeros((shape[1], shape[0]), ml_dtypes.bfloat16)
    maps = lw.tensor_map(a, (rows, 64), swizzle="128B"), lw.tensor_map(b, (n, 64), swizzle="128B")
    expected = product(f"m64n{n}k16.f32.bf16.bf16", a, b).astype(c.dtype).T
    return Prepared(module[name][launch], (*shape, c, *maps), c, expected)


def of_fast(folder: Path) -> Iterator[Outcome]:
    """Try kernels of fast.cu: with one warpgroup, and warp-specialised."""
    file = folder / "matmul.cu"
    kernels = {
        "M2::matmulKernel2<64, 64, 64, 64, 64, 16, 128>": ((128, 128, 192), (4, 128, 0), 64),
        "M4::matmulKernel4<128, 128, 64, 256, 5>": ((128, 256, 448), (2, 256, 5 * 2 * 16384 + 1024), 128),
    }
    for name, about in kernels.items():
        yield outcome("fast.cu", name.partition("<")[0], partial(fast_gemm, file, name, *about))


def main() -> None:
    """Try the kernels of the folders that are given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cutlass", type=Path, help="the folder of CUTLASS, with include and examples")
    parser.add_argument("--fast", type=Path, help="the folder of fast.cu")
    parser.add_argument("--json", type=Path, help="write what became of each kernel to this file")
    arguments = parser.parse_args()
    outcomes = []
    for folder, tried in ((arguments.cutlass, of_cutlass), (arguments.fast, of_fast)):
        for each in tried(folder) if folder else ():
            print(each.line(), flush=True)
            outcomes.append(each)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")


if __name__ == "__main__":
    main()
