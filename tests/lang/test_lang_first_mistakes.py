"""What people write in their first kernel, coming from NumPy and C++; each message says what to write."""

import functools
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from lanewise.hints import Suggests
from lanewise.tracebacks import RAISE_AS_IS

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


@lw.kernel
def identity_of_numbers(x: lw.Ptr[lw.f32], n: lw.i32):
    if n is n + 1:
        x[0] = 1.0


@lw.kernel
def identity_with_a_constant(x: lw.Ptr[lw.f32], n: lw.i32, FIVE: lw.Constexpr = 5):
    if n is not FIVE:
        x[0] = 1.0


@lw.kernel
def identity_in_a_chain(x: lw.Ptr[lw.f32], n: lw.i32):
    if 0 < n is lw.thread_idx.x:
        x[0] = 1.0


@lw.kernel
def identity_of_pointers(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32]):
    if x is y:
        x[0] = 1.0


@lw.kernel
def number_by_and(x: lw.Ptr[lw.f32], n: lw.i32):
    x[5] = n and 3


@lw.kernel
def number_by_or(x: lw.Ptr[lw.f32], n: lw.i32):
    x[5] = n or 5


@lw.kernel
def plain(x: lw.Ptr[lw.f32], n: lw.i32):
    x[0] = n.to(lw.f32)


@lw.kernel
def launch_in_a_kernel(x: lw.Ptr[lw.f32], n: lw.i32):
    plain[1, 32](x, n)


@lw.kernel
def repeated(x: lw.Ptr[lw.f32], N: lw.Constexpr):
    for i in range(N):
        x[i] = 1.0


@lw.kernel
def chosen(x: lw.Ptr[lw.f32], N: lw.Constexpr):
    x[0] = [1.0, 2.0][N]


@pytest.mark.parametrize(
    ("kernel", "arguments", "says"),
    [
        (identity_of_numbers, (X, 1), "the i32 value 'n': == and != compare values"),
        (identity_with_a_constant, (X, 1), "== and != compare values"),
        (identity_in_a_chain, (X, 1), "== and != compare values"),
        (identity_of_pointers, (X, X), "a pointer to f32 in global memory: == and != compare values"),
        (number_by_and, (X, 1), "lw.where(a != 0, 3, 0) chooses a number"),
        (number_by_or, (X, 1), "lw.where(a != 0, a, 5) chooses a number"),
        (launch_in_a_kernel, (X, 1), "plain is a kernel, and a kernel does not launch another"),
        (repeated, (X, 3.0), "an integer; the Constexpr N is 3.0: pass 3"),
        (chosen, (X, 1.0), "not float; the Constexpr N is 1.0: pass 1"),
    ],
)
def test_the_message_names_the_value(kernel: Any, arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(lw.KernelError) as raised:
        kernel[1, 32](*arguments)
    assert says in str(raised.value)


ABSENT = object()


@lw.device
def first_of(x, given, marked=ABSENT):
    fragment = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").zeros()
    same = fragment
    if given is None and marked is ABSENT and same is fragment:
        x[0] = 7.0
    if marked is not ABSENT:
        x[0] = 1.0


@lw.kernel
def identities_of_objects(x: lw.Ptr[lw.f32], n: lw.i32):
    first_of(x, None)
    if n is ABSENT:
        x[0] = 2.0


def test_identities_that_python_knows() -> None:
    x = np.zeros(4, np.float32)
    identities_of_objects[1, 32](x, 1)
    assert x[0] == 7.0


# objects of Python that a branch or loop of the kernel changes ----------------------------------------------

LOG: list[str] = []
TABLE, NUMBERS = np.zeros(4), [1, 2, 3]


@lw.kernel
def array_in_a_branch(x: lw.Ptr[lw.f32], n: lw.i32):
    t = np.zeros(4)
    if n > 2:
        t[0] = 3
    x[0] = float(t[0])


@lw.kernel
def array_in_a_loop(x: lw.Ptr[lw.f32], n: lw.i32):
    t = np.zeros(4)
    for _ in lw.range(n):
        t[0] += 3
    x[0] = float(t[0])


@lw.kernel
def new_array_in_a_loop(x: lw.Ptr[lw.f32], n: lw.i32):
    t = np.zeros(4)
    while x[0] < 3:
        t = t + 1
        x[0] = float(t[0])


@lw.kernel
def new_array_in_a_branch(x: lw.Ptr[lw.f32], n: lw.i32):
    t = np.zeros(4)
    if n > 2:
        t = t + 1
    x[0] = float(t[0])


@lw.kernel
def global_array(x: lw.Ptr[lw.f32], n: lw.i32):
    if n > 2:
        TABLE[0] = 3
    x[0] = float(TABLE[0])


@lw.kernel
def global_list(x: lw.Ptr[lw.f32], n: lw.i32):
    if n > 2:
        NUMBERS[0] = 3
    x[0] = float(NUMBERS[0])


@lw.kernel
def global_list_in_a_loop(x: lw.Ptr[lw.f32], n: lw.i32):
    for _ in lw.range(n):
        NUMBERS[0] += 3


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (array_in_a_branch, "t is a NumPy array, and its elements change in the branches of lines"),
        (array_in_a_loop, "t is a NumPy array, and its elements change in the loop of line"),
        (new_array_in_a_loop, "t is a NumPy array, and its elements change in the loop of line"),
        (new_array_in_a_branch, "t is two different arrays (a NumPy array) after the branches of lines"),
        (global_array, "TABLE is a NumPy array, and its elements change in the branches of lines"),
        (global_list, "NUMBERS is a global list, and its elements change in the branches of lines"),
        (global_list_in_a_loop, "NUMBERS is a global list, and its elements change in the loop of line"),
    ],
)
def test_python_changes_its_objects_once(kernel: Any, says: str) -> None:
    for _ in range(2):  # the objects are what they were: the second trace finds the same
        with pytest.raises(lw.KernelError) as raised:
            kernel[1, 1](X, 1)
        assert says in str(raised.value)
    assert not TABLE.any() and NUMBERS == [1, 2, 3]


