"""Resolution of names: registers get an offset in the frame, variables an address, labels a position.

It covers a kernel and the device functions that it reaches. `basic_blocks.py` derives the control flow.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from lanewise.errors import LanewiseError
from lanewise.isa.archs import ARCHS, arch_number, describe_targets
from lanewise.isa.asynchronous import async_instruction
from lanewise.isa.multiprocessor import CLUSTERS_SINCE
from lanewise.machine import abi
from lanewise.machine.abi import aligned
from lanewise.machine.errors import Refused, Unsupported
from lanewise.machine.launch_info import function_addresses, variable_addresses
from lanewise.machine.program.call_graph import CallGraph
from lanewise.machine.program.instruction_record import BlockEnd
from lanewise.machine.program.instruction_table import needed_targets, record_of
from lanewise.machine.program.operands import (
    GRID_BARRIER_REGISTERS,
    RESERVED_MEMORY_REGISTERS,
    SPECIAL_REGISTERS,
    BranchTarget,
    Callee,
    IndirectCallee,
    MemoryOperand,
    Negated,
    OperandList,
    Register,
    RegisterPart,
    ResolvedOperand,
    Sink,
    SpecialRegister,
    StackVariable,
    Symbol,
    TexelOperand,
    elements_of,
)
from lanewise.machine.program.ops import FunctionBody, Op, Program
from lanewise.machine.program.shared_layout import check_program, check_variable, place_shared_variables
from lanewise.ptx import (
    Address,
    Element,
    Function,
    Group,
    Immediate,
    Index,
    Label,
    Loc,
    Module,
    Name,
    Offset,
    Operand,
    Operation,
    Pair,
    Targets,
    Unary,
    Variable,
    Vector,
)


def resolve(module: Module, entry: Function) -> Program:
    """Return a kernel and the device functions that it reaches, resolved."""
    if entry.body is None:
        raise LanewiseError(f"{entry.name} is declared in this PTX, but has no body")
    if entry.limit("blocksareclusters") is not None:
        raise Unsupported(
            f"line {entry.line}: {entry.name} says .blocksareclusters: a grid of clusters is refused, give "
            "the grid in blocks and .reqnctapercluster or cluster= instead"
        )
    program = Program(module, entry)
    digits = re.match(r"sm_(\d+)", module.arch)
    if digits is not None and int(digits.group(1)) >= abi.RESERVED_FIRST_ARCH:
        program.shared_base = program.shared_bytes = abi.RESERVED_SHARED_BYTES
    program.may_have_clusters = digits is not None and int(digits.group(1)) >= CLUSTERS_SINCE
    _allocate_globals(program)
    for name, address in function_addresses(module).items():
        program.functions[name] = Symbol(name, "function", address, 0)
    graph = CallGraph(module, entry)
    functions = [entry if name == entry.name else graph.function(name, 0) for name in graph.order]
    shared, program.shared_bytes = place_shared_variables(module, functions, program.shared_base)
    for function in functions:
        program.bodies.append(_Resolver(program, graph, function, shared).body())
    program.uses_heap = not graph.provided.isdisjoint(("malloc", "free"))
    program.uses_stack = bool(graph.framed or graph.allocating)
    program.stack_base = aligned(program.local_bytes, 16)
    program.local_bytes = program.stack_base + (abi.STACK_BYTES if program.uses_stack else 0)
    program.dynamic_offset = aligned(program.shared_bytes, program.dynamic_alignment)
    check_program(program)
    check_tensor_memory(program)
    return program


def _allocate_globals(program: Program) -> None:
    """Give the module's variables in global and constant memory their addresses."""
    for variable in program.module.variables.values():
        check_variable(variable)
    addresses = variable_addresses(program.module)
    for variable in program.module.variables.values():
        size = variable.size
        if variable.space in ("global", "const"):
            address = addresses[variable.name]
            program.globals[variable.name] = Symbol(variable.name, variable.space, address, size)


#: Selectors of bytes and halves, as video instructions have them.
_SELECTOR = re.compile(r"b[0-7]{1,4}|h[0-3]{1,2}")


