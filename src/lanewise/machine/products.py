"""What matrix instructions call: the compiled sums of `lanewise.arith` where they fit, else Python.

For every such instruction of a kernel, each block under way has memory of its own: the stage (registers side
by side), matrices, and the arguments of the compiled function.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lanewise.arith import fused_kernel
from lanewise.arith.compute import carries_d, required_model
from lanewise.arith.fused_engine import FusedWork, in_k_order, program_for
from lanewise.arith.machine_code import address
from lanewise.arith.models import FusedSum, Model
from lanewise.isa import Instruction
from lanewise.machine.memory import room
from lanewise.machine.program import Compiled

#: What is prepared for an instruction: offsets into its row of the table.
SLOTS = {"function": 0, "arguments": 8, "stage": 16, "a": 24, "b": 32, "sums": 40}
TABLE_BYTES = 48
MATRIX_OPCODES = ("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix")
STAGE_BYTES = 16384
#: The stage begins with a word that Python sets if it failed.
_FIRST = 64

Callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@lru_cache(maxsize=1024)
def stage_offsets(instruction: Instruction) -> dict[str, int]:
    """Where each operand's registers lie in the stage."""
    place, found = _FIRST, {}
    for name in ("a", "b", "c", "d", "metadata", "scale_a", "scale_b"):
        if name in instruction.operands:
            operand = instruction.operands[name]
            found[name] = place
            place += operand.registers * operand.register_bits * 4
            if name in ("metadata", "scale_a", "scale_b"):
                found[f"{name}.selector"] = place
                place += 64
    assert place <= STAGE_BYTES
    return found


@dataclass(frozen=True)
class FusedProduct:
    """A product that `lanewise.arith` has compiled: its model, and the order in which it takes elements."""

    model: Model
    padded: int
    a_order: Any
    b_order: Any

    @property
    def row(self) -> int:
        """Elements from one row of the sums to the next."""
        return self.padded


@lru_cache(maxsize=1024)
def compiled_product(instruction: Instruction, arch: str) -> FusedProduct | None:
    """The compiled form of a product, if it is a plain fused sum of one matrix pair."""
    model = required_model(instruction, arch)
    plain = (
        isinstance(model.scheme, FusedSum)
        and not model.sparse
        and model.scale is None
        and instruction.products == 1
        and carries_d(model)
        and not (instruction.satfinite or model.satfinite)
        and instruction.a.slot_bits == instruction.a.format.bits in (8, 16)
        and instruction.b.slot_bits == instruction.b.format.bits
        and instruction.c.format.name in ("f16", "f32")
    )
    if not plain:
        return None
    plan, _ = program_for(model, instruction.n)
    padded = instruction.n + -instruction.n % plan.strip
    if padded != instruction.n:
        return None
    flat_a = np.arange(instruction.m * instruction.k).reshape(instruction.m, instruction.k)
    flat_b = np.arange(instruction.k * instruction.n).reshape(instruction.k, instruction.n)
    a_order = np.ascontiguousarray(in_k_order(model, flat_a, axis=-1)).ravel()
    b_order = np.ascontiguousarray(in_k_order(model, flat_b, axis=-2)).ravel()
    return FusedProduct(model, padded, a_order, b_order)


