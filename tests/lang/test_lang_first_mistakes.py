"""What people write in their first kernel, coming from NumPy and C++; each message says what to write."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw

X = np.zeros(64, np.float32)


@lw.kernel
def chained_indices(x: lw.Ptr[lw.f32]):
    tile = lw.shared(lw.f32, (4, 4))
    tile[0][1] = 1.0


@lw.kernel
def formatted_text(x: lw.Ptr[lw.f32]):
    print(f"x is {x[0]}")


@lw.kernel
def method_of_numpy(x: lw.Ptr[lw.f32]):
    x[0] = lw.thread_idx.x.astype(lw.f32)


@lw.kernel
def shape_of_a_run(x: lw.Ptr[lw.f32], n: lw.i32):
    lw.shared(lw.f32, (n, 4))


@lw.kernel
def length_of_a_run(x: lw.Ptr[lw.f32], n: lw.i32):
    lw.shared(lw.f32, n)


@lw.kernel
def exponential_of_numpy(x: lw.Ptr[lw.f32]):
    x[0] = np.exp(x[0])


@lw.kernel
def maximum_of_numpy(x: lw.Ptr[lw.f32]):
    x[0] = np.maximum(x[0], x[1])


@lw.kernel
def root_of_numpy(x: lw.Ptr[lw.f32]):
    x[0] = np.cbrt(x[0])


@lw.kernel
def dtype_of_numpy(x: lw.Ptr[lw.f32]):
    lw.shared(np.float32, 4)


@lw.kernel
def sum_that_begins_as_an_integer(x: lw.Ptr[lw.f32], n: lw.i32):
    total = 0
    for i in lw.range(n):
        total += x[i]
    x[0] = total


@lw.kernel
def fourth_coordinate(x: lw.Ptr[lw.f32]):
    x[lw.thread_idx.w] = 1.0


@lw.kernel
def underscores_of_cuda(x: lw.Ptr[lw.f32]):
    lw.__syncthreads()


@lw.kernel
def arrays_for_fragments(x: lw.Ptr[lw.f32]):
    lw.instruction("HMMA.16816.F32")(np.ones((16, 16), np.float16), np.ones((16, 8), np.float16))


@lw.kernel
def array_of_numpy(x: lw.Ptr[lw.f32]):
    sums = np.zeros(4)
    sums[0] = x[0]


@lw.kernel
def block_of_triton(x: lw.Ptr[lw.f32]):
    x[lw.program_id(0)] = 1.0


@lw.kernel
def index_of_numba(x: lw.Ptr[lw.f32]):
    x[lw.grid(1)] = 1.0


@lw.kernel
def barrier_without_parentheses(x: lw.Ptr[lw.f32]):
    x[0] = 1.0
    lw.syncthreads  # noqa: B018 (the mistake)


class Holder:
    @lw.kernel
    def method(self, x: lw.Ptr[lw.f32]):
        x[0] = 1.0


@lw.kernel
def pointer_that_is_none(x: lw.Ptr[lw.f32]):
    if x is not None:
        x[0] = 1.0


@lw.kernel
def pointer_as_a_condition(x: lw.Ptr[lw.f32]):
    if x:
        x[0] = 1.0


@lw.kernel
def pointer_and_a_number(x: lw.Ptr[lw.f32]):
    if x == 3:
        x[0] = 1.0


@pytest.mark.parametrize(
    ("kernel", "arguments", "says"),
    [
        (chained_indices, (X,), "takes all its coordinates at once, as in a[row, col]"),
        (formatted_text, (X,), 'write print("x is", x)'),
        (method_of_numpy, (X,), "no .astype; .to(lw.f32) converts a value"),
        (shape_of_a_run, (X, 4), "has to be known while the kernel is traced"),
        (length_of_a_run, (X, 4), "take a number, or a parameter that is an lw.Constexpr"),
        (exponential_of_numpy, (X,), "NumPy's exp cannot compute with the f32 value: use lw.exp"),
        (maximum_of_numpy, (X,), "use lw.max"),
        (root_of_numpy, (X,), "use lw's own functions"),
        (dtype_of_numpy, (X,), "write lw.f32"),
        (sum_that_begins_as_an_integer, (X, 4), "it is 0 before the loop: write 0.0 there"),
        (fourth_coordinate, (X,), "have .x, .y and .z, and no .w"),
        (underscores_of_cuda, (X,), "did you mean syncthreads?"),
        (arrays_for_fragments, (X,), "in a kernel it takes fragments"),
        (array_of_numpy, (X,), "lw.local(lw.f32, 4) is an array of each thread"),
        (block_of_triton, (X,), "Triton's program_id(0) is block_idx.x"),
        (index_of_numba, (X,), "Numba's grid(1) is block_idx.x * block_dim.x + thread_idx.x"),
        (barrier_without_parentheses, (X,), "is not called: write lw.syncthreads()"),
        (Holder.method, (X,), "a kernel is a plain function, not a method"),
        (pointer_that_is_none, (None,), "`x == 0` asks for a null pointer, which None is"),
        (pointer_as_a_condition, (X,), "p != 0 says whether it is null"),
        (pointer_and_a_number, (X,), "is compared with another of the same memory, or with 0"),
    ],
)
def test_the_message_says_what_to_write(kernel: Any, arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(lw.KernelError) as raised:
        kernel[1, 32](*arguments)
    assert says in str(raised.value)


@lw.kernel
def scaled(x: lw.f32, y: lw.Ptr[lw.f32], n: lw.i32):
    y[0] = x


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (lambda: scaled[1, 32](X, X, 4), "for an array write x: lw.Ptr[lw.f32]"),
        (
            lambda: scaled[1, 32](1.0, X, X),
            "takes an integer, not an array; for an array write n: lw.Ptr[lw.i32]",
        ),
        (lambda: scaled[1, 32](1.0, X.astype(np.float64), 4), "array.astype(np.float32) converts it"),
        (lambda: scaled[1, 32](1.0, [1.0, 2.0], 4), "np.array(…, np.float32) makes one"),
        (lambda: scaled[1, 32](1.0, X, np.float32(4)), "not float32 4.0; int(…) makes 4 of it"),
    ],
)
def test_arguments_of_another_kind(launch: Callable[[], None], says: str) -> None:
    with pytest.raises(lw.KernelError) as raised:
        launch()
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: scaled[64 / 32, 32](1.0, X, 4), "not 2.0; // divides to an integer"),
        (lambda: scaled[1, 2048](1.0, X, 4), "launch more blocks of fewer threads"),
        (lambda: scaled.launch(1, 32, X), "scaled[grid, block](…) launches it"),
        (lambda: scaled[1, 32](1.0, np.zeros((64, 2), np.float32)[:, 0], 4), "np.ascontiguousarray makes"),
        (lambda: lw.matmul(np.zeros((4, 8), np.float16), np.zeros((4, 8), np.float16)), "agree: pass b.T"),
        (lambda: lw.benchmark(scaled[1, 32], 1.0, X, 4), "as in lambda: kernel[grid, block](…)"),
        (lambda: lw.matmul([[1.0]], [[2.0]]), "np.array(…, np.float32) makes one"),
    ],
)
def test_a_call_from_another_library(mistake: Callable[[], object], says: str) -> None:
    with pytest.raises((lw.LanewiseError, AttributeError)) as raised:
        mistake()
    assert says in str(raised.value)


def test_a_hint_of_python_is_not_added_to_that_of_the_library() -> None:
    with pytest.raises(AttributeError, match=r"did you mean f16\?") as raised:
        lw.half  # noqa: B018, reading it is what raises
    assert raised.value.obj is None
    assert repr(scaled[(1, 2), 32]) == "<scaled[(1, 2), 32]>"


WEIGHTS = {1: 2.0, 2: 3.0}


@lw.kernel
def looked_up_in_a_set(x: lw.Ptr[lw.f32], n: lw.i32):
    if n in {1, 2, 3}:
        x[0] = 1.0


@lw.kernel
def looked_up_in_a_dict(x: lw.Ptr[lw.f32], n: lw.i32):
    x[0] = WEIGHTS.get(n, 0.0)


@pytest.mark.parametrize("kernel", [looked_up_in_a_set, looked_up_in_a_dict], ids=lambda kernel: kernel.name)
def test_values_of_a_kernel_are_no_keys(kernel: Any) -> None:
    """Python would find none of them, and go on."""
    with pytest.raises(
        lw.LanewiseError, match=r"cannot look it up in a set or a dict\. Compare it with each"
    ):
        kernel[1, 1](X, 2)


@lw.kernel
def ones(x: lw.Ptr[lw.f32]):
    x[lw.block_idx.x * 32 + lw.thread_idx.x] = 1.0


def test_a_grid_that_was_refused_is_not_remembered_for_an_equal_one() -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(lw.LanewiseError, match=r"not 2\.0; // divides to an integer"):
        ones[64 / 32, 32](x)
    ones[2, 32](x)
    assert (x == 1).all()


def test_a_kernel_is_no_coroutine() -> None:
    @lw.kernel
    async def waits(x: lw.Ptr[lw.f32]):
        x[0] = 1.0

    with pytest.raises(lw.LanewiseError, match="defined with `def`, not with `async def`"):
        waits[1, 1](X)
