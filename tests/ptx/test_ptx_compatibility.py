"""Which PTX version an instruction needs, held against ptxas; where a target runs; what a kernel tells."""

import pytest

import lanewise as lw
from lanewise.isa import arch_number
from lanewise.ptx import Resources, parse
from lanewise.ptx.compatibility import instruction_version, needed_version
from lanewise.ptx.targets import runs_on, version_numbers
from ptxas import assemble, find_ptxas

VERSIONS = (
    "6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8",
    "8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0",
)  # fmt: skip
INSTRUCTIONS = """
shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;
activemask.b32 %r1;
nanosleep.u32 %r1;
atom.global.add.noftz.f16x2 %r1, [%rd1], %r2;
atom.global.add.noftz.f16 %h1, [%rd1], %h2;
atom.global.cas.b16 %h1, [%rd1], %h2, %h3;
cp.async.ca.shared.global [%rd1], [%rd2], 16;
cp.async.wait_group 2;
redux.sync.add.s32 %r1, %r2, -1;
mbarrier.init.shared.b64 [%r1], %r2;
fma.rn.bf16 %h1, %h2, %h3, %h4;
neg.bf16 %h1, %h2;
cvt.rn.bf16x2.f32 %r1, %f1, %f2;
cvt.rna.tf32.f32 %r1, %f1;
tanh.approx.f32 %f1, %f2;
ex2.approx.f16 %h1, %h2;
min.NaN.f32 %f1, %f2, %f3;
fma.rn.relu.f16 %h1, %h2, %h3, %h1;
cvt.f32.bf16 %f1, %h1;
mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;
alloca.u64 %rd1, 16;
createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;
ld.global.L1::no_allocate.b32 %r1, [%rd1];
ld.global.nc.L2::128B.b32 %r1, [%rd1];
discard.global.L2 [%rd1], 128;
fence.proxy.alias;
bmsk.clamp.b32 %r1, %r2, %r3;
isspacep.param %p1, %rd1;
add.bf16 %h1, %h2, %h3;
setp.eq.bf16 %p1, %h1, %h2;
cvt.rn.tf32.f32 %r1, %f1;
cvt.rn.f16.bf16 %h1, %h2;
cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;
barrier.cluster.arrive;
mapa.shared::cluster.u32 %r1, %r2, 0;
ld.shared::cluster.b32 %r1, [%r2];
mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;
griddepcontrol.wait;
mov.u32 %r1, %clusterid.x;
elect.sync %r1|%p1, -1;
setmaxnreg.dec.sync.aligned.u32 40;
wgmma.fence.sync.aligned;
fence.proxy.async;
mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 16;
cp.async.bulk.commit_group;
min.s16x2 %r1, %r2, %r3;
st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3];
red.global.add.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};
lop3.or.b32 %r1|%p1, %r2, %r3, %r1, 0x96, %p2;
ld.global.b128 %q1, [%rd1];
fence.proxy.tensormap::generic.release.gpu;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];
add.rn.f32x2 %rd1, %rd2, %rd3;
redux.sync.min.f32 %f1, %f2, -1;
max.f32 %f1, %f2, %f3, %f4;
ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];
add.f32 %f1, %f2, %f3;
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r8};
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r3];
movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;
""".strip().splitlines()
REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<9>;"


def text(version: str, target: str) -> tuple[str, int]:
    """A module with all of them, a line each, and the line of the first."""
    wide = ".reg .b128 %q<3>;" if version_numbers(version) >= (8, 3) else ""
    head = f".version {version}\n.target {target}\n.address_size 64\n.entry k() {{\n{REGISTERS} {wide}\n"
    return head + "\n".join(INSTRUCTIONS) + "\n}\n", head.count("\n") + 1