class Scratch:
    """The memory of one block's matrix instructions."""

    def __init__(self, compiled: Compiled) -> None:
        sites = compiled.program.sites
        self.table = room(TABLE_BYTES * len(sites)).view(np.int64)
        self.keep: list[Any] = []
        self.failures: list[BaseException] = []
        made: dict[str, dict[str, int]] = {}
        for op in sites:
            if op.opcode not in MATRIX_OPCODES:
                continue
            instruction = op.source.instruction()
            if instruction is None:
                continue
            if instruction.text not in made:
                made[instruction.text] = self._row(instruction, compiled.arch)
            for name, value in made[instruction.text].items():
                self.table[op.site * TABLE_BYTES // 8 + SLOTS[name] // 8] = value

    def _room(self, size: int) -> int:
        memory = room(size)
        self.keep.append(memory)
        return address(memory)

    def _row(self, instruction: Instruction, arch: str) -> dict[str, int]:
        found = {"stage": self._room(STAGE_BYTES)}
        if not instruction.multiplies:
            return found
        fast = compiled_product(instruction, arch)
        if fast is None:
            return found | {"function": self._python(instruction, arch)}
        return found | self._fused(instruction, fast)

    def _fused(self, instruction: Instruction, fast: FusedProduct) -> dict[str, int]:
        model = fast.model
        plan, program = program_for(model, instruction.n)
        m, k, n = instruction.m, instruction.k, fast.padded
        a = np.zeros((m, k), model.a.word_dtype)
        b = np.zeros((k, n), model.b.word_dtype)
        sums = np.zeros((m, n), np.float32)
        work = FusedWork(plan, program, a, b, sums, (), None, None)
        space = (
            work.room_for_rows(m)
            | work.room_for_b(n)
            | {name: np.zeros(1, np.int64) for name in work.starts()}
        )
        given = {
            "a": address(a), "b": address(b), "sum": address(sums), "rows": m, "strips": n // plan.strip,
            "first_item": 0, "last_item": 1,
        }  # fmt: skip
        values = work.common() | {name: address(array) for name, array in space.items()} | given
        arguments = np.array([values.get(each, 0) for each in fused_kernel.ITEMS], np.int64)
        self.keep += [a, b, sums, space, arguments, program]
        return {
            "function": program.place("items"),
            "arguments": address(arguments),
            "a": address(a),
            "b": address(b),
            "sums": address(sums),
        }

    def _python(self, instruction: Instruction, arch: str) -> int:
        """A function that compiled code calls, which computes by `Instruction.__call__`."""

        def compute(stage: int) -> None:
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * STAGE_BYTES).from_address(stage))
            try:
                _compute(instruction, arch, memory)
            except BaseException as error:  # nothing may escape into compiled code
                self.failures.append(error)
                memory[:8] = 1

        callback = Callback(compute)
        self.keep.append(callback)
        return int(ctypes.cast(callback, ctypes.c_void_p).value or 0)


def _compute(instruction: Instruction, arch: str, memory: Any) -> None:
    offsets = stage_offsets(instruction)

    def words(name: str) -> Any:
        operand = instruction.operands[name]
        size = operand.registers * operand.register_bits * 4
        raw = memory[offsets[name] : offsets[name] + size].view(f"uint{operand.register_bits}")
        return np.ascontiguousarray(raw.reshape(operand.registers, 32).T)

    options: dict[str, Any] = {}
    for name in ("metadata", "scale_a", "scale_b"):
        if name in instruction.operands:
            start = offsets[f"{name}.selector"]
            selectors = memory[start : start + 8].view(np.uint32)
            # Scale factors have byte-id then thread-id; metadata has its selector alone.
            chosen = (
                {"thread_id": int(selectors[0])}
                if name == "metadata"
                else {"byte_id": int(selectors[0]), "thread_id": int(selectors[1])}
            )
            operand: Any = instruction.operands[name]
            options[name] = operand.unpack(words(name), **chosen)
    if instruction.family == "wmma.mma" and instruction.satfinite:
        options["satfinite"] = True
    a, b, c = (instruction.operands[name].unpack(words(name)) for name in "abc")
    d = instruction(a, b, c, arch=arch, **options)
    packed = np.ascontiguousarray(instruction.d.pack(d).T)
    size = packed.nbytes
    memory[offsets["d"] : offsets["d"] + size] = packed.view(np.uint8).reshape(-1)


def scratch_for(compiled: Compiled) -> Scratch | None:
    """The memory that a block's matrix instructions need; None if the kernel has none."""
    if not any(op.opcode in MATRIX_OPCODES for op in compiled.program.sites):
        return None
    return Scratch(compiled)
