"""What a trace says of registers is what a GPU's registers hold at the same step: probes store them there."""

from typing import Any

import numpy as np
import pytest

from gpu.device import torch_here
from lanewise.ptx.tensor_maps import TensorMap

pytestmark = pytest.mark.gpu
torch = torch_here()

from traces.probes import (  # noqa: E402  # after the test for a GPU
    CASES,
    Case,
    chosen_steps,
    compare_probes,
    holds_data,
    run_probed,
)


def there(value: Any) -> Any:
    """Return an array, or the tensor map of one, on the GPU."""
    if isinstance(value, TensorMap):
        return TensorMap(there(value.array), value.tensor)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16).cuda()
    if value.dtype.kind == "u":  # torch knows few operations on them; the kernel takes bits
        value = value.view(f"int{8 * value.itemsize}")
    return torch.from_numpy(value.copy()).cuda()


def back(value: Any) -> Any:
    torch.cuda.synchronize()
    return value.cpu().numpy().view(np.uint64)


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", CASES)
def test_registers_of_random_steps_are_those_of_a_gpu(name: str) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the traces compute as an H200 does")
    compared = 0
    for seed in range(4):
        case = CASES[name]()
        run = Case(case.configured, tuple(map(copied, case.arguments)), case.arch).trace()
        probes = chosen_steps(run, seed, holds_data)
        assert probes
        compared += compare_probes(probes, run_probed(case, run, probes, there, back))
    assert compared > 100
