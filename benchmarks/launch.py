"""What a launch costs the host, beside Triton, CuPy and torch; and what the first one costs a new process.

Run `python benchmarks/launch.py [--json PATH]` where there is a GPU. Warm: 200 launches of a kernel that does
nothing, with 4 tensors and 4 integers, timed on the host without waiting for the GPU; the best and the middle
of 50 such rounds, in which all take turns. Cold: a new process that has imported its libraries and made a
CUDA context reads the naive HGEMM's PTX, assembles it (or reads the machine code that is kept on disk) and
loads it: the kernel is ready.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

import lanewise as lw
from lanewise import gpu
from lanewise.ptx.tools.toolkit import find_tools

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
                        .param .s32 i, .param .s32 j, .param .s32 k, .param .s32 l)
{ ret; }
"""
HGEMM = Path(__file__).parent.parent / "tests" / "machine" / "kernels" / "hgemm_naive.sm_80.ptx"
LAUNCHES, ROUNDS = 200, 50


@lw.kernel
def traced(
    a: lw.Ptr[lw.f32], b: lw.Ptr[lw.f32], c: lw.Ptr[lw.f32], d: lw.Ptr[lw.f32],
    m: lw.i32, n: lw.i32, k: lw.i32, p: lw.i32,
):  # fmt: skip
    """Nothing, in the kernel language."""


