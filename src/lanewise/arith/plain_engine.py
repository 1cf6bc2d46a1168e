"""Runs the plain kernels over batches and whole matrices, on all processors."""

from dataclasses import replace
from functools import partial

import numpy as np

from lanewise.arith import plain_kernel
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
from lanewise.arith.models import FmaChain, IntegerSum, Model, PopcountSum
from lanewise.formats import Format
from lanewise.jit import machine_code, threads
from lanewise.jit.host_memory import address


def run_plain(model: Model, product: Product) -> Array:
    """Return the sums of fused multiply-adds, integer products or population counts."""
    if not (isinstance(model.scheme, FmaChain) and model.scheme.nan == "of b, sum, a"):
        return run_steps(model, product)
    # To compute which NaN comes through takes several times as long: it is done only if there is one.
    sums = run_steps(model, replace(product, sums=product.sums.copy()))
    return run_steps(model, product, passes_nans=True) if np.isnan(sums).any() else sums


def cut_for(model: Model, columns: int) -> plain_kernel.Cut:
    """Return the vectors and strips for matrices with a number of columns."""
    return plain_kernel.Cut(
        *vectors_for(columns, machine_code.lanes_of(plain_kernel.step_of(model).sum.bits))
    )


def program_for(model: Model, columns: int, passes_nans: bool = False) -> machine_code.Program:
    """Return the compiled kernel for matrices with a number of columns; its key has all it depends on."""
    cut = cut_for(model, columns)
    facts = (model.scheme, model.satfinite, model.bitop, model.rounding)
    return machine_code.load(
        f"plain {facts} {cut} {passes_nans}", lambda: plain_kernel.write_module(model, cut, passes_nans)
    )


def run_steps(model: Model, product: Product, passes_nans: bool = False) -> Array:
    """Run the model's compiled loop over a whole batch and return the sums."""
    columns = product.sums.shape[-1]
    strip, program = cut_for(model, columns).strip, program_for(model, columns, passes_nans)
    padded = columns + -columns % strip
    a = contiguous(elements(model, model.a, product.a, axis=-1))
    b = in_strips(pad_columns(elements(model, model.b, product.b, axis=-2), padded), strip)
    sums = pad_columns(product.sums, padded)
    k, rows = a.shape[-1], a.shape[-2]
    chunk = chunk_of(model, k)
    starts = {
        "a_offsets": offsets(a, product.batch),
        "b_offsets": offsets(b, product.batch),
        "sum_offsets": offsets(sums, product.batch),
    }

    def job(item_range: tuple[int, int], row_range: tuple[int, int]) -> None:
        arguments = {name: address(array) for name, array in starts.items()} | {
            "a": address(a) + row_range[0] * k * a.itemsize,
            "b": address(b),
            "sum": address(sums) + row_range[0] * padded * sums.itemsize,
            "first_item": item_range[0],
            "last_item": item_range[1],
            "rows": row_range[1] - row_range[0],
            "strips": padded // strip,
            "chunks": k // chunk,
            "chunk": chunk,
        }
        program("items", [arguments[name] for name in plain_kernel.ITEMS])

    jobs = min(4 * threads.processors(), product.items * rows * k * padded // WORTHWHILE)
    every_item = shares(product.items, jobs)
    every_row = shares(rows, jobs // len(every_item))
    threads.run([partial(job, some_items, some_rows) for some_items in every_item for some_rows in every_row])
    return sums[..., :columns]


def in_strips(matrix: Array, strip: int) -> Array:
    """Return (…, K, N) in another order of memory: strip by strip of columns."""
    *batch, k, columns = matrix.shape
    strips = matrix.reshape(*batch, k, columns // strip, strip).swapaxes(-3, -2)
    return contiguous(strips).reshape(*batch, k, columns)


def elements(model: Model, fmt: Format, words: Array, axis: int) -> Array:
    """Return raw words as the kernel's elements: int16, f32 or f64 numbers, or 32 bits of K in one word."""
    match model.scheme:
        case PopcountSum():
            bits = np.packbits(np.moveaxis(words, axis, -1).astype(bool), axis=-1, bitorder="little")
            return np.moveaxis(np.ascontiguousarray(bits).view(np.uint32), -1, axis)
        case IntegerSum():
            return words.view(fmt.dtype).astype(np.int16)
        case FmaChain(format="f64"):
            return words.view(np.float64)
        case _:
            with np.errstate(invalid="ignore"):  # signalling NaNs
                return words.view(fmt.dtype).astype(np.float32)


def chunk_of(model: Model, k: int) -> int:
    """Return how many elements of K are summed before they join the total."""
    match model.scheme:
        case FmaChain(group=group) if group:
            return group
        case IntegerSum() if model.satfinite:
            return model.k * (2 if model.sparse else 1)
        case _:
            return k
