"""Finds again the mistakes that docs/found.md tells of, in checkouts of the public projects that have them.

Run `python benchmarks/found.py FOLDER [words]`. FOLDER holds the checkouts as `llm.c`, `LeetCUDA`,
`cuda-samples`, `SGEMM_CUDA`, `fast.cu`, `ThunderKittens` and `DeepGEMM` (with `cutlass` beside it), or as
`owner+name`; words pick the mistakes whose file or kernel has one of them. Every file is compiled as it is,
and every kernel is launched with the grid, the block and the kinds of arguments that its own project uses,
with small sizes. The exit status is 1 if a mistake is not found.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.lib.stride_tricks import as_strided

import lanewise as lw
from lanewise.machine.checker.report import Report

RANDOM = np.random.default_rng(0)
Size = int | tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A launch of a public kernel, and what a check of it has to find."""

    project: str
    file: str
    kernel: str
    grid: Size
    block: Size
    shared: int
    arguments: Callable[[], tuple[Any, ...]]
    kind: str
    #: Lines of the file; each has to be one side of a finding.
    lines: tuple[int, ...]
    severity: str = "error"
    schedule: str = "in order"
    steps: int | None = None
    #: Folders of checkouts in which headers are looked for; then the file is a header, which nvcc compiles.
    includes: tuple[str, ...] = ()
    #: More options of nvcc.
    options: tuple[str, ...] = ()


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Random f32 numbers."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def zeros(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    """Memory for results."""
    return np.zeros(shape, dtype)


def bf16(*shape: int) -> np.ndarray[Any, Any]:
    """Random bf16 numbers, as their bits."""
    return (floats(*shape).view(np.uint32) >> 16).astype(np.uint16)


def layer_norm(
    channels: int, blocks: int, number: Callable[..., Any], statistics: Callable[..., Any] = floats
) -> tuple[Any, ...]:
    """The arguments of llm.c's backward layer norms that add up in a scratch buffer: 2 x 4 tokens.

    `statistics` makes the means and deviations.
    """
    tokens = 8
    results = (number(tokens, channels), number(channels), number(channels))
    scratch = zeros(32 + blocks * 2 * channels)
    inputs = (number(tokens, channels), number(tokens, channels), number(channels))
    return (*results, scratch, *inputs, statistics(tokens), statistics(tokens), 2, 4, channels)


def attention(rows: int) -> tuple[Any, ...]:
    """The arguments of llm.c's backward softmax: 1 batch, 2 heads, f32."""
    square = (2, rows, rows)
    return zeros(*square), floats(*square), floats(*square), 1, rows, 64, 0.1


def classifier(vocabulary: int, padded: int) -> tuple[Any, ...]:
    """The arguments of llm.c's fused classifier: a row of logits, no probabilities, an empty tag."""
    return bf16(1, padded), zeros(1), 0, 0.1, zeros(1, dtype="i4"), 1, 1, vocabulary, padded, b"\0"


