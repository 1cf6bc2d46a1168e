"""Lowerings of loads and stores: contiguous addresses of a warp at once, others lane by lane."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lanewise.jit import ir
from lanewise.jit.simd import Pointer, Type, Value, i64, u8, u32, u64
from lanewise.machine import abi
from lanewise.machine.codegen.function_code import (
    BYTE,
    AddressSlot,
    BlockCode,
    Kernel,
    RegisterSlot,
    shared_code,
)
from lanewise.machine.codegen.lane_vectors import Lanes, type_of
from lanewise.machine.codegen.register_shuffles import VECTOR, joined, permuted, widest_shuffle
from lanewise.machine.codegen.threaded_code import STEP_ARGUMENTS, Step
from lanewise.machine.program.memory_accesses import accesses
from lanewise.machine.program.operands import (
    MemoryOperand,
    Register,
    ResolvedOperand,
    Sink,
    Symbol,
    elements_of,
)
from lanewise.machine.program.ops import Op
from lanewise.machine.warp_ops.addresses import SHARED_CLUSTER, WRITE, Access, Window, reached_space

#: The most bytes that a lane loads or stores.
WIDEST = 32


class Form(NamedTuple):
    """The operands of a load or a store: its address, registers, element type, size and state space."""

    storing: bool
    address: MemoryOperand
    data: tuple[ResolvedOperand, ...]
    element: Type
    size: int
    space: str


def form_of(op: Op) -> Form:
    """Return the operands of an instruction; raise an error if the machine does not support its form."""
    (located,) = accesses(op)
    storing = located.access.writes
    data = elements_of(op.operands[located.access.data])
    name = op.types[-1]
    element = u8 if name == "pred" else type_of(name)
    space = "global" if located.space == "const" else reached_space(op, located)
    if storing and space == "param":
        raise op.unsupported("parameters are read-only")
    if not storing and not all(isinstance(operand, Register | Sink) for operand in data):
        raise op.unsupported("its destination is no register")
    if storing and located.size != WIDEST and any(isinstance(operand, Sink) for operand in data):
        raise op.unsupported("only stores of 256 bits leave elements of memory as they are")
    return Form(storing, located.address, data, element, located.size, space)


def lower(code: BlockCode, op: Op) -> None:
    """Lower ld, ldu and st whose address or data are not in registers; orders and hints change nothing."""
    storing, address, data, element, size, space = form_of(op)
    active = code.bits(code.active(op))
    access = Access(code, op.site, space, size, size, WRITE if storing else 0)
    if not isinstance(address.base, Register) and not storing and space != "local":
        _broadcast(code, access, address, data, element, active)
    else:
        _one_by_one(code, access, address, data, element, active, storing)


def step(module: ir.Module, op: Op, kernel: Kernel) -> Step | None:
    """Return a load or a store as a shared step; None where the address or the data are not in registers."""
    storing, address, data, element, _, space = form_of(op)
    base = address.base
    if not isinstance(base, Register):
        return None
    registers = [operand for operand in data if isinstance(operand, Register)]
    if len(registers) < len(data):
        return None
    function = _mover(module, space, element, base, registers, storing)
    return Step(
        function, [base.offset, address.offset, op.site, *(register.offset for register in registers)]
    )


def parameter_offset(op: Op, kernel: Kernel) -> int | None:
    """Return the offset of a load among the kernel's parameters; None if it is not one of those."""
    if op.space != "param" or not op.record.is_plain_load:
        return None
    form = form_of(op)
    base = form.address.base
    if form.space != "param" or not isinstance(base, Symbol) or base.space != "param":
        return None
    start = base.address + form.address.offset
    fits = start >= 0 and start + form.size <= kernel.program.parameter_bytes and start % form.size == 0
    return start if fits and form.element.bits <= 64 else None


