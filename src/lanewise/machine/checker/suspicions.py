"""What compiled code of the checker reports to Python: one record for each kind of suspicion.

A record says what kind of finding the suspicion becomes, how severe it is, what it is about, what the four
numbers mean that compiled code reports with it, what is wrong in a sentence, and what mends it. The sentences
name numbers and facts in braces; `suspicion_facts.py` puts words in their place, `mends.py` those of mends.
"""

from __future__ import annotations

import sys
from enum import Enum, IntEnum, auto

from lanewise.isa.archs import arch_number
from lanewise.machine.runtime.fault_report import KEEP_ALIVE


class Subject(Enum):
    """What a suspicion is about, which decides what a finding names beside the instruction."""

    #: Bytes of memory that one instruction accesses; the number `address` says which.
    ACCESS = auto()
    #: The same, and another access to these bytes: `epoch` and `who` say which.
    TWO_ACCESSES = auto()
    #: A register; `other` is the site of another instruction that uses it.
    REGISTER = auto()
    #: Threads: their masks, counts and barriers. The finding has no address.
    THREADS = auto()
    #: A block barrier that threads wait at: its instruction is found by a program counter, `place`.
    BLOCK_BARRIER = auto()
    #: It is not reported to the user: the launch is repeated.
    CHECKER = auto()


ERROR, ADVICE = "error", "advice"
#: Suspicions that are errors on earlier archs only. CUTLASS's epilogue for sm_90 waits until TMA has read the
#: last tile; that for sm_100 exits without it (store_tail of sm100_epilogue_tma_warpspecialized.hpp). Its
#: attention for sm_100 (example 77) gives each warp of a warpgroup a number of registers of its own.
_ADVICE_FROM = {"EXITED_COPYING": 100, "ENDED_SENDING": 100, "REGISTERS_OF_SOME_WARPS": 100}
#: What the four numbers of most suspicions are.
_ACCESS = "lane address _ _"
_BOTH = "lane address epoch who"
#: The sentences about fences between the proxies end alike.
_PROXY = "{access}, through the asynchronous proxy: "
_EACH_THREAD = "in each thread that {did}, before the threads synchronise"
_STAY_INSIDE = "bound the index of {here}, or make the memory larger"
#: When an operation of the pipe of tcgen05 is complete.
TENSOR_COMPLETE = (
    "it is complete when an mbarrier is that a later tcgen05.commit of its thread names, and this thread has "
    "neither waited for that phase nor synchronised with a thread that has"
)
#: What is said of an mbarrier that is overwritten.
STILL_VALID = "which was initialised and is still valid"
#: Why a missing fence of tcgen05 is no error.
_FENCES_LEFT_OUT = (
    "The PTX ISA asks for it (9.7.16.6.4, canonical synchronization patterns of tcgen05); Triton and CUTLASS "
    "leave such fences out"
)