def columns_of_64(array: np.ndarray[Any, Any], box: tuple[int, ...], swizzle: Any) -> Any:
    """A tensor map of a bf16 matrix as fast.cu makes it: stripes of 64 columns, one after the other."""
    rows, columns = array.shape
    view = as_strided(array, (columns // 64, rows, 64), (128, 2 * columns, 2))
    return lw.tensor_map(view, box, swizzle=swizzle)


def fast(kernel: int, lines: tuple[int, ...]) -> Case:
    """One of fast.cu's matrix products in clusters: 2048 x 2048 x 256, of which the first cluster runs."""
    size, depth, queue = 2048, 256, 3
    tiles = 2 * queue * (128 * 64 + 256 * 64)
    staged = 0 if kernel < 10 else 2 * 256 * (144 if kernel == 12 else 128) + 16 * queue
    shared = tiles + staged + (512 if kernel > 10 else 0)

    def arguments() -> tuple[Any, ...]:
        a, b = (np.ones((size, depth), bfloat16) for _ in range(2))
        c = np.zeros((size, size), bfloat16)
        maps = columns_of_64(a, (1, 128, 64), "128B"), columns_of_64(b, (1, 256, 64), "128B")
        if kernel < 10:
            return size, size, depth, c, *maps
        target = columns_of_64(c, (1, 256, 72) if kernel == 12 else (2, 256, 64), "none")
        tiles_of_clusters = np.full((128, 128), -1, np.int32)
        tiles_of_clusters[:, 0] = 0
        return size, size, depth, target, *maps, *([tiles_of_clusters] if kernel > 10 else [])

    name = f"M{kernel}::matmulKernel{kernel}<128,256,64,384,{queue},128,2,1>"
    return Case("fast.cu", "matmul.cu", name, 2, 384, shared, arguments, "cluster", lines)


def prenorm(kind: str, line: int) -> Case:
    """DeepGEMM's product of hyper-connections on sm_90: 128 x 24 x 256."""
    rows, columns, depth, stages = 128, 24, 256, 4

    def arguments() -> tuple[Any, ...]:
        a, b = floats(rows, depth).astype(bfloat16), floats(columns, depth)
        maps = ((a, (64, 64)), (b, (32, 32)), (zeros(rows, columns), (64, 32)))
        return rows, *(lw.tensor_map(array, box, swizzle="128B") for array, box in maps), zeros(rows)

    name = f"sm90_tf32_hc_prenorm_gemm_impl<{columns},{depth},64,32,64,1,128,{stages},128,128>"
    file = "deep_gemm/include/deep_gemm/impls/sm90_tf32_hc_prenorm_gemm.cuh"
    includes = ("DeepGEMM/deep_gemm/include", "cutlass/include")
    return Case(
        "DeepGEMM", file, f"deep_gemm::{name}", 2, 256, 200_000, arguments, kind, (line,), includes=includes
    )


def kittens_array(array: np.ndarray[Any, Any], box_rows: int) -> bytes:
    """ThunderKittens' `gl` of an array: its address, its axes, and the tensor map of tiles or of vectors."""
    rows, columns = array.shape
    address, size = lw.address(array), array.itemsize
    strides: tuple[int, ...]
    if rows == 1:
        strides = (columns * size,) * 3
        made = lw.encode_tiled("f32", address, (columns, 1, 1, 1), strides, (box_rows, 1, 1, 1))
    else:  # tiles lie in columns of 128 bytes
        wide, parts = 128 // size, columns * size // 128
        strides = (columns * size, 128, rows * columns * size, rows * columns * size)
        dims, box = (wide, rows, parts, 1, 1), (wide, box_rows, parts, 1, 1)
        kind = "f32" if size == 4 else "bf16"
        made = lw.encode_tiled(kind, address, dims, strides, box, swizzle="128B")
    head = np.array([address, 1, 1, rows, columns], np.uint64).tobytes()
    return head.ljust(128, b"\0") + made.ljust(256, b"\0")


def kittens_backward() -> Case:
    """ThunderKittens' backward attention: one head of 256 rows of 64."""
    rows, width = 256, 64
    kept: list[np.ndarray[Any, Any]] = []  # the arguments have only their addresses

    def arguments() -> tuple[Any, ...]:
        tensors = [floats(rows, width).astype(bfloat16) for _ in range(4)]
        gradients = [zeros(rows, width) for _ in range(3)]
        vectors = [floats(1, rows) for _ in range(2)]
        kept[:] = [*tensors, *gradients, *vectors]
        sizes = np.array([rows, 1], np.int32).tobytes()
        return (b"".join(kittens_array(each, 64) for each in kept) + sizes.ljust(128, b"\0"),)

    file, name = "kernels/attention/mha_h100/mha_h100.cu", "bwd_attend_ker<64,false>"
    return Case(
        "ThunderKittens", file, name, 2, 384, 117_760, arguments, "asynchronous copy", (447, 613),
        includes=("ThunderKittens/include",),
        options=("-DKITTENS_HOPPER", "--expt-relaxed-constexpr"),
    )  # fmt: skip


def last_block(kernel: int, lines: tuple[int, ...], severity: str) -> Case:
    """One of llm.c's layer norms in which the last block adds up what all blocks have left in memory."""
    shared = (2 * 256 + (2 * 96 * 4 if kernel == 10 else 2 * 128 + 1)) * 4
    name, file = f"layernorm_backward_kernel{kernel}", "dev/cuda/layernorm_backward.cu"

    def arguments() -> tuple[Any, ...]:
        return layer_norm(256, 3, bf16, bf16)

    return Case("llm.c", file, name, 3, 128, shared, arguments, "race", lines, severity)


CASES = (
    Case("llm.c", "llmc/layernorm.cuh", "layernorm_backward_kernel10", 3, 512, (2 * 256 + 2 * 480 * 4) * 4,
         lambda: layer_norm(256, 3, bf16), "race", (371, 372, 394, 395)),
    Case("llm.c", "llmc/attention.cuh", "softmax_autoregressive_backward_inplace_kernel", (16, 2), 256, 0,
         lambda: (bf16(2, 64, 64), bf16(2, 64, 64), 1, 64, 64, 0.1), "race", (176,)),
    Case("llm.c", "llmc/fused_classifier.cuh", "fused_classifier_kernel5<true,false>", 1, 1024, 0,
         lambda: classifier(8203, 8256), "race", (123, 127)),
    Case("llm.c", "llmc/fused_classifier.cuh", "fused_classifier_kernel5<true,false>", 1, 1024, 0,
         lambda: classifier(300, 320), "endless", (), steps=100_000),
    Case("llm.c", "train_gpt2_fp32.cu", "softmax_autoregressive_backward_kernel", (16, 2), 256, 0,
         lambda: attention(64), "race", (478, 480)),
    Case("llm.c", "dev/cuda/attention_backward.cu", "softmax_autoregressive_backward_kernel7<128>",
         (64, 2), 128, 0, lambda: attention(64), "race", (651, 659), schedule="reverse"),
    Case("llm.c", "dev/cuda/attention_backward.cu", "softmax_autoregressive_backward_kernel8<128>",
         (16, 2), 128, 0, lambda: attention(64), "race", (706, 708)),
    Case("llm.c", "dev/cuda/softmax_forward.cu", "softmax_forward_kernel4", 4, 128, 32,
         lambda: (zeros(4, 300), floats(4, 300), 4, 300), "race", (268, 288)),
    Case("llm.c", "dev/cuda/softmax_forward.cu", "softmax_forward_kernel7", 2, 128, 32,
         lambda: (zeros(2, 1500), floats(2, 1500), 2, 1500), "race", (495, 500)),
    Case("llm.c", "dev/cuda/attention_forward.cu", "attention_forward_fused1", (8, 2, 2), 256, 0,
         lambda: (zeros(2, 64, 64), zeros(4, 64, 64), zeros(4, 64, 64), floats(2, 64, 192), 2, 64, 64, 2),
         "race", (648, 655, 665, 674)),
    last_block(9, (996, 997, 1017, 1018), "error"),
    last_block(10, (1194, 1195, 1217, 1218), "error"),
    last_block(6, (633, 634, 644, 645), "advice"),
    last_block(7, (726, 727, 737, 738), "advice"),
    last_block(8, (838, 839, 856, 857), "advice"),
    Case("LeetCUDA", "kernels/softmax/softmax.cu", "online_safe_softmax_f32_per_token_kernel<256>", 4, 256, 0,
         lambda: (floats(4, 256), zeros(4, 256), 1024), "out of bounds", (351,)),
    Case("LeetCUDA", "kernels/softmax/softmax.cu", "online_safe_softmax_f32x4_pack_per_token_kernel<64>",
         4, 64, 0, lambda: (floats(4, 256), zeros(4, 256), 1024), "out of bounds", (392,)),
    Case("LeetCUDA", "kernels/nms/nms.cu", "nms_kernel", 4, 32, 0,
         lambda: (floats(100, 4), floats(100), np.ones(100, np.int32), 100, 0.5), "race", (32, 57)),
    Case("LeetCUDA", "kernels/hgemm/wmma/hgemm_wmma.cu",
         "hgemm_wmma_m32n8k16_mma2x4_warp2x4_dbuf_async_kernel<32,8,16,2,4,2,4,8>", 1, 256, 0,
         lambda: (*(zeros(size, dtype="f2") for size in (128 * 64, 64 * 128, 128 * 128)), 128, 128, 64),
         "wmma", (559, 597)),
    Case("cuda-samples", "Samples/2_Concepts_and_Techniques/shfl_scan/shfl_scan.cu", "shfl_intimage_rows",
         2, 120, 0, lambda: (zeros(2, 480, dtype="u4"), zeros(2, 1920, dtype="u4")), "uninitialised", (132,)),
    Case("SGEMM_CUDA", "src/runner.cu", "runSgemmDoubleBuffering2<128,128,16,64,64,4,8,4,128>", 1, 128, 0,
         lambda: (128, 128, 64, 1.0, floats(128, 64), floats(64, 128), 0.0, zeros(128, 128)),
         "mbarrier", (41,), "advice"),
    *(fast(kernel, (line,)) for kernel, line in ((8, 347), (9, 347), (10, 356), (11, 285), (12, 285))),
    prenorm("setmaxnreg", 124), prenorm("asynchronous copy", 290), kittens_backward(),
)  # fmt: skip


def checkout(folder: Path, project: str) -> Path | None:
    """Return the folder of a project, named by itself or with its owner; None if there is none."""
    return next((path for path in sorted(folder.iterdir()) if path.name.split("+")[-1] == project), None)


def found_lines(report: Report, case: Case) -> set[int]:
    """Return the lines that findings of the kind and severity that a case expects name on either side."""
    sides = [
        side
        for finding in report.findings
        if (finding.kind, finding.severity) == (case.kind, case.severity)
        for side in (finding, finding.other)
        if side is not None
    ]
    return {int(side.source.rpartition(":")[2]) for side in sides if side.source}


@functools.cache
def instance(header: Path, kernel: str, options: tuple[str, ...]) -> Any:
    """Compile one instance of a kernel template in a header with nvcc, as the project's own tool does."""
    made = f"static const void* made = reinterpret_cast<const void*>(&{kernel});"
    text = f'#include "{header}"\n{made}\n'
    return lw.cuda(text, arch="sm_90a", options=["-std=c++20", *options], compiler="nvcc")[kernel]


def is_found(case: Case, root: Path) -> bool:
    """Check the kernel of a case; True if the report has every line that it should have."""
    if case.includes:
        parts = (each.partition("/") for each in case.includes)
        folders = [(checkout(root.parent, name), inside) for name, _, inside in parts]
        includes = tuple(f"-I{folder / inside}" for folder, inside in folders if folder is not None)
        entry = instance(root / case.file, case.kernel, (*includes, *case.options))
    else:
        entry = lw.cuda(root / case.file, "sm_90a")[case.kernel]
    launch = entry[case.grid, case.block, case.shared]
    report = lw.check(launch, *case.arguments(), schedule=case.schedule, steps=case.steps)
    kinds = {finding.kind for finding in report.findings}
    return case.kind in kinds and set(case.lines) <= found_lines(report, case)


def main() -> int:
    """Look for the mistakes of all projects that are there, and print what became of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    folder, words = options.folder, options.words
    missing = 0
    for case in CASES:
        if words and not any(word in f"{case.file} {case.kernel}" for word in words):
            continue
        root = checkout(folder, case.project)
        outcome = "no checkout" if root is None else "found" if is_found(case, root) else "NOT FOUND"
        missing += outcome == "NOT FOUND"
        lines = ", ".join(str(line) for line in case.lines)
        print(f"{outcome:12} {case.kind:14} {case.project}/{case.file}:{lines} {case.kernel}", flush=True)
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
