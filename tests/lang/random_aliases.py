"""Small random kernels about one thing: lists that are one object on some paths and several on others.

Branches, loops, calls and lists of lists make names of lists meet and part, and change what they hold. Such a
kernel is short, so that many of them can be compared: see `compare_kernels.py`.
"""

import random

from lang.random_kernel_text import SIGNATURE

#: Lists of two numbers each.
NAMES = "pqrs"
DEEPEST_BRANCH, DEEPEST_LOOP = 3, 2
HEADER = """import lanewise as lw


@lw.device
def raise_first(items, x):
    if x > 1:
        items[0] = items[0] + x
    return items[0]


"""
START = """
    lane = lw.lane_id()
    p, q = [lane, n], [3, lane * 2]
    r, s = [n, 7], [lane + 1, -4]
"""


def alias_source(seed: int) -> str:
    """Return the source of a random module with a kernel `program`."""
    return _AliasProgram(seed).source()


class _AliasProgram:
    """A kernel that is drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def source(self) -> str:
        """Return the module; the kernel ends by storing what every list holds."""
        lines = ["r = p"] if self.random.random() < 0.4 else []
        lines += self.statements(0, self.random.randint(2, 6))
        for number, name in enumerate(NAMES):
            place = 64 * number
            lines.append(f"mid[{place} + lane], mid[{place + 32} + lane] = {name}[0], {name}[1]")
        return HEADER + SIGNATURE + START + "".join(f"    {line}\n" for line in lines)

    def name(self) -> str:
        """Return one of the lists."""
        return self.random.choice(NAMES)

    def element(self) -> str:
        """Return an element of one of the lists."""
        return f"{self.name()}[{self.random.randint(0, 1)}]"

    def number(self) -> str:
        """Return a number that a lane computes."""
        constant = str(self.random.randint(-3, 9))
        return self.random.choice(
            ["lane", "n", constant, self.element(), "n + lane", f"{self.element()} + {self.element()}"]
        )

    def condition(self) -> str:
        """Return a condition, the same for all lanes or not."""
        bound = self.random.randint(-2, 20)
        return self.random.choice(
            [f"n > {bound % 5}", f"lane > {bound}", f"{self.element()} > {bound}", "lane % 2 == 0"]
        )

    def statements(self, depth: int, count: int) -> list[str]:
        """Return so many statements, those of branches and loops among them more deeply indented."""
        lines: list[str] = []
        for _ in range(count):
            kind = self.random.random()
            if depth < DEEPEST_BRANCH and kind < 0.22:
                lines += self.branch(depth)
            elif depth < DEEPEST_LOOP and kind < 0.32:
                lines += self.loop(depth)
            else:
                lines += self.simple()
        return lines

    def simple(self) -> list[str]:
        """Return a statement that changes a list, or which list a name stands for."""
        one, two, three = self.name(), self.name(), self.name()
        return self.random.choice(
            [
                [f"{self.element()} = {self.number()}"],
                [f"{self.element()} = {self.number()}"],
                [f"{self.element()} += {self.number()}"],
                [f"{one} = {two}"],
                [f"{one} = {two} if {self.condition()} else {three}"],
                [f"{one}, {two} = {two}, {one}"],
                [f"{one} = [{self.number()}, {self.number()}]"],
                [f"{one} = list({two})"],
                [f"raise_first({one}, {self.number()})"],
                [f"box = [{one}, {two}]", f"box[{self.random.randint(0, 1)}][0] = {self.number()}"],
            ]
        )

    def branch(self, depth: int) -> list[str]:
        """Return an `if`, some with an `else`."""
        lines = [f"if {self.condition()}:", *self.inside(depth)]
        return [*lines, "else:", *self.inside(depth)] if self.random.random() < 0.4 else lines

    def loop(self, depth: int) -> list[str]:
        """Return a loop of the running kernel, some with a `break`."""
        rounds = self.random.choice(["n", "2", "3"])
        lines = [f"for i{depth} in lw.range({rounds}):", *self.inside(depth)]
        if self.random.random() < 0.2:
            lines += [f"    if {self.condition()}:", "        break"]
        return lines

    def inside(self, depth: int) -> list[str]:
        """Return the statements of a branch or loop."""
        return [f"    {line}" for line in self.statements(depth + 1, self.random.randint(1, 3))]
