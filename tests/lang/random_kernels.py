"""Random kernels, as Python source, with all that a kernel can do to its variables.

Values alias each other, part and meet again: in lists, tuples, dicts, objects, closures and fragments, in
branches, loops, device functions and plain functions. Every variable has a value, every loop ends, no
integer is divided by zero, and what lanes do together is done where all lanes come.
"""

import random
from typing import Any

from lang.random_kernel_text import HEADER, SIGNATURE

INT = ("i32", "u32", "i64", "u64", "i16", "u16")
FLOAT = ("f32", "f16", "bf16", "f64")
STORED = ("i8", "u8", "e4m3")
#: The types of a variable of one number, the common ones more often.
SCALARS = ("i32",) * 6 + (
    "u32",
    "f32",
    "f32",
    "i64",
    "u64",
    "i16",
    "u16",
    "f16",
    "f16",
    "bf16",
    "f64",
    "i8",
    "u8",
    "e4m3",
)
#: The elements of fragments and tensors in registers that programs read and write, and their types.
ELEMENTS = {
    "mma": ("f32", ("[0]", "[3]")),
    "imma": ("i32", ("[0]", "[3]")),
    "mma_a": ("f16", ("[0]", "[1]", "[7]")),
    "imma_a": ("i8", ("[0]", "[1]", "[6]")),
    "sums": ("f32", (".x[0]", ".x[5]")),
    "tensor_f32": ("f32", ("[0, 1]", "[1, 0]")),
    "tensor_i32": ("i32", ("[0, 0]", "[1, 0]")),
    "tensor_f16": ("f16", ("[0, 0]", "[1, 0]", "[1, 1]")),
}
#: Those whose elements share registers.
PACKED = ("mma_a", "imma_a", "tensor_f16")
PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
STRUCTURES = (
    "list",
    "list",
    "list",
    "list",
    "tuple",
    "dict",
    "Box",
    "Slim",
    "mma",
    "imma",
    *ELEMENTS,
    *PAIRS,
)
RANGES = {
    "i32": 9999,
    "u32": 9999,
    "i64": 1 << 40,
    "u64": 1 << 40,
    "i16": 300,
    "u16": 300,
    "i8": 100,
    "u8": 100,
}


class Kind:
    """What a variable holds: a number of a type, or a structure of such."""

    def __init__(self, form: str, parts: tuple[Any, ...] = ()) -> None:
        self.form, self.parts = form, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and (self.form, self.parts) == (other.form, other.parts)

    def __hash__(self) -> int:
        return hash((self.form, self.parts))

    @property
    def is_scalar(self) -> bool:
        return self.form in SCALARS or self.form in ("pred", "number")


def scalar(name: str) -> Kind:
    return Kind(name)


