"""Kernels whose counters are read twice: by Nsight Compute on a GPU, and by `lanewise.check`.

Most are one memory instruction with addresses out of an array. Run as a script it launches them all once, for
`ncu` to watch.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":  # launched by `ncu`, in a process of its own
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import lanewise as lw  # noqa: E402  # where the sources lie has to be said first
from gpu import counted_hopper  # noqa: E402  # so it has for this

SHARED = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
LDSM = "smsp__inst_executed_op_ldsm.sum"
TENSOR = "smsp__inst_executed_pipe_tensor.sum"
DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
METRICS = [
    *(SHARED.format(way) for way in ("ld", "ldsm", "st", "stsm", "ldgsts")),
    *(CONFLICTS.format(way) for way in ("ldsm", "stsm", "ldgsts")),
    *(each.format(way) for each in (SECTORS, REQUESTS) for way in ("ld", "st", "ldgsts")),
    DIVERGENT,
    LDSM,
    TENSOR,
    INSTRUCTIONS,
]

#: Instructions with an address in %a (shared) or %g (global): what each loads goes to %r0, or %r1… is stored.
BODIES = {
    "ld1": "ld.shared.u8 %r0, [%a];",
    "ld2": "ld.shared.u16 %r0, [%a];",
    "ld4": "ld.shared.u32 %r0, [%a];",
    "ld8": "ld.shared.v2.u32 {%r0, %r1}, [%a]; add.u32 %r0, %r0, %r1;",
    "ld16": "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%a]; add.u32 %r0, %r0, %r1; add.u32 %r2, %r2, %r3; "
    "add.u32 %r0, %r0, %r2;",
    "st1": "st.shared.u8 [%a], %r1;",
    "st4": "st.shared.u32 [%a], %r1;",
    "st8": "st.shared.v2.u32 [%a], {%r1, %r2};",
    "st16": "st.shared.v4.u32 [%a], {%r1, %r2, %r3, %r4};",
    "ldsm1": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];",
    "ldsm2": "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%a]; add.u32 %r0, %r0, %r1;",
    "ldsm4": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r0, %r1, %r2, %r3}, [%a]; "
    "add.u32 %r0, %r0, %r1; add.u32 %r2, %r2, %r3; add.u32 %r0, %r0, %r2;",
    "stsm4": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%a], {%r1, %r2, %r3, %r4};",
    "cp4": "cp.async.ca.shared.global [%a], [%g], 4; cp.async.wait_all;",
    "cp16": "cp.async.cg.shared.global [%a], [%g], 16; cp.async.wait_all;",
    "gld4": "ld.global.u32 %r0, [%g];",
    "gld8": "ld.global.v2.u32 {%r0, %r1}, [%g]; add.u32 %r0, %r0, %r1;",
    "gld16": "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%g]; add.u32 %r0, %r0, %r1; add.u32 %r2, %r2, %r3; "
    "add.u32 %r0, %r0, %r2;",
    "gst4": "st.global.u32 [%g], %r1;",
    "gst16": "st.global.v4.u32 [%g], {%r1, %r2, %r3, %r4};",
}
WIDTH = {"1": 1, "2": 2, "4": 4, "8": 8, "16": 16, "m1": 16, "m2": 16, "m4": 16}


def one_instruction(name: str) -> str:
    """A kernel of one warp: lane i does one instruction at offsets[i], and keeps %r0."""
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 offsets, .param .u64 data, .param .u64 out)
{{
    .reg .b32 %r<8>; .reg .b32 %a; .reg .b32 %t; .reg .b64 %o; .reg .b64 %g; .reg .b64 %y; .reg .b64 %w;
    .shared .align 128 .b8 tile[32768];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %w, %t, 4;
    ld.param.u64 %o, [offsets]; add.u64 %o, %o, %w;
    ld.global.u32 %r7, [%o];
    mov.u32 %a, tile; add.u32 %a, %a, %r7;
    ld.param.u64 %g, [data]; cvt.u64.u32 %y, %r7; add.u64 %g, %g, %y;
    mov.u32 %r0, %t; add.u32 %r1, %t, %r7; add.u32 %r2, %t, 2; add.u32 %r3, %t, 3; add.u32 %r4, %t, 4;
    {BODIES[name]}
    bar.warp.sync -1;
    ld.param.u64 %y, [out]; add.u64 %y, %y, %w;
    st.global.u32 [%y], %r0;
    ret;
}}
"""


