"""Kernels of clusters that run on the CPU machine and on a GPU, in CUDA C++ and in PTX."""

#: A histogram whose bins lie in the shared memory of all blocks of a cluster, and a sum over a cluster.
CUDA = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void histogram(const unsigned *data, int count, unsigned *bins, int bins_of_block) {
    extern __shared__ unsigned mine[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < bins_of_block; i += blockDim.x) mine[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        unsigned bin = data[i] % (bins_of_block * cluster.num_blocks());
        unsigned *theirs = cluster.map_shared_rank(mine, bin / bins_of_block);
        atomicAdd(theirs + bin % bins_of_block, 1u);
    }
    cluster.sync();
    unsigned *out = bins + cluster.block_rank() * bins_of_block;
    for (int i = threadIdx.x; i < bins_of_block; i += blockDim.x) atomicAdd(out + i, mine[i]);
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) sum(const float *data, int count, float *result) {
    __shared__ float partial;
    cg::cluster_group cluster = cg::this_cluster();
    float mine = 0;
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) mine += data[i];
    for (int step = 16; step; step >>= 1) mine += __shfl_down_sync(~0u, mine, step);
    if (threadIdx.x == 0) partial = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(&partial, mine);
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        float whole = 0;
        for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank)
            whole += *cluster.map_shared_rank(&partial, rank);
        result[blockIdx.x / cluster.num_blocks()] = whole;
    }
    cluster.sync();
}
"""

HEADER = """
.version 8.6
.target sm_90a
.address_size 64
"""


def kernel(body: str, directives: str = "", shared: str = ".shared .align 16 .b8 data[1024];") -> str:
    """PTX of a kernel `k(out)`: `%rd0` is out, `%r0` the thread, `%r1` the block's number in the grid.

    Every block has 16 words of `out`, from `%rd1` on.
    """
    return f"""{HEADER}
.visible .entry k(.param .u64 out)
{directives}
{{
    .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<8>;
    {shared}
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
    mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
    mul.wide.u32 %rd1, %r1, 64; add.u64 %rd1, %rd0, %rd1;
    {body}
    ret;
}}
"""


#: All threads of the cluster wait for each other.
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"

#: What the registers of clusters hold, in this order.
REGISTERS = (
    "%clusterid.x", "%clusterid.y", "%clusterid.z", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z",
    "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_nctaid.x", "%cluster_nctaid.y",
    "%cluster_nctaid.z", "%cluster_ctarank", "%cluster_nctarank",
)  # fmt: skip


def registers() -> str:
    """A kernel that stores them, and whether the launch said how large a cluster is."""
    body = "".join(
        f"mov.u32 %r4, {name}; st.global.u32 [%rd1+{4 * place}], %r4;\n"
        for place, name in enumerate(REGISTERS)
    )
    return kernel(
        body + "mov.pred %p0, %is_explicit_cluster; selp.u32 %r4, 1, 0, %p0; st.global.u32 [%rd1+56], %r4;"
    )


def addresses(rank: str) -> str:
    """A kernel that stores what is known of a variable's address in another block of the cluster."""
    values = (
        "mov.u32 %r5, data; mov.u32 %r10, %r5;",
        f"mapa.shared::cluster.u32 %r10, %r5, {rank}; mov.u32 %r6, %r10;",
        f"mov.u64 %rd2, data; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd3, %rd2, {rank}; "
        "sub.u64 %rd4, %rd3, %rd2; cvt.u32.u64 %r10, %rd4;",
        "getctarank.shared::cluster.u32 %r10, %r6;",
        "getctarank.u64 %r10, %rd3;",
        "getctarank.shared::cluster.u32 %r10, %r5;",
        *(
            f"isspacep.{space} %p1, %rd3; selp.u32 %r10, 1, 0, %p1;"
            for space in ("shared", "shared::cta", "shared::cluster", "global", "local")
        ),
        "cvta.to.shared.u64 %rd4, %rd3; cvt.u32.u64 %r10, %rd4;",
        "cvta.to.shared::cluster.u64 %rd4, %rd3; cvt.u32.u64 %r10, %rd4;",
        "cvt.u64.u32 %rd4, %r6; cvta.shared::cluster.u64 %rd4, %rd4; sub.u64 %rd4, %rd4, %rd3; "
        "cvt.u32.u64 %r10, %rd4;",
        "mapa.shared::cluster.u32 %r10, %r6, 0;",
    )
    return kernel(
        "".join(f"{each} st.global.u32 [%rd1+{4 * place}], %r10;\n" for place, each in enumerate(values))
    )


