"""Kernels of bulk copies, reductions and asynchronous stores, for the machine, traces and a GPU."""

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"


TO_SHARED = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


TO_GLOBAL = "cp.async.bulk.global.shared::cta.bulk_group"


WITHIN = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"


def kernel(body: str, more: str = "", bytes: int = 4096) -> str:
    """Return a kernel of (a, b), %rd0 and %rd1: shared memory is %r1, an mbarrier %r2, the thread %r0."""
    return f"""{HEAD}
.visible .entry k(.param .u64 a, .param .u64 b) {{
    .reg .b64 %rd<8>;
    .reg .b32 %r<16>;
    .reg .pred %p<6>;
    {more}
    .shared .align 128 .b8 buffer[{bytes}];
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd0, [a];
    ld.param.u64 %rd1, [b];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, buffer;
    mov.u32 %r2, bar;
    setp.ne.u32 %p0, %r0, 0;
    @!%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    bar.sync 0;
    {body}
    ret;
}}"""


WAIT = """
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;"""


def copied(mode: str, target: str) -> str:
    """Return a kernel that copies 4096 bytes to shared memory, within it, and back to global memory."""
    policy = ", %rd5" if mode else ""
    load = f"cp.async.bulk.{target}.global.mbarrier::complete_tx::bytes{mode}"
    return kernel(
        f"""
    @%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
    {load} [%r1], [%rd0], 4096, [%r2]{policy};
    {WAIT}
    bar.sync 0;
    @%p0 bra DONE;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
    {WITHIN} [%r1+4096], [%r1], 2048, [%r2];
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1;
    @!%p1 bra AGAIN;
    {TO_GLOBAL}{mode} [%rd1+16], [%r1+2048], 4096{policy};
    cp.async.bulk.commit_group;
    cp.async.bulk.prefetch.L2.global [%rd0], 64;
    cp.async.bulk.wait_group 0;
DONE:""",
        bytes=8192,
    )


def store_and_wait(wait: str) -> str:
    """Return a kernel that stores 16 bytes, waits, overwrites the source, and reads the target."""
    return kernel(f"""
    mov.u32 %r4, 5;
    st.shared.u32 [%r1], %r4;
    fence.proxy.async;
    {TO_GLOBAL} [%rd0], [%r1], 16;
    cp.async.bulk.commit_group;
    {wait}
    mov.u32 %r4, 6;
    st.shared.u32 [%r1], %r4;
    ld.global.u32 %r5, [%rd0];
    st.global.u32 [%rd1], %r5;""")


def remote(instructions: str) -> str:
    """Return a kernel in which each block of a cluster stores into the next one, and tells what it got."""
    return kernel(
        f"""
    mov.u32 %r3, %cluster_ctarank;
    mov.u32 %r4, %cluster_nctarank;
    add.u32 %r5, %r3, 1;
    rem.u32 %r5, %r5, %r4;
    mapa.shared::cluster.u32 %r6, %r1, %r5;
    mapa.shared::cluster.u32 %r7, %r2, %r5;
    mov.u32 %r8, 100;
    st.shared.u32 [%r1], %r8;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    add.u32 %r9, %r3, 10;
    cvt.u64.u32 %rd4, %r9;
    {instructions}
    {WAIT}
    shl.b32 %r10, %r3, 4;
    cvt.u64.u32 %rd2, %r10;
    add.u64 %rd3, %rd1, %rd2;
    ld.shared.v4.u32 {{%r11, %r12, %r13, %r14}}, [%r1];
    st.global.v4.u32 [%rd3], {{%r11, %r12, %r13, %r14}};
    barrier.cluster.arrive;
    barrier.cluster.wait;"""
    )


STORED = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"


REDUCED = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
