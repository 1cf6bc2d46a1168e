"""Random functions with nested control flow, for holding the language against Python itself."""

from __future__ import annotations

import random
from types import FunctionType, ModuleType, SimpleNamespace

NAMES = ("a", "b", "c", "d")


class Program:
    """Writes one function: every loop ends, every variable has a value before it is read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counter = 0
        self.lines: list[str] = []

    def expression(self, depth: int = 2) -> str:
        kind = self.random.randrange(9 if depth else 3)
        if kind == 0:
            return str(self.random.randint(-5, 9))
        if kind in (1, 2):
            return self.random.choice([*NAMES, "x", "n", "state[0]", "state[1]", "box.value"])
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        if kind < 6:
            return f"({left} {self.random.choice(['+', '-', '*', '&', '^'])} {right})"
        if kind == 6:
            return f"({left} {self.random.choice(['//', '%', '>>'])} {self.random.randint(1, 7)})"
        if kind == 7:
            return f"({left} if {self.condition(depth - 1)} else {right})"
        return f"twist({left}, {right})"

    def condition(self, depth: int = 2) -> str:
        kind = self.random.randrange(6 if depth else 2)
        if kind < 3:
            sign = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"{self.expression(depth - 1 if depth else 0)} {sign} {self.expression(0)}"
        if kind == 3:
            return f"not ({self.condition(depth - 1)})"
        if kind == 4:
            word = self.random.choice(["and", "or"])
            return f"({self.condition(depth - 1)} {word} {self.condition(depth - 1)})"
        return f"-9 < {self.expression(0)} <= {self.expression(0)}"

    def assign(self, indent: str) -> None:
        choice = self.random.randrange(8)
        value = f"wrap({self.expression()})"
        if choice < 4:
            self.lines.append(f"{indent}{self.random.choice(NAMES)} = {value}")
        elif choice == 4:
            self.lines.append(f"{indent}{self.random.choice(NAMES)} += {value}")
        elif choice == 5:
            self.lines.append(f"{indent}state[{self.random.randrange(2)}] = {value}")
        elif choice == 6:
            self.lines.append(f"{indent}box.value = {value}")
        else:
            first, second = self.random.sample(NAMES, 2)
            self.lines.append(f"{indent}{first}, {second} = {second}, {value}")

    def block(self, indent: str, depth: int, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.randrange(6)
            if depth == 0 or kind < 2:
                self.assign(indent)
            elif kind in (2, 3):
                self.lines.append(f"{indent}if {self.condition()}:")
                self.block(indent + "    ", depth - 1, in_loop)
                if self.random.random() < 0.3:
                    self.lines.append(f"{indent}elif {self.condition()}:")
                    self.block(indent + "    ", depth - 1, in_loop)
                if self.random.random() < 0.5:
                    self.lines.append(f"{indent}else:")
                    self.block(indent + "    ", depth - 1, in_loop)
            else:
                self.loop(indent, depth, kind)
        if in_loop and self.random.random() < 0.25:
            self.lines.append(f"{indent}if {self.condition()}:")
            self.lines.append(f"{indent}    {self.random.choice(['break', 'continue'])}")

    def loop(self, indent: str, depth: int, kind: int) -> None:
        self.counter += 1
        index = f"i{self.counter}"
        inner = indent + "    "
        if kind == 4:
            bound = self.random.choice(["3", "n % 4", "x & 3", "(a & 3) + 1"])
            span = self.random.choice([f"{bound}", f"1, {bound}", f"{bound}, -1, -1", f"0, {bound}, 2"])
            self.lines.append(f"{indent}for {index} in lw.range({span}):")
            self.block(inner, depth - 1, True)
            self.lines.append(f"{inner}a = wrap(a + {index})")
        else:
            self.lines.append(f"{indent}{index} = x * 0")
            self.lines.append(f"{indent}while {index} < 3 and {self.condition()}:")
            self.lines.append(f"{inner}{index} += 1")
            self.block(inner, depth - 1, True)

    def source(self, name: str) -> str:
        """The function's source."""
        self.lines = [f"def {name}(x, n):"]
        self.lines += [f"    {each} = {self.random.choice(['x', 'n', 'x + n', '1', '-3'])}" for each in NAMES]
        self.lines += ["    state = [x, n + 1]", "    box = Box(x)"]
        self.block("    ", 3, False)
        self.block("    ", 2, False)
        total = " + ".join(f"{each} * {number}" for number, each in enumerate(NAMES, 3))
        self.lines.append(f"    return {total} + state[0] * 11 + state[1] * 13 + box.value * 17")
        return "\n".join(self.lines)


HEADER = """
from dataclasses import dataclass
import lanewise as lw

@dataclass
class Box:
    value: object

@lw.device
def twist(a, b):
    if a > b:
        return a - b
    if a == b:
        return a + 1
    return b

def wrap(value):
    return lw.i32(value & 1023) - 300
"""


def in_python(module: ModuleType, function: FunctionType, x: int, n: int) -> int:
    """What one of the functions is for plain integers, by Python alone."""
    names = {**vars(module), "lw": SimpleNamespace(range=range), "twist": module.twist.function}
    names["wrap"] = lambda value: (value & 1023) - 300
    outcome: int = FunctionType(function.__code__, names)(x, n)
    return outcome


def module_source(seeds: range) -> str:
    """A module of such functions, `FUNCTIONS` by seed."""
    parts = [HEADER]
    for seed in seeds:
        parts.append(Program(seed).source(f"f{seed}"))
    parts.append(f"FUNCTIONS = [{', '.join(f'f{seed}' for seed in seeds)}]")
    parts.append(
        "@lw.kernel\ndef run(out: lw.Ptr[lw.i32], n: lw.i32):\n    x = lw.thread_idx.x\n"
        "    for number, function in enumerate(FUNCTIONS):\n"
        "        out[number * 32 + x] = lw.device(function)(x, n)\n"
    )
    return "\n\n\n".join(parts)
