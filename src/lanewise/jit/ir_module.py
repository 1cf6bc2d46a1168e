"""Modules of LLVM IR as text: functions made of basic blocks, and data."""

from __future__ import annotations

from collections.abc import Callable

from lanewise.jit.ir_types import Constant, Operand, Type, Undefined


class Phi(Operand):
    """A value that depends on which basic block control came from."""

    __slots__ = ("incoming",)

    def __init__(self, type: Type, text: str) -> None:
        super().__init__(type, text)
        self.incoming: list[str] = []

    def add_incoming(self, value: Operand, block: Block) -> None:
        """Say which value it has when control comes from a basic block."""
        self.incoming.append(f"[{value.text}, %{block.name}]")

    def line(self) -> str:
        """Return its line of the text, with all basic blocks that were added by now."""
        return f"{self.text} = phi {self.type.text} {', '.join(self.incoming)}"


class Block:
    """A basic block: lines, and the one that ends it."""

    __slots__ = ("end", "function", "lines", "name")

    def __init__(self, function: Function, name: str) -> None:
        self.function, self.name = function, name
        self.lines: list[str | Phi] = []
        self.end = ""


class Module:
    """Functions and variables by name, compiled together."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, GlobalVariable] = {}
        #: What writes the functions that it only declares because they are compiled apart, by name.
        self.apart: dict[str, Callable[[Module, str], None]] = {}

    def __str__(self) -> str:
        variables = [variable.definition() for variable in self.variables.values()]
        functions = [function.definition() for function in self.functions.values()]
        return "\n".join(variables + functions) + '\n!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}\n'


class Function(Operand):
    """A function: declared, and defined once it has basic blocks."""

    __slots__ = ("args", "attributes", "blocks", "function_type", "linkage", "module", "name", "names")

    def __init__(self, module: Module, type: Type, name: str) -> None:
        super().__init__(type.as_pointer(), f'@"{name}"')
        self.module, self.name, self.function_type = module, name, type
        self.args = [Operand(operand, f"%a{place}") for place, operand in enumerate(type.operands)]
        self.attributes: set[str] = set()
        self.blocks: list[Block] = []
        self.linkage = ""
        #: How many names were given to values and basic blocks.
        self.names = 0
        module.functions[name] = self

    @property
    def return_type(self) -> Type:
        """The type of its result, `void` if it has none."""
        return self.function_type.result

    def append_basic_block(self, name: str = "") -> Block:
        """Return a new basic block at the function's end."""
        self.names += 1
        block = Block(self, f"{name}{self.names}")
        self.blocks.append(block)
        return block

    def definition(self) -> str:
        """Return its text: the declaration alone if it has no basic blocks."""
        result = self.return_type.text
        if not self.blocks:
            return f"declare {result} {self.text}({', '.join(argument.type.text for argument in self.args)})"
        lines = [
            f"define {self.linkage} {result} {self.text}({', '.join(map(str, self.args))}) "
            f"{' '.join(sorted(self.attributes))} {{"
        ]
        for block in self.blocks:
            lines.append(f"{block.name}:")
            lines += [line.line() if isinstance(line, Phi) else line for line in block.lines]
            lines.append(block.end or "unreachable")
        lines.append("}")
        return "\n".join(lines)


class GlobalVariable(Operand):
    """Data of a module, constant or not."""

    __slots__ = ("global_constant", "initializer", "linkage", "value_type")

    def __init__(self, module: Module, type: Type, name: str) -> None:
        super().__init__(type.as_pointer(), f'@"{name}"')
        self.value_type, self.linkage, self.global_constant = type, "", False
        self.initializer = Constant(type, Undefined)
        module.variables[name] = self

    def definition(self) -> str:
        """Return its line of the text, with its initial value."""
        kind = "constant" if self.global_constant else "global"
        return f"{self.text} = {self.linkage} {kind} {self.initializer}"
