"""How fast the machine is: compiling, starting, warp-instructions a second, HGEMM, TMA, cost against size.

Run `python benchmarks/machine.py [--only NAME …] [--json PATH]`. The kernels are CUDA C++ in
`kernels/machine.cu`; their PTX lies beside it, and `--ptx` makes it anew with NVRTC. Warp-instructions are
PTX instructions times the warps that execute them, counted from the PTX and the trips of its loops.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from arithmetic import machine, processor_seconds, seconds

import lanewise as lw
from lanewise.machine import compiled
from lanewise.ptx import Label, Operation, parse

KERNELS = Path(__file__).parent / "kernels"
#: A GEMM by TMA and wgmma, which NVRTC compiles.
WGMMA = Path(__file__).parent.parent / "tests" / "machine" / "kernels" / "wgmma_tma.cu"
#: What typical code is made of: integer and address arithmetic, floats, choices, conversions, memory.
MIX = """
add.s32 R, A, B; mad.lo.s32 R, A, B, C; shl.b32 R, A, 3; and.b32 R, A, B; xor.b32 R, A, B; sub.s32 R, A, B;
fma.rn.f32 F, X, Y, Z; add.f32 F, X, Y; mul.f32 F, X, Y; fma.rn.f32 F, X, Y, Z; max.f32 F, X, Y; mov.b32 F, A;
mul.wide.s32 D, A, 4; add.s64 D, D, G; ld.global.f32 F, [G+8]; st.shared.f32 [S], X; ld.shared.u32 R, [S+4];
setp.lt.s32 P, A, B; selp.b32 R, A, B, P; setp.gt.f32 P, X, Y; @P add.f32 F, X, Y; cvt.rn.f32.s32 F, A;
shr.u32 R, A, 5; cvt.rzi.s32.f32 R, X; mov.u32 R, A; min.s32 R, A, B; lop3.b32 R, A, B, C, 0x96; neg.f32 F, X;
"""
START = """
import time
began = time.process_time()
import lanewise as lw
import numpy as np
wall, imported = time.perf_counter(), time.process_time()
module = lw.load({path!r})
loaded = time.process_time()
a = np.ones((64, 64), np.float16)
module[{entry!r}][(8, 4), 32](a, a, np.zeros_like(a), 64, 64, 64)
end = time.process_time()
print(end, imported - began, loaded - imported, end - loaded, end - imported, time.perf_counter() - wall)
"""
COLD = """
import time
import lanewise as lw
from lanewise.machine import compiled
module = lw.load({path!r})
(function,) = (module[name].function for name in module.entries)
wall, spent = time.perf_counter(), time.process_time()
assert compiled(module, function, "sm_90a").native
print(time.perf_counter() - wall, time.process_time() - spent)
"""


def generated(instructions: int, seed: int = 0) -> str:
    """A kernel of so many instructions: the mix above in random order, on random registers."""
    rng = np.random.default_rng(seed)
    forms = [form.strip() for form in MIX.replace("\n", " ").split(";") if form.strip()]
    names = {
        "R": "%r",
        "A": "%r",
        "B": "%r",
        "C": "%r",
        "F": "%f",
        "X": "%f",
        "Y": "%f",
        "Z": "%f",
        "D": "%d",
    }
    body = []
    for _ in range(instructions - 9):
        words = forms[rng.integers(len(forms))].split(" ")
        for place, word in enumerate(words):
            stripped = word.rstrip(",")
            if stripped in names:
                words[place] = word.replace(stripped, f"{names[stripped]}{rng.integers(24)}")
        body.append(" ".join(words).replace("@P", "@%p0").replace("P,", "%p0,").replace(" P", " %p0") + ";")
    text = "\n".join(body).replace("[G", "[%g").replace("G", "%g").replace("[S", "[%s")
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %r<24>; .reg .f32 %f<24>; .reg .b64 %d<24>; .reg .b64 %g; .reg .b32 %s; .reg .b32 %t;
    .reg .pred %p0; .shared .align 4 .b8 words[2048];
    ld.param.u64 %g, [in];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %d0, %t, 4;
    add.s64 %g, %g, %d0;
    shl.b32 %s, %t, 2;
    {text}
    ld.param.u64 %d1, [out];
    add.s64 %d1, %d1, %d0;
    st.global.f32 [%d1], %f1;
    ret;
}}
"""