@lw.kernel
def arrays_that_stay(x: lw.Ptr[lw.f32], n: lw.i32):
    t, boxes, total = np.arange(4.0), np.empty(2, object), 0.0
    t.flags.writeable = False
    boxes[0] = lw.f32(0.0)
    if n > 2:
        LOG.append("a branch")
        boxes[0] = lw.f32(5.0)
        scratch = np.zeros(2)
        scratch[1] = 4
        total += float(scratch[1])
    for i in lw.range(n):
        LOG.append("a loop")
        total += float(t[2])
        if i > 2:
            t = np.arange(4.0)
    x[0], x[1] = total, boxes[0]


def test_python_may_read_arrays_and_keep_a_log() -> None:
    for n, expected in ((1, (2.0, 0.0)), (4, (12.0, 5.0))):
        x = np.zeros(4, np.float32)
        arrays_that_stay[1, 1](x, n)
        assert tuple(x[:2]) == expected
    assert LOG


# loops that Python unrolls ----------------------------------------------------------------------------------


@lw.kernel
def unrolled(x: lw.Ptr[lw.f32], N: lw.Constexpr):
    for i in range(N):
        x[i % 64] = 1.0


@lw.kernel
def forgotten_step(x: lw.Ptr[lw.f32]):
    i = 0
    while i < 10:
        x[i] = 1.0


@lw.kernel
def sum_of_python(x: lw.Ptr[lw.f32]):
    total = 0
    for i in range(20_000):
        total += i
    x[0] = float(total)


def test_a_long_loop_of_python_names_the_loop_of_the_kernel(recwarn: pytest.WarningsRecorder) -> None:
    sum_of_python.ptx()
    unrolled.ptx(N=9_000)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"10,000 rounds are .* instructions .* `for i in lw.range"):
        unrolled.ptx(N=10_001)


@pytest.mark.filterwarnings("ignore:this `while` is a loop of Python")
def test_a_loop_of_python_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanewise.lang.frontend.loops._MOST_ROUNDS", 20_000)
    with pytest.raises(lw.KernelError, match="does what it tests ever change"):
        forgotten_step.ptx()


# other decorators -------------------------------------------------------------------------------------------


