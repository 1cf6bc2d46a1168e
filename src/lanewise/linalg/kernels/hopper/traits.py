"""The constants of a Hopper kernel: what of a problem and its plan is compiled in; never a size.

Two problems whose `Traits` are equal run the same machine code. How shared memory is divided follows from
them (`shared_memory.py`), and so does whether there is such a kernel at all (`limits.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from math import gcd

from lanewise import isa
from lanewise.isa import Instruction
from lanewise.isa.multiprocessor import shared_bytes_of
from lanewise.linalg.kernels.tile_traits import TileTraits, compiled_in, has_aligned_rows
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Problem
from lanewise.linalg.sum_order import sparse_name, wgmma_name

#: Threads of a warpgroup, rows of a wgmma, bytes of a line of the 128-byte swizzle.
WARPGROUP, ROWS, LINE = 128, 64, 128
#: Bytes that are loaded at once of rows at any address.
GRANULE = 16
#: Registers of a thread that loads and of one that multiplies, by the number of consumers, and those of each
#: at the beginning, which bound the accumulator of one instruction.
REGISTERS = {1: (56, 255), 2: (40, 232), 3: (32, 160)}
FIRST_REGISTERS = {1: 255, 2: 168, 3: 128}
REGISTERS_OF_CONSUMERS = {consumers: most for consumers, (_, most) in REGISTERS.items()}
#: Registers of a consumer beside its sums.
OTHER_REGISTERS = 28
#: Columns of the widest instruction, and of the widest tile whose sums and totals fit into the registers of a
#: warpgroup.
WIDEST = 256
WIDEST_PROMOTED = 192
#: Blocks of the largest cluster that every launch can have.
LARGEST_CLUSTER = 8
#: Dynamic shared memory that a block can have beside some hundred bytes of barriers.
MOST_SHARED = shared_bytes_of("sm_90a") - 1024
#: Registers of 64 rows of a stage's A that goes through registers, by its planes: three of 64 × 64 bf16, or
#: one of 64 × 32 tf32.
FRAGMENT_REGISTERS = {3: 48, 1: 16}
#: Registers of A that one instruction reads.
INSTRUCTION_REGISTERS = 4
#: Elements of a row of a sparse A of which one 4-bit code of the metadata selects two.
SPARSE_GROUP = 4


class Store(Enum):
    """Who stores the results of a tile."""

    #: TMA, from shared memory.
    TMA = "TMA"
    #: The consumers' threads, from shared memory.
    THREADS = "threads"
    #: Each warp of a consumer its own rows, from shared memory: warps do not wait for each other.
    WARPS = "warps"
    #: A thread of a consumer each row, by a bulk copy from shared memory: the sectors that its tile owns.
    ROWS = "rows"
    #: The consumers' threads, from their registers.
    REGISTERS = "registers"


@dataclass(frozen=True)
class Traits(TileTraits):
    """The constants of one kernel: `traits_of` makes them, `launches.for_shape` adds what sizes decide."""

    store: Store = Store.TMA
    #: Whether rows of the result begin and end at multiples of 16 bytes, so that threads store 16 at once.
    aligned_rows: bool = False
    #: Whether each block (or cluster) has one tile, by its place in the grid; else blocks are persistent.
    one_tile: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A and of B."""
        return self.a.word_bits // 8

    @property
    def pingpong(self) -> bool:
        """Whether each consumer computes tiles of its own; else consumers share a tile ("cooperative")."""
        return self.plan.schedule == "pingpong"

    @property
    def two_accumulators(self) -> bool:
        """Whether promoted sums have two accumulators, so that products go on while one is promoted."""
        return self.plan.schedule == "by turns"

    @property
    def after_copy(self) -> bool:
        """Whether a kernel before this one copies operands: it begins early, and waits before it loads."""
        return self.plan.copy_a or self.plan.copy_b

    @property
    def splits_a(self) -> bool:
        """Whether A, of f32, is split into bf16 in registers; other warps than the producer's load it."""
        return self.plan.a_in_registers and self.planes > 1

    @property
    def shifts_a(self) -> bool:
        """Whether A, of 8 or 16 bits, is loaded as it lies at any address, and shifted in registers."""
        return self.plan.a_in_registers and self.a.word_bits < 32 and self.planes == 1

    @property
    def transposes_a(self) -> bool:
        """Whether A, of tf32, lies along M, and goes through registers; the producer loads it."""
        return self.plan.a_in_registers and not (self.splits_a or self.shifts_a)

    @property
    def loads_a_apart(self) -> bool:
        """Whether other warps than the producer's load A."""
        return self.splits_a or self.shifts_a

    @property
    def threads_load_a(self) -> bool:
        """Whether idle warps load A, as its rows begin at no multiples of 16 bytes."""
        return self.loads_a_apart and not self.problem.a.tma

    # who computes what --------------------------------------------------------------------------------------

    @cached_property
    def consumers(self) -> int:
        """How many warpgroups of a block multiply."""
        return 2 if self.pingpong else consumers_of(self.bm)

    @property
    def consumer_rows(self) -> int:
        """Rows of a tile that one warpgroup multiplies."""
        return self.bm if self.pingpong else self.bm // self.consumers

    @property
    def threads(self) -> int:
        """Threads of a block: one warpgroup loads."""
        return (1 + self.consumers) * WARPGROUP

    @property
    def moves_registers(self) -> bool:
        """Whether the warpgroup that loads gives registers to the others; threads that load need theirs."""
        if self.threads_load_a:
            return False
        return self.consumers > 1 and not (self.one_tile and self.sum_registers <= 96)

    @property
    def most_registers(self) -> int:
        """Registers of a thread that multiplies."""
        return (FIRST_REGISTERS if self.threads_load_a else REGISTERS_OF_CONSUMERS)[self.consumers]

    @property
    def multicasting(self) -> int:
        """Blocks of a cluster that load for each other."""
        return self.plan.cluster[0] * self.plan.cluster[1]

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.multicasting * self.plan.split

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return how many tiles of a cluster there are along M and along N."""
        across, along = self.plan.cluster
        return -(-m // (self.bm * across)), self.tiles_across(n, along)

    @property
    def store_columns(self) -> int:
        """Columns of a tile that one block stores: all, or a share of them if the blocks split K."""
        split = self.plan.split
        return -(-self.bn // 8 // split) * 8 if split > 1 else self.bn

    @property
    def owners(self) -> int:
        """Blocks of those that split K that add parts up and store."""
        return self.bn // self.store_columns

    # sums ---------------------------------------------------------------------------------------------------

    @cached_property
    def instruction(self) -> Instruction:
        """The wgmma that multiplies 64 rows by the columns of a piece."""
        name = sparse_name if self.problem.sparse else wgmma_name
        return isa.instruction(name(self.piece, self.problem.sums.name, self.a.name, self.b.name))

    @property
    def scales_of_stage(self) -> tuple[int, int]:
        """How many block scales a stage has of the tile's rows and of its columns.

        It has one for each, or one for each piece that lies in one block.
        """
        rows, columns = self.problem.scale_blocks
        return (self.bm // gcd(self.bm, rows) if rows else 0, self.bn // gcd(self.bn, columns) if rows else 0)

    @property
    def piece(self) -> int:
        """Columns of one instruction: a tile's, or half of a wide one's.

        An instruction has at most 256 columns. Sums that are promoted have halves of fewer columns: those of
        a whole wide tile and its totals do not fit into the registers.
        """
        widest = WIDEST_PROMOTED if self.promotes else WIDEST
        return self.bn // 2 if self.bn > widest else self.bn

    @property
    def accumulators(self) -> int:
        """Accumulators of a consumer, each 64 rows by the columns of an instruction, row by row.

        The halves of a promoted tile take turns in one.
        """
        return self.consumer_rows // ROWS * (1 if self.promotes else self.bn // self.piece)

    @property
    def sum_registers(self) -> int:
        """Registers of a thread for sums; if they are promoted, for totals and one or two accumulators."""
        of_accumulator = self.consumer_rows // ROWS * self.bn // 2 * self.problem.sums.bits // 32
        fragments = self.consumer_rows // ROWS * FRAGMENT_REGISTERS[self.planes]
        return (
            self.plan.a_in_registers * fragments
            + of_accumulator
            + self.promotes * (1 + self.two_accumulators) * of_accumulator * self.piece // self.bn
        )

    @property
    def stage_parts(self) -> int:
        """In how many parts the products of a stage are issued, one after the other along K.

        Registers of A are loaded again when the products that read them are complete. Of two parts, one is
        loaded while the products of the other run; those of sums that are promoted are complete before.
        """
        return 2 if self.plan.a_in_registers and not self.promotes else 1

    @property
    def releases_by_warps(self) -> bool:
        """Whether each warp releases a stage: scales, metadata of a sparse A, and an A that goes through
        registers are read by each warp."""
        return self.scaled_by_blocks or self.problem.sparse or self.plan.a_in_registers

    @property
    def releases(self) -> int:
        """How many arrivals of one block release a stage."""
        arrivals = WARPGROUP // 32 if self.releases_by_warps else 1
        return arrivals if self.pingpong else arrivals * self.consumers

    # results ------------------------------------------------------------------------------------------------

    @property
    def loops(self) -> bool:
        """Whether subtiles of a tile's results are a loop: a function of the user may be of any length."""
        return self.problem.epilogue.function is not None and not self.transposed

    @property
    def column_terms(self) -> tuple[str, ...]:
        """What each column of a result has of its own, a factor, a bias, if it goes through shared memory."""
        if self.store is Store.REGISTERS or self.plan.gather:
            return ()
        epilogue = self.problem.epilogue
        return ("factor",) * (epilogue.scale_b == "row") + ("bias",) * (epilogue.bias == "row")

    @property
    def metadata_words(self) -> int:
        """Words of metadata that each thread has for 64 rows of a stage of a sparse A."""
        return metadata_words(self.element_bytes)