def executed(entry: Any, trips: int = 1, shares: tuple[float, ...] = ()) -> float:
    """PTX instructions that a warp executes: those of loops so many times, those a branch skips by share."""
    statements = entry.function.body
    labels = {each.name: place for place, each in enumerate(statements) if isinstance(each, Label)}
    weights = np.ones(len(statements))
    given = list(shares)
    for place, each in enumerate(statements):
        if not isinstance(each, Operation) or each.opcode != "bra":
            continue
        target = labels[str(each.operands[-1])]
        if target < place:
            weights[target : place + 1] *= trips
        elif each.guard is not None and given:
            weights[place + 1 : target] *= given.pop(0)
    chosen = [isinstance(each, Operation) for each in statements]
    return float(weights[chosen].sum())


def module() -> Any:
    """The kernels."""
    return lw.load(KERNELS / "machine.ptx")


# compiling and starting -------------------------------------------------------------------------------------


def compile_seconds(text: str, entry: str) -> tuple[float, float]:
    """Seconds from a parsed kernel to machine code, nothing kept on disk; and those of all processors."""
    kept = os.environ.get("LANEWISE_CACHE_DIR")
    os.environ["LANEWISE_CACHE_DIR"] = ""
    try:
        times = []
        for turn in range(2 if len(text) < 200_000 else 1):
            parsed = parse(f"{text}\n// {time.time()} {turn}\n")
            start, spent = time.perf_counter(), time.process_time()
            assert compiled(parsed, parsed[entry].function, "sm_80").native
            times.append((time.perf_counter() - start, time.process_time() - spent))
        return min(each[0] for each in times), min(each[1] for each in times)
    finally:
        os.environ.pop("LANEWISE_CACHE_DIR")
        if kept is not None:
            os.environ["LANEWISE_CACHE_DIR"] = kept


def measure_compile() -> dict[str, Any]:
    """Generated kernels of growing length, and a real one."""
    compile_seconds(generated(300, 9), "k")  # what all kernels share is compiled only once
    rows = {}
    real = module()["unrolled"]
    cases = [(str(count), generated(count), "k", count) for count in (20, 100, 1000, 10_000)]
    for name, text, entry, count in [*cases, ("nvrtc", module().text, "unrolled", int(executed(real)))]:
        wall, processors = compile_seconds(text, entry)
        rows[name] = {
            "instructions": count,
            "seconds": round(wall, 3),
            "processor_seconds": round(processors, 3),
        }
        print(
            f"compile {name:>6}, {count:5} instructions: {wall:7.3f} s, of all processors {processors:.3f} s"
        )
    return rows


def measure_cold() -> dict[str, Any]:
    """From PTX to machine code in a new process, nothing on disk: the warp-specialised bf16 GEMM of `wgmma`.

    What all kernels share is compiled as well. The second figures are those with that on disk.
    """
    text = str(lw.cuda(WGMMA, arch="sm_90a", lineinfo=False))
    times: dict[str, list[tuple[float, ...]]] = {"empty": [], "shared_on_disk": []}
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            environment = {**os.environ, "LANEWISE_CACHE_DIR": directory}
            for name, rows in times.items():
                path = Path(directory) / f"{name}.ptx"
                path.write_text(re.sub(r"\bgemm\b", f"gemm_{name}", text))  # another kernel
                run = subprocess.run(
                    [sys.executable, "-c", COLD.format(path=str(path))],
                    capture_output=True, text=True, check=True, env=environment,
                )  # fmt: skip
                rows.append(tuple(map(float, run.stdout.split())))
    found = {}
    for name, rows in times.items():
        wall, processors = (round(min(column), 3) for column in zip(*rows, strict=True))
        found[name] = {"seconds": wall, "processor_seconds": processors}
        print(
            f"cold compile of the wgmma GEMM, {name}: {wall} s, of all processors {processors} s", flush=True
        )
    return found


