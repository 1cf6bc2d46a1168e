"""What matrix instructions call: products compiled once for all kernels where there are such, else Python.

For an instruction that Python computes, each block under way has memory of its own: the stage, with the
registers side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.isa import Instruction, instruction
from lanewise.jit import machine_code
from lanewise.jit.host_memory import address, zeroed_bytes
from lanewise.machine.abi import MmaEntry, RecordLayout, field
from lanewise.machine.launch_info import LaunchInfo

if TYPE_CHECKING:
    from lanewise.arith.models import Model
    from lanewise.jit import ir
    from lanewise.machine.program.ops import Program

#: Operands of which selectors choose a part.
SELECTED = ("metadata", "scale_a", "scale_b")
#: The key of products that a warpgroup computes with the kernels of `arith`.
WARPGROUP_PRODUCT = "wgmma"
#: The key of products of tcgen05, whose code is found by their descriptors when they are computed.
TENSOR_PRODUCT = "tcgen05"
#: The stage begins with a word that Python sets if it failed.
_FIRST = 64

Callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)
#: function(cache, form, descriptor): it puts the product into a ProductCache and returns 0.
Finder = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class ProductCache(RecordLayout):
    """The product that a tcgen05.mma computed last: its form and descriptor, and its record."""

    key = field()
    record = field()


@lru_cache(maxsize=1024)
def stage_offsets(instruction: Instruction) -> dict[str, int]:
    """Where each operand's registers lie in the stage, then the selectors; and its size."""
    place, offsets = _FIRST, {}
    for name in ("a", "b", "c", "d", *SELECTED):
        if name in instruction.operands:
            operand = instruction.operands[name]
            offsets[name] = place
            place += operand.registers * operand.register_bits * 4
    return offsets | {"selectors": place, "size": place + 64}


@lru_cache(maxsize=1024)
def _model_and_writer(
    instruction: Instruction, arch: str
) -> tuple[Model, Callable[[ir.Module], None] | None]:
    """How an arch computes, and what writes `product(frame, places, selectors)`; None: Python does it."""
    from lanewise.arith.on_arrays import required_model
    from lanewise.machine.tensor_core import fused_mma, general_mma

    model = required_model(instruction, arch)
    return model, (fused_mma.writer_of(instruction, model) or general_mma.writer_of(instruction, model))


def product_key(instruction: Instruction, arch: str) -> str | None:
    """The key of the machine code of a product of a warp or warpgroup; None where Python computes it."""
    if instruction.family.startswith("wgmma"):
        return WARPGROUP_PRODUCT
    model, writer = _model_and_writer(instruction, arch)
    if writer is None:
        return None
    facts = (model.scheme, model.satfinite, model.narrowing)  # archs that compute alike have one program
    return f"product {instruction.text} {instruction.fragments_of} {facts}"


def product_program(text: str, arch: str, key: str) -> machine_code.Program:
    """The compiled product of an instruction; nothing that writes it is loaded if it is on disk."""

    def write() -> str:
        from lanewise.jit import ir

        _, writer = _model_and_writer(instruction(text).on(arch), arch)
        assert writer is not None
        module = ir.Module("product")
        writer(module)
        return str(module)

    return machine_code.load(key, write)


def product_sites(program: Program, arch: str) -> dict[Instruction, list[int]]:
    """The products of a program as an arch has them, and where each of them stands."""
    sites: dict[Instruction, list[int]] = {}
    for op in program.sites:
        product = op.source.instruction() if op.record.multiplies else None
        if product is not None and product.multiplies:
            sites.setdefault(product.on(arch), []).append(op.site)
    return sites


def load_products(program: Program, arch: str) -> None:
    """Load or compile what the products of a program call: a launch then finds it in memory."""
    for product in product_sites(program, arch):
        key = product_key(product, arch)
        if key == WARPGROUP_PRODUCT:
            from lanewise.machine.tensor_core.wgmma_product import form_of

            form_of(product, arch).program()
        elif key is not None:
            product_program(product.text, arch, key)


def tensor_sites(program: Program) -> dict[str, tuple[int, ...]]:
    """The products of tcgen05, by the text of the instruction, and where each of them stands."""
    sites: dict[str, tuple[int, ...]] = {}
    for op in program.sites:
        if op.record.touches_tensor_memory and op.record.multiplies:
            sites[op.source.head] = (*sites.get(op.source.head, ()), op.site)
    return sites


