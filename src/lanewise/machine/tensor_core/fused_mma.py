"""One matrix instruction with a truncated fused sum: from the registers of a warp to the registers of a warp.

Ordinary numbers go the short way of this file; where an infinity, a NaN or an extreme exponent turns up, the
block of K goes the ways of `lanewise.arith`, which have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from lanewise.arith.decoding import decode, raw_type
from lanewise.arith.fused_engine import in_k_order, plan_for
from lanewise.arith.fused_kernel import add_parts, quieten, write_block
from lanewise.arith.fused_narrow import (
    BIAS,
    FLOOR,
    HIGHEST,
    LOWEST,
    ZERO,
    add_products,
    exponents,
    in_halves,
    nearest_half,
    rounded_sum,
)
from lanewise.arith.fused_tiles import Block, PackedRows, Plan, Room, Tile
from lanewise.arith.models import FusedSum, Model
from lanewise.arith.on_arrays import carries_d
from lanewise.formats import Format
from lanewise.isa import Instruction
from lanewise.jit import ir, machine_code
from lanewise.jit.simd import Pointer, Type, Value, f32, i8, i32, i64, u8, u16, u32
from lanewise.machine.codegen.register_shuffles import (
    VECTOR,
    Registers,
    held_places,
    holding,
    index_bits,
    permuted,
    shuffled,
)
from lanewise.machine.tensor_core.mma_function import (
    FLOAT16,
    ProductCode,
    half_numbers,
    half_words,
    operand_registers,
)

#: A vector of bytes, for exponents.
BYTES = VECTOR // 8


@dataclass(frozen=True)
class Orders:
    """For A as [block][row][k], B as [block][k][column], C as [row][column] and D's registers: index bits."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    d: tuple[int, ...]


def orders(instruction: Instruction, plan: Plan, product: int) -> Orders | None:
    """The shuffles of one of the instruction's products; None where the layouts do not allow them."""
    m, n, k = instruction.m, instruction.n, instruction.a.cols
    taken = in_k_order(plan.model, np.arange(k), axis=0).reshape(-1, plan.length)
    flat = {
        "a": np.arange(m)[None, :, None] * k + taken[:, None, :] + product * m * k,
        "b": taken[:, :, None] * n + np.arange(n)[None, None, :] + product * k * n,
        "c": np.arange(m * n) + product * m * n,
    }
    found = {name: index_bits(held_places(instruction.operands[name])[flat[name].ravel()]) for name in flat}
    d = index_bits(holding(instruction.d)) if instruction.products == 1 else None
    if d is None or any(bits is None for bits in found.values()):
        return None
    return Orders(found["a"] or (), found["b"] or (), found["c"] or (), d)


