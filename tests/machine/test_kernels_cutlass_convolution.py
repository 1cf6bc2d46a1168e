"""CUTLASS's convolutions for sm_90, whose loads are im2col, on the CPU machine: right against NumPy.

Takes minutes (nvcc compiles them), nvcc with a host compiler, and a checkout of CUTLASS that CUTLASS= names.
"""

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import only_with_everything
from lanewise.ptx.cuda_source import has_nvcc
from lanewise.ptx.tools.offline_compiler import find_nvcc
from tensor_copy_cases import FILLS, INTERLEAVES, SWIZZLES, TYPES

CUTLASS = os.environ.get("CUTLASS", "")
SOURCE = Path(__file__).parent / "cutlass_convolution.cu"
PROMOTIONS = (None, "64B", "128B", "256B")
#: How a map begins that the program leaves open.
MARK = (0x5AA55AA5C0FFEE00).to_bytes(8, "little")

pytestmark = [
    only_with_everything,
    pytest.mark.skipif(not CUTLASS, reason="CUTLASS= names no checkout of CUTLASS"),
    pytest.mark.skipif(not has_nvcc(), reason="nvcc or a host compiler is not installed"),
]


def built(folder: Path, operator: str, spatial: int) -> tuple[Path, lw.Module]:
    """Return the host program and the PTX of a convolution."""
    program, tool = folder / "convolution", find_nvcc()
    assert tool is not None
    libraries = tool.path.resolve().parent.parent / "lib"
    options = [
        "-std=c++17", "-gencode", "arch=compute_90a,code=compute_90a",  # PTX alone: ptxas has nothing to do
        "--expt-relaxed-constexpr", "--keep", "-lineinfo", f"-L{libraries}",
        f"-DOPERATOR={operator}", f"-DSPATIAL={spatial}", "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL",
        f"-I{CUTLASS}/include", f"-I{CUTLASS}/tools/util/include", "-o", str(program),
    ]  # fmt: skip
    if not program.is_file():
        done = tool.run([*options, SOURCE], folder, 3600)
        assert done.returncode == 0, done.stderr[-2000:]
    return program, lw.load(max(folder.glob("cutlass_convolution*.ptx")))


def encoded(call: dict[str, Any]) -> bytes:
    """Return the map that CUTLASS asks the driver for."""
    modes: dict[str, Any] = {
        "element_strides": call["element_strides"],
        "interleave": INTERLEAVES[call["interleave"]],
        "swizzle": SWIZZLES[call["swizzle"]],
        "l2_promotion": PROMOTIONS[call["promotion"]],
        "fill": FILLS[call["fill"]],
    }
    what = TYPES[call["type"]], call["address"], call["dims"], call["strides"]
    if call["mode"] == "tiled":
        return lw.encode_tiled(*what, call["box"], **modes)
    corners = call["lower"], call["upper"]
    return lw.encode_im2col(*what, *corners, call["channels"], call["pixels"], **modes)


def launched(
    program: Path, module: lw.Module, arrays: tuple[Any, Any, Any], problem: tuple[tuple[int, ...], ...]
) -> int:
    """Launch the kernel on A, B and the result; return how many maps of im2col it has."""
    words = [int(lw.address(each)) for each in arrays] + [number for part in problem for number in part]
    said = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout
    calls = [json.loads(line[4:]) for line in said.splitlines() if line.startswith("map ")]
    launch = json.loads(next(line[7:] for line in said.splitlines() if line.startswith("launch ")))
    params = bytes.fromhex(launch["params"])
    for number, call in enumerate(calls):
        params = params.replace(MARK + number.to_bytes(8, "little") + bytes(112), encoded(call))
    assert MARK not in params
    (name,) = [each for each in module.entries if "device_kernel" in each]
    kernel = module[name][tuple(launch["grid"]), tuple(launch["block"]), launch["shared"]]
    kernel(params, cluster=1)
    return sum(call["mode"] == "im2col" for call in calls)


