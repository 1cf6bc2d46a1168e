"""Small random kernels about single values: what shares a register, signed zeros, and conditions that change.

Fragments and pairs hold several numbers in one register, WMMA writes one fragment and reads another, a zero
has a sign, and the condition of a `while` or of `a if c else b` may change a list when it is evaluated. Such
a kernel is short, so that many of them can be compared: see `compare_kernels.py`.
"""

import random

from lang.random_kernel_text import SIGNATURE

DEEPEST = 2
HEADER = """import lanewise as lw

mma = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
imma = lw.instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")


def bump(items, x):
    items[0] = items[0] + x
    return items[0]


def swapped(items):
    items[0], items[1] = items[1], items[0]
    return items[1] > items[0]


def new_sums(value):
    made = lw.wmma.fragment(lw.wmma.accumulator, 16, 16, 16, lw.f32)
    lw.wmma.fill_fragment(made, value)
    return made


"""
START = """
    lane = lw.lane_id()
    f, g, h = mma.a.full(1), mma.a.full(2), imma.a.full(3)
    for k in range(8):
        f[k], g[k], h[k] = (lane + k).to(lw.f16), (lane * k).to(lw.f16), (lane - k).to(lw.i8)
    e, d = f[0], h[1]
    zeros = [lw.f32(0.0), lw.f32(-0.0)]
    p, q = [lane, n], [n + 3, lane * 2]
    u, v = lw.pack(y[lane].to(lw.f16), lw.f16(1.5)), lw.pack(lw.f16(2.0), lane.to(lw.f16))
    wmma_a = lw.wmma.fragment(lw.wmma.matrix_a, 16, 16, 16, lw.f16, lw.wmma.row_major)
    wmma_b = lw.wmma.fragment(lw.wmma.matrix_b, 16, 16, 16, lw.f16, lw.wmma.row_major)
    lw.wmma.fill_fragment(wmma_a, 1.0)
    lw.wmma.fill_fragment(wmma_b, 2.0)
    s, t, w = new_sums(1.0), new_sums(n.to(lw.f32)), new_sums(-3.0)
"""
END = """
    for k, item in enumerate([*f, *g]):
        real[k * 64 + lane] = item.to(lw.f64)
    signed = [lw.f32(zeros[0]), lw.f32(zeros[1])]
    for k, item in enumerate([*signed, s.x[0], s.x[7], t.x[0], t.x[7], w.x[0], w.x[7]]):
        real[(16 + k) * 64 + lane] = item.to(lw.f64)
    for k, item in enumerate([*lw.unpack(u), *lw.unpack(v), e]):
        real[(24 + k) * 64 + lane] = item.to(lw.f64)
    for k, item in enumerate([*h, d]):
        out[k * 64 + lane] = item.to(lw.i64)
    for k, item in enumerate([*p, *q]):
        mid[k * 64 + lane] = item
"""


def value_source(seed: int) -> str:
    """Return the source of a random module with a kernel `program`."""
    return _ValueProgram(seed).source()