class Program:
    """Writes one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.warps = self.random.choice((1, 1, 2))
        self.lines: list[str] = []
        self.names: dict[str, Kind] = {}
        self.counter = 0
        #: Whether all lanes come here together, apart from those that have ended.
        self._converged = True
        #: Whether a lane may have ended before others.
        self.parted = False
        #: Loops that are open: whether each is one of the kernel.
        self.loops: list[bool] = []
        #: Whether all lanes go through the rounds of each open loop together.
        self.uniform_loops: list[bool] = []
        self.depth = 0
        self.stored = 0
        #: How often a container gets another name instead of a copy.
        self.aliases = self.random.choice((0, 0.02, 0.06, 0.3))

    @property
    def converged(self) -> bool:
        """Whether all lanes come here together."""
        return self._converged and not self.parted

    @converged.setter
    def converged(self, value: bool) -> None:
        self._converged = value

    # choices --------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def paths(self, kind: Kind | None = None, write: bool = False) -> list[tuple[str, Kind]]:
        """The locations that hold a kind of value, as Python writes them."""
        found: list[tuple[str, Kind]] = []

        def walk(text: str, each: Kind, writable: bool) -> None:
            if (kind is None or each == kind) and (writable or not write):
                found.append((text, each))
            if each.form in ("list", "tuple"):
                for number, part in enumerate(each.parts):
                    walk(f"{text}[{number}]", part, each.form == "list")
            elif each.form == "dict":
                for key, part in zip("ab", each.parts, strict=True):
                    walk(f"{text}[{key!r}]", part, True)
            elif each.form in ("Box", "Slim"):
                for key, part in zip("vw", each.parts, strict=True):
                    walk(f"{text}.{key}", part, True)
            elif each.form in ELEMENTS:
                element, places = ELEMENTS[each.form]
                for place in places:
                    walk(f"{text}{place}", scalar(element), True)
            elif each.form in PAIRS:
                for number in (0, 1):
                    walk(f"lw.unpack({text})[{number}]", scalar(PAIRS[each.form]), False)

        for name, each in self.names.items():
            if each.form != "function":
                walk(name, each, True)
        return found

    def structure(self, depth: int = 2) -> Kind:
        """A random kind of a structure."""
        form = self.random.choice(STRUCTURES)
        if form in ELEMENTS or form in PAIRS:
            return Kind(form)
        count = 2 if form != "list" or self.chance(0.8) else 3
        alike = self.kind_inside(depth - 1)
        return Kind(
            form, tuple(alike if self.chance(0.7) else self.kind_inside(depth - 1) for _ in range(count))
        )

    def kind_inside(self, depth: int) -> Kind:
        if depth > 0 and self.chance(0.4):
            return self.structure(depth)
        return scalar(self.random.choice(SCALARS))

    # expressions ----------------------------------------------------------------------------------------

    def literal(self, name: str) -> str:
        if name in INT or name in ("i8", "u8"):
            limit = RANGES[name] if self.chance(0.3) else 9
            low = -limit if name[0] == "i" else 0
            return f"lw.{name}({self.random.randint(low, limit)})"
        return f"lw.{name}({self.random.choice(('0.0', '-0.0', '1.0', '-2.5', '0.375', '3.0', '7.5'))})"

    def read(self, kind: Kind) -> str | None:
        """A location that holds a kind of value."""
        paths = self.paths(kind)
        return self.random.choice(paths)[0] if paths else None

    def expression(self, name: str, depth: int = 2) -> str:
        """An expression of a number type."""
        if name == "pred":
            return f"({self.comparison(depth)})"
        if name == "number":
            name = "i32"
        choice = self.random.randrange(14 if depth > 0 else 3)
        if choice < 2:
            return self.read(scalar(name)) or self.literal(name)
        if choice == 2:
            return self.leaf(name)
        if choice == 3 and self.chance(0.4):
            return self.effect(name, depth)
        if choice == 3 and name == "i32" and self.chance(0.4):
            before, self.converged = self.converged, False
            other = self.expression(name, depth - 1)
            self.converged = before
            return f"(x[lane * 4] if lane < 16 else {other})"
        if choice == 3 and name == "i32" and (numbers := self.paths(Kind("number"))):
            return f"lw.i32({self.random.choice(numbers)[0]})"
        if choice == 4:
            before, self.converged = self.converged, False
            left, right = (
                self.effect(name, depth) if self.chance(0.25) else self.expression(name, depth - 1)
                for _ in range(2)
            )
            self.converged = before
            return f"({left} if {self.condition(depth - 1)} else {right})"
        if choice == 5:
            parts = self.comparison(depth - 1), *(self.expression(name, depth - 1) for _ in range(2))
            return f"lw.where({', '.join(parts)})"
        if choice == 6:
            other = self.random.choice(SCALARS)
            if "bf16" in (name, other) and not {name, other} <= {"bf16", "f32", "i32", "u32"}:
                other = "f32"
            if {name, other} & {"e4m3"} and not {name, other} <= {"e4m3", "f32", "f16"}:
                other = "f32"
            if name == "f16" and other in ("i64", "u64", "f64", "bf16"):
                other = "f32"
            if name == "bf16" and other in ("i32", "u32"):
                other = "f32"
            if name in ("f32",) and other == "f64":
                other = "i32"
            return f"{self.expression(other, depth - 1)}.to(lw.{name})"
        if choice == 7 and self.converged and name in ("i32", "u32", "f32"):
            how = self.random.choice(("shfl_xor_sync", "shfl_up_sync", "shfl_down_sync", "shfl_sync"))
            if name != "f32" and self.chance(0.3):
                how = self.random.choice(("sum", "max", "min"))
                return f'lw.warp_reduce({self.expression(name, depth - 1)}, "{how}")'
            return f"lw.{how}({self.expression(name, depth - 1)}, {self.random.randint(1, 30)})"
        if choice == 8 and name in ("i32", "i64", "u32") and self.chance(0.4):
            parts = [self.expression(name, depth - 1) for _ in range(2)]
            return self.random.choice(
                (
                    f"ordered({', '.join(parts)})[{self.random.randrange(2)}]",
                    f"spread({parts[0]}, {self.read(scalar(name)) or parts[0]}, last={parts[1]})",
                    f"sum([{', '.join(parts)}])",
                )
            )
        if choice == 8 and name in ("i32", "i64", "u32"):
            return f"twist({self.expression(name, depth - 1)}, {self.expression(name, depth - 1)})"
        if name in STORED:
            return self.leaf(name) if self.chance(0.3) else self.read(scalar(name)) or self.literal(name)
        left, right = self.expression(name, depth - 1), self.expression(name, depth - 1)
        if choice == 9 and name in INT:
            divisor = self.random.choice(("3", "4", "7", "8", f"(({right} & 7) + 1)"))
            return f"({left} {self.random.choice(('//', '%'))} {divisor})"
        if choice == 10 and name in INT:
            return self.random.choice(
                (
                    f"({left} >> {self.random.randint(0, 9)})",
                    f"({left} << {self.random.randint(0, 9)})",
                    f"(~{left})",
                    f"(-{left})",
                )
            )
        if choice == 11 and name not in ("f16", "bf16"):
            return (
                f"lw.{self.random.choice(('min', 'max'))}({left}, {right})"
                if name in ("i32", "u32", "i64")
                else f"({left} + {right})"
            )
        if choice == 12 and name in INT:
            return f"({left} {self.random.choice('&|^')} {right})"
        if choice == 13:
            return f"({left} {self.random.choice('+-*')} {self.random.choice(('1', '2', '3'))})"
        return f"({left} {self.random.choice('+-*')} {right})"

    def effect(self, name: str, depth: int) -> str:
        """An expression that changes a list or memory when it is evaluated."""
        lists = self.paths(Kind("list", (scalar(name),) * 2))
        if lists and self.chance(0.6):
            return f"set_first({self.random.choice(lists)[0]}, {self.expression(name, depth - 1)})"
        if name == "i32":
            return f"keep(own, {self.expression('i32', depth - 1)}, {self.expression('i32', depth - 1)})"
        if self.chance(0.5):
            return (
                f"keep(own, lane, {self.expression('i32', depth - 1)}).to(lw.f32).to(lw.{name})"
                if name in FLOAT
                else f"keep(own, lane, {self.expression('i32', depth - 1)}).to(lw.{name})"
                if name in INT
                else self.literal(name)
            )
        return self.read(scalar(name)) or self.literal(name)

    def leaf(self, name: str) -> str:
        """A number that differs from lane to lane, or a parameter."""
        if name == "i32":
            return self.random.choice(
                (
                    "lane",
                    "n",
                    "x[lane]",
                    "(lane & 3)",
                    "x[(lane + 5) & 31]",
                    "lw.abs(x[lane])",
                    "vec[lane * 4 + 1]",
                )
            )
        if name == "f32":
            return self.random.choice(("y[lane]", "y[63 - lane]", "lane.to(lw.f32)"))
        if name == "e4m3":
            return "y[lane].to(lw.e4m3)"
        if name == "u32" and self.chance(0.3):
            return "lw.bitcast(y[lane], lw.u32)"
        if name == "f16" and self.chance(0.6):
            return f"eight[{self.random.randrange(2)}]"
        if name == "u8" and self.chance(0.6):
            return f"four[{self.random.randrange(2)}]"
        if name in ("f16", "bf16"):
            return f"y[lane].to(lw.{name})"
        return f"lane.to(lw.{name})"

    def comparison(self, depth: int = 1) -> str:
        """A comparison, which is of type pred."""
        name = self.random.choice(("i32", "i32", "i32", "u32", "f32", "i64", "i16", "f16"))
        sign = self.random.choice(("<", "<=", ">", ">=", "==", "!="))
        right = self.expression(name, 0) if self.chance(0.5) else str(self.random.randint(0, 20))
        return f"{self.expression(name, depth - 1)} {sign} {right}"

    def condition(self, depth: int = 1) -> str:
        """Something that `if` and `while` take."""
        before, self.converged = self.converged, False  # what follows `and` or `or` is not always evaluated
        try:
            return self._condition(depth)
        finally:
            self.converged = before

    def _condition(self, depth: int) -> str:
        kind = self.random.randrange(8 if depth > 0 else 3)
        if kind == 3:
            return f"not ({self.condition(depth - 1)})"
        if kind == 4:
            word = self.random.choice(("and", "or"))
            behind = self.random.choice((self.condition(depth - 1), self.condition(depth - 1), self.behind()))
            more = f" {word} {self.condition(depth - 1)}" if self.chance(0.2) else ""
            return f"({self.condition(depth - 1)} {word} {behind}{more})"
        if kind == 2 and self.chance(0.3):
            return f"(({self.comparison(depth)}) {self.random.choice('&|')} ~({self.comparison(depth)}))"
        if kind == 5:
            return f"-9 < {self.expression('i32', 0)} <= {self.expression('i32', 0)}"
        if kind == 6 and (flags := self.paths(Kind("pred"))):
            return self.random.choice(flags)[0]
        if kind == 7:
            return self.expression("i32", 1)
        return self.comparison(depth)

    def behind(self) -> str:
        """A condition that may only be evaluated where what stands before it holds: it changes something."""
        limit = self.random.randint(0, 20)
        if self.chance(0.3):
            word, sign = self.random.choice((("and", "<"), ("or", ">=")))
            return f"(lane {sign} 16 {word} x[lane * 4] > {limit})"
        return f"{self.effect('i32', 1)} > {limit}"

    def uniform_condition(self) -> str:
        """A condition on which all lanes agree."""
        bound = self.random.randint(0, 6)
        text = self.random.choice((f"n > {bound}", f"n % 3 == {bound % 3}", f"n & 1 == {bound & 1}"))
        uniform = [name for name in self.names if name.startswith("k_")]
        if uniform and self.chance(0.4):
            text = f"{self.random.choice(uniform)} {self.random.choice(('<', '>', '=='))} {bound}"
        return text

    def value(self, kind: Kind, depth: int = 2) -> str:
        """An expression of any kind, often another name for what there is."""
        if kind.is_scalar:
            if kind.form == "number":
                return str(self.random.randint(-5, 9)) if self.chance(0.4) else self.expression("i32")
            return self.expression(kind.form, depth)
        known = self.read(kind)
        if known and self.chance(self.aliases):
            return known
        if kind.form in PAIRS:
            return self.pair(kind, known, depth)
        if kind.form in ELEMENTS and kind.form not in ("mma", "imma"):
            return self.registers(kind, known)
        if kind.form in ("mma", "imma"):
            if known and self.converged and self.chance(0.6):
                full = f"{kind.form}.a.full({self.random.randint(0, 2)})"
                operand = self.read(Kind(f"{kind.form}_a")) or full
                return f"{kind.form}({operand}, {kind.form}_b, {known})"
            if known and self.chance(0.4):
                return f"{known}.map(lambda e: e + {self.random.randint(0, 3)})"
            return f"{kind.form}.zeros()"
        if known and self.chance(2 * self.aliases) and depth > 0:
            other = known if self.chance(0.5) else self.read(kind)
            return f"({known} if {self.condition(0)} else {other})"
        alike = kind.form == "list" and len(set(kind.parts)) == 1
        if alike and self.chance(
            0.3 if kind.parts[0].is_scalar or kind.parts[0].form in ("mma", "imma") else self.aliases
        ):
            return f"[{self.value(kind.parts[0], depth - 1)}] * {len(kind.parts)}"
        if known and alike and kind.parts[0].form in (*INT, *FLOAT) and self.chance(0.3):
            step = self.random.choice((" + 1", " * 2", ""))
            return f"[e{step} for e in {known}]"
        if known and alike and self.chance(0.15):
            return self.random.choice((f"{known}[::-1]", f"[*{known}[1:], {known}[0]]", f"list({known})"))
        computes = all(part.form in (*INT, *FLOAT) for part in kind.parts)
        if known and computes and kind.form in ("dict", "tuple") and self.chance(0.3):
            if kind.form == "dict":
                return f"{{key: item + 1 for key, item in {known}.items()}}"
            return f"tuple(item * 2 for item in {known})"
        parts = [self.value(part, depth - 1) for part in kind.parts]
        if kind.form == "list":
            return f"[{', '.join(parts)}]"
        if kind.form == "tuple":
            return f"({', '.join(parts)})"
        if kind.form == "dict":
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip("ab", parts, strict=True)) + "}"
        return f"{kind.form}({', '.join(parts)})"

    def pair(self, kind: Kind, known: str | None, depth: int) -> str:
        """Two 16-bit floats in one register."""
        name = PAIRS[kind.form]
        if known and depth > 0 and self.chance(0.5):
            return f"({known} {self.random.choice('+-*')} {self.pair(kind, self.read(kind), depth - 1)})"
        if self.chance(0.3):
            return f"lw.pack({self.expression('f32', 1)}, {self.expression('f32', 1)}, lw.{name})"
        return f"lw.pack({self.expression(name, 1)}, {self.expression(name, 1)})"

    def registers(self, kind: Kind, known: str | None) -> str:
        """A fragment of A, sums of WMMA, or a tensor in registers."""
        element = ELEMENTS[kind.form][0]
        number = self.random.randint(0, 3)
        if kind.form == "sums":
            if known and self.converged and self.chance(0.5):
                return f"multiplied({known}, wmma_a, wmma_b)"
            return f"new_sums({number})"
        if known and element in (*INT, *FLOAT) and self.chance(0.5):
            return f"{known}.map(lambda e: e + {number})"
        if kind.form == "tensor_i32" and self.chance(0.5):
            return "loaded_tensor(vec + lane * 4)"
        if kind.form.startswith("tensor"):
            return f"new_tensor(x, lw.{element}, {number})"
        return f"{kind.form.replace('_', '.')}.full({number})"

    # statements -----------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def assign(self) -> None:
        paths = [each for each in self.paths(write=True) if not each[0].startswith("k_")]
        packed = [(path, ELEMENTS[kind.form][1]) for path, kind in paths if kind.form in PACKED]
        if packed and self.chance(0.15):
            path, (one, two, *_) = self.random.choice(packed)
            self.write(
                f"{path}{one}, {path}{two} = {path}{two}, {path}{one}"
                if self.chance(0.6)
                else f"{path}{one} = {path}{two}"
            )
            return
        structured = [each for each in paths if not each[1].is_scalar]
        passing = [each for each in paths if each[0].startswith("t")]
        if passing and self.chance(0.3):
            paths, structured = passing, []
        path, kind = self.random.choice(structured if structured and self.chance(0.35) else paths)
        choice = self.random.randrange(6)
        others = [
            each for each in self.paths(kind, write=True) if each[0] != path and not each[0].startswith("k_")
        ]
        if choice == 0 and others and (kind.is_scalar or self.chance(2 * self.aliases)):
            other = self.random.choice(others)[0]
            self.write(
                f"{path}, {other} = {other}, {path}"
                if self.chance(0.7)
                else f"{path}, {other} = {other}, {self.value(kind)}"
            )
        elif choice == 1 and kind.form in (*INT, *FLOAT):
            sign = (
                self.random.choice(("+", "-", "*", "+"))
                if kind.form in FLOAT
                else self.random.choice(("+", "-", "*", "^", "|"))
            )
            self.write(f"{path} {sign}= {self.expression(kind.form)}")
        elif choice == 1 and kind.form == "number":
            self.write(f"{path} += {self.random.randint(1, 3)}")
        elif choice == 2 and others and (kind.is_scalar or self.chance(2 * self.aliases)):
            self.write(f"{path} = {self.random.choice(others)[0]}")
        elif choice == 3 and others and kind.is_scalar and kind.form != "number":
            self.write(f"{path} = {self.random.choice(others)[0]} = {self.value(kind)}")
        else:
            self.write(f"{path} = {self.value(kind)}")

    def call(self) -> None:
        """A statement that calls a function which changes what it is given."""
        pairs = [
            (path, kind) for path, kind in self.paths() if kind.form == "list" and len(set(kind.parts)) == 1
        ]
        ordered = [each for each in pairs if each[1].parts[0].form in ("i32", "i64")]
        objects = [(path, kind) for path, kind in self.paths() if kind.form in ("Box", "Slim")]
        stores = [name for name in self.names if name.startswith("push")]
        counters = [name for name in self.names if name.startswith("bump")]
        choice = self.random.choice((4, 5)) if self.chance(0.3) else self.random.randrange(12)
        if choice >= 8:
            self.python(choice, pairs, ordered)
            return
        if choice == 0 and pairs:
            path, kind = self.random.choice(pairs)
            self.target(kind.parts[0], f"set_first({path}, {self.value(kind.parts[0])})")
        elif choice == 1 and ordered:
            path, kind = self.random.choice(ordered)
            self.target(kind.parts[0], f"first_of({path}, {self.value(kind.parts[0])})")
        elif choice == 2 and ordered:
            path, kind = self.random.choice(ordered)
            self.target(kind.parts[0], f"rounds({path}, {self.random.choice(('n & 3', '2', 'lane & 3'))})")
        elif choice == 3 and objects:
            path, kind = self.random.choice(objects)
            if kind.parts[0] == kind.parts[1] and self.chance(0.5):
                self.write(f"{path}.swap()")
            else:
                self.target(kind.parts[1], f"{path}.put({self.value(kind.parts[0])})")
        elif choice == 4 and stores:
            name = self.random.choice(stores)
            self.target(self.names[name].parts[0], f"{name}({self.value(self.names[name].parts[0])})")
        elif choice == 5 and counters:
            self.target(scalar("i32"), f"{self.random.choice(counters)}({self.expression('i32')})")
        elif choice == 6 and self.chance(4 * self.aliases):
            kinds = [kind for _, kind in self.paths() if not kind.is_scalar]
            kind = self.random.choice(kinds) if kinds else scalar("i32")
            self.target(kind, f"pick({self.value(kind)}, {self.value(kind)}, {self.expression('i32')})")
        else:
            self.target(scalar("i32"), f"later({self.expression('i32')})")

    def python(self, choice: int, pairs: list[tuple[str, Kind]], ordered: list[tuple[str, Kind]]) -> None:
        """What Python does with lists by itself: loops over them, methods, unpacking, `:=`."""
        sums = [(path, kind) for path, kind in pairs if kind.parts[0].form in (*INT, *FLOAT)]
        if choice == 8 and pairs:
            path, kind = self.random.choice(pairs)
            first, *rest = self.fresh("t"), self.fresh("t")
            self.write(
                self.random.choice(
                    (
                        f"{path}.reverse()",
                        f"{path}.append({path}.pop(0))",
                        f"{path}[:] = {path}[::-1]",
                        f"{first}, *{rest[0]} = {path}",
                    )
                )
            )
            if "*" in self.lines[-1]:
                self.target(kind.parts[0], f"{rest[0]}[-1]")
        elif choice == 9 and sums:
            path, kind = self.random.choice(sums)
            name = kind.parts[0].form
            if self.chance(0.5):
                self.write(f"add_to_all({path}, {self.expression(name)})")
                return
            total = self.fresh("t")
            self.write(f"{total} = {self.expression(name)}")
            self.write(f"for item in {path}:")
            self.write(f"    {total} = {total} + item")
            self.target(kind.parts[0], total)
        elif choice == 10 and ordered:
            path, kind = self.random.choice(ordered)
            how = self.random.choice(("search({}, {})", "walk({}, lw.i32(0) + {})"))
            given = self.expression("i32" if "walk" in how else kind.parts[0].form)
            self.target(kind.parts[0], how.format(path, given))
        else:
            name = self.random.choice((*INT, *FLOAT))
            passing = self.fresh("t")
            self.target(scalar(name), f"({passing} := {self.expression(name)}) + {passing}")

    def target(self, kind: Kind, text: str) -> None:
        """Assign what an expression gives to a location of its kind, or to none."""
        paths = [each for each in self.paths(kind, write=True) if not each[0].startswith("k_")]
        self.write(f"{self.random.choice(paths)[0]} = {text}" if paths and self.chance(0.8) else text)

    def together(self) -> None:
        """Something that all lanes do together."""
        choice = self.random.randrange(6)
        if choice == 0:
            self.write(f"sh[lane] = {self.expression('i32')}")
            self.write("lw.syncthreads()")
            if self.chance(0.4):
                self.write(f"lw.atomic_add(sh.ptr(lane & 3), {self.expression('i32', 1)})")
                self.write("lw.syncthreads()")
            self.target(scalar("i32"), f"sh[(lane + {self.random.randint(1, 31)}) & {32 * self.warps - 1}]")
            self.write("lw.syncthreads()")
        elif choice == 4 and (sums := self.paths(Kind("sums"))):
            out, added = (self.random.choice(sums)[0] for _ in range(2))
            self.write(f"lw.wmma.mma_sync({out}, wmma_a, wmma_b, {added})")
        elif choice == 1:
            self.target(scalar("u32"), f"lw.ballot_sync({self.comparison()})")
        elif choice == 2:
            self.target(
                scalar("i32"), f"lw.{self.random.choice(('any', 'all'))}_sync({self.comparison()}).to(lw.i32)"
            )
        else:
            self.assign()

    def memory(self) -> None:
        """A store that others see after the kernel, or an access to memory of the lane's own."""
        choice = self.random.randrange(10)
        if choice >= 6:
            self.vectors(choice)
        elif choice == 0 and self.stored < 8 and not any(self.loops):
            self.write(f"mid[{self.stored * 64} + lane] = {self.expression('i32')}")
            self.stored += 1
        elif choice == 3:
            values = ", ".join(self.expression("i32") for _ in range(4))
            self.write(f"(vec + lane * 4).store(({values}))")
        elif choice == 4:
            self.target(scalar("i32"), f"(vec + lane * 4).load(4)[{self.random.randrange(4)}]")
        elif choice == 1:
            self.write(f"own[{self.expression('i32')} & 3] = {self.expression('i32')}")
        elif choice == 2:
            self.target(scalar("i32"), f"own[{self.expression('i32')} & 3]")
        else:
            name, pair = self.random.choice((("x", "i32"), ("y", "f32")))
            self.write(f"pair = ({name} + (lane & 7) * 4).load(4)")
            self.target(scalar(pair), f"pair[{self.random.randrange(4)}]")

    def vectors(self, choice: int) -> None:
        """Several neighbours at once, which small types share a register for; memory of the lane's own."""
        if choice == 6:
            values = ", ".join(self.expression("f16", 1) for _ in range(8))
            self.write(f"halves.ptr(lane * 8).store(({values}))")
        elif choice == 7:
            first = self.random.randrange(7)
            self.write(f"t_0, t_1 = halves.ptr(lane * 8).load(8)[{first} : {first + 2}]")
            self.target(scalar("f16"), "t_0")
            self.target(scalar("f16"), "t_1")
        elif choice == 8:
            values = ", ".join(self.expression("u8", 1) for _ in range(4))
            self.write(f"small.ptr(lane * 4).store(({values}))")
            self.target(scalar("u8"), f"small.ptr(lane * 4).load(4)[{self.random.randrange(4)}]")
        else:
            values = ", ".join(self.expression("i32", 1) for _ in range(4))
            self.write(f"lw.vectorized(vec)[lane] = ({values})")
            self.target(scalar("i32"), f"lw.vectorized(vec)[lane][{self.random.randrange(4)}]")

    def block(self, depth: int, count: int = 3) -> None:
        """Some statements, with others inside them."""
        outer = dict(self.names)
        if depth and self.chance(0.25):
            self.define()
        for _ in range(self.random.randint(1, count)):
            choice = self.random.randrange(20)
            if depth == 0 or choice < 7:
                self.assign()
            elif choice < 9:
                self.call()
            elif choice == 9 and self.converged:
                self.together()
            elif choice == 10:
                self.memory()
            elif choice == 11:
                self.define()
            elif choice < 16:
                self.branch(depth)
            else:
                self.loop(depth)
        if self.loops and self.chance(0.35):
            self.leave()
        self.names = {name: self.names[name] for name in outer}

    def define(self) -> None:
        """A new variable, closure or function, for the rest of the block."""
        choice = self.random.randrange(6)
        if choice < 2:
            self.closure(choice)
        else:
            kind = self.structure() if self.chance(0.6) else scalar(self.random.choice(SCALARS))
            name = self.fresh("t")
            self.write(f"{name} = {self.value(kind)}")
            self.names[name] = kind

    def closure(self, choice: int) -> None:
        """A function that keeps a list, or a number, and changes it when it is called."""
        lists = [each for each in self.paths() if each[1].form == "list" and len(set(each[1].parts)) == 1]
        if choice == 0 and lists:
            path, kind = self.random.choice(lists)
            name = self.fresh("push")
            self.write(f"{name} = make_store({path})")
            self.names[name] = Kind("function", kind.parts[:1])
        else:
            name = self.fresh("bump")
            self.write(f"{name} = make_counter({self.expression('i32')})")
            self.names[name] = Kind("function")

    def branch(self, depth: int) -> None:
        """An `if`, on which lanes part or agree."""
        before = self.converged
        uniform = before and self.chance(0.4)
        numbers = [each for each in self.paths(write=True) if each[1].form in SCALARS]
        first: list[str] = []
        if numbers and self.chance(0.3):  # both branches set one location
            path, kind = self.random.choice([each for each in numbers if not each[0].startswith("k_")])
            first = [f"{path} = {self.expression(kind.form, 0)}" for _ in range(2)]
        self.write(f"if {self.uniform_condition() if uniform else self.condition()}:")
        self.inside(depth, uniform, *first[:1])
        if self.chance(0.25):
            self.write(f"elif {self.uniform_condition() if uniform else self.condition()}:")
            self.inside(depth, uniform)
        if self.chance(0.5) or first:
            self.write("else:")
            self.inside(depth, uniform, *first[1:])

    def inside(self, depth: int, uniform: bool, *first: str) -> None:
        """The statements of a branch or loop."""
        before, self.converged = self.converged, self.converged and uniform
        self.depth += 1
        for text in first:
            self.write(text)
        self.block(depth - 1)
        together = self.converged or not any(self.uniform_loops)  # else others wait in the next round
        if self.chance(0.03 if self.loops else 0.06) and together and not (self.loops and not self.loops[-1]):
            self.parted = self.parted or not self.converged
            self.write("return")
        self.depth -= 1
        self.converged = before

    def loop(self, depth: int) -> None:
        """A loop of the kernel, or one that Python unrolls."""
        index, choice = self.fresh("i"), self.random.randrange(8)
        if choice == 0:
            self.write(f"for {index} in range({self.random.randint(1, 2)}):")
            self.loops.append(False)
            self.uniform_loops.append(self.converged)
            self.inside(depth, True)
            self.uniform_loops.pop()
            self.loops.pop()
            return
        uniform = self.converged and self.chance(0.5)
        before, self.converged = self.converged, uniform
        if choice < 5:
            bound = self.random.choice(
                ("3", "n & 3") if uniform else ("3", "x[lane] & 3", "lane & 3", "n & 3")
            )
            span = self.random.choice(
                (
                    bound,
                    f"1, {bound}",
                    f"{bound}, -1, -1",
                    f"0, {bound}, 2",
                    f"0, 5, ({bound}) + 1",
                    f"lw.i64(0), lw.i64({self.random.randint(1, 3)})",
                )
            )
            self.write(f"for {index} in lw.range({span}):")
            self.names[index] = scalar("i64" if "i64" in span else "i32")
        else:
            self.write(f"{index} = {'0' if self.chance(0.5) else 'lw.i32(0)'}")
            more = f" and {self.condition()}" if not uniform and self.chance(0.6) else ""
            if more and self.chance(0.3):
                more = f" and {self.behind()}"
            traced = self.chance(0.9)  # else Python may unroll it, and no lane can leave it alone
            if not more and self.chance(0.2):
                self.write("while True:")
                self.depth += 1
                self.write(f"if {index} >= {self.random.choice(('2', 'n & 3'))}:")
                self.write("    break")
                self.depth -= 1
            else:
                bound = self.random.choice(("lw.i32(3)", "n & 3")) if traced else "3"
                self.write(f"while {index} < {bound}{more}:")
            self.depth += 1
            self.write(f"{index} += 1")
            self.depth -= 1
        self.loops.append(True)
        self.uniform_loops.append(uniform)
        self.inside(depth, uniform)
        self.uniform_loops.pop()
        self.loops.pop()
        self.names.pop(index, None)
        self.converged = before

    def leave(self) -> None:
        """A `break` or `continue`; lanes that do so part from the others."""
        word = self.random.choice(("break", "continue"))
        if not self.loops[-1] or (self.uniform_loops[-1] and not self.converged):
            return
        if self.converged:
            self.write(f"if {self.uniform_condition()}:")
        else:
            self.write(f"if {self.condition()}:")
        self.write(f"    {word}")

    # the whole ------------------------------------------------------------------------------------------

    def source(self) -> str:
        """The module."""
        self.write("lane = lw.thread_rank()")
        self.write("sh, own = lw.shared(lw.i32, 64), lw.local(lw.i32, 4)")
        self.write("halves, small = lw.shared(lw.f16, 512), lw.shared(lw.u8, 256)")
        self.write("halves.ptr(lane * 8).store([y[lane].to(lw.f16) + k for k in range(8)])")
        self.write("small.ptr(lane * 4).store([(lane + k).to(lw.u8) for k in range(4)])")
        self.write("eight, four = halves.ptr(lane * 8).load(8), small.ptr(lane * 4).load(4)")
        self.write("sh[lane] = lane")
        for number in range(4):
            self.write(f"own[{number}] = {number}")
        self.write("mma_b, imma_b = mma.b.full(1), imma.b.full(2)")
        self.write("wmma_a = lw.wmma.fragment(lw.wmma.matrix_a, 16, 16, 16, lw.f16, lw.wmma.row_major)")
        self.write("wmma_b = lw.wmma.fragment(lw.wmma.matrix_b, 16, 16, 16, lw.f16, lw.wmma.row_major)")
        self.write("lw.wmma.fill_fragment(wmma_a, 1.0)")
        self.write("lw.wmma.fill_fragment(wmma_b, 2.0)")
        self.write("k_0 = n & 3")
        for _ in range(self.random.randint(2, 4)):
            self.variable(scalar(self.random.choice(SCALARS)))
        self.variable(Kind("number"))
        self.variable(Kind("pred"))
        for _ in range(2 if self.chance(0.2) else 0):
            self.variable(Kind("sums"))
        for _ in range(self.random.randint(2, 4)):
            kind = self.structure()
            self.variable(kind)
            if self.chance(0.5):
                self.variable(kind)
        captured = self.random.choice(sorted(self.names))
        owner = self.read(scalar("i32")) or captured
        self.write("def later(z):")
        self.write(
            f"    return z + {owner}"
            if self.names.get(owner.partition("[")[0].partition(".")[0]) and self.read(scalar("i32"))
            else "    return z + lane"
        )
        for choice in range(2):
            if self.chance(0.5):
                self.closure(choice)
        self.names["k_0"] = scalar("i32")
        self.block(3, 4)
        self.block(3, 3)
        self.block(2, 3)
        self.outputs()
        return "\n".join([HEADER.replace("{warps}", str(self.warps)), "", SIGNATURE, *self.lines, ""])

    def variable(self, kind: Kind) -> None:
        """A variable with a value, for the whole kernel."""
        name = self.fresh("v")
        value = (
            str(self.random.randint(-3, 5))
            if kind.form == "number"
            else "False"
            if kind.form == "pred"
            else self.value(kind)
        )
        self.write(f"{name} = {value}")
        self.names[name] = kind

    def outputs(self) -> None:
        """Stores of all that the variables hold."""
        whole, real = 0, 0
        for number in range(4):
            self.write(f"out[{whole * 64} + lane] = own[{number}].to(lw.i64)")
            whole += 1
        for name in self.names:
            if name.startswith("bump"):
                self.write(f"out[{whole * 64} + lane] = {name}(lw.i32(0)).to(lw.i64)")
                whole += 1
        for path, kind in self.paths():
            if not kind.is_scalar:
                continue
            if kind.form in (*FLOAT, "e4m3"):
                wide = f"{path}.to(lw.f32)" if kind.form in ("bf16", "e4m3") else path
                text = wide if kind.form == "f64" else f"{wide}.to(lw.f64)"
                self.write(f"real[{real * 64} + lane] = {text}")
                real += 1
            else:
                text = (
                    f"lw.i32({path})"
                    if kind.form == "number"
                    else f"lw.where({path}, lw.i32(1), lw.i32(0))"
                    if kind.form == "pred"
                    else path
                )
                self.write(
                    f"out[{whole * 64} + lane] = {text}" + ("" if kind.form == "i64" else ".to(lw.i64)")
                )
                whole += 1


def kernel_source(seed: int) -> str:
    """The source of a random module with a kernel `program`."""
    return Program(seed).source()