def counted(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return wrapper


@lw.kernel
@counted
def under_another_decorator(x: lw.Ptr[lw.f32]):
    x[0] = 1.0


def test_the_decorator_of_a_kernel_is_the_lowest() -> None:
    with pytest.raises(lw.KernelError, match="Has another decorator made wrapper of the kernel"):
        under_another_decorator[1, 1](X)


# arguments of kernels in CUDA C++ ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def add() -> Any:
    return lw.cuda('extern "C" __global__ void add(float* x, int n) { x[0] = n; }', arch="sm_80")["add"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            (X, 32.0),
            "argument 1 (n) of add is int: it takes an integer; 32.0 was given; int(…) makes 32 of it",
        ),
        ((X, np.float32(1.5)), "argument 1 (n) of add is int: it takes an integer; 1.5 was given"),
        ((X,), "add takes 2 arguments (float* x, int n); 1 given: there is none for n (int)"),
        ((X, 1, 2), "add takes 2 arguments (float* x, int n); 3 given"),
        ((X, "3"), "str '3' cannot be passed; pass an integer"),
    ],
)
def test_arguments_by_their_names_in_the_source(add: Any, arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(lw.LanewiseError) as raised:
        add[1, 32](*arguments)
    assert str(raised.value).endswith(says)


def test_a_number_is_no_array() -> None:
    with pytest.raises(lw.KernelError, match=r"x is Ptr.* and takes an array, not np.float32"):
        plain[1, 32](np.float32(3), 1)


def test_a_kernel_does_not_launch_cuda(add: Any) -> None:
    @lw.kernel
    def launches_cuda(x: lw.Ptr[lw.f32], n: lw.i32):
        add[1, 32](x, n)

    with pytest.raises(lw.KernelError, match="a kernel does not launch another"):
        launches_cuda[1, 32](X, 1)


# tensor memory and tilings ----------------------------------------------------------------------------------

TCGEN05 = lw.instruction("tcgen05.mma.cta_group::1.kind::f16", m=128, n=64, a="bf16", b="bf16", d="f32")
COPY = lw.make_tiled_copy(
    "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", lw.Layout((32, 4), (4, 1)), lw.Layout((1, 8)), lw.f16
)


@lw.kernel
def load_of_tcgen05(x: lw.Ptr[lw.f32]):
    lw.tcgen05.ld(x)


@lw.kernel
def misspelt_commit(x: lw.Ptr[lw.f32]):
    lw.tcgen05.comit(x)


@lw.kernel
def misspelt_allocation(x: lw.Ptr[lw.f32]):
    lw.tmem.allocate(64)


@lw.kernel
def misspelt_cluster(x: lw.Ptr[lw.f32]):
    lw.cluster.snyc()


@lw.kernel
def sum_in_tensor_memory(x: lw.Ptr[lw.f32]):
    x[0] = 1.0 + lw.tmem.alloc(64).accumulator(TCGEN05)


@lw.kernel
def zeros_of_tcgen05(x: lw.Ptr[lw.f32]):
    TCGEN05.zeros()


@lw.kernel
def partition_without_a_slice(x: lw.Ptr[lw.f32]):
    COPY.partition_S(lw.make_tensor(x, (64, 64), (64, 1)))


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (load_of_tcgen05, "matrix.load(column, count) loads from a matrix in tensor memory"),
        (misspelt_commit, "did you mean commit?"),
        (misspelt_allocation, "did you mean alloc?"),
        (misspelt_cluster, "did you mean sync?"),
        (sum_in_tensor_memory, "row = matrix.load(column, count) loads elements"),
        (zeros_of_tcgen05, "lw.tmem.alloc(columns).accumulator(mma)"),
        (partition_without_a_slice, ".get_slice(thread).partition_S(…)"),
    ],
)
def test_mistakes_with_tensor_memory_and_tilings(kernel: Any, says: str) -> None:
    with pytest.raises(lw.KernelError) as raised:
        kernel.ptx("sm_100a")
    assert says in str(raised.value)


# other rooms ------------------------------------------------------------------------------------------------

ROWS = lw.make_layout((4, 8), (8, 1))
#: The library without its types: a checker finds these mistakes, too.
UNTYPED: Any = lw
ATOM = "SM80_16x8x16_F32F16F16F32_TN"
TILED = lw.make_tiled_mma(ATOM)
LIBRARY = str(Path(lw.__file__).parent)


