"""What every random kernel begins with: functions and classes to call, and the kernel's signature."""

from __future__ import annotations

#: `{warps}` stands for the warps of a block.
HEADER = """import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
imma = lw.instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
TABLE = []
WARPS = {warps}


class Box:
    def __init__(self, v, w):
        self.v, self.w = v, w

    def swap(self):
        self.v, self.w = self.w, self.v

    def put(self, x):
        self.v = x
        return self.w


class Slim:
    __slots__ = ("v", "w")

    def __init__(self, v, w):
        self.v, self.w = v, w

    def put(self, x):
        self.v = x
        return self.w

    def swap(self):
        self.v, self.w = self.w, self.v


@lw.device
def twist(a, b):
    if a > b:
        return a - b
    if a == b:
        return a + 1
    return b


@lw.device
def first_of(items, x):
    if x > items[0]:
        items[0] = x
    else:
        items[1] = items[0]
        return x
    return items[1]


@lw.device
def rounds(items, n):
    for k in lw.range(n):
        items[0], items[1] = items[1], items[0] + 1
        if items[0] > 50:
            break
    return items[0]


@lw.device
def ordered(a, b):
    if a > b:
        if b > 3:
            return b, a
        return b, a + 1
    return a, b


@lw.device
def search(items, x):
    if x == items[0]:
        return items[1]
    elif x > 4:
        items[1] = x
        if x > 9:
            return items[0]
    else:
        return x - 1
    return x


@lw.device
def walk(items, n):
    total, k = items[0], lw.i32(0)
    while k < (n & 3):
        k += 1
        if total > 40:
            continue
        total = total + items[1]
        if total == 12:
            break
    return total


@lw.device
def pick(a, b, x):
    chosen = a
    if x > 3:
        chosen = b
    return chosen


def set_first(items, x):
    items[0] = x
    return items[1]


def keep(memory, at, x):
    memory[at & 3] = x
    return x + 1


def spread(first, *rest, last):
    return first + sum(rest) - last


def add_to_all(items, x):
    for number, item in enumerate(items):
        items[number] = item + x


def new_tensor(memory, dtype, value):
    made = lw.make_fragment_like(lw.make_tensor(memory, lw.Layout((2, 2))), dtype)
    lw.fill(made, value)
    return made


def loaded_tensor(memory):
    seen = lw.make_tensor(memory, lw.Layout((2, 2)))
    made = lw.make_fragment_like(seen, lw.i32)
    lw.copy(seen, made)
    return made


def new_sums(value):
    made = lw.wmma.fragment(lw.wmma.accumulator, 16, 16, 16, lw.f32)
    lw.wmma.fill_fragment(made, value)
    return made


def multiplied(sums, a, b):
    lw.wmma.mma_sync(sums, a, b, sums)
    return sums


def make_counter(start):
    count = start

    def bump(x):
        nonlocal count
        count = count + x
        return count

    return bump


def make_store(items):
    def push(x):
        items[1] = items[0]
        items[0] = x
        return items[1]

    return push
"""


SIGNATURE = """@lw.kernel
def program(
    out: lw.Ptr[lw.i64], real: lw.Ptr[lw.f64], mid: lw.Ptr[lw.i32], vec: lw.Ptr[lw.i32, 16],
    x: lw.Ptr[lw.i32, 16], y: lw.Ptr[lw.f32, 16], n: lw.i32,
):"""
