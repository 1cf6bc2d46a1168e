"""A mistake in the machine's compiler is called one: it does not read as if the PTX were at fault."""

import pickle

import numpy as np
import pytest

import lanewise as lw
from lanewise.errors import InternalError, LanewiseError
from lanewise.machine import Unsupported
from lanewise.machine.arithmetic import bits
from lanewise.machine.compile.lowering import function_of
from lanewise.tracebacks import RAISE_AS_IS

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .b64 %rd<2>; .reg .b32 %r<4>;
    ld.param.u64 %rd0, [out];
    brev.b32 %r0, {number};
    st.global.u32 [%rd0], %r0;
    ret;
}}
"""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every brev trips over a mistake of the compiler."""

    def lower(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    function_of.cache_clear()
    monkeypatch.setattr("lanewise.machine.arithmetic.integer.count", lower)
    monkeypatch.setenv("LANEWISE_CACHE_DIR", "")


def launch(number: int) -> None:
    lw.load(PTX.format(number=number))["k"][1, 1](np.zeros(1, np.uint32))


def test_users_are_told_whose_mistake_it_is(broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RAISE_AS_IS, raising=False)
    with pytest.raises(InternalError) as caught:
        launch(1)
    function_of.cache_clear()
    text = str(caught.value)
    assert "line 8: 'brev.b32 %r0, 1;' could not be compiled (ZeroDivisionError: a mistake)" in text
    assert "a mistake in lanewise" in text and "report it" in text
    assert isinstance(caught.value, LanewiseError) and not isinstance(caught.value, Unsupported)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_in_the_tests_it_is_raised_as_it_is(broken: None) -> None:
    with pytest.raises(ZeroDivisionError):
        launch(2)
    function_of.cache_clear()


def test_what_the_compiler_refuses_stays_unsupported() -> None:
    with pytest.raises(Unsupported):
        lw.load(PTX.format(number="1, 2"))["k"][1, 1](np.zeros(1, np.uint32))
    assert bits is not None