def load_parameter(lanes: Lanes, op: Op, kernel: Kernel) -> None:
    """Lower `ld.param` of a kernel as an instruction of each lane alone: one number for all lanes."""
    form, start = form_of(op), parameter_offset(op, kernel)
    assert start is not None
    block = lanes.record(abi.WarpFrame.block)
    parameters = lanes.record(abi.LaunchRecord.parameters, lanes.record(abi.BlockRecord.launch, block))
    word = Type("i" if form.element.kind == "i" else "u", form.element.bits)
    memory = Pointer(lanes.code, word, parameters).moved(lanes.code.constant(i64, start))
    for number, operand in enumerate(form.data):
        lanes.write(operand, memory.load(number).spread(lanes.count))


#: Operands of a shared step: the base register's offset, the displacement, the site, then the registers.
_BASE, _DISPLACEMENT, _SITE, _REGISTERS = range(0, 32, 8)


def _mover(
    module: ir.Module, space: str, element: Type, base: Register, data: list[Register], storing: bool
) -> ir.Function:
    """Return a shared function that moves data of one kind, for any registers."""
    kinds = "_".join(f"{register.bits}{'p' * register.is_predicate}" for register in data)
    verb = "st" if storing else "ld"
    name = f"{verb}_{space.replace('::', '_')}_{element.kind}{element.bits}_{base.bits}_{kinds}"

    def write(code: BlockCode) -> None:
        operands = code.record("operands")
        registers = tuple(
            RegisterSlot.like(register, operands.get(_REGISTERS + 8 * number))
            for number, register in enumerate(data)
        )
        address = AddressSlot(RegisterSlot.like(base, operands.get(_BASE)), operands.get(_DISPLACEMENT))
        size = element.bits // 8 * len(data)
        access = Access(code, operands.get(_SITE), space, size, size, WRITE if storing else 0)
        Moves(code, access, address, registers, element, storing).write(code["active"].to(u32))

    return shared_code(module, name, STEP_ARGUMENTS, write)


