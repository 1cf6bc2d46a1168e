"""setmaxnreg: what a check says of registers at launch is what ptxas does, seen in the machine code."""

from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import sampled
from lanewise import disk_cache
from lanewise.machine.analysis.register_pool import IGNORED, UNKNOWN, registers_at_launch
from lanewise.machine.program.resolve import resolve
from lanewise.ptx.tools import assembler
from ptxas import find_ptxas

pytestmark = pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
BOUNDED = ".maxntid 384, 1, 1\n.minnctapersm 1"


def wgmma(columns: int) -> str:
    """A product that keeps the accumulators of 64 × columns elements in registers."""
    count = columns // 2
    names = ", ".join(f"%w{number}" for number in range(count))
    loads = "".join(f"    ld.global.f32 %w{number}, [%a+{4 * number}];\n" for number in range(count))
    stores = "".join(f"    st.global.f32 [%a+{4 * number}], %w{number};\n" for number in range(count))
    return f"""    .reg .f32 {names}; .reg .b64 %d; mov.u64 %d, 0;
{loads}    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{names}}}, %d, %d, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
{stores}"""


def specialised(
    directives: str, taken: int | None = 232, given: int | None = 40, columns: int = 0, name: str = "k"
) -> str:
    """The text of a kernel in which a warpgroup gives up registers and the others take some."""
    take = f"setmaxnreg.inc.sync.aligned.u32 {taken};" if taken else ""
    give = f"setmaxnreg.dec.sync.aligned.u32 {given};" if given else ""
    return f""".visible .entry {name}(.param .u64 p)
{directives}
{{
    .reg .b32 %t; .reg .b64 %a; .reg .pred %q; .reg .f32 %f;
    ld.param.u64 %a, [p]; mov.u32 %t, %tid.x; setp.lt.u32 %q, %t, 128;
    @%q bra GIVE;
    {take}
{wgmma(columns) if columns else ""}
    ret;
GIVE:
    {give}
    ret;
}}
"""


def loaded(*kernels: str) -> Any:
    return lw.load("\n".join((".version 8.0\n.target sm_90a\n.address_size 64", *kernels)))


def at_launch(module: Any, name: str = "k") -> int:
    return registers_at_launch(resolve(module, module[name].function), "sm_90a")


BOUNDS = [
    BOUNDED, ".maxntid 256, 1, 1\n.minnctapersm 2", ".maxntid 128\n.minnctapersm 1",
    ".reqntid 512\n.minnctapersm 1", ".maxnreg 168", ".maxnreg 255", ".maxntid 384\n.maxnreg 128",
    ".maxntid 64, 6, 1\n.minnctapersm 1", ".maxntid 96\n.minnctapersm 3", ".maxntid 1024\n.minnctapersm 1",
    ".maxntid 288\n.minnctapersm 1", ".maxntid 160\n.minnctapersm 2",
    ".maxntid 33\n.minnctapersm 5",
]  # fmt: skip
MOVES = [(232, 40, 0), (160, 24, 0), (None, 40, 0), (96, None, 0), (240, 24, 64)]


def test_registers_at_launch_are_those_of_ptxas() -> None:
    cases = {
        f"k{number}": (directives, *moves)
        for number, (directives, moves) in enumerate((one, two) for one in BOUNDS for two in MOVES)
    }
    module = loaded(*(specialised(*case, name=name) for name, case in cases.items()))
    cubin = lw.ptx.ptxas(module)
    listing = cubin.sass()
    for name, case in cases.items():
        assert "USETMAXREG" in assembler.sass_of(listing, name), case
        assert at_launch(module, name) == cubin.resources[name].registers, case


@sampled(8)
@pytest.mark.parametrize(
    ("directives", "columns"),
    [(".maxntid 384", 128), ("", 0), (".maxntid 384", 0), (".minnctapersm 1", 0), (".reqntid 256", 128)],
)
def test_without_a_bound_ptxas_is_asked(directives: str, columns: int) -> None:
    module = loaded(specialised(directives, 240, 24, columns))
    cubin = lw.ptx.ptxas(module)
    expected = cubin.resources["k"].registers if "USETMAXREG" in cubin.sass() else IGNORED
    assert at_launch(module) == expected
    assert expected == (
        168 if (directives, columns) == (".maxntid 384", 128) else IGNORED
    )  # no rule has both


def advice(module: Any, name: str = "k", threads: int = 384) -> list[str]:
    report = lw.check(module[name][1, threads], np.ones(4096, np.float32))
    return [f"{each.message}: {each.mend}" for each in report.findings if each.kind == "setmaxnreg"]


def test_what_is_said() -> None:
    # ptxas gives 168, and not the 40 that the only setmaxnreg asks for.
    assert advice(loaded(specialised(BOUNDED, taken=None))) == []
    (found,) = set(advice(loaded(specialised(".maxntid 384"))))
    assert "ptxas ignores setmaxnreg" in found and "__launch_bounds__(threads, blocks)" in found
    (found,) = set(advice(loaded(specialised(BOUNDED, taken=None, given=168))))
    assert found.startswith(
        "setmaxnreg.dec gives up no registers: it asks for 168 for each thread, and each has 168: "
    )


@pytest.mark.parametrize("arch, severity", [("sm_90a", "error"), ("sm_100a", "advice")])
def test_warps_of_a_warpgroup_that_differ(arch: str, severity: str) -> None:
    """CUTLASS's attention for sm_100 does so; the finding names the warp that asks for another number."""
    fewer = "GIVE:\n    setp.lt.u32 %q, %t, 96; @%q bra MOST; setmaxnreg.dec.sync.aligned.u32 24; ret;\nMOST:"
    text = specialised(BOUNDED).replace("GIVE:", fewer)
    module = lw.load(f".version 8.6\n.target {arch}\n.address_size 64\n{text}")
    (finding,) = lw.check(module["k"][1, 384], np.ones(4096, np.float32)).findings
    assert finding.severity == severity and finding.thread == (96, 0, 0)
    assert finding.message.startswith("some warps of the warpgroup execute this setmaxnreg")


def test_without_ptxas_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **options: object) -> None:
        raise lw.LanewiseError("ptxas is not installed")

    monkeypatch.setattr(assembler, "ptxas", missing)
    read = disk_cache.read
    monkeypatch.setattr(disk_cache, "read", lambda one, two: None if two == ".registers" else read(one, two))
    module = loaded(specialised(".maxntid 384", 216, 48))
    assert at_launch(module) == UNKNOWN
    assert advice(module) == []


def test_ptxas_is_asked_once_for_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, kept = [], dict[tuple[str, str], bytes]()

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(options)
        return ptxas(*arguments, **options)

    ptxas = assembler.ptxas
    monkeypatch.setattr(assembler, "ptxas", counted)
    monkeypatch.setattr(disk_cache, "read", lambda *request: kept.get(request))
    monkeypatch.setattr(disk_cache, "keep", lambda one, two, found: kept.update({(one, two): found}))
    for _ in range(2):  # another module with the same text stands for another process
        module = loaded(specialised(".maxntid 384", 208, 56))
        assert at_launch(module) == at_launch(module) == IGNORED
    assert len(asked) == 1
