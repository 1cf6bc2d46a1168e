"""tcgen05.mma on a B200 or B300: tensor memory after random products, against what lanewise computes.

Nobody has run this yet. It settles most of the table "What rests on a source" of docs/blackwell.md: the
fields of descriptors, where matrices, scale factors and metadata lie, and every bit of the sums.
"""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import TENSOR_MEMORY, torch_here
from lanewise.isa.asynchronous.descriptor import KINDS
from machine.tcgen05_products import SHARED_BYTES, Case, ptx, random_case

torch = torch_here("only sm_100, sm_103 and sm_110 have tensor memory", TENSOR_MEMORY.__contains__)
CAPABILITY = torch.cuda.get_device_capability()
ARCH = f"sm_{CAPABILITY[0]}{CAPABILITY[1]}a"
DRAWN = 40
#: Forms whose bits are published first, then those that are inferred.
CHOICES: dict[str, dict[str, Any]] = {
    "one block": {"cta_group": 1, "ws": False, "sparse": False},
    "a pair": {"cta_group": 2, "ws": False, "sparse": False},
    "sparse": {"ws": False, "sparse": True},
    "ws": {"ws": True, "cta_group": 1},
    "K = 96": {"ws": False, "sparse": False, "k": 96},
}


def on_gpu(case: Case) -> Any:
    """Tensor memory of the blocks after the product, as the GPU leaves it."""
    module = lw.load(ptx([case.statement()], case.blocks, ARCH))
    numbers = np.array([*case.numbers_of_kernel(), 0], np.uint64)
    arrays = (case.shared, case.before, np.zeros_like(case.before), numbers)
    there = [torch.from_numpy(array.reshape(-1).view(np.uint8).copy()).cuda() for array in arrays]
    module["k"][case.blocks, 128, SHARED_BYTES](*there)
    torch.cuda.synchronize()
    return there[2].cpu().numpy().view(np.uint32).reshape(case.before.shape)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit(kind: str, choice: str, seed: int) -> None:
    if (kind == "i8" and ARCH == "sm_103a") or (choice == "ws" and KINDS[kind].block_scaled):
        pytest.skip(f"{ARCH} has no such form")
    if choice == "K = 96" and (ARCH != "sm_103a" or not KINDS[kind].long_k):
        pytest.skip("K = 96 is that of mxf4 and mxf4nvf4 on sm_103a")
    wrong = []
    for number in range(DRAWN):
        case = random_case(seed + number, kind, **CHOICES[choice])
        differing = np.argwhere(on_gpu(case) != case.expected())
        if len(differing):
            wrong.append(
                f"{case.text} {case.descriptor}: {len(differing)} words, first {differing[0].tolist()}"
            )
    assert not wrong, "\n".join(wrong)
