"""Runs the fused kernel over batches and whole matrices, on all processors."""

import math
import platform
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from lanewise.arith import fused_kernel
from lanewise.arith.batches import (
    WORTHWHILE,
    Array,
    Product,
    contiguous,
    offsets,
    pad_columns,
    shares,
    vectors_for,
)
from lanewise.arith.fused_tiles import Plan
from lanewise.arith.fused_wide import NAN_SCALE, ZERO_SCALE
from lanewise.arith.models import FusedSum, Model
from lanewise.formats import Format
from lanewise.jit import machine_code, threads
from lanewise.jit.host_memory import address

#: Elements of A that a thread decodes at a time: they stay in the second-level cache.
ROW_BLOCK_ELEMENTS = 1 << 16
#: Elements of B decoded at a time, which bounds the memory a large product needs.
B_ELEMENTS = 1 << 23


def plan_for(model: Model, columns: int) -> Plan:
    """Return the vectors and strips for matrices with a number of columns."""
    lanes, strip = vectors_for(columns, machine_code.lanes_of(32))
    return Plan(model, lanes, strip, element_loads=platform.machine().lower() not in ("aarch64", "arm64"))


@lru_cache(maxsize=1024)
def program_for(model: Model, columns: int) -> tuple[Plan, machine_code.Program]:
    """Return the compiled kernel for matrices with a number of columns.

    Its key has everything that it depends on.
    """
    plan = plan_for(model, columns)
    scale = model.scale.name if model.scale else ""
    facts = (model.scheme, model.a.name, model.b.name, model.block, model.sparse, scale, model.scale_vec)
    key = f"fused {facts} {plan.lanes} {plan.strip} {plan.element_loads}"
    return plan, machine_code.load(key, lambda: fused_kernel.write_module(plan))


def run_fused(model: Model, product: Product) -> Array:
    """Return the sums of the truncated fused sum, computed in as many jobs as pay."""
    columns = product.sums.shape[-1]
    plan, program = program_for(model, columns)
    padded = columns + -columns % plan.strip
    work = FusedWork(
        plan,
        program,
        a=contiguous(in_k_order(model, product.a, axis=-1)),
        b=pad_columns(in_k_order(model, product.b, axis=-2), padded),
        sums=pad_columns(product.sums, padded),
        batch=product.batch,
        scale_a=split_scales(model.scale, product.scale_a, 0),
        scale_b=split_scales(model.scale, product.scale_b, padded),
    )
    many = product.items >= 2 * threads.processors() and work.rows <= work.row_block
    if many or work.small:
        work.run_items()
    else:
        work.run_matrices()
    return work.sums[..., :columns]


