"""One matrix instruction of any scheme: its operands as matrices in memory, then the kernels of `arith`.

Integers, bits, f64, chains of fused multiply-adds, sparse and block-scaled products. The dense fused sums of
one matrix pair have a shorter way (`fused_mma.py`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lanewise.arith import fused_kernel, plain_kernel
from lanewise.arith.batches import vectors_for
from lanewise.arith.decoding import decode, raw_type
from lanewise.arith.fused_engine import in_k_order, plan_for
from lanewise.arith.models import NAN_BITS, FmaChain, FusedSum, IntegerSum, Model, PopcountSum
from lanewise.arith.plain_engine import chunk_of
from lanewise.isa import Instruction, Operand
from lanewise.jit import ir, machine_code
from lanewise.jit.float_mode import float_mode
from lanewise.jit.simd import Code, Pointer, Type, Value, f32, f64, i8, i16, i32, i64, u8, u32
from lanewise.machine.codegen.register_shuffles import (
    VECTOR,
    Places,
    Registers,
    held_places,
    holding,
    index_bits,
    permuted,
    shuffled,
)
from lanewise.machine.tensor_core.mma_function import ProductCode, half_numbers, half_words, operand_registers
from lanewise.machine.tensor_core.sparsity_and_scales import Selections

#: Bits of a word of b1 operands, along K.
BITS = 32


class Unsuited(Exception):
    """Python has to compute it."""


def order_of(operand: Operand, flat: Places) -> tuple[int, ...]:
    """The shuffle that brings elements of the flattened matrix into an order."""
    bits = 32 if operand.slot_bits == 1 else 1
    order = index_bits(held_places(operand)[flat.ravel()] // bits)
    if order is None or min(order[: (VECTOR // max(operand.slot_bits * bits, 8)).bit_length() - 1]) < 0:
        raise Unsuited
    return order


def raw_words(code: Code, registers: Registers, operand: Operand, order: tuple[int, ...]) -> list[Value]:
    """An operand's elements in order: each in the lowest bits of a word; 32 of b1 in one."""
    if operand.slot_bits == 4:
        halves = []
        for pair in registers.load(u8):
            low, high = pair & 15, pair >> 4
            both = [place for lane in range(16) for place in (lane, lane + 16)]
            halves += [shuffled(code, low, high, tuple(both[part : part + 16])) for part in (0, 16)]
        return permuted(code, halves, order)
    word = Type("u", BITS if operand.slot_bits == 1 else operand.slot_bits)
    vectors = permuted(code, registers.load(word), order)
    fmt = operand.format
    if operand.shift or (operand.slot_bits > fmt.bits and fmt.bits < 16):
        vectors = [(vector >> operand.shift) & ((1 << fmt.bits) - 1) for vector in vectors]
    return vectors


