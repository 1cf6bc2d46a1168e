"""Tensor copies and bulk copies on a GPU: every byte is what the CPU machine leaves."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from machine.bulk_copy_kernels import REDUCED, STORED, WITHIN, copied, remote
from machine.recorded_copies import recorded
from tensor_copy_cases import IMAGE, THREADS, UNTOUCHED, Case, box_bytes, kernel_text, run, sources

torch = torch_here("bulk copies need sm_90", lambda capability: capability >= (9, 0))

pytestmark = pytest.mark.gpu


def on_gpu(array: np.ndarray) -> Any:
    """Return an array on the device; torch has no unsigned words, which are the same bits."""
    return torch.from_numpy(array.view(np.uint8).copy()).cuda()


def run_on_gpu(case: Case, modules: dict[tuple[str, int], lw.Module]) -> tuple[np.ndarray, np.ndarray]:
    """Run a case on the device; return shared memory and the tensor's memory after it."""
    memory, image = (on_gpu(each) for each in sources(case))
    if case.verb == "load":
        image = torch.full((IMAGE,), UNTOUCHED, dtype=torch.uint8, device="cuda")
    key = case.verb, len(case.dims)
    if key not in modules:
        modules[key] = lw.load(kernel_text(*key))
    encoded = np.frombuffer(case.tensor().encode(memory.data_ptr()), np.uint8)
    coordinates = [each % (1 << 32) for each in (*case.coordinates, 0, 0, 0, 0)[:5]]
    expected = box_bytes(case) if case.verb == "load" else 0
    modules[key]["copy"][1, THREADS, IMAGE](encoded, image, *coordinates, case.where, expected)
    return image.cpu().numpy(), memory.cpu().numpy()


def test_tensor_copies_leave_the_same_bytes_as_the_machine() -> None:
    modules: dict[tuple[str, int], lw.Module] = {}
    good = [case for case, seen in recorded() if "error" not in seen][::5]
    assert len(good) > 80
    for case in good:
        for mine, other in zip(run(case), run_on_gpu(case, modules), strict=True):
            assert np.array_equal(mine, other), case


def test_bulk_copies_leave_the_same_bytes_as_the_machine() -> None:
    a, b = np.arange(1024, dtype=np.uint32), np.zeros(1032, np.uint32)
    clustered = ".param .u64 b)\n.reqnctapercluster 1, 1, 1\n{"
    text = copied("", "shared::cluster").replace(".param .u64 b) {", clustered)
    device = [on_gpu(each) for each in (a, b)]
    lw.load(text)["k"][1, 64](*device)
    lw.load(text)["k"][1, 64](a, b)
    assert np.array_equal(device[1].cpu().numpy(), b.view(np.uint8))


@pytest.mark.parametrize(
    "instructions",
    [
        f"{STORED}.v4.u32 [%r6], {{%r9, %r3, %r4, %r9}}, [%r7];",
        f"{STORED}.b64 [%r6], %rd4, [%r7]; {STORED}.b64 [%r6+8], %rd4, [%r7];",
        f"{REDUCED}.add.u32 [%r6], %r9, [%r7]; {REDUCED}.inc.u32 [%r6+4], %r9, [%r7]; "
        f"{REDUCED}.add.u64 [%r6+8], %rd4, [%r7];",
        f"{WITHIN} [%r6], [%r1], 16, [%r7];",
    ],
)
def test_stores_into_another_block_are_the_machines(instructions: str) -> None:
    text = remote(f"st.shared.u32 [%r1+32], %r9; fence.proxy.async; {instructions}")
    text = text.replace("st.shared.u32 [%r1], %r8;", "st.shared.v4.u32 [%r1], {%r8, 0, 0, 0};")
    mine, device = np.zeros((4, 4), np.uint32), on_gpu(np.zeros(16, np.uint32))
    lw.load(text)["k"][4, 1](np.zeros(4, np.uint32), mine, cluster=4)
    lw.load(text)["k"][4, 1](on_gpu(np.zeros(4, np.uint32)), device, cluster=4)
    assert np.array_equal(device.cpu().numpy(), mine.view(np.uint8).ravel())
