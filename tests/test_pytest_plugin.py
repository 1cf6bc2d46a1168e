"""`lanewise.pytest`: tests whose launches are checked, run by a pytest of their own."""

from pathlib import Path

import pytest

import lanewise

pytest_plugins = ["pytester"]

KERNELS = '''
import numpy as np
import pytest
import lanewise as lw

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    .shared .align 4 .b8 tile[256];
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, tile;
    add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], %r0;
    BARRIER
    ld.shared.u32 %r3, [tile+4];
    ld.param.u64 %rd0, [out];
    mad.wide.u32 %rd0, %r0, STRIDE, %rd0;
    st.global.u32 [%rd0], %r3;
    ret;
}
"""

def launch(barrier="bar.sync 0;", stride=4):
    text = PTX.replace("BARRIER", barrier).replace("STRIDE", str(stride))
    out = np.zeros(64 * stride // 4, np.uint32)
    lw.load(text)["k"][1, 64](out)
    return out
'''
TESTS = """
from kernels import launch

def test_right(lanewise_check):
    assert launch()[5] == 1
    (report,) = lanewise_check.reports
    assert report.ok and report.kernel == "k"

def test_race(lanewise_check):
    launch(barrier="")

def test_spread_is_slow_and_not_wrong(lanewise_check):
    launch(stride=128)

def test_spread_is_too_slow(lanewise_check):
    lanewise_check.strict = True
    launch(stride=128)

def test_left_alone(lanewise_check):
    lanewise_check.off = True
    launch(barrier="")

def test_nothing_is_checked():
    launch(barrier="")
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(lanewise.__file__).parents[1]))
    pytester.makeconftest('pytest_plugins = ["lanewise.pytest"]')
    pytester.makepyfile(kernels=KERNELS, test_launches=TESTS)
    return pytester


def test_launches_are_checked_where_the_fixture_is(tests: pytest.Pytester) -> None:
    result = tests.runpytest_subprocess("-p", "no:cacheprovider", "-rA")
    result.assert_outcomes(passed=4, failed=2)
    result.stdout.fnmatch_lines(["FAILED*test_race*", "FAILED*test_spread_is_too_slow*"])
    text = result.stdout.str()
    assert "race: shared" in text and "uncoalesced write" in text and "LaunchFailed" in text


def test_all_launches_and_strictly(tests: pytest.Pytester) -> None:
    options = ("--lanewise-check", "--lanewise-strict", "-k", "nothing or not_wrong")
    result = tests.runpytest_subprocess("-p", "no:cacheprovider", *options)
    result.assert_outcomes(failed=2, deselected=4)


CONFTEST = """
from lanewise.virtual_gpu.session import active

GPU = active()
"""


def test_a_virtual_gpu_is_there_before_the_files_of_a_suite_are_imported(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before a conftest.py, which may ask for the device when it is imported."""
    monkeypatch.setenv("PYTHONPATH", str(Path(lanewise.__file__).parents[1]))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        "import conftest\nfrom lanewise.virtual_gpu.session import active\n\n"
        "def test_it():\n    assert 'A100' in str(conftest.GPU) and conftest.GPU is active()\n"
    )
    options = ["-p", "lanewise.pytest", "-p", "no:cacheprovider", "--gpu"]
    pytester.runpytest_subprocess(*options, "A100").assert_outcomes(passed=1)


def test_a_gpu_that_nobody_makes_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "lanewise.pytest", "--gpu", "A1000")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpu: *A1000*"])
