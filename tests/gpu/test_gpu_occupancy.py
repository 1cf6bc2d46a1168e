"""Occupancy against the driver's own calculator, which a device need not launch anything for."""

import ctypes
import datetime
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lanewise as lw
from gpu.device import Device
from lanewise import gpu
from lanewise.isa.occupancy import occupancy
from lanewise.ptx import ptxas

if not gpu.available():
    pytest.skip("no CUDA device here: its driver has the calculator", allow_module_level=True)

#: Bounds of the registers of a thread: with 240 values to hold, ptxas uses as many.
REGISTER_BOUNDS = (
    24, 25, 31, 32, 33, 36, 40, 41, 48, 52, 56, 64, 65, 72, 80, 81, 96, 100, 112, 120, 128, 129, 144, 160,
    168, 169, 192, 200, 208, 224, 240, 255,
)  # fmt: skip
STATIC = (0, 1, 1000, 9000, 49152)
BARRIERS = (1, 2, 3, 5, 8, 16)
THREADS = (1, 32, 33, 64, 96, 128, 160, 192, 224, 256, 320, 384, 416, 512, 544, 640, 736, 768, 896, 1024)
DYNAMIC = (0, 1, 127, 128, 1000, 1024, 3000, 6000, 8192, 15000, 20000, 32768, 48000, 75000, 100000, 180000)
#: Numbers of a function's attributes in the driver API: registers, static shared, most dynamic shared bytes.
REGISTERS, SHARED, MOST_DYNAMIC = 4, 1, 8


def kernel(name: str, values: int, static: int = 0, barriers: int = 1, bound: int = 255) -> str:
    """PTX that keeps some values in registers across a barrier, with shared memory and named barriers."""
    load = "\n".join(f"    ld.global.u32 %r{n}, [%rd1+{4 * n}];" for n in range(values))
    store = "\n".join(f"    st.global.u32 [%rd1+{4 * n}], %r{n};" for n in reversed(range(values)))
    wait = "\n".join(f"    bar.sync {n};" for n in range(barriers))
    shared = f"    .shared .align 4 .b8 tile_{name}[{static}];\n" if static else ""
    touch = f"    st.shared.u8 [tile_{name}], %h;\n" if static else ""
    return (
        f".visible .entry {name}(.param .u64 x)\n.maxnreg {bound}\n{{\n"
        f"    .reg .b32 %r<{values + 1}>; .reg .b64 %rd<2>;\n"
        f"    .reg .b16 %h;\n{shared}    ld.param.u64 %rd0, [x];\n    cvta.to.global.u64 %rd1, %rd0;\n"
        f"    mov.u16 %h, 1;\n{touch}{load}\n{wait}\n{store}\n    ret;\n}}\n"
    )


def kernels() -> str:
    """A module with a kernel for each number of registers, of static bytes and of barriers."""
    made = [kernel(f"registers_{n}", 240, bound=n) for n in REGISTER_BOUNDS]
    made += [kernel(f"static_{n}", 8, static=n) for n in STATIC]
    made += [kernel(f"barriers_{n}", 8, barriers=n) for n in BARRIERS]
    return ".version 8.0\n.target sm_70\n.address_size 64\n" + "".join(made)


Case = dict[str, int]


def in_rows(cases: list[Case]) -> list[list[Any]]:
    """The cases as a record has them: the blocks for all numbers of threads in one row."""
    rows: dict[tuple[int, int, int], list[int]] = {}
    for each in cases:
        key = each["registers"], each["shared_bytes"], each["barriers"]
        rows.setdefault(key, []).append(each["blocks"])
    return [[*key, blocks[: len(THREADS)]] for key, blocks in sorted(rows.items())]


@pytest.fixture(scope="module")
def cases(device: Device) -> Iterator[list[Case]]:
    """What the driver says for each kernel, block size and dynamic shared memory."""
    from lanewise.gpu.device import context
    from lanewise.gpu.loading import loaded

    there = context(0)
    module = lw.load(kernels())
    library = ctypes.CDLL("libcuda.so.1")
    calculator: Any = library.cuOccupancyMaxActiveBlocksPerMultiprocessor
    calculator.argtypes = (ctypes.POINTER(ctypes.c_int), ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    found: list[Case] = []
    for name in module.entries:
        there_loaded = loaded(module[name], there)
        function = there_loaded.function
        with there.current():
            registers = there.driver.number("cuFuncGetAttribute", REGISTERS, function)
            static = there.driver.number("cuFuncGetAttribute", SHARED, function)
            most = there.device.most_shared - static
            there.driver("cuFuncSetAttribute", function, MOST_DYNAMIC, most)
            barriers = int(name.split("_")[1]) if name.startswith("barriers") else 1
            for threads, dynamic in itertools.product(THREADS, DYNAMIC):
                blocks = ctypes.c_int()
                if static + dynamic > there.device.most_shared:
                    continue
                assert calculator(ctypes.byref(blocks), function, threads, dynamic) == 0
                found.append(
                    {"threads": threads, "registers": registers, "shared_bytes": static + dynamic,
                     "barriers": barriers, "blocks": blocks.value}
                )  # fmt: skip
    path = os.environ.get("LANEWISE_OCCUPANCY")
    if path:
        record = {
            "what": "cuOccupancyMaxActiveBlocksPerMultiprocessor: blocks of so many threads on a "
            "multiprocessor, by registers of a thread, shared bytes and barriers of a block",
            **device.describe(),
            "date": datetime.date.today().isoformat(),
            "columns": ["registers", "shared_bytes", "barriers", "blocks, for each number of threads"],
            "threads": list(THREADS),
            "cases": in_rows(found),
        }
        Path(path).write_text(json.dumps(record).replace("]], [", "]],\n [") + "\n")
    yield found


def test_the_driver_says_the_same(cases: list[Case]) -> None:
    arch = gpu.devices()[0].arch
    wrong = []
    for each in cases:
        given = {name: value for name, value in each.items() if name != "blocks"}
        said = occupancy(arch, **given)
        if said.blocks != each["blocks"]:
            wrong.append(f"{given}: {each['blocks']} blocks, not {said.blocks} {dict(said.limits)}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:40])


def test_registers_are_those_that_ptxas_counts(cases: list[Case]) -> None:
    arch = gpu.devices()[0].arch
    counted = {each.registers for each in ptxas(lw.load(kernels()), arch).resources.values()}
    assert {each["registers"] for each in cases} == counted
