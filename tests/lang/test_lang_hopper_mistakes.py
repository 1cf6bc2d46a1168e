"""What goes wrong with Hopper's instructions in kernels: each mistake is named with its line and the remedy.

Each kernel below has one mistake; the line that a message must name is marked `# here`.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lanewise as lw

MMA = lw.instruction("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16")
F16 = lw.instruction("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16")
WIDE = lw.instruction("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16")
INT8 = lw.instruction("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8")
FP8 = lw.instruction("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3")
SPARSE = lw.instruction("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.bf16.bf16")
WARP_MMA = lw.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
SW128 = lw.Swizzle(3, 3, 3)
Box = lw.TensorMap[lw.bf16, (64, 64), 128]

MISTAKES: dict[lw.Kernel, tuple[str, str]] = {}


def mistake(message: str, arch: str = "sm_90a") -> Callable[[lw.Kernel], lw.Kernel]:
    """Enter a kernel with one mistake, and the message that it must get."""

    def enter(kernel: lw.Kernel) -> lw.Kernel:
        MISTAKES[kernel] = (message, arch)
        return kernel

    return enter


def tile(dtype: lw.Format = lw.bf16) -> Any:
    return lw.shared(dtype, (64, 64), swizzle=SW128)


# wgmma ---------------------------------------------------------------------------------------------------


@mistake("exists on sm_90a alone; the kernel is traced for sm_90: launch or trace it with arch", "sm_90")
@lw.kernel
def wgmma_without_its_arch(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = MMA.zeros()
    MMA(d, d, acc)  # here


@mistake("exists on sm_90a alone; the kernel is traced for sm_100a", "sm_100a")
@lw.kernel
def fence_of_wgmma_on_blackwell(x: lw.Ptr[lw.f32]):
    lw.wgmma_fence()  # here


@mistake("B of wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 is a descriptor of shared memory")
@lw.kernel
def pointer_for_a_descriptor(x: lw.Ptr[lw.f32]):
    shared = tile()
    acc = MMA.zeros()
    MMA(lw.make_gmma_desc(shared), shared.ptr(), acc)  # here


@mistake("make it by lw.make_gmma_desc(array)")
@lw.kernel
def array_for_a_descriptor(x: lw.Ptr[lw.f32]):
    shared = tile()
    acc = MMA.zeros()
    MMA(lw.make_gmma_desc(shared), shared, acc)  # here


@mistake("B of wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 is a descriptor of shared memory")
@lw.kernel
def u32_for_a_descriptor(x: lw.Ptr[lw.f32], bits: lw.u32):
    d = lw.make_gmma_desc(tile())
    acc = MMA.zeros()
    MMA(d, bits, acc)  # here


@mistake("A of wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 is given the fragment of")
@lw.kernel
def fragment_of_a_warp_for_a_warpgroup(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = MMA.zeros()
    MMA(WARP_MMA.a.full(0), d, acc)  # here


@mistake("has elements of f16, and the descriptor of K-major bf16")
@lw.kernel
def descriptor_of_another_format(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = F16.zeros()
    F16(d, d, acc)  # here


@mistake("has 64 × 64 elements, from (0, 0) on too few")
@lw.kernel
def too_few_rows_for_n(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = WIDE.zeros()
    WIDE(d, d, acc)  # here


@mistake("has 64 × 64 elements, from (0, 64) on too few")
@lw.kernel
def step_beyond_the_tile(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = MMA.zeros()
    MMA(d[0, 64], d[0, 48], acc)  # here


@mistake("a descriptor begins at a multiple of 16 bytes")
@lw.kernel
def step_of_half_a_piece(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    d[0, 4]  # here


@mistake("coordinate 4 of mode 2 is outside of its 4")
@lw.kernel
def stage_beyond_the_last(x: lw.Ptr[lw.f32]):
    stages = lw.dynamic_shared(lw.bf16, lw.Layout((64, 64, 4), (64, 1, 4096)), swizzle=SW128)
    lw.make_gmma_desc(stages)[0, 0, 4]  # here


@mistake("has 2 modes (row, k, …); 3 coordinates are given")
@lw.kernel
def descriptor_without_stages(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    d[0, 0, 1]  # here


@mistake("adds to an accumulator in place: make one before lw.wgmma_fence(), acc = mma.zeros()")
@lw.kernel
def no_accumulator(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    MMA(d, d)  # here


@mistake("is 64×64 of f32; given is the fragment of C of wgmma.mma_async.sync.aligned.m64n128k16")
@lw.kernel
def accumulator_of_another_n(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = WIDE.zeros()
    MMA(d, d, acc)  # here


@mistake("the accumulator of wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 is a fragment, mma.zeros()")
@lw.kernel
def accumulator_of_registers(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    MMA(d, d, [lw.f32(0)] * 32)  # here


@mistake("takes K-major matrices only; MN-major ones are for 16-bit elements")
@lw.kernel
def transposed_bytes(x: lw.Ptr[lw.f32], bits: lw.u64):
    acc = FP8.zeros()
    FP8(bits, bits, acc, transpose_b=True)  # here


@mistake("multiplies integers, and negates neither of them")
@lw.kernel
def negated_integers(x: lw.Ptr[lw.f32], bits: lw.u64):
    acc = INT8.zeros()
    INT8(bits, bits, acc, negate_a=True)  # here


@mistake("the descriptor says itself that it is K-major")
@lw.kernel
def transpose_said_twice(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(tile())
    acc = MMA.zeros()
    MMA(d, d, acc, transpose_b=True)  # here


@mistake("is sparse: give metadata=, a u32 register, and selector=")
@lw.kernel
def sparse_without_metadata(x: lw.Ptr[lw.f32], bits: lw.u64):
    acc = SPARSE.zeros()
    SPARSE(bits, bits, acc)  # here


@mistake("is not sparse and takes no metadata")
@lw.kernel
def metadata_for_a_dense_product(x: lw.Ptr[lw.f32], bits: lw.u64, e: lw.u32):
    acc = MMA.zeros()
    MMA(bits, bits, acc, metadata=e)  # here


@mistake("wgmma knows no swizzle")
@lw.kernel
def swizzle_that_wgmma_does_not_know(x: lw.Ptr[lw.f32]):
    lw.make_gmma_desc(lw.shared(lw.bf16, (64, 64), swizzle=lw.Swizzle(3, 3, 4)))  # here


@mistake(
    "for the modes 32B, 64B and 128B write lw.Swizzle(1, 2, 3), lw.Swizzle(2, 2, 3), lw.Swizzle(3, 2, 3)"
)
@lw.kernel
def swizzle_of_another_element(x: lw.Ptr[lw.f32]):
    lw.make_gmma_desc(lw.shared(lw.tf32, (64, 32), swizzle=SW128))  # here


@mistake("repeats every 1024 bytes, and the array is known to be aligned to 256 only")
@lw.kernel
def tile_that_is_not_aligned(x: lw.Ptr[lw.f32]):
    shared = lw.dynamic_shared(lw.bf16, (64, 64), swizzle=SW128, offset=256)
    lw.make_gmma_desc(shared)  # here


@mistake("is neither K-major nor MN-major: no mode has stride 1")
@lw.kernel
def matrix_without_a_contiguous_mode(x: lw.Ptr[lw.f32]):
    lw.make_gmma_desc(lw.shared(lw.bf16, lw.Layout((64, 64), (128, 2)), align=1024))  # here


@mistake("the instruction reads")
@lw.kernel
def rows_of_padding(x: lw.Ptr[lw.f32]):
    d = lw.make_gmma_desc(lw.shared(lw.bf16, lw.Layout((64, 64), (72, 1)), align=1024))
    acc = MMA.zeros()
    MMA(d, d, acc)  # here


@mistake("lw.make_gmma_desc takes an array in shared memory, not a pointer to bf16")
@lw.kernel
def descriptor_of_global_memory(x: lw.Ptr[lw.bf16]):
    lw.make_gmma_desc(x)  # here


@mistake("lw.wgmma_wait takes a Python integer, 0 to 7 groups, not the Python int 8")
@lw.kernel
def waits_for_too_many_groups(x: lw.Ptr[lw.f32]):
    lw.wgmma_wait(8)  # here


@mistake("lw.wgmma_wait takes a Python integer, 0 to 7 groups, not the i32 value 'n'")
@lw.kernel
def waits_for_a_traced_number(x: lw.Ptr[lw.f32], n: lw.i32):
    lw.wgmma_wait(n)  # here


# registers -----------------------------------------------------------------------------------------------


@mistake("write @lw.kernel(max_threads=384, min_blocks=1), or max_registers=168")
@lw.kernel
def setmaxnreg_without_a_bound(x: lw.Ptr[lw.f32]):
    lw.setmaxnreg_dec(40)  # here


@mistake("takes 24 to 256 in steps of 8; 100 is not among them; 96 is the nearest")
@lw.kernel(max_registers=168)
def setmaxnreg_of_another_step(x: lw.Ptr[lw.f32]):
    lw.setmaxnreg_dec(100)  # here


@mistake("takes a Python integer, 24 to 256 in steps of 8; not the i32 value 'n'")
@lw.kernel(max_registers=168)
def setmaxnreg_of_a_traced_number(x: lw.Ptr[lw.f32], n: lw.i32):
    lw.setmaxnreg_inc(n)  # here


# mbarriers -----------------------------------------------------------------------------------------------


@mistake("a parity is 0 or 1, an integer, traced or not; not the Python float 0.5")
@lw.kernel
def parity_of_a_float(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].wait(0.5)  # here


@mistake("a parity is i32 or u32, not the f32 value: convert it with .to(lw.i32)")
@lw.kernel
def parity_of_another_type(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].wait(x[0])  # here


@mistake("a parity is 0 or 1, not 2: take the phase modulo 2")
@lw.kernel
def parity_that_is_a_phase(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].wait(2)  # here


@mistake("arrive is for one mbarrier, and this is an array of 1: call it on bars[0]")
@lw.kernel
def arrive_at_all_of_one(x: lw.Ptr[lw.i32]):
    lw.mbarrier().arrive()  # here


@mistake("wait is for one mbarrier, and this is an array of 4: call it on bars[i], with i from 0 to 3")
@lw.kernel
def wait_for_all(x: lw.Ptr[lw.i32]):
    bars = lw.mbarrier(4)
    bars.wait(0)  # here


@mistake("there are 4 mbarriers, 0 to 3; there is no number 4")
@lw.kernel
def barrier_beyond_the_last(x: lw.Ptr[lw.f32]):
    bars = lw.mbarrier(4)
    bars[4].arrive()  # here


@mistake("the count of init is 1 to 1048575, not 0")
@lw.kernel
def barrier_of_no_arrivals(x: lw.Ptr[lw.f32]):
    lw.mbarrier(4).init(0)  # here


@mistake("a phase expects 0 to 1048575 bytes, not 2097152")
@lw.kernel
def too_many_bytes_expected(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].arrive(expect=1 << 21)  # here


@mistake("an arrival that expects bytes counts once: leave count out")
@lw.kernel
def two_arrivals_that_expect(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].arrive(2, expect=16)  # here


@mistake("a wait of another block's mbarrier: only arrive and expect work on a remote one")
@lw.kernel
def wait_on_a_remote_barrier(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].remote(1).wait(0)  # here


@mistake("the rank of mbarrier.remote is an i32 or u32, 0 to 15; not 16")
@lw.kernel
def rank_beyond_a_cluster(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].remote(16).arrive()  # here


@mistake("lw.mbarrier takes the number of barriers, at least 1")
@lw.kernel
def no_barriers(x: lw.Ptr[lw.f32]):
    lw.mbarrier(0)  # here


@mistake("the scope of a wait is 'block' or 'cluster', not 'gpu'")
@lw.kernel
def wait_of_another_scope(x: lw.Ptr[lw.f32]):
    lw.mbarrier()[0].wait(0, scope="gpu")  # here


# TMA -----------------------------------------------------------------------------------------------------


@mistake("a tensor map needs sm_90; the kernel is traced for sm_80", "sm_80")
@lw.kernel
def tensor_map_on_ampere(A: Box):  # here
    pass


@mistake("cp.async.bulk needs sm_90; the kernel is traced for sm_80", "sm_80")
@lw.kernel
def bulk_copy_on_ampere(x: lw.Ptr[lw.f32, 16]):
    lw.tma.copy(lw.shared(lw.f32, 64), x, 256)  # here


@mistake("lw.tma.load takes a tensor map, a parameter annotated lw.TensorMap[…]; not a pointer to bf16")
@lw.kernel
def pointer_for_a_tensor_map(x: lw.Ptr[lw.bf16]):
    lw.tma.load(tile(), x, (0, 0), lw.mbarrier())  # here


@mistake("has 2 dimensions, and 3 coordinates are given")
@lw.kernel
def one_coordinate_too_many(A: Box):
    lw.tma.load(tile(), A, (0, 0, 0), lw.mbarrier())  # here


@mistake("a coordinate of lw.tma.load is i32, not the i64 value 'row': convert it with .to(lw.i32)")
@lw.kernel
def coordinate_of_another_type(A: Box, row: lw.i64):
    lw.tma.load(tile(), A, (row, 0), lw.mbarrier())  # here


@mistake("the innermost coordinate 3 is 6 bytes from the beginning; it has to be a multiple of 16 bytes")
@lw.kernel
def innermost_coordinate_that_traps(A: Box):
    lw.tma.load(tile(), A, (0, 3), lw.mbarrier())  # here


@mistake("8192 elements, and the box of the tensor map 'A', TensorMap[bf16, (64, 64), 128] has (64, 64)")
@lw.kernel
def box_of_another_size(A: Box):
    shared = lw.shared(lw.bf16, (64, 64, 2), swizzle=SW128)
    lw.tma.load(shared, A, (0, 0), lw.mbarrier())  # here


@mistake("TMA lays a box out with its last mode fastest, (64, 64):(64, 1); the array has (64,64):(1,64)")
@lw.kernel
def box_laid_out_by_columns(A: Box):
    shared = lw.shared(lw.bf16, lw.Layout((64, 64), (1, 64)), swizzle=SW128)
    lw.tma.load(shared, A, (0, 0), lw.mbarrier())  # here


@mistake("has the swizzle \"none\", and the tensor map 'A'")
@lw.kernel
def box_without_its_swizzle(A: Box):
    lw.tma.load(lw.shared(lw.bf16, (64, 64), align=128), A, (0, 0), lw.mbarrier())  # here


@mistake("has elements of f32, and the tensor map 'A'")
@lw.kernel
def box_of_another_element(A: lw.TensorMap[lw.bf16, 2]):
    lw.tma.load(lw.shared(lw.f32, (64, 64), align=128), A, (0, 0), lw.mbarrier())  # here


@mistake("the source of lw.tma.store must begin at a multiple of 128 bytes")
@lw.kernel
def box_that_is_not_aligned(A: lw.TensorMap[lw.bf16, 2]):
    lw.tma.store(A, (0, 0), lw.shared(lw.bf16, (64, 64), align=32))  # here


@mistake("the target of lw.tma.load lies in shared memory; a pointer to bf16 in global memory does not")
@lw.kernel
def load_into_global_memory(A: Box, x: lw.Ptr[lw.bf16, 128]):
    lw.tma.load(x, A, (0, 0), lw.mbarrier())  # here


@mistake("lw.tma.load completes on an mbarrier, one of lw.mbarrier(n)[i]; not 4 mbarriers")
@lw.kernel
def all_barriers_for_one(A: Box):
    lw.tma.load(tile(), A, (0, 0), lw.mbarrier(4))  # here


@mistake("lw.tma.load completes on an mbarrier of this block, not on a remote one")
@lw.kernel
def load_completes_elsewhere(A: Box):
    lw.tma.load(tile(), A, (0, 0), lw.mbarrier()[0].remote(1))  # here


@mistake("multicast= is a mask of the cluster's blocks, 16 bits and not 0; not 0")
@lw.kernel
def multicast_to_nobody(A: Box):
    lw.tma.load(tile(), A, (0, 0), lw.mbarrier(), multicast=0)  # here


@mistake("cache= is evict_normal, evict_first, evict_last, or a u64 policy; not 'ca'")
@lw.kernel
def cache_policy_of_another_kind(A: Box):
    lw.tma.load(tile(), A, (0, 0), lw.mbarrier(), cache="ca")  # here


@mistake("lw.tma.reduce knows add, min, max, inc, dec, and, or, xor; not 'mul'")
@lw.kernel
def reduction_that_is_not_there(A: Box):
    lw.tma.reduce("mul", A, (0, 0), tile())  # here


@mistake("the box of A is not known while tracing: write it into the annotation")
@lw.kernel
def bytes_of_an_unknown_box(A: lw.TensorMap[lw.bf16, 2]):
    lw.mbarrier()[0].arrive(expect=A.nbytes)  # here


@mistake("lw.tma.copy moves a multiple of 16 bytes, not 100")
@lw.kernel
def copy_of_odd_bytes(x: lw.Ptr[lw.f32, 16]):
    lw.tma.copy(x, lw.shared(lw.f32, 64), 100)  # here


@mistake("a copy to global memory completes in a group: leave the barrier out")
@lw.kernel
def store_with_a_barrier(x: lw.Ptr[lw.f32, 16]):
    lw.tma.copy(x, lw.shared(lw.f32, 64), 256, lw.mbarrier())  # here


@mistake("or to the shared memory of another block; not from a pointer to f32 in global memory to")
@lw.kernel
def copy_from_global_to_global(x: lw.Ptr[lw.f32, 16]):
    lw.tma.copy(x, x, 256)  # here


@mistake("lw.tma.copy must begin at a multiple of 16 bytes, and a pointer to f32 in global memory is known")
@lw.kernel
def copy_of_unaligned_bytes(x: lw.Ptr[lw.f32]):
    lw.tma.copy(x, lw.shared(lw.f32, 64), 256)  # here


# clusters and the rest -----------------------------------------------------------------------------------


@mistake("a cluster needs sm_90; the kernel is traced for sm_89", "sm_89")
@lw.kernel
def cluster_on_ada(x: lw.Ptr[lw.i32]):
    x[0] = lw.cluster.rank()  # here


@mistake("lw.cluster.map takes a pointer to shared memory, not a pointer to i32 in global memory")
@lw.kernel
def mapped_global_memory(x: lw.Ptr[lw.i32]):
    x[0] = lw.cluster.map(x, 1)[0]  # here


@mistake("lw.fence_proxy_async is for 'shared', 'cluster', 'global', '', not 'local'")
@lw.kernel
def fence_of_another_space(x: lw.Ptr[lw.i32]):
    lw.fence_proxy_async("local")  # here


@mistake("a pipeline has 1 stage or more, not 0")
@lw.kernel
def pipeline_without_stages(x: lw.Ptr[lw.i32]):
    lw.Pipeline(0, bytes=16)  # here


def marked_lines(kernel: lw.Kernel) -> set[int]:
    lines, first = inspect.getsourcelines(kernel.function)
    return {first + n for n, line in enumerate(lines) if "# here" in line}


@pytest.mark.parametrize("kernel", MISTAKES, ids=lambda kernel: kernel.name)
def test_mistake_is_named_with_its_line(kernel: lw.Kernel) -> None:
    wanted, arch = MISTAKES[kernel]
    with pytest.raises(lw.KernelError) as raised:
        kernel.ptx(arch)
    message = str(raised.value)
    assert wanted in message
    place = re.match(r"test_lang_hopper_mistakes\.py:(\d+): ", message)
    assert place is not None, message
    assert int(place[1]) in marked_lines(kernel), message


X = np.zeros((64, 64), np.float16)


@lw.kernel
def maps(A: Box):
    pass


OUTSIDE = [
    (lambda: lw.TensorMap[lw.bf16], "takes the element's format, the box or the rank"),
    (lambda: lw.TensorMap["bf16", 2], "takes the element's format, the box or the rank"),
    (lambda: lw.TensorMap[lw.bf16, 6], "a tensor map has 1 to 5 dimensions, not 6"),
    (lambda: lw.TensorMap[lw.bf16, "64x64"], "the box of lw.TensorMap is a tuple, or its rank a number"),
    (lambda: lw.TensorMap[lw.bf16, (512, 64)], "a box has 1 to 256 elements along each dimension, not 512"),
    (lambda: lw.TensorMap[lw.bf16, (64, 4)], "is a multiple of 16 bytes; 4 of bf16 are 8"),
    (lambda: lw.TensorMap[lw.bf16, (64, 128), 128], "is at most 128 bytes, 64 of bf16; not 128"),
    (lambda: lw.TensorMap[lw.bf16, (64, 64), 256], "is 0, 32, 64 or 128 bytes, not 256"),
    (lambda: lw.kernel(cluster=16)(maps.function), "16 blocks; a cluster has at most 8"),
    (lambda: lw.kernel(cluster=(2, 0))(maps.function), "cluster= of @lw.kernel is an integer or up to three"),
    (lambda: maps[1, 32](np.zeros(4)), "takes lw.tensor_map(array, box), or its 128 bytes; not ndarray"),
    (lambda: maps[1, 32](bytes(64)), "a tensor map has 128 bytes, and 64 are given"),
    (lambda: maps[1, 32](lw.tensor_map(X, (32, 64), swizzle="128B")), "its box is (64, 64), and that of"),
    (lambda: maps[1, 32](lw.tensor_map(X, (64, 64))), "its swizzle is '128B', and that of"),
    (lambda: maps[1, 32](lw.tensor_map(X[0], (64,), swizzle="128B")), "its rank is 2, and that of"),
    (
        lambda: maps[1, 32](lw.tensor_map(X.astype(np.uint8), (64, 64), swizzle="128B")),
        "its bytes of an element is 2, and that of",
    ),
    (lambda: lw.instruction("wgmma.mma_async.sync.aligned.m64n260k16.f32.bf16.bf16"), "n256"),
    (lambda: lw.mbarrier(2), "this works inside a kernel only"),
    (lambda: lw.tma.commit(), "this works inside a kernel only"),
]


@pytest.mark.parametrize("number", range(len(OUTSIDE)))
def test_wrong_use_outside_of_a_kernel(number: int) -> None:
    call, message = OUTSIDE[number]
    with pytest.raises(lw.LanewiseError, match=re.escape(message)):
        call()
