"""Compiled code that chooses the order in which blocks and warps run: in order, in reverse, or at random.

Random choices come from a counter-based generator: a hash of the seed, the block and the block's turn. So a
choice depends on nothing else, and a seed gives the same run on any number of host threads.
"""

from lanewise.jit import ir
from lanewise.jit.simd import Value, i64, u64
from lanewise.machine.abi import BlockRecord, LaunchRecord, RunOrder
from lanewise.machine.codegen.function_code import FunctionCode, Record, shared
from lanewise.machine.codegen.lane_vectors import BOOL

#: Rounds of the Feistel network that permutes numbers.
_ROUNDS = 6
#: Odd constants that keep the inputs of the hash apart (the golden ratio, and primes of xxHash).
_STEP, _BLOCK, _TURN = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
#: A random slice is a power of two below this one, or, with the other draws out of 16, a whole slice.
_SHORT_SLICES = 11


def mixed(value: Value) -> Value:
    """Return a 64-bit hash of a number, by the finaliser of SplitMix64."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)


def shared_permuted(module: ir.Module) -> ir.Function:
    """Return the function of `write_permuted` as one that all kernels share."""

    def write(apart: ir.Module, name: str) -> None:
        write_permuted(apart, name, "")

    return shared(module, "permuted block", ir.FunctionType(ir.LONG, [ir.LONG] * 3), write, quickly=True)


def write_permuted(module: ir.Module, name: str = "permuted", linkage: str = "internal") -> ir.Function:
    """Write `permuted(key, index, count)`: the number at an index of a random permutation below `count`.

    It is a Feistel network on the next larger power of 4, repeated until the result lies below `count`.
    """
    code = FunctionCode(module, name, ("key", "index", "count"), ir.IntType(64), linkage)
    builder = code.builder
    count, key = code["count"].to(u64), code["key"].to(u64)
    with code.when(code["count"] < 2):
        code.give(code["index"])
    zeros = code.intrinsic("ctlz", u64, [count - 1, code.constant(BOOL, 0)])
    half = ((64 - zeros) + 1) >> 1
    mask = (code.constant(u64, 1) << half) - 1
    number = code.variable(code["index"].to(u64))
    again = code.function.append_basic_block("again")
    builder.branch(again)
    builder.position_at_end(again)
    left, right = number.get() >> half, number.get() & mask
    for step in range(_ROUNDS):
        drawn = mixed(key + (right + step * (1 << 40)) * _STEP)
        left, right = right, left ^ (drawn & mask)
    number.set((left << half) | right)
    with code.when(~(number.get() < count)):
        builder.branch(again)
    code.give(number.get().to(i64))
    return code.function


class WarpOrder:
    """The order of the warps of a block in one turn, for the function that runs a block."""

    def __init__(self, code: FunctionCode, block: Record, permuted: ir.Function) -> None:
        self.code, self.block, self.permuted = code, block, permuted
        self.key = code.variable(code.constant(u64, 0))

    def begin_turn(self) -> None:
        """Write the beginning of a turn: the block's turns are counted, and its key is computed."""
        block = self.block
        turn = block.get(BlockRecord.turn) + 1
        block.set(BlockRecord.turn, turn)
        seed = block.at(BlockRecord.launch).get(LaunchRecord.seed)
        linear = block.get(BlockRecord.linear)
        self.key.set(mixed(seed.to(u64) + linear.to(u64) * _BLOCK + turn.to(u64) * _TURN))

    def warp(self, index: Value, warps: Value) -> Value:
        """Return the warp that runs as the one with an index, and set how long it may run."""
        code, block = self.code, self.block
        chosen = code.variable(index)
        whole = block.get(BlockRecord.whole_slice)
        block.set(BlockRecord.slice, whole)
        order = block.get(BlockRecord.order)
        with code.when(order.equals(RunOrder.REVERSE)):
            chosen.set(warps - 1 - index)
        with code.when(order.equals(RunOrder.RANDOM)):
            key = self.key.get()
            chosen.set(code.invoke(self.permuted, key.to(i64), index, warps))
            draw = mixed(key + chosen.get().to(u64) * _STEP + 1).to(i64) & 15
            short = code.constant(i64, 1) << draw
            is_short = (draw < _SHORT_SLICES) & (short < whole)
            block.set(BlockRecord.slice, is_short.select(short, whole))
        return chosen.get()


def block_in_order(code: FunctionCode, launch: Record, permuted: ir.Function, number: Value) -> Value:
    """Return the number in the grid of the block, or cluster, that begins as the one with a number."""
    chosen = code.variable(number)
    order, size = launch.get(LaunchRecord.order), launch.get(LaunchRecord.cluster_blocks)
    end = launch.get(LaunchRecord.end_block) // size
    with code.when(order.equals(RunOrder.REVERSE)):
        chosen.set(end - 1 - number)
    with code.when(order.equals(RunOrder.RANDOM)):
        key = mixed(launch.get(LaunchRecord.seed).to(u64) + _STEP).to(i64)
        chosen.set(code.invoke(permuted, key, number, end))
    return chosen.get()
