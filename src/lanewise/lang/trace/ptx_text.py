"""The PTX text of a traced kernel: names, declarations, Python lines as comments and `.loc`.

It writes what a `Builder` has collected, and decides nothing else but the `.version` and the `.target`.
"""

import re
from pathlib import Path
from typing import Any

from lanewise.isa import ARCHS, arch_number
from lanewise.lang.trace.builder import (
    Address,
    Builder,
    CallOperands,
    Code,
    InlineText,
    Label,
    NotPredicate,
    Operation,
    Register,
    ResultPair,
    SourceLocation,
    Symbol,
    TensorAddress,
)
from lanewise.lang.trace.special_registers import SPECIAL_REGISTERS

#: How the name of a register without a Python name begins, by its kind.
_STEMS = {"pred": "p", "b8": "b", "b16": "h", "b32": "r", "b64": "rd", "b128": "rq", "f32": "f", "f64": "fd"}
#: Characters that PTX allows in no name.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_$]")
_LOWEST_VERSION = "6.0"
#: The first PTX version that knows a target.
_TARGET_VERSIONS = {
    70: "6.0", 72: "6.1", 75: "6.3", 80: "7.0", 86: "7.1", 87: "7.4", 88: "9.0", 89: "7.8", 90: "7.8",
    100: "8.6", 103: "8.8", 110: "9.0", 120: "8.7", 121: "8.8",
}  # fmt: skip
_SUFFIX_VERSIONS = {("f", 100): "8.8", ("f", 120): "8.8", ("a", 90): "8.0"}