def consumers_of(rows: int) -> int:
    """Return the warpgroups that share a tile of so many rows.

    >>> [consumers_of(rows) for rows in (64, 128, 192, 256)]
    [1, 2, 3, 2]
    """
    if rows < 2 * ROWS:
        return 1
    return 2 if rows % (2 * ROWS) == 0 else max(1, rows // ROWS)


def metadata_words(element_bytes: int) -> int:
    """Return the words of metadata that a thread has for 64 rows of a stage: 64 · 128 bytes of a dense A.

    >>> metadata_words(2), metadata_words(1)
    (1, 2)
    """
    return LINE // element_bytes // SPARSE_GROUP * 4 * ROWS // 32 // WARPGROUP


def traits_of(problem: Problem, plan: Plan) -> Traits:
    """Return what a problem, oriented as the kernel computes it, and its plan compile to."""
    aligned = has_aligned_rows(problem)
    store = Store.TMA if aligned and not problem.experts else Store.THREADS
    if problem.out.k_major and not aligned:
        store = Store.WARPS
    if plan.whole_sectors:
        store = Store.ROWS
    schedule = plan.schedule if plan.schedule in ("pingpong", "by turns") else "cooperative"
    compiled = replace(
        plan, schedule=schedule, group=8, swap=False, copy_a=plan.copy_a or plan.copy_b, copy_b=False, why=""
    )
    return Traits(
        compiled_in(problem, plan.a_in_registers),
        compiled,
        Store.REGISTERS if plan.direct else store,
        aligned,
    )
