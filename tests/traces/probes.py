"""Probes: PTX added to a kernel behind some of its instructions, which stores what their registers hold.

A plain launch, on the CPU machine or on a GPU, runs the kernel with probes; what they store is the oracle for
registers of a trace. A probe of a thread stores when the thread has executed its instruction as often as the
trace says that it had at the chosen step.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import lanewise as lw
from lanewise.machine.program.instruction_record import Level
from traces.traced import hgemm, matrices, reduction

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Threads that a kernel with probes may have, and probes that it has.
THREADS, MOST = 1024, 16


class Case(NamedTuple):
    """A launch: a kernel with grid and block, and its arguments; with the arch whose bits it computes."""

    configured: Any
    arguments: tuple[Any, ...]
    arch: str

    def trace(self, **options: Any) -> lw.traces.Trace:
        """Return the trace of its first block."""
        return lw.trace(self.configured, *self.arguments, arch=self.arch, **options)


def example(folder: str, name: str) -> Any:
    path = str(EXAMPLES / folder)
    sys.path.insert(0, path)
    try:
        return import_module(name)
    finally:
        sys.path.remove(path)


def _product() -> Case:
    a, b, c = matrices(16, 8, 64)
    return Case(hgemm[(1, 1), 32], (a, b, c, 8, 64), "sm_90")


def _reduction() -> Case:
    x = np.random.default_rng(0).standard_normal(301).astype(np.float32)
    return Case(reduction[1, 128], (x, np.zeros(1, np.float32), 301), "sm_90")


def _cuda() -> Case:
    module = lw.cuda(example("", "run_cuda").HGEMM, arch="sm_80")
    a, b, _ = matrices(32, 16, 64)
    c = np.zeros((32, 16), np.float16)
    return Case(module["hgemm"][(2, 2), 32], (a, np.ascontiguousarray(b.T), c, 32, 16, 64), "sm_90")


def _ptx() -> Case:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    return Case(lw.load(example("", "run_ptx").SAXPY)["saxpy"][4, 256], (2.0, x, y, 1000), "sm_90")


def _transpose() -> Case:
    a = np.arange(64 * 40, dtype=np.uint16).reshape(64, 40)
    b = np.zeros((40, 64), np.uint16)
    return Case(example("", "transpose").transpose[(5, 8), 32], (a, b, 64, 40), "sm_90")


def _integers() -> Case:
    rng = np.random.default_rng(0)
    a, bt = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((64, 128), (64, 128)))
    module = example("", "int8_gemm")
    grid = (-(-64 // module.BN), -(-64 // module.BM))
    return Case(module.int8_gemm[grid, 128], (a, bt, np.zeros((64, 64), np.int32), 64, 64, 128), "sm_90")


def _pipelined() -> Case:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(lw.bf16.dtype) for shape in ((64, 128), (128, 64)))
    c = np.zeros((64, 64), np.float32)
    return Case(example("", "pipelined_gemm").configured(64, 64), (a, b, c, 64, 64, 128), "sm_90")


def _hopper() -> Case:
    rung = example("gemm", "rung9_tma_wgmma")
    T = rung.Tiling(BM=64, BN=64, BK=64, stages=2)
    a, b, _ = matrices(64, 64, 192)
    c = np.zeros((64, 64), np.float16)
    maps = [lw.tensor_map(each, (64, 64), swizzle="128B") for each in (a, b)]
    configured = rung.kernel(lw.f16, lw.f32, T)[1, T.threads, T.shared_bytes]
    return Case(configured, (*maps, c, 64, 64, 192), "sm_90a")


#: Kernels in Python, CUDA C++ and PTX: with mma, divergence, shared memory, cp.async, TMA and wgmma.
CASES: dict[str, Callable[[], Case]] = {
    "product": _product,
    "reduction": _reduction,
    "cuda": _cuda,
    "ptx": _ptx,
    "hopper": _hopper,
    "transpose": _transpose,
    "integers": _integers,
    "pipelined": _pipelined,
}


# choosing steps ---------------------------------------------------------------------------------------------


class Probe(NamedTuple):
    """A step, the register that its instruction writes, and the bits of that."""

    step: lw.traces.Step
    register: str
    bits: int

    def held(self) -> npt.NDArray[np.uint64]:
        """Return what the active lanes hold after the step."""
        lanes = np.flatnonzero(self.step.active)
        raw = np.ascontiguousarray(self.step.registers[self.register]).view(f"uint{self.bits}")
        return raw[lanes].astype(np.uint64)


def holds_data(step: lw.traces.Step) -> bool:
    """Return whether an instruction writes data, which a GPU computes too: no addresses, no clocks."""
    op = step.op
    moves_data = op.opcode in ("ldmatrix", "movmatrix", "mma", "shfl", "vote") or (
        op.opcode == "ld" and op.space in ("global", "shared")
    )
    floats = op.record.level is Level.LANE and op.types and op.types[0] in ("f16", "f32", "f16x2", "bf16x2")
    return (moves_data or bool(floats)) and not op.record.approximate


def chosen_steps(
    run: lw.traces.Trace, seed: int, suits: Callable[[lw.traces.Step], bool] = lambda step: True
) -> list[Probe]:
    """Return random steps of different lines that write a register and have no guard.

    The accumulators of wgmma are left out: nobody may look at them before the warpgroup has waited.
    """
    found: dict[int, Probe] = {}
    for number in np.random.default_rng(seed).permutation(len(run)).tolist():
        step = run.at(number)
        if step.op.guard is not None or step.line in found or step.op.record.level is Level.WARPGROUP:
            continue
        if step.written and suits(step):
            name = next(iter(step.written))
            found[step.line] = Probe(step, name, step.written[name].dtype.itemsize * 8)
        if len(found) == MOST:
            break
    return list(found.values())


def targets(run: lw.traces.Trace, probes: list[Probe]) -> npt.NDArray[np.uint32]:
    """Return how often each thread has executed the instruction of each probe, up to its step."""
    entries = run.recording.log.entries
    found = np.zeros((len(probes), THREADS), np.uint32)
    for row, probe in zip(found, probes, strict=True):
        header = entries[probe.step.entry]
        part = entries[: probe.step.entry + 1]
        same = (part["point"] == header["point"]) & (part["warp"] == header["warp"])
        active = part["active"][same & (part["block"] == header["block"])]
        counts = ((active[:, None] >> np.arange(32, dtype=np.uint32)) & 1).sum(axis=0)
        row[32 * probe.step.warp : 32 * probe.step.warp + 32] = counts
    return found


# the kernel with probes -------------------------------------------------------------------------------------


def probed(text: str, probes: list[Probe]) -> str:
    """Return a kernel that stores registers of its first block: two more parameters say where and when."""
    lines = text.encode("ascii", "replace").decode().splitlines()  # ptxas takes nothing else, not in comments
    for number, (step, register, bits) in enumerate(probes):
        kind = "pred" if bits == 8 else f"b{bits}"
        value = {"pred": "", "b16": "cvt.u64.u16 %probe_v, {r};", "b32": "cvt.u64.u32 %probe_v, {r};"}
        widen = value.get(kind, "mov.b64 %probe_v, {r};").format(r=f"%probe_x{bits}")
        move = f"mov.b{bits} %probe_x{bits}, {register};"
        if kind == "pred":
            widen, move = f"selp.u64 %probe_v, 1, 0, {register};", ""
        lines[step.line - 1] += (
            f" add.u32 %probe_n{number}, %probe_n{number}, 1;"
            f" ld.global.u32 %probe_t, [%probe_a+{number * 4 * THREADS}];"
            f" setp.eq.u32 %probe_q, %probe_n{number}, %probe_t; {move} {widen}"
            f" @%probe_q st.global.u64 [%probe_o+{number * 8 * THREADS}], %probe_v;"
        )
    found = "\n".join(lines)
    found = re.sub(
        r"(\.entry\s+[\w$]+\s*\([^)]*)\)",
        r"\1, .param .u64 probe_out, .param .u64 probe_targets)",
        found,
        count=1,
    )
    # Threads of other blocks never count to what is asked for.
    counters = " ".join(f".reg .u32 %probe_n{n}; mov.u32 %probe_n{n}, %probe_c;" for n in range(len(probes)))
    prologue = (
        "{ .reg .u64 %probe_a, %probe_o, %probe_v, %probe_w, %probe_x64;"
        " .reg .u32 %probe_t, %probe_c, %probe_s, %probe_x32; .reg .b16 %probe_x16; .reg .pred %probe_q;"
        " mov.u32 %probe_c, %ctaid.x; mov.u32 %probe_t, %ctaid.y; or.b32 %probe_c, %probe_c, %probe_t;"
        " mov.u32 %probe_t, %ctaid.z; or.b32 %probe_c, %probe_c, %probe_t;"
        " setp.ne.u32 %probe_q, %probe_c, 0; selp.u32 %probe_c, 0x80000000, 0, %probe_q;"
        f" {counters} ld.param.u64 %probe_o, [probe_out]; ld.param.u64 %probe_a, [probe_targets];"
        " mov.u32 %probe_t, %tid.z; mov.u32 %probe_s, %ntid.y; mul.lo.u32 %probe_t, %probe_t, %probe_s;"
        " mov.u32 %probe_s, %tid.y; add.u32 %probe_t, %probe_t, %probe_s;"
        " mov.u32 %probe_s, %ntid.x; mul.lo.u32 %probe_t, %probe_t, %probe_s;"
        " mov.u32 %probe_s, %tid.x; add.u32 %probe_t, %probe_t, %probe_s;"
        " mul.wide.u32 %probe_w, %probe_t, 4; add.u64 %probe_a, %probe_a, %probe_w;"
        " mul.wide.u32 %probe_w, %probe_t, 8; add.u64 %probe_o, %probe_o, %probe_w;"
    )
    head, _, body = found.partition(".entry")
    return f"{head}.entry{body.replace('{', prologue, 1)}"


def run_probed(
    case: Case,
    run: lw.traces.Trace,
    probes: list[Probe],
    there: Callable[[Any], Any] = lambda value: value,
    back: Callable[[Any], npt.NDArray[Any]] = np.asarray,
    **options: Any,
) -> npt.NDArray[np.uint64]:
    """Launch the kernel with probes and return what each stored, by thread.

    `there` moves an array to where the kernel is to run, `back` brings it back.
    """
    bound, values = case.configured.bind(*case.arguments, arch=case.arch)
    module = bound.entry.module
    text = probed(module.text or str(module), probes)
    ready = lw.load(text)[bound.entry.name][bound.shape.grid, bound.shape.block, bound.shape.shared_bytes]
    out = there(np.zeros((len(probes), THREADS), np.uint64))
    ready(*(there(each) for each in values), out, there(targets(run, probes)), **options)
    return back(out)


def compare_probes(probes: list[Probe], stored: npt.NDArray[np.uint64]) -> int:
    """Hold the registers of a trace against what probes stored; return how many values were compared."""
    compared = 0
    for row, probe in zip(stored, probes, strict=True):
        lanes = np.flatnonzero(probe.step.active)
        found = row[32 * probe.step.warp + lanes]
        assert np.array_equal(probe.held(), found), (probe, probe.held(), found)
        compared += len(lanes)
    return compared
