"""What the device computes, against `instruction(a, b, c, arch=…)`, in every bit of every element.

Each instruction gets items of every family in `inputs.py`; the record says how many elements were compared.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lanewise  # sets up what instructions compute
from gpu.device import Device, launches
from gpu.drawing import Operands
from gpu.execution import PLAIN, Outcome, compare, kernels, multiply, name_of
from gpu.forms import MULTIPLYING, arch, forms
from gpu.inputs import families, operands
from gpu.kernels import Warpgroup
from gpu.record import Record
from gpu.wgmma_choices import CHOICES, negated
from lanewise.isa import Instruction, arch_number

assert lanewise.__version__


def items_per_family(instruction: Instruction) -> int:
    """Enough for 160 warps or 32 warpgroups in all, and more where that is cheap."""
    if instruction.family.startswith("wgmma"):
        wanted, least = (32, 4) if instruction.n > 64 else (96, 8)
    else:
        wanted, least = 288, 18
    return max(least, -(-wanted // len(families(instruction))))


def expected(instruction: Instruction, given: Operands, choice: Warpgroup) -> NDArray[Any]:
    """What lanewise computes, with wgmma's own choices brought into the operands."""
    a, b = given.a, given.b
    if choice.negate_a:
        a = negated(instruction.a.format, a)
    if choice.negate_b:
        b = negated(instruction.b.format, b)
    c = given.c if choice.accumulate else None
    return instruction(a, b, c, arch=arch(), **given.further)


def check(
    check: str,
    instruction: Instruction,
    choice: Warpgroup,
    device: Device,
    record: Record,
    seed: int,
    count: int,
) -> None:
    name = name_of(instruction) + (f" ({choice})" if str(choice) else "")
    given = operands(instruction, count, seed)
    returned = multiply(device, instruction, given, choice)
    try:
        computed = expected(instruction, given, choice)
    except Exception as error:
        record.failed(check, name, error)
        raise
    outcome = compare(instruction, given, computed, returned)
    record.add(check, name, outcome)
    assert not outcome.first, f"{name}\n{outcome.report}"


@launches(lambda instruction: kernels(instruction, arch()))
@pytest.mark.parametrize("instruction", forms(*MULTIPLYING), ids=name_of)
def test_every_bit(instruction: Instruction, device: Device, record: Record, seed: int) -> None:
    check("every bit", instruction, PLAIN, device, record, seed, items_per_family(instruction))


@launches(lambda instruction, choice: kernels(instruction, arch(), choice))
@pytest.mark.parametrize(("instruction", "choice"), CHOICES, ids=lambda each: str(each).replace(" ", "_"))
def test_choices_of_wgmma(
    instruction: Instruction, choice: Warpgroup, device: Device, record: Record, seed: int
) -> None:
    check("choices of wgmma", instruction, choice, device, record, seed, 2)


WITHDRAWN = [
    each for each in forms("wmma.mma", withdrawn=True) if each.until and each.layouts == ("row", "col")
]


@launches(
    lambda instruction: [
        *kernels(instruction, arch()),
        *kernels(replace(instruction, satfinite=False), arch()),
    ]
)
@pytest.mark.parametrize("instruction", WITHDRAWN, ids=name_of)
def test_withdrawn_satfinite(instruction: Instruction, device: Device, record: Record, seed: int) -> None:
    """ptxas 13 drops wmma's float `.satfinite` from sm_80 on: same bits as without it.

    Only the narrowing of an f32 sum to f16 changes: toward zero, so that no finite sum overflows to Inf.
    """
    if arch_number(device.arch) < 80:
        pytest.skip("Turing has the modifier in hardware")
    given = operands(instruction, 18, seed)
    returned = multiply(device, instruction, given)
    narrowed = (instruction.c.format.name, instruction.d.format.name) == ("f32", "f16")
    if narrowed:
        wide = lanewise.instruction(instruction.text.replace("f16.f32.satfinite", "f32.f32"))
        sums = multiply(device, wide, given)
        plain = toward_zero(sums)
    else:
        plain = multiply(device, replace(instruction, satfinite=False), given)
    outcome: Outcome = compare(instruction, given, plain, returned)
    record.add("withdrawn satfinite equals none (narrowing: toward zero)", name_of(instruction), outcome)
    assert not outcome.first, outcome.report


def toward_zero(sums: NDArray[np.float32]) -> NDArray[np.float16]:
    """f32 to f16, rounded toward zero; Inf stays Inf, a NaN is 0x7FFF."""
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = sums.astype(np.float16)
    away = np.abs(nearest.astype(np.float64)) > np.abs(sums.astype(np.float64))
    bits = nearest.view(np.uint16) - away.astype(np.uint16)  # one step toward zero in sign and magnitude
    bits = np.where(np.isnan(sums), np.uint16(0x7FFF), bits)
    return bits.astype(np.uint16).view(np.float16)
