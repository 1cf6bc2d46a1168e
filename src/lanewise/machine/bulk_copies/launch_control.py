"""Lowerings of cluster launch control: a running cluster takes over one that has not begun.

The response is opaque in the PTX ISA. Here its words are the coordinates of the first block of the cluster
that was taken over, all ones if there is none, and then whether there is one.
"""

from lanewise.jit.simd import Type, Value, i64
from lanewise.machine import abi
from lanewise.machine.abi import BlockRecord, LaunchRecord
from lanewise.machine.bulk_copies.bulk_copy import storer
from lanewise.machine.bulk_copies.operation import ISSUER, MBARRIER_BYTES, Issue
from lanewise.machine.codegen.cluster_scheduler import divided, first_blocks, next_cluster
from lanewise.machine.codegen.function_code import BlockCode, shared_code
from lanewise.machine.codegen.lane_vectors import BOOL, Lanes
from lanewise.machine.codegen.run_order import block_in_order, shared_permuted
from lanewise.machine.program.operands import Register, elements_of
from lanewise.machine.program.ops import Op

RESPONSE_BYTES = 16
#: Bits of a coordinate in the response, and the bit that says that a cluster was taken over.
_COORDINATE_BITS, SUCCESS_BIT = 32, 96
_COORDINATE = (1 << _COORDINATE_BITS) - 1


def try_cancel(code: BlockCode, op: Op) -> None:
    """Lower clusterlaunchcontrol.try_cancel: the next cluster of the grid is taken over, and never begins.

    Which one it is, is decided when the instruction is issued; the response is an asynchronous store. With
    .multicast::cluster::all each block of the cluster gets it at the same shared address.
    """
    function = shared_code(
        code.module, "take over cluster", (*ISSUER, "target", "barrier", "everyone"), _write_try_cancel
    )
    # A variable, or an address in .shared::cta, is no generic one.
    places = [op.address(number) for number in range(2)]
    starts = [
        abi.SHARED_WINDOW if op.space == "generic" and isinstance(place.base, Register) else 0
        for place in places
    ]
    with code.each_lane(code.bits(code.active(op))) as lane:
        target, barrier = (
            code.address_of(place, lane).to(i64) - start for place, start in zip(places, starts, strict=True)
        )
        everyone = int(op.has("multicast::cluster::all"))
        code.invoke_or_stop(function, code["frame"], op.site, lane, target, barrier, everyone)


def _write_try_cancel(code: BlockCode) -> None:
    made, block, launch = Issue(code), code.block, code.launch
    target, barrier = code["target"], code["barrier"]
    for address, size in ((target, RESPONSE_BYTES), (barrier, MBARRIER_BYTES)):
        made.own_shared(address, code.number(size))
    number, is_left = next_cluster(code, block)
    blocks = launch.get(LaunchRecord.cluster_blocks)
    # Only numbers of clusters that exist have a place in the order.
    asked = is_left.select(divided(code, number, blocks)[0], code.number(0))
    cluster = block_in_order(code, launch, shared_permuted(code.module), asked)
    x, y, z = (
        is_left.select(block, code.number(_COORDINATE)) for block in first_blocks(code, launch, cluster)
    )
    low, high = x | (y << _COORDINATE_BITS), z | (is_left.to(i64) << _COORDINATE_BITS)
    own = block.get(BlockRecord.rank)
    with code.loop(blocks) as rank:
        is_receiver = code["everyone"].differs(0) | rank.equals(own)
        with code.when(is_receiver):
            there, mbarrier = (
                (address & abi.OFFSET_MASK) | (rank << abi.RANK_SHIFT) for address in (target, barrier)
            )
            issuer = code["frame"], code["site"], code["lane"]
            code.invoke_or_stop(storer(code.module), *issuer, there, RESPONSE_BYTES, mbarrier, 0, low, high)


def query_cancel(lanes: Lanes, op: Op) -> None:
    """Lower clusterlaunchcontrol.query_cancel: whether a response names a cluster, and its first block."""
    response = lanes.read(op.operands[1], Type("u", 8 * RESPONSE_BYTES))

    def word(number: int) -> Value:
        return (response >> (number * _COORDINATE_BITS)).to(Type("u", _COORDINATE_BITS))

    if op.has("is_canceled"):
        lanes.write(op.operands[0], (word(SUCCESS_BIT // _COORDINATE_BITS) & 1).to(BOOL))
        return
    elements = elements_of(op.operands[0])
    if op.has("get_first_ctaid"):
        if len(elements) != 4:
            raise op.unsupported("it writes a vector of four registers: x, y, z, and one of no meaning")
        numbers = [word(0), word(1), word(2), lanes.constant(Type("u", _COORDINATE_BITS), 0)]
    else:
        axis = next((number for number in range(3) if op.has(f"get_first_ctaid::{'xyz'[number]}")), None)
        if axis is None or len(elements) != 1:
            raise op.unsupported("it asks .is_canceled, .get_first_ctaid, or one of its ::x, ::y and ::z")
        numbers = [word(axis)]
    for element, number in zip(elements, numbers, strict=True):
        lanes.write(element, number)