def patterns(size: int) -> dict[str, Any]:
    """Offsets of 32 lanes with `size` bytes each."""
    lane = np.arange(32)
    found = {f"every {step}th": lane * size * step for step in (1, 2, 3, 4, 8, 32)}
    found["one place"] = lane * 0
    found["halves 128 apart"] = lane % 16 * size + lane // 16 * 128
    found["halves 1024 apart"] = lane % 16 * size + lane // 16 * 1024
    found["quarters 256 apart"] = lane % 8 * size + lane // 8 * 256
    for step in (1, 2, 4, 8, 16):
        places = (lane & (step - 1)) | ((lane >> 1) & ~(step - 1))
        found[f"lanes {step} apart at one place"] = places * size
        found[f"lanes {step} apart at one place, every 2nd"] = places * size * 2
    found["half of it in pairs"] = np.where(lane < 16, lane & ~1, lane) * size
    found["in fours"] = lane // 4 * size
    found["shuffled"] = np.random.default_rng(size).permutation(32) * size
    found["anywhere"] = np.random.default_rng(size + 1).integers(0, 1024 // size, 32) * size
    return {name: offsets.astype(np.uint32) for name, offsets in found.items()}


@dataclass(frozen=True)
class Case:
    """A launch: its name, how to make the kernel and its arguments, and which counters are compared."""

    name: str
    kernel: Callable[[], Any]
    arguments: Callable[[], list[Any]]
    metrics: tuple[str, ...]


def _of(name: str) -> tuple[str, ...]:
    if name.startswith("g"):
        way = "st" if name.startswith("gst") else "ld"
        return SECTORS.format(way), REQUESTS.format(way)
    if name.startswith("cp"):
        return tuple(each.format("ldgsts") for each in (SHARED, CONFLICTS, SECTORS, REQUESTS))
    way = name[:4] if name[2:4] == "sm" else name[:2]
    return (SHARED.format(way), CONFLICTS.format(way), *((LDSM,) if way == "ldsm" else ()))


_MODULES: dict[str, Any] = {}


def _entry(name: str) -> Any:
    if name not in _MODULES:
        _MODULES[name] = lw.load(one_instruction(name))
    return _MODULES[name][name][1, 32]


def _benchmark(name: str, *configuration: Any) -> Any:
    text = (ROOT / "benchmarks" / "kernels" / "machine.ptx").read_text()
    module = _MODULES.setdefault("machine", lw.load(text.replace(".version 9.2", ".version 8.0")))
    return module[name][configuration]


def cases() -> list[Case]:
    """All launches, in order."""
    found = []
    for name in BODIES:
        size = WIDTH[name.lstrip("gldstcp")]
        for pattern, offsets in patterns(size).items():
            if name[:2] in ("st", "cp") and len(set(offsets)) < 32:
                continue  # several lanes that store to one place: the hardware may drop some
            if " apart at one place" in pattern and name not in ("ld4", "ld8", "ld16", "ldsm4"):
                continue
            found.append(
                Case(
                    f"{name} {pattern}",
                    lambda name=name: _entry(name),
                    lambda offsets=offsets: [offsets, np.zeros(1 << 13, np.uint32), np.zeros(32, np.uint32)],
                    _of(name),
                )
            )
    rng = np.random.default_rng(0)
    square = rng.standard_normal((256, 256)).astype(np.float32)
    halves = [rng.standard_normal((256, 256)).astype(np.float16) for _ in range(2)]
    shared = tuple(SHARED.format(way) for way in ("ld", "st"))
    moved = tuple(each.format(way) for each in (SECTORS, REQUESTS) for way in ("ld", "st"))
    found.append(
        Case(
            "transpose",
            lambda: _benchmark("transpose", (8, 8), (32, 8)),
            lambda: [square, np.zeros_like(square), 256],
            (*shared, *moved),
        )
    )
    found.append(
        Case(
            "hgemm",
            lambda: _benchmark("hgemm", (32, 16), 32),
            lambda: [*halves, np.zeros((256, 256), np.float16), 256, 256, 256],
            (
                *(SHARED.format(way) for way in ("ldsm", "ld", "st")),
                CONFLICTS.format("ldsm"),
                LDSM,
                TENSOR,
                DIVERGENT,
                *moved,
            ),
        )
    )
    return found


def predicted(case: Case) -> dict[str, int]:
    """The counters by `lanewise.check`."""
    report = lw.check(case.kernel(), *case.arguments(), arch="sm_90")
    return {name: int(report.counters.get(name, 0)) for name in (*case.metrics, INSTRUCTIONS)}


def launch_all() -> None:
    """Launch every case once on the GPU."""
    import torch

    for case in cases():
        given = []
        for value in case.arguments():
            if isinstance(value, np.ndarray):
                words = value.view(np.int32) if value.dtype == np.uint32 else value
                value = torch.from_numpy(words.copy()).cuda()
            given.append(value)
        case.kernel()(*given)
        torch.cuda.synchronize()


def known_metrics(wanted: Sequence[str]) -> list[str]:
    """Those metrics that this version of Nsight Compute has for this GPU."""
    listed = subprocess.run(
        ["ncu", "--query-metrics", "--chip", "gh100"], capture_output=True, text=True, check=False
    ).stdout
    names = {line.split()[0] for line in listed.splitlines() if line.split()}
    return [metric for metric in wanted if metric.removesuffix(".sum") in names]


def measured(
    which: str, kernels: Sequence[str], names: Sequence[str], wanted: Sequence[str]
) -> dict[str, dict[str, int]]:
    """The counters by `ncu` of the launches that this script makes, by the cases' names, in order."""
    metrics = known_metrics(wanted)
    done = subprocess.run(
        ["ncu", "--csv", "--page", "raw", "--clock-control", "none", "--kernel-name-base", "function",
         "--kernel-name", f"regex:^({'|'.join(kernels)})$",
         "--metrics", ",".join(metrics), sys.executable, __file__, which],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    table = done.stdout[done.stdout.find('"ID"') :]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["ID"]]
    assert len(rows) == len(names), (
        f"{len(rows)} of {len(names)}\n{done.stdout[:2000]}\n{done.stderr[-2000:]}"
    )
    return {
        name: {each: int(float(row[each].replace(",", ""))) for each in metrics}
        for name, row in zip(names, rows, strict=True)
    }


def profiler() -> str:
    """Nsight Compute's version; empty if it is not there."""
    if shutil.which("ncu") is None:
        return ""
    said = subprocess.run(["ncu", "--version"], capture_output=True, text=True, check=False).stdout
    return said.strip().splitlines()[-1]


def compared() -> dict[str, dict[str, tuple[int, int]]]:
    """For each case and counter that both have: what `ncu` read, and what `lanewise.check` says."""
    found = {}
    ampere, hopper = cases(), list(counted_hopper.hopper_cases())
    read = measured("ampere", (*BODIES, "transpose", "hgemm"), [case.name for case in ampere], METRICS)
    read |= measured("hopper", counted_hopper.KERNELS, [case.name for case in hopper], counted_hopper.METRICS)
    said = {case.name: predicted(case) for case in ampere}
    said |= {case.name: counted_hopper.on_cpu(case) for case in hopper}
    for case, counters in said.items():
        found[case] = {
            name: (read[case][name], value) for name, value in counters.items() if name in read[case]
        }
    return found


if __name__ == "__main__":
    if sys.argv[1] == "ampere":
        launch_all()
    else:
        for each in counted_hopper.hopper_cases():
            counted_hopper.on_gpu(each)
