"""Control flow: a kernel does to each number what the same Python function does to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import lanewise as lw


@dataclass
class Pair:
    low: object
    high: object


def nested(x, n):
    total = 0
    for i in lw.range(n):
        if i % 3 == 0:
            continue
        if i > x:
            break
        total += i
        j = 0
        while j < i:
            if total > 50 and j % 2 == 1:
                total = total - 7
            elif total < -5:
                total = total + 100
                break
            j += 1
    return total


def swaps(x, n):
    a, b = x, n
    for _ in lw.range(5):
        a, b = b, a + 1
    return a * 100 + b


def containers(x, n):
    numbers = [x, n, x + n]
    pair = Pair(x, n)
    table = {"sum": x * 0, "last": x}
    for i in lw.range(4):
        numbers[1] = numbers[1] + numbers[0]
        if numbers[1] > 20:
            numbers[2] = numbers[2] - i
            pair.low = pair.low + 1
        else:
            pair = Pair(pair.high, pair.low)
        table["sum"] += numbers[2]
    return numbers[1] * 10000 + table["sum"] * 100 + pair.low * 10 + pair.high


def chains(x, n):
    found = 0
    if 2 < x <= n < 20 or not x < 9:
        found = 1
    if x == 3 or (x == 5 and n > 4):
        found += 10
    return found + (100 if x % 2 == 0 else 200) + (1000 if 1 <= x < 4 else 0)


def floors(x, n):
    y = x - 8
    return (y // 3) * 1000 + (y % 3) * 100 + (y // 4) * 10 + y % 4 + (y // (n - 20)) + y % (n - 20)


def endless(x, n):
    i = x * 0
    while True:
        i += 2
        if i >= x:
            break
    return i


def loop_values(x, n):
    last = -1
    for i in lw.range(1, x, 3):
        last = i
    down = 0
    for i in lw.range(x, 0, -2):
        down = down * 3 + i
    return last * 100000 + down


def zero_rounds(x, n):
    a = 5
    for i in lw.range(n, n):
        a = i
    while a < 0:
        a = a - 1
    return a


@lw.device
def collapse(value, limit):
    if value > limit:
        return limit
    if value < 0:
        return -value
    return value + 1


def devices(x, n):
    return collapse(x * 3 - 10, n) * 10 + collapse(x, 4)


def unrolled(x, n):
    total = x
    for i in range(4):
        if i == 2:
            continue
        if total > 10:  # noqa: SIM108 (the statement is what is tested)
            total = total - i
        else:
            total = total * 2
    return total


def captured(x, n):
    count = x * 0

    def peek():
        return count * 2

    for i in lw.range(n):
        if i < x:
            count = i + 1
    return peek() + 1


CASES = [
    captured, nested, swaps, containers, chains, floors, endless, loop_values, zero_rounds, unrolled, devices,
]  # fmt: skip


def in_python(function, x: int, n: int) -> int:
    """The same function as plain Python: lw.range is range."""
    names = {**function.__globals__, "lw": type("lw", (), {"range": range}), "collapse": collapse.function}
    return type(function)(function.__code__, names)(x, n)


@lw.kernel
def every_case(out: lw.Ptr[lw.i32], n: lw.i32):
    x = lw.thread_idx.x
    for number, case in enumerate(CASES):
        out[number * 32 + x] = lw.device(case)(x, n)


@pytest.fixture(scope="module")
def outcomes() -> dict[int, np.ndarray]:
    found = {n: np.zeros((len(CASES), 32), np.int32) for n in (7, 16)}
    for n, out in found.items():
        every_case[1, 32](out, n)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_does_what_python_does(case: Callable[..., Any], outcomes: dict[int, np.ndarray]) -> None:
    for n, out in outcomes.items():
        assert out[CASES.index(case)].tolist() == [in_python(case, x, n) for x in range(32)]


@lw.kernel
def guarded(x: lw.Ptr[lw.f32], y: lw.Ptr[lw.f32], n: lw.i32):
    i = lw.thread_idx.x
    if i < n and x[i] > 0.0:
        y[i] = x[i] if x[i] < 1.0 else 1.0
    if i >= n or x[i] == 0.0:
        return
    y[i] += 1.0


def test_and_or_look_at_memory_only_where_python_would() -> None:
    x = np.array([-1, 0, 0.5, 3], np.float32)
    y = np.zeros(4, np.float32)
    guarded[1, 32](x, y, 4)  # reading x[4] would be a fault
    assert y.tolist() == [1, 0, 1.5, 2]


def test_closures_defaults_and_methods() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def apply(self, value):
            return value * self.factor

        @lw.device
        def relu(self, value):
            return self.apply(value) if value > 0 else value * 0.0

    scale, shift = Scale(2.5), 1.25

    def plus(value, by=shift):
        return value + by

    @lw.kernel
    def run(x: lw.Ptr[lw.f32], TIMES: lw.Constexpr = 2):
        i = lw.thread_idx.x
        v = x[i]
        for _ in range(TIMES):
            v = plus(scale.relu(v))
        x[i] = v

    start = np.arange(-16, 16, dtype=np.float32)
    for times in (2, 3):
        x, expected = start.copy(), start.copy()
        run[1, 32](x, TIMES=times)
        for _ in range(times):
            expected = np.where(expected > 0, expected * np.float32(2.5), 0) + np.float32(1.25)
        assert np.array_equal(x, expected)


def test_objects_keep_their_attributes_per_branch() -> None:
    class Counter:
        def __init__(self, start) -> None:
            self.total, self.steps = start, [start * 0, start]

        @lw.device
        def step(self, by) -> None:
            if by > 2:
                self.total = self.total + by
            else:
                self.steps[0] += 1

    @lw.kernel
    def run(out: lw.Ptr[lw.i32]):
        t = lw.thread_idx.x
        counter = Counter(t)
        for i in lw.range(4):
            counter.step(t - i)
        out[t] = counter.total * 10 + counter.steps[0]

    out = np.zeros(32, np.int32)
    run[1, 32](out)
    expected = []
    for t in range(32):
        taken = [t - i for i in range(4) if t - i > 2]
        expected.append((t + sum(taken)) * 10 + 4 - len(taken))
    assert out.tolist() == expected


def test_code_that_is_never_reached_leaves_no_trace() -> None:
    @lw.kernel
    def run(x: lw.Ptr[lw.i32], STOP: lw.Constexpr):
        t = lw.thread_idx.x
        if t > 3:
            if STOP:
                return
            if x[0] > 1:
                x[0] = 7
            for i in lw.range(x[0]):
                x[i] = 8
        x[t] = 1

    stopped, on = run.ptx(STOP=True), run.ptx(STOP=False)
    assert "ld.global" not in stopped and "ld.global" in on
    x = np.zeros(32, np.int32)
    run[1, 32](x, True)
    assert x.tolist() == [1] * 4 + [0] * 28


def test_fragments_are_carried_by_loops_and_branches() -> None:
    mma = lw.instruction("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")

    @lw.kernel
    def run(out: lw.Ptr[lw.f32], n: lw.i32):
        acc = mma.zeros()
        one = mma.c.full(1.0)
        lane = lw.lane_id()
        for i in lw.range(n):
            if i % 2 == 0:
                acc[1] = acc[1] + 2.0
            else:
                acc = acc.map(lambda v: v + 1.0)
            if lane > 15:
                acc[0] = one[0]
        for i in range(4):
            out[lane * 4 + i] = acc[i]

    out = np.zeros((32, 4), np.float32)
    run[1, 32](out, 5)
    assert out[0].tolist() == [2, 8, 2, 2] and out[31].tolist() == [1, 8, 2, 2]


@lw.device
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_a_device_function_calls_itself_while_tracing() -> None:
    @lw.kernel
    def k(out: lw.Ptr[lw.i32]):
        out[0] = fibonacci(7)

    out = np.zeros(1, np.int32)
    k[1, 1](out)
    assert out[0] == 13

    @lw.kernel
    def endless(out: lw.Ptr[lw.i32], n: lw.i32):
        out[0] = fibonacci(n)

    with pytest.raises(lw.KernelError, match="fibonacci calls itself without end"):
        endless.ptx("sm_80")


def test_none_stays_none_after_a_branch() -> None:
    @lw.kernel
    def k(out: lw.Ptr[lw.i32], n: lw.i32):
        bias = None
        if n > 3:
            bias = None
            out[1] = 5
        for _ in lw.range(n):
            bias = None
        out[0] = 1 if bias is None else 2

    out = np.zeros(2, np.int32)
    k[1, 1](out, 4)
    assert out.tolist() == [1, 5]


def test_a_nested_function_has_names_of_its_own() -> None:
    """What a function inside a kernel calls `first` is no variable of the kernel that a loop would carry."""

    @lw.kernel
    def k(x: lw.Ptr[lw.i32], n: lw.i32):
        def place(number):
            first = number * 2
            return first + 1

        for number in lw.range(n):
            first = place(number)
            x[number] = first

    out = np.zeros(8, np.int32)
    k[1, 1](out, 8)
    assert out.tolist() == [1, 3, 5, 7, 9, 11, 13, 15]


def test_the_variable_of_two_loops_and_of_a_comprehension_is_not_one() -> None:
    @lw.kernel
    def kernel(x: lw.Ptr[lw.i32], n: lw.i32) -> None:
        for i in lw.range(n):
            x[i] = x[i] + 1
        for i in lw.range(n):
            x[i] = x[i] * 3
        first = [x[i] for i in range(2)]
        x[0] = first[1]

    x = np.arange(4, dtype=np.int32)
    kernel[1, 1](x, 4)
    assert x.tolist() == [6, 6, 9, 12]


def test_a_loop_variable_that_two_loops_bind_has_no_value_after_them() -> None:
    @lw.kernel
    def kernel(x: lw.Ptr[lw.i32], n: lw.i32) -> None:
        for i in lw.range(n):
            x[i] = 1
        for i in lw.range(n):
            x[i] = 2
        x[0] = i

    with pytest.raises(lw.KernelError, match="i has a value only inside the loop of line"):
        kernel.ptx("sm_80")