class MmaTable:
    """What one block's products call, and the memory for those that Python computes."""

    def __init__(self, info: LaunchInfo, arch: str) -> None:
        self.table = zeroed_bytes(MmaEntry.BYTES * info.sites).view(np.int64)
        self.keep: list[object] = []
        self.failures: list[BaseException] = []
        self._warpgroup_stage: Any = None
        self._tensor_stage: Any = None
        for text, key, sites in info.products:
            row = self._row(text, key, arch) if key != TENSOR_PRODUCT else {}
            for site in sites:
                row = self._of_tensor_core() if key == TENSOR_PRODUCT else row
                for offset, value in row.items():
                    self.table[(site * MmaEntry.BYTES + offset) // 8] = value

    def _row(self, text: str, key: str | None, arch: str) -> dict[int, int]:
        if key == WARPGROUP_PRODUCT:
            return self._of_warpgroup(text, arch)
        if key is not None:
            program = product_program(text, arch, key)
            self.keep.append(program)
            return {MmaEntry.function: program.place("product")}
        product = instruction(text).on(arch)
        stage = zeroed_bytes(stage_offsets(product)["size"])
        self.keep.append(stage)
        return {MmaEntry.function: self._python(product, arch), MmaEntry.stage: address(stage)}

    def _of_warpgroup(self, text: str, arch: str) -> dict[int, int]:
        """The kernels of `arith` that wgmma calls, and a buffer for its operands."""
        from lanewise.machine.tensor_core.wgmma_product import LARGEST_STAGE, form_of

        form = form_of(instruction(text).on(arch), arch)
        program, pack_b, function = form.program()
        self.keep.append(program)
        if self._warpgroup_stage is None:  # all products of a block share it, since they run one by one
            self._warpgroup_stage = zeroed_bytes(LARGEST_STAGE)
        assert form.stage["size"] <= LARGEST_STAGE, text
        entry = {MmaEntry.function: program.place(function), MmaEntry.stage: address(self._warpgroup_stage)}
        return entry | ({MmaEntry.pack_b: program.place(pack_b)} if pack_b else {})

    def _of_tensor_core(self) -> dict[int, int]:
        """What finds a product of tcgen05 by its descriptor, where it keeps it, and a buffer for operands."""
        from lanewise.machine.tensor_core.tcgen05_product import STAGE

        if self._tensor_stage is None:  # all products of a block share it, since they run one by one
            self._tensor_stage = zeroed_bytes(STAGE["size"])
            self._finder = _product_finder(self.failures)
        cache = zeroed_bytes(ProductCache.BYTES)
        self.keep.append(cache)
        return {
            MmaEntry.function: int(ctypes.cast(self._finder, ctypes.c_void_p).value or 0),
            MmaEntry.stage: address(self._tensor_stage),
            MmaEntry.pack_b: address(cache),
        }

    def _python(self, instruction: Instruction, arch: str) -> int:
        """A function that compiled code calls, which computes by `Instruction.__call__`."""
        size = stage_offsets(instruction)["size"]

        def compute(stage: int) -> None:
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(stage))
            try:
                _compute(instruction, arch, memory)
            except BaseException as error:  # nothing may escape into compiled code
                self.failures.append(error)
                memory[:8] = 1

        callback = Callback(compute)
        self.keep.append(callback)
        return int(ctypes.cast(callback, ctypes.c_void_p).value or 0)


def _product_finder(failures: list[BaseException]) -> Any:
    """A function that compiled code calls, which puts the record of a product into a ProductCache.

    It returns 1 if no GPU has such a product. Records live as long as the function: of two that threads make
    at the same time the first one stays, since a site may have its address already.
    """
    records: dict[tuple[int, int], Any] = {}

    def find(cache: int, form: int, descriptor: int) -> int:
        from lanewise.machine.tensor_core.tcgen05_product import prepared

        try:
            record = records.setdefault((form, descriptor), prepared(form, descriptor))
        except LanewiseError:
            return 1
        except BaseException as error:  # nothing may escape into compiled code
            failures.append(error)
            return 1
        ctypes.c_int64.from_address(cache + ProductCache.record).value = record.address
        return 0

    return Finder(find)


def _compute(instruction: Instruction, arch: str, memory: Any) -> None:
    offsets = stage_offsets(instruction)

    def words(name: str) -> Any:
        operand = instruction.operands[name]
        size = operand.registers * operand.register_bits * 4
        raw = memory[offsets[name] : offsets[name] + size].view(f"uint{operand.register_bits}")
        return np.ascontiguousarray(raw.reshape(operand.registers, 32).T)

    options: dict[str, Any] = {}
    selectors = [int(selector) for selector in memory[offsets["selectors"] :].view(np.uint32)]
    for name in SELECTED:
        if name in instruction.operands:
            # Scale factors have byte-id then thread-id; metadata has its selector alone.
            names = ("thread_id",) if name == "metadata" else ("byte_id", "thread_id")
            operand: Any = instruction.operands[name]
            options[name] = operand.unpack(words(name), **{name: selectors.pop(0) for name in names})
    if instruction.family == "wmma.mma" and instruction.satfinite:
        options["satfinite"] = True
    a, b, c = (instruction.operands[name].unpack(words(name)) for name in "abc")
    d = instruction(a, b, c, arch=arch, **options)
    packed = np.ascontiguousarray(instruction.d.pack(d).T)
    memory[offsets["d"] : offsets["d"] + packed.nbytes] = packed.view(np.uint8).reshape(-1)


def mma_table(info: LaunchInfo, arch: str) -> MmaTable | None:
    """What a block's products need; None if the kernel has none."""
    return MmaTable(info, arch) if info.products else None
