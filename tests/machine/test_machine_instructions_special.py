"""Special registers, addresses of spaces, clusters of one block, hints; and refusals, each with its line."""

import numpy as np
import pytest

from lanewise.machine import Unsupported
from lanewise.ptx import parse

HEADER = """
.version 8.7
.target sm_90a
.address_size 64
.global .align 8 .b64 g; .const .align 8 .b64 c; .extern .shared .align 8 .b8 dynamic[];
"""


def kernel(body: str) -> str:
    return f"""{HEADER}
.visible .entry k(.param .u64 out)
{{
    .shared .align 8 .b64 s[2]; .local .align 8 .b64 l;
    .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .v4 .u32 %v;
    ld.param.u64 %rd0, [out];
    {body}
    ret;
}}
"""


def first(body: str, count: int, shared: int = 0, grid: int = 1) -> list[int]:
    out = np.zeros(max(count, 8), np.uint32)
    parse(kernel(body))["k"][grid, 32, shared](out)
    return out[:count].tolist()


def test_special_registers() -> None:
    values = {
        "%cluster_nctaid.x": 1, "%cluster_nctarank": 1, "%cluster_ctarank": 0, "%cluster_ctaid.y": 0,
        "%nclusterid.x": 3, "%nctaid.x": 3, "%envreg5": 0, "%pm3": 0, "%total_smem_size": 144,
        "%dynamic_smem_size": 128, "%aggr_smem_size": 144 + 1024, "%ntid.x": 32, "WARP_SZ": 32, "%nwarpid": 1,
    }  # fmt: skip
    body = "st.shared.u32 [s], 0;" + "".join(
        f"mov.u32 %r0, {register}; st.global.u32 [%rd0+{4 * place}], %r0;"
        for place, register in enumerate(values)
    )
    assert dict(zip(values, first(body, len(values), shared=128, grid=3), strict=True)) == values


def test_which_space_a_generic_address_lies_in() -> None:
    """Every address is in its own space, and in no other."""
    names = {"global": "g", "const": "c", "shared": "s", "local": "l"}
    body, expected = [], []
    for number, (space, name) in enumerate(names.items()):
        body.append(f"mov.u64 %rd1, {name}; cvta.{space}.u64 %rd1, %rd1;")
        for place, asked in enumerate(names):
            body.append(f"isspacep.{asked} %p0, %rd1; selp.u32 %r0, 1, 0, %p0;")
            body.append(f"st.global.u32 [%rd0+{16 * number + 4 * place}], %r0;")
        body.append(
            f"cvta.to.{space}.u64 %rd2, %rd1; mov.u64 %rd3, {name}; setp.ne.u64 %p1, %rd2, %rd3; @%p1 trap;"
        )
        expected += [int(asked == space) for asked in names]
    assert first("\n".join(body), 16) == expected


def test_a_cluster_of_one_block() -> None:
    """mapa of rank 0 leads to the block's own memory, whose rank is 0."""
    body = """
    mov.u32 %r1, s;
    mapa.shared::cluster.u32 %r2, %r1, 0;
    st.shared.u32 [s], 77;
    bar.warp.sync -1;
    ld.shared::cluster.u32 %r3, [%r2];
    getctarank.shared::cluster.u32 %r4, %r2;
    setmaxnreg.inc.sync.aligned.u32 64;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    createpolicy.fractional.L2::evict_last.b64 %rd3, 0.5;
    ld.global.L2::cache_hint.u32 %r5, [%rd0], %rd3;
    st.global.v2.u32 [%rd0], {%r3, %r4};
    """
    assert first(body, 2) == [77, 0]


def test_time_goes_on() -> None:
    body = """
    mov.u64 %rd1, %clock64;
AGAIN:
    mov.u64 %rd2, %clock64;
    sub.u64 %rd3, %rd2, %rd1;
    setp.lt.u64 %p0, %rd3, 100000;
    nanosleep.u32 100;
    @%p0 bra AGAIN;
    st.global.u32 [%rd0], 1;
    """
    assert first(body, 1) == [1]


@pytest.mark.parametrize("clock", ["%clock64", "%globaltimer"])
def test_time_passes_between_two_readings(clock: str) -> None:
    body = f"""
    mov.u64 %rd1, {clock};
    mov.u32 %r1, 0;
AGAIN:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p0, %r1, 10;
    @%p0 bra AGAIN;
    mov.u64 %rd2, {clock};
    sub.u64 %rd3, %rd2, %rd1;
    setp.gt.s64 %p0, %rd3, 0;
    selp.u32 %r1, 1, 0, %p0;
    st.global.u32 [%rd0], %r1;
    """
    assert first(body, 1) == [1]


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("cp.async.bulk.wait_group %r1;", "its number of groups is not a constant"),
        ("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %r1;", "needs sm_100"),
        ("st.async.mmio.release.gpu.global.u32 [%rd0], %r1;", "needs sm_100"),
        ("setmaxnreg.inc.sync.aligned.u32 65;", "24 to 256 in steps of 8"),
        ("setmaxnreg.dec.sync.aligned.u32 %r1;", "24 to 256 in steps of 8"),
        ("multimem.red.relaxed.sys.global.add.f32 [%rd0], %r1;", "multicast"),
        (
            "tex.2dms.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd1, {%r4, %r4, %r4, %r4}];",
            "textures and surfaces are 1d",
        ),
        (
            "tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%rd0], 1;",
            "needs a target with the suffix a or f",
        ),
        ("tensormap.replace.tile.box_dim.global.b1024.b32 [%rd0], 5, %r1;", "a constant from 0 to 4"),
        ("frobnicate.u32 %r0, %r1;", "cannot run"),
        ("mbarrier.bf16x2.init.shared::cta.b64 [%r0], 1;", "stands directly after mbarrier"),
        ("max.wide.u32 %rd1, %r0, 16, %rd0;", "for .f32 alone"),
        ("testp.tiny.f32 %p1, %r1;", "does not test for .tiny"),
        ("red.global.max.s32 [%rd0], %p1;", "numbers, and not predicates"),
        ("add.frob.u32 %r0, %r1, %r2, %r3, %r4;", "cannot run"),
    ],
)
def test_what_cannot_run_is_named_before_anything_runs(instruction: str, why: str) -> None:
    text = kernel(f"st.global.u32 [%rd0], 1;\n    {instruction}")
    line = 1 + text.splitlines().index(f"    {instruction}")
    out = np.zeros(8, np.uint32)
    with pytest.raises(Unsupported, match=rf"line {line}: .*{why}"):
        parse(text)["k"][1, 32](out)
    assert not out.any()