def newest_target(version: str) -> str:
    """The newest target of a version, of those that bring instructions: older ones would be refused some."""
    firsts = {
        "sm_70": "6.0",
        "sm_75": "6.3",
        "sm_80": "7.0",
        "sm_90": "7.8",
        "sm_90a": "8.0",
        "sm_100a": "8.6",
    }
    return max(
        (target for target, first in firsts.items() if version_numbers(first) <= version_numbers(version)),
        key=lambda target: (arch_number(target), target),
    )


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_the_version_of_every_instruction_is_the_first_that_ptxas_takes() -> None:
    firsts: dict[int, str] = {}
    for version in VERSIONS:
        target = newest_target(version)
        module, start = text(version, target)
        refused = {line - start for line, _ in assemble(module, target)}
        for number in set(range(len(INSTRUCTIONS))) - refused:
            firsts.setdefault(number, version)
    module, _ = text("8.8", "sm_100a")
    operations = parse(module)["k"].function.operations
    found = [instruction_version(operation) for operation in operations]
    wrong = [
        (line, mine, firsts.get(number))
        for number, (line, mine) in enumerate(zip(INSTRUCTIONS, found, strict=True))
        if mine != firsts.get(number)
    ]
    assert not wrong


def test_a_module_needs_what_its_target_instructions_and_directives_need() -> None:
    plain = ".version 9.0\n.target {}\n.address_size 64\n.visible .entry k() {} {{ {} ret; }}"
    for target, directive, body, needed in (
        ("sm_70", "", "", "6.0"),
        ("sm_89", "", "", "7.8"),
        ("sm_90a", "", "", "8.0"),
        ("sm_120f", "", "", "8.8"),
        ("sm_80", "", "cp.async.wait_all;", "7.0"),
        ("sm_80", "", "@%p discard.global.L2 [%rd1], 128;", "7.4"),
        ("sm_90", ".reqnctapercluster 2, 1, 1", "", "7.8"),
        ("sm_80", "", ".loc 1 2 3, function_name $L+0, inlined_at 1 2 3", "7.2"),
    ):
        assert needed_version(parse(plain.format(target, directive, body))) == needed


@pytest.mark.parametrize(
    ("target", "archs"),
    [
        ("sm_80", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]),
        ("sm_90", ["sm_90", "sm_100", "sm_120"]),
        ("sm_90a", ["sm_90"]),
        ("sm_100f", ["sm_100", "sm_103"]),
        ("sm_120f", ["sm_120", "sm_121"]),
    ],
)
def test_targets_run_on_newer_gpus_unless_they_are_specific(target: str, archs: list[str]) -> None:
    plain = [arch for arch in lw.ARCHS if arch[-1] not in "af"]
    ran = [arch for arch in plain if runs_on(target, arch)]
    assert set(archs) <= set(ran)
    if target[-1] in "af":
        assert ran == archs
    else:
        assert ran == [arch for arch in plain if arch_number(arch) >= arch_number(target)]


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_a_kernel_tells_its_ptx_sass_and_resources() -> None:
    module = lw.load(
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry first(.param .u64 x) { .reg .b64 %rd; .shared .b8 room[640];\n"
        "mov.u64 %rd, room; st.u64 [%rd], %rd; ret; }\n"
        ".visible .entry second() { bar.sync 0; ret; }\n"
    )
    for arch in ("sm_80", "sm_90"):
        assert module["first"].resources(arch).shared_bytes == 640
        assert module["second"].resources(arch).shared_bytes == 0
        sass = module["second"].sass(arch)
        assert "BAR.SYNC" in sass and ".text.second" in sass and ".text.first" not in sass
    assert module["first"].resources().threads == 1024
    assert ".visible .entry second" in module["first"].ptx("sm_120")
    for ask in (module["first"].ptx, module["first"].sass, module["first"].resources):
        with pytest.raises(lw.LanewiseError, match="this PTX is for sm_80"):
            ask("sm_75")


@pytest.mark.parametrize(
    ("registers", "threads"),
    [(16, 1024), (64, 1024), (65, 896), (72, 896), (128, 512), (168, 384), (255, 256)],
)
def test_threads_that_the_registers_allow(registers: int, threads: int) -> None:
    """As NVIDIA's occupancy calculator has it for 64 K registers."""
    assert Resources(registers=registers).threads == threads
