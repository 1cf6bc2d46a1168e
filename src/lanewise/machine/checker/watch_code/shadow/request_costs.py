"""What a warp's request costs: its extent and tiling, wavefronts of shared memory, sectors of global memory.

A wavefront serves one word in each of 32 banks. Accesses of 8 and 16 bytes a lane go in phases of 16 and 8
lanes, each judged alone unless two go as one; a phase takes as many wavefronts as a bank has distinct words.
A request to global memory takes one sector of 32 bytes for each that it touches. Instructions in loops repeat
the same request some bytes further on, so all of this is computed once for each new pattern and stored beside
the instruction.
"""

from lanewise.jit import ir
from lanewise.jit.compiled_functions import primitive, signature_only
from lanewise.jit.lane_functions import (
    address_of,
    any_lane,
    choose,
    count_bits,
    lanes_in,
    lowest_bit,
    set_bits,
)
from lanewise.jit.record_layout import Longs
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Code, Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.checker.records import (
    CELLS_TOGETHER,
    MOST_SAMPLE_BASES,
    MOST_SAMPLES,
    Flag,
    LastRequest,
)
from lanewise.machine.checker.watch_code.accesses import Access
from lanewise.machine.checker.watch_code.watch_module import LaneLongs, WatchCode, lane_is_in, wide, written
from lanewise.machine.codegen.function_code import U32, U64
from lanewise.machine.codegen.lane_vectors import BOOL

LANES = abi.LANES
#: Stands for the rows of ldmatrix and stmatrix, of 16 bytes, whose phases never go together.
ROWS = 17


