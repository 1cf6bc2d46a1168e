"""`report.performance`: what wastes time, how much, and remedies that were tried before they are told."""

import re
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from gpu.counted import WIDTH, one_instruction
from lanewise.layout import Swizzle
from lanewise.machine.checker.cost.requests import Requests, cost_of
from lanewise.machine.checker.report import Report
from nvrtc import need_nvrtc

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
WAVEFRONTS, EXCESSIVE = "memory_l1_wavefronts_shared", "derived__memory_l1_wavefronts_shared_excessive"


def kinds(report: Report) -> list[str]:
    return [each.kind for each in report.performance]


# the bank model on arrays -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ld1", "ld4", "ld8", "ld16", "st4", "st16", "ldsm1", "ldsm2", "ldsm4"])
def test_the_two_bank_models_agree(name: str) -> None:
    rng = np.random.default_rng(len(name))
    kernel = lw.load(one_instruction(name))[name][1, 32]
    width = WIDTH[re.sub(r"^(ld|st|ldsm|stsm)(?=\d)", "", name)] if not name.startswith("ldsm") else 16
    lanes = np.arange(32)
    patterns = [lanes * width, lanes * 128, lanes // 2 * width, lanes % 4 * width, lanes // 4 * 144]
    patterns += [rng.integers(0, 32768 // width - 1, 32) * width for _ in range(6)]
    rows = {"ldsm1": 8, "ldsm2": 16}.get(name, 32)
    for offsets in patterns:
        data, out = np.zeros(1 << 13, np.uint32), np.zeros(32, np.uint32)
        counted = lw.check(kernel, offsets.astype(np.uint32), data, out).counters
        active = (lanes < rows)[None, :]
        request = Requests(offsets[None, :].astype(np.int64), active, width, name.startswith("ldsm"))
        cost = cost_of(request)
        assert (cost.wavefronts[0], cost.excess) == (counted[WAVEFRONTS], counted[EXCESSIVE]), (name, offsets)


# bank conflicts ---------------------------------------------------------------------------------------


def transpose(index: str) -> Any:
    """A kernel that writes a tile by rows and reads it by columns; `index` makes %i of %row and %column."""
    place = f"{index} shl.b32 %i, %i, 2; add.u32 %i, %i, %t;"
    return lw.load(f"""{HEAD}.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %x; .reg .b32 %y; .reg .b32 %row; .reg .b32 %column; .reg .b32 %i; .reg .b32 %t; .reg .b32 %n;
    .reg .b32 %m; .reg .f32 %f; .reg .b64 %a; .reg .b64 %b;
    .shared .align 128 .b8 tile[8192];
    mov.u32 %t, tile;
    mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mad.lo.u32 %n, %y, 32, %x;
    ld.param.u64 %a, [in]; mad.wide.u32 %a, %n, 4, %a; ld.global.f32 %f, [%a];
    mov.u32 %row, %y; mov.u32 %column, %x; {place}
    st.shared.f32 [%i], %f;
    bar.sync 0;
    mov.u32 %row, %x; mov.u32 %column, %y; {place}
    ld.shared.f32 %f, [%i];
    ld.param.u64 %b, [out]; mad.wide.u32 %b, %n, 4, %b; st.global.f32 [%b], %f;
    ret;
}}
""")["k"][1, (32, 32)]


def check_transpose(index: str) -> Report:
    given = np.arange(1024, dtype=np.float32).reshape(32, 32)
    out = np.zeros_like(given)
    report = lw.check(transpose(index), given, out)
    assert report.ok and np.array_equal(out, given.T)
    return report


def test_a_transpose_and_its_remedies() -> None:
    report = check_transpose("mad.lo.u32 %i, %row, 32, %column;")
    (found,) = report.performance
    assert (found.kind, found.wasted, found.total, found.unit) == ("bank conflict", 992, 1056, "wavefronts")
    assert found.line == 16 and found.text == "ld.shared.f32 %f, [%i];"
    assert str(found) == (
        "PTX:16  tile: 32-way bank conflict, 992 of 1,056 wavefronts wasted (94 %); "
        "a row of 33 floats, or Swizzle(5,0,5), removes it"
    )
    assert report.findings == [] and report.ok
    # Both remedies keep their word.
    assert check_transpose("mad.lo.u32 %i, %row, 33, %column;").performance == []
    swizzled = "mad.lo.u32 %i, %row, 32, %column; shr.u32 %m, %i, 5; and.b32 %m, %m, 31; xor.b32 %i, %i, %m;"
    assert check_transpose(swizzled).performance == []
    assert Swizzle(5, 0, 5)(33) == 32 + 0


def loads(body: str, registers: int = 4, size: int = 16384) -> Report:
    """A check of one warp that computes %a of %lane and loads from shared memory."""
    clear = (
        "mov.u32 %i, %lane; INIT: mad.lo.u32 %b, %i, 4, %t; st.shared.u32 [%b], 0; add.u32 %i, %i, 32; "
        f"setp.lt.u32 %p, %i, {size // 4}; @%p bra INIT; bar.warp.sync -1;"
    )
    names = ", ".join(f"%r{number}" for number in range(registers))
    module = lw.load(f"""{HEAD}.visible .entry k()
{{
    .reg .b32 %r<{registers}>; .reg .b32 %lane; .reg .b32 %a; .reg .b32 %b; .reg .b32 %i; .reg .b32 %t;
    .reg .pred %p;
    .shared .align 128 .b8 tile[{size}];
    mov.u32 %t, tile; mov.u32 %lane, %tid.x; {clear}
    {body.replace("REGISTERS", f"{{{names}}}")}
    ret;
}}
""")
    return lw.check(module["k"][1, 32])


def matrix_row(pitch: str) -> str:
    """ldmatrix of a 16×16 tile with rows of so many bytes, 64 times, so that clearing the tile is little."""
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 REGISTERS, [%a];\n" * 64
    return (
        f"and.b32 %a, %lane, 15; {pitch} shr.u32 %b, %lane, 4; shl.b32 %b, %b, 4; add.u32 %a, %a, %b; "
        f"SWIZZLE add.u32 %a, %a, %t; {load}"
    )


def test_rows_of_matrices() -> None:
    body = matrix_row("shl.b32 %a, %a, 7;")
    (found,) = loads(body.replace("SWIZZLE", "")).performance
    assert found.message == "8-way bank conflict"
    assert found.remedy == "a row of 144 bytes, or Swizzle(3,4,3) of its byte offsets, removes it"
    padded = matrix_row("mul.lo.u32 %a, %a, 144;").replace("SWIZZLE", "")
    assert loads(padded).performance == []
    # It changes bits 4 to 6 of an offset by bits 7 to 9.
    swizzle = "shr.u32 %b, %a, 3; and.b32 %b, %b, 112; xor.b32 %a, %a, %b;"
    assert loads(body.replace("SWIZZLE", swizzle)).performance == []


def test_no_remedy_is_told_that_does_not_help() -> None:
    spread = "mul.lo.u32 %a, %lane, 1103515245; shr.u32 %a, %a, 20; and.b32 %a, %a, 4092; add.u32 %a, %a, %t;"
    (found,) = loads(spread + "ld.shared.u32 %r0, [%a];\n" * 64).performance
    assert found.kind == "bank conflict"
    assert found.remedy == "" or "leaves" in found.remedy or "removes" in found.remedy
    if "removes" in found.remedy:
        pytest.fail(f"random addresses have no such layout: {found.remedy}")


def test_few_conflicts_are_not_told() -> None:
    """One request in 65 has a conflict, which is less than a twentieth of the wavefronts."""
    few = "shl.b32 %a, %lane, 2; add.u32 %a, %a, %t;" + "ld.shared.u32 %r0, [%a];\n" * 64
    few += "shl.b32 %a, %lane, 3; add.u32 %a, %a, %t; ld.shared.u32 %r1, [%a];"
    assert loads(few).performance == []


# global memory ----------------------------------------------------------------------------------------


def copies(stride: int, guard: str = "", blocks: int = 1) -> Report:
    """A check of 4 warps a block that read with a distance between lanes and write side by side."""
    module = lw.load(f"""{HEAD}.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %i; .reg .b32 %j; .reg .f32 %f; .reg .b64 %a; .reg .b64 %b; .reg .pred %p;
    mov.u32 %i, %tid.x;
    ld.param.u64 %a, [in]; mad.wide.u32 %a, %i, {stride}, %a;
    mov.f32 %f, 0f00000000; and.b32 %j, %i, 7; setp.eq.u32 %p, %j, 0;
    {guard}ld.global.f32 %f, [%a];
    ld.param.u64 %b, [out]; mad.wide.u32 %b, %i, 4, %b;
    st.global.f32 [%b], %f;
    ret;
}}
""")
    out = np.zeros(128, np.float32)
    return lw.check(module["k"][blocks, 128], np.ones(128 * max(stride, 4) // 4, np.float32), out)


def test_uncoalesced_reads() -> None:
    (found,) = copies(32).performance
    assert (found.kind, found.wasted, found.total, found.unit) == ("uncoalesced", 4 * 28, 4 * 36, "sectors")
    assert str(found) == (
        "PTX:10  global read: uncoalesced read, 32 sectors a request where 4 would do, 112 of 144 sectors "
        "wasted (78 %); neighbouring lanes are 32 bytes apart"
    )
    (found,) = copies(8).performance
    assert (found.wasted, found.total) == (4 * 4, 4 * 12)


@pytest.mark.parametrize("stride", [0, 4])
def test_one_word_for_all_lanes_and_neighbours_are_coalesced(stride: int) -> None:
    assert copies(stride).performance == []


def test_lanes_that_are_predicated_off() -> None:
    found = copies(4, "@%p ", blocks=4).performance
    # One lane in eight: its four words are in four sectors, and would fit into one.
    assert [each.kind for each in found] == ["uncoalesced", "predicated off"]
    assert kinds(copies(4, "@%p ")) == ["uncoalesced"]  # too few to be told
    assert "88 % of the lanes are predicated off" in found[1].message and found[1].line == 10


# CUDA C++: divergence, local memory, barriers ---------------------------------------------------------

SOURCE = """
__global__ void branches(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i];
    if (threadIdx.x % 2)
        for (int k = 0; k < n; k++) a = a * 1.5f + k;
    else
        for (int k = 0; k < n; k++) a = a * 2.5f - k;
    x[i] = a;
}
__global__ void warps(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i];
    if (threadIdx.x / 32 % 2)
        for (int k = 0; k < n; k++) a = a * 1.5f + k;
    else
        for (int k = 0; k < n; k++) a = a * 2.5f - k;
    x[i] = a;
}
__global__ void tail(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 2;
}
__global__ void table(float* x, float* y, int n) {
    float a[16];
    for (int k = 0; k < 16; k++) a[k] = x[threadIdx.x + k];
    float s = 0;
    for (int k = 0; k < n; k++) s += a[(k * 7 + threadIdx.x) & 15];
    y[threadIdx.x] = s;
}
"""
BARRIERS = """
__global__ void reads(float* x, float* y) {
    __shared__ float t[128];
    t[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float a = t[127 - threadIdx.x];
    __syncthreads();
    a += t[(threadIdx.x + 1) & 127];
    __syncthreads();
    y[threadIdx.x] = a;
}
__global__ void loop(float* x, float* y, int n) {
    __shared__ float t[128];
    float a = 0;
    for (int k = 0; k < n; k++) {
        t[threadIdx.x] = x[k * 128 + threadIdx.x];
        __syncthreads();
        a += t[127 - threadIdx.x];
        __syncthreads();
    }
    y[threadIdx.x] = a;
}
__global__ void flag(float* x, int* f) {
    x[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) { __threadfence(); atomicExch(f, 1); }
}
__global__ void in_place(float* x) {
    float a = x[127 - threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = a;
}
__global__ void two(float* x, float* y) {
    __shared__ float s[128], t[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    t[threadIdx.x] = s[127 - threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = t[127 - threadIdx.x];
}
extern __shared__ float d[];
__global__ void dynamic(float* x, float* y) {
    d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float a = d[127 - threadIdx.x];
    __syncthreads();
    d[threadIdx.x] = a;
    __syncthreads();
    y[threadIdx.x] = d[127 - threadIdx.x];
}
extern __shared__ int words[];
__global__ void one_memory(float* x, float* y) {
    d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = __int_as_float(words[127 - threadIdx.x]);
}
__global__ void in_place_by_two(const float* x, float* y) {
    float a = x[127 - threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = a;
}
__global__ void any(float* x, float* y) {
    int all = __syncthreads_and(x[threadIdx.x] > 0);
    y[threadIdx.x] = all;
}
"""


@pytest.fixture(scope="module")
def module() -> Any:
    need_nvrtc()
    return lw.cuda(SOURCE)


@pytest.fixture(scope="module")
def barriers() -> Any:
    need_nvrtc()
    return lw.cuda(BARRIERS)


def ones(count: int) -> Any:
    return np.ones(count, np.float32)


def test_lanes_that_part(module: Any) -> None:
    (found,) = lw.check(module["branches"][4, 128], ones(512), 20).performance
    assert found.kind == "divergent branch" and found.source == "kernel.cu:5"
    assert found.subject == "if (threadIdx.x % 2)"
    assert found.message == "divergent branch, in 16 of 16 executions" and 0.4 < found.share < 0.5


def test_warps_that_part_and_the_end_of_an_array(module: Any) -> None:
    assert lw.check(module["warps"][4, 128], ones(512), 20).performance == []
    assert lw.check(module["tail"][4, 128], ones(512), 400).performance == []


def test_local_memory(module: Any) -> None:
    found = lw.check(module["table"][1, 128], ones(256), ones(128), 50).performance
    assert [(each.kind, each.source) for each in found] == [("local memory", "kernel.cu:28")]
    assert found[0].subject == "a[…]" and "indexed at run time" in found[0].message
    # The index depends on the thread: unrolled loops alone would not help, and nothing says that they do.
    assert found[0].remedy.startswith("it can stay in registers only if the compiler knows every index")


def test_barriers_that_nothing_needs(barriers: Any) -> None:
    report = lw.check(barriers["reads"][1, 128], ones(128), ones(128))
    found = [(each.source, each.wasted) for each in report.performance if each.kind == "barrier"]
    assert report.ok and found == [("kernel.cu:7", 4), ("kernel.cu:9", 4)]
    text = BARRIERS.split("__global__ void loop")[0].split("__syncthreads();")
    without = f"{text[0]}__syncthreads();{''.join(text[1:])}"
    report = lw.check(lw.cuda(without)["reads"][1, 128], ones(128), ones(128))
    assert report.ok and not report.performance  # they can be taken out


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("loop", (ones(128), ones(128), 1)),  # its second barrier is needed by a second turn
        ("loop", (ones(512), ones(128), 4)),
        ("flag", (ones(128), np.zeros(1, np.int32))),
        ("in_place", (ones(128),)),
        ("two", (ones(128), ones(128))),
        ("any", (ones(128), ones(128))),
    ],
)
def test_barriers_that_are_needed(barriers: Any, name: str, arguments: Any) -> None:
    report = lw.check(barriers[name][1, 128], *arguments)
    assert report.ok and "barrier" not in kinds(report)


def test_barriers_of_dynamic_shared_memory(barriers: Any) -> None:
    report = lw.check(barriers["dynamic"][1, 128, 512], ones(128), ones(128))
    assert report.ok and "barrier" not in kinds(report)


def test_names_of_dynamic_shared_memory_are_one_memory(barriers: Any) -> None:
    report = lw.check(barriers["one_memory"][1, 128, 512], ones(128), ones(128))
    assert report.ok and "barrier" not in kinds(report)


def test_arguments_that_share_memory(barriers: Any) -> None:
    """Whether a barrier between two arrays is needed depends on whether they are one array."""
    x, y = ones(128), ones(128)
    assert "barrier" in kinds(lw.check(barriers["in_place_by_two"][1, 128], x, y))
    report = lw.check(barriers["in_place_by_two"][1, 128], x, x)
    assert report.ok and "barrier" not in kinds(report)
    both = ones(192)
    assert "barrier" not in kinds(lw.check(barriers["in_place_by_two"][1, 128], both[:128], both[64:]))


# what a report makes of it ----------------------------------------------------------------------------


def test_rank_and_words(module: Any) -> None:
    naive = lw.cuda(
        "__global__ void k(const float* in, float* out, int n) {\n"
        "    __shared__ float tile[32][32];\n"
        "    tile[threadIdx.x][threadIdx.y] = in[threadIdx.x * n + threadIdx.y];\n"
        "    __syncthreads();\n"
        "    out[threadIdx.y * n + threadIdx.x] = tile[threadIdx.y][threadIdx.x];\n}"
    )["k"]
    square = np.ones((32, 32), np.float32)
    report = lw.check(naive[1, (32, 32)], square, square.copy(), 32)
    slow = report.performance
    assert [each.kind for each in slow] == ["uncoalesced", "bank conflict"]
    assert [each.subject for each in slow] == ["in[…]", "tile[threadIdx.x][threadIdx.y]"]
    assert [each.cycles for each in slow] == sorted((each.cycles for each in slow), reverse=True)
    text = str(report)
    assert text.startswith("kernel.cu:3  in[…]: uncoalesced read")
    assert "nothing wrong, 2 things that cost time" in text and "nothing found" not in text
    told = report.to_dict()["performance"]
    assert told[0]["kind"] == "uncoalesced" and told[0]["location"] == "kernel.cu:3"
    assert not report.findings and report


def test_a_launch_that_was_stopped_is_not_judged(module: Any) -> None:
    report = lw.check(module["tail"][4, 128], ones(100), 400)
    assert not report.ok and report.performance == []


def test_spills_and_registers_by_ptxas() -> None:
    need_nvrtc()
    source = (
        "__device__ __forceinline__ void work(float* x, float* y) {\n    float a[300];\n"
        "    #pragma unroll\n    for (int i = 0; i < 300; i++) a[i] = x[i * 32 + threadIdx.x];\n"
        "    __syncthreads();\n    #pragma unroll\n"
        "    for (int i = 299; i >= 0; i--) y[i * 32 + threadIdx.x] = a[i] * a[i * 7 % 300];\n}\n"
        "__global__ void spill(float* x, float* y) { work(x, y); }"
    )
    kernel = lw.cuda(source)["spill"]
    try:
        used = kernel.resources("sm_80")
    except lw.LanewiseError:
        pytest.skip("no ptxas")
    assert used.spill_loads
    report = lw.check(kernel[1, 32], ones(9600), ones(9600), resources=True)
    assert report.performance[0].kind == "spills"
    assert used.registers == 255 and report.performance[0].remedy == "keep fewer values at a time"
    assert f"{used.spill_stores} bytes of stores" in str(report.performance[0])
    assert "spills" not in kinds(lw.check(kernel[1, 32], ones(9600), ones(9600)))
    (found,) = lw.check(kernel[1, 512], ones(9600), ones(9600), resources=True).findings
    assert found.kind == "launch" and "registers, with which a block has at most 256 threads" in found.message


# small launches ---------------------------------------------------------------------------------------


def branch(condition: str) -> Any:
    """A kernel in which the lanes for which a condition holds compute, and the others do not."""
    work = "    fma.rn.f32 %f, %f, 0f3F800000, 0f3F800000;\n" * 40
    return lw.load(f"""{HEAD}.visible .entry k(.param .u64 x)
{{
    .reg .b32 %t; .reg .b32 %n; .reg .b32 %b; .reg .pred %p; .reg .b64 %a; .reg .f32 %f;
    mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %n, %b, %n, %t;
    ld.param.u64 %a, [x]; mad.wide.u32 %a, %n, 4, %a;
    {condition}
    @%p bra $end;
    ld.global.f32 %f, [%a];
{work}    st.global.f32 [%a], %f;
$end:
    ret;
}}
""")["k"]


def test_a_branch_at_which_every_warp_of_a_small_launch_parts() -> None:
    x = np.zeros(256, np.float32)
    halves = branch("and.b32 %t, %t, 1; setp.ne.u32 %p, %t, 0;")
    report = lw.check(halves[4, 64], x)
    assert "divergent branch" in kinds(report)
    (told,) = [each for each in report.performance if each.kind == "divergent branch"]
    assert told.message == "divergent branch, in 8 of 8 executions" and told.share > 0.4


def test_a_last_warp_that_is_not_full_is_no_divergent_branch() -> None:
    x = np.zeros(256, np.float32)
    bound = branch("setp.ge.u32 %p, %n, 40;")
    for grid in (1, 2, 4):
        assert "divergent branch" not in kinds(lw.check(bound[grid, 64], x))


def test_a_stride_of_two_doubles_is_told_as_a_stride() -> None:
    source = """__global__ void k(const float* x, float* y) {
    __shared__ double t[64];
    t[threadIdx.x * 2] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = t[threadIdx.x * 2];
}"""
    report = lw.check(lw.cuda(source)["k"][1, 32], np.zeros(32, np.float32), np.zeros(32, np.float32))
    assert {each.remedy for each in report.performance if each.kind == "bank conflict"} == {
        "t[i + i / 2] of double t[96], or t[i ^ (i >> 4 & 1)], removes it"
    }