class StagedProduct:
    """Writes `product(frame, places, selectors)`."""

    def __init__(self, instruction: Instruction, model: Model) -> None:
        self.instruction, self.model = instruction, model
        self.m, self.n = instruction.m, instruction.n
        self.packed_k, self.k, self.products = instruction.a.cols, instruction.k, instruction.products
        if model.satfinite and not isinstance(model.scheme, IntegerSum):
            raise Unsuited
        if model.narrowing != "rn" or (self.products > 1 and model.sparse):
            raise Unsuited
        self.fused = isinstance(model.scheme, FusedSum)
        k_order = in_k_order(model, np.arange(self.k), axis=0) if self.fused else np.arange(self.k)
        self.k_places = np.argsort(k_order)  # where each column of K goes
        self.sums = {"f64": f64, "s32": i32}.get(model.accumulator, f32)
        if self.fused:
            self.plan = plan_for(model, self.n)
            self.strip = self.plan.strip
        else:
            self.step = plain_kernel.step_of(model, passes_nans=model.accumulator == "f64")
            widest = machine_code.lanes_of(self.step.sum.bits)
            self.cut = plain_kernel.Cut(*vectors_for(self.n, widest))
            self.strip = self.cut.strip
        if self.n % self.strip:
            raise Unsuited
        step = BITS if isinstance(model.scheme, PopcountSum) else 1
        words = np.arange(0, self.k, step)
        first = np.arange(self.products)[:, None, None]
        rows, columns = np.arange(self.m), np.arange(self.n)
        ks = np.arange(self.packed_k) if model.sparse else k_order[words]
        a = (first * self.m + rows[None, :, None]) * self.packed_k + ks[None, None, :]
        b = (first * self.k + k_order[words][None, :, None]) * self.n + columns[None, None, :]
        if not self.fused:  # strip by strip
            b = b.reshape(self.products, len(words), -1, self.strip).swapaxes(1, 2)
        size = self.products * self.m * self.n
        self.orders = {
            "a": order_of(instruction.a, a),
            "b": order_of(instruction.b, b),
            "c": order_of(instruction.c, np.arange(size)),
        }
        d = index_bits(holding(instruction.d))
        if d is None:
            raise Unsuited
        self.orders["d"] = d
        self.words = len(words)
        self.selections = Selections(instruction)

    def write(self, module: ir.Module) -> None:
        """Write the whole module: the product, and the kernels of `arith` that it calls."""
        self.code = code = ProductCode(module, "product")
        self.registers = operand_registers(code, self.instruction)
        self.selections.check(code)
        self.total = self.code.room(self.sums, self.products * self.m * self.n)
        for number, word in enumerate(self._words("c")):
            self.total.store(self._sum(word), number * word.type.lanes)
        if self.fused:
            self._fused(module)
        else:
            self._plain(module)
        self._results()
        code.give(0)

    def _words(self, name: str) -> list[Value]:
        operand = self.instruction.operands[name]
        return raw_words(self.code, self.registers[name], operand, self.orders[name])

    def _put(self, values: list[Value]) -> Pointer:
        """Vectors in memory, one after the other."""
        lanes = values[0].type.lanes
        room = self.code.room(values[0].type.by(1), lanes * len(values))
        for number, value in enumerate(values):
            room.store(value, number * lanes)
        return room

    def _sum(self, words: Value) -> Value:
        """C's words as sums."""
        if self.sums.bits == words.type.bits:
            return words.view(self.sums)
        return half_numbers(words)

    def _results(self) -> None:
        """D's registers from the sums."""
        d = self.instruction.d
        lanes = VECTOR // d.slot_bits
        words = []
        for place in range(0, self.products * self.m * self.n, lanes):
            value = self.total.load(place, lanes)
            if isinstance(self.model.scheme, FmaChain) and self.model.scheme.nan == "one":
                nan = self.code.constant(u32.by(lanes), NAN_BITS["f32"])
                bits = value.view(u32)
                value = ((bits << 1) > 0xFF000000).select(nan, bits).view(f32)
            words.append(half_words(value) if d.slot_bits == 16 else value.view(Type("u", value.type.bits)))
        self.registers["d"].store(permuted(self.code, words, self.orders["d"]))

    # elements -----------------------------------------------------------------------------------------------

    def _element(self, words: Value, name: str) -> Value:
        """Raw words as the plain kernels' elements."""
        fmt = self.instruction.operands[name].format
        match self.model.scheme:
            case PopcountSum():
                return words
            case IntegerSum():
                if fmt.bits == 4 and fmt.signed:
                    words = (words ^ 8) - 8
                return words.view(i8 if fmt.signed else u8).to(i16)
            case FmaChain(format="f64"):
                return words.view(f64)
        return decode(words, fmt) if fmt.bits != 16 or fmt.exponent_bits == 8 else half_numbers(words)

    def _plain(self, module: ir.Module) -> None:
        code, items = self.code, self.products
        if self.model.sparse:
            packed = self._put([self._element(word, "a") for word in self._words("a")])
            a = self.code.room(i16, self.m * self.k)
            self._fill(a, self.m * self.k, code.constant(i16.by(8), 0))
            self.selections.spread(code, self.registers, packed, a, self.k_places)
        else:
            a = self._put([self._element(word, "a") for word in self._words("a")])
        b = self._put([self._element(word, "b") for word in self._words("b")])
        sizes = {
            "a_offsets": self.m * self.words * self.step.element.bits // 8,
            "b_offsets": self.words * self.n * self.step.element.bits // 8,
            "sum_offsets": self.m * self.n * self.step.sum.bits // 8,
        }
        given: dict[str, Value | Pointer] = {"a": a, "b": b, "sum": self.total}
        for name, size in sizes.items():
            given[name] = room = self.code.room(i64, items)
            for item in range(items):
                room.store(code.constant(i64, item * size), item)
        chunk = self.words if isinstance(self.model.scheme, PopcountSum) else chunk_of(self.model, self.k)
        numbers = {
            "first_item": 0, "last_item": items, "rows": self.m, "strips": self.n // self.strip,
            "chunks": self.words // chunk, "chunk": chunk,
        }  # fmt: skip
        given |= {name: code.constant(i64, number) for name, number in numbers.items()}
        kernel = plain_kernel.write_items(module, self.step, self.cut)
        kernel.function.attributes.add("noinline")
        kernel.function.linkage = "private"
        if self.model.rounding == "rn":
            code.call(kernel, **given)
        else:
            with float_mode(code, self.model.rounding):
                code.call(kernel, **given)

    def _fill(self, room: Pointer, count: int, vector: Value) -> None:
        with self.code.loop(count // vector.type.lanes) as number:
            room.store(vector, number * vector.type.lanes)

    # fused sums ---------------------------------------------------------------------------------------------

    def _fused(self, module: ir.Module) -> None:
        code, plan, model = self.code, self.plan, self.model
        m, n, k = self.m, self.n, self.k
        if model.sparse:
            numbers = [
                decode(raw.part(start, 4), model.a) + 0.0
                for raw in self._raw("a")
                for start in range(0, raw.type.lanes, 4)
            ]
            a = self.code.room(f32, m * k)
            self._fill(a, m * k, code.constant(f32.by(4), -0.0))
            self.selections.spread(code, self.registers, self._put(numbers), a, self.k_places)
        else:
            a = self._put(self._raw("a"))
        b = self._put(self._raw("b"))
        blocks, strips = k // plan.length, n // plan.strip
        sizes = {
            "a_val": (f32, m * k), "a_exp": (i8, m * k), "a_flag": (u8, m * blocks), "b_val": (f32, k * n),
            "b_exp": (i8, k * n), "b_flag": (u8, strips * blocks), "scales": (f32, m * plan.strip),
            "sums": (i32, m * plan.strip), "more_sums": (i32, m * plan.strip), "unfit": (u8, m),
            "part": (f32, m * plan.strip),
        }  # fmt: skip
        rooms: dict[str, Value | Pointer] = {name: self.code.room(*size) for name, size in sizes.items()}
        numbers_given = {
            "lda": k, "ldb": n, "ld_sum": n, "rows": m, "blocks": blocks, "strips": strips, "first": 0,
            "last": strips, "scale_steps": model.scale_vec, "scale_columns": n,
        }  # fmt: skip
        given = rooms | {name: code.constant(i64, number) for name, number in numbers_given.items()}
        given |= self.selections.scales(code, self.registers)
        pack_b = fused_kernel.write_pack_b(module, plan)
        rows = fused_kernel.write_rows(module, plan)
        for kernel in (pack_b, rows):
            kernel.function.attributes.add("noinline")
            kernel.function.linkage = "private"
        for product in range(self.products):
            given |= {
                "a": a + product * m * k, "b": b + product * k * n, "sum": self.total + product * m * n,
            }  # fmt: skip
            code.call(pack_b, **{name: given[name] for name in fused_kernel.PACK_B})
            code.call(rows, **{name: given[name] for name in fused_kernel.ROWS})

    def _raw(self, name: str) -> list[Value]:
        """Raw words as the fused kernels take them."""
        word = raw_type(self.instruction.operands[name].format)
        return [held if held.type.bits == word.bits else held.to(word) for held in self._words(name)]


def writer_of(instruction: Instruction, model: Model) -> Callable[[ir.Module], None] | None:
    """What writes the product; None where Python has to compute it."""
    if instruction.family == "wmma.mma" and instruction.satfinite and not model.satfinite:
        return None
    if instruction.satfinite and isinstance(model.scheme, IntegerSum):
        model = replace(model, satfinite=True)
    try:
        return StagedProduct(instruction, model).write
    except Unsuited:
        return None
