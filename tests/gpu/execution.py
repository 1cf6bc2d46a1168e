"""Run an instruction that multiplies on a device, and hold what it returns against what was expected."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.device import Device, Kernel
from gpu.drawing import Operands
from gpu.kernels import Warpgroup, register_kernel, tile_a, tile_b, warpgroup_kernel
from gpu.tiles import padded
from lanewise.isa import Instruction

PLAIN = Warpgroup()


def name_of(instruction: Instruction) -> str:
    """The instruction's text, and what the text leaves open."""
    source = {"registers": " (A in registers)", "descriptor": " (A in shared memory)"}
    stride = {True: " (stride)", False: ""}[instruction.stride]
    return instruction.text + source.get(instruction.a_source, "") + stride


def selectors(instruction: Instruction) -> range:
    """The values that the sparsity selector may take."""
    return range(instruction.metadata.lane_choices if instruction.sparse else 1)


def kernels(instruction: Instruction, arch: str, choice: Warpgroup = PLAIN) -> Iterator[Kernel]:
    """The kernels that `multiply` will launch, one a selector."""
    for selector in selectors(instruction):
        if instruction.family.startswith("wgmma"):
            yield warpgroup_kernel(instruction, arch, replace(choice, selector=selector))
        else:
            yield register_kernel(instruction, arch, selector)


def multiply(
    device: Device, instruction: Instruction, operands: Operands, choice: Warpgroup = PLAIN
) -> NDArray[Any]:
    """D as the device returns it. The items take the sparsity selectors in turn."""
    d = instruction.d
    result = np.empty((len(operands), *d.matrix_shape), d.format.dtype)
    for selector, kernel in enumerate(kernels(instruction, device.arch, choice)):
        items = slice(selector, None, len(selectors(instruction)))
        inputs = _inputs(instruction, operands, items, replace(choice, selector=selector))
        blank = np.full((len(inputs[0]), d.threads, d.registers), 0x5A5A5A5A, f"uint{d.register_bits}")
        result[items] = d.unpack(device.run(kernel, inputs, blank))
    return result


def _inputs(
    instruction: Instruction, operands: Operands, items: slice, choice: Warpgroup
) -> list[NDArray[Any]]:
    a, b, c = operands.a[items], operands.b[items], operands.c[items]
    packed = [instruction.c.pack(c)]
    if instruction.family.startswith("wgmma"):
        words_b = np.swapaxes(instruction.b.format.to_bits(b), -1, -2)
        packed.insert(0, padded(tile_b(instruction, choice).image(words_b), 16 * instruction.threads))
    else:
        packed.insert(0, instruction.b.pack(b))
    if instruction.a_source == "descriptor":
        image = tile_a(instruction, choice).image(instruction.a.format.to_bits(a))
        packed.insert(0, padded(image, 16 * instruction.threads))
    else:
        packed.insert(0, instruction.a.pack(a))
    if instruction.sparse:
        packed.append(_metadata_words(instruction, operands.further["metadata"][items], choice.selector))
    for name in ("scale_a", "scale_b"):
        if name in operands.further:
            packed.append(instruction.operands[name].pack(operands.further[name][items]))
    return packed


def _metadata_words(instruction: Instruction, indices: NDArray[Any], selector: int) -> NDArray[Any]:
    """The words of E, with noise in the lanes that the selector leaves out."""
    metadata = instruction.metadata
    words = metadata.pack(indices, thread_id=selector)
    noise = np.random.default_rng(selector).integers(0, 2**32, words.shape, np.uint32)
    read = [metadata.selected(lane, 0, selector) for lane in range(metadata.threads)]
    return np.where(np.array(read)[:, None], words, noise)


# comparing -----------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How many elements were compared, how many differ, by family of inputs, and the first that does."""

    compared: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    first: dict[str, Any] | None = None

    @property
    def vectors(self) -> int:
        return sum(self.compared.values())

    @property
    def report(self) -> str:
        """The difference in words; empty if there is none."""
        if self.first is None:
            return ""
        by_family = ", ".join(f"{name}: {count}" for name, count in self.differing.items())
        lines = [
            f"{sum(self.differing.values())} of {self.vectors} elements differ ({by_family}); the first:"
        ]
        return "\n".join(lines + [f"  {name}: {value}" for name, value in self.first.items()])


def compare(
    instruction: Instruction, operands: Operands, expected: NDArray[Any], got: NDArray[Any]
) -> Outcome:
    """Every bit of every element."""
    fmt = instruction.d.format
    left, right = fmt.to_bits(expected), fmt.to_bits(got)
    differs = left != right
    outcome = Outcome()
    per_item = differs.reshape(len(differs), -1)
    for family, count in zip(operands.family, per_item.sum(axis=1), strict=True):
        outcome.compared[family] += per_item.shape[1]
        if count:
            outcome.differing[family] += int(count)
    if outcome.differing:
        place = tuple(int(x) for x in np.argwhere(differs)[0])
        outcome.first = _explain(instruction, operands, place, int(left[place]), int(right[place]))
    return outcome


def _explain(
    instruction: Instruction, operands: Operands, place: tuple[int, ...], expected: int, got: int
) -> dict[str, Any]:
    *item, row, col = place
    lead = tuple(item)

    def hexadecimal(name: str, words: NDArray[Any]) -> str:
        digits = -(-instruction.operands[name].format.bits // 4)
        return " ".join(f"{int(word):0{digits}x}" for word in np.ravel(words))

    bits = {
        name: instruction.operands[name].format.to_bits(array[lead])
        for name, array in (("a", operands.a), ("b", operands.b), ("c", operands.c))
    }
    terms_of_b = bits["b"][:, col]
    found = {
        "inputs": operands.family[place[0]],
        "item, row, column": f"{', '.join(map(str, item))}; {row}, {col}",
        "lane, register, slot": str(tuple(instruction.d.holder(row, col, *item[1:]))),
        "expected": hexadecimal("d", np.array([expected])),
        "returned": hexadecimal("d", np.array([got])),
        "c": hexadecimal("c", bits["c"][row, col]),
    }
    if instruction.sparse:
        columns = instruction.metadata.columns(operands.further["metadata"][lead])[row]
        found["columns that A's row stands in"] = " ".join(map(str, columns))
        terms_of_b = terms_of_b[columns]
    found |= {"row of A": hexadecimal("a", bits["a"][row]), "column of B": hexadecimal("b", terms_of_b)}
    for name in ("scale_a", "scale_b"):
        if name in operands.further:
            scales = instruction.operands[name].format.to_bits(operands.further[name][lead])
            found[name] = hexadecimal(name, scales[row] if name == "scale_a" else scales[:, col])
    return found