@lw.kernel
def reshaped_array(x: lw.Ptr[lw.f32]):
    lw.shared(lw.f32, (4, 4)).reshape(16)


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: UNTYPED.make_layout((4, 8), stride=(8, 1)), "make_layout has no parameter stride"),
        (lambda: UNTYPED.layout.size(ROWS, 0), "size takes layout by position, and 2 arguments were given"),
        (lambda: UNTYPED.layout.take(ROWS, 1), "take takes x, begin and end; end is missing"),
        (lambda: UNTYPED.layout.logical_divide(ROWS), "logical_divide takes"),
        (lambda: UNTYPED.layout.logical_divide(ROWS, 5), "cannot be divided by the tile 5:1"),
        (lambda: UNTYPED.Layout([4, 8], [8, 1]), "write the tuple (4, 8)"),
        (lambda: UNTYPED.make_layout((4, 8), np.array([8, 1])), "write the tuple (8, 1)"),
        (lambda: ROWS.T, "lanewise.layout.select(layout, [1, 0]) exchanges its two modes"),
        (
            lambda: UNTYPED.layout.recast_layout(32, 16, ROWS),
            "recast takes a layout or a swizzle first, not 32",
        ),
        (lambda: UNTYPED.layout.upcast(3, ROWS), "upcast takes a layout or a swizzle first, not 3"),
        (lambda: UNTYPED.layout.make_tensor(X, ROWS)[5, 9], "coordinate 5 is outside 4: 0 to 3 are inside"),
        (lambda: UNTYPED.Swizzle(3, 3), "shift is missing"),
        (lambda: UNTYPED.atom("SM80_16x8x16"), "nearest are SM80_16x8x16_"),
        (lambda: UNTYPED.atom("SM80_16x8x16"), "`lanewise atoms SM80_16x8x16` lists the"),
        (lambda: getattr(UNTYPED.atoms, ATOM), f"lanewise.atom({ATOM!r}) is the operation"),
        (lambda: TILED.partition_A(X), ".get_slice(thread).partition_A(…)"),
        (lambda: TILED.thread_layout, "did you mean thr_layout_vmnk?"),
        (lambda: TILED.get_slice(99), "runs on threads 0 to 31"),
        (lambda: UNTYPED.atom(ATOM).shape, "did you mean Shape_MNK?"),
        (lambda: UNTYPED.atom(ATOM)(), "a and b are missing"),
        (lambda: UNTYPED.make_tiled_copy_A("SM75_U32x4_LDSM_N"), "mma is missing"),
        (lambda: UNTYPED.instruction(TCGEN05), "it is one already"),
        (lambda: UNTYPED.FORMATS["fp8"], "there is no format 'fp8'"),
        (lambda: UNTYPED.FORMATS.f16, "look it up by its name, ['f16']"),
        (lambda: UNTYPED.int32, "did you mean i32 or s32?"),
        (lambda: UNTYPED.arith(X), "computes on arrays"),
        (lambda: UNTYPED.draw.svg(), "thing is missing"),
        (lambda: UNTYPED.draw.svg(3), "int has no picture"),
        (lambda: UNTYPED.ptx.compile("x"), "cuda(source, arch=…) compiles CUDA C++"),
        (lambda: UNTYPED.virtual_gpu.use("H100"), "it has LaunchRecord, VirtualGPU, virtual_gpu"),
        (lambda: UNTYPED.plan(64, 64, 64, arch="H100"), "plan takes a and b by position, and 3 arguments"),
        (lambda: UNTYPED.prune_2_4(np.zeros((4, 7), np.float16)), "rows of a multiple of 4 elements"),
        (lambda: reshaped_array.ptx(), "lw.tensor(array.pointer, layout) is the same memory"),
    ],
)
def test_mistakes_in_other_rooms_end_in_the_mend(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[], Any], says: str
) -> None:
    for name in ("LANEWISE_TRACEBACK", RAISE_AS_IS):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises((lw.LanewiseError, AttributeError, KeyError, TypeError)) as raised:
        mistake()
    assert says in str(raised.value)
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert not [frame for frame in frames if frame.filename.startswith(LIBRARY)]


def test_an_index_of_a_layout_is_asked_for_by_a_call() -> None:
    with pytest.raises(lw.LanewiseError, match=r"layout\(3, 2\) is the index at a coordinate"):
        ROWS[3, 2]


def test_functions_of_rooms_are_pickled_and_those_of_two_names_are_one() -> None:
    for function in (lw.make_layout, lw.layout.size, lw.draw.svg):
        assert pickle.loads(pickle.dumps(function)) is function
    assert lw.layout.recast_layout is lw.layout.recast


def test_an_error_of_a_property_keeps_its_lines() -> None:
    class Suggesting(Suggests):
        @property
        def broken(self) -> Any:
            return self.absent

    with pytest.raises(AttributeError, match="Suggesting has no attribute 'absent'"):
        _ = Suggesting().broken


def test_modules_of_ptx_and_their_kernels_name_what_serves(add: Any) -> None:
    for thing, name, says in (
        (add, "launch", "entry[grid, block](…) launches it"),
        (add.module, "ptx", "str(module) is its PTX"),
        (add.module, "save", "writes its PTX"),
        (add.module, "add", "module['add'] is the kernel"),
    ):
        with pytest.raises(AttributeError) as raised:
            getattr(thing, name)
        assert says in str(raised.value)


def test_a_trace_for_perfetto_is_json(tmp_path: Path) -> None:
    run = lw.trace(plain[1, 32], X, 1)
    with pytest.raises(lw.LanewiseError, match=r"saved as .json; trace.save writes .html"):
        run.to_perfetto(tmp_path / "run.html")
    assert run.to_perfetto(tmp_path / "run.json").exists()