class Convolution:
    """A convolution computed by NumPy: every offset of the filter is one product of matrices."""

    def __init__(self, x: Any, shape: tuple[int, ...], padding: Any, steps: Any, dilation: Any) -> None:
        self.x, self.shape, self.axes = x, shape, len(padding)
        self.padding, self.steps, self.dilation = padding, steps, dilation
        self.padded = np.pad(x, [(0, 0), *((each, each) for each in padding), (0, 0)])
        self.out = tuple(
            (x.shape[1 + a] + 2 * padding[a] - (shape[1 + a] - 1) * dilation[a] - 1) // steps[a] + 1
            for a in range(self.axes)
        )

    def windows(self) -> Any:
        """Yield each offset of the filter with the slices of the padded input that it meets."""
        for at in itertools.product(*(range(each) for each in self.shape[1:-1])):
            yield at, (slice(None), *(
                slice(at[a] * self.dilation[a], at[a] * self.dilation[a] + self.out[a] * self.steps[a],
                      self.steps[a]) for a in range(self.axes)))  # fmt: skip

    def forward(self, w: Any) -> Any:
        """Return the output for a filter (K, …, C)."""
        return sum(self.padded[there] @ w[:, *at].T for at, there in self.windows())

    def backward(self, dy: Any, w: Any) -> Any:
        """Return the gradient of the input."""
        found = np.zeros(self.padded.shape, np.float32)
        for at, there in self.windows():
            found[there] += dy @ w[:, *at]
        return found[
            (slice(None), *(slice(p, p + n) for p, n in zip(self.padding, self.x.shape[1:-1], strict=True)))
        ]

    def of_filter(self, dy: Any) -> Any:
        """Return the gradient of the filter."""
        found = np.zeros(self.shape, np.float32)
        for at, there in self.windows():
            found[:, *at] = dy.reshape(-1, dy.shape[-1]).T @ self.padded[there].reshape(-1, self.x.shape[-1])
        return found


#: Activations (N, …, C), filters (K, …, C), padding, steps and dilations.
PROBLEMS: dict[int, list[Any]] = {
    2: [
        ((2, 9, 11, 64), (64, 3, 3, 64), (1, 1), (1, 1), (1, 1)),
        ((2, 10, 12, 72), (80, 3, 5, 72), (1, 2), (1, 1), (1, 1)),
        ((3, 13, 9, 64), (64, 3, 3, 64), (2, 2), (1, 1), (2, 2)),
        ((2, 12, 14, 64), (64, 3, 3, 64), (1, 1), (2, 2), (1, 1)),
    ],
    1: [((3, 37, 64), (64, 5, 64), (2,), (1,), (1,))],
    3: [((1, 5, 6, 7, 64), (64, 3, 3, 3, 64), (1, 1, 1), (1, 1, 1), (1, 1, 1))],
}


@pytest.mark.parametrize("spatial", [2, 1, 3])
@pytest.mark.parametrize("operator", ["kFprop", "kDgrad", "kWgrad"])
def test_convolutions(operator: str, spatial: int, tmp_path: Path) -> None:
    kept = os.environ.get("CUTLASS_BUILDS")
    folder = Path(kept) / f"{operator}{spatial}" if kept else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    program, module = built(folder, operator, spatial)
    for activations, filters, padding, steps, dilation in PROBLEMS[spatial]:
        if operator == "kDgrad" and max(steps) > 1:
            continue  # CUTLASS's dgrad takes steps of 1
        random = np.random.default_rng(sum(activations))
        x, w = (random.integers(-2, 3, shape).astype(np.float16) for shape in (activations, filters))
        reference = Convolution(x.astype(np.float32), filters, padding, steps, dilation)
        dy = random.integers(-2, 3, (activations[0], *reference.out, filters[0])).astype(np.float16)
        wide = dy.astype(np.float32)
        if operator == "kFprop":
            a, b, expected = x, w, reference.forward(w.astype(np.float32))
        elif operator == "kDgrad":
            a, b, expected = dy, w, reference.backward(wide, w.astype(np.float32))
        else:
            a, b, expected = dy, x, reference.of_filter(wide)
        out = np.full(expected.shape, np.nan, np.float16 if operator == "kWgrad" else np.float32)
        count = launched(
            program, module, (a, b, out), (activations, filters, padding, padding, steps, dilation)
        )
        assert count >= 1
        assert np.array_equal(out, expected), (activations, filters)
