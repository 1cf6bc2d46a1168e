"""The kernels of matrix products on a GPU: the bits of the CPU machine and of the instruction's sums."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.device import torch_here
from lanewise.formats import bf16, e4m3, f32, format_of, tf32
from lanewise.linalg.arrays import Pointers, device_view
from lanewise.linalg.kernels.family import run
from lanewise.linalg.kernels.fused_epilogue import ACTIVATIONS
from lanewise.linalg.kernels.hopper import launches as hopper
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue
from linalg.hopper_products import plan, product
from linalg.shared_k_cases import CASES as SHARED_K
from linalg.shared_k_cases import operands
from linalg.split_sums import in_parts
from linalg.warpgroup_cases import CASES, rounded

pytestmark = pytest.mark.gpu
torch = torch_here("wgmma needs sm_90a", lambda capability: capability[0] == 9)

_TYPES = {
    "bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "int32": torch.int32,
    "int8": torch.int8, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2,
}  # fmt: skip


def on_gpu(array: Any) -> Any:
    """Return an array on the GPU, its axes in memory as they were."""
    if array is None:
        return None
    plain = array.flags.c_contiguous
    rows = array if plain else np.ascontiguousarray(array.swapaxes(-1, -2))
    found = torch.from_numpy(rows.view(np.uint8)).cuda().view(_TYPES[array.dtype.name])
    return found if plain else found.swapaxes(-1, -2)


def there(pointers: Pointers, workspace: int = 0) -> tuple[Pointers, Any]:
    """Return the arrays of a problem on the GPU, as launches take them, and the tensor of the result."""
    names = ("a", "b", "out", "bias", "residual", "scale_a", "scale_b", "scale_out")
    moved = {name: on_gpu(getattr(pointers, name)) for name in names}
    moved["workspace"] = torch.zeros(workspace, dtype=torch.uint8, device="cuda")
    _KEPT.append(moved)
    views: dict[str, Any] = {
        name: device_view(
            0, tensor.data_ptr(), tensor.shape, tensor.stride(), format_of(str(tensor.dtype)[len("torch.") :])
        )
        for name, tensor in moved.items()
        if tensor is not None
    }
    return replace(pointers, **views), moved["out"]


#: Tensors that views of their memory do not keep.
_KEPT: list[Any] = []


def same(result: Any, wanted: Any) -> bool:
    """Return whether a result has the bits that are wanted."""
    found = result.contiguous().view(torch.uint8).cpu().numpy()
    return np.array_equal(found.reshape(-1), np.ascontiguousarray(wanted).view(np.uint8).reshape(-1))


@pytest.mark.parametrize("name", SHARED_K)
def test_k_that_blocks_share(name: str) -> None:
    """Arrays that begin at any element: the bits of the plan's order of sums."""

    def beside(array: Any, begin: int) -> Any:
        plain = array.flags.c_contiguous
        rows = np.ascontiguousarray(array if plain else array.swapaxes(-1, -2))
        flat = torch.empty(begin + rows.size, dtype=torch.int16, device="cuda")
        flat[begin:] = torch.from_numpy(rows.view(np.int16).reshape(-1)).cuda()
        made = flat[begin:].view(_TYPES[array.dtype.name]).view(rows.shape)
        return made if plain else made.swapaxes(-1, -2)

    for dtype in (np.float16, bf16.dtype):
        for batch in ((), (3,)):
            a, b, chosen = operands(name, dtype, batch)
            given = [beside(array, begin) for array, begin in zip((a, b), SHARED_K[name][-1], strict=True)]
            assert same(lw.matmul(*given, plan=chosen), lw.matmul(a, b, plan=chosen))


@pytest.mark.parametrize("name", CASES)
def test_bits_of_the_instruction(name: str) -> None:
    """Types, layouts, clusters and schedules."""
    sizes, chosen, _ = CASES[name]
    problem, pointers, sums = product(**sizes)
    moved, out = there(pointers)
    run(hopper.launches(problem, chosen, moved))
    assert same(out, rounded(sums, pointers.out.dtype))


@pytest.mark.parametrize(
    "chosen",
    [
        plan((64, 16, 64), split=2, swap=True),
        plan((128, 64, 64), split=2, cluster=(2, 1)),
        plan((64, 64, 64), groups=3),
        plan((64, 128, 64), split=8),
        plan((64, 128, 64), split=4, groups=4),
        plan((64, 64, 64), groups=3, gather=True),
        plan((64, 16, 64), groups=11, gather=True, swap=True),
        plan((64, 128, 64), split=2, groups=4, gather=True),
        plan((64, 64, 64), cluster=(2, 2), stages=3),
        plan((64, 32, 64), cluster=(1, 2), stages=2, l2="nf"),
    ],
    ids=lambda chosen: f"{chosen.split}x{chosen.groups}{' gathered' if chosen.gather else ''}",
)
def test_parts_of_k(chosen: Plan) -> None:
    """The order of additions is the plan's, whoever comes last."""
    problem, pointers, _ = product(13 if chosen.swap else 70, 72, 1352, bf16, bf16, bf16, layout="NT")
    moved, out = there(pointers, hopper.workspace_bytes(problem, chosen))
    wanted = in_parts(pointers.a, pointers.b.T, chosen).astype(bf16.dtype)
    for _ in range(20):
        out.fill_(0)
        run(hopper.launches(problem, chosen, moved))
        assert same(out, wanted)


@pytest.mark.parametrize(
    ("dtype", "layout", "out", "step"),
    [(bf16, "NN", bf16, 64), (bf16, "TT", bf16, 64), (e4m3, "TN", f32, 128), (tf32, "TN", f32, 32)],
)
def test_copies_first(dtype: Any, layout: str, out: Any, step: int) -> None:
    """Odd sizes by way of a workspace."""
    problem, pointers, sums = product(67, 61, 77, dtype, dtype, out, layout=layout)
    chosen = replace(plan((64, 64, step)), copy_a=True, copy_b=True)
    moved, result = there(pointers, hopper.workspace_bytes(problem, chosen))
    run(hopper.launches(problem, chosen, moved))
    assert same(result, sums.astype(pointers.out.dtype))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogues_have_the_machine_s_bits(activation: str) -> None:
    """Activations are made of exact operations: the CPU machine gives the same f32."""
    rng = np.random.default_rng(0)
    epilogue = Epilogue(bias="row", bias_dtype=bf16, activation=activation, alpha=True)
    bias = rng.normal(size=200).astype(bf16.dtype)
    problem, pointers, _ = product(
        300, 200, 256, bf16, bf16, f32, layout="NT", epilogue=epilogue, bias=bias, alpha=0.37
    )
    moved, out = there(pointers)
    for each in (pointers, moved):
        run(hopper.launches(problem, plan((128, 64, 64)), each))
    assert same(out, pointers.out)