class Suspicion(IntEnum):
    """What compiled code reports to Python, which decides whether it is a finding."""

    kind: str
    severity: str
    subject: Subject
    #: The names of the numbers that compiled code reports: after the kind, the warp and the row.
    numbers: tuple[str, ...]
    message: str
    mend: str

    def __new__(
        cls, kind: str, severity: str, subject: Subject, numbers: str, message: str = "", mend: str = ""
    ) -> Suspicion:
        """Give each suspicion the next number, from 0 on."""
        number = len(cls.__members__)
        made = int.__new__(cls, number)
        made._value_ = number
        made.kind, made.severity, made.subject = kind, severity, subject
        made.numbers, made.message, made.mend = tuple(numbers.split()), message, mend
        return made

    # races --------------------------------------------------------------------------------------------------

    AFTER_WRITE = (
        "race", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{access}: the same bytes were written before, and no barrier or other synchronisation orders the "
        "two accesses",
        "{order}",
    )  # fmt: skip
    AFTER_READ = (
        "race", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{access}: the same bytes were read before, and no barrier or other synchronisation orders the two "
        "accesses",
        "{order}",
    )  # fmt: skip
    # Ordered, but only because lanes met, because a read without a fence saw a flag, or because a strong read
    # observed a write that its thread has perhaps not waited for.
    WEAKLY_AFTER_WRITE = (
        "race", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "{access}: the same bytes were written before, and by the PTX memory model {weak_reason}",
        "{weak_order}",
    )  # fmt: skip
    WEAKLY_AFTER_READ = (
        "race", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "{access}: the same bytes were read before, and by the PTX memory model {weak_reason}",
        "{weak_order}",
    )  # fmt: skip
    SAME_ADDRESS = (
        "race", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{space} write: two lanes write different values to the same address in one instruction, and which "
        "value stays is not defined",
        "let one lane write, give each lane an element of its own, or add with {atomic}",
    )  # fmt: skip
    #: Memory that is read by ld.global.nc is written in the same launch.
    NOT_CONSTANT = (
        "race", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{access}: the kernel reads this memory with ld.global.nc (const __restrict__, __ldg), so it must "
        "not be written while the kernel runs",
        "read it with a plain load (no __restrict__, no __ldg), or write to another array",
    )  # fmt: skip

    # values that nothing wrote ------------------------------------------------------------------------------

    UNINITIALISED = (
        "uninitialised", ERROR, Subject.ACCESS, _ACCESS,
        "{space} read of memory that nothing was written to",
        "{initialise}",
    )  # fmt: skip
    NO_VALUE = (
        "uninitialised", ERROR, Subject.REGISTER, "lane register undelivered computed",
        "the register {register_name} has no value{folded}{needed_by}",
        "{give_value}",
    )  # fmt: skip
    HEAP_UNINITIALISED = (
        "uninitialised", ERROR, Subject.ACCESS, _ACCESS,
        "{access} in heap memory that nothing was written to{of_heap_block}",
        "write the memory before it is read: malloc does not clear it",
    )  # fmt: skip

    #: Memory of a virtual GPU; `unwritten` has a bit for each byte of the access that nothing was written to.
    NEVER_WRITTEN = (
        "uninitialised", ERROR, Subject.ACCESS, "lane address unwritten _",
        "{access} of memory that no copy, no memset and no kernel has written since it was allocated",
        "write the memory before the launch that reads it: a copy, cudaMemset, or torch.zeros in place of "
        "torch.empty",
    )  # fmt: skip

    # asynchronous operations that may not be complete -------------------------------------------------------

    UNFINISHED_COPY = (
        "asynchronous copy", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{access}: {unfinished}",
        "{wait_for_it}",
    )  # fmt: skip
    #: An asynchronous operation may still be reading what is written.
    UNFINISHED_READ = (
        "asynchronous copy", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{access}: an asynchronous operation may still be reading these bytes",
        "{wait_for_read}",
    )  # fmt: skip
    #: A thread exits while its bulk copies may still be reading shared memory.
    EXITED_COPYING = (
        "asynchronous copy", ERROR, Subject.THREADS, "lane _ _ _",
        "the thread exits while its bulk copies may still be reading shared memory",
        "{bulk_wait_read} before the thread exits, in the thread that committed the copies",
    )  # fmt: skip
    #: A block ends while a bulk copy into its shared memory was never waited for.
    ENDED_COPYING = (
        "asynchronous copy", ERROR, Subject.ACCESS, _ACCESS,
        "the block ends, and no thread has waited for this copy into shared memory (mbarrier: {place})",
        "wait for the phase of its mbarrier before the end of the kernel",
    )  # fmt: skip
    #: A block ends while a copy out of its shared memory into another block's may still be reading.
    ENDED_SENDING = (
        "asynchronous copy", ERROR, Subject.ACCESS, _ACCESS,
        "the block may end while this copy still reads its shared memory: none of its threads waits for "
        "anything that comes after the phase of the mbarrier ({place} in the block of rank {rank}) that "
        "counts the bytes",
        "after the other block has waited for the copy, let both blocks execute {cluster_barrier}, or let a "
        "thread of this block wait for an mbarrier at which the other one then arrives",
    )  # fmt: skip
    #: A block ends while a tcgen05.commit has not arrived, as in CUTLASS's attention (example 77).
    ENDED_COMMITTING = (
        "asynchronous copy", ADVICE, Subject.ACCESS, _ACCESS,
        "the block ends, and no thread has waited for this tcgen05.commit (mbarrier: {place}), which may "
        "arrive when the shared memory is another block's",
        "wait for the phase of its mbarrier before the end of the kernel, or leave the commit out",
    )  # fmt: skip
    #: An mbarrier is invalidated that an asynchronous operation has not arrived at, or told of its bytes.
    BARRIER_INVALIDATED = (
        "asynchronous copy", ERROR, Subject.ACCESS, "lane address other_row _",
        "mbarrier.inval ends the mbarrier at {place}, which an asynchronous operation may still tell that it "
        "is complete: this thread has neither waited for that phase nor synchronised with a thread that has",
        "wait for the phase of the mbarrier {after_other} and before {here}",
    )  # fmt: skip

    # the generic and the asynchronous proxy -----------------------------------------------------------------

    # What plain stores or cp.async wrote, and an asynchronous operation accesses: without a fence between the
    # proxies, or with one, but not in the thread that wrote.
    UNFENCED = (
        "proxy", ERROR, Subject.TWO_ACCESSES, _BOTH,
        _PROXY + "{writer} wrote these bytes, and is not visible to that proxy",
        "{proxy_fence} {after_writer}, " + _EACH_THREAD.format(did="wrote"),
    )  # fmt: skip
    WEAKLY_FENCED = (
        "proxy", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        _PROXY + "{writer} wrote these bytes, and the thread that wrote them executed no "
        "fence.proxy.async in time",
        "{proxy_fence} {after_writer}, " + _EACH_THREAD.format(did="wrote"),
    )  # fmt: skip
    #: What st.async wrote, which is complete, and an operation of the asynchronous proxy reads.
    STORED_UNFENCED = (
        "proxy", ERROR, Subject.TWO_ACCESSES, _BOTH,
        _PROXY + "st.async or red.async wrote these bytes, by the generic proxy, and no fence has made them "
        "visible to the asynchronous one",
        "{proxy_fence} before {here}, after the wait for the mbarrier that counts the bytes",
    )  # fmt: skip
    #: What plain loads read, and an asynchronous operation writes: no fence between the proxies.
    READ_UNFENCED = (
        "proxy", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        _PROXY + "plain loads read these bytes before, and a barrier alone does not order the two proxies",
        "{proxy_fence} {after_other}, " + _EACH_THREAD.format(did="read"),
    )  # fmt: skip
    #: A tensor map is used that was changed, without a fence that acquires it.
    MAP_UNFENCED = (
        "proxy", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "the tensor map was changed in this launch, and no thread of the block has executed "
        "fence.proxy.tensormap::generic.acquire since",
        "`fence.proxy.tensormap::generic.acquire` before {here}",
    )  # fmt: skip
    #: The same without a fence that releases it.
    MAP_UNRELEASED = (
        "proxy", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "the tensor map was changed in this launch, and no thread has executed "
        "fence.proxy.tensormap::generic.release or tensormap.cp_fenceproxy since, which releases it",
        "`fence.proxy.tensormap::generic.release.gpu` {after_other}, before the threads synchronise, or "
        "`tensormap.cp_fenceproxy`, which copies the map and releases it",
    )  # fmt: skip

    # wgmma --------------------------------------------------------------------------------------------------

    # Registers of wgmma: touched while it is in flight; written without a fence after it; no fence at all.
    REGISTER_IN_FLIGHT = (
        "wgmma", ERROR, Subject.REGISTER, "lane register other _",
        "the register {register_name} belongs to a wgmma that may not be complete",
        "{wgmma_commit} and {wgmma_wait} before {here}",
    )  # fmt: skip
    REGISTER_UNFENCED = (
        "wgmma", ERROR, Subject.REGISTER, "lane register other _",
        "the register {register_name} was written after the last wgmma.fence",
        "{wgmma_fence} {after_other}, before the wgmma{names_registers}",
    )  # fmt: skip
    NO_WGMMA_FENCE = (
        "wgmma", ERROR, Subject.THREADS, "lane _ _ _",
        "the warp has executed no wgmma.fence before its first wgmma",
        "{wgmma_fence} before {here}, in all four warps",
    )  # fmt: skip
    #: wgmma reads with another swizzle than a tensor copy wrote with.
    SWIZZLE_DIFFERS = (
        "wgmma", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "the matrix descriptor reads {place} with another swizzle than a tensor copy wrote it with",
        "give the tensor map and the matrix descriptor the same swizzle",
    )  # fmt: skip
    # A product takes elements of 16 bits for those of the other format; rows of a matrix lie in one another;
    # a matrix by columns begins within a line of its swizzle, and goes on in the next one.
    FORMAT_DIFFERS = (
        "wgmma", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "{instruction} takes the elements at {place} for another format than a tensor copy wrote them in: "
        "one of the two is f16, and the other one bf16",
        "give the tensor map and the product the same format",
    )  # fmt: skip
    MATRIX_ROWS_OVERLAP = (
        "wgmma", ADVICE, Subject.ACCESS, "lane address stride size",
        "the matrix descriptor lets groups of eight rows overlap: its stride byte offset is {stride}, and "
        "eight rows of its swizzle take {size} bytes",
        "give it a stride byte offset of {size}",
    )  # fmt: skip
    MATRIX_LINE_LEFT = (
        "wgmma", ADVICE, Subject.ACCESS, "lane address inside line",
        "the matrix is read by columns (MN-major) and begins {inside} bytes within a line of its swizzle, "
        "which has {line} bytes: its last elements are those of the next line",
        "begin it at a multiple of {line} bytes, or read it K-major if K is what lies side by side",
    )  # fmt: skip

    # tensor memory ------------------------------------------------------------------------------------------

    # A warp touches what an operation of the pipe may still be writing, or overwrites what it may be reading.
    TENSOR_UNFINISHED = (
        "tensor memory", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{tensor_access}: {tensor_operation} may still be writing there; " + TENSOR_COMPLETE,
        "{tensor_wait}",
    )  # fmt: skip
    TENSOR_IN_USE = (
        "tensor memory", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{tensor_access}: {tensor_operation} may still be reading there; " + TENSOR_COMPLETE,
        "{tensor_wait}",
    )  # fmt: skip
    #: Only some lanes of a warp have waited for the pipe, and the lanes have not synchronised since.
    TENSOR_SEEN_BY_SOME = (
        "tensor memory", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "{tensor_access} that {tensor_operation} wrote, and only some lanes of the warp have waited for the "
        "mbarrier that tells of its end. By the PTX memory model nothing orders the others after it: the "
        "lanes only meet here, and do not synchronise",
        "{warp_barrier} after the wait and before {here}, or let all lanes wait",
    )  # fmt: skip
    #: Stores and loads of a warp that it has not waited for.
    TENSOR_STORE_UNAWAITED = (
        "tensor memory", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{tensor_access}: a tcgen05.st to this place may not be complete, because its warp has executed no "
        "tcgen05.wait::st after it and before the threads synchronised",
        "{tensor_wait_st} {after_other}, in the warp that stores, before the threads synchronise",
    )  # fmt: skip
    TENSOR_LOAD_UNAWAITED = (
        "tensor memory", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{tensor_access}: a tcgen05.ld may still be reading there, because its warp has executed no "
        "tcgen05.wait::ld after it and before the threads synchronised",
        "{tensor_wait_ld} {after_other}, in the warp that loads, before the threads synchronise",
    )  # fmt: skip
    #: Threads that are not synchronised touch the same cells.
    TENSOR_UNORDERED = (
        "tensor memory", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "{tensor_access}: another thread has accessed this place by {tensor_operation}, and no mbarrier or "
        "barrier orders the two; only tcgen05.mma, cp and shift of one thread stay in order by themselves",
        "{tensor_order}",
    )  # fmt: skip
    # Threads that are synchronised touch the same cells, without the fences that the PTX ISA asks for.
    TENSOR_UNFENCED_BEFORE = (
        "fence", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "tcgen05.fence::before_thread_sync is missing: {tensor_access} after {tensor_operation} of another "
        "thread, which has executed no such fence before the barrier or mbarrier that orders the two. "
        + _FENCES_LEFT_OUT,
        "{tensor_before} {after_other}, before the threads synchronise",
    )  # fmt: skip
    TENSOR_UNFENCED_AFTER = (
        "fence", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "tcgen05.fence::after_thread_sync is missing: {tensor_access} after {tensor_operation}, and no such "
        "fence stands between this instruction and the barrier or mbarrier that orders the two. "
        + _FENCES_LEFT_OUT,
        "{tensor_after} before {here}, after the barrier or the wait for the mbarrier",
    )  # fmt: skip
    TENSOR_UNWRITTEN = (
        "uninitialised", ERROR, Subject.ACCESS, "lane address operand _",
        "{tensor_read}: nothing was written there since the columns were allocated",
        "{tensor_initialise}",
    )  # fmt: skip
    TENSOR_HOLLOW = (
        "uninitialised", ERROR, Subject.ACCESS, "lane address operand _",
        "{tensor_read}: a product wrote there whose A had no value in these lanes",
        "write all rows of A that are used before the product ({tensor_stores})",
    )  # fmt: skip
    # Operands of one product overlap; a product reads another one's sums as something else; results that
    # nobody has read are overwritten.
    TENSOR_OVERLAP = (
        "tensor memory", ERROR, Subject.ACCESS, "lane address operand _",
        "tcgen05.mma writes its sums to columns of tensor memory from which it reads {tensor_operand}: which "
        "of the two comes first is not defined",
        "give D and {tensor_operand} columns of their own",
    )  # fmt: skip
    TENSOR_SUMS_READ = (
        "tensor memory", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "tcgen05.mma reads an operand (A, scale factors or metadata) from columns of tensor memory that "
        "{tensor_operation} has written as its sums, which lie there in another layout",
        "give the sums and the operand columns of their own, or load the sums and store the operand in its "
        "own layout ({tensor_stores}) before {here}",
    )  # fmt: skip
    TENSOR_LOST = (
        "tensor memory", ADVICE, Subject.TWO_ACCESSES, _BOTH,
        "{instruction} overwrites what {tensor_operation} has written to tensor memory, and nobody "
        "has read that: their columns overlap, or a load is missing",
        "give both columns of their own, or read the result {after_other} and before {here}",
    )  # fmt: skip
    TENSOR_PARTLY_UNWRITTEN = (
        "uninitialised", ADVICE, Subject.ACCESS, "lane address operand _",
        "{tensor_access}: nothing was written there since the columns were allocated, but some of the other "
        "columns of the instruction have values",
        "{tensor_initialise}, or load fewer columns",
    )  # fmt: skip
    #: The PTX ISA lets one warp of a block allocate and free; GPUs are known to let any warp free.
    TENSOR_FREED_ELSEWHERE = (
        "tensor memory", ADVICE, Subject.THREADS, "lane _ _ _",
        "tcgen05.dealloc frees columns in a warp that has allocated none; the PTX ISA (9.7.16.7.1) asks for "
        "one warp of a block that allocates and frees, but known kernels for a B200 free in another one",
        "{tensor_dealloc} in the warp that executes tcgen05.alloc",
    )  # fmt: skip
    TENSOR_GROWING = (
        "tensor memory", ADVICE, Subject.THREADS, "lane columns before _",
        "tcgen05.alloc asks for {columns} columns after an allocation of {before}; by the PTX ISA "
        "(9.7.16.7.1) the number of columns should not increase from one allocation of a block to the next",
        "allocate the largest number of columns first",
    )  # fmt: skip
    TENSOR_NEVER_FREED = (
        "tensor memory", ERROR, Subject.THREADS, "lane units _ _",
        "the block ends with {tensor_columns} columns of tensor memory that were never freed",
        "{tensor_dealloc} before the kernel ends, {by_whom}, after all threads have used the columns",
    )  # fmt: skip

    # mbarriers ----------------------------------------------------------------------------------------------

    #: A live mbarrier is overwritten, or initialised again.
    BARRIER_OVERWRITTEN = (
        "mbarrier", ERROR, Subject.ACCESS, "lane address use _",
        "this {uses} the mbarrier at {place}, " + STILL_VALID,
        "execute mbarrier.inval before its memory is used for anything else, or give both their own memory",
    )  # fmt: skip
    #: Bytes that an mbarrier was told to expect have not come when its block ends, or more have.
    BYTES_LEFT_OVER = (
        "mbarrier", ERROR, Subject.ACCESS, "lane address bytes _",
        "{bytes_left}",
        "{expect_bytes}",
    )  # fmt: skip
    #: An operation tells another block's mbarrier of bytes, or arrives there, and may come before its init.
    BARRIER_INIT_UNORDERED = (
        "race", ERROR, Subject.TWO_ACCESSES, _BOTH,
        "this operation completes at the mbarrier at {place} of another block, and no barrier of the cluster "
        "or other synchronisation orders it after mbarrier.init",
        "{cluster_barrier} {after_other} and before {here}, where all threads of the cluster come by",
    )  # fmt: skip
    #: The asynchronous proxy uses an mbarrier whose initialisation no fence has made visible to it.
    BARRIER_UNFENCED = (
        "mbarrier", ADVICE, Subject.ACCESS, "lane address _ _",
        "a bulk copy uses the mbarrier at {place}, whose initialisation is not known to be visible to the "
        "asynchronous proxy",
        "{init_fence} after mbarrier.init, in the thread that initialises it",
    )  # fmt: skip
    # Lanes of one instruction arrive more often at an mbarrier than its phase expects; a thread arrives that
    # does not know whether the phase before is complete.
    ARRIVALS_BEYOND_COUNT = (
        "mbarrier", ERROR, Subject.ACCESS, "lane address expected _",
        "the lanes of one instruction arrive at the mbarrier at {place} more often than the {expected} times "
        "that its phase still expects",
        "initialise it with the number of threads that arrive, or {fewer_arrivals}",
    )  # fmt: skip
    ARRIVAL_UNORDERED = (
        "mbarrier", ERROR, Subject.ACCESS, "lane address expected _",
        "a thread arrives at the mbarrier at {place} and cannot know whether the phase before is complete: "
        "more threads arrive than the {expected} that it was initialised for, or a wait is missing",
        "initialise it with the number of threads that arrive, or wait for the phase before {here}",
    )  # fmt: skip

    # clusters -----------------------------------------------------------------------------------------------

    #: A second arrival at the barrier of a cluster with no wait between.
    CLUSTER_ARRIVED_TWICE = (
        "barrier", ERROR, Subject.THREADS, "lane _ _ _",
        "the thread arrives at the barrier of the cluster a second time before all threads have arrived once",
        "{cluster_wait} before {here}",
    )  # fmt: skip
    # A block accesses the memory of another one that may have exited by then; the same, but the other block
    # has waited at the cluster's barrier, where this one's arrival was relaxed.
    TARGET_MAY_EXIT = (
        "cluster", ERROR, Subject.ACCESS, _ACCESS,
        "{access} in the block of rank {rank} of the cluster, which may have exited by then: none of its "
        "threads waits for anything that comes after this access",
        KEEP_ALIVE,
    )  # fmt: skip
    TARGET_WEAKLY_KEPT = (
        "cluster", ADVICE, Subject.ACCESS, _ACCESS,
        "{access} in the block of rank {rank} of the cluster, which may have exited by then: the arrival at "
        "the cluster's barrier after it is relaxed, and does not wait for this access",
        "execute barrier.cluster.arrive without .relaxed after {here}",
    )  # fmt: skip

    #: Cluster launch control is asked again after it has answered that no block is left.
    ASKED_AGAIN = (
        "launch control", ERROR, Subject.THREADS, "lane _ _ other_row",
        "a block asks for another block to take over after it has learnt that there is none left: what "
        "clusterlaunchcontrol.try_cancel does then is not defined",
        "ask again only where the last answer named a block ({is_canceled})",
    )  # fmt: skip

    # setmaxnreg: by some lanes of a warp only; by warps of a warpgroup that differ; more than the block has;
    # nothing is taken or given; ignored, since no bound is known.
    REGISTERS_BY_SOME_LANES = (
        "setmaxnreg", ERROR, Subject.THREADS, "lane lanes _ other_row",
        "only some lanes of the warp execute setmaxnreg, without {lanes_named}",
        "let all threads of the warpgroup execute it together",
    )  # fmt: skip
    REGISTERS_OF_SOME_WARPS = (
        "setmaxnreg", ERROR, Subject.THREADS, "lane _ _ other_row",
        "some warps of the warpgroup execute this setmaxnreg, while others ask for another number or for "
        "none",
        "let all four warps execute the same ones",
    )  # fmt: skip
    REGISTERS_BEYOND_POOL = (
        "setmaxnreg", ERROR, Subject.THREADS, "lane wanted held other_row",
        "the warps of the block ask for {wanted} registers in all, and the block began with {held}: on a GPU "
        "setmaxnreg.inc waits for ever",
        "let other warpgroups give up more (setmaxnreg.dec), or ask for fewer here",
    )  # fmt: skip
    REGISTERS_NEEDLESS = (
        "setmaxnreg", ADVICE, Subject.THREADS, "lane wanted held other_row",
        "setmaxnreg.{takes_or_gives} no registers: it asks for {wanted} for each thread, and each has {held}",
        "ask for another number, or leave it out",
    )  # fmt: skip
    REGISTERS_UNBOUNDED = (
        "setmaxnreg", ADVICE, Subject.THREADS, "lane _ _ other_row",
        "ptxas ignores setmaxnreg here, because it cannot tell how many registers a thread begins with",
        "give the kernel .maxnreg, or both numbers of __launch_bounds__(threads, blocks)",
    )  # fmt: skip

    # bounds -------------------------------------------------------------------------------------------------

    # An access outside of what its address was computed from; an asynchronous operation that begins in a
    # variable of shared memory and ends outside of it.
    OUTSIDE = (
        "out of bounds", ERROR, Subject.ACCESS, "lane address low high",
        "{access} outside of {home}, from which its address was computed",
        _STAY_INSIDE,
    )  # fmt: skip
    RUNS_OUT = (
        "out of bounds", ERROR, Subject.ACCESS, "lane address low high",
        "{access} beyond the end of {home}, in which it begins",
        _STAY_INSIDE,
    )  # fmt: skip
    IGNORED_ADDRESS = (
        "out of bounds", ERROR, Subject.ACCESS, _ACCESS,
        "the {space} row address of this lane is out of bounds: on sm_75 all 32 lanes have to give valid "
        "addresses, also those whose address is not used",
        "give the lanes whose address is not used that of a valid row, such as lane % 8",
    )  # fmt: skip
    IGNORED_ALIGNMENT = (
        "misaligned", ERROR, Subject.ACCESS, _ACCESS,
        "the {space} row address of this lane is not a multiple of 16: on sm_75 all 32 lanes have to give "
        "valid addresses, also those whose address is not used",
        "give the lanes whose address is not used that of a valid row, such as lane % 8",
    )  # fmt: skip
    HEAP_OUTSIDE = (
        "out of bounds", ERROR, Subject.ACCESS, _ACCESS,
        "{access} in heap memory that malloc did not return{past_heap_block}",
        "allocate more, or bound the index",
    )  # fmt: skip
    HEAP_FREED = (
        "heap", ERROR, Subject.ACCESS, _ACCESS,
        "{access} in heap memory that was freed{of_heap_block}",
        "free the memory after its last use",
    )  # fmt: skip

    # threads that have to come together ---------------------------------------------------------------------

    NOT_A_MEMBER = (
        "divergence", ERROR, Subject.THREADS, "lane mask _ _",
        "the mask {mask:#010x} of this instruction leaves out a lane that executes it: all that execute it "
        "have to be in the mask",
        "name every lane that executes {here} in the mask: 0xffffffff, where all lanes do",
    )  # fmt: skip
    ABSENT_MEMBER = (
        "divergence", ERROR, Subject.THREADS, "lane mask lanes _",
        "the mask {mask:#010x} of this instruction names lanes that are elsewhere in the kernel: "
        "{lanes_named}",
        "move {here} out of the branch, so that all lanes of the mask execute it",
    )  # fmt: skip
    MASKS_DIFFER = (
        "divergence", ERROR, Subject.THREADS, "lane mask lanes _",
        "the mask {mask:#010x} of this instruction names lanes that execute it with another mask: "
        "{lanes_named}",
        "give all lanes that execute it together the same mask",
    )  # fmt: skip
    EXITED_MEMBER = (
        "divergence", ADVICE, Subject.THREADS, "lane mask lanes _",
        "the mask {mask:#010x} of this instruction names lanes that have exited: {lanes_named}",
        "let the lanes that have nothing to do come here before they return, or leave them out of the mask",
    )  # fmt: skip
    #: Threads of a block have exited when it arrives at the barrier of the grid.
    LEFT_GRID = (
        "divergence", ERROR, Subject.THREADS, "lane threads _ _",
        "the barrier of the grid (grid.sync()) is for all threads of all blocks, but {threads_named} of this "
        "block returned before: what it does then is not defined",
        "let these threads skip the work, and not the barrier",
    )  # fmt: skip
    BARRIER_COUNT_WRONG = (
        "barrier", ERROR, Subject.THREADS, "lane threads _ _",
        "a barrier for {threads} threads: the number of threads has to be a multiple of 32",
        "count whole warps: {whole_warps} threads",
    )  # fmt: skip
    #: A warp comes to a barrier whose last threads before it may not all have arrived.
    BARRIER_UNORDERED = (
        "barrier", ERROR, Subject.THREADS, "lane barrier _ _",
        "a warp comes to barrier {barrier} and cannot know whether the threads that came to it before have "
        "all arrived: where they have not, it is counted in place of one of them",
        "give each group of warps a barrier of its own (0 to 15), or let this warp synchronise before {here} "
        "with a thread that has waited there",
    )  # fmt: skip
    BARRIER_OVERFULL = (
        "barrier", ERROR, Subject.BLOCK_BARRIER, "threads place most least",
        "{threads} threads have come to a barrier for {counts}: which of them wait for each other is not "
        "defined",
        "give the barrier the number of threads that come to it, or another barrier (0 to 15) to each group",
    )  # fmt: skip
    EXITED_WARPS = (
        "divergence", ADVICE, Subject.BLOCK_BARRIER, "_ place warps _",
        "this barrier is for the whole block, but {warps_named} exited before; GPUs are known not to wait "
        "for them, but the PTX ISA does not promise it",
        "let the threads that have nothing to do skip the work, and not the barrier",
    )  # fmt: skip
    SPLIT_BARRIER = (
        "divergence", ERROR, Subject.BLOCK_BARRIER, "lane place barrier bypassed",
        "all lanes of a warp have to come to this barrier together, but {missing_lanes}",
        "{barrier_for_all}",
    )  # fmt: skip

    # wmma ---------------------------------------------------------------------------------------------------

    TILE_ALIGNMENT = (
        "wmma", ERROR, Subject.ACCESS, _ACCESS,
        "the {space} pointer is not a multiple of {alignment} bytes, the size of one lane's fragment",
        "begin the tile at a multiple of {alignment} bytes (__align__(32) for its array)",
    )  # fmt: skip
    TILE_STRIDE = (
        "wmma", ERROR, Subject.THREADS, "lane stride _ _",
        "the stride of {stride} elements is not a multiple of 16 bytes",
        "make ldm a multiple of 16 bytes: 8 elements of 16 bits, 4 of 32",
    )  # fmt: skip
    TILE_UNIFORM = (
        "wmma", ERROR, Subject.ACCESS, _ACCESS,
        "the pointer and the stride have to be the same in all lanes of the warp",
        "pass the first element of the tile, without the lane's own offset",
    )  # fmt: skip

    #: Memory is written that was taken for memory that is only read: the launch has to be repeated.
    UNRECORDED_READS = "", ERROR, Subject.CHECKER, _ACCESS
    #: Lanes of tensor memory without a value are loaded beside others: it matters if their values are needed.
    TENSOR_LANES_UNWRITTEN = "", ERROR, Subject.CHECKER, _ACCESS

    @property
    def is_of_memory(self) -> bool:
        """Whether its findings name an address and what lies there."""
        return self.subject in (Subject.ACCESS, Subject.TWO_ACCESSES)

    @property
    def is_of_tensor_memory(self) -> bool:
        """Whether the address is one of tensor memory."""
        return self.is_of_memory and self.name.startswith("TENSOR_")

    @property
    def is_advice(self) -> bool:
        """Whether PTX leaves undefined what GPUs are known to do."""
        return self.severity == ADVICE

    def is_advice_on(self, arch: str) -> bool:
        """Whether PTX leaves undefined what GPUs of an arch are known to do."""
        return self.is_advice or arch_number(arch) >= _ADVICE_FROM.get(self.name, sys.maxsize)


#: All suspicions by their numbers.
SUSPICIONS = tuple(Suspicion)