class Names:
    """Hands out names that no other register, variable or label has."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.next: dict[str, int] = {}

    def plain(self, hint: str, prefix: str = "") -> str:
        """Return the hint as a name; with a number after it, if it is taken."""
        stem = _NOT_IN_NAMES.sub("_", hint) or "x"
        if prefix and (stem in SPECIAL_REGISTERS or stem[0].isdigit()):
            stem = f"{stem}_" if not stem[0].isdigit() else f"v{stem}"
        name = f"{prefix}{stem}"
        joint = "_" if stem[-1].isdigit() else ""
        while name in self.used:
            number = self.next[stem] = self.next.get(stem, 0) + 1
            name = f"{prefix}{stem}{joint}{number}"
        self.used.add(name)
        return name

    def numbered(self, stem: str) -> str:
        """Return the stem with the next number, as `%r7`."""
        while True:
            number = self.next.get(f"%{stem}", 0)
            self.next[f"%{stem}"] = number + 1
            name = f"%{stem}{number}"
            if name not in self.used:
                self.used.add(name)
                return name


class Writer:
    """Writes the PTX module of one traced kernel."""

    def __init__(self, builder: Builder, name: str, parameters: list[str], limits: list[str]) -> None:
        self.builder, self.name, self.parameters, self.limits = builder, name, parameters, limits
        self.names = Names()
        self.registers: dict[str, list[str]] = {}
        #: The registers by the Python name that they were given.
        self.by_hint: dict[str, list[str]] = {}
        self.files: dict[str, int] = {}
        self.lines: list[str] = []

    def text(self, reserved: list[str]) -> str:
        """Return the text of the module; `reserved` are names that are not to be given away."""
        builder = self.builder
        self.names.used.update((*reserved, self.name, *builder.externals))
        for variable in builder.variables:
            variable.symbol.name = self.names.plain(variable.symbol.hint)
        self._code([*builder.entry, *builder.code])
        if not builder.unreachable or not builder.code or isinstance(builder.code[-1], Label):
            self.lines.append("    ret;")
        arch = target(builder)
        head = [f".version {version(builder, arch)}", f".target {arch}", ".address_size 64", ""]
        head += [f'.file {number} "{_escaped(file)}"' for file, number in self.files.items()]
        head += list(builder.externals.values())
        for variable in builder.variables:
            if variable.space == "global":
                values = ", ".join(map(str, variable.text))
                head.append(
                    f".global .align 1 .b8 {variable.symbol.name}[{len(variable.text)}] = {{{values}}};"
                )
            elif variable.size is None:
                head.append(f".extern .shared .align {variable.align} .b8 {variable.symbol.name}[];")
        parameters = ",\n".join(f"    {parameter}" for parameter in self.parameters)
        opening = f".visible .entry {self.name}(" + (f"\n{parameters}\n)" if parameters else ")")
        return "\n".join([*head, "", opening, *self.limits, "{", *self._declarations(), *self.lines, "}", ""])

    def _declarations(self) -> list[str]:
        """Return the declarations of the registers and of the variables in shared and local memory."""
        declarations = []
        for kind in _STEMS:
            line = ""
            for name in self.registers.get(kind, ()):
                if line and len(line) + len(name) > 104:
                    declarations.append(f"{line};")
                    line = ""
                line += f", {name}" if line else f"    .reg .{kind} {name}"
            if line:
                declarations.append(f"{line};")
        for variable in self.builder.variables:
            if variable.space in ("shared", "local") and variable.size is not None:
                storage = f".b8 {variable.symbol.name}[{variable.size}]"
                declarations.append(f"    .{variable.space} .align {variable.align} {storage};")
        return [*declarations, ""]

    def _code(self, code: Code) -> None:
        """Write labels and operations, each Python line before the first operation that comes from it."""
        location = None
        for item in code:
            if isinstance(item, Label):
                if item.used:
                    self.lines.append(f"{self._operand(item.symbol)}:")
                continue
            assert isinstance(item, Operation)
            if item.location != location and item.location.file:
                location = item.location
                self._location(location)
            self.lines.append(self._operation(item))

    def _location(self, location: SourceLocation) -> None:
        """Write a Python line as a comment and a `.loc`."""
        number = self.files.setdefault(location.file, len(self.files) + 1)
        text = self.builder.source_line(location)
        self.lines.append("")
        self.lines.append(f"    // {Path(location.file).name}:{location.line}  {text}".rstrip().rstrip("\\"))
        self.lines.append(f"    .loc {number} {location.line} {max(1, location.column)}")

    def _operation(self, item: Operation) -> str:
        """Return the line of one operation, with its guard."""
        operands = ", ".join([self._operand(operand) for operand in item.operands])
        guard = ""
        if item.guard is not None:
            if isinstance(item.guard, NotPredicate):
                guard = f"@!{self._operand(item.guard.register)} "
            else:
                guard = f"@{self._operand(item.guard)} "
        if not item.opcode:  # as it was written, braces or not
            return f"    {operands}" if operands.endswith("}") else f"    {operands};"
        return f"    {guard}{item.opcode}{' ' if operands else ''}{operands};"

    def _operand(self, item: Any) -> str:
        """Return the text of an operand; a register or a symbol gets its name when it is first written."""
        if isinstance(item, str):
            return item
        if isinstance(item, Register):
            while item.alias is not None:
                item = item.alias
                if isinstance(item, str):
                    return item
            return item.name or self._named(item)
        if isinstance(item, tuple | list):
            return "{" + ", ".join(map(self._operand, item)) + "}"
        if isinstance(item, Address):
            offset = f"+{item.offset}" if item.offset else ""  # [%rd1+-4]: PTX has no other minus
            return f"[{self._operand(item.base)}{offset}]"
        if isinstance(item, TensorAddress):
            return f"[{self._operand(item.map)}, {self._operand(item.coordinates)}]"
        if isinstance(item, CallOperands):
            return f"({', '.join(map(self._operand, item.items))})"
        if isinstance(item, ResultPair):
            return f"{self._operand(item.first)}|{self._operand(item.second)}"
        if isinstance(item, InlineText):
            return "".join(map(self._operand, item.pieces))
        assert isinstance(item, Symbol), item
        if not item.name:
            item.name = self.names.plain(item.hint)
        return item.name

    def _named(self, register: Register) -> str:
        """Give a register its name, note it for the declarations, and return it."""
        stem = _STEMS[register.kind]
        if register.hint:
            register.name = self.names.plain(register.hint, "%")
            self.by_hint.setdefault(register.hint, []).append(register.name)
        else:
            register.name = self.names.numbered(stem)
        self.registers.setdefault(register.kind, []).append(register.name)
        return register.name


def _escaped(path: str) -> str:
    return path.replace("\\", "/").replace('"', "'").replace("\n", " ")


def target(builder: Builder) -> str:
    """Return the target: the arch asked for, or the lowest that has every instruction, sm_80 at least."""
    if builder.arch is not None:
        return builder.arch
    number = max(80, builder.minimum_arch)
    if builder.specific_arch is not None:
        arch, what = builder.specific_arch
        if arch_number(arch) < number:
            raise builder.error(
                f"{what} exists on {arch} alone, and other instructions of the kernel need sm_{number}"
            )
        return arch
    return next((arch for arch in ARCHS if arch_number(arch) >= number), ARCHS[-1])


def version(builder: Builder, arch: str) -> str:
    """Return the lowest PTX version that knows the target and every instruction."""
    number = arch_number(arch)
    least = [_LOWEST_VERSION, _TARGET_VERSIONS.get(number, "8.0"), *builder.needs.values()]
    if arch[-1] in "af":
        least.append(_SUFFIX_VERSIONS.get((arch[-1], number), "8.8" if arch[-1] == "f" else "8.0"))
    return max(least, key=lambda text: tuple(map(int, text.split("."))))