class _Resolver:
    """Resolves the names in one function."""

    def __init__(
        self, program: Program, graph: CallGraph, function: Function, shared: dict[int, Symbol]
    ) -> None:
        self.program, self.graph, self.function = program, graph, function
        #: Variables of static shared memory, by the identity of their declaration.
        self.shared = shared
        self.known: dict[tuple[int, str], ResolvedOperand] = {}
        self.placed: dict[int, Symbol | StackVariable] = {}
        self.ops: list[Op] = []
        self.labels: dict[int, int] = {}
        #: Every register, and the bytes of variables, of a function with frames on the stack.
        self.registers: list[Register] = []
        self.size = 0
        self.base = self._allocate_register("frame", "u64", 64) if function.name in graph.framed else None
        self.parameters = tuple(self._parameter(parameter) for parameter in function.parameters)
        self.returns = tuple(self._parameter(parameter) for parameter in function.returns)
        #: What parameters stand for, by the identity of their variables.
        self.given = {
            id(variable): symbol
            for variable, symbol in zip(
                (*function.parameters, *function.returns), (*self.parameters, *self.returns), strict=True
            )
        }

    def _allocate_register(self, name: str, type: str, bits: int) -> Register:
        """Return a new register at the next offset in a warp's frame."""
        register = Register(name, type, bits, self.program.frame_bytes)
        self.program.frame_bytes += max(bits // 8 * abi.LANES, 64)
        self.registers.append(register)
        return register

    def _parameter(self, variable: Variable) -> Symbol | Register | StackVariable:
        """Return what a parameter of the function stands for."""
        if variable.space == "reg" and self.function.is_entry:
            raise LanewiseError(
                f"line {variable.line}: {variable.name} is a parameter of a kernel in .reg, not .param"
            )
        if variable.space == "reg":
            return self._register(variable, variable.name)
        program = self.program
        if self.function.is_entry:
            check_variable(variable)
            offset = aligned(program.parameter_bytes, variable.alignment)
            program.parameter_bytes = offset + variable.size
            symbol: Symbol | StackVariable = Symbol(variable.name, "param", offset, variable.size)
        else:
            symbol = self._in_local(variable)
        self.placed[id(variable)] = symbol
        return symbol

    def _in_local(self, variable: Variable) -> Symbol | StackVariable:
        """Return a variable allocated in the thread's local memory, or in the function's frame."""
        check_variable(variable)
        program = self.program
        program.local_alignment = max(program.local_alignment, variable.alignment)
        if self.base is not None:
            offset = aligned(self.size, max(variable.alignment, 8))
            self.size = offset + variable.size
            return StackVariable(self.base, variable.name, offset, variable.size)
        offset = aligned(program.local_bytes, max(variable.alignment, 8))
        program.local_bytes = offset + variable.size
        return Symbol(variable.name, "local", offset, variable.size)

    def _register(self, variable: Variable, name: str) -> Register:
        """Return a new register for a variable in .reg."""
        bits = {"pred": 8}.get(variable.type, variable.element_size // max(variable.vector, 1) * 8)
        if bits not in (8, 16, 32, 64, 128):
            raise Unsupported(f"line {variable.line}: a register of type .{variable.type}")
        return self._allocate_register(name, variable.type, bits)

    def body(self) -> FunctionBody:
        """Resolve every instruction and return the function's body."""
        for position, statement in enumerate(self.function.body or ()):
            if isinstance(statement, Label):
                self.labels[position] = len(self.ops)
            elif isinstance(statement, Operation) and statement.opcode != "pragma":
                self.op(statement)
        link = self._allocate_register("return", "u32", 32)
        body = FunctionBody(self.function, self.ops, self.labels, self.parameters, self.returns, link)
        if self.base is not None:
            body.base, body.registers, body.size = self.base, tuple(self.registers), aligned(self.size, 16)
        return body

    def op(self, operation: Operation) -> None:
        """Resolve one instruction, and add those that stack frames need around it."""
        record = record_of(operation.opcode, operation.modifiers)
        if record is None or record.refused:
            why = f": {record.refused}" if record else ""
            raise Unsupported(f"line {operation.line}: the machine cannot run '{operation}'{why}")
        target = self.program.module.arch
        needed = needed_targets(operation.opcode, operation.modifiers, len(operation.operands), target)
        if record.since and record.since > arch_number(target):
            needed = f"sm_{record.since}"
        if needed:
            raise Unsupported(
                f"line {operation.line}: '{operation}' needs {needed}; this PTX is for {target}"
            )
        guard = None
        if operation.guard is not None:
            register = self.name(operation.guard.name, operation)
            if not isinstance(register, Register) or register.type != "pred":
                raise self.wrong(operation, f"{operation.guard.name} is no predicate register")
            guard = register, operation.guard.negated
        if record.ends is BlockEnd.CALL:
            self.call(operation, guard)
            return
        operands = tuple(self.operand(operand, operation) for operand in operation.operands)
        modifiers = operation.modifiers
        by_register = any(
            isinstance(operand, MemoryOperand) and isinstance(operand.base, Register) for operand in operands
        )
        if self.base is not None:
            if any(isinstance(operand, MemoryOperand) and operand.base is self.base for operand in operands):
                modifiers = tuple(
                    "local" if modifier.startswith("param") else modifier for modifier in modifiers
                )
                by_register = False
            operands = tuple(self._address(operand, operation) for operand in operands)
        op = self._add(operation, operands, guard, modifiers)
        if by_register and "param" in op.modifiers and not self.function.is_entry:
            # Its parameters lie in local memory: an address in a register would lead to the kernel's.
            raise op.unsupported("a device function's parameters are read and written by name")

    def _add(
        self,
        operation: Operation,
        operands: tuple[ResolvedOperand, ...],
        guard: tuple[Register, bool] | None = None,
        modifiers: tuple[str, ...] | None = None,
        opcode: str = "",
    ) -> Op:
        """Append a resolved instruction."""
        op = Op(
            opcode or operation.opcode,
            operation.modifiers if modifiers is None else modifiers,
            operands,
            guard,
            operation.line,
            operation.loc,
            len(self.program.sites),
            operation,
        )
        self.program.sites.append(op)
        self.ops.append(op)
        return op

    def _address(self, operand: ResolvedOperand, operation: Operation) -> ResolvedOperand:
        """Return a register with the address of a stack variable, computed by an added instruction."""
        if not isinstance(operand, StackVariable):
            return operand
        result = self._allocate_register(operand.name, "u64", 64)
        far = Immediate("s64", operand.address, str(operand.address))
        self._add(operation, (result, operand.register, far), None, ("u64",), "add")
        return result

    def call(self, operation: Operation, guard: tuple[Register, bool] | None) -> None:
        """Resolve a call by name or through a register."""
        call = operation.call()
        results = OperandList(tuple(self.operand(result, operation) for result in call.results))
        arguments = OperandList(tuple(self.operand(argument, operation) for argument in call.arguments))
        target = self.program.module.aliases.get(call.target, call.target)
        callee: ResolvedOperand = Callee(target)
        if self.function.variable(call.target, operation.scope) is not None:
            register = self.name(call.target, operation)
            if not isinstance(register, Register):
                raise self.wrong(operation, f"{call.target} is no register")
            callee = IndirectCallee(register, self.graph.candidates(self.function, call.prototype, operation))
        elif target not in self.graph.framed:
            self._add(operation, (results, callee, arguments), guard)
            return
        if guard is None:
            self._add(operation, (results, callee, arguments))
            return
        # Lanes branch around the call: afterwards it is not known which lanes called, with registers saved.
        after = -1 - len(self.ops)
        self._add(operation, (BranchTarget((after,)),), (guard[0], not guard[1]), (), "bra")
        self._add(operation, (results, callee, arguments))
        self.labels[after] = len(self.ops)

    def wrong(self, operation: Operation, problem: str) -> LanewiseError:
        """Return the error that names an instruction, its line and a problem."""
        return LanewiseError(f"line {operation.line}: '{operation}': {problem}")

    def operand(self, operand: Operand, operation: Operation) -> ResolvedOperand:
        """Return what an operand stands for."""
        match operand:
            case Immediate():
                return operand
            case Name(name):
                return self.name(name, operation)
            case Element(name, element):
                return self.element(name, element, operation)
            case Offset(name, offset):
                symbol = self.name(name, operation)
                if not isinstance(symbol, Symbol | StackVariable):
                    raise self.wrong(operation, f"{name} is no variable")
                if isinstance(symbol, Symbol):
                    symbol = replace(symbol, into=symbol.into + offset)
                return replace(symbol, address=symbol.address + offset)
            case Unary(operator, inner):
                return Negated(operator, self.operand(inner, operation))
            case Pair(first, second):
                both = (self.operand(operand, operation) for operand in (first, second))
                return OperandList(tuple(element for operand in both for element in elements_of(operand)))
            case Vector(elements) | Group(elements):
                return OperandList(tuple(self.operand(element, operation) for element in elements))
            case Address(base, offset, rest) if not rest:
                symbol = self.operand(base, operation)
                if isinstance(symbol, StackVariable):
                    return MemoryOperand(symbol.register, symbol.address + offset)
                if not isinstance(symbol, Register | Symbol | Immediate):
                    raise self.wrong(operation, f"{base} is no address")
                return MemoryOperand(symbol, offset)
            case Address(base, 0, (place,)):  # one coordinate may stand without braces
                elements = place.elements if isinstance(place, Vector) else (place,)
                return self.texel(base, elements, operation)
            case Index(name, register, offset) if not register:
                symbol = self.name(name, operation)
                if isinstance(symbol, StackVariable):
                    return MemoryOperand(symbol.register, symbol.address + offset)
                if isinstance(symbol, Symbol):
                    return MemoryOperand(symbol, offset)
        raise Unsupported(f"line {operation.line}: '{operation}': the operand {operand} is not supported")

    def texel(self, base: Operand, coordinates: tuple[Operand, ...], operation: Operation) -> TexelOperand:
        """Return what a texture or surface with coordinates stands for."""
        handle = self.operand(base, operation)
        if isinstance(handle, Symbol):
            raise Unsupported(
                f"line {operation.line}: '{operation}': {base} is a texture or surface reference, which "
                "CUDA 12 removed; give the kernel a cudaTextureObject_t parameter and pass lw.texture(array)"
            )
        if not isinstance(handle, Register) or handle.bits != 64:
            raise self.wrong(operation, f"{base} is no 64-bit register with a texture's handle")
        return TexelOperand(handle, tuple(self.operand(coordinate, operation) for coordinate in coordinates))

    def element(self, name: str, element: str, operation: Operation) -> ResolvedOperand:
        """Return what an element of a register stands for, such as %tid.x or %r1.b0."""
        if name in SPECIAL_REGISTERS:
            if element not in SPECIAL_REGISTERS[name] or not element:
                raise self.wrong(operation, f"{name} has no element {element}")
            return SpecialRegister(name, element)
        variable = self.function.variable(name, operation.scope)
        if (
            variable is not None
            and variable.space == "reg"
            and variable.vector > 1
            and element in "xyzw"[: variable.vector]
        ):
            return self._cached(variable, f"{name}.{element}")
        if variable is not None and variable.space == "reg" and _SELECTOR.fullmatch(element):
            register = self.name(name, operation)
            if isinstance(register, Register) and register.bits == 32:
                return RegisterPart(register, element)
        raise Unsupported(f"line {operation.line}: '{operation}': {name}.{element} is not supported")

    def _cached(self, variable: Variable, name: str) -> ResolvedOperand:
        """Return the register of a variable, allocated at its first use."""
        key = (id(variable), name)
        if key not in self.known:
            self.known[key] = self._register(variable, name)
        return self.known[key]

    def name(self, name: str, operation: Operation) -> ResolvedOperand:
        """Return what a name stands for in a scope."""
        if name == "_":
            return Sink()
        variable = self.function.variable(name, operation.scope)
        if variable is not None:
            if variable.space == "reg":
                if id(variable) in self.given:
                    return self.given[id(variable)]
                if variable.vector > 1:
                    return OperandList(
                        tuple(self._cached(variable, f"{name}.{e}") for e in "xyzw"[: variable.vector])
                    )
                return self._cached(variable, name)
            return self._variable(variable)
        if name in self.program.globals:
            return self.program.globals[name]
        outside = self.program.module.variables.get(name)
        if outside is not None and outside.space == "shared":
            return self.shared.get(id(outside)) or self._dynamic(outside)
        if name in SPECIAL_REGISTERS:
            self.program.uses_grid |= name in GRID_BARRIER_REGISTERS
            self.program.uses_reserved_memory |= name in RESERVED_MEMORY_REGISTERS
            return SpecialRegister(name)
        position = self.function.label(name, operation.scope)
        if position is not None:
            return BranchTarget(tuple(self._targets(position, operation)))
        function = self.program.functions.get(self.program.module.aliases.get(name, name))
        if function is not None:
            return function
        if name.startswith("%"):
            raise Unsupported(
                f"line {operation.line}: '{operation}': {name} is not declared, or not supported"
            )
        raise self.wrong(operation, f"{name} is not declared")

    def _targets(self, position: int, operation: Operation) -> Iterator[int]:
        """Yield the position of a label, or of those that a `.branchtargets` behind it lists."""
        body = self.function.body or []
        record = record_of(operation.opcode, operation.modifiers)
        behind = range(position + 1, len(body)) if record and record.ends is BlockEnd.SWITCH else ()
        following = next((body[at] for at in behind if not isinstance(body[at], Loc)), None)
        if not isinstance(following, Targets):
            yield position
            return
        for name in following.names:
            target = self.function.label(name, operation.scope)
            if target is None:
                raise self.wrong(operation, f"there is no label {name}")
            yield target

    def _dynamic(self, variable: Variable) -> Symbol:
        """Return dynamic shared memory, which begins at a multiple of the largest alignment that it has."""
        self.program.dynamic_alignment = max(self.program.dynamic_alignment, variable.alignment)
        return Symbol(variable.name, "dynamic", 0, 0)

    def _variable(self, variable: Variable) -> Symbol | StackVariable:
        """Return the address of a variable that the function declares."""
        if id(variable) not in self.placed:
            check_variable(variable)
            if variable.space == "shared":
                return self.shared.get(id(variable)) or self._dynamic(variable)
            if variable.space in ("local", "param"):
                symbol = self._in_local(variable)
            elif variable.space in ("global", "const"):
                raise Unsupported(f"line {variable.line}: a .{variable.space} variable inside a function")
            else:
                raise Unsupported(f"line {variable.line}: a variable in .{variable.space}")
            self.placed[id(variable)] = symbol
        return self.placed[id(variable)]


#: The modifiers that say whether an instruction is one of a block or of a pair of blocks.
GROUPS = ("cta_group::1", "cta_group::2")


def check_tensor_memory(program: Program) -> None:
    """Raise an error where a program breaks a rule that ptxas holds it to, too.

    The catalogue has each form, the target has it, and all are for one block, or all for a pair of blocks.
    """
    sites = [op for op in program.sites if op.record.touches_tensor_memory]
    for op in sites:
        _check_target(op, program.module.arch)
    of_one, of_pair = ([op for op in sites if op.has(group)] for group in GROUPS)
    if of_one and of_pair:
        one, pair = of_one[0], of_pair[0]
        odd, group = (one, GROUPS[1]) if len(of_one) < len(of_pair) else (pair, GROUPS[0])
        raise Refused(
            f"line {odd.line}: '{pair.source}' (line {pair.line}) is for a pair of blocks, and "
            f"'{one.source}' (line {one.line}) for one: the tcgen05 instructions of a kernel all "
            "have .cta_group::1 or all .cta_group::2",
            odd.line,
            str(odd.source),
            f"give all tcgen05 instructions of the kernel .{group}, this one as well",
        )


def _check_target(op: Op, target: str) -> None:
    """Raise an error if there is no such form, or if the GPUs that the PTX is for do not have it."""
    try:
        archs = async_instruction(op.head).archs
    except LanewiseError as error:
        raise op.unsupported(str(error)) from None
    if target in ARCHS and target not in archs:
        needed = describe_targets(archs)
        raise Unsupported(f"line {op.line}: '{op.source}' needs {needed}; this PTX is for {target}")