def in_k_order(model: Model, array: Array, axis: int) -> Array:
    """Return an array with K in the order that the scheme takes it, within each instruction."""
    assert isinstance(model.scheme, FusedSum)
    if model.scheme.k_order == "ascending":
        return array
    spread = 2 if model.sparse else 1
    k = np.arange(model.k * spread)
    order = np.argsort(k // (2 * spread) % 2, kind="stable")
    steps = np.arange(0, array.shape[axis], order.size)
    return np.take(array, (steps[:, None] + order).reshape(-1), axis=axis)


def split_scales(fmt: Format | None, scales: Array | None, columns: int) -> tuple[Array, Array] | None:
    """Return scale factors as exponents (i32) and significands (f32), padded to some columns."""
    if fmt is None or scales is None:
        return None
    values = fmt.decode(fmt.to_bits(scales))
    ordinary = np.isfinite(values) & (values > 0)
    numbers = np.where(ordinary, values, 1.0)
    exponents = np.maximum(np.frexp(numbers)[1] - 1, fmt.emin)
    significands = np.where(ordinary, np.ldexp(numbers, -exponents), 0.0)
    exponents = np.where(ordinary, exponents, np.where(np.isnan(values), NAN_SCALE, ZERO_SCALE))
    width = columns or values.shape[-1]
    return pad_columns(exponents.astype(np.int32), width), pad_columns(significands.astype(np.float32), width)


@dataclass(frozen=True)
class FusedWork:
    """Fused products as the kernel takes them: contiguous, with N in whole strips."""

    plan: Plan
    program: machine_code.Program
    a: Array
    b: Array
    sums: Array
    batch: tuple[int, ...]
    scale_a: tuple[Array, Array] | None
    scale_b: tuple[Array, Array] | None

    @property
    def rows(self) -> int:
        """M, the rows of A and of the sums."""
        return int(self.a.shape[-2])

    @property
    def k(self) -> int:
        """K, the columns of A and the rows of B."""
        return int(self.a.shape[-1])

    @property
    def columns(self) -> int:
        """N, rounded up to whole strips."""
        return int(self.b.shape[-1])

    @property
    def multiplications(self) -> int:
        """The number of products of two elements that one item of the batch takes."""
        return self.rows * self.k * self.columns

    @property
    def small(self) -> bool:
        """Whether one item is too small to be shared out to several threads."""
        return self.multiplications < 2 * WORTHWHILE

    @property
    def row_block(self) -> int:
        """The number of rows that are decoded at a time."""
        return max(16, min(64, ROW_BLOCK_ELEMENTS // self.k))

    def common(self) -> dict[str, int]:
        """Return the arguments that all calls have in common."""
        steps = self.scale_a[0].shape[-1] if self.scale_a else 0
        sums_row = int(self.sums.shape[-1])
        return {
            "lda": self.k,
            "ldb": self.columns,
            "ld_sum": sums_row,
            "blocks": self.k // self.plan.length,
            "scale_steps": steps,
            "scale_columns": sums_row,
        }

    def buffers_for_rows(self, rows: int) -> dict[str, Array]:
        """Return the buffers that the function `rows` needs for a number of rows."""
        strip, blocks = self.plan.strip, self.k // self.plan.length
        return {
            "a_val": np.empty(rows * self.k, np.float32),
            "a_exp": np.empty(rows * self.k, np.int8),
            "a_flag": np.empty(rows * blocks, np.uint8),
            "scales": np.empty(rows * strip, np.float32),
            "sums": np.empty(rows * strip, np.int32),
            "more_sums": np.empty(rows * strip, np.int32),
            "unfit": np.empty(rows, np.uint8),
            "part": np.empty(rows * strip, np.float32),
        }

    def buffers_for_b(self, columns: int) -> dict[str, Array]:
        """Return the buffers for a number of decoded columns of B."""
        flags = (columns // self.plan.strip) * (self.k // self.plan.length)
        return {
            "b_val": np.empty(columns * self.k, np.float32),
            "b_exp": np.empty(columns * self.k, np.int8),
            "b_flag": np.empty(flags, np.uint8),
        }

    def call(
        self, name: str, order: tuple[str, ...], buffers: dict[str, Array], arguments: dict[str, int]
    ) -> None:
        """Call a function of the kernel; arguments that are missing are not used and become 0."""
        values = self.common() | {name: address(array) for name, array in buffers.items()} | arguments
        self.program(name, [values.get(name, 0) for name in order])

    def scale_arguments(self, a_start: int = 0, b_start: int = 0) -> dict[str, int]:
        """Return the addresses of the scale factors from some bytes on."""
        if self.scale_a is None or self.scale_b is None:
            return {}
        return {
            "scale_a": address(self.scale_a[0]) + a_start,
            "scale_a_sig": address(self.scale_a[1]) + a_start,
            "scale_b": address(self.scale_b[0]) + b_start,
            "scale_b_sig": address(self.scale_b[1]) + b_start,
        }

    def starts(self) -> dict[str, Array]:
        """Return the offsets where each item's operands begin."""
        scale_a = self.scale_a[0] if self.scale_a else self.a
        scale_b = self.scale_b[0] if self.scale_b else self.b
        operands = {"a": self.a, "b": self.b, "scale_a": scale_a, "scale_b": scale_b}
        return {f"{name}_offsets": offsets(array, self.batch) for name, array in operands.items()}

    def run_items(self) -> None:
        """Run many products, several on each thread; each item decodes its A and B."""
        items, starts = math.prod(self.batch), self.starts()

        def job(first: int, last: int) -> None:
            buffers = self.buffers_for_rows(self.rows) | self.buffers_for_b(self.columns) | starts
            arguments = {
                "a": address(self.a),
                "b": address(self.b),
                "sum": address(self.sums),
                "rows": self.rows,
                "strips": self.columns // self.plan.strip,
                "first_item": first,
                "last_item": last,
            }
            self.call("items", fused_kernel.ITEMS, buffers, arguments | self.scale_arguments())

        jobs = min(4 * threads.processors(), items * self.multiplications // WORTHWHILE)
        threads.run([partial(job, *share) for share in shares(items, jobs)])

    def run_matrices(self) -> None:
        """Run few large products one after the other, each on all threads."""
        width = max(1, B_ELEMENTS // self.k // self.plan.strip) * self.plan.strip
        starts = self.starts()
        for item in range(math.prod(self.batch)):
            begin = {name.removesuffix("_offsets"): int(array[item]) for name, array in starts.items()}
            begin["sum"] = item * self.rows * self.columns * 4
            for column in range(0, self.columns, width):
                self.run_columns(begin, column, min(width, self.columns - column) // self.plan.strip)

    def run_columns(self, begin: dict[str, int], column: int, strips: int) -> None:
        """Run some strips of a product: threads first decode B, then multiply blocks of rows."""
        plan, packed = self.plan, self.buffers_for_b(strips * self.plan.strip)
        blocks = self.k // plan.length
        steps = self.scale_a[0].shape[-1] if self.scale_a else 0

        def pack(first: int, last: int) -> None:
            b = address(self.b) + begin["b"] + column * self.b.itemsize
            self.call("pack_b", fused_kernel.PACK_B, packed, {"b": b, "first": first, "last": last})

        def multiply(first_row: int, last_row: int, strip: int, last_strip: int) -> None:
            first_column = column + strip * plan.strip
            scales = self.scale_arguments(
                begin["scale_a"] + first_row * steps * 4, begin["scale_b"] + first_column * 4
            )
            arguments = scales | {
                "a": address(self.a) + begin["a"] + first_row * self.k * self.a.itemsize,
                "sum": address(self.sums) + begin["sum"] + (first_row * self.columns + first_column) * 4,
                "b_val": address(packed["b_val"]) + strip * plan.strip * self.k * 4,
                "b_exp": address(packed["b_exp"]) + strip * plan.strip * self.k,
                "b_flag": address(packed["b_flag"]) + strip * blocks,
                "rows": last_row - first_row,
                "strips": last_strip - strip,
            }
            self.call("rows", fused_kernel.ROWS, self.buffers_for_rows(last_row - first_row), arguments)

        jobs = 4 * threads.processors()
        threads.run([partial(pack, *share) for share in shares(strips, jobs)])
        every_row = shares(self.rows, -(-self.rows // self.row_block))
        every_strip = shares(strips, jobs // len(every_row))
        threads.run(
            [partial(multiply, *rows, *strip_range) for rows in every_row for strip_range in every_strip]
        )