def _write_wavefronts(code: WatchCode, size: int) -> None:
    """Write how many wavefronts a request to shared memory takes, of lanes that access so many bytes."""
    unit = 16 if size == ROWS else max(size, 4)
    banks = 128 // unit  # units of a wavefront, and lanes of a phase
    shift = unit.bit_length() - 1
    counts, highest, lists = (
        code.stack_bytes(4 * LANES),
        code.stack_bytes(4 * LANES),
        code.stack_bytes(4 * LANES * LANES),
    )
    addresses = code.record("addresses").pointer(0, U64)
    total, phases = code.variable(code.number(0)), code.variable(code.number(0))
    worst = code.variable(code.constant(U32, 0))
    fresh = code.variable(code.constant(BOOL, 0))

    def phase(first: Value, lanes: int) -> None:
        active = (code["active"].to(U32) >> first.to(U32)) & ((1 << lanes) - 1)
        with code.when(active.differs(0)):
            phases.set(phases.get() + 1)
            units = (addresses.load(first, lanes) >> shift).to(U32)
            chosen = _conditions(code, active, lanes)
            ones = chosen.select(code.constant(U32.by(lanes), 1) << (units & (banks - 1)), 0)
            used = code.intrinsic("vector.reduce.or", U32, [ones], of=ones.type)
            worst.set(code.constant(U32, 1))
            with code.when(_count(used).differs(_count(active))):
                counts.pointer(0, U32).store(code.constant(U32.by(LANES), 0))
                with code.loop(lanes) as lane, code.when(lane_is_in(lane, active)):
                    word = (addresses.load(first + lane) >> shift).to(U32)
                    bank = wide(word & (banks - 1))
                    count = counts.pointer(0, U32).load(bank)
                    row = bank * LANES
                    fresh.set(count.equals(0) | (word > highest.pointer(0, U32).load(bank)))
                    with code.when(~fresh.get()):
                        fresh.set(code.constant(BOOL, 1))
                        with code.loop(wide(count)) as index:
                            fresh.set(fresh.get() & lists.pointer(0, U32).load(row + index).differs(word))
                    with code.when(fresh.get()):
                        lists.pointer(0, U32).store(word, row + wide(count))
                        top = highest.pointer(0, U32).load(bank)
                        highest.pointer(0, U32).store(count.equals(0).select(word, top.max(word)), bank)
                        counts.pointer(0, U32).store(count + 1, bank)
                        worst.set(worst.get().max(count + 1))
            total.set(total.get() + wide(worst.get()))

    if size <= 4 or size == ROWS:
        with code.loop(LANES // banks) as number:
            phase(number * banks, banks)
    else:
        with code.loop(LANES // (2 * banks)) as number:
            first = number * (2 * banks)
            joined = _joined(code, addresses.load(first, 2 * banks), code["active"] >> first, 2 * banks)
            with code.when(joined):
                phase(first, 2 * banks)
            with code.when(~joined), code.loop(2) as half:
                phase(first + half * banks, banks)
    code.done(total.get() | (phases.get() << 32))


@written(lambda code: _write_wavefronts(code, 4))
def wavefronts_4(addresses: LaneLongs, active: int) -> int:
    """Return wavefronts | phases << 32 of accesses of up to 4 bytes."""
    signature_only()


@written(lambda code: _write_wavefronts(code, 8))
def wavefronts_8(addresses: LaneLongs, active: int) -> int:
    """Return wavefronts | phases << 32 of accesses of 8 bytes."""
    signature_only()


@written(lambda code: _write_wavefronts(code, 16))
def wavefronts_16(addresses: LaneLongs, active: int) -> int:
    """Return wavefronts | phases << 32 of accesses of 16 bytes."""
    signature_only()


@written(lambda code: _write_wavefronts(code, ROWS))
def wavefronts_of_rows(addresses: LaneLongs, active: int) -> int:
    """Return wavefronts | phases << 32 of rows of ldmatrix and stmatrix."""
    signature_only()


def _count(bits: Value) -> Value:
    """Return the number of set bits."""
    return bits.code.intrinsic("ctpop", U32, [bits])


def _joined(code: WatchCode, addresses: Value, active: Value, lanes: int) -> Value:
    """Return whether two phases of a wide access go as one.

    They do if all lanes share their address with the neighbour, or with the lane two further on.
    """
    bits = active.to(U32) & ((1 << lanes) - 1)
    is_joined = code.constant(BOOL, 0)
    undefined = ir.Constant(addresses.type.ir, ir.Undefined)
    for step in (1, 2):
        swapped = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [lane ^ step for lane in range(lanes)])
        other = Value(code, addresses.type, code.builder.shuffle_vector(addresses.handle, undefined, swapped))
        is_joined = is_joined | ~addresses.differs(other).any()
    return is_joined & bits.equals((1 << lanes) - 1)


def _conditions(code: WatchCode, bits: Value, lanes: int) -> Value:
    """Return a mask's bits as a vector of conditions."""
    handle = bits.handle if lanes == 32 else code.builder.convert("trunc", bits.handle, ir.IntType(lanes))
    return Value(code, BOOL.by(lanes), code.builder.bitcast(handle, ir.VectorType(ir.IntType(1), lanes)))


def _write_sectors(code: WatchCode) -> None:
    """Write how many sectors a request to global memory takes."""
    addresses = code.record("addresses")
    active = code["active"].to(U32)
    every_address = addresses.get(0, U64, LANES)
    all_sectors = every_address >> 5
    chosen = _conditions(code, active, LANES)
    none = code.constant(Type("u", 64), -1)
    previous, ascending = code.variable(none), code.variable(code.constant(BOOL, 1))
    last_start = code.variable(none)
    total, distinct = code.variable(code.number(0)), code.variable(code.number(0))

    def answer() -> Value:
        bytes_touched = distinct.get() * code["size"]
        packed = (bytes_touched + 31) >> 5
        return total.get() | ((packed < total.get()).select(packed, total.get()) << 32)

    def one_if(condition: Value) -> Value:
        return condition.to(Type("u", 64)).view(Type("i", 64))

    with code.loop(LANES) as lane, code.when(lane_is_in(lane, active)):
        start = addresses.pointer(0, U64).load(lane)
        sector = start >> 5
        before = previous.get()
        ascending.set(ascending.get() & (before.equals(none) | ~(sector < before)))
        last = (start + (code["size"] - 1).to(U64)) >> 5
        new = before.equals(none) | sector.differs(before)
        total.set(total.get() + (last - sector).view(Type("i", 64)) + one_if(new))
        distinct.set(distinct.get() + one_if(start.differs(last_start.get())))
        previous.set(last)
        last_start.set(start)
    with code.when(ascending.get()):
        code.done(answer())
    # The addresses do not ascend: a sector, or an address, is counted at its first lane.
    total.set(code.number(0))
    distinct.set(code.number(0))
    with code.loop(LANES) as lane, code.when(lane_is_in(lane, active)):
        start = addresses.pointer(0, U64).load(lane)
        sector = start >> 5
        below = (code.constant(U32, 1) << lane.to(U32)) - 1

        def is_first(everyone: Value, own: Value, below: Value = below) -> Value:
            same = everyone.equals(own.spread(LANES)) & chosen
            return (Value(code, U32, code.builder.bitcast(same.handle, ir.IntType(32))) & below).equals(0)

        last = (start + (code["size"] - 1).to(U64)) >> 5
        more = (last - sector).view(Type("i", 64))
        total.set(total.get() + more + one_if(is_first(all_sectors, sector)))
        distinct.set(distinct.get() + one_if(is_first(every_address, start)))
    code.done(answer())


@written(_write_sectors)
def sectors(addresses: LaneLongs, active: int, size: int) -> int:
    """Return sectors | least << 32.

    These are the distinct sectors that the lanes touch, and the sectors that the same bytes would take if
    they lay side by side. Lanes with one address count once for the latter if they follow each other.
    """
    signature_only()


#: The bits of the smaller one of two numbers that are returned as one.
LOW_WORD = 0xFFFFFFFF


def _extreme(code: Code, name: str, vector: Value) -> Value:
    signed = vector.view(i64)
    return code.intrinsic(f"vector.reduce.{name}", i64, [signed], of=signed.type)


@primitive(lambda code, vector: _extreme(code, "smin", vector))
def smallest_signed(vector: Longs) -> int:
    """Return the smallest element of a vector as numbers with a sign."""
    signature_only()


@primitive(lambda code, vector: _extreme(code, "smax", vector))
def largest_signed(vector: Longs) -> int:
    """Return the largest element of a vector as numbers with a sign."""
    signature_only()


@compiled(noinline=True)
def remember(access: Access, request: LastRequest, base: int) -> None:
    """Compute everything that is kept of a new pattern; `base` is the offset of the first active lane."""
    pattern = choose(lanes_in(access.active), request.pattern, 0)
    request.least_offset = smallest_signed(pattern)
    request.most_offset = largest_signed(pattern)
    find_tiling(access, request, base + request.least_offset)
    count_costs(access, request)
    keep_sample(access, request, base)


@inlined
def find_tiling(access: Access, request: LastRequest, lowest: int) -> None:
    """Find out whether the lanes' bytes fill a range of cells exactly, and which lane has each cell."""
    size, shift, by_word = access.size, access.shift, access.flags & Flag.BY_WORD != 0
    count, of_lane = count_bits(access.active), access.size >> access.shift
    cells = count * of_lane
    request.tiled_cells = 0
    is_power = (size & (size - 1) == 0) & (size < 17) & (size >= 1 << shift)
    if is_power & (cells & (CELLS_TOGETHER - 1) == 0):
        filled = 0
        for lane in set_bits(access.active):
            offset = access.offsets[lane] - lowest
            if (offset & (size - 1) == 0) & (offset < cells << shift):
                for number in range(of_lane):
                    # stmatrix: a word of a row comes from the lane that holds it, not from the address's.
                    holder = ((lane & 7) << 2) + (number >> (2 - shift))
                    request.lane_of_cell[(offset >> shift) + number] = holder if by_word else lane
                filled |= 1 << (offset >> lowest_bit(size))
        if filled == (1 << count) - 1:
            request.tiled_cells = cells


@compiled()
def count_costs(access: Access, request: LastRequest) -> None:
    """Count the wavefronts of shared memory, or the sectors of global memory, that a request takes."""
    offsets, active, size = LaneLongs.at(address_of(access.offsets)), access.active, access.size
    request.wavefronts = 0
    request.ideal = 0
    request.sectors = 0
    request.least_sectors = 0
    if access.shared == 0:
        touched = sectors(offsets, active, size)
        request.sectors = touched & LOW_WORD
        request.least_sectors = touched >> 32
        return
    answer = 0
    if access.flags & (Flag.MATRIX | Flag.TILE) != 0:
        answer = wavefronts_of_rows(offsets, active)
    elif size == 16:
        answer = wavefronts_16(offsets, active)
    elif size == 8:
        answer = wavefronts_8(offsets, active)
    elif size < 5:
        answer = wavefronts_4(offsets, active)
    request.wavefronts = answer & LOW_WORD
    request.ideal = answer >> 32


@inlined
def is_like_sample(access: Access, request: LastRequest, number: int) -> bool:
    """Return whether a request has the same distances between lanes as a sample."""
    is_same = (request.sample_shared[number] == access.shared) & (
        request.sample_lanes[number] == access.active
    )
    first = request.sample_bases[number * MOST_SAMPLE_BASES]
    sample = LaneLongs.at(address_of(request.sample_offsets) + number * LaneLongs.BYTES)
    return is_same and not any_lane(sample.longs - first != request.pattern)


@inlined
def keep_sample(access: Access, request: LastRequest, base: int) -> None:
    """Find the sample with the same distances between lanes, or keep the request as one if there is room."""
    count, current = request.sample_count, -1
    for number in range(count):
        if is_like_sample(access, request, number):
            current = number
    if (current < 0) & (count < MOST_SAMPLES):
        current = count
        request.sample_count = count + 1
        request.sample_shared[count] = access.shared
        request.sample_lanes[count] = access.active
        LaneLongs.at(address_of(request.sample_offsets) + count * LaneLongs.BYTES).longs = access.offsets
        request.sample_base_count[count] = 0
        request.sample_bases[count * MOST_SAMPLE_BASES] = base
    request.current_sample = current


@inlined
def keep_base(request: LastRequest, base: int) -> None:
    """Keep where a request lies whose distances between lanes are those of a sample, if there is room."""
    current = request.current_sample
    if current >= 0:
        count, start = request.sample_base_count[current], current * MOST_SAMPLE_BASES
        if count < MOST_SAMPLE_BASES:
            is_fresh = True
            for number in range(count):
                is_fresh = is_fresh & (request.sample_bases[start + number] != base)
            if is_fresh:
                request.sample_bases[start + count] = base
                request.sample_base_count[current] = count + 1