class _ValueProgram:
    """A kernel that is drawn from a seed: a few statements about one or two of its variables."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        every = (self.packed, self.packed, self.pair, self.zero, self.lists, self.wmma)
        self.subjects = self.random.sample(every, 2)
        self.counters = 0
        #: Whether all lanes come here together, as a matrix instruction asks for.
        self.together = True

    def source(self) -> str:
        """Return the module; the kernel ends by storing what every variable holds."""
        lines = self.statements(0, self.random.randint(2, 5))
        return HEADER + SIGNATURE + START + "".join(f"    {line}\n" for line in lines) + END

    def pick(self, *texts: str) -> str:
        """Return one of several texts."""
        return self.random.choice(texts)

    def statements(self, depth: int, count: int) -> list[str]:
        """Return so many statements, those of branches and loops among them more deeply indented."""
        lines: list[str] = []
        for _ in range(count):
            kind = self.random.random()
            if depth < DEEPEST and kind < 0.3:
                lines += self.branch(depth)
            elif depth < DEEPEST and kind < 0.55:
                lines += self.loop(depth)
            else:
                lines.append(self.random.choice(self.subjects)())
        return lines

    # statements -------------------------------------------------------------------------------------------

    def packed(self) -> str:
        """Return a change of elements that share registers, or of which fragment a name stands for."""
        one, two = self.pick("f", "g"), self.pick("f", "g")
        i, j = self.random.randrange(8), self.random.randrange(8)
        return self.pick(
            f"{one}[{i}] = {two}[{j}] + {self.random.randint(1, 3)}",
            f"e = {two}[{j}]",
            f"{one}[{i}] = e",
            f"d = h[{i}]",
            f"h[{j}] = d",
            f"{one}[{i}], {one}[{j}] = {one}[{j}], {one}[{i}]",
            f"{one}[{i}] = {self.half()}",
            f"h[{i}], h[{j}] = h[{j}], lane.to(lw.i8)",
            f"{one} = {one}.map(lambda item: item + {two}[{i}])",
            f"{one}[{i}] = {two}[{j}] if {self.condition()} else {one}[{j}]",
        )

    def half(self) -> str:
        """Return a number of 16 bits."""
        return self.pick("y[lane].to(lw.f16)", "lw.f16(-0.0)", "lw.unpack(u)[1]", "e", "n.to(lw.f16)")

    def pair(self) -> str:
        """Return a change of two numbers in one register."""
        one, two = self.pick("u", "v"), self.pick("u", "v")
        return self.pick(
            f"{one} = {one} {self.pick('+', '-', '*')} {two}",
            f"{one} = lw.pack({self.half()}, lw.unpack({two})[0])",
            f"{one} = lw.pack(lw.unpack({one})[1], {self.half()})",
            "u, v = v, u",
            f"{one} = {two}",
        )

    def zero(self) -> str:
        """Return a change of numbers that are 0 or -0."""
        i, j = self.random.randrange(2), self.random.randrange(2)
        one, two = self.pick("0.0", "-0.0"), self.pick("0.0", "-0.0", f"zeros[{j}]")
        return self.pick(
            f"zeros[{i}] = {self.pick('0.0', '-0.0', 'lw.f32(0.0)', 'lw.f32(-0.0)')}",
            f"zeros[{i}] = zeros[{j}]",
            f"zeros[{i}] = -zeros[{j}]",
            f"zeros[{i}] = zeros[{j}] * {self.pick('-1', '2', '0')}",
            f"zeros[{i}] = zeros[{j}] + {one}",
            f"zeros[{i}] = {one} if {self.condition()} else {two}",
            f"zeros[{i}] = lw.where({self.condition()}, {one}, {two})",
            "zeros[0], zeros[1] = zeros[1], zeros[0]",
        )

    def lists(self) -> str:
        """Return a change of a list, by an expression that changes one as well."""
        one, two = self.pick("p", "q"), self.pick("p", "q")
        other = "q" if one == "p" else "p"
        constant = self.random.randint(1, 3)
        return self.pick(
            f"{one}[1] = bump({two}, {constant})",
            f"{one}[0] = bump({two}, 1) if {self.condition()} else bump({other}, {constant})",
            f"{one} = list({one} if {self.condition()} else {other})",
            f"{one} = [{one}[0], {other}[1]] if {self.condition()} else [{other}[0], 7]",
            f"{one}[1] = (list({one}) if {self.condition()} else list({other}))[{self.random.randrange(2)}]",
        )

    def wmma(self) -> str:
        """Return a product by WMMA, whose result is one fragment and whose addend is another."""
        one, two, three = self.pick("s", "t", "w"), self.pick("s", "t", "w"), self.pick("s", "t", "w")
        change = self.pick(f"{one}.x[0] = {two}.x[7] + 1", f"{one}.x[7] = {two}.x[0]")
        return f"lw.wmma.mma_sync({one}, wmma_a, wmma_b, {three})" if self.together else change

    # control flow -----------------------------------------------------------------------------------------

    def condition(self) -> str:
        """Return a condition, the same for all lanes or not."""
        bound = self.random.randint(0, 20)
        return self.pick(f"n > {bound % 5}", f"lane > {bound}", f"p[0] > {bound}", "lane % 2 == 0")

    def changing(self) -> str:
        """Return a condition that changes a list when it is evaluated."""
        name = self.pick("p", "q")
        return self.pick(
            f"bump({name}, {self.random.randint(1, 4)}) < {self.random.randint(3, 40)}", f"swapped({name})"
        )

    def branch(self, depth: int) -> list[str]:
        """Return an `if`, some with an `else`."""
        uniform = self.together and self.random.random() < 0.5
        test = f"n > {self.random.randint(0, 4)}" if uniform else self.pick(self.condition(), self.changing())
        lines = [f"if {test}:", *self.inside(depth, uniform)]
        return [*lines, "else:", *self.inside(depth, uniform)] if self.random.random() < 0.6 else lines

    def loop(self, depth: int) -> list[str]:
        """Return a loop of the running kernel; the condition of some changes a list."""
        self.counters += 1
        index = f"i{self.counters}"
        if self.random.random() < 0.5:
            rounds = self.pick("n", "2", "3")
            return [f"for {index} in lw.range({rounds}):", *self.inside(depth, True)]
        test = self.pick(f"{index} < 3 and {self.changing()}", f"{self.changing()} and {index} < 3")
        lines = [f"{index} = lw.i32(0)", f"while {test}:", f"    {index} += 1"]
        return [*lines, *self.inside(depth, False)]

    def inside(self, depth: int, uniform: bool) -> list[str]:
        """Return the statements of a branch or loop."""
        before, self.together = self.together, self.together and uniform
        lines = [f"    {line}" for line in self.statements(depth + 1, self.random.randint(1, 3))]
        self.together = before
        return lines