class Moves:
    """Writes the code of a load or a store by addresses in registers."""

    def __init__(
        self,
        code: BlockCode,
        access: Access,
        address: AddressSlot,
        data: tuple[RegisterSlot, ...],
        element: Type,
        storing: bool,
    ) -> None:
        self.code, self.access, self.data = code, access, data
        self.element, self.storing = element, storing
        type = Type("u", address.base.bits)
        self.displacement = address.offset.to(type)
        self.base = code.frame.pointer(address.base.offset, type)
        self.addresses = self.base.load(0, abi.LANES) + self.displacement.spread(abi.LANES)

    @property
    def word(self) -> Type:
        """The element's type as an integer, signed if the element is."""
        return Type("i" if self.element.kind == "i" else "u", self.element.bits)

    def write(self, active: Value) -> None:
        """Write the whole function; it chooses the fastest method that the addresses allow."""
        code, lanes = self.code, abi.LANES
        whole = active.equals(-1)
        with code.when(active.equals(0)):
            code.give(0)
        first = code.intrinsic("cttz", u32, [active, code.constant(Type("u", 1), 1)]).to(u64).to(i64)
        window = Window(self.access, self._address(first))
        if not self.apart:
            span = self._address(code.constant(i64, lanes - 1)) - self._address(code.constant(i64, 0))
            near = span.equals((lanes - 1) * self.access.size)
            with code.when(near & whole if self.storing else near), code.when(self._contiguous()):
                self._try_together(window, active, whole)
            if not self.storing:
                with code.when(span.equals(0) & whole), code.when(self._uniform()):
                    self._try_spread(window)
        if self._whole_vectors() and not self.apart:
            self._by_groups(window, active)
        else:
            if self.element.bits <= 64:
                with code.when(whole), code.when(self._good(window)):
                    with code.loop(lanes // 4) as group:
                        for lane in range(4):
                            self._good_lane(window, group * 4 + lane)
                    code.give(0)
            with set_lanes(code, active) as one:
                self._lane(window, one)
        code.give(0)

    @property
    def apart(self) -> bool:
        """Whether equal addresses of two lanes are different memory, as in local memory."""
        return self.access.space == "local"

    def _address(self, lane: Value) -> Value:
        """Return one lane's address."""
        address: Value = (self.base.load(lane) + self.displacement).to(u64)
        return address

    def _good(self, window: Window, active: Value | None = None) -> Value:
        """Return whether the addresses of some lanes (those of bits, or all) lie in the window."""
        shared = self.access.space in ("shared", SHARED_CLUSTER, "local", "param")
        addresses = self.addresses if shared else self.addresses.to(u64)
        bad = window.bad(addresses)
        if active is not None:
            bad = self.code.lanes_of(active).select(bad, 0)
        return self._none(bad)

    # neighbouring places ------------------------------------------------------------------------------------

    def _contiguous(self) -> Value:
        """Return whether the lanes' addresses follow one another without gaps."""
        type, size = self.addresses.type, self.access.size
        counting = ir.Constant(type.ir, [lane * size for lane in range(abi.LANES)])
        wanted = self.addresses.lane(0).spread(abi.LANES) + Value(self.code, type, counting)
        return self._none(self.addresses ^ wanted)

    def _uniform(self) -> Value:
        """Return whether all lanes have the same address."""
        return self._none(self.addresses ^ self.addresses.lane(0).spread(abi.LANES))

    def _none(self, words: Value) -> Value:
        """Return whether all words are zero."""
        any_bits = self.code.intrinsic("vector.reduce.or", words.type.by(1), [words], of=words.type)
        return any_bits.equals(0)

    def _try_together(self, window: Window, active: Value, whole: Value) -> None:
        """Move the warp's data in one piece and return, if all of it lies in one array."""
        code = self.code
        address = self._address(code.constant(i64, 0))
        last = address + self.access.size * (abi.LANES - 1)
        good = (window.bad(address) | window.bad(last)).equals(0)
        with code.when(good & (last > address)):
            host = code.builder.inttoptr((window.shift + address.to(i64)).handle, BYTE)
            if self.storing:
                self._store_together(host)
                code.give(0)
            else:
                rows = self._load_together(host)
                with code.when(whole):
                    for register, row in zip(self.data, rows, strict=True):
                        self._row(register).store(row)
                    code.give(0)
                mask = code.lanes_of(active)
                for register, row in zip(self.data, rows, strict=True):
                    place = self._row(register)
                    place.store(mask.select(row, place.load(0, abi.LANES)))
                code.give(0)

    def _row(self, register: RegisterSlot) -> Pointer:
        """Return a pointer to a register of all lanes."""
        return self.code.frame.pointer(register.offset, Type("u", register.bits))

    def _store_together(self, host: ir.Operand) -> None:
        """Store the data of all lanes to contiguous memory."""
        code, count, lanes = self.code, len(self.data), abi.LANES
        word = Type("u", self.element.bits)
        rows = [self._row(register).load(0, lanes).to(word) for register in self.data]
        if count == 1:
            code.store_unaligned(rows[0], host)
        else:
            joined = _interleaved(code, [row.handle for row in rows], count)
            code.store_unaligned(Value(code, word.by(lanes * count), joined), host)

    def _load_together(self, host: ir.Operand) -> list[Value]:
        """Load the data of all lanes from contiguous memory; return a vector for each register."""
        code, count, lanes = self.code, len(self.data), abi.LANES
        word = Type("u", self.element.bits)
        whole = code.load_unaligned(host, word.by(lanes * count))
        loaded = []
        for number, register in enumerate(self.data):
            values = whole
            if count > 1:
                order = list(range(number, lanes * count, count))
                places = ir.Constant(ir.VectorType(ir.IntType(32), lanes), order)
                undefined = ir.Constant(whole.type.ir, ir.Undefined)
                handle = code.builder.shuffle_vector(whole.handle, undefined, places)
                values = Value(code, word.by(lanes), handle)
            values = Value(code, self.word.by(lanes), values.handle)
            loaded.append(values.to(Type(values.type.kind, register.bits)).to(Type("u", register.bits)))
        return loaded

    # other places -------------------------------------------------------------------------------------------

    def _try_spread(self, window: Window) -> None:
        """Load from the one address of all lanes and return, if it lies in the window."""
        code = self.code
        address = self._address(code.constant(i64, 0))
        with code.when(window.bad(address).equals(0)):
            host = window.shift + address.to(i64)
            pointer = Pointer(code, self.word, code.builder.inttoptr(host.handle, BYTE))
            for number, register in enumerate(self.data):
                value = code.load_unaligned((pointer + number).handle, self.word)
                wide = value.to(Type(value.type.kind, register.bits)).to(Type("u", register.bits))
                self._row(register).store(wide.spread(abi.LANES))
            code.give(0)

    def _whole_vectors(self) -> bool:
        """Return whether each lane moves a whole vector, with registers of the element's size."""
        return len(self.data) * self.element.bits == VECTOR and all(
            register.bits == self.element.bits and len(self.data) > 1 for register in self.data
        )

    def _by_groups(self, window: Window, active: Value) -> None:
        """Move a vector of each lane, as many lanes at a time as one shuffle can take.

        The addresses of all lanes are checked together. Where one is bad, each lane is checked separately.
        """
        code = self.code
        with code.builder.if_else(self._good(window, active).handle) as (good, doubtful):
            with good:
                self._groups(window, active, code.constant(i64, 0), abi.LANES)
            with doubtful, set_lanes(code, active) as one:
                self._lane(window, one)

    def _groups(self, window: Window, active: Value, start: Value, lanes: int) -> None:
        """Move the vectors of neighbouring lanes in groups; an incomplete group is split further."""
        code, count = self.code, len(self.data)
        widest = widest_shuffle() // self.element.bits
        size = widest if lanes > widest else count
        all_there = (1 << size) - 1
        with code.loop(lanes // size) as group:
            first = start + group * size
            present = (active >> first.to(u32)) & all_there
            with code.builder.if_else(present.equals(all_there).handle) as (together, apart):
                with together:
                    self._group(window, first, size)
                with apart, code.when(present.differs(0)):
                    if size > count:
                        self._groups(window, active, first, size)
                    else:
                        with set_lanes(code, present << first.to(u32)) as one:
                            self._good_lane(window, one)

    def _group(self, window: Window, first: Value, lanes: int) -> None:
        """Move the vectors of some neighbouring lanes, whose addresses are known to be good."""
        code, count = self.code, len(self.data)
        word = Type("u", self.element.bits)
        lane_bits, part_bits = (tuple(range(count_of.bit_length() - 1)) for count_of in (lanes, count))
        addresses = (window.shift + self._address(first + lane).to(i64) for lane in range(lanes))
        hosts = [code.builder.inttoptr(address.handle, BYTE) for address in addresses]
        if self.storing:  # from [part][lane] to [lane][part]
            rows = [self._row(register).load(first, lanes) for register in self.data]
            order = (*(len(lane_bits) + bit for bit in part_bits), *lane_bits)
            for number, vector in enumerate(permuted(code, rows, order)):
                for lane in range(lanes // count):
                    code.store_unaligned(
                        vector.part(lane * count, count), hosts[number * lanes // count + lane]
                    )
        else:
            vectors = joined(
                code, [code.load_unaligned(host, word.by(count)) for host in hosts], lanes // count
            )
            order = (*(len(part_bits) + bit for bit in lane_bits), *part_bits)
            for register, row in zip(self.data, permuted(code, vectors, order), strict=True):
                self._row(register).store(row, first)

    def _good_lane(self, window: Window, lane: Value) -> None:
        """Move one lane's data; its address is known to lie in the window."""
        self._data(window.host(self._address(lane), lane), lane)

    def _lane(self, window: Window, lane: Value) -> None:
        """Move one lane's data; its address lies in the window or is looked up."""
        code = self.code
        address = self._address(lane)
        host = code.variable(window.host(address, lane))
        with code.when(window.bad(address).differs(0)):
            pointer = self.access.host(address, lane)
            host.set(Value(code, i64, code.builder.ptrtoint(pointer, i64.ir)))
        self._data(host.get(), lane)

    def _data(self, host: Value, lane: Value) -> None:
        """Move one lane's data from or to a host address."""
        pointer = Pointer(self.code, self.word, self.code.builder.inttoptr(host.handle, BYTE))
        _lane_data(self.code, pointer, self.data, lane, self.storing)


def _lane_data(
    code: BlockCode,
    pointer: Pointer,
    data: tuple[ResolvedOperand | RegisterSlot, ...],
    lane: Value,
    storing: bool,
) -> None:
    """Move one lane's data between memory and its registers."""
    word = pointer.type
    if storing:
        values = {
            number: code.lane_read(operand, word, lane)
            for number, operand in enumerate(data)
            if not isinstance(operand, Sink)
        }
        for number, value in values.items():
            value = value.to(word) if value.type.bits == 1 else value
            code.store_unaligned(value, (pointer + number).handle)
    else:
        loaded = [code.load_unaligned((pointer + number).handle, word) for number in range(len(data))]
        for operand, value in zip(data, loaded, strict=True):
            code.lane_write(operand, value, lane)


@contextmanager
def set_lanes(code: BlockCode, bits: Value) -> Iterator[Value]:
    """Run the body for every lane whose bit is set; at least one has to be."""
    left = code.variable(bits)
    head, after = (code.function.append_basic_block(name) for name in ("lane", "lanes_done"))
    code.builder.branch(head)
    code.builder.position_at_end(head)
    now = left.get()
    yield code.intrinsic("cttz", u32, [now, code.constant(Type("u", 1), 1)]).to(u64).to(i64)
    rest = now & (now - 1)
    left.set(rest)
    code.builder.cbranch(rest.differs(0).handle, head, after)
    code.builder.position_at_end(after)


def _interleaved(code: BlockCode, handles: list[ir.Operand], count: int) -> ir.Operand:
    """Return a warp's registers in the order of memory: lane by lane."""
    lanes = abi.LANES
    while len(handles) > 1:  # in pairs, so that each shuffle joins vectors of one length
        width = handles[0].type.count
        places = list(range(2 * width))
        handles = [
            code.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), 2 * width), places))
            for a, b in zip(handles[::2], handles[1::2], strict=True)
        ]
    order = [part * lanes + lane for lane in range(lanes) for part in range(count)]
    undefined = ir.Constant(handles[0].type, ir.Undefined)
    places_constant = ir.Constant(ir.VectorType(ir.IntType(32), lanes * count), order)
    return code.builder.shuffle_vector(handles[0], undefined, places_constant)