def measure_start() -> dict[str, Any]:
    """A new process, machine code on disk: the naive HGEMM loaded and launched, in processor time."""
    code = START.format(path=str(KERNELS / "machine.ptx"), entry="hgemm")
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "LANEWISE_CACHE_DIR": directory, "PYTHONPYCACHEPREFIX": directory}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        times = []
        for _ in range(8):
            run = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
            )
            times.append([float(each) for each in run.stdout.split()])
    names = ("process", "import", "load", "launch", "load_and_launch", "load_and_launch_wall")
    best = [min(column) for column in zip(*times[1:], strict=True)]
    print(
        "new process, processor seconds, best of 7: "
        + ", ".join(f"{name} {value:.3f}" for name, value in zip(names, best, strict=True))
    )
    return {name: round(value, 4) for name, value in zip(names, best, strict=True)}


# running ----------------------------------------------------------------------------------------------------


def case_mandelbrot(size: int) -> tuple[Callable[[], None], float]:
    """Iterations of a warp are those of its slowest lane."""
    width, limit = 512, 256
    counts = np.zeros(width * size, np.int32)
    kernel = module()["mandelbrot"]
    configured = kernel[width * size // 256, 256]

    def work() -> None:
        configured(counts, width, np.float32(2.5 / width), limit)

    work()
    loop = executed(kernel, 2) - executed(kernel, 1)
    trips = counts.reshape(-1, 32).max(axis=1)
    return work, float((executed(kernel, 1) + loop * (trips - 1)).sum())


def case_polynomial(size: int) -> tuple[Callable[[], None], float]:
    """128 terms in one piece, over and over."""
    kernel, turns = module()["polynomial"], 100
    source = np.linspace(-1, 1, 256 * size, dtype=np.float32)
    out = np.zeros_like(source)
    return lambda: kernel[size, 256](source, out, turns), executed(kernel, turns) * 8 * size


def case_saxpy(size: int) -> tuple[Callable[[], None], float]:
    """Two loads and a store for five instructions of arithmetic."""
    kernel = module()["saxpy"]
    x, y = np.ones(1024 * size, np.float32), np.zeros(1024 * size, np.float32)
    return (
        lambda: kernel[4 * size, 256](x, y, np.float32(1e-3), len(x)),
        executed(kernel) * 32 * size,
    )


def case_transpose(size: int) -> tuple[Callable[[], None], float]:
    """Through shared memory."""
    kernel = module()["transpose"]
    blocks = size
    source = np.arange((32 * blocks) ** 2, dtype=np.float32).reshape(32 * blocks, -1)
    out = np.zeros_like(source)

    def work() -> None:
        kernel[(blocks, blocks), (32, 8)](source, out, 32 * blocks)

    work()
    assert (out == source.T).all()
    return work, executed(kernel) * 8 * blocks**2


def case_reduction(size: int) -> tuple[Callable[[], None], float]:
    """A tree: half of the warps take part in the first step, one in the last six."""
    kernel = module()["reduction"]
    source = np.ones(256 * size, np.float32)
    out = np.zeros(size, np.float32)

    def work() -> None:
        kernel[size, 256](source, out)

    work()
    assert (out == 256).all()
    shares = (4 / 8, 2 / 8, *[1 / 8] * 7)
    return work, executed(kernel, 1, shares) * 8 * size


CASES: dict[str, tuple[Callable[[int], tuple[Callable[[], None], float]], int]] = {
    "mandelbrot": (case_mandelbrot, 512),
    "polynomial": (case_polynomial, 64),
    "saxpy": (case_saxpy, 4096),
    "transpose": (case_transpose, 64),
    "reduction": (case_reduction, 4096),
}


def measure_rate(name: str) -> dict[str, Any]:
    """Millions of warp-instructions a second."""
    case, size = CASES[name]
    work, count = case(size)
    taken, spent = seconds(work, 5), processor_seconds(work, 5)
    rate, each = count / taken / 1e6, count / spent / 1e6
    print(
        f"{name:12} {rate:8.1f} M warp-instructions a second, {each:.1f} M a processor's second", flush=True
    )
    return {
        "warp_instructions": round(count),
        "seconds": round(taken, 4),
        "millions_a_second": round(rate, 1),
        "millions_a_processor_second": round(each, 1),
    }


def measure_hgemm(size: int = 1024) -> dict[str, Any]:
    """The naive HGEMM, one warp a block, beside the same product by `gemm`."""
    kernel = module()["hgemm"]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(np.float16) for _ in range(2))
    transposed, c = np.ascontiguousarray(b.T), np.zeros((size, size), np.float16)
    mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16")
    flops = 2 * size**3 / 1e9

    def on_machine() -> None:
        kernel[(size // 8, size // 16), 32](a, transposed, c, size, size, size)

    def by_gemm() -> None:
        mma.gemm(a, b, arch="sm_80")

    on_machine()
    assert (c.view(np.uint16) == mma.gemm(a, b, arch="sm_80").view(np.uint16)).all()
    # In turns, so that both have the clock and the neighbours of the same moments.
    rounds = [(seconds(on_machine, 1), seconds(by_gemm, 1)) for _ in range(6)]
    ours, whole = (flops / min(times) for times in zip(*rounds, strict=True))
    print(f"hgemm {size}^3: {ours:.2f} GFLOP/s, gemm {whole:.2f}, share {ours / whole:.2f}", flush=True)
    return {
        "size": size,
        "gflops": round(ours, 3),
        "gemm_gflops": round(whole, 3),
        "share": round(ours / whole, 3),
    }


def measure_wgmma(size: int = 512) -> dict[str, Any]:
    """A warp-specialised GEMM of bf16 by TMA and wgmma, beside the product by `gemm`; and a check of it."""
    kernel = lw.cuda(WGMMA, arch="sm_90a")["gemm"][(size // 256, size // 128), 384, 3 * 384 * 128]
    rng = np.random.default_rng(0)
    bf16 = lw.instruction("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16")
    a, b = (rng.standard_normal((size, size)).astype(bf16.a.format.dtype) for _ in range(2))
    transposed, d = np.ascontiguousarray(b.T), np.zeros((size, size), np.float32)
    flops = 2 * size**3 / 1e9
    maps = [lw.tensor_map(each, (rows, 64), swizzle="128B") for each, rows in ((a, 128), (b, 256))]

    def on_machine() -> None:
        kernel(*maps, d, size, size)

    def by_gemm() -> None:
        bf16.gemm(a, transposed, arch="sm_90a")

    on_machine()
    assert (d == bf16.gemm(a, transposed, arch="sm_90a")).all()
    rounds = [(seconds(on_machine, 1), seconds(by_gemm, 1)) for _ in range(20)]
    ours, whole = (flops / min(times) for times in zip(*rounds, strict=True))
    spent = [processor_seconds(work, 20) for work in (by_gemm, on_machine)]
    checked = seconds(lambda: lw.check(kernel, *maps, d, size, size), 3) / min(each[0] for each in rounds)
    print(
        f"wgmma {size}^3: {ours:.2f} GFLOP/s, gemm {whole:.2f}, share {ours / whole:.2f} "
        f"({spent[0] / spent[1]:.2f} by processors' time); a check takes {checked:.2f} times as long",
        flush=True,
    )
    return {
        "size": size,
        "gflops": round(ours, 3),
        "gemm_gflops": round(whole, 3),
        "share": round(ours / whole, 3),
        "share_of_processor_seconds": round(spent[0] / spent[1], 3),
        "check": round(checked, 2),
    }


def measure_linear() -> dict[str, Any]:
    """Seconds a unit over three decades of blocks and of instructions executed."""
    rows: dict[str, Any] = {}
    kernel = module()["polynomial"]
    for what in ("blocks", "instructions"):
        each = []
        for power in (10, 100, 1000, 10_000):
            blocks, turns = (power, 4) if what == "blocks" else (8, power)
            source = np.linspace(-1, 1, 256 * blocks, dtype=np.float32)
            out = np.zeros_like(source)
            configured = kernel[blocks, 256]
            taken = seconds(lambda run=configured, x=source, y=out, n=turns: run(x, y, n), 3)
            each.append(taken / power)
        rows[what] = [float(f"{one:.3g}") for one in each]
        print(
            f"seconds for each of 10 … 10,000 {what}: " + ", ".join(f"{one:.2e}" for one in each), flush=True
        )
    return rows


def measure_large() -> dict[str, Any]:
    """512 MB of arguments, of which one block is touched."""
    kernel = module()["saxpy"]
    rows = {}
    for megabytes in (1, 512):
        x = np.zeros(megabytes << 18, np.float32)
        taken = seconds(lambda x=x: kernel[1, 256](x, x, np.float32(2), 256), 5)
        rows[f"{megabytes}_MB"] = float(f"{taken:.3g}")
    print(
        f"a launch with 1 MB {rows['1_MB'] * 1e3:.2f} ms, with 512 MB {rows['512_MB'] * 1e3:.2f} ms",
        flush=True,
    )
    return rows


def measure_check() -> dict[str, Any]:
    """How many times slower `check` is than a plain run; of HGEMM, in a short launch and in a long one."""
    rows = {}
    x = np.ones(1 << 18, np.float32)
    square = np.ones((512, 512), np.float32)
    cases: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "saxpy": (module()["saxpy"][1 << 10, 256], (x, x.copy(), np.float32(2), len(x))),
        "transpose": (module()["transpose"][(16, 16), (32, 8)], (square, square.copy(), 512)),
    }
    for name, size in (("hgemm_256", 256), ("hgemm", 1024)):
        a = np.ones((size, size), np.float16)
        arguments = (a, a, np.zeros_like(a), size, size, size)
        cases[name] = (module()["hgemm"][(size // 8, size // 16), 32], arguments)
    for name, (configured, given) in cases.items():
        plain = seconds(lambda run=configured, given=given: run(*given), 5)
        checked = seconds(lambda run=configured, given=given: lw.check(run, *given), 3)
        rows[name] = round(checked / plain, 2)
        rows[f"{name}_seconds"] = float(f"{checked:.3g}")
        print(f"check of {name}: {checked / plain:.2f} times a plain run", flush=True)
    return rows


def measure_tensor_copies(size: int = 2048) -> dict[str, Any]:
    """Bytes a second of TMA loads and stores on one core, in boxes of 8 KB, beside NumPy's copy."""
    kernels = lw.load(KERNELS / "tensor_copies.ptx")
    array = np.zeros((size, size), np.float16)
    map = lw.tensor_map(array, (64, 64), swizzle="128B")
    other = np.empty_like(array)
    copied = seconds(lambda: np.copyto(other, array), 9)
    rows: dict[str, Any] = {"numpy_GB_per_s": round(array.nbytes / copied / 1e9, 2)}
    for name in ("load", "store"):
        run = kernels[name][1, 1, 8192]
        taken = seconds(lambda run=run: run(map, size, size), 9)
        rows[f"{name}_GB_per_s"] = round(array.nbytes / taken / 1e9, 2)
        rows[f"{name}_share_of_numpy"] = round(copied / taken, 3)
        print(
            f"TMA {name}s {rows[f'{name}_GB_per_s']} GB/s on one core, {copied / taken:.0%} of np.copyto",
            flush=True,
        )
    return rows


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "compile": measure_compile,
    "cold": measure_cold,
    "start": measure_start,
    **{name: lambda name=name: measure_rate(name) for name in CASES},
    "hgemm": measure_hgemm,
    "wgmma": measure_wgmma,
    "linear": measure_linear,
    "large": measure_large,
    "check": measure_check,
    "tensor_copies": measure_tensor_copies,
}


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts alone")
    parser.add_argument("--ptx", action="store_true", help="make the kernels' PTX anew with NVRTC")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.ptx:
        made = lw.cuda(KERNELS / "machine.cu", arch="sm_80", lineinfo=False)
        (KERNELS / "machine.ptx").write_text(str(made))
        return
    rows: dict[str, Any] = {"machine": machine()}
    for name in options.only or PARTS:
        rows[name] = PARTS[name]()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
