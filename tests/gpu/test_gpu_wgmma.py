"""wgmma on the device and on the CPU machine: the same addresses through descriptors, the same bits.

`LANEWISE_WGMMA_ADDRESSES` names a file that the addresses are written to, as checksums; tests/isa holds the
library to the one in benchmarks/results.
"""

import datetime
import json
import os
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import lanewise as lw
from gpu.address_probe import SHARED_BYTES, THREADS, Probe, probes, random_descriptors
from gpu.device import Device, Kernel, launches
from gpu.execution import PLAIN, kernels, multiply, name_of
from gpu.forms import arch, forms
from gpu.inputs import operands
from gpu.kernels import Warpgroup
from gpu.wgmma_choices import CHOICES
from lanewise.isa import Instruction
from lanewise.isa.matrix_descriptor import SWIZZLE_MODES
from machine.warpgroup import Machine
from machine.wgmma_gemms import BF16, BY_TMA, GEMM, KERNELS

#: Descriptors of each probe and swizzle.
DESCRIPTORS = 48
PROBES = probes() if arch() == "sm_90a" else []
_found: dict[str, dict[str, str]] = {}


def kernel_of(probe: Probe) -> Kernel:
    return Kernel(probe.kernel(), THREADS, "sm_90a", SHARED_BYTES)


@launches(lambda probe: [kernel_of(probe)])
@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_random_descriptors(probe: Probe, device: Device) -> None:
    def launch(ptx: str, blocks: int, arrays: list[NDArray[Any]]) -> None:
        made = device.run_in_place(Kernel(ptx, THREADS, "sm_90a", SHARED_BYTES), arrays, blocks)
        for array, result in zip(arrays, made, strict=True):
            array[...] = result

    descriptors = [
        each
        for number, mode in enumerate(SWIZZLE_MODES)
        for each in random_descriptors(probe, DESCRIPTORS, 7 + number, mode.name)
    ]
    found, _ = probe.addresses(launch, [each.encode() for each in descriptors])
    seen = _found.setdefault(str(probe), {})
    for number, (descriptor, addresses) in enumerate(zip(descriptors, found, strict=True)):
        assert np.array_equal(addresses, probe.expected(descriptor)), descriptor
        if number % DESCRIPTORS < 16:
            lines = np.ascontiguousarray(addresses[:: 4 if probe.n == 256 else 1], "<i4")
            seen[f"{descriptor.encode():#018x}"] = f"{zlib.crc32(lines.tobytes()):08x}"


@pytest.mark.skipif(not PROBES, reason="wgmma is of sm_90a")
def test_record_of_addresses(device: Device) -> None:
    path = os.environ.get("LANEWISE_WGMMA_ADDRESSES")
    if not path:
        pytest.skip("LANEWISE_WGMMA_ADDRESSES names no file")
    made = device.describe() | {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    compared = {"descriptors": DESCRIPTORS * len(SWIZZLE_MODES) * len(_found), "differing": 0}
    record = {"made": made, "compared": compared, "addresses": _found}
    Path(path).write_text(json.dumps(record, indent=1) + "\n")


def same_bits(instruction: Instruction, choice: Warpgroup, device: Device, seed: int) -> None:
    given = operands(instruction, 1, seed)
    machine: Any = Machine()
    there, here = (multiply(each, instruction, given, choice) for each in (device, machine))
    assert np.array_equal(instruction.d.format.to_bits(there), instruction.d.format.to_bits(here))


@launches(lambda instruction: kernels(instruction, arch()))
@pytest.mark.parametrize("instruction", forms("wgmma", "wgmma.sp", widths=(24,)), ids=name_of)
def test_machine_has_the_bits_of_the_device(instruction: Instruction, device: Device, seed: int) -> None:
    same_bits(instruction, PLAIN, device, seed)


@launches(lambda instruction, choice: kernels(instruction, arch(), choice))
@pytest.mark.parametrize(
    ("instruction", "choice"),
    [each for each in CHOICES if each[0].types[0] in ("f32", "s32") and each[0].types[1] in ("bf16", "s8")],
    ids=lambda each: str(each).replace(" ", "_"),
)
def test_machine_takes_choices_as_the_device_does(
    instruction: Instruction, choice: Warpgroup, device: Device, seed: int
) -> None:
    same_bits(instruction, choice, device, seed)


@pytest.mark.skipif(arch() != "sm_90a", reason="wgmma is of sm_90a")
@pytest.mark.parametrize("name", KERNELS)
def test_gemm_of_cuda_is_the_same_on_both(name: str) -> None:
    import torch

    m, n, k = 256, 512, 320
    rng = np.random.default_rng(8)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    threads, rows, shared = KERNELS[name]
    launched = lw.cuda(GEMM, arch="sm_90a")[name][(n // 256, m // rows), threads, shared]
    here = np.zeros((m, n), np.float32)
    launched(a, b, here, n, k)
    there = torch.zeros((m, n), dtype=torch.float32, device="cuda")
    launched(*(torch.from_numpy(each.view(np.int16)).cuda() for each in (a, b)), there, n, k)
    assert np.array_equal(here.view(np.uint32), there.cpu().numpy().view(np.uint32))
    expected = lw.instruction(BF16.format(256)).gemm(a, np.ascontiguousarray(b.T), arch="sm_90a")
    assert np.array_equal(here.view(np.uint32), expected.view(np.uint32))


@pytest.mark.skipif(arch() != "sm_90a", reason="wgmma is of sm_90a")
def test_gemm_by_tma_is_the_same_on_both() -> None:
    import torch

    m, n, k = 256, 512, 320
    rng = np.random.default_rng(9)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
    launched = lw.cuda(BY_TMA, arch="sm_90a")["gemm"][(n // 256, m // 128), 384, 3 * 384 * 128]

    def maps(first: Any, second: Any) -> list[Any]:
        pairs = ((first, 128), (second, 256))
        return [lw.tensor_map(each, (rows, 64), swizzle="128B", dtype="bf16") for each, rows in pairs]

    here = np.zeros((m, n), np.float32)
    launched(*maps(a, b), here, n, k)
    there = torch.zeros((m, n), dtype=torch.float32, device="cuda")
    on_device = [torch.from_numpy(each.view(np.int16)).cuda().view(torch.bfloat16) for each in (a, b)]
    launched(*maps(*on_device), there, n, k)
    assert np.array_equal(here.view(np.uint32), there.cpu().numpy().view(np.uint32))
    expected = lw.instruction(BF16.format(256)).gemm(a, np.ascontiguousarray(b.T), arch="sm_90a")
    assert np.array_equal(here.view(np.uint32), expected.view(np.uint32))