def _broadcast(
    code: BlockCode,
    access: Access,
    address: MemoryOperand,
    data: tuple[ResolvedOperand, ...],
    element: Type,
    active: Value,
) -> None:
    """Load from one address for all lanes."""
    with code.when(active.differs(0)):
        zero = code.constant(i64, 0)
        host = access.host(code.address_of(address, zero), zero)
        mask = code.lanes_of(active)
        kind = Type("i" if element.kind == "i" else "u", element.bits)
        for number, operand in enumerate(data):
            if isinstance(operand, Register):
                value = code.load_unaligned((Pointer(code, kind, host) + number).handle, kind)
                wide = value.to(Type(value.type.kind, operand.bits)).to(Type("u", operand.bits))
                pointer = code.frame.pointer(operand.offset, Type("u", operand.bits))
                pointer.store(mask.select(wide.spread(abi.LANES), pointer.load(0, abi.LANES)))


def _one_by_one(
    code: BlockCode,
    access: Access,
    address: MemoryOperand,
    data: tuple[ResolvedOperand, ...],
    element: Type,
    active: Value,
    storing: bool,
) -> None:
    """Move the data of each lane, with its address checked separately."""
    word = Type("i" if element.kind == "i" else "u", element.bits)
    with code.each_lane(active) as lane:
        host = access.host(code.address_of(address, lane), lane)
        _lane_data(code, Pointer(code, word, host), data, lane, storing)
