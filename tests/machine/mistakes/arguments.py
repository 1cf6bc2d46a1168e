"""Arguments of planted kernels that one word cannot describe: views of one array, arrays at odd addresses."""

from collections.abc import Callable
from typing import Any

import numpy as np

import lanewise as lw

ARGUMENTS: dict[str, Callable[[], list[Any]]] = {}


def builder(function: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    """Enter a function under its name."""
    ARGUMENTS[function.__name__] = function
    return function


@builder
def misaligned_view() -> list[Any]:
    """A view that begins 4 bytes into an array, an output, and the floats up to the next 16 bytes."""
    base = np.arange(133, dtype=np.float32)
    return [base[1:], np.zeros(32, np.float32), np.int32(3)]


@builder
def misaligned_halves() -> list[Any]:
    """A view that begins 2 bytes into an array, an output, and the halves up to the next 4 bytes."""
    base = np.arange(67).astype(np.float16)
    return [base[1:], np.zeros(32, np.float32), np.int32(1)]


@builder
def shifted() -> list[Any]:
    """An output that begins one element after its input in one array of 65."""
    base = np.arange(65, dtype=np.float32)
    return [base[:64], base[1:]]


@builder
def disjoint_halves() -> list[Any]:
    """An input and an output that share an array but no element."""
    base = np.arange(128, dtype=np.float32)
    return [base[:64], base[64:]]


@builder
def same_array_twice() -> list[Any]:
    """One array as input and as output."""
    base = np.arange(64, dtype=np.float32)
    return [base, base]


@builder
def read_only_view_of_output() -> list[Any]:
    """A read-only view of the array that is also the output."""
    base = np.arange(64, dtype=np.float32)
    view = base[:]
    view.setflags(write=False)
    return [view, base]


@builder
def rows_of_one_matrix() -> list[Any]:
    """Two neighbouring rows of one matrix of 4 × 64."""
    base = np.arange(256, dtype=np.float32).reshape(4, 64)
    return [base[1], base[2]]


@builder
def bulk_views() -> list[Any]:
    """Two inputs of 64 floats that lie side by side in one array, and an output."""
    base = np.arange(128, dtype=np.float32)
    return [base[:64], base[64:], np.zeros(128, np.float32)]


@builder
def disjoint_views() -> list[Any]:
    """Two outputs of 64 floats that share an array, with nothing between them."""
    base = np.zeros(128, np.float32)
    return [base[:64], base[64:]]


@builder
def overlapping_views() -> list[Any]:
    """Two outputs of 96 and 128 floats of one array of 192, of which 32 floats are in both."""
    base = np.zeros(192, np.float32)
    return [base[:96], base[64:]]


@builder
def interior_view() -> list[Any]:
    """A view of the middle of an array, whose neighbours on both sides belong to the array, and an output."""
    base = np.arange(66, dtype=np.float32)
    return [base[1:65], np.zeros(64, np.float32)]


@builder
def array_at_odd_address() -> list[Any]:
    """An array whose host memory begins at an odd address: a copy of it on a GPU does not."""
    return [np.frombuffer(bytearray(8 * 4 + 1), np.int32, 8, 1)]


@builder
def map_of_output() -> list[Any]:
    """A tensor map with a box of 8 × 32 floats of an array, and the array itself, which the kernel writes."""
    array = np.zeros((8, 32), np.float32)
    return [lw.tensor_map(array, (8, 32)), array]


@builder
def map_to_copy() -> list[Any]:
    """A tensor map for a pointer parameter, and 128 bytes for a copy of it."""
    array = np.arange(256, dtype=np.float32).reshape(8, 32)
    return [lw.tensor_map(array, (8, 32)), np.zeros(32, np.uint32)]


@builder
def map_to_change() -> list[Any]:
    """The 128 bytes of a tensor map in an array that the kernel may change, and the array to put into it."""
    array = np.arange(256, dtype=np.float32).reshape(8, 32)
    encoded = lw.tensor_map(array, (8, 32)).encode(0x1000)
    return [np.frombuffer(bytearray(encoded), np.uint32), array]


@builder
def mapped_array_and_flag() -> list[Any]:
    """A tensor map of an array, the array itself, an output, and a flag."""
    x = np.arange(256, dtype=np.float32).reshape(8, 32)
    return [lw.tensor_map(x, (8, 32)), x, np.zeros(64, np.float32), np.zeros(1, np.uint32)]