def microseconds(calls: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    """Of one call on the host, for each of several: they take turns, so that none has the quieter machine."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 5):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                call()
            if number >= 5:
                rounds[name].append((time.perf_counter() - start) / LAUNCHES * 1e6)
    torch.cuda.synchronize()
    return {
        name: {"best": round(min(times), 3), "middle": round(median(times), 3)}
        for name, times in rounds.items()
    }


def contenders() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each a way to launch a kernel with 4 tensors and 4 integers."""
    tensors = [torch.zeros(1024, device="cuda") for _ in range(4)]
    a, b, c, d = tensors
    kernel = lw.load(PTX)["nothing"]
    configured = kernel[1, 32]
    yield "lanewise: k = kernel[grid, block]; k(…)", lambda: configured(a, b, c, d, 1, 2, 3, 4)
    yield "lanewise: kernel[grid, block](…)", lambda: kernel[1, 32](a, b, c, d, 1, 2, 3, 4)
    yield "lanewise: kernel[(x, y), block](…)", lambda: kernel[(1, 1), 32](a, b, c, d, 1, 2, 3, 4)
    stream = torch.cuda.current_stream()
    yield "lanewise: k(…, stream=)", lambda: configured(a, b, c, d, 1, 2, 3, 4, stream=stream)
    wide = torch.zeros(32, 32, device="cuda").t()
    yield "lanewise: one tensor transposed", lambda: configured(wide, b, c, d, 1, 2, 3, 4)
    yield "lanewise language: kernel[grid, block](…)", lambda: traced[1, 32](a, b, c, d, 1, 2, 3, 4)
    configured(a, b, c, d, 1, 2, 3, 4)
    (plan,) = configured._plans
    record, start = plan._record(), plan._launch
    record.buffer[record.values :] = plan._free[0].buffer[record.values :]
    yield "the driver alone (cuLaunchKernelEx by ctypes)", lambda: start(*record.call)
    yield "torch.add(a, b, out=c)", lambda: torch.add(a, b, out=c)
    yield "torch a.zero_()", lambda: a.zero_()
    yield from of_triton(tensors)
    yield from of_cupy(configured)
    yield from of_bindings(kernel, tensors)
    yield from of_core(tensors)


def of_triton(tensors: list[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    if find_spec("triton") is None:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write("import triton\n@triton.jit\ndef nothing(a, b, c, d, i, j, k, l):\n    pass\n")
    sys.path.insert(0, str(Path(file.name).parent))
    kernel = __import__(Path(file.name).stem).nothing
    a, b, c, d = tensors
    yield "Triton: kernel[grid](…)", lambda: kernel[(1,)](a, b, c, d, 1, 2, 3, 4, num_warps=1)


def of_cupy(configured: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    try:
        import cupy
    except ImportError:
        return
    parameters = "float* a, float* b, float* c, float* d, int i, int j, int k, int l"
    code = f'extern "C" __global__ void nothing({parameters}) {{}}'
    kernel = cupy.RawKernel(code, "nothing")
    arrays = [cupy.zeros(1024, "f4") for _ in range(4)]
    numbers = [cupy.int32(number) for number in (1, 2, 3, 4)]
    yield "CuPy RawKernel: kernel(grid, block, …)", lambda: kernel((1,), (32,), (*arrays, *numbers))
    yield "lanewise on CuPy arrays", lambda: configured(*arrays, 1, 2, 3, 4)


def of_bindings(kernel: Any, tensors: list[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """cuda.bindings alone: arguments as they are written in its documentation."""
    try:
        import ctypes

        from cuda.bindings import driver
    except ImportError:
        return
    from lanewise.gpu.device import context
    from lanewise.gpu.loading import loaded

    function = driver.CUfunction(loaded(kernel, context(0)).function)
    types = (ctypes.c_void_p,) * 4 + (ctypes.c_int,) * 4

    def call() -> None:
        values = (*(tensor.data_ptr() for tensor in tensors), 1, 2, 3, 4)
        stream = torch.cuda.current_stream().cuda_stream
        driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, (values, types), 0)

    yield "cuda.bindings cuLaunchKernel", call


def of_core(tensors: list[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    try:
        from cuda import core
    except ImportError:
        return
    try:
        device = core.Device(0)
        device.set_current()
        program = core.Program(PTX, "ptx", core.ProgramOptions(arch=f"sm_{device.arch}"))
        kernel = program.compile("cubin").get_kernel("nothing")
        stream = core.Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        config = core.LaunchConfig(grid=1, block=32)
    except Exception as error:
        print(f"cuda-core: {type(error).__name__}: {error}", file=sys.stderr)
        return
    import numpy as np

    numbers = [np.int32(number) for number in (1, 2, 3, 4)]

    def call() -> None:
        core.launch(stream, config, kernel, *(tensor.data_ptr() for tensor in tensors), *numbers)

    yield "cuda-core launch", call


COLD = """
import sys, time
import numpy, torch
import lanewise as lw, lanewise.ptx, lanewise.launch, lanewise.gpu
x = torch.zeros(64 * 64, dtype=torch.float16, device="cuda")
torch.cuda.synchronize()
times = [time.perf_counter()]
kernel = lw.load(sys.argv[1])["hgemm_naive"]
times.append(time.perf_counter())
from lanewise.gpu.device import context
from lanewise.gpu.loading import loaded
loaded(kernel, context(0))
times.append(time.perf_counter())
kernel[(8, 4), 32](x, x, x, 64, 64, 64)
times.append(time.perf_counter())
print(*(1000 * (b - a) for a, b in zip(times, times[1:])))
"""


def cold() -> dict[str, dict[str, float]]:
    """Milliseconds of the parts of a first launch in a new process: from nothing, and from the disk."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("from nothing", "from the disk, first", "from the disk, second", "from the disk, third"):
            done = subprocess.run(
                [sys.executable, "-c", COLD, str(HGEMM)],
                env=os.environ
                | {"LANEWISE_CACHE_DIR": folder, "PYTHONPATH": str(Path(lw.__file__).parent.parent)},
                capture_output=True,
                text=True,
                check=True,
            )
            parse, load, launch = map(float, done.stdout.split())
            found[name] = {
                "read the PTX": round(parse, 2),
                "assemble and load": round(load, 2),
                "launch": round(launch, 2),
                "ready": round(parse + load, 2),
            }
    return found


def main() -> None:
    """Print the costs, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    asked = parser.parse_args()
    if not gpu.available():
        sys.exit("there is no CUDA device here")
    warm = microseconds(dict(contenders()))
    print(f"{'microseconds a launch (host)':45s} {'best':>8s} {'middle':>8s}")
    for name, cost in warm.items():
        print(f"{name:45s} {cost['best']:8.2f} {cost['middle']:8.2f}", flush=True)
    started = cold()
    print("\nmilliseconds to a ready kernel, naive HGEMM in a new process")
    for name, parts in started.items():
        print(f"{name:25s} " + ", ".join(f"{part} {value:.1f}" for part, value in parts.items()))
    device = gpu.devices()[0]
    tools = [".".join(map(str, tool.release)) for tool in find_tools("ptxas")[:1]]
    record = {
        "device": device.name,
        "arch": device.arch,
        "driver": device.driver,
        "cuda_driver_api": device.cuda,
        "assembler": f"ptxas {tools[0]}" if tools else "driver",
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "microseconds_a_warm_launch": warm,
        "milliseconds_of_a_first_launch": started,
    }
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
