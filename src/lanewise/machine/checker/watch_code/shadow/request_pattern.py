"""Analyses the pattern of a warp's request: its extent, its tiling, and what it costs.

Instructions in loops repeat the same request some bytes further on, so all of this is computed once for each
new pattern and stored beside the instruction.
"""

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
from lanewise.jit.simd import Code, Value, i64
from lanewise.machine.checker.records import (
    CELLS_TOGETHER,
    MOST_SAMPLE_BASES,
    MOST_SAMPLES,
    Flag,
    LastRequest,
)
from lanewise.machine.checker.watch_code.accesses import Access
from lanewise.machine.checker.watch_code.shadow.bank_model import (
    sectors,
    wavefronts_4,
    wavefronts_8,
    wavefronts_16,
    wavefronts_of_rows,
)
from lanewise.machine.checker.watch_code.watch_module import LaneLongs

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