class FusedProduct:
    """Writes `product(frame, places)`: the registers' offsets lie at `places`, those of D, A, B, C."""

    def __init__(self, module: ir.Module, instruction: Instruction, plan: Plan, order: Orders) -> None:
        self.instruction, self.plan, self.order = instruction, plan, order
        self.code = ProductCode(module, "product")
        self.m, self.n, self.k = instruction.m, instruction.n, instruction.a.cols
        self.blocks = self.k // plan.length

    def write(self) -> None:
        """The whole function."""
        code = self.code
        registers = operand_registers(code, self.instruction)
        m, n, k = self.m, self.n, self.k
        a_values, a_exponents = code.room(f32, m * k), code.room(i8, m * k)
        b_values, b_exponents = code.room(f32, k * n), code.room(i8, k * n)
        self.sums = Tile(code.room(f32, m * n), code.constant(i64, n))
        self.room = Room(
            code.room(f32, m * n), code.room(i32, m * n), code.room(i32, m * n), code.room(u8, m)
        )
        self.part = Tile(code.room(f32, m * n), code.constant(i64, n))
        a_flags = code.room(u8, m)
        unfit_a = self._unpack(registers["a"], self.order.a, "a", a_values, a_exponents)
        unfit_b = self._unpack(registers["b"], self.order.b, "b", b_values, b_exponents)
        self._sums_in(registers["c"])
        rows = code.constant(i64, m)
        last = self.plan.scheme.c_enters == "last"
        if last:
            quieten(code, self.plan, rows, self.sums)
        places: list[tuple[Tile | None, Tile]] = (
            [(None, self.part), (self.part, self.part)] if last else [(self.sums, self.sums)]
        )
        length = self.plan.length
        with code.loop(self.blocks // len(places)) as step:
            for number, (before, after) in enumerate(places):
                block = step * len(places) + number
                work = Block(
                    rows=rows,
                    a=PackedRows(
                        a_values + block * (m * length),
                        a_exponents + block * (m * length),
                        a_flags,
                        code.constant(i64, 1),
                    ),
                    number=code.constant(i64, 0),
                    first_column=code.constant(i64, 0),
                    b_values=b_values + block * (length * n),
                    b_exponents=b_exponents + block * (length * n),
                    b_flag=unfit_b.to(u8),
                    room=self.room,
                    before=before,
                    after=after,
                )
                self._block(work, unfit_a | unfit_b, a_flags)
            if last:
                add_parts(code, self.plan, rows, self.sums, self.part)
        self._sums_out(registers["d"])
        code.give(0)

    # operands -----------------------------------------------------------------------------------------------

    def _unpack(
        self, registers: Registers, order: tuple[int, ...], name: str, values: Pointer, exps: Pointer
    ) -> Value:
        """An operand's numbers and exponents, in order; returns whether some do not fit."""
        operand = self.instruction.operands[name]
        fmt, emin = operand.format, self.plan.model.emin("a" if name == "a" else "b")
        word = Type("u", operand.slot_bits)
        vectors = permuted(self.code, registers.load(word), order)
        if operand.shift or operand.slot_bits > fmt.word_bits:
            vectors = [(each >> operand.shift).to(raw_type(fmt)) for each in vectors]
        if fmt.bits < fmt.word_bits and fmt.bits < 19:
            vectors = [each & ((1 << fmt.bits) - 1) for each in vectors]
        if fmt.bits == 16 and emin == fmt.emin:
            return self._unpack_words(vectors, fmt, values, exps)
        code, lanes = self.code, vectors[0].type.lanes
        raw = code.room(vectors[0].type.by(1), lanes * len(vectors))
        for number, each in enumerate(vectors):
            raw.store(each, number * lanes)
        unfit = code.variable(code.constant(u8, 0))
        with code.loop(lanes * len(vectors) // 4) as group:
            decoded = decode(raw.load(group * 4, 4), fmt)
            exponent, outside = exponents(decoded, fmt, emin)
            values.store(decoded, group * 4)
            exps.store(exponent, group * 4)
            unfit.set(unfit.get() | outside.to(u8))
        return unfit.get().differs(0)

    def _unpack_words(self, vectors: list[Value], fmt: Format, values: Pointer, exps: Pointer) -> Value:
        """16-bit formats: exponents by 16-bit arithmetic, eight at a time."""
        code = self.code
        lanes = vectors[0].type.lanes
        lowest, highest = (-1, -1) if fmt.exponent_bits < 8 else (LOWEST, HIGHEST)
        smallest = code.constant(u16.by(lanes), -1)
        largest = code.constant(u16.by(lanes), 0)
        for number, raw in enumerate(vectors):
            magnitude = raw << 1
            exponent = (magnitude >> (fmt.mantissa_bits + 1)).max(1) - fmt.bias
            if fmt.exponent_bits == 8:
                exponent = (magnitude >> (fmt.mantissa_bits + 1)) - fmt.bias
                # Zeros wrap around to the largest.
                smallest = _least(smallest, magnitude - 1)
            largest = largest.max(magnitude)
            exponent = magnitude.equals(0).select(code.constant(u16.by(lanes), ZERO), exponent)
            exps.store(exponent.to(Type("i", 8)), number * lanes)
            values.store(_numbers(raw, fmt), number * lanes)
        if fmt.exponent_bits < 8:
            top = ((1 << fmt.exponent_bits) - 1) << (fmt.mantissa_bits + 1)
            return (largest > top - 1).any()
        shift = fmt.mantissa_bits + 1
        beyond = largest > ((highest + 1 + fmt.bias) << shift) - 1
        return (beyond | (smallest < (((lowest + fmt.bias) << shift) - 1))).any()

    def _sums_in(self, registers: Registers) -> None:
        """C as f32."""
        operand = self.instruction.c
        word = Type("u", operand.slot_bits)
        for number, each in enumerate(permuted(self.code, registers.load(word), self.order.c)):
            value = each.view(f32) if word.bits == 32 else half_numbers(each)
            self.sums.first.store(value, number * each.type.lanes)

    def _sums_out(self, registers: Registers) -> None:
        """D from f32."""
        operand = self.instruction.d
        lanes = VECTOR // operand.slot_bits
        found = []
        for place in range(0, self.m * self.n, lanes):
            value = self.sums.first.load(place, lanes)
            found.append(value.view(u32) if operand.slot_bits == 32 else half_words(value))
        registers.store(permuted(self.code, found, self.order.d))

    # sums ---------------------------------------------------------------------------------------------------

    def _block(self, work: Block, unfit: Value, a_flags: Pointer) -> None:
        """One block of K: the short way if everything fits."""
        code, plan = self.code, self.plan
        if not plan.narrow:
            a_flags.store(code.constant(u8.by(self.m), 0))
            write_block(code, plan, work, None)
            return
        unfit = unfit | self._scales(work)
        with code.builder.if_else(unfit.handle) as (otherwise, short):
            with short:
                self.room.unfit.store(code.constant(u8.by(self.m), 0))
                for column in range(0, plan.strip, plan.lanes):
                    add_products(code, plan, work, column)
                self._round(work)
            with otherwise:
                with code.loop(self.m) as row:
                    flag = code.variable(code.constant(u8, 0))
                    with code.loop(plan.length) as k:
                        value = work.a.values.load(row * plan.length + k)
                        bad = exponents(value, plan.model.a, plan.model.emin("a"))[1]
                        flag.set(flag.get() | bad.to(u8))
                    a_flags.store(flag.get(), row)
                write_block(code, plan, work, None)

    def _scales(self, work: Block) -> Value:
        """2^(fraction - e_max) of every element; returns whether some C does not fit."""
        code, plan, n = self.code, self.plan, self.n
        together = max(1, BYTES // n)
        width = n * together
        b = []
        for k in range(plan.length):
            row = work.b_exponents.load(k * n, n)
            b.append(row if together == 1 else shuffled(code, row, None, tuple(range(n)) * together))
        floor = BIAS + (max(plan.scheme.e_zero, FLOOR) if plan.half else FLOOR)
        sums = u32.by(plan.lanes)
        smallest, largest = code.variable(code.constant(sums, -1)), code.variable(code.constant(sums, 0))
        with code.loop(self.m // together) as group:
            a = work.a.exponents.load(group * (together * plan.length), together * plan.length)
            found = []
            for k in range(plan.length):
                mask = tuple(row * plan.length + k for row in range(together) for _ in range(n))
                found.append(shuffled(code, a, None, mask).saturating_add(b[k]))
            tops = reduce(Value.max, found).to(i32)
            for start in range(0, width, plan.lanes):
                place = group * width + start
                e_max = (tops.part(start, plan.lanes) + BIAS).max(floor)
                if work.before is not None:
                    magnitude = work.before.first.load(place, plan.lanes).view(u32) << 1
                    largest.set(largest.get().max(magnitude))
                    field = (magnitude >> 24).view(i32)
                    if plan.half:
                        zero = field.differs(0).mask(field.type)
                        field = field.max(BIAS + plan.sum_emin) & zero
                    else:
                        smallest.set(_least(smallest.get(), magnitude - 1))
                    e_max = e_max.max(field)
                scale = (((2 * BIAS + plan.scheme.fraction) - e_max) << 23).view(f32)
                self.room.scales.store(scale, place)
        unfit = largest.get() > 0xFF000000 - 1
        if not plan.half:
            unfit = unfit | (smallest.get() < ((floor << 24) - 1))
        return unfit.any()

    def _round(self, work: Block) -> None:
        """The sums of a block, rounded, to where its results go."""
        code, plan = self.code, self.plan
        with code.loop(self.m * self.n // plan.lanes) as vector:
            place = vector * plan.lanes
            unit = ((2 * BIAS) << 23) - self.room.scales.load(place, plan.lanes).view(i32)
            work.after.first.store(self._rounded(work, place, unit.view(f32)), place)

    def _rounded(self, work: Block, place: Value, unit: Value) -> Value:
        plan = self.plan
        if plan.bound < 1 << 24 or in_halves(plan):
            return rounded_sum(plan, work, place, unit)
        total = self.room.sums.load(place, plan.lanes)
        if plan.half:
            return self._nearest(total, unit)
        number = total.to(f32)  # to nearest; one step back where that was away from zero
        back = number.to(i32)
        size = [self.code.intrinsic("abs", i32.by(plan.lanes), [each, self._false]) for each in (back, total)]
        bits = number.view(i32) + (size[0] > size[1]).mask(back.type)
        return bits.view(f32) * unit

    @property
    def _false(self) -> Value:
        return self.code.constant(Type("u", 1), 0)

    def _nearest(self, total: Value, unit: Value) -> Value:
        """An exact sum of int32 to the nearest f16."""
        code, plan = self.code, self.plan
        # Beyond 24 bits f32 has no room: the last bits become a sticky one, far below what f16 keeps.
        excess = int(np.ceil(np.log2(plan.bound))) - 23
        low = (total & ((1 << excess) - 1)).differs(0).mask(total.type) & (1 << excess)
        sticky = (total & -(1 << excess)) | low
        size = code.intrinsic("abs", i32.by(plan.lanes), [total, self._false])
        number = (size > (1 << 24)).select(sticky, total).to(f32) * unit
        if plan.scheme.underflow != "signed" and machine_code.has_half_floats():
            return number.to(FLOAT16).to(f32) + 0.0
        bits = number.view(u32)
        return nearest_half(plan, (bits & 0x7FFFFFFF).view(f32), bits & 0x80000000)


def _least(a: Value, b: Value) -> Value:
    return a.code.intrinsic("umin", a.type, [a, b])


def _numbers(raw: Value, fmt: Format) -> Value:
    """16-bit words as f32."""
    if fmt.exponent_bits == 8:
        return (raw.to(u32) << 16).view(f32)
    return half_numbers(raw)


def writer_of(instruction: Instruction, model: Model) -> Callable[[ir.Module], None] | None:
    """What writes the product of a dense instruction with a fused sum; None if this file does not know it."""
    plain = (
        isinstance(model.scheme, FusedSum)
        and not model.sparse
        and model.scale is None
        and instruction.products == 1
        and carries_d(model)
        and not (instruction.satfinite or model.satfinite)
    )
    if not plain:
        return None
    plan = replace(plan_for(model, instruction.n), strip=instruction.n)
    order = orders(instruction, plan, 0)
    if order is None:
        return None
    return lambda module: FusedProduct(module, instruction, plan, order).write()
