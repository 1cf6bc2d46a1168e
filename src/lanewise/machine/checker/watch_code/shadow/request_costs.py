"""What a warp's request costs: its extent and tiling, wavefronts of shared memory, sectors of global memory.

A wavefront serves one word in each of 32 banks. Accesses of 8 and 16 bytes a lane go in phases of 16 and 8
lanes, each judged alone unless two go as one; a phase takes as many wavefronts as a bank has distinct words.
A request to global memory takes one sector of 32 bytes for each that it touches. Instructions in loops repeat
the same request some bytes further on, so all of this is computed once for each new pattern and stored beside
the instruction.
"""

from collections.abc import Callable

from lanewise.jit.compiled_functions import primitive, signature_only
from lanewise.jit.lane_functions import (
    address_of,
    any_lane,
    choose,
    count_bits,
    lanes_in,
    lowest_bit,
    mask_of,
    set_bits,
)
from lanewise.jit.record_layout import Longs, RecordLayout, per_lane
from lanewise.jit.restricted_python import compiled, inlined
from lanewise.jit.simd import Code, Type, Value, i64
from lanewise.machine.checker.records import (
    CELLS_TOGETHER,
    MOST_SAMPLE_BASES,
    MOST_SAMPLES,
    Access,
    Flag,
    LastRequest,
)
from lanewise.machine.checker.watch_code.watch_module import LANES, LaneLongs, longs_of, words_of
from lanewise.machine.codegen.function_code import U64

#: Bytes of a wavefront, and of a sector as a power of two.
WAVEFRONT, SECTOR_SHIFT = 128, 5
#: The bits of the smaller one of two numbers that are returned as one.
LOW_WORD = 0xFFFFFFFF


def _reduced(name: str, type: Type) -> Callable[[Code, Value], Value]:
    """Return what writes the reduction of a vector to one number."""

    def write(code: Code, vector: Value) -> Value:
        typed = vector.view(type)
        return code.intrinsic(f"vector.reduce.{name}", type, [typed], of=typed.type).view(i64)

    return write


@primitive(_reduced("smin", i64))
def smallest_signed(vector: Longs) -> int:
    """Return the smallest element of a vector as numbers with a sign."""
    signature_only()


@primitive(_reduced("smax", i64))
def largest_signed(vector: Longs) -> int:
    """Return the largest element of a vector as numbers with a sign."""
    signature_only()


@primitive(_reduced("or", U64))
def bits_in_some(vector: Longs) -> int:
    """Return the bits that are set in some element of a vector."""
    signature_only()


# wavefronts and sectors -------------------------------------------------------------------------------------


class BankCounts(RecordLayout):
    """How many distinct units a phase asks of each bank."""

    units = per_lane()


@compiled()
def wavefronts_of_phase(units: LaneLongs, active: int, banks: int) -> int:
    """Return the wavefronts of a phase: the distinct units in the busiest bank."""
    bank_of_lane = units.longs & (banks - 1)
    used = bits_in_some(choose(lanes_in(active), longs_of(words_of(1)) << bank_of_lane, 0))
    if count_bits(used) == count_bits(active):
        return 1
    counted, worst = BankCounts.on_stack(), 0
    counted.units = 0
    for lane in set_bits(active):
        unit = units.longs[lane]
        # Lanes with one unit count once.
        if mask_of(units.longs == unit) & active & ((1 << lane) - 1) == 0:
            bank = unit & (banks - 1)
            counted.units[bank] += 1
            worst = max(worst, counted.units[bank])
    return worst


@inlined
def go_as_one(addresses: LaneLongs, lanes: int) -> bool:
    """Return whether two phases of a wide access go as one.

    They do if all lanes share their address with the neighbour, or with the lane two further on.
    """
    for step in (1, 2):
        apart = 0
        for lane in set_bits(lanes):
            if addresses.longs[lane] != addresses.longs[lane ^ step]:
                apart = 1
                break
        if apart == 0:
            return True
    return False


@compiled()
def wavefronts(addresses: LaneLongs, active: int, size: int, by_rows: bool) -> int:
    """Return wavefronts | phases << 32 of a request to shared memory, of lanes that access so many bytes.

    The phases of rows of ldmatrix and stmatrix, which have 16 bytes, never go together.
    """
    unit = 16 if by_rows else max(size, 4)
    lanes = WAVEFRONT // unit  # of a phase; as many units a wavefront has
    units = LaneLongs.on_stack()
    units.longs = addresses.longs >> lowest_bit(unit)
    of_pair = LANES if lanes == LANES else 2 * lanes
    total, phases = 0, 0
    for number in range(LANES // of_pair):
        pair = ((1 << of_pair) - 1) << (number * of_pair)
        is_one = (lanes == LANES) or ((not by_rows) & (active & pair == pair) and go_as_one(addresses, pair))
        together = of_pair if is_one else lanes
        for part in range(of_pair // together):
            here = active & (((1 << together) - 1) << (number * of_pair + part * together))
            if here != 0:
                phases += 1
                total += wavefronts_of_phase(units, here, lanes)
    return total | (phases << 32)


@compiled()
def sectors(addresses: LaneLongs, active: int, size: int) -> int:
    """Return sectors | least << 32.

    These are the distinct sectors that the lanes touch, and the sectors that the same bytes would take if
    they lay side by side. Lanes with one address count once for the latter if they follow each other.
    """
    total, distinct, ascending, previous, last_start = 0, 0, True, -1, -1
    for lane in set_bits(active):
        start = addresses.longs[lane]
        sector, last = start >> SECTOR_SHIFT, (start + size - 1) >> SECTOR_SHIFT
        ascending = ascending & (sector >= previous)
        total += last - sector + int(sector != previous)
        distinct += int(start != last_start)
        previous = last
        last_start = start
    if not ascending:
        # A sector, or an address, is counted at its first lane.
        total = 0
        distinct = 0
        for lane in set_bits(active):
            address, before = addresses.longs[lane], active & ((1 << lane) - 1)
            of_lane, end = address >> SECTOR_SHIFT, (address + size - 1) >> SECTOR_SHIFT
            is_first = mask_of(addresses.longs >> SECTOR_SHIFT == of_lane) & before == 0
            total += end - of_lane + int(is_first)
            distinct += int(mask_of(addresses.longs == address) & before == 0)
    packed = (distinct * size + (1 << SECTOR_SHIFT) - 1) >> SECTOR_SHIFT
    return total | (min(packed, total) << 32)


# the pattern of a request -----------------------------------------------------------------------------------


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
    by_rows = access.flags & (Flag.MATRIX | Flag.TILE) != 0
    is_known = by_rows | (size == 16) | (size == 8) | (size < 5)
    answer = wavefronts(offsets, active, size, by_rows) if is_known else 0
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