#: Each block hands words to the next one of its cluster, and arrives at an mbarrier there: a ring.
RING = kernel(
    f"""
    mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %cluster_nctarank; add.u32 %r6, %r4, 1; rem.u32 %r6, %r6, %r5;
    mov.u32 %r7, data; mov.u32 %r8, bar;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared::cta.b64 [%r8], 32;
    @%p0 fence.mbarrier_init.release.cluster;
    {SYNC}
    mapa.shared::cluster.u32 %r9, %r7, %r6; mapa.shared::cluster.u32 %r10, %r8, %r6;
    mad.lo.u32 %r11, %r0, 4, %r9; mad.lo.u32 %r12, %r0, 4, %r7;
    mad.lo.u32 %r13, %r1, 1000, %r0;
    mov.u32 %r14, 0;
STEP:
    st.shared::cluster.u32 [%r11], %r13;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];
    and.b32 %r15, %r14, 1;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r8], %r15;
    @!%p1 bra WAIT;
    ld.shared.u32 %r16, [%r12];
    mad.lo.u32 %r13, %r16, 3, 1;
    {SYNC}
    add.u32 %r14, %r14, 1;
    setp.lt.u32 %p2, %r14, 5;
    @%p2 bra STEP;
    setp.lt.u32 %p3, %r0, 16;
    mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd1, %rd2;
    @%p3 st.global.u32 [%rd2], %r13;
    """,
    shared=".shared .align 16 .b8 data[1024]; .shared .align 8 .b64 bar;",
)

#: Atomics on floats and words in the next block's memory, by addresses of the cluster and generic ones.
ATOMICS = kernel(
    f"""
    mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %cluster_nctarank; add.u32 %r6, %r4, 1; rem.u32 %r6, %r6, %r5;
    mov.u32 %r7, data; mov.u64 %rd2, data; cvta.shared.u64 %rd2, %rd2;
    mapa.shared::cluster.u32 %r8, %r7, %r6; mapa.u64 %rd3, %rd2, %r6;
    mov.u32 %r9, 16; st.shared.v4.u32 [%r7], {{%r9, %r9, %r9, %r9}};
    add.u32 %r10, %r4, 100; mov.u32 %r18, 0; st.shared.v4.u32 [%r7+16], {{%r10, %r18, %r18, %r18}};
    {SYNC}
    mov.b32 %f1, 3; mov.b32 %f2, 0x7f800001;
    atom.shared::cluster.add.f32 %f3, [%r8], %f1;
    atom.shared::cta.add.f32 %f3, [%r7+8], %f1;
    red.relaxed.cluster.shared::cluster.add.f32 [%r8+12], %f2;
    atom.acq_rel.cluster.shared::cluster.inc.u32 %r11, [%r8+16], 102;
    atom.shared::cluster.cas.b32 %r12, [%r8+20], 0, %r10;
    atom.exch.b32 %r13, [%rd3+24], %r10;
    atom.add.f32 %f3, [%rd3+4], %f1;
    {SYNC}
    ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%r7];
    st.global.v4.u32 [%rd1], {{%r14, %r15, %r16, %r17}};
    ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%r7+16];
    st.global.v4.u32 [%rd1+16], {{%r14, %r15, %r16, %r17}};
    st.global.v4.u32 [%rd1+32], {{%r11, %r12, %r13, %r9}};
    {SYNC}
    """
)

#: Each block counts numbers from 0 to 63, made from its threads' numbers, in bins of 16 a block of four: the
#: same histogram in PTX. Then the first thread of each block adds up the bins of all blocks: a reduction.
HISTOGRAM = (
    kernel(
        f"""
    mov.u32 %r5, data; mad.lo.u32 %r6, %r0, 4, %r5;
    setp.lt.u32 %p0, %r0, 16;
    @%p0 st.shared.u32 [%r6], 0;
    {SYNC}
    mad.lo.u32 %r7, %r1, 37, %r0; mul.lo.u32 %r7, %r7, %r7; and.b32 %r7, %r7, 63;
    shr.u32 %r8, %r7, 4; and.b32 %r9, %r7, 15;
    mapa.shared::cluster.u32 %r10, %r5, %r8; mad.lo.u32 %r10, %r9, 4, %r10;
    red.relaxed.cluster.shared::cluster.add.u32 [%r10], 1;
    {SYNC}
    mad.wide.u32 %rd2, %r0, 4, %rd1;
    @%p0 ld.shared.u32 %r11, [%r6];
    @%p0 st.global.u32 [%rd2], %r11;
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra DONE;
    mov.u32 %r12, 0; mov.u32 %r13, 0;
ADD:
    shr.u32 %r14, %r13, 4; and.b32 %r15, %r13, 15;
    mapa.shared::cluster.u32 %r16, %r5, %r14; mad.lo.u32 %r16, %r15, 4, %r16;
    ld.shared::cluster.u32 %r17, [%r16]; add.u32 %r12, %r12, %r17;
    add.u32 %r13, %r13, 1; setp.lt.u32 %p2, %r13, 64;
    @%p2 bra ADD;
    mov.u32 %r18, %ntid.x; mov.u32 %r19, %cluster_nctarank; mul.lo.u32 %r18, %r18, %r19;
    setp.ne.u32 %p3, %r12, %r18;
    @%p3 trap;
DONE:
    {SYNC}
    """
    )
    .replace("barrier.cluster.arrive.aligned", "barrier.cluster.arrive")
    .replace("barrier.cluster.wait.aligned", "barrier.cluster.wait")
)
