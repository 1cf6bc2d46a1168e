"""What is compiled into a Hopper kernel: types, tile, cluster, stages, epilogue; never a size.

Two problems whose `Build` is the same run the same machine code.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from lanewise import isa
from lanewise.errors import LanewiseError
from lanewise.formats import Format, f32
from lanewise.isa import Instruction
from lanewise.linalg.order import multiplied_formats, planes_of, wgmma_name, wgmma_widths
from lanewise.linalg.plan import Plan
from lanewise.linalg.problem import Epilogue, Problem

#: Threads of a warpgroup, rows of a wgmma, bytes of a line of the 128-byte swizzle.
WARPGROUP, ROWS, LINE = 128, 64, 128
#: Registers of a thread that loads and of one that multiplies, by the number of consumers, and those of each
#: at the beginning, which bound the accumulator of one instruction.
REGISTERS = {1: (56, 255), 2: (40, 232), 3: (32, 160)}
FIRST_REGISTERS = {1: 255, 2: 168, 3: 128}
#: Registers of a consumer beside its sums.
OTHER_REGISTERS = 28
#: Columns of the widest tile whose sums and totals fit into the registers of a warpgroup.
WIDEST_PROMOTED = 192
#: Dynamic shared memory that a block can have beside some hundred bytes of barriers.
MOST_SHARED = 232448 - 1024
#: Blocks of the largest cluster that every launch can have.
MOST_BLOCKS = 8
#: The epilogue that rounds alone.
PLAIN = Epilogue()
#: Turns of results that a consumer has in shared memory at the same time.
MOST_BUFFERS = 4
#: Bytes of a box's rows that are swizzled; those of the narrowest of several boxes; columns of the widest.
SWIZZLED = (128, 64, 32)
_LEAST_BOX, _WIDEST_BOX = 64, 256


@dataclass(frozen=True)
class Build:
    """The constants of one kernel."""

    a: Format
    b: Format
    out: Format
    sums: Format
    #: Whether A and B are contiguous along K.
    a_k_major: bool
    b_k_major: bool
    tile: tuple[int, int, int]
    stages: int
    cluster: tuple[int, int] = (1, 1)
    #: "cooperative": the consumers share a tile. "pingpong": each computes tiles of its own, by turns.
    schedule: str = "cooperative"
    consumers: int = 2
    #: Whether tensor maps have a third axis, that of the batch.
    batched: bool = False
    #: Whether the result is stored by TMA; if not, element by element with guards.
    store_by_tma: bool = True
    #: Whether rows of the result begin and end at multiples of 16 bytes, so that threads store 16 at once.
    wide_stores: bool = False
    #: Whether each warp stores its own rows, so that warps do not wait for each other nor for TMA.
    by_warps: bool = False
    #: Whether threads store their results from registers.
    direct: bool = False
    #: Whether idle warps of the loading warpgroup store the results, while the others multiply.
    aside: bool = False
    epilogue: Epilogue = PLAIN
    #: How many of a tile's last stages a warpgroup leaves until the one before it has multiplied them, so
    #: that the warpgroups that share a tile do not store at the same time.
    skew: int = 0
    #: Blocks of a cluster that sum parts of K and add them up through each other's shared memory.
    split: int = 1
    #: None, or how many rows of A and columns of B share a scale: each stage's products are scaled.
    promote: tuple[int, int] | None = None
    #: Whether sums that are promoted have two accumulators, so that products go on meanwhile.
    by_turns: bool = False
    #: Clusters that share a tile's K, through a workspace.
    groups: int = 1
    #: Whether a second kernel adds the sums of these clusters, instead of the cluster that comes last.
    gather: bool = False
    #: Whether each matrix of B is multiplied by rows of A of its own, whose limits are read by the kernel.
    grouped: bool = False
    #: Into how many bf16 numbers each f32 is split; 3 make six products, whose sums are promoted each stage.
    planes: int = 1
    #: Whether each block (or cluster) has one tile, by its place in the grid.
    single: bool = False
    #: Whether the result's columns are contiguous, so that tiles are stored transposed.
    transposed: bool = False
    #: Whether a kernel before this one copies operands: it begins early, and waits before it loads.
    after_copy: bool = False
    #: Of split f32: whether the transpose is computed, which turns the order of products of planes around,
    #: and whether A, or B, is the same for all matrices of the batch.
    turned: bool = False
    repeats_a: bool = False
    repeats_b: bool = False
    #: What L2 is told of the lines of A and B, as in a plan; empty: nothing is known of the shape yet.
    l2: str = ""

    @property
    def bm(self) -> int:
        """Rows of a block's tile."""
        return self.tile[0]

    @property
    def bn(self) -> int:
        """Columns of a block's tile."""
        return self.tile[1]

    @property
    def bk(self) -> int:
        """Elements of K in one stage."""
        return self.tile[2]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A and of B."""
        return self.a.word_bits // 8

    @property
    def consumer_rows(self) -> int:
        """Rows of a tile that one warpgroup multiplies."""
        return self.bm // self.consumers if self.schedule == "cooperative" else self.bm

    @property
    def threads(self) -> int:
        """Threads of a block: one warpgroup loads."""
        return (1 + self.consumers) * WARPGROUP

    @property
    def moves_registers(self) -> bool:
        """Whether the warpgroup that loads gives registers to the others."""
        return self.consumers > 1 and not (self.single and self.sum_registers <= 96)

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.split

    @property
    def launched_in(self) -> int | None:
        """Blocks of the clusters of a launch; None if it has none: clusters of one take the host longer."""
        return self.cluster_size if self.cluster_size > 1 else None

    @property
    def sharing(self) -> int:
        """Blocks of a cluster that load for each other."""
        return self.cluster[0] * self.cluster[1]

    @property
    def store_columns(self) -> int:
        """Columns of a tile that one block stores: all, or a share of them if the blocks split K."""
        return -(-self.bn // 8 // self.split) * 8 if self.split > 1 else self.bn

    @property
    def owners(self) -> int:
        """Blocks of those that split K that add parts up and store."""
        return self.bn // self.store_columns

    @property
    def instruction(self) -> Instruction:
        """The wgmma that multiplies 64 rows by the columns of a piece."""
        return isa.instruction(wgmma_name(self.piece, self.sums.name, self.a.name, self.b.name))

    @property
    def a_bytes(self) -> int:
        """Bytes of A in one stage."""
        return self._operand_bytes(self.bm, self.a_k_major)

    @property
    def b_bytes(self) -> int:
        """Bytes of B in one stage."""
        return self._operand_bytes(self.bn, self.b_k_major)

    def _operand_bytes(self, rows: int, k_major: bool) -> int:
        """Bytes of rows × K, or of K × rows in boxes as wide as the swizzle."""
        wide = LINE // self.element_bytes
        lines = rows if k_major else -(-rows // wide) * wide
        return lines * self.bk * self.element_bytes * self.planes

    @property
    def stage_bytes(self) -> int:
        """Bytes of A and B in one stage."""
        return self.a_bytes + self.b_bytes

    @property
    def box_columns(self) -> int:
        """Columns of one box of the result: the most of which several boxes fit; they divide the tile's."""
        if self.transposed:
            return min(ROWS, LINE * 8 // self.out.bits)
        if self.by_warps:
            wide = LINE * 8 // self.out.bits
            while self.loops and self.store_columns % wide:
                wide //= 2
            return wide
        widths = [each for each in range(self.store_columns, 0, -1) if self._can_be_box(each)]
        if self.stages_all_at_once:
            return widths[0] if widths else 1
        for buffers in (MOST_BUFFERS, 2):
            for each in widths:
                if each * self.out.bits >= _LEAST_BOX * 8 and buffers * self._box_bytes(each) <= self._room:
                    return each
        narrow = [each for each in widths if each * self.out.bits <= _LEAST_BOX * 8]
        return (narrow or widths[-1:] or [1])[0]

    def _can_be_box(self, columns: int) -> bool:
        """Return whether rows of a box may have so many columns: without conflicts of shared memory's banks.

        Rows of 128, 64, 32 and 16 bytes are swizzled; an odd multiple of 16 bytes takes no swizzle.
        """
        row, rest = divmod(columns * self.out.bits, 128)
        return (
            not rest
            and columns % 8 == self.store_columns % columns == 0
            and columns <= _WIDEST_BOX
            and (row % 2 == 1 or row * 16 in SWIZZLED)
        )

    @property
    def _room(self) -> int:
        """Bytes of shared memory that are left for the results of one consumer."""
        left = MOST_SHARED - self.stages * self.stage_bytes - self.parts_bytes
        left -= self.term_bytes + self.scale_bytes
        return left // self.consumers // 1024 * 1024

    def _box_bytes(self, columns: int) -> int:
        """Bytes of 64 rows with so many columns."""
        return ROWS * columns * self.out.bits // 8

    @property
    def stages_all_at_once(self) -> bool:
        """Whether all results of a consumer fit into the shared memory that is left."""
        return (
            self.consumer_rows == ROWS
            and not self.long_epilogue
            and self._box_bytes(self.store_columns) <= self._room
        )

    @property
    def box_rows(self) -> int:
        """Rows of one box of the result."""
        return self.store_columns if self.transposed else ROWS

    @property
    def staged(self) -> tuple[int, int]:
        """Boxes that a warpgroup writes to shared memory between two barriers, and how many such turns fit.

        All of its sums at once if there is room; else a box at a time (or some, if they are narrow), so many
        turns that TMA has read the first when it is written again.
        """
        across = ROWS if self.transposed else self.store_columns
        boxes = across // self.box_columns
        if self.transposed:
            whole = self._boxes_bytes(boxes)
            return boxes, 2 if self.consumer_rows > ROWS and 2 * whole <= self._room else 1
        if self.by_warps:
            return 1, 2 if 2 * self._boxes_bytes(1) <= self._room else 1
        if self.stages_all_at_once:
            return boxes, 1
        if not self.store_by_tma:  # threads store a turn before the next is written: long lines
            fitting = max(1, self._room // self._boxes_bytes(1))
            return max(each for each in range(1, fitting + 1) if boxes % each == 0), 1
        narrow = max(1, _LEAST_BOX * 8 // self.out.bits // self.box_columns)
        together = next(
            (
                each
                for each in range(narrow, 1, -1)
                if 2 * self._boxes_bytes(each) <= self._room and not (self.loops and boxes % each)
            ),
            1,
        )
        turns = self.consumer_rows // ROWS * -(-boxes // together)
        fitting = self._room // self._boxes_bytes(together)
        return together, max(1, min(MOST_BUFFERS, fitting, turns))

    @property
    def long_epilogue(self) -> bool:
        """Whether the epilogue takes many instructions."""
        return self.epilogue.activation is not None or self.epilogue.function is not None

    @property
    def loops(self) -> bool:
        """Whether turns are a loop: a function of the user may be of any length."""
        return self.epilogue.function is not None and not self.transposed

    def unread(self, turn: int) -> int:
        """Return how many turns before this one TMA may still read when the next begins; -1: not even it.

        Turns take the buffers in order, and begin with the first for each tile.
        """
        following = (turn + 1) % self.turns
        distance = self.buffers
        if following < self.buffers:
            last = (self.turns - 1 - following) // self.buffers * self.buffers + following
            distance = min(distance, self.turns - last + following)
        return distance - 2

    @property
    def column_terms(self) -> tuple[str, ...]:
        """What each column of a result has of its own, a factor, a bias, if it goes through shared memory."""
        if self.direct or self.gather:
            return ()
        scaled, added = self.epilogue.scale_b == "row", self.epilogue.bias == "row"
        return ("factor",) * scaled + ("bias",) * added

    @property
    def term_bytes(self) -> int:
        """Bytes of shared memory for the terms of a tile's columns, of each consumer."""
        return -(-len(self.column_terms) * self.store_columns * 4 // 16) * 16 * self.consumers

    def _boxes_bytes(self, boxes: int) -> int:
        """Bytes of so many boxes of the result, in whole patterns of the swizzle."""
        return -(-self.box_rows * boxes * self.box_columns * self.out.bits // 8 // 1024) * 1024

    @property
    def turn_boxes(self) -> int:
        """Boxes of one turn."""
        return self.staged[0]

    @property
    def buffers(self) -> int:
        """Turns that are in shared memory at the same time."""
        return self.staged[1]

    @property
    def turn_bytes(self) -> int:
        """Bytes of one turn."""
        return self._boxes_bytes(self.turn_boxes)

    @property
    def turn_columns(self) -> int:
        """Columns of a turn; the last of a tile may have fewer."""
        return self.store_columns if self.transposed else self.box_columns * self.turn_boxes

    @property
    def turns(self) -> int:
        """Turns in which a warpgroup writes its sums of a tile."""
        return self.consumer_rows // ROWS * -(-self.store_columns // self.turn_columns)

    @property
    def parts_bytes(self) -> int:
        """Bytes of the sums that blocks which split K send to this one."""
        if self.split == 1:
            return 0
        return (
            self.split * self.consumers * self.consumer_rows // ROWS * self.store_columns // 2 * WARPGROUP * 4
        )

    @property
    def scales_of_stage(self) -> tuple[int, int]:
        """How many block scales a stage has of the tile's rows and of its columns.

        It has one for each, or one for each piece that lies in one block.
        """
        rows, columns = self.promote or (0, 0)
        return (self.bm // gcd(self.bm, rows) if rows else 0, self.bn // gcd(self.bn, columns) if rows else 0)

    @property
    def scale_bytes(self) -> int:
        """Bytes of the block scales of all stages."""
        return -(-sum(self.scales_of_stage) // 4) * 16 * self.stages

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: stages, turns of results, terms of columns, block scales, parts of sums."""
        results = 0 if self.direct or self.gather else self.buffers * self.consumers * self.turn_bytes
        others = self.term_bytes + self.scale_bytes + self.parts_bytes
        return self.stages * self.stage_bytes + results + others

    @property
    def piece(self) -> int:
        """Columns that are multiplied before their sums are promoted: a tile's, or half of a wide one's.

        The sums of a whole wide tile and its totals do not fit into the registers.
        """
        return self.bn // 2 if self.promotes and self.bn > WIDEST_PROMOTED else self.bn

    @property
    def sum_registers(self) -> int:
        """Registers of a thread for sums; if they are promoted, for totals and one or two accumulators."""
        each = self.consumer_rows // ROWS * self.bn // 2 * self.sums.bits // 32
        return each + self.promotes * (1 + self.by_turns) * each * self.piece // self.bn

    @property
    def promotes(self) -> bool:
        """Whether the sums of each stage are added to others by ordinary arithmetic."""
        return self.promote is not None or self.planes > 1

    def require_possible(self) -> None:
        """Raise an error for tiles that the kernel cannot have."""
        rows, columns = self.cluster
        wide = LINE // self.element_bytes
        reason = ""
        if self.consumer_rows % ROWS or not self.consumer_rows:
            reason = f"{self.bm} rows are not a multiple of 64 for each of the warpgroups"
        elif self.consumers not in REGISTERS:
            reason = f"{self.bm} rows take {self.consumers} warpgroups; a block has {max(REGISTERS)} at most"
        elif self.bn not in (widths := wgmma_widths(self.a.name, self.b.name, self.sums.name)):
            names = ", ".join(map(str, widths))
            reason = f"wgmma of {self.a.name} and {self.b.name} takes {names} columns, not {self.bn}"
        elif self.piece not in widths:
            reason = f"sums are promoted in halves of {self.bn} columns, but wgmma takes no {self.piece}"
        elif self.bk * self.element_bytes != LINE:
            reason = f"a stage must have {wide} elements of K (128 bytes), not {self.bk}"
        elif (
            self.sum_registers + OTHER_REGISTERS > REGISTERS[self.consumers][1]
            or self.bn // 2 * self.sums.bits // 32 + OTHER_REGISTERS > FIRST_REGISTERS[self.consumers]
        ):
            reason = f"{self.consumer_rows} × {self.bn} sums do not fit into the registers of a warpgroup"
        elif (self.b_k_major and self.bn % (8 * rows)) or self.bm % (8 * columns):
            reason = f"a cluster {self.cluster} does not divide the tile into parts of eight rows"
        elif not self.b_k_major and -(-self.bn // wide) % rows:
            reason = f"the number of boxes of {wide} in {self.bn} columns is not a multiple of {rows}"
        elif not self.a_k_major and (self.bm // wide) % columns:
            reason = f"the number of boxes of {wide} in {self.bm} rows is not a multiple of {columns}"
        elif self.bn % self.store_columns or self.cluster_size > MOST_BLOCKS:
            reason = f"{self.bn} columns cannot be divided among {self.split} blocks"
        elif self.shared_bytes > MOST_SHARED:
            reason = (
                f"{self.stages} stages take {self.shared_bytes} bytes of shared memory; it has {MOST_SHARED}"
            )
        elif self.promote is not None and self.split > 1:
            reason = "sums with block scales cannot be split over K"
        elif self.skew and (
            self.consumers == 1
            or self.schedule != "cooperative"
            or self.promotes
            or self.grouped
            or not 0 < self.skew <= self.stages
        ):
            reason = f"skew={self.skew} must be 1 to {self.stages}, for two or three cooperative warpgroups"
            reason += " whose sums are not promoted, and not for grouped products"
        elif self.planes > 1 and (self.sharing > 1 or not (self.a_k_major and self.b_k_major)):
            reason = "products of split f32 need K-major operands and clusters that share no loads"
        elif self.promotes and self.groups > 1:
            reason = "sums that are promoted cannot be split over K"
        elif self.l2 and (len(self.l2) != 2 or not set(self.l2) <= set("fn-")):
            reason = f"l2={self.l2!r} must be two letters, one for A and one for B, each f, n or -"
        elif self.direct and (self.out.bits < 16 or self.grouped):
            reason = "direct stores need results of 16 or 32 bits, and no grouped products"
        elif self.gather and (self.groups == 1 or self.sums is not f32 or self.out.bits < 16):
            reason = "gather=True needs groups above 1, f32 sums and results of 16 or 32 bits"
        elif self.grouped and (
            self.split * self.groups > 1
            or self.transposed
            or self.store_by_tma
            or self.schedule == "pingpong"
        ):
            reason = (
                "grouped products need cooperative warpgroups, stores by threads and a K that is not split"
            )
        elif self.grouped and self.cluster not in ((1, 1), (1, 2), (2, 1)):
            reason = "clusters of grouped products must be 1 × 2 or 2 × 1"
        elif self.box_columns * self.out.bits % 128:
            reason = f"rows of {self.box_columns} results are not a multiple of 16 bytes"
        if reason:
            raise LanewiseError(f"tile {self.tile}, cluster {self.cluster}, {self.schedule}: {reason}")


def build_of(problem: Problem, plan: Plan) -> Build:
    """Return what a problem and its plan compile to, the problem as the kernel computes it."""
    a, b = multiplied_formats(problem)
    planes = planes_of(problem)
    pingpong = plan.schedule == "pingpong"
    consumers = 2 if pingpong or plan.tile[0] >= 2 * ROWS else 1
    if not pingpong and plan.tile[0] % (ROWS * consumers):
        consumers = max(1, plan.tile[0] // ROWS)
    size = problem.out.dtype.bits // 8
    across = problem.n if problem.out.k_major else problem.m
    wide = problem.out.tma and across * size % 16 == 0
    many = planes > 1 and problem.batch > 1
    return Build(
        a=a, b=b, out=problem.out.dtype, sums=problem.sums or f32,
        a_k_major=problem.a.k_major, b_k_major=problem.b.k_major,
        tile=plan.tile, stages=plan.stages, cluster=plan.cluster,
        schedule="pingpong" if pingpong else "cooperative", consumers=consumers,
        batched=problem.batch > 1 or planes > 1 or problem.experts > 0,
        store_by_tma=wide and not (problem.experts or plan.direct), direct=plan.direct,
        wide_stores=wide, grouped=problem.experts > 0,
        planes=planes, by_turns=plan.schedule == "by turns",
        promote=None if problem.promote is None else problem.scale_blocks,
        epilogue=problem.epilogue, skew=plan.skew, split=plan.split,
        groups=plan.groups, gather=plan.gather, l2=plan.l2, transposed=not problem.out.k_major,
        after_copy=plan.copy_a or plan.copy_b, turned=planes > 1 and problem.turned,
        repeats_a=many and not problem.a.batch_stride, repeats_b=many and not problem.b.batch_stride,
    )  # fmt: skip
